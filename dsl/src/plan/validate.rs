//! Validates plans: the check that every plan passes before any backend executes it.

use super::memory::{Buffers, Home, Memory, PlannedBuffer};
use super::{Kernel, Plan};
use crate::ir::{NodeId, NodeKind, Program, Value};
use crate::library::{CallId, Callable, Library, OpClass};
use crate::plan::arena::rounded;
use crate::pointwise::is_pointwise;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// Something wrong with a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel, by its place in the plan, and its name.
    pub kernel: Option<(usize, String)>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kernel {
            Some((k, name)) => write!(f, "kernel {k} (`{name}`): {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// What is wrong with a plan; nothing if its kernels compute the program's outputs, in this order and in this memory.
pub fn faults(plan: &Plan, library: &Library) -> Vec<Fault> {
    let mut check = Check::new(&plan.program, &plan.kernels, library);
    check.kernels();
    // Memory is that of kernels that can run.
    if check.out.is_empty() {
        check.memory(&plan.memory);
    }
    check.out
}

/// What is wrong with kernels, whatever memory they have: they do not compute the program's outputs in this order.
pub fn kernel_faults(program: &Program, kernels: &[Kernel], library: &Library) -> Vec<Fault> {
    let mut check = Check::new(program, kernels, library);
    check.kernels();
    check.out
}

struct Check<'a> {
    program: &'a Program,
    kernels: &'a [Kernel],
    library: &'a Library,
    /// Values that are there before the next kernel.
    known: HashSet<Value>,
    out: Vec<Fault>,
}

impl<'a> Check<'a> {
    fn new(program: &'a Program, kernels: &'a [Kernel], library: &'a Library) -> Check<'a> {
        let nodes = (0..program.nodes.len() as u32).map(NodeId);
        let leaves = nodes.filter(|n| !program.is_applied(*n));
        let known = leaves.map(|node| Value { node, output: 0 }).collect();
        Check { program, kernels, library, known, out: Vec::new() }
    }

    fn kernels(&mut self) {
        for (k, kernel) in self.kernels.iter().enumerate() {
            if self.nodes(k, kernel) {
                self.parts(k, kernel);
                self.values(k, kernel);
            }
        }
        for (name, v) in &self.program.outputs {
            if !self.known.contains(v) {
                self.add(None, format!("no kernel computes the output `{name}`"));
            }
        }
    }

    fn add(&mut self, kernel: Option<usize>, what: impl Into<String>) {
        let named = |k: usize| (k, self.kernels[k].name.clone());
        self.out.push(Fault { kernel: kernel.map(named), what: what.into() });
    }

    fn call(&self, node: NodeId) -> Option<(CallId, &Callable)> {
        match self.program.nodes.get(node.0 as usize)?.kind {
            NodeKind::Apply(call, _) => Some((call, self.library.call(call))),
            NodeKind::Input(_) | NodeKind::Const(_) => None,
        }
    }

    /// True if its nodes are applications, in order: only then the rest can be looked at.
    fn nodes(&mut self, k: usize, kernel: &Kernel) -> bool {
        let before = self.out.len();
        if kernel.nodes.is_empty() {
            self.add(Some(k), "it computes nothing");
        }
        if !kernel.nodes.is_sorted_by(|a, b| a < b) {
            self.add(Some(k), "its nodes are not in order");
        }
        if kernel.nodes.iter().any(|n| self.call(*n).is_none()) {
            self.add(Some(k), "one of its nodes is no application of an operator");
        }
        self.out.len() == before
    }

    /// Every node is one of the anchor's, pointwise around it, or a view.
    fn parts(&mut self, k: usize, kernel: &Kernel) {
        let lists = [&kernel.anchors, &kernel.prologue, &kernel.epilogue];
        let named: Vec<NodeId> = lists.into_iter().flatten().copied().collect();
        let parts: BTreeSet<NodeId> = named.iter().copied().collect();
        if parts.len() < named.len() || !parts.iter().all(|n| kernel.nodes.contains(n)) {
            self.add(Some(k), "its parts are not parts of its nodes");
        }
        let around = kernel.prologue.iter().chain(&kernel.epilogue);
        let around: Vec<NodeId> = around.copied().collect();
        for node in around {
            if let Some((_, call)) = self.call(node)
                && !is_pointwise(self.library, call)
            {
                let what = format!("`{}` does not work element by element", call.name);
                self.add(Some(k), what);
            }
        }
        for node in kernel.nodes.iter().filter(|n| !parts.contains(n)) {
            if let Some((_, call)) = self.call(*node)
                && call.class != OpClass::View
            {
                let what = format!("`{}` is no view, and none of its parts has it", call.name);
                self.add(Some(k), what);
            } else if self.program.node(*node).args.iter().any(|a| parts.contains(&a.node)) {
                self.add(Some(k), "it sees otherwise what it computes itself");
            }
        }
        if let [first, rest @ ..] = kernel.anchors.as_slice()
            && !rest.is_empty()
        {
            let kind = |n: &NodeId| &self.program.nodes[n.0 as usize].kind;
            let chain = self.call(*first).is_some_and(|(_, c)| c.associative)
                && rest.iter().all(|n| kind(n) == kind(first));
            if !chain {
                self.add(Some(k), "its anchors are no chain of one associative operator");
            }
        }
    }

    /// What it reads is there, and what it yields is its own.
    fn values(&mut self, k: usize, kernel: &Kernel) {
        let program = self.program;
        let own = |v: &Value| kernel.nodes.contains(&v.node);
        let args = kernel.nodes.iter().flat_map(|n| &program.node(*n).args);
        let read: BTreeSet<Value> = args.filter(|a| !own(a)).copied().collect();
        let stated: BTreeSet<Value> = kernel.inputs.iter().copied().collect();
        if read != stated || stated.len() < kernel.inputs.len() {
            self.add(Some(k), "its inputs are not what its nodes read");
        }
        if read.iter().any(|v| !self.known.contains(v)) {
            self.add(Some(k), "it reads what no kernel before it computes");
        }
        let mut yields = BTreeSet::new();
        for v in &kernel.outputs {
            let named = |n: &NodeId| program.nodes.get(n.0 as usize).map_or(0, |n| n.types.len());
            if !own(v) || v.output as usize >= named(&v.node) {
                self.add(Some(k), "it yields what it does not compute");
            } else if !yields.insert(*v) || !self.known.insert(*v) {
                self.add(Some(k), "it yields what exists already");
            }
        }
    }

    /// Every buffer is there, is large enough, and is its own while it is alive.
    fn memory(&mut self, memory: &Memory) {
        let needs = Buffers::of(self.program, self.library, self.kernels);
        let places: HashMap<(usize, Value), &PlannedBuffer> =
            memory.places.iter().map(|p| ((p.kernel, p.value), p)).collect();
        if memory.once.len() != self.kernels.len() || places.len() != needs.buffers.len() {
            return self.add(None, "the memory is that of other kernels");
        }
        let mut last = vec![0; needs.buffers.len()];
        for (k, reads) in needs.reads.iter().enumerate() {
            reads.iter().for_each(|&b| last[b] = k);
        }
        let mut alive: Vec<(usize, usize, u64, u64)> = Vec::new();
        for (k, writes) in needs.writes.iter().enumerate() {
            for &b in writes {
                let need = needs.buffers[b];
                let Some(place) = places.get(&(k, need.value)) else {
                    self.add(Some(k), "a buffer that it writes is missing");
                    continue;
                };
                if place.bytes != need.bytes || need.kept != (place.home == Home::Result) {
                    self.add(Some(k), "a buffer that it writes is not what it takes");
                }
                let Home::Arena(at) = place.home else { continue };
                let to = at.saturating_add(rounded(place.bytes));
                if to > memory.arena {
                    self.add(Some(k), "a buffer that it writes is outside the arena");
                }
                alive.push((k, last[b].max(k), at, to));
            }
        }
        for (i, a) in alive.iter().enumerate() {
            let later = alive[i + 1..].iter().take_while(|b| b.0 <= a.1);
            let meets = later.filter(|b| a.2 < b.3 && b.2 < a.3).map(|b| b.0).next();
            if let Some(k) = meets {
                self.add(Some(k), "it writes a buffer that is still read");
            }
        }
    }
}
