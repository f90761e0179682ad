//! Resolves the names in `onnx` items. Operands are checked where a node is imported or exported.

use super::resolve::constant;
use crate::check::report::error;
use crate::diagnostics::Diag;
use crate::diagnostics::span::Ident;
use crate::eval::functions::Function;
use crate::expr::{Elem, Expr, ExprKind, Name, TypePart};
use crate::library::Library;
use crate::onnx::{
    Alternative, Apply, Arg, Callee, Declaration, Kind, NodeQuery, Param, ParamKind, Print,
};
use crate::syntax::ast;

/// What an item declares; what is wrong with it is diagnosed and left out.
pub(super) fn declaration(library: &Library, item: &ast::Onnx) -> (Declaration, Vec<Diag>) {
    let params = item.params.iter().map(|p| p.name.text.as_str());
    let lets = item.lets.iter().flat_map(|l| l.names.iter().map(|n| n.text.as_str()));
    let mut r = OnnxItemResolver { library, names: params.chain(lets).collect(), diags: vec![] };
    let params = item.params.iter().filter_map(|p| r.param(p)).collect();
    let conditions = r.all(&item.conditions).unwrap_or_default();
    let lets = item.lets.iter().filter_map(|l| {
        let names = l.names.iter().map(|n| name(&n.text)).collect();
        Some((names, r.told(&l.value)?))
    });
    let lets = lets.collect();
    let reads = item.reads.iter().filter_map(|a| {
        let conditions = r.all(&a.conditions)?;
        Some(Alternative { value: r.told(&a.value)?, conditions })
    });
    let reads = reads.collect();
    let prints = item.prints.iter().filter_map(|p| r.print(p, &item.outputs)).collect();
    let (since, until, domain) = (item.since, item.until, item.domain.clone());
    let opaque = item.opaque;
    (Declaration { params, since, until, domain, opaque, conditions, lets, reads, prints }, r.diags)
}

/// An expression of an item that is positional as `onnx` items are; `names` stand for something where it is read.
pub(super) fn positional<'a>(
    library: &'a Library,
    names: impl Iterator<Item = &'a str>,
    e: &ast::Expr,
) -> Result<Expr, Diag> {
    OnnxItemResolver { library, names: names.collect(), diags: vec![] }.expr(e)
}

fn name(text: &str) -> Name {
    Name::from(text)
}

struct OnnxItemResolver<'a> {
    library: &'a Library,
    /// Names that stand for something at a node.
    names: Vec<&'a str>,
    diags: Vec<Diag>,
}

impl<'a> OnnxItemResolver<'a> {
    fn told(&mut self, e: &ast::Expr) -> Option<Expr> {
        self.expr(e).map_err(|d| self.diags.push(d)).ok()
    }

    fn all(&mut self, list: &[ast::Expr]) -> Option<Vec<Expr>> {
        list.iter().map(|e| self.told(e)).collect()
    }

    fn kind(&mut self, ty: &ast::AttrType) -> Option<Kind> {
        let found = Kind::named(&ty.name.text);
        if found.is_none() {
            let kinds = Kind::ALL.iter().map(|k| k.1);
            let help = crate::check::report::suggest(&ty.name.text, kinds.clone())
                .unwrap_or_else(|| format!("one of {}", kinds.collect::<Vec<_>>().join(", ")));
            let message = format!("`{}` is not a type of attribute", ty.name.text);
            self.diags.push(error("R015", ty.name.span, message, &help));
        }
        found
    }

    fn param(&mut self, p: &ast::Param) -> Option<Param> {
        let default = match &p.default {
            Some(d) => Some(self.told(d)?),
            None => None,
        };
        let kind = match &p.kind {
            ast::ParamKind::Tensor { optional, variadic, .. } => {
                ParamKind::Tensor { optional: *optional, variadic: *variadic }
            }
            ast::ParamKind::ConstInput { ty, optional } => {
                ParamKind::ConstInput { kind: self.kind(ty)?, optional: *optional }
            }
            ast::ParamKind::Attr(Some(ty)) => ParamKind::Attr(self.kind(ty)?),
            ast::ParamKind::Attr(None) => ParamKind::Attr(shown(default.as_ref())),
        };
        Some(Param { name: name(&p.name.text), kind, default })
    }

    fn print(&mut self, p: &'a ast::Print, results: &[Ident]) -> Option<Print> {
        let outer = std::mem::replace(
            &mut self.names,
            p.given.iter().map(|g| g.name.text.as_str()).collect(),
        );
        let number = |g: &&ast::Param| matches!(g.kind, ast::ParamKind::Attr(_));
        let numbers = p.given.iter().filter(number).map(|g| name(&g.name.text)).collect();
        let pattern = self.told(&p.pattern);
        let inputs = self.all(&p.inputs);
        let attrs: Option<Vec<(Name, Expr)>> =
            p.attrs.iter().map(|(n, e)| Some((name(&n.text), self.told(e)?))).collect();
        let conditions = self.all(&p.conditions);
        let result = self.result(p.result.as_ref(), results);
        self.names = outer;
        Some(Print {
            pattern: pattern?,
            inputs: inputs?,
            attrs: attrs?,
            result: result?,
            numbers,
            conditions: conditions?,
        })
    }

    /// The place of a name among those of the node's results.
    fn result(&mut self, name: Option<&Ident>, results: &[Ident]) -> Option<usize> {
        let Some(name) = name else { return Some(0) };
        let place = results.iter().position(|r| r.text == name.text);
        if place.is_none() {
            let message = format!("`{}` is no result of the operator", name.text);
            let known: Vec<String> = results.iter().map(|r| format!("`{}`", r.text)).collect();
            let help = match known.is_empty() {
                true => "name its results after `->` behind its inputs".to_string(),
                false => format!("its results are {}", known.join(", ")),
            };
            self.diags.push(error("R002", name.span, message, &help));
        }
        place
    }

    fn elems(&self, items: &[ast::Elem]) -> Result<Vec<Elem>, Diag> {
        let one = |i: &ast::Elem| {
            Ok(match i {
                ast::Elem::One(e) => Elem::One(self.expr(e)?),
                ast::Elem::Splice(e) => Elem::Splice(self.expr(e)?),
            })
        };
        items.iter().map(one).collect()
    }

    fn expr(&self, e: &ast::Expr) -> Result<Expr, Diag> {
        let boxed = |e: &ast::Expr| self.expr(e).map(Box::new);
        let kind = match &e.kind {
            ast::ExprKind::Int(v) => ExprKind::Int(*v),
            ast::ExprKind::Float(v) => ExprKind::Float(*v),
            ast::ExprKind::Str(s) => ExprKind::Str(s.clone()),
            ast::ExprKind::Bool(b) => ExprKind::Bool(*b),
            ast::ExprKind::Name(n) if self.names.contains(&n.as_str()) => ExprKind::Name(name(n)),
            ast::ExprKind::Name(n) => constant(n).unwrap_or_else(|| ExprKind::Name(name(n))),
            ast::ExprKind::Size(n) => ExprKind::Size(name(n)),
            ast::ExprKind::List(items) => ExprKind::List(self.elems(items)?),
            ast::ExprKind::Tuple(items) => {
                ExprKind::Tuple(items.iter().map(|e| self.expr(e)).collect::<Result<_, _>>()?)
            }
            ast::ExprKind::Unary(op, a) => ExprKind::Unary(*op, boxed(a)?),
            ast::ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, boxed(a)?, boxed(b)?),
            ast::ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: boxed(cond)?,
                then: boxed(then)?,
                otherwise: boxed(otherwise)?,
            },
            ast::ExprKind::Call { callee, args } => self.call(callee, args)?,
            ast::ExprKind::Index { base, index, otherwise: None } => match index.as_slice() {
                [ast::Elem::One(i)] => ExprKind::Entry(name(&base.text), boxed(i)?),
                _ => {
                    let message = format!("`{}` is a list, which takes one index", base.text);
                    return Err(error("R010", e.span, message, "axes have no names here"));
                }
            },
            ast::ExprKind::Index { .. }
            | ast::ExprKind::Axes { .. }
            | ast::ExprKind::Reduce { .. } => {
                let message = "axes have no names here: arguments are positional".into();
                let help = "apply an operator that takes positions, e.g. `sum(x, axes=[1])`";
                return Err(error("R010", e.span, message, help));
            }
        };
        Ok(Expr { kind, span: e.span })
    }

    fn call(&self, callee: &Ident, args: &[ast::Arg]) -> Result<ExprKind, Diag> {
        if let Some(question) = NodeQuery::named(&callee.text) {
            let args = args.iter().map(|a| self.expr(&a.value));
            return Ok(ExprKind::Ask(question, args.collect::<Result<_, _>>()?));
        }
        let function = Function::of_attributes(&callee.text);
        if let Some(f) = function
            && let Some(part) = TypePart::of(f)
        {
            let mut args =
                args.iter().map(|a| self.expr(&a.value)).collect::<Result<Vec<_>, _>>()?;
            return Ok(match args.as_mut_slice() {
                [Expr { kind: ExprKind::Name(n), .. }] => ExprKind::Type(part, n.clone()),
                _ => ExprKind::Call(f, args),
            });
        }
        let (callee, args) = match (callee.text.as_str(), args) {
            ("split", _) => (Callee::Split, args),
            ("scalar", _) => (Callee::Scalar, args),
            ("unsupported", _) => (Callee::Unsupported, args),
            ("fold", [first, rest @ ..]) => match &first.value.kind {
                ast::ExprKind::Name(n) => (Callee::Fold(name(n)), rest),
                _ => {
                    let message = "`fold` takes an operator and a list of inputs".into();
                    return Err(error("R006", callee.span, message, "e.g. `fold(add, xs)`"));
                }
            },
            (text, _) => (Callee::Operator(name(text), self.library.find(text), function), args),
        };
        let arg = |a: &ast::Arg| {
            let name = a.name.as_ref().map(|n| name(&n.text));
            Ok(Arg { name, value: self.expr(&a.value)? })
        };
        let args = args.iter().map(arg).collect::<Result<_, _>>()?;
        Ok(ExprKind::Apply(Apply { callee, args }))
    }
}

/// The kind of attribute that a default shows.
fn shown(default: Option<&Expr>) -> Kind {
    match default.map(|d| &d.kind) {
        Some(ExprKind::Unary(_, a)) if !matches!(a.kind, ExprKind::Unary(..)) => shown(Some(a)),
        Some(ExprKind::Float(_)) => Kind::Float,
        Some(ExprKind::Str(_)) => Kind::String,
        Some(ExprKind::Bool(_)) => Kind::Bool,
        Some(ExprKind::List(items))
            if items.iter().any(|i| matches!(i.expr().kind, ExprKind::Float(_))) =>
        {
            Kind::Floats
        }
        Some(ExprKind::List(_)) => Kind::Ints,
        _ => Kind::Int,
    }
}
