#!/usr/bin/env python3
"""Models whose steps are all of another length, as builders of language models and of speech write them: sessions of the Python package beside ONNX Runtime.

    VENV/bin/python benches/decoders.py [--threads 1] [--steps 60] [--bits 4] [--layers 6] [NAME...]

`grouped`: a decoder of `GroupQueryAttention`, norms with skips and `MatMulNBits` (`--bits 0`: weights in f32), at open batch and lengths, and with a batch of one
(`grouped-one`), where its cache is appended in place. `merged`: a decoder with and without a cache in one file, by a flag of the run. `durations`: a network whose
first part decides how long its second part's signal is. Weights are random. Each step is run here and in ONNX Runtime in turns; the medians are printed, their ratio, the
first step of each, and the largest difference in parts of the largest element. Needs the packages mlc_rewrite, numpy, onnx and onnxruntime.
"""
import argparse
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import mlc_rewrite as mlc

CONTRIB = "com.microsoft"


class Graph:
    """A graph that is written node by node; a node is named after its result."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], {}, [], []

    def const(self, name, value, dtype=np.float32):
        self.weights.setdefault(name, np.ascontiguousarray(np.asarray(value, dtype)))
        return name

    def matrix(self, name, *shape, depth=None):
        return self.const(name, self.rng.standard_normal(shape) / np.sqrt(depth or shape[0]))

    def node(self, op, inputs, name, domain="", outputs=None, **attrs):
        self.nodes.append(helper.make_node(op, inputs, outputs or [name], name=name, domain=domain, **attrs))
        return name

    def input(self, name, dtype, dims):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def output(self, name, dims, dtype=T.FLOAT):
        self.outputs.append(helper.make_tensor_value_info(name, dtype, dims))

    def model(self, opset=17):
        tensors = [numpy_helper.from_array(v, n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, tensors)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


HIDDEN, HEADS, KEYS, WIDE, INNER, WORDS, LONGEST = 576, 9, 3, 64, 1536, 8192, 2048


def grouped(args):
    g = Graph()

    def product(x, k, n, name):
        if args.bits == 0:
            return g.node("MatMul", [x, g.matrix(name + ".w", k, n)], name)
        packed = g.const(name + ".w", g.rng.integers(0, 256, (n, k // 32, 32 * args.bits // 8)), np.uint8)
        scales = g.const(name + ".s", g.rng.uniform(0.001, 0.02, n * k // 32) * 4 / np.sqrt(k))
        attrs = {"K": k, "N": n, "bits": args.bits, "block_size": 32} | ({"accuracy_level": args.level} if args.level else {})
        return g.node("MatMulNBits", [x, packed, scales], name, CONTRIB, **attrs)

    g.input("input_ids", T.INT64, ["batch_size", "sequence_length"])
    g.input("attention_mask", T.INT64, ["batch_size", "total_sequence_length"])
    g.node("Cast", ["attention_mask"], "mask", to=T.INT32)
    g.node("ReduceSum", ["mask", g.const("rows", [1], np.int64)], "counts", keepdims=1)
    g.node("Sub", ["counts", g.const("one", [1], np.int32)], "lengths")
    g.node("Shape", ["attention_mask"], "shape")
    g.node("Gather", ["shape", g.const("columns", 1, np.int64)], "total64")
    g.node("Cast", ["total64"], "total", to=T.INT32)
    angles = np.arange(LONGEST)[:, None] / 10000 ** (np.arange(WIDE // 2)[None] * 2 / WIDE)
    turns = [g.const("cos", np.cos(angles)), g.const("sin", np.sin(angles))]
    g.output("logits", ["batch_size", "sequence_length", WORDS])
    skip = g.node("Gather", [g.const("words", g.rng.standard_normal((WORDS, HIDDEN)) / 10), "input_ids"], "x")
    x = g.node("SimplifiedLayerNormalization", [skip, g.const("gain", np.ones(HIDDEN))], "n", axis=-1, epsilon=1e-5)
    for i in range(args.layers):
        qkv = [product(x, HIDDEN, n * WIDE, f"{c}{i}") for c, n in (("q", HEADS), ("k", KEYS), ("v", KEYS))]
        states = [g.input(f"past.{i}.{c}", T.FLOAT, ["batch_size", KEYS, "past_sequence_length", WIDE]) for c in ("key", "value")]
        presents = [f"present.{i}.{c}" for c in ("key", "value")]
        for p in presents:
            g.output(p, ["batch_size", KEYS, "total_sequence_length", WIDE])
        a = g.node("GroupQueryAttention", [*qkv, *states, "lengths", "total", *turns], f"a{i}", CONTRIB, [f"a{i}", *presents],
                   num_heads=HEADS, kv_num_heads=KEYS, do_rotary=1)

        def normed(y, at):
            return g.node("SkipSimplifiedLayerNormalization", [skip, y, "gain"], at, CONTRIB, [at, "", "", at + "s"], epsilon=1e-5)

        x, skip = normed(product(a, HEADS * WIDE, HIDDEN, f"o{i}"), f"n{i}"), f"n{i}s"
        gate, up = product(x, HIDDEN, INNER, f"gate{i}"), product(x, HIDDEN, INNER, f"up{i}")
        act = g.node("Mul", [gate, g.node("Sigmoid", [gate], f"sig{i}")], f"act{i}")
        down = product(g.node("Mul", [act, up], f"both{i}"), INNER, HIDDEN, f"down{i}")
        x, skip = normed(down, f"m{i}"), f"m{i}s"
    g.node("Identity", [product(x, HIDDEN, WORDS, "head")], "logits")

    def feeds(rng):
        past = [np.zeros((1, KEYS, 0, WIDE), np.float32)] * (2 * args.layers)
        length = 0
        while True:
            new = 64 if length == 0 else 1
            length += new
            own = {"input_ids": rng.integers(0, WORDS, (1, new)), "attention_mask": np.ones((1, length), np.int64)}
            states = {f"past.{i}.{c}": past[2 * i + j] for i in range(args.layers) for j, c in enumerate(("key", "value"))}
            past = (yield own, states)[1:]

    return g.model(14), feeds


def merged(args, hidden=128, heads=4, words=512):
    g, wide = Graph(), hidden // heads
    for i in range(args.layers):
        for name in "qkvo":
            g.matrix(f"{name}{i}", hidden, hidden)
        g.matrix(f"up{i}", hidden, 4 * hidden)
        g.matrix(f"down{i}", 4 * hidden, hidden)
    g.const("words", g.rng.standard_normal((words, hidden)) / 10)
    g.matrix("head", hidden, words)
    for name, value in {"zero": 0, "one": 1, "two": 2, "column": [-1, 1], "heads": [0, 0, heads, wide], "whole": [0, 0, hidden]}.items():
        g.const(name, value, np.int64)
    g.const("gain", np.ones(hidden))
    g.const("low", np.float32(-1e9))
    g.const("scale", np.float32(wide**-0.5))

    def branch(past):
        b, p = Graph(), "with_" if past else "without_"

        def node(op, inputs, name, **attrs):
            return b.node(op, inputs, p + name, **attrs)

        x, states = node("Gather", ["words", "input_ids"], "x"), []
        for i in range(args.layers):
            n = node("LayerNormalization", [x, "gain"], f"n{i}")
            split = (node("Reshape", [node("MatMul", [n, f"{c}{i}"], f"{c}p{i}"), "heads"], f"{c}r{i}") for c in "qkv")
            q, k, v = (node("Transpose", [y], f"{c}h{i}", perm=[0, 2, 1, 3]) for c, y in zip("qkv", split))
            if past:
                k, v = (node("Concat", [f"past.{i}.{c}", y], f"{c}{i}", axis=2) for c, y in (("key", k), ("value", v)))
            states += [k, v]
            scores = node("Mul", [node("MatMul", [q, node("Transpose", [k], f"kt{i}", perm=[0, 1, 3, 2])], f"s{i}"), "scale"], f"ss{i}")
            keys, rows = (node("Gather", [node("Shape", [y], f"{c}s{i}"), "two"], f"{c}n{i}") for c, y in (("k", k), ("q", q)))
            row = node("Reshape", [node("Range", [node("Sub", [keys, rows], f"first{i}"), keys, "one"], f"row{i}"), "column"], f"rows{i}")
            seen = node("LessOrEqual", [node("Range", ["zero", keys, "one"], f"columns{i}"), row], f"seen{i}")
            shares = node("Softmax", [node("Where", [seen, scores, "low"], f"masked{i}")], f"shares{i}", axis=-1)
            y = node("Transpose", [node("MatMul", [shares, v], f"a{i}")], f"at{i}", perm=[0, 2, 1, 3])
            x = node("Add", [x, node("MatMul", [node("Reshape", [y, "whole"], f"ar{i}"), f"o{i}"], f"op{i}")], f"x{i}")
            x = node("Add", [x, node("MatMul", [node("Relu", [node("MatMul", [x, f"up{i}"], f"u{i}")], f"ur{i}"), f"down{i}"], f"d{i}")], f"y{i}")
        for out in [node("MatMul", [x, "head"], "logits"), *states]:
            b.output(out, None)
        return helper.make_graph(b.nodes, p + "past", [], b.outputs)

    g.input("input_ids", T.INT64, ["batch_size", "sequence_length"])
    g.output("logits", ["batch_size", "sequence_length", words])
    names = [(i, c) for i in range(args.layers) for c in ("key", "value")]
    for i, c in names:
        g.input(f"past.{i}.{c}", T.FLOAT, ["batch_size", heads, "past_sequence_length", wide])
        g.output(f"present.{i}.{c}", ["batch_size", heads, None, wide])
    g.input("use_cache_branch", T.BOOL, [1])
    g.node("If", ["use_cache_branch"], "if", outputs=[o.name for o in g.outputs], then_branch=branch(True), else_branch=branch(False))

    def feeds(rng):
        past = None
        while True:
            own = {"input_ids": rng.integers(0, words, (1, 16 if past is None else 1)), "use_cache_branch": np.array([past is not None])}
            given = past or [np.zeros((1, heads, 1, wide), np.float32)] * len(names)
            past = (yield own, {f"past.{i}.{c}": t for (i, c), t in zip(names, given)})[1:]

    return g.model(), feeds


def durations(args, channels=96):
    g = Graph()
    g.input("ids", T.INT64, ["batch", "phonemes"])
    g.output("audio", ["batch", 1, "time"])
    for name, value in {"zero": 0, "one": 1, "two": 2, "inner": [1, 2], "last": [-1], "first": [0], "axis": [1], "front": [0, 1, 0, 0, 0, 0]}.items():
        g.const(name, value, np.int64)
    x = g.node("Gather", [g.const("table", g.rng.standard_normal((64, channels)) / 2), "ids"], "embedded")
    x = g.node("Transpose", [x], "columns", perm=[0, 2, 1])
    for i in range(4):
        x = g.node("Relu", [g.node("Conv", [x, g.matrix(f"w{i}", channels, channels, 5, depth=5 * channels)], f"c{i}", pads=[2, 2])], f"r{i}")
    d = g.node("Conv", [x, g.const("wd", g.rng.standard_normal((1, channels, 1)) * 0.3), g.const("bd", [1.2])], "logs")
    d = g.node("Ceil", [g.node("Exp", [d], "spans")], "steps")
    longest = g.node("ReduceMax", [g.node("ReduceSum", [d, "inner"], "sums", keepdims=0)], "longest", keepdims=0)
    times = g.node("Range", ["zero", g.node("Cast", [longest], "length", to=T.INT64), "one"], "times")
    ends = g.node("Transpose", [g.node("CumSum", [d, "two"], "ends")], "ends_by_row", perm=[0, 2, 1])
    before = g.node("Cast", [g.node("Less", [g.node("Cast", [times], "at", to=T.FLOAT), ends], "is_before")], "before", to=T.FLOAT)
    shifted = g.node("Slice", [g.node("Pad", [before, "front"], "padded"), "first", "last", "axis"], "shifted")
    y = g.node("MatMul", [x, g.node("Sub", [before, shifted], "path")], "spread")
    for i in range(10):
        c = g.node("Conv", [y, g.matrix(f"v{i}", channels, channels, 7, depth=7 * channels)], f"vc{i}", pads=[3, 3])
        y = g.node("Add", [y, g.node("LeakyRelu", [c], f"vl{i}", alpha=0.1)], f"va{i}")
    g.node("Tanh", [g.node("Conv", [y, g.matrix("wo", 1, channels, 7, depth=7 * channels)], "wave", pads=[3, 3])], "audio")

    def feeds(rng):
        while True:
            yield {"ids": rng.integers(0, 64, (1, int(rng.integers(10, 80))))}, {}

    return g.model(15), feeds


def measure(name, model, feeds, args, bind=None):
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(model)
        file.flush()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = args.threads, 3
        theirs = ort.InferenceSession(file.name, options)
        began = time.perf_counter()
        ours = mlc.Session(file.name, threads=args.threads, bind=bind)
        ready = time.perf_counter() - began
        outputs = [o.name for o in theirs.get_outputs()]
        stream = ours.bind() if ours.appended else None
        pairs = dict(stream.feed_back_appended()) if stream else {}
        steps, took, gap = feeds(np.random.default_rng(0)), {"ours": [], "theirs": []}, 0.0
        own, states = next(steps)
        for step in range(args.steps):
            began = time.perf_counter()
            right = theirs.run(None, own | states)
            took["theirs"].append(time.perf_counter() - began)
            given = own | (states if not stream or step == 0 else {})
            began = time.perf_counter()
            found = stream(**given) if stream else dict(zip(outputs, ours.run(None, given)))
            took["ours"].append(time.perf_counter() - began)
            for n, r in zip(outputs, right):
                if n not in pairs:
                    gap = max(gap, float(np.abs(found[n] - r).max() / max(np.abs(r).max(), 1e-30)))
            own, states = steps.send(right)
        first = {who: t[0] * 1e3 for who, t in took.items()}
        usual = {who: float(np.median(t[2:])) * 1e3 for who, t in took.items()}
        print(f"| {name} | {usual['ours']:.2f} | {usual['theirs']:.2f} | {usual['ours'] / usual['theirs']:.2f} | {first['ours']:.0f} | {first['theirs']:.0f} | "
              f"{ready:.1f} | {gap:.0e} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", default=["grouped", "grouped-one", "merged", "durations"])
    for name, value in {"threads": 1, "steps": 60, "bits": 4, "level": 0, "layers": 6}.items():
        p.add_argument("--" + name, type=int, default=value)
    args = p.parse_args()
    print("| model | a step, ms | ONNX Runtime, ms | ratio | first step, ms | ONNX Runtime, ms | ready in, s | gap |\n|---|--:|--:|--:|--:|--:|--:|--:|")
    makers = {"grouped": grouped, "grouped-one": grouped, "merged": merged, "durations": durations}
    for name in args.names:
        model, feeds = makers[name](args)
        measure(name, model, feeds, args, {"batch_size": 1} if name == "grouped-one" else None)


main()
