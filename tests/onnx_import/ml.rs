//! Operators of `ai.onnx.ml` as converters of classical models write them; expectations are ONNX Runtime's results.

use super::support::*;
use super::types::strings::{row, word, words, yields};
use mlc_onnx::{Container, Loops, RawValueInfo};

const ML: &str = "ai.onnx.ml";

fn numbers(v: &[f32]) -> RawAttr {
    RawAttr::Floats(v.to_vec())
}

/// Two trees: `x0 <= 0.5` then `x1 <= 0`, and a tree of one leaf. Node numbers begin anew in each tree.
fn two_trees(leaves: &str, ids: &[i64], weights: &[f32]) -> Vec<(&'static str, RawAttr)> {
    let per_leaf = ids.len() / 4;
    let repeat = |v: &[i64]| -> RawAttr {
        RawAttr::Ints(v.iter().flat_map(|&n| std::iter::repeat_n(n, per_leaf)).collect())
    };
    let names = match leaves {
        "target" => ["target_treeids", "target_nodeids", "target_ids", "target_weights"],
        _ => ["class_treeids", "class_nodeids", "class_ids", "class_weights"],
    };
    let modes = ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF", "LEAF"];
    vec![
        ("nodes_treeids", list(&[0, 0, 0, 0, 0, 1])),
        ("nodes_nodeids", list(&[0, 1, 2, 3, 4, 0])),
        ("nodes_featureids", list(&[0, 1, 0, 0, 0, 0])),
        ("nodes_modes", words(&modes)),
        ("nodes_values", numbers(&[0.5, 0.0, 0.0, 0.0, 0.0, 0.0])),
        ("nodes_truenodeids", list(&[1, 3, 0, 0, 0, 0])),
        ("nodes_falsenodeids", list(&[2, 4, 0, 0, 0, 0])),
        ("nodes_hitrates", numbers(&[1.0; 6])),
        ("nodes_missing_value_tracks_true", list(&[1, 0, 0, 0, 0, 0])),
        (names[0], repeat(&[1, 0, 0, 0])),
        (names[1], repeat(&[0, 4, 3, 2])),
        (names[2], list(ids)),
        (names[3], numbers(weights)),
    ]
}

#[test]
fn trees_are_followed_whatever_the_order_of_their_leaves() {
    let x = floats(&[4, 2], &[0.0, -1.0, 0.5, 1.0, 1.0, 0.0, f64::NAN, 2.0]);
    let mut one = two_trees("target", &[0; 4], &[0.25, 4.0, 2.0, 1.0]);
    let regressor = (ML, 1, "TreeEnsembleRegressor");
    let sums = floats(&[4, 1], &[2.25, 4.25, 1.25, 4.25]);
    yields(regressor, std::slice::from_ref(&x), &one, &[sums]);
    one.push(("aggregate_function", word("MAX")));
    one.push(("base_values", numbers(&[0.5])));
    yields(regressor, std::slice::from_ref(&x), &one, &[floats(&[4, 1], &[2.5, 4.5, 1.5, 4.5])]);
    let mut two =
        two_trees("target", &[0, 1, 0, 1, 0, 1, 0, 1], &[1.0, 2.0, 8.0, 16.0, 4.0, 32.0, 0.5, 0.0]);
    two.push(("n_targets", RawAttr::Int(2)));
    let both = floats(&[4, 2], &[5.0, 34.0, 9.0, 18.0, 1.5, 2.0, 9.0, 18.0]);
    yields((ML, 3, "TreeEnsembleRegressor"), &[x], &two, &[both]);
}

#[test]
fn trees_vote_for_classes() {
    let x = floats(&[3, 2], &[0.0, -1.0, 0.5, 1.0, 1.0, 0.0]);
    let classifier = (ML, 1, "TreeEnsembleClassifier");
    let ids = [0, 1, 2].repeat(4);
    let weights = [0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0];
    let mut three = two_trees("class", &ids, &weights);
    three.push(("classlabels_strings", words(&["a", "b", "c"])));
    let scores = floats(&[3, 3], &[0.0, 2.0, 0.5, 1.0, 0.0, 0.5, 0.0, 0.0, 3.5]);
    yields(classifier, std::slice::from_ref(&x), &three, &[row(&["b", "a", "c"]), scores]);
    // Of two classes with weights for one of them, the other has what is left.
    for (low, labels, scores) in [
        (0.25, [7, 9, 7], [0.5, 0.5, -0.25, 1.25, 0.75, 0.25]),
        (-0.25, [7, 9, 7], [-0.0, 0.0, -0.75, 0.75, 0.25, -0.25]),
    ] {
        let mut lone = two_trees("class", &[0; 4], &[low, 1.0, 0.25, 0.0]);
        lone.push(("classlabels_int64s", list(&[7, 9])));
        yields(
            classifier,
            std::slice::from_ref(&x),
            &lone,
            &[ints(&[3], &labels), floats(&[3, 2], &scores)],
        );
    }
}

#[test]
fn linear_models_score_classes() {
    let x = floats(&[2, 2], &[1.0, 2.0, -3.0, 0.5]);
    let regressor = [
        ("coefficients", numbers(&[1.0, 2.0, 0.5, -1.0])),
        ("intercepts", numbers(&[0.0, 8.0])),
        ("targets", RawAttr::Int(2)),
    ];
    let values = floats(&[2, 2], &[5.0, 6.5, -2.0, 6.0]);
    yields(
        (ML, 1, "LinearRegressor"),
        std::slice::from_ref(&x),
        &regressor,
        std::slice::from_ref(&values),
    );
    let mut classes = regressor[..2].to_vec();
    classes.push(("classlabels_strings", words(&["no", "yes"])));
    let classifier = (ML, 1, "LinearClassifier");
    yields(classifier, std::slice::from_ref(&x), &classes, &[row(&["yes", "yes"]), values]);
    let one = [
        ("coefficients", numbers(&[1.0, 2.0])),
        ("intercepts", numbers(&[0.5])),
        ("classlabels_ints", list(&[3, 5])),
    ];
    let both = floats(&[2, 2], &[-4.5, 5.5, 2.5, -1.5]);
    yields(classifier, &[x], &one, &[ints(&[2], &[5, 3]), both]);
}

#[test]
fn data_is_prepared() {
    let x = floats(&[2, 2], &[-1.0, 3.0, 0.0, 0.0]);
    let norm = |n: &str| [("norm", word(n))];
    let normalizer = (ML, 1, "Normalizer");
    yields(
        normalizer,
        std::slice::from_ref(&x),
        &norm("L1"),
        &[floats(&[2, 2], &[-0.25, 0.75, 0.0, 0.0])],
    );
    let third = f64::from(-1.0f32 / 3.0);
    yields(
        normalizer,
        std::slice::from_ref(&x),
        &norm("MAX"),
        &[floats(&[2, 2], &[third, 1.0, 0.0, 0.0])],
    );
    let square = floats(&[1, 2], &[3.0, -4.0]);
    let unit = floats(&[1, 2], &[f64::from(0.6f32), f64::from(-0.8f32)]);
    yields(normalizer, &[square], &norm("L2"), &[unit]);
    let scaler = [("offset", numbers(&[1.0, 2.0])), ("scale", numbers(&[0.5]))];
    yields(
        (ML, 1, "Scaler"),
        std::slice::from_ref(&x),
        &scaler,
        &[floats(&[2, 2], &[-1.0, 0.5, -0.5, -1.0])],
    );
    let missing = floats(&[2, 2], &[f64::NAN, 3.0, 0.0, f64::NAN]);
    let imputer = [
        ("imputed_value_floats", numbers(&[7.0, 8.0])),
        ("replaced_value_float", RawAttr::Float(f32::NAN)),
    ];
    let full = floats(&[2, 2], &[7.0, 3.0, 0.0, 8.0]);
    yields((ML, 1, "Imputer"), &[missing], &imputer, &[full]);
    let categories = [("cats_strings", words(&["b", "a"]))];
    let hot = floats(&[3, 2], &[0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
    yields((ML, 1, "OneHotEncoder"), &[row(&["a", "?", "b"])], &categories, &[hot]);
}

#[test]
fn support_vectors_are_summed() {
    let x = floats(&[3, 2], &[0.5, -1.0, 2.0, 0.25, 0.0, 0.0]);
    let of = |kind: &str, more: &[(&'static str, RawAttr)]| {
        let mut all = vec![
            ("coefficients", numbers(&[1.0, -0.5, 0.25])),
            ("kernel_params", numbers(&[0.5, 1.0, 2.0])),
            ("kernel_type", word(kind)),
            ("n_supports", RawAttr::Int(3)),
            ("rho", numbers(&[0.125])),
            ("support_vectors", numbers(&[1.0, 0.0, 0.0, 1.0, -1.0, 2.0])),
        ];
        all.extend_from_slice(more);
        all
    };
    let cases = [
        ("LINEAR", [0.5, 1.625, 0.125]),
        ("POLY", [1.578125, 3.5078125, 0.875]),
        ("SIGMOID", [0.6809954047203064, 0.7456067204475403, 0.6961956024169922]),
    ];
    let regressor = (ML, 1, "SVMRegressor");
    for (kind, sums) in cases {
        let y = floats(&[3, 1], &sums);
        yields(regressor, std::slice::from_ref(&x), &of(kind, &[]), &[y]);
    }
    // So narrow that a row is like itself alone.
    let narrow = of("RBF", &[("kernel_params", numbers(&[1000.0, 0.0, 0.0]))]);
    let rows = floats(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 5.0, 5.0]);
    yields(regressor, &[rows], &narrow, &[floats(&[3, 1], &[1.125, -0.375, 0.125])]);
    let sides = floats(&[3, 1], &[-1.0, -1.0, -1.0]);
    let one = of("RBF", &[("one_class", RawAttr::Int(1)), ("rho", numbers(&[-0.75]))]);
    yields(regressor, std::slice::from_ref(&x), &one, &[sides]);
    let line = [("coefficients", numbers(&[1.0, -0.5])), ("rho", numbers(&[0.125]))];
    yields(regressor, &[x], &line, &[floats(&[3, 1], &[1.125, 2.0, 0.125])]);
}

/// Types of maps are read and written.
#[test]
fn maps_of_classes_stay_in_files() {
    let (mut raw, _) =
        single(17, "ZipMap", &[In(floats(&[2, 2], &[0.25, 0.75, 1.0, 0.0]))], &[], 1);
    raw.opset_imports.insert(ML.into(), 1);
    let node = &mut raw.graph.nodes[0];
    node.domain = ML.into();
    node.attrs.insert("classlabels_int64s".into(), list(&[4, 6]));
    let containers = vec![Container::Sequence, Container::Map(DType::I64)];
    let declared = RawValueInfo { containers, ..raw.graph.outputs[0].clone() };
    raw.graph.outputs[0] = RawValueInfo { dims: Some(vec![]), ..declared };
    let bytes = mlc_onnx::to_bytes(&raw).expect("written");
    let back = mlc_onnx::parse_onnx(bytes.clone().into(), None).expect("read");
    assert_eq!(back.graph.outputs, raw.graph.outputs);
    // A run has no maps: it gives what they are made of.
    let run_of = |raw: RawModel| mlc_onnx::import(raw, library()).map_err(|e| e.to_string());
    let imported = run_of(raw.clone()).expect("is read");
    assert_eq!(imported.notes, ["`y0` is a tensor in place of maps: a column for each key, 4, 6"]);
    let rows = floats(&[2, 2], &[0.25, 0.75, 1.0, 0.0]);
    same(&run(&imported.program, std::slice::from_ref(&rows))[0], &rows, "ZipMap");
    let kept = mlc_onnx::import_with_opaque_nodes(
        raw.clone(),
        library(),
        &Default::default(),
        Loops::Kept,
    );
    assert_eq!(kept.expect("is kept").model.opaque.nodes.len(), 1);
    for keys in [vec![("classlabels_int64s", list(&[4, 6, 7]))], vec![]] {
        raw.graph.nodes[0].attrs = keys.into_iter().map(|(k, v)| (k.into(), v)).collect();
        let e = run_of(raw.clone()).expect_err("is refused");
        assert!(e.contains("it makes maps of") && e.contains("keys from f32[2, 2]"), "{e}");
    }
}

/// It makes a row of what it takes of a vector: a list of elements of a vector is no such row.
#[test]
fn elements_of_a_vector_are_not_written_as_a_row() {
    let shape = node("Reshape", &["x1", "x2"], &["list"], &[]);
    let (x, i) =
        (Sym(floats(&[3], &[4.0, 5.0, 6.0]), &["n"]), Sym(ints(&[1, 2], &[2, 0]), &["", "k"]));
    let nodes = vec![shape, node("Gather", &["x0", "list"], &["y"], &[])];
    let (mut raw, _) = model(17, &[x, i, Const(ints(&[1], &[-1]))], nodes, &["y"]);
    raw.opset_imports.insert(ML.into(), 1);
    let imported = mlc_onnx::import(raw, library()).expect("is read");
    let written = mlc_onnx::export(&imported.program, library(), &imported.model, 17);
    let operators: Vec<String> =
        written.expect("is written").graph.nodes.iter().map(|n| n.op_type.clone()).collect();
    assert!(!operators.iter().any(|o| o == "ArrayFeatureExtractor"), "{operators:?}");
}

/// Models that a runtime has saved import the domain of classical machine learning, which has names for sums and comparisons, too.
#[test]
fn what_is_usual_is_not_written_as_classical_machine_learning() {
    let nodes = vec![
        node("Greater", &["x0", "x1"], &["more"], &[]),
        node("Cast", &["more"], &["y"], &[("to", RawAttr::Int(7))]),
        node("Sub", &["x2", "x3"], &["less"], &[]),
        node("Mul", &["less", "x4"], &["z"], &[]),
    ];
    let (n, x) =
        (Sym(ints(&[3], &[4, 0, 1]), &["n"]), Sym(floats(&[1, 3], &[4.0, 5.0, 6.0]), &["b", ""]));
    let inputs = [
        n,
        Const(ints(&[], &[0])),
        x,
        Const(floats(&[3], &[1.0, 2.0, 3.0])),
        Const(floats(&[3], &[2.0, 4.0, 8.0])),
    ];
    let (mut raw, _) = model(17, &inputs, nodes, &["y", "z"]);
    raw.opset_imports.insert(ML.into(), 3);
    let imported = mlc_onnx::import(raw, library()).expect("is read");
    let written = mlc_onnx::export(&imported.program, library(), &imported.model, 17);
    for n in written.expect("is written").graph.nodes {
        assert_eq!(n.domain, "", "{}", n.op_type);
    }
}
