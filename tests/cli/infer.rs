//! The verb `infer`: what it finds of few operators, that `check` accepts it, and what it refuses.

use super::run;
use std::fs;
use std::path::Path;

/// Operators without traits, as a user declares them.
const OWN: &str = "/// The larger.
op larger(a: N[..s], b: N[..s]) -> y: N[..s]
  y[..s] = maximum(a[..s], b[..s])

/// The smaller.
op smaller(a: N[..s], b: N[..s]) -> y: N[..s]
  y[..s] = minimum(a[..s], b[..s])
";

fn found(folder: &Path, args: &[&str]) -> String {
    let args = [&["infer", "-q", "--time", "3600"], args].concat();
    let (code, out, said) = run(folder, &args, b"");
    assert_eq!(code, Some(0), "{said}");
    String::from_utf8(out).expect("a text")
}

#[test]
fn laws_that_everyone_knows_are_found_from_operators_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("own.rules"), OWN).expect("written");
    let bounds = ["--ops", "larger,smaller", "--rules", "own.rules", "--types", "i32"];
    let text = found(dir.path(), &[&bounds[..], &["--size", "5"]].concat());
    for law in [
        "larger(x, y) <=> larger(y, x)",
        "smaller(x, y) <=> smaller(y, x)",
        "larger(x, x) => x",
        "larger(smaller(x, y), x) => x",
    ] {
        assert!(text.contains(law), "{law}\n{text}");
    }
    let truth = ["--ops", "neg,logical_and,logical_or,logical_not", "--types", "i32,bool"];
    let text = found(dir.path(), &[&truth[..], &["--size", "5"]].concat());
    for law in ["--x => x", "not (not c) => c", "not c and not d", "not c or not d"] {
        assert!(text.contains(law), "{law}\n{text}");
    }
}

#[test]
fn what_is_found_is_accepted_and_the_same_for_any_number_of_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let ops = ["--ops", "abs,neg,sqrt,sum", "--types", "f32", "--size", "4", "--variables", "2"];
    let one = found(dir.path(), &[&ops[..], &["--threads", "1"]].concat());
    found(dir.path(), &[&ops[..], &["--threads", "3", "-o", "found.rules"]].concat());
    let three = fs::read_to_string(dir.path().join("found.rules")).expect("written");
    assert_eq!(one, three);
    assert!(one.contains("rule "), "{one}");
    for args in [&["check", "found.rules"][..], &["fmt", "--check", "found.rules"]] {
        let (code, out, said) = run(dir.path(), args, b"");
        assert_eq!(code, Some(0), "{args:?} {said} {}", String::from_utf8_lossy(&out));
    }
}

#[test]
fn what_is_found_of_two_operators_is_this() {
    let dir = tempfile::tempdir().expect("a folder");
    let ops = ["--ops", "logical_not,logical_xor", "--types", "bool", "--size", "6"];
    let text = found(dir.path(), &ops);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/infer.rules");
    if std::env::var_os("MLC_BLESS").is_some() {
        fs::write(path, &text).expect("written");
    }
    let held = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, held, "`MLC_BLESS=1 cargo test --test all cli::infer` writes {path}");
}

#[test]
fn what_cannot_be_enumerated_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    for (ops, types, told) in [
        ("maximun", "f32", "did you mean `maximum`"),
        ("exp", "i32", "operator `exp` takes none of the types i32: its operand `x` is of `F`"),
        ("reshape", "f32", "operator `reshape` needs its attribute `shape`"),
        ("exp", "f23", "`f23` is no element type"),
        ("exp", "f8e5m2", "laws of `f8e5m2` are not looked for"),
    ] {
        let args = ["infer", "--ops", ops, "--types", types];
        let (code, out, said) = run(dir.path(), &args, b"");
        assert_eq!((code, out.len()), (Some(2), 0), "{said}");
        assert!(said.contains(told) && said.contains("help: "), "{said}");
    }
}
