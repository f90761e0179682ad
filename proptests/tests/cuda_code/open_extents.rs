//! Plans with open extents through one session each, run by the emulator against the reference interpreter: at lengths of one, odd ones,
//! none and many. Extents are arguments of functions, so that a new length loads none.

use mlc_backends::{Backend, BackendError, Executable};
use mlc_cuda::Cuda;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::Library;
use mlc_dsl::plan::Plan;
use mlc_extract::kernels::selection::select_kernels;
use mlc_fuzz::input_values::{Style, inputs};
use mlc_fuzz::oracle::hold_run;
use mlc_proptests::checked_options;
use mlc_proptests::emulated::Emulated;
use mlc_rewrite::Model;
use mlc_rewrite::pipeline::{Options, optimize};
use std::sync::Arc;

/// Pointwise operators, and elements that are moved.
pub const MOVEMENT: [&str; 10] = [
    "def f(x: f32[n, 8], y: f32[8]) -> f32[n, 8] = relu(x * 2.0 + y)",
    "def f(x: f32[n, 8], y: f32[n]) -> f32[n, 8] = tanh(x) - broadcast(y, map=[0], shape=[n, 8])",
    "def f(w: f32[11, 6], i: i64[n]) -> f32[n, 6] = gather(w, i, axis=0)",
    "def f(w: f32[n, 6], i: i64[4]) -> f32[4, 6] = gather(w, i, axis=0)",
    "def f(x: f32[n, 5]) -> f32[n + 3, 5] = pad(x, 1.5, low=[1, 0], high=[2, 0])",
    "def f(x: f16[3, n, 8]) -> f16[n, 3, 8] = transpose(x, perm=[1, 0, 2])",
    "def f(x: f32[n, 12]) -> f32[n, 3, 4] = reshape(x, shape=[n, 3, 4])",
    "def f(x: f32[2, n, 4]) -> f32[2*n, 4] = reshape(x, shape=[2*n, 4])",
    "def f(x: f32[2, n, 4], y: f32[2, 3, 4]) -> f32[2, n + 3, 4] = concat(x, y, axis=1)",
    "def f(x: i32[n, 5]) -> i64[n, 5] = cast(x, to=i64)",
];

/// Reductions, and what has rows.
pub const ROWS: [&str; 9] = [
    "def f(x: f32[2, n]) -> f32[2, n] = softmax(x, axis=1)",
    "def f(x: f32[n, 48]) -> f32[n, 48] = softmax(x, axis=1)",
    "def f(x: f32[3, n, 4]) -> f32[3, n] = sum(x, axes=[2])",
    "def f(x: f32[3, n]) -> f32[3] = max(x, axes=[1])",
    "def f(x: f32[3, n, 40]) -> f32[3, 40] = mean(x, axes=[1])",
    "def f(x: f32[n, 64]) -> f32[] = sum(x, axes=[0, 1])",
    "def f(x: f32[n, 40]) -> f32[n, 40] = x - broadcast(mean(x, axes=[1]), map=[0], shape=[n, 40])",
    "def f(x: f32[n, m]) -> f32[n, m] = x - broadcast(mean(x, axes=[0]), map=[1], shape=[n, m])",
    "def f(x: i64[n, 6]) -> i64[6] = sum(x * x, axes=[0])",
];

/// Running reductions along an open axis and beside one, in both directions.
pub const RUNNING: [&str; 9] = [
    "def f(x: f32[3, n]) -> f32[3, n] = cumsum(x, axis=1)",
    "def f(x: f64[5, n]) -> f64[5, n] = cumsum(x, axis=1, exclusive=true)",
    "def f(x: i32[2, n]) -> i32[2, n] = cumsum(x, axis=1, reverse=true)",
    "def f(x: f32[n]) -> f32[n] = cumsum(exp(-abs(x)), axis=0, exclusive=true, reverse=true)",
    "def f(x: f16[n, 9]) -> f16[n, 9] = cumsum(x, axis=0)",
    "def f(x: f32[n, 9]) -> f32[n, 9] = tanh(cumsum(x, axis=0, exclusive=true, reverse=true))",
    "def f(x: f32[n, 70]) -> f32[n, 70] = cumsum(softmax(x, axis=1), axis=1)",
    "def f(x: u8[3, n]) -> u8[3, n] = cumsum(x, axis=1)",
    "def f(x: f32[3, n]) -> f32[3, n] = cumprod(x * 0.125, axis=1)",
];

/// Convolutions along one axis whose channels are apart.
pub const DIRECT: [&str; 3] = [
    "def f(x: f32[2, 8, n], w: f32[8, 1, 4], b: f32[8]) -> f32[2, 8, n]
       = tanh(conv(x, w, stride=[1], low=[3], high=[0], dilation=[1], group=8)
           + broadcast(b, map=[1], shape=[2, 8, n]))",
    "def f(x: f16[2, 6, m], w: f16[6, 1, 31]) -> f16[2, 6, m]
       = conv(x, w, stride=[1], low=[15], high=[15], dilation=[1], group=6)",
    "def f(x: f32[1, 4, n], w: f32[4, 1, 3]) -> f32[1, 4, n]
       = conv(exp(x), w, stride=[1], low=[2], high=[2], dilation=[2], group=4)",
];

/// Products of two factors, with what precedes and follows them.
pub const PRODUCTS: [&str; 9] = [
    "def f(x: f32[2, n, 32], w: f32[32, 48], v: f32[48, 32], b: f32[32]) -> f32[2, n, 32]
       = softmax(x + tanh(x @ w) @ v, axis=2) * b",
    "def f(x: f32[n, 64], w: f32[64, 40], b: f32[40]) -> f32[n, 40] = relu(x @ w + b)",
    "def f(x: f32[2, n, 64], w: f32[64, 48]) -> f32[2, n, 48] = x @ w",
    "def f(x: f16[n, 64], w: f16[64, 48]) -> f16[n, 48] = x @ w",
    "def f(x: f32[n, 20], y: f32[n, 12]) -> f32[20, 12] = transpose(x, perm=[1, 0]) @ y",
    "def f(x: f32[2, n, 16], y: f32[2, m, 16]) -> f32[2, n, m] = x @ transpose(y, perm=[0, 2, 1])",
    "def f(x: f32[n, 37], w: f32[37, 41]) -> f32[n, 41] = tanh(x) @ w",
    "def f(x: bf16[n, 24], w: bf16[40, 24]) -> bf16[n, 40] = x @ transpose(w, perm=[1, 0])",
    "def f(x: f64[n, 16], w: f64[16, 24]) -> f64[n, 24] = x @ w",
];

/// A plan's session on the emulator.
pub struct Session {
    program: Program,
    library: Arc<Library>,
    pub emulated: Arc<Emulated>,
    executable: Box<dyn Executable>,
}

impl Session {
    pub fn new(definition: &str) -> Session {
        let model = Model::from_rules(definition).unwrap_or_else(|e| panic!("{definition}: {e:#}"));
        let (program, library) = (model.program().clone(), model.library().clone());
        let target = library.target("cuda").expect("shipped");
        let plan = select_kernels(program.clone(), &library, target);
        Session::of(definition, program, library, &plan)
    }

    /// Of the definition as the optimiser leaves it.
    fn optimised(definition: &str) -> Session {
        Session::optimised_with(definition, "")
    }

    /// The same where the results of this operator are outputs, too.
    pub fn optimised_with(definition: &str, operator: &str) -> Session {
        let model = Model::from_rules(definition).unwrap_or_else(|e| panic!("{definition}: {e:#}"));
        let (mut program, library) = (model.program().clone(), model.library().clone());
        for (i, node) in program.nodes.iter().enumerate() {
            if matches!(&node.kind, NodeKind::Apply(call, _) if &*library.call(*call).name == operator)
            {
                let value = Value { node: NodeId(i as u32), output: 0 };
                program.outputs.push((format!("{operator}{i}"), value));
            }
        }
        let options = Options { target: "cuda".into(), self_check: false, ..checked_options() };
        let optimised = optimize(program.clone(), &library, &options);
        let plan = optimised.unwrap_or_else(|e| panic!("{definition}: {e:#}")).plan;
        Session::of(definition, program, library, &plan)
    }

    fn of(definition: &str, program: Program, library: Arc<Library>, plan: &Plan) -> Session {
        let emulated = Arc::new(Emulated::default());
        let executable = Cuda::new(emulated.clone()).compile(plan, library.clone());
        let executable = executable.unwrap_or_else(|e| panic!("{definition}: {e}"));
        Session { program, library, emulated, executable }
    }

    /// The program where `n` is so much, and `m` three more.
    fn bound(&self, n: i64) -> Program {
        self.program.bound(&|s| Some(if s == "m" { n + 3 } else { n }))
    }

    /// What the session says of how it runs.
    pub fn notes(&self) -> Vec<String> {
        self.executable.notes()
    }

    /// A run at such extents, held against nothing.
    pub fn run(&self, n: i64, style: Style) -> Result<Vec<Tensor>, BackendError> {
        let values = inputs(&self.bound(n), style, 1).expect("all extents are bound");
        self.executable.run(&values)
    }

    /// Holds a run where `n` is so much, and `m` three more; the functions that it loads.
    pub fn hold(&self, n: i64, style: Style) -> Vec<String> {
        self.hold_texts(n, style).into_iter().map(|f| f.0).collect()
    }

    /// The same with the functions' texts.
    pub fn hold_texts(&self, n: i64, style: Style) -> Vec<(String, String)> {
        let bound = self.bound(n);
        let values = inputs(&bound, style, 1).expect("all extents are bound");
        let run = |_: &Program, i: &[Tensor]| self.executable.run(i).map_err(|e| e.to_string());
        let held = hold_run(&self.library, &bound, style, &values, &run);
        held.unwrap_or_else(|m| panic!("{n}, {style:?}: {m}"));
        self.emulated.loaded()
    }
}

/// Lengths of one axis, the first one that of the first run.
const LENGTHS: [i64; 7] = [7, 1, 33, 0, 300, 64, 1500];
/// Those of products, of which the emulator takes long.
const SHORT: [i64; 6] = [7, 1, 33, 0, 65, 130];

/// Holds definitions with a symbol `n` at all lengths: later lengths load so many functions at most, those of other bands of lengths.
fn check(definitions: &[&str], lengths: &[i64], bands: usize) {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    for definition in definitions {
        println!("{definition}");
        let session = Session::new(definition);
        let first = session.hold(lengths[0], Style::Normal);
        let mut later: Vec<(i64, String)> = vec![];
        for &n in &lengths[1..] {
            let fresh = session.hold(n, Style::Normal);
            later.extend(fresh.into_iter().map(|name| (n, name)));
        }
        // What ran at every length is loaded, whichever runs next.
        for &n in lengths {
            assert_eq!(session.hold(n, Style::Whole), [""; 0], "{definition}, {n}");
        }
        assert!(later.len() <= bands * first.len(), "{definition}: {first:?}, {later:?}");
        let notes = session.executable.notes();
        assert!(
            notes.iter().all(|n| n.starts_with("launches one by one")),
            "{definition}: {notes:?}"
        );
        drop(session.executable);
        assert_eq!(session.emulated.left(), 0, "memory or modules are left on the device");
    }
}

#[test]
fn elements_and_movement() {
    check(&MOVEMENT, &LENGTHS, 0);
}

#[test]
fn rows_and_reductions() {
    check(&ROWS, &LENGTHS, 1);
}

#[test]
fn running_reductions() {
    check(&RUNNING, &LENGTHS, 2);
}

#[test]
fn convolutions_of_channels_apart() {
    check(&DIRECT, &LENGTHS, 0);
}

#[test]
fn products() {
    check(&PRODUCTS, &SHORT, 2);
}

/// Kernels that are compiled for each set of extents: a definition, and what the note says of it.
const NOTED: [(&str, &str); 4] = [
    (
        "def f(q: f32[2, 5, n], k: f32[2, 9, n], v: f32[2, 9, 16]) -> f32[2, 5, 16] = attention(q, k, v, scale=0.25)",
        "the head size of attention is open",
    ),
    (
        "def f(q: f64[2, n, 16], k: f64[2, m, 16], v: f64[2, m, 16]) -> f64[2, n, 16] = attention(q, k, v, scale=0.25)",
        "what lies between two products",
    ),
    (
        "def f(x: f32[n, 16, 6, 8], w: f32[24, 16, 3, 3]) -> f32[n, 24, 6, 8]
           = conv(x, w, stride=[1, 1], low=[1, 1], high=[1, 1], dilation=[1, 1])",
        "a convolution's tiles",
    ),
    ("def f(x: f32[n, 4, 4]) -> f32[n] = det(x)", "`det` is a procedure"),
];

#[test]
fn what_is_compiled_for_each_set_of_extents_is_noted() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    for (definition, why) in NOTED {
        let session = Session::new(definition);
        for n in [5, 9] {
            session.hold(n, Style::Normal);
        }
        let notes = session.executable.notes();
        let told = notes.iter().find(|n| n.contains("is compiled for each set of extents: "));
        assert!(told.is_some_and(|n| n.contains(why)), "{definition}: {notes:?}");
    }
}

/// A layer of a transformer's encoder.
const ENCODER: &str = "def f(
  x: f32[2, n, 32], wq: f32[32, 32], wk: f32[32, 32], wv: f32[32, 32], wo: f32[32, 32],
  w: f32[32, 64], v: f32[64, 32], g: f32[32], z: f32[32]
) -> f32[2, n, 32]
  let q = transpose(reshape(x @ wq, shape=[2, n, 4, 8]), perm=[0, 2, 1, 3])
  let k = transpose(reshape(x @ wk, shape=[2, n, 4, 8]), perm=[0, 2, 1, 3])
  let u = transpose(reshape(x @ wv, shape=[2, n, 4, 8]), perm=[0, 2, 1, 3])
  let a = attention(q, k, u, scale=0.25)
  let m = reshape(transpose(a, perm=[0, 2, 1, 3]), shape=[2, n, 32])
  let y = layernorm(x + m @ wo, g, z, eps=0.00001)
  = layernorm(y + gelu(y @ w) @ v, g, z, eps=0.00001)
";

#[test]
fn an_optimised_encoder_loads_nothing_at_a_new_length_of_its_band() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let session = Session::optimised(ENCODER);
    assert!(session.hold(7, Style::Normal).len() > 1);
    for n in [6, 5, 8] {
        assert_eq!(session.hold(n, Style::Normal), [""; 0], "{n}");
    }
    // Products and attention have other tiles where they are much larger.
    for (name, text) in session.hold_texts(33, Style::Normal) {
        let is_expected = text.contains("Kernel `attention`") || text.contains("Kernel `gemm`");
        assert!(is_expected, "{name} of\n{text}");
    }
    for n in [34, 64] {
        assert_eq!(session.hold(n, Style::Normal), [""; 0], "{n}");
    }
}

#[test]
fn what_depends_on_no_length_is_loaded_once() {
    if !mlc_cuda_emulator::available() {
        println!("skipped: there is no C++ compiler");
        return;
    }
    let definition = "def f(x: f32[n, 16], a: f32[16, 24], b: f32[24, 16]) -> f32[n, 16]
        = cumsum(x @ tanh(a @ b), axis=0)";
    let session = Session::new(definition);
    assert!(session.hold(40, Style::Normal).len() > 1);
    for n in [41, 64, 33, 40] {
        assert_eq!(session.hold(n, Style::Normal), [""; 0], "{n}");
    }
}
