//! Running a compiled plan: buffers by liveness, one arena per concurrent run.

use super::buffer::{Buffer, Lease, Pool};
use super::graph::{self, Graph};
use super::launch::{Array, Context, Packs};
use super::layout::Layout;
use super::resolve::{NEEDS_DATA, Place, Resolved, Resolver, Storage, aligned};
use super::symbols::Symbols;
use super::threads::Threads;
use crate::{BackendError, Executable};
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
    /// Launches by the symbols' values, in order of first use.
    ready: Mutex<Vec<(Symbols, Arc<Ready>)>>,
}

/// Launches with their memory plan.
struct Ready {
    resolved: Resolved,
    /// The slot of each intermediate; `None` for results, which leave the arena.
    slots: Vec<Option<usize>>,
    /// Bytes of each slot.
    sizes: Vec<usize>,
    arenas: Mutex<Vec<Vec<Buffer>>>,
    results: Arc<Pool>,
}

/// Memory that a step writes.
enum Held {
    Slot(Buffer),
    Result(Lease),
}

impl Held {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Held::Slot(b) => b.bytes_mut(),
            Held::Result(b) => b.bytes_mut(),
        }
    }
}

impl Compiled {
    /// Reads the plan; with static shapes the launches are prepared at once.
    pub fn new(
        plan: &Plan,
        library: Arc<Library>,
        threads: Arc<Threads>,
    ) -> Result<Compiled, BackendError> {
        let graph = graph::read(plan, &library)?;
        let fixed = plan.program.inputs.iter().all(|(_, t)| t.known_shape().is_some());
        let compiled = Compiled {
            graph,
            library,
            threads,
            packs: Packs::default(),
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
            )
        })
    }

    /// The seconds of every launch, the least of `runs` runs, with the operator it is named after. Empty if shapes depend
    /// on data.
    pub fn profile(
        &self,
        inputs: &[Tensor],
        runs: usize,
    ) -> Result<Vec<(String, f64)>, BackendError> {
        let symbols = Symbols::bind(&self.graph.program.inputs, inputs)?;
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(aligned).collect();
        let ready = match self.ready(&symbols) {
            Err(e) if needs_data(&e) => return Ok(vec![]),
            other => other?,
        };
        let mut out: Vec<(String, f64)> =
            ready.resolved.steps.iter().map(|s| (s.name.clone(), f64::INFINITY)).collect();
        for _ in 0..runs {
            let mut times = Vec::with_capacity(out.len());
            self.threads.enter(|| ready.run(&self.threads, &inputs, Some(&mut times)))?;
            for (o, t) in out.iter_mut().zip(times) {
                o.1 = o.1.min(t);
            }
        }
        Ok(out)
    }

    /// The launches for these symbols, prepared now or before.
    fn ready(&self, symbols: &Symbols) -> Result<Arc<Ready>, BackendError> {
        let lock = || self.ready.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, known)) = lock().iter().find(|(s, _)| s == symbols) {
            return Ok(known.clone());
        }
        let fresh = Arc::new(Ready::new(self.resolve(symbols, None)?));
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
    fn new(resolved: Resolved) -> Ready {
        let (slots, sizes) = assign(&resolved);
        Ready { resolved, slots, sizes, arenas: Mutex::default(), results: Arc::default() }
    }

    fn run(
        &self,
        threads: &Threads,
        inputs: &[Tensor],
        watch: Option<&mut Vec<f64>>,
    ) -> Result<Vec<Tensor>, BackendError> {
        let lock = || self.arenas.lock().unwrap_or_else(|e| e.into_inner());
        let arena = lock().pop();
        let mut slots =
            arena.unwrap_or_else(|| self.sizes.iter().map(|&n| Buffer::new(n)).collect());
        let mut results: HashMap<usize, Lease> = HashMap::new();
        let done = self.steps(threads, inputs, &mut slots, &mut results, watch);
        lock().push(slots);
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
        slots: &mut [Buffer],
        results: &mut HashMap<usize, Lease>,
        mut watch: Option<&mut Vec<f64>>,
    ) -> Result<(), BackendError> {
        for step in &self.resolved.steps {
            let start = watch.as_ref().map(|_| Instant::now());
            // Taken out of the arena, so that inputs can be borrowed from it meanwhile.
            let mut held: Vec<Held> = step
                .outputs
                .iter()
                .map(|&t| {
                    let size = self.resolved.temps[t];
                    match self.slots[t] {
                        Some(s) => {
                            let mut b = std::mem::take(&mut slots[s]);
                            b.resize(size);
                            Held::Slot(b)
                        }
                        None => Held::Result(self.results.take(size)),
                    }
                })
                .collect();
            let done = {
                let bytes = |p: &Place| match p.storage {
                    Storage::Const(c) => &self.resolved.consts[c].bytes()[..],
                    Storage::Input(i) => &inputs[i].bytes()[..],
                    Storage::Temp(t) => match self.slots[t] {
                        Some(s) => &slots[s].bytes()[..self.resolved.temps[t]],
                        None => results.get(&t).map_or(&[][..], |b| b.bytes()),
                    },
                };
                let arrays: Vec<Array<'_>> = step.inputs[..step.own]
                    .iter()
                    .map(|p| Array { dtype: p.dtype, layout: &p.layout, bytes: bytes(p) })
                    .collect();
                let mut extra: Vec<&[u8]> = vec![&[]];
                extra.extend(step.inputs[step.own..].iter().map(bytes));
                let tail = step.tail.as_ref().map(|t| (t, extra.as_slice()));
                let mut outs: Vec<&mut [u8]> = held.iter_mut().map(Held::bytes_mut).collect();
                step.launch.run(&Context { threads, tail }, &arrays, &mut outs)
            };
            for (&t, buffer) in step.outputs.iter().zip(held) {
                match (self.slots[t], buffer) {
                    (Some(s), Held::Slot(b)) => slots[s] = b,
                    (_, Held::Result(b)) => drop(results.insert(t, b)),
                    (None, Held::Slot(_)) => {}
                }
            }
            if let (Some(times), Some(start)) = (&mut watch, start) {
                times.push(start.elapsed().as_secs_f64());
            }
            done.map_err(|reason| BackendError::Operator { op: step.name.clone(), reason })?;
        }
        Ok(())
    }
}

/// Slots for intermediates by liveness: the smallest free one that fits, else the largest, grown.
fn assign(r: &Resolved) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut last = vec![0usize; r.temps.len()];
    for (i, step) in r.steps.iter().enumerate() {
        for p in &step.inputs {
            if let Storage::Temp(t) = p.storage {
                last[t] = i;
            }
        }
        for &t in &step.outputs {
            last[t] = last[t].max(i);
        }
    }
    let mut leaves = vec![false; r.temps.len()];
    for p in &r.outputs {
        if let Storage::Temp(t) = p.storage {
            leaves[t] = true;
        }
    }
    let mut ends: Vec<Vec<usize>> = vec![vec![]; r.steps.len()];
    for (t, &l) in last.iter().enumerate().filter(|(t, _)| !leaves[*t]) {
        ends[l].push(t);
    }
    let mut slots = vec![None; r.temps.len()];
    let (mut sizes, mut free): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
    for (i, step) in r.steps.iter().enumerate() {
        for &t in step.outputs.iter().filter(|&&t| !leaves[t]) {
            let need = r.temps[t];
            let fits = free.iter().copied().filter(|&s| sizes[s] >= need).min_by_key(|&s| sizes[s]);
            let slot = fits.or_else(|| free.iter().copied().max_by_key(|&s| sizes[s]));
            let slot = slot.unwrap_or_else(|| {
                sizes.push(0);
                sizes.len() - 1
            });
            free.retain(|&s| s != slot);
            sizes[slot] = sizes[slot].max(need);
            slots[t] = Some(slot);
        }
        free.extend(ends[i].iter().filter_map(|&t| slots[t]));
    }
    (slots, sizes)
}
