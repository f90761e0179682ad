//! Turns selected kernels into those of a plan: views are merged into the kernels that read them, and kernels are sorted topologically.

use crate::cost::target::TargetPrices;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Kernel;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A kernel by its nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelDraft {
    /// What it computes. Another kernel may compute some of it again.
    pub(crate) nodes: BTreeSet<usize>,
    /// The nodes whose results leave it.
    pub(crate) roots: BTreeSet<usize>,
    /// Those that its implementation is named for.
    pub(crate) anchors: Vec<usize>,
    /// Its number.
    pub(crate) kernel: u32,
    /// All of it is pointwise.
    pub(crate) pointwise: bool,
}

struct PlanAssembler<'a> {
    program: &'a Program,
    prices: &'a TargetPrices<'a>,
    drafts: Vec<KernelDraft>,
    /// The kernel that yields each node.
    maker: HashMap<usize, usize>,
    results: HashSet<usize>,
}

/// The kernels in execution order.
pub(crate) fn finish(
    program: &Program,
    library: &Library,
    prices: &TargetPrices<'_>,
    drafts: Vec<KernelDraft>,
) -> Vec<Kernel> {
    let mut maker = HashMap::new();
    for (i, d) in drafts.iter().enumerate() {
        maker.extend(d.roots.iter().map(|&r| (r, i)));
    }
    let results = program.outputs.iter().map(|o| o.1.node.0 as usize).collect();
    let f = PlanAssembler { program, prices, drafts, maker, results };
    let folded = f.folded();
    let mut whole: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (i, d) in f.drafts.iter().enumerate().filter(|(i, _)| !folded.contains(i)) {
        whole.insert(i, f.with_views(d, &folded));
    }
    let mut kernels: Vec<(usize, Kernel)> =
        f.order(&whole).into_iter().map(|i| (i, f.kernel(i, &whole[&i], library))).collect();
    let mut read: HashSet<Value> = program.outputs.iter().map(|o| o.1).collect();
    read.extend(kernels.iter().flat_map(|(_, k)| k.inputs.iter().copied()));
    for (i, k) in &mut kernels {
        for &root in &f.drafts[*i].roots {
            let node = NodeId(root as u32);
            let values = 0..program.node(node).types.len() as u32;
            let values = values.map(|output| Value { node, output });
            k.outputs.extend(values.filter(|v| read.contains(v)));
        }
    }
    kernels.into_iter().map(|(_, k)| k).collect()
}

/// What a set of nodes reads from outside.
pub(crate) fn reads(program: &Program, nodes: &BTreeSet<usize>) -> BTreeSet<usize> {
    let args = nodes.iter().flat_map(|&n| &program.nodes[n].args);
    args.map(|a| a.node.0 as usize).filter(|a| !nodes.contains(a)).collect()
}

impl PlanAssembler<'_> {
    /// Views that are read where they are needed rather than by themselves, by the number of their kernel.
    fn folded(&self) -> HashSet<usize> {
        let mut readers: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, d) in self.drafts.iter().enumerate() {
            for r in reads(self.program, &d.nodes) {
                if let Some(&m) = self.maker.get(&r) {
                    readers.entry(m).or_default().push(i);
                }
            }
        }
        let is_view = |i: &usize| self.prices.is_view(self.drafts[*i].kernel);
        let folds = |i: &usize| {
            let d = &self.drafts[*i];
            let readers = readers.get(i).map_or(&[][..], Vec::as_slice);
            let by_reference = readers.iter().any(|r| self.prices.is_rest(self.drafts[*r].kernel));
            // A kernel has no memory to see its own values in otherwise.
            let base = self.base(d);
            let own = readers.iter().any(|r| self.drafts[*r].nodes.contains(&base));
            // A view of a view may need a copy, which is made once for all readers.
            let inner = reads(self.program, &d.nodes);
            let copies = inner.iter().any(|r| self.maker.get(r).is_some_and(is_view));
            let yields = d.roots.iter().any(|r| self.results.contains(r));
            let stays = yields || by_reference || copies && readers.len() > 1;
            is_view(i) && !stays && !own
        };
        (0..self.drafts.len()).filter(folds).collect()
    }

    /// What a view shows, through other views.
    fn base(&self, view: &KernelDraft) -> usize {
        let mut at = view.roots.first().copied().unwrap_or_default();
        let is_view = |n: &usize| {
            let draft = self.maker.get(n).map(|m| &self.drafts[*m]);
            draft.is_some_and(|d| self.prices.is_view(d.kernel))
        };
        while is_view(&at)
            && let Some(from) = self.program.nodes[at].args.first()
        {
            at = from.node.0 as usize;
        }
        at
    }

    /// The nodes of a kernel and the views that it reads through.
    fn with_views(&self, d: &KernelDraft, folded: &HashSet<usize>) -> BTreeSet<usize> {
        let mut nodes = d.nodes.clone();
        let mut stack: Vec<usize> = nodes.iter().copied().collect();
        while let Some(n) = stack.pop() {
            for a in &self.program.nodes[n].args {
                let a = a.node.0 as usize;
                if self.maker.get(&a).is_some_and(|m| folded.contains(m)) && nodes.insert(a) {
                    stack.push(a);
                }
            }
        }
        nodes
    }

    /// Kernels such that each follows those it reads, otherwise in the order of the program.
    fn order(&self, whole: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<usize> {
        let mut missing: BTreeMap<usize, usize> = BTreeMap::new();
        let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&i, nodes) in whole {
            let reads = reads(self.program, nodes);
            let of: BTreeSet<usize> = reads
                .iter()
                .filter_map(|r| self.maker.get(r).copied())
                .filter(|m| *m != i)
                .collect();
            missing.insert(i, of.len());
            for m in of {
                readers.entry(m).or_default().push(i);
            }
        }
        // By the last result: a kernel runs where the program would have finished it.
        let key = |i: usize| (self.drafts[i].roots.last().copied(), i);
        let mut ready: BTreeSet<(Option<usize>, usize)> =
            missing.iter().filter(|(_, n)| **n == 0).map(|(&i, _)| key(i)).collect();
        let mut out = Vec::with_capacity(whole.len());
        while let Some((_, i)) = ready.pop_first() {
            out.push(i);
            for &r in readers.get(&i).into_iter().flatten() {
                let left = missing.entry(r).or_default();
                *left -= 1;
                if *left == 0 {
                    ready.insert(key(r));
                }
            }
        }
        out
    }

    fn kernel(&self, i: usize, nodes: &BTreeSet<usize>, library: &Library) -> Kernel {
        let d = &self.drafts[i];
        let name = match self.prices.kernel_name(d.kernel) {
            "" => d.roots.last().map_or(String::new(), |&r| self.operator(r, library)),
            name => name.to_string(),
        };
        let mut inputs = Vec::new();
        for &n in nodes {
            for a in &self.program.nodes[n].args {
                if !nodes.contains(&(a.node.0 as usize)) && !inputs.contains(a) {
                    inputs.push(*a);
                }
            }
        }
        let (prologue, epilogue) = self.around(&d.anchors, nodes, library);
        let ids =
            |nodes: &mut dyn Iterator<Item = usize>| nodes.map(|n| NodeId(n as u32)).collect();
        Kernel {
            name,
            nodes: ids(&mut nodes.iter().copied()),
            anchors: ids(&mut d.anchors.iter().copied()),
            prologue: ids(&mut prologue.into_iter()),
            epilogue: ids(&mut epilogue.into_iter()),
            inputs,
            outputs: vec![],
        }
    }

    /// The nodes that compute what the anchors read, and those that follow them, views aside.
    fn around(
        &self,
        anchors: &[usize],
        nodes: &BTreeSet<usize>,
        library: &Library,
    ) -> (Vec<usize>, Vec<usize>) {
        let mut before: HashSet<usize> = HashSet::new();
        let mut stack = anchors.to_vec();
        while let Some(n) = stack.pop() {
            let args = self.program.nodes[n].args.iter().map(|a| a.node.0 as usize);
            stack.extend(args.filter(|a| nodes.contains(a) && before.insert(*a)));
        }
        let is_view = |n: &usize| library.is_view(self.program, NodeId(*n as u32));
        let around = nodes.iter().copied().filter(|n| !anchors.contains(n) && !is_view(n));
        around.partition(|n| before.contains(n))
    }

    /// The name of the operator of a node.
    fn operator(&self, node: usize, library: &Library) -> String {
        match &self.program.nodes[node].kind {
            NodeKind::Apply(call, _) => library.call(*call).name.to_string(),
            NodeKind::Input(_) | NodeKind::Const(_) => String::new(),
        }
    }
}
