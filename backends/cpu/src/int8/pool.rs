//! Max pooling of bytes, channels first and channels last.

use crate::channels_last::{Windows, each_window};
use crate::conv::window::Window;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelSpec, TensorView};
use mlc_dsl::ir::DType;
use mlc_vector::arrays::array;
use mlc_vector::simd;

/// A type of bytes.
trait Byte: bytemuck::Pod + Ord + Send + Sync {
    /// The least one.
    const LEAST: Self;
}

impl Byte for u8 {
    const LEAST: u8 = u8::MIN;
}

impl Byte for i8 {
    const LEAST: i8 = i8::MIN;
}

/// Comparisons that a task should at least have.
const GRAIN: usize = 1 << 19;

/// Specialises max pooling, channels last.
pub fn make_channels_last(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let dtype = spec.same_dtype()?;
    if !matches!(dtype, DType::U8 | DType::I8) {
        return None;
    }
    let windows = Windows::of(spec, &spec.sizes(0)?, [1, 2, 4])?;
    let channels = *spec.outputs[0].1.last()?;
    let signed = dtype == DType::I8;
    Some(Box::new(NhwcPool { windows, outside: vec![least(signed); channels], signed }))
}

/// Specialises max pooling, channels first.
pub fn make(spec: &KernelSpec<'_>) -> Option<Box<dyn Kernel>> {
    let dtype = spec.same_dtype()?;
    let x = &spec.args.first()?.layout;
    if !matches!(dtype, DType::U8 | DType::I8) || !x.is_dense() || x.rank() < 3 {
        return None;
    }
    let (stride, low, dilation) = (spec.sizes(1)?, spec.ints(2)?, spec.sizes(4)?);
    let out = &spec.outputs[0].1;
    if stride.contains(&0) || dilation.contains(&0) {
        return None;
    }
    let window = Window::new(&x.shape[2..], &spec.sizes(0)?, &out[2..], stride, low, dilation)?;
    let window = window.clipped();
    Some(Box::new(NchwPool {
        line: Line::of(&window)?,
        window,
        at: x.offset,
        signed: dtype == DType::I8,
    }))
}

/// The bits of the least byte.
fn least(signed: bool) -> u8 {
    if signed { i8::LEAST as u8 } else { u8::LEAST }
}

/// Max pooling, channels last.
struct NhwcPool {
    windows: Windows,
    /// What windows read outside of the image.
    outside: Vec<u8>,
    signed: bool,
}

impl Kernel for NhwcPool {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let (x, out) = (inputs[0].bytes, &mut *outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let signed = self.signed;
        each_window(cx.threads, &self.windows, x, &self.outside, GRAIN, out, |taps, part| {
            match signed {
                true => joined(taps, bytemuck::cast_slice_mut::<u8, i8>(part)),
                false => joined(taps, part),
            }
        });
        Ok(())
    }
}

simd! {
    /// The largest bytes, channel by channel; behind each pointer are as many as in `out`.
    fn joined<T: Byte>(taps: &[*const u8], out: &mut [T]) {
        let channels = out.len();
        let (whole, rest) = out.as_chunks_mut::<64>();
        for (c, out) in whole.iter_mut().enumerate() {
            *out = chunk(taps, c * 64);
        }
        let done = channels - rest.len();
        let (whole, rest) = rest.as_chunks_mut::<16>();
        for (c, out) in whole.iter_mut().enumerate() {
            *out = chunk(taps, done + c * 16);
        }
        let done = channels - rest.len();
        for (c, v) in rest.iter_mut().enumerate() {
            [*v] = chunk(taps, done + c);
        }
    }
}

/// `N` channels from channel `first` on; behind each pointer are as many.
#[inline(always)]
fn chunk<T: Byte, const N: usize>(taps: &[*const u8], first: usize) -> [T; N] {
    let mut top = [T::LEAST; N];
    for tap in taps {
        // SAFETY: the caller promises elements for all channels, and every byte is an element.
        let x = unsafe { *tap.add(first).cast::<[T; N]>() };
        top = array(|i| top[i].max(x[i]));
    }
    top
}

/// Max pooling, channels first.
struct NchwPool {
    window: Window,
    line: Line,
    at: usize,
    signed: bool,
}

/// A line of a plane with what windows read beside it.
struct Line {
    /// Elements before and in a line of the plane, and all that windows read.
    before: usize,
    from: usize,
    len: usize,
}

impl Line {
    fn of(w: &Window) -> Option<Line> {
        let n = w.from.len() - 1;
        let before = usize::try_from(w.low[n]).ok()?;
        let reach = (w.to[n].max(1) - 1) * w.stride[n] + (w.size[n].max(1) - 1) * w.dilation[n] + 1;
        Some(Line { before, from: w.from[n], len: reach.max(before + w.from[n]) })
    }
}

impl Kernel for NchwPool {
    fn scratch(&self) -> u64 {
        2 * self.line.len as u64
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x = &inputs[0].bytes[self.at..];
        let (n, plane) = (self.window.outputs(), self.window.inputs());
        let grain = GRAIN / self.window.taps().max(1);
        cx.threads.chunks(outputs[0], n, grain, |at, part| {
            with_scratch::<u8, 2, _>([self.line.len; 2], |[line, top]| {
                let (line, top) = (&mut line[..self.line.len], &mut top[..self.line.len]);
                for (c, out) in part.chunks_exact_mut(n.max(1)).enumerate() {
                    let x = &x[(at / n + c) * plane..][..plane];
                    match self.signed {
                        true => self.plane::<i8>(x, line, top, out),
                        false => self.plane::<u8>(x, line, top, out),
                    }
                }
            });
        });
        Ok(())
    }
}

impl NchwPool {
    /// The results of one plane, line by line: lines that windows share are joined first, then neighbours in what that gives.
    fn plane<T: Byte>(&self, x: &[u8], line: &mut [u8], top: &mut [u8], out: &mut [u8]) {
        let w = &self.window;
        let outer = w.from.len() - 1;
        let (x, out): (&[T], &mut [T]) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
        let (line, top): (&mut [T], &mut [T]) =
            (bytemuck::cast_slice_mut(line), bytemuck::cast_slice_mut(top));
        let Line { before, from, len } = self.line;
        let taps: usize = w.size[..outer].iter().product();
        for (row, out) in out.chunks_exact_mut(w.to[outer].max(1)).enumerate() {
            line.fill(T::LEAST);
            for tap in 0..taps {
                if let Some(at) = self.line_of(row, tap) {
                    largest(&mut line[before..before + from], &x[at * from..][..from]);
                }
            }
            let result = match w.size[outer] {
                1 => &*line,
                size => {
                    top.fill(T::LEAST);
                    for tap in 0..size {
                        let shift = tap * w.dilation[outer];
                        largest(&mut top[..len - shift], &line[shift..]);
                    }
                    &*top
                }
            };
            for (o, &v) in out.iter_mut().zip(result.iter().step_by(w.stride[outer])) {
                *o = v;
            }
        }
    }

    /// The line of the plane that a tap over the axes but the last reads for a line of the result, if inside.
    fn line_of(&self, mut row: usize, mut tap: usize) -> Option<usize> {
        let w = &self.window;
        let (mut at, mut step) = (0, 1);
        for axis in (0..w.from.len() - 1).rev() {
            let (to, size) = (w.to[axis], w.size[axis]);
            let place = (row % to * w.stride[axis] + tap % size * w.dilation[axis]) as i64;
            let place = usize::try_from(place - w.low[axis]).ok().filter(|&p| p < w.from[axis])?;
            (row, tap) = (row / to, tap / size);
            at += place * step;
            step *= w.from[axis];
        }
        Some(at)
    }
}

simd! {
    /// The larger ones of pairs.
    fn largest<T: Byte>(to: &mut [T], x: &[T]) {
        to.iter_mut().zip(x).for_each(|(t, &x)| *t = (*t).max(x));
    }
}
