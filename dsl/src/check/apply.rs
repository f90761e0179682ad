//! Applications: attributes, what the callee's axes stand for, and the shape of the result.

use super::dims;
use super::elaborate::{Bound, Elaborator, Operand, translate};
use crate::eval::{Env, eval};
use crate::functions::is_function;
use crate::library::{AttrParam, CallId, Callable, DTypePattern, Dim, Name};
use crate::syntax::ast::{Arg, BinaryOp, Elem, Expr, ExprKind, Ident, Span, UnaryOp};
use crate::term::{Term, TermId, TermKind};

impl Elaborator<'_> {
    /// One expression per declared attribute; `None` where a default must be computed at the call.
    pub(super) fn attributes(
        &mut self,
        callee: &Callable,
        named: &[(&Ident, &Expr)],
        extra: Vec<Operand>,
        span: Span,
    ) -> Option<Vec<Option<Expr>>> {
        let mut attrs: Vec<Option<Expr>> = vec![None; callee.attrs.len()];
        if extra.len() > attrs.len() {
            let message = format!("`{}` takes {} tensors", callee.name, callee.inputs.len());
            return self.fail("R006", span, message, &super::signature_help(callee));
        }
        for (slot, arg) in attrs.iter_mut().zip(extra) {
            match arg {
                Operand::Scalar(e) => *slot = Some(self.inline(&e)),
                Operand::Term(_) | Operand::Tuple(_) => {
                    let message =
                        format!("`{}` takes {} tensors", callee.name, callee.inputs.len());
                    return self.fail("R006", span, message, &super::signature_help(callee));
                }
            }
        }
        for (name, value) in named {
            let Some(i) = callee.attrs.iter().position(|a| *a.name == *name.text) else {
                let names = callee.attrs.iter().map(|a| &*a.name);
                let help = super::suggest(&name.text, names)
                    .unwrap_or_else(|| super::signature_help(callee));
                let message = format!("`{}` has no attribute `{}`", callee.name, name.text);
                return self.fail("R005", name.span, message, &help);
            };
            attrs[i] = Some(self.inline(value));
        }
        for (param, slot) in callee.attrs.iter().zip(&mut attrs) {
            match (&slot, &param.default) {
                (None, None) => {
                    let message = format!("`{}` needs the attribute `{}`", callee.name, param.name);
                    return self.fail("R005", span, message, &super::signature_help(callee));
                }
                (None, Some(d)) if eval(d, &Env::default()).is_ok() => *slot = Some(d.clone()),
                _ => {}
            }
        }
        Some(attrs)
    }

    pub(super) fn fail<T>(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        help: &str,
    ) -> Option<T> {
        self.diags.push(super::error(code, span, message, help));
        None
    }

    /// Finds what the callee's axes and segments stand for. An argument that lacks only the leading
    /// segment that another has is broadcast along it.
    pub(super) fn bind_args(
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
                dims::keys(&own),
                dims::keys(&pattern)
            );
            return self.fail(
                "R008",
                self.terms.get(terms[i]).span,
                message,
                &super::signature_help(callee),
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
        let axis_attrs = callee.attrs.iter().zip(attrs).filter(|(p, _)| p.ty.name.text == "axis");
        axis_attrs
            .filter_map(|(p, e)| {
                let of = p.ty.of.as_ref()?;
                Some((Name::from(of.text.as_str()), axis_index(e.as_ref()?, own)?))
            })
            .collect()
    }

    /// Axis attributes given by name or counted from the end become positions; names that are not
    /// declared become attribute variables where that is allowed.
    pub(super) fn positional_axes(
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
            let of = param.ty.of.as_ref().filter(|_| param.ty.name.text == "axis");
            let arg = of.and_then(|of| {
                callee.inputs.iter().position(|i| {
                    i.ty.dims.iter().flatten().any(|d| matches!(d, Dim::Axis(n) if **n == *of.text))
                })
            });
            if let Some(arg) = arg {
                let own = self.dims(terms[arg]);
                if let Some(i) = axis_index(&e, &own) {
                    out.push(Some(dims::position(&own, i, span)));
                    continue;
                }
            }
            self.declare(&e, param, bound)?;
            out.push(Some(e));
        }
        Some(out)
    }

    /// Checks the names in an attribute expression.
    fn declare(&mut self, e: &Expr, param: &AttrParam, bound: &Bound) -> Option<()> {
        if let ExprKind::Name(n) = &e.kind {
            let known = self.attrs.iter().any(|a| &*a.name == n)
                || matches!(n.as_str(), "pi" | "inf" | "nan")
                || n.parse::<crate::ir::DType>().is_ok();
            if !known && self.declare_attrs {
                let ty = translate(&param.ty, bound);
                self.attrs.push(AttrParam { name: Name::from(n.as_str()), ty, default: None });
                return Some(());
            }
        }
        self.check_names(e)
    }

    /// Reports names in an attribute expression that nothing binds.
    pub fn check_names(&mut self, e: &Expr) -> Option<()> {
        let mut bad = Vec::new();
        let attrs = &self.attrs;
        let vars = self.vars;
        super::walk(e, &mut |e| match &e.kind {
            ExprKind::Name(n) => {
                let known = attrs.iter().any(|a| &*a.name == n)
                    || vars.iter().any(|v| &*v.name == n)
                    || matches!(n.as_str(), "pi" | "inf" | "nan" | "lowest" | "highest" | "normal")
                    || n.parse::<crate::ir::DType>().is_ok()
                    || super::mentions(vars, n);
                if !known {
                    bad.push((n.clone(), e.span, "R002"));
                }
            }
            ExprKind::Size(n) if !super::mentions(vars, n) => bad.push((n.clone(), e.span, "R004")),
            ExprKind::Call { callee, .. }
                if !is_function(&callee.text) && !super::is_predicate(&callee.text) =>
            {
                bad.push((callee.text.clone(), callee.span, "R009"));
            }
            _ => {}
        });
        for (n, span, code) in &bad {
            let message = match *code {
                "R002" => format!("`{n}` is not a variable"),
                "R004" => format!("axis `{n}` is unknown here"),
                _ => format!("`{n}` is not a function on attributes"),
            };
            self.diags.push(super::error(code, *span, message, ""));
        }
        bad.is_empty().then_some(())
    }

    /// Appends the application and works out the axes of its result.
    pub(super) fn finish(
        &mut self,
        id: CallId,
        terms: Vec<TermId>,
        attrs: Vec<Option<Expr>>,
        bound: &Bound,
        dtypes: &[(Name, DTypePattern)],
        span: Span,
    ) -> Option<Operand> {
        let library = self.library;
        let callee = library.call(id);
        let from = self.fingerprint(callee, &terms, &attrs);
        let results: Vec<(Vec<Dim>, DTypePattern)> = callee
            .outputs
            .iter()
            .map(|(_, ty)| {
                let dtype = match &ty.dtype {
                    DTypePattern::Fixed(_) => ty.dtype.clone(),
                    DTypePattern::Var(v) => result_dtype(callee, v, &attrs, dtypes),
                };
                let dims = ty.dims.as_deref().unwrap_or_default();
                (result_dims(callee, dims, bound, &terms, &attrs, self, &from), dtype)
            })
            .collect();
        let kind = TermKind::Apply(id, attrs);
        if let [(dims, dtype)] = results.as_slice() {
            let term =
                Term { kind, args: terms, dims: Some(dims.clone()), dtype: dtype.clone(), span };
            return Some(Operand::Term(self.terms.push(term)));
        }
        let (dims, dtype) = results.first()?.clone();
        let whole = self.terms.push(Term { kind, args: terms, dims: Some(dims), dtype, span });
        let outputs = results.into_iter().enumerate().map(|(i, (dims, dtype))| {
            let kind = TermKind::Output(i);
            Operand::Term(self.terms.push(Term {
                kind,
                args: vec![whole],
                dims: Some(dims),
                dtype,
                span,
            }))
        });
        Some(Operand::Tuple(outputs.collect()))
    }

    /// A text that is the same for applications whose computed extents are the same.
    fn fingerprint(&self, callee: &Callable, terms: &[TermId], attrs: &[Option<Expr>]) -> String {
        let mut out = callee.name.to_string();
        for &t in terms {
            out += &format!("[{}]", dims::keys(&self.dims(t)));
        }
        for a in attrs {
            out += &a.as_ref().map(crate::syntax::print_expr).unwrap_or_default();
            out += ";";
        }
        out
    }

    /// `split(x, axis=…, sizes=[…])` or `split(x, axis=…, parts=n)`: slices of `x` along one axis.
    pub(super) fn split(
        &mut self,
        operands: Vec<Operand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<Operand> {
        let find = |k: &str| named.iter().find(|(n, _)| n.text == k).map(|(_, e)| *e);
        let usage = "write `split(x, axis=-1, sizes=[|m|, |n|])` or `split(x, axis=-1, parts=2)`";
        let ([Operand::Term(t)], Some(axis)) = (operands.as_slice(), find("axis")) else {
            return self.fail("R006", span, "`split` takes one tensor and an axis".into(), usage);
        };
        let own = self.dims(*t);
        let Some(at) = axis_index(axis, &own) else {
            return self.fail("R004", axis.span, "this is not an axis of the tensor".into(), usage);
        };
        let sizes: Vec<Expr> = match (find("sizes"), find("parts")) {
            (Some(Expr { kind: ExprKind::List(items), .. }), None) => {
                let one = items.iter().map(|i| match i {
                    Elem::One(e) => Some(e.clone()),
                    Elem::Splice(_) => None,
                });
                match one.collect() {
                    Some(sizes) => sizes,
                    None => {
                        return self.fail("R006", span, "sizes are listed singly".into(), usage);
                    }
                }
            }
            (None, Some(Expr { kind: ExprKind::Int(n @ 1..=64), .. })) => {
                let whole = dims::shape(&own[at..=at], span);
                let whole = dims::call("total", vec![whole], span);
                let n_expr = dims::expr(ExprKind::Int(*n), span);
                let op = crate::syntax::ast::BinaryOp::Div;
                let part = ExprKind::Binary(op, Box::new(whole), Box::new(n_expr));
                vec![dims::expr(part, span); *n as usize]
            }
            _ => return self.fail("R006", span, "`split` needs `sizes` or `parts`".into(), usage),
        };
        let mut start = dims::expr(ExprKind::Int(0), span);
        let mut parts = Vec::new();
        for size in sizes {
            parts.push(self.slice(*t, &own, at, start.clone(), size.clone(), span)?);
            let op = crate::syntax::ast::BinaryOp::Add;
            start = dims::expr(ExprKind::Binary(op, Box::new(start), Box::new(size)), span);
        }
        Some(Operand::Tuple(parts))
    }

    fn slice(
        &mut self,
        t: TermId,
        own: &[Dim],
        at: usize,
        start: Expr,
        size: Expr,
        span: Span,
    ) -> Option<Operand> {
        let Some(call) = self.library.find("slice") else {
            let message = "the operator `slice` that this notation stands for is not declared";
            return self.fail("R003", span, message.into(), "read `rules/ops` before this text");
        };
        let mut result = own.to_vec();
        result[at] = match &size.kind {
            ExprKind::Size(n) => Dim::Axis(Name::from(n.as_str())),
            _ => {
                let from = format!("{}{}", dims::keys(own), crate::syntax::print_expr(&size));
                Dim::Axis(Name::from(dims::fresh("split", "n", &from)))
            }
        };
        let one = dims::expr(ExprKind::Int(1), span);
        let attrs = vec![
            Some(dims::uniform_but(own, 0, at, start, span)),
            Some(dims::shape_but(own, at, size, span)),
            Some(dims::uniform_but(own, 1, at, one, span)),
        ];
        let dtype = self.terms.get(t).dtype.clone();
        let kind = TermKind::Apply(call, attrs);
        let term = Term { kind, args: vec![t], dims: Some(result), dtype, span };
        Some(Operand::Term(self.terms.push(term)))
    }

    /// `part(e, axis=…)` in the right side of an `each` rule.
    pub(super) fn part(
        &mut self,
        operands: Vec<Operand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<Operand> {
        let usage = "write `part(e, axis=-1)`";
        let ([Operand::Term(t)], [(_, axis)]) = (operands.as_slice(), named) else {
            return self.fail("R006", span, "`part` takes one tensor and an axis".into(), usage);
        };
        let own = self.dims(*t);
        let Some(at) = axis_index(axis, &own) else {
            return self.fail("R004", axis.span, "this is not an axis of the tensor".into(), usage);
        };
        let kind = TermKind::EachPart(dims::position(&own, at, span));
        let dtype = self.terms.get(*t).dtype.clone();
        let dims = self.each_dims.clone();
        Some(Operand::Term(self.terms.push(Term { kind, args: vec![*t], dims, dtype, span })))
    }

    /// `concat(each a, axis=…)`: a binary operator folded over the members of the family.
    pub(super) fn each_fold(
        &mut self,
        id: CallId,
        operands: Vec<Operand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<Operand> {
        let callee = self.library.call(id);
        let [Operand::Term(t)] = operands.as_slice() else {
            return self.fail("R006", span, "`each` marks one tensor argument".into(), "");
        };
        if callee.inputs.len() != 2 {
            let message =
                format!("`{}` does not fold a family: it takes not two tensors", callee.name);
            return self.fail("R006", span, message, "fold with an operator of two tensors");
        }
        let pair = vec![Operand::Term(*t), Operand::Term(*t)];
        let folded = match self.apply(id, pair, named, span)? {
            Operand::Term(f) => f,
            Operand::Tuple(_) | Operand::Scalar(_) => return None,
        };
        // The pair shows dtype, axes and attributes of the fold; the family decides its extents.
        let pair = self.terms.get(folded).clone();
        let TermKind::Apply(_, attrs) = pair.kind else { return None };
        let mut result = pair.dims.unwrap_or_default();
        for d in &mut result {
            match d {
                Dim::Axis(n) if n.contains('#') => *d = Dim::Axis(Name::from(format!("{n}*"))),
                Dim::Value(e) if !matches!(e.kind, ExprKind::Int(_)) => {
                    let from = format!("{}{}", callee.name, crate::syntax::print_expr(e));
                    *d = Dim::Axis(Name::from(dims::fresh("each", "n", &from)));
                }
                _ => {}
            }
        }
        let kind = TermKind::EachFold(id, attrs);
        let term = Term { kind, args: vec![*t], dims: Some(result), dtype: pair.dtype, span };
        Some(Operand::Term(self.terms.push(term)))
    }
}

/// The index in `own` of the axis that an attribute names: by name, from the end, or from the front
/// where no segment stands before it.
pub fn axis_index(e: &Expr, own: &[Dim]) -> Option<usize> {
    let single = |d: &Dim| matches!(d, Dim::Axis(_) | Dim::Value(_));
    match &e.kind {
        ExprKind::Name(n) => own.iter().position(|d| matches!(d, Dim::Axis(a) if **a == **n)),
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

/// Binds the names of `pattern` to parts of `own`; false if they do not fit (then nothing is certain).
fn bind(pattern: &[Dim], own: &[Dim], bound: &mut Bound, hint: &[(Name, usize)]) -> bool {
    if dims::unknown(pattern, bound) >= 2 {
        let at = pattern.iter().enumerate().find_map(|(i, d)| match d {
            Dim::Axis(n) => hint.iter().find(|(h, _)| h == n).map(|(_, at)| (i, *at)),
            _ => None,
        });
        let Some((i, at)) = at.filter(|(_, at)| *at < own.len()) else { return false };
        return bind(&pattern[..i], &own[..at], bound, &[])
            && bind(&pattern[i..=i], &own[at..=at], bound, &[])
            && bind(&pattern[i + 1..], &own[at + 1..], bound, &[]);
    }
    let len = |d: &Dim, bound: &Bound| match d {
        Dim::Seg(s) => bound.get(s).map(<[Dim]>::len),
        _ => Some(1),
    };
    let fixed: usize = pattern.iter().filter_map(|d| len(d, bound)).sum();
    let Some(free) = own.len().checked_sub(fixed) else { return false };
    if dims::unknown(pattern, bound) == 0 && free > 0 {
        return false;
    }
    let mut at = 0;
    for d in pattern {
        let n = len(d, bound).unwrap_or(free);
        let part = &own[at..at + n];
        at += n;
        let name = match d {
            Dim::Axis(_) if matches!(part[0], Dim::Seg(_) | Dim::Splice(_)) => return false,
            Dim::Axis(n) | Dim::Seg(n) => n,
            Dim::Value(_) | Dim::Splice(_) => continue,
        };
        match bound.get(name) {
            // Extents that bear other names may still be equal: the application's type tells.
            Some(b) if b.len() == part.len() => {}
            Some(_) => return false,
            None => bound.names.push((name.clone(), part.to_vec())),
        }
    }
    true
}

fn result_dtype(
    callee: &Callable,
    v: &Name,
    attrs: &[Option<Expr>],
    dtypes: &[(Name, DTypePattern)],
) -> DTypePattern {
    if let Some((_, d)) = dtypes.iter().find(|(n, _)| n == v) {
        return d.clone();
    }
    let attr = callee.attrs.iter().position(|a| a.name == *v).and_then(|i| attrs[i].as_ref());
    match attr.map(|e| &e.kind) {
        Some(ExprKind::Name(n)) => match n.parse() {
            Ok(d) => DTypePattern::Fixed(d),
            Err(()) => DTypePattern::Var(Name::from(n.as_str())),
        },
        _ => DTypePattern::Var(v.clone()),
    }
}

/// The dimensions of a result: bound names are replaced, computed ones get a name of their own.
fn result_dims(
    callee: &Callable,
    pattern: &[Dim],
    bound: &Bound,
    terms: &[TermId],
    attrs: &[Option<Expr>],
    elaborator: &Elaborator<'_>,
    from: &str,
) -> Vec<Dim> {
    // Where an axis attribute is a variable the callee's segments are open; a result of the same
    // shape as an argument still has that argument's axes.
    let open = pattern.iter().any(|d| match d {
        Dim::Axis(n) | Dim::Seg(n) => {
            bound.get(n).is_none() && !callee.wheres.iter().any(|(w, _)| w == n)
        }
        _ => false,
    });
    if open {
        let twin = callee
            .inputs
            .iter()
            .position(|i| i.ty.dims.as_deref().is_some_and(|d| dims::same(d, pattern)));
        return match twin {
            Some(i) => elaborator.dims(terms[i]),
            None => vec![Dim::Seg(Name::from(dims::fresh(&callee.name, "shape", from)))],
        };
    }
    let mut out = Vec::new();
    for (i, d) in pattern.iter().enumerate() {
        match d {
            Dim::Axis(n) => match bound.get(n) {
                Some(b) => out.extend_from_slice(b),
                None => out.push(Dim::Axis(computed(callee, n, bound, attrs, from))),
            },
            Dim::Seg(n) => match bound.get(n) {
                Some(b) => out.extend_from_slice(b),
                None => match stated(callee, n, bound, attrs) {
                    Some(stated) => out.extend(stated),
                    None => out.push(Dim::Seg(computed(callee, n, bound, attrs, from))),
                },
            },
            Dim::Value(Expr { kind: ExprKind::Int(_), .. }) => out.push(d.clone()),
            Dim::Value(e) => out.push(match in_callers_names(e, callee, bound, attrs) {
                Some(e) if dims::find(&out, &stated_dim(&Elem::One(e.clone()))).is_none() => {
                    stated_dim(&Elem::One(e))
                }
                _ => Dim::Axis(Name::from(dims::fresh(&callee.name, &i.to_string(), from))),
            }),
            Dim::Splice(_) => {
                let name = dims::fresh(&callee.name, &i.to_string(), from);
                out.push(Dim::Seg(Name::from(name)));
            }
        }
    }
    out
}

/// The dimensions of a result's segment that only rearranges what the caller knows (`where b = shape`,
/// `where b = permute(|a|, perm)`), in the caller's names: `shape=[..|h|, |m|]` yields the axes `..h, m`.
/// `None` if it computes new extents, or two axes would bear one name.
fn stated(
    callee: &Callable,
    segment: &Name,
    bound: &Bound,
    attrs: &[Option<Expr>],
) -> Option<Vec<Dim>> {
    let (_, value) = callee.wheres.iter().find(|(w, _)| w == segment)?;
    let mut computes = false;
    super::walk(value, &mut |e| computes |= matches!(e.kind, ExprKind::Binary(..)));
    if computes {
        return None;
    }
    let e = in_callers_names(value, callee, bound, attrs)?;
    let out: Vec<Dim> = match &e.kind {
        ExprKind::List(items) => items.iter().map(stated_dim).collect(),
        _ => vec![stated_dim(&Elem::Splice(e))],
    };
    let distinct = (1..out.len()).all(|i| dims::find(&out[..i], &out[i]).is_none());
    distinct.then_some(out)
}

/// A name for what a `where` computes: the same for all applications that compute the same.
fn computed(
    callee: &Callable,
    n: &Name,
    bound: &Bound,
    attrs: &[Option<Expr>],
    from: &str,
) -> Name {
    let value = callee.wheres.iter().find(|(w, _)| w == n).map(|(_, e)| e);
    let value = value.and_then(|e| in_callers_names(e, callee, bound, attrs));
    let from = value.map_or(from.to_string(), |e| crate::syntax::print_expr(&e));
    Name::from(dims::fresh(&callee.name, n, &from))
}

fn stated_dim(e: &Elem) -> Dim {
    match e {
        Elem::One(Expr { kind: ExprKind::Size(n), .. }) => Dim::Axis(Name::from(n.as_str())),
        Elem::Splice(Expr { kind: ExprKind::Size(n), .. }) => Dim::Seg(Name::from(n.as_str())),
        Elem::One(e) => Dim::Value(e.clone()),
        Elem::Splice(e) => Dim::Splice(e.clone()),
    }
}

/// An extent in terms of the callee's names, in terms of the caller's; `None` if it says more than
/// the caller knows.
fn in_callers_names(
    e: &Expr,
    callee: &Callable,
    bound: &Bound,
    attrs: &[Option<Expr>],
) -> Option<Expr> {
    let again = |e: &Expr| in_callers_names(e, callee, bound, attrs);
    let kind = match &e.kind {
        ExprKind::Int(_) => return Some(e.clone()),
        ExprKind::Name(n) => {
            let i = callee.attrs.iter().position(|a| *a.name == **n)?;
            return attrs[i].clone();
        }
        ExprKind::Size(n) => {
            let axis = callee.inputs.iter().flat_map(|i| i.ty.dims.iter().flatten());
            let axis = axis.into_iter().any(|d| matches!(d, Dim::Axis(a) if **a == **n));
            let list = dims::shape(bound.get(n)?, e.span);
            return match &list.kind {
                ExprKind::List(items) => match items.as_slice() {
                    [Elem::One(one)] if axis => Some(one.clone()),
                    [Elem::Splice(all)] if !axis => Some(all.clone()),
                    _ if axis => None,
                    _ => Some(list),
                },
                _ => None,
            };
        }
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (again(a)?, again(b)?);
            match (op, &a.kind, &b.kind) {
                (BinaryOp::Mul, ExprKind::Int(1), _) => return Some(b),
                (BinaryOp::Mul, _, ExprKind::Int(1)) => return Some(a),
                _ => ExprKind::Binary(*op, Box::new(a), Box::new(b)),
            }
        }
        ExprKind::Call { callee, args } => {
            let args = args
                .iter()
                .map(|a| Some(Arg { value: again(&a.value)?, ..a.clone() }))
                .collect::<Option<_>>()?;
            ExprKind::Call { callee: callee.clone(), args }
        }
        _ => return None,
    };
    Some(Expr { kind, span: e.span })
}
