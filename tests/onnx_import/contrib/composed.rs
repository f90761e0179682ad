//! Operators of ONNX Runtime's domain that are made of others: images with their channels last, choices, tables of few bits.

use super::super::support::*;
use super::{contrib, contrib_at, drawn, numbers};

fn unsigned(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(DType::U8, shape.to_vec(), v)
}

fn scale(v: f64) -> Arg {
    Const(floats(&[], &[v]))
}

fn zero(v: i64) -> Arg {
    Const(unsigned(&[], &[v]))
}

/// An image with its channels last as one with its channels second.
fn second(v: &[i64], [b, h, w, c]: [usize; 4]) -> Vec<i64> {
    let at = |i: usize| {
        let (x, y, k, n) = (i % w, i / w % h, i / (w * h) % c, i / (w * h * c));
        v[((n * h + y) * w + x) * c + k]
    };
    (0..b * h * w * c).map(at).collect()
}

#[test]
fn images_whose_channels_are_last() {
    let image: Vec<i64> = (0..2 * 4 * 4).map(|i| (i * 37 + i / 5) % 256).collect();
    let x = unsigned(&[1, 4, 4, 2], &image);
    let planes = second(&image, [1, 4, 4, 2]);
    let at = |c: usize, y: usize, x: usize| planes[(c * 4 + y) * 4 + x];
    let window = |c: usize, y: usize, x: usize| {
        [at(c, y, x), at(c, y, x + 1), at(c, y + 1, x), at(c, y + 1, x + 1)]
    };
    // Windows of two by two, one apart, channels last.
    let each = |f: &dyn Fn([i64; 4], [i64; 4], usize) -> i64| -> Vec<i64> {
        let one = |i: usize| {
            let (c, x, y) = (i % 2, i / 2 % 3, i / 6);
            f(window(0, y, x), window(1, y, x), c)
        };
        (0..18).map(one).collect()
    };
    let own = |a: [i64; 4], b: [i64; 4], c: usize| if c == 0 { a } else { b };
    let kernel = ("kernel_shape", list(&[2, 2]));
    let most = each(&|a, b, c| own(a, b, c).into_iter().max().unwrap());
    contrib(
        "NhwcMaxPool",
        &[In(x.clone())],
        std::slice::from_ref(&kernel),
        &[unsigned(&[1, 3, 3, 2], &most)],
    );
    let mean = each(&|a, b, c| {
        let mean = own(a, b, c).iter().map(|v| (v - 3) as f64 * 0.5).sum::<f64>() / 4.0;
        ((mean / 0.75).round_ties_even() as i64 + 4).clamp(0, 255)
    });
    let args = [In(x.clone()), scale(0.5), zero(3), scale(0.75), zero(4)];
    let last = ("channels_last", int(1));
    contrib(
        "QLinearAveragePool",
        &args,
        &[kernel.clone(), last.clone()],
        &[unsigned(&[1, 3, 3, 2], &mean)],
    );
    // One filter that sums both channels, with weights 1, 2, 3, 4 and their opposites.
    let (w, bias) = ([1, 2, 3, 4, -1, -2, -3, -4], 20);
    let sums: Vec<i64> = (0..9)
        .map(|i| {
            let (a, b) = (window(0, i / 3, i % 3), window(1, i / 3, i % 3));
            let both = a.iter().chain(&b).zip(w);
            let sum: i64 = both.map(|(v, w)| (v - 3) * w).sum::<i64>() + bias;
            ((sum as f64 * 0.0625).round_ties_even() as i64 + 100).clamp(0, 255)
        })
        .collect();
    let filter = Const(Tensor::from_i64(DType::I8, vec![1, 2, 2, 2], &w));
    let none = Const(Tensor::from_i64(DType::I8, vec![1], &[0]));
    let by = Const(floats(&[1], &[0.25]));
    let bias = Const(Tensor::from_i64(DType::I32, vec![1], &[bias]));
    let args = [In(x), scale(0.5), zero(3), filter, by, none, scale(2.0), zero(100), bias];
    contrib("QLinearConv", &args, &[last], &[unsigned(&[1, 3, 3, 1], &sums)]);
    let plain = unsigned(&[1, 2, 4, 4], &planes);
    let args = [[In(plain)].as_slice(), &args[1..]].concat();
    contrib("QLinearConv", &args, &[], &[unsigned(&[1, 1, 3, 3], &sums)]);
}

#[test]
fn quantised_choices() {
    let c = In(bools(&[2, 1], &[1, 0]));
    let (x, y) = (unsigned(&[2, 2], &[4, 10, 0, 0]), unsigned(&[2], &[7, 255]));
    let args = [c, In(x), scale(0.5), zero(2), In(y), scale(0.25), zero(3), scale(0.5), zero(10)];
    // 1, 4 and then 1, 63.
    contrib("QLinearWhere", &args, &[], &[unsigned(&[2, 2], &[12, 18, 12, 136])]);
}

#[test]
fn slices_of_tables_of_few_bits() {
    let (rows, columns, block) = (3, 20, 16);
    let i = ints(&[2, 2], &[2, 0, -2, 1]);
    let row = |k: usize| [2, 0, 1, 1][k];
    for (bits, packed, middles) in [
        (4, true, true),
        (4, true, false),
        (8, true, true),
        (2, true, false),
        (4, false, true),
        (4, false, false),
    ] {
        let per = if packed { 8 / bits } else { 1 };
        let number = |i: usize| ((i * 7 + i / 5) % (1 << bits)) as i64;
        let middle = |i: usize| ((i * 5 + 3) % (1 << bits)) as i64;
        let bytes = |count: usize, of: &dyn Fn(usize) -> i64| -> Vec<i64> {
            let byte = |i: usize| (0..per).map(|j| of(i * per + j) << (j * bits)).sum::<i64>();
            (0..count / per).map(byte).collect()
        };
        let table = |last: usize, v: &[i64]| {
            let dtype = if packed { DType::U8 } else { DType::U4 };
            Const(Tensor::from_i64(dtype, vec![rows, last], v))
        };
        let scales = drawn(2, &[rows, 2]);
        let wide = usize::next_multiple_of(2, per);
        let zeros = match middles {
            true => table(
                wide / per,
                &bytes(rows * wide, &|i| {
                    if i % wide < 2 { middle(i / wide * 2 + i % wide) } else { 0 }
                }),
            ),
            false => Absent,
        };
        let value = |n: usize| {
            let (r, c) = (row(n / columns), n % columns);
            let b = r * 2 + c / block;
            let usual = if packed { 1 << (bits - 1) } else { 0 };
            let z = if middles { middle(b) } else { usual };
            (number(r * columns + c) - z) as f64 * numbers(&scales)[b]
        };
        let y: Vec<f64> = (0..4 * columns).map(value).collect();
        let data = table(columns / per, &bytes(rows * columns, &number));
        let attrs = [("bits", int(bits as i64)), ("block_size", int(16))];
        let args = [data, In(i.clone()), Const(scales.clone()), zeros];
        contrib_at(
            if packed { 18 } else { 21 },
            "GatherBlockQuantized",
            &args,
            &attrs,
            &[floats(&[2, 2, columns], &y)],
        );
    }
}

#[test]
fn operators_that_onnx_has_too() {
    let x = || In(floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]));

    let b = Const(floats(&[2, 2], &[1.0, 1.0, 0.0, 0.0]));
    let turned = [("transA", int(1)), ("transB", int(1)), ("alpha", RawAttr::Float(2.0))];
    contrib("TransposeMatMul", &[x(), b], &turned, &[floats(&[2, 2], &[8.0, 0.0, 12.0, 0.0])]);
    let lower = floats(&[2, 2], &[1.0, 0.0, 3.0, 4.0]);
    contrib("Trilu", &[x()], &[("upper", int(0))], &[lower]);
    contrib(
        "Trilu",
        &[x(), Const(ints(&[], &[1]))],
        &[],
        &[floats(&[2, 2], &[0.0, 2.0, 0.0, 0.0])],
    );
    contrib(
        "ExpandDims",
        &[x(), Const(Tensor::from_i64(DType::I32, vec![], &[-1]))],
        &[],
        &[floats(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0])],
    );
    contrib(
        "GatherND",
        &[x(), Const(ints(&[2, 2], &[0, 1, 1, 0]))],
        &[],
        &[floats(&[2], &[2.0, 3.0])],
    );
    let framed = floats(&[3, 2], &[5.0, 5.0, 1.0, 2.0, 3.0, 4.0]);
    let frame = Const(ints(&[4], &[1, 0, 0, 0]));
    contrib("Pad", &[x(), frame, Const(floats(&[], &[5.0]))], &[], &[framed]);
    let whole = |v: &[i64]| Tensor::from_i64(DType::I16, vec![1, 2], v);
    let column = Tensor::from_i64(DType::I16, vec![2, 1], &[300, -300]);
    let product = Tensor::from_i64(DType::I32, vec![1, 1], &[300 * 30000 - 300 * 2]);
    contrib("MatMulInteger16", &[In(whole(&[30000, 2])), Const(column)], &[], &[product]);
    let points = Const(floats(&[1, 2], &[1.0, 1.0]));
    contrib("CDist", &[x(), points.clone()], &[], &[floats(&[2, 1], &[1.0, 13.0])]);
    let metric = [("metric", RawAttr::from("euclidean"))];
    contrib("CDist", &[x(), points], &metric, &[floats(&[2, 1], &[1.0, 13.0f64.sqrt()])]);
}
