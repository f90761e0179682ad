//! What the verifier says besides true and false: proofs, lints, counterexamples that run.

use mlc_dsl::library::Library;
use mlc_rewrite::stdlib;
use mlc_rewrite::verify::{CheckOptions, Exactness, Outcome, check_law, lint};
use std::process::Command;

fn library(own: &str) -> Library {
    let mut texts: Vec<(String, String)> =
        stdlib::TEXTS.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
    texts.push(("own.rules".into(), own.into()));
    let (library, diags) = mlc_dsl::check::library(&texts);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    library
}

fn own(library: &Library) -> impl Iterator<Item = &mlc_dsl::library::Law> {
    let last = library.sources.len() as u32 - 1;
    library.laws.iter().filter(move |l| l.source.0 == last)
}

const PROVED: &str = "
rule regrouped_product
  (a @ b) @ c => a @ (b @ c)
  given a: F[m, k], b: F[k, l], c: F[l, n]
  if |k| > 0, |l| > 0
  error reorder

rule square_of_sum
  x * x + 2 * x * y + y * y => (x + y) * (x + y)
  given x: F[..s], y: F[..s]
  error reorder

rule scaled_convolution
  conv(x, k * w, stride=p, low=l, high=h, dilation=d) => k * conv(x, w, stride=p, low=l, high=h, dilation=d)
  given x: F[b, c, ..s], w: F[o, c, ..r], k: float in 0.5..2
  if abs(k) < inf
  error reorder

rule even_hyperbola
  (exp(x) + exp(-x)) / 2 => cosh(-x)
  given x: F[..s]
  error reorder

rule maxima_of_parts
  maximum(max(n) x, max(n) y) => max(n) maximum(y, x)
  given x: F[..b, n], y: F[..b, n]
  error exact
";

const SAMPLED: &str = "
rule root_of_square
  sqrt(x) * sqrt(x) => x
  given x: F[..s]
  if positive(x)
  error reorder

rule logarithm_of_product
  log(x * y) => log(x) + log(y)
  given x: F[..s], y: F[..s]
  if within(x, 0.1, 10), within(y, 0.1, 10)
  error reorder
";

#[test]
fn polynomial_laws_are_proved_and_others_rest_on_samples() {
    for (text, proved) in [(PROVED, true), (SAMPLED, false)] {
        let library = library(text);
        for law in own(&library) {
            let verdict = check_law(&library, law, &CheckOptions::default());
            let Outcome::Holds(e) = verdict.outcome else { panic!("{} is refuted", law.name) };
            match e.exactness {
                Exactness::Proved { bits, instances, points } => {
                    assert!(proved && bits >= 80 && instances > 0 && points > 1, "{}", law.name);
                }
                Exactness::Sampled { reason } => assert!(!proved, "{}: {reason}", law.name),
            }
        }
    }
}

#[test]
fn what_rounding_hides_is_refuted_over_the_field() {
    let library = library(
        "rule hidden_shift\n  (x + 1000000000) - 1000000000 => x + 0.000001\n  given x: F[..s]\n  error reorder\n",
    );
    for law in own(&library) {
        let options = CheckOptions { samples: 24, ..CheckOptions::default() };
        let Outcome::Fails(c) = check_law(&library, law, &options).outcome else {
            panic!("it holds")
        };
        assert!(c.broken.contains("rational functions") || c.in_f64, "{}", c.human());
    }
}

#[test]
fn suspicious_texts_are_named() {
    let library = library(
        "
rule first
  exp(x) * (y + z) => (z + y) * exp(x) + 0
  given x: F[..s], y: F[..s], z: F[..s]
  error reorder

rule twin
  (b + c) * exp(a) => 0 + exp(a) * (c + b)
  given a: F[..t], b: F[..t], c: F[..t]
  error reorder

rule narrower
  exp(x) * (y + z) => (z + y) * exp(x) + 0
  given x: F[n], y: F[n], z: F[n]
  error reorder

rule special
  exp(x) * (y + z) => (z + y) * exp(x) + 0
  given x: F[..s], y: F[..s], z: F[..s]
  if product(|s|) > 4
  error reorder

rule idle
  sin(x) => 0 + sin(x)
  given x: F[..s], k: int
  error reorder

rule endless
  tan(x) => sin(tan(tan(x)))
  given x: F[..s]
  error reorder
",
    );
    let names: Vec<String> = own(&library).map(|l| l.name.to_string()).collect();
    let found: Vec<(&str, String)> =
        lint(&library, Some(&names)).into_iter().map(|l| (l.code, l.law)).collect();
    let expected = [("V005", "twin"), ("V005", "special"), ("V006", "idle"), ("V007", "endless")];
    let expected: Vec<(&str, String)> = expected.map(|(c, l)| (c, l.to_string())).into();
    assert_eq!(found, expected);
}

#[test]
fn shipped_laws_have_no_lints() {
    let (library, _) = stdlib::load(&[]).expect("the shipped texts are embedded");
    let found = lint(&library, None);
    let shown: Vec<String> = found.iter().map(|l| l.human(false)).collect();
    assert!(found.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn the_command_names_the_damage_and_what_to_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("own.rules").display().to_string();
    let text = "rule naive\n  log(1 + exp(x)) => softplus(x)\n  given x: F[..s]\n  error reorder\n\n\
                rule one_pass\n  mean(n) (x - mean(n) x) * (x - mean(n) x)\n  \
                => mean(n) x * x - (mean(n) x) * (mean(n) x)\n  given x: F[..p, n]\n  error reorder\n";
    std::fs::write(&rules, text).expect("written");
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .args(["check", &rules])
        .output()
        .expect("runs");
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{shown}");
    for words in ["became", "error grows by", "`error approx(", "x: f", "2 fail"] {
        assert!(shown.contains(words), "no `{words}` in {shown}");
    }
    assert!(!shown.contains("proved"), "{shown}");
}

fn output(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite")).args(args).output().expect("runs");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_counterexample_runs_and_shows_the_difference() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (rules, cases) = (path("own.rules"), path("cases"));
    let text = "rule products_of_products\n  (a @ b) * (c @ d) => (a * c) @ (b * d)\n  \
                given a: F[m, k], b: F[k, n], c: F[m, k], d: F[k, n]\n  error reorder\n";
    std::fs::write(&rules, text).expect("written");
    let found = output(&["check", &rules, "--cases", &cases]);
    let command = found.lines().find_map(|l| l.strip_prefix("mlc-rewrite ")).expect("a command");
    let words: Vec<&str> = command.split(' ').collect();
    let shown = output(&words);
    let side = |name: &str| {
        let line = shown.lines().find(|l| l.starts_with(name)).expect("a side");
        line.split_once("  ").expect("elements").1.to_string()
    };
    assert_ne!(side("left:"), side("right:"), "{shown}");
}
