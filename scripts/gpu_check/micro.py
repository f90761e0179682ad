"""Mirage's micro set as ONNX files (M. Wu et al., "Mirage: A Multi-Level Superoptimizer for Tensor Programs", OSDI 2025).

Gated MLP, RMSNorm and product, a product with an adapter of rank 16, and attention of grouped queries over 4096 keys.
"""

from onnx_writer import encoded, model, node, tensor, weight

ROWS = (1, 8, 16)
WIDE, OUT, RANK = 4096, 6144, 16
HEADS, GROUPS, KEYS, FEATURES = 32, 8, 4096, 128


def scalar(name, dtype, value):
    return tensor(name, dtype, (), encoded([value], dtype))


def gated_mlp(b, t):
    nodes = [
        node("MatMul", ["x", "gate"], "g"),
        node("MatMul", ["x", "up"], "u"),
        node("Sigmoid", ["g"], "s"),
        node("Mul", ["g", "s"], "silu"),
        node("Mul", ["silu", "u"], "y"),
    ]
    weights = [weight(n, t, (WIDE, WIDE), "mlp", 0.02) for n in ("gate", "up")]
    return model(nodes, [("x", t, (b, WIDE))], [("y", t, (b, WIDE))], weights)


def norm_product(b, t):
    nodes = [
        node("Mul", ["x", "x"], "squares"),
        node("ReduceMean", ["squares"], "mean", axes=[-1], keepdims=1),
        node("Add", ["mean", "epsilon"], "shifted"),
        node("Sqrt", ["shifted"], "root"),
        node("Div", ["x", "root"], "normed"),
        node("Mul", ["normed", "gain"], "scaled"),
        node("MatMul", ["scaled", "w"], "y"),
    ]
    # The smallest of the types that is used holds 1e-5 but for its rounding.
    weights = [scalar("epsilon", t, 1e-5), weight("gain", t, (WIDE,), "norm", 1.0), weight("w", t, (WIDE, OUT), "norm", 0.02)]
    return model(nodes, [("x", t, (b, WIDE))], [("y", t, (b, OUT))], weights)


def lora(b, t):
    nodes = [
        node("MatMul", ["x", "w"], "wide"),
        node("MatMul", ["x", "down"], "low"),
        node("MatMul", ["low", "up"], "adapted"),
        node("Add", ["wide", "adapted"], "y"),
    ]
    shapes = {"w": (WIDE, WIDE), "down": (WIDE, RANK), "up": (RANK, WIDE)}
    weights = [weight(n, t, s, "lora", 0.02) for n, s in shapes.items()]
    return model(nodes, [("x", t, (b, WIDE))], [("y", t, (b, WIDE))], weights)


def grouped_attention(b, t):
    """One query for each head and element of the batch; the queries of a group share their keys and values."""
    each = HEADS // GROUPS
    nodes = [
        node("Transpose", ["k"], "turned", perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "turned"], "scores"),
        node("Mul", ["scores", "scale"], "scaled"),
        node("Softmax", ["scaled"], "weights", axis=-1),
        node("MatMul", ["weights", "v"], "y"),
    ]
    kept = (b, GROUPS, KEYS, FEATURES)
    asked = (b, GROUPS, each, FEATURES)
    inputs = [("q", t, asked), ("k", t, kept), ("v", t, kept)]
    return model(nodes, inputs, [("y", t, asked)], [scalar("scale", t, FEATURES**-0.5)])


CASES = {"gated_mlp": gated_mlp, "norm_product": norm_product, "lora": lora, "grouped_attention": grouped_attention}


def names():
    """Every case: its name, what makes it, rows, element type."""
    for name, make in CASES.items():
        for t in ("f32", "f16", "bf16"):
            for b in ROWS:
                yield f"{name}_b{b}_{t}", make, b, t


def written(folder, name, make, b, t):
    """The file of a case, written unless it is there."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.write_bytes(make(b, t))
        fresh.replace(path)
    return path
