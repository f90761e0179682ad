//! Every message of the checker, as its reader sees it.

use mlc_dsl::check::library;
use mlc_dsl::diagnostics::{CODES, Diag, render};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Texts with mistakes, by the code that each must show; read together with the shipped operators.
const CASES: &[(&str, &[&str])] = &[
    ("S019", &["@mistakes"]),
    (
        "R001",
        &[
            "def f(x: F[..s]) -> F[..s]\n  = x + x\ndef f(x: F[..s]) -> F[..s]\n  = 2 * x\n",
            "op add(a: F[..s]) -> y: F[..s]\n  y[..s] = a[..s]\n",
            "def f(x: F[..s], x: F[..s]) -> F[..s]\n  = x + x\n",
            "target t\n  flops = 1\ntarget t\n  flops = 2\n",
        ],
    ),
    (
        "R002",
        &[
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = x[..s] * scale\n",
            "op f(x: F[a, b]) -> y: F[a]\n  y[a] = x[a, b]\n",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = exp(x)\n",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = z[..s]\n",
            "def f(scale: F[..s]) -> F[..s]\n  = 2 * scal\n",
            "def f(x: F[..s]) -> F[..s]\n  = x + y\n",
            "rule r\n  x + x => 2 * x\n  given x: F[..s], eps: float\n  when esp > 0\n  error reorder\n",
            "rule r\n  cumsum(x, axis=0, reverse=True) => x\n  given x: F[n]\n  error exact\n",
            "def f(x: F[b, n]) -> F[b]\n  = max(n) -x\n",
            "rule r\n  x + x => 2 * x\n  error exact\n",
        ],
    ),
    (
        "R003",
        &[
            "def f(x: F[..s]) -> F[..s]\n  = tahn(x)\n",
            "def f(x: F[..s]) -> F[..s]\n  = frobnicate(x)\n",
            "target t\n  kernel \"gemm\" covers matmull\n",
        ],
    ),
    (
        "R004",
        &[
            "op f(x: F[a, b]) -> y: F[a]\n  y[a] = sum(c) x[a, c]\n",
            "op f(x: F[a, ..s]) -> y: F[a]\n  y[a] = sum(s) x[a, ..s]\n",
            "op f(x: F[a, b]) -> y: F[b, a]\n  y[b, a] = x[b, a]\n",
            "op f(x: F[a, b]) -> y: F[b, a]\n  y[a, b] = x[a, b]\n",
            "op f(x: F[a]) -> y: F[a]\n  y[a] = x[a] * |b|\n",
            "def f(x: F[..b, n]) -> F[..b]\n  = sum(m) x\n",
            "def f(x: F[..b, n]) -> F[..b, n]\n  = x * |k|\n",
            "op f(x: F[n]) -> y: F[m]\n  y[m] = x[m]\n",
            "def f(x: F[a, b]) -> F[b, a]\n  = x[b, c]\n",
            "def f(x: F[a, b]) -> F[a]\n  = x[a]\n",
            "def f(x: F[..s]) -> F[..s]\n  let r = pad(x, 0, low=[1], high=[1])\n  = r[a]\n",
            "def f(x: F[n]) -> F[n]\n  let r = reshape(x, shape=[2, 2, |n|])\n  = sum(a) r[a, b]\n",
            "def f(x: F[a, n]) -> F[a, n]\n  let (u, v) = split(x, axis=m, parts=2)\n  = concat(u, v, axis=-1)\n",
            "def f(x: F[b, n]) -> F[b, n]\n  = cumsum(x, axis=2)\n",
            "def f(x: F[n]) -> F[n]\n  = cumsum(x, axis=-2)\n",
        ],
    ),
    (
        "R005",
        &[
            "def f(x: F[a, b]) -> F[b, a]\n  = transpose(x, prem=[1, 0])\n",
            "def f(x: F[a, b]) -> F[b, a]\n  = transpose(x)\n",
            "def f(x: F[..p, n]) -> F[..p, n]\n  = cumsum(x, axis=\"n\")\n",
            "def f(x: F[a, b]) -> F[a]\n  = sum(x, axes=1)\n",
            "def f(x: F[..p, n]) -> F[..p, n]\n  = cumsum(x, axis=-1, reverse=1)\n",
            "def f(x: F[..s], alpha: float = \"big\") -> F[..s]\n  = alpha * x\n",
            "def f(x: F[..s], alpha: float in 2..1) -> F[..s]\n  = alpha * x\n",
        ],
    ),
    (
        "R006",
        &[
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = maximum(x[..s])\n",
            "def f(x: F[..s]) -> F[..s]\n  = maximum(x)\n",
            "def f(x: F[..s]) -> F[..s]\n  = exp(x, x)\n",
            "def f(x: F[..s]) -> F[..s]\n  = pointwise(x, x)\n",
            "def f(x: F[a, n]) -> F[a, n]\n  let (u, v) = split(x, parts=2)\n  = concat(u, v, axis=-1)\n",
            "rule r\n  each y = x @ w => each y = part(exp(each w), axis=-1)\n  given x: F[s, k], each w: F[k, m]\n  error exact\n",
        ],
    ),
    (
        "R007",
        &[
            "op f(x: F[..s]) -> y: bool[..s]\n  y[..s] = x[..s] + 1\n",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = x[..s] < 1\n",
            "op f(x: I[..s]) -> y: I[..s]\n  y[..s] = exp(x[..s])\n",
            "op f(x: F[..s], c: bool[..s]) -> y: F[..s]\n  y[..s] = x[..s] + c[..s]\n",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = 1 if x[..s] else 0\n",
            "op f(x: f32[..s], k: i64[..s]) -> y: i64[..s]\n  y[..s] = x[..s] * k[..s]\n",
            "def f(x: i64[..s]) -> i64[..s]\n  = exp(x)\n",
            "def f(x: F[..s], y: I[..s]) -> F[..s]\n  = x + y\n",
            "op f(x: F[..s]) -> y: N[..s]\n  y[..s] = x[..s]\n",
            "def f(x: F[..s]) -> F[..s]\n  = x + reshape(3, shape=[])\n",
        ],
    ),
    (
        "R008",
        &[
            "def f(x: F[n], w: F[k, m]) -> F[m]\n  = conv(x, w, stride=[], low=[], high=[], dilation=[])\n",
            "def f(x: f32[4, 8], y: f32[4]) -> f32[4, 8]\n  = x + y\n",
            "def f(x: f32[4, n], y: f32[8]) -> f32[4, n]\n  = x + y\n",
            "def f(x: F[b, c, ..s], w: F[c, q, ..r]) -> F[b, c, ..s]\n  = conv(x, w, stride=[1], low=[1], high=[1], dilation=[1]) + x\n",
            "def f(x: F[a, b], y: F[b, a], p: perm(a)) -> F[a, b]\n  = x + transpose(y, perm=p)\n",
            "def f(x: f32[4, 4], y: f32[3, 4]) -> f32[4, 4]\n  = x + transpose(y, perm=[1, 0])\n",
            "op f(x: F[a, b]) -> y: F[a]\n  y[a] = x[a]\n",
            "op f(x: F[a, b]) -> y: F[a, b]\n  y[a] = x[a, 0]\n",
        ],
    ),
    (
        "R009",
        &[
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = gelu(x[..s])\n",
            "rule r\n  transpose(x, perm=p) => x\n  given x: F[..s]\n  if lenght(p) == 0\n  error exact\n",
            "def f(x: F[n]) -> F[m]\n  where m = doubled(|n|)\n  = concat(x, x, axis=0)\n",
        ],
    ),
    (
        "R010",
        &[
            "op f(x: F[a]) -> y: F[a]\n  y[a] = x[a / 2.5]\n",
            "op f(x: F[..s]) -> y: F[..s]\n  y[..s] = (x[..s], 1)\n",
            "def f(x: F[n]) -> F[]\n  = 3\n",
            "def f(x: F[..s]) -> F[..s]\n  = x if x > 0 else 0\n",
            "def f(x: F[n]) -> F[n]\n  = (x, x)\n",
            "def f(x: F[n]) -> F[n]\n  let (a, b) = x\n  = a + b\n",
            "def f(x: F[a, n]) -> F[a, n]\n  let (u, v, w) = split(x, axis=-1, parts=2)\n  = u\n",
            "def f(x: F[n]) -> F[]\n  = sum(n) (x, x)\n",
            "def f(x: F[n], p: ints = (1, 2)) -> F[n]\n  = x\n",
            "onnx Total(x) since 1\n  = sum(n) x\n",
            "rule r\n  abs(x) + 0 => x\n  given x: F[..s]\n  if x >= 0\n  error exact\n",
        ],
    ),
    (
        "R011",
        &[
            "def f(x: F[n]) -> F[n]\n  = x[n - 1]\n",
            "def f(x: F[n]) -> F[n]\n  = exp(x[n] else 0)\n",
        ],
    ),
    (
        "R012",
        &[
            "target t\n  flops = \"fast\"\n  bites = 1e9\n  launch = -1\n  kernel \"k\" covers matmul cost 0\n  kernel \"l\" covers conv takes flop = 1e-12, read = -1\n  kernel \"m\" covers sum cost 2, thinn = 3, many = -1\n",
            "target t\n  flops_f99 = 1e9\n  launch_f32 = 1e-6\n",
            "target t\n  kernel \"k\" covers matmul in rows\n",
            "target t\n  kernel \"gemm\" covers matmul\n  kernel \"gem\" of f32\n  kernel \"loop\" of f64\n",
            "target t\n  kernel \"k\" covers matmul of f32\n  kernel \"k\" covers conv of f64\n",
        ],
    ),
    ("R013", &["op f(x: F[..s]) -> y: F[..s]\n  commutative\n  y[..s] = x[..s]\n"]),
    (
        "R014",
        &[
            "op f(x: F[..s]) -> y: F[..s], z: F[..s]\n  z[..s] = x[..s]\n  y[..s] = 2 * x[..s]\n",
            "op f(x: F[..s]) -> y: F[..s], z: F[..s]\n  y[..s] = x[..s]\n",
        ],
    ),
    (
        "R015",
        &[
            "op f(x: X[..s]) -> y: X[..s]\n  y[..s] = x[..s]\n",
            "op f(x: f33[..s]) -> y: f33[..s]\n  y[..s] = x[..s]\n",
            "op f(x: F[..s], to: int) -> y: to[..s]\n  y[..s] = x[..s]\n",
            "def f(x: F[..s], k = pi) -> F[..s]\n  = k * x\n",
            "def f(x: F[..s], k: flaot) -> F[..s]\n  = k * x\n",
            "rule r\n  x + 0 => x\n  given x: float[..s]\n  error reorder\n",
            "rule r\n  x + 0 => x\n  given x: Float[..s]\n  error reorder\n",
            "rule r\n  x + y => y + x\n  given x: float32[..s], y: uint8[..s]\n  error reorder\n",
            "def f(x: F[..s], k: Int) -> F[..s]\n  = k * x\n",
            "target t\n  kernel \"k\" covers matmul of f33, F\n",
        ],
    ),
    (
        "R016",
        &[
            "op f(x: F[n, n]) -> y: F[n]\n  y[n] = x[n, n]\n",
            "op f(x: f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]) -> y: F[]\n  y[] = 1\n",
        ],
    ),
    ("R017", &["op f(x: F[n]) -> y: F[m]\n  where (m, k) = |n|\n  y[m] = x[m]\n"]),
    ("R018", &["rule r\n  x + x => 2 * x\n  given x: F[..s]\n"]),
    (
        "R019",
        &[
            "rule r\n  y = a + b, z = a - b => y = a + b, w = a - b\n  given a: F[..s], b: F[..s]\n  error exact\n",
            "rule r\n  y = a + b, z = a - b => y = a + b\n  given a: F[..s], b: F[..s]\n  error exact\n",
        ],
    ),
    (
        "R020",
        &[
            "rule r\n  x + y => x + z\n  given x: F[..s], y: F[..s], z: F[..s]\n  error exact\n",
            "rule r\n  x + y => k * x\n  given x: F[..s], y: F[..s], k: float\n  error exact\n",
            "rule r\n  reshape(x, shape=[..p, ..q]) => reshape(x, shape=[..q, ..p])\n  given x: F[..s]\n  error exact\n",
        ],
    ),
    (
        "R021",
        &[
            "target small\n  kernel \"gemm\" covers matmul\nfuse f(x: F[..h, a, b], w: F[b, c]) -> F[..h, a, c]\n  = x @ w\n  on small(\"gemm\"), smal(\"gemm\")\n",
            "fuse f(x: F[..s]) -> F[..s]\n  = exp(x)\n  on gpu(\"loop\")\n",
            "target small extends large\n  launch = 1e-6\n",
            "target small extends large\ntarget large extends small\n",
        ],
    ),
    (
        "R022",
        &[
            "def f(x: F[..s]) -> F[..s]\n  = f(x) + 1\n",
            "def f(x: F[..s]) -> F[..s]\n  = g(x) + 1\ndef g(x: F[..s]) -> F[..s]\n  = 2 * h(x)\ndef h(x: F[..s]) -> F[..s]\n  = exp(f(x))\ndef user(x: F[..s]) -> F[..s]\n  = h(x)\n",
        ],
    ),
    (
        "R023",
        &[
            "def a(x: F[..s]) -> F[..s]\n  = x * x * x * x * x * x * x * x * x * x * x * x\ndef b(x: F[..s]) -> F[..s]\n  = a(a(a(a(a(a(a(a(a(a(x))))))))))\ndef c(x: F[..s]) -> F[..s]\n  = b(b(b(b(b(b(b(b(b(b(x))))))))))\ndef d(x: F[..s]) -> F[..s]\n  = c(c(c(c(c(c(c(c(c(c(x))))))))))\ndef e(x: F[..s]) -> F[..s]\n  = d(d(d(d(d(d(d(d(d(d(x))))))))))\n",
            "def f(x: F[..s], k: float) -> F[..s]\n  let a = k * k * k * k * k * k\n  let b = a * a * a * a * a * a\n  let c = b * b * b * b * b * b\n  let d = c * c * c * c * c * c\n  = d * x\n",
        ],
    ),
    (
        "R024",
        &[
            "op f(x: F[..s], z: F[..s]) -> y: F[..s]\n  y[..s] = exp(x[..s])\n",
            "op f(x: F[a, b]) -> y: F[a]\n  y[a] = sum(b) x[a, 0]\n",
            "op f(x: F[n]) -> y: F[m, n]\n  where m = 3\n  y[m, n] = x[n]\n",
        ],
    ),
    (
        "R025",
        &[
            "def f(x: f32[a, b], y: f32[c]) -> f32[a, b]\n  = x + y\n",
            "def f(x: f32[4, 5]) -> f32[5]\n  = x + 1\n",
            "def f(x: F[a, b]) -> F[a]\n  = exp(x)\n",
            "def f(x: F[..s, n]) -> F[..s, n]\n  = sum(n) x * sigmoid(x)\n",
            "def f(x: F[..s]) -> i64[..s]\n  = x + 1\n",
            "def f(x: f32[..s]) -> bool[..s]\n  = x + 1\n",
            "def f(x: F[..s]) -> F[..s]\n  = cast(x, to=f32)\n",
        ],
    ),
    (
        "R026",
        &[
            "rule f\n  exp(x) => exp(x)\n  given x: F[..s], xs...: F[..s]\n  error exact\n",
            "rule f\n  g(x, axes=[]) => x\n  given g: pointwise, x: T[..s]\n  error exact\n",
            "rule f\n  g(xs...) => g(xs...)\n  given g: pointwise, xs...: T[..s]\n  if rising(g)\n  error exact\n",
            "rule f\n  g(xs..., ys...) => g(ys..., xs...)\n  given g: pointwise, xs...: T[..s], ys...: T[..s]\n  error exact\n",
            "rule f\n  exp(x) => exp(x)\n  given g: reduction, x: F[..s]\n  error exact\n",
        ],
    ),
    (
        "R027",
        &[
            "op f(x: F[t, b]) -> y: F[t, b]\n  y[t, b] = x[t, b] + y[t - 1, b]\n",
            "op f(x: F[t, b]) -> y: F[t, b]\n  y[t, b] = x[t, b] + (y[t, b] else 0)\n",
            "op f(x: F[t, b]) -> y: F[t, b]\n  y[t, b] = x[t, b] + (y[t - 1, b] else y[t, b - 1] else 0)\n",
            "op f(x: F[t, b]) -> y: F[t, b]\n  y[t, b] = x[t, b] + (y[t - 1, b] else 0) + (y[t + 1, b] else 0)\n",
            "op f(x: F[t, b]) -> y: F[t, b], z: F[t, b]\n  y[t, b] = x[t, b] + (z[t, b] else 0)\n  z[t, b] = y[t, b] + (z[t - 1, b] else 0)\n",
            "op f(x: F[t, b]) -> y: F[t, b], z: F[b]\n  y[t, b] = x[t, b] + (y[t - 1, b] else z[b])\n  z[b] = sum(t) y[t, b]\n",
            "op f(x: F[t, b]) -> y: F[t, b], z: F[t, b]\n  y[t, b] = x[t, b] + (y[t - 1, b] else 0)\n  z[t, b] = y[|t| - 1 - t, b]\n",
            "op f(x: F[a, b]) -> y: F[a], z: F[a, b]\n  y[a] = sum(b) x[a, b]\n  z[a, b] = x[a, b] / y[a]\n",
        ],
    ),
];

fn text(case: &str) -> String {
    match case {
        "@mistakes" => "def f(x: F[..s]) -> F[..s]\n  = y\n".repeat(1200),
        other => other.to_string(),
    }
}

fn shipped() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules/ops");
    let entries = std::fs::read_dir(folder).expect("the operators");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    let named = |p: &PathBuf| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        (format!("ops/{name}"), std::fs::read_to_string(p).expect("a text"))
    };
    paths.iter().map(named).collect()
}

#[test]
fn messages() {
    let shipped = shipped();
    for (code, cases) in CASES {
        let mut out = String::new();
        for case in *cases {
            let case = &text(case);
            let mut texts = shipped.clone();
            texts.push(("test.rules".into(), case.to_string()));
            let (_, diags) = library(&texts);
            let own = diags.into_iter().filter(|d| d.source as usize == shipped.len());
            let own: Vec<_> = own.map(|d| d.diag).collect();
            let found: BTreeSet<&str> = own.iter().map(|d| d.code.0).collect();
            assert!(found.contains(code), "{code} is not found:\n{case}\n{own:#?}");
            assert!(own.iter().all(|d| d.help.is_some()), "{code} without help:\n{case}\n{own:#?}");
            // A place is a part of the text, not its beginning by default.
            let placed = |d: &Diag| {
                let (start, end) = (d.span().start as usize, d.span().end as usize);
                start < end && end <= case.len() && d.labels.iter().all(|(s, _)| s.end > s.start)
            };
            assert!(own.iter().all(placed), "{code} without a place:\n{case}\n{own:#?}");
            let told: Vec<Diag> = match *code {
                "S019" => own.into_iter().filter(|d| d.code.0 == *code).collect(),
                _ => own,
            };
            writeln!(out, "{}", render(&told, "test.rules", case, false)).expect("written");
            out.push_str("--------------------------------------------------\n\n");
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(format!("diag_{code}"), out));
    }
}

/// All codes such as `R004` in string literals of a folder of Rust, but for the registry itself.
fn codes(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            codes(&path, out);
        } else if !path.ends_with("diag.rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let code = |w: &&str| {
                w.len() == 4
                    && w.starts_with(['S', 'R'])
                    && w[1..].bytes().all(|b| b.is_ascii_digit())
            };
            out.extend(text.split('"').filter(code).map(str::to_string));
        }
    }
}

#[test]
fn what_is_emitted_is_registered_and_shown() {
    let mut emitted = BTreeSet::new();
    codes(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut emitted);
    let registered: BTreeSet<String> = CODES.iter().map(|c| c.0.to_string()).collect();
    assert_eq!(
        emitted, registered,
        "codes that are emitted, and `CODES` of src/diagnostics/mod.rs"
    );
    let shown: Vec<&str> = CASES.iter().map(|c| c.0).collect();
    // The other mistakes of syntax have their cases where the reader is tested.
    let own = |c: &&str| c.starts_with('R') || *c == "S019";
    let wanted: Vec<&str> = CODES.iter().map(|c| c.0).filter(own).collect();
    assert_eq!(shown, wanted, "codes with a case here, and those registered");
}

#[test]
fn an_attribute_may_name_the_element_type_of_a_result() {
    let mut texts = shipped();
    let count = texts.len();
    let text = "def f(x: F[..s], to: dtype) -> to[..s]\n  = cast(2 * x, to=to)\n";
    texts.push(("test.rules".into(), text.into()));
    let (_, diags) = library(&texts);
    assert!(diags.iter().all(|d| (d.source as usize) < count), "{diags:#?}");
}

/// Texts that must be read without a mistake: axes that operators compute and hand on.
#[test]
fn axes_keep_their_names() {
    let conv = "stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1]";
    let half = "stride=[2, 2], low=[1, 1], high=[1, 1], dilation=[1, 1]";
    let cases = [
        "def f(x: f32[2, 5], w: f32[7, 5], b: f32[7]) -> f32[2, 7]\n  = x @ transpose(w, perm=[1, 0]) + b\n",
        "def f(x: F[s, k], w: F[d, k], b: F[d]) -> F[s, d]\n  = x @ transpose(w, perm=[1, 0]) + b[d]\n",
        "def f(x: f32[s, 5], w: f32[7, 5], b: f32[7]) -> f32[s, 7]\n  = x @ transpose(w, perm=[1, 0]) + b\n",
        "def f(x: F[a, b], y: F[b, a]) -> F[a, b]\n  = x + transpose(y, perm=[1, 0])\n",
        "def f(x: f32[3, 3], y: f32[3, 3]) -> f32[3, 3]\n  = x + transpose(y, perm=[1, 0])\n",
        "def f(x: f32[2, 3], y: f32[3]) -> f32[2, 6]\n  = concat(x, x, axis=-1) + concat(y, y, axis=-1)\n",
        &format!(
            "def f(x: f32[1, c, h, v], w: f32[d, c, 3, 3], y: f32[1, d, h, v]) -> f32[1, d, h, v]\n  = conv(x, w, {conv}) + y\n"
        ),
        &format!(
            "def f(x: f32[2, c, 8, 8], w: f32[c, 6, 3, 3]) -> f32[2, c, 8, 8]\n  = conv(x, w, {conv}) + x\n  if |c| == 6\n"
        ),
        &format!(
            "def f(x: F[b, c, h, v], w: F[d, c, 3, 3], y: F[d, c, 3, 3]) -> F[b, d, p, q]\n  where p = (|h| - 1) / 2 + 1, q = (|v| - 1) / 2 + 1\n  = conv(x, w, {half}) + conv(x, y, {half})\n"
        ),
        &format!(
            "def f(x: F[b, c, ..s], w: F[c, c1, ..r]) -> F[b, c, ..s]\n  let r = conv(x, w, {conv})\n  = r[b, c, ..s] + x\n  if |c1| == |c|, rank(s) == 2\n"
        ),
    ];
    for case in cases {
        let mut texts = shipped();
        let count = texts.len();
        texts.push(("test.rules".into(), case.to_string()));
        let (_, diags) = library(&texts);
        let own: Vec<_> = diags.iter().filter(|d| d.source as usize == count).collect();
        assert!(own.is_empty(), "{case}\n{own:#?}");
    }
}
