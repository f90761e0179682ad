//! Which kernels a program becomes, and that these and no others are launched on the CPU.

use mlc_backends::Backend;
use mlc_backends::reference::Reference;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Attr, DType, Extent, NodeId, Program, Tensor, Type, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::{Kernel, Plan, faults};
use mlc_extract::cost::work::Works;
use mlc_onnx::{ModelInfo, export_plan};
use mlc_rewrite::model::rules_model;
use mlc_rewrite::{pipeline, stdlib};
use mlc_verify::random_inputs;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A program and its kernels: the name of each and how many operators other than views it covers.
const PLANS: &[(&str, &str, &str)] = &[
    (
        "a chain after a product",
        "def f(x: f32[4, 8], w: f32[8, 16], z: f32[16]) -> f32[4, 16]\n  = relu(x @ w + z)\n",
        "gemm 3",
    ),
    (
        "a product that its epilogue reads twice",
        "def f(x: f32[4, 8], w: f32[8, 16]) -> f32[4, 16]\n  let y = x @ w\n  = y * sigmoid(y)\n",
        "gemm 3",
    ),
    (
        "several ways from one value to the next",
        "def f(x: f32[4, 8], w: f32[8, 16], z: f32[16]) -> f32[4, 16]\n  let y = x @ w + z\n  \
         let a = exp(y)\n  let b = tanh(y)\n  = a * b + y\n",
        "gemm 6",
    ),
    (
        "a product that something else reads, too",
        "def f(x: f32[4, 8], w: f32[8, 16]) -> f32[4, 16]\n  let y = x @ w\n  \
         = y * sigmoid(y) + softmax(y, axis=1)\n",
        "gemm 1, softmax 1, pointwise 3",
    ),
    (
        "a reduction of what is computed element by element",
        "def f(x: f32[4, 8]) -> f32[4]\n  = sqrt(sum(abs(x * x), axes=[1]))\n",
        "reduce 4",
    ),
    (
        "gate and product: each way out belongs to one kernel",
        "def f(x: f32[4, 8], g: f32[8, 16], u: f32[8, 16]) -> f32[4, 16]\n  let y = x @ g\n  \
         = y * sigmoid(y) * (x @ u)\n",
        "gemm 1, gemm 4",
    ),
];

#[test]
fn programs_become_the_kernels_of_the_target() {
    for (what, text, wanted) in PLANS {
        let (library, diags) = stdlib::with(&[("f.rules", *text)]);
        assert!(diags.is_empty(), "{what}: {}", stdlib::rendered(&library, &diags, false));
        let library = Arc::new(library);
        let program = rules_model::program(&library, "f").expect("a program");
        let target = pipeline::target(&library, "cpu").expect("shipped");
        let plan = pipeline::plan(&program, &library, &target).expect("a plan");
        let is_view = |n: &&String| matches!(n.as_str(), "broadcast" | "reshape" | "transpose");
        let kernels: Vec<String> = pipeline::kernels(&plan, &library)
            .iter()
            .map(|k| format!("{} {}", k.name, k.nodes.iter().filter(|n| !is_view(n)).count()))
            .collect();
        assert_eq!(kernels.join(", "), *wanted, "{what}");
    }
}

/// Weights are packed: a convolution of many weights and few places keeps its channels last.
#[test]
fn in_what_order_weights_lie_is_not_priced() {
    let library = stdlib::shipped();
    let ty = |shape: [i64; 4]| Type::new(DType::F32, shape.map(Extent::from).to_vec());
    let both = |v: i64| Attr::ints(vec![v, v]);
    let attrs = [both(2), both(1), both(1), both(1), both(0), Attr::int(1)];
    let w = ty([512, 256, 4, 4]);
    for (name, x, y, rows) in [
        ("conv_transpose", ty([1, 512, 4, 4]), ty([1, 256, 8, 8]), 2048.0),
        ("conv_transpose_channels_last", ty([1, 4, 4, 512]), ty([1, 8, 8, 256]), 64.0),
    ] {
        let call = library.find(name).expect("shipped");
        let work = Works::new(&library).of(call, &attrs, &[&x, &w], &[y]);
        assert_eq!(work.rows, rows, "{name}");
    }
}

/// Launches of a plan on the CPU backend, which must be the plan's kernels, no more and no fewer.
#[track_caller]
fn launched(what: &str, plan: &Plan, library: &Arc<Library>, inputs: &[Tensor]) {
    assert_eq!(faults(plan, library), [], "{what}");
    let watched = Cpu::new(2).watched(plan, library.clone()).expect("compiles");
    let launched = watched.kernels(inputs).expect("known shapes");
    assert_eq!(launched, plan.launches().collect::<Vec<_>>(), "{what}");
    assert_eq!(watched.run(inputs).expect("runs").len(), launched.len(), "{what}");
    let quiet = launched.len() + plan.kernels.iter().filter(|k| k.is_view()).count();
    let once = plan.memory.once.iter().filter(|o| **o).count();
    assert!(quiet + once >= plan.kernels.len(), "{what}: only views and constants are no launch");
}

#[test]
fn the_cpu_launches_the_kernels_of_the_plan() {
    let library = stdlib::shipped();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    let raw = mlc_onnx::read_onnx(&path).expect("reads");
    let program = mlc_onnx::import(raw, &library).expect("imports").program;
    let cpu = pipeline::target(&library, "cpu").expect("shipped");
    let inputs = random_inputs::inputs(&program, &library, 1).expect("known sizes");
    let read = pipeline::plan(&program, &library, &cpu).expect("a plan");
    launched("as read", &read, &library, &inputs);
    let found = pipeline::optimize(program, &library, &pipeline::Options::default());
    let found = found.expect("optimises").plan;
    launched("optimised", &found, &library, &inputs);
    let reference = Reference::default().compile(&read, library.clone()).expect("compiles");
    let fast = Cpu::new(1).compile(&found, library.clone()).expect("compiles");
    let (exact, fast) = (reference.run(&inputs).expect("runs"), fast.run(&inputs).expect("runs"));
    for (a, b) in exact[0].to_f64().into_iter().zip(fast[0].to_f64()) {
        assert!((a - b).abs() <= 1e-3 * (1.0 + a.abs()), "{a} and {b}");
    }
}

/// Models in floats of 16 bits: what they compute, and the kernels of the optimised plan on the CPU.
const HALVES: &[(&str, &str)] = &[
    (
        "def f(x: f16[4, 8], w: f16[8, 16], z: f16[16]) -> f16[4, 16]\n  = relu(x @ w + z)\n",
        "pointwise 1, pointwise 1, pointwise 1, gemm 5",
    ),
    // Without products each kernel converts what it loads and stores.
    ("def f(x: bf16[3, 5]) -> bf16[3, 5]\n  = softmax(x, axis=1)\n", "softmax 1"),
    ("def f(x: bf16[3, 5], w: bf16[5, 5]) -> bf16[3, 5]\n  = softmax(x @ w * 0.5, axis=1)\n", ""),
    // Rounds, whatever is between both casts.
    ("def f(x: f32[9]) -> f32[9]\n  = cast(cast(x, to=f16), to=f32) + 1.0\n", ""),
    ("def f(x: f32[9]) -> bf16[9]\n  = cast(cast(x, to=f16), to=bf16)\n", ""),
    ("def f(x: f16[9]) -> i64[9], f16[9]\n  = (cast(x * 3.0, to=i64), cast(x, to=f16))\n", ""),
    ("def f(x: f16[2, 3], y: f32[2, 3]) -> f32[2, 3]\n  = cast(x + x, to=f32) * y\n", ""),
];

#[test]
fn floats_of_16_bits_are_computed_in_32() {
    for (text, kernels) in HALVES {
        let (library, diags) = stdlib::with(&[("f.rules", *text)]);
        assert!(diags.is_empty(), "{text}: {}", stdlib::rendered(&library, &diags, false));
        let library = Arc::new(library);
        let program = rules_model::program(&library, "f").expect("a program");
        let inputs = random_inputs::inputs(&program, &library, 1).expect("known sizes");
        let truth = Reference::default().run_values(&program, &library, &inputs).expect("runs");
        let optimized =
            pipeline::optimize(program.clone(), &library, &pipeline::Options::default());
        let optimized = optimized.expect("optimises");
        assert_eq!(optimized.program.inputs, program.inputs, "{text}");
        let names = pipeline::kernels(&optimized.plan, &library);
        let names: Vec<String> =
            names.iter().map(|k| format!("{} {}", k.name, k.nodes.len())).collect();
        assert!(kernels.is_empty() || names.join(", ") == *kernels, "{text}: {names:?}");
        let got = Cpu::new(1).compile(&optimized.plan, library.clone()).expect("compiles");
        let got = got.run(&inputs).expect("runs");
        for (got, truth) in got.iter().zip(&truth) {
            assert_eq!((got.dtype(), got.shape()), (truth.dtype(), truth.shape()), "{text}");
            // A result in 16 bits may be rounded to the other neighbour.
            let unit = if got.dtype().is_half() { 2.0 * got.dtype().unit_roundoff() } else { 1e-6 };
            for (a, b) in got.to_f64().into_iter().zip(truth.to_f64()) {
                assert!((a - b).abs() <= unit * b.abs(), "{text}: {a}, the reference says {b}");
            }
        }
    }
}

#[test]
fn plans_of_all_targets_are_sound() {
    for (what, text, _) in PLANS {
        let (library, _) = stdlib::with(&[("f.rules", *text)]);
        let library = Arc::new(library);
        let program = rules_model::program(&library, "f").expect("a program");
        for target in &library.targets {
            let plan = pipeline::plan(&program, &library, target).expect("a plan");
            assert_eq!(faults(&plan, &library), [], "{what} on {}", target.name);
        }
    }
}

/// The plan of a program's applications whose kernels are those of these places, joined.
fn joined(program: &Program, library: &Library, groups: &[&[usize]]) -> Plan {
    let single = Plan::of_nodes(program.clone(), library, "own").kernels;
    let read: Vec<Value> = program.outputs.iter().map(|o| o.1).collect();
    let kernels = groups.iter().map(|group| {
        let parts: Vec<&Kernel> = group.iter().map(|&k| &single[k]).collect();
        let nodes: Vec<NodeId> = parts.iter().flat_map(|k| k.nodes.clone()).collect();
        let own = |v: &&Value| nodes.contains(&v.node);
        let inputs: BTreeSet<Value> =
            parts.iter().flat_map(|k| &k.inputs).filter(|v| !own(v)).copied().collect();
        let outside = |v: &Value| {
            let readers = single.iter().filter(|k| k.inputs.contains(v));
            read.contains(v) || readers.flat_map(|k| &k.nodes).any(|n| !nodes.contains(n))
        };
        let outputs = parts.iter().flat_map(|k| &k.outputs).filter(|v| outside(v)).copied();
        let (anchors, epilogue) = (nodes[..1].to_vec(), nodes[1..].to_vec());
        let (inputs, outputs) = (inputs.into_iter().collect(), outputs.collect());
        Kernel { nodes, anchors, epilogue, inputs, outputs, ..single[group[0]].clone() }
    });
    Plan::new(program.clone(), library, kernels.collect(), 0.0)
}

#[test]
fn what_is_written_keeps_the_kernels_of_the_plan() {
    let text =
        "def f(x: f32[4, 8], w: f32[8, 16], z: f32[4, 16]) -> f32[4, 16]\n  = relu(x @ w + z)\n";
    let (library, _) = stdlib::with(&[("f.rules", text)]);
    let program = rules_model::program(&library, "f").expect("a program");
    let info = ModelInfo { opset_imports: [(String::new(), 18)].into(), ..ModelInfo::default() };
    // The product, the sum and the activation: `Gemm` computes the first two, and is no part of a kernel and another.
    let cases: [(&[&[usize]], &[&str]); 5] = [
        (&[&[0], &[1], &[2]], &["Gemm", "Relu"]),
        (&[&[0, 1], &[2]], &["Gemm", "Relu"]),
        (&[&[0, 1, 2]], &["Gemm", "Relu"]),
        (&[&[0], &[1, 2]], &["MatMul", "Add", "Relu"]),
        (&[&[0, 1]], &[]),
    ];
    for (groups, wanted) in cases {
        let plan = joined(&program, &library, groups);
        match export_plan(&plan, &library, &info, 18) {
            Ok(raw) => {
                let names: Vec<&str> = raw.graph.nodes.iter().map(|n| &*n.op_type).collect();
                assert_eq!(names, wanted, "{groups:?}");
                assert_eq!(mlc_onnx::faults(&plan, &library, &info, 18), [], "{groups:?}");
            }
            Err(e) => assert!(wanted.is_empty(), "{groups:?}: {e}"),
        }
    }
    // A loop holds nothing together.
    let mut plan = joined(&program, &library, &[&[0], &[1, 2]]);
    let looped = &mut plan.kernels[1];
    looped.anchors.clear();
    looped.epilogue = looped.nodes.clone();
    let raw = export_plan(&plan, &library, &info, 18).expect("is written");
    let names: Vec<&str> = raw.graph.nodes.iter().map(|n| &*n.op_type).collect();
    assert_eq!(names, ["Gemm", "Relu"]);
}

#[test]
fn kernels_without_a_form_in_onnx_are_named() {
    let text = "def f(x: f32[4]) -> f32[4]\n  = erf(x) + asinh(abs(x))\n";
    let (library, _) = stdlib::with(&[("f.rules", text)]);
    let program = rules_model::program(&library, "f").expect("a program");
    let standard = pipeline::target(&library, "standard").expect("shipped");
    let plan = pipeline::plan(&program, &library, &standard).expect("a plan");
    let info = ModelInfo { opset_imports: [(String::new(), 8)].into(), ..ModelInfo::default() };
    let faults: Vec<String> =
        mlc_onnx::faults(&plan, &library, &info, 8).iter().map(|f| f.to_string()).collect();
    assert_eq!(
        faults,
        [
            "kernel 1 (`asinh`): `asinh` cannot be written at operator set 8",
            "kernel 2 (`Erf`): `erf` cannot be written at operator set 8"
        ]
    );
    let e = export_plan(&plan, &library, &info, 8).expect_err("is not written");
    assert_eq!(e.to_string(), faults[0]);
    assert!(e.help().is_some_and(|h| h.contains("newer operator set")));
}
