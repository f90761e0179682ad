//! The `onnx` items as patterns: how core terms print.
//!
//! Every `prints` clause is one, and so is every alternative of reading whose expression is made of
//! operators over inputs: read backwards, it tells how to write.

use super::import::valid_at;
use super::import_read::infix;
use mlc_dsl::eval::{Env, eval};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use mlc_dsl::ir::Attr;
use mlc_dsl::library::{CallId, Library, Name, OnnxItem};
use mlc_dsl::onnx::{Apply, Arg, Callee, Kind, Param, ParamKind, Print, Question};
use std::collections::{BTreeMap, HashMap};

/// `let`s are followed this deep.
const MAX_DEPTH: usize = 16;

/// A pattern of core terms.
#[derive(Clone, Debug)]
pub(super) enum Pat {
    /// A tensor.
    Var(Name),
    /// A constant of one element, bound as a number.
    Scalar(Name),
    /// A constant of one element, equal to a number.
    Number(Expr),
    /// An operator; attributes that are `None` are not looked at.
    Apply(CallId, Vec<Pat>, Vec<Option<Expr>>),
    /// A chain of a binary operator over a list of tensors.
    Fold(CallId, Name, Vec<Option<Expr>>),
    /// Consecutive slices of one tensor: its name, that of the axis, and that of the sizes.
    Split(Name, Name, Name),
}

/// How one form prints.
#[derive(Debug)]
pub(super) struct Rule<'a> {
    /// The ONNX operator.
    pub item: &'a OnnxItem,
    /// The core term.
    pub pattern: Pat,
    /// The clause; `None` for an alternative read backwards.
    pub print: Option<&'a Print>,
    /// All must hold.
    pub conditions: Vec<Expr>,
    /// Attributes that the conditions determine.
    pub fixed: Vec<(Name, Attr)>,
    size: usize,
}

/// The patterns by the operator at their root, largest first.
pub(super) struct Rules<'a> {
    by_root: HashMap<CallId, Vec<Rule<'a>>>,
}

impl<'a> Rules<'a> {
    /// The patterns that may be written at these versions of the operator sets.
    pub fn of(library: &'a Library, opsets: &BTreeMap<String, i64>) -> Rules<'a> {
        let mut newest: HashMap<(&str, &str), u32> = HashMap::new();
        let valid = |i: &&OnnxItem| opsets.get(&i.decl.domain).is_some_and(|&o| valid_at(i, o));
        for item in library.onnx.iter().filter(valid) {
            let since = newest.entry((item.decl.domain.as_str(), &*item.name)).or_default();
            *since = item.decl.since.max(*since);
        }
        let mut by_root: HashMap<CallId, Vec<Rule>> = HashMap::new();
        for item in library.onnx.iter().filter(valid) {
            if newest.get(&(item.decl.domain.as_str(), &*item.name)) != Some(&item.decl.since) {
                continue;
            }
            for rule in rules_of(item, library) {
                let root = match &rule.pattern {
                    Pat::Apply(c, ..) | Pat::Fold(c, ..) => Some(*c),
                    Pat::Split(..) => library.find("slice"),
                    Pat::Var(_) | Pat::Scalar(_) | Pat::Number(_) => None,
                };
                if let Some(root) = root {
                    by_root.entry(root).or_default().push(rule);
                }
            }
        }
        for rules in by_root.values_mut() {
            rules.sort_by_key(|r| std::cmp::Reverse((r.size, r.print.is_some())));
        }
        Rules { by_root }
    }

    /// The operators that one ONNX node writes, at least with some attributes.
    pub fn single(&self) -> impl Iterator<Item = CallId> {
        self.by_root.iter().filter(|(_, rules)| rules.iter().any(|r| r.size == 1)).map(|(c, _)| *c)
    }

    /// What a node of this name writes: the operators at the roots of its smallest patterns.
    pub fn written_by(&self, name: &str) -> Vec<CallId> {
        let own = |rules: &[Rule<'a>]| -> Option<usize> {
            rules.iter().filter(|r| &*r.item.name == name).map(|r| r.size).min()
        };
        let sizes: Vec<(usize, CallId)> =
            self.by_root.iter().filter_map(|(c, rules)| Some((own(rules)?, *c))).collect();
        let least = sizes.iter().map(|s| s.0).min();
        let mut out: Vec<CallId> =
            sizes.into_iter().filter(|s| Some(s.0) == least).map(|s| s.1).collect();
        out.sort();
        out
    }

    /// The patterns with this operator at their root, largest first.
    pub fn at(&self, root: CallId) -> &[Rule<'a>] {
        self.by_root.get(&root).map_or(&[], Vec::as_slice)
    }
}

fn rules_of<'a>(item: &'a OnnxItem, library: &Library) -> Vec<Rule<'a>> {
    let mut out = Vec::new();
    for print in &item.decl.prints {
        let compiler = Compiler { library, item, numbers: &print.numbers, lets: false };
        if let Some(pattern) = compiler.pattern(&print.pattern, 0) {
            let size = size(&pattern);
            let conditions = print.conditions.clone();
            out.push(Rule { item, pattern, print: Some(print), conditions, fixed: vec![], size });
        }
    }
    for a in &item.decl.reads {
        let compiler = Compiler { library, item, numbers: &[], lets: true };
        let conditions: Option<Vec<Expr>> =
            a.conditions.iter().map(|c| compiler.inline(c, 0)).collect();
        if let (Some(pattern), Some(conditions)) = (compiler.pattern(&a.value, 0), conditions) {
            let size = size(&pattern);
            let fixed = fixed(item, &conditions);
            out.push(Rule { item, pattern, print: None, conditions, fixed, size });
        }
    }
    out
}

fn size(p: &Pat) -> usize {
    match p {
        Pat::Var(_) | Pat::Scalar(_) | Pat::Number(_) => 0,
        Pat::Apply(_, args, _) => 1 + args.iter().map(size).sum::<usize>(),
        Pat::Fold(..) => 1,
        Pat::Split(..) => 2,
    }
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
}

impl Compiler<'_> {
    fn find(&self, name: &str) -> Option<CallId> {
        self.library.find(name)
    }

    fn binding(&self, name: &Name) -> Option<&Expr> {
        let all = self.item.decl.lets.iter().filter(|_| self.lets);
        let (names, value) = all.rev().find(|(names, _)| names.contains(name))?;
        (names.len() == 1).then_some(value)
    }

    fn param(&self, name: &Name) -> Option<&Param> {
        self.item.decl.params.iter().find(|p| self.lets && p.name == *name)
    }

    /// The pattern of a tensor expression; `None` if it cannot be read backwards.
    fn pattern(&self, e: &Expr, depth: usize) -> Option<Pat> {
        if depth > MAX_DEPTH {
            return None;
        }
        match &e.kind {
            ExprKind::Name(n) => {
                if let Some(value) = self.binding(n) {
                    return self.pattern(value, depth + 1);
                }
                if self.numbers.contains(n) {
                    return Some(Pat::Scalar(n.clone()));
                }
                match self.param(n).map(|p| &p.kind) {
                    Some(ParamKind::Tensor { variadic: false, .. }) => {}
                    Some(ParamKind::Attr(_)) => return Some(Pat::Scalar(n.clone())),
                    Some(_) => return None,
                    None if self.lets => return None,
                    None => {}
                }
                Some(Pat::Var(n.clone()))
            }
            _ if is_number(e) => Some(Pat::Number(e.clone())),
            ExprKind::Unary(op, a) => {
                let name = match op {
                    UnaryOp::Neg => "neg",
                    UnaryOp::Not => "logical_not",
                };
                Some(Pat::Apply(self.find(name)?, vec![self.pattern(a, depth + 1)?], vec![]))
            }
            ExprKind::Binary(op, a, b) => {
                let (name, swapped) = infix(*op);
                let mut args = vec![self.pattern(a, depth + 1)?, self.pattern(b, depth + 1)?];
                if swapped {
                    args.reverse();
                }
                let whole = Pat::Apply(self.find(name)?, args, vec![]);
                match op {
                    BinaryOp::Ne => {
                        Some(Pat::Apply(self.find("logical_not")?, vec![whole], vec![]))
                    }
                    _ => Some(whole),
                }
            }
            ExprKind::Apply(call) => self.call(call, depth),
            _ => None,
        }
    }

    fn call(&self, call: &Apply, depth: usize) -> Option<Pat> {
        let plain = |e: &Expr| e.as_name().cloned();
        let args = call.args.as_slice();
        let id = match &call.callee {
            Callee::Fold(operator) => {
                let [list, rest @ ..] = args else { return None };
                let id = self.find(operator)?;
                return Some(Pat::Fold(id, plain(&list.value)?, self.attributes(id, &[], rest)?));
            }
            Callee::Split => {
                let x = plain(&args.first()?.value)?;
                let (axis, sizes) = (plain(call.named("axis")?)?, plain(call.named("sizes")?)?);
                return Some(Pat::Split(x, axis, sizes));
            }
            Callee::Scalar | Callee::Unsupported => return None,
            Callee::Operator(_, id, _) => (*id)?,
        };
        let call = self.library.call(id);
        let positional: Vec<&Expr> =
            args.iter().filter(|a| a.name.is_none()).map(|a| &a.value).collect();
        if positional.len() < call.inputs.len() {
            return None;
        }
        let (tensors, extra) = positional.split_at(call.inputs.len());
        let tensors = tensors.iter().map(|e| self.pattern(e, depth + 1)).collect::<Option<_>>()?;
        Some(Pat::Apply(id, tensors, self.attributes(id, extra, args)?))
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
            ExprKind::Ask(q, _) => !matches!(q, Question::Present | Question::Count),
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
