#!/usr/bin/env python3
"""Models with open axes at every extent: operators of every operator set, exporters' idioms, random graphs.

    python fuzz/open_axes.py --tool target/release/mlc-rewrite --time 600 [--seed 1] [--jobs 2] [--kinds operators,contrib,idioms,graphs]
                             [--ways standard,onnxruntime,run] [--opsets 7-26] [--operators Slice,Pad] [--extents 0,1,2,3,5,7] [--keep FOLDER]
    python fuzz/open_axes.py --tool TOOL --cases FOLDER    the folders there (model.onnx, K.in.npz, K.out.npz) instead

A model has some of its axes open, declared by name, by unlike names, without names or without a rank; what has no open axis is an input or a weight. Its right
outputs at every extent are those of ONNX Runtime with optimisations off; extents that it refuses are left out. `optimize` for each target must write a file that
passes `onnx.checker` (full check), loads, computes the same and declares no shape that is not so; `run` must compute the same. Models are given to the tool in
batches (`mlc-rewrite conformance`). Prints each failure once by its cause with a minimal example, which `--keep` writes as a folder (and `note.txt`), and tables of
counts. The order is drawn from the seed; a campaign ends after `--time` seconds, or when all was tried. Exits 1 if anything failed. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import numpy_helper

import bounded
import open_reduce
from open_case import NAMINGS, Variant, build
from open_contrib import CONTRIB
from open_graphs import graph
from open_idioms import IDIOMS
from open_judge import declared_of, differ, fault_of, in_runtime, meant, misdeclared, node_counts, undisputed
from onnx_cases import CASES

WAYS = ["standard", "onnxruntime", "run"]
# `runtime`: ONNX Runtime has other values, and the reference evaluator of onnx has ours. `disputed`: the two of them agree at none of the extents.
# What is wrong with a result; `grown` (more nodes than the source has) is told, and is no failure: the clock may say that it gains.
FAULTS = ["wrong", "invalid", "shape", "narrowed", "refused", "panic", "slow"]
VERDICTS = ["ok", "runtime", "disputed", *FAULTS, "grown"]
# How often a way to declare axes is drawn.
OFTEN = {"named": 6, "unranked": 1}
TABLES = {"operators": CASES, "contrib": CONTRIB, "idioms": IDIOMS}
TOLERANCE = {"float16": 1e-3, "bfloat16": 1e-2}


def opsets_of(text):
    found = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def choices(args, op, maker, opset, rng):
    """The ways to open axes of a case: each symbol alone, all of them, and what is drawn."""
    symbols = list(build(maker, "k", opset, {}).met)
    opened = [(s,) for s in symbols] + ([tuple(symbols)] if len(symbols) > 1 else [])
    if "n" in symbols and len(symbols) > 2:
        opened.append(tuple(sorted({"n", rng.choice(symbols)})))
    for some in dict.fromkeys(opened):
        naming = rng.choices(args.namings, [OFTEN.get(n, 2) for n in args.namings])[0]
        yield op, opset, some, naming, rng.random() < 0.5


def plan(args):
    """All models of a campaign, in the order of the seed: what each needs to be made again in another process."""
    rng = random.Random(args.seed)
    jobs = []
    for kind, table in TABLES.items():
        if kind not in args.kinds:
            continue
        for op in args.operators or table:
            for i, (_, since, until, _) in enumerate(table.get(op, [])):
                jobs += [(kind, op, i, o) for o in args.opsets if since <= o <= until]
    rng.shuffle(jobs)
    # Each case once at any operator set first, then the others.
    met = collections.Counter()
    ranked = []
    for job in jobs:
        met[job[:3]] += 1
        ranked.append((met[job[:3]], job))
    jobs = [job for _, job in sorted(ranked, key=lambda r: r[0])]
    if "graphs" in args.kinds:
        share = 1 if jobs else 0
        graphs = (("graphs", args.seed * 1_000_000 + i, 0, rng.choice(args.opsets)) for i in range(args.graphs))
        jobs = list(interleaved(jobs, graphs)) if share else list(graphs)
    return jobs


def interleaved(a, b):
    a, b = iter(a), iter(b)
    while True:
        one, two = next(a, None), next(b, None)
        if one is None and two is None:
            return
        yield from (x for x in (one, two) if x is not None)


def maker_of(kind, op, i):
    if kind == "graphs":
        return f"graph#{op}", lambda k: graph(k, op)
    name, _, _, maker = TABLES[kind][op][i]
    return name, maker


def variants(args, job):
    """The variants of a job, and how many could not be made."""
    kind, op, i, opset = job
    name, maker = maker_of(kind, op, i)
    rng = random.Random(f"{args.seed} {job}")
    found, unmade = [], 0
    try:
        some = list(choices(args, name, maker, opset, rng))
    except Exception:
        return [], 1
    if kind == "graphs":
        some = some[-1:]
    for op_name, at, symbols, naming, frozen in some:
        for fixed in ([frozen, False] if frozen else [False]):
            try:
                found.append(Variant(op_name, maker, at, symbols, naming, fixed, args.extents, args.seed))
                break
            except Exception:
                unmade += not fixed
    return found, unmade


class Item:
    """A model with inputs and right outputs, and what is found of it."""

    def __init__(self, title, op, model, sets):
        self.title, self.op, self.model, self.sets = title, op, model, sets
        self.found = {}

    def write(self, folder):
        """As a case of the suite that `mlc-rewrite conformance` reads."""
        folder.mkdir(parents=True)
        onnx.save(self.model, folder / "model.onnx")
        largest, part = 0.0, 1e-5
        for n, (_, ins, outs) in enumerate(self.sets):
            data = folder / f"test_data_set_{n}"
            data.mkdir()
            for kind, values, infos in (("input", ins, self.model.graph.input), ("output", outs, self.model.graph.output)):
                for i, info in enumerate(infos):
                    if info.name in values:
                        (data / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(values[info.name], info.name).SerializeToString())
            for v in outs.values():
                if v.dtype.kind == "f" or v.dtype.name == "bfloat16":
                    part = max(part, TOLERANCE.get(v.dtype.name, 1e-5))
                    wide = np.abs(v.astype(np.float64))
                    largest = max(largest, wide[np.isfinite(wide)].max(initial=0))
        (folder / "tolerance.txt").write_text(f"{part} {part * largest + 1e-12}\n")

    def keep(self, folder, note):
        """As a folder like those of shared/cases."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        onnx.save(self.model, folder / "model.onnx")
        for n, (_, ins, outs) in enumerate(self.sets):
            np.savez(folder / f"{n}.in.npz", **ins)
            np.savez(folder / f"{n}.out.npz", **outs)
        (folder / "note.txt").write_text(note)


def from_folder(folder):
    """A folder like those of shared/cases."""
    sets = []
    for n in range(1000):
        if not (folder / f"{n}.in.npz").exists():
            break
        sets.append((n, dict(np.load(folder / f"{n}.in.npz")), dict(np.load(folder / f"{n}.out.npz"))))
    return Item(folder.name, folder.name, onnx.load(folder / "model.onnx"), sets)


def items_of(made):
    """Variants with what ONNX Runtime computes of them; those that it runs at no extent are left out."""
    found = []
    for v, results in zip(made, in_runtime([(v.model, [ins for _, ins in v.sets]) for v in made])):
        sets = [(at, ins, outs) for (at, ins), outs in zip(v.sets, results) if isinstance(outs, dict)]
        if sets:
            found.append(Item(v.title, v.op, v.model, sets))
    return found


def suite(args, items, way, folder):
    """Runs the tool on the items; (result, reason) of each by its number. A process that ends otherwise is asked for one half, then the other."""
    shutil.rmtree(folder, ignore_errors=True)
    for n, item in items:
        item.write(folder / "suite" / f"c{n}")
    command = [args.tool, "conformance", folder / "suite", "--json", folder / "report.json", "--threads", "1", *args.option]
    if way != "run":
        command += ["--write", folder / "written", "--target", way]
    code, said, _, _ = bounded.run(command, args.timeout + 5 * len(items), busy=int(args.timeout + 2 * len(items)), memory=args.memory)
    if code in (0, 1):
        return {int(c["case"][1:]): (c["result"], re.sub(r"\S*/suite/c\d+/model.onnx: ", "", c.get("reason", ""))) for c in json.loads((folder / "report.json").read_text())["cases"]}
    if len(items) == 1:
        why = said.strip().replace("\n", " | ")[-400:]
        return {items[0][0]: ("slow", f"no end after {args.timeout} s") if code is None else ("panic", f"exit {code}: {why}")}
    halves = items[:len(items) // 2], items[len(items) // 2:]
    found = [(half, suite(args, half, way, folder / str(i))) for i, half in enumerate(halves)]
    for i in range(2):
        if (folder / str(i) / "written").exists():
            shutil.copytree(folder / str(i) / "written", folder / "written", dirs_exist_ok=True)
    return {k: v for _, half in found for k, v in half.items()}


def judged(args, items, way, folder):
    """Sets `found[way]` of each item: (verdict, why)."""
    numbered = list(enumerate(items))
    if not items:
        return
    results = suite(args, numbered, way, folder)
    if way == "run":
        names = {"passed": "ok", "failed": "wrong", "skipped": "ok"}
        for n, item in numbered:
            result, why = results[n]
            item.found[way] = (names.get(result, result), why)
        return
    written = {}
    for n, item in numbered:
        result, why = results[n]
        if result != "passed":
            item.found[way] = (result, why)
            continue
        written[n] = onnx.load(folder / "written" / f"c{n}.onnx")
        fault = fault_of(item.model, written[n], [ins for _, ins, _ in item.sets])
        if fault:
            item.found[way] = fault
            del written[n]
    ran = in_runtime([(m, [ins for _, ins, _ in items[n].sets]) for n, m in written.items()], shapes=True)
    for (n, m), outs in zip(written.items(), ran):
        items[n].found[way] = verdict(items[n], m, outs)


def verdict(item, written, results):
    """What is wrong with a written file, by its results for the item's sets."""
    shapes = None
    for (at, feed, expected), outs in zip(item.sets, results):
        if not isinstance(outs, dict):
            return "invalid", f"ONNX Runtime at {at}: {outs}"
        for name, value in expected.items():
            if why := differ(value, outs[name]):
                if meant(item, results):
                    return "runtime", f"{name} at {at}: {why}"
                return "wrong", f"{name} at {at}: {why}"
        # What the source itself declares otherwise than it is is not held against a file that declares the same.
        if "" in outs and not shapes and not misdeclared(item.model, declared_of(item.model), feed, expected):
            shapes = outs[""]
    if shapes:
        return "shape", shapes
    before, after = node_counts(item.model), node_counts(written)
    return ("grown", f"{before} nodes became {after}") if after > before else ("ok", "")


def worked(args, batch):
    """The items of some jobs with their verdicts, and how many models were not made."""
    made, unmade = [], 0
    for job in batch:
        some, none = variants(args, job)
        made += some
        unmade += none
    unmade += len(made)
    items = items_of(made)
    unmade -= len(items)
    with tempfile.TemporaryDirectory(prefix="open_axes.") as folder:
        for way in args.ways:
            judge_all(args, items, way, pathlib.Path(folder) / way)
    return items, unmade


def judge_all(args, items, way, folder):
    """As `judged`; extents at which the runtime and the reference evaluator differ do not count, and are left out where something fails."""
    if not items:
        return
    judged(args, items, way, folder)
    again = []
    for item in items:
        if item.found[way][0] in FAULTS and (some := undisputed(item)) != item.sets:
            rest = Item(item.title, item.op, item.model, some)
            rest.whole = item
            again.append(rest)
    for item in again:
        item.found[way] = ("disputed", item.whole.found[way][1])
    judged(args, [i for i in again if i.sets], way, folder / "again")
    for item in again:
        item.whole.found[way], item.whole.sets = item.found[way], item.sets or item.whole.sets


def cause(op, way, verdict, why):
    """Failures of one cause look alike: their operator, and what is said without its numbers and names."""
    plain = re.sub(r"`[^`]*`", "`_`", why)
    plain = re.sub(r"\b[ky]/?\w*\b|\{[^}]*\}|\([^)]*\)|\[[^\]]*\]", "_", plain)
    plain = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", plain)
    return op.split("#")[0], verdict, plain[:160]


def tell(args, kept, item, way, found):
    """Tells a failure of a new cause, with a smaller example, which is kept."""
    what, why = found
    print(f"{what} ({way}): {item.title}: {why[:400]}", flush=True)
    if not args.keep:
        return
    smaller = open_reduce.reduced(item, lambda i: probe(args, i, way, what), args.effort) if what != "grown" else item
    name = re.sub(r"\W+", "_", f"{what}-{way}-{item.op}") + f"-{len(kept)}"
    smaller.keep(pathlib.Path(args.keep) / name, f"{item.title}\n{way}: {what}: {why}\n")


def probe(args, item, way, what):
    """Whether an item fails in the same way."""
    item.found = {}
    with tempfile.TemporaryDirectory(prefix="open_axes.") as folder:
        try:
            judged(args, [item], way, pathlib.Path(folder) / way)
        except Exception:
            return False
    return item.found[way][0] == what


def tables(args, counts, groups):
    print(f"{'':>14} " + " ".join(f"{v:>9}" for v in VERDICTS))
    for way in args.ways:
        print(f"{way:>14} " + " ".join(f"{counts[way, v]:>9}" for v in VERDICTS))
    by_op = collections.defaultdict(collections.Counter)
    for (op, what, _), ways in groups.items():
        by_op[what][op] += sum(ways.values())
    for what in VERDICTS:
        if by_op[what]:
            print(f"{what}: " + ", ".join(f"{op} {n}" for op, n in by_op[what].most_common()))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--time", type=float, default=600, help="seconds of the campaign")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--batch", type=int, default=8, help="cases that one run of the tool is given, each in some variants")
    p.add_argument("--kinds", default="operators,contrib,idioms,graphs")
    p.add_argument("--ways", default=",".join(WAYS))
    p.add_argument("--opsets", default="7-26")
    p.add_argument("--operators", default="")
    p.add_argument("--extents", default="0,1,2,3,5,7")
    p.add_argument("--namings", default=",".join(NAMINGS), help="how open axes are declared")
    p.add_argument("--graphs", type=int, default=100_000, help="random graphs at most")
    p.add_argument("--cases", type=pathlib.Path, help="folders of cases to try in place of a campaign")
    p.add_argument("--keep", type=pathlib.Path, help="where an example of each cause is written")
    p.add_argument("--effort", type=int, default=12, help="tries to make an example smaller")
    p.add_argument("--timeout", type=float, default=60, help="seconds that the tool has for one model")
    p.add_argument("--memory", type=int, default=None, help="bytes of address space that the tool has")
    p.add_argument("--option", action="append", default=[], help="passed on to the tool; may be given several times")
    args = p.parse_args()
    args.tool = str(pathlib.Path(args.tool).resolve())
    args.ways, args.kinds, args.namings = args.ways.split(","), args.kinds.split(","), args.namings.split(",")
    args.opsets, args.extents = opsets_of(args.opsets), [int(e) for e in args.extents.split(",")]
    args.operators = [o for o in args.operators.split(",") if o]
    return args


class Campaign:
    """Counts, and failures by their cause."""

    def __init__(self, args):
        self.args, self.begin = args, time.monotonic()
        self.counts, self.groups, self.kept = collections.Counter(), collections.defaultdict(collections.Counter), set()
        self.models = self.runs = self.unmade = 0

    def take(self, items, unmade):
        self.unmade += unmade
        self.models += len(items)
        for item in items:
            self.runs += len(item.sets)
            for way, found in item.found.items():
                self.counts[way, found[0]] += 1
                if found[0] in ("ok", "runtime", "disputed"):
                    continue
                key = cause(item.op, way, *found)
                self.groups[key][way] += 1
                if key not in self.kept:
                    self.kept.add(key)
                    tell(self.args, self.kept, item, way, found)

    def end(self):
        tables(self.args, self.counts, self.groups)
        took = time.monotonic() - self.begin
        print(f"{self.models} models, {self.runs} sets of extents, {self.unmade} not made or not run by ONNX Runtime, {took:.0f} s")
        return any(self.counts[w, f] for w in self.args.ways for f in FAULTS)


def main():
    args = arguments()
    campaign = Campaign(args)
    if args.cases:
        folders = sorted(f.parent for f in args.cases.rglob("model.onnx"))
        items = [from_folder(f) for f in folders]
        with tempfile.TemporaryDirectory(prefix="open_axes.") as folder:
            for way in args.ways:
                judge_all(args, items, way, pathlib.Path(folder) / way)
        campaign.take(items, 0)
        sys.exit(campaign.end())
    jobs = plan(args)
    batches = [jobs[i:i + args.batch] for i in range(0, len(jobs), args.batch)]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        waiting, following = set(), iter(batches)
        while time.monotonic() - campaign.begin < args.time:
            while len(waiting) < args.jobs + 1 and (batch := next(following, None)):
                waiting.add(pool.submit(worked, args, batch))
            if not waiting:
                break
            left = args.time - (time.monotonic() - campaign.begin)
            done, waiting = concurrent.futures.wait(waiting, max(left, 0), concurrent.futures.FIRST_COMPLETED)
            for future in done:
                campaign.take(*future.result())
        for future in waiting:
            future.cancel()
        for future in concurrent.futures.as_completed([f for f in waiting if not f.cancelled()]):
            campaign.take(*future.result())
    sys.exit(campaign.end())


if __name__ == "__main__":
    main()
