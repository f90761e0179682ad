//! `inspect MODEL`: summarises a model without changing or running it.

use super::common::{Common, Findings};
use super::options::model::reader;
use super::options::shapes::ShapeOptions;
use crate::model::file_kind::{Content, content};
use crate::model::imported;
use mlc_dsl::diagnostics::message_text::bytes;
use mlc_dsl::ir::{DType, NodeKind, Program, Tensor, Type};
use mlc_dsl::library::Library;
use mlc_dsl::plan::NOMINAL;
use mlc_extract::Size;
use mlc_extract::cost::work::Works;
use mlc_onnx::{RawAttr, RawDim, RawGraph, RawModel, RawValueInfo, undeclared};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The model: an ONNX file or a `.rules` text, `-` for standard input.
    model: PathBuf,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What `--json` holds.
#[derive(Debug, Default, Serialize)]
struct Inspection {
    /// `ONNX` or `rules`.
    format: &'static str,
    ir_version: Option<i64>,
    /// Version by domain; the standard one is `""`.
    opsets: BTreeMap<String, i64>,
    /// The tool that made the model, and its version.
    producer: String,
    inputs: Vec<InterfaceValue>,
    outputs: Vec<InterfaceValue>,
    nodes: usize,
    /// Nodes by operator, those of subgraphs among them.
    operators: BTreeMap<String, usize>,
    /// Constants of floating point, and their elements.
    parameters: Parameters,
    /// Bytes of constants by element type.
    bytes: BTreeMap<String, u64>,
    /// Operations of one run, if the model is understood; a multiplication with an addition is two.
    flops: Option<f64>,
    /// Symbols that count as a number where operations are counted.
    symbols: Vec<String>,
    /// Operators that nothing declares, with the number of their nodes.
    unknown: BTreeMap<String, usize>,
    /// Why the model is not understood; `None` if it is.
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct InterfaceValue {
    name: String,
    dtype: String,
    /// Numbers, symbols, `?`; `None` where not even the rank is known.
    shape: Option<Vec<String>>,
}

#[derive(Debug, Default, Serialize)]
struct Parameters {
    tensors: usize,
    elements: u64,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[("MODEL", &args.model)], &[])?;
    let told = match content(&args.model)? {
        Content::Weights(file) => {
            let format = file.format;
            let model = reader(&args.common, &args.shapes).weighed(*file)?;
            let mut told = Inspection { format, ..Inspection::default() };
            of_program(&mut told, &model.program, &model.library);
            work(&mut told, &model.program, &model.library);
            told
        }
        Content::Text(text) => {
            let reader = reader(&args.common, &args.shapes);
            let model = reader.entered(args.model.display().to_string(), text)?;
            let mut told = Inspection { format: "rules", ..Inspection::default() };
            of_program(&mut told, &model.program, &model.library);
            work(&mut told, &model.program, &model.library);
            told
        }
        Content::Onnx(mut raw) => {
            let reader = reader(&args.common, &args.shapes);
            reader.enter_shapes(&mut raw)?;
            let library = reader.library()?;
            let mut told = of_raw(&raw);
            told.unknown = undeclared(&raw, &library);
            match imported(*raw, &library, Some(&args.model)) {
                Ok(imported) => work(&mut told, &imported.program, &library),
                Err(e) => told.refused = Some(e.to_string()),
            }
            told
        }
    };
    args.common.report(&told)?;
    args.common.screen.print(&human(&told))?;
    Ok(Findings::Nothing)
}

fn of_raw(raw: &RawModel) -> Inspection {
    let value = |v: &RawValueInfo| InterfaceValue {
        name: v.name.clone(),
        dtype: v.dtype.map_or("?".into(), |d| d.to_string()),
        shape: v.dims.as_ref().map(|dims| dims.iter().map(shown).collect()),
    };
    let mut out = Inspection {
        format: "ONNX",
        ir_version: Some(raw.ir_version),
        opsets: raw.opset_imports.clone(),
        producer: format!("{} {}", raw.producer_name, raw.producer_version).trim().to_string(),
        inputs: raw.graph.inputs.iter().map(value).collect(),
        outputs: raw.graph.outputs.iter().map(value).collect(),
        nodes: raw.graph.nodes.len(),
        ..Inspection::default()
    };
    let mut graphs: Vec<&RawGraph> = vec![&raw.graph];
    while let Some(graph) = graphs.pop() {
        graph.initializers.values().for_each(|t| constant(&mut out, t));
        for n in &graph.nodes {
            *out.operators.entry(n.operator()).or_default() += 1;
            graphs.extend(n.attrs.values().flat_map(RawAttr::graphs));
        }
    }
    out
}

/// A declared extent as text.
fn shown(d: &RawDim) -> String {
    match d {
        RawDim::Known(n) => n.to_string(),
        RawDim::Symbol(s) => s.clone(),
        RawDim::Unknown => "?".into(),
    }
}

fn constant(out: &mut Inspection, t: &Tensor) {
    *out.bytes.entry(t.dtype().to_string()).or_default() += t.bytes().len() as u64;
    if matches!(t.dtype(), DType::F16 | DType::BF16 | DType::F32 | DType::F64) {
        out.parameters.tensors += 1;
        out.parameters.elements += t.len() as u64;
    }
}

fn of_program(out: &mut Inspection, p: &Program, library: &Library) {
    let value = |name: &str, ty: &Type| InterfaceValue {
        name: name.to_string(),
        dtype: ty.dtype.to_string(),
        shape: Some(ty.shape.iter().map(ToString::to_string).collect()),
    };
    out.inputs = p.inputs.iter().map(|(n, t)| value(n, t)).collect();
    out.outputs = p.outputs.iter().map(|(n, v)| value(n, p.ty(*v))).collect();
    (0..p.consts.len() as u32).for_each(|i| constant(out, p.consts.get(mlc_dsl::ir::ConstId(i))));
    for n in &p.nodes {
        if let NodeKind::Apply(call, _) = &n.kind {
            *out.operators.entry(library.call(*call).name.to_string()).or_default() += 1;
            out.nodes += 1;
        }
    }
}

/// Counts operations, symbols at their nominal value.
fn work(out: &mut Inspection, p: &Program, library: &Library) {
    let works = Works::at(library, Size::all(NOMINAL));
    let mut flops = 0.0;
    for n in &p.nodes {
        if let NodeKind::Apply(call, attrs) = &n.kind {
            let args: Vec<&Type> = n.args.iter().map(|&a| p.ty(a)).collect();
            let work = works.of(*call, attrs, &args, &n.types);
            flops += work.flops + work.slow;
        }
    }
    out.flops = Some(flops);
    let symbols = p.inputs.iter().flat_map(|(_, t)| t.shape.iter().flat_map(|e| e.symbols()));
    out.symbols = symbols.map(|s| s.to_string()).collect();
    out.symbols.sort();
    out.symbols.dedup();
}

fn human(i: &Inspection) -> String {
    let mut out = String::new();
    let _ = write!(out, "format      {}", i.format);
    if let Some(v) = i.ir_version {
        let _ = write!(out, ", IR version {v}");
    }
    for (domain, version) in &i.opsets {
        let domain = if domain.is_empty() { "operator set" } else { domain };
        let _ = write!(out, ", {domain} {version}");
    }
    out.push('\n');
    if !i.producer.is_empty() {
        let _ = writeln!(out, "producer    {}", i.producer);
    }
    for (label, values) in [("inputs", &i.inputs), ("outputs", &i.outputs)] {
        for (k, v) in values.iter().enumerate() {
            let label = if k == 0 { label } else { "" };
            let shape = v.shape.as_ref().map_or("[..]".into(), |s| format!("[{}]", s.join(", ")));
            let _ = writeln!(out, "{label:<12}{}: {}{shape}", v.name, v.dtype);
        }
    }
    let all: u64 = i.bytes.values().sum();
    let types: Vec<String> = i
        .bytes
        .iter()
        .filter(|(_, b)| **b > 0)
        .map(|(t, b)| format!("{t} {}", bytes(*b)))
        .collect();
    let Parameters { tensors, elements } = i.parameters;
    let _ = writeln!(out, "parameters  {} in {tensors} tensors", count(elements as f64));
    let _ = writeln!(out, "constants   {}: {}", bytes(all), types.join(", "));
    if let Some(flops) = i.flops {
        let symbols: Vec<String> = i.symbols.iter().map(|s| format!("{s}={NOMINAL}")).collect();
        let at =
            if symbols.is_empty() { String::new() } else { format!(" at {}", symbols.join(", ")) };
        let _ = writeln!(out, "operations  {} a run{at}", count(flops));
    }
    let _ = writeln!(out, "nodes       {}", i.nodes);
    let mut rows: Vec<(&String, &usize)> = i.operators.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    for (name, n) in rows {
        let note = if i.unknown.contains_key(name) { "  not declared" } else { "" };
        let _ = writeln!(out, "  {n:>6}  {name}{note}");
    }
    match &i.refused {
        None => out.push_str("understood  yes\n"),
        Some(why) => drop(writeln!(out, "understood  no: {why}")),
    }
    out
}

/// A number with a fitting unit.
fn count(n: f64) -> String {
    match n {
        n if n >= 1e12 => format!("{:.2} T", n / 1e12),
        n if n >= 1e9 => format!("{:.2} G", n / 1e9),
        n if n >= 1e6 => format!("{:.2} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}
