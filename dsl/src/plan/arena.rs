//! Assigns offsets to buffers in one block of memory: buffers that are alive at the same time never overlap.
//!
//! Knows lifetimes and sizes, nothing of contents. The problem is NP-hard; several placement orders
//! are tried, the best one is improved for a bounded number of passes, and equal input gives equal output.

use std::collections::{BTreeMap, BTreeSet};

/// Every offset is a multiple of this, and every buffer takes a multiple of it.
pub const ALIGN: u64 = 64;

/// A buffer: alive from the step that writes it to the last that reads it, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The step that writes it.
    pub start: usize,
    /// The last step that needs it.
    pub end: usize,
    /// Its bytes, as they are asked for.
    pub bytes: u64,
}

impl Buffer {
    /// The bytes that it takes.
    pub fn size(&self) -> u64 {
        rounded(self.bytes)
    }

    fn meets(&self, other: &Buffer) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// The bytes that a buffer of so many bytes takes.
pub fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

/// Where buffers lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// One offset per buffer.
    pub offsets: Vec<u64>,
    /// Bytes of the block.
    pub bytes: u64,
}

/// The most bytes alive at one step. No placement takes less.
pub fn alive(buffers: &[Buffer]) -> u64 {
    profile(buffers).into_iter().max().unwrap_or(0)
}

/// The bytes alive at each step.
fn profile(buffers: &[Buffer]) -> Vec<u64> {
    let steps = buffers.iter().map(|b| b.end + 1).max().unwrap_or(0);
    let mut change = vec![(0u64, 0u64); steps + 1];
    for b in buffers.iter().filter(|b| b.start <= b.end) {
        change[b.start].0 = change[b.start].0.saturating_add(b.size());
        change[b.end + 1].1 = change[b.end + 1].1.saturating_add(b.size());
    }
    let mut now = 0u64;
    let step = |(more, less): (u64, u64)| {
        now = now.saturating_sub(less).saturating_add(more);
        now
    };
    change.into_iter().map(step).collect()
}

/// Pairs of buffers that the improvement may look at.
const PAIRS: usize = 20_000_000;

/// Most passes of the improvement.
const PASSES: usize = 200;

/// More buffers than this are placed in one sweep over the steps.
const SWEPT: usize = 4096;

/// Places buffers.
pub fn place(buffers: &[Buffer]) -> Arena {
    if buffers.len() > SWEPT {
        return swept(buffers);
    }
    let least = alive(buffers);
    let mut best: Option<(Arena, Vec<usize>, Placement)> = None;
    for order in orders(buffers) {
        for fit in [Placement::Lowest, Placement::Tightest] {
            let arena = filled(buffers, &order, fit);
            if best.as_ref().is_none_or(|b| arena.bytes < b.0.bytes) {
                best = Some((arena, order.clone(), fit));
            }
            if best.as_ref().is_some_and(|b| b.0.bytes <= least) {
                return best.map(|b| b.0).unwrap_or_default();
            }
        }
    }
    best.map(|(arena, order, fit)| improved(buffers, arena, order, fit, least)).unwrap_or_default()
}

/// Places what touches the top earlier, as long as that is allowed and there is something to gain.
fn improved(
    buffers: &[Buffer],
    mut best: Arena,
    mut order: Vec<usize>,
    fit: Placement,
    least: u64,
) -> Arena {
    let passes = (PAIRS / (buffers.len() * buffers.len()).max(1)).min(PASSES);
    let mut arena = best.clone();
    for _ in 0..passes {
        let top = |i: &usize| arena.offsets[*i].saturating_add(buffers[*i].size()) == arena.bytes;
        let Some(at) = order.iter().position(top) else { break };
        let moved = order.remove(at);
        order.insert(at / 2, moved);
        arena = filled(buffers, &order, fit);
        if arena.bytes < best.bytes {
            best = arena.clone();
        }
        if best.bytes <= least {
            break;
        }
    }
    best
}

/// Places buffers step by step, each in the smallest gap that is large enough.
fn swept(buffers: &[Buffer]) -> Arena {
    let mut arena = Arena { offsets: vec![0; buffers.len()], bytes: 0 };
    let mut gaps = Gaps::default();
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].size() > 0).collect();
    order.sort_by_key(|&i| (buffers[i].start, u64::MAX - buffers[i].size(), i));
    let mut ends: BTreeSet<(usize, usize)> = BTreeSet::new();
    for i in order {
        while let Some(&(end, dead)) = ends.first().filter(|(end, _)| *end < buffers[i].start) {
            ends.remove(&(end, dead));
            gaps.give(arena.offsets[dead], buffers[dead].size());
        }
        arena.offsets[i] = gaps.take(buffers[i].size()).unwrap_or_else(|| {
            // The end of the block is a gap that grows.
            let at = gaps.take_last(arena.bytes).unwrap_or(arena.bytes);
            arena.bytes = at.saturating_add(buffers[i].size());
            at
        });
        ends.insert((buffers[i].end, i));
    }
    arena
}

/// What is free in a block.
#[derive(Default)]
struct Gaps {
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Gaps {
    fn remove(&mut self, at: u64, size: u64) {
        self.by_offset.remove(&at);
        self.by_size.remove(&(size, at));
    }

    fn insert(&mut self, at: u64, size: u64) {
        self.by_offset.insert(at, size);
        self.by_size.insert((size, at));
    }

    /// The smallest gap of so many bytes or more: its offset.
    fn take(&mut self, size: u64) -> Option<u64> {
        let &(room, at) = self.by_size.range((size, 0)..).next()?;
        self.remove(at, room);
        if room > size {
            self.insert(at + size, room - size);
        }
        Some(at)
    }

    /// The gap that ends here.
    fn take_last(&mut self, end: u64) -> Option<u64> {
        let (&at, &room) = self.by_offset.last_key_value()?;
        (at.saturating_add(room) == end).then(|| self.remove(at, room))?;
        Some(at)
    }

    /// Makes room, joined with the gaps at both sides.
    fn give(&mut self, mut at: u64, mut size: u64) {
        if let Some((&before, &room)) = self.by_offset.range(..at).next_back()
            && before.saturating_add(room) == at
        {
            self.remove(before, room);
            (at, size) = (before, size.saturating_add(room));
        }
        let end = at.saturating_add(size);
        if let Some(&room) = self.by_offset.get(&end) {
            self.remove(end, room);
            size = size.saturating_add(room);
        }
        self.insert(at, size);
    }
}

/// Orders in which buffers are placed.
fn orders(buffers: &[Buffer]) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..buffers.len()).collect();
    let by = |key: &dyn Fn(&Buffer) -> (u64, u64)| {
        let mut order = all.clone();
        order.sort_by(|&i, &j| key(&buffers[j]).cmp(&key(&buffers[i])).then(i.cmp(&j)));
        order
    };
    let long = |b: &Buffer| (b.end + 1).saturating_sub(b.start) as u64;
    let early = |b: &Buffer| u64::MAX - b.start as u64;
    vec![
        by(&|b| (b.size(), long(b))),
        by(&|b| (b.size().saturating_mul(long(b)), b.size())),
        by(&|b| (long(b), b.size())),
        by(&|b| (early(b), b.size())),
        by(&|b| (b.end as u64, b.size())),
        fullest(buffers),
    ]
}

/// The buffers of the fullest step first, large ones before small ones.
fn fullest(buffers: &[Buffer]) -> Vec<usize> {
    let profile = profile(buffers);
    let full = |b: &Buffer| profile.get(b.start..=b.end).and_then(|p| p.iter().max()).copied();
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    let key = |i: usize| (full(&buffers[i]), buffers[i].size());
    order.sort_by(|&i, &j| key(j).cmp(&key(i)).then(i.cmp(&j)));
    order
}

/// Which of the gaps that are large enough is taken.
#[derive(Clone, Copy)]
enum Placement {
    Lowest,
    Tightest,
}

/// The buffers, placed one after another in this order.
fn filled(buffers: &[Buffer], order: &[usize], fit: Placement) -> Arena {
    let mut arena = Arena { offsets: vec![0; buffers.len()], bytes: 0 };
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for &i in order {
        let size = buffers[i].size();
        if size == 0 {
            continue;
        }
        let at = gap(buffers, &placed, &arena.offsets, i, fit);
        arena.offsets[i] = at;
        arena.bytes = arena.bytes.max(at.saturating_add(size));
        let behind = placed.partition_point(|&p| arena.offsets[p] <= at);
        placed.insert(behind, i);
    }
    arena
}

/// An offset for buffer `i` among those placed, which are in order of offset.
fn gap(buffers: &[Buffer], placed: &[usize], offsets: &[u64], i: usize, fit: Placement) -> u64 {
    let size = buffers[i].size();
    let (mut top, mut best) = (0u64, None);
    for &p in placed.iter().filter(|&&p| buffers[p].meets(&buffers[i])) {
        let room = offsets[p].saturating_sub(top);
        if room >= size && best.is_none_or(|(_, least)| room < least) {
            best = Some((top, room));
            if matches!(fit, Placement::Lowest) {
                break;
            }
        }
        top = top.max(offsets[p].saturating_add(buffers[p].size()));
    }
    best.map_or(top, |(at, _)| at)
}
