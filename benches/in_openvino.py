"""How fast models run in OpenVINO on one thread before and after: `in_openvino.py MODELS [MODEL]...`.

As `in_onnxruntime.py`, which see, for target `openvino` and OpenVINO's CPU plugin in f32. Options: `--seconds S`, `--processes N`,
`--tool FILE`. Needs numpy, onnx, onnxruntime and openvino.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import openvino

import in_onnxruntime as bench

SETTINGS = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}


def child(paths, folder, setting, seconds):
    core = openvino.Core()
    requests = [core.compile_model(core.read_model(p), "CPU", setting).create_infer_request() for p in paths]
    # All programs have the same inputs.
    feed = bench.inputs(bench.session(paths[0], "none", 1), pathlib.Path(folder))
    print(json.dumps(bench.minima([lambda r=r: r.infer(feed) for r in requests], seconds)))


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(*json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--tool", default=bench.TOOL)
    args = parser.parse_args()
    names = args.names or sorted(p.parent.name for p in args.models.glob("*/model.onnx"))
    print("After over before in OpenVINO", openvino.__version__ + ", one thread, fastest of interleaved runs.\n")
    print("| model | nodes | openvino | control |")
    print("|---|---|---|---|")
    found = []
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch) / "model.onnx"
            model = args.models / name / "model.onnx"
            report = bench.optimise(args.tool, model, "openvino", out)
            after, control = bench.ratios([model, out, model], args.models / name, SETTINGS, args.seconds, args.processes, __file__)
        found.append(after)
        print(f"| {name} | {report['nodes_before']} → {report['nodes_after']} | {after:.3f} | {control:.3f} |", flush=True)
    print(f"| geometric mean | | {bench.mean(found):.3f} | |")
    sys.exit(int(any(r > 1 + bench.NOISE for r in found)))


if __name__ == "__main__":
    main()
