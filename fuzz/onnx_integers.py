#!/usr/bin/env python3
"""Integer operators at the ends of every width, as `mlc-rewrite` computes them and as ONNX Runtime does.

    python fuzz/onnx_integers.py --tool target/release/mlc-rewrite

For every operator one model whose operands are constants (folded by the tool while it reads and explores) and one
whose operands are inputs (`run`), with a node for every width; both are held against ONNX Runtime on the model as it is. Division by zero and
of the lowest number by -1 are left out: ONNX Runtime traps there. Exits 1 if a value differs.
Needs: numpy, onnx, onnxruntime.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_sweep import run

TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
PAIRS = ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
SINGLE = ["Neg", "Abs", "Sign", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "CumSum"]


def values(dtype):
    i = np.iinfo(dtype)
    wanted = [i.min, i.min + 1, -7, -1, 0, 1, 2, 3, 2**53 + 1, 2**63, 5 * 10**18 + 1, -5 * 10**18 - 1, i.max - 1, i.max]
    return sorted({v for v in wanted if i.min <= v <= i.max})


def operands(op, dtype):
    v = values(dtype)
    if op in SINGLE:
        return [np.array(v, dtype)]
    pairs = [(a, b) for a in v for b in v]
    if op in ("Div", "Mod"):
        pairs = [(a, b) for a, b in pairs if b != 0 and not (b == -1 and a == np.iinfo(dtype).min)]
    return [np.array(side, dtype) for side in zip(*pairs)]


def model(op, given, folded):
    """One graph with a node for every width in `given`."""
    nodes, inputs, inits, outputs = [], [], [numpy_helper.from_array(np.array(0), "axis")], []
    for dtype, args in given.items():
        names = [f"{dtype.__name__}/x{i}" for i in range(len(args))]
        for n, a in zip(names, args):
            if folded:
                inits.append(numpy_helper.from_array(a, n))
            else:
                inputs.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape))
        nodes.append(helper.make_node(op, names + ["axis"] * (op == "CumSum"), [f"{dtype.__name__}/y"]))
        outputs.append(onnx.ValueInfoProto(name=f"{dtype.__name__}/y"))
    if op != "CumSum":
        inits.pop(0)
    m = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, inits),
                          opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    known = list(onnx.shape_inference.infer_shapes(m, strict_mode=True).graph.output)
    del m.graph.output[:]
    m.graph.output.extend(known)
    return m


def feeds(given):
    return {f"{dtype.__name__}/x{i}": a for dtype, args in given.items() for i, a in enumerate(args)}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    args = p.parse_args()
    counts = {"same": 0, "not run by ONNX Runtime": 0, "refused": 0, "different": 0}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        before, after, arrays, out = (folder / n for n in ("before.onnx", "after.onnx", "in.npz", "out.npz"))
        for op in PAIRS + SINGLE:
            given = {}
            for dtype in TYPES:
                one = {dtype: operands(op, dtype)}
                try:
                    onnx.save(model(op, one, False), before)
                    run(before, feeds(one))
                    given |= one
                except Exception:
                    counts["not run by ONNX Runtime"] += 1
            if not given:
                continue
            np.savez(arrays, **feeds(given))
            for folded in (True, False):
                onnx.save(model(op, given, folded), before)
                expected = run(before, {} if folded else feeds(given))
                command = [args.tool, "run", before, "--inputs", arrays, "--outputs", out]
                if folded:
                    command = [args.tool, "optimize", before, "-o", after]
                done = subprocess.run(command, capture_output=True, text=True)
                what = f"{op}, {'constants' if folded else 'inputs'}"
                if done.returncode:
                    print(f"refused: {what}: {done.stderr.strip()}", flush=True)
                    counts["refused"] += len(given)
                    continue
                found = run(after, {}) if folded else [np.load(out)[f"{d.__name__}/y"] for d in given]
                for dtype, a, b in zip(given, found, expected):
                    same = a.dtype == b.dtype and np.array_equal(a, b)
                    counts["same" if same else "different"] += 1
                    if not same:
                        at = np.flatnonzero(a != b)[:3]
                        print(f"different: {what}, {dtype.__name__}: "
                              f"{[[int(x.flat[i]) for x in given[dtype]] for i in at if op in PAIRS]}: "
                              f"{a.ravel()[at]}, ONNX Runtime {b.ravel()[at]}", flush=True)
    print(", ".join(f"{n} {k}" for k, n in counts.items()))
    sys.exit(1 if counts["different"] or counts["refused"] else 0)


if __name__ == "__main__":
    main()
