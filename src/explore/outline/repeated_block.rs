//! Finds a block that a program repeats: the same operators on values of the same types, each copy
//! reading what the previous one yields, with constants of its own.
//!
//! A block is a contiguous run of applications in the program's order. Candidates are verified node by
//! node; nothing is guessed.

use mlc_dsl::ir::{ConstId, NodeKind, Program, Value};
use mlc_extract::Size;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Copies from which on sharing pays: four are explored.
const LEAST: usize = 6;

/// Periods that are verified, those that cover most of the program first.
const PERIODS: usize = 8;

/// A value of a block: the application that yields it, counted from the block's first, and which of its
/// outputs it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockValue {
    /// Position of the application in the block.
    pub at: usize,
    /// Which of its outputs.
    pub output: u32,
}

/// What an argument of a block's application is in every copy.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockOperand {
    /// A value of the same copy.
    Own(BlockValue),
    /// A value of the copy before; of the first copy: a value from before the blocks.
    Carried(BlockValue),
    /// One and the same value.
    Same(Value),
    /// A constant or an input, another one in each copy.
    Each(Vec<Value>),
}

/// Where among the applications each node is that is one.
type Positions = HashMap<usize, usize>;

/// A repeated block.
#[derive(Clone, Debug)]
pub struct RepeatedBlock {
    /// The program's applications, by node index, in order.
    pub order: Vec<usize>,
    /// Where among them the first copy begins.
    pub first: usize,
    /// Applications per copy.
    pub period: usize,
    /// Copies.
    pub count: usize,
    /// What every application of a copy reads.
    pub reads: Vec<Vec<BlockOperand>>,
    /// What the first copy reads in place of values of the copy before.
    pub entry: BTreeMap<BlockValue, Value>,
    /// Values that are outputs of the program, in every copy.
    pub outputs: BTreeSet<BlockValue>,
}

/// A place within a block where it may be cut: all that crosses is there once.
#[derive(Clone, Debug)]
pub struct BlockCut {
    /// Applications before the cut.
    pub at: usize,
    /// What crosses: values of the copy in which the cut is (those before it) and of the copy before.
    pub slots: Vec<BlockValue>,
}

impl RepeatedBlock {
    /// The block that covers most of a program, if one is repeated often enough.
    pub fn find(program: &Program) -> Option<RepeatedBlock> {
        let is_apply = |i: &usize| matches!(program.nodes[*i].kind, NodeKind::Apply(..));
        let order: Vec<usize> = (0..program.nodes.len()).filter(is_apply).collect();
        let keys: Vec<u64> = order.iter().map(|&i| key(program, i)).collect();
        let position: Positions = order.iter().enumerate().map(|(p, &i)| (i, p)).collect();
        for (period, start, length) in periods(&keys) {
            for first in start..start + period {
                let most = (start + length - first) / period;
                let tries = (LEAST..=most).rev().take(2);
                for count in tries {
                    let found = verify(program, &order, &position, Copies { first, period, count });
                    if let Some(r) = found.filter(|r| !r.cuts(program).is_empty()) {
                        return Some(r);
                    }
                }
            }
        }
        None
    }

    /// The node of an application of a copy.
    pub fn node(&self, copy: usize, at: usize) -> usize {
        self.order[self.first + copy * self.period + at]
    }

    /// How long each value is needed: the last position that reads it, counted from its own copy's first.
    fn last_uses(&self) -> BTreeMap<BlockValue, usize> {
        let mut last: BTreeMap<BlockValue, usize> = BTreeMap::new();
        for (at, reads) in self.reads.iter().enumerate() {
            for r in reads {
                let (slot, position) = match r {
                    BlockOperand::Own(s) => (*s, at),
                    BlockOperand::Carried(s) => (*s, at + self.period),
                    BlockOperand::Same(_) | BlockOperand::Each(_) => continue,
                };
                let known = last.entry(slot).or_default();
                *known = (*known).max(position);
            }
        }
        last
    }

    /// Values that the next copy reads.
    pub fn carried(&self) -> Vec<BlockValue> {
        let last = self.last_uses();
        last.into_iter().filter(|(_, l)| *l >= self.period).map(|(s, _)| s).collect()
    }

    /// The places where a block may be cut, those where least crosses first.
    pub fn cuts(&self, program: &Program) -> Vec<BlockCut> {
        let last = self.last_uses();
        let mut cuts: Vec<(f64, BlockCut)> = Vec::new();
        for at in 0..self.period {
            // What crosses this cut in two copies would be carried twice.
            if last.iter().any(|(s, &l)| s.at < at && l >= at + self.period) {
                continue;
            }
            let crosses = |(s, l): &(&BlockValue, &usize)| match s.at < at {
                true => **l >= at,
                false => **l >= at + self.period,
            };
            let slots: Vec<BlockValue> = last.iter().filter(crosses).map(|(s, _)| *s).collect();
            let elements = |s: &BlockValue| {
                let v = self.value(0, *s);
                Size::default().elements(program.ty(v))
            };
            cuts.push((slots.iter().map(elements).sum(), BlockCut { at, slots }));
        }
        cuts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.at.cmp(&b.1.at)));
        cuts.into_iter().map(|(_, c)| c).collect()
    }

    /// A value of a copy.
    pub fn value(&self, copy: usize, s: BlockValue) -> Value {
        value(self.node(copy, s.at), s.output)
    }
}

fn value(node: usize, output: u32) -> Value {
    Value { node: mlc_dsl::ir::NodeId(node as u32), output }
}

/// What two applications share if they may be copies of each other.
fn key(program: &Program, i: usize) -> u64 {
    let node = &program.nodes[i];
    let mut h = DefaultHasher::new();
    node.kind.hash(&mut h);
    node.types.hash(&mut h);
    for a in &node.args {
        program.ty(*a).hash(&mut h);
        std::mem::discriminant(&program.node(a.node).kind).hash(&mut h);
    }
    h.finish()
}

/// Comparisons in search of periods: programs of 25,000 operators take fewer; of larger ones only the shorter periods
/// are found.
const COMPARISONS: usize = 1 << 27;

/// Periods of a sequence with the run that each covers: period, start, length. Longest runs first, then
/// shortest periods.
fn periods(keys: &[u64]) -> Vec<(usize, usize, usize)> {
    let mut out: Vec<(usize, usize, usize)> = Vec::new();
    let mut left = COMPARISONS;
    for period in 1..=keys.len() / LEAST {
        if left < keys.len() {
            break;
        }
        let (mut start, mut best) = (0, (0, 0));
        for i in 0..=keys.len() - period {
            if i + period < keys.len() && keys[i] == keys[i + period] {
                continue;
            }
            if i - start > best.1 {
                best = (start, i - start);
            }
            start = i + 1;
        }
        left -= keys.len() - period;
        if best.1 >= (LEAST - 1) * period {
            out.push((period, best.0, best.1 + period));
        }
    }
    out.sort_by_key(|&(period, start, length)| (std::cmp::Reverse(length), period, start));
    out.truncate(PERIODS);
    out
}

/// Candidate copies of a block: where the first begins, applications per copy, and how many there are.
#[derive(Clone, Copy)]
struct Copies {
    first: usize,
    period: usize,
    count: usize,
}

/// The block that these candidates make up, if the copies are equal up to constants and inputs of their own.
fn verify(
    program: &Program,
    order: &[usize],
    position: &Positions,
    copies: Copies,
) -> Option<RepeatedBlock> {
    let Copies { first, period, count } = copies;
    let end = first + count * period;
    let mut r = RepeatedBlock {
        order: order.to_vec(),
        first,
        period,
        count,
        reads: Vec::with_capacity(period),
        entry: BTreeMap::new(),
        outputs: BTreeSet::new(),
    };
    for at in 0..period {
        let model = &program.nodes[r.node(1, at)];
        let copies: Vec<&mlc_dsl::ir::Node> =
            (0..count).map(|c| &program.nodes[r.node(c, at)]).collect();
        let alike = |n: &&mlc_dsl::ir::Node| {
            n.kind == model.kind && n.types == model.types && n.args.len() == model.args.len()
        };
        if !copies.iter().all(alike) {
            return None;
        }
        let reads: Option<Vec<BlockOperand>> = (0..model.args.len())
            .map(|k| {
                let args: Vec<Value> = copies.iter().map(|n| n.args[k]).collect();
                read(program, position, &mut r, &args)
            })
            .collect();
        r.reads.push(reads?);
    }
    // Behind the blocks only the last copy is read.
    let hidden = |v: &Value| {
        position.get(&(v.node.0 as usize)).is_some_and(|&p| p >= first && p < end - period)
    };
    let behind = order[end..].iter().flat_map(|&i| &program.nodes[i].args);
    if behind.into_iter().any(hidden) {
        return None;
    }
    outputs(program, position, &mut r)?;
    own_inputs_are_told_apart(program, &r).then_some(r)
}

/// What an argument is in all copies, given what it is in each.
fn read(
    program: &Program,
    position: &Positions,
    r: &mut RepeatedBlock,
    args: &[Value],
) -> Option<BlockOperand> {
    if args.iter().any(|a| program.ty(*a) != program.ty(args[0])) {
        return None;
    }
    let at = |v: &Value| position.get(&(v.node.0 as usize)).copied();
    let is_leaf = |v: &Value| at(v).is_none();
    let later = &args[1..];
    if later.iter().all(|a| *a == args[0]) {
        let before = at(&args[0]).is_none_or(|p| p < r.first);
        return before.then_some(BlockOperand::Same(args[0]));
    }
    if args.iter().all(is_leaf) {
        let kind = |v: &Value| std::mem::discriminant(&program.node(v.node).kind);
        let one_kind = args.iter().all(|a| kind(a) == kind(&args[0]));
        return one_kind.then(|| BlockOperand::Each(args.to_vec()));
    }
    // The copy that the value belongs to, and where in it.
    let place = |v: &Value| {
        let p = at(v)?.checked_sub(r.first)?;
        Some((p / r.period, BlockValue { at: p % r.period, output: v.output }))
    };
    let (copy, slot) = place(&args[1])?;
    let back = 1usize.checked_sub(copy)?;
    let fits = |(c, v): (usize, &Value)| place(v) == Some((c - back, slot));
    if !later.iter().enumerate().map(|(i, v)| (i + 1, v)).all(fits) {
        return None;
    }
    if back == 0 {
        return (place(&args[0]) == Some((0, slot))).then_some(BlockOperand::Own(slot));
    }
    let outside = at(&args[0]).is_none_or(|p| p < r.first);
    let known = *r.entry.entry(slot).or_insert(args[0]);
    (outside && known == args[0]).then_some(BlockOperand::Carried(slot))
}

/// Notes the values that are outputs of the program; they must be so in every copy.
fn outputs(program: &Program, position: &Positions, r: &mut RepeatedBlock) -> Option<()> {
    let mut of_slot: BTreeMap<BlockValue, BTreeSet<usize>> = BTreeMap::new();
    for (_, v) in &program.outputs {
        let Some(&p) = position.get(&(v.node.0 as usize)) else { continue };
        if p < r.first || p >= r.first + r.count * r.period {
            continue;
        }
        let p = p - r.first;
        let slot = BlockValue { at: p % r.period, output: v.output };
        of_slot.entry(slot).or_default().insert(p / r.period);
    }
    if of_slot.values().any(|copies| copies.len() != r.count) {
        return None;
    }
    r.outputs = of_slot.into_keys().collect();
    Some(())
}

/// An input says which copy is meant only if it belongs to one.
fn own_inputs_are_told_apart(program: &Program, r: &RepeatedBlock) -> bool {
    let mut seen: BTreeMap<Value, (usize, &Vec<Value>)> = BTreeMap::new();
    let lists = r.reads.iter().flatten().filter_map(|read| match read {
        BlockOperand::Each(list) => Some(list),
        _ => None,
    });
    let inputs = lists.filter(|l| matches!(program.node(l[0].node).kind, NodeKind::Input(_)));
    for list in inputs {
        for (copy, v) in list.iter().enumerate() {
            let known = seen.entry(*v).or_insert((copy, list));
            if known.0 != copy || known.1 != list {
                return false;
            }
        }
    }
    true
}

/// The constant behind a value of a program.
pub(super) fn constant(program: &Program, v: Value) -> Option<ConstId> {
    match program.node(v.node).kind {
        NodeKind::Const(c) => Some(c),
        NodeKind::Input(_) | NodeKind::Apply(..) => None,
    }
}
