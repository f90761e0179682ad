//! Times one kernel, with all operands in the caches and, on this machine's processor, with constants from memory.

use super::programs::{Point, ProgramDraw};
use crate::device::Device;
use crate::error::Error;
use crate::kernel_times::{WatchedPlan, Watcher};
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::{Library, TargetItem};
use mlc_extract::cost::target::REFERENCE;
use mlc_extract::kernels::selection::select_kernels;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Quartiles of the seconds of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// A quarter of the runs took less.
    pub lower: f64,
    /// Half of the runs took less.
    pub median: f64,
    /// Three quarters of the runs took less.
    pub upper: f64,
    pub least: f64,
    /// How many runs.
    pub runs: usize,
}

impl Times {
    /// Of the seconds of runs; `None` of none.
    pub fn of(mut seconds: Vec<f64>) -> Option<Times> {
        seconds.sort_by(f64::total_cmp);
        let at = |q: f64| seconds.get(((seconds.len() - 1) as f64 * q).round() as usize).copied();
        let least = *seconds.first()?;
        Some(Times {
            lower: at(0.25)?,
            median: at(0.5)?,
            upper: at(0.75)?,
            least,
            runs: seconds.len(),
        })
    }
}

/// Runs of one kind, at least and at most.
const RUNS: (usize, usize) = (7, 60);
/// Time for runs of one kind, once there are enough.
const BUDGET: Duration = Duration::from_millis(60);
/// Constants of fewer bytes are in a cache anyway.
const SMALL: f64 = 65_536.0;

/// Times kernels.
pub struct Timer<'a> {
    watcher: Watcher,
    library: &'a Arc<Library>,
    target: &'a TargetItem,
    /// Larger than all caches; walking it empties them. Nothing of another device's.
    other: Option<Vec<u64>>,
}

/// Times of one program: in the caches, and with constants from memory where that differs.
pub struct Timed {
    /// Everything in the caches.
    pub warm: Times,
    /// Constants from memory, all else as a kernel before would leave it.
    pub cold: Option<Times>,
}

impl<'a> Timer<'a> {
    /// For a target's kernels on a device; `cache` is the size of the largest cache.
    ///
    /// # Errors
    /// There is no such device.
    pub fn new(
        library: &'a Arc<Library>,
        target: &'a TargetItem,
        device: &Device,
        cache: f64,
    ) -> Result<Timer<'a>, Error> {
        let words = (1.5 * cache).clamp(1e6, 1e9) as usize / 8;
        let other = (!device.is_elsewhere()).then(|| vec![1; words]);
        Ok(Timer { watcher: device.watcher()?, library, target, other })
    }

    /// Times a program. An error is the backend's.
    pub fn time(
        &self,
        draw: &ProgramDraw<'_>,
        point: &Point,
        seed: u64,
    ) -> anyhow::Result<Option<Timed>> {
        let Some((program, inputs)) = draw.program(point, seed) else { return Ok(None) };
        let fixed = program.consts.bytes() as f64;
        let plan = select_kernels(program, self.library, self.target);
        let run = self.watcher.watch(&plan, self.library)?;
        // What a kernel leaves to the reference interpreter, for hundreds of its times, says nothing of the kernel.
        if point.kernel != REFERENCE && run.is_interpreted(&inputs)? {
            return Ok(None);
        }
        for _ in 0..2 {
            run.run(&inputs)?;
        }
        let Some(warm) = self.runs(&run, &inputs, false)? else { return Ok(None) };
        let is_cold = fixed > SMALL && self.other.is_some();
        let cold = if is_cold { self.runs(&run, &inputs, true)? } else { None };
        Ok(Some(Timed { warm, cold }))
    }

    fn runs(
        &self,
        run: &WatchedPlan,
        inputs: &[Tensor],
        cold: bool,
    ) -> anyhow::Result<Option<Times>> {
        let began = Instant::now();
        let mut seconds = Vec::new();
        while seconds.len() < RUNS.0 || began.elapsed() < BUDGET && seconds.len() < RUNS.1 {
            if cold {
                self.evict();
                inputs.iter().for_each(touch);
            }
            let steps = run.run(inputs)?;
            if steps.is_empty() {
                return Ok(None);
            }
            seconds.push(steps.iter().map(|(_, t)| t).sum());
        }
        Ok(Times::of(seconds))
    }

    /// Puts other data into the caches.
    fn evict(&self) {
        let other = self.other.iter().flatten();
        black_box(other.step_by(8).fold(0u64, |a, b| a.wrapping_add(*b)));
    }
}

/// Brings a tensor into the caches.
fn touch(t: &Tensor) {
    black_box(t.bytes().iter().step_by(64).fold(0u8, |a, b| a.wrapping_add(*b)));
}
