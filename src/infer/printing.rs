//! Found laws as a text: names, comments, the canonical form.

use super::establish::Established;
use super::terms::{Bank, Node, TermId};
use super::{Counts, Options};
use crate::stdlib;
use mlc_dsl::library::Library;
use mlc_dsl::syntax::{parse, print_file};
use mlc_verify::{CheckOptions, Outcome};
use serde::Serialize;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

/// A law that was found.
#[derive(Clone, Debug, Serialize)]
pub struct FoundLaw {
    /// In the text.
    pub name: String,
    /// Its left side.
    pub left: String,
    /// Its right side.
    pub right: String,
    /// It goes both ways.
    pub both_ways: bool,
    /// What must hold of variables.
    pub conditions: Vec<String>,
    /// Its error class.
    pub class: String,
    /// Elements of its variables, as declared.
    pub family: String,
    /// The operators of both sides.
    pub operators: Vec<String>,
}

/// The name of the law of that number while laws are looked for.
pub fn number(i: usize) -> String {
    format!("found_{i}")
}

/// All laws, named by their numbers.
pub fn laws_by_number(banks: &[Bank], found: &[Established]) -> String {
    let rule = |(i, e): (usize, &Established)| rule(banks, e, &number(i)) + "\n\n";
    found.iter().enumerate().map(rule).collect()
}

/// A law as a rule of that name.
pub fn rule(banks: &[Bank], e: &Established, name: &str) -> String {
    let arrow = if e.both_ways { "<=>" } else { "=>" };
    e.candidate.rule(banks, name, &e.variant, arrow)
}

/// The text, in canonical form, and its laws in their order.
pub fn text(
    library: &Library,
    banks: &[Bank],
    found: &[Established],
    options: &Options,
    counts: &Counts,
) -> (String, Vec<FoundLaw>) {
    let mut taken = HashSet::new();
    let mut laws = Vec::new();
    let mut body = String::new();
    for e in found {
        let c = &e.candidate;
        let bank = &banks[c.bank];
        let sides = [c.left, c.right].map(|t| operators(bank, t));
        let name = named(&sides, &mut taken);
        let used: BTreeSet<String> = sides.concat().into_iter().collect();
        let _ = write!(body, "{}\n\n", rule(banks, e, &name));
        laws.push(FoundLaw {
            name,
            left: c.sides.0.clone(),
            right: c.sides.1.clone(),
            both_ways: e.both_ways,
            conditions: e.variant.conditions.clone(),
            class: e.variant.class.to_string(),
            family: e.variant.family.clone(),
            operators: used.into_iter().collect(),
        });
    }
    let (file, _) = parse(&(header(library, options, counts, laws.len()) + &body));
    (print_file(&file), laws)
}

fn header(library: &Library, options: &Options, counts: &Counts, laws: usize) -> String {
    let types: Vec<&str> = options.types.iter().map(|t| t.name()).collect();
    let mut out = String::new();
    let _ = writeln!(out, "//! Laws found by `mlc-rewrite infer`, each verified as `check` does.");
    let _ = writeln!(out, "//!");
    let _ = writeln!(
        out,
        "//! --ops {} --types {} --size {} --variables {} --seed {}",
        options.ops.join(","),
        types.join(","),
        options.size,
        options.variables,
        options.seed
    );
    let _ = writeln!(
        out,
        "//! {} terms, {} candidates; {laws} laws: {} were derived by others, {} do not hold, {} were not reached.",
        counts.terms,
        counts.candidates,
        counts.derived + counts.redundant,
        counts.refused,
        counts.left
    );
    let traits = options.ops.iter().filter_map(|name| declared(library, name));
    out.extend(traits.map(|t| format!("//! {t}\n")));
    out.push('\n');
    out
}

/// What an operator's declaration says of its operands, which no law has to say again.
fn declared(library: &Library, name: &str) -> Option<String> {
    let call = library.call(library.find(name)?);
    let traits = [(call.commutative, "commutative"), (call.associative, "associative")];
    let traits: Vec<&str> = traits.into_iter().filter(|t| t.0).map(|t| t.1).collect();
    (!traits.is_empty()).then(|| format!("Declared: `{name}` is {}.", traits.join(" and ")))
}

/// The operators of a term, the outermost first.
fn operators(b: &Bank, term: TermId) -> Vec<String> {
    match &b.term(term).node {
        Node::Var(_) | Node::Number(_) => vec![],
        Node::Apply(op, args, _) => {
            let own = std::iter::once(b.ops[*op].name.clone());
            own.chain(args.iter().flat_map(|a| operators(b, *a))).collect()
        }
    }
}

/// Operators of a side that a name has.
const NAMED: usize = 4;

/// A name that is not taken: the left side read from the outside in, then the right one, then letters.
fn named(sides: &[Vec<String>; 2], taken: &mut HashSet<String>) -> String {
    let joined = |ops: &[String]| ops.iter().take(NAMED).cloned().collect::<Vec<_>>().join("_");
    let short = format!("found_{}", joined(&sides[0]));
    let right = joined(&sides[1]);
    let long = match right.as_str() {
        "" => format!("{short}_alone"),
        right => format!("{short}_as_{right}"),
    };
    let letters = (b'a'..=b'z').map(char::from);
    let pairs = letters.clone().flat_map(|a| letters.clone().map(move |b| format!("{a}{b}")));
    let more = letters.clone().map(String::from).chain(pairs).map(|l| format!("{long}_{l}"));
    let mut all = [short, long.clone()].into_iter().chain(more);
    let name = all.find(|n| taken.insert(n.clone()));
    name.unwrap_or(long)
}

/// The laws of a text that the checker does not accept.
pub fn refused(texts: &[(String, String)], text: &str, options: &Options) -> HashSet<String> {
    let mut texts = texts.to_vec();
    texts.push(("found".into(), text.to_string()));
    let (library, _) = stdlib::operators_with(&texts);
    let last = library.sources.len() as u32 - 1;
    let own = library.laws.iter().filter(|l| l.source.file == last);
    let names: Vec<String> = own.map(|l| l.name.to_string()).collect();
    if names.is_empty() {
        return HashSet::new();
    }
    let check = CheckOptions {
        seed: options.seed,
        threads: options.threads,
        explain: false,
        ..CheckOptions::default()
    };
    let report = mlc_verify::check_library(&library, Some(&names), &check, &|_, _| {});
    let holds = |o: &Outcome| matches!(o, Outcome::Holds(_));
    let bad = report.laws.iter().filter(|r| !holds(&r.verdict.outcome));
    bad.map(|r| r.law.trim_end_matches(".rev").to_string()).collect()
}
