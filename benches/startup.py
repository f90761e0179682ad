"""Time from the start of the process to the first result, and the most memory it holds, beside ONNX Runtime's:
`startup.py [--turns N] [--threads N] [--tool PATH] MODELS[/NAME]...`.

MODELS is a folder of folders with a `model.onnx` and its `inputs.npz` each, or one of these; of several samples K/INPUT the first counts. For every model, processes take turns:
`mlc-rewrite run` with and without optimisation and self-check, and a Python that runs the model once in ONNX Runtime with all
optimisations. Prints Markdown: of each the fastest turn in seconds, and of one more turn the most memory of its own and, in parentheses,
the most resident memory, mapped files included, in MiB. What Python takes to load ONNX Runtime and NumPy alone is printed below and is
not subtracted. Needs a Python with `onnxruntime`, which MLC_PYTHON names, and Linux.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = os.environ.get("MLC_PYTHON", "python3")

IMPORT = "import sys, numpy, onnxruntime as o\n"
SESSION = (
    IMPORT
    + """
options = o.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = int(sys.argv[3]), 1
options.log_severity_level = 3
session = o.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
given = numpy.load(sys.argv[2])
session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
"""
)


def started(command, errors):
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=errors)


def check(status, command, errors):
    if os.waitstatus_to_exitcode(status):
        errors.seek(0)
        raise SystemExit(f"{command[0]} {command[1]}: {errors.read().decode().strip()}")


def seconds(command):
    """Of a process; an error if it fails."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = started(command, errors)
        _, status = os.waitpid(process.pid, 0)
        took = time.perf_counter() - began
        process.returncode = 0
        check(status, command, errors)
    return took


def memory(command):
    """The most MiB of its own that a process holds, and the most that are resident."""
    with tempfile.TemporaryFile() as errors:
        process = started(command, errors)
        own, done = 0, 0
        while not done:
            try:
                table = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                table = ""
            found = [line.split()[1] for line in table.splitlines() if line.startswith("RssAnon:")]
            own = max(own, *map(int, found)) if found else own
            time.sleep(0.003)
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = 0
        check(status, command, errors)
    return f"{own / 1024:.0f} ({usage.ru_maxrss / 1024:.0f})"


def first_sample(archive, to):
    """Writes the arrays of the first sample under the inputs' own names."""
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(to, "w") as out:
        for name in given.namelist():
            sample, _, own = name.rpartition("/")
            if sample in ("", "0"):
                out.writestr(own, given.read(name))
    return to


def columns(tool, threads, inputs):
    """The table's columns: a command for a model each."""
    own = lambda m, *more: [tool, "run", m, "--inputs", inputs, "--threads", threads, "--quiet", *more]
    return {
        "run": lambda m: own(m),
        "run --no-check": lambda m: own(m, "--no-check"),
        "run --no-optimize": lambda m: own(m, "--no-optimize"),
        "ONNX Runtime": lambda m: [PYTHON, "-c", SESSION, m, inputs, threads],
    }


def arguments(words):
    told, paths = {"--turns": "3", "--threads": "2", "--tool": ROOT / "target/release/mlc-rewrite"}, []
    words = iter(words)
    for w in words:
        if w in told:
            told[w] = next(words)
        else:
            path = pathlib.Path(w)
            paths += [path] if (path / "model.onnx").exists() else sorted(p.parent for p in path.glob("*/model.onnx"))
    return told, paths


def main():
    told, models = arguments(sys.argv[1:])
    if not models:
        sys.exit(__doc__)
    folder = tempfile.TemporaryDirectory()
    inputs = pathlib.Path(folder.name) / "inputs.npz"
    commands = columns(told["--tool"], told["--threads"], inputs)
    heads = [f"{name}, {unit}" for unit in ("s", "MiB") for name in commands]
    print("| model | " + " | ".join(heads) + " |\n" + "|---" * (1 + len(heads)) + "|")
    for model in models:
        first_sample(model / "inputs.npz", inputs)
        turns = [[seconds(command(model / "model.onnx")) for command in commands.values()] for _ in range(int(told["--turns"]))]
        cells = [f"{min(each):.2f}" for each in zip(*turns)]
        cells += [memory(command(model / "model.onnx")) for command in commands.values()]
        print("| " + " | ".join([model.name, *cells]) + " |", flush=True)
    alone = [PYTHON, "-c", IMPORT]
    least = min(seconds(alone) for _ in range(int(told["--turns"])))
    print(f"\nPython with ONNX Runtime and NumPy alone: {least:.2f} s, {memory(alone)} MiB.")


if __name__ == "__main__":
    main()
