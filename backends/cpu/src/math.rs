//! Elementary functions on f32, written so that loops over them vectorise, and the few that `std` lacks.
//!
//! Errors stay within 4 ulp over the whole range; NaN, infinities, signed zeros and denormals follow IEEE 754.
//! No tables, no branches: both sides of a case distinction are computed and one is selected.

// The coefficients are written as they were fitted, in decimal.
#![allow(clippy::excessive_precision, reason = "minimax coefficients keep their published digits")]

/// 1.5 · 2^23: adding it rounds to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `2^n` times `x` for integral `n` in -252..=254, denormal results included.
#[inline(always)]
pub fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let a = f32::from_bits(((half + 127) as u32) << 23);
    let b = f32::from_bits(((n - half + 127) as u32) << 23);
    x * a * b
}

/// Natural exponential.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite; a comparison, unlike `clamp`, lets the loop vectorise and keeps NaN.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let j = shifted - ROUND;
    let f = j.mul_add(-6.931_457_52e-1, x);
    let f = j.mul_add(-1.428_606_77e-6, f);
    let mut r = 1.378_059_39e-3f32;
    r = r.mul_add(f, 8.373_124_52e-3);
    r = r.mul_add(f, 4.166_953_64e-2);
    r = r.mul_add(f, 1.666_647_20e-1);
    r = r.mul_add(f, 4.999_998_51e-1);
    r = r.mul_add(f, 1.0);
    r = r.mul_add(f, 1.0);
    // A NaN has arbitrary low bits; the clamp keeps the exponents in range and NaN times anything is NaN.
    scale(r, n.clamp(-200, 200))
}

/// Natural logarithm; NaN below zero.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let a = if tiny { x * 8_388_608.0 } else { x };
    let bias = if tiny { -23.0 } else { 0.0 };
    let e = (a.to_bits().wrapping_sub(0x3f2a_aaab)) & 0xff80_0000;
    let m = f32::from_bits(a.to_bits().wrapping_sub(e)) - 1.0;
    let i = ((e as i32) as f32).mul_add(1.192_092_896e-7, bias);
    let s = m * m;
    let mut r = -0.130_310_059f32;
    let mut t = 0.140_869_141f32;
    r = r.mul_add(s, -0.121_484_190);
    t = t.mul_add(s, 0.139_814_854);
    r = r.mul_add(s, -0.166_846_052);
    t = t.mul_add(s, 0.200_120_345);
    r = r.mul_add(s, -0.249_996_200);
    r = t.mul_add(m, r);
    r = r.mul_add(m, 0.333_331_972);
    r = r.mul_add(m, -0.5);
    r = r.mul_add(s, m);
    r = i.mul_add(0.693_147_182, r);
    let r = if x < f32::INFINITY { r } else { x };
    let r = if x == 0.0 { f32::NEG_INFINITY } else { r };
    if x < 0.0 { f32::NAN } else { r }
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let s = x * x;
    let large = 1.0 - 2.0 / (exp(2.0 * t) + 1.0);
    let mut r = 1.573_944_09e-2f32;
    r = r.mul_add(s, -5.230_255_80e-2);
    r = r.mul_add(s, 1.331_524_70e-1);
    r = r.mul_add(s, -3.333_276_81e-1);
    // The sum with zero makes a product of -0 positive, so that the sign of x = -0 survives.
    let small = r.mul_add(s, 0.0).mul_add(x, x);
    // NaN fails the comparison and takes the side that carries it.
    if t > 0.599_609_375 { large.copysign(x) } else { small }
}

/// Gauss error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > 4.0 { 4.0 } else { t };
    let s = t * t;
    let u = (-3.883_964_38e-3f32).mul_add(t, 2.425_462_19e-2);
    let mut l = (-1.728_534_70e-5f32).mul_add(t, 3.831_971_26e-4);
    l = l.mul_add(s, u);
    l = l.mul_add(t, -1.067_778_77e-1);
    l = l.mul_add(t, -6.348_466_87e-1);
    l = l.mul_add(t, -1.287_175_12e-1);
    l = l.mul_add(t, -t);
    let large = (1.0 - exp(l)).copysign(x);
    let mut r = -5.967_617_03e-4f32;
    r = r.mul_add(s, 4.991_194_23e-3);
    r = r.mul_add(s, -2.676_813_49e-2);
    r = r.mul_add(s, 1.128_199_25e-1);
    r = r.mul_add(s, -3.761_253_36e-1);
    r = r.mul_add(s, 1.283_791_66e-1);
    let small = r.mul_add(x, x);
    if t > 0.927_734_375 { large } else { small }
}

/// The largest number whose quarter turns [`sin`] and [`cos`] count.
pub const TURNS: f32 = 65536.0;

/// How far a number is from the nearest multiple of a quarter turn, and the number of quarter turns.
#[inline(always)]
fn turns(x: f32) -> (f32, u32) {
    let shifted = x.mul_add(std::f32::consts::FRAC_2_PI, ROUND);
    let n = shifted - ROUND;
    // A quarter turn is the sum of the three; the first difference is exact.
    let r = n.mul_add(-1.570_796_37, x);
    let r = n.mul_add(4.371_138_83e-8, r);
    (n.mul_add(1.715_124_5e-15, r), shifted.to_bits())
}

/// The sine or cosine of what is left after `n` quarter turns.
#[inline(always)]
fn wave(r: f32, n: u32) -> f32 {
    let s = r * r;
    let mut p = -1.951_529_59e-4f32;
    p = p.mul_add(s, 8.332_160_87e-3);
    p = p.mul_add(s, -1.666_665_46e-1);
    let sine = (p * s).mul_add(r, r);
    let mut q = 2.443_315_71e-5f32;
    q = q.mul_add(s, -1.388_731_63e-3);
    q = q.mul_add(s, 4.166_664_57e-2);
    let cosine = (q * s).mul_add(s, s.mul_add(-0.5, 1.0));
    let size = if n & 1 == 0 { sine } else { cosine };
    f32::from_bits(size.to_bits() ^ (n & 2) << 30)
}

/// Sine of at most [`TURNS`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (r, n) = turns(x);
    // Zeros keep their signs.
    if x == 0.0 { x } else { wave(r, n) }
}

/// Cosine of at most [`TURNS`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (r, n) = turns(x);
    wave(r, n.wrapping_add(1))
}

/// Logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // One exponential of a non-positive number: neither side overflows.
    let e = exp(-x.abs());
    let over = if x < 0.0 { e } else { 1.0 };
    over / (1.0 + e)
}

/// The larger; NaN if either is; of two zeros the positive one.
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    let m = if a > b { a } else { b };
    // What is equal has equal bits, zeros of both signs aside: there the sign must be in both.
    let m = if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { m };
    // `b` was taken if it is NaN or `a` is; only the second needs mending.
    if a.is_nan() { a } else { m }
}

/// The smaller; NaN if either is; of two zeros the negative one.
#[inline(always)]
pub fn minimum(a: f32, b: f32) -> f32 {
    let m = if a < b { a } else { b };
    let m = if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { m };
    if a.is_nan() { a } else { m }
}

/// The larger; NaN if either is; of two zeros the positive one.
#[inline(always)]
pub fn maximum_f64(a: f64, b: f64) -> f64 {
    match a == b {
        true => f64::from_bits(a.to_bits() & b.to_bits()),
        false => {
            if a.is_nan() || a > b {
                a
            } else {
                b
            }
        }
    }
}

/// The smaller; NaN if either is; of two zeros the negative one.
#[inline(always)]
pub fn minimum_f64(a: f64, b: f64) -> f64 {
    match a == b {
        true => f64::from_bits(a.to_bits() | b.to_bits()),
        false => {
            if a.is_nan() || a < b {
                a
            } else {
                b
            }
        }
    }
}

/// Gauss error function on f64.
pub fn erf_f64(x: f64) -> f64 {
    libm::erf(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the correctly rounded result.
    fn ulps(got: f32, want: f64) -> f64 {
        let near = want as f32;
        if got.to_bits() == near.to_bits() || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        if !near.is_finite() || !got.is_finite() {
            return f64::INFINITY;
        }
        let bits = near.abs().to_bits();
        let ulp = f32::from_bits(bits + 1) as f64 - near.abs() as f64;
        (got as f64 - want).abs() / ulp
    }

    fn check(name: &str, f: fn(f32) -> f32, truth: fn(f64) -> f64) {
        let mut worst = (0.0, 0.0);
        let special =
            [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, -1e-45, 88.8, -103.9];
        let all = (0..=u32::MAX).step_by(997).map(f32::from_bits);
        for x in special.into_iter().chain(all) {
            let e = ulps(f(x), truth(x as f64));
            if e > worst.0 {
                worst = (e, x);
            }
        }
        assert!(worst.0 <= 4.0, "{name}: {} ulp at {:e}", worst.0, worst.1);
    }

    #[test]
    fn functions_stay_within_four_ulp() {
        check("exp", exp, f64::exp);
        check("log", log, f64::ln);
        check("tanh", tanh, f64::tanh);
        check("erf", erf, erf_f64);
        check("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
        // What lies further is not theirs.
        fn near(x: f64) -> f64 {
            if x.abs() > TURNS.into() { 0.0 } else { x }
        }
        check("sin", |x| sin(near(x.into()) as f32), |x| near(x).sin());
        check("cos", |x| cos(near(x.into()) as f32), |x| near(x).cos());
    }

    #[test]
    fn signs_of_zero_survive() {
        for f in [tanh, erf, sin] {
            assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
            assert_eq!(f(0.0).to_bits(), 0);
        }
    }
}
