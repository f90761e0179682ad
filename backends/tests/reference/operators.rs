//! Every operator of `rules/ops` on small arguments. The larger results are those of ONNX Runtime.

use super::*;
use mlc_dsl::library::CallKind;
use std::f64::consts::{LN_2, PI, SQRT_2};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

#[test]
fn unary() {
    let cases: &[(&str, &[f64], &[f64])] = &[
        ("neg", &[1.5, -2.0, 0.0], &[-1.5, 2.0, -0.0]),
        ("abs", &[-1.5, 2.0, -INF], &[1.5, 2.0, INF]),
        ("exp", &[0.0, 1.0, -INF, NAN], &[1.0, std::f64::consts::E, 0.0, NAN]),
        ("log", &[1.0, 2.0, 0.0, -1.0], &[0.0, LN_2, -INF, NAN]),
        ("sqrt", &[4.0, 2.0, -1.0], &[2.0, SQRT_2, NAN]),
        ("rsqrt", &[4.0, 0.25, 0.0], &[0.5, 2.0, INF]),
        ("recip", &[4.0, -0.0], &[0.25, -INF]),
        ("erf", &[0.0, 0.5, -1.0, INF], &[0.0, 0.5204998778130465, -0.8427007929497149, 1.0]),
        ("tanh", &[0.0, 1.0, -INF], &[0.0, 0.7615941559557649, -1.0]),
        ("sigmoid", &[0.0, 2.0, -INF], &[0.5, 0.8807970779778823, 0.0]),
        ("sin", &[0.0, PI / 6.0], &[0.0, 0.5]),
        ("cos", &[0.0, PI / 3.0], &[1.0, 0.5]),
        ("tan", &[0.0, PI / 4.0], &[0.0, 1.0]),
        ("asin", &[1.0, 0.5, 2.0], &[PI / 2.0, PI / 6.0, NAN]),
        ("acos", &[1.0, 0.5], &[0.0, PI / 3.0]),
        ("atan", &[1.0, INF], &[PI / 4.0, PI / 2.0]),
        ("sinh", &[0.0, LN_2], &[0.0, 0.75]),
        ("cosh", &[0.0, LN_2], &[1.0, 1.25]),
        ("asinh", &[0.75, 1e-9], &[LN_2, 1e-9]),
        ("acosh", &[1.25, 0.5], &[LN_2, NAN]),
        ("atanh", &[0.6, 1e-9], &[LN_2, 1e-9]),
        ("floor", &[1.5, -1.5, -0.0], &[1.0, -2.0, -0.0]),
        ("ceil", &[1.5, -1.5], &[2.0, -1.0]),
        ("round", &[0.5, 1.5, 2.5, -0.5, 2.4], &[0.0, 2.0, 2.0, -0.0, 2.0]),
        ("sign", &[3.0, -0.1, 0.0, NAN], &[1.0, -1.0, 0.0, NAN]),
        ("is_nan", &[1.0, NAN, INF], &[0.0, 1.0, 0.0]),
    ];
    for (op, x, y) in cases {
        check(op, &[], &[f32s(&[x.len()], x)], &[x.len()], y);
    }
    check("neg", &[], &[array(DType::I8, &[2], &[-128.0, 3.0])], &[2], &[-128.0, -3.0]);
    check("abs", &[], &[array(DType::I8, &[2], &[-128.0, -3.0])], &[2], &[-128.0, 3.0]);
    check("sign", &[], &[array(I32, &[3], &[-7.0, 0.0, 2.0])], &[3], &[-1.0, 0.0, 1.0]);
    check("logical_not", &[], &[array(BOOL, &[2], &[0.0, 1.0])], &[2], &[1.0, 0.0]);
}

#[test]
fn binary() {
    type Case = (&'static str, DType, &'static [f64], &'static [f64], &'static [f64]);
    let u64 = DType::U64;
    let cases: &[Case] = &[
        ("add", F32, &[1.0, INF], &[0.5, -INF], &[1.5, NAN]),
        ("sub", F32, &[1.0], &[0.5], &[0.5]),
        ("mul", F32, &[3.0, 0.0], &[0.5, INF], &[1.5, NAN]),
        ("div", F32, &[1.0, 1.0, 0.0], &[4.0, 0.0, 0.0], &[0.25, INF, NAN]),
        (
            "pow",
            F32,
            &[2.0, -8.0, -2.0, 0.0],
            &[0.5, 1.0 / 3.0, 3.0, 0.0],
            &[SQRT_2, NAN, -8.0, 1.0],
        ),
        ("maximum", F32, &[1.0, NAN, 2.0], &[2.0, 1.0, NAN], &[2.0, NAN, NAN]),
        ("minimum", F32, &[1.0, NAN, 2.0], &[2.0, 1.0, NAN], &[1.0, NAN, NAN]),
        ("remainder", F32, &[-7.0, 7.0, 5.5], &[3.0, -3.0, 2.0], &[-1.0, 1.0, 1.5]),
        ("equal", F32, &[1.0, NAN, 0.0], &[1.0, NAN, -0.0], &[1.0, 0.0, 1.0]),
        ("less", F32, &[1.0, 1.0, NAN], &[2.0, 1.0, 1.0], &[1.0, 0.0, 0.0]),
        ("less_equal", F32, &[1.0, 1.0, NAN], &[2.0, 1.0, 1.0], &[1.0, 1.0, 0.0]),
        ("add", DType::I8, &[127.0, -128.0], &[1.0, -1.0], &[-128.0, 127.0]),
        ("sub", DType::U8, &[0.0], &[1.0], &[255.0]),
        ("mul", I32, &[65536.0], &[65537.0], &[65536.0]),
        ("div", I32, &[-7.0, 7.0, 1.0], &[2.0, -2.0, 0.0], &[-3.0, -3.0, 0.0]),
        ("modulo", I32, &[-7.0, 7.0, 1.0], &[3.0, -3.0, 0.0], &[2.0, -2.0, 0.0]),
        ("remainder", I32, &[-7.0, 7.0, 1.0], &[3.0, -3.0, 0.0], &[-1.0, 1.0, 0.0]),
        ("maximum", I64, &[-1.0], &[2.0], &[2.0]),
        ("less", I64, &[-1.0], &[2.0], &[1.0]),
        // The bits of -1 are the largest of u64.
        ("maximum", u64, &[-1.0], &[2.0], &[18446744073709551615.0]),
        ("less", u64, &[-1.0], &[2.0], &[0.0]),
        ("div", u64, &[-1.0], &[2.0], &[9223372036854775807.0]),
        ("equal", BOOL, &[1.0, 0.0], &[1.0, 1.0], &[1.0, 0.0]),
        ("logical_and", BOOL, &[0.0, 0.0, 1.0, 1.0], &[0.0, 1.0, 0.0, 1.0], &[0.0, 0.0, 0.0, 1.0]),
        ("logical_or", BOOL, &[0.0, 0.0, 1.0, 1.0], &[0.0, 1.0, 0.0, 1.0], &[0.0, 1.0, 1.0, 1.0]),
        ("logical_xor", BOOL, &[0.0, 0.0, 1.0, 1.0], &[0.0, 1.0, 0.0, 1.0], &[0.0, 1.0, 1.0, 0.0]),
    ];
    for (op, dtype, a, b, y) in cases {
        let n = a.len();
        check(op, &[], &[array(*dtype, &[n], a), array(*dtype, &[n], b)], &[n], y);
    }
}

#[test]
fn choosing_and_casting() {
    let c = array(BOOL, &[3], &[1.0, 0.0, 1.0]);
    let (a, b) = (f32s(&[3], &[1.0, NAN, 3.0]), f32s(&[3], &[NAN, 5.0, NAN]));
    check("select", &[], &[c, a, b], &[3], &[1.0, 5.0, 3.0]);
    let x = f32s(&[5], &[1.9, -1.9, 300.5, NAN, 1e30]);
    let cases = [
        (I32, [1.0, -1.0, 300.0, 0.0, -1.0]),
        (DType::U8, [1.0, 255.0, 44.0, 0.0, 255.0]),
        (BOOL, [1.0, 1.0, 1.0, 1.0, 1.0]),
        (DType::F16, [1.900390625, -1.900390625, 300.5, NAN, INF]),
        (DType::BF16, [1.8984375, -1.8984375, 300.0, NAN, 1.0002555e30]),
    ];
    for (to, y) in cases {
        let found = result("cast", &[("to", Attr::DType(to))], std::slice::from_ref(&x));
        assert_eq!(found.dtype(), to);
        close("cast", &found.to_f64(), &y, 1e-7);
    }
    let x = f32s(&[7], &[1.3, -600.0, 5e4, NAN, INF, 0.25, -1.5]);
    let small = [
        (DType::F8E4M3FN, [1.25, NAN, NAN, NAN, NAN, 0.25, -1.5]),
        (DType::F8E4M3FNUZ, [1.25, NAN, NAN, NAN, NAN, 0.25, -1.5]),
        (DType::F8E5M2, [1.25, -640.0, 49152.0, NAN, INF, 0.25, -1.5]),
        (DType::F8E5M2FNUZ, [1.25, -640.0, 49152.0, NAN, NAN, 0.25, -1.5]),
        (DType::F8E8M0, [1.0, NAN, 65536.0, NAN, NAN, 0.25, NAN]),
        (DType::F6E2M3, [1.25, -7.5, 7.5, 0.0, 7.5, 0.25, -1.5]),
        (DType::F6E3M2, [1.25, -28.0, 28.0, 0.0, 28.0, 0.25, -1.5]),
        (DType::F4E2M1, [1.5, -6.0, 6.0, 0.0, 6.0, 0.0, -1.5]),
        (DType::I4, [1.0, -8.0, 0.0, 0.0, -1.0, 0.0, -1.0]),
        (DType::U4, [1.0, 8.0, 0.0, 0.0, 15.0, 0.0, 15.0]),
        (DType::I2, [1.0, 0.0, 0.0, 0.0, -1.0, 0.0, -1.0]),
        (DType::U2, [1.0, 0.0, 0.0, 0.0, 3.0, 0.0, 3.0]),
    ];
    for (to, y) in small {
        let found = result("cast", &[("to", Attr::DType(to))], std::slice::from_ref(&x));
        assert_eq!(found.dtype(), to);
        close(&format!("cast to {to}"), &found.to_f64(), &y, 0.0);
    }
    let big = Array::from_i64(I64, vec![1], vec![(1 << 53) + 1]).expect("one value");
    let cast = result("cast", &[("to", Attr::DType(I64))], std::slice::from_ref(&big));
    assert_eq!(cast.ints(), Some(&[(1i64 << 53) + 1][..]), "64-bit integers stay exact");
    check("cast", &[("to", Attr::DType(DType::I8))], &[array(I32, &[1], &[200.0])], &[1], &[-56.0]);
}

#[test]
fn reductions() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let axes = |v: &[i64]| [("axes", ints(v))];
    type Case = (&'static str, &'static [i64], &'static [usize], &'static [f64]);
    let cases: &[Case] = &[
        ("sum", &[1], &[2], &[6.0, 15.0]),
        ("sum", &[0], &[3], &[5.0, 7.0, 9.0]),
        ("sum", &[0, 1], &[], &[21.0]),
        ("sum", &[], &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ("prod", &[1], &[2], &[6.0, 120.0]),
        ("max", &[0], &[3], &[4.0, 5.0, 6.0]),
        ("min", &[1], &[2], &[1.0, 4.0]),
        ("mean", &[1], &[2], &[2.0, 5.0]),
    ];
    for (op, at, shape, y) in cases {
        check(op, &axes(at), std::slice::from_ref(&x), shape, y);
    }
    let nan = f32s(&[2, 2], &[NAN, 1.0, -INF, 2.0]);
    check("max", &axes(&[1]), std::slice::from_ref(&nan), &[2], &[NAN, 2.0]);
    check("min", &axes(&[1]), &[nan], &[2], &[NAN, -INF]);
    let none = f32s(&[2, 0], &[]);
    for (op, y) in [("sum", 0.0), ("prod", 1.0), ("max", -INF), ("min", INF), ("mean", NAN)] {
        check(op, &axes(&[1]), std::slice::from_ref(&none), &[2], &[y, y]);
        check(op, &axes(&[0]), std::slice::from_ref(&none), &[0], &[]);
    }
    let bytes = array(DType::I8, &[2, 2], &[100.0, 100.0, -3.0, 5.0]);
    check("sum", &axes(&[1]), std::slice::from_ref(&bytes), &[2], &[-56.0, 2.0]);
    check("max", &axes(&[1]), &[array(DType::I8, &[1, 0], &[])], &[1], &[-128.0]);
    check("min", &axes(&[1]), &[array(DType::U8, &[1, 0], &[])], &[1], &[255.0]);
    let truths = array(BOOL, &[2, 2], &[1.0, 0.0, 1.0, 1.0]);
    check("every", &[], std::slice::from_ref(&truths), &[2], &[0.0, 1.0]);
    check("some", &[], &[truths], &[2], &[1.0, 1.0]);
}

#[test]
fn running_sums() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let cases = [
        (1, false, false, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]),
        (1, true, false, [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]),
        (1, false, true, [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]),
        (1, true, true, [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]),
        (0, false, false, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]),
        (-2, false, true, [5.0, 7.0, 9.0, 4.0, 5.0, 6.0]),
    ];
    for (axis, exclusive, reverse, y) in cases {
        let attrs = [
            ("axis", Attr::int(axis)),
            ("exclusive", Attr::Bool(exclusive)),
            ("reverse", Attr::Bool(reverse)),
        ];
        check("cumsum", &attrs, std::slice::from_ref(&x), &[2, 3], &y);
    }
}

#[test]
fn moving() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let one = std::slice::from_ref(&x);
    check("transpose", &[("perm", ints(&[1, 0]))], one, &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let cube = f32s(&[2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let turned = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    check("transpose", &[("perm", ints(&[2, 0, 1]))], &[cube], &[3, 2, 1], &turned);
    let image = f32s(&[1, 2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    check("channels_last", &[], &[image], &[1, 3, 1, 2], &turned);
    let image = f32s(&[1, 1, 3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let same = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    check("channels_first", &[], &[image], &[1, 2, 1, 3], &same);
    check("reshape", &[("shape", ints(&[3, 1, 2]))], one, &[3, 1, 2], &same);
    check("reshape", &[("shape", ints(&[]))], &[f32s(&[1, 1], &[7.0])], &[], &[7.0]);
    check("reshape", &[("shape", ints(&[0, 5]))], &[f32s(&[3, 0], &[])], &[0, 5], &[]);
    let spread = [("map", ints(&[1])), ("shape", ints(&[2, 2]))];
    check("broadcast", &spread, &[f32s(&[2], &[1.0, 2.0])], &[2, 2], &[1.0, 2.0, 1.0, 2.0]);
    let spread = [("map", ints(&[])), ("shape", ints(&[3]))];
    check("broadcast", &spread, &[f32s(&[], &[4.0])], &[3], &[4.0; 3]);
    let part = [("start", ints(&[1, 0])), ("size", ints(&[1, 2])), ("step", ints(&[1, 2]))];
    check("slice", &part, one, &[1, 2], &[4.0, 6.0]);
    let back = [("start", ints(&[1, 2])), ("size", ints(&[2, 3])), ("step", ints(&[-1, -1]))];
    check("slice", &back, one, &[2, 3], &[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    let y = f32s(&[2, 1], &[7.0, 8.0]);
    let both = [1.0, 2.0, 3.0, 7.0, 4.0, 5.0, 6.0, 8.0];
    check("concat", &[("axis", Attr::int(1))], &[x.clone(), y.clone()], &[2, 4], &both);
    let upright = [1.0, 2.0, 7.0, 8.0];
    let top = f32s(&[2, 1], &[1.0, 2.0]);
    check("concat", &[("axis", Attr::int(0))], &[top, y], &[4, 1], &upright);
    let around = [("low", ints(&[0, 1])), ("high", ints(&[1, 0]))];
    let padded = [9.0, 1.0, 2.0, 3.0, 9.0, 4.0, 5.0, 6.0, 9.0, 9.0, 9.0, 9.0];
    check("pad", &around, &[x.clone(), f32s(&[], &[9.0])], &[3, 4], &padded);
    let cut = [("low", ints(&[-1, 1])), ("high", ints(&[0, -2]))];
    check("pad", &cut, &[x.clone(), f32s(&[], &[9.0])], &[1, 2], &[9.0, 4.0]);
    let lower = [1.0, 0.0, 0.0, 4.0, 5.0, 0.0];
    check("triangle", &[("upper", Attr::Bool(false))], one, &[2, 3], &lower);
    let upper = [("upper", Attr::Bool(true)), ("diagonal", Attr::int(1))];
    check("triangle", &upper, one, &[2, 3], &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
}

#[test]
fn gathering() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let i = array(I64, &[2, 2], &[0.0, -1.0, 2.0, 1.0]);
    let found = [1.0, 3.0, 3.0, 2.0, 4.0, 6.0, 6.0, 5.0];
    check("gather", &[("axis", Attr::int(1))], &[x.clone(), i], &[2, 2, 2], &found);
    let row = array(DType::I8, &[], &[-2.0]);
    check("gather", &[("axis", Attr::int(0))], &[x.clone(), row], &[3], &[1.0, 2.0, 3.0]);
    // An index of a narrow type reaches far from the end.
    let long = f32s(&[300], &(0..300).map(f64::from).collect::<Vec<_>>());
    let last = array(DType::I8, &[2], &[-1.0, -128.0]);
    check("gather", &[("axis", Attr::int(0))], &[long, last], &[2], &[299.0, 172.0]);
    let i = array(I64, &[2, 2], &[2.0, 0.0, -1.0, 1.0]);
    let found = [3.0, 1.0, 6.0, 5.0];
    check("gather_elements", &[("axis", Attr::int(1))], &[x.clone(), i], &[2, 2], &found);
    for bad in [3.0, -4.0] {
        let args = [x.clone(), array(I64, &[2], &[0.0, bad])];
        fails("gather", &[("axis", Attr::int(1))], &args, "is out of range for axis 1 of `x`");
    }
    let args = [x, array(I64, &[2, 1], &[0.0, 7.0])];
    fails("gather_elements", &[("axis", Attr::int(1))], &args, "index 7 is out of range");
}

#[test]
fn counting() {
    let attrs = [("size", Attr::int(3)), ("start", Attr::int(2)), ("step", Attr::int(-2))];
    let with = |to| [attrs.as_slice(), &[("to", Attr::DType(to))]].concat();
    check("iota", &with(I64), &[], &[3], &[2.0, 0.0, -2.0]);
    check("iota", &with(F32), &[], &[3], &[2.0, 0.0, -2.0]);
    check("iota", &with(DType::U8), &[], &[3], &[2.0, 0.0, 254.0]);
    check("extents", &[("values", ints(&[4, 5, 6]))], &[], &[3], &[4.0, 5.0, 6.0]);
    check("extents", &[("values", ints(&[]))], &[], &[0], &[]);
}

#[test]
fn products() {
    let a = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = f32s(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 2.0, -1.0]);
    check("matmul", &[], &[a, b], &[2, 2], &[7.0, -1.0, 16.0, -1.0]);
    let a = array(DType::I8, &[1, 1, 2], &[100.0, 2.0]);
    let b = array(DType::I8, &[1, 2, 1], &[2.0, 1.0]);
    check("matmul", &[], &[a, b], &[1, 1, 1], &[-54.0]);
    check("matmul", &[], &[f32s(&[2, 0], &[]), f32s(&[0, 2], &[])], &[2, 2], &[0.0; 4]);
    let inf = f32s(&[1, 2], &[INF, 1.0]);
    check("matmul", &[], &[inf, f32s(&[2, 1], &[0.0, 1.0])], &[1, 1], &[NAN]);
}

#[test]
fn convolutions() {
    let attrs = [
        ("stride", ints(&[2, 1])),
        ("low", ints(&[1, 0])),
        ("high", ints(&[0, 1])),
        ("dilation", ints(&[1, 2])),
        ("group", Attr::int(2)),
    ];
    let (x, w) = (ramp(&[1, 4, 5, 4], 7, 5, 11), ramp(&[4, 2, 3, 2], 5, 3, 7));
    let y = [
        28, -53, 6, 39, -31, -3, -50, 29, 4, -22, 22, 18, -50, 14, 4, -1, 14, 16, 28, 10, 3, 14,
        22, -36,
    ];
    check("conv", &attrs, &[x, w], &[1, 4, 2, 3], &y.map(f64::from));
    let attrs = [
        ("stride", ints(&[2, 3])),
        ("low", ints(&[1, 0])),
        ("high", ints(&[0, 1])),
        ("dilation", ints(&[2, 1])),
        ("extra", ints(&[1, 0])),
        ("group", Attr::int(2)),
    ];
    let (x, w) = (ramp(&[1, 2, 3, 2], 7, 5, 11), ramp(&[2, 1, 2, 3], 5, 3, 7));
    check("conv_transpose", &attrs, &[x, w], &[1, 2, 7, 5], &TRANSPOSED.map(f64::from));
    // Padding is zeros, and zero times infinity is NaN.
    let attrs = [
        ("stride", ints(&[1])),
        ("low", ints(&[1])),
        ("high", ints(&[0])),
        ("dilation", ints(&[1])),
    ];
    let (x, w) = (f32s(&[1, 1, 2], &[1.0, 2.0]), f32s(&[1, 1, 2], &[INF, 1.0]));
    check("conv", &attrs, &[x, w], &[1, 1, 2], &[NAN, INF]);
    // Four channels in two groups: the tap of channel `c` is that of input `c % 2` of its group, last of two places.
    let (w, t) = (ramp(&[4, 2, 2], 1, 1, 16), ramp(&[4], 1, 1, 5));
    let [w0, t0] = [&w, &t].map(|a| a.floats().expect("floats").to_vec());
    let y: Vec<f64> = (0..16)
        .map(|i| {
            let (c, q, r) = (i / 4, i / 2 % 2, i % 2);
            w0[i] + if c % 2 == q && r == 1 { t0[c] } else { 0.0 }
        })
        .collect();
    check("tapped", &[("place", ints(&[1]))], &[w, t], &[4, 2, 2], &y);
}

const TRANSPOSED: [i32; 70] = [
    0, 0, 0, 0, 0, 0, -6, 9, -4, 6, 0, 0, 0, 0, 0, 3, 7, -24, -1, -3, 0, 0, 0, 0, 0, -5, 5, 15, 2,
    -2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -4, -2, 0, 9, 5, 0, 0, 0, 0, 0, 11, 1, -9, -9, -3, 0, 0, 0,
    0, 0, 12, 4, -4, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn windows() {
    let x = ramp(&[1, 2, 5, 4], 7, 5, 11);
    let attrs = [
        ("window", ints(&[3, 2])),
        ("stride", ints(&[2, 1])),
        ("low", ints(&[1, 0])),
        ("high", ints(&[0, 1])),
        ("dilation", ints(&[1, 2])),
    ];
    let y = [3, 5, 3, 4, 5, 4, 3, 4, 0, 4, 5, 1].map(f64::from);
    check("maxpool", &attrs, std::slice::from_ref(&x), &[1, 2, 2, 3], &y);
    let attrs = [&attrs[..4], &[("dilation", ints(&[1, 1]))]].concat();
    let y = [-7, -1, 5, 4, -6, 3, 1, 0, 3, -2, -7, -2, 9, -4, -6, 2].map(f64::from);
    check("sumpool", &attrs, &[x], &[1, 2, 2, 4], &y);
    // A window that lies outside altogether yields the lowest number of the type.
    let attrs = [
        ("window", ints(&[1])),
        ("stride", ints(&[2])),
        ("low", ints(&[1])),
        ("high", ints(&[0])),
        ("dilation", ints(&[1])),
    ];
    check("maxpool", &attrs, &[f32s(&[1, 1, 2], &[1.0, 2.0])], &[1, 1, 2], &[-INF, 2.0]);
    let bytes = array(DType::U8, &[1, 1, 2], &[1.0, 2.0]);
    check("maxpool", &attrs, &[bytes], &[1, 1, 2], &[0.0, 2.0]);
    let attrs = [&[("window", ints(&[2]))], &attrs[1..]].concat();
    let args = [f32s(&[1, 1, 3], &[1.0, 2.0, 2.0]), f32s(&[1, 1, 2], &[1.0, 2.0])];
    check("maxpool_places", &attrs, &args, &[1, 1, 2], &[0.0, 1.0]);
}

#[test]
fn several_results() {
    let (a, b) = (array(I32, &[2], &[7.0, -7.0]), array(I32, &[2], &[2.0, 2.0]));
    let results = apply(Engine::Fast, "divide", &[], &[a, b]).expect("two results");
    assert_eq!(results[0].ints(), Some(&[3, -3][..]));
    assert_eq!(results[1].ints(), Some(&[1, -1][..]));
}

#[test]
fn bits() {
    type Case = (&'static str, DType, &'static [f64], &'static [f64], &'static [f64]);
    let u8 = DType::U8;
    let cases: &[Case] = &[
        ("bitwise_and", I32, &[6.0, -1.0], &[3.0, 5.0], &[2.0, 5.0]),
        ("bitwise_or", I32, &[6.0, -8.0], &[3.0, 1.0], &[7.0, -7.0]),
        ("bitwise_xor", I32, &[6.0, -1.0], &[3.0, 5.0], &[5.0, -6.0]),
        ("shift_left", u8, &[1.0, 255.0, 1.0], &[3.0, 1.0, 8.0], &[8.0, 254.0, 0.0]),
        ("shift_right", u8, &[16.0, 255.0, 255.0], &[3.0, 1.0, 8.0], &[2.0, 127.0, 0.0]),
        ("shift_right", I32, &[-8.0, -8.0], &[1.0, 40.0], &[-4.0, -1.0]),
    ];
    for (op, dtype, a, b, y) in cases {
        let args = [array(*dtype, &[a.len()], a), array(*dtype, &[b.len()], b)];
        check(op, &[], &args, &[y.len()], y);
    }
    check("bitwise_not", &[], &[array(u8, &[2], &[0.0, 254.0])], &[2], &[255.0, 1.0]);
}

#[test]
fn borders() {
    let x = || f32s(&[3], &[1.0, 2.0, 3.0]);
    let pad = |low, high| [("low", ints(&[low])), ("high", ints(&[high]))];
    check("pad_edge", &pad(1, 2), &[x()], &[6], &[1.0, 1.0, 2.0, 3.0, 3.0, 3.0]);
    check("pad_wrap", &pad(1, 2), &[x()], &[6], &[3.0, 1.0, 2.0, 3.0, 1.0, 2.0]);
    check("pad_reflect", &pad(2, 1), &[x()], &[6], &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    check("pad_reflect", &pad(1, 1), &[f32s(&[1], &[4.0])], &[3], &[4.0, 4.0, 4.0]);
    check("pad_edge", &pad(-1, 0), &[x()], &[2], &[2.0, 3.0]);
    let running = |exclusive, reverse| {
        let (exclusive, reverse) = (Attr::Bool(exclusive), Attr::Bool(reverse));
        [("axis", Attr::int(0)), ("exclusive", exclusive), ("reverse", reverse)]
    };
    check("cumprod", &running(false, false), &[x()], &[3], &[1.0, 2.0, 6.0]);
    check("cumprod", &running(true, true), &[x()], &[3], &[6.0, 3.0, 1.0]);
}

#[test]
fn places() {
    let x = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let attrs = [("time", Attr::int(1)), ("batch", Attr::int(0))];
    let lengths = array(DType::I64, &[2], &[2.0, 3.0]);
    check("reverse_first", &attrs, &[x, lengths], &[2, 3], &[2.0, 1.0, 3.0, 6.0, 5.0, 4.0]);
    let attrs = [("axis", Attr::int(0)), ("shape", ints(&[3, 2]))];
    let i = array(DType::I64, &[2, 2], &[0.0, 2.0, 1.0, -1.0]);
    check("element_numbers", &attrs, &[i], &[2, 2], &[0.0, 5.0, 2.0, 5.0]);
}

/// Two elements at the places 0, 0.5, 1 and 1.5.
#[test]
fn samples() {
    let of = |name, v: f64| (name, Attr::float(v));
    let places = || {
        let at = [of("shift", 0.0), of("times", 1.0), of("over", 2.0), of("offset", 0.0)];
        [vec![("axis", Attr::int(0)), ("size", Attr::int(4))], at.to_vec()].concat()
    };
    let x = || f32s(&[2], &[1.0, 3.0]);
    let no = |name| (name, Attr::Bool(false));
    let window = [("half", Attr::int(1)), of("stretch", 1.0), no("cubic"), of("a", -0.75)];
    let outside = [no("exclude"), no("bounded"), of("beyond", 0.0)];
    let attrs = [places(), window.to_vec(), outside.to_vec()].concat();
    check("resample", &attrs, &[x()], &[4], &[1.0, 2.0, 3.0, 3.0]);
    let attrs = [places(), vec![of("add", 0.0), no("up")]].concat();
    check("nearest", &attrs, &[x()], &[4], &[1.0, 1.0, 3.0, 3.0]);
    let attrs = [places(), vec![of("add", 0.0), ("up", Attr::Bool(true))]].concat();
    check("nearest", &attrs, &[x()], &[4], &[1.0, 3.0, 3.0, 3.0]);
}

/// An axis of three elements.
#[test]
fn grids() {
    let flags = |align, border, reflect| {
        let values = [("align", align), ("border", border), ("reflect", reflect)];
        values.map(|(name, v)| (name, Attr::Bool(v))).to_vec()
    };
    let size = ("size", Attr::int(3));
    let with = |more: &[(&'static str, Attr)], flags: &[(&'static str, Attr)]| {
        [std::slice::from_ref(&size), more, flags].concat()
    };
    let g = || f32s(&[3], &[-1.0, 0.0, 1.0]);
    check(
        "place_scaled",
        &with(&[], &flags(true, false, false)[..1]),
        &[g()],
        &[3],
        &[0.0, 1.0, 2.0],
    );
    check(
        "place_scaled",
        &with(&[], &flags(false, false, false)[..1]),
        &[g()],
        &[3],
        &[-0.5, 1.0, 2.5],
    );
    let v = || f32s(&[4], &[-1.0, 1.5, 2.75, 6.0]);
    let inside =
        |flags: Vec<_>, y: &[f64]| check("place_inside", &with(&[], &flags), &[v()], &[4], y);
    inside(flags(false, false, false), &[-1.0, 1.5, 2.75, 6.0]);
    inside(flags(false, true, false), &[0.0, 1.5, 2.0, 2.0]);
    inside(flags(false, false, true), &[0.0, 1.5, 2.25, 0.0]);
    inside(flags(true, false, true), &[1.0, 1.5, 1.25, 2.0]);
    let places = |flags: Vec<_>, y: &[f64]| {
        let attrs = with(&[("count", Attr::int(2))], &flags);
        check("sample_places", &attrs, &[f32s(&[2], &[-1.0, 2.5])], &[2, 2], y);
    };
    places(flags(false, false, false), &[-1.0, 0.0, 2.0, -1.0]);
    places(flags(false, true, false), &[0.0, 0.0, 2.0, 2.0]);
    places(flags(false, false, true), &[0.0, 0.0, 2.0, 2.0]);
    places(flags(true, false, true), &[1.0, 0.0, 2.0, 1.0]);
    let v = || f32s(&[1], &[1.25]);
    check("sample_weights", &[("count", Attr::int(2))], &[v()], &[1, 2], &[0.75, 0.25]);
    let cubic = [-0.10546875, 0.87890625, 0.26171875, -0.03515625];
    check("sample_weights", &[("count", Attr::int(4))], &[v()], &[1, 4], &cubic);
    let x = || f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let i = array(DType::I64, &[1, 2], &[2.0, -1.0]);
    check("numbered", &[], &[x(), i], &[1, 2, 2], &[3.0, 0.0, 6.0, 0.0]);
    let i = array(DType::I64, &[1, 1, 3], &[0.0, -1.0, 2.0]);
    let w = f32s(&[1, 1, 3], &[1.0, 4.0, 0.5]);
    check("numbered_sum", &[], &[x(), i, w], &[1, 2, 1], &[2.5, 7.0]);
}

/// The sequence 1 2 1 2 1 and the n-grams 1, 1 2, 1 1 and 2 3.
#[test]
fn sequences() {
    let i64s = |v: &[f64]| array(DType::I64, &[v.len()], v);
    let x = array(DType::I64, &[1, 5], &[1.0, 2.0, 1.0, 2.0, 1.0]);
    let pool = i64s(&[1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0]);
    let args = [x, pool, i64s(&[0.0, 1.0, 3.0, 5.0]), i64s(&[1.0, 2.0, 2.0, 2.0])];
    let attrs = |skips| [("skips", Attr::int(skips)), ("longest", Attr::int(2))];
    check("ngram_counts", &attrs(1), &args, &[1, 4], &[3.0, 2.0, 0.0, 0.0]);
    check("ngram_counts", &attrs(3), &args, &[1, 4], &[3.0, 3.0, 2.0, 0.0]);
}

/// Attributes at the ends of their range neither overflow nor hang.
#[test]
fn extreme_attributes() {
    let x = f32s(&[2], &[1.0, 2.0]);
    for (low, high) in [(i64::MAX, i64::MIN + 5), (i64::MIN, i64::MAX), (-(1 << 62), 1 << 62)] {
        let attrs = [("low", ints(&[low])), ("high", ints(&[high]))];
        for engine in [Engine::Plain, Engine::Fast] {
            let args = [x.clone(), f32s(&[], &[9.0])];
            if let Ok(results) = apply(engine, "pad", &attrs, &args) {
                assert!(results[0].to_f64().iter().all(|&v| v == 9.0));
            }
        }
    }
    let attrs = [("map", ints(&[0])), ("shape", ints(&[2, 1 << 50]))];
    fails("broadcast", &attrs, &[x], "too large");
}

/// The text of this file and of the recurrences names every operator, so none is without a case.
#[test]
fn every_operator_has_a_case() {
    let cases = concat!(include_str!("operators.rs"), include_str!("recurrences.rs"));
    for call in &library().calls {
        let source = &library().sources[call.source.file as usize].name;
        let layer = source == "extra" || source.contains("layers");
        let tested = layer || cases.contains(&format!("\"{}\"", call.name));
        assert!(tested || matches!(call.kind, CallKind::Extern(_)), "no case for `{}`", call.name);
    }
}

#[test]
fn parts() {
    let x = f32s(&[2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    type Case<'a> = (&'a str, &'a [(&'a str, Attr)], &'a [&'a [f64]]);
    let cases: &[Case<'_>] = &[
        (
            "two_parts",
            &[("axis", Attr::int(1)), ("sizes", ints(&[1, 3]))],
            &[&[1.0, 5.0], &[2.0, 3.0, 4.0, 6.0, 7.0, 8.0]],
        ),
        (
            "two_parts",
            &[("axis", Attr::int(0)), ("sizes", ints(&[2, 0]))],
            &[&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[]],
        ),
        (
            "three_parts",
            &[("axis", Attr::int(1)), ("first", Attr::int(1)), ("second", Attr::int(2))],
            &[&[1.0, 5.0], &[2.0, 3.0, 6.0, 7.0], &[4.0, 8.0]],
        ),
    ];
    for (op, attrs, parts) in cases {
        for engine in [Engine::Plain, Engine::Fast] {
            let found = apply(engine, op, attrs, std::slice::from_ref(&x)).expect("parts");
            assert_eq!(found.len(), parts.len(), "{op}");
            for (part, expect) in found.iter().zip(*parts) {
                close(op, &part.to_f64(), expect, 0.0);
            }
        }
    }
    let wrong = [("axis", Attr::int(1)), ("sizes", ints(&[1, 2]))];
    fails("two_parts", &wrong, &[x], "`two_parts` needs");
}
