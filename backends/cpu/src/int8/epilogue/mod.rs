//! The int8 output pipeline: stores i32 sums, or applies the epilogue to them, requantising where it does.

pub(crate) mod requantize;
mod requantize_rows;

use super::dot::has_vnni;
use crate::runtime::kernel::Context;
use crate::runtime::threads::SharedSlice;
use requantize::RequantizeSteps;
use requantize_rows::requantize_rows;

/// Stores sums through the epilogue.
pub struct OutputPipeline<'a> {
    cx: &'a Context<'a>,
    out: SharedSlice<'a, u8>,
    /// Bytes of an element of the result.
    size: usize,
    /// The epilogue as requantisation in register tiles, where the machine has these.
    steps: Option<RequantizeSteps<'a>>,
    /// The same for rows of so many elements in memory, on other machines.
    in_memory: Option<(RequantizeSteps<'a>, usize)>,
}

impl<'a> OutputPipeline<'a> {
    /// The pipeline of a kernel that writes `out`.
    pub fn new(cx: &'a Context<'a>, out: &'a mut [u8]) -> OutputPipeline<'a> {
        let of = |(e, _): &(&crate::runtime::kernel::Epilogue, _)| e.fused.outputs().next();
        let size = cx.epilogue.as_ref().and_then(of).map_or(size_of::<i32>(), |d| d.size());
        OutputPipeline { cx, out: SharedSlice::new(out), size, steps: None, in_memory: None }
    }

    /// The pipeline of an `m` × `n` result, columns being output channels.
    pub fn of_rows(
        cx: &'a Context<'a>,
        out: &'a mut [u8],
        m: usize,
        n: usize,
    ) -> OutputPipeline<'a> {
        let steps =
            cx.epilogue.and_then(|(epilogue, inputs)| RequantizeSteps::of(epilogue, inputs, m, n));
        let (steps, in_memory) = match has_vnni() {
            true => (steps, None),
            false => (None, steps.map(|s| (s, n))),
        };
        OutputPipeline { steps, in_memory, ..OutputPipeline::new(cx, out) }
    }

    /// The same where columns are computed in another order.
    pub fn of_channels(
        cx: &'a Context<'a>,
        out: &'a mut [u8],
        m: usize,
        n: usize,
        order: impl Fn(usize) -> usize,
    ) -> OutputPipeline<'a> {
        let mut finish = OutputPipeline::of_rows(cx, out, m, n);
        finish.steps = finish.steps.filter(|s| !s.has_sides).map(|s| s.reordered(order));
        finish
    }

    /// The requantisation steps, and the result.
    pub fn steps(&self) -> Option<(&RequantizeSteps<'a>, &SharedSlice<'a, u8>)> {
        Some((self.steps.as_ref()?, &self.out))
    }

    /// Stores the elements from index `at` on.
    ///
    /// # Safety
    /// No two calls at once are about the same elements.
    pub unsafe fn part(&self, at: usize, sums: &[i32]) {
        // SAFETY: by the contract.
        let out = unsafe { self.out.part(at * self.size, sums.len() * self.size) };
        if let Some((steps, n)) = &self.in_memory {
            return requantize_rows(steps, *n, at, sums, out);
        }
        match self.cx.epilogue {
            Some((epilogue, inputs)) => epilogue.fused.span_of_sums(at, sums, inputs, out),
            None => out.copy_from_slice(bytemuck::cast_slice(sums)),
        }
    }
}
