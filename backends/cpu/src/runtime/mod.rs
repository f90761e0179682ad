//! Runs a compiled plan: intermediate values in one arena per concurrent run, results in buffers that are returned.

mod arena;
pub(crate) mod buffer;
pub(crate) mod fallback;
pub(crate) mod kernel;
mod results;
mod stream;
pub(crate) mod threads;
pub(crate) mod weight_cache;

use super::graph::{self, KernelGraph, broken};
use super::resolve::{
    self, KernelCache, Location, NEEDS_DATA, Pass, PlacedBuffer, ResolveContext, ResolvedPlan,
    Resolver, Storage, ValueLocations, check_memory,
};
use arena::{BorrowedBlock, Part, borrow_block, nothing, recycled};
use buffer::{Buffer, BufferPool, aligned, is_aligned};
use indexmap::IndexMap;
use kernel::{Context, TensorView};
use mlc_backends::state::{State, Step};
use mlc_backends::symbols::SymbolBindings;
use mlc_backends::{Allocated, BackendError, Executable};
use mlc_dsl::ir::{NodeId, SharedExtents, Tensor, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Memory, MemoryAt, Plan, PlannedBuffer, Room};
use results::{ResultMemory, RunIo, leaf_tensor};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use threads::Threads;
use weight_cache::WeightCache;

/// Bytes of prepared kernels kept for later runs with the same extents.
const KEPT: u64 = 16 << 20;

/// How many of the latest extents are kept for streams: concurrent streams.
const STREAMS: usize = 8;

/// How many placements are cached by extents.
const PLACED: usize = 64;

/// The extent for which memory is planned: at most a quarter more.
fn rounded_up(n: i64) -> i64 {
    let step = 1 << n.max(1).ilog2().saturating_sub(2);
    n.checked_add(step - 1).map_or(n, |n| n / step * step)
}

/// Memory by extents, and by the inputs that have room.
type Placed = IndexMap<(SymbolBindings, Vec<usize>), Arc<Memory>>;

/// A plan ready to run.
pub struct CompiledPlan {
    pub(crate) plan: Plan,
    pub(crate) graph: KernelGraph,
    pub(crate) library: Arc<Library>,
    threads: Arc<Threads>,
    weights: WeightCache,
    constants: FxHashMap<Value, Location>,
    /// Bytes that buffers may take; `None` for what the machine has free.
    pub(crate) memory: Option<u64>,
    kernels: KernelCache,
    /// Runnable plans by extents, least recently used first.
    ready: Mutex<IndexMap<Extents, Arc<RunnablePlan>>>,
    /// The latest plan that was resolved in full.
    base: Mutex<Option<Arc<ResolveBase>>>,
    /// Memory by rounded-up extents and the inputs with room.
    placed: Mutex<Placed>,
    /// Pairs of output and input known not to share memory.
    pub(crate) apart: Mutex<HashSet<(usize, usize)>>,
    /// Idle workspaces.
    free: Mutex<Vec<Workspace>>,
    results: Arc<BufferPool>,
}

/// What a plan is resolved for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extents {
    /// The symbols' values.
    pub symbols: SymbolBindings,
    /// The inputs with room that their outputs may be appended to.
    pub rooms: Vec<Room>,
}

impl From<SymbolBindings> for Extents {
    fn from(symbols: SymbolBindings) -> Extents {
        Extents { symbols, rooms: vec![] }
    }
}

/// A program resolved in full: the base of incremental resolution.
struct ResolveBase {
    rooms: Vec<Room>,
    resolved: Arc<ResolvedPlan>,
    places: ValueLocations,
    memory: MemoryAt,
}

/// A resolved plan with its memory.
pub struct RunnablePlan {
    pub resolved: Arc<ResolvedPlan>,
    /// Each buffer's part of the block; `None` for results.
    pub(super) parts: Vec<Option<Part>>,
    pub(super) results: Arc<BufferPool>,
}

/// What a node is called in messages.
type NodeName<'a> = &'a dyn Fn(NodeId) -> String;

/// The memory of a run, reused by later ones.
#[derive(Default)]
struct Workspace {
    /// The arena.
    block: Buffer,
    /// Results that are computed, by their buffer's number; none between runs.
    results: Vec<Option<ResultMemory<'static>>>,
    /// Those that a pass writes, with their buffer's number; none between runs.
    fresh: Fresh<'static>,
    lists: Lists<'static>,
}

/// Argument lists of a kernel call, reused by the next one.
#[derive(Default)]
struct Lists<'a> {
    lent: BorrowedBlock<'a>,
    views: Vec<TensorView<'a>>,
    extra: Vec<&'a [u8]>,
    outs: Vec<&'a mut [u8]>,
}

impl CompiledPlan {
    /// Reads the plan; with static shapes, resolves it at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        threads: Arc<Threads>,
        memory: Option<u64>,
    ) -> Result<CompiledPlan, BackendError> {
        let graph = graph::read(plan, &library)?;
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let mut plan = plan.clone();
        SharedExtents::default().share(&mut plan.program);
        let compiled = CompiledPlan {
            plan,
            weights: WeightCache::new(&graph.program.consts),
            constants: resolve::constants(&graph.program),
            graph,
            library,
            threads,
            memory,
            kernels: KernelCache::default(),
            ready: Mutex::default(),
            base: Mutex::default(),
            placed: Mutex::default(),
            apart: Mutex::default(),
            free: Mutex::default(),
            results: Arc::new(BufferPool::new(!fixed)),
        };
        if fixed {
            match compiled.ready(&Extents::default()) {
                Err(e) if needs_data(&e) => {}
                other => drop(other?),
            }
        }
        Ok(compiled)
    }

    /// What nodes are called in messages.
    fn names(&self) -> impl Fn(NodeId) -> String {
        |node| self.graph.name(&self.library, node)
    }

    fn resolve_context(&self) -> ResolveContext<'_> {
        ResolveContext {
            graph: &self.graph,
            constants: &self.constants,
            library: &self.library,
            threads: &self.threads,
            weights: &self.weights,
            cache: &self.kernels,
            memory: self.memory,
        }
    }

    fn resolve(
        &self,
        symbols: &SymbolBindings,
        memory: &Memory,
        inputs: Option<&[Tensor]>,
    ) -> Result<(ResolvedPlan, ValueLocations), BackendError> {
        let cx = self.resolve_context();
        self.threads.enter(|| Resolver::resolve(cx, symbols.clone(), memory, inputs))
    }

    /// Resolves the plan for these extents.
    fn resolve_for(&self, extents: &Extents) -> Result<Arc<ResolvedPlan>, BackendError> {
        let Extents { symbols, rooms } = extents;
        if !self.plan.memory.nominal && rooms.is_empty() {
            return Ok(Arc::new(self.resolve(symbols, &self.plan.memory, None)?.0));
        }
        let lock = || self.base.lock().unwrap_or_else(|e| e.into_inner());
        let base = lock().clone().filter(|base| base.rooms == *rooms);
        if let Some(base) = base
            && let Some(resolved) = self.resolve_from(&base, symbols)?
        {
            return Ok(Arc::new(resolved));
        }
        let mut memory = self.memory_for(symbols, rooms);
        let (mut resolved, mut places) = self.resolve(symbols, &memory.memory, None)?;
        if places.symbols != *symbols {
            // Constants decide some extents: they are known now.
            memory = self.memory_for(&places.symbols, rooms);
            (resolved, places) = self.resolve(&places.symbols, &memory.memory, None)?;
        }
        let resolved = Arc::new(resolved);
        let base = ResolveBase { rooms: rooms.clone(), resolved: resolved.clone(), places, memory };
        *lock() = Some(Arc::new(base));
        Ok(resolved)
    }

    /// Resolves the plan from a base, where few kernels mention what differs.
    fn resolve_from(
        &self,
        base: &ResolveBase,
        symbols: &SymbolBindings,
    ) -> Result<Option<ResolvedPlan>, BackendError> {
        let before = &base.places.symbols;
        let symbols = before.with(symbols);
        let mentioning = self.graph.mentioning(|s| symbols.get(s) != before.get(s));
        if 2 * mentioning.len() > self.graph.groups.len() {
            return Ok(None);
        }
        let value = |s: &str| symbols.get(s);
        let readers = &self.graph.plan_readers;
        let memory = base.memory.at_other(&self.plan, &self.library, &value, &mentioning, readers);
        let Some(memory) = memory else { return Ok(None) };
        debug_assert!(self.is_memory_at(&memory, &symbols), "other buffers than planned anew");
        let (cx, places) = (self.resolve_context(), &base.places);
        let other = || {
            Resolver::resolve_incremental(cx, &base.resolved, places, symbols, &mentioning, &memory)
        };
        self.threads.enter(other)
    }

    /// Whether all buffers are those that planning all kernels finds.
    fn is_memory_at(&self, memory: &Memory, symbols: &SymbolBindings) -> bool {
        let own = self.memory_for(symbols, &memory.rooms).memory;
        let buffer = |b: &PlannedBuffer| (b.kernel, b.value, b.bytes, b.home == Home::Result);
        own.places.iter().map(buffer).eq(memory.places.iter().map(buffer))
            && (&own.rooms, &own.appends) == (&memory.rooms, &memory.appends)
            && own.results == memory.results
    }

    /// The memory of a run with these extents. Where buffers lie is found out for extents that are rounded up, and holds for those below, too.
    fn memory_for(&self, symbols: &SymbolBindings, rooms: &[Room]) -> MemoryAt {
        let order = self.plan.order();
        let needed = |at: &SymbolBindings, rooms: &[Room]| {
            self.plan.buffers_in(&self.library, &|s| at.get(s), rooms)
        };
        let (own, above) = (needed(symbols, rooms), symbols.map(rounded_up));
        let key = (above, own.rooms.iter().map(|r| r.input).collect());
        let placed = || self.placed.lock().unwrap_or_else(|e| e.into_inner());
        let known = placed().get(&key).cloned();
        let larger = known.unwrap_or_else(|| {
            let grown = own.rooms.iter().map(|r| self.room_above(r, &key.0)).collect::<Vec<_>>();
            let larger = Arc::new(needed(&key.0, &grown).placed(&order));
            let mut all = placed();
            if all.len() >= PLACED {
                all.shift_remove_index(0);
            }
            all.insert(key, larger.clone());
            larger
        });
        MemoryAt::new(own, &order, &larger)
    }

    /// Runs once; the seconds of every kernel that ran. Empty if shapes depend on data.
    pub fn times(&self, inputs: &[Tensor]) -> Result<Vec<f64>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        let ready = match self.ready(&symbols.into()) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let mut times = Vec::with_capacity(ready.resolved.kernels());
        let watch = Some(&mut times);
        self.run_ready(&ready, &mut RunIo { watch, ..RunIo::of(&inputs) })?;
        Ok(times)
    }

    /// The kernels of the plan that run, in the order of [`times`](Self::times).
    pub fn launched(&self, inputs: &[Tensor]) -> Result<Vec<usize>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        match self.ready(&symbols.into()) {
            Err(e) if needs_data(&e) => Ok(vec![]),
            other => Ok(other?.resolved.steps().map(|s| s.kernel).collect()),
        }
    }

    /// How many kernels were prepared for a run with these inputs, when its extents were new, and how many there are. Nothing if shapes
    /// depend on data.
    pub fn prepared(&self, inputs: &[Tensor]) -> Result<Option<(usize, usize)>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        match self.ready(&symbols.into()) {
            Err(e) if needs_data(&e) => Ok(None),
            other => other.map(|r| Some((r.resolved.fresh, r.resolved.kernels()))),
        }
    }

    /// The operators that the reference interpreter computes.
    pub fn interpreted(&self, inputs: &[Tensor]) -> Result<Vec<String>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let ready = match self.ready(&symbols.into()) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let passes = ready.resolved.steps().flat_map(|s| &s.passes);
        let by_it = passes.filter(|p| p.kernel.is_interpreted());
        Ok(by_it.map(|p| self.graph.name(&self.library, p.node)).collect())
    }

    /// The runnable plan for these extents, from the cache or new.
    pub(crate) fn ready(&self, extents: &Extents) -> Result<Arc<RunnablePlan>, BackendError> {
        let lock = || self.ready.lock().unwrap_or_else(|e| e.into_inner());
        {
            let mut all = lock();
            if let Some(at) = all.get_index_of(extents) {
                let last = all.len() - 1;
                all.move_index(at, last);
                return Ok(all[last].clone());
            }
        }
        let resolved = self.resolve_for(extents)?;
        let fresh = Arc::new(RunnablePlan::new(
            resolved,
            self.memory,
            self.results.clone(),
            &self.names(),
        )?);
        let mut all = lock();
        if !extents.rooms.is_empty() {
            // Streams do not come back to where they were.
            let (mut at, last) = (0, all.len().saturating_sub(STREAMS));
            all.retain(|known, _| {
                at += 1;
                at > last || known.rooms.is_empty()
            });
        }
        all.insert(extents.clone(), fresh.clone());
        let mut held = all.values().fold(0, |n: u64, r| n.saturating_add(r.resolved.bytes));
        while held > KEPT && all.len() > 1 {
            let oldest = all.shift_remove_index(0);
            held -= oldest.map_or(0, |(_, r)| r.resolved.bytes);
        }
        Ok(fresh)
    }

    /// Interprets a program whose extents depend on data.
    pub(crate) fn run_on_data(
        &self,
        symbols: &SymbolBindings,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, BackendError> {
        let (done, _) = self.resolve(symbols, &Memory::default(), Some(inputs))?;
        let all = done.outputs.iter().map(|p| leaf_tensor(p, inputs));
        all.collect::<Option<_>>().ok_or_else(|| broken("an output that is not computed"))
    }

    /// Runs a plan in an idle workspace or a new one.
    pub(crate) fn run_ready(
        &self,
        ready: &RunnablePlan,
        io: &mut RunIo<'_, '_>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let free = || self.free.lock().unwrap_or_else(|e| e.into_inner());
        let mut work = free().pop().unwrap_or_default();
        let out = self.threads.enter(|| ready.run(&self.threads, io, &mut work, &self.names()));
        free().push(work);
        out
    }
}

/// Whether an error says that extents depend on data.
pub fn needs_data(e: &BackendError) -> bool {
    matches!(e, BackendError::Unsupported { what, .. } if what == NEEDS_DATA)
}

impl Executable for CompiledPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        let extents = symbols.into();
        match self.ready(&extents) {
            Ok(ready) => self.run_ready(&ready, &mut RunIo::of(&inputs)),
            Err(e) if needs_data(&e) => self.run_on_data(&extents.symbols, &inputs),
            Err(e) => Err(e),
        }
    }

    fn step(&self, step: Step<'_, '_>) -> Result<Vec<State>, BackendError> {
        self.run_step(step)
    }

    fn appended(&self) -> Vec<(usize, usize)> {
        self.appended_outputs()
    }

    fn allocated(&self) -> Option<Allocated> {
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        let arena = free.iter().map(|w| w.block.capacity() as u64).sum();
        Some(Allocated { arena, results: self.results.bytes() as u64 })
    }
}

/// The inputs, aligned for their elements.
pub fn all_aligned(inputs: &[Tensor]) -> Cow<'_, [Tensor]> {
    match inputs.iter().all(is_aligned) {
        true => Cow::Borrowed(inputs),
        false => Cow::Owned(inputs.iter().cloned().map(aligned).collect()),
    }
}

/// The memory that passes of a run work in.
struct RunBuffers<'b, 'm> {
    block: &'b mut Buffer,
    results: &'b mut Vec<Option<ResultMemory<'m>>>,
    lists: &'b mut Lists<'static>,
}

/// The memory that a pass writes.
type Fresh<'m> = Vec<(usize, ResultMemory<'m>)>;

impl RunnablePlan {
    /// Reserves the memory; an error if it and the largest scratch exceed what is available.
    fn new(
        resolved: Arc<ResolvedPlan>,
        memory: Option<u64>,
        pool: Arc<BufferPool>,
        name: NodeName<'_>,
    ) -> Result<RunnablePlan, BackendError> {
        let part = |t: &PlacedBuffer| match t.home {
            Home::Arena(at) => Some((at as usize, t.bytes)),
            Home::Result => None,
        };
        let parts: Vec<Option<Part>> = resolved.buffers.iter().map(part).collect();
        let own = || {
            resolved.buffers[..resolved.roomy]
                .iter()
                .filter(|t| t.home == Home::Result)
                .map(|t| t.bytes)
        };
        let results = own().fold(0u64, |n, bytes| n.saturating_add(bytes as u64));
        let taken = own().map(buffer::whole_lines).fold(0, usize::saturating_add);
        let passes = || resolved.steps().flat_map(|s| &s.passes);
        let all = results.saturating_add(resolved.block).saturating_add(resolved.scratch());
        if let Err(limit) = check_memory(all, memory) {
            let size = |p: &&Pass| {
                let bytes = |&t| resolved.buffers[resolved.buffer(t)].bytes as u64;
                let outputs = p.outputs.iter().map(bytes);
                outputs.fold(p.kernel.scratch(), u64::saturating_add)
            };
            let op = passes().max_by_key(size).map_or_else(String::new, |p| name(p.node));
            let what = "the buffers of the plan, most of them its own,".into();
            return Err(BackendError::Memory { op, what, bytes: all, limit });
        }
        pool.expect(taken);
        Ok(RunnablePlan { resolved, parts, results: pool })
    }

    fn run(
        &self,
        threads: &Threads,
        io: &mut RunIo<'_, '_>,
        work: &mut Workspace,
        name: NodeName<'_>,
    ) -> Result<Vec<Tensor>, BackendError> {
        work.block.grow(self.resolved.block as usize);
        let mut results: Vec<Option<ResultMemory<'_>>> =
            recycled(std::mem::take(&mut work.results));
        results.resize_with(self.resolved.buffers.len(), || None);
        let rooms = self.resolved.roomy..;
        for (t, lease) in rooms.clone().zip(io.rooms.drain(..)) {
            results[t] = Some(ResultMemory::Lease(lease));
        }
        self.lend_outputs(&mut io.outputs, &mut results);
        let mut fresh: Fresh<'_> = recycled(std::mem::take(&mut work.fresh));
        let Workspace { block, lists, .. } = work;
        let (inputs, watch) = (io.inputs, io.watch.take());
        let buffers = RunBuffers { block, results: &mut results, lists };
        let done = self.steps(threads, inputs, buffers, &mut fresh, watch);
        let done = done.map_err(|(node, reason)| BackendError::Operator { op: name(node), reason });
        let out = done.and_then(|()| self.outputs(threads, io, &mut results));
        for t in rooms.take(self.resolved.rooms.len()) {
            if let Some(ResultMemory::Lease(lease)) = results[t].take() {
                io.rooms.push(lease);
            }
        }
        (work.results, work.fresh) = (recycled(results), recycled(fresh));
        out
    }

    fn steps<'m>(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        buffers: RunBuffers<'_, 'm>,
        fresh: &mut Fresh<'m>,
        mut watch: Option<&mut Vec<f64>>,
    ) -> Result<(), (NodeId, String)> {
        let RunBuffers { block, results, lists } = buffers;
        for step in self.resolved.steps() {
            let start = watch.as_ref().map(|_| Instant::now());
            for pass in &step.passes {
                let buffers = RunBuffers { block, results, lists };
                let done = self.run_pass(pass, threads, inputs, buffers, fresh);
                // Memory that was written goes back also after an error: it may be an input's.
                fresh.drain(..).for_each(|(t, held)| results[t] = Some(held));
                done.map_err(|reason| (pass.node, reason))?;
            }
            if let (Some(times), Some(start)) = (&mut watch, start) {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    /// The memory that a value lies in.
    fn bytes<'b>(
        &self,
        p: &'b Location,
        inputs: &'b [Tensor],
        lent: &BorrowedBlock<'b>,
        results: &'b [Option<ResultMemory<'_>>],
    ) -> Result<&'b [u8], &'static str> {
        let t = match &p.storage {
            Storage::Const(c) => return Ok(&c.bytes()[..]),
            Storage::Input(i) => return Ok(&inputs[*i].bytes()[..]),
            Storage::Buffer(t) => self.resolved.buffer(*t),
            Storage::Unread => return Ok(nothing()),
        };
        let own = match self.parts[t] {
            Some(part) => lent.read(part),
            None => results[t].as_ref().map(|b| b.bytes()),
        };
        own.ok_or("it reads memory that it writes")
    }

    fn run_pass<'m>(
        &self,
        pass: &Pass,
        threads: &Threads,
        inputs: &[Tensor],
        RunBuffers { block, results, lists }: RunBuffers<'_, 'm>,
        fresh: &mut Fresh<'m>,
    ) -> Result<(), String> {
        let Lists { lent, mut views, mut extra, mut outs } = std::mem::take(lists).recycled();
        // Results are lent apart from those that are read.
        let written = || pass.outputs.iter().map(|&t| self.resolved.buffer(t));
        let new = |t: usize| ResultMemory::Lease(self.results.take(self.resolved.buffers[t].bytes));
        let mut take = |t: usize| (t, results[t].take().unwrap_or_else(|| new(t)));
        fresh.extend(written().filter(|&t| self.parts[t].is_none()).map(&mut take));
        let results = &*results;
        let inside = written().filter_map(|t| self.parts[t]);
        let mut lent =
            borrow_block(block.bytes_mut(), inside, lent).ok_or("its results overlap in memory")?;
        let bytes = |p| self.bytes(p, inputs, &lent, results);
        for p in &pass.inputs[..pass.own] {
            views.push(TensorView { dtype: p.dtype, layout: &p.layout, bytes: bytes(p)? });
        }
        extra.push(&[]);
        for p in &pass.inputs[pass.own..] {
            extra.push(bytes(p)?);
        }
        let (mut inner, mut own) = (lent.written.iter_mut(), fresh.iter_mut());
        for t in written() {
            let next = match self.parts[t] {
                Some(_) => inner.next().map(std::mem::take),
                None => own.next().map(|(_, held)| held.bytes_mut()),
            };
            outs.extend(next);
        }
        let epilogue = pass.epilogue.as_deref().map(|t| (t, extra.as_slice()));
        pass.kernel.run(&Context { threads, epilogue }, &views, &mut outs)?;
        let (views, extra, outs) = (recycled(views), recycled(extra), recycled(outs));
        *lists = Lists { lent: lent.recycled(), views, extra, outs };
        Ok(())
    }
}

impl Lists<'_> {
    fn recycled<'b>(self) -> Lists<'b> {
        let Lists { lent, views, extra, outs } = self;
        let (views, extra, outs) = (recycled(views), recycled(extra), recycled(outs));
        Lists { lent: lent.recycled(), views, extra, outs }
    }
}
