//! The self-check: source and result run on the same inputs, and the reference interpreter decides which is right.
//!
//! Inputs are the user's and seeded ones of several styles, as many as a program's size permits; a small
//! program is compared with the reference interpreter, a large one with the source. Never decides what happens to a
//! wrong result: that is the task of `guard.rs`.

mod blame;
mod budget;
pub(crate) mod by_nodes;
mod discontinuity;
mod overflow_margin;
pub(crate) mod report;
mod sensitivity;
mod sets;
mod verdict;

pub use blame::{Blamed, Contradiction, blame, replay};
pub(crate) use budget::with_integers;
pub use report::{Against, InputSet, InputSetReport, SelfCheck, Sensitivity, TurnedOff};
pub(crate) use sets::named;
pub use verdict::{Finding, Rule, Runs, Verdict, Wrong, difference, verdict};

use crate::error::Error;
use crate::pipeline::options::{Fp, Guard};
use crate::pipeline::result::Optimized;
use mlc_backends::reference::{self, Array, Precision, Reference};
use mlc_backends::{Backend, BackendError, Executable};
use mlc_cpu::Cpu;
use mlc_dsl::ir::{NodeKind, Program, Tensor, Type};
use mlc_dsl::library::{Library, TargetItem};
use mlc_dsl::plan::Plan;
use mlc_dsl::random::Random;
pub use mlc_extract::resources::operations;
use mlc_verify::random_inputs::Style;
use std::sync::Arc;

/// Operations that the reference interpreter may do in all input sets of a program together: about half a second.
pub const INTERPRETED: f64 = 1e9;
/// Operations that the CPU may do in those after the first.
pub const CHECKED: f64 = 2e10;

/// A result that is wrong on an input set.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The inputs.
    pub set: InputSet,
    /// Name of the output; empty if the result does not run at all.
    pub output: String,
    /// The worst element.
    pub finding: Option<Finding>,
    /// In words.
    pub message: String,
}

/// What a check found: what it did, and the first failure.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What was compared.
    pub report: SelfCheck,
    /// What is wrong.
    pub failure: Option<Failure>,
}

/// What a check needs besides programs.
#[derive(Clone, Copy)]
pub struct Check<'a> {
    /// The declarations.
    pub library: &'a Arc<Library>,
    /// What the user decides.
    pub guard: &'a Guard,
    /// Which laws may have fired.
    pub fp: Fp,
    /// Styles of the seeded inputs, if the program has such inputs.
    pub styles: &'a [Style],
    /// Seed of the inputs.
    pub seed: u64,
    /// Threads of the runs.
    pub threads: usize,
}

/// Holds a program against its source on ordinary inputs; yields the largest error relative to each
/// output's largest element.
pub fn compare(
    source: &Program,
    program: &Program,
    library: &Arc<Library>,
    seed: u64,
    threads: usize,
) -> Result<f64, Error> {
    let guard = Guard::default();
    let (fp, styles) = (Fp::Reorder, &[Style::Ordinary]);
    let check = Check { library, guard: &guard, fp, styles, seed, threads };
    let checked = check.plans(source, &check.plan(program))?;
    match checked.failure {
        Some(f) => Err(Error::unexpected(f.message)),
        None => checked
            .report
            .error
            .ok_or_else(|| Error::unexpected("the program does not run on seeded inputs")),
    }
}

impl Check<'_> {
    /// Holds a result against its source: its own plan, if that is for the CPU.
    pub fn run(&self, source: &Program, o: &Optimized, is_own: bool) -> Result<Checked, Error> {
        match is_own {
            true => self.plans(source, &o.plan),
            false => self.plans(source, &self.plan(&o.program)),
        }
    }

    /// Holds a plan for the CPU against its source.
    pub fn plans(&self, source: &Program, result: &Plan) -> Result<Checked, Error> {
        let plan = self.plan(source);
        let mut report = SelfCheck::default();
        let mut room = match self.room(&plan, result) {
            Ok(room) => room,
            Err(why) => return Ok(Checked::not(report, why)),
        };
        let compiled = match self.compiled(&plan) {
            Ok(compiled) => compiled,
            Err(e) => return Ok(Checked::not(report, e.to_string())),
        };
        self.relate(source, (&plan, result), &*compiled, &mut room);
        let work = room.source;
        report.operations = work;
        (report.bytes, report.symbols) = (room.bytes, room.symbols.clone().into_iter().collect());
        let mut drawn = self.sets(source, work, &room);
        self.add_extents(&mut drawn, (&plan, result), &room);
        let sets::Drawn { mut sets, mut left_out, refused } = drawn;
        let sources = self.sources(&*compiled, &mut sets);
        // Its packed weights are not kept beside those of the result.
        drop(compiled);
        let inputs: Vec<&[Tensor]> = sets.iter().map(|s| s.inputs.as_slice()).collect();
        let results = match self.runs(result, &inputs) {
            Ok(results) => results,
            Err(e @ BackendError::Memory { .. }) => return Ok(Checked::not(report, e.to_string())),
            Err(e) => vec![Err(e); sets.len()],
        };
        let mut failure = None;
        let mut spent = 0.0;
        for (set, (s, r)) in sets.into_iter().zip(sources.into_iter().zip(results)) {
            let s = match s {
                Ok(s) => s,
                Err(e) if set.style.is_none() => {
                    return Err(Error::unexpected(format!("input set `{}`: {e}", set.name)));
                }
                Err(e) => {
                    report.sets.push(InputSetReport::unused(&set, e.to_string()));
                    continue;
                }
            };
            let r = match r {
                Ok(r) => r,
                Err(e @ BackendError::Memory { .. }) => {
                    report.sets.push(InputSetReport::unused(&set, e.to_string()));
                    continue;
                }
                Err(e) => {
                    let message = format!("the result fails where the model does not: {e}");
                    let output = String::new();
                    failure = Some(Failure { set, output, finding: None, message });
                    break;
                }
            };
            let same = s.iter().zip(&r).all(|(a, b)| a.bytes() == b.bytes());
            let affordable = spent + set.work <= INTERPRETED && room.reference;
            let truth = if affordable && !same {
                spent += set.work;
                reference::run_values(source, self.library, &set.inputs).ok()
            } else {
                None
            };
            let one =
                One { check: self, source, plan: &plan, result, set: &set, truth, s: &s, r: &r };
            let (verdicts, wrong) = one.compare()?;
            let against = match (same, affordable) {
                (true, _) => Against::Bits,
                (false, true) => Against::Reference,
                (false, false) => Against::Model,
            };
            report.add(&set, against, &verdicts, &s, &r);
            if report.sensitivity.is_none() && matches!(set.style, None | Some(Style::Ordinary)) {
                report.sensitivity = self.sensitivity(source, &set, &s)?;
            }
            if let Some(output) = wrong {
                failure = Some(one.failure(output, &verdicts[output]));
                break;
            }
        }
        report.left_out.append(&mut left_out);
        report.sets.extend(refused);
        if failure.is_none() && report.sets.iter().all(|s| s.unused.is_some()) {
            let why = report.sets.first().and_then(|s| s.unused.clone());
            let why = why.unwrap_or_else(|| "no inputs could be drawn".into());
            report.not_checked =
                Some(format!("the model does not run on inputs drawn for it: {why}"));
        }
        Ok(Checked { report, failure })
    }

    /// How strictly the results of a program are compared.
    fn rule(&self, program: &Program) -> Rule {
        Rule {
            tolerance: self.guard.tolerance,
            unit: unit(program),
            is_approx: self.fp == Fp::Approx,
            overflows: false,
        }
    }

    /// A program's plan for the CPU.
    fn plan(&self, program: &Program) -> Plan {
        mlc_extract::kernels::selection::select_kernels(
            program.clone(),
            self.library,
            &cpu(self.library),
        )
    }

    /// Runs a plan on several inputs.
    fn runs(
        &self,
        plan: &Plan,
        inputs: &[&[Tensor]],
    ) -> Result<Vec<Result<Vec<Tensor>, BackendError>>, BackendError> {
        let compiled = self.compiled(plan)?;
        Ok(inputs.iter().map(|i| compiled.run(i)).collect())
    }

    fn compiled(&self, plan: &Plan) -> Result<Box<dyn Executable>, BackendError> {
        self.cpu().compile(plan, self.library.clone())
    }
}

/// One input set, with the runs on it.
struct One<'a> {
    check: &'a Check<'a>,
    source: &'a Program,
    plan: &'a Plan,
    result: &'a Plan,
    set: &'a InputSet,
    truth: Option<Vec<Array>>,
    s: &'a [Tensor],
    r: &'a [Tensor],
}

impl One<'_> {
    /// The verdicts on all outputs, and the output that is wrong: it must be so on inputs beside these, and
    /// not come of an overflow that the source is near to itself.
    fn compare(&self) -> Result<(Vec<Verdict>, Option<usize>), Error> {
        let rule = Rule {
            unit: unit(self.source).max(unit(&self.result.program)),
            overflows: !matches!(
                self.set.style,
                Some(Style::Ordinary | Style::Zeros | Style::NotFinite)
            ),
            ..self.check.rule(self.source)
        };
        let all = |here: &Here<'_>| -> Vec<Verdict> {
            (0..here.s.len()).map(|i| verdict(&here.output(i), &rule)).collect()
        };
        let is_wrong = |v: &[Verdict]| v.iter().any(|v| !v.wrong.is_empty());
        if let Some(i) = self.s.iter().zip(self.r).position(|(s, r)| type_of(s) != type_of(r)) {
            let verdicts = vec![Verdict::default(); self.s.len()];
            return Ok((verdicts, Some(i)));
        }
        let mut here = Here {
            truth: self.truth.as_deref(),
            s: self.s,
            r: self.r,
            moved: None,
            disturbed: None,
        };
        let verdicts = all(&here);
        if !is_wrong(&verdicts) {
            return Ok((verdicts, None));
        }
        let beside = beside(&self.set.inputs, self.check.seed);
        let run = |plan: &Plan| self.check.runs(plan, &[&beside]).map(|mut r| r.swap_remove(0));
        let (Ok(s), Ok(r)) = (run(self.plan)?, run(self.result)?) else {
            // A rounding decides whether it runs at all.
            return Ok((verdicts, None));
        };
        let interpreted = |precision: Precision, inputs: &[Tensor]| {
            let reference = Reference { precision, ..Reference::default() };
            self.truth.as_ref()?;
            reference.run_values(self.source, self.check.library, inputs).ok()
        };
        let disturbed = interpreted(Precision::Disturbed(self.check.seed), &self.set.inputs);
        // Without the interpreter, small constants move as well: a model that rounds its inputs to a few bits forgets how they moved.
        let moved = match self.truth {
            Some(_) => None,
            None => {
                run(&self.check.plan(&with_moved_constants(self.source, self.check.seed)))?.ok()
            }
        };
        let moved = moved.as_ref().unwrap_or(&s);
        (here.moved, here.disturbed) = (Some(moved.as_slice()), disturbed.as_deref());
        let mut verdicts = all(&here);
        if !is_wrong(&verdicts) {
            return Ok((verdicts, None));
        }
        let truth = interpreted(Precision::F64, &beside);
        let again =
            all(&Here { truth: truth.as_deref(), s: &s, r: &r, moved: Some(self.s), ..here });
        // Infinities that are there before any sum are not made by it.
        let drawn = self.set.style.is_some_and(|s| s != Style::NotFinite);
        let overflows =
            overflow_margin::overflow(self.source, self.check, &self.set.inputs, drawn)?;
        for (v, again) in verdicts.iter_mut().zip(&again) {
            let of_overflow =
                |w: &Finding| w.wrong == Wrong::Kind && !w.result.is_finite() && !w.source.is_nan();
            v.keep(|w| again.is_wrong(w.at) && !(overflows && of_overflow(w)));
        }
        self.drop_jumps(&mut verdicts, &rule)?;
        let wrong = verdicts.iter().position(|v| !v.wrong.is_empty());
        Ok((verdicts, wrong))
    }

    fn failure(&self, output: usize, v: &Verdict) -> Failure {
        let name = self.source.outputs[output].0.clone();
        let message = match v.worst() {
            Some(w) => format!("output `{name}`, input set `{}`: {}", self.set.name, words(w)),
            None => format!(
                "output `{name}`: {} became {}",
                type_of(&self.s[output]),
                type_of(&self.r[output])
            ),
        };
        Failure { set: self.set.clone(), output: name, finding: v.worst().cloned(), message }
    }
}

/// The runs of all outputs.
#[derive(Clone, Copy)]
struct Here<'a> {
    truth: Option<&'a [Array]>,
    s: &'a [Tensor],
    r: &'a [Tensor],
    moved: Option<&'a [Tensor]>,
    disturbed: Option<&'a [Array]>,
}

impl<'a> Here<'a> {
    fn output(&self, i: usize) -> Runs<'a> {
        Runs {
            truth: self.truth.map(|t| &t[i]),
            source: &self.s[i],
            moved: self.moved.map(|m| &m[i]),
            disturbed: self.disturbed.map(|d| &d[i]),
            result: &self.r[i],
        }
    }
}

/// A finding in words.
pub fn words(w: &Finding) -> String {
    let truth = w.truth.map_or(String::new(), |t| format!(", and f64 {t:?}"));
    let off = match w.wrong {
        Wrong::Far => format!(", a relative error of {:.1e}", w.error),
        Wrong::Kind => String::new(),
    };
    format!(
        "element {} is {:?} where the model as read has {:?}{truth}{off}",
        w.at, w.result, w.source
    )
}

fn type_of(t: &Tensor) -> Type {
    Type::new(t.dtype(), t.shape().iter().map(|&n| (n as i64).into()).collect())
}

/// The coarsest rounding of a program's floats.
fn unit(p: &Program) -> f64 {
    let types = p.nodes.iter().flat_map(|n| &n.types);
    types.map(|t| t.dtype.unit_roundoff()).fold(0.0, f64::max)
}

/// The inputs with every float moved by a few roundings; zeros and what is not finite stay.
fn beside(inputs: &[Tensor], seed: u64) -> Vec<Tensor> {
    beside_by(inputs, seed, 1.0)
}

/// The same, by so many times as many roundings.
fn beside_by(inputs: &[Tensor], seed: u64, times: f64) -> Vec<Tensor> {
    let mut random = Random::from_state(seed ^ 0xbe51de);
    inputs.iter().map(|t| moved(t, times, &mut random, |_| true)).collect()
}

/// A tensor whose floats are moved by a few roundings where `f` holds.
fn moved(t: &Tensor, times: f64, random: &mut Random, f: impl Fn(f64) -> bool) -> Tensor {
    if !t.dtype().is_float() {
        return t.clone();
    }
    let u = 4.0 * times * t.dtype().unit_roundoff();
    let mut value = |v: f64| if f(v) { v * (1.0 + u * (2.0 * random.unit() - 1.0)) } else { v };
    let values: Vec<f64> = t.to_f64().into_iter().map(&mut value).collect();
    Tensor::from_f64(t.dtype(), t.shape().to_vec(), &values)
}

/// Constants of more elements stay as they are when others are moved: they would be copied.
const FEW: usize = 1 << 16;

/// The program with its small constants moved by a few roundings. Whole numbers stay: they may count.
fn with_moved_constants(program: &Program, seed: u64) -> Program {
    with_constants_moved_by(program, seed, 1.0)
}

/// The same, by so many times as many roundings.
fn with_constants_moved_by(program: &Program, seed: u64, times: f64) -> Program {
    let mut random = Random::from_state(seed ^ 0x5ca1e5);
    let mut out = program.clone();
    for node in &mut out.nodes {
        let NodeKind::Const(c) = node.kind else { continue };
        let t = out.consts.get(c);
        if t.dtype().is_float() && t.len() <= FEW {
            let beside = moved(t, times, &mut random, |v| v != v.round());
            node.kind = NodeKind::Const(out.consts.intern(beside));
        }
    }
    out
}

/// The target on which checks run.
fn cpu(library: &Library) -> TargetItem {
    library.target("cpu").cloned().unwrap_or_else(|| TargetItem {
        name: "cpu".into(),
        doc: vec![],
        extends: None,
        devices: vec![],
        source: 0,
        figures: Default::default(),
        kernels: vec![],
        pointwise: None,
        types: Default::default(),
    })
}

/// Runs a program on the CPU backend, one kernel plan per call.
pub fn run(
    program: &Program,
    library: &Arc<Library>,
    inputs: &[Tensor],
    threads: usize,
) -> Result<Vec<Tensor>, BackendError> {
    let plan =
        mlc_extract::kernels::selection::select_kernels(program.clone(), library, &cpu(library));
    Cpu::new(threads).compile(&plan, library.clone())?.run(inputs)
}
