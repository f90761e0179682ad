//! What `explain` says, each claim found again by other means: which nodes a kernel computes by running both programs,
//! what is saved by the two plans, on which laws the result rests by the log without them, what a law gains by leaving it
//! out.

use mlc_backends::Backend;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{NodeId, NodeKind, Program, Tensor, Value};
use mlc_dsl::library::{CallId, Library};
use mlc_explore::Reason;
use mlc_extract::cost::target::TargetPrices;
use mlc_onnx::named;
use mlc_onnx::printable;
use mlc_onnx::{RawModel, import, read_onnx, write_onnx};
use mlc_proptests::networks::{NETWORKS, spelled};
use mlc_proptests::{program, sampled};
use mlc_rewrite::explain::{Explanation, Region, explain, leave_out, name_all, why_not};
use mlc_rewrite::model::rules_model;
use mlc_rewrite::names::reason;
use mlc_rewrite::pipeline::{self, Optimized, Options, optimize};
use mlc_verify::random_inputs;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A model, what became of it, and what is said of that.
struct Case {
    library: Arc<Library>,
    options: Options,
    optimized: Optimized,
    told: Explanation,
}

fn prices<'a>(library: &'a Library, options: &Options) -> TargetPrices<'a> {
    let target = pipeline::target(library, &options.target).expect("the target");
    TargetPrices::new(library, &target, options.operators.clone())
}

/// A model, optimised to be written.
fn case(model: RawModel) -> Case {
    let library = mlc_proptests::library();
    let model = import(model, library).expect("imports");
    let operators = Some(printable(library, model.model.opset(), "standard"));
    case_for("standard", model.program, operators)
}

fn case_for(target: &str, program: Program, operators: Option<HashSet<CallId>>) -> Case {
    case_with(mlc_proptests::library().clone(), target, program, operators)
}

fn case_with(
    library: Arc<Library>,
    target: &str,
    program: Program,
    operators: Option<HashSet<CallId>>,
) -> Case {
    case_without(library, target, program, operators, vec![]).expect("optimises")
}

/// The same where these laws must not fire; none for a program whose constants cannot be computed.
fn case_without(
    library: Arc<Library>,
    target: &str,
    mut program: Program,
    operators: Option<HashSet<CallId>>,
    without: Vec<String>,
) -> Option<Case> {
    name_all(&mut program, &library);
    let (target, limits) = (target.into(), Default::default());
    let options = Options { target, operators, limits, without, ..mlc_proptests::options(0, 0) };
    let optimized = optimize(program, &library, &options).ok()?;
    let told = explain(&optimized, &library, &options);
    Some(Case { told: told.expect("explains"), library, options, optimized })
}

fn squeezenet() -> RawModel {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/squeezenet1_1.onnx");
    read_onnx(path).expect("the example reads")
}

fn network(name: &str) -> RawModel {
    let network = NETWORKS.iter().find(|n| n.0 == name).expect("a network");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    write_onnx(&spelled(network, 0), &path).expect("writes");
    read_onnx(&path).expect("reads")
}

/// Every claim of an explanation.
#[track_caller]
fn holds(c: &Case) {
    the_sums_are_those_of_the_plans(c);
    kernels_compute_the_nodes_they_name(c);
    the_laws_named_are_those_that_are_needed(c);
    what_changes_is_credited(c);
}

/// Every region that changes says by what.
#[track_caller]
fn what_changes_is_credited(c: &Case) {
    for r in c.told.regions.iter().filter(|r| !r.is_unchanged()) {
        assert!(!r.laws.is_empty() || !r.steps.is_empty(), "credited to nothing: {r:#?}");
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn the_sums_are_those_of_the_plans(c: &Case) {
    let (before, after) = c.told.cost;
    assert!(close(after, c.optimized.plan.cost), "the result's estimate");
    let saved: f64 = c.told.regions.iter().map(|r| r.saved).sum();
    assert!(close(before, after + saved), "{before} is not {after} and {saved}");
    for r in &c.told.regions {
        let sum = |lines: &[mlc_rewrite::explain::KernelLine]| -> f64 {
            lines.iter().map(|l| l.seconds).sum::<f64>() * r.times() as f64
        };
        let told = sum(&r.before) - sum(&r.after);
        assert!((told - r.saved).abs() < 0.02 * before, "{:?}: {told} or {}", r.nodes, r.saved);
    }
    let kernels: usize = c.told.regions.iter().map(|r| r.after.len() * r.times()).sum();
    assert_eq!(kernels, c.optimized.plan.kernels.len());
    let named: BTreeSet<&String> =
        c.optimized.source.nodes.iter().map(|n| &n.origin).filter(|n| !n.is_empty()).collect();
    for r in &c.told.regions {
        for n in r.nodes.iter().chain(r.alike.iter().flatten()) {
            assert!(named.contains(n), "`{n}` is no node of the model");
        }
    }
}

/// The values of some nodes of a program.
fn values(program: &Program, nodes: &[NodeId], library: &Arc<Library>) -> Vec<Tensor> {
    let mut program = program.clone();
    let output = |n: &NodeId| (format!("{}", n.0), Value { node: *n, output: 0 });
    program.outputs = nodes.iter().map(output).collect();
    let inputs = random_inputs::inputs(&program, library, 7).expect("known sizes");
    let target = pipeline::target(library, "cpu").expect("the target");
    let plan = pipeline::plan(&program, library, &target).expect("plans");
    Cpu::new(2).compile(&plan, library.clone()).expect("compiles").run(&inputs).expect("runs")
}

/// A node of the result that has the name of a node of the model has one of its values, if need be in another layout: the same elements in
/// another order.
fn kernels_compute_the_nodes_they_name(c: &Case) {
    let named = |p: &Program| -> Vec<NodeId> {
        let is_named = |i: &usize| {
            matches!(p.nodes[*i].kind, NodeKind::Apply(..))
                && !p.nodes[*i].origin.is_empty()
                && p.nodes[*i].types[0].dtype.is_float()
        };
        (0..p.nodes.len()).filter(is_named).map(|i| NodeId(i as u32)).collect()
    };
    let (source, result) = (&c.optimized.source, &c.optimized.plan.program);
    let (old, new) = (named(source), named(result));
    let mut of: HashMap<&str, Vec<Tensor>> = HashMap::new();
    for (n, t) in old.iter().zip(values(source, &old, &c.library)) {
        of.entry(&source.node(*n).origin).or_default().push(t);
    }
    for (n, t) in new.iter().zip(values(result, &new, &c.library)) {
        let name = result.node(*n).origin.as_str();
        let is_close = |o: &Tensor| {
            let (mut a, mut b) = (o.to_f64(), t.to_f64());
            if o.shape() != t.shape() {
                [&mut a, &mut b].into_iter().for_each(|l| l.sort_by(f64::total_cmp));
            }
            let most = a.iter().fold(1e-30, |m: f64, v| m.max(v.abs()));
            a.len() == b.len() && a.iter().zip(&b).all(|(x, y)| (x - y).abs() <= 1e-3 * most)
        };
        assert!(of[name].iter().any(is_close), "`{name}` has another value in the result");
    }
}

fn the_laws_named_are_those_that_are_needed(c: &Case) {
    let o = &c.optimized;
    let is_named = |r: Reason| match r {
        Reason::Law(_) => c.told.laws.iter().any(|l| l.law == reason(&c.library, r)),
        _ => true,
    };
    assert!(o.explored.prove_without(&o.extracted, &|r| !is_named(r)).is_some(), "one is missing");
    let introduced = o.explored.introductions(&o.extracted);
    let introduced: BTreeSet<String> =
        introduced.iter().map(|s| reason(&c.library, s.reason)).collect();
    for l in c.told.laws.iter() {
        let barred = |r: Reason| {
            !is_named(r)
                || introduced.contains(&reason(&c.library, r))
                || reason(&c.library, r) == l.law
        };
        let is_needed = || o.explored.prove_without(&o.extracted, &barred).is_none();
        assert!(introduced.contains(&l.law) || is_needed(), "`{}`", l.law);
        assert!(!l.nodes.is_empty() && l.equations > 0, "`{}` was applied nowhere", l.law);
    }
}

#[test]
fn a_convolutional_network_is_explained() {
    let mut c = case(squeezenet());
    holds(&c);
    assert!(c.told.regions.iter().any(|r| !r.is_unchanged()));
    let source = c.optimized.source.clone();
    leave_out(&mut c.told, &source, &c.library, &c.options).expect("optimises without");
    for l in &c.told.laws {
        let options = Options { without: vec![l.law.clone()], ..c.options.clone() };
        let other = optimize(source.clone(), &c.library, &options).expect("optimises");
        assert_eq!(l.without, Some(other.report.cost_after), "`{}`", l.law);
        assert!(!other.report.laws.contains_key(&l.law));
    }
    insta::assert_snapshot!("squeezenet", c.told.human(false));
}

#[test]
fn spelled_networks_are_explained() {
    for name in ["encoder", "mixer"] {
        let c = case(network(name));
        holds(&c);
        assert!(!c.told.laws.is_empty());
        assert!(c.told.regions.iter().any(|r| !r.is_unchanged() && !r.laws.is_empty()), "{name}");
    }
}

/// The last definition of a text, optimised for the CPU.
fn text(text: &str) -> Case {
    let library = mlc_proptests::library_with(text);
    let name = mlc_proptests::defined(text).last().expect("a definition");
    let program = rules_model::program(&library, name).expect("a program");
    // What it defines is not to be recognised as itself.
    let own = vec![name.to_string(), format!("{name}.rev")];
    case_without(library, "cpu", program, None, own).expect("optimises")
}

/// Orders in which kernels list the same operators are no change.
#[test]
fn what_stays_is_no_change() {
    for body in [
        "(x: f32[4, 8], w: f32[8, 6], b: f32[6]) -> f32[4, 6] = relu(x @ w + b)",
        "(x: f32[4, 8], d: f32[4, 8]) -> f32[4, 8] = x / sqrt(d * d + 1)",
    ] {
        let (head, value) = body.split_once(" = ").expect("a value");
        let c = text(&format!("/// A case.\ndef case{head}\n  = {value}\n"));
        assert!(c.told.regions.iter().all(Region::is_unchanged), "{body}: {:#?}", c.told.regions);
    }
}

#[test]
fn what_changes_in_small_texts_is_credited() {
    for (body, by) in [
        ("(x: f32[4, 8]) -> f32[4, 8] = 0.5 * x * (1 + erf(x / sqrt(2)))", "gelu"),
        ("(x: f32[4, 8]) -> f32[4, 8] = x / (1 + exp(-x))", "silu"),
        (
            "(x: f32[2, 4, 8], w: f32[8, 8]) -> f32[2, 4, 8] = 0.5 * (x @ w) * (1 + erf((x @ w) / sqrt(2)))",
            "gelu",
        ),
        (
            "(x: f32[4, 8]) -> f32[4, 8] = transpose(exp(transpose(x, perm=[1, 0])), perm=[1, 0])",
            "transpose_pointwise[exp]",
        ),
        ("(a: f32[4], b: f32[4]) -> f32[4] = exp(a + b) * exp(b + a)", "(same operands)"),
        ("(x: f32[4, 8]) -> f32[4, 8] = (x + 0) * 1", "add_zero"),
        (
            "(x: f32[4, 8]) -> f32[4, 8] = x + sum(broadcast(x, map=[1, 2], shape=[3, 4, 8]), axes=[0])",
            "add_multiple",
        ),
        (
            "(x: f32[16]) -> f32[16] = concat(slice(x, start=[0], size=[8], step=[1]), slice(x, start=[8], size=[8], step=[1]), axis=0)",
            "concat_slice",
        ),
    ] {
        let (head, value) = body.split_once(" = ").expect("a value");
        let c = text(&format!("/// A case.\ndef case{head}\n  = {value}\n"));
        what_changes_is_credited(&c);
        let all: BTreeSet<&String> =
            c.told.regions.iter().flat_map(|r| r.laws.iter().chain(&r.steps)).collect();
        assert!(all.contains(&by.to_string()), "{body}: {all:?}");
    }
}

/// Programs that nobody thought of.
#[test]
fn what_changes_in_random_programs_is_credited() {
    let library = mlc_proptests::library();
    let case = |seed| case_without(library.clone(), "cpu", program(seed, 20), None, vec![]);
    let cases: Vec<Case> = (0..sampled(60) as u64).filter_map(case).collect();
    assert!(cases.len() >= 50);
    cases.iter().for_each(what_changes_is_credited);
}

#[test]
fn what_changes_in_layers_is_credited() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/layers");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|e| e.expect("an entry").path())
        .collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "rules"));
    paths.sort();
    assert!(paths.len() > 20);
    for path in paths {
        let c = text(&std::fs::read_to_string(&path).expect("reads"));
        what_changes_is_credited(&c);
    }
}

/// What keeps a law from firing, or an operator from the result: the law, the clause or the price.
#[test]
fn what_is_not_there_is_explained() {
    let c = case(squeezenet());
    let prices = prices(&c.library, &c.options);
    let asked = |name: &str| {
        let calls = named(&c.library, 17, &c.options.target, name);
        why_not(&c.optimized, &c.library, &prices, &c.options, (name, &calls), None)
    };
    assert!(asked("no_such_law").is_none());
    let mut text = String::new();
    for name in ["attention", "matmul", "conv_merge", "gelu", "conv", "Gemm", "ReduceMean"] {
        let found = asked(name).expect("known");
        text.push_str(&format!("--why-not {name}\n{}\n", found.human()));
    }
    insta::assert_snapshot!("why_not", text);
}

#[test]
fn what_has_another_layout_is_explained_node_by_node() {
    let program = import(squeezenet(), mlc_proptests::library()).expect("imports").program;
    let c = case_for("cuda", program, None);
    the_sums_are_those_of_the_plans(&c);
    kernels_compute_the_nodes_they_name(&c);
    let convolves = |r: &Region| r.after.iter().any(|l| l.kernel == "conv_channels_last");
    let told: Vec<&Region> = c.told.regions.iter().filter(|r| convolves(r)).collect();
    // Pairs of modules whose biases are the same zeros are told together, for they share a broadcast.
    assert!(told.len() >= 9 && told.iter().all(|r| r.nodes.len() <= 8), "{told:#?}");
    let law = "conv_in_all_channels_last";
    assert!(told.iter().all(|r| r.laws.contains(law)), "{told:#?}");
    let named = c.told.laws.iter().find(|l| l.law == law).expect("it was applied");
    assert_eq!(named.nodes.len(), named.equations, "{:?}", named.nodes);
}
