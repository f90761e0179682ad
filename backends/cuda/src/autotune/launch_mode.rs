//! Autotuning of how a run is started: as one megakernel, as separate launches, or with programmatic dependent launch.
//!
//! Each mode is started once, then timed by the device's clock as runs start it; the device keeps the choice. Inputs are zeros
//! meanwhile: launch times hardly depend on them.

use super::comparison;
use crate::buffers::OwnedGraph;
use crate::session::{LaunchedPlan, Start};
use mlc_backends::BackendError;
use mlc_backends::device::DriverError;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// Which launches use programmatic dependent launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyLaunch {
    None,
    /// Those with little shared memory: blocks with much would crowd on the few multiprocessors that have room left.
    Light,
    All,
}

/// How a run is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaunchMode {
    /// As one launch, the megakernel.
    Megakernel,
    /// As separate launches.
    Separate(EarlyLaunch),
}

impl LaunchMode {
    const ALL: [LaunchMode; 4] = [
        LaunchMode::Megakernel,
        LaunchMode::Separate(EarlyLaunch::None),
        LaunchMode::Separate(EarlyLaunch::Light),
        LaunchMode::Separate(EarlyLaunch::All),
    ];

    /// The record of a choice that a device keeps.
    fn name(self) -> &'static str {
        match self {
            LaunchMode::Megakernel => "one",
            LaunchMode::Separate(EarlyLaunch::None) => "several",
            LaunchMode::Separate(EarlyLaunch::Light) => "light ones early",
            LaunchMode::Separate(EarlyLaunch::All) => "early",
        }
    }
}

/// A mode, the seconds of a run, and the captured graph.
type TimedMode = (LaunchMode, f64, Option<OwnedGraph>);

impl LaunchedPlan {
    /// Decides how runs are started, if that is open.
    pub(crate) fn choose_run(&mut self) -> Result<(), BackendError> {
        // What is one launch whatever the clock says.
        if self.megakernel.is_some() && self.launches.megakernel_estimate.is_none() {
            return Ok(());
        }
        let ways = self.ways();
        let [first, _, ..] = ways[..] else { return Ok(()) };
        let is_likely = self.launches.megakernel_estimate.unwrap_or(false);
        let likely = if is_likely { first } else { LaunchMode::Separate(EarlyLaunch::None) };
        let what = self.what_runs();
        let before = self.driver.chosen_run(&what);
        if let Some(way) = ways.iter().find(|way| before.as_deref() == Some(way.name())) {
            self.decide(*way, "as chosen before".into());
        } else if self.driver.timed(self.stream.stream, 0, &mut |_| Ok(()))?.is_none() {
            self.decide(likely, "by an estimate, for the device has no clock".into());
        } else {
            match self.time_modes(&ways) {
                Ok(tried) if tried.is_empty() => self.decide(likely, "by an estimate".into()),
                Ok(mut tried) => {
                    tried.sort_by(|a, b| a.1.total_cmp(&b.1));
                    let all: Vec<String> =
                        tried.iter().map(|t| format!("{:.2} µs", t.1 * 1e6)).collect();
                    let (way, _, graph) = tried.swap_remove(0);
                    self.decide(way, all.join(" against "));
                    self.driver.choose_run(&what, way.name());
                    if let Some(graph) = graph {
                        self.running = Mutex::new(Start::Recorded(graph));
                        return Ok(());
                    }
                }
                Err(e @ DriverError::Call { .. }) => {
                    self.decide(LaunchMode::Separate(EarlyLaunch::None), e.to_string());
                }
                Err(e) => return Err(e.into()),
            }
        }
        if !self.is_one() && self.calls().len() > 1 {
            self.running = Mutex::new(Start::First);
        }
        Ok(())
    }

    /// The modes that are possible.
    fn ways(&self) -> Vec<LaunchMode> {
        let is_early = self.driver.has_programmatic_launch() && self.calls().len() > 1;
        let is_open = |way: &LaunchMode| match way {
            LaunchMode::Megakernel => self.megakernel.is_some(),
            LaunchMode::Separate(EarlyLaunch::None) => true,
            LaunchMode::Separate(_) => is_early,
        };
        LaunchMode::ALL.into_iter().filter(is_open).collect()
    }

    fn decide(&mut self, way: LaunchMode, why: String) {
        if let LaunchMode::Separate(early) = way {
            self.early = (early, why.clone());
        }
        if let Some(merged) = &self.megakernel {
            merged.decide(way == LaunchMode::Megakernel, why);
        }
    }

    /// The key of a run, in a line: code, grids, and how much of it libraries compute.
    fn what_runs(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.launches.unit().hash(&mut hasher);
        let all = self.launches.each.iter().chain(&self.launches.megakernel);
        all.for_each(|l| (&l.function, l.grid, l.block).hash(&mut hasher));
        self.choices.in_use().hash(&mut hasher);
        format!("a run of {} launches, {:016x}", self.calls().len(), hasher.finish())
    }

    /// Starts a run in a mode.
    fn start_in(&self, way: LaunchMode) -> Result<(), DriverError> {
        match way {
            LaunchMode::Megakernel => self.start_as_one(),
            LaunchMode::Separate(early) => self.start_apart(early),
        }
    }

    /// Times all modes; none if the device has no clock.
    fn time_modes(&self, ways: &[LaunchMode]) -> Result<Vec<TimedMode>, DriverError> {
        let on = self.stream.stream;
        for memory in self.buffers.inputs.iter().flatten() {
            self.driver.clear(on, memory.address, memory.bytes)?;
        }
        let mut tried: Vec<TimedMode> = vec![];
        for &way in ways {
            // Functions may be loaded when they are first started.
            self.start_in(way)?;
            let recorded = match way {
                LaunchMode::Megakernel => None,
                LaunchMode::Separate(early) => {
                    match self.driver.record(on, &mut || self.start_apart(early)) {
                        Err(DriverError::Call { .. }) => None,
                        recorded => recorded?,
                    }
                }
            };
            let graph = recorded.map(|g| OwnedGraph::new(&self.driver, g));
            tried.push((way, f64::INFINITY, graph));
        }
        let times = comparison::times(self, ways.len(), &|way| match &tried[way] {
            (_, _, Some(own)) => self.driver.replay(on, own.graph),
            (way, _, None) => self.start_in(*way),
        })?;
        let Some(times) = times else { return Ok(vec![]) };
        for (of, seconds) in tried.iter_mut().zip(times) {
            of.1 = seconds;
        }
        Ok(tried)
    }
}
