//! Reductions over indices, and the one way in which they are written.

use super::condition::Condition;
use super::integer::{Atom, Int};
use super::list::{Outcome, Stuck, small, unsupported};
use super::value::{Bound, Factor, MOST, Value, Values, add, scaled};
use itertools::Itertools;
use mlc_dsl::expr::Monoid;

/// Numbers of indices from here on are those of reductions, by how many they contain.
const NUMBERED: u32 = 1 << 24;

/// Ways to number the indices of a reduction that are compared at most.
const WAYS: usize = 64;

impl Values {
    /// A reduction over indices.
    pub(crate) fn reduce(
        &mut self,
        monoid: Monoid,
        over: &[Bound],
        body: &Value,
    ) -> Outcome<Value> {
        // An index of one value is zero.
        let one = |b: &Bound| b.range.number() == Some(1);
        if over.iter().any(one) {
            let single: Vec<Atom> =
                over.iter().filter(|b| one(b)).map(|b| Atom::Index(b.index)).collect();
            let left: Vec<Bound> = over.iter().filter(|b| !one(b)).cloned().collect();
            let zero = &mut |a: &Atom| single.contains(a).then(|| Int::from(0));
            let body = self.moved(body, zero)?;
            return match left.is_empty() {
                true => Ok(body),
                false => self.reduce(monoid, &left, &body),
            };
        }
        if monoid == Monoid::Sum {
            return self.deeper(|values| values.sum(over, body));
        }
        let (bounds, body) = self.numbered(over, body)?;
        Ok(self.of(Factor::Reduce(monoid, bounds, body)))
    }

    /// What is known of indices.
    pub(crate) fn learn_range(&mut self, bound: &Bound) {
        let index = Int::from(Atom::Index(bound.index));
        let last = bound.range.plus(-1, &index).and_then(|i| i.plus(-1, &Int::from(1)));
        if let Some(last) = bound.range.plus(-1, &Int::from(1)) {
            self.knowledge.learn_last(bound.index, last);
        }
        for i in [Some(index), last].into_iter().flatten() {
            let within = Condition::AtLeastZero(i);
            self.knowledge.learn(&within.at(bound.space.as_ref()));
        }
    }

    fn sum(&mut self, over: &[Bound], body: &Value) -> Outcome<Value> {
        if over.iter().any(|b| b.space.is_none() && b.range.number() == Some(0)) {
            return Ok(Value::new());
        }
        let (known, open) = (self.knowledge.clone(), self.open.len());
        for b in over {
            self.learn_range(b);
            self.open.push(b.index);
        }
        let mut out = Ok(Value::new());
        for (factors, c) in body {
            out = out.and_then(|out| {
                let sum = self.sum_of_product(over, factors)?;
                match out.len() > MOST {
                    true => unsupported("its sums have too many terms"),
                    false => Ok(add(&out, &scaled(&sum, *c))),
                }
            });
        }
        self.knowledge = known;
        self.open.truncate(open);
        out
    }

    fn sum_of_product(&mut self, over: &[Bound], factors: &[u32]) -> Outcome<Value> {
        for (at, f) in factors.iter().enumerate() {
            let depends = over.iter().any(|b| self.mentions(*f, b.index));
            if let Factor::Reduce(Monoid::Sum, own, body) = self.get(*f).clone()
                && depends
            {
                let (own, body) = self.renamed(&own, &body)?;
                let rest = self.product_of(factors, at)?;
                let body = self.times(&rest, &body)?;
                let all = [over, &own].concat();
                return self.deeper(|values| values.sum(&all, &body));
            }
        }
        match self.as_range(over, factors)? {
            Some((over, body)) => self.deeper(|values| values.sum(&over, &body)),
            None => self.parted(over, factors),
        }
    }

    /// All factors but one.
    fn product_of(&mut self, factors: &[u32], but: usize) -> Outcome<Value> {
        let mut out = Value::from([(vec![], 1)]);
        for (_, f) in factors.iter().enumerate().filter(|(i, _)| *i != but) {
            out = self.times(&out, &Value::from([(vec![*f], 1)]))?;
        }
        Ok(out)
    }

    /// A sum in which conditions on an index are its range; nothing if there is none.
    fn as_range(
        &mut self,
        over: &[Bound],
        factors: &[u32],
    ) -> Outcome<Option<(Vec<Bound>, Value)>> {
        for (at, bound) in over.iter().enumerate().filter(|(_, b)| b.space.is_none()) {
            let Some((place, own, rest)) = self.conditions_on(over, factors, bound.index) else {
                continue;
            };
            let Some((low, high)) = self.range(bound, &own)? else { continue };
            let index = Atom::Index(bound.index);
            let shifted = small(Int::from(index.clone()).plus(1, &low))?;
            let mut over = over.to_vec();
            over[at].range = small(high.plus(-1, &low))?;
            let body = self.product_of(factors, place)?;
            let rest = self.truth(&rest);
            let body = self.times(&body, &rest)?;
            let body = self.moved(&body, &mut |a| (*a == index).then(|| shifted.clone()))?;
            return Ok(Some((over, body)));
        }
        Ok(None)
    }

    /// The first index, and the one behind the last, that conditions leave; nothing if that is not known and cannot be told
    /// apart by cases.
    fn range(&mut self, bound: &Bound, own: &[Condition]) -> Outcome<Option<(Int, Int)>> {
        let (mut low, mut high) = (Int::from(0), bound.range.clone());
        let index = Atom::Index(bound.index);
        for c in own {
            let Condition::AtLeastZero(i) = c else { continue };
            let slope = i.0.get(&vec![index.clone()]).copied().unwrap_or(0);
            let rest = small(i.plus(-slope, &Int::from(index.clone())))?;
            // index + rest >= 0, or rest - index >= 0.
            let (end, to) = match slope {
                1 => (small(Int::default().plus(-1, &rest))?, &mut low),
                _ => (small(rest.plus(1, &Int::from(1)))?, &mut high),
            };
            let inside = small(end.plus(-1, to))?;
            let inside = if slope == 1 { inside } else { small(Int::default().plus(-1, &inside))? };
            match self.decided(Condition::AtLeastZero(inside))? {
                Some(true) => *to = end,
                Some(false) => {}
                None => return Ok(None),
            }
        }
        let range = small(high.plus(-1, &low))?;
        Ok(match self.decided(Condition::AtLeastZero(range))? {
            Some(true) => Some((low, high)),
            Some(false) => Some((low.clone(), low)),
            None => None,
        })
    }

    /// Whether a condition holds, by cases if it depends on no index of a reduction; nothing if it does.
    pub(crate) fn decided(&mut self, c: Condition) -> Outcome<Option<bool>> {
        match self.knowledge.decide(&c) {
            Some(b) => Ok(Some(b)),
            None if self.depends_on_open(&c) => Ok(None),
            None => Err(Stuck::Cases(c)),
        }
    }

    /// True if a condition speaks of an index of a reduction around it, or of elements.
    pub(crate) fn depends_on_open(&self, c: &Condition) -> bool {
        let mut found = false;
        c.each_int(&mut |i| {
            i.each_atom(&mut |a| {
                found |= match a {
                    Atom::Index(n) => self.open.contains(n),
                    Atom::Element(_) => true,
                    _ => false,
                };
            });
        });
        found
    }

    /// The place of the condition among factors that bounds an index, its parts that do, and the others.
    fn conditions_on(
        &self,
        over: &[Bound],
        factors: &[u32],
        index: u32,
    ) -> Option<(usize, Vec<Condition>, Condition)> {
        let own = Atom::Index(index);
        let bounds = |c: &Condition| {
            let Condition::AtLeastZero(i) = c else { return false };
            let slope = i.0.get(&vec![own.clone()]).copied().unwrap_or(0);
            let rest = i.plus(-slope, &Int::from(own.clone()));
            let others = over.iter().map(|b| Atom::Index(b.index));
            slope.abs() == 1 && rest.is_some_and(|r| others.into_iter().all(|o| !r.mentions(&o)))
        };
        factors.iter().enumerate().find_map(|(at, f)| match self.get(*f) {
            Factor::If(Condition::All(cs)) => {
                let (own, rest): (Vec<_>, Vec<_>) = cs.iter().cloned().partition(|c| bounds(c));
                let rest = rest.into_iter().fold(Condition::Known(true), Condition::and);
                (!own.is_empty()).then_some((at, own, rest))
            }
            Factor::If(c) if bounds(c) => Some((at, vec![c.clone()], Condition::Known(true))),
            _ => None,
        })
    }

    /// The sum as a product of what does not depend on its indices and of one sum for each group of factors with indices in common.
    fn parted(&mut self, over: &[Bound], factors: &[u32]) -> Outcome<Value> {
        let mut groups: Vec<(Vec<Bound>, Vec<u32>)> =
            over.iter().map(|b| (vec![b.clone()], vec![])).collect();
        let mut out = Value::from([(vec![], 1)]);
        for f in factors {
            let (with, mut without): (Vec<_>, Vec<_>) = groups
                .into_iter()
                .partition(|(bounds, _)| bounds.iter().any(|b| self.mentions(*f, b.index)));
            match with.is_empty() {
                true => out = self.times(&out, &Value::from([(vec![*f], 1)]))?,
                false => {
                    let (bounds, own): (Vec<_>, Vec<_>) = with.into_iter().unzip();
                    without.push((bounds.concat(), [own.concat(), vec![*f]].concat()));
                }
            }
            groups = without;
        }
        for (bounds, own) in groups {
            let sum = match own.is_empty() {
                // As many ones as there are indices.
                true => self.count(&bounds[0])?,
                false => {
                    let body = self.product_of(&own, usize::MAX)?;
                    let (bounds, body) = self.numbered(&bounds, &body)?;
                    self.of(Factor::Reduce(Monoid::Sum, bounds, body))
                }
            };
            out = self.times(&out, &sum)?;
        }
        Ok(out)
    }

    /// How many values an index takes.
    fn count(&mut self, bound: &Bound) -> Outcome<Value> {
        use super::integer::Argument;
        use super::list::List;
        let count = match &bound.space {
            None => bound.range.clone(),
            Some(space) => {
                let list = List::each(space.clone(), bound.range.clone());
                Int::from(Atom::Of("product", vec![Argument::List(list)]))
            }
        };
        self.integer(&count)
    }

    /// A reduction whose indices are numbered by what they stand for: of all orders and directions, the least.
    fn numbered(&mut self, bounds: &[Bound], body: &Value) -> Outcome<(Vec<Bound>, Value)> {
        let mut first = NUMBERED;
        self.each_atom_of(body, &mut |a| match a {
            Atom::Index(n) if *n >= NUMBERED => first = first.max(n + 1),
            _ => {}
        });
        let mut sorted = bounds.to_vec();
        sorted.sort_by(|a, b| (&a.space, &a.range).cmp(&(&b.space, &b.range)));
        let kind = |b: &Bound| (b.space.clone(), b.range.clone());
        let mut best: Option<(Value, Vec<Bound>)> = None;
        let n = sorted.len();
        let orders = (0..n).permutations(n);
        let orders = orders
            .filter(|o| o.iter().zip(0..n).all(|(i, j)| kind(&sorted[*i]) == kind(&sorted[j])));
        let orders: Vec<Vec<usize>> = orders.take(WAYS).collect();
        let ways = WAYS.min(1 << n.min(6));
        for order in orders {
            for backwards in 0..ways {
                let mut to: Vec<(Atom, Int)> = Vec::new();
                let mut out = Vec::new();
                for (place, i) in order.iter().enumerate() {
                    let own = &sorted[*i];
                    let number = first + place as u32;
                    let index = Int::from(Atom::Index(number));
                    let index = match backwards >> place & 1 {
                        0 => index,
                        _ => small(
                            own.range.plus(-1, &Int::from(1)).and_then(|r| r.plus(-1, &index)),
                        )?,
                    };
                    to.push((Atom::Index(own.index), index));
                    out.push(Bound { index: number, ..own.clone() });
                }
                let renamed =
                    &mut |a: &Atom| to.iter().find(|(f, _)| f == a).map(|(_, i)| i.clone());
                let value = self.moved(body, renamed)?;
                for b in &mut out {
                    b.range = small(b.range.substituted(renamed))?;
                }
                if best.as_ref().is_none_or(|(least, _)| value < *least) {
                    best = Some((value, out));
                }
            }
        }
        match best {
            Some((value, bounds)) => Ok((bounds, value)),
            None => unsupported("a sum has no index"),
        }
    }

    /// The same reduction with new indices.
    fn renamed(&mut self, bounds: &[Bound], body: &Value) -> Outcome<(Vec<Bound>, Value)> {
        let to: Vec<(Atom, u32)> =
            bounds.iter().map(|b| (Atom::Index(b.index), self.index())).collect();
        let renamed = &mut |a: &Atom| {
            to.iter().find(|(f, _)| f == a).map(|(_, n)| Int::from(Atom::Index(*n)))
        };
        let mut out = Vec::new();
        for (b, (_, index)) in bounds.iter().zip(&to) {
            let range = small(b.range.substituted(renamed))?;
            out.push(Bound { index: *index, range, space: b.space.clone() });
        }
        Ok((out, self.moved(body, renamed)?))
    }
}
