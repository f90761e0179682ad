//! Element types.

use super::small_float::SmallFloat;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 8 bit.
    I8,
    /// Signed 16 bit.
    I16,
    /// Signed 32 bit.
    I32,
    /// Signed 64 bit.
    I64,
    /// Unsigned 8 bit.
    U8,
    /// Unsigned 16 bit.
    U16,
    /// Unsigned 32 bit.
    U32,
    /// Unsigned 64 bit.
    U64,
    /// One byte, 0 or 1.
    Bool,
    /// 8 bits: sign, 4 of exponent, 3 of mantissa; no infinity.
    F8E4M3FN,
    /// The same with another bias, one NaN, no infinity and no negative zero.
    F8E4M3FNUZ,
    /// 8 bits: sign, 5 of exponent, 2 of mantissa; the upper half of a binary16.
    F8E5M2,
    /// The same with another bias, one NaN, no infinity and no negative zero.
    F8E5M2FNUZ,
    /// 8 bits of exponent: the powers of two from -127 to 127, and NaN; no zero, no sign.
    F8E8M0,
    /// 6 bits: sign, 2 of exponent, 3 of mantissa; finite numbers only.
    F6E2M3,
    /// 6 bits: sign, 3 of exponent, 2 of mantissa; finite numbers only.
    F6E3M2,
    /// 4 bits: sign, 2 of exponent, 1 of mantissa; finite numbers only.
    F4E2M1,
    /// Signed 4 bit.
    I4,
    /// Unsigned 4 bit.
    U4,
    /// Signed 2 bit.
    I2,
    /// Unsigned 2 bit.
    U2,
    /// Text; see [`super::strings`].
    Str,
}

impl DType {
    /// Every element type but `str`, in declaration order: those whose elements are numbers or truth values.
    pub const ALL: [DType; 25] = [
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0,
        DType::F6E2M3,
        DType::F6E3M2,
        DType::F4E2M1,
        DType::I4,
        DType::U4,
        DType::I2,
        DType::U2,
    ];

    /// Bytes per element in memory, where elements of fewer than 8 bits have a byte each.
    pub fn size(self) -> usize {
        match self {
            small if small.is_small() => 1,
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            _ => 8,
        }
    }

    /// Bits per element in a packed file.
    pub fn bits(self) -> usize {
        match self {
            DType::F6E2M3 | DType::F6E3M2 => 6,
            DType::F4E2M1 | DType::I4 | DType::U4 => 4,
            DType::I2 | DType::U2 => 2,
            _ => 8 * self.size(),
        }
    }

    /// True for floats of at most 8 bits and integers of fewer: they are stored, moved and cast, never computed with, and
    /// belong to no family of types.
    pub fn is_small(self) -> bool {
        self.small_float().is_some()
            || matches!(self, DType::I4 | DType::U4 | DType::I2 | DType::U2)
    }

    /// The format of a float of at most 8 bits.
    pub fn small_float(self) -> Option<&'static SmallFloat> {
        Some(match self {
            DType::F8E4M3FN => &SmallFloat::E4M3FN,
            DType::F8E4M3FNUZ => &SmallFloat::E4M3FNUZ,
            DType::F8E5M2 => &SmallFloat::E5M2,
            DType::F8E5M2FNUZ => &SmallFloat::E5M2FNUZ,
            DType::F8E8M0 => &SmallFloat::E8M0,
            DType::F6E2M3 => &SmallFloat::E2M3,
            DType::F6E3M2 => &SmallFloat::E3M2,
            DType::F4E2M1 => &SmallFloat::E2M1,
            _ => return None,
        })
    }

    /// True for the floats of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// True for the floating types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
            || self.small_float().is_some()
    }

    /// True for the integer types, `bool` and `str` not among them.
    pub fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool | DType::Str)
    }

    /// The name used in `.rules` texts.
    pub fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E4M3FNUZ => "f8e4m3fnuz",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2FNUZ => "f8e5m2fnuz",
            DType::F8E8M0 => "f8e8m0",
            DType::F6E2M3 => "f6e2m3",
            DType::F6E3M2 => "f6e3m2",
            DType::F4E2M1 => "f4e2m1",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::I2 => "i2",
            DType::U2 => "u2",
            DType::Str => "str",
        }
    }

    /// Half the distance between 1 and the next larger value; 0 for integers.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F16 => (0.5f64).powi(11),
            DType::BF16 => (0.5f64).powi(8),
            DType::F32 => (0.5f64).powi(24),
            DType::F64 => (0.5f64).powi(53),
            _ => self.small_float().map_or(0.0, SmallFloat::unit_roundoff),
        }
    }

    /// The largest finite number of a floating type; infinity for the others.
    pub fn largest(self) -> f64 {
        match self {
            DType::F16 => 65504.0,
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F32 => f32::MAX.into(),
            DType::F64 => f64::MAX,
            _ => self.small_float().map_or(f64::INFINITY, SmallFloat::largest),
        }
    }

    /// True of a number that is finite, but not in this type.
    pub fn overflows(self, v: f64) -> bool {
        v.is_finite() && v.abs() > self.largest()
    }

    /// True if a number of this type and the float `v` are the same: an integer has no fraction, lies in the type's
    /// range, and is no larger than what every float of 64 bits tells from its neighbours; a small float is that number.
    pub fn is_exact(self, v: f64) -> bool {
        const MOST: f64 = (1u64 << 53) as f64;
        match self.int_range() {
            Some((low, high)) => {
                v.fract() == 0.0 && v.abs() <= MOST && (low..=high).contains(&(v as i128))
            }
            None => self.small_float().is_none_or(|s| s.nearest(v) == v || v.is_nan()),
        }
    }

    /// The inclusive range of an integer type, `bool` as 0..=1; `None` for floats.
    pub fn int_range(self) -> Option<(i128, i128)> {
        Some(match self {
            DType::I8 => (i8::MIN as i128, i8::MAX as i128),
            DType::I16 => (i16::MIN as i128, i16::MAX as i128),
            DType::I32 => (i32::MIN as i128, i32::MAX as i128),
            DType::I64 => (i64::MIN as i128, i64::MAX as i128),
            DType::U8 => (0, u8::MAX as i128),
            DType::U16 => (0, u16::MAX as i128),
            DType::U32 => (0, u32::MAX as i128),
            DType::U64 => (0, u64::MAX as i128),
            DType::Bool => (0, 1),
            DType::I4 => (-8, 7),
            DType::U4 => (0, 15),
            DType::I2 => (-2, 1),
            DType::U2 => (0, 3),
            _ => return None,
        })
    }
}

impl DType {
    /// The integer of this type that equals `v` modulo the type's size; of `bool`, whether `v` is not 0. Floats leave it.
    pub fn wrap(self, v: i64) -> i64 {
        match self {
            DType::I8 => v as i8 as i64,
            DType::I16 => v as i16 as i64,
            DType::I32 => v as i32 as i64,
            DType::U8 => v as u8 as i64,
            DType::U16 => v as u16 as i64,
            DType::U32 => v as u32 as i64,
            DType::Bool => (v != 0) as i64,
            DType::I4 => v << 60 >> 60,
            DType::U4 => v & 0xf,
            DType::I2 => v << 62 >> 62,
            DType::U2 => v & 3,
            _ => v,
        }
    }
}

impl DType {
    /// The byte that an element of a small type has in memory: a signed integer fills it with its sign, all others with
    /// zeros.
    pub fn canonical(self, byte: u8) -> u8 {
        match self {
            DType::F6E2M3 | DType::F6E3M2 => byte & 0x3f,
            DType::F4E2M1 => byte & 0xf,
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => self.wrap(byte.into()) as u8,
            _ => byte,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(s: &str) -> Result<DType, ()> {
        DType::ALL.into_iter().chain([DType::Str]).find(|d| d.name() == s).ok_or(())
    }
}
