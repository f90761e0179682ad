//! Kernel candidates: for each class, bounded cuts of the e-graph that one kernel can compute.
//!
//! Priority-cut enumeration over a graph of choices, as in technology mapping (Chatterjee et al., "Reducing
//! structural bias in technology mapping", 2006; Mishchenko et al., "Combinational and sequential mapping with priority
//! cuts", 2007). A cut grows through pointwise operators of one shape and contains at most one operator whose kernel
//! takes an epilogue. The inside of a cut is computed for it alone, so recomputation is priced. Knows no
//! operator by name; keeps everything that is a kernel by itself.

use crate::cost::Work;
use crate::kernels::layout::{self, Layout, LayoutNeed};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How an operator shares kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A kernel, or none, of its own.
    Alone,
    /// It goes with others of its shape.
    Pointwise {
        /// A kernel may consist of nothing else.
        loops: bool,
        /// The epilogues that take it in, a bit for each.
        follows: u64,
    },
    /// Its kernel takes in pointwise operators.
    Anchor {
        /// Those that follow it: the bit of its epilogue, or none.
        epilogue: u64,
        /// Those that compute what it reads.
        prologue: bool,
    },
}

impl Role {
    /// True for an operator that goes with others of its shape.
    pub fn is_pointwise(self) -> bool {
        matches!(self, Role::Pointwise { .. })
    }
}

/// A node: an operator that computes a class.
#[derive(Clone, Debug)]
pub struct OperatorNode {
    /// Index of the class that it computes.
    pub class: u32,
    /// Classes of the operands.
    pub args: Vec<u32>,
    /// How it shares kernels.
    pub role: Role,
    /// The kernel that computes it.
    pub kernel: u32,
    /// How images lie that the kernel reads and writes.
    pub layout: Layout,
    /// What it does, but for bytes.
    pub work: Work,
    /// Its price where none is asked for: what no kernel computes, or what is priced as a whole.
    pub fixed: Option<f64>,
}

impl OperatorNode {
    /// What no kernel of its own computes, at a price.
    pub fn priced(class: u32, args: Vec<u32>, seconds: f64) -> OperatorNode {
        let (role, layout, work) = (Role::Alone, Layout::Plain, Work::default());
        OperatorNode { class, args, role, kernel: 0, layout, work, fixed: Some(seconds) }
    }

    /// What costs nothing: a value that is there.
    pub fn free(class: u32) -> OperatorNode {
        OperatorNode::priced(class, Vec::new(), 0.0)
    }
}

/// A class: a value.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// A number for its shape.
    pub shape: u32,
    /// Bytes that reading it takes.
    pub read: f64,
    /// Bytes that writing it takes.
    pub written: f64,
    /// Its value is known before the first run.
    pub fixed: bool,
    /// How many read it in the program that the e-graph came from.
    pub readers: u32,
}

/// One way to compute a class by one kernel.
#[derive(Clone, Debug)]
pub struct KernelCandidate {
    /// The entries inside, operands before users; the last one computes the class.
    pub entries: Vec<u32>,
    /// Classes that it reads, in order.
    pub reads: Vec<u32>,
    /// What it costs.
    pub cost: f64,
}

/// Seconds of a kernel that does this work to yield a class.
pub type Price<'a> = &'a dyn Fn(u32, u32, &Work) -> f64;

/// The kernel number of views: layouts, not work.
pub const VIEWS: u32 = 0;

/// Cuts kept for each class beside those of one node, and the best of so many anchors that none of them has.
const KEPT: usize = 6;
const OTHER_ANCHORS: usize = 2;

/// Most operators of one kernel, and of one in a large e-graph.
const LARGEST: usize = 64;
const LARGEST_OF_MANY: usize = 8;

/// Operators inside all cuts that are kept: in large e-graphs kernels are smaller, so that memory is linear.
const HELD: usize = 1 << 22;

/// Seconds that tell kernels apart that cost the same: the first operand of what follows an anchor is taken in sooner
/// than the last.
const ORDER: f64 = 1e-11;

/// Passes over the classes; operands that come later in the first are known in the second.
const PASSES: usize = 2;

/// A cut: what is inside, sorted by class, and what it reads, sorted.
#[derive(Clone, Debug)]
struct Cut {
    inside: Vec<(u32, u32)>,
    reads: Vec<u32>,
    /// The entry that yields the result.
    root: u32,
    /// The entry inside that is not pointwise.
    anchor: Option<u32>,
    /// It computes the anchor's operands, too.
    headed: bool,
    cost: f64,
    /// Its cost, and what its operands cost as trees.
    score: f64,
}

struct CutEnumeration<'a> {
    classes: &'a [Class],
    entries: &'a [OperatorNode],
    of: Vec<Vec<u32>>,
    price: Price<'a>,
    /// The cheapest tree of each class, as kernels of one node and later of cuts.
    tree: Vec<f64>,
    /// Classes that come before an anchor: where it takes them in, what follows it must not read them.
    before: Vec<bool>,
    lies: Vec<LayoutNeed>,
    /// Some pointwise operators go into epilogues alone.
    named: bool,
    cuts: Vec<Vec<Cut>>,
    /// Most operators of one kernel.
    largest: usize,
}

/// All candidates, those of one node first and in the order of the entries.
pub fn candidates(
    classes: &[Class],
    entries: &[OperatorNode],
    price: Price<'_>,
) -> Vec<KernelCandidate> {
    candidates_with(classes, entries, &[], price).all
}

/// Candidates that were enumerated, and others.
pub struct KernelCandidates {
    /// All of them, those enumerated first.
    pub all: Vec<KernelCandidate>,
    /// How many were enumerated.
    pub enumerated: usize,
    /// The places of those that were given.
    pub given: Vec<usize>,
}

/// The same with the `given` sets of entries that one kernel can compute.
pub fn candidates_with(
    classes: &[Class],
    entries: &[OperatorNode],
    given: &[Vec<u32>],
    price: Price<'_>,
) -> KernelCandidates {
    let mut of = vec![Vec::new(); classes.len()];
    for (i, e) in entries.iter().enumerate() {
        of[e.class as usize].push(i as u32);
    }
    let tree = vec![f64::INFINITY; classes.len()];
    let cuts = vec![Vec::new(); classes.len()];
    let before = before(classes.len(), entries, &of);
    let lies = layout::lies(classes, entries);
    let named = entries.iter().any(|e| matches!(e.role, Role::Pointwise { loops: false, .. }));
    let largest = (HELD / KEPT / entries.len().max(1)).clamp(LARGEST_OF_MANY, LARGEST);
    let mut s =
        CutEnumeration { classes, entries, of, price, tree, before, lies, named, cuts, largest };
    let single: Vec<Cut> = (0..entries.len() as u32).map(|e| s.single(e)).collect();
    s.trees(&single);
    let mut order: Vec<u32> = (0..classes.len() as u32).filter(|&c| s.grows(c)).collect();
    order.sort_by(|&a, &b| s.tree[a as usize].total_cmp(&s.tree[b as usize]).then(a.cmp(&b)));
    for _ in 0..PASSES {
        for &class in &order {
            s.grow(class, &single);
        }
    }
    let alone =
        |c: &Cut| KernelCandidate { entries: vec![c.root], reads: c.reads.clone(), cost: c.cost };
    let mut out: Vec<KernelCandidate> = single.iter().map(alone).collect();
    for class in order {
        let grown = s.cuts[class as usize].iter().filter(|c| c.inside.len() > 1);
        out.extend(grown.filter_map(|c| s.candidate(c)));
    }
    let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
    let inside = |c: &KernelCandidate| {
        let mut inside = c.entries.clone();
        inside.sort_unstable();
        inside
    };
    known.extend(out.iter().enumerate().map(|(i, c)| (inside(c), i)));
    let (enumerated, mut places) = (out.len(), Vec::with_capacity(given.len()));
    for entries in given {
        let mut sorted = entries.clone();
        sorted.sort_unstable();
        if let Some(&at) = known.get(&sorted) {
            places.push(at);
        } else if let Some(candidate) = s.given(&sorted) {
            known.insert(sorted, out.len());
            places.push(out.len());
            out.push(candidate);
        }
    }
    KernelCandidates { all: out, enumerated, given: places }
}

/// The operands of anchors, and what those with a prologue can compute them from.
fn before(classes: usize, entries: &[OperatorNode], of: &[Vec<u32>]) -> Vec<bool> {
    let (mut before, mut within) = (vec![false; classes], vec![false; classes]);
    let mut stack: Vec<u32> = Vec::new();
    for e in entries {
        if let Role::Anchor { prologue, .. } = e.role {
            e.args.iter().for_each(|&a| before[a as usize] = true);
            stack.extend(e.args.iter().filter(|_| prologue));
        }
    }
    while let Some(class) = stack.pop() {
        if std::mem::replace(&mut within[class as usize], true) {
            continue;
        }
        before[class as usize] = true;
        let inside = of[class as usize].iter().map(|&e| &entries[e as usize]);
        stack.extend(inside.filter(|e| e.role.is_pointwise()).flat_map(|e| &e.args));
    }
    before
}

impl CutEnumeration<'_> {
    fn single(&self, entry: u32) -> Cut {
        let e = &self.entries[entry as usize];
        let mut reads = e.args.clone();
        reads.sort_unstable();
        reads.dedup();
        let anchor = matches!(e.role, Role::Anchor { .. }).then_some(entry);
        let inside = vec![(e.class, entry)];
        let cost = e.fixed.unwrap_or_else(|| self.cost(&inside, &reads, entry, anchor));
        Cut { inside, reads, root: entry, anchor, headed: false, cost, score: 0.0 }
    }

    /// True for a class that a cut of several nodes may hold.
    fn grows(&self, class: u32) -> bool {
        self.of[class as usize].iter().any(|&e| self.entries[e as usize].role != Role::Alone)
    }

    fn cost(&self, inside: &[(u32, u32)], reads: &[u32], root: u32, anchor: Option<u32>) -> f64 {
        let class = self.entries[root as usize].class;
        let mut work = Work { launches: 1.0, ..Work::default() };
        for &(_, e) in inside {
            work += self.entries[e as usize].work;
        }
        let read = |fixed: bool| -> f64 {
            let all = reads.iter().map(|&r| &self.classes[r as usize]);
            all.filter(|c| c.fixed || !fixed).map(|c| c.read).sum()
        };
        (work.read, work.fixed) = (read(false), read(true));
        let OperatorNode { kernel, layout, .. } = self.entries[anchor.unwrap_or(root) as usize];
        work += layout::changes(layout, reads, class, self.classes, &self.lies);
        let class_of = &self.classes[class as usize];
        // A view that repeats writes nothing: it is read where it comes from.
        work.written = if kernel == VIEWS { class_of.read } else { class_of.written };
        (self.price)(kernel, class, &work) + ORDER * self.behind(inside, anchor) as f64
    }

    /// Which operand the anchor is of what follows it.
    fn behind(&self, inside: &[(u32, u32)], anchor: Option<u32>) -> usize {
        let Some(anchor) = anchor else { return 0 };
        let yields = self.entries[anchor as usize].class;
        let place =
            |&(_, e): &(u32, u32)| self.entries[e as usize].args.iter().position(|&a| a == yields);
        inside.iter().filter_map(place).min().unwrap_or(0)
    }

    /// The cheapest tree of every class out of kernels of one node.
    fn trees(&mut self, single: &[Cut]) {
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); self.classes.len()];
        let mut missing: Vec<usize> = single.iter().map(|c| c.reads.len()).collect();
        let mut heap: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        for (e, cut) in (0..).zip(single) {
            cut.reads.iter().for_each(|&r| readers[r as usize].push(e));
        }
        let mut ready: Vec<u32> =
            (0..single.len() as u32).filter(|&e| missing[e as usize] == 0).collect();
        let mut settled = vec![false; self.classes.len()];
        loop {
            for e in ready.drain(..) {
                let cut = &single[e as usize];
                let class = self.entries[e as usize].class;
                let all: f64 = cut.reads.iter().map(|&r| self.tree[r as usize]).sum();
                let cost = cut.cost + all + 0.0;
                if cost < self.tree[class as usize] {
                    self.tree[class as usize] = cost;
                    // The bits of numbers that are not negative are ordered as they are.
                    heap.push(Reverse((cost.to_bits(), class)));
                }
            }
            // The cheapest class that is left cannot become cheaper: whatever reads another one costs more.
            let Some(Reverse((_, class))) = heap.pop() else { return };
            if std::mem::replace(&mut settled[class as usize], true) {
                continue;
            }
            for &e in &readers[class as usize] {
                missing[e as usize] -= 1;
                if missing[e as usize] == 0 {
                    ready.push(e);
                }
            }
        }
    }

    /// What an operand is taken to cost: its tree, shared among those who read it.
    fn flow(&self, class: u32) -> f64 {
        self.tree[class as usize] / f64::from(self.classes[class as usize].readers.max(1))
    }

    fn grow(&mut self, class: u32, single: &[Cut]) {
        let mut found: Vec<Cut> = Vec::new();
        for &e in &self.of[class as usize] {
            let cut = &single[e as usize];
            if cut.reads.contains(&class) {
                // A unit of its operator times itself: nothing is computed that way.
                continue;
            }
            match self.entries[e as usize].role {
                Role::Alone => continue,
                Role::Pointwise { .. } | Role::Anchor { prologue: true, .. } => {
                    self.through(e, cut, &mut found);
                }
                Role::Anchor { .. } => {}
            }
            found.push(self.scored(cut.clone()));
        }
        self.cuts[class as usize] = self.keep(found);
        let best = self.cuts[class as usize].first().map_or(f64::INFINITY, |c| c.score);
        let tree = &mut self.tree[class as usize];
        *tree = tree.min(best);
    }

    fn scored(&self, cut: Cut) -> Cut {
        let score = cut.cost + cut.reads.iter().map(|&r| self.flow(r)).sum::<f64>();
        Cut { score, ..cut }
    }

    /// Cuts through an entry: each operand is read, or computed inside in one of the ways known for it.
    fn through(&self, entry: u32, single: &Cut, found: &mut Vec<Cut>) {
        let e = &self.entries[entry as usize];
        let shape = self.classes[e.class as usize].shape;
        let mut partial = vec![single.clone()];
        for &arg in &single.reads {
            if e.role.is_pointwise() && self.classes[arg as usize].shape != shape {
                continue;
            }
            let mut next = partial.clone();
            for p in &partial {
                let inner = self.cuts[arg as usize].iter().filter(|c| self.joins(e.role, c));
                next.extend(inner.filter_map(|c| self.merge(p, c, arg)));
            }
            partial = self.keep(next.into_iter().map(|c| self.scored(c)).collect());
        }
        found.extend(partial.into_iter().filter(|c| c.inside.len() > 1));
    }

    /// True if a kernel that ends in such an operator may begin with the cut.
    fn joins(&self, role: Role, inner: &Cut) -> bool {
        match inner.anchor.map(|a| self.entries[a as usize].role) {
            None => {
                let own = !matches!(role, Role::Pointwise { loops: false, .. });
                own && inner.inside.iter().all(|i| self.loops(i.1))
            }
            Some(Role::Anchor { epilogue, .. }) => match role {
                Role::Pointwise { follows, .. } => follows & epilogue != 0,
                _ => false,
            },
            Some(_) => false,
        }
    }

    /// A cut with the operand `arg` computed inside.
    fn merge(&self, outer: &Cut, inner: &Cut, arg: u32) -> Option<Cut> {
        let root = outer.root;
        let anchor = match (outer.anchor, inner.anchor) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.or(b),
        };
        let class = self.entries[root as usize].class;
        if inner.inside.iter().chain(&outer.inside).any(|i| i.0 == class && i.1 != root)
            || inner.reads.contains(&class)
        {
            return None;
        }
        let mut inside = outer.inside.clone();
        let mut meets = false;
        for &(c, e) in &inner.inside {
            match inside.binary_search_by_key(&c, |i| i.0) {
                Ok(at) if inside[at].1 != e => return None,
                Ok(_) => meets = true,
                Err(at) => inside.insert(at, (c, e)),
            }
        }
        let headed = anchor.map_or(Some(false), |a| self.headed(&inside, a))?;
        if inside.len() > self.largest {
            return None;
        }
        let within = |r: &u32| inside.binary_search_by_key(r, |i| i.0).is_ok();
        let mut reads: Vec<u32> = outer.reads.iter().chain(&inner.reads).copied().collect();
        reads.retain(|r| *r != arg && !within(r));
        reads.sort_unstable();
        reads.dedup();
        let crossed = |cut: &Cut| cut.reads.iter().any(|r| *r != arg && within(r));
        let named = self.named && inside.iter().any(|i| !self.loops(i.1));
        if named || meets || crossed(outer) || crossed(inner) {
            // What one part reads the other computes: nothing must wait for itself.
            let order = self.ordered(&inside, root)?;
            if named && !self.joined(&order, &inside, anchor) {
                return None;
            }
        }
        let cost = self.cost(&inside, &reads, root, anchor);
        Some(Cut { inside, reads, root, anchor, headed, cost, score: 0.0 })
    }

    /// Whether the anchor's operands are computed inside; `None` if its kernel does not do so, or if what
    /// follows the anchor reads them, too.
    fn headed(&self, inside: &[(u32, u32)], anchor: u32) -> Option<bool> {
        let at = |class: &u32| inside.binary_search_by_key(class, |i| i.0).ok();
        let mut head: Vec<usize> = Vec::new();
        let mut stack: Vec<u32> = self.entries[anchor as usize].args.clone();
        while let Some(class) = stack.pop() {
            if let Some(i) = at(&class).filter(|i| !head.contains(i)) {
                head.push(i);
                stack.extend(&self.entries[inside[i].1 as usize].args);
            }
        }
        let takes =
            matches!(self.entries[anchor as usize].role, Role::Anchor { prologue: true, .. });
        let follows = |i: usize, e: u32| e != anchor && !head.contains(&i);
        let reads_head =
            |e: u32| self.entries[e as usize].args.iter().filter_map(at).any(|i| head.contains(&i));
        let mut others = inside.iter().enumerate().filter(|(i, (_, e))| follows(*i, *e));
        let sound = head.is_empty() || takes && !others.any(|(_, &(_, e))| reads_head(e));
        sound.then_some(!head.is_empty())
    }

    /// True if the one cut has no anchor and goes wherever the other goes.
    fn is_free(&self, one: &Cut, other: &Cut) -> bool {
        let loops = |c: &Cut| c.inside.iter().all(|i| self.loops(i.1));
        one.anchor.is_none()
            && (!self.named || other.anchor.is_none() && (loops(one) || !loops(other)))
    }

    /// False for a pointwise operator that goes into epilogues alone.
    fn loops(&self, entry: u32) -> bool {
        !matches!(self.entries[entry as usize].role, Role::Pointwise { loops: false, .. })
    }

    /// True if every entry inside goes with those inside that it reads; `order` has operands first.
    fn joined(&self, order: &[u32], inside: &[(u32, u32)], anchor: Option<u32>) -> bool {
        let epilogue = match anchor.map(|a| self.entries[a as usize].role) {
            Some(Role::Anchor { epilogue, .. }) => epilogue,
            _ => 0,
        };
        // What the anchor computes or what follows it.
        let mut led: Vec<u32> = Vec::new();
        order.iter().all(|&e| {
            let entry = &self.entries[e as usize];
            let at = |a: &u32| inside.binary_search_by_key(a, |i| i.0).ok().map(|i| inside[i].1);
            let read: Vec<u32> = entry.args.iter().filter_map(at).collect();
            if anchor == Some(e) || read.iter().any(|r| led.contains(r)) {
                led.push(e);
            }
            read.iter().all(|r| match (led.contains(r), entry.role) {
                (true, Role::Pointwise { follows, .. }) => follows & epilogue != 0,
                (true, _) => false,
                (false, _) => self.loops(e) && self.loops(*r),
            })
        })
    }

    /// The entries inside, operands first; `None` if they wait for each other.
    fn ordered(&self, inside: &[(u32, u32)], root: u32) -> Option<Vec<u32>> {
        let mut out = Vec::with_capacity(inside.len());
        let mut state: HashMap<u32, bool> = HashMap::with_capacity(inside.len());
        let mut stack = vec![(root, false)];
        while let Some((e, done)) = stack.pop() {
            if done {
                state.insert(e, true);
                out.push(e);
                continue;
            }
            match state.get(&e) {
                Some(true) => continue,
                Some(false) => return None,
                None => {}
            }
            state.insert(e, false);
            stack.push((e, true));
            for a in self.entries[e as usize].args.iter().rev() {
                if let Ok(at) = inside.binary_search_by_key(a, |i| i.0) {
                    let inner = inside[at].1;
                    match state.get(&inner) {
                        Some(true) => {}
                        Some(false) => return None,
                        None => stack.push((inner, false)),
                    }
                }
            }
        }
        Some(out)
    }

    /// The candidate of entries chosen elsewhere, the last of which computes its class; `None` if no one kernel computes them.
    fn given(&self, entries: &[u32]) -> Option<KernelCandidate> {
        let &root = entries.last()?;
        let entry = |e: &u32| &self.entries[*e as usize];
        let mut anchors = entries.iter().filter(|e| !entry(e).role.is_pointwise());
        let anchor = anchors.next().copied();
        let takes = anchor.is_none_or(|a| matches!(entry(&a).role, Role::Anchor { .. }));
        if entries.len() < 2 || anchors.next().is_some() || !takes {
            return None;
        }
        let mut inside: Vec<(u32, u32)> = entries.iter().map(|e| (entry(e).class, *e)).collect();
        inside.sort_unstable();
        let within = |c: &u32| inside.binary_search_by_key(c, |i| i.0).is_ok();
        let mut reads: Vec<u32> = entries.iter().flat_map(|e| &entry(e).args).copied().collect();
        reads.retain(|r| !within(r));
        reads.sort_unstable();
        reads.dedup();
        let headed = anchor.map_or(Some(false), |a| self.headed(&inside, a))?;
        let order = self.ordered(&inside, root)?;
        if order.len() < inside.len() || self.named && !self.joined(&order, &inside, anchor) {
            return None;
        }
        let cost = self.cost(&inside, &reads, root, anchor);
        self.candidate(&Cut { inside, reads, root, anchor, headed, cost, score: 0.0 })
    }

    /// The candidate of a cut; `None` if its entries wait for each other.
    fn candidate(&self, cut: &Cut) -> Option<KernelCandidate> {
        let entries = self.ordered(&cut.inside, cut.root)?;
        Some(KernelCandidate { entries, reads: cut.reads.clone(), cost: cut.cost })
    }

    /// The best cuts, none of which can stand for another at no higher price. What follows one anchor has many variants, each of which
    /// reads an operand or computes it; they must not crowd out another anchor that is the cheaper one once more follows.
    fn keep(&self, mut cuts: Vec<Cut>) -> Vec<Cut> {
        cuts.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.inside.cmp(&b.inside)));
        let mut kept: Vec<Cut> = Vec::with_capacity(KEPT + OTHER_ANCHORS);
        for cut in cuts {
            let is_other = || cut.anchor.is_some() && kept.iter().all(|k| k.anchor != cut.anchor);
            let wanted = match kept.len() {
                0..KEPT => true,
                len => len < KEPT + OTHER_ANCHORS && is_other(),
            };
            if wanted && !kept.iter().any(|k| self.stands_for(k, &cut)) {
                kept.push(cut);
            }
        }
        kept
    }

    /// True if the one cut reads no more than the other, costs no more, and goes wherever the other goes.
    fn stands_for(&self, one: &Cut, other: &Cut) -> bool {
        let has = |c: &u32| other.inside.binary_search_by_key(c, |i| i.0).is_ok();
        one.cost <= other.cost
            && (self.is_free(one, other)
                || one.anchor.is_some()
                    && one.anchor == other.anchor
                    && (other.headed || !one.headed))
            && one.reads.iter().all(|r| other.reads.binary_search(r).is_ok())
            && one.inside.iter().all(|(c, _)| !self.named && !self.before[*c as usize] || has(c))
    }
}
