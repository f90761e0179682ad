//! Checks one output in the working type: no value changes its kind, and the error stays within a factor of the left side's own.
//!
//! The reference interpreter rounds every operator's result to its type, on both sides. A violation is compared
//! with the running error analysis of the left side ([`super::running_error`]): if the order of sums and products decides
//! whether a value is finite, the sample is inconclusive, and the left side's own error is that of its worst order.

use super::Sample;
use super::running_error::{self, BoundedNumber, limits};
use crate::law::instance::Instance;
use mlc_dsl::ir::{Attr, DType, NodeKind, Program};
use mlc_dsl::library::{ErrorClass, Library};
use std::cell::{Cell, OnceCell};

/// The right side may stray that many times as far as the left, and that many units beyond.
pub(crate) const FACTOR: f64 = 16.0;
pub(crate) const UNITS: f64 = 64.0;

/// Both sides of one sample in the working type.
pub(crate) struct WorkingPrecision<'a> {
    library: &'a Library,
    class: ErrorClass,
    sample: &'a Sample,
    dtype: DType,
    left: OnceCell<Option<Vec<Vec<BoundedNumber>>>>,
    /// The errors of both sides where the right one's is largest beside the left one's.
    worst: Cell<Option<(f64, f64)>>,
}

/// One element: its true value, and what each side computes.
#[derive(Clone, Copy)]
struct ElementValues {
    truth: f64,
    left: f64,
    right: f64,
}

/// What is broken at an element.
pub(crate) struct Excess {
    /// Where.
    pub at: usize,
    /// In words.
    pub message: String,
}

/// The narrowest floating type of a program.
fn narrowest(program: &Program) -> Option<DType> {
    let types = program.nodes.iter().flat_map(|n| &n.types).map(|t| t.dtype);
    types.filter(|d| d.is_float()).max_by(|a, b| a.unit_roundoff().total_cmp(&b.unit_roundoff()))
}

/// The real numbers of an attribute.
fn numbers(a: &Attr) -> Vec<f64> {
    match a {
        Attr::Float(b) => vec![f64::from_bits(*b)],
        Attr::Floats(v) => v.iter().map(|b| f64::from_bits(*b)).collect(),
        _ => vec![],
    }
}

/// Finite, one of the infinities, or NaN, in words.
fn word(v: f64) -> &'static str {
    match v {
        _ if v.is_nan() => "NaN",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "finite",
    }
}

impl<'a> WorkingPrecision<'a> {
    /// The reference interpreter of a sample; `None` if it has no floats.
    pub(crate) fn of(
        library: &'a Library,
        class: ErrorClass,
        sample: &'a Sample,
    ) -> Option<WorkingPrecision<'a>> {
        let dtype = narrowest(&sample.instance.program)?;
        // A number of a program is one of its type.
        let (largest, _, least) = limits(dtype);
        let held = |v: f64| v == 0.0 || !v.is_finite() || (least..=largest).contains(&v.abs());
        let given = sample.instance.draft.attrs.iter().flat_map(|(_, a)| numbers(a));
        let truth = &sample.instance.truth;
        let written = truth.nodes.iter().flat_map(|n| match &n.kind {
            NodeKind::Const(c) => {
                let t = truth.consts.get(*c);
                let single = t.dtype().is_float() && t.len() == 1;
                single.then(|| t.get_f64(0)).into_iter().collect()
            }
            NodeKind::Apply(_, attrs) => attrs.iter().flat_map(numbers).collect(),
            NodeKind::Input(_) => vec![],
        });
        if !given.chain(written).all(held) {
            return None;
        }
        Some(WorkingPrecision {
            library,
            class,
            sample,
            dtype,
            left: OnceCell::new(),
            worst: Cell::new(None),
        })
    }

    /// One side alone.
    fn side(&self, right: bool) -> Program {
        let Instance { program, outputs, .. } = &self.sample.instance;
        let mut side = program.clone();
        side.outputs = match right {
            true => side.outputs.split_off(*outputs),
            false => side.outputs.into_iter().take(*outputs).collect(),
        };
        side
    }

    fn analysed(&self, right: bool) -> Option<Vec<Vec<BoundedNumber>>> {
        let given = &self.sample.instance.given;
        running_error::analyse(self.library, &self.side(right), self.sample, self.dtype, given)
    }

    /// The left side's element as the analysis has it.
    fn own(&self, output: usize, at: usize) -> Option<BoundedNumber> {
        let left = self.left.get_or_init(|| self.analysed(false)).as_ref()?;
        left.get(output)?.get(at).copied()
    }

    /// True if a product of one element of each input may be beyond the range, or vanish from it. What only
    /// multiplies and adds may meet that product in one order and not in another.
    fn products_overflow(&self) -> bool {
        let (largest, normal, _) = limits(self.dtype);
        let (mut top, mut bottom) = (0.0, 0.0);
        for t in self.sample.inputs.iter().filter(|t| t.dtype().is_float()) {
            let logs = t.to_f64().into_iter().map(|v| v.abs().log2()).filter(|v| v.is_finite());
            let (low, high) = logs.fold((0.0, 0.0), |(l, h): (f64, f64), v| (l.min(v), h.max(v)));
            top += high;
            bottom += low;
        }
        top > largest.log2() - 2.0 || bottom < normal.log2()
    }

    /// True if the order of operations decides what an element of the output is: what one element overflows,
    /// folded into constants, overflows for all.
    fn undecided(&self, output: usize) -> bool {
        let left = self.left.get_or_init(|| self.analysed(false)).as_ref();
        left.and_then(|l| l.get(output)).is_none_or(|l| l.iter().any(|n| n.open))
    }

    /// The first element at which a promise is broken: the truth and both sides' values are given.
    pub(crate) fn excess(
        &self,
        output: usize,
        truth: &[f64],
        left: &[f64],
        right: &[f64],
    ) -> Option<Excess> {
        let norm = truth.iter().filter(|v| v.is_finite()).fold(0.0, |m: f64, v| m.max(v.abs()));
        (0..left.len().min(right.len()).min(truth.len())).find_map(|at| {
            let (t, l, r) = (truth[at], left[at], right[at]);
            let message = match self.kind_changes(l, r) {
                true => self.kind(output, at, l, r),
                false => {
                    self.growth(output, at, ElementValues { truth: t, left: l, right: r }, norm)
                }
            };
            message.map(|message| Excess { at, message })
        })
    }

    fn kind_changes(&self, l: f64, r: f64) -> bool {
        match self.class {
            // Where the left side has no number an approximation promises nothing.
            ErrorClass::Approx { .. } => l.is_finite() && !r.is_finite(),
            ErrorClass::Exact | ErrorClass::Reorder => word(l) != word(r),
        }
    }

    fn kind(&self, output: usize, at: usize, l: f64, r: f64) -> Option<String> {
        let own = self.own(output, at)?;
        if self.undecided(output) {
            return None;
        }
        let alike = (own.wild || own.loose) && !l.is_finite() && !r.is_finite();
        if alike {
            return None;
        }
        let other = self.analysed(true).and_then(|o| o.get(output)?.get(at).copied());
        if own.pure && other.is_none_or(|o| o.pure) && self.products_overflow() {
            return None;
        }
        let (lost, source) = if l.is_finite() { (other?, "right") } else { (own, "left") };
        let cause = match lost {
            BoundedNumber { overflowed: true, .. } => format!("overflow inside the {source} side"),
            BoundedNumber { vanished: true, .. } => format!("underflow inside the {source} side"),
            _ if l.is_finite() == r.is_finite() => "infinities or NaN change".to_string(),
            _ => format!("an infinity or NaN arises in the {source} side alone"),
        };
        let text = |v: f64| if v.is_finite() { format!("{v:?}") } else { word(v).to_string() };
        Some(format!("{cause}: {} became {} in {}", text(l), text(r), self.dtype))
    }

    /// Notes the errors of an element, relative to the largest.
    fn note(&self, left: f64, right: f64) {
        let unit = self.dtype.unit_roundoff();
        let ratio = |(l, r): (f64, f64)| r / (l + unit);
        let more = self.worst.get().is_none_or(|old| ratio((left, right)) > ratio(old));
        if more && left.is_finite() && right.is_finite() {
            self.worst.set(Some((left, right)));
        }
    }

    /// The worst damage noted: of the left and of the right side, relative to the largest element.
    pub(crate) fn worst(&self) -> Option<(f64, f64)> {
        self.worst.get()
    }

    fn growth(&self, output: usize, at: usize, values: ElementValues, norm: f64) -> Option<String> {
        let ElementValues { truth: t, left: l, right: r } = values;
        if !t.is_finite() || !l.is_finite() || !r.is_finite() || self.dtype == DType::F64 {
            return None;
        }
        let unit = self.dtype.unit_roundoff();
        let allowed = match self.class {
            ErrorClass::Exact | ErrorClass::Reorder => 0.0,
            ErrorClass::Approx { abs, rel } => abs + rel * t.abs(),
        };
        let (_, normal, _) = limits(self.dtype);
        let slack = UNITS * (unit * norm + normal) + allowed;
        let (left, right) = ((l - t).abs(), (r - t).abs());
        // Beside the smallest normal numbers relative errors say nothing.
        let note = |left: f64| {
            if unit * norm > normal {
                self.note(left / norm, (right - allowed).max(0.0) / norm);
            }
        };
        if right <= FACTOR * left + slack {
            note(left);
            return None;
        }
        let own = self.own(output, at)?;
        let error = left.max(own.error(unit));
        if own.open {
            return None;
        }
        if right <= FACTOR * error + slack {
            // What may vanish errs by all of it, whatever the order.
            if error < 0.5 * t.abs() {
                note(left);
            }
            return None;
        }
        let other = self.analysed(true).and_then(|o| o.get(output)?.get(at).copied());
        let cause = match other {
            Some(BoundedNumber { overflowed: true, .. }) => "overflow inside the right side",
            Some(BoundedNumber { vanished: true, .. }) => "underflow inside the right side",
            _ => "cancellation or lost digits",
        };
        let times = right / error.max(unit * norm).max(normal);
        Some(format!(
            "{cause}: in {} the error grows by {times:.0} (the left side errs by {:.1e}, the \
             right by {:.1e}, relative to the largest element)",
            self.dtype,
            error / norm,
            right / norm,
        ))
    }
}
