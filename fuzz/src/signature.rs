//! The requirements of an operator or of the left side of a law on its arguments, and choices that meet them.
//!
//! Only proposes; the builder decides whether a proposal is well-typed.

use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{AttrKind, AttrType, BinaryOp, Expr, ExprKind};
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{AttrParam, Callable, DTypePattern, Dim, Input, Law, Name, TypePattern};
use mlc_dsl::random::Random;
use mlc_dsl::typing::infer::unify_dims;
use std::collections::HashMap;

/// Parameters of an operator or variables of a law.
#[derive(Clone, Copy)]
pub(crate) struct Signature<'a> {
    /// Tensors.
    pub inputs: &'a [Input],
    /// Attributes.
    pub attrs: &'a [AttrParam],
    /// What must hold of both.
    pub conditions: &'a [Expr],
}

impl<'a> From<&'a Callable> for Signature<'a> {
    fn from(c: &'a Callable) -> Signature<'a> {
        Signature { inputs: &c.inputs, attrs: &c.attrs, conditions: &c.conditions }
    }
}

impl<'a> From<&'a Law> for Signature<'a> {
    fn from(l: &'a Law) -> Signature<'a> {
        Signature { inputs: &l.vars, attrs: &l.attrs, conditions: &l.conditions }
    }
}

/// Words that attributes take, by the attribute's name.
pub(crate) type Words = HashMap<String, Vec<String>>;

/// What is chosen so far for one application.
#[derive(Clone)]
pub(crate) struct CallDraft<'a> {
    pub sig: Signature<'a>,
    /// What the signature's names stand for.
    pub env: Env,
    /// Attributes, in declared order; `None` takes the default or is open.
    pub attrs: Vec<Option<Attr>>,
    hints: Vec<(Name, usize)>,
}

impl<'a> CallDraft<'a> {
    pub(crate) fn new(sig: Signature<'a>) -> CallDraft<'a> {
        let attrs = vec![None; sig.attrs.len()];
        CallDraft { sig, env: Env::default(), attrs, hints: Vec::new() }
    }

    /// Tries to make input `i` a tensor of type `ty`.
    pub(crate) fn accept(&mut self, i: usize, ty: &Type, rng: &mut Random) -> bool {
        let pattern = &self.sig.inputs[i].ty;
        let mut trial = self.clone();
        if !admits(&pattern.dtype, ty.dtype, &mut trial.env) {
            return false;
        }
        if let Some(dims) = &pattern.dims {
            trial.place_axes(dims, ty.rank(), rng);
            let hints = trial.hints.clone();
            let shown: Vec<(Name, usize)> =
                hints.into_iter().filter(|(n, _)| dims.iter().any(|d| is_axis(d, n))).collect();
            if unify_dims(dims, &ty.shape, &mut trial.env, &shown).is_err() {
                return false;
            }
        }
        trial.env.bind_tensor(&self.sig.inputs[i].name, ty.clone());
        *self = trial;
        true
    }

    /// Where an attribute says which axis is meant and nothing decides it yet, chooses one.
    fn place_axes(&mut self, dims: &[Dim], rank: usize, rng: &mut Random) {
        for (i, p) in self.sig.attrs.iter().enumerate() {
            let Some(of) = p.ty.axis() else { continue };
            if self.attrs[i].is_some() || !dims.iter().any(|d| is_axis(d, of)) {
                continue;
            }
            let at = rng.below(rank.max(1));
            self.attrs[i] = Some(Attr::int(at as i64));
            self.hints.push((of.clone(), at));
        }
    }

    /// Chooses every extent that the accepted arguments leave open. Equations among the conditions
    /// decide where they can.
    pub(crate) fn close(&mut self, extents: &ExtentPool, rng: &mut Random) {
        for (i, p) in self.sig.attrs.iter().enumerate() {
            // Plain numbers first: extents depend on them (groups, factors).
            let plain = p.ty.kind == AttrKind::Int && p.ty.of.is_none();
            let open = p.default.is_none() || extents.large || rng.chance(0.4);
            if plain && self.attrs[i].is_none() && open {
                self.attrs[i] = match extents.large && rng.chance(0.8) {
                    // Networks have one group, or as many as there are channels.
                    true if rng.chance(0.7) => Some(Attr::int(1)),
                    true => Some(Attr::int(extents.pick(rng))),
                    false => value(p, &self.env, &Words::new(), rng),
                };
            }
            if let (true, Some(a)) = (plain, &self.attrs[i]) {
                self.env.bind_attr(&p.name, a.clone());
            }
        }
        let dims: Vec<Dim> =
            self.sig.inputs.iter().flat_map(|i| i.ty.dims.clone().unwrap_or_default()).collect();
        let mut open: Vec<Dim> = dims
            .into_iter()
            .filter(|d| match d {
                Dim::Axis(n) => self.env.axis(n).is_none(),
                Dim::Seg(n) => self.env.seg(n).is_none(),
                Dim::Value(_) | Dim::Splice(_) => false,
            })
            .collect();
        // Names with an equation wait until the others are known.
        open.sort_by_key(|d| match d {
            Dim::Axis(n) | Dim::Seg(n) => self.is_stated(n),
            Dim::Value(_) | Dim::Splice(_) => false,
        });
        for d in open {
            match &d {
                Dim::Axis(n) => {
                    let many = if extents.large && self.is_multiple(n) && rng.chance(0.85) {
                        extents.pick(rng)
                    } else {
                        1
                    };
                    let v = self.stated(n).map(|v| v.saturating_mul(many));
                    let v = v.filter(|v| (0..=extents.most()).contains(v));
                    let batch = extents.large && self.is_batch(n);
                    let free = if batch { rng.pick(&BATCHES) } else { extents.pick(rng) };
                    self.env.bind_axis(n, Extent::from(v.unwrap_or(free)));
                }
                Dim::Seg(n) => {
                    let stated = self.stated(n).filter(|r| (0..=4).contains(r));
                    let rank = match stated {
                        Some(r) => r as usize,
                        None => extents.rank(self.part(n), rng),
                    };
                    let part = if stated.is_some() { AxisRole::Window } else { self.part(n) };
                    self.env.bind_seg(n, extents.segment(rank, part, rng));
                }
                Dim::Value(_) | Dim::Splice(_) => {}
            }
        }
        for i in 0..self.sig.inputs.len() {
            let dtype = &self.sig.inputs[i].ty.dtype;
            if let DTypePattern::Var(v) = dtype
                && self.env.dtype(v).is_none()
            {
                self.env.bind_dtype(v, family(v, rng));
            }
        }
    }

    /// What a segment is to its operator.
    fn part(&self, name: &str) -> AxisRole {
        let lists = |p: &AttrParam| p.ty.of.as_deref() == Some(name);
        if self.sig.attrs.iter().any(|p| p.ty.kind == AttrKind::Ints && lists(p)) {
            return AxisRole::Windowed;
        }
        let first = |i: &Input| i.ty.dims.as_ref().and_then(|d| d.first().cloned());
        let leads = |i: &Input| matches!(first(i), Some(Dim::Seg(n)) if *n == *name);
        if self.sig.inputs.iter().any(leads) { AxisRole::Leading } else { AxisRole::Trailing }
    }

    /// True for an axis that leads the first of several tensors or of one with windows, and no other.
    fn is_batch(&self, name: &str) -> bool {
        let dims = |i: &Input| i.ty.dims.clone().unwrap_or_default();
        let Some((first, rest)) = self.sig.inputs.split_first() else { return false };
        let leads = dims(first).first().is_some_and(|d| is_axis(d, name));
        leads && !rest.iter().any(|i| dims(i).iter().any(|d| is_axis(d, name)))
    }

    /// True if a condition equates something with a name.
    fn is_stated(&self, name: &str) -> bool {
        self.equations(name).next().is_some()
    }

    /// True if a condition asks that a name be a multiple of something.
    fn is_multiple(&self, name: &str) -> bool {
        let of_name = |e: &Expr| matches!(&e.kind, ExprKind::Binary(BinaryOp::Mod, n, _) if matches!(&n.kind, ExprKind::Size(s) if **s == *name));
        let mut stack: Vec<&Expr> = self.sig.conditions.iter().collect();
        while let Some(e) = stack.pop() {
            if let ExprKind::Binary(op, a, b) = &e.kind {
                if *op == BinaryOp::Eq && (of_name(a) || of_name(b)) {
                    return true;
                }
                stack.extend([a.as_ref(), b.as_ref()]);
            }
        }
        false
    }

    /// What a condition equates a name with, where that is known by now: of an axis its extent (or a
    /// number it is a multiple of), of a segment its rank.
    fn stated(&self, name: &str) -> Option<i64> {
        self.equations(name).find_map(|e| eval(e, &self.env).ok()?.as_i64())
    }

    fn equations<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a Expr> + use<'a, 'n> {
        let mut sides: Vec<(&Expr, &Expr)> = Vec::new();
        let mut stack: Vec<&Expr> = self.sig.conditions.iter().collect();
        while let Some(e) = stack.pop() {
            match &e.kind {
                ExprKind::Binary(BinaryOp::And, a, b) => stack.extend([a.as_ref(), b.as_ref()]),
                ExprKind::Binary(BinaryOp::Eq, a, b) => sides.extend([(&**a, &**b), (&**b, &**a)]),
                _ => {}
            }
        }
        sides.into_iter().filter_map(move |(a, b)| {
            let (a, value) = match &a.kind {
                ExprKind::Binary(BinaryOp::Mod, n, k) => (n.as_ref(), k.as_ref()),
                _ => (a, b),
            };
            let is =
                |e: &Expr| matches!(&e.kind, ExprKind::Size(n) | ExprKind::Name(n) if **n == *name);
            let named = match &a.kind {
                ExprKind::Call(Function::Rank, args) => args.iter().any(is),
                _ => is(a),
            };
            named.then_some(value)
        })
    }

    /// The type of input `i`, all of whose names are known.
    pub(crate) fn wanted(&self, i: usize, extents: &ExtentPool, rng: &mut Random) -> Option<Type> {
        let TypePattern { dtype, dims } = &self.sig.inputs[i].ty;
        let dtype = match dtype {
            DTypePattern::Fixed(d) => *d,
            DTypePattern::Var(v) => self.env.dtype(v)?,
        };
        let shape = match dims {
            Some(d) => mlc_dsl::typing::infer::resolve_dims(d, &self.env).ok()?,
            None => (0..rng.below(4)).map(|_| Extent::from(extents.pick(rng))).collect(),
        };
        Some(Type::new(dtype, shape))
    }

    /// Chooses the attributes that are still open. `None` if one has no value.
    pub(crate) fn attributes(&mut self, words: &Words, rng: &mut Random) -> Option<()> {
        for (i, p) in self.sig.attrs.iter().enumerate() {
            if self.attrs[i].is_none() {
                self.attrs[i] = match p.ty.axis() {
                    Some(of) => Some(Attr::int(self.position(of)? as i64)),
                    None if p.default.is_some() && rng.chance(0.5) => continue,
                    None => Some(value(p, &self.env, words, rng)?),
                };
            }
            if let Some(a) = &self.attrs[i] {
                self.env.bind_attr(&p.name, a.clone());
            }
        }
        Some(())
    }

    /// Where an axis lies in the first input that has it.
    fn position(&self, axis: &str) -> Option<usize> {
        let dims = self.sig.inputs.iter().filter_map(|i| i.ty.dims.as_ref());
        let mut dims = dims.filter(|d| d.iter().any(|d| is_axis(d, axis)));
        let mut at = 0;
        for d in dims.next()? {
            match d {
                d if is_axis(d, axis) => return Some(at),
                Dim::Axis(_) | Dim::Value(_) => at += 1,
                Dim::Seg(s) => at += self.env.seg(s)?.len(),
                Dim::Splice(_) => return None,
            }
        }
        None
    }
}

fn is_axis(d: &Dim, name: &str) -> bool {
    matches!(d, Dim::Axis(n) if **n == *name)
}

fn admits(pattern: &DTypePattern, dtype: DType, env: &mut Env) -> bool {
    pattern.admits(dtype)
        && match pattern {
            DTypePattern::Fixed(_) => true,
            DTypePattern::Var(v) => env.bind_dtype(v, dtype),
        }
}

/// An element type of the family of a variable.
pub(crate) fn family(name: &str, rng: &mut Random) -> DType {
    let float = |rng: &mut Random| match rng.below(20) {
        0..=17 => DType::F32,
        18 => rng.pick(&[DType::F16, DType::BF16]),
        _ => DType::F64,
    };
    let int = |rng: &mut Random| rng.pick(&[DType::I64, DType::I64, DType::I32, DType::U8]);
    match name.as_bytes().first() {
        Some(b'F') => float(rng),
        Some(b'I') => int(rng),
        Some(b'B') => DType::Bool,
        Some(b'N') if rng.chance(0.85) => float(rng),
        Some(b'N') => int(rng),
        _ => match rng.below(10) {
            0..=6 => float(rng),
            7..=8 => int(rng),
            _ => DType::Bool,
        },
    }
}

/// Sides of the windows of networks.
const WINDOWS: [i64; 10] = [1, 1, 1, 3, 3, 3, 3, 5, 7, 2];

/// Sides of the planes and volumes that windows run over.
const PLANES: [i64; 16] = [7, 7, 8, 10, 13, 14, 14, 20, 27, 28, 28, 32, 55, 56, 64, 112];

/// Batches.
const BATCHES: [i64; 8] = [1, 1, 1, 1, 2, 4, 8, 32];

/// What a segment is to its operator.
#[derive(Clone, Copy)]
enum AxisRole {
    /// As many axes as another segment has: a window on that.
    Window,
    /// Attributes have an entry for each of its axes.
    Windowed,
    /// It comes first.
    Leading,
    /// Anything else.
    Trailing,
}

/// Extents to draw from.
#[derive(Clone, Debug)]
pub(crate) struct ExtentPool {
    pool: Vec<i64>,
    large: bool,
}

impl ExtentPool {
    /// Those of one program that is timed.
    pub(crate) fn large(pool: Vec<i64>) -> ExtentPool {
        ExtentPool { pool, large: true }
    }

    fn most(&self) -> i64 {
        if self.large { 1 << 13 } else { 64 }
    }

    fn rank(&self, part: AxisRole, rng: &mut Random) -> usize {
        let ranks: &[usize] = match part {
            _ if !self.large => &[0, 1, 1, 1, 2, 2, 3],
            AxisRole::Windowed | AxisRole::Window => &[2, 2, 2, 2, 2, 2, 2, 2, 1, 3],
            AxisRole::Leading => &[0, 1, 1, 2, 2, 3],
            AxisRole::Trailing => &[0, 0, 0, 0, 1, 2],
        };
        rng.pick(ranks)
    }

    /// Extents of several axes: where networks are drawn from, these are often equal.
    fn segment(&self, rank: usize, part: AxisRole, rng: &mut Random) -> Vec<Extent> {
        let one = |rng: &mut Random| match part {
            _ if !self.large => self.pick(rng),
            AxisRole::Window => rng.pick(&WINDOWS),
            AxisRole::Windowed => rng.pick(&PLANES),
            AxisRole::Leading | AxisRole::Trailing => self.pick(rng),
        };
        if self.large && (matches!(part, AxisRole::Window) || rng.chance(0.7)) {
            return vec![Extent::from(one(rng)); rank];
        }
        (0..rank).map(|_| Extent::from(one(rng))).collect()
    }

    /// Few different ones, so that shapes meet.
    pub(crate) fn choose(rng: &mut Random) -> ExtentPool {
        let mut all = vec![1, 2, 3, 4, 5, 6];
        rng.shuffle(&mut all);
        all.truncate(3);
        if rng.chance(0.08) {
            all.push(0);
        }
        if rng.chance(0.1) {
            all.push(rng.between(7, 19));
        }
        ExtentPool { pool: all, large: false }
    }

    pub(crate) fn pick(&self, rng: &mut Random) -> i64 {
        rng.pick(&self.pool)
    }
}

/// A value of a kind of attribute within its declared range.
fn value(p: &AttrParam, env: &Env, words: &Words, rng: &mut Random) -> Option<Attr> {
    let ty: &AttrType = &p.ty;
    let bound = |e: Option<&Expr>| -> Option<Vec<f64>> {
        match eval(e?, env).ok()? {
            Attr::Ints(v) => v.iter().map(|e| e.as_const().map(|v| v as f64)).collect(),
            a => a.as_f64().map(|v| vec![v]),
        }
    };
    let (low, high) = match &ty.range {
        Some((l, h)) => (bound(l.as_ref()), bound(h.as_ref())),
        None => (None, None),
    };
    let entry = |l: &Option<Vec<f64>>, i: usize| {
        l.as_ref().and_then(|l| l.get(if l.len() == 1 { 0 } else { i })).map(|&v| v as i64)
    };
    let integer = |i: usize, free: (i64, i64), rng: &mut Random| {
        let (l, h) = match (entry(&low, i), entry(&high, i)) {
            (Some(l), Some(h)) => (l, h),
            (Some(l), None) => (l, l + free.1 - free.0),
            (None, Some(h)) => (h - (free.1 - free.0), h),
            (None, None) => free,
        };
        rng.between(l, h)
    };
    let segment = ty.of.as_ref().and_then(|s| env.seg(s));
    let rank = segment.map(<[Extent]>::len);
    Some(match ty.kind {
        AttrKind::Int => Attr::int(integer(0, (-2, 4), rng)),
        AttrKind::Ints => {
            let n = rank.unwrap_or_else(|| rng.below(4));
            Attr::ints((0..n).map(|i| integer(i, (0, 3), rng)).collect::<Vec<_>>())
        }
        AttrKind::Axis => Attr::int(rng.below(3) as i64),
        AttrKind::Axes => {
            let n = rank.unwrap_or(2) as i64;
            let one = rng.below(n.max(1) as usize) as i64;
            let single = rng.chance(0.5);
            let chosen = |a: &i64| if single { *a == one } else { rng.chance(0.5) };
            Attr::ints((0..n).filter(chosen).collect::<Vec<_>>())
        }
        AttrKind::Perm => {
            let mut p: Vec<i64> = (0..rank.unwrap_or(2) as i64).collect();
            rng.shuffle(&mut p);
            Attr::ints(p)
        }
        AttrKind::Shape => {
            let own = segment?.iter().map(Extent::as_const).product::<Option<i64>>()?;
            Attr::ints(rng.shape(own))
        }
        AttrKind::Float => {
            let number = |l: &Option<Vec<f64>>| l.as_ref().and_then(|l| l.first().copied());
            match (number(&low), number(&high)) {
                (Some(l), Some(h)) => Attr::float(l + (h - l) * (rng.below(5) as f64 / 4.0)),
                (Some(v), None) | (None, Some(v)) => Attr::float(v),
                (None, None) => Attr::float(rng.pick(&[0.5, 1.0, 2.0, -1.0, 0.0, 1e-5, 0.1, 3.0])),
            }
        }
        AttrKind::Floats => {
            let mut one = p.clone();
            one.ty.kind = AttrKind::Float;
            let n = rank.unwrap_or_else(|| rng.below(4));
            let all = (0..n).map(|_| value(&one, env, words, rng)?.as_f64());
            Attr::floats(all.collect::<Option<Vec<_>>>()?)
        }
        AttrKind::Bool => Attr::Bool(rng.chance(0.5)),
        AttrKind::String => Attr::Str(rng.pick(words.get(&*p.name).filter(|w| !w.is_empty())?)),
        AttrKind::DType => Attr::DType(rng.pick(&[
            DType::F32,
            DType::F32,
            DType::F16,
            DType::F64,
            DType::I64,
            DType::I32,
            DType::Bool,
        ])),
    })
}
