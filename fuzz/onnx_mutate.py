#!/usr/bin/env python3
"""Mutated ONNX models, by structure and by bytes, through `mlc-rewrite optimize`.

    python fuzz/onnx_mutate.py --tool target/release/mlc-rewrite --cases 10000 [--time 600] [--seed 0] [--jobs 2] [--keep FOLDER]
                               [--target standard,onnxruntime] [--verb optimize|run] [--widen]

A case is a graph of one to three operators of onnx_sweep.py with one to four changes: inputs exchanged, types, extents,
attributes, constants, versions and names changed, nodes taken away or repeated, or bytes of the file damaged; or, with `--widen`, with
inputs that are repeated along some axes first, and no other change. The tool may
refuse it (exit 2, with a message that has a help and no control characters) or optimise it for one of the targets; then the
file must pass `onnx.checker`, load in ONNX Runtime and yield the values of the source, as far as ONNX Runtime runs the source; or
the tool runs it itself on the same inputs. Where ONNX Runtime differs from the reference evaluator of onnx, and the tool does not, it
is not held against the tool. A panic, a signal, another exit code, more than 10 s or 1 GiB is a failure. Prints each failure with
the seed of its case and a summary; exits 1 if there was one. Needs: numpy, onnx, onnxruntime.
"""
import argparse
import collections
import concurrent.futures
import pathlib
import random
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import bounded
from onnx_sweep import CASES, Case, differ, model, reference, run

SECONDS, MEMORY = 10, 1 << 30
GOOD = ("refused", "the same", "runtime", "not run as it was", "no source")
NUMBERS = [0, 1, -1, 2, 3, 7, 64, -2**31, 2**31, 2**53 + 1, -2**63, 2**63 - 1]
TYPES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 0, 99]
WILD = ["", "x\x1b[31m\n\u202e", "n" * 5000, "a/b c", "é"]


def source(rng):
    opset = rng.randint(7, 26)
    cases = []
    for i in range(rng.randint(1, 3)):
        fitting = [c for op in sorted(CASES) for c in CASES[op] if c[1] <= opset <= c[2]]
        name, _, _, make = rng.choice(fitting)
        k = Case(f"{name}.{i}", opset, rng.choice([4, 4, 1, 0]))
        make(k)
        cases.append(k)
    return cases, model(cases, opset)


def mutate(m, rng):
    g = m.graph
    values = [i.name for i in g.input] + [t.name for t in g.initializer] + [o for n in g.node for o in n.output]
    node = rng.choice(g.node) if g.node else None
    kind = rng.randrange(17)
    if kind == 0 and node is not None and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(values + [""])
    elif kind == 1 and node is not None and len(node.input) > 1:
        node.input[0], node.input[-1] = node.input[-1], node.input[0]
    elif kind == 2 and g.input:
        rng.choice(g.input).type.tensor_type.elem_type = rng.choice(TYPES)
    elif kind == 3 and g.input:
        shape = rng.choice(g.input).type.tensor_type.shape
        if shape.dim:
            d = rng.choice(shape.dim)
            if rng.random() < 0.3:
                d.dim_param = rng.choice(["n", "m"] + WILD)
            else:
                d.dim_value = rng.choice(NUMBERS)
    elif kind == 4 and g.input:
        shape = rng.choice(g.input).type.tensor_type.shape
        if shape.dim and rng.random() < 0.5:
            del shape.dim[0]
        else:
            shape.dim.add().dim_value = rng.choice([0, 1, 2, 5])
    elif kind == 5 and node is not None and node.attribute:
        a = rng.choice(node.attribute)
        if a.type == onnx.AttributeProto.INT:
            a.i = rng.choice(NUMBERS)
        elif a.type == onnx.AttributeProto.FLOAT:
            a.f = rng.choice([0.0, -1.0, float("inf"), float("nan"), 1e30])
        elif a.ints:
            a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
        else:
            a.s = rng.choice(WILD).encode()
    elif kind == 6 and node is not None and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 7 and node is not None:
        node.attribute.append(helper.make_attribute(rng.choice(["axis", "axes", "to", "alpha", "keepdims", "pads", "group"]),
                                                    rng.choice([0, 1, -1, [0], [1, 1], 0.5, "SAME_UPPER"])))
    elif kind == 8 and g.initializer:
        t = rng.choice(g.initializer)
        a = numpy_helper.to_array(t).copy()
        if a.size and a.dtype.kind in "iu":
            a.flat[rng.randrange(a.size)] = rng.choice([v for v in NUMBERS if np.iinfo(a.dtype).min <= v <= np.iinfo(a.dtype).max])
        elif a.size and a.dtype.kind == "f":
            a.flat[rng.randrange(a.size)] = rng.choice([0, -0.0, np.inf, np.nan, 1e30, -1])
        t.CopyFrom(numpy_helper.from_array(a, t.name))
    elif kind == 9 and g.initializer:
        t = rng.choice(g.initializer)
        if rng.random() < 0.5:
            t.dims.append(rng.choice([0, 1, 2, -1]))
        else:
            t.data_type = rng.choice(TYPES)
    elif kind == 10:
        m.opset_import[0].version = rng.choice([rng.randint(1, 30), 0, -1, 999, 2**62])
    elif kind == 11 and node is not None:
        g.node.remove(node)
    elif kind == 12 and node is not None:
        g.node.add().CopyFrom(node)
    elif kind == 13 and node is not None:
        node.op_type = rng.choice([n[0].split("#")[0] for op in sorted(CASES) for n in CASES[op]] + WILD)
    elif kind == 14 and g.output:
        t = rng.choice(g.output).type.tensor_type
        if rng.random() < 0.5:
            t.elem_type = rng.choice(TYPES)
        elif t.shape.dim:
            t.shape.dim[0].dim_value = rng.choice(NUMBERS)
    elif kind == 15:
        where = rng.choice(["node", "output", "input", "graph"])
        name = rng.choice(WILD)
        if where == "node" and node is not None:
            node.name = name
        elif where == "output" and g.output:
            rng.choice(g.output).name = name
        elif where == "input" and node is not None and node.input:
            node.input[0] = name
        else:
            g.name = name
    elif kind == 16 and node is not None:
        # The result feeds another operator.
        op = rng.choice(["Relu", "Neg", "Exp", "Identity", "Abs", "Softmax", "ReduceSum", "Squeeze", "Size", "Not"])
        g.node.append(helper.make_node(op, [rng.choice(values)], ["extra"]))
        g.output.append(onnx.ValueInfoProto(name="extra"))


def widen(m, rng):
    """Inputs become repetitions of smaller ones, along some axes or along all that are in front."""
    g = m.graph
    for x in list(g.input):
        dims = [d.dim_value for d in x.type.tensor_type.shape.dim]
        if not dims or rng.random() < 0.4:
            continue
        own = [1 if rng.random() < 0.5 else d for d in dims][rng.choice([0, 0, rng.randint(0, len(dims))]):]
        shape = numpy_helper.from_array(np.array(dims, np.int64), x.name + "/shape")
        g.initializer.append(shape)
        small = helper.make_tensor_value_info(x.name + "/small", x.type.tensor_type.elem_type, own)
        g.input.remove(x)
        g.input.append(small)
        g.node.insert(0, helper.make_node("Expand", [small.name, shape.name], [x.name]))


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at:at + rng.randint(1, 16)]
        else:
            data[at:at] = data[at:at + rng.randint(1, 16)]
        if not data:
            break
    return bytes(data)


def feeds_of(m):
    """Seeded inputs of the types and extents that the mutated model declares."""
    rng = np.random.default_rng(1)
    feeds = {}
    constants = {t.name for t in m.graph.initializer}
    for i in m.graph.input:
        if i.name in constants:
            continue
        t = i.type.tensor_type
        shape = [d.dim_value if d.WhichOneof("value") == "dim_value" else 2 for d in t.shape.dim]
        if any(d < 0 for d in shape) or np.prod([max(d, 1) for d in shape], dtype=float) > 1e6:
            return None
        dtype = helper.tensor_dtype_to_np_dtype(t.elem_type)
        if dtype.kind == "f":
            feeds[i.name] = rng.uniform(-2, 2, shape).astype(dtype)
        else:
            feeds[i.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def attempt(job):
    args, seed = job
    try:
        return one(args, seed)
    except Exception as e:
        return seed, "the campaign itself", repr(e)


def one(args, seed):
    rng = random.Random(seed)
    try:
        _, m = source(rng)
    except Exception:
        return seed, "no source", ""
    if args.widen:
        widen(m, rng)
        data = m.SerializeToString()
    elif rng.random() < 0.8:
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
            try:
                mutate(m, rng)
            except (ValueError, OverflowError):
                pass
        data = m.SerializeToString()
    else:
        data = damaged(m.SerializeToString(), rng)
    with tempfile.TemporaryDirectory() as folder:
        before, after = pathlib.Path(folder, "before.onnx"), pathlib.Path(folder, "after.onnx")
        before.write_bytes(data)
        if args.verb == "run":
            after, inputs = pathlib.Path(folder, "after.npz"), pathlib.Path(folder, "inputs.npz")
            feeds = fed(data)
            if feeds is None:
                return seed, "no source", ""
            np.savez(inputs, **feeds)
            command = [args.tool, "run", before, "--inputs", inputs, "--outputs", after]
        else:
            targets = args.target.split(",")
            command = [args.tool, "optimize", before, "-o", after, "--target", targets[seed % len(targets)]]
        command = [*command, "--threads", "1", *args.option]
        code, text, seconds, used = bounded.run(command, args.seconds, errors_only=True)
        verdict, what = judge(code, text, seconds, used, before, after, data)
        if args.keep and verdict not in GOOD:
            pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
            pathlib.Path(args.keep, f"{seed}.onnx").write_bytes(data)
        return seed, verdict, what


def fed(data):
    """Inputs of the model, if it is one and their names are text."""
    try:
        feeds = feeds_of(onnx.load_from_string(data))
        return feeds if feeds is not None and all(isinstance(n, str) for n in feeds) else None
    except Exception:
        return None


def judge(code, text, seconds, used, before, after, data):
    if used > MEMORY:
        return "memory", f"{used >> 20} MiB, exit {code}: {text[-200:]}"
    if code is None:
        return "time", f"no end after {seconds:.0f} s"
    if any(ord(c) < 32 and c not in "\n\t" or "\u202a" <= c <= "\u202e" for c in text) or len(text) > 20_000:
        return "message", repr(text[:300])
    if code == 2:
        return ("refused", "") if "help:" in text else ("no help", text.strip()[:300])
    if code != 0:
        return "crash", f"exit {code}: {text.strip()[-300:]}"
    try:
        m = onnx.load_from_string(data)
        onnx.checker.check_model(m, full_check=True)
        valid = True
    except Exception:
        valid = False
    try:
        if after.suffix == ".onnx":
            onnx.checker.check_model(str(after), full_check=True)
    except Exception as e:
        # Names and attributes that the checker minds in the source are kept.
        return ("invalid", str(e).strip().splitlines()[0][:300]) if valid else ("the same", "as invalid as it was")
    try:
        feeds = feeds_of(m)
        expected = run(before, feeds) if feeds is not None else None
    except Exception:
        expected = None
    if expected is None:
        return "not run as it was", ""
    try:
        if after.suffix == ".onnx":
            found = run(after, feeds)
        else:
            with np.load(after) as arrays:
                found = [arrays[o.name] for o in m.graph.output]
    except Exception as e:
        return "invalid", f"runtime: {str(e).splitlines()[0][:300]}"
    own = ""
    for i, (a, b) in enumerate(zip(expected, found)):
        if why := differ(a, b):
            meant = reference(before, feeds, i)
            if meant is None or differ(meant, b):
                return "wrong", f"output {i}: {why}"
            own = f"output {i}: {why}"
    if own:
        return "runtime", own
    return "the same", ""


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--target", default="standard,onnxruntime", help="one of these, by turns")
    p.add_argument("--widen", action="store_true", help="repeat inputs in place of other changes")
    p.add_argument("--verb", default="optimize", choices=["optimize", "run"])
    p.add_argument("--cases", type=int, default=1000)
    p.add_argument("--time", type=float, default=1e9, help="most seconds of the campaign")
    p.add_argument("--seconds", type=float, default=SECONDS, help="most seconds of a case")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--keep", help="a folder for the models that failed")
    p.add_argument("--option", action="append", default=[], help="passed on to the tool")
    args = p.parse_args()
    begin = time.monotonic()
    counts = collections.Counter()
    failures = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for start in range(0, args.cases, 100):
            if time.monotonic() - begin > args.time:
                break
            chunk = [(args, args.seed + k) for k in range(start, min(start + 100, args.cases))]
            for seed, verdict, what in pool.map(attempt, chunk, chunksize=5):
                counts[verdict] += 1
                if verdict not in GOOD:
                    failures.append((verdict, what, seed))
                    print(f"{verdict}: seed {seed}: {what}", flush=True)
    print(f"{sum(counts.values())} models in {time.monotonic() - begin:.0f} s:")
    for verdict, n in counts.most_common():
        print(f"{n:>8}  {verdict}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
