//! Layers of papers as texts alone: they compute what NumPy does, and are found in graphs that spell them out.

mod table;

use mlc_explore::constant_folding::fold;
use mlc_rewrite::explain::{name_all, why_not};
use mlc_rewrite::pipeline::{self, optimize};
use mlc_rewrite::{Device, Optimizer, Options, Reader};
use std::fmt::Write;
use table::{Case, cases, folder};

/// What rounding to 32-bit floats explains, in parts of the largest element: of one result, and of one after every operator.
const ROUNDED: f64 = 1e-6;
const COMPUTED: f64 = 1e-5;

/// The longest layer, in lines of code.
const LINES: usize = 20;

/// Lines that are neither empty nor comments.
fn lines(case: &Case) -> usize {
    let text = std::fs::read_to_string(case.path()).expect("a text");
    text.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with("//")).count()
}

#[test]
fn every_text_is_in_the_table_and_short() {
    let cases = cases();
    assert!(cases.len() >= 20, "{} layers", cases.len());
    for case in &cases {
        assert!(lines(case) <= LINES, "{} has {} lines of code", case.name, lines(case));
    }
    for at in [folder(), folder().join("spelled")] {
        let texts = std::fs::read_dir(&at).expect("a folder").flatten();
        let mut names: Vec<String> = texts
            .filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".rules")?.to_string()))
            .collect();
        names.sort();
        let known: Vec<&String> = cases.iter().map(|c| &c.name).collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), known, "{}", at.display());
    }
}

#[test]
fn layers_compute_what_numpy_does() {
    for case in cases() {
        let model = case.model();
        let optimized = Optimizer::new().target("cpu").optimize(&model);
        let optimized = optimized.unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (what, session, room) in [
            ("reference", model.session_on(&Device::reference()), ROUNDED),
            ("cpu", model.session_on(&Device::cpu().threads(2)), COMPUTED),
            ("optimised", optimized.session(), COMPUTED),
        ] {
            let session = session.unwrap_or_else(|e| panic!("{} on {what}: {e}", case.name));
            let y = session.run(case.arrays());
            let y = y.unwrap_or_else(|e| panic!("{} on {what}: {e}", case.name));
            let y = y.array::<f32>(y.names().next().expect("an output")).expect("f32");
            assert_eq!(y.shape(), case.shape, "{} on {what}", case.name);
            let elements: Vec<f32> = y.iter().copied().collect();
            let apart = case.difference(&elements);
            assert!(apart <= room, "{} on {what}: {apart:.1e} apart", case.name);
        }
    }
}

/// What becomes of a graph that spells a layer out, its constants folded: where the layer is found, or why it is not.
fn found(case: &Case) -> (bool, String) {
    let at = folder().join("spelled").join(format!("{}.rules", case.name));
    let model = Reader::new().rules(case.path()).read(at);
    let model = model.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let library = model.library();
    let mut folded = fold(model.program(), library).expect("folds");
    name_all(&mut folded, library);
    let options = Options { target: "cpu".into(), self_check: false, ..Options::default() };
    let result = optimize(folded, library, &options);
    let result = result.unwrap_or_else(|e| panic!("{}: {e:#}", case.name));
    let prices = pipeline::prices(library, &options, &result.source).expect("a target");
    let calls: Vec<_> = library.find(&case.name).into_iter().collect();
    let asked = (case.name.as_str(), calls.as_slice());
    let why = why_not(&result, library, &prices, &options, asked, None).expect("a layer");
    (why.in_result > 0 || !why.dearer.is_empty(), why.human())
}

#[test]
fn layers_are_found_where_they_are_spelled_out() {
    let mut text = String::new();
    let mut missed = Vec::new();
    for case in cases() {
        let (is_found, why) = found(&case);
        let _ = writeln!(text, "{}: {}", case.name, if is_found { "found" } else { "not found" });
        if !is_found {
            text.push_str(&why);
            missed.push(case.name);
        }
    }
    insta::assert_snapshot!("found", text, &missed.join(", "));
}
