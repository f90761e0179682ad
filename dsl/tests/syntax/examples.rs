//! Texts as people write them, and the canonical form of each.

use super::{read, round_trip, snapshots};
use mlc_dsl::syntax::ast::{BinaryOp, Expr, ExprKind, ItemKind};
use mlc_dsl::syntax::{print_expr, print_file, same};

pub const EXAMPLES: &str = include_str!("examples.rules");

#[test]
fn the_examples_have_one_canonical_form() {
    let file = read(EXAMPLES);
    assert_eq!(file.items.len(), 20);
    let printed = round_trip(&file);
    snapshots().bind(|| insta::assert_snapshot!("canonical_examples", printed));
}

#[test]
fn newlines_mean_nothing() {
    let joined: String = EXAMPLES
        .lines()
        .filter(|line| !line.starts_with("//"))
        .flat_map(|line| [line.trim(), " "])
        .collect();
    let mut file = read(EXAMPLES);
    file.doc.clear();
    file.items[0].doc.clear();
    assert!(same(&file, &read(&joined)));
    let spread = joined.replace(' ', " \r\n\t");
    // Strings may not be spread.
    let spread =
        spread.replace("the \r\n\tleft \r\n\tfactors \r\n\tdiffer", "the left factors differ");
    assert!(same(&file, &read(&spread)));
}

#[test]
fn comments_are_kept() {
    let text = "\
// A header.
//! The file.
//!
//! More of it.
// Above a.

/// Doc of a.
///   indented
// Between.
def a(x: F) -> F // on the head
  // Inside.
  = x // At the end.
// Above b.

def b(x: F) -> F = x
// The last.
";
    let file = read(text);
    let printed = round_trip(&file);
    snapshots().bind(|| insta::assert_snapshot!("comments", printed));
}

/// The value of a `def` with this body.
#[track_caller]
fn expr(text: &str) -> Expr {
    let mut file = read(&format!("def f(x: F) -> F = {text}"));
    match file.items.pop().map(|item| item.kind) {
        Some(ItemKind::Def(def)) => def.body,
        other => panic!("{other:?}"),
    }
}

// Every operator enclosed, so that the tree shows.
fn tree(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Binary(op, a, b) => {
            let sign = print_expr(&Expr {
                kind: ExprKind::Binary(*op, Box::new(unit()), Box::new(unit())),
                span: expr.span,
            });
            let sign = sign.trim_matches('_').trim().to_string();
            format!("({} {sign} {})", tree(a), tree(b))
        }
        ExprKind::Unary(op, a) => format!("({op:?} {})", tree(a)),
        ExprKind::Reduce { monoid, body, .. } => format!("({} {})", monoid.text, tree(body)),
        ExprKind::If { cond, then, otherwise } => {
            format!("({} ? {} : {})", tree(cond), tree(then), tree(otherwise))
        }
        ExprKind::Index { base, otherwise: Some(value), .. } => {
            format!("({}[] else {})", base.text, tree(value))
        }
        _ => print_expr(expr),
    }
}

fn unit() -> Expr {
    Expr { kind: ExprKind::Name("_".into()), span: Default::default() }
}

#[test]
fn precedence() {
    let cases = [
        ("a + b * c", "(a + (b * c))"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b % c @ d", "(((a / b) % c) @ d)"),
        ("-a^b^-c", "(Neg (a ^ (b ^ (Neg c))))"),
        ("mean(n) c * c + eps", "((mean (c * c)) + eps)"),
        ("e / sum(n) e", "(e / (sum e))"),
        ("-sum(n) p * q", "(Neg (sum (p * q)))"),
        ("sum(k) sum(j) a * b", "(sum (sum (a * b)))"),
        ("max(a, b) - c", "(max(a, b) - c)"),
        ("max(a) (-c)", "(max (Neg c))"),
        ("max(a, b) + max(a, b)", "(max(a, b) + max(a, b))"),
        ("not a and b or c == d", "(((Not a) and b) or (c == d))"),
        ("a if b else c if d else e", "(b ? a : (d ? c : e))"),
        ("a if x[i] else b + 1", "(x[i] ? a : (b + 1))"),
        ("a if (x[i] else 0) > 1 else b", "(((x[] else 0) > 1) ? a : b)"),
        ("w * (x[i - 1] else 0)", "(w * (x[] else 0))"),
        ("x[i] else -a^2 * b", "((x[] else (Neg (a ^ 2))) * b)"),
        ("x[i] else y[j] else 0", "(x[] else (y[] else 0))"),
    ];
    for (text, expected) in cases {
        assert_eq!(tree(&expr(text)), expected, "{text}");
    }
}

#[test]
fn parentheses_are_few() {
    let kept = [
        "a + b * c",
        "(a + b) * c",
        "a - (b - c)",
        "(a @ b) @ c",
        "a @ (b @ c)",
        "-a^2",
        "(-a)^2",
        "a^b^c",
        "(a^b)^c",
        "f(a)^2 * a ^ -1",
        "a ^ f(b)",
        "((k * a) @ b) * c",
        "(a @ b) * c",
        "a / b * c",
        "a % (b % c)",
        "not (a == b)",
        "not (not a)",
        "k * sum(n) (a * b) + sum(n) a * b",
        "(sum(n) a) * (sum(n) b)",
        "[(a if b else c), d]",
        "[a if b else c]",
        "[..((a + b) / c), ..a / b]",
        "(sum(k) a) * b",
        "sum(k) a * b",
        "a * -sum(k) b",
        "a * sum(k) b + c",
        "sum(k) (-a) * b",
        "not (a and b)",
        "(a if b else c) + 1",
        "a if b else c if d else e",
        "x[i - 1] else 0",
        "(x[i - 1] else 0) + 1",
        "(a,)",
        "()",
        "max(a, b)",
        "[a, ..b + 1, |n|]",
        "sum(k, ..s) x[k, ..s]",
        "1.0 + 1e-5 + 0.044715 + 1e11 + 5e-4 + 100.0",
        "\"a \\\"quoted\\\" \\\\ line\\n\"",
    ];
    for text in kept {
        let canonical = text.replace("sum(k) (-a) * b", "sum(k) (-a * b)");
        assert_eq!(print_expr(&expr(text)), canonical);
    }
}

#[test]
fn an_access_with_else_keeps_its_default() {
    let shifted = expr("a + (x[i] else 1.5)");
    let ExprKind::Binary(BinaryOp::Add, _, right) = &shifted.kind else { panic!("{shifted:?}") };
    assert!(matches!(right.kind, ExprKind::Index { otherwise: Some(_), .. }));
}

#[test]
fn an_empty_text_is_an_empty_file() {
    for text in ["", "\n\n", "\u{feff}", "  \t\r\n"] {
        assert_eq!(print_file(&read(text)), "");
    }
    assert_eq!(print_file(&read("// only this")), "// only this\n");
}

#[test]
fn the_library_reads_and_prints() {
    let mut folders =
        vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../rules"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of rules") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rules") {
                let text = std::fs::read_to_string(&path).expect("a text");
                round_trip(&read(&text));
            }
        }
    }
}
