//! How the elements of a tile lie in what is read: a walk with strides over a space.

use crate::pointwise::source::runs;
use bytemuck::Pod;
use mlc_backends::reference::code::{Affine, Slot};

pub(super) use mlc_backends::reference::accelerated::rows::Axis;

/// A walk over a space, outermost axis first; axes that it steps through evenly are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
}

impl Walk {
    /// How the values of an affine form change over the space.
    pub fn of(space: &[Axis], affine: &Affine) -> Walk {
        let mut walk = Walk::default();
        for axis in space.iter().filter(|a| a.len != 1) {
            let (n, stride) = (axis.len as usize, affine.factor(axis.slot) as isize);
            match (walk.shape.last_mut(), walk.strides.last_mut()) {
                (Some(len), Some(outer)) if *outer == stride * n as isize => {
                    (*len, *outer) = (*len * n, stride);
                }
                _ => {
                    walk.shape.push(n);
                    walk.strides.push(stride);
                }
            }
        }
        walk
    }

    /// True if the value is the same for all elements.
    pub fn is_uniform(&self) -> bool {
        self.strides.iter().all(|&s| s == 0)
    }

    /// How far the first of the elements from `start` on is from that of the space, if all `len` of them are the same.
    pub fn one(&self, start: usize, len: usize) -> Option<isize> {
        if self.is_uniform() {
            return Some(0);
        }
        let (inner, stride) = (*self.shape.last()?, *self.strides.last()?);
        (stride == 0 && start % inner + len <= inner).then(|| self.at(start))
    }

    /// How far element `start` is from the first.
    pub fn at(&self, start: usize) -> isize {
        let (mut rest, mut at) = (start, 0);
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            at += (rest % n) as isize * s;
            rest /= n;
        }
        at
    }

    /// Calls `run(at, stride, length)` for the innermost runs of elements `start..start + len`, in order.
    #[inline(always)]
    pub fn runs(&self, start: usize, len: usize, run: impl FnMut(isize, isize, usize)) {
        runs(&self.shape, &self.strides, start, len, run);
    }

    /// The elements `start..` of a space whose first element is at `base`, as many as `dst` holds.
    #[inline(always)]
    pub fn fill<S: Pod, D: Copy>(
        &self,
        src: &[S],
        base: isize,
        start: usize,
        dst: &mut [D],
        f: impl Fn(S) -> D + Copy,
    ) {
        if let &[.., n] = self.shape.as_slice()
            && start.is_multiple_of(n)
            && dst.len().is_multiple_of(n)
        {
            match n {
                4 => return self.short::<4, S, D>(src, base, start, dst, f),
                8 => return self.short::<8, S, D>(src, base, start, dst, f),
                16 => return self.short::<16, S, D>(src, base, start, dst, f),
                32 => return self.short::<32, S, D>(src, base, start, dst, f),
                64 => return self.short::<64, S, D>(src, base, start, dst, f),
                _ => {}
            }
        }
        let mut done = 0;
        self.runs(start, dst.len(), |at, stride, n| {
            let out = &mut dst[done..done + n];
            done += n;
            run(src, base + at, stride, out, f);
        });
    }

    /// The same where every run has the same length, known when this is compiled.
    #[inline(always)]
    fn short<const N: usize, S: Pod, D: Copy>(
        &self,
        src: &[S],
        base: isize,
        start: usize,
        dst: &mut [D],
        f: impl Fn(S) -> D + Copy,
    ) {
        let (mut rows, _) = dst.as_chunks_mut::<N>();
        let (outer, strides) = (self.shape.split_last(), self.strides.split_last());
        let (Some((_, outer)), Some((&stride, strides))) = (outer, strides) else { return };
        runs(outer, strides, start / N, rows.len(), |at, step, n| {
            let (these, rest) = std::mem::take(&mut rows).split_at_mut(n);
            rows = rest;
            let mut at = base + at;
            for row in these {
                match stride {
                    0 => *row = [f(src[at as usize]); N],
                    1 => {
                        if let Some(from) = src[at as usize..].first_chunk::<N>() {
                            *row = std::array::from_fn(|i| f(from[i]));
                        }
                    }
                    _ => run(src, at, stride, row, f),
                }
                at += step;
            }
        });
    }
}

/// Elements at even distances.
#[inline(always)]
pub fn run<S: Pod, D: Copy>(
    src: &[S],
    at: isize,
    stride: isize,
    out: &mut [D],
    f: impl Fn(S) -> D,
) {
    match stride {
        1 => {
            let from = &src[at as usize..][..out.len()];
            out.iter_mut().zip(from).for_each(|(o, &s)| *o = f(s));
        }
        0 => out.fill(f(src[at as usize])),
        _ => {
            let mut at = at;
            for o in out {
                *o = f(src[at as usize]);
                at += stride;
            }
        }
    }
}

/// The steps `j` of a run with `0 <= at + j * step < n`, as a range.
pub fn inside(at: i64, step: i64, n: i64, len: usize) -> (usize, usize) {
    mlc_backends::reference::accelerated::rows::inside(at, step, n, len)
}

/// The variables of a space.
pub fn slots(space: &[Axis]) -> impl Iterator<Item = Slot> + '_ {
    space.iter().map(|a| a.slot)
}
