//! Sessions of the CUDA backend on a driver that records every call and may fail any of them.

use mlc_backends::cuda::{
    Address, Argument, Driver, DriverError, FAULT_WORDS, Launch, LaunchedPlan, Launches, Module,
    Place, Port,
};
use mlc_backends::{BackendError, Executable};
use mlc_dsl::ir::{ConstId, Consts, DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// A call as the driver sees it: addresses by the number of their allocation and the offset in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Allocate(u64),
    Free(u64),
    Upload((u64, u64), usize),
    Download((u64, u64), usize),
    Clear((u64, u64), u64),
    Load(String),
    Unload(u64),
    Launch(String, [u32; 3], u32, Vec<((u64, u64), u64)>),
}

/// A device of bytes. Allocation `n` begins at `n << 32`.
#[derive(Default)]
struct Recorder {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    /// The number of the call that fails.
    fails: Option<usize>,
    memory: BTreeMap<u64, Vec<u8>>,
    modules: BTreeSet<u64>,
    next: u64,
    /// What a launch of `fault` records.
    fault: [i64; FAULT_WORDS],
}

fn place(address: Address) -> (u64, u64) {
    (address.0 >> 32, address.0 & 0xffff_ffff)
}

impl State {
    /// Records a call; an error if it is the one that fails.
    fn called(&mut self, call: Call) -> Result<(), DriverError> {
        let fails = self.fails == Some(self.calls.len());
        let bytes = if let Call::Allocate(bytes) = call { Some(bytes) } else { None };
        self.calls.push(call);
        match (fails, bytes) {
            (false, _) => Ok(()),
            (true, Some(bytes)) => Err(DriverError::Memory { bytes }),
            (true, None) => Err(DriverError::Call { call: "call", reason: "refused".into() }),
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Everything that was called so far, which is forgotten.
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    #[track_caller]
    fn holds_nothing(&self) {
        let state = self.state();
        let held: Vec<_> = state.memory.keys().collect();
        assert!(held.is_empty() && state.modules.is_empty(), "{held:?}, {:?}", state.modules);
    }
}

impl Driver for Recorder {
    fn allocate(&self, bytes: u64) -> Result<Address, DriverError> {
        let mut state = self.state();
        state.called(Call::Allocate(bytes))?;
        let number = state.number();
        state.memory.insert(number, vec![0xaa; bytes as usize]);
        Ok(Address(number << 32))
    }

    fn free(&self, address: Address) -> Result<(), DriverError> {
        let mut state = self.state();
        let (number, 0) = place(address) else { panic!("{address:?} is not the start") };
        // What a device does not take back for once is not asked again.
        assert!(state.memory.remove(&number).is_some(), "allocation {number} is freed twice");
        state.called(Call::Free(number))
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let mut state = self.state();
        state.called(Call::Upload(place(to), bytes.len()))?;
        state.bytes(to, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&self, from: Address, into: &mut [u8]) -> Result<(), DriverError> {
        let mut state = self.state();
        state.called(Call::Download(place(from), into.len()))?;
        into.copy_from_slice(state.bytes(from, into.len()));
        Ok(())
    }

    fn clear(&self, at: Address, bytes: u64) -> Result<(), DriverError> {
        let mut state = self.state();
        state.called(Call::Clear(place(at), bytes))?;
        state.bytes(at, bytes as usize).fill(0);
        Ok(())
    }

    fn load(&self, source: &str) -> Result<Module, DriverError> {
        let mut state = self.state();
        state.called(Call::Load(source.to_string()))?;
        let number = state.number();
        state.modules.insert(number);
        Ok(Module(number))
    }

    fn unload(&self, module: Module) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.modules.remove(&module.0), "{module:?} is unloaded twice");
        state.called(Call::Unload(module.0))
    }

    fn launch(
        &self,
        module: Module,
        function: &str,
        grid: [u32; 3],
        block: u32,
        arguments: &[(Address, u64)],
    ) -> Result<(), DriverError> {
        let mut state = self.state();
        assert!(state.modules.contains(&module.0), "{module:?} is not loaded");
        let places = arguments.iter().map(|&(a, n)| (place(a), n)).collect();
        state.called(Call::Launch(function.to_string(), grid, block, places))?;
        for &(address, n) in arguments {
            state.bytes(address, n as usize);
        }
        if function == "fault" {
            let words: Vec<u8> = state.fault.iter().flat_map(|w| w.to_le_bytes()).collect();
            let (at, n) = arguments[arguments.len() - 1];
            state.bytes(at, n as usize).copy_from_slice(&words);
        } else if let [(from, n), .., (to, _)] = *arguments {
            let next: Vec<u8> = state.bytes(from, n as usize).iter().map(|b| b + 1).collect();
            state.bytes(to, next.len()).copy_from_slice(&next);
        }
        Ok(())
    }
}

/// A launch that reads its first argument and writes its last one.
fn launch(function: &str, places: &[(Place, u64)]) -> Launch {
    let last = places.len() - 1;
    let argument = |(i, &(place, bytes)): (usize, &(Place, u64))| Argument {
        place,
        bytes,
        dtype: DType::U8,
        written: i == last,
    };
    Launch {
        function: function.into(),
        source: format!("KERNEL(64) {function}"),
        grid: [2, 1, 1],
        block: 64,
        arguments: places.iter().enumerate().map(argument).collect(),
        kernel: 0,
    }
}

fn port(name: &str, n: usize) -> Port {
    Port { name: name.into(), dtype: DType::U8, shape: vec![n] }
}

fn bytes(values: &[u8]) -> Tensor {
    Tensor::new(DType::U8, vec![values.len()], values.to_vec().into()).expect("a vector")
}

/// `k = c + 1` once; `y = (x + 1) + 1` by way of the arena, and `z = k + 1`, each time.
fn example() -> (Launches, Consts) {
    let mut consts = Consts::default();
    let c = consts.intern(bytes(&[10, 20]));
    let launches = Launches {
        once: vec![launch("inc", &[(Place::Constant(c), 2), (Place::Kept(256), 2)])],
        each: vec![
            launch("inc4", &[(Place::Input(0), 4), (Place::Arena(512), 4)]),
            launch("inc4", &[(Place::Arena(512), 4), (Place::Fault, 40), (Place::Output(0), 4)]),
            launch("inc", &[(Place::Kept(256), 2), (Place::Output(1), 2)]),
        ],
        arena: 1024,
        kept: 512,
        constants: vec![c],
        inputs: vec![port("x", 4)],
        outputs: vec![(port("y", 4), Place::Output(0)), (port("z", 2), Place::Output(1))],
        nodes: vec!["gather (`pick`)".into()],
    };
    (launches, consts)
}

fn session(
    recorder: &Arc<Recorder>,
    (launches, consts): (Launches, Consts),
) -> Result<LaunchedPlan, BackendError> {
    LaunchedPlan::new(launches, recorder.clone(), consts)
}

fn values(outputs: &[Tensor]) -> Vec<&[u8]> {
    outputs.iter().map(|t| &t.bytes()[..]).collect()
}

#[test]
fn a_run_uploads_launches_in_order_and_downloads() {
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    let made = recorder.calls();
    let unit = example().0.unit();
    assert_eq!(unit.matches("KERNEL(64)").count(), 2, "each function once:\n{unit}");
    assert!(made.contains(&Call::Load(unit)), "{made:?}");
    // The constant, which only the first launch reads, is given back.
    let launched = |c: &&Call| matches!(c, Call::Upload(..) | Call::Launch(..) | Call::Free(_));
    let (c, x, y, z, arena, kept, fault) = (1, 2, 3, 4, 5, 6, 7);
    let first = Call::Launch("inc".into(), [2, 1, 1], 64, vec![((c, 0), 2), ((kept, 256), 2)]);
    let wanted = [&Call::Upload((c, 0), 2), &first, &Call::Free(c)];
    assert_eq!(made.iter().filter(launched).collect::<Vec<_>>(), wanted);
    for (input, output) in [([1, 2, 3, 4], [3, 4, 5, 6]), ([5, 6, 7, 8], [7, 8, 9, 10])] {
        let outputs = plan.run(&[bytes(&input)]).expect("runs");
        assert_eq!(values(&outputs), [&output[..], &[12, 22]]);
        let call = |name: &str, places| Call::Launch(name.into(), [2, 1, 1], 64, places);
        let wanted = [
            Call::Upload((x, 0), 4),
            Call::Clear((fault, 0), 40),
            call("inc4", vec![((x, 0), 4), ((arena, 512), 4)]),
            call("inc4", vec![((arena, 512), 4), ((fault, 0), 40), ((y, 0), 4)]),
            call("inc", vec![((kept, 256), 2), ((z, 0), 2)]),
            Call::Download((fault, 0), 40),
            Call::Download((y, 0), 4),
            Call::Download((z, 0), 2),
        ];
        assert_eq!(recorder.calls(), wanted);
    }
    let allocated = plan.allocated().expect("is known");
    assert_eq!((allocated.arena, allocated.results), (1024 + 512, 6));
    drop(plan);
    recorder.holds_nothing();
}

#[test]
fn whichever_call_fails_nothing_is_leaked_and_the_next_session_works() {
    let recorder = Arc::new(Recorder::default());
    let input = [bytes(&[1, 2, 3, 4])];
    let whole = || session(&recorder, example())?.run(&input);
    whole().expect("runs");
    let calls = recorder.calls();
    let mut refused = 0;
    for (at, call) in calls.iter().enumerate() {
        recorder.state().fails = Some(at);
        let result = whole();
        // Only what is given back may fail without anyone noticing.
        match call {
            Call::Free(_) | Call::Unload(_) => assert!(result.is_ok(), "{call:?}: {result:?}"),
            Call::Allocate(bytes) => {
                let wanted = BackendError::Device(DriverError::Memory { bytes: *bytes });
                assert_eq!(result, Err(wanted), "{call:?}");
            }
            _ => {
                let failed = matches!(result, Err(BackendError::Device(DriverError::Call { .. })));
                assert!(failed, "{call:?}: {result:?}");
            }
        }
        refused += usize::from(result.is_err());
        recorder.holds_nothing();
        recorder.state().fails = None;
        let outputs = whole().expect("the next session works");
        assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]]);
        recorder.holds_nothing();
        recorder.calls();
    }
    assert!(refused >= 16, "{refused} of {calls:?}");
}

#[test]
fn a_session_survives_a_run_that_fails() {
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    let input = [bytes(&[1, 2, 3, 4])];
    recorder.calls();
    plan.run(&input).expect("runs");
    for at in 0..recorder.calls().len() {
        recorder.state().fails = Some(at);
        assert!(plan.run(&input).is_err(), "call {at}");
        recorder.state().fails = None;
        let outputs = plan.run(&input).expect("runs again");
        assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]], "after call {at}");
        recorder.calls();
    }
}

#[test]
fn an_index_out_of_range_is_an_error_that_names_the_node() {
    let recorder = Arc::new(Recorder::default());
    let (mut launches, consts) = example();
    launches.each.push(launch("fault", &[(Place::Input(0), 4), (Place::Fault, 40)]));
    let plan = session(&recorder, (launches.clone(), consts.clone())).expect("is ready");
    let input = [bytes(&[1, 2, 3, 4])];
    plan.run(&input).expect("no fault is recorded");
    recorder.state().fault = [1, 0, 2, -9, 7];
    let e = plan.run(&input).expect_err("the fault is an error");
    let reason = "index -9 is out of range for axis 2, which has extent 7".to_string();
    assert_eq!(e, BackendError::Operator { op: "gather (`pick`)".into(), reason });
    recorder.state().fault = [1, 5, 0, 4, 4];
    let e = plan.run(&input).expect_err("the fault is an error");
    assert!(e.to_string().contains("node 5"), "{e}");
    recorder.state().fault = [0; FAULT_WORDS];
    plan.run(&input).expect("the next run is not affected");
    drop(plan);
    // The same of what runs once.
    recorder.state().fault = [1, 0, 0, 4, 4];
    launches.once.push(launch("fault", &[(Place::Kept(0), 4), (Place::Fault, 40)]));
    let e = session(&recorder, (launches, consts)).err().expect("the fault is an error");
    assert!(matches!(e, BackendError::Operator { .. }), "{e}");
    recorder.holds_nothing();
}

#[test]
fn outputs_that_are_inputs_or_constants_are_not_copied() {
    let recorder = Arc::new(Recorder::default());
    let mut consts = Consts::default();
    let c = consts.intern(bytes(&[10, 20]));
    let launches = Launches {
        inputs: vec![port("x", 4)],
        outputs: vec![
            (Port { shape: vec![2, 2], ..port("same", 4) }, Place::Input(0)),
            (port("fixed", 2), Place::Constant(c)),
        ],
        ..Launches::default()
    };
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    let outputs = plan.run(&[bytes(&[1, 2, 3, 4])]).expect("runs");
    assert_eq!(values(&outputs), [&[1, 2, 3, 4][..], &[10, 20]]);
    assert_eq!(outputs[0].shape(), [2, 2]);
    drop(plan);
    let moved = |c: &Call| !matches!(c, Call::Allocate(_) | Call::Free(_));
    assert!(!recorder.calls().iter().any(moved));
    recorder.holds_nothing();
}

#[test]
fn tensors_without_elements_are_neither_copied_nor_computed() {
    let recorder = Arc::new(Recorder::default());
    let mut empty = launch("none", &[(Place::Input(0), 0), (Place::Output(0), 0)]);
    empty.grid = [0, 1, 1];
    let shape = vec![usize::MAX, usize::MAX, 0];
    let launches = Launches {
        each: vec![empty],
        inputs: vec![port("x", 0)],
        outputs: vec![(Port { shape: shape.clone(), ..port("y", 0) }, Place::Output(0))],
        ..Launches::default()
    };
    let plan = session(&recorder, (launches, Consts::default())).expect("is ready");
    let outputs = plan.run(&[bytes(&[])]).expect("runs");
    assert_eq!((outputs[0].shape(), outputs[0].bytes().len()), (&shape[..], 0));
    drop(plan);
    let moved = |c: &Call| !matches!(c, Call::Allocate(0 | 40) | Call::Free(_));
    assert!(!recorder.calls().iter().any(moved));
    recorder.holds_nothing();
}

#[test]
fn inputs_of_another_type_are_refused_before_anything_is_copied() {
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    recorder.calls();
    for (inputs, wanted) in [
        (vec![], "takes 1 inputs, 0 given"),
        (vec![bytes(&[1])], "expected u8[4], found shape [1]"),
        (vec![Tensor::from_f32(vec![4], vec![0.0; 4])], "expected u8, found f32"),
    ] {
        let e = plan.run(&inputs).expect_err("is refused");
        assert!(matches!(e, BackendError::Input { .. }), "{e}");
        assert!(e.to_string().contains(wanted), "{e}");
    }
    assert_eq!(recorder.calls(), []);
}

#[test]
fn launches_outside_of_their_memory_are_refused() {
    let (good, consts) = example();
    for place in [
        (Place::Input(1), 1),
        (Place::Input(0), 5),
        (Place::Constant(ConstId(7)), 1),
        (Place::Arena(1020), 5),
        (Place::Arena(u64::MAX), 2),
        (Place::Kept(512), 1),
        (Place::Output(2), 1),
        (Place::Fault, 49),
    ] {
        let recorder = Arc::new(Recorder::default());
        let mut launches = good.clone();
        launches.each.push(launch("far", &[(Place::Input(0), 1), place]));
        let e = session(&recorder, (launches, consts.clone())).err().expect("is refused");
        assert!(e.to_string().contains("`far`"), "{e}");
        recorder.holds_nothing();
    }
    for place in [Place::Input(9), Place::Constant(ConstId(9)), Place::Arena(1024)] {
        let recorder = Arc::new(Recorder::default());
        let mut launches = good.clone();
        launches.outputs[0].1 = place;
        assert!(session(&recorder, (launches, consts.clone())).is_err(), "{place:?}");
        recorder.holds_nothing();
    }
}

#[test]
fn runs_of_several_threads_do_not_mix() {
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    std::thread::scope(|scope| {
        for first in 0..8u8 {
            let plan = &plan;
            scope.spawn(move || {
                for _ in 0..50 {
                    let outputs = plan.run(&[bytes(&[first; 4])]).expect("runs");
                    assert_eq!(values(&outputs), [&[first + 2; 4][..], &[12, 22]]);
                }
            });
        }
    });
    drop(plan);
    recorder.holds_nothing();
}
