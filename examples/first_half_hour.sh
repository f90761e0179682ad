#!/usr/bin/env bash
# The first half hour of a new user, as a transcript in Markdown:
#
#     cargo build --release
#     PATH="$PWD/target/release:$PATH" PYTHON=python3 examples/first_half_hour.sh > docs/first-half-hour.md
#
# PYTHON is one with numpy and onnxruntime. Everything happens in a folder that is removed afterwards.
set -u
examples=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$examples/squeezenet1_1.onnx" "$work/model.onnx"
cp "$examples/compare.py" "$work"
cd "$work" || exit 1

# A command as it is typed, with all that it prints, and its exit code if that is not 0.
try() {
    echo '```text'
    echo "\$ $1"
    bash -c "${1/#python /${PYTHON:-python3} }" 2>&1
    local code=$?
    [ $code -eq 0 ] || echo "(exit code $code)"
    echo '```'
    echo
}

# A text is saved, shown and tried.
save() {
    cat > "$1"
    echo '```text'
    echo "\$ cat $1"
    cat "$1"
    echo '```'
    echo
}

cat << 'TEXT'
# The first half hour

A transcript, unedited, made by `examples/first_half_hour.sh`: what a new user types, in this order, and what the tool answers.

## What is there

TEXT
try 'mlc-rewrite --version'
try 'mlc-rewrite list layers gelu'
try 'mlc-rewrite explain gleu'
try 'mlc-rewrite explain gelu'

cat << 'TEXT'
## A layer, wrong in five ways

A name that is misspelt:

TEXT
save layer.rules << 'TEXT'
/// Swish with a slope.
def my_swish(x: F[..s], slope: float = 1.5) -> F[..s]
  = x * sgimoid(slope * x)
TEXT
try 'mlc-rewrite check layer.rules'
echo 'A result without a type:'
echo
save layer.rules << 'TEXT'
/// Swish with a slope.
def my_swish(x: F[..s], slope: float = 1.5)
  = x * sigmoid(slope * x)
TEXT
try 'mlc-rewrite check layer.rules'
echo 'A parameter without a type:'
echo
save layer.rules << 'TEXT'
/// Swish with a slope.
def my_swish(x: F[..s], slope) -> F[..s]
  = x * sigmoid(slope * x)
TEXT
try 'mlc-rewrite check layer.rules'
echo 'A result of another shape than declared:'
echo
save layer.rules << 'TEXT'
/// Swish, summed.
def my_swish(x: F[..s, n]) -> F[..s, n]
  = sum(n) x * sigmoid(x)
TEXT
try 'mlc-rewrite check layer.rules'
echo 'Two inputs whose axes cannot be aligned:'
echo
save layer.rules << 'TEXT'
/// Swish with a gate.
def my_swish(x: F[b, n], gate: F[m]) -> F[b, n]
  = x * sigmoid(gate)
TEXT
try 'mlc-rewrite check layer.rules'
echo 'And right:'
echo
save layer.rules << 'TEXT'
/// Swish with a slope.
def my_swish(x: F[..s], slope: float in 0.5..2 = 1.5) -> F[..s]
  = x * sigmoid(slope * x)
TEXT
try 'mlc-rewrite check layer.rules'

cat << 'TEXT'
## A law, wrong in five ways

One that is false, and does not say how exact it is:

TEXT
save law.rules << 'TEXT'
/// A sum with itself.
rule my_law
  x + x => x
  given x: F[..s]
TEXT
try 'mlc-rewrite check law.rules'
try 'echo "  error exact" >> law.rules; mlc-rewrite check law.rules'
echo 'One that holds for some values only:'
echo
save law.rules << 'TEXT'
/// The root of a square.
rule my_law
  sqrt(x * x) => x
  given x: F[..s]
  error reorder
TEXT
try 'mlc-rewrite check law.rules'
echo 'One that promises the same bits:'
echo
save law.rules << 'TEXT'
/// Factors are taken out.
rule my_law
  x * z + y * z => (x + y) * z
  given x: F[..s], y: F[..s], z: F[..s]
  error exact
TEXT
try 'mlc-rewrite check law.rules'
echo 'One with a variable that nothing gives:'
echo
save law.rules << 'TEXT'
/// Factors are taken out.
rule my_law
  x * z + y * z => (x + y) * w
  given x: F[..s], y: F[..s], z: F[..s]
  error reorder
TEXT
try 'mlc-rewrite check law.rules'
echo 'One whose sides have different shapes:'
echo
save law.rules << 'TEXT'
/// Two sums are one.
rule my_law
  sum(n) sum(m) x => sum(m) x
  given x: F[n, m]
  error reorder
TEXT
try 'mlc-rewrite check law.rules'
echo 'And right:'
echo
save law.rules << 'TEXT'
/// Factors are taken out.
rule my_law
  x * z + y * z => (x + y) * z
  given x: F[..s], y: F[..s], z: F[..s]
  error reorder
TEXT
try 'mlc-rewrite check law.rules'

cat << 'TEXT'
## Why a fusion did not happen

A GELU as exporters write it, with a constant that is a little off:

TEXT
save block.rules << 'TEXT'
/// A block with a GELU.
def block(x: f32[batch, 64]) -> f32[batch, 64]
  = 0.5 * x * (1 + erf(x / 1.4))
TEXT
try 'mlc-rewrite explain block.rules'
if mlc-rewrite explain --help | grep -q -e --why-not; then
    try 'mlc-rewrite explain block.rules --why-not gelu'
fi
try "sed -i 's/1.4)/1.4142135)/' block.rules"
try 'mlc-rewrite explain block.rules'

cat << 'TEXT'
## A model

TEXT
try 'mlc-rewrite inspect model.onnx'
try 'mlc-rewrite optimize model.onnx -o optimised.onnx'
try 'mlc-rewrite diff model.onnx optimised.onnx'
try 'mlc-rewrite optimize model.onnx -o /dev/stdout --json report.json > again.onnx'
try 'cmp optimised.onnx again.onnx && echo the same'
try 'mlc-rewrite optimize model.onnx -o optimised.onnx --json optimised.onnx'
try 'mlc-rewrite bench optimised.onnx --iterations 20'
try 'python compare.py model.onnx optimised.onnx'
