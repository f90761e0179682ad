//! Splits a kernel with open extents into stages: each is one launch, stores one value, and has a schedule.
//!
//! As [`stages`](crate::generate::stages) does for known extents. Which schedule a value has depends on no extent of a run.

use super::attention::OpenAttention;
use super::emitter::{ElementAt, OpenEmitter};
use super::form::{Form, Variable};
use super::product::Contraction;
use super::program::{OpenProgram, product};
use super::scan::{OpenScan, is_running};
use mlc_backends::reference::accelerated::affine::visitor::AffineVisitor;
use mlc_backends::reference::code::compile::Body;
use mlc_backends::reference::code::{Int, Read, Real, Slot};
use mlc_dsl::ir::{Extent, Value};
use std::collections::BTreeSet;

/// Iterations from which on the threads of a block share a loop; an open number of them may be as many.
const SHARED: i64 = 32;

/// How the elements of a value are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSchedule {
    /// An element for each thread.
    Elements,
    /// A block or a warp for each index of these output axes, counted from the left; its threads share loops.
    Rows(Vec<usize>),
    /// A tile of this product for each block, with what follows element by element.
    Product(Value),
    /// A running reduction: one pass over an axis for each row.
    Scan,
    /// Tiles of this product, whose left factor is the softmax of another one, in one pass over the keys.
    Attention(Value),
}

/// A launch: what it stores, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStage {
    pub value: Value,
    pub schedule: OpenSchedule,
}

/// The stages of a kernel, in order.
///
/// # Errors
/// Why its code has to be generated for each set of extents.
pub fn stages(kernel: &OpenProgram) -> Result<Vec<OpenStage>, String> {
    let mut p = Planner { kernel, out: vec![], stored: BTreeSet::new() };
    for (v, _) in &kernel.outputs {
        p.store(*v)?;
    }
    Ok(p.out)
}

struct Planner<'k> {
    kernel: &'k OpenProgram,
    out: Vec<OpenStage>,
    stored: BTreeSet<Value>,
}

/// Whether so many iterations are worth sharing.
fn is_long(extents: &[Extent]) -> bool {
    product(extents).as_const().is_none_or(|n| n >= SHARED)
}

impl<'k> Planner<'k> {
    /// An emitter at an element of a value, and the element's index.
    fn at(&self, v: Value) -> (OpenEmitter<'k>, Vec<Variable>, Vec<Form>) {
        let mut e = OpenEmitter::new(self.kernel, "int");
        let inputs = self.kernel.values().filter(|v| self.kernel.input(*v).is_some());
        e.stored = self.stored.iter().copied().chain(inputs).map(|v| (v, "x".into())).collect();
        let shape = self.kernel.shape(v);
        let own: Vec<Variable> = shape.iter().map(|n| e.variable(n).0).collect();
        let index = own.iter().map(|v| Form::variable(*v)).collect();
        (e, own, index)
    }

    /// Adds the stages that a value needs, then its own.
    fn store(&mut self, v: Value) -> Result<(), String> {
        if self.stored.contains(&v) {
            return Ok(());
        }
        // What is there already is copied.
        if self.kernel.input(v).is_some() {
            self.push(v, OpenSchedule::Elements);
            return Ok(());
        }
        if is_running(self.kernel, v) {
            return self.running(v);
        }
        let (e, _, index) = self.at(v);
        for (h, _) in e.analyse(|e| drop(e.element(v, &index))) {
            if is_running(self.kernel, h) {
                self.store(h)?;
            }
        }
        let (e, own, index) = self.at(v);
        let found = e.analyse(|e| drop(e.element(v, &index)));
        if let [(h, at), rest @ ..] = found.as_slice()
            && rest.iter().all(|r| *r == found[0])
            && *at == index
        {
            // Which unit multiplies changes nothing of what an attention is.
            if let Some(attention) = OpenAttention::recognise(&mut self.at(*h).0, *h, false) {
                if let Some(why) = attention.refusal() {
                    return Err(why.into());
                }
                attention.needed.into_iter().try_for_each(|needed| self.store(needed))?;
                self.push(v, OpenSchedule::Attention(*h));
                return Ok(());
            }
            if let Some(c) = self.contraction(*h) {
                let is_direct = c.is_direct(self.kernel, *h);
                if c.is_convolution && !is_direct {
                    return Err("a convolution's tiles are cut for its extents".into());
                }
                self.factors(*h)?;
                let tiles = OpenSchedule::Product(*h);
                self.push(v, if is_direct { OpenSchedule::Elements } else { tiles });
                return Ok(());
            }
        }
        if let Some(rows) = self.rows(&e, &own, &found) {
            self.push(v, OpenSchedule::Rows(rows));
            return Ok(());
        }
        let elements = self.kernel.shape(v);
        for (h, _) in found {
            // What is short is computed again wherever it is read.
            let work = [self.kernel.loops(h), elements.to_vec()].concat();
            let is_long = product(&work).as_const().is_none_or(|n| n > SHARED);
            if h != v && (is_long || self.contraction(h).is_some()) {
                self.store(h)?;
            }
        }
        if self.kernel.reduces(v) {
            let (e, _, index) = self.at(v);
            for (h, _) in e.analyse_body(v, &index) {
                self.store(h)?;
            }
        }
        // What is in memory by now may leave rows.
        let (e, own, index) = self.at(v);
        let found = e.analyse(|e| drop(e.element(v, &index)));
        let rows = self.rows(&e, &own, &found);
        self.push(v, rows.map_or(OpenSchedule::Elements, OpenSchedule::Rows));
        Ok(())
    }

    /// Stores a running reduction, behind what its terms reduce.
    fn running(&mut self, v: Value) -> Result<(), String> {
        let (mut e, ..) = self.at(v);
        let Some(scan) = OpenScan::recognise(&mut e, v) else {
            return Err("what a running reduction combines is cut for its extents".into());
        };
        scan.needed(&e).into_iter().try_for_each(|(h, _)| self.store(h))?;
        self.push(v, OpenSchedule::Scan);
        Ok(())
    }

    fn push(&mut self, value: Value, schedule: OpenSchedule) {
        self.out.push(OpenStage { value, schedule });
        self.stored.insert(value);
    }

    /// Stores what the factors of a product reduce.
    ///
    /// # Errors
    /// Products are among it, between which a row is normalised.
    fn factors(&mut self, h: Value) -> Result<(), String> {
        let (e, _, index) = self.at(h);
        let direct = e.analyse_body(h, &index);
        let mut open = direct.clone();
        let mut seen = open.clone();
        while let Some((r, at)) = open.pop() {
            let next = e.analyse_body(r, &at);
            if next.iter().any(|(n, _)| self.contraction(*n).is_some()) {
                return Err(
                    "what lies between two products, and takes rows, is cut for its extents".into(),
                );
            }
            let next: Vec<ElementAt> = next.into_iter().filter(|n| !seen.contains(n)).collect();
            seen.extend(next.iter().cloned());
            open.extend(next);
        }
        direct.into_iter().try_for_each(|(r, _)| self.store(r))
    }

    fn contraction(&self, v: Value) -> Option<Contraction> {
        Contraction::recognise(self.kernel, v)
    }

    /// The output axes that tell rows apart, if all reductions behind a value are uniform along a row and one of them is long.
    fn rows(
        &self,
        e: &OpenEmitter<'k>,
        own: &[Variable],
        found: &[ElementAt],
    ) -> Option<Vec<usize>> {
        let mut rows: Option<BTreeSet<Variable>> = None;
        let (mut open, mut seen) = (found.to_vec(), found.to_vec());
        let mut is_worth = false;
        while let Some((h, index)) = open.pop() {
            if self.contraction(h).is_some() {
                return None;
            }
            let mut used = BTreeSet::new();
            for i in &index {
                match i.as_variable() {
                    Some(v) if own.contains(&v) => drop(used.insert(v)),
                    _ if i.as_number().is_some_and(|n| n.is(0)) => {}
                    _ => return None,
                }
            }
            let rows = rows.get_or_insert_with(|| used.clone());
            if !used.is_subset(rows) || self.is_side_by_side(h) {
                return None;
            }
            is_worth |= is_long(&self.kernel.loops(h)) && self.kernel.reduction(h).is_some();
            let next = e.analyse_body(h, &index);
            let next: Vec<ElementAt> = next.into_iter().filter(|n| !seen.contains(n)).collect();
            seen.extend(next.iter().cloned());
            open.extend(next);
        }
        let rows = rows.filter(|_| is_worth)?;
        Some(rows.iter().filter_map(|s| own.iter().position(|t| t == s)).collect())
    }

    /// Whether neighbours among the results read neighbours in memory, and the terms of one of them do not.
    fn is_side_by_side(&self, h: Value) -> bool {
        let Some(code) = self.kernel.code(h) else { return false };
        let Some(last) = code.axes.last() else { return false };
        let over = self.kernel.reduction(h).unwrap_or_default();
        let mut found = false;
        each_read(&code.body, &mut |index: &[Int]| {
            let Some(i) = index.last() else { return };
            found |= i.reads(*last) && !over.iter().any(|s: &Slot| i.reads(*s));
        });
        found
    }
}

/// Shows the index of the first reads of a body: those of its outermost operations.
fn each_read(body: &Body, show: &mut dyn FnMut(&[Int])) {
    fn real(r: &Real, show: &mut dyn FnMut(&[Int])) {
        match r {
            Real::Read(read) => index(read, show),
            Real::Unary(_, a) | Real::Neg(a) | Real::Round(_, a) => real(a, show),
            Real::Binary(_, a, b) | Real::If(_, a, b) => {
                real(a, show);
                real(b, show);
            }
            Real::Reduce(r) => real(&r.body, show),
            Real::Const(_) | Real::FromInt(..) => {}
        }
    }
    fn int(i: &Int, show: &mut dyn FnMut(&[Int])) {
        match i {
            Int::Read(read) => index(read, show),
            Int::Reduce(r) => int(&r.body, show),
            Int::Wrap(_, a) => int(a, show),
            Int::Binary(_, a, b) => {
                int(a, show);
                int(b, show);
            }
            _ => {}
        }
    }
    fn index<E>(read: &Read<E>, show: &mut dyn FnMut(&[Int])) {
        show(&read.index);
    }
    match body {
        Body::Real(r) => real(r, show),
        Body::Int(_, i) => int(i, show),
    }
}
