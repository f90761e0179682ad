//! Whole programs: fusion, symbols, reuse, errors, threads.

use super::support::*;
use mlc_backends::{Backend, BackendError};
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Attr, DType, Extent, Tensor, Type, Value};
use mlc_extract::kernels::selection::select_kernels;

fn linear(c: &mut Case<'_>, x: Value, out: usize) -> Value {
    let shape = c.shape(x);
    let (rank, k) = (shape.len(), shape[shape.len() - 1]);
    let w = c.constant(DType::F32, &[k, out]);
    let b = c.constant(DType::F32, &[out]);
    let wide = [&shape[..rank - 2], &[k, out]].concat();
    let map: Vec<i64> = (rank as i64 - 2..rank as i64).collect();
    let w = c.broadcast(w, &map, &wide);
    let y = c.apply("matmul", &[], &[x, w]);
    let shape = c.shape(y);
    let b = c.broadcast(b, &[rank as i64 - 1], &shape);
    c.apply("add", &[], &[y, b])
}

fn scaled(c: &mut Case<'_>, x: Value, by: f64) -> Value {
    let s = c.builder.constant(Tensor::from_f64(DType::F32, vec![], &[by]));
    let shape = c.shape(x);
    let s = c.broadcast(s, &[], &shape);
    c.apply("mul", &[], &[x, s])
}

/// One transformer block.
fn block(c: &mut Case<'_>, x: Value, heads: usize) -> Value {
    let shape = c.shape(x);
    let (b, s, d) = (shape[0] as i64, shape[1] as i64, shape[2] as i64);
    let (h, e) = (heads as i64, d / heads as i64);
    let split = |c: &mut Case<'_>, v: Value, perm: [i64; 4]| {
        let v = c.apply("reshape", &[("shape", Attr::ints([b, s, h, e]))], &[v]);
        c.apply("transpose", &[("perm", Attr::ints(perm))], &[v])
    };
    let (q, k, v) = (linear(c, x, d as usize), linear(c, x, d as usize), linear(c, x, d as usize));
    let (q, k, v) =
        (split(c, q, [0, 2, 1, 3]), split(c, k, [0, 2, 3, 1]), split(c, v, [0, 2, 1, 3]));
    let w = c.apply("matmul", &[], &[q, k]);
    let w = scaled(c, w, 1.0 / (e as f64).sqrt());
    let w = c.apply("softmax", &[("axis", Attr::int(3))], &[w]);
    let y = c.apply("matmul", &[], &[w, v]);
    let y = c.apply("transpose", &[("perm", Attr::ints([0, 2, 1, 3]))], &[y]);
    let y = c.apply("reshape", &[("shape", Attr::ints([b, s, d]))], &[y]);
    let y = linear(c, y, d as usize);
    let y = c.apply("add", &[], &[x, y]);
    let (g, z) = (c.constant(DType::F32, &[d as usize]), c.constant(DType::F32, &[d as usize]));
    let y = c.apply("layernorm", &[("eps", Attr::float(1e-5))], &[y, g, z]);
    let f = linear(c, y, 2 * d as usize);
    let f = c.apply("gelu", &[], &[f]);
    let f = linear(c, f, d as usize);
    c.apply("add", &[], &[y, f])
}

#[test]
fn transformer_block_fuses_and_agrees() {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[2, 9, 24]);
    let y = block(&mut c, x, 3);
    let (program, inputs) = c.finish(&[y]);
    let plan = plan(&program);
    let names: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
    let count = |n: &str| names.iter().filter(|k| **k == n).count();
    assert_eq!((count("gemm"), count("softmax"), count("norm")), (8, 1, 1), "{names:?}");
    assert_eq!((count("pointwise"), count("reference")), (0, 0), "{names:?}");
    assert!(plan.cost > 0.0 && plan.peak_bytes().is_some_and(|b| b > 0));
    check_program("block", &program, &inputs, Tolerance(1e-2, 1e-4));
}

#[test]
fn residual_convolutions_fuse() {
    check("residual", Tolerance(1e-4, 1e-4), |c| {
        let conv = |c: &mut Case<'_>, x: Value, o: usize, r: usize| {
            let shape = c.shape(x);
            let w = c.constant(DType::F32, &[o, shape[1], r, r]);
            let two = |v: i64| Attr::ints([v, v]);
            let p = (r / 2) as i64;
            let attrs =
                [("stride", two(1)), ("low", two(p)), ("high", two(p)), ("dilation", two(1))];
            let y = c.apply("conv", &attrs, &[x, w]);
            let y = scaled(c, y, 0.2);
            let b = c.constant(DType::F32, &[o]);
            let shape = c.shape(y);
            let b = c.broadcast(b, &[1], &shape);
            c.apply("add", &[], &[y, b])
        };
        let x = c.input(DType::F32, &[2, 4, 12, 10]);
        let a = conv(c, x, 8, 3);
        let a = c.apply("relu", &[], &[a]);
        let a = conv(c, a, 4, 1);
        let y = c.apply("add", &[], &[a, x]);
        let y = c.apply("relu", &[], &[y]);
        vec![c.apply("mean", &[("axes", Attr::ints([2, 3]))], &[y])]
    });
}

#[test]
fn groups_with_several_results_and_readers() {
    check("readers", Tolerance(1e-6, 1e-6), |c| {
        let x = c.input(DType::F32, &[40, 50]);
        let a = c.apply("exp", &[], &[x]);
        let b = c.apply("sigmoid", &[], &[a]);
        let s = c.apply("sum", &[("axes", Attr::ints([1]))], &[b]);
        let s = c.broadcast(s, &[0], &[40, 50]);
        let y = c.apply("sub", &[], &[a, s]);
        let t = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[y]);
        let t = c.apply("neg", &[], &[t]);
        vec![t, b, y]
    });
}

#[test]
fn outputs_that_are_inputs_constants_or_views() {
    check("leaves", Tolerance(0.0, 0.0), |c| {
        let x = c.input(DType::F32, &[3, 4]);
        let k = c.constant(DType::I32, &[2]);
        let t = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[x]);
        let e = c.apply("neg", &[], &[k]);
        vec![x, k, t, e, x]
    });
}

#[test]
fn symbols_are_bound_at_every_run() {
    let library = library();
    let mut c = Case::new(&library);
    let (n, m) = (Extent::sym("n"), Extent::sym("m"));
    let x = c.builder.input("x", Type::new(DType::F32, vec![n.clone(), m]));
    let y = c
        .builder
        .input("y", Type::new(DType::F32, vec![&(&n * &Extent::from(2)) + &Extent::from(1)]));
    let s = c.apply("sum", &[("axes", Attr::ints([0]))], &[x]);
    let e = c.apply("exp", &[], &[y]);
    let (program, _) = c.finish(&[s, e]);
    let ready = Cpu::new(2).compile(&plan(&program), library.clone()).unwrap();
    for (n, m) in [(2, 3), (5, 1), (0, 4), (2, 3)] {
        let mut c = Case::new(&library);
        let inputs = [c.tensor(DType::F32, &[n, m]), c.tensor(DType::F32, &[2 * n + 1])];
        let got = ready.run(&inputs).unwrap();
        let want = mlc_backends::reference::run_values(&program, &library, &inputs).unwrap();
        for (g, w) in got.iter().zip(&want) {
            compare("symbols", g, &w.to_f64(), w.shape(), Tolerance(1e-5, 1e-5));
        }
    }
    let wrong =
        [Tensor::from_f32(vec![2, 3], vec![0.0; 6]), Tensor::from_f32(vec![4], vec![0.0; 4])];
    assert!(matches!(ready.run(&wrong), Err(BackendError::Input { name, .. }) if name == "y"));
}

/// A step of a recurrence over a growing cache: a gate of the step alone, and what it finds among all steps so far.
#[test]
fn a_kernel_is_prepared_for_the_extents_that_it_reads() {
    let library = library();
    let mut c = Case::new(&library);
    let n = Extent::sym("n");
    let x = c.builder.input("x", Type::new(DType::F32, vec![1.into(), 8.into()]));
    let past = c.builder.input("past", Type::new(DType::F32, vec![n.clone(), 8.into()]));
    let (w, v) = (c.constant(DType::F32, &[8, 8]), c.constant(DType::F32, &[8, 8]));
    // Only constants decide it.
    let w = c.apply("exp", &[], &[w]);
    let mut step = x;
    for _ in 0..8 {
        step = c.apply("matmul", &[], &[step, w]);
        step = c.apply("softmax", &[("axis", Attr::int(1))], &[step]);
    }
    let all = c.apply("concat", &[("axis", Attr::int(0))], &[past, step]);
    let found = c.apply("sum", &[("axes", Attr::ints([0]))], &[all]);
    let y = c.apply("matmul", &[], &[step, v]);
    let (program, _) = c.finish(&[all, found, y]);
    let watched = Cpu::new(2).watched(&plan(&program), library.clone()).unwrap();
    let ready = Cpu::new(2).compile(&plan(&program), library.clone()).unwrap();
    let mut bytes = vec![];
    for _ in 0..2 {
        for n in [3, 0, 1, 2, 7, 70] {
            let mut c = Case::new(&library);
            let inputs = [c.tensor(DType::F32, &[1, 8]), c.tensor(DType::F32, &[n, 8])];
            let (fresh, kernels) = watched.prepared(&inputs).unwrap().expect("known extents");
            assert_eq!(fresh, if n == 3 { kernels } else { 2 }, "{n} of {kernels} kernels");
            let got = ready.run(&inputs).unwrap();
            let want = mlc_backends::reference::run_values(&program, &library, &inputs).unwrap();
            for (g, w) in got.iter().zip(&want) {
                compare("step", g, &w.to_f64(), w.shape(), Tolerance(1e-5, 1e-5));
            }
            bytes.push(got.iter().map(|t| t.bytes().to_vec()).collect::<Vec<_>>());
        }
    }
    assert_eq!(bytes[..6], bytes[6..], "the same bits when extents come again");
}

#[test]
fn kernels_that_repeat_are_prepared_once() {
    const LAYERS: usize = 6;
    let library = library();
    let mut c = Case::new(&library);
    let mut x = c.builder.input("x", Type::new(DType::F32, vec![Extent::sym("n"), 8.into()]));
    for _ in 0..LAYERS {
        let turned = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[x]);
        let scores = c.apply("matmul", &[], &[x, turned]);
        let scores = c.apply("softmax", &[("axis", Attr::int(1))], &[scores]);
        let mixed = c.apply("matmul", &[], &[scores, x]);
        x = c.apply("add", &[], &[x, mixed]);
    }
    let (program, _) = c.finish(&[x]);
    let watched = Cpu::new(2).watched(&plan(&program), library.clone()).unwrap();
    let ready = Cpu::new(2).compile(&plan(&program), library.clone()).unwrap();
    for n in [3, 1, 0, 7, 70, 3] {
        let inputs = [Case::new(&library).tensor(DType::F32, &[n, 8])];
        let (fresh, kernels) = watched.prepared(&inputs).unwrap().expect("known extents");
        assert!(LAYERS * fresh <= kernels, "{fresh} of {kernels} kernels at {n}");
        let got = ready.run(&inputs).unwrap();
        let want = mlc_backends::reference::run_values(&program, &library, &inputs).unwrap();
        for (g, w) in got.iter().zip(&want) {
            compare("layers", g, &w.to_f64(), w.shape(), Tolerance(1e-5, 1e-5));
        }
    }
}

#[test]
fn an_operator_refuses_extents_that_its_declaration_excludes() {
    let library = library();
    for (op, channels) in [("conv", 1), ("conv_channels_last", 3)] {
        let mut c = Case::new(&library);
        let mut shape: Vec<Extent> = [2, 9, 9, 9].map(Extent::from).to_vec();
        shape[channels] = Extent::sym("c");
        let x = c.builder.input("x", Type::new(DType::F32, shape));
        let w = c.constant(DType::F32, &[4, 3, 3, 3]);
        let all = |v: i64| Attr::ints([v; 2]);
        let mut attrs = vec![("group", Attr::int(1))];
        attrs.extend(["stride", "low", "high", "dilation"].map(|name| (name, all(1))));
        let y = c.apply(op, &attrs, &[x, w]);
        let (program, _) = c.finish(&[y]);
        let ready = Cpu::new(1).compile(&plan(&program), library.clone()).unwrap();
        for extent in [3, 5, 32, 0] {
            let mut given = [2, 9, 9, 9];
            given[channels] = extent;
            let x = Case::new(&library).tensor(DType::F32, &given);
            let refused = matches!(ready.run(&[x]), Err(BackendError::Operator { .. }));
            assert_eq!(refused, extent != 3, "{op} of {extent} channels");
        }
    }
}

#[test]
fn chains_of_an_operator_take_extents_of_symbols() {
    let library = library();
    let mut c = Case::new(&library);
    let parts: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| c.builder.input(name, Type::new(DType::F32, vec![Extent::sym("n"), 3.into()])))
        .to_vec();
    let mut all = parts[0];
    for part in &parts[1..] {
        all = c.apply("concat", &[("axis", Attr::int(1))], &[all, *part]);
    }
    let (program, _) = c.finish(&[all]);
    let ready = Cpu::new(1).compile(&plan(&program), library.clone()).unwrap();
    let mut c = Case::new(&library);
    let inputs: Vec<Tensor> = (0..4).map(|_| c.tensor(DType::F32, &[5, 3])).collect();
    let want = mlc_backends::reference::run_values(&program, &library, &inputs).unwrap();
    let got = ready.run(&inputs).unwrap();
    compare("chain", &got[0], &want[0].to_f64(), want[0].shape(), Tolerance(0.0, 0.0));
}

#[test]
fn mistakes_are_errors() {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[4, 2]);
    let i = c.given(Tensor::from_i64(DType::I64, vec![1], &[0]));
    let y = c.apply("gather", &[("axis", Attr::int(0))], &[x, i]);
    let (program, inputs) = c.finish(&[y]);
    let ready = Cpu::new(1).compile(&plan(&program), library).unwrap();
    assert!(ready.run(&inputs).is_ok());
    assert!(matches!(ready.run(&inputs[..1]), Err(BackendError::Input { .. })));
    let other = [inputs[1].clone(), inputs[1].clone()];
    assert!(matches!(ready.run(&other), Err(BackendError::Input { name, .. }) if name == "x0"));
    let wide = [Tensor::from_f32(vec![2, 2], vec![0.0; 4]), inputs[1].clone()];
    assert!(matches!(ready.run(&wide), Err(BackendError::Input { name, .. }) if name == "x0"));
    for bad in [4, -5, i64::MIN, i64::MAX] {
        let run = [inputs[0].clone(), Tensor::from_i64(DType::I64, vec![1], &[bad])];
        assert!(
            matches!(ready.run(&run), Err(BackendError::Operator { op, .. }) if op.contains("gather"))
        );
    }
}

#[test]
fn runs_share_nothing() {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[2, 6, 16]);
    let y = block(&mut c, x, 2);
    let (program, inputs) = c.finish(&[y]);
    let ready = Cpu::new(2).compile(&plan(&program), library.clone()).unwrap();
    let want = ready.run(&inputs).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..20 {
                    let got = ready.run(&inputs).unwrap();
                    assert_eq!(got[0].bytes(), want[0].bytes());
                }
            });
        }
    });
}

#[test]
fn a_product_over_nothing_is_zero_in_a_used_buffer() {
    for dtype in [DType::F32, DType::F64, DType::I64] {
        check(&format!("matmul over nothing {dtype}"), Tolerance(0.0, 0.0), |c| {
            let x = c.input(dtype, &[2, 3, 4]);
            let used = if dtype.is_float() {
                let e = c.apply("exp", &[], &[x]);
                let n = c.apply("neg", &[], &[e]);
                c.apply("log", &[], &[n])
            } else {
                c.apply("add", &[], &[x, x])
            };
            let (a, b) = (c.input(dtype, &[2, 3, 0]), c.input(dtype, &[2, 0, 4]));
            let list = |v: [i64; 3]| Attr::ints(v);
            let (start, size, step) = (list([0; 3]), list([2, 3, 0]), list([1; 3]));
            let part = [("start", start), ("size", size), ("step", step)];
            let none = c.apply("slice", &part, &[used]);
            let first = c.apply("matmul", &[], &[none, b]);
            let second = c.apply("matmul", &[], &[a, b]);
            vec![first, second]
        });
    }
}

/// Reductions of f32 expressions, from axes that lie anywhere: shape and axes.
const REDUCED: &[(&[usize], &[i64])] = &[
    (&[6], &[0]),
    (&[5, 7], &[1]),
    (&[5, 7], &[0]),
    (&[3, 4, 5], &[1]),
    (&[3, 4, 5], &[0, 2]),
    (&[3, 4, 5], &[0, 1, 2]),
    (&[2, 3, 4, 5], &[1, 3]),
    (&[2, 5000], &[1]),
    (&[4, 3, 1500], &[0, 2]),
    (&[300, 40], &[0]),
    (&[4, 1], &[1]),
    (&[3, 0], &[1]),
    (&[0, 3], &[1]),
];

#[test]
fn reductions_of_expressions_are_one_kernel() {
    for (shape, axes) in REDUCED {
        for op in ["sum", "prod", "max", "min"] {
            let library = library();
            let mut c = Case::new(&library);
            let (x, y) = (c.input(DType::F32, shape), c.input(DType::F32, shape));
            let z = c.apply("mul", &[], &[x, y]);
            let z = c.apply("tanh", &[], &[z]);
            let r = c.apply(op, &[("axes", Attr::ints(axes.to_vec()))], &[z]);
            let rest = c.shape(r);
            let b = c.input(DType::F32, &rest);
            let r = c.apply("add", &[], &[r, b]);
            let r = c.apply("abs", &[], &[r]);
            let (program, inputs) = c.finish(&[r]);
            let names: Vec<String> =
                plan(&program).kernels.iter().map(|k| k.name.clone()).collect();
            assert_eq!(names, ["reduce"], "{op} of {shape:?} over {axes:?}");
            let what = format!("{op} {shape:?} {axes:?}");
            check_program(&what, &program, &inputs, Tolerance(1e-4, 1e-5));
            let mut target = library.target("cpu").expect("the cpu target").clone();
            target.kernels.iter_mut().for_each(|k| k.prologue = false);
            let apart = select_kernels(program.clone(), &library, &target);
            assert!(apart.kernels.len() > 1);
            let apart = Cpu::new(2).compile(&apart, library.clone()).unwrap().run(&inputs).unwrap();
            assert_eq!(run(&program, &inputs, 2).unwrap()[0].bytes(), apart[0].bytes(), "{what}");
        }
    }
}

#[test]
fn what_a_reduction_reads_may_be_read_elsewhere() {
    check("centred", Tolerance(1e-4, 1e-5), |c| {
        let x = c.input(DType::F32, &[6, 33]);
        let e = c.apply("exp", &[], &[x]);
        let s = c.apply("sum", &[("axes", Attr::ints([1]))], &[e]);
        let wide = c.broadcast(s, &[0], &[6, 33]);
        let y = c.apply("div", &[], &[e, wide]);
        vec![y, e]
    });
}
