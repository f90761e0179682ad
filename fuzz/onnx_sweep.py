#!/usr/bin/env python3
"""Every operator that rules/onnx reads, at every version of the operator set, with axes of 4, 1 and 0 elements.

    python fuzz/onnx_sweep.py --tool target/release/mlc-rewrite [--target standard,onnxruntime] [--opsets 7-26]
                              [--operators Add,Conv] [--extents 4,1,0] [--jobs 2] [--group 40] [--option=--no-check]

Each model is optimised by the tool; what it writes must pass `onnx.checker` (full check), load in ONNX Runtime and
yield the values that ONNX Runtime computes of the source, or, where it differs or does not run, those of the reference
evaluator of onnx. Models are put together in groups, and halved where a group fails. Prints what failed and tables of
counts; exits 1 if anything is wrong, invalid, or ended in a panic. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from onnx import helper, numpy_helper

import onnx_cases_more  # noqa: F401: it adds to the table
from onnx_cases import CASES, Case

# ok: the values of the source. warned: so, with a warning. runtime: ONNX Runtime differs from the reference evaluator of
# onnx, which agrees with the result. not run: valid, and neither of them runs the source. no source: no valid model.
VERDICTS = ["ok", "warned", "runtime", "not run", "no source", "refused", "wrong", "invalid", "crashed"]


def model(cases, opset):
    nodes, inits, inputs, outputs = [], [], [], []
    for k in cases:
        nodes += k.nodes
        inits += [numpy_helper.from_array(v, n) for n, v in k.consts]
        inputs += [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in k.inputs]
        outputs += [onnx.ValueInfoProto(name=n) for n in k.outputs]
    graph = helper.make_graph(nodes, "sweep", inputs, outputs, inits)
    imports = [helper.make_opsetid("", opset)]
    m = helper.make_model(graph, opset_imports=imports, ir_version=max(4, helper.find_min_ir_version_for(imports)))
    # Types of the outputs, as the checker wants them.
    inferred = onnx.shape_inference.infer_shapes(m, strict_mode=True, data_prop=True)
    known = {v.name: v for v in list(inferred.graph.value_info) + list(inferred.graph.output)}
    del m.graph.output[:]
    m.graph.output.extend(c.types.get(k, known[k]) for c in cases for k in c.outputs)
    return m


def quiet():
    o = ort.SessionOptions()
    o.log_severity_level = 4
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    o.intra_op_num_threads = 1
    return o


def run(path, feeds):
    """The outputs, computed in a process of its own: a runtime may end the one that it runs in."""
    results = multiprocessing.get_context("fork").SimpleQueue()

    def work():
        try:
            session = ort.InferenceSession(str(path), quiet())
            names = [i.name for i in session.get_inputs()]
            results.put((session.run(None, {n: feeds[n] for n in names}), None))
        except Exception as e:
            results.put((None, str(e)))
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    reader = results._reader
    while not reader.poll(0.05):
        if not child.is_alive() and not reader.poll(0):
            raise RuntimeError("the runtime ended its process")
    found, error = results.get()
    child.join()
    if error is not None:
        raise RuntimeError(error)
    return found


def differ(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype}{a.shape} became {b.dtype}{b.shape}"
    if a.dtype.kind != "f":
        return None if (a == b).all() else f"{a.ravel()[:4]} became {b.ravel()[:4]}"
    close = np.isclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return None if close.all() else f"{a[~close][:4]} became {b[~close][:4]}"


def reference(model, feeds, output):
    """One output of a model or of that in a file, by the reference evaluator of onnx, or None where it has none."""
    m = onnx.ModelProto()
    m.CopyFrom(model if isinstance(model, onnx.ModelProto) else onnx.load(model))
    needed, nodes = {m.graph.output[output].name}, []
    for n in reversed(m.graph.node):
        if needed & set(n.output):
            needed |= set(n.input)
            nodes.insert(0, n)
    for field, kept in [(m.graph.node, nodes), (m.graph.output, [m.graph.output[output]])]:
        kept = [type(k).FromString(k.SerializeToString()) for k in kept]
        del field[:]
        field.extend(kept)
    try:
        with np.errstate(all="ignore"):
            return onnx.reference.ReferenceEvaluator(m).run(None, feeds)[0]
    except Exception:
        return None


class Group:
    """Cases in one model, with what ONNX Runtime computes of it."""

    def __init__(self, cases, opset, source):
        self.cases, self.opset, self.source = cases, opset, source
        self.feeds = {n: v for k in cases for n, v in k.inputs}
        self.expected, self.unrun = None, ""
        self.model = model(cases, opset)
        onnx.checker.check_model(self.model, full_check=True)
        onnx.save(self.model, source)
        try:
            self.expected = run(source, self.feeds)
        except Exception as e:
            self.unrun = str(e).splitlines()[0]

    def judge(self, found):
        """The first output that is wrong; else what differs by the runtime's own fault, by output."""
        own = {}
        for i, (a, b) in enumerate(zip(self.expected, found)):
            if why := differ(a, b):
                meant = reference(self.source, self.feeds, i)
                name = self.model.graph.output[i].name
                # Where the definition of ONNX agrees with what was written, the runtime is wrong.
                if meant is None or differ(meant, b):
                    return "wrong", f"{name}: {why}"
                own[name] = f"{name}: {why}"
        return ("runtime", own) if own else ("ok", "")

    def by_reference(self, result):
        """Where ONNX Runtime does not run the source: both by the reference evaluator."""
        for i, info in enumerate(self.model.graph.output):
            a, b = (reference(path, self.feeds, i) for path in (self.source, result))
            if a is None or b is None:
                return "not run", self.unrun
            if why := differ(a, b):
                return "wrong", f"{info.name}, by the reference evaluator: {why}"
        return "ok", ""


def attempt(args, group, target, folder):
    """(verdict, what) of the cases in one model on one target."""
    result = folder / "target.onnx"
    result.unlink(missing_ok=True)
    command = [args.tool, "optimize", group.source, "-o", result, "--target", target, "--threads", "1", *args.option]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return "crashed", f"no end after {args.timeout} s"
    if done.returncode == 2:
        return "refused", done.stderr.strip().replace("\n", " | ")[:300]
    if done.returncode != 0:
        return "crashed", f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
    try:
        onnx.checker.check_model(str(result), full_check=True)
    except Exception as e:
        return "invalid", f"checker: {str(e).strip().splitlines()[0][:300]}"
    try:
        found = run(result, group.feeds)
    except Exception as e:
        # What the runtime cannot run as it was is not held against the result.
        return ("invalid", f"runtime: {str(e).splitlines()[0][:300]}") if group.expected else ("not run", group.unrun)
    verdict = group.judge(found) if group.expected else group.by_reference(result)
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    return ("warned", warned[0][:300]) if verdict[0] == "ok" and warned else verdict


def halves(cases):
    return cases[:len(cases) // 2], cases[len(cases) // 2:]


def runnable(cases, opset, folder):
    """The cases as groups that ONNX Runtime runs, those that it does not by themselves, and what is no model."""
    try:
        group = Group(cases, opset, folder / f"{cases[0].name.replace('/', '_')}.{len(cases)}.onnx")
    except Exception as e:
        if len(cases) == 1:
            return [], [(cases[0], str(e).splitlines()[0])]
    else:
        if group.expected or len(cases) == 1:
            return [group], []
    first, second = (runnable(half, opset, folder) for half in halves(cases))
    return first[0] + second[0], first[1] + second[1]


def verdicts(args, group, target, folder):
    """(case, verdict, what) of each case; a group that fails is taken apart."""
    verdict = attempt(args, group, target, folder)
    if verdict[0] == "runtime":
        own = [next((verdict[1][o] for o in k.outputs if o in verdict[1]), None) for k in group.cases]
        return [(k, "runtime", why) if why else (k, "ok", "") for k, why in zip(group.cases, own)]
    if verdict[0] == "ok" or len(group.cases) == 1:
        return [(k, *verdict) for k in group.cases]
    groups = [g for half in halves(group.cases) for g in runnable(half, group.opset, folder)[0]]
    found = [v for g in groups for v in verdicts(args, g, target, folder)]
    if all(v[1] in ("ok", "not run") for v in found):
        together = Case("+".join(k.name for k in group.cases), group.opset, 0)
        found.append((together, *verdict))
    return found


def work(job):
    args, opset, extent, names = job
    results, build = [], []
    for op, i in names:
        name, _, _, f = CASES[op][i]
        k = Case(name, opset, extent)
        try:
            f(k)
            build.append(k)
        except Exception as e:
            results += [(k, t, "no source", str(e)) for t in args.targets]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        groups, none = runnable(build, opset, folder) if build else ([], [])
        for target in args.targets:
            results += [(k, target, "no source", why) for k, why in none]
            results += [(k, target, *v) for g in groups for k, *v in verdicts(args, g, target, folder)]
    return [(k.name, target, opset, extent, verdict, what) for k, target, verdict, what in results]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--target", default="standard,onnxruntime", help="targets, with commas between")
    p.add_argument("--opsets", default="7-26")
    p.add_argument("--extents", default="4,1,0")
    p.add_argument("--operators")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--group", type=int, default=40)
    p.add_argument("--timeout", type=float, default=60)
    p.add_argument("--option", action="append", default=[], help="passed on to the tool; may be given several times")
    args = p.parse_args()
    args.targets = args.target.split(",")
    begin = time.monotonic()
    opsets = []
    for part in args.opsets.split(","):
        first, _, last = part.partition("-")
        opsets += range(int(first), int(last or first) + 1)
    wanted = args.operators.split(",") if args.operators else sorted(CASES)
    jobs = []
    extents = [int(n) for n in args.extents.split(",")]
    for opset in opsets:
        for extent in extents:
            cases = [(op, i) for op in wanted for i, c in enumerate(CASES[op]) if c[1] <= opset <= c[2]]
            for i in range(0, len(cases), args.group):
                jobs.append((args, opset, extent, cases[i:i + args.group]))
    counts = collections.Counter()
    failed = collections.defaultdict(list)
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for results in pool.map(work_of, jobs):
            for name, target, opset, extent, verdict, what in results:
                counts[target, opset, extent, verdict] += 1
                if verdict != "ok":
                    failed[verdict, name, what].append((target, opset, extent))
    for (verdict, name, what), at in sorted(failed.items()):
        on, opsets_at, extents_at = (sorted(set(of)) for of in zip(*at))
        print(f"{verdict}: {name} on {on} at operator sets {opsets_at}, extents {extents_at}: {what}")
    for title, place, values in [("operator set", 1, opsets), ("extent", 2, extents), ("target", 0, args.targets)]:
        print(f"{title:>12} " + " ".join(f"{k:>10}" for k in VERDICTS))
        for v in values:
            found = [sum(n for at, n in counts.items() if at[place] == v and at[3] == k) for k in VERDICTS]
            print(f"{v:>12} " + " ".join(f"{n:>10}" for n in found))
    total = collections.Counter()
    for at, n in counts.items():
        total[at[3]] += n
    print(f"{'all':>12} " + " ".join(f"{total[k]:>10}" for k in VERDICTS))
    print(f"{sum(total.values())} models in {time.monotonic() - begin:.0f} s")
    sys.exit(1 if total["wrong"] + total["invalid"] + total["crashed"] else 0)


def work_of(job):
    try:
        return work(job)
    except Exception as e:
        args, opset, extent, names = job
        return [("+".join(n for n, _ in names), args.targets[0], opset, extent, "crashed", f"the sweep itself: {e!r}")]


if __name__ == "__main__":
    main()
