//! Element types.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 13] = [
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
    ];

    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// True for the floating types.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// True for the integer types, `bool` not among them.
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
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
        }
    }

    /// Half the distance between 1 and the next larger value; 0 for integers.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            DType::F16 => (0.5f64).powi(11),
            DType::BF16 => (0.5f64).powi(8),
            DType::F32 => (0.5f64).powi(24),
            DType::F64 => (0.5f64).powi(53),
            _ => 0.0,
        }
    }

    /// The largest finite number of a floating type; infinity for the others.
    pub fn largest(self) -> f64 {
        match self {
            DType::F16 => 65504.0,
            DType::BF16 => 3.389_531_389_251_535_5e38,
            DType::F32 => f32::MAX.into(),
            DType::F64 => f64::MAX,
            _ => f64::INFINITY,
        }
    }

    /// True of a number that is finite, but not in this type.
    pub fn overflows(self, v: f64) -> bool {
        v.is_finite() && v.abs() > self.largest()
    }

    /// True if a number of this type and the float `v` are the same: an integer has no fraction, lies in the type's
    /// range, and is no larger than what every float of 64 bits tells from its neighbours.
    pub fn is_exact(self, v: f64) -> bool {
        const MOST: f64 = (1u64 << 53) as f64;
        match self.int_range() {
            Some((low, high)) => {
                v.fract() == 0.0 && v.abs() <= MOST && (low..=high).contains(&(v as i128))
            }
            None => true,
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
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return None,
        })
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
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}
