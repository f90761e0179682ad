//! What follows a block of sums: they are the result, or the numbers that an epilogue begins with.

mod rows;
pub(crate) mod steps;

use super::dot::has_vnni;
use crate::runtime::kernel::Context;
use crate::runtime::threads::SharedSlice;
use rows::follow;
use steps::Steps;

/// Where sums go.
pub struct Finish<'a> {
    cx: &'a Context<'a>,
    out: SharedSlice<'a, u8>,
    /// Bytes of an element of the result.
    size: usize,
    /// The epilogue as steps for tiles, if it is that and the machine has them.
    steps: Option<Steps<'a>>,
    /// The same for rows of so many elements in memory, if tiles have none.
    in_memory: Option<(Steps<'a>, usize)>,
}

impl<'a> Finish<'a> {
    /// The end of a launch that writes `out`.
    pub fn new(cx: &'a Context<'a>, out: &'a mut [u8]) -> Finish<'a> {
        let of = |(e, _): &(&crate::runtime::kernel::Epilogue, _)| e.fused.outputs().next();
        let size = cx.epilogue.as_ref().and_then(of).map_or(size_of::<i32>(), |d| d.size());
        Finish { cx, out: SharedSlice::new(out), size, steps: None, in_memory: None }
    }

    /// The end of a launch whose result has `m` rows of `n` elements, each a sum of products with a column.
    pub fn of_rows(cx: &'a Context<'a>, out: &'a mut [u8], (m, n): (usize, usize)) -> Finish<'a> {
        let steps = cx.epilogue.and_then(|(epilogue, inputs)| Steps::of(epilogue, inputs, m, n));
        let (steps, in_memory) = match has_vnni() {
            true => (steps, None),
            false => (None, steps.map(|s| (s, n))),
        };
        Finish { steps, in_memory, ..Finish::new(cx, out) }
    }

    /// The same where columns lie in another order while they are computed.
    pub fn of_channels(
        cx: &'a Context<'a>,
        out: &'a mut [u8],
        sizes: (usize, usize),
        order: impl Fn(usize) -> usize,
    ) -> Finish<'a> {
        let mut finish = Finish::of_rows(cx, out, sizes);
        finish.steps = finish.steps.filter(|s| !s.has_sides).map(|s| s.reordered(order));
        finish
    }

    /// The steps, and the result.
    pub fn steps(&self) -> Option<(&Steps<'a>, &SharedSlice<'a, u8>)> {
        Some((self.steps.as_ref()?, &self.out))
    }

    /// Finishes the elements from number `at` on.
    ///
    /// # Safety
    /// No two calls at once are about the same elements.
    pub unsafe fn part(&self, at: usize, sums: &[i32]) {
        // SAFETY: by the contract.
        let out = unsafe { self.out.part(at * self.size, sums.len() * self.size) };
        if let Some((steps, n)) = &self.in_memory {
            return follow(steps, *n, at, sums, out);
        }
        match self.cx.epilogue {
            Some((epilogue, inputs)) => epilogue.fused.span_of_sums(at, sums, inputs, out),
            None => out.copy_from_slice(bytemuck::cast_slice(sums)),
        }
    }
}
