//! A block of attention whose extents are arguments.

use super::OpenAttention;
use crate::generate::emit::StatementWriter;
use crate::generate::flash_attention::block::{self, AttentionWriter, NameOf, Tile};
use crate::generate::flash_attention::tiling::{AttentionTiling, MultiplyUnit};
use crate::generate::flash_attention::{least, split_kv};
use crate::generate::open::emitter::OpenEmitter;
use crate::generate::open::product::size;
use crate::generate::open::tiles_of;
use mlc_dsl::ir::Extent;

/// Stores an element of the result, whose product is bound.
pub type Store<'a, 'k> = &'a dyn Fn(&mut OpenEmitter<'k>);

/// Parts of the keys at most, as far as the text knows.
const MOST_PARTS: i64 = 64;

/// Writes a block.
pub struct OpenBlock<'a, 'k> {
    pub e: &'a mut OpenEmitter<'k>,
    pub attention: &'a OpenAttention,
    /// The tiling of the band, and that of the extents of a run.
    pub tiling: AttentionTiling,
    pub own: AttentionTiling,
    pub store: Store<'a, 'k>,
}

impl OpenBlock<'_, '_> {
    /// Writes the function.
    pub fn write(&mut self) {
        let c = self.tiling;
        let (kind, across) = (self.e.index, c.across());
        let (block, of_part) = self.block_of_part();
        let down = self.down();
        let down = self.e.number(&down);
        self.line(format!("{kind} row = {block} / {across} % {down} * {};", c.rows));
        self.line(format!("{kind} column = {block} % {across} * {};", c.columns));
        let keys = self.keys();
        if c.parts > 1 {
            let (parts, _) = self.parts();
            let part = self.e.chosen("part", self.own.part);
            self.line(format!("{kind} part = {block} / {of_part} % {parts};"));
            self.line(format!("{kind} batch = {block} / {of_part} / {parts};"));
            self.e.coordinates("batch", &self.attention.batch);
            split_kv::declare(self);
            self.line(format!("{kind} begin = part * {part}, end = begin + {part};"));
            self.line(format!("if (end > {keys}) end = {keys};"));
        } else {
            self.line(format!("{kind} batch = {block} / {of_part};"));
            self.e.coordinates("batch", &self.attention.batch);
            self.line(format!("{kind} begin = 0, end = {keys};"));
        }
        block::write(self);
    }

    /// Blocks along the rows.
    fn down(&self) -> Extent {
        tiles_of(&size(&self.attention.rows), self.tiling.rows)
    }

    /// Whether there are keys whatever the extents are.
    fn has_keys(&self) -> bool {
        size(&self.attention.along).at_least(1)
    }
}

impl StatementWriter for OpenBlock<'_, '_> {
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

impl AttentionWriter for OpenBlock<'_, '_> {
    fn tiling(&self) -> AttentionTiling {
        self.tiling
    }

    fn index_type(&self) -> &'static str {
        self.e.index
    }

    fn limit_registers(&mut self, registers: u32) {
        self.e.registers = Some(registers);
    }

    fn queries(&mut self) -> String {
        self.e.number(&size(&self.attention.rows))
    }

    fn keys(&mut self) -> String {
        self.e.number(&size(&self.attention.along))
    }

    fn parts(&mut self) -> (String, i64) {
        (self.e.chosen("parts", self.own.parts), MOST_PARTS)
    }

    fn block_of_part(&mut self) -> (String, String) {
        let of_part = &self.down() * &Extent::from(self.tiling.across());
        (format!("({})blockIdx.x", self.e.index), self.e.number(&of_part))
    }

    fn are_whole(&self, keys: i64) -> bool {
        size(&self.attention.along).div_exact(&Extent::from(keys)).is_some()
    }

    fn begin_tile(&mut self, tile: Tile<'_>, to: &str) {
        self.attention.tile(&self.tiling, tile).begin(self.e, to);
    }

    fn load_rows(&mut self, steps: i64) {
        let mut rows = self.attention.tile(&self.tiling, Tile::Query { from: "0" });
        (rows.units, rows.steps, rows.stride) = (MultiplyUnit::Real, steps, steps);
        rows.write(self.e, "0");
    }

    fn width(&mut self, tile: Tile<'_>, most: i64) -> i64 {
        self.attention.tile(&self.tiling, tile).width(self.e, most)
    }

    fn read(&mut self, tile: Tile<'_>, width: i64, to: &str) {
        self.attention.tile(&self.tiling, tile).read(self.e, width, to);
    }

    fn scores(&mut self, width: i64, score: NameOf<'_>) {
        let (queries, keys, p) = (self.queries(), self.keys(), self.attention);
        let inside = format!("if (down < {queries} && across < {keys})");
        if width > 1 {
            self.line("#pragma unroll");
            self.open(&format!("for (int lane = 0; lane < {width}; ++lane, ++across)"));
        }
        let score = score(if width == 1 { "0" } else { "lane" });
        self.open(&inside);
        self.e.coordinates("down", &p.rows);
        self.e.coordinates("across", &p.along);
        self.e.bind(p.inner.0, &p.inner.1, &score);
        let value = self.e.element(p.scores.0, &p.scores.1);
        self.line(format!("{score} = {value};"));
        self.close();
        self.line(format!("else {score} = {};", least()));
        if width > 1 {
            self.close();
        }
    }

    fn finish(&mut self, width: i64, sum: NameOf<'_>, total: &str) {
        let p = self.attention;
        self.e.coordinates("down", &p.rows);
        if width > 1 {
            self.line("#pragma unroll");
            let inside = format!("lane < {width} && across < {}", self.tiling.sizes.columns);
            self.open(&format!("for (int lane = 0; {inside}; ++lane, ++across)"));
        }
        self.e.coordinates("across", &p.columns);
        let quotient = format!("{} / {total}", sum(if width == 1 { "0" } else { "lane" }));
        let quotient = match self.has_keys() {
            true => quotient,
            // The sum of no terms is 0.
            false => format!("{} > 0 ? {quotient} : 0.0f", self.keys()),
        };
        self.line(format!("float quotient = {quotient};"));
        self.e.bind(p.product, &p.index, "quotient");
        (self.store)(self.e);
        if width > 1 {
            self.close();
        }
    }

    fn hidden(&self) -> Option<f64> {
        // A single tile is not looked for.
        let has_tiles = self.tiling.sizes.keys > self.tiling.keys;
        self.attention.masks.as_ref().filter(|_| has_tiles).map(|masks| masks.largest)
    }

    fn declare_counts(&mut self, own: &str, threads: u32) {
        let (c, kind, p) = (self.tiling, self.e.index, self.attention);
        let (queries, keys) = (self.queries(), self.keys());
        let (lines, steps) = (c.rows.min(c.sizes.rows), c.keys);
        self.line("bool counts = false;");
        self.open(&format!("for (int at = {own}; at < {}; at += {threads})", lines * steps));
        self.line(format!("{kind} down = row + at / {steps}, across = keys + at % {steps};"));
        self.open(&format!("if (down < {queries} && across < {keys})"));
        self.e.coordinates("down", &p.rows);
        self.e.coordinates("across", &p.along);
        if let Some(masks) = &p.masks {
            let counts = masks.counts(self.e);
            self.line(format!("counts = counts || {counts};"));
        }
        self.close();
        self.close();
    }
}
