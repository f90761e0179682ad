"""The report: one Markdown file for people, one JSON file for programs."""

import json
import math
import re
import statistics

from steps import FAILED, LEFT, NOT_RUN, PASSED
from timing import PEERS

# What the backend is to reach.
BEHIND = 0.9
BANDWIDTH = 0.85
RANKS = 0.8
# Kernels that are told one by one.
SLOWEST = 40


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def ranks(values):
    """Ranks from 0 on; equal values share theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    out, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for i in order[at:end]:
            out[i] = (at + end - 1) / 2
        at = end
    return out


def spearman(pairs):
    """How alike two orders are; None of fewer than three, or if one is no order."""
    if len(pairs) < 3:
        return None
    a, b = (ranks(list(side)) for side in zip(*pairs))
    return None if len(set(a)) == 1 or len(set(b)) == 1 else statistics.correlation(a, b)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows] + [""]


def timings(outcomes):
    """Lines on models and the micro set: own times, launches, ratios with their spread."""
    alone = {n.removeprefix("bench "): o.data for n, o in outcomes.items() if n.startswith("bench ") and " against " not in n and not n.endswith((" without libraries", " one by one")) and o.status == PASSED}
    if not alone:
        return ["Not yet measured.", ""]
    rows, best = [], {}
    for name, data in alone.items():
        own = spearman([(k[1], k[2]) for k in data["kernels"] if k[1] > 0])
        cells = [name, f"{data['least_seconds'] * 1e3:.4f}", f"{data['ratio']:.2f}", data["launches"], f"{100 * data['idle']:.0f} %", "–" if own is None else f"{own:.2f}"]
        off = outcomes.get(f"bench {name} without libraries")
        if off is None or off.status != PASSED:
            cells.append("–")
        else:
            cells.append(f"{off.data['least_seconds'] * 1e3:.4f} ({off.data['chosen']} of {off.data['products']})")
        for peer in PEERS:
            other = outcomes.get(f"bench {name} against {peer}")
            if other is None or other.status != PASSED:
                cells.append("–")
                continue
            # How many times as fast this is.
            low, high = (1 / q for q in reversed(other.data["ratio_quartiles"]))
            speed = 1 / other.data["ratio"]
            best.setdefault(data["dtype"], {}).setdefault(name, []).append(speed)
            cells.append(f"{speed:.2f} ({low:.2f}–{high:.2f})")
        rows.append(cells)
    head = ["model", "ms", "of the plan as read", "launches", "idle", "ranks of estimates", "ms without libraries (by one)", *(f"speed over {p}" for p in PEERS)]
    lines = table(head, rows)
    single = [(n.removeprefix("bench ").removesuffix(" one by one"), o.data) for n, o in outcomes.items() if n.endswith(" one by one") and o.status == PASSED]
    lines += [f"- {name}: {d['as_one'] * 1e3:.4f} ms as one launch, {d['least_seconds'] * 1e3:.4f} ms one by one." for name, d in single]
    for dtype, found in best.items():
        against = [min(speeds) for speeds in found.values()]
        behind = [name for name, speeds in found.items() if min(speeds) < BEHIND]
        told = f"{dtype}: geometric mean {mean(against):.2f} over the best of the others, {len(against)} models"
        lines += [f"- {told}; below {BEHIND}: {', '.join(behind) or 'none'}."]
    pairs = [(m, p) for d in alone.values() for _, m, p, *_ in d["kernels"] if m > 0]
    rank = spearman(pairs)
    told = "too few kernels" if rank is None else f"{rank:.2f} (wanted: {RANKS} at least)"
    lines += [f"- Estimated against measured times of {len(pairs)} kernels, rank correlation: {told}.", ""]
    return lines + convolutions(alone) + kernels(alone, copy_rate(outcomes))


# What a session says of a convolution that was computed in both ways.
CONVOLUTION = re.compile(r"(.+?), ([\d.]+) µs against ([\d.]+) µs: (.+ \* \[.+)")


def convolutions(alone):
    """Every convolution that a library may compute: who does, how long it takes, and how long the other way."""
    told = [(model, CONVOLUTION.fullmatch(note)) for model, data in alone.items() for note in data["notes"]]
    rows = [[model, what[4], what[1], what[2], what[3]] for model, what in told if what]
    head = ["model", "convolution", "by", "µs", "µs by the other"]
    return ["Convolutions by a library or generated code:", "", *table(head, rows)] if rows else []


def copy_rate(outcomes):
    """Bytes that the largest copy moved in a second, if one was timed."""
    copied = outcomes.get("copy on the device")
    return list(copied.data["rates"].values())[-1] if copied and copied.status == PASSED else None


def kernels(alone, rate):
    """The kernels that take longest, each with its estimate and the bytes that it moves in a second. What computes the same in a model is
    one line."""
    found = {}
    for model, data in alone.items():
        for name, measured, predicted, moved, computes in data["kernels"]:
            times, *sums = found.setdefault((model, name, computes), [0, 0.0, 0.0, 0.0])
            found[model, name, computes] = [times + 1, *(a + b for a, b in zip(sums, (measured, predicted, moved)))]
    slowest = sorted((f for f in found.items() if f[1][1] > 0), key=lambda f: -f[1][1])[:SLOWEST]
    rows = []
    for (model, name, computes), (times, measured, predicted, moved) in slowest:
        part = f"{moved / measured / rate:.2f}" if rate else "–"
        short = computes if len(computes) < 80 else computes[:77] + "…"
        rows.append([model, f"{times} × {name}", short.replace("|", "/"), f"{measured * 1e6:.1f}", f"{predicted / measured:.2f}", f"{moved / measured / 1e9:.0f}", part])
    head = ["model", "kernel", "computes", "µs together", "estimated/measured", "GB/s", "of the copy"]
    return [f"The {len(rows)} kernels that take longest:", "", *table(head, rows)] if rows else []


def bandwidths(outcomes):
    copied = outcomes.get("copy on the device")
    if copied is None or copied.status != PASSED:
        return ["Not yet measured.", ""]
    rows = [["copy", size, f"{rate / 1e9:.0f}", ""] for size, rate in copied.data["rates"].items()]
    for name, o in outcomes.items():
        if name.startswith("bandwidth ") and o.status == PASSED:
            part = o.data["rate"] / copied.data["rates"][o.data["size"]]
            rows.append([name.split()[1], o.data["size"], f"{o.data['rate'] / 1e9:.0f}", f"{part:.2f}{'' if part >= BANDWIDTH else ' (too slow)'}"])
    return table(["kernel", "size", "GB/s", "of the copy"], rows)


def markdown(context, steps, outcomes, notes):
    count = {s: sum(o.status == s for o in outcomes.values()) for s in (PASSED, FAILED, NOT_RUN, LEFT)}
    lines = ["# A check of the CUDA backend", ""]
    lines += [f"- {what}: {told}" for what, told in context.facts()] + [f"- {note}" for note in notes]
    lines += [f"- {len(steps)} steps: " + ", ".join(f"{n} {s}" for s, n in count.items()), ""]
    groups = list(dict.fromkeys(s.group for s in steps))
    for group in groups:
        of_group = [(s.name, outcomes[s.name]) for s in steps if s.group == group and s.name in outcomes]
        lines += [f"## {group.capitalize()}", ""]
        if group == "timing":
            lines += timings(outcomes)
        elif group == "bandwidth":
            lines += bandwidths(outcomes)
        # What went well is counted, where there are figures of it above; all else is told.
        told = [(n, o) for n, o in of_group if group not in ("timing", "bandwidth") or o.status != PASSED]
        reasons = dict.fromkeys((o.status, o.line) for _, o in told if o.status in (NOT_RUN, LEFT))
        for n, o in told:
            if o.status not in (NOT_RUN, LEFT):
                lines.append(f"- {n}: **{o.status}**: {o.line}" if o.status == FAILED else f"- {n}: {o.status}: {o.line}")
        for status, line in reasons:
            names = [n for n, o in told if (o.status, o.line) == (status, line)]
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            lines.append(f"- {status}: {line}: {shown}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def write(context, steps, outcomes, notes):
    """Writes both files; yields the text."""
    text = markdown(context, steps, outcomes, notes)
    (context.folder / "report.md").write_text(text)
    found = {"facts": context.facts(), "notes": notes, "steps": {s.name: vars(outcomes[s.name]) for s in steps if s.name in outcomes}}
    (context.folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    return text
