//! The epilogue of a register tile: pointwise steps such as bias, residual, clamp and gate.
//!
//! Steps up to the first transcendental function or saved value run on the sums in registers, the others on the tile before it is stored. Results
//! are bitwise those of the pointwise register code of the same program.

use crate::SharedSlice;
use crate::bodies::functions::Function;
use crate::bodies::planes::Bounds;
use crate::simd::{VectorLevel, level};
use crate::tile::{TileOutput, VectorSpan, at_level};
use std::ops::Range;

/// Most steps of an epilogue.
pub const MOST: usize = 16;

/// Values that may be saved beside the running one.
pub const SLOTS: usize = 2;

/// Where a value is saved.
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
    /// A saved value.
    Saved(Slot),
}

/// `clamp(factor · x + shift, low, high)`: a hard sigmoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClampedLinear {
    /// The slope.
    pub factor: f32,
    /// The intercept.
    pub shift: f32,
    /// The lower bound.
    pub low: f32,
    /// The upper bound.
    pub high: f32,
}

/// The scaling of a function's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Times the number.
    Times(f32),
    /// Divided by the number.
    Over(f32),
}

/// `(f(inner x) + shift) · (outer · x)`, such as GELU and SiLU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledGate {
    /// The function.
    pub function: Function,
    /// The scaling of its argument.
    pub inner: Scale,
    /// Added to its value.
    pub shift: f32,
    /// The factor of `x`.
    pub outer: f32,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EpilogueStep<'a> {
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
    /// `x · f(x)`.
    SelfGate(Function),
    /// A gate with scales and shift.
    ScaledGate(ScaledGate),
    /// `x · clamp(factor · x + shift, low, high)`: a hard swish.
    ClampedGate(ClampedLinear),
    /// Saves the running value.
    Save(Slot),
    /// Restores a saved value as the running one.
    Restore(Slot),
}

impl<'a> EpilogueStep<'a> {
    /// The second operand.
    fn operand(&self) -> Option<&Operand<'a>> {
        match self {
            EpilogueStep::Add(o)
            | EpilogueStep::Sub(o)
            | EpilogueStep::Mul(o)
            | EpilogueStep::Div(o) => Some(o),
            EpilogueStep::Max(_)
            | EpilogueStep::Min(_)
            | EpilogueStep::Map(_)
            | EpilogueStep::SelfGate(_)
            | EpilogueStep::ScaledGate(_)
            | EpilogueStep::ClampedGate(_)
            | EpilogueStep::Save(_)
            | EpilogueStep::Restore(_) => None,
        }
    }

    /// Whether it reads a saved value.
    fn reads(&self, slot: Slot) -> bool {
        *self == EpilogueStep::Restore(slot) || self.operand() == Some(&Operand::Saved(slot))
    }

    /// Whether it can be applied to sums in registers.
    fn runs_in_registers(&self) -> bool {
        match self {
            EpilogueStep::Add(o) | EpilogueStep::Sub(o) | EpilogueStep::Mul(o) => {
                !matches!(o, Operand::Saved(_))
            }
            EpilogueStep::Max(_) | EpilogueStep::Min(_) | EpilogueStep::ClampedGate(_) => true,
            EpilogueStep::Div(_)
            | EpilogueStep::Map(_)
            | EpilogueStep::SelfGate(_)
            | EpilogueStep::ScaledGate(_)
            | EpilogueStep::Save(_)
            | EpilogueStep::Restore(_) => false,
        }
    }
}

/// The gate that steps begin with, and its number of steps: a value is saved, and a function of it is multiplied with it.
fn gate<'a>(steps: &[EpilogueStep<'a>]) -> Option<(EpilogueStep<'a>, usize)> {
    let [EpilogueStep::Save(slot), rest @ ..] = steps else { return None };
    // A multiple of it may be what it is multiplied with.
    let (outer, with, rest) = match rest {
        [
            EpilogueStep::Mul(Operand::Number(outer)),
            EpilogueStep::Save(with),
            EpilogueStep::Restore(of),
            rest @ ..,
        ] if of == slot && with != slot => (*outer, with, rest),
        _ => (1.0, slot, rest),
    };
    let (gate, rest) = match (outer == 1.0, clamped_linear(rest)) {
        (true, Some((clamp, rest))) => (EpilogueStep::ClampedGate(clamp), rest),
        _ => scaled_gate(rest, outer)?,
    };
    let [EpilogueStep::Mul(Operand::Saved(kept)), rest @ ..] = rest else { return None };
    let is_read = |slot: &Slot| {
        rest.iter().take_while(|s| **s != EpilogueStep::Save(*slot)).any(|s| s.reads(*slot))
    };
    (kept == with && ![slot, with].into_iter().any(is_read))
        .then_some((gate, steps.len() - rest.len()))
}

/// The scaled gate that steps begin with, and the rest. A factor of one and a shift of minus zero change nothing.
fn scaled_gate<'s, 'a>(
    steps: &'s [EpilogueStep<'a>],
    outer: f32,
) -> Option<(EpilogueStep<'a>, &'s [EpilogueStep<'a>])> {
    let (inner, steps) = match steps {
        [EpilogueStep::Mul(Operand::Number(v)), rest @ ..] => (Scale::Times(*v), rest),
        [EpilogueStep::Div(Operand::Number(v)), rest @ ..] => (Scale::Over(*v), rest),
        _ => (Scale::Times(1.0), steps),
    };
    let [EpilogueStep::Map(function), steps @ ..] = steps else { return None };
    let function = *function;
    let (shift, steps) = match steps {
        [EpilogueStep::Add(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (-0.0, steps),
    };
    let is_plain =
        inner == Scale::Times(1.0) && outer == 1.0 && shift.to_bits() == (-0.0f32).to_bits();
    let gate = match is_plain {
        true => EpilogueStep::SelfGate(function),
        false => EpilogueStep::ScaledGate(ScaledGate { function, inner, shift, outer }),
    };
    Some((gate, steps))
}

/// The clamped linear function that steps begin with, and the rest. A factor of one and a shift of minus zero change nothing.
fn clamped_linear<'s, 'a>(
    steps: &'s [EpilogueStep<'a>],
) -> Option<(ClampedLinear, &'s [EpilogueStep<'a>])> {
    let (factor, steps) = match steps {
        [EpilogueStep::Mul(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (1.0, steps),
    };
    let (shift, steps) = match steps {
        [EpilogueStep::Add(Operand::Number(v)), rest @ ..] => (*v, rest),
        _ => (-0.0, steps),
    };
    let [EpilogueStep::Max(low), EpilogueStep::Min(high), rest @ ..] = steps else { return None };
    Some((ClampedLinear { factor, shift, low: *low, high: *high }, rest))
}

/// An epilogue: steps in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileEpilogue<'a> {
    steps: [EpilogueStep<'a>; MOST],
    len: usize,
    /// The first of them that are applied in registers.
    registers: usize,
}

/// The empty epilogue.
pub const NO_EPILOGUE: TileEpilogue<'static> =
    TileEpilogue { steps: [EpilogueStep::Max(f32::NEG_INFINITY); MOST], len: 0, registers: 0 };

impl<'a> TileEpilogue<'a> {
    /// An epilogue of these steps, with gates recognised; `None` if there are too many.
    pub fn new(steps: &[EpilogueStep<'a>]) -> Option<TileEpilogue<'a>> {
        let mut epilogue = NO_EPILOGUE;
        epilogue.steps.get_mut(..steps.len())?.copy_from_slice(steps);
        epilogue.len = steps.len();
        let mut epilogue = epilogue.with_gates();
        epilogue.registers = epilogue.steps().iter().take_while(|s| s.runs_in_registers()).count();
        Some(epilogue)
    }

    /// The same with gates recognised.
    fn with_gates(&self) -> TileEpilogue<'a> {
        let (mut gated, mut rest) = (NO_EPILOGUE, self.steps());
        while let [step, ..] = rest {
            let (step, len) = gate(rest).unwrap_or((*step, 1));
            gated.steps[gated.len] = step;
            gated.len += 1;
            rest = &rest[len..];
        }
        gated
    }

    /// The steps.
    pub fn steps(&self) -> &[EpilogueStep<'a>] {
        &self.steps[..self.len]
    }

    /// The leading steps, applied to sums in registers.
    #[inline(always)]
    pub fn in_registers(&self) -> &[EpilogueStep<'a>] {
        &self.steps[..self.registers]
    }

    /// The rest, applied to tiles in memory.
    #[inline(always)]
    pub fn in_memory(&self) -> &[EpilogueStep<'a>] {
        &self.steps[self.registers..self.len]
    }

    /// A dense operand, to be prefetched during accumulation.
    #[inline]
    pub fn dense(&self) -> Option<&'a [f32]> {
        self.steps().iter().find_map(|step| match step.operand() {
            Some(Operand::Dense(d)) => Some(*d),
            _ => None,
        })
    }

    /// The same for results whose row 0 is row `row`, up to where operands of rows end.
    pub fn from_row(&self, row: usize) -> TileEpilogue<'a> {
        let mut epilogue = *self;
        for step in &mut epilogue.steps[..self.len] {
            if let EpilogueStep::Add(o)
            | EpilogueStep::Sub(o)
            | EpilogueStep::Mul(o)
            | EpilogueStep::Div(o) = step
                && let Operand::Row(d) = o
            {
                *d = &d[row % d.len()..];
            }
        }
        epilogue
    }

    /// The steps on row `row` as a bias and bounds, if they are that.
    pub fn bounds(&self, row: usize) -> Option<Bounds> {
        let mut b = Bounds { shift: -0.0, low: f32::NEG_INFINITY, zero: -0.0, high: f32::INFINITY };
        let mut stage = 0;
        for step in self.steps() {
            let next = match step {
                EpilogueStep::Add(Operand::Number(v)) => {
                    b.shift = *v;
                    1
                }
                EpilogueStep::Add(Operand::Row(d)) => {
                    b.shift = d[row % d.len()];
                    1
                }
                EpilogueStep::Max(v) => {
                    (b.low, b.zero) = (*v, 0.0);
                    2
                }
                EpilogueStep::Min(v) => {
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
                Some(Operand::Number(_) | Operand::Saved(_)) | None => true,
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
            let epilogue = self.from_row(rows.start);
            epilogue.covers(rows.len(), n, to);
            let target = TileOutput {
                out,
                len,
                parts: &[],
                stride: n,
                row: 0,
                add: false,
                epilogue: &epilogue,
            };
            // Both slices hold these elements, and the operands cover them.
            at_level!(map_rows(start, first, to, n, &target));
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
            let epilogue = self.from_row(row);
            epilogue.covers(1, column + len, at + done + len);
            let part = VectorSpan { at: at + done, column, skip: 0, len };
            // The part holds these elements, and the operands cover them.
            at_level!(finish_rows(epilogue.steps(), out, part, 1, 0));
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
            let epilogue = self.from_row(rows.start);
            epilogue.covers(rows.len(), columns.end, end);
            let part = VectorSpan { at, column: columns.start, skip: 0, len: columns.len() };
            // These elements are inside, and the operands cover them.
            at_level!(finish_rows(epilogue.steps(), out.at(0), part, rows.len(), n));
        }
    }

    /// Rows, cut where operands of rows begin again.
    fn rows_between(&self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut first = rows.start;
        std::iter::from_fn(move || {
            let left = |s: &EpilogueStep<'_>| match s.operand() {
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
