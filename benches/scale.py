#!/usr/bin/env python3
"""Seconds and memory of `mlc-rewrite` against the size of what it is given.

`scale.py [--tool PATH] [--most N] [--limit SECONDS]` writes models and rule texts of 100 to N parts (100,000), runs
`optimize` or `check` on each, and prints Markdown: seconds and MiB at most. Needs Python with onnx and numpy. Exit code 1 if a
run fails, takes longer than the limit (60) or more than 1 GiB.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = TensorProto.FLOAT
LARGEST = 1 << 30


def model(path, nodes, inputs, outputs, constants=()):
    def info(name, shape):
        return helper.make_tensor_value_info(name, FLOATS, shape)

    graph = helper.make_graph(
        nodes,
        "scale",
        [info(n, s) for n, s in inputs],
        [info(n, s) for n, s in outputs],
        [numpy_helper.from_array(numpy.asarray(v, "float32"), n) for n, v in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)


def chain(path, n, operators):
    """n operators, one after another."""
    nodes = [
        helper.make_node(operators[i * i % len(operators)], [f"v{i}"], [f"v{i + 1}"])
        for i in range(n)
    ]
    model(path, nodes, [("v0", [4, 4])], [(f"v{n}", [4, 4])])


def readers(path, n):
    """One value that n products read, with weights of their own."""
    weights = numpy.random.default_rng(0).normal(size=(n, 4, 4))
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(n)]
    outputs = [(f"y{i}", [4, 4]) for i in range(n)]
    model(path, nodes, [("x", [4, 4])], outputs, [(f"w{i}", weights[i]) for i in range(n)])


def parts(path, n):
    """A Concat of n scaled copies of one value."""
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"m{i}"]) for i in range(n)]
    nodes.append(helper.make_node("Concat", [f"m{i}" for i in range(n)], ["y"], axis=1))
    constants = [(f"c{i}", 1.5 + i) for i in range(n)]
    model(path, nodes, [("x", [4, 4])], [("y", [4, 4 * n])], constants)


def summands(path, n):
    """A sum of n values."""
    nodes = [helper.make_node("Add", [f"v{i}", f"x{i}"], [f"v{i + 1}"]) for i in range(n)]
    inputs = [("v0", [4, 4])] + [(f"x{i}", [4, 4]) for i in range(n)]
    model(path, nodes, inputs, [(f"v{n}", [4, 4])])


def definitions(path, n):
    lines = [f"def layer{i}(x: F[..s]) -> F[..s]\n  = relu(x) * {i + 2}.5 + {i}.25\n" for i in range(n)]
    path.write_text("\n".join(lines))


def laws(path, n):
    lines = [f"rule law{i}\n  relu(x) * {i + 2}.5 => relu(x * {i + 2}.5)\n  given x: F[..s]\n  error exact\n" for i in range(n)]
    path.write_text("\n".join(lines))


KINDS = [
    ("a chain of one operator", "onnx", lambda p, n: chain(p, n, ["Relu"])),
    ("a chain of six operators", "onnx", lambda p, n: chain(p, n, ["Relu", "Sigmoid", "Tanh", "Abs", "Exp", "Neg"])),
    ("readers of a value", "onnx", readers),
    ("parts of a Concat", "onnx", parts),
    ("summands", "onnx", summands),
    ("definitions", "rules", definitions),
    ("laws", "rules", laws),
]


def peak(pid):
    """Bytes of a process at most so far. What the system counts for a child includes this process, as it was forked."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def measured(command, limit):
    """Exit code (none if it took too long), seconds and bytes at most."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most = 0
    while child.poll() is None:
        most = max(most, peak(child.pid))
        if time.monotonic() - began > limit:
            child.kill()
            child.wait()
            return None, limit, most
        time.sleep(0.005)
    return child.returncode, time.monotonic() - began, most


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--tool", default="target/release/mlc-rewrite")
    words.add_argument("--most", type=int, default=100_000)
    words.add_argument("--limit", type=float, default=60)
    args = words.parse_args()
    sizes = [n for n in (100, 1_000, 10_000, 100_000) if n <= args.most]
    print("| what | " + " | ".join(f"{n:,}" for n in sizes) + " |\n|---|" + "---|" * len(sizes))
    good = True
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, kind, write in KINDS:
            cells = []
            for n in sizes:
                path = folder / f"scale.{kind}"
                write(path, n)
                out = folder / "out.onnx"
                verb = ["optimize", path, "-o", out] if kind == "onnx" else ["check", path]
                code, seconds, bytes_ = measured([args.tool, *map(str, verb)], args.limit)
                fine = code == 0 and bytes_ <= LARGEST
                good &= fine
                told = f"{seconds:.2f} s, {bytes_ >> 20} MiB"
                cells.append(told if code == 0 else f"over {told}" if code is None else f"exit code {code}, {told}")
                if code is None:
                    cells += ["-"] * (len(sizes) - len(cells))
                    break
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
