//! Vectorised reads of a concatenation: which operand a vector lies in is decided once, ahead of the loop over its elements.

use super::{Emitter, linear, offset_read};
use crate::generate::spelling::{self as spell, ScalarKind};
use mlc_backends::reference::accelerated::affine::combine;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Affine, Int, Read, Real, Sign, Slot, Truth};
use mlc_backends::reference::scalar::Cmp;
use mlc_dsl::ir::Value;
use std::collections::HashMap;

/// Operands at most.
const MOST: usize = 64;

/// Which operand a vector is read from.
enum SelectedRead {
    /// An element of a value, at this offset.
    Read(Value, Affine),
    /// The first operand where a variable is below a number, else the second one.
    Below(Slot, i64, Box<SelectedRead>, Box<SelectedRead>),
}

/// The half-open range of each variable.
type SlotRanges = HashMap<Slot, (i64, i64)>;

impl SelectedRead {
    fn first(&self) -> Value {
        match self {
            SelectedRead::Read(v, _) => *v,
            SelectedRead::Below(_, _, choice, _) => choice.first(),
        }
    }

    fn count(&self) -> usize {
        match self {
            SelectedRead::Read(..) => 1,
            SelectedRead::Below(_, _, a, b) => a.count() + b.count(),
        }
    }
}

/// The variable and the number that it is compared with, if a condition is that it is below it.
fn below(t: &Truth) -> Option<(Slot, i64)> {
    let Truth::Int(Cmp::Lt, Sign::Signed, a, b) = t else { return None };
    let difference = combine(&linear(a)?, &linear(b)?, -1)?;
    match difference.terms[..] {
        [(slot, 1)] => Some((slot, -difference.constant)),
        _ => None,
    }
}

impl Emitter<'_> {
    fn range(&self, ranges: &SlotRanges, slot: Slot) -> (i64, i64) {
        ranges.get(&slot).copied().unwrap_or((0, self.extents[slot]))
    }

    /// Whether an index never leaves an axis of `n` elements.
    fn stays(&self, ranges: &SlotRanges, index: &Affine, n: i64) -> bool {
        let (mut low, mut high) = (index.constant, index.constant);
        for &(slot, factor) in &index.terms {
            let (first, end) = self.range(ranges, slot);
            let ends = [first, end - 1].map(|v| v.checked_mul(factor));
            let [Some(a), Some(b)] = ends else { return false };
            (low, high) = (low.saturating_add(a.min(b)), high.saturating_add(a.max(b)));
        }
        0 <= low && high < n
    }

    /// What a float of a node reads, if it is one element of memory in each part of the ranges.
    fn choice(&mut self, node: Value, r: &Real, ranges: &SlotRanges) -> Option<SelectedRead> {
        match r {
            Real::If(condition, a, b) => {
                let (slot, n) = below(condition)?;
                let (first, end) = self.range(ranges, slot);
                if n <= first || n >= end {
                    return self.choice(node, if n <= first { b } else { a }, ranges);
                }
                let with = |range| {
                    let mut ranges = ranges.clone();
                    ranges.insert(slot, range);
                    ranges
                };
                let a = self.choice(node, a, &with((first, n)))?;
                let b = self.choice(node, b, &with((n, end)))?;
                let all = SelectedRead::Below(slot, n, Box::new(a), Box::new(b));
                (all.count() <= MOST).then_some(all)
            }
            Real::Read(read) => self.read_choice(node, read, ranges),
            _ => None,
        }
    }

    fn read_choice(
        &mut self,
        node: Value,
        read: &Read<Real>,
        ranges: &SlotRanges,
    ) -> Option<SelectedRead> {
        let source = *self.kernel.program.node(node.node).args.get(read.input)?;
        let stays = |(i, n): (&Int, &i64)| linear(i).is_some_and(|i| self.stays(ranges, &i, *n));
        if !read.index.iter().zip(&read.shape).all(stays) {
            return None;
        }
        if self.kernel.constant(source).is_some() {
            return None;
        }
        if self.stored.contains_key(&source) {
            return Some(SelectedRead::Read(source, offset_read(read)?));
        }
        match self.body_at(source, &read.index)? {
            Body::Real(next) => self.choice(source, &next, ranges),
            Body::Int(..) => None,
        }
    }

    /// Whether such an element is read from memory, with its neighbours of the same turn.
    fn is_packed(&self, choice: &SelectedRead) -> bool {
        let Some(lanes) = &self.lanes else { return false };
        match choice {
            SelectedRead::Read(v, offset) => {
                let is_apart = self.is_elsewhere(*v) || self.unaligned.contains(v);
                !is_apart && lanes.place(offset, &self.extents).is_ok()
            }
            SelectedRead::Below(slot, n, a, b) => {
                lanes.condition(*slot, *n).is_some() && self.is_packed(a) && self.is_packed(b)
            }
        }
    }

    /// The name of an element of one of several values in memory, which this turn reads together with its neighbours.
    pub(super) fn selected(&mut self, node: Value, r: &Real) -> Option<String> {
        let is_open = self.lanes.as_ref().is_some_and(|l| l.scopes == self.scopes.count());
        if !is_open || self.found.is_some() {
            return None;
        }
        let choice = self.choice(node, r, &SlotRanges::new())?;
        let dtype = self.type_of(choice.first());
        if self.type_of(node) != dtype || !self.is_packed(&choice) {
            self.accesses.scalar += 1;
            return None;
        }
        let name = self.local();
        let ty = self.lanes.as_ref()?.pack(dtype);
        self.before_lanes(format!("{ty} {name};"));
        let mut lines = vec![];
        self.write_choice(&choice, &name, 0, &mut lines);
        lines.into_iter().for_each(|line| self.before_lanes(line));
        let element = format!("{name}.at[lane]");
        let loaded = spell::loaded(dtype, &element, self.kind(node) == ScalarKind::Real(true));
        let value = self.local();
        self.line(format!("{} {value} = {loaded};", self.kind(node).name()));
        self.raw.insert(value.clone(), (dtype, element));
        Some(value)
    }

    fn write_choice(
        &mut self,
        choice: &SelectedRead,
        name: &str,
        depth: usize,
        lines: &mut Vec<String>,
    ) {
        let Some(lanes) = &self.lanes else { return };
        let indent = "  ".repeat(depth);
        match choice {
            SelectedRead::Read(v, offset) => {
                let place = lanes.place(offset, &self.extents).unwrap_or_default();
                let load = format!("load_pack<{}>({} + {place})", lanes.width(), self.stored[v]);
                lines.push(format!("{indent}{name} = {load};"));
                self.read.insert(*v);
                self.accesses.vectorized += 1;
            }
            SelectedRead::Below(slot, n, a, b) => {
                let condition = lanes.condition(*slot, *n).unwrap_or_default();
                lines.push(format!("{indent}if ({condition}) {{"));
                self.write_choice(a, name, depth + 1, lines);
                lines.push(format!("{indent}}} else {{"));
                self.write_choice(b, name, depth + 1, lines);
                lines.push(format!("{indent}}}"));
            }
        }
    }
}
