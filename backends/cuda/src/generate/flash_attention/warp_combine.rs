//! Combines the warps of a block that have the same rows and different keys: maxima, sums of exponentials and sums of products.

use super::block::{AttentionWriter, results as store_results};
use super::kernel::least;
use super::tiling::SHARED_COLUMNS;
use crate::generate::product::simt::open_unrolled;

/// Declares what warps tell each other of their rows.
pub fn declare(e: &mut impl AttentionWriter) {
    let c = e.tiling();
    if c.sharing > 1 {
        e.line(format!("SHARED(float, of_rows, {});", c.threads));
    }
}

/// Writes what makes known the largest element so far of the rows of a thread, and names that of the row `i` of them.
pub fn largest(e: &mut impl AttentionWriter) -> String {
    let c = e.tiling();
    if c.sharing == 1 {
        return "most[i]".into();
    }
    e.line("#pragma unroll");
    e.line("for (int i = 0; i < 2; ++i) if (within == 0) of_rows[(warp * 16 + group + i * 8) * 2] = most[i];");
    e.line("__syncthreads();");
    e.line("float tops[2];");
    open_unrolled(e, "i", 2);
    e.line("tops[i] = most[i];");
    let place = format!("((line / 16 * {} + other) * 16 + group + i * 8) * 2", c.sharing);
    e.line(format!(
        "for (int other = 0; other < {}; ++other) tops[i] = fmaxf(tops[i], of_rows[{place}]);",
        c.sharing
    ));
    e.close();
    "tops[i]".into()
}

/// Stores what all warps have together: some columns at a time go through shared memory.
pub fn results(e: &mut impl AttentionWriter, exp: &str) {
    let c = e.tiling();
    let (kind, warps, sharing) = (e.index_type(), c.threads / 32, c.sharing);
    let width = if c.columns % SHARED_COLUMNS == 0 { SHARED_COLUMNS } else { SHARED_COLUMNS / 2 };
    let stride = width + 4;
    e.line(format!("SHARED(float, shares, {});", i64::from(warps) * 16 * stride));
    open_unrolled(e, "i", 2);
    e.open("if (within == 0)");
    e.line("of_rows[(warp * 16 + group + i * 8) * 2] = most[i];");
    e.line("of_rows[(warp * 16 + group + i * 8) * 2 + 1] = total[i];");
    e.close();
    e.close();
    open_unrolled(e, "first", c.columns / width);
    e.line("__syncthreads();");
    for (name, count) in [("i", 2), ("j", width / 8), ("lane", 2)] {
        open_unrolled(e, name, count);
    }
    let to = format!("(warp * 16 + group + i * 8) * {stride} + j * 8 + within * 2 + lane");
    e.line(format!("shares[{to}] = sum[first * {} + j][i * 2 + lane];", width / 8));
    (0..3).for_each(|_| e.close());
    e.line("__syncthreads();");
    let steps = width / 4;
    let accesses = c.rows * steps;
    e.open(&format!("for (int at = threadIdx.x; at < {accesses}; at += {})", c.threads));
    e.line(format!("int place = at / {steps}, step = at % {steps} * 4;"));
    e.line(format!("int from = place / 16 * {} + place % 16;", sharing * 16));
    e.line(format!("{kind} down = row + place, across = column + first * {width} + step;"));
    e.line(format!("float top = {};", least()));
    open_unrolled(e, "other", sharing);
    e.line("top = fmaxf(top, of_rows[(from + other * 16) * 2]);");
    e.close();
    e.line(format!("float base = top == {} ? 0.0f : top, weights = 0, sums[4] = {{}};", least()));
    open_unrolled(e, "other", sharing);
    e.line("int own_line = from + other * 16;");
    e.line(format!("float weight = {exp}(of_rows[own_line * 2] - base);"));
    e.line("weights += weight * of_rows[own_line * 2 + 1];");
    e.line(format!("Pack<float, 4> share = load_pack<4>(shares + (own_line * {stride} + step));"));
    e.line("#pragma unroll");
    e.line("for (int i = 0; i < 4; ++i) sums[i] += weight * share.at[i];");
    e.close();
    store_results(e, 4, &|lane| format!("sums[{lane}]"), ["weights", "top"]);
    e.close();
    e.close();
}
