//! The arithmetic of one instruction on tiles, in every class.

use super::code::Join;
use crate::pointwise::code::{Binary, Compare, Unary};
use crate::pointwise::ops::{self, Tile, map1, map2};
use half::{bf16, f16};
use mlc_backends::reference::RealOp;
use mlc_backends::reference::scalar::{Cmp, IntOp};
use mlc_dsl::ir::DType;
use mlc_vector::simd;
use mlc_vector::simd::fold;

/// The operation of pointwise code.
fn binary(op: RealOp) -> Binary {
    match op {
        RealOp::Add => Binary::Add,
        RealOp::Sub => Binary::Sub,
        RealOp::Mul => Binary::Mul,
        RealOp::Div => Binary::Div,
        RealOp::Pow => Binary::Pow,
        RealOp::Max => Binary::Max,
        RealOp::Min => Binary::Min,
        RealOp::Modulo => Binary::Modulo,
        RealOp::Remainder => Binary::Remainder,
    }
}

/// An operation on f32.
pub fn real_f32(op: RealOp, d: &mut [f32], a: Tile<'_, f32>, b: Tile<'_, f32>) {
    match op {
        RealOp::Modulo => map2(d, a, b, |a, b| op.apply(a.into(), b.into()) as f32),
        _ => ops::binary_f32(binary(op), d, a, b),
    }
}

/// An operation on f64.
pub fn real_f64(op: RealOp, d: &mut [f64], a: Tile<'_, f64>, b: Tile<'_, f64>) {
    match op {
        RealOp::Modulo => map2(d, a, b, |a, b| op.apply(a, b)),
        _ => ops::binary_f64(binary(op), d, a, b),
    }
}

/// A function of f64.
pub fn unary_f64(f: Unary, d: &mut [f64], a: Tile<'_, f64>) {
    match f {
        Unary::Floor | Unary::Ceil | Unary::Round => rounded_f64(f, d, a),
        _ => ops::unary_f64(f, d, a),
    }
}

simd! {
    fn rounded_f64(f: Unary, d: &mut [f64], a: Tile<'_, f64>) {
        match f {
            Unary::Floor => map1(d, a, f64::floor),
            Unary::Ceil => map1(d, a, f64::ceil),
            _ => map1(d, a, f64::round_ties_even),
        }
    }
}

simd! {
    /// An operation on integers.
    pub fn int(op: IntOp, d: &mut [i64], a: Tile<'_, i64>, b: Tile<'_, i64>) {
        macro_rules! each {
            ($($op:ident)*) => {
                match op {
                    $(IntOp::$op => map2(d, a, b, |a, b| IntOp::$op.apply(a, b)),)*
                }
            };
        }
        each!(Add Sub Mul Pow FloorDiv FloorMod Div Rem Max Min PowU DivU RemU MaxU MinU And Or Xor Shl Shr ShrU)
    }
}

simd! {
    /// Absolute values of integers.
    pub fn abs(d: &mut [i64], a: Tile<'_, i64>) {
        map1(d, a, i64::wrapping_abs);
    }
}

/// A comparison by those of pointwise code.
macro_rules! compare {
    ($name:ident, $of:path, $t:ty) => {
        /// A comparison.
        pub fn $name(cmp: Cmp, d: &mut [u8], a: Tile<'_, $t>, b: Tile<'_, $t>) {
            match cmp {
                Cmp::Eq => $of(Compare::Eq, d, a, b),
                Cmp::Ne => $of(Compare::Ne, d, a, b),
                Cmp::Lt => $of(Compare::Less, d, a, b),
                Cmp::Le => $of(Compare::LessEq, d, a, b),
                Cmp::Gt => $of(Compare::Less, d, b, a),
                Cmp::Ge => $of(Compare::LessEq, d, b, a),
            }
        }
    };
}
compare!(compare_f32, ops::compare_f32, f32);
compare!(compare_f64, ops::compare_f64, f64);
compare!(compare_i64, ops::compare_i64, i64);
compare!(compare_u64, ops::compare_u64, u64);

simd! {
    /// `a and b`, or `a or b`.
    pub fn both(all: bool, d: &mut [u8], a: Tile<'_, u8>, b: Tile<'_, u8>) {
        match all {
            true => map2(d, a, b, |a, b| a & b),
            false => map2(d, a, b, |a, b| a | b),
        }
    }
}

simd! {
    /// `not a`.
    pub fn not(d: &mut [u8], a: Tile<'_, u8>) {
        map1(d, a, |a| a ^ 1);
    }
}

simd! {
    /// f32 as f64.
    pub fn widened(d: &mut [f64], a: Tile<'_, f32>) {
        map1(d, a, f64::from);
    }
}

simd! {
    /// f64 as f32.
    pub fn narrowed(d: &mut [f32], a: Tile<'_, f64>) {
        map1(d, a, |a| a as f32);
    }
}

simd! {
    /// Integers as f64.
    pub fn floats(d: &mut [f64], a: Tile<'_, i64>) {
        map1(d, a, |a| a as f64);
    }
}

/// The nearest number of a type.
pub fn rounded(dtype: DType, d: &mut [f64], a: Tile<'_, f64>) {
    map1(d, a, |x| match dtype {
        DType::F16 => f16::from_f64(x).to_f64(),
        DType::BF16 => bf16::from_f64(x).to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => dtype.small_float().map_or(x, |f| f.nearest(x)),
    });
}

simd! {
    /// Small numbers cut towards zero; `false` if one is not small or not a number.
    fn cut_small(d: &mut [i64], a: &[f64]) -> bool {
        let near = a.iter().fold(1u64, |all, x| all & (x.abs() < 2147483648.0) as u64) != 0;
        if near {
            // SAFETY: all of them fit 32 bits.
            d.iter_mut().zip(a).for_each(|(d, &x)| *d = i64::from(unsafe { x.to_int_unchecked::<i32>() }));
        }
        near
    }
}

/// Cut towards zero and wrapped.
pub fn cut(dtype: DType, d: &mut [i64], a: Tile<'_, f64>) {
    match (dtype, a) {
        (DType::I64 | DType::I32, Tile::Many(a)) if cut_small(d, a) => {}
        _ => map1(d, a, |x| mlc_backends::reference::truncate(dtype, x)),
    }
}

simd! {
    /// Whether integers are not 0.
    pub fn truths(d: &mut [u8], a: Tile<'_, i64>) {
        map1(d, a, |a| (a != 0) as u8);
    }
}

/// The terms of each element, side by side, joined to it.
pub trait Joined: Copy {
    fn rows(join: Join, acc: &mut [Self], terms: &[Self], each: usize);
}

/// Joins the terms of each element in their order.
#[inline(always)]
fn in_order<T: Copy>(acc: &mut [T], terms: &[T], each: usize, f: impl Fn(T, T) -> T) {
    for (acc, terms) in acc.iter_mut().zip(terms.chunks_exact(each)) {
        *acc = terms.iter().fold(*acc, |a, &t| f(a, t));
    }
}

simd! {
    fn sums(acc: &mut [f32], terms: &[f32], each: usize) {
        match each {
            4 => short_sums::<4>(acc, terms),
            8 => short_sums::<8>(acc, terms),
            16 => short_sums::<16>(acc, terms),
            32 => short_sums::<32>(acc, terms),
            _ if each < 16 => in_order(acc, terms, each, |a, b| a + b),
            _ => {
                for (acc, terms) in acc.iter_mut().zip(terms.chunks_exact(each)) {
                    *acc += fold::<64>(terms, 0.0, |a, b| a + b, |a, b| a + b);
                }
            }
        }
    }
}

#[inline(always)]
fn short_sums<const N: usize>(acc: &mut [f32], terms: &[f32]) {
    for (acc, terms) in acc.iter_mut().zip(terms.as_chunks::<N>().0) {
        let (mut sums, mut half) = (*terms, N / 2);
        while half > 0 {
            for i in 0..half {
                sums[i] += sums[i + half];
            }
            half /= 2;
        }
        *acc += sums[0];
    }
}

simd! {
    fn extremes(greatest: bool, acc: &mut [f32], terms: &[f32], each: usize) {
        use mlc_vector::math::{maximum, minimum};
        for (acc, terms) in acc.iter_mut().zip(terms.chunks_exact(each)) {
            *acc = match greatest {
                true => maximum(*acc, fold::<32>(terms, f32::NEG_INFINITY, maximum, maximum)),
                false => minimum(*acc, fold::<32>(terms, f32::INFINITY, minimum, minimum)),
            };
        }
    }
}

impl Joined for f32 {
    fn rows(join: Join, acc: &mut [f32], terms: &[f32], each: usize) {
        match join {
            Join::Real(RealOp::Add) => sums(acc, terms, each),
            Join::Real(RealOp::Max) => extremes(true, acc, terms, each),
            Join::Real(RealOp::Min) => extremes(false, acc, terms, each),
            Join::Real(RealOp::Mul) => in_order(acc, terms, each, |a, b| a * b),
            _ => {}
        }
    }
}

impl Joined for f64 {
    fn rows(join: Join, acc: &mut [f64], terms: &[f64], each: usize) {
        if let Join::Real(op) = join {
            in_order(acc, terms, each, |a, b| op.apply(a, b));
        }
    }
}

impl Joined for i64 {
    fn rows(join: Join, acc: &mut [i64], terms: &[i64], each: usize) {
        if let Join::Int(op) = join {
            in_order(acc, terms, each, |a, b| op.apply(a, b));
        }
    }
}

impl Joined for u8 {
    fn rows(join: Join, acc: &mut [u8], terms: &[u8], each: usize) {
        match join {
            Join::Any => in_order(acc, terms, each, |a, b| a | b),
            _ => in_order(acc, terms, each, |a, b| a & b),
        }
    }
}
