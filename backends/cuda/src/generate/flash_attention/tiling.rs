//! Tile sizes of FlashAttention: rows, keys and columns of a block, and the split of the keys.

use super::decode::DecodeTiling;
use mlc_backends::reference::code::Real;
use mlc_dsl::ir::{DType, Program, Value};

/// Bytes of shared memory that a block uses at most.
const SHARED: i64 = 48 << 10;
/// Columns of a block at most: more are those of another block, which computes the scores again.
const WIDEST: i64 = 128;
/// Steps of the depth that ordinary multiplications have in shared memory at once.
const CHUNK: i64 = 128;
/// Rows up to which the keys are cut into parts if blocks are few.
const FEW: i64 = 64;
/// Keys of a part at least, and parts at most.
const PART: i64 = 256;
const PARTS: i64 = 64;
/// Rows up to which keys are read straight to registers: in 16 bits, tensor cores multiply more of them while memory brings a key.
const FEW_ROWS: i64 = 8;
const FEW_HALVES: i64 = 4;
/// Bytes that a block of such rows could read while it starts and ends, and while the last one combines parts.
const START: i64 = 24 << 10;
const COMBINE: i64 = 45 << 10;
const COMBINE_PART: i64 = 512;
/// Warps of a block of tensor cores, registers of a thread that fit three such blocks, and bytes in which each warp combines its sums.
const WARPS: i64 = 4;
pub const REGISTERS: i64 = 168;
const SHARES: i64 = 16 * (SHARED_COLUMNS + 4 + 2) * 4 + 4;
/// Columns of which they do at once.
pub const SHARED_COLUMNS: i64 = 32;

/// Extents, each of all axes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionExtents {
    pub batch: i64,
    pub rows: i64,
    pub columns: i64,
    pub keys: i64,
    pub depth: i64,
}

/// The unit that multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiplyUnit {
    /// Tensor cores, in this 16-bit float type.
    Half(DType),
    /// Tensor cores, in `tf32`.
    Tf32,
    /// SIMT, in `f32`.
    Real,
}

impl MultiplyUnit {
    /// The unit for these factors of values' codes in a program.
    pub fn for_factors(
        program: &Program,
        factors: [(Value, &Real); 3],
        tf32: bool,
    ) -> MultiplyUnit {
        let type_of = |(of, r): (Value, &Real)| match r {
            Real::Read(read) => match read.otherwise {
                None | Some(Real::Const(0.0)) => {
                    Some(program.ty(program.node(of.node).args[read.input]).dtype)
                }
                Some(_) => None,
            },
            _ => None,
        };
        match factors.map(type_of) {
            [Some(d @ (DType::F16 | DType::BF16)), b, c] if b == Some(d) && c == b => {
                MultiplyUnit::Half(d)
            }
            [Some(DType::F32), Some(DType::F32), Some(DType::F32)] if tf32 => MultiplyUnit::Tf32,
            _ => MultiplyUnit::Real,
        }
    }

    /// Bytes of an element in shared memory.
    fn bytes(self) -> i64 {
        match self {
            MultiplyUnit::Half(_) => 2,
            MultiplyUnit::Tf32 | MultiplyUnit::Real => 4,
        }
    }

    /// Elements between lines in shared memory: 16 bytes, so that eight lines begin at different banks.
    pub fn gap(self) -> i64 {
        16 / self.bytes()
    }

    /// The C++ type in shared memory.
    pub fn element(self) -> &'static str {
        match self {
            MultiplyUnit::Half(_) => "unsigned short",
            MultiplyUnit::Tf32 | MultiplyUnit::Real => "float",
        }
    }
}

/// The tile sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionTiling {
    pub sizes: AttentionExtents,
    pub units: MultiplyUnit,
    /// Rows, keys at a time, and columns of a block.
    pub rows: i64,
    pub keys: i64,
    pub columns: i64,
    /// Steps of the depth that are in shared memory at once.
    pub chunk: i64,
    pub threads: u32,
    /// Warps, or groups of threads, that have the same rows, and keys of a tile each.
    pub sharing: i64,
    /// The lanes of decode-phase attention, if it is one.
    pub decode: Option<DecodeTiling>,
    /// Parts of the keys (split-KV), and the keys of each but the last.
    pub parts: i64,
    pub part: i64,
}

/// Division that rounds up.
fn up(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// The next multiple.
fn round(a: i64, b: i64) -> i64 {
    up(a, b) * b
}

impl AttentionTiling {
    /// The tiling for these extents.
    pub fn choose(
        sizes: AttentionExtents,
        units: MultiplyUnit,
        processors: u32,
    ) -> AttentionTiling {
        let processors = i64::from(processors);
        // Registers for the rows' elements are few where elements have 32 bits.
        let units = if units == MultiplyUnit::Tf32 && sizes.depth > CHUNK {
            MultiplyUnit::Real
        } else {
            units
        };
        let is_half = matches!(units, MultiplyUnit::Half(_));
        let mut cut = match units {
            _ if sizes.rows <= if is_half { FEW_HALVES } else { FEW_ROWS } => {
                AttentionTiling::of_few(sizes, units)
            }
            MultiplyUnit::Half(_) | MultiplyUnit::Tf32 => {
                AttentionTiling::of_warps(sizes, units, processors)
            }
            MultiplyUnit::Real => AttentionTiling::of_threads(sizes, processors),
        };
        cut.split(processors);
        cut
    }

    /// Cuts keys into parts where blocks are few.
    fn split(&mut self, processors: i64) {
        let (sizes, threads) = (self.sizes, i64::from(self.threads));
        if self.decode.is_some() {
            let warps = threads / 32;
            let resident = if self.rows <= 4 { 12 } else { 8 } / warps;
            return self.cut_keys(processors * resident, self.keys * warps, 1);
        }
        let blocks = sizes.batch.saturating_mul(self.down()).saturating_mul(self.across());
        if sizes.rows <= FEW && blocks < processors {
            // By registers, and by shared memory.
            let resident = if threads > 128 { 512 } else { 384 } / threads;
            let resident = processors * resident.clamp(1, 5);
            self.cut_keys(resident, self.keys, PART);
        }
    }

    /// The same tiling for other extents, of which only the batch, the rows and the keys differ, and where no extent is larger: their parts
    /// are cut anew.
    pub fn with_sizes(self, sizes: AttentionExtents, processors: u32) -> AttentionTiling {
        let mut cut = AttentionTiling { sizes, parts: 1, part: sizes.keys, ..self };
        if self.parts > 1 {
            cut.split(processors.into());
            // One tile of keys of a part stays one.
            if self.tiles() == 1 && cut.part > cut.keys && cut.decode.is_none() {
                cut.part = cut.keys;
                cut.parts = up(sizes.keys, cut.part);
            }
        }
        cut
    }

    /// Cuts keys into parts of a multiple of `unit`, of `least` at least, with which multiprocessors that have so many blocks at once are
    /// busy for the shortest time, in bytes that a block reads.
    fn cut_keys(&mut self, resident: i64, unit: i64, least: i64) {
        let sizes = self.sizes;
        let blocks = sizes.batch.saturating_mul(self.down()).saturating_mul(self.across());
        let bytes = (sizes.depth + self.columns) * self.units.bytes();
        let part = |parts: i64| round(up(sizes.keys, parts), unit);
        let cost = |parts: i64| {
            let combined = if parts > 1 { COMBINE + parts * COMBINE_PART } else { 0 };
            let turns = up(blocks.saturating_mul(up(sizes.keys, part(parts))), resident.max(1));
            turns.saturating_mul(part(parts) * bytes + START).saturating_add(combined)
        };
        // Of many blocks, some begin while others end.
        let is_many = blocks >= 2 * resident;
        let most = if is_many { 1 } else { (sizes.keys / least.max(unit)).clamp(1, PARTS) };
        let parts = (1..=most).min_by_key(|p| cost(*p)).unwrap_or(1);
        self.part = part(parts);
        self.parts = up(sizes.keys, self.part);
    }

    fn new(
        sizes: AttentionExtents,
        units: MultiplyUnit,
        [rows, keys, columns]: [i64; 3],
        chunk: i64,
        threads: i64,
    ) -> AttentionTiling {
        let threads = threads as u32;
        let (sharing, decode, parts, part) = (1, None, 1, sizes.keys);
        AttentionTiling {
            sizes,
            units,
            rows,
            keys,
            columns,
            chunk,
            threads,
            sharing,
            decode,
            parts,
            part,
        }
    }

    /// All rows for each warp, and keys of its own.
    fn of_few(sizes: AttentionExtents, units: MultiplyUnit) -> AttentionTiling {
        let (rows, columns) = (sizes.rows, sizes.columns);
        let units = if units == MultiplyUnit::Tf32 { MultiplyUnit::Real } else { units };
        // Sums, and products of a tile, that a lane has.
        let sums = if rows <= 4 { 32 } else { 64 };
        let at_once = if rows > 2 && units == MultiplyUnit::Real || rows > 4 { 4 } else { 8 };
        // A lane has a line in two accesses at most, all of which are on their way together.
        let two = |lanes: i64| sizes.depth.max(columns) <= 2 * lanes * units.gap();
        let of_lane = |lanes: i64| up(columns, lanes * units.gap()) * units.gap();
        let fits = |lanes: &i64| rows * of_lane(*lanes) <= sums && two(*lanes);
        let lanes = [8, 16].into_iter().find(fits).unwrap_or(32);
        let keys = 32 / lanes * at_once;
        let warps = (up(sizes.keys, keys).min(WARPS) as u64).next_power_of_two() as i64;
        let mut cut =
            AttentionTiling::new(sizes, units, [rows, keys, columns], sizes.depth, warps * 32);
        cut.decode = Some(DecodeTiling { lanes, at_once });
        cut
    }

    /// 16 rows for each warp, whose factor is in registers. Where rows are few, warps share them, and each has some keys of a tile.
    fn of_warps(sizes: AttentionExtents, units: MultiplyUnit, processors: i64) -> AttentionTiling {
        let chunk = round(sizes.depth, 16);
        let columns = round(sizes.columns, 16).min(WIDEST);
        let across = up(sizes.columns, columns);
        let blocks = |rows: i64| sizes.batch.saturating_mul(across * up(sizes.rows, rows));
        let fits = |rows: &i64| *rows < 2 * sizes.rows && blocks(*rows) >= processors;
        let rows = [64, 32, 16].into_iter().find(fits).unwrap_or(16);
        let most = (up(sizes.keys, 16) as u64).next_power_of_two() as i64;
        let most = (WARPS * 16 / rows).min(most);
        let cut = AttentionTiling::new(sizes, units, [rows, 16, columns], chunk, rows * 2);
        let sharing = [4, 2, 1].into_iter().filter(|sharing| *sharing <= most);
        sharing.filter_map(|sharing| cut.with_sharing(sharing)).next().unwrap_or(cut)
    }

    /// Elements of a tile of the keys and of what is beside them, and of the rows' one, where warps multiply.
    pub fn tiles_of_warps(&self) -> [i64; 2] {
        let gap = self.units.gap();
        [self.keys * (self.chunk + self.columns + 2 * gap), self.rows * (self.chunk + gap)]
    }

    /// Whether the rows' tile has a place of its own beside two tiles of keys.
    pub fn has_place_of_rows(&self) -> bool {
        let [tile, of_rows] = self.tiles_of_warps();
        (self.tiles() * tile + of_rows) * self.units.bytes() + self.shares() <= SHARED
    }

    fn shares(&self) -> i64 {
        if self.sharing > 1 { i64::from(self.threads) / 32 * SHARES } else { 0 }
    }

    /// The same cut with the most keys of a tile that fit, where so many warps share rows: as many as there are, or with another tile.
    fn with_sharing(self, sharing: i64) -> Option<AttentionTiling> {
        let sharing_of = |keys: i64| AttentionTiling {
            keys,
            sharing,
            threads: (self.rows * 2 * sharing) as u32,
            ..self
        };
        // The sums, the rows' factor and the scores of a thread are in registers together.
        let scores = if self.chunk <= 64 { 64 } else { 32 };
        let all = [16, 32, 64, 128, 256].into_iter().filter(|k| k % (16 * sharing) == 0);
        let fits = |c: &AttentionTiling| {
            let [tile, of_rows] = c.tiles_of_warps();
            let bytes = (c.tiles() * tile).max(of_rows) * c.units.bytes();
            c.keys / sharing <= scores && bytes + c.shares() <= SHARED
        };
        let cuts: Vec<AttentionTiling> = all.map(sharing_of).filter(fits).collect();
        cuts.iter().copied().find(|c| c.tiles() == 1).or(cuts.last().copied())
    }

    /// Tiles of keys that are in shared memory or on their way.
    pub fn tiles(&self) -> i64 {
        if self.keys >= self.part.min(self.sizes.keys) { 1 } else { 2 }
    }

    /// Four rows for each thread, and as many columns as 16 threads side by side need. Where rows are few, threads share them, and have
    /// some keys of a tile each.
    fn of_threads(sizes: AttentionExtents, processors: i64) -> AttentionTiling {
        let chunk = round(sizes.depth, 4).min(CHUNK);
        let columns =
            16 * (up(sizes.columns, 16).min(WIDEST / 16) as u64).next_power_of_two() as i64;
        let across = up(sizes.columns, columns);
        let blocks = |rows: i64| sizes.batch.saturating_mul(across * up(sizes.rows, rows));
        let most = if chunk > 64 || columns > 64 { 32 } else { 64 };
        let fits =
            |rows: &i64| *rows <= most && *rows < 2 * sizes.rows && blocks(*rows) >= processors;
        let rows = [64, 32, 16].into_iter().find(fits).unwrap_or(16);
        let all = [4, 2, 1].into_iter().filter(|sharing| rows * sharing <= 64);
        let all = all.flat_map(|sharing| [32, 16].map(|keys| (sharing, keys * sharing)));
        let [gap, bytes] = [MultiplyUnit::Real.gap(), MultiplyUnit::Real.bytes()];
        let fits = |(sharing, keys): &(i64, i64)| {
            let tiles = rows * (chunk + gap) + keys * (chunk + columns + 2 * gap);
            let weights = keys * (rows + gap);
            let shares = if *sharing > 1 { sharing * rows * (columns + gap) } else { 0 };
            let of_rows = 3 * sharing * rows + 16;
            *keys < 2 * sizes.keys.max(16)
                && (tiles.max(shares) + weights + of_rows) * bytes <= SHARED
        };
        let (sharing, keys) = all.into_iter().find(fits).unwrap_or((1, 16));
        let mut cut = AttentionTiling::new(
            sizes,
            MultiplyUnit::Real,
            [rows, keys, columns],
            chunk,
            rows * 4 * sharing,
        );
        cut.sharing = sharing;
        cut
    }

    /// Blocks along the rows.
    pub fn down(&self) -> i64 {
        up(self.sizes.rows, self.rows)
    }

    /// Blocks along the columns.
    pub fn across(&self) -> i64 {
        up(self.sizes.columns, self.columns)
    }

    /// All blocks.
    pub fn blocks(&self) -> u64 {
        (self.sizes.batch * self.down() * self.across() * self.parts) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_cut_where_rows_are_few_and_what_a_block_shares_fits() {
        let half = MultiplyUnit::Half(DType::F16);
        // Batch, rows, columns, keys, depth; then rows, keys and columns of a block, what shares rows, and parts.
        let cases = [
            ([32, 2048, 128, 2048, 128], half, [64, 32, 128, 1, 1]),
            ([12, 512, 64, 512, 64], half, [32, 64, 64, 2, 1]),
            ([12, 128, 64, 128, 64], half, [16, 128, 64, 4, 1]),
            ([8, 512, 256, 512, 256], half, [32, 16, 128, 1, 1]),
            ([64, 8, 128, 4096, 128], half, [16, 32, 128, 2, 10]),
            ([8, 1, 128, 4096, 128], half, [1, 32, 128, 1, 32]),
            ([1, 1, 128, 65536, 128], half, [1, 32, 128, 1, 64]),
            ([1024, 1, 128, 4096, 128], half, [1, 32, 128, 1, 1]),
            ([128, 4, 128, 4096, 128], half, [4, 16, 128, 1, 3]),
            ([12, 128, 64, 128, 64], MultiplyUnit::Real, [16, 64, 64, 4, 1]),
            ([32, 2048, 64, 2048, 64], MultiplyUnit::Real, [64, 32, 64, 1, 1]),
            ([8, 512, 256, 512, 256], MultiplyUnit::Real, [32, 16, 128, 1, 1]),
            ([128, 8, 128, 4096, 128], MultiplyUnit::Real, [8, 8, 128, 1, 2]),
            ([8, 512, 128, 512, 128], MultiplyUnit::Tf32, [16, 16, 128, 1, 1]),
        ];
        for ([batch, rows, columns, keys, depth], units, expected) in cases {
            let c = AttentionTiling::choose(
                AttentionExtents { batch, rows, columns, keys, depth },
                units,
                132,
            );
            let found = [c.rows, c.keys, c.columns, c.sharing, c.parts];
            assert_eq!(found, expected, "{units:?} {c:?}");
        }
    }
}
