"""The cases of `operators.py`: models of one operator, or of the few that runtimes join, at sizes of networks."""

import numpy as np
import onnx
from onnx import TensorProto as TP
from onnx import helper as h
from onnx import numpy_helper as nh

TYPES = {"f": TP.FLOAT, "l": TP.INT64, "b": TP.BOOL}

g = np.random.default_rng(0)
cases = {}


def case(name, nodes, ins, outs=("y",), consts={}, opset=17):
    """A model: nodes as (operator, inputs, outputs, attributes), inputs as {name: (shape, type)}."""
    made = []
    for k, n in enumerate([nodes] if isinstance(nodes, tuple) else nodes):
        op, i, o, attributes = n if len(n) == 4 else (*n, {})
        made.append(h.make_node(op, list(i), list(o), name=f"n{k}", **attributes))
    weights = [nh.from_array(np.asarray(v), k) for k, v in consts.items()]
    inputs = [h.make_tensor_value_info(k, TYPES[t], shape) for k, (shape, t) in ins.items()]
    graph = h.make_graph(made, name, inputs, [h.make_empty_tensor_value_info(o) for o in outs], weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    known = {v.name: v for v in [*model.graph.value_info, *model.graph.output]}
    for o in model.graph.output:
        if not o.type.HasField("tensor_type"):
            o.CopyFrom(known[o.name])
    cases[name] = model


def I(*shape):
    return {"x": (list(shape), "f")}


def w(*shape):
    """Weights as networks are initialised with."""
    return (g.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype("f")


def i64(*v):
    return np.array(v, "int64")


def f32(*v):
    return np.array(v, "float32")


img = I(1, 64, 56, 56)
w = lambda *s: (g.standard_normal(s) * (2 / np.prod(s[1:])) ** 0.5).astype("f")
i64 = lambda *v: np.array(v, "int64")
f32 = lambda *v: np.array(v, "float32")
for mode, ct, nm in [
    ("nearest", "asymmetric", "floor"),
    ("nearest", "half_pixel", "round_prefer_floor"),
    ("linear", "half_pixel", "round_prefer_floor"),
    ("linear", "align_corners", "round_prefer_floor"),
    ("linear", "asymmetric", "floor"),
    ("linear", "pytorch_half_pixel", "floor"),
    ("cubic", "half_pixel", "floor"),
]:
    case(
        f"resize_{mode}_{ct}",
        ("Resize", ["x", "", "s"], ["y"], dict(mode=mode, coordinate_transformation_mode=ct, nearest_mode=nm)),
        img,
        consts={"s": f32(1, 1, 2, 2)},
    )
    case(
        f"resize3_{mode}_{ct}",
        ("Resize", ["x", "", "", "z"], ["y"], dict(mode=mode, coordinate_transformation_mode=ct, nearest_mode=nm)),
        img,
        consts={"z": i64(1, 64, 100, 75)},
    )
case("resize_down", ("Resize", ["x", "", "s"], ["y"], dict(mode="linear")), img, consts={"s": f32(1, 1, 0.5, 0.5)})
case(
    "resize_near_down",
    ("Resize", ["x", "", "s"], ["y"], dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    img,
    consts={"s": f32(1, 1, 0.5, 0.5)},
)
case("upsample9", ("Upsample", ["x", "s"], ["y"], dict(mode="nearest")), img, consts={"s": f32(1, 1, 2, 2)}, opset=9)
case("tile", ("Tile", ["x", "r"], ["y"]), img, consts={"r": i64(1, 1, 2, 2)})
case("tile_batch", ("Tile", ["x", "r"], ["y"]), img, consts={"r": i64(4, 1, 1, 1)})
case("expand", ("Expand", ["x", "r"], ["y"]), I(1, 64, 1, 1), consts={"r": i64(1, 64, 56, 56)})
case("expand_rows", ("Expand", ["x", "r"], ["y"]), I(1, 1, 56, 56), consts={"r": i64(1, 64, 56, 56)})
for mode in ("constant", "reflect", "edge"):
    case(f"pad_{mode}", ("Pad", ["x", "p"], ["y"], dict(mode=mode)), img, consts={"p": i64(0, 0, 1, 1, 0, 0, 1, 1)})
case("depth_to_space", ("DepthToSpace", ["x"], ["y"], dict(blocksize=2)), img)
case("depth_to_space_crd", ("DepthToSpace", ["x"], ["y"], dict(blocksize=2, mode="CRD")), img)
case("space_to_depth", ("SpaceToDepth", ["x"], ["y"], dict(blocksize=2)), img)
case(
    "pixel_shuffle",
    [("Reshape", ["x", "a"], ["u"]), ("Transpose", ["u"], ["v"], dict(perm=[0, 1, 4, 2, 5, 3])), ("Reshape", ["v", "b"], ["y"])],
    img,
    consts={"a": i64(1, 16, 2, 2, 56, 56), "b": i64(1, 16, 112, 112)},
)
case(
    "channel_shuffle",
    [("Reshape", ["x", "a"], ["u"]), ("Transpose", ["u"], ["v"], dict(perm=[0, 2, 1, 3, 4])), ("Reshape", ["v", "b"], ["y"])],
    img,
    consts={"a": i64(1, 2, 32, 56, 56), "b": i64(1, 64, 56, 56)},
)
case("cumsum", ("CumSum", ["x", "a"], ["y"]), I(8, 128, 256), consts={"a": np.array(1, "int64")})
case("cumsum_ex", ("CumSum", ["x", "a"], ["y"], dict(exclusive=1, reverse=1)), I(8, 128, 256), consts={"a": np.array(2, "int64")})
case("topk", ("TopK", ["x", "k"], ["y", "i"]), I(64, 1000), ("y", "i"), consts={"k": i64(5)})
case("argmax", ("ArgMax", ["x"], ["y"], dict(axis=1)), I(1, 64, 56, 56))
case("argmax_last", ("ArgMax", ["x"], ["y"], dict(axis=-1, keepdims=0)), I(64, 1000))
case("softmax_last", ("Softmax", ["x"], ["y"], dict(axis=-1)), I(12, 128, 128))
case("softmax_channel", ("Softmax", ["x"], ["y"], dict(axis=1)), img)
case("logsoftmax", ("LogSoftmax", ["x"], ["y"], dict(axis=-1)), I(64, 1000))
case(
    "instance_norm", ("InstanceNormalization", ["x", "s", "b"], ["y"]), img, consts={"s": w(64, 1)[:, 0] + 1, "b": w(64, 1)[:, 0]}
)
case(
    "group_norm_21",
    ("GroupNormalization", ["x", "s", "b"], ["y"], dict(num_groups=8)),
    img,
    consts={"s": w(64, 1)[:, 0] + 1, "b": w(64, 1)[:, 0]},
    opset=21,
)
case(
    "group_norm_spelt",
    [
        ("Reshape", ["x", "a"], ["u"]),
        ("InstanceNormalization", ["u", "s1", "b0"], ["v"]),
        ("Reshape", ["v", "b"], ["z"]),
        ("Mul", ["z", "s"], ["q"]),
        ("Add", ["q", "t"], ["y"]),
    ],
    img,
    consts={
        "a": i64(0, 8, -1),
        "s1": np.ones(8, "f"),
        "b0": np.zeros(8, "f"),
        "b": i64(1, 64, 56, 56),
        "s": w(64, 1, 1) + 1,
        "t": w(64, 1, 1),
    },
)
case(
    "layer_norm",
    ("LayerNormalization", ["x", "s", "b"], ["y"], dict(axis=-1)),
    I(1, 196, 768),
    consts={"s": w(768, 1)[:, 0] + 1, "b": w(768, 1)[:, 0]},
)
case(
    "layer_norm_channel",
    ("LayerNormalization", ["x", "s", "b"], ["y"], dict(axis=1)),
    img,
    consts={"s": w(64, 56 * 56).reshape(64, 56, 56) + 1, "b": w(64, 56 * 56).reshape(64, 56, 56)},
)
case(
    "rms_23", ("RMSNormalization", ["x", "s"], ["y"], dict(axis=-1)), I(1, 196, 768), consts={"s": w(768, 1)[:, 0] + 1}, opset=23
)
case("lrn", ("LRN", ["x"], ["y"], dict(size=5)), img)
case("lp_norm", ("LpNormalization", ["x"], ["y"], dict(axis=-1)), I(64, 1000))
case("mean_var_norm", ("MeanVarianceNormalization", ["x"], ["y"]), img)
case(
    "batch_norm",
    ("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"]),
    img,
    consts={"s": w(64, 1)[:, 0] + 1, "b": w(64, 1)[:, 0], "m": w(64, 1)[:, 0], "v": np.abs(w(64, 1)[:, 0]) + 0.5},
)
for (
    op
) in "Relu Sigmoid Tanh Exp Log Sqrt Abs Neg Floor Ceil Round Sign Erf Softplus Softsign Elu Selu Celu LeakyRelu HardSigmoid HardSwish Mish ThresholdedRelu Reciprocal Sin Cos Gelu IsNaN".split():
    case("un_" + op, (op, ["x"], ["y"]), img, opset=20)
case("gelu_tanh", ("Gelu", ["x"], ["y"], dict(approximate="tanh")), img, opset=20)
case("clip", ("Clip", ["x", "a", "b"], ["y"]), img, consts={"a": np.array(0, "f"), "b": np.array(6, "f")})
case("prelu", ("PRelu", ["x", "s"], ["y"]), img, consts={"s": np.abs(w(64, 1, 1))})
case("shrink", ("Shrink", ["x"], ["y"], dict(lambd=0.3, bias=0.1)), img)
two = {"x": ([1, 64, 56, 56], "f"), "z": ([1, 64, 56, 56], "f")}
for op in "Add Sub Mul Div Pow Max Min Mod".split():
    case("bin_" + op, (op, ["x", "z"], ["y"], dict(fmod=1) if op == "Mod" else {}), two)
row = {"x": ([1, 64, 56, 56], "f"), "z": ([1, 64, 1, 1], "f")}
for op in "Add Sub Mul Div Max".split():
    case("row_" + op, (op, ["x", "z"], ["y"]), row)
case("where", ("Where", ["c", "x", "z"], ["y"]), {**two, "c": ([1, 64, 56, 56], "b")})
case("greater_where", [("Greater", ["x", "z"], ["c"]), ("Where", ["c", "x", "z"], ["y"])], two)
case("pow2", ("Pow", ["x", "p"], ["y"]), img, consts={"p": np.array(2, "f")})
case("pow3", ("Pow", ["x", "p"], ["y"]), img, consts={"p": np.array(3, "f")})
case("pow_half", ("Pow", ["x", "p"], ["y"]), img, consts={"p": np.array(0.5, "f")})
for (
    op
) in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare ReduceLogSum".split():
    for nm, ax, sh in (
        ("last", [-1], (12, 128, 128)),
        ("first", [0], (12, 128, 128)),
        ("space", [2, 3], (1, 64, 56, 56)),
        ("channel", [1], (1, 64, 56, 56)),
    ):
        at = dict(keepdims=1)
        if op == "ReduceSum":
            case(f"{op}_{nm}", (op, ["x", "a"], ["y"], at), I(*sh), consts={"a": i64(*ax)})
        else:
            case(f"{op}_{nm}", (op, ["x"], ["y"], dict(axes=ax, **at)), I(*sh))
case("maxpool", ("MaxPool", ["x"], ["y"], dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])), img)
case("maxpool_ceil", ("MaxPool", ["x"], ["y"], dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)), img)
case("maxpool_1", ("MaxPool", ["x"], ["y"], dict(kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2])), img)
case("avgpool", ("AveragePool", ["x"], ["y"], dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])), img)
case("avgpool_inc", ("AveragePool", ["x"], ["y"], dict(kernel_shape=[2, 2], strides=[2, 2], count_include_pad=1)), img)
case("lppool", ("LpPool", ["x"], ["y"], dict(kernel_shape=[2, 2], strides=[2, 2])), img)
case("gap", ("GlobalAveragePool", ["x"], ["y"]), img)
case("gmp", ("GlobalMaxPool", ["x"], ["y"]), img)


def conv(name, c, o, k, gr=1, hw=56, **at):
    case(
        name,
        ("Conv", ["x", "w", "b"], ["y"], dict(kernel_shape=list(k), group=gr, **at)),
        I(1, c, *([hw] * len(k))),
        consts={"w": w(o, c // gr, *k), "b": w(o, 1)[:, 0]},
    )


conv("conv1", 64, 64, (1, 1))
conv("conv3", 64, 64, (3, 3), pads=[1] * 4)
conv("conv3s2", 64, 64, (3, 3), pads=[1] * 4, strides=[2, 2])
conv("conv3d2", 64, 64, (3, 3), pads=[2] * 4, dilations=[2, 2])
conv("conv_dw", 64, 64, (3, 3), 64, pads=[1] * 4)
conv("conv_g", 64, 64, (3, 3), 4, pads=[1] * 4)
conv("conv1d", 64, 64, (3,), pads=[1] * 2, hw=1000)
conv("conv3d", 16, 16, (3, 3, 3), hw=16, pads=[1] * 6)
conv("conv7", 3, 64, (7, 7), hw=224, strides=[2, 2], pads=[3] * 4)
conv("conv1_narrow", 16, 8, (1, 1))
conv("conv_1xk", 64, 64, (1, 7), pads=[0, 3, 0, 3])
conv("patch", 3, 768, (16, 16), hw=224, strides=[16, 16])
case("conv_auto", ("Conv", ["x", "w"], ["y"], dict(auto_pad="SAME_UPPER", strides=[2, 2])), img, consts={"w": w(64, 64, 3, 3)})
case(
    "conv_clip",
    [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), ("Clip", ["u", "a", "b"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3), "a": np.array(0, "f"), "b": np.array(6, "f")},
)
for op in "Relu Sigmoid Tanh HardSwish LeakyRelu Softplus Mish Elu".split():
    case(
        "conv_" + op,
        [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), (op, ["u"], ["y"])],
        img,
        consts={"w": w(64, 64, 3, 3)},
        opset=18,
    )
case(
    "conv_prelu",
    [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), ("PRelu", ["u", "s"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3), "s": np.abs(w(64, 1, 1))},
)
case(
    "conv_silu",
    [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), ("Sigmoid", ["u"], ["v"]), ("Mul", ["u", "v"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3)},
)
case(
    "conv_hswish",
    [
        ("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)),
        ("Add", ["u", "t"], ["a"]),
        ("Clip", ["a", "lo", "hi"], ["b"]),
        ("Mul", ["u", "b"], ["c"]),
        ("Div", ["c", "s"], ["y"]),
    ],
    img,
    consts={"w": w(64, 64, 3, 3), "t": np.array(3, "f"), "lo": np.array(0, "f"), "hi": np.array(6, "f"), "s": np.array(6, "f")},
)
case(
    "conv_add_relu",
    [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), ("Add", ["u", "x"], ["v"]), ("Relu", ["v"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3)},
)
case(
    "conv_mul_scale",
    [("Conv", ["x", "w"], ["u"], dict(pads=[1] * 4)), ("Mul", ["u", "s"], ["v"]), ("Add", ["v", "t"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3), "s": w(64, 1, 1), "t": w(64, 1, 1)},
)
case(
    "pad_conv",
    [("Pad", ["x", "p"], ["u"]), ("Conv", ["u", "w"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3), "p": i64(0, 0, 1, 1, 0, 0, 1, 1)},
)
case(
    "reflect_conv",
    [("Pad", ["x", "p"], ["u"], dict(mode="reflect")), ("Conv", ["u", "w"], ["y"])],
    img,
    consts={"w": w(64, 64, 3, 3), "p": i64(0, 0, 1, 1, 0, 0, 1, 1)},
)
case(
    "conv_transpose",
    ("ConvTranspose", ["x", "w", "b"], ["y"], dict(strides=[2, 2])),
    img,
    consts={"w": w(64, 32, 2, 2), "b": w(32, 1)[:, 0]},
)
case(
    "conv_transpose4",
    ("ConvTranspose", ["x", "w"], ["y"], dict(strides=[2, 2], pads=[1] * 4)),
    img,
    consts={"w": w(64, 32, 4, 4)},
)
case(
    "conv_transpose_op",
    ("ConvTranspose", ["x", "w"], ["y"], dict(strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])),
    img,
    consts={"w": w(64, 32, 3, 3)},
)
case(
    "resize_conv",
    [
        (
            "Resize",
            ["x", "", "s"],
            ["u"],
            dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        ),
        ("Conv", ["u", "w"], ["y"], dict(pads=[1] * 4)),
    ],
    img,
    consts={"s": f32(1, 1, 2, 2), "w": w(64, 64, 3, 3)},
)
case(
    "resize_concat_conv",
    [
        (
            "Resize",
            ["x", "", "s"],
            ["u"],
            dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        ),
        ("Concat", ["u", "z"], ["v"], dict(axis=1)),
        ("Conv", ["v", "w"], ["y"]),
    ],
    {**img, "z": ([1, 64, 112, 112], "f")},
    consts={"s": f32(1, 1, 2, 2), "w": w(64, 128, 1, 1)},
)
case(
    "linear_concat_conv",
    [
        ("Resize", ["x", "", "s"], ["u"], dict(mode="linear", coordinate_transformation_mode="align_corners")),
        ("Concat", ["u", "z"], ["v"], dict(axis=1)),
        ("Conv", ["v", "w"], ["y"]),
    ],
    {**img, "z": ([1, 64, 112, 112], "f")},
    consts={"s": f32(1, 1, 2, 2), "w": w(64, 128, 1, 1)},
)
case(
    "tile_concat_conv",
    [("Tile", ["x", "r"], ["u"]), ("Concat", ["u", "z"], ["v"], dict(axis=1)), ("Conv", ["v", "w"], ["y"])],
    {"x": ([1, 64, 1, 1], "f"), "z": ([1, 64, 56, 56], "f")},
    consts={"r": i64(1, 1, 56, 56), "w": w(64, 128, 1, 1)},
)
case(
    "se",
    [
        ("GlobalAveragePool", ["x"], ["p"]),
        ("Conv", ["p", "a"], ["q"]),
        ("Relu", ["q"], ["r"]),
        ("Conv", ["r", "b"], ["s"]),
        ("Sigmoid", ["s"], ["t"]),
        ("Mul", ["x", "t"], ["y"]),
    ],
    img,
    consts={"a": w(16, 64, 1, 1), "b": w(64, 16, 1, 1)},
)
case(
    "aspp",
    [
        ("GlobalAveragePool", ["x"], ["p"]),
        ("Conv", ["p", "a"], ["q"]),
        ("Resize", ["q", "", "", "z"], ["r"], dict(mode="linear")),
        ("Conv", ["x", "b"], ["s"]),
        ("Concat", ["r", "s"], ["y"], dict(axis=1)),
    ],
    img,
    consts={"a": w(64, 64, 1, 1), "b": w(64, 64, 1, 1), "z": i64(1, 64, 56, 56)},
)
case(
    "split3",
    [
        ("Split", ["x"], ["a", "b", "c", "d"], dict(axis=1)),
        ("Relu", ["a"], ["y"]),
        ("Sigmoid", ["b"], ["z"]),
        ("Add", ["c", "d"], ["q"]),
    ],
    img,
    ("y", "z", "q"),
)
case(
    "csp",
    [
        ("Split", ["x"], ["a", "b"], dict(axis=1)),
        ("Conv", ["a", "w"], ["c"], dict(pads=[1] * 4)),
        ("Concat", ["c", "b"], ["y"], dict(axis=1)),
    ],
    img,
    consts={"w": w(32, 32, 3, 3)},
)
case("concat_self", ("Concat", ["x", "x"], ["y"], dict(axis=1)), img)
case(
    "slice_step",
    ("Slice", ["x", "s", "e", "a", "t"], ["y"]),
    img,
    consts={"s": i64(0, 0), "e": i64(56, 56), "a": i64(2, 3), "t": i64(2, 2)},
)
case(
    "focus",
    [
        ("Slice", ["x", "s0", "e", "a", "t"], ["p"]),
        ("Slice", ["x", "s1", "e", "a", "t"], ["q"]),
        ("Slice", ["x", "s2", "e", "a", "t"], ["r"]),
        ("Slice", ["x", "s3", "e", "a", "t"], ["s"]),
        ("Concat", ["p", "q", "r", "s"], ["u"], dict(axis=1)),
        ("Conv", ["u", "w"], ["y"], dict(pads=[1] * 4)),
    ],
    I(1, 3, 320, 320),
    consts={
        "s0": i64(0, 0),
        "s1": i64(1, 0),
        "s2": i64(0, 1),
        "s3": i64(1, 1),
        "e": i64(9999, 9999),
        "a": i64(2, 3),
        "t": i64(2, 2),
        "w": w(32, 12, 3, 3),
    },
)
case("flip", ("Slice", ["x", "s", "e", "a", "t"], ["y"]), img, consts={"s": i64(-1), "e": i64(-99999), "a": i64(3), "t": i64(-1)})
case("gather_rows", ("Gather", ["t", "i"], ["y"]), {"i": ([1, 128], "l")}, consts={"t": w(30522, 768)})
case("gather_axis1", ("Gather", ["x", "i"], ["y"], dict(axis=1)), I(8, 128, 256), consts={"i": i64(*g.integers(0, 128, 64))})
case("gather_nd", ("GatherND", ["x", "i"], ["y"]), I(64, 128, 32), consts={"i": g.integers(0, 60, (100, 2))})
case("gather_el", ("GatherElements", ["x", "i"], ["y"], dict(axis=1)), I(64, 128), consts={"i": g.integers(0, 128, (64, 64))})
case(
    "scatter_nd",
    ("ScatterND", ["x", "i", "u"], ["y"]),
    {"x": ([64, 128], "f"), "u": ([20, 128], "f")},
    consts={"i": g.permutation(64)[:20, None].astype("int64")},
)
case(
    "scatter_el_add",
    ("ScatterElements", ["x", "i", "u"], ["y"], dict(axis=0, reduction="add")),
    {"x": ([64, 128], "f"), "u": ([20, 128], "f")},
    consts={"i": g.integers(0, 64, (20, 128))},
    opset=18,
)
case("onehot", ("OneHot", ["i", "d", "v"], ["y"]), {"i": ([64], "l")}, consts={"d": i64(1000), "v": f32(0, 1)})
case("trilu", ("Trilu", ["x"], ["y"], dict(upper=0)), I(12, 128, 128))
case("transpose", ("Transpose", ["x"], ["y"], dict(perm=[0, 2, 3, 1])), img)
case("transpose_swap", ("Transpose", ["x"], ["y"], dict(perm=[0, 2, 1, 3])), I(1, 128, 12, 64))
for m, k, n in ((128, 768, 768), (1, 768, 3072), (16, 64, 64), (512, 512, 512)):
    case(f"matmul_{m}_{k}_{n}", ("MatMul", ["x", "w"], ["y"]), I(1, m, k), consts={"w": w(k, n)})
    case(
        f"gemm_{m}_{k}_{n}", ("Gemm", ["x", "w", "b"], ["y"], dict(transB=1)), I(m, k), consts={"w": w(n, k), "b": w(n, 1)[:, 0]}
    )
    case(
        f"gemm_relu_{m}_{k}_{n}",
        [("Gemm", ["x", "w", "b"], ["u"], dict(transB=1)), ("Relu", ["u"], ["y"])],
        I(m, k),
        consts={"w": w(n, k), "b": w(n, 1)[:, 0]},
    )
case("matmul_batch", ("MatMul", ["x", "z"], ["y"]), {"x": ([12, 128, 64], "f"), "z": ([12, 64, 128], "f")})
case(
    "matmul_bt",
    [("Transpose", ["z"], ["t"], dict(perm=[0, 2, 1])), ("MatMul", ["x", "t"], ["y"])],
    {"x": ([12, 128, 64], "f"), "z": ([12, 128, 64], "f")},
)
case(
    "einsum_bhqd",
    ("Einsum", ["x", "z"], ["y"], dict(equation="bqhd,bkhd->bhqk")),
    {"x": ([1, 128, 12, 64], "f"), "z": ([1, 128, 12, 64], "f")},
)
case("einsum_sum", ("Einsum", ["x"], ["y"], dict(equation="bij->bj")), I(8, 128, 256))
case(
    "lstm",
    ("LSTM", ["x", "w", "r", "b"], ["y"], dict(hidden_size=128)),
    I(32, 1, 128),
    consts={"w": w(1, 512, 128), "r": w(1, 512, 128), "b": w(1, 1024)},
)
case(
    "gru",
    ("GRU", ["x", "w", "r", "b"], ["y"], dict(hidden_size=128, linear_before_reset=1)),
    I(32, 1, 128),
    consts={"w": w(1, 384, 128), "r": w(1, 384, 128), "b": w(1, 768)},
)
case(
    "rnn",
    ("RNN", ["x", "w", "r", "b"], ["y"], dict(hidden_size=128)),
    I(32, 1, 128),
    consts={"w": w(1, 128, 128), "r": w(1, 128, 128), "b": w(1, 256)},
)
case(
    "bigru",
    ("GRU", ["x", "w", "r", "b"], ["y"], dict(hidden_size=128, direction="bidirectional")),
    I(32, 1, 128),
    consts={"w": w(2, 384, 128), "r": w(2, 384, 128), "b": w(2, 768)},
)
case(
    "grid_sample",
    ("GridSample", ["x", "z"], ["y"], dict(mode="bilinear")),
    {"x": ([1, 64, 56, 56], "f"), "z": ([1, 56, 56, 2], "f")},
)
case(
    "roialign",
    ("RoiAlign", ["x", "r", "i"], ["y"], dict(output_height=7, output_width=7, sampling_ratio=2)),
    {"x": ([1, 64, 56, 56], "f"), "r": ([16, 4], "f")},
    consts={"i": np.zeros(16, "int64")},
)
case(
    "attention23",
    ("Attention", ["q", "k", "v"], ["y"], dict(q_num_heads=12, kv_num_heads=12)),
    {k: ([1, 128, 768], "f") for k in "qkv"},
    opset=23,
)
case("dft", ("DFT", ["x"], ["y"]), I(8, 256, 1), opset=17)
case("det", ("Det", ["x"], ["y"]), I(64, 16, 16))
case("hardmax", ("Hardmax", ["x"], ["y"]), I(64, 1000))
case("eye", ("Mul", ["x", "e"], ["y"]), I(128, 128), consts={"e": np.eye(128, dtype="f")})
case("cast_int", [("Cast", ["x"], ["u"], dict(to=TP.INT32)), ("Cast", ["u"], ["y"], dict(to=TP.FLOAT))], img)
case("cast_half", [("Cast", ["x"], ["u"], dict(to=TP.FLOAT16)), ("Cast", ["u"], ["y"], dict(to=TP.FLOAT))], img)
case(
    "gather_mean",
    [("Gather", ["t", "i"], ["u"]), ("ReduceMean", ["u"], ["y"], dict(axes=[1]))],
    {"i": ([16, 32], "l")},
    consts={"t": w(1000, 128)},
)
case("nonzero", [("NonZero", ["x"], ["y"])], I(64, 128))
case(
    "mask_softmax",
    [("Mul", ["x", "s"], ["a"]), ("Where", ["c", "a", "n"], ["b"]), ("Softmax", ["b"], ["y"])],
    {"x": ([12, 128, 128], "f"), "c": ([1, 1, 128], "b")},
    consts={"s": np.array(0.125, "f"), "n": np.array(-1e9, "f")},
)
case(
    "norm_l2",
    [("Mul", ["x", "x"], ["a"]), ("ReduceSum", ["a", "ax"], ["b"]), ("Sqrt", ["b"], ["c"]), ("Div", ["x", "c"], ["y"])],
    I(64, 1000),
    consts={"ax": i64(-1)},
)
case(
    "global_ctx",
    [
        ("ReduceMean", ["x"], ["m"], dict(axes=[2, 3])),
        ("Sub", ["x", "m"], ["c"]),
        ("Mul", ["c", "c"], ["d"]),
        ("ReduceMean", ["d"], ["v"], dict(axes=[2, 3])),
        ("Add", ["v", "e"], ["w"]),
        ("Sqrt", ["w"], ["q"]),
        ("Div", ["c", "q"], ["y"]),
    ],
    img,
    consts={"e": np.array(1e-5, "f")},
)
