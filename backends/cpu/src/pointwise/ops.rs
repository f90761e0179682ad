//! The loops behind the instructions: each works on one tile.

use super::code::{Binary, Compare, Unary};
use mlc_dsl::ir::DType;
use mlc_vector::functions::{self, Function};
use mlc_vector::math;
use mlc_vector::simd;

/// A tile of values, or one value for all.
#[derive(Clone, Copy)]
pub enum Tile<'a, T> {
    /// One value per element.
    Many(&'a [T]),
    /// The same value for every element.
    One(T),
}

#[inline(always)]
pub fn map1<T: Copy, U>(d: &mut [U], a: Tile<'_, T>, f: impl Fn(T) -> U) {
    match a {
        Tile::Many(a) => d.iter_mut().zip(a).for_each(|(d, &a)| *d = f(a)),
        Tile::One(a) => d.iter_mut().for_each(|d| *d = f(a)),
    }
}

#[inline(always)]
pub fn map2<T: Copy, U>(d: &mut [U], a: Tile<'_, T>, b: Tile<'_, T>, f: impl Fn(T, T) -> U) {
    match (a, b) {
        (Tile::Many(a), Tile::Many(b)) => {
            d.iter_mut().zip(a).zip(b).for_each(|((d, &a), &b)| *d = f(a, b));
        }
        (Tile::Many(a), Tile::One(b)) => d.iter_mut().zip(a).for_each(|(d, &a)| *d = f(a, b)),
        (Tile::One(a), Tile::Many(b)) => d.iter_mut().zip(b).for_each(|(d, &b)| *d = f(a, b)),
        (Tile::One(a), Tile::One(b)) => d.iter_mut().for_each(|d| *d = f(a, b)),
    }
}

/// Functions of f32.
pub fn unary_f32(f: Unary, d: &mut [f32], a: Tile<'_, f32>) {
    if matches!(f, Unary::Sin | Unary::Cos) {
        waves(f, d, a);
        if let Tile::Many(a) = a
            && is_far(a)
        {
            let far = d.iter_mut().zip(a).filter(|(_, x)| x.abs() > math::TURNS);
            far.for_each(|(d, &x)| *d = unary_number(f, x.into()).unwrap_or(f64::NAN) as f32);
        }
        return;
    }
    let vector = match f {
        Unary::Exp => Function::Exp,
        Unary::Sigmoid => Function::Sigmoid,
        Unary::Tanh => Function::Tanh,
        Unary::Erf => Function::Erf,
        _ => return other_unary_f32(f, d, a),
    };
    match a {
        Tile::Many(a) => functions::map(vector, d, a),
        Tile::One(_) => other_unary_f32(f, d, a),
    }
}

simd! {
    /// Sines and cosines of numbers whose turns can be told apart.
    fn waves(f: Unary, d: &mut [f32], a: Tile<'_, f32>) {
        match (f, a) {
            // One number for all is computed once.
            (_, Tile::One(x)) => d.fill(unary_number(f, x.into()).unwrap_or(f64::NAN) as f32),
            (Unary::Sin, _) => map1(d, a, math::sin),
            _ => map1(d, a, math::cos),
        }
    }
}

simd! {
    fn is_far(a: &[f32]) -> bool {
        a.iter().fold(0, |any, x| any | (x.abs() > math::TURNS) as u32) != 0
    }
}

simd! {
    fn other_unary_f32(f: Unary, d: &mut [f32], a: Tile<'_, f32>) {
        match f {
            Unary::Neg => map1(d, a, |x: f32| -x),
            Unary::Abs => map1(d, a, f32::abs),
            Unary::Exp => map1(d, a, math::exp),
            Unary::Log => map1(d, a, math::log),
            Unary::Sqrt => map1(d, a, f32::sqrt),
            Unary::Erf => map1(d, a, math::erf),
            Unary::Tanh => map1(d, a, math::tanh),
            Unary::Sigmoid => map1(d, a, math::sigmoid),
            Unary::Floor => map1(d, a, f32::floor),
            Unary::Ceil => map1(d, a, f32::ceil),
            Unary::Round => map1(d, a, f32::round_ties_even),
            Unary::Sign => map1(d, a, |x: f32| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x }),
            // Rare ones go through f64, which costs time but no accuracy.
            _ => map1(d, a, |x: f32| unary_number(f, x as f64).unwrap_or(f64::NAN) as f32),
        }
    }
}

simd! {
    /// Functions of f64.
    pub fn unary_f64(f: Unary, d: &mut [f64], a: Tile<'_, f64>) {
        match f {
            Unary::Neg => map1(d, a, |x: f64| -x),
            Unary::Abs => map1(d, a, f64::abs),
            Unary::Sqrt => map1(d, a, f64::sqrt),
            _ => map1(d, a, |x: f64| unary_number(f, x).unwrap_or(f64::NAN)),
        }
    }
}

/// The function of one f64; `None` if it has no meaning there.
pub fn unary_number(f: Unary, x: f64) -> Option<f64> {
    Some(match f {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Erf => math::erf_f64(x),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Sign if x > 0.0 => 1.0,
        Unary::Sign if x < 0.0 => -1.0,
        Unary::Sign => x,
        Unary::Not => return None,
    })
}

simd! {
    /// Functions of integers; the caller wraps the result to its dtype.
    pub fn unary_int(f: Unary, d: &mut [i64], a: Tile<'_, i64>, dtype: DType) {
        let unsigned = is_unsigned(dtype);
        match f {
            Unary::Neg => map1(d, a, i64::wrapping_neg),
            Unary::Abs if unsigned => map1(d, a, |x| x),
            Unary::Abs => map1(d, a, i64::wrapping_abs),
            Unary::Sign if unsigned => map1(d, a, |x| (x != 0) as i64),
            _ => map1(d, a, i64::signum),
        }
    }
}

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

simd! {
    /// Functions of two f32.
    pub fn binary_f32(f: Binary, d: &mut [f32], a: Tile<'_, f32>, b: Tile<'_, f32>) {
        let (a, b) = match (f, a, b) {
            (Binary::Max | Binary::Min, Tile::One(_), Tile::Many(_)) => (b, a),
            _ => (a, b),
        };
        match f {
            Binary::Add => map2(d, a, b, |a: f32, b| a + b),
            Binary::Sub => map2(d, a, b, |a: f32, b| a - b),
            Binary::Mul => map2(d, a, b, |a: f32, b| a * b),
            Binary::Div => map2(d, a, b, |a: f32, b| a / b),
            // Of two zeros the positive one is larger; NaN passes both.
            Binary::Max => match b {
                Tile::One(b) if b.abs() > 0.0 || b.to_bits() == 0 => {
                    map1(d, a, |x: f32| if x <= b { b } else { x });
                }
                _ => map2(d, a, b, math::maximum),
            },
            Binary::Min => match b {
                Tile::One(b) if b.abs() > 0.0 || (-b).to_bits() == 0 => {
                    map1(d, a, |x: f32| if x >= b { b } else { x });
                }
                _ => map2(d, a, b, math::minimum),
            },
            Binary::Pow => match b {
                Tile::One(2.0) => map1(d, a, |x: f32| x * x),
                Tile::One(3.0) => map1(d, a, |x: f32| x * x * x),
                Tile::One(1.0) => map1(d, a, |x: f32| x),
                Tile::One(-1.0) => map1(d, a, |x: f32| 1.0 / x),
                _ => map2(d, a, b, |a: f32, b| (a as f64).powf(b as f64) as f32),
            },
            Binary::Remainder => map2(d, a, b, |a: f32, b| a % b),
            Binary::Modulo => map2(d, a, b, |a: f32, b| a - b * (a / b).floor()),
            _ => {}
        }
    }
}

simd! {
    /// Functions of two f64.
    pub fn binary_f64(f: Binary, d: &mut [f64], a: Tile<'_, f64>, b: Tile<'_, f64>) {
        match f {
            Binary::Add => map2(d, a, b, |a: f64, b| a + b),
            Binary::Sub => map2(d, a, b, |a: f64, b| a - b),
            Binary::Mul => map2(d, a, b, |a: f64, b| a * b),
            Binary::Div => map2(d, a, b, |a: f64, b| a / b),
            Binary::Max => map2(d, a, b, math::maximum_f64),
            Binary::Min => map2(d, a, b, math::minimum_f64),
            Binary::Pow => map2(d, a, b, f64::powf),
            Binary::Remainder => map2(d, a, b, |a: f64, b| a % b),
            Binary::Modulo => map2(d, a, b, |a: f64, b| a - b * (a / b).floor()),
            _ => {}
        }
    }
}

simd! {
    /// Functions of two integers; the caller wraps the result. Division by zero is zero.
    pub fn binary_int(f: Binary, d: &mut [i64], a: Tile<'_, i64>, b: Tile<'_, i64>, dtype: DType) {
        match f {
            Binary::Add => map2(d, a, b, i64::wrapping_add),
            Binary::Sub => map2(d, a, b, i64::wrapping_sub),
            Binary::Mul => map2(d, a, b, i64::wrapping_mul),
            Binary::BitAnd => map2(d, a, b, |a, b| a & b),
            Binary::BitOr => map2(d, a, b, |a, b| a | b),
            Binary::BitXor => map2(d, a, b, |a, b| a ^ b),
            // No shift is by more places than 63: what is moved further, or by a negative number, is gone.
            Binary::ShiftLeft => map2(d, a, b, |a, b| if (b as u64) < 64 { a << b } else { 0 }),
            // Unsigned types narrower than 64 bit are non-negative i64, so only u64 differs.
            _ if dtype == DType::U64 => map2(d, a, b, |a, b| binary_u64(f, a as u64, b as u64) as i64),
            Binary::Div => map2(d, a, b, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
            Binary::Max => map2(d, a, b, i64::max),
            Binary::Min => map2(d, a, b, i64::min),
            Binary::Remainder => map2(d, a, b, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
            Binary::Modulo => map2(d, a, b, |a, b| {
                let r = if b == 0 { 0 } else { a.wrapping_rem(b) };
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }),
            Binary::Pow => map2(d, a, b, power),
            Binary::ShiftRight => map2(d, a, b, |a, b| a >> (b as u64).min(63)),
            Binary::And | Binary::Or => {}
        }
    }
}

fn binary_u64(f: Binary, a: u64, b: u64) -> u64 {
    match f {
        Binary::Div => a.checked_div(b).unwrap_or(0),
        Binary::Remainder | Binary::Modulo => a.checked_rem(b).unwrap_or(0),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Pow => power_of(a, b),
        Binary::ShiftRight if b < 64 => a >> b,
        Binary::ShiftRight => 0,
        _ => a,
    }
}

/// The power modulo 2^64; a negative exponent is the integer part of the real power.
fn power(a: i64, b: i64) -> i64 {
    match (u64::try_from(b), a) {
        (Ok(b), _) => power_of(a as u64, b) as i64,
        (Err(_), 1) => 1,
        (Err(_), -1) => 1 - 2 * (b & 1),
        (Err(_), _) => 0,
    }
}

fn power_of(a: u64, mut b: u64) -> u64 {
    let (mut result, mut square) = (1u64, a);
    while b > 0 {
        if b & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        b >>= 1;
    }
    result
}

simd! {
    /// Functions of truth values.
    pub fn binary_bool(f: Binary, d: &mut [u8], a: Tile<'_, u8>, b: Tile<'_, u8>) {
        match f {
            Binary::And => map2(d, a, b, |a, b| a & b),
            _ => map2(d, a, b, |a, b| a | b),
        }
    }
}

macro_rules! compare {
    ($name:ident, $t:ty, $doc:literal) => {
        simd! {
            #[doc = $doc]
            pub fn $name(f: Compare, d: &mut [u8], a: Tile<'_, $t>, b: Tile<'_, $t>) {
                match f {
                    Compare::Eq => map2(d, a, b, |a: $t, b| (a == b) as u8),
                    Compare::Ne => map2(d, a, b, |a: $t, b| (a != b) as u8),
                    Compare::Less => map2(d, a, b, |a: $t, b| (a < b) as u8),
                    Compare::LessEq => map2(d, a, b, |a: $t, b| (a <= b) as u8),
                }
            }
        }
    };
}
compare!(compare_f32, f32, "Comparisons of f32.");
compare!(compare_f64, f64, "Comparisons of f64.");
compare!(compare_i64, i64, "Comparisons of integers.");
compare!(compare_u64, u64, "Comparisons of u64.");
compare!(compare_u8, u8, "Comparisons of truth values.");

/// A type of which one of two elements is chosen by their bits, so that neither is read only where it is chosen.
pub trait Blend: Copy {
    /// `a` if `c` is not 0, else `b`.
    fn blend(c: u8, a: Self, b: Self) -> Self;
}

macro_rules! blend {
    ($($t:ty, $bits:ty, $of:expr, $to:expr;)*) => {
        $(impl Blend for $t {
            #[inline(always)]
            fn blend(c: u8, a: $t, b: $t) -> $t {
                let chosen = ((c != 0) as $bits).wrapping_neg();
                $of($to(a) & chosen | $to(b) & !chosen)
            }
        })*
    };
}
blend! {
    f32, u32, f32::from_bits, f32::to_bits;
    f64, u64, f64::from_bits, f64::to_bits;
    i64, i64, i64::from, i64::from;
    u8, u8, u8::from, u8::from;
}

simd! {
    /// `a` where `c` holds, else `b`.
    pub fn select<T: Blend>(d: &mut [T], c: Tile<'_, u8>, a: Tile<'_, T>, b: Tile<'_, T>) {
        #[inline(always)]
        fn choose<T: Blend>(d: &mut [T], c: &[u8], a: Tile<'_, T>, b: Tile<'_, T>) {
            let d = d.iter_mut().zip(c);
            match (a, b) {
                (Tile::Many(a), Tile::Many(b)) => {
                    d.zip(a).zip(b).for_each(|(((d, &c), &a), &b)| *d = T::blend(c, a, b));
                }
                (Tile::Many(a), Tile::One(b)) => {
                    d.zip(a).for_each(|((d, &c), &a)| *d = T::blend(c, a, b));
                }
                (Tile::One(a), Tile::Many(b)) => {
                    d.zip(b).for_each(|((d, &c), &b)| *d = T::blend(c, a, b));
                }
                (Tile::One(a), Tile::One(b)) => {
                    d.for_each(|(d, &c)| *d = T::blend(c, a, b));
                }
            }
        }
        match c {
            Tile::Many(c) => choose(d, c, a, b),
            Tile::One(c) => map1(d, if c != 0 { a } else { b }, |x| x),
        }
    }
}

simd! {
    /// Wraps integers to the range of `dtype`.
    pub fn wrap(d: &mut [i64], dtype: DType) {
        #[inline(always)]
        fn each(d: &mut [i64], f: impl Fn(i64) -> i64) {
            d.iter_mut().for_each(|x| *x = f(*x));
        }
        match dtype {
            DType::I8 => each(d, |x| x as i8 as i64),
            DType::I16 => each(d, |x| x as i16 as i64),
            DType::I32 => each(d, |x| x as i32 as i64),
            DType::U8 => each(d, |x| x as u8 as i64),
            DType::U16 => each(d, |x| x as u16 as i64),
            DType::U32 => each(d, |x| x as u32 as i64),
            small if small.is_small() => each(d, |x| small.wrap(x)),
            _ => {}
        }
    }
}

/// Truncates towards zero; what does not fit saturates at 64 bits, then wraps. NaN is zero.
pub fn float_to_int(x: f64, to: DType) -> i64 {
    match to {
        DType::U64 if x >= 9_223_372_036_854_775_808.0 => x as u64 as i64,
        DType::I8 => x as i64 as i8 as i64,
        DType::I16 => x as i64 as i16 as i64,
        DType::I32 => x as i64 as i32 as i64,
        DType::U8 => x as i64 as u8 as i64,
        DType::U16 => x as i64 as u16 as i64,
        DType::U32 => x as i64 as u32 as i64,
        _ => to.wrap(x as i64),
    }
}

/// Copies `a` through `f`.
pub fn convert<T: Copy, U>(d: &mut [U], a: Tile<'_, T>, f: impl Fn(T) -> U) {
    map1(d, a, f);
}

/// The nearest number of 16 bits, of two equally near ones the even one.
#[inline(always)]
pub(super) fn nearest_half(x: f32) -> f32 {
    let (bits, sign) = (x.to_bits() & 0x7fff_ffff, x.to_bits() & 0x8000_0000);
    let size = f32::from_bits(bits);
    // Ten bits of the fraction stay.
    let normal = f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff);
    let normal = if normal > 65504.0 { f32::INFINITY } else { normal };
    // The last place of a half is that of the small numbers.
    let small = (size + 0.5) - 0.5;
    let near = if size < 1.0 / 16384.0 { small } else { normal };
    let near = if size.is_nan() { f32::from_bits((bits | 0x0040_0000) & !0x1fff) } else { near };
    f32::from_bits(near.to_bits() | sign)
}

simd! {
    /// f32 rounded to floats of 16 bits.
    pub fn rounded_to_halves(d: &mut [f32], a: Tile<'_, f32>) {
        map1(d, a, nearest_half);
    }
}

simd! {
    /// Truth values as f32.
    pub fn truths_as_floats(d: &mut [f32], a: Tile<'_, u8>) {
        map1(d, a, |x| x as f32);
    }
}

simd! {
    /// Truth values as integers.
    pub fn truths_as_integers(d: &mut [i64], a: Tile<'_, u8>) {
        map1(d, a, |x| x as i64);
    }
}

simd! {
    /// Integers as f32.
    pub fn integers_as_floats(d: &mut [f32], a: Tile<'_, i64>) {
        map1(d, a, |x| x as f32);
    }
}

/// f32 cut to integers of a type.
pub fn floats_cut(d: &mut [i64], a: Tile<'_, f32>, to: DType) {
    match to {
        DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 if is_near(a) => {
            words_cut(d, a);
            if to != DType::I32 {
                wrap(d, to);
            }
        }
        _ => convert(d, a, |x| float_to_int(x as f64, to)),
    }
}

simd! {
    /// True if every number is one of 32 bits once it is cut, or NaN, which is cut to 0.
    fn is_near(a: Tile<'_, f32>) -> bool {
        let far = |x: f32| (x.abs() >= 2147483648.0) as u32;
        match a {
            Tile::Many(a) => a.iter().fold(0, |any, &x| any | far(x)) == 0,
            Tile::One(x) => far(x) == 0,
        }
    }
}

simd! {
    fn words_cut(d: &mut [i64], a: Tile<'_, f32>) {
        // SAFETY: the caller has seen that all numbers but NaN fit.
        map1(d, a, |x| i64::from(if x.is_nan() { 0 } else { unsafe { x.to_int_unchecked::<i32>() } }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn halves_have_the_bits_of_the_format() {
        let near = (0..=u16::MAX).flat_map(|h| {
            // Each number of the format, the middle between it and the next, and what is beside both.
            let bits = f16::from_bits(h).to_f32().to_bits();
            let middle = bits.wrapping_add(0x1000);
            [bits, bits.wrapping_add(1), middle.wrapping_sub(1), middle, middle.wrapping_add(1)]
        });
        let all = near.chain((0..=u32::MAX).step_by(4999)).chain(0x3280_0000..0x3280_0400);
        for bits in all {
            let x = f32::from_bits(bits);
            let want = f16::from_f32(x).to_f32();
            let got = nearest_half(x);
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{x:e} ({bits:#x}): {got:e} instead of {want:e}");
        }
    }
}
