//! The implementations of this backend, by the keys that a target's text names them by. The only place of it that names
//! operators.

use super::launch::Maker;
use super::reduce::Monoid;
use super::*;

/// What runs a kernel.
pub enum Implementation {
    /// Layouts, and copies where strides cannot say them.
    Views,
    /// One loop over pointwise operators.
    Loop,
    /// The judge, an operator at a time.
    Judge,
    /// Code for certain operators.
    Native(Native),
}

/// Code for certain operators.
#[derive(Clone, Copy)]
pub struct Native {
    /// The operators, and what prepares each.
    pub makers: &'static [(&'static str, Maker)],
    /// What else it computes.
    pub takes: Takes,
}

/// The pointwise operators that a kernel takes in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// None.
    Nothing,
    /// Those that follow.
    Epilogue,
    /// Those that compute what it reads, too.
    Prologue,
}

impl Native {
    /// What prepares this operator.
    pub fn maker(&self, op: &str) -> Option<Maker> {
        self.makers.iter().find(|(name, _)| *name == op).map(|(_, maker)| *maker)
    }
}

/// The implementation of a key.
pub fn implementation(key: &str) -> Option<Implementation> {
    use Takes::*;
    let native = |takes, makers| Implementation::Native(Native { makers, takes });
    Some(match key {
        "view" => Implementation::Views,
        "pointwise" => Implementation::Loop,
        "reference" => Implementation::Judge,
        "gemm" => native(Epilogue, &[("matmul", matmul::make)]),
        "conv" => native(Epilogue, &[("conv", conv::make)]),
        "conv_transpose" => native(Nothing, &[("conv_transpose", conv::make_transposed)]),
        "pool" => native(Nothing, &[("maxpool", pool::MAX), ("sumpool", pool::SUM)]),
        "reduce" => native(
            Prologue,
            &[
                ("sum", reduce::SUM),
                ("prod", reduce::PROD),
                ("max", reduce::MAX),
                ("min", reduce::MIN),
            ],
        ),
        "scan" => native(Nothing, &[("cumsum", moves::cumsum)]),
        "softmax" => {
            native(Nothing, &[("softmax", rows::SOFTMAX), ("log_softmax", rows::LOG_SOFTMAX)])
        }
        "norm" => {
            native(Nothing, &[("layernorm", rows::LAYER), ("rmsnorm", rows::ROOT_MEAN_SQUARE)])
        }
        "attention" => native(
            Nothing,
            &[
                ("attention", attention::PLAIN),
                ("attention_masked", attention::MASKED),
                ("attention_select", attention::SELECT),
            ],
        ),
        "gather" => native(
            Nothing,
            &[("gather", moves::gather), ("gather_elements", moves::gather_elements)],
        ),
        "concat" => native(Nothing, &[("concat", moves::concat)]),
        "pad" => native(Nothing, &[("pad", moves::pad)]),
        "triangle" => native(Nothing, &[("triangle", moves::triangle)]),
        "recurrent" => native(Nothing, &[("lstm", recurrent::LSTM), ("gru", recurrent::GRU)]),
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
