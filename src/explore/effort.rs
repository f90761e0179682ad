//! How much of a search has been done: steps of matching, counted, so that where a search ends does not hang on the
//! clock; the clock is asked on the way only as a safety net.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Steps between two looks at the clock.
const LOOKS: u64 = 1 << 10;

/// What one search may still do.
pub(super) struct Effort {
    allowed: u64,
    left: Cell<u64>,
    start: Instant,
    time: Duration,
    late: Cell<bool>,
}

impl Effort {
    /// So many steps, until so much time since `start` has gone by.
    pub fn new(allowed: u64, start: Instant, time: Duration) -> Effort {
        Effort { allowed, left: Cell::new(allowed), start, time, late: Cell::new(false) }
    }

    /// One step more: a pattern held against a class, or a node of one.
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
