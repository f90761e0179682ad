//! What the data of a run decide is optimised like any model, once: branches, branches inside of them, what comes behind, and bodies of
//! loops. Results are held against the reference interpreter.

use super::super::support::*;
use mlc_rewrite::pipeline::Report;
use mlc_rewrite::{AnyArray, Device, Model, Optimizer};

fn graph(inputs: &[&str], nodes: Vec<RawNode>, outputs: &[&str]) -> RawAttr {
    let value = |n: &&str| RawValueInfo { name: n.to_string(), ..RawValueInfo::default() };
    RawAttr::Graph(Box::new(RawGraph {
        inputs: inputs.iter().map(value).collect(),
        outputs: outputs.iter().map(value).collect(),
        nodes,
        ..RawGraph::default()
    }))
}

fn one(op: &str, from: &str, to: &str) -> RawNode {
    node(op, &[from], &[to], &[])
}

/// Two transpositions that cancel and two rectifiers that are one: what is optimised is one rectifier.
fn detour(x: &str, y: &str) -> Vec<RawNode> {
    let at = |s: &str| format!("{y}_{s}");
    let turned =
        |from: &str, to: &str| node("Transpose", &[from], &[to], &[("perm", list(&[1, 0]))]);
    vec![
        turned(x, &at("a")),
        turned(&at("a"), &at("b")),
        one("Relu", &at("b"), &at("c")),
        one("Relu", &at("c"), y),
    ]
}

fn branches(condition: &str, to: &str, bodies: [(Vec<RawNode>, &str); 2]) -> RawNode {
    let [then, other] = bodies.map(|(nodes, result)| graph(&[], nodes, &[result]));
    node("If", &[condition], &[to], &[("then_branch", then), ("else_branch", other)])
}

fn rows(n: usize) -> Tensor {
    let v: Vec<f64> = (0..n * 3).map(|i| ((i * 7 + 3) % 11) as f64 - 5.0).collect();
    floats(&[n, 3], &v)
}

fn flag(b: bool) -> Tensor {
    bools(&[], &[b.into()])
}

/// How extents are declared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Declared {
    Known,
    Named,
    Unknown,
}

fn declared(mut raw: RawModel, how: Declared) -> RawModel {
    let dim = match how {
        Declared::Known => return raw,
        Declared::Named => RawDim::Symbol("n".into()),
        Declared::Unknown => RawDim::Unknown,
    };
    raw.graph.inputs[0].dims = Some(vec![dim, RawDim::Known(3)]);
    raw
}

/// Runs a model's optimised session, holds each result against the reference, and yields what optimising it found.
#[track_caller]
fn runs(raw: &RawModel, feeds: &[Vec<Tensor>]) -> Vec<Report> {
    let bytes = mlc_onnx::to_bytes(raw).expect("written");
    let model = Model::from_bytes(bytes).expect("it loads");
    let optimized = Optimizer::new().target("cpu").optimize(&model).expect("it is optimised");
    let session = optimized.session().expect("runs decide it");
    let reference = model.session_on(&Device::reference()).expect("runs decide it");
    for given in feeds {
        let names = raw.graph.inputs.iter().map(|i| i.name.clone());
        let named: Vec<(String, AnyArray)> =
            names.zip(given.iter().cloned().map(AnyArray::from)).collect();
        let [found, expected] = [&session, &reference].map(|s| s.run(named.clone()));
        let (found, expected) = (found.expect("it runs"), expected.expect("it runs"));
        for name in expected.names() {
            same(found[name].tensor(), expected[name].tensor(), name);
        }
    }
    session.reports_of_runs()
}

/// Operators before and after, of each.
fn sizes(reports: &[Report]) -> Vec<(usize, usize)> {
    reports.iter().map(|r| (r.operators_before, r.operators_after)).collect()
}

#[track_caller]
fn are_checked(reports: &[Report]) {
    assert!(reports.iter().all(|r| r.self_check.is_some()), "each is held against what was read");
}

#[test]
fn the_branch_that_a_run_takes_is_optimised_once_with_what_comes_behind() {
    let other = [vec![one("Neg", "x0", "m")], detour("m", "b")].concat();
    let taken = branches("x1", "u", [(detour("x0", "a"), "a"), (other, "b")]);
    let nodes = [vec![taken], vec![one("Neg", "u", "v")], detour("v", "y")].concat();
    let (raw, _) = model(17, &[In(rows(4)), In(flag(true))], nodes, &["y"]);
    for how in [Declared::Known, Declared::Named, Declared::Unknown] {
        let given = |n: usize, b: bool| vec![rows(n), flag(b)];
        let others = if how == Declared::Known { [4; 4] } else { [4, 1, 7, 2] };
        let feeds: Vec<Vec<Tensor>> =
            others.into_iter().flat_map(|n| [true, false].map(|b| given(n, b))).collect();
        let reports = runs(&declared(raw.clone(), how), &feeds);
        // One program for either branch, whatever the extent. Only of known extents a bound is a constant of its own.
        let after = if how == Declared::Known { 2 } else { 3 };
        assert_eq!(sizes(&reports), [(9, after), (10, after)], "{how:?}");
        are_checked(&reports);
    }
}

#[test]
fn a_branch_inside_of_a_branch_is_optimised() {
    let negated = [vec![one("Neg", "x0", "m")], detour("m", "c")].concat();
    let inside = branches("x2", "i", [(detour("x0", "b"), "b"), (negated, "c")]);
    let then = vec![inside, one("Neg", "i", "a")];
    let taken = branches("x1", "u", [(then, "a"), (detour("x0", "d"), "d")]);
    let nodes = [vec![taken], detour("u", "y")].concat();
    let (raw, _) = model(17, &[In(rows(4)), In(flag(true)), In(flag(true))], nodes, &["y"]);
    for how in [Declared::Known, Declared::Named] {
        let all = [(true, true), (true, false), (false, true), (false, false)];
        let given = |(a, b)| vec![rows(4), flag(a), flag(b)];
        let feeds: Vec<Vec<Tensor>> = all.into_iter().chain(all).map(given).collect();
        let reports = runs(&declared(raw.clone(), how), &feeds);
        assert!(
            sizes(&reports).iter().all(|(before, after)| after < before),
            "{how:?}: {:?}",
            sizes(&reports)
        );
        assert!(reports.len() <= 6, "{how:?}: {:?}", sizes(&reports));
        are_checked(&reports);
    }
}

/// A branch asks for one extent of two: the other one stays open.
#[test]
fn only_extents_that_are_asked_for_are_those_of_the_run() {
    let inside = branches("is", "i", [(detour("x0", "b"), "b"), (detour("m", "c"), "c")]);
    let then = vec![
        one("Neg", "x0", "m"),
        one("Shape", "x0", "shape"),
        node("Gather", &["shape", "x3"], &["width"], &[]),
        node("Equal", &["width", "x2"], &["is"], &[]),
        inside,
    ];
    let taken = branches("x1", "u", [(then, "i"), (detour("x0", "d"), "d")]);
    let args = [In(rows(4)), In(flag(true)), Const(ints(&[], &[3])), Const(ints(&[], &[1]))];
    let (mut raw, _) = model(17, &args, vec![taken, one("Neg", "u", "y")], &["y"]);
    raw.graph.inputs[0].dims = Some(vec![RawDim::Unknown, RawDim::Unknown]);
    let given = |n: usize, b: bool| vec![rows(n), flag(b)];
    let wide = vec![floats(&[2, 5], &[1.0, -2.0, 3.0, 0.5, -1.0, 2.0, 0.0, 1.0, -1.0, 4.0])];
    let feeds: Vec<Vec<Tensor>> = [4, 1, 7, 2, 9, 6].map(|n| given(n, true)).into();
    let narrow = runs(&raw, &feeds);
    assert_eq!(sizes(&narrow), [(5, 2)], "one program for all heights");
    let both = [feeds, vec![[wide, vec![flag(true)]].concat()]].concat();
    assert_eq!(sizes(&runs(&raw, &both)), [(5, 2), (6, 2)], "another one for another width");
}

#[test]
fn the_branches_of_a_loop_are_optimised_for_all_its_repetitions() {
    let inside = branches("small", "t", [(detour("s", "b"), "b"), (detour("m", "c"), "c")]);
    let nodes = vec![
        node("ReduceMax", &["s"], &["top"], &[("keepdims", int(0))]),
        node("Less", &["top", "x1"], &["small"], &[]),
        one("Neg", "s", "m"),
        inside,
        node("Add", &["t", "x1"], &["next"], &[]),
        one("Identity", "go", "go_on"),
    ];
    let body = graph(&["i", "go", "s"], nodes, &["go_on", "next"]);
    let nodes = vec![node("Loop", &["x2", "", "x0"], &["y"], &[("body", body)])];
    let args = [In(rows(4)), Const(floats(&[], &[6.0])), Const(ints(&[], &[9]))];
    let (raw, feeds) = model(17, &args, nodes, &["y"]);
    let reports = runs(&raw, &[feeds.clone(), feeds]);
    assert!(!reports.is_empty() && reports.len() <= 4, "{:?}", sizes(&reports));
    assert!(sizes(&reports).iter().any(|(before, after)| before > after), "{:?}", sizes(&reports));
    are_checked(&reports);
}
