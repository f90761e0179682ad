"""Run two models in ONNX Runtime on the same random inputs: `python compare.py A.onnx B.onnx`.

Prints the largest difference of each output, as a part of its largest element, and the median time of a run of each. An extent
that is no number is taken as 1.
"""

import sys
import time

import numpy as np
import onnxruntime

sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in sys.argv[1:3]]
random = np.random.default_rng(0)
types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
inputs = {}
for i in sessions[0].get_inputs():
    shape = [d if isinstance(d, int) else 1 for d in i.shape]
    kind = types.get(i.type)
    inputs[i.name] = random.standard_normal(shape).astype(kind) if kind else np.zeros(shape, np.int64)

before, after = [s.run(None, inputs) for s in sessions]
for o, a, b in zip(sessions[0].get_outputs(), before, after):
    print(f"{o.name}: largest difference {np.abs(a - b).max() / max(np.abs(a).max(), 1e-30):.1e}")

times = [[], []]
for _ in range(50):
    for s, t in zip(sessions, times):
        start = time.perf_counter()
        s.run(None, inputs)
        t.append(time.perf_counter() - start)
for path, t in zip(sys.argv[1:3], times):
    print(f"{path}: {1e3 * np.median(t):.2f} ms in ONNX Runtime {onnxruntime.__version__}")
