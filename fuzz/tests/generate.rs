//! The generator and the oracle on a small library of their own.

use mlc_dsl::check::library;
use mlc_dsl::ir::{DType, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_fuzz::input_values::Style;
use mlc_fuzz::oracle::examine;
use mlc_fuzz::{Generator, Size, Stage, Subject, Verdict};

const TEXT: &str = "
/// Repeats.
op broadcast(x: T[..a], map: ints, shape: ints) -> y: T[..b]
  where b = shape
  if increasing(map), pick(shape, map) == |a|
  y[..b] = x[..pick(b, map)]

/// Another shape.
op reshape(x: T[..a], shape: shape(a)) -> y: T[..b]
  where b = shape
  if product(shape) == product(|a|)
  y[..b] = x[..unravel(ravel(b, |b|), |a|)]

/// Sum.
op add(a: F[..s], b: F[..s]) -> y: F[..s]
  y[..s] = a[..s] + b[..s]

/// Product.
op mul(a: F[..s], b: F[..s]) -> y: F[..s]
  y[..s] = a[..s] * b[..s]

/// Matrix product.
op matmul(a: F[..h, m, k], b: F[..h, k, n]) -> y: F[..h, m, n]
  y[..h, m, n] = sum(k) a[..h, m, k] * b[..h, k, n]
";

/// Operators that lose digits inside, or decide by the last one.
const DELICATE: &str = "
/// Small numbers lose digits.
op hat(a: F[..s]) -> y: F[..s]
  y[..s] = 1 - abs(1 - a[..s])

/// Whether nothing is lost.
op kept(a: F[..s], b: F[..s]) -> y: F[..s]
  y[..s] = 1 if a[..s] + b[..s] - b[..s] == a[..s] else 0
";

fn small() -> Library {
    library_of(TEXT)
}

fn library_of(text: &str) -> Library {
    let (library, diags) = library(&[("small.rules", text)]);
    assert!(diags.is_empty(), "{diags:?}");
    library
}

/// The same program with every application of one operator replaced by another.
fn confused(p: &Program, library: &Library, from: &str, to: &str) -> Program {
    let mut out = p.clone();
    for n in &mut out.nodes {
        if let NodeKind::Apply(c, _) = &mut n.kind
            && library.find(from) == Some(*c)
            && let Some(other) = library.find(to)
        {
            *c = other;
        }
    }
    out
}

fn verdicts(library: &Library, optimise: &dyn Fn(&Program) -> Program) -> Vec<Verdict> {
    let generator = Generator::new(library).sized(Size { least: 2, most: 8 });
    let optimise = |p: &Program| Ok(optimise(p));
    let run = |p: &Program, i: &[_]| {
        let values = mlc_backends::reference::run_values(p, library, i);
        values.map(|v| v.iter().map(|a| a.to_tensor()).collect()).map_err(|e| e.to_string())
    };
    let subject = Subject { library, optimise: &optimise, run: &run };
    let one = |seed| examine(&subject, &generator.program(seed), &[Style::Normal], seed);
    (0..40).map(one).collect()
}

#[test]
fn the_oracle_agrees_with_what_is_right() {
    let library = small();
    for v in verdicts(&library, &Program::clone) {
        assert!(matches!(v, Verdict::Agrees(1)), "{v:?}");
    }
}

#[test]
fn the_oracle_sees_what_is_wrong() {
    let library = small();
    let wrong = verdicts(&library, &|p| confused(p, &library, "add", "mul"));
    let seen = |v: &&Verdict| matches!(v, Verdict::Differs(f) if f.stage == Stage::Meaning);
    let n = wrong.iter().filter(seen).count();
    assert!(n > 10, "seen in {n} of 40 programs");
}

/// A backend that computes in 32 bits, and adds a number to every result.
fn verdicts_in_f32(beside: f32) -> Vec<Verdict> {
    let library = library_of(DELICATE);
    let generator = Generator::new(&library);
    let of = |x: f32, rest: &[f32]| match rest {
        [] => 1.0 - (1.0 - x).abs(),
        [other, ..] => f32::from(u8::from((x + other) - other == x)),
    };
    let run = |p: &Program, inputs: &[Tensor]| {
        let floats: Vec<Vec<f32>> = inputs.iter().map(|t| t.to_f32().to_vec()).collect();
        let apply = p.nodes.iter().rfind(|n| !n.args.is_empty()).expect("an operator");
        // One value may be both operands.
        let input = |v: &Value| match p.nodes[v.node.0 as usize].kind {
            NodeKind::Input(i) => &floats[i as usize],
            _ => panic!("an input"),
        };
        let args: Vec<&Vec<f32>> = apply.args.iter().map(input).collect();
        let one = |i: usize| {
            let rest: Vec<f32> = args[1..].iter().map(|a| a[i]).collect();
            f64::from(of(args[0][i], &rest) + beside)
        };
        let values: Vec<f64> = (0..args[0].len()).map(one).collect();
        Ok(vec![Tensor::from_f64(DType::F32, inputs[0].shape().to_vec(), &values)])
    };
    let optimise = |p: &Program| Ok(p.clone());
    let subject = Subject { library: &library, optimise: &optimise, run: &run };
    let programs = (0..2).flat_map(|op| (0..40).map(move |seed| (CallId(op), seed)));
    let drawn = programs.filter_map(|(op, seed)| Some((generator.single(op, seed)?, seed)));
    let is_single = |p: &Program| p.inputs.iter().all(|i| i.1.dtype == DType::F32);
    let drawn = drawn.filter(|d| is_single(&d.0) && d.0.consts.is_empty());
    drawn.map(|(p, seed)| examine(&subject, &p, &[Style::Normal], seed)).collect()
}

#[test]
fn the_oracle_counts_roundings_inside_of_operators() {
    let right = verdicts_in_f32(0.0);
    assert!(right.len() > 10, "{} programs", right.len());
    for v in right {
        assert!(matches!(v, Verdict::Agrees(1)), "{v:?}");
    }
    let wrong = verdicts_in_f32(1e-3);
    let seen = wrong.iter().filter(|v| matches!(v, Verdict::Differs(_))).count();
    assert!(seen > 10, "seen in {seen} of {} programs", wrong.len());
}

#[test]
fn every_operator_is_drawn_by_itself() {
    let library = small();
    let generator = Generator::new(&library);
    for (i, c) in library.calls.iter().enumerate() {
        let id = mlc_dsl::library::CallId(i as u32);
        let drawn = (0..20).any(|seed| generator.single(id, seed).is_some());
        assert!(drawn, "{}", c.name);
    }
}

/// Seeds are told in reports: each keeps its program.
#[test]
fn a_seed_keeps_its_program() {
    let library = small();
    let generator = Generator::new(&library).sized(Size { least: 2, most: 8 });
    let text: String = (0..64).map(|seed| format!("{:?}", generator.program(seed).nodes)).collect();
    let digest = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(digest, 0xdc05_b822_695f_e62a);
}
