//! Splits a kernel into stages: each is one launch, stores one value, and has a schedule.
//!
//! A value with loops is fused into its reader as far as a schedule allows; otherwise it is a stage of its own, and is read from memory.

use super::emit::Emitter;
use super::flash_attention::FlashAttention;
use super::kernel::{KernelProgram, variable};
use super::procedure::TypedShape;
use super::product::{Contraction, Product};
use super::reduction::scan::Scan;
use super::reduction::split::{FEW, SplitReduction};
use super::reduction::vectorized::VectorizedReduction;
use super::reduction::windows::WindowedReduction;
use crate::launch::Place;
use mlc_backends::reference::code::{Affine, Int, Slot};
use mlc_dsl::ir::{NodeId, Value};
use std::collections::BTreeSet;

/// Iterations from which on the threads of a block share a loop.
const SHARED: i64 = 32;

/// How the elements of a value are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Elementwise: an element for each thread.
    Elements,
    /// A block for each index of these output axes, counted from the left; its threads share loops.
    RowPerBlock(Vec<usize>),
    /// A scan: one pass over an axis for each row.
    Scan(Scan),
    /// Tiles of this product, with what follows element by element as the epilogue.
    TiledProduct(Value),
    /// Tiles of this product, whose left factor is the softmax of another one, in one pass over the keys.
    FlashAttention(Value),
    /// The same with the keys split over blocks; the last block of a tile combines the partial results.
    SplitKv(Value, TypedShape),
    /// A reduction split over blocks; the last block of a result combines the parts.
    SplitReduction(SplitReduction),
    /// Tiles of this product with its depth split over blocks; the last block of a tile adds the parts, and computes the epilogue.
    SplitK(Value, TypedShape),
    /// The epilogue of this product, whose sums a library stores at this place.
    EpilogueOnly(Value, TypedShape, Place),
    /// The launches of a node that has no meaning, which store all of its results.
    Procedure,
    /// A block for each instance of a recurrence, which stores the results that take part in its steps.
    Recurrence,
}

impl Schedule {
    /// The type of the partial results that the last block combines; the first axis counts their tiles.
    pub fn parts(&self) -> Option<TypedShape> {
        match self {
            Schedule::SplitReduction(split) => Some(split.ty()),
            Schedule::SplitK(_, ty) | Schedule::SplitKv(_, ty) => Some(ty.clone()),
            _ => None,
        }
    }

    /// The schedule of a product whose depth is split if there are types of partial sums.
    pub fn of_product(product: Value, parts: Option<TypedShape>) -> Schedule {
        parts.map_or(Schedule::TiledProduct(product), |ty| Schedule::SplitK(product, ty))
    }

    /// The product of which tiles are computed, if any are.
    pub fn product(&self) -> Option<Value> {
        match self {
            Schedule::TiledProduct(product) | Schedule::SplitK(product, _) => Some(*product),
            _ => None,
        }
    }

    /// What each block or thread computes, for a reader of the code.
    pub fn words(&self) -> &'static str {
        match self {
            Schedule::Elements => "an element for each thread",
            Schedule::RowPerBlock(_) => "a row for each block",
            Schedule::Scan(_) => "a running reduction in one pass",
            Schedule::TiledProduct(_) => "a tile of a product for each block",
            Schedule::SplitReduction(_) => "a part of a reduction for each block",
            Schedule::SplitK(..) => "a tile of a part of a product for each block",
            Schedule::EpilogueOnly(..) => "an element of a product that is there for each thread",
            Schedule::FlashAttention(_) => {
                "a tile of a product with a normalised factor for each block"
            }
            Schedule::SplitKv(..) => "a part of a product with a normalised factor for each block",
            Schedule::Procedure => "by a procedure",
            Schedule::Recurrence => "step by step",
        }
    }
}

/// A launch: what it stores, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The value.
    pub value: Value,
    /// How it is computed.
    pub schedule: Schedule,
}

/// The stages of a kernel, in order.
pub fn stages(kernel: &KernelProgram) -> Vec<Stage> {
    let mut p = StagePlanner { kernel, out: vec![], stored: BTreeSet::new() };
    // What has no meaning, or reads its own results, can only be read from memory.
    for i in 0..kernel.program.nodes.len() as u32 {
        let node = NodeId(i);
        if kernel.procedures.contains_key(&node) {
            p.procedure(node, Schedule::Procedure);
        } else if kernel.recurrences.contains_key(&node) {
            p.procedure(node, Schedule::Recurrence);
        }
    }
    for (v, _) in &kernel.outputs {
        p.store(*v);
    }
    p.out
}

/// A value as rows that share their reductions.
struct RowSplit {
    /// The output axes that tell rows apart, counted from the left.
    axes: Vec<usize>,
    /// The reductions.
    reductions: BTreeSet<Value>,
}

struct StagePlanner<'k> {
    kernel: &'k KernelProgram,
    out: Vec<Stage>,
    stored: BTreeSet<Value>,
}

fn is_zero(i: &Int) -> bool {
    matches!(i, Int::Affine(Affine { constant: 0, terms }) if terms.is_empty())
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
            return self.push(v, Schedule::Elements);
        }
        if let Some(scan) = Scan::recognise(self.kernel, v) {
            self.factors(v);
            return self.push(v, Schedule::Scan(scan));
        }
        let (mut e, slots, index) = self.at(v);
        let found = e.analyse(&[(v, index.clone())]).reductions;
        if let [(product, _), rest @ ..] = found.as_slice()
            && rest.iter().all(|r| *r == found[0])
            && found[0].1 == index
        {
            let product = *product;
            if let Some(one_pass) = FlashAttention::recognise(&mut e, self.kernel, product) {
                let parts = one_pass.parts();
                one_pass.needed.into_iter().for_each(|h| self.store(h));
                let schedule = parts
                    .map_or(Schedule::FlashAttention(product), |ty| Schedule::SplitKv(product, ty));
                return self.push(v, schedule);
            }
            let contraction = Contraction::recognise(&e, self.kernel, product);
            // Products of vectors for each of many elements side by side share nothing.
            let is_wide = contraction.as_ref().is_some_and(Contraction::has_batch_last)
                && VectorizedReduction::recognise(&mut e, v, &index, &self.axes(v, &slots))
                    .is_some();
            if contraction.is_some() && !is_wide {
                self.factors(product);
                let found = Product::recognise(&mut self.at(product).0, self.kernel, product);
                let parts = found.and_then(|p| p.parts());
                let schedule = Schedule::of_product(product, parts);
                return self.push(v, schedule);
            }
        }
        if let Some(rows) = self.rows(&mut e, &slots, &found) {
            return self.store_rows(v, rows);
        }
        if let [one] = found.as_slice()
            && one.1 == index
            && self.is_one_launch(&mut e, v, &index, &slots)
        {
            return self.push(v, Schedule::Elements);
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
            for (h, _) in e.analyse_body(v, &index).reductions {
                self.store(h);
            }
        }
        // What is in memory by now may leave rows.
        let (mut e, slots, index) = self.at(v);
        let found = e.analyse(&[(v, index)]).reductions;
        match self.rows(&mut e, &slots, &found) {
            Some(rows) => self.store_rows(v, rows),
            None => self.push(v, Schedule::Elements),
        }
    }

    /// Whether a value and the reduction in it are computed by one launch, an element or several for each thread.
    fn is_one_launch(&self, e: &mut Emitter<'_>, v: Value, index: &[Int], slots: &[Slot]) -> bool {
        let axes = self.axes(v, slots);
        VectorizedReduction::recognise(e, v, index, &axes).is_some()
            || WindowedReduction::recognise(e, v, index, &axes).is_some()
    }

    /// Adds the stages of a value of rows: where they are few and long, their reductions are split, and stored first.
    fn store_rows(&mut self, v: Value, rows: RowSplit) {
        let shape = self.shape_of(v);
        if rows.axes.iter().map(|&a| shape[a]).product::<i64>() > FEW {
            return self.push(v, Schedule::RowPerBlock(rows.axes));
        }
        let (own, others): (Vec<Value>, Vec<Value>) =
            rows.reductions.iter().partition(|h| **h == v);
        let others =
            others.into_iter().filter(|h| SplitReduction::recognise(self.kernel, *h).is_some());
        let others: Vec<Value> = others.collect();
        others.iter().for_each(|h| self.store(*h));
        match SplitReduction::recognise(self.kernel, v).filter(|_| !own.is_empty()) {
            Some(split) => self.push(v, Schedule::SplitReduction(split)),
            None if others.is_empty() => self.push(v, Schedule::RowPerBlock(rows.axes)),
            None => self.store(v),
        }
    }

    /// Stores the arguments of a node without a meaning, or of a recurrence, then its results.
    fn procedure(&mut self, node: NodeId, schedule: Schedule) {
        let node_of = self.kernel.program.node(node);
        let has_steps = schedule == Schedule::Recurrence;
        for &v in node_of.args.iter().filter(|v| self.kernel.input(**v).is_none()) {
            if !has_steps || self.kernel.constant(v).is_none() {
                self.store(v);
            }
        }
        self.push(Value { node, output: 0 }, schedule);
        let results = (0..node_of.types.len() as u32).map(|output| Value { node, output });
        for v in results {
            let own = self.kernel.code(v).is_some_and(|c| c.step.is_some());
            if has_steps && !own {
                self.push(v, Schedule::Elements);
            }
            self.stored.insert(v);
        }
    }

    /// Stores the reductions that the factors of a product, or a scan, read.
    fn factors(&mut self, product: Value) {
        let (mut e, _, index) = self.at(product);
        for (h, _) in e.analyse_body(product, &index).reductions {
            self.store(h);
        }
    }

    fn push(&mut self, value: Value, schedule: Schedule) {
        self.out.push(Stage { value, schedule });
        self.stored.insert(value);
    }

    /// The rows of a value, if all its reductions are uniform along a row.
    fn rows(
        &self,
        e: &mut Emitter<'_>,
        slots: &[Slot],
        found: &[(Value, Vec<Int>)],
    ) -> Option<RowSplit> {
        let mut rows: Option<BTreeSet<Slot>> = None;
        let mut longest = 0;
        let mut open: Vec<(Value, Vec<Int>)> = found.to_vec();
        let mut seen: Vec<(Value, Vec<Int>)> = vec![];
        let mut reductions = BTreeSet::new();
        while let Some((h, index)) = open.pop() {
            if Contraction::recognise(e, self.kernel, h).is_some()
                || Scan::recognise(self.kernel, h).is_some()
            {
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
            let next = e.analyse_body(h, &index).reductions;
            let next: Vec<_> = next.into_iter().filter(|n| !seen.contains(n)).collect();
            seen.extend(next.iter().cloned());
            open.extend(next);
        }
        let rows = rows?;
        let place = |s: &Slot| slots.iter().position(|t| t == s);
        let axes = rows.iter().filter_map(place).collect();
        (longest >= SHARED).then_some(RowSplit { axes, reductions })
    }
}
