//! `bench --kernels --svg FILE`: a chart of the kernels.

use super::{TEXT, run};
use std::collections::BTreeSet;

/// Bars of a chart at most, that of the others among them.
const BARS: usize = 31;

/// What stands between tags; every element must end in the one that it began in, and text must be escaped.
#[track_caller]
fn texts(xml: &str) -> Vec<&str> {
    let mut open: Vec<&str> = Vec::new();
    let mut texts = Vec::new();
    for piece in xml.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        let name = tag.split(' ').next().expect("a name");
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{xml}"),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
        let bare = entities.iter().fold(text.to_string(), |t, e| t.replace(e, ""));
        assert!(!bare.contains(['&', '>']), "{text}");
        texts.push(text.trim());
    }
    assert!(open.is_empty() && xml.starts_with("<svg ") && xml.ends_with("</svg>\n"), "{xml}");
    texts.retain(|t| !t.is_empty());
    texts
}

#[test]
fn kernels_of_a_network_are_drawn() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/squeezenet1_1.onnx");
    let args = ["bench", model, "--no-check", "--seconds", "0", "--warmup", "0", "--threads", "1"];
    let outputs = ["--kernels", "--svg", "chart.svg", "--json", "report.json"];
    let (code, _, said) = run(dir.path(), &[&args[..], &outputs].concat(), b"");
    assert_eq!(code, Some(0), "{said}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("written");
    let (chart, report) = (read("chart.svg"), read("report.json"));
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let kernels = report["kernels"].as_array().expect("kernels");
    let of = |k: &serde_json::Value, field: &str| k[field].as_str().expect("text").to_string();
    let rows: BTreeSet<_> = kernels.iter().map(|k| (of(k, "kernel"), of(k, "computes"))).collect();
    for k in kernels.iter().filter(|k| k["measured"].as_f64() > Some(0.0)) {
        assert!(k["roofline"].as_f64() >= Some(0.0), "{k}");
    }
    let texts = texts(&chart);
    let title = "squeezenet1_1.onnx, optimised, 1 thread: the kernels take ";
    assert!(texts[0].starts_with(title), "{}", texts[0]);
    // Of each bar: its label, its whole name, its figures.
    let bars: Vec<&[&str]> = texts[1..].chunks(3).collect();
    assert_eq!(bars.len(), rows.len().min(BARS));
    for bar in bars {
        let known = rows.iter().any(|(kernel, _)| bar[1].contains(&format!("{kernel}: ")));
        assert!(known || bar[1] == "others", "{bar:?}");
        let all = if bar[1] == "others" { " %" } else { " % of the roofline" };
        assert!(bar[2].ends_with(all), "{bar:?}");
    }
}

#[test]
fn a_chart_goes_to_standard_output_and_needs_kernels() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("f.rules"), TEXT).expect("written");
    let args = ["bench", "f.rules", "--no-check", "--seconds", "0", "--svg", "-"];
    let (code, out, said) = run(dir.path(), &[&args[..], &["--kernels"]].concat(), b"");
    assert_eq!(code, Some(0), "{said}");
    assert!(texts(&String::from_utf8(out).expect("text"))[0].starts_with("f.rules, "));
    assert!(said.contains("optimised: measured"), "{said}");
    for (more, reason) in [(&[][..], "--kernels"), (&["--turns"], "cannot be used with")] {
        let (code, out, said) = run(dir.path(), &[&args[..], more].concat(), b"");
        assert_eq!((code, out.len()), (Some(2), 0), "{said}");
        assert!(said.contains(reason), "{more:?}: {said}");
    }
}
