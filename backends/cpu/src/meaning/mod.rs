//! Computes operators without a kernel of their own: compiles their meaning to vector code over tiles of the result.
//!
//! Never computes what the interpreter would reject: a meaning without vector code is declined, and an index out of range is handed to the
//! interpreter, which reports it.

mod builder;
mod code;
mod elements;
mod loops;
mod lower;
mod machine;
mod parts;
mod reads;
mod tiles;
mod walk;

use super::pointwise::{ElementSource, strided_copy};
use super::runtime::buffer::Buffer;
use super::runtime::fallback::ReferenceFallback;
use super::runtime::kernel::{Context, Kernel, TensorView};
use code::Program;
use lower::{HeldSteps, Source};
use machine::{Fault, Machine, Sources, TILE};
use mlc_backends::reference::accelerated::{contract, tables};
use mlc_backends::reference::code::Slot;
use mlc_backends::reference::code::cache::compiled;
use mlc_backends::reference::{Elements, Engine};
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::{CallKind, Callable};
use mlc_dsl::plan::Alive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a result that a task should at least compute.
const GRAIN: usize = 1 << 15;

/// A result, computed element by element.
struct Computed {
    program: Program,
    /// The tables that it reads behind the inputs.
    tables: Vec<Buffer>,
    /// Elements.
    len: usize,
    /// Of a result that takes part in the steps of a recurrence: the variable of the step, and how many elements lie side by side in
    /// one step.
    step: Option<(Slot, usize)>,
    /// How many steps there is memory for, if not all.
    held: Option<usize>,
}

/// The steps of a recurrence.
#[derive(Clone, Copy)]
struct RecurrenceSteps {
    backwards: bool,
    count: usize,
}

/// The results of an operator, and the steps of a recurrence.
type Results = (Vec<Computed>, Option<RecurrenceSteps>);

/// An operator, computed from its meaning.
pub struct Meaning {
    results: Vec<Computed>,
    recurrence: Option<RecurrenceSteps>,
    interpreter: ReferenceFallback,
    machines: Mutex<Vec<Machine>>,
}

impl Meaning {
    /// Prepares an operator on arguments of these types, whose results have these; of some only the last steps are in memory. Gives the
    /// interpreter back if it has no code.
    pub fn new(
        callable: &Callable,
        attrs: &[Option<Attr>],
        args: &[Source],
        outputs: &[Source],
        alive: &[Option<Alive>],
        interpreter: ReferenceFallback,
    ) -> Result<Meaning, ReferenceFallback> {
        match results(callable, attrs, args, outputs, alive) {
            Some((results, recurrence)) => {
                let machines = Mutex::default();
                Ok(Meaning { results, recurrence, interpreter, machines })
            }
            None => Err(interpreter),
        }
    }

    fn machine(&self) -> Machine {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        machines.pop().unwrap_or_default()
    }

    fn keep(&self, machine: Machine) {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner).push(machine);
    }
}

/// The code of all results.
fn results(
    callable: &Callable,
    attrs: &[Option<Attr>],
    args: &[Source],
    outputs: &[Source],
    alive: &[Option<Alive>],
) -> Option<Results> {
    let all = || args.iter().chain(outputs);
    if !matches!(callable.kind, CallKind::Op(_)) || all().any(|s| s.0 == DType::Str) {
        return None;
    }
    let app = compiled(callable, Engine::Fast, attrs, args).ok()?;
    let recurrent = callable.recurrence.as_ref();
    let types = app.types.iter().zip(outputs);
    let fits = |(ty, o): (&mlc_dsl::ir::Type, &Source)| {
        ty.dtype == o.0 && ty.known_shape().is_some_and(|s| s == o.1)
    };
    if app.codes.len() != outputs.len() || !types.into_iter().all(fits) {
        return None;
    }
    // A state of few bits would be rounded at each step.
    let is_exact = |s: &Source| !s.0.is_float() || matches!(s.0, DType::F32 | DType::F64);
    if recurrent.is_some() && !outputs.iter().all(is_exact) {
        return None;
    }
    let wide = all().any(|s| s.0 == DType::F64);
    // Where there are no more steps than are held, all are.
    let held = |(alive, (_, shape)): (&Option<Alive>, &Source)| {
        alive.filter(|alive| alive.steps < shape[alive.axis])
    };
    let held: Vec<HeldSteps> = alive.iter().zip(outputs).map(held).collect();
    let mut of_sources = vec![None; args.len()];
    of_sources.extend_from_slice(&held);
    let (mut results, mut steps) = (vec![], 0);
    for ((code, (dtype, shape)), held) in app.codes.into_iter().zip(outputs).zip(held) {
        let (code, found) = match recurrent {
            Some(_) => (code, vec![]),
            None => tables::tabulated(code, args.len()),
        };
        if recurrent.is_none() && contract::is_product(&code) {
            return None;
        }
        let table = |t: &Elements| match t {
            Elements::Float(v) => (DType::F64, vec![v.len()]),
            Elements::Int(v) => (DType::I64, vec![v.len()]),
        };
        let mut sources = args.to_vec();
        match recurrent {
            Some(_) => sources.extend_from_slice(outputs),
            None => sources.extend(found.iter().map(table)),
        }
        let program = lower::lower(&code, &sources, &of_sources, *dtype, wide)?;
        let bytes = |t: &Elements| match t {
            Elements::Float(v) => Buffer::copy_of(bytemuck::cast_slice(v)),
            Elements::Int(v) => Buffer::copy_of(bytemuck::cast_slice(v)),
        };
        let step = match code.step {
            Some(slot) => {
                let at = code.axes.iter().position(|a| a.0 == slot)?;
                steps = steps.max(code.axes[at].1 as usize);
                Some((slot, code.axes[at + 1..].iter().map(|a| a.1 as usize).product()))
            }
            None => None,
        };
        let len = shape.iter().product();
        let tables = found.iter().map(bytes).collect();
        let held = held.map(|alive| alive.steps);
        results.push(Computed { program, tables, len, step, held });
    }
    Some((results, recurrent.map(|r| RecurrenceSteps { backwards: r.backwards, count: steps })))
}

impl Computed {
    /// Elements `at..` of the result, as `out` holds.
    fn span(
        &self,
        m: &mut Machine,
        sources: &impl Sources,
        at: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let size = self.program.dtype.size();
        m.prepare(&self.program);
        for (i, out) in out.chunks_mut(TILE * size).enumerate() {
            m.tile(&self.program, sources, at + i * TILE, out)?;
        }
        Ok(())
    }
}

/// What the equations of a recurrence read.
struct SoFar<'a, 'b> {
    inputs: &'a [&'a [u8]],
    results: &'a [&'b mut [u8]],
}

impl Sources for SoFar<'_, '_> {
    fn bytes(&self, source: usize) -> &[u8] {
        match source.checked_sub(self.inputs.len()) {
            None => self.inputs[source],
            Some(result) => &*self.results[result],
        }
    }
}

impl Meaning {
    /// Results that no step of which depends on another.
    fn plain(
        &self,
        cx: &Context<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Fault> {
        let failed = AtomicBool::new(false);
        for (result, out) in self.results.iter().zip(outputs) {
            let size = result.program.dtype.size();
            let mut sources = inputs.to_vec();
            sources.extend(result.tables.iter().map(Buffer::bytes));
            cx.threads.chunks(out, size * TILE, GRAIN, |at, part| {
                let mut m = self.machine();
                if result.span(&mut m, &sources, at / size, part).is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                self.keep(m);
            });
        }
        if failed.into_inner() { Err(Fault) } else { Ok(()) }
    }

    /// Step by step; then the results that take part in none.
    fn recurrent(
        &self,
        m: &mut Machine,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        RecurrenceSteps { backwards, count: steps }: RecurrenceSteps,
    ) -> Result<(), Fault> {
        for k in 0..steps {
            let at = if backwards { steps - 1 - k } else { k };
            for (i, result) in self.results.iter().enumerate() {
                let Some((slot, run)) = result.step else { continue };
                m.prepare(&result.program);
                m.slots[slot] = at as i64;
                let (len, size) = (result.len / steps, result.program.dtype.size());
                let held = result.held.unwrap_or(steps);
                for start in (0..len).step_by(TILE) {
                    let n = TILE.min(len - start);
                    let sources = SoFar { inputs, results: outputs };
                    m.value(&result.program, &sources, start, n)?;
                    let mut done = 0;
                    while done < n {
                        let (row, column) = ((start + done) / run, (start + done) % run);
                        let some = (run - column).min(n - done);
                        let to = ((row * held + at % held) * run + column) * size;
                        let out = &mut outputs[i][to..to + some * size];
                        m.write_part(&result.program, done, out, some);
                        done += some;
                    }
                }
            }
        }
        for (i, result) in self.results.iter().enumerate() {
            let (None, size) = (result.step, result.program.dtype.size()) else { continue };
            m.prepare(&result.program);
            for start in (0..result.len).step_by(TILE) {
                let n = TILE.min(result.len - start);
                let sources = SoFar { inputs, results: outputs };
                m.value(&result.program, &sources, start, n)?;
                let out = &mut outputs[i][start * size..(start + n) * size];
                m.write_part(&result.program, 0, out, n);
            }
        }
        Ok(())
    }
}

/// The elements of an array, row-major; copied to `to` if they do not lie so.
fn dense<'a>(a: &TensorView<'a>, to: &'a mut Buffer) -> Result<&'a [u8], String> {
    let (size, len) = (a.dtype.size(), a.layout.len());
    if a.layout.is_dense() {
        let whole = a.layout.offset * size..(a.layout.offset + len) * size;
        // What is empty has no place, but it is aligned.
        return Ok(if len == 0 { bytemuck::cast_slice::<u64, u8>(&[]) } else { &a.bytes[whole] });
    }
    let source = ElementSource::of(a.layout).ok_or("a view of too many axes")?;
    *to = Buffer::new(len * size);
    macro_rules! go {
        ($t:ty) => {
            strided_copy::<$t>(&source, a.typed(), 0, bytemuck::cast_slice_mut(to.bytes_mut()))
        };
    }
    super::pointwise::convert::by_size!(a.dtype, go);
    Ok(to.bytes())
}

impl Kernel for Meaning {
    fn scratch(&self) -> u64 {
        self.interpreter.scratch()
    }

    fn run(
        &self,
        cx: &Context<'_>,
        inputs: &[TensorView<'_>],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let mut copies: Vec<Buffer> = inputs.iter().map(|_| Buffer::default()).collect();
        let pairs = inputs.iter().zip(&mut copies);
        let read = pairs.map(|(a, to)| dense(a, to)).collect::<Result<Vec<&[u8]>, String>>()?;
        let done = match self.recurrence {
            None => self.plain(cx, &read, outputs),
            Some(steps) => {
                let mut m = self.machine();
                let done = self.recurrent(&mut m, &read, outputs, steps);
                self.keep(m);
                done
            }
        };
        match done {
            Ok(()) => Ok(()),
            Err(Fault) => self.interpreter.run(cx, inputs, outputs),
        }
    }
}
