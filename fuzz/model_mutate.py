#!/usr/bin/env python3
"""Whole models, mutated, through every verb that reads one.

    python fuzz/model_mutate.py FOLDER... --tool target/release/mlc-rewrite --cases 2000 [--seed 0] [--jobs 2] [--keep FOLDER] [--largest BYTES]

Models are the `.onnx` files below the folders. A case changes one of them, in one to three ways: what `onnx_mutate.py` changes, bytes, fields of the
protobuf encoding (taken away, repeated, exchanged, of a wrong length), cycles, names that are defined twice, huge and negative extents, weights that are
missing, of another length or in a file outside the folder, bodies that nest deeply, functions that call themselves or grow exponentially. Then `optimize`,
`run`, `show --coverage` or `explain` reads it, within 20 s of processor time and 2 GiB of address space. Wanted are exit code 0, or 2 with a message that has a help and no
control characters, and after anything but 0 no file. Prints each failure with the seed of its case and a summary; exits 1 if there was one. Needs: numpy, onnx.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import random
import shutil
import sys
import tempfile
import time

import onnx
from onnx import helper

import bounded
from file_mutate import damaged
from onnx_mutate import NUMBERS, mutate
from text_mutate import CONTROL

SECONDS, MEMORY = 20, 2 << 30
# Most bytes of a data file that is copied with its model.
BESIDE = 32 << 20
VERBS = {
    "optimize": lambda model, out: ["optimize", model, "-o", out, "--target", "standard"],
    "optimize for onnxruntime": lambda model, out: ["optimize", model, "-o", out, "--target", "onnxruntime"],
    "run": lambda model, out: ["run", model, "--outputs", out],
    "show": lambda model, out: ["show", "--coverage", model],
    "explain": lambda model, out: ["explain", model],
}
OUTSIDE = ["../model.onnx", "../../../../etc/passwd", "/etc/passwd", "/dev/zero", ".", "", "none", "model.onnx", "a/../../b", "x\x1b[31m", "\\\\host\\file"]


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    """A field of bytes, a text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """The fields of a message: number, kind, and where its value begins and ends; nothing if it is no message."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    try:
        while at < len(data):
            begin, tag = at, number()
            kind = tag & 7
            value = at
            if kind == 0:
                number()
            elif kind == 2:
                length = number()
                value, at = at, at + length
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                return []
            if at > len(data) or tag < 8:
                return []
            found.append((begin, tag >> 3, kind, value, at))
    except IndexError:
        return []
    return found


def changed_field(data, rng, depth=0):
    """A message with one field changed, in itself or below."""
    all_fields = fields(data)
    if not all_fields:
        return damaged(data, rng) if data else data
    begin, number, kind, value, end = rng.choice(all_fields)
    if kind == 2 and depth < 8 and rng.random() < 0.85:
        return data[:begin] + field(number, changed_field(data[value:end], rng, depth + 1)) + data[end:]
    own = data[begin:end]
    what = rng.randrange(6)
    if what == 0:
        return data[:begin] + data[end:]
    if what == 1:
        return data[:end] + own * rng.choice([1, 2, 1000]) + data[end:]
    if what == 2:
        other = rng.choice(all_fields)
        return data[:begin] + data[other[0]:other[4]] + data[end:]
    if what == 3:
        return data[:begin] + varint(rng.randrange(1, 40) << 3 | kind) + data[value if kind != 2 else value - len(varint(end - value)):]
    if what == 4:
        length = rng.choice([0, 1, end - value + 1, 2**31, 2**32, 2**63, 2**64 - 1])
        return data[:begin] + varint(number << 3 | 2) + varint(length) + data[value:]
    return data[:begin] + varint(number << 3) + varint(rng.choice([0, 1, 7, 255, 2**31, 2**63, 2**64 - 1])) + data[end:]


def nested(m, rng):
    """Bodies in bodies, as deep as the encoding allows and deeper."""
    depth = rng.choice([3, 20, 90, 110, 1000, 20000])
    names = (m.graph.output[0].name if m.graph.output else "y").encode()
    inner = field(1, field(1, rng.choice([names, b"c"])) + field(2, b"inner") + field(4, b"Identity"))
    inner = inner + field(2, b"g") + field(12, field(1, b"inner"))
    for k in range(depth):
        attribute = lambda name: field(1, name) + field(6, inner) + varint(20 << 3) + varint(5)
        node = field(1, b"c") + field(2, b"inner" if k + 1 < depth else b"nested") + field(4, b"If") + field(5, attribute(b"then_branch"))
        if depth <= 20 and k < 6:
            node += field(5, attribute(b"else_branch"))
        inner = field(1, node) + field(2, b"g") + field(12, field(1, b"inner"))
    # A message of a field that is there already is merged with it.
    graph = field(7, field(1, node) + field(11, field(1, b"c") + field(2, field(1, bytes([8, 9]) + field(2, b"")))))
    return m.SerializeToString() + graph


def functions(m, rng):
    """Functions that call themselves, each other, or twice the one before."""
    kind, depth = rng.randrange(3), rng.choice([2, 30, 200])
    call = lambda k, x, y: helper.make_node(f"f{k}", [x], [y], domain="own")
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for k in range(depth):
        if kind == 0:
            body = [call(k, "x", "y")]
        elif kind == 1:
            body = [call((k + 1) % depth, "x", "y")]
        else:
            body = [call(k - 1, "x", "z"), call(k - 1, "z", "y")] if k else [helper.make_node("Neg", ["x"], ["y"])]
        m.functions.append(helper.make_function("own", f"f{k}", ["x"], ["y"], body, opset))
    m.opset_import.append(helper.make_opsetid("own", 1))
    x = rng.choice([i.name for i in m.graph.input] or ["x"])
    m.graph.node.append(call(depth - 1, x, "of_function"))
    m.graph.output.append(onnx.ValueInfoProto(name="of_function"))


def changed(m, rng):
    """A change of the whole model's own kind."""
    g = m.graph
    kind = rng.randrange(10)
    nodes = list(g.node)
    if kind == 0 and len(nodes) > 1:
        early, late = sorted(rng.sample(range(len(nodes)), 2))
        if nodes[early].input and nodes[late].output:
            nodes[early].input[rng.randrange(len(nodes[early].input))] = nodes[rng.choice([early, late])].output[0]
    elif kind == 1 and len(nodes) > 1:
        a, b = rng.sample(nodes, 2)
        what = rng.randrange(4)
        if what == 0:
            a.output[0] = b.output[0]
        elif what == 1:
            a.name = b.name
        elif what == 2 and g.initializer:
            a.output[0] = rng.choice(g.initializer).name
        elif g.input:
            g.input.append(rng.choice(g.input))
    elif kind == 2 and g.initializer:
        g.initializer.append(rng.choice(g.initializer))
    elif kind == 3 and g.initializer:
        for t in rng.sample(list(g.initializer), min(len(g.initializer), rng.choice([1, 1, 5]))):
            g.initializer.remove(t)
    elif kind == 4 and g.initializer:
        t = rng.choice(g.initializer)
        if t.dims and rng.random() < 0.6:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
        else:
            t.raw_data = t.raw_data[:rng.randrange(len(t.raw_data) + 1)] + b"\1" * rng.choice([0, 1, 8])
    elif kind == 5 and g.initializer:
        t = rng.choice(g.initializer)
        t.ClearField("raw_data")
        t.data_location = onnx.TensorProto.EXTERNAL
        for key, values in (("location", OUTSIDE), ("offset", ["0", "-1", "9" * 19, "9" * 30, "x"]), ("length", ["0", "16", "-1", "9" * 19, "4611686018427387904"])):
            if rng.random() < 0.7 or key == "location":
                entry = t.external_data.add()
                entry.key, entry.value = key, rng.choice(values)
    elif kind == 6:
        values = list(g.input) + list(g.output) + list(g.value_info)
        if values:
            shape = rng.choice(values).type.tensor_type.shape
            for d in shape.dim:
                if rng.random() < 0.5:
                    d.dim_value = rng.choice(NUMBERS)
    elif kind == 7 and nodes:
        with_attributes = [n for n in nodes if n.attribute]
        if with_attributes:
            a = rng.choice(rng.choice(with_attributes).attribute)
            a.type = rng.choice(range(15))
    elif kind == 8:
        functions(m, rng)
    else:
        rng.choice(nodes).domain = rng.choice(["", "com.microsoft", "own", "ai.onnx.ml"]) if nodes else ""


def mutant(data, rng):
    way = rng.randrange(10)
    if way < 2:
        return damaged(data, rng)
    if way < 4:
        for _ in range(rng.choice([1, 1, 2, 5])):
            data = changed_field(data, rng)
        return data
    m = onnx.load_from_string(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        try:
            (changed if rng.random() < 0.6 else mutate)(m, rng)
        except (ValueError, OverflowError, IndexError, onnx.checker.ValidationError):
            pass
    return nested(m, rng) if way == 9 and rng.random() < 0.4 else m.SerializeToString()


def judged(code, text, used, out):
    if code is None:
        return "time", f"no end after {SECONDS} s of processor time"
    if code not in (0, 2) or "panicked" in text:
        return "crash", f"exit {code}: {text.strip()[-400:]}"
    if used > MEMORY:
        return "memory", f"{used >> 20} MiB"
    if m := CONTROL.search(text):
        return "control character", repr(text[max(0, m.start() - 40):m.end() + 20])
    if code == 2 and "help:" not in text:
        return "no help", text.strip()[:400]
    if code == 2 and out.exists():
        return "left behind", out.name
    return None


def one(job):
    args, models, seed = job
    rng = random.Random(seed)
    path, verb = rng.choice(models), rng.choice(sorted(VERBS))
    data = mutant(path.read_bytes(), rng)
    with tempfile.TemporaryDirectory() as folder:
        model, out = pathlib.Path(folder, "model.onnx"), pathlib.Path(folder, "out.npz" if verb == "run" else "out.onnx")
        model.write_bytes(data)
        for beside in path.parent.iterdir():
            if beside.suffix in (".bin", ".data") and beside.stat().st_size <= BESIDE:
                shutil.copy(beside, folder)
        command = [args.tool, *map(str, VERBS[verb](model, out)), "--threads", "1"]
        code, text, seconds, used = bounded.run(command, 20 * SECONDS, errors_only=True, memory=MEMORY, busy=SECONDS)
        wrong = judged(code, text.replace(folder, ""), used, out)
    if wrong and args.keep:
        pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.keep, f"{seed}.onnx").write_bytes(data)
    return seed, f"{path.parent.name}, {verb}", *(wrong or (f"exit code {code}", "")), seconds


def attempt(job):
    try:
        return one(job)
    except Exception as e:
        return job[2], "", "the campaign itself", repr(e), 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folders", nargs="+", type=pathlib.Path)
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--cases", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--largest", type=int, default=400_000, help="most bytes of a model")
    p.add_argument("--keep", help="a folder for the models that failed")
    args = p.parse_args()
    begin = time.monotonic()
    found = sorted(f for folder in args.folders for f in folder.rglob("*.onnx"))
    models = [f for f in found if f.stat().st_size <= args.largest]
    counts, failures, slowest = collections.Counter(), 0, 0.0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        jobs = [(args, models, args.seed + k) for k in range(args.cases)]
        for seed, what, verdict, why, seconds in pool.map(attempt, jobs, chunksize=2):
            counts[f"{what.split(', ')[-1]}: {verdict}"] += 1
            slowest = max(slowest, seconds)
            if not verdict.startswith("exit code"):
                failures += 1
                print(f"{verdict}: seed {seed} ({what}): {why}", flush=True)
    print(f"{args.cases} mutants of {len(models)} models in {time.monotonic() - begin:.0f} s, the slowest in {slowest:.1f} s:")
    for verdict, n in sorted(counts.items()):
        print(f"{n:>8}  {verdict}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
