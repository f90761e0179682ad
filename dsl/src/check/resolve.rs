//! Resolves names: converts the syntax tree to the expressions that everything after the checker reads.

use crate::check::report::{error, near_function};
use crate::diagnostics::Diag;
use crate::diagnostics::span::{Ident, Span};
use crate::eval::function::Function;
use crate::expr::{
    AttrKind, AttrType, Domain, Elem, Expr, ExprKind, IndexVar, Mark, Meaning, Monoid, Name,
    Predicate, Read, Reduce, TypePart,
};
use crate::ir::DType;
use crate::library::{AttrParam, Callable, DTypePattern, Input};
use crate::syntax::ast;

/// What names stand for.
pub(super) struct Scope<'a> {
    /// Tensor variables.
    pub(super) tensors: &'a [Input],
    /// Attribute variables.
    pub(super) attrs: &'a [AttrParam],
    /// Numbers that `let` and `where` name.
    pub(super) numbers: &'a dyn Fn(&str) -> Option<Expr>,
}

impl<'a> Scope<'a> {
    /// Of a signature.
    pub(super) fn of(tensors: &'a [Input], attrs: &'a [AttrParam]) -> Scope<'a> {
        Scope { tensors, attrs, numbers: &|_| None }
    }

    fn has_tensor(&self, n: &str) -> bool {
        self.tensors.iter().any(|t| *t.name == *n)
    }

    fn has_attr(&self, n: &str) -> bool {
        self.attrs.iter().any(|a| *a.name == *n)
    }

    /// An attribute expression or a condition.
    pub(super) fn expr(&self, e: &ast::Expr) -> Result<Expr, Diag> {
        let boxed = |e: &ast::Expr| self.expr(e).map(Box::new);
        let all = |list: &[ast::Arg]| -> Result<Vec<Expr>, Diag> {
            list.iter().map(|a| self.expr(&a.value)).collect()
        };
        let kind = match &e.kind {
            ast::ExprKind::Int(v) => ExprKind::Int(*v),
            ast::ExprKind::Float(v) => ExprKind::Float(*v),
            ast::ExprKind::Str(s) => ExprKind::Str(s.clone()),
            ast::ExprKind::Bool(b) => ExprKind::Bool(*b),
            ast::ExprKind::Name(n) => match (self.numbers)(n) {
                Some(number) => return Ok(number),
                None if self.has_attr(n) => ExprKind::Name(Name::from(n.as_str())),
                None => constant(n)
                    .or_else(|| Mark::named(n).map(ExprKind::Mark))
                    .unwrap_or_else(|| ExprKind::Name(Name::from(n.as_str()))),
            },
            ast::ExprKind::Size(n) => ExprKind::Size(Name::from(n.as_str())),
            ast::ExprKind::List(items) => ExprKind::List(
                items.iter().map(|i| elem(i, |e| self.expr(e))).collect::<Result<_, _>>()?,
            ),
            ast::ExprKind::Unary(op, a) => ExprKind::Unary(*op, boxed(a)?),
            ast::ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, boxed(a)?, boxed(b)?),
            ast::ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: boxed(cond)?,
                then: boxed(then)?,
                otherwise: boxed(otherwise)?,
            },
            ast::ExprKind::Call { callee, args } => {
                if let Some(found) = type_part(callee, args, |n| self.has_tensor(n)) {
                    found
                } else if let Some(p) = Predicate::named(&callee.text) {
                    ExprKind::Test(p, all(args)?)
                } else if let Some(f) = Function::of_attributes(&callee.text) {
                    ExprKind::Call(f, all(args)?)
                } else {
                    let message = format!("`{}` is not a function on attributes", callee.text);
                    return Err(error("R009", callee.span, message, &near_function(&callee.text)));
                }
            }
            ast::ExprKind::Index { base, index, otherwise: None } => match index.as_slice() {
                [ast::Elem::One(i)] => ExprKind::Entry(Name::from(base.text.as_str()), boxed(i)?),
                _ => return Err(no_attribute(e.span)),
            },
            ast::ExprKind::Tuple(_)
            | ast::ExprKind::Index { .. }
            | ast::ExprKind::Axes { .. }
            | ast::ExprKind::Reduce { .. } => return Err(no_attribute(e.span)),
        };
        Ok(Expr { kind, span: e.span })
    }

    /// An attribute's type; what it may be is said of a kind that there is not.
    pub(super) fn attr_type(&self, ty: &ast::AttrType, diags: &mut Vec<Diag>) -> AttrType {
        let kind = AttrKind::named(&ty.name.text).unwrap_or_else(|| {
            let kinds = AttrKind::ALL.iter().map(|k| k.1);
            let help = crate::check::report::suggest(&ty.name.text, kinds.clone())
                .unwrap_or_else(|| format!("one of {}", kinds.collect::<Vec<_>>().join(", ")));
            let message = format!("`{}` is not a type of attribute", ty.name.text);
            diags.push(error("R015", ty.name.span, message, &help));
            AttrKind::Int
        });
        let mut bound = |e: &Option<ast::Expr>| self.told(e.as_ref()?, diags);
        let range = ty.range.as_ref().map(|(low, high)| (bound(low), bound(high)));
        let of = ty.of.as_ref().map(|n| Name::from(n.text.as_str()));
        AttrType { kind, of, range, span: ty.span }
    }

    /// A bound on a tensor's elements.
    pub(super) fn domain(&self, d: &ast::Domain, diags: &mut Vec<Diag>) -> Option<Domain> {
        Some(Domain { op: d.op, bound: self.told(&d.bound, diags)? })
    }

    /// An expression, unless it is none of attributes, which is said.
    pub(super) fn told(&self, e: &ast::Expr, diags: &mut Vec<Diag>) -> Option<Expr> {
        self.expr(e).map_err(|d| diags.push(d)).ok()
    }
}

fn no_attribute(span: Span) -> Diag {
    let help = "attributes are numbers, words, lists `[a, b]` and what functions make of them";
    error("R010", span, "this expression is not an attribute".into(), help)
}

/// What a name refers to if nothing else has it.
pub(super) fn constant(n: &str) -> Option<ExprKind> {
    Some(match n {
        "pi" => ExprKind::Float(std::f64::consts::PI),
        "inf" => ExprKind::Float(f64::INFINITY),
        "nan" => ExprKind::Float(f64::NAN),
        "lowest" => ExprKind::Lowest,
        _ => ExprKind::DType(n.parse::<DType>().ok()?),
    })
}

fn elem(e: &ast::Elem, mut f: impl FnMut(&ast::Expr) -> Result<Expr, Diag>) -> Result<Elem, Diag> {
    Ok(match e {
        ast::Elem::One(e) => Elem::One(f(e)?),
        ast::Elem::Splice(e) => Elem::Splice(f(e)?),
    })
}

/// `rank(x)`, `shape(x)` or `dtype(x)` of a tensor.
fn type_part(
    callee: &Ident,
    args: &[ast::Arg],
    is_tensor: impl Fn(&str) -> bool,
) -> Option<ExprKind> {
    let part = match callee.text.as_str() {
        "rank" => TypePart::Rank,
        "shape" => TypePart::Shape,
        "dtype" => TypePart::DType,
        _ => return None,
    };
    match args {
        [ast::Arg { value: ast::Expr { kind: ast::ExprKind::Name(n), .. }, .. }]
            if is_tensor(n) =>
        {
            Some(ExprKind::Type(part, Name::from(n.as_str())))
        }
        _ => None,
    }
}

/// The meaning of output `i`.
pub(super) fn meaning(c: &Callable, m: &ast::Meaning) -> Result<Meaning, Diag> {
    let mut r = ExprResolver { c, scope: Vec::new(), variables: 0 };
    let index = r.bind(&m.index)?;
    let value = r.expr(&m.value)?;
    Ok(Meaning { index, value, variables: r.variables })
}

/// Resolves one meaning.
struct ExprResolver<'a> {
    c: &'a Callable,
    scope: Vec<(String, usize)>,
    variables: usize,
}

impl ExprResolver<'_> {
    fn bind(&mut self, names: &[ast::Elem]) -> Result<Vec<IndexVar>, Diag> {
        let mut out = Vec::new();
        for item in names {
            let ast::ExprKind::Name(n) = &item.expr().kind else {
                let message = "an index variable is a name".into();
                return Err(error("R004", item.expr().span, message, "e.g. `y[..b, n] = …`"));
            };
            let id = self.variables;
            self.variables += 1;
            self.scope.push((n.clone(), id));
            let segment = matches!(item, ast::Elem::Splice(_));
            out.push(IndexVar { id, name: Name::from(n.as_str()), segment });
        }
        Ok(out)
    }

    fn elems(&mut self, items: &[ast::Elem]) -> Result<Vec<Elem>, Diag> {
        items.iter().map(|i| elem(i, |e| self.expr(e))).collect()
    }

    fn boxed(&mut self, e: &ast::Expr) -> Result<Box<Expr>, Diag> {
        self.expr(e).map(Box::new)
    }

    fn expr(&mut self, e: &ast::Expr) -> Result<Expr, Diag> {
        let kind = match &e.kind {
            ast::ExprKind::Int(v) => ExprKind::Int(*v),
            ast::ExprKind::Float(v) => ExprKind::Float(*v),
            ast::ExprKind::Str(s) => ExprKind::Str(s.clone()),
            ast::ExprKind::Bool(b) => ExprKind::Bool(*b),
            ast::ExprKind::Name(n) => self.name(n, e.span)?,
            ast::ExprKind::Size(n) => ExprKind::Size(Name::from(n.as_str())),
            ast::ExprKind::List(items) => ExprKind::List(self.elems(items)?),
            ast::ExprKind::Unary(op, a) => ExprKind::Unary(*op, self.boxed(a)?),
            ast::ExprKind::Binary(op, a, b) => {
                let a = self.boxed(a)?;
                ExprKind::Binary(*op, a, self.boxed(b)?)
            }
            ast::ExprKind::If { cond, then, otherwise } => ExprKind::If {
                cond: self.boxed(cond)?,
                then: self.boxed(then)?,
                otherwise: self.boxed(otherwise)?,
            },
            ast::ExprKind::Call { callee, args } => {
                let tensor = |n: &str| self.c.inputs.iter().any(|i| *i.name == *n);
                match type_part(callee, args, tensor) {
                    Some(part) => part,
                    None => {
                        let f = Function::named(&callee.text).ok_or_else(|| {
                            let message =
                                format!("`{}` is not a function of elements", callee.text);
                            error("R009", callee.span, message, "the manual lists them")
                        })?;
                        let args = args.iter().map(|a| self.expr(&a.value));
                        ExprKind::Call(f, args.collect::<Result<_, _>>()?)
                    }
                }
            }
            ast::ExprKind::Index { base, index, otherwise } => {
                self.element(base, index, otherwise.as_deref(), e.span)?
            }
            ast::ExprKind::Reduce { monoid, axes, body } => {
                let m = Monoid::named(&monoid.text).ok_or_else(|| {
                    let message = format!("`{}` is no reduction", monoid.text);
                    let all: Vec<&str> = Monoid::ALL.iter().map(|m| m.1).collect();
                    error("R003", monoid.span, message, &format!("one of {}", all.join(", ")))
                })?;
                let outer = self.scope.len();
                let over = self.bind(axes)?;
                let body = self.boxed(body)?;
                self.scope.truncate(outer);
                ExprKind::Reduce(Reduce { monoid: m, over, body })
            }
            ast::ExprKind::Axes { .. } => {
                let message = "only parameters have elements here".into();
                let help = "an element is read of a parameter: `x[b, n]`";
                return Err(error("R010", e.span, message, help));
            }
            ast::ExprKind::Tuple(_) => {
                let message = "a meaning is one value, not several".into();
                return Err(error("R010", e.span, message, "write one equation per output"));
            }
        };
        Ok(Expr { kind, span: e.span })
    }

    fn name(&self, n: &str, span: Span) -> Result<ExprKind, Diag> {
        if let Some((_, id)) = self.scope.iter().rev().find(|(s, _)| s == n) {
            return Ok(ExprKind::Index(*id));
        }
        if self.c.attrs.iter().any(|a| *a.name == *n) {
            return Ok(ExprKind::Name(Name::from(n)));
        }
        if let Some(constant) = constant(n) {
            return Ok(constant);
        }
        let var = DTypePattern::Var(Name::from(n));
        let mut types = self
            .c
            .inputs
            .iter()
            .map(|i| &i.ty.dtype)
            .chain(self.c.outputs.iter().map(|o| &o.1.dtype));
        if types.any(|t| *t == var) {
            return Ok(ExprKind::DTypeVar(Name::from(n)));
        }
        let message = format!("`{n}` is neither an index nor a parameter");
        Err(error("R002", span, message, "an axis' extent is `|n|`"))
    }

    fn element(
        &mut self,
        base: &Ident,
        index: &[ast::Elem],
        otherwise: Option<&ast::Expr>,
        span: Span,
    ) -> Result<ExprKind, Diag> {
        let named =
            self.c.inputs.iter().map(|i| &i.name).chain(self.c.outputs.iter().map(|o| &o.0));
        if let Some(input) = named.into_iter().position(|n| **n == *base.text) {
            let index = self.elems(index)?;
            let otherwise = otherwise.map(|o| self.boxed(o)).transpose()?;
            return Ok(ExprKind::Read(Read { input, index, otherwise }));
        }
        match index {
            [ast::Elem::One(i)] if otherwise.is_none() => {
                Ok(ExprKind::Entry(Name::from(base.text.as_str()), self.boxed(i)?))
            }
            _ => {
                let message = format!("`{}` is no tensor", base.text);
                Err(error("R010", span, message, "an entry of a list has one index"))
            }
        }
    }
}
