//! Vector code of a meaning: instructions over tiles of a result's elements, with loops for its reductions.
//!
//! Plain data. The instructions name neither operators nor inputs by name.

use super::walk::{Axis, Walk};
use crate::pointwise::Unary;
use crate::pointwise::code::RegisterClass as Class;
use mlc_backends::reference::RealOp;
use mlc_backends::reference::code::{Affine, Sign, Slot};
use mlc_backends::reference::scalar::{Cmp, IntOp};
use mlc_dsl::ir::DType;

/// Where an argument comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Val {
    /// The register of that number.
    Reg(usize),
    /// A number, the same for all elements.
    Imm(Imm),
}

/// A number in every class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Imm {
    pub float: f64,
    pub int: i64,
}

impl Imm {
    /// A float; of its integer form nothing is read.
    pub fn float(v: f64) -> Imm {
        Imm { float: v, int: v as i64 }
    }

    /// An integer.
    pub fn int(v: i64) -> Imm {
        Imm { float: v as f64, int: v }
    }

    /// True if both have the same bits.
    fn is(self, other: Imm) -> bool {
        self.int == other.int && self.float.to_bits() == other.float.to_bits()
    }
}

impl Val {
    /// True if both are the same register or the same number.
    pub fn is(self, other: Val) -> bool {
        match (self, other) {
            (Val::Reg(a), Val::Reg(b)) => a == b,
            (Val::Imm(a), Val::Imm(b)) => a.is(b),
            (Val::Reg(_), Val::Imm(_)) | (Val::Imm(_), Val::Reg(_)) => false,
        }
    }
}

/// What becomes of elements whose place is outside of what is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outside {
    /// No place is.
    Never,
    /// The run is handed over to the reference interpreter, unless the guard (the last argument, if there is one) is 0.
    Fault,
    /// This number takes their place.
    Fill(Imm),
    /// The second result is 0 for them.
    Told,
}

/// Elements at places that are affine in the index variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub source: usize,
    pub dtype: DType,
    pub offset: Affine,
    pub walk: Walk,
    /// The space of the walk, if an index may be outside of an axis.
    pub space: Vec<Axis>,
    /// The indices that may be outside of an axis, and its extent.
    pub checked: Vec<(Affine, i64)>,
    pub outside: Outside,
    /// The step that is read, if the source holds the last ones only: the offset leaves it out.
    pub step: Option<HeldStep>,
}

/// A step of a recurrence in a source that holds the last steps, step `t` of them in place `t % held`.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldStep {
    /// Its number.
    pub number: Affine,
    /// How many steps are held.
    pub held: i64,
    /// Elements from one place to the next.
    pub stride: i64,
}

impl HeldStep {
    /// How far its elements are from those of the first place.
    pub fn offset(&self, slots: &[i64]) -> i64 {
        self.number.eval(slots).rem_euclid(self.held) * self.stride
    }
}

/// Elements at computed places.
#[derive(Clone, Debug, PartialEq)]
pub struct Gather {
    pub source: usize,
    pub dtype: DType,
    /// The part of the places that is affine and inside.
    pub offset: Affine,
    pub walk: Walk,
    /// Of each computed index, which are the first arguments: extent and stride.
    pub axes: Vec<(i64, i64)>,
    /// Whether an argument behind them says which places exist.
    pub validity: bool,
    pub outside: Outside,
}

/// How a reduction goes through its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All elements of a tile at a time, one value of the variables after the other.
    Steps,
    /// The terms of an element side by side, so many of them.
    Lanes(usize),
}

/// What joins the terms of a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Join {
    Real(RealOp),
    Int(IntOp),
    Any,
    All,
}

/// A reduction.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    pub join: Join,
    pub first: Imm,
    pub over: Vec<(Slot, i64)>,
    pub mode: Mode,
    pub body: Block,
    pub term: Val,
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The value of an affine form.
    Index(Affine, Walk),
    Load(Box<Load>),
    Gather(Box<Gather>),
    Unary(Unary),
    Binary(RealOp),
    Int(IntOp),
    Abs,
    Signum(Sign),
    Wrap(DType),
    Compare(Cmp, Class, Sign),
    Select,
    And,
    Or,
    Not,
    /// From a class to a type, whose class the result has.
    Cast(Class, Cast),
    /// Each element of the tile around, as many times as it has terms.
    Expand,
    Reduce(Box<Reduce>),
}

/// What a number becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    F32,
    F64,
    /// The nearest number of a float of fewer bits than its class.
    Rounded(DType),
    /// Cut towards zero and wrapped.
    Cut(DType),
    Int,
    /// The float of a `u64`, in the class of the result.
    Unsigned,
    /// Whether it is not 0.
    Truth,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instr {
    pub step: Step,
    pub args: Vec<Val>,
    /// The class of the result.
    pub class: Class,
    pub dst: usize,
    /// The register of the second result.
    pub inside: Option<usize>,
}

/// Instructions, in order, over tiles of a space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    pub space: Vec<Axis>,
    pub instrs: Vec<Instr>,
}

/// The code of one result.
#[derive(Clone, Debug)]
pub struct Program {
    pub root: Block,
    pub value: Val,
    pub class: Class,
    /// Type of the result.
    pub dtype: DType,
    /// Registers that it takes.
    pub registers: usize,
    /// Index variables.
    pub slots: usize,
}

/// Assigns registers so that few are needed; they are numbered by definition before.
pub fn assign(program: &mut Program, defined: usize) {
    let mut lives = Lives { first: vec![0; defined], last: vec![0; defined], at: 0 };
    lives.block(&program.root);
    if let Val::Reg(r) = program.value {
        lives.last[r] = usize::MAX;
    }
    let mut a = Assignment { lives, at: 0, place: vec![0; defined], free: vec![], count: 0 };
    a.block(&mut program.root);
    a.named(&mut program.value);
    program.registers = a.count;
}

/// Where registers are written first and read last, in the order of the instructions.
struct Lives {
    first: Vec<usize>,
    last: Vec<usize>,
    at: usize,
}

impl Lives {
    fn read(&mut self, v: Val) {
        if let Val::Reg(r) = v {
            self.last[r] = self.last[r].max(self.at);
        }
    }

    fn block(&mut self, block: &Block) {
        for i in &block.instrs {
            self.at += 1;
            i.args.iter().for_each(|&a| self.read(a));
            for r in [Some(i.dst), i.inside].into_iter().flatten() {
                (self.first[r], self.last[r]) = (self.at, self.at);
            }
            let Step::Reduce(r) = &i.step else { continue };
            let begin = self.at;
            self.block(&r.body);
            self.at += 1;
            self.read(r.term);
            self.last[i.dst] = self.at;
            // What the loop reads of what is before it, it reads until its end.
            for k in 0..self.first.len() {
                if self.first[k] < begin && self.last[k] > begin {
                    self.last[k] = self.at;
                }
            }
        }
    }
}

struct Assignment {
    lives: Lives,
    at: usize,
    place: Vec<usize>,
    /// Registers that are free, and those in use with the number that is in them.
    free: Vec<usize>,
    count: usize,
}

impl Assignment {
    fn named(&self, v: &mut Val) {
        if let Val::Reg(r) = v {
            *r = self.place[*r];
        }
    }

    fn take(&mut self, r: usize) {
        self.place[r] = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
    }

    /// Frees what is read for the last time here.
    fn release(&mut self) {
        for r in 0..self.place.len() {
            if self.lives.last[r] == self.at
                && self.lives.first[r] <= self.at
                && self.lives.first[r] > 0
            {
                self.free.push(self.place[r]);
            }
        }
    }

    fn block(&mut self, block: &mut Block) {
        for i in &mut block.instrs {
            self.at += 1;
            // Results are placed while the arguments are held: none is read and written by one instruction.
            [Some(i.dst), i.inside].into_iter().flatten().for_each(|r| self.take(r));
            i.args.iter_mut().for_each(|a| self.named(a));
            let (dst, inside) = (self.place[i.dst], i.inside.map(|r| self.place[r]));
            self.release();
            if let Step::Reduce(r) = &mut i.step {
                self.block(&mut r.body);
                self.at += 1;
                self.named(&mut r.term);
                self.release();
            }
            (i.dst, i.inside) = (dst, inside);
        }
    }
}
