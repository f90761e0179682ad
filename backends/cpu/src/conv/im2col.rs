//! im2col, packed block by block and never materialised.

use crate::conv::padded_frame::{PaddedFrame, RowRun, pack_lines};
use crate::conv::window::Window;
use crate::gemm::ImplicitColumns;
use crate::gemm::pack::panels;
use mlc_vector::tile;
use std::ops::Range;

/// The channels of one image and group as the im2col matrix, which is packed block by block and never stored whole.
pub struct Im2col<'a> {
    pub window: &'a Window,
    pub x: &'a [f32],
    /// Elements of a channel.
    pub plane: usize,
    /// The same in frames.
    pub framed: Option<(&'a PaddedFrame, &'a [f32])>,
}

impl ImplicitColumns for Im2col<'_> {
    fn pack(&self, depth: Range<usize>, cols: Range<usize>, dst: &mut [f32]) {
        let taps = self.window.taps();
        let k = depth.len();
        let full = tile::shape().cols;
        let stride = self.window.stride.last().copied().unwrap_or(1);
        for (p, (cols, width)) in panels(cols).enumerate() {
            let panel = &mut dst[p * full * k..][..width * k];
            if let Some((frame, data)) = self.framed {
                let mut runs = [RowRun::default(); 64];
                let runs = frame.runs(cols.start, cols.len(), &mut runs[..width]);
                if cols.len() < width {
                    panel.fill(0.0);
                }
                pack_lines(frame, data, depth.clone(), runs, width, panel);
                continue;
            }
            for (line, kk) in panel.chunks_exact_mut(width).zip(depth.clone()) {
                let plane = &self.x[kk / taps * self.plane..];
                line[cols.len()..].fill(0.0);
                self.window.rows(kk % taps, cols.start, cols.len(), |row| {
                    let line = &mut line[row.at..row.at + row.len];
                    let (from, to, at) = row.inside(stride);
                    line[..from].fill(0.0);
                    line[to..].fill(0.0);
                    if stride == 1 {
                        let src = &plane[at..at + (to - from)];
                        line[from..to].iter_mut().zip(src).for_each(|(l, &s)| *l = s);
                    } else {
                        let src = plane[at.min(plane.len())..].iter().step_by(stride);
                        line[from..to].iter_mut().zip(src).for_each(|(l, &s)| *l = s);
                    }
                });
            }
        }
    }
}
