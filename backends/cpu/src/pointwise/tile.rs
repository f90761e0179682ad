//! The interpreter of register code: processes spans of the result, tile by tile.
//!
//! A span reads its inputs once and writes its outputs once; everything between stays in registers of a few KiB. Results do
//! not depend on how the index space is divided into spans.

use super::code::{Dst, Instr, Op, Ref, RegisterClass, RegisterCode, class};
use super::ops::{self, Tile};
use super::source::{ElementSource, load, load_float, store, store_cut};
use crate::runtime::buffer::with_scratch;
use bytemuck::Pod;
use half::{bf16, f16};
use mlc_dsl::ir::DType;
use mlc_vector::simd;
use std::sync::Arc;

/// Elements per tile.
pub const TILE: usize = 1024;

/// Register code over inputs of known layouts.
#[derive(Clone, Debug)]
pub struct Fused {
    code: Arc<RegisterCode>,
    sources: Vec<ElementSource>,
    /// The register that each input is loaded into, unless it is read where it lies.
    loads: Vec<Option<u16>>,
    /// The register that the integers of each input are loaded into as f32, if they are read so.
    floats: Vec<Option<u16>>,
    regs: usize,
}

/// Input 0 of a tile that something else has computed.
#[derive(Clone, Copy)]
enum Given<'a> {
    Floats(&'a [f32]),
    Sums(&'a [i32]),
}

/// A tile: its first element, its length, where it begins in the span, and input 0 if the tile holds it.
#[derive(Clone, Copy)]
struct TileSpan<'a> {
    at: usize,
    len: usize,
    done: usize,
    held: Option<Given<'a>>,
    /// The inputs, a bit for each of the first, of which the tile reads one element.
    ones: u64,
}

/// One instruction's surroundings.
struct InstructionContext<'a> {
    fused: &'a Fused,
    inputs: &'a [&'a [u8]],
    part: TileSpan<'a>,
    /// Registers below and above the one being written.
    low: &'a [u64],
    high: &'a [u64],
    /// Registers in `low`.
    split: usize,
}

impl Fused {
    /// Binds code to the sources of its inputs.
    pub fn new(code: Arc<RegisterCode>, sources: Vec<ElementSource>) -> Fused {
        let mut regs = code.regs;
        let mut register = |needed: bool| {
            regs += needed as usize;
            needed.then(|| regs as u16 - 1)
        };
        let read = |r: Ref| {
            code.instrs.iter().any(|i| i.args.contains(&r))
                || code.outputs.iter().any(|o| o.0 == Some(r))
        };
        let each = || sources.iter().zip(&code.inputs).zip(0u16..);
        let loads =
            each().map(|((s, &d), i)| register(!s.is_direct(d) && read(Ref::In(i)))).collect();
        let floats = each().map(|(_, i)| register(read(Ref::Float(i)))).collect();
        Fused { code, sources, loads, floats, regs }
    }

    /// The dtypes of the outputs.
    pub fn outputs(&self) -> impl Iterator<Item = DType> + '_ {
        self.code.outputs.iter().map(|o| o.1)
    }

    /// The code, and the source of each of its inputs.
    pub fn parts(&self) -> (&RegisterCode, &[ElementSource]) {
        (&self.code, &self.sources)
    }

    /// Number of inputs.
    pub fn input_count(&self) -> usize {
        self.sources.len()
    }

    /// Computes elements `start..start + len`; `outs` are exactly that part of each output.
    pub fn span(&self, start: usize, len: usize, inputs: &[&[u8]], outs: &mut [&mut [u8]]) {
        with_scratch::<u64, 1, _>([self.regs.max(1) * TILE], |[regs]| {
            let mut done = 0;
            while done < len {
                let n = TILE.min(len - done);
                self.tile(
                    TileSpan { at: start + done, len: n, done, held: None, ones: 0 },
                    inputs,
                    outs,
                    regs,
                );
                done += n;
            }
        });
    }

    /// Like [`Fused::span`] for one f32 output that already holds input 0 and is replaced. `inputs[0]` is not read.
    pub fn span_in_place(&self, start: usize, out: &mut [f32], inputs: &[&[u8]]) {
        with_scratch::<u64, 2, _>([self.regs.max(1) * TILE, TILE], |[regs, copy]| {
            let copy: &mut [f32] = bytemuck::cast_slice_mut(copy);
            for (i, chunk) in out.chunks_mut(TILE).enumerate() {
                let copy = &mut copy[..chunk.len()];
                copy.copy_from_slice(chunk);
                let held = Some(Given::Floats(copy));
                let part =
                    TileSpan { at: start + i * TILE, len: chunk.len(), done: 0, held, ones: 0 };
                self.tile(part, inputs, &mut [bytemuck::cast_slice_mut(chunk)], regs);
            }
        });
    }

    /// Like [`Fused::span`] for one output where input 0 are these sums. `inputs[0]` is not read.
    pub fn span_of_sums(&self, start: usize, sums: &[i32], inputs: &[&[u8]], out: &mut [u8]) {
        with_scratch::<u64, 1, _>([self.regs.max(1) * TILE], |[regs]| {
            for (i, sums) in sums.chunks(TILE).enumerate() {
                let (done, held) = (i * TILE, Some(Given::Sums(sums)));
                let part = TileSpan { at: start + done, len: sums.len(), done, held, ones: 0 };
                self.tile(part, inputs, &mut [&mut *out], regs);
            }
        });
    }

    fn tile(
        &self,
        mut part: TileSpan<'_>,
        inputs: &[&[u8]],
        outs: &mut [&mut [u8]],
        regs: &mut [u64],
    ) {
        for (i, to) in self.loads.iter().enumerate() {
            if let Some(to) = to {
                let dst = &mut regs[*to as usize * TILE..][..TILE];
                match part.held {
                    Some(Given::Floats(_)) if i == 0 => {}
                    Some(Given::Sums(sums)) if i == 0 => {
                        let dst = &mut bytemuck::cast_slice_mut::<u64, i64>(dst)[..sums.len()];
                        dst.iter_mut().zip(sums).for_each(|(d, &s)| *d = s.into());
                    }
                    _ => {
                        let dtype = self.code.inputs[i];
                        if let ElementSource::Strided(s) = &self.sources[i]
                            && i < u64::BITS as usize
                            && let Some(at) = s.one(part.at, part.len)
                        {
                            load(&ElementSource::Splat(at), dtype, inputs[i], 0, dst, 1);
                            part.ones |= 1 << i;
                            continue;
                        }
                        load(&self.sources[i], dtype, inputs[i], part.at, dst, part.len);
                    }
                }
            }
        }
        for (i, to) in self.floats.iter().enumerate() {
            let Some(to) = to else { continue };
            let dst = cut(&mut regs[*to as usize * TILE..][..TILE], part.len);
            match part.held {
                Some(Given::Sums(sums)) if i == 0 => sums_as_floats(dst, sums),
                _ => load_float(&self.sources[i], self.code.inputs[i], inputs[i], part.at, dst),
            }
        }
        for instr in &self.code.instrs {
            match instr.dst {
                Dst::Reg(r) => {
                    let (low, rest) = regs.split_at_mut(r as usize * TILE);
                    let (dst, high) = rest.split_at_mut(TILE);
                    let frame = InstructionContext {
                        fused: self,
                        inputs,
                        part,
                        low,
                        high,
                        split: r as usize,
                    };
                    frame.step(instr, bytemuck::cast_slice_mut(dst));
                }
                Dst::Out(o) => {
                    let split = regs.len() / TILE;
                    let frame = InstructionContext {
                        fused: self,
                        inputs,
                        part,
                        low: regs,
                        high: &[],
                        split,
                    };
                    frame.step(instr, part.of(outs[o as usize], self.code.outputs[o as usize].1));
                }
            }
        }
        for (o, (r, dtype)) in self.code.outputs.iter().enumerate() {
            let Some(r) = r else { continue };
            let out = part.of(outs[o], *dtype);
            match r {
                Ref::Reg(r) if self.code.cuts[o] => {
                    let src =
                        &bytemuck::cast_slice(&regs[*r as usize * TILE..][..TILE])[..part.len];
                    store_cut(*dtype, src, out);
                }
                Ref::Reg(r) => store(*dtype, &regs[*r as usize * TILE..][..TILE], out, part.len),
                Ref::In(_) | Ref::Float(_) | Ref::Imm(_) => {
                    // Rare: an output that is an input or a number. One more register is scratch for it.
                    let mut copy = [0u64; TILE];
                    let split = regs.len() / TILE;
                    let frame = InstructionContext {
                        fused: self,
                        inputs,
                        part,
                        low: regs,
                        high: &[],
                        split,
                    };
                    frame.copy(*r, *dtype, &mut copy);
                    store(*dtype, &copy, out, part.len);
                }
            }
        }
    }
}

impl TileSpan<'_> {
    fn of<'o>(&self, out: &'o mut [u8], dtype: DType) -> &'o mut [u8] {
        let size = dtype.size();
        &mut out[self.done * size..(self.done + self.len) * size]
    }
}

/// A type that holds a class.
trait Held: Pod {
    fn of(imm: super::code::Imm) -> Self;
}
impl Held for f32 {
    fn of(imm: super::code::Imm) -> f32 {
        imm.float as f32
    }
}
impl Held for f64 {
    fn of(imm: super::code::Imm) -> f64 {
        imm.float
    }
}
impl Held for i64 {
    fn of(imm: super::code::Imm) -> i64 {
        imm.int
    }
}
impl Held for u8 {
    fn of(imm: super::code::Imm) -> u8 {
        (imm.float != 0.0) as u8
    }
}

impl<'a> InstructionContext<'a> {
    fn register<T: Held>(&self, r: u16) -> Tile<'a, T> {
        let r = r as usize;
        let words = if r < self.split {
            &self.low[r * TILE..][..TILE]
        } else {
            &self.high[(r - self.split - 1) * TILE..][..TILE]
        };
        Tile::Many(&bytemuck::cast_slice::<u64, T>(words)[..self.part.len])
    }

    fn get<T: Held>(&self, r: Ref) -> Tile<'a, T> {
        match r {
            Ref::Reg(r) => self.register(r),
            Ref::Imm(i) => Tile::One(T::of(self.fused.code.imms[i as usize])),
            // It was loaded: its use is what it has a register for.
            Ref::Float(i) => {
                self.fused.floats[i as usize].map_or(Tile::Many(&[]), |r| self.register(r))
            }
            Ref::In(i) => {
                let i = i as usize;
                if let (0, Some(Given::Floats(held))) = (i, self.part.held) {
                    return Tile::Many(bytemuck::cast_slice::<f32, T>(held));
                }
                if let Some(r) = self.fused.loads[i] {
                    let tile = self.register(r);
                    return match tile {
                        Tile::Many([first, ..]) if i < 64 && self.part.ones >> i & 1 == 1 => {
                            Tile::One(*first)
                        }
                        _ => tile,
                    };
                }
                match self.fused.sources[i] {
                    ElementSource::Dense(o) => {
                        let at = o + self.part.at;
                        Tile::Many(&bytemuck::cast_slice(self.inputs[i])[at..at + self.part.len])
                    }
                    ElementSource::Splat(o) => Tile::One(self.splat(i, o)),
                    // Strided inputs are loaded into registers.
                    ElementSource::Strided(_) => Tile::Many(&[]),
                }
            }
        }
    }

    /// The one element of a repeated input, in its class.
    fn splat<T: Held>(&self, input: usize, offset: usize) -> T {
        let mut word = [0u64];
        let dtype = self.fused.code.inputs[input];
        load(&ElementSource::Splat(offset), dtype, self.inputs[input], 0, &mut word, 1);
        bytemuck::cast_slice(&word)[0]
    }

    fn copy(&self, r: Ref, dtype: DType, to: &mut [u64]) {
        let n = self.part.len;
        match class(dtype) {
            RegisterClass::F32 => ops::convert(cut(to, n), self.get::<f32>(r), |x| x),
            RegisterClass::F64 => ops::convert(cut(to, n), self.get::<f64>(r), |x| x),
            RegisterClass::Int => ops::convert(cut(to, n), self.get::<i64>(r), |x| x),
            RegisterClass::Bool => ops::convert(cut(to, n), self.get::<u8>(r), |x| x),
        }
    }

    /// Runs one instruction into `dst`, at least as many elements as the tile has.
    fn step(&self, i: &Instr, dst: &mut [u8]) {
        let n = self.part.len;
        let [a, b, c] = i.args;
        match (i.op, class(i.dtype)) {
            (Op::Unary(f), RegisterClass::F32) => ops::unary_f32(f, typed(dst, n), self.get(a)),
            (Op::Unary(f), RegisterClass::F64) => ops::unary_f64(f, typed(dst, n), self.get(a)),
            (Op::Unary(f), RegisterClass::Int) => {
                ops::unary_int(f, typed(dst, n), self.get(a), i.dtype);
                ops::wrap(typed(dst, n), i.dtype);
            }
            (Op::Unary(_), RegisterClass::Bool) => {
                ops::convert(typed::<u8>(dst, n), self.get::<u8>(a), |x| x ^ 1);
            }
            (Op::Binary(f), RegisterClass::F32) => {
                ops::binary_f32(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Binary(f), RegisterClass::F64) => {
                ops::binary_f64(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Binary(f), RegisterClass::Int) => {
                ops::binary_int(f, typed(dst, n), self.get(a), self.get(b), i.dtype);
                ops::wrap(typed(dst, n), i.dtype);
            }
            (Op::Binary(f), RegisterClass::Bool) => {
                ops::binary_bool(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Compare(f), RegisterClass::F32) => {
                ops::compare_f32(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Compare(f), RegisterClass::F64) => {
                ops::compare_f64(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Compare(f), RegisterClass::Int) if i.dtype == DType::U64 => {
                let (a, b) = (unsigned(self.get(a)), unsigned(self.get(b)));
                ops::compare_u64(f, typed(dst, n), a, b);
            }
            (Op::Compare(f), RegisterClass::Int) => {
                ops::compare_i64(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Compare(f), RegisterClass::Bool) => {
                ops::compare_u8(f, typed(dst, n), self.get(a), self.get(b));
            }
            (Op::Select, RegisterClass::F32) => {
                ops::select::<f32>(typed(dst, n), self.get(a), self.get(b), self.get(c));
            }
            (Op::Select, RegisterClass::F64) => {
                ops::select::<f64>(typed(dst, n), self.get(a), self.get(b), self.get(c));
            }
            (Op::Select, RegisterClass::Int) => {
                ops::select::<i64>(typed(dst, n), self.get(a), self.get(b), self.get(c));
            }
            (Op::Select, RegisterClass::Bool) => {
                ops::select::<u8>(typed(dst, n), self.get(a), self.get(b), self.get(c));
            }
            (Op::Cast(to), from) => self.cast(from, i.dtype, to, a, dst),
        }
    }

    fn cast(&self, from: RegisterClass, dtype: DType, to: DType, a: Ref, dst: &mut [u8]) {
        let n = self.part.len;
        match (from, class(to)) {
            (RegisterClass::F32, RegisterClass::F32) if to == DType::F32 => {
                ops::convert(typed(dst, n), self.get(a), |x: f32| x);
            }
            (RegisterClass::Int, RegisterClass::F32) if to == DType::F32 && dtype != DType::U64 => {
                ops::integers_as_floats(typed(dst, n), self.get(a));
            }
            (RegisterClass::F32, RegisterClass::F32) => match to {
                DType::F16 => ops::rounded_to_halves(typed(dst, n), self.get(a)),
                _ => ops::convert(typed(dst, n), self.get(a), |x: f32| round_to(x, to)),
            },
            (RegisterClass::F32, RegisterClass::F64) => {
                ops::convert(typed(dst, n), self.get(a), |x: f32| x as f64);
            }
            (RegisterClass::F32, RegisterClass::Int) => {
                ops::floats_cut(typed(dst, n), self.get(a), to);
            }
            (RegisterClass::F32, RegisterClass::Bool) => {
                ops::convert(typed(dst, n), self.get(a), |x: f32| (x != 0.0) as u8);
            }
            (RegisterClass::F64, RegisterClass::F32) => {
                ops::convert(typed(dst, n), self.get(a), |x: f64| match to {
                    // Rounding once: not through f32.
                    DType::F16 => f16::from_f64(x).to_f32(),
                    DType::BF16 => bf16::from_f64(x).to_f32(),
                    _ => small(x, to).unwrap_or(x as f32),
                });
            }
            (RegisterClass::F64, RegisterClass::F64) => {
                ops::convert(typed(dst, n), self.get(a), |x: f64| x)
            }
            (RegisterClass::F64, RegisterClass::Int) => {
                ops::convert(typed(dst, n), self.get(a), |x: f64| ops::float_to_int(x, to));
            }
            (RegisterClass::F64, RegisterClass::Bool) => {
                ops::convert(typed(dst, n), self.get(a), |x: f64| (x != 0.0) as u8);
            }
            (RegisterClass::Int, RegisterClass::F32) => {
                let u = dtype == DType::U64;
                ops::convert(typed(dst, n), self.get(a), |x: i64| {
                    // Rounded once: f64 is exact for what a 16-bit float can tell apart.
                    let near = if u { x as u64 as f32 } else { x as f32 };
                    let exact = if u { x as u64 as f64 } else { x as f64 };
                    small(exact, to).unwrap_or_else(|| round_to(near, to))
                });
            }
            (RegisterClass::Int, RegisterClass::F64) => {
                let u = dtype == DType::U64;
                ops::convert(typed(dst, n), self.get(a), |x: i64| {
                    if u { x as u64 as f64 } else { x as f64 }
                });
            }
            (RegisterClass::Int, RegisterClass::Int) => {
                ops::convert(typed(dst, n), self.get(a), |x: i64| x);
                ops::wrap(typed(dst, n), to);
            }
            (RegisterClass::Int, RegisterClass::Bool) => {
                ops::convert(typed(dst, n), self.get(a), |x: i64| (x != 0) as u8);
            }
            (RegisterClass::Bool, RegisterClass::F32) => match to {
                DType::F32 | DType::F16 | DType::BF16 => {
                    ops::truths_as_floats(typed(dst, n), self.get(a));
                }
                _ => ops::convert(typed(dst, n), self.get(a), |x: u8| round_to(x as f32, to)),
            },
            (RegisterClass::Bool, RegisterClass::F64) => {
                ops::convert(typed(dst, n), self.get(a), |x: u8| x as f64);
            }
            (RegisterClass::Bool, RegisterClass::Int) => {
                ops::truths_as_integers(typed(dst, n), self.get(a));
            }
            (RegisterClass::Bool, RegisterClass::Bool) => {
                ops::convert(typed(dst, n), self.get(a), |x: u8| x)
            }
        }
    }
}

simd! {
    fn sums_as_floats(dst: &mut [f32], sums: &[i32]) {
        dst.iter_mut().zip(sums).for_each(|(d, &s)| *d = s as f32);
    }
}

fn round_to(x: f32, to: DType) -> f32 {
    match to {
        DType::F16 => f16::from_f32(x).to_f32(),
        DType::BF16 => bf16::from_f32(x).to_f32(),
        _ => small(x.into(), to).unwrap_or(x),
    }
}

/// The nearest number of a float of at most 8 bits.
fn small(x: f64, to: DType) -> Option<f32> {
    to.small_float().map(|format| format.nearest(x) as f32)
}

fn typed<T: Pod>(bytes: &mut [u8], n: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(bytes)[..n]
}

fn cut<T: Pod>(words: &mut [u64], n: usize) -> &mut [T] {
    &mut bytemuck::cast_slice_mut(words)[..n]
}

fn unsigned(tile: Tile<'_, i64>) -> Tile<'_, u64> {
    match tile {
        Tile::Many(v) => Tile::Many(bytemuck::cast_slice(v)),
        Tile::One(v) => Tile::One(v as u64),
    }
}
