#!/usr/bin/env python3
"""Whole models with recorded inputs through `optimize` for each target and through `run`, against recorded outputs.

    python fuzz/trained_models.py FOLDER --tool target/release/mlc-rewrite [--only PART] [--ways standard,onnxruntime,run] [--option=--bind=batch=1]

Every NAME.onnx below FOLDER that has NAME.inputs.npz beside it (or NAME.SET.inputs.npz, several of them) is tried; right is NAME.expected.npz (NAME.SET.expected.npz),
which is computed by ONNX Runtime with optimisations off where it is missing. What is written must pass `onnx.checker`, load in ONNX Runtime and agree within
1e-4 of the largest element; so must what `run` computes. Prints a table; exits 1 if anything is wrong. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import pathlib
import sys
import tempfile

import numpy as np
import onnx

import bounded
from onnx_sweep import run as in_runtime
from open_axes import WAYS
from open_judge import node_counts

# By what part of the largest element outputs may differ.
TOLERANCE = 1e-4


def distance(wanted, got):
    """By what part of its largest element an output differs; infinite where shapes, types, infinities or NaN do."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return np.inf
    if wanted.size == 0:
        return 0.0
    if wanted.dtype.kind != "f":
        return 0.0 if (wanted == got).all() else np.inf
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(a[finite]).max(initial=0)
    off = np.abs(a - b)[finite].max(initial=0)
    return off / largest if largest else off


def sets_of(path):
    """Inputs and right outputs beside a model."""
    stem = path.name.removesuffix(".onnx")
    names = [o.name for o in onnx.load(path, load_external_data=False).graph.output]
    for inputs in sorted(f for part in ("", ".*") for f in path.parent.glob(f"{stem}{part}.inputs.npz")):
        expected = inputs.with_name(inputs.name.replace(".inputs.npz", ".expected.npz"))
        feeds = dict(np.load(inputs))
        if not expected.exists():
            np.savez(expected, **dict(zip(names, in_runtime(path, feeds))))
        yield inputs, feeds, dict(np.load(expected))


def written(args, path, way, sets, folder):
    out = folder / "written.onnx"
    out.unlink(missing_ok=True)
    command = [args.tool, "optimize", path, "-o", out, "--target", way, *args.option]
    code, said, seconds, _ = bounded.run(command, args.timeout)
    warnings = [line for line in said.splitlines() if line.startswith("warning")]
    if code != 0:
        return f"exit {code}: {said.strip()[-300:]}", seconds, ""
    onnx.checker.check_model(str(out), full_check=True)
    names = [o.name for o in onnx.load(out, load_external_data=False).graph.output]
    far = 0.0
    for _, feeds, expected in sets:
        found = dict(zip(names, in_runtime(out, feeds)))
        far = max([far, *(distance(v, found[n]) for n, v in expected.items())])
    before, after = (node_counts(onnx.load(p, load_external_data=False)) for p in (path, out))
    return far, seconds, f"{before} → {after} nodes" + "".join("; " + w[:200] for w in warnings)


def computed(args, path, sets, folder):
    far, seconds = 0.0, 0.0
    for inputs, _, expected in sets:
        out = folder / "out.npz"
        out.unlink(missing_ok=True)
        code, said, took, _ = bounded.run([args.tool, "run", path, "--inputs", inputs, "--outputs", out, *args.option], args.timeout)
        seconds += took
        if code != 0:
            return f"exit {code}: {said.strip()[-300:]}", seconds, inputs.name
        found = dict(np.load(out))
        far = max([far, *(distance(v, found[n]) for n, v in expected.items())])
    return far, seconds, ""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--only", default="")
    p.add_argument("--ways", default=",".join(WAYS))
    p.add_argument("--timeout", type=float, default=600)
    p.add_argument("--option", action="append", default=[], help="passed on to the tool; may be given several times")
    args = p.parse_args()
    failed = 0
    for path in sorted(args.folder.rglob("*.onnx")):
        name = str(path.relative_to(args.folder))
        if args.only not in name or not (sets := list(sets_of(path))):
            continue
        for way in args.ways.split(","):
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                try:
                    far, seconds, more = computed(args, path, sets, folder) if way == "run" else written(args, path, way, sets, folder)
                except Exception as e:
                    far, seconds, more = str(e).strip().splitlines()[0], 0, ""
            right = not isinstance(far, str) and far <= TOLERANCE
            failed += not right
            far = far if isinstance(far, str) else f"{far:.1e}"
            print(f"{'right' if right else 'WRONG'} {name} {way}: {far}, {seconds:.1f} s {more}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
