//! Builds the syntax tree of an item from its parse: names, numbers and what items have in common.
//!
//! Reports what the grammar accepts but the language does not, and continues.

use pest::iterators::Pair;

use super::parse::Rule;
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::{Binding, ErrorClause, Expr, Ident, Output, RuleTest, Side, Span};

/// Builds the tree of one item.
pub(super) struct TreeBuilder {
    /// Where that text begins in the whole.
    pub base: u32,
    /// Mistakes found.
    pub diags: Vec<Diag>,
    /// The tree is not what was written and must not be used.
    pub failed: bool,
    /// How many calls deep the reading of an expression is.
    pub nesting: u32,
}

/// The span of a pair in its item, up to the end of its last token: pest counts blanks before an
/// absent optional part.
pub(super) fn last_span(pair: &Pair<'_, Rule>) -> Span {
    let start = pair.as_span().start();
    let mut last = pair.clone();
    while let Some(next) = last.clone().into_inner().next_back() {
        last = next;
    }
    Span { start: start as u32, end: last.as_span().end().max(start) as u32 }
}

impl TreeBuilder {
    pub(super) fn report(&mut self, diag: Diag) {
        self.diags.push(diag);
    }

    pub(super) fn ident(&self, pair: &Pair<'_, Rule>) -> Ident {
        Ident { text: pair.as_str().to_string(), span: self.span(pair) }
    }

    pub(super) fn inner_ident(&self, pair: Pair<'_, Rule>) -> Ident {
        let whole = self.span(&pair);
        let found = pair.into_inner().find(|p| matches!(p.as_rule(), Rule::ident | Rule::class));
        found.map_or(Ident { text: String::new(), span: whole }, |p| self.ident(&p))
    }

    pub(super) fn int(&mut self, pair: &Pair<'_, Rule>) -> i64 {
        pair.as_str().parse().unwrap_or_else(|_| {
            let at = self.span(pair);
            self.report(
                Diag::error(Code("S008"), "this integer is too large", at)
                    .help(format!("the largest is {}", i64::MAX)),
            );
            0
        })
    }

    pub(super) fn small_int(&mut self, pair: &Pair<'_, Rule>) -> u32 {
        let value = self.int(pair);
        u32::try_from(value).unwrap_or_else(|_| {
            let at = self.span(pair);
            self.report(Diag::error(Code("S008"), "this version is too large", at));
            0
        })
    }

    pub(super) fn float(&mut self, pair: &Pair<'_, Rule>) -> f64 {
        match pair.as_str().parse::<f64>() {
            Ok(value) if value.is_finite() => value,
            _ => {
                let at = self.span(pair);
                self.report(
                    Diag::error(Code("S008"), "this number is too large", at)
                        .help("infinity is written `inf`"),
                );
                0.0
            }
        }
    }

    pub(super) fn string(&mut self, pair: &Pair<'_, Rule>) -> String {
        let whole = self.span(pair);
        let text = pair.as_str();
        let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        let mut out = String::new();
        let mut rest = text.char_indices();
        while let Some((at, c)) = rest.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            match escape(&text[at + 1..]) {
                Some((value, length)) => {
                    out.push(value);
                    while rest.as_str().len() > text.len() - at - 1 - length {
                        rest.next();
                    }
                }
                None => {
                    let wrong = rest.next().map_or('\\', |(_, c)| c);
                    let start = whole.start + 1 + at as u32;
                    let span = Span { start, end: start + 1 + wrong.len_utf8() as u32 };
                    let shown = wrong.escape_debug();
                    self.report(
                        Diag::error(Code("S007"), format!("unknown escape `\\{shown}`"), span)
                            .help("escapes are `\\\"`, `\\\\`, `\\n`, `\\t`, `\\r`, `\\u{e9}`"),
                    );
                }
            }
        }
        out
    }

    pub(super) fn exprs(&mut self, pair: Pair<'_, Rule>) -> Vec<Expr> {
        let inner = pair.into_inner().filter(|p| p.as_rule() == Rule::expr);
        inner.map(|p| self.expr(p)).collect()
    }

    pub(super) fn first_expr(&mut self, pair: Pair<'_, Rule>) -> Option<Expr> {
        let mut inner = pair.into_inner();
        inner.find(|p| p.as_rule() == Rule::expr).map(|p| self.expr(p))
    }

    pub(super) fn names(&self, pair: Pair<'_, Rule>) -> Vec<Ident> {
        let inner = pair.into_inner().filter(|p| p.as_rule() == Rule::ident);
        inner.map(|p| self.ident(&p)).collect()
    }

    pub(super) fn bindings(&mut self, clause: Pair<'_, Rule>, into: &mut Vec<Binding>) {
        for binding in clause.into_inner().filter(|p| p.as_rule() == Rule::binding) {
            let mut names = Vec::new();
            for part in binding.into_inner() {
                match part.as_rule() {
                    Rule::names => names = self.names(part),
                    Rule::expr => {
                        let value = self.expr(part);
                        into.push(Binding { names: std::mem::take(&mut names), value });
                    }
                    _ => {}
                }
            }
        }
    }

    pub(super) fn named_value(&mut self, pair: Pair<'_, Rule>) -> Option<(Ident, Expr)> {
        let name = self.inner_ident(pair.clone());
        self.first_expr(pair).map(|value| (name, value))
    }

    pub(super) fn named_values(&mut self, pair: Pair<'_, Rule>) -> Vec<(Ident, Expr)> {
        let inner = pair.into_inner().filter(|p| p.as_rule() == Rule::named_value);
        inner.filter_map(|p| self.named_value(p)).collect()
    }

    pub(super) fn sides(&mut self, pair: Pair<'_, Rule>) -> Vec<Side> {
        let mut sides = Vec::new();
        for side in pair.into_inner().filter(|p| p.as_rule() == Rule::side) {
            let (mut each, mut names) = (false, Vec::new());
            for part in side.into_inner() {
                match part.as_rule() {
                    Rule::kw_each => each = true,
                    Rule::side_names => {
                        for part in part.into_inner().filter(|p| p.as_rule() == Rule::names) {
                            names = self.names(part);
                        }
                    }
                    Rule::expr => {
                        let value = self.expr(part);
                        sides.push(Side { each, names: std::mem::take(&mut names), value });
                    }
                    _ => {}
                }
            }
        }
        sides
    }

    pub(super) fn outputs(&mut self, pair: Pair<'_, Rule>) -> Vec<Output> {
        let mut outputs = Vec::new();
        for output in pair.into_inner().filter(|p| p.as_rule() == Rule::output) {
            let mut name = None;
            for part in output.into_inner() {
                match part.as_rule() {
                    Rule::output_name => name = Some(self.inner_ident(part)),
                    Rule::type_ => {
                        let ty = self.tensor_type(part);
                        outputs.push(Output { name: name.take(), ty });
                    }
                    _ => {}
                }
            }
        }
        outputs
    }

    pub(super) fn check(&mut self, pair: Pair<'_, Rule>) -> Option<RuleTest> {
        let whole = self.span(&pair);
        let name = self.inner_ident(pair.clone());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::bound => {
                    let low = self.bound(part);
                    return Some(RuleTest::Check { name, high: low.clone(), low });
                }
                Rule::range => {
                    let (Some(low), Some(high)) = self.range(part) else {
                        self.report(
                            Diag::error(Code("S014"), "`check` needs both ends of a range", whole)
                                .help(format!("for example `check {} in -8..8`", name.text)),
                        );
                        return None;
                    };
                    return Some(RuleTest::Check { name, low, high });
                }
                _ => {}
            }
        }
        None
    }

    pub(super) fn error_class(&mut self, pair: Pair<'_, Rule>) -> Option<ErrorClause> {
        let class = self.inner_ident(pair.clone());
        let (mut abs, mut rel, mut bounded) = (None, None, None);
        for part in pair.into_inner() {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::lparen => bounded = Some(at),
                Rule::tolerance => self.tolerance(part, &mut abs, &mut rel),
                _ => {}
            }
        }
        let clause = match class.text.as_str() {
            "exact" => ErrorClause::Exact,
            "reorder" => ErrorClause::Reorder,
            "approx" => return Some(ErrorClause::Approx { abs, rel }),
            other => {
                let diag = Diag::error(
                    Code("S013"),
                    format!("`{other}` is not an error class"),
                    class.span,
                );
                self.report(
                    diag.help("the classes are `exact`, `reorder` and `approx(abs=…, rel=…)`"),
                );
                return None;
            }
        };
        if let Some(at) = bounded {
            let message = format!("the class `{}` has no tolerances", class.text);
            self.report(Diag::error(Code("S013"), message, at));
        }
        Some(clause)
    }

    fn tolerance(&mut self, pair: Pair<'_, Rule>, abs: &mut Option<f64>, rel: &mut Option<f64>) {
        let name = self.inner_ident(pair.clone());
        let number = pair.into_inner().find(|p| p.as_rule() == Rule::amount);
        let value = number.map(|p| self.float(&p));
        let slot = match name.text.as_str() {
            "abs" => abs,
            "rel" => rel,
            other => {
                self.report(
                    Diag::error(Code("S013"), format!("`{other}` is not a tolerance"), name.span)
                        .help("the tolerances are `abs` and `rel`"),
                );
                return;
            }
        };
        if slot.is_some() {
            let message = format!("`{}` is given twice", name.text);
            self.report(Diag::error(Code("S013"), message, name.span));
        }
        *slot = value;
    }
}

// The character an escape stands for and the bytes it takes after the backslash.
fn escape(rest: &str) -> Option<(char, usize)> {
    let simple = match rest.chars().next()? {
        '"' => '"',
        '\\' => '\\',
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'u' => {
            let digits = rest.strip_prefix("u{")?;
            // At most six digits, so that the search is short.
            let digits = &digits[..digits.bytes().take(7).position(|b| b == b'}')?];
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            let value = u32::from_str_radix(digits, 16).ok()?;
            return Some((char::from_u32(value)?, digits.len() + 3));
        }
        _ => return None,
    };
    Some((simple, 1))
}
