//! A device of bytes that records every call and may fail any of them.

#[allow(dead_code, reason = "not every test takes all of it")]
pub mod example;

use mlc_cuda::{
    Address, Code, ConvolutionTensor, Driver, DriverError, FAULT_WORDS, Graph, Invocation, Library,
    LibraryKind, LibraryOp, Module, Prepared, Room, Stream,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// A call as the driver sees it: addresses by the number of their allocation and the offset in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Allocate(u64),
    Free(u64),
    Stream,
    End(u64),
    Wait,
    Upload((u64, u64), usize),
    Download(Vec<((u64, u64), usize)>),
    Clear((u64, u64), u64),
    Load(String),
    Unload(u64),
    Launch(String, [u32; 3], u32, Vec<((u64, u64), u64)>),
    Record,
    Recorded,
    Replay(u64),
    Forget(u64),
    Timed(usize),
    Prepare(String, Vec<(u64, u64)>, ((u64, u64), u64)),
    Multiply(u64),
    Release(u64),
}

/// What a graph does.
#[derive(Clone)]
enum Task {
    Clear(Address, u64),
    Launch(u64, String, Vec<(Address, u64)>),
    Multiply(u64),
}

/// Bytes of an allocation that there really are.
const LARGE: u64 = 1 << 16;

/// A device of bytes. Allocation `n` begins at `n << 32`.
#[derive(Default)]
pub struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub calls: Vec<Call>,
    /// The number of the call that fails.
    pub fails: Option<usize>,
    /// Every call after the one that fails fails, too.
    pub is_final: bool,
    memory: BTreeMap<u64, Vec<u8>>,
    modules: BTreeSet<u64>,
    streams: BTreeSet<u64>,
    graphs: BTreeMap<u64, Vec<Task>>,
    /// What is recorded at the moment.
    recording: Option<Vec<Task>>,
    /// Can neither record nor time.
    pub is_old: bool,
    pub next: u64,
    /// The numbers that launches gave to functions, which take some.
    pub numbers: Vec<(String, Vec<i64>)>,
    /// Its library of products, and that of convolutions.
    pub library: Option<Library>,
    pub other_library: Option<Library>,
    /// The library's results are wrong.
    pub is_wrong: bool,
    /// What the steps that are timed take, in turns; or the n-th one takes n.
    pub seconds: Vec<f64>,
    /// What was chosen for what libraries compute, and for runs.
    pub chosen: BTreeMap<String, String>,
    pub chosen_runs: BTreeMap<String, String>,
    /// Lets launches come before the ones ahead of them have ended, and which did.
    pub has_programmatic_launch: bool,
    pub early: Vec<String>,
    /// Lets the blocks of launches wait for each other.
    pub waits: bool,
    products: BTreeMap<u64, (LibraryOp, Vec<Address>, usize)>,
    /// The ways of libraries besides the first one.
    pub more_ways: usize,
    /// Those whose results are wrong.
    pub wrong_ways: Vec<usize>,
    /// What a launch of `fault` records.
    pub fault: [i64; FAULT_WORDS],
}

/// What a choice is kept by.
fn all(of: &[LibraryOp]) -> String {
    of.iter().map(LibraryOp::to_string).collect::<Vec<_>>().join("; ")
}

fn place(address: Address) -> (u64, u64) {
    (address.0 >> 32, address.0 & 0xffff_ffff)
}

impl State {
    /// Records a call; an error if it is the one that fails.
    fn called(&mut self, call: Call) -> Result<(), DriverError> {
        let at = self.calls.len();
        let fails = self.fails.is_some_and(|f| at == f || self.is_final && at > f);
        let bytes = if let Call::Allocate(bytes) = call { Some(bytes) } else { None };
        self.calls.push(call);
        let reason = || "refused".to_string();
        match (fails, bytes) {
            (false, _) => Ok(()),
            (true, _) if self.is_final => Err(DriverError::Lost { call: "call", reason: reason() }),
            (true, Some(bytes)) => {
                let room = Some(Room { free: 64, total: 1024 });
                Err(DriverError::Memory { bytes, room })
            }
            (true, None) => Err(DriverError::Call { call: "call", reason: reason() }),
        }
    }

    /// The stream of a call; it must be open.
    fn on(&self, stream: Stream) {
        assert!(self.streams.contains(&stream.0), "{stream:?} is not open");
    }

    /// Does what a stream is asked for, or records it.
    fn does(&mut self, work: Task) {
        if let Some(recording) = &mut self.recording {
            return recording.push(work);
        }
        match work {
            Task::Clear(at, bytes) => self.bytes(at, bytes as usize).fill(0),
            Task::Launch(module, function, arguments) => {
                assert!(self.modules.contains(&module), "{module} is not loaded");
                self.launched(&function, &arguments);
            }
            Task::Multiply(product) => {
                let (work, at, way) = self.products.get(&product).expect("is prepared").clone();
                let arguments = [at[0], at[at.len() - 1]];
                let bytes = match work {
                    LibraryOp::Product(p) => p.rows * p.columns * p.result.dtype.size() as u64,
                    LibraryOp::Convolution(c) => {
                        c.extents(ConvolutionTensor::Result).iter().product::<u64>()
                            * c.dtype.size() as u64
                    }
                };
                self.launched("product", &arguments.map(|a| (a, bytes)));
                if self.is_wrong || self.wrong_ways.contains(&way) {
                    self.bytes(at[at.len() - 1], 1)[0] += 1;
                }
            }
        }
    }

    fn launched(&mut self, function: &str, arguments: &[(Address, u64)]) {
        for &(address, n) in arguments {
            self.bytes(address, n as usize);
        }
        if function == "fault" {
            let words: Vec<u8> = self.fault.iter().flat_map(|w| w.to_le_bytes()).collect();
            let (at, n) = arguments[arguments.len() - 1];
            self.bytes(at, n as usize).copy_from_slice(&words);
        } else if let [(from, n), .., (to, _)] = *arguments {
            let next: Vec<u8> = self.bytes(from, n as usize).iter().map(|b| b + 1).collect();
            self.bytes(to, next.len()).copy_from_slice(&next);
        }
    }

    /// Bytes from an address on; they must be allocated.
    fn bytes(&mut self, at: Address, n: usize) -> &mut [u8] {
        let (allocation, from) = place(at);
        let memory = self.memory.get_mut(&allocation).expect("allocated and not freed");
        &mut memory[from as usize..from as usize + n]
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Recorder {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Everything that was called so far, which is forgotten.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    #[track_caller]
    pub fn holds_nothing(&self) {
        let state = self.state();
        let held = state.memory.keys().chain(state.graphs.keys()).chain(state.products.keys());
        let held: Vec<_> = held.collect();
        let others = state.modules.union(&state.streams).count();
        assert!(held.is_empty() && others == 0, "{held:?}, {:?}", (&state.modules, &state.streams));
    }
}

impl Driver for Recorder {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let mut state = self.state();
        state.called(Call::Allocate(bytes))?;
        let number = state.number();
        // Nothing reads or writes all of what is large.
        state.memory.insert(number, vec![0xaa; bytes.min(LARGE) as usize]);
        Ok(Address(number << 32))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let mut state = self.state();
        let (number, 0) = place(address) else { panic!("{address:?} is not the start") };
        // What a device does not take back for once is not asked again.
        assert!(state.memory.remove(&number).is_some(), "allocation {number} is freed twice");
        state.called(Call::Free(number))
    }

    fn stream(&self) -> Result<Stream, DriverError> {
        let mut state = self.state();
        state.called(Call::Stream)?;
        let number = state.number();
        state.streams.insert(number);
        Ok(Stream(number))
    }

    fn end(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.streams.remove(&stream.0), "{stream:?} is ended twice");
        state.called(Call::End(stream.0))
    }

    fn wait(&self, stream: Stream) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(stream);
        assert!(state.recording.is_none(), "nothing is waited for while something is recorded");
        state.called(Call::Wait)
    }

    fn upload(&self, on: Stream, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(on);
        assert!(state.recording.is_none(), "copies are not recorded");
        state.called(Call::Upload(place(to), bytes.len()))?;
        state.bytes(to, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&self, on: Stream, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(on);
        assert!(state.recording.is_none(), "copies are not recorded");
        let asked = parts.iter().map(|(from, into)| (place(*from), into.len())).collect();
        state.called(Call::Download(asked))?;
        for (from, into) in parts {
            into.copy_from_slice(state.bytes(*from, into.len()));
        }
        Ok(())
    }

    fn clear(&self, on: Stream, at: Address, bytes: u64) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(on);
        state.called(Call::Clear(place(at), bytes))?;
        state.does(Task::Clear(at, bytes));
        Ok(())
    }

    fn load(&self, code: &Code<'_>) -> Result<Module, DriverError> {
        let mut state = self.state();
        state.called(Call::Load(code.unit()))?;
        let number = state.number();
        state.modules.insert(number);
        Ok(Module(number))
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.modules.remove(&module.0), "{module:?} is unloaded twice");
        state.called(Call::Unload(module.0))
    }

    fn launch(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        let &Invocation { module, function, grid, block, arguments, numbers, .. } = what;
        let mut state = self.state();
        state.on(on);
        if !numbers.is_empty() {
            state.numbers.push((function.to_string(), numbers.to_vec()));
        }
        assert!(state.modules.contains(&module.0), "{module:?} is not loaded");
        let places = arguments.iter().map(|&(a, n)| (place(a), n)).collect();
        state.called(Call::Launch(function.to_string(), grid, block, places))?;
        state.does(Task::Launch(module.0, function.to_string(), arguments.to_vec()));
        Ok(())
    }

    fn has_programmatic_launch(&self) -> bool {
        self.state().has_programmatic_launch
    }

    fn launch_programmatic(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        assert!(
            self.has_programmatic_launch(),
            "`{}` is started early on a device that cannot",
            what.function
        );
        self.state().early.push(what.function.to_string());
        self.launch(on, what)
    }

    fn launch_cooperative(&self, on: Stream, what: &Invocation<'_>) -> Result<(), DriverError> {
        if self.state().waits {
            return self.launch(on, what);
        }
        let reason = "blocks do not wait for each other".into();
        Err(DriverError::Call { call: "launch_cooperative", reason })
    }

    fn chosen_run(&self, run: &str) -> Option<String> {
        self.state().chosen_runs.get(run).cloned()
    }

    fn choose_run(&self, run: &str, way: &str) {
        self.state().chosen_runs.insert(run.to_string(), way.to_string());
    }

    fn record(
        &self,
        on: Stream,
        work: &mut dyn FnMut() -> Result<(), DriverError>,
    ) -> Result<Option<Graph>, DriverError> {
        let mut state = self.state();
        if state.is_old {
            return Ok(None);
        }
        state.on(on);
        state.called(Call::Record)?;
        assert!(state.recording.replace(vec![]).is_none(), "one thing is recorded at a time");
        drop(state);
        let asked = work();
        let mut state = self.state();
        let recorded = state.recording.take().expect("is recorded");
        asked?;
        state.called(Call::Recorded)?;
        let number = state.number();
        state.graphs.insert(number, recorded);
        Ok(Some(Graph(number)))
    }

    fn replay(&self, on: Stream, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(on);
        let works = state.graphs.get(&graph.0).expect("is recorded").clone();
        state.called(Call::Replay(graph.0))?;
        works.into_iter().for_each(|work| state.does(work));
        Ok(())
    }

    fn forget(&self, graph: Graph) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.graphs.remove(&graph.0).is_some(), "{graph:?} is forgotten twice");
        state.called(Call::Forget(graph.0))
    }

    /// The n-th step takes n seconds, from 1 on.
    fn timed(
        &self,
        on: Stream,
        steps: usize,
        work: &mut dyn FnMut(usize) -> Result<(), DriverError>,
    ) -> Result<Option<Vec<f64>>, DriverError> {
        let mut state = self.state();
        if state.is_old {
            return Ok(None);
        }
        state.on(on);
        state.called(Call::Timed(steps))?;
        drop(state);
        (0..steps).try_for_each(&mut *work)?;
        let taken = self.state().seconds.clone();
        if !taken.is_empty() {
            return Ok(Some(taken.into_iter().cycle().take(steps).collect()));
        }
        Ok(Some((1..=steps).map(|n| n as f64).collect()))
    }

    fn library(&self, of: LibraryKind) -> Library {
        let state = self.state();
        let known = if of == LibraryKind::Products { &state.library } else { &state.other_library };
        known.clone().unwrap_or(Library::Off)
    }

    fn prepare(
        &self,
        work: &LibraryOp,
        at: &[Address],
        (beside, bytes): (Address, u64),
        way: usize,
    ) -> Result<Option<Prepared>, DriverError> {
        let mut state = self.state();
        if way > state.more_ways {
            return Ok(None);
        }
        let places = at.iter().map(|a| place(*a)).collect();
        state.called(Call::Prepare(work.to_string(), places, (place(beside), bytes)))?;
        state.bytes(beside, bytes.min(LARGE) as usize);
        let number = state.number();
        state.products.insert(number, (work.clone(), at.to_vec(), way));
        Ok(Some(Prepared(number)))
    }

    fn multiply(&self, on: Stream, product: Prepared) -> Result<(), DriverError> {
        let mut state = self.state();
        state.on(on);
        assert!(state.products.contains_key(&product.0), "{product:?} is not prepared");
        state.called(Call::Multiply(product.0))?;
        state.does(Task::Multiply(product.0));
        Ok(())
    }

    fn release(&self, product: Prepared) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.products.remove(&product.0).is_some(), "{product:?} is released twice");
        state.called(Call::Release(product.0))
    }

    fn chosen(&self, of: &[LibraryOp]) -> Option<String> {
        self.state().chosen.get(&all(of)).cloned()
    }

    fn choose(&self, of: &[LibraryOp], how: &str) {
        self.state().chosen.insert(all(of), how.into());
    }
}
