//! Traps that resemble identities of shapes: equal extents, unit axes and reversed steps.

use super::{Trap, trap};

pub(super) const TRAPS: &[Trap] = &[
    trap(
        "scale_grows_rank",
        "the scale has an axis more, of extent one",
        "x: f32[4, 5]\ny = Mul(x, f32[1, 1, 1]{1})\n-> y",
    ),
    trap("zero_grows_rank", "zero has an axis more", "x: f32[4]\ny = Add(x, f32[1, 1]{0})\n-> y"),
    trap(
        "one_grows_extent",
        "a factor of ones repeats the row",
        "x: f32[1, 5]\ny = Mul(x, f32[3, 1]{1, 1, 1})\n-> y",
    ),
    trap(
        "zeros_grow_extent",
        "a summand of zeros repeats the column",
        "x: f32[4, 1]\ny = Add(x, f32[5]{0, 0, 0, 0, 0})\n-> y",
    ),
    trap(
        "maximum_grows_extent",
        "a bound that is minus infinity repeats the row",
        "x: f32[1, 5]\ny = Max(x, f32[3, 1]{-inf, -inf, -inf})\n-> y",
    ),
    trap(
        "outer_sum",
        "a row and a column of equal extents",
        "x: f32[5, 1]\nz: f32[5]\ny = Add(x, z)\n-> y",
    ),
    trap(
        "reshape_of_square",
        "a reshape to the same extents after a transpose",
        "x: f32[4, 4]\ny = Reshape(Transpose(x; perm = [1, 0]), i64[2]{4, 4})\n-> y",
    ),
    trap(
        "reshape_exchanged",
        "extents are exchanged, elements are not",
        "x: f32[3, 4]\ny = Reshape(x, i64[2]{4, 3})\n-> y",
    ),
    trap(
        "reshape_against_transpose",
        "a reshape undoes the extents of a transpose, not its order",
        "x: f32[3, 4]\ny = Reshape(Transpose(x; perm = [1, 0]), i64[2]{3, 4})\n-> y",
    ),
    trap(
        "reshape_around_sum",
        "a row is added while the extents are exchanged",
        "x: f32[4, 4]
        r = Reshape(x, i64[2]{2, 8})
        y = Reshape(Add(r, f32[8]~), i64[2]{4, 4})
        -> y",
    ),
    trap(
        "reshape_around_softmax",
        "softmax over two axes made one",
        "x: f32[2, 3, 4]
        y = Reshape(Softmax(Reshape(x, i64[2]{2, 12}); axis = 1), i64[3]{2, 3, 4})
        -> y",
    ),
    trap(
        "reshape_zero_copies",
        "a zero copies the extent at its place",
        "x: f32[4, 6]\ny = Reshape(x, i64[3]{0, 2, -1})\n-> y",
    ),
    trap(
        "transposes_of_equal_extents",
        "two cyclic permutations are a third, not the identity",
        "x: f32[4, 4, 4]
        y = Transpose(Transpose(x; perm = [1, 2, 0]); perm = [1, 2, 0])
        -> y",
    ),
    trap(
        "transpose_default",
        "the default permutation reverses all axes",
        "x: f32[4, 4, 4]\ny = Transpose(x)\n-> y",
    ),
    trap(
        "transpose_of_sum",
        "only one operand is transposed",
        "x: f32[4, 4]\nz: f32[4, 4]\ny = Add(Transpose(x; perm = [1, 0]), z)\n-> y",
    ),
    trap(
        "transpose_around_row",
        "a row is added between two transposes",
        "x: f32[4, 4]
        y = Transpose(Add(Transpose(x; perm = [1, 0]), f32[4]~); perm = [1, 0])
        -> y",
    ),
    trap(
        "transpose_of_reduction",
        "the reduced axis is another after a transpose",
        "x: f32[4, 4]\ny = ReduceSum(Transpose(x; perm = [1, 0]), i64[1]{1}; keepdims = 0)\n-> y",
    ),
    trap(
        "slice_reversed",
        "a step of minus one",
        "x: f32[4, 5]\ny = Slice(x, i64[1]{-1}, i64[1]{-9}, i64[1]{1}, i64[1]{-1})\n-> y",
    ),
    trap(
        "slice_reversed_twice",
        "every second element, from the end",
        "x: f32[4, 6]\ny = Slice(x, i64[1]{5}, i64[1]{0}, i64[1]{1}, i64[1]{-2})\n-> y",
    ),
    trap(
        "slices_in_a_row",
        "a slice of a slice with steps",
        "x: f32[4, 12]
        a = Slice(x, i64[1]{1}, i64[1]{11}, i64[1]{1}, i64[1]{2})
        y = Slice(a, i64[1]{1}, i64[1]{100}, i64[1]{1}, i64[1]{2})
        -> y",
    ),
    trap(
        "slice_empty",
        "nothing is left",
        "x: f32[4, 5]\ny = Slice(x, i64[1]{3}, i64[1]{3}, i64[1]{1})\n-> y",
    ),
    trap(
        "concat_of_split_exchanged",
        "the parts are joined in another order",
        "x: f32[4, 6]
        a, b = Split(x, i64[2]{3, 3}; axis = 1)
        y = Concat(b, a; axis = 1)
        -> y",
    ),
    trap(
        "concat_of_split_other_axis",
        "the parts are joined along another axis",
        "x: f32[6, 6]
        a, b = Split(x, i64[2]{3, 3}; axis = 1)
        y = Concat(a, b; axis = 0)
        -> y",
    ),
    trap(
        "concat_of_split_partly",
        "one part is missing, another is there twice",
        "x: f32[4, 9]
        a, b, c = Split(x, i64[3]{3, 3, 3}; axis = 1)
        y = Concat(a, b, b; axis = 1)
        -> y",
    ),
    trap(
        "concat_with_itself",
        "one tensor twice",
        "x: f32[4, 3]\ny = Relu(Concat(x, x; axis = 1))\n-> y",
    ),
    trap(
        "split_uneven",
        "the last part is shorter",
        "opset 18
        x: f32[4, 7]
        a, b, c = Split(x; axis = 1, num_outputs = 3)
        -> a, b, c",
    ),
    trap(
        "gather_negative",
        "negative indices count from the end",
        "x: f32[5, 3]\ny = Gather(x, i64[3]{-1, 0, -5}; axis = 0)\n-> y",
    ),
    trap(
        "gather_twice",
        "an index occurs twice",
        "x: f32[5, 3]\ny = Gather(x, i64[5]{0, 1, 2, 2, 4}; axis = 0)\n-> y",
    ),
    trap(
        "gather_reversed",
        "all indices, from the last to the first",
        "x: f32[4, 3]\ny = Gather(x, i64[4]{3, 2, 1, 0}; axis = 0)\n-> y",
    ),
    trap(
        "gather_rank_two",
        "indices of two axes",
        "x: f32[4, 3]\ny = Gather(x, i64[2, 2]{0, 1, 2, 0}; axis = 1)\n-> y",
    ),
    trap(
        "gather_by_input",
        "indices are an input, negative ones among them",
        "x: f32[4, 3]\ni: i64[5] in -4..3\ny = Gather(Relu(x), i; axis = 0)\n-> y",
    ),
    trap(
        "gather_elements_of_square",
        "indices along the other axis of a square",
        "x: f32[3, 3]\ni: i64[3, 3] in -3..2\ny = GatherElements(x, i; axis = 1)\n-> y",
    ),
    trap(
        "expand_unit_axis",
        "a unit axis grows where another has that extent, too",
        "x: f32[4, 1]\ny = Expand(x, i64[2]{4, 4})\n-> y",
    ),
    trap(
        "expand_smaller",
        "a target of one keeps the extent",
        "x: f32[4, 5]\ny = Expand(x, i64[3]{2, 1, 1})\n-> y",
    ),
    trap(
        "squeeze_then_unsqueeze",
        "the unit axis comes back elsewhere",
        "x: f32[4, 1, 4]\ny = Unsqueeze(Squeeze(x, i64[1]{1}), i64[1]{0})\n-> y",
    ),
    trap(
        "flatten_zero",
        "flattened from axis 0 on: one row",
        "x: f32[2, 3, 4]\ny = Flatten(x; axis = 0)\n-> y",
    ),
    trap("flatten_default", "flattened from axis 1 on", "x: f32[2, 3, 4]\ny = Flatten(x)\n-> y"),
    trap(
        "pad_negative",
        "a negative pad takes elements away, a positive one adds NaN",
        "x: f32[4, 5]\ny = Pad(x, i64[4]{0, -1, 0, 2}, nan)\n-> y",
    ),
    trap(
        "pad_of_product",
        "the pad is one, and is not scaled",
        "x: f32[4, 5]\ny = Pad(Mul(x, 2), i64[4]{1, 0, 0, 1}, 1)\n-> y",
    ),
    trap(
        "pad_then_relu",
        "the pad is negative, and is rectified",
        "x: f32[4, 5]\ny = Relu(Pad(x, i64[4]{1, 0, 0, 1}, -1))\n-> y",
    ),
    trap(
        "pad_then_slice",
        "a slice takes other elements than the pad added",
        "x: f32[4, 5]
        p = Pad(x, i64[4]{0, 1, 0, 1}, 0)
        y = Slice(p, i64[1]{0}, i64[1]{5}, i64[1]{1})
        -> y",
    ),
    trap(
        "sum_of_empty",
        "a sum over no elements is zero",
        "x: f32[3, 0]\ny = ReduceSum(x, i64[1]{1})\n-> y",
    ),
    trap(
        "mean_of_empty",
        "a mean over no elements is NaN",
        "x: f32[3, 0]\ny = Add(ReduceMean(x; axes = [1]), f32[3, 1]~)\n-> y",
    ),
    trap(
        "concat_with_empty",
        "one part has no elements",
        "x: f32[3, 0]\nz: f32[3, 2]\ny = Concat(x, z; axis = 1)\n-> y",
    ),
    trap(
        "relu_of_empty",
        "no elements at all",
        "x: f32[0, 4]\ny = Softmax(Relu(x); axis = 1)\n-> y",
    ),
    trap(
        "sum_of_unit_axis",
        "a sum over one element is that element, without its axis",
        "x: f32[4, 1]\ny = ReduceSum(x, i64[1]{1}; keepdims = 0)\n-> y",
    ),
    trap("scalars", "no axes at all", "x: f32[]\nz: f32[]\ny = Mul(Add(x, z), f32[1]{2})\n-> y"),
    trap(
        "symbols_exchanged",
        "two open extents that may be equal when it runs",
        "x: f32[n, m]
        s = Shape(x)
        t = Concat(Slice(s, i64[1]{1}, i64[1]{2}), Slice(s, i64[1]{0}, i64[1]{1}); axis = 0)
        y = Reshape(x, t)
        -> y",
    ),
    trap(
        "symbols_transposed",
        "a transpose of open extents that may be equal",
        "x: f32[n, m]
        y = Reshape(Transpose(x; perm = [1, 0]), Shape(x))
        -> y",
    ),
    trap(
        "symbols_sum",
        "a mean by an open extent",
        "x: f32[n, m]\ny = Sub(x, ReduceMean(x; axes = [0]))\n-> y",
    ),
    trap(
        "where_broadcasts_condition",
        "a condition with more axes than its branches",
        "c: bool[2, 1, 3]\nx: f32[3]\nz: f32[4, 1]\ny = Where(c, x, z)\n-> y",
    ),
    trap(
        "tile_of_unit",
        "repeated twice along one axis",
        "x: f32[1, 3]\ny = Tile(x, i64[2]{2, 2})\n-> y",
    ),
];
