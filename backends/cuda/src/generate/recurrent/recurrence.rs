//! User-defined recurrences: a block for each instance runs all steps, and its threads share the elements of each.
//!
//! Results of earlier steps are read where they are stored; a barrier follows every result of a step. Never runs two steps, or
//! two results of one step, at the same time.

use super::super::emit::{Emitter, Sharing, coordinates, offset_of};
use super::super::grid::GridSize;
use super::super::kernel::{KernelProgram, known_type, variable};
use super::super::procedure_launches::place_results;
use super::super::stages::Schedule;
use super::super::{Generator, KernelSite, Signature, StageMemory, bytes_of, spelling};
use crate::launch::{Argument, Launch};
use mlc_backends::BackendError;
use mlc_backends::reference::code::{Int, Slot};
use mlc_dsl::ir::{DType, NodeId, Value};

/// Elements of a loop from which on a warp shares it.
const SHARED: i64 = 32;
/// Threads of a block at most, and of one whose threads have an instance each.
const THREADS: i64 = 512;
const ALONE: i64 = 128;

/// A result that takes part in the steps.
struct StepResult {
    value: Value,
    dtype: DType,
    shape: Vec<usize>,
    /// Its index, and its axes besides the step and those of instances.
    index: Vec<Int>,
    own: Vec<(Slot, i64)>,
}

/// The axis of a result that its steps run along.
#[derive(Clone, Copy)]
struct StepAxis {
    value: Value,
    axis: usize,
    count: i64,
}

/// The steps of a node.
struct StepLoop {
    step: Slot,
    count: i64,
    /// The axes that tell instances apart.
    instances: Vec<(Slot, i64)>,
    results: Vec<StepResult>,
}

impl StepLoop {
    fn recognise(e: &mut Emitter<'_>, kernel: &KernelProgram, node: NodeId) -> Option<StepLoop> {
        let of = kernel.program.node(node);
        let values = (0..of.types.len() as u32).map(|output| Value { node, output });
        let steps: Vec<StepAxis> = values
            .filter_map(|value| {
                let code = kernel.code(value)?;
                let axis = code.axes.iter().position(|a| Some(a.0) == code.step)?;
                Some(StepAxis { value, axis, count: code.axes[axis].1 })
            })
            .collect();
        let count = steps.iter().map(|s| s.count).max()?;
        let mut independent = usize::MAX;
        for &s in &steps {
            independent = independent.min(StepLoop::apart(e, kernel, s, &steps)?);
        }
        let step = e.variable(count);
        let mut instances: Vec<(Slot, i64)> = vec![];
        let mut results = vec![];
        for &StepAxis { value, axis: at, .. } in &steps {
            let ty = kernel.program.ty(value);
            let shape = ty.known_shape()?;
            let (mut index, mut own) = (vec![], vec![]);
            for (axis, &n) in shape.iter().enumerate() {
                let place = axis - usize::from(axis > at);
                let slot = match axis {
                    _ if axis == at => step,
                    _ if place < independent && place < instances.len() => instances[place].0,
                    _ => e.variable(n as i64),
                };
                if axis != at && place < independent && place == instances.len() {
                    instances.push((slot, n as i64));
                } else if axis != at && place >= independent {
                    own.push((slot, n as i64));
                }
                index.push(Emitter::index(slot));
            }
            results.push(StepResult { value, dtype: ty.dtype, shape, index, own });
        }
        Some(StepLoop { step, count, instances, results })
    }

    /// How many of a result's first axes, the step left out, are the same in all that it reads of the results.
    fn apart(
        e: &mut Emitter<'_>,
        kernel: &KernelProgram,
        of: StepAxis,
        all: &[StepAxis],
    ) -> Option<usize> {
        let StepAxis { value: v, axis: at, .. } = of;
        let slots: Vec<(Slot, i64)> =
            kernel.code(v)?.axes.iter().map(|a| (e.variable(a.1), a.1)).collect();
        let index: Vec<Int> = slots.iter().map(|s| Emitter::index(s.0)).collect();
        let without = |i: &usize, at: usize| i + usize::from(*i >= at);
        let mut apart = slots.len() - 1;
        for (read, index) in e.analyse_body(v, &index).own {
            let other = all.iter().find(|s| s.value == read);
            let Some(StepAxis { axis: read_at, .. }) = other else { continue };
            let axes = &kernel.code(read)?.axes;
            let same = |i: &usize| {
                let (own, other) = (slots[without(i, at)], without(i, *read_at));
                let equal = variable(&index[other]) == Some(own.0) || own.1 == 1;
                equal && axes[other].1 == own.1
            };
            apart = (0..apart.min(axes.len() - 1)).take_while(same).count();
        }
        Some(apart)
    }

    /// Writes the function.
    fn write(&self, e: &mut Emitter<'_>, kernel: &KernelProgram, backwards: bool) -> GridSize {
        let blocks: i64 = self.instances.iter().map(|a| a.1).product();
        let longest = |r: &StepResult| {
            let found = kernel.reduces(r.value).then(|| kernel.loops(r.value));
            found.unwrap_or(0) >= SHARED
        };
        let elements = |r: &StepResult| r.own.iter().map(|a| a.1).product::<i64>();
        let wanted = |r: &StepResult| elements(r).saturating_mul(if longest(r) { 32 } else { 1 });
        let most = self.results.iter().map(wanted).max().unwrap_or(1).clamp(1, THREADS);
        let (kind, step) = (e.index_type(), Emitter::name(self.step));
        // An instance with one element of each result is a thread's.
        let is_single = most == 1;
        let threads = if is_single { ALONE } else { (most + 31) / 32 * 32 };
        match is_single {
            true => {
                e.line(format!("{kind} instance = {} * {threads} + threadIdx.x;", e.block()));
                e.line(format!("if (instance >= {blocks}) return;"));
            }
            false => e.line(format!("{kind} instance = {};", e.block())),
        }
        coordinates(e, "instance", &self.instances);
        e.open(&format!("for ({kind} at = 0; at < {}; ++at)", self.count));
        match backwards {
            true => e.line(format!("{kind} {step} = {} - at;", self.count - 1)),
            false => e.line(format!("{kind} {step} = at;")),
        }
        for (i, r) in self.results.iter().enumerate().filter(|r| elements(r.1) > 0) {
            let by_warp = longest(r);
            let name = format!("element{i}");
            let (first, turn) = match by_warp {
                true => ("threadIdx.x / 32", threads / 32),
                false => ("threadIdx.x", threads),
            };
            let n = elements(r);
            match is_single {
                true => {
                    e.open("");
                    coordinates(e, "0", &r.own);
                }
                false => {
                    let turns = format!("{kind} {name} = {first}; {name} < {n}; {name} += {turn}");
                    e.open(&format!("for ({turns})"));
                    coordinates(e, &name, &r.own);
                }
            }
            if by_warp {
                e.cooperate(Sharing { by_warp, ..Sharing::plain(32) });
            }
            let value = e.computed(r.value, &r.index);
            e.alone();
            let offset = offset_of(&r.shape, &r.index).expect("its bytes are an `i64`");
            let place = spelling::affine(&offset, &Emitter::name);
            let store =
                format!("y{}[{place}] = {};", r.value.output, spelling::element(r.dtype, &value));
            match by_warp {
                true => e.line(format!("if (threadIdx.x % 32 == 0) {store}")),
                false => e.line(store),
            }
            e.close();
            if !is_single {
                e.line("__syncthreads();");
            }
        }
        e.close();
        let blocks = blocks as u64;
        let blocks = if is_single { blocks.div_ceil(ALONE as u64) } else { blocks };
        GridSize { blocks, threads: threads as u32 }
    }
}

impl Generator<'_> {
    /// The launch of a recurrence's steps; all of its results become places.
    pub(crate) fn recurrence(
        &mut self,
        site: KernelSite<'_>,
        kernel: &KernelProgram,
        node: NodeId,
        memory: &mut StageMemory,
    ) -> Result<Vec<Launch>, BackendError> {
        let has_steps = |v: &Value| kernel.code(*v).is_some_and(|c| c.step.is_some());
        place_results(kernel, node, &has_steps, memory)?;
        let mut e = Emitter::new(kernel);
        e.first_node = site.first_node;
        let mut order: Vec<Value> = memory.places.keys().copied().collect();
        order.sort_unstable();
        for (i, v) in order.iter().enumerate() {
            let name = if v.node == node { format!("y{}", v.output) } else { format!("x{i}") };
            e.stored.insert(*v, name);
        }
        let Some(steps) = StepLoop::recognise(&mut e, kernel, node).filter(|s| s.count > 0) else {
            return Ok(vec![]);
        };
        let grid = steps.write(&mut e, kernel, kernel.recurrences[&node]);
        if grid.blocks == 0 {
            return Ok(vec![]);
        }
        let mut signature = Signature::default();
        let read = order.iter().filter(|v| e.read.contains(v) && v.node != node);
        let results = steps.results.iter().map(|r| &r.value);
        for v in read.chain(results) {
            let (ty, written) = (known_type(&kernel.program, *v)?, v.node == node);
            let constant = if written { "" } else { "const " };
            let (element, place) = (spelling::stored(ty.0), memory.places[v]);
            self.reads(place);
            signature.push(
                format!("GLOBAL({constant}{element}) {}", e.stored[v]),
                Argument { place, bytes: bytes_of(&ty), dtype: ty.0, written },
            );
        }
        let ty = kernel.program.ty(Value { node, output: 0 });
        let words = Schedule::Recurrence.words();
        let what = format!("{}: {ty}, {words}.", self.kernel_words(site.number));
        Ok(vec![self.assembled(site, what, e.into(), signature, grid)?])
    }
}
