//! The shipped operators make a library without a single diagnostic.

use mlc_dsl::check::library;
use mlc_dsl::library::OpClass;
use std::path::Path;

fn texts(folder: &Path, out: &mut Vec<(String, String)>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for p in entries {
        if p.is_dir() {
            texts(&p, out);
        } else if p.extension().is_some_and(|e| e == "rules") {
            out.push((p.display().to_string(), std::fs::read_to_string(&p).unwrap()));
        }
    }
}

fn shipped(folder: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules").join(folder), &mut out);
    out
}

#[test]
fn operators_are_sound_and_classified() {
    let (lib, diags) = library(&shipped("ops"));
    for d in &diags {
        let s = &lib.sources[d.source as usize];
        let one = std::slice::from_ref(&d.diag);
        eprintln!("{}", mlc_dsl::diag::render(one, &s.name, &s.text, false));
    }
    assert!(diags.is_empty());
    let class = |n: &str| lib.call(lib.find(n).unwrap()).class;
    for (name, expected) in [
        ("add", OpClass::Pointwise),
        ("select", OpClass::Pointwise),
        ("cast", OpClass::Pointwise),
        ("transpose", OpClass::View),
        ("reshape", OpClass::View),
        ("broadcast", OpClass::View),
        ("slice", OpClass::View),
        ("concat", OpClass::Movement),
        ("pad", OpClass::Movement),
        ("gather", OpClass::Movement),
        ("sum", OpClass::Reduction),
        ("max", OpClass::Reduction),
        ("matmul", OpClass::Contraction),
        ("conv", OpClass::Contraction),
        ("conv_transpose", OpClass::Contraction),
    ] {
        assert_eq!(class(name), expected, "{name}");
    }
}
