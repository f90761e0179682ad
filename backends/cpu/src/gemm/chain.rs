//! The pointwise steps that may follow a product: a bias, a residual, a bound, a gate.
//!
//! Sums, products, bounds and ramps are applied while the sums of a tile are in registers, what follows them, from the first function or kept
//! value on, before the tile is written. What steps compute has the bits that the register code of the same program computes.

use super::kernel::{Part, Target, at_level};
use crate::launch::Epilogue;
use crate::pointwise::{Binary, Dst, ElementSource, Fused, Instr, Op, Ref, RegisterCode, Unary};
use crate::simd::{VectorLevel, level};
use crate::threads::SharedSlice;
use crate::vector;
use crate::vector::functions::Function;
use crate::vector::planes::Bounds;
use mlc_dsl::ir::DType;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Most steps of a chain.
const MOST: usize = 16;

/// Values that may be kept beside the running one.
const SLOTS: usize = 2;

/// Where a value is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    const ALL: [Slot; SLOTS] = [Slot::A, Slot::B];

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
    pub factor: f32,
    pub shift: f32,
    pub low: f32,
    pub high: f32,
}

/// What becomes of a value before a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    Times(f32),
    Over(f32),
}

/// `(f(inner x) + shift) · (outer · x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    pub function: Function,
    pub inner: Scale,
    pub shift: f32,
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
    /// The chain that an epilogue is, for a result with rows of `n` elements that are computed `m` at a time. `inputs` are the
    /// epilogue's, from number 1 on.
    pub fn of(epilogue: &Epilogue, inputs: &[&'a [u8]], m: usize, n: usize) -> Option<Chain<'a>> {
        Chain::of_program(&epilogue.fused, 0, inputs, m, n)
    }

    /// The chain that a program is in which input `held` becomes the result, with rows of `n` elements that are computed `m` at a time.
    pub fn of_program(
        fused: &Fused,
        held: u16,
        inputs: &[&'a [u8]],
        m: usize,
        n: usize,
    ) -> Option<Chain<'a>> {
        let (code, sources) = fused.parts();
        let [(None, DType::F32)] = code.outputs.as_slice() else { return None };
        if code.inputs.iter().any(|d| *d != DType::F32) {
            return None;
        }
        let input = |k: u16| {
            let data: &[f32] = bytemuck::cast_slice(inputs[k as usize]);
            operand(&sources[k as usize], data, m, n)
        };
        let instrs = numbered(code, held)?;
        let mut chain = Compiler { instrs: &instrs, chain: NONE, running: 0, slots: [None; SLOTS] };
        for at in 0..instrs.len() {
            chain.instr(at, &input)?;
        }
        let mut chain = chain.chain.with_gates();
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

/// An argument of an instruction: the sums are value 0, the result of instruction `i` is value `i + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arg {
    Value(usize),
    Number(f32),
    Input(u16),
}

/// An operation and the numbers of what it computes with.
type Numbered = (Op, [Arg; 2]);

/// The instructions of code whose registers are written more than once, by numbers of values; `None` if it computes with anything but f32.
fn numbered(code: &RegisterCode, held: u16) -> Option<SmallVec<[Numbered; 32]>> {
    let mut holds: SmallVec<[usize; 32]> = smallvec![0; code.regs];
    let last = code.instrs.len().checked_sub(1)?;
    let mut numbered = SmallVec::new();
    for (i, instr) in code.instrs.iter().enumerate() {
        let Instr { op, dtype, args: [a, b, _], dst } = *instr;
        let arg = |r: Ref| match r {
            Ref::Reg(r) => Some(Arg::Value(holds[r as usize])),
            Ref::In(k) if k == held => Some(Arg::Value(0)),
            Ref::In(k) => Some(Arg::Input(k)),
            Ref::Imm(k) => Some(Arg::Number(code.imms[k as usize].float as f32)),
            Ref::Float(_) => None,
        };
        if dtype != DType::F32 || !matches!(op, Op::Unary(_) | Op::Binary(_)) {
            return None;
        }
        numbered.push((op, [arg(a)?, arg(b)?]));
        match dst {
            Dst::Reg(r) => holds[r as usize] = i + 1,
            // Only the last step writes the result.
            Dst::Out(_) if i == last => {}
            Dst::Out(_) => return None,
        }
    }
    Some(numbered)
}

/// Writes the steps of instructions.
struct Compiler<'a, 'i> {
    instrs: &'i [Numbered],
    chain: Chain<'a>,
    /// The value that is the running one, and those that are kept.
    running: usize,
    slots: [Option<usize>; SLOTS],
}

impl<'a> Compiler<'a, '_> {
    /// The steps of one instruction; `None` if there are none.
    fn instr(&mut self, at: usize, input: &dyn Fn(u16) -> Option<Operand<'a>>) -> Option<()> {
        let (op, [a, b]) = self.instrs[at];
        match op {
            Op::Unary(f) => {
                self.run_on(a, at)?;
                self.push(match f {
                    Unary::Exp => Step::Map(Function::Exp),
                    Unary::Sigmoid => Step::Map(Function::Sigmoid),
                    Unary::Tanh => Step::Map(Function::Tanh),
                    Unary::Erf => Step::Map(Function::Erf),
                    Unary::Neg => Step::Mul(Operand::Number(-1.0)),
                    _ => return None,
                })?;
            }
            Op::Binary(Binary::Pow) => {
                let Arg::Number(power @ (2.0 | 3.0)) = b else { return None };
                self.run_on(a, at)?;
                let kept = Operand::Kept(self.keep(at)?);
                for _ in 1..power as usize {
                    self.push(Step::Mul(kept))?;
                }
            }
            Op::Binary(f) => {
                let swaps = !matches!(f, Binary::Sub | Binary::Div);
                // What is the running value already is left where it is.
                let (a, b) = match b {
                    Arg::Value(v) if swaps && (v == self.running || !is_value(a)) => (b, a),
                    _ => (a, b),
                };
                self.run_on(a, at)?;
                let other = match b {
                    Arg::Number(x) => Operand::Number(x),
                    Arg::Input(k) => input(k)?,
                    Arg::Value(v) if v == self.running => Operand::Kept(self.keep(at)?),
                    Arg::Value(v) => Operand::Kept(self.slot(v)?),
                };
                self.push(match (f, other) {
                    (Binary::Add, x) => Step::Add(x),
                    (Binary::Sub, Operand::Number(x)) => Step::Add(Operand::Number(-x)),
                    (Binary::Sub, x) => Step::Sub(x),
                    (Binary::Mul, x) => Step::Mul(x),
                    (Binary::Div, x) => Step::Div(x),
                    (Binary::Max, Operand::Number(x)) if bound(x) => Step::Max(x),
                    (Binary::Min, Operand::Number(x)) if bound(x) => Step::Min(x),
                    _ => return None,
                })?;
            }
            Op::Compare(_) | Op::Select | Op::Cast(_) => return None,
        }
        self.running = at + 1;
        Some(())
    }

    fn push(&mut self, step: Step<'a>) -> Option<()> {
        *self.chain.steps.get_mut(self.chain.len)? = step;
        self.chain.len += 1;
        Some(())
    }

    /// Makes an argument of instruction `at` the running value; it is kept if it is used later.
    fn run_on(&mut self, arg: Arg, at: usize) -> Option<()> {
        let Arg::Value(value) = arg else { return None };
        if value != self.running {
            if self.is_used(self.running, at) {
                self.keep(at)?;
            }
            let slot = self.slot(value)?;
            self.push(Step::Take(slot))?;
            self.running = value;
        }
        if self.is_used(value, at + 1) {
            self.keep(at)?;
        }
        Some(())
    }

    /// Where the running value is kept, from instruction `at` on.
    fn keep(&mut self, at: usize) -> Option<Slot> {
        if let Some(slot) = self.slot(self.running) {
            return Some(slot);
        }
        let free = |s: &Slot| self.slots[s.index()].is_none_or(|v| !self.is_used(v, at));
        let slot = Slot::ALL.into_iter().find(free)?;
        self.slots[slot.index()] = Some(self.running);
        self.push(Step::Keep(slot))?;
        Some(slot)
    }

    fn slot(&self, value: usize) -> Option<Slot> {
        Slot::ALL.into_iter().find(|s| self.slots[s.index()] == Some(value))
    }

    /// True if an instruction from `from` on has the value as an argument.
    fn is_used(&self, value: usize, from: usize) -> bool {
        self.instrs[from..].iter().any(|(_, args)| args.contains(&Arg::Value(value)))
    }
}

fn is_value(arg: Arg) -> bool {
    matches!(arg, Arg::Value(_))
}

/// A bound that vectors treat as the register code does.
fn bound(x: f32) -> bool {
    !x.is_nan() && x.to_bits() != (-0.0f32).to_bits()
}

/// How an input lies over rows of `n` elements.
fn operand<'a>(source: &ElementSource, data: &'a [f32], m: usize, n: usize) -> Option<Operand<'a>> {
    match source {
        ElementSource::Dense(at) => Some(Operand::Dense(data.get(*at..)?)),
        ElementSource::Splat(at) => Some(Operand::Number(*data.get(*at)?)),
        ElementSource::Strided(s) => {
            let (offset, shape, strides) = s.walk();
            let outer = |strides: &[isize]| strides.iter().all(|&s| s == 0);
            match (shape, strides) {
                ([.., wide], [rest @ .., 1]) if *wide == n && outer(rest) => {
                    Some(Operand::Column(data.get(offset..offset + n)?))
                }
                ([.., rows, wide], [rest @ .., 1, 0])
                    if *wide == n && rows % m.max(1) == 0 && outer(rest) =>
                {
                    Some(Operand::Row(data.get(offset..offset + rows)?))
                }
                _ => None,
            }
        }
    }
}
