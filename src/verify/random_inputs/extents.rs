//! Extents for the symbols of a program: small, different from each other, and such that the conditions of its operators hold.

use super::extent_sets::ExtentSet;
use mlc_dsl::ir::{Attr, Extent, Node, NodeKind, Program, Type};
use mlc_dsl::library::Library;
use mlc_dsl::typing::infer::{TypeError, infer};
use std::collections::{BTreeSet, HashMap};

/// Values of symbols.
pub type Symbols = HashMap<String, i64>;

/// What a symbol may be where the usual number does not fit, the first that fits.
const NUMBERS: [i64; 18] = [2, 4, 3, 6, 8, 5, 7, 12, 9, 10, 16, 14, 1, 11, 13, 15, 18, 32];

/// One value per symbol of some types: small and different from each other.
pub fn usual_symbols<'a>(types: impl Iterator<Item = &'a Type>) -> Symbols {
    let mut seen = HashMap::new();
    for name in types.flat_map(|t| &t.shape).flat_map(Extent::symbols) {
        let next = [2, 7, 3, 5, 11, 13, 17][seen.len() % 7];
        seen.entry(name.to_string()).or_insert(next);
    }
    seen
}

/// One value per symbol of the program's inputs: the usual ones, changed where a condition of an operator asks for it. Where no values
/// are found that meet all conditions, they are the usual ones.
pub fn symbols(program: &Program, library: &Library) -> Symbols {
    let usual = usual_symbols(program.inputs.iter().map(|(_, t)| t));
    solved(program, library, &usual, None).unwrap_or(usual)
}

/// The set of extents with other values for all symbols but the one that it is about, such that the conditions of the program's operators
/// hold; `None` if there is none near it.
pub fn fitting(program: &Program, library: &Library, set: &ExtentSet) -> Option<Symbols> {
    solved(program, library, &set.symbols, set.varied.as_deref())
}

/// What the program refuses about these values.
pub fn unmet(program: &Program, library: &Library, symbols: &Symbols) -> Option<TypeError> {
    program.nodes.iter().find_map(|n| refusal(program, library, n, symbols))
}

/// Changes of one value, then of two.
pub fn nearby(from: &Symbols) -> impl Iterator<Item = Symbols> {
    let names: BTreeSet<&String> = from.keys().collect();
    nearby_in(from, names.into_iter().cloned().collect())
}

fn nearby_in(from: &Symbols, names: Vec<String>) -> impl Iterator<Item = Symbols> + use<> {
    let with = |(name, value): (&String, i64), of: &Symbols| {
        let mut changed = of.clone();
        changed.insert(name.clone(), value);
        changed
    };
    let choices = |name: String| NUMBERS.into_iter().map(move |v| (name.clone(), v));
    let (one, two) = (from.clone(), from.clone());
    let pairs: Vec<(String, String)> = names
        .iter()
        .enumerate()
        .flat_map(|(i, a)| names[i + 1..].iter().map(|b| (a.clone(), b.clone())))
        .collect();
    let singles = names.into_iter().flat_map(choices);
    let singles = singles.map(move |(name, v)| with((&name, v), &one));
    let doubles = pairs.into_iter().flat_map(move |(a, b)| {
        let two = two.clone();
        choices(a).flat_map(move |(a, v)| {
            let first = with((&a, v), &two);
            let b = b.clone();
            NUMBERS.into_iter().map(move |w| with((&b, w), &first))
        })
    });
    singles.chain(doubles)
}

/// Values for which no node is refused. Nodes are satisfied in order, each by changes to the symbols that it depends on.
fn solved(
    program: &Program,
    library: &Library,
    usual: &Symbols,
    fixed: Option<&str>,
) -> Option<Symbols> {
    let nodes: Vec<(&Node, BTreeSet<String>)> = program
        .nodes
        .iter()
        .map(|n| (n, depends_on(program, n)))
        .filter(|(_, names)| !names.is_empty())
        .collect();
    let mut found = usual.clone();
    let mut done = 0;
    while let Some(at) =
        nodes[done..].iter().position(|(n, _)| refusal(program, library, n, &found).is_some())
    {
        let (seen, names) = (&nodes[..=done + at], &nodes[done + at].1);
        let meets = |symbols: &Symbols| {
            let moved = |s: &&String| symbols.get(*s) != found.get(*s);
            let touched = |names: &BTreeSet<String>| names.iter().any(|s| moved(&s));
            let mut asked = seen.iter().rev().filter(|(_, names)| touched(names));
            asked.all(|(n, _)| refusal(program, library, n, symbols).is_none())
        };
        let may_change = |n: &&String| found.contains_key(*n) && fixed != Some(n.as_str());
        let names = names.iter().filter(may_change).cloned().collect();
        let changed = |symbols: &Symbols| *symbols != found;
        found = nearby_in(&found, names).find(|s| changed(s) && meets(s))?;
        done += at + 1;
    }
    Some(found)
}

/// The symbols that decide whether a node has types.
fn depends_on(program: &Program, node: &Node) -> BTreeSet<String> {
    let NodeKind::Apply(_, attrs) = &node.kind else { return BTreeSet::new() };
    let shapes = node.args.iter().flat_map(|&a| &program.ty(a).shape);
    let numbers = attrs.iter().flat_map(|a| match a {
        Attr::Int(e) => std::slice::from_ref(e),
        other => other.as_extents().unwrap_or_default(),
    });
    let all = shapes.chain(numbers).flat_map(Extent::symbols);
    all.map(|s| s.to_string()).collect()
}

/// Why a node has no types for these values of symbols.
fn refusal(
    program: &Program,
    library: &Library,
    node: &Node,
    symbols: &Symbols,
) -> Option<TypeError> {
    let NodeKind::Apply(call, attrs) = &node.kind else { return None };
    let number = |e: &Extent| match e.eval(&|s| symbols.get(s).copied()) {
        Some(n) => Extent::from(n),
        None => e.clone(),
    };
    let of = |t: &Type| Type::new(t.dtype, t.shape.iter().map(number).collect());
    let types: Vec<Type> = node.args.iter().map(|&a| of(program.ty(a))).collect();
    let attr = |a: &Attr| match a {
        Attr::Int(e) => Attr::Int(number(e)),
        Attr::Ints(v) => Attr::Ints(v.iter().map(number).collect()),
        other => other.clone(),
    };
    let attrs: Vec<Option<Attr>> = attrs.iter().map(|a| Some(attr(a))).collect();
    infer(library.call(*call), &types.iter().collect::<Vec<_>>(), &attrs).err()
}
