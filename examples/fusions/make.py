"""Writes the models of docs/why-not-fused.md: python examples/fusions/make.py, with the packages onnx and numpy."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent


def node(op, inputs, output, **attrs):
    """A node that is called as what it yields."""
    return helper.make_node(op, inputs.split(), [output], name=output, **attrs)


def write(name, nodes, inputs, outputs, opset=17, **constants):
    """A model; weights are small numbers that differ."""
    random = np.random.default_rng(0)

    def value(of):
        name, shape = of
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def constant(of):
        name, given = of
        if isinstance(given, tuple):
            given = random.uniform(0.25, 1, given).astype(np.float32)
        elif isinstance(given, list):
            given = np.array(given, np.int64)
        else:
            given = np.array(given, np.float32)
        return numpy_helper.from_array(given, name)

    graph = helper.make_graph(
        nodes,
        name,
        list(map(value, inputs.items())),
        list(map(value, outputs.items())),
        list(map(constant, constants.items())),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model.producer_name = "make.py"
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / f"{name}.onnx")


IMAGE = [1, 8, 16, 16]

write(
    "conv_bn_leaky",
    [
        node("Conv", "x w", "conv"),
        node("BatchNormalization", "conv scale shift mean var", "norm"),
        node("LeakyRelu", "norm", "leaky", alpha=0.1),
    ],
    {"x": IMAGE},
    {"leaky": IMAGE},
    w=(8, 8, 1, 1), scale=(8,), shift=(8,), mean=(8,), var=(8,),
)
write(
    "linear_norm_relu",
    [
        node("MatMul", "x w", "linear"),
        node("LayerNormalization", "linear scale shift", "norm"),
        node("Relu", "norm", "relu"),
    ],
    {"x": [64, 32]},
    {"relu": [64, 32]},
    w=(32, 32), scale=(32,), shift=(32,),
)
write(
    "conv_pool",
    [
        node("Conv", "x w", "conv", pads=[1, 1, 1, 1]),
        node("MaxPool", "conv", "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ],
    {"x": IMAGE},
    {"pool": [1, 8, 8, 8]},
    w=(8, 8, 3, 3),
)
write(
    "two_norms",
    [
        node("Conv", "x w1", "conv1"),
        node("BatchNormalization", "conv1 s1 b1 m1 v1", "norm1"),
        node("Conv", "norm1 w2", "conv2"),
        node("BatchNormalization", "conv2 s2 b2 m2 v2", "norm2"),
    ],
    {"x": IMAGE},
    {"norm2": IMAGE},
    w1=(8, 8, 1, 1), s1=(8,), b1=(8,), m1=(8,), v1=(8,),
    w2=(8, 8, 1, 1), s2=(8,), b2=(8,), m2=(8,), v2=(8,),
)
write(
    "attention",
    [
        node("MatMul", "q k", "scores"),
        node("Div", "scores root", "scaled"),
        node("Add", "scaled mask", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("MatMul", "weights v", "context"),
    ],
    {"q": [1, 4, 32, 16], "k": [1, 4, 16, 32], "v": [1, 4, 32, 16], "mask": [1, 1, 1, 32]},
    {"context": [1, 4, 32, 16]},
    root=4.0,
)
write(
    "sum_of_cosines",
    [node("Cos", "x", "cos"), node("ReduceSum", "cos", "sum", keepdims=0)],
    {"x": [33]},
    {"sum": []},
)
write(
    "five_products",
    [node("Mul", f"x{i} two", f"mul{i}") for i in range(5)]
    + [node("Add", f"{'mul0' if i == 1 else f'add{i - 1}'} mul{i}", f"add{i}") for i in range(1, 5)],
    {f"x{i}": [10, 20] for i in range(5)},
    {"add4": [10, 20]},
    two=2.0,
)
write(
    "pool_reshape",
    [
        node("GlobalAveragePool", "x", "pool"),
        node("Reshape", "pool flat", "reshape"),
    ],
    {"x": [1, 512, 7, 7]},
    {"reshape": [1, 512]},
    flat=[1, 512],
)
write(
    "batched_bias",
    [node("MatMul", "x w", "product"), node("Add", "product b", "sum")],
    {"x": [1, 32, 10]},
    {"sum": [1, 32, 16]},
    w=(1, 10, 16), b=(16,),
)
write(
    "read_twice",
    [
        node("MatMul", "x w", "product"),
        node("Mul", "product half", "scaled"),
        node("ReduceMean", "product", "mean", axes=[1]),
        node("Sub", "scaled mean", "centred"),
    ],
    {"x": [64, 32]},
    {"centred": [64, 32]},
    w=(32, 32), half=0.5,
)
write(
    "bias_gelu",
    [node("Add", "x b", "biased"), node("Gelu", "biased", "gelu")],
    {"x": [64, 32]},
    {"gelu": [64, 32]},
    opset=20,
    b=(32,),
)
write(
    "differences",
    [
        node("Slice", "x one end axis", "after"),
        node("Slice", "x zero last axis", "before"),
        node("Sub", "after before", "step"),
        node("Mul", "step step", "square"),
        node("ReduceSum", "square", "sum", keepdims=0),
    ],
    {"x": [16, 16, 16]},
    {"sum": []},
    one=[1], end=[16], zero=[0], last=[15], axis=[0],
)
write(
    "conv_silu",
    [
        node("Conv", "x w b", "conv", pads=[1, 1, 1, 1]),
        node("Sigmoid", "conv", "gate"),
        node("Mul", "conv gate", "silu"),
    ],
    {"x": IMAGE},
    {"silu": IMAGE},
    w=(8, 8, 3, 3), b=(8,),
)
write(
    "rms_norm",
    [
        node("Pow", "x two", "square"),
        node("ReduceMean", "square", "mean", axes=[-1]),
        node("Add", "mean eps", "shifted"),
        node("Sqrt", "shifted", "root"),
        node("Div", "x root", "unit"),
        node("Mul", "unit scale", "norm"),
    ],
    {"x": [64, 32]},
    {"norm": [64, 32]},
    two=2.0, eps=1e-6, scale=(32,),
)
write(
    "gate_is_output",
    [
        node("Mul", "x slope", "steep"),
        node("Sigmoid", "steep", "gate"),
        node("Mul", "x gate", "quick_gelu"),
    ],
    {"x": [64, 32]},
    {"quick_gelu": [64, 32], "gate": [64, 32]},
    slope=1.702,
)
