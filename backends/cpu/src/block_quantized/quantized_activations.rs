//! Products with dynamically quantised activations: rows are rounded to int8, with a scale per group.

use super::BlockProduct;
use super::bytes::{ByteFactors, ByteStrip, QuantizedRow, TOGETHER, prepare, round_group, strip};
use super::panels::BlockPanels;
use crate::gemm::{GemmEpilogue, GemmSizes};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::Context;
use std::ops::Range;

/// Quantised rows: numbers, and the scale of each group of `size` of them.
struct QuantizedRows<'a> {
    numbers: &'a [i8],
    scales: &'a [f32],
    depth: usize,
    size: usize,
}

impl QuantizedRows<'_> {
    fn row(&self, r: usize) -> (&[i8], &[f32]) {
        let groups = self.depth.div_ceil(self.size);
        (&self.numbers[r * self.depth..][..self.depth], &self.scales[r * groups..][..groups])
    }

    fn element(&self, r: usize, k: usize) -> f32 {
        let (numbers, scales) = self.row(r);
        f32::from(numbers[k]) * scales[k / self.size]
    }
}

impl BlockProduct {
    /// All rows, rounded in groups of `size`, with each panel.
    pub(super) fn rounded_rows(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &BlockPanels,
        size: usize,
        out: &mut [f32],
        finish: &GemmEpilogue<'_>,
    ) {
        let GemmSizes { m, k, .. } = self.sizes;
        let (depth, groups, own) = (w.depth, w.groups(), k.div_ceil(size));
        with_scratch::<i8, 2, _>([m * k, m * depth], |[numbers, lines]| {
            with_scratch::<f32, 4, _>(
                [k, m * own, m * groups, m * groups],
                |[line, own_scales, scales, totals]| {
                    for r in 0..m {
                        for (k, to) in line[..k].iter_mut().enumerate() {
                            *to = self.element(x, r, k);
                        }
                        let parts =
                            line[..k].chunks(size).zip(numbers[r * k..][..k].chunks_mut(size));
                        for ((x, to), scale) in parts.zip(&mut own_scales[r * own..]) {
                            *scale = round_group(x, to);
                        }
                    }
                    let rounded = QuantizedRows { numbers, scales: own_scales, depth: k, size };
                    for r in 0..m {
                        let (numbers, own) = rounded.row(r);
                        let line = &mut lines[r * depth..][..depth];
                        let scales = &mut scales[r * groups..][..groups];
                        let totals = &mut totals[r * groups..][..groups];
                        let row = QuantizedRow { numbers, scales: own, size };
                        prepare(w, row, line, scales, totals);
                    }
                    let products = |panel: usize, r: Range<usize>, results: &mut [f32]| {
                        let of_groups = r.start * groups..r.end * groups;
                        let factors = ByteFactors {
                            lines: &lines[r.start * depth..r.end * depth],
                            scales: &scales[of_groups.clone()],
                            totals: &totals[of_groups],
                        };
                        let (form, panel, rows) = (w.form, w.panel(panel), r.len());
                        strip(&ByteStrip { form, panel, factors, rows }, results);
                    };
                    let element = |r: usize, k: usize| rounded.element(r, k);
                    self.panel_by_panel::<TOGETHER>(cx, w, out, finish, &products, &element);
                },
            );
        });
    }
}
