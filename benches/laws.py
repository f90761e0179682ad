"""What each law of the proof is worth, by the clock: `laws.py MODELS...`.

For every model the laws that the optimised plan rests on are left out one at a time (`--without LAW`), and the plans that are others then run in turns
with the whole one. Prints a table in Markdown for every model and number of threads: the law, how many equations of the proof are its own, the estimate
without it over the one with it, and the same for the medians of the runs, with quartiles of runs that follow each other. A law whose absence leaves
estimate and kernels as they are is not timed: other laws stand in for it. Of the others the `--most` with the largest estimates are.

`--estimate` only finds plans and keeps what is estimated, on a machine that may be busy; a later call with the same `--json` times the plans.
Plans are those without the self-check, as they are found under any other law set.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import turns

# A busy machine finds the same plans as a quiet one.
MORE = ["--no-check", "--time", "600"]


def opened(given, model, threads, inputs, laws):
    """Processes by law (`None` for all laws), as many at a time as there are cores, and why there are none."""

    def start(law):
        process = turns.Own(given, model, threads, [*MORE, *(["--without", law] if law else [])], inputs)
        try:
            return law, process.ready(), None
        except turns.Absent as e:
            return law, None, str(e)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(start, laws))
    return {law: p for law, p, _ in done if p}, {law: why for law, p, why in done if not p}


def closed(processes):
    for p in processes.values():
        p.end()


def estimated(given, model, threads, inputs):
    """Of every law of the proof: equations, the estimate without it, and whether the plan is another one."""
    whole, failed = opened(given, model, threads, inputs, [None])
    closed(whole)
    if failed:
        raise turns.Absent(failed[None])
    known = whole[None].known
    laws = {}
    # What is not in parentheses is a law. A few at a time, as each holds the model.
    names = [law for law in known["proof"] if not law.startswith("(")]
    for i in range(0, len(names), os.cpu_count()):
        others, failed = opened(given, model, threads, inputs, names[i : i + os.cpu_count()])
        closed(others)
        for law, process in others.items():
            other = process.known
            is_other = (other["estimate"], other["kernels"]) != (known["estimate"], known["kernels"])
            laws[law] = {"equations": known["proof"][law], "estimate": other["estimate"], "is_other": is_other}
        laws |= {law: {"equations": known["proof"][law], "absent": why} for law, why in failed.items()}
    return {"estimate": known["estimate"], "estimate_unoptimized": known["estimate_unoptimized"], "laws": laws}


def timed(given, model, threads, inputs, found):
    """Adds the times of the whole plan and of each plan without a law in turns with it."""
    others = {n: law for n, law in found["laws"].items() if law.get("is_other")}
    chosen = sorted(others, key=lambda n: -others[n]["estimate"])[: given.most]
    if not chosen:
        return found
    processes, absent = opened(given, model, threads, inputs, [None, *chosen])
    try:
        if None in absent:
            raise turns.Absent(absent[None])
        runs = {law: lambda n, p=p: p.seconds("optimised", n) for law, p in processes.items()}
        times, fallen = turns.race(runs, given.seconds)
    finally:
        closed(processes)
    if None not in times:
        raise turns.Absent(fallen[None])
    found["times"] = times.pop(None)
    for law in chosen:
        found["laws"][law] |= {"times": times[law]} if law in times else {"absent": {**absent, **fallen}[law]}
    return found


def result(given, kept, name, model, inputs, threads):
    found = kept.get(name, str(threads))
    # What is kept may be the estimates of an earlier call.
    if not found:
        found = kept.put(estimated(given, model, threads, inputs), name, str(threads))
    if not given.estimate and "times" not in found:
        found = kept.put(timed(given, model, threads, inputs, found), name, str(threads))
    return found


def table(name, threads, found, worth):
    laws = sorted(found["laws"].items(), key=lambda item: -item[1].get("estimate", 0))
    print(f"\n### {name}, {turns.plural(threads)}\n")
    turns.head(["law", "equations", "estimate without / with", "time without / with"])
    same, absent = [], []
    for law, of in laws:
        if "estimate" in of and not of["is_other"]:
            same.append(f"`{law}`")
            continue
        if "absent" in of:
            absent.append(f"`{law}`: {of['absent']}")
        cells = [f"`{law}`", of["equations"], f"{of['estimate'] / found['estimate']:.3f}" if "estimate" in of else "", ""]
        if "times" in of:
            cells[3] = "{:.3f} ({:.3f}–{:.3f})".format(*turns.ratio(of["times"], found["times"]))
            worth.setdefault(law, []).append((turns.ratio(of["times"], found["times"])[0], of["estimate"] / found["estimate"]))
        turns.row(cells)
    if same:
        print(f"\nOthers stand in for each of {', '.join(same)}: estimate and kernels stay as they are.")
    for line in absent:
        print(f"\n- without {line}")


def main():
    parser = turns.arguments(__doc__, 4)
    parser.add_argument("--most", type=int, default=5, help="laws of a model that are timed, 5 by default")
    parser.add_argument("--estimate", action="store_true", help="find the plans and time nothing")
    given = turns.parsed(parser, [1])
    chosen = list(turns.models(given.models))
    if not chosen:
        parser.error("give models")
    kept, worth, absent = turns.Kept(given.json, given.again), {}, []
    for name, model, inputs in chosen:
        for threads in given.threads:
            try:
                table(name, threads, result(given, kept, name, model, inputs, threads), worth)
            except turns.Absent as e:
                absent.append(f"{name}: {e}")
    if worth:
        print("\n### All models\n\nTimes of plans without a law over those with it, where leaving it out makes another plan.\n")
        turns.head(["law", "plans", "time, geometric mean", "time, most", "estimate, geometric mean"])
        for law, pairs in sorted(worth.items(), key=lambda item: -turns.mean([t for t, _ in item[1]])):
            times, estimates = zip(*pairs)
            turns.row([f"`{law}`", len(pairs), f"{turns.mean(times):.3f}", f"{max(times):.3f}", f"{turns.mean(estimates):.3f}"])
    for line in absent:
        print(f"\n- {line}")


main()
