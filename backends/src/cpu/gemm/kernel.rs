//! The register tile of the matrix product: up to [`Shape::rows`] × [`Shape::cols`] sums held in registers.
//!
//! One body per vector level. A kernel reads packed panels, so it is independent of the strides of the matrices.

use crate::cpu::simd::{VectorLevel, level};

/// Largest register tile of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub rows: usize,
    /// Columns: two vectors.
    pub cols: usize,
}

/// The register tile of this machine.
pub fn shape() -> Shape {
    match level() {
        VectorLevel::V4 => Shape { rows: 14, cols: 32 },
        VectorLevel::V3 => Shape { rows: 6, cols: 16 },
        VectorLevel::Base => Shape { rows: 4, cols: 16 },
    }
}

/// Where a tile of the result lies and how it is combined.
#[derive(Clone, Copy, Debug)]
pub struct TileTarget {
    /// Its first element.
    pub at: *mut f32,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Columns to write, at most those of the panel.
    pub cols: usize,
    /// Add to what is there instead of replacing it.
    pub add: bool,
}

/// `target = a · b` over `depth`, with `a` packed `rows` wide and `b` packed `width` wide (a whole or half [`Shape::cols`]).
///
/// # Safety
/// `rows` × `target.cols` elements at `target` are valid for reads and writes and not aliased.
pub unsafe fn tile(
    rows: usize,
    width: usize,
    depth: usize,
    a: &[f32],
    b: &[f32],
    target: TileTarget,
) {
    let shape = shape();
    assert!(rows >= 1 && rows <= shape.rows && target.cols <= width, "tile fits the registers");
    assert!(a.len() >= rows * depth && b.len() >= width * depth, "panels hold the depth");
    assert!(width == shape.cols || width * 2 == shape.cols, "one or two vectors");
    let two = width == shape.cols;
    match level() {
        #[cfg(target_arch = "x86_64")]
        VectorLevel::V4 => {
            // SAFETY: AVX-512 was detected; the assertions bound the panels, the caller the target.
            unsafe { v4::dispatch(rows, two, depth, a, b, target) }
        }
        #[cfg(target_arch = "x86_64")]
        VectorLevel::V3 => {
            // SAFETY: AVX2 and FMA were detected; otherwise as above.
            unsafe { v3::dispatch(rows, two, depth, a, b, target) }
        }
        // SAFETY: as above.
        _ => unsafe { base(rows, width, depth, a, b, target) },
    }
}

/// Any machine.
///
/// # Safety
/// As [`tile`].
unsafe fn base(rows: usize, width: usize, depth: usize, a: &[f32], b: &[f32], t: TileTarget) {
    let mut sums = [[0f32; 16]; 4];
    for k in 0..depth {
        let b = &b[k * width..(k + 1) * width];
        for (sums, &a) in sums.iter_mut().zip(&a[k * rows..(k + 1) * rows]) {
            for (s, &b) in sums.iter_mut().zip(b) {
                *s += a * b;
            }
        }
    }
    for (r, sums) in sums.iter().enumerate().take(rows) {
        // SAFETY: the row lies in the target by the contract.
        let row = unsafe { std::slice::from_raw_parts_mut(t.at.add(r * t.stride), t.cols) };
        for (o, s) in row.iter_mut().zip(sums) {
            *o = if t.add { *o + s } else { *s };
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! rows {
    ($rows:expr, $two:expr, $f:ident, $args:tt, $($n:literal)*) => {
        match ($rows, $two) {
            $(($n, true) => rows!(@call $f, $n, 2, $args),
              ($n, false) => rows!(@call $f, $n, 1, $args),)*
            _ => unreachable!("the caller bounds the rows"),
        }
    };
    (@call $f:ident, $n:literal, $v:literal, ($($arg:expr),*)) => {
        // SAFETY: the contract of the caller is that of the callee.
        unsafe { $f::<$n, $v>($($arg),*) }
    };
}

#[cfg(target_arch = "x86_64")]
mod v4 {
    use super::TileTarget;
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::tile`], on a machine with AVX-512.
    pub unsafe fn dispatch(
        rows: usize,
        two: bool,
        depth: usize,
        a: &[f32],
        b: &[f32],
        t: TileTarget,
    ) {
        let (a, b) = (a.as_ptr(), b.as_ptr());
        rows!(rows, two, run, (depth, a, b, t), 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    }

    /// # Safety
    /// `a` holds `depth * R` elements, `b` `depth * V * 16`; otherwise as [`super::tile`].
    #[target_feature(enable = "avx512f")]
    unsafe fn run<const R: usize, const V: usize>(
        depth: usize,
        mut a: *const f32,
        mut b: *const f32,
        t: TileTarget,
    ) {
        let mut sums = [[_mm512_setzero_ps(); V]; R];
        for _ in 0..depth {
            // SAFETY: `depth` steps of `V * 16` and `R` elements stay inside the panels.
            unsafe {
                let row: [__m512; V] = std::array::from_fn(|v| _mm512_loadu_ps(b.add(v * 16)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*a.add(r));
                    for (s, y) in sums.iter_mut().zip(row) {
                        *s = _mm512_fmadd_ps(x, y, *s);
                    }
                }
                a = a.add(R);
                b = b.add(V * 16);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, &s) in sums.iter().enumerate() {
                let left = t.cols.saturating_sub(v * 16).min(16);
                let mask = ((1u32 << left) - 1) as u16;
                // SAFETY: the mask confines access to the target's columns.
                unsafe {
                    let at = t.at.add(r * t.stride + v * 16 * (left > 0) as usize);
                    let s =
                        if t.add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, at), s) } else { s };
                    _mm512_mask_storeu_ps(at, mask, s);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod v3 {
    use super::TileTarget;
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::tile`], on a machine with AVX2 and FMA.
    pub unsafe fn dispatch(
        rows: usize,
        two: bool,
        depth: usize,
        a: &[f32],
        b: &[f32],
        t: TileTarget,
    ) {
        let (a, b) = (a.as_ptr(), b.as_ptr());
        rows!(rows, two, run, (depth, a, b, t), 1 2 3 4 5 6)
    }

    /// # Safety
    /// `a` holds `depth * R` elements, `b` `depth * V * 8`; otherwise as [`super::tile`].
    #[target_feature(enable = "avx2,fma")]
    unsafe fn run<const R: usize, const V: usize>(
        depth: usize,
        mut a: *const f32,
        mut b: *const f32,
        t: TileTarget,
    ) {
        let mut sums = [[_mm256_setzero_ps(); V]; R];
        for _ in 0..depth {
            // SAFETY: `depth` steps of `V * 8` and `R` elements stay inside the panels.
            unsafe {
                let row: [__m256; V] = std::array::from_fn(|v| _mm256_loadu_ps(b.add(v * 8)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_ps(*a.add(r));
                    for (s, y) in sums.iter_mut().zip(row) {
                        *s = _mm256_fmadd_ps(x, y, *s);
                    }
                }
                a = a.add(R);
                b = b.add(V * 8);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, &s) in sums.iter().enumerate() {
                let mut held = [0f32; 8];
                let left = t.cols.saturating_sub(v * 8).min(8);
                // SAFETY: `held` has eight elements; the row lies in the target.
                let row = unsafe {
                    _mm256_storeu_ps(held.as_mut_ptr(), s);
                    let skip = if left > 0 { v * 8 } else { 0 };
                    std::slice::from_raw_parts_mut(t.at.add(r * t.stride + skip), left)
                };
                for (o, s) in row.iter_mut().zip(held) {
                    *o = if t.add { *o + s } else { s };
                }
            }
        }
    }
}
