//! What follows a block of sums: they are the result, or the numbers that an epilogue begins with.

use crate::cpu::launch::Context;
use crate::cpu::threads::SharedSlice;

/// Where sums go.
pub struct Finish<'a> {
    cx: &'a Context<'a>,
    out: SharedSlice<'a, u8>,
    /// Bytes of an element of the result.
    size: usize,
}

impl<'a> Finish<'a> {
    /// The end of a launch that writes `out`.
    pub fn new(cx: &'a Context<'a>, out: &'a mut [u8]) -> Finish<'a> {
        let of = |(e, _): &(&crate::cpu::launch::Epilogue, _)| e.fused.outputs().next();
        let size = cx.epilogue.as_ref().and_then(of).map_or(size_of::<i32>(), |d| d.size());
        Finish { cx, out: SharedSlice::new(out), size }
    }

    /// Finishes the elements from number `at` on.
    ///
    /// # Safety
    /// No two calls at once are about the same elements.
    pub unsafe fn part(&self, at: usize, sums: &[i32]) {
        // SAFETY: by the contract.
        let out = unsafe { self.out.part(at * self.size, sums.len() * self.size) };
        match self.cx.epilogue {
            Some((epilogue, inputs)) => epilogue.fused.span_of_sums(at, sums, inputs, out),
            None => out.copy_from_slice(bytemuck::cast_slice(sums)),
        }
    }
}
