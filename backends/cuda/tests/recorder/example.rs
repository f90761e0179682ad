//! A plan of three launches, and its session on the recorder.

use super::{Call, Recorder};
use mlc_backends::{BackendError, Executable};
use mlc_cuda::{Argument, Launch, LaunchedPlan, Launches, Place, Port};
use mlc_dsl::ir::{Consts, DType, Tensor};
use std::sync::Arc;

/// A launch that reads its first argument and writes its last one.
pub fn launch(function: &str, places: &[(Place, u64)]) -> Launch {
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
        numbers: vec![],
        kernel: 0,
        fallback: None,
    }
}

pub fn port(name: &str, n: usize) -> Port {
    Port { name: name.into(), dtype: DType::U8, shape: vec![n] }
}

pub fn bytes(values: &[u8]) -> Tensor {
    Tensor::new(DType::U8, vec![values.len()], values.to_vec().into()).expect("a vector")
}

/// `k = c + 1` once; `y = (x + 1) + 1` by way of the arena, and `z = k + 1`, each time.
pub fn example() -> (Launches, Consts) {
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
        transposed: vec![],
        inputs: vec![port("x", 4)],
        outputs: vec![(port("y", 4), Place::Output(0)), (port("z", 2), Place::Output(1))],
        nodes: vec!["gather (`pick`)".into()],
        ..Launches::default()
    };
    (launches, consts)
}

pub fn session(
    recorder: &Arc<Recorder>,
    (launches, consts): (Launches, Consts),
) -> Result<LaunchedPlan, BackendError> {
    LaunchedPlan::new(launches, recorder.clone(), consts)
}

pub fn values(outputs: &[Tensor]) -> Vec<&[u8]> {
    outputs.iter().map(|t| &t.bytes()[..]).collect()
}

/// Launches and recordings that are started in a run.
pub fn started(recorder: &Recorder, plan: &LaunchedPlan) -> (usize, usize) {
    run(recorder, plan).0
}

/// The same, and the outputs.
fn run(recorder: &Recorder, plan: &LaunchedPlan) -> ((usize, usize), Vec<Tensor>) {
    recorder.calls();
    let outputs = plan.run(&[bytes(&[1, 2, 3, 4])]).expect("runs");
    let calls = recorder.calls();
    let count = |is: fn(&Call) -> bool| calls.iter().filter(|c| is(c)).count();
    let launched = count(|c| matches!(c, Call::Launch(..)));
    ((launched, count(|c| matches!(c, Call::Replay(_)))), outputs)
}

/// Runs the plan: three launches by themselves, three that are recorded and started so, then what was recorded alone.
pub fn runs_as_recorded(recorder: &Recorder, plan: &LaunchedPlan) {
    for (turn, wanted) in [(3, 0), (3, 1), (0, 1), (0, 1)].into_iter().enumerate() {
        let (started, outputs) = run(recorder, plan);
        assert_eq!(started, wanted, "run {turn}");
        assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]]);
    }
}
