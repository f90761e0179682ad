//! Layers of papers as texts alone: they compute what NumPy does, are written to ONNX, and are found in graphs that spell them out.

mod table;

use mlc_dsl::library::{Law, LawOrigin};
use mlc_explore::constants::folding::fold;
use mlc_rewrite::explain::{name_all, why_not};
use mlc_rewrite::pipeline::{self, optimize};
use mlc_rewrite::{Device, Model, Optimizer, Options, Reader};
use mlc_verify::{CheckOptions, Outcome, check_law};
use rayon::prelude::*;
use std::fmt::Write;
use std::path::Path;
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

/// A graph that spells a layer out: a text, or an ONNX file.
fn spelled(case: &Case, ending: &str) -> Model {
    let at = folder().join("spelled").join(format!("{}.{ending}", case.name));
    let model = Reader::new().rules(case.path()).read(at);
    model.unwrap_or_else(|e| panic!("{}: {e}", case.name))
}

/// What becomes of such a graph, its constants folded: where the layer is found, or why it is not.
fn found(case: &Case, ending: &str) -> (bool, String) {
    let model = spelled(case, ending);
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

/// The layers that are found, and why the others are not.
fn all_found(ending: &str) -> (String, String) {
    let mut text = String::new();
    let mut missed = Vec::new();
    let all: Vec<_> = cases().into_par_iter().map(|case| (found(&case, ending), case)).collect();
    for ((is_found, why), case) in all {
        let _ = writeln!(text, "{}: {}", case.name, if is_found { "found" } else { "not found" });
        if !is_found {
            text.push_str(&why);
            missed.push(case.name);
        }
    }
    (text, missed.join(", "))
}

#[test]
fn layers_are_found_where_they_are_spelled_out() {
    let (text, missed) = all_found("rules");
    insta::assert_snapshot!("found", text, &missed);
}

/// The layer that is not found in its ONNX graph: a gather with bounds can be said in more ways than laws could list.
const NOT_FOUND: &str = "deformable";

#[test]
fn layers_are_found_in_onnx_graphs() {
    let (text, missed) = all_found("onnx");
    assert_eq!(missed, NOT_FOUND, "{text}");
    // What is not found is explained.
    assert!(text.contains("the pattern wants `sample_line`"), "{text}");
    assert!(text.contains("no law yields `sample_line`"), "{text}");
}

/// What is written for an ONNX runtime, read again, computes what NumPy does.
fn written_computes(case: &Case, model: &Model, what: &str) {
    let optimized = Optimizer::new().target("standard").optimize(model);
    let bytes = optimized.and_then(|o| o.to_bytes());
    let bytes = bytes.unwrap_or_else(|e| panic!("{} {what}: {e}", case.name));
    let again = Model::from_bytes(bytes).unwrap_or_else(|e| panic!("{} {what}: {e}", case.name));
    let session = again.session_on(&Device::reference()).expect("a session");
    let y = session.run(case.arrays());
    let y = y.unwrap_or_else(|e| panic!("{} {what}: {e}", case.name));
    let y = y.array::<f32>(y.names().next().expect("an output")).expect("f32");
    let elements: Vec<f32> = y.iter().copied().collect();
    let apart = case.difference(&elements);
    assert!(apart <= COMPUTED, "{} {what}: {apart:.1e} apart", case.name);
}

#[test]
fn layers_and_graphs_that_spell_them_out_are_written_to_onnx() {
    cases().into_par_iter().for_each(|case| {
        written_computes(&case, &case.model(), "as a text");
        written_computes(&case, &spelled(&case, "onnx"), "as a graph");
    });
}

/// The laws of a text hold; yields how many there are beside those of its definitions.
fn laws_hold(rules: &Path) -> usize {
    let library = Reader::new().rules(rules).library().expect("a library");
    let own = library.sources.len() as u32 - 1;
    let is_own = |l: &&Law| l.source.file == own && l.origin == LawOrigin::Rule;
    let own: Vec<&Law> = library.laws.iter().filter(is_own).collect();
    for law in &own {
        let verdict = check_law(&library, law, &CheckOptions::default());
        assert!(matches!(verdict.outcome, Outcome::Holds(_)), "{}", law.name);
    }
    own.len()
}

#[test]
fn laws_of_layers_hold() {
    let laws: usize = cases().iter().map(|c| laws_hold(&c.path())).sum();
    assert_eq!(laws, 2);
}

/// A target on which steps one after the other are dear.
const STEPS_ARE_DEAR: &str = "
/// Recurrences are interpreted.
target parallel
  flops = 2e11
  bytes = 2e10
  launch = 2e-6
  view = 0.01
  interpreter = 100
  kernel \"concat\" covers concat
  kernel \"pad\" covers pad
";

/// A linear recurrence becomes a program of logarithmic depth by one law, and computes the same, where that is cheaper.
#[test]
fn an_associative_scan_is_one_law_away() {
    let rules = folder().join("../linear_scan.rules");
    assert_eq!(laws_hold(&rules), 3);
    let text = "def model(g: f32[2, 13, 3], x: f32[2, 13, 3]) -> f32[2, 13, 3]\n  = linear_scan(sigmoid(g), x)";
    let reader = Reader::new().rules(&rules).rules_text("parallel.rules", STEPS_ARE_DEAR);
    let model = reader.from_rules(text).expect("a model");
    for (target, stays) in [("parallel", false), ("cpu", true)] {
        let optimized = Optimizer::new().target(target).optimize(&model).expect("optimises");
        let text = optimized.text();
        assert_eq!(text.contains("linear_scan("), stays, "{target}: {text}");
    }
}
