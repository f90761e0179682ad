//! Lowers the meaning of a pointwise operator to register code.
//!
//! Reads meanings only; what it does not support it declines, and the reference interpreter computes that operator instead.

use super::code::{Binary, CodeBuilder, Compare, Imm, Op, Ref, RegisterClass, Unary, class};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{CallKind, Callable};

/// A value while its expression is read.
#[derive(Clone, Copy, Debug)]
enum Term {
    /// A number whose dtype is that of its partner.
    Number(Imm),
    /// A value of a known dtype.
    Typed(Ref, DType),
}

/// Appends the operator's scalar function of `args`; the result's dtype is `result`.
pub fn lower(
    builder: &mut CodeBuilder,
    call: &Callable,
    attrs: &[Attr],
    args: &[(Ref, DType)],
    output: usize,
    result: DType,
) -> Option<Ref> {
    let CallKind::Op(meanings) = &call.kind else { return None };
    let meaning = meanings.get(output)?;
    let mut scope = Scope { builder, call, attrs, args };
    match scope.expr(&meaning.value)? {
        Term::Typed(r, dtype) => (dtype == result).then_some(r),
        Term::Number(imm) => Some(scope.number(imm, result)),
    }
}

/// A constant of a dtype, rounded to it.
pub fn constant(builder: &mut CodeBuilder, value: f64, dtype: DType) -> Ref {
    let int = value as i64;
    let float = match dtype {
        DType::F32 => value as f32 as f64,
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::BF16 => half::bf16::from_f64(value).to_f64(),
        _ => dtype.small_float().map_or(value, |format| format.nearest(value)),
    };
    builder.imm(Imm { float, int })
}

struct Scope<'a> {
    builder: &'a mut CodeBuilder,
    call: &'a Callable,
    attrs: &'a [Attr],
    args: &'a [(Ref, DType)],
}

impl Scope<'_> {
    fn number(&mut self, imm: Imm, dtype: DType) -> Ref {
        match class(dtype) {
            RegisterClass::Int => self.builder.imm(imm),
            RegisterClass::F32 | RegisterClass::F64 | RegisterClass::Bool => {
                constant(self.builder, imm.float, dtype)
            }
        }
    }

    fn attr(&self, name: &str) -> Option<&Attr> {
        self.attrs.get(self.call.attrs.iter().position(|a| &*a.name == name)?)
    }

    fn expr(&mut self, e: &Expr) -> Option<Term> {
        Some(match &e.kind {
            ExprKind::Int(v) => Term::Number(Imm { float: *v as f64, int: *v }),
            ExprKind::Float(v) => Term::Number(Imm { float: *v, int: *v as i64 }),
            ExprKind::Bool(b) => {
                Term::Typed(constant(self.builder, *b as u8 as f64, DType::Bool), DType::Bool)
            }
            ExprKind::Name(name) => {
                let value = self.attr(name)?.as_f64()?;
                Term::Number(Imm { float: value, int: value as i64 })
            }
            ExprKind::Read(read) => {
                let (r, dtype) = self.args[read.input];
                Term::Typed(r, dtype)
            }
            ExprKind::Unary(op, a) => {
                let a = self.expr(a)?;
                match (op, a) {
                    (UnaryOp::Neg, Term::Number(i)) => {
                        Term::Number(Imm { float: -i.float, int: i.int.wrapping_neg() })
                    }
                    (UnaryOp::Neg, a) => self.unary(Unary::Neg, a)?,
                    (UnaryOp::Not, a) => self.unary(Unary::Not, a)?,
                }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a)?, self.expr(b)?);
                self.binary(*op, a, b)?
            }
            ExprKind::If { cond, then, otherwise } => {
                let Term::Typed(c, DType::Bool) = self.expr(cond)? else { return None };
                let (a, b) = (self.expr(then)?, self.expr(otherwise)?);
                let (a, b, dtype) = self.same(a, b)?;
                Term::Typed(self.builder.push(Op::Select, dtype, [c, a, b]), dtype)
            }
            ExprKind::Call(Function::Cast, args) => {
                let [value, to] = args.as_slice() else { return None };
                let value = self.expr(value)?;
                let to = self.dtype(to)?;
                return self.cast(value, to);
            }
            ExprKind::Call(f, args) => {
                let values: Vec<Term> = args.iter().map(|a| self.expr(a)).collect::<Option<_>>()?;
                self.call(*f, &values)?
            }
            _ => return None,
        })
    }

    fn dtype(&self, e: &Expr) -> Option<DType> {
        match &e.kind {
            ExprKind::DType(d) => Some(*d),
            ExprKind::Name(n) => match self.attr(n)? {
                Attr::DType(d) => Some(*d),
                _ => None,
            },
            _ => None,
        }
    }

    fn cast(&mut self, value: Term, to: DType) -> Option<Term> {
        Some(match value {
            Term::Number(imm) => Term::Typed(self.number(imm, to), to),
            Term::Typed(r, from) if from == to => Term::Typed(r, to),
            Term::Typed(r, from) => Term::Typed(self.builder.push(Op::Cast(to), from, [r; 3]), to),
        })
    }

    fn same(&mut self, a: Term, b: Term) -> Option<(Ref, Ref, DType)> {
        Some(match (a, b) {
            (Term::Typed(a, x), Term::Typed(b, y)) if x == y => (a, b, x),
            (Term::Typed(a, x), Term::Number(b)) => (a, self.number(b, x), x),
            (Term::Number(a), Term::Typed(b, y)) => (self.number(a, y), b, y),
            _ => return None,
        })
    }

    fn unary(&mut self, f: Unary, a: Term) -> Option<Term> {
        let Term::Typed(r, dtype) = a else { return None };
        let fits = match f {
            Unary::Not => dtype == DType::Bool,
            Unary::Neg | Unary::Abs | Unary::Sign => dtype != DType::Bool,
            _ => dtype.is_float(),
        };
        fits.then(|| Term::Typed(self.builder.push(Op::Unary(f), dtype, [r; 3]), dtype))
    }

    fn binary(&mut self, op: BinaryOp, a: Term, b: Term) -> Option<Term> {
        if let (Term::Number(a), Term::Number(b)) = (a, b) {
            return fold(op, a, b).map(Term::Number);
        }
        // `a > b` is `b < a`.
        let (op, a, b) = match op {
            BinaryOp::Gt => (BinaryOp::Lt, b, a),
            BinaryOp::Ge => (BinaryOp::Le, b, a),
            _ => (op, a, b),
        };
        let (a, b, dtype) = self.same(a, b)?;
        let compare = |c| Some((Op::Compare(c), DType::Bool));
        let (op, result) = match op {
            BinaryOp::Eq => compare(Compare::Eq),
            BinaryOp::Ne => compare(Compare::Ne),
            BinaryOp::Lt => compare(Compare::Less),
            BinaryOp::Le => compare(Compare::LessEq),
            BinaryOp::Add => Some((Op::Binary(Binary::Add), dtype)),
            BinaryOp::Sub => Some((Op::Binary(Binary::Sub), dtype)),
            BinaryOp::Mul => Some((Op::Binary(Binary::Mul), dtype)),
            BinaryOp::Div => Some((Op::Binary(Binary::Div), dtype)),
            BinaryOp::Mod => Some((Op::Binary(Binary::Modulo), dtype)),
            BinaryOp::Pow => Some((Op::Binary(Binary::Pow), dtype)),
            BinaryOp::And => Some((Op::Binary(Binary::And), dtype)),
            BinaryOp::Or => Some((Op::Binary(Binary::Or), dtype)),
            BinaryOp::Gt | BinaryOp::Ge | BinaryOp::MatMul => None,
        }?;
        let logical = matches!(op, Op::Binary(Binary::And | Binary::Or));
        let arithmetic = matches!(op, Op::Binary(_)) && !logical;
        if (logical && dtype != DType::Bool) || (arithmetic && dtype == DType::Bool) {
            return None;
        }
        Some(Term::Typed(self.builder.push(op, dtype, [a, b, a]), result))
    }

    fn call(&mut self, f: Function, args: &[Term]) -> Option<Term> {
        let one = match f {
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
            _ => return self.call_two(f, args),
        };
        let [a] = args else { return None };
        match a {
            Term::Number(i) => {
                let float = super::ops::unary_number(one, i.float)?;
                Some(Term::Number(Imm { float, int: float as i64 }))
            }
            Term::Typed(..) => self.unary(one, *a),
        }
    }

    fn call_two(&mut self, f: Function, args: &[Term]) -> Option<Term> {
        let two = match f {
            Function::Maximum => Binary::Max,
            Function::Minimum => Binary::Min,
            Function::Modulo => Binary::Modulo,
            Function::Remainder => Binary::Remainder,
            Function::BitAnd => Binary::BitAnd,
            Function::BitOr => Binary::BitOr,
            Function::BitXor => Binary::BitXor,
            Function::ShiftLeft => Binary::ShiftLeft,
            Function::ShiftRight => Binary::ShiftRight,
            _ => return None,
        };
        let [a, b] = args else { return None };
        let (a, b, dtype) = self.same(*a, *b)?;
        (dtype != DType::Bool)
            .then(|| Term::Typed(self.builder.push(Op::Binary(two), dtype, [a, b, a]), dtype))
    }
}

/// Arithmetic of two numbers without a dtype.
fn fold(op: BinaryOp, a: Imm, b: Imm) -> Option<Imm> {
    let float = match op {
        BinaryOp::Add => a.float + b.float,
        BinaryOp::Sub => a.float - b.float,
        BinaryOp::Mul => a.float * b.float,
        BinaryOp::Div => a.float / b.float,
        BinaryOp::Pow => a.float.powf(b.float),
        _ => return None,
    };
    Some(Imm { float, int: float as i64 })
}
