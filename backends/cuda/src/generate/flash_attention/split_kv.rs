//! Split-KV (Flash-Decoding): blocks leave partial results of their keys in scratch memory, and the last block of the same rows and
//! columns combines them in the order of the parts, so that results are deterministic.
//!
//! A partial result is the sums of the rows' products, then each row's maximum, then each row's sum of exponentials.

use super::block::{AttentionWriter, NameOf, open_inside};
use super::kernel::least;
use super::tiling::AttentionTiling;
use crate::generate::product::simt::open_unrolled;

/// Blocks of a part of the keys.
pub fn tiles(c: &AttentionTiling) -> i64 {
    c.sizes.batch * c.down() * c.across()
}

/// Floats that each of them leaves.
pub fn floats(c: &AttentionTiling) -> i64 {
    (c.rows * (c.columns + 2) + 3) / 4 * 4
}

/// Declares the number of the tile, and where what is left of it, and of this part of it, begins.
pub fn declare(e: &mut impl AttentionWriter) {
    let (floats, kind) = (floats(&e.tiling()), e.index_type());
    let (block, of_part) = e.block_of_part();
    e.line(format!("{kind} tile_of_all = batch * {of_part} + {block} % {of_part};"));
    let all = match e.parts().0.parse::<i64>() {
        Ok(parts) => (parts * floats).to_string(),
        Err(_) => format!("{} * {floats}", e.parts().0),
    };
    e.line(format!("{kind} all_parts = tile_of_all * {all};"));
    e.line(format!("{kind} own_part = all_parts + part * {floats};"));
}

/// Stores what a thread has of a part: sums of a row side by side, and with the first ones what belongs to the row.
pub fn store(e: &mut impl AttentionWriter, width: i64, sum: NameOf<'_>, [total, most]: [&str; 2]) {
    let c = e.tiling();
    let tops = c.rows * c.columns;
    e.line(format!("Pack<float, {width}> some;"));
    open_unrolled(e, "lane", width);
    e.line(format!("some.at[lane] = {};", sum("lane")));
    e.close();
    let place = format!("(down - row) * {} + across - column", c.columns);
    e.line(format!("store_pack(parts + (own_part + {place}), some);"));
    e.open("if (across == column)");
    e.line(format!("parts[own_part + {tops} + down - row] = {most};"));
    e.line(format!("parts[own_part + {} + down - row] = {total};", tops + c.rows));
    e.close();
}

/// Ends all blocks of a tile but the last one, which combines what they have left and stores what it becomes.
pub fn combine(e: &mut impl AttentionWriter) {
    let c = e.tiling();
    let (floats, kind, tops) = (floats(&c), e.index_type(), c.rows * c.columns);
    let (parts, most) = e.parts();
    let threads = i64::from(c.threads);
    let width = if c.columns % 4 == 0 && tops >= 4 * threads { 4 } else { 1 };
    e.line("// Of all parts together, by the block that comes last.");
    e.line(format!("if (!comes_last(counts + tile_of_all, {parts})) return;"));
    let thread = if width == 1 { "threadIdx.x".into() } else { format!("threadIdx.x * {width}") };
    e.open(&format!("for (int at = {thread}; at < {tops}; at += {})", threads * width));
    e.line(format!("int r = at / {};", c.columns));
    e.line(format!("{kind} down = row + r, across = column + at % {};", c.columns));
    open_inside(e);
    e.line(format!("float top = {};", least()));
    let of_row = |first: i64| format!("load_one_fresh(parts + (own + {first} + r))");
    open_parts(e, [&parts, kind], floats, most.min(32));
    e.line(format!("top = fmaxf(top, {});", of_row(tops)));
    e.close();
    let base = format!("top == {} ? 0.0f : top", least());
    e.line(format!("float base = {base}, weights = 0, sums[{width}] = {{}};"));
    open_parts(e, [&parts, kind], floats, most.min(16));
    e.line(format!("float weight = exp({} - base);", of_row(tops)));
    e.line(format!("weights += weight * {};", of_row(tops + c.rows)));
    if width == 1 {
        e.line("sums[0] += weight * load_one_fresh(parts + (own + at));");
    } else {
        e.line(format!("Pack<float, {width}> share = load_fresh<{width}>(parts + (own + at));"));
        open_unrolled(e, "lane", width);
        e.line("sums[lane] += weight * share.at[lane];");
        e.close();
    }
    e.close();
    e.finish(width, &|lane| format!("sums[{lane}]"), "weights");
    e.close();
    e.close();
}

/// Opens the loop over the parts, of which the reads of some are on their way together.
fn open_parts(e: &mut impl AttentionWriter, [parts, kind]: [&str; 2], floats: i64, at_once: i64) {
    e.line(format!("#pragma unroll {at_once}"));
    e.open(&format!("for (int i = 0; i < {parts}; ++i)"));
    e.line(format!("{kind} own = all_parts + i * {floats};"));
}
