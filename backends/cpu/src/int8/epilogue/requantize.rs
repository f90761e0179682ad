//! Compiles an epilogue to requantisation steps on f32 in registers: scales, biases, a second quantised operand, clamps, rounding, and the
//! cast to bytes.
//!
//! The steps are bitwise equal to the epilogue's register code; an epilogue that they cannot express has none.

use crate::pointwise::{Binary, Dst, ElementSource, Instr, Op, Ref, RegisterCode, Unary};
use crate::runtime::kernel::Epilogue;
use mlc_dsl::ir::DType;

/// The multiple of columns that per-column operands are padded to: a tile's width.
pub const WIDE: usize = 64;

/// A step's second operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand<'a> {
    /// An element per column, from this index of [`RequantizeSteps::columns`] on.
    Column(usize),
    /// A number.
    Number(f32),
    /// An element of a dequantised array of the result's shape.
    Dense(DenseOperand<'a>),
}

/// A dequantised array: shifted, then scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenseOperand<'a> {
    /// The elements, row by row.
    pub elements: DenseElements<'a>,
    /// What is added; negative zero adds nothing.
    pub shift: f32,
    /// What it is multiplied with.
    pub scale: f32,
}

/// An array of the result's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DenseElements<'a> {
    Unsigned(&'a [u8]),
    Signed(&'a [u8]),
    Floats(&'a [f32]),
}

/// A step on the running value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequantizeStep<'a> {
    Add(Operand<'a>),
    Mul(Operand<'a>),
    /// The number divided by the operand.
    Div(Operand<'a>),
    /// The larger one; NaN stays. The number is no negative zero.
    Max(f32),
    /// The smaller one; NaN stays. The number is no negative zero.
    Min(f32),
    /// To the nearest integer, ties to even.
    Round,
    /// To a byte and back; only NaN changes.
    Byte(Sign),
}

/// Whether a byte has a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Signed,
    Unsigned,
}

/// The stored type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    Floats,
    Bytes(Sign),
}

/// Requantisation steps in order.
#[derive(Debug)]
pub struct RequantizeSteps<'a> {
    pub steps: Vec<RequantizeStep<'a>>,
    pub written: OutputType,
    /// The i32 bias per column, padded to whole tiles; empty if there is none.
    pub summands: Vec<i32>,
    /// Per-column operands, each padded to whole tiles.
    pub columns: Vec<f32>,
    /// Whether a step reads an array of the result's shape.
    pub has_sides: bool,
}

/// A value of the register code.
#[derive(Clone, Copy)]
enum Value<'a> {
    /// The sums, as integers.
    Sums,
    /// The running number after so many steps.
    Main(usize),
    /// It, cut to a byte.
    Byte(usize, Sign),
    Other(Operand<'a>),
}

/// The steps that are read so far.
struct Reader<'a> {
    code: &'a RegisterCode,
    sources: &'a [ElementSource],
    inputs: &'a [&'a [u8]],
    /// Columns, and elements of the result.
    n: usize,
    len: usize,
    registers: Vec<Option<Value<'a>>>,
    out: RequantizeSteps<'a>,
}

impl<'a> RequantizeSteps<'a> {
    /// The steps that an epilogue is, for a result of `m` rows of `n` elements. `inputs` are the epilogue's, from number 1 on.
    pub fn of(
        epilogue: &'a Epilogue,
        inputs: &'a [&'a [u8]],
        m: usize,
        n: usize,
    ) -> Option<RequantizeSteps<'a>> {
        let (code, sources) = epilogue.fused.parts();
        let out = RequantizeSteps {
            steps: vec![],
            written: OutputType::Floats,
            summands: vec![],
            columns: vec![],
            has_sides: false,
        };
        let registers = vec![None; code.regs];
        let mut r = Reader { code, sources, inputs, n, len: m * n, registers, out };
        let [(kept, dtype)] = code.outputs[..] else { return None };
        let mut last = None;
        for instr in &code.instrs {
            let value = r.value(instr)?;
            match instr.dst {
                Dst::Reg(to) => *r.registers.get_mut(to as usize)? = Some(value),
                Dst::Out(_) => last = Some(value),
            }
        }
        if let Some(kept) = kept {
            last = Some(r.read(kept)?);
        }
        let done = r.out.steps.len();
        r.out.written = match (last?, dtype) {
            (Value::Main(at), DType::F32) if at == done && !code.cuts[0] => OutputType::Floats,
            (Value::Main(at), DType::U8) if at == done && code.cuts[0] => {
                OutputType::Bytes(r.byte(Sign::Unsigned)?)
            }
            (Value::Main(at), DType::I8) if at == done && code.cuts[0] => {
                OutputType::Bytes(r.byte(Sign::Signed)?)
            }
            _ => return None,
        };
        Some(r.out)
    }

    /// The operands of columns with their elements in another order: element `i` is what was number `order(i)`, within whole tiles.
    pub fn reordered(mut self, order: impl Fn(usize) -> usize) -> RequantizeSteps<'a> {
        let old = std::mem::take(&mut self.columns);
        self.columns = (0..old.len()).map(|i| old[order(i)]).collect();
        let old = std::mem::take(&mut self.summands);
        self.summands = (0..old.len()).map(|i| old[order(i)]).collect();
        self
    }

    /// Panics unless every operand has elements up to `end` of the result.
    #[allow(dead_code, reason = "only tiles of VNNI write results")]
    pub fn covers(&self, end: usize) {
        for step in &self.steps {
            let (RequantizeStep::Add(Operand::Dense(s)) | RequantizeStep::Mul(Operand::Dense(s))) =
                step
            else {
                continue;
            };
            let len = match s.elements {
                DenseElements::Unsigned(d) | DenseElements::Signed(d) => d.len(),
                DenseElements::Floats(d) => d.len(),
            };
            assert!(end <= len, "an operand covers the result");
        }
    }
}

impl<'a> Reader<'a> {
    fn value(&mut self, instr: &Instr) -> Option<Value<'a>> {
        if (instr.op, instr.dtype) == (Op::Binary(Binary::Add), DType::I32) {
            return self.added(instr.args[0], instr.args[1]);
        }
        let a = self.read(instr.args[0])?;
        match (instr.op, instr.dtype) {
            (Op::Unary(Unary::Round), DType::F32) => self.push(a, RequantizeStep::Round),
            (Op::Cast(to), DType::F32) => {
                let sign = match to {
                    DType::U8 => Sign::Unsigned,
                    DType::I8 => Sign::Signed,
                    _ => return None,
                };
                let Value::Main(at) = a else { return None };
                self.byte(sign).map(|sign| Value::Byte(at, sign))
            }
            (Op::Cast(DType::F32), DType::I32) => match a {
                Value::Sums if self.out.steps.is_empty() => Some(Value::Main(0)),
                _ => None,
            },
            (Op::Cast(DType::F32), DType::U8 | DType::I8) => match a {
                Value::Byte(at, sign) => self.push(Value::Main(at), RequantizeStep::Byte(sign)),
                _ => None,
            },
            (Op::Binary(f), DType::F32) => {
                let b = self.read(instr.args[1])?;
                self.binary(f, a, b)
            }
            _ => None,
        }
    }

    /// The sums with a summand for each column.
    fn added(&mut self, a: Ref, b: Ref) -> Option<Value<'a>> {
        let i = match (a, b) {
            (Ref::In(0), Ref::In(i)) | (Ref::In(i), Ref::In(0)) if i != 0 => i as usize,
            _ => return None,
        };
        if self.code.inputs[i] != DType::I32 || !self.out.summands.is_empty() {
            return None;
        }
        let data: &[i32] = bytemuck::cast_slice(self.inputs[i]);
        let line = self.line(&self.sources[i])?;
        self.out.summands = data.get(line..line + self.n)?.to_vec();
        self.out.summands.resize(self.n.next_multiple_of(WIDE), 0);
        Some(Value::Sums)
    }

    fn binary(&mut self, f: Binary, a: Value<'a>, b: Value<'a>) -> Option<Value<'a>> {
        use Operand::Number;
        use Value::{Main, Other};
        match (f, a, b) {
            (Binary::Add, Main(_), Other(o)) => self.push(a, RequantizeStep::Add(o)),
            (Binary::Add, Other(o), Main(_)) => self.push(b, RequantizeStep::Add(o)),
            // Adding the opposite is the same.
            (Binary::Sub, Main(_), Other(Number(x))) => {
                self.push(a, RequantizeStep::Add(Number(-x)))
            }
            (Binary::Mul, Main(_), Other(o)) => self.push(a, RequantizeStep::Mul(o)),
            (Binary::Mul, Other(o), Main(_)) => self.push(b, RequantizeStep::Mul(o)),
            (Binary::Div, Main(_), Other(o @ (Number(_) | Operand::Column(_)))) => {
                self.push(a, RequantizeStep::Div(o))
            }
            (Binary::Max, Main(_), Other(Number(x))) if bound(x) => {
                self.push(a, RequantizeStep::Max(x))
            }
            (Binary::Max, Other(Number(x)), Main(_)) if bound(x) => {
                self.push(b, RequantizeStep::Max(x))
            }
            (Binary::Min, Main(_), Other(Number(x))) if bound(x) => {
                self.push(a, RequantizeStep::Min(x))
            }
            (Binary::Min, Other(Number(x)), Main(_)) if bound(x) => {
                self.push(b, RequantizeStep::Min(x))
            }
            (_, Other(Operand::Dense(s)), Other(Number(x))) => side(f, s, x),
            (Binary::Add | Binary::Mul, Other(Number(x)), Other(Operand::Dense(s))) => {
                side(f, s, x)
            }
            _ => None,
        }
    }

    /// A further step on the running number.
    fn push(&mut self, on: Value<'a>, step: RequantizeStep<'a>) -> Option<Value<'a>> {
        // Only the newest number is in the registers.
        if !matches!(on, Value::Main(at) if at == self.out.steps.len()) {
            return None;
        }
        self.out.has_sides |= matches!(
            step,
            RequantizeStep::Add(Operand::Dense(_)) | RequantizeStep::Mul(Operand::Dense(_))
        );
        self.out.steps.push(step);
        Some(Value::Main(self.out.steps.len()))
    }

    /// The kind of byte, if the last steps confine the number to it.
    fn byte(&self, sign: Sign) -> Option<Sign> {
        let (low, high) = match sign {
            Sign::Unsigned => (0.0, 255.0),
            Sign::Signed => (-128.0, 127.0),
        };
        match self.out.steps[..] {
            [.., RequantizeStep::Max(l), RequantizeStep::Min(h)]
            | [.., RequantizeStep::Min(h), RequantizeStep::Max(l)]
                if low <= l && l <= high && low <= h && h <= high =>
            {
                Some(sign)
            }
            _ => None,
        }
    }

    fn read(&mut self, r: Ref) -> Option<Value<'a>> {
        match r {
            Ref::Reg(i) => *self.registers.get(i as usize)?,
            Ref::Imm(i) => {
                Some(Value::Other(Operand::Number(self.code.imms[i as usize].float as f32)))
            }
            // The sums themselves are read once.
            Ref::Float(0) => {
                let unread = self.out.steps.is_empty() && self.out.summands.is_empty();
                unread.then_some(Value::Main(0))
            }
            Ref::In(0) => self.out.summands.is_empty().then_some(Value::Sums),
            Ref::Float(i) => {
                let ElementSource::Dense(at) = self.sources[i as usize] else { return None };
                let bytes = self.inputs[i as usize].get(at..at + self.len)?;
                let elements = match self.code.inputs[i as usize] {
                    DType::U8 => DenseElements::Unsigned(bytes),
                    DType::I8 => DenseElements::Signed(bytes),
                    _ => return None,
                };
                Some(plain(elements))
            }
            Ref::In(i) => {
                if self.code.inputs[i as usize] != DType::F32 {
                    return None;
                }
                let data: &'a [f32] = bytemuck::cast_slice(self.inputs[i as usize]);
                match &self.sources[i as usize] {
                    ElementSource::Splat(at) => {
                        Some(Value::Other(Operand::Number(*data.get(*at)?)))
                    }
                    ElementSource::Dense(at) => {
                        Some(plain(DenseElements::Floats(data.get(*at..*at + self.len)?)))
                    }
                    source @ ElementSource::Strided(_) => {
                        let at = self.line(source)?;
                        Some(self.column(data.get(at..at + self.n)?))
                    }
                }
            }
        }
    }

    /// Where the elements for the columns begin, if a source repeats them for each row.
    fn line(&self, source: &ElementSource) -> Option<usize> {
        let ElementSource::Strided(s) = source else { return None };
        let (offset, shape, strides) = s.walk();
        let ([.., wide], [rest @ .., 1]) = (shape, strides) else { return None };
        (*wide == self.n && rest.iter().all(|&s| s == 0)).then_some(offset)
    }

    /// An operand of columns, copied so that whole tiles can be read.
    fn column(&mut self, data: &[f32]) -> Value<'a> {
        let first = self.out.columns.len();
        self.out.columns.extend_from_slice(data);
        self.out.columns.resize(first + self.n.next_multiple_of(WIDE), 0.0);
        Value::Other(Operand::Column(first))
    }
}

/// Elements as they are.
fn plain(elements: DenseElements<'_>) -> Value<'_> {
    Value::Other(Operand::Dense(DenseOperand { elements, shift: -0.0, scale: 1.0 }))
}

/// Elements that are shifted, or scaled after that.
fn side<'a>(f: Binary, s: DenseOperand<'a>, x: f32) -> Option<Value<'a>> {
    let is_scaled = s.scale != 1.0;
    let is_shifted = s.shift.to_bits() != (-0.0f32).to_bits();
    let s = match f {
        Binary::Add if !is_scaled && !is_shifted => DenseOperand { shift: x, ..s },
        Binary::Sub if !is_scaled && !is_shifted => DenseOperand { shift: -x, ..s },
        Binary::Mul if !is_scaled => DenseOperand { scale: x, ..s },
        _ => return None,
    };
    Some(Value::Other(Operand::Dense(s)))
}

/// A bound that vectors treat as the register code does.
fn bound(x: f32) -> bool {
    !x.is_nan() && x.to_bits() != (-0.0f32).to_bits()
}
