//! Times of the stages that a change is most likely to slow down: saturation, extraction, a whole optimisation, and products on the CPU.
//!
//! `cargo bench`, or `cargo bench -- saturation`. Claims beside other runtimes are the Python scripts of this folder.

use divan::{Bencher, black_box};
use mlc_backends::arrays::AnyArray;
use mlc_backends::ndarray::Array2;
use mlc_explore::{Explored, Limits, explore};
use mlc_extract::GreedyDag;
use mlc_extract::cost::target::TargetPrices;
use mlc_rewrite::{Device, Model, Optimizer, Session};

/// The model that the examples ship.
fn squeezenet() -> Model {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/squeezenet1_1.onnx");
    Model::read(path).expect("the example is read")
}

/// A block of a transformer, as its author writes it.
fn block() -> Model {
    let text = "def block(x: f32[64, 128], wq: f32[128, 128], wk: f32[128, 128], wv: f32[128, 128], g: f32[128]) -> y: f32[64, 128]
  let n = rmsnorm(x, g, eps=1e-5)
  let scores = (n @ wq) @ transpose(n @ wk, perm=[1, 0])
  = x + softmax(scores, axis=1) @ (n @ wv)
";
    Model::from_rules(text).expect("the block is read")
}

/// The e-graph of a model with every law.
fn saturated(model: &Model) -> Explored {
    let laws: Vec<u32> = (0..model.library().laws.len() as u32).collect();
    explore(model.library().clone(), model.program().clone(), &laws, &Limits::default())
}

#[divan::bench(args = ["block", "squeezenet"], sample_count = 5, sample_size = 1)]
fn saturation(bencher: Bencher<'_, '_>, name: &str) {
    let model = if name == "block" { block() } else { squeezenet() };
    bencher.bench_local(|| black_box(saturated(&model).size()));
}

#[divan::bench(args = ["block", "squeezenet"], sample_count = 5, sample_size = 1)]
fn extraction(bencher: Bencher<'_, '_>, name: &str) {
    let model = if name == "block" { block() } else { squeezenet() };
    let cpu = model.library().target("cpu").expect("the target is shipped");
    let prices = TargetPrices::new(model.library(), cpu, None);
    bencher.with_inputs(|| saturated(&model)).bench_local_values(|mut e| {
        e.extract(&prices, &GreedyDag::default()).expect("a program").cost
    });
}

#[divan::bench(args = ["block", "squeezenet"], sample_count = 3, sample_size = 1)]
fn optimize(bencher: Bencher<'_, '_>, name: &str) {
    let model = if name == "block" { block() } else { squeezenet() };
    let optimizer = Optimizer::new().threads(1).check(false);
    bencher.bench_local(|| {
        black_box(optimizer.optimize(&model).expect("optimises").report().cost_after)
    });
}

/// A product of a matrix of so many rows with 512 × 512 constants.
#[divan::bench(args = [1, 8, 64, 512])]
fn product(bencher: Bencher<'_, '_>, rows: usize) {
    let text = "def product(x: f32[m, 512], w: f32[512, 512]) -> y: f32[m, 512]\n  = x @ w\n";
    let model = Model::from_rules(text).expect("the product is read");
    let session: Session = model.session_on(&Device::cpu().threads(1)).expect("a session");
    let x: AnyArray = Array2::from_elem((rows, 512), 0.5f32).into();
    let w: AnyArray = Array2::from_elem((512, 512), 0.25f32).into();
    bencher
        .counter(divan::counter::ItemsCount::new(2 * rows * 512 * 512))
        .bench_local(|| session.run([("x", x.clone()), ("w", w.clone())]).expect("runs"));
}

fn main() {
    divan::main();
}
