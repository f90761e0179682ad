//! Prints expressions in canonical form, with the fewest parentheses that preserve the tree.
//!
//! A few more than necessary, for readability: an access with `else` is parenthesised wherever it is an
//! operand, as are a product next to another kind of product (`(k * x) @ w`, `(a @ b) @ c`), the operand of `not`,
//! a product that is reduced inside another (`k * sum(n) (x * x)`), and a choice among entries of a list.

use super::pretty::{Doc, block, call, commas, enclosed, group, lay_out, nest, text};
use super::terms::{Precedence, level};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, Ident, UnaryOp};

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
    if ends_like_reduction(expr) { parens(expr) } else { operand(expr, Precedence::Or) }
}

/// The bound of a range or domain: a sum at most.
pub(super) fn bound(expr: &Expr) -> Doc {
    operand(expr, Precedence::Sum)
}

fn parens(expr: &Expr) -> Doc {
    enclosed("(", vec![bare(expr)], ")")
}

// How tightly the outermost form of an expression binds; `None` for forms enclosed in any operand.
fn binding(expr: &Expr) -> Option<Precedence> {
    match &expr.kind {
        ExprKind::If { .. } | ExprKind::Index { otherwise: Some(_), .. } => None,
        ExprKind::Unary(UnaryOp::Not, _) => Some(Precedence::Not),
        ExprKind::Unary(UnaryOp::Neg, _) => Some(Precedence::Negate),
        ExprKind::Int(value) if *value < 0 => Some(Precedence::Negate),
        ExprKind::Float(value) if value.is_sign_negative() => Some(Precedence::Negate),
        ExprKind::Binary(op, _, _) => Some(level(*op)),
        ExprKind::Reduce { .. } => Some(Precedence::Product),
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Size(_)
        | ExprKind::List(_)
        | ExprKind::Tuple(_)
        | ExprKind::Call { .. }
        | ExprKind::Axes { .. }
        | ExprKind::Index { otherwise: None, .. } => Some(Precedence::Access),
    }
}

fn operand(expr: &Expr, least: Precedence) -> Doc {
    if binding(expr).is_some_and(|binds| binds >= least) { bare(expr) } else { parens(expr) }
}

// Whether the text of an operand of a product ends in a reduction, which would swallow what follows.
fn swallows(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Reduce { .. } => true,
        ExprKind::Unary(UnaryOp::Neg, value) => ends_open(value),
        ExprKind::Binary(op, _, right) => level(*op) == Precedence::Product && ends_open(right),
        _ => false,
    }
}

fn ends_open(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Reduce { .. })
        || (binding(expr) >= Some(Precedence::Negate) && swallows(expr))
}

// The last operand of a product or minus sign, where a reduction may stand.
fn last_operand(expr: &Expr) -> Doc {
    match &expr.kind {
        ExprKind::Reduce { monoid, axes, body } => {
            reduction(monoid, axes, body, Precedence::Negate)
        }
        _ => operand(expr, Precedence::Negate),
    }
}

// Whether the left operand of `op` is enclosed although it binds tightly enough.
fn encloses_left(expr: &Expr, op: BinaryOp) -> bool {
    let plain = |op| matches!(op, BinaryOp::Mul | BinaryOp::Div);
    let mixed = match expr.kind {
        ExprKind::Binary(inner, _, _) => {
            level(inner) == Precedence::Product && !(plain(inner) && plain(op))
        }
        _ => false,
    };
    level(op) == Precedence::Product && (mixed && !is_long(expr) || swallows(expr))
}

/// Products, or denials, in a row that are enclosed one by one; brackets nest no deeper than what is read back.
const ENCLOSED: usize = 16;

fn denies_often(expr: &Expr) -> bool {
    let mut inner = expr;
    for _ in 0..ENCLOSED {
        match &inner.kind {
            ExprKind::Unary(UnaryOp::Not, value) => inner = value,
            _ => return false,
        }
    }
    true
}

fn is_long(expr: &Expr) -> bool {
    let mut left = expr;
    for _ in 0..ENCLOSED {
        match &left.kind {
            ExprKind::Binary(op, inner, _) if level(*op) == Precedence::Product => left = inner,
            _ => return false,
        }
    }
    true
}

fn encloses(left: &Expr, op: BinaryOp) -> bool {
    let least = match level(op) {
        Precedence::Compare => Precedence::Sum,
        Precedence::Power => Precedence::Access,
        same => same,
    };
    encloses_left(left, op) || binding(left).is_none_or(|binds| binds < least)
}

fn left_operand(expr: &Expr, op: BinaryOp) -> Doc {
    if encloses(expr, op) { parens(expr) } else { bare(expr) }
}

// An operand after `before` in a run; two reductions in a product look alike.
fn right_operand(before: &Expr, expr: &Expr, op: BinaryOp) -> Doc {
    match level(op) {
        Precedence::Product if swallows(before) && swallows(expr) => parens(expr),
        Precedence::Product => last_operand(expr),
        Precedence::Power if swallows(expr) => parens(expr),
        Precedence::Power => operand(expr, Precedence::Negate),
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
        ExprKind::List(elems) => block("[", commas(elems_docs(elems)), "]"),
        ExprKind::Tuple(entries) => match entries.as_slice() {
            [one] => Doc::Cat(vec![text("("), bare(one), text(",)")]),
            many => enclosed("(", many.iter().map(bare).collect(), ")"),
        },
        ExprKind::Unary(UnaryOp::Neg, value) => Doc::Cat(vec![text("-"), last_operand(value)]),
        ExprKind::Unary(UnaryOp::Not, value) => {
            let value =
                if denies_often(value) { bare(value) } else { operand(value, Precedence::Power) };
            Doc::Cat(vec![text("not "), value])
        }
        ExprKind::Binary(..) => chain(expr),
        ExprKind::Call { callee, args } => {
            let own_lines = args.iter().rposition(|a| a.name.is_none() && !is_short(&a.value));
            let own_lines = own_lines.map_or(0, |last| last + 1);
            call(&format!("{}(", callee.text), args.iter().map(arg).collect(), own_lines)
        }
        ExprKind::Axes { of, index } => {
            // Behind what reads like the head of a reduction, an index would be a list that is reduced.
            let applied = matches!(of.kind, ExprKind::Call { .. }) && !ends_like_reduction(of);
            let of = if applied { bare(of) } else { parens(of) };
            Doc::Cat(vec![of, block("[", commas(elems_docs(index)), "]")])
        }
        ExprKind::Index { base, index, otherwise } => {
            let access = block(&format!("{}[", base.text), commas(elems_docs(index)), "]");
            match otherwise {
                None => access,
                Some(value) => {
                    let value = if swallows(value) {
                        parens(value)
                    } else {
                        operand(value, Precedence::Negate)
                    };
                    Doc::Cat(vec![access, text(" else "), value])
                }
            }
        }
        ExprKind::Reduce { monoid, axes, body } => {
            reduction(monoid, axes, body, Precedence::Product)
        }
        ExprKind::If { cond, then, otherwise } => {
            let last = match otherwise.kind {
                ExprKind::If { .. } => bare(otherwise),
                _ => operand(otherwise, Precedence::Or),
            };
            group(Doc::Hang(vec![
                operand(then, Precedence::Or),
                Doc::Cat(vec![text("if "), operand(cond, Precedence::Or)]),
                Doc::Cat(vec![text("else "), last]),
            ]))
        }
    }
}

fn reduction(monoid: &Ident, axes: &[Elem], body: &Expr, least: Precedence) -> Doc {
    let head = block(&format!("{}(", monoid.text), commas(elems_docs(axes)), ")");
    let body = if begins_no_term(body) { parens(body) } else { operand(body, least) };
    Doc::Cat(vec![head, text(" "), body])
}

// Names and numbers, which share a line with others.
fn is_short(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Name(_)
        | ExprKind::Size(_) => true,
        ExprKind::Unary(_, value) => is_short(value),
        _ => false,
    }
}

// A run of operators of one level, broken before each of them or before none.
fn chain(expr: &Expr) -> Doc {
    let mut first = expr;
    let mut links = Vec::new();
    while let ExprKind::Binary(op, left, right) = &first.kind {
        let same = links.is_empty()
            || (binding(first) == binding(expr)
                && !matches!(level(*op), Precedence::Compare | Precedence::Power));
        if !same || links.last().is_some_and(|(last, _)| encloses_left(first, *last)) {
            break;
        }
        links.push((*op, right));
        first = left;
    }
    let Some((op, last)) = links.last() else { return text("") };
    let head = left_operand(first, *op);
    if links.len() == 1 && holds_together(first, *op, last) {
        let sign = op.sign();
        let between = if is_exponent(*op, last) { sign.to_string() } else { format!(" {sign} ") };
        return Doc::Cat(vec![head, text(between), right_operand(first, last, *op)]);
    }
    let mut tail = Vec::new();
    let mut before = first;
    for (op, right) in links.into_iter().rev() {
        tail.extend([Doc::Line, text(format!("{} ", op.sign())), right_operand(before, right, op)]);
        before = right;
    }
    group(Doc::Cat(vec![head, nest(Doc::Cat(tail))]))
}

// Whether `left op right` breaks inside `right` only.
fn holds_together(left: &Expr, op: BinaryOp, right: &Expr) -> bool {
    let opens = matches!(right.kind, ExprKind::Call { .. } | ExprKind::List(_));
    is_exponent(op, right) || (is_short(left) && opens)
}

// Whether `right` stands after `^` without blanks.
fn is_exponent(op: BinaryOp, right: &Expr) -> bool {
    let short = |expr: &Expr| is_short(expr) && binding(expr) != Some(Precedence::Negate);
    let power = match &right.kind {
        ExprKind::Binary(inner, base, exponent) => short(base) && is_exponent(*inner, exponent),
        _ => false,
    };
    op == BinaryOp::Pow && (short(right) || power)
}

// After `sum(k)` a minus sign is a difference and a string is the next clause's.
fn begins_no_term(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Unary(UnaryOp::Neg, _) | ExprKind::Str(_) => true,
        ExprKind::Int(_) | ExprKind::Float(_) => binding(expr) == Some(Precedence::Negate),
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
        Elem::One(expr) if elems.len() > 1 && matches!(expr.kind, ExprKind::If { .. }) => {
            parens(expr)
        }
        Elem::One(expr) => bare(expr),
        // `..(a + b) / c` would look as if `(a + b)` alone were spliced.
        Elem::Splice(expr) if opens_with_parenthesis(expr) => {
            Doc::Cat(vec![text(".."), parens(expr)])
        }
        Elem::Splice(expr) => Doc::Cat(vec![text(".."), bare(expr)]),
    };
    elems.iter().map(one).collect()
}

fn opens_with_parenthesis(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Binary(op, left, _) => encloses(left, *op) || opens_with_parenthesis(left),
        _ => false,
    }
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
    if arg.pack {
        parts.push(text("..."));
    }
    Doc::Cat(parts)
}

impl BinaryOp {
    /// The sign or word of the language.
    pub fn sign(self) -> &'static str {
        match self {
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
    if value == 0.0 || (1e-3..1e6).contains(&size) {
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
