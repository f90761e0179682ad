//! Split-K in one launch: blocks leave the partial sums of a tile in scratch memory, and the last one to finish adds all of them in the
//! order of the parts, so that results are deterministic.
//!
//! A thread finds its own sums of other blocks at its own position: sums are stored in register order, interleaved by threads.

use super::super::emit::Emitter;
use super::super::spelling as spell;
use super::Product;
use super::simt::open_unrolled;
use super::smem_pipeline::THREADS;
use mlc_backends::reference::code::Slot;

/// Nanoseconds that the blocks of a tile need to meet, and bytes in one of them that a block writes or reads by itself.
const MEETING: f64 = 2000.0;
const BYTES: f64 = 40.0;

/// About how long it takes to add so many parts of so many sums, of these tiles: multiprocessors write a part, or add all parts, one after the
/// other. What fills the device by itself is not cut.
pub fn nanoseconds(parts: i64, sums: i64, tiles: f64, processors: u32) -> f64 {
    if parts == 1 {
        return 0.0;
    }
    let processors = f64::from(processors);
    if tiles > processors {
        return f64::INFINITY;
    }
    let moved = (tiles * parts as f64 / processors).ceil() + parts as f64;
    MEETING + moved * (4 * sums) as f64 / BYTES
}

/// Declares the number of the tile, and where the sums of its parts and of this part begin.
pub fn declare(e: &mut Emitter<'_>, p: &Product, part: Slot) {
    let ([tiles, sums], parts) = (p.tiles(), p.count_of_parts());
    let (kind, block) = (e.index_type(), e.block());
    e.line("// Sums of a part; those of all are added by the block that comes last.");
    e.line(format!("{kind} tile_of_all = {block} % {tiles};"));
    e.line(format!("{kind} all_parts = tile_of_all * {};", parts * sums));
    e.line(format!("{kind} own_part = all_parts + {} * {sums};", Emitter::name(part)));
}

/// Ends all blocks of a tile but the last one.
pub fn wait(e: &mut Emitter<'_>, p: &Product) {
    e.line(format!("if (!comes_last(counts + tile_of_all, {})) return;", p.count_of_parts()));
}

/// The total of a tile's sums at a place, behind [`wait`].
pub fn total(p: &Product, at: &str) -> String {
    let ([_, sums], parts) = (p.tiles(), p.count_of_parts());
    format!("total_of_parts<{parts}, {sums}>(parts + (all_parts + {at}))")
}

/// Has the sums of a thread, of which `sum` spells one by its number, replaced by those of all parts in the last block of a tile.
pub fn registers(e: &mut Emitter<'_>, p: &Product, part: Slot, sum: &dyn Fn(&str) -> String) {
    let ([_, sums], parts) = (p.tiles(), p.count_of_parts());
    let (own, real) = (sums / i64::from(THREADS), spell::real(p.double));
    let width = if p.double { 2 } else { 4 };
    let place = format!("i * {THREADS} + threadIdx.x * {width}");
    declare(e, p, part);
    let packs = |e: &mut Emitter<'_>| {
        e.line("#pragma unroll");
        e.open(&format!("for (int i = 0; i < {own}; i += {width})"));
    };
    packs(e);
    e.line(format!("Pack<{real}, {width}> some;"));
    open_unrolled(e, "lane", width);
    e.line(format!("some.at[lane] = {};", sum("i + lane")));
    e.close();
    e.line(format!("store_pack(parts + (own_part + {place}), some);"));
    e.close();
    wait(e, p);
    packs(e);
    open_unrolled(e, "lane", width);
    e.line(format!("{} = 0;", sum("i + lane")));
    e.close();
    e.close();
    // Reads of so many sums are on their way together.
    e.line(format!("#pragma unroll {}", (64 / own).clamp(1, parts)));
    e.open(&format!("for (int k = 0; k < {parts}; ++k)"));
    packs(e);
    e.line(format!(
        "Pack<{real}, {width}> some = load_fresh<{width}>(parts + (all_parts + k * {sums} + {place}));"
    ));
    open_unrolled(e, "lane", width);
    e.line(format!("{} += some.at[lane];", sum("i + lane")));
    e.close();
    e.close();
    e.close();
}
