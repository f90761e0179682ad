//! Products of matrices whose open extents are arguments: tiles have fixed sizes, and their guards are numbers that the function takes.
//!
//! The mainloops are those of known extents ([`simt`], [`mma`]). Copies of several elements at once are written only where alignment
//! follows from extents that are fixed, or from the fixed part of open ones.

use super::emitter::OpenEmitter;
use super::form::{Form, Variable};
use super::program::{OpenProgram, product};
use super::tiles_of;
use crate::generate::emit::{NodeScope, StatementWriter};
use crate::generate::product::smem_pipeline::{THREADS, TileElement, TileLayout};
use crate::generate::product::tile_config::{SIDE, Tiling};
use crate::generate::product::{LEAST, Mainloop, mma, simt};
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::compile::{Body, OpenVariable};
use mlc_backends::reference::code::{Int, Real, Slot};
use mlc_backends::reference::scalar::{Monoid, RealOp};
use mlc_dsl::ir::{DType, Extent, Value};

/// Taps of a convolution at most whose elements each thread computes by itself.
const MOST_TAPS: i64 = 64;

/// A sum of products of two factors.
pub struct Contraction {
    /// Output axes by what depends on them: both factors, the first one, the second one.
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    /// The reduced variables.
    over: Vec<Slot>,
    factors: [Real; 2],
    /// Whether an index has windows: an output axis and a reduced one together.
    pub is_convolution: bool,
}

/// Shows the indices of all reads of a factor.
fn each_read(r: &Real, show: &mut dyn FnMut(&Int)) {
    match r {
        Real::Read(read) => {
            read.index.iter().for_each(&mut *show);
            if let Some(otherwise) = &read.otherwise {
                each_read(otherwise, show);
            }
        }
        Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => each_read(a, show),
        Real::Binary(_, a, b) | Real::If(_, a, b) => {
            each_read(a, show);
            each_read(b, show);
        }
        Real::Reduce(r) => each_read(&r.body, show),
        Real::Const(_) | Real::FromInt(..) => {}
    }
}

impl Contraction {
    /// A value as a convolution, or as a sum of products that is worth tiles, whatever its open extents are. Its last axis is among the
    /// columns.
    pub fn recognise(kernel: &OpenProgram, v: Value) -> Option<Contraction> {
        let (c, has_tiles) = Contraction::find(kernel, v)?;
        (has_tiles || c.is_convolution).then_some(c)
    }

    /// A value as a sum of products that is not a convolution, whatever its extents are.
    pub fn recognise_any_size(kernel: &OpenProgram, v: Value) -> Option<Contraction> {
        let (c, _) = Contraction::find(kernel, v)?;
        (!c.is_convolution).then_some(c)
    }

    /// Whether it is a convolution along one axis whose channels are apart: each of its elements has a few terms, which are side by side.
    pub fn is_direct(&self, kernel: &OpenProgram, v: Value) -> bool {
        let extents = extents(kernel, v, &self.over);
        let taps: Vec<&Extent> = extents.iter().filter(|n| !n.is(1)).collect();
        let are_few = taps.iter().all(|n| n.as_const().is_some_and(|n| n <= MOST_TAPS));
        self.is_convolution && taps.len() <= 1 && are_few
    }

    /// A value as a sum of products, and whether it is worth tiles.
    fn find(kernel: &OpenProgram, v: Value) -> Option<(Contraction, bool)> {
        let code = kernel.code(v)?;
        let Body::Real(Real::Reduce(sum)) = &code.body else { return None };
        let Real::Binary(RealOp::Mul, a, b) = &sum.body else { return None };
        if sum.monoid != Monoid::Sum {
            return None;
        }
        let over: Vec<Slot> = sum.over.iter().map(|o| o.0).collect();
        let mut is_convolution = false;
        let mut any = [false; 2];
        for (side, factor) in [a, b].into_iter().enumerate() {
            each_read(factor, &mut |i| {
                any[side] = true;
                let reads = |all: &[Slot]| all.iter().any(|s| i.reads(*s));
                is_convolution |= reads(&code.axes) && reads(&over);
            });
        }
        let (mut batch, mut rows, mut columns) = (vec![], vec![], vec![]);
        for (axis, slot) in code.axes.iter().enumerate() {
            match (a.reads(*slot), b.reads(*slot)) {
                (true, true) => batch.push(axis),
                (true, false) => rows.push(axis),
                (false, _) => columns.push(axis),
            }
        }
        let shape = kernel.shape(v);
        let last = (0..shape.len()).rev().find(|&a| !shape[a].is(1))?;
        let mut factors = [(**a).clone(), (**b).clone()];
        if rows.contains(&last) {
            std::mem::swap(&mut rows, &mut columns);
            factors.swap(0, 1);
        }
        let size =
            |axes: &[usize]| product(&axes.iter().map(|&a| shape[a].clone()).collect::<Vec<_>>());
        let deep = product(&extents(kernel, v, &over));
        let sizes = [size(&rows), size(&columns), deep];
        let is_worth = sizes.iter().all(|n| n.as_const().is_none_or(|n| n >= LEAST));
        let has_tiles = is_worth && !batch.contains(&last);
        let c = Contraction { batch, rows, columns, over, factors, is_convolution };
        (any[0] && any[1]).then_some((c, has_tiles))
    }
}

fn extents(kernel: &OpenProgram, v: Value, slots: &[Slot]) -> Vec<Extent> {
    let variables = kernel.code(v).map_or(&[][..], |c| &c.variables);
    let of = |s: &Slot| match &variables[*s] {
        OpenVariable::Index(n) | OpenVariable::Number(n) => n.clone(),
    };
    slots.iter().map(of).collect()
}

/// Axes by their variables.
pub type Axes = Vec<(Variable, Extent)>;

/// The elements along axes.
pub fn size(axes: &Axes) -> Extent {
    product(&axes.iter().map(|a| a.1.clone()).collect::<Vec<_>>())
}

/// A product in a function.
pub struct OpenProduct {
    value: Value,
    pub index: Vec<Form>,
    batch: Axes,
    rows: Axes,
    columns: Axes,
    deep: Axes,
    /// What the reduced variables of the code stand for.
    bound: Vec<(Slot, Form)>,
    factors: [Real; 2],
    mainloop: Mainloop,
}

/// A factor in memory: the value, and the offset of an element.
pub struct InMemory {
    pub value: Value,
    pub offset: Form,
}

/// A factor and its tiles.
struct Factor<'p> {
    layout: TileLayout,
    /// The variable with the tile's first line.
    first: &'static str,
    along: &'p Axes,
    side: usize,
    /// Whether neighbouring threads load what lies side by side along the depth, and how many elements at once.
    along_depth: bool,
    width: i64,
    /// Where it is, if it is copied as it is.
    copied: Option<InMemory>,
}

impl OpenProduct {
    /// The product at new variables of a function.
    pub fn new(e: &mut OpenEmitter<'_>, value: Value, c: &Contraction, tf32: bool) -> OpenProduct {
        let kernel = e.kernel;
        let shape = kernel.shape(value).to_vec();
        let own: Axes = shape.iter().map(|n| (e.variable(n).0, n.clone())).collect();
        let axes = |list: &[usize]| list.iter().map(|&a| own[a].clone()).collect::<Axes>();
        let reduced = extents(kernel, value, &c.over);
        let deep: Axes = reduced.iter().map(|n| (e.variable(n).0, n.clone())).collect();
        let bound = c.over.iter().zip(&deep).map(|(s, d)| (*s, Form::variable(d.0))).collect();
        let double = kernel.dtype(value) == DType::F64;
        let element = element(kernel, value, &c.factors, tf32);
        // Chosen by the caller, once the product's sizes are known.
        let (rows, columns, step) = (4, 4, element.depth(16, 0));
        let (is_large, by_warpgroups) = (false, false);
        let tiling = Tiling { rows, columns, parts: 1, step, is_large, by_warpgroups };
        OpenProduct {
            value,
            index: own.iter().map(|a| Form::variable(a.0)).collect(),
            batch: axes(&c.batch),
            rows: axes(&c.rows),
            columns: axes(&c.columns),
            deep,
            bound,
            factors: c.factors.clone(),
            mainloop: Mainloop { tiling, element, bytes: None, double },
        }
    }

    /// The numbers of its batches, rows, columns and depth.
    pub fn sizes(&self) -> [Extent; 4] {
        [&self.batch, &self.rows, &self.columns, &self.deep].map(size)
    }

    /// The blocks of a launch. Tiles are chosen among three by the sizes, rounded up to powers of two: a function serves a band of them.
    pub fn choose(&mut self, sizes: [i64; 4], processors: u32) -> u64 {
        let banded = sizes.map(|n| i64::try_from((n.max(1) as u64).next_power_of_two()));
        let banded = banded.map(|n| n.unwrap_or(i64::MAX >> 1));
        let own = self.mainloop.tiling;
        let sides = if self.mainloop.double { [2, 4, 4] } else { [2, 4, 8] };
        let all = sides.map(|side| Tiling { rows: side, columns: side, ..own });
        let time = |t: &Tiling| t.nanoseconds(banded, self.mainloop.element, processors);
        let best = all.into_iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        self.mainloop.tiling = best.unwrap_or(own);
        let t = self.mainloop.tiling;
        let up = |n: i64, by: i64| (n as u64).div_ceil(by as u64);
        let [batch, rows, columns, _] = sizes;
        let tiles = up(rows, t.rows * SIDE).saturating_mul(up(columns, t.columns * SIDE));
        tiles.saturating_mul(batch as u64)
    }

    /// Writes the function; `store` gets an element's sum.
    pub fn write(
        &self,
        e: &mut OpenEmitter<'_>,
        store: &mut dyn FnMut(&mut OpenEmitter<'_>, &str),
    ) {
        let (p, t) = (&self.mainloop, self.mainloop.tiling);
        let (tile_rows, tile_columns) = (t.rows * SIDE, t.columns * SIDE);
        let [_, rows, columns, depth] = self.sizes();
        let (down, across) = (tiles_of(&rows, tile_rows), tiles_of(&columns, tile_columns));
        let (kind, block) = (e.index, format!("({})blockIdx.x", e.index));
        let tiles = e.number(&(&down * &across));
        let (down, across) = (e.number(&down), e.number(&across));
        e.line(format!("{kind} row = {block} / {across} % {down} * {tile_rows};"));
        e.line(format!("{kind} column = {block} % {across} * {tile_columns};"));
        e.line(format!("{kind} batch = {block} / {tiles};"));
        e.coordinates("batch", &self.batch);
        let mut left = self.factor(e, 0, tile_rows);
        let mut right = self.factor(e, 1, tile_columns);
        let is_copied = left.copied.is_some() && right.copied.is_some();
        if !is_copied {
            for f in [&mut left, &mut right] {
                (f.copied, f.width) = (None, 1);
                f.layout.by_step = p.element.is_by_step(f.along_depth);
            }
        }
        match p.element {
            TileElement::Real(_) => simt::declare(e, p),
            _ => mma::declare(e, p),
        }
        let end = e.number(&depth);
        e.line(format!("const {kind} begin = 0, end = {end};"));
        match is_copied {
            true => self.ahead(e, &left, &right, depth.as_const()),
            false => self.through_registers(e, &left, &right),
        }
        self.results(e, right.layout.by_step, store);
    }

    /// A factor and how its tiles are loaded.
    fn factor(&self, e: &OpenEmitter<'_>, side: usize, lines: i64) -> Factor<'_> {
        let (name, first, along) = match side {
            0 => ("left", "row", &self.rows),
            _ => ("right", "column", &self.columns),
        };
        let element = self.mainloop.element;
        let depth = self.mainloop.tiling.step;
        let layout = TileLayout { name, element, depth, lines, by_step: true, is_swizzled: false };
        let found = self.in_memory(e, side);
        let runs = |axes: &Axes| {
            let last = axes.iter().rev().find(|a| !a.1.is(1));
            let offset = found.as_ref().map(|f| &f.offset);
            last.zip(offset).is_some_and(|(a, o)| o.factor(a.0).is(1))
        };
        let along_depth = runs(&self.deep) || !runs(along);
        let mut f = Factor { layout, first, along, side, along_depth, width: 1, copied: None };
        f.layout.by_step = element.is_by_step(along_depth);
        let Some(found) = found.filter(|f| e.kernel.dtype(f.value) == element.stored()) else {
            return f;
        };
        let bytes = element.stored().size() as i64;
        let widths = [8, 4, 2, 1].into_iter().filter(|w| (4..=16).contains(&(w * bytes)));
        let axes = if along_depth { &self.deep } else { along };
        let aligned = |w: &i64| *w == 1 || is_aligned(e, &found, axes, *w);
        if let Some(width) = widths.into_iter().find(aligned) {
            // A single element lies wherever threads read it best.
            f.layout.by_step = if width == 1 { f.layout.by_step } else { !along_depth };
            (f.width, f.copied) = (width, Some(found));
        }
        f
    }

    /// Where a factor is in memory, if it is there as it is and never read outside.
    fn in_memory(&self, e: &OpenEmitter<'_>, side: usize) -> Option<InMemory> {
        let Real::Read(read) = &self.factors[side] else { return None };
        let mut probe = e.clone();
        let found = probe.part_of_code(self.value, &self.index, &self.bound, |e, scope| {
            e.memory_of(scope, read)
        });
        found.map(|(value, offset)| InMemory { value, offset })
    }

    fn turns(&self, f: &Factor<'_>) -> (i64, i64) {
        let accesses = f.layout.lines * f.layout.depth / f.width;
        let threads = i64::from(THREADS);
        ((accesses + threads - 1) / threads, accesses)
    }

    /// Opens a loop over the accesses of a thread to a tile: `line` and `step` are those of the first element.
    fn open(&self, e: &mut OpenEmitter<'_>, f: &Factor<'_>) {
        let (turns, accesses) = self.turns(f);
        e.line("#pragma unroll");
        e.open(&format!("for (int turn = 0; turn < {turns}; ++turn)"));
        e.line(format!("int at = threadIdx.x + turn * {THREADS};"));
        if accesses % i64::from(THREADS) != 0 {
            e.line(format!("if (at >= {accesses}) break;"));
        }
        let (steps, lines) = (f.layout.depth / f.width, f.layout.lines / f.width);
        let by = if f.width == 1 { String::new() } else { format!(" * {}", f.width) };
        match f.along_depth {
            true => e.line(format!("int line = at / {steps}, step = at % {steps}{by};")),
            false => e.line(format!("int line = at % {lines}{by}, step = at / {lines};")),
        }
    }

    /// Writes where an access lies, and whether that is inside.
    fn place(&self, e: &mut OpenEmitter<'_>, f: &Factor<'_>) {
        let kind = e.index;
        e.line(format!("{kind} place = {} + line, deep = next + step;", f.first));
        let count = e.number(&size(f.along));
        e.line(format!("bool inside = place < {count} && deep < end;"));
    }

    /// Writes a group of copies of the next tiles of both factors, which is empty where none is left.
    fn copy(&self, e: &mut OpenEmitter<'_>, factors: [&Factor<'_>; 2], to: &str) {
        e.open("if (next < end)");
        for f in factors {
            let Some(found) = &f.copied else { continue };
            self.open(e, f);
            self.place(e, f);
            e.coordinates("place", f.along);
            e.coordinates("deep", &self.deep);
            let name = e.memory(found.value);
            let (from, to) = (e.form(&found.offset), f.layout.place(to, "line", "step"));
            let call = match f.width == f.layout.element.widest() {
                true => "copy_async".into(),
                false => format!("copy_part_async<{}>", f.width),
            };
            let from = format!("inside ? {name} + ({from}) : {name} + 0");
            e.line(format!("{call}({} + ({to}), {from}, inside);", f.layout.name));
            e.close();
        }
        e.close();
        e.line("commit_copies();");
    }

    /// Writes the loop over tiles that are copied ahead of their use, as for known extents.
    fn ahead(
        &self,
        e: &mut OpenEmitter<'_>,
        left: &Factor<'_>,
        right: &Factor<'_>,
        depth: Option<i64>,
    ) {
        let (p, kind) = (&self.mainloop, e.index);
        let deep = p.tiling.step;
        let bytes = (left.layout.tile() + right.layout.tile()) * 16 / p.element.widest();
        let tiles = p.tiling.tiles(bytes, depth.unwrap_or(i64::MAX));
        let others = tiles - 1;
        e.line(format!("// Tiles are copied to shared memory ahead of their use: {tiles} are there or on their way."));
        for f in [left, right] {
            let (name, elements) = (f.layout.name, tiles * f.layout.tile());
            e.line(format!("SHARED({}, {name}, {elements});", f.layout.element.name()));
        }
        e.line("#pragma unroll");
        e.open(&format!("for (int early = 0; early < {others}; ++early)"));
        e.line(format!("{kind} next = begin + early * {deep};"));
        self.copy(e, [left, right], "early");
        e.close();
        e.line("int tile = 0;");
        e.open(&format!("for ({kind} from = begin; from < end; from += {deep})"));
        e.line(format!("wait_copies<{}>();", others - 1));
        // Behind it all threads' copies are there, and the tile before is no longer read.
        e.line("__syncthreads();");
        e.line(format!("{kind} next = from + {};", others * deep));
        e.line(format!("int to = (tile + {others}) % {tiles};"));
        self.copy(e, [left, right], "to");
        self.multiply(e, left, right);
        e.line(format!("tile = (tile + 1) % {tiles};"));
        e.close();
    }

    /// Writes the loop over tiles that pass through registers: while one is multiplied, the next one is loaded.
    fn through_registers(&self, e: &mut OpenEmitter<'_>, left: &Factor<'_>, right: &Factor<'_>) {
        let (kind, deep) = (e.index, self.mainloop.tiling.step);
        for f in [left, right] {
            let (name, real) = (f.layout.name, f.layout.element.name());
            e.line(format!("SHARED({real}, {name}, {});", 2 * f.layout.tile()));
            e.line(format!("{real} next_{name}[{}];", self.turns(f).0));
        }
        e.line("int tile = 0;");
        e.open(&format!("for ({kind} from = begin - {deep}; from < end; from += {deep})"));
        e.line(format!("{kind} next = from + {deep};"));
        e.open("if (next < end)");
        self.load(e, left);
        self.load(e, right);
        e.close();
        e.open("if (from >= begin)");
        self.multiply(e, left, right);
        e.close();
        e.open("if (next < end)");
        for f in [left, right] {
            let to = f.layout.place("(1 - tile)", "line", "step");
            self.open(e, f);
            e.line(format!("{0}[{to}] = next_{0}[turn];", f.layout.name));
            e.close();
        }
        e.close();
        e.line("__syncthreads();");
        e.line("tile = 1 - tile;");
        e.close();
    }

    /// Writes the loop that computes elements of the next tile of a factor; what lies outside is 0.
    fn load(&self, e: &mut OpenEmitter<'_>, f: &Factor<'_>) {
        let name = f.layout.name;
        self.open(e, f);
        self.place(e, f);
        e.line(format!("next_{name}[turn] = 0;"));
        e.open("if (inside)");
        e.coordinates("place", f.along);
        e.coordinates("deep", &self.deep);
        let double = self.mainloop.double;
        let value = e.part_of_code(self.value, &self.index, &self.bound, |e, scope| {
            NodeScope { double, ..scope }.real(e, &self.factors[f.side])
        });
        let value = match f.layout.element {
            TileElement::Half(dtype) => e.stored_element(dtype, &value),
            _ => value,
        };
        e.line(format!("next_{name}[turn] = {value};"));
        e.close();
        e.close();
    }

    fn multiply(&self, e: &mut OpenEmitter<'_>, left: &Factor<'_>, right: &Factor<'_>) {
        let (p, left, right) = (&self.mainloop, &left.layout, &right.layout);
        match p.element {
            TileElement::Real(_) => simt::multiply(e, p, left, right),
            _ => mma::multiply(e, p, left, right),
        }
    }

    /// Writes the loops over a thread's elements.
    fn results(
        &self,
        e: &mut OpenEmitter<'_>,
        by_step: bool,
        store: &mut dyn FnMut(&mut OpenEmitter<'_>, &str),
    ) {
        let (p, t) = (&self.mainloop, self.mainloop.tiling);
        let (down, across, sum) = match p.element {
            TileElement::Real(_) => {
                simt::open_unrolled(e, "i", t.rows);
                simt::open_unrolled(e, "j", t.columns);
                let down = simt::place(t.rows, p.double, "y", "i");
                (down, simt::column(t.columns, p.double, by_step, "j"), "sum[i][j]")
            }
            _ => {
                let (rows, columns) = mma::fragments(p);
                simt::open_unrolled(e, "i", 2 * rows);
                simt::open_unrolled(e, "j", 2 * columns);
                let across = "x + j / 2 * 8 + within * 2 + j % 2".into();
                ("y + i * 8".into(), across, "sum[i / 2][j / 2][i % 2 * 2 + j % 2]")
            }
        };
        let kind = e.index;
        let (rows, columns) = (e.number(&size(&self.rows)), e.number(&size(&self.columns)));
        e.line(format!("{kind} down = row + {down}, across = column + {across};"));
        e.open(&format!("if (down < {rows} && across < {columns})"));
        e.coordinates("down", &self.rows);
        e.coordinates("across", &self.columns);
        e.bind(self.value, &self.index, sum);
        store(e, sum);
        e.close();
        e.close();
        e.close();
    }
}

/// Whether so many elements along axes lie side by side from an aligned address on, wherever an access of them begins.
pub fn is_aligned(e: &OpenEmitter<'_>, found: &InMemory, axes: &Axes, width: i64) -> bool {
    let by = Extent::from(width);
    let is_multiple = |n: &Extent| n.div_exact(&by).is_some();
    let Some((last, n)) = axes.iter().rev().find(|a| !a.1.is(1)) else { return false };
    let others = found.offset.terms.iter().filter(|t| t.0 != *last).map(|t| &t.1);
    !e.unaligned.contains(&found.value)
        && found.offset.factor(*last).is(1)
        && is_multiple(n)
        && is_multiple(&found.offset.constant)
        && others.into_iter().all(is_multiple)
}

/// Element type of the tiles of a product: as for known extents.
fn element(kernel: &OpenProgram, v: Value, factors: &[Real; 2], tf32: bool) -> TileElement {
    let args = &kernel.program.node(v.node).args;
    let of = |r: &Real| match r {
        Real::Read(read) => match read.otherwise {
            None | Some(Real::Const(0.0)) => Some(kernel.dtype(args[read.input])),
            Some(_) => None,
        },
        _ => None,
    };
    let [left, right] = [of(&factors[0]), of(&factors[1])];
    match (left, kernel.dtype(v)) {
        (Some(d @ (DType::F16 | DType::BF16)), _) if left == right => TileElement::Half(d),
        (Some(DType::F32), _) if left == right && tf32 => TileElement::Tf32,
        (_, own) => TileElement::Real(own == DType::F64),
    }
}
