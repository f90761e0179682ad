//! `onnx` items as patterns: the terms that ONNX operators are written for.
//!
//! Every `prints` clause is one, and so is every alternative of reading whose expression is made of operators over inputs:
//! read backwards, it tells how to write. The parts are those of laws' patterns; they are matched as they stand, for what
//! is written is no longer searched: sums are not flattened, and no law rewrites them.

use super::{PatId, PatKind, Patterns};
use crate::eval::{Env, eval};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::ir::Attr;
use crate::library::{CallId, Library, Name, OnnxItem};
use crate::onnx::{Apply, Arg, Callee, Kind, NodeQuery, Param, ParamKind};

/// `let`s are followed this deep.
const MAX_DEPTH: usize = 16;

/// A term that an ONNX operator is written for.
#[derive(Clone, Debug)]
pub struct ExportPattern {
    /// The ONNX operator, by its place in the library.
    pub item: usize,
    /// The clause, by its place in the item; `None` for an alternative read backwards.
    pub print: Option<usize>,
    /// The term.
    pub root: Root,
    /// The parts of the term.
    pub pats: Vec<PatKind>,
    /// The names of its variables.
    pub vars: Vec<Name>,
    /// All must hold.
    pub conditions: Vec<Expr>,
    /// The conditions of the alternatives that are read ahead of this one: of none are all known to hold. Those that ask what is
    /// not known when a node is written are left out.
    pub ahead: Vec<Vec<Expr>>,
    /// Attributes that the conditions determine.
    pub fixed: Vec<(Name, Attr)>,
    /// How many applications it covers at least.
    pub size: usize,
}

/// What a whole term is.
#[derive(Clone, Debug)]
pub enum Root {
    /// An application over the parts.
    Term(CallId, PatId),
    /// A chain of a binary operator over a list of tensors, which bears the name.
    Chain(CallId, Vec<Option<Expr>>, Name),
    /// Consecutive slices of one tensor: the operator, the name of the tensor, that of the axis, and that of the sizes.
    Parts(CallId, [Name; 3]),
}

impl Root {
    /// The operator of the application that the match begins at.
    pub fn call(&self) -> CallId {
        match self {
            Root::Term(call, _) | Root::Chain(call, ..) | Root::Parts(call, _) => *call,
        }
    }
}

/// The terms of all `onnx` items. What the library has compiled is not compiled again.
pub fn export_patterns(library: &Library) -> &[ExportPattern] {
    library.patterns.get::<Patterns>().export_patterns.get_or_init(|| {
        let items = library.onnx.iter().enumerate();
        items.flat_map(|(i, item)| of_item(library, i, item)).collect()
    })
}

fn of_item(library: &Library, index: usize, item: &OnnxItem) -> Vec<ExportPattern> {
    let mut out = Vec::new();
    for (i, print) in item.decl.prints.iter().enumerate() {
        let compiler = Compiler::new(library, item, &print.numbers, false);
        let conditions = print.conditions.clone();
        out.extend(compiler.whole(&print.pattern, index, Some(i), conditions, vec![]));
    }
    let mut ahead: Vec<Vec<Expr>> = Vec::new();
    for a in &item.decl.reads {
        let compiler = Compiler::new(library, item, &[], true);
        let conditions: Option<Vec<Expr>> =
            a.conditions.iter().map(|c| compiler.inline(c, 0)).collect();
        let Some(conditions) = conditions else { continue };
        let fixed = fixed(item, &conditions);
        let form = compiler.whole(&a.value, index, None, conditions.clone(), fixed);
        out.extend(form.map(|f| ExportPattern { ahead: ahead.clone(), ..f }));
        ahead.push(conditions);
    }
    out
}

/// Attributes that a condition `name == value` determines.
fn fixed(item: &OnnxItem, conditions: &[Expr]) -> Vec<(Name, Attr)> {
    let kind = |n: &Name| match item.decl.params.iter().find(|p| p.name == *n)?.kind {
        ParamKind::Attr(kind) => Some(kind),
        _ => None,
    };
    let mut out = Vec::new();
    for c in conditions {
        if let ExprKind::Binary(BinaryOp::Eq, a, b) = &c.kind
            && let Some(n) = a.as_name()
            && let Some(kind) = kind(n)
            && let Ok(v) = eval(b, &Env::default())
        {
            let v = match (kind, &v) {
                (Kind::Float, Attr::Int(_)) => v.as_f64().map_or(v, Attr::float),
                _ => v,
            };
            out.push((n.clone(), v));
        }
    }
    out
}

/// True of a number as it is written.
fn is_number(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Int(_) | ExprKind::Float(_) => true,
        ExprKind::Unary(UnaryOp::Neg, a) => is_number(a),
        _ => false,
    }
}

struct Compiler<'c> {
    library: &'c Library,
    item: &'c OnnxItem,
    /// Names that stand for numbers.
    numbers: &'c [Name],
    /// `let`s are written out, and names are the item's parameters.
    lets: bool,
    pats: Vec<PatKind>,
    vars: Vec<Name>,
}

impl<'c> Compiler<'c> {
    fn new(
        library: &'c Library,
        item: &'c OnnxItem,
        numbers: &'c [Name],
        lets: bool,
    ) -> Compiler<'c> {
        Compiler { library, item, numbers, lets, pats: Vec::new(), vars: Vec::new() }
    }

    /// The whole term of an expression; `None` if it cannot be read backwards.
    fn whole(
        mut self,
        e: &Expr,
        item: usize,
        print: Option<usize>,
        conditions: Vec<Expr>,
        fixed: Vec<(Name, Attr)>,
    ) -> Option<ExportPattern> {
        let root = self.root(e, 0)?;
        let size = match &root {
            Root::Term(_, p) => self.size(*p),
            Root::Chain(..) => 1,
            Root::Parts(..) => 2,
        };
        let Compiler { pats, vars, .. } = self;
        Some(ExportPattern {
            item,
            print,
            root,
            pats,
            vars,
            conditions,
            ahead: vec![],
            fixed,
            size,
        })
    }

    fn root(&mut self, e: &Expr, depth: usize) -> Option<Root> {
        if depth > MAX_DEPTH {
            return None;
        }
        let plain = |e: &Expr| e.as_name().cloned();
        match &e.kind {
            ExprKind::Name(n) => {
                let value = self.binding(n)?.clone();
                self.root(&value, depth + 1)
            }
            ExprKind::Apply(Apply { callee: Callee::Fold(operator), args }) => {
                let [list, rest @ ..] = args.as_slice() else { return None };
                let id = self.library.find(operator)?;
                Some(Root::Chain(id, self.attributes(id, &[], rest)?, plain(&list.value)?))
            }
            ExprKind::Apply(call @ Apply { callee: Callee::Split, args }) => {
                let names = [
                    plain(&args.first()?.value)?,
                    plain(call.named("axis")?)?,
                    plain(call.named("sizes")?)?,
                ];
                Some(Root::Parts(self.library.find("slice")?, names))
            }
            _ => {
                let p = self.pattern(e, depth)?;
                match self.pats[p.0 as usize] {
                    PatKind::Apply(call, ..) => Some(Root::Term(call, p)),
                    _ => None,
                }
            }
        }
    }

    fn size(&self, p: PatId) -> usize {
        match &self.pats[p.0 as usize] {
            PatKind::Apply(_, _, args) => 1 + args.iter().map(|a| self.size(*a)).sum::<usize>(),
            _ => 0,
        }
    }

    fn push(&mut self, kind: PatKind) -> PatId {
        self.pats.push(kind);
        PatId(self.pats.len() as u32 - 1)
    }

    fn apply(&mut self, name: &str, args: Vec<PatId>) -> Option<PatId> {
        let call = self.library.find(name)?;
        Some(self.push(PatKind::Apply(call, vec![], args)))
    }

    fn binding(&self, name: &Name) -> Option<&'c Expr> {
        let all = self.item.decl.lets.iter().filter(|_| self.lets);
        let (names, value) = all.rev().find(|(names, _)| names.contains(name))?;
        (names.len() == 1).then_some(value)
    }

    fn param(&self, name: &Name) -> Option<&'c Param> {
        self.item.decl.params.iter().find(|p| self.lets && p.name == *name)
    }

    /// The pattern of a tensor expression; `None` if it cannot be read backwards.
    fn pattern(&mut self, e: &Expr, depth: usize) -> Option<PatId> {
        if depth > MAX_DEPTH {
            return None;
        }
        match &e.kind {
            ExprKind::Name(n) => self.name(n, e, depth),
            _ if is_number(e) => Some(self.push(PatKind::Scalar(e.clone()))),
            ExprKind::Unary(op, a) => {
                let a = self.pattern(a, depth + 1)?;
                self.apply(op.operator(), vec![a])
            }
            ExprKind::Binary(op, a, b) => {
                let (name, swapped) = op.operator();
                let mut args = vec![self.pattern(a, depth + 1)?, self.pattern(b, depth + 1)?];
                if swapped {
                    args.reverse();
                }
                let whole = self.apply(name, args)?;
                match op {
                    BinaryOp::Ne => self.apply(UnaryOp::Not.operator(), vec![whole]),
                    _ => Some(whole),
                }
            }
            ExprKind::Apply(call) => self.call(call, depth),
            _ => None,
        }
    }

    fn name(&mut self, n: &Name, e: &Expr, depth: usize) -> Option<PatId> {
        if let Some(value) = self.binding(n) {
            return self.pattern(value, depth + 1);
        }
        if self.numbers.contains(n) {
            return Some(self.push(PatKind::Scalar(e.clone())));
        }
        match self.param(n).map(|p| &p.kind) {
            Some(ParamKind::Tensor { variadic: false, .. }) => {}
            Some(ParamKind::Attr(_)) => return Some(self.push(PatKind::Scalar(e.clone()))),
            Some(_) => return None,
            None if self.lets => return None,
            None => {}
        }
        let known = self.vars.iter().position(|v| v == n);
        let var = known.unwrap_or(self.vars.len());
        if known.is_none() {
            self.vars.push(n.clone());
        }
        Some(self.push(PatKind::Var(var)))
    }

    fn call(&mut self, call: &Apply, depth: usize) -> Option<PatId> {
        let Callee::Operator(_, Some(id), _) = call.callee else { return None };
        let args = call.args.as_slice();
        let call = self.library.call(id);
        let positional: Vec<&Expr> =
            args.iter().filter(|a| a.name.is_none()).map(|a| &a.value).collect();
        if positional.len() < call.inputs.len() {
            return None;
        }
        let (tensors, extra) = positional.split_at(call.inputs.len());
        let tensors: Option<Vec<PatId>> =
            tensors.iter().map(|e| self.pattern(e, depth + 1)).collect();
        let attrs = self.attributes(id, extra, args)?;
        let kind = PatKind::Apply(id, attrs, tensors?);
        Some(self.push(kind))
    }

    fn attributes(&self, id: CallId, extra: &[&Expr], args: &[Arg]) -> Option<Vec<Option<Expr>>> {
        let call = self.library.call(id);
        // What is left out has its default.
        let mut out: Vec<Option<Expr>> = call.attrs.iter().map(|p| p.default.clone()).collect();
        for (slot, e) in out.iter_mut().zip(extra) {
            *slot = Some(self.inline(e, 0)?);
        }
        for a in args {
            let Some(name) = &a.name else { continue };
            let i = call.attrs.iter().position(|p| p.name == *name)?;
            out[i] = Some(self.inline(&a.value, 0)?);
        }
        Some(out)
    }

    /// An attribute expression with its `let`s written out. What is asked of the node that is read has no answer
    /// when one is written.
    fn inline(&self, e: &Expr, depth: usize) -> Option<Expr> {
        let refused = match &e.kind {
            _ if depth > MAX_DEPTH => true,
            ExprKind::Name(n) => match self.binding(n) {
                Some(value) => return self.inline(value, depth + 1),
                None => false,
            },
            ExprKind::Apply(a) => a.function().is_none(),
            ExprKind::Ask(q, _) => !matches!(q, NodeQuery::Present | NodeQuery::Count),
            ExprKind::Tuple(_) | ExprKind::Entry(..) => true,
            _ => false,
        };
        let mut whole = !refused;
        let out = e.map(&mut |part| {
            let found = if whole { self.inline(part, depth + 1) } else { None };
            whole &= found.is_some();
            found.unwrap_or_else(|| part.clone())
        });
        whole.then_some(out)
    }
}
