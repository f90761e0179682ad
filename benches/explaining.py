"""What `explain` costs beside `optimize`: `explaining.py MODELS...`.

For every model, processes of `optimize`, `explain` and `explain --html` take turns on one thread. Prints Markdown: of each the least processor seconds
of its turns, and how much more than `optimize` it takes; `explain` alone does not check its result, so it is held against `optimize --no-check`, and the
page against `optimize` as it is. The time in which `optimize` writes its result, by its own report, is not counted. Last, the size of the page. Exit code 1
if an explanation adds more than a second, or a page more than two. Needs Linux.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import turns

# Seconds that an explanation, and a page, may add.
MOST = {"explain": 1.0, "page": 2.0}


def seconds(command):
    """Processor seconds of a process; an error if it fails."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        if os.waitstatus_to_exitcode(status):
            errors.seek(0)
            raise turns.Absent(turns.reason(errors.read().decode(errors="replace"), "it failed"))
    return usage.ru_utime + usage.ru_stime


def measured(given, model):
    """The least seconds of every verb, and the bytes of the page."""
    # In memory: waiting for a disk would count as writing.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        page, report = pathlib.Path(folder, "page.html"), pathlib.Path(folder, "report.json")
        more = [*given.options, "--threads", "1", "-q"]
        optimize = ["optimize", model, "-o", pathlib.Path(folder, "a.onnx"), "--json", report, *more]
        commands = {
            "unchecked": [*optimize, "--no-check"],
            "optimize": optimize,
            "explain": ["explain", model, *more],
            "page": ["explain", model, "--html", page, *more],
        }
        least = {}
        for _ in range(given.turns):
            for name, command in commands.items():
                took = seconds([given.tool, *command])
                if report.exists():
                    took -= json.loads(report.read_text())["seconds"].get("write", 0.0)
                    report.unlink()
                least[name] = min(took, least.get(name, took))
        return least | {"bytes": page.stat().st_size}


def main():
    parser = turns.arguments(__doc__, 0, options="optimize` and `explain")
    parser.add_argument("--turns", type=int, default=3, help="3 by default")
    given = turns.parsed(parser)
    kept, slow, absent = turns.Kept(given.json, given.again), False, []
    turns.head(["model", "optimize --no-check, s", "explain adds, s", "optimize, s", "page adds, s", "page, kB"])
    for name, model, _ in turns.models(given.models):
        try:
            found = kept.get(name) or kept.put(measured(given, model), name)
        except turns.Absent as e:
            absent.append(f"{name}: {e}")
            continue
        adds = {"explain": found["explain"] - found["unchecked"], "page": found["page"] - found["optimize"]}
        slow |= any(adds[what] > most for what, most in MOST.items())
        cells = [found["unchecked"], adds["explain"], found["optimize"], adds["page"]]
        turns.row([name, *(f"{c:.2f}" for c in cells), f"{found['bytes'] / 1e3:.0f}"])
    for line in absent:
        print(f"\n- {line}")
    sys.exit(int(slow))


if __name__ == "__main__":
    main()
