//! What is written: operators where they are defined and runtimes have code for them, shapes that hold for empty axes, names, and
//! operators whose composition gains nothing.

use super::super::support::*;
use mlc_onnx::{parse_onnx, to_bytes};
use mlc_rewrite::{Model, Optimizer};
use std::collections::BTreeSet;

const BOTH: [&str; 2] = ["standard", "onnxruntime"];

/// What the optimiser writes of a model.
#[track_caller]
fn optimized(raw: &RawModel, target: &str) -> RawModel {
    let model = Model::from_bytes(to_bytes(raw).expect("it is written")).expect("it is read");
    let result = Optimizer::new().target(target).threads(1).optimize(&model);
    let bytes = result.and_then(|r| r.to_bytes()).expect("it is optimised");
    parse_onnx(bytes.into(), None).expect("what is written can be read")
}

fn operators(raw: &RawModel) -> Vec<&str> {
    raw.graph.nodes.iter().map(|n| n.op_type.as_str()).collect()
}

/// The operators that both targets write of a model.
#[track_caller]
fn writes(raw: &RawModel, expected: &[&str]) {
    for target in BOTH {
        assert_eq!(operators(&optimized(raw, target)), expected, "{target}");
    }
}

fn of(dtype: DType, shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, shape.to_vec(), v)
}

/// A leaky rectifier, spelled out.
fn leaky(dtype: DType, shape: &[usize]) -> RawModel {
    let x = of(dtype, shape, &vec![1.0; shape.iter().product()]);
    let args = [In(x), Const(of(dtype, &[], &[0.0])), Const(of(dtype, &[], &[0.125]))];
    let nodes = vec![
        node("Greater", &["x0", "x1"], &["c"], &[]),
        node("Mul", &["x0", "x2"], &["m"], &[]),
        node("Where", &["c", "x0", "m"], &["y"], &[]),
    ];
    model(17, &args, nodes, &["y"]).0
}

#[test]
fn operators_are_written_for_types_that_runtimes_have_code_for() {
    let written = optimized(&leaky(DType::F32, &[4]), "standard");
    assert_eq!(operators(&written), ["LeakyRelu"]);
    for target in BOTH {
        let written = optimized(&leaky(DType::F64, &[4]), target);
        assert!(!operators(&written).contains(&"LeakyRelu"), "{:?}", operators(&written));
    }
    let product = |dtype: DType| {
        let (w, c) = (of(dtype, &[4, 4], &[2.0; 16]), of(dtype, &[4], &[1.0, 2.0, 3.0, 4.0]));
        let args = [In(of(dtype, &[3, 4], &[1.0; 12])), Const(w), Const(c)];
        let nodes = vec![
            node("MatMul", &["x0", "x1"], &["m"], &[]),
            node("Add", &["m", "x2"], &["y"], &[]),
        ];
        model(13, &args, nodes, &["y"]).0
    };
    writes(&product(DType::F32), &["Gemm"]);
    writes(&product(DType::I64), &["MatMul", "Add"]);
    writes(&product(DType::I32), &["MatMul", "Add"]);
}

#[test]
fn a_node_of_the_model_that_runtimes_have_no_code_for_stays() {
    let x = of(DType::I64, &[3, 4], &[1.0; 12]);
    let w = of(DType::I64, &[4, 2], &[2.0; 8]);
    let c = of(DType::I64, &[2], &[1.0; 2]);
    let (raw, _) = single(13, "Gemm", &[In(x), In(w), In(c)], &[], 1);
    writes(&raw, &["Gemm"]);
}

#[test]
fn operators_are_written_for_ranks_that_they_have() {
    // An instance norm of two axes is a product and a sum.
    let (x, c) = (floats(&[6, 2, 4, 4], &[1.0; 192]), floats(&[2], &[0.5, 0.75]));
    let args = [In(x), Const(c.clone()), Const(c)];
    let nodes = vec![
        node("GlobalAveragePool", &["x0"], &["p"], &[]),
        node("InstanceNormalization", &["p", "x1", "x2"], &["y"], &[]),
    ];
    let (raw, _) = model(18, &args, nodes, &["y"]);
    for target in BOTH {
        let written = optimized(&raw, target);
        let of_norm = |n: &&RawNode| n.op_type == "InstanceNormalization";
        for norm in written.graph.nodes.iter().filter(of_norm) {
            let input = written.graph.value_infos.iter().find(|v| v.name == norm.inputs[0]);
            let rank = input.and_then(|v| Some(v.dims.as_ref()?.len()));
            assert!(rank.is_none_or(|r| r >= 3), "{:?}", operators(&written));
        }
    }
    let spelled = |shape: &[usize]| {
        let x = floats(shape, &vec![0.5; shape.iter().product()]);
        let numbers = [0.5, 1.0, 2f64.sqrt()].map(|v| Const(floats(&[], &[v])));
        let args: Vec<Arg> = std::iter::once(In(x)).chain(numbers).collect();
        let nodes = vec![
            node("Div", &["x0", "x3"], &["d"], &[]),
            node("Erf", &["d"], &["e"], &[]),
            node("Add", &["e", "x2"], &["a"], &[]),
            node("Mul", &["x0", "a"], &["m"], &[]),
            node("Mul", &["m", "x1"], &["y"], &[]),
        ];
        model(17, &args, nodes, &["y"]).0
    };
    assert_eq!(operators(&optimized(&spelled(&[3]), "onnxruntime")), ["Gelu"]);
    let scalar = optimized(&spelled(&[]), "onnxruntime");
    assert!(!operators(&scalar).contains(&"Gelu"), "{:?}", operators(&scalar));
}

#[test]
fn inputs_that_may_not_be_left_out_are_written() {
    let scales = floats(&[4], &[1.0, 1.0, 2.0, 2.0]);
    for opset in [11, 12, 13, 18] {
        let x = floats(&[1, 2, 3, 3], &[1.0; 18]);
        let roi = Const(floats(&[0], &[]));
        let attrs = [
            ("mode", RawAttr::from("nearest")),
            ("coordinate_transformation_mode", RawAttr::from("asymmetric")),
            ("nearest_mode", RawAttr::from("floor")),
        ];
        let args = [In(x), roi, Const(scales.clone())];
        let (raw, _) = single(opset, "Resize", &args, &attrs, 1);
        let written = optimized(&raw, "standard");
        let is_absent = written.graph.nodes[0].inputs[1].is_empty();
        assert_eq!(is_absent, opset >= 13, "operator set {opset}");
    }
}

/// Runs of a written model and of its source on an input of these extents.
#[track_caller]
fn agrees(raw: &RawModel, written: &RawModel, shape: &[usize]) {
    let x = count(shape);
    let values = |raw: &RawModel| {
        let program = import(raw.clone(), library()).expect("it is read").program;
        run(&program, std::slice::from_ref(&x))
    };
    for (found, expected) in values(written).iter().zip(&values(raw)) {
        same(found, expected, &format!("{:?} of {shape:?}", operators(written)));
    }
}

const SYMBOLS: &[&str] = &["n", "m", "k"];

#[test]
fn shapes_are_written_in_forms_that_hold_for_empty_axes() {
    let x = || Sym(count(&[2, 3, 4]), SYMBOLS);
    for axis in 0..=3 {
        for opset in [11, 13, 17] {
            let (raw, _) = single(opset, "Flatten", &[x()], &[("axis", int(axis))], 1);
            for target in BOTH {
                let written = optimized(&raw, target);
                let found = operators(&written);
                let is_constant = found == ["Reshape"]
                    && written.graph.initializers.values().all(|t| {
                        // One extent is found out beside what is no symbol.
                        t.len() == 2 && (0..2).all(|i| t.get_i64(i) != 0)
                    });
                assert!(found == ["Flatten"] || is_constant, "{axis} at {opset}: {found:?}");
                for shape in [[2, 3, 4], [0, 3, 4], [2, 0, 4], [2, 3, 0], [1, 1, 1]] {
                    agrees(&raw, &written, &shape);
                }
            }
        }
    }
}

#[test]
fn unit_axes_of_open_shapes_are_written_as_such() {
    let x = || Sym(count(&[2, 1, 3, 1]), &["n", "", "m", ""]);
    let squeezes = |opset: i64| {
        let is_input = opset >= 13;
        let axes = if is_input { vec![Const(ints(&[1], &[1]))] } else { vec![] };
        let more = if is_input { vec![] } else { vec![("axes", list(&[1]))] };
        let inputs = |x: &'static str| if axes.is_empty() { vec![x] } else { vec![x, "x1"] };
        let nodes = vec![
            node("Squeeze", &inputs("x0"), &["a"], &more),
            node("Transpose", &["a"], &["t"], &[("perm", list(&[1, 0, 2]))]),
            node("Relu", &["t"], &["y"], &[]),
        ];
        model(opset, &[vec![x()], axes.clone()].concat(), nodes, &["y"]).0
    };
    for opset in [11, 13, 18] {
        for target in BOTH {
            let raw = squeezes(opset);
            let written = optimized(&raw, target);
            assert!(written.graph.nodes.len() <= 3, "{opset}: {:?}", operators(&written));
        }
    }
    let two = vec![
        node("Squeeze", &["x0", "x1"], &["a"], &[]),
        node("Squeeze", &["a", "x2"], &["y"], &[]),
    ];
    let axes = [x(), Const(ints(&[1], &[1])), Const(ints(&[1], &[2]))];
    let raw = model(17, &axes, two, &["y"]).0;
    for target in BOTH {
        let written = optimized(&raw, target);
        let found = operators(&written);
        assert!(found == ["Squeeze"] || found == ["Flatten"], "{found:?}");
    }
}

#[test]
fn pools_are_written_where_there_is_something_to_pool() {
    let image = |symbols| Sym(count(&[2, 3, 4, 5]), symbols);
    let mean = |symbols| {
        let attrs = [("axes", list(&[2, 3])), ("keepdims", int(1))];
        single(17, "ReduceMean", &[image(symbols)], &attrs, 1).0
    };
    writes(&mean(&["n", "", "h", "w"]), &["ReduceMean"]);
    writes(&mean(&["n"]), &["GlobalAveragePool"]);
    for op in ["GlobalAveragePool", "GlobalMaxPool"] {
        let attrs = [("kernel_shape", list(&[3, 3])), ("strides", list(&[2, 2]))];
        let nodes = vec![
            node("Conv", &["x0", "x1"], &["c"], &attrs),
            node(op, &["c"], &["p"], &[]),
            node("Relu", &["p"], &["y"], &[]),
        ];
        let args = [image(&["n", "", "h", "w"]), Const(count(&[2, 3, 3, 3]))];
        let written = optimized(&model(17, &args, nodes, &["y"]).0, "standard");
        assert!(operators(&written).contains(&op), "{:?}", operators(&written));
    }
}

#[test]
fn laws_do_not_put_an_operator_where_it_cannot_be_written() {
    let nodes =
        vec![node("Pad", &["x0", "x1"], &["p"], &[]), node("Less", &["p", "x2"], &["y"], &[])];
    let pads = ints(&[6], &[1, 0, -1, 1, 0, 1]);
    for symbols in [&["n", "m", "k"], &["", "", ""]] {
        let args =
            [Sym(count(&[3, 2, 4]), symbols), Const(pads.clone()), Const(floats(&[1], &[-1.0]))];
        // Truth values are padded since 13.
        writes(&model(11, &args, nodes.clone(), &["y"]).0, &["Pad", "Less"]);
    }
    // What is repeated would be reshaped to a computed extent, whose 0 copies.
    let args = [Sym(count(&[2, 3, 3]), &["a", "b", "b"])];
    let twice = vec![node("Concat", &["x0", "x0"], &["y"], &[("axis", int(0))])];
    for opset in [8, 13] {
        writes(&model(opset, &args, twice.clone(), &["y"]).0, &["Concat"]);
    }
}

#[test]
fn reshapes_whose_computed_zeros_would_copy_wait_for_allowzero() {
    for (from, to, since) in [
        ("a, b, 4", "a * b, 4", 11),
        ("a, b, c", "a * b, c", 11),
        ("a, b", "b, a", 14),
        ("a, b, 4", "a, 4, b", 14),
        ("a, b, c, 4", "c, a, b, 4", 14),
    ] {
        let text = format!("def f(x: f32[{from}]) -> f32[{to}]\n  = reshape(x, shape=[{to}])\n");
        let model = Model::from_rules(&text).expect("it is read");
        for opset in [11, 13, 14] {
            let result = Optimizer::new().target("standard").opset(opset).optimize(&model);
            let written = result.and_then(|r| r.to_bytes());
            assert_eq!(written.is_ok(), opset >= since, "[{from}] to [{to}] at {opset}");
        }
    }
}

#[test]
fn half_of_a_spectrum_is_asked_for_by_name() {
    let step = Tensor::from_i64(DType::I64, vec![], &[2]);
    let args = [Sym(count(&[2, 8, 1]), &["n"]), Const(step), Const(floats(&[4], &[1.0; 4]))];
    let written = optimized(&single(17, "STFT", &args, &[], 1).0, "standard");
    let stft = written.graph.nodes.iter().find(|n| n.op_type == "STFT").expect("it is written");
    assert_eq!(stft.attrs.get("onesided"), Some(&int(1)));
}

#[test]
fn constants_that_kept_nodes_read_are_outputs() {
    let c = floats(&[2], &[1.0, 2.0]);
    let args = [In(floats(&[4], &[1.0; 4])), Const(c)];
    let nodes = vec![node("Unique", &["x1"], &["u"], &[])];
    let (raw, _) = model(18, &args, nodes, &["u", "x1"]);
    for target in BOTH {
        let written = optimized(&raw, target);
        assert!(written.graph.initializers.contains_key("x1"), "{target}");
    }
    // A value that is computed is both, too.
    let args = [In(floats(&[4], &[1.0; 4]))];
    let nodes = vec![
        node("Relu", &["x0"], &["r"], &[]),
        node("Unique", &["r"], &["u"], &[]),
        node("Neg", &["r"], &["y"], &[]),
    ];
    let (raw, _) = model(18, &args, nodes, &["u", "r", "y"]);
    for target in BOTH {
        let written = optimized(&raw, target);
        let found: BTreeSet<&str> = operators(&written).into_iter().collect();
        assert!(found == ["Neg", "Relu", "Unique"].into() && written.graph.nodes.len() == 3);
    }
}

#[test]
fn parameters_of_texts_may_be_called_like_results() {
    let text = "def twice(y: f32[n]) -> f32[n]\n  = y + y * 0.5\n";
    let model = Model::from_rules(text).expect("it is read");
    for check in [true, false] {
        let result = Optimizer::new().target("standard").check(check).optimize(&model);
        let bytes = result.and_then(|r| r.to_bytes()).expect("it is written");
        let raw = parse_onnx(bytes.into(), None).expect("it is read back");
        assert_eq!((&*raw.graph.inputs[0].name, &*raw.graph.outputs[0].name), ("y", "y_1"));
    }
}

#[test]
fn operators_whose_composition_gains_nothing_are_written_as_themselves() {
    let x = || Sym(count(&[3, 4]), &["n", ""]);
    let last = [("axis", int(1)), ("keepdims", int(0)), ("select_last_index", int(1))];
    for op in ["ArgMax", "ArgMin"] {
        writes(&single(17, op, &[x()], &last, 1).0, &[op]);
        writes(&single(13, op, &[In(count(&[3, 4]))], &last, 1).0, &[op]);
    }
    let indices = Const(ints(&[2, 2], &[0, 1, 2, 3]));
    writes(&single(17, "GatherND", &[x(), indices], &[], 1).0, &["GatherND"]);
    let scale = || Const(floats(&[4], &[1.0, 2.0, 3.0, 4.0]));
    let norm = single(17, "LayerNormalization", &[x(), scale(), scale()], &[], 3).0;
    writes(&norm, &["LayerNormalization"]);
    let heads = |n: usize| Sym(count(&[1, n, 3, 4]), &["b", "", "s", ""]);
    let attention = single(23, "Attention", &[heads(4), heads(2), heads(2)], &[], 1).0;
    writes(&attention, &["Attention"]);
    // What is around it is optimised.
    let nodes = vec![
        node("Add", &["x0", "x1"], &["a"], &[]),
        node("ArgMax", &["a"], &["p"], &last),
        node("Cast", &["p"], &["y"], &[("to", int(1))]),
    ];
    let raw = model(17, &[x(), Const(floats(&[1], &[0.0]))], nodes, &["y"]).0;
    writes(&raw, &["ArgMax", "Cast"]);
}

#[test]
fn files_that_gain_nothing_are_written_as_they_are() {
    // The last rows before the last three, of as many as there are, and their number.
    let nodes = vec![
        node("Shape", &["x0"], &["s"], &[]),
        node("Gather", &["s", "x1"], &["n"], &[]),
        node("Sub", &["n", "x2"], &["end"], &[]),
        node("Div", &["end", "x3"], &["start"], &[]),
        node("Slice", &["x0", "start", "end", "x1"], &["y"], &[]),
        node("Shape", &["y"], &["z"], &[]),
    ];
    let x = Sym(count(&[5, 2]), &["n", "k"]);
    let numbers = [0, 3, 2].map(|n| Const(ints(&[1], &[n])));
    let raw = model(17, &[&[x][..], &numbers].concat(), nodes, &["y", "z"]).0;
    for target in BOTH {
        let written = optimized(&raw, target);
        assert!(written.graph.nodes.len() <= 6, "{:?}", operators(&written));
    }
}

#[test]
fn a_product_of_an_open_batch_is_one_node() {
    let x = Sym(count(&[2, 3, 64]), &["b", "s", ""]);
    let w = Const(floats(&[64, 64], &[0.5; 64 * 64]));
    writes(&single(17, "MatMul", &[x, w], &[], 1).0, &["MatMul"]);
}

/// Shapes that are computed cost a node each, which small extents do not earn back.
#[test]
fn a_product_and_a_sum_of_open_extents_stay_two_nodes() {
    let x = Sym(count(&[2, 3, 4]), &["b", "s", "k"]);
    let w = Sym(count(&[4, 5]), &["k", "n"]);
    let nodes =
        vec![node("MatMul", &["x0", "x1"], &["p"], &[]), node("Add", &["p", "x2"], &["y"], &[])];
    let raw = model(17, &[x, w, Sym(count(&[5]), &["n"])], nodes, &["y"]).0;
    writes(&raw, &["MatMul", "Add"]);
}

#[test]
fn one_node_reads_the_extent_of_an_axis_from_a_shape() {
    for opset in [12, 17] {
        let nodes = vec![
            node("Shape", &["x0"], &["s"], &[]),
            node("Gather", &["s", "x1"], &["n"], &[]),
            node("Range", &["x2", "n", "x3"], &["y"], &[]),
        ];
        let numbers = [1, 0, 1].map(|n| Const(ints(&[], &[n])));
        let x = Sym(count(&[2, 5]), &["b", "n"]);
        let raw = model(opset, &[&[x][..], &numbers].concat(), nodes, &["y"]).0;
        writes(&raw, &["Shape", "Gather", "Range"]);
    }
}

/// Before operator set 14 no `Reshape` merges an open axis with what repeats it, as long as another one may be 0.
#[test]
fn a_repetition_of_open_axes_is_one_node() {
    for opset in [6, 13, 17] {
        let x = Sym(count(&[2, 3]), &["n", "k"]);
        let raw = single(opset, "Tile", &[x, Const(ints(&[2], &[1, 2]))], &[], 1).0;
        writes(&raw, &["Tile"]);
    }
    // Axes of one element come and go: one shape in place of two would have to be computed.
    let x = || count(&[1, 2, 3]);
    for x in [Sym(x(), &["", "n", "k"]), Sym(x(), &["one", "n", "k"])] {
        let nodes = vec![
            node("Squeeze", &["x0", "x1"], &["s"], &[]),
            node("Tile", &["s", "x2"], &["y"], &[]),
        ];
        let numbers = [ints(&[1], &[0]), ints(&[2], &[1, 2])].map(Const);
        let raw = model(13, &[&[x][..], &numbers].concat(), nodes, &["y"]).0;
        writes(&raw, &["Squeeze", "Tile"]);
    }
}
