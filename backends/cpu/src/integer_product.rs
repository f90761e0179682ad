//! Products of matrices of integers, modulo two to the power of their bits.
//!
//! Lines of the right operand are added to a line of the result, several at a time; a right operand whose columns are no neighbours is
//! copied first.

use super::buffer::with_scratch;
use super::gemm::GemmSizes;
use super::simd::simd;
use super::threads::{SharedSlice, Threads};
use bytemuck::Pod;
use mlc_dsl::ir::DType;

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
wrapping!(i8 i16 i32 i64 u8 u16 u32 u64);

/// One operand of a product: its first element, and the distances between rows and between columns.
#[derive(Clone, Copy)]
pub struct Side {
    pub first: usize,
    pub row: isize,
    pub col: isize,
}

impl Side {
    fn at(&self, row: usize, col: usize) -> usize {
        (self.first as isize + row as isize * self.row + col as isize * self.col) as usize
    }
}

/// Lines of the right operand that are added at once.
const LINES: usize = 4;

/// Products that a task should at least have.
const GRAIN: usize = 1 << 16;

/// True if there are products of such elements.
pub fn has(dtype: DType) -> bool {
    use DType::*;
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
}

/// Computes one product of elements of that type, whose bytes are given; none if the type [has](has) none.
pub fn product(
    threads: &Threads,
    dtype: DType,
    sizes: GemmSizes,
    (a, left): (&[u8], Side),
    (b, right): (&[u8], Side),
    out: &mut [u8],
) {
    macro_rules! of {
        ($ty:ty) => {{
            let (a, b): (&[$ty], &[$ty]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
            rows(threads, sizes, (a, left), (b, right), bytemuck::cast_slice_mut(out));
        }};
    }
    match dtype {
        DType::I8 => of!(i8),
        DType::I16 => of!(i16),
        DType::I32 => of!(i32),
        DType::I64 => of!(i64),
        DType::U8 => of!(u8),
        DType::U16 => of!(u16),
        DType::U32 => of!(u32),
        DType::U64 => of!(u64),
        _ => debug_assert!(!has(dtype), "a product of {dtype}"),
    }
}

fn rows<T: Wrapping>(
    threads: &Threads,
    GemmSizes { m, n, k }: GemmSizes,
    (a, left): (&[T], Side),
    (b, right): (&[T], Side),
    out: &mut [T],
) {
    // A sum of nothing is zero, and what is there before is arbitrary.
    if m * n * k == 0 {
        return out.fill(T::zeroed());
    }
    let lies = right.col == 1 && right.row == n as isize;
    with_scratch::<T, 1, _>([if lies { 0 } else { k * n }], |[copied]| {
        let b = match lies {
            true => &b[right.first..][..k * n],
            false => {
                for (r, line) in copied.chunks_exact_mut(n).enumerate() {
                    line.iter_mut().enumerate().for_each(|(c, v)| *v = b[right.at(r, c)]);
                }
                &*copied
            }
        };
        let tasks = threads.tasks(m * n * k, GRAIN).min(m);
        let out = SharedSlice::new(out);
        threads.each(tasks, |task| {
            with_scratch::<T, 1, _>([k], |[factors]| {
                for r in m * task / tasks..m * (task + 1) / tasks {
                    factors.iter_mut().enumerate().for_each(|(c, v)| *v = a[left.at(r, c)]);
                    // SAFETY: every row is of one task.
                    add_lines(factors, b, unsafe { out.part(r * n, n) });
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
            let [p, q, s, t]: [&[T]; LINES] = std::array::from_fn(|i| &lines[i * n..][..n]);
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
