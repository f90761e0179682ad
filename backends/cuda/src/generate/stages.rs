//! A kernel as stages: each is one launch, and stores one value.
//!
//! A value that takes loops is computed where it is read, as far as one of three shapes of loop allows it: the tiles of a
//! product, a row of elements for each block, or an element for each thread. Otherwise it is a stage of its own, and is read from memory.

use super::emit::Emitter;
use super::flash_attention::OnePass;
use super::kernel::KernelProgram;
use super::procedures::Known;
use super::product::{Contraction, Product};
use super::reduction::scan::Scan;
use super::reduction::split::{FEW, Split};
use super::reduction::vectorized::Wide;
use super::reduction::windows::Windows;
use crate::launch::Place;
use mlc_backends::reference::code::{Affine, Int, Slot};
use mlc_dsl::ir::{NodeId, Value};
use std::collections::BTreeSet;

/// Elements of a loop from which on the threads of a block share it.
const SHARED: i64 = 32;

/// How the elements of a value are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An element for each thread.
    Elements,
    /// A block for each index of these output axes, counted from the left; its threads share loops.
    Rows(Vec<usize>),
    /// A pass over an axis for each row.
    Scan(Scan),
    /// Tiles of this product, and what follows it element by element.
    Tiles(Value),
    /// Tiles of this product, whose left factor is normalised by rows as it is computed.
    OnePass(Value),
    /// The same of a part of what such a product sums over; the block of a tile that ends last puts what blocks leave together.
    Keys(Value, Known),
    /// Blocks for parts of a reduction; the one of a result that ends last combines them.
    Split(Split),
    /// Tiles of parts of the depth of this product; the block of a tile that ends last adds what blocks leave, and computes what follows.
    Deep(Value, Known),
    /// What follows this product, which is in this place.
    Rest(Value, Known, Place),
    /// The launches of a node that has no meaning, which store all of its results.
    Procedure,
    /// A block for each instance of a recurrence, which stores the results that take part in its steps.
    Steps,
}

impl Shape {
    /// What blocks leave for the one that ends last, the first axis for what they have in common.
    pub fn parts(&self) -> Option<Known> {
        match self {
            Shape::Split(split) => Some(split.ty()),
            Shape::Deep(_, ty) | Shape::Keys(_, ty) => Some(ty.clone()),
            _ => None,
        }
    }

    /// What each block or thread has, for a reader of the code.
    pub fn words(&self) -> &'static str {
        match self {
            Shape::Elements => "an element for each thread",
            Shape::Rows(_) => "a row for each block",
            Shape::Scan(_) => "a running reduction in one pass",
            Shape::Tiles(_) => "a tile of a product for each block",
            Shape::Split(_) => "a part of a reduction for each block",
            Shape::Deep(..) => "a tile of a part of a product for each block",
            Shape::Rest(..) => "an element of a product that is there for each thread",
            Shape::OnePass(_) => "a tile of a product with a normalised factor for each block",
            Shape::Keys(..) => "a part of a product with a normalised factor for each block",
            Shape::Procedure => "by a procedure",
            Shape::Steps => "step by step",
        }
    }
}

/// A launch: what it stores, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The value.
    pub value: Value,
    /// How it is computed.
    pub shape: Shape,
}

/// The stages of a kernel, in order.
pub fn stages(kernel: &KernelProgram) -> Vec<Stage> {
    let mut p = StagePlanner { kernel, out: vec![], stored: BTreeSet::new() };
    // What has no meaning, or reads its own results, can only be read from memory.
    for i in 0..kernel.program.nodes.len() as u32 {
        let node = NodeId(i);
        if kernel.procedures.contains_key(&node) {
            p.procedure(node, Shape::Procedure);
        } else if kernel.recurrences.contains_key(&node) {
            p.procedure(node, Shape::Steps);
        }
    }
    for (v, _) in &kernel.outputs {
        p.store(*v);
    }
    p.out
}

/// How a value falls into rows.
struct Rows {
    /// The output axes that tell rows apart, counted from the left.
    axes: Vec<usize>,
    /// What takes loops.
    reductions: BTreeSet<Value>,
}

struct StagePlanner<'k> {
    kernel: &'k KernelProgram,
    out: Vec<Stage>,
    stored: BTreeSet<Value>,
}

/// The index variable that an index is.
pub fn variable(i: &Int) -> Option<Slot> {
    match i {
        Int::Affine(Affine { constant: 0, terms }) => match terms.as_slice() {
            [(s, 1)] => Some(*s),
            _ => None,
        },
        Int::Slot(s) => Some(*s),
        _ => None,
    }
}

fn is_zero(i: &Int) -> bool {
    matches!(i, Int::Affine(Affine { constant: 0, terms }) if terms.is_empty())
}

/// True for one element of one value.
fn same(a: &(Value, Vec<Int>), b: &(Value, Vec<Int>)) -> bool {
    a.0 == b.0 && format!("{:?}", a.1) == format!("{:?}", b.1)
}

impl StagePlanner<'_> {
    fn shape_of(&self, v: Value) -> Vec<i64> {
        let shape = self.kernel.program.ty(v).known_shape().unwrap_or_default();
        shape.iter().map(|&n| n as i64).collect()
    }

    /// The axes of a value, by its index variables.
    fn axes(&self, v: Value, slots: &[Slot]) -> Vec<(Slot, i64)> {
        slots.iter().copied().zip(self.shape_of(v)).collect()
    }

    /// An emitter at an element of a value, and the element's index.
    fn at(&self, v: Value) -> (Emitter<'_>, Vec<Slot>, Vec<Int>) {
        let mut e = Emitter::new(self.kernel);
        e.stored = self.stored.iter().map(|v| (*v, String::new())).collect();
        for i in 0..self.kernel.program.nodes.len() as u32 {
            let v = Value { node: NodeId(i), output: 0 };
            if self.kernel.input(v).is_some() {
                e.stored.insert(v, String::new());
            }
        }
        let slots: Vec<Slot> = self.shape_of(v).into_iter().map(|n| e.variable(n)).collect();
        let index = slots.iter().map(|s| Emitter::index(*s)).collect();
        (e, slots, index)
    }

    /// Adds the stages that a value needs, then its own.
    fn store(&mut self, v: Value) {
        if self.stored.contains(&v) {
            return;
        }
        // What is there already is copied.
        if self.kernel.input(v).is_some() {
            return self.push(v, Shape::Elements);
        }
        if let Some(scan) = Scan::of(self.kernel, v) {
            self.factors(v);
            return self.push(v, Shape::Scan(scan));
        }
        let (mut e, slots, index) = self.at(v);
        let found = e.look(&[(v, index.clone())]).reductions;
        if let [(product, _), rest @ ..] = found.as_slice()
            && rest.iter().all(|r| same(r, &found[0]))
            && same(&found[0], &(*product, index.clone()))
        {
            let product = *product;
            if let Some(one_pass) = OnePass::of(&mut e, self.kernel, product) {
                let parts = one_pass.parts();
                one_pass.needed.into_iter().for_each(|h| self.store(h));
                let shape = parts.map_or(Shape::OnePass(product), |ty| Shape::Keys(product, ty));
                return self.push(v, shape);
            }
            let contraction = Contraction::of(&e, self.kernel, product);
            // Products of vectors for each of many elements side by side share nothing.
            let is_wide = contraction.as_ref().is_some_and(Contraction::has_batch_last)
                && Wide::of(&mut e, v, &index, &self.axes(v, &slots)).is_some();
            if contraction.is_some() && !is_wide {
                self.factors(product);
                let found = Product::of(&mut self.at(product).0, self.kernel, product);
                let parts = found.and_then(|p| p.parts());
                let shape = parts.map_or(Shape::Tiles(product), |ty| Shape::Deep(product, ty));
                return self.push(v, shape);
            }
        }
        if let Some(rows) = self.rows(&mut e, &slots, &found) {
            return self.store_rows(v, rows);
        }
        if let [one] = found.as_slice()
            && same(one, &(one.0, index.clone()))
            && self.is_one_launch(&mut e, v, &index, &slots)
        {
            return self.push(v, Shape::Elements);
        }
        for (h, _) in found {
            // What is short is computed again wherever it is read.
            let elements = self.shape_of(v).iter().product::<i64>();
            if h != v && self.kernel.loops(h).saturating_mul(elements) > SHARED {
                self.store(h);
            }
        }
        if self.kernel.reduces(v) {
            let (mut e, _, index) = self.at(v);
            for (h, _) in e.look_inside(v, &index).reductions {
                self.store(h);
            }
        }
        // What is in memory by now may leave rows.
        let (mut e, slots, index) = self.at(v);
        let found = e.look(&[(v, index)]).reductions;
        match self.rows(&mut e, &slots, &found) {
            Some(rows) => self.store_rows(v, rows),
            None => self.push(v, Shape::Elements),
        }
    }

    /// Whether a value and the reduction in it are computed by one launch, an element or several for each thread.
    fn is_one_launch(&self, e: &mut Emitter<'_>, v: Value, index: &[Int], slots: &[Slot]) -> bool {
        let axes = self.axes(v, slots);
        Wide::of(e, v, index, &axes).is_some() || Windows::of(e, v, index, &axes).is_some()
    }

    /// Adds the stages of a value that fits rows: where they are few and long, what they reduce is stored first.
    fn store_rows(&mut self, v: Value, rows: Rows) {
        let shape = self.shape_of(v);
        if rows.axes.iter().map(|&a| shape[a]).product::<i64>() > FEW {
            return self.push(v, Shape::Rows(rows.axes));
        }
        let (own, others): (Vec<Value>, Vec<Value>) =
            rows.reductions.iter().partition(|h| **h == v);
        let others = others.into_iter().filter(|h| Split::of(self.kernel, *h).is_some());
        let others: Vec<Value> = others.collect();
        others.iter().for_each(|h| self.store(*h));
        match Split::of(self.kernel, v).filter(|_| !own.is_empty()) {
            Some(split) => self.push(v, Shape::Split(split)),
            None if others.is_empty() => self.push(v, Shape::Rows(rows.axes)),
            None => self.store(v),
        }
    }

    /// Stores what a node without a meaning, or with steps, takes, then its results.
    fn procedure(&mut self, node: NodeId, shape: Shape) {
        let node_of = self.kernel.program.node(node);
        let has_steps = shape == Shape::Steps;
        for &v in node_of.args.iter().filter(|v| self.kernel.input(**v).is_none()) {
            if !has_steps || self.kernel.constant(v).is_none() {
                self.store(v);
            }
        }
        self.push(Value { node, output: 0 }, shape);
        let results = (0..node_of.types.len() as u32).map(|output| Value { node, output });
        for v in results {
            let own = self.kernel.code(v).is_some_and(|c| c.step.is_some());
            if has_steps && !own {
                self.push(v, Shape::Elements);
            }
            self.stored.insert(v);
        }
    }

    /// Stores what the factors of a product, or a running reduction, read that takes loops.
    fn factors(&mut self, product: Value) {
        let (mut e, _, index) = self.at(product);
        for (h, _) in e.look_inside(product, &index).reductions {
            self.store(h);
        }
    }

    fn push(&mut self, value: Value, shape: Shape) {
        self.out.push(Stage { value, shape });
        self.stored.insert(value);
    }

    /// The rows of a value, if everything that takes loops is the same all along a row.
    fn rows(
        &self,
        e: &mut Emitter<'_>,
        slots: &[Slot],
        found: &[(Value, Vec<Int>)],
    ) -> Option<Rows> {
        let mut rows: Option<BTreeSet<Slot>> = None;
        let mut longest = 0;
        let mut open: Vec<(Value, Vec<Int>)> = found.to_vec();
        let mut seen: Vec<(Value, Vec<Int>)> = vec![];
        let mut reductions = BTreeSet::new();
        while let Some((h, index)) = open.pop() {
            if Contraction::of(e, self.kernel, h).is_some() || Scan::of(self.kernel, h).is_some() {
                return None;
            }
            let mut own = BTreeSet::new();
            for i in &index {
                match variable(i) {
                    Some(s) if slots.contains(&s) => drop(own.insert(s)),
                    _ if is_zero(i) => {}
                    _ => return None,
                }
            }
            let rows = rows.get_or_insert_with(|| own.clone());
            if !own.is_subset(rows) {
                return None;
            }
            longest = longest.max(self.kernel.loops(h));
            reductions.insert(h);
            let next = e.look_inside(h, &index).reductions;
            let next: Vec<_> =
                next.into_iter().filter(|n| !seen.iter().any(|s| same(s, n))).collect();
            seen.extend(next.iter().cloned());
            open.extend(next);
        }
        let rows = rows?;
        let place = |s: &Slot| slots.iter().position(|t| t == s);
        let axes = rows.iter().filter_map(place).collect();
        (longest >= SHARED).then_some(Rows { axes, reductions })
    }
}
