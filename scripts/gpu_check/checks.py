"""Correctness: generated code on the device against the reference interpreter, models against the other backends, fuzzing."""

import json
import tempfile
from pathlib import Path

import arrays
import micro
from context import BROAD, FIRST
from steps import FAILED, NOT_RUN, PASSED, CommandFailed, Outcome, Step, run

# Largest differences, relative to the largest element: sums are added up in another order.
TOLERANCES = {"f32": 1e-3, "f16": 1e-2, "bf16": 6e-2}

# Operations of a run that the reference interpreter is asked for.
SMALL = 3e8

# Seconds of fuzzing.
FUZZING = 60

# The cases of ONNX's conformance suite that no backend runs, each with its reason.
SKIPPED = Path(__file__).resolve().parents[2] / "fuzz/onnx_suite.toml"

# What the tool says of a case that the backend refuses by name.
UNSUPPORTED = "does not support"


def tests(context):
    """Each test of the test programs is a step; those of the device itself come first."""
    for program in context.tests:
        rank = FIRST if program.name.startswith("cuda_nvidia") else BROAD
        try:
            listed = run([program, "--list", "--format", "terse"], 60)
        except (CommandFailed, OSError) as e:
            why = f"{program} does not list its tests: {e}"
            yield Step(f"test {program.name}", "tests", lambda *_, why=why: Outcome(FAILED, why))
            continue
        for line in listed.splitlines():
            if line.endswith(": test"):
                test = line.removesuffix(": test")
                yield Step(f"test {test}", "tests", one_test(program, test), ("device", "nvrtc"), 20, is_timed=False, rank=rank)


def one_test(program, test):
    def work(context, seconds):
        out = run([program, "--exact", test, "--nocapture"], seconds, context.environment(tests=True))
        skipped = next((line for line in out.splitlines() if "skipped" in line), None)
        told = [line for line in out.splitlines() if "compared" in line]
        if skipped:
            return Outcome(NOT_RUN, skipped.strip())
        if "1 passed" not in out:
            return Outcome(FAILED, "the test program ran no test of this name")
        return Outcome(PASSED, "; ".join(told) or "as the reference interpreter computes")

    return work


def models(context):
    """Each model, and each of the micro set, on the device against this machine's processor and, if it is small, the
    reference interpreter."""
    for name, path, dtype in context.models:
        yield Step(f"model {name}", "models", one_model(path, dtype), ("tool", "device", "nvrtc"), 20, is_timed=False, rank=BROAD)
    for name, make, b, t in micro.names():
        work = one_model(lambda c, case=(name, make, b, t): micro.written(c.folder, *case), t)
        yield Step(f"micro {name}", "models", work, ("tool", "device", "nvrtc"), 20, is_timed=False, rank=FIRST)


def one_model(path, dtype):
    def work(context, seconds):
        model = path(context) if callable(path) else path
        if isinstance(model, str):
            return Outcome(NOT_RUN, model)
        with tempfile.TemporaryDirectory() as folder:

            def outputs(backend, *more):
                file = Path(folder) / f"{backend}.npz"
                where = ["--device", context.device] if backend == "cuda" else []
                run([context.tool, "run", model, "--backend", backend, *where, *more, "--outputs", file, "-q"], seconds, context.environment())
                return arrays.read(file)

            got = outputs("cuda")
            wanted = {"cpu": outputs("cpu")}
            if operations(context, model) <= SMALL:
                wanted["reference"] = outputs("reference")
            if not any(arrays.finite(w) for w in wanted.values()):
                return Outcome(NOT_RUN, f"no element of its results in {dtype} is finite, so they show nothing")
            # The processor computes in f32 what the device keeps in 16 bits.
            overflows = dtype != "f32" and arrays.all_finite(wanted["cpu"]) and not arrays.all_finite(got)
            if overflows and not arrays.all_finite(outputs("cuda", "--no-optimize")):
                return Outcome(NOT_RUN, f"results overflow on the device, as read, too: every value is kept in {dtype} there, and in f32 on the processor")
            worst = {name: arrays.difference(w, got) for name, w in wanted.items()}
        told = ", ".join(f"{d:.1e} from `{name}`" for name, d in worst.items())
        good = max(worst.values()) <= TOLERANCES[dtype]
        return Outcome(PASSED if good else FAILED, f"largest difference {told}", {"differences": worst})

    return work


def operations(context, model):
    """Operations of a run; too many if they are not known."""
    try:
        found = run([context.tool, "inspect", model, "--json", "-"], 60, context.environment())
        return float(json.loads(found)["flops"] or 0)
    except (CommandFailed, ValueError, KeyError, TypeError):
        return float("inf")


def conformance(context):
    """ONNX's own cases. What has elements of a type that the backend refuses by name shows nothing."""

    def work(context, seconds):
        table = ["--skip", SKIPPED] if SKIPPED.is_file() else []
        command = [context.tool, "conformance", context.suite, "--backend", "cuda", "--device", context.device, *table, "--json", "-", "-q"]
        try:
            found = json.loads(run(command, seconds, context.environment()))
        except CommandFailed as e:
            if e.code != 1:
                raise
            # What goes to standard error follows.
            found, _ = json.JSONDecoder().raw_decode(e.output)
        wrong = [f"{c['case']}: {c['reason']}" for c in found["cases"] if c["result"] == "failed" or c["result"] == "refused" and UNSUPPORTED not in c["reason"]]
        refused = sum(UNSUPPORTED in c["reason"] for c in found["cases"] if c["result"] == "refused")
        told = f"{found['passed']} cases pass, {len(wrong)} do not, {refused} have what the backend refuses, {found['skipped']} are left out"
        data = {"passed": found["passed"], "wrong": wrong[:40], "refused": refused, "skipped": found["skipped"]}
        return Outcome(FAILED if wrong or not found["passed"] else PASSED, "; ".join([told, *wrong[:3]]), data)

    if context.suite:
        yield Step("ONNX's conformance suite", "conformance", work, ("tool", "device", "nvrtc"), 60, is_timed=False, rank=BROAD)


def fuzzing(context):
    def work(context, seconds):
        time = min(FUZZING, max(seconds - 20, 1))
        command = [context.tool, "fuzz", "--backend", "cuda", "--device", context.device, "--time", time, "--json", "-"]
        try:
            found = json.loads(run([*command, "--seed", context.seed], seconds, context.environment()))
        except CommandFailed as e:
            if e.code != 1:
                raise
            kinds = e.output.count('"stage"')
            return Outcome(FAILED, f"{kinds} kinds of failure", {"output": e.output[-4000:]})
        told = f"{found['cases']} programs in {found['seconds']:.0f} s, {found['agreed']} runs agreed"
        # A campaign in which nothing could be run shows nothing.
        return Outcome(PASSED if found["agreed"] else FAILED, told, {k: found[k] for k in ("cases", "agreed", "seconds")})

    yield Step("fuzz", "fuzzing", work, ("tool", "device", "nvrtc"), FUZZING + 20, is_timed=False, rank=BROAD)
