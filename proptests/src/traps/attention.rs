//! Traps that resemble attention.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "attention_scaled_twice",
        "keys and scores are scaled",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        s = MatMul(q, Transpose(Mul(k, 0.5); perm = [0, 1, 3, 2]))
        y = MatMul(Softmax(Mul(s, 0.5); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_keys_not_transposed",
        "keys and features are as many, and keys are not transposed",
        "q: f32[2, 3, 8, 8]
        k: f32[2, 3, 8, 8]
        v: f32[2, 3, 8, 8]
        y = MatMul(Softmax(Mul(MatMul(q, k), 0.35355338); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_heads_transposed",
        "heads and positions of the keys are exchanged",
        "q: f32[2, 4, 4, 8]
        k: f32[2, 4, 4, 8]
        v: f32[2, 4, 4, 8]
        s = MatMul(q, Transpose(k; perm = [0, 2, 3, 1]))
        y = MatMul(Softmax(Mul(s, 0.35355338); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_softmax_of_queries",
        "softmax runs over the queries, which are as many as the keys",
        "q: f32[2, 3, 6, 8]
        k: f32[2, 3, 6, 8]
        v: f32[2, 3, 6, 8]
        s = MatMul(q, Transpose(k; perm = [0, 1, 3, 2]))
        y = MatMul(Softmax(Mul(s, 0.35355338); axis = 2), v)
        -> y",
    ),
    trap(
        "attention_mask_multiplied",
        "the mask is multiplied",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        m: f32[2, 1, 1, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Mul(s, m); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_mask_after_softmax",
        "the mask is added to the weights",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        m: f32[2, 1, 1, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Add(Softmax(s; axis = -1), m), v)
        -> y",
    ),
    trap(
        "attention_mask_before_scale",
        "the mask is scaled, too",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        m: f32[2, 1, 1, 5]
        s = Mul(Add(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), m), 0.35355338)
        y = MatMul(Softmax(s; axis = -1), v)
        -> y",
    ),
    trap(
        "attention_mask_of_queries",
        "the mask lies along the queries, which are as many as the keys",
        "q: f32[2, 3, 5, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        m: f32[2, 1, 5, 1]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Add(s, m); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_values_transposed",
        "the values are transposed",
        "q: f32[2, 3, 8, 8]
        k: f32[2, 3, 8, 8]
        v: f32[2, 3, 8, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(s; axis = -1), Transpose(v; perm = [0, 1, 3, 2]))
        -> y",
    ),
    trap(
        "attention_values_of_one_head",
        "all heads share the values of one",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 1, 5, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(s; axis = -1), v)
        -> y",
    ),
    trap(
        "attention_values_left",
        "weights multiply values from the right",
        "q: f32[2, 3, 5, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 8, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(v, Softmax(s; axis = -1))
        -> y",
    ),
    trap(
        "attention_scale_by_head",
        "every head has a scale of its own",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), f32[3, 1, 1]+)
        y = MatMul(Softmax(s; axis = -1), v)
        -> y",
    ),
    trap(
        "attention_scale_of_input",
        "the scale is an input",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        t: f32[]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), t)
        y = MatMul(Softmax(s; axis = -1), v)
        -> y",
    ),
    trap(
        "attention_fully_masked",
        "a row of the mask that is minus infinity gives NaN",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 2, 8]
        v: f32[2, 3, 2, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Add(s, f32[4, 2]{0, 0, 0, -inf, -inf, -inf, -inf, 0}); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_where_finite",
        "masked scores are -1, no infinity: they still count",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        b: bool[4, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Where(b, s, -1); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_where_reversed",
        "the mask says what to leave out",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        b: bool[4, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Softmax(Where(b, -10000, s); axis = -1), v)
        -> y",
    ),
    trap(
        "attention_where_after",
        "the weights are masked, not the scores: rows do not sum to one",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        b: bool[4, 5]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        y = MatMul(Where(b, Softmax(s; axis = -1), 0), v)
        -> y",
    ),
    trap(
        "attention_normalised_twice",
        "weights are divided by their largest",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        w = Softmax(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])); axis = -1)
        y = MatMul(Div(w, ReduceMax(w; axes = [-1])), v)
        -> y",
    ),
    trap(
        "rope_halves_exchanged",
        "the first half is negated, not the second",
        "x: f32[2, 3, 8]
        c: f32[3, 8]
        s: f32[3, 8]
        a, b = Split(x, i64[2]{4, 4}; axis = -1)
        y = Add(Mul(x, c), Mul(Concat(b, Neg(a); axis = -1), s))
        -> y",
    ),
    trap(
        "rope_unequal_halves",
        "the halves are not of one size",
        "x: f32[2, 3, 8]
        c: f32[3, 8]
        s: f32[3, 8]
        a, b = Split(x, i64[2]{3, 5}; axis = -1)
        y = Add(Mul(x, c), Mul(Concat(Neg(b), a; axis = -1), s))
        -> y",
    ),
    trap(
        "rope_positions",
        "positions and features are as many, and the tables lie across",
        "x: f32[2, 8, 8]
        c: f32[8, 1]
        s: f32[8, 1]
        a, b = Split(x, i64[2]{4, 4}; axis = -1)
        y = Add(Mul(x, c), Mul(Concat(Neg(b), a; axis = -1), s))
        -> y",
    ),
];
