//! Pooling, channels last.

use super::conv::as_pointers;
use super::depthwise::NhwcDepthwise;
use super::windows::Windows;
use crate::runtime::buffer::with_scratch;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use crate::runtime::threads::{SharedSlice, Threads};
use mlc_dsl::ir::DType;
use mlc_vector::arrays::array;
use mlc_vector::math::maximum;
use mlc_vector::simd;

/// Largest element of each window.
pub const MAX: KernelFactory = |spec| {
    let (windows, channels) = windows(spec)?;
    let outside = vec![f32::NEG_INFINITY; channels];
    Some(Box::new(MaxPool { windows, outside }))
};
/// Sum of each window.
pub const SUM: KernelFactory = |spec| {
    let (windows, channels) = windows(spec)?;
    Some(Box::new(NhwcDepthwise::sums(windows, channels)))
};

fn windows(spec: &KernelSpec<'_>) -> Option<(Windows, usize)> {
    if spec.same_dtype()? != DType::F32 {
        return None;
    }
    let windows = Windows::of(spec, &spec.sizes(0)?, [1, 2, 4])?;
    Some((windows, *spec.outputs[0].1.last()?))
}

/// The largest elements of windows.
struct MaxPool {
    windows: Windows,
    /// What windows read outside of the image.
    outside: Vec<f32>,
}

/// Comparisons that a task should at least have.
const GRAIN: usize = 1 << 17;

impl Kernel for MaxPool {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let x: &[f32] = inputs[0].typed();
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let MaxPool { windows, outside } = self;
        each_window(cx.threads, windows, x, outside, GRAIN, out, maxima);
        Ok(())
    }
}

/// Calls `f` with pointers to what the window of each position reads and with the position's results, as many channels as `outside` has.
/// Positions are cut into tasks of `grain` comparisons at least.
pub fn each_window<T: Send + Sync>(
    threads: &Threads,
    windows: &Windows,
    x: &[T],
    outside: &[T],
    grain: usize,
    out: &mut [T],
    f: impl Fn(&[*const T], &mut [T]) + Sync,
) {
    let channels = outside.len();
    assert!(windows.reach(channels) <= x.len(), "windows inside the image");
    let (taps, positions) = (windows.taps(), windows.len());
    let out = SharedSlice::new(out);
    let tasks = threads.tasks(out.len() * taps, grain).min(positions);
    threads.each(tasks, |t| {
        with_scratch::<usize, 1, _>([taps], |[pointers]| {
            let pointers = as_pointers(&mut pointers[..taps]);
            for p in positions * t / tasks..positions * (t + 1) / tasks {
                windows.pointers(x, outside, p, 1, 1, pointers);
                // SAFETY: positions of different tasks do not overlap.
                f(pointers, unsafe { out.part(p * channels, channels) });
            }
        });
    });
}

simd! {
    /// The largest elements, channel by channel; behind each pointer are as many as in `out`.
    fn maxima(taps: &[*const f32], out: &mut [f32]) {
        let rest = strips::<32>(taps, 0, out);
        let rest = strips::<16>(taps, rest, out);
        let rest = strips::<8>(taps, rest, out);
        strips::<1>(taps, rest, out);
    }
}

/// As many strips of `N` channels from channel `first` on as there are; yields the first channel that is left.
#[inline(always)]
fn strips<const N: usize>(taps: &[*const f32], first: usize, out: &mut [f32]) -> usize {
    let (whole, rest) = out[first..].as_chunks_mut::<N>();
    for (c, out) in whole.iter_mut().enumerate() {
        *out = chunk(taps, first + c * N);
    }
    let left = rest.len();
    out.len() - left
}

/// `N` channels from channel `first` on; behind each pointer are as many.
#[inline(always)]
fn chunk<const N: usize>(taps: &[*const f32], first: usize) -> [f32; N] {
    let mut top = [f32::NEG_INFINITY; N];
    for tap in taps {
        // SAFETY: the caller promises elements for all channels.
        let x = unsafe { *tap.add(first).cast::<[f32; N]>() };
        top = array(|i| maximum(top[i], x[i]));
    }
    top
}
