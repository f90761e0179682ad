//! Static checks of an operator's meaning: names, indices, functions and kinds of values.
//!
//! What the text alone does not decide (lengths of segments, extents) is left to samples.

pub(crate) mod classify;
pub mod operator_properties;
pub(crate) mod recurrence;
mod values;

use crate::check::report::{error, suggest};
use crate::diagnostics::span::{Ident, Span};
use crate::diagnostics::{Diag, Severity};
use crate::expr::{self, AttrKind};
use crate::ir::DType;
use crate::library::{Callable, DTypePattern, Dim};
use crate::syntax::ast::{Elem, Expr, ExprKind, Meaning, UnaryOp};
use std::collections::BTreeSet;
use values::{ValueKind, all_float, is_bool, is_var};

/// Every mistake in an operator's meanings.
pub(super) fn check(c: &Callable, meanings: &[Meaning]) -> Vec<Diag> {
    let mut out = MeaningChecker {
        c,
        scope: vec![],
        used: BTreeSet::new(),
        read: BTreeSet::new(),
        diags: vec![],
    };
    for (i, m) in meanings.iter().enumerate() {
        out.meaning(i, m);
    }
    if out.diags.is_empty() {
        out.unused(meanings);
    }
    out.diags
}

/// Reads one operator's meanings.
pub(super) struct MeaningChecker<'a> {
    pub(super) c: &'a Callable,
    /// Index variables: name, whether it is a segment's.
    pub(super) scope: Vec<(String, bool)>,
    /// Names of indices and attributes that were read.
    pub(super) used: BTreeSet<String>,
    /// Tensors that were read.
    read: BTreeSet<String>,
    pub(super) diags: Vec<Diag>,
}

impl MeaningChecker<'_> {
    pub(super) fn say(&mut self, code: &'static str, span: Span, message: String, help: &str) {
        self.diags.push(error(code, span, message, help));
    }

    fn meaning(&mut self, i: usize, m: &Meaning) {
        let Some((name, ty)) = self.c.outputs.get(i) else { return };
        if !name.is_empty() && **name != *m.output.text {
            let message =
                format!("this equation is of `{}`, output {} is `{name}`", m.output.text, i + 1);
            self.say(
                "R014",
                m.output.span,
                message,
                "one equation per output, in the order of the outputs",
            );
        }
        let dims = ty.dims.as_deref().unwrap_or_default();
        let written = dims.iter().map(shown).collect::<Vec<_>>().join(", ");
        let help = format!("write `{}[{written}] = …`", m.output.text);
        self.scope.clear();
        if m.index.len() != dims.len() {
            let message = format!(
                "`{}` has the axes [{written}] and is given by {}",
                m.output.text,
                super::counted(m.index.len(), "index variable")
            );
            self.say("R008", m.output.span, message, &help);
        }
        for (j, elem) in m.index.iter().enumerate() {
            let segment = matches!(elem, Elem::Splice(_));
            let e = elem.expr();
            let ExprKind::Name(n) = &e.kind else {
                let message = "the index on the left of a meaning consists of names".to_string();
                self.say("R004", e.span, message, &help);
                continue;
            };
            let fits = match dims.get(j) {
                Some(Dim::Axis(a)) => !segment && **a == **n,
                Some(Dim::Seg(s)) => segment && **s == **n,
                Some(Dim::Value(_)) => !segment,
                Some(Dim::Splice(_)) => segment,
                None => true,
            };
            if !fits {
                let dots = if segment { ".." } else { "" };
                let message = format!("`{dots}{n}` denotes the axis {}", shown(&dims[j]));
                self.say("R004", e.span, message, &help);
            }
            self.scope.push((n.clone(), segment));
        }
        self.used.clear();
        let found = self.expr(&m.value);
        self.result(&found, &ty.dtype, m);
        let idle = self.scope.iter().find(|(n, segment)| !segment && !self.used.contains(n));
        if let Some((n, _)) = idle.cloned()
            && self.diags.is_empty()
        {
            let message = format!(
                "index `{n}` is not used: all elements of `{}` along it are equal",
                m.output.text
            );
            let help = "read an element at it, or leave the axis out: what is added to a tensor with more axes is broadcast";
            self.say("R024", m.output.span, message, help);
            self.diags.iter_mut().for_each(|d| d.severity = Severity::Warning);
        }
    }

    /// The value of an equation against the declared element type.
    fn result(&mut self, found: &ValueKind, declared: &DTypePattern, m: &Meaning) {
        let float = all_float(declared);
        let to_attr =
            matches!(declared, DTypePattern::Var(v) if self.c.attrs.iter().any(|a| a.name == *v));
        let bool = is_bool(declared);
        let (fits, what) = match found {
            _ if to_attr => (true, String::new()),
            ValueKind::Open => (true, String::new()),
            ValueKind::Elem(p) => {
                let fits = p == declared || float && !is_bool(p) && (all_float(p) || is_var(p));
                (fits, format!("an element of type {}", super::dtype_name(p)))
            }
            ValueKind::Int => (!bool, "an integer".into()),
            ValueKind::Real => (float, "a real number".into()),
            ValueKind::Truth => (bool, "a truth value".into()),
            ValueKind::List => (false, "a list of indices".into()),
            ValueKind::DType | ValueKind::Word => (false, "a word".into()),
        };
        if !fits {
            let message = format!(
                "`{}` is declared {}, its meaning is {what}",
                m.output.text,
                super::dtype_name(declared)
            );
            let help = match found {
                ValueKind::Truth => "declare it `bool`, or write `1 if … else 0`",
                ValueKind::List => {
                    "`ravel(i, shape)` is one number of a list, `entry(i, k)` one of its entries"
                }
                ValueKind::Elem(_) | ValueKind::Int | ValueKind::Real if bool => {
                    "a comparison is a truth value: `… != 0`"
                }
                _ => "declare that type, or convert: `cast(…, to)`",
            };
            self.say("R007", m.value.span, message, help);
        }
    }

    pub(super) fn expr(&mut self, e: &Expr) -> ValueKind {
        match &e.kind {
            ExprKind::Int(_) => ValueKind::Int,
            ExprKind::Float(_) => ValueKind::Real,
            ExprKind::Bool(_) => ValueKind::Truth,
            ExprKind::Str(_) => ValueKind::Word,
            ExprKind::Name(n) => self.name(n, e.span),
            ExprKind::Size(n) => self.size(n, e.span),
            ExprKind::List(items) => {
                self.items(items);
                ValueKind::List
            }
            ExprKind::Axes { .. } => {
                let help = "an element is read of a parameter: `x[b, n]`";
                self.say("R010", e.span, "only parameters have elements here".into(), help);
                ValueKind::Open
            }
            ExprKind::Tuple(_) => {
                self.say(
                    "R010",
                    e.span,
                    "a meaning is one value, not several".into(),
                    "write one equation per output",
                );
                ValueKind::Open
            }
            ExprKind::Unary(UnaryOp::Not, a) => {
                self.condition(a);
                ValueKind::Truth
            }
            ExprKind::Unary(UnaryOp::Neg, a) => self.expr(a),
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, e.span),
            ExprKind::Call { callee, args } => self.call(callee, args, e.span),
            ExprKind::Index { base, index, otherwise } => {
                let found = self.element(base, index, e.span);
                match otherwise {
                    Some(o) => {
                        let other = self.expr(o);
                        self.join(found, other, e.span)
                    }
                    None => found,
                }
            }
            ExprKind::Reduce { monoid, axes, body } => self.reduce(monoid, axes, body),
            ExprKind::If { cond, then, otherwise } => {
                self.condition(cond);
                let (a, b) = (self.expr(then), self.expr(otherwise));
                self.join(a, b, e.span)
            }
        }
    }

    fn items(&mut self, items: &[Elem]) {
        for item in items {
            let found = self.expr(item.expr());
            let fits = match item {
                Elem::One(_) => match &found {
                    ValueKind::Elem(p) => !all_float(p),
                    k => matches!(k, ValueKind::Int | ValueKind::Open),
                },
                Elem::Splice(_) => matches!(found, ValueKind::List | ValueKind::Open),
            };
            if !fits {
                let (message, help) = match (item, found) {
                    (Elem::One(_), ValueKind::List) => {
                        ("expected one index, found a list", "`..` splices a list")
                    }
                    (Elem::One(_), _) => {
                        ("an index is an integer", "`int(…)` truncates a real number")
                    }
                    (Elem::Splice(_), _) => {
                        ("`..` splices a list, this is one value", "leave `..` out")
                    }
                };
                self.say("R010", item.expr().span, message.into(), help);
            }
        }
    }

    fn name(&mut self, n: &str, span: Span) -> ValueKind {
        self.used.insert(n.to_string());
        if let Some((_, segment)) = self.scope.iter().rev().find(|(s, _)| s == n) {
            return if *segment { ValueKind::List } else { ValueKind::Int };
        }
        if let Some(a) = self.c.attrs.iter().find(|a| *a.name == *n) {
            return match a.ty.kind {
                AttrKind::Int | AttrKind::Axis => ValueKind::Int,
                AttrKind::Float => ValueKind::Real,
                AttrKind::Bool => ValueKind::Truth,
                AttrKind::String => ValueKind::Word,
                AttrKind::DType => ValueKind::DType,
                AttrKind::Ints | AttrKind::Axes | AttrKind::Perm | AttrKind::Shape => {
                    ValueKind::List
                }
                AttrKind::Floats => ValueKind::Open,
            };
        }
        if n == "lowest" {
            return ValueKind::Open;
        }
        if matches!(n, "pi" | "inf" | "nan") {
            return ValueKind::Real;
        }
        if n.parse::<DType>().is_ok() || self.types().any(|t| *t == DTypePattern::Var(n.into())) {
            return ValueKind::DType;
        }
        let (message, help) = if self.c.inputs.iter().any(|i| *i.name == *n) {
            (
                format!("`{n}` is a tensor; a meaning reads its elements"),
                format!("write `{n}[…]` with an index per axis"),
            )
        } else if self.extent(n).is_some() {
            (
                format!("`{n}` is not an index here"),
                format!(
                    "its extent is `|{n}|`; a reduction such as `sum({n})` makes an index of it"
                ),
            )
        } else {
            (format!("`{n}` is neither an index nor a parameter"), self.near(n))
        };
        self.say("R002", span, message, &help);
        ValueKind::Open
    }

    fn types(&self) -> impl Iterator<Item = &DTypePattern> {
        self.c.inputs.iter().map(|i| &i.ty.dtype).chain(self.c.outputs.iter().map(|o| &o.1.dtype))
    }

    fn near(&self, n: &str) -> String {
        let scope = self.scope.iter().map(|s| s.0.as_str());
        let params =
            self.c.inputs.iter().map(|i| &*i.name).chain(self.c.attrs.iter().map(|a| &*a.name));
        suggest(n, scope.chain(params)).unwrap_or_else(|| {
            let names: Vec<&str> = self.scope.iter().map(|s| s.0.as_str()).collect();
            match names.is_empty() {
                true => "there are no indices here".into(),
                false => format!("the indices here are {}", names.join(", ")),
            }
        })
    }

    /// Whether a name is that of an axis (`false`) or a segment (`true`) that has an extent; a `where` may be either.
    pub(super) fn extent(&self, n: &str) -> Option<Option<bool>> {
        let inputs = self.c.inputs.iter().flat_map(|i| i.ty.dims.iter().flatten());
        for d in inputs {
            match d {
                Dim::Axis(a) if **a == *n => return Some(Some(false)),
                Dim::Seg(s) if **s == *n => return Some(Some(true)),
                _ => {}
            }
        }
        let outputs = self.c.outputs.iter().flat_map(|o| o.1.dims.iter().flatten());
        for d in outputs {
            match d {
                Dim::Axis(a) if **a == *n => return Some(Some(false)),
                Dim::Seg(s) if **s == *n => return Some(Some(true)),
                _ => {}
            }
        }
        self.c.wheres.iter().any(|(w, _)| **w == *n).then_some(None)
    }

    fn size(&mut self, n: &str, span: Span) -> ValueKind {
        self.used.insert(n.to_string());
        match self.extent(n) {
            Some(Some(false)) => ValueKind::Int,
            Some(Some(true)) => ValueKind::List,
            Some(None) => ValueKind::Open,
            None => {
                let message = format!("axis `{n}` is unknown here");
                let help = self.near(n);
                self.say("R004", span, message, &help);
                ValueKind::Open
            }
        }
    }

    fn element(&mut self, base: &Ident, index: &[Elem], span: Span) -> ValueKind {
        self.items(index);
        let own = self.c.outputs.iter().find(|o| *o.0 == *base.text).map(|o| &o.1);
        let input = self.c.inputs.iter().find(|i| *i.name == *base.text).map(|i| &i.ty);
        let Some(ty) = input.or(own) else {
            self.used.insert(base.text.clone());
            let attr = self.c.attrs.iter().find(|a| *a.name == *base.text);
            return match attr.map(|a| a.ty.kind) {
                Some(k) if k.is_ints() => ValueKind::Int,
                Some(AttrKind::Floats) => ValueKind::Real,
                Some(_) => {
                    self.say(
                        "R010",
                        span,
                        format!("`{}` is one value, not a list", base.text),
                        "leave the index out",
                    );
                    ValueKind::Open
                }
                None => {
                    let names = self.c.inputs.iter().map(|i| &*i.name);
                    let own: Vec<&str> = names.clone().collect();
                    let help = suggest(&base.text, names)
                        .unwrap_or_else(|| format!("the tensors here are {}", own.join(", ")));
                    self.say(
                        "R002",
                        base.span,
                        format!("`{}` is not a parameter", base.text),
                        &help,
                    );
                    ValueKind::Open
                }
            };
        };
        self.read.insert(base.text.clone());
        let dims = ty.dims.as_deref();
        let kind = ValueKind::Elem(ty.dtype.clone());
        let Some(dims) = dims else { return kind };
        let count = |dims: &[Dim]| {
            dims.iter().filter(|d| matches!(d, Dim::Axis(_) | Dim::Value(_))).count()
        };
        let (axes, open) = (count(dims), count(dims) < dims.len());
        let single = index.iter().filter(|e| matches!(e, Elem::One(_))).count();
        let spliced = single < index.len();
        let fits = match (open, spliced) {
            (false, false) => axes == single,
            (false, true) => single <= axes,
            (true, false) => false,
            (true, true) => true,
        };
        if !fits {
            let written = dims.iter().map(shown).collect::<Vec<_>>().join(", ");
            let given = super::counted(index.len(), "index variable")
                .replace("variable", "entry")
                .replace("entrys", "entries");
            let message =
                format!("`{}` has the axes [{written}] and is read with {given}", base.text);
            self.say(
                "R008",
                span,
                message,
                &format!("write an index for each: `{}[{written}]`", base.text),
            );
        }
        self.places(&base.text, dims, index);
        kind
    }

    /// An index variable of an axis that another tensor declares, at an axis of another name.
    fn places(&mut self, base: &str, dims: &[Dim], index: &[Elem]) {
        if dims.len() != index.len() {
            return;
        }
        let out_of_place = dims.iter().zip(index).find_map(|(d, e)| match (d, e) {
            (Dim::Axis(a), Elem::One(Expr { kind: ExprKind::Name(n), span })) => {
                let own = dims.iter().any(|d| matches!(d, Dim::Axis(b) if **b == **n));
                (own && **a != **n).then(|| (a.to_string(), n.clone(), *span))
            }
            _ => None,
        });
        if let Some((axis, n, span)) = out_of_place {
            let message = format!(
                "`{n}` indexes the axis `{axis}` of `{base}`, which has another axis `{n}`"
            );
            let help = "an axis is indexed by its own name; introduce another index for the other axis with `sum` or `where`";
            self.say("R004", span, message, help);
        }
    }

    /// Parameters that no equation reads.
    fn unused(&mut self, meanings: &[Meaning]) {
        let c = self.c;
        let mut named: BTreeSet<String> = self.used.clone();
        for m in meanings {
            super::walk(&m.value, &mut |e| match &e.kind {
                ExprKind::Name(n) | ExprKind::Size(n) => drop(named.insert(n.clone())),
                ExprKind::Index { base, .. } => drop(named.insert(base.text.clone())),
                _ => {}
            });
        }
        let mut note = |e: &expr::Expr| {
            e.walk(&mut |e| match &e.kind {
                expr::ExprKind::Name(n)
                | expr::ExprKind::Size(n)
                | expr::ExprKind::Type(_, n)
                | expr::ExprKind::Entry(n, _) => drop(named.insert(n.to_string())),
                _ => {}
            });
        };
        c.wheres.iter().for_each(|w| note(&w.1));
        c.conditions.iter().for_each(&mut note);
        c.attrs.iter().filter_map(|a| a.default.as_ref()).for_each(&mut note);
        c.outputs.iter().flat_map(|o| o.1.dims.iter().flatten()).for_each(|d| match d {
            Dim::Value(e) | Dim::Splice(e) => note(e),
            Dim::Axis(_) | Dim::Seg(_) => {}
        });
        let typed = |n: &str| c.outputs.iter().any(|o| o.1.dtype == DTypePattern::Var(n.into()));
        let inputs =
            c.inputs.iter().filter(|i| !self.read.contains(&*i.name) && !named.contains(&*i.name));
        let attrs = c.attrs.iter().filter(|a| {
            a.ty.kind != AttrKind::Axis && !named.contains(&*a.name) && !typed(&a.name)
        });
        let idle: Vec<String> = inputs
            .map(|i| &i.name)
            .chain(attrs.map(|a| &a.name))
            .map(|n| format!("`{n}`"))
            .collect();
        if !idle.is_empty() {
            let message = format!("`{}` does not use its parameter {}", c.name, idle.join(", "));
            let mut d =
                error("R024", c.source.span, message, "use it in the meaning, or leave it out");
            d.severity = Severity::Warning;
            self.diags.push(d);
        }
    }
}

/// A dimension as it is written.
fn shown(d: &Dim) -> String {
    match d {
        Dim::Axis(n) => n.to_string(),
        Dim::Seg(n) => format!("..{n}"),
        Dim::Value(e) => e.to_string(),
        Dim::Splice(e) => format!("..{e}"),
    }
}
