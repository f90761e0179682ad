//! Integer matrix products, wrapping.
//!
//! Adds multiples of the right operand's rows to a result row, several at a time; rows that are not contiguous are copied first. Signed integers
//! are multiplied as unsigned: the result bits are the same.

use crate::gemm::{GemmSizes, Matrix};
use crate::runtime::buffer::with_scratch;
use crate::runtime::threads::{SharedSlice, Threads};
use bytemuck::Pod;
use mlc_vector::arrays::array;
use mlc_vector::simd;

/// An element type whose sums and products wrap.
pub trait Wrapping: Pod + Send + Sync {
    /// `self + x * y`.
    fn add_product(self, x: Self, y: Self) -> Self;
}

macro_rules! wrapping {
    ($($ty:ty)*) => {
        $(impl Wrapping for $ty {
            #[inline(always)]
            fn add_product(self, x: $ty, y: $ty) -> $ty {
                self.wrapping_add(x.wrapping_mul(y))
            }
        })*
    };
}
wrapping!(u8 u16 u32 u64);

/// Lines of the right operand that are added at once.
const LINES: usize = 4;

/// Products that a task should at least have.
const GRAIN: usize = 1 << 16;

/// Computes one product.
pub fn product<T: Wrapping>(
    threads: &Threads,
    GemmSizes { m, n, k }: GemmSizes,
    [a, b]: [Matrix<'_, T>; 2],
    out: &mut [T],
) {
    // A sum of nothing is zero, and what is there before is arbitrary.
    if m * n * k == 0 {
        return out.fill(T::zeroed());
    }
    let lies = b.col == 1 && b.row == n as isize;
    with_scratch::<T, 1, _>([if lies { 0 } else { k * n }], |[copied]| {
        let lines = match lies {
            true => &b.data[b.offset..][..k * n],
            false => {
                for (r, line) in copied.chunks_exact_mut(n).enumerate() {
                    line.iter_mut().enumerate().for_each(|(c, v)| *v = b.data[b.at(r, c)]);
                }
                &*copied
            }
        };
        let tasks = threads.tasks(m * n * k, GRAIN).min(m);
        let out = SharedSlice::new(out);
        threads.each(tasks, |task| {
            with_scratch::<T, 1, _>([k], |[factors]| {
                for r in m * task / tasks..m * (task + 1) / tasks {
                    factors.iter_mut().enumerate().for_each(|(c, v)| *v = a.data[a.at(r, c)]);
                    // SAFETY: every row is of one task.
                    add_lines(factors, lines, unsafe { out.part(r * n, n) });
                }
            });
        });
    });
}

simd! {
    /// The sums of `factors` times lines of `b`, which are as long as `out`.
    fn add_lines<T: Wrapping>(factors: &[T], b: &[T], out: &mut [T]) {
        let n = out.len();
        out.fill(T::zeroed());
        let whole = factors.len() / LINES * LINES;
        for (x, lines) in factors.chunks_exact(LINES).zip(b.chunks_exact(LINES * n)) {
            let [p, q, s, t]: [&[T]; LINES] = array(|i| &lines[i * n..][..n]);
            for c in 0..n {
                let sum = out[c].add_product(x[0], p[c]).add_product(x[1], q[c]);
                out[c] = sum.add_product(x[2], s[c]).add_product(x[3], t[c]);
            }
        }
        for (x, line) in factors[whole..].iter().zip(b[whole * n..].chunks_exact(n)) {
            out.iter_mut().zip(line).for_each(|(o, y)| *o = o.add_product(*x, *y));
        }
    }
}
