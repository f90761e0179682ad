//! Kernels of fused pointwise expressions, and copies of strided views.

use super::casts::{self, Cast};
use super::code::{Op, Ref};
use super::convert::by_size;
use super::source::{ElementSource, strided_copy};
use super::tile::Fused;
use crate::data_movement::row_copy::RowCopy;
use crate::gemm::epilogue::tile_epilogue_of_program;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_dsl::ir::DType;
use mlc_dsl::layout::{Layout, coalesce, dense_strides, odometer};
use mlc_vector::arrays::array;
use mlc_vector::simd;
use mlc_vector::transpose::{LINES, transpose_lines};
use smallvec::SmallVec;

/// A pointwise program over a whole result.
pub struct Map {
    fused: Fused,
    len: usize,
    /// The input of bytes that alone decides each element of the one result.
    byte: Option<usize>,
    /// The input to transform in place and the length of a row, where the program may be a tile epilogue that stays in registers.
    epilogue: Option<(u16, usize)>,
    /// The cast that the whole program is, and the first element of its operand.
    cast: Option<(Cast, usize)>,
}

/// The cast that a program is and nothing else.
fn only_cast(fused: &Fused) -> Option<(Cast, usize)> {
    let (code, sources) = fused.parts();
    let ([from], [ElementSource::Dense(at)], [(result, to)]) =
        (code.inputs.as_slice(), sources, code.outputs.as_slice())
    else {
        return None;
    };
    let is_cast = match code.instrs.as_slice() {
        [] => *result == Some(Ref::Float(0)) && *to == DType::F32,
        [i] => i.op == Op::Cast(*to) && i.dtype == *from && i.args[0] == Ref::In(0),
        _ => false,
    };
    casts::direct(*from, *to).filter(|_| is_cast).map(|cast| (cast, *at))
}

/// The first dense input of a program of f32, and the elements of the rows over which all others are repeated, or which they are repeated
/// over.
fn rows(fused: &Fused, len: usize) -> Option<(u16, usize)> {
    let (code, sources) = fused.parts();
    // One instruction is one pass anyway.
    let floats = code.inputs.iter().all(|d| *d == DType::F32) && code.instrs.len() > 1;
    let dense = |s: &ElementSource| matches!(s, ElementSource::Dense(_));
    let held = sources.iter().position(dense).filter(|_| floats)?;
    let wide = |s: &ElementSource| match s {
        ElementSource::Strided(s) => s.walk().1.last().copied(),
        ElementSource::Dense(_) | ElementSource::Splat(_) => None,
    };
    let mut wide = sources.iter().filter_map(wide);
    let n = wide.next().unwrap_or(len);
    (n >= NARROW && wide.all(|w| w == n)).then_some((held as u16, n))
}

/// Fewer elements of a row are not worth steps of their own.
const NARROW: usize = 8;

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
        let (epilogue, cast) = (rows(&fused, len), only_cast(&fused));
        Map { fused, len, byte, epilogue, cast }
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

impl Kernel for Map {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let bytes: SmallVec<[&[u8]; 16]> = inputs.iter().map(|i| i.bytes).collect();
        if let Some(byte) = self.byte {
            self.tabulated(cx, byte, &bytes, outputs[0]);
            return Ok(());
        }
        if let Some((cast, from)) = self.cast {
            let (of, to) =
                (self.fused.parts().0.inputs[0].size(), outputs[0].len() / self.len.max(1));
            cx.threads.chunks(outputs[0], to, GRAIN * to, |at, part| {
                let (first, len) = (at / to, part.len() / to);
                if !cast(&bytes[0][(from + first) * of..][..len * of], part) {
                    self.fused.span(first, len, &bytes, &mut [part]);
                }
            });
            return Ok(());
        }
        if let Some((held, n)) = self.epilogue
            && let ElementSource::Dense(from) = self.fused.parts().1[held as usize]
            && let Some(epilogue) = tile_epilogue_of_program(&self.fused, held, &bytes, 1, n)
            && epilogue.in_memory().is_empty()
        {
            let from: &[f32] = &inputs[held as usize].typed()[from..];
            let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
            cx.threads.chunks(out, 1, GRAIN, |at, part| {
                epilogue.map(&from[at..][..part.len()], at, part, n);
            });
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
    Repeated(Repeat),
    Picked(RowCopy),
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
            match self.rows.0 {
                2..=4 if self.cols.1 == self.rows.0 as isize => self.sorted(cx, src, starts, out),
                _ => self.turned(cx, src, starts, out),
            }
        });
    }

    /// Sorts lines of groups of a few elements, in which group follows group.
    fn sorted<T: bytemuck::Pod + Send + Sync>(
        &self,
        cx: &Context<'_>,
        src: &[T],
        starts: &[[usize; 2]],
        out: &mut [T],
    ) {
        /// Groups that are sorted at once.
        const GROUPS: usize = 4096;
        let ((by, apart), groups) = (self.rows, self.cols.0);
        let pieces = groups.div_ceil(GROUPS);
        let all = starts.len() * pieces;
        let tasks = cx.threads.tasks(out.len(), GRAIN).min(all.max(1));
        let shared = SharedSlice::new(out);
        cx.threads.each(tasks, |t| {
            for piece in all * t / tasks..all * (t + 1) / tasks {
                let ([from, to], first) = (starts[piece / pieces], piece % pieces * GROUPS);
                let count = GROUPS.min(groups - first);
                let src = &src[from + first * by..][..count * by];
                // SAFETY: every task has its own pieces, and the lines of a piece do not overlap.
                let line = |i: usize| unsafe { shared.part(to + i * apart + first, count) };
                match by {
                    2 => sort::<T>(src, &mut [line(0), line(1)]),
                    3 => sort::<T>(src, &mut [line(0), line(1), line(2)]),
                    _ => sort::<T>(src, &mut [line(0), line(1), line(2), line(3)]),
                }
            }
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
        cx.threads.each(tasks, |t| {
            let mut block = [T::zeroed(); SIDE * LINES];
            for band in all * t / tasks..all * (t + 1) / tasks {
                let [from, to] = starts[band / bands];
                let first = band % bands * SIDE;
                let rows = first..(first + SIDE).min(self.rows.0);
                // Where rows follow each other in the result, blocks are turned to their places.
                if self.rows.1 == self.cols.0 {
                    let (all, wide) = (rows.len() * self.cols.0, self.cols.0 / LINES * LINES);
                    // SAFETY: every task has its own bands of rows.
                    let out = unsafe { shared.part(to + first * self.rows.1, all) };
                    let at = |c: usize| {
                        (from as isize + first as isize + c as isize * self.cols.1) as usize
                    };
                    for c in (0..wide).step_by(LINES) {
                        let lines = array(|i| &src[at(c + i)..][..rows.len()]);
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
                    if wide == LINES {
                        let lines = array(|i| &src[line(i)..][..rows.len()]);
                        transpose_lines(lines, rows.len(), &mut block, LINES);
                        for (r, from) in rows.clone().zip(block.as_chunks::<LINES>().0) {
                            if let Some(to) = part(r).first_chunk_mut::<LINES>() {
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

simd! {
    /// Gives each of two to four lines its element of every group.
    fn sort<T: bytemuck::Pod>(src: &[T], lines: &mut [&mut [T]]) {
        match lines {
            [a, b] => {
                let groups = src.as_chunks::<2>().0.iter();
                groups.zip(a.iter_mut().zip(b.iter_mut())).for_each(|(s, (a, b))| (*a, *b) = (s[0], s[1]));
            }
            [a, b, c] => {
                let to = a.iter_mut().zip(b.iter_mut()).zip(c.iter_mut());
                let groups = src.as_chunks::<3>().0.iter();
                groups.zip(to).for_each(|(s, ((a, b), c))| (*a, *b, *c) = (s[0], s[1], s[2]));
            }
            [a, b, c, d] => {
                let to = a.iter_mut().zip(b.iter_mut()).zip(c.iter_mut().zip(d.iter_mut()));
                let groups = src.as_chunks::<4>().0.iter();
                groups.zip(to).for_each(|(s, ((a, b), (c, d)))| (*a, *b, *c, *d) = (s[0], s[1], s[2], s[3]));
            }
            _ => {}
        }
    }
}

/// A copy in which neighbours are repeated, and then the lines of these.
struct Repeat {
    offset: usize,
    /// From one line of the source to the next, and its elements.
    step: usize,
    wide: usize,
    /// How often each element is written, and how often each line.
    times: usize,
    copies: usize,
}

impl Repeat {
    /// None for other layouts.
    fn of(layout: &Layout) -> Option<Repeat> {
        let merged = coalesce(&layout.shape, &[&layout.strides]);
        let ([_, copies, wide, times], [step, 0, 1, 0]) =
            (merged.shape.as_slice(), merged.strides[0].as_slice())
        else {
            return None;
        };
        let step = usize::try_from(*step).ok()?;
        let (wide, times, copies) = (*wide, *times, *copies);
        Some(Repeat { offset: layout.offset, step, wide, times, copies })
    }

    fn run<T: bytemuck::Pod + Send + Sync>(&self, cx: &Context<'_>, src: &[T], out: &mut [T]) {
        let lines = self.wide * self.times * self.copies;
        cx.threads.chunks(out, lines, GRAIN, |at, part| repeat(self, src, at / lines, part));
    }
}

simd! {
    /// The results of lines from line `first` on.
    fn repeat<T: bytemuck::Pod>(of: &Repeat, src: &[T], first: usize, out: &mut [T]) {
        let line = of.wide * of.times;
        for (i, lines) in out.chunks_exact_mut(line * of.copies).enumerate() {
            let src = &src[of.offset + (first + i) * of.step..][..of.wide];
            let (one, others) = lines.split_at_mut(line);
            match of.times {
                2 => one.as_chunks_mut::<2>().0.iter_mut().zip(src).for_each(|(o, &s)| *o = [s; 2]),
                times => one.chunks_exact_mut(times).zip(src).for_each(|(o, &s)| o.fill(s)),
            }
            others.chunks_exact_mut(line).for_each(|other| other.copy_from_slice(one));
        }
    }
}

impl Copy {
    /// The copy of a layout; `None` if it has too many axes.
    pub fn new(dtype: DType, layout: &Layout) -> Option<Copy> {
        let source = ElementSource::of(layout)?;
        let turned = Turn::of(layout).map(How::Turned);
        let how = turned.or_else(|| Repeat::of(layout).map(How::Repeated));
        let how = how.or_else(|| RowCopy::of_view(dtype, layout).map(How::Picked));
        Some(Copy { dtype, source, how: how.unwrap_or(How::Runs) })
    }
}

impl Kernel for Copy {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        if let How::Picked(lines) = &self.how {
            return lines.run(cx, inputs, outputs);
        }
        macro_rules! go {
            ($t:ty) => {{
                let src: &[$t] = inputs[0].typed();
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                match &self.how {
                    How::Turned(turn) => {
                        turn.run(cx, src, out);
                        return Ok(());
                    }
                    How::Repeated(repeat) => {
                        repeat.run(cx, src, out);
                        return Ok(());
                    }
                    How::Runs | How::Picked(_) => {}
                }
                cx.threads
                    .chunks(out, 1, GRAIN, |at, part| strided_copy(&self.source, src, at, part));
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}
