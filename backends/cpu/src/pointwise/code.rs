//! Register code of a fused pointwise expression.
//!
//! Instructions work on tiles of elements. The code knows neither shapes nor operators: a [`CodeBuilder`] is fed scalar
//! functions, and [`CodeBuilder::finish`] assigns registers.

use mlc_dsl::ir::DType;

/// How elements are held while they are computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterClass {
    /// f32, and the floats of fewer bits.
    F32,
    /// f64.
    F64,
    /// Every integer type, as the 64 bits of an i64 (or u64).
    Int,
    /// One byte, 0 or 1.
    Bool,
}

/// The class of a dtype.
pub fn class(dtype: DType) -> RegisterClass {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => RegisterClass::F32,
        DType::F64 => RegisterClass::F64,
        DType::Bool => RegisterClass::Bool,
        small if small.small_float().is_some() => RegisterClass::F32,
        _ => RegisterClass::Int,
    }
}

/// True if tensors of this dtype hold their elements as their class does, so that no conversion is needed.
pub fn is_native(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::I64 | DType::U64 | DType::Bool)
}

/// True if inputs of this dtype are converted to f32, and results from it, as they are read and written.
fn is_read_as_float(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32)
}

/// Functions of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Unary {
    Neg,
    Abs,
    Exp,
    Log,
    Sqrt,
    Erf,
    Tanh,
    Sigmoid,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    Floor,
    Ceil,
    Round,
    Sign,
    Not,
}

/// Functions of two arguments of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    Modulo,
    Remainder,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the relation of its name")]
pub enum Compare {
    Eq,
    Ne,
    Less,
    LessEq,
}

/// What an instruction does with its arguments, which are of dtype `Instr::dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// One argument.
    Unary(Unary),
    /// Two arguments.
    Binary(Binary),
    /// Two arguments; the result is a truth value.
    Compare(Compare),
    /// The second where the first (a truth value) holds, else the third.
    Select,
    /// To another dtype.
    Cast(DType),
}

/// Where an argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ref {
    /// A register (before [`CodeBuilder::finish`]: the result of that instruction).
    Reg(u16),
    /// An input.
    In(u16),
    /// The integers of an input as f32.
    Float(u16),
    /// An immediate.
    Imm(u16),
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dst {
    /// A register.
    Reg(u16),
    /// An output, directly.
    Out(u16),
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Instr {
    /// What it does.
    pub op: Op,
    /// The dtype of its arguments (of `Select`: of the chosen ones).
    pub dtype: DType,
    /// Where its result goes.
    pub dst: Dst,
    /// Its arguments; unused ones repeat the first.
    pub args: [Ref; 3],
}

/// A number in every class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Imm {
    /// As a float.
    pub float: f64,
    /// As an integer.
    pub int: i64,
}

/// A finished program.
#[derive(Clone, Debug)]
pub struct RegisterCode {
    /// The steps, in order.
    pub instrs: Vec<Instr>,
    /// Immediates.
    pub imms: Vec<Imm>,
    /// Dtype of each input.
    pub inputs: Vec<DType>,
    /// What each output is, and its dtype. `None` if an instruction writes it directly.
    pub outputs: Vec<(Option<Ref>, DType)>,
    /// Which outputs are integers, cut from the f32 that is named.
    pub cuts: Vec<bool>,
    /// Registers used.
    pub regs: usize,
}

/// Builds [`RegisterCode`].
#[derive(Clone, Debug, Default)]
pub struct CodeBuilder {
    instrs: Vec<(Op, DType, [Ref; 3])>,
    imms: Vec<Imm>,
    inputs: Vec<DType>,
}

impl CodeBuilder {
    /// A further input.
    pub fn input(&mut self, dtype: DType) -> Ref {
        self.inputs.push(dtype);
        Ref::In(self.inputs.len() as u16 - 1)
    }

    /// A constant.
    pub fn imm(&mut self, imm: Imm) -> Ref {
        let same = |i: &Imm| i.int == imm.int && i.float.to_bits() == imm.float.to_bits();
        let at = self.imms.iter().position(same).unwrap_or_else(|| {
            self.imms.push(imm);
            self.imms.len() - 1
        });
        Ref::Imm(at as u16)
    }

    /// The value of a constant.
    pub fn as_imm(&self, r: Ref) -> Option<Imm> {
        match r {
            Ref::Imm(i) => Some(self.imms[i as usize]),
            Ref::Reg(_) | Ref::In(_) | Ref::Float(_) => None,
        }
    }

    /// A further step; equal steps are shared.
    pub fn push(&mut self, op: Op, dtype: DType, args: [Ref; 3]) -> Ref {
        if let (Op::Cast(DType::F32), Ref::In(i)) = (op, args[0])
            && is_read_as_float(dtype)
        {
            return Ref::Float(i);
        }
        let step = (op, dtype, args);
        if let Some(at) = self.instrs.iter().position(|i| *i == step) {
            return Ref::Reg(at as u16);
        }
        if let Some(short) = self.logistic(step) {
            return short;
        }
        self.instrs.push(step);
        Ref::Reg(self.instrs.len() as u16 - 1)
    }

    /// `1 / (1 + exp(-x))`, which neither overflows nor takes two passes as one function.
    fn logistic(&mut self, step: (Op, DType, [Ref; 3])) -> Option<Ref> {
        let (Op::Binary(Binary::Div), dtype, [one, sum, _]) = step else { return None };
        let is_one = |b: &CodeBuilder, r| b.as_imm(r).is_some_and(|i| i.float == 1.0);
        let at = |r| if let Ref::Reg(i) = r { Some(self.instrs[i as usize]) } else { None };
        let (Op::Binary(Binary::Add), _, [a, b, _]) = at(sum)? else { return None };
        let e = match (is_one(self, one), is_one(self, a), is_one(self, b)) {
            (true, true, _) => b,
            (true, _, true) => a,
            _ => return None,
        };
        let (Op::Unary(Unary::Exp), _, [n, ..]) = at(e)? else { return None };
        let (Op::Unary(Unary::Neg), _, [x, ..]) = at(n)? else { return None };
        (class(dtype) == RegisterClass::F32)
            .then(|| self.push(Op::Unary(Unary::Sigmoid), dtype, [x, x, x]))
    }

    /// Assigns registers. `outputs` are the results, in order, with their dtypes.
    pub fn finish(self, outputs: &[(Ref, DType)]) -> RegisterCode {
        let cuts: Vec<bool> =
            outputs.iter().map(|&(r, dtype)| self.cut(r, dtype).is_some()).collect();
        let outputs: Vec<(Ref, DType)> =
            outputs.iter().map(|&(r, dtype)| (self.cut(r, dtype).unwrap_or(r), dtype)).collect();
        let outputs = outputs.as_slice();
        let live = self.live(outputs);
        let mut last = vec![0usize; self.instrs.len()];
        let mut uses = vec![0usize; self.instrs.len()];
        for (i, (_, _, args)) in self.instrs.iter().enumerate().filter(|(i, _)| live[*i]) {
            for a in args {
                if let Ref::Reg(r) = a {
                    last[*r as usize] = i;
                    uses[*r as usize] += 1;
                }
            }
        }
        let mut direct = vec![None; self.instrs.len()];
        for (o, (r, dtype)) in outputs.iter().enumerate() {
            if let Ref::Reg(r) = r {
                let once = outputs.iter().filter(|(x, _)| x == &Ref::Reg(*r)).count() == 1;
                if uses[*r as usize] == 0 && once && is_native(*dtype) {
                    direct[*r as usize] = Some(o as u16);
                }
                last[*r as usize] = usize::MAX;
            }
        }
        let (mut place, mut free, mut regs) = (vec![0u16; self.instrs.len()], vec![], 0u16);
        let mut instrs = Vec::new();
        for (i, &(op, dtype, args)) in self.instrs.iter().enumerate().filter(|(i, _)| live[*i]) {
            let dst = match direct[i] {
                Some(o) => Dst::Out(o),
                None => {
                    // Arguments are freed afterwards: a tile is never read and written by one step.
                    place[i] = free.pop().unwrap_or_else(|| {
                        regs += 1;
                        regs - 1
                    });
                    Dst::Reg(place[i])
                }
            };
            let named = args.map(|a| match a {
                Ref::Reg(r) => Ref::Reg(place[r as usize]),
                Ref::In(_) | Ref::Float(_) | Ref::Imm(_) => a,
            });
            instrs.push(Instr { op, dtype, dst, args: named });
            for (k, a) in args.iter().enumerate() {
                if let Ref::Reg(r) = a
                    && last[*r as usize] == i
                    && !args[..k].contains(a)
                {
                    free.push(place[*r as usize]);
                }
            }
        }
        let outputs = outputs
            .iter()
            .map(|&(r, dtype)| match r {
                Ref::Reg(i) if direct[i as usize].is_some() => (None, dtype),
                Ref::Reg(i) => (Some(Ref::Reg(place[i as usize])), dtype),
                Ref::In(_) | Ref::Float(_) | Ref::Imm(_) => (Some(r), dtype),
            })
            .collect();
        let regs = regs as usize;
        RegisterCode { instrs, imms: self.imms, inputs: self.inputs, outputs, cuts, regs }
    }

    /// The f32 that an integer result is cut from, if it lies between two numbers of 22 bits (or is NaN, which is cut to 0).
    fn cut(&self, r: Ref, dtype: DType) -> Option<Ref> {
        let at = |r| if let Ref::Reg(i) = r { self.instrs.get(i as usize) } else { None };
        let bound = |r: Ref, f: Binary| match at(r)? {
            (Op::Binary(g), DType::F32, [x, y, _]) if *g == f => {
                let near = |i: Imm| i.float.abs() <= (1u64 << 21) as f64;
                match (self.as_imm(*x), self.as_imm(*y)) {
                    (Some(i), None) if near(i) => Some(*y),
                    (None, Some(i)) if near(i) => Some(*x),
                    _ => None,
                }
            }
            _ => None,
        };
        let (Op::Cast(to), DType::F32, [x, ..]) = at(r)? else { return None };
        if *to != dtype || !is_read_as_float(dtype) {
            return None;
        }
        let two = |f, g| bound(bound(*x, f)?, g);
        (two(Binary::Min, Binary::Max).is_some() || two(Binary::Max, Binary::Min).is_some())
            .then_some(*x)
    }

    fn live(&self, outputs: &[(Ref, DType)]) -> Vec<bool> {
        let mut live = vec![false; self.instrs.len()];
        for (r, _) in outputs {
            if let Ref::Reg(i) = r {
                live[*i as usize] = true;
            }
        }
        for i in (0..self.instrs.len()).rev() {
            if live[i] {
                for a in self.instrs[i].2 {
                    if let Ref::Reg(r) = a {
                        live[r as usize] = true;
                    }
                }
            }
        }
        live
    }
}
