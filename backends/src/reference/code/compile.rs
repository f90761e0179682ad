//! Compiles a meaning to code: names become numbered index variables, lists become their entries.
//!
//! Works on one application at a time, so that every attribute is a number and every list has a known length. Extents are numbers,
//! too, or open: then variables stand for them and for what is computed from them ([`OpenCode`]).

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
use mlc_dsl::ir::{Attr, DType, Extent, Type};
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
    let mut c = MeaningCompiler::new(meaning, params, env);
    let axes = c.bind_output(&meaning.index, dims, &Shape::Known(shape))?;
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

/// The code of one output of which extents are open. Numbers that stand for these in the code are [`UNKNOWN`]: what they are is told
/// by the variables.
#[derive(Clone, Debug)]
pub struct OpenCode {
    /// The value of an element.
    pub body: Body,
    /// The index variables of the output, one per axis.
    pub axes: Vec<Slot>,
    /// How many values each index variable takes, or the number that it is.
    pub variables: Vec<OpenVariable>,
}

/// A variable of open code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenVariable {
    /// An index variable: how many values it takes.
    Index(Extent),
    /// A number that extents make.
    Number(Extent),
}

/// What stands in open code for the number of an extent that is open.
pub const UNKNOWN: i64 = i64::MIN;

/// Compiles the meaning of an output of that type, whose extents and those of the parameters may be open.
pub fn open_meaning(
    meaning: &Meaning,
    dims: Option<&[Dim]>,
    ty: &Type,
    params: &[(&str, &Type)],
    env: &Env,
) -> Result<OpenCode, String> {
    let known = |t: &Type| t.shape.iter().map(|_| 0).collect();
    let shapes: Vec<Vec<usize>> = params.iter().map(|p| known(p.1)).collect();
    let all = params.iter().zip(&shapes);
    let all: Vec<MeaningParam> =
        all.map(|((name, ty), shape)| MeaningParam { name, dtype: ty.dtype, shape }).collect();
    let mut c = MeaningCompiler::new(meaning, &all, env);
    c.open = Some(OpenNumbers {
        variables: vec![],
        params: params.iter().map(|p| p.1.shape.clone()).collect(),
    });
    let axes = c.bind_output(&meaning.index, dims, &Shape::Open(&ty.shape))?;
    let value = c.expr(&meaning.value)?;
    let body = match ty.dtype.is_float() {
        true => Body::Real(real(value)?),
        false => Body::Int(ty.dtype, int(value, Some(ty.dtype))?),
    };
    let variables = c.open.map(|open| open.variables).unwrap_or_default();
    Ok(OpenCode { body, axes: axes.into_iter().map(|a| a.0).collect(), variables })
}

/// The extents of an output.
enum Shape<'a> {
    Known(&'a [usize]),
    Open(&'a [Extent]),
}

impl Shape<'_> {
    fn rank(&self) -> usize {
        match self {
            Shape::Known(shape) => shape.len(),
            Shape::Open(shape) => shape.len(),
        }
    }
}

/// The variables of open code, by their numbers, and the extents of its parameters.
struct OpenNumbers {
    variables: Vec<OpenVariable>,
    params: Vec<Vec<Extent>>,
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
    /// If extents may be open, what is known of them.
    open: Option<OpenNumbers>,
}

impl<'a> MeaningCompiler<'a> {
    fn new(meaning: &Meaning, params: &'a [MeaningParam<'a>], env: &'a Env) -> MeaningCompiler<'a> {
        let scope = (0..meaning.variables).map(|_| None).collect();
        MeaningCompiler { env, params, scope, extents: vec![], open: None }
    }

    fn slot(&mut self, extent: i64) -> Slot {
        self.extents.push(extent);
        if let Some(open) = &mut self.open {
            open.variables.push(OpenVariable::Index(extent.into()));
        }
        self.extents.len() - 1
    }

    /// A new index variable with its extent, if that is known or may be open.
    fn variable(&mut self, extent: &Extent) -> Option<(Slot, i64)> {
        let n = match (extent.as_const(), &self.open) {
            (Some(n), _) => n,
            (None, Some(_)) if !extent.is_too_large() => UNKNOWN,
            (None, _) => return None,
        };
        let slot = self.slot(n);
        if let Some(open) = self.open.as_mut().filter(|_| n == UNKNOWN) {
            open.variables[slot] = OpenVariable::Index(extent.clone());
        }
        Some((slot, n))
    }

    /// The number of an extent: a variable stands for it if it is open.
    fn number(&mut self, extent: &Extent) -> Option<Int> {
        if let Some(n) = extent.as_const() {
            return Some(Int::Const(n));
        }
        let open = self.open.as_mut().filter(|_| !extent.is_too_large())?;
        let number = OpenVariable::Number(extent.clone());
        let known = open.variables.iter().position(|v| *v == number);
        Some(Int::Slot(known.unwrap_or_else(|| {
            open.variables.push(number);
            self.extents.push(UNKNOWN);
            self.extents.len() - 1
        })))
    }

    /// Gives the output's axes their variables.
    fn bind_output(
        &mut self,
        index: &[IndexVar],
        dims: Option<&[Dim]>,
        shape: &Shape<'_>,
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
        let rest = shape.rank().checked_sub(known);
        let rest = rest.filter(|&r| if unknown == 0 { r == 0 } else { unknown == 1 });
        let rest = rest.ok_or("the index of the meaning does not fit the result's shape")?;
        let mut at = 0;
        let mut axes = Vec::with_capacity(shape.rank());
        for (v, width) in index.iter().zip(widths) {
            let n = width.unwrap_or(rest);
            let mut axis = |i: usize| match shape {
                Shape::Known(shape) => Some((self.slot(shape[i] as i64), shape[i] as i64)),
                Shape::Open(shape) => self.variable(&shape[i]),
            };
            let own: Option<Vec<(Slot, i64)>> = (at..at + n).map(&mut axis).collect();
            let own = own.ok_or("an extent of the result is not known")?;
            let slots: Vec<Slot> = own.iter().map(|a| a.0).collect();
            axes.extend(own);
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
            && let Some(c) = self.constant(v, kind_of_constant(e))
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
        let is_number = list.unravelled.is_some();
        let extents = if is_number { self.extents_of(input, &shape) } else { None };
        let otherwise = r.otherwise.as_deref().map(|e| self.expr(e)).transpose()?;
        let linear =
            list.unravelled.filter(|(_, s)| Some(s) == extents.as_ref()).map(|(offset, _)| offset);
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
        let (mut over, mut extents) = (Vec::new(), Vec::new());
        for v in &r.over {
            let name = &v.name;
            let unknown = || format!("the extent of `{name}` is not known");
            let bound = if !v.segment {
                let extent = self.env.axis(name).ok_or_else(unknown)?.clone();
                over.push(self.variable(&extent).ok_or_else(unknown)?);
                extents.push(extent);
                BoundName::Axis(over[over.len() - 1].0)
            } else {
                let own = self.env.seg(name).ok_or_else(unknown)?.to_vec();
                let mut slots = Vec::new();
                for extent in own {
                    over.push(self.variable(&extent).ok_or_else(unknown)?);
                    slots.push(over[over.len() - 1].0);
                    extents.push(extent);
                }
                BoundName::Segment(slots)
            };
            self.scope[v.id] = Some(bound);
        }
        let body = self.expr(&r.body);
        r.over.iter().for_each(|v| self.scope[v.id] = None);
        let known = over.iter().fold(1i64, |n, o| n.saturating_mul(o.1));
        let count = match over.iter().any(|o| o.1 == UNKNOWN) {
            true => {
                let all = extents.iter().fold(Extent::from(1), |n, e| &n * e);
                self.number(&all).ok_or("the number of a reduction's terms is not known")?
            }
            false => Int::Const(known),
        };
        fold(r.monoid, over, count, body?)
    }

    /// The extents of a parameter, as numbers and variables.
    fn extents_of(&mut self, input: usize, known: &[i64]) -> Option<Vec<Int>> {
        match &self.open {
            None => Some(known.iter().map(|&n| Int::Const(n)).collect()),
            Some(open) => {
                let shape = open.params[input].clone();
                shape.iter().map(|e| self.number(e)).collect()
            }
        }
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

impl MeaningCompiler<'_> {
    fn constant(&mut self, v: Val, kind: NumberKind) -> Option<Comp> {
        Some(match v {
            Val::Attr(Attr::Int(e)) => Comp::Int(self.number(&e)?, kind),
            Val::Attr(Attr::Ints(v)) => {
                let items: Option<Vec<Int>> = v.iter().map(|e| self.number(e)).collect();
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
}
