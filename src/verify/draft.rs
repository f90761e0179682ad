//! Drafts of samples: element types, extents, ranks and attributes, chosen and repaired.

use super::facts::{Extended, Facts, single_name};
use super::random::Random;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::infer::resolve_dims;
use mlc_dsl::ir::{Attr, DType, Extent, Type};
use mlc_dsl::library::{DTypePattern, Dim, Name};
use mlc_dsl::syntax::ast::{BinaryOp, Expr, ExprKind};

/// A sample without its elements. Lists have one entry per member of the family.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// Members of the family; 1 where the law has none.
    pub members: usize,
    /// Element types.
    pub dtypes: Vec<(Name, DType)>,
    /// Axes.
    pub axes: Vec<(Name, Vec<i64>)>,
    /// Segments.
    pub segs: Vec<(Name, Vec<Vec<i64>>)>,
    /// Attributes chosen so far.
    pub attrs: Vec<(Name, Attr)>,
    /// Whether ranges and domains are kept.
    pub stray: Stray,
    /// Attributes are chosen to tell as much as they can.
    pub telling: bool,
}

/// Whether attributes keep their declared ranges and elements their domains. Both advise samples;
/// conditions alone make truth, so a law must hold beyond them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    /// They do.
    No,
    /// They may be anything that the operators take.
    Any,
}

/// How extents are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extents {
    /// Every axis another number.
    Distinct,
    /// Small numbers.
    Small,
    /// Some axes of extent one.
    Ones,
    /// Two or three.
    Few,
    /// All axes of one extent.
    Equal,
    /// Some axes of no extent.
    Zeros,
    /// Small numbers, but the axis or segment of that number has no extent.
    Empty(usize),
    /// Some axes so long that parts of parts, windows and steps have room, and attributes that use it.
    Roomy,
}

/// One change that may make a draft fit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fix {
    /// An axis gets this extent.
    Axis(Name, i64),
    /// A segment gets these extents.
    Seg(Name, Vec<i64>),
    /// A segment gets that many axes.
    Rank(Name, usize),
    /// A segment is refactored to that many elements.
    Elements(Name, i64),
    /// An axis becomes a multiple.
    Multiple(Name, i64),
    /// An attribute gets this value.
    Attr(Name, Attr),
}

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16, DType::F64];
const INTS: &[DType] = &[DType::I64, DType::I32, DType::U8, DType::I8, DType::U32];

impl Draft {
    /// Chooses everything but attributes.
    pub(super) fn choose(facts: &Facts, style: Extents, stray: Stray, rng: &mut Random) -> Draft {
        let members = if facts.each { 2 + rng.below(2) } else { 1 };
        let mut d = Draft {
            members,
            dtypes: vec![],
            axes: vec![],
            segs: vec![],
            attrs: vec![],
            stray,
            telling: style == Extents::Roomy,
        };
        for n in &facts.dtypes {
            d.dtypes.push((n.clone(), dtype(n, rng)));
        }
        let mut pool = Pool::new(style, rng);
        for s in &facts.segs {
            let copies = if s.private { members } else { 1 };
            let rank = pick_rank(facts, rng);
            let mut list: Vec<Vec<i64>> =
                (0..copies).map(|_| (0..rank).map(|_| pool.next(rng)).collect()).collect();
            // Members that differ in more than one axis rarely fit together.
            if rng.chance(0.8) {
                let first = list[0].clone();
                list.fill(first);
            }
            d.segs.push((s.name.clone(), list));
        }
        for a in &facts.axes {
            let copies = if a.private { members } else { 1 };
            d.axes.push((a.name.clone(), (0..copies).map(|_| pinned(a, &mut pool, rng)).collect()));
        }
        if let Extents::Empty(slot) = style {
            d.empty(slot);
            if stray == Stray::Any {
                d.without_numbers(facts, rng);
            }
        }
        d
    }

    /// Beside a sum of nothing a number shows best if it is none.
    fn without_numbers(&mut self, facts: &Facts, rng: &mut Random) {
        for a in facts.law.attrs.iter().filter(|a| a.ty.name.text == "float") {
            if rng.chance(0.7) {
                let v = rng.pick(&[f64::NAN, f64::NAN, f64::INFINITY]);
                self.attrs.push((a.name.clone(), Attr::float(v)));
            }
        }
    }

    /// Takes the extent of the axis or segment of that number.
    fn empty(&mut self, slot: usize) {
        if let Some((_, v)) = self.axes.get_mut(slot) {
            v.fill(0);
        } else if let Some((_, list)) = self.segs.get_mut(slot - self.axes.len()) {
            for s in list {
                match s.first_mut() {
                    Some(first) => *first = 0,
                    None => s.push(0),
                }
            }
        }
    }

    fn member<T>(list: &[T], member: usize) -> Option<&T> {
        list.get(if list.len() == 1 { 0 } else { member })
    }

    /// The environment of a member: everything chosen so far and the types of the variables.
    pub(super) fn env(&self, facts: &Facts, member: usize) -> Result<Env, String> {
        let mut env = Env::default();
        for (n, d) in &self.dtypes {
            env.bind_dtype(n, *d);
        }
        for (n, v) in &self.axes {
            env.bind_axis(n, Extent::from(*Draft::member(v, member).unwrap_or(&1)));
        }
        for (n, v) in &self.segs {
            let list = Draft::member(v, member).cloned().unwrap_or_default();
            env.bind_seg(n, list.into_iter().map(Extent::from).collect());
        }
        self.finish_env(facts, env)
    }

    /// The same with every float in f64.
    pub(super) fn widened(&self) -> Draft {
        let mut d = self.clone();
        d.dtypes.iter_mut().filter(|(_, t)| t.is_float()).for_each(|(_, t)| *t = DType::F64);
        d
    }

    /// The environment with a symbol for every extent.
    pub(super) fn symbolic_env(&self, facts: &Facts) -> Result<Env, String> {
        let mut env = Env::default();
        for (n, d) in &self.dtypes {
            env.bind_dtype(n, *d);
        }
        for (n, _) in &self.axes {
            env.bind_axis(n, Extent::sym(n));
        }
        for (n, v) in &self.segs {
            let rank = v.first().map_or(0, Vec::len);
            env.bind_seg(n, (0..rank).map(|i| Extent::sym(&format!("{n}{i}"))).collect());
        }
        self.finish_env(facts, env)
    }

    fn finish_env(&self, facts: &Facts, mut env: Env) -> Result<Env, String> {
        for (n, a) in &self.attrs {
            env.bind_attr(n, a.clone());
        }
        for i in 0..facts.law.vars.len() {
            let ty = self.var_type(facts, i, &env)?;
            env.bind_tensor(&facts.law.vars[i].name, ty);
        }
        Ok(env)
    }

    fn var_type(&self, facts: &Facts, var: usize, env: &Env) -> Result<Type, String> {
        let dtype = match &facts.law.vars[var].ty.dtype {
            DTypePattern::Fixed(d) => *d,
            DTypePattern::Var(n) => env.dtype(n).unwrap_or(DType::F32),
        };
        Ok(Type::new(dtype, resolve_dims(&facts.dims(var), env)?))
    }

    /// Changes the draft; false if that changes nothing or is impossible.
    pub(super) fn apply(&mut self, fix: &Fix, rng: &mut Random) -> bool {
        const CAP: i64 = 64;
        let find_axis = |d: &mut Draft, n: &Name| d.axes.iter().position(|(a, _)| a == n);
        let find_seg = |d: &mut Draft, n: &Name| d.segs.iter().position(|(a, _)| a == n);
        match fix {
            Fix::Axis(n, v) if (0..=CAP).contains(v) => match find_axis(self, n) {
                Some(i) => {
                    let changed = self.axes[i].1.iter().any(|old| old != v);
                    self.axes[i].1.iter_mut().for_each(|old| *old = *v);
                    changed
                }
                None => false,
            },
            Fix::Multiple(n, k) if *k > 1 && *k <= CAP => match find_axis(self, n) {
                Some(i) => {
                    for v in &mut self.axes[i].1 {
                        *v = (*v / k).clamp(1, 3) * k;
                    }
                    true
                }
                None => false,
            },
            Fix::Seg(n, v) if v.iter().all(|e| (0..=CAP).contains(e)) => match find_seg(self, n) {
                Some(i) => {
                    let changed = self.segs[i].1.iter().any(|old| old != v);
                    self.segs[i].1.iter_mut().for_each(|old| old.clone_from(v));
                    changed
                }
                None => false,
            },
            Fix::Rank(n, rank) if *rank <= 5 => match find_seg(self, n) {
                Some(i) => {
                    let changed = self.segs[i].1.iter().any(|old| old.len() != *rank);
                    for list in &mut self.segs[i].1 {
                        while list.len() < *rank {
                            list.push(rng.between(1, 3));
                        }
                        list.truncate(*rank);
                    }
                    changed
                }
                None => false,
            },
            Fix::Elements(n, count) if (0..=4096).contains(count) => match find_seg(self, n) {
                Some(i) => {
                    let shape = refactor(*count, rng);
                    self.segs[i].1.iter_mut().for_each(|old| old.clone_from(&shape));
                    true
                }
                None => false,
            },
            Fix::Attr(n, a) => match self.attrs.iter_mut().find(|(b, _)| b == n) {
                Some((_, old)) if old == a => false,
                Some((_, old)) => {
                    *old = a.clone();
                    true
                }
                None => {
                    self.attrs.push((n.clone(), a.clone()));
                    true
                }
            },
            Fix::Axis(..)
            | Fix::Multiple(..)
            | Fix::Seg(..)
            | Fix::Rank(..)
            | Fix::Elements(..) => false,
        }
    }
}

/// An element type of the family of a variable.
fn dtype(name: &str, rng: &mut Random) -> DType {
    let float = |rng: &mut Random| match rng.below(20) {
        // f64 is where truth is judged; it has no rounding to judge.
        0..=13 => DType::F32,
        14..=16 => DType::F16,
        _ => DType::BF16,
    };
    match name.as_bytes().first() {
        Some(b'F') => float(rng),
        Some(b'I') => rng.pick(INTS),
        Some(b'B') => DType::Bool,
        Some(b'N') => {
            if rng.chance(0.7) {
                float(rng)
            } else {
                rng.pick(INTS)
            }
        }
        _ => match rng.below(10) {
            0..=5 => float(rng),
            6..=8 => rng.pick(INTS),
            _ => DType::Bool,
        },
    }
}

/// Any element type, for attributes.
pub(super) fn any_dtype(rng: &mut Random) -> DType {
    match rng.below(3) {
        0 => rng.pick(FLOATS),
        1 => rng.pick(INTS),
        _ => rng.pick(&[DType::F32, DType::I64, DType::Bool]),
    }
}

/// Permutations of two axes commute: where a law has some, three axes are usual.
fn pick_rank(facts: &Facts, rng: &mut Random) -> usize {
    if facts.law.attrs.iter().any(|a| a.ty.name.text == "perm") {
        return rng.pick(&[0, 1, 2, 2, 3, 3, 3, 4]);
    }
    rng.pick(&[0, 1, 1, 1, 2, 2, 2, 3])
}

fn pinned(a: &Extended, pool: &mut Pool, rng: &mut Random) -> i64 {
    match a.pinned {
        Some((low, high)) => rng.between(low.max(0), high.max(0)),
        None => pool.next(rng),
    }
}

/// Long axes are drawn until that many elements lie along all of them.
const ROOM: i64 = 40;

struct Pool {
    style: Extents,
    left: Vec<i64>,
    equal: i64,
    /// Elements along all that was drawn.
    elements: i64,
}

impl Pool {
    fn new(style: Extents, rng: &mut Random) -> Pool {
        Pool { style, left: vec![], equal: rng.between(1, 3), elements: 1 }
    }

    fn next(&mut self, rng: &mut Random) -> i64 {
        match self.style {
            Extents::Small | Extents::Empty(_) => rng.between(1, 4),
            Extents::Few => rng.between(2, 3),
            Extents::Roomy => {
                let long = self.elements < ROOM && rng.chance(0.7);
                let e = if long { rng.between(5, 10) } else { rng.between(1, 3) };
                self.elements *= e;
                e
            }
            Extents::Equal => self.equal,
            Extents::Ones if rng.chance(0.4) => 1,
            Extents::Zeros if rng.chance(0.25) => 0,
            Extents::Distinct | Extents::Ones | Extents::Zeros => {
                if self.left.is_empty() {
                    self.left = vec![2, 3, 5, 7];
                    rng.shuffle(&mut self.left);
                    if self.style != Extents::Distinct {
                        self.left = vec![2, 3, 4];
                        rng.shuffle(&mut self.left);
                    }
                }
                self.left.pop().unwrap_or(2)
            }
        }
    }
}

/// A random shape of `count` elements.
pub(super) fn refactor(count: i64, rng: &mut Random) -> Vec<i64> {
    if count == 0 {
        return rng.pick(&[vec![0], vec![0, 2], vec![3, 0]]);
    }
    let mut factors = Vec::new();
    let (mut n, mut p) = (count, 2);
    while n > 1 && p * p <= n {
        if n % p == 0 {
            factors.push(p);
            n /= p;
        } else {
            p += 1;
        }
    }
    if n > 1 {
        factors.push(n);
    }
    let groups = 1 + rng.below(4);
    let mut shape = vec![1; groups];
    for f in factors {
        shape[rng.below(groups)] *= f;
    }
    if !rng.chance(0.3) {
        shape.retain(|&d| d != 1);
    }
    shape
}

/// What the names of a condition stand for among a law's names.
pub(super) trait Names {
    /// The law's axis behind a name.
    fn axis(&self, name: &str) -> Option<Name>;
    /// The law's segment behind a name.
    fn seg(&self, name: &str) -> Option<Name>;
    /// The law's attribute behind a name.
    fn attr(&self, name: &str) -> Option<Name>;
}

/// Changes that may make a condition hold that does not.
pub(super) fn fixes(e: &Expr, env: &Env, names: &dyn Names) -> Vec<Fix> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Binary(BinaryOp::And, a, b) => {
            out.extend(fixes(a, env, names));
            out.extend(fixes(b, env, names));
        }
        ExprKind::Binary(BinaryOp::Eq, a, b) => {
            equate(a, b, env, names, &mut out);
            equate(b, a, env, names, &mut out);
        }
        ExprKind::Call { callee, args } if callee.text == "all" && args.len() == 1 => {
            out.extend(fixes(&args[0].value, env, names));
        }
        _ => {}
    }
    out
}

/// Changes that may make a comparison fail that holds: both sides become equal, or neighbours.
pub(super) fn breaks(e: &Expr, env: &Env, names: &dyn Names) -> Vec<Fix> {
    let mut out = Vec::new();
    match &e.kind {
        ExprKind::Binary(BinaryOp::Gt | BinaryOp::Lt | BinaryOp::Ne, a, b) => {
            equate(a, b, env, names, &mut out);
            equate(b, a, env, names, &mut out);
        }
        ExprKind::Call { callee, args } if callee.text == "all" && args.len() == 1 => {
            out.extend(breaks(&args[0].value, env, names));
        }
        _ => {}
    }
    out
}

/// Ways to give `target` the value of `other`.
fn equate(target: &Expr, other: &Expr, env: &Env, names: &dyn Names, out: &mut Vec<Fix>) {
    let Ok(value) = eval(other, env) else { return };
    if let ExprKind::Call { callee, args } = &target.kind
        && let [arg] = args.as_slice()
        && let Some(n) = single_name(&arg.value)
        && let Some(v) = value.as_i64()
    {
        match callee.text.as_str() {
            "rank" | "length" => {
                if let (Some(s), Ok(v)) = (names.seg(n), usize::try_from(v)) {
                    out.push(Fix::Rank(s, v));
                }
            }
            "product" => out.extend(names.seg(n).map(|s| Fix::Elements(s, v))),
            _ => {}
        }
    }
    if let ExprKind::Binary(BinaryOp::Mod, n, k) = &target.kind
        && value.as_i64() == Some(0)
        && let Some(axis) = single_name(n).and_then(|n| names.axis(n))
        && let Some(k) = eval(k, env).ok().and_then(|k| k.as_i64())
    {
        out.push(Fix::Multiple(axis, k));
    }
    let Some(n) = single_name(target) else { return };
    if let (Some(axis), Some(v)) = (names.axis(n), value.as_i64()) {
        out.push(Fix::Axis(axis, v));
    }
    if let (Some(seg), Some(old)) = (names.seg(n), env.seg(n)) {
        let every = value.as_i64().map(|v| vec![v; old.len()]);
        out.extend(value.as_i64s().or(every).map(|v| Fix::Seg(seg, v)));
    }
    if let Some(a) = names.attr(n) {
        let value = match (&value, env.attr(n)) {
            (Attr::Int(v), Some(Attr::Ints(old))) => Attr::Ints(vec![v.clone(); old.len()]),
            _ => value,
        };
        out.push(Fix::Attr(a, value));
    }
}

/// A law's own names.
pub(super) struct OwnNames<'a, 'l>(pub &'a Facts<'l>);

impl Names for OwnNames<'_, '_> {
    fn axis(&self, name: &str) -> Option<Name> {
        self.0.axes.iter().find(|a| &*a.name == name).map(|a| a.name.clone())
    }

    fn seg(&self, name: &str) -> Option<Name> {
        self.0.segs.iter().find(|s| &*s.name == name).map(|s| s.name.clone())
    }

    fn attr(&self, name: &str) -> Option<Name> {
        self.0.law.attrs.iter().find(|a| &*a.name == name).map(|a| a.name.clone())
    }
}

/// An operator's names as the law's.
pub(super) struct CalleeNames<'a, 'l> {
    /// The law's names.
    pub own: OwnNames<'a, 'l>,
    /// The operator's dimensions and the law's behind them.
    pub dims: Vec<(Dim, Dim)>,
    /// The operator's attributes and the law's behind them.
    pub attrs: Vec<(Name, Name)>,
}

impl Names for CalleeNames<'_, '_> {
    fn axis(&self, name: &str) -> Option<Name> {
        self.dims.iter().find_map(|(p, own)| match (p, own) {
            (Dim::Axis(p), Dim::Axis(own)) if &**p == name => self.own.axis(own),
            _ => None,
        })
    }

    fn seg(&self, name: &str) -> Option<Name> {
        self.dims.iter().find_map(|(p, own)| match (p, own) {
            (Dim::Seg(p), Dim::Seg(own)) if &**p == name => self.own.seg(own),
            _ => None,
        })
    }

    fn attr(&self, name: &str) -> Option<Name> {
        let (_, own) = self.attrs.iter().find(|(p, _)| &**p == name)?;
        self.own.attr(own)
    }
}
