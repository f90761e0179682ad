//! Reductions: terms one after the other for a tile of elements, or side by side.

use super::code::{Join, Mode, Reduce};
use super::machine::{Fault, Machine, Sources, Span, TILE, by_class, fill_with, part};
use super::tiles::{self, Joined};
use crate::pointwise::code::RegisterClass as Class;
use crate::pointwise::ops::{Tile, map1};
use crate::runtime::buffer::Buffer;

impl Machine {
    /// Joins the terms of elements; whether they are one for all.
    pub(super) fn reduce(
        &mut self,
        r: &Reduce,
        class: Class,
        sources: &impl Sources,
        Span { start, n }: Span,
        dst: &mut Buffer,
    ) -> Result<bool, Fault> {
        match r.mode {
            Mode::Steps => self.steps(r, class, sources, Span { start, n }, dst),
            Mode::Lanes(each) => {
                fill_with(class, dst, n, r.first);
                self.lanes(r, class, sources, Span { start, n }, each, dst).map(|()| false)
            }
        }
    }

    fn steps(
        &mut self,
        r: &Reduce,
        class: Class,
        sources: &impl Sources,
        Span { start, n }: Span,
        dst: &mut Buffer,
    ) -> Result<bool, Fault> {
        fill_with(class, dst, 1, r.first);
        let mut one = true;
        r.over.iter().for_each(|&(slot, _)| self.slots[slot] = 0);
        loop {
            self.block(&r.body, sources, start, n)?;
            let single = one && self.is_one(r.term);
            let mut joined = std::mem::take(&mut self.spare);
            self.join(r, class, dst, one, &mut joined, if single { 1 } else { n });
            self.spare = std::mem::replace(dst, joined);
            one = single;
            let next = r.over.iter().rev().any(|&(slot, len)| {
                self.slots[slot] += 1;
                let is_last = self.slots[slot] == len;
                if is_last {
                    self.slots[slot] = 0;
                }
                !is_last
            });
            if !next {
                return Ok(one);
            }
        }
    }

    /// `to` is what is joined so far, and one term more.
    fn join(&self, r: &Reduce, class: Class, acc: &Buffer, one: bool, to: &mut Buffer, n: usize) {
        macro_rules! joined {
            ($t:ty, $f:expr) => {{
                let held: &[$t] = bytemuck::cast_slice(acc.bytes());
                let acc = if one { Tile::One(held[0]) } else { Tile::Many(&held[..n]) };
                $f(part(to, n), acc, self.get(r.term, n))
            }};
        }
        match (r.join, class) {
            (Join::Real(op), Class::F32) => joined!(f32, |d, a, b| tiles::real_f32(op, d, a, b)),
            (Join::Real(op), _) => joined!(f64, |d, a, b| tiles::real_f64(op, d, a, b)),
            (Join::Int(op), _) => joined!(i64, |d, a, b| tiles::int(op, d, a, b)),
            (Join::Any, _) => joined!(u8, |d, a, b| tiles::both(false, d, a, b)),
            (Join::All, _) => joined!(u8, |d, a, b| tiles::both(true, d, a, b)),
        }
    }

    /// Terms of several elements at a time, or some of one.
    fn lanes(
        &mut self,
        r: &Reduce,
        class: Class,
        sources: &impl Sources,
        Span { start, n }: Span,
        each: usize,
        dst: &mut Buffer,
    ) -> Result<(), Fault> {
        let (rows, outer) = ((TILE / each).max(1), self.around);
        for first in (0..n).step_by(rows) {
            let some = rows.min(n - first);
            let mut term = 0;
            while term < each {
                let terms = (each - term).min(TILE);
                self.around = (first, each);
                let at = (start + first) * each + term;
                self.block(&r.body, sources, at, some * terms)?;
                self.rows(r, class, dst, first, some, terms);
                term += terms;
            }
        }
        self.around = outer;
        Ok(())
    }

    /// Joins the terms of `some` elements, from number `first` on, to what they have.
    fn rows(
        &mut self,
        r: &Reduce,
        class: Class,
        dst: &mut Buffer,
        first: usize,
        some: usize,
        terms: usize,
    ) {
        let n = some * terms;
        let mut spare = std::mem::take(&mut self.spare);
        macro_rules! rows {
            ($t:ty) => {{
                let acc = &mut part::<$t>(dst, first + some)[first..];
                let term = match self.get::<$t>(r.term, n) {
                    Tile::Many(term) => term,
                    one => {
                        map1(part(&mut spare, n), one, |x| x);
                        part(&mut spare, n)
                    }
                };
                Joined::rows(r.join, acc, term, terms);
            }};
        }
        by_class!(class, rows);
        self.spare = spare;
    }
}
