//! Memory planning: intermediate values get buffers in one arena, results memory of their own; views alias what they read.
//!
//! The only place that decides this. A view that strides can express has no buffer and keeps its operand alive; otherwise the
//! kernel that reads it writes it out first. What depends only on constants is computed before the run. Scratch memory of kernels is
//! not counted.

use super::Kernel;
use crate::arena::{self, Buffer};
use crate::ir::{Attr, Extent, NodeId, NodeKind, Program, Type, Value};
use crate::layout::Layout;
use crate::library::Library;
use crate::strided_views::{self, Viewed};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The value of every symbol when bytes are estimated.
pub const NOMINAL: i64 = 32;

/// Whose memory a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// The plan's, from this byte on.
    Arena(u64),
    /// The caller's: it holds a result.
    Result,
}

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// The kernel that writes it.
    pub kernel: usize,
    /// The value that it holds: one that the kernel yields, or a view that it writes out.
    pub value: Value,
    /// Size in bytes; nominal where extents are symbolic.
    pub bytes: u64,
    /// Where it is.
    pub home: Home,
}

/// The buffers of a plan: intermediate values share one arena, results have memory of their own, which the caller keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All buffers, in order of execution.
    pub places: Vec<PlannedBuffer>,
    /// The kernels whose results are known before a run, for only constants feed them.
    pub once: Vec<bool>,
    /// Bytes of the arena.
    pub arena: u64,
    /// Bytes of the results.
    pub results: u64,
    /// The most bytes alive at once in this order of kernels: no placement takes less.
    pub alive: u64,
    /// No order of these kernels has fewer bytes alive at once.
    pub least: u64,
    /// Some extent is symbolic: all bytes are estimates.
    pub nominal: bool,
}

impl Memory {
    /// Bytes of all buffers.
    pub fn peak(&self) -> u64 {
        self.arena.saturating_add(self.results)
    }

    /// The buffers that a kernel writes.
    pub fn written(&self, kernel: usize) -> impl Iterator<Item = &PlannedBuffer> {
        let first = self.places.partition_point(|p| p.kernel < kernel);
        self.places[first..].iter().take_while(move |p| p.kernel == kernel)
    }
}

/// What kernels need of memory, in whatever order they run.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// The value in each buffer, its bytes, and whether the caller keeps it.
    pub buffers: Vec<Needed>,
    /// The buffers that each kernel fills.
    pub writes: Vec<Vec<usize>>,
    /// The buffers that each kernel needs.
    pub reads: Vec<Vec<usize>>,
    /// The kernels that each kernel follows.
    pub after: Vec<Vec<usize>>,
    /// Some extent is symbolic.
    pub nominal: bool,
    once: Vec<bool>,
}

/// A buffer that a kernel fills.
#[derive(Clone, Copy, Debug)]
pub struct Needed {
    /// What it holds.
    pub value: Value,
    /// Its bytes, as they are asked for.
    pub bytes: u64,
    /// It holds a result.
    pub kept: bool,
}

/// How a value lies.
#[derive(Clone)]
struct StoredAt {
    /// In which buffer; none for inputs, constants and what is not known.
    buffer: Option<usize>,
    /// How; none where extents are symbolic.
    layout: Option<Layout>,
    /// Only constants feed it: it is there before the run.
    fixed: bool,
}

/// Bytes of a type, symbols at their nominal value, and whether there are symbols.
fn bytes(ty: &Type) -> (u64, bool) {
    let size = ty.dtype.size() as u64;
    match ty.known_shape() {
        Some(shape) => {
            let known = shape.iter().try_fold(size, |n, &d| n.checked_mul(d as u64));
            (if shape.contains(&0) { 0 } else { known.unwrap_or(u64::MAX) }, false)
        }
        None => {
            let nominal = |e: &Extent| e.eval(&|_| Some(NOMINAL)).unwrap_or(1).max(0) as f64;
            let elements: f64 = ty.shape.iter().map(nominal).product();
            ((elements * size as f64) as u64, true)
        }
    }
}

struct MemoryPlanner<'a> {
    program: &'a Program,
    library: &'a Library,
    lies: HashMap<Value, StoredAt>,
    writer: HashMap<Value, usize>,
    results: HashSet<Value>,
    out: Buffers,
}

impl Buffers {
    /// Of kernels that come in an order in which they can run.
    pub fn of(program: &Program, library: &Library, kernels: &[Kernel]) -> Buffers {
        let mut b = MemoryPlanner {
            program,
            library,
            lies: HashMap::new(),
            writer: HashMap::new(),
            results: program.outputs.iter().map(|(_, v)| *v).collect(),
            out: Buffers::default(),
        };
        for (i, node) in program.nodes.iter().enumerate() {
            let value = Value { node: NodeId(i as u32), output: 0 };
            let fixed = match node.kind {
                NodeKind::Apply(..) => continue,
                NodeKind::Const(_) => true,
                NodeKind::Input(_) => false,
            };
            b.lies.insert(value, StoredAt { buffer: None, layout: dense(&node.types[0]), fixed });
        }
        for (k, kernel) in kernels.iter().enumerate() {
            b.kernel(k, kernel);
        }
        for (_, v) in &program.outputs {
            if let Some(buffer) = b.lies.get(v).and_then(|l| l.buffer) {
                b.out.buffers[buffer].kept = true;
            }
        }
        b.out
    }

    /// The memory of these kernels in an order that respects what they follow.
    pub fn placed(&self, order: &[usize]) -> Memory {
        let mut life: BTreeMap<usize, Buffer> = BTreeMap::new();
        let mut kernel = vec![0; self.buffers.len()];
        for (at, &k) in order.iter().enumerate() {
            self.writes[k].iter().for_each(|&b| kernel[b] = at);
            for &b in self.writes[k].iter().chain(&self.reads[k]) {
                let new = Buffer { start: at, end: at, bytes: self.buffers[b].bytes };
                let known = life.entry(b).or_insert(new);
                known.end = known.end.max(at);
            }
        }
        let kept = |b: &usize| self.buffers[*b].kept;
        let last = order.len().saturating_sub(1);
        let whole = |(b, life): (&usize, &Buffer)| match kept(b) {
            true => Buffer { end: last, ..*life },
            false => *life,
        };
        let alive = arena::alive(&life.iter().map(whole).collect::<Vec<_>>());
        let inner: Vec<(usize, Buffer)> =
            life.iter().filter(|(b, _)| !kept(b)).map(|(&b, &l)| (b, l)).collect();
        let arena = arena::place(&inner.iter().map(|(_, b)| *b).collect::<Vec<_>>());
        let mut home = vec![Home::Result; self.buffers.len()];
        for ((b, _), offset) in inner.iter().zip(&arena.offsets) {
            home[*b] = Home::Arena(*offset);
        }
        let place = |b: usize| {
            let Needed { value, bytes, .. } = self.buffers[b];
            PlannedBuffer { kernel: kernel[b], value, bytes, home: home[b] }
        };
        let mut places: Vec<PlannedBuffer> = (0..self.buffers.len()).map(place).collect();
        places.sort_by_key(|p| (p.kernel, p.value));
        let results = self.buffers.iter().filter(|b| b.kept).map(|b| arena::rounded(b.bytes));
        Memory {
            places,
            once: order.iter().map(|&k| self.once[k]).collect(),
            arena: arena.bytes,
            results: results.fold(0, u64::saturating_add),
            alive,
            least: alive,
            nominal: self.nominal,
        }
    }
}

/// The dense layout of a type.
fn dense(ty: &Type) -> Option<Layout> {
    ty.known_shape().map(|shape| Layout::dense(&shape))
}

impl MemoryPlanner<'_> {
    fn kernel(&mut self, k: usize, kernel: &Kernel) {
        let fixed = |v: &Value| self.lies.get(v).is_some_and(|l| l.fixed);
        let once = kernel.inputs.iter().all(fixed);
        let mut after: Vec<usize> =
            kernel.inputs.iter().filter_map(|v| self.writer.get(v).copied()).collect();
        let mut reads: Vec<usize> =
            kernel.inputs.iter().filter_map(|v| self.lies.get(v)?.buffer).collect();
        for list in [&mut after, &mut reads] {
            list.sort_unstable();
            list.dedup();
        }
        self.out.after.push(after);
        self.out.reads.push(reads);
        self.out.writes.push(vec![]);
        self.out.once.push(once);
        self.writer.extend(kernel.outputs.iter().map(|v| (*v, k)));
        if once {
            for &v in &kernel.outputs {
                let layout = dense(self.program.ty(v));
                self.lies.insert(v, StoredAt { buffer: None, layout, fixed: true });
            }
            return;
        }
        let mut inside: HashMap<Value, StoredAt> = HashMap::new();
        for &id in &kernel.nodes {
            let value = Value { node: id, output: 0 };
            if self.library.is_view(self.program, id) {
                let lies = self.view(k, value, &inside, kernel);
                inside.insert(value, lies);
            }
        }
        for &v in &kernel.outputs {
            let lies = inside.remove(&v).unwrap_or_else(|| self.written(k, v));
            self.lies.insert(v, lies);
        }
        // An operator with several results yields all of them, read or not.
        if let Some(&node) = kernel.anchors.last() {
            let results = self.program.node(node).types.len() as u32;
            let all = (0..results).map(|output| Value { node, output });
            let unread: Vec<Value> = all.filter(|v| !kernel.outputs.contains(v)).collect();
            if results > 1 {
                unread.into_iter().for_each(|v| drop(self.written(k, v)));
            }
        }
    }

    /// A buffer of its own.
    fn written(&mut self, k: usize, value: Value) -> StoredAt {
        let ty = self.program.ty(value);
        let (bytes, nominal) = bytes(ty);
        self.out.nominal |= nominal;
        self.out.buffers.push(Needed { value, bytes, kept: false });
        self.out.writes[k].push(self.out.buffers.len() - 1);
        StoredAt { buffer: Some(self.out.buffers.len() - 1), layout: dense(ty), fixed: false }
    }

    /// What a view shows, or a buffer where strides cannot say it.
    fn view(
        &mut self,
        k: usize,
        v: Value,
        inside: &HashMap<Value, StoredAt>,
        kernel: &Kernel,
    ) -> StoredAt {
        let node = self.program.node(v.node);
        let NodeKind::Apply(call, attrs) = &node.kind else { return self.written(k, v) };
        let from = inside.get(&node.args[0]).or_else(|| self.lies.get(&node.args[0]));
        // A plan whose kernel shows what it computes itself is refused as faulty.
        let Some(from) = from.cloned() else { return self.written(k, v) };
        if from.fixed {
            return StoredAt { layout: dense(&node.types[0]), ..from };
        }
        let known = attrs.iter().all(is_known);
        let (Some(layout), Some(shape), true) = (&from.layout, node.types[0].known_shape(), known)
        else {
            self.out.nominal = true;
            return StoredAt { layout: None, ..from };
        };
        let view = strided_views::find(&self.library.call(*call).name);
        let is_result = kernel.outputs.contains(&v) && self.results.contains(&v);
        match view.map(|w| strided_views::apply(w, layout, attrs, &shape)) {
            Some(Viewed::Layout(layout)) if !is_result || layout.is_whole() => {
                StoredAt { layout: Some(layout), ..from }
            }
            _ => self.written(k, v),
        }
    }
}

/// True if no symbol occurs.
fn is_known(a: &Attr) -> bool {
    match a {
        Attr::Int(e) => e.as_const().is_some(),
        Attr::Ints(_) => a.as_i64s().is_some(),
        Attr::Float(_) | Attr::Floats(_) | Attr::Bool(_) | Attr::Str(_) | Attr::DType(_) => true,
    }
}
