//! Evaluates meanings over another algebra than the floats: the same compiled code, other numbers.
//!
//! Integers that select elements stay integers; floats are elements of the algebra, and
//! truth values that depend on floats are numbers of it, 1 for true and 0 for false.

use super::array::wrap;
use super::code::compile::{self, Body, MeaningCode, MeaningParam};
use super::code::{
    Int, Machine, Quantifier, Read, Real, Sign, Truth, compare, signum, try_for_each,
};
use super::scalar::{Cmp, RealOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::{Attr, DType, NodeKind, Program, Tensor, Type, Value};
use mlc_dsl::library::{CallId, CallKind, Library};
use mlc_dsl::typing::infer::infer;
use mlc_dsl::whole_tensors::definitions::{self, Evaluator};

/// Numbers and what can be done with them.
pub trait Algebra {
    /// A number.
    type Number: Clone;

    /// The number that a float denotes.
    fn constant(&mut self, value: f64) -> Self::Number;

    /// A function of one number.
    fn function(&mut self, f: Function, a: &Self::Number) -> Result<Self::Number, String>;

    /// An operation on two numbers.
    fn operation(
        &mut self,
        op: RealOp,
        a: &Self::Number,
        b: &Self::Number,
    ) -> Result<Self::Number, String>;

    /// A comparison: 1 where it holds, 0 where not.
    fn comparison(&mut self, cmp: Cmp, a: &Self::Number, b: &Self::Number) -> Self::Number;

    /// The number rounded to a type, or cut to an integer of one.
    fn conversion(&mut self, to: DType, a: &Self::Number) -> Self::Number;

    /// `a` where `c` is 1 and `b` where it is 0: `b + c * (a - b)` unless the algebra knows better.
    fn choice(
        &mut self,
        c: &Self::Number,
        a: &Self::Number,
        b: &Self::Number,
    ) -> Result<Self::Number, String> {
        let difference = self.operation(RealOp::Sub, a, b)?;
        let part = self.operation(RealOp::Mul, c, &difference)?;
        self.operation(RealOp::Add, b, &part)
    }
}

/// An element: of a floating type a number, else an integer unless floats decide it.
#[derive(Clone, Debug, PartialEq)]
pub enum Element<N> {
    /// An integer or a truth value.
    Int(i64),
    /// A number of the algebra.
    Number(N),
}

/// A tensor over an algebra.
#[derive(Clone, Debug)]
pub struct Lifted<N> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Elements in row-major order.
    pub elements: Vec<Element<N>>,
}

/// Runs a program over an algebra; at most `work` operations are done.
///
/// # Errors
/// If something has no meaning over an algebra, such as a procedural operator or a position that floats
/// decide, or if the work is too much.
pub fn lift<A: Algebra>(
    algebra: &mut A,
    program: &Program,
    library: &Library,
    inputs: &[Lifted<A::Number>],
    work: usize,
) -> Result<Vec<Lifted<A::Number>>, String> {
    let mut l = Lift { algebra, library, work };
    let mut done: Vec<Vec<Lifted<A::Number>>> = Vec::with_capacity(program.nodes.len());
    let operand = |done: &[Vec<Lifted<A::Number>>], v: &Value| {
        let value = done.get(v.node.0 as usize).and_then(|r| r.get(v.output as usize));
        value.cloned().ok_or_else(|| "a value is read before it is computed".to_string())
    };
    let needed = needed(program);
    for (node, needed) in program.nodes.iter().zip(needed) {
        let results = match &node.kind {
            _ if !needed => vec![],
            NodeKind::Input(i) => {
                let input = inputs.get(*i as usize).cloned();
                vec![input.ok_or_else(|| format!("input {i} is missing"))?]
            }
            NodeKind::Const(c) => vec![l.tensor(program.consts.get(*c))],
            NodeKind::Apply(call, attrs) => {
                let args =
                    node.args.iter().map(|a| operand(&done, a)).collect::<Result<Vec<_>, _>>()?;
                let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
                l.apply(*call, &attrs, &args)?
            }
        };
        done.push(results);
    }
    program.outputs.iter().map(|(_, v)| operand(&done, v)).collect()
}

/// Per node: whether an output depends on it.
fn needed(program: &Program) -> Vec<bool> {
    let mut needed = vec![false; program.nodes.len()];
    program.outputs.iter().for_each(|(_, v)| needed[v.node.0 as usize] = true);
    for i in (0..program.nodes.len()).rev() {
        if needed[i] {
            program.nodes[i].args.iter().for_each(|a| needed[a.node.0 as usize] = true);
        }
    }
    needed
}

struct Lift<'a, A: Algebra> {
    algebra: &'a mut A,
    library: &'a Library,
    work: usize,
}

impl<A: Algebra> Lift<'_, A> {
    fn tensor(&mut self, t: &Tensor) -> Lifted<A::Number> {
        let elements = if t.dtype().is_float() {
            t.to_f64().into_iter().map(|v| Element::Number(self.algebra.constant(v))).collect()
        } else {
            t.to_i64().into_iter().map(Element::Int).collect()
        };
        Lifted { dtype: t.dtype(), shape: t.shape().to_vec(), elements }
    }

    fn run(
        &mut self,
        code: &MeaningCode,
        args: &[Lifted<A::Number>],
    ) -> Result<Vec<Element<A::Number>>, String> {
        let mut slots = Machine::new(code.extents.len(), &[]);
        let mut out = Vec::new();
        let mut w = AlgebraEvaluator { lift: self, args };
        let done = try_for_each(&code.axes, &mut slots, |m| {
            out.push(match &code.body {
                Body::Real(body) => Element::Number(w.real(body, m)?),
                Body::Int(dtype, body) => match w.int(body, m)? {
                    Element::Int(v) => Element::Int(wrap(*dtype, v)),
                    number => number,
                },
            });
            Ok(())
        });
        match done {
            Ok(()) => Ok(out),
            Err(EvalError::Outside) => Err("an index is out of range".into()),
            Err(EvalError::Other(reason)) => Err(reason),
        }
    }
}

impl<A: Algebra> Evaluator for Lift<'_, A> {
    type Value = Lifted<A::Number>;

    fn ty(&self, v: &Lifted<A::Number>) -> Type {
        Type::known(v.dtype, &v.shape)
    }

    fn number(&mut self, dtype: DType, v: f64) -> Lifted<A::Number> {
        self.tensor(&Tensor::from_f64(dtype, vec![], &[v]))
    }

    fn apply(
        &mut self,
        call: CallId,
        attrs: &[Option<Attr>],
        args: &[Lifted<A::Number>],
    ) -> Result<Vec<Lifted<A::Number>>, String> {
        let callable = self.library.call(call);
        let types: Vec<Type> = args.iter().map(|a| Type::known(a.dtype, &a.shape)).collect();
        let refs: Vec<&Type> = types.iter().collect();
        let app = infer(callable, &refs, attrs).map_err(|e| e.to_string())?;
        let meanings = match &callable.kind {
            CallKind::Op(_) if callable.recurrence.is_some() => {
                return Err(format!("`{}` is a recurrence", callable.name));
            }
            CallKind::Op(meanings) => meanings,
            CallKind::Def(body) => return definitions::body(self, body, args, app.env),
            CallKind::Extern(_) => {
                return Err(format!("`{}` is procedural", callable.name));
            }
        };
        let params: Vec<MeaningParam> = callable
            .inputs
            .iter()
            .zip(args)
            .map(|(i, a)| MeaningParam { name: &i.name, dtype: a.dtype, shape: &a.shape })
            .collect();
        let outputs = callable.outputs.iter().zip(&app.types).enumerate();
        outputs
            .map(|(i, ((name, pattern), ty))| {
                let meaning =
                    meanings.get(i).ok_or_else(|| format!("output `{name}` has no meaning"))?;
                let shape = ty.known_shape().ok_or("an extent is not known")?;
                let dims = pattern.dims.as_deref();
                let env = &app.env;
                let code = compile::meaning(meaning, dims, ty.dtype, &shape, &params, env, None)?;
                let elements = self.run(&code, args)?;
                Ok(Lifted { dtype: ty.dtype, shape, elements })
            })
            .collect()
    }
}

/// Why an element has no value.
enum EvalError {
    /// It lies outside of every tensor.
    Outside,
    /// Anything else.
    Other(String),
}

impl From<String> for EvalError {
    fn from(reason: String) -> EvalError {
        EvalError::Other(reason)
    }
}

struct AlgebraEvaluator<'w, 'a, A: Algebra> {
    lift: &'w mut Lift<'a, A>,
    args: &'w [Lifted<A::Number>],
}

impl<A: Algebra> AlgebraEvaluator<'_, '_, A> {
    fn spend(&mut self) -> Result<(), EvalError> {
        self.lift.work = self.lift.work.checked_sub(1).ok_or("too much work".to_string())?;
        Ok(())
    }

    fn operation(
        &mut self,
        op: RealOp,
        a: &A::Number,
        b: &A::Number,
    ) -> Result<A::Number, EvalError> {
        self.spend()?;
        Ok(self.lift.algebra.operation(op, a, b)?)
    }

    fn number(&mut self, e: Element<A::Number>, sign: Sign) -> A::Number {
        match e {
            Element::Int(v) => self.lift.algebra.constant(super::code::from_int(sign, v)),
            Element::Number(n) => n,
        }
    }

    fn real(&mut self, e: &Real, m: &mut Machine) -> Result<A::Number, EvalError> {
        match e {
            Real::Const(v) => Ok(self.lift.algebra.constant(*v)),
            Real::Unary(f, a) => {
                let a = self.real(a, m)?;
                self.spend()?;
                Ok(self.lift.algebra.function(f.function, &a)?)
            }
            Real::Neg(a) => {
                let (zero, a) = (self.lift.algebra.constant(0.0), self.real(a, m)?);
                self.operation(RealOp::Sub, &zero, &a)
            }
            Real::Binary(op, a, b) => {
                let (a, b) = (self.real(a, m)?, self.real(b, m)?);
                self.operation(*op, &a, &b)
            }
            Real::Read(read) => match self.offset(read, m) {
                Ok(offset) => {
                    let e = self.args[read.input].elements[offset].clone();
                    Ok(self.number(e, Sign::Signed))
                }
                Err(EvalError::Outside) => match &read.otherwise {
                    Some(e) => self.real(e, m),
                    None => Err(EvalError::Outside),
                },
                Err(other) => Err(other),
            },
            Real::If(c, a, b) => match self.truth(c, m)? {
                Element::Int(c) => self.real(if c != 0 { a } else { b }, m),
                Element::Number(c) => {
                    let (a, b) = (self.real(a, m)?, self.real(b, m)?);
                    self.choice(&c, &a, &b)
                }
            },
            Real::Reduce(r) => {
                let (op, unit) = r.monoid.real();
                let unit = self.lift.algebra.constant(unit);
                self.fold(&r.over, m, unit, |w, acc, m| {
                    let v = w.real(&r.body, m)?;
                    w.operation(op, &acc, &v)
                })
            }
            Real::FromInt(sign, a) => {
                let v = self.int(a, m)?;
                Ok(self.number(v, *sign))
            }
            Real::Round(dtype, a) => {
                let a = self.real(a, m)?;
                Ok(self.lift.algebra.conversion(*dtype, &a))
            }
        }
    }

    fn choice(
        &mut self,
        c: &A::Number,
        a: &A::Number,
        b: &A::Number,
    ) -> Result<A::Number, EvalError> {
        self.spend()?;
        Ok(self.lift.algebra.choice(c, a, b)?)
    }

    fn fold<T>(
        &mut self,
        over: &[(usize, i64)],
        m: &mut Machine,
        unit: T,
        mut step: impl FnMut(&mut Self, T, &mut Machine) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        let mut acc = Some(unit);
        try_for_each(over, m, |m| {
            let before = acc.take().ok_or_else(|| "a reduction has no value".to_string())?;
            acc = Some(step(self, before, m)?);
            Ok::<(), EvalError>(())
        })?;
        acc.ok_or_else(|| "a reduction has no value".to_string().into())
    }

    /// The offset of the element that is read.
    fn offset<E>(&mut self, read: &Read<E>, m: &mut Machine) -> Result<usize, EvalError> {
        let mut offset = 0;
        for (axis, index) in read.index.iter().enumerate() {
            let v = self.known(index, m)?;
            if v < 0 || v >= read.shape[axis] {
                return Err(EvalError::Outside);
            }
            offset += v * read.strides[axis];
        }
        Ok(offset as usize)
    }

    fn known(&mut self, e: &Int, m: &mut Machine) -> Result<i64, EvalError> {
        match self.int(e, m)? {
            Element::Int(v) => Ok(v),
            Element::Number(_) => Err("floats decide a position".to_string().into()),
        }
    }

    fn int(&mut self, e: &Int, m: &mut Machine) -> Result<Element<A::Number>, EvalError> {
        let v = match e {
            Int::Const(v) => *v,
            Int::Slot(s) => m.slots[*s],
            Int::Affine(a) => a.eval(&m.slots),
            Int::Neg(a) => self.known(a, m)?.wrapping_neg(),
            Int::Abs(a) => self.known(a, m)?.wrapping_abs(),
            Int::Signum(sign, a) => signum(*sign, self.known(a, m)?),
            Int::Binary(op, a, b) => op.apply(self.known(a, m)?, self.known(b, m)?),
            Int::Wrap(dtype, a) => match self.int(a, m)? {
                Element::Int(v) => wrap(*dtype, v),
                truth if *dtype == DType::Bool => return Ok(truth),
                Element::Number(_) => return Err("floats decide an integer".to_string().into()),
            },
            Int::Exact(a, b) => {
                let (a, b) = (self.known(a, m)?, self.known(b, m)?);
                if b == 0 || a.wrapping_rem(b) != 0 {
                    return Err(EvalError::Outside);
                }
                a.wrapping_div(b)
            }
            Int::At(list, at) => {
                let at = self.known(at, m)?;
                let at = if at < 0 { at + list.len() as i64 } else { at };
                let entry = usize::try_from(at).ok().and_then(|i| list.get(i));
                self.known(entry.ok_or(EvalError::Outside)?, m)?
            }
            Int::Read(read) => match self.offset(read, m) {
                Ok(offset) => return Ok(self.args[read.input].elements[offset].clone()),
                Err(EvalError::Outside) => match &read.otherwise {
                    Some(e) => return self.int(e, m),
                    None => return Err(EvalError::Outside),
                },
                Err(other) => return Err(other),
            },
            Int::If(c, a, b) => match self.truth(c, m)? {
                Element::Int(c) => return self.int(if c != 0 { a } else { b }, m),
                Element::Number(c) => {
                    let (a, b) = (self.int(a, m)?, self.int(b, m)?);
                    let (a, b) = (self.number(a, Sign::Signed), self.number(b, Sign::Signed));
                    return self.choice(&c, &a, &b).map(Element::Number);
                }
            },
            Int::Reduce(r) => {
                let (op, unit) = r.monoid.int(r.dtype);
                let v = self.fold(&r.over, m, unit, |w, acc, m| {
                    w.spend()?;
                    Ok(op.apply(acc, w.known(&r.body, m)?))
                })?;
                r.dtype.map_or(v, |d| wrap(d, v))
            }
            Int::FromReal(dtype, a) => {
                let a = self.real(a, m)?;
                return Ok(Element::Number(self.lift.algebra.conversion(*dtype, &a)));
            }
            Int::FromTruth(a) => return self.truth(a, m),
        };
        Ok(Element::Int(v))
    }

    fn truth(&mut self, t: &Truth, m: &mut Machine) -> Result<Element<A::Number>, EvalError> {
        let v = match t {
            Truth::Const(v) => *v,
            Truth::Real(cmp, a, b) => {
                let (a, b) = (self.real(a, m)?, self.real(b, m)?);
                self.spend()?;
                return Ok(Element::Number(self.lift.algebra.comparison(*cmp, &a, &b)));
            }
            Truth::Int(cmp, sign, a, b) => match (self.int(a, m)?, self.int(b, m)?) {
                (Element::Int(a), Element::Int(b)) => compare(*cmp, *sign, a, b),
                (a, b) => return self.same(*cmp, a, b),
            },
            Truth::And(a, b) => return self.both(a, b, m),
            Truth::Or(a, b) => {
                let (a, b) = (self.negated(a, m)?, self.negated(b, m)?);
                let neither = self.product(a, b)?;
                return self.complement(neither);
            }
            Truth::Not(a) => return self.negated(a, m),
            Truth::NonZero(a) => match self.int(a, m)? {
                Element::Int(v) => v != 0,
                truth => return Ok(truth),
            },
            Truth::If(c, a, b) => match self.truth(c, m)? {
                Element::Int(c) => return self.truth(if c != 0 { a } else { b }, m),
                Element::Number(c) => {
                    let (a, b) = (self.truth(a, m)?, self.truth(b, m)?);
                    let (a, b) = (self.number(a, Sign::Signed), self.number(b, Sign::Signed));
                    return self.choice(&c, &a, &b).map(Element::Number);
                }
            },
            Truth::Quantified(q, over, body) => {
                let all = *q == Quantifier::All;
                let found = self.fold(over, m, Element::Int(1), |w, acc, m| {
                    w.spend()?;
                    let next = if all { w.truth(body, m)? } else { w.negated(body, m)? };
                    w.product(acc, next)
                })?;
                return if all { Ok(found) } else { self.complement(found) };
            }
        };
        Ok(Element::Int(v as i64))
    }

    fn both(
        &mut self,
        a: &Truth,
        b: &Truth,
        m: &mut Machine,
    ) -> Result<Element<A::Number>, EvalError> {
        match self.truth(a, m)? {
            Element::Int(0) => Ok(Element::Int(0)),
            a => {
                let b = self.truth(b, m)?;
                self.product(a, b)
            }
        }
    }

    fn negated(&mut self, t: &Truth, m: &mut Machine) -> Result<Element<A::Number>, EvalError> {
        let v = self.truth(t, m)?;
        self.complement(v)
    }

    fn complement(&mut self, v: Element<A::Number>) -> Result<Element<A::Number>, EvalError> {
        match v {
            Element::Int(v) => Ok(Element::Int((v == 0) as i64)),
            Element::Number(n) => {
                let one = self.lift.algebra.constant(1.0);
                self.operation(RealOp::Sub, &one, &n).map(Element::Number)
            }
        }
    }

    fn product(
        &mut self,
        a: Element<A::Number>,
        b: Element<A::Number>,
    ) -> Result<Element<A::Number>, EvalError> {
        match (a, b) {
            (Element::Int(0), _) | (_, Element::Int(0)) => Ok(Element::Int(0)),
            (Element::Int(_), other) | (other, Element::Int(_)) => Ok(other),
            (Element::Number(a), Element::Number(b)) => {
                self.operation(RealOp::Mul, &a, &b).map(Element::Number)
            }
        }
    }

    /// Equality of truth values: `1 - a - b + 2ab`.
    fn same(
        &mut self,
        cmp: Cmp,
        a: Element<A::Number>,
        b: Element<A::Number>,
    ) -> Result<Element<A::Number>, EvalError> {
        if !matches!(cmp, Cmp::Eq | Cmp::Ne) {
            return Err("floats decide an integer".to_string().into());
        }
        let (a, b) = (self.number(a, Sign::Signed), self.number(b, Sign::Signed));
        let one = self.lift.algebra.constant(1.0);
        let not = self.operation(RealOp::Sub, &one, &b)?;
        let differ = self.choice(&a, &not, &b)?;
        match cmp {
            Cmp::Ne => Ok(Element::Number(differ)),
            _ => self.complement(Element::Number(differ)),
        }
    }
}
