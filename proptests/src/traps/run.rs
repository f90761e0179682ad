//! Runs every trap through the whole pipeline, and compares results with those of the reference interpreter.

use super::text::{self, Graph};
use super::values::{Draw, SYMBOLS, inputs};
use super::{Ends, Trap};
use mlc_backends::Backend;
use mlc_backends::reference::run_values;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::plan::Plan;
use mlc_onnx::printable;
use mlc_onnx::{Imported, RawDim, RawValueInfo, export_plan, import, read_onnx, write_onnx};
use mlc_rewrite::pipeline::{Options, optimize, plan, target};
use mlc_rewrite::show;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// What became of a trap.
#[derive(Default)]
pub struct Outcome {
    /// How many results were compared.
    pub compared: usize,
    /// What is wrong, each with the inputs' kind.
    pub wrong: Vec<String>,
    /// The program as read and what became of it.
    pub programs: String,
}

/// A trap ready to run: the program as read, and the other ways to compute it.
struct Ways {
    source: Program,
    cpu: Plan,
    plain: Plan,
    /// The optimised program on the reference interpreter, by what it was optimised for.
    others: Vec<(&'static str, Program)>,
}

/// Runs a trap on all draws.
pub fn run(trap: &Trap, scratch: &Path, options: &Options) -> Outcome {
    let mut out = Outcome::default();
    match prepare(trap, scratch, options, &mut out.programs) {
        Ok(Some((ways, graph))) => {
            for (i, &symbols) in SYMBOLS.iter().enumerate() {
                let open = ways.source.inputs.iter().any(|(_, t)| t.known_shape().is_none());
                if i > 0 && !open {
                    break;
                }
                for draw in Draw::ALL {
                    match inputs(&ways.source, &graph, draw, symbols) {
                        Some(values) => compare(&ways, &values, draw, &trap.ends, &mut out),
                        None => out.wrong.push("an input has no known size".into()),
                    }
                }
            }
            if out.compared == 0 {
                out.wrong.push("the reference interpreter ran it on no inputs at all".into());
            }
        }
        Ok(None) => out.compared += 1,
        Err(e) => out.wrong.push(e),
    }
    out
}

/// Writes a model; initialisers that are listed as inputs are appended to the file, whose parts protobuf merges.
pub fn write(graph: &Graph, path: &Path) -> Result<(), String> {
    write_onnx(&graph.model, path).map_err(|e| format!("not written: {e}"))?;
    if graph.listed.is_empty() {
        return Ok(());
    }
    let mut file =
        std::fs::OpenOptions::new().append(true).open(path).map_err(|e| e.to_string())?;
    let inputs = graph.listed.iter().flat_map(|v| field(11, &value_info(v))).collect::<Vec<u8>>();
    file.write_all(&field(7, &inputs)).map_err(|e| e.to_string())
}

/// A field of bytes: its number and length, each below 128, then the bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, bytes.len() as u8];
    out.extend(bytes);
    out
}

/// A `ValueInfoProto` of known extents below 128.
fn value_info(v: &RawValueInfo) -> Vec<u8> {
    let extent = |d: &RawDim| if let RawDim::Known(n) = d { *n as u8 } else { 0 };
    let dims = v.dims.iter().flatten().flat_map(|d| field(1, &[8, extent(d)]));
    let mut tensor = vec![8, v.dtype.map_or(0, text::code) as u8];
    tensor.extend(field(2, &dims.collect::<Vec<u8>>()));
    [field(1, v.name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

fn read(scratch: &Path) -> Result<Imported, String> {
    let raw = read_onnx(scratch).map_err(|e| format!("not read: {e}"))?;
    import(raw, crate::library()).map_err(|e| format!("not imported: {e}"))
}

/// `None` for a trap that is refused, as it must be.
fn prepare(
    trap: &Trap,
    scratch: &Path,
    options: &Options,
    programs: &mut String,
) -> Result<Option<(Ways, Graph)>, String> {
    let graph = text::graph(&trap.text)?;
    write(&graph, scratch)?;
    let imported = match (read(scratch), &trap.ends) {
        (Err(e), Ends::Refused(words)) if e.contains(words) => return Ok(None),
        (Err(e), _) => return Err(e),
        (Ok(_), Ends::Refused(words)) => {
            return Err(format!("it is read, but must be refused for `{words}`"));
        }
        (Ok(i), Ends::Equal | Ends::Limit) => i,
    };
    let library = crate::library();
    let source = imported.program.clone();
    *programs += &show::program(&source, library, "trap");
    let on_cpu = Options { target: "cpu".into(), operators: None, ..options.clone() };
    let cpu = optimize(source.clone(), library, &on_cpu).map_err(unoptimised)?;
    *programs += &show::program(&cpu.plan.program, library, "on cpu");
    let opset = imported.model.opset();
    let operators = Some(printable(library, opset, "standard"));
    let standard = Options { target: "standard".into(), operators, ..options.clone() };
    let standard = optimize(source.clone(), library, &standard).map_err(unoptimised)?;
    let raw = export_plan(&standard.plan, library, &imported.model, opset)
        .map_err(|e| format!("not exported: {e}"))?;
    write_onnx(&raw, scratch).map_err(|e| format!("the export is not written: {e}"))?;
    let again = read(scratch).map_err(|e| format!("the export: {e}"))?.program;
    *programs += &show::program(&again, library, "exported");
    let cpu_target = target(library, "cpu").map_err(unoptimised)?;
    let plain = plan(&source, library, &cpu_target).map_err(unoptimised)?;
    let others = vec![("cpu", cpu.program), ("standard", standard.program), ("exported", again)];
    Ok(Some((Ways { source, cpu: cpu.plan, plain, others }, graph)))
}

fn unoptimised(e: impl std::fmt::Display) -> String {
    format!("not optimised: {e:#}")
}

fn interpreted(p: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let values = run_values(p, crate::library(), inputs).map_err(|e| e.to_string())?;
    Ok(values.iter().map(|a| a.to_tensor()).collect())
}

fn on_cpu(plan: &Plan, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let compiled =
        Cpu::new(1).compile(plan, crate::library().clone()).map_err(|e| e.to_string())?;
    compiled.run(inputs).map_err(|e| e.to_string())
}

/// Which floats are disturbed: every so-manieth, from which on.
const DISTURBED: [(usize, usize); 4] = [(2, 0), (2, 1), (3, 0), (5, 2)];

/// Some floats moved by their last digit.
fn disturbed(inputs: &[Tensor], (every, from): (usize, usize)) -> Vec<Tensor> {
    let moved = |(i, v): (usize, f64)| if i % every == from { v * (1.0 - 1.2e-7) } else { v };
    let one = |t: &Tensor| match t.dtype().is_float() {
        true => {
            let values: Vec<f64> = t.to_f64().into_iter().enumerate().map(moved).collect();
            Tensor::from_f64(t.dtype(), t.shape().to_vec(), &values)
        }
        false => t.clone(),
    };
    inputs.iter().map(one).collect()
}

/// The inputs in the order of another program's.
fn by_name(of: &Program, to: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let known: BTreeMap<&str, &Tensor> = of.inputs.iter().map(|(n, _)| &**n).zip(inputs).collect();
    let one = |n: &str| known.get(n).map(|t| (*t).clone()).ok_or(format!("input `{n}` is new"));
    to.inputs.iter().map(|(n, _)| one(n)).collect()
}

/// Compares all ways on one draw; what the reference interpreter cannot run is not compared.
fn compare(ways: &Ways, values: &[Tensor], draw: Draw, ends: &Ends, out: &mut Outcome) {
    let Ok(expected) = interpreted(&ways.source, values) else { return };
    let limit = *ends == Ends::Limit && !draw.is_finite();
    // Ties of huge numbers hang on the last digit: where the graph as read does, the optimised one may.
    let own: Vec<_> = match draw.fits_f32() && draw.is_tame() {
        true => vec![],
        false => DISTURBED
            .iter()
            .filter_map(|d| interpreted(&ways.source, &disturbed(values, *d)).ok())
            .collect(),
    };
    let of_reference = if draw.fits_f32() { &[][..] } else { &own };
    let mut hold =
        |way: &str, found: Result<Vec<Tensor>, String>, near: f64, skip: &[Vec<Tensor>]| {
            out.compared += 1;
            let room = Room { near, limit, skip };
            if let Err(e) = found.and_then(|f| agree(&ways.source, &expected, &f, &room)) {
                out.wrong.push(format!("{way}, {draw:?}: {e}"));
            }
        };
    for (name, p) in &ways.others {
        let found = by_name(&ways.source, p, values).and_then(|v| interpreted(p, &v));
        hold(&format!("{name} on the reference interpreter"), found, ON_REFERENCE, of_reference);
    }
    if !draw.fits_f32() {
        return;
    }
    let plain = on_cpu(&ways.plain, values);
    // Where the working type already fails the program as read, it decides nothing about the optimised one.
    let failing = if draw.is_tame() { vec![] } else { plain.iter().cloned().collect() };
    hold("as read on the cpu", plain, ON_CPU, &failing);
    let skip = [failing, own.clone()].concat();
    hold("optimised on the cpu", on_cpu(&ways.cpu, values), ON_CPU, &skip);
}

/// What folded constants may move a result computed in f64.
const ON_REFERENCE: f64 = 1e-6;
/// What the working type may.
const ON_CPU: f64 = 2e-5;

/// What may differ.
struct Room<'a> {
    /// Rounding, relative.
    near: f64,
    /// What is NaN or infinite.
    limit: bool,
    /// Elements that one of these results has wrong, too.
    skip: &'a [Vec<Tensor>],
}

/// Equal types and shapes; NaN, infinities, integers and truth values the same; numbers within rounding.
fn agree(
    source: &Program,
    expected: &[Tensor],
    found: &[Tensor],
    room: &Room,
) -> Result<(), String> {
    let (near, skip) = (room.near, room.skip);
    if expected.len() != found.len() {
        return Err(format!("{} outputs instead of {}", found.len(), expected.len()));
    }
    for (o, (e, f)) in expected.iter().zip(found).enumerate() {
        let name = &source.outputs[o].0;
        if (e.dtype(), e.shape()) != (f.dtype(), f.shape()) {
            let (is, was) = ((f.dtype(), f.shape()), (e.dtype(), e.shape()));
            return Err(format!("output `{name}` is {is:?} instead of {was:?}"));
        }
        if e.bytes() == f.bytes() {
            continue;
        }
        let unit =
            if e.dtype().is_float() { near.max(4.0 * e.dtype().unit_roundoff()) } else { 0.0 };
        let (x, y) = (e.to_f64(), f.to_f64());
        let top = x.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
        let margin = |v: f64| unit * (v.abs() + 0.1 * top) + f64::from(f32::MIN_POSITIVE);
        let same = |p: f64, q: f64| {
            p == q || p.is_nan() && q.is_nan() || e.dtype().is_float() && (p - q).abs() <= margin(p)
        };
        let skipped: Vec<Vec<f64>> =
            skip.iter().filter_map(|r| r.get(o)).map(Tensor::to_f64).collect();
        for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
            if !same(p, q)
                && (p.is_finite() || !room.limit)
                && skipped.iter().all(|s| s.get(i).is_none_or(|&s| same(p, s)))
            {
                return Err(format!("output `{name}`, element {i}: {p:?} became {q:?}"));
            }
        }
    }
    Ok(())
}
