//! Compares alternative implementations on a device: whether their results agree, and how long each takes.

use crate::buffers::OwnedGraph;
use crate::driver::Address;
use crate::launch::Place;
use crate::launch::{Argument, Launch};
use crate::session::LaunchedPlan;
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use mlc_dsl::ir::{DType, Tensor};

/// Timings of each implementation, and launches per timing.
const TRIALS: usize = 4;
const REPEATS: usize = 5;

/// Deterministic inputs of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestInputs {
    Small,
    /// Small numbers, and NaN as the last element of the first operand.
    OneNan,
}

/// The result of launches, against which replacements are compared.
pub(crate) struct Comparison<'a> {
    plan: &'a LaunchedPlan,
    result: Argument,
    at: Address,
}

impl<'a> Comparison<'a> {
    /// Fills the operands of these launches; `None` if they write nothing that has a place.
    pub fn new(
        plan: &'a LaunchedPlan,
        launches: &[Launch],
        given: TestInputs,
    ) -> Result<Option<Comparison<'a>>, BackendError> {
        let arguments = || launches.iter().flat_map(|l| &l.arguments);
        let mut nan = given == TestInputs::OneNan;
        for a in arguments().filter(|a| !a.written) {
            // What a run writes before it reads it; constants and what is kept stay as they are.
            let fresh = matches!(a.place, Place::Input(_) | Place::Arena(_) | Place::Output(_));
            if let (true, Some(at)) = (fresh, plan.buffers.address(a.place, a.bytes)) {
                let nan = a.dtype.is_float() && std::mem::take(&mut nan);
                plan.driver.upload(plan.stream.stream, at, &numbers(a.dtype, a.bytes, nan))?;
            }
        }
        let written = arguments().rfind(|a| a.written && a.place != Place::Fault);
        let found = written.and_then(|a| Some((*a, plan.buffers.address(a.place, a.bytes)?)));
        Ok(found.map(|(result, at)| Comparison { plan, result, at }))
    }

    /// The result that is in memory.
    pub fn read(&self) -> Result<Vec<f64>, BackendError> {
        let (plan, dtype) = (self.plan, self.result.dtype);
        let mut bytes = vec![0; self.result.bytes as usize];
        plan.driver.download(plan.stream.stream, &mut [(self.at, &mut bytes)])?;
        let tensor = Tensor::new(dtype, vec![bytes.len() / dtype.size()], bytes.into());
        Ok(tensor.map_err(|_| crate::buffers::misplaced("a result"))?.to_f64())
    }

    /// Clears the result, so that the next implementation has to write it.
    pub fn clear(&self) -> Result<(), DriverError> {
        self.plan.driver.clear(self.plan.stream.stream, self.at, self.result.bytes)
    }

    /// The error relative to the largest element, if it is more than rounding explains.
    pub fn disagreement(&self, expected: &[f64]) -> Result<Option<f64>, BackendError> {
        let error = difference(expected, &self.read()?);
        Ok((error.is_nan() || error > tolerance(self.result.dtype)).then_some(error))
    }
}

/// Launches captured in one graph: enough for launch overhead to be hidden by the device's work.
const RECORDED: usize = 16;

/// The least seconds of each implementation within a captured graph, as launches follow each other there; `None` without a clock. Where a
/// device does not capture, launches are started one by one, and launch overhead counts.
///
/// # Errors
/// An implementation cannot be launched, or not be captured: then a run with it could not be either.
pub(crate) fn times_recorded(
    plan: &LaunchedPlan,
    ways: usize,
    start: &dyn Fn(usize) -> Result<(), DriverError>,
) -> Result<Option<Vec<f64>>, DriverError> {
    let (driver, on) = (&plan.driver, plan.stream.stream);
    if driver.timed(on, 0, &mut |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    let mut graphs = vec![];
    for way in 0..ways {
        match driver.record(on, &mut || (0..RECORDED).try_for_each(|_| start(way)))? {
            Some(graph) => graphs.push(OwnedGraph::new(driver, graph)),
            None => return times(plan, ways, start),
        }
    }
    let replay = |way: usize| driver.replay(on, graphs[way].graph);
    let found = least_seconds(plan, ways, 1, &replay)?;
    Ok(found.map(|all| all.into_iter().map(|s| s / RECORDED as f64).collect()))
}

/// The least seconds of each implementation, launched one after the other; `None` without a clock.
pub(crate) fn times(
    plan: &LaunchedPlan,
    ways: usize,
    start: &dyn Fn(usize) -> Result<(), DriverError>,
) -> Result<Option<Vec<f64>>, DriverError> {
    least_seconds(plan, ways, REPEATS, start)
}

/// The least seconds of each implementation, launched `repeats` times in a row.
fn least_seconds(
    plan: &LaunchedPlan,
    ways: usize,
    repeats: usize,
    start: &dyn Fn(usize) -> Result<(), DriverError>,
) -> Result<Option<Vec<f64>>, DriverError> {
    let mut work = |step: usize| (0..repeats).try_for_each(|_| start(step % ways));
    let Some(seconds) = plan.driver.timed(plan.stream.stream, ways * TRIALS, &mut work)? else {
        return Ok(None);
    };
    let least = |way: usize| {
        let own = seconds.iter().skip(way).step_by(ways).copied();
        own.fold(f64::INFINITY, f64::min) / repeats as f64
    };
    Ok(Some((0..ways).map(least).collect()))
}

/// Bytes of small pseudo-random floats, the last one NaN if `nan`; zeros for other types.
fn numbers(dtype: DType, bytes: u64, nan: bool) -> Vec<u8> {
    let count = bytes as usize / dtype.size();
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Sixteenths of -1 to 1, which every type here has exactly.
        f64::from((state >> 24) % 33) / 16.0 - 1.0
    };
    match dtype.is_float() {
        true => {
            let mut values: Vec<f64> = (0..count).map(|_| next()).collect();
            values.last_mut().filter(|_| nan).into_iter().for_each(|last| *last = f64::NAN);
            Tensor::from_f64(dtype, vec![count], &values).bytes().to_vec()
        }
        false => vec![0; bytes as usize],
    }
}

/// The largest difference of two results, relative to the largest element.
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

/// Tolerance, relative to the largest element, for results accumulated in `f32` in another order, and rounded.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-4,
    }
}
