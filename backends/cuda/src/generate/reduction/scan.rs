//! Scans (cumulative sums, products and extremes) in one pass over the axis.
//!
//! Recognised in the meaning: a reduction masked by a comparison of its variable with the position, whose other branch is the identity of
//! the reduction.

use super::super::emit::{Emitter, coordinates, offset_of};
use super::super::kernel::KernelProgram;
use super::super::spelling::{self as spell, ScalarKind};
use crate::generate::grid::GridSize;
use mlc_backends::reference::accelerated::affine::combine;
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Int, Real, Reduce, Sign, Slot, Truth};
use mlc_backends::reference::scalar::Monoid;
use mlc_dsl::ir::Value;

/// Least elements along the axis of a scan, and of one that a block shares.
const LEAST: i64 = 8;
pub const SHARED: i64 = 64;
/// Threads of a block.
const THREADS: i64 = 256;

/// A scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The axis, counted from the left.
    axis: usize,
    /// Whether it is inclusive, and whether it runs backwards.
    inclusive: bool,
    backwards: bool,
    monoid: Monoid,
    kind: ScalarKind,
}

/// What is combined where the comparison holds.
enum ScanBody {
    Real(Real),
    Int(Int),
}

/// Whether a condition holds for a place below, at and above another one, if nothing else decides it. `factor` is 1 if the first of two
/// integers is above the second one by as much as the first place is above the other, and -1 if it is below.
pub fn sides(t: &Truth, factor: &dyn Fn(&Int, &Int) -> Option<i64>) -> Option<[bool; 3]> {
    let both = |a: &Truth, b: &Truth, f: &dyn Fn(bool, bool) -> bool| {
        let (a, b) = (sides(a, factor)?, sides(b, factor)?);
        Some([0, 1, 2].map(|i| f(a[i], b[i])))
    };
    match t {
        Truth::Const(v) => Some([*v; 3]),
        Truth::And(a, b) => both(a, b, &|a, b| a && b),
        Truth::Or(a, b) => both(a, b, &|a, b| a || b),
        Truth::Not(a) => sides(a, factor).map(|a| a.map(|v| !v)),
        Truth::If(c, a, b) => {
            let c = sides(c, factor)?;
            let (a, b) = (sides(a, factor)?, sides(b, factor)?);
            Some([0, 1, 2].map(|i| if c[i] { a[i] } else { b[i] }))
        }
        Truth::Int(cmp, Sign::Signed, a, b) => {
            let factor = factor(a, b)?;
            Some([-1, 0, 1].map(|v| cmp.holds(v * factor, 0)))
        }
        _ => None,
    }
}

/// By how much the difference of two linear forms grows with that of two variables, if it is that difference or the opposite.
fn factor(a: &Int, b: &Int, m: Slot, n: Slot) -> Option<i64> {
    let (Int::Affine(a), Int::Affine(b)) = (a, b) else { return None };
    let apart = combine(a, b, -1)?;
    let factor = apart.factor(m);
    let is_only = apart.constant == 0 && apart.terms.len() == 2;
    (is_only && factor.abs() == 1 && apart.factor(n) == -factor).then_some(factor)
}

impl Scan {
    /// A value as a scan that is worth one pass.
    pub fn recognise(kernel: &KernelProgram, v: Value) -> Option<Scan> {
        let mut e = Emitter::new(kernel);
        let axes = &kernel.code(v)?.axes;
        let slots: Vec<Slot> = axes.iter().map(|a| e.variable(a.1)).collect();
        Scan::found(&mut e, kernel, v, &slots).map(|f| f.0)
    }

    /// The same with what is combined, and its variable.
    fn found(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        slots: &[Slot],
    ) -> Option<(Scan, ScanBody, Slot)> {
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let double = e.double(v);
        let (condition, combined, over, monoid, kind) = match e.body_at(v, &index)? {
            Body::Real(Real::Reduce(r)) => {
                let Reduce { monoid, over, body: Real::If(c, a, b), .. } = *r else { return None };
                let kind = ScalarKind::Real(double);
                let first = |v: f64| spell::float(v, double) == spell::monoid(monoid, kind).1;
                if !matches!(*b, Real::Const(v) if first(v)) {
                    return None;
                }
                (*c, ScanBody::Real(*a), over, monoid, kind)
            }
            Body::Int(_, Int::Reduce(r)) => {
                let Reduce { monoid, over, dtype, body: Int::If(c, a, b) } = *r else {
                    return None;
                };
                let kind = ScalarKind::Int(dtype);
                let first = |v: i64| spell::int(v) == spell::monoid(monoid, kind).1;
                let is_first = match &*b {
                    Int::Const(v) => first(*v),
                    Int::Affine(a) => a.terms.is_empty() && first(a.constant),
                    _ => false,
                };
                if !is_first {
                    return None;
                }
                (*c, ScanBody::Int(*a), over, monoid, kind)
            }
            Body::Real(_) | Body::Int(..) => return None,
        };
        let [(m, count)] = over.as_slice() else { return None };
        let is_read = |s: Slot| match &combined {
            ScanBody::Real(r) => r.reads(s),
            ScanBody::Int(i) => i.reads(s),
        };
        let axes = &kernel.code(v)?.axes;
        let place = |axis: &usize| {
            (axes[*axis].1 == *count && !is_read(slots[*axis]))
                .then(|| sides(&condition, &|a, b| factor(a, b, *m, slots[*axis])))
                .flatten()
        };
        let (axis, sides) = (0..slots.len()).find_map(|axis| Some((axis, place(&axis)?)))?;
        let (inclusive, backwards) = match sides {
            [true, at, false] => (at, false),
            [false, at, true] => (at, true),
            _ => return None,
        };
        let scan = Scan { axis, inclusive, backwards, monoid, kind };
        (*count >= LEAST).then_some((scan, combined, *m))
    }

    /// Writes the function that stores the value.
    pub fn write(
        &self,
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        shape: &[i64],
    ) -> Option<GridSize> {
        let slots: Vec<Slot> = shape.iter().map(|&n| e.variable(n)).collect();
        let (_, combined, m) = Scan::found(e, kernel, v, &slots)?;
        let n = shape[self.axis];
        let own = Emitter::name(slots[self.axis]);
        let axes = slots.iter().copied().zip(shape.iter().copied()).enumerate();
        let others: Vec<(Slot, i64)> = axes.filter(|a| a.0 != self.axis).map(|a| a.1).collect();
        let rows: i64 = others.iter().map(|a| a.1).product();
        let is_last = shape[self.axis + 1..].iter().all(|n| *n == 1);
        let (op, first) = spell::monoid(self.monoid, self.kind);
        let (kind, name) = (e.index_type(), self.kind.name());
        let value = |e: &mut Emitter<'_>| match (&combined, self.kind) {
            (ScanBody::Real(r), ScalarKind::Real(double)) => e.real_of(v, double, r),
            (ScanBody::Int(i), _) => e.int_of(v, i),
            (ScanBody::Real(_), ScalarKind::Int(_)) => {
                unreachable!("floats are combined as floats")
            }
        };
        let at = |place: &str| match self.backwards {
            true => format!("{} - {place}", n - 1),
            false => place.to_string(),
        };
        if is_last && n >= SHARED {
            let threads = if n > 128 { THREADS } else { 64 };
            e.line(format!("SHARED({name}, parts, 32);"));
            e.line(format!("{kind} row = blockIdx.x;"));
            coordinates(e, "row", &others);
            e.line(format!("{name} before = {first};"));
            e.open(&format!("for ({kind} from = 0; from < {n}; from += {threads})"));
            e.line(format!("{kind} place = from + threadIdx.x;"));
            e.line(format!("{kind} {own} = {}, {} = {own};", at("place"), Emitter::name(m)));
            e.line(format!("{name} value = {first}, all;"));
            e.open(&format!("if (place < {n})"));
            let text = value(e);
            e.line(format!("value = {text};"));
            e.close();
            let scan = format!(
                "scan_block({op}(), value, ({name}){first}, parts, all, {})",
                self.inclusive
            );
            e.line(format!("{name} here = {op}()(before, {scan});"));
            e.line(format!("before = {op}()(before, all);"));
            e.open(&format!("if (place < {n})"));
            self.store(e, kernel, v, &slots, "here");
            e.close();
            e.close();
            return Some(GridSize { blocks: rows as u64, threads: threads as u32 });
        }
        e.line(format!("{kind} row = ({kind})blockIdx.x * {THREADS} + threadIdx.x;"));
        e.line(format!("if (row >= {rows}) return;"));
        coordinates(e, "row", &others);
        e.line(format!("{name} total = {first};"));
        e.open(&format!("for ({kind} place = 0; place < {n}; ++place)"));
        e.line(format!("{kind} {own} = {}, {} = {own};", at("place"), Emitter::name(m)));
        let text = value(e);
        let add = format!("total = {op}()(total, ({name}){text});");
        if self.inclusive {
            e.line(&add);
        }
        self.store(e, kernel, v, &slots, "total");
        if !self.inclusive {
            e.line(&add);
        }
        e.close();
        let blocks = (rows as u64).div_ceil(THREADS as u64);
        Some(GridSize { blocks, threads: THREADS as u32 })
    }

    fn store(
        &self,
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        v: Value,
        slots: &[Slot],
        name: &str,
    ) {
        let ty = kernel.program.ty(v);
        let text = self.kind.stored(ty.dtype, name);
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(*s)).collect();
        let shape = ty.known_shape().unwrap_or_default();
        let offset = offset_of(&shape, &index).expect("its bytes are an `i64`");
        e.store(ty.dtype, &offset, &text);
    }
}
