"""Graphs of one operator, by operator: what `onnx_sweep.py`, `open_axes.py` and `onnx_mutate.py` draw from."""
import numpy as np
from onnx import helper, numpy_helper

F, I, B = np.float32, np.int64, np.bool_


class Case:
    """One operator in a graph of its own; names begin with the case's."""

    def __init__(self, name, opset, n):
        self.name, self.o, self.n = name, opset, n
        self.nodes, self.inputs, self.consts, self.outputs, self.types = [], [], [], [], {}
        self.rng = np.random.default_rng(7)

    def fresh(self, kind, count):
        return f"{self.name}/{kind}{count}"

    def x(self, *shape, dtype=F, low=-3, high=3, data=None):
        if data is None:
            if dtype == B:
                data = self.rng.integers(0, 2, shape).astype(B)
            elif np.issubdtype(dtype, np.integer):
                data = self.rng.integers(low, high + 1, shape).astype(dtype)
            else:
                data = self.rng.uniform(low, high, shape).astype(dtype)
        name = self.fresh("x", len(self.inputs))
        self.inputs.append((name, np.asarray(data)))
        return name

    def c(self, value, dtype=I):
        name = self.fresh("c", len(self.consts))
        self.consts.append((name, np.asarray(value, dtype=dtype)))
        return name

    def node(self, op, *inputs, outputs=1, domain="", **attrs):
        outs = [self.fresh("y", len(self.nodes)) + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), outs, name=self.fresh("n", len(self.nodes)),
                                           domain=domain, **attrs))
        return outs[0] if outputs == 1 else outs

    def out(self, *names, like=None):
        """Results; `like` is an input of their type, where onnx does not infer it."""
        self.outputs.extend(names)
        if like is not None:
            data = dict(self.inputs)[like]
            dtype = helper.np_dtype_to_tensor_dtype(data.dtype)
            self.types.update((n, helper.make_tensor_value_info(n, dtype, data.shape)) for n in names)


CASES = {}


def case(name, since=7, until=99):
    def keep(f):
        CASES.setdefault(name.split("#")[0], []).append((name, since, until, f))
        return f
    return keep


def pointwise(op, since=7, low=-3, high=3, **attrs):
    case(op, since)(lambda k: k.out(k.node(op, k.x(2, k.n, low=low, high=high), **attrs)))


for op in ("Neg Abs Exp Tanh Sigmoid Sin Cos Tan Atan Floor Ceil Reciprocal Relu Softplus Softsign Elu Selu "
           "LeakyRelu HardSigmoid Identity").split():
    pointwise(op)
for op in "Log Sqrt".split():
    pointwise(op, low=0.5)
for op in "Asin Acos".split():
    pointwise(op, low=-0.9, high=0.9)
for op, since in [("Erf", 9), ("Sinh", 9), ("Cosh", 9), ("Asinh", 9), ("Sign", 9), ("IsNaN", 9), ("Round", 11),
                  ("ThresholdedRelu", 10), ("Celu", 12), ("HardSwish", 14), ("Mish", 18), ("Gelu", 20),
                  ("Shrink", 9), ("Swish", 24), ("IsInf", 10)]:
    pointwise(op, since)
pointwise("Atanh", 9, low=-0.9, high=0.9)
pointwise("Acosh", 9, low=1.1)
case("Gelu#tanh", 20)(lambda k: k.out(k.node("Gelu", k.x(2, k.n), approximate="tanh")))
for neg, pos in [(1, 0), (0, 1), (0, 0)]:
    case(f"IsInf#{neg}{pos}", 10)(lambda k, neg=neg, pos=pos: k.out(k.node(
        "IsInf", k.x(2, k.n), detect_negative=neg, detect_positive=pos)))
case("Not")(lambda k: k.out(k.node("Not", k.x(2, k.n, dtype=B))))
for op in "And Or Xor".split():
    case(op)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n, dtype=B), k.x(k.n, dtype=B))))
for op in "Add Sub Mul Div PRelu".split():
    case(op)(lambda k, op=op: k.out(k.node(op, k.x(2, 3, k.n), k.x(3, 1))))
for op in "Add Sub Mul".split():
    case(op + "#int")(lambda k, op=op: k.out(k.node(op, k.x(2, k.n, dtype=I), k.c([3]))))
case("Div#int")(lambda k: k.out(k.node("Div", k.x(2, k.n, dtype=I, low=-9, high=9), k.c([-4]))))
case("Pow")(lambda k: k.out(k.node("Pow", k.x(2, k.n, low=0.5), k.x(1, k.n))))
case("Pow#two")(lambda k: k.out(k.node("Pow", k.x(2, k.n), k.c(2.0, F))))
case("Pow#int", 12)(lambda k: k.out(k.node("Pow", k.x(2, k.n, dtype=I), k.c(3))))
case("Mod", 10)(lambda k: k.out(k.node("Mod", k.x(2, k.n, dtype=I, low=-9, high=9), k.c([-4]))))
case("Mod#fmod", 10)(lambda k: k.out(k.node("Mod", k.x(2, k.n), k.c(1.5, F), fmod=1)))
for op, since in [("Less", 7), ("Greater", 7), ("Equal", 11), ("LessOrEqual", 12), ("GreaterOrEqual", 12)]:
    case(op, since)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n), k.x(k.n))))
for op, since in [("Less", 9), ("Greater", 9), ("Equal", 7), ("LessOrEqual", 12), ("GreaterOrEqual", 12)]:
    case(op + "#int", since)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n, dtype=I), k.x(k.n, dtype=I))))
for op in "Max Min Sum Mean".split():
    case(op, 8)(lambda k, op=op: k.out(k.node(op, k.x(2, 3, k.n), k.x(k.n), k.x(3, 1))))
for op in "Max Min".split():
    case(op + "#int", 12)(lambda k, op=op: k.out(k.node(op, k.x(2, k.n, dtype=I), k.x(k.n, dtype=I))))
case("Where", 9)(lambda k: k.out(k.node("Where", k.x(2, k.n, dtype=B), k.x(k.n), k.x(2, 1))))
for to in (1, 6, 7, 9, 10, 11):
    case(f"Cast#{to}")(lambda k, to=to: k.out(k.node("Cast", k.x(2, k.n), to=to)))
case("CastLike", 15)(lambda k: k.out(k.node("CastLike", k.x(2, k.n), k.x(1, dtype=I))))
case("Dropout", 7)(lambda k: k.out(k.node("Dropout", k.x(2, k.n))))
case("Dropout#mask", 12)(lambda k: k.out(*k.node("Dropout", k.x(2, k.n), outputs=2)))
case("Clip", 7, 10)(lambda k: k.out(k.node("Clip", k.x(2, k.n), min=-1.0, max=1.0)))
case("Clip", 11)(lambda k: k.out(k.node("Clip", k.x(2, k.n), k.c(-1, F), k.c(1, F))))
case("Clip#high", 11)(lambda k: k.out(k.node("Clip", k.x(2, k.n), "", k.c(1, F))))
case("Clip#int", 12)(lambda k: k.out(k.node("Clip", k.x(2, k.n, dtype=I), k.c(-1), k.c(1))))
for op in "Softmax LogSoftmax Hardmax".split():
    for axis in (1, -1, 0):
        case(f"{op}#{axis}")(lambda k, op=op, axis=axis: k.out(k.node(op, k.x(2, k.n, 3), axis=axis)))
    case(f"{op}#wide", 13)(lambda k, op=op: k.out(k.node(op, k.x(2, 3, k.n))))

# Products and windows.
case("MatMul")(lambda k: k.out(k.node("MatMul", k.x(2, 3, k.n), k.x(k.n, 5))))
case("MatMul#rows")(lambda k: k.out(k.node("MatMul", k.x(k.n, 3), k.x(3, 5))))
case("MatMul#vector")(lambda k: k.out(k.node("MatMul", k.x(k.n), k.x(k.n, 3))))
case("MatMul#int", 9)(lambda k: k.out(k.node("MatMul", k.x(2, k.n, dtype=I), k.x(k.n, 3, dtype=I))))
case("MatMulInteger", 10)(lambda k: k.out(k.node("MatMulInteger", k.x(2, k.n, dtype=np.uint8, low=0, high=9),
                                                 k.x(k.n, 3, dtype=np.uint8, low=0, high=9))))
case("Gemm")(lambda k: k.out(k.node("Gemm", k.x(2, k.n), k.x(k.n, 5), k.x(5), alpha=0.5,
                                        beta=2.0 if k.n else 1.0)))  # ONNX Runtime forgets beta without elements.
case("Gemm#transposed")(lambda k: k.out(k.node("Gemm", k.x(k.n, 2), k.x(5, k.n), k.x(2, 5), transA=1, transB=1)))
case("Gemm#bare", 11)(lambda k: k.out(k.node("Gemm", k.x(k.n, 2), k.x(2, 3))))
case("Conv")(lambda k: k.out(k.node("Conv", k.x(k.n, 2, 5, 5), k.x(3, 2, 3, 3), k.x(3), pads=[1, 1, 1, 1])))
case("Conv#channels")(lambda k: k.out(k.node("Conv", k.x(1, 2, 5, 5), k.x(k.n, 2, 3, 3), strides=[2, 1])))
case("ConvTranspose")(lambda k: k.out(k.node("ConvTranspose", k.x(k.n, 2, 4, 4), k.x(2, 3, 3, 3), strides=[2, 2])))
for op in "MaxPool AveragePool".split():
    case(op)(lambda k, op=op: k.out(k.node(op, k.x(k.n, 2, 6, 6), kernel_shape=[2, 2], strides=[2, 2])))
    case(op + "#padded")(lambda k, op=op: k.out(k.node(op, k.x(1, 2, 5, 5), kernel_shape=[3, 3], pads=[1] * 4)))
case("AveragePool#counted")(lambda k: k.out(k.node("AveragePool", k.x(1, 2, 5, 5), kernel_shape=[3, 3],
                                                   pads=[1] * 4, count_include_pad=1)))
case("LpPool", 11)(lambda k: k.out(k.node("LpPool", k.x(k.n, 2, 6, 6), kernel_shape=[2, 2], strides=[2, 2])))
for op in "GlobalAveragePool GlobalMaxPool GlobalLpPool".split():
    case(op)(lambda k, op=op: k.out(k.node(op, k.x(2, 3, 4, k.n))))
    case(op + "#batch")(lambda k, op=op: k.out(k.node(op, k.x(k.n, 3, 4, 4))))
case("Einsum", 12)(lambda k: k.out(k.node("Einsum", k.x(2, 3, k.n), k.x(2, k.n, 4), equation="bij,bjk->bik")))
case("Einsum#order", 12)(lambda k: k.out(k.node("Einsum", k.x(2, k.n, 3), equation="abc->cab")))

# Normalisations.
case("BatchNormalization")(lambda k: k.out(k.node(
    "BatchNormalization", k.x(k.n, 3, 4), k.x(3), k.x(3), k.x(3), k.x(3, low=0.5), epsilon=1e-3)))
case("InstanceNormalization")(lambda k: k.out(k.node("InstanceNormalization", k.x(k.n, 3, 4), k.x(3), k.x(3))))
case("LayerNormalization", 17)(lambda k: k.out(k.node("LayerNormalization", k.x(2, k.n, 4), k.x(4), k.x(4))))
case("GroupNormalization", 21)(lambda k: (lambda x: k.out(
    k.node("GroupNormalization", x, k.x(4), k.x(4), num_groups=2), like=x))(k.x(k.n, 4, 3)))
case("RMSNormalization", 23)(lambda k: k.out(k.node("RMSNormalization", k.x(2, k.n, 4), k.x(4))))
case("LpNormalization")(lambda k: k.out(k.node("LpNormalization", k.x(2, k.n), axis=0, p=2)))
case("LRN")(lambda k: k.out(k.node("LRN", k.x(k.n, 4, 3, 3), size=3)))
case("MeanVarianceNormalization", 9)(lambda k: (lambda x: k.out(
    k.node("MeanVarianceNormalization", x, axes=[0, 2, 3]), like=x))(k.x(2, 3, 4, k.n)))

# Reductions.
for op in ("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceLogSum ReduceLogSumExp "
           "ReduceL1 ReduceL2").split():
    def reduced(k, op, axes, keep, dtype=F, low=0.5):
        x = k.x(2, 3, k.n, dtype=dtype, low=low)
        since = 13 if op == "ReduceSum" else 18
        if axes is None:
            return k.out(k.node(op, x, keepdims=keep))
        if k.o >= since:
            return k.out(k.node(op, x, k.c(axes), keepdims=keep))
        return k.out(k.node(op, x, axes=axes, keepdims=keep))
    for axes in ([1], [0, 2], [2], None):
        for keep in (0, 1):
            case(f"{op}#{axes}{keep}")(lambda k, op=op, axes=axes, keep=keep: reduced(k, op, axes, keep))
    if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
        case(f"{op}#int")(lambda k, op=op: reduced(k, op, [1], 1, I, -3))
for op in "ArgMax ArgMin".split():
    for axis, keep in ((0, 1), (-1, 0)):
        case(f"{op}#{axis}")(lambda k, op=op, axis=axis, keep=keep: k.out(k.node(
            op, k.x(3, k.n) if axis == 0 else k.x(k.n, 3), axis=axis, keepdims=keep)))
    case(f"{op}#last", 12)(lambda k, op=op: k.out(k.node(op, k.x(3, k.n), select_last_index=1)))
    case(f"{op}#int")(lambda k, op=op: k.out(k.node(op, k.x(3, k.n, dtype=np.int32))))
case("CumSum", 11)(lambda k: k.out(k.node("CumSum", k.x(2, k.n), k.c(1))))
case("CumSum#reverse", 11)(lambda k: k.out(k.node("CumSum", k.x(2, k.n), k.c(0), exclusive=1, reverse=1)))

# Movements.
case("Shape")(lambda k: k.out(k.node("Shape", k.x(2, k.n))))
case("Size")(lambda k: k.out(k.node("Size", k.x(2, k.n))))
case("Reshape")(lambda k: k.out(k.node("Reshape", k.x(2, 3, k.n), k.c([0, -1] if k.n else [6, 0]))) if k.n else
                k.out(k.node("Reshape", k.x(2, 3, 0), k.c([0, 3, 0]))))
case("Reshape#allow", 14)(lambda k: k.out(k.node("Reshape", k.x(2, 3, k.n), k.c([k.n, 6]), allowzero=1)))
case("Flatten")(lambda k: k.out(k.node("Flatten", k.x(2, 3, k.n), axis=1)))
case("Flatten#2", 11)(lambda k: k.out(k.node("Flatten", k.x(2, 3, k.n), axis=-1)))
case("Unsqueeze", 7, 12)(lambda k: k.out(k.node("Unsqueeze", k.x(2, k.n), axes=[0, 2])))
case("Unsqueeze", 13)(lambda k: k.out(k.node("Unsqueeze", k.x(2, k.n), k.c([0, 2]))))
case("Squeeze", 7, 12)(lambda k: k.out(k.node("Squeeze", k.x(2, 1, k.n, 1), axes=[1, 3])))
case("Squeeze", 13)(lambda k: k.out(k.node("Squeeze", k.x(2, 1, k.n, 1), k.c([1, 3]))))
case("Transpose")(lambda k: k.out(k.node("Transpose", k.x(2, k.n, 3), perm=[2, 0, 1])))
case("Expand", 8)(lambda k: k.out(k.node("Expand", k.x(3, 1), k.c([2, 1, k.n]))))
case("Tile")(lambda k: k.out(k.node("Tile", k.x(2, k.n), k.c([2, 3]))))
case("Concat")(lambda k: k.out(k.node("Concat", k.x(2, k.n), k.x(2, 3), k.x(2, k.n), axis=1)))
case("Split", 7, 12)(lambda k: k.out(*k.node("Split", k.x(2 * k.n, 3), axis=0, outputs=2)))
case("Split", 13, 17)(lambda k: k.out(*k.node("Split", k.x(2 * k.n, 3), axis=0, outputs=2)))
case("Split", 18)(lambda k: k.out(*k.node("Split", k.x(2 * k.n, 3), axis=0, outputs=2, num_outputs=2)))
case("Split#sizes", 7, 12)(lambda k: k.out(*k.node("Split", k.x(2, k.n + 3), axis=1, split=[k.n, 3], outputs=2)))
case("Split#sizes", 13)(lambda k: k.out(*k.node("Split", k.x(2, k.n + 3), k.c([k.n, 3]), axis=1, outputs=2)))
case("Slice", 7, 9)(lambda k: k.out(k.node("Slice", k.x(3, k.n), starts=[1, 0], ends=[3, 9], axes=[0, 1])))
case("Slice", 10)(lambda k: k.out(k.node("Slice", k.x(3, k.n), k.c([1, 0]), k.c([3, 9]), k.c([0, 1]))))
case("Slice#steps", 10)(lambda k: k.out(k.node("Slice", k.x(5, k.n), k.c([-1]), k.c([-9]), k.c([0]), k.c([-2]))))
case("Slice#none", 10)(lambda k: k.out(k.node("Slice", k.x(5, k.n), k.c([3]), k.c([3]), k.c([0]))))
case("Pad", 7, 10)(lambda k: k.out(k.node("Pad", k.x(2, k.n), pads=[0, 1, 0, 2], value=1.5)))
case("Pad", 11)(lambda k: k.out(k.node("Pad", k.x(2, k.n), k.c([0, 1, 0, 2]), k.c(1.5, F))))
case("DepthToSpace", 7, 10)(lambda k: k.out(k.node("DepthToSpace", k.x(1, 8, k.n, 3), blocksize=2)))
case("DepthToSpace", 11)(lambda k: k.out(k.node("DepthToSpace", k.x(1, 8, k.n, 3), blocksize=2, mode="CRD")))
case("SpaceToDepth")(lambda k: k.out(k.node("SpaceToDepth", k.x(1, 2, 2 * k.n, 4), blocksize=2)))
case("Resize", 11, 12)(lambda k: k.out(k.node(
    "Resize", k.x(k.n, 2, 3, 3), k.c([], F), k.c([1, 1, 2, 2], F), mode="nearest",
    coordinate_transformation_mode="asymmetric", nearest_mode="floor")))
case("Resize", 13)(lambda k: k.out(k.node(
    "Resize", k.x(k.n, 2, 3, 3), "", k.c([1, 1, 2, 2], F), mode="nearest",
    coordinate_transformation_mode="asymmetric", nearest_mode="floor")))
case("Gather")(lambda k: k.out(k.node("Gather", k.x(4, k.n), k.x(2, 2, dtype=I, low=0, high=3), axis=0)))
case("Gather#none")(lambda k: k.out(k.node("Gather", k.x(4, 3), k.x(k.n, dtype=I, low=0, high=2), axis=1)
                                    if k.n else k.node("Gather", k.x(4, 3), k.x(0, dtype=I), axis=1)))
case("Gather#one")(lambda k: k.out(k.node("Gather", k.x(4, k.n), k.c(-1), axis=0)))
case("GatherElements", 11)(lambda k: k.out(k.node("GatherElements", k.x(4, k.n), k.x(2, k.n, dtype=I, low=0, high=3))))
case("GatherND", 11)(lambda k: k.out(k.node("GatherND", k.x(4, 3, k.n), k.x(2, 2, dtype=I, low=0, high=2))))
case("Trilu", 14)(lambda k: k.out(k.node("Trilu", k.x(2, 3, k.n), upper=0)))
case("Trilu#k", 14)(lambda k: k.out(k.node("Trilu", k.x(3, k.n), k.c(1))))
case("ConstantOfShape", 9)(lambda k: k.out(k.node(
    "Add", k.x(2, k.n), k.node("ConstantOfShape", k.c([2, k.n]), value=numpy_helper.from_array(np.array([2], F))))))
case("Range", 11)(lambda k: k.out(k.node("Add", k.x(k.n, dtype=I), k.node("Range", k.c(2), k.c(2 + 3 * k.n), k.c(3)))))
case("EyeLike", 9)(lambda k: k.out(k.node("EyeLike", k.x(3, k.n), k=1)))
case("OneHot", 11)(lambda k: k.out(k.node("OneHot", k.x(2, k.n, dtype=I, low=0, high=3), k.c(4), k.c([0, 1], F))))
case("QuantizeLinear", 10)(lambda k: k.out(k.node("QuantizeLinear", k.x(2, k.n), k.c(0.1, F), k.c(128, np.uint8))))
case("DequantizeLinear", 10)(lambda k: k.out(k.node(
    "DequantizeLinear", k.x(2, k.n, dtype=np.uint8, low=0, high=9), k.c(0.1, F), k.c(3, np.uint8))))
case("LSTM", 7)(lambda k: k.out(*k.node("LSTM", k.x(3, k.n, 2), k.x(1, 12, 2), k.x(1, 12, 3), hidden_size=3, outputs=3)))
case("GRU", 7)(lambda k: k.out(*k.node("GRU", k.x(3, k.n, 2), k.x(1, 9, 2), k.x(1, 9, 3), hidden_size=3, outputs=2)))
case("Attention", 23)(lambda k: k.out(k.node("Attention", k.x(2, 2, k.n, 4), k.x(2, 2, 3, 4), k.x(2, 2, 3, 4))))
case("RotaryEmbedding", 23)(lambda k: k.out(k.node(
    "RotaryEmbedding", k.x(1, 2, k.n, 4), k.x(8, 2), k.x(8, 2), k.c(np.arange(k.n)[None]))))

# Attributes.
for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case(f"Conv#{pad}")(lambda k, pad=pad: k.out(k.node(
        "Conv", k.x(k.n, 2, 5, 4), k.x(3, 2, 3, 2), auto_pad=pad, strides=[2, 1])))
    case(f"AveragePool#{pad}")(lambda k, pad=pad: k.out(k.node(
        "AveragePool", k.x(k.n, 2, 5, 4), kernel_shape=[3, 2], auto_pad=pad, strides=[2, 1])))
    case(f"MaxPool#{pad}")(lambda k, pad=pad: k.out(k.node(
        "MaxPool", k.x(k.n, 2, 5, 4), kernel_shape=[3, 2], auto_pad=pad, strides=[2, 1])))
case("Conv#group")(lambda k: k.out(k.node("Conv", k.x(1, 4, 5, k.n + 2), k.x(6, 2, 3, 3), k.x(6), group=2, pads=[0, 1, 2, 1],
                                          dilations=[2, 1])))
case("Conv#line")(lambda k: k.out(k.node("Conv", k.x(k.n, 2, 7), k.x(3, 2, 3), pads=[2, 0], strides=[2])))
case("Conv#solid")(lambda k: k.out(k.node("Conv", k.x(1, 2, 3, 4, 3), k.x(k.n, 2, 2, 2, 2), k.x(k.n))))
case("ConvTranspose#group")(lambda k: k.out(k.node(
    "ConvTranspose", k.x(k.n, 4, 3, 3), k.x(4, 3, 3, 3), k.x(6), group=2, strides=[2, 2], pads=[1, 0, 1, 2], output_padding=[1, 0])))
case("ConvTranspose#dilated")(lambda k: k.out(k.node("ConvTranspose", k.x(1, 2, k.n), k.x(2, 3, 3), dilations=[2])))
for op in "MaxPool AveragePool".split():
    case(op + "#ceil", 10)(lambda k, op=op: k.out(k.node(op, k.x(k.n, 2, 7, 6), kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1)))
    case(op + "#line")(lambda k, op=op: k.out(k.node(op, k.x(k.n, 2, 7), kernel_shape=[3], strides=[2], pads=[1, 0])))
case("MaxPool#dilated", 10)(lambda k: k.out(k.node("MaxPool", k.x(k.n, 2, 7, 6), kernel_shape=[3, 2], dilations=[2, 1])))
case("AveragePool#dilated", 19)(lambda k: k.out(k.node("AveragePool", k.x(k.n, 2, 7, 6), kernel_shape=[3, 2], dilations=[2, 1])))
case("LpPool#padded", 18)(lambda k: k.out(k.node("LpPool", k.x(k.n, 2, 6, 6), kernel_shape=[3, 2], pads=[1, 0, 1, 1], p=3)))
case("Gemm#column", 7)(lambda k: k.out(k.node("Gemm", k.x(2, k.n + 1), k.x(k.n + 1, 5), k.x(2, 1), alpha=-1.0, transB=0)))
case("Gemm#scalar", 7)(lambda k: k.out(k.node("Gemm", k.x(k.n + 1, 2), k.x(5, k.n + 1), k.x(1), transA=1, transB=1, beta=0.5)))
case("BatchNormalization#flat")(lambda k: k.out(k.node("BatchNormalization", k.x(k.n, 3), k.x(3), k.x(3), k.x(3), k.x(3, low=0.5))))
case("LayerNormalization#axis", 17)(lambda k: k.out(*k.node(
    "LayerNormalization", k.x(2, k.n, 4), k.x(k.n, 4), axis=1, outputs=3)))
case("RMSNormalization#axis", 23)(lambda k: k.out(k.node("RMSNormalization", k.x(2, k.n, 4), k.x(k.n, 4), axis=-2)))
case("LpNormalization#one")(lambda k: k.out(k.node("LpNormalization", k.x(3, k.n, low=0.5), axis=-1, p=1)))
case("InstanceNormalization#line")(lambda k: k.out(k.node("InstanceNormalization", k.x(2, 3, k.n), k.x(3), k.x(3), epsilon=0.1)))
case("LRN#even")(lambda k: k.out(k.node("LRN", k.x(k.n, 5, 2, 3), size=4, alpha=0.1, bias=2.0, beta=0.5)))
for mode in ("reflect", "edge"):
    case(f"Pad#{mode}", 11)(lambda k, mode=mode: k.out(k.node("Pad", k.x(k.n, 4), k.c([0, 2, 0, 1]), mode=mode)))
case("Pad#negative", 11)(lambda k: k.out(k.node("Pad", k.x(k.n, 5), k.c([1, -2, 0, -1]))))
case("Pad#axes", 18)(lambda k: k.out(k.node("Pad", k.x(2, 3, k.n), k.c([1, 2]), k.c(0.5, F), k.c([-2]))))
case("Pad#int", 11)(lambda k: k.out(k.node("Pad", k.x(2, k.n, dtype=I), k.c([0, 1, 0, 2]), k.c(7))))
case("Slice#far", 10)(lambda k: k.out(k.node("Slice", k.x(5, k.n), k.c([-2**63, 2**62]), k.c([2**63 - 1, -2**63]), k.c([-2, 1]),
                                             k.c([2, -1]))))
case("Transpose#plain")(lambda k: k.out(k.node("Transpose", k.x(2, k.n, 3))))
case("Reshape#rest")(lambda k: k.out(k.node("Reshape", k.x(2, k.n, 3), k.c([-1, 2] if k.n else [0, 0, 3]))))
case("Squeeze#all", 13)(lambda k: k.out(k.node("Squeeze", k.x(1, k.n + 1, 1))))
case("Expand#ones", 8)(lambda k: k.out(k.node("Expand", k.x(k.n, 1, 3), k.c([1, 1]))))
case("Concat#first", 11)(lambda k: k.out(k.node("Concat", k.x(k.n, 2), k.x(3, 2), k.x(1, 2), axis=-2)))
case("Split#uneven", 18)(lambda k: k.out(*k.node("Split", k.x(7, k.n), axis=0, outputs=3, num_outputs=3)))
case("Gather#negative", 11)(lambda k: k.out(k.node("Gather", k.x(2, 4, k.n), k.x(3, dtype=np.int32, low=-4, high=3), axis=-2)))
case("Gather#row")(lambda k: k.out(k.node("Gather", k.x(4, k.n), k.c([1, 2, 3]), axis=0)))
case("GatherElements#axis", 11)(lambda k: k.out(k.node(
    "GatherElements", k.x(4, 3), k.x(k.n, 2, dtype=I, low=-3, high=2), axis=-1)))
case("GatherND#rows", 11)(lambda k: k.out(k.node("GatherND", k.x(4, 3, k.n), k.x(2, 1, dtype=I, low=-4, high=3))))
case("OneHot#axis", 11)(lambda k: k.out(k.node("OneHot", k.x(2, k.n, dtype=I, low=-4, high=5), k.c(4), k.c([-1, 5], F), axis=0)))
case("CumSum#int", 14)(lambda k: k.out(k.node("CumSum", k.x(2, k.n, dtype=I), k.c(-1), exclusive=1)))
case("Cast#round", 9)(lambda k: k.out(k.node("Cast", k.node("Cast", k.x(2, k.n), to=10), to=1)))
case("Cast#bool")(lambda k: k.out(k.node("Cast", k.x(2, k.n, dtype=B), to=6)))
case("Where#int", 9)(lambda k: k.out(k.node("Where", k.x(2, k.n, dtype=B), k.x(2, 1, dtype=I), k.c(3))))
case("Einsum#trace", 12)(lambda k: k.out(k.node("Einsum", k.x(2, k.n, 3), k.x(3, k.n), equation="bnd,dn->bn")))
case("Einsum#sum", 12)(lambda k: k.out(k.node("Einsum", k.x(2, k.n, 3), equation="abc->b")))
case("Einsum#dots", 12)(lambda k: k.out(k.node("Einsum", k.x(2, k.n, 3), k.x(3, 4), equation="...i,ij->...j")))
case("LSTM#both")(lambda k: k.out(*k.node(
    "LSTM", k.x(k.n + 1, 2, 2), k.x(2, 12, 2), k.x(2, 12, 3), k.x(2, 24), hidden_size=3, direction="bidirectional", outputs=3)))
case("LSTM#reverse")(lambda k: k.out(*k.node(
    "LSTM", k.x(k.n + 1, 2, 2), k.x(1, 12, 2), k.x(1, 12, 3), k.x(1, 24), "", k.x(1, 2, 3), k.x(1, 2, 3), hidden_size=3,
    direction="reverse", outputs=3)))
case("GRU#linear")(lambda k: k.out(*k.node(
    "GRU", k.x(k.n + 1, 2, 2), k.x(2, 9, 2), k.x(2, 9, 3), k.x(2, 18), hidden_size=3, direction="bidirectional",
    linear_before_reset=1, outputs=2)))
case("Attention#causal", 23)(lambda k: k.out(k.node("Attention", k.x(2, 2, k.n, 4), k.x(2, 2, 3, 4), k.x(2, 2, 3, 4), is_causal=1)))
case("Attention#shared", 23)(lambda k: k.out(k.node("Attention", k.x(1, 4, k.n, 4), k.x(1, 2, 3, 4), k.x(1, 2, 3, 4))))
case("Attention#masked", 23)(lambda k: k.out(k.node(
    "Attention", k.x(2, k.n, 8), k.x(2, 3, 8), k.x(2, 3, 8), k.x(k.n, 3), q_num_heads=2, kv_num_heads=2, scale=0.3)))
case("DequantizeLinear#axis", 13)(lambda k: k.out(k.node(
    "DequantizeLinear", k.x(2, 3, k.n, dtype=np.int8, low=-9, high=9), k.c([0.1, 0.2, 0.5], F), k.c([1, 0, -1], np.int8), axis=1)))
case("QuantizeLinear#axis", 13)(lambda k: k.out(k.node(
    "QuantizeLinear", k.x(2, 3, k.n), k.c([0.1, 0.2, 0.5], F), k.c([1, 0, -1], np.int8), axis=1)))
case("Shape#part", 15)(lambda k: k.out(k.node("Shape", k.x(2, k.n, 3), start=-2, end=3)))
case("Hardmax#ties")(lambda k: k.out(k.node("Hardmax", k.x(3, k.n, data=np.zeros((3, k.n), F)), axis=-1)))
case("Round#halves", 11)(lambda k: k.out(k.node("Round", k.x(2, k.n, data=np.resize(np.arange(-3, 4, 0.5, F), (2, k.n))))))

# Two operators.
case("Two#chain")(lambda k: k.out(k.node("Relu", k.node("Add", k.x(2, k.n), k.c(1, F)))))
case("Two#argmax", 9)(lambda k: k.out(k.node("Cast", k.node("ArgMax", k.x(2, k.n + 1), axis=1), to=1)))
case("Two#conv")(lambda k: k.out(k.node("Relu", k.node("Conv", k.x(1, 2, 4, 4), k.c(np.ones((3, 2, 1, 1)), F)))))
case("Two#reshape", 8)(lambda k: k.out(k.node("Expand", k.node("Flatten", k.x(2, k.n, 1), axis=1), k.c([1, 2, k.n]))))
case("Two#softmax")(lambda k: k.out(k.node("Mul", k.node("Softmax", k.x(2, k.n), axis=1), k.c(2, F))))
case("Two#slope", 8)(lambda k: k.out(k.node("PRelu", k.node("Expand", k.x(1, k.n), k.c([3, k.n])), k.x(3, k.n))))
case("Two#queries", 23)(lambda k: k.out(k.node(
    "Attention", k.node("Expand", k.x(1, 2, k.n, 4), k.c([2, 2, k.n, 4])), k.x(2, 2, 5, 4), k.x(2, 2, 5, 4))))
case("Two#keys", 23)(lambda k: k.out(k.node(
    "Attention", k.x(2, 2, 3, 4), k.node("Expand", k.x(1, 2, k.n, 4), k.c([2, 2, k.n, 4])), k.x(2, 2, k.n, 4))))
case("Two#mask", 23)(lambda k: k.out(k.node(
    "Attention", k.x(1, 4, 3, 4), k.x(1, 2, k.n, 4), k.x(1, 2, k.n, 4), k.node("Neg", k.x(3, k.n)))))
case("Two#layernorm", 8)(lambda k: (lambda x: k.out(k.node("Div", k.node("Sub", x, k.node("Mean", x, x)), k.c(3, F))))(k.x(2, k.n)))
