//! Applies a match: evaluates conditions, builds the right side, checks its type, and merges the classes.

use crate::graph::Graph;
use crate::graph::language::{ClassFacts, ENode, Head};
use crate::matcher::{Binding, LeftoverOperands, PartialMatch};
use crate::proof::log::{LogId, Reason};
use egg::Id;
use mlc_dsl::eval::{Env, eval, truth};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, Predicate, UnaryOp};
use mlc_dsl::ir::DType;
use mlc_dsl::ir::canon::{self, Sink};
use mlc_dsl::library::Law;
use mlc_dsl::typing::instantiate::{BuildError, Instantiator, Member};

/// What became of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something new is known.
    United,
    /// Both sides were one class already.
    Known,
    /// A condition or a hint does not hold; which.
    Refused(Refusal),
    /// The right side has no instance of the matched type; why.
    IllTyped(String),
    /// The node limit is reached.
    Full,
}

/// One side of a match: the node that was matched and its class.
#[derive(Clone, Copy, Debug)]
pub struct MatchedNode {
    /// The logged node.
    pub node: LogId,
    /// Its class.
    pub class: Id,
}

/// Checks a match's conditions, then joins the right sides to the matched classes.
pub fn apply(
    graph: &mut Graph,
    law: &Law,
    index: u32,
    sites: &[MatchedNode],
    st: &PartialMatch,
) -> Outcome {
    if let Some(refusal) = refusal(graph, law, st) {
        return Outcome::Refused(refusal);
    }
    let vars = match resolve(graph, &st.vars) {
        Ok(v) => v,
        Err(e) => return failed(graph, e),
    };
    let mut env = st.env.clone();
    let roots: Vec<_> = law.right.iter().map(|s| s.root).collect();
    let structural = graph.structural;
    let made =
        Instantiator { sink: graph, structural, terms: &law.terms, family: None, ranged: true }
            .run(&roots, &vars, &mut env);
    let mut made = match made {
        Ok(m) => m,
        Err(e) => return failed(graph, e),
    };
    if let (Some(rest), [one]) = (&st.rest, made.as_mut_slice()) {
        match with_rest(graph, *one, rest) {
            Ok(v) => *one = v,
            Err(e) => return failed(graph, e),
        }
    }
    unite(graph, index, sites, &made)
}

/// Applies an `each` law to all members of a family. The slices that it made are returned too.
pub fn apply_family(
    graph: &mut Graph,
    law: &Law,
    index: u32,
    sites: &[MatchedNode],
    states: &[PartialMatch],
) -> (Outcome, Vec<Id>) {
    let mut members = Vec::new();
    for (site, st) in sites.iter().zip(states) {
        let vars = match resolve(graph, &st.vars) {
            Ok(v) => v,
            Err(e) => return (failed(graph, e), vec![]),
        };
        let shape = graph.type_of(site.class).shape.clone();
        members.push(Member { vars, env: st.env.clone(), shape });
    }
    let root = [law.right[0].root];
    let structural = graph.structural;
    let mut made = Vec::new();
    for i in 0..members.len() {
        let mut env = members[i].env.clone();
        let vars = members[i].vars.clone();
        let family = Some((members.as_slice(), i));
        let v = Instantiator { sink: graph, structural, terms: &law.terms, family, ranged: true }
            .run(&root, &vars, &mut env);
        match v {
            Ok(v) => made.push(v[0]),
            Err(e) => return (failed(graph, e), vec![]),
        }
    }
    let outcome = unite(graph, index, sites, &made);
    (outcome, made)
}

fn unite(graph: &mut Graph, index: u32, sites: &[MatchedNode], made: &[Id]) -> Outcome {
    for (site, m) in sites.iter().zip(made) {
        let (left, right) = (&graph.facts(site.class).types, &graph.facts(*m).types);
        if left != right {
            let show = |t: &[mlc_dsl::ir::Type]| {
                t.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
            };
            return Outcome::IllTyped(format!("{} would become {}", show(left), show(right)));
        }
    }
    if sites.iter().zip(made).all(|(site, m)| has_twin(graph, site.class, *m)) {
        return Outcome::Known;
    }
    let mut news = false;
    for (site, m) in sites.iter().zip(made) {
        news |= graph.union_matched(site.node, site.class, *m, Reason::Law(index));
    }
    if news { Outcome::United } else { Outcome::Known }
}

/// True if `made` is a single application, and `class` holds the same one of other constants. Constants
/// cost nothing, so it is no other program: the two differ in how their constants were rounded.
fn has_twin(graph: &Graph, class: Id, made: Id) -> bool {
    let [new] = graph.egg[made].nodes.as_slice() else { return false };
    let twins = |a: Id, b: Id| graph.egg.find(a) == graph.egg.find(b) || same_place(graph, a, b);
    let fits = |n: &&ENode| n.head == new.head && n.args.len() == new.args.len();
    graph.egg.find(made) != graph.egg.find(class)
        && !graph.in_source(made)
        && !new.args.is_empty()
        && graph.egg[class]
            .nodes
            .iter()
            .filter(fits)
            .any(|n| n.args.iter().zip(&new.args).all(|(&a, &b)| twins(a, b)))
}

/// True of two constants of one type that laws see alike: neither is a number, and both or none are
/// repeated along the same axes.
fn same_place(graph: &Graph, a: Id, b: Id) -> bool {
    let (fa, fb) = (graph.facts(a), graph.facts(b));
    let plain = |f: &ClassFacts| f.is_constant && f.uniform.is_none();
    let maps = |id: Id| {
        let broadcast = graph.structural.broadcast;
        graph.egg[id].nodes.iter().find_map(|n| match n.head {
            Head::Apply(c, attrs) if Some(c) == broadcast => Some(attrs),
            _ => None,
        })
    };
    plain(fa) && plain(fb) && fa.types == fb.types && maps(a) == maps(b)
}

fn failed(graph: &Graph, e: BuildError) -> Outcome {
    if graph.remaining_nodes() == 0 { Outcome::Full } else { Outcome::IllTyped(e.to_string()) }
}

/// The classes of variables; broadcasts that were only implied are added now.
fn resolve(graph: &mut Graph, vars: &[Option<Binding>]) -> Result<Vec<Id>, BuildError> {
    let structural = graph.structural;
    vars.iter()
        .map(|b| match b {
            Some(Binding::Class(id)) => Ok(graph.egg.find(*id)),
            Some(Binding::Spread { base, map, shape }) => {
                let v = if map.len() == graph.type_of(*base).rank() {
                    canon::broadcast(graph, structural, *base, map, shape)
                } else {
                    canon::reshape(graph, structural, *base, shape)
                };
                Ok(v?)
            }
            Some(Binding::Number { value, dtype, shape }) => {
                let number = number(graph, *dtype, *value)?;
                Ok(canon::broadcast(graph, structural, number, &[], shape)?)
            }
            // A family's variable has no value outside its member; a variable that the left side
            // lacks is refused when the law is read.
            None => Err(BuildError::Value("a variable is not bound".into())),
        })
        .collect()
}

/// The class of a number, unless it is finite, but not in its type.
fn number(graph: &mut Graph, dtype: DType, v: f64) -> Result<Id, BuildError> {
    match dtype.overflows(v) {
        true => Err(BuildError::Value(format!("{v} overflows in {dtype}"))),
        false => Ok(graph.scalar(dtype, v)?),
    }
}

/// The right side with the operands that the pattern left over put back.
fn with_rest(graph: &mut Graph, v: Id, rest: &LeftoverOperands) -> Result<Id, BuildError> {
    let structural = graph.structural;
    let mut acc = v;
    for &o in &rest.operands {
        acc = canon::apply(graph, structural, rest.call, &[], &[acc, o])?[0];
    }
    if let Some(s) = rest.scalar {
        let ty = graph.type_of(acc).clone();
        let s = number(graph, ty.dtype, s)?;
        let s = canon::broadcast(graph, structural, s, &[], &ty.shape)?;
        acc = canon::apply(graph, structural, rest.call, &[], &[acc, s])?[0];
    }
    Ok(acc)
}

/// A clause that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// As it is written.
    pub clause: String,
    /// It may hold once more is known of the program.
    pub learned: bool,
}

/// The first clause that does not hold.
pub fn refusal(graph: &Graph, law: &Law, st: &PartialMatch) -> Option<Refusal> {
    let conditions = law.conditions.iter().find(|c| holds(graph, law, c, st) != Some(true));
    // A hint that cannot be decided does not stop the law.
    let hint = || law.hints.iter().find(|c| holds(graph, law, c, st) == Some(false));
    conditions
        .map(|c| ("if", c))
        .or_else(|| hint().map(|c| ("when", c)))
        .map(|(kind, c)| Refusal { clause: format!("{kind} {c}"), learned: c.is_learned() })
}

/// True if a part of a match is known already to fail a condition, whatever the rest is bound to.
pub fn contradicted(graph: &Graph, law: &Law, st: &PartialMatch) -> bool {
    law.conditions.iter().any(|c| holds(graph, law, c, st) == Some(false))
}

fn holds(graph: &Graph, law: &Law, c: &Expr, st: &PartialMatch) -> Option<bool> {
    match &c.kind {
        ExprKind::Mark(_) => Some(true),
        ExprKind::Test(p, args) => {
            let (tensors, bounds) = p.split(args);
            let operands: Vec<PredicateOperand> = tensors
                .iter()
                .filter_map(|a| law.vars.iter().position(|v| Some(&v.name) == a.as_name()))
                .filter_map(|i| match st.vars.get(i)? {
                    Some(Binding::Class(id)) => Some(PredicateOperand::Class(*id)),
                    Some(Binding::Spread { base, .. }) => Some(PredicateOperand::Class(*base)),
                    Some(Binding::Number { value, .. }) => Some(PredicateOperand::Number(*value)),
                    None => None,
                })
                .collect();
            if operands.len() < tensors.len() {
                // Families are checked member by member; outputs of the law have no class yet.
                return Some(true);
            }
            if !bounds.is_empty() {
                let bounds = bounds.iter().map(|a| eval(a, &st.env).ok());
                let (low, high) = crate::analysis::interval::named(&bounds.collect::<Vec<_>>())?;
                return Some(operands.iter().all(|o| match *o {
                    PredicateOperand::Class(id) => {
                        crate::analysis::interval::within(graph, id, low, high)
                    }
                    PredicateOperand::Number(v) => v.is_nan() || (low..=high).contains(&v),
                }));
            }
            Some(operands.iter().all(|o| match *o {
                PredicateOperand::Class(id) => predicate(graph, *p, id),
                PredicateOperand::Number(v) => of_number(*p, v),
            }))
        }
        ExprKind::Binary(BinaryOp::And, a, b) => {
            match (holds(graph, law, a, st), holds(graph, law, b, st)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            }
        }
        ExprKind::Unary(UnaryOp::Not, a) => holds(graph, law, a, st).map(|t| !t),
        _ => condition(c, &st.env),
    }
}

/// What a predicate asks about.
enum PredicateOperand {
    Class(Id),
    Number(f64),
}

/// A predicate about a tensor whose elements all are a number.
fn of_number(predicate: Predicate, v: f64) -> bool {
    match predicate {
        Predicate::Const | Predicate::Uniform => true,
        Predicate::Nonzero => v != 0.0,
        Predicate::Finite => v.is_finite(),
        Predicate::Positive => v > 0.0,
        Predicate::Nonnegative => v.is_nan() || v >= 0.0 && v.is_sign_positive(),
        Predicate::Within => false,
    }
}

fn condition(c: &Expr, env: &Env) -> Option<bool> {
    truth(c, env).ok().flatten()
}

/// A constant whose elements, some left out or repeated, are those of a class.
fn viewed(graph: &Graph, id: Id) -> Option<Id> {
    let is_view = |n: &&crate::graph::language::ENode| {
        matches!(n.head, crate::graph::language::Head::Apply(c, _)
            if graph.library.call(c).class == mlc_dsl::library::OpClass::View && n.args.len() == 1)
    };
    let constant =
        |n: &crate::graph::language::ENode| graph.facts(n.args[0]).value.map(|_| n.args[0]);
    graph.egg[graph.egg.find(id)].nodes.iter().filter(is_view).find_map(constant)
}

fn predicate(graph: &Graph, p: Predicate, id: Id) -> bool {
    let facts = graph.facts(id);
    let every = |name: &'static str, f: fn(f64) -> bool| {
        graph.every_element(id, name, f)
            || facts.uniform.is_some_and(f)
            || viewed(graph, id).is_some_and(|base| graph.every_element(base, name, f))
    };
    match p {
        Predicate::Const => facts.is_constant,
        Predicate::Uniform => facts.uniform.is_some(),
        Predicate::Nonzero => every("nonzero", |v| v != 0.0),
        Predicate::Finite => every("finite", f64::is_finite),
        Predicate::Positive => every("positive", |v| v > 0.0),
        Predicate::Nonnegative => crate::analysis::sign::nonnegative(graph, id),
        Predicate::Within => false,
    }
}

/// A text that two matches share iff they bind the shared variables alike: the key of a family.
pub fn family_key(graph: &Graph, law: &Law, st: &PartialMatch) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for (v, b) in law.vars.iter().zip(&st.vars) {
        if !v.each {
            let _ = match b {
                Some(Binding::Class(id)) => write!(out, "{};", graph.egg.find(*id)),
                other => write!(out, "{other:?};"),
            };
        }
    }
    for (n, a) in st.env.attrs() {
        let _ = write!(out, "{n}={a};");
    }
    let shared = |n: &str| {
        law.vars.iter().filter(|v| !v.each).flat_map(|v| v.ty.dims.iter().flatten()).any(|d| {
            matches!(d, mlc_dsl::library::Dim::Axis(m) | mlc_dsl::library::Dim::Seg(m) if **m == *n)
        })
    };
    for (n, e) in st.env.extents() {
        if shared(n) {
            let _ = write!(out, "{n}={e};");
        }
    }
    out
}
