"""How fast models run on the CPU backend before and after: `latency.py MODELS...`.

Runs `mlc-rewrite bench` (interleaved runs of the plan as read and of the optimised one, each compiled twice) in several processes for every number of
threads, and prints Markdown: of the processes the one with the median ratio, and the geometric means of the ratios of the fastest runs. A star marks
models of which the plan as read is kept: their ratio is noise, and counts as one. Exit code 1 if a model became slower by more than the noise.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import turns

# The fastest runs of one plan, compiled twice, differ by less than this.
NOISE = 0.02


def bench(given, model, inputs, threads):
    """The report of a process, or why there is none."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        samples = ["--inputs", inputs] if inputs else []
        command = [given.tool, "bench", model, *samples, "--threads", threads, "--seconds", given.seconds, "--json", report.name, *given.options]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode:
            raise turns.Absent(turns.reason(done.stderr, "it failed"))
        kept = ("ratio", "same_plan", "runs", "least_seconds", "least_seconds_unoptimized", "median_seconds", "median_seconds_unoptimized")
        return {k: v for k, v in json.loads(pathlib.Path(report.name).read_text()).items() if k in kept}


def result(given, kept, name, model, inputs, threads):
    found = kept.get(name, str(threads))
    if not found:
        runs = [bench(given, model, inputs, threads) for _ in range(given.processes)]
        found = kept.put(sorted(runs, key=lambda r: r["ratio"])[len(runs) // 2], name, str(threads))
    return found


def main():
    parser = turns.arguments(__doc__, 4, of="of the runs of both plans in a process")
    parser.add_argument("--processes", type=int, default=3, help="3 by default")
    given = turns.parsed(parser)
    chosen = list(turns.models(given.models))
    if not chosen:
        parser.error("give models")
    kept, ratios, absent = turns.Kept(given.json, given.again), {n: [] for n in given.threads}, []
    turns.head(["model", *(f"{turns.plural(n)}: {c}" for n in given.threads for c in ("before, ms", "after, ms", "after/before"))])
    for name, model, inputs in chosen:
        cells = [name]
        for n in given.threads:
            try:
                r = result(given, kept, name, model, inputs, n)
            except turns.Absent as e:
                absent.append(f"{name}: {e}")
                cells += ["", "", ""]
                continue
            ratios[n].append(1.0 if r["same_plan"] else r["ratio"])
            cells += [f"{r['least_seconds_unoptimized'] * 1e3:.3f}", f"{r['least_seconds'] * 1e3:.3f}", f"{r['ratio']:.3f}{'*' if r['same_plan'] else ''}"]
        turns.row(cells)
    for n, found in ratios.items():
        if found:
            print(f"\n{turns.plural(n)}: geometric mean {turns.mean(found):.3f}, largest {max(found):.3f}.")
    for line in absent:
        print(f"\n- {line}")
    sys.exit(int(any(r > 1 + NOISE for found in ratios.values() for r in found)))


if __name__ == "__main__":
    main()
