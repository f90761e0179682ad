//! Tiled contractions: a block accumulates a tile of the result in registers.
//!
//! Factors that are strided reads of memory, or 0 outside of it, go to shared memory by `cp.async`, in copies of
//! 16 bytes where elements are contiguous and 4 at least.
//! Others are computed where they are loaded: their tiles are double-buffered in shared memory, and the next one is prefetched
//! through registers while one is multiplied. The epilogue is computed where results are stored. The mainloop is
//! [`simt`], [`mma`] or [`warpgroups`].

use super::super::emit::{Emitter, coordinates};
use super::smem_pipeline::{FactorTile, TileElement};
use super::tile_config::SIDE;
use super::{Product, size};
use super::{mma, simt, split_k, warpgroups};
use mlc_backends::reference::code::Slot;

/// Writes the function that computes a product; `store` gets an element's sum. Returns the blocks.
pub fn write(
    e: &mut Emitter<'_>,
    p: &Product,
    part: Slot,
    store: &mut dyn FnMut(&mut Emitter<'_>, &str),
) -> u64 {
    let t = p.tiling;
    let (m, n, depth) = (size(&p.rows), size(&p.columns), size(&p.deep));
    let (tile_rows, tile_columns) = (t.rows * SIDE, t.columns * SIDE);
    let up = |a: i64, b: i64| a / b + i64::from(a % b != 0);
    let (down, across) = (up(m, tile_rows), up(n, tile_columns));
    let (kind, block, tiles) = (e.index_type(), e.block(), down * across);
    e.line(format!("{kind} row = {block} / {across} % {down} * {tile_rows};"));
    e.line(format!("{kind} column = {block} % {across} * {tile_columns};"));
    e.line(format!("{kind} batch = {block} / {tiles};"));
    coordinates(e, "batch", &[vec![(part, t.parts)], p.batch.clone()].concat());
    let left = FactorTile::new(e, p, 0, tile_rows, p.element_of(0));
    let right = FactorTile::new(e, p, 1, tile_columns, p.element_of(1));
    let copied = left.copied(e).zip(right.copied(e));
    match p.element {
        _ if t.by_warpgroups => warpgroups::declare(e, p),
        TileElement::Real(_) => simt::declare(e, &p.mainloop()),
        _ => mma::declare(e, &p.mainloop()),
    }
    let of_part = t.depth_of_part(depth);
    match t.parts {
        1 => e.line(format!("const {kind} begin = 0, end = {depth};")),
        _ => {
            let part = Emitter::name(part);
            e.line(format!("{kind} begin = {part} * {of_part};"));
            e.line(format!(
                "{kind} end = begin + {of_part} < {depth} ? begin + {of_part} : {depth};"
            ));
        }
    }
    let right = match copied {
        Some((left, right)) => {
            let write = if t.by_warpgroups { warpgroups::ahead } else { ahead };
            write(e, p, &left, &right, of_part.min(depth));
            right
        }
        None => {
            let write =
                if t.by_warpgroups { warpgroups::through_registers } else { through_registers };
            write(e, p, &left, &right);
            right
        }
    };
    if t.parts > 1 {
        let columns = t.columns / 2;
        split_k::registers(e, p, part, &|i| match p.element {
            _ if t.by_warpgroups => format!("sum[{i}]"),
            TileElement::Real(_) => format!("sum[({i}) / {0}][({i}) % {0}]", t.columns),
            _ => format!("sum[({i}) / {0}][({i}) / 4 % {1}][({i}) % 4]", 4 * columns, columns),
        });
    }
    match p.element {
        _ if t.by_warpgroups => warpgroups::results(e, p, store),
        TileElement::Real(_) => simt::results(e, p, right.layout.by_step, store),
        _ => mma::results(e, p, store),
    }
    (size(&p.batch) * t.parts * tiles) as u64
}

/// Writes the steps of a tile.
fn multiply(e: &mut Emitter<'_>, p: &Product, left: &FactorTile<'_>, right: &FactorTile<'_>) {
    let (p, left, right) = (p.mainloop(), &left.layout, &right.layout);
    match p.element {
        TileElement::Real(_) => simt::multiply(e, &p, left, right),
        _ => mma::multiply(e, &p, left, right),
    }
}

/// Writes the loop over tiles that pass through registers: while one is multiplied, the next one is loaded.
fn through_registers(
    e: &mut Emitter<'_>,
    p: &Product,
    left: &FactorTile<'_>,
    right: &FactorTile<'_>,
) {
    let (kind, deep) = (e.index_type(), p.tiling.step);
    match p.tiling.is_large {
        true => {
            declare_large(e, left, right, 2);
            left.declare_next(e);
            right.declare_next(e);
        }
        false => {
            left.declare(e);
            right.declare(e);
        }
    }
    e.line("int tile = 0;");
    e.open(&format!("for ({kind} from = begin - {deep}; from < end; from += {deep})"));
    e.line(format!("{kind} next = from + {deep};"));
    e.open("if (next < end)");
    let has_tail = size(&p.deep) % deep != 0;
    left.load(e, has_tail);
    right.load(e, has_tail);
    e.close();
    e.open("if (from >= begin)");
    multiply(e, p, left, right);
    e.close();
    e.open("if (next < end)");
    left.store(e);
    right.store(e);
    e.close();
    e.line("__syncthreads();");
    e.line("tile = 1 - tile;");
    e.close();
}

/// Declares so many tiles of both factors, in memory that is asked for at the launch.
pub fn declare_large(
    e: &mut Emitter<'_>,
    left: &FactorTile<'_>,
    right: &FactorTile<'_>,
    tiles: i64,
) {
    let name = left.layout.element.name();
    e.line(format!(
        "LARGE_SHARED({name}, left, {});",
        tiles * (left.layout.tile() + right.layout.tile())
    ));
    e.line(format!("auto right = left + {};", tiles * left.layout.tile()));
}

/// Writes a group of copies of the next tiles of both factors, which is empty where none is left.
pub fn copy(e: &mut Emitter<'_>, factors: [&FactorTile<'_>; 2], to: &str, has_tail: bool) {
    e.open("if (next < end)");
    factors.iter().for_each(|f| f.copy(e, to, has_tail));
    e.close();
    e.line("commit_copies();");
}

/// Writes the copies of so many first tiles, each of this depth, and opens the loop over tiles, which begins with waiting for the next one.
pub fn begin_copies(
    e: &mut Emitter<'_>,
    factors: [&FactorTile<'_>; 2],
    others: i64,
    deep: i64,
    has_tail: bool,
) {
    let kind = e.index_type();
    e.line("#pragma unroll");
    e.open(&format!("for (int early = 0; early < {others}; ++early)"));
    e.line(format!("{kind} next = begin + early * {deep};"));
    copy(e, factors, "early", has_tail);
    e.close();
    e.line("int tile = 0;");
    e.open(&format!("for ({kind} from = begin; from < end; from += {deep})"));
    e.line(format!("wait_copies<{}>();", others - 1));
}

/// Writes the loop over tiles that are copied ahead of their use, where at most so much of the depth is left: a group of copies for each
/// tile, also where none is left, so that the number of groups says which one is there.
fn ahead(
    e: &mut Emitter<'_>,
    p: &Product,
    left: &FactorTile<'_>,
    right: &FactorTile<'_>,
    depth: i64,
) {
    let (kind, deep) = (e.index_type(), p.tiling.step);
    let bytes = (left.layout.tile() + right.layout.tile()) * 16 / p.element.widest();
    let tiles = p.tiling.tiles(bytes, depth);
    let (others, has_tail) = (tiles - 1, size(&p.deep) % deep != 0);
    e.line(format!("// Tiles are copied to shared memory ahead of their use: {tiles} are there or on their way."));
    match p.tiling.is_large {
        true => declare_large(e, left, right, tiles),
        false => {
            left.declare_copied(e, tiles);
            right.declare_copied(e, tiles);
        }
    }
    begin_copies(e, [left, right], others, deep, has_tail);
    // Behind it all threads' copies are there, and the tile before is no longer read.
    e.line("__syncthreads();");
    e.line(format!("{kind} next = from + {};", others * deep));
    e.line(format!("int to = (tile + {others}) % {tiles};"));
    copy(e, [left, right], "to", has_tail);
    multiply(e, p, left, right);
    e.line(format!("tile = (tile + 1) % {tiles};"));
    e.close();
}
