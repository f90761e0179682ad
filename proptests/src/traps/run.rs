//! Every trap through the real path, its results held against the judge's.

use super::text::{self, Graph};
use super::values::{Draw, SYMBOLS, inputs};
use super::{Ends, Trap};
use mlc_backends::Backend;
use mlc_backends::cpu::Cpu;
use mlc_backends::reference::run_values;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::plan::Plan;
use mlc_rewrite::onnx::{Imported, RawModel, export, import, printable, read_onnx, write_onnx};
use mlc_rewrite::pipeline::{Options, optimize, plan, target};
use mlc_rewrite::show;
use std::collections::BTreeMap;
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
    /// The optimised program on the judge, by what it was optimised for.
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
                        Some(values) => compare(&ways, &values, draw, &mut out),
                        None => out.wrong.push("an input has no known size".into()),
                    }
                }
            }
            if out.compared == 0 {
                out.wrong.push("the judge ran it on no inputs at all".into());
            }
        }
        Ok(None) => out.compared += 1,
        Err(e) => out.wrong.push(e),
    }
    out
}

/// The model of a trap, initialisers that are listed as inputs among the inputs.
pub fn model(graph: &Graph) -> RawModel {
    let mut model = graph.model.clone();
    model.graph.inputs.extend(graph.listed.iter().cloned());
    model
}

fn read(model: &RawModel, scratch: &Path) -> Result<Imported, String> {
    write_onnx(model, scratch).map_err(|e| format!("not written: {e}"))?;
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
    let graph = text::graph(trap.text)?;
    let imported = match (read(&model(&graph), scratch), trap.ends) {
        (Err(e), Ends::Refused(words)) if e.contains(words) => return Ok(None),
        (Err(e), _) => return Err(e),
        (Ok(_), Ends::Refused(words)) => {
            return Err(format!("it is read, but must be refused for `{words}`"));
        }
        (Ok(i), Ends::Equal) => i,
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
    let raw = export(&standard.program, library, &imported.model, opset)
        .map_err(|e| format!("not exported: {e}"))?;
    let again = read(&raw, scratch).map_err(|e| format!("the export: {e}"))?.program;
    *programs += &show::program(&again, library, "exported");
    let cpu_target = target(library, "cpu").map_err(unoptimised)?;
    let plain = plan(&source, library, &cpu_target).map_err(unoptimised)?;
    let others = vec![("cpu", cpu.program), ("standard", standard.program), ("exported", again)];
    Ok(Some((Ways { source, cpu: cpu.plan, plain, others }, graph)))
}

fn unoptimised(e: impl std::fmt::Display) -> String {
    format!("not optimised: {e:#}")
}

fn judged(p: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let values = run_values(p, crate::library(), inputs).map_err(|e| e.to_string())?;
    Ok(values.iter().map(|a| a.to_tensor()).collect())
}

fn on_cpu(plan: &Plan, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let compiled =
        Cpu::new(1).compile(plan, crate::library().clone()).map_err(|e| e.to_string())?;
    compiled.run(inputs).map_err(|e| e.to_string())
}

/// The inputs in the order of another program's.
fn by_name(of: &Program, to: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let known: BTreeMap<&str, &Tensor> = of.inputs.iter().map(|(n, _)| &**n).zip(inputs).collect();
    let one = |n: &str| known.get(n).map(|t| (*t).clone()).ok_or(format!("input `{n}` is new"));
    to.inputs.iter().map(|(n, _)| one(n)).collect()
}

/// Compares all ways on one draw; what the judge cannot run is not compared.
fn compare(ways: &Ways, values: &[Tensor], draw: Draw, out: &mut Outcome) {
    let Ok(expected) = judged(&ways.source, values) else { return };
    let mut hold = |way: &str, found: Result<Vec<Tensor>, String>, near: f64, skip: &[Tensor]| {
        out.compared += 1;
        if let Err(e) = found.and_then(|f| agree(&ways.source, &expected, &f, near, skip)) {
            out.wrong.push(format!("{way}, {draw:?}: {e}"));
        }
    };
    for (name, p) in &ways.others {
        let found = by_name(&ways.source, p, values).and_then(|v| judged(p, &v));
        hold(&format!("{name} on the judge"), found, ON_JUDGE, &[]);
    }
    let plain = on_cpu(&ways.plain, values);
    // Where the working type already fails the program as read, it decides nothing about the optimised one.
    let skip = if draw.is_tame() { vec![] } else { plain.clone().unwrap_or_default() };
    hold("as read on the cpu", plain, ON_CPU, &skip);
    hold("optimised on the cpu", on_cpu(&ways.cpu, values), ON_CPU, &skip);
}

/// What folded constants may move a result computed in f64.
const ON_JUDGE: f64 = 1e-6;
/// What the working type may.
const ON_CPU: f64 = 2e-5;

/// Equal types and shapes; NaN, infinities, integers and truth values the same; numbers within rounding, but for elements
/// that `skip` has wrong, too.
fn agree(
    source: &Program,
    expected: &[Tensor],
    found: &[Tensor],
    near: f64,
    skip: &[Tensor],
) -> Result<(), String> {
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
        let room = |v: f64| unit * (v.abs() + 0.1 * top) + f64::from(f32::MIN_POSITIVE);
        let same = |p: f64, q: f64| {
            p == q || p.is_nan() && q.is_nan() || e.dtype().is_float() && (p - q).abs() <= room(p)
        };
        let skipped = skip.get(o).map(Tensor::to_f64).unwrap_or_default();
        for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
            if !same(p, q) && skipped.get(i).is_none_or(|&s| same(p, s)) {
                return Err(format!("output `{name}`, element {i}: {p:?} became {q:?}"));
            }
        }
    }
    Ok(())
}
