//! Runs a compiled plan: intermediate values in one arena per concurrent run, results in memory that is returned.

use super::arena::{Lent, Part, emptied, lend};
use super::buffer::{Buffer, BufferPool, Lease};
use super::graph::{self, KernelGraph};
use super::launch::{Array, Context};
use super::layout::Layout;
use super::packed_constants::PackedConstants;
use super::resolve::{
    Location, NEEDS_DATA, Pass, Resolved, Resolver, Storage, Temp, aligned, is_aligned, room,
};
use super::threads::Threads;
use bytes::Bytes;
use mlc_backends::symbols::SymbolBindings;
use mlc_backends::{Allocated, BackendError, Executable};
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Memory, Plan};
use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Shapes whose launches are kept.
const KEPT: usize = 16;

/// A plan ready to run.
pub struct CompiledPlan {
    plan: Plan,
    graph: KernelGraph,
    library: Arc<Library>,
    threads: Arc<Threads>,
    packs: PackedConstants,
    /// Bytes that buffers may take; `None` for what the machine has free.
    memory: Option<u64>,
    /// Launches by the symbols' values, in order of first use.
    ready: Mutex<Vec<(SymbolBindings, Arc<Ready>)>>,
}

/// Launches in the plan's memory.
struct Ready {
    resolved: Resolved,
    /// The part of the block that each buffer has; `None` for results.
    parts: Vec<Option<Part>>,
    /// What no run works in at the moment.
    free: Mutex<Vec<Workspace>>,
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
            graph,
            library,
            threads,
            packs: PackedConstants::default(),
            memory,
            ready: Mutex::new(Vec::new()),
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
        self.threads.enter(|| {
            Resolver::resolve(
                &self.graph,
                &self.library,
                &self.threads,
                &self.packs,
                symbols.clone(),
                memory,
                inputs,
                self.memory,
            )
        })
    }

    /// The launches for these symbols, in the memory of the plan that they bind.
    fn launches(&self, symbols: &SymbolBindings) -> Result<Resolved, BackendError> {
        if !self.plan.memory.nominal {
            return Ok(self.resolve(symbols, &self.plan.memory, None)?.0);
        }
        let bound =
            |symbols: &SymbolBindings| self.plan.bound(&self.library, &|s| symbols.get(s)).memory;
        let memory = bound(symbols);
        let (resolved, known) = self.resolve(symbols, &memory, None)?;
        match known == *symbols {
            true => Ok(resolved),
            // Constants decide some extents: they are known now.
            false => Ok(self.resolve(&known, &bound(&known), None)?.0),
        }
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
        self.threads.enter(|| ready.run(&self.threads, &inputs, Some(&mut times)))?;
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
        if let Some((_, known)) = lock().iter().find(|(s, _)| s == symbols) {
            return Ok(known.clone());
        }
        let fresh = Arc::new(Ready::new(self.launches(symbols)?, self.memory)?);
        let mut all = lock();
        if all.len() >= KEPT {
            all.remove(0);
        }
        all.push((symbols.clone(), fresh.clone()));
        Ok(fresh)
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
            Ok(ready) => self.threads.enter(|| ready.run(&self.threads, &inputs, None)),
            Err(e) if needs_data(&e) => {
                let (done, _) = self.resolve(&symbols, &Memory::default(), Some(&inputs))?;
                Ok(done.outputs.iter().map(|p| leaf(&done, p, &[])).collect())
            }
            Err(e) => Err(e),
        }
    }

    fn allocated(&self) -> Option<Allocated> {
        let all = self.ready.lock().unwrap_or_else(|e| e.into_inner());
        let mut out = Allocated::default();
        for (_, ready) in all.iter() {
            let free = ready.free.lock().unwrap_or_else(|e| e.into_inner());
            out.arena += free.iter().map(|w| w.block.capacity() as u64).sum::<u64>();
            out.results += ready.results.bytes() as u64;
        }
        Some(out)
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
fn leaf(resolved: &Resolved, place: &Location, inputs: &[Tensor]) -> Tensor {
    let t = match place.storage {
        Storage::Input(i) => &inputs[i],
        Storage::Const(c) | Storage::Temp(c) => &resolved.consts[c],
    };
    shaped(t, &place.layout)
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
    fn new(resolved: Resolved, memory: Option<u64>) -> Result<Ready, BackendError> {
        let part = |t: &Temp| match t.home {
            Home::Arena(at) => Some((at as usize, t.bytes)),
            Home::Result => None,
        };
        let parts: Vec<Option<Part>> = resolved.temps.iter().map(part).collect();
        let results = resolved.temps.iter().filter(|t| t.home == Home::Result);
        let results = results.fold(0u64, |n, t| n.saturating_add(t.bytes as u64));
        let passes = || resolved.steps.iter().flat_map(|s| &s.passes);
        let most = passes().map(|p| p.launch.scratch()).max().unwrap_or(0);
        let all = results.saturating_add(resolved.block).saturating_add(most);
        if let Err(limit) = room(all, memory) {
            let size = |p: &&Pass| {
                let outputs = p.outputs.iter().map(|&t| resolved.temps[t].bytes as u64);
                outputs.fold(p.launch.scratch(), u64::saturating_add)
            };
            let op = passes().max_by_key(size).map_or("", |p| p.name.as_str()).into();
            let what = "the buffers of the plan, most of them its own,".into();
            return Err(BackendError::Memory { op, what, bytes: all, limit });
        }
        Ok(Ready { resolved, parts, free: Mutex::default(), results: Arc::default() })
    }

    fn run(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let lock = || self.free.lock().unwrap_or_else(|e| e.into_inner());
        let mut work = lock().pop().unwrap_or_default();
        work.block.resize(self.resolved.block as usize);
        work.results.resize_with(self.resolved.temps.len(), || None);
        let done = self.steps(threads, inputs, &mut work, watch);
        let out = done.map(|()| self.outputs(inputs, &mut work.results));
        work.results.clear();
        lock().push(work);
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
                out.push(leaf(&self.resolved, place, inputs));
                continue;
            };
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
        let is_result = |t: &&usize| self.parts[**t].is_none();
        let take = |&t: &usize| (t, self.results.take(self.resolved.temps[t].bytes));
        fresh.extend(pass.outputs.iter().filter(is_result).map(take));
        let written = pass.outputs.iter().filter_map(|&t| self.parts[t]);
        let mut lent =
            lend(block.bytes_mut(), written, lent).ok_or("its results overlap in memory")?;
        let bytes = |p: &Location| match p.storage {
            Storage::Const(c) => Ok(&self.resolved.consts[c].bytes()[..]),
            Storage::Input(i) => Ok(&inputs[i].bytes()[..]),
            Storage::Temp(t) => match self.parts[t] {
                Some(part) => lent.read(part),
                None => results[t].as_ref().map(|b| b.bytes()),
            }
            .ok_or("it reads memory that it writes"),
        };
        for p in &pass.inputs[..pass.own] {
            arrays.push(Array { dtype: p.dtype, layout: &p.layout, bytes: bytes(p)? });
        }
        extra.push(&[]);
        for p in &pass.inputs[pass.own..] {
            extra.push(bytes(p)?);
        }
        let (mut inner, mut own) = (lent.written.iter_mut(), fresh.iter_mut());
        for &t in &pass.outputs {
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
