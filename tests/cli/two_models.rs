//! `explain A B`: exit codes, reports, usage.

use super::{model, run};
use mlc_onnx::write_onnx;
use std::fs;

#[test]
fn two_models_are_compared() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    write_onnx(&model(1.0), at("a.onnx")).expect("written");
    let mut other = model(1.0);
    other.graph.nodes[26].op_type = "Abs".into();
    write_onnx(&other, at("b.onnx")).expect("written");
    fs::write(at("c.onnx"), b"no model").expect("written");
    let asked = |args: &[&str]| {
        let (code, out, said) = run(dir.path(), &[&["explain"], args].concat(), b"");
        (code, String::from_utf8(out).expect("text"), said)
    };
    let (code, out, said) = asked(&["a.onnx", "a.onnx"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.starts_with("equal by the laws\n"), "{out}");
    let (code, out, said) = asked(&["a.onnx", "b.onnx", "--json", "-"]);
    assert_eq!(code, Some(1), "{said}");
    let report: serde_json::Value = serde_json::from_str(&out).expect("nothing but JSON");
    assert_eq!(report["version"], 1);
    assert_eq!(report["answer"], "differ");
    assert_eq!(report["regions"][0]["b"]["nodes"][0], "y");
    let again = asked(&["a.onnx", "b.onnx", "--json", "-", "--threads", "1"]);
    assert_eq!(again.1, out, "the same bytes");
    for (args, wanted) in [
        (&["a.onnx", "none.onnx"][..], "there is no such file"),
        (&["a.onnx", "c.onnx"], "c.onnx"),
        (&["a.onnx", "b.onnx", "--html", "none/p.html"], "none"),
        (&["a.onnx", "b.onnx", "--gains"], "--gains"),
    ] {
        let (code, _, said) = asked(args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

#[test]
fn two_models_are_drawn() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    write_onnx(&model(1.0), at("a.onnx")).expect("written");
    let mut other = model(1.0);
    other.graph.nodes[26].op_type = "Abs".into();
    write_onnx(&other, at("b.onnx")).expect("written");
    let drawn =
        |other: &str, to: &str| run(dir.path(), &["explain", "a.onnx", other, "--html", to], b"");
    let (code, out, said) = drawn("b.onnx", "p.html");
    assert_eq!(code, Some(1), "{said}");
    assert!(String::from_utf8(out).expect("text").starts_with("different, at 1 place\n"));
    let page = fs::read_to_string(at("p.html")).expect("written");
    let loads = ["https://", "src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest"];
    assert!(loads.iter().all(|l| !page.contains(l)), "it stands alone");
    let (code, out, _) = drawn("b.onnx", "-");
    assert_eq!((code, String::from_utf8(out).expect("text")), (Some(1), page), "the same again");
    let (code, out, said) = drawn("a.onnx", "-");
    assert_eq!(code, Some(0), "{said}");
    assert!(String::from_utf8(out).expect("text").contains("equal by the laws"));
}
