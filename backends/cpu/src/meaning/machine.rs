//! Runs the code of a meaning over tiles of a result.
//!
//! A place outside of what is read, where the meaning has no value for it, ends the run: the reference interpreter, which is asked
//! then, says what is wrong, if anything is.

use super::code::{Block, Cast, Imm, Instr, Program, Step, Val};
use super::tiles;
use super::walk::Walk;
use crate::pointwise::code::RegisterClass as Class;
use crate::pointwise::ops::{self, Tile, map1};
use crate::pointwise::store;
use crate::runtime::buffer::Buffer;
use bytemuck::Pod;
use mlc_backends::reference::code::Sign;
use mlc_dsl::ir::DType;

/// Elements per tile.
pub const TILE: usize = 1024;

/// Elements `start..start + n` of the space of a block.
#[derive(Clone, Copy)]
pub struct Span {
    pub start: usize,
    pub n: usize,
}

/// The run cannot go on.
pub struct Fault;

/// What is read: inputs, tables, and of recurrences the results so far.
pub trait Sources {
    /// The elements of a source, row-major.
    fn bytes(&self, source: usize) -> &[u8];
}

impl Sources for Vec<&[u8]> {
    fn bytes(&self, source: usize) -> &[u8] {
        self[source]
    }
}

/// Registers and index variables.
#[derive(Default)]
pub struct Machine {
    pub(super) registers: Vec<Buffer>,
    /// Whether a register holds one value for all elements.
    pub(super) ones: Vec<bool>,
    /// The variables of the space are 0: its walks begin at its first element.
    pub slots: Vec<i64>,
    pub(super) spare: Buffer,
    /// The elements around a tile of terms: the number of the first, and how many terms each has, from which on.
    pub(super) around: (usize, usize),
}

/// A type that a class is held in.
pub(super) trait Held: Pod {
    fn of(imm: Imm) -> Self;
}
impl Held for f32 {
    fn of(imm: Imm) -> f32 {
        imm.float as f32
    }
}
impl Held for f64 {
    fn of(imm: Imm) -> f64 {
        imm.float
    }
}
impl Held for i64 {
    fn of(imm: Imm) -> i64 {
        imm.int
    }
}
impl Held for u8 {
    fn of(imm: Imm) -> u8 {
        (imm.int != 0) as u8
    }
}

/// The first `n` elements of a register.
pub(super) fn part<T: Pod>(register: &mut Buffer, n: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(register.bytes_mut())[..n]
}

/// Calls a macro with the type that a class is held in.
macro_rules! by_class {
    ($class:expr, $m:ident) => {
        match $class {
            Class::F32 => $m!(f32),
            Class::F64 => $m!(f64),
            Class::Int => $m!(i64),
            Class::Bool => $m!(u8),
        }
    };
}

pub(super) use by_class;

impl Machine {
    /// Makes room for a program.
    pub fn prepare(&mut self, program: &Program) {
        while self.registers.len() < program.registers {
            self.registers.push(Buffer::new(TILE * 8));
        }
        self.ones.resize(self.registers.len(), false);
        self.slots.clear();
        self.slots.resize(program.slots, 0);
        if self.spare.bytes().is_empty() {
            self.spare = Buffer::new(TILE * 8);
        }
    }

    /// Elements `start..` of the result, at most [`TILE`], as `out` holds.
    pub fn tile(
        &mut self,
        program: &Program,
        sources: &impl Sources,
        start: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let n = self.value(program, sources, start, out.len() / program.dtype.size())?;
        self.write(program, out, n);
        Ok(())
    }

    /// Computes elements `start..start + n` of the result, which [`Machine::write`] then yields.
    pub fn value(
        &mut self,
        program: &Program,
        sources: &impl Sources,
        start: usize,
        n: usize,
    ) -> Result<usize, Fault> {
        self.block(&program.root, sources, start, n)?;
        macro_rules! filled {
            ($t:ty) => {{
                let mut spare = std::mem::take(&mut self.spare);
                let to = part::<$t>(&mut spare, n);
                map1(to, self.get(program.value, n), |x| x);
                self.spare = spare;
            }};
        }
        if self.is_one(program.value) {
            by_class!(program.class, filled);
        }
        Ok(n)
    }

    /// The first `n` elements of the value.
    pub fn write(&self, program: &Program, out: &mut [u8], n: usize) {
        self.write_part(program, 0, out, n);
    }

    /// Elements `from..from + n` of the value.
    pub fn write_part(&self, program: &Program, from: usize, out: &mut [u8], n: usize) {
        let held = match program.value {
            Val::Reg(r) if !self.ones[r] => &self.registers[r],
            _ => &self.spare,
        };
        let size = match program.class {
            Class::F32 => 4,
            Class::F64 | Class::Int => 8,
            Class::Bool => 1,
        };
        let bytes = &held.bytes()[from * size..(from + n) * size];
        match program.dtype {
            DType::F32 | DType::F64 | DType::I64 | DType::U64 | DType::Bool => {
                out.copy_from_slice(bytes);
            }
            dtype => {
                let mut words = [0u64; TILE];
                bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
                store(dtype, &words, out, n);
            }
        }
    }

    pub(super) fn is_one(&self, v: Val) -> bool {
        match v {
            Val::Reg(r) => self.ones[r],
            Val::Imm(_) => true,
        }
    }

    pub(super) fn get<T: Held>(&self, v: Val, n: usize) -> Tile<'_, T> {
        match v {
            Val::Imm(i) => Tile::One(T::of(i)),
            Val::Reg(r) => {
                let held = bytemuck::cast_slice(self.registers[r].bytes());
                if self.ones[r] { Tile::One(held[0]) } else { Tile::Many(&held[..n]) }
            }
        }
    }

    pub(super) fn block(
        &mut self,
        block: &Block,
        sources: &impl Sources,
        start: usize,
        n: usize,
    ) -> Result<(), Fault> {
        for i in &block.instrs {
            let mut dst = std::mem::take(&mut self.registers[i.dst]);
            let one = match &i.step {
                Step::Reduce(r) => self.reduce(r, i.class, sources, Span { start, n }, &mut dst),
                Step::Index(affine, walk) => {
                    Ok(indices(walk, affine.eval(&self.slots), start, n, &mut dst))
                }
                Step::Load(l) => self.load(i, l, sources, Span { start, n }, &mut dst),
                Step::Gather(g) => self.gather(i, g, sources, Span { start, n }, &mut dst),
                _ => {
                    let one = i.args.iter().all(|&a| self.is_one(a));
                    self.step(i, if one { 1 } else { n }, &mut dst);
                    Ok(one)
                }
            };
            self.registers[i.dst] = dst;
            self.ones[i.dst] = one?;
        }
        Ok(())
    }

    /// An instruction on the elements of its arguments alone.
    fn step(&self, i: &Instr, n: usize, dst: &mut Buffer) {
        let arg = |k: usize| i.args[k];
        macro_rules! args {
            ($k:expr) => {
                self.get(arg($k), n)
            };
        }
        match (&i.step, i.class) {
            (Step::Unary(f), Class::F32) => ops::unary_f32(*f, part(dst, n), args!(0)),
            (Step::Unary(f), _) => tiles::unary_f64(*f, part(dst, n), args!(0)),
            (Step::Binary(op), Class::F32) => {
                tiles::real_f32(*op, part(dst, n), args!(0), args!(1));
            }
            (Step::Binary(op), _) => tiles::real_f64(*op, part(dst, n), args!(0), args!(1)),
            (Step::Int(op), _) => tiles::int(*op, part(dst, n), args!(0), args!(1)),
            (Step::Abs, _) => tiles::abs(part(dst, n), args!(0)),
            (Step::Signum(sign), _) => {
                map1(part(dst, n), args!(0), |x| mlc_backends::reference::code::signum(*sign, x));
            }
            (Step::Wrap(dtype), _) => {
                map1(part(dst, n), args!(0), |x: i64| x);
                ops::wrap(part(dst, n), *dtype);
            }
            (Step::Compare(cmp, class, sign), _) => {
                let d = part(dst, n);
                match (class, sign) {
                    (Class::F32, _) => tiles::compare_f32(*cmp, d, args!(0), args!(1)),
                    (Class::F64, _) => tiles::compare_f64(*cmp, d, args!(0), args!(1)),
                    (_, Sign::Signed) => tiles::compare_i64(*cmp, d, args!(0), args!(1)),
                    (_, Sign::Unsigned) => {
                        let [a, b] = [0, 1].map(|k| match self.get::<i64>(arg(k), n) {
                            Tile::One(v) => Tile::One(v as u64),
                            Tile::Many(v) => Tile::Many(bytemuck::cast_slice(v)),
                        });
                        tiles::compare_u64(*cmp, d, a, b);
                    }
                }
            }
            (Step::Select, class) => {
                macro_rules! select {
                    ($t:ty) => {
                        ops::select::<$t>(part(dst, n), args!(0), args!(1), args!(2))
                    };
                }
                by_class!(class, select);
            }
            (Step::And, _) => tiles::both(true, part(dst, n), args!(0), args!(1)),
            (Step::Or, _) => tiles::both(false, part(dst, n), args!(0), args!(1)),
            (Step::Not, _) => tiles::not(part(dst, n), args!(0)),
            (Step::Cast(from, to), class) => self.cast(*from, *to, class, arg(0), n, dst),
            (Step::Expand, class) => {
                let (first, each) = self.around;
                macro_rules! expand {
                    ($t:ty) => {{
                        let Tile::Many(src) = self.get::<$t>(arg(0), TILE) else {
                            return map1(part::<$t>(dst, n), args!(0), |x| x);
                        };
                        let rows = part::<$t>(dst, n).chunks_mut(each);
                        rows.zip(&src[first..]).for_each(|(row, &x)| row.fill(x));
                    }};
                }
                by_class!(class, expand);
            }
            (Step::Index(..) | Step::Load(_) | Step::Gather(_) | Step::Reduce(_), _) => {}
        }
    }

    fn cast(&self, from: Class, to: Cast, class: Class, a: Val, n: usize, dst: &mut Buffer) {
        match (from, to) {
            (Class::F32, Cast::F64) => tiles::widened(part(dst, n), self.get(a, n)),
            (Class::F64, Cast::F32) => tiles::narrowed(part(dst, n), self.get(a, n)),
            (Class::F32, Cast::Rounded(DType::F16)) => {
                ops::rounded_to_halves(part(dst, n), self.get(a, n));
            }
            (Class::F32, Cast::Rounded(dtype)) => map1(part(dst, n), self.get(a, n), |x: f32| {
                mlc_backends::reference::round_to(dtype, x.into()) as f32
            }),
            (_, Cast::Rounded(dtype)) => tiles::rounded(dtype, part(dst, n), self.get(a, n)),
            (Class::F32, Cast::Cut(dtype)) if dtype != DType::Bool => {
                ops::floats_cut(part(dst, n), self.get(a, n), dtype);
            }
            (Class::F32, Cast::Cut(dtype)) => map1(part(dst, n), self.get(a, n), |x: f32| {
                mlc_backends::reference::truncate(dtype, x.into())
            }),
            (_, Cast::Cut(dtype)) => tiles::cut(dtype, part(dst, n), self.get(a, n)),
            (_, Cast::F64) => tiles::floats(part(dst, n), self.get(a, n)),
            (_, Cast::F32) => ops::integers_as_floats(part(dst, n), self.get(a, n)),
            (_, Cast::Unsigned) if class == Class::F32 => {
                map1(part(dst, n), self.get(a, n), |x: i64| x as u64 as f32);
            }
            (_, Cast::Unsigned) => map1(part(dst, n), self.get(a, n), |x: i64| x as u64 as f64),
            (_, Cast::Truth) => tiles::truths(part(dst, n), self.get(a, n)),
            (_, Cast::Int) => ops::truths_as_integers(part(dst, n), self.get(a, n)),
        }
    }
}

/// The values of an affine form; whether they are one for all.
fn indices(walk: &Walk, base: i64, start: usize, n: usize, dst: &mut Buffer) -> bool {
    if let Some(at) = walk.one(start, n) {
        part::<i64>(dst, 1)[0] = base + at as i64;
        return true;
    }
    let (out, mut done) = (part::<i64>(dst, n), 0);
    walk.runs(start, n, |at, stride, n| {
        let first = base + at as i64;
        let run = out[done..done + n].iter_mut().zip(0i64..);
        run.for_each(|(o, k)| *o = first + k * stride as i64);
        done += n;
    });
    false
}

pub(super) fn fill_with(class: Class, dst: &mut Buffer, n: usize, imm: Imm) {
    macro_rules! fill {
        ($t:ty) => {
            part::<$t>(dst, n).fill(<$t>::of(imm))
        };
    }
    by_class!(class, fill);
}
