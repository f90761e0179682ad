//! Programs: acyclic graphs of operator applications, in topological order.

use super::attr::Attr;
use super::extent::Extent;
use super::tensor::Tensor;
use super::ty::Type;
use crate::library::CallId;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// Index of a node in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Index of a constant in a [`Consts`] pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConstId(pub u32);

/// One output of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    /// The node that yields it.
    pub node: NodeId,
    /// Which of its outputs.
    pub output: u32,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// The program's input of that index.
    Input(u32),
    /// A constant.
    Const(ConstId),
    /// An operator with its attributes in declared order, all of them, none defaulted.
    Apply(CallId, Vec<Attr>),
}

/// A node: what it is, what it reads, what it yields.
#[derive(Clone, Debug)]
pub struct Node {
    /// What the node is.
    pub kind: NodeKind,
    /// Arguments, each defined by an earlier node.
    pub args: Vec<Value>,
    /// One type per output.
    pub types: Vec<Type>,
    /// The names of this node in the imported model, for messages and `explain`; may be empty.
    pub origin: String,
}

impl Node {
    /// The symbols of its types and attributes, each once, sorted.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        let attrs: &[Attr] = match &self.kind {
            NodeKind::Apply(_, attrs) => attrs,
            NodeKind::Input(_) | NodeKind::Const(_) => &[],
        };
        let of_attr = |a: &Attr| match a {
            Attr::Int(e) => e.symbols(),
            Attr::Ints(v) => v.iter().flat_map(Extent::symbols).collect(),
            Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => {
                vec![]
            }
        };
        let extents = self.types.iter().flat_map(|t| &t.shape);
        let mut out: Vec<Arc<str>> =
            extents.flat_map(Extent::symbols).chain(attrs.iter().flat_map(of_attr)).collect();
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// Constants by content: equal tensors have one id.
#[derive(Clone, Debug, Default)]
pub struct Consts {
    tensors: Vec<Tensor>,
    by_key: HashMap<u64, Vec<ConstId>>,
}

impl Consts {
    /// The id of `tensor`, new or that of an equal one. Reads only a sample of the bytes unless
    /// another constant has the same sample.
    pub fn intern(&mut self, tensor: Tensor) -> ConstId {
        let same = self.by_key.entry(tensor.sample_key()).or_default();
        for &id in same.iter() {
            let known = &self.tensors[id.0 as usize];
            if known.same_storage(&tensor) || *known == tensor {
                return id;
            }
        }
        let id = ConstId(self.tensors.len() as u32);
        same.push(id);
        self.tensors.push(tensor);
        id
    }

    /// The tensor of an id.
    pub fn get(&self, id: ConstId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// All tensors, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter()
    }

    /// Bytes of constants that are not read.
    pub fn unread(&self) -> u64 {
        // One range may be seen under several shapes.
        fn range(t: &Tensor) -> Option<((&Path, u64), u64)> {
            t.unread().map(|r| ((r.path.as_path(), r.offset), t.bytes().len() as u64))
        }
        let ranges: BTreeMap<_, u64> = self.tensors.iter().filter_map(range).collect();
        ranges.values().sum()
    }

    /// Bytes of all constants.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes().len() as u64).sum()
    }

    /// Number of constants.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }
}

/// A typed program. Nodes are in topological order; equal nodes need not be shared.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Names and types of the inputs, in the model's order.
    pub inputs: Vec<(String, Type)>,
    /// In topological order; a [`NodeId`] is an index into this list.
    pub nodes: Vec<Node>,
    /// Names and values of the outputs, in the model's order.
    pub outputs: Vec<(String, Value)>,
    /// The tensors that constant nodes refer to by id, equal ones once.
    pub consts: Consts,
}

impl Program {
    /// Appends a node and returns its id.
    ///
    /// # Panics
    /// If an argument is not defined by an earlier node.
    pub fn push(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        assert!(node.args.iter().all(|a| a.node < id), "arguments precede their node");
        self.nodes.push(node);
        id
    }

    /// The node of an id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The type of a value.
    pub fn ty(&self, v: Value) -> &Type {
        &self.node(v.node).types[v.output as usize]
    }

    /// True for an application of an operator.
    pub fn is_applied(&self, id: NodeId) -> bool {
        matches!(self.node(id).kind, NodeKind::Apply(..))
    }

    /// The same program with numbers for the symbols that have one.
    pub fn bound(&self, symbol: &dyn Fn(&str) -> Option<i64>) -> Program {
        let shape = |t: &mut Type| t.shape.iter_mut().for_each(|e| *e = e.bound(symbol));
        let mut out = self.clone();
        for node in &mut out.nodes {
            node.types.iter_mut().for_each(shape);
            if let NodeKind::Apply(_, attrs) = &mut node.kind {
                attrs.iter_mut().for_each(|a| *a = a.bound(symbol));
            }
        }
        out.inputs.iter_mut().for_each(|(_, t)| shape(t));
        out
    }

    /// The constant behind a value, if it is one.
    pub fn as_const(&self, v: Value) -> Option<&Tensor> {
        match self.node(v.node).kind {
            NodeKind::Const(c) => Some(self.consts.get(c)),
            NodeKind::Input(_) | NodeKind::Apply(..) => None,
        }
    }

    /// The same program with a constant for every value that has no elements, an input's or computed. Inputs stay.
    pub fn with_empty_constants(self) -> Program {
        self.with_empty_constants_by().0
    }

    /// The same, and the new id of each node.
    pub fn with_empty_constants_by(self) -> (Program, Vec<NodeId>) {
        let empty = |ty: &Type| {
            let shape = ty.known_shape().filter(|s| s.contains(&0))?;
            Tensor::new(ty.dtype, shape, Bytes::new()).ok()
        };
        let mut out = Program { inputs: self.inputs, consts: self.consts, ..Program::default() };
        let mut new: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        let renamed = |ids: &[NodeId], v: Value| Value { node: ids[v.node.0 as usize], ..v };
        for mut node in self.nodes {
            let constant = match (&node.kind, node.types.as_slice()) {
                (NodeKind::Input(_) | NodeKind::Apply(..), [ty]) => empty(ty),
                _ => None,
            };
            node.args.iter_mut().for_each(|a| *a = renamed(&new, *a));
            new.push(match constant {
                Some(t) => {
                    if let NodeKind::Input(_) = node.kind {
                        out.push(node.clone());
                    }
                    let kind = NodeKind::Const(out.consts.intern(t));
                    out.push(Node { kind, args: vec![], ..node })
                }
                None => out.push(node),
            });
        }
        out.outputs = self.outputs.into_iter().map(|(n, v)| (n, renamed(&new, v))).collect();
        (out, new)
    }

    /// The same program in which what only constants decide stands right before the one node that reads it, and what only numbers
    /// decide before each: a repeated block then holds what is computed of its own constants, and blocks do not differ by the
    /// numbers that they happen to share.
    pub fn with_late_constants(self) -> Program {
        let (kinds, readers) = (self.constancy(), self.readers());
        let applied = |i: usize| matches!(self.nodes[i].kind, NodeKind::Apply(..));
        let moves = |i: usize| match kinds[i] {
            Constancy::Number => applied(i),
            Constancy::Constant => applied(i) && readers[i] == 1,
            Constancy::Variable => false,
        };
        let named: Vec<usize> = self.outputs.iter().map(|(_, v)| v.node.0 as usize).collect();
        let mut out = Program { inputs: self.inputs, consts: self.consts, ..Program::default() };
        let mut new: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let stays = |i: &usize| !moves(*i) || named.contains(i);
        for i in (0..self.nodes.len()).filter(stays) {
            new[i] = Some(place(&mut out, &self.nodes, &new, i));
        }
        let renamed = |v: Value| Value { node: new[v.node.0 as usize].unwrap_or(v.node), ..v };
        out.outputs = self.outputs.into_iter().map(|(n, v)| (n, renamed(v))).collect();
        out
    }

    /// What decides each node.
    fn constancy(&self) -> Vec<Constancy> {
        let mut kinds: Vec<Constancy> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let args = node.args.iter().map(|a| kinds[a.node.0 as usize]);
            kinds.push(match node.kind {
                NodeKind::Input(_) => Constancy::Variable,
                NodeKind::Const(c) if self.consts.get(c).len() == 1 => Constancy::Number,
                NodeKind::Const(_) => Constancy::Constant,
                // What has no operands computes a table.
                NodeKind::Apply(..) => args.max().unwrap_or(Constancy::Constant),
            });
        }
        kinds
    }

    /// How often each node is read; outputs read, too.
    fn readers(&self) -> Vec<usize> {
        let mut readers = vec![0; self.nodes.len()];
        let args = self.nodes.iter().flat_map(|n| &n.args);
        args.chain(self.outputs.iter().map(|(_, v)| v))
            .for_each(|v| readers[v.node.0 as usize] += 1);
        readers
    }

    /// The same program without nodes that no output needs. Inputs stay.
    pub fn pruned(&self) -> Program {
        self.pruned_by().0
    }

    /// The same, and the new id of each node that is left.
    pub fn pruned_by(&self) -> (Program, Vec<Option<NodeId>>) {
        let mut live = vec![false; self.nodes.len()];
        for (_, v) in &self.outputs {
            live[v.node.0 as usize] = true;
        }
        for i in (0..self.nodes.len()).rev() {
            live[i] |= matches!(self.nodes[i].kind, NodeKind::Input(_));
            if live[i] {
                for a in &self.nodes[i].args {
                    live[a.node.0 as usize] = true;
                }
            }
        }
        let mut out = Program { inputs: self.inputs.clone(), ..Program::default() };
        out.consts = self.consts.clone();
        let mut new_id = vec![NodeId(0); self.nodes.len()];
        let renamed = |ids: &[NodeId], v: Value| Value { node: ids[v.node.0 as usize], ..v };
        for (i, node) in self.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
            let mut node = node.clone();
            for a in &mut node.args {
                *a = renamed(&new_id, *a);
            }
            new_id[i] = out.push(node);
        }
        out.outputs = self.outputs.iter().map(|(n, v)| (n.clone(), renamed(&new_id, *v))).collect();
        let left = new_id.into_iter().zip(live).map(|(id, live)| live.then_some(id));
        (out, left.collect())
    }
}

/// What decides a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Constancy {
    /// Constants of one element.
    Number,
    /// Constants.
    Constant,
    /// Inputs, too.
    Variable,
}

/// Adds a node after what it reads and is not there yet.
fn place(out: &mut Program, nodes: &[Node], new: &[Option<NodeId>], at: usize) -> NodeId {
    let mut waiting = vec![(at, Vec::new())];
    loop {
        let Some((at, args)) = waiting.last_mut() else {
            unreachable!("the loop returns with the last")
        };
        let node = &nodes[*at];
        match node.args.get(args.len()) {
            Some(a) => match new[a.node.0 as usize] {
                Some(node) => args.push(Value { node, ..*a }),
                None => waiting.push((a.node.0 as usize, Vec::new())),
            },
            None => {
                let made = out.push(Node { args: std::mem::take(args), ..node.clone() });
                waiting.pop();
                match waiting.last_mut() {
                    Some((at, args)) => {
                        let output = nodes[*at].args[args.len()].output;
                        args.push(Value { node: made, output });
                    }
                    None => return made,
                }
            }
        }
    }
}
