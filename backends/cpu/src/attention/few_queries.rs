//! Values of a few queries, as in a step of decoding: they are read once, where they lie.
//!
//! Reading the cache is what takes time here. Sums are those of packed values, in their order.

use super::{Attention, TILE};
use crate::gemm::Matrix;
use crate::runtime::threads::SharedSlice;
use mlc_vector::strided_rows::{MOST, Rows, add_weighed};
use std::ops::Range;

/// Most queries that are few: those of a group of heads that share their keys, for one row.
const FEW: usize = 8;

impl Attention {
    /// True if values are added where they lie: the elements of each side by side, for so few queries that packing them would take longer.
    pub(super) fn is_direct(&self) -> bool {
        self.s <= FEW && (self.v.col == 1 || self.e == 1) && self.v.row >= 0
    }

    /// Adds the values of some keys, weighed, to rows of the result from element `first` on; `pitch` elements lie from the weights of one row to
    /// those of the next.
    pub(super) fn add_values(
        &self,
        (v, keys): (&Matrix<'_>, &Range<usize>),
        (weights, pitch): (&[f32], usize),
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
            add_weighed(weights, pitch, values, out, lines);
        }
    }
}

/// Some rows of a matrix whose elements lie side by side.
fn rows_of<'a>(m: &Matrix<'a>, rows: &Range<usize>, len: usize) -> Rows<'a> {
    let (step, count) = (m.row as usize, rows.len());
    // Of rows without elements there may be no memory.
    let data = match len {
        0 => &[],
        _ => &m.data[m.offset + rows.start * step..][..(count - 1) * step + len],
    };
    Rows { data, step, count, len }
}
