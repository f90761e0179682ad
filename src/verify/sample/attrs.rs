//! Chooses attributes of an application that fit its operator and its arguments.

use super::draft::{ExtentStyle, RangeEnd, RangePolicy, any_dtype};
use crate::conditions::solve::solutions;
use mlc_dsl::eval::functions::Function;
use mlc_dsl::eval::{Env, eval, truth};
use mlc_dsl::expr::{AttrKind, AttrType, BinaryOp, Expr, ExprKind};
use mlc_dsl::ir::{Attr, Extent, Type};
use mlc_dsl::library::{AttrParam, Callable, Dim, Name};
use mlc_dsl::random::Random;
use mlc_dsl::typing::infer::{TypeError, infer, unify};
use std::cell::Cell;

/// An application whose attributes are partly open.
pub(crate) struct OpenApplication<'a> {
    pub call: &'a Callable,
    /// It is the one that repeats a tensor along new axes.
    pub broadcast: bool,
    /// Types of the arguments.
    pub types: Vec<Type>,
    /// Attributes; `None` takes the default or is open.
    pub given: Vec<Option<Attr>>,
    /// Per attribute: the law's declaration of the open variable.
    pub open: Vec<Option<AttrParam>>,
    /// What attributes are drawn from.
    pub choices: AttrChoices<'a>,
    /// How extents are chosen.
    pub style: ExtentStyle,
    /// Of several choices that fit, the most discriminating one is taken.
    pub telling: bool,
    /// The law's conditions, and whether each is to hold.
    pub conditions: Vec<(&'a Expr, bool)>,
    /// The law's names.
    pub env: &'a Env,
    /// How many draws were made.
    pub draws: Cell<usize>,
}

/// Draws of a value until the conditions that are decided by then hold as wanted.
pub(crate) const TRIES: usize = 40;

/// Choices that fit, of which the most discriminating one is taken.
const CHOICES: usize = 8;

/// Length of a streak after which more draws are pointless.
const ALIKE: usize = 12;

/// No shape that is drawn has more axes.
const MAX_RANK: usize = 16;

/// Entries made smaller, one at a time, before other values are drawn.
const RELAXED: usize = 6;

/// Why a draw of attributes is refused.
#[derive(PartialEq)]
enum DrawRefusal {
    /// The application has no type.
    Untyped(Box<TypeError>),
    /// The law's condition of that number does not hold as wanted.
    Condition(usize),
}

/// A streak of draws refused for the same reason.
#[derive(Default)]
struct RepeatedRefusals {
    last: Option<DrawRefusal>,
    draws: usize,
}

impl RepeatedRefusals {
    /// Counts a draw; the length of its streak.
    fn note(&mut self, refused: DrawRefusal) -> usize {
        let refused = Some(refused);
        self.draws = if refused == self.last { self.draws + 1 } else { 1 };
        self.last = refused;
        self.draws
    }
}

impl OpenApplication<'_> {
    /// Values of all attributes under which the application is well-typed; under which the law's
    /// conditions hold as wanted, if such are found. The error is a proposal that does not fit.
    pub(crate) fn choose(
        &self,
        rng: &mut Random,
    ) -> Result<Vec<Option<Attr>>, Option<Vec<Option<Attr>>>> {
        let types: Vec<&Type> = self.types.iter().collect();
        let (mut second, mut best, mut unfit) = (None, None, None);
        let mut left = if self.telling { CHOICES } else { 1 };
        let mut alike = RepeatedRefusals::default();
        for _ in 0..TRIES {
            self.draws.set(self.draws.get() + 1);
            let Some(mut attrs) = self.propose(rng) else { return Err(unfit) };
            self.impose(&mut attrs, rng);
            let mut typed = infer(self.call, &types, &attrs);
            for _ in 0..RELAXED {
                if typed.is_ok() || !self.relax(&mut attrs, rng) {
                    break;
                }
                typed = infer(self.call, &types, &attrs);
            }
            let refused = match typed {
                Err(e) => {
                    unfit = Some(attrs);
                    DrawRefusal::Untyped(Box::new(e))
                }
                Ok(typed) => match self.broken(&attrs) {
                    Some(condition) => {
                        second.get_or_insert(attrs);
                        DrawRefusal::Condition(condition)
                    }
                    None => {
                        let tells = if self.telling { self.tells(&attrs, &typed.types) } else { 0 };
                        if best.as_ref().is_none_or(|(least, _)| tells > *least) {
                            best = Some((tells, attrs));
                        }
                        left -= 1;
                        if left == 0 {
                            break;
                        }
                        continue;
                    }
                },
            };
            if alike.note(refused) == ALIKE && best.is_none() {
                break;
            }
        }
        best.map(|(_, attrs)| attrs).or(second).ok_or(unfit)
    }

    /// The first of the law's conditions that does not hold as wanted, of those that are decided by then.
    fn broken(&self, attrs: &[Option<Attr>]) -> Option<usize> {
        let env = self.law_env(attrs);
        self.conditions.iter().position(|(c, want)| truth(c, &env) == Ok(Some(!want)))
    }

    /// How much a choice tells: results of several elements along every axis, numbers that no other
    /// number of the law can be taken for, permutations that differ from their inverses.
    fn tells(&self, attrs: &[Option<Attr>], typed: &[Type]) -> i64 {
        let extents = typed.iter().flat_map(|t| &t.shape).filter_map(Extent::as_const);
        let room: i64 = extents.map(|e| [-4, 0][usize::from(e > 0)] + (e - 1).clamp(0, 3)).sum();
        let mut others: Vec<f64> =
            self.env.attrs().filter_map(|(_, a)| numbers(a)).flatten().collect();
        let mut score = room;
        for (a, p) in attrs.iter().zip(&self.open).filter_map(|(a, p)| a.as_ref().zip(p.as_ref())) {
            let own = numbers(a).unwrap_or_default();
            let at = |v: f64| own.get(v as usize).copied();
            score += match p.ty.kind {
                AttrKind::Perm => {
                    let moved = (0u32..).zip(&own).any(|(i, v)| f64::from(i) != *v);
                    let turned = (0u32..).zip(&own).any(|(i, v)| at(*v) != Some(f64::from(i)));
                    2 * i64::from(moved) + 2 * i64::from(turned)
                }
                AttrKind::Axes => 2 * own.len().min(2) as i64,
                _ => {
                    let alone = own.iter().filter(|v| !others.contains(v)).count();
                    let usual = own.iter().filter(|v| **v == 0.0 || **v == 1.0).count();
                    2 * alone as i64 + (own.len() - usual) as i64
                }
            };
            others.extend(own);
        }
        score
    }

    /// Makes an entry of an open list smaller: what is too large for its tensor may fit then.
    fn relax(&self, attrs: &mut [Option<Attr>], rng: &mut Random) -> bool {
        let mut places = Vec::new();
        for (i, a) in attrs.iter().enumerate().filter(|(i, _)| self.open[*i].is_some()) {
            let entries = a.as_ref().and_then(Attr::as_i64s).unwrap_or_default();
            let large = entries.iter().enumerate().filter(|(_, v)| **v > 1);
            places.extend(large.map(|(at, v)| (i, at, v - 1)));
        }
        if places.is_empty() {
            return false;
        }
        let (i, at, v) = rng.pick(&places);
        if let Some(Attr::Ints(list)) = &mut attrs[i] {
            list[at] = Extent::from(v);
        }
        true
    }

    fn law_env(&self, attrs: &[Option<Attr>]) -> Env {
        let mut env = self.env.clone();
        for (p, a) in self.open.iter().zip(attrs) {
            if let (Some(p), Some(a)) = (p, a) {
                env.bind_attr(&p.name, a.clone());
            }
        }
        env
    }

    /// Gives open attributes the values that equations demand, the law's own and those of the operator: `a == 1`,
    /// `all(a == 1)`, `a[0] == 1`, `product(a) == |n|`.
    fn impose(&self, attrs: &mut [Option<Attr>], rng: &mut Random) {
        let own = |i: usize| self.open[i].as_ref().map(|p| &p.name);
        let mut env = self.law_env(attrs);
        for (c, _) in self.conditions.iter().filter(|(_, want)| *want) {
            if self.equate(c, &env, &own, attrs, rng) {
                env = self.law_env(attrs);
            }
        }
        let callee = |i: usize| self.open[i].as_ref().map(|_| &self.call.attrs[i].name);
        let mut env = self.call_env(attrs);
        for c in &self.call.conditions {
            if self.equate(c, &env, &callee, attrs, rng) {
                env = self.call_env(attrs);
            }
        }
    }

    /// Solves an equation that does not hold for one of the open attributes, which `named` names; true if one is changed.
    fn equate<'n>(
        &self,
        c: &Expr,
        env: &Env,
        named: &dyn Fn(usize) -> Option<&'n Name>,
        attrs: &mut [Option<Attr>],
        rng: &mut Random,
    ) -> bool {
        let c = match &c.kind {
            ExprKind::Call(Function::All, args) if args.len() == 1 => &args[0],
            _ => c,
        };
        let ExprKind::Binary(BinaryOp::Eq, a, b) = &c.kind else { return false };
        let mut found = Vec::new();
        for (target, other) in [(a, b), (b, a)] {
            let Ok(value) = eval(other, env) else { continue };
            if eval(target, env).is_ok_and(|now| now == value) {
                return false;
            }
            let slot =
                |n: &str| (0..attrs.len()).find(|i| named(*i).is_some_and(|own| **own == *n));
            let solved = solutions(target, &value, env).into_iter();
            found.extend(solved.filter_map(|(n, v)| Some((slot(&n)?, v))));
        }
        if found.is_empty() {
            return false;
        }
        let (slot, v) = rng.pick(&found);
        attrs[slot] = Some(v);
        true
    }

    /// The operator's names.
    fn call_env(&self, attrs: &[Option<Attr>]) -> Env {
        let mut env = Env::default();
        for (p, a) in self.call.attrs.iter().zip(attrs) {
            if let Some(a) = a {
                env.bind_attr(&p.name, a.clone());
            }
        }
        for (input, ty) in self.call.inputs.iter().zip(&self.types) {
            // What does not fit shows when the whole application is typed.
            let _ = unify(&input.ty, ty, &mut env, &[]);
        }
        env
    }

    fn propose(&self, rng: &mut Random) -> Option<Vec<Option<Attr>>> {
        let mut attrs = self.given.clone();
        let mut hints: Vec<(Name, usize)> = Vec::new();
        for (i, p) in self.call.attrs.iter().enumerate() {
            let Some(of) = p.ty.axis() else { continue };
            let arg = self.call.inputs.iter().position(|input| {
                let dims = input.ty.dims.iter().flatten();
                dims.into_iter().any(|d| matches!(d, Dim::Axis(n) if n == of))
            });
            let rank = arg.and_then(|a| self.types.get(a)).map_or(1, Type::rank);
            if self.open[i].is_some() {
                attrs[i] = Some(Attr::int(rng.below(rank.max(1)) as i64));
            }
            if let Some(at) = attrs[i].as_ref().and_then(Attr::as_i64) {
                let at = if at < 0 { at + rank as i64 } else { at };
                hints.push((of.clone(), usize::try_from(at).ok()?));
            }
        }
        let mut env = Env::default();
        for (p, a) in self.call.attrs.iter().zip(&attrs) {
            if let Some(a) = a {
                env.bind_attr(&p.name, a.clone());
            }
        }
        for (input, ty) in self.call.inputs.iter().zip(&self.types) {
            // What does not fit shows when the whole application is typed.
            let _ = unify(&input.ty, ty, &mut env, &hints);
        }
        if self.broadcast {
            self.propose_broadcast(&mut attrs, rng);
        }
        for (i, p) in self.call.attrs.iter().enumerate() {
            let Some(own) = self.open[i].as_ref().filter(|_| attrs[i].is_none()) else { continue };
            let narrowed =
                own.ty.range.as_ref().filter(|_| own.ty.of.is_none() || p.ty.range.is_none());
            let ty = match narrowed {
                Some(r) => AttrType { range: Some(r.clone()), ..p.ty.clone() },
                None => p.ty.clone(),
            };
            let count = self.types.first().and_then(|t| t.elements().as_const()).unwrap_or(1);
            let a = value(&ty, &env, count, &self.choices, rng)?;
            env.bind_attr(&p.name, a.clone());
            attrs[i] = Some(a);
        }
        Some(attrs)
    }

    /// An extent that nothing else tells.
    fn extent(&self, rng: &mut Random) -> i64 {
        match self.style {
            ExtentStyle::Empty(_) if rng.chance(0.6) => 0,
            ExtentStyle::Zeros if rng.chance(0.4) => 0,
            ExtentStyle::Ones if rng.chance(0.5) => 1,
            _ => rng.pick(&[1, 2, 2, 2, 3, 3, 4, 4, 5, 2, 3, 1]),
        }
    }

    /// Positions and a shape for the one operator whose attributes depend on each other wholly.
    fn propose_broadcast(&self, attrs: &mut [Option<Attr>], rng: &mut Random) {
        let [map, shape] = attrs else { return };
        let Some(own) = self.types.first().and_then(|t| t.known_shape()) else { return };
        let known = shape.as_ref().and_then(Attr::as_i64s);
        let positions = map.as_ref().and_then(Attr::as_i64s);
        let least = positions.iter().flatten().map(|&p| usize::try_from(p).map_or(0, |p| p + 1));
        let least = least.max().unwrap_or(0);
        // Positions that are computed may be any numbers: no shape has them.
        if least > MAX_RANK {
            return;
        }
        // Shapes of one law are often alike.
        let others = self.env.attrs().filter_map(|(_, a)| a.as_i64s());
        let others =
            others.filter(|s| s.len() >= own.len().max(least) && s.iter().all(|e| *e >= 0));
        let others: Vec<Vec<i64>> = others.collect();
        let alike = (!others.is_empty() && rng.chance(0.6)).then(|| rng.pick(&others));
        let rank = match (&known, &alike) {
            (Some(s), _) | (None, Some(s)) => s.len(),
            (None, None) => own.len().max(least) + 1 + rng.below(2),
        };
        let positions = positions.unwrap_or_else(|| {
            let mut all: Vec<i64> = (0..rank as i64).collect();
            rng.shuffle(&mut all);
            all.truncate(own.len());
            all.sort_unstable();
            all
        });
        let extents = known.unwrap_or_else(|| {
            let new = || (0..rank).map(|_| self.extent(rng)).collect();
            let mut s: Vec<i64> = alike.unwrap_or_else(new);
            for (&p, &d) in positions.iter().zip(&own) {
                if let Some(e) = s.get_mut(p as usize) {
                    *e = d as i64;
                }
            }
            s
        });
        map.get_or_insert(Attr::ints(positions));
        shape.get_or_insert(Attr::ints(extents));
    }
}

/// Values of the open names of a shape, spliced or not, whose product is `count`.
pub(crate) fn shares(names: &[(bool, Name)], count: i64, rng: &mut Random) -> Vec<(Name, Attr)> {
    let mut parts: Vec<Vec<i64>> = vec![vec![]; names.len()];
    for d in rng.shape(count) {
        parts[rng.below(names.len())].push(d);
    }
    let value = |((spliced, n), v): (&(bool, Name), Vec<i64>)| {
        let whole = v.iter().product();
        (n.clone(), if *spliced { Attr::ints(v) } else { Attr::int(whole) })
    };
    names.iter().zip(parts).map(value).collect()
}

/// The numbers of an attribute.
fn numbers(a: &Attr) -> Option<Vec<f64>> {
    let list = a.as_i64s().map(|l| l.into_iter().map(|v| v as f64).collect());
    list.or_else(|| a.as_f64().map(|v| vec![v]))
}

/// What attributes are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttrChoices<'a> {
    /// Words to choose from.
    pub words: &'a [String],
    /// Integers that the law names.
    pub sizes: &'a [i64],
    /// Whether attributes may leave their declared ranges.
    pub stray: RangePolicy,
    /// Where integers in lists are drawn.
    pub end: RangeEnd,
}

/// A value of a kind of attribute; `count` is the number of elements of a shape.
pub(crate) fn value(
    ty: &AttrType,
    env: &Env,
    count: i64,
    choices: &AttrChoices<'_>,
    rng: &mut Random,
) -> Option<Attr> {
    let AttrChoices { words, sizes, stray, end } = *choices;
    let real = ty.kind == AttrKind::Float;
    let strays = matches!(stray, RangePolicy::Any(_)) && rng.chance(if real { 0.8 } else { 0.5 });
    let (low, high) = match ty.range.as_ref().filter(|_| !(strays && real)) {
        Some((low, high)) => (bound(low.as_ref(), env), bound(high.as_ref(), env)),
        None => (None, None),
    };
    let integer = |i: usize, free: (i64, i64), end: RangeEnd, rng: &mut Random| {
        let (low, high) = limits(&low, &high, i, free);
        match end {
            RangeEnd::Low if low <= high => return low,
            RangeEnd::High if low <= high && rng.chance(0.8) => return high,
            RangeEnd::Below if rng.chance(0.4) => return low - 1,
            RangeEnd::Named if !sizes.is_empty() && rng.chance(0.6) => {
                return rng.pick(sizes) + rng.between(0, 1);
            }
            RangeEnd::Any | RangeEnd::Low | RangeEnd::High | RangeEnd::Below | RangeEnd::Named => {}
        }
        match strays && rng.chance(0.5) {
            true if !sizes.is_empty() && rng.chance(0.5) => rng.pick(sizes) + rng.between(-1, 1),
            // Steps are never zero; they may go backwards, and further than usual.
            true if low >= 1 => rng.pick(&[-1, 2, 2, 3, high + 1]),
            true => rng.between(low - 2, high + 2),
            // Such a range is narrow because larger steps rarely fit.
            _ if ty.kind == AttrKind::Ints && (low, high) == (1, 1) && rng.chance(0.5) => {
                rng.pick(&[1, 2, 2, 3])
            }
            _ => rng.between(low, high),
        }
    };
    let seg = ty.of.as_ref().and_then(|s| env.seg(s)).map(<[Extent]>::len);
    Some(match ty.kind {
        AttrKind::Int => Attr::int(integer(0, (-2, 4), RangeEnd::Any, rng)),
        AttrKind::Ints => {
            let n = seg.unwrap_or_else(|| rng.below(3));
            let free = if seg.is_some() { (0, 3) } else { (0, 2) };
            Attr::ints((0..n).map(|i| integer(i, free, end, rng)).collect::<Vec<_>>())
        }
        AttrKind::Axis => Attr::int(rng.below(3) as i64),
        AttrKind::Axes => {
            let n = seg.unwrap_or_else(|| rng.below(3));
            Attr::ints((0..n as i64).filter(|_| rng.chance(0.5)).collect::<Vec<_>>())
        }
        AttrKind::Perm => {
            let n = seg.unwrap_or_else(|| rng.below(4));
            let mut p: Vec<i64> = (0..n as i64).collect();
            rng.shuffle(&mut p);
            Attr::ints(p)
        }
        AttrKind::Shape => {
            let own = ty
                .of
                .as_ref()
                .and_then(|s| env.seg(s))
                .map(|s| s.iter().map(|e| e.as_const().unwrap_or(1)).product::<i64>());
            Attr::ints(rng.shape(own.unwrap_or(count)))
        }
        AttrKind::Float => {
            const VALUES: &[f64] =
                &[0.5, 1.0, 2.0, -1.0, 0.0, 1e-5, 0.1, 3.0, -0.5, 1e-3, 0.044715, -2.5, 10.0];
            const BEYOND: &[f64] =
                &[-0.25, -2.0, 0.25, -4.0, 4.0, -3.0, -1e-5, 6e4, -6e4, 1e30, 1e-30];
            let number = |l: &Option<Vec<f64>>| l.as_ref().and_then(|l| l.first().copied());
            let (low, high) = (number(&low), number(&high));
            let fits = |v: &f64| low.is_none_or(|l| *v >= l) && high.is_none_or(|h| *v <= h);
            let mut fitting: Vec<f64> = VALUES.iter().copied().filter(fits).collect();
            if strays {
                fitting.extend(BEYOND);
            }
            if fits(&0.0) {
                fitting.push(-0.0);
            }
            match (fitting.is_empty(), low.or(high)) {
                (true, Some(edge)) => Attr::float(edge),
                (true, None) => Attr::float(1.0),
                (false, _) => Attr::float(rng.pick(&fitting)),
            }
        }
        AttrKind::Floats => {
            let mut one = ty.clone();
            one.kind = AttrKind::Float;
            let n = seg.unwrap_or_else(|| rng.below(3));
            let all = (0..n).map(|_| value(&one, env, count, choices, rng)?.as_f64());
            Attr::floats(all.collect::<Option<Vec<_>>>()?)
        }
        AttrKind::Bool => Attr::Bool(rng.chance(0.5)),
        AttrKind::String => {
            Attr::Str(if words.is_empty() { "none".into() } else { rng.pick(words) })
        }
        AttrKind::DType => Attr::DType(any_dtype(rng)),
    })
}

/// A bound's entries: one for all, or one each.
fn bound(e: Option<&Expr>, env: &Env) -> Option<Vec<f64>> {
    match eval(e?, env).ok()? {
        Attr::Ints(v) => v.iter().map(|e| e.as_const().map(|v| v as f64)).collect(),
        a => a.as_f64().map(|v| vec![v]),
    }
}

fn limits(
    low: &Option<Vec<f64>>,
    high: &Option<Vec<f64>>,
    i: usize,
    free: (i64, i64),
) -> (i64, i64) {
    let entry = |l: &Option<Vec<f64>>| {
        l.as_ref().and_then(|l| l.get(if l.len() == 1 { 0 } else { i })).map(|&v| v as i64)
    };
    match (entry(low), entry(high)) {
        (Some(l), Some(h)) => (l, h),
        (Some(l), None) => (l, l + free.1 - free.0),
        (None, Some(h)) => (h - (free.1 - free.0), h),
        (None, None) => free,
    }
}
