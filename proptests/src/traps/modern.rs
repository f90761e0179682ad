//! Traps that resemble spellings of recent exporters.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "guard_of_hidden_row",
        "a row that sees no key is zero, not NaN: the guard is needed",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 2, 8]
        v: f32[2, 3, 2, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        w = Softmax(Add(s, f32[4, 2]{0, 0, 0, -inf, -inf, -inf, -inf, 0}); axis = -1)
        y = MatMul(Where(IsNaN(w), 0, w), v)
        -> y",
    ),
    trap(
        "guard_reversed",
        "the guard keeps what is NaN",
        "w: f32[3, 5]
        s = Softmax(Add(w, f32[3, 5]{0, 0, 0, 0, 0, -inf, -inf, -inf, -inf, -inf, 0, 0, 0, 0, 0}); axis = -1)
        y = Where(IsNaN(s), s, 0)
        -> y",
    ),
    trap(
        "equal_to_another",
        "two values are compared, not one with itself",
        "x: f32[4, 5]
        y: f32[4, 5]
        r = Where(Equal(Floor(x), Floor(y)), x, 0)
        -> r",
    ),
    trap(
        "bias_of_positions_transposed",
        "queries and keys are as many, and the bias lies across",
        "q: f32[2, 3, 5, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        b: f32[1, 3, 5, 5]
        s = MatMul(q, Transpose(k; perm = [0, 1, 3, 2]))
        y = MatMul(Softmax(Add(s, Transpose(b; perm = [0, 1, 3, 2])); axis = -1), v)
        -> y",
    ),
    trap(
        "rms_norm_overflow_in_half",
        "squares overflow in half precision: the statistics need the casts",
        "x: f16[2, 8]
        a = Mul(x, f16[1]{300})
        c = Cast(a; to = 1)
        m = ReduceMean(Mul(c, c); axes = [-1])
        y = Cast(Div(c, Sqrt(Add(m, 1e-5))); to = 10)
        -> y",
    ),
    trap(
        "rope_pairs_by_halves",
        "pairs are neighbours, the result holds halves",
        "x: f32[2, 3, 8]
        c: f32[3, 4]
        s: f32[3, 4]
        r = Reshape(x, i64[4]{2, 3, 4, 2})
        a, b = Split(r, i64[2]{1, 1}; axis = -1)
        e = Reshape(a, i64[3]{2, 3, 4})
        o = Reshape(b, i64[3]{2, 3, 4})
        y = Concat(Sub(Mul(e, c), Mul(o, s)), Add(Mul(e, s), Mul(o, c)); axis = -1)
        -> y",
    ),
    trap(
        "strided_from_two",
        "every third element, from the third on",
        "x: f32[2, 9]
        y = Slice(x, i64[1]{2}, i64[1]{9}, i64[1]{1}, i64[1]{3})
        z = Slice(x, i64[1]{1}, i64[1]{9}, i64[1]{1}, i64[1]{4})
        -> y, z",
    ),
    trap(
        "geglu_gate_first",
        "the first half is the gate",
        "x: f32[2, 3, 8]
        a, b = Split(x, i64[2]{4, 4}; axis = -1)
        y = Mul(Mul(Mul(a, 0.5), Add(Erf(Div(a, 1.4142135)), 1)), b)
        z = Mul(Mul(Mul(b, 0.5), Add(Erf(Div(a, 1.4142135)), 1)), a)
        -> y, z",
    ),
    trap(
        "reglu_of_both",
        "both halves are rectified",
        "x: f32[2, 3, 8]
        a, b = Split(x, i64[2]{4, 4}; axis = -1)
        y = Mul(Relu(a), Relu(b))
        z = Mul(Relu(a), a)
        -> y, z",
    ),
    trap(
        "layer_norm_channels_of_rows",
        "all axes are of one size, and statistics run over the rows",
        "x: f32[4, 4, 4, 4]
        m = ReduceMean(x; axes = [2])
        c = Sub(x, m)
        v = ReduceMean(Mul(c, c); axes = [2])
        n = Div(c, Sqrt(Add(v, 1e-5)))
        y = Add(Mul(n, f32[4, 1, 1]~), f32[4, 1, 1]~)
        -> y",
    ),
    trap(
        "layer_norm_channels_mixed",
        "the mean is of the channels, the variance of the rows",
        "x: f32[4, 4, 4, 4]
        c = Sub(x, ReduceMean(x; axes = [1]))
        d = Sub(x, ReduceMean(x; axes = [2]))
        v = ReduceMean(Mul(d, d); axes = [2])
        y = Div(c, Sqrt(Add(v, 1e-5)))
        -> y",
    ),
    trap(
        "squeeze_of_one_axis",
        "the gate is the mean of rows only",
        "x: f32[2, 4, 3, 3]
        m = ReduceMean(x; axes = [3])
        y = Mul(x, Sigmoid(m))
        -> y",
    ),
    trap(
        "shuffle_twice",
        "the same shuffle again does not undo it",
        "x: f32[2, 6, 2, 2]
        a = Reshape(x, i64[5]{2, 2, 3, 2, 2})
        b = Reshape(Transpose(a; perm = [0, 2, 1, 3, 4]), i64[4]{2, 6, 2, 2})
        c = Reshape(b, i64[5]{2, 2, 3, 2, 2})
        y = Reshape(Transpose(c; perm = [0, 2, 1, 3, 4]), i64[4]{2, 6, 2, 2})
        -> y",
    ),
    trap(
        "pixel_shuffle_of_columns",
        "rows and columns of a block are exchanged",
        "x: f32[2, 12, 3, 3]
        a = Reshape(x, i64[6]{2, 3, 2, 2, 3, 3})
        y = Reshape(Transpose(a; perm = [0, 1, 4, 3, 5, 2]), i64[4]{2, 3, 6, 6})
        -> y",
    ),
    trap(
        "pixel_shuffle_of_unequal_blocks",
        "blocks are of three rows and two columns",
        "x: f32[2, 12, 3, 3]
        a = Reshape(x, i64[6]{2, 2, 3, 2, 3, 3})
        y = Reshape(Transpose(a; perm = [0, 1, 4, 2, 5, 3]), i64[4]{2, 2, 9, 6})
        -> y",
    ),
    trap(
        "space_to_depth_of_columns",
        "rows and columns of a block are exchanged",
        "x: f32[2, 3, 4, 4]
        a = Reshape(x, i64[6]{2, 3, 2, 2, 2, 2})
        y = Reshape(Transpose(a; perm = [0, 5, 3, 1, 2, 4]), i64[4]{2, 12, 2, 2})
        -> y",
    ),
    trap(
        "alibi_strict",
        "a query does not see its own key",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 4, 8]
        v: f32[2, 3, 4, 8]
        r = i64[1, 4]{0, 1, 2, 3}
        c = i64[4, 1]{0, 1, 2, 3}
        m = Where(Less(r, c), 0, -4)
        b = Mul(f32[3, 1, 1]+, Cast(Sub(r, c); to = 1))
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Add(Add(s, b), m); axis = -1), v)
        -> y",
    ),
    trap(
        "heads_of_unequal_parts",
        "keys and values are narrower than queries",
        "x: f32[2, 3, 8]
        y = Add(MatMul(x, f32[8, 16]~), f32[16]~)
        q, k, v = Split(y, i64[3]{8, 4, 4}; axis = -1)
        a = Transpose(Reshape(q, i64[4]{2, 3, 2, 4}); perm = [0, 2, 1, 3])
        b = Transpose(Reshape(Concat(k, k; axis = -1), i64[4]{2, 3, 2, 4}); perm = [0, 2, 1, 3])
        c = Transpose(Reshape(v, i64[4]{2, 3, 2, 2}); perm = [0, 2, 1, 3])
        s = Mul(MatMul(a, Transpose(b; perm = [0, 1, 3, 2])), 0.5)
        o = MatMul(Softmax(s; axis = -1), c)
        z = Reshape(Transpose(o; perm = [0, 2, 1, 3]), i64[3]{2, 3, 4})
        -> z",
    ),
    trap(
        "packed_in_another_order",
        "keys come first",
        "x: f32[2, 3, 8]
        y = Add(MatMul(x, f32[8, 24]~), f32[24]~)
        k, q, v = Split(y, i64[3]{8, 8, 8}; axis = -1)
        a = Transpose(Reshape(q, i64[4]{2, 3, 2, 4}); perm = [0, 2, 1, 3])
        b = Transpose(Reshape(k, i64[4]{2, 3, 2, 4}); perm = [0, 2, 3, 1])
        c = Transpose(Reshape(v, i64[4]{2, 3, 2, 4}); perm = [0, 2, 1, 3])
        s = Mul(MatMul(a, b), 0.5)
        o = MatMul(Softmax(s; axis = -1), c)
        z = Reshape(Transpose(o; perm = [0, 2, 1, 3]), i64[3]{2, 3, 8})
        -> z",
    ),
    trap(
        "heads_not_moved_back",
        "heads stay before positions, which are as many",
        "q: f32[2, 3, 3, 4]
        k: f32[2, 3, 3, 4]
        v: f32[2, 3, 3, 4]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.5)
        o = MatMul(Softmax(s; axis = -1), v)
        z = Reshape(o, i64[3]{2, 3, 12})
        -> z",
    ),
    trap(
        "parts_that_overlap",
        "the second part begins before the first ends",
        "x: f32[2, 6]
        a = Slice(x, i64[1]{0}, i64[1]{4}, i64[1]{1})
        b = Slice(x, i64[1]{3}, i64[1]{6}, i64[1]{1})
        c = Slice(x, i64[1]{4}, i64[1]{5}, i64[1]{1})
        -> a, b, c",
    ),
];
