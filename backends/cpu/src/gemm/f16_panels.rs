//! Right panels stored as f16 or bf16 and widened on load: products of few rows are bandwidth-bound.
//!
//! Never loses a bit: panels are stored so only if the type holds all of their elements exactly.

use super::ImplicitColumns;
use super::pack::Matrix;
use crate::runtime::threads::Threads;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mlc_dsl::ir::DType;
use mlc_vector::f16::HalfFloat;
use mlc_vector::simd;
use mlc_vector::simd::{VectorLevel, level};
use mlc_vector::tile::RightOperand;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Elements of a matrix from which on reading it dominates.
const LARGE: usize = 1 << 16;

/// Least elements per thread.
const GRAIN: usize = 1 << 16;

/// Elements between two checks whether any type is left.
const BLOCK: usize = 1 << 10;

/// The 16-bit float types; bit `i` of a set stands for type `i`.
const TYPES: [DType; 2] = [DType::F16, DType::BF16];
const ALL: usize = (1 << TYPES.len()) - 1;

/// The 16-bit type to pack a `k` × `n` matrix in, if that pays: not for small ones, nor without conversion instructions.
pub fn worthwhile_type(b: &Matrix<'_>, k: usize, n: usize) -> Option<DType> {
    if k * n < LARGE || level() == VectorLevel::Base {
        return None;
    }
    lossless_type(b, k, n)
}

/// The 16-bit type that holds all elements of a `k` × `n` matrix exactly, if its rows or columns are contiguous. Stops at the first
/// element that none holds.
fn lossless_type(b: &Matrix<'_>, k: usize, n: usize) -> Option<DType> {
    let (lines, len, step) = match (b.row, b.col) {
        (step, 1) => (k, n, step),
        (1, step) => (n, k, step),
        _ => return None,
    };
    let left = AtomicUsize::new(ALL);
    let threads = Threads::of_run();
    let tasks = threads.tasks(k * n, GRAIN).min(lines);
    threads.each(tasks, |task| {
        for line in lines * task / tasks..lines * (task + 1) / tasks {
            let first = (b.offset as isize + line as isize * step) as usize;
            for block in b.data[first..][..len].chunks(BLOCK) {
                if left.load(Ordering::Relaxed) == 0 {
                    return;
                }
                left.fetch_and(lossless_types(block), Ordering::Relaxed);
            }
        }
    });
    let left = left.into_inner();
    TYPES.into_iter().enumerate().find(|(i, _)| left >> i & 1 == 1).map(|(_, dtype)| dtype)
}

simd! {
    /// The set of types that hold all of these numbers exactly; none holds NaN, whose bits may change.
    fn lossless_types(x: &[f32]) -> usize {
        /// The smallest normal number of f16, two to the power of -14, and the largest.
        const NORMAL: u32 = (127 - 14) << 23;
        const LARGEST: u32 = 65504f32.to_bits();
        const INFINITE: u32 = f32::INFINITY.to_bits();
        let (mut beyond_f16, mut beyond_bf16) = (0, 0);
        for x in x {
            let size = x.to_bits() & !(1 << 31);
            let number = f32::from_bits(size);
            // Behind one half digits begin that are too small for a subnormal number of f16.
            let cut = (number + 0.5 - 0.5).to_bits() ^ size;
            let digits = size & 0x1fff;
            let is_outside = (size > LARGEST) & (size != INFINITE);
            let normal = digits | is_outside as u32;
            beyond_f16 |= if size < NORMAL { cut } else { normal };
            beyond_bf16 |= size & 0xffff | (size > INFINITE) as u32;
        }
        [beyond_f16, beyond_bf16].iter().enumerate().map(|(i, &b)| ((b == 0) as usize) << i).sum()
    }
}

/// Packed right panels.
pub enum RightPanels<'a> {
    Floats(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
    Computed(ComputedPanels<'a>),
}

/// Right panels that are computed strip by strip.
pub struct ComputedPanels<'a> {
    pub columns: &'a dyn ImplicitColumns,
    pub depth: Range<usize>,
    pub cols: Range<usize>,
}

impl ComputedPanels<'_> {
    /// The panels of `len` elements behind the first `at`.
    fn strip<'s>(&self, at: usize, len: usize, scratch: &'s mut [f32]) -> RightOperand<'s> {
        let (k, first) = (self.depth.len(), self.cols.start);
        let cols = first + at / k..(first + (at + len) / k).min(self.cols.end);
        self.columns.pack(self.depth.clone(), cols, &mut scratch[..len]);
        RightOperand::Packed(&scratch[..len])
    }
}

/// Most rows for which tiles widen on load; for more, widening once is cheaper.
const FEW_ROWS: usize = 64;

impl<'a> RightPanels<'a> {
    /// `len` elements from `at` on for so many rows, and as many after them to prefetch. Widened elements are written to `scratch`.
    pub fn strip<'s>(
        &self,
        at: usize,
        len: usize,
        rows: usize,
        scratch: &'s mut [f32],
    ) -> (RightOperand<'s>, &'a [f32])
    where
        'a: 's,
    {
        match *self {
            RightPanels::Computed(ref panels) => (panels.strip(at, len, scratch), &[]),
            RightPanels::Floats(all) => {
                let (strip, next) = strip(all, at, len);
                (RightOperand::Packed(strip), next)
            }
            RightPanels::F16(all) if rows <= FEW_ROWS => {
                let (strip, next) = strip(all, at, len);
                (RightOperand::F16(strip), floats(next))
            }
            RightPanels::Bf16(all) if rows <= FEW_ROWS => {
                let (strip, next) = strip(all, at, len);
                (RightOperand::Bf16(strip), floats(next))
            }
            RightPanels::F16(all) => {
                let (strip, next) = strip(all, at, len);
                widen(strip, next, scratch)
            }
            RightPanels::Bf16(all) => {
                let (strip, next) = strip(all, at, len);
                widen(strip, next, scratch)
            }
        }
    }
}

/// `len` elements from `at` on, and up to as many after them.
fn strip<T>(all: &[T], at: usize, len: usize) -> (&[T], &[T]) {
    let (strip, next) = all[at..].split_at(len);
    (strip, &next[..next.len().min(len)])
}

/// Memory of panels as f32, as aligned as its buffer is.
fn floats<T>(panels: &[T]) -> &[f32]
where
    [T]: HalfFloatSliceExt,
{
    bytemuck::cast_slice(panels.reinterpret_cast())
}

fn widen<'a, 's, T: HalfFloat>(
    strip: &[T],
    next: &'a [T],
    scratch: &'s mut [f32],
) -> (RightOperand<'s>, &'a [f32])
where
    [T]: HalfFloatSliceExt,
{
    let scratch = &mut scratch[..strip.len()];
    T::widen(strip, scratch);
    (RightOperand::Packed(scratch), floats(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{GemmEpilogue, GemmSizes, Left, PackedRight, Product, Right, gemm};

    /// Numbers of every kind that both types hold or that is one of f16 or bf16 alone.
    fn number(dtype: DType, i: usize) -> f32 {
        let common = [0.0, -0.0, 1.0, -0.5, 3.0, 96.0];
        let own = match dtype {
            DType::F16 => [1.0 + 1.0 / 1024.0, -65504.0, 2f32.powi(-24), -1023.0 * 2f32.powi(-24)],
            _ => [1e-40f32, 2f32.powi(-133), -3e38, 1e20].map(|x| bf16::from_f32(x).to_f32()),
        };
        match i * 7919 % 101 {
            at @ ..6 => common[at],
            at @ 6..10 => own[at - 6],
            at => (at as f32 - 50.0) / 64.0,
        }
    }

    #[test]
    fn products_of_halves_have_the_bits_of_floats() {
        let rows = || (1..=40).chain([FEW_ROWS, FEW_ROWS + 1, 190]);
        let most = 190;
        for (k, n) in [(0, 40), (1, 33), (511, 129), (512, 1), (513, 71), (1400, 17), (700, 300)] {
            let a: Vec<f32> = (0..most * k).map(|i| (i * 31 % 97) as f32 / 50.0 - 1.0).collect();
            for dtype in TYPES {
                let b: Vec<f32> = (0..k * n).map(|i| number(dtype, i)).collect();
                let b = Matrix { data: &b, offset: 0, row: n as isize, col: 1 };
                assert!(k * n < 100 || lossless_type(&b, k, n) == Some(dtype));
                let packed = [PackedRight::new(&b, k, n), PackedRight::new_f16(&b, k, n, dtype)];
                for m in rows() {
                    let left = Matrix { data: &a, offset: 0, row: k as isize, col: 1 };
                    let product = |p, threads| {
                        let mut out = vec![f32::NAN; m * n];
                        let of =
                            |_| Product { left: Left::Plain(left), right: Right::Packed(p), at: 0 };
                        let sizes = GemmSizes { m, n, k };
                        gemm(
                            &Threads::new(threads),
                            sizes,
                            1,
                            of,
                            &mut out,
                            GemmEpilogue::Identity,
                        );
                        out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
                    };
                    let want = product(&packed[0], 1);
                    for threads in [1, 3] {
                        let same = product(&packed[1], threads) == want;
                        assert!(same, "{m}x{n}x{k} in {dtype:?}, {threads} threads");
                    }
                }
            }
        }
    }

    #[test]
    fn a_type_holds_what_it_loses_nothing_of() {
        let holds = |x: f32| lossless_types(&[x]);
        let is_same = |x: f32, y: f32| x.to_bits() == y.to_bits() && !x.is_nan();
        let expected = |x: f32| {
            let [a, b] = [f16::from_f32(x).to_f32(), bf16::from_f32(x).to_f32()];
            is_same(x, a) as usize | (is_same(x, b) as usize) << 1
        };
        for bits in 0..=u16::MAX {
            for x in [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()] {
                for bits in [x.to_bits().wrapping_sub(1), x.to_bits(), x.to_bits() + 1] {
                    let x = f32::from_bits(bits);
                    assert_eq!(holds(x), expected(x), "{x:e}");
                }
            }
        }
        for (x, set) in [
            (0.1, 0),
            (f32::NAN, 0),
            (f32::INFINITY, 3),
            (f32::NEG_INFINITY, 3),
            (-0.0, 3),
            (2f32.powi(-24), 3),
            (1023.0 * 2f32.powi(-24), 1),
            (2f32.powi(-25), 2),
            (65504.0, 1),
            (65536.0, 2),
            (f32::from_bits(1 << 16), 2),
            (f32::from_bits(1), 0),
        ] {
            assert_eq!(holds(x), set, "{x:e}");
        }
    }

    #[test]
    fn one_number_decides_wherever_it_lies() {
        let (k, n) = (3, 2 * BLOCK + 5);
        for at in [0, n - 1, n, k * n - 1] {
            for (x, dtype) in [(0.5, Some(DType::F16)), (1e30, None), (65536.0, Some(DType::BF16))]
            {
                let mut data = vec![0.25f32; k * n + 1];
                data[at] = x;
                // Behind the matrix.
                data[k * n] = 0.1;
                for (row, col) in [(n as isize, 1), (1, k as isize)] {
                    let b = Matrix { data: &data, offset: 0, row, col };
                    assert_eq!(lossless_type(&b, k, n), dtype, "{x} at {at}");
                }
            }
        }
        let data = vec![0.25f32; 4 * k * n];
        let apart = Matrix { data: &data, offset: 0, row: 2 * n as isize, col: 2 };
        assert_eq!(lossless_type(&apart, k, n), None);
        let all = Matrix { data: &data, offset: 0, row: n as isize, col: 1 };
        assert_eq!(worthwhile_type(&all, k, n), None, "too small");
    }

    #[test]
    fn a_large_constant_of_halves_is_packed_in_half_of_the_memory() {
        let (k, n) = (256, 300);
        let mut data: Vec<f32> = (0..k * n).map(|i| number(DType::F16, i)).collect();
        for dtype in [Some(DType::F16), None] {
            let b = Matrix { data: &data, offset: 0, row: n as isize, col: 1 };
            let dtype = dtype.filter(|_| level() != VectorLevel::Base);
            assert_eq!(worthwhile_type(&b, k, n), dtype);
            let panels = PackedRight::of_constant(&b, k, n);
            assert_eq!(panels.strip_len(1) > 0, dtype.is_some());
            data[k * n - 1] = 0.1;
        }
    }
}
