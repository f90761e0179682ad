//! The FlashAttention kernel around its products: the position of a block, the loop over its keys, and the stores.

use super::block::{self, AttentionWriter, NameOf, Tile};
use super::tile_load::TileLoad;
use super::tiling::{AttentionTiling, MultiplyUnit};
use super::{FlashAttention, split_kv};
use crate::generate::emit::{Emitter, StatementWriter, coordinates, vector_width};
use crate::generate::grid::GridSize;
use crate::generate::kernel::KernelProgram;
use crate::generate::product::size;
use crate::generate::spelling as spell;
use mlc_backends::reference::code::Slot;
use mlc_dsl::ir::Value;

/// Stores an element of the result.
pub type Store<'a> = &'a dyn Fn(&mut Emitter<'_>, &[Slot], &str);

/// Where the result is stored, with its epilogue.
pub struct OutputTarget<'a> {
    /// The value that is stored.
    pub value: Value,
    /// Stores an element of it.
    pub store: Store<'a>,
}

/// Minus infinity.
pub fn least() -> String {
    spell::float(f64::NEG_INFINITY, false)
}

/// Writes the function that stores the result.
pub fn write(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    product: Value,
    target: &OutputTarget<'_>,
) -> Option<GridSize> {
    let p = FlashAttention::recognise(e, kernel, product)?;
    let c = &p.tiling;
    let (kind, block) = (e.index_type(), e.block());
    let (across, down) = (c.across(), c.down());
    e.line(format!("{kind} row = {block} / {across} % {down} * {};", c.rows));
    e.line(format!("{kind} column = {block} % {across} * {};", c.columns));
    e.line(format!("{kind} part = {block} / {} % {};", across * down, c.parts));
    e.line(format!("{kind} batch = {block} / {};", across * down * c.parts));
    coordinates(e, "batch", &p.batch);
    let mut block = KnownBlock { e, p: &p, target };
    if c.parts > 1 {
        split_kv::declare(&mut block);
    }
    block.line(format!("{kind} begin = part * {}, end = begin + {};", c.part, c.part));
    block.line(format!("if (end > {keys}) end = {keys};", keys = c.sizes.keys));
    block::write(&mut block);
    Some(GridSize { blocks: c.blocks(), threads: c.threads })
}

/// A block of known extents.
struct KnownBlock<'a, 'k> {
    e: &'a mut Emitter<'k>,
    p: &'a FlashAttention,
    target: &'a OutputTarget<'a>,
}

impl StatementWriter for KnownBlock<'_, '_> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.e.line(text);
    }

    fn open(&mut self, head: &str) {
        self.e.open(head);
    }

    fn close(&mut self) {
        self.e.close();
    }
}

impl AttentionWriter for KnownBlock<'_, '_> {
    fn tiling(&self) -> AttentionTiling {
        self.p.tiling
    }

    fn index_type(&self) -> &'static str {
        self.e.index_type()
    }

    fn limit_registers(&mut self, registers: u32) {
        self.e.registers = Some(registers);
    }

    fn queries(&mut self) -> String {
        self.p.tiling.sizes.rows.to_string()
    }

    fn keys(&mut self) -> String {
        self.p.tiling.sizes.keys.to_string()
    }

    fn parts(&mut self) -> (String, i64) {
        let parts = self.p.tiling.parts;
        (parts.to_string(), parts)
    }

    fn block_of_part(&mut self) -> (String, String) {
        let c = &self.p.tiling;
        (self.e.block().into(), (c.across() * c.down()).to_string())
    }

    fn are_whole(&self, keys: i64) -> bool {
        self.p.tiling.sizes.keys % keys == 0
    }

    fn begin_tile(&mut self, tile: Tile<'_>, to: &str) {
        self.p.tile(tile, to).begin(self.e);
    }

    fn load_rows(&mut self, steps: i64) {
        let rows = self.p.tile(Tile::Query { from: "0" }, "0");
        TileLoad { units: MultiplyUnit::Real, stride: steps, steps, ..rows }.write(self.e);
    }

    fn width(&mut self, tile: Tile<'_>, most: i64) -> i64 {
        let load = self.p.tile(tile, "0");
        let width = vector_width(load.deep, most);
        let accesses =
            self.e.count_accesses(|e| e.lanes("deep", load.deep, width, |e| drop(load.value(e))));
        if accesses.vectorized <= accesses.scalar { 1 } else { width }
    }

    fn read(&mut self, tile: Tile<'_>, width: i64, to: &str) {
        let load = self.p.tile(tile, "0");
        coordinates(self.e, "place", load.along);
        let lane = if width == 1 { "0" } else { "lane" };
        self.e.lanes("deep", load.deep, width, |e| {
            let value = load.value(e);
            e.line(format!("{to}.at[{lane}] = {value};"));
        });
    }

    fn scores(&mut self, width: i64, score: NameOf<'_>) {
        let (p, sizes, along) = (self.p, self.p.tiling.sizes, [self.p.along]);
        let lanes = vector_width(&along, width);
        let one = |e: &mut Emitter<'_>, lane: &str| {
            e.bind(p.inner.0, &p.inner.1, &score(lane));
            let value = e.element(p.scores.0, &p.scores.1);
            e.line(format!("{} = {value};", score(lane)));
        };
        let e = &mut *self.e;
        let accesses = e.count_accesses(|e| e.lanes("across", &along, lanes, |e| one(e, "lane")));
        let together = width > 1 && lanes == width && accesses.vectorized > 0;
        let inside = format!("if (down < {} && across < {})", sizes.rows, sizes.keys);
        match (width, together) {
            (1, _) | (_, true) => {
                e.open(&inside);
                coordinates(e, "down", &p.rows);
                e.lanes("across", &along, width, |e| one(e, if width == 1 { "0" } else { "lane" }));
                e.close();
                e.open("else");
                block::outside(self, width, score);
                self.close();
            }
            _ => {
                e.line("#pragma unroll");
                e.open(&format!("for (int lane = 0; lane < {width}; ++lane, ++across)"));
                e.open(&inside);
                coordinates(e, "down", &p.rows);
                coordinates(e, "across", &along);
                one(e, "lane");
                e.close();
                e.line(format!("else {} = {};", score("lane"), least()));
                e.close();
            }
        }
    }

    fn finish(&mut self, width: i64, sum: NameOf<'_>, total: &str) {
        let (p, target, e) = (self.p, self.target, &mut *self.e);
        coordinates(e, "down", &p.rows);
        let one = |e: &mut Emitter<'_>, lane: &str| {
            e.line(format!("float quotient = {} / {total};", sum(lane)));
            e.bind(p.product, &p.index, "quotient");
            let value = e.element(target.value, &p.index);
            let slots: Vec<Slot> = p.index.iter().filter_map(super::slot_of).collect();
            (target.store)(e, &slots, &value);
        };
        let lanes = vector_width(&p.columns, width);
        let accesses =
            e.count_accesses(|e| e.lanes("across", &p.columns, lanes, |e| one(e, "lane")));
        match width == 1 || lanes == width && accesses.vectorized > 0 {
            true => e.lanes("across", &p.columns, width, |e| {
                one(e, if width == 1 { "0" } else { "lane" });
            }),
            false => {
                e.line("#pragma unroll");
                let inside = format!("lane < {width} && across < {}", size(&p.columns));
                e.open(&format!("for (int lane = 0; {inside}; ++lane, ++across)"));
                coordinates(e, "across", &p.columns);
                one(e, "lane");
                e.close();
            }
        }
    }

    fn hidden(&self) -> Option<f64> {
        self.p.skip.as_ref().map(|skip| skip.largest)
    }

    fn declare_counts(&mut self, own: &str, threads: u32) {
        if let Some(skip) = &self.p.skip {
            skip.declare(self.e, self.p, own, threads);
        }
    }
}

impl FlashAttention {
    /// A tile of a factor.
    fn tile<'a>(&'a self, tile: Tile<'a>, to: &str) -> TileLoad<'a> {
        let c = &self.tiling;
        let of_keys = |first: &'a str, from: &'a str| TileLoad {
            to: to.to_string(),
            lines: c.keys,
            stride: c.chunk + c.units.gap(),
            steps: c.chunk,
            along: std::slice::from_ref(&self.along),
            first,
            places: c.sizes.keys,
            deep: &self.deep,
            from,
            depth: c.sizes.depth,
            product: self.inner.0,
            factor: &self.key,
            units: c.units,
            threads: c.threads,
        };
        match tile {
            Tile::Query { from } => TileLoad {
                lines: c.rows,
                along: &self.rows,
                places: c.sizes.rows,
                factor: &self.query,
                ..of_keys("row", from)
            },
            Tile::Key { first, from } => of_keys(first, from),
            Tile::Value => TileLoad {
                stride: c.columns + c.units.gap(),
                steps: c.columns,
                deep: &self.columns,
                depth: c.sizes.columns,
                product: self.product,
                factor: &self.value_factor,
                ..of_keys("keys", "column")
            },
        }
    }
}
