//! Mutation testing of the verifier: it should refute laws that were made false on purpose.
//!
//! A mutant is a shipped rule with one small change in its tree that the checker of the language accepts.
//! A mutant that the verifier accepts is tested on many more samples: only if those refute
//! it was it missed; otherwise it is considered equivalent.

use crate::library;
use mlc_dsl::library::{Law, Library};
use mlc_dsl::syntax::ast::{
    Arg, BinaryOp, Elem, ErrorClause, Expr, ExprKind, Item, ItemKind, Rule,
};
use mlc_dsl::syntax::{parse, print_expr, print_item};
use mlc_rewrite::stdlib;
use mlc_verify::{
    CheckOptions, Counterexample, Exactness, Outcome, check_law, prove_for_every_size,
};
use std::collections::BTreeSet;

/// A changed rule.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The name of the rule that it was made from, with a number.
    pub name: String,
    /// The rule that it was made from.
    pub of: String,
    /// What was changed, in one sentence.
    pub change: String,
    /// The condition that was left out, if it is that.
    pub without: Option<String>,
    /// The rule in the language.
    pub text: String,
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was refuted.
    Killed,
    /// It passed, but more samples refute it; what breaks it.
    Missed(String),
    /// Nothing speaks against it; why it is believed to hold.
    Equivalent(String),
    /// It can never match.
    Void,
}

/// The mutants of the shipped rules that the language admits, of those that `taken` takes, in the order of the texts, and the library
/// that holds them: one of all takes gigabytes.
pub fn mutants(taken: impl Fn(&Mutant) -> bool) -> (Vec<Mutant>, Library) {
    let mut all = Vec::new();
    for s in stdlib::sources().iter().filter(|s| s.name.contains("rules/laws/")) {
        let (parsed, diags) = parse(&s.text);
        assert!(diags.is_empty(), "{} is sound", s.name);
        for item in &parsed.items {
            if let ItemKind::Rule(rule) = &item.kind {
                all.extend(of_rule(item, rule).into_iter().filter(&taken));
            }
        }
    }
    let text: Vec<&str> = all.iter().map(|m| m.text.as_str()).collect();
    let (library, _) = stdlib::with(&[("mutants.rules", &*text.join("\n"))]);
    let known: BTreeSet<&str> = library.laws.iter().map(|l| l.declared_name()).collect();
    all.retain(|m| known.contains(m.name.as_str()));
    (all, library)
}

fn of_rule(item: &Item, rule: &Rule) -> Vec<Mutant> {
    let of = item.name.text.clone();
    let Some(law) = library().laws.iter().find(|l| l.answers_to(&of)) else { return vec![] };
    let mut changed: Vec<(String, Option<String>, Rule)> = Vec::new();
    for (i, c) in rule.conditions.iter().enumerate() {
        let mut r = rule.clone();
        r.conditions.remove(i);
        changed.push((format!("without `{}`", print_expr(c)), Some(print_expr(c)), r));
    }
    if rule.error != Some(ErrorClause::Exact) {
        let r = Rule { error: Some(ErrorClause::Exact), ..rule.clone() };
        changed.push(("with `error exact`".into(), None, r));
    }
    for (s, side) in rule.right.iter().enumerate() {
        for (what, value) in variants(law, &side.value) {
            let mut r = rule.clone();
            r.right[s].value = value;
            changed.push((what, None, r));
        }
    }
    let mut texts = BTreeSet::new();
    let mut out = Vec::new();
    for (change, without, mut rule) in changed {
        // One way only, and without the tests of the original.
        rule.both_ways = false;
        rule.tests.retain(|t| matches!(t, mlc_dsl::syntax::ast::RuleTest::Check { .. }));
        let name = format!("{of}_mutant_{}", out.len());
        let mut item = item.clone();
        item.kind = ItemKind::Rule(rule);
        if !texts.insert(print_item(&item)) {
            continue;
        }
        item.name.text = name.clone();
        let text = print_item(&item);
        out.push(Mutant { name, of: of.clone(), change, without, text });
    }
    out
}

/// The expression with one place changed, for every place and change.
fn variants(law: &Law, e: &Expr) -> Vec<(String, Expr)> {
    let mut out: Vec<(String, Expr)> = own_variants(law, e)
        .into_iter()
        .map(|kind| {
            let changed = Expr { kind, span: e.span };
            (format!("`{}` becomes `{}`", print_expr(e), print_expr(&changed)), changed)
        })
        .collect();
    let mut parts = 0;
    visit(&mut e.clone(), &mut |_| parts += 1);
    for part in 0..parts {
        let mut inner = Vec::new();
        at(&mut e.clone(), part, &mut |p| inner = variants(law, p));
        for (what, value) in inner {
            let mut whole = e.clone();
            at(&mut whole, part, &mut |p| *p = value.clone());
            out.push((what, whole));
        }
    }
    out
}

fn at(e: &mut Expr, part: usize, f: &mut dyn FnMut(&mut Expr)) {
    let mut i = 0;
    visit(e, &mut |p| {
        if i == part {
            f(p);
        }
        i += 1;
    });
}

/// The direct parts that are expressions of tensors or attributes.
fn visit(e: &mut Expr, f: &mut dyn FnMut(&mut Expr)) {
    match &mut e.kind {
        ExprKind::List(items) => items.iter_mut().for_each(|(Elem::One(e) | Elem::Splice(e))| f(e)),
        ExprKind::Tuple(items) => items.iter_mut().for_each(f),
        ExprKind::Unary(_, a) => f(a),
        ExprKind::Binary(_, a, b) => {
            f(a);
            f(b);
        }
        ExprKind::Call { args, .. } => args.iter_mut().for_each(|a| f(&mut a.value)),
        ExprKind::Axes { of, .. } => f(of),
        ExprKind::Reduce { body, .. } => f(body),
        ExprKind::If { cond, then, otherwise } => {
            f(cond);
            f(then);
            f(otherwise);
        }
        ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) | ExprKind::Bool(_) => {}
        ExprKind::Name(_) | ExprKind::Size(_) | ExprKind::Index { .. } => {}
    }
}

/// Operators that are easily taken for each other.
const SIBLINGS: &[&[&str]] = &[
    &["maximum", "minimum"],
    &["max", "min"],
    &["sum", "prod"],
    &["exp", "log"],
    &["sin", "cos"],
    &["sinh", "cosh"],
    &["floor", "ceil"],
    &["sqrt", "rsqrt"],
    &["relu", "abs"],
    &["sigmoid", "tanh"],
    &["gather", "gather_elements"],
    &["logical_and", "logical_or"],
    &["sumpool", "maxpool"],
];

fn sibling(name: &str) -> Option<&'static str> {
    let pair = SIBLINGS.iter().find(|p| p.contains(&name))?;
    pair.iter().find(|n| **n != name).copied()
}

fn own_variants(law: &Law, e: &Expr) -> Vec<ExprKind> {
    match &e.kind {
        ExprKind::Int(v) => vec![ExprKind::Int(v + 1)],
        ExprKind::Float(v) => vec![ExprKind::Float(v * 1.25 + 0.125)],
        ExprKind::Bool(b) => vec![ExprKind::Bool(!b)],
        ExprKind::Name(n) => others(law, n).into_iter().map(ExprKind::Name).collect(),
        ExprKind::Index { base, index, otherwise } => {
            let renamed = others(law, &base.text).into_iter().map(|n| {
                let mut base = base.clone();
                base.text = n;
                ExprKind::Index { base, index: index.clone(), otherwise: otherwise.clone() }
            });
            renamed.collect()
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (a.clone(), b.clone());
            let other = match op {
                BinaryOp::Add => Some(BinaryOp::Sub),
                BinaryOp::Sub => Some(BinaryOp::Add),
                BinaryOp::Mul => Some(BinaryOp::Div),
                BinaryOp::Div => Some(BinaryOp::Mul),
                BinaryOp::Lt => Some(BinaryOp::Le),
                BinaryOp::Le => Some(BinaryOp::Lt),
                BinaryOp::Gt => Some(BinaryOp::Ge),
                BinaryOp::Ge => Some(BinaryOp::Gt),
                BinaryOp::Eq => Some(BinaryOp::Ne),
                BinaryOp::Ne => Some(BinaryOp::Eq),
                BinaryOp::And => Some(BinaryOp::Or),
                BinaryOp::Or => Some(BinaryOp::And),
                BinaryOp::Mod | BinaryOp::Pow | BinaryOp::MatMul => None,
            };
            let turns = matches!(
                op,
                BinaryOp::Sub | BinaryOp::Div | BinaryOp::Pow | BinaryOp::MatMul | BinaryOp::Mod
            ) || matches!(
                op,
                BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge
            );
            let swapped = turns.then(|| ExprKind::Binary(*op, b.clone(), a.clone()));
            swapped.into_iter().chain(other.map(|o| ExprKind::Binary(o, a, b))).collect()
        }
        ExprKind::Call { callee, args } => {
            let mut out = Vec::new();
            if let Some(other) = sibling(&callee.text) {
                let mut callee = callee.clone();
                callee.text = other.into();
                out.push(ExprKind::Call { callee, args: args.clone() });
            }
            let commutative =
                library().find(&callee.text).is_some_and(|c| library().call(c).commutative);
            let positional = |a: &Arg| a.name.is_none();
            if !commutative && args.len() >= 2 && args[..2].iter().all(positional) {
                let mut args = args.clone();
                args.swap(0, 1);
                out.push(ExprKind::Call { callee: callee.clone(), args });
            }
            out
        }
        ExprKind::Reduce { monoid, axes, body } => {
            let mut out = Vec::new();
            if let Some(other) = sibling(&monoid.text) {
                let mut monoid = monoid.clone();
                monoid.text = other.into();
                out.push(ExprKind::Reduce { monoid, axes: axes.clone(), body: body.clone() });
            }
            for (i, axis) in axes.iter().enumerate() {
                let Elem::One(Expr { kind: ExprKind::Name(n), span }) = axis else { continue };
                for other in axis_names(law).into_iter().filter(|o| o != n) {
                    let mut axes = axes.clone();
                    axes[i] = Elem::One(Expr { kind: ExprKind::Name(other), span: *span });
                    let (monoid, body) = (monoid.clone(), body.clone());
                    out.push(ExprKind::Reduce { monoid, axes, body });
                }
            }
            out
        }
        ExprKind::Str(_)
        | ExprKind::Size(_)
        | ExprKind::List(_)
        | ExprKind::Tuple(_)
        | ExprKind::Axes { .. }
        | ExprKind::Unary(..)
        | ExprKind::If { .. } => vec![],
    }
}

fn axis_names(law: &Law) -> Vec<String> {
    let dims = law.vars.iter().flat_map(|v| v.ty.dims.iter().flatten());
    let mut out: Vec<String> = dims
        .filter_map(|d| match d {
            mlc_dsl::library::Dim::Axis(n) => Some(n.to_string()),
            _ => None,
        })
        .collect();
    out.sort();
    out.dedup();
    out
}

/// The variables of the same type as this one.
fn others(law: &Law, name: &str) -> Vec<String> {
    let ty = |v: &mlc_dsl::library::Input| format!("{:?} {:?}", v.ty.dtype, v.ty.dims);
    if let Some(own) = law.vars.iter().find(|v| *v.name == *name) {
        let same = law.vars.iter().filter(|v| *v.name != *name && ty(v) == ty(own));
        return same.map(|v| v.name.to_string()).collect();
    }
    let Some(own) = law.attrs.iter().find(|a| *a.name == *name) else { return vec![] };
    let same = law.attrs.iter().filter(|a| a.name != own.name && a.ty.kind == own.ty.kind);
    same.map(|a| a.name.to_string()).collect()
}

/// Laws of a schema that are looked at, out of all its operators.
const INSTANCES: usize = 6;

/// The laws of a name: one, or some of a schema's.
fn called<'l>(library: &'l Library, name: &str) -> Vec<&'l Law> {
    let all: Vec<&Law> = library.laws.iter().filter(|l| l.answers_to(name)).collect();
    let step = all.len().div_ceil(INSTANCES).max(1);
    all.into_iter().step_by(step).collect()
}

/// True if breaking a condition of the original on purpose shows that its sides differ.
fn refutes(library: &Library, law: &str, condition: &str) -> bool {
    let options = CheckOptions { samples: 30, ..CheckOptions::default() };
    called(library, law).into_iter().any(|law| match check_law(library, law, &options).outcome {
        Outcome::Holds(e) => e.refuting.iter().any(|c| c == condition),
        Outcome::Fails(_) | Outcome::NoSample { .. } => false,
    })
}

/// True if the samples of this seed refute a mutant.
pub fn refuted(library: &Library, mutant: &Mutant, seed: u64) -> bool {
    let options = CheckOptions { seed, explain: false, ..CheckOptions::default() };
    let fails = |law: &Law| matches!(check_law(library, law, &options).outcome, Outcome::Fails(_));
    called(library, &mutant.name).into_iter().any(fails)
}

/// A sample of real numbers that refutes a law of the mutant which is said to be proved for every rank and size; its error class
/// says nothing of that.
pub fn refuted_though_proved(library: &Library, mutant: &Mutant) -> Option<String> {
    let options = CheckOptions { samples: 60, explain: false, ..CheckOptions::default() };
    let is_real = |c: &Counterexample| {
        let elements =
            c.inputs.iter().flat_map(|t| &t.values).chain(c.attributes.iter().map(|a| &a.1));
        !elements.into_iter().any(|v| ["inf", "NaN", "nan"].iter().any(|w| v.contains(w)))
    };
    let proved = |law: &&Law| prove_for_every_size(library, law, 0).is_ok();
    let refuted = |law: &Law| match check_law(library, law, &options).outcome {
        Outcome::Fails(c) if c.in_f64 && !c.numerical && is_real(&c) => Some(c.human()),
        Outcome::Fails(_) | Outcome::Holds(_) | Outcome::NoSample { .. } => None,
    };
    called(library, &mutant.name).into_iter().filter(proved).find_map(refuted)
}

/// What becomes of a mutant; one that passes is looked at again with so many samples.
pub fn fate_of(library: &Library, mutant: &Mutant, again: usize) -> Fate {
    let laws = called(library, &mutant.name);
    let options = CheckOptions { explain: false, ..CheckOptions::default() };
    let verdicts = laws.iter().map(|law| (*law, check_law(library, law, &options)));
    // What one of a schema's laws shows to be false is false.
    let rank = |o: &Outcome| match o {
        Outcome::Fails(_) => 0,
        Outcome::Holds(_) => 1,
        Outcome::NoSample { .. } => 2,
    };
    let Some((law, verdict)) = verdicts.min_by_key(|(_, v)| rank(&v.outcome)) else {
        return Fate::Void;
    };
    let refused = verdict.warnings.iter().any(|w| w.contains("ill-typed"));
    let evidence = match verdict.outcome {
        Outcome::Fails(_) => return Fate::Killed,
        Outcome::NoSample { .. } => return Fate::Void,
        Outcome::Holds(e) => e,
    };
    if let Some(condition) = &mutant.without
        && refutes(library, &mutant.of, condition)
    {
        return Fate::Missed(format!("the law is false where `{condition}` is broken on purpose"));
    }
    let long = CheckOptions { seed: 77, samples: again, ..options };
    match (check_law(library, law, &long).outcome, evidence.exactness) {
        (Outcome::Fails(c), _) => Fate::Missed(c.broken.clone()),
        _ if refused => Fate::Equivalent(
            "it holds where the right side has the type of the left, and fires nowhere else".into(),
        ),
        (_, Exactness::Everywhere | Exactness::Proved { .. }) => {
            Fate::Equivalent("the sides are one function, as a prime field shows".into())
        }
        (_, Exactness::Defined | Exactness::Shared { .. } | Exactness::Sampled { .. }) => {
            Fate::Equivalent(format!("{again} more samples show no difference"))
        }
    }
}
