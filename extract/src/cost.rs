//! The roofline price of a kernel: it computes or it moves bytes, whichever takes longer, after it
//! was launched.
//!
//! The model is that of S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual
//! performance model for multicore architectures", Communications of the ACM 52(4), 2009, with a
//! fixed time for each launch beside it. Ignores caches, occupancy and overlap between kernels; a
//! measured time replaces it wherever there is one.

use std::ops::{Add, AddAssign};

use crate::view::Cost;

/// What a kernel, or several kernels together, must do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Floating-point operations; a fused multiply-add is two.
    pub flops: f64,
    /// Bytes read from memory.
    pub read: f64,
    /// Bytes written to memory.
    pub written: f64,
    /// Kernel launches.
    pub launches: f64,
}

impl Add for Work {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            read: self.read + other.read,
            written: self.written + other.written,
            launches: self.launches + other.launches,
        }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The speed of a place to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How people call it.
    pub name: String,
    /// Sustained floating-point operations per second.
    pub flops_per_s: f64,
    /// Sustained bytes per second to and from memory.
    pub bytes_per_s: f64,
    /// Seconds from asking for a kernel until it starts.
    pub launch_s: f64,
}

impl Profile {
    /// Seconds this work takes here: `max(flops / flops_per_s, bytes / bytes_per_s) + launches *
    /// launch_s`.
    ///
    /// The maximum is taken over all of `work`, so price each kernel by itself and add the seconds.
    #[must_use]
    pub fn seconds(&self, work: &Work) -> f64 {
        let compute = work.flops / self.flops_per_s;
        let memory = (work.read + work.written) / self.bytes_per_s;
        compute.max(memory) + work.launches * self.launch_s
    }

    /// [`seconds`](Self::seconds) as the cost of a node.
    #[must_use]
    pub fn cost(&self, work: &Work) -> Cost {
        Cost::new(self.seconds(work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(flops: f64, read: f64, written: f64, launches: f64) -> Work {
        Work { flops, read, written, launches }
    }

    #[test]
    fn the_slower_side_sets_the_price() {
        let profile =
            Profile { name: "toy".into(), flops_per_s: 100.0, bytes_per_s: 10.0, launch_s: 0.5 };
        for (work, seconds) in [
            (work(0.0, 0.0, 0.0, 0.0), 0.0),
            (work(200.0, 5.0, 5.0, 0.0), 2.0),
            (work(100.0, 20.0, 10.0, 0.0), 3.0),
            (work(100.0, 10.0, 0.0, 2.0), 2.0),
            (work(0.0, 0.0, 0.0, 3.0), 1.5),
        ] {
            assert_eq!(profile.seconds(&work), seconds, "{work:?}");
            assert_eq!(profile.cost(&work), Cost::new(seconds), "{work:?}");
        }
    }

    #[test]
    fn work_adds_by_component() {
        let mut sum = work(1.0, 2.0, 3.0, 4.0) + work(10.0, 20.0, 30.0, 40.0);
        sum += work(0.5, 0.5, 0.5, 0.5);
        assert_eq!(sum, work(11.5, 22.5, 33.5, 44.5));
    }
}
