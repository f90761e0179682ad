//! Contractions (sums of products), recognised in meanings: GEMM, convolution and any other einsum alike.
//!
//! An axis that only the first factor depends on belongs to the rows, one that only the second depends on to the columns, one
//! that both depend on to the batch. An axis that the meaning divides, as that of the groups of a convolution, is
//! two: the group belongs to the batch, its members to the rows. The extents alone decide how it is tiled ([`Tiling`]).

pub(crate) mod convolution_match;
mod epilogue;
mod gelu_tanh;
pub(crate) mod gemm_match;
mod gemv;
pub(crate) mod mma;
pub(crate) mod simt;
pub(crate) mod smem_pipeline;
mod split_k;
pub(crate) mod strided_read;
pub(crate) mod tile_config;
pub(crate) mod tiled;
pub(crate) mod transposed_weights;
pub(crate) mod warpgroups;

use super::emit::Emitter;
use super::kernel::KernelProgram;
use super::ranges;
use super::tuning::{Tuning, Warpgroups};
use gemv::Gemv;
use mlc_backends::reference::accelerated::affine::divided;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int, Real, Slot};
use mlc_backends::reference::scalar::{IntOp, Monoid, RealOp};
use mlc_dsl::ir::{DType, Value};
use smem_pipeline::TileElement;
use std::cmp::Ordering;
use tile_config::{SIDE, Tiling};

/// Least rows, columns and depth of a tiled product.
pub const LEAST: i64 = 8;
/// Least multiplications for which other tilings are offered.
const LEAST_WORK: i64 = 1 << 22;

/// A factor of a product.
pub enum Term {
    Real(Real),
    Int(Int),
}

/// Axes and their extents.
type Axes = Vec<(Slot, i64)>;

/// The factors of a sum of products, and its reduced axes; products of integers wrap to 32 bits.
fn factors_of(body: Body) -> Option<([Term; 2], Axes)> {
    match body {
        Body::Real(Real::Reduce(r)) if r.monoid == Monoid::Sum => match r.body {
            Real::Binary(RealOp::Mul, a, b) => Some(([Term::Real(*a), Term::Real(*b)], r.over)),
            _ => None,
        },
        Body::Int(DType::I32, Int::Reduce(r)) if r.monoid == Monoid::Sum => {
            let product = match r.body {
                Int::Wrap(DType::I32, product) => *product,
                product => product,
            };
            match product {
                Int::Binary(IntOp::Mul, a, b) => Some(([Term::Int(*a), Term::Int(*b)], r.over)),
                _ => None,
            }
        }
        Body::Real(_) | Body::Int(..) => None,
    }
}

/// Makes the reduced axis last along which most of the factors' loads are contiguous.
fn contiguous_axis_last(e: &mut Emitter<'_>, v: Value, factors: &[Term; 2], deep: &mut Axes) {
    let offsets = factors.each_ref().map(|f| e.analyse_term(v, f).offsets).concat();
    let beside = |a: &(Slot, i64)| match a.1 {
        1 => 0,
        _ => offsets.iter().filter(|o| o.1.factor(a.0) == 1).count(),
    };
    let Some(last) = deep.iter().rposition(|a| a.1 != 1) else { return };
    let best = (0..deep.len()).rev().max_by_key(|&i| beside(&deep[i]));
    if let Some(best) = best.filter(|&b| beside(&deep[b]) > beside(&deep[last])) {
        let axis = deep.remove(best);
        deep.push(axis);
    }
}

/// Integer factors as 8-bit operands: the types of both, and the zero point added to each. A sum is then too large by the zero point
/// times the sum of the other factor; at most one zero point is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int8Factors {
    pub types: [DType; 2],
    pub shifts: [i64; 2],
}

impl Int8Factors {
    /// The 8-bit operands of a value's factors, if their ranges fit.
    fn fitting(kernel: &KernelProgram, v: Value, factors: &[Term; 2]) -> Option<Int8Factors> {
        let byte = |t: &Term| {
            let Term::Int(i) = t else { return None };
            let (low, high) = ranges::of_term(kernel, v, i)?;
            let fits = |d: DType| d.int_range().is_some_and(|r| r.0 <= low && high <= r.1);
            match [DType::I8, DType::U8].into_iter().find(|d| fits(*d)) {
                Some(dtype) => Some((dtype, 0)),
                None if high - low < 256 => Some((DType::U8, i64::try_from(-low).ok()?)),
                None => None,
            }
        };
        let [(a, by_a), (b, by_b)] = [byte(&factors[0])?, byte(&factors[1])?];
        (by_a == 0 || by_b == 0).then_some(Int8Factors { types: [a, b], shifts: [by_a, by_b] })
    }

    fn turned(self) -> Int8Factors {
        let ([a, b], [c, d]) = (self.types, self.shifts);
        Int8Factors { types: [b, a], shifts: [d, c] }
    }
}

/// A sum of products.
pub struct Contraction {
    /// Parts of output axes: the axis, counted from the left, the factor in its index, and the extent.
    parts: Vec<(usize, i64, i64)>,
    /// Parts of output axes by what depends on them.
    pub batch: Vec<usize>,
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    /// Elements of rows, of columns and of a sum.
    sizes: [i64; 3],
    /// The most vectors of a GEMV.
    few: i64,
}

/// The index of every output axis by variables for its parts.
fn index_of(parts: &[(usize, i64, i64)], slots: &[Slot], axes: usize) -> Vec<Int> {
    let mut index = vec![Affine::default(); axes];
    for (&(axis, factor, _), &slot) in parts.iter().zip(slots) {
        index[axis].terms.push((slot, factor));
    }
    index.into_iter().map(Int::Affine).collect()
}

impl Contraction {
    /// A value as a sum of products, for an emitter that knows what is stored; with an output axis taken apart, where one is given.
    fn find(
        e: &Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        split: Option<(usize, i64)>,
    ) -> Option<Contraction> {
        let code = kernel.code(v)?;
        let mut parts = vec![];
        for (axis, &(_, extent)) in code.axes.iter().enumerate() {
            match split.filter(|s| s.0 == axis) {
                Some((_, by)) => parts.extend([(axis, by, extent / by), (axis, 1, by)]),
                None => parts.push((axis, 1, extent)),
            }
        }
        let mut probe = e.dry_run();
        let slots: Vec<Slot> = parts.iter().map(|p| probe.variable(p.2)).collect();
        let index = index_of(&parts, &slots, code.axes.len());
        let (factors, over) = factors_of(probe.body_at(v, &index)?)?;
        let is_whole = matches!(factors[0], Term::Int(_));
        if is_whole && Int8Factors::fitting(kernel, v, &factors).is_none() {
            return None;
        }
        // What views leave out of an index does not count.
        let [left, right] = factors.map(|side| probe.analyse_term(v, &side).touched);
        let (mut batch, mut rows, mut columns) = (vec![], vec![], vec![]);
        for (part, slot) in slots.iter().enumerate() {
            match (left.contains(slot), right.contains(slot)) {
                (true, true) => batch.push(part),
                (true, false) => rows.push(part),
                (false, _) => columns.push(part),
            }
        }
        let extent = |list: &[usize]| list.iter().map(|&p| parts[p].2).product::<i64>();
        let sizes = [extent(&rows), extent(&columns), over.iter().map(|o| o.1).product::<i64>()];
        let few = match kernel.program.ty(v).dtype {
            _ if is_whole => 0,
            DType::F16 | DType::BF16 => gemv::MOST_HALVES,
            _ => gemv::MOST,
        };
        Some(Contraction { parts, batch, rows, columns, sizes, few })
    }

    /// Whether it is a GEMV: one factor is a matrix, the other one a vector or a few.
    fn is_gemv(&self) -> bool {
        let [rows, columns, depth] = self.sizes;
        let vectors = rows.min(columns);
        let few = (1..=self.few).contains(&vectors);
        // More vectors pay where each of them is long.
        few && (vectors <= gemv::SHORT || depth >= gemv::LONG)
            && rows.max(columns) >= gemv::LEAST
            && depth >= gemv::LEAST
    }

    /// Whether it is a batch of vector products, and the batch is the contiguous axis of the result.
    pub fn has_batch_last(&self) -> bool {
        let last = (0..self.parts.len()).rev().find(|&p| self.parts[p].2 != 1);
        self.sizes[0].min(self.sizes[1]) == 1 && last.is_some_and(|p| self.batch.contains(&p))
    }

    fn is_worth_tiles(&self) -> bool {
        self.sizes.iter().all(|n| *n >= LEAST)
    }

    /// A value as a sum of products, however small.
    pub fn recognise_any_size(
        e: &Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
    ) -> Option<Contraction> {
        Contraction::find(e, kernel, v, None)
    }

    /// A value as a sum of products that is worth tiles or a GEMV. An axis is split where that makes more rows or columns.
    pub fn recognise(e: &Emitter<'_>, kernel: &KernelProgram, v: Value) -> Option<Contraction> {
        let has_shape = |c: &Contraction| c.is_gemv() || c.is_worth_tiles();
        let whole = Contraction::find(e, kernel, v, None)?;
        let product = |c: &Contraction| c.sizes[0] * c.sizes[1];
        let apart = divided(kernel.code(v)?).into_iter().find_map(|split| {
            let found = Contraction::find(e, kernel, v, Some(split))?;
            (product(&found) > product(&whole) && has_shape(&found)).then_some(found)
        });
        apart.or_else(|| Some(whole).filter(has_shape))
    }

    /// Splits the axes that the factors divide by a number, as reads through a reshape do, which makes the reads affine in
    /// the parts. Yields the splits of the reduced axes, as the code of the value names them.
    fn take_apart(
        &mut self,
        e: &Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
    ) -> Option<Vec<(Slot, i64)>> {
        let code = kernel.code(v)?;
        let mut probe = e.dry_run();
        let slots: Vec<Slot> = self.parts.iter().map(|p| probe.variable(p.2)).collect();
        let index = index_of(&self.parts, &slots, code.axes.len());
        let (factors, over) = factors_of(probe.body_at(v, &index)?)?;
        let found = factors.map(|f| probe.analyse_term(v, &f).divided).concat();
        let by = |slot: Slot, n: i64| {
            let divisors = found.iter().filter(|(s, by)| *s == slot && n > *by && n % by == 0);
            divisors.map(|d| d.1).min()
        };
        for (part, slot) in slots.iter().enumerate().rev() {
            if let Some(by) = by(*slot, self.parts[part].2) {
                self.divide(part, by);
            }
        }
        let own = match &code.body {
            Body::Real(Real::Reduce(r)) => &r.over,
            Body::Int(_, Int::Reduce(r)) => &r.over,
            Body::Real(_) | Body::Int(..) => return None,
        };
        let named = own.iter().zip(&over);
        Some(named.filter_map(|(own, o)| Some((own.0, by(o.0, o.1)?))).collect())
    }

    /// Takes a part of an output axis apart into two, of which the second has so many elements.
    fn divide(&mut self, part: usize, by: i64) {
        let (axis, factor, extent) = self.parts[part];
        self.parts.splice(part..=part, [(axis, factor * by, extent / by), (axis, factor, by)]);
        for list in [&mut self.batch, &mut self.rows, &mut self.columns] {
            let parts = list.iter().flat_map(|&p| match p.cmp(&part) {
                Ordering::Less => vec![p],
                Ordering::Equal => vec![p, p + 1],
                Ordering::Greater => vec![p + 1],
            });
            *list = parts.collect();
        }
    }
}

/// A sum of products with names for its indices.
pub struct Product {
    pub value: Value,
    pub shape: Vec<usize>,
    pub index: Vec<Int>,
    pub batch: Vec<(Slot, i64)>,
    pub rows: Vec<(Slot, i64)>,
    pub columns: Vec<(Slot, i64)>,
    /// The reduced axes.
    pub deep: Vec<(Slot, i64)>,
    /// The factors that depend on rows and on columns.
    pub factors: [Term; 2],
    pub double: bool,
    /// Element type of the tiles in shared memory.
    pub element: TileElement,
    /// Integer factors as 8-bit operands.
    pub bytes: Option<Int8Factors>,
    pub tiling: Tiling,
    /// The GEMV, if it is one: then the tiling does not count.
    pub gemv: Option<Gemv>,
}

/// Element type of the tiles of a product's factors: that of tensor cores, where the factors have it in memory.
fn element(kernel: &KernelProgram, value: Value, factors: &[Term; 2]) -> TileElement {
    let type_of = |v: Value| kernel.program.ty(v).dtype;
    let args = &kernel.program.node(value.node).args;
    if let Term::Int(_) = factors[0] {
        return TileElement::Byte(DType::I8);
    }
    let of = |t: &Term| match t {
        Term::Real(Real::Read(read)) => match read.otherwise {
            None | Some(Real::Const(0.0)) => Some(type_of(args[read.input])),
            Some(_) => None,
        },
        _ => None,
    };
    let [left, right] = [of(&factors[0]), of(&factors[1])];
    match (left, type_of(value)) {
        (Some(d @ (DType::F16 | DType::BF16)), _) if left == right => TileElement::Half(d),
        (Some(DType::F32), _) if left == right && kernel.tuning.tf32 => TileElement::Tf32,
        (_, own) => TileElement::Real(own == DType::F64),
    }
}

/// How the tiles of a product are multiplied, whatever its extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mainloop {
    pub tiling: Tiling,
    pub element: TileElement,
    pub bytes: Option<Int8Factors>,
    pub double: bool,
}

/// Elements along axes.
pub fn size(axes: &[(Slot, i64)]) -> i64 {
    axes.iter().map(|a| a.1).product()
}

impl Product {
    /// A sum of products that is worth tiles or a GEMV. Tiles have its last axis among their columns, if it is not one of the batch; a GEMV
    /// has fewer rows than columns.
    pub fn recognise(e: &mut Emitter<'_>, kernel: &KernelProgram, value: Value) -> Option<Product> {
        let mut c = Contraction::recognise(e, kernel, value)?;
        let apart = c.take_apart(e, kernel, value)?;
        let shape = kernel.program.ty(value).known_shape()?;
        let slots: Vec<Slot> = c.parts.iter().map(|p| e.variable(p.2)).collect();
        let index = index_of(&c.parts, &slots, shape.len());
        let axes =
            |list: &[usize]| list.iter().map(|&p| (slots[p], c.parts[p].2)).collect::<Vec<_>>();
        let (factors, mut deep) = factors_of(e.body_with_split_axes(value, &index, &apart)?)?;
        contiguous_axis_last(e, value, &factors, &mut deep);
        let bytes = Int8Factors::fitting(kernel, value, &factors);
        let last = (0..c.parts.len()).rev().find(|&p| c.parts[p].2 != 1);
        let is_gemv = c.is_gemv();
        let turned = match is_gemv {
            true => c.sizes[0] > c.sizes[1],
            false => last.is_some_and(|a| c.rows.contains(&a)),
        };
        let (rows, columns) = if turned { (c.columns, c.rows) } else { (c.rows, c.columns) };
        let [left, right] = factors;
        let factors = if turned { [right, left] } else { [left, right] };
        let bytes = if turned { bytes.map(Int8Factors::turned) } else { bytes };
        let dtype = kernel.program.ty(value).dtype;
        let (batch, rows, columns) = (axes(&c.batch), axes(&rows), axes(&columns));
        let double = dtype == DType::F64;
        let sizes = [size(&batch), size(&rows), size(&columns), size(&deep)];
        let element = element(kernel, value, &factors);
        let asked = e.tiling.filter(|_| !is_gemv);
        let tiling = asked.unwrap_or_else(|| Product::tiling(kernel, sizes, element, is_gemv));
        let mut product = Product {
            value,
            shape,
            index,
            batch,
            rows,
            columns,
            deep,
            factors,
            double,
            element,
            bytes,
            tiling,
            gemv: None,
        };
        if is_gemv {
            product.gemv = Some(Gemv::choose(e, &product, kernel.tuning.processors));
        }
        Some(product)
    }

    fn tiling(
        kernel: &KernelProgram,
        sizes: [i64; 4],
        element: TileElement,
        is_gemv: bool,
    ) -> Tiling {
        let processors = kernel.tuning.processors;
        let is_asked = kernel.tuning.warpgroups == Warpgroups::Always;
        let wide = (is_asked && !is_gemv).then(|| warpgroups::tiling(sizes, element, processors));
        wide.flatten().unwrap_or_else(|| Tiling::choose(sizes, element, processors))
    }

    /// Other tilings that may be faster on a device, of products large enough to be worth timing.
    pub fn other_tilings(&self, tuning: &Tuning) -> Vec<Tiling> {
        let sizes = [&self.batch, &self.rows, &self.columns, &self.deep].map(|a| size(a));
        let work = sizes.iter().fold(1i64, |n, s| n.saturating_mul(*s));
        if self.gemv.is_some() || work < LEAST_WORK {
            return vec![];
        }
        let processors = tuning.processors;
        let wide = (tuning.warpgroups == Warpgroups::Offered)
            .then(|| warpgroups::tiling(sizes, self.element, processors));
        let mut out = match tuning.offers_tilings {
            true => self.tiling.others(sizes, self.element, processors),
            false => vec![],
        };
        out.extend(wide.flatten());
        out
    }

    /// How its tiles are multiplied.
    pub fn mainloop(&self) -> Mainloop {
        let Product { tiling, element, bytes, double, .. } = *self;
        Mainloop { tiling, element, bytes, double }
    }

    /// Element type of the tiles of the factor of rows (0) or columns (1).
    pub fn element_of(&self, side: usize) -> TileElement {
        self.bytes.map_or(self.element, |b| TileElement::Byte(b.types[side]))
    }

    /// Parts of the depth: more than one is split-K ([`split_k`]).
    pub fn count_of_parts(&self) -> i64 {
        self.gemv.map_or(self.tiling.parts, |t| t.parts)
    }

    /// Blocks for each part of the depth, and sums that each has.
    pub fn tiles(&self) -> [i64; 2] {
        let (m, n) = (size(&self.rows), size(&self.columns));
        let (rows, columns) = match &self.gemv {
            Some(thin) => (m, thin.of_block()),
            None => (self.tiling.rows * SIDE, self.tiling.columns * SIDE),
        };
        let up = |a: i64, b: i64| a / b + i64::from(a % b != 0);
        [size(&self.batch) * up(m, rows) * up(n, columns), rows * columns]
    }

    /// Type of the partial sums of split-K, if the depth is split: tiles, parts, sums of a block.
    pub fn parts(&self) -> Option<(DType, Vec<usize>)> {
        let ([tiles, sums], parts) = (self.tiles(), self.count_of_parts());
        let dtype = if self.double { DType::F64 } else { DType::F32 };
        (parts > 1).then(|| (dtype, vec![tiles as usize, parts as usize, sums as usize]))
    }

    /// The bounds check of the row `down` and the column `across`, as the head of a block.
    pub fn inside(&self) -> String {
        let mut checks = vec![];
        let sides = [
            ("down", &self.rows, self.tiling.rows),
            ("across", &self.columns, self.tiling.columns),
        ];
        for (name, axes, own) in sides {
            if size(axes) % (own * SIDE) != 0 {
                checks.push(format!("{name} < {}", size(axes)));
            }
        }
        if checks.is_empty() { String::new() } else { format!("if ({})", checks.join(" && ")) }
    }
}
