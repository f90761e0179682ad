//! What follows sums of products of bytes, as steps on real numbers that stay in registers: scales, biases, a second quantised
//! operand, bounds, rounding, and the cast to the next byte.
//!
//! What they compute has the bits that the register code of the same program computes. A program that is no such line of
//! steps has none.

use crate::pointwise::{Binary, Dst, ElementSource, Instr, Op, Ref, RegisterCode, Unary};
use crate::runtime::kernel::Epilogue;
use mlc_dsl::ir::DType;

/// Columns that operands of columns are padded to: as many as a tile has.
pub const WIDE: usize = 64;

/// What a step combines a number with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand<'a> {
    /// An element for each column: where those of column 0 begin in [`Steps::columns`].
    Column(usize),
    /// A number.
    Number(f32),
    /// An element of another array of the result's shape, shifted and scaled.
    Side(Side<'a>),
}

/// Elements of an array, shifted and then scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side<'a> {
    /// The elements, row by row.
    pub elements: Elements<'a>,
    /// What is added; negative zero adds nothing.
    pub shift: f32,
    /// What it is multiplied with.
    pub scale: f32,
}

/// An array of the result's shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Elements<'a> {
    Unsigned(&'a [u8]),
    Signed(&'a [u8]),
    Floats(&'a [f32]),
}

/// One step on the running number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
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
    /// Cut to a byte, which it is but for NaN, and a real number again.
    Byte(Sign),
}

/// Whether a byte has a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    Signed,
    Unsigned,
}

/// What the last step's number is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Floats,
    Bytes(Sign),
}

/// Steps in their order.
#[derive(Debug)]
pub struct Steps<'a> {
    pub steps: Vec<Step<'a>>,
    pub written: Written,
    /// What is added to the sums of each column before they are real numbers, padded to whole tiles; nothing if it is empty.
    pub summands: Vec<i32>,
    /// The operands of columns, each padded to whole tiles.
    pub columns: Vec<f32>,
    /// True if some step reads an array of the result's shape.
    pub has_sides: bool,
}

/// A value while the code is read.
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
    out: Steps<'a>,
}

impl<'a> Steps<'a> {
    /// The steps that an epilogue is, for a result of `m` rows of `n` elements. `inputs` are the epilogue's, from number 1 on.
    pub fn of(
        epilogue: &'a Epilogue,
        inputs: &'a [&'a [u8]],
        m: usize,
        n: usize,
    ) -> Option<Steps<'a>> {
        let (code, sources) = epilogue.fused.parts();
        let out = Steps {
            steps: vec![],
            written: Written::Floats,
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
            (Value::Main(at), DType::F32) if at == done && !code.cuts[0] => Written::Floats,
            (Value::Main(at), DType::U8) if at == done && code.cuts[0] => {
                Written::Bytes(r.byte(Sign::Unsigned)?)
            }
            (Value::Main(at), DType::I8) if at == done && code.cuts[0] => {
                Written::Bytes(r.byte(Sign::Signed)?)
            }
            _ => return None,
        };
        Some(r.out)
    }

    /// The operands of columns with their elements in another order: element `i` is what was number `order(i)`, within whole tiles.
    pub fn reordered(mut self, order: impl Fn(usize) -> usize) -> Steps<'a> {
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
            let (Step::Add(Operand::Side(s)) | Step::Mul(Operand::Side(s))) = step else {
                continue;
            };
            let len = match s.elements {
                Elements::Unsigned(d) | Elements::Signed(d) => d.len(),
                Elements::Floats(d) => d.len(),
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
            (Op::Unary(Unary::Round), DType::F32) => self.push(a, Step::Round),
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
                Value::Byte(at, sign) => self.push(Value::Main(at), Step::Byte(sign)),
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
            (Binary::Add, Main(_), Other(o)) => self.push(a, Step::Add(o)),
            (Binary::Add, Other(o), Main(_)) => self.push(b, Step::Add(o)),
            // Adding the opposite is the same.
            (Binary::Sub, Main(_), Other(Number(x))) => self.push(a, Step::Add(Number(-x))),
            (Binary::Mul, Main(_), Other(o)) => self.push(a, Step::Mul(o)),
            (Binary::Mul, Other(o), Main(_)) => self.push(b, Step::Mul(o)),
            (Binary::Div, Main(_), Other(o @ (Number(_) | Operand::Column(_)))) => {
                self.push(a, Step::Div(o))
            }
            (Binary::Max, Main(_), Other(Number(x))) if bound(x) => self.push(a, Step::Max(x)),
            (Binary::Max, Other(Number(x)), Main(_)) if bound(x) => self.push(b, Step::Max(x)),
            (Binary::Min, Main(_), Other(Number(x))) if bound(x) => self.push(a, Step::Min(x)),
            (Binary::Min, Other(Number(x)), Main(_)) if bound(x) => self.push(b, Step::Min(x)),
            (_, Other(Operand::Side(s)), Other(Number(x))) => side(f, s, x),
            (Binary::Add | Binary::Mul, Other(Number(x)), Other(Operand::Side(s))) => side(f, s, x),
            _ => None,
        }
    }

    /// A further step on the running number.
    fn push(&mut self, on: Value<'a>, step: Step<'a>) -> Option<Value<'a>> {
        // Only the newest number is in the registers.
        if !matches!(on, Value::Main(at) if at == self.out.steps.len()) {
            return None;
        }
        self.out.has_sides |=
            matches!(step, Step::Add(Operand::Side(_)) | Step::Mul(Operand::Side(_)));
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
            [.., Step::Max(l), Step::Min(h)] | [.., Step::Min(h), Step::Max(l)]
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
                    DType::U8 => Elements::Unsigned(bytes),
                    DType::I8 => Elements::Signed(bytes),
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
                        Some(plain(Elements::Floats(data.get(*at..*at + self.len)?)))
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
fn plain(elements: Elements<'_>) -> Value<'_> {
    Value::Other(Operand::Side(Side { elements, shift: -0.0, scale: 1.0 }))
}

/// Elements that are shifted, or scaled after that.
fn side<'a>(f: Binary, s: Side<'a>, x: f32) -> Option<Value<'a>> {
    let is_scaled = s.scale != 1.0;
    let is_shifted = s.shift.to_bits() != (-0.0f32).to_bits();
    let s = match f {
        Binary::Add if !is_scaled && !is_shifted => Side { shift: x, ..s },
        Binary::Sub if !is_scaled && !is_shifted => Side { shift: -x, ..s },
        Binary::Mul if !is_scaled => Side { scale: x, ..s },
        _ => return None,
    };
    Some(Value::Other(Operand::Side(s)))
}

/// A bound that vectors treat as the register code does.
fn bound(x: f32) -> bool {
    !x.is_nan() && x.to_bits() != (-0.0f32).to_bits()
}
