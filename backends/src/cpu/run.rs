//! Running a compiled plan: intermediate values in one arena per concurrent run, results in memory that leaves with them.

use super::arena::{self, Part, lend};
use super::buffer::{Buffer, Lease, Pool};
use super::graph::{self, Graph};
use super::launch::{Array, Context, Packs};
use super::layout::Layout;
use super::resolve::{NEEDS_DATA, Place, Resolved, Resolver, Step, Storage, aligned, room};
use super::symbols::Symbols;
use super::threads::Threads;
use crate::{Allocated, BackendError, Executable};
use bytes::Bytes;
use mlc_dsl::ir::Tensor;
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Shapes whose launches are kept.
const KEPT: usize = 16;

/// A plan ready to run.
pub struct Compiled {
    graph: Graph,
    library: Arc<Library>,
    threads: Arc<Threads>,
    packs: Packs,
    /// Bytes that buffers may take; `None` for what the machine has free.
    memory: Option<u64>,
    /// Launches by the symbols' values, in order of first use.
    ready: Mutex<Vec<(Symbols, Arc<Ready>)>>,
}

/// Launches with their memory plan.
struct Ready {
    resolved: Resolved,
    /// The part of the arena that each intermediate has; `None` for results.
    parts: Vec<Option<Part>>,
    /// Bytes of the arena.
    bytes: usize,
    arenas: Mutex<Vec<Buffer>>,
    results: Arc<Pool>,
}

impl Compiled {
    /// Reads the plan; with static shapes the launches are prepared at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        threads: Arc<Threads>,
        memory: Option<u64>,
    ) -> Result<Compiled, BackendError> {
        let graph = graph::read(plan, &library)?;
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let compiled = Compiled {
            graph,
            library,
            threads,
            packs: Packs::default(),
            memory,
            ready: Mutex::new(Vec::new()),
        };
        if fixed {
            match compiled.ready(&Symbols::default()) {
                Err(e) if needs_data(&e) => {}
                other => drop(other?),
            }
        }
        Ok(compiled)
    }

    fn resolve(
        &self,
        symbols: &Symbols,
        inputs: Option<&[Tensor]>,
    ) -> Result<Resolved, BackendError> {
        self.threads.enter(|| {
            Resolver::resolve(
                &self.graph,
                &self.library,
                &self.threads,
                &self.packs,
                symbols.clone(),
                inputs,
                self.memory,
            )
        })
    }

    /// Runs once; the seconds of every launch. Empty if shapes depend on data.
    pub fn times(&self, inputs: &[Tensor]) -> Result<Vec<f64>, BackendError> {
        let symbols = Symbols::bind(&self.graph.program.inputs, inputs)?;
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(aligned).collect();
        let ready = match self.ready(&symbols) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let mut times = Vec::with_capacity(ready.resolved.steps.len());
        self.threads.enter(|| ready.run(&self.threads, &inputs, Some(&mut times)))?;
        Ok(times)
    }

    /// The kernel of the plan that each launch belongs to, in the order of [`times`](Self::times).
    pub fn owners(&self, inputs: &[Tensor]) -> Result<Vec<Option<usize>>, BackendError> {
        let symbols = Symbols::bind(&self.graph.program.inputs, inputs)?;
        match self.ready(&symbols) {
            Err(e) if needs_data(&e) => Ok(vec![]),
            other => Ok(other?.resolved.steps.iter().map(|s| s.kernel).collect()),
        }
    }

    /// The launches for these symbols, prepared now or before.
    fn ready(&self, symbols: &Symbols) -> Result<Arc<Ready>, BackendError> {
        let lock = || self.ready.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, known)) = lock().iter().find(|(s, _)| s == symbols) {
            return Ok(known.clone());
        }
        let fresh = Arc::new(Ready::new(self.resolve(symbols, None)?, self.memory)?);
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

impl Executable for Compiled {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let symbols = Symbols::bind(&self.graph.program.inputs, inputs)?;
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(aligned).collect();
        match self.ready(&symbols) {
            Ok(ready) => self.threads.enter(|| ready.run(&self.threads, &inputs, None)),
            Err(e) if needs_data(&e) => {
                let done = self.resolve(&symbols, Some(&inputs))?;
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
fn leaf(resolved: &Resolved, place: &Place, inputs: &[Tensor]) -> Tensor {
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
    /// Places the buffers, unless they and what the largest launch works in take more than there is.
    fn new(resolved: Resolved, memory: Option<u64>) -> Result<Ready, BackendError> {
        let (parts, bytes) = arena::parts(&resolved);
        let results = resolved.temps.iter().zip(&parts).filter(|(_, p)| p.is_none());
        let results = results.fold(0u64, |n, (b, _)| n.saturating_add(*b as u64));
        let scratch = |s: &&Step| s.launch.scratch();
        let most = resolved.steps.iter().max_by_key(scratch).map_or(0, |s| s.launch.scratch());
        let all = results.saturating_add(bytes as u64).saturating_add(most);
        if let Err(limit) = room(all, memory) {
            let size = |s: &&Step| {
                let outputs = s.outputs.iter().map(|&t| resolved.temps[t] as u64);
                outputs.fold(s.launch.scratch(), u64::saturating_add)
            };
            let op = resolved.steps.iter().max_by_key(size).map_or("", |s| s.name.as_str()).into();
            let what = "the buffers of the plan, most of them its own,".into();
            return Err(BackendError::Memory { op, what, bytes: all, limit });
        }
        Ok(Ready { resolved, parts, bytes, arenas: Mutex::default(), results: Arc::default() })
    }

    fn run(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let lock = || self.arenas.lock().unwrap_or_else(|e| e.into_inner());
        let free = lock().pop();
        let mut arena = free.unwrap_or_else(|| Buffer::new(self.bytes));
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
            let done = self.step(step, threads, inputs, arena, results);
            if let (Some(times), Some(start)) = (&mut watch, start) {
                times.push(start.elapsed().as_secs_f64());
            }
            done.map_err(|reason| BackendError::Operator { op: step.name.clone(), reason })?;
        }
        Ok(())
    }

    fn step(
        &self,
        step: &Step,
        threads: &Threads,
        inputs: &[Tensor],
        arena: &mut [u8],
        results: &mut HashMap<usize, Lease>,
    ) -> Result<(), String> {
        // Results are taken out of the map while others are read from it.
        let is_result = |t: &&usize| self.parts[**t].is_none();
        let mut fresh: Vec<(usize, Lease)> = step
            .outputs
            .iter()
            .filter(is_result)
            .map(|&t| (t, self.results.take(self.resolved.temps[t])))
            .collect();
        let written: Vec<Part> = step.outputs.iter().filter_map(|&t| self.parts[t]).collect();
        let (inner, rest) = lend(arena, &written).ok_or("its results overlap in memory")?;
        let bytes = |p: &Place| match p.storage {
            Storage::Const(c) => Ok(&self.resolved.consts[c].bytes()[..]),
            Storage::Input(i) => Ok(&inputs[i].bytes()[..]),
            Storage::Temp(t) => match self.parts[t] {
                Some(part) => rest.read(part),
                None => results.get(&t).map(|b| b.bytes()),
            }
            .ok_or("it reads memory that it writes"),
        };
        let mut arrays: Vec<Array<'_>> = Vec::with_capacity(step.own);
        for p in &step.inputs[..step.own] {
            arrays.push(Array { dtype: p.dtype, layout: &p.layout, bytes: bytes(p)? });
        }
        let mut extra: Vec<&[u8]> = vec![&[]];
        for p in &step.inputs[step.own..] {
            extra.push(bytes(p)?);
        }
        let tail = step.tail.as_ref().map(|t| (t, extra.as_slice()));
        let (mut inner, mut own) = (inner.into_iter(), fresh.iter_mut());
        let mut outs: Vec<&mut [u8]> = Vec::with_capacity(step.outputs.len());
        for &t in &step.outputs {
            let next = match self.parts[t] {
                Some(_) => inner.next(),
                None => own.next().map(|(_, lease)| lease.bytes_mut()),
            };
            outs.extend(next);
        }
        step.launch.run(&Context { threads, tail }, &arrays, &mut outs)?;
        results.extend(fresh);
        Ok(())
    }
}
