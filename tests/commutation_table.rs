//! Operators of a user's text take part in every schema: they commute with movement and are moved out of reductions without further rules.

use mlc_dsl::ir::Value;
use mlc_dsl::library::{ErrorClass, Library};
use mlc_explore::{Limits, explore};
use mlc_rewrite::model::rules_model;
use mlc_rewrite::{pipeline, stdlib};
use mlc_verify::{CheckOptions, check_library, commutation_table};
use std::sync::Arc;

/// What nobody else has declared.
const OWN: &str = "
/// One operand, no trend.
op wobble(x: F[..s]) -> y: F[..s]
  y[..s] = sin(x[..s]) * x[..s]

/// Two operands that do not commute.
op lean(a: F[..s], b: F[..s]) -> y: F[..s]
  y[..s] = a[..s] * tanh(b[..s])

/// An attribute.
op bend(x: F[..s], by: float in 0.5..2) -> y: F[..s]
  y[..s] = x[..s] * exp(-by * abs(x[..s]))

/// Never falls.
op climb(x: F[..s]) -> y: F[..s]
  y[..s] = tanh(x[..s]) + 2 * x[..s]

/// A sum of multiples.
op blend(a: F[..s], b: F[..s]) -> y: F[..s]
  y[..s] = (a[..s] - 3 * b[..s]) / 2

/// A layer of them.
def swing(x: F[..s]) -> F[..s]
  = wobble(bend(x, by=0.5)) + x
";

fn library(text: &str) -> Arc<Library> {
    let (library, diags) = stdlib::with(&[("own.rules", &*format!("{OWN}\n{text}"))]);
    assert!(diags.is_empty(), "{text}: {}", stdlib::rendered(&library, &diags, false));
    Arc::new(library)
}

/// True if both results of `def case` are found to be one value.
fn are_one(text: &str) -> bool {
    let library = library(text);
    let program = rules_model::program(&library, "case").expect("a program");
    let outputs: Vec<Value> = program.outputs.iter().map(|(_, v)| *v).collect();
    let [a, b] = outputs.try_into().expect("two results");
    let laws: Vec<u32> = (0..library.laws.len() as u32)
        .filter(|&i| library.laws[i as usize].error <= ErrorClass::Reorder)
        .collect();
    explore(library, program, &laws, &Limits::default()).are_equal(a, b)
}

/// What moves a tensor of two axes, and the type that it then has; `?` is the tensor.
const MOVEMENTS: &[(&str, &str)] = &[
    ("transpose(?, perm=[1, 0])", "f32[6, 4]"),
    ("reshape(?, shape=[2, 2, 6])", "f32[2, 2, 6]"),
    ("broadcast(?, map=[1, 2], shape=[3, 4, 6])", "f32[3, 4, 6]"),
    ("slice(?, start=[1, 2], size=[2, 3], step=[1, 1])", "f32[2, 3]"),
    ("gather(?, i, axis=1)", "f32[4, 5]"),
];

/// The operators, applied to `x` or to `x` and `y`; `?` is what each operand is put in.
const OPERATORS: &[&str] = &[
    "wobble(?x)",
    "bend(?x, by=0.75)",
    "lean(?x, ?y)",
    "lean(?x, 0.5)",
    "lean(0.5, ?y)",
    "blend(?x, ?y)",
    "swing(?x)",
];

/// An application whose operands are moved.
fn moved(operator: &str, movement: &str) -> String {
    ["x", "y"].iter().fold(operator.to_string(), |text, v| {
        text.replace(&format!("?{v}"), &movement.replace('?', v))
    })
}

fn plain(operator: &str) -> String {
    operator.replace('?', "")
}

#[test]
fn an_operator_of_the_user_moves_through_every_movement() {
    let mut apart = Vec::new();
    for operator in OPERATORS {
        for (movement, result) in MOVEMENTS {
            let after = movement.replace('?', &plain(operator));
            let before = moved(operator, movement);
            let text = format!(
                "def case(x: f32[4, 6], y: f32[4, 6], i: i64[5]) -> {result}, {result}\n  = ({before}, {after})\n"
            );
            if !are_one(&text) {
                apart.push(text);
            }
        }
    }
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

#[test]
fn an_operator_of_the_user_moves_through_parts_that_are_put_together() {
    for (before, after) in [
        ("wobble(concat(x, y, axis=0))", "concat(wobble(x), wobble(y), axis=0)"),
        (
            "lean(concat(x, y, axis=1), concat(y, x, axis=1))",
            "concat(lean(x, y), lean(y, x), axis=1)",
        ),
        ("lean(concat(x, y, axis=1), 2)", "concat(lean(x, 2), lean(y, 2), axis=1)"),
        ("bend(concat(x, y, axis=1), by=1.5)", "concat(bend(x, by=1.5), bend(y, by=1.5), axis=1)"),
    ] {
        let axis = if before.contains("axis=0") { "f32[8, 6]" } else { "f32[4, 12]" };
        let text = format!(
            "def case(x: f32[4, 6], y: f32[4, 6]) -> {axis}, {axis}\n  = ({before}, {after})\n"
        );
        assert!(are_one(&text), "{text}");
    }
    let parts = "def case(x: f32[4, 6]) -> f32[4, 3], f32[4, 3]\n  let (a, b) = split(wobble(x), axis=1, parts=2)\n  \
                 let (c, d) = split(x, axis=1, parts=2)\n  = (b, wobble(d))\n";
    assert!(are_one(parts), "{parts}");
}

#[test]
fn an_operator_of_the_user_is_applied_to_what_pads() {
    for (operator, value) in [("wobble(?x)", "wobble(v)"), ("lean(?x, 0.5)", "lean(v, 0.5)")] {
        let pad = |x: &str, v: &str| format!("pad({x}, {v}, low=[1, 0], high=[0, 2])");
        let text = format!(
            "def case(x: f32[4, 6], v: f32[]) -> f32[5, 8], f32[5, 8]\n  = ({}, {})\n",
            moved(operator, &pad("?", "v")),
            pad(&plain(operator), value)
        );
        assert!(are_one(&text), "{text}");
    }
}

#[test]
fn an_operator_of_the_user_leaves_the_reductions_that_it_may_leave() {
    for (inside, outside, one) in [
        ("max(climb(x), axes=[1])", "climb(max(x, axes=[1]))", true),
        ("min(climb(x), axes=[1])", "climb(min(x, axes=[1]))", true),
        ("sum(blend(x, y), axes=[1])", "blend(sum(x, axes=[1]), sum(y, axes=[1]))", true),
        ("max(wobble(x), axes=[1])", "wobble(max(x, axes=[1]))", false),
        ("sum(climb(x), axes=[1])", "climb(sum(x, axes=[1]))", false),
        ("max(blend(x, y), axes=[1])", "blend(max(x, axes=[1]), max(y, axes=[1]))", false),
    ] {
        let text = format!(
            "def case(x: f32[4, 6], y: f32[4, 6]) -> f32[4], f32[4]\n  = ({inside}, {outside})\n"
        );
        assert_eq!(are_one(&text), one, "{text}");
    }
}

#[test]
fn operators_of_the_user_are_one_kernel() {
    let text = "def case(x: f32[4, 6], w: f32[6, 8], z: f32[8]) -> f32[4, 8]\n  = wobble(lean(bend(x @ w + z, by=0.5), 0.5))\n";
    let library = library(text);
    let program = rules_model::program(&library, "case").expect("a program");
    let target = pipeline::target(&library, "cpu").expect("shipped");
    let plan = pipeline::plan(&program, &library, &target).expect("a plan");
    let kernels = pipeline::kernels(&plan, &library);
    let names: Vec<&str> = kernels.iter().map(|k| &*k.name).collect();
    assert_eq!(names, ["gemm"], "{:?}", kernels.iter().map(|k| &k.nodes).collect::<Vec<_>>());
}

#[test]
fn the_laws_of_the_user_s_operators_hold() {
    let library = library("");
    let own = library.sources.len() as u32 - 1;
    let of_own = |l: &&mlc_dsl::library::Law| {
        l.schema.iter().flat_map(|s| &s.operators).any(|c| library.call(*c).source.file == own)
    };
    let names: Vec<String> =
        library.laws.iter().filter(of_own).map(|l| l.name.to_string()).collect();
    assert!(names.len() > 40, "{names:?}");
    let report = check_library(&library, Some(&names), &CheckOptions::default(), &|_, _| {});
    assert!(report.sound(), "{}", report.human(false));
}

#[test]
fn no_operator_lacks_a_law_for_a_movement_without_a_reason() {
    let library = library("");
    assert_eq!(commutation_table::holes(&library), Vec::<String>::new());
    let table = commutation_table::table(&library, 0);
    let row = table.lines().find(|l| l.starts_with("| `wobble`")).expect("a row");
    assert!(row.contains("`transpose_pointwise`"), "{row}");
}
