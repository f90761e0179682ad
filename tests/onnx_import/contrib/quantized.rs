//! Operators of ONNX Runtime's domain on quantised numbers, against the formulas of its documentation.

use super::super::support::*;
use super::{B, D, E, H, Heads, attend, contrib, drawn, float, heads, numbers, whole};

/// A scalar of real numbers, and bytes.
fn scale(v: f64) -> Arg {
    Const(floats(&[], &[v]))
}

fn unsigned(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::U8, shape.to_vec(), v)
}

#[test]
fn quantised_numbers() {
    let zero = |v: i64| Const(unsigned(&[], &[v]));
    let (a, b) = (unsigned(&[4], &[0, 10, 130, 255]), unsigned(&[4], &[3, 3, 200, 255]));
    let both = |y: Arg, z: Arg| {
        [In(a.clone()), scale(0.5), zero(2), In(b.clone()), scale(0.25), zero(3), y, z]
    };
    // -1, 4, 64, 126.5 and 0, 0, 49.25, 63, in steps of a half from 10 on.
    let sums = unsigned(&[4], &[8, 18, 236, 255]);
    contrib("QLinearAdd", &both(scale(0.5), zero(10)), &[], &[sums]);
    let products = unsigned(&[4], &[10, 10, 50, 110]);
    contrib("QLinearMul", &both(scale(79.6875), zero(10)), &[], &[products]);
    let x = unsigned(&[1, 2, 1, 3], &[10, 20, 33, 0, 1, 255]);
    let one = |y: Arg, z: Arg| [In(x.clone()), scale(0.5), zero(1), y, z];
    // Means 10 and 42.16….
    let means = unsigned(&[1, 2, 1, 1], &[15, 47]);
    contrib("QLinearGlobalAveragePool", &one(scale(1.0), zero(5)), &[], &[means]);
    let slopes = [("alpha", float(0.5))];
    let leaky = unsigned(&[1, 2, 1, 3], &[14, 24, 37, 5, 5, 255]);
    contrib("QLinearLeakyRelu", &one(scale(0.5), zero(5)), &slopes, &[leaky]);
    let near: Vec<i64> = [10.0f64, 20.0, 33.0, 0.0, 1.0, 255.0]
        .iter()
        .map(|b| (256.0 / (1.0 + (-(b - 1.0) / 2.0).exp())).round_ties_even().min(255.0) as i64)
        .collect();
    let logistic = unsigned(&[1, 2, 1, 3], &near);
    contrib("QLinearSigmoid", &one(scale(1.0 / 256.0), zero(0)), &[], &[logistic]);
    // -1, 4, then 0, 50, then 255.
    let part = |v: &[i64]| In(unsigned(&[v.len()], v));
    let first = [scale(0.5), zero(10), part(&[0, 10]), scale(0.5), zero(2)];
    let rest = [part(&[3, 203]), scale(0.25), zero(3), part(&[255]), scale(1.0), zero(0)];
    let args: Vec<Arg> = first.into_iter().chain(rest).collect();
    let joined = unsigned(&[5], &[8, 18, 10, 110, 255]);
    contrib("QLinearConcat", &args, &[("axis", int(0))], &[joined]);
    // Equal numbers have equal parts.
    let even = unsigned(&[2, 4], &[7; 8]);
    let parts = unsigned(&[2, 4], &[64; 8]);
    let args = [In(even), scale(0.5), zero(1), scale(1.0 / 256.0), zero(0)];
    contrib("QLinearSoftmax", &args, &[("axis", int(-1)), ("opset", int(13))], &[parts]);
}

#[test]
fn products_of_quantised_matrices() {
    let (a, b) = (unsigned(&[2, 3], &[1, 2, 3, 4, 5, 6]), [1, -2, 0, 3, -1, 2]);
    let transposed = Tensor::from_i64(DType::I8, vec![2, 3], &b);
    let (zero, none) =
        (Const(unsigned(&[], &[1])), Const(Tensor::from_i64(DType::I8, vec![], &[0])));
    let bias = Const(whole(&[2], &[10, 100]));
    // Sums of products: -2, 3 and -5, 15.
    let args = [In(a), scale(0.5), zero, Const(transposed), scale(0.25), none, bias];
    let y = floats(&[2, 2], &[1.0, 12.875, 0.625, 14.375]);
    contrib("QGemm", &args, &[("transB", int(1))], &[y]);
}

#[test]
fn products_with_a_matrix_that_is_quantised_on_the_way() {
    // The extremes -1 and 4 give the scale 5 / 255 and the zero point 51, so that these numbers are kept exactly.
    let a = floats(&[2, 2], &[-1.0, 4.0, 2.0, 0.0]);
    let b = Tensor::from_i64(DType::I8, vec![2, 2], &[1, -2, 3, 4]);
    let by = Const(floats(&[2], &[0.5, 0.25]));
    let zero = Const(Tensor::from_i64(DType::I8, vec![2], &[1, 0]));
    let y = floats(&[2, 2], &[4.0, 4.5, 0.0, -1.0]);
    let args = [In(a.clone()), Const(b.clone()), by.clone(), zero];
    contrib("DynamicQuantizeMatMul", &args, &[], &[y]);
    let y = floats(&[2, 2], &[15.5, 24.5, 11.0, 19.0]);
    let args = [In(a), Const(b), by, Absent, Const(floats(&[2], &[10.0, 20.0]))];
    contrib("DynamicQuantizeMatMul", &args, &[], &[y]);
}

/// Row `i / row` of numbers, each made a whole multiple of the largest magnitude of its `block` over 127.
fn rounded(a: &[f64], row: usize, block: usize) -> Vec<f64> {
    let part = |x: &[f64]| -> Vec<f64> {
        let scale = x.iter().fold(0.0f64, |m, v| m.max(v.abs())) / 127.0;
        x.iter().map(|v| (v / scale).round_ties_even() * scale).collect()
    };
    a.chunks(row).flat_map(|row| row.chunks(block).flat_map(part)).collect()
}

/// What a product with a matrix of `bits` each is given, and its result by the documentation's formula.
fn few_bits(bits: usize, zeros: Option<bool>, grouped: bool, level: i64) -> (Vec<Arg>, Tensor) {
    let (k, n, block) = (20, 3, 16);
    let (blocks, per) = (usize::div_ceil(k, block), 8 / bits);
    let number = |i: usize| (i * 7 + i / 5) % (1 << bits);
    let of_block = |i: usize| (i * 5 + 3) % (1 << bits);
    // The first of the numbers of a byte is in its lowest bits.
    let bytes = |count: usize, of: &dyn Fn(usize) -> usize| -> Vec<i64> {
        let byte = |i: usize| (0..per).map(|j| of(i * per + j) << (j * bits)).sum::<usize>();
        (0..count / per).map(|i| byte(i) as i64).collect()
    };
    let (a, scales, bias) = (drawn(1, &[2, k]), drawn(2, &[n, blocks]), drawn(3, &[n]));
    let group = |i: usize| if grouped { (i + 1) % blocks } else { i / block };
    let row = blocks.next_multiple_of(per);
    let packed = bytes(n * row, &|i| if i % row < blocks { of_block(i) } else { 0 });
    let real = drawn(4, &[n, blocks]);
    let zero = |r: usize, g: usize| match zeros {
        None => (1 << (bits - 1)) as f64,
        Some(true) => of_block(r * row + g) as f64,
        Some(false) => numbers(&real)[r * blocks + g],
    };
    let weight = |r: usize, i: usize| {
        let q = number(r * blocks * block + i) as f64;
        (q - zero(r, group(i))) * numbers(&scales)[r * blocks + group(i)]
    };
    let left = if level == 4 { rounded(&numbers(&a), k, block) } else { numbers(&a) };
    let value = |y: usize, r: usize| {
        let sum: f64 = (0..k).map(|i| left[y * k + i] * weight(r, i)).sum();
        sum + numbers(&bias)[r]
    };
    let y: Vec<f64> = (0..2 * n).map(|i| value(i / n, i % n)).collect();
    let shape = [n, blocks, block / per];
    let groups: Vec<i64> = (0..k).map(|i| group(i) as i64).collect();
    let args = vec![
        In(a),
        Const(unsigned(&shape, &bytes(n * blocks * block, &number))),
        Const(scales),
        match zeros {
            None => Absent,
            Some(true) => Const(unsigned(&[n, row / per], &packed)),
            Some(false) => Const(real),
        },
        if grouped { Const(whole(&[k], &groups)) } else { Absent },
        Const(bias),
    ];
    (args, floats(&[2, n], &y))
}

#[test]
fn products_with_numbers_of_few_bits() {
    for bits in [2, 4, 8] {
        for zeros in [None, Some(true), Some(false)] {
            for (grouped, level) in [(false, 0), (true, 0), (false, 4)] {
                let (args, y) = few_bits(bits, zeros, grouped, level);
                let attrs = [
                    ("K", int(20)),
                    ("N", int(3)),
                    ("accuracy_level", int(level)),
                    ("bits", int(bits as i64)),
                    ("block_size", int(16)),
                ];
                contrib("MatMulNBits", &args, &attrs, &[y]);
            }
        }
    }
}

#[test]
fn attention_of_quantised_operands() {
    let s = 3;
    let xs: Vec<i64> = (0..B * s * 5).map(|i| (i * 7 % 11) as i64).collect();
    let ws: Vec<i64> = (0..5 * 3 * E).map(|i| (i * 5 % 9) as i64 - 4).collect();
    let z = drawn(3, &[3 * E]);
    let rows = |part: usize| -> Vec<f64> {
        let element = |i: usize| {
            let (row, c) = (i / E, part * E + i % E);
            let sum: i64 = (0..5).map(|k| (xs[row * 5 + k] - 3) * ws[k * 3 * E + c]).sum();
            sum as f64 * 0.0625 + numbers(&z)[c]
        };
        heads(&(0..B * s * E).map(element).collect::<Vec<_>>(), s, D)
    };
    let plain = Heads { q: rows(0), k: rows(1), v: rows(2), s, t: s, e: D };
    let signed = |shape: &[usize], v: &[i64]| Tensor::from_i64(DType::I8, shape.to_vec(), v);
    let args = |mask: Option<Tensor>| {
        let x = In(unsigned(&[B, s, 5], &xs));
        let (w, z) = (Const(signed(&[5, 3 * E], &ws)), Const(z.clone()));
        let zeros = [Const(unsigned(&[], &[3])), Const(signed(&[], &[0]))];
        let mask = mask.map_or(Absent, In);
        [[x, w, z, scale(0.5), scale(0.125), mask].as_slice(), &zeros].concat()
    };
    let attrs = |uni| [("num_heads", int(H as i64)), ("unidirectional", int(uni))];
    let before = |_, _, s, t| if t > s { f64::NEG_INFINITY } else { 0.0 };
    contrib("QAttention", &args(None), &attrs(1), &[attend(&plain, 0.5, before)]);
    let columns = whole(&[2, 3], &[1, 0, 1, 1, 1, 1]);
    let seen = |b, _, _, t| if b == 0 && t == 1 { -10000.0 } else { 0.0 };
    contrib("QAttention", &args(Some(columns)), &attrs(0), &[attend(&plain, 0.5, seen)]);
}

#[test]
fn quantised_numbers_of_earlier_operator_sets() {
    let zeros = || Const(Tensor::from_i64(DType::U16, vec![2], &[10, 0]));
    let scales = || Const(floats(&[2], &[0.5, 2.0]));
    let x = floats(&[2, 2], &[1.25, -9.0, 1e9, 5.0]);
    let q = Tensor::from_i64(DType::U16, vec![2, 2], &[12, 0, 65535, 2]);
    let axis = [("axis", int(1))];
    let rounded = Tensor::from_i64(DType::U16, vec![2, 2], &[12, 0, 65535, 2]);
    contrib("QuantizeLinear", &[In(x), scales(), zeros()], &axis, &[rounded]);
    let y = floats(&[2, 2], &[1.0, 0.0, 32762.5, 4.0]);
    contrib("DequantizeLinear", &[In(q), scales(), zeros()], &axis, &[y]);
    // Blocks of two along the second axis, the last one shorter.
    let narrow = Tensor::from_i64(DType::I8, vec![1, 3], &[-8, 7, 3]);
    let by = Const(floats(&[1, 2], &[0.5, 2.0]));
    let y = floats(&[1, 3], &[-4.0, 3.5, 6.0]);
    contrib(
        "DequantizeLinear",
        &[In(narrow), by],
        &[("axis", int(1)), ("block_size", int(2))],
        &[y],
    );
}
