//! Rejects recursive definitions, and definitions that are too large when inlined. Definitions
//! that depend on a faulty one are left out with it.

use crate::check::report::error;
use crate::diagnostics::Diag;
use crate::diagnostics::span::SourceSpan;
use crate::library::{Body, CallId, CallKind, Law, LawTest, Library};
use crate::term::{TermKind, Terms};

/// Operators that a definition may stand for once all definitions in it are written out.
const OPERATORS: u64 = 100_000;

/// Definitions that may stand in each other: what unfolds them recurses.
const DEPTH: u32 = 200;

/// What is known of a callable once everything it applies is known.
#[derive(Clone, Copy, PartialEq)]
enum Mark {
    /// Not met yet.
    New,
    /// Its parts are being looked at.
    Open,
    /// So many operators, definitions so deep.
    Done(u64, u32),
    /// Faulty, or built on something faulty.
    Faulty,
}

/// Finds definitions that contain themselves or are too large, and empties them. `faulty` are the callables that are
/// known to be unsound; it grows by what is found and by what is built on them.
pub(super) fn check(library: &mut Library, faulty: &mut [bool]) -> Vec<(u32, Diag)> {
    let mut out = Vec::new();
    let mut marks: Vec<Mark> =
        faulty.iter().map(|f| if *f { Mark::Faulty } else { Mark::New }).collect();
    for start in 0..library.calls.len() {
        let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
        if marks[start] == Mark::New {
            marks[start] = Mark::Open;
            path.push((start, parts(library, start)));
        }
        while let Some((at, rest)) = path.last_mut() {
            let at = *at;
            match rest.pop() {
                Some(next) if marks[next] == Mark::New => {
                    marks[next] = Mark::Open;
                    path.push((next, parts(library, next)));
                }
                Some(next) if marks[next] == Mark::Open => {
                    let first = path.iter().position(|(i, _)| *i == next).unwrap_or(0);
                    let cycle: Vec<usize> = path[first..].iter().map(|(i, _)| *i).collect();
                    out.push(recursion(library, &cycle));
                    cycle.iter().for_each(|i| marks[*i] = Mark::Faulty);
                }
                Some(_) => {}
                None => {
                    path.pop();
                    if marks[at] == Mark::Open {
                        let (mark, diag) = size(library, &marks, at);
                        marks[at] = mark;
                        out.extend(diag);
                    }
                }
            }
        }
    }
    for (i, mark) in marks.iter().enumerate() {
        if *mark == Mark::Faulty {
            faulty[i] = true;
            if let CallKind::Def(body) = &mut library.calls[i].kind {
                *body = Body { terms: Terms::default(), roots: vec![] };
            }
        }
    }
    out
}

/// True if a law speaks of a faulty callable.
pub(super) fn is_faulty(law: &Law, faulty: &[bool]) -> bool {
    let graphs = law.tests.iter().filter_map(|t| match t {
        LawTest::Never { graph, .. } => Some(&graph.terms),
        LawTest::Check { .. } | LawTest::Picks { .. } => None,
    });
    graphs.chain([&law.terms]).any(|terms| applied(terms).any(|c| faulty[c.0 as usize]))
}

fn applied(terms: &Terms) -> impl Iterator<Item = CallId> + '_ {
    terms.iter().filter_map(|(_, t)| match &t.kind {
        TermKind::Apply(c, _) | TermKind::EachFold(c, _) => Some(*c),
        TermKind::Var(_) | TermKind::Scalar(_) | TermKind::Output(_) | TermKind::EachPart(_) => {
            None
        }
    })
}

/// The callables that a definition applies, each once, the first one last.
fn parts(library: &Library, at: usize) -> Vec<usize> {
    let CallKind::Def(body) = &library.calls[at].kind else { return vec![] };
    let mut out: Vec<usize> = applied(&body.terms).map(|c| c.0 as usize).collect();
    out.sort_unstable();
    out.dedup();
    out.reverse();
    out
}

/// Operators and depth of a definition all of whose parts are known.
fn size(library: &Library, marks: &[Mark], at: usize) -> (Mark, Option<(u32, Diag)>) {
    let c = &library.calls[at];
    let CallKind::Def(body) = &c.kind else { return (Mark::Done(1, 0), None) };
    let (mut operators, mut depth) = (0u64, 0u32);
    for part in applied(&body.terms) {
        match marks[part.0 as usize] {
            Mark::Done(n, d) => {
                operators = operators.saturating_add(n);
                depth = depth.max(d + 1);
            }
            Mark::New | Mark::Open | Mark::Faulty => return (Mark::Faulty, None),
        }
    }
    let (code, message, help) = if operators > OPERATORS {
        (
            "R023",
            format!(
                "`{}` expands to {operators} operators; at most {OPERATORS} are allowed",
                c.name
            ),
            "nested definitions multiply: share a subterm with `let`, or make the inner one an `op`",
        )
    } else if depth > DEPTH {
        (
            "R023",
            format!("`{}` nests {depth} definitions; at most {DEPTH} are allowed", c.name),
            "write some of the inner definitions out",
        )
    } else {
        return (Mark::Done(operators, depth), None);
    };
    let SourceSpan { file: source, span } = c.source;
    (Mark::Faulty, Some((source, error(code, span, message, help))))
}

/// The diagnostic of definitions that contain each other, at the first one's.
fn recursion(library: &Library, cycle: &[usize]) -> (u32, Diag) {
    let least = cycle.iter().enumerate().min_by_key(|(_, i)| **i).map_or(0, |(at, _)| at);
    let cycle = [&cycle[least..], &cycle[..least]].concat();
    let name = |i: &usize| format!("`{}`", library.calls[*i].name);
    let first = &library.calls[cycle[0]];
    let SourceSpan { file: source, span } = first.source;
    let message = match cycle.as_slice() {
        [one] => format!("{} contains itself", name(one)),
        _ => {
            let mut names: Vec<String> = cycle.iter().take(9).map(name).collect();
            if cycle.len() > names.len() {
                names.push(format!("{} more", cycle.len() - names.len()));
            }
            names.push(name(&cycle[0]));
            format!("mutually recursive definitions: {}", names.join(", which applies "))
        }
    };
    let help = "a definition is inlined wherever it is applied, so it cannot apply itself; write repetitions out, \
                or define an `op`";
    let applies = |from: usize, to: usize| {
        let CallKind::Def(body) = &library.calls[from].kind else { return None };
        let of = |(_, t): (_, &crate::term::Term)| match &t.kind {
            TermKind::Apply(c, _) if c.0 as usize == to => Some(t.span),
            _ => None,
        };
        body.terms.iter().find_map(of)
    };
    let next = *cycle.get(1).unwrap_or(&cycle[0]);
    let mut diag = error("R022", applies(cycle[0], next).unwrap_or(span), message, help);
    for (i, from) in cycle.iter().enumerate().skip(1).take(8) {
        let to = cycle[(i + 1) % cycle.len()];
        if library.calls[*from].source.file == source
            && let Some(at) = applies(*from, to)
        {
            diag.labels.push((at, format!("applies {}", name(&to))));
        }
    }
    (source, diag)
}
