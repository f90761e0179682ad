//! The cone of two values: what computes them from values that both programs have, as one program of its own.

use super::values::{ClassId, Side, Values};
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Two values over common ones.
pub(super) struct Cone {
    /// Its inputs are common values, its outputs the two.
    pub program: Program,
    /// The class of each input.
    pub cuts: Vec<ClassId>,
    /// The nodes of each program in it that the other one has not.
    pub nodes: [Vec<NodeId>; 2],
}

impl Cone {
    /// The two values in the cone's program.
    pub fn goal(&self) -> (Value, Value) {
        (self.program.outputs[0].1, self.program.outputs[1].1)
    }

    /// Applications in it.
    pub fn size(&self) -> usize {
        self.program.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Apply(..))).count()
    }

    /// The constants that one of the two values alone is computed from: of the first, of the second.
    pub fn own_constants(&self) -> [Vec<NodeId>; 2] {
        let (a, b) = self.goal();
        let [of_a, of_b] = [a, b].map(|v| beneath(&self.program, v.node));
        let is_const = |n: &&NodeId| matches!(self.program.node(**n).kind, NodeKind::Const(_));
        let own = |x: &BTreeSet<NodeId>, y: &BTreeSet<NodeId>| {
            x.difference(y).filter(is_const).copied().collect()
        };
        [own(&of_a, &of_b), own(&of_b, &of_a)]
    }

    /// What it looks like but for the contents of its larger constants.
    pub fn shape(&self) -> String {
        let node = |n: &Node| match n.kind {
            NodeKind::Const(c) if self.program.consts.get(c).len() <= FEW => {
                format!("{:?}", self.program.consts.get(c).to_f64())
            }
            NodeKind::Const(_) => format!("const {:?}", n.types),
            NodeKind::Input(_) | NodeKind::Apply(..) => {
                format!("{:?} {:?} {:?}", n.kind, n.args, n.types)
            }
        };
        let nodes: Vec<String> = self.program.nodes.iter().map(node).collect();
        format!("{} -> {:?}", nodes.join("\n"), self.goal())
    }
}

/// Elements of constants whose numbers are part of what a cone looks like.
const FEW: usize = 16;

/// What a value is called: its node, or its input.
pub(super) fn called(program: &Program, v: Value) -> String {
    let node = program.node(v.node);
    match &node.kind {
        NodeKind::Input(i) => program.inputs[*i as usize].0.clone(),
        NodeKind::Const(_) | NodeKind::Apply(..) => node.origin.clone(),
    }
}

/// A node and all that it is computed from.
fn beneath(p: &Program, root: NodeId) -> BTreeSet<NodeId> {
    let (mut seen, mut open) = (BTreeSet::from([root]), vec![root]);
    while let Some(n) = open.pop() {
        open.extend(p.node(n).args.iter().map(|a| a.node).filter(|a| seen.insert(*a)));
    }
    seen
}

/// The cone of two classes, which goes `depth` values that both programs have beyond the nearest; `None` if it has more than
/// `most` nodes.
pub(super) fn cone(
    values: &Values<'_>,
    (a, b): (ClassId, ClassId),
    depth: usize,
    most: usize,
) -> Option<Cone> {
    let expanded = expanded(values, &[a, b], depth, most)?;
    let mut made = Made {
        values,
        roots: [a, b],
        expanded: &expanded,
        out: Cone { program: Program::default(), cuts: vec![], nodes: [vec![], vec![]] },
        of_node: HashMap::new(),
        of_cut: HashMap::new(),
    };
    let goal = [("a", a), ("b", b)].map(|(name, class)| (name.to_string(), made.value(class)));
    made.out.program.outputs = goal.to_vec();
    for (side, nodes) in [Side::A, Side::B].into_iter().zip(&mut made.out.nodes) {
        nodes.sort_unstable();
        // What is computed from constants alone may be shared with other places, and is told where there is nothing else.
        let varies = |n: &NodeId| {
            let class = values.class_of(side, Value { node: *n, output: 0 });
            values.class(class).varies
        };
        if nodes.iter().any(varies) {
            nodes.retain(varies);
        }
    }
    Some(made.out)
}

/// The classes that a cone has the definitions of.
fn expanded(
    values: &Values<'_>,
    roots: &[ClassId],
    depth: usize,
    most: usize,
) -> Option<BTreeSet<ClassId>> {
    let mut left: BTreeMap<ClassId, usize> = BTreeMap::new();
    let mut open: Vec<(ClassId, usize)> = roots.iter().map(|&r| (r, depth)).collect();
    while let Some((class, budget)) = open.pop() {
        if left.get(&class).is_some_and(|known| *known >= budget) {
            continue;
        }
        left.insert(class, budget);
        if left.len() > most {
            return None;
        }
        let (side, v) = values.definition(class);
        for arg in &values.programs[side as usize].node(v.node).args {
            let arg = values.class_of(side, *arg);
            let found = values.class(arg);
            match (found.is_shared() && found.varies, budget) {
                (false, _) => open.push((arg, budget)),
                (true, 0) => {}
                (true, _) => open.push((arg, budget - 1)),
            }
        }
    }
    Some(left.into_keys().collect())
}

/// A cone that is being built.
struct Made<'v, 'p> {
    values: &'v Values<'p>,
    roots: [ClassId; 2],
    expanded: &'v BTreeSet<ClassId>,
    out: Cone,
    of_node: HashMap<(Side, NodeId), NodeId>,
    of_cut: HashMap<ClassId, Value>,
}

impl Made<'_, '_> {
    fn value(&mut self, class: ClassId) -> Value {
        let (side, v) = self.values.definition(class);
        if !self.expanded.contains(&class) {
            return self.cut(class, side, v);
        }
        let node = match self.of_node.get(&(side, v.node)) {
            Some(node) => *node,
            None => self.node(side, v.node),
        };
        Value { node, output: v.output }
    }

    fn cut(&mut self, class: ClassId, side: Side, v: Value) -> Value {
        if let Some(known) = self.of_cut.get(&class) {
            return *known;
        }
        let ty = self.values.ty(side, v).clone();
        let program = &mut self.out.program;
        let index = program.inputs.len() as u32;
        let name = called(self.values.programs[side as usize], v);
        let is_new = !name.is_empty() && program.inputs.iter().all(|(n, _)| *n != name);
        let name = if is_new { name } else { format!("v{index}") };
        program.inputs.push((name, ty.clone()));
        let origin = String::new();
        let kind = NodeKind::Input(index);
        let node = program.push(Node { kind, args: vec![], types: vec![ty], origin });
        self.out.cuts.push(class);
        let value = Value { node, output: 0 };
        self.of_cut.insert(class, value);
        value
    }

    fn node(&mut self, side: Side, id: NodeId) -> NodeId {
        let source = self.values.programs[side as usize];
        let node = source.node(id);
        let args: Vec<ClassId> = node.args.iter().map(|a| self.values.class_of(side, *a)).collect();
        let args = args.into_iter().map(|a| self.value(a)).collect();
        if let NodeKind::Input(_) = node.kind {
            let class = self.values.class_of(side, Value { node: id, output: 0 });
            return self.cut(class, side, Value { node: id, output: 0 }).node;
        }
        let kind = match &node.kind {
            NodeKind::Const(c) => {
                NodeKind::Const(self.out.program.consts.intern(source.consts.get(*c).clone()))
            }
            other => other.clone(),
        };
        let made = self.out.program.push(Node { kind, args, ..node.clone() });
        self.of_node.insert((side, id), made);
        let results = 0..node.types.len() as u32;
        let mut classes =
            results.map(|output| self.values.class_of(side, Value { node: id, output }));
        if classes.any(|c| self.roots.contains(&c) || !self.values.class(c).is_shared()) {
            self.out.nodes[side as usize].push(id);
        }
        made
    }
}
