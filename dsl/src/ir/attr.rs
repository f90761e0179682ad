//! Attribute values: the non-tensor arguments of operators.

use super::dtype::DType;
use super::extent::Extent;
use std::fmt;

/// An attribute value. Equality and order are total: floats compare by bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attr {
    /// A (possibly symbolic) integer.
    Int(Extent),
    /// A list of integers: a permutation, axes, strides, a shape.
    Ints(Vec<Extent>),
    /// A real number, by its bits; see [`Attr::float`].
    Float(u64),
    /// A list of real numbers, by their bits; see [`Attr::floats`].
    Floats(Vec<u64>),
    /// A truth value.
    Bool(bool),
    /// A word such as a rounding mode.
    Str(String),
    /// An element type.
    DType(DType),
}

impl Attr {
    /// A real number. `-0.0` and NaN payloads are kept.
    pub fn float(v: f64) -> Attr {
        Attr::Float(v.to_bits())
    }

    /// A list of real numbers.
    pub fn floats(v: impl IntoIterator<Item = f64>) -> Attr {
        Attr::Floats(v.into_iter().map(f64::to_bits).collect())
    }

    /// A known integer.
    pub fn int(v: i64) -> Attr {
        Attr::Int(Extent::from(v))
    }

    /// A list of known integers.
    pub fn ints(v: impl IntoIterator<Item = i64>) -> Attr {
        Attr::Ints(v.into_iter().map(Extent::from).collect())
    }

    /// The same with numbers for the symbols that have one.
    pub fn bound(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Attr {
        self.with_extents(|e| e.bound(symbol))
    }

    /// The same with other integers.
    pub fn with_extents(&self, other: impl Fn(&Extent) -> Extent) -> Attr {
        match self {
            Attr::Int(e) => Attr::Int(other(e)),
            Attr::Ints(v) => Attr::Ints(v.iter().map(other).collect()),
            Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
                self.clone()
            }
        }
    }

    /// Its integers, known or not.
    pub fn extents_mut(&mut self) -> &mut [Extent] {
        match self {
            Attr::Int(e) => std::slice::from_mut(e),
            Attr::Ints(v) => v,
            Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
                &mut []
            }
        }
    }

    /// The number, if this is a float or a known integer.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Attr::Float(b) => Some(f64::from_bits(*b)),
            Attr::Int(e) => e.as_const().map(|v| v as f64),
            Attr::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        }
    }

    /// The integer that this is, or the real number without a fraction that this is, as an integer.
    pub fn as_integer(&self) -> Option<Attr> {
        let exact = |v: &f64| v.fract() == 0.0 && v.abs() <= (1u64 << 53) as f64;
        match self {
            Attr::Int(_) => Some(self.clone()),
            Attr::Float(b) => Some(f64::from_bits(*b)).filter(exact).map(|v| Attr::int(v as i64)),
            _ => None,
        }
    }

    /// The integer, if this is one and known.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Attr::Int(e) => e.as_const(),
            _ => None,
        }
    }

    /// The list, if this is one and all entries are known.
    pub fn as_i64s(&self) -> Option<Vec<i64>> {
        match self {
            Attr::Ints(v) => v.iter().map(Extent::as_const).collect(),
            _ => None,
        }
    }

    /// The real numbers, if this is a list of numbers and all of them are known.
    pub fn as_f64s(&self) -> Option<Vec<f64>> {
        match self {
            Attr::Floats(v) => Some(v.iter().map(|b| f64::from_bits(*b)).collect()),
            Attr::Ints(_) => Some(self.as_i64s()?.into_iter().map(|v| v as f64).collect()),
            _ => None,
        }
    }

    /// True if no symbol occurs.
    pub fn is_known(&self) -> bool {
        match self {
            Attr::Int(e) => e.as_const().is_some(),
            Attr::Ints(v) => v.iter().all(|e| e.as_const().is_some()),
            Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
                true
            }
        }
    }

    /// The extents of a list, or the one that this is.
    pub fn as_entries(&self) -> Option<&[Extent]> {
        match self {
            Attr::Int(e) => Some(std::slice::from_ref(e)),
            Attr::Ints(v) => Some(v),
            _ => None,
        }
    }

    /// The list of extents, if this is one.
    pub fn as_extents(&self) -> Option<&[Extent]> {
        match self {
            Attr::Ints(v) => Some(v),
            _ => None,
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, entries: Vec<String>| {
            write!(f, "[{}]", entries.join(", "))
        };
        match self {
            Attr::Int(e) => write!(f, "{e}"),
            Attr::Ints(v) => list(f, v.iter().map(Extent::to_string).collect()),
            Attr::Floats(v) => {
                list(f, v.iter().map(|b| format!("{:?}", f64::from_bits(*b))).collect())
            }
            Attr::Float(b) => write!(f, "{:?}", f64::from_bits(*b)),
            Attr::Bool(b) => write!(f, "{b}"),
            Attr::Str(s) => write!(f, "{s:?}"),
            Attr::DType(d) => write!(f, "{d}"),
        }
    }
}
