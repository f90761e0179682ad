//! A plan made ready for this backend: groups of nodes, definitions without a kernel unfolded.
//!
//! Nodes that a plan computes in several kernels are separate nodes here.

use super::registry;
use crate::BackendError;
use mlc_dsl::build::definition;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::{CallKind, Library};
use mlc_dsl::plan::Plan;
use std::collections::{HashMap, HashSet};

/// Nodes launched together, if that turns out to be possible.
pub struct Group {
    /// The nodes, in order.
    pub nodes: Vec<NodeId>,
    /// Whether the judge computes them.
    pub reference: bool,
}

/// A program and the groups that compute it.
pub struct Graph {
    /// The program.
    pub program: Program,
    /// In execution order.
    pub groups: Vec<Group>,
    /// Values read outside the group that computes them, or by the caller.
    pub shared: HashSet<Value>,
    /// The nodes that read each value, each once.
    pub readers: HashMap<Value, Vec<NodeId>>,
    /// The program's results.
    pub results: HashSet<Value>,
}

/// The kernel name that sends a node to the judge.
pub const REFERENCE: &str = "reference";

/// Reads a plan.
pub fn read(plan: &Plan, library: &Library) -> Result<Graph, BackendError> {
    let mut r = Reader {
        library,
        out: Program::default(),
        names: HashMap::new(),
        groups: vec![],
        unfolded: false,
    };
    r.out.inputs = plan.program.inputs.clone();
    for (i, node) in plan.program.nodes.iter().enumerate() {
        if !matches!(node.kind, NodeKind::Apply(..)) {
            r.leaf(&plan.program, NodeId(i as u32));
        }
    }
    for kernel in &plan.kernels {
        let mut local = HashMap::new();
        let mut nodes = Vec::new();
        r.unfolded = false;
        let mut ids = kernel.nodes.clone();
        ids.sort();
        for id in ids {
            r.node(&plan.program, id, &mut local, &mut nodes)?;
        }
        for v in &kernel.outputs {
            let value =
                local.get(v).ok_or_else(|| broken("a kernel's output is not among its nodes"))?;
            r.names.insert(*v, *value);
        }
        // What a definition is made of may have kernels where the definition has none.
        let reference = kernel.name == REFERENCE && !r.unfolded;
        r.groups.push(Group { nodes, reference });
    }
    for (name, v) in &plan.program.outputs {
        let value = *r.names.get(v).ok_or_else(|| broken("no kernel computes an output"))?;
        r.out.outputs.push((name.clone(), value));
    }
    let shared = shared(&r.out, &r.groups);
    let mut readers: HashMap<Value, Vec<NodeId>> = HashMap::new();
    for (i, node) in r.out.nodes.iter().enumerate() {
        for a in &node.args {
            let list = readers.entry(*a).or_default();
            if list.last() != Some(&NodeId(i as u32)) {
                list.push(NodeId(i as u32));
            }
        }
    }
    let results = r.out.outputs.iter().map(|o| o.1).collect();
    Ok(Graph { program: r.out, groups: r.groups, shared, readers, results })
}

fn broken(what: &str) -> BackendError {
    BackendError::Unsupported { backend: "cpu", what: format!("this plan: {what}") }
}

fn shared(program: &Program, groups: &[Group]) -> HashSet<Value> {
    let mut group_of = HashMap::new();
    for (g, group) in groups.iter().enumerate() {
        group_of.extend(group.nodes.iter().map(|&n| (n, g)));
    }
    let mut out: HashSet<Value> = program.outputs.iter().map(|o| o.1).collect();
    for (i, node) in program.nodes.iter().enumerate() {
        let here = group_of.get(&NodeId(i as u32));
        out.extend(node.args.iter().filter(|a| group_of.get(&a.node) != here));
    }
    out
}

struct Reader<'a> {
    library: &'a Library,
    out: Program,
    /// Values of the plan, as far as other kernels may read them.
    names: HashMap<Value, Value>,
    groups: Vec<Group>,
    /// A definition of the kernel being read was put in by its body.
    unfolded: bool,
}

impl Reader<'_> {
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

    /// Adds a node, unfolded if it is a definition that no kernel computes.
    fn node(
        &mut self,
        from: &Program,
        id: NodeId,
        local: &mut HashMap<Value, Value>,
        nodes: &mut Vec<NodeId>,
    ) -> Result<(), BackendError> {
        let node = from.node(id);
        let NodeKind::Apply(call, attrs) = &node.kind else {
            self.leaf(from, id);
            return Ok(());
        };
        let mut args = Vec::with_capacity(node.args.len());
        for a in &node.args {
            let known = local.get(a).or_else(|| self.names.get(a));
            args.push(
                *known.ok_or_else(|| broken("a kernel reads what is not computed before it"))?,
            );
        }
        let callable = self.library.call(*call);
        let types: Vec<&Type> = args.iter().map(|a| self.out.ty(*a)).collect();
        if let CallKind::Def(_) = &callable.kind
            && registry::find(&callable.name).is_none()
            && let Ok(inner) = definition(self.library, *call, attrs, &types)
        {
            self.unfolded = true;
            return self.splice(id, &inner, &args, &node.origin, local, nodes);
        }
        let new = self.out.push(Node { args, ..node.clone() });
        nodes.push(new);
        for output in 0..node.types.len() as u32 {
            local.insert(Value { node: id, output }, Value { node: new, output });
        }
        Ok(())
    }

    /// Puts the body of node `id` in its place.
    fn splice(
        &mut self,
        id: NodeId,
        inner: &Program,
        args: &[Value],
        origin: &str,
        local: &mut HashMap<Value, Value>,
        nodes: &mut Vec<NodeId>,
    ) -> Result<(), BackendError> {
        // The body sees only its own names.
        let outer = std::mem::take(&mut self.names);
        let mut own = HashMap::new();
        for (i, node) in inner.nodes.iter().enumerate() {
            let at = NodeId(i as u32);
            match node.kind {
                NodeKind::Input(k) => {
                    own.insert(Value { node: at, output: 0 }, args[k as usize]);
                }
                NodeKind::Const(_) => self.leaf(inner, at),
                NodeKind::Apply(..) => {
                    let first = nodes.len();
                    self.node(inner, at, &mut own, nodes)?;
                    for n in &nodes[first..] {
                        self.out.nodes[n.0 as usize].origin = origin.to_string();
                    }
                }
            }
        }
        let named: Vec<Option<Value>> = inner
            .outputs
            .iter()
            .map(|(_, v)| own.get(v).or_else(|| self.names.get(v)).copied())
            .collect();
        self.names = outer;
        for (output, v) in named.into_iter().enumerate() {
            let v = v.ok_or_else(|| broken("a definition's result is not in its body"))?;
            local.insert(Value { node: id, output: output as u32 }, v);
        }
        Ok(())
    }
}
