//! Laws on open extents: what fires there must hold for every value of the symbols.
//!
//! Where an extent is a symbol, an operator is typed if its conditions may hold. So a law fires on a left side whose right side has no
//! value for some extents, unless its own conditions exclude them: with known extents the types of the right side refuse the match.
//! Drafts of samples are given symbols; where the law fires on them, their symbols are instantiated with small numbers.

use crate::compare::{BrokenPromise, Mismatch, Sample, SampleOutcome};
use crate::law::facts::{Conjunct, LawFacts};
use crate::law::instance::{self, Instance, InstanceRefusal};
use crate::sample::draft::{ExtentStyle, RangePolicy, SampleDraft};
use crate::sample::values::ElementStyle;
use crate::sample::{self, DrawTally};
use mlc_dsl::expr::{AttrKind, Expr};
use mlc_dsl::ir::{Attr, DType, Extent};
use mlc_dsl::library::Name;
use mlc_dsl::random::Random;
use std::collections::HashSet;

/// Drafts that are given symbols, ways to do so, and instances of each.
const DRAFTS: usize = 12;
const WAYS: usize = 6;
/// Those in which one attribute alone depends on extents.
const ALONE: [usize; 2] = [4, 5];
/// How often these are tried until the law fires.
const TRIES: usize = 8;
const INSTANCES: usize = 28;

/// Symbols are instantiated with numbers below this one.
const NUMBERS: i64 = 7;

/// Symbols and what they stood for in the draft.
type SymbolValues = Vec<(String, i64)>;

/// Key of a draft without symbols: everything that decides its instance; element types only where the law asks for them.
#[derive(PartialEq, Eq, Hash)]
struct DraftKey {
    axes: Vec<(Name, Vec<i64>)>,
    segs: Vec<(Name, Vec<Vec<i64>>)>,
    attrs: Vec<(Name, Attr)>,
    dtypes: Vec<(Name, DType)>,
}

impl DraftKey {
    fn of(facts: &LawFacts, draft: &SampleDraft) -> DraftKey {
        let (axes, segs, attrs) = (draft.axes.clone(), draft.segs.clone(), draft.attrs.clone());
        let asked = facts.typed || attrs.iter().any(|(_, a)| matches!(a, Attr::DType(_)));
        let dtypes = if asked { draft.dtypes.clone() } else { vec![] };
        DraftKey { axes, segs, attrs, dtypes }
    }
}

/// A sample with open extents on which a law fires but does not hold.
pub(crate) struct OpenExtentsRefutation {
    pub sample: Sample,
    pub mismatch: Mismatch,
    /// Conditions of the right side's operators that do not hold there, in the law's names.
    pub guards: Vec<Expr>,
}

/// A sample on which the law fires if its extents are open, but on which it does not hold.
pub(crate) fn refute(
    facts: &LawFacts,
    drafts: &[SampleDraft],
    tally: &mut DrawTally,
    rng: &mut Random,
) -> Option<OpenExtentsRefutation> {
    if facts.each {
        return None;
    }
    // Drafts of one law are often alike but for what symbols stand for.
    let (mut known, mut seen) = (HashSet::new(), HashSet::new());
    let drafts = drafts.iter().filter(|d| seen.insert(DraftKey::of(facts, d)));
    for draft in drafts.take(DRAFTS) {
        for way in 0..WAYS {
            let tries = if ALONE.contains(&way) { TRIES } else { 1 };
            let Some((open, symbols)) = (0..tries).find_map(|_| {
                let (open, symbols) = opened(facts, draft, way, rng);
                (!symbols.is_empty() && fires(facts, &open)).then_some((open, symbols))
            }) else {
                continue;
            };
            for i in 0..INSTANCES {
                let Some(values) = values(&symbols, i, rng) else { break };
                let closed = closed(&open, &values);
                let new = closed.filter(|d| known.insert(DraftKey::of(facts, d)));
                if let Some(found) = new.and_then(|d| differs(facts, &d, i, tally, rng)) {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// The draft with symbols in the place of some extents, and in attributes that may depend on them.
fn opened(
    facts: &LawFacts,
    draft: &SampleDraft,
    way: usize,
    rng: &mut Random,
) -> (SampleDraft, SymbolValues) {
    let mut open = draft.clone();
    (open.style, open.stray) = (ExtentStyle::Small, RangePolicy::No);
    let mut symbols: SymbolValues = vec![];
    let mut opened = |name: String, extent: i64, rng: &mut Random| {
        let open = way == 0 || rng.chance(0.6);
        open.then(|| symbols.push((name.clone(), extent)));
        if open { Extent::sym(&name) } else { Extent::from(extent) }
    };
    for (n, v) in &draft.axes {
        let extents = v.first().map(|e| opened(n.to_string(), *e, rng));
        open.open.push((n.clone(), extents.into_iter().collect()));
    }
    for (n, v) in &draft.segs {
        let own = v.first().into_iter().flatten().enumerate();
        let extents = own.map(|(i, e)| opened(format!("{n}{i}"), *e, rng)).collect();
        open.open.push((n.clone(), extents));
    }
    let lifted = |(i, (n, _)): (usize, &(Name, Attr))| is_lifted(facts, n).then_some(i);
    let lifted: Vec<usize> = open.attrs.iter().enumerate().filter_map(lifted).collect();
    // Types often fit if one attribute depends on extents, and seldom if all do.
    let alone = (ALONE.contains(&way) && !lifted.is_empty()).then(|| rng.pick(&lifted));
    for at in lifted.into_iter().filter(|at| alone.is_none_or(|alone| alone == *at)) {
        match &mut open.attrs[at].1 {
            Attr::Int(e) => lift(e, &symbols, way, rng),
            Attr::Ints(list) => {
                for (i, e) in list.iter_mut().enumerate() {
                    // Lists often say something of the axes of a segment, one by one.
                    let is_near = |(name, _): &&(String, i64)| name.ends_with(&i.to_string());
                    let near: SymbolValues = symbols.iter().filter(is_near).cloned().collect();
                    let is_local = !near.is_empty() && rng.chance(0.7);
                    lift(e, if is_local { &near } else { &symbols }, way, rng);
                }
            }
            _ => {}
        }
    }
    if way > 1 {
        balance(facts, draft, &mut open, rng);
    }
    (open, symbols)
}

/// Whether an attribute may depend on extents.
fn is_lifted(facts: &LawFacts, name: &Name) -> bool {
    let declared = facts.law.attrs.iter().find(|p| p.name == *name);
    let extents = |k: AttrKind| matches!(k, AttrKind::Int | AttrKind::Ints | AttrKind::Shape);
    declared.is_some_and(|p| extents(p.ty.kind))
}

/// Gives a list the sum or the difference with another one that the draft has: types often depend on no more, such as on what is added at
/// both ends of an axis.
fn balance(facts: &LawFacts, draft: &SampleDraft, open: &mut SampleDraft, rng: &mut Random) {
    let list = |(i, (n, a)): (usize, &(Name, Attr))| match a {
        Attr::Ints(list) if is_lifted(facts, n) => Some((i, list.len())),
        _ => None,
    };
    let lists: Vec<(usize, usize)> = draft.attrs.iter().enumerate().filter_map(list).collect();
    let alike = |a: &(usize, usize), b: &(usize, usize)| a.0 != b.0 && a.1 == b.1 && a.1 > 0;
    let pairs: Vec<(usize, usize)> = lists
        .iter()
        .flat_map(|a| lists.iter().filter(move |b| alike(a, b)).map(move |b| (a.0, b.0)))
        .collect();
    if pairs.is_empty() || !rng.chance(0.5) {
        return;
    }
    let (a, b) = rng.pick(&pairs);
    let is_sum = rng.chance(0.5);
    let [(Attr::Ints(was), Attr::Ints(before)), (Attr::Ints(is), _)] =
        [(&draft.attrs[a].1, &draft.attrs[b].1), (&open.attrs[a].1, &open.attrs[b].1)]
    else {
        return;
    };
    let kept = was.iter().zip(before).zip(is).map(|((was, before), is)| match is_sum {
        true => &(was + before) - is,
        false => &(before - was) + is,
    });
    open.attrs[b].1 = Attr::Ints(kept.collect());
}

/// Makes a number what it may be of the symbols: in the first way the same number, else one of them or a neighbour of it, or of a
/// product of two.
fn lift(e: &mut Extent, symbols: &SymbolValues, way: usize, rng: &mut Random) {
    let Some(v) = e.as_const() else { return };
    let equal: Vec<&(String, i64)> = symbols.iter().filter(|(_, s)| *s == v && v > 1).collect();
    if way > 0 && !equal.is_empty() && rng.chance(0.8) {
        *e = Extent::sym(&rng.pick(&equal).0);
        return;
    }
    let products = || {
        let pairs = symbols
            .iter()
            .enumerate()
            .flat_map(|(i, a)| symbols[i + 1..].iter().map(move |b| (a, b)));
        pairs.filter(|(a, b)| a.1 * b.1 == v && v > 1).collect::<Vec<_>>()
    };
    if way > 0
        && let pairs = products()
        && !pairs.is_empty()
    {
        let (a, b) = rng.pick(&pairs);
        *e = &Extent::sym(&a.0) * &Extent::sym(&b.0);
    } else if way > 1 && !symbols.is_empty() && rng.chance(if way > 3 { 0.7 } else { 0.35 }) {
        let (name, s) = rng.pick(symbols);
        *e = &Extent::sym(&name) + &Extent::from(v - s);
    }
}

/// True if the law fires on these open extents: its conditions are known to hold, and both sides have one type.
fn fires(facts: &LawFacts, open: &SampleDraft) -> bool {
    // Bounds of elements that are not numbers are not decided.
    let known = open.symbolic_env(facts).is_ok_and(|env| {
        facts.conjuncts.iter().all(|c| match c {
            Conjunct::Static(_) => true,
            Conjunct::Element(_, p) => p.is_known(&env),
        })
    });
    let types = if known { instance::build_symbolic(facts, open) } else { None };
    types.is_some_and(|types| types.iter().all(|(l, r)| l == r))
}

/// The `i`-th choice of numbers for the symbols: all of them where they are few, the smallest first.
fn values(symbols: &SymbolValues, i: usize, rng: &mut Random) -> Option<SymbolValues> {
    let all = NUMBERS.checked_pow(symbols.len() as u32).filter(|n| *n <= INSTANCES as i64);
    let mut number = i as i64;
    if all.is_some_and(|all| number >= all) {
        return None;
    }
    let mut next = |before: i64| match (all, i) {
        (Some(_), _) => {
            let v = number % NUMBERS;
            number /= NUMBERS;
            v
        }
        // All alike, then one after the other beside what the draft had.
        (None, 0..=3) => i as i64,
        (None, _) if rng.chance(0.4) => before,
        (None, _) => rng.between(0, NUMBERS - 1),
    };
    Some(symbols.iter().map(|(n, before)| (n.clone(), next(*before))).collect())
}

/// The draft with numbers in the place of symbols.
fn closed(open: &SampleDraft, values: &SymbolValues) -> Option<SampleDraft> {
    let symbol = |s: &str| values.iter().find(|(n, _)| n == s).map(|(_, v)| *v);
    let number = |e: &Extent| e.eval(&symbol);
    let mut out = open.clone();
    for (name, extents) in std::mem::take(&mut out.open) {
        let numbers: Vec<i64> = extents.iter().map(number).collect::<Option<_>>()?;
        match out.axes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, v)) => v.fill(*numbers.first()?),
            None => {
                let (_, v) = out.segs.iter_mut().find(|(n, _)| *n == name)?;
                v.fill(numbers);
            }
        }
    }
    for (_, a) in &mut out.attrs {
        match a {
            Attr::Int(e) => *e = Extent::from(number(e)?),
            Attr::Ints(list) => {
                for e in list {
                    *e = Extent::from(number(e)?);
                }
            }
            _ => {}
        }
    }
    Some(out)
}

/// What is wrong with the law on a draft on which it fires as long as its extents are open.
fn differs(
    facts: &LawFacts,
    draft: &SampleDraft,
    i: usize,
    tally: &mut DrawTally,
    rng: &mut Random,
) -> Option<OpenExtentsRefutation> {
    let found = |(sample, mismatch), guards| OpenExtentsRefutation { sample, mismatch, guards };
    let wanted = vec![true; facts.conjuncts.len()];
    match instance::build(facts, draft, &wanted, rng) {
        Err(InstanceRefusal::Left(..)) => None,
        Err(InstanceRefusal::Types(i, output)) => {
            Some(found(crate::report::shrink::type_mismatch(*i, output), vec![]))
        }
        Err(InstanceRefusal::Right(reason, _, _, guards)) => {
            let instance = instance::left_alone(facts, draft, rng)?;
            Some(found(undefined(instance, reason), guards))
        }
        // Values of known extents are compared elsewhere, too.
        Ok(_) if !i.is_multiple_of(4) => None,
        Ok(instance) => {
            let round =
                [ElementStyle::Normal, ElementStyle::Integers, ElementStyle::Missing][i / 4 % 3];
            let (sample, trial) = sample::trial(facts, instance, round, None, tally, rng);
            match trial {
                SampleOutcome::Differ(mismatch) => Some(found((sample, *mismatch), vec![])),
                SampleOutcome::Agree(_) | SampleOutcome::Void | SampleOutcome::TooLong => None,
            }
        }
    }
}

/// The mismatch of a law that fires on open extents where its right side is not defined for all of them.
fn undefined(instance: Instance, message: String) -> (Sample, Mismatch) {
    let mismatch = Mismatch {
        broken: BrokenPromise::Undefined,
        output: 0,
        at: None,
        left: None,
        right: None,
        message,
    };
    (Sample { instance, inputs: vec![], round: ElementStyle::Normal }, mismatch)
}
