//! Several sets of extents for a program's symbols: 0, 1, 2, and one below and above every number that bounds an extent.
//!
//! Which numbers bound a symbol is read off the program: numbers in extents that mention it, and attributes of operators whose operands
//! do. The sets are the same in every run. Whether a program runs at one is not decided here.

use super::extents::Symbols;
use mlc_dsl::ir::{Atom, Attr, Extent, Node, NodeKind, Program};
use std::collections::{BTreeMap, BTreeSet};

/// Sets of extents that a check tries at most.
pub const MOST_SETS: usize = 32;
/// Numbers that are looked at around, for each symbol.
const MOST_BOUNDS: usize = 8;
/// Larger numbers bound no extent that a check could have.
const LARGEST: i64 = 512;
/// What the other symbols are, so that unlike symbols are unequal.
const UNLIKE: [i64; 10] = [2, 7, 3, 5, 11, 13, 17, 4, 6, 9];

/// One set of extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentSet {
    /// What each symbol is.
    pub symbols: Symbols,
    /// The symbol that the set is about; the others may be changed to make the program run.
    pub varied: Option<String>,
}

/// Sets of extents besides the usual one, those that show most first. `more` are numbers that may bound any symbol.
pub fn extent_sets(program: &Program, more: &BTreeSet<i64>, usual: &Symbols) -> Vec<ExtentSet> {
    let mut sets = Sets { usual, found: vec![] };
    let names: BTreeSet<&String> = usual.keys().collect();
    let bounds = bounds(program, &names);
    for name in &names {
        sets.vary(name, 0, None);
    }
    sets.all(1);
    for name in &names {
        sets.vary(name, 1, None);
    }
    let numbers = |name: &String| values(bounds.get(name), more);
    let most = names.iter().map(|n| numbers(n).len()).max().unwrap_or(0);
    for others in [None, Some(1)] {
        for i in 0..most {
            for name in &names {
                if let Some(&n) = numbers(name).get(i) {
                    sets.vary(name, n, others);
                }
            }
        }
        sets.all(0);
    }
    sets.found.truncate(MOST_SETS);
    sets.found
}

struct Sets<'a> {
    usual: &'a Symbols,
    found: Vec<ExtentSet>,
}

impl Sets<'_> {
    fn add(&mut self, symbols: Symbols, varied: Option<String>) {
        let is_new = symbols != *self.usual && self.found.iter().all(|s| s.symbols != symbols);
        if is_new {
            self.found.push(ExtentSet { symbols, varied });
        }
    }

    fn all(&mut self, n: i64) {
        self.add(self.usual.keys().map(|s| (s.clone(), n)).collect(), None);
    }

    /// One symbol is a number; the others are what they usually are, unlike it, or all the same.
    fn vary(&mut self, name: &str, n: i64, others: Option<i64>) {
        let mut symbols = self.usual.clone();
        symbols.insert(name.to_string(), n);
        let names: BTreeSet<String> = symbols.keys().filter(|s| *s != name).cloned().collect();
        for other in names {
            let taken = |n: i64| symbols.iter().any(|(s, &v)| *s != other && v == n);
            let value = others.unwrap_or_else(|| match self.usual[&other] {
                usual if usual != n => usual,
                usual => UNLIKE.into_iter().find(|&v| !taken(v)).unwrap_or(usual),
            });
            symbols.insert(other, value);
        }
        self.add(symbols, Some(name.to_string()));
    }
}

/// The numbers that a symbol is to be, by the numbers that bound it.
fn values(own: Option<&Vec<i64>>, more: &BTreeSet<i64>) -> Vec<i64> {
    let mut out = vec![2];
    let more = more.iter().copied().filter(|n| (1..=LARGEST).contains(n));
    let all: Vec<i64> = own.into_iter().flatten().copied().chain(more).collect();
    for n in all.into_iter().take(MOST_BOUNDS) {
        for v in [n - 1, n + 1, n] {
            if v > 1 && !out.contains(&v) {
                out.push(v);
            }
        }
    }
    out
}

/// The numbers that bound each symbol: those inside of extents first, then those of attributes; small ones first.
fn bounds(program: &Program, names: &BTreeSet<&String>) -> BTreeMap<String, Vec<i64>> {
    let mut out: BTreeMap<String, [BTreeSet<i64>; 2]> = BTreeMap::new();
    for node in &program.nodes {
        for extent in extents(program, node) {
            let symbols = extent.symbols();
            let mut inside = BTreeSet::new();
            constants(extent, &mut inside);
            for s in symbols.iter().filter(|s| names.contains(&s.to_string())) {
                out.entry(s.to_string()).or_default()[0].extend(&inside);
            }
        }
        let shapes = node.args.iter().flat_map(|&a| &program.ty(a).shape);
        let symbols: BTreeSet<String> =
            shapes.flat_map(Extent::symbols).map(|s| s.to_string()).collect();
        let own = of_attributes(node);
        for s in symbols.into_iter().filter(|s| names.contains(s)) {
            out.entry(s).or_default()[1].extend(&own);
        }
    }
    let is_bound = |n: &i64| (1..=LARGEST).contains(n);
    let ranked = |[inside, attributes]: [BTreeSet<i64>; 2]| {
        let later: Vec<i64> = attributes.difference(&inside).copied().filter(is_bound).collect();
        inside.iter().copied().filter(is_bound).chain(later).collect()
    };
    out.into_iter().map(|(s, found)| (s, ranked(found))).collect()
}

/// The extents of a node's results and attributes.
fn extents<'a>(program: &'a Program, node: &'a Node) -> impl Iterator<Item = &'a Extent> {
    let attrs = match &node.kind {
        NodeKind::Apply(_, attrs) => attrs.as_slice(),
        NodeKind::Input(_) | NodeKind::Const(_) => &[],
    };
    let shapes = node.types.iter().chain(node.args.iter().map(|&a| program.ty(a)));
    shapes.flat_map(|t| &t.shape).chain(attrs.iter().flat_map(of_attribute))
}

fn of_attribute(a: &Attr) -> &[Extent] {
    match a {
        Attr::Int(e) => std::slice::from_ref(e),
        Attr::Ints(all) => all,
        Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => &[],
    }
}

/// The numbers of a node's attributes, and the sums of those that stand at the same place of two lists: where parts end.
fn of_attributes(node: &Node) -> BTreeSet<i64> {
    let mut out = BTreeSet::new();
    let NodeKind::Apply(_, attrs) = &node.kind else { return out };
    let lists: Vec<&[Extent]> = attrs.iter().map(of_attribute).collect();
    for (i, list) in lists.iter().enumerate() {
        for (place, e) in list.iter().enumerate() {
            let Some(n) = e.as_const() else { continue };
            out.insert(n.saturating_abs());
            let others = lists[i + 1..].iter().filter_map(|l| l.get(place)?.as_const());
            out.extend(others.map(|m| n.saturating_add(m).saturating_abs()));
        }
    }
    out
}

/// The numbers inside of an extent that has symbols.
fn constants(e: &Extent, out: &mut BTreeSet<i64>) {
    if e.as_const().is_some() {
        return;
    }
    for (monomial, coefficient) in e.terms() {
        if monomial.is_empty() {
            out.insert(coefficient.saturating_abs());
        }
        for (atom, _) in &monomial {
            let parts: Vec<&Extent> = match atom {
                Atom::Div(a, b) | Atom::Mod(a, b) => vec![a, b],
                Atom::Positive(a) => vec![a],
                Atom::Common(all) => all.iter().collect(),
                Atom::Sym(_) => vec![],
            };
            for part in parts {
                out.extend(part.as_const().map(i64::saturating_abs));
                constants(part, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_unequal_for_unlike_symbols_and_meet_every_bound() {
        let symbol = Extent::sym("n");
        let mut program = Program::default();
        let end = symbol.minimum(&Extent::from(5));
        let types = vec![mlc_dsl::ir::Type::new(mlc_dsl::ir::DType::F32, vec![end])];
        let node = Node { kind: NodeKind::Input(0), args: vec![], types, origin: String::new() };
        program.push(node);
        let usual: Symbols = [("n".to_string(), 2), ("m".to_string(), 7)].into();
        let sets = extent_sets(&program, &BTreeSet::from([9]), &usual);
        let tried = |n: i64, m: i64| {
            let symbols: Symbols = [("n".to_string(), n), ("m".to_string(), m)].into();
            sets.iter().any(|s| s.symbols == symbols)
        };
        for n in [0, 1, 4, 5, 6, 8, 9, 10] {
            assert!(tried(n, 7), "n = {n}: {sets:?}");
        }
        assert!(tried(1, 1) && tried(0, 0) && tried(4, 1), "{sets:?}");
        assert!(tried(2, 0) && tried(7, 2), "the other one is no longer 2: {sets:?}");
        assert!(sets.len() <= MOST_SETS);
    }
}
