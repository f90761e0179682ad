//! Kernel candidates: what they may contain, and that the best selection is among them.

use mlc_extract::kernels::candidates::{Class, KernelCandidate, OperatorNode, Role, candidates};
use mlc_extract::kernels::layout::Layout;
use mlc_extract::{Cost, EGraphViewBuilder, Exact, Extractor, Work};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

/// A launch, bytes moved, operations.
fn price(_kernel: u32, _class: u32, w: &Work) -> f64 {
    10.0 * w.launches + w.read + w.written + w.flops
}

/// Class 0 is an input; every other has operators on classes below it, or above it where cycles are wanted.
fn graph(most: usize, choices: usize, cycles: bool) -> impl Strategy<Value = Vec<OperatorNode>> {
    let node = (0u8..8, prop::collection::vec(any::<prop::sample::Index>(), 1..3), 0u32..20);
    prop::collection::vec(prop::collection::vec(node, 1..=choices), 1..=most).prop_map(move |all| {
        let count = all.len() + 1;
        let mut entries = vec![OperatorNode::free(0)];
        for (i, nodes) in all.into_iter().enumerate() {
            for (kind, args, flops) in nodes {
                let below = if cycles { count } else { i + 1 };
                let args: Vec<u32> = args.iter().map(|a| a.index(below) as u32).collect();
                let role = match kind {
                    0 => Role::Alone,
                    1 => Role::Anchor { epilogue: 1, prologue: false },
                    2 => Role::Anchor { epilogue: 3, prologue: true },
                    3 => Role::Pointwise { loops: false, follows: 2 },
                    _ => Role::Pointwise { loops: true, follows: 1 },
                };
                let work = Work { flops: f64::from(flops), ..Work::default() };
                let (class, kernel) = (i as u32 + 1, u32::from(kind));
                entries.push(OperatorNode {
                    class,
                    args,
                    role,
                    kernel,
                    layout: Layout::Plain,
                    work,
                    fixed: None,
                });
            }
        }
        entries
    })
}

fn classes(entries: &[OperatorNode]) -> Vec<Class> {
    let count = entries.iter().map(|e| e.class as usize + 1).max().unwrap_or(0);
    (0..count)
        .map(|c| {
            let reads = entries.iter().filter(|e| e.args.contains(&(c as u32))).count() as u32;
            let bytes = 3.0 + c as f64;
            Class { shape: 0, read: bytes, written: bytes, readers: reads, fixed: false }
        })
        .collect()
}

fn is_anchor(e: &OperatorNode) -> bool {
    matches!(e.role, Role::Anchor { .. })
}

/// True if the operands of the anchor are computed inside only where it has a prologue, and for it alone.
fn falls_apart(inside: &[&OperatorNode]) -> bool {
    let Some(anchor) = inside.iter().find(|e| is_anchor(e)) else { return true };
    let mut head: BTreeSet<u32> = anchor.args.iter().copied().collect();
    for _ in inside {
        let more = inside.iter().filter(|e| head.contains(&e.class)).flat_map(|e| e.args.clone());
        head = head.iter().copied().chain(more).collect();
    }
    let in_head = |e: &&&OperatorNode| head.contains(&e.class);
    let of_head = |e: &&&OperatorNode| {
        e.args.iter().any(|a| inside.iter().any(|i| i.class == *a && head.contains(a)))
    };
    let tail = |e: &&&OperatorNode| !in_head(e) && e.class != anchor.class;
    let takes = matches!(anchor.role, Role::Anchor { prologue: true, .. });
    !inside.iter().any(|e| in_head(&e)) || takes && !inside.iter().any(|e| tail(&e) && of_head(&e))
}

/// True if every entry inside goes with those inside that it reads.
fn joined(inside: &[&OperatorNode]) -> bool {
    let anchor = inside.iter().find(|e| is_anchor(e));
    let mut led: BTreeSet<u32> = anchor.iter().map(|a| a.class).collect();
    for _ in inside {
        let more = inside.iter().filter(|e| e.args.iter().any(|a| led.contains(a)));
        led = led.iter().copied().chain(more.map(|e| e.class)).collect();
    }
    let epilogue = anchor.map_or(0, |a| match a.role {
        Role::Anchor { epilogue, .. } => epilogue,
        _ => 0,
    });
    let loops = |e: &OperatorNode| matches!(e.role, Role::Pointwise { loops: true, .. });
    inside.iter().all(|e| {
        let read = inside.iter().filter(|i| e.args.contains(&i.class));
        let fits = |i: &&OperatorNode| match (led.contains(&i.class), e.role) {
            (true, Role::Pointwise { follows, .. }) => follows & epilogue != 0,
            (false, Role::Pointwise { loops: own, .. }) => own && loops(i),
            (false, Role::Anchor { prologue, .. }) => prologue && loops(i),
            _ => false,
        };
        read.copied().all(|i| fits(&i))
    })
}

/// What is wrong with a candidate, if anything.
fn fault(c: &KernelCandidate, entries: &[OperatorNode], classes: &[Class]) -> Option<&'static str> {
    let of = |e: &u32| &entries[*e as usize];
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    let mut read: BTreeSet<u32> = BTreeSet::new();
    for e in &c.entries {
        read.extend(of(e).args.iter().filter(|a| !inside.contains(a)));
        if !inside.insert(of(e).class) {
            return Some("two entries of one class");
        }
    }
    if read != c.reads.iter().copied().collect() {
        return Some("it reads something else than its entries");
    }
    if c.entries.len() > 1 {
        if c.entries.iter().any(|e| of(e).role == Role::Alone) {
            return Some("an entry that shares no kernel");
        }
        if c.entries.iter().filter(|e| is_anchor(of(e))).count() > 1 {
            return Some("two anchors");
        }
    }
    let all: Vec<&OperatorNode> = c.entries.iter().map(of).collect();
    if !joined(&all) {
        return Some("an entry that does not go with what it reads");
    }
    if !falls_apart(&all) {
        return Some("what follows the anchor and what comes before it are one");
    }
    let root = of(c.entries.last()?);
    let mut work = Work { launches: 1.0, ..Work::default() };
    c.entries.iter().for_each(|e| work += of(e).work);
    work.read = c.reads.iter().map(|&r| classes[r as usize].read).sum();
    work.written = classes[root.class as usize].written;
    let expected = root.fixed.unwrap_or(price(0, root.class, &work));
    ((c.cost - expected).abs() > 1e-9).then_some("its price is not that of its work")
}

/// The least cost over all sets of values that are written, for one entry in each class.
fn brute_force(entries: &[OperatorNode], classes: &[Class], root: u32) -> f64 {
    let of: HashMap<u32, &OperatorNode> = entries.iter().map(|e| (e.class, e)).collect();
    let inner: Vec<u32> = (1..classes.len() as u32).filter(|c| *c != root).collect();
    let mut best = f64::INFINITY;
    for set in 0..1u32 << inner.len() {
        let mut written: BTreeSet<u32> =
            inner.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, c)| *c).collect();
        written.extend([0, root]);
        let mut total = 0.0;
        for &w in written.iter().filter(|w| **w != 0) {
            // What is written may still be computed again.
            let others: Vec<u32> = written.iter().copied().filter(|o| *o != w && *o != 0).collect();
            let ways = (0..1u32 << others.len()).filter_map(|some| {
                let read = others.iter().enumerate().filter(|(i, _)| some >> i & 1 == 1);
                let read = read.map(|(_, c)| *c).chain([0]).collect();
                kernel(w, &of, classes, &read)
            });
            total += ways.fold(f64::INFINITY, f64::min);
        }
        best = best.min(total);
    }
    best
}

/// The price of the kernel that yields a class from these; nothing if no kernel does.
fn kernel(
    root: u32,
    of: &HashMap<u32, &OperatorNode>,
    classes: &[Class],
    given: &BTreeSet<u32>,
) -> Option<f64> {
    let (mut inside, mut reads) = (BTreeSet::new(), BTreeSet::new());
    let mut stack = vec![root];
    while let Some(c) = stack.pop() {
        if !inside.insert(c) {
            continue;
        }
        for &a in &of[&c].args {
            if given.contains(&a) {
                reads.insert(a);
                continue;
            }
            stack.push(a);
        }
    }
    if inside.iter().filter(|c| is_anchor(of[c])).count() > 1 {
        return None;
    }
    let all: Vec<&OperatorNode> = inside.iter().map(|c| of[c]).collect();
    if !joined(&all) || !falls_apart(&all) {
        return None;
    }
    let mut work = Work { launches: 1.0, ..Work::default() };
    inside.iter().for_each(|c| work += of[c].work);
    work.read = reads.iter().map(|&r| classes[r as usize].read).sum();
    work.written = classes[root as usize].written;
    Some(price(0, root, &work))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn candidates_are_kernels(entries in graph(8, 3, true)) {
        let classes = classes(&entries);
        let all = candidates(&classes, &entries, &price);
        for (i, c) in all.iter().enumerate() {
            if i < entries.len() {
                prop_assert_eq!(&c.entries, &vec![i as u32]);
            } else {
                prop_assert_eq!(fault(c, &entries, &classes), None, "{:?}", c);
            }
        }
        let again = candidates(&classes, &entries, &price);
        prop_assert_eq!(format!("{all:?}"), format!("{again:?}"));
    }

    #[test]
    fn the_best_cover_is_among_them(entries in graph(5, 1, false)) {
        let (found, best) = found_and_best(&entries);
        prop_assert!((found - best).abs() < 1e-6, "{found} found, {best} is best");
    }
}

/// A sum of `a` and of a product over `b`, where `a` reads `b`, too: `b` is read by one kernel of all others.
#[test]
fn what_follows_a_product_reads_its_operand() {
    let entry = |class: u32, args: &[u32], role, kernel| {
        let (args, work) = (args.to_vec(), Work::default());
        OperatorNode { class, args, role, kernel, layout: Layout::Plain, work, fixed: None }
    };
    let product = Role::Anchor { epilogue: 1, prologue: false };
    let sum = Role::Pointwise { loops: true, follows: 1 };
    let entries = [
        OperatorNode::free(0),
        entry(1, &[0], sum, 3),
        entry(2, &[1], product, 1),
        entry(3, &[0, 1], sum, 3),
        entry(4, &[3, 2], sum, 3),
    ];
    let (found, best) = found_and_best(&entries);
    assert!((found - 41.0).abs() < 1e-6 && (best - 41.0).abs() < 1e-6, "{found}, {best}");
}

/// The cost of the best cover out of candidates, and that of the best one at all.
fn found_and_best(entries: &[OperatorNode]) -> (f64, f64) {
    let classes = classes(entries);
    let all = candidates(&classes, entries, &price);
    let mut b = EGraphViewBuilder::new();
    let ids: Vec<_> = classes.iter().map(|_| b.add_class()).collect();
    for c in &all {
        let class = entries[*c.entries.last().unwrap() as usize].class as usize;
        let reads: Vec<_> = c.reads.iter().map(|&r| ids[r as usize]).collect();
        b.add_node(ids[class], &reads, Cost::new(c.cost));
    }
    let root = classes.len() as u32 - 1;
    b.add_root(ids[root as usize]);
    let view = b.build().unwrap();
    let found = Exact::default().extract(&view, None).unwrap().dag_cost(&view).seconds();
    let reachable = reachable(entries, root);
    let entries: Vec<OperatorNode> =
        entries.iter().filter(|e| reachable.contains(&e.class)).cloned().collect();
    (found, brute_force_reachable(&entries, &classes, root, &reachable))
}

fn reachable(entries: &[OperatorNode], root: u32) -> BTreeSet<u32> {
    let mut seen = BTreeSet::new();
    let mut stack = vec![root];
    while let Some(c) = stack.pop() {
        if seen.insert(c) {
            stack.extend(entries.iter().filter(|e| e.class == c).flat_map(|e| e.args.iter()));
        }
    }
    seen
}

/// As [`brute_force`], over the classes that the root needs.
fn brute_force_reachable(
    entries: &[OperatorNode],
    classes: &[Class],
    root: u32,
    reachable: &BTreeSet<u32>,
) -> f64 {
    let number: HashMap<u32, u32> =
        reachable.iter().enumerate().map(|(i, c)| (*c, i as u32)).collect();
    let first = u32::from(!reachable.contains(&0));
    let number = |c: &u32| number[c] + first;
    let mut kept = vec![classes[0]];
    kept.extend(reachable.iter().filter(|c| **c != 0).map(|&c| classes[c as usize]));
    let renamed: Vec<OperatorNode> = entries
        .iter()
        .map(|e| OperatorNode {
            class: number(&e.class),
            args: e.args.iter().map(number).collect(),
            ..e.clone()
        })
        .collect();
    brute_force(&renamed, &kept, number(&root))
}
