//! Integers are exact: every width, at the ends of its range, wherever a model meets them. Constants are
//! computed while reading, while exploring and at the end; inputs by the reference interpreter and by the processor.

use super::super::support::*;
use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::Value;
use mlc_explore::Limits;
use mlc_rewrite::pipeline::{self, Options};
use std::time::Duration;

const TYPES: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

/// The ends of a type's range, what lies next to zero, and what floats cannot tell apart.
fn values(dtype: DType) -> Vec<i128> {
    let (low, high) = dtype.int_range().expect("an integer type");
    let special = [0, 1, -1, 2, 3, -2, 7, -7, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, 1 << 63];
    let mut out: Vec<i128> = vec![low, low + 1, high - 1, high];
    out.extend(special.into_iter().filter(|v| (low..=high).contains(v)));
    out.extend(
        [5_000_000_000_000_000_001, -5_000_000_000_000_000_001]
            .into_iter()
            .filter(|v| (low..=high).contains(v)),
    );
    out.sort_unstable();
    out.dedup();
    out
}

fn wrap(dtype: DType, v: i128) -> i128 {
    let (low, high) = dtype.int_range().expect("an integer type");
    low + (v - low).rem_euclid(high - low + 1)
}

fn tensor(dtype: DType, shape: &[usize], v: &[i128]) -> Tensor {
    let bits: Vec<i64> = v.iter().map(|&v| v as i64).collect();
    Tensor::from_i64(dtype, shape.to_vec(), &bits)
}

fn list(t: &Tensor) -> Vec<i128> {
    (0..t.len()).map(|i| t.get_i128(i)).collect()
}

/// `base ^ exponent` modulo 2^64; the whole part of the real power for a negative exponent.
fn power(base: i128, exponent: i128) -> Option<i128> {
    if exponent < 0 {
        return match base {
            0 => None,
            1 => Some(1),
            -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut out, mut square, mut e) = (1u128, base as u128, exponent as u128);
    while e > 0 {
        if e & 1 == 1 {
            out = out.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        e >>= 1;
    }
    Some((out & u128::from(u64::MAX)) as i128)
}

/// The remainder with the sign of the divisor.
fn modulo(a: i128, b: i128) -> Option<i128> {
    let r = (b != 0).then(|| a.rem_euclid(b))?;
    Some(if r != 0 && b < 0 { r + b } else { r })
}

/// What an operator of two numbers yields; `None` where it says nothing (division by zero).
type Binary = fn(i128, i128) -> Option<i128>;

/// Name, attributes, value, whether that is a truth value.
type Operator = (&'static str, Vec<(&'static str, RawAttr)>, Binary, bool);

/// Operators of two numbers.
fn binaries() -> Vec<Operator> {
    vec![
        ("Add", vec![], |a, b| Some(a + b), false),
        ("Sub", vec![], |a, b| Some(a - b), false),
        ("Mul", vec![], |a, b| Some(a.wrapping_mul(b)), false),
        ("Div", vec![], |a, b| (b != 0).then(|| a / b), false),
        ("Mod", vec![], modulo, false),
        ("Mod", vec![("fmod", int(1))], |a, b| (b != 0).then(|| a % b), false),
        ("Max", vec![], |a, b| Some(a.max(b)), false),
        ("Min", vec![], |a, b| Some(a.min(b)), false),
        ("Pow", vec![], power, false),
        ("Equal", vec![], |a, b| Some((a == b).into()), true),
        ("Less", vec![], |a, b| Some((a < b).into()), true),
        ("LessOrEqual", vec![], |a, b| Some((a <= b).into()), true),
        ("Greater", vec![], |a, b| Some((a > b).into()), true),
        ("GreaterOrEqual", vec![], |a, b| Some((a >= b).into()), true),
    ]
}

fn options() -> Options {
    Options {
        target: "standard".into(),
        limits: Limits {
            nodes: 2_000,
            rounds: 4,
            time: Duration::from_secs(60),
            threads: 1,
            ..Limits::default()
        },
        self_check: false,
        ..Options::default()
    }
}

/// All ways to the values of a program.
fn ways(program: &Program, feeds: &[Tensor], what: &str) -> Vec<(&'static str, Vec<Tensor>)> {
    let library = library();
    let target = pipeline::target(library, "cpu").expect("the target");
    let plan = |p: &Program| pipeline::plan(p, library, &target).expect("plans");
    let cpu = |p: &Program| {
        let executable = Cpu::new(1).compile(&plan(p), library.clone()).expect("compiles");
        executable.run(feeds).unwrap_or_else(|e| panic!("{what}: {e}"))
    };
    let done = pipeline::optimize(program.clone(), library, &options());
    let done = done.unwrap_or_else(|e| panic!("{what}: {e}")).program;
    vec![
        ("reference", run(program, feeds)),
        ("processor", cpu(program)),
        ("optimised, reference", run(&done, feeds)),
        ("optimised, processor", cpu(&done)),
    ]
}

/// Runs one model in all ways.
#[track_caller]
fn held(raw: RawModel, feeds: &[Tensor], expected: &[Option<i128>], what: &str) {
    let program = import(raw, library()).unwrap_or_else(|e| panic!("{what}: {e}")).program;
    for (way, results) in ways(&program, feeds, what) {
        for (i, (found, sought)) in list(&results[0]).into_iter().zip(expected).enumerate() {
            if let Some(sought) = sought {
                assert_eq!(found, *sought, "{what}, {way}, element {i}");
            }
        }
        assert_eq!(results[0].len(), expected.len(), "{what}, {way}");
    }
}

/// The value that reading alone makes of an output, if it is a constant then.
fn read(raw: RawModel, what: &str) -> Option<i128> {
    let program = import(raw, library()).unwrap_or_else(|e| panic!("{what}: {e}")).program;
    let out: Value = program.outputs[0].1;
    program.as_const(out).map(|t| t.get_i128(0))
}

#[test]
fn operators_of_two_numbers() {
    let mut at_reading = 0;
    for dtype in TYPES {
        let v = values(dtype);
        let pairs: Vec<(i128, i128)> =
            v.iter().flat_map(|&a| v.iter().map(move |&b| (a, b))).collect();
        let side = |f: fn(&(i128, i128)) -> i128| pairs.iter().map(f).collect::<Vec<_>>();
        let (left, right) = (side(|p| p.0), side(|p| p.1));
        let n = pairs.len();
        for (op, attrs, f, truth) in binaries() {
            let what = format!("{op}{attrs:?} of {dtype}");
            let value = |a: i128, b: i128| f(a, b).map(|v| if truth { v } else { wrap(dtype, v) });
            let expected: Vec<_> = pairs.iter().map(|&(a, b)| value(a, b)).collect();
            let (a, b) = (|| tensor(dtype, &[n], &left), || tensor(dtype, &[n], &right));
            for (args, feeds) in [
                ([In(a()), In(b())], vec![a(), b()]),
                ([In(a()), Const(b())], vec![a()]),
                ([Const(a()), Const(b())], vec![]),
            ] {
                let (raw, _) = single(18, op, &args, &attrs, 1);
                held(raw, &feeds, &expected, &what);
            }
            // Numbers that are repeated, which exploration knows as numbers.
            let most = wrap(dtype, (1 << 53) + 1);
            let (x, y) = (v[v.len() - 1], most);
            let args = [Const(tensor(dtype, &[3], &[x; 3])), Const(tensor(dtype, &[], &[y]))];
            let (raw, _) = single(18, op, &args, &attrs, 1);
            held(raw, &[], &[value(x, y); 3], &what);
            for &(a, b) in &pairs {
                let args = [Const(tensor(dtype, &[], &[a])), Const(tensor(dtype, &[], &[b]))];
                let (raw, _) = single(18, op, &args, &attrs, 1);
                if let (Some(found), Some(sought)) = (read(raw, &what), value(a, b)) {
                    at_reading += 1;
                    assert_eq!(found, sought, "{what} at {a} and {b}, read");
                }
            }
        }
    }
    assert!(at_reading > 1_000, "{at_reading} are computed while reading");
}

#[test]
fn operators_of_one_tensor() {
    type Unary = fn(i128) -> i128;
    let unary: [(&str, Unary); 4] =
        [("Neg", |v| -v), ("Abs", i128::abs), ("Sign", i128::signum), ("Identity", |v| v)];
    for dtype in TYPES {
        let v = values(dtype);
        let n = v.len();
        let x = || tensor(dtype, &[n], &v);
        let both = |op: &str,
                    attrs: &[(&str, RawAttr)],
                    rest: &dyn Fn() -> Vec<Arg>,
                    expected: &[i128]| {
            let expected: Vec<_> = expected.iter().map(|&v| Some(v)).collect();
            let what = format!("{op}{attrs:?} of {dtype}");
            for (first, feeds) in [(In(x()), vec![x()]), (Const(x()), vec![])] {
                let mut args = vec![first];
                args.extend(rest());
                let (raw, _) = single(18, op, &args, attrs, 1);
                held(raw, &feeds, &expected, &what);
            }
        };
        let none = || vec![];
        for (op, f) in unary {
            let y: Vec<i128> = v.iter().map(|&v| wrap(dtype, f(v))).collect();
            both(op, &[], &none, &y);
        }
        let sum = |v: &[i128]| wrap(dtype, v.iter().sum());
        let product = v.iter().fold(1u128, |p, &v| p.wrapping_mul(v as u128));
        let product = wrap(dtype, (product & u128::from(u64::MAX)) as i128);
        let keep = [("keepdims", int(0))];
        both("ReduceSum", &keep, &none, &[sum(&v)]);
        both("ReduceMax", &keep, &none, &[v[n - 1]]);
        both("ReduceMin", &keep, &none, &[v[0]]);
        both("ReduceProd", &keep, &none, &[product]);
        both("ArgMax", &keep, &none, &[n as i128 - 1]);
        both("ArgMin", &keep, &none, &[0]);
        let axis = || vec![Const(ints(&[], &[0]))];
        let running: Vec<i128> = (1..=n).map(|k| sum(&v[..k])).collect();
        both("CumSum", &[], &axis, &running);
        let backwards: Vec<i128> = (0..n).map(|k| sum(&v[k + 1..])).collect();
        both("CumSum", &[("exclusive", int(1)), ("reverse", int(1))], &axis, &backwards);
        // Bounds that no float tells from their neighbours.
        let (low, high) = (v[1], v[n - 2]);
        let bounds = || vec![Const(tensor(dtype, &[], &[low])), Const(tensor(dtype, &[], &[high]))];
        let y: Vec<i128> = v.iter().map(|&v| v.clamp(low, high)).collect();
        both("Clip", &[], &bounds, &y);
        let last = wrap(dtype, (1 << 53) + 1);
        let y: Vec<i128> = v.iter().map(|&v| v.min(last)).collect();
        both("Clip", &[], &|| vec![Absent, Const(tensor(dtype, &[], &[last]))], &y);
        for to in TYPES {
            let y: Vec<i128> = v.iter().map(|&v| wrap(to, v)).collect();
            both("Cast", &[("to", int(code(to)))], &none, &y);
        }
        let y: Vec<i128> = v.iter().map(|&v| i128::from(v != 0)).collect();
        both("Cast", &[("to", int(9))], &none, &y);
    }
}

fn code(d: DType) -> i64 {
    match d {
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::U32 => 12,
        _ => 13,
    }
}

#[test]
fn choices_products_and_ranges() {
    for dtype in TYPES {
        let v = values(dtype);
        let n = v.len();
        let x = || tensor(dtype, &[n], &v);
        let c: Vec<i64> = (0..n as i64).map(|i| i % 2).collect();
        let y: Vec<_> = v
            .iter()
            .zip(&c)
            .map(|(&v, c)| Some(if *c == 1 { v } else { wrap(dtype, (1 << 53) + 1) }))
            .collect();
        let other = || Const(tensor(dtype, &[], &[wrap(dtype, (1 << 53) + 1)]));
        for (a, feeds) in [(In(x()), vec![x()]), (Const(x()), vec![])] {
            let (raw, _) = single(18, "Where", &[Const(bools(&[n], &c)), a, other()], &[], 1);
            held(raw, &feeds, &y, &format!("Where of {dtype}"));
        }
        let w = || tensor(dtype, &[1, n], &v);
        let products: Vec<_> = v
            .iter()
            .flat_map(|&a| v.iter().map(move |&b| Some(wrap(dtype, a.wrapping_mul(b)))))
            .collect();
        let column = || tensor(dtype, &[n, 1], &v);
        for (a, feeds) in [(In(column()), vec![column()]), (Const(column()), vec![])] {
            let (raw, _) = single(18, "MatMul", &[a, Const(w())], &[], 1);
            held(raw, &feeds, &products, &format!("MatMul of {dtype}"));
        }
    }
    let start = (1i128 << 53) + 1;
    let bound = |v: i128| Const(tensor(DType::I64, &[], &[v]));
    let (raw, _) = single(18, "Range", &[bound(start), bound(start + 3), bound(1)], &[], 1);
    let expected: Vec<_> = (0..3).map(|k| Some(start + k)).collect();
    held(raw, &[], &expected, "Range");
}

#[test]
fn integers_have_lengths_and_logarithms() {
    let of = |op: &str, dtype: DType| {
        let t = Tensor::from_i64(dtype, vec![2, 3], &[3, 4, 0, 1, 7, 7]);
        let (raw, feeds) = single(13, op, &[In(t)], &[("axes", RawAttr::Ints(vec![1]))], 1);
        let imported = import(raw, library()).expect("it is read");
        run_values(&imported.program, library(), &feeds).expect("it runs")[0].to_f64()
    };
    for dtype in [DType::I64, DType::I32] {
        assert_eq!(of("ReduceL2", dtype), [5.0, 9.0], "{dtype}");
        assert_eq!(of("ReduceLogSum", dtype), [1.0, 2.0], "{dtype}");
        assert_eq!(of("ReduceLogSumExp", dtype), [4.0, 7.0], "{dtype}");
    }
}

#[test]
fn statistics_of_halves_are_of_single_precision() {
    for (dtype, inner) in [(DType::F16, DType::F16), (DType::F64, DType::F64)] {
        let x = Tensor::from_f64(dtype, vec![2, 4], &[1.0, 2.0, 3.0, 6.0, 0.0, 0.0, 4.0, 4.0]);
        let scale = Tensor::from_f64(dtype, vec![4], &[1.0; 4]);
        let (raw, feeds) = single(17, "LayerNormalization", &[In(x), Const(scale)], &[], 3);
        let imported = import(raw, library()).expect("it is read");
        let found = run_values(&imported.program, library(), &feeds).expect("it runs");
        let types: Vec<DType> = found.iter().map(|t| t.dtype()).collect();
        assert_eq!(types, [inner, DType::F32, DType::F32]);
        assert_eq!(found[1].to_f64(), [3.0, 2.0]);
        assert_eq!(found[1].shape(), [2, 1]);
    }
}

#[test]
fn a_signal_may_lack_the_axis_of_real_numbers() {
    let window = floats(&[4], &[0.5, 1.0, 1.0, 0.5]);
    let of = |shape: &[usize]| {
        let args = [In(count(shape)), Const(ints(&[], &[2])), Const(window.clone())];
        let (raw, feeds) = single(17, "STFT", &args, &[("onesided", int(1))], 1);
        let imported = import(raw, library()).expect("it is read");
        run_values(&imported.program, library(), &feeds).expect("it runs").remove(0)
    };
    let (two, three) = (of(&[2, 8]), of(&[2, 8, 1]));
    assert_eq!(two.shape(), three.shape());
    assert_eq!(two.to_f64(), three.to_f64());
}
