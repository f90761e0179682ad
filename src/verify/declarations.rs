//! Checks of declarations other than laws: operators that are undefined on admissible arguments,
//! `extern`s without a Rust reference, layers that can never be recognised.

use super::compare;
use super::law::facts::LawFacts;
use super::lint::Lint;
use super::sample::draft::{RangePolicy, SampleDraft};
use super::sample::values::ElementStyle;
use super::sample::{self, DrawOutcome, DrawTally};
use itertools::Itertools;
use mlc_backends::reference::code::cache::TOO_LONG;
use mlc_backends::reference::{Engine, Precision, Reference, references};
use mlc_dsl::check::hidden;
use mlc_dsl::diagnostics::Severity;
use mlc_dsl::diagnostics::span::{SourceSpan, Span};
use mlc_dsl::expr::{Expr, ExprKind, Meaning};
use mlc_dsl::ir::build::BuildError;
use mlc_dsl::ir::{DType, NodeKind, Program};
use mlc_dsl::library::{
    CallId, CallKind, Callable, Dim, ErrorClass, Law, LawOrigin, LawSide, Library, Name,
};
use mlc_dsl::random::Random;
use mlc_dsl::term::{Term, TermId, TermKind, Terms};
use std::cmp::Reverse;

/// Samples of an operator, and of a definition's body.
const SAMPLES: usize = 36;
const BODIES: usize = 12;

/// Samples that take too many steps after which no more are tried.
const LONG: usize = 5;

/// What is wrong with the declarations of the texts from number `first` on.
pub fn declarations(library: &Library, first: u32, seed: u64) -> Vec<Lint> {
    let mut out = Vec::new();
    let own = |source: u32| source >= first;
    for i in 0..library.calls.len() {
        let id = CallId(i as u32);
        let c = library.call(id);
        if !own(c.source.file) {
            continue;
        }
        match &c.kind {
            CallKind::Extern(name) => out.extend(without_reference(library, c, name)),
            CallKind::Op(_) => out.extend(without_value(library, id, seed)),
            CallKind::Def(body) if body.roots.is_empty() || offered(library, id) => {}
            CallKind::Def(_) => {
                out.extend(without_body(library, id, seed));
                out.extend(unrecognised(library, id));
            }
        }
    }
    for (law, reason) in mlc_dsl::pattern::unsolved(library) {
        let law = &library.laws[law as usize];
        if !own(law.source.file) {
            continue;
        }
        let what = match law.origin {
            LawOrigin::Fold => "will not be recognised in models",
            LawOrigin::Rule | LawOrigin::Reverse | LawOrigin::Unfold => "never matches",
        };
        let message = format!("`{}` {what}, because {reason}", law.name);
        let help = "a number is found where it stands alone: take what is computed from it as a parameter of its own, \
                    such as `x * k` for `x * k^2`; long sums are matched in parts";
        out.push(Lint::at(
            library,
            law.source,
            &law.name,
            "V009",
            Severity::Warning,
            message,
            help,
        ));
    }
    out
}

/// True of compositions that kernels offer without being recognised as a whole.
fn offered(library: &Library, id: CallId) -> bool {
    library.fuses.iter().any(|f| f.call == id && (f.epilogue || f.prologue))
}

fn without_reference(library: &Library, c: &Callable, name: &str) -> Option<Lint> {
    let known: Vec<&str> = references().collect();
    if known.contains(&name) {
        return None;
    }
    let message = format!("`{}` has no meaning: there is no Rust reference `{name}`", c.name);
    let help = format!(
        "the references are {}; an `op` needs none, and a new one is a function in `backends/src/reference/externs/mod.rs`",
        known.join(", ")
    );
    Some(Lint::at(library, c.source, &c.name, "V008", Severity::Error, message, &help))
}

/// Why the law that recognises a layer is missing.
fn unrecognised(library: &Library, id: CallId) -> Option<Lint> {
    let c = library.call(id);
    let CallKind::Def(body) = &c.kind else { return None };
    let mut mentioned: Vec<Name> = Vec::new();
    let mut note = |e: &Expr| {
        e.walk(&mut |e| {
            if let ExprKind::Name(n) | ExprKind::Entry(n, _) = &e.kind {
                mentioned.push(n.clone());
            }
        });
    };
    for (_, t) in body.terms.iter() {
        match &t.kind {
            TermKind::Scalar(e) | TermKind::EachPart(e) => note(e),
            TermKind::Apply(_, attrs) | TermKind::EachFold(_, attrs) => {
                attrs.iter().flatten().for_each(&mut note);
            }
            TermKind::Var(_) | TermKind::Output(_) => {}
        }
    }
    c.wheres.iter().for_each(|w| note(&w.1));
    let missing = hidden(library, id);
    let bare =
        |r: &TermId| matches!(body.terms.get(*r).kind, TermKind::Var(_) | TermKind::Scalar(_));
    let reason = match missing.first() {
        Some(n) if mentioned.contains(n) => {
            format!("parameter `{n}` occurs only in computed numbers")
        }
        Some(n) => format!("parameter `{n}` is not used in its body"),
        None if body.roots.iter().any(bare) => {
            "its body is a parameter, which everything matches".into()
        }
        None => return None,
    };
    let message = format!("`{}` will not be recognised in models, because {reason}", c.name);
    let help = "it still runs, and stands for its body wherever it is written by name; to be found in other spellings, \
                every parameter must stand by itself in the body";
    Some(Lint::at(library, c.source, &c.name, "V009", Severity::Warning, message, help))
}

/// An operator that has no value on arguments that its conditions admit, or no arguments at all.
fn without_value(library: &Library, id: CallId, seed: u64) -> Option<Lint> {
    let c = library.call(id);
    if by_element(c) {
        return None;
    }
    let law = application(library, id);
    let facts = LawFacts::of(library, &law);
    let mut rng = Random::of_name(seed, &c.name);
    let mut tally = DrawTally::default();
    let (mut drawn, mut long) = (0, 0);
    for i in 0..SAMPLES {
        let mut rng = rng.fork();
        let extents = sample::plan_sample(&facts, i).extents;
        let Some(DrawOutcome::Instance(instance)) =
            sample::draw(&facts, &[], extents, RangePolicy::No, &mut tally, &mut rng)
        else {
            if i >= 4 && drawn == 0 {
                break;
            }
            continue;
        };
        drawn += 1;
        let sample = sample::fill(&facts, *instance, ElementStyle::Integers, None, None, &mut rng);
        let truth = &sample.instance.truth;
        let Some(inputs) = compare::arrays(truth, &sample) else { continue };
        let reference = Reference { precision: Precision::F64, engine: Engine::Plain };
        if let Err(e) = reference.run_again(truth, &facts.codes, &inputs) {
            if e.to_string().ends_with(TOO_LONG) {
                long += 1;
                if long == LONG {
                    return Some(too_long(library, c));
                }
                continue;
            }
            let at = place(&sample.instance.draft);
            let message = format!("`{}` has no value at {at}: {e}", c.name);
            let help = "exclude it by `if`, or say what is read outside of a tensor: `x[…] else 0`";
            let span = meaning_span(c);
            return Some(Lint::at(
                library,
                SourceSpan::new(c.source.file, span),
                &c.name,
                "V010",
                Severity::Error,
                message,
                help,
            ));
        }
    }
    if drawn > 0 {
        return None;
    }
    let reason = tally.refused.iter().max_by_key(|(_, n)| **n).map_or("", |(r, _)| r);
    let message = format!("no arguments were found that `{}` admits ({reason})", c.name);
    let help = "are the conditions of its `if` met at once by anything? ranges such as `k: int in 1..4` help to find it";
    Some(Lint::at(library, c.source, &c.name, "V010", Severity::Warning, message, help))
}

/// What is said of an operator that cannot be tried.
fn too_long(library: &Library, c: &Callable) -> Lint {
    let message =
        format!("`{}` takes too many steps to be tried, even with small arguments", c.name);
    let help = "an element is computed of so many terms; what `where` and constants say they are is the same for small tensors, \
                so take it as an attribute with a range, or from the extents of an argument";
    Lint::at(
        library,
        SourceSpan::new(c.source.file, meaning_span(c)),
        &c.name,
        "V010",
        Severity::Warning,
        message,
        help,
    )
}

/// A definition whose body has no types on arguments that it admits: it cannot run.
fn without_body(library: &Library, id: CallId, seed: u64) -> Option<Lint> {
    let c = library.call(id);
    let law = application(library, id);
    let facts = LawFacts::of(library, &law);
    let of_body =
        |(draft, body): (SampleDraft, Result<Program, BuildError>)| Some((draft, body.err()?));
    let (draft, e) = bodies(&facts, id, seed).find_map(of_body)?;
    let message = format!("`{}` cannot run at {}: {e}", c.name, place(&draft));
    let help = "say in its `if` which arguments it admits, or correct its body; `sum(n)` and the like take axes by the \
                names that their operand has";
    Some(Lint::at(library, c.source, &c.name, "V010", Severity::Error, message, help))
}

/// The body of a definition at a few small arguments that it admits; `facts` are those of its application.
fn bodies(
    facts: &LawFacts<'_>,
    id: CallId,
    seed: u64,
) -> impl Iterator<Item = (SampleDraft, Result<Program, BuildError>)> {
    let library = facts.library;
    let mut rng = Random::of_name(seed, &library.call(id).name);
    let mut tally = DrawTally::default();
    (0..BODIES).filter_map(move |i| {
        let mut rng = rng.fork();
        let extents = sample::plan_sample(facts, i).extents;
        let drawn = sample::draw(facts, &[], extents, RangePolicy::No, &mut tally, &mut rng);
        let Some(DrawOutcome::Instance(instance)) = drawn else { return None };
        // Numbers that a type does not hold are the caller's mistake.
        let real = |(n, d): &(Name, DType)| {
            d.is_float() || !matches!(n.as_bytes().first(), Some(b'N' | b'T'))
        };
        if !instance.draft.dtypes.iter().all(real) {
            return None;
        }
        let program = &instance.program;
        let (attrs, args) = program.nodes.iter().find_map(|n| match &n.kind {
            NodeKind::Apply(call, attrs) if *call == id => Some((attrs, &n.args)),
            _ => None,
        })?;
        let types: Vec<_> = args.iter().map(|a| program.ty(*a)).collect();
        let body = mlc_dsl::ir::unfold::definition(library, id, attrs, &types);
        Some((instance.draft, body))
    })
}

/// Programs of a definition's body, at arguments that tell most of it: several axes, each of several elements.
pub fn body_programs(library: &Library, id: CallId, most: usize, seed: u64) -> Vec<Program> {
    let law = application(library, id);
    let facts = LawFacts::of(library, &law);
    let mut all: Vec<Program> = bodies(&facts, id, seed).filter_map(|(_, b)| b.ok()).collect();
    let extents = |p: &Program| p.inputs.iter().flat_map(|(_, ty)| ty.shape.clone()).collect_vec();
    let tells = |p: &Program| {
        let extents = extents(p);
        let alike = extents.iter().duplicates().count();
        let few = extents.iter().filter(|e| e.as_const().is_some_and(|e| e < 2)).count();
        (few, alike, Reverse(extents.len()))
    };
    all.sort_by_key(tells);
    all.dedup_by(|a, b| extents(a) == extents(b));
    all.truncate(most);
    all
}

/// The extents and attributes of a draft, for people.
fn place(draft: &SampleDraft) -> String {
    let axes = draft.axes.iter().map(|(n, v)| format!("|{n}| = {}", v[0]));
    let segs = draft.segs.iter().map(|(n, v)| format!("|{n}| = {:?}", v[0]));
    let attrs = draft.attrs.iter().map(|(n, a)| format!("{n} = {a}"));
    axes.chain(segs).chain(attrs).collect::<Vec<_>>().join(", ")
}

fn meaning_span(c: &Callable) -> Span {
    match &c.kind {
        CallKind::Op(m) => m.first().map_or(c.source.span, |m| m.value.span),
        CallKind::Def(_) | CallKind::Extern(_) => c.source.span,
    }
}

/// True if elements decide which elements are read: then only the caller knows what lies inside.
fn by_element(c: &Callable) -> bool {
    let CallKind::Op(meanings) = &c.kind else { return false };
    let by_element = |m: &Meaning| {
        m.value.any(&mut |e| match &e.kind {
            ExprKind::Read(r) => r.index.iter().any(|i| i.expr().reads()),
            _ => false,
        })
    };
    meanings.iter().any(by_element)
}

/// The application of an operator as both sides of a law: what sampling knows how to draw.
fn application(library: &Library, id: CallId) -> Law {
    let c = library.call(id);
    let span = c.source.span;
    let mut terms = Terms::default();
    let anonymous = |n: &Name| vec![Dim::Seg(Name::from(format!("{n}.shape")))];
    let args: Vec<TermId> = c
        .inputs
        .iter()
        .enumerate()
        .map(|(i, v)| {
            let dims = v.ty.dims.clone().unwrap_or_else(|| anonymous(&v.name));
            let dtype = v.ty.dtype.clone();
            terms.push(Term { kind: TermKind::Var(i), args: vec![], dims: Some(dims), dtype, span })
        })
        .collect();
    let attr = |n: &Name| Some(Expr { kind: ExprKind::Name(n.clone()), span });
    let attrs = c.attrs.iter().map(|a| attr(&a.name)).collect();
    let dtype = c.outputs[0].1.dtype.clone();
    let kind = TermKind::Apply(id, attrs);
    let whole = terms.push(Term { kind, args, dims: None, dtype: dtype.clone(), span });
    let roots: Vec<TermId> = match c.outputs.len() {
        1 => vec![whole],
        n => (0..n)
            .map(|i| {
                let kind = TermKind::Output(i);
                let dtype = c.outputs[i].1.dtype.clone();
                terms.push(Term { kind, args: vec![whole], dims: None, dtype, span })
            })
            .collect(),
    };
    let side = |root: &TermId| LawSide { name: Name::from(""), each: false, root: *root };
    let sides: Vec<LawSide> = roots.iter().map(side).collect();
    Law {
        name: c.name.clone(),
        doc: vec![],
        origin: LawOrigin::Unfold,
        vars: c.inputs.clone(),
        attrs: c.attrs.clone(),
        terms,
        left: sides.clone(),
        right: sides,
        conditions: vec![],
        hints: vec![],
        error: ErrorClass::Reorder,
        tests: vec![],
        schema: None,
        source: c.source,
    }
}
