//! Floats of at most 8 bits: what their codes mean, and the code nearest to a number.

/// What the codes beyond the largest number mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// As IEEE 754 says: infinities, and NaNs above them.
    Infinity,
    /// The code of all ones is NaN.
    LastIsNan,
    /// The code of a negative zero is the only NaN.
    ZeroIsNan,
    /// All codes are finite numbers.
    Finite,
}

/// A float format of at most 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFloat {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
    /// Without a sign there is neither zero nor a denormal number.
    signed: bool,
}

impl SmallFloat {
    pub(super) const E4M3FN: SmallFloat = SmallFloat::new(4, 3, 7, Special::LastIsNan);
    pub(super) const E4M3FNUZ: SmallFloat = SmallFloat::new(4, 3, 8, Special::ZeroIsNan);
    pub(super) const E5M2: SmallFloat = SmallFloat::new(5, 2, 15, Special::Infinity);
    pub(super) const E5M2FNUZ: SmallFloat = SmallFloat::new(5, 2, 16, Special::ZeroIsNan);
    pub(super) const E8M0: SmallFloat =
        SmallFloat { signed: false, ..SmallFloat::new(8, 0, 127, Special::LastIsNan) };
    pub(super) const E2M3: SmallFloat = SmallFloat::new(2, 3, 1, Special::Finite);
    pub(super) const E3M2: SmallFloat = SmallFloat::new(3, 2, 3, Special::Finite);
    pub(super) const E2M1: SmallFloat = SmallFloat::new(2, 1, 1, Special::Finite);

    const fn new(exponent: u32, mantissa: u32, bias: i32, special: Special) -> SmallFloat {
        SmallFloat { exponent, mantissa, bias, special, signed: true }
    }

    /// Half the distance between 1 and the next larger value.
    pub fn unit_roundoff(&self) -> f64 {
        0.5f64.powi(self.mantissa as i32 + 1)
    }

    /// The largest finite number.
    pub fn largest(&self) -> f64 {
        self.magnitude(self.last())
    }

    /// The smallest positive number.
    pub fn smallest(&self) -> f64 {
        self.magnitude(if self.signed { 1 } else { 0 })
    }

    /// The smallest normal number.
    pub fn smallest_normal(&self) -> f64 {
        self.magnitude(if self.signed { 1 << self.mantissa } else { 0 })
    }

    /// The number of the format's range nearest to `v`.
    pub fn clamp(&self, v: f64) -> f64 {
        match self.signed {
            true => v.clamp(-self.largest(), self.largest()),
            false => v.abs().clamp(self.smallest(), self.largest()),
        }
    }

    /// The bit of the sign; what is below is the magnitude.
    fn sign(&self) -> u8 {
        if self.signed { 1 << (self.exponent + self.mantissa) } else { 0 }
    }

    /// The magnitude of the largest finite number.
    fn last(&self) -> u8 {
        let ones = ((1u32 << (self.exponent + self.mantissa)) - 1) as u8;
        match self.special {
            Special::Finite | Special::ZeroIsNan => ones,
            Special::LastIsNan => ones - 1,
            Special::Infinity => ones - (1 << self.mantissa),
        }
    }

    /// The number of a magnitude that is one.
    fn magnitude(&self, code: u8) -> f64 {
        let exponent = i32::from(code) >> self.mantissa;
        let fraction = f64::from(code & ((1 << self.mantissa) - 1));
        let ulp = |e: i32| 2f64.powi(e - self.bias - self.mantissa as i32);
        match exponent {
            0 if self.signed => fraction * ulp(1),
            e => (fraction + f64::from(1u32 << self.mantissa)) * ulp(e),
        }
    }

    /// The number of a code; bits beyond the format's are ignored.
    pub fn decode(&self, code: u8) -> f64 {
        let sign = code & self.sign();
        let code = match self.signed {
            true => code & (self.sign() - 1),
            false => code,
        };
        let value = match self.special {
            Special::ZeroIsNan if sign != 0 && code == 0 => f64::NAN,
            Special::Infinity if code == self.last() + 1 => f64::INFINITY,
            Special::ZeroIsNan | Special::Finite => self.magnitude(code),
            _ if code > self.last() => f64::NAN,
            _ => self.magnitude(code),
        };
        if sign != 0 { value.copysign(-1.0) } else { value }
    }

    /// The code of the number nearest to `v`, ties to even. What rounds to more than the largest number becomes infinite,
    /// or NaN where there is no infinity, or the largest number where there is neither; NaN becomes 0 where there is none.
    pub fn encode(&self, v: f64) -> u8 {
        if !self.signed {
            return self.encode_power(v);
        }
        let sign = if v.is_sign_negative() { self.sign() } else { 0 };
        let code = if v.is_nan() { self.last() + 1 } else { self.round(v.abs()) };
        match self.special {
            Special::Finite if v.is_nan() => 0,
            Special::Finite => sign | code.min(self.last()),
            Special::ZeroIsNan if v.is_nan() || code > self.last() => self.sign(),
            Special::ZeroIsNan if code == 0 => 0,
            Special::Infinity if v.is_nan() => sign | (self.last() + 3),
            Special::Infinity | Special::LastIsNan => sign | code.min(self.last() + 1),
            Special::ZeroIsNan => sign | code,
        }
    }

    /// The magnitude nearest to `v`, ties to even; more than the last one is too large.
    fn round(&self, v: f64) -> u8 {
        let most = f64::from(self.last()) + 1.0;
        // Numbers below the smallest normal one share its distance.
        let exponent = (exponent_of(v) + self.bias).max(1);
        let ulp = 2f64.powi(exponent - self.bias - self.mantissa as i32);
        let steps = (v / ulp).round_ties_even();
        let below = f64::from((exponent - 1).min(1 << self.exponent) << self.mantissa);
        (below + steps).min(most) as u8
    }

    /// The power of two nearest to `v`, ties up; NaN outside the range of the format.
    fn encode_power(&self, v: f64) -> u8 {
        if !(self.smallest()..=self.largest()).contains(&v) {
            return self.last() + 1;
        }
        let exponent = exponent_of(v);
        let up = v >= 1.5 * 2f64.powi(exponent);
        (exponent + self.bias + i32::from(up)) as u8
    }

    /// The number of the format nearest to `v`, as [`SmallFloat::encode`] rounds.
    pub fn nearest(&self, v: f64) -> f64 {
        self.decode(self.encode(v))
    }
}

/// The exponent of a float that is not negative; of those below the normal ones, a lower bound.
fn exponent_of(v: f64) -> i32 {
    (v.to_bits() >> 52) as i32 - 1023
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [SmallFloat; 8] = [
        SmallFloat::E4M3FN,
        SmallFloat::E4M3FNUZ,
        SmallFloat::E5M2,
        SmallFloat::E5M2FNUZ,
        SmallFloat::E8M0,
        SmallFloat::E2M3,
        SmallFloat::E3M2,
        SmallFloat::E2M1,
    ];

    fn codes(f: &SmallFloat) -> std::ops::RangeInclusive<u8> {
        let magnitudes = (1u32 << (f.exponent + f.mantissa)) - 1;
        0..=(magnitudes as u8 | f.sign())
    }

    #[test]
    fn every_code_is_the_code_of_its_number() {
        for f in ALL {
            for code in codes(&f) {
                let v = f.decode(code);
                let back = f.encode(v);
                match v.is_nan() {
                    true => assert!(f.decode(back).is_nan(), "{f:?} {code:#x}"),
                    false => assert_eq!(back, code, "{f:?} {v}"),
                }
            }
        }
    }

    #[test]
    fn known_numbers() {
        let largest: Vec<f64> = ALL.iter().map(SmallFloat::largest).collect();
        assert_eq!(largest, [448.0, 240.0, 57344.0, 57344.0, 2f64.powi(127), 7.5, 28.0, 6.0]);
        let smallest: Vec<f64> = ALL.iter().map(SmallFloat::smallest).collect();
        let powers = [-9, -10, -16, -17, -127, -3, -4, -1].map(|e| 2f64.powi(e));
        assert_eq!(smallest, powers);
        assert_eq!(SmallFloat::E4M3FN.decode(0x38), 1.0);
        assert_eq!(SmallFloat::E5M2.decode(0xc4), -4.0);
    }

    /// Between neighbours the nearer one is taken, and of a tie the even one; the same from floats of 32 bits.
    #[test]
    fn numbers_between_codes_round_to_the_nearer_one() {
        for f in ALL.iter().filter(|f| f.signed) {
            for code in 0..f.last() {
                let (a, b) = (f.magnitude(code), f.magnitude(code + 1));
                let middle = f64::midpoint(a, b);
                assert_eq!(f64::from(middle as f32), middle);
                let even = if code % 2 == 0 { a } else { b };
                let next = |v: f64| f64::from((v as f32).next_up());
                let before = |v: f64| f64::from((v as f32).next_down());
                let cases = [(middle, even), (next(middle), b), (before(middle), a), (next(a), a)];
                for (v, wanted) in cases {
                    assert_eq!(f.nearest(v), wanted, "{f:?} {v}");
                    assert_eq!(f.nearest(-v), -wanted, "{f:?} -{v}");
                }
            }
        }
    }

    #[test]
    fn powers_of_two_round_to_the_nearer_one() {
        let f = SmallFloat::E8M0;
        for code in 0..f.last() {
            let a = f.magnitude(code);
            let middle = 1.5 * a;
            assert_eq!(f.encode(middle), code + 1);
            assert_eq!(f.encode(middle.next_down()), code);
        }
        for v in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, 2f64.powi(-128), 1.7e308] {
            assert_eq!(f.encode(v), 0xff, "{v}");
        }
        assert_eq!(f.encode(f.largest().next_up()), 0xff);
    }

    #[test]
    fn what_is_too_large_and_nan() {
        for (f, large, nan, infinite) in [
            (SmallFloat::E4M3FN, 0x7f, 0x7f, 0x7f),
            (SmallFloat::E4M3FNUZ, 0x80, 0x80, 0x80),
            (SmallFloat::E5M2, 0x7c, 0x7e, 0x7c),
            (SmallFloat::E5M2FNUZ, 0x80, 0x80, 0x80),
            (SmallFloat::E2M3, 0x1f, 0, 0x1f),
            (SmallFloat::E3M2, 0x1f, 0, 0x1f),
            (SmallFloat::E2M1, 7, 0, 7),
        ] {
            // Half a step beyond the largest number, a tie, is away from it, as the step is even.
            let step = f.largest() - f.magnitude(f.last() - 1);
            let tie = f.largest() + step / 2.0;
            let odd = f.last() % 2 == 1;
            let at_tie = if odd { large } else { f.last() };
            assert_eq!(f.encode(tie), at_tie, "{f:?}");
            assert_eq!(f.encode(tie.next_down()), f.last(), "{f:?}");
            assert_eq!(f.encode(tie.next_up()), large, "{f:?}");
            assert_eq!(f.encode(f64::INFINITY), infinite, "{f:?}");
            assert_eq!(f.encode(f64::NAN), nan, "{f:?}");
            assert_eq!(f.encode(1e300), large, "{f:?}");
        }
        assert_eq!(SmallFloat::E4M3FN.encode(-1e9), 0xff);
        assert_eq!(SmallFloat::E5M2.encode(f64::NEG_INFINITY), 0xfc);
        assert_eq!(SmallFloat::E2M1.encode(-1e9), 0xf);
    }

    #[test]
    fn zeros_keep_their_sign_where_there_are_two() {
        for f in ALL.iter().filter(|f| f.signed) {
            let negative = if f.special == Special::ZeroIsNan { 0 } else { f.sign() };
            assert_eq!(f.encode(0.0), 0, "{f:?}");
            assert_eq!(f.encode(-0.0), negative, "{f:?}");
            assert_eq!(f.encode(-f.smallest() / 2.0), negative, "{f:?}");
            assert_eq!(f.encode(f64::MIN_POSITIVE / 4.0), 0, "{f:?}");
        }
    }
}
