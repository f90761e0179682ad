//! Both products by tensor cores: a warp has 16 rows, its factor of them in registers, and all keys of a tile.
//!
//! Registers hold what `MMA` in `prelude.cuh` says. A thread has the rows `group` and `group + 8`, and of eight keys or columns
//! two side by side; so the exponentials of scores are the left factor of the second product where they are. With tf32 the order
//! of the keys in that product is another one, which its sum does not show.

use super::OnePass;
use super::cut::Units;
use super::frame::{Target, least};
use crate::generate::emit::Emitter;
use crate::generate::tile::open_unrolled;
use mlc_dsl::ir::DType;

/// Writes the block.
pub fn write(e: &mut Emitter<'_>, p: &OnePass, target: &Target<'_>) {
    let c = &p.cut;
    let roomy = c.chunk > 64 || c.columns > 64;
    // Sums, scores and the rows' factor of a thread together; fewer registers would leave some in memory.
    e.registers = Some(if roomy { 255 } else { 168 });
    let w = Warps::of(p);
    let of_keys = c.keys * (c.chunk + w.gap + c.columns + w.gap);
    let shared = of_keys.max(c.rows * (c.chunk + w.gap));
    e.line(format!("SHARED({}, tile, {shared});", c.units.element()));
    e.line(
        "int warp = threadIdx.x / 32, own = threadIdx.x % 32, group = own / 4, within = own % 4;",
    );
    p.rows_tile(0, "0").write(e);
    e.line("__syncthreads();");
    w.rows_factor(e);
    e.line("__syncthreads();");
    e.line(format!("float sum[{}][4] = {{}};", c.columns / 8));
    e.line(format!("float most[2] = {{{least}, {least}}}, total[2] = {{}};", least = least()));
    p.open_keys(e, (2, "row + warp * 16 + group + i * 8"));
    p.keys_tile(0, "0").write(e);
    p.right_tile(c.keys * (c.chunk + w.gap)).write(e);
    e.line("__syncthreads();");
    w.products_of_rows_and_keys(e);
    open_unrolled(e, "i", 2);
    open_unrolled(e, "j", c.keys / 8);
    let kind = e.index_type();
    e.line(format!(
        "{kind} down = row + warp * 16 + group + i * 8, across = keys + j * 8 + within * 2;"
    ));
    p.scores(e, 2, &|lane| format!("score[j][i * 2 + {lane}]"));
    e.close();
    e.close();
    w.exponentials(e);
    w.products_of_exponentials(e);
    e.line("__syncthreads();");
    p.close_keys(e);
    open_unrolled(e, "i", 2);
    for step in [1, 2] {
        e.line(format!("total[i] += __shfl_xor_sync(0xffffffffu, total[i], {step});"));
    }
    open_unrolled(e, "j", c.columns / 8);
    e.line(format!(
        "{kind} down = row + warp * 16 + group + i * 8, across = column + j * 8 + within * 2;"
    ));
    p.results(e, target, 2, &|lane| format!("sum[j][i * 2 + {lane}]"), ["total[i]", "most[i]"]);
    e.close();
    e.close();
}

struct Warps<'a> {
    p: &'a OnePass,
    /// Elements between lines.
    gap: i64,
    /// The multiplication of the prelude, and its depth.
    mma: &'static str,
    depth: i64,
    dtype: Option<DType>,
}

impl Warps<'_> {
    fn of(p: &OnePass) -> Warps<'_> {
        let gap = p.cut.units.gap();
        let (mma, depth, dtype) = match p.cut.units {
            Units::Half(DType::BF16) => ("mma_16816_bf16", 16, Some(DType::BF16)),
            Units::Half(_) => ("mma_16816", 16, Some(DType::F16)),
            Units::Tf32 | Units::Real => ("mma_1688_tf32", 8, None),
        };
        Warps { p, gap, mma, depth, dtype }
    }

    /// The fragments of the warp's rows, for all steps of the depth.
    fn rows_factor(&self, e: &mut Emitter<'_>) {
        let (steps, stride) = (self.p.cut.chunk / self.depth, self.p.cut.chunk + self.gap);
        e.line(format!("unsigned own_rows[{steps}][4];"));
        open_unrolled(e, "k", steps);
        match self.dtype {
            Some(_) => {
                let place = format!("(warp * 16 + own % 16) * {stride} + k * 16 + own / 16 * 8");
                e.line(format!("load_matrices(own_rows[k], tile + ({place}));"));
            }
            None => {
                open_unrolled(e, "i", 4);
                let place = format!(
                    "(warp * 16 + group + i % 2 * 8) * {stride} + k * 8 + within + i / 2 * 4"
                );
                e.line(format!("own_rows[k][i] = tf32_bits(tile[{place}]);"));
                e.close();
            }
        }
        e.close();
    }

    fn products_of_rows_and_keys(&self, e: &mut Emitter<'_>) {
        let c = &self.p.cut;
        let (steps, stride, mma) = (c.chunk / self.depth, c.chunk + self.gap, self.mma);
        e.line(format!("float score[{}][4] = {{}};", c.keys / 8));
        open_unrolled(e, "k", steps);
        match self.dtype {
            Some(_) => {
                open_unrolled(e, "j", c.keys / 16);
                e.line("unsigned b[4];");
                let line = "j * 16 + own / 16 * 8 + own % 8";
                e.line(format!(
                    "load_matrices(b, tile + (({line}) * {stride} + k * 16 + own / 8 % 2 * 8));"
                ));
                e.line(format!("{mma}(score[2 * j], own_rows[k], b);"));
                e.line(format!("{mma}(score[2 * j + 1], own_rows[k], b + 2);"));
            }
            None => {
                open_unrolled(e, "j", c.keys / 8);
                let at = format!("(j * 8 + group) * {stride} + k * 8 + within");
                e.line(format!(
                    "unsigned b[2] = {{tf32_bits(tile[{at}]), tf32_bits(tile[{at} + 4])}};"
                ));
                e.line(format!("{mma}(score[j], own_rows[k], b);"));
            }
        }
        e.close();
        e.close();
    }

    /// The largest elements so far, exponentials in place of the scores, and what the sums so far are scaled by.
    fn exponentials(&self, e: &mut Emitter<'_>) {
        let (keys, columns) = (self.p.cut.keys / 8, self.p.cut.columns / 8);
        let exp = if self.dtype.is_some() { "__expf" } else { "exp" };
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

    fn products_of_exponentials(&self, e: &mut Emitter<'_>) {
        let c = &self.p.cut;
        let (first, stride, mma) = (c.keys * (c.chunk + self.gap), c.columns + self.gap, self.mma);
        open_unrolled(e, "k", c.keys / self.depth);
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
                let place =
                    format!("{first} + (k * 16 + own % 16) * {stride} + j * 16 + own / 16 * 8");
                e.line(format!("load_matrices_turned(b, tile + ({place}));"));
                e.line(format!("{mma}(sum[2 * j], a, b);"));
                e.line(format!("{mma}(sum[2 * j + 1], a, b + 2);"));
            }
            None => {
                // The steps `within` and `within + 4` of the product are the keys of this thread.
                e.line("unsigned a[4] = {tf32_bits(score[k][0]), tf32_bits(score[k][2]), tf32_bits(score[k][1]), tf32_bits(score[k][3])};");
                open_unrolled(e, "j", c.columns / 8);
                let at = format!("{first} + (k * 8 + within * 2) * {stride} + j * 8 + group");
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
