#!/usr/bin/env python3
"""The Python package beside others: what a call costs, and what optimising a model gains in ONNX Runtime.

`benches/python.py [MODEL.onnx]...` in an environment with `mlc_rewrite`, `onnx` and `onnxruntime`; `onnxsim`, `onnxslim` and `onnxscript` take part where they are installed. Of every time the
fastest of alternating runs counts."""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import mlc_rewrite as mlc

DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(float16)": np.float16}


def fastest(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Seconds of a call of each, in turns until the time is over."""
    best = dict.fromkeys(calls, float("inf"))
    repeats = {}
    for name, call in calls.items():
        call()
        began = time.perf_counter()
        call()
        repeats[name] = max(1, int(0.02 / max(time.perf_counter() - began, 1e-7)))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - began) / repeats[name])
    return best


def empty() -> onnx.ModelProto:
    """A graph that computes next to nothing."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "empty", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def runtime(data: bytes, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def feed(session: ort.InferenceSession) -> dict[str, np.ndarray]:
    """Random inputs; open extents are 1."""
    rng = np.random.default_rng(0)
    shape = lambda i: [n if isinstance(n, int) and n > 0 else 1 for n in i.shape]  # noqa: E731
    return {i.name: np.asarray(rng.random(shape(i))).astype(DTYPES[i.type]) for i in session.get_inputs()}


def calls(threads: list[int], seconds: float) -> None:
    """Prints what a call of an empty graph costs."""
    data = empty().SerializeToString()
    x = {"x": np.zeros((1, 4), np.float32)}
    print("a call of an empty graph, in microseconds\nthreads  mlc_rewrite  onnxruntime")
    for n in threads:
        own, other = mlc.Session(data, threads=n), runtime(data, n)
        best = fastest({"own": lambda: own.run(None, x), "ort": lambda: other.run(None, x)}, seconds)
        print(f"{n:7}  {best['own'] * 1e6:11.1f}  {best['ort'] * 1e6:11.1f}")


def optimisers() -> dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]]:
    """What makes smaller models of models, as far as it is installed."""
    found: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
        "mlc_rewrite": lambda m: mlc.optimize(m, target="onnxruntime")[0],
        "onnxruntime": offline,
    }
    if importlib.util.find_spec("onnxsim"):
        import onnxsim

        found["onnxsim"] = lambda m: onnxsim.simplify(m)[0]
    if importlib.util.find_spec("onnxslim"):
        import onnxslim

        found["onnxslim"] = onnxslim.slim
    if importlib.util.find_spec("onnxscript"):
        import onnxscript.optimizer

        found["onnxscript"] = onnxscript.optimizer.optimize
    return found


def offline(model: onnx.ModelProto) -> onnx.ModelProto:
    """What ONNX Runtime makes of a model before it runs it."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "out.onnx")
        options = ort.SessionOptions()
        options.optimized_model_filepath = path
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.log_severity_level = 3
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(path)


def model(path: str, threads: int, seconds: float) -> None:
    """Prints what becomes of a model, and how fast that is in ONNX Runtime and here."""
    source = onnx.load(path)
    plain = runtime(source.SerializeToString(), threads)
    inputs = feed(plain)
    expected = plain.run(None, inputs)
    print(f"\n{path}: {len(source.graph.node)} nodes\n{'by':12} {'nodes':>6} {'seconds':>8} {'agrees':>8} {'of the time':>12}")
    runs = {"as it is": plain}
    rows = {}
    for name, optimise in optimisers().items():
        copy = onnx.ModelProto.FromString(source.SerializeToString())
        began = time.perf_counter()
        try:
            made = optimise(copy)
            spent = time.perf_counter() - began
            runs[name] = runtime(made.SerializeToString(), threads)
            outputs = runs[name].run(None, inputs)
        except Exception as error:  # noqa: BLE001: whatever another optimiser raises is its result
            print(f"{name:12} {type(error).__name__}: {str(error).splitlines()[0][:80]}")
            runs.pop(name, None)
            continue
        worst = max(float(np.max(np.abs(np.float64(a) - np.float64(b)), initial=0) / max(1e-12, np.max(np.abs(np.float64(b)), initial=0))) for a, b in zip(outputs, expected))
        rows[name] = (len(made.graph.node), spent, worst)
    best = fastest({name: (lambda s=s: s.run(None, inputs)) for name, s in runs.items()}, seconds)
    for name, (nodes, spent, worst) in rows.items():
        print(f"{name:12} {nodes:6} {spent:8.2f} {worst:8.0e} {best[name] / best['as it is']:12.2f}")
    own = mlc.Session(path, threads=threads)
    here = fastest({"here": lambda: own.run(None, inputs), "there": lambda: plain.run(None, inputs)}, seconds)
    print(f"mlc_rewrite.Session takes {here['here'] / here['there']:.2f} of the time of ONNX Runtime ({here['here'] * 1e3:.2f} ms)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="of measuring, for each row")
    arguments = parser.parse_args()
    calls([1, 4], arguments.seconds)
    for path in arguments.models:
        model(path, arguments.threads, arguments.seconds)


if __name__ == "__main__":
    main()
