//! Covering a program with the kernels of a target.
//!
//! Contractions take the pointwise operators that follow them, pointwise operators of one shape run together, views go to
//! where they are read. Knows classes and the target's table, no operator's name; decides what pays, never what is equal.
//! Where an extent is symbolic, costs take every symbol for [`NOMINAL`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mlc_dsl::infer::infer;
use mlc_dsl::ir::{Extent, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::{
    Body, CallId, CallKind, Callable, Library, OpClass, TargetItem, TargetKernel,
};
use mlc_dsl::plan::{Kernel, Plan};
use mlc_dsl::syntax::ast::{Elem, Expr, ExprKind};
use mlc_dsl::term::TermKind;

use crate::{Profile, Work};

/// The value of every symbol when work is estimated.
pub const NOMINAL: i64 = 32;

/// Most nodes of one pointwise kernel.
const LARGEST: usize = 96;

/// The kernel name of fused pointwise operators.
pub const POINTWISE: &str = "pointwise";
/// The kernel name of views that no other kernel takes.
pub const VIEW: &str = "view";
/// The kernel name of operators that the target leaves to the judge.
pub const REFERENCE: &str = "reference";

/// The speed of a target, from its figures `flops`, `bytes` and `launch`.
pub fn profile(target: &TargetItem) -> Profile {
    let figure = |key: &str, default: f64| target.figures.get(key).copied().unwrap_or(default);
    Profile {
        name: target.name.to_string(),
        flops_per_s: figure("flops", 1e11),
        bytes_per_s: figure("bytes", 1e10),
        launch_s: figure("launch", 1e-6),
    }
}

/// Covers a program.
pub fn cover(program: Program, library: &Library, target: &TargetItem) -> Plan {
    let mut c = Cover::new(&program, library, target);
    c.epilogues();
    c.pointwise();
    let kernels = c.kernels();
    let prices = Prices { program: &program, library, target, profile: profile(target) };
    let cost = kernels.iter().map(|k| prices.kernel(k)).sum();
    let peak_bytes = peak(&program, library, &kernels);
    Plan { kernels, peak_bytes, cost, program }
}

/// What a node is to the cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Leaf,
    View,
    Pointwise,
    Native,
    Other,
}

struct Cover<'a> {
    program: &'a Program,
    native: HashMap<CallId, &'a TargetKernel>,
    roles: Vec<Role>,
    /// Nodes that read each node, once per reader.
    readers: Vec<Vec<usize>>,
    results: HashSet<usize>,
    /// The cluster of each node, named by one of its members; views are their own.
    cluster: Vec<usize>,
    members: BTreeMap<usize, Vec<usize>>,
}

/// True if the body applies nothing but pointwise operators and repeats nothing but numbers.
fn is_pointwise_body(library: &Library, body: &Body) -> bool {
    body.roots.len() == 1
        && body.terms.iter().all(|(_, t)| match &t.kind {
            TermKind::Var(_) | TermKind::Scalar(_) => true,
            TermKind::Apply(call, _) => {
                let callee = library.call(*call);
                let of_number =
                    t.args.iter().all(|a| matches!(body.terms.get(*a).kind, TermKind::Scalar(_)));
                (callee.class == OpClass::View && of_number) || is_pointwise(library, callee)
            }
            TermKind::Output(_) | TermKind::EachFold(..) | TermKind::EachPart(_) => false,
        })
}

/// True if the callable works element by element, by itself or by its body.
pub fn is_pointwise(library: &Library, call: &Callable) -> bool {
    match &call.kind {
        CallKind::Op(_) => call.class == OpClass::Pointwise,
        CallKind::Def(body) => is_pointwise_body(library, body),
        CallKind::Extern(_) => false,
    }
}

impl<'a> Cover<'a> {
    fn new(program: &'a Program, library: &'a Library, target: &'a TargetItem) -> Cover<'a> {
        let native: HashMap<CallId, &TargetKernel> =
            target.kernels.iter().flat_map(|k| k.covers.iter().map(move |c| (*c, k))).collect();
        let pointwise: Vec<bool> = library.calls.iter().map(|c| is_pointwise(library, c)).collect();
        let n = program.nodes.len();
        let mut readers = vec![Vec::new(); n];
        let mut roles = Vec::with_capacity(n);
        for (i, node) in program.nodes.iter().enumerate() {
            for a in &node.args {
                let list: &mut Vec<usize> = &mut readers[a.node.0 as usize];
                if list.last() != Some(&i) {
                    list.push(i);
                }
            }
            roles.push(match &node.kind {
                NodeKind::Input(_) | NodeKind::Const(_) => Role::Leaf,
                NodeKind::Apply(call, _) if native.contains_key(call) => Role::Native,
                NodeKind::Apply(call, _) if pointwise[call.0 as usize] => Role::Pointwise,
                NodeKind::Apply(call, _) => match library.call(*call).class {
                    OpClass::View => Role::View,
                    _ => Role::Other,
                },
            });
        }
        let results = program.outputs.iter().map(|o| o.1.node.0 as usize).collect();
        let members = (0..n).filter(|&i| roles[i] != Role::Leaf).map(|i| (i, vec![i])).collect();
        let cluster = (0..n).collect();
        Cover { program, native, roles, readers, results, cluster, members }
    }

    fn shape(&self, node: usize) -> &'a [Extent] {
        &self.program.nodes[node].types[0].shape
    }

    fn kernel_of(&self, node: usize) -> Option<&'a TargetKernel> {
        match &self.program.nodes[node].kind {
            NodeKind::Apply(call, _) => self.native.get(call).copied(),
            NodeKind::Input(_) | NodeKind::Const(_) => None,
        }
    }

    /// True if a path leads from cluster `from` through a third one to cluster `to`.
    fn detour(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.cluster.len()];
        seen[to] = true;
        let mut stack: Vec<(usize, bool)> = vec![(to, true)];
        while let Some((c, direct)) = stack.pop() {
            for &m in &self.members[&c] {
                for a in &self.program.nodes[m].args {
                    let a = a.node.0 as usize;
                    let next = self.cluster[a];
                    if self.roles[a] == Role::Leaf || seen[next] {
                        continue;
                    }
                    if next == from {
                        if direct {
                            continue;
                        }
                        return true;
                    }
                    seen[next] = true;
                    stack.push((next, false));
                }
            }
        }
        false
    }

    fn join(&mut self, a: usize, b: usize) {
        let (keep, gone) = if a < b { (a, b) } else { (b, a) };
        let Some(mut moved) = self.members.remove(&gone) else { return };
        for &m in &moved {
            self.cluster[m] = keep;
        }
        let list = self.members.entry(keep).or_default();
        list.append(&mut moved);
        list.sort_unstable();
    }

    /// Gives kernels with an epilogue the single-reader chain of pointwise nodes after them.
    fn epilogues(&mut self) {
        for anchor in 0..self.program.nodes.len() {
            if !self.kernel_of(anchor).is_some_and(|k| k.epilogue) {
                continue;
            }
            let mut at = anchor;
            while let [next] = *self.readers[at].as_slice() {
                let free = self.roles[next] == Role::Pointwise && self.members.contains_key(&next);
                let alone = free && self.members[&next].len() == 1;
                if !alone || self.results.contains(&at) || self.shape(next) != self.shape(at) {
                    break;
                }
                // A value read once is the only way out of the cluster, so the union stays convex.
                self.join(self.cluster[anchor], next);
                at = next;
            }
        }
    }

    fn has_anchor(&self, cluster: usize) -> bool {
        self.members[&cluster].iter().any(|&m| self.roles[m] != Role::Pointwise)
    }

    /// Joins pointwise nodes with pointwise producers of the same shape.
    fn pointwise(&mut self) {
        for node in 0..self.program.nodes.len() {
            if self.roles[node] != Role::Pointwise || self.has_anchor(self.cluster[node]) {
                continue;
            }
            for a in &self.program.nodes[node].args {
                let producer = a.node.0 as usize;
                if self.roles[producer] != Role::Pointwise
                    || self.shape(producer) != self.shape(node)
                {
                    continue;
                }
                let (p, c) = (self.cluster[producer], self.cluster[node]);
                let size = self.members[&p].len() + self.members[&c].len();
                if p != c
                    && size <= LARGEST
                    && !self.has_anchor(p)
                    && !self.detour(p, c)
                    && !self.detour(c, p)
                {
                    self.join(p, c);
                }
            }
        }
    }

    /// Views that are read where they are needed rather than by themselves.
    fn is_folded(&self, view: usize) -> bool {
        if self.roles[view] != Role::View || self.results.contains(&view) {
            return false;
        }
        let by_judge = |r: &usize| self.roles[*r] == Role::Other;
        let of_view = |v: &Value| self.roles[v.node.0 as usize] == Role::View;
        // A view of a view may need a copy, which is made once for all readers.
        let copies = self.program.nodes[view].args.iter().any(of_view);
        let shared = self.readers[view].len() > 1;
        !(self.readers[view].iter().any(by_judge) || copies && shared)
    }

    /// The kernels in execution order, views folded in.
    fn kernels(&self) -> Vec<Kernel> {
        let folded: Vec<bool> = (0..self.program.nodes.len()).map(|i| self.is_folded(i)).collect();
        let mut kernels: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (&c, members) in &self.members {
            if members.iter().all(|&m| folded[m]) {
                continue;
            }
            let mut nodes: BTreeSet<usize> = members.iter().copied().collect();
            let mut stack: Vec<usize> = members.clone();
            while let Some(m) = stack.pop() {
                for a in &self.program.nodes[m].args {
                    let a = a.node.0 as usize;
                    if folded[a] && nodes.insert(a) {
                        stack.push(a);
                    }
                }
            }
            kernels.insert(c, nodes);
        }
        let order = self.order(&kernels, &folded);
        let mut out: Vec<Kernel> = order.iter().map(|c| self.kernel(*c, &kernels[c])).collect();
        let mut read: HashSet<Value> = self.program.outputs.iter().map(|o| o.1).collect();
        read.extend(out.iter().flat_map(|k| k.inputs.iter().copied()));
        for k in &mut out {
            for &n in &k.nodes {
                if folded[n.0 as usize] {
                    continue;
                }
                for output in 0..self.program.node(n).types.len() as u32 {
                    let v = Value { node: n, output };
                    if read.contains(&v) {
                        k.outputs.push(v);
                    }
                }
            }
        }
        out
    }

    /// Clusters such that each follows those it reads, otherwise in the order of the program.
    fn order(&self, kernels: &BTreeMap<usize, BTreeSet<usize>>, folded: &[bool]) -> Vec<usize> {
        let reads: BTreeMap<usize, BTreeSet<usize>> = kernels
            .iter()
            .map(|(&c, nodes)| {
                let args = nodes.iter().flat_map(|&m| &self.program.nodes[m].args);
                let of: BTreeSet<usize> = args
                    .map(|a| a.node.0 as usize)
                    .filter(|&a| self.roles[a] != Role::Leaf && !folded[a])
                    .map(|a| self.cluster[a])
                    .filter(|&d| d != c)
                    .collect();
                (c, of)
            })
            .collect();
        let mut missing: BTreeMap<usize, usize> =
            reads.iter().map(|(&c, r)| (c, r.len())).collect();
        let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&c, of) in &reads {
            for &d in of {
                readers.entry(d).or_default().push(c);
            }
        }
        // By the last member: a kernel runs where the program would have finished it.
        let key = |c: usize| (self.members[&c].last().copied(), c);
        let mut ready: BTreeSet<(Option<usize>, usize)> =
            missing.iter().filter(|(_, n)| **n == 0).map(|(&c, _)| key(c)).collect();
        let mut out = Vec::with_capacity(kernels.len());
        while let Some((_, c)) = ready.pop_first() {
            out.push(c);
            for &r in readers.get(&c).into_iter().flatten() {
                let left = missing.entry(r).or_default();
                *left -= 1;
                if *left == 0 {
                    ready.insert(key(r));
                }
            }
        }
        out
    }

    fn kernel(&self, cluster: usize, nodes: &BTreeSet<usize>) -> Kernel {
        let members = &self.members[&cluster];
        let native = members.iter().find_map(|&m| self.kernel_of(m));
        let is = |role| members.iter().all(|&m| self.roles[m] == role);
        let name = match native {
            Some(k) => k.name.clone(),
            None if is(Role::Pointwise) => POINTWISE.into(),
            None if is(Role::View) => VIEW.into(),
            None => REFERENCE.into(),
        };
        let mut inputs = Vec::new();
        for &n in nodes {
            for a in &self.program.nodes[n].args {
                if !nodes.contains(&(a.node.0 as usize)) && !inputs.contains(a) {
                    inputs.push(*a);
                }
            }
        }
        let nodes = nodes.iter().map(|&n| NodeId(n as u32)).collect();
        Kernel { name, nodes, inputs, outputs: vec![] }
    }
}

/// Estimates of kernels.
struct Prices<'a> {
    program: &'a Program,
    library: &'a Library,
    target: &'a TargetItem,
    profile: Profile,
}

/// The number of an extent, symbols at [`NOMINAL`].
pub fn nominal(e: &Extent) -> f64 {
    e.eval(&|_| Some(NOMINAL)).unwrap_or(1).max(0) as f64
}

/// Elements of a type, symbols at [`NOMINAL`].
pub fn elements(ty: &Type) -> f64 {
    ty.shape.iter().map(nominal).product()
}

fn bytes(ty: &Type) -> f64 {
    elements(ty) * ty.dtype.size() as f64
}

impl Prices<'_> {
    fn kernel(&self, k: &Kernel) -> f64 {
        let size = |vs: &[Value]| vs.iter().map(|v| bytes(self.program.ty(*v))).sum::<f64>();
        if k.name == VIEW {
            return 0.0;
        }
        let flops = k.nodes.iter().map(|&n| node_flops(self.program, self.library, n)).sum();
        let work = Work { flops, read: size(&k.inputs), written: size(&k.outputs), launches: 1.0 };
        let factor =
            self.target.kernels.iter().find(|t| t.name == k.name).map_or(1.0, |t| t.factor);
        // The judge is no match for a kernel.
        let factor = if k.name == REFERENCE { 100.0 } else { factor };
        self.profile.seconds(&work) * factor
    }
}

/// Operations of a node, by its class.
pub fn node_flops(program: &Program, library: &Library, node: NodeId) -> f64 {
    let node = program.node(node);
    let NodeKind::Apply(call, attrs) = &node.kind else { return 0.0 };
    let call = library.call(*call);
    let result: f64 = node.types.iter().map(elements).sum();
    match (&call.kind, call.class) {
        (_, OpClass::View) => 0.0,
        (CallKind::Op(m), OpClass::Pointwise) => {
            result * m.iter().map(|m| operators(&m.value)).sum::<f64>().max(1.0)
        }
        (CallKind::Op(m), OpClass::Contraction) => {
            let types: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
            let attrs: Vec<_> = attrs.iter().cloned().map(Some).collect();
            let depth = infer(call, &types, &attrs)
                .ok()
                .map(|app| m.iter().map(|m| depth(&m.value, &app.env)).product::<f64>());
            2.0 * result * depth.unwrap_or(1.0)
        }
        (CallKind::Def(body), _) => {
            let own = |(_, t): (_, &mlc_dsl::term::Term)| match &t.kind {
                TermKind::Apply(c, _) => match (&library.call(*c).kind, library.call(*c).class) {
                    (CallKind::Op(m), OpClass::Pointwise) => {
                        m.iter().map(|m| operators(&m.value)).sum::<f64>().max(1.0)
                    }
                    (_, OpClass::View) => 0.0,
                    _ => 1.0,
                },
                _ => 0.0,
            };
            let read = node.args.iter().map(|a| elements(program.ty(*a))).fold(result, f64::max);
            read * body.terms.iter().map(own).sum::<f64>().max(1.0)
        }
        _ => node.args.iter().map(|a| elements(program.ty(*a))).fold(result, f64::max),
    }
}

/// Scalar operators of an expression.
fn operators(e: &Expr) -> f64 {
    match &e.kind {
        ExprKind::Unary(_, a) => 1.0 + operators(a),
        ExprKind::Binary(_, a, b) => 1.0 + operators(a) + operators(b),
        ExprKind::Call { args, .. } => 1.0 + args.iter().map(|a| operators(&a.value)).sum::<f64>(),
        ExprKind::If { cond, then, otherwise } => {
            1.0 + operators(cond) + operators(then) + operators(otherwise)
        }
        _ => 0.0,
    }
}

/// Elements that a reduction runs over.
fn depth(e: &Expr, env: &mlc_dsl::eval::Env) -> f64 {
    let ExprKind::Reduce { axes, .. } = &e.kind else { return 1.0 };
    let extent = |e: &Expr| match &e.kind {
        ExprKind::Name(n) => match (env.axis(n), env.seg(n)) {
            (Some(a), _) => nominal(a),
            (None, Some(s)) => s.iter().map(nominal).product(),
            (None, None) => 1.0,
        },
        _ => 1.0,
    };
    axes.iter()
        .map(|a| match a {
            Elem::One(e) | Elem::Splice(e) => extent(e),
        })
        .product()
}

/// The most bytes of kernel results alive at once, if all shapes are known. A view keeps alive what it shows.
fn peak(program: &Program, library: &Library, kernels: &[Kernel]) -> Option<u64> {
    let is_view = |n: NodeId| match &program.node(n).kind {
        NodeKind::Apply(c, _) => library.call(*c).class == OpClass::View,
        NodeKind::Input(_) | NodeKind::Const(_) => false,
    };
    let base = |mut v: Value| {
        while is_view(v.node) {
            v = program.node(v.node).args[0];
        }
        v
    };
    let mut last: HashMap<Value, usize> = HashMap::new();
    for (i, k) in kernels.iter().enumerate() {
        for v in k.inputs.iter().chain(&k.outputs) {
            last.insert(base(*v), i);
        }
    }
    for (_, v) in &program.outputs {
        last.insert(base(*v), kernels.len());
    }
    let (mut alive, mut peak) = (0u64, 0u64);
    let mut ends: HashMap<usize, u64> = HashMap::new();
    for (i, k) in kernels.iter().enumerate() {
        for &v in k.outputs.iter().filter(|v| !is_view(v.node)) {
            let ty = program.ty(v);
            let size = ty
                .known_shape()?
                .iter()
                .try_fold(ty.dtype.size() as u64, |n, &d| n.checked_mul(d as u64))?;
            alive += size;
            *ends.entry(last[&v]).or_default() += size;
        }
        peak = peak.max(alive);
        alive -= ends.remove(&i).unwrap_or(0);
    }
    Some(peak)
}
