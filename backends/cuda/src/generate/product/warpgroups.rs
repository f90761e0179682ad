//! Hopper mainloop (`wgmma`): two warpgroups, below or beside each other, each multiply 64 rows of a tile with up to 256 columns, which
//! the instructions read from shared memory asynchronously.
//!
//! Tiles are 64 steps deep, so that a row of shared memory (`warpgroups.cuh`) holds those of a line, or 64 lines of a step. Only compute
//! capability 9.0 has these instructions.

use super::super::emit::coordinates;
use super::super::emit::{Emitter, vector_width};
use super::simt::open_unrolled;
use super::smem_pipeline::{FactorTile, TileElement};
use super::split_k;
use super::tile_config::{SIDE, Tiling};
use super::tiled::{begin_copies, copy, declare_large};
use super::{Product, size};
use mlc_dsl::ir::DType;

/// Rows of a warpgroup, and the depth of a tile.
const ROWS: i64 = 64;
const DEPTH: i64 = 64;
/// Steps of an instruction.
const STEPS: i64 = 16;
/// Bytes of a row of shared memory, and of eight of them.
const ROW: i64 = 128;
const PATTERN: i64 = 8 * ROW;
/// Bytes that the blocks of a multiprocessor share, and what the system takes of them for each.
const SHARED: i64 = 228 << 10;
const SYSTEM: i64 = 1 << 10;
/// Registers that a thread has at most: as many are needed for 128 sums, and for sums beside what is on its way.
const MOST_REGISTERS: u32 = 255;
/// Tiles that are in shared memory or on their way at most: one is multiplied by warpgroups that are behind, one by the others.
const MOST: i64 = 4;

/// Rows and columns of tiles, by 16.
const TILES: [(i64, i64); 5] = [(8, 16), (8, 8), (8, 4), (4, 16), (4, 8)];
/// Parts of the depth, and the least depth of one.
const PARTS: [i64; 5] = [1, 2, 4, 8, 16];
const PART: i64 = 256;

/// Multiplications in a nanosecond on a multiprocessor, of a block alone and of two, for each of which tensor cores wait less: three quarters of
/// what is published, and half. What all blocks read comes from the cache that they share, as fast as `Tiling` has it.
const RATES: [f64; 2] = [1800.0, 2700.0];
const SHARED_CACHE: f64 = 34.0;

/// The tiling of a product of these sizes, where warpgroups can multiply it.
pub fn tiling(
    [batch, m, n, depth]: [i64; 4],
    element: TileElement,
    processors: u32,
) -> Option<Tiling> {
    let TileElement::Half(_) = element else { return None };
    if m < ROWS || n < ROWS {
        return None;
    }
    let up = |a: i64, b: i64| (a / b + i64::from(a % b != 0)) as f64;
    let time = |t: &Tiling| {
        let (rows, columns) = (t.rows * SIDE, t.columns * SIDE);
        let tiles = batch as f64 * up(m, rows) * up(n, columns);
        let blocks = tiles * t.parts as f64;
        let rounds = (blocks / f64::from(processors)).ceil();
        let is_large = rows * columns == 2 * ROWS * 256;
        let rate = RATES[usize::from(is_large || rounds > 1.0)];
        let part = t.depth_of_part(depth) as f64;
        let work = rounds * (rows * columns) as f64 * part / rate;
        let bytes = 2 * (rows + columns);
        let read = blocks * bytes as f64 * part / (SHARED_CACHE * f64::from(processors));
        work.max(read) + split_k::nanoseconds(t.parts, rows * columns, tiles, processors)
    };
    let parts = PARTS.into_iter().filter(|p| *p == 1 || depth / p >= PART);
    let all = parts.flat_map(|parts| {
        TILES.into_iter().map(move |(rows, columns)| Tiling {
            rows,
            columns,
            parts,
            step: DEPTH,
            is_large: true,
            by_warpgroups: true,
        })
    });
    all.min_by(|a, b| time(a).total_cmp(&time(b)))
}

/// Warpgroups beside each other, and the columns of each.
fn across(p: &Product) -> (i64, i64) {
    let beside = 2 * ROWS / (p.tiling.rows * SIDE);
    (beside, p.tiling.columns * SIDE / beside)
}

/// The place in a tile of so many lines: rows of a line's steps, or of a step's lines, 64 of them after another.
pub fn place(lines: i64, by_step: bool, line: &str, step: &str) -> String {
    match by_step {
        false => format!("swizzled({line}, {step})"),
        true if lines == DEPTH => format!("swizzled({step}, {line})"),
        true => format!("{line} / 64 * {} + swizzled({step}, {line} % 64)", DEPTH * DEPTH),
    }
}

/// Declares the place of a thread in its tile and its sums.
pub fn declare(e: &mut Emitter<'_>, p: &Product) {
    let (beside, columns) = across(p);
    e.line("int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32, within = lane % 4;");
    let (down, right) = match beside {
        1 => (format!("warpgroup * {ROWS}"), "0".into()),
        _ => ("0".into(), format!("warpgroup * {columns}")),
    };
    e.line(format!("int top = {down}, x = {right};"));
    e.line("int y = top + threadIdx.x / 32 % 4 * 16 + lane / 4;");
    e.line(format!("SUMS(sum, {});", columns / 2));
    if columns == 256 {
        e.registers = Some(MOST_REGISTERS);
    }
}

/// The descriptor of a factor's matrix of the steps from `k` on, whose first line is this one.
fn matrix(f: &FactorTile<'_>, line: &str) -> String {
    let (name, tile) = (f.layout.name, f.layout.tile());
    match f.layout.by_step {
        false => {
            format!("matrix_at({name} + (tile * {tile} + {line} * {DEPTH} + k), 16, {PATTERN})")
        }
        true => {
            let lines = DEPTH * ROW;
            format!(
                "matrix_at({name} + (tile * {tile} + {line} * {DEPTH} + k * {DEPTH}), {lines}, {PATTERN})"
            )
        }
    }
}

/// Writes the products of a tile, as a group that is not waited for.
fn multiply(e: &mut Emitter<'_>, p: &Product, left: &FactorTile<'_>, right: &FactorTile<'_>) {
    let name = match p.element {
        TileElement::Half(DType::BF16) => "wgmma_bf16",
        _ => "wgmma_f16",
    };
    let turned = [left, right].map(|f| i32::from(f.layout.by_step));
    e.line("begin_products(sum);");
    e.line("#pragma unroll");
    e.open(&format!("for (int k = 0; k < {DEPTH}; k += {STEPS})"));
    let (a, b) = (matrix(left, "top"), matrix(right, "x"));
    e.line(format!("{name}<{}, {}>(sum, {a}, {b});", turned[0], turned[1]));
    e.close();
    e.line("end_products();");
}

/// Writes the loop over tiles that are copied ahead of their use, as for other products. While a tile is multiplied, warpgroups may begin with
/// the next one; what is copied takes the place of the tile before these.
pub fn ahead(
    e: &mut Emitter<'_>,
    p: &Product,
    left: &FactorTile<'_>,
    right: &FactorTile<'_>,
    depth: i64,
) {
    let (kind, has_tail) = (e.index_type(), size(&p.deep) % DEPTH != 0);
    let bytes = 2 * (left.layout.tile() + right.layout.tile());
    let is_alone = across(p).1 == 256 || 3 * bytes > SHARED / 2 - SYSTEM;
    let room = if is_alone { SHARED } else { SHARED / 2 } - SYSTEM;
    let tiles = (room / bytes).min(depth / DEPTH + 2).clamp(3, MOST);
    let others = tiles - 2;
    e.line(format!(
        "// Tiles are copied to shared memory ahead of their use: {tiles} are there or on their way."
    ));
    declare_large(e, left, right, tiles);
    begin_copies(e, [left, right], others, DEPTH, has_tail);
    e.line("fence_shared();");
    // Behind it all threads' copies are there, and the tile before the last one is no longer read.
    e.line("__syncthreads();");
    multiply(e, p, left, right);
    e.line(format!("{kind} next = from + {};", others * DEPTH));
    e.line(format!("int to = (tile + {others}) % {tiles};"));
    copy(e, [left, right], "to", has_tail);
    e.line("wait_products<1>(sum);");
    e.line(format!("tile = (tile + 1) % {tiles};"));
    e.close();
    e.line("wait_products<0>(sum);");
}

/// Writes the loop over tiles that pass through registers: while one is multiplied, the next one is computed.
pub fn through_registers(
    e: &mut Emitter<'_>,
    p: &Product,
    left: &FactorTile<'_>,
    right: &FactorTile<'_>,
) {
    let (kind, has_tail) = (e.index_type(), size(&p.deep) % DEPTH != 0);
    e.registers = Some(MOST_REGISTERS);
    declare_large(e, left, right, 2);
    left.declare_next(e);
    right.declare_next(e);
    e.line("int tile = 0;");
    e.open(&format!("for ({kind} from = begin - {DEPTH}; from < end; from += {DEPTH})"));
    e.line(format!("{kind} next = from + {DEPTH};"));
    e.open("if (from >= begin)");
    multiply(e, p, left, right);
    e.close();
    e.open("if (next < end)");
    left.load(e, has_tail);
    right.load(e, has_tail);
    left.store(e);
    right.store(e);
    e.close();
    e.line("fence_shared();");
    e.line("wait_products<0>(sum);");
    e.line("__syncthreads();");
    e.line("tile = 1 - tile;");
    e.close();
}

/// Writes the loops over a thread's elements, of which two lie side by side.
pub fn results(e: &mut Emitter<'_>, p: &Product, store: &mut dyn FnMut(&mut Emitter<'_>, &str)) {
    let kind = e.index_type();
    let columns = across(p).1;
    let mut width = vector_width(&p.columns, 2);
    let accesses =
        e.count_accesses(|e| e.lanes("across", &p.columns, width, |e| store(e, "sum[0]")));
    if accesses.vectorized == 0 {
        width = 1;
    }
    open_unrolled(e, "i", 2);
    open_unrolled(e, "j", columns / 4 / width);
    let (j, sum) = match width {
        1 => ("j / 2 * 8 + within * 2 + j % 2", "sum[j / 2 * 4 + i * 2 + j % 2]"),
        _ => ("j * 8 + within * 2", "sum[j * 4 + i * 2 + lane]"),
    };
    e.line(format!("{kind} down = row + y + i * 8, across = column + x + {j};"));
    e.open(&p.inside());
    coordinates(e, "down", &p.rows);
    e.lanes("across", &p.columns, width, |e| store(e, sum));
    e.close();
    e.close();
    e.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_as_large_as_keeps_multiprocessors_busy() {
        let half = TileElement::Half(DType::F16);
        for (sizes, expected) in [
            ([1, 4096, 4096, 4096], Some([128, 256, 1])),
            ([1, 1024, 1024, 1024], Some([128, 128, 1])),
            ([1, 512, 512, 512], Some([128, 64, 1])),
            ([1, 3136, 64, 576], Some([128, 64, 1])),
            ([1, 128, 128, 8192], Some([128, 64, 8])),
            ([1, 63, 4096, 4096], None),
        ] {
            let found = tiling(sizes, half, 132);
            let found = found.map(|t| [t.rows * SIDE, t.columns * SIDE, t.parts]);
            assert_eq!(found, expected, "{sizes:?}");
        }
        assert_eq!(tiling([1, 512, 512, 512], TileElement::Tf32, 132), None);
    }

    #[test]
    fn a_tile_is_in_rows_of_128_bytes() {
        assert_eq!(place(64, false, "line", "step"), "swizzled(line, step)");
        assert_eq!(place(64, true, "line", "step"), "swizzled(step, line)");
        assert_eq!(
            place(128, true, "line", "step"),
            "line / 64 * 4096 + swizzled(step, line % 64)"
        );
    }
}
