#!/usr/bin/env python3
"""Mutated texts, by structure and by bytes, through `mlc-rewrite check`, `fmt` and `optimize --rules`.

    python fuzz/text_mutate.py --tool target/release/mlc-rewrite --cases 3000 [--time 600] [--seed 0] [--jobs 2] [--keep FOLDER]

A case is one to four items of the texts in rules/ and examples/, under names of their own, with one to four changes: words
exchanged, names, axes, types, numbers and signs replaced, parts nested, clauses and items taken away or repeated, extents
made huge, definitions that contain themselves; or bytes damaged. One case in twenty is a profile (examples/server.toml)
instead. `fmt` reads every text; of the others, three in four go through `check`, one through `optimize --rules` (or
`--profile`) of a small model. The tool must end with exit code 0, 1 or 2, without a panic or a signal, within 10 s and
1 GiB; every error and warning must have a help, mistakes in a text a place, and nothing a control character. What `fmt` prints
must be its own canonical form. Prints each failure with the seed of its case and a summary; exits 1 if there was one.
Needs: onnx (for the small model).
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import bounded

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS, MEMORY = 10, 1 << 30
ITEM = re.compile(r"^(?:op|def|rule|fuse|extern|onnx|target) (\w+)", re.MULTILINE)
TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|\.\.|<=>|=>|->|[<>=!]=|\w+(?:\.\w+)?|\s+|.', re.DOTALL)
NUMBERS = ["0", "1", "-1", "2", "64", "1048576", "4294967296", "9223372036854775807", "99999999999999999999", "1e308", "1e999",
           "0.5", "nan", "inf", "-0.0"]
TYPES = ["F", "I", "N", "B", "T", "F1", "f16", "bf16", "f32", "f64", "i8", "i64", "u64", "bool", "X", "f33", "float"]
KINDS = ["int", "ints", "float", "floats", "bool", "string", "dtype", "axis(n)", "axes(s)", "perm(s)", "ints(s)", "shape(s)"]
SIGNS = ["+", "-", "*", "/", "%", "^", "@", "==", "!=", "<", "<=", ">", ">=", "and", "or", "=>", "<=>", "=", ",", ";", "..", "|",
         "(", ")", "[", "]", "->", ":", ".", "else", "if", "not"]
WORDS = ["op", "def", "rule", "fuse", "extern", "onnx", "target", "where", "let", "if", "when", "given", "error", "check", "picks",
         "never", "each", "sum", "max", "pointwise", "const", "within", "normal", "numbered", "split", "concat", "reshape", "lowest"]
WILD = ["\x1b[31m", "\x00", "\u202e", "é", "\ufeff", "\t", "\r", "n" * 3000, "a#b", "\"", "'", "\\", "`", "💥"]
CALLS = ["range(1048576)", "fill(1048576, 1)", "reshape(x, shape=[1048576, 1048576])", "broadcast(x, map=[0], shape=[4294967296])",
         "transpose(x, perm=[1, 0])", "product(|s|)", "conv(x, w, stride=[0], low=[0], high=[0], dilation=[0])", "x[x[0]]",
         "(sum(n) x)", "x @ x", "split(x, axis=-1, parts=64)", "concat(x, x, axis=0)"]


def items():
    """The items of all shipped texts, by file."""
    found = []
    for path in sorted([*ROOT.glob("rules/*/*.rules"), *ROOT.glob("examples/*.rules")]):
        text = path.read_text()
        starts = [m.start() for m in ITEM.finditer(text)]
        for a, b in zip(starts, starts[1:] + [len(text)]):
            item = re.sub(r"(?m)^(///?.*)?\n", "", text[a:b])
            found.append(item if item.endswith("\n") else item + "\n")
    return found


ITEMS = items()


def source(rng):
    """A few items, under names that the shipped texts do not have."""
    chosen = [rng.choice(ITEMS) for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4]))]
    own = {ITEM.match(i).group(1) for i in chosen if not i.startswith("onnx")}
    text = "\n".join(chosen)
    return re.sub(r"\b(" + "|".join(map(re.escape, sorted(own) or ["\0"])) + r")\b(?!\")", r"\1_own", text)


def places(tokens, fits):
    return [i for i, t in enumerate(tokens) if fits(t)]


def is_name(t):
    return t[0].isalpha() or t[0] == "_"


def mutate(text, rng):
    """The text with one change."""
    t = TOKEN.findall(text)
    names = places(t, is_name)
    numbers = places(t, lambda w: w[0].isdigit())
    solid = places(t, lambda w: not w.isspace())
    lines = text.splitlines(keepends=True)
    if not solid:
        return text + rng.choice(WORDS)
    kind = rng.randrange(22)
    if kind == 0:
        a, b = rng.choice(solid), rng.choice(solid)
        t[a], t[b] = t[b], t[a]
    elif kind == 1:
        del t[rng.choice(solid)]
    elif kind == 2:
        i = rng.choice(solid)
        t[i:i] = [t[i], " "]
    elif kind == 3 and names:
        t[rng.choice(names)] = t[rng.choice(names)]
    elif kind == 4 and names:
        t[rng.choice(names)] = rng.choice(WORDS)
    elif kind == 5 and names:
        t[rng.choice(names)] = rng.choice(TYPES)
    elif kind == 6:
        kinds = places(t, lambda w: w in ("int", "ints", "float", "floats", "bool", "string", "dtype", "axis", "axes", "perm", "shape"))
        t[rng.choice(kinds or solid)] = rng.choice(KINDS)
    elif kind == 7:
        t[rng.choice(numbers or solid)] = rng.choice(NUMBERS)
    elif kind == 8:
        signs = places(t, lambda w: w in SIGNS)
        t[rng.choice(signs or solid)] = rng.choice(SIGNS)
    elif kind == 9 and names:
        i = rng.choice(names)
        n = rng.choice([3, 30, 63, 64, 65, 3000])
        t[i] = "(" * n + t[i] + ")" * n
    elif kind == 10 and names:
        i = rng.choice(names)
        t[i] = rng.choice(["-", "not ", "sum(n) ", "exp(", "2 * "]) * rng.choice([2, 40, 100, 300, 3000]) + t[i]
    elif kind == 11 and names:
        i = rng.choice(names)
        t[i] = f" {rng.choice(['+', '-', '*', '/', '@', '^', '%', '==', 'and', 'or'])} ".join([t[i]] * rng.choice([5, 50, 150, 3000]))
    elif kind == 12 and len(lines) > 1:
        del lines[rng.randrange(len(lines))]
        return "".join(lines)
    elif kind == 13:
        i = rng.randrange(len(lines))
        lines[i:i] = [lines[i]] * rng.choice([1, 1, 2, 100])
        return "".join(lines)
    elif kind == 14:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return "".join(lines)
    elif kind == 15:
        own = [m.group(1) for m in ITEM.finditer(text)]
        if own and names:
            t[rng.choice(names)] = f"{rng.choice(own)}({', '.join(rng.choices(['x', 'y', '1', 'n'], k=rng.randint(0, 3)))})"
    elif kind == 16 and names:
        t[rng.choice(names)] = rng.choice(CALLS)
    elif kind == 17:
        brackets = places(t, lambda w: w == "[")
        if brackets:
            i = rng.choice(brackets)
            t[i] = "[" + ", ".join(rng.choice(["1", "n", "..s", "1048576", "4294967296", "a", "2 * n"]) for _ in range(rng.choice([1, 2, 40]))) + ", "
    elif kind == 18:
        t[rng.choice(solid)] = rng.choice(WILD)
    elif kind == 19:
        other = TOKEN.findall(rng.choice(ITEMS))
        a = rng.randrange(len(other))
        i = rng.choice(solid)
        t[i:i + rng.randint(0, 5)] = other[a:a + rng.randint(1, 12)]
    elif kind == 20:
        parts = [m.start() for m in ITEM.finditer(text)]
        a = rng.choice(parts or [0])
        return text + "\n" + text[a:] * rng.choice([1, 3, 50])
    elif kind == 21:
        return text[:rng.randrange(len(text))]
    return "".join(t)


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at:at + rng.randint(1, 16)]
        else:
            data[at:at] = data[at:at + rng.randint(1, 16)] * rng.choice([1, 1, 20])
    return bytes(data)


def changed_figures(text, rng):
    """A profile with one change."""
    lines = text.splitlines()
    i = rng.randrange(len(lines))
    kind = rng.randrange(6)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(i, lines[rng.randrange(len(lines))])
    elif kind == 2:
        lines[i] = re.sub(r"= .*", "= " + rng.choice(NUMBERS + ['"x"', "[]", "true", "{}"]), lines[i])
    elif kind == 3:
        lines[i] = re.sub(r"^\w+", rng.choice(["quick", "slow", "launch", "bytes", "bandwith", "name"]), lines[i])
    elif kind == 4:
        lines[i] = re.sub(r"\[(.*?)\]", rng.choice(["[operations.f33]", "[[operations]]", "[memory]", "[a.b.c]"]), lines[i])
    else:
        lines[i] += rng.choice(WILD + ["[" * 3000, "a." * 3000])
    return "\n".join(lines) + "\n"


def tool(args, *words):
    return bounded.run([args.tool, *map(str, words)], args.seconds, memory=8 * MEMORY)


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
HEAD = re.compile(r"^(?:error: )?(error|warning)(\[\w+\])?: ", re.MULTILINE)


def judged(code, text, seconds, used, printed):
    """What is wrong with a run, if something is."""
    if code is None:
        return "slow", f"over {seconds:.0f} s"
    if code not in (0, 1, 2) or "panicked" in text:
        return "crash", f"exit {code}: {text.strip()[-300:]}"
    if used > MEMORY:
        return "large", f"{used >> 20} MiB"
    if not printed and (m := CONTROL.search(text)):
        return "control character", repr(text[max(0, m.start() - 40):m.end() + 20])
    if printed and code == 0:
        return None
    heads = list(HEAD.finditer(text))
    if code == 2 and not heads:
        return "no message", text.strip()[:200]
    for m, after in zip(heads, heads[1:] + [None]):
        told = text[m.start():after.start() if after else len(text)]
        if "help:" not in told and "more mistakes" not in told:
            return "no help", told.strip()[:300]
        if m.group(2) and "--> " not in told:
            return "no place", told.strip()[:300]
    return None


def attempt(job):
    args, seed = job
    try:
        return one(args, seed)
    except Exception as e:
        return seed, "the campaign itself", repr(e), ""


def one(args, seed):
    rng = random.Random(seed)
    profile = rng.random() < 0.05
    text = (ROOT / "examples/server.toml").read_text() if profile else source(rng)
    if rng.random() < 0.15:
        data = damaged(text.encode(), rng)
    else:
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
            text = changed_figures(text, rng) if profile else mutate(text, rng)
        data = text.encode(errors="surrogatepass")[:1 << 20]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "own.toml" if profile else "own.rules")
        path.write_bytes(data)
        out = pathlib.Path(folder, "out.onnx")
        optimize = ["optimize", args.model, "-o", out, "--threads", "1", "--profile" if profile else "--rules", path]
        runs = [] if profile else [(["fmt", "--stdout", path], True)]
        verb = optimize if profile or rng.random() < 0.25 else ["check", path, "--threads", "1"]
        runs.append((verb, False))
        verdict = None
        for verb, printed in runs:
            code, said, seconds, used = tool(args, *verb)
            wrong = judged(code, said, seconds, used, printed)
            if wrong is None and printed and code == 0:
                pathlib.Path(folder, "again.rules").write_text(said)
                again = tool(args, "fmt", "--check", pathlib.Path(folder, "again.rules"))
                if again[0] != 0:
                    wrong = "not canonical", again[1].strip()[:300]
            if wrong:
                if args.keep:
                    pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
                    pathlib.Path(args.keep, f"{seed}{path.suffix}").write_bytes(data)
                return seed, *wrong, verb[0]
            verdict = f"{verb[0]}: exit code {code}"
    return seed, verdict, "", ""


def small_model(path):
    """A product, a bias, an activation and a softmax."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"], axis=-1),
    ]
    tensor = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    constant = lambda name, shape, n: helper.make_tensor(name, TensorProto.FLOAT, shape, [0.25 * (i % 7 - 3) for i in range(n)])
    graph = helper.make_graph(nodes, "small", [tensor("x", [2, 4])], [tensor("y", [2, 3])],
                              [constant("w", [4, 3], 12), constant("b", [3], 3)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--tool", default="target/release/mlc-rewrite")
    p.add_argument("--cases", type=int, default=3000)
    p.add_argument("--time", type=float, default=1e9, help="most seconds of the campaign")
    p.add_argument("--seconds", type=float, default=SECONDS, help="most seconds of a run")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--keep", help="a folder for the texts that failed")
    args = p.parse_args()
    begin = time.monotonic()
    counts = collections.Counter()
    failures = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        args.model = os.path.join(folder, "small.onnx")
        small_model(args.model)
        for start in range(0, args.cases, 100):
            if time.monotonic() - begin > args.time:
                break
            chunk = [(args, args.seed + k) for k in range(start, min(start + 100, args.cases))]
            for seed, verdict, what, verb in pool.map(attempt, chunk, chunksize=5):
                counts[f"{verb}: {verdict}" if verb else verdict] += 1
                if what or "exit code" not in verdict:
                    failures += 1
                    print(f"{verdict}: seed {seed} ({verb}): {what}", flush=True)
    print(f"{sum(counts.values())} texts in {time.monotonic() - begin:.0f} s:")
    for verdict, n in counts.most_common():
        print(f"{n:>8}  {verdict}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
