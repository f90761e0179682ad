//! The body of separable pooling: first down the window's rows, then along the row.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// How the elements of a window are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// To the largest, if there is neither NaN nor a negative zero.
    Largest,
    /// By addition.
    Sum,
}

impl Pooling {
    /// What joins to the other operand.
    pub fn none(self) -> f32 {
        match self {
            Pooling::Largest => f32::NEG_INFINITY,
            Pooling::Sum => 0.0,
        }
    }
}

/// The windows of a plane.
#[derive(Clone, Copy, Debug)]
pub struct PoolPlane<'a> {
    /// Where the first column begins that is seen, for all rows that the windows of the first row of results meet, then the next row.
    pub starts: &'a [usize],
    /// How many of these belong to all rows of results up to each.
    pub ends: &'a [usize],
    /// Columns that are seen.
    pub seen: usize,
    /// Where the first of them is in the line.
    pub place: usize,
    /// Elements of the line that a result joins.
    pub taps: usize,
    /// The distance between them.
    pub apart: usize,
    /// One or two: from the first element of a result to that of the next.
    pub stride: usize,
    /// Results of a row.
    pub wide: usize,
}

/// Elements of the widest vectors.
const MOST: usize = 16;

impl PoolPlane<'_> {
    /// Elements of the line that rows are joined to.
    pub fn line(&self) -> usize {
        let read = (self.wide.next_multiple_of(MOST) + MOST) * self.stride;
        (read + self.taps * self.apart).max(self.place + self.seen + MOST)
    }

    /// Results of a plane.
    fn results(&self) -> usize {
        self.ends.len() * self.wide
    }
}

/// All results of planes of `size` elements, one after the other. What `line` holds does not matter.
pub fn pool_planes(
    how: Pooling,
    p: PoolPlane<'_>,
    x: &[f32],
    size: usize,
    line: &mut [f32],
    out: &mut [f32],
) {
    let count = out.len() / p.results().max(1);
    assert!(p.results() > 0 && out.len() == count * p.results(), "whole planes");
    assert!(x.len() >= count * size && line.len() >= p.line(), "planes and a line");
    assert!(p.taps > 0 && matches!(p.stride, 1 | 2), "windows that the kernel has");
    assert!(p.starts.iter().all(|s| s + p.seen <= size), "rows inside the plane");
    assert!(p.ends.is_sorted() && p.ends.last() == Some(&p.starts.len()), "rows of results");
    line.fill(how.none());
    at_level!(pool_planes(how, p, x, size, line, out))
}

/// Defines `pool_planes` for a level, whose module defines `Vector`, `LANES` and the operations on it.
macro_rules! pools {
    ($(#[$feature:meta])*) => {
        use crate::bodies::pools::{PoolPlane, Pooling};

        /// # Safety
        /// As [`crate::bodies::pools::pool_planes`] asserts, on a machine of this level; the line holds what joins to the other operand.
        pub unsafe fn pool_planes(how: Pooling, p: PoolPlane<'_>, x: &[f32], size: usize, line: &mut [f32], out: &mut [f32]) {
            // SAFETY: as promised.
            unsafe {
                match (how, p.stride) {
                    (Pooling::Largest, 1) => planes_of::<true, 1>(p, x, size, line, out),
                    (Pooling::Largest, _) => planes_of::<true, 2>(p, x, size, line, out),
                    (Pooling::Sum, 1) => planes_of::<false, 1>(p, x, size, line, out),
                    (Pooling::Sum, _) => planes_of::<false, 2>(p, x, size, line, out),
                }
            }
        }

        $(#[$feature])*
        #[inline]
        fn join<const LARGEST: bool>(x: Vector, y: Vector) -> Vector {
            if LARGEST { larger(x, y) } else { add(x, y) }
        }

        /// # Safety
        /// As [`pool_planes`].
        $(#[$feature])*
        unsafe fn planes_of<const LARGEST: bool, const S: usize>(p: PoolPlane<'_>, x: &[f32], size: usize, line: &mut [f32], out: &mut [f32]) {
            let (mut done, all) = (0, out.len());
            let none = if LARGEST { f32::NEG_INFINITY } else { 0.0 };
            let (line, out) = (line.as_mut_ptr(), out.as_mut_ptr());
            let held = line.wrapping_add(p.place);
            let mut plane = x.as_ptr();
            while done < all {
                let mut first = 0;
                for &end in p.ends {
                    let rows = &p.starts[first..end];
                    first = end;
                    // SAFETY: the rows are inside the plane, and the line has room for what is seen and a vector. What is written beyond a
                    // row's end is written again with the next row, and nothing beyond the last.
                    unsafe {
                        macro_rules! joined {
                            ($many:expr) => {{
                                let (many, mut at) = ($many, 0);
                                while at < p.seen {
                                    // The last vector overlaps the one before it.
                                    at = if p.seen < LANES { 0 } else { at.min(p.seen - LANES) };
                                    let part = VectorSpan { at, column: at, skip: 0, len: LANES.min(p.seen) };
                                    let mut sum = read(plane.add(*rows.get_unchecked(0) + at), part);
                                    for r in 1..many {
                                        sum = join::<LARGEST>(sum, read(plane.add(*rows.get_unchecked(r) + at), part));
                                    }
                                    store(held.add(at), sum);
                                    at += LANES;
                                }
                            }};
                        }
                        match rows.len() {
                            0 => std::slice::from_raw_parts_mut(held, p.seen).fill(none),
                            1 => joined!(1),
                            2 => joined!(2),
                            3 => joined!(3),
                            many => joined!(many),
                        }
                        store(held.add(p.seen), splat(none));
                        macro_rules! results {
                            ($taps:expr) => {
                                for c in (0..p.wide).step_by(LANES) {
                                    let from = line.cast_const().add(c * S);
                                    let mut sum = every::<S>(from);
                                    for t in 1..$taps {
                                        sum = join::<LARGEST>(sum, every::<S>(from.add(t * p.apart)));
                                    }
                                    let part = VectorSpan { at: 0, column: 0, skip: 0, len: LANES.min(all - done - c) };
                                    write(out.add(done + c), part, sum);
                                }
                            };
                        }
                        match p.taps {
                            2 => results!(2),
                            3 => results!(3),
                            5 => results!(5),
                            taps => results!(taps),
                        }
                    }
                    done += p.wide;
                }
                plane = plane.wrapping_add(size);
            }
        }

        /// A vector of the elements from there on, every one or every second.
        ///
        /// # Safety
        /// They are valid for reads, and so are `S` vectors.
        $(#[$feature])*
        #[inline]
        unsafe fn every<const S: usize>(at: *const f32) -> Vector {
            // SAFETY: as promised.
            unsafe { if S == 1 { load(at) } else { evens(load(at), load(at.add(LANES))) } }
        }
    };
}
pub(crate) use pools;
