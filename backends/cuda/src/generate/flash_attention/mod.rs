//! FlashAttention: `softmax(Q Kᵀ) V` in one pass over the keys, without materialising the scores.
//!
//! What is computed is `sum(t) e(s, t) / (sum(t) e(s, t)) * v(t, c)` with `e = exp(x - max(t) x)`, where `x` follows a product
//! element by element. A block takes some rows `s` (queries), and some columns `t` (keys) at a time. It keeps in registers, for each row,
//! the running maximum, the sum of the exponentials and the sums of their products, and rescales both sums where the maximum grows
//! (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
//!
//! The pattern is matched here, [`tiling`] chooses the tile sizes, [`mod@kernel`] writes blocks with the products of [`tensor_cores`],
//! [`simt`] or [`decode`], and [`masked_tiles`] skips keys that a mask hides.

pub mod block;
mod decode;
mod kernel;
pub mod masked_tiles;
mod simt;
pub mod split_kv;
mod tensor_cores;
mod tile_load;
pub mod tiling;
mod warp_combine;

use super::emit::Emitter;
use super::kernel::KernelProgram;
use super::procedure::TypedShape;
use super::product::{Contraction, size};
pub use kernel::{OutputTarget, least, write};
use masked_tiles::MaskedTileSkip;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int, Real, Reduce, Slot};
use mlc_backends::reference::scalar::{Monoid, RealOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::{DType, Value};
use std::collections::BTreeSet;
use tiling::{AttentionExtents, AttentionTiling, MultiplyUnit};

/// Most columns of V, and depth of Q Kᵀ: bounded by the registers of a block.
const WIDEST: i64 = 256;
/// Least keys, columns and depth.
const LEAST: i64 = 8;

/// An element of a value: an index variable for each axis, none where the index is 0.
type ElementPlace = (Value, Vec<Option<Slot>>);

/// An attention: `softmax(Q Kᵀ) V`.
pub struct FlashAttention {
    /// The index variables of the result's axes.
    index: Vec<Int>,
    batch: Vec<(Slot, i64)>,
    rows: Vec<(Slot, i64)>,
    columns: Vec<(Slot, i64)>,
    /// The axis of the keys.
    along: (Slot, i64),
    /// The scores that the softmax normalises, and the product `Q Kᵀ` that they follow.
    scores: (Value, Vec<Int>),
    inner: (Value, Vec<Int>),
    /// The reduced axes of `Q Kᵀ`, and its factors Q and K.
    deep: Vec<(Slot, i64)>,
    query: Real,
    key: Real,
    /// The factor V.
    value_factor: Real,
    /// The product with V.
    product: Value,
    tiling: AttentionTiling,
    skip: Option<MaskedTileSkip>,
    /// Values that have to be stored first.
    pub needed: Vec<Value>,
}

/// Follows an element through views and copies.
struct ReadFollower<'e, 'k> {
    e: &'e mut Emitter<'k>,
    kernel: &'e KernelProgram,
}

impl ReadFollower<'_, '_> {
    fn indices((_, index): &ElementPlace) -> Vec<Int> {
        let zero = || Int::Affine(Affine { constant: 0, terms: vec![] });
        index.iter().map(|s| s.map_or_else(zero, Emitter::index)).collect()
    }

    /// The element that a float is, if it is one.
    fn read(&self, of: Value, r: &Real) -> Option<ElementPlace> {
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
    fn code(&mut self, mut at: ElementPlace) -> Option<(ElementPlace, Real)> {
        loop {
            if self.e.stored.contains_key(&at.0) {
                return None;
            }
            let Body::Real(code) = self.e.body_at(at.0, &Self::indices(&at))? else { return None };
            match self.read(at.0, &code) {
                Some(next) => at = next,
                None => return Some((at, code)),
            }
        }
    }

    /// The same for what a float of the code of a value reads.
    fn behind(&mut self, of: Value, r: &Real) -> Option<(ElementPlace, Real)> {
        let at = self.read(of, r)?;
        self.code(at)
    }

    /// The element that a reduction along one axis combines, with `along` in the place of its own variable.
    fn reduced(
        &mut self,
        at: &ElementPlace,
        code: &Real,
        monoid: Monoid,
        along: (Slot, i64),
    ) -> Option<ElementPlace> {
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

impl FlashAttention {
    /// A product as an attention, for an emitter that knows what is stored.
    pub fn recognise(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        product: Value,
    ) -> Option<FlashAttention> {
        let c = Contraction::recognise_any_size(e, kernel, product)?;
        let shape = kernel.program.ty(product).known_shape()?;
        if kernel.program.ty(product).dtype == DType::F64 {
            return None;
        }
        let slots: Vec<Slot> = shape.iter().map(|&n| e.variable(n as i64)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let axes = |list: &[usize]| list.iter().map(|&a| (slots[a], shape[a] as i64)).collect();
        let (batch, rows, columns): (Vec<_>, Vec<_>, Vec<_>) =
            (axes(&c.batch), axes(&c.rows), axes(&c.columns));
        let Body::Real(Real::Reduce(r)) = e.body_at(product, &index)? else { return None };
        let ([along], Real::Binary(RealOp::Mul, left, right)) = (r.over.as_slice(), &r.body) else {
            return None;
        };
        let along = *along;
        let mut f = ReadFollower { e: &mut *e, kernel };
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
        let scores = (scores_at.0, ReadFollower::indices(&scores_at));
        let found = e.analyse(std::slice::from_ref(&scores)).reductions;
        let (inner, rest) = found.split_first()?;
        if rest.iter().any(|r| r != inner) {
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
        let inner = inner.clone();
        Contraction::recognise_any_size(e, kernel, inner.0)?;
        let Body::Real(Real::Reduce(sum)) = e.body_at(inner.0, &inner.1)? else { return None };
        let Reduce { over: deep, body: Real::Binary(RealOp::Mul, a, b), .. } = *sum else {
            return None;
        };
        let sides = [a, b].map(|side| (e.analyse_real(inner.0, &side), *side));
        let [a, b] = match sides[0].0.touched.contains(&along.0) {
            true => {
                let [a, b] = sides;
                [b, a]
            }
            false => sides,
        };
        let outer = e.analyse_real(product, right);
        let of_rows: BTreeSet<Slot> = rows.iter().map(|r| r.0).collect();
        let mut columns_of = columns.iter().map(|c| c.0);
        let apart = !a.0.touched.contains(&along.0)
            && b.0.touched.is_disjoint(&of_rows)
            && outer.touched.is_disjoint(&of_rows)
            && columns_of.all(|c| !a.0.touched.contains(&c) && !b.0.touched.contains(&c));
        let fits = |n: i64| (LEAST..=WIDEST).contains(&n);
        let sizes = AttentionExtents {
            batch: size(&batch),
            rows: size(&rows),
            columns: size(&columns),
            keys: along.1,
            depth: size(&deep),
        };
        if !apart || !fits(sizes.columns) || !fits(sizes.depth) || along.1 < LEAST {
            return None;
        }
        let factors = [(inner.0, &a.1), (inner.0, &b.1), (product, &**right)];
        let units = MultiplyUnit::for_factors(&kernel.program, factors, kernel.tuning.tf32);
        let cut = AttentionTiling::choose(sizes, units, kernel.tuning.processors);
        let skip = MaskedTileSkip::recognise(e, kernel, &scores_at, inner.0)
            .filter(|_| along.1 > cut.keys);
        let ((a, of_rows), (b, of_keys)) = (a, b);
        let right = (**right).clone();
        let needed = [a, b, outer].into_iter().flat_map(|f| f.reductions).map(|r| r.0).collect();
        Some(FlashAttention {
            index,
            batch,
            rows,
            columns,
            along,
            scores,
            inner,
            deep,
            query: of_rows,
            key: of_keys,
            value_factor: right,
            product,
            tiling: cut,
            skip,
            needed,
        })
    }

    /// The type of the partial results of split-KV, for each tile and part.
    pub fn parts(&self) -> Option<TypedShape> {
        let (c, parts) = (&self.tiling, self.tiling.parts);
        let shape = [split_kv::tiles(c), parts, split_kv::floats(c)];
        let shape = shape.iter().map(|&n| n as usize).collect();
        (parts > 1).then_some((DType::F32, shape))
    }
}

/// The variable that an index is.
fn slot_of(i: &Int) -> Option<Slot> {
    match i {
        Int::Affine(a) => a.terms.first().map(|t| t.0),
        _ => None,
    }
}
