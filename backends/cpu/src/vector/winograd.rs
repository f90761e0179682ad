//! The bodies of the transforms of Winograd's F(2×2, 3×3), for any kind of vector: every lane is a channel.

/// The points that a tile of 4 × 4 is transformed to.
pub const POINTS: usize = 16;

/// Defines `transform_input` and `transform_output` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! winograd {
    ($(#[$feature:meta])*) => {
        use crate::vector::winograd::POINTS;

        /// The vector of `channels` channels that begins with channel `c`.
        fn channel_part(channels: usize, c: usize) -> Part {
            Part { len: (channels - c).min(LANES), ..Part::default() }
        }

        /// Writes the points of a tile, whose elements are channels at `taps`: those of each point `apart` elements from those of the last.
        ///
        /// # Safety
        /// Behind every tap are the channels, and `to` has room for the points; this level is that of the machine.
        $(#[$feature])*
        pub unsafe fn transform_input(taps: &[*const f32; POINTS], channels: usize, to: *mut f32, apart: usize) {
            for c in (0..channels).step_by(LANES) {
                let part = channel_part(channels, c);
                let mut d = [[zero(); 4]; 4];
                for i in 0..4 {
                    for j in 0..4 {
                        // SAFETY: as promised.
                        d[i][j] = unsafe { read(taps[4 * i + j].add(c), part) };
                    }
                }
                for j in 0..4 {
                    let [a, b, c, e] = [d[0][j], d[1][j], d[2][j], d[3][j]];
                    [d[0][j], d[1][j], d[2][j], d[3][j]] = [subtract(a, c), add(b, c), subtract(c, b), subtract(b, e)];
                }
                for i in 0..4 {
                    let [a, b, x, e] = d[i];
                    let points = [subtract(a, x), add(b, x), subtract(x, b), subtract(b, e)];
                    for j in 0..4 {
                        // SAFETY: as promised.
                        unsafe { write(to.add((4 * i + j) * apart + c), part, points[j]) };
                    }
                }
            }
        }

        /// Writes the 2 × 2 results of a tile whose points lie `apart` elements from each other; those whose place is null are left out.
        /// True if all are finite.
        ///
        /// # Safety
        /// `from` holds the points, behind every place is room for the channels; this level is that of the machine.
        $(#[$feature])*
        pub unsafe fn transform_output(from: *const f32, apart: usize, channels: usize, to: [*mut f32; 4]) -> bool {
            // Zero times a number is zero only if that is finite.
            let mut zeros = zero();
            for c in (0..channels).step_by(LANES) {
                let part = channel_part(channels, c);
                let mut sums = [[zero(); 4]; 2];
                for j in 0..4 {
                    let mut points = [zero(); 4];
                    for i in 0..4 {
                        // SAFETY: as promised.
                        points[i] = unsafe { read(from.add((4 * i + j) * apart + c), part) };
                    }
                    let [a, b, x, d] = points;
                    sums[0][j] = add(add(a, b), x);
                    sums[1][j] = subtract(subtract(b, x), d);
                }
                for i in 0..2 {
                    let [a, b, x, d] = sums[i];
                    for (j, y) in [add(add(a, b), x), subtract(subtract(b, x), d)].into_iter().enumerate() {
                        let to = to[2 * i + j];
                        if !to.is_null() {
                            zeros = multiply_add(y, zero(), zeros);
                            // SAFETY: as promised.
                            unsafe { write(to.add(c), part, y) };
                        }
                    }
                }
            }
            all_zero(zeros)
        }
    };
}
pub(super) use winograd;
