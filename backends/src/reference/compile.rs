//! From a meaning to code: names become numbered index variables, lists become their entries.
//!
//! Works on one application at a time, so that every extent and attribute is a number and every list
//! has a known length.

use super::code::{Int, Read, Real, Slot, Truth};
use super::combine::{
    Comp, Kind, List, arithmetic, binary, cast, choose, fold, int, negate, of_kind, real, sign,
    truth,
};
use super::lists;
use super::scalar::{self, IntOp, RealOp};
use mlc_dsl::eval::{Env, Val, value};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::Dim;
use mlc_dsl::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, Meaning, UnaryOp};

/// An input as the compiler sees it.
#[derive(Clone, Debug)]
pub(super) struct Param<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: DType,
    pub(super) shape: &'a [usize],
}

/// The code of one output.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) body: Body,
    /// The index variables of the output, one per axis.
    pub(super) axes: Vec<(Slot, i64)>,
    /// How many values each index variable takes.
    pub(super) extents: Vec<i64>,
}

/// The value of one element.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Real(Real),
    /// Wrapped to the type.
    Int(DType, Int),
}

/// Compiles the meaning of an output of that type.
pub(super) fn meaning(
    meaning: &Meaning,
    dims: Option<&[Dim]>,
    dtype: DType,
    shape: &[usize],
    params: &[Param],
    env: &Env,
) -> Result<Code, String> {
    let mut c = Compiler { env, params, scope: vec![], extents: vec![] };
    let axes = c.bind_output(&meaning.index, dims, shape)?;
    let value = c.expr(&meaning.value)?;
    let body = match dtype.is_float() {
        true => Body::Real(real(value)?),
        false => Body::Int(dtype, int(value, Some(dtype))?),
    };
    Ok(Code { body, axes, extents: c.extents })
}

enum Bound {
    Axis(Slot),
    Segment(Vec<Slot>),
}

struct Compiler<'a> {
    env: &'a Env,
    params: &'a [Param<'a>],
    scope: Vec<(String, Bound)>,
    extents: Vec<i64>,
}

impl Compiler<'_> {
    fn slot(&mut self, extent: i64) -> Slot {
        self.extents.push(extent);
        self.extents.len() - 1
    }

    /// Gives the output's axes their variables.
    fn bind_output(
        &mut self,
        index: &[Elem],
        dims: Option<&[Dim]>,
        shape: &[usize],
    ) -> Result<Vec<(Slot, i64)>, String> {
        let width = |i: usize, e: &Elem| match (e, dims.and_then(|d| d.get(i))) {
            (Elem::One(_), _) => Some(1),
            (Elem::Splice(_), Some(Dim::Seg(s))) => self.env.seg(s).map(<[_]>::len),
            (Elem::Splice(e), _) => self.env.seg(plain_name(e)?).map(<[_]>::len),
        };
        let widths: Vec<Option<usize>> =
            index.iter().enumerate().map(|(i, e)| width(i, e)).collect();
        let known: usize = widths.iter().flatten().sum();
        let unknown = widths.iter().filter(|w| w.is_none()).count();
        let rest = shape.len().checked_sub(known);
        let rest = rest.filter(|&r| if unknown == 0 { r == 0 } else { unknown == 1 });
        let rest = rest.ok_or("the index of the meaning does not fit the result's shape")?;
        let mut at = 0;
        let mut axes = Vec::with_capacity(shape.len());
        for (elem, width) in index.iter().zip(widths) {
            let n = width.unwrap_or(rest);
            let slots: Vec<Slot> = shape[at..at + n].iter().map(|&d| self.slot(d as i64)).collect();
            axes.extend(slots.iter().zip(&shape[at..]).map(|(&s, &d)| (s, d as i64)));
            at += n;
            let (Elem::One(e) | Elem::Splice(e)) = elem;
            let name = plain_name(e).ok_or("the index of a meaning consists of names")?;
            let bound = match elem {
                Elem::One(_) => Bound::Axis(slots[0]),
                Elem::Splice(_) => Bound::Segment(slots),
            };
            self.scope.push((name.to_string(), bound));
        }
        Ok(axes)
    }

    fn lookup(&self, name: &str) -> Option<&Bound> {
        self.scope.iter().rev().find(|(n, _)| n == name).map(|(_, b)| b)
    }

    fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }

    /// True of the name of an axis or segment that has no index variable here.
    fn only_extent(&self, name: &str) -> bool {
        let env = self.env;
        env.attr(name).is_none() && (env.axis(name).is_some() || env.seg(name).is_some())
    }

    /// True if no index variable and no element occurs.
    fn constant(&self, e: &Expr) -> bool {
        let elem = |e: &Elem| match e {
            Elem::One(e) | Elem::Splice(e) => self.constant(e),
        };
        match &e.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) | ExprKind::Bool(_) => true,
            ExprKind::Name(n) => self.lookup(n).is_none() && !self.only_extent(n) && n != "lowest",
            ExprKind::Size(_) => true,
            ExprKind::List(items) => items.iter().all(elem),
            ExprKind::Tuple(items) => items.iter().all(|e| self.constant(e)),
            ExprKind::Unary(_, a) => self.constant(a),
            ExprKind::Binary(_, a, b) => self.constant(a) && self.constant(b),
            ExprKind::Call { callee, args } => {
                callee.text == "rank" || args.iter().all(|a| self.constant(&a.value))
            }
            ExprKind::Index { base, index, .. } => {
                self.param(&base.text).is_none() && index.iter().all(elem)
            }
            ExprKind::Reduce { .. } => false,
            ExprKind::If { cond, then, otherwise } => {
                self.constant(cond) && self.constant(then) && self.constant(otherwise)
            }
        }
    }

    fn expr(&mut self, e: &Expr) -> Result<Comp, String> {
        if self.constant(e)
            && let Ok(v) = value(e, self.env)
            && let Some(c) = constant(v, kind_of_constant(e))
        {
            return Ok(c);
        }
        match &e.kind {
            ExprKind::Int(v) => Ok(Comp::Int(Int::Const(*v), Kind::Literal)),
            ExprKind::Float(v) => Ok(Comp::Real(Real::Const(*v))),
            ExprKind::Bool(b) => Ok(Comp::Truth(Truth::Const(*b))),
            ExprKind::Str(s) => Ok(Comp::Word(s.clone())),
            ExprKind::Name(n) => self.name(n),
            ExprKind::Size(n) => Err(format!("`|{n}|` is not known")),
            ExprKind::List(items) => Ok(Comp::List(self.index(items)?)),
            ExprKind::Tuple(_) => Err("a tuple has no element".into()),
            ExprKind::Unary(UnaryOp::Neg, a) => negate(self.expr(a)?),
            ExprKind::Unary(UnaryOp::Not, a) => {
                Ok(Comp::Truth(Truth::Not(Box::new(truth(self.expr(a)?)?))))
            }
            ExprKind::Binary(op, a, b) => binary(*op, self.expr(a)?, self.expr(b)?),
            ExprKind::Call { callee, args } => self.call(&callee.text, args),
            ExprKind::Index { base, index, otherwise } => {
                self.read(&base.text, index, otherwise.as_deref())
            }
            ExprKind::Reduce { monoid, axes, body } => self.reduce(&monoid.text, axes, body),
            ExprKind::If { cond, then, otherwise } => match truth(self.expr(cond)?)? {
                Truth::Const(true) => self.expr(then),
                Truth::Const(false) => self.expr(otherwise),
                c => choose(c, self.expr(then)?, self.expr(otherwise)?),
            },
        }
    }

    fn name(&self, n: &str) -> Result<Comp, String> {
        match self.lookup(n) {
            Some(Bound::Axis(s)) => Ok(Comp::Int(Int::Slot(*s), Kind::Index)),
            Some(Bound::Segment(s)) => {
                Ok(Comp::List(s.iter().map(|&s| Int::Slot(s)).collect::<Vec<_>>().into()))
            }
            None if n == "lowest" => Ok(Comp::Lowest),
            None if self.only_extent(n) => {
                Err(format!("`{n}` is no index here; its extent is `|{n}|`"))
            }
            None => match self.env.dtype(n) {
                Some(d) => Ok(Comp::DType(d)),
                None => Err(format!("`{n}` has no value in a meaning")),
            },
        }
    }

    /// The entries of an index or a list.
    fn index(&mut self, items: &[Elem]) -> Result<List, String> {
        if let [Elem::Splice(e)] = items {
            return lists::list(self.expr(e)?);
        }
        let mut out = Vec::new();
        for item in items {
            match item {
                Elem::One(e) => out.push(int(self.expr(e)?, None)?),
                Elem::Splice(e) => out.extend(lists::list(self.expr(e)?)?.items),
            }
        }
        Ok(out.into())
    }

    fn read(
        &mut self,
        base: &str,
        index: &[Elem],
        otherwise: Option<&Expr>,
    ) -> Result<Comp, String> {
        let list = self.index(index)?;
        let Some(input) = self.param(base) else {
            let known = self.env.attr(base).and_then(Attr::as_i64s);
            let known = known.ok_or_else(|| format!("`{base}` is no input"))?;
            let [at] = list.items.as_slice() else {
                return Err(format!("the list `{base}` takes one index"));
            };
            return Ok(lists::at(known.into_iter().map(Int::Const).collect(), at.clone()));
        };
        let Param { dtype, shape, .. } = self.params[input];
        if list.items.len() != shape.len() {
            return Err(format!(
                "`{base}` has {} axes and is read with {} indices",
                shape.len(),
                list.items.len()
            ));
        }
        let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let strides = strides(&shape);
        let otherwise = otherwise.map(|e| self.expr(e)).transpose()?;
        let linear = list.unravelled.filter(|(_, s)| *s == shape).map(|(offset, _)| offset);
        let index = list.items;
        Ok(if dtype.is_float() {
            let otherwise = otherwise.map(real).transpose()?;
            let read = Read { input, index, linear, shape, strides, otherwise, fast: None };
            Comp::Real(Real::Read(Box::new(read)))
        } else {
            let otherwise = otherwise.map(|e| int(e, Some(dtype))).transpose()?;
            let read = Read { input, index, linear, shape, strides, otherwise, fast: None };
            Comp::Int(Int::Read(Box::new(read)), Kind::Elem(dtype))
        })
    }

    fn reduce(&mut self, monoid: &str, axes: &[Elem], body: &Expr) -> Result<Comp, String> {
        let outer = self.scope.len();
        let mut over = Vec::new();
        for axis in axes {
            let (Elem::One(e) | Elem::Splice(e)) = axis;
            let name = plain_name(e).ok_or("a reduction runs over named axes")?;
            let unknown = || format!("the extent of `{name}` is not known");
            let bound = if let Elem::One(_) = axis {
                let n = self.env.axis(name).and_then(|e| e.as_const()).ok_or_else(unknown)?;
                over.push((self.slot(n), n));
                Bound::Axis(over[over.len() - 1].0)
            } else {
                let extents = self.env.seg(name).ok_or_else(unknown)?;
                let extents: Option<Vec<i64>> = extents.iter().map(|e| e.as_const()).collect();
                let mut slots = Vec::new();
                for n in extents.ok_or_else(unknown)? {
                    over.push((self.slot(n), n));
                    slots.push(over[over.len() - 1].0);
                }
                Bound::Segment(slots)
            };
            self.scope.push((name.to_string(), bound));
        }
        let body = self.expr(body);
        self.scope.truncate(outer);
        fold(monoid, over, body?)
    }

    fn call(&mut self, name: &str, args: &[Arg]) -> Result<Comp, String> {
        let mut args = args.iter().map(|a| self.expr(&a.value)).collect::<Result<Vec<_>, _>>()?;
        if let Some(result) = lists::call(name, &args) {
            return result;
        }
        let wrong = || format!("`{name}` is no function of elements with these arguments");
        let last = args.pop().ok_or_else(wrong)?;
        let Some(first) = args.pop() else {
            return match (name, last) {
                ("abs", v @ Comp::Int(_, Kind::Elem(DType::U64))) => Ok(v),
                ("abs", Comp::Int(v, k)) => Ok(of_kind(Int::Abs(Box::new(v)), k)),
                ("sign", Comp::Int(v, k)) => Ok(Comp::Int(Int::Signum(sign(k), Box::new(v)), k)),
                ("floor" | "ceil" | "round" | "int", v @ Comp::Int(..)) => Ok(v),
                ("int", v) => {
                    let cut = Int::FromReal(DType::I64, Box::new(real(v)?));
                    Ok(Comp::Int(cut, Kind::Index))
                }
                ("float", v) => Ok(Comp::Real(real(v)?)),
                (_, v) => {
                    let f = scalar::unary(name).ok_or_else(wrong)?;
                    Ok(Comp::Real(Real::Unary(f, Box::new(real(v)?))))
                }
            };
        };
        if !args.is_empty() {
            return Err(wrong());
        }
        match (name, first, last) {
            ("cast", v, Comp::DType(d)) => cast(v, d),
            ("maximum", a, b) => {
                arithmetic(RealOp::Max, [IntOp::Max, IntOp::Max, IntOp::MaxU], a, b)
            }
            ("minimum", a, b) => {
                arithmetic(RealOp::Min, [IntOp::Min, IntOp::Min, IntOp::MinU], a, b)
            }
            ("modulo", a, b) => binary(BinaryOp::Mod, a, b),
            ("remainder", a, b) => {
                arithmetic(RealOp::Remainder, [IntOp::Rem, IntOp::Rem, IntOp::RemU], a, b)
            }
            _ => Err(wrong()),
        }
    }
}

/// The name that an expression consists of.
fn plain_name(e: &Expr) -> Option<&str> {
    match &e.kind {
        ExprKind::Name(n) => Some(n),
        _ => None,
    }
}

/// Row-major strides in elements.
pub(super) fn strides(shape: &[i64]) -> Vec<i64> {
    let mut out = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i].saturating_mul(shape[i]);
    }
    out
}

/// A constant that an extent takes part in counts as an index, which has no element type.
fn kind_of_constant(e: &Expr) -> Kind {
    match &e.kind {
        ExprKind::Size(_) => Kind::Index,
        ExprKind::Unary(_, a) => kind_of_constant(a),
        ExprKind::Binary(_, a, b) if kind_of_constant(a) == Kind::Literal => kind_of_constant(b),
        ExprKind::Binary(..) => Kind::Index,
        _ => Kind::Literal,
    }
}

fn constant(v: Val, kind: Kind) -> Option<Comp> {
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
