//! Shape tensors: small tensors whose elements are known as extents before anything runs.
//!
//! Imported models compute shapes with ordinary operators (`Shape`, `Gather`, `Concat`, …). Here
//! the meaning of an operator is evaluated element by element over extents instead of numbers, so that such
//! a computation yields `[batch, seq, 768]`. Partial on purpose: what is not decided for all values of
//! the symbols is unknown. No operator is known by name.
//!
//! Integers here are those of extents: 64 bits, without a type to wrap to. If arithmetic on elements
//! exceeds `EXACT` or the range of their type, the value is unknown and the reference interpreter computes it.

use crate::eval::functions::{self, Function};
use crate::eval::{self, Env, Val};
use crate::expr::{BinaryOp, Elem, Expr, ExprKind, IndexVar, Monoid, Read, Reduce, UnaryOp};
use crate::ir::{Attr, DType, Extent, Tensor};
use crate::library::{CallKind, Callable, Dim};
use crate::typing::infer::Application;

/// Tensors with more elements are not known, but for those of a type that indices have.
pub const MAX_ELEMENTS: usize = 4096;
/// Indices, such as those of the rows of a slice that is written to.
const MAX_INDICES: usize = 1 << 16;
/// Sums, differences and comparisons of integers up to here cannot overflow.
const EXACT: i64 = 1 << 53;
/// Evaluations with more steps are given up.
const MAX_STEPS: usize = 1 << 20;

/// The value of one element.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownElement {
    /// An integer or truth value (0 or 1), perhaps symbolic; also in tensors of floats.
    Int(Extent),
    /// A real number.
    Real(f64),
}

/// A tensor whose elements are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub elements: Vec<KnownElement>,
}

impl Known {
    /// The elements of a tensor, unless there are too many or one is beyond the integers of extents.
    pub fn of(t: &Tensor) -> Option<Known> {
        let beyond = |i| t.get_i128(i) > i128::from(i64::MAX);
        if t.dtype() == DType::Str {
            return None;
        }
        if t.len() > most_elements(t.dtype()) || t.dtype() == DType::U64 && (0..t.len()).any(beyond)
        {
            return None;
        }
        let element = |i| match t.dtype().is_float() {
            true => KnownElement::Real(t.get_f64(i)),
            false => KnownElement::Int(Extent::from(t.get_i64(i))),
        };
        let elements = (0..t.len()).map(element).collect();
        Some(Known { dtype: t.dtype(), shape: t.shape().to_vec(), elements })
    }

    /// The tensor, if every element is a number.
    pub fn tensor(&self) -> Option<Tensor> {
        if self.dtype.is_float() {
            let v: Option<Vec<f64>> = self.elements.iter().map(KnownElement::as_f64).collect();
            return Some(Tensor::from_f64(self.dtype, self.shape.clone(), &v?));
        }
        let v: Option<Vec<i64>> = self.extents()?.iter().map(Extent::as_const).collect();
        Some(Tensor::from_i64(self.dtype, self.shape.clone(), &v?))
    }

    /// The elements as extents, if they are integers or truth values.
    pub fn extents(&self) -> Option<Vec<Extent>> {
        self.elements
            .iter()
            .map(|e| if let KnownElement::Int(v) = e { Some(v.clone()) } else { None })
            .collect()
    }

    /// True if every element is also a float of 64 bits.
    pub fn is_exact(&self) -> bool {
        let exact = |e: &KnownElement| match e {
            KnownElement::Int(e) => e.as_const().is_none_or(|v| v.abs_diff(0) <= EXACT as u64),
            KnownElement::Real(_) => true,
        };
        self.elements.iter().all(exact)
    }

    fn read(&self, index: &[i64]) -> Option<&KnownElement> {
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&self.shape) {
            at = at * n + usize::try_from(i).ok().filter(|&i| i < n)?;
        }
        (index.len() == self.shape.len()).then(|| self.elements.get(at))?
    }
}

impl KnownElement {
    /// The number, if it is known.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            KnownElement::Int(e) => e.as_const().map(|v| v as f64),
            KnownElement::Real(v) => Some(*v),
        }
    }
}

/// How many elements of a type are known at most.
fn most_elements(dtype: DType) -> usize {
    match dtype {
        // Truth values are comparisons of them.
        DType::I32 | DType::I64 | DType::Bool => MAX_INDICES,
        _ => MAX_ELEMENTS,
    }
}

/// One output of an operator on known arguments; `None` if it is not known.
pub fn evaluate(
    call: &Callable,
    output: usize,
    app: &Application,
    args: &[&Known],
) -> Option<Known> {
    let CallKind::Op(meanings) = &call.kind else { return None };
    let (_, pattern) = call.outputs.get(output)?;
    let meaning = meanings.get(output)?;
    let ty = app.types.get(output)?;
    let shape = ty.known_shape()?;
    let most = most_elements(ty.dtype);
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n <= most))?;
    let indices = vec![None; meaning.variables];
    let mut ev = Evaluator { env: &app.env, inputs: args, indices, steps: 0 };
    let variables = ev.variables(&meaning.index, pattern.dims.as_deref(), shape.len())?;
    let mut index = vec![0i64; shape.len()];
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        ev.bind(&variables, &index);
        elements.push(element(ev.value(&meaning.value)?, ty.dtype)?);
        advance(&mut index, &shape);
    }
    Some(Known { dtype: ty.dtype, shape, elements })
}

/// The next index in row-major order.
fn advance(index: &mut [i64], shape: &[usize]) {
    for (i, &n) in index.iter_mut().zip(shape).rev() {
        *i += 1;
        if (*i as usize) < n {
            return;
        }
        *i = 0;
    }
}

/// A value as an element of a type: numbers are rounded or wrapped to it.
fn element(v: Val, dtype: DType) -> Option<KnownElement> {
    let number = |v: f64| Tensor::from_f64(dtype, vec![], &[v]).get_f64(0);
    Some(match v {
        Val::Truth(t) => KnownElement::Int(Extent::from(i64::from(t?))),
        Val::Attr(Attr::Bool(b)) => KnownElement::Int(Extent::from(i64::from(b))),
        Val::Attr(Attr::Int(e)) => match e.as_const() {
            Some(v) if dtype.is_float() => KnownElement::Real(number(v as f64)),
            Some(_) if dtype == DType::Bool => KnownElement::Int(Extent::from(i64::from(!e.is(0)))),
            Some(v) if in_range(v, dtype) => KnownElement::Int(e),
            Some(_) => return None,
            None if dtype == DType::Bool => return None,
            None => KnownElement::Int(e),
        },
        Val::Attr(Attr::Float(b)) if dtype.is_float() => {
            KnownElement::Real(number(f64::from_bits(b)))
        }
        _ => return None,
    })
}

fn in_range(v: i64, dtype: DType) -> bool {
    dtype.int_range().is_none_or(|(low, high)| (low..=high).contains(&i128::from(v)))
}

/// The integers that arithmetic takes and yields.
fn integers(v: &Val) -> &[Extent] {
    match v {
        Val::Attr(Attr::Int(e)) => std::slice::from_ref(e),
        Val::Attr(Attr::Ints(v)) => v,
        _ => &[],
    }
}

fn const_of(v: &Val) -> Option<i64> {
    if let Val::Attr(Attr::Int(e)) = v { e.as_const() } else { None }
}

/// The quotient of whole numbers among real ones; by a zero, whose sign is not known here, there is none.
fn quotient(a: &Extent, b: &Extent) -> Option<Val> {
    let exact = a.div_exact(b).map(Attr::Int);
    let divisor = || b.as_const().filter(|b| *b != 0);
    let real = || Some(Attr::float(a.as_const()? as f64 / divisor()? as f64));
    exact.or_else(real).map(Val::Attr)
}

fn compare(op: BinaryOp, a: i64, b: i64) -> Option<bool> {
    Some(match op {
        BinaryOp::Eq => a == b,
        BinaryOp::Ne => a != b,
        BinaryOp::Lt => a < b,
        BinaryOp::Le => a <= b,
        BinaryOp::Gt => a > b,
        BinaryOp::Ge => a >= b,
        _ => return None,
    })
}

struct Evaluator<'a> {
    env: &'a Env,
    inputs: &'a [&'a Known],
    /// What the index variables are at this element.
    indices: Vec<Option<Attr>>,
    steps: usize,
}

/// An index variable and how many axes it stands for: `None` for one, not in a list.
type Variable = (usize, Option<usize>);

impl Evaluator<'_> {
    /// The index variables of an output.
    fn variables(
        &self,
        index: &[IndexVar],
        dims: Option<&[Dim]>,
        rank: usize,
    ) -> Option<Vec<Variable>> {
        let mut out: Vec<(usize, Option<Option<usize>>)> = Vec::new();
        for (i, v) in index.iter().enumerate() {
            let width = match (v.segment, dims.and_then(|d| d.get(i))) {
                (false, _) => Some(None),
                (true, Some(Dim::Seg(s))) => self.env.seg(s).map(|s| Some(s.len())),
                (true, _) => self.env.seg(&v.name).map(|s| Some(s.len())),
            };
            out.push((v.id, width));
        }
        let known: usize = out.iter().filter_map(|v| v.1.map(|w| w.unwrap_or(1))).sum();
        let rest = rank.checked_sub(known)?;
        let open = out.iter().filter(|v| v.1.is_none()).count();
        (open == usize::from(rest > 0) || open == 1)
            .then(|| out.into_iter().map(|(n, w)| (n, w.unwrap_or(Some(rest)))).collect())
    }

    fn bind(&mut self, variables: &[Variable], index: &[i64]) {
        let mut at = 0;
        for (id, width) in variables {
            let value = match width {
                None => Attr::int(index[at]),
                Some(n) => Attr::ints(index[at..at + n].iter().copied()),
            };
            at += width.unwrap_or(1);
            self.indices[*id] = Some(value);
        }
    }

    fn value(&mut self, e: &Expr) -> Option<Val> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return None;
        }
        match &e.kind {
            ExprKind::Unary(UnaryOp::Neg, a) => {
                let v = self.value(a)?;
                let elements = a.reads();
                let negated = eval::negated(v.clone()).ok()?;
                (!elements || self.is_exact(&v) && self.is_exact(&negated)).then_some(negated)
            }
            ExprKind::Unary(UnaryOp::Not, a) => Some(Val::Truth(self.truth(a)?.map(|t| !t))),
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let absorbing = *op == BinaryOp::Or;
                let a = self.truth(a)?;
                if a == Some(absorbing) {
                    return Some(Val::Truth(a));
                }
                let b = self.truth(b)?;
                Some(Val::Truth(if b == Some(absorbing) { b } else { a.and(b) }))
            }
            ExprKind::Binary(op, a, b) => self.arithmetic(*op, a, b),
            ExprKind::If { cond, then, otherwise } => match self.truth(cond)? {
                Some(true) => self.value(then),
                Some(false) => self.value(otherwise),
                None => {
                    let (a, b) = (self.value(then)?, self.value(otherwise)?);
                    (a == b).then_some(a)
                }
            },
            ExprKind::List(items) => self.list(items).map(|v| Val::Attr(Attr::Ints(v))),
            ExprKind::Call(f, args) => self.call(*f, args),
            ExprKind::Read(r) => self.read(r),
            ExprKind::Reduce(r) => self.reduce(r),
            ExprKind::Index(i) => self.indices[*i].clone().map(Val::Attr),
            ExprKind::Entry(list, i) => {
                let i = self.value(i)?.int().ok()?;
                functions::at(Val::Attr(self.env.attr(list)?.clone()), &i).ok()
            }
            ExprKind::DTypeVar(n) => self.env.dtype(n).map(|d| Val::Attr(Attr::DType(d))),
            _ => eval::value(e, self.env).ok(),
        }
    }

    fn truth(&mut self, e: &Expr) -> Option<Option<bool>> {
        match self.value(e)? {
            Val::Truth(t) => Some(t),
            Val::Attr(Attr::Bool(b)) => Some(Some(b)),
            Val::Attr(Attr::Int(v)) => Some(v.as_const().map(|v| v != 0)),
            _ => None,
        }
    }

    /// True if arithmetic of elements with these operands or of this result is that of their types.
    fn is_exact(&self, v: &Val) -> bool {
        let types = self.inputs.iter().map(|k| k.dtype).filter(|d| d.is_int());
        let fits = |v: i64| v.abs_diff(0) <= EXACT as u64 && types.clone().all(|d| in_range(v, d));
        integers(v).iter().filter_map(Extent::as_const).all(fits)
    }

    fn arithmetic(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<Val> {
        let elements = a.reads() || b.reads();
        let (x, y) = (self.value(a)?, self.value(b)?);
        if !elements {
            return eval::binary(op, x, y).ok();
        }
        if let (Some(p), Some(q)) = (const_of(&x), const_of(&y))
            && let Some(t) = compare(op, p, q)
        {
            return Some(Val::Truth(Some(t)));
        }
        if !self.is_exact(&x) || !self.is_exact(&y) {
            return None;
        }
        // A product of two of these may overflow, and then lies anywhere.
        if let (BinaryOp::Mul, Some(p), Some(q)) = (op, const_of(&x), const_of(&y))
            && p.checked_mul(q).is_none()
        {
            return None;
        }
        let both = a.reads() && b.reads();
        self.combine(op, x, y, both).filter(|v| self.is_exact(v))
    }

    fn combine(&self, op: BinaryOp, x: Val, y: Val, elements: bool) -> Option<Val> {
        let real = elements && self.inputs.iter().any(|k| k.dtype.is_float());
        match (op, &x, &y) {
            (BinaryOp::Div, Val::Attr(Attr::Int(p)), Val::Attr(Attr::Int(q))) if real => {
                quotient(p, q)
            }
            (BinaryOp::Div, Val::Attr(Attr::Int(p)), Val::Attr(Attr::Int(q))) if elements => {
                // Integer elements divide towards zero, indices towards minus infinity.
                if let (Some(p), Some(q)) = (p.as_const(), q.as_const()) {
                    return Some(Val::Attr(Attr::int(p.checked_div(q)?)));
                }
                (p.at_least(0) && q.at_least(0)).then(|| eval::binary(op, x, y).ok())?
            }
            (BinaryOp::Div, Val::Attr(Attr::Float(_)), _)
            | (BinaryOp::Div, _, Val::Attr(Attr::Float(_))) => {
                if let (Some(a), Some(b)) = (int_of(&x), int_of(&y)) {
                    return quotient(&a, &b);
                }
                eval::binary(op, x, y).ok()
            }
            (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, Val::Attr(Attr::Float(_)), _)
            | (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, _, Val::Attr(Attr::Float(_))) => {
                // An extent among the floats of a shape computation meets whole numbers.
                let symbolic = |v: &Val| int_of(v).is_some_and(|e| e.as_const().is_none());
                match (int_of(&x), int_of(&y)) {
                    (Some(a), Some(b)) if symbolic(&x) || symbolic(&y) => {
                        eval::binary(op, Val::Attr(Attr::Int(a)), Val::Attr(Attr::Int(b))).ok()
                    }
                    _ => eval::binary(op, x, y).ok(),
                }
            }
            _ => eval::binary(op, x, y).ok(),
        }
    }

    fn list(&mut self, items: &[Elem]) -> Option<Vec<Extent>> {
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Elem::One(e) => out.push(self.value(e)?.int().ok()?),
                Elem::Splice(e) => out.extend(self.value(e)?.ints().ok()?),
            }
        }
        Some(out)
    }

    fn read(&mut self, r: &Read) -> Option<Val> {
        let list = self.list(&r.index)?;
        let index: Option<Vec<i64>> = list.iter().map(Extent::as_const).collect();
        let index = index?;
        match self.inputs.get(r.input)?.read(&index) {
            Some(KnownElement::Int(e)) => Some(Val::Attr(Attr::Int(e.clone()))),
            Some(KnownElement::Real(v)) => Some(Val::Attr(Attr::float(*v))),
            None => self.value(r.otherwise.as_deref()?),
        }
    }

    fn reduce(&mut self, r: &Reduce) -> Option<Val> {
        let (mut variables, mut shape) = (Vec::new(), Vec::new());
        for v in &r.over {
            let extents = match v.segment {
                false => vec![self.env.axis(&v.name)?.clone()],
                true => self.env.seg(&v.name)?.to_vec(),
            };
            variables.push((v.id, v.segment.then_some(extents.len())));
            for e in extents {
                shape.push(usize::try_from(e.as_const()?).ok()?);
            }
        }
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let mut index = vec![0i64; shape.len()];
        let mut sum: Option<Val> = None;
        for _ in 0..count.min(MAX_STEPS) {
            self.bind(&variables, &index);
            let v = self.value(&r.body).filter(|v| self.is_exact(v))?;
            sum = Some(match sum {
                None => v,
                Some(s) => join(r.monoid, s, v).filter(|v| self.is_exact(v))?,
            });
            advance(&mut index, &shape);
        }
        sum.or_else(|| match r.monoid {
            Monoid::Sum => Some(Val::Attr(Attr::int(0))),
            Monoid::Prod => Some(Val::Attr(Attr::int(1))),
            Monoid::Any => Some(Val::Truth(Some(false))),
            Monoid::All => Some(Val::Truth(Some(true))),
            Monoid::Max | Monoid::Min | Monoid::Mean => None,
        })
    }

    fn call(&mut self, f: Function, args: &[Expr]) -> Option<Val> {
        let vals = args.iter().map(|a| self.value(a)).collect::<Option<Vec<_>>>()?;
        let moves = matches!(f, Function::Cast | Function::Ravel | Function::Unravel);
        let elements = !moves && args.iter().any(Expr::reads);
        if let (true, [a, b]) = (elements, vals.as_slice())
            && let (Some(a), Some(b)) = (const_of(a), const_of(b))
            && let Function::Maximum | Function::Minimum = f
        {
            let v = if f == Function::Maximum { a.max(b) } else { a.min(b) };
            return Some(Val::Attr(Attr::int(v)));
        }
        if elements && !vals.iter().all(|v| self.is_exact(v)) {
            return None;
        }
        let result = function(f, vals)?;
        (!elements || self.is_exact(&result)).then_some(result)
    }
}

/// A function of values.
fn function(f: Function, vals: Vec<Val>) -> Option<Val> {
    match (f, vals.as_slice()) {
        (Function::Cast, [v, Val::Attr(Attr::DType(to))]) => cast(v.clone(), *to),
        (Function::Modulo, [a, b]) => eval::binary(BinaryOp::Mod, a.clone(), b.clone()).ok(),
        (Function::Remainder, [Val::Attr(Attr::Int(a)), Val::Attr(Attr::Int(b))]) => {
            match (a.as_const(), b.as_const()) {
                (Some(a), Some(b)) => Some(Val::Attr(Attr::int(a.checked_rem(b)?))),
                _ => (a.at_least(0) && b.at_least(1)).then(|| Val::Attr(Attr::Int(a.modulo(b)))),
            }
        }
        (Function::Abs, [Val::Attr(Attr::Int(a))]) => match a.as_const() {
            Some(v) => Some(Val::Attr(Attr::int(v.wrapping_abs()))),
            None => a.at_least(0).then(|| vals[0].clone()),
        },
        (Function::Sign, [Val::Attr(Attr::Int(a))]) => Some(Val::Attr(Attr::int(a.sign()?.into()))),
        (Function::Floor | Function::Ceil | Function::Round, [v @ Val::Attr(Attr::Int(_))]) => {
            Some(v.clone())
        }
        (Function::Ceil, [Val::Attr(Attr::Float(b))]) => {
            Some(Val::Attr(Attr::float(f64::from_bits(*b).ceil())))
        }
        (Function::Round, [Val::Attr(Attr::Float(b))]) => {
            Some(Val::Attr(Attr::float(f64::from_bits(*b).round_ties_even())))
        }
        (Function::Ravel, [Val::Attr(Attr::Ints(index)), Val::Attr(Attr::Ints(shape))]) => {
            let number = index.iter().zip(shape).fold(Extent::from(0), |n, (i, d)| &(&n * d) + i);
            (index.len() == shape.len()).then_some(Val::Attr(Attr::Int(number)))
        }
        (Function::Unravel, [Val::Attr(Attr::Int(number)), Val::Attr(Attr::Ints(shape))]) => {
            let mut number = number.as_const()?;
            let mut out = vec![0; shape.len()];
            for (slot, d) in out.iter_mut().zip(shape).rev() {
                let d = d.as_const().filter(|&d| d > 0)?;
                (*slot, number) = (number % d, number / d);
            }
            Some(Val::Attr(Attr::ints(out)))
        }
        _ => functions::apply(f, vals).ok(),
    }
}

/// The whole number that a value is.
fn int_of(v: &Val) -> Option<Extent> {
    match v {
        Val::Attr(Attr::Int(e)) => Some(e.clone()),
        Val::Attr(Attr::Float(b)) => {
            let v = f64::from_bits(*b);
            (v.fract() == 0.0 && v.abs() < 1e15).then(|| Extent::from(v as i64))
        }
        _ => None,
    }
}

fn join(monoid: Monoid, a: Val, b: Val) -> Option<Val> {
    match (monoid, &a, &b) {
        (Monoid::Sum, ..) => eval::binary(BinaryOp::Add, a, b).ok(),
        (Monoid::Prod, Val::Attr(Attr::Int(p)), Val::Attr(Attr::Int(q))) => {
            if let (Some(p), Some(q)) = (p.as_const(), q.as_const()) {
                p.checked_mul(q)?;
            }
            eval::binary(BinaryOp::Mul, a, b).ok()
        }
        (Monoid::Prod, ..) => eval::binary(BinaryOp::Mul, a, b).ok(),
        (Monoid::Max, ..) => functions::apply(Function::Maximum, vec![a, b]).ok(),
        (Monoid::Min, ..) => functions::apply(Function::Minimum, vec![a, b]).ok(),
        (Monoid::Any, Val::Truth(Some(a)), Val::Truth(Some(b))) => Some(Val::Truth(Some(*a || *b))),
        (Monoid::All, Val::Truth(Some(a)), Val::Truth(Some(b))) => Some(Val::Truth(Some(*a && *b))),
        _ => None,
    }
}

fn cast(v: Val, to: DType) -> Option<Val> {
    match v {
        Val::Attr(Attr::Int(e)) if to == DType::Bool => e.sign().map(|s| Val::Truth(Some(s != 0))),
        Val::Attr(Attr::Float(b)) if to == DType::Bool => {
            Some(Val::Truth(Some(f64::from_bits(b) != 0.0)))
        }
        Val::Attr(Attr::Float(b)) if !to.is_float() => {
            let v = f64::from_bits(b).trunc();
            to.is_exact(v).then(|| Val::Attr(Attr::int(v as i64)))
        }
        Val::Truth(t) if to != DType::Bool => Some(Val::Attr(Attr::int(t?.into()))),
        v => Some(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_and_back() {
        let t = Tensor::from_i64(DType::I64, vec![2, 1], &[3, -4]);
        assert_eq!(Known::of(&t).and_then(|k| k.tensor()), Some(t));
        assert!(Known::of(&Tensor::from_f32(vec![5000], vec![0.0; 5000])).is_none());
    }

    #[test]
    fn quotients_of_whole_numbers_need_not_be_whole() {
        let of = |a: i64, b: i64| match quotient(&Extent::from(a), &Extent::from(b)) {
            Some(Val::Attr(a)) => a.as_f64(),
            _ => None,
        };
        assert_eq!((of(6, 3), of(7, 2), of(1, -4)), (Some(2.0), Some(3.5), Some(-0.25)));
        assert_eq!((of(1, 0), of(0, 0)), (None, None));
        let n = Extent::sym("n");
        assert_eq!(quotient(&n, &Extent::from(2)), None);
    }

    #[test]
    fn elements_keep_symbols() {
        let n = Extent::sym("n");
        let v = Val::Attr(Attr::Int(n.clone()));
        assert_eq!(element(v.clone(), DType::I64), Some(KnownElement::Int(n)));
        assert_eq!(element(v, DType::Bool), None);
        assert_eq!(element(Val::Truth(None), DType::Bool), None);
    }
}
