//! A run as one launch, or its launches one by one: whichever is faster on this device, where the generator leaves that open.
//!
//! Both are started once, then timed by the device's clock as runs start them; the device keeps what is chosen. Inputs are zeros
//! meanwhile: what launches take hardly depends on them.

use super::DriverError;
use super::buffers::OwnGraph;
use super::session::{LaunchedPlan, Start};
use mlc_backends::BackendError;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// How often either way is timed, and started each time.
const TRIALS: usize = 4;
const REPEATS: usize = 5;

/// Seconds of a run as one launch and one by one, and the latter as it was recorded.
type Trial = (f64, f64, Option<OwnGraph>);

impl LaunchedPlan {
    /// Decides between a run as one launch and its launches one by one, if that is open.
    pub(super) fn choose_run(&mut self) -> Result<(), BackendError> {
        let (Some(merged), Some(is_likely)) = (&self.merged, self.launches.by_clock) else {
            return Ok(());
        };
        let what = self.what_runs();
        let mut recorded = None;
        if let Some(as_one) = self.driver.chosen_run(&what) {
            merged.decide(as_one, "as chosen before".into());
        } else if self.driver.timed(self.stream.stream, 0, &mut |_| Ok(()))?.is_none() {
            merged.decide(is_likely, "by an estimate, for the device has no clock".into());
        } else {
            match self.tried() {
                Ok(Some((one, apart, graph))) => {
                    let (better, worse) = (one.min(apart) * 1e6, one.max(apart) * 1e6);
                    merged.decide(one < apart, format!("{better:.2} µs against {worse:.2} µs"));
                    self.driver.choose_run(&what, one < apart);
                    recorded = graph;
                }
                Ok(None) => merged.decide(is_likely, "by an estimate".into()),
                Err(e @ DriverError::Call { .. }) => merged.decide(false, e.to_string()),
                Err(e) => return Err(e.into()),
            }
        }
        if !merged.is_used() && self.calls().len() > 1 {
            let start = recorded.map_or(Start::First, Start::Recorded);
            self.running = Mutex::new(start);
        }
        Ok(())
    }

    /// What tells runs apart, in a line: their code and their grids.
    fn what_runs(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.launches.unit().hash(&mut hasher);
        let all = self.launches.each.iter().chain(&self.launches.merged);
        all.for_each(|l| (&l.function, l.grid, l.block).hash(&mut hasher));
        format!("a run of {} launches, {:016x}", self.calls().len(), hasher.finish())
    }

    /// Times both ways.
    fn tried(&self) -> Result<Option<Trial>, DriverError> {
        let on = self.stream.stream;
        for memory in self.buffers.inputs.iter().flatten() {
            self.driver.clear(on, memory.address, memory.bytes)?;
        }
        self.start_as_one()?;
        // Functions may be loaded when they are first started.
        self.start_apart()?;
        let graph = match self.driver.record(on, &mut || self.start_apart()) {
            Ok(graph) => graph.map(|g| OwnGraph::new(&self.driver, g)),
            Err(DriverError::Call { .. }) => None,
            Err(e) => return Err(e),
        };
        let mut work = |step: usize| {
            (0..REPEATS).try_for_each(|_| match (step.is_multiple_of(2), &graph) {
                (true, _) => self.start_as_one(),
                (false, Some(own)) => self.driver.replay(on, own.graph),
                (false, None) => self.start_apart(),
            })
        };
        let Some(seconds) = self.driver.timed(on, 2 * TRIALS, &mut work)? else { return Ok(None) };
        let least = |first: usize| {
            let own = seconds.iter().skip(first).step_by(2).copied();
            own.fold(f64::INFINITY, f64::min) / REPEATS as f64
        };
        Ok(Some((least(0), least(1), graph)))
    }
}
