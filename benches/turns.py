"""What programs that time models in turns have in common: processes that run when they are told to, results that are kept from one call to the
next, figures and tables. Times nothing by itself.
"""

import argparse
import json
import math
import os
import pathlib
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = ROOT / "target/release/mlc-rewrite"
CRATE = ROOT / "benches/peers/target/release/mlc-peers"

# What runs a model in a runtime that has packages for Python: the same as behind `bench --against`.
BRIDGE = [ROOT / "src/cli/bench/peers" / name for name in ("onnx_file.py", "onnx_graph.py", "in_torch.py", "in_jax.py")]
MAIN = ROOT / "src/cli/bench/peers/main.py"

# Runtimes of the crate in benches/peers; the others are packages for Python.
OF_CRATE = ("rten", "tract")

# Between turns: the threads of a runtime spin for a while after its run (ONNX Runtime's for some 30 ms), on the cores that the next one needs.
PAUSE = 0.06
# Turns of everybody at least.
LEAST = 3
# Characters of a reason at most.
MOST = 200


class Absent(Exception):
    """Why somebody takes no part."""


def reason(text, otherwise):
    """The line that says why, of what a process wrote to standard error."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("note: ")]
    line = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else otherwise)
    return shortened(line.removeprefix("error: "))


def shortened(line):
    return line if len(line) <= MOST else line[:MOST] + "…"


class Process:
    """A process that answers a line with a line."""

    def __init__(self, command, patience, environment=None):
        self.name, self.patience, self.errors = pathlib.Path(command[0]).name, patience, tempfile.TemporaryFile()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        try:
            self.process = subprocess.Popen([str(c) for c in command], env={**os.environ, **(environment or {})}, text=True, **pipes)
        except OSError as e:
            raise Absent(f"it cannot be started: {e}") from None

    def tell(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Absent(self.last_words()) from None

    def line(self):
        # No line is asked for before the one before it has come, so that none waits in a buffer.
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            self.end()
            raise Absent(f"no answer in {self.patience:g} s")
        line = self.process.stdout.readline().strip()
        if not line:
            raise Absent(self.last_words())
        if line.startswith("error: "):
            raise Absent(shortened(line.removeprefix("error: ")))
        return line

    def seconds(self, plan, count=1):
        """Of one run, the mean of so many in a row."""
        self.tell(f"{plan}\t{count}" if count > 1 else plan)
        return float(self.line())

    def last_words(self):
        self.end()
        self.errors.seek(0)
        return reason(self.errors.read().decode(errors="replace"), f"{self.name} ended without an answer")

    def end(self):
        """It ends by itself, and removes what it wrote for a while; it may have done so before."""
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Own(Process):
    """The tool with plans of a model; `ready` waits until they are found, and `known` says what is known before they run."""

    def __init__(self, given, model, threads, more=(), inputs=None):
        samples = ["--inputs", inputs] if inputs else []
        super().__init__([given.tool, "bench", model, "--turns", "--threads", threads, *samples, *more, *given.options], given.patience)

    def ready(self):
        self.known = json.loads(self.line())
        return self


class Peer(Process):
    """Another runtime with a model; `ready` waits until it has run once."""

    def __init__(self, given, name, model, inputs, threads, bridge=()):
        if name in OF_CRATE:
            if not given.crate.exists():
                raise Absent(f"it is not built: cargo build --release --manifest-path {(ROOT / 'benches/peers/Cargo.toml').relative_to(ROOT)}")
            command = [given.crate, "turns", name, model, inputs, threads]
        else:
            script = "".join(p.read_text() for p in [*BRIDGE, *bridge, MAIN])
            command = [python(given, name), "-c", script, name, model, inputs, threads, "cpu"]
        super().__init__(command, given.patience, {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)})

    def ready(self):
        # The clock comes last; of a version, what is behind a hyphen names a build.
        self.version = re.sub(r"-\S+", "", self.line().rsplit(" ", 1)[0])

    def load(self, model, inputs):
        self.tell(f"load\t{model}\t{inputs}")
        self.ready()


def python(given, name):
    named = dict(p.split("=", 1) for p in given.python if "=" in p)
    general = [p for p in given.python if "=" not in p]
    return named.get(name) or (general[-1] if general else os.environ.get("MLC_PYTHON", sys.executable))


def race(turns, seconds, count=1):
    """Seconds of every run by name, and why somebody fell out; all run in turns, once before it counts and then until the time is over."""
    times, absent = {name: [] for name in turns}, {}

    def turn(of_all):
        for name in [n for n in turns if n not in absent]:
            time.sleep(PAUSE)
            try:
                of_all[name].append(turns[name](count))
            except Absent as e:
                absent[name] = str(e)

    turn({name: [] for name in turns})
    began, done = time.perf_counter(), 0
    while len(absent) < len(turns) and (done < LEAST or time.perf_counter() - began < seconds):
        turn(times)
        done += 1
    return {n: t for n, t in times.items() if n not in absent}, absent


class Kept:
    """Results in a file of JSON, by a list of names; those that are there are not measured again, unless they shall be."""

    def __init__(self, path, again):
        self.path, self.again = path and pathlib.Path(path), again
        program = pathlib.Path(sys.argv[0]).name
        self.all = json.loads(self.path.read_text()) if self.path and self.path.exists() else {"program": program}
        if self.all.get("program") != program:
            sys.exit(f"{path}: it is not from {program}")

    def get(self, *names):
        at = self.all
        for n in names:
            at = at.get(n, {})
        return None if self.again or not at else at

    def put(self, value, *names):
        at = self.all
        for n in names[:-1]:
            at = at.setdefault(n, {})
        at[names[-1]] = value
        if self.path:
            beside = self.path.with_name(self.path.name + ".new")
            beside.write_text(json.dumps(self.all, indent=1))
            beside.replace(self.path)
        return value


def models(paths):
    """Names, files and, where there are some, inputs of models: a file, a folder with `model.onnx`, or a folder of either."""
    for path in map(pathlib.Path, paths):
        inside = [path / "model.onnx"] if path.is_dir() else [path]
        if path.is_dir() and not inside[0].exists():
            inside = sorted([*path.glob("*/model.onnx"), *path.glob("*.onnx")], key=name_of)
        for model in inside:
            if not model.exists():
                sys.exit(f"{model}: there is no such file")
            inputs = model.parent / "inputs.npz"
            yield name_of(model), model, inputs if model.name == "model.onnx" and inputs.exists() else None


def name_of(model):
    return model.parent.name if model.name == "model.onnx" else model.stem


def quartiles(values):
    """The lower quartile, the median and the upper one."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3


def median(values):
    return quartiles(values)[1]


def mean(ratios):
    """The geometric one."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def ms(values, digits=3):
    """A cell with median and quartiles."""
    low, middle, high = (f"{v * 1e3:.{digits}f}" for v in quartiles(values))
    return f"{middle} ({low}–{high})"


def ratio(own, other):
    """Of the medians, and the quartiles of those of runs that follow each other."""
    low, _, high = quartiles([a / b for a, b in zip(own, other)])
    return median(own) / median(other), low, high


def ratio_cell(own, other):
    return "{:.2f} ({:.2f}–{:.2f})".format(*ratio(own, other))


def row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(names):
    row(names)
    print("|---" * len(names) + "|", flush=True)


def plural(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def arguments(doc, seconds, **more):
    """A parser with what all have; `seconds` is the default of `--seconds`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="ONNX files, folders with `model.onnx` and perhaps `inputs.npz`, or folders of these")
    parser.add_argument("--seconds", type=float, default=seconds, help=more.get("of", "of the turns of a model at one number of threads") + f", {seconds:g} by default")
    parser.add_argument("--threads", type=int, action="append", help="may be given several times")
    parser.add_argument("--json", help="where results are kept; what is there is printed and not timed again")
    parser.add_argument("--again", action="store_true", help="time what is there again")
    parser.add_argument("--tool", type=pathlib.Path, default=TOOL)
    parser.add_argument("--crate", type=pathlib.Path, default=CRATE, help="the program of benches/peers, for rten and tract")
    parser.add_argument("--python", action="append", default=[], metavar="[RUNTIME=]PATH", help="a Python with the packages; MLC_PYTHON by default")
    parser.add_argument("--patience", type=float, default=600, help="seconds until an answer is given up, 600 by default")
    parser.add_argument("--options", type=str.split, default=[], help=f"of `{more.get('options', 'bench')}`, as in --options='--fp exact'")
    return parser


def parsed(parser, threads=(1, 2)):
    given = parser.parse_args()
    given.threads = given.threads or list(threads)
    if not given.tool.exists():
        parser.error(f"there is no {given.tool}: build it, or name it with --tool")
    return given
