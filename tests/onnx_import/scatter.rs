//! Rows that are written one after another, as PyTorch exports assignments to slices: what is copied around them is no scattering.

use super::support::*;

/// The elements that `ScatterND` yields with these indices as a constant of the model, and whether it is read as scattering.
fn written(x: &[usize], i: &[usize], indices: &[i64], u: &[usize], add: bool) -> (Vec<f64>, bool) {
    let args = [
        Arg::In(count(x)),
        Arg::Const(ints(i, indices)),
        Arg::In(floats(u, &vec![-1.0; u.iter().product()])),
    ];
    let word = RawAttr::Str("add".into());
    let attrs = [("reduction", word)];
    let attrs = if add { &attrs[..] } else { &[] };
    let (raw, feeds) = single(18, "ScatterND", &args, attrs, 1);
    let program = mlc_onnx::import(raw, library()).expect("is read").program;
    let scatters = program.nodes.iter().any(|n| match &n.kind {
        NodeKind::Apply(call, _) => &*library().call(*call).name == "scatter",
        _ => false,
    });
    (run(&program, &feeds)[0].to_f64(), scatters)
}

#[test]
fn rows_one_after_another_are_copied() {
    let rows = |x: &[f64], first: usize, n: usize| {
        let mut x = x.to_vec();
        x[first..first + n].fill(-1.0);
        x
    };
    let x: Vec<f64> = (0..12).map(f64::from).collect();
    let all = [4, 3];
    let of =
        |indices: &[i64]| written(&all, &[indices.len(), 1], indices, &[indices.len(), 3], false);
    assert_eq!(of(&[0, 1]), (rows(&x, 0, 6), false));
    assert_eq!(of(&[1, 2]), (rows(&x, 3, 6), false));
    assert_eq!(of(&[2, 3]), (rows(&x, 6, 6), false));
    assert_eq!(of(&[0, 1, 2, 3]), (rows(&x, 0, 12), false));
    assert_eq!(of(&[-2, -1]), (rows(&x, 6, 6), false));
    assert_eq!(of(&[2]), (rows(&x, 6, 3), false));
    let tuples = written(&all, &[3, 2], &[1, 2, 2, 0, 2, 1], &[3], false);
    assert_eq!(tuples, (rows(&x, 5, 3), false));
    // Not one after another, or twice the same, or added.
    let mut apart = rows(&x, 0, 3);
    apart = rows(&apart, 6, 3);
    assert_eq!(of(&[0, 2]), (apart.clone(), true));
    assert_eq!(of(&[2, 0]), (apart, true));
    assert_eq!(of(&[1, 1]), (rows(&x, 3, 3), true));
    let mut added = x.clone();
    added[3..6].iter_mut().for_each(|v| *v -= 1.0);
    assert_eq!(written(&all, &[1, 1], &[1], &[1, 3], true), (added, true));
    // None at all.
    assert_eq!(written(&all, &[0, 1], &[], &[0, 3], false).0, x);
}

/// More rows than numbers of another type may be known.
#[test]
fn many_rows_are_copied() {
    let indices: Vec<i64> = (1..20_000).collect();
    let (found, scatters) = written(&[20_001, 1], &[19_999, 1], &indices, &[19_999, 1], false);
    assert!(!scatters);
    assert_eq!((found[0], found[1], found[19_999], found[20_000]), (0.0, -1.0, -1.0, 20_000.0));
}
