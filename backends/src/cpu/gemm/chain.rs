//! The pointwise steps that may follow a product while its sums are in registers: a bias, a residual, a bound.
//!
//! What they compute has the bits that the register code of the same program computes.

use crate::cpu::launch::Epilogue;
use crate::cpu::pointwise::{Binary, Dst, ElementSource, Instr, Op, Ref, RegisterCode};
use crate::cpu::simd::simd;
use crate::cpu::vector::planes::Bounds;
use mlc_dsl::ir::DType;

/// Most steps of a chain.
const MOST: usize = 4;

/// What a step combines a sum with.
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
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// The sum of both.
    Add(Operand<'a>),
    /// The product of both.
    Mul(Operand<'a>),
    /// The larger one; NaN stays. The number is no negative zero.
    Max(f32),
    /// The smaller one; NaN stays. The number is no negative zero.
    Min(f32),
}

/// Steps in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain<'a> {
    steps: [Step<'a>; MOST],
    len: usize,
}

/// No steps.
pub const NONE: Chain<'static> = Chain { steps: [Step::Max(f32::NEG_INFINITY); MOST], len: 0 };

impl<'a> Chain<'a> {
    /// The chain that an epilogue is, for a result with rows of `n` elements that are computed `m` at a time. `inputs` are the
    /// epilogue's, from number 1 on.
    pub fn of(
        epilogue: &'a Epilogue,
        inputs: &[&'a [u8]],
        m: usize,
        n: usize,
    ) -> Option<Chain<'a>> {
        let (code, sources) = epilogue.fused.parts();
        let [(None, DType::F32)] = code.outputs.as_slice() else { return None };
        if code.instrs.len() > MOST || code.inputs.iter().any(|d| *d != DType::F32) {
            return None;
        }
        let mut chain = NONE;
        let mut last = Ref::In(0);
        for (i, instr) in code.instrs.iter().enumerate() {
            let other = other(instr, last)?;
            let operand = match other {
                Ref::Imm(k) => Operand::Number(number(code, k)),
                Ref::In(k) if k > 0 => {
                    let data: &[f32] = bytemuck::cast_slice(inputs[k as usize]);
                    operand(&sources[k as usize], data, m, n)?
                }
                Ref::In(_) | Ref::Float(_) | Ref::Reg(_) => return None,
            };
            chain.steps[i] = match (instr.op, operand) {
                (Op::Binary(Binary::Add), x) => Step::Add(x),
                (Op::Binary(Binary::Mul), x) => Step::Mul(x),
                (Op::Binary(Binary::Max), Operand::Number(x)) if bound(x) => Step::Max(x),
                (Op::Binary(Binary::Min), Operand::Number(x)) if bound(x) => Step::Min(x),
                _ => return None,
            };
            chain.len += 1;
            last = match instr.dst {
                Dst::Reg(r) => Ref::Reg(r),
                // Only the last step writes the result.
                Dst::Out(_) if i + 1 == code.instrs.len() => Ref::In(0),
                Dst::Out(_) => return None,
            };
        }
        Some(chain)
    }

    /// The steps.
    #[inline(always)]
    pub fn steps(&self) -> &[Step<'a>] {
        &self.steps[..self.len]
    }

    /// The same for results whose row 0 is row `row`, up to where operands of rows end.
    pub fn beginning_at(&self, row: usize) -> Chain<'a> {
        let mut chain = *self;
        for step in &mut chain.steps {
            if let Step::Add(Operand::Row(d)) | Step::Mul(Operand::Row(d)) = step {
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
                Step::Add(_) | Step::Mul(_) => return None,
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
            let (Step::Add(operand) | Step::Mul(operand)) = step else { continue };
            let fits = match operand {
                Operand::Row(d) => rows <= d.len(),
                Operand::Column(d) => columns <= d.len(),
                Operand::Dense(d) => end <= d.len(),
                Operand::Number(_) => true,
            };
            assert!(fits, "an operand covers the tiles");
        }
    }

    /// Applies the steps to a part of the result that begins at element `at`, with rows of `n` elements.
    pub fn apply(&self, at: usize, part: &mut [f32], n: usize) {
        let mut done = 0;
        while done < part.len() {
            let (row, column) = ((at + done) / n, (at + done) % n);
            let len = (n - column).min(part.len() - done);
            span(self, row, column, at + done, &mut part[done..done + len]);
            done += len;
        }
    }
}

/// The argument of a step that is not the running value.
fn other(instr: &Instr, last: Ref) -> Option<Ref> {
    if instr.dtype != DType::F32 || !matches!(instr.op, Op::Binary(_)) {
        return None;
    }
    match instr.args {
        [a, b, _] if a == last && b != last => Some(b),
        [a, b, _] if b == last && a != last => Some(a),
        _ => None,
    }
}

fn number(code: &RegisterCode, at: u16) -> f32 {
    code.imms[at as usize].float as f32
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

/// Elements that are taken through all steps at once.
const LANES: usize = 32;

simd! {
    /// The steps on a part of one row.
    fn span(chain: &Chain<'_>, row: usize, column: usize, at: usize, part: &mut [f32]) {
        let n = part.len();
        let (whole, rest) = part.as_chunks_mut::<LANES>();
        for (i, x) in whole.iter_mut().enumerate() {
            *x = lanes(chain, row, column + i * LANES, at + i * LANES, *x, LANES);
        }
        let done = n - rest.len();
        if !rest.is_empty() {
            let mut x = [0f32; LANES];
            x[..rest.len()].copy_from_slice(rest);
            let x = lanes(chain, row, column + done, at + done, x, rest.len());
            rest.copy_from_slice(&x[..rest.len()]);
        }
    }
}

#[inline(always)]
fn lanes(
    chain: &Chain<'_>,
    row: usize,
    column: usize,
    at: usize,
    mut x: [f32; LANES],
    len: usize,
) -> [f32; LANES] {
    let read = |d: &[f32], at: usize| -> [f32; LANES] {
        match <&[f32; LANES]>::try_from(&d[at..at + len]) {
            Ok(whole) => *whole,
            Err(_) => {
                let mut x = [0f32; LANES];
                x[..len].copy_from_slice(&d[at..at + len]);
                x
            }
        }
    };
    for step in chain.steps() {
        let operand = |o: &Operand<'_>| match o {
            Operand::Row(d) => [d[row % d.len()]; LANES],
            Operand::Column(d) => read(d, column),
            Operand::Dense(d) => read(d, at),
            Operand::Number(v) => [*v; LANES],
        };
        match step {
            Step::Add(o) => {
                let y = operand(o);
                x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            }
            Step::Mul(o) => {
                let y = operand(o);
                x.iter_mut().zip(y).for_each(|(x, y)| *x *= y);
            }
            Step::Max(v) => x.iter_mut().for_each(|x| *x = if *v > *x { *v } else { *x } + 0.0),
            Step::Min(v) => x.iter_mut().for_each(|x| *x = if *v < *x { *v } else { *x }),
        }
    }
    x
}
