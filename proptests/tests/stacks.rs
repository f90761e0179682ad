//! Programs that repeat a block: explored once for all copies, they stay what they were.

use mlc_dsl::ir::{DType, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::outline::RepeatedBlock;
use mlc_onnx::{RawModel, import, read_onnx, write_onnx};
use mlc_proptests::spellings::build::{Build, Value, int, ints};
use mlc_proptests::spellings::choices::Choices;
use mlc_proptests::stacks::Decoder;
use mlc_rewrite::pipeline::{Optimized, Options, optimize};
use std::sync::Arc;

const STEPS: usize = 8;

fn build() -> Build {
    Build::new(17, DType::F32, false, Choices::default())
}

fn program(model: RawModel) -> (Arc<Library>, Program) {
    let library = mlc_proptests::library().clone();
    let program = import(model, &library).expect("imports").program;
    (library, program)
}

/// The optimised program, held against the source.
fn checked(model: RawModel, share_blocks: bool) -> Optimized {
    let (library, program) = program(model);
    let options = Options { share_blocks, ..mlc_proptests::checked_options() };
    optimize(program, &library, &options).expect("optimises and passes the self-check")
}

fn copies(model: RawModel) -> Option<usize> {
    RepeatedBlock::find(&program(model).1).map(|r| r.count)
}

#[test]
fn a_stack_costs_no_more_than_when_every_layer_is_explored() {
    // So many that the whole is not explored beside the block.
    const LAYERS: usize = 20;
    let model = || Decoder::small(LAYERS).seeded();
    assert!(copies(model()).is_some_and(|n| n >= LAYERS - 1));
    let (once, every) = (checked(model(), true), checked(model(), false));
    assert!(once.report.notes.iter().any(|n| n.contains("explored once")));
    let (a, b) = (once.report.cost_after, every.report.cost_after);
    assert!(a <= b * 1.01, "{a:.4e} s, {b:.4e} s if every layer is explored");
    assert!(once.explored.prove(&once.extracted).is_some(), "the result is proven from the log");
}

#[test]
fn what_holds_near_the_beginning_is_not_taken_to_hold_everywhere() {
    // A queue of values that starts with zeros: for some copies the product is zero.
    let mut b = build();
    let x = b.input(&[4]);
    let zero = b.tensor(&[4], &[0.0; 4]);
    let mut queue = [zero, zero, zero, x];
    for _ in 0..STEPS {
        let w = b.weight(&[4]);
        let [first, second, third, fourth] = queue;
        let product = b.op("Mul", [first, w]);
        let sum = b.op("Add", [product, fourth]);
        let next = b.op("Tanh", [sum]);
        queue = [second, third, fourth, next];
    }
    let out = queue.into_iter().reduce(|a, c| b.op("Add", [a, c])).expect("four values");
    checked(b.finish(&[out], DType::F32).0, true);
}

#[test]
fn a_weight_that_is_special_in_one_copy_is_not_special_in_others() {
    let inf = f64::INFINITY;
    for values in [[0.0, 1.0, 2.0, 3.0], [-1.0, -2.0, -3.0, -4.0], [inf, 1.0, 2.0, 3.0]] {
        let mut reversed = values;
        reversed.reverse();
        for at in [0, 1, 2, 4, STEPS - 1] {
            let mut b = build();
            let mut x = b.input(&[2, 4]);
            for step in 0..STEPS {
                let g = match step == at {
                    true => b.tensor(&[4], &values),
                    false => b.weight_in(&[4], 0.5, 1.5),
                };
                let y = b.op("Mul", [x, g]);
                let z = match step == at {
                    true => b.tensor(&[4], &reversed),
                    false => b.weight_in(&[4], 0.5, 1.5),
                };
                let y = b.op("Add", [y, z]);
                let y = b.op("Relu", [y]);
                x = b.op("Add", [x, y]);
            }
            let model = b.finish(&[x], DType::F32).0;
            assert!(copies(model.clone()).is_some(), "the block is found");
            checked(model, true);
        }
    }
}

/// A cache of keys: every layer has an input and an output of its own.
fn cached() -> RawModel {
    let mut b = build();
    let mut x = b.input(&[1, 4]);
    let mut outputs: Vec<Value> = Vec::new();
    for _ in 0..STEPS {
        let past = b.input(&[3, 4]);
        let w = b.weight(&[4, 4]);
        let key = b.op("MatMul", [x, w]);
        let keys = b.node("Concat", &[past, key], &[("axis", int(0))]);
        outputs.push(keys);
        let turned = b.node("Transpose", &[keys], &[("perm", ints(&[1, 0]))]);
        let scores = b.op("MatMul", [x, turned]);
        let weights = b.node("Softmax", &[scores], &[("axis", int(-1))]);
        let y = b.op("MatMul", [weights, keys]);
        x = b.op("Add", [x, y]);
    }
    outputs.insert(0, x);
    b.finish(&outputs, DType::F32).0
}

#[test]
fn copies_may_have_inputs_and_outputs_of_their_own() {
    assert!(copies(cached()).is_some(), "the block is found");
    let o = checked(cached(), true);
    assert_eq!(o.program.outputs.len(), STEPS + 1);
    assert_eq!(o.program.inputs, o.source.inputs);
}

#[test]
fn a_copy_that_differs_ends_the_run() {
    let mut b = build();
    let mut x = b.input(&[2, 4]);
    for step in 0..STEPS {
        let w = b.weight(&[4, 4]);
        let y = b.op("MatMul", [x, w]);
        let y = b.op(if step == 3 { "Tanh" } else { "Relu" }, [y]);
        x = b.op("Add", [x, y]);
    }
    let model = b.finish(&[x], DType::F32).0;
    assert_eq!(copies(model.clone()), None);
    checked(model, true);
}

#[test]
fn a_block_that_changes_nothing_when_repeated_is_there_once() {
    let cases: [(&[&str], usize); 3] = [(&["Relu"], 1), (&["Abs", "Relu"], 1), (&["Tanh"], 300)];
    for (names, operators) in cases {
        let mut b = build();
        let mut x = b.input(&[2, 3]);
        for step in 0..300 {
            x = b.op(names[step % names.len()], [x]);
        }
        let o = checked(b.finish(&[x], DType::F32).0, true);
        assert_eq!(o.report.operators_after, operators, "{names:?}");
        assert!(o.explored.prove(&o.extracted).is_some(), "{names:?} is proven from the log");
    }
}

#[test]
fn unread_weights_stay_where_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, out) = (folder.path().join("m.onnx"), folder.path().join("elsewhere/o.onnx"));
    std::fs::create_dir(folder.path().join("elsewhere")).expect("a folder");
    let large = Decoder {
        hidden: 4096,
        inner: 16384,
        heads: 32,
        kv_heads: 8,
        layers: 20,
        vocabulary: 32000,
        tokens: 8,
    };
    write_onnx(&large.hollow(&folder.path().join("w")).expect("weights"), &file).expect("writes");
    let read = read_onnx(&file).expect("reads");
    let unread =
        |m: &RawModel| m.graph.initializers.values().filter(|t| t.unread().is_some()).count();
    assert!(unread(&read) >= 20 * 7, "{} are unread", unread(&read));
    let (library, program) = program(read.clone());
    let o = optimize(program, &library, &mlc_proptests::checked_options()).expect("optimises");
    assert!(o.report.notes.iter().any(|n| n.contains("are not read")), "{:?}", o.report.notes);
    assert_eq!(o.program.consts.unread(), o.source.consts.unread());
    write_onnx(&read, &out).expect("writes");
    let linked = std::fs::metadata(folder.path().join("elsewhere/w")).expect("linked");
    assert_eq!(linked.len(), std::fs::metadata(folder.path().join("w")).expect("there").len());
    let again = read_onnx(&out).expect("reads");
    assert_eq!(again.graph.initializers.len(), read.graph.initializers.len());
    let pairs = again.graph.initializers.values().zip(read.graph.initializers.values());
    for (a, b) in pairs.filter(|(a, _)| a.unread().is_some()) {
        assert_eq!(a.unread().map(|r| r.offset), b.unread().map(|r| r.offset));
    }
}

#[test]
fn tensors_of_one_place_are_one_constant_and_of_two_places_two() {
    let range = |offset| std::sync::Arc::new(mlc_dsl::ir::FileRange { path: "w".into(), offset });
    let t = Tensor::from_f64(DType::F32, vec![2], &[1.0, 1.0]);
    let (a, b) = (t.clone().into_unread(range(0)), t.clone().into_unread(range(8)));
    assert!(a != b && a != t && a == a.clone());
    assert!(a.splat().is_none() && t.splat().is_some());
    assert!(a.into_read() == t);
}
