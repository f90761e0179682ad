//! Traps with graphs whose outputs, inputs and constants have several roles.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "output_in_between",
        "a value inside a layer is an output, too",
        "x: f32[3, 8]
        c = Sub(x, ReduceMean(x; axes = [-1]))
        v = ReduceMean(Mul(c, c); axes = [-1])
        y = Add(Mul(Div(c, Sqrt(Add(v, 1e-5))), f32[8]~), f32[8]~)
        -> y, c, v",
    ),
    trap(
        "gelu_in_between",
        "the error function itself is an output",
        "x: f32[3, 8]
        e = Erf(Div(x, 1.4142135))
        y = Mul(Mul(x, Add(e, 1)), 0.5)
        -> e, y",
    ),
    trap(
        "attention_in_between",
        "the weights of attention are an output",
        "q: f32[2, 3, 4, 8]
        k: f32[2, 3, 5, 8]
        v: f32[2, 3, 5, 8]
        s = Mul(MatMul(q, Transpose(k; perm = [0, 1, 3, 2])), 0.35355338)
        w = Softmax(s; axis = -1)
        y = MatMul(w, v)
        -> y, w",
    ),
    // Powers of two: a second convolution with scaled weights is right to the bit, though sums cancel.
    trap(
        "conv_in_between",
        "the convolution is an output before its scale",
        "x: f32[1, 3, 5, 5]
        c = Conv(x, f32[4, 3, 3, 3]~)
        y = Relu(Mul(c, f32[4, 1, 1]{-0.5, 2, 0.25, -4}))
        -> c, y",
    ),
    trap(
        "input_is_output",
        "an input is an output, unchanged",
        "x: f32[3, 4]\ny = Relu(x)\n-> x, y",
    ),
    trap("identity_alone", "nothing but an identity", "x: f32[3, 4]\ny = Identity(x)\n-> y"),
    trap(
        "outputs_are_equal",
        "two outputs have one value",
        "x: f32[3, 4]\ny = Relu(x)\nz = Relu(x)\n-> y, z",
    ),
    trap(
        "outputs_become_equal",
        "two outputs have one value only by a law",
        "x: f32[3, 4]\ny = Add(x, x)\nz = Mul(x, 2)\n-> y, z",
    ),
    trap(
        "input_unused",
        "an input that nothing reads",
        "x: f32[3, 4]\nz: f32[5]\ny = Relu(x)\n-> y",
    ),
    trap(
        "output_constant",
        "an output is a constant",
        "x: f32[3, 4]\nc = f32[2]{1, 2}\ny = Relu(x)\n-> y, c",
    ),
    trap(
        "output_of_constants",
        "an output is computed from constants alone",
        "x: f32[3, 4]\nc = Add(f32[2]{1, 2}, 0.5)\ny = Relu(x)\n-> y, c",
    ),
    trap(
        "initialiser_listed",
        "an initialiser that is listed as an input",
        "x: f32[2, 3]\nw: f32[3] = {1, 2, 3}\ny = Mul(x, w)\n-> y",
    ),
    trap(
        "shape_is_output",
        "the shape of an input is an output",
        "x: f32[n, 3]\ns = Shape(x)\ny = Relu(x)\n-> y, s",
    ),
    trap(
        "size_scales",
        "the number of elements is a factor",
        "x: f32[n, 3]\ny = Mul(x, Cast(Size(x); to = f32))\n-> y",
    ),
    trap(
        "same_weight_twice",
        "one weight serves two layers, scaled in one",
        "x: f32[3, 4]
        w = f32[4, 4]~
        a = MatMul(x, w)
        y = MatMul(Mul(a, f32[4]~), w)
        -> y, a",
    ),
    trap(
        "weight_of_weight",
        "a weight is computed from another",
        "x: f32[3, 4]
        w = Softmax(f32[4, 4]~; axis = 0)
        y = MatMul(x, w)
        -> y",
    ),
    trap(
        "if_of_constant",
        "the value of a known condition",
        "x: f32[3, 4]
        c = Less(Size(x), i64[]{13})
        y = Where(c, Relu(x), Neg(x))
        -> y",
    ),
];
