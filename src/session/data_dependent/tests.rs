//! What is made ready for runs that data decide, and how often.

use super::*;
use crate::device::Device;
use mlc_onnx::{RawAttr, RawGraph};
use std::sync::atomic::{AtomicUsize, Ordering};

fn value(name: &str, dtype: DType, dims: &[RawDim]) -> RawValueInfo {
    let (dtype, dims) = (Some(dtype), Some(dims.to_vec()));
    RawValueInfo { name: name.into(), dtype, dims, containers: vec![] }
}

fn node(op: &str, inputs: &[&str], output: &str, attrs: &[(&str, RawAttr)]) -> RawNode {
    RawNode {
        op_type: op.into(),
        inputs: inputs.iter().map(|s| s.to_string()).collect(),
        outputs: vec![output.into()],
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
        ..RawNode::default()
    }
}

/// What a branch puts behind its past, if it has one.
fn branch(nodes: Vec<RawNode>) -> RawAttr {
    let outputs = vec![RawValueInfo { name: "all".into(), ..RawValueInfo::default() }];
    RawAttr::Graph(Box::new(RawGraph { nodes, outputs, ..RawGraph::default() }))
}

/// A decoder with and without a cache in one file, by a flag of the run.
fn merged() -> RawModel {
    let joined = node("Concat", &["past", "x"], "all", &[("axis", RawAttr::Int(0))]);
    let branches = [
        ("then_branch", branch(vec![joined])),
        ("else_branch", branch(vec![node("Neg", &["x"], "all", &[])])),
    ];
    raw(
        vec![node("If", &["cached"], "y", &branches)],
        vec![
            value("x", DType::F32, &[symbol("s"), RawDim::Known(2)]),
            value("past", DType::F32, &[symbol("p"), RawDim::Known(2)]),
            value("cached", DType::Bool, &[RawDim::Known(1)]),
        ],
        &[],
    )
}

fn symbol(s: &str) -> RawDim {
    RawDim::Symbol(s.into())
}

fn raw(nodes: Vec<RawNode>, inputs: Vec<RawValueInfo>, constants: &[(&str, i64)]) -> RawModel {
    let outputs = vec![RawValueInfo { name: "y".into(), ..RawValueInfo::default() }];
    let constant =
        |(name, n): &(&str, i64)| (name.to_string(), Tensor::from_i64(DType::I64, vec![], &[*n]));
    let initializers = constants.iter().map(constant).collect();
    let graph = RawGraph { nodes, inputs, outputs, initializers, ..RawGraph::default() };
    let opset_imports = [(String::new(), 17)].into_iter().collect();
    RawModel { ir_version: 8, opset_imports, graph, ..RawModel::default() }
}

/// Runs of a model, and how many programs are made ready for them.
fn runs(raw: &RawModel) -> (DataDependentRuns, Arc<AtomicUsize>) {
    let bytes = mlc_onnx::to_bytes(raw).expect("it is written");
    let model = Model::from_bytes(bytes).expect("it is read");
    let (library, made) = (model.library.clone(), Arc::new(AtomicUsize::new(0)));
    let count = made.clone();
    let prepare = move |program: &Program, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Session::of_program(program, &library, &Device::cpu())
    };
    (DataDependentRuns::new(model, Box::new(prepare)), made)
}

fn counted(from: usize, n: usize) -> Vec<f64> {
    (from..from + n).map(|i| i as f64).collect()
}

#[test]
fn a_flag_of_the_run_leaves_extents_open() {
    let (runs, made) = runs(&merged());
    for (s, p) in [(1, 3), (2, 4), (5, 0), (1, 9)] {
        for cached in [true, false] {
            let matrix = |from: usize, n: usize| {
                Tensor::from_f64(DType::F32, vec![n, 2], &counted(from, 2 * n))
            };
            let flag = Tensor::from_i64(DType::Bool, vec![1], &[cached.into()]);
            let given = [("x", matrix(2 * p, s)), ("past", matrix(0, p)), ("cached", flag)];
            let given = given.map(|(name, t)| (name.to_string(), t)).into_iter().collect();
            let found = runs.run(given).expect("it runs");
            let expected = match cached {
                true => counted(0, 2 * (s + p)),
                false => counted(2 * p, 2 * s).into_iter().map(|x| -x).collect(),
            };
            assert_eq!(found[0].1.to_f64(), expected, "{s} after {p}, {cached}");
        }
    }
    // What asks for the flag, and either branch.
    assert_eq!(made.load(Ordering::Relaxed), 3);
}

/// As many numbers as the elements of `x` are in sum, which so many nodes pass on, and the elements again.
fn as_many(passed_on: usize) -> RawModel {
    let mut nodes = vec![node("Abs", &["x"], "x0", &[])];
    for i in 0..passed_on {
        nodes.push(node("Neg", &[&format!("x{i}")], &format!("x{}", i + 1), &[]));
    }
    let last = format!("x{passed_on}");
    nodes.extend([
        node("ReduceSum", &[&last], "sum", &[("keepdims", RawAttr::Int(0))]),
        node("Cast", &["sum"], "n", &[("to", RawAttr::Int(7))]),
        node("Range", &["zero", "n", "one"], "numbers", &[]),
        node("Cast", &["numbers"], "floats", &[("to", RawAttr::Int(1))]),
        node("Concat", &["floats", &last], "y", &[("axis", RawAttr::Int(0))]),
    ]);
    raw(nodes, vec![value("x", DType::F32, &[symbol("s")])], &[("zero", 0), ("one", 1)])
}

#[test]
fn extents_that_data_decide_are_open() {
    // Few nodes are computed again where their answer is needed; of many the rest is a part of its own.
    for passed_on in [2, 2 * FEW_NODES] {
        let (runs, made) = runs(&as_many(passed_on));
        for x in [&[1.0, 2.0][..], &[4.0], &[0.0, 0.0, 0.0], &[], &[2.0, 5.0, 1.0]] {
            let given = Tensor::from_f64(DType::F32, vec![x.len()], x);
            let found = runs.run([("x".to_string(), given)].into_iter().collect());
            let n = x.iter().sum::<f64>() as usize;
            let expected: Vec<f64> = counted(0, n).into_iter().chain(x.iter().copied()).collect();
            assert_eq!(found.expect("it runs")[0].1.to_f64(), expected, "{x:?} {passed_on}");
        }
        // What asks, the rest for some numbers, and for none.
        assert_eq!(made.load(Ordering::Relaxed), 3, "{passed_on}");
    }
}
