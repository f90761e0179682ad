//! Small parts of vector code that lowering puts together.

use super::builder::Builder;
use super::code::{Cast, Imm, Step, Val};
use crate::pointwise::Unary;
use crate::pointwise::code::RegisterClass as Class;
use mlc_backends::reference::code::{Real, Sign};
use mlc_backends::reference::scalar::{Cmp, IntOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::DType;

/// True of what is computed from elements: another type of float may tell it apart from what it is compared with.
pub fn is_computed(r: &Real) -> bool {
    match r {
        Real::Const(_) | Real::Read(_) => false,
        Real::Neg(a) => is_computed(a),
        _ => true,
    }
}

/// The function of vectors.
pub fn unary(f: Function) -> Option<Unary> {
    Some(match f {
        Function::Abs => Unary::Abs,
        Function::Exp => Unary::Exp,
        Function::Log => Unary::Log,
        Function::Sqrt => Unary::Sqrt,
        Function::Erf => Unary::Erf,
        Function::Tanh => Unary::Tanh,
        Function::Sin => Unary::Sin,
        Function::Cos => Unary::Cos,
        Function::Tan => Unary::Tan,
        Function::Asin => Unary::Asin,
        Function::Acos => Unary::Acos,
        Function::Atan => Unary::Atan,
        Function::Sinh => Unary::Sinh,
        Function::Cosh => Unary::Cosh,
        Function::Asinh => Unary::Asinh,
        Function::Acosh => Unary::Acosh,
        Function::Atanh => Unary::Atanh,
        Function::Floor => Unary::Floor,
        Function::Ceil => Unary::Ceil,
        Function::Round => Unary::Round,
        Function::Sign => Unary::Sign,
        _ => return None,
    })
}

/// The float in another class of floats.
pub fn cast(b: &mut Builder, v: Val, to: Class) -> Val {
    match (b.class(v), to) {
        (Some(Class::F32), Class::F64) => b.step(Step::Cast(Class::F32, Cast::F64), &[v], to),
        (Some(Class::F64), Class::F32) => b.step(Step::Cast(Class::F64, Cast::F32), &[v], to),
        _ => v,
    }
}

pub fn wrapped(b: &mut Builder, dtype: DType, v: Val) -> Val {
    match dtype {
        DType::I64 | DType::U64 => v,
        DType::Bool => {
            let t = b.step(Step::Cast(Class::Int, Cast::Truth), &[v], Class::Bool);
            b.step(Step::Cast(Class::Bool, Cast::Int), &[t], Class::Int)
        }
        _ => b.step(Step::Wrap(dtype), &[v], Class::Int),
    }
}

pub fn not(b: &mut Builder, v: Val) -> Val {
    match v {
        Val::Imm(i) => Val::Imm(Imm::int((i.int == 0) as i64)),
        Val::Reg(_) => b.step(Step::Not, &[v], Class::Bool),
    }
}

pub fn int_op(b: &mut Builder, op: IntOp, x: Val, y: Val) -> Val {
    match (x, y) {
        (Val::Imm(x), Val::Imm(y)) => Val::Imm(Imm::int(op.apply(x.int, y.int))),
        _ => b.step(Step::Int(op), &[x, y], Class::Int),
    }
}

pub fn imm(v: i64) -> Val {
    Val::Imm(Imm::int(v))
}

/// The float in f64, whatever it is.
pub fn as_wide(b: &mut Builder, v: Val) -> Val {
    cast(b, v, Class::F64)
}

pub fn compare(b: &mut Builder, cmp: Cmp, x: Val, y: Val) -> Val {
    match (x, y) {
        (Val::Imm(x), Val::Imm(y)) => imm(cmp.holds(x.int, y.int) as i64),
        _ => b.step(Step::Compare(cmp, Class::Int, Sign::Signed), &[x, y], Class::Bool),
    }
}
