//! What the verifier reports besides true and false: proofs, lints, counterexamples that run.

use mlc_backends::reference::Reference;
use mlc_dsl::check::{SourceDiag, Text, library_of, parsed};
use mlc_dsl::ir::{Attr, DType, NodeKind, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::{Limits, explore};
use mlc_rewrite::model::{recognition, rules_model};
use mlc_rewrite::{lawtest, stdlib};
use mlc_verify::{CheckOptions, Exactness, Outcome, check_law, check_library, declarations, lint};
use std::process::Command;
use std::sync::{Arc, LazyLock};

fn library(own: &str) -> Library {
    let (library, diags) = stdlib::with(&[("own.rules", own)]);
    let errors = diags.iter().any(|d| d.diag.severity == mlc_dsl::diagnostics::Severity::Error);
    assert!(!errors, "{}", stdlib::rendered(&library, &diags, false));
    library
}

fn own(library: &Library) -> impl Iterator<Item = &mlc_dsl::library::Law> {
    let last = library.sources.len() as u32 - 1;
    library.laws.iter().filter(move |l| l.source.file == last)
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

rule root_of_square
  sqrt(x) * sqrt(x) => x
  given x: F[..s]
  if positive(x)
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
                Exactness::Everywhere => assert!(proved, "{}", law.name),
                Exactness::Proved { bits, instances, points, .. } => {
                    assert!(proved && bits >= 80 && instances > 0 && points > 1, "{}", law.name);
                }
                Exactness::Defined | Exactness::Shared { .. } => {
                    panic!("{} is a rule of its own", law.name)
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
    let library = stdlib::shipped();
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
    for words in ["became", "overflow inside the left side", "`error approx(", "x: f", "2 fail"] {
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

/// What is said of a text's declarations, by code.
fn declared(text: &str) -> Vec<(&'static str, String, bool)> {
    let library = library(text);
    let last = library.sources.len() as u32 - 1;
    let found = declarations(&library, last, 0);
    for l in &found {
        let (start, end) = (l.span().start as usize, l.span().end as usize);
        assert!(start < end && end <= text.len(), "no place: {}", l.message);
    }
    found.into_iter().map(|l| (l.code, l.message.clone(), l.is_error())).collect()
}

#[test]
fn declarations_that_do_nothing_are_named() {
    let cases = [
        ("op f(x: F[n]) -> y: F[n]\n  y[n] = x[n + 1]\n", "V010", "has no value at"),
        (
            "op f(x: F[n]) -> y: F[m]\n  where m = |n| + 1\n  y[m] = x[m]\n",
            "V010",
            "has no value at",
        ),
        (
            "op f(x: F[..s]) -> y: F[..t]\n  where t = drop(|s|, [0])\n  y[..t] = x[..t]\n",
            "V010",
            "f",
        ),
        ("op f(x: F[n], k: int) -> y: F[n]\n  y[n] = x[(n + k) / 1]\n", "V010", "has no value at"),
        (
            "op f(x: F[n]) -> y: F[n]\n  if |n| > 3, |n| < 2\n  y[n] = x[n]\n",
            "V010",
            "no arguments were found",
        ),
        (
            "extern f(x: F[n]) -> y: F[n]\n  reference \"nowhere\"\n",
            "V008",
            "no Rust reference `nowhere`",
        ),
        (
            "def f(x: F[..s], p: float = 0.5) -> F[..s]\n  = exp(x)\n",
            "V009",
            "`f` will not be recognised in models, because parameter `p` is not used in its body",
        ),
        (
            "def f(x: F[..s], z: F[..s]) -> F[..s]\n  = exp(x)\n",
            "V009",
            "`f` will not be recognised in models, because parameter `z` is not used in its body",
        ),
        (
            "def f(x: F[..s], k: float) -> F[..s]\n  = exp(x) * (k + 1)\n",
            "V009",
            "because parameter `k` occurs only in computed numbers",
        ),
        (
            "def f(x: F[..s], k: float) -> F[..s]\n  = exp(x) * k * k\n",
            "V009",
            "`f` will not be recognised in models, because `k` occurs only in computed numbers",
        ),
        ("def f(x: F[..s]) -> F[..s]\n  = x\n", "V009", "its body is a parameter"),
        (
            "rule f\n  exp(x) * k * k => exp(x) * (k * k)\n  given x: F[..s], k: float in 1..4\n  error reorder\n",
            "V009",
            "never matches",
        ),
    ];
    for (text, code, message) in cases {
        let found = declared(text);
        let hit = found.iter().find(|(c, m, _)| *c == code && m.contains(message));
        let (_, _, error) = hit.unwrap_or_else(|| panic!("{code} {message}\n{text}{found:#?}"));
        let wrong = code == "V008" || code == "V010" && !message.contains("no arguments");
        assert_eq!(*error, wrong, "{text}{found:#?}");
    }
    let right = "op f(x: F[..b, n], by: int in 0..5) -> y: F[..b, n]\n  if by >= 0\n  y[..b, n] = x[..b, (n + by) % |n|]\n\
                 op g(x: F[n], i: I[m]) -> y: F[m]\n  y[m] = x[i[m]]\n\
                 op h(x: F[n]) -> y: F[n]\n  y[n] = x[n] - (x[n - 1] else 0)\n\
                 def l(x: F[..s], k: float) -> F[..s]\n  = exp(x) * k\n";
    assert_eq!(declared(right), []);
}

#[test]
fn shipped_declarations_do_something() {
    let library = stdlib::shipped();
    // Parts of models are no laws; repetitions are found by others, tables of a transform follow from its attributes.
    let source = |name: &str| Some(library.call(library.find(name)?).source.file as usize);
    let is_part = |n: &str| source(n).is_some_and(|i| library.sources[i].name.contains("models/"));
    let found = declarations(&library, 0, 0).into_iter().map(|l| (l.code, l.law));
    let found: Vec<_> = found.filter(|(code, n)| *code != "V009" || !is_part(n)).collect();
    let known = ["enlarged", "tiled", "lrn", "dft"].map(|name| ("V009", name.to_string()));
    assert_eq!(found, known);
}

/// The shipped operators and a text: quick to read.
fn beside_operators(text: &str) -> (Library, Vec<SourceDiag>) {
    static OPERATORS: LazyLock<Vec<Text>> = LazyLock::new(|| {
        let own = stdlib::sources().iter().filter(|s| s.name.contains("/ops/"));
        parsed(&own.map(|s| (&*s.name, &*s.text)).collect::<Vec<_>>())
    });
    library_of(OPERATORS.iter().chain(&parsed(&[("own.rules", text)])))
}

/// NumPy's common shape.
fn common(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let n = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(n).map_or(1, |i| s[i]);
    (0..n)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// The element of a tensor of shape `own` that NumPy takes for index `i` of `whole`.
fn taken(own: &[usize], whole: &[usize], mut i: usize) -> usize {
    let mut index = vec![0; whole.len()];
    for (slot, d) in index.iter_mut().zip(whole).rev() {
        *slot = i % d;
        i /= d;
    }
    let index = &index[whole.len() - own.len()..];
    own.iter().zip(index).fold(0, |at, (d, i)| at * d + if *d == 1 { 0 } else { *i })
}

#[test]
fn axes_without_names_meet_as_in_numpy_or_not_at_all() {
    let shapes: [&[usize]; 9] =
        [&[], &[4], &[1], &[3], &[4, 4], &[4, 3], &[3, 4], &[2, 4, 4], &[4, 1]];
    let (mut met, mut refused) = (0, 0);
    for a in shapes {
        for b in shapes {
            let result = common(a, b);
            let whole = result.clone().unwrap_or_else(|| a.to_vec());
            let text = format!("def m(x: f32{a:?}, y: f32{b:?}) -> f32{whole:?}\n  = 2 * x - y\n");
            let (library, diags) = beside_operators(&text);
            if !diags.is_empty() {
                refused += 1;
                assert!(diags.iter().all(|d| d.diag.code.0 == "R008" && d.diag.help.is_some()));
                assert!(result.is_none() || a.contains(&1) || b.contains(&1), "{text}");
                continue;
            }
            assert!(result.is_some(), "NumPy refuses {text}");
            met += 1;
            let program =
                mlc_rewrite::model::rules_model::program(&library, "m").expect("a program");
            let tensor = |shape: &[usize], from: f64| {
                let n = shape.iter().product::<usize>();
                let values: Vec<f64> = (0..n).map(|i| from + i as f64).collect();
                Tensor::from_f64(DType::F32, shape.to_vec(), &values)
            };
            let inputs = [tensor(a, 1.0), tensor(b, 100.0)];
            let out = Reference::default().run_values(&program, &library, &inputs).expect("runs");
            assert_eq!(out[0].shape(), whole, "{text}");
            let (x, y) = (inputs[0].to_f64(), inputs[1].to_f64());
            let expected: Vec<f64> = (0..whole.iter().product())
                .map(|i| 2.0 * x[taken(a, &whole, i)] - y[taken(b, &whole, i)])
                .collect();
            assert_eq!(out[0].to_f64(), expected, "{text}");
        }
    }
    assert!(met > 25 && refused > 10, "{met} met, {refused} refused");
}

#[test]
fn a_model_without_a_value_is_refused_at_its_place() {
    let cases = [
        (
            "def m(x: f32[4]) -> f32[2, 4]\n  = broadcast(x, map=[1, 0], shape=[2, 4])\n",
            "increasing(map)",
            2,
        ),
        ("def m(x: f32[4]) -> f32[5]\n  = reshape(x, shape=[5])\n", "product(shape)", 2),
        ("def m(x: f32[4, 3]) -> f32[4, 3]\n  = x @ x\n", "matmul", 2),
        ("def m(x: f32[4], k: int) -> f32[4]\n  = k * x\n", "`k`", 1),
        ("def m(x: f32[n]) -> f32[k]\n  where k = |n| + 1\n  = exp(x)\n", "declared", 1),
        (
            "def m(x: f32[n]) -> f32[n]\n  let y = slice(x, start=[0], size=[4], step=[0])\n  = x\n  if |n| > 0\n",
            "",
            0,
        ),
        ("def m(x: f32[6]) -> f32[6]\n  = reshape(x, shape=weave([2], [3], [7]))\n", "weave", 2),
    ];
    for (text, message, line) in cases {
        let (library, diags) = beside_operators(text);
        assert!(diags.is_empty(), "{text}{}", stdlib::rendered(&library, &diags, false));
        let program = mlc_rewrite::model::rules_model::program(&library, "m");
        if line == 0 {
            assert!(program.is_ok(), "what is not used is not built:\n{text}");
            continue;
        }
        let e = program.expect_err(text).to_string();
        assert!(e.contains(message), "{message} is not in\n{e}");
        assert!(e.contains(&format!("own.rules:{line}:")) && e.contains("help: "), "{text}{e}");
    }
}

#[test]
fn an_integer_attribute_binds_from_an_integral_number() {
    let library = library(
        "def scaled(x: F[..s], k: int) -> F[..s]\n  = tanh(x) * k\n\
         def two(x: f32[4]) -> f32[4]\n  = tanh(x) * 2.0\n\
         def half(x: f32[4]) -> f32[4]\n  = tanh(x) * 2.5\n\
         def written(x: f32[4]) -> f32[4]\n  = scaled(x, k=3.0)\n",
    );
    let call = library.find("scaled").expect("declared");
    let library = std::sync::Arc::new(library);
    for (name, expected) in [("two", true), ("half", false), ("written", true)] {
        let program = mlc_rewrite::model::rules_model::program(&library, name).expect(name);
        let law = library.laws.iter().position(|l| *l.name == *"scaled").expect("recognised");
        let explored = explore(library.clone(), program.clone(), &[law as u32], &Limits::default());
        let fired = explored.profiles.iter().any(|(_, p)| p.applications > 0);
        let written = program.nodes.iter().any(|n| {
            matches!(&n.kind, NodeKind::Apply(c, a)
            if *c == call && *a == [Attr::int(3)])
        });
        assert_eq!(fired || written, expected, "{name}");
    }
}

#[test]
fn proposed_conditions_can_be_tested() {
    let text = "
rule over_itself
  x / x => 1 + 0 * x
  given x: F[..s]
  error reorder

rule root_of_square
  sqrt(x * x) => x
  given x: F[..s]
  error reorder

rule scaled_convolution
  conv(x, k * w, stride=p, low=l, high=h, dilation=d) => k * conv(x, w, stride=p, low=l, high=h, dilation=d)
  given x: F[b, c, ..s], w: F[o, c, ..r], k: float in 0.5..2
  error reorder
";
    let library = library(text);
    for law in own(&library) {
        let verdict = check_law(&library, law, &CheckOptions::default());
        let Outcome::Fails(c) = verdict.outcome else { continue };
        let Some(p) = c.holds_when else { continue };
        let untestable = ["nonzero(", "uniform(", "positive(", "finite(", "product(|s|) == 1"];
        assert!(
            !untestable.iter().any(|u| p.condition.contains(u)),
            "{}: {}",
            law.name,
            p.condition
        );
    }
}

#[test]
fn a_definition_of_large_extents_holds_by_definition() {
    let library =
        library("def halved(x: f32[1, 3, 224, 224]) -> f32[1, 3, 224, 224]\n  = 0.5 * relu(x)\n");
    for law in own(&library) {
        match check_law(&library, law, &CheckOptions::default()).outcome {
            Outcome::Holds(e) => assert!(matches!(e.exactness, Exactness::Defined)),
            Outcome::Fails(c) => panic!("{}: {}", law.name, c.human()),
            Outcome::NoSample { reason } => panic!("{}: {reason}", law.name),
        }
    }
}

/// Texts by the code that `check` must show of them, or `show` where a model has no program.
const CODES: &[(&str, &str)] = &[
    ("V001", "rule r\n  exp(x) + y => exp(x) - y\n  given x: F[..s], y: F[..s]\n  error reorder\n"),
    ("V001", "rule r\n  log(exp(x)) => x\n  given x: F[..s]\n  error reorder\n"),
    (
        "V002",
        "rule r\n  transpose(x, perm=p) => x\n  given x: F[..s], p: perm(s)\n  if length(p) < 0\n  error exact\n",
    ),
    ("V002", "rule r\n  x => x * 1\n  given x: F[..s]\n  error exact\n"),
    ("V002", "def f(x: F[a, b]) -> F[b, a]\n  = broadcast(x, map=[1, 0], shape=[|b|, |a|])\n"),
    (
        "V003",
        "rule r\n  transpose(exp(x), perm=p) => exp(transpose(x, perm=p))\n  given x: F[..s], p: perm(s)\n  if length(p) != 1\n  error exact\n",
    ),
    (
        "V004",
        "rule r\n  relu(relu(x)) => relu(x)\n  given x: F[..s]\n  error exact\n  never relu(relu(x)) \"it does\"\n",
    ),
    (
        "V005",
        "rule a\n  relu(abs(x)) => abs(x)\n  given x: F[..s]\n  error exact\n\nrule b\n  relu(abs(y)) => abs(y)\n  given y: F[..t]\n  error exact\n",
    ),
    ("V006", "rule r\n  relu(relu(x)) => relu(x)\n  given x: F[..s], k: float\n  error exact\n"),
    (
        "V007",
        "rule r\n  relu(x) => relu(relu(abs(x) - abs(x) + x))\n  given x: F[..s]\n  error approx(abs=1e9)\n",
    ),
    ("V008", "extern r(x: F[..s]) -> y: F[..s]\n  reference \"nowhere\"\n"),
    ("V009", "def r(x: F[..s], k: float) -> F[..s]\n  = x / sqrt(k)\n"),
    ("V010", "op r(x: F[n]) -> y: F[n]\n  y[n] = x[n + 1]\n"),
    ("V010", "op r(x: F[n]) -> y: F[n]\n  if |n| < 0\n  y[n] = x[n]\n"),
    ("V011", "def r(x: f32[4, 6]) -> f32[6, 4]\n  = broadcast(x, map=[1, 0], shape=[6, 4])\n"),
    ("V011", "def r(x: F[..s]) -> F[..s]\n  = exp(x)\n"),
    ("V012", NORMED_TWICE),
];

/// What is a definition that recognition does not find: the second norm is brought into an order of its own.
const NORMED_TWICE: &str = "def r(x: F[..s, n], w: F[n], v: F[n]) -> F[..s, n]
  let y = x / sqrt(mean(n) (x * x) + 0.00001) * w
  = y / sqrt(mean(n) (y * y) + 0.00001) * v
";

/// Definitions that are found in their own bodies: quotients at the end, axes that go by the names of others, halves by sections.
const FOUND: &str = "
def codes(x: F[..s, n]) -> F[..s, n]
  let top = max(n) abs(x)
  = round(x * 127 / top) * top / 127

def levels(x: F[..s]) -> F[..s]
  = round(clip(x, low=-1, high=1) * 127) / 127

def sum_over(x: F[..s, n], w: F[n]) -> F[..s]
  = (sum(n) (x * w)) / 127

def tempered(x: F[..s, n], t: float) -> F[..s, n]
  = softmax(x / t, axis=n)

def mixed(x: F[n, n2], y: F[n2, n]) -> F[n, n2]
  where n2 = |n|
  = x + y[n, n2] * sigmoid(y[n2, n])

def talking(q: F[h, m, d], k: F[h, n, d], w: F[h, g]) -> F[g, m, n]
  let s = q @ k[h, d, n]
  = sum(h) (s[h, m, n] * w[h, g])

def sections(x: F[..b, s, d], c: F[s, d], w: F[s, d]) -> F[..b, s, d]
  let (a, b, e, f) = split(x, axis=-1, parts=4)
  let turned = concat(concat(-b, a, axis=-1), concat(-f, e, axis=-1), axis=-1)
  = x * c + turned[..b, s, d] * w
  if |d| % 4 == 0

def channels(x: F[b, c, h, w], u: F[c, r], v: F[r, c]) -> F[b, c, h, w]
  let s = sigmoid(relu((mean(h, w) x) @ u) @ v)
  = x * s[b, c]

def adapted(x: F[b, n], w: F[n, m], u: F[n, r], v: F[r, m], alpha: float) -> F[b, m]
  = x @ w + alpha * ((x @ u) @ v)

def squashed(x: F[..s, n]) -> F[..s, n]
  let q = sum(n) (x * x)
  = q / (1 + q) * (x / sqrt(q + 0.00000001))
";

#[test]
fn definitions_are_looked_for_in_their_own_bodies() {
    let unfound = |text: &str| {
        let library = library(text);
        let source = library.sources.len() as u32 - 1;
        recognition::check(&Arc::new(library), source, 0)
    };
    let told: Vec<String> = unfound(FOUND).iter().map(|l| l.human(false)).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    let told = unfound(NORMED_TWICE);
    assert!(told.iter().map(|l| (l.code, &*l.law)).eq([("V012", "r")]));
}

/// What the tool says of a text: the last definition as a model, else its laws and declarations.
fn told(code: &str, text: &str) -> String {
    let library = library(text);
    let source = library.sources.len() as u32 - 1;
    if code == "V011" {
        let e = rules_model::program(&library, "r").expect_err("it has no program");
        return format!("{e:#}");
    }
    let names: Vec<String> = own(&library).map(|l| l.name.to_string()).collect();
    let options = CheckOptions::default();
    let report = check_library(&library, Some(&names), &options, &|_, _| {});
    let mut lints = lint(&library, Some(&names));
    lints.extend(declarations(&library, source, 0));
    let library = Arc::new(library);
    lints.extend(recognition::check(&library, source, 0).into_iter().filter(|_| code == "V012"));
    let mut out: Vec<String> = lints.iter().map(|l| l.human(false)).collect();
    let broken = lawtest::check(&library, Some(&names), "standard").expect("the target");
    out.extend(broken.iter().map(|b| b.human(false)));
    // The times differ.
    out.extend(
        report.human(false).lines().filter(|l| !l.contains(" laws hold,")).map(str::to_string),
    );
    out.join("\n")
}

#[test]
fn every_code_of_check_is_shown() {
    let mut out = String::new();
    for (code, text) in CODES {
        let told = told(code, text);
        let block =
            told.split("error[").flat_map(|b| b.split("warning[")).find(|b| b.starts_with(code));
        let block = block.unwrap_or_else(|| panic!("{code} is not found:\n{text}\n{told}"));
        assert!(block.contains("--> own.rules:") && block.contains("help: "), "{code}:\n{told}");
        out += &format!("{told}\n{}\n", "-".repeat(50));
    }
    insta::assert_snapshot!("diagnostics", out);
    let shown: std::collections::BTreeSet<&str> = CODES.iter().map(|c| c.0).collect();
    let all: Vec<String> = (1..=12).map(|i| format!("V{i:03}")).collect();
    assert!(shown.into_iter().eq(all.iter().map(String::as_str)), "codes without a case");
}
