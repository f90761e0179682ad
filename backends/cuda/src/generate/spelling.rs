//! C++ syntax of types, literals and single operations.

use mlc_backends::reference::code::{Affine, Sign};
use mlc_backends::reference::scalar::{Cmp, IntOp, Monoid, RealOp, highest, lowest};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::DType;

/// The type of elements in memory.
pub fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::U16 => "unsigned short",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I8 | DType::I4 | DType::I2 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::U32 => "unsigned",
        DType::U64 => "unsigned long long",
        // Those of fewer bits have a byte each; plans with texts are refused.
        _ => "unsigned char",
    }
}

/// How functions of `functions.cuh` on a float of at most 8 bits are named.
fn small(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F8E4M3FN => "small_bits_to_float<4, 3, 7, LAST_IS_NAN>",
        DType::F8E4M3FNUZ => "small_bits_to_float<4, 3, 8, ZERO_IS_NAN>",
        DType::F8E5M2 => "small_bits_to_float<5, 2, 15, INFINITY_IS_SPECIAL>",
        DType::F8E5M2FNUZ => "small_bits_to_float<5, 2, 16, ZERO_IS_NAN>",
        DType::F8E8M0 => "power_bits_to_float",
        DType::F6E2M3 => "small_bits_to_float<2, 3, 1, FINITE>",
        DType::F6E3M2 => "small_bits_to_float<3, 2, 3, FINITE>",
        DType::F4E2M1 => "small_bits_to_float<2, 1, 1, FINITE>",
        _ => return None,
    })
}

/// The number of a code.
fn decoded(from_bits: &str, code: &str) -> String {
    format!("{from_bits}({code})")
}

/// The code of a number, of 32 or 64 bits.
fn encoded(from_bits: &str, v: &str) -> String {
    let to_bits = match from_bits.strip_prefix("small_bits_to_float") {
        Some(format) => format!("float_to_small_bits{format}"),
        None => "float_to_power_bits".into(),
    };
    format!("{to_bits}(to_odd({v}))")
}

/// The type that floats are computed in.
pub fn real(double: bool) -> &'static str {
    if double { "double" } else { "float" }
}

/// An element of memory as a number to compute with: a float, or an integer of 64 bits.
pub fn loaded(dtype: DType, element: &str, double: bool) -> String {
    match dtype {
        DType::F16 => format!("half_bits_to_float({element})"),
        DType::BF16 => format!("bfloat16_bits_to_float({element})"),
        DType::F32 if double => format!("(double){element}"),
        DType::F64 if !double => format!("(float){element}"),
        DType::F32 | DType::F64 => element.into(),
        DType::Bool => format!("(long long)({element} != 0)"),
        d => match small(d) {
            Some(from_bits) => decoded(from_bits, element),
            None => format!("(long long){element}"),
        },
    }
}

/// A computed number as an element of memory.
pub fn element(dtype: DType, v: &str) -> String {
    match dtype {
        DType::F16 => format!("float_to_half_bits({v})"),
        DType::BF16 => format!("float_to_bfloat16_bits({v})"),
        DType::Bool => format!("(unsigned char)(({v}) != 0)"),
        d => match small(d) {
            Some(from_bits) => encoded(from_bits, v),
            None if d.is_small() => format!("({})({})", stored(d), wrapped(d, v)),
            None => format!("({})({v})", stored(d)),
        },
    }
}

/// An integer wrapped to a type, as 64 bits.
pub fn wrapped(dtype: DType, v: &str) -> String {
    match dtype {
        DType::Bool => format!("(long long)(({v}) != 0)"),
        DType::I64 | DType::U64 => v.into(),
        DType::I4 => format!("wrap_signed(4, {v})"),
        DType::I2 => format!("wrap_signed(2, {v})"),
        DType::U4 => format!("(({v}) & 15LL)"),
        DType::U2 => format!("(({v}) & 3LL)"),
        d if d.is_float() => v.into(),
        d => format!("(long long)({})({v})", stored(d)),
    }
}

/// A float cut towards zero.
pub fn truncated(dtype: DType, v: &str) -> String {
    match dtype {
        DType::Bool => format!("(long long)(({v}) != 0)"),
        DType::U64 => format!("truncate_unsigned({v})"),
        d => wrapped(d, &format!("truncate_signed({v})")),
    }
}

/// A float rounded to a type.
pub fn rounded(dtype: DType, v: &str, double: bool) -> String {
    match dtype {
        DType::F16 => format!("half_bits_to_float(float_to_half_bits({v}))"),
        DType::BF16 => format!("bfloat16_bits_to_float(float_to_bfloat16_bits({v}))"),
        DType::F32 if double => format!("(double)(float)({v})"),
        d => match small(d) {
            Some(from_bits) => decoded(from_bits, &encoded(from_bits, v)),
            None => v.into(),
        },
    }
}

/// A floating literal.
pub fn float(v: f64, double: bool) -> String {
    if v.is_nan() {
        return format!("({})NOT_A_NUMBER", real(double));
    }
    if v.is_infinite() {
        return format!(
            "({}{})",
            if v < 0.0 { "-" } else { "" },
            if double { "INFINITE" } else { "INFINITE_F" }
        );
    }
    let text = match double {
        true => format!("{v:?}"),
        // What does not fit becomes infinite, as it does when it is computed.
        false if (v as f32).is_infinite() => return float((v as f32).into(), false),
        false => format!("{:?}f", v as f32),
    };
    if v.is_sign_negative() { format!("({text})") } else { text }
}

/// An integer literal.
pub fn int(v: i64) -> String {
    match v {
        i64::MIN => "(-9223372036854775807LL - 1)".into(),
        v if i32::try_from(v).is_err() => format!("({v}LL)"),
        v if v < 0 => format!("({v})"),
        v => v.to_string(),
    }
}

/// An affine form over named variables.
pub fn affine(a: &Affine, name: &dyn Fn(usize) -> String) -> String {
    let mut text = String::new();
    for &(slot, factor) in &a.terms {
        let name = name(slot);
        if !text.is_empty() {
            text += if factor < 0 { " - " } else { " + " };
        } else if factor < 0 {
            text += "-";
        }
        text += &match factor.unsigned_abs() {
            1 => name,
            by => format!("{name} * {}", int(by as i64)),
        };
    }
    match (a.terms.len(), a.constant) {
        (0, c) => int(c),
        (1, 0) if a.terms[0].1 == 1 => text,
        (_, 0) => format!("({text})"),
        (_, c) if c < 0 => format!("({text} - {})", int(c.saturating_neg())),
        (_, c) => format!("({text} + {})", int(c)),
    }
}

/// A function of one float.
pub fn unary(f: Function, v: &str) -> Option<String> {
    let name = match f {
        Function::Abs => "fabs",
        Function::Exp => "exp",
        Function::Log => "log",
        Function::Sqrt => "sqrt",
        Function::Erf => "erf",
        Function::Tanh => "tanh",
        Function::Sin => "sin",
        Function::Cos => "cos",
        Function::Tan => "tan",
        Function::Asin => "asin",
        Function::Acos => "acos",
        Function::Atan => "atan",
        Function::Sinh => "sinh",
        Function::Cosh => "cosh",
        Function::Asinh => "asinh",
        Function::Acosh => "acosh",
        Function::Atanh => "atanh",
        Function::Floor => "floor",
        Function::Ceil => "ceil",
        Function::Round => "rint",
        Function::Sign => "sign",
        Function::Rsqrt => "reciprocal_root",
        Function::Recip => "reciprocal",
        _ => return None,
    };
    Some(format!("{name}({v})"))
}

/// An operation on two floats.
pub fn binary(op: RealOp, a: &str, b: &str) -> String {
    match op {
        RealOp::Add => format!("({a} + {b})"),
        RealOp::Sub => format!("({a} - {b})"),
        RealOp::Mul => format!("({a} * {b})"),
        RealOp::Div => format!("({a} / {b})"),
        RealOp::Pow => format!("pow({a}, {b})"),
        RealOp::Max => format!("maximum({a}, {b})"),
        RealOp::Min => format!("minimum({a}, {b})"),
        RealOp::Modulo => format!("modulo({a}, {b})"),
        RealOp::Remainder => format!("fmod({a}, {b})"),
    }
}

/// An operation on two integers of 64 bits.
pub fn binary_int(op: IntOp, a: &str, b: &str) -> String {
    let name = match op {
        IntOp::Add => "add_int",
        IntOp::Sub => "sub_int",
        IntOp::Mul => "mul_int",
        IntOp::Pow => "power_int",
        IntOp::FloorDiv => "floor_div",
        IntOp::FloorMod => "floor_mod",
        IntOp::Div => "div_int",
        IntOp::Rem => "rem_int",
        IntOp::Max => "max_int",
        IntOp::Min => "min_int",
        IntOp::PowU => "power_unsigned",
        IntOp::DivU => "div_unsigned",
        IntOp::RemU => "rem_unsigned",
        IntOp::MaxU => "max_unsigned",
        IntOp::MinU => "min_unsigned",
        IntOp::And => "bit_and",
        IntOp::Or => "bit_or",
        IntOp::Xor => "bit_xor",
        IntOp::Shl => "shift_left",
        IntOp::Shr => "shift_right",
        IntOp::ShrU => "shift_right_unsigned",
    };
    format!("{name}({a}, {b})")
}

/// A comparison.
pub fn compare(cmp: Cmp, a: &str, b: &str) -> String {
    let op = match cmp {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Lt => "<",
        Cmp::Le => "<=",
        Cmp::Gt => ">",
        Cmp::Ge => ">=",
    };
    format!("({a} {op} {b})")
}

/// An integer read as its sign says.
pub fn signed(sign: Sign, v: &str) -> String {
    match sign {
        Sign::Signed => v.into(),
        Sign::Unsigned => format!("(unsigned long long)({v})"),
    }
}

/// The functor of a reduction, and its first value.
pub fn monoid(m: Monoid, kind: ScalarKind) -> (String, String) {
    let unsigned = matches!(kind, ScalarKind::Int(Some(DType::U64)));
    let first = match (m, kind) {
        (Monoid::Sum, ScalarKind::Real(d)) => float(0.0, d),
        (Monoid::Prod, ScalarKind::Real(d)) => float(1.0, d),
        (Monoid::Max, ScalarKind::Real(d)) => float(f64::NEG_INFINITY, d),
        (Monoid::Min, ScalarKind::Real(d)) => float(f64::INFINITY, d),
        (Monoid::Sum, ScalarKind::Int(_)) => int(0),
        (Monoid::Prod, ScalarKind::Int(_)) => int(1),
        (Monoid::Max, ScalarKind::Int(d)) => int(lowest(d)),
        (Monoid::Min, ScalarKind::Int(d)) => int(highest(d)),
    };
    let name = match (m, kind) {
        (Monoid::Sum, _) => "Sum",
        (Monoid::Prod, _) => "Product",
        (Monoid::Max, _) if unsigned => "MaximumUnsigned",
        (Monoid::Min, _) if unsigned => "MinimumUnsigned",
        (Monoid::Max, _) => "Maximum",
        (Monoid::Min, _) => "Minimum",
    };
    (name.into(), first)
}

/// The kind of a number that is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    /// A float, of 64 bits if the flag says so.
    Real(bool),
    /// An integer of this type, computed in 64 bits.
    Int(Option<DType>),
}

impl ScalarKind {
    /// A number of this kind that was combined, as one of a type.
    pub fn stored(self, dtype: DType, name: &str) -> String {
        match self {
            ScalarKind::Int(Some(of)) => wrapped(dtype, &wrapped(of, name)),
            ScalarKind::Int(None) => wrapped(dtype, name),
            ScalarKind::Real(true) if dtype.size() < 8 => format!("(float){name}"),
            ScalarKind::Real(_) => name.into(),
        }
    }

    /// The kind of elements of a type.
    pub fn of(dtype: DType) -> ScalarKind {
        if dtype.is_float() {
            ScalarKind::Real(dtype == DType::F64)
        } else {
            ScalarKind::Int(Some(dtype))
        }
    }

    /// The C++ type of a variable that holds it.
    pub fn name(self) -> &'static str {
        match self {
            ScalarKind::Real(double) => real(double),
            ScalarKind::Int(_) => "long long",
        }
    }
}
