//! Plans: what is wrong with one is found before it runs, and what is launched is what it says.

use super::support::*;
use mlc_backends::{Backend, BackendError};
use mlc_cpu::Cpu;
use mlc_dsl::ir::{Attr, DType, NodeId, Program, Tensor, Value};
use mlc_dsl::plan::{Home, Kernel, Plan, Role, faults};
use mlc_extract::cost::work::Works;

/// A product with bias, activation and residual, a normalisation, and a reduction of a square, seen as a row.
fn program() -> (Program, Vec<mlc_dsl::ir::Tensor>) {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[6, 8]);
    let w = c.constant(DType::F32, &[8, 8]);
    let b = c.constant(DType::F32, &[8]);
    let b = c.broadcast(b, &[1], &[6, 8]);
    let y = c.apply("matmul", &[], &[x, w]);
    let y = c.apply("add", &[], &[y, b]);
    let y = c.apply("tanh", &[], &[y]);
    let y = c.apply("add", &[], &[y, x]);
    let s = c.apply("softmax", &[("axis", Attr::int(1))], &[y]);
    let q = c.apply("mul", &[], &[s, s]);
    let r = c.apply("sum", &[("axes", Attr::ints([1]))], &[q]);
    let r = c.apply("sqrt", &[], &[r]);
    let r = c.apply("reshape", &[("shape", Attr::ints([1, 6]))], &[r]);
    c.finish(&[r, y])
}

fn kernel<'a>(plan: &'a mut Plan, name: &str) -> &'a mut Kernel {
    plan.kernels.iter_mut().find(|k| k.name == name).expect("a kernel of that name")
}

#[test]
fn kernels_say_what_they_read_for_what() {
    let (program, _) = program();
    let mut plan = plan(&program);
    let gemm = kernel(&mut plan, "gemm").clone();
    let roles: Vec<Role> = gemm.operands(&program).iter().map(|o| o.role).collect();
    assert_eq!(roles, [Role::Argument(0), Role::Argument(1), Role::Epilogue, Role::Epilogue]);
    let bias = gemm.operands(&program)[2];
    assert!(
        bias.value != bias.from && program.as_const(bias.from).is_some(),
        "read through a view"
    );
    let reduce = kernel(&mut plan, "reduce").clone();
    assert_eq!((reduce.prologue.len(), reduce.anchors.len(), reduce.epilogue.len()), (1, 1, 1));
    assert_eq!(
        reduce.operands(&program).iter().map(|o| o.role).collect::<Vec<_>>(),
        [Role::Prologue]
    );
}

/// A change to a sound plan, and what it makes wrong.
type Mistake = (&'static str, fn(&mut Plan));

const MISTAKES: &[Mistake] = &[
    ("no implementation of that name", |p| kernel(p, "gemm").name = "gemm_v2".into()),
    ("does not compute `matmul`", |p| kernel(p, "gemm").name = "softmax".into()),
    ("takes no prologue", |p| {
        let k = kernel(p, "gemm");
        k.prologue = std::mem::take(&mut k.epilogue);
    }),
    ("takes no epilogue", |p| {
        let softmax = kernel(p, "softmax").clone();
        let reduce = kernel(p, "reduce");
        let (square, from) = (reduce.prologue[0], softmax.outputs[0]);
        reduce.nodes.retain(|n| *n != square);
        reduce.prologue.clear();
        reduce.inputs = vec![Value { node: square, output: 0 }];
        let k = kernel(p, "softmax");
        k.nodes.push(square);
        k.epilogue.push(square);
        k.outputs.retain(|v| *v != from);
        k.outputs.push(Value { node: square, output: 0 });
        replaced(p);
    }),
    ("not what its implementation computes", |p| kernel(p, "gemm").name = "reference".into()),
    ("does not compute", |p| kernel(p, "softmax").name = "pointwise".into()),
    ("computes nothing", |p| p.kernels.push(Kernel::default())),
    ("nodes are not in order", |p| kernel(p, "gemm").nodes.reverse()),
    ("no application", |p| kernel(p, "softmax").nodes.insert(0, NodeId(0))),
    ("no application", |p| kernel(p, "softmax").nodes.push(NodeId(1000))),
    ("parts are not parts of its nodes", |p| {
        let k = kernel(p, "gemm");
        k.prologue = k.epilogue.clone();
    }),
    ("does not work element by element", |p| {
        let k = kernel(p, "softmax");
        k.epilogue = std::mem::take(&mut k.anchors);
    }),
    ("is no view, and none of its parts has it", |p| kernel(p, "gemm").epilogue.clear()),
    ("no chain of one associative operator", |p| {
        let k = kernel(p, "gemm");
        k.anchors.extend(std::mem::take(&mut k.epilogue));
    }),
    ("inputs are not what its nodes read", |p| kernel(p, "gemm").inputs.truncate(1)),
    ("no kernel before it computes", |p| p.kernels.reverse()),
    ("what it does not compute", |p| {
        let of = kernel(p, "gemm").outputs[0];
        kernel(p, "softmax").outputs.push(of);
    }),
    ("what exists already", |p| {
        let again = kernel(p, "softmax").clone();
        p.kernels.push(again);
    }),
    ("no kernel computes the output", |p| {
        if let Some(k) = p.kernels.last_mut() {
            k.outputs.clear();
        }
    }),
    ("of other kernels", |p| p.memory.places.clear()),
    ("is missing", |p| p.memory.places[0].kernel = 1),
    ("is not what it takes", |p| p.memory.places[0].bytes += 64),
    ("outside the arena", |p| p.memory.arena = 0),
    ("still read", |p| {
        let inner = p.memory.places.iter_mut().filter(|q| q.home != Home::Result);
        inner.for_each(|q| q.home = Home::Arena(0));
    }),
];

/// Memory of kernels that were changed.
fn replaced(p: &mut Plan) {
    *p = Plan::new(p.program.clone(), &library(), p.kernels.clone(), p.cost);
}

#[test]
fn what_is_wrong_with_a_plan_is_found() {
    let library = library();
    let (program, inputs) = wide();
    let sound = plan(&program);
    assert!(faults(&sound, &library).is_empty());
    let ready = Cpu::new(1).compile(&sound, library.clone()).expect("compiles");
    ready.run(&inputs).expect("runs");
    for (what, change) in MISTAKES {
        let mut wrong = sound.clone();
        change(&mut wrong);
        match Cpu::new(1).compile(&wrong, library.clone()) {
            Err(BackendError::Plan { fault, .. }) => {
                assert!(fault.to_string().contains(what), "{what}: {fault}");
            }
            Err(e) => panic!("{what}: {e}"),
            Ok(_) => panic!("{what}: compiled"),
        }
    }
}

/// The same, in which two values between kernels are alive at once.
fn wide() -> (Program, Vec<mlc_dsl::ir::Tensor>) {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[6, 8]);
    let w = c.constant(DType::F32, &[8, 8]);
    let y = c.apply("matmul", &[], &[x, w]);
    let y = c.apply("tanh", &[], &[y]);
    let s = c.apply("softmax", &[("axis", Attr::int(1))], &[y]);
    let q = c.apply("mul", &[], &[s, s]);
    let r = c.apply("sum", &[("axes", Attr::ints([1]))], &[q]);
    let z = c.apply("softmax", &[("axis", Attr::int(0))], &[y]);
    c.finish(&[r, z])
}

#[test]
fn what_is_launched_is_the_plan() {
    for (program, inputs) in [program(), wide()] {
        let plan = plan(&program);
        let watched = Cpu::new(1).watched(&plan, library()).expect("compiles");
        let launched = watched.kernels(&inputs).expect("known shapes");
        assert_eq!(launched, plan.launches().collect::<Vec<_>>());
    }
}

#[test]
fn a_view_that_strides_cannot_say_has_a_place() {
    let library = library();
    let mut c = Case::new(&library);
    let x = c.input(DType::F32, &[6, 8]);
    let e = c.apply("exp", &[], &[x]);
    let t = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[e]);
    let f = c.apply("reshape", &[("shape", Attr::ints([48]))], &[t]);
    let s = c.apply("softmax", &[("axis", Attr::int(0))], &[f]);
    let n = c.apply("neg", &[], &[e]);
    let seen = c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[n]);
    let (program, inputs) = c.finish(&[s, seen]);
    let plan = plan(&program);
    let held: Vec<NodeId> = plan.memory.places.iter().map(|p| p.value.node).collect();
    for (v, own) in [(e, true), (t, false), (f, true), (s, true), (seen, true)] {
        assert_eq!(held.contains(&v.node), own, "{v:?}: {held:?}");
    }
    let ready = Cpu::new(1).compile(&plan, library).expect("compiles");
    ready.run(&inputs).expect("runs");
    let used = ready.allocated().expect("known");
    assert_eq!((used.arena, used.results), (plan.memory.arena, plan.memory.results));
    check_program("copies", &program, &inputs, close(DType::F32));
}

#[test]
fn a_chain_of_concatenations_is_one_kernel() {
    let library = library();
    let mut c = Case::new(&library);
    let parts: Vec<Value> = (1..6).map(|n| c.input(DType::F32, &[n, 3])).collect();
    let axis = [("axis", Attr::int(0))];
    let join = |c: &mut Case<'_>, a, b| c.apply("concat", &axis, &[a, b]);
    let left = join(&mut c, parts[0], parts[1]);
    let right = join(&mut c, parts[2], parts[3]);
    let all = join(&mut c, left, right);
    let all = join(&mut c, all, parts[4]);
    let twice = join(&mut c, all, all);
    let (program, inputs) = c.finish(&[twice]);
    let plan = plan(&program);
    let names: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["concat"], "one copy");
    assert_eq!(plan.kernels[0].arguments(&program).len(), 10);
    check_program("chain", &program, &inputs, Tolerance(0.0, 0.0));
}

#[test]
fn a_transposed_convolution_has_the_terms_that_its_stride_leaves() {
    for (stride, leaves) in [([1, 1], 1), ([2, 1], 2), ([2, 2], 4)] {
        let library = library();
        let mut c = Case::new(&library);
        let x = c.input(DType::F32, &[1, 8, 14, 14]);
        let w = c.constant(DType::F32, &[8, 3, 2, 2]);
        let two = |v: i64| Attr::ints([v; 2]);
        let attrs = [
            ("stride", Attr::ints(stride)),
            ("low", two(0)),
            ("high", two(0)),
            ("dilation", two(1)),
            ("extra", two(0)),
            ("group", Attr::int(1)),
        ];
        let y = c.apply("conv_transpose", &attrs, &[x, w]);
        let results: usize = c.shape(y).iter().product();
        let (program, _) = c.finish(&[y]);
        let plan = plan(&program);
        let works = Works::new(&library);
        let products = |k: &Kernel| works.kernel(&plan.program, k).products;
        let products: f64 = plan.kernels.iter().map(products).sum();
        assert_eq!(products, (2 * results * 8 * 4 / leaves) as f64, "{stride:?}");
    }
}

/// A value of a shape as another one is seen: turned, reshaped, a part of it, or repeated.
fn seen(c: &mut Case<'_>, shape: &[usize], how: usize) -> Value {
    let ints = |values: &[usize]| Attr::ints(values.iter().map(|&v| v as i64));
    let rank = shape.len();
    match how {
        0 => {
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            let x = c.input(DType::F32, &turned);
            let perm: Vec<usize> = (0..rank).rev().collect();
            c.apply("transpose", &[("perm", ints(&perm))], &[x])
        }
        1 => {
            let x = c.input(DType::F32, &[shape.iter().product()]);
            c.apply("reshape", &[("shape", ints(shape))], &[x])
        }
        2 => {
            let larger: Vec<usize> = shape.iter().map(|n| n + 1).collect();
            let x = c.input(DType::F32, &larger);
            let attrs = [
                ("start", ints(&vec![1; rank])),
                ("size", ints(shape)),
                ("step", ints(&vec![1; rank])),
            ];
            c.apply("slice", &attrs, &[x])
        }
        _ => {
            let x = c.input(DType::F32, &shape[1..]);
            let map: Vec<i64> = (1..rank as i64).collect();
            c.broadcast(x, &map, shape)
        }
    }
}

/// Operators that run by their meaning and have a price of their own, on whatever is seen, with pointwise operators and views around.
#[test]
fn every_view_before_an_operator_makes_a_plan_that_runs() {
    type Make = fn(&mut Case<'_>, Value) -> Value;
    let operators: [(&str, Make); 5] = [
        ("cumprod", |c, x| c.apply("cumprod", &[("axis", Attr::int(1))], &[x])),
        ("reverse_first", |c, x| {
            let lengths = Tensor::from_i64(DType::I64, vec![4], &[3, 1, 2, 0]);
            let lengths = c.given(lengths);
            c.apply(
                "reverse_first",
                &[("time", Attr::int(0)), ("batch", Attr::int(1))],
                &[x, lengths],
            )
        }),
        ("sample_places", |c, x| {
            let attrs = [("size", Attr::int(5)), ("count", Attr::int(2))];
            let y = c.apply("sample_places", &attrs, &[x]);
            c.apply("cast", &[("to", Attr::DType(DType::F32))], &[y])
        }),
        ("sample_weights", |c, x| c.apply("sample_weights", &[("count", Attr::int(2))], &[x])),
        ("softmax", |c, x| c.apply("softmax", &[("axis", Attr::int(1))], &[x])),
    ];
    for (name, make) in operators {
        for how in 0..4 {
            for around in [false, true] {
                check(&format!("{name} of view {how}, {around}"), Tolerance(1e-4, 1e-5), |c| {
                    let mut x = seen(c, &[3, 4, 2], how);
                    if around {
                        x = c.apply("tanh", &[], &[x]);
                        x = c.apply("transpose", &[("perm", Attr::ints([0, 1, 2]))], &[x]);
                    }
                    let y = make(c, x);
                    let shape = c.shape(y);
                    let perm: Vec<i64> = (0..shape.len() as i64).rev().collect();
                    let z = c.apply("transpose", &[("perm", Attr::ints(perm))], &[y]);
                    let e = c.apply("abs", &[], &[z]);
                    vec![y, e]
                });
            }
        }
    }
}
