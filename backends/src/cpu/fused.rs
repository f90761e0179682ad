//! Launches of fused pointwise expressions, and copies of strided views.

use super::convert::by_size;
use super::launch::{Array, Context, Launch};
use super::layout::Layout;
use super::pointwise::{Fused, Source, strided_copy};
use super::threads::Shared;
use mlc_dsl::ir::DType;

/// A pointwise program over a whole result.
pub struct Map {
    fused: Fused,
    len: usize,
}

/// Elements that a task should at least have.
const GRAIN: usize = 32 * 1024;

impl Map {
    /// A program over `len` elements.
    pub fn new(fused: Fused, len: usize) -> Map {
        Map { fused, len }
    }
}

impl Launch for Map {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let bytes: Vec<&[u8]> = inputs.iter().map(|i| i.bytes).collect();
        let parts = (self.len / GRAIN).clamp(1, cx.threads.count() * 4);
        if parts == 1 || cx.threads.count() == 1 {
            self.fused.span(0, self.len, &bytes, outputs);
            return Ok(());
        }
        let sizes: Vec<usize> = self.fused.outputs().map(DType::size).collect();
        let shared: Vec<Shared<'_, u8>> = outputs.iter_mut().map(|o| Shared::new(o)).collect();
        let step = self.len.div_ceil(parts).next_multiple_of(64);
        cx.threads.each(self.len.div_ceil(step), |i| {
            let (start, len) = (i * step, step.min(self.len - i * step));
            // SAFETY: spans of different tasks do not overlap.
            let mut outs: Vec<&mut [u8]> = shared
                .iter()
                .zip(&sizes)
                .map(|(o, &s)| unsafe { o.part(start * s, len * s) })
                .collect();
            self.fused.span(start, len, &bytes, &mut outs);
        });
        Ok(())
    }
}

/// A view written out densely.
pub struct Copy {
    dtype: DType,
    source: Source,
}

impl Copy {
    /// The copy of a layout; `None` if it has too many axes.
    pub fn new(dtype: DType, layout: &Layout) -> Option<Copy> {
        Some(Copy { dtype, source: Source::of(layout)? })
    }
}

impl Launch for Copy {
    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[Array<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        macro_rules! go {
            ($t:ty) => {{
                let src: &[$t] = inputs[0].typed();
                let out: &mut [$t] = bytemuck::cast_slice_mut(outputs[0]);
                cx.threads.chunks(out, 1, GRAIN, |at, part| strided_copy(&self.source, src, at, part));
            }};
        }
        by_size!(self.dtype, go);
        Ok(())
    }
}
