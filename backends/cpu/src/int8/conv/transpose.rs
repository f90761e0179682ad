//! Transposes between channels first and channels last, of bytes.

use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_vector::arrays::array;
use mlc_vector::simd;

/// Specialises NCHW → NHWC.
pub fn make_last(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let shape = &spec.args.first()?.layout.shape;
    let (&[batch, channels], positions) = (shape.first_chunk()?, shape.get(2..)?);
    make(spec, batch, channels, positions.iter().product())
}

/// Specialises NHWC → NCHW.
pub fn make_first(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let shape = &spec.args.first()?.layout.shape;
    let (&batch, rest) = shape.split_first()?;
    let (&channels, positions) = rest.split_last()?;
    make(spec, batch, positions.iter().product(), channels)
}

fn make(
    spec: &KernelSpec<'_>,
    batch: usize,
    rows: usize,
    columns: usize,
) -> Option<Box<dyn Kernel>> {
    let x = spec.args.first()?;
    let fits = x.dtype.size() == 1 && x.layout.is_dense();
    fits.then(|| {
        Box::new(LayoutTranspose { batch, rows, columns, at: x.layout.offset }) as Box<dyn Kernel>
    })
}

/// A batch of matrix transposes.
struct LayoutTranspose {
    batch: usize,
    rows: usize,
    columns: usize,
    at: usize,
}

/// Bytes that a task should at least have.
const GRAIN: usize = 1 << 17;
/// Rows of the result that are written together.
const LINES: usize = 64;
/// Rows and columns of what stays in registers.
const SIDE: usize = 16;

impl Kernel for LayoutTranspose {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (rows, columns) = (self.rows, self.columns);
        let x = &inputs[0].bytes[self.at..];
        let out = &mut *outputs[0];
        if out.is_empty() {
            return Ok(());
        }
        let blocks = columns.div_ceil(LINES);
        let tasks = cx.threads.tasks(out.len(), GRAIN).min(self.batch * blocks);
        let out = SharedSlice::new(out);
        cx.threads.each(tasks, |t| {
            let all = self.batch * blocks;
            for block in all * t / tasks..all * (t + 1) / tasks {
                let (image, first) = (block / blocks * rows * columns, block % blocks * LINES);
                let count = LINES.min(columns - first);
                let from = &x[image + first..image + rows * columns];
                // SAFETY: rows of the result of different blocks do not overlap.
                let part = unsafe { out.part(image + first * rows, count * rows) };
                transpose_bytes(from, columns, rows, part);
            }
        });
        Ok(())
    }
}

simd! {
    /// Columns of a matrix as rows: those that begin in its first row, `apart` bytes from one of its rows to the next.
    fn transpose_bytes(from: &[u8], apart: usize, rows: usize, to: &mut [u8]) {
        let columns = to.len() / rows;
        let whole = (rows / SIDE * SIDE, columns / SIDE * SIDE);
        for r in (0..whole.0).step_by(SIDE) {
            for c in (0..whole.1).step_by(SIDE) {
                let mut square: [[u8; SIDE]; SIDE] = array(|i| {
                    let line = &from[(r + i) * apart + c..][..SIDE];
                    array(|j| line[j])
                });
                transpose(&mut square);
                for (j, line) in square.iter().enumerate() {
                    to[(c + j) * rows + r..][..SIDE].copy_from_slice(line);
                }
            }
        }
        if rows == 3 {
            return threes(from, apart, to);
        }
        for r in 0..rows {
            let first = if r < whole.0 { whole.1 } else { 0 };
            for c in first..columns {
                to[c * rows + r] = from[r * apart + c];
            }
        }
    }
}

/// Three rows as columns.
#[inline(always)]
fn threes(from: &[u8], apart: usize, to: &mut [u8]) {
    let columns = to.len() / 3;
    let rows: [&[u8]; 3] = array(|r| &from[r * apart..][..columns]);
    for (c, to) in to.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        *to = array(|r| rows[r][c]);
    }
}

/// A square's transpose: four times the lines of one half are shuffled with those of the other.
#[inline(always)]
fn transpose(square: &mut [[u8; SIDE]; SIDE]) {
    for _ in 0..4 {
        let old = *square;
        for i in 0..SIDE / 2 {
            let (a, b) = (&old[i], &old[i + SIDE / 2]);
            let pick = |half: usize| {
                array(|j| {
                    let at = half * SIDE / 2 + j / 2;
                    if j % 2 == 0 { a[at] } else { b[at] }
                })
            };
            square[2 * i] = pick(0);
            square[2 * i + 1] = pick(1);
        }
    }
}
