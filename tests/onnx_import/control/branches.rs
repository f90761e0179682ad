//! Branches of convolutions that start at one value and are summed become one convolution, wherever every tap of the
//! sum is a tap of one of them (RepVGG, Ding et al. 2021; ACNet, Ding et al. 2019).

use super::super::support::*;
use super::decided::optimized;

/// What is summed: a convolution with its window, or the input as it is or normalised.
enum Branch {
    Window([usize; 2]),
    Dilated(usize),
    Normalised,
    Input,
}
use Branch::{Dilated, Input, Normalised, Window};

struct Case {
    channels: usize,
    groups: usize,
    stride: i64,
    branches: Vec<Branch>,
    convolutions: usize,
}

/// Numbers of both signs that are no multiples of each other.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    let v: Vec<f64> = (0..n).map(|i| ((i * 37 + seed * 17) % 23) as f64 / 8.0 - 1.25).collect();
    floats(shape, &v)
}

fn positive(n: usize, seed: usize) -> Tensor {
    floats(&[n], &(0..n).map(|i| 0.5 + ((i + seed) % 5) as f64 / 4.0).collect::<Vec<_>>())
}

/// The sum of the branches, each convolution with a bias and centred on what it is computed of.
fn summed(case: &Case) -> (RawModel, Vec<Tensor>) {
    let &Case { channels: c, groups, stride, .. } = case;
    let mut args = vec![In(numbers(&[2, c, 6, 6], 3))];
    let mut nodes: Vec<RawNode> = vec![];
    for (i, branch) in case.branches.iter().enumerate() {
        let mut constant = |t: Tensor| {
            args.push(Const(t));
            format!("x{}", args.len() - 1)
        };
        let y = format!("b{i}");
        match branch {
            Window(_) | Dilated(_) => {
                let (window, dilation) = match *branch {
                    Window(window) => (window, 1),
                    Dilated(window) => ([window; 2], 2),
                    _ => unreachable!("matched above"),
                };
                let w = constant(numbers(&[c, c / groups, window[0], window[1]], i));
                let z = constant(numbers(&[c], i + 7));
                let [a, b] = window.map(|n| dilation * (n as i64 - 1) / 2);
                let attrs = [
                    ("pads", list(&[a, b, a, b])),
                    ("strides", list(&[stride, stride])),
                    ("dilations", list(&[dilation, dilation])),
                    ("group", int(groups as i64)),
                ];
                nodes.push(node("Conv", &["x0", &w, &z], &[&y], &attrs));
            }
            Normalised => {
                let parts = [numbers(&[c], 1), numbers(&[c], 2), numbers(&[c], 4), positive(c, i)];
                let parts = parts.map(constant);
                let read = [&["x0"], parts.each_ref().map(String::as_str).as_slice()].concat();
                nodes.push(node("BatchNormalization", &read, &[&y], &[]));
            }
            Input => nodes.push(node("Identity", &["x0"], &[&y], &[])),
        }
    }
    for i in 1..case.branches.len() {
        let left = if i == 1 { "b0".to_string() } else { format!("s{}", i - 1) };
        let sum = if i + 1 == case.branches.len() { "y".to_string() } else { format!("s{i}") };
        nodes.push(node("Add", &[&left, &format!("b{i}")], &[&sum], &[]));
    }
    model(17, &args, nodes, &["y"])
}

#[test]
fn branches_become_one_convolution() {
    let case = |channels, groups, stride, branches, convolutions| Case {
        channels,
        groups,
        stride,
        branches,
        convolutions,
    };
    let square = |n: usize| Window([n, n]);
    let cases = [
        case(4, 1, 1, vec![square(3), square(1), Normalised], 1),
        case(4, 1, 1, vec![Normalised, square(1), square(3)], 1),
        case(4, 2, 1, vec![square(3), Input, square(1)], 1),
        case(4, 4, 1, vec![square(5), square(3), Normalised], 1),
        case(3, 1, 2, vec![square(1), square(3)], 1),
        case(3, 1, 1, vec![square(3), Window([1, 3]), Window([3, 1])], 1),
        case(3, 3, 1, vec![Dilated(3), square(1), Input], 1),
        // No window of one has all taps of the other.
        case(3, 1, 1, vec![Window([1, 3]), Window([3, 1])], 2),
        case(3, 1, 1, vec![Dilated(3), square(3)], 2),
    ];
    for case in cases {
        let (raw, feeds) = summed(&case);
        let out = optimized(&raw, &[feeds]);
        let found = out.graph.nodes.iter().filter(|n| n.op_type == "Conv").count();
        assert_eq!(found, case.convolutions);
    }
}
