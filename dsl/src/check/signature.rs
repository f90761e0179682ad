//! Signatures of operators: parameters, results, conditions.

use super::class_of;
use super::meaning::recurrence;
use super::resolve::{self, Scope};
use crate::check::report::{error, name};
use crate::diagnostics::span::{Ident, SourceSpan, Span};
use crate::diagnostics::{Diag, Severity};
use crate::eval::{Env, eval};
use crate::expr::{AttrKind, Meaning};
use crate::ir::DType;
use crate::library::{
    AttrParam, Body, CallKind, Callable, DTypePattern, Dim, Input, Name, OpClass, TypePattern,
};
use crate::syntax::ast::{
    AttrType, Binding, Elem, Expr, ExprKind, Item, ItemKind, OpTrait, Output, Param, ParamKind,
    TensorType,
};
use crate::term::Terms;

/// The callable that an item declares; `None` for items that declare none.
pub fn callable(source: u32, item: &Item) -> (Option<Callable>, Vec<Diag>) {
    let (params, outputs, (wheres, conditions)) = match &item.kind {
        ItemKind::Op(o) => (&o.params, &o.outputs, (&o.wheres[..], &o.conditions[..])),
        ItemKind::Def(d) => (&d.params, &d.outputs, (&d.wheres[..], &d.conditions[..])),
        ItemKind::Fuse(f) => (&f.params, &f.outputs, (&f.wheres[..], &f.conditions[..])),
        ItemKind::Extern(e) => (&e.params, &e.outputs, (&e.wheres[..], &e.conditions[..])),
        ItemKind::Rule(_) | ItemKind::Onnx(_) | ItemKind::Target(_) | ItemKind::Architecture(_) => {
            return (None, vec![]);
        }
    };
    if untyped(params) {
        return (None, vec![]);
    }
    let mut diags = Vec::new();
    let (inputs, attrs) = parameters(params, &mut diags);
    let scope = Scope::of(&inputs, &attrs);
    let outputs = outputs.iter().map(|o| output(o, &scope, &mut diags)).collect();
    let (stated, wheres) = (wheres, where_clauses(wheres, &scope, &mut diags));
    let conditions = conditions.iter().filter_map(|c| scope.told(c, &mut diags)).collect();
    let mut c = Callable {
        name: name(&item.name.text),
        doc: item.doc.clone(),
        inputs,
        attrs,
        outputs,
        wheres,
        conditions,
        kind: CallKind::Def(Body { terms: Terms::default(), roots: vec![] }),
        commutative: false,
        associative: false,
        unit: None,
        class: OpClass::Other,
        recurrence: None,
        source: SourceSpan::new(source, item.span),
    };
    check_result_names(&c, stated, &mut diags, item.name.span);
    match &item.kind {
        ItemKind::Op(o) => {
            for t in &o.traits {
                match t {
                    OpTrait::Commutative => c.commutative = true,
                    OpTrait::Associative => c.associative = true,
                    OpTrait::Unit(e) => {
                        let v = Scope::of(&[], &[]).told(e, &mut diags);
                        let v = v.and_then(|e| crate::eval::eval(&e, &Default::default()).ok());
                        c.unit = v.and_then(|a| a.as_f64());
                    }
                }
            }
            if (c.commutative || c.associative) && c.inputs.len() != 2 {
                let message =
                    format!("`{}` takes {}", c.name, super::counted(c.inputs.len(), "tensor"));
                diags.push(error(
                    "R013",
                    item.name.span,
                    message,
                    "only an operator of two tensors commutes or associates",
                ));
            }
            if o.meanings.len() != c.outputs.len() {
                let message = format!(
                    "`{}` has {} and {}",
                    c.name,
                    super::counted(c.outputs.len(), "output"),
                    super::counted(o.meanings.len(), "equation")
                );
                diags.push(error("R014", item.name.span, message, "give one equation per output"));
                return (None, diags);
            }
            c.kind = CallKind::Op(vec![]);
            if diags.is_empty() {
                diags = super::meaning::check(&c, &o.meanings);
            }
            match o.meanings.iter().map(|m| resolve::meaning(&c, m)).collect() {
                Ok(meanings) => {
                    let meanings: Vec<Meaning> = meanings;
                    match recurrence::find(&c, &meanings) {
                        Ok(found) => {
                            c.recurrence = found;
                            c.kind = CallKind::Op(meanings);
                        }
                        Err(d) => diags.push(d),
                    }
                }
                Err(d) if diags.iter().all(|d| d.severity != Severity::Error) => diags.push(d),
                // What is wrong with it is said already.
                Err(_) => {}
            }
            c.class = class_of(&c);
        }
        ItemKind::Extern(e) => c.kind = CallKind::Extern(e.reference.clone()),
        ItemKind::Def(_)
        | ItemKind::Fuse(_)
        | ItemKind::Rule(_)
        | ItemKind::Onnx(_)
        | ItemKind::Target(_)
        | ItemKind::Architecture(_) => {}
    }
    (Some(c), diags)
}

/// True if a parameter has neither a type nor a default: the reader has said so, and nothing can be told of what
/// depends on it.
pub fn untyped(params: &[Param]) -> bool {
    params.iter().any(|p| matches!(p.kind, ParamKind::Attr(None)) && p.default.is_none())
}

/// Tensor parameters and attribute parameters.
pub fn parameters(params: &[Param], diags: &mut Vec<Diag>) -> (Vec<Input>, Vec<AttrParam>) {
    let (mut inputs, mut attrs): (Vec<Input>, Vec<AttrParam>) = (Vec::new(), Vec::new());
    for p in params {
        let n = name(&p.name.text);
        if inputs.iter().any(|i| i.name == n) || attrs.iter().any(|a| a.name == n) {
            let message = format!("the parameter `{n}` is declared twice");
            diags.push(error("R001", p.name.span, message, "rename one of them"));
            continue;
        }
        match &p.kind {
            ParamKind::Tensor { ty, .. } => {
                let scope = Scope::of(&inputs, &attrs);
                let pattern = type_pattern(ty, &scope, diags);
                let domain = ty.domain.as_ref().and_then(|d| scope.domain(d, diags));
                inputs.push(Input { name: n, ty: pattern, domain, each: p.each });
            }
            ParamKind::ConstInput { ty, .. } => {
                let scope = Scope::of(&inputs, &attrs);
                let ty = scope.attr_type(ty, diags);
                let default = p.default.as_ref().and_then(|d| scope.told(d, diags));
                attrs.push(AttrParam { name: n, ty, default });
            }
            ParamKind::Attr(ty) => {
                let ty = ty.clone().or_else(|| p.default.as_ref().and_then(shown_type));
                let Some(ty) = ty else {
                    let message = format!("the type of attribute `{n}` cannot be inferred");
                    diags.push(error("R015", p.span, message, "write e.g. `eps: float`"));
                    continue;
                };
                let scope = Scope::of(&inputs, &attrs);
                let ty = scope.attr_type(&ty, diags);
                let default = p.default.as_ref().and_then(|d| scope.told(d, diags));
                let param = AttrParam { name: n, ty, default };
                unfit(&param, diags);
                attrs.push(param);
            }
        }
    }
    (inputs, attrs)
}

/// Reports a default of another kind than the attribute, and a range without values.
fn unfit(p: &AttrParam, diags: &mut Vec<Diag>) {
    let known = |e: &crate::expr::Expr| eval(e, &Env::default()).ok();
    let kind = p.ty.kind;
    if let Some(d) = &p.default
        && let Some(v) = known(d).map(|v| kind.taken(v)).filter(|v| !kind.admits(v))
    {
        let message = format!("`{}` is {}, and its default {v} is none", p.name, kind.wanted());
        let help = format!("leave the default out, or declare another kind than `{kind}`");
        diags.push(error("R005", d.span, message, &help));
    }
    let number = |e: &Option<crate::expr::Expr>| known(e.as_ref()?)?.as_f64();
    let bounds = p.ty.range.as_ref().and_then(|(l, h)| Some((number(l)?, number(h)?)));
    if let Some((low, high)) = bounds.filter(|(low, high)| low > high) {
        let message = format!("the range of `{}` is empty", p.name);
        let help = format!("the lower bound comes first: `in {high}..{low}`");
        diags.push(error("R005", p.ty.span, message, &help));
    }
}

/// The attribute type that a default shows.
fn shown_type(default: &Expr) -> Option<AttrType> {
    let kind = match &default.kind {
        ExprKind::Int(_) => "int",
        ExprKind::Float(_) => "float",
        ExprKind::Bool(_) => "bool",
        ExprKind::Str(_) => "string",
        ExprKind::List(items)
            if items.iter().any(|i| matches!(i.expr().kind, ExprKind::Float(_))) =>
        {
            "floats"
        }
        ExprKind::List(_) => "ints",
        ExprKind::Unary(_, e) => return shown_type(e),
        ExprKind::Call { .. } | ExprKind::Binary(..) => "float",
        _ => return None,
    };
    let name = Ident { text: kind.to_string(), span: default.span };
    Some(AttrType { name, of: None, range: None, span: default.span })
}

/// Axes that a declared type has at most; the least tensor that shows all of them has `2^AXES` elements.
const AXES: usize = 32;

/// A declared tensor type; attributes of the scope may name its element type.
fn type_pattern(ty: &TensorType, scope: &Scope<'_>, diags: &mut Vec<Diag>) -> TypePattern {
    let text = ty.dtype.text.as_str();
    let dtype = match text.parse() {
        Ok(d) => DTypePattern::Fixed(d),
        Err(()) => DTypePattern::Var(name(text)),
    };
    let family = matches!(text.as_bytes().first(), Some(b'F' | b'I' | b'N' | b'B' | b'T'));
    let digits = text.get(1..).is_some_and(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let attr = scope.attrs.iter().find(|a| *a.name == *text);
    let chosen = attr.is_some_and(|a| a.ty.kind == AttrKind::DType);
    if matches!(dtype, DTypePattern::Var(_)) && !(family && digits) && !chosen {
        // Attributes have no axes.
        let kinds = AttrKind::ALL.iter().map(|k| k.1).filter(|_| ty.dims.is_none());
        let known = DType::ALL.iter().map(|d| d.name()).chain(kinds);
        let elsewhere = ty.dims.as_ref().and_then(|_| spelled_elsewhere(text));
        let help = match attr {
            Some(a) => {
                format!("the attribute `{text}` is of kind `{}`, not `dtype`", a.ty.kind)
            }
            None if AttrKind::named(text).is_some() => {
                format!("`{text}` is a kind of attribute; element types are e.g. `f32` or `F`")
            }
            None => elsewhere
                .map(|t| format!("did you mean `{t}`?"))
                .or_else(|| crate::check::report::suggest(text, known))
                .unwrap_or_else(|| {
                    "F floats, I integers, N numbers, B bool, T any; or a type such as f32".into()
                }),
        };
        let message = format!("`{text}` is not an element type");
        diags.push(error("R015", ty.dtype.span, message, &help));
    }
    let dims: Option<Vec<Dim>> =
        ty.dims.as_ref().map(|dims| dims.iter().filter_map(|d| dim(d, scope, diags)).collect());
    if let Some(dims) = &dims {
        repeated_axis(dims, ty.span, diags);
        if dims.len() > AXES {
            let message =
                format!("this tensor has {} axes; at most {AXES} are supported", dims.len());
            let help = "several axes that are treated alike are a segment: `x: F[..b, n]`";
            diags.push(error("R016", ty.span, message, help));
        }
    }
    TypePattern { dtype, dims }
}

/// The element type that other languages call so.
fn spelled_elsewhere(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let short = match text.as_str() {
        "float" | "real" => "F".into(),
        "int" | "integer" => "I".into(),
        "half" => "f16".into(),
        "double" => "f64".into(),
        "boolean" => "bool".into(),
        "string" => "str".into(),
        other => {
            let names = [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")];
            let (prefix, short) = names.into_iter().find(|(p, _)| other.starts_with(p))?;
            format!("{short}{}", &other[prefix.len()..])
        }
    };
    (short.len() == 1 || short.parse::<DType>().is_ok()).then_some(short)
}

fn repeated_axis(dims: &[Dim], span: Span, diags: &mut Vec<Diag>) {
    for (i, d) in dims.iter().enumerate() {
        if let Dim::Axis(n) = d
            && dims[..i].iter().any(|e| matches!(e, Dim::Axis(m) if m == n))
        {
            let message = format!("axis `{n}` occurs twice in one tensor");
            diags.push(error("R016", span, message, "give the axes different names"));
        }
    }
}

fn dim(e: &Elem, scope: &Scope<'_>, diags: &mut Vec<Diag>) -> Option<Dim> {
    Some(match e {
        Elem::One(Expr { kind: ExprKind::Name(n), .. }) => Dim::Axis(name(n)),
        Elem::Splice(Expr { kind: ExprKind::Name(n), .. }) => Dim::Seg(name(n)),
        Elem::One(e) => Dim::Value(scope.told(e, diags)?),
        Elem::Splice(e) => Dim::Splice(scope.told(e, diags)?),
    })
}

fn output(o: &Output, scope: &Scope<'_>, diags: &mut Vec<Diag>) -> (Name, TypePattern) {
    (name(o.name.as_ref().map_or("", |n| &n.text)), type_pattern(&o.ty, scope, diags))
}

fn where_clauses(
    wheres: &[Binding],
    scope: &Scope<'_>,
    diags: &mut Vec<Diag>,
) -> Vec<(Name, crate::expr::Expr)> {
    let mut out = Vec::new();
    for w in wheres {
        match w.names.as_slice() {
            [n] => out.extend(scope.told(&w.value, diags).map(|v| (name(&n.text), v))),
            _ => diags.push(error(
                "R017",
                w.names.first().map_or(w.value.span, |n| n.span),
                "an extent can have only one name".into(),
                "write one binding for each: `where m = …, n = …`",
            )),
        }
    }
    out
}

/// Every name in a result's type must come from a parameter or a `where`.
fn check_result_names(c: &Callable, wheres: &[Binding], diags: &mut Vec<Diag>, span: Span) {
    let stated = |n: &str| wheres.iter().flat_map(|w| &w.names).any(|w| w.text == n);
    let bound = |n: &str| super::mentions(&c.inputs, n) || stated(n);
    for (_, ty) in &c.outputs {
        for d in ty.dims.iter().flatten() {
            if let Dim::Axis(n) | Dim::Seg(n) = d
                && !bound(n)
            {
                let message = format!("axis `{n}` of the result of `{}` has no extent", c.name);
                let help = format!("no parameter has it; give it with `where {n} = …`");
                diags.push(error("R004", span, message, &help));
            }
        }
        if let DTypePattern::Var(v) = &ty.dtype {
            let typed = c.inputs.iter().any(|i| i.ty.dtype == ty.dtype)
                || c.attrs.iter().any(|a| a.name == *v);
            if !typed {
                let message =
                    format!("element type `{v}` of the result of `{}` cannot be inferred", c.name);
                diags.push(error(
                    "R007",
                    span,
                    message,
                    "take it from a parameter, or from an attribute `to: dtype`",
                ));
            }
        }
    }
}
