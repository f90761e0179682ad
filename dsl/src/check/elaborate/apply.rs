//! Checks applications: attributes, the axes of the callee in terms of the caller's, and the shape of the result.

use super::dims::{self, Origin};
use super::result::{result_dims, result_dtype};
use super::unify::bind;
use super::{Bound, ElaboratedOperand, Elaborator, translate};
use crate::diagnostics::span::{Ident, Span};
use crate::eval::{Env, eval};
use crate::expr::{AttrKind, AttrType, Expr, ExprKind, UnaryOp};
use crate::ir::Attr;
use crate::library::{AttrParam, CallId, Callable, DTypePattern, Dim, Name};
use crate::syntax::ast;
use crate::term::{Term, TermId, TermKind};

impl Elaborator<'_> {
    /// One expression per declared attribute; `None` where a default must be computed at the call.
    pub(crate) fn attributes(
        &mut self,
        callee: &Callable,
        named: &[(&Ident, &ast::Expr)],
        extra: Vec<ElaboratedOperand>,
        span: Span,
    ) -> Option<Vec<Option<Expr>>> {
        let mut attrs: Vec<Option<Expr>> = vec![None; callee.attrs.len()];
        if extra.len() > attrs.len() {
            let message = format!(
                "`{}` takes {}",
                callee.name,
                super::super::counted(callee.inputs.len(), "tensor")
            );
            return self.fail("R006", span, message, &super::super::signature_help(callee));
        }
        for (slot, arg) in attrs.iter_mut().zip(extra) {
            match arg {
                ElaboratedOperand::Scalar(e) => *slot = Some(e),
                ElaboratedOperand::Term(_) | ElaboratedOperand::Tuple(_) => {
                    let message = format!(
                        "`{}` takes {}",
                        callee.name,
                        super::super::counted(callee.inputs.len(), "tensor")
                    );
                    return self.fail("R006", span, message, &super::super::signature_help(callee));
                }
            }
        }
        for (name, value) in named {
            let Some(i) = callee.attrs.iter().position(|a| *a.name == *name.text) else {
                let names = callee.attrs.iter().map(|a| &*a.name);
                let help = crate::check::report::suggest(&name.text, names)
                    .unwrap_or_else(|| super::super::signature_help(callee));
                let message = format!("`{}` has no attribute `{}`", callee.name, name.text);
                return self.fail("R005", name.span, message, &help);
            };
            let resolved = self.resolve(value)?;
            self.fits(callee, i, &resolved)?;
            attrs[i] = Some(resolved);
        }
        for (param, slot) in callee.attrs.iter().zip(&mut attrs) {
            match (&slot, &param.default) {
                (None, None) => {
                    let message = format!("`{}` needs the attribute `{}`", callee.name, param.name);
                    return self.fail("R005", span, message, &super::super::signature_help(callee));
                }
                (None, Some(d)) if eval(d, &Env::default()).is_ok() => *slot = Some(d.clone()),
                _ => {}
            }
        }
        Some(attrs)
    }

    /// Reports a value that is known to be of another kind than the attribute.
    fn fits(&mut self, callee: &Callable, at: usize, value: &Expr) -> Option<()> {
        let param = &callee.attrs[at];
        let kind = param.ty.kind;
        let found = eval(value, &Env::default()).ok().map(|found| kind.taken(found));
        let Some(found) = found.filter(|found| !kind.admits(found)) else { return Some(()) };
        let wanted = kind.wanted();
        let message = format!("`{}` of `{}` is {wanted}, not {found}", param.name, callee.name);
        let help = match (&found, kind) {
            (Attr::Str(s), AttrKind::Axis) if self.is_axis(s) => {
                format!("the name of an axis has no quotes: `{}={s}`", param.name)
            }
            (Attr::Int(v), k) if k.admits(&Attr::ints(vec![0i64])) => {
                format!("write a list: `{}=[{v}]`", param.name)
            }
            _ => super::super::signature_help(callee),
        };
        self.fail("R005", value.span, message, &help)
    }

    /// Reports a position that no axis of a tensor has whose axes are all known.
    fn outside(
        &mut self,
        callee: &Callable,
        param: &AttrParam,
        e: &Expr,
        own: &[Dim],
    ) -> Option<()> {
        let single = |d: &Dim| matches!(d, Dim::Axis(_) | Dim::Value(_));
        let rank = own.len() as i64;
        let at = eval(e, &Env::default()).ok().and_then(|a| a.as_i64());
        let Some(at) = at.filter(|at| own.iter().all(single) && !(-rank..rank).contains(at)) else {
            return Some(());
        };
        let axes = match own.len() {
            1 => "one axis".to_string(),
            n => format!("{n} axes"),
        };
        let message =
            format!("`{}={at}` of `{}` is outside a tensor of {axes}", param.name, callee.name);
        let help = format!(
            "its axes are [{}]; an axis is given by its name, or counted from the end: `{}=-1`",
            dims::without_fresh(&dims::keys(own)),
            param.name
        );
        self.fail("R004", e.span, message, &help)
    }

    pub(crate) fn fail<T>(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        help: &str,
    ) -> Option<T> {
        self.diags.push(crate::check::report::error(code, span, message, help));
        None
    }

    /// Finds what the callee's axes and segments stand for. An argument that lacks only the leading
    /// segment that another has is broadcast along it.
    pub(crate) fn bind_args(
        &mut self,
        callee: &Callable,
        terms: Vec<TermId>,
        attrs: &[Option<Expr>],
        span: Span,
    ) -> Option<(Vec<TermId>, Bound)> {
        let mut bound = Bound { whole: None, names: Vec::new() };
        let mut out = terms.clone();
        let mut order: Vec<usize> = (0..terms.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(self.dims(terms[i]).len()));
        for i in order {
            let input = &callee.inputs[i];
            let Some(pattern) = input.ty.dims.clone() else { continue };
            let own = self.dims(terms[i]);
            let hint = self.axis_hint(callee, attrs, &own);
            let mark = bound.names.len();
            if bind(&pattern, &own, &mut bound, &hint) {
                continue;
            }
            bound.names.truncate(mark);
            if let [Dim::Seg(lead), rest @ ..] = pattern.as_slice()
                && let Some(lead) = bound.get(lead).map(<[Dim]>::to_vec)
                && rest.len() == own.len()
                && bind(rest, &own, &mut bound, &[])
            {
                let whole: Vec<Dim> = lead.into_iter().chain(own).collect();
                out[i] = self.conform(terms[i], &whole, span);
                continue;
            }
            bound.names.truncate(mark);
            if matches!(self.terms.get(terms[i]).kind, TermKind::Scalar(_))
                && let Some(whole) = dims::resolved(&pattern, &bound)
            {
                out[i] = self.conform(terms[i], &whole, span);
                continue;
            }
            // Either the attribute that tells the axis is a variable, or the axes are computed all at
            // once and have no names; the application's type tells.
            let computed = own.iter().any(|d| match d {
                Dim::Seg(n) => n.contains('#'),
                Dim::Splice(_) => true,
                Dim::Axis(_) | Dim::Value(_) => false,
            });
            if computed || dims::unknown(&pattern, &bound) >= 2 {
                continue;
            }
            let message = format!(
                "argument `{}` of `{}` has the axes [{}], expected [{}]",
                input.name,
                callee.name,
                dims::without_fresh(&dims::keys(&own)),
                dims::keys(&pattern)
            );
            return self.fail(
                "R008",
                self.terms.get(terms[i]).span,
                message,
                &super::super::signature_help(callee),
            );
        }
        Some((out, bound))
    }

    /// Which axis of `own` the callee's `axis(n)` attributes name, if they tell.
    fn axis_hint(
        &self,
        callee: &Callable,
        attrs: &[Option<Expr>],
        own: &[Dim],
    ) -> Vec<(Name, usize)> {
        let position = |(p, e): (&AttrParam, &Option<Expr>)| {
            Some((p.ty.axis()?.clone(), axis_index(e.as_ref()?, own)?))
        };
        callee.attrs.iter().zip(attrs).filter_map(position).collect()
    }

    /// Axis attributes given by name or counted from the end become positions; names that are not
    /// declared become attribute variables where that is allowed.
    pub(crate) fn positional_axes(
        &mut self,
        callee: &Callable,
        attrs: Vec<Option<Expr>>,
        terms: &[TermId],
        bound: &Bound,
        span: Span,
    ) -> Option<Vec<Option<Expr>>> {
        let mut out = Vec::with_capacity(attrs.len());
        for (param, e) in callee.attrs.iter().zip(attrs) {
            let Some(e) = e else {
                out.push(None);
                continue;
            };
            let arg = param.ty.axis().and_then(|of| {
                callee.inputs.iter().position(|i| {
                    i.ty.dims.iter().flatten().any(|d| matches!(d, Dim::Axis(n) if n == of))
                })
            });
            if let Some(arg) = arg {
                let own = self.dims(terms[arg]);
                if let Some(i) = axis_index(&e, &own) {
                    out.push(Some(dims::position(&own, i, span)));
                    continue;
                }
                self.outside(callee, param, &e, &own)?;
            }
            self.declare(&e, param, bound)?;
            out.push(Some(e));
        }
        Some(out)
    }

    /// Checks the names in an attribute expression.
    fn declare(&mut self, e: &Expr, param: &AttrParam, bound: &Bound) -> Option<()> {
        if let ExprKind::Name(n) = &e.kind {
            let known = self.attrs.iter().any(|a| a.name == *n);
            if !known && matches!(&**n, "True" | "False" | "None") {
                let help = match &**n {
                    "None" => "leave the attribute out where it has a default".to_string(),
                    _ => "truth values are written `true` and `false`".to_string(),
                };
                let message = format!("`{n}` is no value");
                self.diags.push(crate::check::report::error("R002", e.span, message, &help));
                return None;
            }
            if !known && self.declare_attrs {
                let ty = translate(&param.ty, bound);
                self.attrs.push(AttrParam { name: n.clone(), ty, default: None });
                return Some(());
            }
        }
        if self.declare_attrs {
            self.declare_entries(e, param);
        }
        self.check_names(e)
    }

    /// Names that a list in a pattern binds are integers, or lists of them where they are spliced.
    fn declare_entries(&mut self, e: &Expr, param: &AttrParam) {
        for (spliced, n) in crate::eval::list_patterns::names(e) {
            if self.attrs.iter().any(|a| a.name == *n) {
                continue;
            }
            let kind = if spliced { AttrKind::Ints } else { AttrKind::Int };
            let ty = AttrType { kind, of: None, range: None, span: param.ty.span };
            self.attrs.push(AttrParam { name: n.clone(), ty, default: None });
        }
    }

    /// Reports names in an attribute expression that nothing binds.
    pub fn check_names(&mut self, e: &Expr) -> Option<()> {
        let mut bad = Vec::new();
        let attrs = &self.attrs;
        let vars = self.vars;
        e.walk(&mut |e| match &e.kind {
            ExprKind::Name(n) => {
                let known = attrs.iter().any(|a| a.name == *n)
                    || vars.iter().any(|v| v.name == *n)
                    || super::super::mentions(vars, n);
                if !known {
                    bad.push((n.clone(), e.span, "R002"));
                }
            }
            ExprKind::Size(n) if !self.has_axis(n) => bad.push((n.clone(), e.span, "R004")),
            _ => {}
        });
        for (n, span, code) in &bad {
            let (message, help) = match *code {
                "R002" => (format!("`{n}` is not a variable"), self.near_variable(n)),
                _ => (format!("axis `{n}` is unknown here"), self.near_axis(n)),
            };
            self.diags.push(crate::check::report::error(code, *span, message, &help));
        }
        bad.is_empty().then_some(())
    }

    /// True if a variable, or a term built so far, has the axis or segment.
    fn has_axis(&self, n: &str) -> bool {
        let named = |d: &Dim| matches!(d, Dim::Axis(a) | Dim::Seg(a) if **a == *n);
        super::super::mentions(self.vars, n)
            || self.terms.iter().any(|(_, t)| t.dims.iter().flatten().any(named))
    }

    /// True of the name of a single axis.
    pub(crate) fn is_axis(&self, n: &str) -> bool {
        let vars = self.vars.iter().flat_map(|v| v.ty.dims.iter().flatten());
        let terms = self.terms.iter().flat_map(|(_, t)| t.dims.iter().flatten());
        let found =
            vars.chain(terms).find(|d| matches!(d, Dim::Axis(a) | Dim::Seg(a) if **a == *n));
        matches!(found, Some(Dim::Axis(_)))
    }

    fn near_variable(&self, n: &str) -> String {
        let vars = self.vars.iter().map(|v| &*v.name);
        let names = vars.chain(self.attrs.iter().map(|a| &*a.name));
        crate::check::report::suggest(n, names)
            .unwrap_or_else(|| format!("declare it, e.g. `{n}: int`, or name it with `where`"))
    }

    fn near_axis(&self, n: &str) -> String {
        let dims = self.vars.iter().flat_map(|v| v.ty.dims.iter().flatten());
        let mut names: Vec<&str> = dims
            .filter_map(|d| match d {
                Dim::Axis(n) | Dim::Seg(n) => Some(&**n),
                Dim::Value(_) | Dim::Splice(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        match (crate::check::report::suggest(n, names.iter().copied()), names.is_empty()) {
            (Some(near), _) => near,
            (None, true) => "no tensor here has named axes".into(),
            (None, false) => format!("the axes here are {}", names.join(", ")),
        }
    }

    /// Appends the application and works out the axes of its result.
    pub(crate) fn finish(
        &mut self,
        id: CallId,
        terms: Vec<TermId>,
        attrs: Vec<Option<Expr>>,
        bound: &Bound,
        dtypes: &[(Name, DTypePattern)],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let library = self.library;
        let callee = library.call(id);
        let own = terms.iter().map(|&t| self.dims(t)).collect();
        let from = Origin::Application(own, attrs.clone());
        let results: Vec<(Vec<Dim>, DTypePattern)> = callee
            .outputs
            .iter()
            .map(|(_, ty)| {
                let dtype = match &ty.dtype {
                    DTypePattern::Fixed(_) => ty.dtype.clone(),
                    DTypePattern::Var(v) => result_dtype(callee, v, &attrs, dtypes, self.vars),
                };
                let dims = ty.dims.as_deref().unwrap_or_default();
                (result_dims(callee, dims, bound, &terms, &attrs, self, &from), dtype)
            })
            .collect();
        let kind = TermKind::Apply(id, attrs);
        if let [(dims, dtype)] = results.as_slice() {
            let term =
                Term { kind, args: terms, dims: Some(dims.clone()), dtype: dtype.clone(), span };
            return Some(ElaboratedOperand::Term(self.terms.push(term)));
        }
        let (dims, dtype) = results.first()?.clone();
        let whole = self.terms.push(Term { kind, args: terms, dims: Some(dims), dtype, span });
        let outputs = results.into_iter().enumerate().map(|(i, (dims, dtype))| {
            let kind = TermKind::Output(i);
            ElaboratedOperand::Term(self.terms.push(Term {
                kind,
                args: vec![whole],
                dims: Some(dims),
                dtype,
                span,
            }))
        });
        Some(ElaboratedOperand::Tuple(outputs.collect()))
    }
}

/// The index in `own` of the axis that an attribute names: by name, from the end, or from the front
/// where no segment stands before it.
pub fn axis_index(e: &Expr, own: &[Dim]) -> Option<usize> {
    let single = |d: &Dim| matches!(d, Dim::Axis(_) | Dim::Value(_));
    match &e.kind {
        ExprKind::Name(n) => own.iter().position(|d| matches!(d, Dim::Axis(a) if a == n)),
        ExprKind::Unary(UnaryOp::Neg, k) => match k.kind {
            ExprKind::Int(k) => {
                let i = own.len().checked_sub(usize::try_from(k).ok()?)?;
                own[i..].iter().all(single).then_some(i)
            }
            _ => None,
        },
        ExprKind::Int(k) => {
            let i = usize::try_from(*k).ok()?;
            (i < own.len() && own[..=i].iter().all(single)).then_some(i)
        }
        _ => None,
    }
}
