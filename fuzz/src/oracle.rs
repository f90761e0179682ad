//! The oracle: compares every way of running a program with the reference interpreter.
//!
//! If two values differ by more than a few roundings, perturbed runs of the reference interpreter show how far rounding errors
//! can grow in this program; what a few of them do not explain, more of them may, as where a rounding decides between two
//! elements. Only a larger difference is a failure. Never compares what the reference interpreter cannot run.

use crate::input_values::{Style, inputs, tame};
use crate::primitive::{Noise, flatten, trace};
use mlc_backends::reference::{Array, run_values};
use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::{ErrorClass, Library};
use mlc_dsl::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a program on inputs.
pub type Run<'a> = dyn Fn(&Program, &[Tensor]) -> Result<Vec<Tensor>, String> + 'a;

/// What is tested.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Declares every operator that programs apply.
    pub library: &'a Library,
    /// Makes an equal program.
    pub optimise: &'a dyn Fn(&Program) -> Result<Program, String>,
    /// Runs a program on the backend under test.
    pub run: &'a Run<'a>,
}

/// Which step went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum Stage {
    /// Optimising failed.
    Optimise,
    /// The optimised program has other inputs or outputs.
    Signature,
    /// The optimised program means something else.
    Meaning,
    /// The backend computes the program as read wrongly.
    Backend,
    /// The backend computes the optimised program wrongly.
    Optimised,
    /// What a given law was applied to is not what it yields, whether or not that is chosen.
    Law,
}

/// A disagreement.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which step.
    pub stage: Stage,
    /// What is wrong, with the place and both values.
    pub message: String,
    /// What the inputs are like.
    pub style: Style,
    /// The inputs on which the values differ, in the order of the program.
    pub inputs: Vec<Tensor>,
}

/// What the oracle says of a program.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All ways agree; how many runs were compared.
    Agrees(usize),
    /// Nothing could be compared.
    Skipped(String),
    /// They do not.
    Differs(Box<Finding>),
}

/// Optimises a program and compares all runs on inputs of the given styles.
pub fn examine(subject: &Subject, program: &Program, styles: &[Style], seed: u64) -> Verdict {
    let mut runs = Vec::new();
    let mut refused = String::from("the inputs have no known size");
    for &style in styles {
        let Some(first) = inputs(program, style, seed) else { continue };
        for values in [tame(&first), first].into_iter().rev() {
            match run_values(program, subject.library, &values) {
                Ok(_) => {
                    runs.push((style, values));
                    break;
                }
                Err(e) => refused = e.to_string(),
            }
        }
    }
    let Some((style, values)) = runs.first() else { return Verdict::Skipped(refused) };
    let found = |stage, message, style: &Style, inputs: &[Tensor]| {
        let finding = Finding { stage, message, style: *style, inputs: inputs.to_vec() };
        Verdict::Differs(Box::new(finding))
    };
    let optimised = match guarded(|| (subject.optimise)(program)) {
        Ok(p) => p,
        Err(e) => return found(Stage::Optimise, e, style, values),
    };
    for (style, values) in &runs {
        if let Err((stage, message)) = hold(subject, program, &optimised, *style, values) {
            return found(stage, message, style, values);
        }
    }
    Verdict::Agrees(runs.len())
}

/// Compares all runs of a program and an optimised one on the same inputs.
pub fn hold(
    subject: &Subject,
    program: &Program,
    optimised: &Program,
    style: Style,
    inputs: &[Tensor],
) -> Result<(), (Stage, String)> {
    let library = subject.library;
    same_signature(program, optimised).map_err(|m| (Stage::Signature, m))?;
    // What the reference interpreter cannot run is not compared.
    let Ok(expected) = run_values(program, library, inputs) else { return Ok(()) };
    let programs = &[program, optimised];
    let context = Context { library, programs, inputs, style, expected: &expected };
    let mut spread = None;
    let interpreted = run_values(optimised, library, inputs)
        .map_err(|e| (Stage::Meaning, format!("the reference interpreter fails on it: {e}")))?;
    let interpreted: Vec<Vec<f64>> = interpreted.iter().map(Array::to_f64).collect();
    context
        .compare(&interpreted, Rigour::Optimised, &mut spread)
        .map_err(|m| (Stage::Meaning, m))?;
    for (p, stage, rigour) in
        [(program, Stage::Backend, Rigour::Same), (optimised, Stage::Optimised, Rigour::Optimised)]
    {
        context.hold(subject.run, p, rigour, &mut spread).map_err(|m| (stage, m))?;
    }
    Ok(())
}

/// Compares a run of a program with what the reference interpreter says.
pub fn hold_run(
    library: &Library,
    program: &Program,
    style: Style,
    inputs: &[Tensor],
    run: &Run,
) -> Result<(), String> {
    // What the reference interpreter cannot run is not compared.
    let Ok(expected) = run_values(program, library, inputs) else { return Ok(()) };
    let programs = &[program];
    let context = Context { library, programs, inputs, style, expected: &expected };
    context.hold(run, program, Rigour::Same, &mut None)
}

/// Compares what was matched with what a law of this class says that it equals.
pub(crate) fn hold_pair(
    library: &Library,
    programs: [&Program; 2],
    class: ErrorClass,
    style: Style,
    inputs: &[Tensor],
) -> Result<(), String> {
    let Ok(expected) = run_values(programs[0], library, inputs) else { return Ok(()) };
    let found = run_values(programs[1], library, inputs)
        .map_err(|e| format!("the reference interpreter fails on the right side: {e}"))?;
    let found: Vec<Vec<f64>> = found.iter().map(Array::to_f64).collect();
    let context = Context { library, programs: &programs, inputs, style, expected: &expected };
    context.compare(&found, Rigour::Law(class), &mut None)
}

/// Runs `f`; a panic is an error like any other.
pub fn guarded<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("no message")))
    })
}

fn same_signature(a: &Program, b: &Program) -> Result<(), String> {
    if a.inputs != b.inputs {
        return Err("the optimised program has other inputs".into());
    }
    if a.outputs.len() != b.outputs.len() {
        return Err("the optimised program has another number of outputs".into());
    }
    for ((n, v), (m, w)) in a.outputs.iter().zip(&b.outputs) {
        if n != m || a.ty(*v) != b.ty(*w) {
            return Err(format!("output {n}: {} became {m}: {}", a.ty(*v), b.ty(*w)));
        }
    }
    Ok(())
}

/// How strictly special values are compared.
#[derive(Clone, Copy, PartialEq)]
enum Rigour {
    /// The same program: they agree.
    Same,
    /// Another spelling: sums regroup, so infinities may meet otherwise.
    Optimised,
    /// The other side of one law of this class: no number becomes NaN or infinite, nor the reverse, but where infinities meet.
    Law(ErrorClass),
}

impl Rigour {
    /// True if it permits what these are, whatever roundings do.
    fn permits(self, x: f64, y: f64, style: Style) -> bool {
        match self {
            Rigour::Same | Rigour::Law(ErrorClass::Exact | ErrorClass::Reorder) => false,
            Rigour::Optimised => {
                let is_neither = !x.is_finite() && !y.is_finite();
                let are_both = x.is_finite() && y.is_finite();
                x.is_infinite() || is_neither || !style.is_finite() && !are_both
            }
            Rigour::Law(ErrorClass::Approx { abs, rel }) => {
                !x.is_finite() || (x - y).abs() <= abs + rel * x.abs()
            }
        }
    }
}

struct Context<'a> {
    library: &'a Library,
    /// The program as read, and what was made of it.
    programs: &'a [&'a Program],
    inputs: &'a [Tensor],
    style: Style,
    expected: &'a [Array],
}

/// How far roundings carry each element; infinite where they decide what kind of number it is.
struct RoundingSpread {
    by_output: Vec<Vec<f64>>,
    extreme: bool,
    /// Infinities meet on the way, or a pole is hit, in either spelling: these are no arguments of the
    /// real functions that the laws keep, so one spelling may yield the limit where the other yields NaN,
    /// or the infinity of the other sign.
    limit: bool,
    /// How many runs show it.
    runs: usize,
}

/// Disturbed runs per program, and those before a difference is a failure.
const RUNS: usize = 6;
const MORE_RUNS: usize = 60;
/// How many times the seen spread is still a rounding.
const SLACK: f64 = 24.0;

impl Context<'_> {
    /// Compares a run of one of the programs.
    fn hold(
        &self,
        run: &Run,
        program: &Program,
        rigour: Rigour,
        spread: &mut Option<RoundingSpread>,
    ) -> Result<(), String> {
        let made = guarded(|| run(program, self.inputs))?;
        for (t, e) in made.iter().zip(self.expected) {
            if t.dtype() != e.dtype() || t.shape() != e.shape() {
                let (is, be) = ((t.dtype(), t.shape()), (e.dtype(), e.shape()));
                return Err(format!("a result is {is:?} instead of {be:?}"));
            }
        }
        let made: Vec<Vec<f64>> = made.iter().map(Tensor::to_f64).collect();
        self.compare(&made, rigour, spread)
    }

    fn compare(
        &self,
        found: &[Vec<f64>],
        rigour: Rigour,
        spread: &mut Option<RoundingSpread>,
    ) -> Result<(), String> {
        let unit = self.programs.iter().map(|p| roundoff(p)).fold(0.0, f64::max);
        for (o, (e, f)) in self.expected.iter().zip(found).enumerate() {
            let e = e.to_f64();
            if e.len() != f.len() {
                return Err(format!("output {o}: {} elements instead of {}", f.len(), e.len()));
            }
            for (i, (&x, &y)) in e.iter().zip(f).enumerate() {
                if x == y || x.is_nan() && y.is_nan() || rigour.permits(x, y, self.style) {
                    continue;
                }
                let near = 16.0 * unit.max(1e-12) * x.abs() + tiny(self.expected[o].dtype());
                if self.expected[o].dtype().is_float() && (x - y).abs() <= near {
                    continue;
                }
                let mut s = spread.get_or_insert_with(|| self.spread(RUNS));
                let room =
                    |s: &RoundingSpread| s.by_output[o].get(i).copied().unwrap_or(f64::INFINITY);
                let explains = |s: &RoundingSpread| {
                    s.limit && rigour != Rigour::Same
                        || room(s).is_infinite()
                        || s.extreme
                        || (x - y).abs() <= near + SLACK * room(s)
                };
                if !explains(s) && s.runs < MORE_RUNS {
                    s = spread.insert(self.spread(MORE_RUNS));
                }
                if s.limit && rigour != Rigour::Same {
                    return Ok(());
                }
                if explains(s) {
                    continue;
                }
                let name = &self.programs[0].outputs[o].0;
                return Err(format!(
                    "output {name}, element {i}: {x:?} expected, {y:?} found (roundings explain {:.1e})",
                    SLACK * room(s)
                ));
            }
        }
        Ok(())
    }

    fn spread(&self, runs: usize) -> RoundingSpread {
        let mut by_output: Vec<Vec<f64>> =
            self.expected.iter().map(|a| vec![0.0; a.len()]).collect();
        let (mut extreme, mut limit) = (false, false);
        let mut rng = Random::new(7);
        for &p in self.programs {
            // What has no definition here, as a bound of integers that is none, is computed all the same.
            let flat = flatten(p, self.library).unwrap_or_else(|_| p.clone());
            let mut disturbed = Vec::new();
            for k in 0..=runs {
                let noise = if k == 0 { Noise::Rounded } else { Noise::Random(&mut rng) };
                let Ok(t) = trace(&flat, self.library, self.inputs, noise) else {
                    // Roundings decide whether it runs at all.
                    return RoundingSpread { by_output, extreme: true, limit, runs };
                };
                extreme |= t.extreme;
                limit |= t.limit;
                disturbed.push(t.outputs(&flat));
            }
            // Each program is compared with its own unperturbed run: another meaning is not a rounding error.
            let Ok(own) = run_values(p, self.library, self.inputs) else { continue };
            for run in &disturbed {
                for (out, (e, a)) in by_output.iter_mut().zip(own.iter().zip(run)) {
                    for ((s, x), y) in out.iter_mut().zip(e.to_f64()).zip(a.to_f64()) {
                        let same = x == y || x.is_nan() && y.is_nan();
                        let d = if same { 0.0 } else { (x - y).abs() };
                        *s = if d.is_finite() { s.max(d) } else { f64::INFINITY };
                    }
                }
            }
        }
        RoundingSpread { by_output, extreme, limit, runs }
    }
}

/// The coarsest rounding of a program's floats.
fn roundoff(program: &Program) -> f64 {
    let types = program.nodes.iter().flat_map(|n| &n.types);
    types.map(|t| t.dtype.unit_roundoff()).fold(0.0, f64::max)
}

/// What may be flushed to zero.
fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-6,
        _ => 1e-36,
    }
}
