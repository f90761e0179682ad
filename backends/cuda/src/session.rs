//! A plan loaded on a device: constants, runs and their timing.

use super::autotune::launch_mode::EarlyLaunch;
use super::autotune::libraries::{LibraryChoices, RunStep};
use super::bound_launch::{BoundLaunch, MegakernelLaunch, Sequence};
use super::buffers::{Buffers, FAULT_BYTES, OwnedGraph, OwnedStream, misplaced, size};
use crate::buffers::DeviceConstants;
use crate::driver::{Address, Driver, Invocation};
use crate::function_cache::{CODE_BYTES, FunctionCache, LoadedFunctions};
use crate::launch::{FAULT_WORDS, Launch, Launches, Place, Port};
use bytes::Bytes;
use mlc_backends::device::DriverError;
use mlc_backends::{Allocated, BackendError, Executable, LaunchTime};
use mlc_dsl::ir::{Consts, Tensor, Type};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Where an output is copied from, and its bytes; `None` if it is an input or a constant.
type OutputDownload = Option<(Address, Vec<u8>)>;

/// How the launches of a run are started.
pub(super) enum Start {
    /// One by one, for the first time: the driver may load functions when they are first started.
    First,
    /// One by one so far.
    Single,
    /// One by one always: there is nothing to gain, or the device cannot capture.
    Always,
    /// As a captured graph.
    Recorded(OwnedGraph),
}

/// Launches that are ready to run on a device.
pub struct LaunchedPlan {
    pub(super) launches: Launches,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) each: Sequence,
    /// The megakernel, unless the device refuses it.
    pub(super) megakernel: Option<MegakernelLaunch>,
    /// Notes of the chosen variants.
    pub(super) variants: Vec<String>,
    /// Which launches are programmatic, and why.
    pub(super) early: (EarlyLaunch, String),
    /// The values of outputs that are constants.
    constants: Arc<DeviceConstants>,
    /// Held during a run: runs share all memory.
    pub(super) running: Mutex<Start>,
    /// Why a run could not be captured, if so.
    unrecorded: OnceLock<String>,
    // What follows is given back in this order: nothing runs once the stream has ended.
    pub(super) stream: OwnedStream,
    /// Library calls in place of launches.
    pub(super) choices: LibraryChoices,
    functions: LoadedFunctions,
    pub(super) buffers: Buffers,
}

impl LaunchedPlan {
    /// Loads the code, uploads the constants, allocates memory and runs the setup.
    ///
    /// # Errors
    /// The device refuses, or a launch reaches outside of its memory.
    pub fn new(
        launches: Launches,
        driver: Arc<dyn Driver>,
        constants: Consts,
    ) -> Result<LaunchedPlan, BackendError> {
        let constants = Arc::new(DeviceConstants::new(driver.clone(), constants));
        let functions = FunctionCache::new(driver.clone(), CODE_BYTES);
        LaunchedPlan::sharing(launches, driver, &constants, &functions)
    }

    /// The same with constants and functions that other plans use, too, on the same device.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn sharing(
        launches: Launches,
        driver: Arc<dyn Driver>,
        constants: &Arc<DeviceConstants>,
        functions: &FunctionCache,
    ) -> Result<LaunchedPlan, BackendError> {
        let buffers = Buffers::new(&launches, &driver, constants)?;
        let once = Sequence::new(&launches.once, &buffers)?;
        let each = Sequence::new(&launches.each, &buffers)?;
        let megakernel = launches.megakernel.as_ref();
        let megakernel =
            megakernel.map(|l| MegakernelLaunch::new(l, each.calls.len(), &buffers)).transpose()?;
        for (port, place) in &launches.outputs {
            let there = match place {
                Place::Input(i) => launches.inputs.get(*i).is_some_and(|p| size(p) == size(port)),
                Place::Constant(id) => constants
                    .tensor(*id)
                    .is_some_and(|t| Some(t.bytes().len() as u64) == size(port)),
                _ => size(port).is_some_and(|bytes| buffers.address(*place, bytes).is_some()),
            };
            if !there {
                return Err(misplaced(&port.name));
            }
        }
        let stream = OwnedStream::new(&driver)?;
        let functions = match once.calls.is_empty() && each.calls.is_empty() {
            true => LoadedFunctions::default(),
            false => functions.load(&launches.code())?,
        };
        // One launch is started as fast by itself.
        let is_one = each.calls.len() < 2 || megakernel.is_some();
        let start = if is_one { Start::Always } else { Start::First };
        let mut plan = LaunchedPlan {
            launches,
            driver,
            each,
            megakernel,
            variants: vec![],
            early: (EarlyLaunch::None, String::new()),
            constants: constants.clone(),
            running: Mutex::new(start),
            unrecorded: OnceLock::new(),
            stream,
            choices: LibraryChoices::default(),
            functions,
            buffers,
        };
        for numbers in [&plan.buffers.grid, &plan.buffers.counts].into_iter().flatten() {
            plan.driver.clear(plan.stream.stream, numbers.address, numbers.bytes)?;
        }
        plan.start(&once)?;
        plan.finish(&once, &mut [])?;
        let read = plan.launches.each.iter().flat_map(|l| &l.arguments).map(|a| a.place);
        let others = plan.launches.variants.iter().flat_map(|v| &v.replacement);
        let others = others.flat_map(|l| &l.arguments).map(|a| a.place);
        let read: HashSet<Place> = read.chain(others).collect();
        plan.buffers.constants.retain(|place, _| read.contains(place));
        plan.choose_variants()?;
        plan.choices = LibraryChoices::choose(&plan)?;
        plan.choose_run()?;
        Ok(plan)
    }

    /// Bytes that it keeps for itself: memory on the device, and the texts of its functions on the host.
    pub(super) fn bytes(&self) -> u64 {
        let code = self.launches.code();
        let texts: usize = code.functions().map(|(_, text)| text.len()).sum();
        self.buffers.bytes() + texts as u64
    }

    /// Clears the record of faults.
    fn clear(&self, sequence: &Sequence) -> Result<(), DriverError> {
        let record = &self.buffers.fault;
        match sequence.faulty {
            true => self.driver.clear(self.stream.stream, record.address, record.bytes),
            false => Ok(()),
        }
    }

    /// Starts a launch; an early one is right behind another one of generated code.
    pub(super) fn launch(&self, call: &BoundLaunch, is_early: bool) -> Result<(), DriverError> {
        if let (Some(fallback), Some(_)) = (&call.fallback, call.refused.get()) {
            return self.launch(fallback, false);
        }
        let (on, driver) = (self.stream.stream, &self.driver);
        let BoundLaunch { function, grid, block, shared, arguments, numbers, .. } = call;
        let module = self.functions.module(function).ok_or_else(|| {
            let reason = format!("`{function}` is not among the functions of the plan");
            DriverError::Call { call: "launch", reason }
        })?;
        let (grid, block, shared) = (*grid, *block, *shared);
        let what = Invocation { module, function, grid, block, shared, arguments, numbers };
        match (call.is_cooperative, is_early) {
            (true, _) => match (driver.launch_cooperative(on, &what), &call.fallback) {
                (Err(e @ DriverError::Call { .. }), Some(fallback)) => {
                    call.refused.get_or_init(|| e.to_string());
                    self.launch(fallback, false)
                }
                (done, _) => done,
            },
            (false, true) => driver.launch_programmatic(on, &what),
            (false, false) => driver.launch(on, &what),
        }
    }

    /// Starts launches in order, one by one.
    fn start(&self, sequence: &Sequence) -> Result<(), DriverError> {
        self.clear(sequence)?;
        sequence.calls.iter().try_for_each(|call| self.start_one(call, false))
    }

    fn start_one(&self, call: &BoundLaunch, is_early: bool) -> Result<(), DriverError> {
        let done = self.launch(call, is_early);
        done.map_err(|e| self.blamed(e, std::slice::from_ref(call)))
    }

    /// Starts a run: the megakernel, or launches and library calls.
    fn start_each(&self) -> Result<(), DriverError> {
        if let Some(merged) = self.megakernel.as_ref().filter(|m| m.is_used()) {
            match self.start_as_one() {
                Err(e @ DriverError::Call { .. }) => merged.give_up(&e),
                done => return done,
            }
        }
        self.start_apart(self.early.0)
    }

    /// Starts a run as the megakernel.
    pub(super) fn start_as_one(&self) -> Result<(), DriverError> {
        self.clear(&self.each)?;
        let merged = self.megakernel.iter();
        merged.map(|m| &m.call).try_for_each(|call| self.start_one(call, false))
    }

    /// Starts a run as separate launches.
    pub(super) fn start_apart(&self, early: EarlyLaunch) -> Result<(), DriverError> {
        self.clear(&self.each)?;
        let mut ahead: Option<&BoundLaunch> = None;
        for step in self.steps() {
            // Launches whose blocks wait for each other begin when all ahead have ended, and so do those behind them.
            let is_open = |call: &BoundLaunch| match early {
                EarlyLaunch::None => false,
                EarlyLaunch::Light => call.is_light,
                EarlyLaunch::All => true,
            };
            let is_early =
                ahead.is_some_and(|c| !c.is_cooperative) && step.call().is_some_and(is_open);
            self.start_step(&step, is_early)?;
            ahead = step.call();
        }
        Ok(())
    }

    /// Whether a run is the megakernel.
    pub(super) fn is_one(&self) -> bool {
        self.megakernel.as_ref().is_some_and(MegakernelLaunch::is_used)
    }

    /// The launches of every run.
    pub(super) fn calls(&self) -> &[BoundLaunch] {
        &self.each.calls
    }

    /// The steps of a run.
    fn steps(&self) -> Vec<RunStep<'_>> {
        self.choices.steps(&self.each.calls)
    }

    fn start_step(&self, step: &RunStep<'_>, is_early: bool) -> Result<(), DriverError> {
        match step {
            RunStep::Launch(_, call) => self.start_one(call, is_early),
            RunStep::Library(choice) => match choice.start(self) {
                Err(e) if !matches!(e, DriverError::Lost { .. } | DriverError::Kernel { .. }) => {
                    // What the library does not compute, the launches do.
                    self.choices.give_up(choice, &e);
                    choice
                        .own(&self.each.calls)
                        .iter()
                        .try_for_each(|call| self.start_one(call, false))
                }
                done => done.map_err(|e| self.blamed(e, choice.own(&self.each.calls))),
            },
        }
    }

    /// Captures the launches of a run as a graph, once they were started.
    fn recorded(&self, how: &mut Start) -> Result<(), DriverError> {
        if let Start::Single = how {
            let in_use = self.choices.in_use();
            let record = || self.driver.record(self.stream.stream, &mut || self.start_each());
            let recorded = match record() {
                // What a library did not let be recorded is recorded without it.
                Err(DriverError::Call { .. }) if self.choices.in_use() < in_use => record(),
                other => other,
            };
            let recorded = match recorded {
                Err(e @ DriverError::Call { .. }) => {
                    let note = format!("launches are started one by one, not as recorded: {e}");
                    self.unrecorded.get_or_init(|| note);
                    None
                }
                other => other?,
            };
            *how = match recorded {
                Some(graph) => Start::Recorded(OwnedGraph::new(&self.driver, graph)),
                None => Start::Always,
            };
        }
        Ok(())
    }

    /// Starts a run: the first time one by one, then as a graph.
    fn start_run(&self, how: &mut Start) -> Result<(), DriverError> {
        self.recorded(how)?;
        match how {
            Start::Recorded(own) => {
                let done = self.driver.replay(self.stream.stream, own.graph);
                done.map_err(|e| self.blamed(e, &self.each.calls))
            }
            Start::First => {
                self.start_each()?;
                *how = Start::Single;
                Ok(())
            }
            Start::Single | Start::Always => {
                let was_one = self.is_one();
                self.start_each()?;
                // What the device refused as one launch was started for the first time.
                if was_one && !self.is_one() && self.each.calls.len() > 1 {
                    *how = Start::Single;
                }
                Ok(())
            }
        }
    }

    /// Waits for launches, and copies parts of memory; the fault that the launches record is an error.
    fn finish(
        &self,
        sequence: &Sequence,
        parts: &mut [(Address, &mut [u8])],
    ) -> Result<(), BackendError> {
        let mut record = [0; FAULT_BYTES];
        let mut all: Vec<(Address, &mut [u8])> = Vec::with_capacity(1 + parts.len());
        if sequence.faulty {
            all.push((self.buffers.fault.address, &mut record));
        }
        all.extend(parts.iter_mut().map(|(from, into)| (*from, &mut **into)));
        if all.is_empty() && sequence.calls.is_empty() {
            return Ok(());
        }
        let done = match all.is_empty() {
            true => self.driver.wait(self.stream.stream),
            false => self.driver.download(self.stream.stream, &mut all),
        };
        done.map_err(|e| self.blamed(e, &sequence.calls))?;
        let mut words = record.chunks_exact(8).map(|w| w.try_into().expect("8 bytes"));
        self.fault(std::array::from_fn(|_| words.next().map_or(0, i64::from_le_bytes)))
    }

    /// The error with the launches that may have caused it: a context is lost when code fails.
    fn blamed(&self, error: DriverError, calls: &[BoundLaunch]) -> DriverError {
        let DriverError::Lost { call, reason } = &error else { return error };
        let mut functions: Vec<String> = vec![];
        for call in calls {
            if !functions.contains(&call.function) {
                functions.push(call.function.clone());
            }
        }
        if functions.is_empty() {
            return error;
        }
        let all = self.launches.once.iter().chain(&self.launches.each);
        let mut sources: Vec<&str> = vec![];
        for launch in all.filter(|l| functions.contains(&l.function)) {
            if !sources.contains(&launch.source.as_str()) {
                sources.push(&launch.source);
            }
        }
        let reason = format!("{call}: {reason}");
        DriverError::Kernel { functions, source_text: sources.join("\n"), reason }
    }

    /// The error of a fault record, if there is one.
    fn fault(
        &self,
        [any, node, axis, index, extent]: [i64; FAULT_WORDS],
    ) -> Result<(), BackendError> {
        if any == 0 {
            return Ok(());
        }
        let name = usize::try_from(node).ok().and_then(|n| self.launches.nodes.get(n));
        let op = name.cloned().unwrap_or_else(|| format!("node {node}"));
        let reason = match axis {
            -1 => "an index exists for no element".to_string(),
            axis => {
                format!("index {index} is out of range for axis {axis}, which has extent {extent}")
            }
        };
        Err(BackendError::Operator { op, reason })
    }

    /// An error unless the inputs are those that the code was generated for.
    fn check(&self, inputs: &[Tensor]) -> Result<(), BackendError> {
        let bad = |name: &str, reason| Err(BackendError::Input { name: name.to_string(), reason });
        let ports = &self.launches.inputs;
        if ports.len() != inputs.len() {
            let (takes, given) = (ports.len(), inputs.len());
            return bad("", format!("the program takes {takes} inputs, {given} given"));
        }
        for (port, t) in ports.iter().zip(inputs) {
            if port.dtype != t.dtype() {
                return bad(&port.name, format!("expected {}, found {}", port.dtype, t.dtype()));
            }
            if port.shape != t.shape() {
                let wanted = Type::known(port.dtype, &port.shape);
                let found = t.shape();
                return bad(&port.name, format!("expected {wanted}, found shape {found:?}"));
            }
        }
        Ok(())
    }

    /// Sources and host buffers of the outputs; none for those that are inputs or constants.
    fn room_for_outputs(&self) -> Result<Vec<OutputDownload>, BackendError> {
        let room = |(port, place): &(Port, Place)| {
            if let Place::Input(_) | Place::Constant(_) = place {
                return Ok(None);
            }
            let bytes = size(port).ok_or_else(|| misplaced(&port.name))?;
            let from = self.buffers.address(*place, bytes).ok_or_else(|| misplaced(&port.name))?;
            Ok(Some((from, vec![0; bytes as usize])))
        };
        self.launches.outputs.iter().map(room).collect()
    }

    /// The value of an output.
    fn output(
        &self,
        (port, place): &(Port, Place),
        copied: OutputDownload,
        inputs: &[Tensor],
    ) -> Result<Tensor, BackendError> {
        let known = match place {
            Place::Input(i) => inputs.get(*i).map(|t| t.bytes().clone()),
            Place::Constant(id) => self.constants.tensor(*id).map(|t| t.bytes().clone()),
            _ => copied.map(|(_, bytes)| Bytes::from(bytes)),
        };
        let bytes = known.ok_or_else(|| misplaced(&port.name))?;
        Tensor::new(port.dtype, port.shape.clone(), bytes).map_err(|_| misplaced(&port.name))
    }

    /// Checks and uploads the inputs, for a run alone.
    fn begin(&self, inputs: &[Tensor]) -> Result<MutexGuard<'_, Start>, BackendError> {
        self.check(inputs)?;
        let alone = self.running.lock().unwrap_or_else(|e| e.into_inner());
        for (memory, tensor) in self.buffers.inputs.iter().zip(inputs) {
            if let Some(memory) = memory {
                memory.fill(&self.stream, tensor.bytes())?;
            }
        }
        Ok(alone)
    }
}

/// Runs before launches are timed one by one.
const AHEAD: usize = 6;

impl Executable for LaunchedPlan {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let mut how = self.begin(inputs)?;
        self.start_run(&mut how)?;
        let mut copied = self.room_for_outputs()?;
        let mut parts: Vec<(Address, &mut [u8])> = copied
            .iter_mut()
            .flatten()
            .filter(|(_, bytes)| !bytes.is_empty())
            .map(|(from, bytes)| (*from, bytes.as_mut_slice()))
            .collect();
        self.finish(&self.each, &mut parts)?;
        drop(how);
        let outputs = self.launches.outputs.iter().zip(copied);
        outputs.map(|(output, copied)| self.output(output, copied, inputs)).collect()
    }

    fn allocated(&self) -> Option<Allocated> {
        let arena = self.buffers.arena.bytes + self.buffers.kept.bytes;
        let results = self.buffers.outputs.values().map(|m| m.bytes).sum();
        Some(Allocated { arena, results })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.launches.notes.clone();
        notes.extend(self.variants.clone());
        notes.extend(self.choices.notes());
        notes.extend(self.megakernel.iter().map(MegakernelLaunch::note));
        let (early, why) = &self.early;
        match early {
            EarlyLaunch::None => {}
            EarlyLaunch::Light => notes.push(format!("light launches start early: {why}")),
            EarlyLaunch::All => notes.push(format!("launches start early: {why}")),
        }
        notes.extend(self.each.calls.iter().filter_map(BoundLaunch::note));
        notes.extend(self.unrecorded.get().cloned());
        notes
    }

    fn device_seconds(&self, inputs: &[Tensor]) -> Result<Option<f64>, BackendError> {
        let mut how = self.begin(inputs)?;
        if let Start::First = *how {
            self.start_run(&mut how)?;
        }
        self.recorded(&mut how)?;
        // Inputs are there before the clock starts: a copy of more than 64 KiB and what computes are on different engines of a device, and after a
        // pause the second one wakes up 0.13 ms behind the first one.
        self.driver.wait(self.stream.stream)?;
        let mut run = |_| self.start_run(&mut how);
        let seconds = self.driver.timed(self.stream.stream, 1, &mut run);
        let seconds = seconds.map_err(|e| self.blamed(e, &self.each.calls))?;
        self.finish(&self.each, &mut [])?;
        Ok(seconds.and_then(|s| s.first().copied()))
    }

    fn launch_seconds(&self, inputs: &[Tensor]) -> Result<Option<Vec<LaunchTime>>, BackendError> {
        let mut how = self.begin(inputs)?;
        if let Start::First = *how {
            self.start_run(&mut how)?;
        }
        self.recorded(&mut how)?;
        // While the device is busy with these, the host starts what is timed; else the device would wait for it in between.
        for _ in 0..AHEAD {
            self.start_run(&mut how)?;
        }
        self.clear(&self.each)?;
        let steps = self.steps();
        let mut start = |step: usize| self.start_step(&steps[step], false);
        let seconds = self.driver.timed(self.stream.stream, steps.len(), &mut start);
        let seconds = seconds.map_err(|e| self.blamed(e, &self.each.calls))?;
        self.finish(&self.each, &mut [])?;
        let launched: Vec<&Launch> = self.launches.each.iter().filter(|l| l.has_blocks()).collect();
        let time = |(step, seconds): (&RunStep<'_>, f64)| {
            let (function, at) = match step {
                RunStep::Launch(at, call) => (call.function.clone(), *at),
                RunStep::Library(choice) => (choice.name().to_string(), choice.launches.start),
            };
            LaunchTime { function, kernel: launched[at].kernel, seconds }
        };
        Ok(seconds.map(|all| steps.iter().zip(all).map(time).collect()))
    }
}
