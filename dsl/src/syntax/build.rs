//! From the parse of one item to its syntax tree: words, numbers, parameters and clauses.
//!
//! What the grammar admits and the language does not is reported here, and reading goes on.

use pest::iterators::Pair;

use super::parse::Rule;
use crate::diag::{Code, Diag};
use crate::syntax::ast::{
    AttrType, Binding, Domain, ErrorClause, Expr, Ident, Output, Param, ParamKind, RuleTest, Side,
    Span, TensorType,
};

/// The names that make a type an attribute type.
pub(super) const ATTR_TYPES: [&str; 11] =
    ["int", "ints", "float", "floats", "bool", "string", "dtype", "axis", "axes", "perm", "shape"];

/// Where a parameter stands, which decides the forms it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of an `op`, `def`, `fuse` or `extern`.
    Signature,
    /// In `given`.
    Given,
    /// Of an `onnx` item, before the semicolon.
    OnnxInput,
    /// Of an `onnx` item, after the semicolon.
    OnnxAttr,
}

/// Builds the tree of one item.
pub(super) struct Builder {
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

impl Builder {
    pub(super) fn report(&mut self, diag: Diag) {
        self.diags.push(diag);
    }

    pub(super) fn ident(&self, pair: &Pair<'_, Rule>) -> Ident {
        Ident { text: pair.as_str().to_string(), span: self.span(pair) }
    }

    fn inner_ident(&self, pair: Pair<'_, Rule>) -> Ident {
        let whole = self.span(&pair);
        let found = pair.into_inner().find(|p| p.as_rule() == Rule::ident);
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

    pub(super) fn params(&mut self, pair: Pair<'_, Rule>, onnx: bool) -> Vec<Param> {
        let mut params = Vec::new();
        let mut place = if onnx { Place::OnnxInput } else { Place::Signature };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::semicolon if onnx => place = Place::OnnxAttr,
                Rule::semicolon => {
                    let at = self.span(&part);
                    self.report(
                        Diag::error(
                            Code("S014"),
                            "`;` separates inputs from attributes in `onnx` items only",
                            at,
                        )
                        .help("write `,` here"),
                    );
                }
                Rule::param => params.push(self.param(part, place)),
                _ => {}
            }
        }
        params
    }

    /// One parameter; `place` decides which forms are right.
    pub(super) fn param(&mut self, pair: Pair<'_, Rule>, place: Place) -> Param {
        let span = self.span(&pair);
        let mut name = Ident { text: String::new(), span };
        let (mut each, mut constant, mut optional, mut variadic) = (None, None, None, None);
        let (mut ty, mut default) = (None, None);
        for part in pair.into_inner() {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::kw_each => each = Some(at),
                Rule::const_mark => constant = Some(at),
                Rule::optional_mark => optional = Some(at),
                Rule::variadic_mark => variadic = Some(at),
                Rule::ident => name = self.ident(&part),
                Rule::type_ => ty = Some(part),
                Rule::expr => default = Some(self.expr(part)),
                _ => {}
            }
        }
        let onnx = matches!(place, Place::OnnxInput);
        let mut refuse = |at: Option<Span>, right: bool, form: &str, home: &str| {
            if let Some(at) = at.filter(|_| !right) {
                let message = format!("{form} belongs to {home} only");
                self.diags.push(Diag::error(Code("S014"), message, at));
            }
        };
        refuse(each, place == Place::Given, "`each`", "the `given` of a rule");
        refuse(constant, onnx, "`const` before a name", "inputs of `onnx` items");
        refuse(optional, onnx, "`?`", "inputs of `onnx` items");
        refuse(variadic, onnx, "`...`", "inputs of `onnx` items");
        refuse(variadic.and(constant), false, "`const`", "single inputs");
        refuse(variadic.and(optional), false, "`?`", "single inputs");
        let (optional, variadic) = (optional.is_some(), variadic.is_some());
        let kind = match ty {
            _ if constant.is_some() => match ty {
                Some(ty) => ParamKind::ConstInput { ty: self.attr_type(ty), optional },
                None => {
                    self.missing_type(&name, "`const spec: ints`");
                    let any = Ident { text: "ints".into(), span: name.span };
                    let ty = AttrType { name: any, of: None, range: None, span: name.span };
                    ParamKind::ConstInput { ty, optional }
                }
            },
            Some(ty) if place == Place::OnnxAttr || is_attr_type(&ty) => {
                if place == Place::OnnxInput {
                    self.report(
                        Diag::error(Code("S014"), "an attribute stands after `;`", span).help(
                            format!("an input read at import is written `const {}: …`", name.text),
                        ),
                    );
                }
                ParamKind::Attr(Some(self.attr_type(ty)))
            }
            Some(ty) => ParamKind::Tensor { ty: self.tensor_type(ty), optional, variadic },
            None if place == Place::OnnxInput && default.is_none() => {
                let dtype = Ident { text: "T".into(), span: name.span };
                let ty = TensorType { dtype, dims: None, domain: None, span: name.span };
                ParamKind::Tensor { ty, optional, variadic }
            }
            None => {
                if default.is_none() {
                    self.missing_type(&name, "`x: F[..b]`, `axis: int` or `eps = 1e-5`");
                } else if place == Place::OnnxInput {
                    self.report(
                        Diag::error(Code("S014"), "an attribute stands after `;`", span)
                            .help("write `;` before the first attribute"),
                    );
                }
                ParamKind::Attr(None)
            }
        };
        if let (Some(default), ParamKind::Tensor { .. } | ParamKind::ConstInput { .. }) =
            (&default, &kind)
        {
            let at = default.span;
            self.report(
                Diag::error(Code("S014"), format!("the input `{}` has a default", name.text), at)
                    .help("only attributes have defaults"),
            );
        }
        Param { each: each.is_some(), name, kind, default, span }
    }

    fn missing_type(&mut self, name: &Ident, forms: &str) {
        self.report(
            Diag::error(
                Code("S014"),
                format!("the parameter `{}` has no type", name.text),
                name.span,
            )
            .help(format!("write {forms}")),
        );
    }

    fn attr_type(&mut self, pair: Pair<'_, Rule>) -> AttrType {
        let span = self.span(&pair);
        let mut ty =
            AttrType { name: Ident { text: String::new(), span }, of: None, range: None, span };
        for part in pair.into_inner() {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::ident => ty.name = self.ident(&part),
                Rule::of => ty.of = Some(self.inner_ident(part)),
                Rule::range => ty.range = Some(self.range(part)),
                Rule::index => self.misfit(at, "axes in brackets", "tensor types"),
                Rule::domain => self.misfit(at, "a bound with a comparison", "tensor types"),
                _ => {}
            }
        }
        ty
    }

    pub(super) fn tensor_type(&mut self, pair: Pair<'_, Rule>) -> TensorType {
        let span = self.span(&pair);
        let dtype = Ident { text: String::new(), span };
        let mut ty = TensorType { dtype, dims: None, domain: None, span };
        for part in pair.into_inner() {
            let at = self.span(&part);
            match part.as_rule() {
                Rule::ident => ty.dtype = self.ident(&part),
                Rule::index => ty.dims = Some(self.elems(part)),
                Rule::domain => ty.domain = self.domain(part),
                Rule::of => self.misfit(at, "a name in parentheses", "attribute types"),
                Rule::range => self.misfit(at, "a range", "attribute types"),
                _ => {}
            }
        }
        ty
    }

    fn misfit(&mut self, at: Span, form: &str, home: &str) {
        self.report(
            Diag::error(Code("S014"), format!("{form} belongs to {home} only"), at)
                .help(format!("attribute types are `{}`", ATTR_TYPES.join("`, `"))),
        );
    }

    fn domain(&mut self, pair: Pair<'_, Rule>) -> Option<Domain> {
        let mut op = None;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::bound => return op.map(|op| Domain { op, bound: self.bound(part) }),
                rule => op = super::terms::infix(rule),
            }
        }
        None
    }

    fn range(&mut self, pair: Pair<'_, Rule>) -> (Option<Expr>, Option<Expr>) {
        let (mut low, mut high, mut passed) = (None, None, false);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::dots => passed = true,
                Rule::bound if passed => high = Some(self.bound(part)),
                Rule::bound => low = Some(self.bound(part)),
                _ => {}
            }
        }
        (low, high)
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
                let diag =
                    Diag::error(Code("S013"), format!("`{other}` is no error class"), class.span);
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
        let number = pair.into_inner().find(|p| matches!(p.as_rule(), Rule::float | Rule::int));
        let value = number.map(|p| self.float(&p));
        let slot = match name.text.as_str() {
            "abs" => abs,
            "rel" => rel,
            other => {
                self.report(
                    Diag::error(Code("S013"), format!("`{other}` is no tolerance"), name.span)
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

fn is_attr_type(pair: &Pair<'_, Rule>) -> bool {
    let mut parts = pair.clone().into_inner();
    let named = parts.next().is_some_and(|p| ATTR_TYPES.contains(&p.as_str()));
    let next = parts.next().map(|p| p.as_rule());
    (named && next != Some(Rule::index)) || matches!(next, Some(Rule::of))
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
            let digits = &digits[..digits.find('}')?];
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
