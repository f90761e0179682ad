//! Decode-phase attention (few queries): bandwidth-bound, so K and V are read once, in place.
//!
//! Values are summed in the order of packed ones, the products of queries and keys in vectors.

use super::{Attention, TILE};
use crate::gemm::Matrix;
use crate::runtime::threads::SharedSlice;
use mlc_vector::strided_rows::{MOST, Rows, add_weighted, dot_rows};
use std::ops::Range;

/// Most queries of the decode phase: those of a group of heads that share their keys (GQA), for one row.
const MOST_QUERIES: usize = 8;

impl Attention {
    /// Whether V is read in place: its rows are contiguous, and the queries so few that packing would cost more.
    pub(super) fn is_direct(&self) -> bool {
        self.s <= MOST_QUERIES && (self.v.col == 1 || self.e == 1) && self.v.row >= 0
    }

    /// Whether K is read in place, too.
    pub(super) fn is_dotted(&self) -> bool {
        self.is_direct() && self.d > 0 && self.k.row >= 0 && (self.k.col == 1 || self.d == 1)
    }

    /// The scores of some queries, one after the other, at some keys; rows of scores are `pitch` elements apart.
    pub(super) fn dot_keys(
        &self,
        k: &Matrix<'_>,
        keys: &Range<usize>,
        queries: &[f32],
        scores: &mut [f32],
        pitch: usize,
    ) {
        let rows = rows_of(k, keys, self.d);
        dot_rows(queries, queries.len() / self.d, rows, scores, pitch);
    }

    /// Adds the weighted values of some keys to rows of the result from element `first` on; rows of weights are `pitch` elements apart.
    pub(super) fn add_values(
        &self,
        v: &Matrix<'_>,
        keys: &Range<usize>,
        weights: &[f32],
        pitch: usize,
        out: &SharedSlice<'_, f32>,
        first: usize,
    ) {
        // Sums are added tile by tile.
        debug_assert!(keys.len() <= TILE);
        let values = rows_of(v, keys, self.e);
        for (i, weights) in weights.chunks(MOST * pitch).enumerate() {
            let lines = weights.len() / pitch;
            // SAFETY: every row is written by one task.
            let out = unsafe { out.part(first + i * MOST * self.e, lines * self.e) };
            add_weighted(weights, pitch, values, out, lines);
        }
    }
}

/// Some rows of a row-major matrix.
fn rows_of<'a>(m: &Matrix<'a>, rows: &Range<usize>, len: usize) -> Rows<'a> {
    let (step, count) = (m.row as usize, rows.len());
    // Of rows without elements there may be no memory.
    let data = match len {
        0 => &[],
        _ => &m.data[m.offset + rows.start * step..][..(count - 1) * step + len],
    };
    Rows { data, step, count, len }
}
