//! Builds the syntax tree of an item from its parse: parameters and their types.

use pest::iterators::Pair;

use super::build::TreeBuilder;
use super::parse::Rule;
use crate::diagnostics::{Code, Diag};
use crate::syntax::ast::{AttrType, Domain, Expr, Ident, Param, ParamKind, Span, TensorType};

/// The names that make a type an attribute type.
const ATTR_TYPES: [&str; 11] =
    ["int", "ints", "float", "floats", "bool", "string", "dtype", "axis", "axes", "perm", "shape"];

/// The classes of operators that a variable of a schema may range over.
pub const CLASSES: [&str; 3] = ["pointwise", "reduction", "operator"];

/// Where a parameter stands, which decides the forms it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ParamContext {
    /// Of an `op`, `def`, `fuse` or `extern`.
    Signature,
    /// In `given`.
    Given,
    /// Of an `onnx` item, before the semicolon.
    OnnxInput,
    /// Of an `onnx` item, after the semicolon.
    OnnxAttr,
}

impl TreeBuilder {
    pub(super) fn params(&mut self, pair: Pair<'_, Rule>, onnx: bool) -> Vec<Param> {
        let mut params = Vec::new();
        let mut place = if onnx { ParamContext::OnnxInput } else { ParamContext::Signature };
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::semicolon if onnx => place = ParamContext::OnnxAttr,
                Rule::semicolon => {
                    let at = self.span(&part);
                    self.report(
                        Diag::error(
                            Code("S014"),
                            "`;` separates inputs from attributes only in `onnx` items",
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
    pub(super) fn param(&mut self, pair: Pair<'_, Rule>, place: ParamContext) -> Param {
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
        let onnx = matches!(place, ParamContext::OnnxInput);
        let mut refuse = |at: Option<Span>, right: bool, form: &str, home: &str| {
            if let Some(at) = at.filter(|_| !right) {
                let message = format!("{form} is only allowed in {home}");
                self.diags.push(Diag::error(Code("S014"), message, at));
            }
        };
        refuse(each, place == ParamContext::Given, "`each`", "the `given` of a rule");
        refuse(constant, onnx, "`const` before a name", "inputs of `onnx` items");
        refuse(optional, onnx, "`?`", "inputs of `onnx` items");
        refuse(
            variadic,
            onnx || place == ParamContext::Given,
            "`...`",
            "inputs of `onnx` items and the `given` of a schema",
        );
        refuse(variadic.and(constant), false, "`const`", "single inputs");
        refuse(variadic.and(optional), false, "`?`", "single inputs");
        let pack = place == ParamContext::Given && variadic.is_some();
        let (optional, variadic) = (optional.is_some(), onnx && variadic.is_some());
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
            Some(ty) if place == ParamContext::OnnxAttr || is_attr_type(&ty) || is_class(&ty) => {
                if place == ParamContext::OnnxInput {
                    self.report(Diag::error(Code("S014"), "attributes follow `;`", span).help(
                        format!("an input read at import is written `const {}: …`", name.text),
                    ));
                }
                ParamKind::Attr(Some(self.attr_type(ty)))
            }
            Some(ty) => ParamKind::Tensor { ty: self.tensor_type(ty), optional, variadic },
            None if place == ParamContext::OnnxInput && default.is_none() => {
                let dtype = Ident { text: "T".into(), span: name.span };
                let ty = TensorType { dtype, dims: None, domain: None, span: name.span };
                ParamKind::Tensor { ty, optional, variadic }
            }
            None => {
                if default.is_none() {
                    self.missing_type(&name, "`x: F[..b]`, `axis: int` or `eps = 1e-5`");
                } else if place == ParamContext::OnnxInput {
                    self.report(
                        Diag::error(Code("S014"), "attributes follow `;`", span)
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
        Param { each: each.is_some(), name, pack, kind, default, span }
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
                Rule::type_name => ty.name = self.ident(&part),
                Rule::of => ty.of = Some(self.inner_ident(part)),
                Rule::range => ty.range = Some(self.range(part)),
                Rule::index => self.misfit(at, "axes in brackets", "tensor types", &types()),
                Rule::domain => {
                    let help = "the range of an attribute is written `in low..high`";
                    self.misfit(at, "a comparison", "tensor types", help);
                }
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
                Rule::type_name => ty.dtype = self.ident(&part),
                Rule::index => ty.dims = Some(self.elems(part)),
                Rule::domain => ty.domain = self.domain(part),
                Rule::of => self.misfit(at, "a name in parentheses", "attribute types", &types()),
                Rule::range => {
                    let help = "the bound of a tensor's elements is written `>= low`";
                    self.misfit(at, "a range", "attribute types", help);
                }
                _ => {}
            }
        }
        ty
    }

    fn misfit(&mut self, at: Span, form: &str, home: &str, help: &str) {
        let message = format!("{form} is only allowed in {home}");
        self.report(Diag::error(Code("S014"), message, at).help(help));
    }

    fn domain(&mut self, pair: Pair<'_, Rule>) -> Option<Domain> {
        let mut op = None;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::bound => return op.map(|op| Domain { op, bound: self.bound(part) }),
                _ => op = super::terms::infix(part.as_str()),
            }
        }
        None
    }

    pub(super) fn range(&mut self, pair: Pair<'_, Rule>) -> (Option<Expr>, Option<Expr>) {
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
}

fn types() -> String {
    format!("attribute types are `{}`", ATTR_TYPES.join("`, `"))
}

fn is_attr_type(pair: &Pair<'_, Rule>) -> bool {
    let mut parts = pair.clone().into_inner();
    let named = parts.next().is_some_and(|p| ATTR_TYPES.contains(&p.as_str()));
    let next = parts.next().map(|p| p.as_rule());
    (named && next != Some(Rule::index)) || matches!(next, Some(Rule::of))
}

/// True of a class of operators, as a variable of a schema has it for a type.
fn is_class(pair: &Pair<'_, Rule>) -> bool {
    let mut parts = pair.clone().into_inner();
    parts.next().is_some_and(|p| CLASSES.contains(&p.as_str())) && parts.next().is_none()
}
