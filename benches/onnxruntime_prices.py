"""What ONNX Runtime takes for its kernels: prints the `takes` clauses of `rules/targets/{standard,onnxruntime}.rules`.

Every kernel is timed as a graph of one node, copied a few times, by the runtime's own profiler with all of its optimisations, on one
thread, over extents of networks; the fastest run of a node counts, less what the profiler itself takes (the time of a reshape), and
no less than what a node takes in a chain. Its seconds are fitted as a sum of what it does
(`docs/cost.md`, features of work), no coefficient negative, the relative error least. Figures are of the machine that
runs this; what matters is how they stand to each other. Needs numpy, onnx and onnxruntime.
"""

import collections
import functools
import itertools
import json
import math
import os
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

COPIES = 4
RUNS = 30
# Seconds of a node that does next to nothing, by the clock around a chain of a hundred of them (0.14 to 0.19 us by operator).
LAUNCH = 0.2e-6
# Uses of an operand's element that keep a processor's units busy, as in extract/src/cost/work.rs.
BUSY = 16.0
# Elements of a vector, as there.
LANES = 16.0

rng = np.random.default_rng(0)


class Case:
    """A node: its operands by shape (constant or not), attributes, and what it does."""

    def __init__(self, op, operands, out, work, domain="", constants=(), ints=None, floats=None, bools=(), opset=18, **attributes):
        self.op, self.operands, self.out, self.domain = op, operands, out, domain
        self.floats, self.bools, self.opset = floats or {}, set(bools), opset
        self.constants, self.ints, self.attributes = set(constants), ints or {}, attributes
        size = lambda shape: 4.0 * float(np.prod(shape))
        self.work = {
            "launches": 1.0,
            "read": sum(size(s) for i, s in enumerate(operands) if i not in self.constants),
            "fixed": sum(size(s) for i, s in enumerate(operands) if i in self.constants),
            "written": size(out),
            **work,
        }

    def model(self):
        """A model of COPIES such nodes, each after a product with a number, and its inputs."""
        inputs, feeds, initializers, names = [], {}, [], []
        for i, shape in enumerate(self.operands):
            array = (rng.standard_normal(shape) * 0.1).astype(np.float32)
            if i in self.constants:
                # Every copy has its own, as the weights of a network are seldom in the nearest cache.
                for k in range(COPIES):
                    initializers.append(numpy_helper.from_array(array + np.float32(k), f"c{i}_{k}"))
                names.append(f"c{i}_")
            else:
                inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape))
                feeds[f"x{i}"] = array
                names.append(f"b{i}_" if i in self.bools else f"x{i}")
        for at, values in sorted(self.ints.items()):
            initializers.append(numpy_helper.from_array(np.array(values, np.int64), f"i{at}"))
            names.insert(at, f"i{at}")
        for at, values in sorted(self.floats.items()):
            initializers.append(numpy_helper.from_array(np.array(values, np.float32), f"v{at}"))
            names.insert(at, f"v{at}" if np.ndim(values) == 0 or len(values) else "")
        moving = next((n for n in names if n.startswith("x")), None)
        # Copies differ in a factor before them, so that they are not taken for one.
        nodes, outputs = [], []
        results = self.attributes.get("results", 1)
        attributes = {k: v for k, v in self.attributes.items() if k != "results"}
        for k in range(COPIES):
            initializers.append(numpy_helper.from_array(np.float32(1 + k / 8), f"f{k}"))
            if moving:
                nodes.append(helper.make_node("Mul", [moving, f"f{k}"], [f"m{k}"]))
            for i in sorted(self.bools):
                nodes.append(helper.make_node("Greater", [f"x{i}", f"g{k}"], [f"b{i}_{k}"]))
            initializers.append(numpy_helper.from_array(np.float32(k / 100), f"g{k}"))
            outs = [f"y{k}_{r}" for r in range(results)]
            own = [f"{n}{k}" if n.startswith(("c", "b")) else f"m{k}" if n == moving else n for n in names]
            nodes.append(helper.make_node(self.op, own, outs, domain=self.domain, name=f"timed{k}", **attributes))
            outputs += [helper.make_empty_tensor_value_info(o) for o in outs]
        graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
        sets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString(), feeds

    def seconds(self):
        model, feeds = self.model()
        events = profiled(model, feeds)
        times = collections.defaultdict(list)
        for e in events:
            if e.get("cat") == "Node" and e["name"].endswith("_kernel_time") and e["args"]["op_name"] not in ("Mul", "Greater", "ReorderInput", "ReorderOutput"):
                times[e["name"]].append(e["dur"])
        if self.op == "Mul":
            for e in events:
                if e.get("cat") == "Node" and "timed" in e["name"] and e["name"].endswith("_kernel_time"):
                    times[e["name"]].append(e["dur"])
        # A mean of the faster half: the clock ticks in microseconds.
        fast = [np.mean(sorted(t)[: max(1, len(t) // 2)]) for t in times.values()]
        return max(min(fast) * 1e-6 - profiling(), 0.0) + LAUNCH


def profiled(model, feeds):
    """What the runtime's profiler says of so many runs."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = os.path.join(folder, "p")
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(RUNS):
            session.run(None, feeds)
        return json.load(open(session.end_profiling()))


@functools.cache
def profiling():
    """Seconds that the profiler adds to every node: those of a reshape, which does nothing."""
    chain = 50
    nodes = [helper.make_node("Reshape", [f"y{k}" if k else "x", f"s{k % 2}"], [f"y{k + 1}"]) for k in range(chain)]
    shapes = [numpy_helper.from_array(np.array(v, np.int64), f"s{k}") for k, v in enumerate(([2, 8], [4, 4]))]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [value("x")], [value(f"y{k + 1}") for k in range(chain)], shapes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    events = profiled(model.SerializeToString(), {"x": np.zeros((4, 4), np.float32)})
    times = sorted(e["dur"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time"))
    return float(np.mean(times[: len(times) // 2])) * 1e-6


def product(m, k, n, batch=1):
    terms = float(batch * m * k * n)
    uses = min(terms / (batch * m * k), terms / (k * n if batch == 1 else batch * k * n))
    thin, idle = min(BUSY / max(uses, 1.0), 1.0), math.ceil(n / LANES) * LANES / n - 1.0
    return {"products": 2 * terms, "thin": 2 * terms * thin, "idle": 2 * terms * idle, "parts": float(batch)}


def products():
    for m, (k, n) in itertools.product((1, 8, 32, 64, 128, 196), ((64, 256), (256, 256), (512, 512), (768, 768), (768, 3072), (3072, 768))):
        yield Case("MatMul", [[m, k], [k, n]], [m, n], product(m, k, n), constants=[1])
    for k, n in ((480, 120), (120, 480), (960, 240), (240, 960), (512, 1000), (2048, 1000)):
        yield Case("MatMul", [[1, k], [k, n]], [1, n], product(1, k, n), constants=[1])
    # A convolution of single elements, as a product with its weight on the left.
    wide = itertools.product(((16, 32), (24, 96), (32, 192), (96, 24), (64, 256)), (784, 3136, 12544))
    deep = itertools.product(((64, 64), (80, 184), (160, 960), (960, 160), (256, 512)), (49, 196, 784))
    for (o, c), s in itertools.chain(wide, deep):
        yield Case("MatMul", [[o, c], [1, c, s]], [1, o, s], product(o, c, s), constants=[0])
    for h, m, k, n in itertools.product((32, 256, 512), (1, 4), (16, 64), (1, 16)):
        yield Case("MatMul", [[h, m, k], [h, k, n]], [h, m, n], product(m, k, n, h))
    for h, s, d in itertools.product((4, 12), (16, 64, 128, 197), (32, 64)):
        yield Case("MatMul", [[h, s, d], [h, d, s]], [h, s, s], product(s, d, s, h))
        yield Case("MatMul", [[h, s, s], [h, s, d]], [h, s, d], product(s, s, d, h))


def gemms():
    for m, (k, n) in itertools.product((1, 8, 32, 64, 128, 196), ((64, 256), (256, 256), (512, 512), (768, 768), (768, 3072), (3072, 768))):
        yield Case("Gemm", [[m, k], [k, n], [n]], [m, n], product(m, k, n), constants=[1, 2])


def convolutions():
    for c, o, side, r, stride, group in (
        (3, 32, 224, 3, 2, 1), (3, 64, 224, 7, 2, 1), (3, 64, 112, 3, 1, 1), (64, 64, 56, 1, 1, 1), (64, 256, 56, 1, 1, 1),
        (256, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (128, 128, 28, 3, 1, 1), (128, 128, 56, 3, 2, 1), (256, 512, 28, 1, 2, 1),
        (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1), (512, 2048, 7, 1, 1, 1), (16, 64, 55, 1, 1, 1), (16, 64, 55, 3, 1, 1),
        (32, 32, 112, 3, 1, 32), (96, 96, 56, 3, 1, 96), (144, 144, 56, 3, 2, 144), (384, 384, 14, 3, 1, 384), (960, 960, 7, 3, 1, 960),
        (96, 96, 28, 5, 1, 96), (24, 144, 56, 1, 1, 1), (144, 24, 56, 1, 1, 1), (160, 960, 7, 1, 1, 1), (128, 128, 28, 3, 1, 32),
        (192, 192, 17, 7, 1, 1), (48, 48, 28, 5, 1, 48), (32, 16, 112, 1, 1, 1),
        (480, 128, 1, 1, 1, 1), (128, 480, 1, 1, 1, 1), (960, 240, 1, 1, 1, 1), (240, 960, 1, 1, 1, 1), (64, 64, 28, 1, 1, 1),
        (184, 80, 14, 1, 1, 1), (960, 160, 7, 1, 1, 1), (512, 256, 14, 1, 1, 1), (512, 256, 28, 1, 1, 1),
        (96, 24, 56, 1, 1, 1), (144, 32, 28, 1, 1, 1), (192, 32, 28, 1, 1, 1), (192, 64, 28, 1, 1, 1), (32, 192, 28, 1, 1, 1),
    ):
        out = (side + 2 * (r // 2) - r) // stride + 1
        terms = float(o * out * out * (c // group) * r * r)
        uses = min(terms / (c * side * side), terms / (o * (c // group) * r * r))
        work = {"products": 2 * terms, "thin": 2 * terms * min(BUSY / max(uses, 1.0), 1.0), "windowed": 2 * terms if r > 1 else 0.0}
        yield Case(
            "Conv", [[1, c, side, side], [o, c // group, r, r], [o]], [1, o, out, out], work, constants=[1, 2],
            kernel_shape=[r, r], strides=[stride, stride], pads=[r // 2] * 4, group=group,
        )


ROWS = ((1, 512), (16, 768), (64, 512), (128, 768), (197, 768), (128, 3072), (64, 1408), (512, 1024))


def unary(op, domain="", **attributes):
    return lambda: (Case(op, [[1, s, d]], [1, s, d], {}, domain, **attributes) for s, d in ROWS)


def binary(op):
    def cases():
        for s, d in ROWS:
            yield Case(op, [[1, s, d], [1, s, d]], [1, s, d], {})
            yield Case(op, [[1, s, d], [d]], [1, s, d], {}, constants=[1])

    return cases


def rows(op, extra, domain="", operands=1, **attributes):
    def cases():
        for s, d in ROWS:
            shapes = [[1, s, d]] * operands + [[d]] * extra
            yield Case(op, shapes, [1, s, d], {}, domain, constants=range(operands, operands + extra), **attributes)

    return cases


def softmaxes():
    for h, s in itertools.product((4, 12), (16, 64, 128, 197)):
        yield Case("Softmax", [[h, s, s]], [h, s, s], {}, axis=-1)


IMAGES = ((64, 56), (32, 112), (128, 28), (256, 14), (512, 7), (16, 20))


def softmaxes_across():
    for c, side in IMAGES:
        yield Case("Softmax", [[1, c, side, side]], [1, c, side, side], {"moved": float(c * side * side)}, axis=1)


def slopes():
    for c, side in IMAGES:
        yield Case("PRelu", [[1, c, side, side], [c, 1, 1]], [1, c, side, side], {}, constants=[1])


def choices():
    for s, d in ROWS:
        yield Case("Where", [[1, s, d], [1, s, d], [1, s, d]], [1, s, d], {}, bools=[0])
        yield Case("Where", [[1, s, d], [1, s, d], []], [1, s, d], {}, bools=[0], constants=[2])


def comparisons():
    for s, d in ROWS:
        for op in ("Less", "Equal", "LessOrEqual"):
            yield Case(op, [[1, s, d], [1, s, d]], [1, s, d], {"written": float(s * d)})


def logic():
    for s, d in ROWS:
        for op in ("And", "Or"):
            yield Case(op, [[1, s, d], [1, s, d]], [1, s, d], {"read": 2.0 * s * d, "written": float(s * d)}, bools=[0, 1])


def expansions():
    for c, side in IMAGES:
        yield Case("Expand", [[1, c, 1, 1]], [1, c, side, side], {"rows": float(c)}, ints={1: [1, c, side, side]})
        yield Case("Expand", [[1, c, side, 1, side]], [1, c, side, 2, side], {"rows": 2.0 * c * side}, ints={1: [1, c, side, 2, side]})
        if side < 100:
            yield Case("Expand", [[c, side, 1, side, 1]], [c, side, 2, side, 2], {"rows": 2.0 * c * side * side}, ints={1: [c, side, 2, side, 2]})


def tiles():
    for c, side in IMAGES:
        yield Case("Tile", [[1, c, side, side]], [1, c, 2 * side, 2 * side], {"rows": 4.0 * c * side}, ints={1: [1, 1, 2, 2]})
        yield Case("Tile", [[1, c, 1, 1]], [1, c, side, side], {"rows": float(c * side * side)}, ints={1: [1, 1, side, side]})


def enlargements():
    for c, side in IMAGES:
        yield Case(
            "Resize", [[1, c, side, side]], [1, c, 2 * side, 2 * side], {}, floats={1: [], 2: [1, 1, 2, 2]}, mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )


def places():
    for s, d in ROWS:
        yield Case("ArgMax", [[1, s, d]], [1, s], {"written": 8.0 * s}, axis=-1, keepdims=0)
        yield Case("ArgMax", [[1, s, d]], [1, d], {"written": 8.0 * d, "moved": float(s * d)}, axis=1, keepdims=0)


def reductions_of(op):
    def cases():
        for s, d in ROWS:
            for at, out, moved in ((-1, [1, s, 1], 0.0), (1, [1, 1, d], float(s * d))):
                axes = {"axes": [at], "keepdims": 1}
                yield Case(op, [[1, s, d]], out, {"moved": moved}, opset=17, **axes)

    return cases


def global_pools():
    for c, side in IMAGES:
        flops = {"flops": float(c * side * side)}
        yield Case("GlobalAveragePool", [[1, c, side, side]], [1, c, 1, 1], flops)
        yield Case("GlobalMaxPool", [[1, c, side, side]], [1, c, 1, 1], flops)


def channel_norms():
    for c, side in IMAGES:
        yield Case("BatchNormalization", [[1, c, side, side]] + [[c]] * 4, [1, c, side, side], {}, constants=[1, 2, 3, 4])


def instance_norms():
    for c, side in IMAGES:
        yield Case("InstanceNormalization", [[1, c, side, side]] + [[c]] * 2, [1, c, side, side], {}, constants=[1, 2])


def running_sums():
    for s, d in ROWS:
        for options in ({}, {"exclusive": 1}, {"reverse": 1}):
            yield Case("CumSum", [[1, s, d]], [1, s, d], {}, ints={1: [2]}, **options)


def steps_of_channels():
    for c, side in IMAGES:
        if c % 4 == 0:
            yield Case("DepthToSpace", [[1, c, side, side]], [1, c // 4, 2 * side, 2 * side], {"moved": float(c * side * side)}, blocksize=2)


def transposes():
    for s, h, d in itertools.product((16, 64, 128, 197), (4, 12), (32, 64)):
        for perm in ((0, 2, 1, 3), (0, 2, 3, 1)):
            shape = [1, s, h, d]
            yield Case("Transpose", [shape], [shape[p] for p in perm], {"moved": float(s * h * d)}, perm=list(perm))


def reductions():
    for s, d in ROWS:
        for op in ("ReduceMean", "ReduceMax"):
            yield Case(op, [[1, s, d]], [1, s, 1], {}, opset=17, axes=[-1], keepdims=1)
            yield Case(op, [[1, s, d]], [1, 1, d], {"moved": float(s * d)}, opset=17, axes=[1], keepdims=1)


def joins():
    for s, d in ROWS:
        yield Case("Concat", [[1, s, d], [1, s, d]], [1, s, 2 * d], {}, axis=-1)
        yield Case("Concat", [[1, s, d], [1, s, d]], [1, 2 * s, d], {}, axis=1)


def cuts():
    for s, d in ROWS:
        yield Case("Slice", [[1, s, d]], [1, s, d // 2], {}, ints={1: [0], 2: [d // 2], 3: [2]})


def parts():
    for s, d in ROWS:
        yield Case("Split", [[1, s, d]], [1, s, d], {}, axis=2, results=2, num_outputs=2)


def pools():
    for c, side, r, stride in ((64, 112, 3, 2), (64, 55, 3, 2), (128, 28, 3, 2), (256, 14, 3, 1), (64, 128, 2, 2)):
        out = (side - r) // stride + 1
        yield Case("MaxPool", [[1, c, side, side]], [1, c, out, out], {"flops": float(c * out * out * r * r)}, kernel_shape=[r, r], strides=[stride, stride])


def attentions():
    for b, s, d, h in ((1, 128, 768, 12), (1, 128, 384, 12), (1, 64, 512, 8), (1, 32, 512, 8), (1, 197, 768, 12), (1, 16, 256, 4)):
        e = d // h
        inner = product(s, e, s, b * h)
        twice = {k: 2 * v for k, v in inner.items()}
        mask = [b, h, s, s]
        case = Case("MultiHeadAttention", [[b, s, d]] * 3, [b, s, d], twice, "com.microsoft", num_heads=h)
        case.work["slow"] = float(b * h * s * s)
        yield case
        outer = product(b * s, d, 3 * d)
        both = {k: twice[k] + outer[k] for k in twice}
        case = Case("Attention", [[b, s, d], [d, 3 * d], [3 * d]], [b, s, d], both, "com.microsoft", constants=[1, 2], num_heads=h)
        case.work["slow"] = float(b * h * s * s)
        yield case


# Kernel, its cases, and the features that its seconds are a sum of.
KERNELS = [
    ("MatMul", products, ["launches", "products", "thin", "idle", "parts", "read", "fixed", "written"]),
    ("Gemm", gemms, ["launches", "products", "thin", "idle", "read", "fixed", "written"]),
    ("Conv", convolutions, ["launches", "products", "thin", "windowed", "read", "fixed", "written"]),
    ("Pool", pools, ["launches", "flops", "read", "written"]),
    ("Add", binary("Add"), ["launches", "read", "written"]),
    ("Div", binary("Div"), ["launches", "read", "written"]),
    ("Sum", binary("Sum"), ["launches", "read", "written"]),
    ("Pow", lambda: (Case("Pow", [[1, s, d], []], [1, s, d], {}, constants=[1]) for s, d in ROWS), ["launches", "written"]),
    ("Max", binary("Max"), ["launches", "read", "written"]),
    ("PRelu", slopes, ["launches", "written"]),
    ("Where", choices, ["launches", "written"]),
    ("Less", comparisons, ["launches", "read", "written"]),
    ("And", logic, ["launches", "read", "written"]),
    ("Not", lambda: (Case("Not", [[1, s, d]], [1, s, d], {"read": float(s * d), "written": float(s * d)}, bools=[0]) for s, d in ROWS), ["launches", "written"]),
    ("Cast", lambda: (Case("Cast", [[1, s, d]], [1, s, d], {}, to=TensorProto.INT32) for s, d in ROWS), ["launches", "written"]),
    ("Clip", lambda: (Case("Clip", [[1, s, d]], [1, s, d], {}, floats={1: 0.0, 2: 6.0}) for s, d in ROWS), ["launches", "written"]),
    ("Relu", unary("Relu"), ["launches", "written"]),
    ("Sqrt", unary("Sqrt"), ["launches", "written"]),
    ("Exp", unary("Exp"), ["launches", "written"]),
    ("Erf", unary("Erf"), ["launches", "written"]),
    ("Tanh", unary("Tanh"), ["launches", "written"]),
    ("Sigmoid", unary("Sigmoid"), ["launches", "written"]),
    ("Neg", unary("Neg"), ["launches", "written"]),
    ("Abs", unary("Abs"), ["launches", "written"]),
    ("Floor", unary("Floor"), ["launches", "written"]),
    ("Round", unary("Round"), ["launches", "written"]),
    ("Sign", unary("Sign"), ["launches", "written"]),
    ("Log", unary("Log"), ["launches", "written"]),
    ("Sin", unary("Sin"), ["launches", "written"]),
    ("Reciprocal", unary("Reciprocal"), ["launches", "written"]),
    ("LeakyRelu", unary("LeakyRelu"), ["launches", "written"]),
    ("HardSigmoid", unary("HardSigmoid"), ["launches", "written"]),
    ("Elu", unary("Elu"), ["launches", "written"]),
    ("Selu", unary("Selu"), ["launches", "written"]),
    ("Celu", unary("Celu"), ["launches", "written"]),
    ("Softplus", unary("Softplus"), ["launches", "written"]),
    ("Softsign", unary("Softsign"), ["launches", "written"]),
    ("ThresholdedRelu", unary("ThresholdedRelu"), ["launches", "written"]),
    ("Shrink", unary("Shrink"), ["launches", "written"]),
    ("Gelu", unary("Gelu", "com.microsoft"), ["launches", "written"]),
    ("FastGelu", unary("FastGelu", "com.microsoft"), ["launches", "written"]),
    ("QuickGelu", unary("QuickGelu", "com.microsoft", alpha=1.0), ["launches", "written"]),
    ("BiasGelu", rows("BiasGelu", 1, "com.microsoft"), ["launches", "written"]),
    ("LayerNormalization", rows("LayerNormalization", 2), ["launches", "written"]),
    ("SimplifiedLayerNormalization", rows("SimplifiedLayerNormalization", 1), ["launches", "written"]),
    ("SkipLayerNormalization", rows("SkipLayerNormalization", 2, "com.microsoft", 2), ["launches", "written"]),
    ("SkipSimplifiedLayerNormalization", rows("SkipSimplifiedLayerNormalization", 1, "com.microsoft", 2), ["launches", "written"]),
    ("Softmax", softmaxes, ["launches", "written"]),
    ("Transpose", transposes, ["launches", "moved", "read"]),
    ("Reduce", reductions, ["launches", "moved", "read"]),
    ("ReduceProd", reductions_of("ReduceProd"), ["launches", "moved", "read"]),
    ("ReduceL1", reductions_of("ReduceL1"), ["launches", "moved", "read"]),
    ("ReduceL2", reductions_of("ReduceL2"), ["launches", "moved", "read"]),
    ("ReduceSumSquare", reductions_of("ReduceSumSquare"), ["launches", "moved", "read"]),
    ("ReduceLogSumExp", reductions_of("ReduceLogSumExp"), ["launches", "moved", "read"]),
    ("ArgMax", places, ["launches", "moved", "read"]),
    ("Softmax across", softmaxes_across, ["launches", "written", "moved"]),
    ("GlobalPool", global_pools, ["launches", "read"]),
    ("BatchNormalization", channel_norms, ["launches", "written"]),
    ("InstanceNormalization", instance_norms, ["launches", "written"]),
    ("Expand", expansions, ["launches", "rows", "written"]),
    ("Tile", tiles, ["launches", "rows", "written"]),
    ("Resize", enlargements, ["launches", "written"]),
    ("CumSum", running_sums, ["launches", "written"]),
    ("DepthToSpace", steps_of_channels, ["launches", "written"]),
    ("Concat", joins, ["launches", "read", "written"]),
    ("Slice", cuts, ["launches", "written"]),
    ("Split", parts, ["launches", "read", "written"]),
    ("Attention", attentions, ["launches", "products", "slow", "fixed", "written"]),
]


def fitted(rows, seconds, features):
    """Coefficients of least relative error, none negative: coordinate descent on the normal equations."""
    a = np.array(rows) / np.array(seconds)[:, None]
    scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
    a = a / scale
    gram, right = a.T @ a, a.sum(axis=0)
    x = np.zeros(len(scale))
    most = np.where(np.array(features) == "launches", LAUNCH * scale, np.inf)
    for _ in range(20000):
        for j in range(len(x)):
            if gram[j, j] > 0:
                x[j] = min(max(0.0, x[j] + (right[j] - gram[j] @ x) / gram[j, j]), most[j])
    return x / scale


def report(kernels, seconds, wanted):
    """Times the cases of the wanted kernels, all if none is named, and prints what was fitted."""
    for name, cases, features in kernels:
        if wanted and name not in wanted:
            continue
        rows, times = [], []
        for case in cases():
            times.append(seconds(case))
            rows.append([case.work.get(f, 0.0) for f in features])
        found = fitted(rows, times, features)
        error = np.median(np.abs(np.array(rows) @ found / np.array(times) - 1))
        if os.environ.get("VERBOSE"):
            for row, time in zip(rows, times):
                print("   ", [f"{v:.3g}" for v in row], f"{1e6 * time:.2f} us, fit {1e6 * float(np.dot(row, found)):.2f}")
        takes = ", ".join(f"{f} = {c:.2g}" for f, c in zip(features, found) if c > 0)
        print(f"{name:34} takes {takes}  // {100 * error:.0f} %", flush=True)


def main():
    print(f"// ONNX Runtime {ort.__version__}, one thread; median relative error of the fit.")
    report(KERNELS, Case.seconds, set(sys.argv[1:]))


if __name__ == "__main__":
    main()
