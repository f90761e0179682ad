//! Products of rows that are rounded, group by group, to multiples of a scale of their own.

use super::bytes::{ByteFactors, ByteStrip, TOGETHER, prepare, round_group, strip};
use super::panels::{BlockPanels, LANES};
use super::{BlockProduct, GRAIN, by_numbers};
use crate::buffer::with_scratch;
use crate::gemm::{Finish, GemmSizes};
use crate::launch::Context;
use crate::threads::SharedSlice;
use std::ops::Range;

/// Rounded rows: numbers in their order, and the scale of each group of `size` of them.
struct Rounded<'a> {
    numbers: &'a [i8],
    scales: &'a [f32],
    depth: usize,
    size: usize,
}

impl Rounded<'_> {
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
        finish: &Finish<'_>,
    ) {
        let GemmSizes { m, n, k } = self.sizes;
        let (depth, groups, count) = (w.depth, w.groups(), w.count());
        let own = k.div_ceil(size);
        let tasks = cx.threads.tasks(m * n * k, GRAIN).min(count);
        let shared = SharedSlice::new(out);
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
                    let rounded = Rounded { numbers, scales: own_scales, depth: k, size };
                    for r in 0..m {
                        let (numbers, own) = rounded.row(r);
                        let line = &mut lines[r * depth..][..depth];
                        let scaled = (
                            &mut scales[r * groups..][..groups],
                            &mut totals[r * groups..][..groups],
                        );
                        prepare(w, (numbers, own, size), (line, scaled.0, scaled.1));
                    }
                    let factors = ByteFactors {
                        lines: &lines[..m * depth],
                        scales: &scales[..m * groups],
                        totals: &totals[..m * groups],
                    };
                    cx.threads.each(tasks, |task| {
                        let panels = count * task / tasks..count * (task + 1) / tasks;
                        products(w, &factors, m, panels.clone(), &shared);
                        let columns = panels.start * LANES..(panels.end * LANES).min(n);
                        for r in 0..m {
                            let at = r * n + columns.start;
                            // SAFETY: every task has its own columns, and is done with them.
                            let part = unsafe { shared.part(at, columns.len()) };
                            for (panel, part) in panels.clone().zip(part.chunks_mut(LANES)) {
                                by_numbers(w, panel, &|k| rounded.element(r, k), part);
                            }
                            finish.apply(at, part, n);
                        }
                    });
                },
            );
        });
    }
}

/// Products of some panels with all rows.
fn products(
    w: &BlockPanels,
    all: &ByteFactors<'_>,
    m: usize,
    panels: Range<usize>,
    out: &SharedSlice<'_, f32>,
) {
    let (depth, groups, n) = (w.depth, w.groups(), w.rows);
    let mut results = [0f32; TOGETHER * LANES];
    for panel in panels {
        for r in (0..m).step_by(TOGETHER) {
            let rows = TOGETHER.min(m - r);
            let factors = ByteFactors {
                lines: &all.lines[r * depth..][..rows * depth],
                scales: &all.scales[r * groups..][..rows * groups],
                totals: &all.totals[r * groups..][..rows * groups],
            };
            strip(&ByteStrip { form: w.form, panel: w.panel(panel), factors, rows }, &mut results);
            let wide = LANES.min(n - panel * LANES);
            for (i, result) in results.as_chunks::<LANES>().0.iter().take(rows).enumerate() {
                // SAFETY: every task has its own panels.
                let to = unsafe { out.part((r + i) * n + panel * LANES, wide) };
                to.copy_from_slice(&result[..wide]);
            }
        }
    }
}
