//! A plan prepared for this backend: what each kernel computes, with definitions among its pointwise operators inlined.
//!
//! Nodes that a plan computes in several kernels are separate nodes here.

use crate::registry::{Implementation, Takes, implementation};
use mlc_backends::BackendError;
use mlc_dsl::ir::unfold::definition;
use mlc_dsl::ir::{Attr, Node, NodeId, NodeKind, Program, SharedExtents, Type, Value};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::plan::{Fault, Kernel, Plan, Readers};
use mlc_dsl::typing::open_conditions::OpenConditions;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

mod repeats;

pub use repeats::Repeat;

/// A kernel of the plan.
pub struct Group {
    /// What runs it.
    pub implementation: Implementation,
    /// All nodes, in order.
    pub nodes: Vec<NodeId>,
    /// Views of what it reads.
    pub views: Vec<NodeId>,
    /// What the implementation is named for; of a chain, the last.
    pub anchor: Option<NodeId>,
    /// What the anchor reads.
    pub arguments: Vec<Value>,
    /// Pointwise nodes that compute what the anchor reads.
    pub prologue: Vec<NodeId>,
    /// Pointwise nodes that follow it; all of a loop.
    pub epilogue: Vec<NodeId>,
    /// Views of what it or another kernel computes, each of which is a result with memory of its own.
    pub copies: Vec<NodeId>,
    /// What it yields.
    pub outputs: Vec<Value>,
    /// The plan's values.
    pub named: FxHashMap<Value, Value>,
    /// What it reads of the rest of the program, in order.
    pub reads: Vec<Value>,
    /// The symbols that occur in its nodes.
    pub symbols: Vec<Arc<str>>,
    /// What decides whether the anchor's operator admits what symbols stand for.
    pub conditions: OpenConditions,
    /// It is the same in all runs: only constants feed it, and no symbol occurs in what leads to it.
    pub lasts: bool,
    /// Others like it, if there are.
    pub repeat: Option<Repeat>,
}

/// A program and the kernels that compute it.
pub struct KernelGraph {
    pub program: Program,
    /// In execution order.
    pub groups: Vec<Group>,
    /// What reads its values, and what reads those of the plan.
    pub readers: Readers,
    pub plan_readers: Readers,
    /// The symbols that occur.
    symbols: Vec<Arc<str>>,
    /// For each kernel, a bit for each of the symbols that occurs in it, the last bit for all that are left.
    mentions: Vec<u64>,
}

impl KernelGraph {
    /// The operator of a node and where it was imported from, for messages.
    pub fn name(&self, library: &Library, node: NodeId) -> String {
        let op = library.node_name(&self.program, node);
        match self.program.node(node).origin.as_str() {
            "" => op,
            origin => format!("{op} ({origin})"),
        }
    }

    /// The kernels in which a symbol occurs that is so.
    pub fn mentioning(&self, is_so: impl Fn(&str) -> bool) -> Vec<usize> {
        let those = bits(&self.symbols, is_so);
        let all = self.mentions.iter().enumerate();
        all.filter(|(_, own)| **own & those != 0).map(|(k, _)| k).collect()
    }
}

fn bits(symbols: &[Arc<str>], is_so: impl Fn(&str) -> bool) -> u64 {
    let all = symbols.iter().enumerate().filter(|(_, s)| is_so(s));
    all.fold(0, |bits, (i, _)| bits | 1 << i.min(63))
}

/// What of a plan this backend cannot execute.
pub fn faults(plan: &Plan, library: &Library) -> Vec<Fault> {
    let mut out = Vec::new();
    for (k, kernel) in plan.kernels.iter().enumerate() {
        out.extend(
            lacks(kernel, &plan.program, library)
                .map(|what| Fault { kernel: Some((k, kernel.name.clone())), what }),
        );
    }
    out
}

/// Why no implementation of this backend computes a kernel.
fn lacks(kernel: &Kernel, program: &Program, library: &Library) -> Option<String> {
    let Some(implementation) = implementation(&kernel.name) else {
        return Some("this backend has no implementation of that name".into());
    };
    let takes = match kernel.anchors.as_slice() {
        [] => Takes::Prologue,
        [.., anchor] => {
            let op = library.node_name(program, *anchor);
            match implementation {
                Implementation::Reference => Takes::Nothing,
                Implementation::Native(native) if native.factory(&op).is_some() => {
                    let dtype = |n: &NodeId| program.node(*n).types[0].dtype;
                    let other =
                        kernel.anchors.iter().map(dtype).find(|d| !native.dtypes.contains(d));
                    if let Some(other) = other {
                        return Some(format!("it does not compute `{op}` of {other}"));
                    }
                    native.takes
                }
                _ => return Some(format!("it does not compute `{op}`")),
            }
        }
    };
    let (before, after) = (!kernel.prologue.is_empty(), !kernel.epilogue.is_empty());
    let bare = kernel.anchors.is_empty();
    let alone = match implementation {
        Implementation::Views => after,
        Implementation::Loop => !after,
        Implementation::Reference => kernel.nodes.len() != 1,
        Implementation::Native(_) => bare,
    };
    if alone {
        return Some("its nodes are not what its implementation computes".into());
    }
    if before && (bare || takes < Takes::Prologue) {
        return Some("its implementation takes no prologue".into());
    }
    (after && takes < Takes::Epilogue).then(|| "its implementation takes no epilogue".into())
}

/// Reads a plan without faults.
pub fn read(plan: &Plan, library: &Library) -> Result<KernelGraph, BackendError> {
    let mut r = GraphReader { library, out: Program::default(), names: FxHashMap::default() };
    r.out.inputs = plan.program.inputs.clone();
    for i in 0..plan.program.nodes.len() as u32 {
        if !plan.program.is_applied(NodeId(i)) {
            r.leaf(&plan.program, NodeId(i));
        }
    }
    let groups = plan.kernels.iter().map(|k| r.kernel(&plan.program, k));
    let mut groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    depend(&r.out, &mut groups);
    groups.iter_mut().for_each(|g| g.conditions = conditions(&r.out, library, g));
    repeats::find(&plan.kernels, &r.out, &mut groups);
    let (symbols, mentions) = mentioned(plan, &groups);
    for (name, v) in &plan.program.outputs {
        let value = *r.names.get(v).ok_or_else(|| broken("no kernel computes an output"))?;
        r.out.outputs.push((name.clone(), value));
    }
    SharedExtents::default().share(&mut r.out);
    let readers = Readers::of(&r.out, groups.iter().map(|g| g.reads.as_slice()));
    let plan_readers = Readers::of(&plan.program, plan.kernels.iter().map(|k| k.inputs.as_slice()));
    Ok(KernelGraph { program: r.out, groups, readers, plan_readers, symbols, mentions })
}

/// Notes what each kernel depends on.
fn depend(program: &Program, groups: &mut [Group]) {
    let constant = |i: &NodeId| matches!(program.node(*i).kind, NodeKind::Const(_));
    let nodes = (0..program.nodes.len() as u32).map(NodeId);
    let mut lasting: HashSet<NodeId> = nodes.filter(constant).collect();
    for g in groups {
        let inside: HashSet<NodeId> = g.nodes.iter().copied().collect();
        let args = g.nodes.iter().flat_map(|n| program.node(*n).args.iter().copied());
        g.reads = args.filter(|v| !inside.contains(&v.node)).collect();
        g.reads.sort_unstable();
        g.reads.dedup();
        g.symbols = g.nodes.iter().flat_map(|n| program.node(*n).symbols()).collect();
        g.symbols.sort_unstable();
        g.symbols.dedup();
        g.lasts = g.symbols.is_empty() && g.reads.iter().all(|v| lasting.contains(&v.node));
        if g.lasts {
            lasting.extend(&g.nodes);
        }
    }
}

/// By which extents the operator of an anchor admits what it is applied to. A chain of an associative operator has the
/// operands of all its parts, which admit each other.
fn conditions(program: &Program, library: &Library, g: &Group) -> OpenConditions {
    let Some(anchor) = g.anchor else { return OpenConditions::default() };
    let node = program.node(anchor);
    let NodeKind::Apply(call, attrs) = &node.kind else { return OpenConditions::default() };
    let types: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
    if node.args != g.arguments || types.iter().all(|t| t.known_shape().is_some()) {
        return OpenConditions::default();
    }
    let attrs: Vec<Option<Attr>> = attrs.iter().cloned().map(Some).collect();
    OpenConditions::of(library.call(*call), &types, &attrs)
}

/// The symbols that occur in kernels, here or in the plan, and the bits of those that occur in each.
fn mentioned(plan: &Plan, groups: &[Group]) -> (Vec<Arc<str>>, Vec<u64>) {
    let of_plan = |k: &Kernel| {
        let nodes = k.nodes.iter().map(|n| plan.program.node(*n));
        nodes.flat_map(|n| n.symbols()).collect::<Vec<Arc<str>>>()
    };
    let each: Vec<Vec<Arc<str>>> = plan.kernels.iter().map(of_plan).collect();
    let all = each.iter().flatten().chain(groups.iter().flat_map(|g| &g.symbols));
    let all: BTreeSet<Arc<str>> = all.cloned().collect();
    let all: Vec<Arc<str>> = all.into_iter().collect();
    let of_group = |(g, of_plan): (&Group, Vec<Arc<str>>)| {
        let own: HashSet<Arc<str>> = of_plan.into_iter().chain(g.symbols.iter().cloned()).collect();
        bits(&all, |s| own.contains(s))
    };
    let mentions = groups.iter().zip(each).map(of_group).collect();
    (all, mentions)
}

/// An error that a plan without faults does not lead to.
pub fn broken(what: &str) -> BackendError {
    BackendError::Unsupported { backend: "cpu", what: format!("this plan: {what}") }
}

struct GraphReader<'a> {
    library: &'a Library,
    out: Program,
    /// Values of the plan, as far as other kernels may read them.
    names: FxHashMap<Value, Value>,
}

/// The values and nodes of a kernel, or of a definition's body in it.
#[derive(Default)]
struct Inside {
    values: FxHashMap<Value, Value>,
    nodes: Vec<NodeId>,
}

impl GraphReader<'_> {
    fn leaf(&mut self, from: &Program, id: NodeId) {
        let node = from.node(id);
        let kind = match &node.kind {
            NodeKind::Const(c) => {
                NodeKind::Const(self.out.consts.intern(from.consts.get(*c).clone()))
            }
            NodeKind::Input(_) | NodeKind::Apply(..) => node.kind.clone(),
        };
        let new = self.out.push(Node { kind, ..node.clone() });
        let value = |node| Value { node, output: 0 };
        self.names.insert(value(id), value(new));
    }

    fn kernel(&mut self, from: &Program, kernel: &Kernel) -> Result<Group, BackendError> {
        let implementation = implementation(&kernel.name);
        let implementation = implementation.ok_or_else(|| broken("an unknown implementation"))?;
        let mut inside = Inside::default();
        let mut group = Group {
            implementation,
            nodes: vec![],
            views: vec![],
            anchor: None,
            arguments: vec![],
            prologue: vec![],
            epilogue: vec![],
            copies: vec![],
            outputs: vec![],
            named: FxHashMap::default(),
            reads: vec![],
            symbols: vec![],
            conditions: OpenConditions::default(),
            lasts: false,
            repeat: None,
        };
        for &id in &kernel.nodes {
            let first = inside.nodes.len();
            let io = kernel.prologue.contains(&id) || kernel.epilogue.contains(&id);
            self.node(from, id, io, &mut inside)?;
            for &new in &inside.nodes[first..] {
                if kernel.anchors.contains(&id) {
                    group.anchor = Some(new);
                } else if !io || self.library.is_view(&self.out, new) {
                    group.views.push(new);
                } else if kernel.prologue.contains(&id) {
                    group.prologue.push(new);
                } else {
                    group.epilogue.push(new);
                }
            }
        }
        self.copy_shared(from, kernel, &mut group, &mut inside)?;
        let value = |v: &Value| inside.values.get(v).or_else(|| self.names.get(v)).copied();
        let all = |values: &[Value]| {
            let found = values.iter().map(|v| value(v).ok_or_else(|| broken("a value is missing")));
            found.collect::<Result<Vec<Value>, _>>()
        };
        group.arguments = all(&kernel.arguments(from))?;
        group.outputs = all(&kernel.outputs)?;
        group.named = inside.values.iter().map(|(plan, own)| (*own, *plan)).collect();
        // Of several values of the plan that are one here, others may know the one that leaves the kernel.
        group.named.extend(group.outputs.iter().copied().zip(kernel.outputs.iter().copied()));
        self.names.extend(kernel.outputs.iter().copied().zip(group.outputs.iter().copied()));
        group.nodes = inside.nodes;
        Ok(group)
    }

    /// Adds a view of every result that another kernel computes, or that is another result, as that of a composition which is its argument: a
    /// kernel's results are its own, and each has its memory.
    fn copy_shared(
        &mut self,
        from: &Program,
        kernel: &Kernel,
        group: &mut Group,
        inside: &mut Inside,
    ) -> Result<(), BackendError> {
        let mut seen = HashSet::new();
        for v in &kernel.outputs {
            let Some(&own) = inside.values.get(v) else { continue };
            if inside.nodes.contains(&own.node) && seen.insert(own) {
                continue;
            }
            let reshape = self.library.find("reshape").ok_or_else(|| broken("no `reshape`"))?;
            let ty = from.ty(*v).clone();
            let attrs = vec![Attr::Ints(ty.shape.clone())];
            let kind = NodeKind::Apply(reshape, attrs);
            let origin = from.node(v.node).origin.clone();
            let new = self.out.push(Node { kind, args: vec![own], types: vec![ty], origin });
            inside.nodes.push(new);
            group.copies.push(new);
            inside.values.insert(*v, Value { node: new, output: 0 });
        }
        Ok(())
    }

    /// Adds a node; a definition is `opened`, for its kernel computes what it consists of.
    fn node(
        &mut self,
        from: &Program,
        id: NodeId,
        opened: bool,
        inside: &mut Inside,
    ) -> Result<(), BackendError> {
        let node = from.node(id);
        let NodeKind::Apply(call, attrs) = &node.kind else {
            self.leaf(from, id);
            return Ok(());
        };
        let mut args = Vec::with_capacity(node.args.len());
        for a in &node.args {
            let known = inside.values.get(a).or_else(|| self.names.get(a));
            args.push(
                *known.ok_or_else(|| broken("a kernel reads what is not computed before it"))?,
            );
        }
        if let CallKind::Def(_) = &self.library.call(*call).kind
            && opened
        {
            let types: Vec<&Type> = args.iter().map(|a| self.out.ty(*a)).collect();
            let body = definition(self.library, *call, attrs, &types)
                .map_err(|e| broken(&e.to_string()))?;
            return self.splice(id, &body, &args, &node.origin, inside);
        }
        let new = self.out.push(Node { args, ..node.clone() });
        inside.nodes.push(new);
        for output in 0..node.types.len() as u32 {
            inside.values.insert(Value { node: id, output }, Value { node: new, output });
        }
        Ok(())
    }

    /// Puts the body of node `id` in its place.
    fn splice(
        &mut self,
        id: NodeId,
        body: &Program,
        args: &[Value],
        origin: &str,
        inside: &mut Inside,
    ) -> Result<(), BackendError> {
        // The body sees only its own names.
        let outer = std::mem::take(&mut self.names);
        let mut own = Inside::default();
        for (i, node) in body.nodes.iter().enumerate() {
            let at = NodeId(i as u32);
            match node.kind {
                NodeKind::Input(k) => {
                    own.values.insert(Value { node: at, output: 0 }, args[k as usize]);
                }
                NodeKind::Const(_) => self.leaf(body, at),
                NodeKind::Apply(..) => self.node(body, at, true, &mut own)?,
            }
        }
        for n in &own.nodes {
            self.out.nodes[n.0 as usize].origin = origin.to_string();
        }
        let results = body.outputs.iter().map(|(_, v)| v);
        let named = results.map(|v| own.values.get(v).or_else(|| self.names.get(v)));
        let named: Option<Vec<Value>> = named.map(|v| v.copied()).collect();
        self.names = outer;
        let named = named.ok_or_else(|| broken("a definition's result is not in its body"))?;
        for (v, output) in named.into_iter().zip(0..) {
            inside.values.insert(Value { node: id, output }, v);
        }
        inside.nodes.extend(own.nodes);
        Ok(())
    }
}
