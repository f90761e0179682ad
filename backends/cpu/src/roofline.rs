//! What this machine does at most: the roofline of S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance
//! model for multicore architectures", 2009.
//!
//! Measured anew each time; nothing here decides what a plan does.

use crate::runtime::threads::{SharedSlice, Threads};
use mlc_vector::multiply_adds;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Operations and bytes of memory in a second at most, on so many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Of f32; a multiply-add is two.
    pub flops: f64,
    /// Read and written, of more than the caches hold.
    pub bytes: f64,
}

/// Time for each of both measurements.
const BUDGET: Duration = Duration::from_millis(150);
/// Rounds of multiply-adds between two looks at the clock.
const ROUNDS: usize = 200_000;
/// Elements that are copied: 64 MiB are read and as many written.
const COPIED: usize = 16 << 20;
/// Elements that a thread copies at a time.
const PIECE: usize = 1 << 16;

impl Roofline {
    /// Measures it: the fastest of several times.
    pub(crate) fn measure(threads: &Threads) -> Roofline {
        threads.enter(|| Roofline { flops: flops(threads), bytes: bytes(threads) })
    }

    /// The part of this machine's best that so much work in so many seconds is: of its operations or of its traffic with memory, whichever takes
    /// longer.
    pub fn part(&self, flops: f64, bytes: f64, seconds: f64) -> f64 {
        (flops / self.flops).max(bytes / self.bytes) / seconds
    }
}

/// Units of work in a second, in the fastest of the calls of `once` that the budget allows, but for the first: it meets memory that is not there yet.
fn fastest(mut once: impl FnMut() -> f64) -> f64 {
    once();
    let (began, mut best) = (Instant::now(), 0.0f64);
    loop {
        let start = Instant::now();
        let done = once();
        best = best.max(done / start.elapsed().as_secs_f64());
        if began.elapsed() >= BUDGET {
            return best;
        }
    }
}

fn flops(threads: &Threads) -> f64 {
    let all = threads.count();
    fastest(|| {
        let mut done = vec![0usize; all];
        threads.chunks(&mut done, 1, 1, |_, done| {
            for done in done {
                let seed = black_box(0.999);
                *done = multiply_adds(ROUNDS, seed);
            }
        });
        2.0 * done.iter().sum::<usize>() as f64
    })
}

fn bytes(threads: &Threads) -> f64 {
    let (from, mut to) = (vec![1f32; COPIED], vec![0f32; COPIED]);
    let to = SharedSlice::new(&mut to);
    fastest(|| {
        threads.each(COPIED / PIECE, |task| {
            let at = task * PIECE;
            // SAFETY: tasks do not overlap.
            unsafe { to.part(at, PIECE) }.copy_from_slice(black_box(&from[at..][..PIECE]));
        });
        2.0 * (COPIED * size_of::<f32>()) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_what_takes_longer() {
        let roof = Roofline { flops: 100.0, bytes: 10.0 };
        assert_eq!(roof.part(50.0, 1.0, 1.0), 0.5);
        assert_eq!(roof.part(50.0, 8.0, 2.0), 0.4);
    }

    #[test]
    fn a_machine_does_something() {
        let roof = Roofline::measure(&Threads::new(2));
        assert!(roof.flops > 0.0 && roof.bytes > 0.0, "{roof:?}");
    }
}
