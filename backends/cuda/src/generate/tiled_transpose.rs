//! Tiled transpose: an operand read across the lines of the result goes through a tile in shared memory, so that both loads and stores
//! are coalesced.

use super::emit::{Emitter, coordinates};
use super::grid::GridSize;
use super::product::simt::open_unrolled;
use super::spelling as spell;
use mlc_backends::reference::code::{Affine, Int, Slot};
use mlc_dsl::ir::{DType, Value};

/// Lines of a tile, and elements of each: as many as make 128 bytes of most types.
const TILE: i64 = 32;
/// The same of types of two bytes, where both axes have as many.
const WIDE: i64 = 64;
/// Tiles down that neighbouring blocks take before they go on across: what they read and write at about the same time is then longer pieces
/// of lines, on both sides.
const GROUPS: [i64; 4] = [16, 8, 4, 2];
/// Threads of a block.
const THREADS: i64 = 256;
/// Elements of an axis from which on a tile pays.
const LEAST: i64 = 8;

/// What is read across.
pub struct TiledTranspose {
    read: Value,
    offset: Affine,
    /// The axis that it lies side by side along, and the last one of the result.
    along: (Slot, i64),
    last: (Slot, i64),
}

impl TiledTranspose {
    /// The first read of a value's element, at these axes, that is across; one that happens whatever the elements are.
    pub fn recognise(
        e: &mut Emitter<'_>,
        v: Value,
        index: &[Int],
        axes: &[(Slot, i64)],
    ) -> Option<TiledTranspose> {
        let last = *axes.iter().rev().find(|a| a.1 != 1)?;
        let found = e.analyse(&[(v, index.to_vec())]);
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
            Some(TiledTranspose { read, offset, along, last })
        })
    }

    /// Writes the function.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        v: Value,
        dtype: DType,
        shape: &[i64],
        axes: &[(Slot, i64)],
    ) -> GridSize {
        let of = e.type_of(self.read);
        let is_wide = of.size() == 2 && self.along.1 >= WIDE && self.last.1 >= WIDE;
        let tile = if is_wide { WIDE } else { TILE };
        let up = |n: i64| n / tile + i64::from(n % tile != 0);
        let (down, across) = (up(self.along.1), up(self.last.1));
        let group = GROUPS.into_iter().find(|g| down % g == 0).unwrap_or(1);
        let others: Vec<(Slot, i64)> =
            axes.iter().copied().filter(|a| *a != self.along && *a != self.last).collect();
        let (kind, block, lines) = (e.index_type(), e.block(), THREADS / tile);
        e.line(format!("SHARED({}, tile, {});", spell::stored(of), tile * (tile + 1)));
        let below = group * across;
        e.line(format!(
            "{kind} row = ({block} / {below} % {} * {group} + {block} % {group}) * {tile};",
            down / group
        ));
        e.line(format!("{kind} column = {block} / {group} % {across} * {tile};"));
        e.line(format!("{kind} batch = {block} / {};", down * across));
        coordinates(e, "batch", &others);
        e.line(format!("int x = threadIdx.x % {tile};"));
        let [along, last] = [self.along.0, self.last.0].map(Emitter::name);
        let is_whole = self.along.1 % tile == 0 && self.last.1 % tile == 0;
        let inside = |row: &str, column: &str| match is_whole {
            true => String::new(),
            false => format!("if ({row} < {} && {column} < {})", self.along.1, self.last.1),
        };
        let y = format!("int y = threadIdx.x / {tile} + turn * {lines};");
        open_unrolled(e, "turn", tile / lines);
        e.line(&y);
        e.line(format!("{kind} {along} = row + x, {last} = column + y;"));
        let element = e.read_at(self.read, &self.offset);
        let kept = format!("{} tile[x * {} + y] = {element};", inside(&along, &last), tile + 1);
        e.line(kept.trim_start());
        e.close();
        e.line("__syncthreads();");
        open_unrolled(e, "turn", tile / lines);
        e.line(&y);
        e.line(format!("{kind} {along} = row + y, {last} = column + x;"));
        if !is_whole {
            e.open(&inside(&along, &last));
        }
        let place = format!("tile[y * {} + x]", tile + 1);
        e.substitute = Some(((self.read, self.offset.clone()), place));
        let slots: Vec<Slot> = axes.iter().map(|a| a.0).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let text = e.element(v, &index);
        e.store_result(dtype, shape, &slots, &text);
        if !is_whole {
            e.close();
        }
        e.close();
        let batch: i64 = others.iter().map(|a| a.1).product();
        GridSize { blocks: (batch * down * across) as u64, threads: THREADS as u32 }
    }
}
