//! SIMT mainloop: every thread reads lines of both factors and accumulates their outer product.

use super::super::emit::{Emitter, StatementWriter, coordinates, vector_width};
use super::super::spelling as spell;
use super::smem_pipeline::{TileElement, TileLayout};
use super::tile_config::SIDE;
use super::{Mainloop, Product};

/// Elements that a thread reads from shared memory at once, of so many.
fn at_once(elements: i64, double: bool) -> i64 {
    elements.min(if double { 2 } else { 4 })
}

/// The place of a thread's element in its tile, as the number of a group, a factor and the rest.
pub fn place(own: i64, double: bool, thread: &str, i: &str) -> String {
    let group = at_once(own, double);
    match own / group {
        1 => format!("{thread} * {group} + {i}"),
        groups => {
            let apart = own * SIDE / groups;
            format!("{i} / {group} * {apart} + {thread} * {group} + {i} % {group}")
        }
    }
}

/// The place in its tile of a thread's column: apart from its other ones where the steps of a line lie side by side, so that neighbouring
/// threads read neighbouring lines.
pub fn column(own: i64, double: bool, by_step: bool, i: &str) -> String {
    if by_step { place(own, double, "x", i) } else { format!("{i} * {SIDE} + x") }
}

/// Reads a thread's elements of some steps from `k` on into registers, at once what lies side by side.
fn fetch(
    e: &mut impl StatementWriter,
    f: &TileLayout,
    to: &str,
    own: i64,
    thread: &str,
    steps: i64,
) {
    let (real, double) = (f.element.name(), f.element == TileElement::Real(true));
    if !f.by_step {
        e.line("#pragma unroll");
        e.open(&format!("for (int i = 0; i < {own}; ++i)"));
        let line = if thread == "x" {
            column(own, double, false, "i")
        } else {
            place(own, double, thread, "i")
        };
        let at = f.place("tile", &format!("({line})"), "k");
        e.line(format!("Pack<{real}, {steps}> part = load_pack<{steps}>({} + ({at}));", f.name));
        e.line("#pragma unroll");
        e.line(format!("for (int s = 0; s < {steps}; ++s) {to}[s][i] = part.at[s];"));
        return e.close();
    }
    let group = at_once(own, double);
    open_unrolled(e, "s", steps);
    e.line("#pragma unroll");
    e.open(&format!("for (int g = 0; g < {}; ++g)", own / group));
    let line = format!("g * {} + {thread} * {group}", SIDE * group);
    let at = f.place("tile", &line, if steps == 1 { "k" } else { "(k + s)" });
    e.line(format!("Pack<{real}, {group}> part = load_pack<{group}>({} + ({at}));", f.name));
    e.line("#pragma unroll");
    e.line(format!("for (int i = 0; i < {group}; ++i) {to}[s][g * {group} + i] = part.at[i];"));
    e.close();
    e.close();
}

/// Opens a loop over parts of a thread's elements.
pub fn open_unrolled(e: &mut impl StatementWriter, name: &str, count: i64) {
    e.line("#pragma unroll");
    e.open(&format!("for (int {name} = 0; {name} < {count}; ++{name})"));
}

/// Writes the steps of a tile; several at once where the steps of a line lie side by side.
pub fn multiply(e: &mut impl StatementWriter, p: &Mainloop, left: &TileLayout, right: &TileLayout) {
    let (t, real) = (p.tiling, spell::real(p.double));
    let steps = if left.by_step && right.by_step { 1 } else { p.element.widest() };
    let depth = p.tiling.step;
    e.line("#pragma unroll");
    e.open(&format!("for (int k = 0; k < {depth}; k += {steps})"));
    e.line(format!("{real} a[{steps}][{}], b[{steps}][{}];", t.rows, t.columns));
    fetch(e, left, "a", t.rows, "y", steps);
    fetch(e, right, "b", t.columns, "x", steps);
    e.line("#pragma unroll");
    e.line(format!("for (int s = 0; s < {steps}; ++s)"));
    e.line("  #pragma unroll");
    e.line(format!("  for (int i = 0; i < {}; ++i)", t.rows));
    e.line("    #pragma unroll");
    e.line(format!("    for (int j = 0; j < {}; ++j) sum[i][j] += a[s][i] * b[s][j];", t.columns));
    e.close();
}

/// Declares the place of a thread in a tile, of which a warp takes four by eight threads' elements, and its sums.
pub fn declare(e: &mut impl StatementWriter, p: &Mainloop) {
    let (t, real) = (p.tiling, spell::real(p.double));
    e.line("int warp = threadIdx.x / 32;");
    e.line("int y = warp / 2 * 4 + threadIdx.x % 32 / 8, x = warp % 2 * 8 + threadIdx.x % 8;");
    e.line(format!("{real} sum[{}][{}] = {{}};", t.rows, t.columns));
}

/// Writes the loops over a thread's elements; `by_step` says how tiles of the right factor lie.
pub fn results(
    e: &mut Emitter<'_>,
    p: &Product,
    by_step: bool,
    store: &mut dyn FnMut(&mut Emitter<'_>, &str),
) {
    let t = p.tiling;
    let kind = e.index_type();
    let group = at_once(t.columns, p.double);
    let mut width = vector_width(&p.columns, group);
    let accesses =
        e.count_accesses(|e| e.lanes("across", &p.columns, width, |e| store(e, "sum[0][0]")));
    if accesses.vectorized == 0 || !by_step {
        width = 1;
    }
    open_unrolled(e, "i", t.rows);
    open_unrolled(e, "j", t.columns / width);
    let j = if width == 1 { "j".into() } else { format!("(j * {width})") };
    let (i, j) = (place(t.rows, p.double, "y", "i"), column(t.columns, p.double, by_step, &j));
    e.line(format!("{kind} down = row + {i}, across = column + {j};"));
    e.open(&p.inside());
    coordinates(e, "down", &p.rows);
    e.lanes("across", &p.columns, width, |e| {
        let lane = if width == 1 { "j".to_string() } else { format!("j * {width} + lane") };
        store(e, &format!("sum[i][{lane}]"));
    });
    e.close();
    e.close();
    e.close();
}
