//! The bodies of the transforms of Winograd's F(2×2, 3×3), for any kind of vector: every lane is a tile.

/// The points that a tile of 4 × 4 is transformed to.
pub const POINTS: usize = 16;

/// Tiles that are transformed and kept together.
pub const TILES: usize = 16;

/// Where tiles of the input lie: element (i, j) of tile `t` at `t + i / 2 * lane + j / 2` of the part of rows and columns of the
/// parities of `i` and `j`; parts begin `part` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct TileParts {
    pub part: usize,
    pub lane: usize,
}

/// Defines `transform_input` and `transform_output` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! winograd {
    ($(#[$feature:meta])*) => {
        use crate::cpu::vector::winograd::{POINTS, TILES, TileParts};

        /// Writes the points of `TILES` tiles, from tile 0 on: those of each point `stride` elements from those of the last.
        ///
        /// # Safety
        /// `from` holds the tiles, `to` has room for the points; this level is that of the machine.
        $(#[$feature])*
        pub unsafe fn transform_input(from: *const f32, at: TileParts, to: *mut f32, stride: usize) {
            for t in (0..TILES).step_by(LANES) {
                let mut d = [[zero(); 4]; 4];
                for i in 0..4 {
                    for j in 0..4 {
                        let part = (i % 2 * 2 + j % 2) * at.part;
                        // SAFETY: as promised.
                        d[i][j] = unsafe { load(from.add(part + t + i / 2 * at.lane + j / 2)) };
                    }
                }
                for j in 0..4 {
                    let [a, b, c, e] = [d[0][j], d[1][j], d[2][j], d[3][j]];
                    [d[0][j], d[1][j], d[2][j], d[3][j]] = [subtract(a, c), add(b, c), subtract(c, b), subtract(b, e)];
                }
                for i in 0..4 {
                    let [a, b, c, e] = d[i];
                    let points = [subtract(a, c), add(b, c), subtract(c, b), subtract(b, e)];
                    for j in 0..4 {
                        // SAFETY: as promised.
                        unsafe { store(to.add((4 * i + j) * stride + t), points[j]) };
                    }
                }
            }
        }

        /// Writes the 2 × 2 results of `TILES` tiles whose points lie `stride` elements apart: those of each of the four
        /// `apart` elements from those of the last. True if all are finite.
        ///
        /// # Safety
        /// `from` holds the points, `to` has room for the results; this level is that of the machine.
        $(#[$feature])*
        pub unsafe fn transform_output(from: *const f32, stride: usize, to: *mut f32, apart: usize) -> bool {
            // Zero times a number is zero only if that is finite.
            let mut zeros = zero();
            for t in (0..TILES).step_by(LANES) {
                let mut sums = [[zero(); 4]; 2];
                for j in 0..4 {
                    let mut points = [zero(); 4];
                    for i in 0..4 {
                        // SAFETY: as promised.
                        points[i] = unsafe { load(from.add((4 * i + j) * stride + t)) };
                    }
                    let [a, b, c, d] = points;
                    sums[0][j] = add(add(a, b), c);
                    sums[1][j] = subtract(subtract(b, c), d);
                }
                for i in 0..2 {
                    let [a, b, c, d] = sums[i];
                    let (even, odd) = (add(add(a, b), c), subtract(subtract(b, c), d));
                    zeros = multiply_add(odd, zero(), multiply_add(even, zero(), zeros));
                    // SAFETY: as promised.
                    unsafe {
                        store(to.add(2 * i * apart + t), even);
                        store(to.add((2 * i + 1) * apart + t), odd);
                    }
                }
            }
            all_zero(zeros)
        }

        const _: () = assert!(POINTS == 16 && TILES % LANES == 0);
    };
}
pub(super) use winograd;
