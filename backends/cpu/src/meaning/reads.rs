//! Instructions that read elements, at places that are affine in the index variables or computed.

use super::code::{Gather, Imm, Instr, Load, Outside};
use super::elements;
use super::machine::{Fault, Machine, Sources, Span, TILE, fill_with, part};
use super::walk::{Axis, inside};
use crate::pointwise::code::RegisterClass as Class;
use crate::pointwise::ops::Tile;
use crate::runtime::buffer::Buffer;
use mlc_backends::reference::code::Affine;
use mlc_vector::simd;

/// Calls a macro with the type that elements of a class are read in: truth values are read as integers.
macro_rules! by_read {
    ($class:expr, $m:ident) => {
        match $class {
            Class::F32 => $m!(f32),
            Class::F64 => $m!(f64),
            Class::Int | Class::Bool => $m!(i64),
        }
    };
}

impl Machine {
    /// Reads elements; whether they are one for all.
    pub(super) fn load(
        &mut self,
        i: &Instr,
        l: &Load,
        sources: &impl Sources,
        Span { start, n }: Span,
        dst: &mut Buffer,
    ) -> Result<bool, Fault> {
        let bytes = sources.bytes(l.source);
        let base = self.first(l) as isize;
        // A place that the tile does not change is inside for all of it, or for nothing of it.
        let mut uneven = false;
        let mut all = true;
        for (index, extent) in &l.checked {
            uneven |= l.space.iter().any(|a| index.factor(a.slot) != 0);
            all &= (0..*extent).contains(&index.eval(&self.slots));
        }
        if uneven {
            return self.load_checked(i, l, bytes, Span { start, n }, dst).map(|()| false);
        }
        self.tell(i, all);
        if !all {
            if l.outside == Outside::Fault && self.is_read(i, n) {
                return Err(Fault);
            }
            fill_with(i.class, dst, 1, filling(l.outside));
            return Ok(true);
        }
        let one = l.walk.one(start, n);
        macro_rules! go {
            ($t:ty) => {
                match one {
                    Some(at) => {
                        elements::run::<$t>(l.dtype, bytes, base + at, 0, part(dst, 1));
                    }
                    None => {
                        elements::load::<$t>(l.dtype, &l.walk, bytes, base, start, part(dst, n));
                    }
                }
            };
        }
        by_read!(i.class, go);
        Ok(one.is_some())
    }

    /// Where the first element of the space is.
    fn first(&self, l: &Load) -> i64 {
        l.offset.eval(&self.slots) + l.step.as_ref().map_or(0, |s| s.offset(&self.slots))
    }

    /// Says whether all elements are inside.
    fn tell(&mut self, i: &Instr, all: bool) {
        if let Some(r) = i.inside {
            part::<u8>(&mut self.registers[r], 1)[0] = all as u8;
            self.ones[r] = true;
        }
    }

    /// True if an instruction without an else reads an element of the tile.
    fn is_read(&self, i: &Instr, n: usize) -> bool {
        match i.args.last() {
            None => true,
            Some(&guard) => match self.get::<u8>(guard, n) {
                Tile::One(v) => v != 0,
                Tile::Many(v) => v.contains(&1),
            },
        }
    }

    /// Reads elements some of whose places may be outside, a run of the innermost axis at a time.
    fn load_checked(
        &mut self,
        i: &Instr,
        l: &Load,
        bytes: &[u8],
        Span { start, n }: Span,
        dst: &mut Buffer,
    ) -> Result<(), Fault> {
        fill_with(i.class, dst, n, filling(l.outside));
        let mut told = i.inside.map(|r| std::mem::take(&mut self.registers[r]));
        if let Some(told) = &mut told {
            part::<u8>(told, n).fill(0);
        }
        let Some((inner, _)) = l.space.split_last() else { return Err(Fault) };
        let (mut done, mut fault) = (0, false);
        while done < n {
            let column = (start + done) % inner.len as usize;
            let len = (n - done).min(inner.len as usize - column);
            let at = |a: &Affine| a.eval(&self.slots) + moved(&l.space, a, start + done);
            let (mut low, mut high) = (0, len);
            for (index, extent) in &l.checked {
                let (l, h) = inside(at(index), index.factor(inner.slot), *extent, len);
                (low, high) = (low.max(l), high.min(h));
            }
            let high = high.max(low);
            if l.outside == Outside::Fault && high - low < len {
                let outside = (0..len).filter(|k| !(low..high).contains(k));
                fault |= match i.args.last().map(|&g| self.get::<u8>(g, n)) {
                    None => true,
                    Some(Tile::One(v)) => v != 0,
                    Some(Tile::Many(v)) => outside.into_iter().any(|k| v[done + k] != 0),
                };
            }
            if low < high {
                let stride = l.offset.factor(inner.slot);
                let moved = moved(&l.space, &l.offset, start + done) + stride * low as i64;
                let first = (self.first(l) + moved) as isize;
                macro_rules! go {
                    ($t:ty) => {{
                        let out = &mut part::<$t>(dst, n)[done + low..done + high];
                        elements::run::<$t>(l.dtype, bytes, first, stride as isize, out);
                    }};
                }
                by_read!(i.class, go);
                if let Some(told) = &mut told {
                    part::<u8>(told, n)[done + low..done + high].fill(1);
                }
            }
            done += len;
        }
        if let (Some(r), Some(told)) = (i.inside, told) {
            self.registers[r] = told;
            self.ones[r] = false;
        }
        if fault { Err(Fault) } else { Ok(()) }
    }

    /// Reads elements at computed places; whether they are one for all.
    pub(super) fn gather(
        &mut self,
        i: &Instr,
        g: &Gather,
        sources: &impl Sources,
        Span { start, n }: Span,
        dst: &mut Buffer,
    ) -> Result<bool, Fault> {
        let one = g.walk.one(start, n).is_some() && i.args.iter().all(|&a| self.is_one(a));
        let n = if one { 1 } else { n };
        let mut places = std::mem::take(&mut self.spare);
        let to = part::<i64>(&mut places, n);
        self.affine_part(g, start, to);
        let mut inside = [1u8; TILE];
        let inside = &mut inside[..n];
        for (&arg, &(extent, stride)) in i.args.iter().zip(&g.axes) {
            step(to, inside, self.get(arg, n), extent, stride);
        }
        if g.validity {
            both(inside, self.get(i.args[g.axes.len()], n));
        }
        let all = !inside.contains(&0);
        let mut fault = false;
        if !all {
            let guarded = i.args.len() > g.axes.len() + g.validity as usize;
            if g.outside == Outside::Fault {
                let guard = i.args.last().filter(|_| guarded);
                fault = match guard.map(|&v| self.get::<u8>(v, n)) {
                    None => true,
                    Some(Tile::One(v)) => v != 0,
                    Some(Tile::Many(v)) => v.iter().zip(&*inside).any(|(&g, &i)| g != 0 && i == 0),
                };
            }
            fill_with(i.class, dst, n, filling(g.outside));
            to.iter_mut().zip(&*inside).filter(|(_, i)| **i == 0).for_each(|(to, _)| *to = -1);
        }
        if let Some(r) = i.inside {
            part::<u8>(&mut self.registers[r], n).copy_from_slice(inside);
            self.ones[r] = one;
        }
        let bytes = sources.bytes(g.source);
        macro_rules! go {
            ($t:ty) => {
                elements::gather::<$t>(g.dtype, bytes, to, part(dst, n))
            };
        }
        by_read!(i.class, go);
        self.spare = places;
        if fault { Err(Fault) } else { Ok(one) }
    }

    /// The part of the places that is affine.
    fn affine_part(&self, g: &Gather, start: usize, to: &mut [i64]) {
        let base = g.offset.eval(&self.slots);
        let mut done = 0;
        g.walk.runs(start, to.len(), |at, stride, n| {
            let run = to[done..done + n].iter_mut().zip(0i64..);
            run.for_each(|(o, k)| *o = base + at as i64 + k * stride as i64);
            done += n;
        });
    }
}

/// The number that takes the place of what is outside.
fn filling(outside: Outside) -> Imm {
    match outside {
        Outside::Fill(imm) => imm,
        Outside::Never | Outside::Fault | Outside::Told => Imm::float(0.0),
    }
}

/// How much an affine form grows from the first element of a space to another.
fn moved(space: &[Axis], affine: &Affine, element: usize) -> i64 {
    let (mut rest, mut sum) = (element as i64, 0);
    for axis in space.iter().rev() {
        sum += affine.factor(axis.slot) * (rest % axis.len);
        rest /= axis.len;
    }
    sum
}

simd! {
    /// Takes an index along an axis into account.
    fn step(places: &mut [i64], inside: &mut [u8], index: Tile<'_, i64>, extent: i64, stride: i64) {
        let both = places.iter_mut().zip(inside);
        match index {
            Tile::One(v) => both.for_each(|(p, i)| {
                *i &= ((v as u64) < extent as u64) as u8;
                *p = p.wrapping_add(v.wrapping_mul(stride));
            }),
            Tile::Many(v) => both.zip(v).for_each(|((p, i), &v)| {
                *i &= ((v as u64) < extent as u64) as u8;
                *p = p.wrapping_add(v.wrapping_mul(stride));
            }),
        }
    }
}

simd! {
    fn both(inside: &mut [u8], valid: Tile<'_, u8>) {
        match valid {
            Tile::One(v) => inside.iter_mut().for_each(|i| *i &= v),
            Tile::Many(v) => inside.iter_mut().zip(v).for_each(|(i, v)| *i &= v),
        }
    }
}
