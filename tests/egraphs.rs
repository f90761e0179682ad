//! E-graphs from files: what is read, what is refused, the command, and the public e-graphs of a neighbouring `shared` folder.

use flate2::Compression;
use flate2::write::GzEncoder;
use mlc_extract::{Anytime, ClassId, Cost, Extractor, GreedyTree};
use mlc_rewrite::cli::egraphs::{EGraphError, parse};
use mlc_rewrite::pipeline::peak_process_bytes;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Two products, or one merged one that both are cut from.
const MERGE: &str = r#"{
  "nodes": {
    "a": {"op": "matmul", "children": ["x"], "eclass": "A", "cost": 10.0},
    "a2": {"op": "left", "children": ["m"], "eclass": "A", "cost": 0.0},
    "b": {"op": "matmul", "children": ["x"], "eclass": "B", "cost": 10},
    "b2": {"op": "right \"half\"", "children": ["m"], "eclass": "B", "cost": 0.0},
    "m": {"op": "matmul", "children": ["x", "x"], "eclass": "M", "cost": 12.0},
    "x": {"op": "input", "eclass": "X", "cost": 0},
    "sum": {"op": "add", "children": ["a", "b"], "eclass": "S"}
  },
  "root_eclasses": ["S"],
  "class_data": {"S": {"type": "f32"}}
}"#;

fn zipped(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("writes to memory");
    encoder.finish().expect("writes to memory")
}

#[test]
fn nodes_classes_costs_and_roots_are_read_plain_and_gzipped() {
    for bytes in [MERGE.as_bytes().to_vec(), zipped(MERGE.as_bytes())] {
        let graph = parse(&bytes).expect("an e-graph");
        assert_eq!(graph.classes, ["A", "B", "M", "X", "S"]);
        assert_eq!(graph.nodes, ["a", "a2", "b", "b2", "m", "x", "sum"]);
        assert_eq!(graph.view.roots(), [ClassId::new(4)]);
        let sum = graph.view.nodes(ClassId::new(4))[0];
        assert_eq!(graph.view.cost(sum), Cost::new(1.0), "a cost that is left out is one");
        assert_eq!(graph.view.children(sum), [ClassId::new(0), ClassId::new(1)]);
        let found = Anytime::default().search(&graph.view, None, &|| false).expect("computable");
        assert_eq!((found.cost, found.proven()), (Cost::new(13.0), true));
    }
}

#[test]
fn what_is_no_e_graph_is_refused_with_a_reason() {
    let replaced = |from: &str, to: &str| MERGE.replacen(from, to, 1);
    for (text, reason) in [
        (String::new(), "EOF"),
        ("[]".into(), "egraph-serialize"),
        (replaced(r#""eclass": "A""#, r#""class": "A""#), "missing field `eclass`"),
        (replaced(r#"["m"]"#, r#"["gone"]"#), "node `a2` has the child `gone`, which is no node"),
        (replaced("10.0", "-1"), "node `a` costs -1, which is negative"),
        (replaced("10.0", "1e999"), "number out of range"),
        (replaced("10.0", "NaN"), "expected value"),
        (replaced(r#""a2":"#, r#""a":"#), "node `a` is given twice"),
        (replaced(r#"["S"]"#, "[]"), "`root_eclasses` is empty"),
        (replaced(r#"["S"]"#, r#"["T"]"#), "root `T` is the `eclass` of no node"),
        (replaced("}\n}", "}"), "EOF"),
    ] {
        let error = parse(text.as_bytes()).expect_err(&text).to_string();
        assert!(error.contains(reason), "{error}\nlacks {reason}");
    }
    let mut cut = zipped(MERGE.as_bytes());
    cut.truncate(cut.len() - 20);
    assert!(matches!(parse(&cut), Err(EGraphError::Io(_))));
}

#[test]
fn what_cannot_be_added_up_is_refused() {
    for cost in ["1e308", "2e307", "1e300"] {
        let text = MERGE.replace(r#""cost": 10.0"#, &format!(r#""cost": {cost}"#));
        let error = parse(text.as_bytes()).expect_err(cost).to_string();
        assert!(error.contains("add up to") && error.contains("`a`"), "{error}");
    }
    assert!(parse(MERGE.replace("12.0", "1e299").as_bytes()).is_ok());
}

#[test]
fn millions_of_roots_take_little_memory() {
    let many = |n: usize| MERGE.replace(r#"["S"]"#, &format!("[{}\"S\"]", "\"S\",".repeat(n)));
    let graph = parse(many(12_000_000).as_bytes()).expect("an e-graph");
    assert_eq!(graph.view.roots(), [ClassId::new(4)]);
    assert!(matches!(parse(many(25_000_000).as_bytes()), Err(EGraphError::TooLarge)));
    assert!(peak_process_bytes().is_none_or(|peak| peak < 1 << 30));
}

#[test]
fn damaged_bytes_never_panic() {
    let mut random = mlc_dsl::random::Random::from_state(7);
    let sources = [MERGE.as_bytes().to_vec(), zipped(MERGE.as_bytes())];
    let mut read = 0;
    for case in 0..10_000 {
        let mut bytes = sources[case % 2].clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] = random.bits() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        read += usize::from(parse(&bytes).is_ok());
    }
    assert!((1..10_000).contains(&read), "{read} of them are still e-graphs");
}

#[test]
fn a_small_file_that_unpacks_to_gigabytes_is_refused() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let blank = vec![b' '; 1 << 20];
    for _ in 0..2048 {
        encoder.write_all(&blank).expect("writes to memory");
    }
    let bytes = encoder.finish().expect("writes to memory");
    assert!(bytes.len() < 4 << 20);
    assert!(matches!(parse(&bytes), Err(EGraphError::TooLarge)));
    assert!(peak_process_bytes().is_none_or(|peak| peak < 1 << 30));
}

/// Exit code, standard output and standard error of the command.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_mlc-rewrite"))
        .arg("extract")
        .args(arguments)
        .output()
        .expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn the_command_prints_cost_and_bound_and_writes_the_choice() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path.display().to_string()
    };
    let (graph, json) = (file("merge.json", MERGE), folder.path().join("out.json"));
    let out = json.display().to_string();
    for solver in ["greedy", "anytime", "exact"] {
        let (code, shown, said) = run(&[&graph, "--solver", solver, "--json", &out]);
        assert_eq!((code, said.as_str()), (Some(0), ""));
        assert!(shown.contains("cost         13.000000 of 5 chosen nodes"), "{shown}");
        assert!(shown.contains("proven optimal"), "{shown}");
        let text = std::fs::read_to_string(&json).expect("a report");
        let report: serde_json::Value = serde_json::from_str(&text).expect("json");
        assert_eq!((&report["cost"], &report["lower_bound"]), (&13.0.into(), &13.0.into()));
        assert_eq!((&report["choices"]["A"], &report["choices"]["M"]), (&"a2".into(), &"m".into()));
    }
    let endless = MERGE
        .replace(r#""children": ["x"], "eclass": "A""#, r#""children": ["sum"], "eclass": "A""#);
    let endless = endless.replace(r#"["m"]"#, r#"["sum"]"#);
    for (arguments, reason) in [
        (vec![file("endless.json", &endless)], "root `S` cannot be computed"),
        (vec![file("empty.json", "")], "is empty"),
        (vec![file("bad.json", "{}")], "missing field `nodes`"),
        (vec![folder.path().join("none.json").display().to_string()], "cannot read"),
        (vec![graph.clone(), "--deadline=-1".into()], "`--deadline -1` is not a number"),
        (
            vec![graph.clone(), "--solver".into(), "fast".into()],
            "possible values: greedy, anytime, exact",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, shown, said) = run(&arguments);
        assert_eq!((code, shown.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(reason), "{said}\nlacks {reason}");
        assert!(said.contains("help: ") || said.contains("--help"), "{said}\nlacks a help");
    }
}

#[test]
fn public_e_graphs_are_extracted_at_the_best_known_cost() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/egraphs");
    // The best known of the folder's README; the last is whether a small budget proves the optimum.
    for (name, best, proven) in [
        ("tensat_vgg_acyclic", 4.86678, true),
        ("tensat_resnet50", 4.38766, true),
        ("tensat_bert_acyclic", 0.7375, false),
    ] {
        let path = folder.join(format!("{name}.json.gz"));
        let Ok(bytes) = std::fs::read(&path) else {
            eprintln!("skipped: there is no {}", path.display());
            continue;
        };
        let graph = parse(&bytes).expect("an e-graph");
        let tree = GreedyTree.extract(&graph.view, None).expect("computable");
        let found = Anytime::default().search(&graph.view, None, &|| false).expect("computable");
        assert_eq!(found.solution.validate(&graph.view), Ok(()));
        assert!(found.cost.seconds() <= best, "{name}: {} against {best}", found.cost.seconds());
        assert!(found.cost <= tree.dag_cost(&graph.view));
        assert!(found.gap() <= 0.05, "{name}: a gap of {}", found.gap());
        assert!(found.proven() || !proven, "{name}");
    }
}
