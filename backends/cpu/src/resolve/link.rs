//! Links prepared kernels: gives their buffers places in the plan's memory.
//!
//! Relinking for other extents never touches a kernel that stays the same: it would be a cache miss each.

use super::Resolver;
use super::kernel_cache::{BufferId, Location, PreparedKernel};
use mlc_dsl::plan::arena;
use mlc_dsl::plan::{Home, Room};
use std::sync::Arc;

/// Approximate bytes of bookkeeping per kernel or buffer.
const LISTED: usize = 64;

/// A buffer placed in memory.
#[derive(Clone, Copy, Debug)]
pub struct PlacedBuffer {
    /// Its place; a kernel's workspace follows the plan's arena.
    pub home: Home,
    pub bytes: usize,
}

/// A plan with known shapes: kernels and buffers.
pub struct ResolvedPlan {
    /// All kernels, in execution order.
    pub(super) all: Vec<Arc<PreparedKernel>>,
    /// What each of them needs.
    needs: Vec<Needs>,
    /// All buffers, grouped by kernel.
    pub buffers: Vec<PlacedBuffer>,
    /// Where the memory of inputs with room begins: one buffer for each room of the plan, in its order.
    pub roomy: usize,
    /// Inputs in whose memory outputs lie.
    pub rooms: Vec<Room>,
    /// One per output of the program; dense.
    pub outputs: Vec<Location>,
    /// Bytes of the block that the buffers lie in.
    pub block: u64,
    /// Bytes of what was prepared for these extents, shared or not.
    pub bytes: u64,
    /// How many kernels were not in the cache.
    pub fresh: usize,
}

/// A kernel's memory requirements.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// Index of its first buffer.
    first: usize,
    /// Where its workspace ends in the block.
    end: u64,
    /// Most scratch bytes of a pass.
    scratch: u64,
    /// Whether it has passes.
    has_passes: bool,
}

impl ResolvedPlan {
    /// Kernels with their buffers, none of them in rooms yet.
    fn of(
        all: Vec<Arc<PreparedKernel>>,
        needs: Vec<Needs>,
        buffers: Vec<PlacedBuffer>,
        outputs: Vec<Location>,
    ) -> ResolvedPlan {
        let (roomy, rooms) = (buffers.len(), vec![]);
        ResolvedPlan { all, needs, buffers, roomy, rooms, outputs, block: 0, bytes: 0, fresh: 0 }
    }

    /// The index of a buffer among [`buffers`](Self::buffers).
    pub fn buffer(&self, id: BufferId) -> usize {
        match id.room() {
            Some(room) => self.roomy + room,
            None => self.needs[id.kernel].first + id.slot,
        }
    }

    /// How many kernels there are.
    pub fn kernels(&self) -> usize {
        self.all.len()
    }

    /// The kernels that have passes, in execution order.
    pub fn steps(&self) -> impl Iterator<Item = &PreparedKernel> {
        let running = self.all.iter().zip(&self.needs).filter(|(_, needs)| needs.has_passes);
        running.map(|(kernel, _)| &**kernel)
    }

    /// Most scratch bytes of a pass.
    pub fn scratch(&self) -> u64 {
        self.needs.iter().map(|needs| needs.scratch).max().unwrap_or(0)
    }
}

impl Resolver<'_> {
    /// Links all kernels.
    pub(super) fn link(
        &self,
        all: Vec<Arc<PreparedKernel>>,
        outputs: Vec<Location>,
    ) -> ResolvedPlan {
        let mut buffers = vec![];
        let mut needs = Vec::with_capacity(all.len());
        for k in &all {
            needs.push(self.needs(k, buffers.len()));
            self.buffers_of(k, &mut |t| buffers.push(t));
        }
        let own = all.iter().zip(&self.cx.graph.groups).filter(|(_, g)| !g.lasts);
        let bytes = own.fold(0, |n: u64, (k, _)| n.saturating_add(k.bytes()));
        self.in_rooms(ResolvedPlan { bytes, ..ResolvedPlan::of(all, needs, buffers, outputs) })
    }

    /// The same, reusing the buffers of `before` for all kernels but those `again`. Kernels reused are accounted for there.
    pub(super) fn relink(
        &self,
        all: Vec<Arc<PreparedKernel>>,
        outputs: Vec<Location>,
        before: &ResolvedPlan,
        again: &[usize],
    ) -> ResolvedPlan {
        let same = |&k: &usize| before.all[k].workspace.len() == all[k].workspace.len();
        if !again.iter().all(same) {
            return self.link(all, outputs);
        }
        let mut buffers = before.buffers[..before.roomy].to_vec();
        let mut needs = before.needs.clone();
        let mut bytes = 0u64;
        for &k in again {
            let mut at = needs[k].first;
            needs[k] = self.needs(&all[k], at);
            self.buffers_of(&all[k], &mut |t| {
                buffers[at] = t;
                at += 1;
            });
            if !self.cx.graph.groups[k].lasts && !Arc::ptr_eq(&before.all[k], &all[k]) {
                bytes = bytes.saturating_add(all[k].bytes());
            }
        }
        self.in_rooms(ResolvedPlan { bytes, ..ResolvedPlan::of(all, needs, buffers, outputs) })
    }

    /// What a kernel needs whose buffers begin with this one.
    fn needs(&self, k: &PreparedKernel, first: usize) -> Needs {
        let rounded = k.workspace.iter().map(|&bytes| arena::rounded(bytes as u64));
        let end = rounded.fold(self.plan.arena, u64::saturating_add);
        let scratch = k.passes.iter().map(|p| p.kernel.scratch()).max().unwrap_or(0);
        Needs { first, end, scratch, has_passes: !k.passes.is_empty() }
    }

    /// The buffers of a kernel: those of the plan, then its workspace behind the plan's arena.
    fn buffers_of(&self, k: &PreparedKernel, put: &mut dyn FnMut(PlacedBuffer)) {
        for p in self.plan.written(k.kernel) {
            put(PlacedBuffer { home: p.home, bytes: p.bytes as usize });
        }
        let mut end = self.plan.arena;
        for &bytes in &k.workspace {
            put(PlacedBuffer { home: Home::Arena(end), bytes });
            end = end.saturating_add(arena::rounded(bytes as u64));
        }
    }

    /// With the memory of inputs that have room.
    fn in_rooms(&self, mut of: ResolvedPlan) -> ResolvedPlan {
        let rooms = self.plan.rooms.iter();
        of.buffers
            .extend(rooms.map(|r| PlacedBuffer { home: Home::Result, bytes: self.bytes_of(r) }));
        let ends = of.needs.iter().map(|needs| needs.end);
        let block = ends.fold(self.plan.arena, u64::max);
        let bytes = of.bytes.saturating_add((LISTED * (of.buffers.len() + of.all.len())) as u64);
        ResolvedPlan { block, bytes, rooms: self.plan.rooms.clone(), fresh: self.fresh, ..of }
    }
}
