//! The shorter program that represents one with a repeated block: the beginning with the first copy,
//! two copies that represent all, and the last copy with the rest.
//!
//! The two in the middle and the last read inputs about which nothing is known, so whatever is proved of
//! them holds at any position; their constants are per-copy constants, so it holds for the weights of every copy.

use super::repeated_block::{BlockOperand, BlockValue, RepeatedBlock, constant};
use crate::graph::lower::PerCopyConstants;
use mlc_dsl::ir::{Node, NodeId, NodeKind, Program, Tensor, Value};
use std::collections::{BTreeMap, HashMap};

/// One of the copies that a representative program keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeptCopy {
    /// The first copy of the block.
    First,
    /// One in the middle, and the one after it.
    Middle(usize),
    /// The last copy of the block.
    Last,
}

impl KeptCopy {
    /// The copy of the program whose nodes it is made of.
    pub fn copy(self, count: usize) -> usize {
        match self {
            KeptCopy::First => 0,
            KeptCopy::Middle(k) => 1 + k,
            KeptCopy::Last => count - 1,
        }
    }
}

/// A program with four copies of the block in place of all, and the map of their values.
pub struct RepresentativeProgram {
    /// The program. Its first inputs are those of the whole one.
    pub program: Program,
    /// Its constants that stand for one of every copy.
    pub per_copy: PerCopyConstants,
    /// Values of the whole program that are here.
    pub kept: HashMap<Value, Value>,
    /// Values of the copies that are kept.
    copies: HashMap<(KeptCopy, usize), NodeId>,
    /// Applications of the copies in the middle: which of the two, and where in it.
    middle: HashMap<NodeId, (usize, usize)>,
    /// What the middle and the last copy read in place of values of the copy before.
    fresh: BTreeMap<(bool, BlockValue), Value>,
}

impl RepresentativeProgram {
    /// The shorter program of one that repeats a block.
    pub fn new(whole: &Program, r: &RepeatedBlock) -> RepresentativeProgram {
        let mut s = RepresentativeProgram {
            program: Program { consts: whole.consts.clone(), ..Program::default() },
            per_copy: PerCopyConstants::new(),
            kept: HashMap::new(),
            copies: HashMap::new(),
            middle: HashMap::new(),
            fresh: BTreeMap::new(),
        };
        s.inputs(whole, r);
        for &i in &r.order[..r.first] {
            s.keep(whole, i);
        }
        for kept in [KeptCopy::First, KeptCopy::Middle(0), KeptCopy::Middle(1), KeptCopy::Last] {
            for at in 0..r.period {
                s.copy(whole, r, kept, at);
            }
        }
        for at in 0..r.period {
            let last = NodeId(r.node(r.count - 1, at) as u32);
            let here = s.copies[&(KeptCopy::Last, at)];
            for output in 0..whole.node(last).types.len() as u32 {
                s.kept.insert(Value { node: last, output }, Value { node: here, output });
            }
        }
        for &i in &r.order[r.first + r.count * r.period..] {
            s.keep(whole, i);
        }
        // An output may be an input or a constant that nothing reads.
        let is_apply = |v: &Value| matches!(whole.node(v.node).kind, NodeKind::Apply(..));
        for (_, v) in whole.outputs.iter().filter(|(_, v)| !is_apply(v)) {
            s.same(whole, *v);
        }
        s.outputs(whole, r);
        s
    }

    /// A value of a copy that is kept.
    pub fn value(&self, kept: KeptCopy, slot: BlockValue) -> Value {
        Value { node: self.copies[&(kept, slot.at)], output: slot.output }
    }

    /// Which of the copies in the middle an application is of, and where in it.
    pub fn middle(&self, node: NodeId) -> Option<(usize, usize)> {
        self.middle.get(&node).copied()
    }

    /// What stands for a value of the copy before: of the middle, or of the last.
    pub fn fresh(&self, last: bool, slot: BlockValue) -> Value {
        self.fresh[&(last, slot)]
    }

    /// Inputs that stand for values of the copy before, by their index in the shorter program.
    pub fn fresh_inputs(&self, last: bool) -> impl Iterator<Item = (u32, BlockValue)> + '_ {
        let of = move |((l, slot), v): (&(bool, BlockValue), &Value)| match self
            .program
            .node(v.node)
            .kind
        {
            NodeKind::Input(i) if *l == last => Some((i, *slot)),
            _ => None,
        };
        self.fresh.iter().filter_map(of)
    }

    fn inputs(&mut self, whole: &Program, r: &RepeatedBlock) {
        self.program.inputs = whole.inputs.clone();
        let carried = r.carried();
        for (last, name) in [(false, "middle"), (true, "last")] {
            for slot in &carried {
                let ty = whole.ty(r.value(0, *slot)).clone();
                let index = self.program.inputs.len() as u32;
                let name = format!("{name} {}.{}", slot.at, slot.output);
                self.program.inputs.push((name, ty.clone()));
                let node = Node {
                    kind: NodeKind::Input(index),
                    args: vec![],
                    types: vec![ty],
                    origin: String::new(),
                };
                let node = self.program.push(node);
                self.fresh.insert((last, *slot), Value { node, output: 0 });
            }
        }
    }

    /// A node of the whole program, as it is there.
    fn keep(&mut self, whole: &Program, i: usize) {
        let node = &whole.nodes[i];
        let args: Vec<Value> = node.args.iter().map(|a| self.same(whole, *a)).collect();
        let id = self.program.push(Node { args, ..node.clone() });
        for output in 0..node.types.len() as u32 {
            let of = Value { node: NodeId(i as u32), output };
            self.kept.insert(of, Value { node: id, output });
        }
    }

    /// A value of the whole program that is here as it is there; inputs and constants come as they are
    /// read.
    fn same(&mut self, whole: &Program, v: Value) -> Value {
        if let Some(known) = self.kept.get(&v) {
            return *known;
        }
        let id = self.program.push(whole.node(v.node).clone());
        let here = Value { node: id, output: v.output };
        self.kept.insert(v, here);
        here
    }

    /// An application of a copy.
    fn copy(&mut self, whole: &Program, r: &RepeatedBlock, kept: KeptCopy, at: usize) {
        let copy = kept.copy(r.count);
        let node = &whole.nodes[r.node(copy, at)];
        let args = r.reads[at].iter().map(|read| match read {
            BlockOperand::Own(s) => self.value(kept, *s),
            BlockOperand::Same(v) => self.same(whole, *v),
            BlockOperand::Carried(s) => match kept {
                KeptCopy::First => self.same(whole, r.entry[s]),
                KeptCopy::Middle(0) => self.fresh(false, *s),
                KeptCopy::Middle(k) => self.value(KeptCopy::Middle(k - 1), *s),
                KeptCopy::Last => self.fresh(true, *s),
            },
            BlockOperand::Each(all) => self.each(whole, all, kept, copy),
        });
        let args: Vec<Value> = args.collect();
        let id = self.program.push(Node { args, ..node.clone() });
        self.copies.insert((kept, at), id);
        if let KeptCopy::Middle(k) = kept {
            self.middle.insert(id, (k, at));
        }
    }

    /// A constant or an input of a copy's own.
    fn each(&mut self, whole: &Program, all: &[Value], kept: KeptCopy, copy: usize) -> Value {
        let (KeptCopy::Middle(k), Some(_)) = (kept, constant(whole, all[copy])) else {
            return self.same(whole, all[copy]);
        };
        let id = self.program.push(whole.node(all[copy].node).clone());
        // Copy `k` of the middle stands for all but the first `k` copies and the last `1 - k`.
        let tensors: Vec<Tensor> = all[k..all.len() - 1 + k]
            .iter()
            .filter_map(|v| constant(whole, *v))
            .map(|c| whole.consts.get(c).clone())
            .collect();
        self.per_copy.insert(id, tensors);
        Value { node: id, output: 0 }
    }

    /// What must not be pruned: what the whole program yields and what crosses from copy to copy.
    fn outputs(&mut self, whole: &Program, r: &RepeatedBlock) {
        let mut ends: Vec<Value> =
            whole.outputs.iter().filter_map(|(_, v)| self.kept.get(v).copied()).collect();
        for slot in r.carried() {
            ends.push(self.value(KeptCopy::First, slot));
            ends.push(self.value(KeptCopy::Middle(1), slot));
        }
        for slot in &r.outputs {
            ends.extend(
                [KeptCopy::First, KeptCopy::Middle(0), KeptCopy::Middle(1)]
                    .map(|k| self.value(k, *slot)),
            );
        }
        ends.sort();
        ends.dedup();
        self.program.outputs =
            ends.into_iter().enumerate().map(|(i, v)| (format!("end {i}"), v)).collect();
    }
}
