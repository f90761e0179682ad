//! Matching a pattern on the graph: what its names stand for, and which nodes it covers.

use super::graph::Graph;
use super::rules::Rule;
use crate::import::bind::shortest;
use crate::import::read_facts::Positive;
use mlc_dsl::eval::{Env, eval, truth};
use mlc_dsl::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, NodeKind, Value};
use mlc_dsl::library::{CallId, Name, OpClass};
use mlc_dsl::onnx::{Kind, NodeQuery, ParamKind};
use mlc_dsl::pattern::{ExportPattern, PatId, PatKind, Root};
use std::collections::{HashMap, HashSet};

/// More ways than this to match one pattern are not looked at.
const MAX_WAYS: usize = 16;

/// A match.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormMatch<'p> {
    /// Tensors.
    pub tensors: HashMap<Name, Value>,
    /// Lists of tensors.
    pub lists: HashMap<Name, Vec<Value>>,
    /// Those tensors that are constants, once all names stand for something.
    constants: HashSet<Name>,
    /// Attributes and the types of the tensors.
    pub env: Env,
    /// The values that the ONNX node will define, in its order.
    pub outputs: Vec<Value>,
    covered: Vec<NodeId>,
    /// What is not 0 wherever the model runs.
    positive: Option<&'p Positive>,
    /// Equations that hold once every name has a value.
    deferred: Vec<(&'p Expr, Attr)>,
}

impl<'p> FormMatch<'p> {
    /// Nothing yet, of a model of which that is known.
    pub fn nothing(positive: &'p Positive) -> FormMatch<'p> {
        FormMatch { positive: Some(positive), ..FormMatch::default() }
    }

    /// True if the name stands for something.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
            || self.lists.contains_key(name)
            || self.env.attr(name).is_some()
    }
}

/// The first way in which the rule matches with its root at `node`, all conditions fulfilled.
pub(crate) fn find<'p>(
    graph: &Graph<'_>,
    rule: &Rule<'p>,
    node: NodeId,
    positive: &'p Positive,
) -> Option<FormMatch<'p>> {
    let mut start = FormMatch::nothing(positive);
    for (name, value) in &rule.form.fixed {
        start.env.bind_attr(name, value.clone());
    }
    let v = Value { node, output: 0 };
    let ways = match &rule.form.root {
        Root::Term(_, p) => matches(graph, rule.form, *p, v, start),
        Root::Chain(call, attrs, list) => chain(graph, *call, list, attrs, v, start),
        Root::Parts(call, names) => parts(graph, *call, names, v, start).into_iter().collect(),
    };
    ways.into_iter().find_map(|w| complete(graph, rule, node, w))
}

/// Checks everything that needs all names.
fn complete<'p>(
    graph: &Graph<'_>,
    rule: &Rule<'p>,
    root: NodeId,
    mut found: FormMatch<'p>,
) -> Option<FormMatch<'p>> {
    let whole = &found.covered;
    let inside = |id: &NodeId| {
        *id == root
            || graph.constant(Value { node: *id, output: 0 }).is_some()
            // A view costs nothing where it is read; who else reads it has a node of its own for it.
            || is_view(graph, *id)
            || !graph.is_output(*id) && graph.consumers(*id).iter().all(|c| whole.contains(c))
    };
    if !matches!(rule.form.root, Root::Parts(..)) && !whole.iter().all(inside) {
        return None;
    }
    if !graph.keeps_kernels(whole) {
        return None;
    }
    if rule.print.is_none() {
        for p in &rule.item.decl.params {
            let name = &p.name;
            match &p.kind {
                ParamKind::Tensor { optional: false, variadic: false, .. }
                | ParamKind::ConstInput { optional: false, .. }
                    if !found.has(name) =>
                {
                    return None;
                }
                ParamKind::Attr(kind) if found.env.attr(name).is_none() => {
                    let default = p.default.as_ref().and_then(|d| eval(d, &found.env).ok());
                    if let Some(d) = default {
                        let d = match (kind, &d) {
                            (Kind::Float, Attr::Int(_)) => d.as_f64().map_or(d, Attr::float),
                            _ => d,
                        };
                        found.env.bind_attr(name, d);
                    }
                }
                _ => {}
            }
        }
    }
    if !rule.form.conditions.is_empty() || !rule.form.ahead.is_empty() {
        let constant = |(_, v): &(&Name, &Value)| graph.constant(**v).is_some();
        let names = found.tensors.iter().filter(constant).map(|(n, _)| n.clone());
        found.constants = names.collect();
    }
    for (e, value) in &found.deferred {
        // The shape of an operand may leave its leading unit axes to NumPy.
        let e = settle(e, &found);
        match (eval(&e, &found.env).ok()?, value) {
            (a, b) if a == *b => {}
            // Two integers are one or are not.
            (a @ Attr::Float(_), b @ (Attr::Float(_) | Attr::Int(_)))
            | (a @ Attr::Int(_), b @ Attr::Float(_)) => {
                if !close(a.as_f64()?, b.as_f64()?) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    let hold = |all: &Vec<Expr>| all.iter().all(|c| holds(c, &found) == Some(true));
    // The node must be read as this alternative again, not as one ahead of it.
    (hold(&rule.form.conditions) && !rule.form.ahead.iter().any(hold)).then_some(found)
}

fn is_view(graph: &Graph<'_>, id: NodeId) -> bool {
    match graph.node(id).kind {
        NodeKind::Apply(call, _) => graph.library.call(call).class == OpClass::View,
        NodeKind::Input(_) | NodeKind::Const(_) => false,
    }
}

/// A number of that type as it is written most shortly.
fn short(x: f64, dtype: DType) -> f64 {
    if dtype == DType::F64 || dtype.is_int() { x } else { shortest(x as f32) }
}

fn close(a: f64, b: f64) -> bool {
    a == b || b.is_finite() && (a - b).abs() <= f64::from(f32::EPSILON) * 2.0 * b.abs()
}

/// Whether a condition holds; `None` if that cannot be told.
pub(crate) fn holds(c: &Expr, found: &FormMatch<'_>) -> Option<bool> {
    match &c.kind {
        ExprKind::Unary(UnaryOp::Not, a) => holds(a, found).map(|b| !b),
        ExprKind::Binary(BinaryOp::And, a, b) => match holds(a, found)? {
            true => holds(b, found),
            false => Some(false),
        },
        ExprKind::Binary(BinaryOp::Or, a, b) => match holds(a, found)? {
            true => Some(true),
            false => holds(b, found),
        },
        _ => truth(&settle(c, found), &found.env).ok()?,
    }
}

/// The expression with what is asked about the match answered.
pub(crate) fn settle(e: &Expr, found: &FormMatch<'_>) -> Expr {
    match &e.kind {
        ExprKind::Ask(question, args) => {
            let name = args.first().and_then(Expr::as_name);
            let kind = match question {
                NodeQuery::Present => ExprKind::Bool(name.is_some_and(|n| found.has(n))),
                NodeQuery::Constant => {
                    ExprKind::Bool(name.is_some_and(|n| found.constants.contains(n)))
                }
                NodeQuery::Nonzero => {
                    let asked = args.first().and_then(|e| eval(&settle(e, found), &found.env).ok());
                    let holds = |e: &Extent| found.positive.is_some_and(|p| p.holds(e));
                    let all = asked.as_ref().and_then(Attr::as_entries);
                    ExprKind::Bool(all.is_some_and(|all| all.iter().all(holds)))
                }
                NodeQuery::Count => {
                    let list = name.and_then(|n| found.lists.get(n));
                    ExprKind::Int(list.map_or(0, Vec::len) as i64)
                }
                _ => return e.map(&mut |e| settle(e, found)),
            };
            Expr { kind, span: e.span }
        }
        _ => e.map(&mut |e| settle(e, found)),
    }
}

/// All ways in which a part of a term matches the value, as continuations of `found`.
fn matches<'p>(
    graph: &Graph<'_>,
    form: &'p ExportPattern,
    p: PatId,
    v: Value,
    mut found: FormMatch<'p>,
) -> Vec<FormMatch<'p>> {
    match &form.pats[p.0 as usize] {
        PatKind::Var(i) => {
            let n = &form.vars[*i];
            if let Some(known) = found.tensors.get(n) {
                return if *known == v { vec![found] } else { vec![] };
            }
            found.env.bind_tensor(n, graph.ty(v).clone());
            found.tensors.insert(n.clone(), v);
            vec![found]
        }
        PatKind::Scalar(e) => {
            graph.number(v).map_or(vec![], |x| number(e, x, graph.ty(v).dtype, found))
        }
        PatKind::Apply(call, attrs, args) => apply(graph, form, *call, attrs, args, v, found),
        // Terms stand as they are written: the patterns of laws alone have these.
        PatKind::Broadcast(..) | PatKind::Flat(..) | PatKind::Output(..) | PatKind::Table(_) => {
            vec![]
        }
    }
}

/// The ways in which a number of a term is this one.
fn number<'p>(e: &'p Expr, x: f64, dtype: DType, mut found: FormMatch<'p>) -> Vec<FormMatch<'p>> {
    match e.as_name() {
        Some(n) if !found.env.bind_attr(n, Attr::float(short(x, dtype))) => return vec![],
        Some(_) => {}
        None => found.deferred.push((e, Attr::float(x))),
    }
    vec![found]
}

/// The same for an operand. Operands of what is not pointwise have a shape of their own: a number in such a place is a tensor
/// whose elements all are this number, while NumPy's broadcasting shapes those of pointwise operators.
fn operand<'p>(
    graph: &Graph<'_>,
    form: &'p ExportPattern,
    call: CallId,
    p: PatId,
    v: Value,
    found: FormMatch<'p>,
) -> Vec<FormMatch<'p>> {
    match &form.pats[p.0 as usize] {
        PatKind::Scalar(e) if graph.library.call(call).class != OpClass::Pointwise => {
            graph.everywhere(v).map_or(vec![], |x| number(e, x, graph.ty(v).dtype, found))
        }
        _ => matches(graph, form, p, v, found),
    }
}

fn apply<'p>(
    graph: &Graph<'_>,
    form: &'p ExportPattern,
    call: CallId,
    attrs: &'p [Option<Expr>],
    args: &'p [PatId],
    v: Value,
    mut found: FormMatch<'p>,
) -> Vec<FormMatch<'p>> {
    let node = graph.node(v.node);
    let NodeKind::Apply(c, values) = &node.kind else { return vec![] };
    if *c != call || v.output != 0 || args.len() != node.args.len() {
        return vec![];
    }
    if !attributes(attrs, values, &mut found) {
        return vec![];
    }
    if found.covered.is_empty() {
        let outputs = 0..node.types.len() as u32;
        found.outputs = outputs.map(|output| Value { output, ..v }).collect();
    }
    found.covered.push(v.node);
    let ordered = |order: &[usize]| {
        let mut ways = vec![found.clone()];
        for (&p, &i) in args.iter().zip(order) {
            let next = |w| operand(graph, form, call, p, node.args[i], w);
            ways = ways.into_iter().flat_map(next).collect();
            ways.truncate(MAX_WAYS);
        }
        ways
    };
    let order: Vec<usize> = (0..args.len()).collect();
    let mut ways = ordered(&order);
    if graph.library.call(call).commutative && args.len() == 2 && node.args[0] != node.args[1] {
        ways.extend(ordered(&[1, 0]));
        ways.truncate(MAX_WAYS);
    }
    ways
}

/// Binds plain names to attributes and puts all else off.
fn attributes<'p>(pats: &'p [Option<Expr>], values: &[Attr], found: &mut FormMatch<'p>) -> bool {
    for (pat, value) in pats.iter().zip(values) {
        let Some(e) = pat else { continue };
        match &e.kind {
            ExprKind::Name(n) => {
                if !found.env.bind_attr(n, value.clone()) {
                    return false;
                }
            }
            _ => found.deferred.push((e, value.clone())),
        }
    }
    true
}

/// Where a value stands in a chain.
enum Place {
    /// At its end.
    Root,
    /// Where the chain may go on.
    Inner,
    /// Where it may not.
    Leaf,
}

/// A chain of a binary operator, opened as far as nothing else reads its parts.
fn chain<'p>(
    graph: &Graph<'_>,
    call: CallId,
    list: &'p Name,
    attrs: &'p [Option<Expr>],
    v: Value,
    mut found: FormMatch<'p>,
) -> Vec<FormMatch<'p>> {
    let own = match &graph.node(v.node).kind {
        NodeKind::Apply(c, values) if *c == call && v.output == 0 => values,
        _ => return vec![],
    };
    if !attributes(attrs, own, &mut found) {
        return vec![];
    }
    found.outputs = vec![v];
    let associative = graph.library.call(call).associative;
    let mut operands = Vec::new();
    let mut stack = vec![(v, Place::Root)];
    while let Some((v, place)) = stack.pop() {
        let node = graph.node(v.node);
        let part = matches!(&node.kind, NodeKind::Apply(c, values) if *c == call && values == own);
        // An operand that is read twice stays a value of its own.
        let once = graph.consumers(v.node).len() == 1
            && graph.node(graph.consumers(v.node)[0]).args.iter().filter(|a| **a == v).count() == 1;
        let opened = match place {
            Place::Root => true,
            Place::Inner => part && once && !graph.is_output(v.node),
            Place::Leaf => false,
        };
        if !opened {
            operands.push(v);
            continue;
        }
        found.covered.push(v.node);
        let [a, b] = node.args[..] else { return vec![] };
        stack.push((b, if associative { Place::Inner } else { Place::Leaf }));
        stack.push((a, Place::Inner));
    }
    found.lists.insert(list.clone(), operands);
    vec![found]
}

/// The slices of one tensor that part one of its axes without gap or overlap.
fn parts<'p>(
    graph: &Graph<'_>,
    call: CallId,
    names: &'p [Name; 3],
    v: Value,
    mut found: FormMatch<'p>,
) -> Option<FormMatch<'p>> {
    let x = *graph.node(v.node).args.first()?;
    let shape = &graph.ty(x).shape;
    let part = |id: NodeId| -> Option<(usize, Extent, Extent)> {
        let node = graph.node(id);
        let NodeKind::Apply(c, attrs) = &node.kind else { return None };
        let [Attr::Ints(start), Attr::Ints(size), Attr::Ints(step)] = attrs.as_slice() else {
            return None;
        };
        if *c != call || node.args.as_slice() != [x] || !step.iter().all(|s| s.is(1)) {
            return None;
        }
        let mut axes = (0..shape.len()).filter(|&i| size[i] != shape[i] || !start[i].is(0));
        let axis = axes.next()?;
        axes.next().is_none().then(|| (axis, start[axis].clone(), size[axis].clone()))
    };
    let axis = part(v.node)?.0;
    let mut parts: Vec<(NodeId, Extent, Extent)> = graph
        .consumers(x.node)
        .iter()
        .filter_map(|&id| part(id).filter(|p| p.0 == axis).map(|(_, a, n)| (id, a, n)))
        .collect();
    let mut at = Extent::from(0);
    let mut ordered = Vec::new();
    while !parts.is_empty() {
        let next = parts.iter().position(|p| p.1 == at)?;
        let (id, _, size) = parts.swap_remove(next);
        at = &at + &size;
        ordered.push((id, size));
    }
    if at != shape[axis] || ordered.len() < 2 {
        return None;
    }
    let [name, axis_name, sizes] = names;
    found.outputs = ordered.iter().map(|(node, _)| Value { node: *node, output: 0 }).collect();
    found.covered = ordered.iter().map(|p| p.0).collect();
    found.env.bind_tensor(name, graph.ty(x).clone());
    found.tensors.insert(name.clone(), x);
    let sizes_fit =
        found.env.bind_attr(sizes, Attr::Ints(ordered.into_iter().map(|p| p.1).collect()));
    (found.env.bind_attr(axis_name, Attr::int(axis as i64)) && sizes_fit).then_some(found)
}
