//! Terms over a world, enumerated bottom up by size, with one representative for each group of equal values.
//!
//! A term that is equal to a smaller one is part of no larger term: that keeps the number of terms bounded. What is found
//! equal here are candidates; nothing is claimed of them.

use super::exprs::AttrExpr;
use super::operators::Operator;
use super::values::{Key, Keys, filled};
use super::worlds::{DimId, World};
use mlc_backends::reference::{Array, CodeCache, Reference};
use mlc_dsl::expr::AttrKind;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{DTypePattern, Library, Name};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// Index of a term in its bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TermId(pub u32);

/// What a term is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A variable of the world.
    Var(usize),
    /// An expression of the bank, as a number among tensors.
    Number(usize),
    /// An operator of the bank; attributes are expressions of it, `None` are defaults.
    Apply(usize, Vec<TermId>, Vec<Option<usize>>),
}

/// A term.
#[derive(Clone, Debug)]
pub struct Term {
    /// What it is.
    pub node: Node,
    /// Operators, variables and literals in it.
    pub size: usize,
    /// Of its elements.
    pub dtype: DType,
    /// Its axes, where they are some of the world's.
    pub dims: Option<Vec<DimId>>,
    /// Tensor variables in it, one bit each.
    pub vars: u32,
    /// Attribute variables in it, one bit each.
    pub attrs: u32,
    /// Operators in it, one bit each.
    pub ops: u64,
    /// The same for terms that traits of operators make equal.
    form: u64,
    /// Of an associative and commutative operator: the forms of what it joins.
    operands: Vec<u64>,
}

/// How two terms were found alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alike {
    /// On all samples.
    Everywhere,
    /// On all that are finite.
    Finite,
    /// On those that are finite, where numbers are positive and in an order.
    Scaled,
    /// On those without negative elements.
    Nonnegative,
    /// On those that are positive and moderate.
    Moderate,
}

impl Alike {
    /// The environment whose numbers are as they are where the terms are alike.
    pub fn environment(self) -> usize {
        match self {
            Alike::Everywhere | Alike::Finite => 0,
            Alike::Scaled => 1,
            Alike::Nonnegative | Alike::Moderate => 2,
        }
    }
}

/// Two terms that may be equal.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The one that was found later.
    pub term: TermId,
    /// The representative.
    pub other: TermId,
    /// Why.
    pub alike: Alike,
}

/// What is enumerated.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Largest size of a term.
    pub size: usize,
    /// Terms that are evaluated at most.
    pub terms: usize,
    /// When to stop, whatever is left.
    pub until: Instant,
}

/// Terms that differ where numbers are not finite, though they are equal elsewhere: so many are kept of a group.
const VARIANTS: usize = 3;

/// The terms of a world.
pub struct Bank {
    /// Their variables.
    pub world: World,
    /// Attributes and numbers.
    pub exprs: Vec<AttrExpr>,
    /// Operators.
    pub ops: Vec<Operator>,
    /// All terms that are part of a pair or may be part of another term.
    pub terms: Vec<Term>,
    /// Pairs that were found.
    pub pairs: Vec<Pair>,
    /// Terms that were evaluated.
    pub evaluated: usize,
    /// An end came before all terms of the size were enumerated.
    pub cut: bool,
    values: HashMap<TermId, Vec<Array>>,
    by_size: Vec<Vec<TermId>>,
    forms: HashSet<u64>,
    finite: HashMap<Key, Vec<(Key, TermId)>>,
    scaled: HashMap<Key, TermId>,
    nonnegative: HashMap<Key, TermId>,
    moderate: HashMap<Key, TermId>,
}

impl Bank {
    /// Variables and numbers alone.
    pub fn new(world: World, exprs: Vec<AttrExpr>, ops: Vec<Operator>) -> Bank {
        let mut bank = Bank {
            world,
            exprs,
            ops,
            terms: vec![],
            pairs: vec![],
            evaluated: 0,
            cut: false,
            values: HashMap::new(),
            by_size: vec![vec![]],
            forms: HashSet::new(),
            finite: HashMap::new(),
            scaled: HashMap::new(),
            nonnegative: HashMap::new(),
            moderate: HashMap::new(),
        };
        bank.leaves();
        bank
    }

    /// The term of an id.
    pub fn term(&self, id: TermId) -> &Term {
        &self.terms[id.0 as usize]
    }

    fn leaves(&mut self) {
        for (i, v) in self.world.vars.clone().into_iter().enumerate() {
            let values = self.world.environments.iter().map(|e| e.values[i].clone()).collect();
            let (node, dims) = (Node::Var(i), Some(v.dims));
            let (size, dtype, vars, attrs, ops) = (1, v.dtype, 1 << i, 0, 0);
            let (form, operands) = (hash(&node), vec![]);
            self.note(Term { node, size, dtype, dims, vars, attrs, ops, form, operands }, values);
        }
        let main = self.world.main;
        let types = if main == DType::Bool { vec![main] } else { vec![main, DType::Bool] };
        for dtype in types {
            for i in 0..self.exprs.len() {
                self.number(i, dtype);
            }
        }
    }

    fn number(&mut self, i: usize, dtype: DType) {
        let e = &self.exprs[i];
        let truth = |v: f64| v == 0.0 || v == 1.0;
        let unfit = |v: f64| dtype == DType::Bool && !(e.attrs_free() && truth(v));
        let Some(like) = self.world.vars.iter().position(|v| v.dims.len() == self.world.dims.len())
        else {
            return;
        };
        let all = self.world.environments.iter().enumerate().map(|(at, env)| {
            let v = e.number(at).filter(|v| !unfit(*v))?;
            filled(&env.values[like], dtype, v)
        });
        if !e.is_number() || e.kind == AttrKind::Float && !dtype.is_float() {
            return;
        }
        let Some(values) = all.collect::<Option<Vec<Array>>>() else { return };
        let (size, attrs) = (e.size, e.uses);
        let node = Node::Number(i);
        let (form, operands) = (hash(&(&node, dtype as u32)), vec![]);
        let (dims, vars, ops) = (None, 0, 0);
        self.note(Term { node, size, dtype, dims, vars, attrs, ops, form, operands }, values);
    }

    /// Enumerates terms up to the bounds.
    pub fn grow(&mut self, library: &Library, bounds: &Bounds) {
        let codes = CodeCache::new(library);
        for size in 2..=bounds.size {
            for op in 0..self.ops.len() {
                self.applications(&codes, op, size, bounds);
            }
            if self.cut {
                break;
            }
        }
        self.values = HashMap::new();
    }

    /// All applications of an operator of a size.
    fn applications(&mut self, codes: &CodeCache<'_>, op: usize, size: usize, bounds: &Bounds) {
        let call = codes.library().call(self.ops[op].call);
        let (arity, kinds) = (call.inputs.len(), &call.attrs);
        let mut choices: Vec<Vec<Option<usize>>> = vec![vec![]];
        for a in kinds {
            let suits = |(_, e): &(usize, &AttrExpr)| e.suits(a.ty.kind);
            let mut all: Vec<Option<usize>> =
                self.exprs.iter().enumerate().filter(suits).map(|(i, _)| Some(i)).collect();
            if a.default.is_some() {
                all.insert(0, None);
            }
            let with = |c: &Vec<Option<usize>>| {
                all.iter().map(|x| [&c[..], &[*x]].concat()).collect::<Vec<_>>()
            };
            choices = choices.iter().flat_map(with).collect();
        }
        for attrs in choices {
            let cost: usize = attrs.iter().flatten().map(|i| self.exprs[*i].size - 1).sum();
            let Some(rest) = size.checked_sub(1 + cost).filter(|r| *r >= arity) else { continue };
            for sizes in compositions(rest, arity) {
                let lists: Vec<Vec<TermId>> = sizes
                    .iter()
                    .map(|s| self.by_size.get(*s).cloned().unwrap_or_default())
                    .collect();
                let mut at = vec![0usize; arity];
                if lists.iter().any(Vec::is_empty) {
                    continue;
                }
                loop {
                    let args: Vec<TermId> = at.iter().zip(&lists).map(|(i, l)| l[*i]).collect();
                    if self.evaluated >= bounds.terms
                        || self.evaluated.is_multiple_of(256) && Instant::now() > bounds.until
                    {
                        self.cut = true;
                        return;
                    }
                    self.application(codes, op, size, args, &attrs);
                    if !advance(&mut at, &lists) {
                        break;
                    }
                }
            }
        }
    }

    fn application(
        &mut self,
        codes: &CodeCache<'_>,
        op: usize,
        size: usize,
        args: Vec<TermId>,
        attrs: &[Option<usize>],
    ) {
        let operator = &self.ops[op];
        let call = codes.library().call(operator.call);
        let terms: Vec<&Term> = args.iter().map(|a| self.term(*a)).collect();
        let is_number = |t: &&Term| matches!(t.node, Node::Number(_));
        if operator.commutative && args.len() == 2 && args[0] > args[1]
            || terms.iter().all(is_number)
            || !operator.pointwise && terms.iter().any(is_number)
            || !admits(call.inputs.iter().map(|i| &i.ty.dtype), &terms)
        {
            return;
        }
        let (form, operands) = self.form(op, &args, attrs);
        // Traits make it equal to a term that was looked at.
        if !self.forms.insert(form) {
            return;
        }
        self.evaluated += 1;
        let Some(values) = self.evaluate(codes, op, &args, attrs) else { return };
        let dims = values.first().and_then(|v| self.world.dims_of(v.shape()));
        let union = |f: fn(&Term) -> u32| args.iter().fold(0, |all, a| all | f(self.term(*a)));
        let of_attrs = attrs.iter().flatten().fold(0, |all, i| all | self.exprs[*i].uses);
        let term = Term {
            size,
            dtype: values[0].dtype(),
            dims,
            vars: union(|t| t.vars),
            attrs: union(|t| t.attrs) | of_attrs,
            ops: args.iter().fold(1 << op, |all, a| all | self.term(*a).ops),
            node: Node::Apply(op, args, attrs.to_vec()),
            form,
            operands,
        };
        self.note(term, values);
    }

    /// What an application has in common with those that the operator's traits make equal to it.
    fn form(&self, op: usize, args: &[TermId], attrs: &[Option<usize>]) -> (u64, Vec<u64>) {
        let o = &self.ops[op];
        let joined = |a: &TermId| match &self.term(*a).node {
            Node::Apply(inner, ..) if *inner == op && o.associative && o.commutative => {
                self.term(*a).operands.clone()
            }
            _ => vec![self.term(*a).form],
        };
        let mut operands: Vec<u64> = args.iter().flat_map(joined).collect();
        if o.commutative {
            operands.sort_unstable();
        }
        (hash(&(op, &operands, attrs)), operands)
    }

    /// The values of an application; `None` if it has none in some environment.
    fn evaluate(
        &self,
        codes: &CodeCache<'_>,
        op: usize,
        args: &[TermId],
        attrs: &[Option<usize>],
    ) -> Option<Vec<Array>> {
        let reference = Reference::default();
        let places = self.places(args)?;
        let one = |at: usize| {
            let placed = args.iter().zip(&places);
            let placed = placed.map(|(a, p)| self.placed(codes, *a, p.as_deref(), at));
            let mut arrays: Vec<Array> = placed.collect::<Option<_>>()?;
            self.fill_numbers(args, &mut arrays, at)?;
            let attrs: Vec<Option<Attr>> =
                attrs.iter().map(|a| self.attribute(*a, args[0], at)).collect::<Option<_>>()?;
            let made = reference.apply_again(codes, self.ops[op].call, &attrs, &arrays).ok()?;
            made.into_iter().next()
        };
        (0..self.world.environments.len()).map(one).collect()
    }

    /// An attribute in an environment; the outer `None` if it has none there.
    pub fn attribute(&self, expr: Option<usize>, of: TermId, at: usize) -> Option<Option<Attr>> {
        let Some(i) = expr else { return Some(None) };
        let e = &self.exprs[i];
        let super::exprs::Form::Position(dim, in_list) = e.form else {
            return Some(Some(e.values[at].clone()?));
        };
        let dims = self.term(of).dims.as_ref()?;
        let place = dims.iter().position(|d| *d as usize == dim)?;
        let before = self.world.shape(&dims[..place], at).len() as i64;
        Some(Some(if in_list { Attr::ints([before]) } else { Attr::int(before) }))
    }

    /// The axes to which each operand has to be broadcast, if any; `None` if the operands do not go together.
    pub fn places(&self, args: &[TermId]) -> Option<Vec<Option<Vec<DimId>>>> {
        let tensors =
            args.iter().map(|a| self.term(*a)).filter(|t| !matches!(t.node, Node::Number(_)));
        let all: Vec<&Option<Vec<DimId>>> = tensors.map(|t| &t.dims).collect();
        if all.windows(2).all(|w| w[0] == w[1]) {
            return Some(vec![None; args.len()]);
        }
        let known: Vec<&Vec<DimId>> = all.into_iter().map(Option::as_ref).collect::<Option<_>>()?;
        let most = known.iter().max_by_key(|d| d.len())?;
        let fits = known.iter().all(|d| d.iter().all(|x| most.contains(x)));
        let place = |a: &TermId| {
            let dims = self.term(*a).dims.as_ref();
            dims.filter(|d| d != most).map(|_| most.to_vec())
        };
        fits.then(|| args.iter().map(place).collect())
    }

    /// An operand where it is read: numbers have the shape of the others, and what lacks axes is broadcast.
    fn placed(
        &self,
        codes: &CodeCache<'_>,
        arg: TermId,
        to: Option<&[DimId]>,
        at: usize,
    ) -> Option<Array> {
        let value = self.values.get(&arg)?[at].clone();
        let Some(to) = to else { return Some(value) };
        let (map, shape) = self.broadcast(arg, to, at)?;
        let ints = |v: &[i64]| Some(Attr::ints(v.iter().copied()));
        let broadcast = codes.library().find("broadcast")?;
        let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let attrs = [ints(&map), ints(&shape)];
        let made = Reference::default().apply_again(codes, broadcast, &attrs, &[value]).ok()?;
        made.into_iter().next()
    }

    /// Numbers among operands get the shape of the others.
    fn fill_numbers(&self, args: &[TermId], arrays: &mut [Array], at: usize) -> Option<()> {
        let like = args.iter().position(|a| !matches!(self.term(*a).node, Node::Number(_)))?;
        let like = arrays[like].clone();
        for (a, array) in args.iter().zip(arrays) {
            if let Node::Number(i) = self.term(*a).node {
                *array = filled(&like, self.term(*a).dtype, self.exprs[i].number(at)?)?;
            }
        }
        Some(())
    }

    /// Where the axes of a term lie among others in an environment, and the shape of those.
    pub fn broadcast(
        &self,
        arg: TermId,
        to: &[DimId],
        at: usize,
    ) -> Option<(Vec<i64>, Vec<usize>)> {
        let dims = self.term(arg).dims.as_ref()?;
        let shape = self.world.shape(to, at);
        let mut map = Vec::new();
        let mut place = 0i64;
        for d in to {
            let n = self.world.environments[at].extents[*d as usize].len() as i64;
            if dims.contains(d) {
                map.extend(place..place + n);
            }
            place += n;
        }
        Some((map, shape))
    }

    /// How many variables of floats a term has.
    fn float_vars(&self, term: &Term) -> usize {
        let vars = self.world.vars.iter().enumerate();
        vars.filter(|(i, v)| term.vars >> i & 1 == 1 && v.dtype.is_float()).count()
    }

    /// Files a term under its values: it is a representative, or one of a pair, or neither.
    fn note(&mut self, term: Term, values: Vec<Array>) {
        let keys = Keys::of(&self.world, &values);
        // A comparison of several floats that no sample meets may hold all the same.
        let unmet = keys.flat
            && term.dtype == DType::Bool
            && self.world.main.is_float()
            && self.float_vars(&term) > 1;
        if (keys.void || unmet) && term.size > 1 {
            return;
        }
        let id = TermId(self.terms.len() as u32);
        let group = self.finite.entry(keys.finite).or_default();
        if let Some((first, others)) = group.split_first() {
            let same = group.iter().find(|(k, _)| *k == keys.everywhere).map(|(_, t)| *t);
            let pair = match same {
                Some(other) => Pair { term: id, other, alike: Alike::Everywhere },
                None => Pair { term: id, other: first.1, alike: Alike::Finite },
            };
            if same.is_none() && others.len() + 1 < VARIANTS {
                group.push((keys.everywhere, id));
            }
            self.terms.push(term);
            self.pairs.push(pair);
            return;
        }
        group.push((keys.everywhere, id));
        if self.world.main.is_float() {
            let weaker = [
                (&mut self.scaled, keys.scaled, Alike::Scaled),
                (&mut self.nonnegative, keys.nonnegative, Alike::Nonnegative),
                (&mut self.moderate, keys.moderate, Alike::Moderate),
            ];
            let mut found = None;
            for (map, key, alike) in weaker {
                match map.get(&key) {
                    Some(other) => {
                        found = found.or(Some(Pair { term: id, other: *other, alike }));
                    }
                    None => {
                        map.insert(key, id);
                    }
                }
            }
            self.pairs.extend(found);
        }
        while self.by_size.len() <= term.size {
            self.by_size.push(vec![]);
        }
        if !keys.flat || term.size == 1 {
            self.by_size[term.size].push(id);
        }
        self.terms.push(term);
        self.values.insert(id, values);
    }
}

impl AttrExpr {
    /// True of a literal.
    fn attrs_free(&self) -> bool {
        self.uses == 0
    }
}

fn hash(of: &impl Hash) -> u64 {
    let mut h = DefaultHasher::new();
    of.hash(&mut h);
    h.finish()
}

/// True if the parameters of these types take the operands.
fn admits<'p>(params: impl Iterator<Item = &'p DTypePattern>, args: &[&Term]) -> bool {
    let mut bound: Vec<(&Name, DType)> = Vec::new();
    params.zip(args).all(|(p, a)| {
        let DTypePattern::Var(v) = p else { return p.admits(a.dtype) };
        let same = bound.iter().find(|(n, _)| *n == v).map(|(_, d)| *d);
        bound.push((v, a.dtype));
        p.admits(a.dtype) && same.is_none_or(|d| d == a.dtype)
    })
}

/// Ways to write a number as a sum of so many positive ones, in order.
fn compositions(total: usize, parts: usize) -> Vec<Vec<usize>> {
    if parts <= 1 {
        return vec![vec![total]];
    }
    let first = 1..=(total + 1).saturating_sub(parts);
    let with = |n: usize| {
        let rest = compositions(total - n, parts - 1).into_iter();
        rest.map(move |r| [&[n][..], &r[..]].concat())
    };
    first.flat_map(with).collect()
}

/// The next choice of one entry of each list.
fn advance(at: &mut [usize], lists: &[Vec<TermId>]) -> bool {
    for i in (0..at.len()).rev() {
        at[i] += 1;
        if at[i] < lists[i].len() {
            return true;
        }
        at[i] = 0;
    }
    false
}
