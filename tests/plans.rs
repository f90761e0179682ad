//! Which kernels a program becomes on the CPU.

use mlc_rewrite::{entry, pipeline, stdlib};
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
        let shipped = stdlib::TEXTS.iter().map(|(n, t)| (n.to_string(), t.to_string()));
        let own = ("f.rules".to_string(), text.to_string());
        let (library, diags) = mlc_dsl::check::library(&shipped.chain([own]).collect::<Vec<_>>());
        assert!(diags.is_empty(), "{what}: {}", stdlib::rendered(&library, &diags, false));
        let library = Arc::new(library);
        let program = entry::program(&library, "f").expect("a program");
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
