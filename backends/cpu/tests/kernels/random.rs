//! Random shapes, strides and graphs against the reference interpreter.

use super::support::*;
use mlc_dsl::ir::{Attr, DType, Tensor, Value};
use proptest::prelude::*;

/// One spatial axis: extent, window, stride, low, high, dilation.
type Axis = (usize, usize, i64, i64, i64, i64);

fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0usize), 2 => Just(1usize), 10 => 2usize..36]
}

/// A view of a fresh tensor that has the shape `shape`: transposed, cut, stepped through, or repeated.
fn viewed(c: &mut Case<'_>, dtype: DType, shape: &[usize], how: u8) -> Value {
    let n = shape.len();
    match how % 4 {
        1 => {
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            let x = c.input(dtype, &turned);
            c.apply("transpose", &[("perm", Attr::ints((0..n as i64).rev()))], &[x])
        }
        2 => {
            let wide: Vec<usize> = shape.iter().map(|d| d * 2 + 3).collect();
            let x = c.input(dtype, &wide);
            let start = shape.iter().map(|d| (*d as i64 - 1).max(0) * 2);
            let attrs = [
                ("start", Attr::ints(start)),
                ("size", Attr::ints(shape.iter().map(|d| *d as i64))),
                ("step", Attr::ints(vec![-2; n])),
            ];
            c.apply("slice", &attrs, &[x])
        }
        3 if n > 0 => {
            let x = c.input(dtype, &shape[n - 1..]);
            c.broadcast(x, &[n as i64 - 1], shape)
        }
        _ => c.input(dtype, shape),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products(
        batch in prop::collection::vec(0usize..4, 0..3),
        (m, k, n) in (extent(), extent(), extent()),
        how in (any::<u8>(), any::<u8>()),
        epilogue in any::<bool>(),
    ) {
        check("product", Tolerance(1e-4, 1e-5), |c| {
            let shape = |a, b| [batch.as_slice(), &[a, b]].concat();
            let a = viewed(c, DType::F32, &shape(m, k), how.0);
            let b = viewed(c, DType::F32, &shape(k, n), how.1);
            let y = c.apply("matmul", &[], &[a, b]);
            if !epilogue {
                return vec![y];
            }
            let r = viewed(c, DType::F32, &shape(m, n), how.0 / 4);
            let z = viewed(c, DType::F32, &shape(m, n), 3);
            let y = c.apply("add", &[], &[y, z]);
            let y = c.apply("maximum", &[], &[r, y]);
            vec![c.apply("sub", &[], &[y, r])]
        });
    }

    #[test]
    fn convolutions(
        (b, q, o, group) in (1usize..3, 1usize..4, 1usize..4, 1usize..4),
        axes in prop::collection::vec((1usize..20, 1usize..4, 1i64..4, -1i64..3, 0i64..3, 1i64..3), 1..4),
        depthwise in any::<bool>(),
    ) {
        let (q, o) = if depthwise { (1, 1) } else { (q, o) };
        let fits = axes.iter().all(|(x, w, _, low, high, d)| {
            *x as i64 + low + high > (*w as i64 - 1) * d && *x as i64 + low.min(&0) + high.min(&0) > 0
        });
        prop_assume!(fits && axes.iter().map(|a| a.0).product::<usize>() < 2000);
        let pick = |f: fn(&Axis) -> i64| Attr::ints(axes.iter().map(f));
        check("conv", Tolerance(1e-4, 1e-5), |c| {
            let x: Vec<usize> = [b, q * group].into_iter().chain(axes.iter().map(|a| a.0)).collect();
            let w: Vec<usize> = [o * group, q].into_iter().chain(axes.iter().map(|a| a.1)).collect();
            let (x, w) = (c.input(DType::F32, &x), c.constant(DType::F32, &w));
            let attrs = [
                ("stride", pick(|a| a.2)), ("low", pick(|a| a.3)), ("high", pick(|a| a.4)),
                ("dilation", pick(|a| a.5)), ("group", Attr::int(group as i64)),
            ];
            let window = [
                ("window", pick(|a| a.1 as i64)), ("stride", pick(|a| a.2)), ("low", pick(|a| a.3.max(0))),
                ("high", pick(|a| a.4.max(0))), ("dilation", pick(|a| a.5)),
            ];
            let y = c.apply("conv", &attrs, &[x, w]);
            let p = c.apply("sumpool", &window, &[x]);
            vec![c.apply("abs", &[], &[y]), p]
        });
    }

    #[test]
    fn reductions(
        shape in prop::collection::vec(prop_oneof![Just(0usize), Just(1), 2usize..70], 1..4),
        mask in any::<u8>(),
        how in any::<u8>(),
    ) {
        prop_assume!(shape.iter().product::<usize>() < 40_000);
        let axes: Vec<i64> = (0..shape.len() as i64).filter(|i| mask >> i & 1 == 1).collect();
        for (op, t) in [("sum", Tolerance(1e-4, 1e-5)), ("max", Tolerance(0.0, 0.0))] {
            check(op, t, |c| {
                let x = viewed(c, DType::F32, &shape, how);
                vec![c.apply(op, &[("axes", Attr::ints(axes.clone()))], &[x])]
            });
        }
    }

    /// Any graph of operators: whatever the cover makes of it, the values are the reference interpreter's.
    #[test]
    fn graphs(steps in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..24)) {
        check("graph", Tolerance(1e-4, 1e-4), |c| {
            let (m, n) = (5usize, 18usize);
            let mut values = vec![c.input(DType::F32, &[m, n]), c.constant(DType::F32, &[m, n])];
            for (op, i, j) in &steps {
                let a = values[*i as usize % values.len()];
                let b = values[*j as usize % values.len()];
                let turned = |c: &mut Case<'_>, v| c.apply("transpose", &[("perm", Attr::ints([1, 0]))], &[v]);
                let v = match op % 14 {
                    0 => c.apply("add", &[], &[a, b]),
                    1 => c.apply("sub", &[], &[a, b]),
                    2 => c.apply("maximum", &[], &[a, b]),
                    3 => c.apply("tanh", &[], &[a]),
                    4 => c.apply("sigmoid", &[], &[a]),
                    5 => c.apply("neg", &[], &[a]),
                    6 => c.apply("softmax", &[("axis", Attr::int((j % 2).into()))], &[a]),
                    7 => {
                        let s = c.apply("max", &[("axes", Attr::ints([(j % 2).into()]))], &[a]);
                        c.broadcast(s, &[1 - i64::from(j % 2)], &[m, n])
                    }
                    8 => {
                        // m × n by n × n of numbers in -1..1, kept small.
                        let t = turned(c, b);
                        let s = c.apply("softmax", &[("axis", Attr::int(0))], &[t]);
                        let y = c.apply("matmul", &[], &[s, a]);
                        let y = c.apply("slice", &[
                            ("start", Attr::ints([0, 0])), ("size", Attr::ints([m as i64, n as i64])),
                            ("step", Attr::ints([2, 1])),
                        ], &[y]);
                        c.apply("tanh", &[], &[y])
                    }
                    9 => {
                        let t = turned(c, a);
                        let t = c.apply("reshape", &[("shape", Attr::ints([m as i64, n as i64]))], &[t]);
                        c.apply("abs", &[], &[t])
                    }
                    10 => {
                        let l = c.apply("less", &[], &[a, b]);
                        c.apply("select", &[], &[l, b, a])
                    }
                    11 => {
                        let k = c.apply("concat", &[("axis", Attr::int(0))], &[a, b]);
                        let k = c.apply("concat", &[("axis", Attr::int(0))], &[k, a]);
                        c.apply("slice", &[
                            ("start", Attr::ints([3, 0])), ("size", Attr::ints([m as i64, n as i64])),
                            ("step", Attr::ints([1, 1])),
                        ], &[k])
                    }
                    12 => c.apply("gelu", &[], &[a]),
                    _ => {
                        // Functions that saturate lie next to whole numbers, where rounding would decide what is cut off.
                        let third = c.builder.constant(Tensor::from_f32(vec![], vec![0.3]));
                        let third = c.broadcast(third, &[], &[m, n]);
                        let a = c.apply("add", &[], &[a, third]);
                        let h = c.apply("cast", &[("to", Attr::DType(DType::I32))], &[a]);
                        let h = c.apply("add", &[], &[h, h]);
                        c.apply("cast", &[("to", Attr::DType(DType::F32))], &[h])
                    }
                };
                values.push(v);
            }
            values.split_off(values.len().saturating_sub(2))
        });
    }
}
