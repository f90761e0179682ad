//! Every message, as its reader sees it.

use super::snapshots;
use itertools::Itertools;
use mlc_dsl::diagnostics::{CODES, Code, Diag, render};
use mlc_dsl::syntax::ast::Span;
use mlc_dsl::syntax::parse;

const CASES: &[(&str, &[&str])] = &[
    (
        "S001",
        &[
            "rule r\n  a @ b => b\n  givn a: F[n]\n  error exact\n",
            "rule r\n  a @ b => b\n  given a F[n]\n",
            "def f(x: F) -> F\n  = x +\n",
            "def f(x: F) -> F\n  = x * / y\n",
            "def f(x: F) -> F\n  = x\n  given x: F\n",
            "def f(x: F) F\n  = x\n",
            "def (x: F) -> F\n  = x\n",
            "rule r\n  a = b\n  given a: F\n",
            "rule r\n  a + b\n  given a: F\n",
            "op f(x: F[n]) -> y: F[n]\n  if |n| = 3\n  y[n] = x[n]\n",
            "def f(x: F) -> F\n  = x\n\nrul g\n  a => b\n",
            "def f(x: F) -> F\n  = x if !y else z\n",
            "def f(x: F) -> F\n  = 2x\n",
            "def f(x: F[n] >= 0 < 1) -> F\n  = x\n",
            "target cpu\n  flops 1e11\n",
            "onnx Gelu(x) since \"20\"\n  = gelu(x)\n",
            "fuse f(x: F) -> F\n  = x\n  on cpu\n",
            "rule r\n  a => b\n  error\n",
            "def f(x: F) -> F\n  let = 3\n  = x\n",
            "op f(x: F[n]) -> y: F[n]\n  y[n] = sum() x[n] y\n",
            "op f(x: F[in]) -> y: F\n  y[] = x[0]\n",
            "rule r\n  a * 2 ==> 2 * a\n  given a: F\n",
            "rule r\n  a * 2 -> 2 * a\n  given a: F\n",
            "rule r\n  a ** 2 => a * a\n  given a: F\n",
            "rule r\n  a * .5 => 0.5 * a\n  given a: F\n",
            "rule r\n  a.T => a\n  given a: F\n",
            "rule r\n  tanh a => a\n  given a: F\n",
            "rule r\n  2 a => a + a\n  given a: F\n",
            "rule r:\n  a * 2 => 2 * a\n  given a: F\n",
            "def f(x: F[..s]) -> F[..s]:\n  return x\n",
            "rule r\n  a * 2 => 2 * a\n  given a: F\n  error approx(0.1)\n",
            "rule r\n  a * 2 => 2 * a\n  given a: F\n  error 1e-5\n",
            "def f(x: F) -> F\n  let y == x * 2\n  = y\n",
            "def f(x: F) -> F\n  let y = x * 2;\n  = y\n",
            "def f(x: F[b, n]) -> F[b]\n  = x[:, 0]\n",
            "def f(x: f32(b, n)) -> f32(b, n)\n  = x\n",
            "def f(x):\n  return x * 2\n",
            "rule r\n  sum(n) x => max(n) x\n  given x: F[b, n]\n  where |n| == 1\n  error exact\n",
            "target t\n  flops = 10 TFLOPS\n  bytes = 900 GB\n",
            "target t\n  launch = 5us\n",
            "target t\n  launch = 5us\n  flops = 1e13\n",
        ],
    ),
    (
        "S002",
        &[
            "def f(x: F -> F\n  = x\n",
            "def f(x: F) -> F\n  = g(x, [1, 2)\n\ndef g(x: F) -> F\n  = (x\n",
            "def f(x: F) -> F\n  = g(x\n",
        ],
    ),
    ("S003", &["def f(x: F) -> F\n  = x)\n", "def f(x: F[n) -> F\n  = x\n"]),
    ("S004", &["@deep", "@long"]),
    (
        "S005",
        &[
            "extern f(x: F) -> F\n  reference \"f\n",
            "def f(x: F, m = \"a) -> F\n  = x\n\ndef g(x: F) -> F = x x\n",
        ],
    ),
    (
        "S006",
        &[
            "def f(x: F) -> F {\n  = x\n}\n",
            "def f(x: F) -> F\n  = x if a && b else c\n",
            "# a comment\ndef f(x: F) -> F\n  = x\n",
            "def f(ä: F) -> F\n  = ä\n",
            "rule r\n  a ⇒ b\n",
            "def f(x: F) -> F\n\u{a0}\u{a0}= x\n",
        ],
    ),
    ("S007", &["extern f(x: F) -> F\n  reference \"a\\qb\\u{110000}\\n\"\n"]),
    (
        "S008",
        &[
            "def f(x: F) -> F\n  = x * 1e999 + 99999999999999999999\n",
            "onnx Gelu(x) since 5000000000\n  = gelu(x)\n",
        ],
    ),
    (
        "S009",
        &[
            "def f(x: F, error: int) -> F\n  = x\n",
            "def rule(x: F) -> F\n  = x\n",
            "op f(x: F[n]) -> y: F\n  y[] = |at|\n",
        ],
    ),
    ("S010", &["def f(x: F) -> F\n  = x\n  if 0 < |n| <= 8\n"]),
    (
        "S011",
        &["def f(x: F) -> F\n  = x\n  = y\n", "rule r\n  a => b\n  error exact\n  error reorder\n"],
    ),
    (
        "S012",
        &[
            "def f(x: F) -> F\n  let y = x\n",
            "extern f(x: F) -> F\n",
            "onnx Gelu(x)\n  = gelu(x)\n",
        ],
    ),
    (
        "S013",
        &[
            "rule r\n  a => b\n  error none\n",
            "rule r\n  a => b\n  error exact(abs=1)\n",
            "rule r\n  a => b\n  error approx(max=1, rel=1, rel=2)\n",
        ],
    ),
    (
        "S014",
        &[
            "def f(x, y?: F, zs...: F, const n: ints; m: int, each w: F) -> F\n  = x\n",
            "onnx G(x: int, y = 3; z) since 1\n  = x\n",
            "def f(x: F[n] = 3, p: int >= 3, q: F in 1..2) -> F\n  = x\n",
            "rule r\n  a => b\n  check a in 1..\n",
        ],
    ),
    ("S015", &["def f(x: F) -> F\n  /// Inside.\n  = x\n\n//! Late.\n\n/// Last.\n"]),
    (
        "S016",
        &["def f(x: F) -> F\n  = g(x) else 0\n", "def f(x: F) -> F\n  = (x[i] else 0) else 1\n"],
    ),
    ("S017", &["onnx Gelu(x) since 20\n  = gelu(x)\n  prints gelu(x) as Glu(x)\n"]),
    ("S018", &["rul f\n  a => b\n\ndef f(x: F) -> F = x\n", "hello, world\n"]),
];

fn text(case: &str) -> String {
    match case {
        "@deep" => format!("def f(x: F) -> F\n  = {}x{}\n", "(".repeat(70), ")".repeat(70)),
        "@long" => format!("def f(x: F) -> F\n  = x{}\n", "+x".repeat(300)),
        other => other.to_string(),
    }
}

#[test]
fn messages() {
    for (code, cases) in CASES {
        let mut out = String::new();
        for case in *cases {
            let text = text(case);
            let (_, diags) = parse(&text);
            assert!(diags.iter().any(|d| d.code == Code(code)), "{code}: {text}\n{diags:#?}");
            out.push_str(&render(&diags, "laws/test.rules", &text, false));
            out.push_str("\n--------------------------------------------------\n\n");
        }
        snapshots().bind(|| insta::assert_snapshot!(format!("diag_{code}"), out));
    }
}

#[test]
fn every_syntax_code_has_a_case() {
    let covered: Vec<&str> = CASES.iter().map(|(code, _)| *code).collect();
    // A text of 4 GiB is no test.
    let wanted = CODES.iter().map(|(code, _)| *code).filter(|c| c.starts_with('S') && *c != "S019");
    assert_eq!(covered, wanted.collect_vec());
    assert!(CODES.iter().map(|(code, _)| code).all_unique());
    assert_eq!(Code("S010").meaning(), Some("chained comparisons"));
}

#[test]
fn what_is_drawn_moves_no_cursor() {
    let text = "def f(x: \u{feff}[n]\u{202e}, y: \u{1b}[31m\u{2028}) -> F\n  = x\n";
    let (_, diags) = parse(text);
    let drawn = render(&diags, "test.rules", text, false);
    let moves = |c: char| c.is_control() && c != '\n' || "\u{feff}\u{202e}\u{2028}".contains(c);
    assert!(!drawn.is_empty() && !drawn.contains(moves), "{drawn:?}");
}

#[test]
fn one_broken_item_does_not_hide_the_others() {
    let text = "def a(x: F) -> F = x\n\ndef b(x F) -> F = x\n\ndef c(x: F) -> F = (x\n\ndef d(x: F) -> F = x\n";
    let (file, diags) = parse(text);
    assert_eq!(file.items.iter().map(|item| item.name.text.as_str()).join(" "), "a d");
    assert_eq!(diags.len(), 2);
}

#[test]
fn drawing_never_panics() {
    let text = "def\tf(ä: F) -> F\r\n  = \"日本語\"\r\n\n\n= x\r";
    let n = text.len() as u32 + 3;
    for start in 0..n {
        for end in 0..n {
            let diag = Diag::error(Code("S001"), "a message\nof two lines", Span { start, end })
                .here("label")
                .also(Span { start: end, end: start }, "another")
                .also(Span { start: 0, end: u32::MAX }, "")
                .help("help");
            let drawn = render(&[diag], "a.rules", text, (start + end) % 2 == 0);
            assert!(drawn.contains("S001"));
        }
    }
    assert_eq!(render(&[], "a.rules", text, false), "");
    let none = Diag { labels: Vec::new(), ..Diag::error(Code("S001"), "m", Span::default()) };
    assert_eq!(render(&[none], "a.rules", "", false), "error[S001]: m\n");
}
