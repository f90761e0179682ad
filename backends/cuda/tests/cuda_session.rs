//! Sessions of the CUDA backend on a driver that records every call and may fail any of them.

use crate::recorder::example::{bytes, example, launch, port, runs_as_recorded, session, values};
use crate::recorder::{Call, Recorder};
use mlc_backends::{BackendError, Executable, LaunchTime};
use mlc_cuda::{Argument, DriverError, FAULT_WORDS, Launches, Place, Port};
use mlc_dsl::ir::{ConstId, Consts, Tensor};
use std::sync::Arc;

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
    let (c, x, y, z, arena, kept, fault) = (2, 1, 4, 5, 6, 7, 8);
    let first = Call::Launch("inc".into(), [2, 1, 1], 64, vec![((c, 0), 2), ((kept, 256), 2)]);
    let wanted = [&Call::Upload((c, 0), 2), &first, &Call::Free(c)];
    assert_eq!(made.iter().filter(launched).collect::<Vec<_>>(), wanted);
    // Constants are whole before anything else may use them.
    let at = |call: &Call| made.iter().position(|c| c == call).expect("is called");
    assert!(at(&Call::Upload((c, 0), 2)) < at(&Call::Wait) && at(&Call::Wait) < at(&first));
    let call = |name: &str, places| Call::Launch(name.into(), [2, 1, 1], 64, places);
    let launches = [
        Call::Clear((fault, 0), 40),
        call("inc4", vec![((x, 0), 4), ((arena, 512), 4)]),
        call("inc4", vec![((arena, 512), 4), ((fault, 0), 40), ((y, 0), 4)]),
        call("inc", vec![((kept, 256), 2), ((z, 0), 2)]),
    ];
    let upload = Call::Upload((x, 0), 4);
    let download = Call::Download(vec![((fault, 0), 40), ((y, 0), 4), ((z, 0), 2)]);
    // The first run starts every launch; the second one records them; all others start what was recorded.
    let graph = recorder.state().next + 1;
    let replay = Call::Replay(graph);
    let recorded = |launches: &[Call]| {
        let inside = launches.iter().cloned();
        std::iter::once(Call::Record)
            .chain(inside)
            .chain([Call::Recorded, replay.clone()])
            .collect()
    };
    let middles: [Vec<Call>; 4] =
        [launches.to_vec(), recorded(&launches), vec![replay.clone()], vec![replay.clone()]];
    for (run, middle) in middles.iter().enumerate() {
        let first = 4 * run as u8;
        let input: Vec<u8> = (first..first + 4).collect();
        let output: Vec<u8> = (first + 2..first + 6).collect();
        let outputs = plan.run(&[bytes(&input)]).expect("runs");
        assert_eq!(values(&outputs), [&output[..], &[12, 22]]);
        let around = [std::slice::from_ref(&upload), middle, std::slice::from_ref(&download)];
        assert_eq!(recorder.calls(), around.concat(), "run {run}");
    }
    let allocated = plan.allocated().expect("is known");
    assert_eq!((allocated.arena, allocated.results), (1024 + 512, 6));
    drop(plan);
    recorder.holds_nothing();
    // Nothing runs any more when code and memory are given back.
    let back = recorder.calls();
    let end = back.iter().position(|c| matches!(c, Call::End(_))).expect("the stream is ended");
    assert!(back[..end].iter().all(|c| matches!(c, Call::Forget(_))), "{back:?}");
}

#[test]
fn numbers_of_a_launch_come_to_its_function() {
    let recorder = Arc::new(Recorder::default());
    let (mut launches, consts) = example();
    launches.each[1].numbers = vec![7, -1, 1 << 40];
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    plan.run(&[bytes(&[1, 2, 3, 4])]).expect("runs");
    assert_eq!(recorder.state().numbers, [("inc4".to_string(), vec![7, -1, 1 << 40])]);
}

#[test]
fn a_device_that_cannot_record_is_given_every_launch() {
    let recorder = Arc::new(Recorder::default());
    recorder.state().is_old = true;
    let plan = session(&recorder, example()).expect("is ready");
    for run in 0..3 {
        recorder.calls();
        plan.run(&[bytes(&[1, 2, 3, 4])]).expect("runs");
        let launches = recorder.calls().into_iter().filter(|c| matches!(c, Call::Launch(..)));
        assert_eq!(launches.count(), 3, "run {run}");
    }
    let input = [bytes(&[1, 2, 3, 4])];
    assert_eq!(plan.device_seconds(&input), Ok(None));
    assert_eq!(plan.launch_seconds(&input), Ok(None));
}

#[test]
fn a_launch_whose_blocks_cannot_wait_for_each_other_has_another_in_its_place() {
    let recorder = Arc::new(Recorder::default());
    let (mut launches, consts) = example();
    let mut together = launches.each[0].clone();
    together.function = "together".into();
    together.arguments.push(Argument::grid());
    together.fallback = Some(Box::new(launches.each[0].clone()));
    launches.each[0] = together;
    // The recorder has no launches whose blocks wait for each other.
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    runs_as_recorded(&recorder, &plan);
    let note = "`inc4` in place of `together`: launch_cooperative failed";
    assert!(plan.notes()[0].starts_with(note), "{:?}", plan.notes());
}

#[test]
fn what_cannot_be_recorded_is_started_one_by_one_and_told() {
    let input = [bytes(&[1, 2, 3, 4])];
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    plan.run(&input).expect("runs");
    recorder.calls();
    let record = recorder.state().calls.len() + 1;
    recorder.state().fails = Some(record);
    for _ in 0..3 {
        let outputs = plan.run(&input).expect("runs");
        assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]]);
        recorder.state().fails = None;
    }
    let calls = recorder.calls();
    assert_eq!(calls[record], Call::Record);
    assert_eq!(calls.iter().filter(|c| matches!(c, Call::Launch(..))).count(), 9);
    let note = "launches are started one by one, not as recorded: call failed: refused";
    assert_eq!(plan.notes(), [note]);
}

#[test]
fn one_launch_is_not_recorded() {
    let recorder = Arc::new(Recorder::default());
    let (mut launches, consts) = example();
    launches.each = vec![launch("inc4", &[(Place::Input(0), 4), (Place::Output(0), 4)])];
    launches.outputs.truncate(1);
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    for _ in 0..3 {
        plan.run(&[bytes(&[1, 2, 3, 4])]).expect("runs");
    }
    assert!(!recorder.calls().contains(&Call::Record));
}

#[test]
fn runs_and_launches_are_timed_by_the_device() {
    let recorder = Arc::new(Recorder::default());
    let plan = session(&recorder, example()).expect("is ready");
    let input = [bytes(&[1, 2, 3, 4])];
    recorder.calls();
    assert_eq!(plan.device_seconds(&input), Ok(Some(1.0)));
    // What is done for the first time, and recording, is over before.
    let calls = recorder.calls();
    let timed = calls.iter().position(|c| *c == Call::Timed(1)).expect("is timed");
    assert!(matches!(calls[timed + 1..], [Call::Replay(_), Call::Download(_)]), "{calls:?}");
    let time =
        |function: &str, seconds| LaunchTime { function: function.into(), kernel: 0, seconds };
    let wanted = vec![time("inc4", 1.0), time("inc4", 2.0), time("inc", 3.0)];
    assert_eq!(plan.launch_seconds(&input), Ok(Some(wanted)));
    let outputs = plan.run(&input).expect("runs");
    assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]]);
}

#[test]
fn a_lost_context_ends_the_session_and_names_what_ran() {
    let input = [bytes(&[1, 2, 3, 4])];
    // The number of the call that fails in the first, second and third run, and what it names.
    let runs = [
        (0, 2, "call", "in `inc4`"),
        (0, 5, "call", "in one of `inc4`, `inc`"),
        (2, 1, "call", "in one of `inc4`, `inc`"),
        (2, 2, "call", "in one of `inc4`, `inc`"),
    ];
    for (before, at, call, named) in runs {
        let recorder = Arc::new(Recorder::default());
        let plan = session(&recorder, example()).expect("is ready");
        for _ in 0..before {
            plan.run(&input).expect("runs");
        }
        recorder.calls();
        recorder.state().is_final = true;
        recorder.state().fails = Some(at);
        let e = plan.run(&input).expect_err("the device fails");
        let BackendError::Device(DriverError::Kernel { functions, source_text, reason }) = &e
        else {
            panic!("{e:?}");
        };
        assert!(e.to_string().contains(named) && reason.starts_with(call), "{e}");
        assert!(functions.iter().all(|f| source_text.contains(&format!("KERNEL(64) {f}"))));
        // Every later call fails, and says so.
        assert!(matches!(plan.run(&input), Err(BackendError::Device(DriverError::Lost { .. }))));
        drop(plan);
        recorder.holds_nothing();
        // Another context works.
        let fresh = Arc::new(Recorder::default());
        let outputs = session(&fresh, example()).expect("is ready").run(&input).expect("runs");
        assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]]);
    }
}

#[test]
fn whichever_call_fails_nothing_is_leaked_and_the_next_session_works() {
    let recorder = Arc::new(Recorder::default());
    let input = [bytes(&[1, 2, 3, 4])];
    // Three runs: launches one by one, recorded, started as they were recorded.
    let whole = || {
        let plan = session(&recorder, example())?;
        plan.run(&input)?;
        plan.run(&input)?;
        plan.device_seconds(&input)?;
        plan.run(&input)
    };
    whole().expect("runs");
    let calls = recorder.calls();
    let mut refused = 0;
    // Launches that cannot be recorded are started one by one.
    let place = |call| calls.iter().position(|c| *c == call).expect("is called");
    let recording = place(Call::Record)..=place(Call::Recorded);
    for (at, call) in calls.iter().enumerate() {
        recorder.state().fails = Some(at);
        let result = whole();
        // Only what is given back may fail without anyone noticing.
        match call {
            Call::Free(_) | Call::Unload(_) | Call::End(_) | Call::Forget(_) => {
                assert!(result.is_ok(), "{call:?}: {result:?}");
            }
            _ if recording.contains(&at) => assert!(result.is_ok(), "{call:?}: {result:?}"),
            Call::Allocate(bytes) => {
                let e = result.as_ref().expect_err("is refused").to_string();
                let told = "of device memory are not to be had: 64 bytes of 1.0 KiB are free";
                assert!(e.contains(told), "{call:?}: {e}");
                let known = matches!(
                    result,
                    Err(BackendError::Device(DriverError::Memory { bytes: asked, .. }))
                        if asked == *bytes
                );
                assert!(known, "{call:?}: {result:?}");
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
    assert!(refused >= 30, "{refused} of {calls:?}");
}

#[test]
fn a_session_survives_a_run_that_fails() {
    let recorder = Arc::new(Recorder::default());
    let input = [bytes(&[1, 2, 3, 4])];
    // The first, the second and the third run do different things.
    for before in 0..3 {
        for at in 0.. {
            let plan = session(&recorder, example()).expect("is ready");
            for _ in 0..before {
                plan.run(&input).expect("runs");
            }
            recorder.calls();
            recorder.state().fails = Some(at);
            let result = plan.run(&input);
            let calls = recorder.calls();
            recorder.state().fails = None;
            // What cannot be recorded is started one by one.
            let recorded = calls.iter().position(|c| *c == Call::Record).is_some_and(|r| {
                let replayed = calls.iter().position(|c| matches!(c, Call::Replay(_)));
                at >= r && replayed.is_none_or(|r| at < r) && result.is_ok()
            });
            let calls = calls.len();
            assert_eq!(result.is_err(), at < calls && !recorded, "run {before}, call {at}");
            for _ in 0..3 {
                let outputs = plan.run(&input).expect("runs again");
                let told = || format!("after call {at} of run {before}");
                assert_eq!(values(&outputs), [&[3, 4, 5, 6][..], &[12, 22]], "{}", told());
            }
            if result.is_ok() && !recorded {
                assert!(at >= 3, "{at} calls");
                break;
            }
        }
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
    let moved =
        |c: &Call| !matches!(c, Call::Allocate(_) | Call::Free(_) | Call::Stream | Call::End(_));
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
    let moved = |c: &Call| {
        !matches!(c, Call::Allocate(0 | 40) | Call::Free(_) | Call::Stream | Call::End(_))
    };
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
