//! Optimises spellings and exports them to ONNX: how many nodes each becomes, and files to check that with.

use super::{Family, run};
use mlc_files::npz::write_npz;
use mlc_onnx::printable;
use mlc_onnx::{RawModel, domains, export_plan, import, read_onnx, write_onnx};
use mlc_rewrite::pipeline::{Options, optimize};
use mlc_verify::random_inputs;
use std::path::Path;

/// What the spellings of a family became.
#[derive(Default)]
pub struct Written {
    /// Nodes of each.
    pub nodes: Vec<usize>,
    /// Those that were not written, and why.
    pub failed: Vec<String>,
    /// The operators of the largest.
    pub largest: String,
}

/// Where the results are to run.
pub struct Destination<'a> {
    /// The target's name.
    pub target: &'a str,
    /// Version of the standard operator set; no result is older.
    pub opset: i64,
    /// Where originals, results and inputs go, if anywhere.
    pub folder: Option<&'a Path>,
}

/// Optimises and writes at most `most` spellings of a family.
pub fn written(
    family: &Family,
    most: usize,
    scratch: &Path,
    options: &Options,
    place: &Destination,
) -> Written {
    let mut out = Written::default();
    for (i, (model, unstable)) in run::models(family, most).into_iter().enumerate() {
        let stem = format!("{}-{i}", family.name);
        match one(&model, &stem, scratch, &run::admitting(unstable, options), place) {
            Ok(raw) => {
                let nodes = &raw.graph.nodes;
                if out.nodes.iter().all(|&n| n < nodes.len()) {
                    let names: Vec<&str> = nodes.iter().map(|n| &*n.op_type).collect();
                    out.largest = format!("{stem}: {}", names.join(", "));
                }
                out.nodes.push(nodes.len());
            }
            Err(e) => out.failed.push(format!("{stem}: {e}")),
        }
    }
    out
}

fn one(
    model: &RawModel,
    stem: &str,
    scratch: &Path,
    options: &Options,
    place: &Destination,
) -> Result<RawModel, String> {
    let library = crate::library();
    write_onnx(model, scratch).map_err(|e| format!("not written: {e}"))?;
    let raw = read_onnx(scratch).map_err(|e| format!("not read: {e}"))?;
    let mut imported = import(raw, library).map_err(|e| format!("not imported: {e}"))?;
    for (domain, version) in domains(library, place.target) {
        imported.model.opset_imports.entry(domain).or_insert(version);
    }
    let opset = place.opset.max(imported.model.opset());
    let options = Options {
        target: place.target.to_string(),
        operators: Some(printable(library, opset, place.target)),
        ..options.clone()
    };
    let source = imported.program;
    let inputs = random_inputs::inputs(&source, library, 3);
    let names: Vec<String> = source.inputs.iter().map(|(n, _)| n.to_string()).collect();
    let result =
        optimize(source, library, &options).map_err(|e| format!("not optimised: {e:#}"))?;
    let raw = export_plan(&result.plan, library, &imported.model, opset)
        .map_err(|e| format!("not exported: {e}"))?;
    if let Some(folder) = place.folder {
        let path = |end: &str| folder.join(format!("{stem}.{end}"));
        write_onnx(model, path("onnx")).map_err(|e| e.to_string())?;
        write_onnx(&raw, path("opt.onnx")).map_err(|e| e.to_string())?;
        let inputs = inputs.ok_or("its inputs have no known size")?;
        let arrays: Vec<_> = names.into_iter().zip(inputs).collect();
        write_npz(path("npz"), &arrays).map_err(|e| e.to_string())?;
    }
    Ok(raw)
}

/// The fewest nodes that a target's operators take for a family; `None` for a family without an entry. A layer spelled by
/// hand or carelessly takes as many as the layer. Entries are of
/// operator set 22; since 23 there are attention and normalisation by the root of the mean square, since 24 swish.
pub fn smallest(family: &str, target: &str, opset: i64) -> Option<usize> {
    let family =
        ["hand_", "careless_"].iter().find_map(|p| family.strip_prefix(p)).unwrap_or(family);
    let runtime = RUNTIME.iter().filter(|_| target == "onnxruntime");
    let newer = NEWER.iter().filter(|(_, since, _)| opset >= *since).map(|(f, _, n)| (*f, *n));
    let all = newer.chain(runtime.copied()).chain(STANDARD.iter().copied());
    all.filter(|(name, _)| *name == family).map(|(_, n)| n).min()
}

/// One node, unless said otherwise.
const STANDARD: &[(&str, usize)] = &[
    ("relu", 1),
    ("relu6", 1),
    ("leaky_relu", 1),
    ("elu", 1),
    ("selu", 1),
    ("celu", 1),
    ("gelu_erf", 1),
    ("gelu_tanh", 1),
    // Mul, Sigmoid, Mul
    ("gelu_sigmoid", 3),
    // Sigmoid, Mul
    ("silu", 2),
    ("mish", 1),
    ("softplus", 1),
    ("hard_sigmoid", 1),
    ("hard_swish", 1),
    ("prelu", 1),
    ("softsign", 1),
    ("tanh", 1),
    ("sigmoid", 1),
    // Neg, Softplus, Neg: the logarithm of Sigmoid is infinite where this is not.
    ("log_sigmoid", 3),
    // Tanh, Sub
    ("tanhshrink", 2),
    ("layer_norm", 1),
    ("layer_norm_plain", 1),
    // Add, LayerNormalization
    ("layer_norm_skip", 2),
    // Pow, ReduceMean, Add, Sqrt, Div, Mul: the spelling that runtimes compute in one kernel
    ("rms_norm", 6),
    ("batch_norm", 1),
    ("instance_norm", 1),
    ("group_norm", 1),
    // The same between two Cast, and Mul in half precision
    ("rms_norm_cast", 9),
    // Transpose, LayerNormalization, Transpose
    ("layer_norm_channels", 3),
    // ReduceL2, Max, Div
    ("l2_norm", 3),
    ("softmax", 1),
    ("softmax_middle", 1),
    ("log_softmax", 1),
    ("log_sum_exp", 1),
    // ReduceMax, Sub, Exp, ReduceSum, Log, Add
    ("shifted_log_sum_exp", 6),
    // Transpose, MatMul, Mul, Softmax, MatMul, and Add or Where for a mask
    ("attention", 5),
    ("attention_masked", 6),
    ("attention_where", 6),
    ("attention_causal", 6),
    // Reshape, Expand, Reshape for keys and values each
    ("attention_grouped", 11),
    // Reshape and Transpose for queries, keys, values and the result
    ("attention_heads", 12),
    // Reshape, Gemm, Reshape, Split, three Transpose, MatMul, Mul, Softmax, MatMul, Transpose, Reshape
    ("attention_packed", 13),
    // The heads are transposed at once, and keys once more.
    ("attention_stacked", 12),
    // As masked, with IsNaN and Where
    ("attention_guarded", 8),
    // As masked, with one Add more and no scale
    ("attention_biased", 6),
    ("attention_alibi", 6),
    // Mul, Split, Concat, Mul, Add
    ("rope", 5),
    // The same between two Reshape
    ("rope_pairs", 7),
    ("linear", 1),
    // MatMul, Add, Gelu
    ("linear_gelu", 3),
    ("linear_scaled", 1),
    ("linear_norm", 1),
    // Split, Sigmoid, Mul, Mul
    ("swiglu", 4),
    // MatMul, Sigmoid, Mul, MatMul, Mul, MatMul
    ("swiglu_mlp", 6),
    // MatMul, Split
    ("qkv", 2),
    // MatMul, Add, Split
    ("qkv_bias", 3),
    // Split, the activation, Mul
    ("geglu", 3),
    ("geglu_tanh", 3),
    ("reglu", 3),
    ("glu", 3),
    ("conv_affine", 1),
    // Conv, Relu
    ("conv_affine_relu", 2),
    // Conv, Clip
    ("conv_depthwise", 2),
    ("conv_padded", 1),
    ("affine_conv", 1),
    // GlobalAveragePool, Conv, Relu, Conv, Sigmoid, Mul
    ("squeeze_excite", 6),
    // Reshape, Transpose, Reshape
    ("channel_shuffle", 3),
    ("pixel_shuffle", 1),
    ("space_to_depth", 1),
    ("identity_movement", 1),
    ("identity_parts", 1),
    ("identity_numbers", 1),
    ("identity_casts", 1),
    ("identity_mixed", 1),
];

/// Families that newer operator sets write in fewer nodes.
const NEWER: &[(&str, i64, usize)] = &[
    ("attention", 23, 1),
    ("attention_masked", 23, 1),
    ("attention_causal", 23, 1),
    ("attention_heads", 23, 1),
    ("attention_packed", 23, 3),
    ("rms_norm", 23, 1),
    ("silu", 24, 1),
    ("gelu_sigmoid", 24, 1),
    ("swiglu", 24, 3),
    ("swiglu_mlp", 24, 5),
];

/// Families that the operators of ONNX Runtime write in fewer nodes.
const RUNTIME: &[(&str, usize)] = &[
    ("gelu_sigmoid", 1),
    ("silu", 1),
    // FusedMatMul, Softmax, MatMul, and Add or Where for a mask
    ("attention", 3),
    ("attention_masked", 4),
    ("attention_where", 4),
    ("attention_causal", 4),
    ("attention_grouped", 9),
    ("attention_heads", 1),
    ("attention_packed", 1),
    ("attention_stacked", 1),
    // As masked, with IsNaN and Where
    ("attention_guarded", 6),
    ("attention_biased", 5),
    ("attention_alibi", 4),
    // Split, QuickGelu, Mul
    ("swiglu", 3),
    ("swiglu_mlp", 5),
    ("conv_affine_relu", 1),
];
