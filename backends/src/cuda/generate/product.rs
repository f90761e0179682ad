//! Sums of products by tiles: matrix products and convolutions alike.
//!
//! An axis that only the first factor depends on belongs to the rows, one that only the second depends on to the columns, one
//! that both depend on to the batch. A factor is computed where it is loaded, what follows the product where it is stored.

use super::emit::{Emitter, coordinates};
use super::kernel::KernelProgram;
use super::spelling as spell;
use crate::reference::affine::accelerate;
use crate::reference::code::{Int, Real, Slot};
use crate::reference::compile::Body;
use crate::reference::scalar::{Monoid, RealOp};
use mlc_dsl::ir::{DType, Value};

/// Rows and columns of a tile.
pub const TILE: i64 = 64;
/// Depth of a tile.
pub const DEPTH: i64 = 16;
/// Threads of a block; each computes four rows and four columns.
pub const THREADS: u32 = 256;
/// Rows, columns and depth from which on tiles pay.
pub const LEAST: i64 = 8;

/// A sum of products.
pub struct Contraction {
    /// Output axes by what depends on them, counted from the left.
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
}

impl Contraction {
    /// A value as a sum of products that is worth tiles, for an emitter that knows what is stored.
    pub fn of(e: &Emitter<'_>, kernel: &KernelProgram, v: Value) -> Option<Contraction> {
        let code = kernel.code(v)?;
        let mut probe = e.probe();
        let slots: Vec<Slot> = code.axes.iter().map(|a| probe.variable(a.1)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let Body::Real(Real::Reduce(r)) = probe.placed(v, &index)? else { return None };
        let (Monoid::Sum, Real::Binary(RealOp::Mul, left, right)) = (r.monoid, &r.body) else {
            return None;
        };
        // What views leave out of an index does not count.
        let [left, right] = [left, right].map(|side| probe.look_at(v, side).touched);
        let mut c = Contraction { batch: vec![], rows: vec![], columns: vec![] };
        for (axis, slot) in slots.iter().enumerate() {
            match (left.contains(slot), right.contains(slot)) {
                (true, true) => c.batch.push(axis),
                (true, false) => c.rows.push(axis),
                (false, _) => c.columns.push(axis),
            }
        }
        let extent = |axes: &[usize]| axes.iter().map(|&a| code.axes[a].1).product::<i64>();
        let depth = r.over.iter().map(|o| o.1).product::<i64>();
        let sizes = [extent(&c.rows), extent(&c.columns), depth];
        sizes.iter().all(|n| *n >= LEAST).then_some(c)
    }
}

/// Writes the function that stores `v`, which the product and what follows it element by element yield. Returns the blocks.
pub fn write(
    e: &mut Emitter<'_>,
    kernel: &KernelProgram,
    v: Value,
    product: Value,
    store: &dyn Fn(&mut Emitter<'_>, &[Slot], &str),
) -> Option<u64> {
    let c = Contraction::of(e, kernel, product)?;
    let shape: Vec<i64> =
        kernel.program.ty(product).known_shape()?.iter().map(|&n| n as i64).collect();
    let slots: Vec<Slot> = shape.iter().map(|&n| e.variable(n)).collect();
    let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
    let axes = |list: &[usize]| list.iter().map(|&a| (slots[a], shape[a])).collect::<Vec<_>>();
    let (batch, rows, columns) = (axes(&c.batch), axes(&c.rows), axes(&c.columns));
    let size = |axes: &[(Slot, i64)]| axes.iter().map(|a| a.1).product::<i64>();
    let (m, n) = (size(&rows), size(&columns));
    let (down, across) = ((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    let Body::Real(Real::Reduce(r)) = e.placed(product, &index)? else { return None };
    let depth = size(&r.over);
    let Real::Binary(RealOp::Mul, left, right) = &r.body else { return None };
    let double = kernel.program.ty(product).dtype == DType::F64;
    let real = spell::real(double);
    e.line(format!("SHARED({real}, left, {});", DEPTH * (TILE + 1)));
    e.line(format!("SHARED({real}, right, {});", DEPTH * (TILE + 1)));
    let (kind, block) = (e.index_type(), e.block());
    e.line(format!("{kind} row = {block} / {across} % {down} * {TILE};"));
    e.line(format!("{kind} column = {block} % {across} * {TILE};"));
    e.line(format!("{kind} batch = {block} / {};", down * across));
    coordinates(e, "batch", &batch);
    e.line("int y = threadIdx.x / 16, x = threadIdx.x % 16;");
    e.line(format!("{real} sum[4][4] = {{}};"));
    e.open(&format!("for ({kind} from = 0; from < {depth}; from += {DEPTH})"));
    for (name, side, count, first, factor) in
        [("left", &rows, m, "row", left), ("right", &columns, n, "column", right)]
    {
        // Neighbouring threads load what lies side by side.
        let along_depth = steps(kernel, product, name == "left", side);
        let load = Load { name, first, count, along: side, deep: &r.over, depth, along_depth };
        load.write(e, "from", &|e| e.real_of(product, double, factor), real);
    }
    e.line("__syncthreads();");
    multiply(e, real, "left[k * 65 + y * 4 + i]", "sum");
    e.line("__syncthreads();");
    e.close();
    e.line("#pragma unroll");
    e.open("for (int i = 0; i < 4; ++i)");
    e.line("#pragma unroll");
    e.open("for (int j = 0; j < 4; ++j)");
    e.line(format!("{kind} down = row + y * 4 + i, across = column + x * 4 + j;"));
    e.open(&format!("if (down < {m} && across < {n})"));
    coordinates(e, "down", &rows);
    coordinates(e, "across", &columns);
    e.know(product, &index, "sum[i][j]");
    let value = e.element(v, &index);
    store(e, &slots, &value);
    e.close();
    e.close();
    e.close();
    Some((size(&batch) * down * across) as u64)
}

/// How a tile of a factor comes into shared memory, line by step.
pub struct Load<'a> {
    /// The shared array.
    pub name: &'a str,
    /// The variable with the tile's first place, and how many places there are.
    pub first: &'a str,
    pub count: i64,
    /// The factor's own axes, and those of the depth with their elements.
    pub along: &'a [(Slot, i64)],
    pub deep: &'a [(Slot, i64)],
    pub depth: i64,
    /// Whether neighbouring threads load what lies side by side along the depth.
    pub along_depth: bool,
}

impl Load<'_> {
    /// Writes the loop that loads from this step of the depth on; what lies outside is 0.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        from: &str,
        factor: &dyn Fn(&mut Emitter<'_>) -> String,
        real: &str,
    ) {
        let kind = e.index_type();
        e.open(&format!("for (int at = threadIdx.x; at < {}; at += {THREADS})", DEPTH * TILE));
        let (line, step) = match self.along_depth {
            true => (format!("at / {DEPTH}"), format!("at % {DEPTH}")),
            false => (format!("at % {TILE}"), format!("at / {TILE}")),
        };
        e.line(format!("int line = {line}, step = {step};"));
        e.line(format!("{kind} place = {} + line, deep = {from} + step;", self.first));
        e.line(format!("{real} value = 0;"));
        e.open(&format!("if (place < {} && deep < {})", self.count, self.depth));
        coordinates(e, "place", self.along);
        coordinates(e, "deep", self.deep);
        let text = factor(e);
        e.line(format!("value = {text};"));
        e.close();
        e.line(format!("{}[step * {} + line] = value;", self.name, TILE + 1));
        e.close();
    }
}

/// Adds the products of both tiles to the sums of a thread; `left` is the left one's element for `i` and `k`.
pub fn multiply(e: &mut Emitter<'_>, real: &str, left: &str, sums: &str) {
    let row = TILE + 1;
    e.open(&format!("for (int k = 0; k < {DEPTH}; ++k)"));
    e.line(format!("{real} a[4], b[4];"));
    e.line(format!("for (int i = 0; i < 4; ++i) a[i] = {left};"));
    e.line(format!("for (int j = 0; j < 4; ++j) b[j] = right[k * {row} + x * 4 + j];"));
    e.line("for (int i = 0; i < 4; ++i)");
    e.line(format!("  for (int j = 0; j < 4; ++j) {sums}[i][j] += a[i] * b[j];"));
    e.close();
}

/// True if a factor lies side by side along the depth rather than along its own axes.
pub fn steps(kernel: &KernelProgram, product: Value, left: bool, side: &[(Slot, i64)]) -> bool {
    let Some(code) = kernel.code(product) else { return true };
    let simple = accelerate(code);
    let Body::Real(Real::Reduce(r)) = &simple.body else { return true };
    let Real::Binary(_, a, b) = &r.body else { return true };
    let Real::Read(read) = (if left { &**a } else { &**b }) else { return true };
    let Some(fast) = &read.fast else { return true };
    let last = r.over.last().map_or(0, |o| o.0);
    fast.offset.factor(last) == 1 || side.is_empty()
}
