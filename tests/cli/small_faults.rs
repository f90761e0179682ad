//! What a message, a list or a page of help once said wrongly.

use super::run;
use super::verbs::{folder, json, told};
use std::fs;

#[test]
fn small_faults_stay_mended() {
    let dir = folder();
    // Mistakes are drawn with what they are: not once more.
    fs::write(dir.path().join("broken.rules"), "def f(x: F[..s]) -> F[..s]\n  = abs(x\n")
        .expect("written");
    let (_, _, said) = run(dir.path(), &["show", "broken.rules"], b"");
    assert!(said.starts_with("error["), "{said}");
    fs::write(dir.path().join("shapeless.rules"), "def f(x: F[..s]) -> F[..s]\n  = x\n")
        .expect("written");
    let (_, _, said) = run(dir.path(), &["show", "shapeless.rules"], b"");
    assert!(said.starts_with("error[V011]"), "{said}");
    // A symbol that is there is not told to be another.
    let (code, _, said) = run(dir.path(), &["run", "open.rules", "--shape", "n=4,5"], b"");
    assert_eq!(code, Some(2));
    assert!(said.contains("a symbol has one extent") && !said.contains("did you mean"), "{said}");
    // What is said of a file's laws is of these; lines end.
    let (_, out, _) = run(dir.path(), &["check", "f.rules", "-v", "--samples", "1"], b"");
    let out = String::from_utf8(out).expect("UTF-8");
    assert!(
        out.ends_with('\n') && !out.contains("`matmul`") && !out.contains("| `relu` |"),
        "{out}"
    );
    // Every report says which form it has.
    for args in [&["list", "targets"][..], &["inspect", "m.onnx"], &["show", "f.rules"]] {
        assert_eq!(json(dir.path(), args)["version"], 1, "{args:?}");
    }
    let help = told(dir.path(), &["optimize", "--help"]);
    for heading in
        ["How to optimise:", "How to read the model:", "Checks of the result:", "What is printed:"]
    {
        assert!(help.contains(heading), "{help}");
    }
    assert!(told(dir.path(), &["fmt", "--help"]).starts_with("Write"));
    let seconds = told(dir.path(), &["explain", "m.onnx"]);
    assert!(seconds.contains(" µs") && !seconds.contains(" us"), "{seconds}");
}
