//! Lowers compiled meanings to vector code.
//!
//! Floats are computed in f32, except where a step of a function follows (a comparison, a rounding, a cut): what decides is computed
//! in f64, so that it decides as the reference interpreter does. Only what the meaning reads is read.

use super::builder::Builder;
use super::code::{
    Cast, Gather, HeldStep, Imm, Join, Load, Mode, Outside, Program, Step, Val, assign,
};
use super::parts::{as_wide, cast, compare, imm, int_op, is_computed, not, unary, wrapped};
use super::walk::{Axis, Walk};
use crate::pointwise::Unary;
use crate::pointwise::code::{RegisterClass as Class, class};
use mlc_backends::reference::RealOp;
use mlc_backends::reference::accelerated::affine::combine;
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::accelerated::rows::merge;
use mlc_backends::reference::code::compile::{Body, MeaningCode};
use mlc_backends::reference::code::{Affine, Int, Quantifier, Read, Real, Sign, Slot, Truth};
use mlc_backends::reference::scalar::{Cmp, IntOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::DType;
use mlc_dsl::plan::Alive;

/// Entries of a list that is indexed, at most.
const LIST: usize = 16;

/// Terms of a sum of f32 that are added one after the other, at most.
const PLAIN_SUM: i64 = 256;

/// What is read: its type and extents.
pub type Source = (DType, Vec<usize>);

/// Of a source that holds the last steps of a recurrence only, which: their axis, and how many.
pub type HeldSteps = Option<Alive>;

/// The code of a result of that type over the space of its axes without that of its steps, in f64 if it is `wide`; `None` if the
/// meaning has a part without vector code.
pub fn lower(
    code: &MeaningCode,
    sources: &[Source],
    held: &[HeldSteps],
    dtype: DType,
    wide: bool,
) -> Option<Program> {
    let open = code.axes.iter().filter(|a| Some(a.0) != code.step);
    let axes: Vec<Axis> = open.map(|&(slot, len)| Axis { slot, start: 0, len }).collect();
    let axes = match &code.body {
        Body::Real(r) => merge(r, &axes),
        Body::Int(_, i) => merge(i, &axes),
    };
    let mut builder = Builder::new(axes);
    let mut l = Lowering { sources, held, extents: &code.extents, guard: None, validity: vec![] };
    let b = &mut builder;
    let result = class(dtype);
    let value = match (&code.body, result) {
        (Body::Real(r), _) => {
            let v = l.real(b, r, wide)?;
            cast(b, v, result)
        }
        (Body::Int(_, Int::FromTruth(t)), Class::Bool) => l.truth(b, t)?,
        (Body::Int(_, i), Class::Bool) => {
            let v = l.int(b, i)?;
            b.step(Step::Cast(Class::Int, Cast::Truth), &[v], Class::Bool)
        }
        (Body::Int(..), Class::F32 | Class::F64) => return None,
        (Body::Int(d, i), Class::Int) => {
            let v = l.int(b, i)?;
            wrapped(b, *d, v)
        }
    };
    let (root, defined) = builder.finish();
    let slots = code.extents.len();
    let mut program = Program { root, value, class: result, dtype, registers: 0, slots };
    assign(&mut program, defined);
    Some(program)
}

/// The number of a step that is read.
fn numbers(step: &Option<HeldStep>) -> impl Iterator<Item = &Affine> {
    step.iter().map(|s| &s.number)
}

/// Where an element is in a source that holds the last steps, besides which of them is read.
fn held_offset<E>(r: &Read<E>, alive: Alive) -> Option<(Affine, Option<HeldStep>)> {
    let affine = |i: &Int| match i {
        Int::Const(v) => Some(Affine { constant: *v, terms: vec![] }),
        Int::Slot(s) => Some(Affine { constant: 0, terms: vec![(*s, 1)] }),
        Int::Affine(a) => Some(a.clone()),
        _ => None,
    };
    let index = r.index.iter().map(affine).collect::<Option<Vec<_>>>()?;
    let mut offset = Affine::default();
    let (mut step, mut stride) = (None, 1);
    for (axis, (index, &n)) in index.iter().zip(&r.shape).enumerate().rev() {
        if axis == alive.axis {
            let held = alive.steps as i64;
            step = Some(HeldStep { number: index.clone(), held, stride });
            stride *= held;
        } else {
            offset = combine(&offset, index, stride)?;
            stride *= n;
        }
    }
    (r.linear.is_none() && index.len() == r.shape.len()).then_some((offset, step))
}

struct Lowering<'a> {
    sources: &'a [Source],
    /// For each source that does not hold all of its elements, which it holds.
    held: &'a [HeldSteps],
    /// How many values each index variable takes.
    extents: &'a [i64],
    /// Where it is 0, nothing is read.
    guard: Option<Val>,
    /// For each index that is computed, innermost last: where its quotients exist. `None` where nothing may fail to.
    validity: Vec<Option<Vec<Val>>>,
}

impl Lowering<'_> {
    /// What `f` lowers where a condition holds, too.
    fn under<T>(
        &mut self,
        b: &mut Builder,
        condition: Val,
        f: impl FnOnce(&mut Self, &mut Builder) -> Option<T>,
    ) -> Option<T> {
        let outer = self.guard;
        self.guard = Some(match outer {
            Some(g) => b.step(Step::And, &[g, condition], Class::Bool),
            None => condition,
        });
        let out = f(self, b);
        self.guard = outer;
        out
    }

    fn real(&mut self, b: &mut Builder, r: &Real, wide: bool) -> Option<Val> {
        let natural = if wide { Class::F64 } else { Class::F32 };
        Some(match r {
            Real::Const(v) => Val::Imm(Imm::float(*v)),
            Real::Unary(f, a) => self.function(b, f.function, a, wide)?,
            Real::Neg(a) => {
                let v = self.real(b, a, wide)?;
                let class = b.class(v).unwrap_or(natural);
                b.step(Step::Unary(Unary::Neg), &[v], class)
            }
            Real::Binary(op, x, y) => self.binary(b, *op, x, y, wide)?,
            Real::Round(dtype, a) => {
                let v = self.real(b, a, wide)?;
                let from = b.class(v).unwrap_or(natural);
                let v = match dtype {
                    DType::F32 => cast(b, v, Class::F32),
                    _ if class(*dtype) == Class::F64 => return Some(v),
                    _ => b.step(Step::Cast(from, Cast::Rounded(*dtype)), &[v], from),
                };
                cast(b, v, natural)
            }
            Real::Read(r) => {
                let constant = |e: &Real| match e {
                    Real::Const(v) => Some(Imm::float(*v)),
                    _ => None,
                };
                self.read(b, r, natural, constant, &mut |l, b, e| l.real(b, e, wide))?
            }
            Real::If(c, x, y) => {
                let c = self.truth(b, c)?;
                let x = self.under(b, c, |l, b| l.real(b, x, wide))?;
                let n = not(b, c);
                let y = self.under(b, n, |l, b| l.real(b, y, wide))?;
                let both = [b.class(x), b.class(y)];
                let class = if both.contains(&Some(Class::F64)) { Class::F64 } else { natural };
                let (x, y) = (cast(b, x, class), cast(b, y, class));
                b.step(Step::Select, &[c, x, y], class)
            }
            Real::Reduce(r) => {
                let (op, first) = r.monoid.real();
                let terms = r.over.iter().fold(1i64, |n, o| n.saturating_mul(o.1));
                let long = op == RealOp::Add && terms > PLAIN_SUM;
                let term = |l: &mut Self, b: &mut Builder, mode| {
                    let mut v = l.real(b, &r.body, wide)?;
                    if mode == Mode::Steps && long {
                        v = as_wide(b, v);
                    }
                    let class = b.class(v).unwrap_or(natural);
                    Some((v, Join::Real(op), Imm::float(first), class))
                };
                let v = self.reduce(b, &r.over, &r.body, Imm::float(first), term)?;
                cast(b, v, natural)
            }
            Real::FromInt(sign, a) => {
                let v = self.int(b, a)?;
                match (v, sign) {
                    (Val::Imm(i), Sign::Signed) => Val::Imm(Imm::float(i.int as f64)),
                    (_, Sign::Unsigned) => {
                        b.step(Step::Cast(Class::Int, Cast::Unsigned), &[v], natural)
                    }
                    (_, Sign::Signed) if wide => {
                        b.step(Step::Cast(Class::Int, Cast::F64), &[v], natural)
                    }
                    (_, Sign::Signed) => b.step(Step::Cast(Class::Int, Cast::F32), &[v], natural),
                }
            }
        })
    }

    fn function(&mut self, b: &mut Builder, f: Function, a: &Real, wide: bool) -> Option<Val> {
        let steps =
            matches!(f, Function::Floor | Function::Ceil | Function::Round | Function::Sign);
        let v = self.real(b, a, wide || steps && is_computed(a))?;
        let natural = if wide { Class::F64 } else { Class::F32 };
        let class = b.class(v).unwrap_or(natural);
        let one = Val::Imm(Imm::float(1.0));
        Some(match f {
            Function::Recip => b.step(Step::Binary(RealOp::Div), &[one, v], class),
            Function::Rsqrt => {
                let root = b.step(Step::Unary(Unary::Sqrt), &[v], class);
                b.step(Step::Binary(RealOp::Div), &[one, root], class)
            }
            f => b.step(Step::Unary(unary(f)?), &[v], class),
        })
    }

    fn binary(
        &mut self,
        b: &mut Builder,
        op: RealOp,
        x: &Real,
        y: &Real,
        wide: bool,
    ) -> Option<Val> {
        let steps = matches!(op, RealOp::Modulo | RealOp::Remainder);
        let w = wide || steps && (is_computed(x) || is_computed(y));
        let natural = if w { Class::F64 } else { Class::F32 };
        let (mut p, mut q) = (self.real(b, x, w)?, self.real(b, y, w)?);
        let class = match (b.class(p), b.class(q)) {
            (Some(p), Some(q)) if p == q => p,
            (Some(c), None) | (None, Some(c)) => c,
            (None, None) => natural,
            // The weight of an element is as exact as the element; a difference of near numbers is not.
            _ if op == RealOp::Mul => Class::F32,
            (Some(Class::F32), _) => {
                p = self.real(b, x, true)?;
                Class::F64
            }
            _ => {
                q = self.real(b, y, true)?;
                Class::F64
            }
        };
        (p, q) = (cast(b, p, class), cast(b, q, class));
        Some(b.step(Step::Binary(op), &[p, q], class))
    }

    /// An element, and where it is outside of its tensor, something else.
    fn read<E: AffineVisitor>(
        &mut self,
        b: &mut Builder,
        r: &Read<E>,
        class: Class,
        constant: impl Fn(&E) -> Option<Imm>,
        lower: &mut dyn FnMut(&mut Self, &mut Builder, &E) -> Option<Val>,
    ) -> Option<Val> {
        let dtype = self.sources[r.input].0;
        let outside = match &r.otherwise {
            None => Outside::Fault,
            Some(e) => constant(e).map_or(Outside::Told, Outside::Fill),
        };
        let told = outside == Outside::Told;
        let guard = self.guard.filter(|_| outside == Outside::Fault);
        let (offset, step) = match (self.held.get(r.input).copied().flatten(), &r.fast) {
            (Some(alive), Some(_)) => held_offset(r, alive)?,
            (Some(_), None) => return None,
            (None, Some(fast)) => (fast.offset.clone(), None),
            (None, None) => (Affine::default(), None),
        };
        let (v, inside) = match &r.fast {
            Some(fast) if fast.checked.is_empty() => {
                let load = |space: &[Axis]| {
                    Step::Load(Box::new(Load {
                        source: r.input,
                        dtype,
                        offset: offset.clone(),
                        walk: Walk::of(space, &offset),
                        space: vec![],
                        checked: vec![],
                        outside: Outside::Never,
                        step: step.clone(),
                    }))
                };
                let affines: Vec<&Affine> = numbers(&step).chain([&offset]).collect();
                return Some(b.placed(&affines, load, &[], class, false)?.0);
            }
            Some(fast) => {
                let checked: Vec<(Affine, i64)> =
                    fast.checked.iter().map(|(a, _, n)| (a.clone(), *n)).collect();
                let affines: Vec<&Affine> =
                    checked.iter().map(|c| &c.0).chain(numbers(&step)).chain([&offset]).collect();
                let load = |space: &[Axis]| {
                    Step::Load(Box::new(Load {
                        source: r.input,
                        dtype,
                        offset: offset.clone(),
                        walk: Walk::of(space, &offset),
                        space: space.to_vec(),
                        checked: checked.clone(),
                        outside,
                        step: step.clone(),
                    }))
                };
                let args: Vec<Val> = guard.into_iter().collect();
                b.placed(&affines, load, &args, class, told)?
            }
            None => self.gather(b, r, dtype, class, outside, guard)?,
        };
        let (Some(e), Some(inside)) = (&r.otherwise, inside) else { return Some(v) };
        let n = not(b, inside);
        let other = self.under(b, n, |l, b| lower(l, b, e))?;
        let other = cast(b, other, class);
        Some(b.step(Step::Select, &[inside, v, other], class))
    }

    fn gather<E>(
        &mut self,
        b: &mut Builder,
        r: &Read<E>,
        dtype: DType,
        class: Class,
        outside: Outside,
        guard: Option<Val>,
    ) -> Option<(Val, Option<Val>)> {
        self.validity.push(Some(vec![]));
        let (mut args, mut axes, mut offset) = (vec![], vec![], Affine::default());
        for ((index, &n), &stride) in r.index.iter().zip(&r.shape).zip(&r.strides) {
            match index {
                Int::Affine(a) if self.is_inside(a, n) => {
                    offset = combine(&offset, a, stride)?;
                }
                _ => {
                    args.push(self.int(b, index)?);
                    axes.push((n, stride));
                }
            }
        }
        let valid = self.validity.pop().flatten()?;
        let valid = valid.into_iter().reduce(|x, y| b.step(Step::And, &[x, y], Class::Bool));
        let validity = valid.is_some();
        args.extend(valid);
        args.extend(guard);
        let told = outside == Outside::Told;
        let of = |space: &[Axis]| {
            let (walk, offset) = (Walk::of(space, &offset), offset.clone());
            Step::Gather(Box::new(Gather {
                source: r.input,
                dtype,
                offset,
                walk,
                axes,
                validity,
                outside,
            }))
        };
        b.placed(&[&offset.clone()], of, &args, class, told)
    }

    /// True if an index never leaves an axis of that extent.
    fn is_inside(&self, a: &Affine, n: i64) -> bool {
        let c = i128::from(a.constant);
        let (low, high) = a.terms.iter().fold((c, c), |(low, high), &(slot, factor)| {
            let most = i128::from(factor) * i128::from((self.extents[slot] - 1).max(0));
            (low + most.min(0), high + most.max(0))
        });
        low >= 0 && high < i128::from(n)
    }

    fn reduce<E: AffineVisitor>(
        &mut self,
        b: &mut Builder,
        over: &[(Slot, i64)],
        body: &E,
        first: Imm,
        term: impl FnOnce(&mut Self, &mut Builder, Mode) -> Option<(Val, Join, Imm, Class)>,
    ) -> Option<Val> {
        if over.iter().any(|o| o.1 <= 0) {
            return Some(Val::Imm(first));
        }
        let level = b.level_of(|slot| body.reads(slot));
        let level = self.guard.map_or(level, |g| level.max(b.level(g)));
        let mode = match self.guard {
            Some(_) => Mode::Steps,
            None => b.mode(level, over, body),
        };
        self.validity.push(None);
        let v = b.reduce(level, over, mode, self, |l, b| term(l, b, mode))?;
        self.validity.pop();
        Some(v)
    }

    fn int(&mut self, b: &mut Builder, i: &Int) -> Option<Val> {
        Some(match i {
            Int::Const(v) => imm(*v),
            Int::Slot(s) => self.index(b, &Affine { constant: 0, terms: vec![(*s, 1)] })?,
            Int::Affine(a) => self.index(b, a)?,
            Int::Neg(a) => {
                let v = self.int(b, a)?;
                int_op(b, IntOp::Sub, imm(0), v)
            }
            Int::Abs(a) => {
                let v = self.int(b, a)?;
                b.step(Step::Abs, &[v], Class::Int)
            }
            Int::Signum(sign, a) => {
                let v = self.int(b, a)?;
                b.step(Step::Signum(*sign), &[v], Class::Int)
            }
            Int::Binary(op, x, y) => {
                let x = self.int(b, x)?;
                let y = self.int(b, y)?;
                int_op(b, *op, x, y)
            }
            Int::Wrap(d, a) => {
                let v = self.int(b, a)?;
                wrapped(b, *d, v)
            }
            Int::Exact(x, y) => {
                let (x, y) = (self.int(b, x)?, self.int(b, y)?);
                let rest = int_op(b, IntOp::Rem, x, y);
                let whole = compare(b, Cmp::Eq, rest, imm(0));
                let some = compare(b, Cmp::Ne, y, imm(0));
                let exists = b.step(Step::And, &[whole, some], Class::Bool);
                self.exists(b, exists)?;
                int_op(b, IntOp::Div, x, y)
            }
            Int::At(list, at) => self.entry(b, list, at)?,
            Int::Read(r) => {
                let constant = |e: &Int| match e {
                    Int::Const(v) => Some(Imm::int(*v)),
                    Int::Affine(a) if a.terms.is_empty() => Some(Imm::int(a.constant)),
                    _ => None,
                };
                self.read(b, r, Class::Int, constant, &mut |l, b, e| l.int(b, e))?
            }
            Int::If(c, x, y) => {
                let c = self.truth(b, c)?;
                let x = self.under(b, c, |l, b| l.int(b, x))?;
                let n = not(b, c);
                let y = self.under(b, n, |l, b| l.int(b, y))?;
                b.step(Step::Select, &[c, x, y], Class::Int)
            }
            Int::Reduce(r) => {
                let (op, first) = r.monoid.int(r.dtype);
                let term = |l: &mut Self, b: &mut Builder, _| {
                    let v = l.int(b, &r.body)?;
                    Some((v, Join::Int(op), Imm::int(first), Class::Int))
                };
                let v = self.reduce(b, &r.over, &r.body, Imm::int(first), term)?;
                r.dtype.map_or(v, |d| wrapped(b, d, v))
            }
            Int::FromReal(d, a) => {
                let v = self.real(b, a, is_computed(a))?;
                let from = b.class(v).unwrap_or(Class::F64);
                b.step(Step::Cast(from, Cast::Cut(*d)), &[v], Class::Int)
            }
            Int::FromTruth(t) => {
                let v = self.truth(b, t)?;
                b.step(Step::Cast(Class::Bool, Cast::Int), &[v], Class::Int)
            }
        })
    }

    fn index(&mut self, b: &mut Builder, a: &Affine) -> Option<Val> {
        if a.terms.is_empty() {
            return Some(imm(a.constant));
        }
        let of = |space: &[Axis]| Step::Index(a.clone(), Walk::of(space, a));
        Some(b.placed(&[a], of, &[], Class::Int, false)?.0)
    }

    /// Says where the index that is computed exists.
    fn exists(&mut self, b: &mut Builder, exists: Val) -> Option<()> {
        let exists = match self.guard {
            Some(g) => {
                let n = not(b, g);
                b.step(Step::Or, &[exists, n], Class::Bool)
            }
            None => exists,
        };
        self.validity.last_mut()?.as_mut()?.push(exists);
        Some(())
    }

    fn entry(&mut self, b: &mut Builder, list: &[Int], at: &Int) -> Option<Val> {
        let is_plain = |i: &Int| matches!(i, Int::Const(_) | Int::Affine(_) | Int::Slot(_));
        if list.len() > LIST || !list.iter().all(is_plain) {
            return None;
        }
        let at = self.int(b, at)?;
        let (zero, n) = (imm(0), imm(list.len() as i64));
        let below = compare(b, Cmp::Lt, at, zero);
        let from_end = int_op(b, IntOp::Add, at, n);
        let at = b.step(Step::Select, &[below, from_end, at], Class::Int);
        let (low, high) = (compare(b, Cmp::Ge, at, zero), compare(b, Cmp::Lt, at, n));
        let exists = b.step(Step::And, &[low, high], Class::Bool);
        self.exists(b, exists)?;
        let mut value = zero;
        for (k, entry) in list.iter().enumerate() {
            let this = compare(b, Cmp::Eq, at, imm(k as i64));
            let entry = self.int(b, entry)?;
            value = b.step(Step::Select, &[this, entry, value], Class::Int);
        }
        Some(value)
    }

    fn truth(&mut self, b: &mut Builder, t: &Truth) -> Option<Val> {
        Some(match t {
            Truth::Const(v) => imm(*v as i64),
            Truth::Real(cmp, x, y) => {
                let wide = is_computed(x) || is_computed(y);
                let (p, q) = (self.real(b, x, wide)?, self.real(b, y, wide)?);
                let wide = [b.class(p), b.class(q)].contains(&Some(Class::F64))
                    || [p, q]
                        .iter()
                        .any(|v| matches!(v, Val::Imm(i) if f64::from(i.float as f32) != i.float));
                let class = if wide { Class::F64 } else { Class::F32 };
                let (p, q) = (cast(b, p, class), cast(b, q, class));
                b.step(Step::Compare(*cmp, class, Sign::Signed), &[p, q], Class::Bool)
            }
            Truth::Int(cmp, sign, x, y) => {
                let (x, y) = (self.int(b, x)?, self.int(b, y)?);
                b.step(Step::Compare(*cmp, Class::Int, *sign), &[x, y], Class::Bool)
            }
            Truth::And(x, y) => {
                let x = self.truth(b, x)?;
                let y = self.under(b, x, |l, b| l.truth(b, y))?;
                b.step(Step::And, &[x, y], Class::Bool)
            }
            Truth::Or(x, y) => {
                let x = self.truth(b, x)?;
                let n = not(b, x);
                let y = self.under(b, n, |l, b| l.truth(b, y))?;
                b.step(Step::Or, &[x, y], Class::Bool)
            }
            Truth::Not(a) => {
                let v = self.truth(b, a)?;
                not(b, v)
            }
            Truth::NonZero(a) => {
                let v = self.int(b, a)?;
                b.step(Step::Cast(Class::Int, Cast::Truth), &[v], Class::Bool)
            }
            Truth::If(c, x, y) => {
                let c = self.truth(b, c)?;
                let x = self.under(b, c, |l, b| l.truth(b, x))?;
                let n = not(b, c);
                let y = self.under(b, n, |l, b| l.truth(b, y))?;
                b.step(Step::Select, &[c, x, y], Class::Bool)
            }
            Truth::Quantified(q, over, a) => {
                let (join, first) = match q {
                    Quantifier::Any => (Join::Any, Imm::int(0)),
                    Quantifier::All => (Join::All, Imm::int(1)),
                };
                let term = |l: &mut Self, b: &mut Builder, _| {
                    Some((l.truth(b, a)?, join, first, Class::Bool))
                };
                self.reduce(b, over, &**a, first, term)?
            }
        })
    }
}
