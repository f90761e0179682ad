"""Time from the start of the process to the first result, and the most memory it holds, beside ONNX Runtime's: `startup.py MODELS...`.

For every model, processes take turns: `mlc-rewrite run` with and without optimisation and self-check, and a Python that runs the model once in ONNX
Runtime with all optimisations. Inputs are the first sample of the model's `inputs.npz`, or random ones. Prints Markdown for every number of threads: of
each the median in seconds with quartiles, and of one more turn the most memory of its own and, in parentheses, the most resident memory, mapped files
included, in MiB. What Python takes to load ONNX Runtime and NumPy alone is printed below and is not subtracted. Needs a Python with `onnxruntime`,
which MLC_PYTHON or --python names, and Linux.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import zipfile

import turns

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


def check(status, errors):
    if os.waitstatus_to_exitcode(status):
        errors.seek(0)
        raise turns.Absent(turns.reason(errors.read().decode(errors="replace"), "it failed"))


def seconds(command):
    """Of a process; an error if it fails."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = started(command, errors)
        _, status = os.waitpid(process.pid, 0)
        took = time.perf_counter() - began
        process.returncode = 0
        check(status, errors)
    return took


def memory(command):
    """The most MiB of its own that a process holds, and the most that are resident; an error if it fails."""
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
        check(status, errors)
    return own / 1024, usage.ru_maxrss / 1024


def first_sample(archive, to):
    """Writes the arrays of the first sample under the inputs' own names."""
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(to, "w") as out:
        for name in given.namelist():
            sample, _, own = name.rpartition("/")
            if sample in ("", "0"):
                out.writestr(own, given.read(name))
    return to


def inputs_of(given, model, inputs, threads, to):
    if inputs:
        return first_sample(inputs, to)
    own = turns.Own(given, model, threads, ["--no-check", "--rounds", "1"])
    try:
        return shutil.copy(own.ready().known["inputs"], to)
    finally:
        own.end()


def commands(given, model, inputs, threads):
    """The table's columns."""
    own = [given.tool, "run", model, "--inputs", inputs, "--threads", threads, "--quiet", *given.options]
    return {
        "run": own,
        "run --no-check": [*own, "--no-check"],
        "run --no-optimize": [*own, "--no-optimize"],
        "ONNX Runtime": [turns.python(given, "onnxruntime"), "-c", SESSION, model, inputs, threads],
    }


def measured(given, model, inputs, threads):
    with tempfile.TemporaryDirectory() as folder:
        inputs = inputs_of(given, model, inputs, threads, pathlib.Path(folder) / "inputs.npz")
        each = commands(given, model, inputs, threads)
        times, absent = turns.race({name: lambda _, c=c: seconds(c) for name, c in each.items()}, given.seconds)
        return {"times": times, "absent": absent, "mib": {name: memory(each[name]) for name in times}}


def table(given, kept, chosen, threads):
    names = list(commands(given, "", "", threads))
    print(f"\n### {turns.plural(threads)}\n")
    turns.head(["model", *(f"{name}, {unit}" for unit in ("s", "MiB") for name in names)])
    absent = []
    for name, model, inputs in chosen:
        try:
            r = kept.get(name, str(threads)) or kept.put(measured(given, model, inputs, threads), name, str(threads))
        except turns.Absent as e:
            absent.append(f"{name}: {e}")
            continue
        absent += [f"{who} does not run {name}: {why}" for who, why in r["absent"].items()]
        cells = ["{1:.2f} ({0:.2f}–{2:.2f})".format(*turns.quartiles(r["times"][n])) if n in r["times"] else "" for n in names]
        cells += ["{:.0f} ({:.0f})".format(*r["mib"][n]) if n in r["mib"] else "" for n in names]
        turns.row([name, *cells])
    for line in absent:
        print(f"\n- {line}")


def main():
    parser = turns.arguments(__doc__, 4, options="run")
    given = turns.parsed(parser, [2])
    chosen = list(turns.models(given.models))
    if not chosen:
        parser.error("give models")
    kept = turns.Kept(given.json, given.again)
    for threads in given.threads:
        table(given, kept, chosen, threads)
    alone = [turns.python(given, "onnxruntime"), "-c", IMPORT]
    least = min(seconds(alone) for _ in range(turns.LEAST))
    print("\nPython with ONNX Runtime and NumPy alone: {:.2f} s, {:.0f} ({:.0f}) MiB.".format(least, *memory(alone)))


if __name__ == "__main__":
    main()
