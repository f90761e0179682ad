"""Run two models in ONNX Runtime on the same random inputs: `python compare.py A.onnx B.onnx`.

Prints the largest difference of each output, as a part of its largest element, and the median time of a run of each. An extent
that is no number is taken as 1.
"""

import sys
import time

import numpy as np
import onnxruntime

if len(sys.argv) != 3:
    sys.exit(__doc__.strip())
sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in sys.argv[1:3]]
random = np.random.default_rng(0)
types = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?"}
types |= {f"{u}int{8 * n}": f"{u or 'i'}{n}" for u in ("", "u") for n in (1, 2, 4, 8)}
inputs = {}
for i in sessions[0].get_inputs():
    shape = [d if isinstance(d, int) else 1 for d in i.shape]
    kind = np.dtype(types[i.type.removeprefix("tensor(").removesuffix(")")])
    inputs[i.name] = random.standard_normal(shape).astype(kind) if kind.kind == "f" else np.zeros(shape, kind)

before, after = [[np.asarray(y, np.float64) for y in s.run(None, inputs)] for s in sessions]
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
