//! Autotuning of launches, on a driver that records every call and may fail any of them: megakernel, programmatic launches, variants.

use crate::recorder::example::{example, launch, runs_as_recorded, session, started};
use crate::recorder::{self, Call, Recorder};
use mlc_backends::Executable;
use mlc_cuda::{Launches, Place, Variant};
use std::sync::Arc;

#[test]
fn what_is_refused_as_one_launch_is_recorded_as_several() {
    let recorder = Arc::new(Recorder::default());
    let (mut launches, consts) = example();
    let places = [(Place::Input(0), 4), (Place::Output(0), 4), (Place::Grid, 4)];
    launches.megakernel = Some(launch("merged", &places));
    // The recorder has no launches whose blocks wait for each other.
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    runs_as_recorded(&recorder, &plan);
    let note = "3 launches one by one, not as one: launch_cooperative failed";
    assert!(plan.notes()[0].starts_with(note), "{:?}", plan.notes());
}

#[test]
fn a_run_is_one_launch_or_several_whichever_is_faster() {
    let open = |recorder: &Arc<Recorder>, is_likely: bool| {
        let (mut launches, consts) = example();
        let places = [(Place::Input(0), 4), (Place::Output(0), 4), (Place::Grid, 4)];
        launches.megakernel = Some(launch("merged", &places));
        launches.megakernel_estimate = Some(is_likely);
        session(recorder, (launches, consts)).expect("is ready")
    };
    for (as_one, apart) in [(1.0, 2.0), (2.0, 1.0)] {
        let recorder = Arc::new(Recorder::default());
        recorder.state().waits = true;
        recorder.state().seconds = vec![as_one, apart];
        let notes = match as_one < apart {
            true => ["3 launches as one: 2", "3 launches as one: as chosen before"],
            false => [
                "3 launches one by one, not as one: 2",
                "3 launches one by one, not as one: as chosen before",
            ],
        };
        let plan = open(&recorder, as_one > apart);
        assert!(plan.notes()[0].starts_with(notes[0]), "{:?}", plan.notes());
        // What was timed as it was recorded goes on so.
        let wanted = if as_one < apart { (1, 0) } else { (0, 1) };
        assert_eq!(started(&recorder, &plan), wanted);
        drop(plan);
        recorder.holds_nothing();
        recorder.calls();
        let plan = open(&recorder, as_one > apart);
        assert!(!recorder.calls().iter().any(|c| matches!(c, Call::Timed(_))), "it is remembered");
        assert_eq!(plan.notes(), [notes[1]]);
        assert_eq!(started(&recorder, &plan).0, if as_one < apart { 1 } else { 3 });
    }
    for is_likely in [true, false] {
        let recorder = Arc::new(Recorder::default());
        recorder.state().waits = true;
        recorder.state().is_old = true;
        let plan = open(&recorder, is_likely);
        assert_eq!(started(&recorder, &plan).0, if is_likely { 1 } else { 3 });
        assert!(recorder.state().chosen_runs.is_empty(), "an estimate is not kept");
    }
    // A device that refuses it.
    let recorder = Arc::new(Recorder::default());
    let plan = open(&recorder, true);
    assert_eq!(started(&recorder, &plan).0, 3);
    let note = "3 launches one by one, not as one: launch_cooperative failed";
    assert!(plan.notes()[0].starts_with(note), "{:?}", plan.notes());
}

#[test]
fn launches_start_early_where_that_is_faster() {
    // Seconds of the ways: as ever, light ones early, all early.
    let heavy = "KERNEL(64) inc4() { SHARED(float, tile, 4096); }";
    for (seconds, note, early) in [
        ([1.0, 2.0, 3.0], "", &[][..]),
        (
            [2.0, 1.0, 3.0],
            "light launches start early: 200000.00 µs against 400000.00 µs",
            &["inc"][..],
        ),
        (
            [3.0, 2.0, 1.0],
            "launches start early: 200000.00 µs against 400000.00 µs",
            &["inc4", "inc"][..],
        ),
    ] {
        let recorder = Arc::new(Recorder::default());
        recorder.state().has_programmatic_launch = true;
        recorder.state().seconds = seconds.to_vec();
        let open = |note: &str| {
            let (mut launches, consts) = example();
            launches.each[1].source = heavy.into();
            let plan = session(&recorder, (launches, consts)).expect("is ready");
            let notes = plan.notes();
            assert!(notes.len() == usize::from(!note.is_empty()), "{notes:?}");
            assert!(notes.iter().all(|n| n.starts_with(note)), "{notes:?}");
            plan
        };
        let plan = open(note);
        // It goes on as it was recorded.
        assert_eq!(started(&recorder, &plan), (0, 1));
        drop(plan);
        recorder.holds_nothing();
        let remembered = note.split_once(':').map_or("", |n| n.0);
        let plan = open(&format!(
            "{remembered}{}",
            if note.is_empty() { "" } else { ": as chosen before" }
        ));
        recorder.state().early.clear();
        assert_eq!(started(&recorder, &plan), (3, 0));
        assert_eq!(recorder.state().early, early, "behind a launch, and not the first one");
    }
}

#[test]
fn every_call_of_a_choice_of_runs_may_fail() {
    let calls = |fails: Option<usize>| {
        let recorder = Arc::new(Recorder::default());
        recorder.state().waits = true;
        recorder.state().has_programmatic_launch = true;
        recorder.state().fails = fails;
        let (mut launches, consts) = example();
        let places = [(Place::Input(0), 4), (Place::Output(0), 4), (Place::Grid, 4)];
        launches.megakernel = Some(launch("merged", &places));
        launches.megakernel_estimate = Some(true);
        drop(session(&recorder, (launches, consts)));
        recorder.holds_nothing();
        recorder.calls().len()
    };
    for fails in 0..calls(None) {
        calls(Some(fails));
    }
}

/// The example with launches that may take the place of the first one, which adds one.
fn with_variant(right: bool) -> (Launches, mlc_dsl::ir::Consts) {
    let (mut launches, consts) = example();
    let (input, own) = ((Place::Input(0), 4), (Place::Arena(512), 4));
    let replacement = match right {
        true => {
            vec![launch("parts", &[input, (Place::Arena(0), 4)]), launch("wide", &[input, own])]
        }
        false => vec![launch("wide", &[input, own]), launch("again", &[own, own])],
    };
    launches.variants.push(Variant {
        launches: 0..1,
        replacement,
        description: "by warpgroups".into(),
        by_warpgroups: true,
    });
    (launches, consts)
}

#[test]
fn a_variant_is_taken_where_it_is_right_and_faster() {
    for (right, seconds, taken, note) in [
        (true, [2.0, 1.0], true, "`inc4` by warpgroups, 62500.00 µs against 125000.00 µs"),
        (true, [1.0, 2.0], false, "`inc4` not by warpgroups, 62500.00 µs against 125000.00 µs"),
        (false, [2.0, 1.0], false, "`inc4` not by warpgroups, whose results differ by 1.0e0"),
    ] {
        let recorder = Arc::new(Recorder::default());
        recorder.state().seconds = seconds.to_vec();
        let names = |recorder: &Recorder| -> Vec<String> {
            let name = |c| if let Call::Launch(function, ..) = c { Some(function) } else { None };
            recorder.calls().into_iter().filter_map(name).collect()
        };
        let wanted: &[&str] =
            if taken { &["parts", "wide", "inc4", "inc"] } else { &["inc4", "inc4", "inc"] };
        for is_first in [true, false] {
            let plan = session(&recorder, with_variant(right)).expect("is ready");
            let timed = recorder.calls().iter().any(|c| matches!(c, Call::Timed(_)));
            assert_eq!(timed, is_first && right);
            let before = note.split_once(',').map_or("", |n| n.0);
            let before = format!("{before}, as chosen before");
            assert_eq!(plan.notes(), [if is_first { note.into() } else { before }]);
            let y = plan.run(&[recorder::example::bytes(&[1, 2, 3, 4])]).expect("runs");
            assert_eq!(recorder::example::values(&y)[0], [3, 4, 5, 6]);
            assert_eq!(names(&recorder), wanted);
            drop(plan);
            recorder.holds_nothing();
            recorder.calls();
        }
    }
    // A device that has no clock.
    let recorder = Arc::new(Recorder::default());
    recorder.state().is_old = true;
    let plan = session(&recorder, with_variant(true)).expect("is ready");
    assert!(plan.notes().is_empty() && recorder.state().chosen_runs.is_empty());
    assert_eq!(started(&recorder, &plan).0, 3);
}

#[test]
fn of_several_variants_the_fastest_is_taken() {
    // Whatever comes later is faster here, so the last one is taken, held against the one before it.
    let recorder = Arc::new(Recorder::default());
    recorder.state().seconds = vec![2.0, 1.0];
    let (mut launches, consts) = with_variant(true);
    let replacement = vec![launch("wide", &[(Place::Input(0), 4), (Place::Arena(512), 4)])];
    launches.variants.push(Variant {
        launches: 0..1,
        replacement,
        description: "in tiles of 16 x 16".into(),
        by_warpgroups: false,
    });
    let plan = session(&recorder, (launches, consts)).expect("is ready");
    let times = "62500.00 µs against 125000.00 µs";
    let told = ["by warpgroups", "in tiles of 16 x 16"].map(|how| format!("`inc4` {how}, {times}"));
    assert_eq!(plan.notes(), told);
    recorder.calls();
    let y = plan.run(&[recorder::example::bytes(&[1, 2, 3, 4])]).expect("runs");
    assert_eq!(recorder::example::values(&y)[0], [3, 4, 5, 6]);
    let name = |c| if let Call::Launch(function, ..) = c { Some(function) } else { None };
    let names: Vec<String> = recorder.calls().into_iter().filter_map(name).collect();
    assert_eq!(names, ["wide", "inc4", "inc"]);
    drop(plan);
    recorder.holds_nothing();
}

#[test]
fn every_call_of_a_choice_of_variants_may_fail() {
    let calls = |fails: Option<usize>| {
        let recorder = Arc::new(Recorder::default());
        recorder.state().fails = fails;
        recorder.state().seconds = vec![2.0, 1.0];
        drop(session(&recorder, with_variant(true)));
        recorder.holds_nothing();
        recorder.calls().len()
    };
    for fails in 0..calls(None) {
        calls(Some(fails));
    }
}
