//! Sums of products by tiles: a block has a tile of the result in its registers.
//!
//! Tiles of both factors lie in shared memory twice: while one is multiplied, the next one is on its way through registers. A
//! factor is computed where it is loaded, what follows the product where it is stored. A warp's products are ordinary ones
//! ([`tile`]) or those of tensor cores ([`tensor`]).

use super::emit::{Emitter, coordinates};
use super::factor::{Element, Factor};
use super::product::{Product, SIDE, size};
use super::{tensor, tile};
use crate::reference::code::Slot;

/// Writes the function that computes a product; `store` gets an element's sum. Returns the blocks.
pub fn write(
    e: &mut Emitter<'_>,
    p: &Product,
    part: Slot,
    store: &mut dyn FnMut(&mut Emitter<'_>, &str),
) -> u64 {
    let (t, deep) = (p.tiling, p.element.depth());
    let (m, n, depth) = (size(&p.rows), size(&p.columns), size(&p.deep));
    let (tile_rows, tile_columns) = (t.rows * SIDE, t.columns * SIDE);
    let up = |a: i64, b: i64| a / b + i64::from(a % b != 0);
    let (down, across) = (up(m, tile_rows), up(n, tile_columns));
    let (kind, block, tiles) = (e.index_type(), e.block(), down * across);
    e.line(format!("{kind} row = {block} / {across} % {down} * {tile_rows};"));
    e.line(format!("{kind} column = {block} % {across} * {tile_columns};"));
    e.line(format!("{kind} batch = {block} / {tiles};"));
    coordinates(e, "batch", &[vec![(part, t.parts)], p.batch.clone()].concat());
    let left = Factor::new(e, p, 0, tile_rows, p.element);
    let right = Factor::new(e, p, 1, tile_columns, p.element);
    left.declare(e);
    right.declare(e);
    match p.element {
        Element::Real(_) => tile::declare(e, p),
        _ => tensor::declare(e, p),
    }
    let of_part = t.depth_of_part(depth, p.element);
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
    e.line("int half = 0;");
    e.open(&format!("for ({kind} from = begin - {deep}; from < end; from += {deep})"));
    e.line(format!("{kind} next = from + {deep};"));
    e.open("if (next < end)");
    let has_tail = depth % deep != 0;
    left.load(e, has_tail);
    right.load(e, has_tail);
    e.close();
    e.open("if (from >= begin)");
    match p.element {
        Element::Real(_) => tile::multiply(e, p, &left, &right),
        _ => tensor::multiply(e, p, &left, &right),
    }
    e.close();
    e.open("if (next < end)");
    left.store(e);
    right.store(e);
    e.close();
    e.line("__syncthreads();");
    e.line("half = 1 - half;");
    e.close();
    match p.element {
        Element::Real(_) => tile::results(e, p, store),
        _ => tensor::results(e, p, store),
    }
    (size(&p.batch) * t.parts * tiles) as u64
}
