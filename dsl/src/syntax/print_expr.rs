//! Expressions in canonical form, with the fewest parentheses that keep the tree.
//!
//! Two pairs more than needed, for the reader: an access with `else` is enclosed wherever it is an
//! operand, and so is the left product in `(a @ b) @ c`, whose order is what laws are about.

use super::layout::{Doc, enclosed, group, lay_out, nest, text};
use super::terms::{Level, level};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, UnaryOp};

/// An expression in canonical form on one line.
pub fn print_expr(expr: &Expr) -> String {
    lay_out(&group(whole(expr)), usize::MAX)
}

/// An expression that nothing encloses.
pub(super) fn whole(expr: &Expr) -> Doc {
    bare(expr)
}

/// An expression that stands before something else without a comma: `max(a)` and then a name would
/// read as a maximum over the axis `a`.
pub(super) fn before_more(expr: &Expr) -> Doc {
    if ends_like_reduction(expr) { parens(expr) } else { bare(expr) }
}

/// A condition after `if`: with a bare `else` it would make a choice of the expression before it.
pub(super) fn condition(expr: &Expr) -> Doc {
    if ends_like_reduction(expr) { parens(expr) } else { operand(expr, Level::Or) }
}

/// The bound of a range or domain: a sum at most.
pub(super) fn bound(expr: &Expr) -> Doc {
    operand(expr, Level::Sum)
}

fn parens(expr: &Expr) -> Doc {
    Doc::Cat(vec![text("("), nest(bare(expr)), text(")")])
}

// How tightly the outermost form of an expression binds; `None` for forms enclosed in any operand.
fn binding(expr: &Expr) -> Option<Level> {
    match &expr.kind {
        ExprKind::If { .. } | ExprKind::Index { otherwise: Some(_), .. } => None,
        ExprKind::Unary(UnaryOp::Not, _) => Some(Level::Not),
        ExprKind::Unary(UnaryOp::Neg, _) => Some(Level::Negate),
        ExprKind::Int(value) if *value < 0 => Some(Level::Negate),
        ExprKind::Float(value) if value.is_sign_negative() => Some(Level::Negate),
        ExprKind::Binary(op, _, _) => Some(level(*op)),
        ExprKind::Reduce { .. } => Some(Level::Product),
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Size(_)
        | ExprKind::List(_)
        | ExprKind::Tuple(_)
        | ExprKind::Call { .. }
        | ExprKind::Index { otherwise: None, .. } => Some(Level::Access),
    }
}

fn operand(expr: &Expr, least: Level) -> Doc {
    if binding(expr).is_some_and(|binds| binds >= least) { bare(expr) } else { parens(expr) }
}

// Whether the text of an operand of a product ends in a reduction, which would swallow what follows.
fn swallows(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Reduce { .. } => true,
        ExprKind::Unary(UnaryOp::Neg, value) => ends_open(value),
        ExprKind::Binary(op, _, right) => level(*op) == Level::Product && ends_open(right),
        _ => false,
    }
}

fn ends_open(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Reduce { .. })
        || (binding(expr) >= Some(Level::Negate) && swallows(expr))
}

// The last operand of a product or minus sign, where a reduction may stand.
fn last_operand(expr: &Expr) -> Doc {
    match expr.kind {
        ExprKind::Reduce { .. } => bare(expr),
        _ => operand(expr, Level::Negate),
    }
}

fn left_operand(expr: &Expr, op: BinaryOp) -> Doc {
    let least = match level(op) {
        Level::Compare => Level::Sum,
        Level::Power => Level::Access,
        same => same,
    };
    let product = matches!(expr.kind, ExprKind::Binary(BinaryOp::MatMul, _, _));
    if (level(op) == Level::Product && swallows(expr)) || (op == BinaryOp::MatMul && product) {
        return parens(expr);
    }
    operand(expr, least)
}

fn right_operand(expr: &Expr, op: BinaryOp) -> Doc {
    match level(op) {
        Level::Product => last_operand(expr),
        Level::Power if swallows(expr) => parens(expr),
        Level::Power => operand(expr, Level::Negate),
        other => operand(expr, other.tighter()),
    }
}

fn bare(expr: &Expr) -> Doc {
    match &expr.kind {
        ExprKind::Int(value) => text(value.to_string()),
        ExprKind::Float(value) => text(float(*value)),
        ExprKind::Str(value) => text(quoted(value)),
        ExprKind::Bool(value) => text(value.to_string()),
        ExprKind::Name(name) => text(name),
        ExprKind::Size(name) => text(format!("|{name}|")),
        ExprKind::List(elems) => enclosed("[", elems_docs(elems), "]"),
        ExprKind::Tuple(entries) => match entries.as_slice() {
            [one] => Doc::Cat(vec![text("("), bare(one), text(",)")]),
            many => enclosed("(", many.iter().map(bare).collect(), ")"),
        },
        ExprKind::Unary(UnaryOp::Neg, value) => Doc::Cat(vec![text("-"), last_operand(value)]),
        ExprKind::Unary(UnaryOp::Not, value) => {
            Doc::Cat(vec![text("not "), operand(value, Level::Not)])
        }
        ExprKind::Binary(..) => chain(expr),
        ExprKind::Call { callee, args } => {
            enclosed(&format!("{}(", callee.text), args.iter().map(arg).collect(), ")")
        }
        ExprKind::Index { base, index, otherwise } => {
            let access = enclosed(&format!("{}[", base.text), elems_docs(index), "]");
            match otherwise {
                None => access,
                Some(value) => {
                    let value =
                        if swallows(value) { parens(value) } else { operand(value, Level::Negate) };
                    Doc::Cat(vec![access, text(" else "), value])
                }
            }
        }
        ExprKind::Reduce { monoid, axes, body } => {
            let head = enclosed(&format!("{}(", monoid.text), elems_docs(axes), ")");
            let body =
                if begins_no_term(body) { parens(body) } else { operand(body, Level::Product) };
            Doc::Cat(vec![head, text(" "), body])
        }
        ExprKind::If { cond, then, otherwise } => {
            let last = match otherwise.kind {
                ExprKind::If { .. } => bare(otherwise),
                _ => operand(otherwise, Level::Or),
            };
            group(Doc::Cat(vec![
                operand(then, Level::Or),
                nest(Doc::Cat(vec![
                    Doc::Line,
                    text("if "),
                    operand(cond, Level::Or),
                    Doc::Line,
                    text("else "),
                    last,
                ])),
            ]))
        }
    }
}

// A run of operators of one level, broken before each of them or before none.
fn chain(expr: &Expr) -> Doc {
    let mut first = expr;
    let mut links = Vec::new();
    while let ExprKind::Binary(op, left, right) = &first.kind {
        let same = links.is_empty()
            || (binding(first) == binding(expr)
                && !matches!(level(*op), Level::Compare | Level::Power));
        let products = links.last().is_some_and(|(last, _)| *last == BinaryOp::MatMul)
            && *op == BinaryOp::MatMul;
        let enclosed =
            !links.is_empty() && (products || level(*op) == Level::Product && swallows(first));
        if !same || enclosed {
            break;
        }
        links.push((*op, right));
        first = left;
    }
    let Some((op, _)) = links.last() else { return text("") };
    let head = left_operand(first, *op);
    let mut tail = Vec::new();
    for (op, right) in links.into_iter().rev() {
        let tight = op == BinaryOp::Pow;
        tail.push(if tight { Doc::Soft } else { Doc::Line });
        tail.push(text(if tight { "^".to_string() } else { format!("{} ", sign(op)) }));
        tail.push(right_operand(right, op));
    }
    group(Doc::Cat(vec![head, nest(Doc::Cat(tail))]))
}

// After `sum(k)` a minus sign is a difference and a string is the next clause's.
fn begins_no_term(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Unary(UnaryOp::Neg, _) | ExprKind::Str(_) => true,
        ExprKind::Int(_) | ExprKind::Float(_) => binding(expr) == Some(Level::Negate),
        ExprKind::Binary(op, left, _) => {
            binding(left).is_some_and(|binds| binds >= level(*op)) && begins_no_term(left)
        }
        _ => false,
    }
}

fn ends_like_reduction(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Call { callee, args } => {
            let name =
                |arg: &Arg| arg.name.is_none() && matches!(arg.value.kind, ExprKind::Name(_));
            is_monoid(&callee.text) && args.iter().all(name)
        }
        ExprKind::Unary(_, value) => ends_like_reduction(value),
        ExprKind::Binary(_, _, right) => ends_like_reduction(right),
        ExprKind::Reduce { body, .. } => ends_like_reduction(body),
        ExprKind::If { otherwise, .. } => ends_like_reduction(otherwise),
        ExprKind::Index { otherwise: Some(value), .. } => ends_like_reduction(value),
        _ => false,
    }
}

fn is_monoid(name: &str) -> bool {
    matches!(name, "sum" | "prod" | "max" | "min" | "mean" | "any" | "all")
}

/// The elements of a list, shape or index.
pub(super) fn elems_docs(elems: &[Elem]) -> Vec<Doc> {
    let one = |elem: &Elem| match elem {
        Elem::One(expr) => bare(expr),
        Elem::Splice(expr) => Doc::Cat(vec![text(".."), bare(expr)]),
    };
    elems.iter().map(one).collect()
}

fn arg(arg: &Arg) -> Doc {
    let mut parts = Vec::new();
    if arg.each {
        parts.push(text("each "));
    }
    if let Some(name) = &arg.name {
        parts.push(text(format!("{}=", name.text)));
    }
    parts.push(bare(&arg.value));
    Doc::Cat(parts)
}

/// The sign or word of an infix operator.
pub(super) fn sign(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Or => "or",
        BinaryOp::And => "and",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::Lt => "<",
        BinaryOp::Le => "<=",
        BinaryOp::Gt => ">",
        BinaryOp::Ge => ">=",
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Mod => "%",
        BinaryOp::MatMul => "@",
        BinaryOp::Pow => "^",
    }
}

/// A number that reads back as the same float and never as an integer.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let size = value.abs();
    if value == 0.0 || (1e-2..1e6).contains(&size) {
        format!("{value:?}")
    } else {
        format!("{value:e}")
    }
}

/// A string between quotes, with escapes.
pub(super) fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
