//! The budget of a search: a number of steps, and a callback, polled now and then, that can stop it.

use crate::extractor::Stop;

/// Steps between questions whether to stop.
const POLL: u64 = 1 << 16;

/// Steps spent, and how many there are.
pub(crate) struct Budget<'a> {
    pub(crate) steps: u64,
    limit: u64,
    stop: Stop<'a>,
    poll: u64,
    stopped: bool,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(limit: u64, stop: Stop<'a>) -> Self {
        Self { steps: 0, limit, stop, poll: 0, stopped: false }
    }

    /// A part of what is left, to be spent first.
    pub(crate) fn part(&self, steps: u64) -> Self {
        Self::new(self.limit.saturating_sub(self.steps).min(steps), self.stop)
    }

    /// Whether there is nothing left or somebody wants an end; once so, for good.
    pub(crate) fn spent(&mut self) -> bool {
        if !self.stopped && self.steps >= self.poll {
            self.poll = self.steps + POLL;
            self.stopped = (self.stop)();
        }
        self.stopped |= self.steps >= self.limit;
        self.stopped
    }
}
