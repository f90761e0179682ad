//! How tiles of the factors come into shared memory: as lines whose steps lie side by side; what lies outside is 0.

use super::cut::Units;
use crate::generate::emit::{Emitter, coordinates, side_by_side};
use crate::generate::factor::runs_along_depth;
use crate::generate::tile::open_unrolled;
use mlc_backends::reference::code::{Real, Slot};
use mlc_dsl::ir::Value;

/// Accesses of a thread that are on their way at once.
const AT_ONCE: i64 = 8;

/// A tile of a factor.
pub struct Load<'a> {
    /// The place of its first element in the shared array `tile`.
    pub to: i64,
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
    pub units: Units,
    pub threads: u32,
}

impl Load<'_> {
    fn value(&self, e: &mut Emitter<'_>) -> String {
        let value = e.real_of(self.product, false, self.factor);
        match self.units {
            Units::Half(dtype) => e.stored_element(dtype, &value),
            Units::Tf32 | Units::Real => value,
        }
    }

    /// Whether neighbouring threads take neighbouring steps, and how many elements each takes at once.
    fn order(&self, e: &mut Emitter<'_>) -> (bool, i64) {
        for along_depth in [true, false] {
            let (axes, at) = if along_depth { (self.deep, "deep") } else { (self.along, "place") };
            let width = side_by_side(axes, self.units.gap());
            let accesses = e.trial(|e| e.lanes(at, axes, width, |e| drop(self.value(e))));
            if width > 1 && accesses.together > accesses.apart {
                return (along_depth, width);
            }
        }
        let read = e.look_at(self.product, self.factor).offsets;
        (runs_along_depth(&read, self.deep, self.along), 1)
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
        let (to, stride) = (self.to, self.stride);
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
