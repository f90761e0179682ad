//! Operators, each in a model of its own.

use super::support::*;

#[test]
fn pointwise_operators_compute() {
    let x = || In(floats(&[5], &[-2.0, -0.5, 0.0, 0.5, 2.0]));
    type Case = (&'static str, fn(f64) -> f64);
    let table: &[Case] = &[
        ("Neg", |x| -x),
        ("Abs", f64::abs),
        ("Exp", f64::exp),
        ("Tanh", f64::tanh),
        ("Sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
        ("Sin", f64::sin),
        ("Cos", f64::cos),
        ("Atan", f64::atan),
        ("Sinh", f64::sinh),
        ("Cosh", f64::cosh),
        ("Asinh", f64::asinh),
        ("Floor", f64::floor),
        ("Ceil", f64::ceil),
        ("Round", f64::round_ties_even),
        ("Reciprocal", f64::recip),
        ("Relu", |x| x.max(0.0)),
        ("LeakyRelu", |x| if x < 0.0 { 0.01 * x } else { x }),
        ("ThresholdedRelu", |x| if x > 1.0 { x } else { 0.0 }),
        ("Elu", |x| if x < 0.0 { x.exp() - 1.0 } else { x }),
        ("Softplus", |x| x.exp().ln_1p()),
        ("Softsign", |x| x / (1.0 + x.abs())),
        ("HardSigmoid", |x| (0.2 * x + 0.5).clamp(0.0, 1.0)),
        ("HardSwish", |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        ("Mish", |x| x * x.exp().ln_1p().tanh()),
        ("Shrink", |x| if x.abs() > 0.5 { x } else { 0.0 }),
    ];
    for (op, f) in table {
        let y: Vec<f64> = [-2.0, -0.5, 0.0, 0.5, 2.0].into_iter().map(f).collect();
        check(op, &[x()], &[], &[floats(&[5], &y)]);
    }
}

#[test]
fn operands_broadcast() {
    let a = || In(count(&[2, 3]));
    check(
        "Add",
        &[a(), In(floats(&[3], &[10.0, 20.0, 30.0]))],
        &[],
        &[floats(&[2, 3], &[10.0, 21.0, 32.0, 13.0, 24.0, 35.0])],
    );
    check(
        "Sub",
        &[In(count(&[2, 1])), In(count(&[3]))],
        &[],
        &[floats(&[2, 3], &[0.0, -1.0, -2.0, 1.0, 0.0, -1.0])],
    );
    check(
        "Mul",
        &[a(), Const(floats(&[1, 1, 1], &[2.0]))],
        &[],
        &[floats(&[1, 2, 3], &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0])],
    );
    check(
        "Div",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[], &[2]))],
        &[],
        &[ints(&[4], &[-3, 3, -3, 3])],
    );
    check(
        "Mod",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[4], &[3, 3, -3, -3]))],
        &[],
        &[ints(&[4], &[2, 1, -1, -2])],
    );
    check(
        "Mod",
        &[In(ints(&[4], &[-7, 7, -7, 7])), Const(ints(&[], &[3]))],
        &[("fmod", int(1))],
        &[ints(&[4], &[-1, 1, -1, 1])],
    );
    check(
        "Pow",
        &[In(count(&[3])), Const(ints(&[], &[2]))],
        &[],
        &[floats(&[3], &[0.0, 1.0, 4.0])],
    );
    check(
        "Where",
        &[In(bools(&[2, 1], &[1, 0])), a(), Const(floats(&[], &[-1.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 2.0, -1.0, -1.0, -1.0])],
    );
    check(
        "GreaterOrEqual",
        &[a(), Const(floats(&[], &[2.0]))],
        &[],
        &[bools(&[2, 3], &[0, 0, 1, 1, 1, 1])],
    );
    check(
        "Mean",
        &[a(), In(count(&[3])), In(count(&[2, 1]))],
        &[],
        &[floats(&[2, 3], &[0.0, 2.0 / 3.0, 4.0 / 3.0, 4.0 / 3.0, 2.0, 8.0 / 3.0])],
    );
    check(
        "Max",
        &[a(), Const(floats(&[3], &[4.0, 0.0, 3.0]))],
        &[],
        &[floats(&[2, 3], &[4.0, 1.0, 3.0, 4.0, 4.0, 5.0])],
    );
    check(
        "Clip",
        &[a(), Const(floats(&[], &[1.0])), Const(floats(&[], &[3.0]))],
        &[],
        &[floats(&[2, 3], &[1.0, 1.0, 2.0, 3.0, 3.0, 3.0])],
    );
    check(
        "Clip",
        &[a(), Absent, In(floats(&[], &[2.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 2.0, 2.0, 2.0, 2.0])],
    );
    check(
        "Cast",
        &[In(floats(&[3], &[-1.5, 0.0, 2.7]))],
        &[("to", int(7))],
        &[ints(&[3], &[-1, 0, 2])],
    );
}

#[test]
fn elements_move() {
    let x = || In(count(&[2, 3]));
    check("Transpose", &[x()], &[], &[floats(&[3, 2], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0])]);
    check("Reshape", &[x(), Const(ints(&[2], &[-1, 2]))], &[], &[count(&[3, 2])]);
    check("Flatten", &[In(count(&[2, 3, 2]))], &[("axis", int(2))], &[count(&[6, 2])]);
    check("Unsqueeze", &[x(), Const(ints(&[2], &[0, -1]))], &[], &[count(&[1, 2, 3, 1])]);
    check("Squeeze", &[In(count(&[1, 2, 1]))], &[], &[count(&[2])]);
    check(
        "Expand",
        &[In(count(&[2, 1])), Const(ints(&[3], &[1, 1, 2]))],
        &[],
        &[floats(&[1, 2, 2], &[0.0, 0.0, 1.0, 1.0])],
    );
    check(
        "Tile",
        &[In(count(&[1, 2])), Const(ints(&[2], &[2, 2]))],
        &[],
        &[floats(&[2, 4], &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0])],
    );
    check(
        "Concat",
        &[x(), In(count(&[1, 3])), In(count(&[1, 3]))],
        &[("axis", int(0))],
        &[floats(&[4, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0])],
    );
    check(
        "Split",
        &[x(), Const(ints(&[2], &[1, 2]))],
        &[("axis", int(-1))],
        &[floats(&[2, 1], &[0.0, 3.0]), floats(&[2, 2], &[1.0, 2.0, 4.0, 5.0])],
    );
    check(
        "Slice",
        &[
            x(),
            Const(ints(&[1], &[-1])),
            Const(ints(&[1], &[i64::MIN + 1])),
            Const(ints(&[1], &[1])),
            Const(ints(&[1], &[-2])),
        ],
        &[],
        &[floats(&[2, 2], &[2.0, 0.0, 5.0, 3.0])],
    );
    check(
        "Pad",
        &[x(), Const(ints(&[4], &[0, 1, 0, 0])), Const(floats(&[], &[9.0]))],
        &[],
        &[floats(&[2, 4], &[9.0, 0.0, 1.0, 2.0, 9.0, 3.0, 4.0, 5.0])],
    );
    check(
        "DepthToSpace",
        &[In(count(&[1, 4, 1, 1]))],
        &[("blocksize", int(2))],
        &[count(&[1, 1, 2, 2])],
    );
    check(
        "Gather",
        &[x(), In(ints(&[2], &[-1, 0]))],
        &[("axis", int(1))],
        &[floats(&[2, 2], &[2.0, 0.0, 5.0, 3.0])],
    );
    check(
        "GatherElements",
        &[x(), In(ints(&[1, 3], &[1, 0, -1]))],
        &[],
        &[floats(&[1, 3], &[3.0, 1.0, 5.0])],
    );
    check("GatherND", &[x(), In(ints(&[2, 2], &[0, 1, -1, 2]))], &[], &[floats(&[2], &[1.0, 5.0])]);
    check("Shape", &[x()], &[("start", int(1))], &[ints(&[1], &[3])]);
    check(
        "Range",
        &[Const(ints(&[], &[7])), Const(ints(&[], &[1])), Const(ints(&[], &[-2]))],
        &[],
        &[ints(&[3], &[7, 5, 3])],
    );
    check(
        "OneHot",
        &[In(ints(&[2], &[1, -1])), Const(ints(&[], &[3])), Const(floats(&[2], &[0.0, 1.0]))],
        &[],
        &[floats(&[2, 3], &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0])],
    );
    check(
        "CumSum",
        &[x(), Const(ints(&[], &[1]))],
        &[("exclusive", int(1))],
        &[floats(&[2, 3], &[0.0, 0.0, 1.0, 0.0, 3.0, 7.0])],
    );
}

#[test]
fn reductions_and_products_compute() {
    let x = || In(count(&[2, 3]));
    let axis = |a: i64| Const(ints(&[1], &[a]));
    check("ReduceSum", &[x(), axis(1)], &[], &[floats(&[2, 1], &[3.0, 12.0])]);
    check(
        "ReduceMean",
        &[x(), axis(-2)],
        &[("keepdims", int(0))],
        &[floats(&[3], &[1.5, 2.5, 3.5])],
    );
    check("ReduceMax", &[x()], &[("keepdims", int(0))], &[floats(&[], &[5.0])]);
    check("ReduceL2", &[x(), axis(0)], &[], &[floats(&[1, 3], &[3.0, 17f64.sqrt(), 29f64.sqrt()])]);
    check(
        "ReduceLogSumExp",
        &[x(), axis(1)],
        &[("keepdims", int(0))],
        &[floats(&[2], &[2.407606, 5.407606])],
    );
    check("ArgMax", &[x()], &[("axis", int(1)), ("keepdims", int(0))], &[ints(&[2], &[2, 2])]);
    check(
        "Softmax",
        &[In(floats(&[1, 2], &[0.0, 3f64.ln()]))],
        &[],
        &[floats(&[1, 2], &[0.25, 0.75])],
    );
    check("MatMul", &[In(count(&[3])), In(count(&[3, 2]))], &[], &[floats(&[2], &[10.0, 13.0])]);
    check(
        "MatMul",
        &[In(count(&[2, 1, 2])), In(count(&[2, 2]))],
        &[],
        &[floats(&[2, 1, 2], &[2.0, 3.0, 6.0, 11.0])],
    );
    check(
        "Gemm",
        &[In(count(&[2, 2])), In(count(&[2, 2])), In(count(&[2]))],
        &[("transB", int(1)), ("alpha", RawAttr::Float(2.0))],
        &[floats(&[2, 2], &[2.0, 7.0, 6.0, 27.0])],
    );
    check(
        "Einsum",
        &[In(count(&[2, 2])), In(count(&[3, 2]))],
        &[("equation", RawAttr::from("ij,kj->ki"))],
        &[floats(&[3, 2], &[1.0, 3.0, 3.0, 13.0, 5.0, 23.0])],
    );
    check(
        "Conv",
        &[
            In(count(&[1, 1, 3, 3])),
            Const(floats(&[1, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0])),
            Const(floats(&[1], &[10.0])),
        ],
        &[],
        &[floats(&[1, 1, 2, 2], &[14.0, 16.0, 20.0, 22.0])],
    );
    check(
        "ConvTranspose",
        &[In(count(&[1, 1, 2])), Const(floats(&[1, 1, 2], &[1.0, 3.0]))],
        &[("strides", list(&[2]))],
        &[floats(&[1, 1, 4], &[0.0, 0.0, 1.0, 3.0])],
    );
    check(
        "MaxPool",
        &[In(count(&[1, 1, 5]))],
        &[("kernel_shape", list(&[2])), ("strides", list(&[2])), ("ceil_mode", int(1))],
        &[floats(&[1, 1, 3], &[1.0, 3.0, 4.0])],
    );
    check(
        "AveragePool",
        &[In(count(&[1, 1, 4]))],
        &[("kernel_shape", list(&[3])), ("pads", list(&[1, 1]))],
        &[floats(&[1, 1, 4], &[0.5, 1.0, 2.0, 2.5])],
    );
    check(
        "GlobalAveragePool",
        &[In(count(&[1, 2, 2, 1]))],
        &[],
        &[floats(&[1, 2, 1, 1], &[0.5, 2.5])],
    );
}

#[test]
fn normalisations_and_recurrences_compute() {
    let ones = |n: usize| Const(floats(&[n], &vec![1.0; n]));
    let zeros = |n: usize| Const(floats(&[n], &vec![0.0; n]));
    check(
        "BatchNormalization",
        &[In(count(&[1, 2, 1])), ones(2), zeros(2), Const(floats(&[2], &[1.0, -1.0])), ones(2)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 2, 1], &[-1.0, 2.0])],
    );
    check(
        "LayerNormalization",
        &[In(floats(&[1, 2], &[1.0, 3.0])), ones(2)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 2], &[-1.0, 1.0])],
    );
    check(
        "InstanceNormalization",
        &[In(floats(&[1, 1, 2], &[1.0, 3.0])), ones(1), zeros(1)],
        &[("epsilon", RawAttr::Float(0.0))],
        &[floats(&[1, 1, 2], &[-1.0, 1.0])],
    );
    let (w, r) = (floats(&[1, 4, 1], &[0.0; 4]), floats(&[1, 4, 1], &[0.0; 4]));
    let bias = floats(&[1, 8], &[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    // Gates are one half and the candidate is tanh(1): c = t/2, h = tanh(t/2)/2.
    let h = 0.5 * (0.5 * 1f64.tanh()).tanh();
    check(
        "LSTM",
        &[In(count(&[1, 1, 1])), Const(w), Const(r), Const(bias)],
        &[("hidden_size", int(1))],
        &[floats(&[1, 1, 1, 1], &[h]), floats(&[1, 1, 1], &[h])],
    );
}

/// Labels that are ignored count neither above nor below the line.
#[test]
fn losses_compute() {
    let x = || In(floats(&[2, 2], &[-1.0, -2.0, -3.0, -4.0]));
    let labels = |v: &[i64]| In(ints(&[2], v));
    let word = |w: &str| [("reduction", RawAttr::from(w))];
    let loss = "NegativeLogLikelihoodLoss";
    check(loss, &[x(), labels(&[1, 0])], &[], &[floats(&[], &[2.5])]);
    check(loss, &[x(), labels(&[1, 0])], &word("sum"), &[floats(&[], &[5.0])]);
    check(loss, &[x(), labels(&[1, 0])], &word("none"), &[floats(&[2], &[2.0, 3.0])]);
    let weight = || Const(floats(&[2], &[1.0, 3.0]));
    check(loss, &[x(), labels(&[1, 0]), weight()], &[], &[floats(&[], &[2.25])]);
    let ignored = [("ignore_index", int(-5))];
    check(loss, &[x(), labels(&[1, -5]), weight()], &ignored, &[floats(&[], &[2.0])]);
    check(loss, &[x(), labels(&[-5, 0])], &ignored, &[floats(&[], &[3.0])]);
    let half = 0.5f64.ln();
    check(
        "SoftmaxCrossEntropyLoss",
        &[In(floats(&[1, 2], &[7.0, 7.0])), In(ints(&[1], &[1]))],
        &[],
        &[floats(&[], &[-half]), floats(&[1, 2], &[half, half])],
    );
}

/// A key that was cached, a query that sees nothing, scores that are capped, and windows.
#[test]
fn attention_with_caches_and_masks_computes() {
    let run = |args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[Tensor]| {
        let (raw, feeds) = single(24, "Attention", args, attrs, expected.len());
        check_at(&[], raw, &feeds, expected);
    };
    let one = |rows: usize, v: &[f64]| floats(&[1, 1, rows, 1], v);
    let q = || In(one(2, &[0.0, 0.0]));
    let k = || In(one(2, &[1.0, 1.0]));
    let v = || In(one(2, &[2.0, 4.0]));
    let causal = ("is_causal", int(1));
    run(
        &[q(), k(), v(), Absent, In(one(1, &[5.0])), In(one(1, &[6.0]))],
        std::slice::from_ref(&causal),
        &[one(2, &[4.0, 4.0]), one(3, &[5.0, 1.0, 1.0]), one(3, &[6.0, 2.0, 4.0])],
    );
    let mask = In(bools(&[2, 2], &[0, 0, 0, 1]));
    run(&[q(), k(), v(), mask], &[], &[one(2, &[0.0, 4.0])]);
    let mask = In(floats(&[2, 2], &[f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0, 0.0]));
    run(&[q(), k(), v(), mask], &[], &[one(2, &[0.0, 3.0])]);
    let filled = In(ints(&[1], &[1]));
    run(&[q(), k(), v(), Absent, Absent, Absent, filled], &[], &[one(2, &[2.0, 2.0])]);
    let mask = In(floats(&[1, 1, 1, 1], &[0.0]));
    run(&[q(), k(), v(), mask], &[], &[one(2, &[2.0, 2.0])]);
    run(&[q(), k(), v()], &[("left_window_size", int(0)), causal], &[one(2, &[2.0, 4.0])]);
    let empty = floats(&[1, 1, 0, 1], &[]);
    let capped = [("softcap", RawAttr::Float(2.0)), ("qk_matmul_output_mode", int(1))];
    let score = 2.0 * 1.5f64.tanh();
    run(
        &[
            In(one(1, &[3.0])),
            In(one(1, &[1.0])),
            In(one(1, &[9.0])),
            Absent,
            In(empty.clone()),
            In(empty),
        ],
        &capped,
        &[one(1, &[9.0]), one(1, &[1.0]), one(1, &[9.0]), one(1, &[score])],
    );
}

#[test]
fn quantized_products_compute() {
    let bytes = |shape: &[usize], v: &[i64]| Tensor::from_i64(DType::U8, shape.to_vec(), v);
    let whole = |shape: &[usize], v: &[i64]| Tensor::from_i64(DType::I32, shape.to_vec(), v);
    let scale = |v: f64| Const(floats(&[], &[v]));
    let zero = |v: i64| Const(bytes(&[], &[v]));
    check(
        "MatMulInteger",
        &[In(bytes(&[2, 1], &[3, 5])), In(bytes(&[1, 1], &[4])), Const(bytes(&[2], &[1, 2]))],
        &[],
        &[whole(&[2, 1], &[8, 12])],
    );
    check(
        "ConvInteger",
        &[In(bytes(&[1, 1, 3], &[1, 2, 4])), In(bytes(&[1, 1, 2], &[1, 3])), zero(1)],
        &[],
        &[whole(&[1, 1, 2], &[3, 10])],
    );
    check(
        "ConvInteger",
        &[In(bytes(&[1, 1, 3], &[1, 2, 4])), In(bytes(&[1, 1, 2], &[1, 3]))],
        &[],
        &[whole(&[1, 1, 2], &[7, 14])],
    );
    let quantized = |args: [Tensor; 2]| {
        let [x, w] = args.map(In);
        [x, scale(0.5), zero(1), w, scale(0.5), zero(0), scale(1.0), zero(7)]
    };
    let args = quantized([bytes(&[1, 1], &[9]), bytes(&[1, 1], &[3])]);
    check("QLinearMatMul", &args, &[], &[bytes(&[1, 1], &[13])]);
    let args = quantized([bytes(&[1, 1, 1], &[201]), bytes(&[1, 1, 1], &[255])]);
    check("QLinearConv", &args, &[], &[bytes(&[1, 1, 1], &[255])]);
    // Sums 14, 18 and 2, 10 with the bias: 3.5, 4.5 and 0.25, 1.25.
    let (scales, zeros) = (Const(floats(&[2], &[0.5, 0.25])), Const(bytes(&[2], &[1, 1])));
    let bias = Const(whole(&[2], &[10, -6]));
    let (x, w) = (In(bytes(&[1, 1, 2], &[3, 5])), Const(bytes(&[2, 1, 1], &[3, 5])));
    let args = [x, scale(0.5), zero(1), w, scales, zeros, scale(1.0), zero(7), bias];
    check("QLinearConv", &args, &[], &[bytes(&[1, 2, 2], &[11, 11, 7, 8])]);
    // Both sums are 16: 4 and 2.
    let (scales, zeros) = (Const(floats(&[2], &[0.5, 0.25])), Const(bytes(&[2], &[2, 4])));
    let (a, b) = (In(bytes(&[1, 2], &[3, 5])), Const(bytes(&[2, 2], &[2, 4, 6, 8])));
    let args = [a, scale(0.5), zero(1), b, scales, zeros, scale(1.0), zero(7)];
    check("QLinearMatMul", &args, &[], &[bytes(&[1, 2], &[11, 9])]);
    check(
        "DequantizeLinear",
        &[In(bytes(&[1, 4], &[1, 2, 3, 4])), Const(floats(&[1, 2], &[1.0, 0.5]))],
        &[("block_size", int(2))],
        &[floats(&[1, 4], &[1.0, 2.0, 1.5, 2.0])],
    );
    check(
        "DynamicQuantizeLinear",
        &[In(floats(&[2], &[-1.0, 254.0]))],
        &[],
        &[bytes(&[2], &[0, 255]), floats(&[], &[1.0]), bytes(&[], &[1])],
    );
}

#[test]
fn windows_and_their_inverses_compute() {
    let size = || Const(ints(&[], &[4]));
    check("HannWindow", &[size()], &[], &[floats(&[4], &[0.0, 0.5, 1.0, 0.5])]);
    let whole = [("periodic", int(0))];
    check("HannWindow", &[size()], &whole, &[floats(&[4], &[0.0, 0.75, 0.75, 0.0])]);
    check("BlackmanWindow", &[size()], &[], &[floats(&[4], &[0.0, 0.34, 1.0, 0.34])]);
    let low = 4.0 / 46.0;
    let middle = 25.0 / 46.0;
    check("HammingWindow", &[size()], &[], &[floats(&[4], &[low, middle, 1.0, middle])]);
    check(
        "MaxUnpool",
        &[In(floats(&[1, 1, 2], &[5.0, 6.0])), In(ints(&[1, 1, 2], &[1, 2]))],
        &[("kernel_shape", list(&[2])), ("strides", list(&[2]))],
        &[floats(&[1, 1, 4], &[0.0, 5.0, 6.0, 0.0])],
    );
    check(
        "Col2Im",
        &[In(count(&[1, 2, 2])), Const(ints(&[1], &[3])), Const(ints(&[1], &[2]))],
        &[],
        &[floats(&[1, 1, 3], &[0.0, 3.0, 3.0])],
    );
    check("Det", &[In(count(&[2, 2]))], &[], &[floats(&[], &[-2.0])]);
    check(
        "LpNormalization",
        &[In(floats(&[2, 2], &[3.0, 4.0, 0.0, 0.0]))],
        &[],
        &[floats(&[2, 2], &[0.6, 0.8, 0.0, 0.0])],
    );
}

/// As NumPy has it: NaN is larger than the largest and smaller than the smallest element.
#[test]
fn the_place_of_an_extreme_is_that_of_the_first_nan() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let rows =
        [[1.0, nan, 3.0, 4.0], [4.0, 2.0, 1.0, 1.0], [nan, nan, 0.0, 0.0], [-inf, inf, inf, nan]];
    let x = || In(floats(&[4, 4], &rows.concat()));
    let along =
        |last: i64| [("axis", int(1)), ("keepdims", int(0)), ("select_last_index", int(last))];
    check("ArgMax", &[x()], &along(0), &[ints(&[4], &[1, 0, 0, 3])]);
    check("ArgMin", &[x()], &along(0), &[ints(&[4], &[1, 2, 0, 3])]);
    check("ArgMax", &[x()], &along(1), &[ints(&[4], &[1, 0, 1, 3])]);
    check("ArgMin", &[x()], &along(1), &[ints(&[4], &[1, 3, 1, 3])]);
    let kept = [("axis", int(0)), ("keepdims", int(1))];
    check("ArgMax", &[x()], &kept, &[ints(&[1, 4], &[2, 0, 3, 3])]);
    check("ArgMin", &[x()], &kept, &[ints(&[1, 4], &[2, 0, 2, 3])]);
    let whole = || In(ints(&[5], &[3, 9, 1, 9, 1]));
    check("ArgMax", &[whole()], &[], &[ints(&[1], &[1])]);
    check("ArgMin", &[whole()], &[], &[ints(&[1], &[2])]);
}

/// Reads the model of one operator of a version and computes it.
#[track_caller]
fn read_at(opset: i64, op: &str, args: &[Arg], attrs: &[(&str, RawAttr)], expected: &[Tensor]) {
    let (raw, feeds) = single(opset, op, args, attrs, expected.len());
    check_at(&[], raw, &feeds, expected);
}

#[test]
fn places_borders_and_sizes_compute() {
    let word = |w: &'static str| RawAttr::Str(w.into());
    let x = || In(count(&[3]));
    let places = || In(ints(&[2], &[2, -2]));
    let u = || In(floats(&[2], &[10.0, 20.0]));
    let y = |v: &[f64]| floats(&[v.len()], v);
    read_at(18, "ScatterElements", &[x(), places(), u()], &[], &[y(&[0.0, 20.0, 10.0])]);
    let add = [("reduction", word("add"))];
    read_at(18, "ScatterElements", &[x(), places(), u()], &add, &[y(&[0.0, 21.0, 12.0])]);
    let tuples = || In(ints(&[2, 1], &[2, 2]));
    read_at(18, "ScatterND", &[x(), tuples(), u()], &add, &[y(&[0.0, 1.0, 32.0])]);
    read_at(18, "ScatterND", &[x(), tuples(), u()], &[], &[y(&[0.0, 1.0, 20.0])]);
    let two = || Const(ints(&[1], &[2]));
    let equal = || In(floats(&[4], &[1.0, 3.0, 3.0, 2.0]));
    read_at(18, "TopK", &[equal(), two()], &[], &[y(&[3.0, 3.0]), ints(&[2], &[1, 2])]);
    let least = [("largest", int(0))];
    read_at(18, "TopK", &[equal(), two()], &least, &[y(&[1.0, 2.0]), ints(&[2], &[0, 3])]);
    let by = || Const(ints(&[2], &[2, 1]));
    for (mode, v) in [
        ("edge", [0.0, 0.0, 0.0, 1.0, 2.0, 2.0]),
        ("reflect", [2.0, 1.0, 0.0, 1.0, 2.0, 1.0]),
        ("wrap", [1.0, 2.0, 0.0, 1.0, 2.0, 0.0]),
    ] {
        read_at(19, "Pad", &[x(), by()], &[("mode", word(mode))], &[y(&v)]);
    }
    let four = || Const(ints(&[1], &[6]));
    let sizes = || [x(), Absent, Absent, four()];
    read_at(13, "Resize", &sizes(), &[], &[y(&[0.0, 0.0, 1.0, 1.0, 2.0, 2.0])]);
    let linear = [("mode", word("linear"))];
    read_at(13, "Resize", &sizes(), &linear, &[y(&[0.0, 0.25, 0.75, 1.25, 1.75, 2.0])]);
    let corners = [linear[0].clone(), ("coordinate_transformation_mode", word("align_corners"))];
    read_at(13, "Resize", &sizes(), &corners, &[y(&[0.0, 0.4, 0.8, 1.2, 1.6, 2.0])]);
    let scales = || Const(floats(&[1], &[2.0]));
    for attrs in [&linear[..], &[]] {
        let none = [In(floats(&[0], &[])), Absent, scales()];
        read_at(13, "Resize", &none, attrs, &[y(&[])]);
    }
    read_at(9, "Upsample", &[x(), scales()], &linear, &[y(&[0.0, 0.5, 1.0, 1.5, 2.0, 2.0])]);
    read_at(
        18,
        "ReverseSequence",
        &[In(count(&[3, 2])), In(ints(&[2], &[3, 2]))],
        &[],
        &[floats(&[3, 2], &[4.0, 3.0, 2.0, 1.0, 0.0, 5.0])],
    );
    read_at(
        18,
        "GatherND",
        &[In(count(&[2, 3])), In(ints(&[2, 1], &[2, -3]))],
        &[("batch_dims", int(1))],
        &[y(&[2.0, 3.0])],
    );
    read_at(
        18,
        "BitwiseXor",
        &[In(ints(&[2], &[6, -1])), In(ints(&[2], &[3, 1]))],
        &[],
        &[ints(&[2], &[5, -2])],
    );
}

#[test]
fn first_versions_broadcast_where_they_say_so() {
    let a = || In(count(&[2, 3]));
    let to = |n: i64| [("broadcast", int(1)), ("axis", int(n))];
    let (rows, columns) = (In(floats(&[2], &[10.0, 20.0])), In(floats(&[3], &[1.0, 2.0, 3.0])));
    read_at(
        6,
        "Add",
        &[a(), rows],
        &to(0),
        &[floats(&[2, 3], &[10.0, 11.0, 12.0, 23.0, 24.0, 25.0])],
    );
    let expected = floats(&[2, 3], &[0.0, 2.0, 6.0, 3.0, 8.0, 15.0]);
    read_at(6, "Mul", &[a(), columns], &[("broadcast", int(1))], &[expected]);
    read_at(1, "Relu", &[In(floats(&[2], &[-1.0, 1.0]))], &[], &[floats(&[2], &[0.0, 1.0])]);
    read_at(1, "Reshape", &[a()], &[("shape", list(&[3, -1]))], &[count(&[3, 2])]);
    let slope = In(floats(&[3], &[1.0, 2.0, 3.0]));
    let x = In(floats(&[1, 3], &[-1.0, -1.0, -1.0]));
    read_at(6, "PRelu", &[x, slope], &[], &[floats(&[1, 3], &[-1.0, -2.0, -3.0])]);
}
