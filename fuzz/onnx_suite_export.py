#!/usr/bin/env python3
"""ONNX's conformance suite through `optimize` and back out as ONNX, checked and run by ONNX Runtime.

    python fuzz/onnx_suite.py SUITE
    python fuzz/onnx_suite_export.py SUITE --tool target/release/mlc-rewrite --work FOLDER [--only PART] [--target onnxruntime]

The tool writes every case to FOLDER/written (`conformance --write`). Each file must pass `onnx.checker` (full check); it
runs in ONNX Runtime, or where that does not run it in the reference evaluator of onnx, and must yield what the suite
expects, within the case's tolerance, or what the same runtime computes of the original. Results go to FOLDER/log.jsonl, a line
each; a case that is there is not run again, so a run that was stopped goes on (`--again` begins anew). Prints a table of counts and
what is wrong; exits 1 if anything is. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tomllib

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from onnx import numpy_helper

# Verdicts of files; those of `WRONG` are faults of ours.
VERDICTS = {
    "equal": "ONNX Runtime computes of it what the suite expects",
    "as original": "ONNX Runtime computes of it what it computes of the original, and the suite expects something else",
    "evaluated": "ONNX Runtime runs neither it nor the original; the reference evaluator of onnx computes what the suite expects",
    "not run": "neither of the two runs it, nor the original",
    "random": "valid; its values are random, so they are not compared",
    "no source": "the checker refuses the original as well",
    "refused": "`optimize` writes no file",
    "invalid": "the checker refuses it, and accepts the original",
    "not loaded": "ONNX Runtime runs the original, and not this file",
    "wrong": "its values differ from those of the suite and of the original",
    "crashed": "the process that ran it ended",
}
WRONG = {"refused", "invalid", "not loaded", "wrong", "crashed"}


def stored(path, info):
    """A value of the suite as numpy has it; a list of a sequence; None of an absent optional."""
    data = path.read_bytes()
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def data_sets(folder, model):
    initial = {t.name for t in model.graph.initializer}
    for data in sorted(folder.glob("test_data_set_*")):
        ins = {v.name: stored(f, v) for i, v in enumerate(model.graph.input)
               if (f := data / f"input_{i}.pb").exists() and v.name}
        outs = {v.name: stored(f, v) for i, v in enumerate(model.graph.output)
                if (f := data / f"output_{i}.pb").exists() and v.name}
        yield {k: v for k, v in ins.items() if v is not None or k not in initial}, outs


def differs(got, wanted, rtol, atol):
    """How a value differs from another one, in a few words."""
    if wanted is None or got is None:
        return None if got is None and wanted is None else "one of them is absent"
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return "another number of elements"
        return next((d for g, w in zip(got, wanted) if (d := differs(g, w, rtol, atol))), None)
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        return f"shape {got.shape} where {wanted.shape} is expected"
    if wanted.dtype.kind in "OUS" or got.dtype.kind in "OUS":
        return None if (got.astype(str) == wanted.astype(str)).all() else "other strings"
    # ONNX Runtime gives floats of 8 bits as their codes.
    if got.dtype == np.uint8 and wanted.dtype.name.startswith("float8"):
        got = got.view(wanted.dtype)
    if got.dtype != wanted.dtype:
        return f"{got.dtype} where {wanted.dtype} is expected"
    if wanted.dtype.kind in "biu":
        wide = (got.astype(object), wanted.astype(object)) if wanted.dtype == np.uint64 else (
            got.astype(np.int64), wanted.astype(np.int64))
        off = abs(wide[0] - wide[1]) > atol + rtol * abs(wide[1])
    else:
        if wanted.dtype.name == "bfloat16":
            rtol = max(rtol, 2.0**-6)
        number = np.complex128 if wanted.dtype.kind == "c" else np.float64
        off = ~np.isclose(got.astype(number), wanted.astype(number), rtol=rtol, atol=atol, equal_nan=True)
    at = np.flatnonzero(off)
    return f"{at.size} of {off.size} elements, first {at[0]}: {got.flat[at[0]]} where {wanted.flat[at[0]]} is expected" if at.size else None


class Unfed(Exception):
    """Values that this runtime takes or gives in no form that numpy has."""


def in_runtime(model):
    """A function of inputs to outputs by name."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {i.name for i in session.get_inputs()}

    def run(inputs):
        for v in inputs.values():
            for a in v if isinstance(v, list) else [v]:
                if a is not None and np.asarray(a).dtype.kind not in "biufcOUS":
                    raise Unfed(f"elements of {a.dtype}")
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, {k: v for k, v in inputs.items() if k in taken})))

    return run


def in_evaluator(model):
    evaluator = onnx.reference.ReferenceEvaluator(model)
    names = [o.name for o in model.graph.output]
    return lambda inputs: dict(zip(names, evaluator.run(names, inputs)))


def results(make, model, sets):
    """The outputs for every data set, or why there are none."""
    try:
        run = make(model)
        return [run(dict(ins)) for ins, _ in sets], None
    except Exception as e:
        return None, f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:300]


def first_difference(got, wanted, rtol, atol):
    for g, w in zip(got, wanted):
        for name, value in w.items():
            if name in g and (d := differs(g[name], value, rtol, atol)):
                return f"output {name}: {d}"
    return None


def checked(model):
    try:
        onnx.checker.check_model(model, full_check=True)
        return None
    except Exception as e:
        return str(e).splitlines()[0][:300]


def verdict(folder, written, random):
    source, ours = onnx.load(folder / "model.onnx"), onnx.load(written)
    if (fault := checked(ours)) is not None:
        original = checked(source)
        return ("no source", original) if original else ("invalid", fault)
    if random:
        return "random", ""
    rtol, atol = 1e-3, 1e-7
    if (folder / "tolerance.txt").exists():
        rtol, atol = map(float, (folder / "tolerance.txt").read_text().split())
    sets = list(data_sets(folder, source))
    expected = [outs for _, outs in sets]
    mine, why = results(in_runtime, ours, sets)
    theirs, unable = results(in_runtime, source, sets)
    if mine is None and theirs is not None:
        return "not loaded", why
    if mine is not None:
        off = first_difference(mine, expected, rtol, atol)
        if off is None:
            return "equal", ""
        apart = first_difference(mine, theirs, rtol, atol) if theirs else unable
        return ("wrong", f"{off}; original: {apart}") if apart or theirs is None else ("as original", off)
    mine, why = results(in_evaluator, ours, sets)
    theirs, unable = results(in_evaluator, source, sets)
    if mine is None:
        return "not run" if theirs is None else "not run", f"{unable or why}"
    off = first_difference(mine, expected, rtol, atol)
    if off is None:
        return "evaluated", ""
    apart = first_difference(mine, theirs, rtol, atol) if theirs else unable
    return ("wrong", f"by the reference evaluator, {off}; original: {apart}") if apart or theirs is None else ("not run", off)


def judge(folder, written, random):
    try:
        return verdict(folder, written, random)
    except Exception as e:
        return "crashed", f"{type(e).__name__}: {e}"[:300]


def in_children(jobs):
    """Yields each job's key and verdict; one whose process ends is `crashed`, and the others go on in another one."""
    jobs = list(jobs)
    while jobs:
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            for i, (key, *args) in enumerate(jobs):
                try:
                    yield key, pool.submit(judge, *args).result(timeout=120)
                except (concurrent.futures.process.BrokenProcessPool, TimeoutError) as e:
                    yield key, ("crashed", type(e).__name__)
                    break
            jobs = jobs[i + 1:]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", type=pathlib.Path)
    p.add_argument("--tool", required=True)
    p.add_argument("--work", type=pathlib.Path, required=True)
    p.add_argument("--only", default="")
    p.add_argument("--target", default="standard", help="what the files are written for; give each a FOLDER of its own")
    p.add_argument("--again", action="store_true")
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    log, report = args.work / "log.jsonl", args.work / "written.json"
    if args.again:
        log.unlink(missing_ok=True)
        report.unlink(missing_ok=True)
    if not report.exists():
        done = subprocess.run([args.tool, "conformance", args.suite, "--write", args.work / "written", "--json", report,
                               "--only", args.only, "--target", args.target], stdout=subprocess.DEVNULL)
        if done.returncode not in (0, 1):
            sys.exit(f"{args.tool} ended with {done.returncode}")
    table = tomllib.loads((pathlib.Path(__file__).parent / "onnx_suite.toml").read_text())["cases"]
    random = {name for name, why in table.items() if why.startswith("random")}
    folders = {f.parent.name: f.parent for f in args.suite.rglob("model.onnx")}
    found = {}
    if log.exists():
        found = {e["case"]: e for e in map(json.loads, log.read_text().splitlines())}
    cases = [c for c in json.loads(report.read_text())["cases"] if args.only in c["case"]]
    with log.open("a") as out:
        def keep(case, verdict, why):
            found[case] = {"case": case, "verdict": verdict, "why": why}
            out.write(json.dumps(found[case]) + "\n")
            out.flush()

        for c in cases:
            if c["result"] != "passed" and c["case"] not in found:
                keep(c["case"], "refused", c["reason"])
        jobs = [(c["case"], folders[c["case"]], args.work / "written" / (c["case"] + ".onnx"), c["case"] in random)
                for c in cases if c["case"] not in found]
        for case, (verdict, why) in in_children(jobs):
            keep(case, verdict, why)
    found = {c["case"]: found[c["case"]] for c in cases}
    for e in sorted(found.values(), key=lambda e: (e["verdict"], e["case"])):
        if e["verdict"] in WRONG or e["verdict"] == "as original":
            print(f"{e['verdict']}: {e['case']}: {e['why']}")
    counts = collections.Counter(e["verdict"] for e in found.values())
    for verdict, meaning in VERDICTS.items():
        print(f"{counts[verdict]:>5}  {verdict:12}  {meaning}")
    print(f"{len(found):>5}  cases")
    sys.exit(any(counts[v] for v in WRONG))


if __name__ == "__main__":
    main()
