//! Transposes between channels first and channels last.

use crate::gemm::pack::transpose_into;
use crate::pointwise::fused::Copy;
use crate::runtime::kernel::{Context, Kernel, KernelFactory, KernelSpec, TensorView};
use crate::runtime::threads::SharedSlice;
use mlc_dsl::ir::DType;
use mlc_vector::arrays::array;

/// Channels to the end.
pub const LAST: KernelFactory = |spec| {
    let shape = &spec.args.first()?.layout.shape;
    let positions = shape[2..].iter().product();
    floats(spec, Turn { batch: shape[0], channels: shape[1], positions, to: Place::Last })
        .or_else(|| copy(spec, |rank| [0].into_iter().chain(2..rank).chain([1]).collect()))
};
/// Channels from the end to their place.
pub const FIRST: KernelFactory = |spec| {
    let shape = &spec.args.first()?.layout.shape;
    let (channels, spatial) = shape[1..].split_last()?;
    let positions = spatial.iter().product();
    floats(spec, Turn { batch: shape[0], channels: *channels, positions, to: Place::First })
        .or_else(|| copy(spec, |rank| [0, rank - 1].into_iter().chain(1..rank - 1).collect()))
};

/// A copy of any layout and element type.
fn copy(spec: &KernelSpec<'_>, perm: fn(usize) -> Vec<usize>) -> Option<Box<dyn Kernel>> {
    let x = spec.args.first()?;
    let seen = x.layout.transpose(&perm(x.layout.rank()))?;
    Some(Box::new(Copy::new(x.dtype, &seen)?))
}

/// A copy of dense floats.
fn floats(spec: &KernelSpec<'_>, turn: Turn) -> Option<Box<dyn Kernel>> {
    let x = spec.args.first()?;
    let fits = x.dtype == DType::F32 && x.layout.is_dense();
    fits.then(|| Box::new(Floats { turn, at: x.layout.offset }) as Box<dyn Kernel>)
}

/// Where channels go.
enum Place {
    First,
    Last,
}

/// A change of layout with known extents.
struct Turn {
    batch: usize,
    channels: usize,
    positions: usize,
    to: Place,
}

struct Floats {
    turn: Turn,
    at: usize,
}

/// Elements that are turned at once, and those that a task should at least have.
const BLOCK: usize = 1 << 12;
const GRAIN: usize = 1 << 16;

/// Channels that are fewer than the elements of a vector.
const FEW: usize = 4;

impl Kernel for Floats {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let Turn { batch, channels, positions, to } = &self.turn;
        let (channels, positions) = (*channels, *positions);
        let x: &[f32] = &inputs[0].typed()[self.at..];
        let out: &mut [f32] = bytemuck::cast_slice_mut(outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        // Whole blocks of positions, so that those of different tasks share no line of a cache.
        let each = (BLOCK / channels).max(1).next_multiple_of(16);
        let blocks = positions.div_ceil(each);
        let out = SharedSlice::new(out);
        let tasks = cx.threads.tasks(out.len(), GRAIN).min(batch * blocks);
        cx.threads.each(tasks, |t| {
            for block in batch * blocks * t / tasks..batch * blocks * (t + 1) / tasks {
                let (image, first) = (block / blocks * channels * positions, block % blocks * each);
                let count = each.min(positions - first);
                match to {
                    Place::Last => {
                        let planes = &x[image + first..];
                        // SAFETY: positions of different blocks do not overlap.
                        let part = unsafe { out.part(image + first * channels, count * channels) };
                        to_last(planes, positions, channels, part);
                    }
                    Place::First => {
                        let from = &x[image + first * channels..][..count * channels];
                        for c in 0..channels {
                            // SAFETY: as above.
                            let line = unsafe { out.part(image + c * positions + first, count) };
                            let channel = from[c..].iter().step_by(channels);
                            line.iter_mut().zip(channel).for_each(|(o, v)| *o = *v);
                        }
                    }
                }
            }
        });
        Ok(())
    }
}

/// Elements of planes, `apart` from each other, in turns.
fn to_last(planes: &[f32], apart: usize, channels: usize, out: &mut [f32]) {
    match channels {
        1 => interleave::<1>(planes, apart, out),
        2 => interleave::<2>(planes, apart, out),
        3 => interleave::<3>(planes, apart, out),
        FEW => interleave::<FEW>(planes, apart, out),
        _ => transpose_into(planes, |c| c * apart, channels, out.len() / channels, channels, out),
    }
}

fn interleave<const C: usize>(planes: &[f32], apart: usize, out: &mut [f32]) {
    let positions = out.len() / C;
    let planes: [&[f32]; C] = array(|c| &planes[c * apart..][..positions]);
    for (i, out) in out.as_chunks_mut::<C>().0.iter_mut().enumerate() {
        *out = array(|c| planes[c][i]);
    }
}
