//! Functions of single elements.

use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::DType;
use std::hash::{Hash, Hasher};

/// A unary function of a float.
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    /// The function by its name.
    pub function: Function,
    /// The function itself.
    pub apply: fn(f64) -> f64,
}

impl PartialEq for Unary {
    /// By the function's name, which decides what is applied.
    fn eq(&self, other: &Unary) -> bool {
        self.function == other.function
    }
}

impl Eq for Unary {}

impl Hash for Unary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

/// The unary function on floats that a function of meanings is. Those of the standard library cancel for small
/// arguments where another is taken.
pub fn unary(function: Function) -> Option<Unary> {
    let apply: fn(f64) -> f64 = match function {
        Function::Abs => f64::abs,
        Function::Exp => f64::exp,
        Function::Log => f64::ln,
        Function::Sqrt => f64::sqrt,
        Function::Erf => libm::erf,
        Function::Tanh => f64::tanh,
        Function::Sin => f64::sin,
        Function::Cos => f64::cos,
        Function::Tan => f64::tan,
        Function::Asin => f64::asin,
        Function::Acos => f64::acos,
        Function::Atan => f64::atan,
        Function::Sinh => f64::sinh,
        Function::Cosh => f64::cosh,
        Function::Asinh => libm::asinh,
        // The library has values of its own for large negative numbers.
        Function::Acosh => |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) },
        Function::Atanh => libm::atanh,
        Function::Floor => f64::floor,
        Function::Ceil => f64::ceil,
        Function::Round => f64::round_ties_even,
        Function::Sign => sign,
        Function::Rsqrt => |x| 1.0 / x.sqrt(),
        Function::Recip => |x| 1.0 / x,
        _ => return None,
    };
    Some(Unary { function, apply })
}

/// The value of a unary function of meanings.
pub fn function(f: Function, x: f64) -> Option<f64> {
    unary(f).map(|f| (f.apply)(x))
}

fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

/// The larger; NaN if either is; 0 is above −0.
pub fn maximum(a: f64, b: f64) -> f64 {
    if a > b {
        a
    } else if b > a {
        b
    } else if a == b {
        if a.is_sign_negative() { b } else { a }
    } else {
        f64::NAN
    }
}

/// The smaller; NaN if either is; −0 is below 0.
pub fn minimum(a: f64, b: f64) -> f64 {
    if a < b {
        a
    } else if b < a {
        b
    } else if a == b {
        if a.is_sign_negative() { a } else { b }
    } else {
        f64::NAN
    }
}

/// The remainder with the sign of the divisor.
fn modulo(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) { r + b } else { r }
}

/// Binary operations on floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RealOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
    /// Power.
    Pow,
    /// The larger operand; NaN if one is.
    Max,
    /// The smaller operand; NaN if one is.
    Min,
    /// Remainder with the sign of the divisor.
    Modulo,
    /// Remainder with the sign of the dividend.
    Remainder,
}

impl RealOp {
    /// The operation on two floats.
    #[inline]
    pub fn apply(self, a: f64, b: f64) -> f64 {
        match self {
            RealOp::Add => a + b,
            RealOp::Sub => a - b,
            RealOp::Mul => a * b,
            RealOp::Div => a / b,
            RealOp::Pow => a.powf(b),
            RealOp::Max => maximum(a, b),
            RealOp::Min => minimum(a, b),
            RealOp::Modulo => modulo(a, b),
            RealOp::Remainder => a % b,
        }
    }

    /// `acc[j] = acc[j] op b[j]`.
    pub fn apply_rows(self, acc: &mut [f64], b: &[f64]) {
        let pairs = acc.iter_mut().zip(b);
        match self {
            RealOp::Add => pairs.for_each(|(a, b)| *a += b),
            RealOp::Sub => pairs.for_each(|(a, b)| *a -= b),
            RealOp::Mul => pairs.for_each(|(a, b)| *a *= b),
            RealOp::Div => pairs.for_each(|(a, b)| *a /= b),
            RealOp::Max => pairs.for_each(|(a, b)| *a = maximum(*a, *b)),
            RealOp::Pow | RealOp::Min | RealOp::Modulo | RealOp::Remainder => {
                pairs.for_each(|(a, b)| *a = self.apply(*a, *b));
            }
        }
    }
}

/// Binary operations on 64-bit integers. They wrap, and division by zero yields 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Power; 0 for a negative exponent unless the base is 1 or -1.
    Pow,
    /// Quotient rounded towards minus infinity.
    FloorDiv,
    /// The remainder of that quotient.
    FloorMod,
    /// Quotient rounded towards zero.
    Div,
    /// The remainder of that quotient.
    Rem,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
    /// The next ones read both operands as `u64`.
    PowU,
    /// Quotient.
    DivU,
    /// Remainder.
    RemU,
    /// The larger one.
    MaxU,
    /// The smaller one.
    MinU,
    /// Bits that both have.
    And,
    /// Bits that one or both have.
    Or,
    /// Bits that exactly one has.
    Xor,
    /// Bits moved up by a number of places; by a negative one, or by 64 and more, zero.
    Shl,
    /// Bits moved down, copies of the sign above them; by a negative number, or by 64 and more, the sign alone.
    Shr,
    /// Bits of a `u64` moved down; by a number that is negative as an `i64`, or by 64 and more, zero.
    ShrU,
}

impl IntOp {
    /// The result.
    #[inline]
    pub fn apply(self, a: i64, b: i64) -> i64 {
        let (ua, ub) = (a as u64, b as u64);
        match self {
            IntOp::Add => a.wrapping_add(b),
            IntOp::Sub => a.wrapping_sub(b),
            IntOp::Mul => a.wrapping_mul(b),
            IntOp::Pow => power(a, b),
            IntOp::FloorDiv => floor_div(a, b),
            IntOp::FloorMod => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_sub(b.wrapping_mul(floor_div(a, b)))
                }
            }
            IntOp::Div if b == 0 => 0,
            IntOp::Div => a.wrapping_div(b),
            IntOp::Rem if b == 0 => 0,
            IntOp::Rem => a.wrapping_rem(b),
            IntOp::Max => a.max(b),
            IntOp::Min => a.min(b),
            IntOp::PowU => raised(a, ub),
            IntOp::DivU => ua.checked_div(ub).unwrap_or(0) as i64,
            IntOp::RemU => ua.checked_rem(ub).unwrap_or(0) as i64,
            IntOp::MaxU => ua.max(ub) as i64,
            IntOp::MinU => ua.min(ub) as i64,
            IntOp::And => a & b,
            IntOp::Or => a | b,
            IntOp::Xor => a ^ b,
            IntOp::Shl => {
                if ub < 64 {
                    a << ub
                } else {
                    0
                }
            }
            IntOp::Shr => a >> ub.min(63),
            IntOp::ShrU => {
                if ub < 64 {
                    (ua >> ub) as i64
                } else {
                    0
                }
            }
        }
    }
}

fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// Powers by squaring; a negative exponent is the integer part of the real power.
fn power(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    raised(base, exponent as u64)
}

/// A power modulo 2^64.
fn raised(base: i64, mut e: u64) -> i64 {
    let (mut result, mut square) = (1i64, base);
    while e > 0 {
        if e & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        e >>= 1;
    }
    result
}

/// Reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Monoid {
    /// Sum; 0 of none.
    Sum,
    /// Product; 1 of none.
    Prod,
    /// The largest; of none, the lowest value of the type.
    Max,
    /// The smallest; of none, the highest value of the type.
    Min,
}

impl Monoid {
    /// The operation on floats, and its value over none.
    pub fn real(self) -> (RealOp, f64) {
        match self {
            Monoid::Sum => (RealOp::Add, 0.0),
            Monoid::Prod => (RealOp::Mul, 1.0),
            Monoid::Max => (RealOp::Max, f64::NEG_INFINITY),
            Monoid::Min => (RealOp::Min, f64::INFINITY),
        }
    }

    /// The operation on integers, and its value over none.
    pub fn int(self, dtype: Option<DType>) -> (IntOp, i64) {
        let unsigned = dtype == Some(DType::U64);
        match self {
            Monoid::Sum => (IntOp::Add, 0),
            Monoid::Prod => (IntOp::Mul, 1),
            Monoid::Max => (if unsigned { IntOp::MaxU } else { IntOp::Max }, lowest(dtype)),
            Monoid::Min => (if unsigned { IntOp::MinU } else { IntOp::Min }, highest(dtype)),
        }
    }
}

/// The smallest integer of a type; `None` is the unbounded integers of indices.
pub fn lowest(dtype: Option<DType>) -> i64 {
    dtype.and_then(DType::int_range).map_or(i64::MIN, |r| r.0 as i64)
}

/// The largest integer of a type, as 64 bits.
pub fn highest(dtype: Option<DType>) -> i64 {
    dtype.and_then(DType::int_range).map_or(i64::MAX, |r| r.1 as u64 as i64)
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmp {
    /// `==`.
    Eq,
    /// `!=`.
    Ne,
    /// `<`.
    Lt,
    /// `<=`.
    Le,
    /// `>`.
    Gt,
    /// `>=`.
    Ge,
}

impl Cmp {
    /// True if the comparison holds.
    #[inline]
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Cmp::Eq => a == b,
            Cmp::Ne => a != b,
            Cmp::Lt => a < b,
            Cmp::Le => a <= b,
            Cmp::Gt => a > b,
            Cmp::Ge => a >= b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_no_value_outside_of_their_domains() {
        let below = [-f64::INFINITY, -133_330.015_625, -1.5, -1.0, -0.5];
        let cases: [(Function, &[f64]); 6] = [
            (Function::Acosh, &[0.0, 0.5, 0.999]),
            (Function::Atanh, &[-2.0, 1.5, 1e9, f64::INFINITY]),
            (Function::Asin, &[-1.5, 1.5, 1e9]),
            (Function::Acos, &[-1.5, 1.5, 1e9]),
            (Function::Log, &[-1e-300]),
            (Function::Sqrt, &[-1e-300]),
        ];
        for (f, outside) in cases {
            let further: &[f64] = match f {
                Function::Acosh | Function::Log | Function::Sqrt => &below,
                _ => &[],
            };
            for &x in outside.iter().chain(further) {
                assert!(function(f, x).is_some_and(f64::is_nan), "{f:?} of {x}");
            }
        }
    }

    #[test]
    fn erf_agrees_with_known_values() {
        let known = [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.5, 0.999_999_256_901_627_7),
        ];
        for (x, y) in known {
            assert!((libm::erf(x) - y).abs() <= 1e-15, "erf({x})");
            assert!((libm::erf(-x) + y).abs() <= 1e-15, "erf(-{x})");
        }
    }

    #[test]
    fn division_of_integers() {
        assert_eq!(IntOp::FloorDiv.apply(-7, 2), -4);
        assert_eq!(IntOp::FloorMod.apply(-7, 2), 1);
        assert_eq!(IntOp::Div.apply(-7, 2), -3);
        assert_eq!(IntOp::Rem.apply(-7, 2), -1);
        assert_eq!(IntOp::Div.apply(i64::MIN, -1), i64::MIN);
        assert_eq!(IntOp::DivU.apply(-1, 2), i64::MAX);
        for op in [IntOp::FloorDiv, IntOp::FloorMod, IntOp::Div, IntOp::Rem, IntOp::DivU] {
            assert_eq!(op.apply(5, 0), 0, "{op:?}");
        }
        assert_eq!(IntOp::Pow.apply(3, 4), 81);
        assert_eq!(IntOp::Pow.apply(2, -1), 0);
    }

    #[test]
    fn extremes_propagate_nan_and_order_zeros() {
        assert!(maximum(f64::NAN, 1.0).is_nan() && minimum(1.0, f64::NAN).is_nan());
        assert!(maximum(-0.0, 0.0).is_sign_positive() && maximum(0.0, -0.0).is_sign_positive());
        assert!(minimum(-0.0, 0.0).is_sign_negative() && minimum(0.0, -0.0).is_sign_negative());
        assert_eq!(modulo(-7.0, 3.0), 2.0);
        assert_eq!(modulo(7.0, -3.0), -2.0);
    }
}
