//! A step budget for searches: matching steps are counted, so that the end of a search does not depend on the
//! clock; the clock is only a safety net.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Steps between two looks at the clock.
const LOOKS: u64 = 1 << 10;

/// What one search may still do.
pub(crate) struct StepBudget {
    allowed: u64,
    left: Cell<u64>,
    start: Instant,
    time: Duration,
    late: Cell<bool>,
}

impl StepBudget {
    /// So many steps, until so much time since `start` has gone by.
    pub fn new(allowed: u64, start: Instant, time: Duration) -> StepBudget {
        StepBudget { allowed, left: Cell::new(allowed), start, time, late: Cell::new(false) }
    }

    /// One more step: a pattern is tried on a class, or on a node of one.
    pub fn step(&self) {
        let left = self.left.get().saturating_sub(1);
        self.left.set(left);
        if left.is_multiple_of(LOOKS) && self.start.elapsed() > self.time {
            self.late.set(true);
        }
    }

    /// True if the search is to end.
    pub fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.late.get()
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.allowed - self.left.get()
    }
}
