"""How fast models run on the CPU backend before and after: `latency.py MODELS [MODEL]...`.

MODELS is a folder of folders with a `model.onnx` each. Runs `mlc-rewrite bench` (medians of interleaved runs) in several
processes, takes the one with the median ratio, and prints Markdown with the geometric mean of the ratios. Exit code 1
if a model became slower by more than the noise.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"

# Two processes differ by more than the runs of one.
PROCESSES = 3

# Two medians of the same program differ by about so much on a machine that does nothing else.
NOISE = 0.03


def bench(model):
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [TOOL, "bench", model, "--backend", "cpu", "--json", report.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{model}: {done.stderr.strip()}")
        return json.load(open(report.name))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or sorted(p.parent.name for p in folder.glob("*/model.onnx"))
    print("| model | before, ms | after, ms | after/before |\n|---|---|---|---|")
    logs = []
    for name in names:
        found = [bench(folder / name / "model.onnx") for _ in range(PROCESSES)]
        r = sorted(found, key=lambda r: r["ratio"])[PROCESSES // 2]
        before, after = r["median_seconds_unoptimized"] * 1e3, r["median_seconds"] * 1e3
        logs.append(math.log(r["ratio"]))
        print(f"| {name} | {before:.2f} | {after:.2f} | {r['ratio']:.3f} |", flush=True)
    print(f"\nGeometric mean of the ratios: {math.exp(sum(logs) / len(logs)):.3f}.")
    sys.exit(int(any(math.exp(l) > 1 + NOISE for l in logs)))


if __name__ == "__main__":
    main()
