//! Incremental memory planning: from the memory at some extents to that at others, by replanning only the kernels that mention a changed
//! symbol, and their readers. The result equals a full plan; where that is not certain there is none.

use super::memory::{Binding, Buffers, Home, Memory, MemoryPlanner, PlannedBuffer, Storage};
use super::worklist::{Readers, Worklist};
use super::{Kernel, Plan};
use crate::ir::Value;
use crate::library::Library;
use std::borrow::Cow;
use std::sync::Arc;

/// The memory of a plan at some extents, and how its values lie there.
#[derive(Clone, Debug)]
pub struct MemoryAt {
    /// The memory.
    pub memory: Arc<Memory>,
    /// Memory of larger extents whose buffers lie at the same places.
    room: Arc<Memory>,
    buffers: Buffers,
}

impl MemoryAt {
    /// Of buffers in an order of kernels: where those of `larger` extents lie, if they can, or where there is most room.
    pub fn new(buffers: Buffers, order: &[usize], larger: &Arc<Memory>) -> MemoryAt {
        match buffers.placed_as(order, larger) {
            Some(own) => MemoryAt { memory: Arc::new(own), room: larger.clone(), buffers },
            // An extent may grow where another shrinks.
            None => {
                let memory = Arc::new(buffers.placed(order));
                MemoryAt { room: memory.clone(), memory, buffers }
            }
        }
    }

    /// The memory where symbols have other values, in the same inputs' room. In the kernels `mentioning` a symbol occurs whose value is another;
    /// `readers` are those of the plan's kernels. `None` if the buffers are others, or do not fit where these are.
    pub fn at_other(
        &self,
        plan: &Plan,
        library: &Library,
        symbol: Binding<'_>,
        mentioning: &[usize],
        readers: &Readers,
    ) -> Option<Memory> {
        let Buffers { rooms, spines, lies, .. } = &self.buffers;
        let program = &plan.program;
        let mut p = MemoryPlanner::new(program, library, symbol, rooms, Cow::Borrowed(spines));
        p.lies.others = Some(lies);
        p.out.buffers.clone_from(&self.buffers.buffers);
        p.out.writes.resize_with(plan.kernels.len(), Vec::new);
        p.out.once.resize(plan.kernels.len(), false);
        let appending = self.memory.appends.iter().map(|(k, _)| *k);
        let first = mentioning.iter().copied().chain(appending);
        let mut again = Replanner { planner: p, work: Worklist::new(readers, first) };
        again.inputs(readers);
        let mut memory = (*self.memory).clone();
        while let Some(k) = again.work.next() {
            again.kernel(k, &plan.kernels[k]);
            self.keep_places(&again.planner.out, k, &mut memory)?;
        }
        let Replanner { planner: p, .. } = again;
        let stays = |(_, v): &(String, Value)| {
            p.lies.own.get(v).is_none_or(|own| same_place(&p.out, lies.get(v), own))
        };
        let is_whole = !p.out.nominal && p.misfits().is_empty();
        let same_appends = p.out.appends.iter().eq(&self.memory.appends);
        (is_whole && same_appends && program.outputs.iter().all(stays)).then_some(memory)
    }

    /// Gives the buffers of a kernel their bytes, if they are those of before and have room.
    fn keep_places(&self, out: &Buffers, k: usize, memory: &mut Memory) -> Option<()> {
        let first = memory.places.partition_point(|b| b.kernel < k);
        let mut written: Vec<(Value, u64)> =
            out.writes[k].iter().map(|&b| (out.buffers[b].value, out.buffers[b].bytes)).collect();
        written.sort_unstable();
        let own = memory.places[first..].iter_mut().take_while(|b| b.kernel == k);
        let mut own = own.zip(&self.room.places[first..]);
        for (value, bytes) in written {
            let (to, room): (&mut PlannedBuffer, _) = own.next()?;
            if to.value != value || bytes > room.bytes {
                return None;
            }
            if to.home == Home::Result {
                let rounded = crate::plan::arena::rounded;
                memory.results = memory.results.saturating_sub(rounded(to.bytes));
                memory.results = memory.results.saturating_add(rounded(bytes));
            }
            to.bytes = bytes;
        }
        own.next().is_none().then_some(())
    }
}

/// Whether a value is in the memory that it was in.
fn same_place(out: &Buffers, before: Option<&Storage>, now: &Storage) -> bool {
    let value = |b: Option<usize>| b.map(|b| out.buffers[b].value);
    before.is_some_and(|before| {
        value(before.buffer) == value(now.buffer)
            && (before.room, before.fixed) == (now.room, now.fixed)
    })
}

/// Replans what differs.
struct Replanner<'a> {
    planner: MemoryPlanner<'a>,
    work: Worklist<'a>,
}

impl Replanner<'_> {
    fn inputs(&mut self, readers: &Readers) {
        for &node in &readers.inputs {
            let leaf = self.planner.leaf(self.planner.program.node(node), false);
            self.put(Value { node, output: 0 }, leaf);
        }
    }

    fn kernel(&mut self, k: usize, kernel: &Kernel) {
        self.planner.kernel(k, kernel);
        for &v in &kernel.outputs {
            if let Some(own) = self.planner.lies.own.remove(&v) {
                self.put(v, own);
            }
        }
    }

    /// Notes how a value lies, if it does not lie so already.
    fn put(&mut self, v: Value, own: Storage) {
        let p = &mut self.planner;
        let before = p.lies.others.and_then(|others| others.get(&v));
        let same =
            same_place(&p.out, before, &own) && before.is_some_and(|b| b.layout == own.layout);
        if !same {
            p.lies.own.insert(v, own);
            self.work.differs(v.node);
        }
    }
}
