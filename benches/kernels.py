"""How fast single products and convolutions run here and in other runtimes on this machine, in parts of the machine's peak:
`kernels.py [--threads N] [--cubes] [MODEL.onnx]...`.

--cubes times products of 64³ to 4096³. For a model, every product and convolution with weights is timed once per shape. Each is a model
of one node, with random weights, that `mlc-rewrite bench --against` times in turns with onnxruntime and openvino. Prints Markdown: the
fastest runs, their part of the peak that `bench` measures, and the ratio over the best of the others. Needs a Python with the packages
`onnx`, `onnxruntime` and `openvino`.
"""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"
PEERS = ["onnxruntime", "openvino"]
# Operations of all runs of a node together, about.
TURN_OPERATIONS = 1e11
CUBES = [64, 128, 256, 512, 1024, 2048, 4096]


def single(op, x, w, attributes):
    """A model of one node with an input of extents `x` and weights of extents `w`."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(w).astype(np.float32) / math.sqrt(math.prod(w[1:] if op == "Conv" else w[:-1]))
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "single",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def extents(value):
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


def shapes(path):
    """The products and convolutions with weights of a model: operator, extents of input and weights, attributes; and how many."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    graph = model.graph
    known = {v.name: extents(v) for v in [*graph.value_info, *graph.input, *graph.output]}
    weights = {t.name: list(t.dims) for t in graph.initializer}
    found = {}
    for n in graph.node:
        if n.op_type not in ("Conv", "MatMul", "Gemm") or len(n.input) < 2:
            continue
        x, w = known.get(n.input[0]), weights.get(n.input[1])
        if not x or not w or not all(x):
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in n.attribute}
        kept = {k: v for k, v in attributes.items() if k in ("group", "pads", "strides", "dilations", "kernel_shape", "auto_pad")}
        if n.op_type == "Gemm":
            if attributes.get("transA"):
                continue
            w = w[::-1] if attributes.get("transB") else w
        op = "Conv" if n.op_type == "Conv" else "MatMul"
        key = json.dumps([op, x, w, kept if op == "Conv" else {}], sort_keys=True)
        found[key] = found.get(key, 0) + 1
    return [(*json.loads(k), count) for k, count in found.items()]


def race(model, threads, peer, runs):
    with tempfile.TemporaryDirectory() as folder:
        path, report = pathlib.Path(folder) / "single.onnx", pathlib.Path(folder) / "report.json"
        onnx.save(model, path)
        command = [TOOL, "bench", path, "--threads", threads, "--against", peer, "--no-check", "--kernels", "--iterations", runs, "--json", report]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, "MLC_PYTHON": sys.executable})
        if done.returncode:
            print(done.stderr.strip(), file=sys.stderr)
            return None
        return json.loads(report.read_text())


def label(op, x, w, attributes):
    if op == "MatMul":
        return f"{'×'.join(map(str, x))} · {w[0]}×{w[1]}"
    words = [f"{'×'.join(map(str, x[1:]))} by {w[0]}×{'×'.join(map(str, w[2:]))}"]
    if attributes.get("group", 1) > 1:
        words.append(f"groups {attributes['group']}")
    if any(s > 1 for s in attributes.get("strides", [])):
        words.append(f"stride {attributes['strides'][0]}")
    if any(d > 1 for d in attributes.get("dilations", [])):
        words.append(f"dilation {attributes['dilations'][0]}")
    return ", ".join(words)


def operations(op, model, w):
    out = extents(model.graph.output[0])
    return 2 * math.prod(out) * (w[0] if op == "MatMul" else math.prod(w[1:]))


def table(title, cases, threads):
    print(f"\n### {title}\n\n| shape | nodes | here, ms | " + " | ".join(f"{p}, ms" for p in PEERS) + " | GFLOP/s here | part of peak | ratio |")
    print("|---" * (6 + len(PEERS)) + "|")
    ratios = []
    for op, x, w, attributes, count in cases:
        model = single(op, x, w, attributes)
        work = operations(op, model, w)
        turns = max(5, min(500, int(TURN_OPERATIONS / work)))
        runs = [race(model, threads, p, turns) for p in PEERS]
        known = [r for r in runs if r]
        if not known:
            continue
        own = min(r["against"]["own_least_seconds"] for r in known)
        ratio = max(r["against"]["ratio"] for r in known)
        ratios.append(ratio)
        rate = work / own
        peak = known[0].get("roofline", {}).get("flops_per_second")
        cells = [label(op, x, w, attributes), str(count), f"{own * 1e3:.3f}"]
        cells += [f"{r['against']['least_seconds'] * 1e3:.3f}" if r else "" for r in runs]
        cells += [f"{rate / 1e9:.0f}", f"{rate / peak:.2f}" if peak else "", f"{ratio:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    if ratios:
        print(f"\nGeometric mean: {math.exp(statistics.fmean(map(math.log, ratios))):.2f} of the best of the others.")


def main():
    words = iter(sys.argv[1:])
    threads, cubes, models = 1, False, []
    for w in words:
        if w == "--threads":
            threads = int(next(words))
        elif w == "--cubes":
            cubes = True
        else:
            models.append(w)
    if not cubes and not models:
        sys.exit(__doc__)
    if cubes:
        table("Cubes", [("MatMul", [n, n], [n, n], {}, 1) for n in CUBES], threads)
    for m in models:
        path = pathlib.Path(m)
        table(path.parent.name if path.name == "model.onnx" else path.stem, shapes(m), threads)


main()
