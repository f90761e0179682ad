//! Compiles the register code of an epilogue to the steps of a tile epilogue.
//!
//! The steps are bitwise equal to the code. Code that they cannot express is left to the interpreter of register code.

use crate::pointwise::{Binary, Dst, ElementSource, Fused, Instr, Op, Ref, RegisterCode, Unary};
use crate::runtime::kernel::Epilogue;
use mlc_dsl::ir::DType;
use mlc_vector::epilogue::{EpilogueStep, MOST, Operand, SLOTS, Slot, TileEpilogue};
use mlc_vector::functions::Function;
use smallvec::{SmallVec, smallvec};

/// The tile epilogue of an epilogue, for a result with rows of `n` elements that are computed `m` at a time. `inputs` are the epilogue's,
/// from number 1 on.
pub fn tile_epilogue<'a>(
    epilogue: &Epilogue,
    inputs: &[&'a [u8]],
    m: usize,
    n: usize,
) -> Option<TileEpilogue<'a>> {
    tile_epilogue_of_program(&epilogue.fused, 0, inputs, m, n)
}

/// The tile epilogue of a program that transforms input `held`, with rows of `n` elements that are computed `m` at a time.
pub fn tile_epilogue_of_program<'a>(
    fused: &Fused,
    held: u16,
    inputs: &[&'a [u8]],
    m: usize,
    n: usize,
) -> Option<TileEpilogue<'a>> {
    let (code, sources) = fused.parts();
    let [(None, DType::F32)] = code.outputs.as_slice() else { return None };
    if code.inputs.iter().any(|d| *d != DType::F32) {
        return None;
    }
    let input = |k: u16| {
        let data: &[f32] = bytemuck::cast_slice(inputs[k as usize]);
        operand(&sources[k as usize], data, m, n)
    };
    let instrs = value_numbering(code, held)?;
    let mut compiler =
        Compiler { instrs: &instrs, steps: SmallVec::new(), running: 0, slots: [None; SLOTS] };
    for at in 0..instrs.len() {
        compiler.instr(at, &input)?;
    }
    TileEpilogue::new(&compiler.steps)
}

/// An argument of an instruction: the sums are value 0, the result of instruction `i` is value `i + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arg {
    Value(usize),
    Number(f32),
    Input(u16),
}

/// An operation and the value numbers of its arguments.
type NumberedOp = (Op, [Arg; 2]);

/// Instructions in SSA form, by value numbers; `None` if any is not of f32.
fn value_numbering(code: &RegisterCode, held: u16) -> Option<SmallVec<[NumberedOp; 32]>> {
    let mut holds: SmallVec<[usize; 32]> = smallvec![0; code.regs];
    let last = code.instrs.len().checked_sub(1)?;
    let mut value_numbering = SmallVec::new();
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
        value_numbering.push((op, [arg(a)?, arg(b)?]));
        match dst {
            Dst::Reg(r) => holds[r as usize] = i + 1,
            // Only the last step writes the result.
            Dst::Out(_) if i == last => {}
            Dst::Out(_) => return None,
        }
    }
    Some(value_numbering)
}

/// Compiles instructions to steps.
struct Compiler<'a, 'i> {
    instrs: &'i [NumberedOp],
    steps: SmallVec<[EpilogueStep<'a>; MOST]>,
    /// The running value, and the saved ones.
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
                    Unary::Exp => EpilogueStep::Map(Function::Exp),
                    Unary::Sigmoid => EpilogueStep::Map(Function::Sigmoid),
                    Unary::Tanh => EpilogueStep::Map(Function::Tanh),
                    Unary::Erf => EpilogueStep::Map(Function::Erf),
                    Unary::Neg => EpilogueStep::Mul(Operand::Number(-1.0)),
                    _ => return None,
                })?;
            }
            Op::Binary(Binary::Pow) => {
                let Arg::Number(power @ (2.0 | 3.0)) = b else { return None };
                self.run_on(a, at)?;
                let kept = Operand::Saved(self.keep(at)?);
                for _ in 1..power as usize {
                    self.push(EpilogueStep::Mul(kept))?;
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
                    Arg::Value(v) if v == self.running => Operand::Saved(self.keep(at)?),
                    Arg::Value(v) => Operand::Saved(self.slot(v)?),
                };
                self.push(match (f, other) {
                    (Binary::Add, x) => EpilogueStep::Add(x),
                    (Binary::Sub, Operand::Number(x)) => EpilogueStep::Add(Operand::Number(-x)),
                    (Binary::Sub, x) => EpilogueStep::Sub(x),
                    (Binary::Mul, x) => EpilogueStep::Mul(x),
                    (Binary::Div, x) => EpilogueStep::Div(x),
                    (Binary::Max, Operand::Number(x)) if bound(x) => EpilogueStep::Max(x),
                    (Binary::Min, Operand::Number(x)) if bound(x) => EpilogueStep::Min(x),
                    _ => return None,
                })?;
            }
            Op::Compare(_) | Op::Select | Op::Cast(_) => return None,
        }
        self.running = at + 1;
        Some(())
    }

    fn push(&mut self, step: EpilogueStep<'a>) -> Option<()> {
        (self.steps.len() < MOST).then(|| self.steps.push(step))
    }

    /// Makes an argument of instruction `at` the running value, saved if it is used later.
    fn run_on(&mut self, arg: Arg, at: usize) -> Option<()> {
        let Arg::Value(value) = arg else { return None };
        if value != self.running {
            if self.is_used(self.running, at) {
                self.keep(at)?;
            }
            let slot = self.slot(value)?;
            self.push(EpilogueStep::Restore(slot))?;
            self.running = value;
        }
        if self.is_used(value, at + 1) {
            self.keep(at)?;
        }
        Some(())
    }

    /// Saves the running value, from instruction `at` on.
    fn keep(&mut self, at: usize) -> Option<Slot> {
        if let Some(slot) = self.slot(self.running) {
            return Some(slot);
        }
        let free = |s: &Slot| self.slots[s.index()].is_none_or(|v| !self.is_used(v, at));
        let slot = Slot::ALL.into_iter().find(free)?;
        self.slots[slot.index()] = Some(self.running);
        self.push(EpilogueStep::Save(slot))?;
        Some(slot)
    }

    fn slot(&self, value: usize) -> Option<Slot> {
        Slot::ALL.into_iter().find(|s| self.slots[s.index()] == Some(value))
    }

    /// Whether an instruction from `from` on uses the value.
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

/// An input as an operand over rows of `n` elements.
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
