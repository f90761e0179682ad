//! Models that the data of a run decide at many places: loops whose bodies ask, loops too long to be written out, branches inside of
//! them, and a suppression of boxes for each class.

use super::super::support::*;
use mlc_rewrite::{AnyArray, Model};

fn graph(inputs: &[&str], nodes: Vec<RawNode>, outputs: &[&str]) -> RawAttr {
    let value = |n: &&str| RawValueInfo { name: n.to_string(), ..RawValueInfo::default() };
    RawAttr::Graph(Box::new(RawGraph {
        inputs: inputs.iter().map(value).collect(),
        outputs: outputs.iter().map(value).collect(),
        nodes,
        ..RawGraph::default()
    }))
}

/// What a session yields for these inputs, twice.
#[track_caller]
fn runs(raw: &RawModel, feeds: &[Tensor], expected: &[(&str, Tensor)]) {
    let bytes = mlc_onnx::to_bytes(raw).expect("written");
    let session = Model::from_bytes(bytes).expect("it loads").session().expect("runs decide it");
    for _ in 0..2 {
        let names = raw.graph.inputs.iter().map(|i| i.name.clone());
        let given: Vec<(String, AnyArray)> =
            names.zip(feeds.iter().cloned().map(AnyArray::from)).collect();
        let outputs = session.run(given).expect("it runs");
        for (name, expected) in expected {
            same(outputs[name].tensor(), expected, name);
        }
    }
}

/// The sum of what a state was, and of the numbers of the repetitions.
fn summing(inputs: &[&str], go_on: RawNode) -> RawNode {
    let nodes = vec![
        go_on,
        node("Cast", &["i"], &["f"], &[("to", int(1))]),
        node("Add", &["s", "f"], &["t"], &[]),
        node("ReduceMax", &["t"], &["top"], &[("keepdims", int(0))]),
    ];
    let body = graph(&["i", "go", "s"], nodes, &["go_on", "t", "top"]);
    node("Loop", inputs, &["last", "tops"], &[("body", body)])
}

#[test]
fn a_loop_that_is_too_long_to_be_written_out_runs() {
    let always = node("Identity", &["go"], &["go_on"], &[]);
    let args = [In(floats(&[2], &[1.0, 3.0])), Const(ints(&[], &[10_000]))];
    let nodes = vec![
        node("Neg", &["x0"], &["n"], &[]),
        summing(&["x1", "", "n"], always),
        node("Neg", &["last"], &["y"], &[]),
    ];
    let (raw, feeds) = model(17, &args, nodes, &["y", "tops"]);
    // Sums beyond 2^24 are rounded, in the order in which the loop adds.
    let sums = |from: f32| -> Vec<f64> {
        let add = |sum: &mut f32, i: u16| {
            *sum += f32::from(i);
            Some(f64::from(*sum))
        };
        (0..10_000).scan(from, add).collect()
    };
    let (tops, second) = (sums(-1.0), sums(-3.0));
    let y = floats(&[2], &[-tops[9999], -second[9999]]);
    runs(&raw, &feeds, &[("y", y), ("tops", floats(&[10_000], &tops))]);
}

#[test]
fn a_condition_that_data_decide_ends_a_long_loop() {
    let below = node("Less", &["i", "x2"], &["go_on"], &[]);
    let args = [In(floats(&[1], &[0.0])), Const(bools(&[], &[1])), In(ints(&[], &[1000]))];
    let nodes = vec![summing(&["", "x1", "x0"], below)];
    let (raw, feeds) = model(17, &args, nodes, &["last"]);
    runs(&raw, &feeds, &[("last", floats(&[1], &[500_500.0]))]);
}

#[test]
fn branches_inside_of_a_loop_are_taken_as_its_data_say() {
    let then = graph(&[], vec![node("Add", &["s", "s"], &["a"], &[])], &["a"]);
    let other = vec![
        node("NonZero", &["s"], &["places"], &[]),
        node("Cast", &["places"], &["p"], &[("to", int(1))]),
        node("ReduceSum", &["p"], &["q"], &[("keepdims", int(0))]),
        node("Sub", &["s", "q"], &["b"], &[]),
    ];
    let branches = [("then_branch", then), ("else_branch", graph(&[], other, &["b"]))];
    let nodes = vec![
        node("ReduceMax", &["s"], &["top"], &[("keepdims", int(0))]),
        node("Less", &["top", "x1"], &["small"], &[]),
        node("If", &["small"], &["t"], &branches),
        node("Identity", &["go"], &["go_on"], &[]),
    ];
    let body = graph(&["i", "go", "s"], nodes, &["go_on", "t"]);
    let nodes = vec![node("Loop", &["x2", "", "x0"], &["y"], &[("body", body)])];
    let args =
        [In(floats(&[3], &[1.0, 2.0, 0.0])), Const(floats(&[], &[6.0])), Const(ints(&[], &[5]))];
    let (raw, feeds) = model(17, &args, nodes, &["y"]);
    // 2 4 0, 4 8 0, then less 1: 3 7 -1, then less 3: 0 4 -4, then twice that.
    runs(&raw, &feeds, &[("y", floats(&[3], &[0.0, 8.0, -8.0]))]);
}

/// What is above a bound in a class, the best of it, and those boxes of it that do not overlap.
fn of_class(q: usize) -> Vec<RawNode> {
    let at = |s: &str| format!("{s}{q}");
    let n = |op: &str, inputs: &[&str], out: &str, attrs: &[(&str, RawAttr)]| {
        let named = |s: &&str| match s.strip_prefix('_') {
            Some(own) => at(own),
            None => (*s).to_string(),
        };
        let inputs: Vec<String> = inputs.iter().map(named).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        node(op, &inputs, &[&at(out)], attrs)
    };
    let mut top = n("TopK", &["_found", "_k"], "best", &[]);
    top.outputs.push(at("order"));
    vec![
        n("Slice", &["x1", &format!("c{q}"), &format!("c{}", q + 1), "one"], "column", &[]),
        n("Squeeze", &["_column", "one"], "scores", &[]),
        n("Greater", &["_scores", "bound"], "is", &[]),
        n("NonZero", &["_is"], "places", &[]),
        n("Squeeze", &["_places", "c0"], "at", &[]),
        n("Gather", &["_scores", "_at"], "found", &[]),
        n("Gather", &["x0", "_at"], "boxes", &[]),
        n("Shape", &["_found"], "count", &[]),
        n("Min", &["_count", "most"], "k", &[]),
        top,
        n("Gather", &["_boxes", "_order"], "sorted", &[]),
        n("Unsqueeze", &["_sorted", "c0"], "box_batch", &[]),
        n("Unsqueeze", &["_best", "both"], "score_batch", &[]),
        n("NonMaxSuppression", &["_box_batch", "_score_batch", "most", "iou"], "chosen", &[]),
        n("Slice", &["_chosen", "c2", "c3", "one"], "last", &[]),
        n("Squeeze", &["_last", "one"], "which", &[]),
        n("Gather", &["_best", "_which"], "kept", &[]),
    ]
}

/// As detectors end that are traced: hundreds of values that the data decide, but in a few rounds.
#[test]
fn boxes_of_each_class_are_suppressed() {
    const CLASSES: usize = 120;
    let mut nodes: Vec<RawNode> = (0..CLASSES).flat_map(of_class).collect();
    let kept: Vec<String> = (0..CLASSES).map(|q| format!("kept{q}")).collect();
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    nodes.push(node("Concat", &kept, &["y"], &[("axis", int(0))]));
    // Four boxes, of which the first two are one; a class sees some of them.
    let boxes = [0.0, 0.0, 2.0, 2.0, 0.0, 0.1, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 6.0, 6.0, 7.0, 7.0];
    let score =
        |b: usize, q: usize| if (b + q).is_multiple_of(3) { 0.0 } else { (1 + b + q) as f64 };
    let scores: Vec<f64> = (0..4).flat_map(|b| (0..CLASSES).map(move |q| score(b, q))).collect();
    let args = [In(floats(&[4, 4], &boxes)), In(floats(&[4, CLASSES], &scores))];
    let (mut raw, feeds) = model(17, &args, nodes, &["y"]);
    let mut known = |name: &str, t: Tensor| drop(raw.graph.initializers.insert(name.into(), t));
    (0..=CLASSES).for_each(|q| known(&format!("c{q}"), ints(&[1], &[q as i64])));
    known("one", ints(&[1], &[1]));
    known("both", ints(&[2], &[0, 1]));
    known("most", ints(&[1], &[3]));
    known("bound", floats(&[], &[0.5]));
    known("iou", floats(&[1], &[0.5]));
    let of_class = |q: usize| {
        let mut seen: Vec<usize> = (0..4).filter(|&b| score(b, q) > 0.5).collect();
        seen.sort_by(|&a, &b| score(b, q).total_cmp(&score(a, q)));
        seen.truncate(3);
        let both = seen.contains(&0) && seen.contains(&1);
        seen.into_iter().filter(move |&b| !(both && b == 0)).map(move |b| score(b, q))
    };
    let expected: Vec<f64> = (0..CLASSES).flat_map(of_class).collect();
    runs(&raw, &feeds, &[("y", floats(&[expected.len()], &expected))]);
}
