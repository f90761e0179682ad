//! Stages tiles of a product's factors in shared memory through registers, while the previous tiles are multiplied.
//!
//! A factor is computed where it is loaded, from whatever precedes it; elements outside are 0.

use super::super::emit::{Emitter, VectorSource, coordinates, vector_width};
use super::super::spelling as spell;
use super::strided_read::in_memory;
use super::tile_config::SIDE;
use super::warpgroups;
use super::{Product, Term, size};
use mlc_backends::reference::code::{Affine, Slot};
use mlc_dsl::ir::{DType, Value};

/// Threads of a block.
pub const THREADS: u32 = (SIDE * SIDE) as u32;

/// Element type of a tile in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileElement {
    /// Floats, of 64 bits if the flag says so, for SIMT products.
    Real(bool),
    /// Floats that tensor cores take as `tf32`.
    Tf32,
    /// The bits of floats of 16 bits, for tensor cores.
    Half(DType),
    /// Integers of 8 bits, for tensor cores.
    Byte(DType),
}

impl TileElement {
    /// The C++ type.
    pub fn name(self) -> &'static str {
        match self {
            TileElement::Real(double) => spell::real(double),
            TileElement::Tf32 => spell::real(false),
            TileElement::Half(dtype) | TileElement::Byte(dtype) => spell::stored(dtype),
        }
    }

    /// Elements of 16 bytes.
    pub fn widest(self) -> i64 {
        match self {
            TileElement::Real(true) => 2,
            TileElement::Real(false) | TileElement::Tf32 => 4,
            TileElement::Half(_) => 8,
            TileElement::Byte(_) => 16,
        }
    }

    /// Depth of a tile of a product in which a thread has so many elements: small tiles of a deep product are deeper, so that
    /// barriers are fewer.
    pub fn depth(self, elements: i64, depth: i64) -> i64 {
        match self {
            TileElement::Real(_) | TileElement::Tf32 => 16,
            TileElement::Half(_) if elements <= 8 && (depth % 64 == 0 || depth >= 256) => 64,
            TileElement::Half(_) | TileElement::Byte(_) => 32,
        }
    }

    /// Whether the lines of a step lie side by side in shared memory, where a factor is loaded along the depth, or is not.
    pub fn is_by_step(self, along_depth: bool) -> bool {
        match self {
            TileElement::Real(_) => true,
            TileElement::Tf32 | TileElement::Half(_) => !along_depth,
            // A register holds four steps of a line.
            TileElement::Byte(_) => false,
        }
    }

    /// The type in memory whose elements are what a tile consists of.
    pub fn stored(self) -> DType {
        match self {
            TileElement::Real(true) => DType::F64,
            TileElement::Real(false) | TileElement::Tf32 => DType::F32,
            TileElement::Half(dtype) | TileElement::Byte(dtype) => dtype,
        }
    }

    fn convert(self, e: &Emitter<'_>, value: &str) -> String {
        match self {
            TileElement::Real(_) | TileElement::Tf32 => value.into(),
            TileElement::Half(dtype) | TileElement::Byte(dtype) => e.stored_element(dtype, value),
        }
    }
}

/// How tiles of a factor lie in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLayout {
    /// The shared array.
    pub name: &'static str,
    pub element: TileElement,
    /// Depth of a tile.
    pub depth: i64,
    /// Lines of a tile, and whether those of a step lie side by side in shared memory; otherwise the steps of a line do.
    pub lines: i64,
    pub by_step: bool,
    /// Whether it is swizzled in shared memory, as `wgmma` reads it.
    pub is_swizzled: bool,
}

impl TileLayout {
    /// Elements from a step, or a line, to the next in shared memory: with a gap of 16 bytes, so that they begin at different
    /// banks, and of 32 for tensor cores, where neighbouring threads read neighbouring steps of a line.
    pub fn stride(&self) -> i64 {
        match (self.element, self.by_step) {
            (TileElement::Tf32, true) => self.lines + 8,
            (element, true) => self.lines + element.widest(),
            (element, false) => self.depth + element.widest(),
        }
    }

    /// The place of an element in shared memory, of the tile in use or of the other one.
    pub fn place(&self, tile: &str, line: &str, step: &str) -> String {
        if self.is_swizzled {
            let place = warpgroups::place(self.lines, self.by_step, line, step);
            return format!("{tile} * {} + {place}", self.tile());
        }
        let (stride, depth) = (self.stride(), self.depth);
        match self.by_step {
            true => format!("({tile} * {depth} + {step}) * {stride} + {line}"),
            false => format!("({tile} * {} + {line}) * {stride} + {step}", self.lines),
        }
    }

    /// Elements of a tile, with gaps.
    pub fn tile(&self) -> i64 {
        if self.is_swizzled {
            return self.lines * self.depth;
        }
        self.stride() * if self.by_step { self.depth } else { self.lines }
    }
}

/// A factor and its tiles.
pub struct FactorTile<'a> {
    /// How they lie.
    pub layout: TileLayout,
    /// The variable with the tile's first line, and how many lines there are.
    first: &'static str,
    count: i64,
    /// The factor's own axes, those of the depth, and its elements.
    along: &'a [(Slot, i64)],
    deep: &'a [(Slot, i64)],
    factor: &'a Term,
    /// The zero point added to integers.
    shift: i64,
    product: Value,
    double: bool,
    /// Whether neighbouring threads load what lies side by side along the depth, and how many elements at once.
    along_depth: bool,
    width: i64,
}

/// Axes, and the name of a position along them.
type AxesAt<'a> = (&'a [(Slot, i64)], &'static str);

/// Whether more loads of a factor are contiguous along the depth than along its own axes.
pub fn runs_along_depth(
    offsets: &[(Value, Affine)],
    deep: &[(Slot, i64)],
    own: &[(Slot, i64)],
) -> bool {
    let runs = |axes: &[(Slot, i64)]| {
        let last = axes.iter().rev().find(|a| a.1 != 1);
        let beside = |s: Slot| offsets.iter().filter(|o| o.1.factor(s) == 1).count();
        last.map_or(0, |a| beside(a.0))
    };
    runs(deep) > runs(own)
}

impl<'a> FactorTile<'a> {
    /// The factor of rows (0) or columns (1), loaded along the axes with the most vector accesses.
    pub fn new(
        e: &mut Emitter<'_>,
        p: &'a Product,
        side: usize,
        lines: i64,
        element: TileElement,
    ) -> FactorTile<'a> {
        let mut f = FactorTile::by_step(e, p, side, lines, element);
        f.layout.by_step = element.is_by_step(f.along_depth);
        f
    }

    fn by_step(
        e: &mut Emitter<'_>,
        p: &'a Product,
        side: usize,
        lines: i64,
        element: TileElement,
    ) -> FactorTile<'a> {
        let (name, first, along) = match side {
            0 => ("left", "row", &p.rows),
            _ => ("right", "column", &p.columns),
        };
        let (count, factor) = (size(along), &p.factors[side]);
        let layout = TileLayout {
            name,
            element,
            depth: p.tiling.step,
            lines,
            by_step: true,
            is_swizzled: p.tiling.by_warpgroups,
        };
        let mut f = FactorTile {
            layout,
            first,
            count,
            along,
            deep: &p.deep,
            factor,
            shift: p.bytes.map_or(0, |b| b.shifts[side]),
            product: p.value,
            double: p.double,
            along_depth: false,
            width: 1,
        };
        for along_depth in [false, true] {
            f.along_depth = along_depth;
            f.width = vector_width(f.side(), element.widest());
            let accesses = e.count_accesses(|e| f.elements(e, &mut |_, _| {}));
            if f.width > 1 && accesses.vectorized > accesses.scalar {
                return f;
            }
        }
        f.width = 1;
        f.along_depth = runs_along_depth(&e.analyse_term(p.value, factor).offsets, &p.deep, along);
        f
    }

    fn side(&self) -> &'a [(Slot, i64)] {
        if self.along_depth { self.deep } else { self.along }
    }

    fn turns(&self) -> i64 {
        (self.layout.lines * self.layout.depth / self.width + i64::from(THREADS) - 1)
            / i64::from(THREADS)
    }

    /// Whether the last turn has fewer accesses than threads.
    fn is_short(&self) -> bool {
        self.layout.lines * self.layout.depth / self.width % i64::from(THREADS) != 0
    }

    /// Declares the shared array, and the registers of what is on its way.
    pub fn declare(&self, e: &mut Emitter<'_>) {
        let (name, real) = (self.layout.name, self.layout.element.name());
        e.line(format!("SHARED({real}, {name}, {});", 2 * self.layout.tile()));
        self.declare_next(e);
    }

    /// Declares the registers of what is on its way.
    pub fn declare_next(&self, e: &mut Emitter<'_>) {
        let (name, real) = (self.layout.name, self.layout.element.name());
        e.line(format!("{real} next_{name}[{}];", self.turns() * self.width));
    }

    /// The same factor as it is copied from memory without passing through registers, if it is there as it is, or 0 outside of what is there:
    /// by up to 16 bytes, 4 at least, where they lie side by side in both memories.
    pub fn copied(&self, e: &Emitter<'_>) -> Option<FactorTile<'a>> {
        if let TileElement::Byte(_) = self.layout.element {
            return None;
        }
        let bytes = self.layout.element.stored().size() as i64;
        let widths = [8, 4, 2, 1].into_iter().filter(|w| (4..=16).contains(&(w * bytes)));
        let sides = [self.along_depth, !self.along_depth];
        let all = widths.flat_map(|width| sides.map(|along_depth| (width, along_depth)));
        all.map(|(width, along_depth)| {
            // A single element lies wherever threads read it best.
            let by_step = if width == 1 { self.layout.by_step } else { !along_depth };
            let layout = TileLayout { by_step, ..self.layout };
            FactorTile { layout, width, along_depth, ..*self }
        })
        // Threads beside each other read what lies side by side.
        .filter(|f| f.width > 1 || f.along_depth == self.along_depth)
        .find(|f| {
            let found = f.source(&mut e.clone());
            found.is_some_and(|s| s.dtype == self.layout.element.stored())
        })
    }

    /// Where an access begins in memory.
    fn source(&self, e: &mut Emitter<'_>) -> Option<VectorSource> {
        let Term::Real(factor) = self.factor else { return None };
        let (own, at) = self.axes();
        if vector_width(at.0, self.width) != self.width {
            return None;
        }
        coordinates(e, own.1, own.0);
        e.source(at.1, at.0, self.width, |e| in_memory(e, self.product, factor))
    }

    /// Declares the shared array for so many tiles that are copied.
    pub fn declare_copied(&self, e: &mut Emitter<'_>, tiles: i64) {
        e.line(format!(
            "SHARED({}, {}, {});",
            self.layout.element.name(),
            self.layout.name,
            tiles * self.layout.tile()
        ));
    }

    /// Writes the loop that begins to copy from the step `next` of the depth on, before `end`, to the tile `to`; what lies outside is 0.
    pub fn copy(&self, e: &mut Emitter<'_>, to: &str, has_tail: bool) {
        let (kind, name) = (e.index_type(), self.layout.name);
        self.open(e);
        e.line(format!("{kind} place = {} + line, deep = next + step;", self.first));
        let source = self.source(e).expect("it is copied");
        let to = self.layout.place(to, "line", "step");
        let bounds = Some(self.inside(has_tail)).filter(|i| !i.is_empty());
        let inside: Vec<String> = bounds.into_iter().chain(source.inside).collect();
        let call = match self.width == self.layout.element.widest() {
            true => "copy_async".into(),
            false => format!("copy_part_async<{}>", self.width),
        };
        let from = format!("{} + ({})", source.name, source.place);
        match inside.is_empty() {
            true => e.line(format!("{call}({name} + ({to}), {from}, true);")),
            false => {
                e.line(format!("bool inside = {};", inside.join(" && ")));
                let from = format!("inside ? {from} : {} + 0", source.name);
                e.line(format!("{call}({name} + ({to}), {from}, inside);"));
            }
        }
        e.close();
    }

    /// The condition that a place and a step of the depth are inside; empty if they are anyway.
    fn inside(&self, has_tail: bool) -> String {
        let mut inside = vec![];
        if self.count % self.layout.lines != 0 {
            inside.push(format!("place < {}", self.count));
        }
        if has_tail {
            inside.push("deep < end".to_string());
        }
        inside.join(" && ")
    }

    /// Opens a loop over the accesses of a thread: `line` and `step` are those of the first element.
    fn open(&self, e: &mut Emitter<'_>) {
        let (width, lines) = (self.width, self.layout.lines / self.width);
        let steps = self.layout.depth / width;
        e.line("#pragma unroll");
        e.open(&format!("for (int turn = 0; turn < {}; ++turn)", self.turns()));
        e.line(format!("int at = threadIdx.x + turn * {THREADS};"));
        if self.is_short() {
            e.line(format!("if (at >= {}) break;", self.layout.lines * self.layout.depth / width));
        }
        let by = if width == 1 { String::new() } else { format!(" * {width}") };
        match self.along_depth {
            true => e.line(format!("int line = at / {steps}, step = at % {steps}{by};")),
            false => e.line(format!("int line = at % {lines}{by}, step = at / {lines};")),
        }
    }

    /// The axes that neighbouring accesses tell apart and their position, and the same of those that an access lies along.
    fn axes(&self) -> (AxesAt<'a>, AxesAt<'a>) {
        match self.along_depth {
            true => ((self.along, "place"), (self.deep, "deep")),
            false => ((self.deep, "deep"), (self.along, "place")),
        }
    }

    /// Writes the elements of one access; `put` stores one.
    fn elements(&self, e: &mut Emitter<'_>, put: &mut dyn FnMut(&mut Emitter<'_>, &str)) {
        let (own, at) = self.axes();
        coordinates(e, own.1, own.0);
        e.lanes(at.1, at.0, self.width, |e| {
            let value = e.term_of(self.product, self.double, self.factor);
            let value = match self.shift {
                0 => self.layout.element.convert(e, &value),
                by => self.layout.element.convert(e, &format!("{value} + {by}")),
            };
            put(e, &value);
        });
    }

    /// Writes the loop that loads from the step `next` of the depth on, before `end`; what lies outside is 0.
    pub fn load(&self, e: &mut Emitter<'_>, has_tail: bool) {
        let (kind, width) = (e.index_type(), self.width);
        self.open(e);
        e.line(format!("{kind} place = {} + line, deep = next + step;", self.first));
        let lane = if width == 1 { "turn".into() } else { format!("turn * {width} + lane") };
        let zero = format!("next_{}[{lane}] = 0;", self.layout.name);
        match width {
            1 => e.line(zero),
            _ => {
                e.line("#pragma unroll");
                e.line(format!("for (int lane = 0; lane < {width}; ++lane) {zero}"));
            }
        }
        let check = self.inside(has_tail);
        e.open(&if check.is_empty() { check } else { format!("if ({check})") });
        let name = self.layout.name;
        self.elements(e, &mut |e, value| e.line(format!("next_{name}[{lane}] = {value};")));
        e.close();
        e.close();
    }

    /// Writes the loop that stores what was loaded into the other tile.
    pub fn store(&self, e: &mut Emitter<'_>) {
        let (name, width, real) = (self.layout.name, self.width, self.layout.element.name());
        self.open(e);
        let lane = |line: &str, step: &str| self.layout.place("(1 - tile)", line, step);
        match (width, self.along_depth == self.layout.by_step) {
            (1, _) => {
                e.line(format!("{name}[{}] = next_{name}[turn];", lane("line", "step")));
            }
            (_, true) => {
                let (line, step) = match self.along_depth {
                    true => ("line", "(step + lane)"),
                    false => ("(line + lane)", "step"),
                };
                e.line("#pragma unroll");
                e.line(format!("for (int lane = 0; lane < {width}; ++lane)"));
                let to = format!("{name}[{}]", lane(line, step));
                e.line(format!("  {to} = next_{name}[turn * {width} + lane];"));
            }
            (_, false) => {
                e.line(format!("Pack<{real}, {width}> values;"));
                e.line("#pragma unroll");
                e.line(format!(
                    "for (int lane = 0; lane < {width}; ++lane) values.at[lane] = next_{name}[turn * {width} + lane];"
                ));
                e.line(format!("store_pack({name} + ({}), values);", lane("line", "step")));
            }
        }
        e.close();
    }
}
