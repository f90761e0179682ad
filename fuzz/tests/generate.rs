//! The generator and the oracle on a small library of their own.

use mlc_dsl::check::library;
use mlc_dsl::ir::{NodeKind, Program};
use mlc_dsl::library::Library;
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

fn small() -> Library {
    let (library, diags) = library(&[("small.rules".into(), TEXT.into())]);
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
