//! Infinities, and zeros of both signs: what is read, optimised and run keeps them.

use super::support::*;
use mlc_rewrite::{AnyArray, Model, Optimizer};

const INF: f64 = f64::INFINITY;

#[test]
fn the_logarithm_of_a_sum_of_exponentials_of_infinities() {
    let rows = [INF, 1.0, -INF, -INF, f64::NAN, 1.0, -INF, 2.0, INF, -INF, INF, INF];
    let x = || In(floats(&[6, 2], &rows));
    let y = floats(&[6], &[INF, -INF, f64::NAN, 2.0, INF, INF]);
    let attrs = [("keepdims", int(0))];
    check("ReduceLogSumExp", &[x(), Const(ints(&[1], &[1]))], &attrs, &[y]);
    let all = floats(&[1], &[f64::NAN]);
    let (raw, feeds) = single(13, "ReduceLogSumExp", &[x()], &[("axes", list(&[0, 1]))], 1);
    let program = import(raw, library()).expect("it is read").program;
    same(&run(&program, &feeds)[0], &all.reshaped(vec![1, 1]), "all");
}

/// The results of a session, of the model as it is and optimised.
fn both(model: &Model, x: &[f64]) -> [Vec<f64>; 2] {
    let optimised = Optimizer::new().target("cpu").optimize(model).expect("it is optimised");
    [model.session(), optimised.session()].map(|session| {
        let session = session.expect("it is compiled");
        let (name, given) = (session.inputs()[0].name().to_string(), floats(&[x.len()], x));
        let outputs = session.run([(name, AnyArray::from(given))]).expect("it runs");
        let name = outputs.names().next().expect("an output").to_string();
        outputs[name.as_str()].tensor().to_f64()
    })
}

#[test]
fn a_negative_zero_is_one() {
    for (text, x, expected) in [
        ("recip(x * -0.0)", [1.0, -2.0], [-INF, INF]),
        ("recip(-0.0 * (x + 1))", [1.0, -2.0], [-INF, INF]),
        ("recip(x + -0.0)", [-0.0, 0.0], [-INF, INF]),
        ("recip(maximum(x, -0.0))", [-1.0, 0.5], [-INF, 2.0]),
        ("recip(minimum(x, -0.0))", [1.0, -0.5], [-INF, -2.0]),
    ] {
        let text = format!("def y(x: f32[n]) -> f32[n]\n  = {text}\n");
        let model = Model::from_rules(&text).expect("it is read");
        for found in both(&model, &x) {
            assert_eq!(found, expected, "{text}");
        }
    }
}
