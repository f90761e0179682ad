"""Time from the start of the process to the first result, and the most memory it holds, beside ONNX Runtime's:
`startup.py [--turns N] [--threads N] [--tool PATH] MODELS[/NAME]...`.

MODELS is a folder of folders with a `model.onnx` and its `inputs.npz` each, or one of these; of several samples K/INPUT the first counts. For every model, processes take turns:
`mlc-rewrite run` with and without optimisation and self-check, and a Python that runs the model once in ONNX Runtime with all
optimisations. Prints Markdown: of each the fastest turn in seconds, and the most resident memory in MiB. What Python takes to load
ONNX Runtime and NumPy alone is printed below and is not subtracted. Needs a Python with `onnxruntime`, which MLC_PYTHON names.
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


def measured(command):
    """Seconds and MiB of a process; an error if it fails."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise SystemExit(f"{command[0]} {command[1]}: {errors.read().decode().strip()}")
    return seconds, usage.ru_maxrss / 1024


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
        turns = [[measured(command(model / "model.onnx")) for command in commands.values()] for _ in range(int(told["--turns"]))]
        each = list(zip(*turns))
        cells = [f"{min(s for s, _ in runs):.2f}" for runs in each] + [f"{max(m for _, m in runs):.0f}" for runs in each]
        print("| " + " | ".join([model.name, *cells]) + " |", flush=True)
    seconds, mib = zip(*(measured([PYTHON, "-c", IMPORT]) for _ in range(int(told["--turns"]))))
    print(f"\nPython with ONNX Runtime and NumPy alone: {min(seconds):.2f} s, {max(mib):.0f} MiB.")


if __name__ == "__main__":
    main()
