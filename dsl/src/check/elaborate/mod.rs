//! Elaborates expressions over named axes to positional terms.

mod apply;
pub(crate) mod dims;
mod notation;
mod result;
mod symbols;
mod unify;

use super::resolve::Scope;
use crate::diagnostics::Diag;
use crate::diagnostics::span::{Ident, Span};
use crate::eval::functions::Function;
use crate::expr::{self, AttrType};
use crate::ir::DType;
use crate::library::{AttrParam, CallId, Callable, DTypePattern, Dim, Input, Library, Name};
use crate::syntax::ast::{Arg, BinaryOp, Expr, ExprKind, UnaryOp};
use crate::term::{Term, TermId, TermKind, Terms};
use dims::Fresh;

/// What an expression denotes.
#[derive(Clone, Debug)]
pub enum ElaboratedOperand {
    /// A tensor.
    Term(TermId),
    /// A number computed from attributes and extents.
    Scalar(expr::Expr),
    /// Several tensors.
    Tuple(Vec<ElaboratedOperand>),
}

/// Elaborates the expressions of one item.
pub struct Elaborator<'a> {
    /// Where operators are looked up.
    pub library: &'a Library,
    /// The terms built so far.
    pub terms: Terms,
    /// Tensor variables.
    pub vars: &'a [Input],
    /// Attribute variables; a left side may add to them.
    pub attrs: Vec<AttrParam>,
    /// A name in an attribute's place that is not declared becomes an attribute variable.
    pub declare_attrs: bool,
    /// Named parts.
    pub lets: Vec<(String, ElaboratedOperand)>,
    /// The dimensions of the family side of an `each` rule.
    pub each_dims: Option<Vec<Dim>>,
    /// Names of computed dimensions.
    pub fresh: Fresh,
    /// What is wrong.
    pub diags: Vec<Diag>,
}

type Attrs<'e> = Vec<(&'e Ident, &'e Expr)>;

impl<'a> Elaborator<'a> {
    /// An elaborator over these variables.
    pub fn new(library: &'a Library, vars: &'a [Input], attrs: &[AttrParam]) -> Elaborator<'a> {
        Elaborator {
            library,
            terms: Terms::default(),
            vars,
            attrs: attrs.to_vec(),
            declare_attrs: false,
            lets: Vec::new(),
            each_dims: None,
            fresh: Fresh::default(),
            diags: Vec::new(),
        }
    }

    pub(super) fn error<T>(
        &mut self,
        code: &'static str,
        span: Span,
        message: String,
        help: &str,
    ) -> Option<T> {
        self.diags.push(crate::check::report::error(code, span, message, help));
        None
    }

    /// An attribute expression, with the numbers that `let` and `where` name in their places.
    pub fn resolve(&mut self, e: &Expr) -> Option<expr::Expr> {
        let number = |n: &str| match self.lets.iter().rev().find(|(l, _)| l == n) {
            Some((_, ElaboratedOperand::Scalar(value))) => Some(value.clone()),
            _ => None,
        };
        let scope = Scope { tensors: self.vars, attrs: &self.attrs, numbers: &number };
        scope.expr(e).map_err(|d| self.diags.push(d)).ok()
    }

    fn number(&mut self, e: &Expr) -> Option<ElaboratedOperand> {
        self.resolve(e).map(ElaboratedOperand::Scalar)
    }

    /// The dimensions of a term.
    pub fn dims(&self, t: TermId) -> Vec<Dim> {
        self.terms.get(t).dims.clone().unwrap_or_default()
    }

    /// Elaborates to a tensor; a number is an error.
    pub fn term(&mut self, e: &Expr) -> Option<TermId> {
        match self.operand(e)? {
            ElaboratedOperand::Term(t) => Some(t),
            ElaboratedOperand::Scalar(_) => self.error(
                "R010",
                e.span,
                "expected a tensor, found a number".into(),
                "a number meets a tensor through an operator, e.g. `x * 2`",
            ),
            ElaboratedOperand::Tuple(_) => self.error(
                "R010",
                e.span,
                "expected one tensor, found several".into(),
                "destructure the tuple: `let (a, b) = …`",
            ),
        }
    }

    /// Elaborates any expression.
    pub fn operand(&mut self, e: &Expr) -> Option<ElaboratedOperand> {
        match &e.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Size(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::List(_) => self.number(e),
            ExprKind::If { cond, .. } if self.compares_tensors(cond) => self.error(
                "R010",
                e.span,
                "`if` and `else` choose by numbers, here the condition is a tensor".into(),
                "elements are chosen by `select(x > 0, a, b)`",
            ),
            ExprKind::If { .. } => self.number(e),
            ExprKind::Name(n) => self.name(n, e),
            ExprKind::Tuple(items) => {
                let items = items.iter().map(|i| self.operand(i)).collect::<Option<Vec<_>>>()?;
                Some(ElaboratedOperand::Tuple(items))
            }
            ExprKind::Unary(op, a) => match self.operand(a)? {
                ElaboratedOperand::Scalar(a) => {
                    let kind = expr::ExprKind::Unary(*op, Box::new(a));
                    Some(ElaboratedOperand::Scalar(expr::Expr { kind, span: e.span }))
                }
                x => self.primitive(op.operator(), vec![x], e.span),
            },
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, e),
            ExprKind::Call { callee, args } => self.call(callee, args, e),
            ExprKind::Index { base, otherwise: None, .. }
                if self.attrs.iter().any(|a| *a.name == *base.text) =>
            {
                self.number(e)
            }
            ExprKind::Index { base, index, otherwise: None } => {
                let name = ExprKind::Name(base.text.clone());
                self.reorder(&Expr { kind: name, span: base.span }, index, e.span)
            }
            ExprKind::Axes { of, index } => self.reorder(of, index, e.span),
            ExprKind::Reduce { monoid, axes, body } => self.reduce(monoid, axes, body, e.span),
            ExprKind::Index { .. } => self.error(
                "R011",
                e.span,
                "`else` is only allowed with element access in a meaning".into(),
                "use `select(c, a, b)` or `pad` between tensors",
            ),
        }
    }

    /// True if a condition compares elements of tensors.
    fn compares_tensors(&self, cond: &Expr) -> bool {
        match &cond.kind {
            ExprKind::Name(n) => match self.lets.iter().rev().find(|(l, _)| l == n) {
                Some((_, o)) => matches!(o, ElaboratedOperand::Term(_)),
                None => self.vars.iter().any(|v| &*v.name == n),
            },
            ExprKind::Unary(_, a) => self.compares_tensors(a),
            ExprKind::Binary(_, a, b) => self.compares_tensors(a) || self.compares_tensors(b),
            _ => false,
        }
    }

    fn name(&mut self, n: &str, e: &Expr) -> Option<ElaboratedOperand> {
        if let Some((_, o)) = self.lets.iter().rev().find(|(l, _)| l == n) {
            return Some(o.clone());
        }
        if let Some(i) = self.vars.iter().position(|v| &*v.name == n) {
            return Some(ElaboratedOperand::Term(self.var(i, e.span)));
        }
        let known = self.attrs.iter().any(|a| &*a.name == n);
        if known || matches!(n, "pi" | "inf" | "nan") || n.parse::<crate::ir::DType>().is_ok() {
            return self.number(e);
        }
        let message = format!("`{n}` is not a variable");
        if self.diags.iter().any(|d| d.message == message) {
            return None; // Once is enough.
        }
        if self.is_axis(n) {
            let help = format!(
                "its extent is `|{n}|`; a reduction stands before a term: `max({n}) x`, `max({n}) (-x)`"
            );
            return self.error("R002", e.span, format!("`{n}` is an axis, not a variable"), &help);
        }
        let names = self.vars.iter().map(|v| &*v.name).chain(self.attrs.iter().map(|a| &*a.name));
        let help = crate::check::report::suggest(n, names).unwrap_or_else(|| {
            format!("declare it, e.g. `{n}: F[..s]` for a tensor or `{n}: float` for a number")
        });
        self.error("R002", e.span, message, &help)
    }

    /// The term of variable `i`. A variable without declared axes has one segment of its own.
    pub fn var(&mut self, i: usize, span: Span) -> TermId {
        let v = &self.vars[i];
        let anonymous = || vec![Dim::Seg(Name::from(format!("{}.shape", v.name)))];
        let dims = v.ty.dims.clone().unwrap_or_else(anonymous);
        let dtype = v.ty.dtype.clone();
        self.terms.push(Term {
            kind: TermKind::Var(i),
            args: vec![],
            dims: Some(dims),
            dtype,
            span,
        })
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, e: &Expr) -> Option<ElaboratedOperand> {
        let (x, y) = (self.operand(a), self.operand(b));
        let (x, y) = (x?, y?);
        let (x, y) = match (x, y) {
            (ElaboratedOperand::Scalar(x), ElaboratedOperand::Scalar(y)) => {
                let kind = expr::ExprKind::Binary(op, Box::new(x), Box::new(y));
                return Some(ElaboratedOperand::Scalar(expr::Expr { kind, span: e.span }));
            }
            tensors => tensors,
        };
        let (name, swapped) = op.operator();
        if op == BinaryOp::Ne {
            let same = self.primitive(name, vec![x, y], e.span)?;
            return self.primitive(UnaryOp::Not.operator(), vec![same], e.span);
        }
        let args = if swapped { vec![y, x] } else { vec![x, y] };
        self.primitive(name, args, e.span)
    }

    /// Applies an operator that the notation itself stands for.
    fn primitive(
        &mut self,
        name: &str,
        args: Vec<ElaboratedOperand>,
        span: Span,
    ) -> Option<ElaboratedOperand> {
        match self.library.find(name) {
            Some(call) => self.apply(call, args, &[], span),
            None => self.error(
                "R003",
                span,
                format!("the operator `{name}` that this notation denotes is not declared"),
                "read `rules/ops` before this text",
            ),
        }
    }

    fn call(&mut self, callee: &Ident, args: &[Arg], e: &Expr) -> Option<ElaboratedOperand> {
        let each = args.iter().any(|a| a.each);
        let positional: Vec<&Arg> = args.iter().filter(|a| a.name.is_none()).collect();
        let mut operands = Vec::new();
        for a in &positional {
            operands.push(self.operand(&a.value)?);
        }
        let named: Attrs =
            args.iter().filter_map(|a| a.name.as_ref().map(|n| (n, &a.value))).collect();
        let all_scalar = operands.iter().all(|o| matches!(o, ElaboratedOperand::Scalar(_)));
        let function = Function::of_attributes(&callee.text);
        let shape_of = matches!(function, Some(Function::Rank | Function::Shape | Function::Dtype));
        if shape_of {
            return self.number(e);
        }
        if let Some(f) = function
            && all_scalar
            && named.is_empty()
            && !operands.is_empty()
        {
            let number = |o| if let ElaboratedOperand::Scalar(e) = o { Some(e) } else { None };
            let args = operands.into_iter().map(number).collect::<Option<_>>()?;
            let kind = expr::ExprKind::Call(f, args);
            return Some(ElaboratedOperand::Scalar(expr::Expr { kind, span: e.span }));
        }
        match callee.text.as_str() {
            "split" => return self.split(operands, &named, e.span),
            "part" if self.each_dims.is_some() => return self.part(operands, &named, e.span),
            "pointwise" => {
                return match <[ElaboratedOperand; 1]>::try_from(operands) {
                    Ok([x]) => Some(x),
                    Err(_) => {
                        let help =
                            "write `pointwise(x)` around what may be followed by such operators";
                        self.error("R006", e.span, "`pointwise` takes one tensor".into(), help)
                    }
                };
            }
            _ => {}
        }
        let Some(id) = self.library.find(&callee.text) else {
            let names = self.library.calls.iter().map(|c| &*c.name);
            let help = crate::check::report::suggest(&callee.text, names)
                .unwrap_or_else(|| "declare it with `op`, `def` or `extern`".into());
            let message = format!("`{}` is not an operator", callee.text);
            return self.error("R003", callee.span, message, &help);
        };
        if each {
            return self.each_fold(id, operands, &named, e.span);
        }
        self.apply(id, operands, &named, e.span)
    }

    /// Applies an operator to operands and attributes, inserting broadcasts.
    pub fn apply(
        &mut self,
        id: CallId,
        mut args: Vec<ElaboratedOperand>,
        named: &[(&Ident, &Expr)],
        span: Span,
    ) -> Option<ElaboratedOperand> {
        let library = self.library;
        let callee = library.call(id);
        if args.len() < callee.inputs.len() {
            let (name, n, found) = (&callee.name, callee.inputs.len(), args.len());
            let message = format!("`{name}` takes {}, {found} given", super::counted(n, "tensor"));
            return self.error("R006", span, message, &super::signature_help(callee));
        }
        let extra = args.split_off(callee.inputs.len());
        let attrs = self.attributes(callee, named, extra, span)?;
        let mut dtypes = Vec::new();
        for (input, arg) in callee.inputs.iter().zip(&args) {
            if let ElaboratedOperand::Term(t) = arg {
                self.bind_dtype(callee, input, *t, &mut dtypes, span)?;
            }
        }
        let mut terms = Vec::new();
        for (input, arg) in callee.inputs.iter().zip(args) {
            terms.push(self.tensor(callee, input, arg, &dtypes, span)?);
        }
        let (terms, bound) = if is_pointwise(callee) {
            self.align(terms, span)?
        } else {
            self.bind_args(callee, terms, &attrs, span)?
        };
        let attrs = self.positional_axes(callee, attrs, &terms, &bound, span)?;
        self.finish(id, terms, attrs, &bound, &dtypes, span)
    }

    fn bind_dtype(
        &mut self,
        callee: &Callable,
        input: &Input,
        t: TermId,
        dtypes: &mut Vec<(Name, DTypePattern)>,
        span: Span,
    ) -> Option<()> {
        let found = self.terms.get(t).dtype.clone();
        let fits = match &input.ty.dtype {
            DTypePattern::Fixed(d) => match &found {
                DTypePattern::Fixed(f) => d == f,
                DTypePattern::Var(v) => DTypePattern::Var(v.clone()).admits(*d),
            },
            p @ DTypePattern::Var(v) => match dtypes.iter().find(|(n, _)| n == v) {
                Some((_, known)) => *known == found,
                None => {
                    dtypes.push((v.clone(), found.clone()));
                    match &found {
                        DTypePattern::Fixed(f) => p.admits(*f),
                        DTypePattern::Var(_) => true,
                    }
                }
            },
        };
        if fits {
            return Some(());
        }
        let expected = match &input.ty.dtype {
            DTypePattern::Var(v) => dtypes.iter().find(|(n, d)| n == v && *d != found),
            DTypePattern::Fixed(_) => None,
        };
        let expected = expected.map_or(&input.ty.dtype, |(_, d)| d);
        let message = format!(
            "argument `{}` of `{}` has element type {}, expected {}",
            input.name,
            callee.name,
            super::dtype_name(&found),
            super::dtype_name(expected)
        );
        let help = format!("{}; `cast(x, to=…)` converts", super::signature_help(callee));
        self.error("R007", span, message, &help)
    }

    /// An operand as a term; a number becomes a scalar of the parameter's element type.
    fn tensor(
        &mut self,
        callee: &Callable,
        input: &Input,
        arg: ElaboratedOperand,
        dtypes: &[(Name, DTypePattern)],
        span: Span,
    ) -> Option<TermId> {
        match arg {
            ElaboratedOperand::Term(t) => Some(t),
            ElaboratedOperand::Tuple(_) => {
                let help = "destructure the tuple: `let (a, b) = …`";
                self.error("R010", span, "expected one tensor, found several".into(), help)
            }
            ElaboratedOperand::Scalar(e) => {
                let dtype = match &input.ty.dtype {
                    d @ DTypePattern::Fixed(_) => Some(d.clone()),
                    DTypePattern::Var(v) => {
                        let shown = dtypes.iter().find(|(n, _)| n == v).map(|(_, d)| d.clone());
                        shown.or_else(|| own_dtype(callee, v, &e))
                    }
                };
                let Some(dtype) = dtype else {
                    let message = format!(
                        "the element type of this argument of `{}` cannot be inferred",
                        callee.name
                    );
                    return self.error(
                        "R007",
                        e.span,
                        message,
                        "use a tensor of that type, or state it: `cast(x, to=f32)`",
                    );
                };
                self.check_names(&e)?;
                Some(self.scalar(e, dtype, span))
            }
        }
    }

    fn scalar(&mut self, e: expr::Expr, dtype: DTypePattern, span: Span) -> TermId {
        self.terms.push(Term {
            kind: TermKind::Scalar(e),
            args: vec![],
            dims: Some(vec![]),
            dtype,
            span,
        })
    }

    /// Brings the operands of a pointwise operator to one shape.
    fn align(&mut self, terms: Vec<TermId>, span: Span) -> Option<(Vec<TermId>, Bound)> {
        let mut result: Option<Vec<Dim>> = None;
        for &t in &terms {
            let own = self.dims(t);
            let whole = match &result {
                None => Some(own.clone()),
                Some(known) => dims::union(known, &own),
            };
            let Some(whole) = whole else {
                let left = result.unwrap_or_default();
                let message = format!(
                    "the axes [{}] and [{}] cannot be aligned",
                    dims::without_fresh(&dims::keys(&left)),
                    dims::without_fresh(&dims::keys(&own))
                );
                let help = match left.iter().chain(&own).any(dims::is_computed) {
                    true => {
                        "a computed axis has no name; name it by its position, also with a name of another tensor: \
                         `let r = …` and `r[b, c, ..s] + x`"
                    }
                    false => {
                        "unnamed axes are aligned from the last one backwards, and an extent of 1 is not broadcast; \
                         name them: `x: F[a, b]` and `g: F[a]` are aligned along `a`"
                    }
                };
                return self.error("R008", span, message, help);
            };
            result = Some(whole);
        }
        let result = result.unwrap_or_default();
        let terms = terms.into_iter().map(|t| self.conform(t, &result, span)).collect();
        Some((terms, Bound { whole: Some(result), names: Vec::new() }))
    }

    /// `t` with the axes of `result`, of which it has some, in that order.
    pub fn conform(&mut self, t: TermId, result: &[Dim], span: Span) -> TermId {
        let own = self.dims(t);
        if own == result {
            return t;
        }
        let at = dims::places(&own, result).unwrap_or_default();
        let mut order: Vec<usize> = (0..own.len()).collect();
        order.sort_by_key(|&i| at.get(i));
        let sorted: Vec<Dim> = order.iter().map(|&i| own[i].clone()).collect();
        let mut t = t;
        if !order.is_sorted() {
            t = self.transpose(t, &order, span);
        }
        if sorted == result {
            return t;
        }
        let at: Vec<usize> = order.iter().filter_map(|&i| at.get(i).copied()).collect();
        let map = dims::positions_of(result, &at, span);
        let attrs = vec![map, dims::shape(result, span)];
        self.structural("broadcast", t, attrs, result.to_vec(), span)
    }

    pub(super) fn transpose(&mut self, t: TermId, order: &[usize], span: Span) -> TermId {
        let own = self.dims(t);
        let perm = dims::positions_of(&own, order, span);
        let sorted = order.iter().map(|&i| own[i].clone()).collect();
        self.structural("transpose", t, vec![perm], sorted, span)
    }

    /// One of the operators that the notation inserts by itself.
    pub(super) fn structural(
        &mut self,
        name: &str,
        t: TermId,
        attrs: Vec<expr::Expr>,
        dims: Vec<Dim>,
        span: Span,
    ) -> TermId {
        let Some(call) = self.library.find(name) else {
            self.diags.push(crate::check::report::error(
                "R003",
                span,
                format!("the operator `{name}` that this notation needs is not declared"),
                "read `rules/ops` before this text",
            ));
            return t;
        };
        let dtype = self.terms.get(t).dtype.clone();
        let kind = TermKind::Apply(call, attrs.into_iter().map(Some).collect());
        self.terms.push(Term { kind, args: vec![t], dims: Some(dims), dtype, span })
    }
}

/// What a callee's names stand for in the caller.
pub struct Bound {
    /// The one shape of a pointwise operator.
    pub whole: Option<Vec<Dim>>,
    /// Axes (one dimension) and segments (any number).
    pub names: Vec<(Name, Vec<Dim>)>,
}

impl Bound {
    /// What a name stands for.
    pub fn get(&self, n: &str) -> Option<&[Dim]> {
        if let Some(w) = &self.whole {
            return Some(w);
        }
        self.names.iter().find(|(b, _)| &**b == n).map(|(_, d)| d.as_slice())
    }
}

/// True if every parameter is one and the same segment.
pub fn is_pointwise(callee: &Callable) -> bool {
    let segment = |i: &Input| match i.ty.dims.as_deref() {
        Some([Dim::Seg(s)]) => Some(s.clone()),
        _ => None,
    };
    let Some(first) = callee.inputs.first().and_then(segment) else { return false };
    callee.inputs.iter().all(|i| segment(i).as_ref() == Some(&first))
        && callee
            .outputs
            .iter()
            .all(|(_, t)| matches!(t.dims.as_deref(), Some([Dim::Seg(s)]) if *s == first))
}

/// An attribute type in the caller's names.
pub fn translate(ty: &AttrType, bound: &Bound) -> AttrType {
    let mut ty = ty.clone();
    if let Some(of) = &ty.of {
        ty.of = match bound.get(of) {
            Some([Dim::Axis(n) | Dim::Seg(n)]) => Some(n.clone()),
            _ => None,
        };
    }
    // Ranges speak of the callee's names.
    let closed = |e: &Option<expr::Expr>| {
        e.as_ref().is_none_or(|e| crate::eval::eval(e, &crate::eval::Env::default()).is_ok())
    };
    if ty.range.as_ref().is_some_and(|(low, high)| !closed(low) || !closed(high)) {
        ty.range = None;
    }
    ty
}

/// The element type of a number where nothing but itself depends on it, as in `cast(1, to=F)`.
fn own_dtype(callee: &Callable, var: &Name, e: &expr::Expr) -> Option<DTypePattern> {
    let uses = |d: &DTypePattern| matches!(d, DTypePattern::Var(v) if v == var);
    let inputs = callee.inputs.iter().filter(|i| uses(&i.ty.dtype)).count();
    let free = inputs == 1 && !callee.outputs.iter().any(|o| uses(&o.1.dtype));
    match &e.kind {
        expr::ExprKind::Int(_) if free => Some(DTypePattern::Fixed(DType::I64)),
        expr::ExprKind::Float(_) if free => Some(DTypePattern::Fixed(DType::F32)),
        _ => None,
    }
}
