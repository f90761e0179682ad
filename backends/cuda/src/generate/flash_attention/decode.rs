//! Decode-phase attention (few queries): bandwidth-bound; streams K and V once, straight to registers.
//!
//! Warps of a block take tiles of keys in turn, and synchronise at the end only. In a warp, some lanes share a key: each has
//! vectors of its steps, then of the columns of V. Sums of a tile's products go to one lane per key, which computes the
//! exponentials; lanes with columns get these from there. In the end sums of lanes, then of warps, are combined.

use super::block::{AttentionWriter, Tile, results};
use super::kernel::least;
use super::masked_tiles::{close_turns, leave_out_of_warp, open_turns_of_warps};
use super::tiling::{AttentionTiling, MultiplyUnit, REGISTERS};
use crate::generate::product::simt::open_unrolled;
use mlc_dsl::ir::DType;

/// How the lanes of a warp share a tile of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeTiling {
    /// Lanes of a key.
    pub lanes: i64,
    /// Keys that they have at once.
    pub at_once: i64,
}

impl DecodeTiling {
    /// Lanes whose number differs in one of these bits have different keys.
    fn steps(self) -> impl Iterator<Item = i64> {
        [1, 2, 4, 8, 16].into_iter().filter(move |s| *s < self.at_once || *s >= self.lanes)
    }
}

/// Writes the block.
pub fn write(e: &mut impl AttentionWriter, few: DecodeTiling) {
    let c = e.tiling();
    let w = DecodeWriter::new(e, few);
    e.limit_registers(if c.rows > 4 { 255 } else { REGISTERS as u32 });
    let (rows, warps, kind) = (c.rows, c.threads / 32, e.index_type());
    let of_warp = rows * (c.sizes.columns + 2);
    let shared = (rows * w.line).max(i64::from(warps) * of_warp);
    e.line(format!(
        "// Keys are read straight to registers: {} lanes share a key, a warp has {} keys at a time.",
        few.lanes, c.keys
    ));
    e.line(format!("SHARED(float, tile, {shared});"));
    e.line(format!(
        "int warp = threadIdx.x / 32, own = threadIdx.x % 32, group = own / {lanes}, within = own % {lanes};",
        lanes = few.lanes
    ));
    e.load_rows(w.line);
    e.line("__syncthreads();");
    e.line(format!("float sum[{rows}][{}] = {{}};", w.value_factor.of_lane()));
    e.line(format!("float most[{rows}], total[{rows}];"));
    open_unrolled(e, "r", rows);
    e.line(format!("most[r] = {};", least()));
    e.line("total[r] = 0;");
    e.close();
    open_turns_of_warps(e);
    let first = format!("begin + warp * {}", c.keys);
    let turn = i64::from(warps) * c.keys;
    e.line("#pragma unroll 1");
    e.open(&format!("for ({kind} keys = {first}; keys < end; keys += {turn})"));
    leave_out_of_warp(e);
    w.scores(e);
    w.exponentials(e);
    w.products(e);
    e.close();
    close_turns(e);
    w.together(e);
    w.results(e);
}

/// A factor, K or V, and how lanes load its lines.
struct KeyStream {
    tile: Tile<'static>,
    /// The expression of the first step, and how many there are.
    from: &'static str,
    depth: i64,
    units: MultiplyUnit,
    /// Vector width of a lane, and its vectors.
    width: i64,
    packs: i64,
}

impl KeyStream {
    fn new(e: &mut impl AttentionWriter, tile: Tile<'static>, few: DecodeTiling) -> KeyStream {
        let c = e.tiling();
        let (from, depth) = match tile {
            Tile::Value => ("column", c.sizes.columns),
            Tile::Query { from } | Tile::Key { from, .. } => (from, c.sizes.depth),
        };
        let own = (depth + few.lanes - 1) / few.lanes;
        let most = c.units.gap().min((own as u64).next_power_of_two() as i64);
        let width = e.width(tile, most);
        let of_all = few.lanes * width;
        KeyStream { tile, from, depth, units: c.units, packs: (depth + of_all - 1) / of_all, width }
    }

    /// Elements of a line that a lane has.
    fn of_lane(&self) -> i64 {
        self.width * self.packs
    }

    /// The C++ type of a vector.
    fn pack(&self) -> String {
        format!("Pack<{}, {}>", self.units.element(), self.width)
    }

    /// Writes the loop that reads the pack of this number of all of a lane's keys into `to`; what is outside is 0.
    fn read(
        &self,
        e: &mut impl AttentionWriter,
        few: DecodeTiling,
        tile: i64,
        to: &str,
        number: &str,
    ) {
        if e.are_whole(tile) {
            return self.reads(e, few, to, number, false);
        }
        let places = e.keys();
        // Reads without a condition of their own are on their way together.
        e.open(&format!("if (keys + {tile} <= {places})"));
        self.reads(e, few, to, number, false);
        e.close();
        e.open("else");
        self.reads(e, few, to, number, true);
        e.close();
    }

    fn reads(
        &self,
        e: &mut impl AttentionWriter,
        few: DecodeTiling,
        to: &str,
        number: &str,
        is_last: bool,
    ) {
        let kind = e.index_type();
        open_unrolled(e, "u", few.at_once);
        e.line(format!("{kind} place = keys + group * {} + u;", few.at_once));
        let step = format!("({number} * {} + within) * {}", few.lanes, self.width);
        e.line(format!("{kind} deep = {} + {step};", self.from));
        let mut inside = vec![];
        if is_last {
            inside.push(format!("place < {}", e.keys()));
        }
        if self.depth % (few.lanes * self.width) != 0 {
            inside.push(format!("deep < {}", self.depth));
        }
        if !inside.is_empty() {
            e.line("#pragma unroll");
            e.line(format!(
                "for (int lane = 0; lane < {}; ++lane) {to}[u].at[lane] = 0;",
                self.width
            ));
        }
        let check = inside.join(" && ");
        e.open(&if check.is_empty() { check } else { format!("if ({check})") });
        e.read(self.tile, self.width, &format!("{to}[u]"));
        e.close();
        e.close();
    }
}

struct DecodeWriter {
    c: AttentionTiling,
    decode: DecodeTiling,
    key: KeyStream,
    value_factor: KeyStream,
    /// Elements of a row's line in shared memory.
    line: i64,
}

impl DecodeWriter {
    fn new(e: &mut impl AttentionWriter, few: DecodeTiling) -> DecodeWriter {
        let of_keys = KeyStream::new(e, Tile::Key { first: "keys", from: "0" }, few);
        let right = KeyStream::new(e, Tile::Value, few);
        let line = (few.lanes * of_keys.of_lane() + 3) / 4 * 4;
        DecodeWriter { c: e.tiling(), decode: few, key: of_keys, value_factor: right, line }
    }

    /// The float that an element of a pack is.
    fn float(&self, element: &str) -> String {
        match self.c.units {
            MultiplyUnit::Half(DType::BF16) => format!("bfloat16_bits_to_float({element})"),
            MultiplyUnit::Half(_) => format!("half_bits_to_float({element})"),
            MultiplyUnit::Tf32 | MultiplyUnit::Real => element.into(),
        }
    }

    /// Products of the rows and a tile of keys: `score[r]` is that of a row and the lane's key, or minus infinity.
    fn scores(&self, e: &mut impl AttentionWriter) {
        let (few, side, rows) = (self.decode, &self.key, self.c.rows);
        let (count, at_once) = (few.at_once, side.width.min(if rows <= 4 { 4 } else { 2 }));
        e.line(format!("float part[{rows}][{count}] = {{}};"));
        open_unrolled(e, "j", side.packs);
        e.line(format!("{} values[{count}];", side.pack()));
        side.read(e, few, self.c.keys, "values", "j");
        open_unrolled(e, "h", side.width / at_once);
        e.line(format!("Pack<float, {at_once}> row_part[{rows}];"));
        let step = format!("(j * {} + within) * {} + h * {at_once}", few.lanes, side.width);
        open_unrolled(e, "r", rows);
        e.line(format!("row_part[r] = load_pack<{at_once}>(tile + (r * {} + {step}));", self.line));
        e.close();
        open_unrolled(e, "u", count);
        open_unrolled(e, "lane", at_once);
        let value = self.float(&format!("values[u].at[h * {at_once} + lane]"));
        e.line(format!("float value = {value};"));
        e.line("#pragma unroll");
        let add = "part[r][u] += row_part[r].at[lane] * value;";
        e.line(format!("for (int r = 0; r < {rows}; ++r) {add}"));
        (0..4).for_each(|_| e.close());
        // What is read beside the exponentials is on its way while they are computed.
        e.line(format!("{} beside[{count}];", self.value_factor.pack()));
        self.value_factor.read(e, few, self.c.keys, "beside", "0");
        e.line(format!("float score[{rows}];"));
        open_unrolled(e, "r", rows);
        let mut half = count / 2;
        while half > 0 {
            open_unrolled(e, "i", half);
            e.line(format!("bool upper = (own & {half}) != 0;"));
            e.line(format!("float other = upper ? part[r][i] : part[r][i + {half}];"));
            e.line(format!("float same = upper ? part[r][i + {half}] : part[r][i];"));
            e.line(format!("part[r][i] = same + __shfl_xor_sync(0xffffffffu, other, {half});"));
            e.close();
            half /= 2;
        }
        e.line("score[r] = part[r][0];");
        let mut step = few.lanes / 2;
        while step >= count {
            e.line(format!("score[r] += __shfl_xor_sync(0xffffffffu, score[r], {step});"));
            step /= 2;
        }
        let kind = e.index_type();
        let key = format!("keys + group * {count} + within % {count}");
        e.line(format!("{kind} down = row + r, across = {key};"));
        e.scores(1, &|_| "score[r]".into());
        e.close();
    }

    /// Updates the running maxima, puts exponentials of all of a lane's keys in `part`, and rescales the sums.
    fn exponentials(&self, e: &mut impl AttentionWriter) {
        let (few, rows) = (self.decode, self.c.rows);
        let exp = self.exp();
        open_unrolled(e, "r", rows);
        e.line("float top = score[r];");
        for step in few.steps() {
            e.line(format!("top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, {step}));"));
        }
        e.line("top = fmaxf(top, most[r]);");
        // A row that has nothing above minus infinity so far has exponentials of 0.
        e.line(format!("float base = top == {} ? 0.0f : top;", least()));
        e.line(format!("float scale = {exp}(most[r] - base), weight = {exp}(score[r] - base);"));
        e.line("most[r] = top;");
        e.line("total[r] = total[r] * scale + weight;");
        open_unrolled(e, "u", few.at_once);
        let from = format!("group * {} + u", few.lanes);
        e.line(format!("part[r][u] = __shfl_sync(0xffffffffu, weight, {from});"));
        e.close();
        e.line("#pragma unroll");
        let own = self.value_factor.of_lane();
        e.line(format!("for (int i = 0; i < {own}; ++i) sum[r][i] *= scale;"));
        e.close();
    }

    fn exp(&self) -> &'static str {
        if let MultiplyUnit::Half(_) = self.c.units { "__expf" } else { "exp" }
    }

    /// Accumulates the products of the exponentials and V.
    fn products(&self, e: &mut impl AttentionWriter) {
        let (side, count) = (&self.value_factor, self.decode.at_once);
        self.multiply(e, "beside", "0");
        if side.packs > 1 {
            open_unrolled(e, "j", side.packs - 1);
            e.line(format!("{} values[{count}];", side.pack()));
            side.read(e, self.decode, self.c.keys, "values", "(j + 1)");
            self.multiply(e, "values", "(j + 1)");
            e.close();
        }
    }

    fn multiply(&self, e: &mut impl AttentionWriter, values: &str, number: &str) {
        let width = self.value_factor.width;
        open_unrolled(e, "u", self.decode.at_once);
        open_unrolled(e, "lane", width);
        let value = self.float(&format!("{values}[u].at[lane]"));
        e.line(format!("float value = {value};"));
        e.line("#pragma unroll");
        let rows = self.c.rows;
        let add = format!("sum[r][{number} * {width} + lane] += part[r][u] * value;");
        e.line(format!("for (int r = 0; r < {rows}; ++r) {add}"));
        e.close();
        e.close();
    }

    /// Adds what the lanes have, and leaves what each warp has in shared memory: sums, then largest elements and sums of exponentials.
    fn together(&self, e: &mut impl AttentionWriter) {
        let (few, c, side) = (self.decode, &self.c, &self.value_factor);
        let (rows, columns, warps) = (c.rows, c.sizes.columns, c.threads / 32);
        let behind = i64::from(warps) * rows * columns;
        e.line("__syncthreads();");
        open_unrolled(e, "r", rows);
        for step in few.steps() {
            e.line(format!("total[r] += __shfl_xor_sync(0xffffffffu, total[r], {step});"));
        }
        open_unrolled(e, "i", side.of_lane());
        let mut step = few.lanes;
        while step < 32 {
            e.line(format!("sum[r][i] += __shfl_xor_sync(0xffffffffu, sum[r][i], {step});"));
            step *= 2;
        }
        e.close();
        e.open("if (group == 0)");
        open_unrolled(e, "j", side.packs);
        e.line(format!("int across = (j * {} + within) * {};", few.lanes, side.width));
        let is_whole = columns % (few.lanes * side.width) == 0;
        e.open(&if is_whole { String::new() } else { format!("if (across < {columns})") });
        let at_once = side.width.min(4);
        open_unrolled(e, "h", side.width / at_once);
        e.line(format!("Pack<float, {at_once}> values;"));
        e.line("#pragma unroll");
        let from = format!("sum[r][j * {} + h * {at_once} + lane]", side.width);
        e.line(format!("for (int lane = 0; lane < {at_once}; ++lane) values.at[lane] = {from};"));
        let to = format!("(warp * {rows} + r) * {columns} + across + h * {at_once}");
        e.line(format!("store_pack(tile + ({to}), values);"));
        (0..4).for_each(|_| e.close());
        e.open("if (own == 0)");
        e.line(format!("tile[{behind} + (warp * {rows} + r) * 2] = most[r];"));
        e.line(format!("tile[{behind} + (warp * {rows} + r) * 2 + 1] = total[r];"));
        e.close();
        e.close();
        e.line("__syncthreads();");
    }

    /// Combines the warps and stores the results, an element for each thread.
    fn results(&self, e: &mut impl AttentionWriter) {
        let (c, kind, exp) = (&self.c, e.index_type(), self.exp());
        let (rows, columns, warps) = (c.rows, c.sizes.columns, c.threads / 32);
        let behind = i64::from(warps) * rows * columns;
        let all = rows * columns;
        e.open(&format!("for (int at = threadIdx.x; at < {all}; at += {})", c.threads));
        e.line(format!("int r = at / {columns};"));
        e.line(format!("{kind} down = row + r, across = at % {columns};"));
        e.line(format!("float top = {};", least()));
        let of_row = format!("tile[{behind} + (i * {rows} + r) * 2");
        open_unrolled(e, "i", i64::from(warps));
        e.line(format!("top = fmaxf(top, {of_row}]);"));
        e.close();
        e.line(format!("float base = top == {} ? 0.0f : top, sums = 0, weights = 0;", least()));
        open_unrolled(e, "i", i64::from(warps));
        e.line(format!("float weight = {exp}({of_row}] - base);"));
        e.line(format!("sums += weight * tile[i * {all} + at];"));
        e.line(format!("weights += weight * {of_row} + 1];"));
        e.close();
        results(e, 1, &|_| "sums".into(), ["weights", "top"]);
        e.close();
    }
}
