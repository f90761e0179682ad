//! `bench --turns`: plans that run when they are told to.

use super::{TEXT, run};

#[test]
fn plans_run_when_they_are_told_to() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("f.rules"), TEXT).expect("written");
    let args = ["bench", "f.rules", "--no-check", "--turns"];
    let (code, out, said) = run(dir.path(), &args, b"optimised\nas read\t3\noptimised\n");
    assert_eq!(code, Some(0), "{said}");
    let out = String::from_utf8(out).expect("text");
    let (known, times) = out.split_once('\n').expect("lines");
    let known: serde_json::Value = serde_json::from_str(known).expect("JSON");
    assert!(known["inputs"].as_str().expect("a path").ends_with("inputs.npz"));
    assert!(known["estimate"].as_f64().expect("seconds") > 0.0);
    assert!(known["same_plan"].is_boolean() && known["proof"].is_object());
    let times: Vec<f64> = times.lines().map(|l| l.parse().expect("seconds")).collect();
    assert!(times.len() == 3 && times.iter().all(|&t| t > 0.0), "{times:?}");
    for line in ["\n", "fast\n", "optimised 2\n", "optimised\t0\n", "optimised\tx\n"] {
        let (code, _, said) = run(dir.path(), &args, line.as_bytes());
        assert_eq!(code, Some(2), "{line:?}: {said}");
        assert!(said.contains("asks for no run"), "{line:?}: {said}");
    }
    let (code, _, said) = run(dir.path(), &[&args[..], &["--against", "torch"]].concat(), b"");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("cannot be used with"), "{said}");
}
