"""The layers as ONNX graphs that spell them out, as exporters write them: `python spelled.py` writes `spelled/NAME.onnx`, and
`python spelled.py --with mlc-rewrite` runs what that program makes of these files, and of the layers' own texts, in ONNX Runtime.

Masks, positions and tables are constants, named axes are `Unsqueeze`, `Transpose` and `Reshape`, activations are what frameworks decompose them
into, and recurrences are `Scan`. Every file is checked, run in ONNX Runtime, and compared with what NumPy computes (`expected.py`).
"""

import argparse
import math
import os
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from expected import LAYERS, values

OPSET = 17
GRAPHS = {}


def graph(f):
    GRAPHS[f.__name__] = f
    return f


class Graph:
    """Nodes in order: a call adds one and yields the name of its result."""

    def __init__(self, prefix=""):
        self.prefix, self.nodes, self.constants, self.count = prefix, [], [], 0

    def constant(self, array):
        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"{self.prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op, *args, outputs=1, **attributes):
        names = [a if isinstance(a, str) else self.constant(a) for a in args]
        at = f"{self.prefix}/{op}_{self.count}"
        results = [f"{at}_output_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, name=at, **attributes))
        self.count += 1
        return results[0] if outputs == 1 else results

    def model(self, name, shapes, result, shape):
        """The graph, which ends in `result`."""
        floats = lambda n, s: helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        self.nodes.append(helper.make_node("Identity", [result], ["y"], name="/output"))
        inputs = [floats(n, s) for n, s in shapes.items()]
        g = helper.make_graph(self.nodes, name, inputs, [floats("y", shape)], self.constants)
        model = helper.make_model(g, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="spelled.py")
        model.ir_version = 8
        onnx.checker.check_model(model, full_check=True)
        return model


def ints(*v):
    return np.array(v, dtype=np.int64)


def silu(g, x):
    return g("Mul", x, g("Sigmoid", x))


def gelu(g, x):
    half = g("Mul", x, g("Add", g("Erf", g("Div", x, np.float32(math.sqrt(2)))), np.float32(1)))
    return g("Mul", half, np.float32(0.5))


def turned(g, x, rank):
    return g("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


def scores(g, q, k, d, rank=4):
    """Queries and keys are scaled by the root of the root, as PyTorch writes its attention."""
    root = np.float32(math.sqrt(1 / math.sqrt(d)))
    return g("MatMul", g("Mul", q, root), g("Mul", turned(g, k, rank), root))


def scan(g, states, sequences, made, step, axis=1):
    """A `Scan` along an axis: `step(body, states, slices)` yields the next states and what is made."""
    body = Graph(f"{g.prefix}/body")
    own = [f"state_{k}" for k in range(len(states))]
    slices = [f"slice_{k}" for k in range(len(sequences))]
    new, out = step(body, own, slices)
    nodes = list(body.nodes)
    outputs = [f"next_{k}" for k in range(len(new))] + [f"made_{k}" for k in range(len(out))]
    nodes += [helper.make_node("Identity", [v], [o]) for v, o in zip(new + out, outputs)]
    info = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
    inner = helper.make_graph(nodes, "step", list(map(info, own + slices)), list(map(info, outputs)), body.constants)
    results = g(
        "Scan",
        *states,
        *sequences,
        outputs=len(outputs),
        body=inner,
        num_scan_inputs=len(sequences),
        scan_input_axes=[axis] * len(sequences),
        scan_output_axes=[axis] * len(out),
    )
    return results[len(new) :]


@graph
def mamba(g, u, z, delta, a, p, q, skip):
    dt = g("Softplus", delta)
    rate = g("Neg", g("Exp", a))

    def step(b, states, slices):
        (h,), (u, dt, p, q) = states, slices
        wide = b("Unsqueeze", dt, ints(-1))
        keep = b("Exp", b("Mul", wide, rate))
        new = b("Mul", b("Mul", wide, b("Unsqueeze", p, ints(1))), b("Unsqueeze", u, ints(-1)))
        h = b("Add", b("Mul", keep, h), new)
        y = b("ReduceSum", b("Mul", h, b("Unsqueeze", q, ints(1))), ints(-1), keepdims=0)
        return [h], [y]

    (y,) = scan(g, [np.zeros((2, 3, 4))], [u, dt, p, q], 1, step)
    return g("Mul", g("Add", y, g("Mul", u, skip)), silu(g, z))


@graph
def rwkv(g, x, mk, mv, mr, wk, wv, wr, w, u):
    last = g("Pad", g("Slice", x, ints(0), ints(-1), ints(1)), ints(0, 1, 0, 0, 0, 0))

    def mixed(m, weight):
        other = g("Mul", last, g("Sub", np.float32(1), m))
        return g("MatMul", g("Add", g("Mul", x, m), other), weight)

    k, v, r = mixed(mk, wk), mixed(mv, wv), mixed(mr, wr)
    decay = g("Exp", g("Neg", w))

    def step(b, states, slices):
        (num, den), (k, v) = states, slices
        now = b("Exp", b("Add", u, k))
        y = b("Div", b("Add", num, b("Mul", now, v)), b("Add", den, now))
        e = b("Exp", k)
        num = b("Add", b("Mul", decay, num), b("Mul", e, v))
        return [num, b("Add", b("Mul", decay, den), e)], [y]

    zero = np.zeros((2, 3))
    (y,) = scan(g, [zero, zero], [k, v], 1, step)
    return g("Mul", g("Sigmoid", r), y)


@graph
def mgu(g, x, wf, wc, uf, uc, bf, bc):
    zf, zc = g("Add", g("MatMul", x, wf), bf), g("Add", g("MatMul", x, wc), bc)
    uf, uc = g("Transpose", uf, perm=[1, 0]), g("Transpose", uc, perm=[1, 0])

    def step(b, states, slices):
        (h,), (zf, zc) = states, slices
        f = b("Sigmoid", b("Add", zf, b("MatMul", h, uf)))
        c = b("Tanh", b("Add", zc, b("MatMul", b("Mul", f, h), uc)))
        h = b("Add", b("Mul", b("Sub", np.float32(1), f), h), b("Mul", f, c))
        return [h], [b("Identity", h)]

    (y,) = scan(g, [np.zeros((2, 3))], [zf, zc], 1, step)
    return y


@graph
def s4d(g, u, dt, a, w, cr, ci, skip, o):
    step_size = g("Unsqueeze", g("Exp", dt), ints(-1))
    size = g("Exp", g("Neg", g("Mul", step_size, g("Exp", a))))
    angle = g("Mul", step_size, w)
    cos, sin = g("Cos", angle), g("Sin", angle)

    def step(b, states, slices):
        (re, im), (u,) = states, slices
        new = b("Unsqueeze", u, ints(-1))
        turned = b("Sub", b("Mul", cos, re), b("Mul", sin, im))
        other = b("Add", b("Mul", sin, re), b("Mul", cos, im))
        re, im = b("Add", b("Mul", size, turned), new), b("Mul", size, other)
        y = b("Sub", b("Mul", cr, re), b("Mul", ci, im))
        y = b("Add", b("ReduceSum", y, ints(-1), keepdims=0), b("Mul", skip, u))
        return [re, im], [y]

    zero = np.zeros((2, 3, 4))
    (y,) = scan(g, [zero, zero], [u], 1, step)
    return g("MatMul", gelu(g, y), o)


@graph
def moe(g, x, gate, up, down):
    s = g("MatMul", x, gate)
    top, chosen = g("TopK", s, ints(2), axis=-1, outputs=2)
    weight = g("Softmax", top, axis=-1)
    rows = g("Unsqueeze", g("Unsqueeze", x, ints(1)), ints(2))
    hidden = g("Relu", g("MatMul", rows, g("Gather", up, chosen, axis=0)))
    y = g("Squeeze", g("MatMul", hidden, g("Gather", down, chosen, axis=0)), ints(2))
    return g("ReduceSum", g("Mul", y, g("Unsqueeze", weight, ints(-1))), ints(1), keepdims=0)


@graph
def kan(g, x, w, v):
    far = g("Sub", g("Unsqueeze", x, ints(-1)), np.linspace(-2, 2, 4))
    bases = g("Exp", g("Neg", g("Pow", g("Div", far, np.float32(4 / 3)), np.float32(2))))
    spline = g("MatMul", g("Reshape", bases, ints(4, 12)), g("Reshape", w, ints(12, 2)))
    return g("Add", g("MatMul", silu(g, x), v), spline)


@graph
def fnet(g, x):
    angle = lambda n: np.outer(np.arange(n), np.arange(n)) * (2 * np.pi / n)
    table = lambda f, n: f(angle(n)).astype(np.float32)
    re = g("MatMul", table(np.cos, 6), g("MatMul", x, table(np.cos, 4)))
    return g("Sub", re, g("MatMul", table(np.sin, 6), g("MatMul", x, table(np.sin, 4))))


@graph
def deformable(g, x, offset, w):
    places = np.arange(6)[:, None] + np.arange(3) - 1
    p = g("Add", offset, places.astype(np.float32))
    low = g("Floor", p)
    part = g("Sub", p, low)
    first = g("Cast", low, to=TensorProto.INT64)

    def at(place, weight):
        is_in = g("And", g("GreaterOrEqual", place, ints(0)), g("Less", place, ints(6)))
        inside = g("Clip", place, np.int64(0), np.int64(5))
        rows = g("GatherND", x, g("Unsqueeze", inside, ints(-1)), batch_dims=1)
        rows = g("Where", g("Unsqueeze", is_in, ints(-1)), rows, np.float32(0))
        return g("Mul", g("Unsqueeze", weight, ints(-1)), rows)

    line = g("Add", at(first, g("Sub", np.float32(1), part)), at(g("Add", first, ints(1)), part))
    rows = g("Reshape", line, ints(2, 6, 6))
    return g("MatMul", rows, g("Reshape", w, ints(6, 4)))


def distances(s):
    return np.arange(s)[:, None] - np.arange(s)[None, :]


@graph
def window_gqa(g, q, k, v):
    keep = (distances(6) >= 0) & (distances(6) < 3)
    many = lambda x, n: g("Expand", g("Unsqueeze", x, ints(2)), ints(2, 2, 3, 6, n))
    s = g("Div", g("MatMul", q, turned(g, many(k, 4), 5)), np.float32(2))
    s = g("Where", keep, s, np.float32(-np.inf))
    return g("MatMul", g("Softmax", s, axis=-1), many(v, 5))


@graph
def alibi(g, q, k, v):
    slope = 2.0 ** (-8 * np.arange(1, 5) / 4)
    bias = np.where(distances(5) >= 0, -slope[:, None, None] * distances(5), -np.inf)
    s = g("Add", scores(g, q, k, 4), bias[None].astype(np.float32))
    return g("MatMul", g("Softmax", s, axis=-1), v)


@graph
def rope_interleaved(g, x):
    angle = np.arange(4)[:, None] * 10000.0 ** (-2 * np.arange(3) / 6)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    part = lambda k: g("Slice", x, ints(k), ints(2**62), ints(-1), ints(2))
    a, b = part(0), part(1)
    re = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
    im = g("Add", g("Mul", a, sin), g("Mul", b, cos))
    pair = g("Concat", g("Unsqueeze", re, ints(-1)), g("Unsqueeze", im, ints(-1)), axis=-1)
    return g("Reshape", pair, ints(2, 3, 4, 6))


@graph
def rope_half(g, x):
    angle = np.arange(4)[:, None] * 10000.0 ** (-2 * np.arange(3) / 6)
    angle = np.concatenate([angle, angle], -1)
    low = g("Slice", x, ints(0), ints(3), ints(-1))
    high = g("Slice", x, ints(3), ints(2**62), ints(-1))
    other = g("Concat", g("Neg", high), low, axis=-1)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return g("Add", g("Mul", x, cos), g("Mul", other, sin))


@graph
def reglu(g, x, w, v, o):
    return g("MatMul", g("Mul", g("Relu", g("MatMul", x, w)), g("MatMul", x, v)), o)


@graph
def squeeze_excite(g, x, w1, w2):
    s = g("ReduceMean", x, axes=[2, 3], keepdims=0)
    z = g("Sigmoid", g("MatMul", g("Relu", g("MatMul", s, w1)), w2))
    return g("Mul", x, g("Reshape", z, ints(2, 6, 1, 1)))


@graph
def gmlp(g, x, up, mix, bias, down):
    u, v = g("Split", gelu(g, g("MatMul", x, up)), ints(3, 3), axis=-1, outputs=2)
    c = g("Sub", v, g("ReduceMean", v, axes=[-1]))
    var = g("ReduceMean", g("Pow", c, np.float32(2)), axes=[-1])
    n = g("Div", c, g("Sqrt", g("Add", var, np.float32(1e-5))))
    gate = g("Add", g("MatMul", mix, n), g("Unsqueeze", bias, ints(-1)))
    return g("MatMul", g("Mul", u, gate), down)


@graph
def perceiver(g, l, x, wq, wk, wv, wo):
    s = g("MatMul", g("MatMul", l, wq), turned(g, g("MatMul", x, wk), 3))
    a = g("Softmax", g("Mul", s, np.float32(0.5)), axis=-1)
    return g("Add", l, g("MatMul", g("MatMul", a, g("MatMul", x, wv)), wo))


@graph
def retention(g, q, k, v):
    gamma = (1 - 2.0 ** (-5 - np.arange(3)))[:, None, None]
    decay = np.where(distances(5) >= 0, gamma ** distances(5), 0)
    s = g("Mul", g("MatMul", q, turned(g, k, 4)), decay[None].astype(np.float32))
    return g("MatMul", s, v)


@graph
def hyena(g, v, g1, g2, k1, k2):
    def long_conv(x, k):
        rows = g("Transpose", x, perm=[0, 2, 1])
        back = g("Slice", g("Transpose", k, perm=[1, 0]), ints(-1), ints(-(2**62)), ints(1), ints(-1))
        y = g("Conv", rows, g("Unsqueeze", back, ints(1)), group=3, pads=[4, 0])
        return g("Transpose", y, perm=[0, 2, 1])

    return g("Mul", g2, long_conv(g("Mul", g1, long_conv(v, k1)), k2))


@graph
def cosine_attention(g, q, k, v, tau):
    def unit(x):
        norm = g("Clip", g("ReduceL2", x, axes=[-1]), np.float32(1e-6))
        return g("Div", x, g("Expand", norm, ints(2, 2, x_rows[x], 4)))

    x_rows = {q: 3, k: 5}
    s = g("MatMul", unit(q), turned(g, unit(k), 4))
    s = g("Mul", s, g("Reshape", tau, ints(2, 1, 1)))
    return g("MatMul", g("Softmax", s, axis=-1), v)


@graph
def diff_attention(g, q1, q2, k1, k2, v, **rest):
    a, b = (g("Softmax", scores(g, q, k, 4), axis=-1) for q, k in ((q1, k1), (q2, k2)))
    part = g("Mul", g("Reshape", rest["lambda"], ints(2, 1, 1)), b)
    return g("MatMul", g("Sub", a, part), v)


@graph
def film(g, x, z, w, bias):
    p = g("Gemm", z, w, bias)
    gamma, beta = g("Split", p, ints(3, 3), axis=1, outputs=2)
    wide = lambda x: g("Unsqueeze", x, ints(2, 3))
    return g("Add", g("Mul", wide(gamma), x), wide(beta))


@graph
def weight_norm(g, x, v, g_, bias):
    norm = g("ReduceL2", v, axes=[0])
    return g("Gemm", x, g("Mul", v, g("Div", g_, norm)), bias)


@graph
def lora(g, x, w, bias, a, c):
    low = g("Mul", g("MatMul", g("MatMul", x, a), c), np.float32(8))
    return g("Add", g("Add", g("MatMul", x, w), bias), low)


def built(name):
    layer, shapes = LAYERS[name]
    g = Graph()
    names = {("g_" if (name, k) == ("weight_norm", "g") else k): k for k in shapes}
    result = GRAPHS[name](g, **names)
    y = layer(**{k: values(i, s) for i, (k, s) in enumerate(shapes.items())})
    return g.model(name, shapes, result, y.shape), y


def inputs(name):
    shapes = LAYERS[name][1]
    return {k: values(i, s).astype(np.float32) for i, (k, s) in enumerate(shapes.items())}


def apart(model, name, y):
    """How far ONNX Runtime's result lies from NumPy's, in parts of the largest element."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, inputs(name))
    assert found.shape == y.shape, (found.shape, y.shape)
    return np.abs(found - y).max() / np.abs(y).max()


def optimized(program, name, source, *options):
    """What the program makes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, f"{name}.onnx")
        subprocess.run([program, "optimize", source, *options, "-o", out, "-q"], check=True)
        model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    return model


def write(here):
    for name in sorted(GRAPHS):
        model, y = built(name)
        far = apart(model, name, y)
        print(f"{name:20} {far:.1e} apart, {len(model.graph.node)} nodes")
        assert far < 2e-5, name
        onnx.save(model, os.path.join(here, "spelled", f"{name}.onnx"))


def compare(here, program):
    for name in sorted(GRAPHS):
        _, y = built(name)
        text = os.path.join(here, f"{name}.rules")
        shapes = [f"{k}={','.join(map(str, s))}" for k, s in LAYERS[name][1].items()]
        shapes = [part for shape in shapes for part in ("--shape", shape)]
        spelled = optimized(program, name, os.path.join(here, "spelled", f"{name}.onnx"), "--rules", text)
        own = optimized(program, name, text, *shapes)
        far = [apart(model, name, y) for model in (spelled, own)]
        nodes = [len(model.graph.node) for model in (spelled, own)]
        print(f"{name:20} {far[0]:.1e} apart, {nodes[0]} nodes; the layer's text {far[1]:.1e} apart, {nodes[1]} nodes")
        assert max(far) < 2e-5, name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--with", dest="program", help="the program that optimises")
    program = parser.parse_args().program
    assert sorted(GRAPHS) == sorted(LAYERS)
    here = os.path.dirname(os.path.abspath(__file__))
    compare(here, program) if program else write(here)
