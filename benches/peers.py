"""How fast models run here and in other runtimes on this machine: `peers.py [--threads N]... [--processes N] MODELS[/NAME]...`.

MODELS is a folder of folders with a `model.onnx` each, or one of these. For every model, number of threads (1 and 2 unless some
are given) and runtime, `mlc-rewrite bench --against` times the optimised plan and the runtime in turns, in several processes (3 unless
told); the one with the median ratio counts. Prints Markdown: the fastest run of each, and the ratio over the best of the others, with
the geometric means. Needs a Python with the packages `onnxruntime` and `openvino`, which MLC_PYTHON names; one that does not run a
model is left out of its row. `--json FILE` keeps all figures.
"""

import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"
PEERS = ["onnxruntime", "openvino"]


def race(model, threads, peer):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [TOOL, "bench", model, "--threads", threads, "--against", peer, "--json", report.name]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            print(f"{model}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return json.load(open(report.name))["against"]


def models(path):
    path = pathlib.Path(path)
    return [path / "model.onnx"] if (path / "model.onnx").exists() else sorted(path.glob("*/model.onnx"))


def arguments(words):
    threads, paths, processes, kept = [], [], 3, None
    words = iter(words)
    for w in words:
        if w == "--threads":
            threads.append(int(next(words)))
        elif w == "--processes":
            processes = int(next(words))
        elif w == "--json":
            kept = next(words)
        else:
            paths.append(w)
    return threads or [1, 2], processes, [m for p in paths for m in models(p)], kept


def middle(races):
    races = sorted((r for r in races if r), key=lambda r: r["ratio"])
    return races[len(races) // 2] if races else None


def main():
    threads, processes, found, kept = arguments(sys.argv[1:])
    if not found:
        sys.exit(__doc__)
    heads = [f"{n} thread{'s' if n > 1 else ''}: {c}" for n in threads for c in ("here, ms", *(f"{p}, ms" for p in PEERS), "ratio")]
    print("| model | " + " | ".join(heads) + " |\n" + "|---" * (1 + len(heads)) + "|")
    ratios, figures = {n: [] for n in threads}, {}
    for model in found:
        cells = [model.parent.name]
        for n in threads:
            runs = {p: middle([race(model, n, p) for _ in range(processes)]) for p in PEERS}
            figures.setdefault(model.parent.name, {})[n] = runs
            known = [r for r in runs.values() if r]
            if not known:
                cells += ["", *("" for _ in PEERS), ""]
                continue
            # The best peer is the one that the plan is slowest against.
            ratio = max(r["ratio"] for r in known)
            ratios[n].append(ratio)
            cells.append(f"{min(r['own_least_seconds'] for r in known) * 1e3:.3f}")
            cells += [f"{r['least_seconds'] * 1e3:.3f}" if r else "" for r in runs.values()]
            cells.append(f"{ratio:.2f}")
        print("| " + " | ".join(cells) + " |", flush=True)
    for n, all_ratios in ratios.items():
        if all_ratios:
            mean = math.exp(statistics.fmean(map(math.log, all_ratios)))
            print(f"\nGeometric mean at {n} thread{'s' if n > 1 else ''}: {mean:.2f} of the best of the others.")
    if kept:
        pathlib.Path(kept).write_text(json.dumps(figures, indent=1))


main()
