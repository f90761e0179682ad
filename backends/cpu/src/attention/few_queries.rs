//! Attention of a few queries, as in a step of decoding: keys and values are read once, where they lie.
//!
//! Reading the cache is all that takes time here. Nothing is packed, and every query that shares the keys is computed while they are near.

use super::{Attention, Data, Seen, TILE, shrink};
use crate::buffer::with_scratch;
use crate::gemm::Matrix;
use crate::gemm::pack::copy_lines;
use crate::simd::simd;
use crate::threads::SharedSlice;

/// Most queries that are few: those of a group of heads that share their keys, for one row.
const FEW: usize = 8;

/// Queries at once: their sums stay in registers.
const AT_ONCE: usize = 4;

/// Partial sums of a score, side by side.
const LANES: usize = 16;

/// Rows of keys or values: as many as are weighed at once.
#[derive(Clone, Copy)]
struct Rows<'a> {
    /// From the first element on.
    data: &'a [f32],
    /// From one row to the next.
    step: usize,
    /// How many there are, and how long one is.
    count: usize,
    len: usize,
}

impl<'a> Rows<'a> {
    fn of(m: &Matrix<'a>, first: usize, count: usize, len: usize) -> Rows<'a> {
        // Of rows without elements there may be no memory.
        if len == 0 {
            return Rows { data: &[], step: 0, count, len };
        }
        let step = m.row as usize;
        let data = &m.data[m.offset + first * step..][..(count - 1) * step + len];
        Rows { data, step, count, len }
    }

    #[inline(always)]
    fn row(&self, r: usize) -> &'a [f32] {
        &self.data[r * self.step..][..self.len]
    }
}

impl Attention {
    /// True if all queries of a head are computed at once, and the elements of each key and value lie side by side.
    pub(super) fn is_few(&self) -> bool {
        let lines = [(self.k, self.d), (self.v, self.e)];
        let lie = lines.iter().all(|(s, len)| (s.col == 1 || *len == 1) && s.row >= 0);
        self.s <= FEW && lie
    }

    /// The queries of one head.
    pub(super) fn few(&self, head: usize, data: &Data<'_>, out: &SharedSlice<'_, f32>) {
        let [q_at, k_at, v_at, mask_at] = self.heads[head];
        let (s, d, e) = (self.s, self.d, self.e);
        let (most, first) = (self.t.min(TILE), head * s * e);
        let pitch = most + super::APART;
        let q = Matrix { data: data.q, offset: q_at, row: self.q.row, col: self.q.col };
        let keys = Matrix { data: data.k, offset: k_at, row: self.k.row, col: 1 };
        let values = Matrix { data: data.v, offset: v_at, row: self.v.row, col: 1 };
        with_scratch::<f32, 6, _>(
            [s * d, s * pitch, s, s, s, most],
            |[queries, scores, tops, sums, shrinks, line]| {
                if d > 0 {
                    copy_lines(&q, 0..s, d, queries);
                }
                let scores = &mut scores[..s * pitch];
                let (tops, sums, shrinks) = (&mut tops[..s], &mut sums[..s], &mut shrinks[..s]);
                tops.fill(f32::NEG_INFINITY);
                sums.fill(0.0);
                // SAFETY: every row is written by one task.
                unsafe { out.part(first, s * e) }.fill(0.0);
                for c in (0..self.t).step_by(TILE) {
                    let cols = c..(c + TILE).min(self.t);
                    let n = cols.len();
                    let near = Rows::of(&keys, c, n, d);
                    each_few(s, |from, count| {
                        let scores = &mut scores[from * pitch..];
                        products(count, &queries[from * d..], near, scores, pitch);
                    });
                    let seen = Seen { tops, sums, shrinks };
                    let mask = (data.mask, mask_at);
                    self.weights(mask, (0, &cols), (scores, pitch), seen, line);
                    if c > 0 {
                        shrink(out, first, e, shrinks);
                    }
                    let near = Rows::of(&values, c, n, e);
                    each_few(s, |from, count| {
                        let weights = &scores[from * pitch..];
                        // SAFETY: every row is written by one task.
                        let out = unsafe { out.part(first + from * e, count * e) };
                        weighted(count, weights, pitch, near, out);
                    });
                }
                sums.iter_mut().for_each(|s| *s = 1.0 / *s);
                shrink(out, first, e, sums);
            },
        );
    }
}

/// The queries, some at once.
fn each_few(s: usize, mut f: impl FnMut(usize, usize)) {
    (0..s).step_by(AT_ONCE).for_each(|from| f(from, AT_ONCE.min(s - from)));
}

simd! {
    /// The products of some queries with every key, into as many lines of scores.
    fn products(count: usize, queries: &[f32], keys: Rows<'_>, scores: &mut [f32], pitch: usize) {
        match count {
            1 => products_of::<1>(queries, keys, scores, pitch),
            2 => products_of::<2>(queries, keys, scores, pitch),
            3 => products_of::<3>(queries, keys, scores, pitch),
            _ => products_of::<AT_ONCE>(queries, keys, scores, pitch),
        }
    }
}

#[inline(always)]
fn products_of<const R: usize>(queries: &[f32], keys: Rows<'_>, scores: &mut [f32], pitch: usize) {
    let d = keys.len;
    let queries: [&[f32]; R] = std::array::from_fn(|r| &queries[r * d..][..d]);
    for c in 0..keys.count {
        let (key, rest) = keys.row(c).as_chunks::<LANES>();
        let mut sums = [[0f32; LANES]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (q, k) in queries[r].as_chunks::<LANES>().0.iter().zip(key) {
                for i in 0..LANES {
                    sums[i] = q[i].mul_add(k[i], sums[i]);
                }
            }
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let last = &queries[r][d - rest.len()..];
            for ((sum, q), k) in sums.iter_mut().zip(last).zip(rest) {
                *sum = q.mul_add(*k, *sum);
            }
            scores[r * pitch + c] = joined(sums);
        }
    }
}

/// Partial sums, joined in pairs.
#[inline(always)]
fn joined(sums: &[f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|i| sums[i] + sums[i + 8]);
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

simd! {
    /// Adds the values, weighed, to as many rows.
    fn weighted(count: usize, weights: &[f32], pitch: usize, values: Rows<'_>, out: &mut [f32]) {
        match count {
            1 => weighted_of::<1, 64>(weights, pitch, values, out),
            2 => weighted_of::<2, 32>(weights, pitch, values, out),
            3 => weighted_of::<3, 32>(weights, pitch, values, out),
            _ => weighted_of::<AT_ONCE, 16>(weights, pitch, values, out),
        }
    }
}

/// So many columns at once.
#[inline(always)]
fn weighted_of<const R: usize, const WIDE: usize>(
    weights: &[f32],
    pitch: usize,
    values: Rows<'_>,
    out: &mut [f32],
) {
    let e = values.len;
    let weights: [&[f32]; R] = std::array::from_fn(|r| &weights[r * pitch..][..values.count]);
    let mut at = 0;
    while at + WIDE <= e {
        let mut sums = [[0f32; WIDE]; R];
        for c in 0..values.count {
            let value: &[f32; WIDE] = values.row(c)[at..].first_chunk().expect("as many columns");
            for r in 0..R {
                for i in 0..WIDE {
                    sums[r][i] = weights[r][c].mul_add(value[i], sums[r][i]);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            out[r * e + at..].iter_mut().zip(sums).for_each(|(o, s)| *o += s);
        }
        at += WIDE;
    }
    for r in 0..R {
        let out = &mut out[r * e..][at..e];
        for (c, w) in weights[r].iter().enumerate() {
            out.iter_mut().zip(&values.row(c)[at..]).for_each(|(o, v)| *o = w.mul_add(*v, *o));
        }
    }
}
