//! Relations between symbols that no type states: a program that computes indices of one axis from the extents of others runs only where they
//! fit, as a language model whose mask is as long as its past and its new tokens together.
//!
//! They are found by trial, of sums of two other symbols and of other symbols alone. Whoever asks runs the trials.

use super::extents::{Symbols, unmet};
use super::{Style, styled};
use mlc_dsl::ir::{Extent, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::Library;
use std::collections::BTreeSet;

/// Symbols, each with what it has to be.
pub type Relations = Vec<(String, Extent)>;

/// Relations that are looked for.
const MOST: usize = 4;

/// Runs a program on inputs; if an operator fails, what messages call it.
pub type Trial<'a> = &'a dyn Fn(&Program, &[Tensor]) -> Result<(), String>;

/// The same set of extents with what relations say.
pub fn related(symbols: &Symbols, relations: &Relations) -> Symbols {
    let mut out = symbols.clone();
    for (symbol, extent) in relations {
        if let Some(n) = extent.eval(&|s| out.get(s).copied()) {
            out.insert(symbol.clone(), n);
        }
    }
    out
}

/// Relations with which a program runs that fails at an operator with the usual extents; none if there are no such.
pub fn relations(
    program: &Program,
    library: &Library,
    seed: u64,
    usual: &Symbols,
    mut failing: String,
    trial: Trial<'_>,
) -> Option<Relations> {
    let mut found = Relations::new();
    let runs = |program: &Program, relations: &Relations| {
        let symbols = related(usual, relations);
        if unmet(program, library, &symbols).is_some() {
            return Err(String::new());
        }
        let inputs = styled(program, library, Style::Ordinary, seed, &symbols);
        trial(program, &inputs.ok_or_else(String::new)?)
    };
    while found.len() < MOST {
        let part = upto(program, library, &failing)?;
        let better = candidates(usual, &found).find_map(|candidate| {
            let mut more = found.clone();
            more.push(candidate);
            runs(&part, &more).is_ok().then_some(more)
        })?;
        found = better;
        match runs(program, &found) {
            Ok(()) => return Some(found),
            Err(op) => failing = op,
        }
    }
    None
}

/// Sums of two other symbols, then other symbols.
fn candidates<'a>(
    usual: &'a Symbols,
    found: &'a Relations,
) -> impl Iterator<Item = (String, Extent)> + 'a {
    let names: BTreeSet<&String> = usual.keys().collect();
    let names: Vec<&String> = names.into_iter().collect();
    let is_free = |s: &&&String| found.iter().all(|(name, _)| name != **s);
    let free: Vec<&String> = names.iter().filter(is_free).copied().collect();
    let sums = pairs(&free);
    let sum =
        |(x, y, z): &(&String, &String, &String)| ((*x).clone(), &Extent::sym(y) + &Extent::sym(z));
    let sums: Vec<(String, Extent)> = sums.iter().map(sum).collect();
    let alone = free.iter().flat_map(|x| free.iter().map(move |y| (x, y)));
    let alone = alone.filter(|(x, y)| x != y).map(|(x, y)| ((*x).clone(), Extent::sym(y)));
    let alone: Vec<(String, Extent)> = alone.collect();
    sums.into_iter().chain(alone)
}

/// A symbol, and two others.
fn pairs<'a>(names: &[&'a String]) -> Vec<(&'a String, &'a String, &'a String)> {
    let mut out = vec![];
    for &x in names {
        for (i, &y) in names.iter().enumerate().filter(|(_, y)| **y != x) {
            out.extend(names[i + 1..].iter().filter(|z| **z != x).map(|&z| (x, y, z)));
        }
    }
    out
}

/// The part of a program that the operators of this name are computed from, with them; all inputs stay.
fn upto(program: &Program, library: &Library, failing: &str) -> Option<Program> {
    let is_it = |(i, n): (usize, &mlc_dsl::ir::Node)| {
        let NodeKind::Apply(call, _) = n.kind else { return None };
        let name = &library.call(call).name;
        let labels = [name.to_string(), format!("{name} ({})", n.origin)];
        let is_it = labels.iter().any(|l| l == failing);
        let value = Value { node: mlc_dsl::ir::NodeId(i as u32), output: 0 };
        is_it.then(|| (format!("{i}"), value))
    };
    let outputs: Vec<(String, Value)> =
        program.nodes.iter().enumerate().filter_map(is_it).collect();
    if outputs.is_empty() {
        return None;
    }
    let mut part = program.clone();
    part.outputs = outputs;
    Some(part.pruned())
}
