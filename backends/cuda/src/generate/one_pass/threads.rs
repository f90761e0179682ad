//! Both products by ordinary multiplications: 16 threads side by side have four rows, every 16th key of a tile, and columns.

use super::OnePass;
use super::frame::{Target, least};
use crate::generate::emit::Emitter;
use crate::generate::tile::open_unrolled;

/// Writes the block.
pub fn write(e: &mut Emitter<'_>, p: &OnePass, target: &Target<'_>) {
    let c = &p.cut;
    let gap = c.units.gap();
    let (own_keys, own_columns) = (c.keys / 16, c.columns / 16);
    // The tile of the keys and the one beside the exponentials take turns in one place.
    let beside = c.rows * (c.chunk + gap);
    let shared = beside + c.keys * (c.chunk.max(c.columns) + gap);
    let is_whole = c.chunk >= c.sizes.depth;
    let kind = e.index_type();
    e.line(format!("SHARED(float, tile, {shared});"));
    e.line(format!("SHARED(float, weights, {});", c.keys * (c.rows + gap)));
    e.line("int y = threadIdx.x / 16, x = threadIdx.x % 16;");
    if is_whole {
        p.rows_tile(0, "0").write(e);
    }
    e.line(format!("float sum[4][{own_columns}] = {{}};"));
    e.line("float most[4], total[4];");
    open_unrolled(e, "i", 4);
    e.line(format!("most[i] = {};", least()));
    e.line("total[i] = 0;");
    e.close();
    p.open_keys(e, (4, "row + y * 4 + i"));
    e.line(format!("float score[4][{own_keys}] = {{}};"));
    let from = if is_whole { "0" } else { "from" };
    if !is_whole {
        e.open(&format!("for (int from = 0; from < {}; from += {})", c.sizes.depth, c.chunk));
        p.rows_tile(0, from).write(e);
    }
    p.keys_tile(beside, from).write(e);
    e.line("__syncthreads();");
    e.line("#pragma unroll 4");
    e.open(&format!("for (int k = 0; k < {}; k += 4)", c.chunk));
    e.line(format!("Pack<float, 4> a[4], b[{own_keys}];"));
    let stride = c.chunk + gap;
    open_unrolled(e, "i", 4);
    e.line(format!("a[i] = load_pack<4>(tile + ((y * 4 + i) * {stride} + k));"));
    e.close();
    open_unrolled(e, "j", own_keys);
    e.line(format!("b[j] = load_pack<4>(tile + ({beside} + (x + j * 16) * {stride} + k));"));
    e.close();
    for (name, count) in [("i", 4), ("j", own_keys), ("lane", 4)] {
        open_unrolled(e, name, count);
    }
    e.line("score[i][j] += a[i].at[lane] * b[j].at[lane];");
    (0..4).for_each(|_| e.close());
    e.line("__syncthreads();");
    if !is_whole {
        e.close();
    }
    p.right_tile(beside).write(e);
    open_unrolled(e, "i", 4);
    open_unrolled(e, "j", own_keys);
    e.line(format!("{kind} down = row + y * 4 + i, across = keys + x + j * 16;"));
    p.scores(e, 1, &|_| "score[i][j]".into());
    e.close();
    e.close();
    exponentials(e, own_keys, own_columns);
    open_unrolled(e, "j", own_keys);
    e.line("Pack<float, 4> values;");
    e.line("#pragma unroll");
    e.line("for (int i = 0; i < 4; ++i) values.at[i] = score[i][j];");
    let line = c.rows + gap;
    e.line(format!("store_pack(weights + ((x + j * 16) * {line} + y * 4), values);"));
    e.close();
    e.line("__syncthreads();");
    products(e, p, beside, own_columns);
    e.line("__syncthreads();");
    p.close_keys(e);
    open_unrolled(e, "i", 4);
    for step in [8, 4, 2, 1] {
        e.line(format!("total[i] += __shfl_xor_sync(0xffffffffu, total[i], {step});"));
    }
    let group = at_once(own_columns);
    open_unrolled(e, "j", own_columns / group);
    e.line(format!(
        "{kind} down = row + y * 4 + i, across = column + j * {} + x * {group};",
        16 * group
    ));
    let lane = |lane: &str| {
        if group == 1 { "sum[i][j]".into() } else { format!("sum[i][j * {group} + {lane}]") }
    };
    p.results(e, target, group, &lane, ["total[i]", "most[i]"]);
    e.close();
    e.close();
}

/// Columns of a thread that lie side by side.
fn at_once(own: i64) -> i64 {
    own.min(4)
}

/// The largest elements so far, exponentials in place of the scores, and sums so far scaled by what that changes.
fn exponentials(e: &mut Emitter<'_>, keys: i64, columns: i64) {
    open_unrolled(e, "i", 4);
    e.line("float top = most[i];");
    e.line("#pragma unroll");
    e.line(format!("for (int j = 0; j < {keys}; ++j) top = fmaxf(top, score[i][j]);"));
    for step in [8, 4, 2, 1] {
        e.line(format!("top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, {step}));"));
    }
    // A row that has nothing above minus infinity so far has exponentials of 0.
    e.line(format!("float base = top == {} ? 0.0f : top;", least()));
    e.line("float scale = exp(most[i] - base);");
    e.line("most[i] = top;");
    e.line("total[i] *= scale;");
    open_unrolled(e, "j", keys);
    e.line("score[i][j] = exp(score[i][j] - base);");
    e.line("total[i] += score[i][j];");
    e.close();
    e.line("#pragma unroll");
    e.line(format!("for (int j = 0; j < {columns}; ++j) sum[i][j] *= scale;"));
    e.close();
}

/// Adds the products of the exponentials and the tile beside them.
fn products(e: &mut Emitter<'_>, p: &OnePass, beside: i64, own: i64) {
    let c = &p.cut;
    let (line, stride) = (c.rows + c.units.gap(), c.columns + c.units.gap());
    let group = at_once(own);
    e.line("#pragma unroll 4");
    e.open(&format!("for (int k = 0; k < {}; ++k)", c.keys));
    e.line(format!("Pack<float, 4> a = load_pack<4>(weights + (k * {line} + y * 4));"));
    open_unrolled(e, "g", own / group);
    let place = format!("{beside} + k * {stride} + g * {} + x * {group}", 16 * group);
    e.line(format!("Pack<float, {group}> b = load_pack<{group}>(tile + ({place}));"));
    open_unrolled(e, "i", 4);
    e.line("#pragma unroll");
    let to = format!("sum[i][g * {group} + j]");
    e.line(format!("for (int j = 0; j < {group}; ++j) {to} += a.at[i] * b.at[j];"));
    e.close();
    e.close();
    e.close();
}
