"""How fast models run in ONNX Runtime before and after: `in_onnxruntime.py MODELS [MODEL]...`.

MODELS is a folder of folders with a `model.onnx` each (`tensat --write` and `networks` of `proptests` make such). Every
model is optimised for each target; then the model and its results run in turns, with all of the runtime's own optimisations and with none, on one and on two threads, and the ratio is of the fastest runs.
Where the buffers of a session happen to lie changes it by some percent, so the median over several processes counts; the
column `control` shows what is left of that: the model against itself. Prints Markdown with the geometric means.
Exit code 1 if a model became slower by more than the noise. Needs numpy, onnx and onnxruntime.

Options: `--targets A,B`, `--threads N,M`, `--levels all,none`, `--seconds S` for the runs of one setting, `--processes N`,
`--tool FILE`, `--keep DIR` for the optimised models, `--json FILE`.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"

# The fastest runs of two equal programs differ by no more on a machine that does nothing else.
NOISE = 0.02

# Rounds of which every program runs once at least.
ROUNDS = 3

LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def session(path, level, threads):
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The threads of a session that waits must not take time from the one that runs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def inputs(of, folder):
    """The first recorded sample; else ones for integers and seeded normal numbers, symbols at 16."""
    recorded = folder / "inputs.npz"
    if recorded.exists():
        arrays = np.load(recorded)
        keys = {k.split("/", 1)[1]: k for k in arrays.files if k.startswith("0/")}
        return {i.name: arrays[keys[i.name]] for i in of.get_inputs()}
    rng = np.random.default_rng(0)
    out = {}
    for i in of.get_inputs():
        shape = [d if isinstance(d, int) else 16 for d in i.shape]
        real = i.type in ("tensor(float)", "tensor(double)", "tensor(float16)")
        kind = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(float16)": "f2", "tensor(bool)": "?"}
        array = rng.standard_normal(shape) if real else np.ones(shape)
        out[i.name] = array.astype(kind.get(i.type, "i8" if "64" in i.type else "i4"))
    return out


def ratios(paths, folder, setting, seconds, processes, script=__file__):
    """The time of each program after the first over that of the first: the median over processes of their fastest runs."""
    found = []
    for turn in range(processes):
        # Each program is loaded first in some process.
        order = [(k + turn) % len(paths) for k in range(len(paths))]
        work = [[str(paths[k]) for k in order], str(folder), setting, seconds / processes]
        done = subprocess.run([sys.executable, script, "--child", json.dumps(work)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{folder}: {done.stderr.strip()[-2000:]}")
        best = dict(zip(order, json.loads(done.stdout)))
        found.append([best[k] / best[0] for k in range(1, len(paths))])
    return [statistics.median(of) for of in zip(*found)]


def child(paths, folder, setting, seconds):
    sessions = [session(p, *setting) for p in paths]
    feeds = [inputs(s, pathlib.Path(folder)) for s in sessions]
    runs = [lambda s=s, f=f: s.run(None, f) for s, f in zip(sessions, feeds)]
    print(json.dumps(minima(runs, seconds)))


def minima(runs, seconds):
    """The fastest of each program's runs in seconds, all in turns."""
    for run in runs:
        run()
    best = [math.inf] * len(runs)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < ROUNDS or time.perf_counter() < end:
        for k in range(len(runs)):
            k = (k * (-1) ** rounds + rounds // 2) % len(runs)
            start = time.perf_counter()
            runs[k]()
            best[k] = min(best[k], time.perf_counter() - start)
        rounds += 1
    return best


def optimise(tool, model, target, out):
    out.parent.mkdir(parents=True, exist_ok=True)
    report = out.with_suffix(".json")
    command = [tool, "optimize", model, "-o", out, "--target", target, "--no-check", "--json", report]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model}: {done.stderr.strip()}")
    return json.loads(report.read_text())


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(*json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--targets", default="standard,onnxruntime")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--levels", default="all,none")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--tool", default=TOOL)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    targets = args.targets.split(",")
    settings = [(level, int(n)) for level in args.levels.split(",") for n in args.threads.split(",")]
    names = args.names or sorted(p.parent.name for p in args.models.glob("*/model.onnx"))
    print("After over before in ONNX Runtime", ort.__version__ + ", fastest of interleaved runs.\n")
    columns = [*targets, "control"]
    heads = [f"{t}, {level}, {n}" for t in columns for level, n in settings]
    print("| model | nodes |" + "".join(f" {h} |" for h in heads))
    print("|---" * (len(heads) + 2) + "|")
    found = {h: {} for h in heads}
    with tempfile.TemporaryDirectory() as scratch:
        keep = args.keep or pathlib.Path(scratch)
        for name in names:
            folder = args.models / name
            model = folder / "model.onnx"
            paths = [keep / name / f"{t}.onnx" for t in targets]
            reports = [optimise(args.tool, model, t, p) for t, p in zip(targets, paths)]
            for level, threads in settings:
                programs = [model, *paths, model]
                measured = ratios(programs, folder, (level, threads), args.seconds, args.processes)
                for t, r in zip(columns, measured):
                    found[f"{t}, {level}, {threads}"][name] = r
            nodes = f"{reports[0]['nodes_before']} → " + ", ".join(str(r["nodes_after"]) for r in reports)
            print(f"| {name} | {nodes} |" + "".join(f" {found[h][name]:.3f} |" for h in heads), flush=True)
            if not args.keep:
                for p in paths:
                    for f in p.parent.glob(p.stem + "*"):
                        f.unlink()
    print("| geometric mean | |" + "".join(f" {mean(found[h].values()):.3f} |" for h in heads))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    slower = {(h, m) for h in heads if not h.startswith("control") for m, r in found[h].items() if r > 1 + NOISE}
    for h, m in sorted(slower):
        print(f"slower: {m} ({h}): {found[h][m]:.3f}")
    sys.exit(int(bool(slower)))


if __name__ == "__main__":
    main()
