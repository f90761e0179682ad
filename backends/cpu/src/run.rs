//! Runs a compiled plan: intermediate values in one arena per concurrent run, results in memory that is returned.

use super::arena::{Lent, Part, emptied, lend, nothing};
use super::buffer::{self, Buffer, BufferPool, Lease, aligned, is_aligned};
use super::graph::{self, KernelGraph, broken};
use super::launch::{Array, Context};
use super::layout::Layout;
use super::packed_constants::PackedConstants;
use super::resolve::{
    KnownKernels, Location, NEEDS_DATA, Pass, Resolved, Resolver, Storage, Surroundings, Temp, room,
};
use super::threads::Threads;
use bytes::Bytes;
use indexmap::IndexMap;
use mlc_backends::symbols::SymbolBindings;
use mlc_backends::{Allocated, BackendError, Executable};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Memory, Plan};
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Bytes of prepared kernels that are kept for the next run with the same extents.
const KEPT: u64 = 64 << 20;

/// Extents that memory is kept in mind for.
const PLACED: usize = 64;

/// The extent for which memory is found out where this one is needed: a quarter more at most.
fn rounded_up(n: i64) -> i64 {
    let step = 1 << n.max(1).ilog2().saturating_sub(2);
    n.checked_add(step - 1).map_or(n, |n| n / step * step)
}

/// A plan ready to run.
pub struct CompiledPlan {
    plan: Plan,
    graph: KernelGraph,
    library: Arc<Library>,
    threads: Arc<Threads>,
    packs: PackedConstants,
    /// Bytes that buffers may take; `None` for what the machine has free.
    memory: Option<u64>,
    kernels: KnownKernels,
    /// Launches by the symbols' values, the last used at the end.
    ready: Mutex<IndexMap<SymbolBindings, Arc<Ready>>>,
    /// Memory by the symbols' values, rounded up.
    placed: Mutex<IndexMap<SymbolBindings, Arc<Memory>>>,
    /// What no run works in at the moment.
    free: Mutex<Vec<Workspace>>,
    results: Arc<BufferPool>,
}

/// Launches in the plan's memory.
struct Ready {
    resolved: Resolved,
    /// The part of the block that each buffer has; `None` for results.
    parts: Vec<Option<Part>>,
    results: Arc<BufferPool>,
}

/// What a run works in, kept for the next one.
#[derive(Default)]
struct Workspace {
    /// Where buffers lie.
    block: Buffer,
    /// Results that are computed, by their buffer's number.
    results: Vec<Option<Lease>>,
    lists: Lists<'static>,
}

/// What a launch is told, in lists that the next launch uses again.
#[derive(Default)]
struct Lists<'a> {
    lent: Lent<'a>,
    arrays: Vec<Array<'a>>,
    extra: Vec<&'a [u8]>,
    outs: Vec<&'a mut [u8]>,
    fresh: Vec<(usize, Lease)>,
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
            graph,
            library,
            threads,
            memory,
            kernels: KnownKernels::default(),
            ready: Mutex::default(),
            placed: Mutex::default(),
            free: Mutex::default(),
            results: Arc::new(BufferPool::new(!fixed)),
        };
        if fixed {
            match compiled.ready(&SymbolBindings::default()) {
                Err(e) if needs_data(&e) => {}
                other => drop(other?),
            }
        }
        Ok(compiled)
    }

    fn resolve(
        &self,
        symbols: &SymbolBindings,
        memory: &Memory,
        inputs: Option<&[Tensor]>,
    ) -> Result<(Resolved, SymbolBindings), BackendError> {
        let cx = Surroundings {
            graph: &self.graph,
            library: &self.library,
            threads: &self.threads,
            packs: &self.packs,
            known: &self.kernels,
            memory: self.memory,
        };
        self.threads.enter(|| Resolver::resolve(cx, symbols.clone(), memory, inputs))
    }

    /// The launches for these symbols, in the memory of the plan that they bind.
    fn launches(&self, symbols: &SymbolBindings) -> Result<Resolved, BackendError> {
        if !self.plan.memory.nominal {
            return Ok(self.resolve(symbols, &self.plan.memory, None)?.0);
        }
        let memory = self.memory_for(symbols);
        let (resolved, known) = self.resolve(symbols, &memory, None)?;
        match known == *symbols {
            true => Ok(resolved),
            // Constants decide some extents: they are known now.
            false => Ok(self.resolve(&known, &self.memory_for(&known), None)?.0),
        }
    }

    /// The memory of a run with these extents. Where buffers lie is found out for extents that are rounded up, and holds for those below, too.
    fn memory_for(&self, symbols: &SymbolBindings) -> Memory {
        let order = self.plan.order();
        let needed = |at: &SymbolBindings| self.plan.buffers(&self.library, &|s| at.get(s));
        let (own, above) = (needed(symbols), symbols.map(rounded_up));
        let placed = || self.placed.lock().unwrap_or_else(|e| e.into_inner());
        let known = placed().get(&above).cloned();
        let larger = known.unwrap_or_else(|| {
            let larger = Arc::new(needed(&above).placed(&order));
            let mut all = placed();
            if all.len() >= PLACED {
                all.shift_remove_index(0);
            }
            all.insert(above, larger.clone());
            larger
        });
        // An extent may grow where another shrinks.
        own.placed_as(&order, &larger).unwrap_or_else(|| own.placed(&order))
    }

    /// Runs once; the seconds of every kernel launched. Empty if shapes depend on data.
    pub fn times(&self, inputs: &[Tensor]) -> Result<Vec<f64>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        let ready = match self.ready(&symbols) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let mut times = Vec::with_capacity(ready.resolved.steps.len());
        self.run_ready(&ready, &inputs, Some(&mut times))?;
        Ok(times)
    }

    /// The kernels of the plan that are launched, in the order of [`times`](Self::times).
    pub fn launched(&self, inputs: &[Tensor]) -> Result<Vec<usize>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        match self.ready(&symbols) {
            Err(e) if needs_data(&e) => Ok(vec![]),
            other => Ok(other?.resolved.steps.iter().map(|s| s.kernel).collect()),
        }
    }

    /// How many kernels were prepared for a run with these inputs, when its extents were new, and how many there are. Nothing if shapes
    /// depend on data.
    pub fn prepared(&self, inputs: &[Tensor]) -> Result<Option<(usize, usize)>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        match self.ready(&symbols) {
            Err(e) if needs_data(&e) => Ok(None),
            other => other.map(|r| Some((r.resolved.fresh, r.resolved.kernels))),
        }
    }

    /// The operators that the reference interpreter computes.
    pub fn interpreted(&self, inputs: &[Tensor]) -> Result<Vec<String>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let ready = match self.ready(&symbols) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let passes = ready.resolved.steps.iter().flat_map(|s| &s.passes);
        let by_it = passes.filter(|p| p.launch.is_interpreted());
        Ok(by_it.map(|p| p.name.clone()).collect())
    }

    /// The launches for these symbols, prepared now or before.
    fn ready(&self, symbols: &SymbolBindings) -> Result<Arc<Ready>, BackendError> {
        let lock = || self.ready.lock().unwrap_or_else(|e| e.into_inner());
        {
            let mut all = lock();
            if let Some(at) = all.get_index_of(symbols) {
                let last = all.len() - 1;
                all.move_index(at, last);
                return Ok(all[last].clone());
            }
        }
        let launches = self.launches(symbols)?;
        let fresh = Arc::new(Ready::new(launches, self.memory, self.results.clone())?);
        let mut all = lock();
        all.insert(symbols.clone(), fresh.clone());
        let mut held = all.values().fold(0, |n: u64, r| n.saturating_add(r.resolved.bytes));
        while held > KEPT && all.len() > 1 {
            let oldest = all.shift_remove_index(0);
            held -= oldest.map_or(0, |(_, r)| r.resolved.bytes);
        }
        Ok(fresh)
    }

    /// Runs what is ready, in memory that an earlier run has left or in new one.
    fn run_ready(
        &self,
        ready: &Ready,
        inputs: &[Tensor],
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let free = || self.free.lock().unwrap_or_else(|e| e.into_inner());
        let mut work = free().pop().unwrap_or_default();
        let out = self.threads.enter(|| ready.run(&self.threads, inputs, &mut work, watch));
        free().push(work);
        out
    }
}

fn needs_data(e: &BackendError) -> bool {
    matches!(e, BackendError::Unsupported { what, .. } if what == NEEDS_DATA)
}

impl Executable for CompiledPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let symbols = SymbolBindings::bind(&self.graph.program.inputs, inputs)?;
        let inputs = all_aligned(inputs);
        match self.ready(&symbols) {
            Ok(ready) => self.run_ready(&ready, &inputs, None),
            Err(e) if needs_data(&e) => {
                let (done, _) = self.resolve(&symbols, &Memory::default(), Some(&inputs))?;
                let all = done.outputs.iter().map(|p| leaf(p, &inputs));
                all.collect::<Option<_>>().ok_or_else(|| broken("an output that is not computed"))
            }
            Err(e) => Err(e),
        }
    }

    fn allocated(&self) -> Option<Allocated> {
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner());
        let arena = free.iter().map(|w| w.block.capacity() as u64).sum();
        Some(Allocated { arena, results: self.results.bytes() as u64 })
    }
}

/// The inputs, aligned for their elements.
fn all_aligned(inputs: &[Tensor]) -> Cow<'_, [Tensor]> {
    match inputs.iter().all(is_aligned) {
        true => Cow::Borrowed(inputs),
        false => Cow::Owned(inputs.iter().cloned().map(aligned).collect()),
    }
}

/// The tensor of a dense value that is a constant or an input.
fn leaf(place: &Location, inputs: &[Tensor]) -> Option<Tensor> {
    let t = match &place.storage {
        Storage::Input(i) => &inputs[*i],
        Storage::Const(t) => t,
        Storage::Temp(_) | Storage::Unread => return None,
    };
    Some(shaped(t, &place.layout))
}

/// The part of `t` that a dense layout covers.
fn shaped(t: &Tensor, layout: &Layout) -> Tensor {
    match layout.len() == t.len() {
        true => t.reshaped(layout.shape.clone()),
        false => part(t.bytes(), t.dtype(), layout),
    }
}

/// The elements of `bytes` that a dense layout covers.
fn part(bytes: &Bytes, dtype: DType, layout: &Layout) -> Tensor {
    let (n, size) = (layout.len(), dtype.size());
    let from = if n == 0 { 0 } else { layout.offset * size };
    let bytes = bytes.slice(from..from + n * size);
    // The layout was checked against the storage when the program was resolved.
    Tensor::new(dtype, layout.shape.clone(), bytes).expect("as many bytes as the layout needs")
}

impl Ready {
    /// Takes the memory, unless it and what the largest launch works in is more than there is.
    fn new(
        resolved: Resolved,
        memory: Option<u64>,
        pool: Arc<BufferPool>,
    ) -> Result<Ready, BackendError> {
        let part = |t: &Temp| match t.home {
            Home::Arena(at) => Some((at as usize, t.bytes)),
            Home::Result => None,
        };
        let parts: Vec<Option<Part>> = resolved.temps.iter().map(part).collect();
        let own = || resolved.temps.iter().filter(|t| t.home == Home::Result).map(|t| t.bytes);
        let results = own().fold(0u64, |n, bytes| n.saturating_add(bytes as u64));
        let taken = own().map(buffer::whole_lines).fold(0, usize::saturating_add);
        let passes = || resolved.steps.iter().flat_map(|s| &s.passes);
        let most = passes().map(|p| p.launch.scratch()).max().unwrap_or(0);
        let all = results.saturating_add(resolved.block).saturating_add(most);
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
        inputs: &[Tensor],
        work: &mut Workspace,
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        work.block.grow(self.resolved.block as usize);
        work.results.resize_with(self.resolved.temps.len(), || None);
        let done = self.steps(threads, inputs, work, watch);
        let out = done.map(|()| self.outputs(inputs, &mut work.results));
        work.results.clear();
        out
    }

    /// The outputs of the program, whose buffers leave the workspace.
    fn outputs(&self, inputs: &[Tensor], results: &mut [Option<Lease>]) -> Vec<Tensor> {
        let outputs = &self.resolved.outputs;
        // Buffers that hold several outputs.
        let mut shared: Vec<(usize, Bytes)> = Vec::new();
        let mut out = Vec::with_capacity(outputs.len());
        for (i, place) in outputs.iter().enumerate() {
            let Storage::Temp(t) = place.storage else {
                out.extend(leaf(place, inputs));
                continue;
            };
            let t = self.resolved.temp(t);
            let bytes = match results[t].take() {
                Some(buffer) => Bytes::from_owner(buffer),
                None => {
                    let known = shared.iter().find(|(known, _)| *known == t);
                    known.map_or_else(Bytes::new, |(_, bytes)| bytes.clone())
                }
            };
            out.push(part(&bytes, place.dtype, &place.layout));
            if outputs[i + 1..].iter().any(|o| o.storage == place.storage) {
                shared.push((t, bytes));
            }
        }
        out
    }

    fn steps(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        work: &mut Workspace,
        mut watch: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        for step in &self.resolved.steps {
            let start = watch.as_ref().map(|_| Instant::now());
            for pass in &step.passes {
                let done = self.pass(pass, threads, inputs, work);
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
        results: &'b [Option<Lease>],
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

    fn pass(
        &self,
        pass: &Pass,
        threads: &Threads,
        inputs: &[Tensor],
        work: &mut Workspace,
    ) -> Result<(), String> {
        let Workspace { block, results, lists } = work;
        let Lists { lent, mut arrays, mut extra, mut outs, mut fresh } =
            std::mem::take(lists).emptied();
        // Results are lent apart from those that are read.
        let written = || pass.outputs.iter().map(|&t| self.resolved.temp(t));
        let take = |t: usize| (t, self.results.take(self.resolved.temps[t].bytes));
        fresh.extend(written().filter(|&t| self.parts[t].is_none()).map(take));
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
                None => own.next().map(|(_, lease)| lease.bytes_mut()),
            };
            outs.extend(next);
        }
        let epilogue = pass.epilogue.as_ref().map(|t| (t, extra.as_slice()));
        pass.launch.run(&Context { threads, epilogue }, &arrays, &mut outs)?;
        let (arrays, extra, outs) = (emptied(arrays), emptied(extra), emptied(outs));
        let lent = lent.emptied();
        fresh.drain(..).for_each(|(t, lease)| results[t] = Some(lease));
        *lists = Lists { lent, arrays, extra, outs, fresh };
        Ok(())
    }
}

impl Lists<'_> {
    fn emptied<'b>(self) -> Lists<'b> {
        let Lists { lent, arrays, extra, outs, fresh } = self;
        let (arrays, extra, outs) = (emptied(arrays), emptied(extra), emptied(outs));
        Lists { lent: lent.emptied(), arrays, extra, outs, fresh: emptied(fresh) }
    }
}
