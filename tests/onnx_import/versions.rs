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
