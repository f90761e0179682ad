#!/usr/bin/env python3
"""Damaged files of every kind that the tool reads, and what becomes of the files that it would have written.

    python fuzz/file_mutate.py --tool target/release/mlc-rewrite --cases 600 [--seed 0] [--jobs 2] [--keep FOLDER]

A case damages one input of one command: a model, its data file, an archive of inputs (the archive, or the header of an array in it,
with extents that are huge, negative, or not those of the bytes), an e-graph, a profile, or a rule text. Bytes are flipped,
replaced, taken away, repeated, or the file is cut. The outputs of the command are there already. The tool must end with exit code
0, 1 or 2, without a panic or a signal, within 10 s and 1 GiB; exit code 2 needs a message with a help and without control
characters. After any other exit code than 0, every output must be as it was before, and no other file may be left; after 0, the output must
be complete. Prints each failure with the seed of its case and a summary; exits 1 if there was one. Needs: numpy, onnx.
"""
import argparse
import collections
import concurrent.futures
import io
import json
import pathlib
import random
import re
import struct
import sys
import tempfile
import time
import zipfile

import numpy as np
import onnx

import bounded
from text_mutate import CONTROL, ROOT, small_model

SECONDS, MEMORY = 10, 1 << 30
OLD = b"the file that was there before"
SHAPES = ["(2, 4)", "(4, 2)", "(8,)", "()", "(0, 4)", "(-2, -4)", "(2, 4, 1)", "(4611686018427387904, 4)", "(18446744073709551617,)", "(2, 4", "2, 4",
          "(" + "1, " * 40 + ")", "(2.0, 4)", "('a',)", "(1000000, 1000000)"]
DESCRIPTIONS = ["<f4", ">f4", "<f8", "<f2", "|b1", "<i8", "|O", "<U8", "<c8", "<f99", "", "f4\\x00", "<M8[ns]", "[('a', '<f4')]"]
EGRAPH = {"root_eclasses": ["c0"], "nodes": {
    "n0": {"op": "add", "children": ["n1", "n2"], "eclass": "c0", "cost": 1.0}, "n1": {"op": "x", "children": [], "eclass": "c1", "cost": 1.0},
    "n2": {"op": "y", "children": [], "eclass": "c2", "cost": 2.0}, "n3": {"op": "mul", "children": ["n1", "n0"], "eclass": "c0", "cost": 3.0}}}
NUMBERS = ["1e999", "-1", "null", "nan", '"x"', "[]", "{}", "-0.0", "1e308", "99999999999999999999", "true", "[" * 5000, '"n9"', '"c0"', '"\\ud800"']


def array_file(rng, shape="(2, 4)", description="<f4", data=None):
    """The bytes of an array; its header may lie about them."""
    header = f"{{'descr': '{description}', 'fortran_order': {rng.choice(['False'] * 6 + ['True', '0', 'maybe'])}, 'shape': {shape}, }}"
    header = header.encode("latin1", "replace") + b" " * rng.choice([0, 1, 17]) + b"\n"
    body = np.ones(8, np.float32).tobytes() if data is None else data
    length = rng.choice([len(header)] * 8 + [0, 1, 65535])
    version = rng.choice([(1, 0)] * 6 + [(2, 0), (3, 0), (9, 0)])
    packed = struct.pack("<H", length) if version[0] == 1 else struct.pack("<I", rng.choice([length, length, 2**32 - 1]))
    return b"\x93NUMPY" + bytes(version) + packed + header + body


def archive(rng):
    """Inputs of the small model: an archive of which at most one thing is unusual."""
    kind = rng.randrange(9)
    name, times = "x.npy", 1
    method = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    body = array_file(random.Random(0))
    if kind == 0:
        body = array_file(rng, shape=rng.choice(SHAPES))
    elif kind == 1:
        body = array_file(rng, description=rng.choice(DESCRIPTIONS))
    elif kind == 2:
        body = array_file(rng, data=b"\1" * rng.choice([0, 31, 33, 1 << 16]))
    elif kind == 3:
        name = rng.choice(["x", "../x.npy", "/x.npy", "X.npy", "x.npy/", "\x1b[31m.npy", "é.npy", ".npy", "n" * 3000 + ".npy"])
    elif kind == 4:
        times = rng.choice([2, 3000])
    elif kind == 5:
        body = array_file(rng, shape="(50000000,)", data=bytes(rng.choice([1 << 20, 1 << 26])))
        method = zipfile.ZIP_DEFLATED
    elif kind == 6:
        method = rng.choice([zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    elif kind == 7:
        return rng.choice([b"", b"PK", b"PK\5\6" + bytes(18), array_file(random.Random(0))])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for k in range(times):
            z.writestr(name if k == 0 else f"{k}.npy", body)
    return damaged(out.getvalue(), rng) if kind == 8 else out.getvalue()


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if not data:
            break
        at, length = rng.randrange(len(data)), rng.choice([1, 4, 64, 1000])
        kind = rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + length] = rng.randbytes(length)
        elif kind == 2:
            del data[at:at + length]
        elif kind == 3:
            data[at:at] = data[at:at + length]
        elif kind == 4:
            del data[at:]
        else:
            data[at:at + 8] = rng.choice([b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f", b"\x80" * 8])
    return bytes(data)


def changed_json(rng):
    text = json.dumps(EGRAPH, indent=1)
    kind = rng.randrange(4)
    if kind == 0:
        values = list(re.finditer(r'(?<=: )[^\n{\[]+?(?=,?\n)', text))
        m = rng.choice(values)
        return (text[:m.start()] + rng.choice(NUMBERS) + text[m.end():]).encode()
    if kind == 1:
        names = list(re.finditer(r'"(\w+)"', text))
        a, b = rng.choice(names), rng.choice(names)
        return (text[:a.start()] + b.group() + text[a.end():]).encode()
    if kind == 2:
        lines = text.splitlines()
        del lines[rng.randrange(len(lines))]
        return "\n".join(lines).encode()
    return damaged(text.encode(), rng)


def prepared(folder, rng):
    """The command of a case, its damaged file and its outputs."""
    model, data, inputs = folder / "model.onnx", folder / "model.onnx.data", folder / "inputs.npz"
    small_model(model)
    np.savez(inputs, x=np.ones((2, 4), np.float32))
    out, report, arrays = folder / "out.onnx", folder / "out.json", folder / "out.npz"
    optimize = ["optimize", model, "-o", out, "--json", report]
    run = ["run", model, "--inputs", inputs, "--outputs", arrays, "--json", report]
    kind = rng.choice(["model", "model", "model run", "data", "inputs", "inputs", "inputs check", "egraph", "profile", "rules", "rules run", "second model"])
    if kind in ("model", "model run"):
        model.write_bytes(damaged(model.read_bytes(), rng))
        return kind, (optimize, [out, report]) if kind == "model" else (run, [arrays, report])
    if kind == "data":
        m = onnx.load(model)
        for t in m.graph.initializer:
            t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t), t.name))
        onnx.save(m, model, save_as_external_data=True, location=data.name, size_threshold=0)
        if rng.random() < 0.5:
            data.write_bytes(damaged(data.read_bytes(), rng))
        else:
            m = onnx.load(model, load_external_data=False)
            e = rng.choice(rng.choice(m.graph.initializer).external_data)
            e.value = rng.choice(["", "-1", "9" * 19, "9" * 30, "../model.onnx", "/etc/passwd", "none", "1", "x\x1b[31m", ".", "model.onnx"])
            onnx.save(m, model)
        return kind, (optimize, [out, report])
    if kind in ("inputs", "inputs check"):
        inputs.write_bytes(archive(rng))
        return kind, (run, [arrays, report]) if kind == "inputs" else ([*optimize, "--inputs", inputs], [out, report])
    if kind == "egraph":
        path = folder / "egraph.json"
        path.write_bytes(changed_json(rng))
        return kind, (["extract", path, "--json", report], [report])
    if kind == "profile":
        path = folder / "profile.toml"
        path.write_bytes(damaged((ROOT / "examples/server.toml").read_bytes(), rng))
        return kind, ([*optimize, "--profile", path], [out, report])
    if kind in ("rules", "rules run"):
        path = folder / "own.rules"
        path.write_bytes(damaged((ROOT / "examples/my_layer.rules").read_bytes(), rng))
        verb, outputs = (optimize, [out, report]) if kind == "rules" else (["check", path, "--json", report], [report])
        return kind, ([*verb, "--rules", path] if kind == "rules" else verb, outputs)
    other = folder / "other.onnx"
    other.write_bytes(damaged(model.read_bytes(), rng))
    return kind, (["diff", model, other, "--json", report], [report])


def whole(path):
    """Whether an output can be read back."""
    data = path.read_bytes()
    if path.suffix == ".json":
        json.loads(data)
    elif path.suffix == ".onnx":
        onnx.load_from_string(data)
    else:
        with np.load(io.BytesIO(data)) as z:
            [z[k] for k in z.files]


def judged(code, text, seconds, used, outputs, left):
    if code is None:
        return "slow", f"over {seconds:.0f} s"
    if code not in (0, 1, 2) or "panicked" in text:
        return "crash", f"exit {code}: {text.strip()[-300:]}"
    if used > MEMORY:
        return "large", f"{used >> 20} MiB"
    if m := CONTROL.search(text):
        return "control character", repr(text[max(0, m.start() - 40):m.end() + 20])
    if code == 2 and ("error" not in text or "help:" not in text):
        return "no help", text.strip()[:300]
    if left:
        return "left behind", " ".join(left)
    for path in outputs:
        if code == 2 and path.read_bytes() != OLD:
            return "output changed", path.name
        if code in (0, 1) and path.read_bytes() != OLD:
            try:
                whole(path)
            except Exception as e:
                return "output broken", f"{path.name}: {e!r}"[:200]
    return None


def one(job):
    args, seed = job
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        kind, (verb, outputs) = prepared(folder, rng)
        for path in outputs:
            path.write_bytes(OLD)
        before = {p.name for p in folder.iterdir()}
        code, text, seconds, used = bounded.run([args.tool, *map(str, verb)], args.seconds, memory=8 * MEMORY)
        left = sorted({p.name for p in folder.iterdir()} - before)
        wrong = judged(code, text.replace(str(folder), ""), seconds, used, outputs, left)
        if wrong and args.keep:
            kept = pathlib.Path(args.keep, str(seed))
            kept.mkdir(parents=True, exist_ok=True)
            for p in folder.iterdir():
                (kept / p.name).write_bytes(p.read_bytes())
        return (seed, kind, *(wrong or (f"exit code {code}", "")))


def attempt(job):
    try:
        return one(job)
    except Exception as e:
        return job[1], "", "the campaign itself", repr(e)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--cases", type=int, default=600)
    p.add_argument("--seconds", type=float, default=SECONDS, help="most seconds of a run")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--keep", help="a folder for the files that failed")
    args = p.parse_args()
    begin = time.monotonic()
    counts, failures = collections.Counter(), 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        jobs = [(args, args.seed + k) for k in range(args.cases)]
        for seed, kind, verdict, what in pool.map(attempt, jobs, chunksize=5):
            counts[f"{kind}: {verdict}"] += 1
            if not verdict.startswith("exit code"):
                failures += 1
                print(f"{verdict}: seed {seed} ({kind}): {what}", flush=True)
    print(f"{args.cases} files in {time.monotonic() - begin:.0f} s:")
    for verdict, n in sorted(counts.items()):
        print(f"{n:>8}  {verdict}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
