//! The judge against hand-computed results.

use mlc_backends::reference::{Array, Engine, Precision, Reference};
use mlc_dsl::check::library;
use mlc_dsl::ir::{Attr, DType};
use mlc_dsl::library::Library;

fn rules() -> Library {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules/ops");
    let mut texts = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for p in paths {
        texts.push((p.display().to_string(), std::fs::read_to_string(&p).unwrap()));
    }
    let (library, diags) = library(&texts);
    for d in &diags {
        eprintln!("{:?}", d);
    }
    assert!(diags.is_empty());
    library
}

#[test]
fn loads() {
    let l = rules();
    for c in &l.calls { println!("{}", c.name); }
    let _ = (Engine::Plain, Precision::F64, DType::F32, Attr::int(1));
    let x = Array::from_f64(DType::F32, vec![2], vec![1.0, 2.0]).unwrap();
    let r = Reference::default();
    println!("{:?}", r.apply(&l, l.find("add").unwrap(), &[], &[x.clone(), x]));
}
