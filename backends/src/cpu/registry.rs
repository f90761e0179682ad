//! Which kernel computes which operator. The only place of this backend that names operators.

use super::launch::Maker;
use super::view::View;
use super::*;

/// The kernel of an operator.
pub fn find(op: &str) -> Option<Maker> {
    Some(match op {
        "matmul" => matmul::make,
        "conv" => conv::make,
        "conv_transpose" => conv::make_transposed,
        _ => return None,
    })
}

/// The view that an operator is.
pub fn view(op: &str) -> Option<View> {
    Some(match op {
        "transpose" => View::Transpose,
        "reshape" => View::Reshape,
        "broadcast" => View::Broadcast,
        "slice" => View::Slice,
        _ => return None,
    })
}
