//! Compiles a meaning to code: names become numbered index variables, lists become their entries.
//!
//! Works on one application at a time, so that every extent and attribute is a number and every list
//! has a known length.

use super::super::scalar::{self, IntOp, RealOp};
use super::index_lists;
use super::typed::{
    Comp, List, NumberKind, arithmetic, binary, cast, choose, fold, int, negate, of_kind, real,
    sign, truth,
};
use super::{Int, Read, Real, Slot, Truth};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, Val, value};
use mlc_dsl::expr::{
    BinaryOp, Elem, Expr, ExprKind, IndexVar, Meaning, Read as Access, Reduce, UnaryOp,
};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::Dim;
use mlc_dsl::recurrence::Recurrence;

/// An input as the compiler sees it.
#[derive(Clone, Debug)]
pub struct MeaningParam<'a> {
    /// Its name in the text.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: DType,
    /// Its extents.
    pub shape: &'a [usize],
}

/// The code of one output.
#[derive(Clone, Debug)]
pub struct MeaningCode {
    /// The value of an element.
    pub body: Body,
    /// The index variables of the output, one per axis.
    pub axes: Vec<(Slot, i64)>,
    /// How many values each index variable takes.
    pub extents: Vec<i64>,
    /// The index variable along which a recurrence runs, if the output takes part in each step.
    pub step: Option<Slot>,
}

/// The value of one element.
#[derive(Clone, Debug)]
pub enum Body {
    /// A float.
    Real(Real),
    /// Wrapped to the type.
    Int(DType, Int),
}

/// Compiles the meaning of an output of that type.
pub fn meaning(
    meaning: &Meaning,
    dims: Option<&[Dim]>,
    dtype: DType,
    shape: &[usize],
    params: &[MeaningParam],
    env: &Env,
    recurrence: Option<&Recurrence>,
) -> Result<MeaningCode, String> {
    let scope = (0..meaning.variables).map(|_| None).collect();
    let mut c = MeaningCompiler { env, params, scope, extents: vec![] };
    let axes = c.bind_output(&meaning.index, dims, shape)?;
    let step = recurrence
        .and_then(|r| meaning.index.iter().find(|v| v.name == r.axis && !v.segment))
        .and_then(|v| match c.scope[v.id] {
            Some(BoundName::Axis(slot)) => Some(slot),
            _ => None,
        });
    let value = c.expr(&meaning.value)?;
    let body = match dtype.is_float() {
        true => Body::Real(real(value)?),
        false => Body::Int(dtype, int(value, Some(dtype))?),
    };
    Ok(MeaningCode { body, axes, extents: c.extents, step })
}

enum BoundName {
    Axis(Slot),
    Segment(Vec<Slot>),
}

struct MeaningCompiler<'a> {
    env: &'a Env,
    params: &'a [MeaningParam<'a>],
    /// What the index variables are, by their numbers.
    scope: Vec<Option<BoundName>>,
    extents: Vec<i64>,
}

impl MeaningCompiler<'_> {
    fn slot(&mut self, extent: i64) -> Slot {
        self.extents.push(extent);
        self.extents.len() - 1
    }

    /// Gives the output's axes their variables.
    fn bind_output(
        &mut self,
        index: &[IndexVar],
        dims: Option<&[Dim]>,
        shape: &[usize],
    ) -> Result<Vec<(Slot, i64)>, String> {
        let width = |i: usize, v: &IndexVar| match (v.segment, dims.and_then(|d| d.get(i))) {
            (false, _) => Some(1),
            (true, Some(Dim::Seg(s))) => self.env.seg(s).map(<[_]>::len),
            (true, _) => self.env.seg(&v.name).map(<[_]>::len),
        };
        let widths: Vec<Option<usize>> =
            index.iter().enumerate().map(|(i, v)| width(i, v)).collect();
        let known: usize = widths.iter().flatten().sum();
        let unknown = widths.iter().filter(|w| w.is_none()).count();
        let rest = shape.len().checked_sub(known);
        let rest = rest.filter(|&r| if unknown == 0 { r == 0 } else { unknown == 1 });
        let rest = rest.ok_or("the index of the meaning does not fit the result's shape")?;
        let mut at = 0;
        let mut axes = Vec::with_capacity(shape.len());
        for (v, width) in index.iter().zip(widths) {
            let n = width.unwrap_or(rest);
            let slots: Vec<Slot> = shape[at..at + n].iter().map(|&d| self.slot(d as i64)).collect();
            axes.extend(slots.iter().zip(&shape[at..]).map(|(&s, &d)| (s, d as i64)));
            at += n;
            self.scope[v.id] = Some(match v.segment {
                false => BoundName::Axis(slots[0]),
                true => BoundName::Segment(slots),
            });
        }
        Ok(axes)
    }

    fn expr(&mut self, e: &Expr) -> Result<Comp, String> {
        if is_constant(e)
            && let Ok(v) = value(e, self.env)
            && let Some(c) = constant(v, kind_of_constant(e))
        {
            return Ok(c);
        }
        match &e.kind {
            ExprKind::Int(v) => Ok(Comp::Int(Int::Const(*v), NumberKind::Literal)),
            ExprKind::Float(v) => Ok(Comp::Real(Real::Const(*v))),
            ExprKind::Bool(b) => Ok(Comp::Truth(Truth::Const(*b))),
            ExprKind::Str(s) => Ok(Comp::Word(s.clone())),
            ExprKind::DType(d) => Ok(Comp::DType(*d)),
            ExprKind::DTypeVar(n) => {
                let dtype = self.env.dtype(n);
                dtype.map(Comp::DType).ok_or_else(|| format!("the element type `{n}` is not known"))
            }
            ExprKind::Lowest => Ok(Comp::Lowest),
            ExprKind::Index(i) => match &self.scope[*i] {
                Some(BoundName::Axis(s)) => Ok(Comp::Int(Int::Slot(*s), NumberKind::Index)),
                Some(BoundName::Segment(s)) => {
                    Ok(Comp::List(s.iter().map(|&s| Int::Slot(s)).collect::<Vec<_>>().into()))
                }
                None => Err("an index is read outside of its reduction".into()),
            },
            ExprKind::Name(n) => Err(format!("`{n}` has no value in a meaning")),
            ExprKind::Size(n) => Err(format!("`|{n}|` is not known")),
            ExprKind::Type(_, n) => Err(format!("the type of `{n}` is not known")),
            ExprKind::List(items) => Ok(Comp::List(self.index(items)?)),
            ExprKind::Entry(list, i) => {
                let at = int(self.expr(i)?, None)?;
                let known = self.env.attr(list).and_then(Attr::as_i64s);
                let known = known.ok_or_else(|| format!("`{list}` is no known list"))?;
                Ok(index_lists::at(known.into_iter().map(Int::Const).collect(), at))
            }
            ExprKind::Unary(UnaryOp::Neg, a) => negate(self.expr(a)?),
            ExprKind::Unary(UnaryOp::Not, a) => {
                Ok(Comp::Truth(Truth::Not(Box::new(truth(self.expr(a)?)?))))
            }
            ExprKind::Binary(op, a, b) => binary(*op, self.expr(a)?, self.expr(b)?),
            ExprKind::Call(f, args) => self.call(*f, args),
            ExprKind::Read(r) => self.read(r),
            ExprKind::Reduce(r) => self.reduce(r),
            ExprKind::If { cond, then, otherwise } => match truth(self.expr(cond)?)? {
                Truth::Const(true) => self.expr(then),
                Truth::Const(false) => self.expr(otherwise),
                c => choose(c, self.expr(then)?, self.expr(otherwise)?),
            },
            ExprKind::Test(..)
            | ExprKind::Mark(_)
            | ExprKind::Ask(..)
            | ExprKind::Apply(_)
            | ExprKind::Tuple(_) => Err(format!("`{e}` has no element")),
        }
    }

    /// The entries of an index or a list.
    fn index(&mut self, items: &[Elem]) -> Result<List, String> {
        if let [Elem::Splice(e)] = items {
            return index_lists::list(self.expr(e)?);
        }
        let mut out = Vec::new();
        for item in items {
            match item {
                Elem::One(e) => out.push(int(self.expr(e)?, None)?),
                Elem::Splice(e) => out.extend(index_lists::list(self.expr(e)?)?.items),
            }
        }
        Ok(out.into())
    }

    fn read(&mut self, r: &Access) -> Result<Comp, String> {
        let (input, list) = (r.input, self.index(&r.index)?);
        let MeaningParam { dtype, shape, name: base } = self.params[input];
        if list.items.len() != shape.len() {
            return Err(format!(
                "`{base}` has {} axes and is read with {} indices",
                shape.len(),
                list.items.len()
            ));
        }
        let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let strides = strides(&shape);
        let otherwise = r.otherwise.as_deref().map(|e| self.expr(e)).transpose()?;
        let linear = list.unravelled.filter(|(_, s)| *s == shape).map(|(offset, _)| offset);
        let index = list.items;
        Ok(if dtype.is_float() {
            let otherwise = otherwise.map(real).transpose()?;
            let read = Read { input, index, linear, shape, strides, otherwise, fast: None };
            Comp::Real(Real::Read(Box::new(read)))
        } else {
            let otherwise = otherwise.map(|e| int(e, Some(dtype))).transpose()?;
            let read = Read { input, index, linear, shape, strides, otherwise, fast: None };
            Comp::Int(Int::Read(Box::new(read)), NumberKind::Elem(dtype))
        })
    }

    fn reduce(&mut self, r: &Reduce) -> Result<Comp, String> {
        let mut over = Vec::new();
        for v in &r.over {
            let name = &v.name;
            let unknown = || format!("the extent of `{name}` is not known");
            let bound = if !v.segment {
                let n = self.env.axis(name).and_then(|e| e.as_const()).ok_or_else(unknown)?;
                over.push((self.slot(n), n));
                BoundName::Axis(over[over.len() - 1].0)
            } else {
                let extents = self.env.seg(name).ok_or_else(unknown)?;
                let extents: Option<Vec<i64>> = extents.iter().map(|e| e.as_const()).collect();
                let mut slots = Vec::new();
                for n in extents.ok_or_else(unknown)? {
                    over.push((self.slot(n), n));
                    slots.push(over[over.len() - 1].0);
                }
                BoundName::Segment(slots)
            };
            self.scope[v.id] = Some(bound);
        }
        let body = self.expr(&r.body);
        r.over.iter().for_each(|v| self.scope[v.id] = None);
        fold(r.monoid, over, body?)
    }

    fn call(&mut self, f: Function, args: &[Expr]) -> Result<Comp, String> {
        let mut args = args.iter().map(|a| self.expr(a)).collect::<Result<Vec<_>, _>>()?;
        if let Some(result) = index_lists::call(f, &args) {
            return result;
        }
        let wrong = || format!("`{f}` is no function of elements with these arguments");
        let last = args.pop().ok_or_else(wrong)?;
        let Some(first) = args.pop() else {
            return match (f, last) {
                (Function::Abs, v @ Comp::Int(_, NumberKind::Elem(DType::U64))) => Ok(v),
                (Function::Abs, Comp::Int(v, k)) => Ok(of_kind(Int::Abs(Box::new(v)), k)),
                (Function::Sign, Comp::Int(v, k)) => {
                    Ok(Comp::Int(Int::Signum(sign(k), Box::new(v)), k))
                }
                (
                    Function::Floor | Function::Ceil | Function::Round | Function::Int,
                    v @ Comp::Int(..),
                ) => Ok(v),
                (Function::Int, v) => {
                    let cut = Int::FromReal(DType::I64, Box::new(real(v)?));
                    Ok(Comp::Int(cut, NumberKind::Index))
                }
                (Function::Float, v) => Ok(Comp::Real(real(v)?)),
                (_, v) => {
                    let f = scalar::unary(f).ok_or_else(wrong)?;
                    Ok(Comp::Real(Real::Unary(f, Box::new(real(v)?))))
                }
            };
        };
        if !args.is_empty() {
            return Err(wrong());
        }
        match (f, first, last) {
            (Function::Cast, v, Comp::DType(d)) => cast(v, d),
            (Function::Maximum, a, b) => {
                arithmetic(RealOp::Max, [IntOp::Max, IntOp::Max, IntOp::MaxU], a, b)
            }
            (Function::Minimum, a, b) => {
                arithmetic(RealOp::Min, [IntOp::Min, IntOp::Min, IntOp::MinU], a, b)
            }
            (Function::Modulo, a, b) => binary(BinaryOp::Mod, a, b),
            (Function::Remainder, a, b) => {
                arithmetic(RealOp::Remainder, [IntOp::Rem, IntOp::Rem, IntOp::RemU], a, b)
            }
            (Function::BitAnd, a, b) => bits([IntOp::And; 3], a, b),
            (Function::BitOr, a, b) => bits([IntOp::Or; 3], a, b),
            (Function::BitXor, a, b) => bits([IntOp::Xor; 3], a, b),
            (Function::ShiftLeft, a, b) => bits([IntOp::Shl; 3], a, b),
            (Function::ShiftRight, a, b) => bits([IntOp::Shr, IntOp::Shr, IntOp::ShrU], a, b),
            _ => Err(wrong()),
        }
    }
}

/// An operation on the bits of two integers.
fn bits(ints: [IntOp; 3], a: Comp, b: Comp) -> Result<Comp, String> {
    match (&a, &b) {
        (Comp::Int(..), Comp::Int(..)) => arithmetic(RealOp::Add, ints, a, b),
        _ => Err("only integers have bits".into()),
    }
}

/// True if no index variable and no element occurs.
fn is_constant(e: &Expr) -> bool {
    !e.any(&mut |e| {
        matches!(
            e.kind,
            ExprKind::Index(_)
                | ExprKind::Lowest
                | ExprKind::DTypeVar(_)
                | ExprKind::Read(_)
                | ExprKind::Reduce(_)
        )
    })
}

/// Row-major strides in elements.
pub fn strides(shape: &[i64]) -> Vec<i64> {
    let mut out = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i].saturating_mul(shape[i]);
    }
    out
}

/// A constant that an extent takes part in counts as an index, which has no element type.
fn kind_of_constant(e: &Expr) -> NumberKind {
    match &e.kind {
        ExprKind::Size(_) => NumberKind::Index,
        ExprKind::Unary(_, a) => kind_of_constant(a),
        ExprKind::Binary(_, a, b) if kind_of_constant(a) == NumberKind::Literal => {
            kind_of_constant(b)
        }
        ExprKind::Binary(..) => NumberKind::Index,
        _ => NumberKind::Literal,
    }
}

fn constant(v: Val, kind: NumberKind) -> Option<Comp> {
    Some(match v {
        Val::Attr(Attr::Int(e)) => Comp::Int(Int::Const(e.as_const()?), kind),
        Val::Attr(Attr::Ints(v)) => {
            let items: Option<Vec<Int>> = v.iter().map(|e| e.as_const().map(Int::Const)).collect();
            Comp::List(items?.into())
        }
        Val::Attr(Attr::Float(b)) => Comp::Real(Real::Const(f64::from_bits(b))),
        Val::Attr(Attr::Bool(b)) => Comp::Truth(Truth::Const(b)),
        Val::Attr(Attr::Str(s)) => Comp::Word(s),
        Val::Attr(Attr::DType(d)) => Comp::DType(d),
        Val::Truth(t) => Comp::Truth(Truth::Const(t?)),
        Val::Truths(t) => {
            let t: Option<Vec<Truth>> = t.into_iter().map(|t| t.map(Truth::Const)).collect();
            Comp::Truths(t?)
        }
        // Known entries are constants; there is no list of real numbers to index with a variable.
        Val::Attr(Attr::Floats(_)) => return None,
    })
}
