//! FlashAttention without tensor cores: 16 neighbouring threads have four rows, every 16th key of a tile, and columns.
//!
//! While one product of a tile is computed, the operands of the other one are prefetched. Where threads share rows, each has a slice of a
//! tile's keys, and they combine their results in the end.

use super::block::{AttentionWriter, Tile, find_tile, results};
use super::kernel::least;
use super::masked_tiles::{close_turns, open_turns};
use super::tiling::{AttentionTiling, REGISTERS};
use crate::generate::product::simt::open_unrolled;

/// Writes the block.
pub fn write(e: &mut impl AttentionWriter) {
    let c = e.tiling();
    let t = SimtWriter::new(c);
    let kind = e.index_type();
    let next_keys = Tile::Key { first: "keys", from: "0" };
    if c.threads <= 128 {
        e.limit_registers(REGISTERS as u32);
    }
    e.line(format!("SHARED(float, tile, {});", t.shared()));
    e.line(format!("SHARED(float, weights, {});", c.keys * t.line));
    let of_slice = c.rows * 4;
    e.line(format!("int y = threadIdx.x % {of_slice} / 16, x = threadIdx.x % 16;"));
    e.line(format!(
        "int sharing = threadIdx.x / {of_slice}, slice = sharing * {};",
        c.keys / c.sharing
    ));
    if t.is_whole {
        e.begin_tile(Tile::Query { from: "0" }, "0");
    }
    e.line(format!("float sum[4][{}] = {{}};", t.own_columns));
    e.line("float most[4], total[4];");
    open_unrolled(e, "i", 4);
    e.line(format!("most[i] = {};", least()));
    e.line("total[i] = 0;");
    e.close();
    open_turns(e, 4, "row + y * 4 + i", |e| t.largest(e));
    e.line(format!("{kind} keys = begin;"));
    find_tile(e);
    if t.is_whole {
        t.begin(e, next_keys, &t.of_keys.to_string());
    }
    t.begin(e, Tile::Value, &t.beside.to_string());
    e.open("while (keys < end)");
    e.line(format!("{kind} held = keys;"));
    t.scores(e);
    e.line(format!("keys += {};", c.keys));
    find_tile(e);
    e.line("__syncthreads();");
    if t.is_whole {
        t.begin(e, next_keys, &t.of_keys.to_string());
    }
    t.weights(e);
    // What is on its way besides are keys of the next tile.
    e.line(format!("wait_copies<{}>();", i64::from(t.is_whole)));
    e.line("__syncthreads();");
    t.products(e);
    e.line("__syncthreads();");
    t.begin(e, Tile::Value, &t.beside.to_string());
    e.close();
    close_turns(e);
    t.results(e);
}

/// Columns of a thread that lie side by side.
fn at_once(own: i64) -> i64 {
    own.min(4)
}

struct SimtWriter {
    c: AttentionTiling,
    gap: i64,
    /// Keys of a slice, and columns, that a thread has.
    own_keys: i64,
    own_columns: i64,
    /// Where the tiles of the keys and of what is beside the exponentials begin, behind that of the rows.
    of_keys: i64,
    beside: i64,
    /// Elements of a key's line of exponentials.
    line: i64,
    /// Whether the whole depth is in shared memory at once.
    is_whole: bool,
}

impl SimtWriter {
    fn new(c: AttentionTiling) -> SimtWriter {
        let gap = c.units.gap();
        let of_keys = c.rows * (c.chunk + gap);
        SimtWriter {
            c,
            gap,
            own_keys: c.keys / c.sharing / 16,
            own_columns: c.columns / 16,
            of_keys,
            beside: of_keys + c.keys * (c.chunk + gap),
            line: c.rows + gap,
            is_whole: c.chunk >= c.sizes.depth,
        }
    }

    /// Elements of the tiles, in whose place shares are combined.
    fn shared(&self) -> i64 {
        let c = &self.c;
        let tiles = self.beside + c.keys * (c.columns + self.gap);
        let shares = if c.sharing > 1 { c.sharing * c.rows * self.share() } else { 0 };
        tiles.max(shares)
    }

    /// Elements of a row's line of sums.
    fn share(&self) -> i64 {
        self.c.columns + self.gap
    }

    /// Begins to copy a tile where one is left.
    fn begin(&self, e: &mut impl AttentionWriter, tile: Tile<'_>, to: &str) {
        e.open("if (keys < end)");
        e.begin_tile(tile, to);
        e.close();
        e.line("commit_copies();");
    }

    /// Computes the scores of a tile.
    fn scores(&self, e: &mut impl AttentionWriter) {
        let (c, kind) = (&self.c, e.index_type());
        e.line(format!("float score[4][{}] = {{}};", self.own_keys));
        if !self.is_whole {
            e.open(&format!("for (int from = 0; from < {}; from += {})", c.sizes.depth, c.chunk));
            e.begin_tile(Tile::Query { from: "from" }, "0");
            e.begin_tile(Tile::Key { first: "held", from: "from" }, &self.of_keys.to_string());
            e.line("commit_copies();");
        }
        e.line(format!("wait_copies<{}>();", i64::from(self.is_whole)));
        e.line("__syncthreads();");
        e.line("#pragma unroll 4");
        e.open(&format!("for (int k = 0; k < {}; k += 4)", c.chunk));
        e.line(format!("Pack<float, 4> a[4], b[{}];", self.own_keys));
        let stride = c.chunk + self.gap;
        open_unrolled(e, "i", 4);
        e.line(format!("a[i] = load_pack<4>(tile + ((y * 4 + i) * {stride} + k));"));
        e.close();
        open_unrolled(e, "j", self.own_keys);
        let place = format!("{} + (slice + x + j * 16) * {stride} + k", self.of_keys);
        e.line(format!("b[j] = load_pack<4>(tile + ({place}));"));
        e.close();
        for (name, count) in [("i", 4), ("j", self.own_keys), ("lane", 4)] {
            open_unrolled(e, name, count);
        }
        e.line("score[i][j] += a[i].at[lane] * b[j].at[lane];");
        (0..4).for_each(|_| e.close());
        if !self.is_whole {
            e.line("__syncthreads();");
            e.close();
        }
        open_unrolled(e, "i", 4);
        open_unrolled(e, "j", self.own_keys);
        e.line(format!("{kind} down = row + y * 4 + i, across = held + slice + x + j * 16;"));
        e.scores(1, &|_| "score[i][j]".into());
        e.close();
        e.close();
    }

    /// Updates the running maxima, puts exponentials in shared memory, and rescales the sums.
    fn weights(&self, e: &mut impl AttentionWriter) {
        let keys = self.own_keys;
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
        e.line(format!("for (int j = 0; j < {}; ++j) sum[i][j] *= scale;", self.own_columns));
        e.close();
        open_unrolled(e, "j", keys);
        e.line("Pack<float, 4> values;");
        e.line("#pragma unroll");
        e.line("for (int i = 0; i < 4; ++i) values.at[i] = score[i][j];");
        let to = format!("(slice + x + j * 16) * {} + y * 4", self.line);
        e.line(format!("store_pack(weights + ({to}), values);"));
        e.close();
    }

    /// Accumulates the products of the exponentials and the tile of V.
    fn products(&self, e: &mut impl AttentionWriter) {
        let (c, own) = (&self.c, self.own_columns);
        let stride = c.columns + self.gap;
        let group = at_once(own);
        e.line("#pragma unroll 4");
        e.open(&format!("for (int k = 0; k < {}; ++k)", c.keys / c.sharing));
        let from = format!("(slice + k) * {} + y * 4", self.line);
        e.line(format!("Pack<float, 4> a = load_pack<4>(weights + ({from}));"));
        open_unrolled(e, "g", own / group);
        let place =
            format!("{} + (slice + k) * {stride} + g * {} + x * {group}", self.beside, 16 * group);
        e.line(format!("Pack<float, {group}> b = load_pack<{group}>(tile + ({place}));"));
        open_unrolled(e, "i", 4);
        e.line("#pragma unroll");
        let to = format!("sum[i][g * {group} + j]");
        e.line(format!("for (int j = 0; j < {group}; ++j) {to} += a.at[i] * b.at[j];"));
        e.close();
        e.close();
        e.close();
    }

    /// Writes what makes known the largest element so far of the rows of a thread, and names that of the row `i` of them.
    fn largest(&self, e: &mut impl AttentionWriter) -> String {
        let c = &self.c;
        if c.sharing == 1 {
            return "most[i]".into();
        }
        e.line(format!("SHARED(float, highest, {});", c.sharing * c.rows));
        e.line("#pragma unroll");
        let to = format!("highest[sharing * {} + y * 4 + i]", c.rows);
        e.line(format!("for (int i = 0; i < 4; ++i) if (x == 0) {to} = most[i];"));
        e.line("__syncthreads();");
        e.line("float tops[4];");
        open_unrolled(e, "i", 4);
        e.line("tops[i] = most[i];");
        let other = format!("highest[other * {} + y * 4 + i]", c.rows);
        let all = format!("for (int other = 0; other < {}; ++other)", c.sharing);
        e.line(format!("{all} tops[i] = fmaxf(tops[i], {other});"));
        e.close();
        "tops[i]".into()
    }

    /// Stores the quotients, or what a part has.
    fn results(&self, e: &mut impl AttentionWriter) {
        let (c, kind) = (&self.c, e.index_type());
        let group = at_once(self.own_columns);
        let lane = |lane: &str| {
            if group == 1 { "sum[i][j]".into() } else { format!("sum[i][j * {group} + {lane}]") }
        };
        let beside = format!("j * {} + x * {group}", 16 * group);
        open_unrolled(e, "i", 4);
        for step in [8, 4, 2, 1] {
            e.line(format!("total[i] += __shfl_xor_sync(0xffffffffu, total[i], {step});"));
        }
        e.close();
        if c.sharing > 1 {
            return self.shares(e, [&beside, &lane("lane")]);
        }
        open_unrolled(e, "i", 4);
        open_unrolled(e, "j", self.own_columns / group);
        e.line(format!("{kind} down = row + y * 4 + i, across = column + {beside};"));
        results(e, group, &lane, ["total[i]", "most[i]"]);
        e.close();
        e.close();
    }

    /// The same of threads that share rows, by way of shared memory.
    fn shares(&self, e: &mut impl AttentionWriter, [beside, own]: [&str; 2]) {
        let (c, kind) = (&self.c, e.index_type());
        let (rows, share, group) = (c.rows, self.share(), at_once(self.own_columns));
        e.line(format!("SHARED(float, of_rows, {});", c.sharing * rows * 2));
        // The last turn may have left nothing that is read, and copies of nothing.
        e.line("wait_copies<0>();");
        e.line("__syncthreads();");
        open_unrolled(e, "i", 4);
        e.line(format!("int own_line = sharing * {rows} + y * 4 + i;"));
        open_unrolled(e, "j", self.own_columns / group);
        open_unrolled(e, "lane", group);
        e.line(format!("tile[own_line * {share} + {beside} + lane] = {own};"));
        e.close();
        e.close();
        e.open("if (x == 0)");
        e.line("of_rows[own_line * 2] = most[i];");
        e.line("of_rows[own_line * 2 + 1] = total[i];");
        e.close();
        e.close();
        e.line("__syncthreads();");
        let steps = c.columns / 4;
        e.open(&format!("for (int at = threadIdx.x; at < {}; at += {})", rows * steps, c.threads));
        e.line(format!("int from = at / {steps}, step = at % {steps} * 4;"));
        e.line(format!("{kind} down = row + from, across = column + step;"));
        e.line(format!("float top = {};", least()));
        open_unrolled(e, "other", c.sharing);
        e.line(format!("top = fmaxf(top, of_rows[(from + other * {rows}) * 2]);"));
        e.close();
        e.line(format!("float base = top == {} ? 0.0f : top, all = 0, sums[4] = {{}};", least()));
        open_unrolled(e, "other", c.sharing);
        e.line(format!("int line = from + other * {rows};"));
        e.line("float weight = exp(of_rows[line * 2] - base);");
        e.line("all += weight * of_rows[line * 2 + 1];");
        e.line(format!("Pack<float, 4> share = load_pack<4>(tile + (line * {share} + step));"));
        e.line("#pragma unroll");
        e.line("for (int i = 0; i < 4; ++i) sums[i] += weight * share.at[i];");
        e.close();
        results(e, 4, &|lane| format!("sums[{lane}]"), ["all", "top"]);
        e.close();
    }
}
