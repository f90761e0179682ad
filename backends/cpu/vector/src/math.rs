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

/// A function by polynomials around sixteen places at equal distances from zero on, its last one before it is constant.
pub struct Places<const N: usize> {
    /// Coefficients of each power at each place.
    pub coefficients: [[f32; 16]; N],
    /// From one place to the next.
    pub step: f32,
    /// How many there are in a unit.
    pub steps: f32,
    /// The last number that is nearer to the last place than to the next.
    pub end: f32,
}

/// An odd function from its magnitudes.
#[inline(always)]
fn odd<const N: usize>(p: &Places<N>, x: f32) -> f32 {
    let t = x.abs();
    let t = if t > p.end { p.end } else { t };
    let shifted = t.mul_add(p.steps, ROUND);
    // Of a NaN any place will do.
    let place = shifted.to_bits() as usize % 16;
    let f = (shifted - ROUND).mul_add(-p.step, t);
    let mut r = p.coefficients[N - 1][place];
    for c in p.coefficients[..N - 1].iter().rev() {
        r = r.mul_add(f, c[place]);
    }
    r.copysign(x)
}

/// [`tanh`] of magnitudes.
#[rustfmt::skip]
pub static TANH: Places<8> = Places { coefficients: [
    [0.0, 5.239_856_24e-1, 8.222_213_98e-1, 9.408_559_80e-1, 9.811_429_98e-1, 9.940_716_03e-1, 9.981_445_07e-1, 9.994_200_47e-1, 9.998_188_02e-1, 9.999_434_35e-1, 9.999_822_97e-1, 9.999_944_57e-1, 9.999_982_71e-1, 9.999_994_64e-1, 9.999_998_21e-1, 9.999_999_40e-1],
    [1.000_000_00e0, 7.254_389_52e-1, 3.239_519_30e-1, 1.147_900_15e-1, 3.735_839_95e-2, 1.182_162_85e-2, 3.707_565_13e-3, 1.159_530_60e-3, 3.623_219_09e-4, 1.131_847_53e-4, 3.535_443_83e-5, 1.104_303_37e-5, 3.449_285_94e-6, 1.077_379_92e-6, 3.365_179_28e-7, 1.051_108_21e-7],
    [-1.102_933_78e-7, -3.801_164_93e-1, -2.663_600_15e-1, -1.080_003_01e-1, -3.665_322_44e-2, -1.175_061_89e-2, -3.701_757_64e-3, -1.156_997_40e-3, -3.602_958_75e-4, -1.159_348_61e-4, -3.297_179_14e-5, -8.992_075_89e-6, -3.081_611_57e-6, -1.289_874_04e-6, 6.610_551_96e-7, 5.611_286_16e-7],
    [-3.333_263_10e-1, -4.262_683_54e-2, 1.110_262_13e-1, 6.334_999_20e-2, 2.351_033_13e-2, 7.741_368_38e-3, 2.457_949_33e-3, 7.716_827_68e-4, 2.414_183_98e-4, 7.544_286_93e-5, 2.356_851_47e-5, 7.361_917_14e-6, 2.299_522_29e-6, 7.182_550_80e-7, 2.243_460_67e-7, 7.007_398_75e-8],
    [-1.485_231_77e-4, 1.489_662_68e-1, -2.490_083_22e-3, -2.362_111_21e-2, -1.086_606_83e-2, -3.800_100_41e-3, -1.194_461_02e-3, -4.288_909_55e-4, -1.669_353_81e-4, 2.741_992_47e-5, -6.806_536_84e-5, -5.213_944_31e-5, -9.836_993_74e-6, 4.661_735_15e-6, -2.368_290_92e-5, -1.577_699_73e-5],
    [1.347_527_50e-1, -4.795_303_94e-2, -2.783_773_28e-2, 3.640_566_25e-3, 3.628_887_93e-3, 1.437_384_64e-3, 4.809_603_56e-4, 1.531_031_88e-4, 4.813_680_79e-5, 1.509_674_71e-5, 4.709_127_55e-6, 1.471_739_10e-6, 4.596_620_04e-7, 1.435_866_32e-7, 4.484_713_40e-8, 1.401_132_81e-8],
    [-6.541_887_76e-3, -3.258_029_37e-2, 1.739_578_88e-2, 2.260_131_06e-3, -6.376_819_80e-4, -2.850_609_89e-4, -3.277_042_41e-4, 2.457_057_71e-4, 2.965_279_56e-4, -4.447_670_07e-4, 3.783_704_01e-4, 3.266_435_23e-4, 5.849_208_17e-5, -3.394_349_19e-5, 1.591_081_82e-4, 1.062_674_05e-4],
    [-4.135_921_22e-2, 3.104_325_76e-2, -2.730_992_16e-3, -1.986_420_25e-3, 3.615_951_94e-5, 1.008_790_50e-4, 3.977_584_86e-5, 1.530_438_02e-5, 4.853_800_42e-6, 1.319_686_13e-6, 4.756_681_45e-7, 1.451_145_55e-7, 4.553_750_44e-8, 1.414_827_01e-8, 4.444_807_63e-9, 1.367_152_84e-9],
], step: 5.818_181_63e-1, steps: 1.718_75, end: 9.018 };

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    odd(&TANH, x)
}

/// [`erf`] of magnitudes.
#[rustfmt::skip]
pub static ERF: Places<6> = Places { coefficients: [
    [0.0, 2.848_574_82e-1, 5.345_588_33e-1, 7.264_285_68e-1, 8.556_641_34e-1, 9.319_674_97e-1, 9.714_576_01e-1, 9.893_723_13e-1, 9.964_959_62e-1, 9.989_787_94e-1, 9.997_373_22e-1, 9.999_404_55e-1, 9.999_880_79e-1, 9.999_979_14e-1, 9.999_997_02e-1, 9.999_999_40e-1],
    [1.128_379_23e0, 1.055_679_92e0, 8.644_974_23e-1, 6.196_543_57e-1, 3.887_672_42e-1, 2.134_932_43e-1, 1.026_202_07e-1, 4.317_536_21e-2, 1.589_981_09e-2, 5.125_136_58e-3, 1.446_008_22e-3, 3.571_094_71e-4, 7.717_662_81e-5, 1.460_798_19e-5, 2.438_421_92e-6, 3.368_157_88e-7],
    [-5.693_106_69e-6, -2.724_274_10e-1, -4.461_774_83e-1, -4.797_244_07e-1, -4.013_151_23e-1, -2.754_718_07e-1, -1.588_921_25e-1, -7.799_386_23e-2, -3.283_087_16e-2, -1.189_732_37e-2, -3.728_557_61e-3, -1.017_491_68e-3, -2.327_990_37e-4, -5.005_528_15e-5, -1.477_133_36e-5, 2.415_530_16e-6],
    [-3.759_783_21e-1, -3.050_435_19e-1, -1.346_315_15e-1, 4.105_871_54e-2, 1.465_826_63e-1, 1.658_067_55e-1, 1.298_202_87e-1, 7.954_017_07e-2, 3.989_402_20e-2, 1.672_269_78e-2, 5.938_521_12e-3, 1.797_447_80e-3, 4.711_958_46e-4, 1.039_397_18e-4, 1.549_702_76e-5, 6.695_287_08e-6],
    [-1.377_910_14e-3, 1.291_570_07e-1, 1.819_076_54e-1, 1.432_200_97e-1, 5.858_793_48e-2, -1.492_175_93e-2, -4.740_760_85e-2, -4.574_234_41e-2, -2.998_063_53e-2, -1.580_515_69e-2, -6.609_079_89e-3, -2.056_680_39e-3, -9.535_198_33e-4, -1.113_046_75e-4, 2.554_599_49e-4, -1.875_240_70e-4],
    [1.166_388_24e-1, 7.880_916_45e-2, 2.342_671_85e-3, -5.686_423_93e-2, -6.784_893_57e-2, -4.204_792_53e-2, -9.864_130_99e-3, 9.000_792_17e-3, 1.223_499_05e-2, 9.346_048_35e-3, 4.831_153_90e-3, 2.079_283_82e-3, 4.990_987_95e-4, 2.216_215_65e-4, 2.710_535_77e-4, -1.503_705_28e-4],
], step: 2.580_645_08e-1, steps: 3.875, end: 3.999_999_76 };

/// Gauss error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    odd(&ERF, x)
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
