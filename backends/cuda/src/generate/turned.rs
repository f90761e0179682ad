//! Elements of which one is read across the lines that the result is written along, as a transpose does: through a tile in shared
//! memory, so that neighbouring threads both read and write what lies side by side.

use super::body::store;
use super::emit::{Emitter, coordinates};
use super::spelling as spell;
use mlc_backends::reference::code::{Affine, Int, Slot};
use mlc_dsl::ir::{DType, Value};

/// Lines of a tile, and elements of each.
const TILE: i64 = 32;
/// Threads of a block.
const THREADS: i64 = 256;
/// Elements of an axis from which on a tile pays.
const LEAST: i64 = 8;

/// What is read across.
pub struct Turned {
    read: Value,
    offset: Affine,
    /// The axis that it lies side by side along, and the last one of the result.
    along: (Slot, i64),
    last: (Slot, i64),
}

impl Turned {
    /// The first read of a value's element, at these axes, that is across; one that happens whatever the elements are.
    pub fn of(
        e: &mut Emitter<'_>,
        v: Value,
        index: &[Int],
        axes: &[(Slot, i64)],
    ) -> Option<Turned> {
        let last = *axes.iter().rev().find(|a| a.1 != 1)?;
        let found = e.look(&[(v, index.to_vec())]);
        if !found.reductions.is_empty() || last.1 < LEAST {
            return None;
        }
        found.always.into_iter().find_map(|(read, offset)| {
            let known = offset.terms.iter().all(|t| axes.iter().any(|a| a.0 == t.0));
            if !known || [0, 1].contains(&offset.factor(last.0)) {
                return None;
            }
            let beside = |a: &&(Slot, i64)| a.1 >= LEAST && offset.factor(a.0) == 1;
            let along = *axes.iter().find(beside)?;
            Some(Turned { read, offset, along, last })
        })
    }

    /// Writes the function; its blocks and their threads.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        v: Value,
        dtype: DType,
        shape: &[i64],
        axes: &[(Slot, i64)],
    ) -> (u64, u32) {
        let up = |n: i64| n / TILE + i64::from(n % TILE != 0);
        let (down, across) = (up(self.along.1), up(self.last.1));
        let others: Vec<(Slot, i64)> =
            axes.iter().copied().filter(|a| *a != self.along && *a != self.last).collect();
        let (kind, block, lines) = (e.index_type(), e.block(), THREADS / TILE);
        let of = e.type_of(self.read);
        e.line(format!("SHARED({}, tile, {});", spell::stored(of), TILE * (TILE + 1)));
        e.line(format!("{kind} row = {block} / {across} % {down} * {TILE};"));
        e.line(format!("{kind} column = {block} % {across} * {TILE};"));
        e.line(format!("{kind} batch = {block} / {};", down * across));
        coordinates(e, "batch", &others);
        e.line(format!("int x = threadIdx.x % {TILE};"));
        let [along, last] = [self.along.0, self.last.0].map(Emitter::name);
        let inside = |row: &str, column: &str| {
            format!("if ({row} < {} && {column} < {})", self.along.1, self.last.1)
        };
        let turns = format!("for (int y = threadIdx.x / {TILE}; y < {TILE}; y += {lines})");
        e.open(&turns);
        e.line(format!("{kind} {along} = row + x, {last} = column + y;"));
        let element = e.read_at(self.read, &self.offset);
        e.line(inside(&along, &last) + &format!(" tile[x * {} + y] = {element};", TILE + 1));
        e.close();
        e.line("__syncthreads();");
        e.open(&turns);
        e.line(format!("{kind} {along} = row + y, {last} = column + x;"));
        e.open(&inside(&along, &last));
        let place = format!("tile[y * {} + x]", TILE + 1);
        e.instead = Some(((self.read, self.offset.clone()), place));
        let slots: Vec<Slot> = axes.iter().map(|a| a.0).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let text = e.element(v, &index);
        store(e, dtype, shape, &slots, &text);
        e.close();
        e.close();
        let batch: i64 = others.iter().map(|a| a.1).product();
        ((batch * down * across) as u64, THREADS as u32)
    }
}
