"""Operators one at a time, in ONNX Runtime before and after `optimize`, and on the CPU backend: `operators.py [WORD]...`.

Every case is a model of one operator, or of the few that runtimes join, at sizes of networks. The model and what `optimize` makes of it run
in turns in ONNX Runtime, on one thread; the CPU backend is timed by `bench`. Prints, for each, microseconds of the model, the ratio of the optimised
one and that of the CPU backend, and what the nodes became where they changed. With words, only the cases whose names contain one.
Exit code 1 if a model was refused, computes something else (1e-5 of its largest element; logarithms of sums near one are the exception), or
is slower after `optimize` by more than the noise. Needs numpy, onnx and onnxruntime.

Options: `--target NAME` (`standard`), `--tool FILE`, `--seconds S` for the runs of one case, `--no-cpu`, `--write FOLDER` to keep the models.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from in_onnxruntime import session
from operator_cases import cases, g

TOOL = pathlib.Path(__file__).resolve().parents[1] / "target/release/mlc-rewrite"
# What the fastest runs of two equal models differ by.
NOISE = 1.06
# Sums that come near one: their logarithms keep few digits.
CANCELS = ("ReduceLogSum_last", "ReduceLogSum_space")
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def feed(model):
    out = {}
    for i in model.get_inputs():
        if "float" in i.type:
            out[i.name] = g.standard_normal(i.shape).astype("f")
        else:
            low, kind = (2, "?") if "bool" in i.type else (500, "i8")
            out[i.name] = g.integers(0, low, i.shape).astype(kind)
    return out


def difference(before, after):
    """The largest difference in units of the largest element."""
    worst = 0.0
    for p, q in zip(before, after):
        if p.size:
            p, q = p.astype("f8"), q.astype("f8")
            worst = max(worst, float(np.nanmax(np.abs(p - q)) / (1e-30 + np.nanmax(np.abs(p)))))
    return worst


def turns(before, after, values, seconds):
    """The fastest runs of both, in microseconds."""
    times = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 10:
        for s, own in zip((before, after), times):
            start = time.perf_counter()
            s.run(None, values)
            own.append(time.perf_counter() - start)
    return [1e6 * min(own) for own in times]


def here(tool, path):
    """Microseconds of the CPU backend's optimised plan; none if it does not run."""
    command = [str(tool), "bench", str(path), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"optimised\s+([\d.]+) (\w+)", done.stdout)
    return float(found[1]) * UNITS[found[2]] if found else None


def operators(model):
    return collections.Counter(n.op_type for n in model.graph.node)


def measured(name, options, folder):
    """The row of a case, and whether it is as it should be."""
    model, path = cases[name], folder / f"{name}.onnx"
    onnx.save(model, path)
    out = folder / f"{name}.{options.target}.onnx"
    command = [str(options.tool), "optimize", "--target", options.target, str(path), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{name}: refused: {done.stderr.strip()}", False
    before, after = session(path, "all", 1), session(out, "all", 1)
    values = feed(before)
    off = difference(before.run(None, values), after.run(None, values))
    read, written = turns(before, after, values, options.seconds)
    cpu = None if options.no_cpu else here(options.tool, path)
    was, now = operators(model), operators(onnx.load(out))
    row = f"{name}: {read:.1f} us, optimised {written / read:.2f}"
    row += f", here {cpu / read:.2f}" if cpu else ""
    row += f", {dict(was)} -> {dict(now)}" if was != now else ""
    right = off < 1e-5 or name in CANCELS
    return row + ("" if right else f", differs by {off:.1e}"), right and written / read < NOISE


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--target", default="standard")
    parser.add_argument("--tool", type=pathlib.Path, default=TOOL)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--no-cpu", action="store_true")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.write or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in cases:
            if not options.words or any(word in name for word in options.words):
                row, fine = measured(name, options, folder)
                good &= fine
                print(row if fine else f"{row}  !", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
