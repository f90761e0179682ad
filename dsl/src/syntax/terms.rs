//! Builds expression trees from the flat sequences of the grammar.

use pest::iterators::Pair;

use super::build::{TreeBuilder, last_span};
use super::parse::Rule;
use super::scan::MAX_NESTING;
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, Ident, Span, UnaryOp};

/// Trees deeper than this are refused: those who walk them are recursive.
const MAX_DEPTH: u32 = 256;

/// How tightly operators bind, loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Precedence {
    Or,
    And,
    Not,
    Compare,
    Sum,
    Product,
    Negate,
    Power,
    Access,
}

impl Precedence {
    /// The next tighter one.
    pub(super) fn tighter(self) -> Precedence {
        match self {
            Precedence::Or => Precedence::And,
            Precedence::And => Precedence::Not,
            Precedence::Not => Precedence::Compare,
            Precedence::Compare => Precedence::Sum,
            Precedence::Sum => Precedence::Product,
            Precedence::Product => Precedence::Negate,
            Precedence::Negate => Precedence::Power,
            Precedence::Power | Precedence::Access => Precedence::Access,
        }
    }
}

/// The level of an infix operator.
pub(super) fn level(op: BinaryOp) -> Precedence {
    match op {
        BinaryOp::Or => Precedence::Or,
        BinaryOp::And => Precedence::And,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            Precedence::Compare
        }
        BinaryOp::Add | BinaryOp::Sub => Precedence::Sum,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::MatMul => Precedence::Product,
        BinaryOp::Pow => Precedence::Power,
    }
}

pub(super) fn infix(sign: &str) -> Option<BinaryOp> {
    Some(match sign {
        "or" => BinaryOp::Or,
        "and" => BinaryOp::And,
        "==" => BinaryOp::Eq,
        "!=" => BinaryOp::Ne,
        "<" => BinaryOp::Lt,
        "<=" => BinaryOp::Le,
        ">" => BinaryOp::Gt,
        ">=" => BinaryOp::Ge,
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Sub,
        "*" => BinaryOp::Mul,
        "/" => BinaryOp::Div,
        "%" => BinaryOp::Mod,
        "@" => BinaryOp::MatMul,
        "^" => BinaryOp::Pow,
        _ => return None,
    })
}

// An expression and its depth as a tree.
type ExprWithDepth = (Expr, u32);

/// The parts of one run that are not yet read.
struct OperatorRun<'i> {
    parts: std::iter::Peekable<std::vec::IntoIter<Pair<'i, Rule>>>,
}

impl TreeBuilder {
    /// An `expr` or `bound`.
    pub(super) fn expr(&mut self, pair: Pair<'_, Rule>) -> Expr {
        self.expr_with_depth(pair, Precedence::Or).0
    }

    /// A `bound`: nothing looser than a sum.
    pub(super) fn bound(&mut self, pair: Pair<'_, Rule>) -> Expr {
        self.expr_with_depth(pair, Precedence::Sum).0
    }

    fn expr_with_depth(&mut self, pair: Pair<'_, Rule>, least: Precedence) -> ExprWithDepth {
        let at = self.span(&pair);
        // `v0 if c1 else v1 if c2 else v2` comes as the runs v0, c1, v1, c2, v2.
        let mut runs: Vec<Vec<Pair<'_, Rule>>> = vec![Vec::new()];
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::kw_if | Rule::kw_else => runs.push(Vec::new()),
                _ => {
                    if let Some(run) = runs.last_mut() {
                        run.push(part);
                    }
                }
            }
        }
        let mut values: Vec<ExprWithDepth> =
            runs.into_iter().map(|run| self.run(run, least, at)).collect();
        let Some(mut result) = values.pop() else { return self.placeholder(at) };
        while let (Some(cond), Some(then)) = (values.pop(), values.pop()) {
            let depth = 1 + result.1.max(cond.1).max(then.1);
            let span = then.0.span.to(result.0.span);
            let kind = ExprKind::If {
                cond: Box::new(cond.0),
                then: Box::new(then.0),
                otherwise: Box::new(result.0),
            };
            result = self.deep(kind, span, depth);
        }
        result
    }

    fn run(&mut self, parts: Vec<Pair<'_, Rule>>, least: Precedence, at: Span) -> ExprWithDepth {
        let mut run = OperatorRun { parts: parts.into_iter().peekable() };
        let value = self.climb(&mut run, least, at);
        if let Some(rest) = run.parts.next() {
            // Only a bound stops before the end of its run.
            let at = self.span(&rest);
            let message = format!("`{}` cannot follow a bound", rest.as_str());
            self.report(
                Diag::error(Code("S001"), message, at)
                    .help("put the comparison into an `if` clause, or the bound into parentheses"),
            );
        }
        value
    }

    // Precedence climbing; `at` is where to complain if parts run out, which the grammar excludes.
    fn climb(&mut self, run: &mut OperatorRun<'_>, least: Precedence, at: Span) -> ExprWithDepth {
        if self.nesting > MAX_DEPTH + MAX_NESTING as u32 {
            while run.parts.next().is_some() {}
            return self.too_deep(at);
        }
        self.nesting += 1;
        let result = self.climb_inside(run, least, at);
        self.nesting -= 1;
        result
    }

    fn climb_inside(
        &mut self,
        run: &mut OperatorRun<'_>,
        least: Precedence,
        at: Span,
    ) -> ExprWithDepth {
        let Some(part) = run.parts.next() else { return self.placeholder(at) };
        let start = self.span(&part);
        let mut left = match part.as_rule() {
            Rule::minus => self.prefixed(run, UnaryOp::Neg, Precedence::Negate, start),
            Rule::kw_not => self.prefixed(run, UnaryOp::Not, Precedence::Not, start),
            Rule::reduction => {
                let (monoid, axes) = self.reduction(part);
                let (body, deep) = self.climb(run, Precedence::Product, start);
                let span = start.to(body.span);
                self.deep(ExprKind::Reduce { monoid, axes, body: Box::new(body) }, span, deep + 1)
            }
            _ => self.atom(part),
        };
        let mut compared: Option<Span> = None;
        while let Some(next) = run.parts.peek() {
            let rule = next.as_rule();
            let sign = self.span(next);
            if rule == Rule::outside {
                run.parts.next();
                let (value, deep) = self.climb(run, Precedence::Negate, sign);
                left = self.outside(left, value, deep, sign);
                continue;
            }
            let Some(op) = infix(next.as_str()) else { break };
            let binds = level(op);
            if binds < least {
                break;
            }
            run.parts.next();
            if binds == Precedence::Compare
                && let Some(other) = compared.replace(sign)
            {
                self.report(
                    Diag::error(Code("S010"), "comparisons do not chain", sign)
                        .here("a second comparison")
                        .also(other, "the first comparison")
                        .help("join two comparisons with `and`, or add parentheses"),
                );
            }
            let inner =
                if binds == Precedence::Power { Precedence::Negate } else { binds.tighter() };
            let (right, deep) = self.climb(run, inner, sign);
            let span = left.0.span.to(right.span);
            let deep = 1 + deep.max(left.1);
            left = self.deep(ExprKind::Binary(op, Box::new(left.0), Box::new(right)), span, deep);
        }
        left
    }

    fn prefixed(
        &mut self,
        run: &mut OperatorRun<'_>,
        op: UnaryOp,
        binds: Precedence,
        start: Span,
    ) -> ExprWithDepth {
        let (value, deep) = self.climb(run, binds, start);
        let span = start.to(value.span);
        self.deep(ExprKind::Unary(op, Box::new(value)), span, deep + 1)
    }

    // `left else value`.
    fn outside(
        &mut self,
        left: ExprWithDepth,
        value: Expr,
        deep: u32,
        sign: Span,
    ) -> ExprWithDepth {
        let (left, left_deep) = left;
        let span = left.span.to(value.span);
        match left.kind {
            ExprKind::Index { base, index, otherwise: None } => {
                let kind = ExprKind::Index { base, index, otherwise: Some(Box::new(value)) };
                self.deep(kind, span, 1 + left_deep.max(deep))
            }
            _ => {
                self.report(
                    Diag::error(Code("S016"), "`else` needs an element access or an `if`", sign)
                        .also(left.span, "not an element access such as `x[i - 1]`")
                        .help("`x[i] else 0` is 0 outside of `x`; a choice is `a if c else b`"),
                );
                (left, left_deep)
            }
        }
    }

    fn deep(&mut self, kind: ExprKind, span: Span, depth: u32) -> ExprWithDepth {
        if depth > MAX_DEPTH { self.too_deep(span) } else { (Expr { kind, span }, depth) }
    }

    fn too_deep(&mut self, at: Span) -> ExprWithDepth {
        if !self.failed {
            let message = format!("this expression nests deeper than {MAX_DEPTH} operators");
            self.report(
                Diag::error(Code("S004"), message, at)
                    .help("give inner parts a name, for example with `let`"),
            );
        }
        self.placeholder(at)
    }

    fn placeholder(&mut self, at: Span) -> ExprWithDepth {
        self.failed = true;
        (Expr { kind: ExprKind::Bool(false), span: at }, 1)
    }

    fn reduction(&mut self, pair: Pair<'_, Rule>) -> (Ident, Vec<Elem>) {
        let mut monoid = Ident { text: String::new(), span: self.span(&pair) };
        let mut axes = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::monoid => monoid = self.ident(&part),
                Rule::axis => {
                    let splice = part.clone().into_inner().any(|p| p.as_rule() == Rule::dots);
                    for name in part.into_inner().filter(|p| p.as_rule() == Rule::ident) {
                        let span = self.span(&name);
                        let expr = Expr { kind: ExprKind::Name(name.as_str().into()), span };
                        axes.push(if splice { Elem::Splice(expr) } else { Elem::One(expr) });
                    }
                }
                _ => {}
            }
        }
        (monoid, axes)
    }

    fn atom(&mut self, pair: Pair<'_, Rule>) -> ExprWithDepth {
        let span = self.span(&pair);
        let kind = match pair.as_rule() {
            Rule::int => ExprKind::Int(self.int(&pair)),
            Rule::float => ExprKind::Float(self.float(&pair)),
            Rule::string => ExprKind::Str(self.string(&pair)),
            Rule::truth => ExprKind::Bool(pair.as_str() == "true"),
            Rule::size => {
                let name = pair.into_inner().find(|p| p.as_rule() == Rule::ident);
                ExprKind::Size(name.map_or_else(String::new, |p| p.as_str().into()))
            }
            Rule::list => {
                let (elems, depth) = self.elems_deep(pair);
                return self.deep(ExprKind::List(elems), span, depth + 1);
            }
            Rule::group => return self.group(pair, span),
            Rule::reference => return self.reference(pair, span),
            _ => return self.placeholder(span),
        };
        (Expr { kind, span }, 1)
    }

    fn group(&mut self, pair: Pair<'_, Rule>, span: Span) -> ExprWithDepth {
        let index = pair.clone().into_inner().find(|p| p.as_rule() == Rule::index);
        let close = pair.clone().into_inner().find(|p| p.as_rule() == Rule::rparen);
        let inside =
            close.map_or(span, |close| Span { start: span.start, end: self.span(&close).end });
        let group = self.parenthesised(pair, inside);
        self.axes(group, index, span)
    }

    fn parenthesised(&mut self, pair: Pair<'_, Rule>, span: Span) -> ExprWithDepth {
        let mut entries: Vec<ExprWithDepth> = Vec::new();
        let mut comma = false;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::comma => comma = true,
                Rule::expr => entries.push(self.expr_with_depth(part, Precedence::Or)),
                _ => {}
            }
        }
        if !comma && entries.len() == 1 {
            return match entries.pop() {
                Some((expr, depth)) => (Expr { span, ..expr }, depth),
                None => self.placeholder(span),
            };
        }
        let depth = 1 + entries.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
        let entries = entries.into_iter().map(|(expr, _)| expr).collect();
        self.deep(ExprKind::Tuple(entries), span, depth)
    }

    fn reference(&mut self, pair: Pair<'_, Rule>, span: Span) -> ExprWithDepth {
        let mut parts = pair.into_inner();
        let Some(name) = parts.next() else { return self.placeholder(span) };
        let name = self.ident(&name);
        match parts.next() {
            None => (Expr { kind: ExprKind::Name(name.text), span }, 1),
            Some(part) if part.as_rule() == Rule::args => {
                let (args, depth) = self.args(part.clone());
                let of = name.span.to(self.span(&part));
                let call = self.deep(ExprKind::Call { callee: name, args }, of, depth + 1);
                self.axes(call, parts.next(), span)
            }
            Some(part) => {
                let (index, depth) = self.elems_deep(part);
                self.deep(ExprKind::Index { base: name, index, otherwise: None }, span, depth + 1)
            }
        }
    }

    /// `of[…]`, if there is an index.
    fn axes(
        &mut self,
        of: ExprWithDepth,
        index: Option<Pair<'_, Rule>>,
        span: Span,
    ) -> ExprWithDepth {
        let Some(index) = index else { return of };
        let (index, depth) = self.elems_deep(index);
        let (of, deep) = of;
        self.deep(ExprKind::Axes { of: Box::new(of), index }, span, 1 + depth.max(deep))
    }

    fn args(&mut self, pair: Pair<'_, Rule>) -> (Vec<Arg>, u32) {
        let (mut args, mut deepest) = (Vec::new(), 0);
        for part in pair.into_inner().filter(|p| p.as_rule() == Rule::arg) {
            let (mut each, mut name) = (false, None);
            let pack = part.clone().into_inner().any(|p| p.as_rule() == Rule::variadic_mark);
            for part in part.into_inner() {
                match part.as_rule() {
                    Rule::variadic_mark => {}
                    Rule::kw_each => each = true,
                    Rule::arg_name => name = part.into_inner().next().map(|p| self.ident(&p)),
                    _ => {
                        let (value, depth) = self.expr_with_depth(part, Precedence::Or);
                        deepest = deepest.max(depth);
                        args.push(Arg { name: name.take(), each, pack, value });
                    }
                }
            }
        }
        (args, deepest)
    }

    /// The elements of a `list` or `index`.
    pub(super) fn elems(&mut self, pair: Pair<'_, Rule>) -> Vec<Elem> {
        self.elems_deep(pair).0
    }

    fn elems_deep(&mut self, pair: Pair<'_, Rule>) -> (Vec<Elem>, u32) {
        let (mut elems, mut deepest) = (Vec::new(), 0);
        for part in pair.into_inner().filter(|p| p.as_rule() == Rule::elem) {
            let mut splice = false;
            for part in part.into_inner() {
                if part.as_rule() == Rule::dots {
                    splice = true;
                    continue;
                }
                let (value, depth) = self.expr_with_depth(part, Precedence::Or);
                deepest = deepest.max(depth);
                elems.push(if splice { Elem::Splice(value) } else { Elem::One(value) });
            }
        }
        (elems, deepest)
    }

    /// Where a pair stands in the whole text, without blanks at its end.
    pub(super) fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        let span = last_span(pair);
        Span { start: span.start + self.base, end: span.end + self.base }
    }
}
