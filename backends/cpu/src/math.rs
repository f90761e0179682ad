//! Elementary functions on f32, written so that loops over them vectorise, and the few that `std` lacks.
//!
//! Errors stay within 4 ulp over the whole range; NaN, infinities, signed zeros and denormals follow IEEE 754.
//! No branches: both sides of a case distinction are computed and one is selected.

// The coefficients are written as they were fitted, in decimal.
#![allow(clippy::excessive_precision, reason = "minimax coefficients keep their published digits")]

/// 1.5 · 2^23: adding it rounds to an integer, which then stands in the low bits.
pub const ROUND: f32 = 12_582_912.0;

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

/// Coefficients of [`erf`] around the multiples of [`ERF_STEP`], from that of the power 0 on.
#[rustfmt::skip]
pub static ERF: [[f32; 16]; 6] = [
    [0.0, 2.848_574_82e-1, 5.345_588_33e-1, 7.264_285_68e-1, 8.556_641_34e-1, 9.319_674_97e-1, 9.714_576_01e-1, 9.893_723_13e-1, 9.964_959_62e-1, 9.989_787_94e-1, 9.997_373_22e-1, 9.999_404_55e-1, 9.999_880_79e-1, 9.999_979_14e-1, 9.999_997_02e-1, 9.999_999_40e-1],
    [1.128_379_23e0, 1.055_679_92e0, 8.644_974_23e-1, 6.196_543_57e-1, 3.887_672_42e-1, 2.134_932_43e-1, 1.026_202_07e-1, 4.317_536_21e-2, 1.589_981_09e-2, 5.125_136_58e-3, 1.446_008_22e-3, 3.571_094_71e-4, 7.717_662_81e-5, 1.460_798_19e-5, 2.438_421_92e-6, 3.368_157_88e-7],
    [-5.693_106_69e-6, -2.724_274_10e-1, -4.461_774_83e-1, -4.797_244_07e-1, -4.013_151_23e-1, -2.754_718_07e-1, -1.588_921_25e-1, -7.799_386_23e-2, -3.283_087_16e-2, -1.189_732_37e-2, -3.728_557_61e-3, -1.017_491_68e-3, -2.327_990_37e-4, -5.005_528_15e-5, -1.477_133_36e-5, 2.415_530_16e-6],
    [-3.759_783_21e-1, -3.050_435_19e-1, -1.346_315_15e-1, 4.105_871_54e-2, 1.465_826_63e-1, 1.658_067_55e-1, 1.298_202_87e-1, 7.954_017_07e-2, 3.989_402_20e-2, 1.672_269_78e-2, 5.938_521_12e-3, 1.797_447_80e-3, 4.711_958_46e-4, 1.039_397_18e-4, 1.549_702_76e-5, 6.695_287_08e-6],
    [-1.377_910_14e-3, 1.291_570_07e-1, 1.819_076_54e-1, 1.432_200_97e-1, 5.858_793_48e-2, -1.492_175_93e-2, -4.740_760_85e-2, -4.574_234_41e-2, -2.998_063_53e-2, -1.580_515_69e-2, -6.609_079_89e-3, -2.056_680_39e-3, -9.535_198_33e-4, -1.113_046_75e-4, 2.554_599_49e-4, -1.875_240_70e-4],
    [1.166_388_24e-1, 7.880_916_45e-2, 2.342_671_85e-3, -5.686_423_93e-2, -6.784_893_57e-2, -4.204_792_53e-2, -9.864_130_99e-3, 9.000_792_17e-3, 1.223_499_05e-2, 9.346_048_35e-3, 4.831_153_90e-3, 2.079_283_82e-3, 4.990_987_95e-4, 2.216_215_65e-4, 2.710_535_77e-4, -1.503_705_28e-4],
];

/// From a place that [`erf`] is developed around to the next, and how many there are in a unit.
pub const ERF_STEP: f32 = 2.580_645_08e-1;
/// See [`ERF_STEP`].
pub const ERF_STEPS: f32 = 3.875;
/// From here on [`erf`] is one; the last number that is nearer to the last place of its table than to the next.
pub const ERF_END: f32 = 3.999_999_76;

/// Gauss error function: a polynomial around the nearest of sixteen places.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let t = x.abs();
    let t = if t > ERF_END { ERF_END } else { t };
    let shifted = t.mul_add(ERF_STEPS, ROUND);
    // Of a NaN any place will do.
    let of = |power: usize| ERF[power][shifted.to_bits() as usize % 16];
    let f = (shifted - ROUND).mul_add(-ERF_STEP, t);
    let r = of(5).mul_add(f, of(4)).mul_add(f, of(3)).mul_add(f, of(2));
    r.mul_add(f, of(1)).mul_add(f, of(0)).copysign(x)
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
