//! Known values: small tensors whose elements are known as extents, before anything runs.
//!
//! Shapes are computed by ordinary operators in imported models (`Shape`, `Gather`, `Concat`, …). Here
//! an operator's meaning is evaluated element by element over extents instead of numbers, so that such
//! a computation yields `[batch, seq, 768]`. Partial on purpose: what is not decided for every value of
//! the symbols is not known. No operator is known by name.
//!
//! Integers here are those of extents, of 64 bits and without a type to wrap to. Where arithmetic of elements
//! leaves `EXACT` or the range of their type, nothing is known: the judge computes it.

use crate::eval::{self, Env, Val};
use crate::functions;
use crate::infer::Application;
use crate::ir::{Attr, DType, Extent, Tensor};
use crate::library::{CallKind, Callable, Dim, Name};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, Meaning, UnaryOp};

/// Tensors with more elements are not known.
pub const MAX_ELEMENTS: usize = 4096;
/// Sums, differences and comparisons of integers up to here cannot overflow.
const EXACT: i64 = 1 << 53;
/// Evaluations with more steps are given up.
const MAX_STEPS: usize = 1 << 18;

/// The value of one element.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
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
    pub elements: Vec<Element>,
}

impl Known {
    /// The elements of a tensor, unless there are too many or one is beyond the integers of extents.
    pub fn of(t: &Tensor) -> Option<Known> {
        let beyond = |i| t.get_i128(i) > i128::from(i64::MAX);
        if t.len() > MAX_ELEMENTS || t.dtype() == DType::U64 && (0..t.len()).any(beyond) {
            return None;
        }
        let element = |i| match t.dtype().is_float() {
            true => Element::Real(t.get_f64(i)),
            false => Element::Int(Extent::from(t.get_i64(i))),
        };
        let elements = (0..t.len()).map(element).collect();
        Some(Known { dtype: t.dtype(), shape: t.shape().to_vec(), elements })
    }

    /// The tensor, if every element is a number.
    pub fn tensor(&self) -> Option<Tensor> {
        if self.dtype.is_float() {
            let v: Option<Vec<f64>> = self.elements.iter().map(Element::as_f64).collect();
            return Some(Tensor::from_f64(self.dtype, self.shape.clone(), &v?));
        }
        let v: Option<Vec<i64>> = self.extents()?.iter().map(Extent::as_const).collect();
        Some(Tensor::from_i64(self.dtype, self.shape.clone(), &v?))
    }

    /// The elements as extents, if they are integers or truth values.
    pub fn extents(&self) -> Option<Vec<Extent>> {
        self.elements
            .iter()
            .map(|e| if let Element::Int(v) = e { Some(v.clone()) } else { None })
            .collect()
    }

    /// True if every element is also a float of 64 bits.
    pub fn is_exact(&self) -> bool {
        let exact = |e: &Element| match e {
            Element::Int(e) => e.as_const().is_none_or(|v| v.abs_diff(0) <= EXACT as u64),
            Element::Real(_) => true,
        };
        self.elements.iter().all(exact)
    }

    fn read(&self, index: &[i64]) -> Option<&Element> {
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&self.shape) {
            at = at * n + usize::try_from(i).ok().filter(|&i| i < n)?;
        }
        (index.len() == self.shape.len()).then(|| self.elements.get(at))?
    }
}

impl Element {
    /// The number, if it is known.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Element::Int(e) => e.as_const().map(|v| v as f64),
            Element::Real(v) => Some(*v),
        }
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
    let (name, pattern) = call.outputs.get(output)?;
    let named = meanings.iter().find(|m| !name.is_empty() && *m.output.text == **name);
    let meaning = named.or_else(|| meanings.get(output))?;
    let ty = app.types.get(output)?;
    let shape = ty.known_shape()?;
    let count =
        shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n <= MAX_ELEMENTS))?;
    let inputs = call.inputs.iter().map(|i| i.name.clone()).zip(args.iter().copied()).collect();
    let mut ev = Evaluator { env: app.env.clone(), inputs, steps: 0 };
    let variables = ev.variables(meaning, pattern.dims.as_deref(), shape.len())?;
    let mark = ev.env.mark();
    let mut index = vec![0i64; shape.len()];
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        ev.bind(&variables, &index);
        elements.push(element(ev.value(&meaning.value)?, ty.dtype)?);
        ev.env.rollback(mark);
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
fn element(v: Val, dtype: DType) -> Option<Element> {
    let number = |v: f64| Tensor::from_f64(dtype, vec![], &[v]).get_f64(0);
    Some(match v {
        Val::Truth(t) => Element::Int(Extent::from(i64::from(t?))),
        Val::Attr(Attr::Bool(b)) => Element::Int(Extent::from(i64::from(b))),
        Val::Attr(Attr::Int(e)) => match e.as_const() {
            Some(v) if dtype.is_float() => Element::Real(number(v as f64)),
            Some(_) if dtype == DType::Bool => Element::Int(Extent::from(i64::from(!e.is(0)))),
            Some(v) if in_range(v, dtype) => Element::Int(e),
            Some(_) => return None,
            None if dtype == DType::Bool => return None,
            None => Element::Int(e),
        },
        Val::Attr(Attr::Float(b)) if dtype.is_float() => Element::Real(number(f64::from_bits(b))),
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
    env: Env,
    inputs: Vec<(Name, &'a Known)>,
    steps: usize,
}

/// An index variable and how many axes it stands for: `None` for one, not in a list.
type Variable = (Name, Option<usize>);

impl Evaluator<'_> {
    /// The index variables of an output.
    fn variables(&self, m: &Meaning, dims: Option<&[Dim]>, rank: usize) -> Option<Vec<Variable>> {
        let mut out: Vec<(Name, Option<Option<usize>>)> = Vec::new();
        for (i, item) in m.index.iter().enumerate() {
            let (Elem::One(e) | Elem::Splice(e)) = item;
            let ExprKind::Name(n) = &e.kind else { return None };
            let width = match (item, dims.and_then(|d| d.get(i))) {
                (Elem::One(_), _) => Some(None),
                (_, Some(Dim::Seg(s))) => self.env.seg(s).map(|s| Some(s.len())),
                _ => self.env.seg(n).map(|s| Some(s.len())),
            };
            out.push((Name::from(n.as_str()), width));
        }
        let known: usize = out.iter().filter_map(|v| v.1.map(|w| w.unwrap_or(1))).sum();
        let rest = rank.checked_sub(known)?;
        let open = out.iter().filter(|v| v.1.is_none()).count();
        (open == usize::from(rest > 0) || open == 1)
            .then(|| out.into_iter().map(|(n, w)| (n, w.unwrap_or(Some(rest)))).collect())
    }

    fn bind(&mut self, variables: &[Variable], index: &[i64]) {
        let mut at = 0;
        for (name, width) in variables {
            let value = match width {
                None => Attr::int(index[at]),
                Some(n) => Attr::ints(index[at..at + n].iter().copied()),
            };
            at += width.unwrap_or(1);
            self.env.bind_attr(name, value);
        }
    }

    fn input(&self, name: &str) -> Option<&Known> {
        self.inputs.iter().find(|(n, _)| &**n == name).map(|(_, k)| *k)
    }

    /// True if an element is read.
    fn reads(&self, e: &Expr) -> bool {
        let mut found = false;
        crate::check::walk(e, &mut |e| {
            found |=
                matches!(&e.kind, ExprKind::Index { base, .. } if self.input(&base.text).is_some());
        });
        found
    }

    fn value(&mut self, e: &Expr) -> Option<Val> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return None;
        }
        match &e.kind {
            ExprKind::Unary(UnaryOp::Neg, a) => {
                let v = self.value(a)?;
                let elements = self.reads(a);
                let negated =
                    eval::binary(BinaryOp::Sub, Val::Attr(Attr::int(0)), v.clone()).ok()?;
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
            ExprKind::Call { callee, args } => self.call(&callee.text, args),
            ExprKind::Index { base, index, otherwise } if self.input(&base.text).is_some() => {
                self.read(&base.text, index, otherwise.as_deref())
            }
            ExprKind::Reduce { monoid, axes, body } => self.reduce(&monoid.text, axes, body),
            _ => eval::value(e, &self.env).ok(),
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
        let types = self.inputs.iter().map(|(_, k)| k.dtype).filter(|d| d.is_int());
        let fits = |v: i64| v.abs_diff(0) <= EXACT as u64 && types.clone().all(|d| in_range(v, d));
        integers(v).iter().filter_map(Extent::as_const).all(fits)
    }

    fn arithmetic(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<Val> {
        let elements = self.reads(a) || self.reads(b);
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
        let both = self.reads(a) && self.reads(b);
        self.combine(op, x, y, both).filter(|v| self.is_exact(v))
    }

    fn combine(&self, op: BinaryOp, x: Val, y: Val, elements: bool) -> Option<Val> {
        let real = elements && self.inputs.iter().any(|(_, k)| k.dtype.is_float());
        match (op, &x, &y) {
            (BinaryOp::Div, Val::Attr(Attr::Int(p)), Val::Attr(Attr::Int(q))) if real => {
                p.div_exact(q).map(|v| Val::Attr(Attr::Int(v)))
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
                    return a.div_exact(&b).map(|q| Val::Attr(Attr::Int(q)));
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

    fn read(&mut self, base: &str, index: &[Elem], otherwise: Option<&Expr>) -> Option<Val> {
        let list = self.list(index)?;
        let index: Option<Vec<i64>> = list.iter().map(Extent::as_const).collect();
        let index = index?;
        match self.input(base)?.read(&index) {
            Some(Element::Int(e)) => Some(Val::Attr(Attr::Int(e.clone()))),
            Some(Element::Real(v)) => Some(Val::Attr(Attr::float(*v))),
            None => self.value(otherwise?),
        }
    }

    fn reduce(&mut self, monoid: &str, axes: &[Elem], body: &Expr) -> Option<Val> {
        let (mut variables, mut shape) = (Vec::new(), Vec::new());
        for axis in axes {
            let (Elem::One(e) | Elem::Splice(e)) = axis;
            let ExprKind::Name(n) = &e.kind else { return None };
            let extents = match axis {
                Elem::One(_) => vec![self.env.axis(n)?.clone()],
                Elem::Splice(_) => self.env.seg(n)?.to_vec(),
            };
            let width = if let Elem::One(_) = axis { None } else { Some(extents.len()) };
            variables.push((Name::from(n.as_str()), width));
            for e in extents {
                shape.push(usize::try_from(e.as_const()?).ok()?);
            }
        }
        let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let mark = self.env.mark();
        let mut index = vec![0i64; shape.len()];
        let mut sum: Option<Val> = None;
        for _ in 0..count.min(MAX_STEPS) {
            self.bind(&variables, &index);
            let v = self.value(body);
            self.env.rollback(mark);
            let v = v.filter(|v| self.is_exact(v))?;
            sum = Some(match sum {
                None => v,
                Some(s) => join(monoid, s, v).filter(|v| self.is_exact(v))?,
            });
            advance(&mut index, &shape);
        }
        sum.or_else(|| match monoid {
            "sum" => Some(Val::Attr(Attr::int(0))),
            "prod" => Some(Val::Attr(Attr::int(1))),
            "any" => Some(Val::Truth(Some(false))),
            "all" => Some(Val::Truth(Some(true))),
            _ => None,
        })
    }

    fn call(&mut self, name: &str, args: &[Arg]) -> Option<Val> {
        let vals = args.iter().map(|a| self.value(&a.value)).collect::<Option<Vec<_>>>()?;
        let moves = matches!(name, "cast" | "ravel" | "unravel");
        let elements = !moves && args.iter().any(|a| self.reads(&a.value));
        if let (true, [a, b]) = (elements, vals.as_slice())
            && let (Some(a), Some(b)) = (const_of(a), const_of(b))
            && let "maximum" | "minimum" = name
        {
            let v = if name == "maximum" { a.max(b) } else { a.min(b) };
            return Some(Val::Attr(Attr::int(v)));
        }
        if elements && !vals.iter().all(|v| self.is_exact(v)) {
            return None;
        }
        let result = self.function(name, vals)?;
        (!elements || self.is_exact(&result)).then_some(result)
    }

    fn function(&self, name: &str, vals: Vec<Val>) -> Option<Val> {
        match (name, vals.as_slice()) {
            ("cast", [v, Val::Attr(Attr::DType(to))]) => cast(v.clone(), *to),
            ("modulo", [a, b]) => eval::binary(BinaryOp::Mod, a.clone(), b.clone()).ok(),
            ("remainder", [Val::Attr(Attr::Int(a)), Val::Attr(Attr::Int(b))]) => {
                match (a.as_const(), b.as_const()) {
                    (Some(a), Some(b)) => Some(Val::Attr(Attr::int(a.checked_rem(b)?))),
                    _ => {
                        (a.at_least(0) && b.at_least(1)).then(|| Val::Attr(Attr::Int(a.modulo(b))))
                    }
                }
            }
            ("abs", [Val::Attr(Attr::Int(a))]) => match a.as_const() {
                Some(v) => Some(Val::Attr(Attr::int(v.wrapping_abs()))),
                None => a.at_least(0).then(|| vals[0].clone()),
            },
            ("sign", [Val::Attr(Attr::Int(a))]) => Some(Val::Attr(Attr::int(a.sign()?.into()))),
            ("floor" | "ceil" | "round", [v @ Val::Attr(Attr::Int(_))]) => Some(v.clone()),
            ("ceil", [Val::Attr(Attr::Float(b))]) => {
                Some(Val::Attr(Attr::float(f64::from_bits(*b).ceil())))
            }
            ("round", [Val::Attr(Attr::Float(b))]) => {
                Some(Val::Attr(Attr::float(f64::from_bits(*b).round_ties_even())))
            }
            ("ravel", [Val::Attr(Attr::Ints(index)), Val::Attr(Attr::Ints(shape))]) => {
                let number =
                    index.iter().zip(shape).fold(Extent::from(0), |n, (i, d)| &(&n * d) + i);
                (index.len() == shape.len()).then_some(Val::Attr(Attr::Int(number)))
            }
            ("unravel", [Val::Attr(Attr::Int(number)), Val::Attr(Attr::Ints(shape))]) => {
                let mut number = number.as_const()?;
                let mut out = vec![0; shape.len()];
                for (slot, d) in out.iter_mut().zip(shape).rev() {
                    let d = d.as_const().filter(|&d| d > 0)?;
                    (*slot, number) = (number % d, number / d);
                }
                Some(Val::Attr(Attr::ints(out)))
            }
            _ => functions::apply(name, vals).ok(),
        }
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

fn join(monoid: &str, a: Val, b: Val) -> Option<Val> {
    match (monoid, &a, &b) {
        ("sum", ..) => eval::binary(BinaryOp::Add, a, b).ok(),
        ("prod", Val::Attr(Attr::Int(p)), Val::Attr(Attr::Int(q))) => {
            if let (Some(p), Some(q)) = (p.as_const(), q.as_const()) {
                p.checked_mul(q)?;
            }
            eval::binary(BinaryOp::Mul, a, b).ok()
        }
        ("prod", ..) => eval::binary(BinaryOp::Mul, a, b).ok(),
        ("max", ..) => functions::apply("maximum", vec![a, b]).ok(),
        ("min", ..) => functions::apply("minimum", vec![a, b]).ok(),
        ("any", Val::Truth(Some(a)), Val::Truth(Some(b))) => Some(Val::Truth(Some(*a || *b))),
        ("all", Val::Truth(Some(a)), Val::Truth(Some(b))) => Some(Val::Truth(Some(*a && *b))),
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
    fn elements_keep_symbols() {
        let n = Extent::sym("n");
        let v = Val::Attr(Attr::Int(n.clone()));
        assert_eq!(element(v.clone(), DType::I64), Some(Element::Int(n)));
        assert_eq!(element(v, DType::Bool), None);
        assert_eq!(element(Val::Truth(None), DType::Bool), None);
    }
}
