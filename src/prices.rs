//! What operators cost on a target: a roofline over operations and bytes, both read off the meanings.
//!
//! Prices are per operator and guide extraction; the cost of a plan is that of its kernels.

use crate::explore::Prices;
use mlc_dsl::build::Builder;
use mlc_dsl::infer::infer;
use mlc_dsl::ir::{Attr, NodeKind, Program, Type};
use mlc_dsl::library::{CallId, CallKind, Callable, Library, OpClass, TargetItem};
use mlc_dsl::syntax::ast::{BinaryOp, Elem, Expr, ExprKind};
use mlc_extract::cover::{elements, nominal, profile};
use mlc_extract::{Profile, Work};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// An application: operator, attributes, types of its arguments.
type Application = (CallId, Vec<Attr>, Vec<Type>);

/// Prices on a target.
pub struct TargetPrices<'a> {
    library: &'a Library,
    profile: Profile,
    /// What fraction of its launch and traffic a pointwise operator is expected to keep once fused.
    pointwise: f64,
    /// What fraction a change of layout is expected to keep.
    view: f64,
    /// Operators that may be chosen; `None` for all primitives and what the target's kernels cover.
    allowed: Option<HashSet<CallId>>,
    kernels: HashMap<CallId, f64>,
    definitions: RefCell<HashMap<Application, Option<Work>>>,
}

impl<'a> TargetPrices<'a> {
    /// Prices by a target's figures.
    pub fn new(
        library: &'a Library,
        target: &TargetItem,
        allowed: Option<HashSet<CallId>>,
    ) -> TargetPrices<'a> {
        let figure = |k: &str, default: f64| target.figures.get(k).copied().unwrap_or(default);
        let covered = |k: &mlc_dsl::library::TargetKernel| {
            let factor = k.factor;
            k.covers.clone().into_iter().map(move |c| (c, factor))
        };
        TargetPrices {
            library,
            profile: profile(target),
            pointwise: figure("pointwise", 0.3),
            view: figure("view", 0.1),
            allowed,
            kernels: target.kernels.iter().flat_map(covered).collect(),
            definitions: RefCell::default(),
        }
    }

    /// The sum of a program's operator prices; `None` if the target lacks one of them.
    pub fn program(&self, program: &Program) -> Option<f64> {
        let mut sum = 0.0;
        for n in &program.nodes {
            if let NodeKind::Apply(call, attrs) = &n.kind {
                let args: Vec<&Type> = n.args.iter().map(|&a| program.ty(a)).collect();
                sum += self.seconds(*call, attrs, &args, &n.types)?;
            }
        }
        Some(sum)
    }

    fn permitted(&self, id: CallId, c: &Callable) -> bool {
        match (&self.allowed, &c.kind) {
            (Some(set), _) => set.contains(&id),
            (None, CallKind::Op(_) | CallKind::Extern(_)) => true,
            (None, CallKind::Def(_)) => self.kernels.contains_key(&id) || self.is_pointwise(c),
        }
    }

    /// True for a definition whose body has pointwise operators only.
    fn is_pointwise(&self, c: &Callable) -> bool {
        match &c.kind {
            CallKind::Op(_) => c.class == OpClass::Pointwise,
            CallKind::Extern(_) => false,
            CallKind::Def(body) => body.terms.iter().all(|(_, t)| match &t.kind {
                mlc_dsl::term::TermKind::Apply(id, _) => {
                    Some(*id) == self.library.find("broadcast")
                        && t.dims.is_some()
                        && scalar_arg(body, t)
                        || self.is_pointwise(self.library.call(*id))
                }
                mlc_dsl::term::TermKind::Var(_) | mlc_dsl::term::TermKind::Scalar(_) => true,
                _ => false,
            }),
        }
    }

    /// Operations and traffic of a definition: its body's operations, its own operands' bytes.
    fn definition(
        &self,
        id: CallId,
        c: &Callable,
        attrs: &[Attr],
        args: &[&Type],
        results: &[Type],
    ) -> Option<Work> {
        let key = (id, attrs.to_vec(), args.iter().map(|t| (*t).clone()).collect::<Vec<_>>());
        if let Some(w) = self.definitions.borrow().get(&key) {
            return *w;
        }
        let CallKind::Def(body) = &c.kind else { return None };
        let mut b = Builder::new(self.library);
        let inputs: Vec<_> =
            args.iter().enumerate().map(|(i, t)| b.input(&i.to_string(), (*t).clone())).collect();
        let given: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
        let work = b.expand(id, body, &given, &inputs).ok().map(|out| {
            let names = out.into_iter().map(|v| (String::new(), v)).collect();
            let program = b.finish(names);
            let mut work = traffic(args, results);
            for n in &program.nodes {
                if let NodeKind::Apply(call, attrs) = &n.kind {
                    let args: Vec<&Type> = n.args.iter().map(|&a| program.ty(a)).collect();
                    let inner = self.library.call(*call);
                    work.flops += match inner.kind {
                        CallKind::Def(_) => self
                            .definition(*call, inner, attrs, &args, &n.types)
                            .map_or(0.0, |w| w.flops),
                        _ => operations(inner, attrs, &args, &n.types),
                    };
                }
            }
            work
        });
        self.definitions.borrow_mut().insert(key, work);
        work
    }
}

fn scalar_arg(body: &mlc_dsl::library::Body, t: &mlc_dsl::term::Term) -> bool {
    t.args.iter().all(|&a| matches!(body.terms.get(a).kind, mlc_dsl::term::TermKind::Scalar(_)))
}

impl Prices for TargetPrices<'_> {
    fn seconds(&self, id: CallId, attrs: &[Attr], args: &[&Type], results: &[Type]) -> Option<f64> {
        let c = self.library.call(id);
        if !self.permitted(id, c) {
            return None;
        }
        let mut work = match &c.kind {
            CallKind::Def(_) => self.definition(id, c, attrs, args, results)?,
            _ => {
                let flops = operations(c, attrs, args, results);
                Work { flops, ..traffic(args, results) }
            }
        };
        work.launches = 1.0 + TIE * preference(c, results);
        let factor = match c.class {
            OpClass::Pointwise => self.pointwise,
            OpClass::View => self.view,
            _ if self.is_pointwise(c) => self.pointwise,
            _ => self.kernels.get(&id).copied().unwrap_or(1.0),
        };
        work.read *= factor;
        work.written *= factor;
        work.launches *= factor;
        if c.class == OpClass::View {
            work.flops = 0.0;
        }
        Some(self.profile.seconds(&work))
    }
}

/// The part of a launch that decides between operators of equal cost.
const TIE: f64 = 1e-3;

/// What speaks against an operator where costs are equal: axes that its loops run over, and arithmetic
/// that is slower than sums and products.
fn preference(c: &Callable, results: &[Type]) -> f64 {
    let axes: usize = results.iter().map(|t| t.rank()).sum();
    let CallKind::Op(meanings) = &c.kind else { return axes as f64 };
    axes as f64 + 0.1 * meanings.iter().map(|m| slowness(&m.value)).sum::<f64>()
}

/// Scalar operators of an expression, slow ones counted several times.
fn slowness(e: &Expr) -> f64 {
    match &e.kind {
        ExprKind::Unary(_, a) => 0.5 + slowness(a),
        ExprKind::Binary(op, a, b) => {
            let own = match op {
                BinaryOp::Add | BinaryOp::Mul => 1.0,
                BinaryOp::Sub => 1.5,
                BinaryOp::Div | BinaryOp::Pow => 4.0,
                _ => 1.0,
            };
            own + slowness(a) + slowness(b)
        }
        ExprKind::Call { args, .. } => 2.0 + args.iter().map(|a| slowness(&a.value)).sum::<f64>(),
        ExprKind::Reduce { body, .. } => slowness(body),
        ExprKind::If { cond, then, otherwise } => {
            slowness(cond) + slowness(then) + slowness(otherwise)
        }
        _ => 0.0,
    }
}

fn bytes(t: &Type) -> f64 {
    elements(t) * t.dtype.size() as f64
}

/// Every operand read once, every result written once.
fn traffic(args: &[&Type], results: &[Type]) -> Work {
    let read = args.iter().map(|t| bytes(t)).sum();
    let written = results.iter().map(bytes).sum();
    Work { read, written, ..Work::default() }
}

/// Scalar operations: those in the meaning, times the points they are computed at.
fn operations(c: &Callable, attrs: &[Attr], args: &[&Type], results: &[Type]) -> f64 {
    let CallKind::Op(meanings) = &c.kind else {
        return results.iter().map(elements).sum();
    };
    let given: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    let Ok(app) = infer(c, args, &given) else { return 0.0 };
    let extent = |axis: &Elem| -> f64 {
        let (Elem::One(e) | Elem::Splice(e)) = axis;
        let ExprKind::Name(n) = &e.kind else { return 1.0 };
        let seg = app.env.seg(n).map(|s| s.iter().map(nominal).product());
        app.env.axis(n).map(nominal).or(seg).unwrap_or(1.0)
    };
    meanings.iter().zip(results).map(|(m, t)| elements(t) * per_point(&m.value, &extent)).sum()
}

/// Scalar operations of an expression at one point; index arithmetic is free.
fn per_point(e: &Expr, extent: &dyn Fn(&Elem) -> f64) -> f64 {
    let inner = |e: &Expr| per_point(e, extent);
    match &e.kind {
        ExprKind::Unary(_, a) => 1.0 + inner(a),
        ExprKind::Binary(_, a, b) => 1.0 + inner(a) + inner(b),
        ExprKind::Call { args, .. } => 1.0 + args.iter().map(|a| inner(&a.value)).sum::<f64>(),
        ExprKind::Reduce { axes, body, .. } => {
            (1.0 + inner(body)) * axes.iter().map(extent).product::<f64>()
        }
        ExprKind::If { cond, then, otherwise } => inner(cond) + inner(then).max(inner(otherwise)),
        _ => 0.0,
    }
}
