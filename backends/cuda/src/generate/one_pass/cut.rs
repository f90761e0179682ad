//! How such a product is cut into blocks: rows, keys and columns of a block, and the parts of the keys.

use crate::generate::kernel::KernelProgram;
use mlc_backends::reference::code::Real;
use mlc_dsl::ir::{DType, Value};

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

/// Extents, each of all axes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub batch: i64,
    pub rows: i64,
    pub columns: i64,
    pub keys: i64,
    pub depth: i64,
}

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Tensor cores, floats of this type of 16 bits.
    Half(DType),
    /// Tensor cores, the upper 19 bits of floats of 32 bits.
    Tf32,
    /// The threads, floats of 32 bits.
    Real,
}

impl Units {
    /// What multiplies factors of these values' codes.
    pub fn of(kernel: &KernelProgram, factors: [(Value, &Real); 3]) -> Units {
        let type_of = |(of, r): (Value, &Real)| match r {
            Real::Read(read) => match read.otherwise {
                None | Some(Real::Const(0.0)) => {
                    Some(kernel.program.ty(kernel.program.node(of.node).args[read.input]).dtype)
                }
                Some(_) => None,
            },
            _ => None,
        };
        match factors.map(type_of) {
            [Some(d @ (DType::F16 | DType::BF16)), b, c] if b == Some(d) && c == b => {
                Units::Half(d)
            }
            [Some(DType::F32), Some(DType::F32), Some(DType::F32)] if kernel.tuning.tf32 => {
                Units::Tf32
            }
            _ => Units::Real,
        }
    }

    /// Bytes of an element in shared memory.
    fn bytes(self) -> i64 {
        match self {
            Units::Half(_) => 2,
            Units::Tf32 | Units::Real => 4,
        }
    }

    /// Elements between lines in shared memory: 16 bytes, so that eight lines begin at different banks.
    pub fn gap(self) -> i64 {
        16 / self.bytes()
    }

    /// The type of C++ in shared memory.
    pub fn element(self) -> &'static str {
        match self {
            Units::Half(_) => "unsigned short",
            Units::Tf32 | Units::Real => "float",
        }
    }
}

/// A cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub sizes: Sizes,
    pub units: Units,
    /// Rows, keys at a time, and columns of a block.
    pub rows: i64,
    pub keys: i64,
    pub columns: i64,
    /// Steps of the depth that are in shared memory at once.
    pub chunk: i64,
    pub threads: u32,
    /// Parts of the keys, and how many keys each has, but for the last one: of more than one part, a second launch combines them.
    pub parts: i64,
    pub part: i64,
}

/// How often one number is in another one, at least in part.
fn up(a: i64, b: i64) -> i64 {
    a / b + i64::from(a % b != 0)
}

/// The next multiple.
fn round(a: i64, b: i64) -> i64 {
    up(a, b) * b
}

impl Cut {
    /// The cut for these extents.
    pub fn of(sizes: Sizes, units: Units, processors: u32) -> Cut {
        // Registers for the rows' elements are few where elements have 32 bits.
        let units = if units == Units::Tf32 && sizes.depth > CHUNK { Units::Real } else { units };
        let mut cut = match units {
            Units::Half(_) | Units::Tf32 => Cut::of_warps(sizes, units),
            Units::Real => Cut::of_threads(sizes),
        };
        let blocks = sizes.batch.saturating_mul(cut.down()).saturating_mul(cut.across());
        let wanted = up(2 * i64::from(processors), blocks.max(1));
        if sizes.rows <= FEW && blocks < i64::from(processors) {
            let parts = wanted.min(sizes.keys / PART).clamp(1, PARTS);
            cut.part = round(up(sizes.keys, parts), cut.keys);
            cut.parts = up(sizes.keys, cut.part);
        }
        cut
    }

    fn new(
        sizes: Sizes,
        units: Units,
        [rows, keys, columns]: [i64; 3],
        chunk: i64,
        threads: i64,
    ) -> Cut {
        let threads = threads as u32;
        Cut { sizes, units, rows, keys, columns, chunk, threads, parts: 1, part: sizes.keys }
    }

    /// 16 rows for each warp, whose factor is in registers.
    fn of_warps(sizes: Sizes, units: Units) -> Cut {
        let chunk = round(sizes.depth, 16);
        let columns = round(sizes.columns, 16).min(WIDEST);
        let rows = round(sizes.rows.min(64), 16).clamp(16, 64);
        let rows = if rows == 48 { 64 } else { rows };
        let bytes = |keys: i64| {
            let of_rows = rows * (chunk + units.gap());
            (keys * (chunk + columns + 2 * units.gap())).max(of_rows) * units.bytes()
        };
        let keys = [64, 32, 16].into_iter().filter(|k| *k < 2 * sizes.keys);
        // The sums, the rows' factor and the scores of a thread are in registers together.
        let keys = keys.filter(|k| *k <= 32 || chunk <= 128);
        let keys = keys.filter(|k| bytes(*k) <= SHARED).max().unwrap_or(16);
        Cut::new(sizes, units, [rows, keys, columns], chunk, rows * 2)
    }

    /// Four rows for each thread, and as many columns as 16 threads side by side need.
    fn of_threads(sizes: Sizes) -> Cut {
        let chunk = round(sizes.depth, 4).min(CHUNK);
        let columns =
            16 * (up(sizes.columns, 16).min(WIDEST / 16) as u64).next_power_of_two() as i64;
        let rows = match sizes.rows {
            ..=8 => 8,
            9..=16 => 16,
            17..=32 => 32,
            _ if chunk > 64 || columns > 64 => 32,
            _ => 64,
        };
        let keys = if sizes.keys <= 16 { 16 } else { 32 };
        Cut::new(sizes, Units::Real, [rows, keys, columns], chunk, rows * 4)
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
        let half = Units::Half(DType::F16);
        // Batch, rows, columns, keys, depth; then rows, keys and columns of a block, and parts.
        let cases = [
            ([12, 512, 64, 512, 64], half, [64, 64, 64, 1]),
            ([8, 512, 128, 512, 128], half, [64, 64, 128, 1]),
            ([8, 512, 256, 512, 256], half, [64, 32, 128, 1]),
            ([8, 1, 128, 4096, 128], half, [16, 64, 128, 16]),
            ([1, 1, 128, 65536, 128], half, [16, 64, 128, 64]),
            ([256, 1, 128, 4096, 128], half, [16, 64, 128, 1]),
            ([12, 512, 64, 512, 64], Units::Real, [64, 32, 64, 1]),
            ([8, 512, 256, 512, 256], Units::Real, [32, 32, 128, 1]),
            ([8, 1, 128, 4096, 128], Units::Real, [8, 32, 128, 16]),
            ([8, 512, 128, 512, 128], Units::Tf32, [64, 32, 128, 1]),
        ];
        for ([batch, rows, columns, keys, depth], units, expected) in cases {
            let c = Cut::of(Sizes { batch, rows, columns, keys, depth }, units, 132);
            assert_eq!([c.rows, c.keys, c.columns, c.parts], expected, "{units:?} {c:?}");
            let gap = c.units.gap();
            let shared = match c.units {
                Units::Real => {
                    let beside = c.keys * (c.chunk.max(c.columns) + gap) + c.keys * (c.rows + gap);
                    c.rows * (c.chunk + gap) + beside
                }
                _ => (c.keys * (c.chunk + c.columns + 2 * gap)).max(c.rows * (c.chunk + gap)),
            };
            assert!(shared * c.units.bytes() <= SHARED, "{c:?}");
        }
    }
}
