//! Tile sizes of a contraction: chosen by a rough cost model, and the alternatives that autotuning may time.

use super::smem_pipeline::TileElement;
use super::split_k;

/// How a sum of products is cut into blocks of 16 by 16 threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Rows and columns of a thread.
    pub rows: i64,
    pub columns: i64,
    /// Parts of the depth: of more than one, the block that ends last adds the sums.
    pub parts: i64,
    /// Depth of a tile in shared memory.
    pub step: i64,
    /// Whether tiles take more shared memory than a block has without asking for it.
    pub is_large: bool,
    /// Whether warpgroups multiply.
    pub by_warpgroups: bool,
}

/// Threads of a block, by rows and by columns.
pub const SIDE: i64 = 16;
/// Least depth of a part.
const PART: i64 = 128;
/// Bytes in a nanosecond from the cache of the device for each multiprocessor, as measured on an H200.
const SHARED_CACHE: f64 = 34.0;

/// Bytes of shared memory that tiles may take: without asking for more, and such that two blocks fit on a multiprocessor.
const SHARED: i64 = 48 << 10;
const LARGE: i64 = 96 << 10;
/// Tiles that are in shared memory or on their way at most.
const MOST: i64 = 4;
/// Depth of tiles of 16 bits that take more shared memory: half of the barriers of others.
const DEEP: i64 = 64;
/// How much longer than the least one an estimate may be for the device's clock to be asked.
const OPEN: f64 = 2.0;

impl Tiling {
    /// The fastest one by a rough estimate.
    pub fn choose(sizes: [i64; 4], element: TileElement, processors: u32) -> Tiling {
        let time = |t: &Tiling| t.nanoseconds(sizes, element, processors);
        let all = Tiling::all(sizes[3], element);
        all.min_by(|a, b| time(a).total_cmp(&time(b))).expect("there are tilings")
    }

    fn all(depth: i64, element: TileElement) -> impl Iterator<Item = Tiling> {
        let shapes: &[(i64, i64)] = match element {
            TileElement::Real(true) => &[(4, 4), (2, 2)],
            // Bytes on their way take a register each.
            TileElement::Byte(_) => &[(8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2)],
            _ => &[(8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2)],
        };
        // Sums of parts are floats.
        let least = if let TileElement::Byte(_) = element { depth + 1 } else { PART };
        let parts = [1, 2, 4, 8, 16, 32].into_iter();
        parts.filter(move |p| *p == 1 || depth / p >= least).flat_map(move |parts| {
            shapes.iter().map(move |&(rows, columns)| {
                let step = element.depth(rows * columns, depth / parts);
                let (is_large, by_warpgroups) = (false, false);
                Tiling { rows, columns, parts, step, is_large, by_warpgroups }
            })
        })
    }

    /// Others that a device may be faster with, as the estimate knows neither barriers nor what blocks beside each other do: the same with more on
    /// its way, the best one of another shape, and the best one of other parts.
    pub fn others(&self, sizes: [i64; 4], element: TileElement, processors: u32) -> Vec<Tiling> {
        let time = |t: &Tiling| t.nanoseconds(sizes, element, processors);
        let mut all: Vec<Tiling> = Tiling::all(sizes[3], element).collect();
        all.retain(|t| time(t) < OPEN * time(self));
        all.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let of_shape = all.iter().find(|t| (t.rows, t.columns) != (self.rows, self.columns));
        let of_parts = all.iter().find(|t| t.parts != self.parts);
        let mut out: Vec<Tiling> = vec![];
        for t in [Some(self), of_shape, of_parts].into_iter().flatten() {
            let deeper = t.deeper(sizes[3], element);
            if deeper != *self && !out.contains(&deeper) {
                out.push(deeper);
            }
        }
        out
    }

    /// The same with more of the depth in shared memory or on its way, if there is more of it.
    fn deeper(&self, depth: i64, element: TileElement) -> Tiling {
        if let TileElement::Byte(_) = element {
            return *self;
        }
        let large = Tiling { is_large: true, ..*self };
        let deep = Tiling { step: DEEP, ..large };
        let part = depth / self.parts;
        let tiles = |t: &Tiling| t.tiles(t.bytes(element), part);
        let is_half = matches!(element, TileElement::Half(_));
        if is_half && self.step < DEEP && part >= 2 * DEEP && tiles(&deep) >= 3 {
            return deep;
        }
        if tiles(&large) > tiles(self) { large } else { *self }
    }

    /// About the bytes of a step of both factors in shared memory.
    fn bytes(&self, element: TileElement) -> i64 {
        let widest = element.widest();
        ((self.rows + self.columns) * SIDE + 2 * widest) * self.step * 16 / widest
    }

    /// Tiles of so many bytes that are in shared memory or on their way, where so much of the depth is left.
    pub fn tiles(&self, bytes: i64, depth: i64) -> i64 {
        let room = if self.is_large { LARGE } else { SHARED };
        (room / bytes).min(depth / self.step + 1).clamp(2, MOST)
    }

    /// The tiling in words.
    pub fn words(&self) -> String {
        let (rows, columns, step) = (self.rows * SIDE, self.columns * SIDE, self.step);
        let parts =
            if self.parts > 1 { format!(" in {} parts", self.parts) } else { String::new() };
        let by = if self.by_warpgroups { "by warpgroups, " } else { "" };
        format!("{by}in tiles of {rows} x {columns}, {step} deep{parts}")
    }

    /// About how long it takes: 218 products in a nanosecond on each multiprocessor where everything is in registers, less
    /// where elements come from shared memory, or one block alone waits for them.
    pub fn nanoseconds(&self, sizes: [i64; 4], element: TileElement, processors: u32) -> f64 {
        let [batch, m, n, depth] = sizes;
        let (rows, columns) = (self.rows * SIDE, self.columns * SIDE);
        let up = |a: i64, b: i64| (a / b + i64::from(a % b != 0)) as f64;
        let tiles = batch as f64 * up(m, rows) * up(n, columns);
        let blocks = tiles * self.parts as f64;
        let rounds = (blocks / f64::from(processors)).ceil();
        let reused = (self.rows * self.columns) as f64 / (self.rows + self.columns) as f64;
        let busy = (0.4 + 0.2 * rounds).min(1.0);
        // Elements of fewer bits, of which a thread reads fewer words for as many products, and the units that multiply them.
        let (most, words) = match element {
            TileElement::Real(_) => (218.0, 1.5),
            TileElement::Tf32 => (1000.0, 3.0),
            TileElement::Half(_) => (2000.0, 3.0),
            TileElement::Byte(_) => (4000.0, 3.0),
        };
        let rate = most * reused / (reused + words) * busy;
        let part = self.depth_of_part(depth) as f64;
        let work = (rows * columns) as f64 * part;
        // What all blocks read comes from the cache that they share.
        let bytes = 16 / element.widest() * (rows + columns);
        let read = blocks * bytes as f64 * part / (SHARED_CACHE * f64::from(processors));
        let added = split_k::nanoseconds(self.parts, rows * columns, tiles, processors);
        (rounds * work / rate).max(read) + 1500.0 + added
    }

    /// Depth of a part, but of the last one, which may have less.
    pub fn depth_of_part(&self, depth: i64) -> i64 {
        let part = depth / self.parts + i64::from(depth % self.parts != 0);
        (part + self.step - 1) / self.step * self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlc_dsl::ir::DType;

    #[test]
    fn large_products_have_large_tiles_and_deep_ones_parts() {
        let half = TileElement::Half(DType::F16);
        let (real, double) = (TileElement::Real(false), TileElement::Real(true));
        let cases = [
            ([1, 4096, 4096, 4096], real, [8, 8, 1]),
            ([1, 4096, 4096, 4096], half, [8, 8, 1]),
            ([1, 4096, 4096, 4096], double, [4, 4, 1]),
            ([12, 512, 512, 64], real, [8, 4, 1]),
            ([1, 64, 64, 8192], real, [2, 2, 32]),
            ([1, 32, 32, 64], real, [2, 2, 1]),
            ([1, 64, 12544, 147], real, [4, 2, 1]),
            // Small tiles of 16 bits would read more than the cache yields.
            ([1, 4096, 128, 1152], half, [4, 4, 1]),
        ];
        for (sizes, element, expected) in cases {
            let t = Tiling::choose(sizes, element, 132);
            assert_eq!([t.rows, t.columns, t.parts], expected, "{sizes:?} {element:?}");
        }
    }

    #[test]
    fn others_have_another_shape_other_parts_or_more_on_its_way() {
        let half = TileElement::Half(DType::F16);
        for sizes in
            [[1, 4096, 4096, 4096], [1, 128, 3072, 768], [1, 196, 256, 2304], [12, 512, 512, 64]]
        {
            for element in [
                half,
                TileElement::Real(false),
                TileElement::Real(true),
                TileElement::Tf32,
                TileElement::Byte(DType::I8),
            ] {
                let own = Tiling::choose(sizes, element, 132);
                let others = own.others(sizes, element, 132);
                assert!(others.len() <= 3 && !others.contains(&own), "{others:?}");
                for t in &others {
                    assert!(
                        t.bytes(element) * t.tiles(t.bytes(element), sizes[3]) <= LARGE,
                        "{t:?}"
                    );
                    assert_eq!(others.iter().filter(|o| *o == t).count(), 1, "{t:?}");
                }
            }
        }
        let deep =
            Tiling::choose([1, 1024, 256, 2304], half, 132).others([1, 1024, 256, 2304], half, 132);
        assert!(deep.iter().all(|t| t.step == DEEP), "{deep:?}");
    }
}
