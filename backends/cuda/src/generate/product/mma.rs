//! Tensor-core mainloop (`mma`): eight warps, two by four, multiply fragments of the tiles in shared memory.
//!
//! Register layouts are those of `MMA` in `prelude.cuh`. Accumulators have 32 bits. Where a zero point is added to an integer factor so
//! that it fits a byte, the other factor is also multiplied with ones, which gives what a sum is too large by.

use super::super::emit::{Emitter, StatementWriter, coordinates, vector_width};
use super::simt::open_unrolled;
use super::smem_pipeline::{TileElement, TileLayout};
use super::tile_config::SIDE;
use super::{Int8Factors, Mainloop, Product};
use mlc_dsl::ir::DType;

/// Rows and columns of the warps of a block.
const DOWN: i64 = 2;
const ACROSS: i64 = 4;

/// Fragments of a warp, of 16 rows and of 8 columns.
pub fn fragments(p: &Mainloop) -> (i64, i64) {
    (p.tiling.rows * SIDE / DOWN / 16, p.tiling.columns * SIDE / ACROSS / 8)
}

/// Declares the place of a thread in its warp and of the warp in a tile, and the thread's sums.
pub fn declare(e: &mut impl StatementWriter, p: &Mainloop) {
    let (rows, columns) = fragments(p);
    e.line("int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, within = lane % 4;");
    e.line(format!("int y = warp / {ACROSS} * {} + group;", rows * 16));
    e.line(format!("int x = warp % {ACROSS} * {};", columns * 8));
    let number = if p.bytes.is_some() { "int" } else { "float" };
    e.line(format!("{number} sum[{rows}][{columns}][4] = {{}};"));
    if let Some(side) = shifted(p) {
        let count = [columns, rows][side];
        e.line(format!("int others[{count}][4] = {{}};"));
        let ones = ["0x01010101"; 4];
        let registers = [4, 2][side];
        e.line(format!("const unsigned ones[{registers}] = {{{}}};", ones[..registers].join(", ")));
    }
}

/// The factor to which something is added: that of rows (0) or of columns (1).
pub fn shifted(p: &Mainloop) -> Option<usize> {
    p.bytes.and_then(|b| b.shifts.iter().position(|s| *s != 0))
}

/// The bits of the elements of a line that a register holds, from a step on.
fn word(f: &TileLayout, line: &str, step: &str) -> String {
    let at = |step: &str| f.place("tile", line, step);
    match f.element {
        TileElement::Byte(_) => format!("load_word({} + ({}))", f.name, at(step)),
        _ => format!("tf32_bits({}[{}])", f.name, at(step)),
    }
}

/// Reads four matrices of 8 by 8 elements of 16 bits, of which each lane names eight elements side by side: `line` and `step` of the
/// first of them. Where the lines of a step lie side by side in shared memory, they are turned.
fn four_matrices(e: &mut impl StatementWriter, f: &TileLayout, to: &str, line: &str, step: &str) {
    let load = if f.by_step { "load_matrices_turned" } else { "load_matrices" };
    e.line(format!("{load}({to}, {} + ({}));", f.name, f.place("tile", line, step)));
}

/// Reads a fragment of 16 rows and 16 steps: its quarters are those of 8 rows and 8 steps, first along the rows.
fn matrices_of_rows(e: &mut impl StatementWriter, left: &TileLayout) {
    let (line, step) = match left.by_step {
        true => ("lane / 8 % 2 * 8", "lane / 16 * 8 + lane % 8"),
        false => ("lane % 16", "lane / 16 * 8"),
    };
    let line = format!("(y - group + i * 16 + {line})");
    four_matrices(e, left, "a", &line, &format!("(k + {step})"));
}

/// Reads fragments of 8 columns and 16 steps: two at once, or one of 32 steps.
fn matrices_of_columns(e: &mut impl StatementWriter, right: &TileLayout, columns: i64) {
    if columns == 1 {
        let (line, step) =
            if right.by_step { ("x", "lane") } else { ("x + lane % 8", "lane / 8 * 8") };
        e.open("if (k % 32 == 0)");
        four_matrices(e, right, "four", &format!("({line})"), &format!("(k + {step})"));
        e.close();
        e.line("b[0][0] = four[k / 16 % 2 * 2];");
        return e.line("b[0][1] = four[k / 16 % 2 * 2 + 1];");
    }
    let (line, step) = match right.by_step {
        true => ("lane / 16 * 8", "lane % 16"),
        false => ("lane / 16 * 8 + lane % 8", "lane / 8 % 2 * 8"),
    };
    e.line("#pragma unroll");
    e.open(&format!("for (int j = 0; j < {columns}; j += 2)"));
    e.line("unsigned four[4];");
    let line = format!("(x + j * 8 + {line})");
    four_matrices(e, right, "four", &line, &format!("(k + {step})"));
    e.line("b[j][0] = four[0];");
    e.line("b[j][1] = four[1];");
    e.line("b[j + 1][0] = four[2];");
    e.line("b[j + 1][1] = four[3];");
    e.close();
}

/// Writes the steps of a tile.
pub fn multiply(e: &mut impl StatementWriter, p: &Mainloop, left: &TileLayout, right: &TileLayout) {
    let (rows, columns) = fragments(p);
    let bytes = |b: Int8Factors| {
        let [a, b] = b.types.map(|d| if d == DType::U8 { "u8" } else { "s8" });
        format!("mma_16832_{a}{b}")
    };
    let of_bytes = p.bytes.map(bytes).unwrap_or_default();
    let (name, steps, own, apart) = match p.element {
        TileElement::Byte(_) => (of_bytes.as_str(), 32, "within * 4", 16),
        TileElement::Half(DType::BF16) => ("mma_16816_bf16", 16, "within * 2", 8),
        TileElement::Half(_) => ("mma_16816", 16, "within * 2", 8),
        _ => ("mma_1688_tf32", 8, "within", 4),
    };
    if let (TileElement::Half(_), 1) = (p.element, columns) {
        e.line("unsigned four[4];");
    }
    e.line("#pragma unroll");
    e.open(&format!("for (int k = 0; k < {}; k += {steps})", p.tiling.step));
    let step = [format!("(k + {own})"), format!("(k + {own} + {apart})")];
    let is_half = matches!(p.element, TileElement::Half(_));
    e.line(format!("unsigned b[{columns}][2];"));
    if is_half {
        matrices_of_columns(e, right, columns);
    } else {
        open_unrolled(e, "j", columns);
        for (i, step) in step.iter().enumerate() {
            e.line(format!("b[j][{i}] = {};", word(right, "(x + j * 8 + group)", step)));
        }
        if shifted(p) == Some(0) {
            e.line(format!("{name}(others[j], ones, b[j]);"));
        }
        e.close();
    }
    open_unrolled(e, "i", rows);
    e.line("unsigned a[4];");
    if is_half {
        matrices_of_rows(e, left);
    } else {
        for (i, step) in step.iter().enumerate() {
            e.line(format!("a[{}] = {};", 2 * i, word(left, "(y + i * 16)", step)));
            e.line(format!("a[{}] = {};", 2 * i + 1, word(left, "(y + i * 16 + 8)", step)));
        }
    }
    if shifted(p) == Some(1) {
        e.line(format!("{name}(others[i], a, ones);"));
    }
    e.line("#pragma unroll");
    e.line(format!("for (int j = 0; j < {columns}; ++j) {name}(sum[i][j], a, b[j]);"));
    e.close();
    e.close();
}

/// Writes the loops over a thread's elements, of which two lie side by side.
pub fn results(e: &mut Emitter<'_>, p: &Product, store: &mut dyn FnMut(&mut Emitter<'_>, &str)) {
    let kind = e.index_type();
    let of = p.mainloop();
    let (rows, columns) = fragments(&of);
    let mut width = vector_width(&p.columns, 2);
    let accesses =
        e.count_accesses(|e| e.lanes("across", &p.columns, width, |e| store(e, "sum[0][0][0]")));
    if accesses.vectorized == 0 {
        width = 1;
    }
    open_unrolled(e, "i", 2 * rows);
    open_unrolled(e, "j", columns * 2 / width);
    let j = if width == 1 { "j / 2 * 8 + within * 2 + j % 2" } else { "j * 8 + within * 2" };
    e.line(format!("{kind} down = row + y + i * 8, across = column + x + {j};"));
    e.open(&p.inside());
    coordinates(e, "down", &p.rows);
    let [tile, lane] = if width == 1 { ["j / 2", "j % 2"] } else { ["j", "lane"] };
    e.lanes("across", &p.columns, width, |e| {
        let sum = format!("sum[i / 2][{tile}][i % 2 * 2 + {lane}]");
        let Some(side) = shifted(&of) else { return store(e, &sum) };
        let others = [format!("others[{tile}][{lane}]"), "others[i / 2][i % 2 * 2]".into()];
        let by = p.bytes.map_or(0, |b| b.shifts[side]);
        let others = format!("{by}u * (unsigned){}", others[side]);
        e.line(format!("long long total = (int)((unsigned){sum} - {others});"));
        store(e, "total");
    });
    e.close();
    e.close();
    e.close();
}
