//! Normalises patterns: laws marked `when normal` rewrite the patterns of all others.

use super::PatId;
use super::compile::PatternCompiler;
use crate::eval::functions::Function;
use crate::eval::{Env, eval, truth};
use crate::expr::{BinaryOp, Expr, ExprKind};
use crate::library::{CallId, DTypePattern, Dim, Law, Name, OpClass};
use crate::term::{TermId, TermKind};

/// What the variables of a normalising law stand for while a pattern is rewritten.
pub(super) struct Subst {
    pub(super) vars: Vec<Option<PatId>>,
    pub(super) attrs: Vec<(Name, Expr)>,
    pub(super) dims: Option<Vec<Dim>>,
    pub(super) dtype: Option<DTypePattern>,
}

impl Subst {
    pub(super) fn none() -> Subst {
        Subst { vars: Vec::new(), attrs: Vec::new(), dims: None, dtype: None }
    }

    /// True where a law's own terms are compiled.
    pub(super) fn is_none(&self) -> bool {
        self.vars.is_empty() && self.attrs.is_empty() && self.dims.is_none() && self.dtype.is_none()
    }
}

impl PatternCompiler<'_> {
    /// A pointwise operator of numbers is a number.
    pub(super) fn number(&self, call: CallId, args: &[PatId]) -> Option<Expr> {
        let c = self.library.call(call);
        if c.class != OpClass::Pointwise {
            return None;
        }
        let args: Vec<Expr> =
            args.iter().map(|&a| self.as_scalar(a).cloned()).collect::<Option<_>>()?;
        let kind = match (&*c.name, args.as_slice()) {
            ("add" | "sub" | "mul" | "div" | "pow", [a, b]) => {
                let op = match &*c.name {
                    "add" => BinaryOp::Add,
                    "sub" => BinaryOp::Sub,
                    "mul" => BinaryOp::Mul,
                    "div" => BinaryOp::Div,
                    _ => BinaryOp::Pow,
                };
                // Among integers `/` and `^` of attributes mean something else.
                let a = Expr::call(Function::Float, vec![a.clone()]);
                ExprKind::Binary(op, Box::new(a), Box::new(b.clone()))
            }
            ("neg", [a]) => {
                let minus = Expr::new(ExprKind::Float(-1.0));
                ExprKind::Binary(BinaryOp::Mul, Box::new(minus), Box::new(a.clone()))
            }
            (name, [_]) => return Some(Expr::call(Function::of_attributes(name)?, args)),
            _ => return None,
        };
        Some(Expr::new(kind))
    }

    /// Rewrites by the first normalising law that fits.
    pub(super) fn rewrite(
        &mut self,
        call: CallId,
        attrs: &[Option<Expr>],
        args: &[PatId],
        dims: &[Dim],
        dtype: &DTypePattern,
    ) -> Option<PatId> {
        if self.depth > 8 || self.library.call(call).class != OpClass::Pointwise {
            return None;
        }
        for law in self.normal {
            let root = law.terms.get(law.left[0].root);
            let TermKind::Apply(c, law_attrs) = &root.kind else { continue };
            if *c != call || law.name == self.law.name || !law_attrs.is_empty() && !attrs.is_empty()
            {
                continue;
            }
            let mut subst = Subst::none();
            subst.vars = vec![None; law.vars.len()];
            let fits = root.args.iter().zip(args).all(|(&t, &p)| self.fits(law, t, p, &mut subst));
            if fits
                && let DTypePattern::Fixed(d) = dtype
                && !law.terms.get(law.left[0].root).dtype.admits(*d)
            {
                continue;
            }
            // What a condition asks of a value, or of a number still open, no pattern can answer.
            let holds = |e: &Expr| {
                matches!(truth(&substitute(e, &subst.attrs), &Env::default()), Ok(Some(true)))
            };
            if !fits || !self.admits(law, dtype) || !law.conditions.iter().all(holds) {
                continue;
            }
            subst.dims = Some(dims.to_vec());
            subst.dtype = Some(dtype.clone());
            self.depth += 1;
            let p = self.term(&law.terms, law.right[0].root, &subst);
            self.depth -= 1;
            return Some(p);
        }
        None
    }

    /// True if every dtype that the pattern may have is one that the law admits.
    fn admits(&self, law: &Law, dtype: &DTypePattern) -> bool {
        match (&law.terms.get(law.left[0].root).dtype, dtype) {
            (DTypePattern::Fixed(a), DTypePattern::Fixed(b)) => a == b,
            (p @ DTypePattern::Var(_), DTypePattern::Fixed(d)) => p.admits(*d),
            (DTypePattern::Var(a), DTypePattern::Var(b)) => {
                let family = |v: &str| v.chars().next().unwrap_or('T');
                let (a, b) = (family(a), family(b));
                a == 'T' || a == b || a == 'N' && matches!(b, 'F' | 'I')
            }
            (DTypePattern::Fixed(_), DTypePattern::Var(_)) => false,
        }
    }

    fn fits(&self, law: &Law, t: TermId, p: PatId, subst: &mut Subst) -> bool {
        match &law.terms.get(t).kind {
            TermKind::Var(i) => match subst.vars[*i] {
                None => {
                    subst.vars[*i] = Some(p);
                    true
                }
                Some(q) => p == q,
            },
            TermKind::Scalar(e) => {
                let Some(found) = self.as_scalar(p) else { return false };
                if let Some(n) = e.as_name()
                    && law.attrs.iter().any(|a| a.name == *n)
                {
                    subst.attrs.push((n.clone(), found.clone()));
                    return true;
                }
                let value = |e: &Expr| eval(e, &Env::default()).ok().and_then(|a| a.as_f64());
                value(e).is_some() && value(e) == value(found)
            }
            TermKind::Apply(c, attrs) if self.implied(*c, attrs) => {
                let arg = law.terms.get(t).args[0];
                matches!(law.terms.get(arg).kind, TermKind::Scalar(_))
                    && self.fits(law, arg, p, subst)
            }
            _ => false,
        }
    }
}

/// `e` with names replaced.
pub(super) fn substitute(e: &Expr, attrs: &[(Name, Expr)]) -> Expr {
    if attrs.is_empty() {
        return e.clone();
    }
    e.substitute(&|n| attrs.iter().find(|(a, _)| **a == *n).map(|(_, v)| v.clone()))
}
