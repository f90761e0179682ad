//! Loads tiles of Q, K and V into shared memory, steps contiguous within a line; elements outside are 0.

use super::tiling::MultiplyUnit;
use crate::generate::emit::{Emitter, VectorSource, coordinates, vector_width};
use crate::generate::product::simt::open_unrolled;
use crate::generate::product::smem_pipeline::runs_along_depth;
use crate::generate::product::strided_read::in_memory;
use mlc_backends::reference::code::{Real, Slot};
use mlc_dsl::ir::{DType, Value};

/// Accesses of a thread that are on their way at once.
const AT_ONCE: i64 = 8;

/// A tile of a factor.
pub struct TileLoad<'a> {
    /// An expression of the place of its first element in the shared array `tile`.
    pub to: String,
    /// Lines, and elements from a line to the next.
    pub lines: i64,
    pub stride: i64,
    /// Steps of a line.
    pub steps: i64,
    /// The axes that the lines lie along, an expression of the first one's place, and how many places there are.
    pub along: &'a [(Slot, i64)],
    pub first: &'a str,
    pub places: i64,
    /// The axes that the steps lie along, an expression of the first one, and how many there are.
    pub deep: &'a [(Slot, i64)],
    pub from: &'a str,
    pub depth: i64,
    /// The product whose factor this is.
    pub product: Value,
    pub factor: &'a Real,
    pub units: MultiplyUnit,
    pub threads: u32,
}

impl TileLoad<'_> {
    /// One of its elements.
    pub fn value(&self, e: &mut Emitter<'_>) -> String {
        let value = e.real_of(self.product, false, self.factor);
        match self.units {
            MultiplyUnit::Half(dtype) => e.stored_element(dtype, &value),
            MultiplyUnit::Tf32 | MultiplyUnit::Real => value,
        }
    }

    /// Whether neighbouring threads take neighbouring steps, and how many elements each takes at once.
    fn order(&self, e: &mut Emitter<'_>) -> (bool, i64) {
        for along_depth in [true, false] {
            let (axes, at) = if along_depth { (self.deep, "deep") } else { (self.along, "place") };
            let width = vector_width(axes, self.units.gap());
            let accesses = e.count_accesses(|e| e.lanes(at, axes, width, |e| drop(self.value(e))));
            if width > 1 && accesses.vectorized > accesses.scalar {
                return (along_depth, width);
            }
        }
        let read = e.analyse_real(self.product, self.factor).offsets;
        (runs_along_depth(&read, self.deep, self.along), 1)
    }

    /// Where such an access begins in memory.
    fn source(&self, e: &mut Emitter<'_>, width: i64) -> Option<VectorSource> {
        if vector_width(self.deep, width) != width {
            return None;
        }
        coordinates(e, "place", self.along);
        e.source("deep", self.deep, width, |e| in_memory(e, self.product, self.factor))
    }

    /// Elements that are copied at once, of 4 bytes at least, if the factor is in memory as the tile has it.
    fn copied(&self, e: &Emitter<'_>) -> Option<i64> {
        let (dtype, bytes) = match self.units {
            MultiplyUnit::Half(dtype) => (dtype, 2),
            MultiplyUnit::Tf32 | MultiplyUnit::Real => (DType::F32, 4),
        };
        let mut widths = [8, 4, 2, 1].into_iter().filter(|w| (4..=16).contains(&(w * bytes)));
        widths.find(|w| self.source(&mut e.clone(), *w).is_some_and(|s| s.dtype == dtype))
    }

    /// Writes a loop that begins to copy the tile without registers where it is in memory, and the ordinary one where it is not.
    pub fn begin(&self, e: &mut Emitter<'_>) {
        let Some(width) = self.copied(e) else { return self.write(e) };
        let (kind, threads) = (e.index_type(), i64::from(self.threads));
        let (accesses, steps) = (self.lines * self.steps / width, self.steps / width);
        let turns = accesses / threads + i64::from(accesses % threads != 0);
        // Where each is of one element there are many, whose places would all be kept.
        e.line(if turns > 2 * AT_ONCE {
            format!("#pragma unroll {AT_ONCE}")
        } else {
            "#pragma unroll".into()
        });
        e.open(&format!("for (int turn = 0; turn < {turns}; ++turn)"));
        e.line(format!("int at = threadIdx.x + turn * {threads};"));
        if accesses % threads != 0 {
            e.line(format!("if (at >= {accesses}) break;"));
        }
        match width > 1 || self.order(e).0 {
            true => e.line(format!("int line = at / {steps}, step = at % {steps} * {width};")),
            false => {
                e.line(format!("int line = at % {lines}, step = at / {lines};", lines = self.lines))
            }
        }
        e.line(format!("{kind} place = {} + line, deep = {} + step;", self.first, self.from));
        let source = self.source(e, width).expect("it is copied");
        let inside = format!("place < {} && deep < {}", self.places, self.depth);
        let inside: Vec<String> = [inside].into_iter().chain(source.inside).collect();
        e.line(format!("bool inside = {};", inside.join(" && ")));
        let call = match width == self.units.gap() {
            true => "copy_async".into(),
            false => format!("copy_part_async<{width}>"),
        };
        let to = format!("tile + ({} + line * {} + step)", self.to, self.stride);
        let name = source.name;
        let from = format!("inside ? {name} + ({}) : {name} + 0", source.place);
        e.line(format!("{call}({to}, {from}, inside);"));
        e.close();
    }

    /// Writes the loop.
    pub fn write(&self, e: &mut Emitter<'_>) {
        let (along_depth, width) = self.order(e);
        let (kind, element) = (e.index_type(), self.units.element());
        let accesses = self.lines * self.steps / width;
        let threads = i64::from(self.threads);
        e.line(format!("#pragma unroll {AT_ONCE}"));
        e.open(&format!("for (int at = threadIdx.x; at < {accesses}; at += {threads})"));
        let by = if width == 1 { String::new() } else { format!(" * {width}") };
        match along_depth {
            true => {
                let steps = self.steps / width;
                e.line(format!("int line = at / {steps}, step = at % {steps}{by};"));
            }
            false => {
                let lines = self.lines / width;
                e.line(format!("int line = at % {lines}{by}, step = at / {lines};"));
            }
        }
        e.line(format!("{kind} place = {} + line, deep = {} + step;", self.first, self.from));
        e.line(format!("Pack<{element}, {width}> values;"));
        open_unrolled(e, "lane", width);
        e.line("values.at[lane] = 0;");
        e.close();
        e.open(&format!("if (place < {} && deep < {})", self.places, self.depth));
        let (own, axes, at) = match along_depth {
            true => (("place", self.along), self.deep, "deep"),
            false => (("deep", self.deep), self.along, "place"),
        };
        coordinates(e, own.0, own.1);
        let lane = if width == 1 { "0" } else { "lane" };
        e.lanes(at, axes, width, |e| {
            let value = self.value(e);
            e.line(format!("values.at[{lane}] = {value};"));
        });
        e.close();
        let (to, stride) = (&self.to, self.stride);
        match along_depth {
            true => e.line(format!("store_pack(tile + ({to} + line * {stride} + step), values);")),
            false => {
                open_unrolled(e, "lane", width);
                let place = format!("{to} + (line + lane) * {stride} + step");
                e.line(format!("tile[{place}] = values.at[lane];"));
                e.close();
            }
        }
        e.close();
    }
}
