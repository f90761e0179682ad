//! What is written is valid at the operator set it is written at: element types are those that the version has,
//! and what has no elements is a constant.

use crate::support::*;

fn bits(v: &[bool]) -> Tensor {
    bools(&[v.len()], &v.iter().map(|&b| i64::from(b)).collect::<Vec<_>>())
}

/// Reads at one version, writes at others; yields the operators of each.
#[track_caller]
fn written(
    opset: i64,
    op: &str,
    args: &[Arg],
    attrs: &[(&str, RawAttr)],
    expected: &Tensor,
) -> Vec<String> {
    let (raw, feeds) = single(opset, op, args, attrs, 1);
    let Imported { program, model, .. } = import(raw.clone(), library()).expect("is read");
    check_at(&[opset], raw, &feeds, std::slice::from_ref(expected));
    let raw = export(&program, library(), &model, opset).expect("is written");
    raw.graph.nodes.iter().map(|n| n.op_type.clone()).collect()
}

#[test]
fn floats_are_not_compared_before_they_may_be() {
    let inf = f64::INFINITY;
    let x = || In(floats(&[5], &[-inf, -1.0, 0.0, inf, f64::NAN]));
    for (negative, positive, expected) in [
        (1, 1, [true, false, false, true, false]),
        (1, 0, [true, false, false, false, false]),
        (0, 1, [false, false, false, true, false]),
    ] {
        let attrs = [("detect_negative", int(negative)), ("detect_positive", int(positive))];
        for opset in [10, 13, 20] {
            let ops = written(opset, "IsInf", &[x()], &attrs, &bits(&expected));
            assert_eq!(ops, ["IsInf"], "at {opset}");
        }
    }
    let rows = || In(floats(&[2, 3], &[1.0, 3.0, 3.0, f64::NAN, 0.0, -1.0]));
    for opset in [7, 8, 9, 10, 11, 13] {
        for (op, places) in [("ArgMax", [1, 0]), ("ArgMin", [0, 0])] {
            let attrs = [("axis", int(1)), ("keepdims", int(0))];
            let ops = written(opset, op, &[rows()], &attrs, &ints(&[2], &places));
            assert_eq!(ops.contains(&"Equal".to_string()), opset >= 11, "{op} at {opset}: {ops:?}");
            assert_eq!(ops.contains(&"Where".to_string()), opset >= 9, "{op} at {opset}: {ops:?}");
        }
    }
}

#[test]
fn what_has_no_elements_is_a_constant() {
    let empty = |shape: &[usize]| floats(shape, &[]);
    type Case = (&'static str, i64, Vec<Arg>, Vec<(&'static str, RawAttr)>, Tensor);
    let table: Vec<Case> = vec![
        ("Flatten", 9, vec![In(empty(&[2, 0, 3]))], vec![], empty(&[2, 0])),
        ("Unsqueeze", 11, vec![In(empty(&[2, 0]))], vec![("axes", list(&[0]))], empty(&[1, 2, 0])),
        ("Squeeze", 11, vec![In(empty(&[1, 0]))], vec![("axes", list(&[0]))], empty(&[0])),
        ("Tile", 13, vec![In(empty(&[2, 0])), Const(ints(&[2], &[2, 2]))], vec![], empty(&[4, 0])),
        (
            "DepthToSpace",
            9,
            vec![In(empty(&[1, 4, 0, 3]))],
            vec![("blocksize", int(2))],
            empty(&[1, 1, 0, 6]),
        ),
        (
            "SpaceToDepth",
            9,
            vec![In(empty(&[1, 1, 0, 2]))],
            vec![("blocksize", int(2))],
            empty(&[1, 4, 0, 1]),
        ),
        (
            "Einsum",
            12,
            vec![In(empty(&[2, 0]))],
            vec![("equation", RawAttr::from("ij->ji"))],
            empty(&[0, 2]),
        ),
        (
            "MeanVarianceNormalization",
            9,
            vec![In(empty(&[1, 2, 0, 3]))],
            vec![],
            empty(&[1, 2, 0, 3]),
        ),
        ("Hardmax", 13, vec![In(empty(&[0, 3]))], vec![], empty(&[0, 3])),
        (
            "GatherND",
            12,
            vec![In(empty(&[4, 3, 0])), In(ints(&[1, 2], &[1, 2]))],
            vec![],
            empty(&[1, 0]),
        ),
        ("LogSoftmax", 13, vec![In(empty(&[3, 0]))], vec![], empty(&[3, 0])),
    ];
    for (op, opset, args, attrs, expected) in table {
        let ops = written(opset, op, &args, &attrs, &expected);
        assert_eq!(ops, ["Identity"], "{op} at {opset}");
    }
}

#[test]
fn what_older_versions_lack_is_written_with_what_they_have() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let truths = |v: &[i64]| bools(&[v.len()], v);
    let halves = [-inf, -2.5, -1.5, -0.75, -0.5, -0.25, -0.0, 0.25, 0.5, 0.75, 1.5, 2.5, inf, nan];
    let large = [0.49999997, -0.49999997, 8388607.5, -8388606.5, 16777216.0, 3e38, 1e-40];
    let rounded = |v: &[f64]| v.iter().map(|&x| f64::from((x as f32).round_ties_even())).collect();
    let round = |v: &[f64]| {
        let expected: Vec<f64> = rounded(v);
        let of = |v: &[f64]| floats(&[v.len()], v);
        ("Round", 11, vec![In(of(v))], vec![], of(&expected), vec![9, 10])
    };
    let x = || In(floats(&[2, 3], &[1.0, 3.0, 3.0, -1.0, -2.0, -3.0]));
    let wide = || In(floats(&[2, 1], &[1.0, 2.0]));
    type Case = (&'static str, i64, Vec<Arg>, Vec<(&'static str, RawAttr)>, Tensor, Vec<i64>);
    let table: Vec<Case> = vec![
        (
            "IsNaN",
            9,
            vec![In(floats(&[5], &[-inf, 0.0, 0.5, inf, nan]))],
            vec![],
            truths(&[0, 0, 0, 0, 1]),
            vec![7, 8, 9],
        ),
        round(&halves),
        round(&large),
        (
            "Hardmax",
            13,
            vec![x()],
            vec![],
            floats(&[2, 3], &[0., 1., 0., 1., 0., 0.]),
            vec![7, 10, 11, 12, 13],
        ),
        (
            "Hardmax",
            10,
            vec![x()],
            vec![("axis", int(0))],
            floats(&[2, 3], &[0., 1., 0., 0., 0., 0.]),
            vec![7, 12, 13],
        ),
        (
            "Expand",
            8,
            vec![wide(), Const(ints(&[3], &[2, 1, 3]))],
            vec![],
            floats(&[2, 2, 3], &[1., 1., 1., 2., 2., 2., 1., 1., 1., 2., 2., 2.]),
            vec![7, 8],
        ),
        (
            "Expand",
            8,
            vec![wide(), Const(ints(&[2], &[2, 3]))],
            vec![],
            floats(&[2, 3], &[1., 1., 1., 2., 2., 2.]),
            vec![7, 8],
        ),
        (
            "Tile",
            7,
            vec![wide(), Const(ints(&[2], &[2, 2]))],
            vec![],
            floats(&[4, 2], &[1., 1., 2., 2., 1., 1., 2., 2.]),
            vec![7, 8],
        ),
    ];
    for (op, opset, args, attrs, expected, opsets) in table {
        let (raw, feeds) = single(opset, op, &args, &attrs, 1);
        check_at(&opsets, raw.clone(), &feeds, std::slice::from_ref(&expected));
        let Imported { program, model, .. } = import(raw, library()).expect("is read");
        for opset in opsets {
            let raw = export(&program, library(), &model, opset).expect("is written");
            let again = import(raw, library()).expect("is read back").program;
            let bits = |t: &Tensor| t.to_f64().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&run(&again, &feeds)[0]),
                bits(&expected),
                "{op} at {opset}: signs of zeros"
            );
        }
    }
}
