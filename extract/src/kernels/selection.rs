//! Kernel selection for a program: covers it with the kernels of a target.
//!
//! Uses the same candidates and costs as for an e-graph; a program is an e-graph with one node per class. Afterwards
//! pointwise kernels that feed each other are merged into one with several results. Decides what is cheap, never what is equal.

use crate::cost::target::TargetPrices;
use crate::cost::work::Works;
use crate::cost::{CostModel, Work};
use crate::egraph_view::{Cost, EGraphView, EGraphViewBuilder};
use crate::extractor::{Extractor, GreedyDag};
use crate::kernels::candidates::{
    Class, KernelCandidate, KernelCandidates, OperatorNode, Role, VIEWS, candidates_with,
};
use crate::kernels::layout::{self, Layout, LayoutNeed};
use crate::kernels::plan::{KernelDraft, finish, reads};
use crate::solver::solution::Solution;
use mlc_dsl::ir::unfold::{is_open, unfold};
use mlc_dsl::ir::{Attr, DType, Extent, Node, NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::{Library, OpClass, TargetItem};
use mlc_dsl::plan::{Kernel, Plan};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most nodes of one pointwise kernel.
const LARGEST: usize = 96;

/// Steps that choosing among the candidates may take.
const STEPS: u64 = 4_000_000;

/// Covers a program with all kernels of a target, at its own prices.
pub fn select_kernels(program: Program, library: &Library, target: &TargetItem) -> Plan {
    select_kernels_priced(program, library, &TargetPrices::new(library, target, None))
}

/// Estimated seconds of a program's kernels.
pub fn estimate(
    program: &Program,
    kernels: &[Kernel],
    library: &Library,
    model: &CostModel,
) -> f64 {
    total(program, kernels, &Works::new(library), model, &|_| Work::default())
}

/// The sum of the kernels' prices, each with the work that comes before it.
fn total(
    program: &Program,
    kernels: &[Kernel],
    works: &Works<'_>,
    model: &CostModel,
    before: &dyn Fn(&Kernel) -> Work,
) -> f64 {
    let seconds = |k: &Kernel| {
        let dtype = k.outputs.first().map_or(DType::F32, |v| program.ty(*v).dtype);
        model.seconds(&k.name, dtype, &(works.kernel(program, k) + before(k)))
    };
    let mut all: Vec<f64> = kernels.iter().map(seconds).collect();
    // The sum is that of the kernels in any order.
    all.sort_unstable_by(f64::total_cmp);
    all.iter().sum()
}

/// Estimated seconds of each of a plan's kernels, in the plan's order: their sum is the plan's cost.
pub fn by_kernel(plan: &Plan, library: &Library, prices: &TargetPrices<'_>) -> Vec<f64> {
    let program = &plan.program;
    let sites = Sites::of(program, library, prices);
    // What several kernels see is taken once.
    let mut seen: HashSet<usize> = HashSet::new();
    let mut seconds = |k: &Kernel| {
        let alone = std::slice::from_ref(k);
        let views = k.nodes.iter().map(|n| n.0 as usize);
        let views = views.filter(|&n| prices.is_view(sites.entries[n].kernel) && seen.insert(n));
        let views: Vec<usize> = views.collect();
        total(program, alone, prices.works(), prices.model(), &|k| sites.changes(k))
            + prices.relayout() * sites.changes(k).relaid
            + sites.views(prices, &views)
    };
    let mut seconds = |k: &Kernel| if sites.runs_once(k) { 0.0 } else { seconds(k) };
    plan.kernels.iter().map(&mut seconds).collect()
}

/// Covers a program at these prices.
pub fn select_kernels_priced(
    program: Program,
    library: &Library,
    prices: &TargetPrices<'_>,
) -> Plan {
    select_kernels_with_incumbent(program, &[], library, prices)
}

/// The same, starting from an incumbent: kernels chosen before, which are kept unless others cost less.
pub fn select_kernels_with_incumbent(
    program: Program,
    incumbent: &[Vec<NodeId>],
    library: &Library,
    prices: &TargetPrices<'_>,
) -> Plan {
    // What a definition without a kernel consists of may have kernels. One that does not open stays, which no backend takes.
    let opens = |call| !prices.permits(call);
    let open = is_open(&program, library, &opens).then(|| unfold(&program, library, &opens).ok());
    // The nodes of a program that is opened are others.
    let incumbent = if open.is_some() { &[] } else { incumbent };
    let program = open.flatten().unwrap_or(program);
    let sites = Sites::of(&program, library, prices);
    let mut drafts = sites.choose(incumbent, prices);
    let views = drafts.iter().filter(|d| prices.is_view(d.kernel)).flat_map(|d| &d.nodes);
    let views: Vec<usize> = views.copied().collect();
    let views = sites.views(prices, &views);
    merge(&mut drafts, &sites, &program);
    chain(&mut drafts, &sites, &program, library);
    let kernels = finish(&program, library, prices, drafts);
    let often: Vec<Kernel> = kernels.iter().filter(|k| !sites.runs_once(k)).cloned().collect();
    let cost = views
        + total(&program, &often, prices.works(), prices.model(), &|k| sites.changes(k))
        + prices.relayout() * often.iter().map(|k| sites.changes(k).relaid).sum::<f64>();
    crate::kernels::order::plan(program, library, kernels, cost)
}

/// How a target computes each node of a program; a class is a node.
struct Sites {
    classes: Vec<Class>,
    entries: Vec<OperatorNode>,
    /// How the values lie.
    lies: Vec<LayoutNeed>,
    /// Element type of each node's first result.
    dtypes: Vec<DType>,
    /// Nodes that yield the outputs.
    roots: BTreeSet<usize>,
    /// Nodes that constants alone feed: their kernels run once, before the first run, and take no part in others.
    once: Vec<bool>,
}

/// The applications of a program that constants alone feed, but for views, which are read where they are needed.
fn run_once(program: &Program, library: &Library) -> Vec<bool> {
    let mut fed = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let is_known = || node.types.iter().all(|t| t.known_shape().is_some());
        fed.push(match &node.kind {
            NodeKind::Input(_) => false,
            NodeKind::Const(_) => true,
            NodeKind::Apply(_, attrs) => {
                is_known()
                    && attrs.iter().all(Attr::is_known)
                    && node.args.iter().all(|a| fed[a.node.0 as usize])
            }
        });
    }
    let runs = |node: &Node| match &node.kind {
        NodeKind::Apply(call, _) => library.call(*call).class != OpClass::View,
        NodeKind::Input(_) | NodeKind::Const(_) => false,
    };
    program.nodes.iter().zip(fed).map(|(node, fed)| fed && runs(node)).collect()
}

impl Sites {
    fn of(program: &Program, library: &Library, prices: &TargetPrices<'_>) -> Sites {
        let works = prices.works();
        let once = run_once(program, library);
        let mut shapes: HashMap<&[Extent], u32> = HashMap::new();
        let (mut classes, mut entries): (Vec<Class>, Vec<OperatorNode>) = (Vec::new(), Vec::new());
        for (i, node) in program.nodes.iter().enumerate() {
            let fresh = shapes.len() as u32;
            let shape = *shapes.entry(&node.types[0].shape).or_insert(fresh);
            let written: f64 = node.types.iter().map(|t| works.size().bytes(t)).sum();
            let mut args: Vec<u32> = node.args.iter().map(|a| a.node.0).collect();
            args.dedup();
            let mut read = written;
            let entry = match &node.kind {
                NodeKind::Input(_) | NodeKind::Const(_) => OperatorNode::free(i as u32),
                NodeKind::Apply(call, attrs) => {
                    let types: Vec<&Type> = node.args.iter().map(|a| program.ty(*a)).collect();
                    if library.call(*call).class == OpClass::View {
                        // A repetition is read where it comes from.
                        read = args.iter().fold(read, |r, &a| r.min(classes[a as usize].read));
                    }
                    let mut site = prices.any_site(*call, attrs, &types, &node.types);
                    let sizes: Vec<_> =
                        node.args.iter().map(|a| works.copied_by_view(program, *a)).collect();
                    site.work = works.of_copies(site.work, &types, &sizes);
                    let entry = site.entry(i as u32, args.clone());
                    match once[i] {
                        true => OperatorNode { role: Role::Alone, fixed: Some(0.0), ..entry },
                        false => entry,
                    }
                }
            };
            for &a in &args {
                classes[a as usize].readers += 1;
            }
            let is_constant =
                program.as_const(Value { node: NodeId(i as u32), output: 0 }).is_some();
            let fixed = once[i] || is_constant;
            classes.push(Class { shape, read, written, readers: 0, fixed });
            entries.push(entry);
        }
        let roots: BTreeSet<usize> = program.outputs.iter().map(|o| o.1.node.0 as usize).collect();
        roots.iter().for_each(|&r| classes[r].readers += 1);
        let dtypes = program.nodes.iter().map(|n| n.types[0].dtype).collect();
        let lies = layout::lies(&classes, &entries);
        Sites { classes, entries, lies, dtypes, roots, once }
    }

    /// The kernels that compute the outputs at least cost: those chosen before unless others are cheaper.
    fn choose(&self, chosen: &[Vec<NodeId>], prices: &TargetPrices<'_>) -> Vec<KernelDraft> {
        let price = |kernel: u32, class: u32, work: &Work| {
            prices.seconds(kernel, self.dtypes[class as usize], work)
        };
        let given: Vec<Vec<u32>> = chosen.iter().map(|k| k.iter().map(|n| n.0).collect()).collect();
        let KernelCandidates { all, enumerated, given } =
            candidates_with(&self.classes, &self.entries, &given, &price);
        let Some((view, alone)) = self.view(&all[..enumerated], &[]) else { return Vec::new() };
        let found = GreedyDag { steps: STEPS }.extract(&view, Some(&alone)).unwrap_or(alone);
        let cost = found.dag_cost(&view);
        let chosen = if given.is_empty() { None } else { self.view(&all, &given) };
        let kept = chosen.and_then(|(view, kept)| {
            let cheap = kept.validate(&view).is_ok() && kept.dag_cost(&view) <= cost;
            cheap.then(|| kept.topological(&view).ok()).flatten()
        });
        let order = kept.or_else(|| found.topological(&view).ok()).unwrap_or_default();
        order
            .into_iter()
            .map(|n| &all[n.index()])
            .filter(|c| {
                let first = c.entries[0] as usize;
                self.entries[first].fixed.is_none() || self.once[first]
            })
            .map(|c| self.draft(c, prices))
            .collect()
    }

    /// The work of changing the layout of what a kernel reads.
    fn changes(&self, k: &Kernel) -> Work {
        let mut own = k.nodes.iter().map(|n| self.entries[n.0 as usize].layout);
        let of_anchor = own.clone().find(|l| matches!(l, Layout::Blocked | Layout::Dense));
        let layout = of_anchor.or(own.next_back()).unwrap_or_default();
        let Some(result) = k.outputs.first() else { return Work::default() };
        let mut reads: Vec<u32> = k.inputs.iter().map(|v| v.node.0).collect();
        // A view that goes into the kernel that reads it lies as it did.
        reads.extend(k.nodes.iter().map(|n| n.0).filter(|&n| self.entries[n as usize].reorders()));
        reads.dedup();
        layout::changes(layout, &reads, result.node.0, &self.classes, &self.lies)
    }

    /// True for a kernel that constants alone feed.
    fn runs_once(&self, k: &Kernel) -> bool {
        k.outputs.iter().all(|v| self.once[v.node.0 as usize])
    }

    /// What the target takes for these views, wherever they are read; those of constants are seen before the first run.
    fn views(&self, prices: &TargetPrices<'_>, nodes: &[usize]) -> f64 {
        let seconds = |&n: &usize| {
            let reads = self.entries[n].args.iter().map(|&a| self.classes[a as usize]);
            if reads.clone().all(|c| c.fixed) {
                return 0.0;
            }
            let work = Work {
                read: reads.map(|c| c.read).sum(),
                written: self.classes[n].read,
                launches: 1.0,
                ..Work::default()
            };
            prices.seconds(VIEWS, self.dtypes[n], &work)
        };
        nodes.iter().map(seconds).sum()
    }

    /// The candidates as an e-graph, and those that are `given`, every other node as a kernel of its own.
    fn view(&self, all: &[KernelCandidate], given: &[usize]) -> Option<(EGraphView, Solution)> {
        let mut b = EGraphViewBuilder::new();
        let classes: Vec<_> = self.classes.iter().map(|_| b.add_class()).collect();
        let mut alone = vec![None; self.classes.len()];
        let mut nodes = Vec::with_capacity(all.len());
        for c in all {
            let class = self.entries[*c.entries.last()? as usize].class as usize;
            let reads: Vec<_> = c.reads.iter().map(|&r| classes[r as usize]).collect();
            let node = b.add_node(classes[class], &reads, Cost::new(c.cost));
            alone[class].get_or_insert(node);
            nodes.push((class, node));
        }
        given.iter().for_each(|&g| alone[nodes[g].0] = Some(nodes[g].1));
        self.roots.iter().for_each(|&r| b.add_root(classes[r]));
        Some((b.build().ok()?, Solution::new(alone)))
    }

    fn draft(&self, c: &KernelCandidate, prices: &TargetPrices<'_>) -> KernelDraft {
        let nodes: BTreeSet<usize> = c.entries.iter().map(|&e| e as usize).collect();
        let root = c.entries.last().map_or(0, |&e| e as usize);
        let anchor = nodes.iter().find(|&&n| matches!(self.entries[n].role, Role::Anchor { .. }));
        let kernel = self.entries[*anchor.unwrap_or(&root)].kernel;
        let pointwise = nodes.iter().all(|&n| self.entries[n].role.is_pointwise());
        let bare = prices.is_loop(kernel) || prices.is_view(kernel);
        let anchors = if bare { vec![] } else { vec![*anchor.unwrap_or(&root)] };
        KernelDraft { nodes, roots: BTreeSet::from([root]), anchors, kernel, pointwise }
    }
}

/// Most operands of one chain.
const CHAIN: usize = 1024;

/// Joins kernels of one associative operator that only moves elements and whose result only another application of it reads:
/// a concatenation of many parts is one copy.
fn chain(drafts: &mut Vec<KernelDraft>, sites: &Sites, program: &Program, library: &Library) {
    let mut maker: HashMap<usize, usize> = HashMap::new();
    let mut readers: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    for (i, d) in drafts.iter().enumerate() {
        maker.extend(d.roots.iter().map(|&r| (r, i)));
        for r in reads(program, &d.nodes) {
            readers.entry(r).or_default().insert(i);
        }
    }
    let links = |d: &KernelDraft| match (d.anchors.last(), d.anchors.len() == d.nodes.len()) {
        (Some(&last), true) => match &program.nodes[last].kind {
            kind @ NodeKind::Apply(call, _) => {
                let call = library.call(*call);
                (call.associative && call.class == OpClass::Movement).then_some(kind)
            }
            NodeKind::Input(_) | NodeKind::Const(_) => None,
        },
        _ => None,
    };
    // Operands of each chain, by its result.
    let mut width: HashMap<usize, usize> = HashMap::new();
    let operands = |root: usize, inside: &BTreeSet<usize>, width: &HashMap<usize, usize>| {
        let args = program.nodes[root].args.iter().map(|a| a.node.0 as usize);
        let each = args.map(|a| if inside.contains(&a) { width[&a] } else { 1 });
        each.fold(0, usize::saturating_add)
    };
    for i in 0..drafts.len() {
        let Some(kind) = links(&drafts[i]) else { continue };
        let root = drafts[i].anchors[0];
        let parts: Vec<usize> = reads(program, &drafts[i].nodes).into_iter().collect();
        for r in parts {
            let Some(&p) = maker.get(&r) else { continue };
            let alone =
                readers.get(&r).is_some_and(|of| of.len() == 1) && !sites.roots.contains(&r);
            if !alone || links(&drafts[p]) != Some(kind) {
                continue;
            }
            let mut nodes = drafts[i].nodes.clone();
            nodes.extend(&drafts[p].nodes);
            if operands(root, &nodes, &width) <= CHAIN {
                let taken = std::mem::take(&mut drafts[p]);
                drafts[i].nodes = nodes;
                drafts[i].anchors.splice(0..0, taken.anchors);
            }
        }
        width.insert(root, operands(root, &drafts[i].nodes, &width));
    }
    drafts.retain(|d| !d.nodes.is_empty());
}

/// Joins pointwise kernels with those of the same shape that they read.
fn merge(drafts: &mut Vec<KernelDraft>, sites: &Sites, program: &Program) {
    let mut maker: HashMap<usize, usize> = HashMap::new();
    for (i, d) in drafts.iter().enumerate() {
        maker.extend(d.roots.iter().map(|&r| (r, i)));
    }
    let shape = |d: &KernelDraft| d.roots.first().map(|&r| sites.classes[r].shape);
    for i in 0..drafts.len() {
        let reads: Vec<usize> = reads(program, &drafts[i].nodes)
            .into_iter()
            .filter_map(|r| maker.get(&r).copied())
            .collect();
        for p in reads {
            let (d, q) = (&drafts[i], &drafts[p]);
            let fits = d.pointwise && q.pointwise && p != i && shape(d) == shape(q);
            if !fits
                || d.nodes.union(&q.nodes).count() > LARGEST
                || detour(drafts, &maker, program, p, i)
            {
                continue;
            }
            let taken = std::mem::take(&mut drafts[p]);
            maker.extend(taken.roots.iter().map(|&r| (r, i)));
            drafts[i].nodes.extend(taken.nodes);
            drafts[i].roots.extend(taken.roots);
        }
    }
    drafts.retain(|d| !d.nodes.is_empty());
    // A result that only its own kernel reads stays inside.
    let mut read: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    for (i, d) in drafts.iter().enumerate() {
        for r in reads(program, &d.nodes) {
            read.entry(r).or_default().insert(i);
        }
    }
    for d in drafts.iter_mut().filter(|d| d.roots.len() > 1) {
        d.roots.retain(|r| read.contains_key(r) || sites.roots.contains(r));
    }
}

/// True if a path leads from kernel `from` through a third one to kernel `to`.
fn detour(
    drafts: &[KernelDraft],
    maker: &HashMap<usize, usize>,
    program: &Program,
    from: usize,
    to: usize,
) -> bool {
    let mut seen = HashSet::from([to]);
    let mut stack = vec![to];
    while let Some(k) = stack.pop() {
        for r in reads(program, &drafts[k].nodes) {
            let Some(&next) = maker.get(&r) else { continue };
            if next == from && k != to {
                return true;
            }
            if next != from && seen.insert(next) {
                stack.push(next);
            }
        }
    }
    false
}
