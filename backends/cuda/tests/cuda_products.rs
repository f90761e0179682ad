//! Products by a library in sessions of the CUDA backend, on a driver that records every call and may fail any of them: what is
//! tried and chosen, what a run starts, and what happens if the library fails.

use crate::recorder::{Call, Recorder};
use mlc_backends::Executable;
use mlc_cuda::{
    Argument, ChannelOrder, Convolution, Launch, LaunchedPlan, Launches, Library, LibraryCandidate,
    LibraryOp, Matrix, MatrixProduct, PermutedArgument, Place, Port, WindowAxis,
};
use mlc_dsl::ir::{Consts, DType, Tensor};
use std::sync::Arc;

fn argument(place: Place, written: bool) -> Argument {
    Argument { place, bytes: 4, dtype: DType::U8, written }
}

fn launch(function: &str, from: Place, to: Place, kernel: usize) -> Launch {
    Launch {
        function: function.into(),
        source: format!("KERNEL(64) {function}"),
        grid: [1, 1, 1],
        block: 64,
        arguments: vec![argument(from, false), argument(to, true)],
        numbers: vec![],
        kernel,
        fallback: None,
    }
}

fn product() -> LibraryOp {
    let m = |line| Matrix { dtype: DType::U8, line, by_column: false, apart: 0 };
    LibraryOp::Product(MatrixProduct {
        count: 1,
        rows: 1,
        columns: 4,
        depth: 4,
        left: m(4),
        right: m(4),
        result: m(4),
        is_added: false,
        bias: None,
        activation: None,
        in_tf32: false,
    })
}

/// A convolution whose result is as large.
fn convolution() -> LibraryOp {
    LibraryOp::Convolution(Convolution {
        dtype: DType::U8,
        count: 1,
        groups: 1,
        channels: [1, 1],
        windows: vec![WindowAxis { extents: [4, 1, 4], stride: 1, dilation: 1, padding: [0, 0] }],
        order: ChannelOrder::First,
        weights: ChannelOrder::First,
        is_added: false,
        has_bias: false,
        is_rectified: false,
        in_tf32: false,
    })
}

/// `y = ((x + 1) + 1) + 1`: the launches in the middle, one without blocks before them, may be a product and a rest.
fn example(has_rest: bool) -> Launches {
    let port = |name: &str| Port { name: name.into(), dtype: DType::U8, shape: vec![4] };
    let mut none = launch("none", Place::Input(0), Place::Arena(0), 0);
    none.grid = [0, 1, 1];
    let [a, b, c] = [0, 256, 512].map(Place::Arena);
    let own = match has_rest {
        true => vec![launch("sums", a, c, 1), launch("after", c, b, 1)],
        false => vec![launch("gemm", a, b, 1)],
    };
    let to = if has_rest { c } else { b };
    let candidate = LibraryCandidate {
        launches: 2..2 + own.len(),
        work: product(),
        copied: None,
        arguments: vec![argument(a, false), argument(Place::Input(0), false), argument(to, true)],
        epilogue: has_rest.then(|| launch("rest", c, b, 1)),
    };
    let before = vec![none, launch("before", Place::Input(0), a, 0)];
    let after = vec![launch("last", b, Place::Output(0), 2)];
    Launches {
        each: [before, own, after].concat(),
        library_candidates: vec![candidate],
        arena: 768,
        inputs: vec![port("x")],
        outputs: vec![(port("y"), Place::Output(0))],
        ..Launches::default()
    }
}

/// A device with a library whose product takes so many seconds beside so many.
fn device(own: f64, library: f64) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::default());
    {
        let mut state = recorder.state();
        state.library = Some(Library::Present("Blas 1".into()));
        state.seconds = vec![own, library];
    }
    recorder
}

fn session(recorder: &Arc<Recorder>, has_rest: bool) -> LaunchedPlan {
    LaunchedPlan::new(example(has_rest), recorder.clone(), Consts::default()).expect("is ready")
}

fn run(plan: &LaunchedPlan, first: u8) -> Result<Vec<u8>, String> {
    let x = Tensor::new(DType::U8, vec![4], vec![first; 4].into()).expect("a vector");
    Ok(plan.run(&[x]).map_err(|e| e.to_string())?[0].bytes().to_vec())
}

/// The names of what a run started.
fn started(recorder: &Recorder) -> Vec<String> {
    let name = |call| match call {
        Call::Launch(function, ..) => Some(function),
        Call::Multiply(_) => Some("product".into()),
        Call::Record | Call::Replay(_) => Some(format!("{call:?}").split('(').next()?.into()),
        _ => None,
    };
    recorder.calls().into_iter().filter_map(name).collect()
}

#[test]
fn the_faster_way_is_chosen_and_kept() {
    for has_rest in [false, true] {
        let added = if has_rest { 4 } else { 3 };
        let recorder = device(2.0, 1.0);
        let plan = session(&recorder, has_rest);
        assert_eq!(
            plan.notes(),
            [format!("Blas 1, 62500.00 µs against 125000.00 µs: {}", product())]
        );
        let made = recorder.calls();
        let unit = example(has_rest).unit();
        assert_eq!(unit.contains("KERNEL(64) rest"), has_rest);
        let prepared = made.iter().find_map(|c| match c {
            Call::Prepare(what, at, beside) => Some((what.clone(), at.len(), beside.1)),
            _ => None,
        });
        assert_eq!(prepared, Some((product().to_string(), 3, 32 << 20)));
        let inside: &[&str] = if has_rest { &["product", "rest"] } else { &["product"] };
        let single = [&["before"], inside, &["last"]].concat();
        assert_eq!(run(&plan, 1), Ok(vec![1 + added; 4]));
        assert_eq!(started(&recorder), single);
        assert_eq!(run(&plan, 2), Ok(vec![2 + added; 4]));
        assert_eq!(started(&recorder), [&["Record"], &single[..], &["Replay"]].concat());
        assert_eq!(run(&plan, 3), Ok(vec![3 + added; 4]));
        assert_eq!(started(&recorder), ["Replay"]);
        let x = Tensor::new(DType::U8, vec![4], vec![0; 4].into()).expect("a vector");
        let times = plan.launch_seconds(&[x]).expect("runs").expect("a clock");
        let names: Vec<_> = times.iter().map(|t| (t.function.as_str(), t.kernel)).collect();
        assert_eq!(names, [("before", 0), ("product by the library", 1), ("last", 2)]);
        drop(plan);
        // Nothing uses the product any more when it is given back, and its memory is still there.
        let calls = recorder.calls();
        let at = |of: &dyn Fn(&Call) -> bool| calls.iter().position(of).expect("is called");
        let release = at(&|c| matches!(c, Call::Release(_)));
        assert!(at(&|c| matches!(c, Call::End(_))) < release);
        assert!(release < at(&|c| matches!(c, Call::Free(_))));
        recorder.holds_nothing();
        // The next session tries nothing, whatever the clock says.
        recorder.state().seconds = vec![1.0, 2.0];
        let plan = session(&recorder, has_rest);
        assert_eq!(plan.notes(), [format!("Blas 1, as chosen before: {}", product())]);
        assert_eq!(started(&recorder), [""; 0]);
        assert_eq!(run(&plan, 1), Ok(vec![1 + added; 4]));
        assert_eq!(started(&recorder), single);
        drop(plan);
        recorder.holds_nothing();
    }
}

/// A device, the note of a session on it, and what is kept of the product.
type Case<'a> = (&'a dyn Fn() -> Arc<Recorder>, String, Option<&'static str>);

/// The results of runs, and the notes after them.
type Runs = (Vec<Result<Vec<u8>, String>>, Vec<String>);

#[test]
fn generated_code_stays_where_it_is_faster_or_the_library_differs_or_is_missing() {
    let (code, product) = ("generated code", product());
    let cases: [Case<'_>; 5] = [
        (
            &|| device(1.0, 2.0),
            format!("{code}, 62500.00 µs against 125000.00 µs: {product}"),
            Some("code"),
        ),
        (
            &|| {
                let recorder = device(2.0, 1.0);
                recorder.state().is_wrong = true;
                recorder
            },
            format!("{code}, for Blas 1 differs by 1.0e0: {product}"),
            Some("code"),
        ),
        (
            &|| {
                let recorder = device(2.0, 1.0);
                recorder.state().is_old = true;
                recorder
            },
            format!("{code}, for the device has no clock: {product}"),
            None,
        ),
        (
            &|| {
                let recorder = device(2.0, 1.0);
                recorder.state().library = Some(Library::Absent("there is none".into()));
                recorder
            },
            "products run as generated code: there is none".into(),
            None,
        ),
        (
            &|| {
                let recorder = device(2.0, 1.0);
                recorder.state().chosen.insert(product.to_string(), "code".into());
                recorder
            },
            format!("{code}, as chosen before: {product}"),
            Some("code"),
        ),
    ];
    for (made, note, chosen) in cases {
        let recorder = made();
        let plan = session(&recorder, false);
        assert_eq!(plan.notes(), [note]);
        let kept = recorder.state().chosen.get(&product.to_string()).cloned();
        assert_eq!(kept.as_deref(), chosen);
        recorder.calls();
        assert_eq!(run(&plan, 1), Ok(vec![4; 4]));
        assert_eq!(started(&recorder), ["before", "gemm", "last"]);
        drop(plan);
        recorder.holds_nothing();
    }
    let recorder = device(2.0, 1.0);
    recorder.state().library = None;
    let plan = session(&recorder, false);
    assert_eq!(plan.notes(), [""; 0], "what is turned off is not told");
    assert_eq!(run(&plan, 1), Ok(vec![4; 4]));
}

#[test]
fn every_call_fails_once_and_a_library_that_fails_is_left() {
    for has_rest in [false, true] {
        let added = if has_rest { 4 } else { 3 };
        let all = |recorder: &Arc<Recorder>| -> Result<Runs, String> {
            let plan = LaunchedPlan::new(example(has_rest), recorder.clone(), Consts::default());
            let plan = plan.map_err(|e| e.to_string())?;
            let runs = (1..4).map(|first| run(&plan, first)).collect();
            Ok((runs, plan.notes()))
        };
        let recorder = device(2.0, 1.0);
        let (runs, _) = all(&recorder).expect("works");
        assert!(runs.iter().all(Result::is_ok));
        let calls = recorder.calls();
        let mut multiplications = 0;
        for (at, call) in calls.iter().enumerate() {
            let recorder = device(2.0, 1.0);
            recorder.state().fails = Some(at);
            match all(&recorder) {
                Ok((runs, notes)) => {
                    for (first, result) in (1..4).zip(&runs) {
                        // A run may fail, but none is wrong.
                        assert!(
                            result.as_ref().is_ok_and(|y| *y == [first + added; 4])
                                || result.is_err()
                        );
                    }
                    if matches!(call, Call::Multiply(_) | Call::Prepare(..)) {
                        multiplications += 1;
                        assert!(runs.iter().all(Result::is_ok), "{call:?} fails: {runs:?}");
                        let told =
                            |n: &String| n.contains("generated code") && n.contains("refused");
                        assert!(notes.iter().any(told), "{call:?} fails: {notes:?}");
                    }
                }
                Err(_) => {
                    assert!(!matches!(call, Call::Multiply(_) | Call::Prepare(..) | Call::Timed(_)))
                }
            }
            recorder.holds_nothing();
        }
        assert!(multiplications > 10, "{multiplications}");
    }
}

#[test]
fn a_lost_context_is_an_error_and_no_reason_to_leave_the_library() {
    let recorder = device(2.0, 1.0);
    drop(session(&recorder, false));
    let calls = recorder.calls();
    let first = calls.iter().position(|c| matches!(c, Call::Multiply(_))).expect("is tried");
    let recorder = device(2.0, 1.0);
    {
        let mut state = recorder.state();
        (state.fails, state.is_final) = (Some(first), true);
    }
    let lost = LaunchedPlan::new(example(false), recorder.clone(), Consts::default());
    let lost = lost.err().expect("the context is lost").to_string();
    assert!(lost.contains("context is lost"), "{lost}");
    assert!(recorder.state().chosen.is_empty());
}

/// The same with a convolution beside the product, whose first factor no run changes and whose elements it reads in another order.
fn both(recorder: &Arc<Recorder>) -> LaunchedPlan {
    let mut launches = example(false);
    let mut other = launches.library_candidates[0].clone();
    other.work = convolution();
    other.copied = Some(PermutedArgument { argument: 1, axes: vec![(2, 1), (2, 2)] });
    launches.library_candidates.push(other);
    LaunchedPlan::new(launches, recorder.clone(), Consts::default()).expect("is ready")
}

/// A device with two libraries of two ways each, and what generated code and these ways take.
fn device_of_both(seconds: &[f64]) -> Arc<Recorder> {
    let recorder = device(0.0, 0.0);
    let mut state = recorder.state();
    state.other_library = Some(Library::Present("Dnn 1".into()));
    state.more_ways = 1;
    state.seconds = seconds.to_vec();
    drop(state);
    recorder
}

#[test]
fn the_fastest_of_all_ways_is_chosen() {
    let (x, c) = (product(), convolution());
    let cases = [
        ([5.0, 4.0, 3.0, 2.0, 1.0], "Dnn 1", 1.0, 5.0, &c, "library 1 1"),
        ([5.0, 4.0, 3.0, 1.0, 2.0], "Dnn 1", 1.0, 5.0, &c, "library 1 0"),
        ([5.0, 4.0, 1.0, 3.0, 2.0], "Blas 1", 1.0, 5.0, &x, "library 0 1"),
        ([1.0, 4.0, 3.0, 2.0, 5.0], "generated code", 1.0, 2.0, &c, "code"),
    ];
    for (seconds, who, first, second, what, kept) in cases {
        let recorder = device_of_both(&seconds);
        let plan = both(&recorder);
        let [first, second] = [first, second].map(|s| format!("{:.2} µs", s * 1e6 / 16.0));
        assert_eq!(plan.notes(), [format!("{who}, {first} against {second}: {what}")]);
        let chosen = recorder.state().chosen.clone();
        assert_eq!(chosen.into_iter().collect::<Vec<_>>(), [(format!("{x}; {c}"), kept.into())]);
        recorder.calls();
        assert_eq!(run(&plan, 1), Ok(vec![4; 4]));
        let inside = if kept == "code" { "gemm" } else { "product" };
        assert_eq!(started(&recorder), ["before", inside, "last"]);
        drop(plan);
        recorder.holds_nothing();
        // The next session prepares that way alone.
        recorder.calls();
        let plan = both(&recorder);
        let prepared = recorder.calls().into_iter().filter(|c| matches!(c, Call::Prepare(..)));
        assert_eq!(prepared.count(), usize::from(kept != "code"));
        assert_eq!(run(&plan, 1), Ok(vec![4; 4]));
        drop(plan);
        recorder.holds_nothing();
    }
    // A way whose result differs is left, and so is a library that is not there.
    let recorder = device_of_both(&[5.0, 4.0, 3.0]);
    recorder.state().wrong_ways = vec![1];
    let plan = both(&recorder);
    let told = |library: &str, of: &LibraryOp| {
        format!("generated code, for {library} differs by 1.0e0: {of}")
    };
    let best = format!("Dnn 1, 187500.00 µs against 312500.00 µs: {c}");
    assert_eq!(plan.notes(), [told("Blas 1", &x), told("Dnn 1", &c), best]);
    drop(plan);
    let recorder = device_of_both(&[5.0, 4.0, 3.0]);
    recorder.state().other_library = Some(Library::Absent("there is none".into()));
    let absent = "convolutions run as generated code: there is none".to_string();
    let best = format!("Blas 1, 187500.00 µs against 312500.00 µs: {x}");
    assert_eq!(both(&recorder).notes(), [absent, best]);
    recorder.holds_nothing();
}

#[test]
fn every_call_of_several_ways_may_fail() {
    let all = |fails: Option<usize>| {
        let recorder = device_of_both(&[5.0, 4.0, 3.0, 2.0, 1.0]);
        recorder.state().fails = fails;
        let mut launches = example(false);
        let mut other = launches.library_candidates[0].clone();
        other.work = convolution();
        other.copied = Some(PermutedArgument { argument: 1, axes: vec![(4, 1)] });
        launches.library_candidates.push(other);
        if let Ok(plan) = LaunchedPlan::new(launches, recorder.clone(), Consts::default()) {
            for first in 1..4 {
                let result = run(&plan, first);
                assert!(result.is_err() || result == Ok(vec![first + 3; 4]));
            }
        }
        let calls = recorder.calls().len();
        recorder.holds_nothing();
        calls
    };
    for fails in 0..all(None) {
        all(Some(fails));
    }
}
