//! Products with block-quantised weights (GGUF formats and n-bit groups), dequantised on the fly from packed words.
//!
//! Few rows accumulate straight from the words; more rows go through f32 tiles that stay in the cache.

mod bits;
mod bytes;
mod dequantize;
pub mod formats;
mod panels;
mod quantized_activations;
mod rows;

pub use bits::{
    product as bits_product, product_by_groups as bits_product_by_groups,
    rounded_product as rounded_bits_product,
};
pub use dequantize::{make as dequantize, rows as gather_rows};
pub use panels::BlockPanels;

use super::gemm::pack::panels as right_panels;
use super::gemm::{GemmEpilogue, GemmSizes, ImplicitColumns, Left, Matrix, Product, Right, gemm};
use super::runtime::buffer::with_scratch;
use super::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use super::runtime::threads::SharedSlice;
use super::runtime::weight_cache::{Pack, PackKey, WeightCache};
use formats::Format;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::layout::{Layout, odometer};
use panels::LANES;
use rows::{Factors, Strip, TOGETHER, prepare, strip};
use std::ops::Range;
use std::sync::Arc;

/// Most rows that are computed from packed words.
const FEW_ROWS: usize = 8;
/// Products of a task that is worth handing over.
const GRAIN: usize = 1 << 16;

/// Packs a kernel's operands but the first.
type Packer = Box<dyn Fn(&[&[u8]]) -> BlockPanels + Send + Sync>;

/// Writes the products of some rows with a panel, by its number: [`LANES`] for each row.
type ProductsOfPanel<'a> = &'a (dyn Fn(usize, Range<usize>, &mut [f32]) + Sync);

/// A product with a matrix of known shape.
struct BlockProduct {
    sizes: GemmSizes,
    /// Where the rows of the left operand begin, and the step between their elements.
    starts: Vec<usize>,
    step: isize,
    /// The right operand, if it is constant.
    packed: Option<Arc<Pack<BlockPanels>>>,
    pack: Packer,
    /// Numbers of a group of the left operand, if it is rounded group by group.
    rounded: Option<usize>,
}

/// Numbers of a group of rows that are rounded, where the matrix is in blocks of a format.
const ROUNDED: usize = 32;

/// Specialises the product with a matrix in blocks of a format.
pub fn product(spec: &KernelSpec<'_>, format: &'static Format) -> Option<Box<dyn Kernel>> {
    product_with(spec, format, None)
}

/// The same with dynamically quantised rows.
pub fn rounded_product(spec: &KernelSpec<'_>, format: &'static Format) -> Option<Box<dyn Kernel>> {
    product_with(spec, format, Some(ROUNDED))
}

fn product_with(
    spec: &KernelSpec<'_>,
    format: &'static Format,
    rounded: Option<usize>,
) -> Option<Box<dyn Kernel>> {
    let [x, w] = spec.args else { return None };
    if x.dtype != DType::F32 || w.dtype != DType::U8 {
        return None;
    }
    let pack = packer(&w.layout, format)?;
    BlockProduct::make(spec, w.layout.shape[0], 0, pack, rounded)
}

/// What packs a matrix that lies so; `None` unless the blocks of each row lie one after the other.
fn packer(w: &Layout, format: &'static Format) -> Option<Packer> {
    let &[n, blocks, _] = w.shape.as_slice() else { return None };
    let start = row_starts(w, format)?;
    Some(Box::new(move |operands| format.pack(operands[0], n, blocks, |r| start[r])))
}

/// Where each row of blocks begins, over all axes before the last two.
fn row_starts(w: &Layout, format: &Format) -> Option<Vec<usize>> {
    let rank = w.rank().checked_sub(2)?;
    let (blocks, bytes) = (w.shape[rank], w.shape[rank + 1]);
    let dense = w.strides[rank + 1] == 1 && (blocks <= 1 || w.strides[rank] == bytes as isize);
    if bytes != format.bytes || !dense {
        return None;
    }
    let mut starts = vec![];
    odometer(&w.shape[..rank], [&w.strides[..rank]], [w.offset], |[at]| starts.push(at));
    Some(starts)
}

impl WeightCache {
    /// The packed form of a block-quantised matrix made of several constants; `how` are the packing's parameters.
    pub fn blocks(
        &self,
        constants: &[(&Tensor, &Layout)],
        how: [usize; 2],
        pack: &dyn Fn() -> BlockPanels,
    ) -> Arc<Pack<BlockPanels>> {
        let tensors: Vec<&Tensor> = constants.iter().map(|c| c.0).collect();
        let layouts = constants.iter().map(|c| c.1.clone()).collect();
        let numbers = how.map(|n| n as isize).to_vec();
        self.get_or_pack(&tensors, PackKey { numbers, layouts }, pack)
    }
}

impl BlockProduct {
    /// The product of the first operand with what `pack` makes of the others, a matrix of `n` rows whose operands hold numbers of so many bits,
    /// or of a format.
    fn make(
        spec: &KernelSpec<'_>,
        n: usize,
        bits: usize,
        pack: Packer,
        rounded: Option<usize>,
    ) -> Option<Box<dyn Kernel>> {
        let x = &spec.args.first()?.layout;
        let rank = x.rank().checked_sub(1)?;
        let mut starts = vec![];
        odometer(&x.shape[..rank], [&x.strides[..rank]], [x.offset], |[at]| starts.push(at));
        let sizes = GemmSizes { m: starts.len(), n, k: x.shape[rank] };
        let operands = spec.args[1..].iter();
        let constants: Option<Vec<_>> =
            operands.map(|a| Some((a.constant.as_ref()?, &a.layout))).collect();
        let packed = constants.map(|constants| {
            let bytes: Vec<&[u8]> = constants.iter().map(|c| &c.0.bytes()[..]).collect();
            spec.weights.blocks(&constants, [sizes.k, bits], &|| pack(&bytes))
        });
        Some(Box::new(BlockProduct { sizes, starts, step: x.strides[rank], packed, pack, rounded }))
    }
}

impl Kernel for BlockProduct {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        let GemmSizes { m, n, .. } = self.sizes;
        if m * n == 0 {
            return Ok(());
        }
        let own;
        let w = match &self.packed {
            Some(packed) => &***packed,
            None => {
                let operands: Vec<&[u8]> = inputs[1..].iter().map(|a| a.bytes).collect();
                own = (self.pack)(&operands);
                &own
            }
        };
        let block = |at: usize, part: &mut [f32]| cx.finish(at, part);
        let finish = GemmEpilogue::new(cx, m, n, &block);
        let x = inputs[0].typed();
        match self.rounded {
            Some(size) => self.rounded_rows(cx, x, w, size, out, &finish),
            None if m <= FEW_ROWS => self.few_rows(cx, x, w, out, &finish),
            None => self.many_rows(cx, x, w, out, finish),
        }
        Ok(())
    }

    fn reads(&self, input: usize) -> bool {
        input == 0 || self.packed.is_none()
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        let w = if self.packed.is_some() { 0 } else { self.sizes.n * self.sizes.k * 2 };
        (w + self.sizes.m * self.sizes.k * 4) as u64
    }
}

impl BlockProduct {
    /// Element `k` of row `r` of the left operand.
    fn element(&self, x: &[f32], r: usize, k: usize) -> f32 {
        x[(self.starts[r] as isize + k as isize * self.step) as usize]
    }

    /// Row `r` of the left operand in the order of the places of the right one, zeros where there is no number.
    fn row(&self, x: &[f32], r: usize, w: &BlockPanels, to: &mut [f32]) {
        // Where rows are empty there is no memory of them.
        if w.order.is_none() && self.step == 1 && self.sizes.k > 0 {
            let (own, rest) = to.split_at_mut(self.sizes.k);
            own.copy_from_slice(&x[self.starts[r]..][..own.len()]);
            rest.fill(0.0);
            return;
        }
        for (place, to) in to.iter_mut().enumerate() {
            *to = w.number_at(place).map_or(0.0, |k| self.element(x, r, k));
        }
    }

    /// All rows with each panel, whose words are read once.
    fn few_rows(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &BlockPanels,
        out: &mut [f32],
        finish: &GemmEpilogue<'_>,
    ) {
        let (m, depth, groups) = (self.sizes.m, w.depth, w.groups());
        with_scratch::<f32, 2, _>([m * depth, m * groups], |[lines, sums]| {
            for r in 0..m {
                let line = &mut lines[r * depth..][..depth];
                self.row(x, r, w, line);
                prepare(w.form, line, &mut sums[r * groups..][..groups]);
            }
            let (lines, sums) = (&lines[..m * depth], &sums[..m * groups]);
            let products = |panel: usize, r: Range<usize>, results: &mut [f32]| {
                let (rows, of_groups) = (r.len(), r.start * groups..r.end * groups);
                let factors = Factors {
                    lines: &lines[r.start * depth..r.end * depth],
                    sums: &sums[of_groups],
                };
                strip(&Strip { form: w.form, panel: w.panel(panel), factors, rows }, results);
            };
            let element = |r: usize, k: usize| self.element(x, r, k);
            self.panel_by_panel::<TOGETHER>(cx, w, out, finish, &products, &element);
        });
    }

    /// All rows with each panel, `TOGETHER` at most at once; `element` says what they are products of.
    fn panel_by_panel<const TOGETHER: usize>(
        &self,
        cx: &Context<'_>,
        w: &BlockPanels,
        out: &mut [f32],
        finish: &GemmEpilogue<'_>,
        products: ProductsOfPanel<'_>,
        element: &(dyn Fn(usize, usize) -> f32 + Sync),
    ) {
        let (GemmSizes { m, n, k }, count) = (self.sizes, w.count());
        let tasks = cx.threads.tasks(m * n * k, GRAIN).min(count);
        let shared = SharedSlice::new(out);
        cx.threads.each(tasks, |task| {
            let panels = count * task / tasks..count * (task + 1) / tasks;
            let mut results = [[0f32; LANES]; TOGETHER];
            for panel in panels.clone() {
                let wide = LANES.min(n - panel * LANES);
                for r in (0..m).step_by(TOGETHER) {
                    let rows = r..m.min(r + TOGETHER);
                    products(panel, rows.clone(), results.as_flattened_mut());
                    for (r, result) in rows.zip(&results) {
                        // SAFETY: every task has its own panels.
                        let to = unsafe { shared.part(r * n + panel * LANES, wide) };
                        to.copy_from_slice(&result[..wide]);
                    }
                }
            }
            let columns = panels.start * LANES..(panels.end * LANES).min(n);
            for r in 0..m {
                let at = r * n + columns.start;
                // SAFETY: every task has its own columns, and is done with them.
                let part = unsafe { shared.part(at, columns.len()) };
                for (panel, part) in panels.clone().zip(part.chunks_mut(LANES)) {
                    by_numbers(w, panel, &|k| element(r, k), part);
                }
                finish.apply(at, part, n);
            }
        });
    }

    /// Tiles of real numbers, in the order of the places.
    fn many_rows(
        &self,
        cx: &Context<'_>,
        x: &[f32],
        w: &BlockPanels,
        out: &mut [f32],
        finish: GemmEpilogue<'_>,
    ) {
        let GemmSizes { m, n, k } = self.sizes;
        let depth = w.depth;
        let even = |d: usize| self.starts.windows(2).all(|s| s[1] == s[0] + d);
        let apart = if m > 1 { self.starts[1].wrapping_sub(self.starts[0]) } else { k };
        let plain = w.order.is_none() && depth == k && self.step == 1 && even(apart);
        let lens = [if plain { 0 } else { m * depth }];
        with_scratch::<f32, 1, _>(lens, |[copy]| {
            if !plain {
                for (r, line) in copy[..m * depth].chunks_exact_mut(depth.max(1)).enumerate() {
                    self.row(x, r, w, line);
                }
            }
            let left = match plain {
                true => Matrix { data: x, offset: self.starts[0], row: apart as isize, col: 1 },
                false => Matrix { data: copy, offset: 0, row: depth as isize, col: 1 },
            };
            let sizes = GemmSizes { m, n, k: depth };
            let tiles = Tiles(w);
            let product =
                |_| Product { left: Left::Plain(left), right: Right::Strips(&tiles), at: 0 };
            gemm(cx.threads, sizes, 1, product, out, finish);
        });
    }
}

/// Results of a panel that are not finite once more, number by number: a sum of a group that is scaled can be infinite where no number is, or
/// be no number where one is infinite.
fn by_numbers(w: &BlockPanels, panel: usize, at: &dyn Fn(usize) -> f32, results: &mut [f32]) {
    if results.iter().all(|r| r.is_finite()) {
        return;
    }
    let mut sums = [0.0; LANES];
    dequantize::products(w, panel, at, &mut sums);
    for (result, sum) in results.iter_mut().zip(sums).filter(|(r, _)| !r.is_finite()) {
        *result = sum;
    }
}

/// The matrix, turned, as right panels of real numbers.
struct Tiles<'a>(&'a BlockPanels);

impl ImplicitColumns for Tiles<'_> {
    fn pack(&self, depth: Range<usize>, cols: Range<usize>, dst: &mut [f32]) {
        let (k, full) = (depth.len(), mlc_vector::tile::shape().cols);
        for (p, (cols, width)) in right_panels(cols).enumerate() {
            let panel = &mut dst[p * full * k..][..width * k];
            if cols.len() < width {
                panel.fill(0.0);
            }
            let mut c = cols.start;
            while c < cols.end {
                let (lane, to) = (c % LANES, c - cols.start);
                let count = (LANES - lane).min(cols.end - c);
                dequantize::tile(self.0, c / LANES, &depth, (lane, count), &mut panel[to..], width);
                c += count;
            }
        }
    }
}
