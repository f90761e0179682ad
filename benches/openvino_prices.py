"""What OpenVINO takes for its kernels: prints the `takes` clauses of `rules/targets/openvino.rules`.

The cases of `onnxruntime_prices.py`, each a graph of one node copied a few times, timed by the runtime's own counters on one thread; see
there for the fit. Needs numpy, onnx, onnxruntime and openvino.
"""

import pathlib
import sys

import numpy as np
import openvino

import onnxruntime_prices as prices

SETTINGS = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "PERF_COUNT": True}
# Kernels of `onnxruntime_prices.py` that are this runtime's, too; what is pointwise goes into others or into one loop.
KERNELS = ("MatMul", "Conv", "Pool", "LayerNormalization", "Softmax", "Transpose", "Reduce")


def seconds(case):
    """The fastest of the copies, each the mean of the faster half of its runs."""
    model, feeds = case.model()
    compiled = openvino.Core().compile_model(openvino.Core().read_model(model), "CPU", SETTINGS)
    request = compiled.create_infer_request()
    times = {}
    for _ in range(prices.RUNS):
        request.infer(feeds)
        for info in request.get_profiling_info():
            # A node is called by its name or by its result.
            is_timed = info.node_name.startswith(("timed", "y")) and info.node_type not in ("Reorder", "Result")
            if is_timed and info.real_time.total_seconds() > 0:
                times.setdefault(info.node_name, []).append(info.real_time.total_seconds())
    if not times:
        sys.exit(f"no kernel of {case.op} was timed")
    return min(np.mean(sorted(t)[: max(1, len(t) // 2)]) for t in times.values()) + prices.DISPATCH / 2


def main():
    print(f"// OpenVINO {openvino.__version__}, one thread; median relative error of the fit.")
    wanted = set(sys.argv[1:])
    prices.report([k for k in prices.KERNELS if k[0] in KERNELS], seconds, wanted)


if __name__ == "__main__":
    main()
