//! Launches of fused pointwise expressions, and copies of strided views.

use super::buffer::with_scratch;
use super::convert::by_size;
use super::launch::{Array, Context, Launch};
use super::layout::{Layout, coalesce, dense_strides, odometer};
use super::lines::Lines;
use super::pointwise::{ElementSource, Fused, strided_copy};
use super::threads::SharedSlice;
use super::vector::transpose::{LINES, transpose_lines};
use mlc_dsl::ir::DType;
use smallvec::SmallVec;

/// A pointwise program over a whole result.
pub struct Map {
    fused: Fused,
    len: usize,
    /// The input of bytes that alone decides each element of the one result.
    byte: Option<usize>,
}

/// Elements from which on a function of a byte is worth a table.
const TABULATED: usize = 4096;

/// The input of bytes, read element by element, where a program has one result and all other inputs are one element each.
fn only_byte(fused: &Fused) -> Option<usize> {
    let (code, sources) = fused.parts();
    let several = sources.iter().enumerate().filter(|(_, s)| !matches!(s, ElementSource::Splat(_)));
    let [(i, ElementSource::Dense(0))] = several.collect::<Vec<_>>()[..] else { return None };
    let is_byte = matches!(code.inputs[i], DType::U8 | DType::I8);
    let plain = matches!(code.outputs[..], [(_, DType::U8 | DType::I8 | DType::F32)]);
    (is_byte && plain && code.instrs.len() > 1).then_some(i)
}

/// Elements that a task should at least have.
const GRAIN: usize = 32 * 1024;

impl Map {
    /// A program over `len` elements.
    pub fn new(fused: Fused, len: usize) -> Map {
        let byte = if len < TABULATED { None } else { only_byte(&fused) };
        Map { fused, len, byte }
    }

    /// Computes the program for every byte, and looks up the elements.
    fn tabulated(&self, cx: &Context<'_>, byte: usize, inputs: &[&[u8]], out: &mut [u8]) {
        let all: [u8; 256] = std::array::from_fn(|i| i as u8);
        let mut given: SmallVec<[&[u8]; 16]> = inputs.iter().copied().collect();
        given[byte] = &all;
        let from = &inputs[byte][..self.len];
        let mut table = [0f32; 256];
        let table: &mut [u8] = bytemuck::cast_slice_mut(&mut table);
        let size = out.len() / self.len;
        let table = &mut table[..256 * size];
        self.fused.span(0, 256, &given, &mut [&mut *table]);
        match size {
            1 => look_up(cx, table, from, out),
            _ => {
                look_up::<f32>(cx, bytemuck::cast_slice(table), from, bytemuck::cast_slice_mut(out))
            }
        }
    }
}

impl Launch for Map {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let bytes: SmallVec<[&[u8]; 16]> = inputs.iter().map(|i| i.bytes).collect();
        if let Some(byte) = self.byte {
            self.tabulated(cx, byte, &bytes, outputs[0]);
            return Ok(());
        }
        let parts = (self.len / GRAIN).clamp(1, cx.threads.count() * 4);
        if parts == 1 || cx.threads.count() == 1 {
            self.fused.span(0, self.len, &bytes, outputs);
            return Ok(());
        }
        let sizes: SmallVec<[usize; 8]> = self.fused.outputs().map(DType::size).collect();
        let shared: SmallVec<[SharedSlice<'_, u8>; 8]> =
            outputs.iter_mut().map(|o| SharedSlice::new(o)).collect();
        let step = self.len.div_ceil(parts).next_multiple_of(64);
        cx.threads.each(self.len.div_ceil(step), |i| {
            let (start, len) = (i * step, step.min(self.len - i * step));
            // SAFETY: spans of different tasks do not overlap.
            let mut outs: SmallVec<[&mut [u8]; 8]> = shared
                .iter()
                .zip(&sizes)
                .map(|(o, &s)| unsafe { o.part(start * s, len * s) })
                .collect();
            self.fused.span(start, len, &bytes, &mut outs);
        });
        Ok(())
    }
}

/// The entries of a table of 256 for these bytes.
fn look_up<T: bytemuck::Pod + Send + Sync>(
    cx: &Context<'_>,
    table: &[T],
    from: &[u8],
    out: &mut [T],
) {
    let Ok(table) = <&[T; 256]>::try_from(table) else { return };
    cx.threads.chunks(out, 1, GRAIN, |at, part| {
        part.iter_mut().zip(&from[at..]).for_each(|(o, &b)| *o = table[b as usize]);
    });
}

/// A view written out densely.
pub struct Copy {
    dtype: DType,
    source: ElementSource,
    how: How,
}

/// How a copy is made.
enum How {
    /// Runs of the innermost axis.
    Runs,
    Turned(Turn),
    Picked(Lines),
}

/// A copy in which the source is contiguous along another axis than the result: blocks are turned.
struct Turn {
    /// Extents and source strides of all but the two axes, and where each index lies in the result.
    shape: Vec<usize>,
    from: Vec<isize>,
    to: Vec<isize>,
    offset: usize,
    /// The axis contiguous in the source: extent and stride in the result.
    rows: (usize, usize),
    /// The innermost axis of the result: extent and stride in the source.
    cols: (usize, isize),
}

impl Turn {
    fn of(layout: &Layout) -> Option<Turn> {
        let merged = coalesce(&layout.shape, &[&layout.strides]);
        let (shape, strides) = (&merged.shape, &merged.strides[0]);
        // Runs of one element are filled, and short lines are picked.
        let last = shape.len().checked_sub(1).filter(|&last| strides[last] != 0)?;
        let axis = strides.iter().position(|&s| s == 1).filter(|&a| a != last)?;
        let dense = dense_strides(shape);
        let rest: Vec<usize> = (0..last).filter(|&a| a != axis).collect();
        let pick = |v: &[isize]| rest.iter().map(|&a| v[a]).collect();
        Some(Turn {
            shape: rest.iter().map(|&a| shape[a]).collect(),
            from: pick(strides),
            to: pick(&dense),
            offset: layout.offset,
            rows: (shape[axis], dense[axis] as usize),
            cols: (shape[last], strides[last]),
        })
    }

    fn run<T: bytemuck::Pod + Send + Sync>(&self, cx: &Context<'_>, src: &[T], out: &mut [T]) {
        let count = self.shape.iter().product();
        with_scratch::<[usize; 2], 1, _>([count], |[starts]| {
            let mut next = starts.iter_mut();
            odometer(&self.shape, [&self.from, &self.to], [self.offset, 0], |s| {
                next.next().into_iter().for_each(|start| *start = s);
            });
            self.turned(cx, src, starts, out);
        });
    }

    /// Turns the blocks that begin at `starts`, in the source and in the result.
    fn turned<T: bytemuck::Pod + Send + Sync>(
        &self,
        cx: &Context<'_>,
        src: &[T],
        starts: &[[usize; 2]],
        out: &mut [T],
    ) {
        /// Elements of a line of a block: lines of the cache.
        const SIDE: usize = 32;
        let bands = self.rows.0.div_ceil(SIDE);
        let shared = SharedSlice::new(out);
        let all = starts.len() * bands;
        let tasks = all.min(cx.threads.count() * 8);
        let floats = bytemuck::try_cast_slice::<T, f32>(src);
        let floats = floats.ok().filter(|_| size_of::<T>() == size_of::<f32>());
        cx.threads.each(tasks, |t| {
            let mut block = [0f32; SIDE * LINES];
            for band in all * t / tasks..all * (t + 1) / tasks {
                let [from, to] = starts[band / bands];
                let first = band % bands * SIDE;
                let rows = first..(first + SIDE).min(self.rows.0);
                // Where rows follow each other in the result, blocks are turned to their places.
                if let (Some(src), true) = (floats, self.rows.1 == self.cols.0) {
                    let (all, wide) = (rows.len() * self.cols.0, self.cols.0 / LINES * LINES);
                    // SAFETY: every task has its own bands of rows.
                    let part = unsafe { shared.part(to + first * self.rows.1, all) };
                    let out = bytemuck::cast_slice_mut::<T, f32>(part);
                    let at = |c: usize| {
                        (from as isize + first as isize + c as isize * self.cols.1) as usize
                    };
                    for c in (0..wide).step_by(LINES) {
                        let lines = std::array::from_fn(|i| &src[at(c + i)..][..rows.len()]);
                        transpose_lines(lines, rows.len(), &mut out[c..], self.cols.0);
                    }
                    for c in wide..self.cols.0 {
                        let column = out[c..].iter_mut().step_by(self.cols.0);
                        column.zip(&src[at(c)..]).for_each(|(o, &v)| *o = v);
                    }
                    continue;
                }
                for c in (0..self.cols.0).step_by(LINES) {
                    let at = (from + first) as isize + c as isize * self.cols.1;
                    let wide = LINES.min(self.cols.0 - c);
                    let line = |i: usize| (at + i as isize * self.cols.1) as usize;
                    // SAFETY: every task has its own bands of rows.
                    let part = |r: usize| unsafe { shared.part(to + r * self.rows.1 + c, wide) };
                    if let (Some(src), true) = (floats, wide == LINES) {
                        let lines = std::array::from_fn(|i| &src[line(i)..][..rows.len()]);
                        transpose_lines(lines, rows.len(), &mut block, LINES);
                        for (r, from) in rows.clone().zip(block.as_chunks::<LINES>().0) {
                            let to = bytemuck::cast_slice_mut::<T, f32>(part(r));
                            if let Some(to) = to.first_chunk_mut::<LINES>() {
                                *to = *from;
                            }
                        }
                        continue;
                    }
                    for (i, r) in rows.clone().enumerate() {
                        part(r).iter_mut().enumerate().for_each(|(j, o)| *o = src[line(j) + i]);
                    }
                }
            }
        });
    }
}

impl Copy {
    /// The copy of a layout; `None` if it has too many axes.
    pub fn new(dtype: DType, layout: &Layout) -> Option<Copy> {
        let source = ElementSource::of(layout)?;
        let turned = Turn::of(layout).map(How::Turned);
        let how = turned.or_else(|| Lines::of_view(dtype, layout).map(How::Picked));
        Some(Copy { dtype, source, how: how.unwrap_or(How::Runs) })
    }
}

impl Launch for Copy {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        if let How::Picked(lines) = &self.how {
            return lines.run(cx, inputs, outputs);
        }
        macro_rules! go {
            ($t:ty) => {{
                let src: &[$t] = inputs[0].typed();
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                if let How::Turned(turn) = &self.how {
                    turn.run(cx, src, out);
                    return Ok(());
                }
                cx.threads
                    .chunks(out, 1, GRAIN, |at, part| strided_copy(&self.source, src, at, part));
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}
