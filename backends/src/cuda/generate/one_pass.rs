//! Products whose left factor is normalised by rows, in one pass over its columns: the factor is in memory at no time.
//!
//! What is computed is `sum(t) e(s, t) / (sum(t) e(s, t)) * v(t, c)` with `e = exp(x - max(t) x)`, where `x` follows a product
//! element by element. A block takes 64 rows, and 64 columns `t` at a time. It keeps the largest element of every row so far and
//! what belongs to it: the sum of the exponentials and the sums of their products. Where the largest element grows, both are
//! scaled (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

use super::emit::{Emitter, coordinates, side_by_side};
use super::factor::runs_along_depth;
use super::kernel::KernelProgram;
use super::product::{Contraction, LEAST};
use super::spelling as spell;
use crate::reference::code::{Affine, Int, Real, Reduce, Slot};
use crate::reference::compile::Body;
use crate::reference::scalar::{Monoid, RealOp};
use mlc_dsl::functions::Function;
use mlc_dsl::ir::{DType, Value};
use std::collections::BTreeSet;

/// Rows and columns of a tile.
const TILE: i64 = 64;
/// Depth of a tile.
const DEPTH: i64 = 16;
/// Threads of a block; each computes four rows and four columns.
pub const THREADS: u32 = 256;
/// Columns of the result up to which the scores are computed once or twice.
const WIDEST: i64 = 128;

/// An element of a value: an index variable for each axis, none where the index is 0.
type Place = (Value, Vec<Option<Slot>>);

/// The parts of such a product.
pub struct OnePass {
    /// The index variables of the result's axes.
    index: Vec<Int>,
    batch: Vec<(Slot, i64)>,
    rows: Vec<(Slot, i64)>,
    columns: Vec<(Slot, i64)>,
    /// The axis that is summed over.
    along: (Slot, i64),
    /// What is normalised, and the product that it follows.
    scores: (Value, Vec<Int>),
    inner: (Value, Vec<Int>),
    inner_sum: Box<Reduce<Real>>,
    right: Real,
    /// What has to be in memory.
    pub needed: Vec<Value>,
}

/// Follows an element through values that only read another one.
struct Follower<'e, 'k> {
    e: &'e mut Emitter<'k>,
    kernel: &'e KernelProgram,
}

impl Follower<'_, '_> {
    fn indices((_, index): &Place) -> Vec<Int> {
        let zero = || Int::Affine(Affine { constant: 0, terms: vec![] });
        index.iter().map(|s| s.map_or_else(zero, Emitter::index)).collect()
    }

    /// The element that a float is, if it is one.
    fn read(&self, of: Value, r: &Real) -> Option<Place> {
        let Real::Read(read) = r else { return None };
        if read.otherwise.is_some() {
            return None;
        }
        let source = self.kernel.program.node(of.node).args[read.input];
        let index = read.index.iter().zip(&read.shape).map(|(i, n)| match i {
            _ if *n == 1 => Some(None),
            Int::Const(0) => Some(None),
            Int::Slot(s) => Some(Some(*s)),
            Int::Affine(a) if a.constant == 0 => match a.terms.as_slice() {
                [] => Some(None),
                [(s, 1)] => Some(Some(*s)),
                _ => None,
            },
            _ => None,
        });
        Some((source, index.collect::<Option<_>>()?))
    }

    /// The code of the first value behind an element that does more than read one, and where it is read.
    fn code(&mut self, mut at: Place) -> Option<(Place, Real)> {
        loop {
            if self.e.stored.contains_key(&at.0) {
                return None;
            }
            let Body::Real(code) = self.e.placed(at.0, &Self::indices(&at))? else { return None };
            match self.read(at.0, &code) {
                Some(next) => at = next,
                None => return Some((at, code)),
            }
        }
    }

    /// The same for what a float of the code of a value reads.
    fn behind(&mut self, of: Value, r: &Real) -> Option<(Place, Real)> {
        let at = self.read(of, r)?;
        self.code(at)
    }

    /// The element that a reduction along one axis combines, with `along` in the place of its own variable.
    fn reduced(
        &mut self,
        at: &Place,
        code: &Real,
        monoid: Monoid,
        along: (Slot, i64),
    ) -> Option<Place> {
        let Real::Reduce(r) = code else { return None };
        let [(own, n)] = r.over.as_slice() else { return None };
        if r.monoid != monoid || *n != along.1 {
            return None;
        }
        let (mut at, _) = self.behind(at.0, &r.body)?;
        at.1.iter_mut().for_each(|s| *s = if *s == Some(*own) { Some(along.0) } else { *s });
        Some(at)
    }
}

impl OnePass {
    /// A product as such a one, for an emitter that knows what is stored.
    pub fn of(e: &mut Emitter<'_>, kernel: &KernelProgram, product: Value) -> Option<OnePass> {
        let c = Contraction::in_tiles(e, kernel, product)?;
        let shape = kernel.program.ty(product).known_shape()?;
        if kernel.program.ty(product).dtype == DType::F64 {
            return None;
        }
        let slots: Vec<Slot> = shape.iter().map(|&n| e.variable(n as i64)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let axes = |list: &[usize]| list.iter().map(|&a| (slots[a], shape[a] as i64)).collect();
        let (batch, rows, columns): (Vec<_>, Vec<_>, Vec<_>) =
            (axes(&c.batch), axes(&c.rows), axes(&c.columns));
        let Body::Real(Real::Reduce(r)) = e.placed(product, &index)? else { return None };
        let ([along], Real::Binary(RealOp::Mul, left, right)) = (r.over.as_slice(), &r.body) else {
            return None;
        };
        let along = *along;
        let mut f = Follower { e: &mut *e, kernel };
        // e / sum
        let (at, code) = f.behind(product, left)?;
        let Real::Binary(RealOp::Div, top, bottom) = &code else { return None };
        let (exp_at, exp) = f.behind(at.0, top)?;
        let (sum_at, sum) = f.behind(at.0, bottom)?;
        if f.reduced(&sum_at, &sum, Monoid::Sum, along)? != exp_at {
            return None;
        }
        // exp(x - max)
        let Real::Unary(function, difference) = &exp else { return None };
        if function.function != Function::Exp {
            return None;
        }
        let (at, code) = match &**difference {
            Real::Read(_) => f.behind(exp_at.0, difference)?,
            other => (exp_at, other.clone()),
        };
        let Real::Binary(RealOp::Sub, x, most) = &code else { return None };
        let (scores_at, _) = f.behind(at.0, x)?;
        let (most_at, most) = f.behind(at.0, most)?;
        if f.reduced(&most_at, &most, Monoid::Max, along)? != scores_at {
            return None;
        }
        // The product behind x.
        let scores = (scores_at.0, Follower::indices(&scores_at));
        let found = e.look(std::slice::from_ref(&scores)).reductions;
        let (inner, rest) = found.split_first()?;
        let spelled = |r: &(Value, Vec<Int>)| format!("{r:?}");
        if rest.iter().any(|r| spelled(r) != spelled(inner)) {
            return None;
        }
        // Index variables beyond these are known only where they were found.
        let simple = |i: &Int| match i {
            Int::Affine(Affine { constant: 0, terms }) => match terms.as_slice() {
                [] => true,
                [(s, 1)] => slots.contains(s) || *s == along.0,
                _ => false,
            },
            _ => false,
        };
        if !inner.1.iter().all(simple) {
            return None;
        }
        Contraction::in_tiles(e, kernel, inner.0)?;
        let Body::Real(Real::Reduce(inner_sum)) = e.placed(inner.0, &inner.1)? else { return None };
        let Real::Binary(RealOp::Mul, a, b) = &inner_sum.body else { return None };
        let [a, b] = [a, b].map(|side| e.look_at(inner.0, side));
        let outer = e.look_at(product, right);
        let of_rows: BTreeSet<Slot> = rows.iter().map(|r| r.0).collect();
        let mut columns_of = columns.iter().map(|c| c.0);
        let apart = !a.touched.contains(&along.0)
            && b.touched.is_disjoint(&of_rows)
            && outer.touched.is_disjoint(&of_rows)
            && columns_of.all(|c| !a.touched.contains(&c) && !b.touched.contains(&c));
        let width = columns.iter().map(|c| c.1).product::<i64>();
        if !apart || width > WIDEST || along.1 < LEAST {
            return None;
        }
        let needed = [a, b, outer].into_iter().flat_map(|f| f.reductions).map(|r| r.0).collect();
        let (inner, right) = (inner.clone(), (**right).clone());
        Some(OnePass {
            index,
            batch,
            rows,
            columns,
            along,
            scores,
            inner,
            inner_sum,
            right,
            needed,
        })
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
    let p = OnePass::of(e, kernel, product)?;
    let size = |axes: &[(Slot, i64)]| axes.iter().map(|a| a.1).product::<i64>();
    let (m, n, keys) = (size(&p.rows), size(&p.columns), p.along.1);
    let (down, across) = ((m + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    let Real::Binary(RealOp::Mul, left, right) = &p.inner_sum.body else { return None };
    let (real, least, line) = ("float", spell::float(f64::NEG_INFINITY, false), TILE + 1);
    for (name, elements) in
        [("left", DEPTH * line), ("right", DEPTH * line), ("weights", TILE * line)]
    {
        e.line(format!("SHARED({real}, {name}, {elements});"));
    }
    e.line(format!("SHARED({real}, most, {TILE});"));
    e.line(format!("SHARED({real}, total, {TILE});"));
    e.line(format!("SHARED({real}, scale, {TILE});"));
    let (kind, block) = (e.index_type(), e.block());
    e.line(format!("{kind} row = {block} / {across} % {down} * {TILE};"));
    e.line(format!("{kind} column = {block} % {across} * {TILE};"));
    e.line(format!("{kind} batch = {block} / {};", down * across));
    coordinates(e, "batch", &p.batch);
    e.line("int y = threadIdx.x / 16, x = threadIdx.x % 16;");
    e.line(format!("{real} sum[4][4] = {{}};"));
    e.open(&format!("if (threadIdx.x < {TILE})"));
    e.line(format!("most[threadIdx.x] = {least};"));
    e.line("total[threadIdx.x] = 0;");
    e.close();
    e.open(&format!("for ({kind} keys = 0; keys < {keys}; keys += {TILE})"));
    // The scores of 64 rows and 64 keys.
    let depth = size(&p.inner_sum.over);
    e.line(format!("{real} score[4][4] = {{}};"));
    e.open(&format!("for ({kind} from = 0; from < {depth}; from += {DEPTH})"));
    let along = [p.along];
    for (name, first, count, own, factor) in
        [("left", "row", m, &p.rows[..], left), ("right", "keys", keys, &along[..], right)]
    {
        let deep = &p.inner_sum.over;
        let along_depth = runs_along_depth(&e.look_at(p.inner.0, factor).offsets, deep, own);
        let load = Load { name, first, count, along: own, deep, depth, along_depth };
        load.write(e, "from", &|e| e.real_of(p.inner.0, false, factor), real);
    }
    e.line("__syncthreads();");
    multiply(e, real, &format!("left[k * {line} + y * 4 + i]"), "score");
    e.line("__syncthreads();");
    e.close();
    four_by_four(e, |e| {
        e.line(format!("{kind} down = row + y * 4 + i, across = keys + x * 4 + j;"));
        e.line(format!("{real} value = {least};"));
        e.open(&format!("if (down < {m} && across < {keys})"));
        coordinates(e, "down", &p.rows);
        coordinates(e, "across", &along);
        e.know(p.inner.0, &p.inner.1, "score[i][j]");
        let value = e.element(p.scores.0, &p.scores.1);
        e.line(format!("value = {value};"));
        e.close();
        e.line(format!("weights[(y * 4 + i) * {line} + x * 4 + j] = value;"));
    });
    e.line("__syncthreads();");
    rows_so_far(e, real, &least);
    e.line("__syncthreads();");
    four_by_four(e, |e| e.line("sum[i][j] *= scale[y * 4 + i];"));
    e.open(&format!("for (int from = 0; from < {TILE}; from += {DEPTH})"));
    let load = Load {
        name: "right",
        first: "column",
        count: n,
        along: &p.columns,
        deep: &along,
        depth: keys,
        along_depth: runs_along_depth(&e.look_at(product, &p.right).offsets, &along, &p.columns),
    };
    load.write(e, "keys + from", &|e| e.real_of(product, false, &p.right), real);
    e.line("__syncthreads();");
    multiply(e, real, &format!("weights[(y * 4 + i) * {line} + from + k]"), "sum");
    e.line("__syncthreads();");
    e.close();
    e.close();
    four_by_four(e, |e| {
        e.line(format!("{kind} down = row + y * 4 + i, across = column + x * 4 + j;"));
        e.open(&format!("if (down < {m} && across < {n})"));
        coordinates(e, "down", &p.rows);
        coordinates(e, "across", &p.columns);
        e.line(format!("{real} quotient = sum[i][j] / total[y * 4 + i];"));
        e.know(product, &p.index, "quotient");
        let value = e.element(v, &p.index);
        let slots: Vec<Slot> = p.index.iter().filter_map(slot_of).collect();
        store(e, &slots, &value);
        e.close();
    });
    Some((size(&p.batch) * down * across) as u64)
}

/// The variable that an index is.
fn slot_of(i: &Int) -> Option<Slot> {
    match i {
        Int::Affine(a) => a.terms.first().map(|t| t.0),
        _ => None,
    }
}

/// A loop over the elements of a thread.
fn four_by_four(e: &mut Emitter<'_>, body: impl FnOnce(&mut Emitter<'_>)) {
    e.line("#pragma unroll");
    e.open("for (int i = 0; i < 4; ++i)");
    e.line("#pragma unroll");
    e.open("for (int j = 0; j < 4; ++j)");
    body(e);
    e.close();
    e.close();
}

/// Four neighbouring threads for each row: its largest element so far, by what sums so far are scaled, and exponentials in
/// place of the scores. In a row that has nothing above minus infinity so far they are 0.
fn rows_so_far(e: &mut Emitter<'_>, real: &str, least: &str) {
    let (line, per_row) = (TILE + 1, i64::from(THREADS) / TILE);
    let own = format!("for (int at = threadIdx.x % {per_row}; at < {TILE}; at += {per_row})");
    e.open("");
    e.line(format!("int line = threadIdx.x / {per_row};"));
    e.line(format!("{real} before = most[line], top = before, part = 0;"));
    e.line(format!("{own} top = maximum(top, ({real})weights[line * {line} + at]);"));
    for step in [2, 1] {
        e.line(format!("top = maximum(top, __shfl_xor_sync(0xffffffffu, top, {step}));"));
    }
    e.open(&own);
    let score = format!("({real})weights[line * {line} + at]");
    e.line(format!("{real} weight = top == {least} ? 0 : exp({score} - top);"));
    e.line(format!("weights[line * {line} + at] = weight;"));
    e.line("part += weight;");
    e.close();
    for step in [2, 1] {
        e.line(format!("part += __shfl_xor_sync(0xffffffffu, part, {step});"));
    }
    e.line("__syncwarp();");
    e.open(&format!("if (threadIdx.x % {per_row} == 0)"));
    e.line(format!("{real} factor = top == before ? 1 : exp(before - top);"));
    e.line("most[line] = top;");
    e.line("scale[line] = factor;");
    e.line("total[line] = total[line] * factor + part;");
    e.close();
    e.close();
}

/// How a tile of a factor comes into shared memory, line by step.
struct Load<'a> {
    /// The shared array.
    name: &'a str,
    /// The variable with the tile's first place, and how many places there are.
    first: &'a str,
    count: i64,
    /// The factor's own axes, and those of the depth with their elements.
    along: &'a [(Slot, i64)],
    deep: &'a [(Slot, i64)],
    depth: i64,
    /// Whether neighbouring threads load what lies side by side along the depth.
    along_depth: bool,
}

impl Load<'_> {
    /// Writes the loop that loads from this step of the depth on; what lies outside is 0.
    fn write(
        &self,
        e: &mut Emitter<'_>,
        from: &str,
        factor: &dyn Fn(&mut Emitter<'_>) -> String,
        real: &str,
    ) {
        let kind = e.index_type();
        let (axes, at) = match self.along_depth {
            true => (self.deep, "deep"),
            false => (self.along, "place"),
        };
        let mut width = side_by_side(axes, 4);
        let accesses = e.trial(|e| e.lanes(at, axes, width, |e| drop(factor(e))));
        if accesses.together <= accesses.apart {
            width = 1;
        }
        let all = DEPTH * TILE / width;
        e.open(&format!("for (int at = threadIdx.x; at < {all}; at += {THREADS})"));
        let by = if width == 1 { String::new() } else { format!(" * {width}") };
        let (line, step) = match self.along_depth {
            true => {
                let steps = DEPTH / width;
                (format!("at / {steps}"), format!("at % {steps}{by}"))
            }
            false => {
                let lines = TILE / width;
                (format!("at % {lines}{by}"), format!("at / {lines}"))
            }
        };
        e.line(format!("int line = {line}, step = {step};"));
        e.line(format!("{kind} place = {} + line, deep = {from} + step;", self.first));
        e.line(format!("{real} values[{width}] = {{}};"));
        e.open(&format!("if (place < {} && deep < {})", self.count, self.depth));
        let other = if self.along_depth { ("place", self.along) } else { ("deep", self.deep) };
        coordinates(e, other.0, other.1);
        let lane = if width == 1 { "0" } else { "lane" };
        e.lanes(at, axes, width, |e| {
            let text = factor(e);
            e.line(format!("values[{lane}] = {text};"));
        });
        e.close();
        let (line, step) = match self.along_depth {
            true => ("line", "(step + lane)"),
            false => ("line + lane", "step"),
        };
        e.line("#pragma unroll");
        let to = format!("{}[{step} * {} + {line}]", self.name, TILE + 1);
        e.line(format!("for (int lane = 0; lane < {width}; ++lane) {to} = values[lane];"));
        e.close();
    }
}

/// Adds the products of both tiles to the sums of a thread; `left` is the left one's element for `i` and `k`.
fn multiply(e: &mut Emitter<'_>, real: &str, left: &str, sums: &str) {
    let row = TILE + 1;
    e.open(&format!("for (int k = 0; k < {DEPTH}; ++k)"));
    e.line(format!("{real} a[4], b[4];"));
    e.line(format!("for (int i = 0; i < 4; ++i) a[i] = {left};"));
    e.line(format!("for (int j = 0; j < 4; ++j) b[j] = right[k * {row} + x * 4 + j];"));
    e.line("for (int i = 0; i < 4; ++i)");
    e.line(format!("  for (int j = 0; j < 4; ++j) {sums}[i][j] += a[i] * b[j];"));
    e.close();
}
