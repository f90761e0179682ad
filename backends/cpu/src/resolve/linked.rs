//! Prepared kernels in the memory of a plan.
//!
//! Where only some kernels differ from those of other extents, no other is touched: they are in no cache when a run begins.

use super::{Location, PreparedKernel, Resolver, TempId};
use mlc_dsl::plan::arena;
use mlc_dsl::plan::{Home, Room};
use std::sync::Arc;

/// Bytes that a kernel or a buffer takes in the lists of a resolved program, about.
const LISTED: usize = 64;

/// A buffer.
#[derive(Clone, Copy, Debug)]
pub struct Temp {
    /// Where it is. The workspace of a kernel lies behind the plan's arena.
    pub home: Home,
    pub bytes: usize,
}

/// A program with known shapes.
pub struct Resolved {
    /// All kernels, in execution order.
    pub(super) all: Vec<Arc<PreparedKernel>>,
    /// What each of them needs.
    needs: Vec<Needs>,
    /// All buffers, those of a kernel one after the other.
    pub temps: Vec<Temp>,
    /// Where the memory of inputs with room begins: one buffer for each room of the plan, in its order.
    pub roomy: usize,
    /// Inputs in whose memory outputs lie.
    pub rooms: Vec<Room>,
    /// One per output of the program; dense.
    pub outputs: Vec<Location>,
    /// Bytes of the block that the buffers lie in.
    pub block: u64,
    /// Bytes of what was prepared for these extents, also if it is shared with others.
    pub bytes: u64,
    /// How many kernels were not prepared before.
    pub fresh: usize,
}

/// What a kernel needs of memory.
#[derive(Clone, Copy, Debug)]
struct Needs {
    /// The number of its first buffer.
    first: usize,
    /// Where its workspace ends in the block.
    end: u64,
    /// The most that a launch works in.
    scratch: u64,
    /// It launches something.
    launches: bool,
}

impl Resolved {
    /// Kernels with their buffers, none of them in rooms yet.
    fn of(
        all: Vec<Arc<PreparedKernel>>,
        needs: Vec<Needs>,
        temps: Vec<Temp>,
        outputs: Vec<Location>,
    ) -> Resolved {
        let (roomy, rooms) = (temps.len(), vec![]);
        Resolved { all, needs, temps, roomy, rooms, outputs, block: 0, bytes: 0, fresh: 0 }
    }

    /// The number of a buffer among [`temps`](Self::temps).
    pub fn temp(&self, id: TempId) -> usize {
        match id.room() {
            Some(room) => self.roomy + room,
            None => self.needs[id.kernel].first + id.slot,
        }
    }

    /// How many kernels there are.
    pub fn kernels(&self) -> usize {
        self.all.len()
    }

    /// The kernels that launch something, in execution order.
    pub fn steps(&self) -> impl Iterator<Item = &PreparedKernel> {
        let launched = self.all.iter().zip(&self.needs).filter(|(_, needs)| needs.launches);
        launched.map(|(kernel, _)| &**kernel)
    }

    /// The most bytes that a launch works in.
    pub fn scratch(&self) -> u64 {
        self.needs.iter().map(|needs| needs.scratch).max().unwrap_or(0)
    }
}

impl Resolver<'_> {
    /// Kernels with the memory that they have in the plan.
    pub(super) fn linked(&self, all: Vec<Arc<PreparedKernel>>, outputs: Vec<Location>) -> Resolved {
        let mut temps = vec![];
        let mut needs = Vec::with_capacity(all.len());
        for k in &all {
            needs.push(self.needs(k, temps.len()));
            self.buffers_of(k, &mut |t| temps.push(t));
        }
        let own = all.iter().zip(&self.cx.graph.groups).filter(|(_, g)| !g.lasts);
        let bytes = own.fold(0, |n: u64, (k, _)| n.saturating_add(k.bytes()));
        self.in_rooms(Resolved { bytes, ..Resolved::of(all, needs, temps, outputs) })
    }

    /// The same where all but the kernels `again` are those of `before`, in the same place of the plan's memory. They are counted there.
    pub(super) fn linked_as(
        &self,
        all: Vec<Arc<PreparedKernel>>,
        outputs: Vec<Location>,
        (before, again): (&Resolved, &[usize]),
    ) -> Resolved {
        let same = |&k: &usize| before.all[k].workspace.len() == all[k].workspace.len();
        if !again.iter().all(same) {
            return self.linked(all, outputs);
        }
        let mut temps = before.temps[..before.roomy].to_vec();
        let mut needs = before.needs.clone();
        let mut bytes = 0u64;
        for &k in again {
            let mut at = needs[k].first;
            needs[k] = self.needs(&all[k], at);
            self.buffers_of(&all[k], &mut |t| {
                temps[at] = t;
                at += 1;
            });
            if !self.cx.graph.groups[k].lasts && !Arc::ptr_eq(&before.all[k], &all[k]) {
                bytes = bytes.saturating_add(all[k].bytes());
            }
        }
        self.in_rooms(Resolved { bytes, ..Resolved::of(all, needs, temps, outputs) })
    }

    /// What a kernel needs whose buffers begin with this one.
    fn needs(&self, k: &PreparedKernel, first: usize) -> Needs {
        let rounded = k.workspace.iter().map(|&bytes| arena::rounded(bytes as u64));
        let end = rounded.fold(self.plan.arena, u64::saturating_add);
        let scratch = k.passes.iter().map(|p| p.launch.scratch()).max().unwrap_or(0);
        Needs { first, end, scratch, launches: !k.passes.is_empty() }
    }

    /// The buffers of a kernel: those of the plan, then its workspace behind the plan's arena.
    fn buffers_of(&self, k: &PreparedKernel, put: &mut dyn FnMut(Temp)) {
        for p in self.plan.written(k.kernel) {
            put(Temp { home: p.home, bytes: p.bytes as usize });
        }
        let mut end = self.plan.arena;
        for &bytes in &k.workspace {
            put(Temp { home: Home::Arena(end), bytes });
            end = end.saturating_add(arena::rounded(bytes as u64));
        }
    }

    /// With the memory of inputs that have room.
    fn in_rooms(&self, mut of: Resolved) -> Resolved {
        let rooms = self.plan.rooms.iter();
        of.temps.extend(rooms.map(|r| Temp { home: Home::Result, bytes: self.bytes_of(r) }));
        let ends = of.needs.iter().map(|needs| needs.end);
        let block = ends.fold(self.plan.arena, u64::max);
        let bytes = of.bytes.saturating_add((LISTED * (of.temps.len() + of.all.len())) as u64);
        Resolved { block, bytes, rooms: self.plan.rooms.clone(), fresh: self.fresh, ..of }
    }
}
