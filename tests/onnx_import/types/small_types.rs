//! Floats of at most 8 bits and integers of fewer: conversions as ONNX's tables of Cast say, and quantisation.

use super::super::support::*;

const EIGHT: [(DType, f64); 4] = [
    (DType::F8E4M3FN, 448.0),
    (DType::F8E4M3FNUZ, 240.0),
    (DType::F8E5M2, 57344.0),
    (DType::F8E5M2FNUZ, 57344.0),
];

/// ONNX's number of an element type.
fn number(dtype: DType) -> RawAttr {
    int(match dtype {
        DType::F8E4M3FN => 17,
        DType::F8E4M3FNUZ => 18,
        DType::F8E5M2 => 19,
        DType::F8E5M2FNUZ => 20,
        DType::U4 => 21,
        DType::I4 => 22,
        DType::F4E2M1 => 23,
        DType::F8E8M0 => 24,
        DType::U2 => 25,
        DType::I2 => 26,
        DType::F6E2M3 => 27,
        DType::F6E3M2 => 28,
        other => panic!("{other} is not small"),
    })
}

fn of(dtype: DType, v: &[f64]) -> Tensor {
    Tensor::from_f64(dtype, vec![v.len()], v)
}

#[track_caller]
fn cast(from: Tensor, attrs: &[(&str, RawAttr)], expected: Tensor) {
    let to = ("to", number(expected.dtype()));
    let attrs: Vec<_> = attrs.iter().cloned().chain([to]).collect();
    let (raw, feeds) = single(28, "Cast", &[In(from)], &attrs, 1);
    check_at(&[28], raw, &feeds, &[expected]);
}

#[test]
fn casts_to_floats_of_8_bits_saturate() {
    let x = [f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30, f64::NAN, 1.0, -0.3];
    for (dtype, most) in EIGHT {
        let wanted = [most, -most, most, -most, f64::NAN, 1.0, -0.3];
        for from in [DType::F32, DType::F64, DType::BF16] {
            cast(of(from, &x), &[], of(dtype, &wanted));
        }
        cast(of(DType::I32, &[-100_000.0, 3.0]), &[], of(dtype, &[-most, 3.0]));
        let bools = of(DType::Bool, &[0.0, 1.0]);
        cast(bools, &[], of(dtype, &[0.0, 1.0]));
    }
    let infinite = of(DType::F8E5M2, &[f64::INFINITY]);
    cast(infinite.clone(), &[], of(DType::F8E5M2, &[57344.0]));
    cast(infinite, &[], of(DType::F8E4M3FN, &[448.0]));
}

#[test]
fn casts_that_do_not_saturate_overflow() {
    let x = of(DType::F32, &[f64::INFINITY, -1e30, f64::NAN, 1.0, -0.3]);
    for (dtype, _) in EIGHT {
        let (high, low) = match dtype {
            DType::F8E5M2 => (f64::INFINITY, f64::NEG_INFINITY),
            _ => (f64::NAN, f64::NAN),
        };
        let wanted = of(dtype, &[high, low, f64::NAN, 1.0, -0.3]);
        cast(x.clone(), &[("saturate", int(0))], wanted);
    }
}

#[test]
fn casts_to_powers_of_two_round_as_they_are_told() {
    let (least, most) = (2f64.powi(-127), 2f64.powi(127));
    let x = of(DType::F32, &[0.0, f64::NAN, f64::INFINITY, 3e38, 1.2, 1.5, 1.6, 2.0, 0.3]);
    let mode = |m: &'static str| ("round_mode", RawAttr::Str(m.as_bytes().into()));
    let rows = [
        ("up", [2.0, 2.0, 2.0, 2.0, 0.5]),
        ("down", [1.0, 1.0, 1.0, 2.0, 0.25]),
        ("nearest", [1.0, 2.0, 2.0, 2.0, 0.25]),
    ];
    for (m, rounded) in rows {
        let all = |first: [f64; 4]| of(DType::F8E8M0, &[&first[..], &rounded].concat());
        cast(x.clone(), &[mode(m)], all([least, f64::NAN, most, most]));
        cast(x.clone(), &[mode(m), ("saturate", int(0))], all([f64::NAN; 4]));
    }
    cast(of(DType::F32, &[1.2]), &[], of(DType::F8E8M0, &[2.0]));
    refuse(
        28,
        "Cast",
        &[In(of(DType::F32, &[1.0]))],
        &[mode("odd"), ("to", int(24))],
        "the Cast node that defines `y0`: the rounding mode is unknown",
    );
}

#[test]
fn casts_to_fewer_bits_saturate_floats_and_wrap_integers() {
    let x = of(DType::F32, &[0.25, 2.5, 5.0, 100.0, f64::NEG_INFINITY, -0.75]);
    cast(x, &[], of(DType::F4E2M1, &[0.0, 2.0, 4.0, 6.0, -6.0, -1.0]));
    let x = of(DType::F32, &[0.3125, 100.0]);
    cast(x.clone(), &[], of(DType::F6E2M3, &[0.25, 7.5]));
    cast(x, &[], of(DType::F6E3M2, &[0.3125, 28.0]));
    let x = || of(DType::I32, &[-9.0, -1.0, 3.0, 8.0, 17.0]);
    cast(x(), &[], of(DType::I4, &[7.0, -1.0, 3.0, -8.0, 1.0]));
    cast(x(), &[], of(DType::U4, &[7.0, 15.0, 3.0, 8.0, 1.0]));
    cast(x(), &[], of(DType::I2, &[-1.0, -1.0, -1.0, 0.0, 1.0]));
    cast(x(), &[], of(DType::U2, &[3.0, 3.0, 3.0, 0.0, 1.0]));
    cast(of(DType::I4, &[-8.0, 7.0]), &[], of(DType::F8E5M2, &[-8.0, 7.0]));
}

#[test]
fn small_types_are_quantised_to() {
    let x = || In(of(DType::F32, &[-1000.0, -3.0, 0.0, 1.0, 2.5, 1000.0]));
    let scale = || Const(floats(&[], &[0.5]));
    let rows = [
        (DType::I4, [-8.0, -6.0, 0.0, 2.0, 5.0, 7.0]),
        (DType::U4, [0.0, 0.0, 0.0, 2.0, 5.0, 15.0]),
        (DType::I2, [-2.0, -2.0, 0.0, 1.0, 1.0, 1.0]),
        (DType::U2, [0.0, 0.0, 0.0, 2.0, 3.0, 3.0]),
        (DType::F8E4M3FN, [-448.0, -6.0, 0.0, 2.0, 5.0, 448.0]),
        (DType::F8E4M3FNUZ, [-240.0, -6.0, 0.0, 2.0, 5.0, 240.0]),
        (DType::F8E5M2, [-2048.0, -6.0, 0.0, 2.0, 5.0, 2048.0]),
        (DType::F4E2M1, [-6.0, -6.0, 0.0, 2.0, 4.0, 6.0]),
        (DType::F6E3M2, [-28.0, -6.0, 0.0, 2.0, 5.0, 28.0]),
    ];
    for (dtype, wanted) in rows {
        let attrs = [("output_dtype", number(dtype))];
        let (raw, feeds) = single(28, "QuantizeLinear", &[x(), scale()], &attrs, 1);
        check_at(&[28], raw, &feeds, &[of(dtype, &wanted)]);
        let zero = Const(Tensor::from_f64(dtype, vec![], &[0.0]));
        let (raw, feeds) = single(28, "QuantizeLinear", &[x(), scale(), zero], &[], 1);
        check_at(&[28], raw, &feeds, &[of(dtype, &wanted)]);
    }
    let zero = Const(Tensor::from_f64(DType::F8E4M3FN, vec![], &[0.0]));
    let args = [x(), scale(), zero];
    let (raw, feeds) = single(28, "QuantizeLinear", &args, &[("saturate", int(0))], 1);
    let nan = f64::NAN;
    check_at(&[28], raw, &feeds, &[of(DType::F8E4M3FN, &[nan, -6.0, 0.0, 2.0, 5.0, nan])]);
}

/// The last block has one element.
#[test]
fn blocks_of_scales_may_be_cut_off() {
    let scale = || Const(floats(&[1, 2], &[1.0, 0.5]));
    let x = Tensor::from_f64(DType::I4, vec![1, 3], &[-8.0, 7.0, 3.0]);
    let zero = Tensor::from_f64(DType::I4, vec![1, 2], &[1.0, -1.0]);
    let args = [In(x.clone()), scale(), Const(zero.clone())];
    let (raw, feeds) = single(28, "DequantizeLinear", &args, &[("block_size", int(2))], 1);
    check_at(&[28], raw, &feeds, &[floats(&[1, 3], &[-9.0, 6.0, 2.0])]);
    let args = [In(floats(&[1, 3], &[-9.0, 6.0, 2.0])), scale(), Const(zero)];
    let (raw, feeds) = single(28, "QuantizeLinear", &args, &[("block_size", int(2))], 1);
    check_at(&[28], raw, &feeds, &[x]);
}

#[test]
fn scales_may_be_powers_of_two() {
    let scale = || Const(Tensor::from_f64(DType::F8E8M0, vec![], &[4.0]));
    let x = of(DType::F4E2M1, &[1.5, -6.0]);
    let to = [("output_dtype", int(16))];
    let (raw, feeds) = single(28, "DequantizeLinear", &[In(x.clone()), scale()], &to, 1);
    check_at(&[28], raw, &feeds, &[of(DType::BF16, &[6.0, -24.0])]);
    let attrs = [("output_dtype", number(DType::F4E2M1)), ("precision", int(1))];
    let wide = of(DType::BF16, &[6.0, -24.0]);
    let (raw, feeds) = single(28, "QuantizeLinear", &[In(wide), scale()], &attrs, 1);
    check_at(&[28], raw, &feeds, &[x]);
    refuse(
        28,
        "DequantizeLinear",
        &[In(of(DType::F4E2M1, &[1.0])), scale()],
        &[],
        "the DequantizeLinear node that defines `y0`: a scale of f8e8m0 needs the element type of the result",
    );
}

#[test]
fn small_types_are_moved() {
    for dtype in DType::ALL.into_iter().filter(|d| d.is_small()) {
        let v = [1.0, 0.5, 2.0, 1.0, 1.0, 4.0];
        let x = || In(Tensor::from_f64(dtype, vec![2, 3], &v));
        let y = Tensor::from_f64(dtype, vec![3, 2], &[1.0, 1.0, 0.5, 1.0, 2.0, 4.0]);
        let (raw, feeds) = single(25, "Transpose", &[x()], &[], 1);
        // Operator set 25 has no floats of 6 bits.
        let written: &[i64] =
            if matches!(number(dtype), RawAttr::Int(27 | 28)) { &[] } else { &[25] };
        check_at(written, raw, &feeds, &[y]);
        let flat = Tensor::from_f64(dtype, vec![6], &v);
        let shape = Const(ints(&[1], &[6]));
        let (raw, feeds) = single(25, "Reshape", &[x(), shape], &[], 1);
        check_at(written, raw, &feeds, &[flat]);
    }
}
