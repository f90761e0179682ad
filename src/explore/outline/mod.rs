//! Outlining of repeated blocks: a block that a deep network repeats is explored and extracted once, whatever
//! the number of copies, and put back with each copy's own weights.
//!
//! Where the block is cut is decided by cost, so laws fire across the original borders of the
//! layers. Never guesses: copies are equal node by node, or there is no block.

mod repeated_block;
mod representative;

pub use repeated_block::{BlockCut, BlockOperand, BlockValue, RepeatedBlock};
pub use representative::{KeptCopy, RepresentativeProgram};

use crate::Limits;
use crate::extraction::{Choice, Extracted, ExtractionError, Subprogram};
use crate::graph::lower::Explored;
use crate::graph::lower::explore_per_copy;
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Value};
use mlc_dsl::library::Library;
use mlc_extract::Extractor;
use mlc_extract::cost::target::TargetPrices;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// Cuts of which the price is taken.
const CUTS: usize = 12;

/// A program explored once for all copies of its block.
pub struct OutlinedProgram {
    /// What was explored.
    pub explored: Explored,
    repeat: RepeatedBlock,
    short: RepresentativeProgram,
}

/// The three parts of the program for one cut.
struct Subprograms {
    head: Subprogram,
    block: Subprogram,
    tail: Subprogram,
}

impl OutlinedProgram {
    /// Explores a program that repeats a block.
    pub fn explore(
        whole: &Program,
        repeat: RepeatedBlock,
        library: &Arc<Library>,
        laws: &[u32],
        limits: &Limits,
    ) -> OutlinedProgram {
        let short = RepresentativeProgram::new(whole, &repeat);
        let explored =
            explore_per_copy(library.clone(), short.program.clone(), &short.per_copy, laws, limits);
        OutlinedProgram { explored, repeat, short }
    }

    /// Copies of the block, and operators of one.
    pub fn size(&self) -> (usize, usize) {
        (self.repeat.count, self.repeat.period)
    }

    /// For each node of the explored program the nodes of the whole one that it stands for besides itself: those of every copy.
    pub fn counterparts(&self) -> Vec<Vec<NodeId>> {
        let copies = |n: usize| match self.short.middle(NodeId(n as u32)) {
            Some((_, at)) => (0..self.repeat.count)
                .map(|copy| NodeId(self.repeat.node(copy, at) as u32))
                .collect(),
            None => vec![],
        };
        (0..self.explored.source.nodes.len()).map(copies).collect()
    }

    /// The cheapest program: beginning, block and end are chosen apart, the block at the cut where it is
    /// cheapest.
    pub fn extract(
        &mut self,
        whole: &Program,
        prices: &TargetPrices<'_>,
        quick: &dyn Extractor,
        extractor: &dyn Extractor,
    ) -> Result<Extracted, ExtractionError> {
        let mut best: Option<(f64, BlockCut)> = None;
        for cut in self.repeat.cuts(whole).into_iter().take(CUTS) {
            let cost = self.explored.price_of(&self.parts(whole, &cut).block, prices, quick)?;
            if best.as_ref().is_none_or(|(least, _)| cost < least * (1.0 - 1e-9)) {
                best = Some((cost, cut));
            }
        }
        // A block without a place to cut it is none.
        let cut = best.map_or(BlockCut { at: 0, slots: self.repeat.carried() }, |(_, cut)| cut);
        let parts = self.parts(whole, &cut);
        let block = self.explored.choose(&parts.block, prices, extractor)?;
        let head = self.explored.choose(&parts.head, prices, extractor)?;
        let tail = self.explored.choose(&parts.tail, prices, extractor)?;
        let (program, kernels) = self.assemble(whole, &cut, [&head, &block, &tail])?;
        let copies = self.copies() as f64;
        let sum =
            |f: &dyn Fn(&Choice) -> Option<f64>| Some(f(&head)? + copies * f(&block)? + f(&tail)?);
        let mut ends = Vec::new();
        for (part, choice) in [(&parts.head, &head), (&parts.block, &block), (&parts.tail, &tail)] {
            let logged = self.explored.logged(choice);
            ends.extend(part.roots.iter().copied().zip(logged));
        }
        if self.is_idempotent() {
            let steady = self.once_and_twice().into_iter();
            ends.extend(steady.map(|(once, twice)| (twice, self.explored.source_log(once))));
        }
        Ok(Extracted {
            program,
            kernels,
            ends,
            cost: sum(&|c| Some(c.cost)).unwrap_or(0.0),
            lower_bound: sum(&|c| Some(c.lower_bound)).unwrap_or(0.0),
            source_cost: sum(&|c| c.source_cost),
        })
    }

    /// Copies of the block between the beginning and the end, which make up one together.
    fn copies(&self) -> usize {
        if self.is_idempotent() { 0 } else { self.repeat.count - 1 }
    }

    /// True if a block after a block yields what the one yields: one copy does for all.
    pub fn is_idempotent(&self) -> bool {
        let reads = self.repeat.reads.iter().flatten();
        let same = |(once, twice)| self.explored.are_equal(once, twice);
        self.repeat.outputs.is_empty()
            && reads.into_iter().all(|r| !matches!(r, BlockOperand::Each(_)))
            && self.once_and_twice().into_iter().all(same)
    }

    /// What a block hands on, and what one after it does.
    fn once_and_twice(&self) -> Vec<(Value, Value)> {
        let of = |k, s| self.short.value(KeptCopy::Middle(k), s);
        self.repeat.carried().into_iter().map(|s| (of(0, s), of(1, s))).collect()
    }

    /// A value of the copy in which a cut is, or of the copy before it.
    fn crossing(
        &self,
        cut: &BlockCut,
        slot: BlockValue,
        here: KeptCopy,
        before: PreviousCopy,
    ) -> Value {
        if slot.at < cut.at {
            return self.short.value(here, slot);
        }
        match before {
            PreviousCopy::Copy(kept) => self.short.value(kept, slot),
            PreviousCopy::Fresh(last) => self.short.fresh(last, slot),
            PreviousCopy::Entry => self.short.kept[&self.repeat.entry[&slot]],
        }
    }

    fn parts(&self, whole: &Program, cut: &BlockCut) -> Subprograms {
        let crossing = |here, before: PreviousCopy| -> Vec<Value> {
            cut.slots.iter().map(|s| self.crossing(cut, *s, here, before)).collect()
        };
        let barred: HashSet<u32> = [false, true]
            .iter()
            .flat_map(|l| self.short.fresh_inputs(*l))
            .map(|(i, _)| i)
            .collect();
        let own = self.own_inputs(whole);
        let elsewhere = own.iter().filter(|(_, (copy, _))| !(1..=2).contains(copy));
        let (own_before, own_behind) = self.outputs(cut);
        let mut head = Subprogram {
            roots: crossing(KeptCopy::First, PreviousCopy::Entry),
            barred: barred.clone(),
            copies: 1,
            ..Subprogram::default()
        };
        head.roots.extend(self.whole_outputs(whole, false).map(|(_, v)| v));
        head.roots.extend(own_before.iter().map(|s| self.short.value(KeptCopy::First, *s)));
        let (a, b) = (KeptCopy::Middle(0), KeptCopy::Middle(1));
        let mut block = Subprogram {
            leaves: crossing(a, PreviousCopy::Fresh(false)),
            roots: crossing(b, PreviousCopy::Copy(a)),
            barred: barred.iter().chain(elsewhere.map(|(i, _)| i)).copied().collect(),
            own: own.keys().copied().collect(),
            copies: self.repeat.count - 1,
            ..Subprogram::default()
        };
        block.roots.extend(own_behind.iter().map(|s| self.short.value(a, *s)));
        block.roots.extend(own_before.iter().map(|s| self.short.value(b, *s)));
        let mut tail = Subprogram {
            leaves: crossing(KeptCopy::Last, PreviousCopy::Fresh(true)),
            barred,
            copies: 1,
            ..Subprogram::default()
        };
        tail.roots.extend(own_behind.iter().map(|s| self.short.value(KeptCopy::Last, *s)));
        tail.roots.extend(self.whole_outputs(whole, true).map(|(_, v)| v));
        Subprograms { head, block, tail }
    }

    /// Outputs of every copy: those before the cut, and those behind it.
    fn outputs(&self, cut: &BlockCut) -> (Vec<BlockValue>, Vec<BlockValue>) {
        self.repeat.outputs.iter().partition(|s| s.at < cut.at)
    }

    /// Outputs of the whole program that no copy yields, by their index: those from behind the copies or
    /// those from before.
    fn whole_outputs(&self, whole: &Program, behind: bool) -> impl Iterator<Item = (usize, Value)> {
        let r = &self.repeat;
        let border = r.node(r.count - 1, r.period - 1);
        let inside: HashSet<usize> =
            r.order[r.first..r.first + r.count * r.period].iter().copied().collect();
        let is_apply = |v: &Value| matches!(whole.node(v.node).kind, NodeKind::Apply(..));
        let chosen = move |(i, (_, v)): (usize, &(String, Value))| {
            let node = v.node.0 as usize;
            let late = is_apply(v) && node > border;
            (late == behind && !inside.contains(&node)).then_some((i, *v))
        };
        let all: Vec<(usize, Value)> =
            whole.outputs.iter().enumerate().filter_map(chosen).collect();
        let kept = &self.short.kept;
        all.into_iter().filter_map(move |(i, v)| kept.get(&v).map(|k| (i, *k)))
    }

    /// Inputs that belong to a copy: the copy, and those of all copies.
    fn own_inputs(&self, whole: &Program) -> HashMap<u32, (usize, Rc<[u32]>)> {
        let mut out = HashMap::new();
        for read in self.repeat.reads.iter().flatten() {
            let BlockOperand::Each(all) = read else { continue };
            let index = |v: &Value| match whole.node(v.node).kind {
                NodeKind::Input(i) => Some(i),
                NodeKind::Const(_) | NodeKind::Apply(..) => None,
            };
            let Some(all) = all.iter().map(index).collect::<Option<Rc<[u32]>>>() else { continue };
            for (copy, i) in all.iter().enumerate() {
                out.insert(*i, (copy, all.clone()));
            }
        }
        out
    }

    /// The whole program of the chosen parts, and the nodes of each kernel.
    fn assemble(
        &self,
        whole: &Program,
        cut: &BlockCut,
        [head, block, tail]: [&Choice; 3],
    ) -> Result<(Program, Vec<Vec<NodeId>>), ExtractionError> {
        let library = self.explored.library().clone();
        let mut b = Builder::new(&library);
        let inputs: Vec<Value> = whole.inputs.iter().map(|(n, t)| b.input(n, t.clone())).collect();
        let own = self.own_inputs(whole);
        let r = &self.repeat;
        let (own_before, own_behind) = self.outputs(cut);
        let width = cut.slots.len();
        let mut made: HashMap<Value, Value> = HashMap::new();
        let mut note = |copy: usize, slots: &[BlockValue], values: &[Value]| {
            made.extend(slots.iter().zip(values).map(|(s, v)| (r.value(copy, *s), *v)));
        };
        let real = |i: u32| inputs[i as usize];
        let plain = |n: NodeId| self.short.program.node(n).origin.clone();
        let values = self.explored.emit(head, &mut b, &real, &[], 0, &plain)?;
        let (mut crossing, rest) = (values[..width].to_vec(), &values[width..]);
        let early: Vec<usize> = self.whole_outputs(whole, false).map(|(i, _)| i).collect();
        let mut outputs: Vec<Option<Value>> = vec![None; whole.outputs.len()];
        for (i, v) in early.iter().zip(rest) {
            outputs[*i] = Some(*v);
        }
        note(0, &own_before, &rest[early.len()..]);
        for copy in 0..self.copies() {
            // What is explored are the copies one and two; this is the pair from `copy` on.
            let shifted = |i: u32| match own.get(&i) {
                Some((c, all)) => inputs[all[c + copy - 1] as usize],
                None => inputs[i as usize],
            };
            let origin = |n: NodeId| match self.short.middle(n) {
                Some((k, at)) => whole.nodes[r.node(copy + k, at)].origin.clone(),
                None => plain(n),
            };
            let values = self.explored.emit(block, &mut b, &shifted, &crossing, copy, &origin)?;
            crossing = values[..width].to_vec();
            note(copy, &own_behind, &values[width..width + own_behind.len()]);
            note(copy + 1, &own_before, &values[width + own_behind.len()..]);
        }
        let values = self.explored.emit(tail, &mut b, &real, &crossing, 0, &plain)?;
        note(r.count - 1, &own_behind, &values[..own_behind.len()]);
        let late = self.whole_outputs(whole, true);
        for ((i, _), v) in late.zip(&values[own_behind.len()..]) {
            outputs[i] = Some(*v);
        }
        let finished = whole.outputs.iter().zip(outputs).map(|((name, v), out)| {
            let out = out.or_else(|| made.get(v).copied());
            out.map(|out| (name.clone(), out)).ok_or_else(|| ExtractionError::Output(name.clone()))
        });
        let finished: Vec<(String, Value)> = finished.collect::<Result<_, _>>()?;
        Ok(b.finish_grouped(finished))
    }
}

/// Where values of the copy before a cut come from.
#[derive(Clone, Copy)]
enum PreviousCopy {
    Copy(KeptCopy),
    Fresh(bool),
    Entry,
}
