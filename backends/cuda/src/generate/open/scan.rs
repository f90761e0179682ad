//! Running sums, products and extremes in one pass over an axis whose extent may be an argument, as for known extents
//! ([`Scan`](crate::generate::reduction::scan::Scan)).

use super::emitter::{ElementAt, OpenEmitter};
use super::form::{Form, Variable};
use super::program::{OpenProgram, product};
use crate::generate::THREADS;
use crate::generate::emit::{NodeScope, StatementWriter};
use crate::generate::kernel::computes_in_double;
use crate::generate::reduction::scan::{SHARED, sides};
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::compile::{Body, OpenVariable};
use mlc_backends::reference::code::{Int, Real, Reduce, Slot};
use mlc_backends::reference::scalar::Monoid;
use mlc_dsl::ir::{Extent, Value};

/// What is combined.
#[derive(Clone)]
enum Combined {
    Real(Real),
    Int(Int),
}

/// A scan.
pub struct OpenScan {
    value: Value,
    index: Vec<Form>,
    axes: Vec<(Variable, Extent)>,
    /// The axis, counted from the left.
    axis: usize,
    /// Whether it is inclusive, and whether it runs backwards.
    inclusive: bool,
    backwards: bool,
    monoid: Monoid,
    kind: ScalarKind,
    /// What is combined, and the variable that stands for the place of a term.
    combined: Combined,
    term: (Slot, Variable),
}

impl OpenScan {
    /// A value as a scan, at new variables of a function.
    pub fn recognise(e: &mut OpenEmitter<'_>, v: Value) -> Option<OpenScan> {
        let kernel = e.kernel;
        let code = kernel.code(v)?;
        let double = computes_in_double(&kernel.program, v);
        let (condition, combined, over, monoid, kind) = match &code.body {
            Body::Real(Real::Reduce(r)) => {
                let Reduce { monoid, over, body: Real::If(c, a, b), .. } = &**r else {
                    return None;
                };
                let kind = ScalarKind::Real(double);
                let first = |v: f64| spell::float(v, double) == spell::monoid(*monoid, kind).1;
                if !matches!(**b, Real::Const(v) if first(v)) {
                    return None;
                }
                (c, Combined::Real((**a).clone()), over, *monoid, kind)
            }
            Body::Int(_, Int::Reduce(r)) => {
                let Reduce { monoid, over, dtype, body: Int::If(c, a, b) } = &**r else {
                    return None;
                };
                let kind = ScalarKind::Int(*dtype);
                let first = |v: i64| spell::int(v) == spell::monoid(*monoid, kind).1;
                if !number(b).is_some_and(first) {
                    return None;
                }
                (c, Combined::Int((**a).clone()), over, *monoid, kind)
            }
            Body::Real(_) | Body::Int(..) => return None,
        };
        let [(term, _)] = over.as_slice() else { return None };
        let OpenVariable::Index(count) = &code.variables[*term] else { return None };
        let axes: Vec<(Variable, Extent)> =
            kernel.shape(v).iter().map(|n| (e.variable(n).0, n.clone())).collect();
        let index: Vec<Form> = axes.iter().map(|a| Form::variable(a.0)).collect();
        let place = e.variable(count).0;
        let reads = |s: Slot| match &combined {
            Combined::Real(r) => r.reads(s),
            Combined::Int(i) => i.reads(s),
        };
        let bound = [(*term, Form::variable(place))];
        let one = Extent::from(1);
        let found = (0..axes.len()).find_map(|axis| {
            if axes[axis].1 != *count || reads(code.axes[axis]) {
                return None;
            }
            let factor = |a: &Int, b: &Int| {
                e.clone().part_of_code(v, &index, &bound, |e, _| {
                    let apart = e.linear(a)?.plus(&e.linear(b)?, &Extent::from(-1))?;
                    let [of_term, of_axis] = [place, axes[axis].0].map(|v| apart.factor(v));
                    let is_one = of_term.is(1) || of_term.is(-1);
                    let is_only = apart.terms.len() == 2 && apart.constant.is(0);
                    let is_opposite = (&of_term + &of_axis).is(0);
                    let sign = if of_term == one { 1 } else { -1 };
                    (is_one && is_only && is_opposite).then_some(sign)
                })
            };
            Some((axis, sides(condition, &factor)?))
        });
        let (axis, sides) = found?;
        let (inclusive, backwards) = match sides {
            [true, at, false] => (at, false),
            [false, at, true] => (at, true),
            _ => return None,
        };
        let term = (*term, place);
        Some(OpenScan {
            value: v,
            index,
            axes,
            axis,
            inclusive,
            backwards,
            monoid,
            kind,
            combined,
            term,
        })
    }

    /// How many elements its axis has.
    pub fn length(&self) -> &Extent {
        &self.axes[self.axis].1
    }

    /// How many rows it runs along.
    pub fn rows(&self) -> Extent {
        product(&self.others().into_iter().map(|a| a.1).collect::<Vec<_>>())
    }

    fn others(&self) -> Vec<(Variable, Extent)> {
        let axes = self.axes.iter().enumerate().filter(|(axis, _)| *axis != self.axis);
        axes.map(|(_, a)| a.clone()).collect()
    }

    /// The reductions that what is combined reads.
    pub fn needed(&self, e: &OpenEmitter<'_>) -> Vec<ElementAt> {
        e.analyse(|e| drop(self.term(e)))
    }

    /// Emits what is combined at a place.
    fn term(&self, e: &mut OpenEmitter<'_>) -> String {
        let bound = [(self.term.0, Form::variable(self.term.1))];
        e.part_of_code(self.value, &self.index, &bound, |e, scope| match &self.combined {
            Combined::Real(r) => {
                NodeScope { double: self.kind == ScalarKind::Real(true), ..scope }.real(e, r)
            }
            Combined::Int(i) => scope.int(e, i),
        })
    }

    /// The threads that share a row of so many elements, or of as many as its band has; none where each thread has a row.
    pub fn sharing(&self, length: i64) -> Option<u32> {
        let is_last = self.axes[self.axis + 1..].iter().all(|a| a.1.is(1));
        let banded = match self.length().as_const() {
            Some(n) => n,
            None => i64::try_from((length.max(1) as u64).next_power_of_two()).unwrap_or(length),
        };
        let threads = if banded > 128 { THREADS } else { 64 };
        (is_last && banded >= SHARED).then_some(threads)
    }

    /// Declares the places of a result and of its last term.
    fn place(&self, e: &mut OpenEmitter<'_>, text: &str) {
        let kind = e.index;
        let own = format!("i{}", self.axes[self.axis].0);
        let place = match self.backwards {
            true => format!("{} - {text}", e.number(&(self.length() - &Extent::from(1)))),
            false => text.to_string(),
        };
        e.line(format!("{kind} {own} = {place}, i{} = {own};", self.term.1));
    }

    /// Writes the function that stores the value, for the threads that share a row.
    pub fn write(&self, e: &mut OpenEmitter<'_>, sharing: Option<u32>) {
        let (op, first) = spell::monoid(self.monoid, self.kind);
        let (kind, name) = (e.index, self.kind.name());
        let length = e.number(self.length());
        if let Some(threads) = sharing {
            e.line(format!("SHARED({name}, parts, 32);"));
            e.line(format!("{kind} row = blockIdx.x;"));
            e.coordinates("row", &self.others());
            e.line(format!("{name} before = {first};"));
            e.open(&format!("for ({kind} from = 0; from < {length}; from += {threads})"));
            e.line(format!("{kind} place = from + threadIdx.x;"));
            self.place(e, "place");
            e.line(format!("{name} value = {first}, all;"));
            e.open(&format!("if (place < {length})"));
            let text = self.term(e);
            e.line(format!("value = {text};"));
            e.close();
            let inclusive = self.inclusive;
            let scan =
                format!("scan_block({op}(), value, ({name}){first}, parts, all, {inclusive})");
            e.line(format!("{name} here = {op}()(before, {scan});"));
            e.line(format!("before = {op}()(before, all);"));
            e.open(&format!("if (place < {length})"));
            self.store(e, "here");
            e.close();
            return e.close();
        }
        let rows = e.number(&self.rows());
        e.line(format!("{kind} row = ({kind})blockIdx.x * {THREADS} + threadIdx.x;"));
        e.line(format!("if (row >= {rows}) return;"));
        e.coordinates("row", &self.others());
        e.line(format!("{name} total = {first};"));
        e.open(&format!("for ({kind} place = 0; place < {length}; ++place)"));
        self.place(e, "place");
        let text = self.term(e);
        let add = format!("total = {op}()(total, ({name}){text});");
        if self.inclusive {
            e.line(&add);
        }
        self.store(e, "total");
        if !self.inclusive {
            e.line(&add);
        }
        e.close();
    }

    fn store(&self, e: &mut OpenEmitter<'_>, name: &str) {
        let dtype = e.kernel.dtype(self.value);
        let text = self.kind.stored(dtype, name);
        e.store(self.value, &self.index, &text);
    }
}

/// The number that an integer is, whatever type it is of.
fn number(i: &Int) -> Option<i64> {
    match i {
        Int::Const(n) => Some(*n),
        Int::Wrap(_, i) => number(i),
        _ => None,
    }
}

/// Whether a value is a reduction of the terms up to its own place, or of some others that its place decides.
pub fn is_running(kernel: &OpenProgram, v: Value) -> bool {
    let Some(code) = kernel.code(v) else { return false };
    let over = kernel.reduction(v).unwrap_or_default();
    let condition = match &code.body {
        Body::Real(Real::Reduce(r)) => match &r.body {
            Real::If(c, ..) => c,
            _ => return false,
        },
        Body::Int(_, Int::Reduce(r)) => match &r.body {
            Int::If(c, ..) => c,
            _ => return false,
        },
        Body::Real(_) | Body::Int(..) => return false,
    };
    let reads = |all: &[Slot]| all.iter().any(|s| condition.reads(*s));
    reads(&code.axes) && reads(&over)
}
