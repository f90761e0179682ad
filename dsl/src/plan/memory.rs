//! Memory planning: intermediate values get buffers in one arena, results memory of their own; views alias what they read.
//!
//! The only place that decides this. A view that strides can express has no buffer and keeps its operand alive; otherwise the
//! kernel that reads it writes it out first. What depends only on constants is computed before the run. Scratch memory of kernels is
//! not counted.

use super::Kernel;
use super::in_place_append::{Room, spine};
use super::live_steps::Alive;
use crate::ir::{Attr, Extent, ExtentValues, Node, NodeId, NodeKind, Program, Type, Value};
use crate::layout::strided_views::{self, Viewed};
use crate::layout::{Layout, PerAxis};
use crate::library::Library;
use crate::plan::arena::{self, Buffer};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

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
    /// Inputs in whose memory outputs lie.
    pub rooms: Vec<Room>,
    /// The kernels that only append to the memory of an input, in order, each with the number of its room.
    pub appends: Vec<(usize, usize)>,
}

impl Memory {
    /// Bytes of all buffers.
    pub fn peak(&self) -> u64 {
        self.arena.saturating_add(self.results)
    }

    /// The number of the room that a kernel only appends to.
    pub fn appended(&self, kernel: usize) -> Option<usize> {
        let at = self.appends.binary_search_by_key(&kernel, |(k, _)| *k).ok()?;
        Some(self.appends[at].1)
    }

    /// The buffers that a kernel writes.
    pub fn written(&self, kernel: usize) -> &[PlannedBuffer] {
        let from = &self.places[self.places.partition_point(|p| p.kernel < kernel)..];
        &from[..from.partition_point(|p| p.kernel == kernel)]
    }
}

/// What kernels need of memory, in whatever order they run.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    /// The value in each buffer, its bytes, and whether the caller keeps it.
    pub buffers: Vec<RequiredBuffer>,
    /// The buffers that each kernel fills.
    pub writes: Vec<Vec<usize>>,
    /// The buffers that each kernel needs.
    pub reads: Vec<Vec<usize>>,
    /// The kernels that each kernel follows.
    pub after: Vec<Vec<usize>>,
    /// Some extent is symbolic.
    pub nominal: bool,
    /// Inputs in whose memory outputs lie.
    pub rooms: Vec<Room>,
    /// The kernels that only append to the memory of an input, each with the number of its room.
    pub appends: Vec<(usize, usize)>,
    pub(super) once: Vec<bool>,
    /// How values lie, and what leads from each input with room to its output.
    pub(super) lies: FxHashMap<Value, Storage>,
    pub(super) spines: Vec<FxHashSet<NodeId>>,
}

/// A buffer that a kernel fills.
#[derive(Clone, Copy, Debug)]
pub struct RequiredBuffer {
    /// What it holds.
    pub value: Value,
    /// Its bytes, as they are asked for.
    pub bytes: u64,
    /// It holds a result.
    pub kept: bool,
}

/// How a value lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Storage {
    /// In which buffer; none for inputs, constants and what is not known.
    pub(super) buffer: Option<usize>,
    /// In which input with room.
    pub(super) room: Option<usize>,
    /// How; none where extents are symbolic.
    pub(super) layout: Option<Layout>,
    /// Only constants feed it: it is there before the run.
    pub(super) fixed: bool,
}

/// How the values lie that were planned, before those of other extents.
#[derive(Default)]
pub(super) struct StorageMap<'a> {
    pub(super) own: FxHashMap<Value, Storage>,
    pub(super) others: Option<&'a FxHashMap<Value, Storage>>,
}

impl StorageMap<'_> {
    pub(super) fn get(&self, v: &Value) -> Option<&Storage> {
        self.own.get(v).or_else(|| self.others?.get(v))
    }
}

/// The number that a symbol stands for, if it is known.
pub type Binding<'a> = &'a dyn Fn(&str) -> Option<i64>;

/// The extents of values where symbols have certain numbers.
struct Extents<'a> {
    symbol: Binding<'a>,
    values: ExtentValues,
}

impl Extents<'_> {
    /// A shape whose extents are numbers.
    fn shape(&self, ty: &Type) -> Option<PerAxis<usize>> {
        let number = |e| usize::try_from(self.values.eval(e, self.symbol)?).ok();
        ty.shape.iter().map(number).collect()
    }

    /// Bytes of a type with the shape, unknown symbols at their nominal value, and whether there are such.
    fn bytes(&self, ty: &Type, shape: Option<&[usize]>) -> (u64, bool) {
        let size = ty.dtype.size() as u64;
        match shape {
            Some(shape) => {
                let known = shape.iter().try_fold(size, |n, &d| n.checked_mul(d as u64));
                (if shape.contains(&0) { 0 } else { known.unwrap_or(u64::MAX) }, false)
            }
            None => {
                let number = |s: &str| (self.symbol)(s).or(Some(NOMINAL));
                let nominal = |e: &Extent| e.eval(&number).unwrap_or(1).max(0) as f64;
                let elements: f64 = ty.shape.iter().map(nominal).product();
                ((elements * size as f64) as u64, true)
            }
        }
    }

    /// An attribute with numbers for what has one.
    fn attr(&self, a: &Attr) -> Attr {
        a.with_extents(|e| self.values.bound(e, self.symbol))
    }
}

pub(super) struct MemoryPlanner<'a> {
    pub(super) program: &'a Program,
    pub(super) library: &'a Library,
    extents: Extents<'a>,
    pub(super) lies: StorageMap<'a>,
    writer: FxHashMap<Value, usize>,
    results: FxHashSet<Value>,
    /// The inputs that have room, what leads from each to its output, and where what was appended to it ends.
    pub(super) rooms: &'a [Room],
    pub(super) spines: Cow<'a, [FxHashSet<NodeId>]>,
    pub(super) ends: Vec<Option<usize>>,
    pub(super) out: Buffers,
}

impl Buffers {
    /// Of kernels that come in an order in which they can run.
    pub fn of(program: &Program, library: &Library, kernels: &[Kernel]) -> Buffers {
        Buffers::bound(program, library, kernels, &|_| None)
    }

    /// The same where symbols have these values; what has others stays symbolic.
    pub fn bound(
        program: &Program,
        library: &Library,
        kernels: &[Kernel],
        symbol: Binding,
    ) -> Buffers {
        Buffers::in_rooms(program, library, kernels, symbol, &[])
    }

    /// The same where inputs have room for outputs. What does not lie there after all has memory of its own.
    pub fn in_rooms(
        program: &Program,
        library: &Library,
        kernels: &[Kernel],
        symbol: Binding,
        rooms: &[Room],
    ) -> Buffers {
        let mut rooms = rooms.to_vec();
        loop {
            let (out, misfits) = Buffers::tried(program, library, kernels, symbol, &rooms);
            if misfits.is_empty() {
                return Buffers { rooms, ..out };
            }
            let mut at = 0..;
            rooms.retain(|_| at.next().is_some_and(|s| !misfits.contains(&s)));
        }
    }

    /// The buffers, and the rooms whose outputs do not lie in them.
    fn tried(
        program: &Program,
        library: &Library,
        kernels: &[Kernel],
        symbol: Binding,
        rooms: &[Room],
    ) -> (Buffers, Vec<usize>) {
        let spines = rooms.iter().map(|r| spine(program, library, r)).collect();
        let mut b = MemoryPlanner::new(program, library, symbol, rooms, Cow::Owned(spines));
        b.out.expect(kernels.len());
        b.lies.own.reserve(program.nodes.len());
        for (i, node) in program.nodes.iter().enumerate() {
            let value = Value { node: NodeId(i as u32), output: 0 };
            let fixed = match node.kind {
                NodeKind::Apply(..) => continue,
                NodeKind::Const(_) => true,
                NodeKind::Input(_) => false,
            };
            let leaf = b.leaf(node, fixed);
            b.lies.own.insert(value, leaf);
        }
        for (k, kernel) in kernels.iter().enumerate() {
            b.kernel(k, kernel);
        }
        for (_, v) in &program.outputs {
            if let Some(buffer) = b.lies.get(v).and_then(|l| l.buffer) {
                b.out.buffers[buffer].kept = true;
            }
        }
        let misfits = b.misfits();
        (Buffers { lies: b.lies.own, spines: b.spines.into_owned(), ..b.out }, misfits)
    }

    /// Lists for so many kernels.
    fn expect(&mut self, kernels: usize) {
        for lists in [&mut self.after, &mut self.reads, &mut self.writes] {
            lists.resize_with(kernels, Vec::new);
        }
        self.once.resize(kernels, false);
    }

    /// The memory of these kernels in an order that respects what they follow.
    pub fn placed(&self, order: &[usize]) -> Memory {
        let mut life: BTreeMap<usize, Buffer> = BTreeMap::new();
        for (at, &k) in order.iter().enumerate() {
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
        let places = self.places(order, &|b| home[b]);
        let once = order.iter().map(|&k| self.once[k]).collect();
        let (results, nominal) = (self.results(), self.nominal);
        let rooms = self.rooms.clone();
        let at = |k: &usize| order.iter().position(|o| o == k);
        let appends = self.appends.iter().filter_map(|(k, s)| Some((at(k)?, *s)));
        let mut appends: Vec<(usize, usize)> = appends.collect();
        appends.sort_unstable();
        let arena = arena.bytes;
        Memory { places, once, arena, results, alive, least: alive, nominal, rooms, appends }
    }

    /// Memory in which the buffers lie where those of larger extents do; `None` if they are others, or one is larger.
    pub fn placed_as(&self, order: &[usize], larger: &Memory) -> Option<Memory> {
        let mut places = self.places(order, &|_| Home::Result);
        let fits = |(own, other): (&PlannedBuffer, &PlannedBuffer)| {
            (own.kernel, own.value) == (other.kernel, other.value) && own.bytes <= other.bytes
        };
        let same = places.len() == larger.places.len() && !self.nominal && !larger.nominal;
        if !same || !places.iter().zip(&larger.places).all(fits) {
            return None;
        }
        places.iter_mut().zip(&larger.places).for_each(|(own, other)| own.home = other.home);
        let (rooms, mut appends) = (self.rooms.clone(), self.appends.clone());
        appends.sort_unstable();
        Some(Memory { places, results: self.results(), rooms, appends, ..larger.clone() })
    }

    /// All buffers in order of execution, each where `home` says.
    fn places(&self, order: &[usize], home: &dyn Fn(usize) -> Home) -> Vec<PlannedBuffer> {
        let mut out = Vec::with_capacity(self.buffers.len());
        for (kernel, &k) in order.iter().enumerate() {
            for &b in &self.writes[k] {
                let RequiredBuffer { value, bytes, .. } = self.buffers[b];
                out.push(PlannedBuffer { kernel, value, bytes, home: home(b) });
            }
        }
        out.sort_by_key(|p| (p.kernel, p.value));
        out
    }

    /// Bytes of the results.
    fn results(&self) -> u64 {
        let results = self.buffers.iter().filter(|b| b.kept).map(|b| arena::rounded(b.bytes));
        results.fold(0, u64::saturating_add)
    }
}

impl<'a> MemoryPlanner<'a> {
    pub(super) fn new(
        program: &'a Program,
        library: &'a Library,
        symbol: Binding<'a>,
        rooms: &'a [Room],
        spines: Cow<'a, [FxHashSet<NodeId>]>,
    ) -> MemoryPlanner<'a> {
        MemoryPlanner {
            program,
            library,
            extents: Extents { symbol, values: ExtentValues::default() },
            lies: StorageMap::default(),
            writer: HashMap::default(),
            results: program.outputs.iter().map(|(_, v)| *v).collect(),
            rooms,
            spines,
            ends: vec![None; rooms.len()],
            out: Buffers::default(),
        }
    }

    /// How an input or a constant lies.
    pub(super) fn leaf(&self, node: &Node, fixed: bool) -> Storage {
        let mut layout = self.dense(&node.types[0]);
        let is_of = |r: &Room| node.kind == NodeKind::Input(r.input as u32);
        let room = self.rooms.iter().position(is_of);
        if let (Some(room), Some(layout)) = (room, &mut layout) {
            *layout = self.rooms[room].layout(&layout.shape);
        }
        Storage { buffer: None, room, layout, fixed }
    }

    /// The dense layout of a type.
    pub(super) fn dense(&self, ty: &Type) -> Option<Layout> {
        self.extents.shape(ty).map(|shape| Layout::dense(&shape))
    }

    pub(super) fn kernel(&mut self, k: usize, kernel: &Kernel) {
        let fixed = |v: &Value| self.lies.get(v).is_some_and(|l| l.fixed);
        let once = kernel.inputs.iter().all(fixed);
        // At other extents kernels follow and read what they did.
        if self.lies.others.is_none() {
            self.ordered(k, kernel);
        }
        self.out.once[k] = once;
        if once {
            for &v in &kernel.outputs {
                let layout = self.dense(self.program.ty(v));
                let lies = Storage { buffer: None, room: None, layout, fixed: true };
                self.lies.own.insert(v, lies);
            }
            return;
        }
        let mut inside: FxHashMap<Value, Storage> = HashMap::default();
        for &id in &kernel.nodes {
            let value = Value { node: id, output: 0 };
            if self.library.is_view(self.program, id) {
                let lies = self.view(k, value, &inside, kernel);
                inside.insert(value, lies);
            }
        }
        let part = |b: &MemoryPlanner<'_>, v: Value| {
            let at = inside.get(&v).or_else(|| b.lies.get(&v))?;
            Some((at.room, at.layout.clone()))
        };
        if let Some((v, room, layout)) = self.appended(k, kernel, &part) {
            let (room, layout) = (Some(room), Some(layout));
            inside.insert(v, Storage { buffer: None, room, layout, fixed: false });
        }
        for &v in &kernel.outputs {
            let lies = inside.remove(&v).unwrap_or_else(|| self.written(k, v));
            self.lies.own.insert(v, lies);
        }
        // An operator with several results yields all of them, read or not.
        if let Some(&node) = kernel.anchors.last() {
            let results = self.program.node(node).types.len() as u32;
            let all = (0..results).map(|output| Value { node, output });
            let unread: Vec<Value> = all.filter(|v| !kernel.outputs.contains(v)).collect();
            if results > 1 {
                unread.into_iter().for_each(|v| self.unread(k, kernel, v));
            }
        }
    }

    /// Notes what a kernel follows and reads.
    fn ordered(&mut self, k: usize, kernel: &Kernel) {
        let mut after: Vec<usize> =
            kernel.inputs.iter().filter_map(|v| self.writer.get(v).copied()).collect();
        let mut reads: Vec<usize> =
            kernel.inputs.iter().filter_map(|v| self.lies.get(v)?.buffer).collect();
        for list in [&mut after, &mut reads] {
            list.sort_unstable();
            list.dedup();
        }
        self.out.after[k] = after;
        self.out.reads[k] = reads;
        self.writer.extend(kernel.outputs.iter().map(|v| (*v, k)));
    }

    /// A buffer of its own.
    fn written(&mut self, k: usize, value: Value) -> Storage {
        let ty = self.program.ty(value);
        let shape = self.extents.shape(ty);
        let (bytes, nominal) = self.extents.bytes(ty, shape.as_deref());
        self.out.nominal |= nominal;
        self.out.buffers.push(RequiredBuffer { value, bytes, kept: false });
        self.out.writes[k].push(self.out.buffers.len() - 1);
        let buffer = Some(self.out.buffers.len() - 1);
        Storage { buffer, room: None, layout: shape.map(|s| Layout::dense(&s)), fixed: false }
    }

    /// A buffer for a result that no other kernel reads.
    fn unread(&mut self, k: usize, kernel: &Kernel, value: Value) {
        self.written(k, value);
        let alive = Alive::of(self.program, self.library, kernel, value);
        if let (Some(alive), Some(RequiredBuffer { bytes, .. })) =
            (alive, self.out.buffers.last_mut())
        {
            let ty = self.program.ty(value);
            let extent = ty.shape[alive.axis]
                .eval(self.extents.symbol)
                .map_or(alive.steps as i64, |n| n.min(alive.steps as i64));
            let mut held = ty.clone();
            held.shape[alive.axis] = Extent::from(extent);
            *bytes = self.extents.bytes(&held, self.extents.shape(&held).as_deref()).0;
        }
    }

    /// What a view shows, or a buffer where strides cannot say it.
    fn view(
        &mut self,
        k: usize,
        v: Value,
        inside: &FxHashMap<Value, Storage>,
        kernel: &Kernel,
    ) -> Storage {
        let node = self.program.node(v.node);
        let NodeKind::Apply(call, attrs) = &node.kind else { return self.written(k, v) };
        let from = inside.get(&node.args[0]).or_else(|| self.lies.get(&node.args[0]));
        // A plan whose kernel shows what it computes itself is refused as faulty.
        let Some(from) = from.cloned() else { return self.written(k, v) };
        if from.fixed {
            return Storage { layout: self.dense(&node.types[0]), ..from };
        }
        let attrs: Vec<Attr> = attrs.iter().map(|a| self.extents.attr(a)).collect();
        let known = attrs.iter().all(is_known);
        let shape = self.extents.shape(&node.types[0]);
        let (Some(layout), Some(shape), true) = (&from.layout, shape, known) else {
            self.out.nominal = true;
            return Storage { layout: None, ..from };
        };
        let view = strided_views::find(&self.library.call(*call).name);
        let is_result = kernel.outputs.contains(&v) && self.results.contains(&v);
        match view.map(|w| strided_views::apply(w, layout, &attrs, &shape)) {
            Some(Viewed::Layout(layout))
                if !is_result || layout.is_whole() || self.is_in_room(v, from.room, &layout) =>
            {
                Storage { layout: Some(layout), ..from }
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
