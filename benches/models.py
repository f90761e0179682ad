#!/usr/bin/env python3
"""Optimise real models, load the results in ONNX Runtime, write a table.

    python3 -m venv VENV && VENV/bin/pip install numpy onnx onnxruntime
    VENV/bin/python shared/models/fill.py FILLED
    cargo build --release
    VENV/bin/python benches/models.py FILLED [NAME ...] > docs/benchmarks/models.md

FILLED/NAME holds model.onnx, inputs.npz and outputs.npz (arrays named SAMPLE/INPUT and SAMPLE/OUTPUT).
Errors are the largest difference over all samples, relative to the output's largest element: of the
optimised file in ONNX Runtime with its own optimisation off, and of the CPU backend's run of the
optimised plan, both against the recorded outputs of the model as it is.
"""
import json, pathlib, platform, subprocess, sys, tempfile
import numpy as np
import onnxruntime as ort

TOOL = pathlib.Path(__file__).parent.parent / "target/release/mlc-rewrite"
ort.set_default_logger_severity(4)


def tool(*args):
    done = subprocess.run([str(TOOL), *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())


def error(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    return float(np.abs(got.astype(float) - want).max() / max(np.abs(want).max(), 1e-30)) if want.size else 0.0


def samples(folder):
    inputs, outputs = np.load(folder / "inputs.npz"), np.load(folder / "outputs.npz")
    pick = lambda z, k: {n.split("/", 1)[1]: z[n] for n in z if n.startswith(k + "/")}
    return [(pick(inputs, k), pick(outputs, k)) for k in sorted({n.split("/")[0] for n in inputs})]


def measure(folder, work):
    model, out = folder / "model.onnx", work / "out.onnx"
    tool("optimize", model, "-o", out, "--json", work / "report.json")
    report = json.loads((work / "report.json").read_text())
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(out), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    in_ort = in_cpu = 0.0
    for feed, want in samples(folder):
        for name, got in zip(names, session.run(None, feed)):
            in_ort = max(in_ort, error(got, want[name]))
        np.savez(work / "in.npz", **feed)
        tool("run", model, "--inputs", work / "in.npz", "--outputs", work / "got.npz")
        got = np.load(work / "got.npz")
        in_cpu = max(in_cpu, max(error(got[n], want[n]) for n in want))
    return report, in_ort, in_cpu


def main(filled, *only):
    print("# Real models\n")
    print(f"`benches/models.py` on {platform.machine()}, ONNX Runtime {ort.__version__}. Cost is the estimate for the")
    print("`standard` target; time and memory are those of `optimize` as a whole, self-check included.\n")
    print("| model | operators | cost, ms | e-graph | stop | seconds | MiB | self-check | in ONNX Runtime | CPU backend |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    failed, growth = False, []
    for folder in sorted(p.parent for p in pathlib.Path(filled).glob("*/model.onnx")):
        if only and folder.name not in only:
            continue
        with tempfile.TemporaryDirectory() as work:
            try:
                r, in_ort, in_cpu = measure(folder, pathlib.Path(work))
            except Exception as e:
                failed = True
                print(f"| {folder.name} | failed: {str(e).splitlines()[0]} |", flush=True)
                continue
        failed |= not (in_ort < 1e-4 and in_cpu < 1e-4)
        growth.append((folder.name, r["egraph"]["rounds"], r["stop_reason"]))
        print(
            f"| {folder.name} | {r['nodes_before']} → {r['nodes_after']} "
            f"| {r['cost_before'] * 1e3:.2f} → {r['cost_after'] * 1e3:.2f} | {r['egraph']['nodes']} | {r['stop_reason']} "
            f"| {sum(r['seconds'].values()):.1f} | {r['peak_process_bytes'] >> 20} | {r['self_check_error']:.1e} "
            f"| {in_ort:.1e} | {in_cpu:.1e} |",
            flush=True,
        )
    print("\n## Growth\n\nNodes of the e-graph after each round, and why exploration stopped.\n")
    print("| model | nodes after each round | stop |\n|---|---|---|")
    for name, rounds, stop in growth:
        print(f"| {name} | {' '.join(map(str, rounds))} | {stop} |")
    sys.exit(failed)


main(*sys.argv[1:])
