//! Tables: parts of laws without variables. Programs have them as constants, because what depends on nothing but extents and attributes is
//! folded when a model is written.

use crate::eval::{Env, eval};
use crate::expr::{Expr, ExprKind};
use crate::ir::canon::{self, Sink, Structural};
use crate::library::{CallId, Law, Library, Name, OpClass};
use crate::term::{TermId, TermKind, Terms};
use crate::typing::instantiate::{BuildError, Instantiator};
use std::collections::{HashMap, HashSet};

/// What a constant is compared with.
#[derive(Clone, Debug)]
pub struct Table {
    /// How its elements are computed.
    pub what: TableExpr,
    /// The names of attributes and extents that it depends on.
    pub asks: HashSet<Name>,
}

/// How the elements of a table are computed.
#[derive(Clone, Debug)]
pub enum TableExpr {
    /// As a term of the law says.
    Term(TermId),
    /// A number, repeated.
    Number(Expr),
    /// A pointwise operator of tables and numbers, at least one of them a table.
    Apply(CallId, Vec<TableExpr>),
}

impl Table {
    /// A term without variables.
    pub(super) fn of(terms: &Terms, id: TermId) -> Table {
        let (mut asks, mut stack, mut seen) = (HashSet::new(), vec![id], HashSet::new());
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            let t = terms.get(id);
            stack.extend(&t.args);
            match &t.kind {
                TermKind::Scalar(e) => asks.extend(names(e)),
                TermKind::Apply(_, attrs) => asks.extend(attrs.iter().flatten().flat_map(names)),
                TermKind::Var(_)
                | TermKind::Output(_)
                | TermKind::EachFold(..)
                | TermKind::EachPart(_) => {}
            }
        }
        Table { what: TableExpr::Term(id), asks }
    }

    pub(super) fn number(e: Expr) -> Table {
        Table { asks: names(&e), what: TableExpr::Number(e) }
    }

    pub(super) fn apply(call: CallId, parts: Vec<Table>) -> Table {
        let asks = parts.iter().flat_map(|t| t.asks.iter().cloned()).collect();
        Table { what: TableExpr::Apply(call, parts.into_iter().map(|t| t.what).collect()), asks }
    }

    /// The table in a sink, for what the names stand for.
    ///
    /// # Errors
    /// A name has no value, or an application is ill-typed.
    pub fn instantiate<S: Sink>(
        &self,
        sink: &mut S,
        structural: Structural,
        terms: &Terms,
        env: &Env,
    ) -> Result<S::Value, BuildError> {
        built(&self.what, sink, structural, terms, env)
    }
}

fn built<S: Sink>(
    what: &TableExpr,
    sink: &mut S,
    structural: Structural,
    terms: &Terms,
    env: &Env,
) -> Result<S::Value, BuildError> {
    match what {
        TableExpr::Term(id) => {
            let mut env = env.clone();
            let made = Instantiator { sink, structural, terms, family: None, ranged: true }.run(
                &[*id],
                &[],
                &mut env,
            )?;
            Ok(made[0])
        }
        TableExpr::Number(_) => Err(BuildError::Value("a number alone is no table".into())),
        TableExpr::Apply(call, parts) => {
            let mut made = Vec::with_capacity(parts.len());
            for part in parts.iter().filter(|p| !matches!(p, TableExpr::Number(_))) {
                made.push(built(part, sink, structural, terms, env)?);
            }
            let ty = sink.ty(made[0]);
            let mut tables = made.into_iter();
            let mut args = Vec::with_capacity(parts.len());
            for part in parts {
                let arg = match part {
                    TableExpr::Number(e) => {
                        let v = eval(e, env).ok().and_then(|a| a.as_f64());
                        let v =
                            v.ok_or_else(|| BuildError::Value(format!("`{e}` is no number")))?;
                        let number = sink.scalar(ty.dtype, v)?;
                        Some(canon::broadcast(sink, structural, number, &[], &ty.shape)?)
                    }
                    TableExpr::Term(_) | TableExpr::Apply(..) => tables.next(),
                };
                args.extend(arg);
            }
            let [first, rest @ ..] = args.as_slice() else {
                return Err(BuildError::Value("an operator without operands".into()));
            };
            if rest.is_empty() {
                return Ok(canon::apply(sink, structural, *call, &[], &[*first])?[0]);
            }
            // A sum or product of any number of operands is a chain of binary ones.
            let mut value = *first;
            for arg in rest {
                value = canon::apply(sink, structural, *call, &[], &[value, *arg])?[0];
            }
            Ok(value)
        }
    }
}

fn names(e: &Expr) -> HashSet<Name> {
    let mut out = HashSet::new();
    e.walk(&mut |e| {
        if let ExprKind::Name(n) | ExprKind::Entry(n, _) = &e.kind {
            out.insert(n.clone());
        }
    });
    out
}

/// What a term is made of.
#[derive(Clone, Copy, PartialEq)]
enum TermContent {
    Variables,
    Numbers,
    Table,
}

/// The terms of a law's left sides without variables whose elements differ: all of them, also those in others. None where a whole side is one.
pub fn tables(library: &Library, law: &Law) -> HashSet<TermId> {
    let mut known = HashMap::new();
    let roots: Vec<TermContent> =
        law.left.iter().map(|s| made(library, &law.terms, s.root, &mut known)).collect();
    if roots.contains(&TermContent::Table) {
        return HashSet::new();
    }
    known.into_iter().filter(|(_, m)| *m == TermContent::Table).map(|(id, _)| id).collect()
}

fn made(
    library: &Library,
    terms: &Terms,
    id: TermId,
    known: &mut HashMap<TermId, TermContent>,
) -> TermContent {
    if let Some(m) = known.get(&id) {
        return *m;
    }
    let t = terms.get(id);
    let args: Vec<TermContent> = t.args.iter().map(|&a| made(library, terms, a, known)).collect();
    let m = match &t.kind {
        TermKind::Scalar(_) => TermContent::Numbers,
        TermKind::Var(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => TermContent::Variables,
        _ if args.contains(&TermContent::Variables) => TermContent::Variables,
        TermKind::Output(_) => TermContent::Table,
        TermKind::Apply(call, _) => {
            let keeps = matches!(library.call(*call).class, OpClass::Pointwise | OpClass::View);
            let numbers = !args.is_empty() && args.iter().all(|m| *m == TermContent::Numbers);
            if keeps && numbers { TermContent::Numbers } else { TermContent::Table }
        }
    };
    known.insert(id, m);
    m
}
