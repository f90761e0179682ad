//! The memory of a plan: an order of its kernels with few bytes alive at once, and a place for every buffer.
//!
//! Intermediate values share one arena; results have memory of their own, which leaves with them. A view has none: it keeps
//! alive what it shows. The given order is kept unless another needs less. Scratch memory of kernels is not counted.

use std::collections::{BTreeMap, HashMap};

use mlc_dsl::arena::{self, Buffer};
use mlc_dsl::ir::{NodeId, NodeKind, Program, Type, Value};
use mlc_dsl::library::{Library, OpClass};
use mlc_dsl::plan::{Kernel, Memory, Place, Plan};

use crate::schedule::{Cell, Job, Jobs, schedule};
use crate::work::elements;

/// A plan of these kernels, ordered and placed. They must come in an order in which they can run.
pub fn plan(program: Program, library: &Library, kernels: Vec<Kernel>, cost: f64) -> Plan {
    let (order, memory) = Needs::of(&program, library, &kernels).planned();
    let mut kernels: Vec<Option<Kernel>> = kernels.into_iter().map(Some).collect();
    let kernels = order.into_iter().filter_map(|k| kernels[k].take()).collect();
    Plan { program, kernels, memory, cost }
}

/// What kernels need of memory.
struct Needs {
    jobs: Jobs,
    /// The value in each buffer.
    values: Vec<Value>,
    /// Bytes of each buffer, as they are asked for.
    bytes: Vec<u64>,
    nominal: bool,
}

/// The bytes of a type, symbols at their nominal value, and whether there are symbols.
fn bytes(ty: &Type) -> (u64, bool) {
    let size = ty.dtype.size() as u64;
    match ty.known_shape() {
        Some(shape) => {
            let known = shape.iter().try_fold(size, |n, &d| n.checked_mul(d as u64));
            (if shape.contains(&0) { 0 } else { known.unwrap_or(u64::MAX) }, false)
        }
        None => ((elements(ty) * size as f64) as u64, true),
    }
}

impl Needs {
    fn of(program: &Program, library: &Library, kernels: &[Kernel]) -> Needs {
        let is_view = |n: NodeId| match &program.node(n).kind {
            NodeKind::Apply(c, _) => library.call(*c).class == OpClass::View,
            NodeKind::Input(_) | NodeKind::Const(_) => false,
        };
        let base = |mut v: Value| {
            while is_view(v.node) {
                v = program.node(v.node).args[0];
            }
            v
        };
        let mut needs =
            Needs { jobs: Jobs::default(), values: vec![], bytes: vec![], nominal: false };
        let mut cell: HashMap<Value, usize> = HashMap::new();
        let mut writer: HashMap<Value, usize> = HashMap::new();
        for (k, kernel) in kernels.iter().enumerate() {
            writer.extend(kernel.outputs.iter().map(|v| (*v, k)));
            for &v in kernel.outputs.iter().filter(|v| !is_view(v.node)) {
                let (bytes, nominal) = bytes(program.ty(v));
                cell.insert(v, needs.values.len());
                needs.values.push(v);
                needs.bytes.push(bytes);
                needs.nominal |= nominal;
                needs.jobs.cells.push(Cell { bytes: arena::rounded(bytes), kept: false });
            }
        }
        for (_, v) in &program.outputs {
            if let Some(&c) = cell.get(&base(*v)) {
                needs.jobs.cells[c].kept = true;
            }
        }
        for kernel in kernels {
            let list = |values: &mut dyn Iterator<Item = &Value>, of: &HashMap<Value, usize>| {
                let mut out: Vec<usize> = values.filter_map(|v| of.get(v).copied()).collect();
                out.sort_unstable();
                out.dedup();
                out
            };
            let read: Vec<Value> = kernel.inputs.iter().map(|v| base(*v)).collect();
            needs.jobs.jobs.push(Job {
                after: list(&mut kernel.inputs.iter(), &writer),
                reads: list(&mut read.iter(), &cell),
                writes: list(&mut kernel.outputs.iter(), &cell),
            });
        }
        needs
    }

    /// The better of the given order and the one searched, with its memory.
    fn planned(&self) -> (Vec<usize>, Memory) {
        // Results take no room in the arena, which is what an order can make smaller.
        let mut arena = self.jobs.clone();
        arena.cells.iter_mut().filter(|c| c.kept).for_each(|c| c.bytes = 0);
        let found = schedule(&arena);
        let given: Vec<usize> = (0..self.jobs.jobs.len()).collect();
        let least = found.least.max(self.jobs.least());
        if found.order == given {
            let memory = self.memory(&given, least);
            return (given, memory);
        }
        let (before, after) = (self.memory(&given, least), self.memory(&found.order, least));
        match after.peak() < before.peak() {
            true => (found.order, after),
            false => (given, before),
        }
    }

    /// The memory of an order.
    fn memory(&self, order: &[usize], least: u64) -> Memory {
        let alive = self.jobs.profile(order).into_iter().max().unwrap_or(0);
        let mut life: BTreeMap<usize, Buffer> = BTreeMap::new();
        for (at, &j) in order.iter().enumerate() {
            let job = &self.jobs.jobs[j];
            for &c in job.writes.iter().chain(&job.reads) {
                let new = Buffer { start: at, end: at, bytes: self.bytes[c] };
                let known = life.entry(c).or_insert(new);
                known.end = known.end.max(at);
            }
        }
        let kept = |c: &usize| self.jobs.cells[*c].kept;
        let inner: Vec<(usize, Buffer)> =
            life.iter().filter(|(c, _)| !kept(c)).map(|(&c, &b)| (c, b)).collect();
        let buffers: Vec<Buffer> = inner.iter().map(|(_, b)| *b).collect();
        let arena = arena::place(&buffers);
        let mut places: Vec<(usize, Place)> = inner
            .iter()
            .zip(&arena.offsets)
            .map(|((c, b), &offset)| {
                (b.start, Place { value: self.values[*c], offset, bytes: b.bytes })
            })
            .collect();
        places.sort_by_key(|(start, p)| (*start, p.value));
        let results = (0..self.values.len()).filter(kept);
        Memory {
            places: places.into_iter().map(|(_, p)| p).collect(),
            arena: arena.bytes,
            results: results.fold(0, |n, c| n.saturating_add(self.jobs.cells[c].bytes)),
            alive,
            least: least.min(alive),
            nominal: self.nominal,
        }
    }
}
