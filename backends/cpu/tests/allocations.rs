//! A run after the first one allocates nothing but its results: kernels work in memory that sessions and threads keep.
//!
//! On one thread, whose allocations are counted. Other threads work in memory of their own, which each of them allocates once.

#[path = "kernels/support.rs"]
#[allow(dead_code, reason = "the tests of the kernels use the rest")]
mod support;

use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Attr, DType, Value};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{Case, library, plan};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

fn count() {
    // A thread that ends may allocate after its counter is gone.
    let _ = COUNT.try_with(|c| c.set(c.get() + 1));
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a case computes.
type Build = fn(&mut Case<'_>) -> Vec<Value>;

/// A product with bias, an activation and a residual.
fn dense(c: &mut Case<'_>, x: Value, n: i64, k: i64) -> Value {
    let w = c.constant(DType::F32, &[k as usize, k as usize]);
    let b = c.constant(DType::F32, &[k as usize]);
    let b = c.broadcast(b, &[1], &[n as usize, k as usize]);
    let y = c.apply("matmul", &[], &[x, w]);
    let y = c.apply("add", &[], &[y, b]);
    let y = c.apply("tanh", &[], &[y]);
    c.apply("add", &[], &[y, x])
}

fn images(c: &mut Case<'_>, filters: &[usize], group: i64) -> Vec<Value> {
    let x = c.input(DType::F32, &[2, 8, 12, 12]);
    let w = c.constant(DType::F32, filters);
    let edge = filters[2] as i64 / 2;
    let pairs = [("stride", 1), ("low", edge), ("high", edge), ("dilation", 1)];
    let mut attrs = pairs.map(|(name, n)| (name, Attr::ints([n, n]))).to_vec();
    attrs.push(("group", Attr::int(group)));
    let y = c.apply("conv", &attrs, &[x, w]);
    vec![c.apply("relu", &[], &[y])]
}

fn recurrent(c: &mut Case<'_>, op: &str, gates: usize, states: usize) -> Vec<Value> {
    let (s, b, i, h) = (5, 2, 6, 8);
    let x = c.input(DType::F32, &[s, b, i]);
    let mut args = vec![x];
    for shape in [vec![2, gates * h, i], vec![2, gates * h, h], vec![2, 2 * gates * h]] {
        args.push(c.constant(DType::F32, &shape));
    }
    (0..states).for_each(|_| args.push(c.constant(DType::F32, &[2, b, h])));
    let way = ("direction", Attr::Str("bidirectional".into()));
    c.outputs(op, &[way, ("linear_before_reset", Attr::int(0))], &args)
}

const CASES: &[(&str, Build)] = &[
    ("a product", |c| {
        let x = c.input(DType::F32, &[24, 32]);
        vec![dense(c, x, 24, 32)]
    }),
    ("many products and two results", |c| {
        let x = c.input(DType::F32, &[24, 32]);
        let mut y = x;
        for _ in 0..12 {
            y = dense(c, y, 24, 32);
        }
        let s = c.apply("softmax", &[("axis", Attr::int(1))], &[y]);
        vec![s, y]
    }),
    ("a vector and a matrix", |c| {
        let x = c.input(DType::F32, &[1, 64]);
        let w = c.input(DType::F32, &[64, 200]);
        vec![c.apply("matmul", &[], &[x, w])]
    }),
    ("a reduction of products", |c| {
        let x = c.input(DType::F32, &[40, 50]);
        let y = c.input(DType::F32, &[40, 50]);
        let z = c.apply("mul", &[], &[x, y]);
        vec![c.apply("sum", &[("axes", Attr::ints([1]))], &[z])]
    }),
    ("a sum of twelve", |c| {
        let mut y = c.input(DType::F32, &[40, 50]);
        for _ in 0..11 {
            let x = c.input(DType::F32, &[40, 50]);
            y = c.apply("add", &[], &[y, x]);
        }
        vec![y]
    }),
    ("twenty parts side by side", |c| {
        let parts: Vec<Value> = (0..20).map(|_| c.input(DType::F32, &[4, 6])).collect();
        let mut all = parts[0];
        for p in &parts[1..] {
            all = c.apply("concat", &[("axis", Attr::int(1))], &[all, *p]);
        }
        vec![all]
    }),
    ("a transpose", |c| {
        let x = c.input(DType::F32, &[6, 20, 30]);
        let y = c.apply("transpose", &[("perm", Attr::ints([0, 2, 1]))], &[x]);
        vec![c.apply("relu", &[], &[y]), c.apply("exp", &[], &[x])]
    }),
    ("rows by their numbers", |c| {
        let x = c.input(DType::F32, &[20, 8]);
        let rows = mlc_dsl::ir::Tensor::from_f64(DType::I64, vec![5], &[3.0, 0.0, 19.0, 7.0, 3.0]);
        let rows = c.given(rows);
        vec![c.apply("gather", &[("axis", Attr::int(0))], &[x, rows])]
    }),
    ("half precision", |c| {
        let x = c.input(DType::F16, &[24, 32]);
        let w = c.constant(DType::F16, &[32, 16]);
        let y = c.apply("matmul", &[], &[x, w]);
        vec![c.apply("softmax", &[("axis", Attr::int(1))], &[y])]
    }),
    ("a convolution", |c| images(c, &[16, 8, 3, 3], 1)),
    ("a pointwise convolution", |c| images(c, &[16, 8, 1, 1], 1)),
    ("a convolution of each channel", |c| images(c, &[8, 1, 3, 3], 8)),
    ("an LSTM", |c| recurrent(c, "lstm", 4, 2)),
    ("a GRU", |c| recurrent(c, "gru", 3, 1)),
];

#[test]
fn later_runs_allocate_only_their_results() {
    let library = library();
    let mut more = vec![];
    for (name, build) in CASES {
        let mut case = Case::new(&library);
        let outputs = build(&mut case);
        let (program, inputs) = case.finish(&outputs);
        let ready = Cpu::new(1).compile(&plan(&program), library.clone());
        let ready = ready.unwrap_or_else(|e| panic!("{name}: {e}"));
        let run = || {
            let before = COUNT.get();
            let results = ready.run(&inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
            let count = COUNT.get() - before;
            drop(results);
            count
        };
        let first = run();
        run();
        // The list of the results; of each its owner and its shape.
        let wanted = 1 + 2 * program.outputs.len();
        assert!(first > wanted, "{name}: the first run allocates {first} times");
        let later = run();
        if later != wanted {
            more.push(format!("{name}: {later} allocations, {wanted} expected"));
        }
    }
    assert!(more.is_empty(), "{}", more.join("\n"));
}
