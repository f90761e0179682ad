"""How fast models run here and in other runtimes on this machine's processor: `peers.py MODELS...`.

For every model and number of threads, the optimised plan and the other runtimes run in turns, each in a process of its own that is kept ready: ONNX
Runtime with all optimisations, OpenVINO in f32, PyTorch compiled (`max-autotune`, weights frozen), rten and tract (of the crate in benches/peers,
which has to be built). Prints a table in Markdown for every number of threads: the median of each in milliseconds with quartiles, and the ratio over
the best of the others, with quartiles of runs that follow each other; then the geometric means, and who does not run what, and why. The packages
`onnxruntime`, `openvino` and `torch` may be in different Pythons: `--python torch-compile=PATH`.
"""

import argparse
import pathlib

import turns

PEERS = ["onnxruntime", "openvino", "torch-compile", "rten", "tract"]


def measured(given, model, inputs, threads):
    """Times, versions, and reasons of absence, by name."""
    started, absent = {}, {}
    own = turns.Own(given, model, threads, inputs=inputs)
    builds = [own]
    try:
        own.ready()
        if given.before:
            builds.append(turns.Own(argparse.Namespace(**{**vars(given), "tool": given.before}), model, threads, inputs=inputs).ready())
        for name in given.against:
            try:
                started[name] = turns.Peer(given, name, model, own.known["inputs"], threads)
            except turns.Absent as e:
                absent[name] = str(e)
        for name, peer in list(started.items()):
            try:
                peer.ready()
            except turns.Absent as e:
                absent[name] = str(e)
        runs = {"here": lambda n: own.seconds("optimised", n)}
        if given.before:
            runs["before"] = lambda n: builds[1].seconds("optimised", n)
        if given.as_read:
            runs["as read"] = lambda n: own.seconds("as read", n)
        runs |= {name: lambda n, peer=peer: peer.seconds("run", n) for name, peer in started.items() if name not in absent}
        times, fallen = turns.race({} if given.prepare else runs, given.seconds)
        versions = {name: peer.version for name, peer in started.items() if name not in absent}
        return {"times": times, "versions": versions, "absent": {**absent, **fallen}, "same_plan": own.known["same_plan"]}
    finally:
        for process in [*builds, *started.values()]:
            process.end()


def beside(given):
    """Plans of the tool, besides the optimised one."""
    return [*(["before"] if given.before else []), *(["as read"] if given.as_read else [])]


def found(given, kept, name, model, inputs, threads):
    """What is kept, if it has everybody who is asked for, or what is measured now."""
    old = kept.get(name, str(threads))
    wanted = {*given.against, *beside(given)}
    if old and wanted <= {*old["times"], *old["absent"]}:
        return old
    try:
        new = measured(given, model, inputs, threads)
    except turns.Absent as e:
        new = {"times": {}, "versions": {}, "absent": {"here": str(e), **dict.fromkeys(wanted, "not tried")}}
    return new if given.prepare else kept.put(new, name, str(threads))


def table(given, kept, chosen, threads):
    shown = [*beside(given), *given.against]
    print(f"\n### {turns.plural(threads)}\n")
    turns.head(["model", "here, ms", *(f"{n}, ms" for n in shown), "ratio"])
    best, each, absent, versions, before, changed = [], {}, {}, {}, [], []
    for name, model, inputs in chosen:
        result = found(given, kept, name, model, inputs, threads)
        times, versions = result["times"], {**versions, **result["versions"]}
        for who, why in result["absent"].items():
            if who == "here" or who in shown:
                absent.setdefault((who, why), []).append(name)
        own, peers = times.get("here"), {n: times[n] for n in given.against if n in times}
        cells = [turns.ms(times[n]) if n in times else "" for n in ["here", *shown]]
        if own and "as read" in times:
            before.append(1.0 if result["same_plan"] else turns.ratio(own, times["as read"])[0])
        if own and "before" in times:
            changed.append(turns.ratio(own, times["before"])[0])
        if own and peers:
            best.append(min(peers, key=lambda n: turns.median(peers[n])))
            for n, t in peers.items():
                each.setdefault(n, []).append(turns.ratio(own, t)[0])
            each.setdefault("the best", []).append(max(turns.ratio(own, t)[0] for t in peers.values()))
            cells.append(turns.ratio_cell(own, peers[best[-1]]))
        turns.row([name, *cells, *[""] * (len(shown) + 2 - len(cells))])
    if each:
        means = [f"{n} {turns.mean(r):.3f} ({len(r)})" for n, r in each.items()]
        print(f"\nGeometric means of the ratios, with the number of models: {', '.join(means)}; largest over the best {max(each['the best']):.2f}.")
    if before:
        print(f"\nOptimised over as read, one where both are one plan: geometric mean {turns.mean(before):.3f}, largest {max(before):.3f}.")
    if changed:
        print(f"\nOver the other build: geometric mean {turns.mean(changed):.3f}, largest {max(changed):.3f}.")
    if versions:
        print(f"\nVersions: {', '.join(f'{n} {v}' for n, v in versions.items())}.")
    for (who, why), names in absent.items():
        print(f"\n- {who} does not run {', '.join(names)}: {why}")


def main():
    parser = turns.arguments(__doc__, 4)
    parser.add_argument("--against", type=lambda s: s.split(","), default=PEERS, help=f"runtimes, {','.join(PEERS)} by default")
    parser.add_argument("--as-read", action="store_true", help="the plan of the model as it is takes turns as well")
    parser.add_argument("--before", type=pathlib.Path, metavar="TOOL", help="another build of the tool takes turns as well")
    parser.add_argument("--prepare", action="store_true", help="start everybody once and time nothing: what PyTorch compiles is kept and found by later calls")
    given = turns.parsed(parser)
    chosen = list(turns.models(given.models))
    if not chosen:
        parser.error("give models")
    kept = turns.Kept(given.json, given.again or given.prepare)
    for threads in given.threads:
        table(given, kept, chosen, threads)


main()
