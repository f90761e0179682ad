//! The accelerated engine against the plain one, on random shapes, attributes and elements.
//!
//! Bit for bit, except for sums of products, whose order differs.

use super::*;
use proptest::prelude::*;

/// Elements of which some are infinite, NaN, zeros of either sign or denormal.
fn elements(n: usize, seed: u64, specials: Specials) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let special = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 0.0, 5e-324];
    (0..n)
        .map(|_| {
            let v = next();
            match specials {
                Specials::Some if v % 23 == 0 => special[(v / 23 % 6) as usize],
                Specials::Some | Specials::None => v as f64 / (1u64 << 52) as f64 - 1.0,
            }
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Specials {
    None,
    Some,
}

fn random(shape: &[usize], seed: u64, specials: Specials) -> Array {
    f32s(shape, &elements(shape.iter().product(), seed, specials))
}

fn indices(shape: &[usize], seed: u64, extent: usize) -> Array {
    let n = shape.iter().product();
    let scaled = |v: f64| (v * extent as f64).floor().min(extent as f64 - 1.0);
    let values: Vec<f64> = elements(n, seed, Specials::None).into_iter().map(scaled).collect();
    array(I64, shape, &values)
}

fn specials() -> impl Strategy<Value = Specials> {
    prop_oneof![Just(Specials::None), Just(Specials::Some)]
}

/// Both engines agree to `tolerance`, or fail with the same message.
fn agree(op: &str, attrs: &[(&str, Attr)], args: &[Array], tolerance: f64) {
    let plain = apply(Engine::Plain, op, attrs, args);
    let fast = apply(Engine::Fast, op, attrs, args);
    match (plain, fast) {
        (Ok(plain), Ok(fast)) => {
            for (a, b) in plain.iter().zip(&fast) {
                assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{op}");
                if let (Some(a), Some(b)) = (a.ints(), b.ints()) {
                    assert_eq!(a, b, "{op}");
                } else if tolerance > 0.0 {
                    close(op, &b.to_f64(), &a.to_f64(), tolerance);
                } else {
                    for (i, (a, b)) in a.to_f64().iter().zip(b.to_f64()).enumerate() {
                        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                        assert!(same, "{op}, element {i}: {b} instead of {a}");
                    }
                }
            }
        }
        (Err(plain), Err(fast)) => assert_eq!(plain, fast, "{op}"),
        (plain, fast) => panic!("{op}: plain yields {plain:?}, fast yields {fast:?}"),
    }
}

/// Up to four extents whose product stays small.
fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        8 => prop::collection::vec(0usize..7, 0..5),
        1 => prop::collection::vec(20usize..45, 1..3),
        // Longer than a row, and large enough for several threads.
        1 => (1usize..5, 1000usize..9000).prop_map(|(a, b)| vec![a, b]),
    ]
}

/// Spatial attributes: stride, low, high, dilation, window.
fn windows() -> impl Strategy<Value = [Vec<i64>; 5]> {
    let list = |r: std::ops::Range<i64>| prop::collection::vec(r, 2);
    (list(1..4), list(0..3), list(0..3), list(1..3), list(1..4))
        .prop_map(|(s, l, h, d, w)| [s, l, h, d, w])
}

fn window_attrs([stride, low, high, dilation, _]: &[Vec<i64>; 5]) -> Vec<(&'static str, Attr)> {
    vec![
        ("stride", ints(stride)),
        ("low", ints(low)),
        ("high", ints(high)),
        ("dilation", ints(dilation)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn pointwise(shape in shape(), seed: u64, specials in specials()) {
        let (a, b) = (random(&shape, seed, specials), random(&shape, seed ^ 77, specials));
        for op in ["exp", "sigmoid", "neg", "round", "is_nan"] {
            agree(op, &[], std::slice::from_ref(&a), 0.0);
        }
        for op in ["add", "div", "pow", "maximum", "minimum", "remainder", "less", "equal"] {
            agree(op, &[], &[a.clone(), b.clone()], 0.0);
        }
        let c = array(BOOL, &shape, &a.to_f64().iter().map(|v| (*v > 0.0) as u8 as f64).collect::<Vec<_>>());
        agree("select", &[], &[c.clone(), a.clone(), b.clone()], 0.0);
        agree("logical_xor", &[], &[c.clone(), c], 0.0);
        for to in [DType::I8, DType::F16, BOOL] {
            agree("cast", &[("to", Attr::DType(to))], std::slice::from_ref(&a), 0.0);
        }
    }

    #[test]
    fn integers(shape in shape(), seed: u64) {
        for d in [DType::I8, DType::U16, I32, DType::U64, I64] {
            let values = |seed| -> Vec<i64> {
                elements(shape.iter().product(), seed, Specials::None)
                    .into_iter()
                    .map(|v| (v * 1e19) as i64 >> (seed % 50))
                    .collect()
            };
            let of = |v| Array::from_i64(d, shape.clone(), v).expect("as many values");
            let args = [of(values(seed)), of(values(seed ^ 5))];
            for op in ["add", "sub", "mul", "div", "modulo", "remainder", "maximum", "less"] {
                agree(op, &[], &args, 0.0);
            }
            if !shape.is_empty() {
                for op in ["sum", "prod", "max", "min"] {
                    agree(op, &[("axes", ints(&[0]))], &args[..1], 0.0);
                }
            }
        }
    }

    #[test]
    fn reductions(shape in shape(), mask in 0u8..16, seed: u64, specials in specials()) {
        let axes: Vec<i64> = (0..shape.len() as i64).filter(|a| mask >> a & 1 == 1).collect();
        let x = random(&shape, seed, specials);
        for op in ["sum", "prod", "max", "min", "mean"] {
            agree(op, &[("axes", ints(&axes))], std::slice::from_ref(&x), 0.0);
        }
        if x.len() < 2000 {
            for axis in 0..shape.len() as i64 {
                let flag = |bit: u8| Attr::Bool(mask >> bit & 1 == 1);
                let attrs = [("axis", Attr::int(axis)), ("exclusive", flag(0)), ("reverse", flag(1))];
                agree("cumsum", &attrs, std::slice::from_ref(&x), 0.0);
            }
        }
        if shape.len() >= 2 {
            let attrs = [("upper", Attr::Bool(mask & 1 == 1)), ("diagonal", Attr::int(mask as i64 / 4 - 2))];
            agree("triangle", &attrs, &[x], 0.0);
        }
    }

    #[test]
    fn movements(shape in shape(), order: u64, seed: u64) {
        let x = random(&shape, seed, Specials::Some);
        let one = std::slice::from_ref(&x);
        let r = shape.len();
        let mut perm: Vec<i64> = (0..r as i64).collect();
        perm.sort_by_key(|p| (order >> (8 * p)) & 255);
        agree("transpose", &[("perm", ints(&perm))], one, 0.0);
        let mut turned: Vec<i64> = perm.iter().map(|&p| shape[p as usize] as i64).collect();
        agree("reshape", &[("shape", ints(&turned))], one, 0.0);
        let bits = |at: usize, n: i64| ((order >> (5 * at)) % n.max(1) as u64) as i64;
        let low: Vec<i64> = (0..r).map(|a| bits(a, 5) - 1).collect();
        let high: Vec<i64> = (0..r).map(|a| bits(a + 4, 4)).collect();
        let pad = [("low", ints(&low)), ("high", ints(&high))];
        agree("pad", &pad, &[x.clone(), f32s(&[], &[7.0])], 0.0);
        let start: Vec<i64> = (0..r).map(|a| bits(a, shape[a] as i64)).collect();
        let down: Vec<bool> = (0..r).map(|a| bits(a + 3, 2) == 1).collect();
        let step: Vec<i64> =
            (0..r).map(|a| (1 + bits(a + 6, 2)) * if down[a] { -1 } else { 1 }).collect();
        let room = |a: usize| if down[a] { start[a] } else { shape[a] as i64 - 1 - start[a] };
        let size: Vec<i64> = (0..r)
            .map(|a| if shape[a] == 0 { 0 } else { room(a) / step[a].abs() + 1 })
            .collect();
        let attrs = [("start", ints(&start)), ("size", ints(&size)), ("step", ints(&step))];
        agree("slice", &attrs, one, 0.0);
        turned.insert(r / 2, 3);
        let map: Vec<i64> = (0..=r as i64).filter(|&a| a != (r / 2) as i64).collect();
        let y = random(&map.iter().map(|&a| turned[a as usize] as usize).collect::<Vec<_>>(), seed, Specials::None);
        agree("broadcast", &[("map", ints(&map)), ("shape", ints(&turned))], &[y], 0.0);
    }

    #[test]
    fn joining(shape in shape(), at: u8, extent in 0usize..5, far in 0u8..8, seed: u64) {
        prop_assume!(!shape.is_empty());
        let axis = at as usize % shape.len();
        let x = random(&shape, seed, Specials::Some);
        let mut other = shape.clone();
        other[axis] = extent;
        let y = random(&other, seed ^ 1, Specials::None);
        let attrs = [("axis", Attr::int(axis as i64))];
        agree("concat", &attrs, &[x.clone(), y], 0.0);
        // Now and then an index lies outside.
        let reach = shape[axis].max(1) + (far == 0) as usize;
        agree("gather_elements", &attrs, &[x.clone(), indices(&other, seed, reach)], 0.0);
        agree("gather", &attrs, &[x, indices(&[extent, 2], seed, reach)], 0.0);
    }

    #[test]
    fn pooling(w in windows(), h in 1usize..9, v in 1usize..9, c in 1usize..4, seed: u64, specials in specials()) {
        let x = random(&[2, c, h, v], seed, specials);
        let mut attrs = window_attrs(&w);
        attrs.push(("window", ints(&w[4])));
        for op in ["maxpool", "sumpool"] {
            agree(op, &attrs, std::slice::from_ref(&x), 0.0);
        }
    }

    #[test]
    fn places_and_weights(
        (p, n, s) in (0usize..4, 1usize..12, 1usize..40),
        size in 0usize..30,
        kind in 0u8..8,
        seed: u64,
        specials in specials(),
    ) {
        let flag = |bit: u8| Attr::Bool(kind >> bit & 1 == 1);
        let number = Attr::float;
        let mut attrs = vec![
            ("axis", Attr::int(1)),
            ("size", Attr::int(size as i64)),
            ("shift", number(0.5)),
            ("times", number(1.0)),
            ("over", number(1.25 + f64::from(kind))),
            ("offset", number(-0.5)),
        ];
        let x = random(&[p, n, s], seed, specials);
        agree("nearest", &attrs, std::slice::from_ref(&x), 0.0);
        let half = if kind & 1 == 1 { 2 } else { 1 };
        attrs.extend([("half", Attr::int(half)), ("stretch", number(1.0))]);
        attrs.extend([("cubic", flag(0)), ("exclude", flag(1)), ("bounded", flag(2))]);
        agree("resample", &attrs, std::slice::from_ref(&x), 0.0);
        let wide = [("low", ints(&[0, 2, 9])), ("high", ints(&[1, size as i64, 0]))];
        for op in ["pad_edge", "pad_wrap", "pad_reflect"] {
            agree(op, &wide, std::slice::from_ref(&x), 0.0);
        }
        // Some numbers lie outside, where zero is read.
        let [i, w] = [3, 5].map(|k| random(&[p, size, 2], seed ^ k, Specials::None));
        let numbers: Vec<f64> = i.to_f64().iter().map(|v| ((v + 1.0) * 0.6 * s as f64).floor() - 1.0).collect();
        let i = array(I64, &[p, size, 2], &numbers);
        agree("numbered_sum", &[], &[x, i, w], 0.0);
    }

    #[test]
    fn products(
        h in prop::collection::vec(0usize..4, 0..3),
        m in 0usize..40,
        n in 0usize..40,
        k in 0usize..40,
        seed: u64,
        specials in specials(),
    ) {
        let of = |rest: &[usize], seed| random(&[h.as_slice(), rest].concat(), seed, specials);
        agree("matmul", &[], &[of(&[m, k], seed), of(&[k, n], seed ^ 9)], 1e-12);
        let args = [random(&[m, k], seed, specials), random(&[n, k], seed ^ 9, specials)];
        agree("outer", &[], &args, 1e-12);
    }

    #[test]
    fn convolutions(
        w in windows(),
        group in 1usize..4,
        (b, q, o) in (1usize..3, 1usize..6, 1usize..6),
        (h, v) in (1usize..11, 1usize..11),
        seed: u64,
        specials in specials(),
    ) {
        let window = [w[4][0] as usize, w[4][1] as usize];
        let mut attrs = window_attrs(&w);
        attrs.push(("group", Attr::int(group as i64)));
        let x = random(&[b, q * group, h, v], seed, specials);
        let weights = random(&[o * group, q, window[0], window[1]], seed ^ 3, specials);
        agree("conv", &attrs, &[x.clone(), weights], 1e-12);
        let weights = random(&[q * group, o, window[0], window[1]], seed ^ 3, specials);
        attrs.push(("extra", ints(&[0, 1])));
        agree("conv_transpose", &attrs, &[x, weights], 1e-12);
    }
}

/// Blocks of rows and columns that do not divide evenly.
#[test]
fn large_products() {
    for (m, n, k) in [(2100, 70, 3), (70, 2100, 3), (7, 9, 400_000)] {
        let args = [random(&[m, k], 1, Specials::None), random(&[n, k], 2, Specials::None)];
        agree("outer", &[], &args, 1e-11);
    }
    let x = random(&[2, 3, 64, 50], 3, Specials::None);
    let w = random(&[8, 3, 7, 7], 4, Specials::None);
    let attrs = window_attrs(&[vec![2, 1], vec![3, 3], vec![3, 2], vec![1, 1], vec![]]);
    agree("conv", &attrs, &[x, w], 1e-12);
}
