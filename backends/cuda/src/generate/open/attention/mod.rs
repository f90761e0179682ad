//! Attention in one pass over the keys whose extents are arguments: the batch, the queries and the keys may be open, the head sizes are not.
//!
//! The blocks are those of known extents ([`flash_attention`](crate::generate::flash_attention)). What differs is how elements are found
//! ([`block`]), and that tilings are chosen per band.

mod block;
mod masks;
mod tiles;

use super::emitter::{ElementAt, OpenEmitter};
use super::form::{Form, Variable};
use super::product::{Axes, Contraction, InMemory, size};
use super::program::OpenProgram;
use crate::generate::emit::NodeScope;
use crate::generate::flash_attention::tiling::{AttentionExtents, AttentionTiling, MultiplyUnit};
pub use block::OpenBlock;
use masks::Masks;
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::compile::{Body, OpenVariable};
use mlc_backends::reference::code::{Real, Slot};
use mlc_backends::reference::scalar::{Monoid, RealOp};
use mlc_dsl::eval::functions::Function;
use mlc_dsl::ir::{DType, Extent, Value};
use std::collections::BTreeSet;

/// Most columns of V, and depth of Q Kᵀ: bounded by the registers of a block.
const WIDEST: i64 = 256;

/// A factor in the code of a product, and what the variables of its reduction stand for.
pub struct OpenFactor {
    product: ElementAt,
    reduced: Vec<(Slot, Form)>,
    factor: Real,
}

impl OpenFactor {
    /// Emits it, in 32 bits.
    fn value(&self, e: &mut OpenEmitter<'_>) -> String {
        e.part_of_code(self.product.0, &self.product.1, &self.reduced, |e, scope| {
            NodeScope { double: false, ..scope }.real(e, &self.factor)
        })
    }

    /// Where it is in memory, if it is there as it is and never read outside.
    fn in_memory(&self, e: &OpenEmitter<'_>) -> Option<InMemory> {
        let Real::Read(read) = &self.factor else { return None };
        let mut probe = e.clone();
        let found =
            probe.part_of_code(self.product.0, &self.product.1, &self.reduced, |e, scope| {
                e.memory_of(scope, read)
            });
        found.map(|(value, offset)| InMemory { value, offset })
    }

    /// The variables that its reads depend on.
    fn touched(&self, kernel: &OpenProgram) -> BTreeSet<Variable> {
        let axes = kernel.code(self.product.0).map_or(&[][..], |c| &c.axes);
        let all = axes.iter().zip(&self.product.1).chain(self.reduced.iter().map(|r| (&r.0, &r.1)));
        let read = all.filter(|(slot, _)| self.factor.reads(**slot));
        read.flat_map(|(_, form)| form.terms.iter().map(|t| t.0)).collect()
    }
}

/// An attention: `softmax(Q Kᵀ) V`.
pub struct OpenAttention {
    product: Value,
    pub index: Vec<Form>,
    /// The axes of the result that belong to the batch, counted from the left.
    of_batch: Vec<usize>,
    batch: Axes,
    rows: Axes,
    columns: Axes,
    deep: Axes,
    /// The axis of the keys.
    along: Axes,
    /// The scores that the softmax normalises, and the product `Q Kᵀ` that they follow.
    scores: ElementAt,
    inner: ElementAt,
    query: OpenFactor,
    key: OpenFactor,
    value: OpenFactor,
    units: MultiplyUnit,
    masks: Option<Masks>,
    /// Values that have to be stored first.
    pub needed: Vec<Value>,
}

/// An axis as two: its number, and the extent of the inner one.
type Split = (usize, i64);

/// Follows an element through views and copies.
struct Follower<'e, 'k> {
    e: &'e mut OpenEmitter<'k>,
}

impl Follower<'_, '_> {
    /// The element that a float in the code of a value is, if it is one whose index is linear.
    fn read(&mut self, at: &ElementAt, reduced: &[(Slot, Form)], r: &Real) -> Option<ElementAt> {
        let Real::Read(read) = r else { return None };
        if read.otherwise.is_some() {
            return None;
        }
        let kernel = self.e.kernel;
        self.e.part_of_code(at.0, &at.1, reduced, |e, scope| {
            let source = e.source(scope, read.input);
            let index = read.index.iter().zip(kernel.shape(source)).map(|(i, n)| {
                if n.is(1) { Some(Form::number(Extent::from(0))) } else { e.linear(i) }
            });
            Some((source, index.collect::<Option<_>>()?))
        })
    }

    /// The code of the first value behind an element that does more than read one, and where it is read.
    fn code(&mut self, mut at: ElementAt) -> Option<(ElementAt, Real)> {
        loop {
            if self.e.stored.contains_key(&at.0) {
                return None;
            }
            let kernel = self.e.kernel;
            let Body::Real(code) = &kernel.code(at.0)?.body else { return None };
            match self.read(&at, &[], code) {
                Some(next) => at = next,
                None => return Some((at, code.clone())),
            }
        }
    }

    /// The same for what a float of the code of a value reads.
    fn behind(&mut self, at: &ElementAt, r: &Real) -> Option<(ElementAt, Real)> {
        let at = self.read(at, &[], r)?;
        self.code(at)
    }

    /// The element that a reduction along one axis combines, with `along` in the place of its own variable.
    fn reduced(
        &mut self,
        (at, code): &(ElementAt, Real),
        monoid: Monoid,
        along: &(Variable, Extent),
    ) -> Option<ElementAt> {
        let Real::Reduce(r) = code else { return None };
        let [(own, _)] = r.over.as_slice() else { return None };
        if r.monoid != monoid || extent_of(self.e.kernel, at.0, *own)? != along.1 {
            return None;
        }
        let at = self.read(at, &[(*own, Form::variable(along.0))], &r.body)?;
        Some(self.code(at)?.0)
    }
}

/// How many values an index variable of the code of a value takes.
fn extent_of(kernel: &OpenProgram, v: Value, slot: Slot) -> Option<Extent> {
    match &kernel.code(v)?.variables[slot] {
        OpenVariable::Index(n) => Some(n.clone()),
        OpenVariable::Number(_) => None,
    }
}

/// Scores and the product that they follow, given the factor beside V, `e / sum(e)` with `e = exp(x - max(x))`.
fn scores_behind(
    e: &mut OpenEmitter<'_>,
    product: &ElementAt,
    along: (Slot, &(Variable, Extent)),
    left: &Real,
) -> Option<(ElementAt, ElementAt)> {
    let mut f = Follower { e: &mut *e };
    let bound = [(along.0, Form::variable(along.1.0))];
    let at = f.read(product, &bound, left)?;
    let (at, code) = f.code(at)?;
    let Real::Binary(RealOp::Div, top, bottom) = &code else { return None };
    let (exp_at, exp) = f.behind(&at, top)?;
    let sum = f.behind(&at, bottom)?;
    if f.reduced(&sum, Monoid::Sum, along.1)? != exp_at {
        return None;
    }
    let Real::Unary(function, difference) = &exp else { return None };
    if function.function != Function::Exp {
        return None;
    }
    let (at, code) = match &**difference {
        Real::Read(_) => f.behind(&exp_at, difference)?,
        other => (exp_at, other.clone()),
    };
    let Real::Binary(RealOp::Sub, x, most) = &code else { return None };
    let (scores, _) = f.behind(&at, x)?;
    let most = f.behind(&at, most)?;
    if f.reduced(&most, Monoid::Max, along.1)? != scores {
        return None;
    }
    let found = e.analyse(|e| drop(e.element(scores.0, &scores.1)));
    let (inner, rest) = found.split_first()?;
    rest.iter().all(|r| r == inner).then(|| (scores, inner.clone()))
}

impl OpenAttention {
    /// A product as an attention, for an emitter that knows what is stored. Where heads share keys, their axis is two: so all indices are
    /// linear.
    pub fn recognise(e: &mut OpenEmitter<'_>, product: Value, tf32: bool) -> Option<OpenAttention> {
        let plain = OpenAttention::recognise_split(e, product, tf32, None)?;
        if plain.is_in_memory(e) {
            return Some(plain);
        }
        let shape = e.kernel.shape(product).iter().enumerate();
        let of_batch = shape.filter(|(axis, _)| plain.of_batch.contains(axis));
        let known = of_batch.filter_map(|(axis, n)| Some((axis, n.as_const()?)));
        let known: Vec<(usize, i64)> = known.collect();
        let splits = known.into_iter().flat_map(|(axis, n)| {
            (2..n).filter(move |inner| n % inner == 0).map(move |inner| (axis, inner))
        });
        for split in splits {
            let other = OpenAttention::recognise_split(e, product, tf32, Some(split));
            if let Some(other) = other.filter(|p| p.is_in_memory(e)) {
                return Some(other);
            }
        }
        Some(plain)
    }

    /// Whether K and V are in memory as they are.
    fn is_in_memory(&self, e: &OpenEmitter<'_>) -> bool {
        self.key.in_memory(e).is_some() && self.value.in_memory(e).is_some()
    }

    /// The same with an axis as two.
    fn recognise_split(
        e: &mut OpenEmitter<'_>,
        product: Value,
        tf32: bool,
        split: Option<Split>,
    ) -> Option<OpenAttention> {
        let kernel = e.kernel;
        let c = Contraction::recognise_any_size(kernel, product)?;
        if kernel.dtype(product) == DType::F64 {
            return None;
        }
        let Body::Real(Real::Reduce(r)) = &kernel.code(product)?.body else { return None };
        let ([(slot, _)], Real::Binary(RealOp::Mul, left, right)) = (r.over.as_slice(), &r.body)
        else {
            return None;
        };
        let (mut index, mut own): (Vec<Form>, Vec<Axes>) = (vec![], vec![]);
        for (axis, n) in kernel.shape(product).iter().enumerate() {
            let inner = split.filter(|s| s.0 == axis).map(|s| Extent::from(s.1));
            let parts = inner.map_or(vec![n.clone()], |by| vec![n.floor_div(&by), by]);
            let parts: Axes = parts.into_iter().map(|n| (e.variable(&n).0, n)).collect();
            let first = Form::variable(parts[0].0);
            index.push(match parts.get(1) {
                Some((v, n)) => first.times(n)?.plus(&Form::variable(*v), &Extent::from(1))?,
                None => first,
            });
            own.push(parts);
        }
        let axes = |list: &[usize]| list.iter().flat_map(|&a| own[a].clone()).collect::<Axes>();
        let (batch, rows, columns) = (axes(&c.batch), axes(&c.rows), axes(&c.columns));
        let keys = extent_of(kernel, product, *slot)?;
        let along = (e.variable(&keys).0, keys);
        let at = (product, index.clone());
        let (scores, inner) = scores_behind(e, &at, (*slot, &along), left)?;
        // Index variables beyond these are known only where they were found.
        let is_own = |v: Variable| v == along.0 || own.iter().flatten().any(|a| a.0 == v);
        if !inner.1.iter().flat_map(|f| &f.terms).all(|t| is_own(t.0)) {
            return None;
        }
        Contraction::recognise_any_size(kernel, inner.0)?;
        let Body::Real(Real::Reduce(sum)) = &kernel.code(inner.0)?.body else { return None };
        let Real::Binary(RealOp::Mul, a, b) = &sum.body else { return None };
        let (mut deep, mut reduced): (Axes, Vec<(Slot, Form)>) = (vec![], vec![]);
        for (slot, _) in &sum.over {
            let n = extent_of(kernel, inner.0, *slot)?;
            deep.push((e.variable(&n).0, n));
            reduced.push((*slot, Form::variable(deep.last()?.0)));
        }
        let factor = |r: &Real| OpenFactor {
            product: inner.clone(),
            reduced: reduced.clone(),
            factor: r.clone(),
        };
        let (mut query, mut key) = (factor(a), factor(b));
        if query.touched(kernel).contains(&along.0) {
            std::mem::swap(&mut query, &mut key);
        }
        let reduced = vec![(*slot, Form::variable(along.0))];
        let value = OpenFactor { product: at, reduced, factor: (**right).clone() };
        let variables = |axes: &Axes| axes.iter().map(|a| a.0).collect::<BTreeSet<_>>();
        let [of_query, of_key, of_value] =
            [&query, &key, &value].map(|factor| factor.touched(kernel));
        let apart = !of_query.contains(&along.0)
            && of_key.is_disjoint(&variables(&rows))
            && of_value.is_disjoint(&variables(&rows))
            && of_query.is_disjoint(&variables(&columns))
            && of_key.is_disjoint(&variables(&columns));
        if !apart {
            return None;
        }
        let masks = Masks::recognise(e, &scores, inner.0);
        let factors = [(inner.0, &query.factor), (inner.0, &key.factor), (product, &value.factor)];
        let units = MultiplyUnit::for_factors(&kernel.program, factors, tf32);
        let all = [&query, &key, &value];
        let needed = all.map(|factor| e.analyse(|e| drop(factor.value(e)))).concat();
        let needed = needed.into_iter().map(|h| h.0).collect();
        Some(OpenAttention {
            product,
            index,
            of_batch: c.batch,
            batch,
            rows,
            columns,
            deep,
            along: vec![along],
            scores,
            inner,
            query,
            key,
            value,
            units,
            masks,
            needed,
        })
    }

    /// Why its blocks have to be generated for each set of extents, if they have.
    pub fn refusal(&self) -> Option<&'static str> {
        let fits = |axes: &Axes| size(axes).as_const().map(|n| (1..=WIDEST).contains(&n));
        match (fits(&self.columns), fits(&self.deep)) {
            (Some(true), Some(true)) => None,
            (Some(_), Some(_)) => Some("the heads of attention are too large for one pass"),
            _ => Some("the head size of attention is open"),
        }
    }

    /// The tilings of the band of these extents, in which open ones are rounded up to powers of two, and of the extents themselves: they
    /// differ in how many parts the keys have.
    pub fn tilings(
        &self,
        number: &dyn Fn(&Extent) -> Option<i64>,
        processors: u32,
    ) -> Option<[AttentionTiling; 2]> {
        let axes = [&self.batch, &self.rows, &self.columns, &self.along, &self.deep].map(size);
        let sizes = |is_band: bool| {
            let of = |n: &Extent| match (number(n), n.as_const()) {
                (Some(n), None) if is_band => {
                    Some(i64::try_from((n.max(1) as u64).next_power_of_two()).unwrap_or(n))
                }
                (n, _) => n.map(|n| n.max(1)),
            };
            let [batch, rows, columns, keys, depth] = axes.each_ref().map(of);
            Some(AttentionExtents {
                batch: batch?,
                rows: rows?,
                columns: columns?,
                keys: keys?,
                depth: depth?,
            })
        };
        let band = AttentionTiling::choose(sizes(true)?, self.units, processors);
        Some([band, band.with_sizes(sizes(false)?, processors)])
    }
}
