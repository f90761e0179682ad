"""How fast models run on the CPU backend before and after: `latency.py [--threads N]... [--processes N] MODELS[/NAME]...`.

MODELS is a folder of folders with a `model.onnx` each, or one of these. Runs `mlc-rewrite bench` (interleaved runs, the
fastest of each counts) in several processes for every number of threads (1 and 2 unless some are given), and prints
Markdown: of the processes (3 unless told) the one with the median ratio, and the geometric means of the ratios. A star marks
models of which the plan as read is kept: their ratio is noise, and counts as one. Exit code 1 if a model became slower
by more than the noise.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"

# The fastest runs of one plan, compiled twice, differ by less than this.
NOISE = 0.02


def bench(model, threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [TOOL, "bench", model, "--threads", threads, "--json", report.name]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{model}: {done.stderr.strip()}")
        return json.load(open(report.name))


def models(path):
    path = pathlib.Path(path)
    return [path / "model.onnx"] if (path / "model.onnx").exists() else sorted(path.glob("*/model.onnx"))


def arguments(words):
    threads, paths, processes = [], [], 3
    words = iter(words)
    for w in words:
        if w == "--threads":
            threads.append(int(next(words)))
        elif w == "--processes":
            processes = int(next(words))
        else:
            paths.append(w)
    return threads or [1, 2], processes, [m for p in paths for m in models(p)]


def main():
    threads, processes, found = arguments(sys.argv[1:])
    if not found:
        sys.exit(__doc__)
    heads = [f"{n} thread{'s' if n > 1 else ''}: {c}" for n in threads for c in ("before, ms", "after, ms", "after/before")]
    print("| model | " + " | ".join(heads) + " |\n" + "|---" * (1 + len(heads)) + "|")
    logs = {n: [] for n in threads}
    for model in found:
        cells = [model.parent.name]
        for n in threads:
            runs = [bench(model, n) for _ in range(processes)]
            r = sorted(runs, key=lambda r: r["ratio"])[processes // 2]
            kept = "*" if r["same_plan"] else ""
            logs[n].append(0.0 if r["same_plan"] else math.log(r["ratio"]))
            cells += [f"{r['least_seconds_unoptimized'] * 1e3:.3f}", f"{r['least_seconds'] * 1e3:.3f}"]
            cells.append(f"{r['ratio']:.3f}{kept}")
        print("| " + " | ".join(cells) + " |", flush=True)
    for n, all in logs.items():
        mean, worst = math.exp(sum(all) / len(all)), math.exp(max(all))
        print(f"\n{n} thread{'s' if n > 1 else ''}: geometric mean {mean:.3f}, largest {worst:.3f}.")
    sys.exit(int(any(l > math.log(1 + NOISE) for all in logs.values() for l in all)))


if __name__ == "__main__":
    main()
