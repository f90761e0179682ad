//! The naive int8 convolution: for images whose zero point is no byte, so that padding cannot hold it.

use crate::conv::window::Window;

/// Extents of a convolution: batch, groups, and input and output channels of a group.
#[derive(Clone, Copy)]
pub struct ConvExtents {
    pub batch: usize,
    pub group: usize,
    pub q: usize,
    pub o: usize,
}

/// All sums. `image` and `weights` yield an element by its index, less its zero point.
pub fn naive_sums(
    window: &Window,
    c: ConvExtents,
    image: impl Fn(usize) -> i32,
    weights: impl Fn(usize) -> i32,
) -> Vec<i32> {
    let (from, to, taps) = (window.inputs(), window.outputs(), window.taps());
    let place = |at: usize, tap: usize| -> Option<usize> {
        let (mut at, mut tap, mut step, mut place) = (at, tap, 1, 0);
        for a in (0..window.from.len()).rev() {
            let here = (at % window.to[a] * window.stride[a]) as i64
                + (tap % window.size[a] * window.dilation[a]) as i64
                - window.low[a];
            let inside = usize::try_from(here).ok().filter(|&i| i < window.from[a])?;
            place += inside * step;
            (at, tap) = (at / window.to[a], tap / window.size[a]);
            step *= window.from[a];
        }
        Some(place)
    };
    let element = |i: usize| {
        let (at, row) = (i % to, i / to);
        let (channel, part) = (row % (c.group * c.o), row / c.o);
        let mut sum = 0i32;
        for q in 0..c.q {
            for tap in 0..taps {
                let Some(inside) = place(at, tap) else { continue };
                let x = image((part * c.q + q) * from + inside);
                let w = weights((channel * c.q + q) * taps + tap);
                sum = sum.wrapping_add(x.wrapping_mul(w));
            }
        }
        sum
    };
    (0..c.batch * c.group * c.o * to).map(element).collect()
}
