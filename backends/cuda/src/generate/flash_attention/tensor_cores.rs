//! FlashAttention by tensor cores: a warp has 16 rows, their Q fragments in registers, and some or all keys of a tile.
//!
//! Register layouts are those of `MMA` in `prelude.cuh`. A thread has the rows `group` and `group + 8`, and of eight keys or columns
//! two neighbours; so the exponentials of scores are the left fragment of the second product as they are. With tf32 the order
//! of the keys in that product is another one, which its sum does not show.
//!
//! The next tile that counts is prefetched while one is multiplied. Where warps share rows, they combine their results in the end
//! ([`warp_combine`](super::warp_combine)).

use super::block::{AttentionWriter, Tile, find_tile, results};
use super::kernel::least;
use super::masked_tiles::{close_turns, open_turns};
use super::tiling::{AttentionTiling, MultiplyUnit, REGISTERS};
use super::warp_combine;
use crate::generate::product::simt::open_unrolled;
use mlc_dsl::ir::DType;

/// Writes the block.
pub fn write<E: AttentionWriter>(e: &mut E) {
    let c = e.tiling();
    let w = MmaWriter::new(c);
    // Sums, scores and the rows' factor of a thread together; fewer registers would leave some in memory.
    let needed = c.columns / 2 + c.chunk / w.depth * 4 + c.keys / c.sharing / 2 + 60;
    e.limit_registers(if needed > REGISTERS { 255 } else { REGISTERS as u32 });
    let kind = e.index_type();
    let ([of_tile, of_rows], tiles) = (c.tiles_of_warps(), c.tiles());
    let is_apart = c.has_place_of_rows();
    let all = if is_apart { tiles * of_tile + of_rows } else { (tiles * of_tile).max(of_rows) };
    e.line(format!("SHARED({}, tile, {all});", c.units.element()));
    warp_combine::declare(e);
    e.line(
        "int warp = threadIdx.x / 32, own = threadIdx.x % 32, group = own / 4, within = own % 4;",
    );
    let slice = c.keys / c.sharing;
    e.line(format!(
        "int line = warp / {sharing} * 16, slice = warp % {sharing} * {slice};",
        sharing = c.sharing
    ));
    e.line(format!("unsigned own_rows[{}][4] = {{}};", c.chunk / w.depth));
    if is_apart {
        e.begin_tile(Tile::Query { from: "0" }, &(tiles * of_tile).to_string());
        e.line("bool has_rows = false;");
    } else {
        // Where the first tile of keys comes later.
        e.begin_tile(Tile::Query { from: "0" }, "0");
        e.line("commit_copies();");
        e.line("wait_copies<0>();");
        e.line("__syncthreads();");
        w.rows_factor(e, 0);
        e.line("__syncthreads();");
    }
    e.line(format!("float sum[{}][4] = {{}};", c.columns / 8));
    e.line(format!("float most[2] = {{{least}, {least}}}, total[2] = {{}};", least = least()));
    open_turns(e, 2, "row + line + group + i * 8", warp_combine::largest);
    let beside = c.keys * (c.chunk + w.gap);
    let begin = |e: &mut E, to: &str| {
        find_tile(e);
        e.open("if (keys < end)");
        e.begin_tile(Tile::Key { first: "keys", from: "0" }, to);
        e.begin_tile(Tile::Value, &format!("{to} + {beside}"));
        e.close();
        e.line("commit_copies();");
    };
    e.line(format!("{kind} keys = begin, held = end;"));
    e.open(&format!("for (int early = 0; early < {tiles}; ++early)"));
    e.line(format!("if (early > 0 && keys < end) keys += {};", c.keys));
    begin(e, &format!("early * {of_tile}"));
    e.line("if (early == 0) held = keys;");
    e.close();
    e.line("int place_of_tile = 0;");
    e.open("while (held < end)");
    e.line(format!("wait_copies<{}>();", tiles - 1));
    e.line("__syncthreads();");
    if is_apart {
        e.open("if (!has_rows)");
        w.rows_factor(e, tiles * of_tile);
        e.line("has_rows = true;");
        e.close();
    }
    let held = format!("place_of_tile * {of_tile}");
    w.products_of_rows_and_keys(e, &held);
    open_unrolled(e, "i", 2);
    open_unrolled(e, "j", slice / 8);
    e.line(format!(
        "{kind} down = row + line + group + i * 8, across = held + slice + j * 8 + within * 2;"
    ));
    e.scores(2, &|lane| format!("score[j][i * 2 + {lane}]"));
    e.close();
    e.close();
    w.exponentials(e);
    w.products_of_exponentials(e, &format!("{held} + {beside}"));
    if tiles > 1 {
        e.line("__syncthreads();");
        e.line("held = keys;");
        e.line(format!("if (keys < end) keys += {};", c.keys));
        begin(e, &held);
        e.line("place_of_tile = 1 - place_of_tile;");
    } else {
        e.line("held = end;");
    }
    e.close();
    close_turns(e);
    open_unrolled(e, "i", 2);
    for step in [1, 2] {
        e.line(format!("total[i] += __shfl_xor_sync(0xffffffffu, total[i], {step});"));
    }
    e.close();
    if c.sharing > 1 {
        return warp_combine::results(e, w.exp());
    }
    open_unrolled(e, "i", 2);
    open_unrolled(e, "j", c.columns / 8);
    e.line(format!(
        "{kind} down = row + line + group + i * 8, across = column + j * 8 + within * 2;"
    ));
    results(e, 2, &|lane| format!("sum[j][i * 2 + {lane}]"), ["total[i]", "most[i]"]);
    e.close();
    e.close();
}

struct MmaWriter {
    c: AttentionTiling,
    /// Elements between lines.
    gap: i64,
    /// The `mma` function of the prelude, and its depth.
    mma: &'static str,
    depth: i64,
    dtype: Option<DType>,
}

impl MmaWriter {
    fn new(c: AttentionTiling) -> MmaWriter {
        let gap = c.units.gap();
        let (mma, depth, dtype) = match c.units {
            MultiplyUnit::Half(DType::BF16) => ("mma_16816_bf16", 16, Some(DType::BF16)),
            MultiplyUnit::Half(_) => ("mma_16816", 16, Some(DType::F16)),
            MultiplyUnit::Tf32 | MultiplyUnit::Real => ("mma_1688_tf32", 8, None),
        };
        MmaWriter { c, gap, mma, depth, dtype }
    }

    fn exp(&self) -> &'static str {
        if self.dtype.is_some() { "__expf" } else { "exp" }
    }

    /// Keys of a tile that a warp has.
    fn slice(&self) -> i64 {
        self.c.keys / self.c.sharing
    }

    /// The fragments of the warp's rows, for all steps of the depth, from this place on.
    fn rows_factor(&self, e: &mut impl AttentionWriter, from: i64) {
        let (steps, stride) = (self.c.chunk / self.depth, self.c.chunk + self.gap);
        open_unrolled(e, "k", steps);
        match self.dtype {
            Some(_) => {
                let place =
                    format!("{from} + (line + own % 16) * {stride} + k * 16 + own / 16 * 8");
                e.line(format!("load_matrices(own_rows[k], tile + ({place}));"));
            }
            None => {
                open_unrolled(e, "i", 4);
                let place = format!(
                    "{from} + (line + group + i % 2 * 8) * {stride} + k * 8 + within + i / 2 * 4"
                );
                e.line(format!("own_rows[k][i] = tf32_bits(tile[{place}]);"));
                e.close();
            }
        }
        e.close();
    }

    fn products_of_rows_and_keys(&self, e: &mut impl AttentionWriter, from: &str) {
        let (c, slice) = (&self.c, self.slice());
        let (steps, stride, mma) = (c.chunk / self.depth, c.chunk + self.gap, self.mma);
        e.line(format!("float score[{}][4] = {{}};", slice / 8));
        open_unrolled(e, "k", steps);
        match self.dtype {
            Some(_) => {
                open_unrolled(e, "j", slice / 16);
                e.line("unsigned b[4];");
                let key = format!("{from} + (slice + j * 16 + own / 16 * 8 + own % 8) * {stride}");
                e.line(format!("load_matrices(b, tile + ({key} + k * 16 + own / 8 % 2 * 8));"));
                e.line(format!("{mma}(score[2 * j], own_rows[k], b);"));
                e.line(format!("{mma}(score[2 * j + 1], own_rows[k], b + 2);"));
            }
            None => {
                open_unrolled(e, "j", slice / 8);
                let at = format!("{from} + (slice + j * 8 + group) * {stride} + k * 8 + within");
                e.line(format!(
                    "unsigned b[2] = {{tf32_bits(tile[{at}]), tf32_bits(tile[{at} + 4])}};"
                ));
                e.line(format!("{mma}(score[j], own_rows[k], b);"));
            }
        }
        e.close();
        e.close();
    }

    /// Updates the running maxima, replaces scores by exponentials, and rescales the sums.
    fn exponentials(&self, e: &mut impl AttentionWriter) {
        let (keys, columns) = (self.slice() / 8, self.c.columns / 8);
        let exp = self.exp();
        open_unrolled(e, "i", 2);
        e.line("float top = most[i];");
        open_unrolled(e, "j", keys);
        e.line("top = fmaxf(top, fmaxf(score[j][i * 2], score[j][i * 2 + 1]));");
        e.close();
        for step in [1, 2] {
            e.line(format!("top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, {step}));"));
        }
        // A row that has nothing above minus infinity so far has exponentials of 0.
        e.line(format!("float base = top == {} ? 0.0f : top;", least()));
        e.line(format!("float scale = {exp}(most[i] - base);"));
        e.line("most[i] = top;");
        e.line("total[i] *= scale;");
        open_unrolled(e, "j", keys);
        open_unrolled(e, "lane", 2);
        e.line(format!("float weight = {exp}(score[j][i * 2 + lane] - base);"));
        e.line("total[i] += weight;");
        e.line("score[j][i * 2 + lane] = weight;");
        e.close();
        e.close();
        open_unrolled(e, "j", columns);
        e.line("sum[j][i * 2] *= scale;");
        e.line("sum[j][i * 2 + 1] *= scale;");
        e.close();
        e.close();
    }

    fn products_of_exponentials(&self, e: &mut impl AttentionWriter, from: &str) {
        let c = &self.c;
        let (stride, mma) = (c.columns + self.gap, self.mma);
        open_unrolled(e, "k", self.slice() / self.depth);
        match self.dtype {
            Some(dtype) => {
                let pair = if dtype == DType::BF16 { "pair_of_bfloat16" } else { "pair_of_half" };
                e.line("unsigned a[4];");
                open_unrolled(e, "i", 4);
                let of = "score[2 * k + i / 2]";
                e.line(format!("a[i] = {pair}({of}[i % 2 * 2], {of}[i % 2 * 2 + 1]);"));
                e.close();
                open_unrolled(e, "j", c.columns / 16);
                e.line("unsigned b[4];");
                let key = format!("{from} + (slice + k * 16 + own % 16) * {stride}");
                e.line(format!("load_matrices_turned(b, tile + ({key} + j * 16 + own / 16 * 8));"));
                e.line(format!("{mma}(sum[2 * j], a, b);"));
                e.line(format!("{mma}(sum[2 * j + 1], a, b + 2);"));
            }
            None => {
                // The steps `within` and `within + 4` of the product are the keys of this thread.
                e.line("unsigned a[4] = {tf32_bits(score[k][0]), tf32_bits(score[k][2]), tf32_bits(score[k][1]), tf32_bits(score[k][3])};");
                open_unrolled(e, "j", c.columns / 8);
                let key = format!("{from} + (slice + k * 8 + within * 2) * {stride}");
                let at = format!("{key} + j * 8 + group");
                e.line(format!(
                    "unsigned b[2] = {{tf32_bits(tile[{at}]), tf32_bits(tile[{at} + {stride}])}};"
                ));
                e.line(format!("{mma}(sum[j], a, b);"));
            }
        }
        e.close();
        e.close();
    }
}
