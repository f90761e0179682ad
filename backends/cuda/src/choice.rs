//! Products of a run by a library or by generated code: whichever is faster on this device.
//!
//! Both are run once on the same numbers; a library whose result differs is not used. Then both are timed, and the device keeps
//! what is chosen, so that later sessions compute the same in the same way. A library that fails is left, never silently:
//! every choice and every failure is a note of the session.

use super::buffers::{Memory, OwnProduct};
use super::calls::Call;
use super::matrix_product::Alternative;
use super::session::LaunchedPlan;
use super::{Address, Argument, DriverError, Launch, Library, MatrixProduct, Place};
use mlc_backends::BackendError;
use mlc_dsl::ir::{DType, Tensor};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that a library may use beside the operands, of all products of a session in turn.
const WORKSPACE: u64 = 32 << 20;
/// How often either way is timed, and computed each time.
const TRIALS: usize = 4;
const REPEATS: usize = 5;

/// How notes name the way without a library.
const CODE: &str = "generated code";

/// A product that the library computes.
pub struct Choice {
    /// In place of these calls.
    pub launches: Range<usize>,
    product: OwnProduct,
    rest: Option<Call>,
    /// What it computes, for a note.
    what: String,
    is_used: AtomicBool,
}

/// Part of a run.
pub enum Step<'a> {
    /// A launch, and its number.
    Launch(usize, &'a Call),
    /// A product.
    Library(&'a Choice),
}

impl<'a> Step<'a> {
    /// The launch, if it is one.
    pub fn call(&self) -> Option<&'a Call> {
        match self {
            Step::Launch(_, call) => Some(call),
            Step::Library(_) => None,
        }
    }
}

/// The products of a session that the library computes.
#[derive(Default)]
pub struct Choices {
    all: Vec<Choice>,
    /// The library's name and version.
    library: String,
    notes: Mutex<Vec<String>>,
    /// What was decided of products, and is told: equal ones are computed in one way.
    decided: HashMap<MatrixProduct, bool>,
    _workspace: Option<Memory>,
}

/// What came of trying both ways.
pub(super) enum Trial {
    /// Seconds by the launches, and by what may take their place.
    Times(f64, f64),
    /// The results differ by so much of the largest element.
    Differs(f64),
    NoClock,
}

impl Choice {
    fn new(
        plan: &LaunchedPlan,
        alternative: &Alternative,
        workspace: &Memory,
    ) -> Result<Choice, BackendError> {
        // Launches without blocks are no calls.
        let calls =
            |until: usize| plan.launches.each[..until].iter().filter(|l| l.has_blocks()).count();
        let Range { start, end } = alternative.launches;
        let rest = alternative.rest.as_ref().map(|l| Call::new(l, &plan.buffers)).transpose()?;
        let address = |a: &Argument| plan.buffers.address(a.place, a.bytes);
        let operands: Option<Vec<Address>> = alternative.arguments.iter().map(address).collect();
        let operands = operands.ok_or_else(|| super::buffers::misplaced("a product"))?;
        let beside = (workspace.address, workspace.bytes);
        let prepared = plan.driver.prepare(&alternative.product, &operands, beside)?;
        Ok(Choice {
            launches: calls(start)..calls(end),
            product: OwnProduct::new(&plan.driver, prepared),
            rest,
            what: alternative.product.to_string(),
            is_used: AtomicBool::new(true),
        })
    }

    /// What stands for its launches where functions are named.
    pub fn name(&self) -> &'static str {
        "product by the library"
    }

    fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The calls that it takes the place of.
    pub fn own<'a>(&self, calls: &'a [Call]) -> &'a [Call] {
        &calls[self.launches.clone()]
    }

    /// Starts the product and what follows it.
    pub fn start(&self, plan: &LaunchedPlan) -> Result<(), DriverError> {
        plan.driver.multiply(plan.stream.stream, self.product.prepared)?;
        self.rest.as_ref().map_or(Ok(()), |call| plan.launch(call, false))
    }

    /// Computes the product both ways on the same numbers, then times both.
    fn tried(
        &self,
        plan: &LaunchedPlan,
        of: &Alternative,
        calls: &[Call],
    ) -> Result<Trial, BackendError> {
        let launches = &plan.launches.each[of.launches.clone()];
        let own = || self.own(calls).iter().try_for_each(|call| plan.launch(call, false));
        tried(plan, launches, &own, &|| self.start(plan))
    }
}

/// Computes what these launches do, and what may take their place, on the same numbers, then times both.
pub(super) fn tried(
    plan: &LaunchedPlan,
    launches: &[Launch],
    own: &dyn Fn() -> Result<(), DriverError>,
    other: &dyn Fn() -> Result<(), DriverError>,
) -> Result<Trial, BackendError> {
    let arguments = || launches.iter().flat_map(|l| &l.arguments);
    for a in arguments().filter(|a| !a.written) {
        // What a run writes before it reads it; constants and what is kept stay as they are.
        let fresh = matches!(a.place, Place::Input(_) | Place::Arena(_) | Place::Output(_));
        if let (true, Some(at)) = (fresh, plan.buffers.address(a.place, a.bytes)) {
            plan.driver.upload(plan.stream.stream, at, &numbers(a.dtype, a.bytes))?;
        }
    }
    let written = arguments().rfind(|a| a.written && a.place != Place::Fault);
    let result = written.and_then(|a| Some((*a, plan.buffers.address(a.place, a.bytes)?)));
    let Some((result, at)) = result else { return Ok(Trial::NoClock) };
    let read = || -> Result<Vec<f64>, BackendError> {
        let mut bytes = vec![0; result.bytes as usize];
        plan.driver.download(plan.stream.stream, &mut [(at, &mut bytes)])?;
        let shape = vec![bytes.len() / result.dtype.size()];
        let tensor = Tensor::new(result.dtype, shape, bytes.into());
        Ok(tensor.map_err(|_| super::buffers::misplaced("a product"))?.to_f64())
    };
    own()?;
    let expected = read()?;
    plan.driver.clear(plan.stream.stream, at, result.bytes)?;
    other()?;
    let error = difference(&expected, &read()?);
    if error.is_nan() || error > tolerance(result.dtype) {
        return Ok(Trial::Differs(error));
    }
    let mut work = |step: usize| {
        (0..REPEATS).try_for_each(|_| if step.is_multiple_of(2) { own() } else { other() })
    };
    let seconds = plan.driver.timed(plan.stream.stream, 2 * TRIALS, &mut work)?;
    let Some(seconds) = seconds else { return Ok(Trial::NoClock) };
    let least = |first: usize| {
        seconds.iter().skip(first).step_by(2).copied().fold(f64::INFINITY, f64::min)
            / REPEATS as f64
    };
    Ok(Trial::Times(least(0), least(1)))
}

impl Choices {
    /// Decides about the products of a plan whose launches are loaded.
    pub fn made(plan: &LaunchedPlan) -> Result<Choices, BackendError> {
        let mut choices = Choices::default();
        if plan.launches.alternatives.is_empty() {
            return Ok(choices);
        }
        match plan.driver.library() {
            Library::Off => return Ok(choices),
            Library::Absent(why) => {
                choices.note(format!("products run as generated code: {why}"));
                return Ok(choices);
            }
            Library::Present(name) => choices.library = name,
        }
        let workspace = match Memory::new(&plan.driver, WORKSPACE) {
            Ok(memory) => memory,
            Err(e @ DriverError::Memory { .. }) => {
                choices.note(format!("products run as generated code: {e}"));
                return Ok(choices);
            }
            Err(e) => return Err(e.into()),
        };
        for alternative in &plan.launches.alternatives {
            match choices.decided(plan, alternative, &workspace) {
                Ok(Some(choice)) => choices.all.push(choice),
                Ok(None) => {}
                Err(e @ BackendError::Device(DriverError::Lost { .. })) => return Err(e),
                Err(e) => {
                    let (library, product) = (&choices.library, alternative.product);
                    choices.note(format!(
                        "generated code, for {library} does not compute {product}: {e}"
                    ));
                }
            }
        }
        choices._workspace = (!choices.all.is_empty()).then_some(workspace);
        Ok(choices)
    }

    /// The product by the library, if that is what is chosen.
    fn decided(
        &mut self,
        plan: &LaunchedPlan,
        alternative: &Alternative,
        workspace: &Memory,
    ) -> Result<Option<Choice>, BackendError> {
        let (product, library) = (alternative.product, self.library.clone());
        let prepared = || Choice::new(plan, alternative, workspace);
        if let Some(by_library) = self.decided.get(&product) {
            return by_library.then(prepared).transpose();
        }
        if let Some(by_library) = plan.driver.chosen(&product) {
            let choice = by_library.then(prepared).transpose()?;
            let who = if by_library { &*library } else { CODE };
            self.note(format!("{who}, as chosen before: {product}"));
            self.decided.insert(product, by_library);
            return Ok(choice);
        }
        let choice = prepared()?;
        let micro = |seconds: f64| format!("{:.2} µs", seconds * 1e6);
        let (chosen, note) = match choice.tried(plan, alternative, plan.calls())? {
            Trial::Times(own, by) if by < own => {
                (true, format!("{library}, {} against {}", micro(by), micro(own)))
            }
            Trial::Times(own, by) => {
                (false, format!("{CODE}, {} against {}", micro(own), micro(by)))
            }
            Trial::Differs(error) => {
                (false, format!("{CODE}, for {library} differs by {error:.1e}"))
            }
            Trial::NoClock => {
                self.note(format!("{CODE}, for the device has no clock: {product}"));
                self.decided.insert(product, false);
                return Ok(None);
            }
        };
        self.note(format!("{note}: {product}"));
        self.decided.insert(product, chosen);
        plan.driver.choose(&product, chosen);
        Ok(chosen.then_some(choice))
    }

    /// Adds a note, unless it is there.
    fn note(&self, text: String) {
        let mut notes = self.notes.lock().unwrap_or_else(|e| e.into_inner());
        if !notes.contains(&text) {
            notes.push(text);
        }
    }

    /// All notes so far.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// How many products the library computes.
    pub fn in_use(&self) -> usize {
        self.all.iter().filter(|c| c.is_used()).count()
    }

    /// From here on launches compute this product.
    pub fn give_up(&self, choice: &Choice, why: &DriverError) {
        choice.is_used.store(false, Ordering::Relaxed);
        self.note(format!(
            "generated code from here on, for {} failed: {why}: {}",
            self.library, choice.what
        ));
    }

    /// The calls of a run, with products in place of some of them.
    pub fn steps<'a>(&'a self, calls: &'a [Call]) -> Vec<Step<'a>> {
        let mut steps = vec![];
        let mut at = 0;
        while at < calls.len() {
            match self.all.iter().find(|c| c.is_used() && c.launches.start == at) {
                Some(choice) if choice.launches.end > at => {
                    steps.push(Step::Library(choice));
                    at = choice.launches.end;
                }
                _ => {
                    steps.push(Step::Launch(at, &calls[at]));
                    at += 1;
                }
            }
        }
        steps
    }
}

/// Bytes of small numbers of a type, the same every time; zeros of types that are no floats.
fn numbers(dtype: DType, bytes: u64) -> Vec<u8> {
    let count = bytes as usize / dtype.size();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Sixteenths of -1 to 1, which every type here has exactly.
        f64::from((state >> 24) % 33) / 16.0 - 1.0
    };
    match dtype.is_float() {
        true => {
            let values: Vec<f64> = (0..count).map(|_| next()).collect();
            Tensor::from_f64(dtype, vec![count], &values).bytes().to_vec()
        }
        false => vec![0; bytes as usize],
    }
}

/// The largest difference of two results as a part of the largest element.
fn difference(own: &[f64], other: &[f64]) -> f64 {
    let largest = own.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let apart = own.iter().zip(other).map(|(a, b)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false => (a - b).abs(),
    });
    let most =
        apart.fold(0.0f64, |m, d| if d.is_nan() || m.is_nan() { f64::NAN } else { m.max(d) });
    if most == 0.0 { 0.0 } else { most / largest }
}

/// Up to what part of the largest element results may differ that are accumulated in `f32` in another order, and rounded.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-4,
    }
}
