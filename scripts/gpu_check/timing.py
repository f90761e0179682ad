"""Timing: models in turns with other runtimes, and kernels that memory bounds against a copy.

The tool times a plan by the device's own events, without copies from and to the host; so does PyTorch here. JAX and ONNX
Runtime are timed by the host's clock around a run that is waited for, on inputs that lie on the device.
"""

import json

import bandwidth
import micro
from context import COPIES, LIBRARIES, MICRO, MODELS, OTHERS
from steps import FAILED, NOT_RUN, PASSED, CommandFailed, Outcome, Step, run

# Names that `bench --against` takes, and the Python packages that they need.
PEERS = {
    "torch": ("torch", "numpy"),
    "torch-reduce-overhead": ("torch", "numpy"),
    "torch-compile": ("torch", "numpy"),
    "jax": ("jax", "numpy"),
    "onnxruntime": ("onnxruntime", "numpy"),
}

# Seconds of timed runs in each step.
RUNNING = 0.5

# Seconds that a peer may need to compile a model before it runs.
PATIENCE = 60


def benchmarks(context):
    """Each model by itself, with its kernels, then without libraries, then in turns with each peer; the micro set first."""
    own = ("tool", "device", "nvrtc")
    micros = [(name, lambda c, case=(name, make, b, t): micro.written(c.folder, *case), t) for name, make, b, t in micro.names()]
    cases = [*micros, *((name, path, dtype) for name, path, dtype in context.models)]
    for at, (name, path, dtype) in enumerate(cases):
        yield Step(f"bench {name}", "timing", alone(path, dtype), own, 30, rank=MICRO if at < len(micros) else MODELS)
    for name, path, dtype in cases:
        yield Step(f"bench {name} without libraries", "timing", without_libraries(name, path), own, 30, rank=LIBRARIES)
        yield Step(f"bench {name} one by one", "timing", one_by_one(name, path), own, 30, rank=LIBRARIES)
    # All of the micro set beside one peer, then beside the next.
    for group in (micros, cases[len(micros) :]):
        for peer in PEERS:
            needs = (*own, *(f"package {p}" for p in PEERS[peer]))
            for name, path, dtype in group:
                yield Step(f"bench {name} against {peer}", "timing", against(path, dtype, peer), needs, PATIENCE, rank=OTHERS)


# What sessions chose by the clock while other programs ran is not what they would choose alone.
ANEW = {"MLC_CUDA_CHOICES": "anew"}


def bench(context, model, seconds, *more, environment=None):
    command = [context.tool, "bench", model, "--backend", "cuda", "--device", context.device, "--no-check", "--seconds", RUNNING, "--wait", "--json", "-", *more]
    return json.loads(run(command, seconds, {**context.environment(), **ANEW, **(environment or {})}, context.turns))


def alone(path, dtype):
    def work(context, seconds):
        model = path(context) if callable(path) else path
        if isinstance(model, str):
            return Outcome(NOT_RUN, model)
        found = bench(context, model, seconds, "--kernels")
        if found["clock"] != "device":
            return Outcome(FAILED, "the tool did not time by the device's events")
        kept = ("least_seconds", "least_seconds_unoptimized", "percentiles", "percentiles_unoptimized", "ratio", "runs")
        kept += ("launches", "launches_unoptimized", "same_plan", "notes")
        data = {k: found[k] for k in kept}
        data["dtype"] = dtype
        data["kernels"] = [[k["kernel"], k["measured"], k["predicted"], k.get("bytes", 0.0), k["computes"]] for k in found["kernels"]]
        data["idle"] = idle(found)
        told = f"{found['least_seconds'] * 1e3:.4f} ms in {found['launches']} launches, as read {found['least_seconds_unoptimized'] * 1e3:.4f} ms"
        return Outcome(PASSED, told, data)

    return work


# What notes of a session say of runs as one launch.
TOGETHER = " launches as one"

# The same of products by warpgroups.
WARPGROUPS = "by warpgroups"

# The same of other tiles than those that are estimated to be the fastest.
TILES = " in tiles of "


def of_products(notes):
    """The notes of products and convolutions, and no others."""
    others = [TOGETHER, ", not as one: ", " in place of ", "launches start early: ", WARPGROUPS, TILES]
    return [n for n in notes if not any(o in n for o in others)]


def one_by_one(name, path):
    """The same model with its launches one by one, where a run is one launch."""

    def work(context, seconds):
        known = context.outcomes.get(f"bench {name}")
        if known is None or known.status != PASSED:
            return Outcome(NOT_RUN, "the model was not timed as it is")
        if not any(TOGETHER in n for n in known.data["notes"]):
            return Outcome(NOT_RUN, "its runs are not one launch")
        model = path(context) if callable(path) else path
        if isinstance(model, str):
            return Outcome(NOT_RUN, model)
        found = bench(context, model, seconds, environment={"MLC_CUDA_MERGED": "off"})
        least = found["least_seconds"]
        told = f"{least * 1e3:.4f} ms, {known.data['least_seconds'] * 1e3:.4f} ms as one launch"
        return Outcome(PASSED, told, {"least_seconds": least, "as_one": known.data["least_seconds"]})

    return work


# What notes of a session say where products, or convolutions, run as generated code because there is no library.
ABSENT = " run as generated code: "


def without_libraries(name, path):
    """The same model with every product and convolution as generated code. Shows nothing where none has another way."""

    def work(context, seconds):
        known = context.outcomes.get(f"bench {name}")
        if known is None or known.status != PASSED:
            return Outcome(NOT_RUN, "the model was not timed with libraries")
        notes = of_products(known.data["notes"])
        absent = next((n.split(ABSENT, 1)[1] for n in notes if ABSENT in n), None)
        notes = [n for n in notes if ABSENT not in n]
        if not notes:
            return Outcome(NOT_RUN, absent or "a library may compute nothing of it")
        model = path(context) if callable(path) else path
        if isinstance(model, str):
            return Outcome(NOT_RUN, model)
        found = bench(context, model, seconds, environment={"MLC_CUDA_LIBRARIES": "off"})
        if of_products(found["notes"]):
            return Outcome(FAILED, f"libraries are turned off, and yet: {of_products(found['notes'])[0]}")
        least = found["least_seconds"]
        chosen = sum(not n.startswith("generated code") for n in notes)
        told = f"{least * 1e3:.4f} ms, {known.data['least_seconds'] * 1e3:.4f} ms with {chosen} of {len(notes)} products and convolutions by a library"
        return Outcome(PASSED, told, {"least_seconds": least, "chosen": chosen, "products": len(notes)})

    return work


def idle(found):
    """The part of a run that no kernel accounts for; less than nothing where kernels one by one take longer."""
    busy = sum(k["measured"] for k in found["kernels"])
    return round(1 - busy / found["least_seconds"], 3) if found["least_seconds"] > 0 else 0.0


def against(path, dtype, peer):
    def work(context, seconds):
        model = path(context) if callable(path) else path
        if isinstance(model, str):
            return Outcome(NOT_RUN, model)
        try:
            found = bench(context, model, seconds, "--against", peer)["against"]
        except CommandFailed as e:
            # A peer that does not take a model is a fact of the peer.
            if "does not run the model" in e.output or "ended without an answer" in e.output:
                return Outcome(NOT_RUN, str(e))
            raise
        data = {k: found[k] for k in ("version", "clock", "ratio", "ratio_quartiles", "least_seconds", "own_least_seconds", "runs")}
        low, high = found["ratio_quartiles"]
        told = f"{found['own_least_seconds'] * 1e3:.4f} ms, {peer} {found['least_seconds'] * 1e3:.4f} ms: ratio {found['ratio']:.2f} ({low:.2f} to {high:.2f})"
        return Outcome(PASSED, told, {**data, "dtype": dtype})

    return work


def half(start):
    """Half of the columns of a matrix of so many rows, which `{rows}` stands for."""
    return f"slice(x, start=[0, {start}], size=[{{rows}}, 2048], step=[1, 1])"


# Kernels that memory bounds, over a matrix of rows by 4096 in f32.
BOUND = {
    "elements": "x * 2 + 1",
    "softmax": "softmax(x, axis=1)",
    "row_sums": "sum(x, axes=[1])",
    "transpose": "exp(transpose(x, perm=[1, 0]))",
    "halves": f"concat({half(2048)}, {half(0)}, axis=1)",
}
SIZES = (64, 256)


def bounds(context):
    """Bytes that such kernels move in a second, beside a copy on the device."""

    def copying(context, seconds):
        with context.turns.alone(seconds):
            found = {f"{mib} MiB": bandwidth.copy(context.device, mib << 20) for mib in SIZES}
        told = ", ".join(f"{size}: {rate / 1e9:.0f} GB/s" for size, rate in found.items())
        return Outcome(PASSED, told, {"rates": found})

    yield Step("copy on the device", "bandwidth", copying, ("device",), 10, rank=COPIES)
    for name, body in BOUND.items():
        for mib in SIZES:
            yield Step(f"bandwidth {name} {mib} MiB", "bandwidth", bound(name, body, mib), ("tool", "device", "nvrtc"), 20, rank=COPIES)


def bound(name, body, mib):
    rows = (mib << 20) // (4096 * 4)
    types = {"row_sums": f"f32[{rows}]", "transpose": f"f32[4096, {rows}]"}
    moved = (mib << 20) * (1 if name == "row_sums" else 2)

    def work(context, seconds):
        path = context.folder / f"{name}_{mib}.rules"
        path.write_text(f"/// What memory bounds.\ndef model(x: f32[{rows}, 4096]) -> {types.get(name, f'f32[{rows}, 4096]')}\n  = {body.format(rows=rows)}\n")
        found = bench(context, path, seconds)
        rate = moved / found["least_seconds"]
        return Outcome(PASSED, f"{rate / 1e9:.0f} GB/s", {"rate": rate, "size": f"{mib} MiB"})

    return work


# Products of square matrices, and how each is timed: as sessions choose, and with less to choose from.
SQUARES = (512, 1024, 2048, 4096, 8192)
WAYS = {
    "as chosen": {},
    "as generated code": {"MLC_CUDA_LIBRARIES": "off"},
    "without warpgroups": {"MLC_CUDA_LIBRARIES": "off", "MLC_CUDA_WGMMA": "off"},
}


def products(context):
    """Products of 16 bits by the library, by warpgroups and by warps, side by side."""
    for dtype in ("f16", "bf16"):
        for n in SQUARES:
            yield Step(f"product {dtype} {n}", "products", product(dtype, n), ("tool", "device", "nvrtc"), 60, rank=COPIES)


def product(dtype, n):
    def work(context, seconds):
        path = context.folder / f"product_{dtype}_{n}.rules"
        path.write_text(f"/// A product.\ndef model(x: {dtype}[{n}, {n}], w: {dtype}[{n}, {n}]) -> {dtype}[{n}, {n}]\n  = x @ w\n")
        found = {way: bench(context, path, seconds / len(WAYS), environment=environment) for way, environment in WAYS.items()}
        differing = [note for way in found.values() for note in way["notes"] if TILES in note and "differ" in note]
        if differing:
            return Outcome(FAILED, differing[0])
        rates = {way: 2 * n**3 / f["least_seconds"] for way, f in found.items()}
        told = ", ".join(f"{rate / 1e12:.0f} TFLOP/s {way}" for way, rate in rates.items())
        notes = [note for f in found.values() for note in f["notes"]]
        chosen = next((note for note in notes if WARPGROUPS in note), "no way by warpgroups")
        return Outcome(PASSED, f"{told}; {chosen}", {"rates": rates, "notes": notes})

    return work
