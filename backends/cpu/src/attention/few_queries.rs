//! Attention of a few queries, as in a step of decoding: keys and values are read once, where they lie.
//!
//! Reading the cache is all that takes time here. Nothing is packed, and every query that shares the keys is computed while they are near.

use super::{Attention, Data, Seen, TILE, shrink};
use crate::buffer::with_scratch;
use crate::gemm::Matrix;
use crate::gemm::pack::copy_lines;
use crate::threads::SharedSlice;
use crate::vector::strided_rows::{MOST, Rows, add_weighed, products};

/// Most queries that are few: those of a group of heads that share their keys, for one row.
const FEW: usize = 8;

/// Rows of a matrix whose elements lie side by side.
fn rows_of<'a>(m: &Matrix<'a>, first: usize, count: usize, len: usize) -> Rows<'a> {
    // Of rows without elements there may be no memory.
    if len == 0 {
        return Rows { data: &[], step: 0, count, len };
    }
    let step = m.row as usize;
    let data = &m.data[m.offset + first * step..][..(count - 1) * step + len];
    Rows { data, step, count, len }
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
                    products(queries, rows_of(&keys, c, n, d), scores, pitch);
                    let seen = Seen { tops, sums, shrinks };
                    let mask = (data.mask, mask_at);
                    self.weights(mask, (0, &cols), (scores, pitch), seen, line);
                    if c > 0 {
                        shrink(out, first, e, shrinks);
                    }
                    for (i, weights) in scores.chunks(MOST * pitch).enumerate() {
                        let (from, lines) = (i * MOST, weights.len() / pitch);
                        // SAFETY: every row is written by one task.
                        let out = unsafe { out.part(first + from * e, lines * e) };
                        add_weighed(weights, pitch, rows_of(&values, c, n, e), out, lines);
                    }
                }
                sums.iter_mut().for_each(|s| *s = 1.0 / *s);
                shrink(out, first, e, sums);
            },
        );
    }
}
