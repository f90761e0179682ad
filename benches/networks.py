"""Writes networks with random weights as ONNX files: `networks.py FOLDER [NAME]...`, each as FOLDER/NAME/model.onnx, for `peers.py`.

The weights are scaled so that activations keep their size, and always the same. Networks are written node by node, as exporters
write them. Needs a Python with the packages `numpy` and `onnx`. Without names it writes all; `--list` prints them.
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NETWORKS = {}


def network(build):
    NETWORKS[build.__name__] = build
    return build


class Net:
    """A graph that grows node by node. Methods take and return names of values."""

    def __init__(self):
        self.nodes, self.weights, self.inputs, self.count = [], [], [], 0
        self.random = np.random.default_rng(0)

    def name(self):
        self.count += 1
        return f"t{self.count}"

    def input(self, name, shape, kind=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def const(self, array):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *values):
        return self.const(np.array(values if len(values) > 1 else values[0], np.float32))

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weight(self, *shape, scale):
        return self.const((self.random.standard_normal(shape) * scale).astype(np.float32))

    def between(self, low, high, *shape):
        return self.const(self.random.uniform(low, high, shape).astype(np.float32))

    def outs(self, kind, count, *args, **attributes):
        names = [self.name() for _ in range(count)]
        self.nodes.append(helper.make_node(kind, list(args), names, **attributes))
        return names

    def op(self, kind, *args, **attributes):
        return self.outs(kind, 1, *args, **attributes)[0]

    def linear(self, x, inputs, outputs, bias=True):
        y = self.op("MatMul", x, self.weight(inputs, outputs, scale=inputs**-0.5))
        return self.op("Add", y, self.between(-0.1, 0.1, outputs)) if bias else y

    def conv(self, x, inputs, outputs, size, stride=1, group=1, pad=None, bias=True):
        fan = inputs // group * int(np.prod(size))
        args = [x, self.weight(outputs, inputs // group, *size, scale=(2 / fan) ** 0.5)]
        args += [self.between(-0.1, 0.1, outputs)] if bias else []
        pads = [k // 2 for k in size] if pad is None else pad
        return self.op(
            "Conv", *args, kernel_shape=size, strides=[stride] * len(size), pads=pads * 2, group=group
        )

    def batchnorm(self, x, channels):
        parts = [self.between(*r, channels) for r in ((0.5, 1.5), (-0.2, 0.2), (-0.2, 0.2), (0.5, 1.5))]
        return self.op("BatchNormalization", x, *parts)

    def layernorm(self, x, width):
        scale, shift = self.between(0.5, 1.5, width), self.between(-0.1, 0.1, width)
        return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.floats(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.floats(1.0))), self.floats(0.5))

    def heads(self, x, length, heads, each, turned=False):
        """[1, length, width] as [1, heads, length, each], or with the last two axes exchanged."""
        x = self.op("Reshape", x, self.ints(1, length, heads, each))
        return self.op("Transpose", x, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])

    def attention(self, x, memory, lengths, width, heads, each=None, scaled=True, bias=True, add=None):
        each = each or width // heads
        to, of = lengths
        q = self.heads(self.linear(x, width, heads * each, bias), to, heads, each)
        k = self.heads(self.linear(memory, width, heads * each, False), of, heads, each, turned=True)
        v = self.heads(self.linear(memory, width, heads * each, bias), of, heads, each)
        if scaled:
            q = self.op("Mul", q, self.floats(each**-0.5))
        scores = self.op("MatMul", q, k)
        if add:
            scores = self.op("Add", scores, add)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]), self.ints(1, to, heads * each))
        return self.linear(y, heads * each, width, bias)

    def recurrent(self, kind, x, inputs, hidden, both=False, peepholes=False, batch=1, **attributes):
        """The results of all steps, [steps, directions, batch, hidden]."""
        gates, dirs, scale = {"LSTM": 4, "GRU": 3}[kind], 1 + both, hidden**-0.5
        weights = [
            self.between(-scale, scale, dirs, gates * hidden, n) for n in (inputs, hidden)
        ]
        args = [x, *weights, self.between(-scale, scale, dirs, 2 * gates * hidden)]
        if peepholes:
            state = [self.const(np.zeros((dirs, batch, hidden), np.float32)) for _ in range(2)]
            args += ["", *state, self.between(-scale, scale, dirs, 3 * hidden)]
        direction = "bidirectional" if both else "forward"
        return self.op(kind, *args, hidden_size=hidden, direction=direction, **attributes)

    def model(self, *outputs):
        outputs = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, "network", self.inputs, outputs, self.weights)
        opset = [helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opset, ir_version=9))


@network
def gru(steps=64, hidden=512, layers=2):
    """Two gated recurrent layers as PyTorch exports them, batch 1."""
    n = Net()
    x, width = n.input("x", [steps, 1, 128]), 128
    for _ in range(layers):
        y = n.recurrent("GRU", x, width, hidden, linear_before_reset=1)
        x, width = n.op("Squeeze", y, n.ints(1)), hidden
    return n.model(n.linear(x, hidden, 32))


@network
def gru_reset_first(steps=64, hidden=256):
    """A gated recurrent layer whose reset gate comes before the product, a batch of 8."""
    n = Net()
    y = n.recurrent("GRU", n.input("x", [steps, 8, 128]), 128, hidden)
    return n.model(n.linear(n.op("Squeeze", y, n.ints(1)), hidden, 32))


@network
def bilstm(steps=128, words=10000, hidden=256, layers=2, tags=32):
    """A tagger: embeddings and two bidirectional layers."""
    n = Net()
    x, width = n.op("Gather", n.weight(words, 128, scale=1.0), n.input("words", [steps, 1], TensorProto.INT64)), 128
    for _ in range(layers):
        y = n.recurrent("LSTM", x, width, hidden, both=True)
        x = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.ints(steps, 1, 2 * hidden))
        width = 2 * hidden
    return n.model(n.op("LogSoftmax", n.linear(x, width, tags), axis=-1))


@network
def lstm_peepholes(steps=64, hidden=256):
    """Long short-term memory whose gates see the cell, a batch of 4."""
    n = Net()
    y = n.recurrent("LSTM", n.input("x", [steps, 4, 128]), 128, hidden, peepholes=True, batch=4)
    return n.model(n.linear(n.op("Squeeze", y, n.ints(1)), hidden, 32))


@network
def lstm_batch(steps=32, hidden=512, batch=16):
    """Long short-term memory, a batch of 16."""
    n = Net()
    y = n.recurrent("LSTM", n.input("x", [steps, batch, 256]), 256, hidden)
    return n.model(n.linear(n.op("Squeeze", y, n.ints(1)), hidden, 32))


@network
def lstm_lengths(steps=64, hidden=256):
    """Long short-term memory over sequences of different lengths, a batch of 4, both directions."""
    n = Net()
    batch, width = 4, 128
    x = n.input("x", [steps, batch, width])
    scale = hidden**-0.5
    weights = [n.between(-scale, scale, 2, 4 * hidden, k) for k in (width, hidden)]
    bias, lengths = n.between(-scale, scale, 2, 8 * hidden), n.const(np.array([64, 50, 31, 7], np.int32))
    y = n.op("LSTM", x, *weights, bias, lengths, hidden_size=hidden, direction="bidirectional")
    y = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.ints(steps, batch, 2 * hidden))
    return n.model(n.linear(y, 2 * hidden, 32))


def mamba_block(n, x, length, width, scan):
    """One block with selective scan (Gu and Dao 2023); `scan` computes the states' contribution."""
    inner, states, rank = 2 * width, 16, -(-width // 16)
    h = n.linear(x, width, 2 * inner, bias=False)
    h, gate = n.outs("Split", 2, h, n.ints(inner, inner), axis=-1)
    h = n.op("Transpose", h, perm=[0, 2, 1])
    h = n.conv(h, inner, inner, [4], group=inner, pad=[3])
    h = n.op("Slice", h, n.ints(0), n.ints(length), n.ints(2))
    h = n.op("Transpose", n.silu(h), perm=[0, 2, 1])
    parts = n.linear(h, inner, rank + 2 * states, bias=False)
    delta, b, c = n.outs("Split", 3, parts, n.ints(rank, states, states), axis=-1)
    delta = n.op("Softplus", n.linear(delta, rank, inner))
    decay = n.const(-np.tile(np.arange(1, states + 1, dtype=np.float32), (inner, 1)))
    column = n.op("Unsqueeze", delta, n.ints(3))
    a = n.op("Exp", n.op("Mul", column, decay))
    u = n.op("Mul", n.op("Mul", column, n.op("Unsqueeze", b, n.ints(2))), n.op("Unsqueeze", h, n.ints(3)))
    y = scan(n, a, u, c, length, inner, states)
    y = n.op("Add", y, n.op("Mul", h, n.between(0.5, 1.5, inner)))
    return n.linear(n.op("Mul", y, n.silu(gate)), inner, width, bias=False)


def unrolled_scan(n, a, u, c, length, inner, states):
    """Step by step, as tracing exports a Python loop."""
    state, rows = n.const(np.zeros((1, inner, states), np.float32)), []
    for t in range(length):
        at = n.const(np.array(t, np.int64))
        step = n.op("Mul", n.op("Gather", a, at, axis=1), state)
        state = n.op("Add", step, n.op("Gather", u, at, axis=1))
        column = n.op("Unsqueeze", n.op("Gather", c, at, axis=1), n.ints(2))
        rows.append(n.op("Unsqueeze", n.op("Squeeze", n.op("MatMul", state, column), n.ints(2)), n.ints(1)))
    return n.op("Concat", *rows, axis=1)


def loop_scan(n, a, u, c, length, inner, states):
    """An operator with the step as its body."""
    float_of = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [
        helper.make_node("Mul", ["a_t", "state"], ["kept"]),
        helper.make_node("Add", ["kept", "u_t"], ["next"]),
        helper.make_node("Unsqueeze", ["c_t", "two"], ["column"]),
        helper.make_node("MatMul", ["next", "column"], ["product"]),
        helper.make_node("Squeeze", ["product", "two"], ["y_t"]),
    ]
    state = [1, inner, states]
    body = helper.make_graph(
        nodes, "step", [float_of("state", state), float_of("a_t", state), float_of("u_t", state), float_of("c_t", [1, states])],
        [float_of("next", state), float_of("y_t", [1, inner])],
        [numpy_helper.from_array(np.array([2], np.int64), "two")],
    )
    start = n.const(np.zeros(state, np.float32))
    _, y = n.outs(
        "Scan", 2, start, a, u, c, body=body, num_scan_inputs=3, scan_input_axes=[1, 1, 1], scan_output_axes=[1]
    )
    return y


@network
def mamba(length=64, width=128):
    """A block with selective scan, unrolled step by step."""
    n = Net()
    x = n.input("x", [1, length, width])
    return n.model(n.op("Add", x, mamba_block(n, n.layernorm(x, width), length, width, unrolled_scan)))


@network
def mamba_scan(length=128, width=256):
    """A block with selective scan as an operator with a body."""
    n = Net()
    x = n.input("x", [1, length, width])
    return n.model(n.op("Add", x, mamba_block(n, n.layernorm(x, width), length, width, loop_scan)))


@network
def dlrm(batch=64, tables=26, rows=5000, width=64):
    """Recommendation: embeddings and a network of the dense features, their dot products in pairs, a second network."""
    n = Net()
    dense, sparse = n.input("dense", [batch, 13]), n.input("sparse", [batch, tables], TensorProto.INT64)
    x, of = dense, 13
    for to in (512, 256, width):
        x, of = n.op("Relu", n.linear(x, of, to)), to
    features = [n.op("Unsqueeze", x, n.ints(1))]
    for t in range(tables):
        index = n.op("Gather", sparse, n.const(np.array(t, np.int64)), axis=1)
        row = n.op("Gather", n.weight(rows, width, scale=0.2), index, axis=0)
        features.append(n.op("Unsqueeze", row, n.ints(1)))
    all_of = n.op("Concat", *features, axis=1)
    products = n.op("MatMul", all_of, n.op("Transpose", all_of, perm=[0, 2, 1]))
    i, j = np.tril_indices(tables + 1, -1)
    flat = n.op("Reshape", products, n.ints(batch, (tables + 1) ** 2))
    pairs = n.op("Gather", flat, n.const((i * (tables + 1) + j).astype(np.int64)), axis=1)
    x, of = n.op("Concat", x, pairs, axis=1), width + len(i)
    for to in (512, 256):
        x, of = n.op("Relu", n.linear(x, of, to)), to
    return n.model(n.op("Sigmoid", n.linear(x, of, 1)))


@network
def deep_sets(batch=16, elements=100, width=128):
    """Sets (Zaheer et al. 2017): a network of each element, a sum, a network of the sum."""
    n = Net()
    x, of = n.input("x", [batch, elements, 3]), 3
    for _ in range(3):
        mean = n.op("ReduceMax", x, axes=[1], keepdims=1)
        x = n.op("Sub", n.linear(x, of, width), n.linear(mean, of, width, bias=False))
        x, of = n.op("Tanh", x), width
    x = n.op("ReduceSum", x, n.ints(1), keepdims=0)
    return n.model(n.linear(n.op("Tanh", n.linear(x, width, width)), width, 40))


@network
def whisper_encoder(frames=3000, width=384, heads=6, layers=4):
    """Two convolutions along time, and layers of attention over 1500 positions (Whisper tiny)."""
    n = Net()
    x = n.gelu(n.conv(n.input("mel", [1, 80, frames]), 80, width, [3]))
    x = n.op("Transpose", n.gelu(n.conv(x, width, width, [3], stride=2)), perm=[0, 2, 1])
    length = frames // 2
    x = n.op("Add", x, n.weight(length, width, scale=0.2))
    for _ in range(layers):
        h = n.layernorm(x, width)
        x = n.op("Add", x, n.attention(h, h, (length, length), width, heads))
        h = n.linear(n.gelu(n.linear(n.layernorm(x, width), width, 4 * width)), 4 * width, width)
        x = n.op("Add", x, h)
    return n.model(n.layernorm(x, width))


@network
def t5_decoder(length=16, memory=64, width=512, heads=8, each=64, layers=6, wide=2048):
    """Decoder layers with a relative bias and attention to an encoder's result (T5 small)."""
    n = Net()
    x, encoded = n.input("x", [1, length, width]), n.input("encoded", [1, memory, width])

    def norm(x):
        mean = n.op("ReduceMean", n.op("Pow", x, n.floats(2.0)), axes=[-1], keepdims=1)
        root = n.op("Sqrt", n.op("Add", mean, n.floats(1e-6)))
        return n.op("Mul", n.between(0.5, 1.5, width), n.op("Div", x, root))

    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    buckets = n.const(np.clip(-distance, 0, 31).astype(np.int64))
    bias = n.op("Unsqueeze", n.op("Transpose", n.op("Gather", n.weight(32, heads, scale=0.5), buckets), perm=[2, 0, 1]), n.ints(0))
    bias = n.op("Add", bias, n.const(np.where(distance > 0, -1e9, 0).astype(np.float32)[None, None]))
    for _ in range(layers):
        h = norm(x)
        x = n.op("Add", x, n.attention(h, h, (length, length), width, heads, each, False, False, bias))
        x = n.op("Add", x, n.attention(norm(x), encoded, (length, memory), width, heads, each, False, False))
        h = n.op("Relu", n.linear(norm(x), width, wide, False))
        x = n.op("Add", x, n.linear(h, wide, width, False))
    return n.model(n.op("Mul", norm(x), n.floats(width**-0.5)))


@network
def mobilevit(size=32, channels=96, width=144, layers=4, patch=2):
    """A block of MobileViT between two inverted bottlenecks: attention among the pixels of equal place in their patches."""
    n = Net()
    x = n.input("x", [1, 64, 2 * size, 2 * size])
    h = n.silu(n.conv(x, 64, 256, [1, 1]))
    h = n.silu(n.conv(h, 256, 256, [3, 3], stride=2, group=256))
    x = n.conv(h, 256, channels, [1, 1])
    h = n.conv(n.silu(n.conv(x, channels, channels, [3, 3])), channels, width, [1, 1])
    parts, count, area = size // patch, (size // patch) ** 2, patch * patch
    h = n.op("Reshape", h, n.ints(width * parts, patch, parts, patch))
    h = n.op("Reshape", n.op("Transpose", h, perm=[0, 2, 1, 3]), n.ints(1, width, count, area))
    h = n.op("Reshape", n.op("Transpose", h, perm=[0, 3, 2, 1]), n.ints(area, count, width))
    heads, each = 4, width // 4
    for _ in range(layers):
        qkv = n.linear(n.layernorm(h, width), width, 3 * width)
        qkv = n.op("Transpose", n.op("Reshape", qkv, n.ints(area, count, 3, heads, each)), perm=[2, 0, 3, 1, 4])
        q, k, v = (n.op("Gather", qkv, n.const(np.array(i, np.int64)), axis=0) for i in range(3))
        scores = n.op("MatMul", n.op("Mul", q, n.floats(each**-0.5)), n.op("Transpose", k, perm=[0, 1, 3, 2]))
        y = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        h = n.op("Add", h, n.linear(n.op("Reshape", y, n.ints(area, count, width)), width, width))
        h = n.op("Add", h, n.linear(n.silu(n.linear(n.layernorm(h, width), width, 2 * width)), 2 * width, width))
    h = n.op("Reshape", n.layernorm(h, width), n.ints(1, area, count, width))
    h = n.op("Reshape", n.op("Transpose", h, perm=[0, 3, 2, 1]), n.ints(width * parts, parts, patch, patch))
    h = n.op("Reshape", n.op("Transpose", h, perm=[0, 2, 1, 3]), n.ints(1, width, size, size))
    h = n.silu(n.conv(h, width, channels, [1, 1]))
    h = n.silu(n.conv(n.op("Concat", x, h, axis=1), 2 * channels, channels, [3, 3]))
    h = n.silu(n.conv(n.silu(n.conv(h, channels, 384, [1, 1])), 384, 384, [3, 3], stride=2, group=384))
    return n.model(n.conv(h, 384, 128, [1, 1]))


@network
def unet_decoder(size=16):
    """The second half of a U-Net: transposed convolutions, concatenation with what came before, convolutions."""
    n = Net()
    x, of = n.input("x", [1, 256, size, size]), 256
    for level, to in enumerate((128, 64, 32)):
        up = n.op(
            "ConvTranspose", x, n.weight(of, to, 2, 2, scale=of**-0.5), n.between(-0.1, 0.1, to),
            kernel_shape=[2, 2], strides=[2, 2],
        )
        side = 2 ** (level + 1) * size
        x = n.op("Concat", n.input(f"skip{level}", [1, to, side, side]), up, axis=1)
        x = n.op("Relu", n.conv(x, 2 * to, to, [3, 3]))
        x, of = n.op("Relu", n.conv(x, to, to, [3, 3])), to
    return n.model(n.conv(x, of, 2, [1, 1]))


@network
def dcgan(width=64):
    """A generator: transposed convolutions of 4 x 4 that double the image, up to 64 x 64 (Radford et al. 2016)."""
    n = Net()
    x, of = n.input("noise", [1, 100, 1, 1]), 100
    for i, to in enumerate((8 * width, 4 * width, 2 * width, width, 3)):
        edge = {} if i == 0 else {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        fan = of * 16 if i == 0 else of * 4
        x = n.op("ConvTranspose", x, n.weight(of, to, 4, 4, scale=(2 / fan) ** 0.5), kernel_shape=[4, 4], **edge)
        if to > 3:
            x = n.op("Relu", n.batchnorm(x, to))
        of = to
    return n.model(n.op("Tanh", x))


@network
def resnet3d(frames=8, size=56):
    """Residual blocks over space and time (Tran et al. 2018)."""
    n = Net()
    x = n.op("Relu", n.batchnorm(n.conv(n.input("x", [1, 3, frames, size, size]), 3, 32, [3, 7, 7], 2, bias=False), 32))
    of = 32
    for to, stride in ((32, 1), (64, 2), (128, 2)):
        h = n.op("Relu", n.batchnorm(n.conv(x, of, to, [3, 3, 3], stride, bias=False), to))
        h = n.batchnorm(n.conv(h, to, to, [3, 3, 3], bias=False), to)
        if stride > 1:
            x = n.batchnorm(n.conv(x, of, to, [1, 1, 1], stride, bias=False), to)
        x, of = n.op("Relu", n.op("Add", x, h)), to
    x = n.op("Flatten", n.op("GlobalAveragePool", x))
    return n.model(n.linear(x, of, 400))


def resnext_stages(stages, groups, base):
    """ResNeXt (Xie et al. 2017): bottlenecks whose 3 x 3 convolutions are cut into groups. A stage is its blocks and its width."""
    n = Net()
    x = n.op("Relu", n.batchnorm(n.conv(n.input("x", [1, 3, 224, 224]), 3, 64, [7, 7], 2, bias=False), 64))
    x, of = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for i, (blocks, middle) in enumerate(stages):
        for j in range(blocks):
            stride, inner, to = 2 if i and not j else 1, middle * groups * base // 64, middle * 4
            h = n.op("Relu", n.batchnorm(n.conv(x, of, inner, [1, 1], bias=False), inner))
            h = n.conv(h, inner, inner, [3, 3], stride, group=groups, bias=False)
            h = n.op("Relu", n.batchnorm(h, inner))
            h = n.batchnorm(n.conv(h, inner, to, [1, 1], bias=False), to)
            if of != to or stride > 1:
                x = n.batchnorm(n.conv(x, of, to, [1, 1], stride, bias=False), to)
            x, of = n.op("Relu", n.op("Add", h, x)), to
    return n.model(n.linear(n.op("Flatten", n.op("GlobalAveragePool", x)), of, 1000))


@network
def resnext50():
    """ResNeXt-50 32x4d."""
    return resnext_stages([(3, 64), (4, 128), (6, 256), (3, 512)], 32, 4)


@network
def resnext_wide():
    """The first stages of ResNeXt with groups of 16 and 32 channels."""
    return resnext_stages([(3, 64), (2, 128)], 16, 16)


def main():
    words = sys.argv[1:]
    if words == ["--list"]:
        for name, build in NETWORKS.items():
            print(f"{name:16} {build.__doc__.splitlines()[0]}")
        return
    unknown = [w for w in words[1:] if w not in NETWORKS]
    if not words or unknown:
        sys.exit(f"no network {unknown[0]}; --list prints them" if unknown else __doc__)
    for name in words[1:] or NETWORKS:
        folder = pathlib.Path(words[0]) / name
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(NETWORKS[name](), folder / "model.onnx")
        print(folder / "model.onnx")


if __name__ == "__main__":
    main()
