//! The FlashAttention kernel around its products: the position of a block, the loop over its keys, and the stores.

use super::tile_load::TileLoad;
use super::tiling::MultiplyUnit;
use super::{FlashAttention, decode, simt, split_kv, tensor_cores};
use crate::generate::emit::{Emitter, coordinates, vector_width};
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
    if c.parts > 1 {
        split_kv::declare(e, c);
    }
    e.line(format!("{kind} begin = part * {}, end = begin + {};", c.part, c.part));
    e.line(format!("if (end > {keys}) end = {keys};", keys = c.sizes.keys));
    match (c.decode, c.units) {
        (Some(few), _) => decode::write(e, &p, few, target),
        (None, MultiplyUnit::Half(_) | MultiplyUnit::Tf32) => tensor_cores::write(e, &p, target),
        (None, MultiplyUnit::Real) => simt::write(e, &p, target),
    }
    if c.parts > 1 {
        split_kv::combine(e, &p, target);
    }
    Some(GridSize { blocks: c.blocks(), threads: c.threads })
}

impl FlashAttention {
    /// The tile of Q, from a step of the depth on.
    pub fn query_tile<'a>(&'a self, to: impl ToString, from: &'a str) -> TileLoad<'a> {
        TileLoad {
            lines: self.tiling.rows,
            along: &self.rows,
            first: "row",
            places: self.tiling.sizes.rows,
            factor: &self.query,
            ..self.key_tile(to, from)
        }
    }

    /// The tile of K.
    pub fn key_tile<'a>(&'a self, to: impl ToString, from: &'a str) -> TileLoad<'a> {
        let c = &self.tiling;
        TileLoad {
            to: to.to_string(),
            lines: c.keys,
            stride: c.chunk + c.units.gap(),
            steps: c.chunk,
            along: std::slice::from_ref(&self.along),
            first: "keys",
            places: c.sizes.keys,
            deep: &self.deep,
            from,
            depth: c.sizes.depth,
            product: self.inner.0,
            factor: &self.key,
            units: c.units,
            threads: c.threads,
        }
    }

    /// The tile of V: its lines are keys, too.
    pub fn value_tile(&self, to: impl ToString) -> TileLoad<'_> {
        let c = &self.tiling;
        TileLoad {
            stride: c.columns + c.units.gap(),
            steps: c.columns,
            deep: &self.columns,
            from: "column",
            depth: c.sizes.columns,
            product: self.product,
            factor: &self.value_factor,
            ..self.key_tile(to, "0")
        }
    }

    /// Advances `keys` to the next tile that is not masked out.
    pub fn find_tile(&self, e: &mut Emitter<'_>) {
        if let Some(skip) = &self.skip {
            e.open(&format!("for (; keys < end; keys += {})", self.tiling.keys));
            skip.leave_out(e, self);
            e.line("break;");
            e.close();
        }
    }

    /// Turns products of the row `down` and `width` keys from `across` on into scores: `score` names the variable with a product,
    /// which becomes the score, or minus infinity outside.
    pub fn scores(&self, e: &mut Emitter<'_>, width: i64, score: &dyn Fn(&str) -> String) {
        let (sizes, along) = (self.tiling.sizes, [self.along]);
        let lanes = vector_width(&along, width);
        let one = |e: &mut Emitter<'_>, lane: &str| {
            e.bind(self.inner.0, &self.inner.1, &score(lane));
            let value = e.element(self.scores.0, &self.scores.1);
            e.line(format!("{} = {value};", score(lane)));
        };
        let accesses = e.count_accesses(|e| e.lanes("across", &along, lanes, |e| one(e, "lane")));
        let together = width > 1 && lanes == width && accesses.vectorized > 0;
        let inside = format!("if (down < {} && across < {})", sizes.rows, sizes.keys);
        match (width, together) {
            (1, _) | (_, true) => {
                e.open(&inside);
                coordinates(e, "down", &self.rows);
                e.lanes("across", &along, width, |e| one(e, if width == 1 { "0" } else { "lane" }));
                e.close();
                e.open("else");
                e.line("#pragma unroll");
                let outside = format!("{} = {};", score("lane"), least());
                e.line(format!("for (int lane = 0; lane < {width}; ++lane) {outside}"));
                e.close();
            }
            _ => {
                e.line("#pragma unroll");
                e.open(&format!("for (int lane = 0; lane < {width}; ++lane, ++across)"));
                e.open(&inside);
                coordinates(e, "down", &self.rows);
                coordinates(e, "across", &along);
                one(e, "lane");
                e.close();
                e.line(format!("else {} = {};", score("lane"), least()));
                e.close();
            }
        }
    }

    /// Stores `width` sums of a row `down` from the column `across` on: `sum` names one, `total` the sum of the row's exponentials,
    /// `most` its largest element.
    pub fn results(
        &self,
        e: &mut Emitter<'_>,
        target: &OutputTarget<'_>,
        width: i64,
        sum: &dyn Fn(&str) -> String,
        [total, most]: [&str; 2],
    ) {
        e.open(&self.inside());
        match self.tiling.parts {
            1 => self.finish(e, target, width, sum, total),
            _ => split_kv::store(e, &self.tiling, width, sum, [total, most]),
        }
        e.close();
    }

    /// The bounds check of the row `down` and the column `across`, as the head of a block.
    pub fn inside(&self) -> String {
        let sizes = self.tiling.sizes;
        format!("if (down < {} && across < {})", sizes.rows, sizes.columns)
    }

    /// Stores `width` results from sums of all keys, inside: `sum` and `total` as in [`results`](Self::results).
    pub fn finish(
        &self,
        e: &mut Emitter<'_>,
        target: &OutputTarget<'_>,
        width: i64,
        sum: &dyn Fn(&str) -> String,
        total: &str,
    ) {
        coordinates(e, "down", &self.rows);
        let one = |e: &mut Emitter<'_>, lane: &str| {
            e.line(format!("float quotient = {} / {total};", sum(lane)));
            e.bind(self.product, &self.index, "quotient");
            let value = e.element(target.value, &self.index);
            let slots: Vec<Slot> = self.index.iter().filter_map(super::slot_of).collect();
            (target.store)(e, &slots, &value);
        };
        let lanes = vector_width(&self.columns, width);
        let accesses =
            e.count_accesses(|e| e.lanes("across", &self.columns, lanes, |e| one(e, "lane")));
        match width == 1 || lanes == width && accesses.vectorized > 0 {
            true => e.lanes("across", &self.columns, width, |e| {
                one(e, if width == 1 { "0" } else { "lane" });
            }),
            false => {
                e.line("#pragma unroll");
                let inside = format!("lane < {width} && across < {}", size(&self.columns));
                e.open(&format!("for (int lane = 0; {inside}; ++lane, ++across)"));
                coordinates(e, "across", &self.columns);
                one(e, "lane");
                e.close();
            }
        }
    }
}
