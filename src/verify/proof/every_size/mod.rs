//! Proofs of laws for every rank and size: both sides are what operators' meanings say at some index, written in one way.
//!
//! Extents, attributes and indices are symbols, and a segment stands for any number of axes, of which one stands for all ([`list`]).
//! Conditions part the proof into cases. What does not come out equal may be equal all the same: nothing is refuted here. A proof is
//! one of functions of real numbers, or where a law speaks of integers of a commutative ring, which integers that wrap around
//! are; what rounding does to it is not said.

mod condition;
mod evaluation;
mod function;
mod integer;
mod item;
mod linear;
mod list;
mod order;
mod reshape;
mod sum;
mod value;

use super::prime_field::{Field, FieldElement, P};
use crate::law::facts::LawFacts;
use condition::Condition;
use evaluation::{Evaluation, Known, Tensor};
use integer::{Atom, Int};
use list::{AxisKind, List, Space, Stuck};
use mlc_backends::reference::{Algebra, Cmp, RealOp};
use mlc_dsl::library::{DTypePattern, Law, Library, Name};
use mlc_dsl::random::Random;
use std::collections::HashMap;
use value::{Factor, Value, Values};

/// Cases of one law at most, and what may be learned of axes and extents before that.
const MOST_CASES: usize = 64;
const MOST_TRIES: usize = 40;

/// Bytes of stack of a proof.
const STACK: usize = 256 << 20;

/// Points at which what is written differently is compared.
const POINTS: usize = 2;

/// Shows that both sides of a law are equal for all extents, attributes and numbers of axes that its conditions admit.
///
/// # Errors
/// A few words that say why this does not show it.
pub(crate) fn prove(facts: &LawFacts<'_>, rng: &mut Random) -> Result<(), String> {
    if facts.each {
        return Err("it is of a family".into());
    }
    let (library, law) = (facts.library, facts.law);
    // Meanings nest in meanings: how deep is bounded, and the stack has room for it.
    std::thread::scope(|scope| {
        let proof = std::thread::Builder::new().stack_size(STACK);
        match proof.spawn_scoped(scope, || prove_law(library, law, rng)).map(|t| t.join()) {
            Ok(Ok(proof)) => proof,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(e) => Err(format!("no thread could be started: {e}")),
        }
    })
}

fn prove_law(library: &Library, law: &Law, rng: &mut Random) -> Result<(), String> {
    let mut open = vec![Known::default()];
    let (mut cases, mut tries) = (1, 0);
    while let Some(known) = open.pop() {
        tries += 1;
        if tries > MOST_TRIES + MOST_CASES {
            return Err("it has too many cases".into());
        }
        match attempt(library, law, known.clone(), rng) {
            Ok(()) => {}
            Err(Stuck::Unsupported(why)) => return Err(why),
            Err(Stuck::Axes(name, kinds)) => {
                let mut known = known;
                let again = kinds.iter().any(|k| is_among(&known, k, &name));
                if again || known.axes.insert(name, kinds).is_some() {
                    return Err("its axes cannot be told apart".into());
                }
                open.push(known);
            }
            Err(Stuck::Equal(atom, value)) => {
                open.push(with_equal(known, atom, value)?);
            }
            Err(Stuck::Position(name, places)) => {
                cases = more_cases(cases, places.len())?;
                for (place, segment) in places {
                    open.push(at_place(known.clone(), &name, &place, segment)?);
                }
            }
            Err(Stuck::Cases(c)) => {
                cases = more_cases(cases, 2)?;
                for c in [c.clone().negated(), c] {
                    let mut known = known.clone();
                    known.cases.push(c);
                    open.push(known);
                }
            }
        }
    }
    Ok(())
}

/// How many cases there are with so many in the place of one.
fn more_cases(cases: usize, parts: usize) -> Result<usize, String> {
    let all = cases + parts.saturating_sub(1);
    if all > MOST_CASES { Err("it has too many cases".into()) } else { Ok(all) }
}

/// True if axes are those of a list, or of another one that is said to have them.
fn is_among(known: &Known, axes: &AxisKind, name: &Name) -> bool {
    match axes {
        AxisKind::Each(Some(space)) => {
            let inner = known.axes.get(&space.base).into_iter().flatten();
            space.base == *name || inner.into_iter().any(|k| is_among(known, k, name))
        }
        AxisKind::One | AxisKind::Each(None) => false,
    }
}

/// What is known where an attribute is the position of a single axis, or of one of a segment, which parts the segment.
fn at_place(
    mut known: Known,
    name: &Name,
    place: &Int,
    segment: Option<Space>,
) -> Result<Known, String> {
    let attr = Atom::Attr(name.clone());
    let Some(segment) = segment else { return with_equal(known, attr, place.clone()) };
    let length = |i: usize| {
        let base = Name::from(format!("{}.{i}", segment.base));
        Space { base, ..segment.clone() }.length()
    };
    let kinds = vec![AxisKind::Each(None), AxisKind::One, AxisKind::Each(None)];
    if known.axes.insert(segment.base.clone(), kinds).is_some() {
        return Err("its axes cannot be told apart".into());
    }
    let large = || "its numbers grow too large".to_string();
    let both = length(0).plus(1, &length(2)).ok_or_else(large)?;
    let whole = both.plus(1, &Int::from(1)).ok_or_else(large)?;
    let atom = Atom::Length(segment.clone());
    let before = &mut |a: &Atom| (*a == atom).then(|| whole.clone());
    let place = place.substituted(before).ok_or_else(large)?;
    let place = place.plus(1, &length(0)).ok_or_else(large)?;
    with_equal(with_equal(known, atom.clone(), whole.clone())?, attr, place)
}

/// What is known with an atom that is another integer, in everything known so far.
fn with_equal(mut known: Known, atom: Atom, value: Int) -> Result<Known, String> {
    let large = || "its numbers grow too large".to_string();
    let one = &mut |a: &Atom| (*a == atom).then(|| value.clone());
    for i in known.equal.values_mut() {
        *i = i.substituted(one).ok_or_else(large)?;
    }
    for c in &mut known.cases {
        *c = c.substituted(one).ok_or_else(large)?;
    }
    known.equal.insert(atom, value);
    Ok(known)
}

/// True if all numbers of a law are real: then division is that of a field.
fn is_real(law: &Law) -> bool {
    law.vars.iter().all(|v| match &v.ty.dtype {
        DTypePattern::Fixed(d) => d.is_float() || *d == mlc_dsl::ir::DType::Bool,
        DTypePattern::Var(n) => n.starts_with('F') || n.starts_with('B'),
    })
}

fn attempt(library: &Library, law: &Law, known: Known, rng: &mut Random) -> Result<(), Stuck> {
    let real = is_real(law);
    let mut e = Evaluation::new(library, law, known, real);
    e.learn()?;
    for (left, right) in law.left.iter().zip(&law.right) {
        let sides = [left, right].map(|s| Tensor::Term(0, s.root));
        let shape = e.shape(sides[0])?;
        let other = e.shape(sides[1])?;
        e.same(&shape, &other)?;
        let mut index = Vec::new();
        for part in &shape.0 {
            let number = e.values.index();
            let space = part.space().cloned();
            let bound = value::Bound { index: number, range: part.entry().clone(), space };
            e.values.learn_range(&bound);
            index.push(part.with(Int::from(Atom::Index(number))));
        }
        if e.is_void() {
            continue;
        }
        let index = List(index);
        let (a, b) = (e.element(sides[0], &index)?, e.element(sides[1], &index)?);
        let same = &mut |values: &Values, a: &Value, b: &Value| real && agree(values, a, b, rng);
        let order = e.known_order();
        if a != b && !e.values.equal_in_every_order(&a, &b, &order, same) {
            return Err(undecided(&mut e.values, &a, &b));
        }
    }
    Ok(())
}

/// The case that may make two values equal: a condition that both do not share; or that there is none.
fn undecided(values: &mut Values, a: &Value, b: &Value) -> Stuck {
    let conditions = |v: &Value, values: &Values| -> Vec<Condition> {
        let factors = v.keys().flatten();
        let conditions = factors.filter_map(|f| match values.get(*f) {
            Factor::If(c) => Some(c.clone()),
            _ => None,
        });
        conditions.collect()
    };
    let all = [conditions(a, values), conditions(b, values)].concat();
    let open = all.into_iter().flat_map(|c| match c {
        Condition::All(cs) => cs.into_iter().collect::<Vec<_>>(),
        c => vec![c],
    });
    for c in open {
        if values.knowledge.decide(&c).is_none() && !values.depends_on_open(&c) {
            return Stuck::Cases(c);
        }
    }
    Stuck::Unsupported("its sides are written differently".into())
}

/// True if both values agree at random points of a prime field, at which other functions are hashes of their arguments.
fn agree(values: &Values, a: &Value, b: &Value, rng: &mut Random) -> bool {
    (0..POINTS).all(|_| {
        let mut point =
            Point { values, field: Field::at(rng.bits()), key: rng.bits(), known: HashMap::new() };
        matches!((point.value(a), point.value(b)), (Some(a), Some(b)) if a.value == b.value)
    })
}

/// A point of the field.
struct Point<'v> {
    values: &'v Values,
    field: Field,
    key: u64,
    known: HashMap<u32, FieldElement>,
}

impl Point<'_> {
    fn value(&mut self, v: &Value) -> Option<FieldElement> {
        let mut sum = self.field.constant(0.0);
        for (factors, c) in v {
            let mut product = FieldElement { value: *c, top: 0, bottom: 0 };
            for f in factors {
                let factor = self.factor(*f)?;
                product = self.field.operation(RealOp::Mul, &product, &factor).ok()?;
            }
            sum = self.field.operation(RealOp::Add, &sum, &product).ok()?;
        }
        Some(sum)
    }

    fn factor(&mut self, number: u32) -> Option<FieldElement> {
        if let Some(known) = self.known.get(&number) {
            return Some(*known);
        }
        let values = self.values;
        let out = match values.get(number) {
            Factor::Function(f, args) => match args.as_slice() {
                [a] => {
                    let a = self.value(a)?;
                    self.field.function(*f, &a).ok()?
                }
                _ => self.variable(number),
            },
            Factor::Inverse(v) => {
                let (one, v) = (self.field.constant(1.0), self.value(v)?);
                self.field.operation(RealOp::Div, &one, &v).ok()?
            }
            Factor::Power(a, b) => self.operation(RealOp::Pow, a, b)?,
            Factor::Extreme { largest, of } => {
                let op = if *largest { RealOp::Max } else { RealOp::Min };
                let mut out: Option<FieldElement> = None;
                for v in of {
                    let v = self.value(v)?;
                    out = Some(match out {
                        None => v,
                        Some(known) => self.field.operation(op, &known, &v).ok()?,
                    });
                }
                out?
            }
            Factor::Less(a, b) => self.comparison(Cmp::Lt, a, b)?,
            Factor::AtMost(a, b) => self.comparison(Cmp::Le, a, b)?,
            Factor::Equal(a, b) => self.comparison(Cmp::Eq, a, b)?,
            Factor::Number(bits) => self.field.constant(f64::from_bits(*bits)),
            Factor::Lowest => self.field.constant(f64::NEG_INFINITY),
            _ => self.variable(number),
        };
        self.known.insert(number, out);
        Some(out)
    }

    /// A number of which nothing is known but that a factor is it.
    fn variable(&mut self, number: u32) -> FieldElement {
        let value = Random::from_state(self.key ^ u64::from(number) << 32).bits() % (P - 1);
        FieldElement::variable(1 + value)
    }

    fn operation(&mut self, op: RealOp, a: &Value, b: &Value) -> Option<FieldElement> {
        let (a, b) = (self.value(a)?, self.value(b)?);
        self.field.operation(op, &a, &b).ok()
    }

    fn comparison(&mut self, cmp: Cmp, a: &Value, b: &Value) -> Option<FieldElement> {
        let (a, b) = (self.value(a)?, self.value(b)?);
        Some(self.field.comparison(cmp, &a, &b))
    }
}
