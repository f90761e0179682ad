#!/usr/bin/env python3
"""Extract from public e-graphs, write a table.

    cargo build --release
    python3 benches/extraction.py EGRAPHS > docs/benchmarks/extraction.md

EGRAPHS holds e-graphs in the JSON form of egraph-serialize (`*.json`, `*.json.gz`); a README.md beside them may have a
table whose first column is a file's name and whose last one is the best cost known of it, which is quoted.
"""
import json, pathlib, platform, subprocess, sys, tempfile

TOOL = pathlib.Path(__file__).parent.parent / "target/release/mlc-rewrite"


def extract(path, *options):
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work) / "report.json"
        done = subprocess.run(
            [str(TOOL), "extract", str(path), "--json", str(report), *options], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return json.loads(report.read_text())


def known(folder):
    readme = folder / "README.md"
    lines = readme.read_text().splitlines() if readme.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: row[-1] for row in rows if len(row) > 1}


def verdict(report):
    if report["proven"]:
        return f"{report['lower_bound']:.6f}", f"0, proven in {report['seconds']:.2f} s"
    return f"{report['lower_bound']:.6f}", f"{100 * report['gap']:.2f} %"


def main(folder):
    folder = pathlib.Path(folder)
    best = known(folder)
    print("# Extraction\n")
    print(f"`benches/extraction.py` on {platform.machine()}: DAG cost, that is, every chosen node once. A bound is proven: no program")
    print("costs less. The last column is what others report, as the e-graphs' own README quotes it.\n")
    print("| e-graph | nodes / classes | greedy | its bound, in | anytime, 5 s | bound, 60 s | gap, 60 s | exact | best known before |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("*.json*")):
        name = path.name.split(".")[0]
        greedy = extract(path, "--solver", "greedy")
        short = extract(path, "--deadline", "5")
        long = extract(path, "--deadline", "60")
        exact = extract(path, "--deadline", "60", "--solver", "exact")
        bound, gap = verdict(long)
        exact = f"{exact['cost']:.6f} in {exact['seconds']:.2f} s" if exact["proven"] else "not proven"
        row = [
            name, f"{greedy['nodes']} / {greedy['classes']}", f"{greedy['cost']:.6f}",
            f"{greedy['lower_bound']:.6f}, {greedy['seconds']:.2f} s", f"{short['cost']:.6f}", bound, gap, exact,
            best.get(name, "not known"),
        ]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
