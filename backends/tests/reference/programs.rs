//! Whole programs: symbols, inputs, constants, definitions, precision, failures.

use super::*;
use mlc_backends::{Backend, BackendError};
use mlc_dsl::ir::build::Builder;
use mlc_dsl::ir::{Extent, Program, Tensor, Type};
use mlc_dsl::plan::Plan;
use std::sync::Arc;

fn sym(name: &str) -> Extent {
    Extent::sym(name)
}

fn id(op: &str) -> mlc_dsl::library::CallId {
    library().find(op).unwrap_or_else(|| panic!("there is no `{op}`"))
}

/// `x[batch, 3] + y[batch, 3]`, then reshaped to `[3 * batch]`.
fn sum_of_two() -> Program {
    let mut b = Builder::new(library());
    let ty = || Type::new(F32, vec![sym("batch"), Extent::from(3)]);
    let (x, y) = (b.input("x", ty()), b.input("y", ty()));
    b.set_origin("/head/Add");
    let sum = b.apply(id("add"), &[], &[x, y]).expect("well-typed")[0];
    let flat = b.reshape(sum, &[&sym("batch") * &Extent::from(3)]).expect("well-typed");
    b.finish(vec![("sum".into(), sum), ("flat".into(), flat)])
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::from_f32(shape.to_vec(), vec![0.0; shape.iter().product()])
}

fn run(program: &Program, inputs: &[Tensor]) -> Result<Vec<Array>, BackendError> {
    mlc_backends::reference::run_values(program, library(), inputs)
}

#[test]
fn symbols_take_the_values_of_the_inputs() {
    let program = sum_of_two();
    for batch in [0, 1, 4] {
        let x: Vec<f32> = (0..3 * batch).map(|i| i as f32).collect();
        let x = Tensor::from_f32(vec![batch, 3], x);
        let results = run(&program, &[x.clone(), x]).expect("it runs");
        assert_eq!(results[0].shape(), [batch, 3]);
        assert_eq!(results[1].shape(), [3 * batch]);
        let doubled: Vec<f64> = (0..3 * batch).map(|i| 2.0 * i as f64).collect();
        assert_eq!(results[1].to_f64(), doubled);
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let program = sum_of_two();
    let cases: &[(&[Tensor], &str)] = &[
        (
            &[zeros(&[2, 3]), zeros(&[4, 3])],
            "input `y`: axis 0 has extent 4, but `batch` is 2 in `x`",
        ),
        (&[zeros(&[2, 4]), zeros(&[2, 3])], "input `x`: axis 1 has extent 4, expected 3"),
        (&[zeros(&[6]), zeros(&[2, 3])], "input `x`: expected f32[batch, 3], found shape [6]"),
        (
            &[Tensor::from_i64(I32, vec![0, 3], &[]), zeros(&[0, 3])],
            "input `x`: expected f32, found i32",
        ),
        (&[zeros(&[2, 3])], "input `y`: the program takes 2 inputs, 1 given"),
        (
            &[zeros(&[2, 3]), zeros(&[2, 3]), zeros(&[])],
            "input `#2`: the program takes 2 inputs, 3 given",
        ),
    ];
    for (inputs, message) in cases {
        assert_eq!(run(&program, inputs).expect_err(message).to_string(), *message);
    }
}

#[test]
fn polynomial_extents_are_solved_or_checked() {
    let mut b = Builder::new(library());
    let odd = &(&sym("n") * &Extent::from(2)) + &Extent::from(1);
    let x = b.input("x", Type::new(F32, vec![odd]));
    let y = b.broadcast(x, &[1], &[sym("n"), &(&sym("n") * &Extent::from(2)) + &Extent::from(1)]);
    let program = b.finish(vec![("y".into(), y.expect("well-typed"))]);
    assert_eq!(run(&program, &[zeros(&[7])]).expect("it runs")[0].shape(), [3, 7]);
    let message = run(&program, &[zeros(&[4])]).expect_err("4 is even").to_string();
    assert!(message.contains("the value of `n` cannot be inferred from the inputs"), "{message}");
}

#[test]
fn failures_name_operator_and_node() {
    let mut b = Builder::new(library());
    let x = b.input("x", Type::known(F32, &[3]));
    let i = b.input("i", Type::known(I64, &[1]));
    b.set_origin("/emb/Gather");
    let y = b.apply(id("gather"), &[Some(Attr::int(0))], &[x, i]).expect("well-typed")[0];
    let program = b.finish(vec![("y".into(), y)]);
    let inputs = [zeros(&[3]), Tensor::from_i64(I64, vec![1], &[5])];
    assert_eq!(
        run(&program, &inputs).expect_err("5 is too large").to_string(),
        "operator `gather (/emb/Gather)`: index 5 is out of range for axis 0 of `x`, which has extent 3"
    );
}

#[test]
fn numbers_that_integers_cannot_be_are_refused() {
    let run_at = |most: f64| {
        let mut b = Builder::new(library());
        let x = b.input("x", Type::known(I64, &[1]));
        let y = b.apply(id("at_most"), &[Some(Attr::float(most))], &[x]).expect("well-typed")[0];
        run(&b.finish(vec![("y".into(), y)]), &[Tensor::from_i64(I64, vec![1], &[5])])
    };
    assert_eq!(run_at(-2.0).expect("it runs")[0].to_f64(), [-2.0]);
    let message = run_at(-0.75).expect_err("a fraction").to_string();
    assert!(message.contains("-0.75 is no i64"), "{message}");
}

#[test]
fn a_plan_runs_through_the_trait() {
    let program = sum_of_two();
    let plan = Plan::of_nodes(program, library(), "reference");
    let reference = Reference::default();
    assert_eq!(reference.name(), "reference");
    let executable = reference.compile(&plan, Arc::new(library().clone())).expect("it compiles");
    let x = Tensor::from_f32(vec![1, 3], vec![1.0, 2.0, 3.0]);
    let results = executable.run(&[x.clone(), x]).expect("it runs");
    assert_eq!(results[0], Tensor::from_f32(vec![1, 3], vec![2.0, 4.0, 6.0]));
    assert_eq!(results[1].dtype(), F32);
}

/// `(x + c) - c`: exact in f64, zero in a narrow type.
#[test]
fn rounding_happens_only_where_it_is_asked_for() {
    for dtype in [DType::F16, DType::BF16, F32] {
        let mut b = Builder::new(library());
        let x = b.input("x", Type::known(dtype, &[2]));
        let c = b.constant(Tensor::from_f64(dtype, vec![2], &[32768.0, 32768.0]));
        let sum = b.apply(id("add"), &[], &[x, c]).expect("well-typed")[0];
        let back = b.apply(id("sub"), &[], &[sum, c]).expect("well-typed")[0];
        let program = b.finish(vec![("back".into(), back)]);
        let small = 0.000_5;
        let x = Tensor::from_f64(dtype, vec![2], &[small, 1024.0]);
        let with = |precision| {
            let reference = Reference { precision, engine: Engine::Fast };
            let results = reference.run_values(&program, library(), std::slice::from_ref(&x));
            results.expect("it runs")[0].to_f64()
        };
        assert_eq!(with(Precision::F64), x.to_f64(), "{dtype}");
        assert_eq!(with(Precision::Rounded), [0.0, 1024.0], "{dtype}");
        // What the sum absorbs shows once the sum is disturbed.
        let far = with(Precision::Disturbed(1));
        let room = 9.0 * 32768.0 * dtype.unit_roundoff();
        assert!(far[0] != small && (far[0] - small).abs() <= room, "{dtype}: {far:?}");
        assert_eq!(far, with(Precision::Disturbed(1)), "{dtype}");
        assert_ne!(far, with(Precision::Disturbed(2)), "{dtype}");
    }
}

#[test]
fn definitions_are_their_bodies() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 1e6, 1e6, f64::NEG_INFINITY]);
    let e: Vec<f64> = [-2.0f64, -1.0, 0.0].iter().map(|v| v.exp()).collect();
    let s: f64 = e.iter().sum();
    check("softmax", &[], &[x], &[2, 3], &[e[0] / s, e[1] / s, e[2] / s, 0.5, 0.5, 0.0]);
    // Scalars of a body are constants of its type.
    let tenth = result("tenth", &[], &[f32s(&[1], &[3.0])]);
    assert_eq!(tenth.to_f64(), [3.0 * f64::from(0.1f32)]);
    fails("softmax", &[], &[array(I32, &[1], &[1.0])], "`F` does not admit i32");
}

#[test]
fn values_need_not_be_representable() {
    let program = sum_of_two();
    let x = f32s(&[1, 3], &[0.1, 1e-300, 2.0]);
    let zero = f32s(&[1, 3], &[0.0; 3]);
    let results = Reference::default().run_arrays(&program, library(), &[x, zero]);
    assert_eq!(results.expect("it runs")[0].to_f64(), [0.1, 1e-300, 2.0]);
}

#[test]
fn ill_typed_applications_are_refused() {
    let (a, b) = (f32s(&[2], &[0.0; 2]), f32s(&[3], &[0.0; 3]));
    fails("add", &[], &[a.clone(), b], "segment `..s` has two different shapes");
    fails("add", &[], std::slice::from_ref(&a), "takes 2 tensors, 1 given");
    fails("transpose", &[("perm", ints(&[1]))], std::slice::from_ref(&a), "does not permute");
    fails("reshape", &[("shape", ints(&[5]))], std::slice::from_ref(&a), "needs");
    let huge = [("map", ints(&[0])), ("shape", ints(&[2, 1 << 40, 1 << 40]))];
    fails("broadcast", &huge, &[a], "more elements than 2^59");
}

#[test]
fn arrays_hold_what_their_type_can() {
    assert!(Array::from_f64(F32, vec![2], vec![0.0]).is_none());
    assert!(Array::from_f64(I32, vec![1], vec![0.0]).is_none());
    assert!(Array::from_i64(F32, vec![1], vec![0]).is_none());
    let a = Array::from_i64(DType::U8, vec![2], vec![-1, 256]).expect("two values");
    assert_eq!(a.ints(), Some(&[255, 0][..]));
    for d in DType::ALL {
        let values = if d == BOOL { [0.0, 1.0] } else { [0.0, 1.5] };
        let t = Tensor::from_f64(d, vec![2, 1], &values);
        assert_eq!(Array::from_tensor(&t).to_tensor(), t, "{d}");
    }
    let a = Array::from_f64(DType::F16, vec![3], vec![1.0 + 1e-5, 1e6, -1e-9]).expect("three");
    assert_eq!(a.rounded().to_f64(), [1.0, f64::INFINITY, -0.0]);
}
