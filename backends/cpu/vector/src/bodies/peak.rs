//! The body that measures a core's peak FMA throughput.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// So many rounds of independent multiply-adds; how many those are. `seed` is not known when this is compiled.
pub fn multiply_adds(rounds: usize, seed: f32) -> usize {
    // Nothing in memory is accessed.
    at_level!(multiply_adds(rounds, seed))
}

/// Defines `multiply_adds` for a level, whose module defines `Vector` and the operations on it.
macro_rules! peak {
    ($(#[$feature:meta])*) => {
        /// So many rounds of independent multiply-adds in registers, as many as hide the latency of one; their number. `seed` is not known
        /// when this is compiled.
        ///
        /// # Safety
        /// This level is that of the machine.
        $(#[$feature])*
        pub unsafe fn multiply_adds(rounds: usize, seed: f32) -> usize {
            const SUMS: usize = 12;
            let (factor, shift) = (splat(seed), splat(1.0 - seed));
            let mut sums = [splat(1.0); SUMS];
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = multiply_add(*sum, factor, shift);
                }
            }
            std::hint::black_box(sums);
            rounds * SUMS * LANES
        }
    };
}
pub(crate) use peak;
