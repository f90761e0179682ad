//! The kernel registry: implementations by the keys of `rules/targets`. The only module of this backend that names
//! operators.

use super::block_quantized::formats;
use super::data_movement::{argsort, gather, scatter, weighted_gather};
use super::recurrent::steps;
use super::reduction::Monoid;
use super::reduction::{argmax, normalisation};
use super::runtime::kernel::KernelFactory;
use super::vision::{non_max_suppression, resample, roi_pooling};
use super::{
    attention, block_quantized, channels_last, conv, data_movement, extents, int8, matmul, pooling,
    recurrent, reduction,
};
use mlc_dsl::ir::DType;

/// How a kernel of the plan is implemented.
pub enum Implementation {
    /// Strided views, and copies where strides do not suffice.
    Views,
    /// One loop over pointwise operators.
    Loop,
    /// One operator at a time: vector code compiled from its meaning, or the reference interpreter.
    Reference,
    /// Hand-written kernels of certain operators.
    Native(Native),
}

/// Types of f32 kernels: 16-bit floats are widened.
const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
/// The same and bytes, for max pooling.
const FLOATS_AND_BYTES: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::U8, DType::I8];
/// Types that channels-last pooling takes.
const POOLED: &[DType] = &[DType::F32, DType::U8, DType::I8];
/// Types of cumulative sums.
const SUMS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64];
/// Accumulators of int8 products.
const SUMS_OF_BYTES: &[DType] = &[DType::I32];
/// Every type: for data movement, and for operators that restrict their types themselves.
const ANY: &[DType] = &{
    let mut all = [DType::Str; DType::ALL.len() + 1];
    let (numbers, _) = all.split_at_mut(DType::ALL.len());
    numbers.copy_from_slice(&DType::ALL);
    all
};

/// Hand-written kernels of certain operators.
#[derive(Clone, Copy)]
pub struct Native {
    /// Operators and their factories.
    pub factories: &'static [(&'static str, KernelFactory)],
    /// Supported element types of the first result.
    pub dtypes: &'static [DType],
    /// What it fuses.
    pub takes: Takes,
}

/// The pointwise operators that a kernel fuses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Takes {
    /// None.
    Nothing,
    /// Those that consume its result.
    Epilogue,
    /// Those that produce its operands, too.
    Prologue,
}

impl Native {
    /// The factory of an operator.
    pub fn factory(&self, op: &str) -> Option<KernelFactory> {
        self.factories.iter().find(|(name, _)| *name == op).map(|(_, factory)| *factory)
    }
}

/// The implementation of a key.
pub fn implementation(key: &str) -> Option<Implementation> {
    use Takes::*;
    let native =
        |dtypes, takes, factories| Implementation::Native(Native { factories, dtypes, takes });
    Some(match key {
        "view" => Implementation::Views,
        "pointwise" => Implementation::Loop,
        "reference" | "meaning" => Implementation::Reference,
        "gemm" => native(ANY, Epilogue, &[("matmul", matmul::make)]),
        "conv" => native(FLOATS, Epilogue, &[("conv", conv::make)]),
        "gemm_int8" => native(SUMS_OF_BYTES, Epilogue, &[("matmul_integer", int8::matmul)]),
        "gemm_blocks" => native(
            FLOATS,
            Epilogue,
            &[
                ("q4_0_product", |s| block_quantized::product(s, &formats::Q4_0)),
                ("q4_1_product", |s| block_quantized::product(s, &formats::Q4_1)),
                ("q5_0_product", |s| block_quantized::product(s, &formats::Q5_0)),
                ("q5_1_product", |s| block_quantized::product(s, &formats::Q5_1)),
                ("q8_0_product", |s| block_quantized::product(s, &formats::Q8_0)),
                ("q4_k_product", |s| block_quantized::product(s, &formats::Q4_K)),
                ("q5_k_product", |s| block_quantized::product(s, &formats::Q5_K)),
                ("q6_k_product", |s| block_quantized::product(s, &formats::Q6_K)),
                ("n_bits_product", block_quantized::bits_product),
                ("n_bits_product_by_groups", block_quantized::bits_product_by_groups),
            ],
        ),
        "gemm_blocks_rounded" => native(
            &[DType::F32],
            Epilogue,
            &[
                ("q4_0_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q4_0)),
                ("q4_1_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q4_1)),
                ("q5_0_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q5_0)),
                ("q5_1_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q5_1)),
                ("q8_0_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q8_0)),
                ("q4_k_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q4_K)),
                ("q5_k_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q5_K)),
                ("q6_k_rounded_product", |s| block_quantized::rounded_product(s, &formats::Q6_K)),
                ("n_bits_rounded_product", block_quantized::rounded_bits_product),
            ],
        ),
        "blocks" => native(
            &[DType::F32],
            Nothing,
            &[
                ("q4_0", |s| block_quantized::dequantize(s, &formats::Q4_0)),
                ("q4_1", |s| block_quantized::dequantize(s, &formats::Q4_1)),
                ("q5_0", |s| block_quantized::dequantize(s, &formats::Q5_0)),
                ("q5_1", |s| block_quantized::dequantize(s, &formats::Q5_1)),
                ("q8_0", |s| block_quantized::dequantize(s, &formats::Q8_0)),
                ("q4_k", |s| block_quantized::dequantize(s, &formats::Q4_K)),
                ("q5_k", |s| block_quantized::dequantize(s, &formats::Q5_K)),
                ("q6_k", |s| block_quantized::dequantize(s, &formats::Q6_K)),
                ("q4_0_rows", |s| block_quantized::gather_rows(s, &formats::Q4_0)),
                ("q4_1_rows", |s| block_quantized::gather_rows(s, &formats::Q4_1)),
                ("q5_0_rows", |s| block_quantized::gather_rows(s, &formats::Q5_0)),
                ("q5_1_rows", |s| block_quantized::gather_rows(s, &formats::Q5_1)),
                ("q8_0_rows", |s| block_quantized::gather_rows(s, &formats::Q8_0)),
                ("q4_k_rows", |s| block_quantized::gather_rows(s, &formats::Q4_K)),
                ("q5_k_rows", |s| block_quantized::gather_rows(s, &formats::Q5_K)),
                ("q6_k_rows", |s| block_quantized::gather_rows(s, &formats::Q6_K)),
            ],
        ),
        "conv_int8" => native(SUMS_OF_BYTES, Epilogue, &[("conv_integer", int8::conv)]),
        "conv_int8_channels_last" => native(
            SUMS_OF_BYTES,
            Epilogue,
            &[("conv_integer_channels_last", int8::conv_channels_last)],
        ),
        "conv_transpose" => native(FLOATS, Nothing, &[("conv_transpose", conv::transposed::make)]),
        "conv_channels_last" => {
            native(&[DType::F32], Epilogue, &[("conv_channels_last", channels_last::conv)])
        }
        "conv_transpose_channels_last" => native(
            &[DType::F32],
            Epilogue,
            &[("conv_transpose_channels_last", channels_last::conv_transpose)],
        ),
        "pool_channels_last" => native(
            POOLED,
            Nothing,
            &[
                ("maxpool_channels_last", |s| {
                    channels_last::MAX(s).or_else(|| int8::maxpool_channels_last(s))
                }),
                ("sumpool_channels_last", channels_last::SUM),
            ],
        ),
        "scatter" => native(ANY, Nothing, &[("scatter", scatter::rows)]),
        "extents" => native(&[DType::I64], Nothing, &[("extents", extents::make)]),
        "element_numbers" => {
            native(&[DType::I64], Nothing, &[("element_numbers", scatter::numbers)])
        }
        "relayout" => native(
            ANY,
            Nothing,
            &[
                ("channels_last", |s| int8::channels_last(s).or_else(|| channels_last::LAST(s))),
                ("channels_first", |s| int8::channels_first(s).or_else(|| channels_last::FIRST(s))),
            ],
        ),
        "pool" => native(
            FLOATS_AND_BYTES,
            Nothing,
            &[
                ("maxpool", |s| pooling::MAX(s).or_else(|| int8::maxpool(s))),
                ("sumpool", pooling::SUM),
            ],
        ),
        "reduce" => native(
            ANY,
            Prologue,
            &[
                ("sum", reduction::SUM),
                ("prod", reduction::PROD),
                ("max", reduction::MAX),
                ("min", reduction::MIN),
            ],
        ),
        "scan" => native(SUMS, Nothing, &[("cumsum", data_movement::cumsum)]),
        "softmax" => native(
            FLOATS,
            Nothing,
            &[("softmax", normalisation::SOFTMAX), ("log_softmax", normalisation::LOG_SOFTMAX)],
        ),
        "norm" => native(
            FLOATS,
            Nothing,
            &[("layernorm", normalisation::LAYER), ("rmsnorm", normalisation::ROOT_MEAN_SQUARE)],
        ),
        "attention" => native(
            FLOATS,
            Nothing,
            &[
                ("attention", attention::PLAIN),
                ("attention_masked", attention::MASKED),
                ("attention_select", attention::SELECT),
            ],
        ),
        "gather" => native(
            ANY,
            Nothing,
            &[("gather", gather::gather), ("gather_elements", gather::gather_elements)],
        ),
        "concat" => native(ANY, Nothing, &[("concat", data_movement::concat)]),
        "pad" => native(ANY, Nothing, &[("pad", data_movement::pad)]),
        "resample" => native(
            &[DType::F32],
            Nothing,
            &[("resample", resample::RESAMPLE), ("nearest", resample::NEAREST)],
        ),
        "triangle" => native(ANY, Nothing, &[("triangle", data_movement::triangle)]),
        "extremes" => native(
            &[DType::I64],
            Nothing,
            &[("first_greatest", argmax::ARGMAX), ("first_least", argmax::ARGMIN)],
        ),
        "one_of_row" => native(FLOATS, Nothing, &[("hardmax", argmax::HARDMAX)]),
        "numbered" => native(
            &[DType::F32],
            Nothing,
            &[("numbered", weighted_gather::ELEMENTS), ("numbered_sum", weighted_gather::SUMS)],
        ),
        "regions" => native(&[DType::F32], Nothing, &[("roi_align", roi_pooling::ROI_ALIGN)]),
        "boxes" => native(&[DType::I64], Nothing, &[("choose_boxes", non_max_suppression::make)]),
        "places" => native(&[DType::I64], Nothing, &[("sort_places", argsort::make)]),
        "recurrent" => native(
            FLOATS,
            Nothing,
            &[
                ("lstm", recurrent::LSTM),
                ("lstm_peephole", recurrent::PEEPHOLE),
                ("gru", recurrent::GRU),
                ("rnn", recurrent::SIMPLE),
            ],
        ),
        "recurrent_steps" => native(
            &[DType::F32],
            Nothing,
            &[
                ("lstm_steps_of", steps::LSTM),
                ("gru_steps_of", steps::GRU),
                ("rnn_steps_of", steps::SIMPLE),
                ("in_time_of", steps::IN_TIME),
                ("last_step_of", steps::LAST),
            ],
        ),
        _ => return None,
    })
}

/// The monoid by which an operator reduces axes.
pub fn monoid(op: &str) -> Option<Monoid> {
    Some(match op {
        "sum" => Monoid::Sum,
        "prod" => Monoid::Prod,
        "max" => Monoid::Max,
        "min" => Monoid::Min,
        _ => return None,
    })
}

/// Whether an operator's result is bitwise independent of its operands' layouts.
pub fn is_layout_invariant(op: &str) -> bool {
    matches!(
        op,
        "matmul"
            | "attention"
            | "attention_masked"
            | "attention_select"
            | "gather"
            | "gather_elements"
            | "concat"
            | "pad"
            | "triangle"
            | "scatter"
    )
}
