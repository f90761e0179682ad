//! FlashAttention: `softmax(QKᵀ)·V` tile by tile, never materialising the scores.
//!
//! The online softmax keeps a running sum and maximum per row, and rescales sums when the maximum grows (M. Milakov, N. Gimelshein, "Online
//! normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022). The bits of a row depend on the keys only, never on how
//! rows are divided into tasks. Nothing is skipped: a weight of zero is multiplied with its value, which may be infinite. f32 only.

use crate::gemm::Matrix;
use crate::gemm::PackedBlock;
use crate::gemm::f16_panels::RightPanels;
use crate::gemm::pack::{copy_lines, pack_left, pack_right, right_len, wide_rows};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, odometer};
use mlc_vector::epilogue::NO_EPILOGUE;
use mlc_vector::rows::{OnlineSoftmaxRows, online_softmax};
use mlc_vector::simd;
use mlc_vector::tile::{self, PanelRows, Piece, StridedPanels, TileOutput, shape, strip_panels};
use mlc_vector::transpose::LINES;
use smallvec::smallvec;
use std::ops::Range;

mod few_queries;

/// Keys of a tile.
const TILE: usize = 256;

/// Queries whose scores are held at once.
const ROWS: usize = 112;

/// Most queries of a task, which reads every key and value once.
const MOST_ROWS: usize = 2048;

/// Padding of rows of scores, so that rows do not share the sets of a cache.
const APART: usize = 16;

/// How scaled scores are masked.
#[derive(Clone, Copy, Debug)]
enum Masking {
    /// Not at all.
    Plain,
    /// A mask is added.
    Add,
    /// Scores where the mask is false are replaced by this.
    Select(f32),
}

/// Scores as they are; attribute 0 is their scale.
pub const PLAIN: KernelFactory = |s| make(s, Masking::Plain);
/// Argument 3 is added to the scores.
pub const MASKED: KernelFactory = |s| make(s, Masking::Add);
/// Argument 3 selects scores, attribute 1 replaces the others.
pub const SELECT: KernelFactory = |s| make(s, Masking::Select(s.float(1)? as f32));

/// Strides of a matrix, the last two axes.
#[derive(Clone, Copy)]
struct MatrixStrides {
    row: isize,
    col: isize,
}

impl MatrixStrides {
    fn of(l: &Layout) -> Option<MatrixStrides> {
        let &[.., row, col] = l.strides.as_slice() else { return None };
        Some(MatrixStrides { row, col })
    }
}

struct Attention {
    masking: Masking,
    scale: f32,
    /// Per head: where queries, keys, values and mask begin.
    heads: Vec<[usize; 4]>,
    /// Queries, keys, features of keys, features of values.
    s: usize,
    t: usize,
    d: usize,
    e: usize,
    q: MatrixStrides,
    k: MatrixStrides,
    v: MatrixStrides,
    mask: MatrixStrides,
}

fn make(spec: &KernelSpec<'_>, masking: Masking) -> Option<Box<dyn Kernel>> {
    let [q, k, v, masks @ ..] = spec.args else { return None };
    let floats = [q, k, v].iter().all(|a| a.dtype == DType::F32) && spec.outputs[0].0 == DType::F32;
    let mask = match (masking, masks) {
        (Masking::Plain, []) => None,
        (Masking::Add, [m]) if m.dtype == DType::F32 => Some(&m.layout),
        (Masking::Select(_), [m]) if m.dtype == DType::Bool => Some(&m.layout),
        _ => return None,
    };
    let batch = q.layout.rank().checked_sub(2)?;
    if !floats {
        return None;
    }
    let none = Layout { shape: smallvec![], strides: smallvec![0; batch + 2], offset: 0 };
    let mask = mask.unwrap_or(&none);
    let layouts = [&q.layout, &k.layout, &v.layout, mask];
    let mut heads = Vec::new();
    odometer(
        &q.layout.shape[..batch],
        layouts.map(|l| &l.strides[..batch]),
        layouts.map(|l| l.offset),
        |at| heads.push(at),
    );
    let (s, d) = (q.layout.shape[batch], q.layout.shape[batch + 1]);
    let (t, e) = (v.layout.shape[batch], v.layout.shape[batch + 1]);
    Some(Box::new(Attention {
        masking,
        scale: spec.float(0)? as f32,
        heads,
        s,
        t,
        d,
        e,
        q: MatrixStrides::of(&q.layout)?,
        k: MatrixStrides::of(&k.layout)?,
        v: MatrixStrides::of(&v.layout)?,
        mask: MatrixStrides::of(mask)?,
    }))
}

/// The memory of the operands.
struct Operands<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    mask: &'a [u8],
}

impl Kernel for Attention {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if self.t == 0 || out.is_empty() {
            out.fill(0.0);
            return Ok(());
        }
        let data = Operands {
            q: inputs[0].typed(),
            k: inputs[1].typed(),
            v: inputs[2].typed(),
            mask: inputs.get(3).map_or(&[], |m| m.bytes),
        };
        let enough = (cx.threads.count() * 2).div_ceil(self.heads.len());
        let blocks = self.s.div_ceil(MOST_ROWS).max(enough.min(self.s.div_ceil(shape().rows)));
        let shared = SharedSlice::new(out);
        cx.threads.each(self.heads.len() * blocks, |task| {
            let (head, part) = (task / blocks, task % blocks);
            let rows = self.s * part / blocks..self.s * (part + 1) / blocks;
            if !rows.is_empty() {
                self.block(head, rows, &data, &shared);
            }
        });
        Ok(())
    }
}

impl Attention {
    /// Computes some queries of one head.
    fn block(
        &self,
        head: usize,
        rows: Range<usize>,
        data: &Operands<'_>,
        out: &SharedSlice<'_, f32>,
    ) {
        let [q_at, k_at, v_at, mask_at] = self.heads[head];
        let (d, e, high) = (self.d, self.e, rows.len());
        let most = self.t.min(TILE);
        let wide = wide_rows(high, e.min(most));
        let whole = high.div_ceil(wide) * wide;
        let (part, pitch) = ((ROWS / wide * wide).min(whole), most + APART);
        let q = Matrix { data: data.q, offset: q_at, row: self.q.row, col: self.q.col };
        let k = Matrix { data: data.k, offset: k_at, row: self.k.row, col: self.k.col };
        let keys = Matrix { row: k.col, col: k.row, ..k };
        let v = Matrix { data: data.v, offset: v_at, row: self.v.row, col: self.v.col };
        // Tiles of few rows take several panels of the right operand at once, and want the left one packed.
        let few = high <= wide && strip_panels(wide) > 1;
        let (direct, dotted) = (self.is_direct(), self.is_dotted());
        // Rows that no transpose of vectors packs are as good where they lie, once they lie close together.
        let lines = dotted || !few && wide < LINES;
        let held = if few && !direct { part * most } else { 0 };
        let packed_values = if direct { 0 } else { right_len(e, most) };
        let packed_keys = if dotted { 0 } else { right_len(most, d) };
        let lens = [whole * d, packed_keys, part * pitch, held, packed_values];
        with_scratch::<f32, 5, _>(lens, |[packed, right, scores, weights, values]| {
            with_scratch::<f32, 4, _>(
                [high, high, part, most],
                |[maxima, sums, rescales, line]| {
                    // Without features there is nothing to pack: all scores are zero.
                    match lines {
                        _ if d == 0 => {}
                        true => copy_lines(&q, rows.clone(), d, packed),
                        false => pack_left(&q, rows.clone(), 0..d, wide, packed),
                    }
                    maxima[..high].fill(f32::NEG_INFINITY);
                    sums[..high].fill(0.0);
                    let first = (head * self.s + rows.start) * e;
                    if direct {
                        // SAFETY: every row is written by one task.
                        unsafe { out.part(first, high * e) }.fill(0.0);
                    }
                    for c in (0..self.t).step_by(TILE) {
                        let cols = c..(c + TILE).min(self.t);
                        let n = cols.len();
                        if d > 0 && !dotted {
                            pack_right(&keys, 0..d, cols.clone(), right);
                        }
                        if !direct {
                            pack_right(&v, cols.clone(), 0..e, values);
                        }
                        for from in (0..high).step_by(part) {
                            let m = part.min(high - from);
                            let sizes = AttentionSizes { m, n, k: d, wide };
                            let all = SharedSlice::new(&mut scores[..m * pitch]);
                            let left = &packed[from * d..];
                            match lines {
                                _ if dotted => {
                                    let queries = &left[..m * d];
                                    self.dot_keys(
                                        &k,
                                        &cols,
                                        queries,
                                        &mut scores[..m * pitch],
                                        pitch,
                                    );
                                }
                                true => product_in_place(
                                    sizes,
                                    left,
                                    d,
                                    right,
                                    ResultRows { out: &all, first: 0, stride: pitch },
                                    false,
                                ),
                                false => product(
                                    sizes,
                                    left,
                                    right,
                                    ResultRows { out: &all, first: 0, stride: pitch },
                                    false,
                                ),
                            }
                            let state = OnlineSoftmax {
                                maxima: &mut maxima[from..from + m],
                                sums: &mut sums[from..from + m],
                                rescales: &mut rescales[..m],
                            };
                            let scores = &mut scores[..m * pitch];
                            let tile =
                                ScoreTile { scores, pitch, row: rows.start + from, cols: &cols };
                            self.exponentiate(data.mask, mask_at, tile, state, line);
                            if c > 0 {
                                rescale_rows(out, first + from * e, e, &rescales[..m]);
                            }
                            let sizes = AttentionSizes { m, n: e, k: n, wide };
                            let at = first + from * e;
                            let to = ResultRows { out, first: at, stride: e };
                            if direct {
                                self.add_values(&v, &cols, scores, pitch, out, at);
                            } else if few {
                                let x = Matrix {
                                    data: &*scores,
                                    offset: 0,
                                    row: pitch as isize,
                                    col: 1,
                                };
                                pack_left(&x, 0..m, 0..n, wide, weights);
                                product(sizes, weights, values, to, c > 0);
                            } else {
                                product_in_place(sizes, scores, pitch, values, to, c > 0);
                            }
                        }
                    }
                    sums[..high].iter_mut().for_each(|s| *s = 1.0 / *s);
                    rescale_rows(out, first, e, &sums[..high]);
                },
            );
        });
    }

    /// Turns a tile of scores into softmax weights, under the mask.
    fn exponentiate(
        &self,
        mask: &[u8],
        mask_at: usize,
        ScoreTile { scores, pitch, row: first, cols }: ScoreTile<'_>,
        OnlineSoftmax { maxima, sums, rescales }: OnlineSoftmax<'_>,
        line: &mut [f32],
    ) {
        let n = cols.len();
        for (i, x) in scores.chunks_exact_mut(pitch).enumerate() {
            if let Some(mask) = self.line(mask, mask_at, first + i, cols, line) {
                apply_mask(&mut x[..n], self.scale, mask);
            }
        }
        // Masks are for scores that are scaled.
        let scale = match self.masking {
            Masking::Plain => self.scale,
            Masking::Add | Masking::Select(_) => 1.0,
        };
        online_softmax(&mut OnlineSoftmaxRows { scores, n, pitch, scale, maxima, sums, rescales });
    }

    /// The mask of row `r` at some keys, if there is one; `line` has room for it.
    fn line<'a>(
        &self,
        mask: &'a [u8],
        at: usize,
        r: usize,
        cols: &Range<usize>,
        line: &'a mut [f32],
    ) -> Option<MaskRow<'a>> {
        let n = cols.len();
        let place = |c: usize| {
            let step = r as isize * self.mask.row + (cols.start + c) as isize * self.mask.col;
            (at as isize + step) as usize
        };
        match self.masking {
            Masking::Plain => None,
            Masking::Add => {
                let mask: &[f32] = bytemuck::cast_slice(mask);
                if self.mask.col == 1 {
                    return Some(MaskRow::Add(&mask[place(0)..][..n]));
                }
                line[..n].iter_mut().enumerate().for_each(|(c, l)| *l = mask[place(c)]);
                Some(MaskRow::Add(&line[..n]))
            }
            Masking::Select(low) => {
                if self.mask.col == 1 {
                    return Some(MaskRow::Select(&mask[place(0)..][..n], low));
                }
                let line: &mut [u8] = bytemuck::cast_slice_mut(line);
                line[..n].iter_mut().enumerate().for_each(|(c, l)| *l = mask[place(c)]);
                Some(MaskRow::Select(&line[..n], low))
            }
        }
    }
}

/// Scores of some rows at some keys.
struct ScoreTile<'a> {
    scores: &'a mut [f32],
    /// Elements from one row to the next.
    pitch: usize,
    /// The first row.
    row: usize,
    cols: &'a Range<usize>,
}

/// The state of the online softmax of some rows.
struct OnlineSoftmax<'a> {
    /// Running maximum of the scores, and sum of the weights.
    maxima: &'a mut [f32],
    sums: &'a mut [f32],
    /// Factors that rescale earlier weights to the new maximum.
    rescales: &'a mut [f32],
}

/// Multiplies rows of the result by a factor each.
fn rescale_rows(out: &SharedSlice<'_, f32>, first: usize, e: usize, by: &[f32]) {
    for (r, &by) in by.iter().enumerate().filter(|(_, by)| **by != 1.0) {
        // SAFETY: every row is written by one task.
        let row = unsafe { out.part(first + r * e, e) };
        row.iter_mut().for_each(|o| *o *= by);
    }
}

/// Sizes of a product, and rows of each packed left panel.
#[derive(Clone, Copy)]
struct AttentionSizes {
    m: usize,
    n: usize,
    k: usize,
    wide: usize,
}

/// Rows of a result from element `first` on, `stride` elements apart.
#[derive(Clone, Copy)]
struct ResultRows<'a> {
    out: &'a SharedSlice<'a, f32>,
    first: usize,
    stride: usize,
}

/// Stores or adds the product of packed operands.
fn product(
    s: AttentionSizes,
    a: &[f32],
    b: &[f32],
    ResultRows { out, first, stride }: ResultRows<'_>,
    add: bool,
) {
    let AttentionSizes { m, n, k, wide } = s;
    assert!(first + (m - 1) * stride + n <= out.len(), "the product lies inside the result");
    let block =
        PackedBlock { m, n, k, rows: wide, at: first, stride, row: 0, column: 0, add, next: &[] };
    block.product(a, &RightPanels::Floats(b), &mut [], &NO_EPILOGUE, out);
}

/// The same with a left operand that is read in place, with rows `pitch` elements apart.
fn product_in_place(
    s: AttentionSizes,
    a: &[f32],
    pitch: usize,
    b: &[f32],
    ResultRows { out, first, stride }: ResultRows<'_>,
    add: bool,
) {
    let AttentionSizes { m, n, k, wide } = s;
    assert!(a.len() >= m * pitch && k <= pitch, "lines inside the operand");
    assert!(first + (m - 1) * stride + n <= out.len(), "the product lies inside the result");
    for columns in tile::strips(0..n, tile::wide_panels(wide)) {
        let (column, columns) = (columns.start, columns.len());
        let vectors = tile::vectors(columns);
        let panel = &b[column * k..][..vectors * shape().lanes() * k];
        tile::each_height(m, wide, |r, count, rows| {
            let parts = tile::parts(first + r * stride + column, column, columns);
            let target = TileOutput {
                out: out.at(0),
                len: out.len(),
                parts: &parts[..vectors],
                stride,
                row: r,
                add,
                epilogue: &NO_EPILOGUE,
            };
            let pieces = [Piece { first: a[r * pitch..].as_ptr(), step: pitch }];
            let lines = StridedPanels { pieces: &pieces, length: k };
            // SAFETY: the lines are inside the operand by the assertion; rows of the result belong to one task.
            unsafe {
                tile::strided_tiles(count, rows, lines, PanelRows::all(panel, k), &[], &target)
            };
        });
    }
}

/// A row of the mask.
#[derive(Clone, Copy)]
enum MaskRow<'a> {
    Add(&'a [f32]),
    Select(&'a [u8], f32),
}

simd! {
    /// Scaled scores under a mask.
    fn apply_mask(x: &mut [f32], scale: f32, mask: MaskRow<'_>) {
        match mask {
            MaskRow::Add(mask) => x.iter_mut().zip(mask).for_each(|(x, m)| *x = scale * *x + m),
            MaskRow::Select(keep, low) => {
                x.iter_mut().zip(keep).for_each(|(x, &k)| *x = if k != 0 { scale * *x } else { low });
            }
        }
    }
}
