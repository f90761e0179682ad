//! Int8 GEMM: unsigned rows by signed columns, which are packed, once if constant.

use super::dot::{COLUMNS, InitialSums, LANES, ROWS, Rows, SignedSide, TileRange, tile};
use super::epilogue::OutputPipeline;
use super::pack::{ByteMatrix, PackedBytes, groups, total};
use super::{SignShift, block_columns, is_zero_point, sign_shift, vector};
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::weight_cache::Pack;
use mlc_dsl::layout::odometer;
use std::sync::Arc;

/// A batch of products with known shapes.
struct Int8MatMul {
    /// Rows and depth of a product, and columns.
    m: usize,
    k: usize,
    n: usize,
    /// Where the operands of each product begin.
    starts: Vec<[usize; 2]>,
    /// The steps of the columns' operand.
    right: (isize, isize),
    /// The sign shift of rows and columns.
    rows: SignShift,
    columns: SignShift,
    /// The columns of all products, if they are one constant.
    packed: Option<Arc<Pack<PackedBytes>>>,
}

/// Specialises `(x - p) · (w - q)`.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let [x, w, p, q] = spec.args else { return None };
    let (xl, wl) = (&x.layout, &w.layout);
    let rank = xl.rank();
    let (rows, columns) = (sign_shift(x.dtype, false)?, sign_shift(w.dtype, true)?);
    // Rows are read as they lie.
    if rank < 2 || !is_zero_point(p, 0) || !is_zero_point(q, 1) || !xl.is_dense() {
        return None;
    }
    let (mut m, k, n) = (xl.shape[rank - 2], xl.shape[rank - 1], wl.shape[rank - 1]);
    let batch = rank - 2;
    let mut starts = vec![];
    let at = [xl.offset, wl.offset];
    odometer(&xl.shape[..batch], [&xl.strides[..batch], &wl.strides[..batch]], at, |s| {
        starts.push(s)
    });
    if starts.iter().all(|s| s[1] == starts[0][1]) {
        // One matrix for all: its products are more rows of one.
        m *= starts.len();
        starts.truncate(1);
    }
    let right = (wl.strides[rank - 2], wl.strides[rank - 1]);
    let packed =
        match (&w.constant, starts.as_slice()) {
            (Some(t), [[_, offset]]) => {
                let b = ByteMatrix { data: t.bytes(), offset: *offset, row: right.0, col: right.1 };
                Some(spec.weights.bytes(t, *offset, right, (k, n), &|| {
                    PackedBytes::columns(&b, k, n, columns.flip)
                }))
            }
            _ => None,
        };
    Some(Box::new(Int8MatMul { m, k, n, starts, right, rows, columns, packed }))
}

/// One product.
struct Int8Product<'a> {
    /// Rows of the result.
    at: usize,
    rows: Rows<'a>,
    /// The sum of each row less the zero point of rows times the depth, if the zero points of columns need it.
    row_sums: &'a [i32],
    columns: &'a PackedBytes,
    /// What each column's sums begin with, and its zero point.
    begin: &'a [i32],
    zeros: &'a [i32],
}

impl Kernel for Int8MatMul {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let p = vector(&inputs[2], 1, self.rows.offset)[0];
        let wide = self.n.next_multiple_of(COLUMNS);
        let mut q = vector(&inputs[3], self.n, self.columns.offset);
        q.resize(wide, 0);
        let shifted = q.iter().any(|&z| z != 0);
        let results = self.starts.len() * self.m;
        let finish = OutputPipeline::of_rows(cx, outputs[0], results, self.n);
        let mut begin = vec![0; wide];
        for (i, &[left, right]) in self.starts.iter().enumerate() {
            let own;
            let columns = match &self.packed {
                Some(packed) => &***packed,
                None => {
                    let (row, col) = self.right;
                    let b = ByteMatrix { data: inputs[1].bytes, offset: right, row, col };
                    own = PackedBytes::columns(&b, self.k, self.n, self.columns.flip);
                    &own
                }
            };
            for (b, s) in begin.iter_mut().zip(&columns.sums) {
                *b = s.wrapping_mul(p).wrapping_neg();
            }
            // Without depth there is nothing at any offset.
            let x = match self.m * self.k {
                0 => &[],
                length => &inputs[0].bytes[left..][..length],
            };
            let stride = 4 * groups(self.k);
            let plain = self.rows.flip == 0 && stride == self.k;
            let lens = [if plain { 0 } else { self.m * stride }];
            with_scratch::<u8, 1, _>(lens, |[copy]| {
                if !plain {
                    let copy = &mut copy[..self.m * stride];
                    for (to, from) in
                        copy.chunks_exact_mut(stride.max(1)).zip(x.chunks_exact(self.k.max(1)))
                    {
                        to[self.k..].fill(0);
                        to.iter_mut().zip(from).for_each(|(t, &b)| *t = b ^ self.rows.flip);
                    }
                }
                let rows = Rows { bytes: if plain { x } else { copy }, stride };
                let sum = |r: usize| {
                    let row = &rows.bytes[r * stride..][..self.k];
                    total(row).wrapping_sub(p.wrapping_mul(self.k as i32))
                };
                let row_sums: Vec<i32> =
                    if shifted { (0..self.m).map(sum).collect() } else { vec![] };
                let product = Int8Product {
                    at: i * self.m,
                    rows,
                    row_sums: &row_sums,
                    columns,
                    begin: &begin,
                    zeros: &q,
                };
                self.product(cx, &product, &finish);
            });
        }
        Ok(())
    }

    fn takes_epilogue(&self) -> bool {
        true
    }

    fn epilogue_converts(&self) -> bool {
        true
    }

    fn scratch(&self) -> u64 {
        let packed = if self.packed.is_some() { 0 } else { self.k * self.n };
        (self.m * self.k + packed) as u64
    }
}

/// Rows that are computed together.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 48;
/// Products of a task that is worth handing over.
const GRAIN: usize = 1 << 19;

impl Int8MatMul {
    fn product(&self, cx: &Context<'_>, p: &Int8Product<'_>, finish: &OutputPipeline<'_>) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        let wide = block_columns(self.k).min(self.n.next_multiple_of(COLUMNS));
        let across = self.n.div_ceil(wide);
        let work = self.m * self.n * self.k.max(1) / GRAIN;
        let wanted =
            if cx.threads.count() == 1 { 1 } else { work.clamp(1, 4 * cx.threads.count()) };
        let down = wanted.div_ceil(across).clamp(1, self.m.div_ceil(ROWS));
        cx.threads.each(across * down, |task| {
            let (c, d) = (task / down, task % down);
            let columns = c * wide..((c + 1) * wide).min(self.n);
            let edge = |d: usize| (self.m.div_ceil(ROWS) * d / down * ROWS).min(self.m);
            self.block(p, edge(d)..edge(d + 1), columns, finish);
        });
    }

    /// The part of a product of these rows and columns.
    fn block(
        &self,
        p: &Int8Product<'_>,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        finish: &OutputPipeline<'_>,
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some((steps, out)) = finish.steps() {
            use super::dot::vnni;
            let first = p.rows.bytes.as_ptr();
            let row = |r: usize| first.wrapping_add(r * p.rows.stride);
            for block in rows.clone().step_by(BLOCK) {
                let block = block..(block + BLOCK).min(rows.end);
                let mut pointers = [first; BLOCK];
                pointers.iter_mut().zip(block.clone()).for_each(|(to, r)| *to = row(r));
                let pointers = &pointers[..block.len()];
                let apart = block.len();
                let a = vnni::PointerRows { pointers, apart, first: 0, groups: p.rows.stride / 4 };
                for c in columns.clone().step_by(COLUMNS) {
                    let to = vnni::OutputTile {
                        out: out.at(0),
                        len: out.len(),
                        steps,
                        n: self.n,
                        row: p.at + block.start,
                        column: c,
                        wide: COLUMNS.min(columns.end - c),
                    };
                    let panel = p.columns.panel(c / COLUMNS).groups;
                    let shifted = (!p.row_sums.is_empty()).then(|| vnni::ZeroPoints {
                        zeros: &p.zeros[c..],
                        row_sums: &p.row_sums[block.clone()],
                    });
                    let begin = vnni::InitialSums { columns: &p.begin[c..], shifted };
                    // SAFETY: steps are there only with the instructions; every pointer is to a row; blocks of tasks do not overlap.
                    unsafe { vnni::tiles(a, block.len(), panel, begin, &to) };
                }
            }
            return;
        }
        let (n, pitch) = (columns.len(), columns.len().next_multiple_of(COLUMNS));
        with_scratch::<i32, 1, _>([ROWS * pitch], |[sums]| {
            for r in rows.clone().step_by(ROWS) {
                let count = ROWS.min(rows.end - r);
                for c in columns.clone().step_by(COLUMNS) {
                    let vectors = (columns.end - c).min(COLUMNS).div_ceil(LANES);
                    let start = InitialSums {
                        rows: [0; ROWS],
                        columns: Some(&p.begin[c..c + vectors * LANES]),
                    };
                    let panel = p.columns.panel(c / COLUMNS);
                    let to = &mut sums[c - columns.start..];
                    let range = TileRange { row: r, count, column: 0, vectors };
                    tile(SignedSide::Right, p.rows, panel, range, &start, to, pitch);
                }
                for i in 0..count {
                    if let Some(&row) = p.row_sums.get(r + i) {
                        let zeros = &p.zeros[columns.clone()];
                        for (s, z) in sums[i * pitch..].iter_mut().zip(zeros) {
                            *s = s.wrapping_sub(z.wrapping_mul(row));
                        }
                    }
                    if n != pitch && i > 0 {
                        sums.copy_within(i * pitch..i * pitch + n, i * n);
                    }
                }
                let at = (p.at + r) * self.n + columns.start;
                if n == self.n {
                    // SAFETY: blocks of tasks do not overlap, and a task works on one tile after the other.
                    unsafe { finish.part(at, &sums[..count * n]) };
                    continue;
                }
                for i in 0..count {
                    // SAFETY: as above.
                    unsafe { finish.part(at + i * self.n, &sums[i * n..][..n]) };
                }
            }
        });
    }
}
