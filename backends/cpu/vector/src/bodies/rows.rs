//! Row reductions, and the exponentials of softmax with their sums.

use crate::simd::{VectorLevel, level};
use crate::tile::at_level;

/// A reduction of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowReduction {
    /// By addition, in several sums side by side.
    Sum,
    /// To the largest, but NaN where a row has a NaN, infinities of both signs, or no extreme but a zero.
    Largest,
    /// To the smallest, with the same exceptions.
    Smallest,
}

/// Reduces `n` elements to each of `out`; rows are `step` elements apart.
pub fn reduce_rows(join: RowReduction, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
    if let Some(last) = out.len().checked_sub(1) {
        assert!(last * step + n <= x.len(), "the rows are inside");
    }
    at_level!(reduce_rows(join, x, n, step, out))
}

/// The largest element but NaN; minus infinity if there is none.
pub fn largest(x: &[f32]) -> f32 {
    at_level!(largest(x))
}

/// `exp(x - shift)` of every element of `from`, which is as long as `to`, and their sum.
pub fn exponentials(to: &mut [f32], from: &[f32], shift: f32) -> f32 {
    assert_eq!(to.len(), from.len(), "a result per element");
    at_level!(exponentials(to.as_mut_ptr(), from.as_ptr(), from.len(), shift))
}

/// Rows of scores with their state of the online softmax.
pub struct OnlineSoftmaxRows<'a> {
    /// The scores; rows are followed by room for a whole vector.
    pub scores: &'a mut [f32],
    /// Scores of a row.
    pub n: usize,
    /// From one row to the next.
    pub pitch: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// The running maximum of each row.
    pub maxima: &'a mut [f32],
    /// The running sum of weights of each row.
    pub sums: &'a mut [f32],
    /// The factors that rescale earlier weights to the new maximum.
    pub rescales: &'a mut [f32],
}

/// A step of the online softmax: scores become weights relative to the running maximum. A NaN score is never the maximum, but makes its weight, the
/// sum and so the row NaN. While all scores are minus infinity, weights are zero: a later tile may have others.
pub fn online_softmax(rows: &mut OnlineSoftmaxRows<'_>) {
    let count = rows.maxima.len();
    assert!(rows.sums.len() == count && rows.rescales.len() == count, "a number per row");
    let lanes = crate::tile::shape().lanes();
    assert!(rows.n.next_multiple_of(lanes) <= rows.pitch, "room for whole vectors");
    assert!(count * rows.pitch <= rows.scores.len(), "the rows are inside");
    at_level!(online_softmax(rows))
}

/// Zeros and then ones: a vector of them tells what of a vector is new that overlaps the one before.
pub static NEW: [f32; 32] = {
    let mut new = [0.0; 32];
    let (_, ones) = new.split_at_mut(16);
    let mut i = 0;
    while i < ones.len() {
        ones[i] = 1.0;
        i += 1;
    }
    new
};

/// Defines `reduce_rows`, `largest`, `exponentials` and `online_softmax` for a level, whose module defines `Vector`, `LANES`, the operations on
/// it and `exp`.
macro_rules! rows {
    ($(#[$feature:meta])*) => {
        use crate::math;
        use crate::bodies::rows::{RowReduction, NEW, OnlineSoftmaxRows};

        /// The elements of a vector joined in pairs.
        $(#[$feature])*
        #[inline]
        #[allow(clippy::useless_transmute, reason = "a portable vector is an array")]
        fn pairs(x: Vector, f: impl Fn(f32, f32) -> f32) -> f32 {
            // SAFETY: a vector is as many floats.
            let mut x: [f32; LANES] = unsafe { std::mem::transmute(x) };
            let mut half = LANES / 2;
            while half > 0 {
                for i in 0..half {
                    x[i] = f(x[i], x[i + half]);
                }
                half /= 2;
            }
            x[0]
        }

        /// The vector at `at`, with `none` behind the end of `x`.
        $(#[$feature])*
        #[inline]
        fn ended(x: &[f32], at: usize, none: f32) -> Vector {
            let mut last = [none; LANES];
            last[..x.len() - at].copy_from_slice(&x[at..]);
            // SAFETY: an array of as many floats.
            unsafe { load(last.as_ptr()) }
        }

        /// The last vector of a slice of at least one, whose elements that other vectors have are `$none`.
        macro_rules! last {
            ($x:expr, $none:expr) => {{
                let x: &[f32] = $x;
                let new = x.len() % LANES;
                // SAFETY: vectors inside both.
                unsafe {
                    let mask = load(NEW.as_ptr().add(16 + new - LANES));
                    above(mask, zero(), load(x.as_ptr().add(x.len() - LANES)), splat($none))
                }
            }};
        }

        /// The vectors of a row in four results side by side, `$next` of one of them and the vector, joined by `$f`. The first ones are `$first`,
        /// and `$none` stands behind the row's end.
        macro_rules! gathered {
            ($x:expr, $first:expr, $none:expr, $f:ident, |$sum:ident, $v:ident| $next:expr) => {{
                let x: &[f32] = $x;
                let mut sums = [splat($first); 4];
                let mut at = 0;
                while at + 4 * LANES <= x.len() {
                    for i in 0..4 {
                        // SAFETY: four vectors are inside.
                        let ($sum, $v) = (sums[i], unsafe { load(x.as_ptr().add(at + i * LANES)) });
                        sums[i] = $next;
                    }
                    at += 4 * LANES;
                }
                while at + LANES <= x.len() {
                    // SAFETY: a vector is inside.
                    let ($sum, $v) = (sums[0], unsafe { load(x.as_ptr().add(at)) });
                    sums[0] = $next;
                    at += LANES;
                }
                if at < x.len() {
                    let ($sum, $v) = (sums[1], if at > 0 { last!(x, $none) } else { ended(x, 0, $none) });
                    sums[1] = $next;
                }
                $f($f(sums[0], sums[2]), $f(sums[1], sums[3]))
            }};
        }

        /// The elements of each of as many vectors as one has elements, joined.
        macro_rules! across {
            ($f:ident, $x:expr) => {{
                let mut x: [Vector; LANES] = $x;
                // The number of rounds is a constant: so they are unrolled, and the vectors stay in registers.
                for round in 0..LANES.trailing_zeros() {
                    for i in 0..LANES >> (round + 1) {
                        let (a, b) = (x[2 * i], x[2 * i + 1]);
                        x[i] = $f(evens(a, b), odds(a, b));
                    }
                }
                elements(x[0])
            }};
        }

        $(#[$feature])*
        #[inline]
        #[allow(clippy::useless_transmute, reason = "a portable vector is an array")]
        fn elements(x: Vector) -> [f32; LANES] {
            // SAFETY: a vector is as many floats.
            unsafe { std::mem::transmute(x) }
        }

        /// The largest element but NaN.
        ///
        /// # Safety
        /// On a machine of this level.
        $(#[$feature])*
        pub unsafe fn largest(x: &[f32]) -> f32 {
            pairs(gathered!(x, f32::NEG_INFINITY, f32::NEG_INFINITY, larger, |end, v| larger(end, v)), |a, b| if b > a { b } else { a })
        }

        /// Joins rows.
        ///
        /// # Safety
        /// On a machine of this level.
        $(#[$feature])*
        pub unsafe fn reduce_rows(join: RowReduction, x: &[f32], n: usize, step: usize, out: &mut [f32]) {
            for (i, out) in out.chunks_mut(LANES).enumerate() {
                let row = |r: usize| &x[(i * LANES + r) * step..][..n];
                let mut sums = [zero(); LANES];
                for r in 0..out.len() {
                    sums[r] = gathered!(row(r), 0.0, 0.0, add, |sum, v| add(sum, v));
                }
                let sums = across!(add, sums);
                macro_rules! extreme {
                    ($f:ident, $none:expr) => {{
                        let mut ends = [zero(); LANES];
                        for r in 0..out.len() {
                            ends[r] = gathered!(row(r), $none, $none, $f, |end, v| $f(end, v));
                        }
                        let ends = across!($f, ends);
                        for ((o, &x), sum) in out.iter_mut().zip(&ends).zip(&sums) {
                            // A sum with a NaN is NaN.
                            *o = if x != 0.0 && !sum.is_nan() { x } else { f32::NAN };
                        }
                    }};
                }
                match join {
                    RowReduction::Sum => out.copy_from_slice(&sums[..out.len()]),
                    RowReduction::Largest => extreme!(larger, f32::NEG_INFINITY),
                    RowReduction::Smallest => extreme!(smaller, f32::INFINITY),
                }
            }
        }

        /// `exp(x - shift)` of `N` vectors, of which the last may be partial, added to `sums`.
        ///
        /// # Safety
        /// On a machine of this level; the elements are valid, and are either those of the result or not among them.
        $(#[$feature])*
        #[inline]
        unsafe fn exponential<const N: usize>(to: *mut f32, from: *const f32, last: usize, shift: Vector, sums: &mut [Vector; 4]) {
            let mut x = [zero(); N];
            for i in 0..N {
                // SAFETY: the vectors are inside.
                unsafe {
                    x[i] = match i + 1 < N || last == LANES {
                        true => load(from.add(i * LANES)),
                        // Elements that do not count are exponentials of minus infinity, which add nothing.
                        false => ended(std::slice::from_raw_parts(from, i * LANES + last), i * LANES, f32::NEG_INFINITY),
                    };
                }
                x[i] = subtract(x[i], shift);
            }
            let x = exp(x);
            for i in 0..N {
                sums[i] = add(sums[i], x[i]);
                let len = if i + 1 < N { LANES } else { last };
                // SAFETY: as above.
                unsafe { write(to.add(i * LANES), VectorSpan { at: 0, column: 0, skip: 0, len }, x[i]) };
            }
        }

        /// `exp(x - shift)` of every element, and their sum.
        ///
        /// # Safety
        /// As [`summed_exponentials`].
        $(#[$feature])*
        pub unsafe fn exponentials(to: *mut f32, from: *const f32, len: usize, shift: f32) -> f32 {
            // SAFETY: the contract of the caller is that of the callee.
            pairs(unsafe { summed_exponentials(to, from, len, splat(shift)) }, |a, b| a + b)
        }

        /// `exp(x - shift)` of every element, and sums that are added up to theirs.
        ///
        /// # Safety
        /// On a machine of this level; `len` elements are valid at both places, which are the same or do not overlap.
        $(#[$feature])*
        #[inline]
        unsafe fn summed_exponentials(to: *mut f32, from: *const f32, len: usize, shift: Vector) -> Vector {
            let mut sums = [zero(); 4];
            let mut at = 0;
            while at < len {
                let left = len - at;
                let last = if left >= 4 * LANES { LANES } else { (left - 1) % LANES + 1 };
                // SAFETY: as many vectors are left.
                unsafe {
                    let (to, from) = (to.add(at), from.add(at));
                    match left.div_ceil(LANES) {
                        1 => exponential::<1>(to, from, last, shift, &mut sums),
                        2 => exponential::<2>(to, from, last, shift, &mut sums),
                        3 => exponential::<3>(to, from, last, shift, &mut sums),
                        _ => exponential::<4>(to, from, last, shift, &mut sums),
                    }
                }
                at += 4 * LANES;
            }
            add(add(sums[0], sums[2]), add(sums[1], sums[3]))
        }

        /// Turns scores into weights, as many rows at once as a vector has elements.
        ///
        /// # Safety
        /// On a machine of this level; the rows and whole vectors are inside, with numbers for each.
        $(#[$feature])*
        pub unsafe fn online_softmax(rows: &mut OnlineSoftmaxRows<'_>) {
            let OnlineSoftmaxRows { n, pitch, scale, .. } = *rows;
            let scale = splat(scale);
            let rest = n % LANES;
            let groups = rows.maxima.chunks_mut(LANES).zip(rows.sums.chunks_mut(LANES)).zip(rows.rescales.chunks_mut(LANES));
            for (i, ((maxima, sums), rescales)) in groups.enumerate() {
                let first = rows.scores.as_mut_ptr().wrapping_add(i * LANES * pitch);
                let mut ends = [splat(f32::NEG_INFINITY); LANES];
                for r in 0..maxima.len() {
                    let row = first.wrapping_add(r * pitch);
                    let mut end = [splat(f32::NEG_INFINITY); 2];
                    for (v, at) in (0..n - rest).step_by(LANES).enumerate() {
                        // SAFETY: a vector is inside.
                        unsafe {
                            let x = multiply(load(row.add(at)), scale);
                            store(row.add(at), x);
                            end[v % 2] = larger(end[v % 2], x);
                        }
                    }
                    if rest > 0 {
                        // SAFETY: there is room for a vector. What is behind the row's end weighs nothing.
                        unsafe {
                            let own = load(NEW.as_ptr().add(16 - rest));
                            let at = row.add(n - rest);
                            let x = above(splat(0.5), own, multiply(load(at), scale), splat(f32::NEG_INFINITY));
                            store(at, x);
                            end[0] = larger(end[0], x);
                        }
                    }
                    ends[r] = larger(end[0], end[1]);
                }
                let ends = across!(larger, ends);
                let mut bases = [0.0; LANES];
                for (r, top) in maxima.iter_mut().enumerate() {
                    let high = if ends[r] > *top { ends[r] } else { *top };
                    bases[r] = if high == f32::NEG_INFINITY { 0.0 } else { high };
                    rescales[r] = math::exp(*top - bases[r]);
                    *top = high;
                }
                let mut all = [zero(); LANES];
                for r in 0..rescales.len() {
                    // SAFETY: whole vectors are inside.
                    all[r] = unsafe {
                        let row = first.add(r * pitch);
                        summed_exponentials(row, row, n.next_multiple_of(LANES), splat(bases[r]))
                    };
                }
                let all = across!(add, all);
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = *sum * rescales[r] + all[r];
                }
            }
        }
    };
}
pub(crate) use rows;
