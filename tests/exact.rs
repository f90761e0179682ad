//! `--fp exact`: the optimised program gives the bits of the program as read, on the CPU backend.

use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::Limits;
use mlc_onnx::{import, read_onnx};
use mlc_rewrite::pipeline::{self, Fp, Options};
use mlc_rewrite::stdlib;
use mlc_verify::random_inputs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn options() -> Options {
    Options {
        fp: Fp::Exact,
        limits: Limits {
            nodes: 8_000,
            rounds: 6,
            time: Duration::from_secs(60),
            threads: 1,
            ..Limits::default()
        },
        self_check: false,
        ..Options::default()
    }
}

/// Runs both plans on the same inputs and compares all bits.
#[track_caller]
fn same_bits(name: &str, program: Program, library: &Arc<Library>) {
    let inputs = random_inputs::inputs(&program, library, 3).expect("known sizes");
    let target = pipeline::target(library, "cpu").expect("the target");
    let plain = pipeline::plan(&program, library, &target).expect("plans");
    let chosen = pipeline::optimize(program, library, &options()).expect("optimises").plan;
    let run = |plan| -> Vec<Tensor> {
        Cpu::new(2).compile(plan, library.clone()).expect("compiles").run(&inputs).expect("runs")
    };
    for (i, (a, b)) in run(&plain).iter().zip(&run(&chosen)).enumerate() {
        assert_eq!(a.shape(), b.shape(), "{name}: output {i}");
        let differ =
            a.to_f64().iter().zip(b.to_f64()).position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(differ, None, "{name}: output {i} differs first at this element");
        assert!(a.to_f64().iter().any(|v| *v != 0.0), "{name}: output {i} has values");
    }
}

/// Each is a program of its own: the last definition of a text.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "batchnorm after a convolution",
        "def m(x: f32[1, 3, 9, 9], w: f32[4, 3, 3, 3], g: f32[4], z: f32[4], mu: f32[4], var: f32[4]) -> f32[1, 4, 9, 9]
           = relu(batchnorm(conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1], group=1), g, z, mu, abs(var) + 0.3, eps=0.00001))",
    ),
    (
        "mean over positions",
        "def m(x: f32[2, 3, 13, 13]) -> f32[2, 3]
           = mean(x * 0.3 + x, axes=[2, 3])",
    ),
    (
        "a window as large as the image",
        "def m(x: f32[2, 3, 13, 13]) -> f32[2, 3, 1, 1]
           = sumpool(x, window=[13, 13], stride=[1, 1], low=[0, 0], high=[0, 0], dilation=[1, 1])",
    ),
    (
        "attention written out",
        "def m(q: f32[2, 7, 8], k: f32[2, 8, 300], v: f32[2, 300, 8]) -> f32[2, 7, 8]
           = softmax(0.35 * (q @ k), axis=2) @ v",
    ),
    (
        "layer normalisation written out",
        "def m(x: f32[5, 70], g: f32[70], z: f32[70]) -> f32[5, 70]
           let c = x - broadcast(mean(x, axes=[1]), map=[0], shape=[5, 70])
           = c * broadcast(rsqrt(mean(c * c, axes=[1]) + 0.00001), map=[0], shape=[5, 70]) * broadcast(g, map=[1], shape=[5, 70]) + broadcast(z, map=[1], shape=[5, 70])",
    ),
    (
        "products of few and of many rows with one factor",
        "def m(x: f32[1, 600], y: f32[20, 600], w: f32[600, 40]) -> f32[21, 40]
           = concat(x @ w, y @ w, axis=0)",
    ),
];

#[test]
fn small_programs() {
    for (name, text) in PROGRAMS {
        let library = stdlib::sound(&[("case.rules", text)], false).expect("sound");
        let program =
            mlc_rewrite::model::rules_model::program(&library, "m").expect("has an entry");
        same_bits(name, program, &library);
    }
}

#[test]
fn the_shipped_model() {
    let library = stdlib::shipped();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    let imported = import(read_onnx(&path).expect("reads"), &library).expect("imports");
    same_bits("squeezenet", imported.program, &library);
}
