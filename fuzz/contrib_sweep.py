"""Operators of ONNX Runtime's domain com.microsoft, each in small models of its own: ONNX Runtime's results beside ours.

    python fuzz/contrib_sweep.py target/release/mlc-rewrite [NAME...]

Needs onnx and onnxruntime. Prints a line per case, and ends with exit code 1 if a result differs or a model is refused. A case that ONNX
Runtime itself refuses is shown as such.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)
B, S, H, D = 2, 4, 2, 8
E = H * D


def f(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def i32(values):
    return np.array(values, np.int32)


def i64(values):
    return np.array(values, np.int64)


def positive(*shape):
    return RANDOM.uniform(0.5, 1.5, size=shape).astype(np.float32)


def cases():
    """Pairs of a name and (operator, inputs, attributes, outputs wanted)."""
    for act, attrs in [
        ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 1.5}),
        ("Selu", {"activation_alpha": 1.6, "activation_gamma": 1.1}), ("Softplus", {}), ("Softsign", {}),
        ("ThresholdedRelu", {"activation_alpha": 0.7}), ("Celu", {"activation_alpha": 0.7}),
    ]:
        yield f"gemm_{act}", ("FusedGemm", [f(3, 5), f(4, 5), f(4)], {"activation": act, "transB": 1, **attrs}, 1)
    yield "gemm_factors", ("FusedGemm", [f(5, 3), f(5, 4), f(3, 1)],
                           {"activation": "Relu", "transA": 1, "alpha": 0.5, "beta": 2.0}, 1)
    yield "gemm_no_bias", ("FusedGemm", [f(3, 5), f(5, 4)], {"activation": "Tanh"}, 1)
    for act, params in [("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]),
                        ("HardSigmoid", [0.3, 0.4])]:
        attrs = {"activation": act, "pads": [1, 1, 1, 1], "strides": [2, 1], **({"activation_params": params} if params else {})}
        yield f"conv_{act}", ("FusedConv", [f(1, 4, 6, 5), f(6, 4, 3, 3), f(6)], attrs, 1)
    yield "conv_sum", ("FusedConv", [f(1, 4, 6, 6), f(4, 2, 3, 3), f(4), f(1, 4, 6, 6)],
                       {"activation": "Relu", "pads": [1, 1, 1, 1], "group": 2}, 1)
    yield "conv_same", ("FusedConv", [f(1, 4, 6, 6), f(4, 4, 2, 2)], {"activation": "Relu", "auto_pad": "SAME_UPPER"}, 1)
    for ta in (0, 1):
        for tb in (0, 1):
            yield f"matmul_{ta}{tb}", ("FusedMatMul", [f(2, 3, 5, 4) if ta else f(2, 3, 4, 5), f(2, 3, 6, 5) if tb else f(2, 3, 5, 6)],
                                       {"transA": ta, "transB": tb, "alpha": 0.3}, 1)
            for ba, bb in ((1, 0), (0, 1), (1, 1)):
                def side(batch, rows, columns):
                    return f(rows, 2, 3, columns) if batch else f(2, 3, rows, columns)
                a = side(ba, 5, 4) if ta else side(ba, 4, 5)
                b = side(bb, 6, 5) if tb else side(bb, 5, 6)
                yield f"matmul_{ta}{tb}_batch{ba}{bb}", (
                    "FusedMatMul", [a, b], {"transA": ta, "transB": tb, "transBatchA": ba, "transBatchB": bb}, 1)
    yield "matmul_vector", ("FusedMatMul", [f(5), f(2, 5, 3)], {"alpha": 2.0}, 1)
    yield "matmul_column", ("FusedMatMul", [f(2, 3, 5), f(5)], {"alpha": 2.0}, 1)
    yield "gelu", ("Gelu", [f(3, 8)], {}, 1)
    yield "fast_gelu", ("FastGelu", [f(3, 8)], {}, 1)
    yield "fast_gelu_bias", ("FastGelu", [f(3, 8), f(8)], {}, 1)
    yield "bias_gelu", ("BiasGelu", [f(3, 8), f(8)], {}, 1)
    yield "quick_gelu", ("QuickGelu", [f(3, 8)], {"alpha": 1.3}, 1)
    yield "quick_gelu_default", ("QuickGelu", [f(3, 8)], {}, 1)
    x = lambda: f(B, S, E)
    for skip in (lambda: f(B, S, E), lambda: f(1, S, E), lambda: f(S, E)):
        k = skip()
        r = f"_{k.ndim}_{k.shape[0]}"
        yield "skip_ln" + r, ("SkipLayerNormalization", [x(), k, f(E), f(E), f(E)], {"epsilon": 1e-5}, 4)
        yield "skip_rms" + r, ("SkipSimplifiedLayerNormalization", [x(), k, f(E), f(E)], {"epsilon": 1e-5}, 4)
    yield "skip_ln_plain", ("SkipLayerNormalization", [x(), x(), f(E)], {}, 1)
    yield "simplified", (":SimplifiedLayerNormalization", [x(), f(E)], {"epsilon": 1e-5, "axis": -1}, 2)
    yield "simplified_axis", (":SimplifiedLayerNormalization", [x(), f(S, E)], {"epsilon": 1e-5, "axis": 1}, 2)
    # Attention
    w, z = f(6, 3 * E), f(3 * E)
    row = lambda: f(B, S, 6)
    P = 3
    past = f(2, B, H, P, D)
    bias = lambda t: f(1, H, S, t)
    masks = {
        "ends": (i32([2, 4]), 0), "ends_starts": (i32([4, 3, 1, 0]), 0), "columns": (i32([[1, 1, 0, 1], [1, 1, 1, 1]]), 0),
        "rows": (RANDOM.integers(0, 2, (B, S, S)).astype(np.int32), 0), "long": (i32([3, 4, 0, 3, 7, 0, 3, 7]), 0),
        "columns_past": (i32([[1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1]]), 1), "ends_past": (i32([5, 7]), 1),
        "square": (RANDOM.integers(0, 2, (B, 1, 9, 9)).astype(np.int32), 1),
    }
    for uni in (0, 1):
        a = {"num_heads": H, "unidirectional": uni}
        yield f"attention_{uni}", ("Attention", [row(), w, z], a, 1)
        yield f"attention_past_{uni}", ("Attention", [row(), w, z, None, past], a, 2)
        yield f"attention_bias_{uni}", ("Attention", [row(), w, z, None, None, bias(S)], a, 2)
        yield f"attention_bias_past_{uni}", ("Attention", [row(), w, None, i32([[1] * 6 + [0]] * B), past, bias(S + P)], a, 2)
        for name, (m, has_past) in masks.items():
            yield f"attention_{name}_{uni}", ("Attention", [row(), w, z, m, past if has_past else None], a, 2)
    yield "attention_sizes", ("Attention", [row(), f(6, 2 * E + 10), f(2 * E + 10)],
                              {"num_heads": H, "qkv_hidden_sizes": [E, E, 10], "scale": 0.3}, 1)
    # MultiHeadAttention
    h = {"num_heads": H}
    L = 5
    mh = lambda *args, out=1, **attrs: ("MultiHeadAttention", list(args), {**h, **attrs}, out)
    yield "mha", mh(x(), x(), x())
    yield "mha_cross", mh(x(), f(B, L, E), f(B, L, 6), scale=0.4)
    yield "mha_bias", mh(x(), x(), f(B, S, 6), f(2 * E + 6))
    yield "mha_packed", mh(f(B, S, H, 3, D), None, None)
    yield "mha_packed_kv", mh(x(), f(B, L, H, 2, D), None)
    yield "mha_apart", mh(x(), f(B, H, L, D), f(B, H, L, D))
    yield "mha_apart_bias", mh(x(), f(B, H, L, D), f(B, H, L, D), np.concatenate([f(E), np.zeros(2 * E, np.float32)]))
    yield "mha_ends", mh(x(), f(B, L, E), f(B, L, E), None, i32([3, 5]))
    yield "mha_long", mh(x(), f(B, L, E), f(B, L, E), None, i32([3, 5, 0, 4, 8, 0, 5, 10]))
    yield "mha_columns", mh(x(), f(B, L, E), f(B, L, E), None, i32([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]))
    yield "mha_rows", mh(x(), f(B, L, E), f(B, L, E), None, RANDOM.integers(0, 2, (B, S, L)).astype(np.int32))
    yield "mha_mask", mh(x(), f(B, L, E), f(B, L, E), None, None, f(1, H, S, L))
    yield "mha_mask_one", mh(x(), f(B, L, E), f(B, L, E), None, i32([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]), f(B, 1, S, L))
    yield "mha_causal", mh(x(), x(), x(), unidirectional=1)
    yield "mha_past", mh(x(), x(), x(), None, None, None, f(B, H, P, D), f(B, H, P, D), out=3)
    yield "mha_past_causal", mh(x(), x(), x(), f(3 * E), None, None, f(B, H, P, D), f(B, H, P, D), out=3, unidirectional=1)
    yield "mha_past_columns", mh(x(), x(), x(), f(3 * E), i32([[1] * 5 + [0, 1], [1] * 7]), f(1, H, S, S + P),
                                 f(B, H, P, D), f(B, H, P, D), out=3)
    yield "mha_past_new_columns", mh(x(), x(), x(), None, i32([[1, 0, 1, 1], [1] * 4]), None, f(B, H, P, D), f(B, H, P, D), out=3)
    yield "mha_scores", mh(x(), x(), x(), out=4)
    yield "mha_scores_mask", mh(x(), x(), x(), None, None, f(1, H, S, S), out=4)
    # DecoderMaskedMultiHeadAttention
    y = lambda: f(B, 1, E)
    dm = lambda *args, out=1, **attrs: ("DecoderMaskedMultiHeadAttention", list(args), {**h, **attrs}, out)
    room = lambda: f(B, H, 6, D)
    shared = {"past_present_share_buffer": 1}
    yield "decoder", dm(y(), y(), y(), None, None, room(), room(), i32([3]), out=3, **shared)
    yield "decoder_bias", dm(y(), y(), y(), i32([[1, 1, 1, 1], [0, 1, 1, 1]]), f(1, H, 1, P + 1), room(), room(), i32([3]), None, None,
                             f(3 * E), out=3, **shared)
    yield "decoder_cross", dm(y(), f(B, H, L, D), f(B, H, L, D), i32([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]))
    # GroupQueryAttention: ONNX Runtime rotates heads of a multiple of 16 elements.
    KH, QH, W = 2, 4, 16

    def gqa(b, s, past_room, total, lengths, packed=False, mask=None, sink=None, out=3, positions=None, cache=None, norms=None, **attrs):
        q = f(b, s, QH * W + (2 * KH * W if packed else 0))
        k, v = (None, None) if packed else (f(b, s, KH * W), f(b, s, KH * W))
        state = [f(b, KH, past_room, W), f(b, KH, past_room, W)] if past_room else [None, None]
        c, z = (cache, cache * 0.7) if cache is not None else (None, None)
        args = [q, k, v, *state, i32(lengths), i32([total]), c, z, positions, mask, sink]
        if norms:
            args += [None, None, positive(W), positive(W)]
        return ("GroupQueryAttention", args, {"num_heads": QH, "kv_num_heads": KH, **attrs}, out)

    cache = f(16, W // 2)
    yield "gqa_prompt", gqa(1, 4, 0, 4, [3])
    yield "gqa_prompt_batch", gqa(2, 4, 0, 4, [3, 3])
    yield "gqa_packed", gqa(1, 4, 0, 4, [3], packed=True)
    yield "gqa_next", gqa(1, 1, 5, 6, [5])
    yield "gqa_next_batch", gqa(2, 1, 5, 6, [5, 3])
    yield "gqa_rotary", gqa(1, 4, 0, 4, [3], cache=cache, do_rotary=1)
    yield "gqa_rotary_next", gqa(1, 1, 5, 6, [5], cache=cache, do_rotary=1)
    yield "gqa_rotary_next_batch", gqa(2, 1, 5, 6, [5, 3], cache=cache, do_rotary=1)
    yield "gqa_rotary_pairs", gqa(1, 4, 0, 4, [3], cache=cache, do_rotary=1, rotary_interleaved=1)
    yield "gqa_rotary_positions", gqa(1, 1, 5, 6, [5], cache=cache, do_rotary=1, positions=i64([[7]]))
    yield "gqa_window", gqa(1, 6, 0, 6, [5], local_window_size=3)
    yield "gqa_window_next", gqa(1, 1, 6, 7, [6], local_window_size=3)
    yield "gqa_softcap", gqa(1, 4, 0, 4, [3], softcap=0.8)
    yield "gqa_softcap_mask", gqa(1, 4, 0, 4, [3], softcap=0.8, mask=f(1, QH, 4, 4))
    yield "gqa_mask", gqa(1, 4, 0, 4, [3], mask=f(1, 1, 4, 4))
    yield "gqa_smooth", gqa(1, 4, 0, 4, [3], smooth_softmax=1)
    yield "gqa_sink", gqa(1, 4, 0, 4, [3], sink=f(QH))
    yield "gqa_scale", gqa(1, 4, 0, 4, [3], scale=0.2)
    yield "gqa_norms", gqa(1, 4, 0, 4, [3], norms=True, qk_norm_epsilon=1e-3)
    yield "gqa_more", gqa(1, 3, 5, 8, [7])
    yield "gqa_roomy", gqa(1, 1, 8, 6, [5])
    yield "gqa_roomy_batch", gqa(2, 1, 8, 6, [5, 3])
    yield "gqa_scores", gqa(1, 4, 0, 4, [3], out=4, qk_output=2)
    yield "gqa_scores_before", gqa(1, 4, 0, 4, [3], out=4, qk_output=1)
    yield "gqa_whole", gqa(1, 4, 0, 4, [3], causal=0)
    # RotaryEmbedding
    for pairs in (0, 1):
        r = {"interleaved": pairs}
        yield f"rope_3d_{pairs}", ("RotaryEmbedding", [x(), i64([[0, 1, 2, 3], [3, 4, 5, 6]]), f(9, D // 2), f(9, D // 2)], r, 1)
        yield f"rope_offset_{pairs}", ("RotaryEmbedding", [x(), i64([2]), f(9, D // 2), f(9, D // 2)], r, 1)
        yield f"rope_4d_{pairs}", ("RotaryEmbedding", [f(B, H, S, D), i64([2]), f(9, D // 2), f(9, D // 2)], r, 1)
        yield f"rope_part_{pairs}", ("RotaryEmbedding", [x(), i64([2]), f(9, 2), f(9, 2)],
                                     {**r, "rotary_embedding_dim": 4, "num_heads": H}, 1)
    # EmbedLayerNormalization
    ids = i32([[1, 5, 2, 0], [3, 3, 4, 1]])
    tables = [f(7, E), f(6, E), f(2, E)]
    yield "embed", ("EmbedLayerNormalization", [ids, i32([[0, 0, 1, 1]] * 2), *tables, f(E), f(E), i32([[1, 1, 1, 0], [1, 1, 1, 1]])],
                    {"epsilon": 1e-5}, 3)
    yield "embed_plain", ("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, f(E), f(E)], {}, 2)
    yield "embed_positions", ("EmbedLayerNormalization", [ids, None, tables[0], tables[1], None, f(E), f(E), None, i32([[5, 4, 3, 2]] * 2)],
                              {}, 2)
    # Images, choices and tables of few bits
    u8 = lambda *shape: RANDOM.integers(0, 256, shape).astype(np.uint8)
    i8 = lambda *shape: RANDOM.integers(-128, 128, shape).astype(np.int8)
    by, at = lambda v: np.float32(v), lambda v, t=np.uint8: t(v)
    for last, t in ((0, np.uint8), (1, np.uint8), (0, np.int8), (1, np.int8)):
        image = (u8 if t == np.uint8 else i8)(*((1, 7, 6, 4) if last else (1, 4, 7, 6)))
        kind = f"{last}_{t.__name__}"
        for extra, more in (("", {}), ("_pad", {"pads": [1, 0, 1, 2], "strides": [2, 1]}), ("_include", {"pads": [1, 1, 1, 1], "count_include_pad": 1}),
                            ("_ceil", {"strides": [2, 2], "ceil_mode": 1}), ("_same", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})):
            yield f"q_average_{kind}{extra}", ("QLinearAveragePool", [image, by(0.3), at(3, t), by(0.237), at(5, t)],
                                               {"kernel_shape": [3, 3], "channels_last": last, **more}, 1)
            if last and "count_include_pad" not in more:
                yield f"nhwc_max_{kind}{extra}", ("NhwcMaxPool", [image], {"kernel_shape": [3, 3], **more}, 1)
        for group in (1, 2):
            w = RANDOM.integers(-60, 60, (6, 4 // group, 3, 2)).astype(np.int8)
            scales = np.abs(f(6)) * 0.01 + np.float32(0.002)
            yield f"q_conv_{kind}_{group}", ("QLinearConv", [
                image, by(0.05), at(7, t), w, scales, np.zeros(6, np.int8), by(0.1), at(11, t), RANDOM.integers(-900, 900, 6).astype(np.int32)],
                {"channels_last": last, "group": group, "pads": [1, 0, 1, 1], "strides": [2, 1]}, 1)
    yield "q_where", ("QLinearWhere", [np.array([[True], [False]]), u8(2, 5), by(0.3), at(3), u8(5), by(0.7), at(100), by(0.5), at(60)], {}, 1)
    gathered = i64([[2, 0, 1], [3, 3, 0]])
    for bits in (4, 8):
        per = 8 // bits
        for zeros in (0, 1):
            width = -(-3 // per)
            yield f"gather_few_{bits}_{zeros}", ("GatherBlockQuantized", [
                u8(4, 48 // per), gathered, f(4, 3), u8(4, width) if zeros else None], {"bits": bits, "block_size": 16}, 1)
    yield "transpose_matmul", ("TransposeMatMul", [f(2, 5, 4), f(2, 6, 5)], {"transA": 1, "transB": 1, "alpha": 0.3}, 1)
    yield "matmul_16", ("MatMulInteger16", [RANDOM.integers(-900, 900, (3, 4)).astype(np.int16), RANDOM.integers(-900, 900, (4, 2)).astype(np.int16)], {}, 1)
    for upper in (0, 1):
        yield f"trilu_{upper}", ("Trilu", [f(2, 4, 5), np.int64(1)], {"upper": upper}, 1)
    for metric in ("sqeuclidean", "euclidean"):
        yield f"cdist_{metric}", ("CDist", [f(3, 4), f(5, 4)], {"metric": metric}, 1)
    yield "expand_dims", ("ExpandDims", [f(3, 4), np.int32(-1)], {}, 1)
    yield "gather_nd", ("GatherND", [f(3, 4), i64([[0, 1], [2, 3]])], {}, 1)
    yield "pad", ("Pad", [f(3, 4), i64([1, 0, 0, 2]), np.float32([0.5])], {}, 1)
    yield "range", ("Range", [np.float32(1), np.float32(4), np.float32(0.5)], {}, 1)
    tables = [u8(7, E), u8(6, E), u8(2, E)]
    bytes_of = [by(0.01), by(0.02), by(0.03), by(0.01), by(0.02), at(120), at(130), at(125), at(100), at(128)]
    yield "q_embed", ("QEmbedLayerNormalization", [ids, i32([[0, 0, 1, 1]] * 2), *tables, u8(E), u8(E), i32([[1, 1, 1, 0], [1, 1, 1, 1]]), *bytes_of],
                      {"epsilon": 1e-5}, 2)


#: Inputs that decide shapes lie in the model.
CONSTANT = {"GroupQueryAttention": [6], "DecoderMaskedMultiHeadAttention": [7], "QLinearConv": [1, 2, 3, 4, 5, 6, 7, 8], "GatherBlockQuantized": [0, 2, 3], "Trilu": [1],
            "ExpandDims": [1], "Pad": [1], "Range": [0, 1, 2], "QEmbedLayerNormalization": list(range(2, 18))}


def build(op, inputs, attrs, outputs):
    domain = "" if op.startswith(":") else "com.microsoft"
    op = op.lstrip(":")
    inputs = [x if x is None else np.asarray(x) for x in inputs]
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    fixed = [i for i in CONSTANT.get(op, []) if i < len(inputs) and inputs[i] is not None]
    feeds = {n: x for i, (n, x) in enumerate(zip(names, inputs)) if x is not None and i not in fixed}
    given = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()]
    stored = [numpy_helper.from_array(inputs[i], f"x{i}") for i in fixed]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    whole = {("EmbedLayerNormalization", 1), ("QEmbedLayerNormalization", 1), ("MatMulInteger16", 0)}
    same = {"QLinearAveragePool", "NhwcMaxPool", "QLinearConv", "QLinearWhere"}
    first = helper.np_dtype_to_tensor_dtype(next(x for x in inputs if x is not None and x.dtype != bool).dtype)
    kind = [TensorProto.INT32 if (op, i) in whole else first if op in same else TensorProto.FLOAT for i in range(outputs)]
    out = [helper.make_tensor_value_info(n, k, None) for n, k in zip(results, kind)]
    graph = helper.make_graph([node], "case", given, out, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=8)
    return model, feeds


def theirs(model, feeds, outputs):
    """ONNX Runtime's outputs; those that it does not compute are None."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def specified(op, inputs, output, value):
    """What the documentation says of an output: states beyond the stored keys are anything, and a score that does not count is -inf or the
    lowest number."""
    if op == "GroupQueryAttention" and output in ("y1", "y2"):
        value = value.copy()
        for b, last in enumerate(inputs[5]):
            value[b, :, last + 1:] = 0
    return np.where(value < -1e30, -np.inf, value) if value.dtype == np.float32 else value


def main():
    command, chosen = sys.argv[1], sys.argv[2:]
    bad = refused = same = 0
    for name, (op, inputs, attrs, outputs) in cases():
        if chosen and not any(name.startswith(c) for c in chosen):
            continue
        model, feeds = build(op, inputs, attrs, outputs)
        # What ONNX Runtime declares and does not compute is asked of neither.
        skipped = {"SkipLayerNormalization": (1, 2), "SkipSimplifiedLayerNormalization": (1, 2)}.get(op, ()) if outputs == 4 else ()
        for i in skipped:
            model.graph.node[0].output[i] = ""
        kept = [o for i, o in enumerate(model.graph.output) if i not in skipped]
        del model.graph.output[:]
        model.graph.output.extend(kept)
        try:
            expected = theirs(model, feeds, outputs)
        except Exception as error:  # noqa: BLE001
            refused += 1
            print(f"{name:28} refused by ONNX Runtime: {str(error).split('Status Message: ')[-1].splitlines()[0][:150]}")
            expected = None
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.onnx")
            onnx.save(model, path)
            np.savez(os.path.join(folder, "in.npz"), **feeds)
            for kind in (["--backend", "reference", "--no-optimize"], ["--backend", "cpu"]):
                done = subprocess.run(
                    [command, "run", path, "--inputs", os.path.join(folder, "in.npz"), "--outputs", os.path.join(folder, "out.npz"), *kind],
                    capture_output=True, text=True)
                if done.returncode != 0:
                    bad += 1
                    print(f"{name:28} {kind[1]:10} {done.stderr.strip()[:300]}")
                    continue
                if expected is None:
                    continue
                found = np.load(os.path.join(folder, "out.npz"))
                for value, o in zip(expected, model.graph.output):
                    ours, value = specified(op, inputs, o.name, found[o.name]), specified(op, inputs, o.name, value)
                    near = ours.shape == value.shape and ours.dtype == value.dtype and np.allclose(ours, value, rtol=2e-4, atol=2e-5)
                    if not near:
                        bad += 1
                        gap = np.abs(ours - value).max() if ours.shape == value.shape else f"{ours.shape} {value.shape}"
                        print(f"{name:28} {kind[1]:10} {o.name} differs by {gap}")
                    else:
                        same += 1
    print(f"{same} outputs equal, {bad} faults, {refused} cases refused by ONNX Runtime")
    sys.exit(1 if bad else 0)


main()
