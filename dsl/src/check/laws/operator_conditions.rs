//! Conditions of a schema about operators, decided when it is instantiated.

use super::super::meaning::operator_properties;
use super::schema::Writer;
use crate::check::report::error;
use crate::diagnostics::Diag;
use crate::library::{CallId, CallKind};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Rule, UnaryOp};
use std::collections::BTreeSet;

/// The properties of operators that conditions may ask for.
const PROPERTIES: &[&str] = &[
    "primitive",
    "increasing",
    "linear",
    "odd",
    "keeps_zero",
    "idempotent",
    "selects",
    "joins",
    "count",
];

impl Writer<'_, '_> {
    /// True if the operators are what every condition on them asks for.
    pub(crate) fn holds(&self, rule: &Rule) -> Result<bool, Diag> {
        let asked = rule.conditions.iter().chain(&rule.hints).filter(|e| self.plan.asks(e));
        for e in asked {
            if !self.truth(e)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn truth(&self, e: &Expr) -> Result<bool, Diag> {
        Ok(match &e.kind {
            ExprKind::Unary(UnaryOp::Not, a) => !self.truth(a)?,
            ExprKind::Binary(BinaryOp::And, a, b) => self.truth(a)? && self.truth(b)?,
            ExprKind::Binary(BinaryOp::Or, a, b) => self.truth(a)? || self.truth(b)?,
            ExprKind::Binary(BinaryOp::Eq, a, b) => self.named(a)? == self.named(b)?,
            ExprKind::Binary(BinaryOp::Ne, a, b) => self.named(a)? != self.named(b)?,
            ExprKind::Binary(BinaryOp::Gt, a, b) => match (&a.kind, &b.kind) {
                (ExprKind::Call { callee, args }, ExprKind::Int(n)) if callee.text == "count" => {
                    let pack = args.first().and_then(|a| self.plan.free(&a.value).first().copied());
                    self.members(pack.unwrap_or_default()).len() as i64 > *n
                }
                _ => return Err(not_a_condition(e)),
            },
            ExprKind::Call { callee, args } => {
                let of = |i: usize| match args.get(i).map(|a| self.named(&a.value)) {
                    Some(id) => id,
                    None => Err(not_a_condition(e)),
                };
                let c = |i: usize| of(i).map(|id: CallId| self.library.call(id));
                match callee.text.as_str() {
                    "primitive" => matches!(c(0)?.kind, CallKind::Op(_)),
                    "increasing" => operator_properties::increasing(c(0)?),
                    "linear" => operator_properties::linear(c(0)?),
                    "idempotent" => operator_properties::idempotent(c(0)?),
                    "odd" => operator_properties::odd(c(0)?),
                    "keeps_zero" => operator_properties::keeps_zero(c(0)?),
                    "selects" => operator_properties::selects(c(0)?),
                    "joins" => operator_properties::joins(c(0)?, c(1)?),
                    _ => return Err(not_a_condition(e)),
                }
            }
            _ => return Err(not_a_condition(e)),
        })
    }

    /// The operator of a name: a variable's, or the one that bears it.
    fn named(&self, e: &Expr) -> Result<CallId, Diag> {
        let ExprKind::Name(n) = &e.kind else { return Err(not_a_condition(e)) };
        if let Some(v) = self.plan.variables.iter().position(|v| v.name == n) {
            return Ok(self.calls[v]);
        }
        self.library.find(n).ok_or_else(|| {
            let names = self.library.calls.iter().map(|c| &*c.name);
            let help = crate::check::report::suggest(n, names)
                .unwrap_or_else(|| "name an operator".into());
            error("R003", e.span, format!("`{n}` is not an operator"), &help)
        })
    }
}

/// True if a condition asks for more of an operator than that it be primitive and how many operands it has.
pub(crate) fn reads_meaning(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Unary(UnaryOp::Not, a) => reads_meaning(a),
        ExprKind::Binary(BinaryOp::Gt, a, _) => reads_meaning(a),
        ExprKind::Call { callee, .. } => !matches!(callee.text.as_str(), "primitive" | "count"),
        _ => true,
    }
}

/// The operators that a variable must be one of, as far as a condition names them.
pub(crate) fn choice<'e>(e: &'e Expr, variable: &str) -> Option<BTreeSet<&'e str>> {
    match &e.kind {
        ExprKind::Binary(BinaryOp::Eq, a, b) => match (&a.kind, &b.kind) {
            (ExprKind::Name(v), ExprKind::Name(n)) if v == variable => Some([n.as_str()].into()),
            _ => None,
        },
        ExprKind::Binary(BinaryOp::And, a, b) => {
            choice(a, variable).or_else(|| choice(b, variable))
        }
        ExprKind::Binary(BinaryOp::Or, a, b) => Some(&choice(a, variable)? | &choice(b, variable)?),
        _ => None,
    }
}

fn not_a_condition(e: &Expr) -> Diag {
    let message = "this is not a condition on an operator".to_string();
    let help = format!(
        "compare it with an operator (`f != add`), or ask for one of {}",
        PROPERTIES.join(", ")
    );
    error("R026", e.span, message, &help)
}
