//! What every node of two programs is to the other one, as a sweep left it: the same, proved equal, in a place that differs, or
//! without a partner.

use super::Told;
use super::judge::Judged;
use super::sweep::{Held, settled};
use super::values::{ClassId, CommonConstants, Side, Values};
use mlc_dsl::ir::{NodeId, Program, Value};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What a node is to the other program. What is to be looked at most comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::explain) enum Relation {
    /// No input decides it, and the other program has no such value.
    Known,
    /// The same operators on the same values.
    Same,
    /// Equal by laws.
    Proved,
    /// Equal if the values of the places before it are.
    Behind,
    /// The other program has no such value.
    Alone,
    /// In a place that is not proved.
    Open,
    /// In a place that differs.
    Differs,
}

/// A node, and its partners.
#[derive(Clone, Debug)]
pub(in crate::explain) struct Link {
    pub relation: Relation,
    /// Nodes of the other program with such a value.
    pub partners: Vec<NodeId>,
    /// The places that it is in, by number.
    pub places: Vec<usize>,
    /// The proofs of its values, by number.
    pub proofs: Vec<usize>,
}

/// The nodes of both programs.
pub(in crate::explain) type Links = [Vec<Link>; 2];

/// Looks at every node.
pub(super) fn links(told: &Told<'_>, consts: &CommonConstants) -> Links {
    let values = settled(told.programs, consts, &|v| told.swept.held.get(&v).map(|(a, _)| *a));
    let all = All::new(told, &values);
    [Side::A, Side::B].map(|side| all.of(side))
}

/// Values of a side that are read or are outputs.
fn used(program: &Program) -> HashSet<Value> {
    let read = program.nodes.iter().flat_map(|n| &n.args);
    read.chain(program.outputs.iter().map(|(_, v)| v)).copied().collect()
}

/// What is known of classes, and of nodes in places.
struct All<'a> {
    values: &'a Values<'a>,
    /// Nodes of each program by the classes of their values.
    makers: [HashMap<ClassId, Vec<NodeId>>; 2],
    /// Classes that are equal only if a place is.
    behind: HashSet<ClassId>,
    /// Proofs by class.
    proofs: HashMap<ClassId, Vec<usize>>,
    /// Places by node, and whether one of them differs.
    places: [HashMap<NodeId, (Vec<usize>, bool)>; 2],
}

impl<'a> All<'a> {
    fn new(told: &Told<'_>, values: &'a Values<'a>) -> All<'a> {
        let mut all = All {
            values,
            makers: [HashMap::new(), HashMap::new()],
            behind: HashSet::new(),
            proofs: HashMap::new(),
            places: [HashMap::new(), HashMap::new()],
        };
        for (i, proof) in told.proved().enumerate() {
            all.proofs.entry(values.class_of(Side::B, proof.0)).or_default().push(i);
        }
        for (p, place) in told.places().enumerate() {
            let differs = matches!(place.judged, Judged::Differs(_));
            for (nodes, side) in place.cone.nodes.iter().zip(&mut all.places) {
                for node in nodes {
                    let (places, any) = side.entry(*node).or_default();
                    places.push(p);
                    *any |= differs;
                }
            }
        }
        for side in [Side::A, Side::B] {
            for v in outputs(values.programs[side as usize]) {
                let class = values.class_of(side, v);
                all.makers[side as usize].entry(class).or_default().push(v.node);
            }
        }
        let second = values.programs[1];
        for v in outputs(second) {
            let placed = matches!(told.swept.held.get(&v), Some((_, Held::Placed(_))));
            let reads = |a: &Value| all.behind.contains(&values.class_of(Side::B, *a));
            if placed || second.node(v.node).args.iter().any(reads) {
                all.behind.insert(values.class_of(Side::B, v));
            }
        }
        all
    }

    fn of(&self, side: Side) -> Vec<Link> {
        let program = self.values.programs[side as usize];
        let used = used(program);
        let mut links: Vec<Link> = Vec::with_capacity(program.nodes.len());
        for (id, node) in (0..).map(NodeId).zip(&program.nodes) {
            let values = (0..node.types.len() as u32).map(|output| Value { node: id, output });
            let read: Vec<Value> = values.clone().filter(|v| used.contains(v)).collect();
            let told = if read.is_empty() { values.collect() } else { read };
            links.push(self.link(side, id, &told));
        }
        links
    }

    /// What is said of a node whose results that matter are these.
    fn link(&self, side: Side, id: NodeId, results: &[Value]) -> Link {
        let classes: Vec<ClassId> =
            results.iter().map(|v| self.values.class_of(side, *v)).collect();
        let makers = &self.makers[1 - side as usize];
        let of_class = |c: &ClassId| makers.get(c).into_iter().flatten().copied();
        let partners: BTreeSet<NodeId> = classes.iter().flat_map(of_class).collect();
        let (places, differs) = self.places[side as usize].get(&id).cloned().unwrap_or_default();
        let proofs = classes.iter().filter_map(|c| self.proofs.get(c)).flatten().copied();
        let relation = match (places.is_empty(), differs) {
            (false, true) => Relation::Differs,
            (false, false) => Relation::Open,
            (true, _) => classes.iter().map(|c| self.relation(*c)).max().unwrap_or(Relation::Known),
        };
        Link {
            relation,
            partners: partners.into_iter().collect(),
            places,
            proofs: proofs.collect(),
        }
    }

    fn relation(&self, class: ClassId) -> Relation {
        let known = self.values.class(class);
        match (known.is_shared(), known.varies) {
            (false, false) => Relation::Known,
            (false, true) => Relation::Alone,
            (true, _) if self.behind.contains(&class) => Relation::Behind,
            (true, _) if self.proofs.contains_key(&class) => Relation::Proved,
            (true, _) => Relation::Same,
        }
    }
}

/// All values of a program, in order.
fn outputs(program: &Program) -> impl Iterator<Item = Value> {
    let nodes = (0..).map(NodeId).zip(&program.nodes);
    nodes.flat_map(|(node, n)| (0..n.types.len() as u32).map(move |output| Value { node, output }))
}
