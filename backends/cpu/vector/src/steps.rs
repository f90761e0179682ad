//! The pointwise steps that may follow a product: a bias, a residual, a bound, a gate.
//!
//! Sums, products, bounds and ramps are applied while the sums of a tile are in registers, what follows them, from the first function or kept
//! value on, before the tile is written. What steps compute has the bits that the register code of the same program computes.

use crate::SharedSlice;
use crate::bodies::functions::Function;
use crate::bodies::planes::Bounds;
use crate::simd::{VectorLevel, level};
use crate::tile::{Part, Target, at_level};
use std::ops::Range;

/// Most steps of a chain.
pub const MOST: usize = 16;

/// Values that may be kept beside the running one.
pub const SLOTS: usize = 2;

/// Where a value is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// All of them.
    pub const ALL: [Slot; SLOTS] = [Slot::A, Slot::B];

    /// Its number.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// What a step combines the running value with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand<'a> {
    /// An element per row; rows beyond its end begin again.
    Row(&'a [f32]),
    /// An element per column.
    Column(&'a [f32]),
    /// An element per element of the result.
    Dense(&'a [f32]),
    /// A number.
    Number(f32),
    /// A value that was kept.
    Kept(Slot),
}

/// A line that is held between bounds: a product, a sum, the larger one and the smaller one, each with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// What the value is multiplied with.
    pub factor: f32,
    /// What is added then.
    pub shift: f32,
    /// The lower bound.
    pub low: f32,
    /// The upper bound.
    pub high: f32,
}

/// What becomes of a value before a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// A product with it.
    Times(f32),
    /// A quotient by it.
    Over(f32),
}

/// `(f(inner x) + shift) · (outer · x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// The function.
    pub function: Function,
    /// What becomes of `x` before it.
    pub inner: Scale,
    /// What is added to its value.
    pub shift: f32,
    /// What `x` is multiplied with beside it.
    pub outer: f32,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// The sum of both.
    Add(Operand<'a>),
    /// The running value minus the operand.
    Sub(Operand<'a>),
    /// The product of both.
    Mul(Operand<'a>),
    /// The running value over the operand.
    Div(Operand<'a>),
    /// The larger one; NaN stays. The number is no negative zero.
    Max(f32),
    /// The smaller one; NaN stays. The number is no negative zero.
    Min(f32),
    /// A function of the running value.
    Map(Function),
    /// The product of the running value and a function of it.
    Gate(Function),
    /// The product of the running value, or a multiple of it, and what a function yields of another one.
    Curve(Curve),
    /// The product of the running value and what a ramp yields of it.
    Ramp(Ramp),
    /// Keeps the running value.
    Keep(Slot),
    /// A kept value becomes the running one.
    Take(Slot),
}

impl<'a> Step<'a> {
    /// What is combined with the running value.
    fn operand(&self) -> Option<&Operand<'a>> {
        match self {
            Step::Add(o) | Step::Sub(o) | Step::Mul(o) | Step::Div(o) => Some(o),
            Step::Max(_)
            | Step::Min(_)
            | Step::Map(_)
            | Step::Gate(_)
            | Step::Curve(_)
            | Step::Ramp(_)
            | Step::Keep(_)
            | Step::Take(_) => None,
        }
    }

    /// True if it reads what is kept there.
    fn reads(&self, slot: Slot) -> bool {
        *self == Step::Take(slot) || self.operand() == Some(&Operand::Kept(slot))
    }

    /// True for what is done while sums are in registers.
    fn in_registers(&self) -> bool {
        match self {
            Step::Add(o) | Step::Sub(o) | Step::Mul(o) => !matches!(o, Operand::Kept(_)),
            Step::Max(_) | Step::Min(_) | Step::Ramp(_) => true,
            Step::Div(_)
            | Step::Map(_)
            | Step::Gate(_)
            | Step::Curve(_)
            | Step::Keep(_)
            | Step::Take(_) => false,
        }
    }
}

/// The gate that steps begin with, and how many of them it is: a value is kept, and what is computed from it is multiplied with it.
fn gate<'a>(steps: &[Step<'a>]) -> Option<(Step<'a>, usize)> {
    let [Step::Keep(slot), rest @ ..] = steps else { return None };
    // A multiple of it may be what it is multiplied with.
    let (outer, with, rest) = match rest {
        [Step::Mul(Operand::Number(outer)), Step::Keep(with), Step::Take(of), rest @ ..]
            if of == slot && with != slot =>
        {
            (*outer, with, rest)
        }
        _ => (1.0, slot, rest),
    };
    let (gate, rest) = match (outer == 1.0, ramp(rest)) {
        (true, Some((ramp, rest))) => (Step::Ramp(ramp), rest),
        _ => curve(rest, outer)?,
    };
    let [Step::Mul(Operand::Kept(kept)), rest @ ..] = rest else { return None };
    let is_read =
        |slot: &Slot| rest.iter().take_while(|s| **s != Step::Keep(*slot)).any(|s| s.reads(*slot));
    (kept == with && ![slot, with].into_iter().any(is_read))
        .then_some((gate, steps.len() - rest.len()))
}

/// The curve that steps begin with, and the others. A factor of one and a shift of minus zero change nothing.
fn curve<'s, 'a>(steps: &'s [Step<'a>], outer: f32) -> Option<(Step<'a>, &'s [Step<'a>])> {
    let (inner, steps) = match steps {
        [Step::Mul(Operand::Number(v)), rest @ ..] => (Scale::Times(*v), rest),
        [Step::Div(Operand::Number(v)), rest @ ..] => (Scale::Over(*v), rest),
        _ => (Scale::Times(1.0), steps),
    };
    let [Step::Map(function), steps @ ..] = steps else { return None };
    let function = *function;
    let (shift, steps) = match steps {
        [Step::Add(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (-0.0, steps),
    };
    let is_plain =
        inner == Scale::Times(1.0) && outer == 1.0 && shift.to_bits() == (-0.0f32).to_bits();
    let gate = match is_plain {
        true => Step::Gate(function),
        false => Step::Curve(Curve { function, inner, shift, outer }),
    };
    Some((gate, steps))
}

/// The ramp that steps begin with, and the others. A factor of one and a shift of minus zero change nothing.
fn ramp<'s, 'a>(steps: &'s [Step<'a>]) -> Option<(Ramp, &'s [Step<'a>])> {
    let (factor, steps) = match steps {
        [Step::Mul(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (1.0, steps),
    };
    let (shift, steps) = match steps {
        [Step::Add(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (-0.0, steps),
    };
    let [Step::Max(low), Step::Min(high), rest @ ..] = steps else { return None };
    Some((Ramp { factor, shift, low: *low, high: *high }, rest))
}

/// Steps in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain<'a> {
    steps: [Step<'a>; MOST],
    len: usize,
    /// The first of them that are applied in registers.
    registers: usize,
}

/// No steps.
pub const NONE: Chain<'static> =
    Chain { steps: [Step::Max(f32::NEG_INFINITY); MOST], len: 0, registers: 0 };

impl<'a> Chain<'a> {
    /// Steps in their order, some of which are told to be gates; `None` if they are more than a chain has.
    pub fn new(steps: &[Step<'a>]) -> Option<Chain<'a>> {
        let mut chain = NONE;
        chain.steps.get_mut(..steps.len())?.copy_from_slice(steps);
        chain.len = steps.len();
        let mut chain = chain.with_gates();
        chain.registers = chain.steps().iter().take_while(|s| s.in_registers()).count();
        Some(chain)
    }

    /// The same with gates for the steps that they are.
    fn with_gates(&self) -> Chain<'a> {
        let (mut gated, mut rest) = (NONE, self.steps());
        while let [step, ..] = rest {
            let (step, len) = gate(rest).unwrap_or((*step, 1));
            gated.steps[gated.len] = step;
            gated.len += 1;
            rest = &rest[len..];
        }
        gated
    }

    /// The steps.
    pub fn steps(&self) -> &[Step<'a>] {
        &self.steps[..self.len]
    }

    /// The first steps, which are applied while sums are in registers.
    #[inline(always)]
    pub fn in_registers(&self) -> &[Step<'a>] {
        &self.steps[..self.registers]
    }

    /// The others.
    #[inline(always)]
    pub fn in_memory(&self) -> &[Step<'a>] {
        &self.steps[self.registers..self.len]
    }

    /// An operand of which the steps read an element for each of the result: it is fetched while sums are added up.
    #[inline]
    pub fn dense(&self) -> Option<&'a [f32]> {
        self.steps().iter().find_map(|step| match step.operand() {
            Some(Operand::Dense(d)) => Some(*d),
            _ => None,
        })
    }

    /// The same for results whose row 0 is row `row`, up to where operands of rows end.
    pub fn beginning_at(&self, row: usize) -> Chain<'a> {
        let mut chain = *self;
        for step in &mut chain.steps[..self.len] {
            if let Step::Add(o) | Step::Sub(o) | Step::Mul(o) | Step::Div(o) = step
                && let Operand::Row(d) = o
            {
                *d = &d[row % d.len()..];
            }
        }
        chain
    }

    /// The steps on row `row`, if they are a summand and bounds there.
    pub fn bounds(&self, row: usize) -> Option<Bounds> {
        let mut b = Bounds { shift: -0.0, low: f32::NEG_INFINITY, zero: -0.0, high: f32::INFINITY };
        let mut stage = 0;
        for step in self.steps() {
            let next = match step {
                Step::Add(Operand::Number(v)) => {
                    b.shift = *v;
                    1
                }
                Step::Add(Operand::Row(d)) => {
                    b.shift = d[row % d.len()];
                    1
                }
                Step::Max(v) => {
                    (b.low, b.zero) = (*v, 0.0);
                    2
                }
                Step::Min(v) => {
                    b.high = *v;
                    3
                }
                _ => return None,
            };
            if next <= stage {
                return None;
            }
            stage = next;
        }
        Some(b)
    }

    /// Panics unless every operand has elements for so many rows and columns, and elements up to `end` of the result.
    #[inline]
    pub fn covers(&self, rows: usize, columns: usize, end: usize) {
        for step in self.steps() {
            let fits = match step.operand() {
                Some(Operand::Row(d)) => rows <= d.len(),
                Some(Operand::Column(d)) => columns <= d.len(),
                Some(Operand::Dense(d)) => end <= d.len(),
                Some(Operand::Number(_) | Operand::Kept(_)) | None => true,
            };
            assert!(fits, "an operand covers the tiles");
        }
    }

    /// The steps on elements of `from`, as many as `part` has from element `at` of the result on, whose rows have `n` elements.
    pub fn map(&self, from: &[f32], at: usize, part: &mut [f32], n: usize) {
        assert!(from.len() == part.len() && n > 0, "an element for each");
        // Elements are counted from the result's first, as operands are.
        let (start, len) = (from.as_ptr().wrapping_sub(at), at + part.len());
        let out = part.as_mut_ptr().wrapping_sub(at);
        for rows in self.rows_between(at / n..len.div_ceil(n)) {
            let (first, to) = (at.max(rows.start * n), len.min(rows.end * n));
            let chain = self.beginning_at(rows.start);
            chain.covers(rows.len(), n, to);
            let target =
                Target { out, len, parts: &[], stride: n, row: 0, add: false, chain: &chain };
            // Both slices hold these elements, and the operands cover them.
            at_level!(map_lines(start, first, to, n, &target));
        }
    }

    /// Applies the steps to a part of the result that begins at element `at`, with rows of `n` elements.
    pub fn apply(&self, at: usize, part: &mut [f32], n: usize) {
        // Elements are counted from the result's first, as operands are.
        let out = part.as_mut_ptr().wrapping_sub(at);
        let mut done = 0;
        while done < part.len() {
            let (row, column) = ((at + done) / n, (at + done) % n);
            let len = (n - column).min(part.len() - done);
            // Operands of rows begin again after different numbers of rows.
            let chain = self.beginning_at(row);
            chain.covers(1, column + len, at + done + len);
            let part = Part { at: at + done, column, skip: 0, len };
            // The part holds these elements, and the operands cover them.
            at_level!(finish_rows(chain.steps(), out, part, (1, 0)));
            done += len;
        }
    }

    /// Applies the steps to some columns of the rows of a result, which has `n` of them.
    pub fn apply_rows(
        &self,
        out: &SharedSlice<'_, f32>,
        rows: Range<usize>,
        columns: &Range<usize>,
        n: usize,
    ) {
        for rows in self.rows_between(rows) {
            let at = rows.start * n + columns.start;
            let end = (rows.end - 1) * n + columns.end;
            assert!(end <= out.len(), "the rows are inside");
            let chain = self.beginning_at(rows.start);
            chain.covers(rows.len(), columns.end, end);
            let part = Part { at, column: columns.start, skip: 0, len: columns.len() };
            // These elements are inside, and the operands cover them.
            at_level!(finish_rows(chain.steps(), out.at(0), part, (rows.len(), n)));
        }
    }

    /// Rows, cut where operands of rows begin again.
    fn rows_between(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut first = rows.start;
        std::iter::from_fn(move || {
            let left = |s: &Step<'_>| match s.operand() {
                Some(Operand::Row(d)) => d.len() - first % d.len(),
                _ => usize::MAX,
            };
            let most = self.steps().iter().map(left).min().unwrap_or(usize::MAX);
            let part = first..rows.end.min(first.saturating_add(most));
            first = part.end;
            (!part.is_empty()).then_some(part)
        })
    }
}
