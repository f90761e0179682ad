#!/usr/bin/env python3
"""Products with weights of few bits, which come from memory: in parts of the bandwidth or of the peak, beside ONNX Runtime.

    python3 benches/block_products.py [--bits 4] [--block 32] [--threads 1] [--rows 1,8,32,512] [SHAPE...]

A SHAPE is depth and columns, as in 2048x2048; those of SmolLM2-135M unless any are given. Each is a model of `MatMulNBits` nodes with weights of their own that read one
input, as many as are larger than any cache, and is run in turns here and in ONNX Runtime. Prints Markdown: microseconds of a product, in parentheses
the part of the bandwidth at which its weights are read (that of a sum over memory in the same minute) or, of 32 rows and more, of the peak of fused multiply-adds
of one core at `--peak` operations a second, and how many times as fast it is here. Needs the packages `onnx` and `onnxruntime` here or in the Python of MLC_PYTHON.
"""
import argparse
import pathlib
import tempfile
import time

import numpy as np
import onnx
import turns
from onnx import TensorProto, helper, numpy_helper

SHAPES = ["2048x2048", "576x1536", "1536x576", "576x49152"]
# Bytes that no cache holds.
BEYOND = 64 << 20
# From so many rows on operations take longer than bytes.
MANY = 32


def parts(rng, k, n, bits, block):
    """The tensors of one matrix, by what they are."""
    blocks = -(-k // block)
    made = {"w": rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)}
    return made | {"s": (rng.random(n * blocks, dtype=np.float32) / 64).astype(np.float16).astype(np.float32)}


def model(rows, k, n, bits, block, level):
    """Products of one input with matrices of their own, and how many there are."""
    rng = np.random.default_rng(0)
    size = sum(a.nbytes for a in parts(rng, k, n, bits, block).values())
    count = max(1, -(-BEYOND // size))
    nodes, tensors, outputs = [], [], []
    for i in range(count):
        made = parts(rng, k, n, bits, block)
        tensors += [numpy_helper.from_array(a, f"{name}{i}") for name, a in made.items()]
        attributes = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
        nodes.append(helper.make_node("MatMulNBits", ["x", *(f"{name}{i}" for name in made)], [f"y{i}"], domain="com.microsoft", **attributes))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [rows, n]))
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])]
    graph = helper.make_graph(nodes, "products", given, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), count, size


def bandwidth():
    """Bytes that one thread reads in a second."""
    memory = np.ones(BEYOND // 4, np.uint64)
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        memory.sum()
        best = max(best, memory.nbytes / (time.perf_counter() - began))
    return best


def timed(given, rows, k, n):
    """Seconds of one product by name, and the bytes of its weights."""
    made, count, size = model(rows, k, n, given.bits, given.block, given.level)
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = pathlib.Path(folder) / "model.onnx", pathlib.Path(folder) / "inputs.npz"
        onnx.save(made, path)
        np.savez(inputs, x=np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32))
        running = {"own": turns.Own(given, path, given.threads, inputs=inputs), "onnxruntime": turns.Peer(given, "onnxruntime", path, inputs, given.threads)}
        for process in running.values():
            process.ready()
        calls = {"own": lambda c: running["own"].seconds("optimised", c), "onnxruntime": lambda c: running["onnxruntime"].seconds("run", c)}
        times, absent = turns.race(calls, given.seconds)
        for process in running.values():
            process.end()
    if absent:
        raise turns.Absent("; ".join(f"{name}: {why}" for name, why in absent.items()))
    return {name: min(t) / count for name, t in times.items()}, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    parser.add_argument("--rows", default="1,8,32,512")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--level", type=int, default=0, help="accuracy_level of the nodes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--peak", type=float, default=1.1e11)
    parser.add_argument("--tool", type=pathlib.Path, default=turns.TOOL)
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--patience", type=float, default=300)
    given = parser.parse_args()
    given.options = []
    print("| product | rows | here | ONNX Runtime | times as fast |\n|---|---|---|---|---|")
    for shape in given.shapes:
        k, n = map(int, shape.split("x"))
        for rows in map(int, given.rows.split(",")):
            try:
                times, size = timed(given, rows, k, n)
            except turns.Absent as e:
                print(f"| {shape} | {rows} | {e} | | |", flush=True)
                continue
            most = size / bandwidth() if rows < MANY else 2 * rows * k * n / given.peak
            cells = [f"{t * 1e6:.0f} µs ({100 * most / t:.0f} %)" for t in (times["own"], times["onnxruntime"])]
            print(f"| {shape} | {rows} | {cells[0]} | {cells[1]} | {times['onnxruntime'] / times['own']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
