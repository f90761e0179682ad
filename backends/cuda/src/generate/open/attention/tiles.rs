//! Loads tiles of Q, K and V, as for known extents: what lies in memory as the tile has it is copied, other elements are computed.

use super::{OpenAttention, OpenFactor};
use crate::generate::emit::StatementWriter;
use crate::generate::flash_attention::block::Tile;
use crate::generate::flash_attention::tiling::{AttentionTiling, MultiplyUnit};
use crate::generate::open::emitter::OpenEmitter;
use crate::generate::open::product::{Axes, InMemory, is_aligned, size};
use mlc_dsl::ir::DType;

/// Accesses of a thread that are on their way at once.
const AT_ONCE: i64 = 8;

/// A tile of a factor: lines along some axes from an expression on, and steps of each along others.
pub struct OpenTile<'a> {
    pub factor: &'a OpenFactor,
    pub units: MultiplyUnit,
    pub lines: i64,
    pub along: &'a Axes,
    pub first: &'a str,
    pub steps: i64,
    pub stride: i64,
    pub deep: &'a Axes,
    pub from: &'a str,
    pub depth: i64,
    pub threads: u32,
}

impl OpenAttention {
    /// A tile of a factor.
    pub fn tile<'a>(&'a self, c: &AttentionTiling, tile: Tile<'a>) -> OpenTile<'a> {
        let of_keys = |first: &'a str, from: &'a str| OpenTile {
            factor: &self.key,
            units: c.units,
            lines: c.keys,
            along: &self.along,
            first,
            steps: c.chunk,
            stride: c.chunk + c.units.gap(),
            deep: &self.deep,
            from,
            depth: c.sizes.depth,
            threads: c.threads,
        };
        match tile {
            Tile::Query { from } => OpenTile {
                factor: &self.query,
                lines: c.rows,
                along: &self.rows,
                ..of_keys("row", from)
            },
            Tile::Key { first, from } => of_keys(first, from),
            Tile::Value => OpenTile {
                factor: &self.value,
                steps: c.columns,
                stride: c.columns + c.units.gap(),
                deep: &self.columns,
                depth: c.sizes.columns,
                ..of_keys("keys", "column")
            },
        }
    }
}

impl OpenTile<'_> {
    /// The type of an element in the tile.
    fn dtype(&self) -> DType {
        match self.units {
            MultiplyUnit::Half(dtype) => dtype,
            MultiplyUnit::Tf32 | MultiplyUnit::Real => DType::F32,
        }
    }

    /// Where the factor is in memory, if it is there as the tile has it and never read outside.
    fn in_memory(&self, e: &OpenEmitter<'_>) -> Option<InMemory> {
        self.factor.in_memory(e).filter(|f| e.kernel.dtype(f.value) == self.dtype())
    }

    /// Elements of a line that lie side by side from an aligned address on, at most so many.
    pub fn width(&self, e: &OpenEmitter<'_>, most: i64) -> i64 {
        let Some(found) = self.in_memory(e) else { return 1 };
        let widths = [8, 4, 2].into_iter().filter(|w| *w <= most);
        let mut widths = widths.filter(|w| w * self.dtype().size() as i64 <= 16);
        widths.find(|w| is_aligned(e, &found, self.deep, *w)).unwrap_or(1)
    }

    /// Declares the variables of the element at `place` and `deep`.
    fn coordinates(&self, e: &mut OpenEmitter<'_>) {
        e.coordinates("place", self.along);
        e.coordinates("deep", self.deep);
    }

    /// Writes an element, or several that lie side by side, at `place` and `deep`, to `{to}.at[…]`.
    pub fn read(&self, e: &mut OpenEmitter<'_>, width: i64, to: &str) {
        self.coordinates(e);
        match self.in_memory(e).filter(|_| width > 1) {
            Some(found) => {
                let (name, offset) = (e.memory(found.value), e.form(&found.offset));
                e.line(format!("{to} = load_pack<{width}>({name} + ({offset}));"));
            }
            None => {
                let value = self.value(e);
                e.line(format!("{to}.at[0] = {value};"));
            }
        }
    }

    fn value(&self, e: &mut OpenEmitter<'_>) -> String {
        let value = self.factor.value(e);
        match self.units {
            MultiplyUnit::Half(dtype) => e.stored_element(dtype, &value),
            MultiplyUnit::Tf32 | MultiplyUnit::Real => value,
        }
    }

    /// Whether neighbouring threads take neighbouring steps: not where lines lie side by side in memory.
    fn is_along_depth(&self, e: &OpenEmitter<'_>) -> bool {
        let Some(found) = self.in_memory(e) else { return true };
        let runs = |axes: &Axes| {
            let last = axes.iter().rev().find(|a| !a.1.is(1));
            last.is_some_and(|a| found.offset.factor(a.0).is(1))
        };
        runs(self.deep) || !runs(self.along)
    }

    /// Writes where the access `at` of so many elements lies, and whether that is inside.
    fn place(&self, e: &mut OpenEmitter<'_>, width: i64) {
        let (steps, lines, kind) = (self.steps / width, self.lines, e.index);
        let by = if width == 1 { String::new() } else { format!(" * {width}") };
        match width > 1 || self.is_along_depth(e) {
            true => e.line(format!("int line = at / {steps}, step = at % {steps}{by};")),
            false => e.line(format!("int line = at % {lines}, step = at / {lines};")),
        }
        let (first, from) = (self.first, self.from);
        e.line(format!("{kind} place = {first} + line, deep = {from} + step;"));
        let places = e.number(&size(self.along));
        e.line(format!("bool inside = place < {places} && deep < {};", self.depth));
    }

    /// Writes a loop that begins to copy the tile without registers where it is in memory, and the ordinary one where it is not.
    pub fn begin(&self, e: &mut OpenEmitter<'_>, to: &str) {
        let (bytes, widest) = (self.dtype().size() as i64, self.units.gap());
        let width = self.width(e, widest);
        let Some(found) = self.in_memory(e).filter(|_| width * bytes >= 4) else {
            return self.write(e, to);
        };
        let threads = i64::from(self.threads);
        let accesses = self.lines * self.steps / width;
        let turns = accesses / threads + i64::from(accesses % threads != 0);
        // Where each is of one element there are many, whose places would all be kept.
        let at_once = if turns > 2 * AT_ONCE { format!(" {AT_ONCE}") } else { String::new() };
        e.line(format!("#pragma unroll{at_once}"));
        e.open(&format!("for (int turn = 0; turn < {turns}; ++turn)"));
        e.line(format!("int at = threadIdx.x + turn * {threads};"));
        if accesses % threads != 0 {
            e.line(format!("if (at >= {accesses}) break;"));
        }
        self.place(e, width);
        self.coordinates(e);
        let call = match width == widest {
            true => "copy_async".into(),
            false => format!("copy_part_async<{width}>"),
        };
        let (name, offset) = (e.memory(found.value), e.form(&found.offset));
        let from = format!("inside ? {name} + ({offset}) : {name} + 0");
        let to = format!("tile + ({to} + line * {} + step)", self.stride);
        e.line(format!("{call}({to}, {from}, inside);"));
        e.close();
    }

    /// Writes the loop over single elements; those outside are 0.
    pub fn write(&self, e: &mut OpenEmitter<'_>, to: &str) {
        let (accesses, threads) = (self.lines * self.steps, self.threads);
        e.line(format!("#pragma unroll {AT_ONCE}"));
        e.open(&format!("for (int at = threadIdx.x; at < {accesses}; at += {threads})"));
        self.place(e, 1);
        e.line(format!("{} value = 0;", self.units.element()));
        e.open("if (inside)");
        self.coordinates(e);
        let value = self.value(e);
        e.line(format!("value = {value};"));
        e.close();
        e.line(format!("tile[{to} + line * {} + step] = value;", self.stride));
        e.close();
    }
}
