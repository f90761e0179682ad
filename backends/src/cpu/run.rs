//! Runs a compiled plan: intermediate values in one arena per concurrent run, results in memory that is returned.

use super::arena::{Part, lend};
use super::buffer::{Buffer, BufferPool, Lease};
use super::graph::{self, KernelGraph};
use super::launch::{Array, Context};
use super::layout::Layout;
use super::packed_constants::PackedConstants;
use super::resolve::{
    Location, NEEDS_DATA, Pass, Resolved, Resolver, Storage, Temp, aligned, room,
};
use super::symbols::SymbolBindings;
use super::threads::Threads;
use crate::{Allocated, BackendError, Executable};
use bytes::Bytes;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Home, Memory, Plan};
use std::collections::HashMap;
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
    arenas: Mutex<Vec<Buffer>>,
    results: Arc<BufferPool>,
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
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(aligned).collect();
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
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(aligned).collect();
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
            let free = ready.arenas.lock().unwrap_or_else(|e| e.into_inner());
            out.arena += free.iter().map(|b| b.capacity() as u64).sum::<u64>();
            out.results += ready.results.bytes() as u64;
        }
        Some(out)
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
    let n = layout.len();
    if n == t.len() {
        return t.reshaped(layout.shape.clone());
    }
    let size = t.dtype().size();
    let from = if n == 0 { 0 } else { layout.offset * size };
    let bytes = t.bytes().slice(from..from + n * size);
    // The layout was checked against the storage when the program was resolved.
    Tensor::new(t.dtype(), layout.shape.clone(), bytes).expect("as many bytes as the layout needs")
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
        Ok(Ready { resolved, parts, arenas: Mutex::default(), results: Arc::default() })
    }

    fn run(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let lock = || self.arenas.lock().unwrap_or_else(|e| e.into_inner());
        let free = lock().pop();
        let mut arena = free.unwrap_or_else(|| Buffer::new(self.resolved.block as usize));
        let mut results: HashMap<usize, Lease> = HashMap::new();
        let done = self.steps(threads, inputs, arena.bytes_mut(), &mut results, watch);
        lock().push(arena);
        done?;
        let mut known: HashMap<usize, Tensor> = HashMap::new();
        let mut out = Vec::with_capacity(self.resolved.outputs.len());
        for place in &self.resolved.outputs {
            let Storage::Temp(t) = place.storage else {
                out.push(leaf(&self.resolved, place, inputs));
                continue;
            };
            if let Some(buffer) = results.remove(&t) {
                let bytes = Bytes::from_owner(buffer);
                // The whole buffer, flat; each output takes its part.
                let n = bytes.len() / place.dtype.size();
                let whole = bytes.slice(..n * place.dtype.size());
                let tensor = Tensor::new(place.dtype, vec![n], whole).map_err(|e| {
                    BackendError::Operator { op: "output".into(), reason: e.to_string() }
                })?;
                known.insert(t, tensor);
            }
            out.push(shaped(&known[&t], &place.layout));
        }
        Ok(out)
    }

    fn steps(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        arena: &mut [u8],
        results: &mut HashMap<usize, Lease>,
        mut watch: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        for step in &self.resolved.steps {
            let start = watch.as_ref().map(|_| Instant::now());
            for pass in &step.passes {
                let done = self.pass(pass, threads, inputs, arena, results);
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
        arena: &mut [u8],
        results: &mut HashMap<usize, Lease>,
    ) -> Result<(), String> {
        // Results are taken out of the map while others are read from it.
        let is_result = |t: &&usize| self.parts[**t].is_none();
        let mut fresh: Vec<(usize, Lease)> = pass
            .outputs
            .iter()
            .filter(is_result)
            .map(|&t| (t, self.results.take(self.resolved.temps[t].bytes)))
            .collect();
        let written: Vec<Part> = pass.outputs.iter().filter_map(|&t| self.parts[t]).collect();
        let (inner, rest) = lend(arena, &written).ok_or("its results overlap in memory")?;
        let bytes = |p: &Location| match p.storage {
            Storage::Const(c) => Ok(&self.resolved.consts[c].bytes()[..]),
            Storage::Input(i) => Ok(&inputs[i].bytes()[..]),
            Storage::Temp(t) => match self.parts[t] {
                Some(part) => rest.read(part),
                None => results.get(&t).map(|b| b.bytes()),
            }
            .ok_or("it reads memory that it writes"),
        };
        let mut arrays: Vec<Array<'_>> = Vec::with_capacity(pass.own);
        for p in &pass.inputs[..pass.own] {
            arrays.push(Array { dtype: p.dtype, layout: &p.layout, bytes: bytes(p)? });
        }
        let mut extra: Vec<&[u8]> = vec![&[]];
        for p in &pass.inputs[pass.own..] {
            extra.push(bytes(p)?);
        }
        let epilogue = pass.epilogue.as_ref().map(|t| (t, extra.as_slice()));
        let (mut inner, mut own) = (inner.into_iter(), fresh.iter_mut());
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(pass.outputs.len());
        for &t in &pass.outputs {
            let next = match self.parts[t] {
                Some(_) => inner.next(),
                None => own.next().map(|(_, lease)| lease.bytes_mut()),
            };
            outs.extend(next);
        }
        pass.launch.run(&Context { threads, epilogue }, &arrays, &mut outs)?;
        results.extend(fresh);
        Ok(())
    }
}
