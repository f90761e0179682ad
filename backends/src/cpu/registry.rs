//! Which kernel computes which operator. The only place of this backend that names operators.

use super::launch::Maker;
use super::reduce::Monoid;
use super::view::View;
use super::*;

/// The kernel of an operator.
pub fn find(op: &str) -> Option<Maker> {
    Some(match op {
        "matmul" => matmul::make,
        "conv" => conv::make,
        "conv_transpose" => conv::make_transposed,
        "maxpool" => pool::MAX,
        "sumpool" => pool::SUM,
        "sum" => reduce::SUM,
        "prod" => reduce::PROD,
        "max" => reduce::MAX,
        "min" => reduce::MIN,
        "softmax" => rows::SOFTMAX,
        "log_softmax" => rows::LOG_SOFTMAX,
        "layernorm" => rows::LAYER,
        "rmsnorm" => rows::ROOT_MEAN_SQUARE,
        "attention" => attention::PLAIN,
        "attention_masked" => attention::MASKED,
        "attention_select" => attention::SELECT,
        "gather" => moves::gather,
        "gather_elements" => moves::gather_elements,
        "concat" => moves::concat,
        "pad" => moves::pad,
        "triangle" => moves::triangle,
        "cumsum" => moves::cumsum,
        "lstm" => recurrent::LSTM,
        "gru" => recurrent::GRU,
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

/// How an operator combines elements along axes.
pub fn monoid(op: &str) -> Option<Monoid> {
    Some(match op {
        "sum" => Monoid::Sum,
        "prod" => Monoid::Prod,
        "max" => Monoid::Max,
        "min" => Monoid::Min,
        _ => return None,
    })
}

/// True for the operator that joins tensors along an axis.
pub fn is_concat(op: &str) -> bool {
    op == "concat"
}
