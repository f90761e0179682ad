//! Runs a compiled plan: intermediate values in one arena per concurrent run, results in memory that is returned.

mod arena;
pub(crate) mod buffer;
pub(crate) mod fallback;
pub(crate) mod launch;
mod results;
mod stream;
pub(crate) mod threads;
pub(crate) mod weight_cache;

use super::graph::{self, KernelGraph, broken};
use super::resolve::{
    self, KnownKernels, Location, NEEDS_DATA, Pass, Places, Resolved, Resolver, Storage,
    Surroundings, Temp, room,
};
use arena::{Lent, Part, emptied, lend, nothing};
use buffer::{Buffer, BufferPool, aligned, is_aligned};
use indexmap::IndexMap;
use launch::{Array, Context};
use mlc_backends::state::{State, Step};
use mlc_backends::symbols::SymbolBindings;
use mlc_backends::{Allocated, BackendError, Executable};
use mlc_dsl::ir::{Tensor, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Memory, MemoryAt, Plan, PlannedBuffer, Room};
use results::{Around, Held, leaf};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use threads::Threads;
use weight_cache::PackedConstants;

/// Bytes of prepared kernels that are kept for the next run with the same extents.
const KEPT: u64 = 16 << 20;

/// Among how many of the last extents those of steps of streams are kept: runs that are made at the same time.
const STREAMS: usize = 8;

/// Extents that memory is kept in mind for.
const PLACED: usize = 64;

/// The extent for which memory is found out where this one is needed: a quarter more at most.
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
    packs: PackedConstants,
    constants: FxHashMap<Value, Location>,
    /// Bytes that buffers may take; `None` for what the machine has free.
    pub(crate) memory: Option<u64>,
    kernels: KnownKernels,
    /// Launches by what they are prepared for, the last used at the end.
    ready: Mutex<IndexMap<Extents, Arc<Ready>>>,
    /// The last ones for which all kernels were looked at.
    whole: Mutex<Option<Arc<Whole>>>,
    /// Memory by the symbols' values, rounded up, and the inputs with room.
    placed: Mutex<Placed>,
    /// Outputs and inputs of which it is known that they do not lie in one memory.
    pub(crate) apart: Mutex<HashSet<(usize, usize)>>,
    /// What no run works in at the moment.
    free: Mutex<Vec<Workspace>>,
    results: Arc<BufferPool>,
}

/// What launches are prepared for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extents {
    /// The symbols' values.
    pub symbols: SymbolBindings,
    /// The inputs that have room, if their outputs can lie there.
    pub rooms: Vec<Room>,
}

impl From<SymbolBindings> for Extents {
    fn from(symbols: SymbolBindings) -> Extents {
        Extents { symbols, rooms: vec![] }
    }
}

/// A program that was resolved for some extents: the start for others.
struct Whole {
    rooms: Vec<Room>,
    resolved: Arc<Resolved>,
    places: Places,
    memory: MemoryAt,
}

/// Launches in the plan's memory.
pub struct Ready {
    pub resolved: Arc<Resolved>,
    /// The part of the block that each buffer has; `None` for results.
    pub(super) parts: Vec<Option<Part>>,
    pub(super) results: Arc<BufferPool>,
}

/// What a run works in, kept for the next one.
#[derive(Default)]
struct Workspace {
    /// Where buffers lie.
    block: Buffer,
    /// Results that are computed, by their buffer's number; none between runs.
    results: Vec<Option<Held<'static>>>,
    /// Those that a pass writes, with their buffer's number; none between runs.
    fresh: Fresh<'static>,
    lists: Lists<'static>,
}

/// What a launch is told, in lists that the next launch uses again.
#[derive(Default)]
struct Lists<'a> {
    lent: Lent<'a>,
    arrays: Vec<Array<'a>>,
    extra: Vec<&'a [u8]>,
    outs: Vec<&'a mut [u8]>,
}

impl CompiledPlan {
    /// Reads the plan; with static shapes the launches are prepared at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        threads: Arc<Threads>,
        memory: Option<u64>,
    ) -> Result<CompiledPlan, BackendError> {
        let graph = graph::read(plan, &library)?;
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let compiled = CompiledPlan {
            plan: plan.clone(),
            packs: PackedConstants::of(&graph.program.consts),
            constants: resolve::constants(&graph.program),
            graph,
            library,
            threads,
            memory,
            kernels: KnownKernels::default(),
            ready: Mutex::default(),
            whole: Mutex::default(),
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

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            graph: &self.graph,
            constants: &self.constants,
            library: &self.library,
            threads: &self.threads,
            packs: &self.packs,
            known: &self.kernels,
            memory: self.memory,
        }
    }

    fn resolve(
        &self,
        symbols: &SymbolBindings,
        memory: &Memory,
        inputs: Option<&[Tensor]>,
    ) -> Result<(Resolved, Places), BackendError> {
        let cx = self.surroundings();
        self.threads.enter(|| Resolver::resolve(cx, symbols.clone(), memory, inputs))
    }

    /// The launches for these extents, in the memory of the plan that they bind.
    fn launches(&self, extents: &Extents) -> Result<Arc<Resolved>, BackendError> {
        let Extents { symbols, rooms } = extents;
        if !self.plan.memory.nominal && rooms.is_empty() {
            return Ok(Arc::new(self.resolve(symbols, &self.plan.memory, None)?.0));
        }
        let lock = || self.whole.lock().unwrap_or_else(|e| e.into_inner());
        let whole = lock().clone().filter(|whole| whole.rooms == *rooms);
        if let Some(whole) = whole
            && let Some(resolved) = self.launches_from(&whole, symbols)?
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
        let whole = Whole { rooms: rooms.clone(), resolved: resolved.clone(), places, memory };
        *lock() = Some(Arc::new(whole));
        Ok(resolved)
    }

    /// The launches for these extents from those for others, where few kernels mention what differs.
    fn launches_from(
        &self,
        whole: &Whole,
        symbols: &SymbolBindings,
    ) -> Result<Option<Resolved>, BackendError> {
        let before = &whole.places.symbols;
        let symbols = before.with(symbols);
        let mentioning = self.graph.mentioning(|s| symbols.get(s) != before.get(s));
        if 2 * mentioning.len() > self.graph.groups.len() {
            return Ok(None);
        }
        let value = |s: &str| symbols.get(s);
        let readers = &self.graph.plan_readers;
        let memory = whole.memory.at_other(&self.plan, &self.library, &value, &mentioning, readers);
        let Some(memory) = memory else { return Ok(None) };
        debug_assert!(self.is_memory_at(&memory, &symbols), "other buffers than planned anew");
        let (cx, before) = (self.surroundings(), (&*whole.resolved, &whole.places));
        let other = || Resolver::resolve_other(cx, before, symbols.clone(), &mentioning, &memory);
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

    /// Runs once; the seconds of every kernel launched. Empty if shapes depend on data.
    pub fn times(&self, inputs: &[Tensor]) -> Result<Vec<f64>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        let ready = match self.ready(&symbols.into()) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let mut times = Vec::with_capacity(ready.resolved.kernels());
        let watch = Some(&mut times);
        self.run_ready(&ready, &mut Around { watch, ..Around::of(&inputs) })?;
        Ok(times)
    }

    /// The kernels of the plan that are launched, in the order of [`times`](Self::times).
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
        let by_it = passes.filter(|p| p.launch.is_interpreted());
        Ok(by_it.map(|p| p.name.clone()).collect())
    }

    /// The launches for these extents, prepared now or before.
    pub(crate) fn ready(&self, extents: &Extents) -> Result<Arc<Ready>, BackendError> {
        let lock = || self.ready.lock().unwrap_or_else(|e| e.into_inner());
        {
            let mut all = lock();
            if let Some(at) = all.get_index_of(extents) {
                let last = all.len() - 1;
                all.move_index(at, last);
                return Ok(all[last].clone());
            }
        }
        let launches = self.launches(extents)?;
        let fresh = Arc::new(Ready::new(launches, self.memory, self.results.clone())?);
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

    /// Runs where extents depend on data.
    pub(crate) fn run_on_data(
        &self,
        symbols: &SymbolBindings,
        inputs: &[Tensor],
    ) -> Result<Vec<Tensor>, BackendError> {
        let (done, _) = self.resolve(symbols, &Memory::default(), Some(inputs))?;
        let all = done.outputs.iter().map(|p| leaf(p, inputs));
        all.collect::<Option<_>>().ok_or_else(|| broken("an output that is not computed"))
    }

    /// Runs what is ready, in memory that an earlier run has left or in new one.
    pub(crate) fn run_ready(
        &self,
        ready: &Ready,
        around: &mut Around<'_, '_>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let free = || self.free.lock().unwrap_or_else(|e| e.into_inner());
        let mut work = free().pop().unwrap_or_default();
        let out = self.threads.enter(|| ready.run(&self.threads, around, &mut work));
        free().push(work);
        out
    }
}

/// True of the error where extents depend on data.
pub fn needs_data(e: &BackendError) -> bool {
    matches!(e, BackendError::Unsupported { what, .. } if what == NEEDS_DATA)
}

impl Executable for CompiledPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        let extents = symbols.into();
        match self.ready(&extents) {
            Ok(ready) => self.run_ready(&ready, &mut Around::of(&inputs)),
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

/// What a run works in, in parts.
type Working<'b, 'm> = (&'b mut Buffer, &'b mut Vec<Option<Held<'m>>>, &'b mut Lists<'static>);

/// The memory that a pass writes.
type Fresh<'m> = Vec<(usize, Held<'m>)>;

impl Ready {
    /// Takes the memory, unless it and what the largest launch works in is more than there is.
    fn new(
        resolved: Arc<Resolved>,
        memory: Option<u64>,
        pool: Arc<BufferPool>,
    ) -> Result<Ready, BackendError> {
        let part = |t: &Temp| match t.home {
            Home::Arena(at) => Some((at as usize, t.bytes)),
            Home::Result => None,
        };
        let parts: Vec<Option<Part>> = resolved.temps.iter().map(part).collect();
        let own = || {
            resolved.temps[..resolved.roomy]
                .iter()
                .filter(|t| t.home == Home::Result)
                .map(|t| t.bytes)
        };
        let results = own().fold(0u64, |n, bytes| n.saturating_add(bytes as u64));
        let taken = own().map(buffer::whole_lines).fold(0, usize::saturating_add);
        let passes = || resolved.steps().flat_map(|s| &s.passes);
        let all = results.saturating_add(resolved.block).saturating_add(resolved.scratch());
        if let Err(limit) = room(all, memory) {
            let size = |p: &&Pass| {
                let bytes = |&t| resolved.temps[resolved.temp(t)].bytes as u64;
                let outputs = p.outputs.iter().map(bytes);
                outputs.fold(p.launch.scratch(), u64::saturating_add)
            };
            let op = passes().max_by_key(size).map_or("", |p| p.name.as_str()).into();
            let what = "the buffers of the plan, most of them its own,".into();
            return Err(BackendError::Memory { op, what, bytes: all, limit });
        }
        pool.expect(taken);
        Ok(Ready { resolved, parts, results: pool })
    }

    fn run(
        &self,
        threads: &Threads,
        around: &mut Around<'_, '_>,
        work: &mut Workspace,
    ) -> Result<Vec<Tensor>, BackendError> {
        work.block.grow(self.resolved.block as usize);
        let mut results: Vec<Option<Held<'_>>> = emptied(std::mem::take(&mut work.results));
        results.resize_with(self.resolved.temps.len(), || None);
        let rooms = self.resolved.roomy..;
        for (t, lease) in rooms.clone().zip(around.rooms.drain(..)) {
            results[t] = Some(Held::Lease(lease));
        }
        self.lend_outputs(&mut around.outputs, &mut results);
        let mut fresh: Fresh<'_> = emptied(std::mem::take(&mut work.fresh));
        let Workspace { block, lists, .. } = work;
        let (inputs, watch) = (around.inputs, around.watch.take());
        let done = self.steps(threads, inputs, (block, &mut results, lists), &mut fresh, watch);
        let out = done.and_then(|()| self.outputs(threads, around, &mut results));
        for t in rooms.take(self.resolved.rooms.len()) {
            if let Some(Held::Lease(lease)) = results[t].take() {
                around.rooms.push(lease);
            }
        }
        (work.results, work.fresh) = (emptied(results), emptied(fresh));
        out
    }

    fn steps<'m>(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        work: Working<'_, 'm>,
        fresh: &mut Fresh<'m>,
        mut watch: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        let (block, results, lists) = work;
        for step in self.resolved.steps() {
            let start = watch.as_ref().map(|_| Instant::now());
            for pass in &step.passes {
                let work = (&mut *block, &mut *results, &mut *lists);
                let done = self.pass(pass, threads, inputs, work, fresh);
                // Memory that was written goes back also after an error: it may be an input's.
                fresh.drain(..).for_each(|(t, held)| results[t] = Some(held));
                done.map_err(|reason| BackendError::Operator { op: pass.name.clone(), reason })?;
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
        lent: &Lent<'b>,
        results: &'b [Option<Held<'_>>],
    ) -> Result<&'b [u8], &'static str> {
        let t = match &p.storage {
            Storage::Const(c) => return Ok(&c.bytes()[..]),
            Storage::Input(i) => return Ok(&inputs[*i].bytes()[..]),
            Storage::Temp(t) => self.resolved.temp(*t),
            Storage::Unread => return Ok(nothing()),
        };
        let own = match self.parts[t] {
            Some(part) => lent.read(part),
            None => results[t].as_ref().map(|b| b.bytes()),
        };
        own.ok_or("it reads memory that it writes")
    }

    fn pass<'m>(
        &self,
        pass: &Pass,
        threads: &Threads,
        inputs: &[Tensor],
        (block, results, lists): Working<'_, 'm>,
        fresh: &mut Fresh<'m>,
    ) -> Result<(), String> {
        let Lists { lent, mut arrays, mut extra, mut outs } = std::mem::take(lists).emptied();
        // Results are lent apart from those that are read.
        let written = || pass.outputs.iter().map(|&t| self.resolved.temp(t));
        let new = |t: usize| Held::Lease(self.results.take(self.resolved.temps[t].bytes));
        let mut take = |t: usize| (t, results[t].take().unwrap_or_else(|| new(t)));
        fresh.extend(written().filter(|&t| self.parts[t].is_none()).map(&mut take));
        let results = &*results;
        let inside = written().filter_map(|t| self.parts[t]);
        let mut lent =
            lend(block.bytes_mut(), inside, lent).ok_or("its results overlap in memory")?;
        let bytes = |p| self.bytes(p, inputs, &lent, results);
        for p in &pass.inputs[..pass.own] {
            arrays.push(Array { dtype: p.dtype, layout: &p.layout, bytes: bytes(p)? });
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
        let epilogue = pass.epilogue.as_ref().map(|t| (t, extra.as_slice()));
        pass.launch.run(&Context { threads, epilogue }, &arrays, &mut outs)?;
        let (arrays, extra, outs) = (emptied(arrays), emptied(extra), emptied(outs));
        *lists = Lists { lent: lent.emptied(), arrays, extra, outs };
        Ok(())
    }
}

impl Lists<'_> {
    fn emptied<'b>(self) -> Lists<'b> {
        let Lists { lent, arrays, extra, outs } = self;
        let (arrays, extra, outs) = (emptied(arrays), emptied(extra), emptied(outs));
        Lists { lent: lent.emptied(), arrays, extra, outs }
    }
}
