//! Real models: the shipped one always; those of a neighbouring `shared/models` folder if it stands
//! beside the checkout, else they are counted as skipped.

#[path = "models/fill.rs"]
mod fill;

use fill::fill;
use mlc_backends::Backend;
use mlc_backends::reference::Reference;
use mlc_cpu::Cpu;
use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_explore::Limits;
use mlc_onnx::printable;
use mlc_onnx::{ModelInfo, RawAttr, RawModel, export, export_plan, import, parse_onnx, read_onnx};
use mlc_rewrite::pipeline::{Optimized, Options, optimize};
use mlc_rewrite::stdlib;
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn options(library: &Library, opset: i64) -> Options {
    Options {
        target: "standard".into(),
        limits: Limits {
            nodes: 8_000,
            rounds: 6,
            time: Duration::from_secs(60),
            threads: 1,
            ..Limits::default()
        },
        operators: Some(printable(library, opset, "standard")),
        threads: 2,
        ..Options::default()
    }
}

/// Optimises, checks against the source, exports, reads the export again; operators before and after.
fn round_trip(library: &Arc<Library>, raw: RawModel) -> (Optimized, usize, usize) {
    let imported = import(raw, library).expect("imports");
    let opset = imported.model.opset();
    let o = optimize(imported.program, library, &options(library, opset)).expect("optimises");
    assert!(o.report.cost_after <= o.report.cost_before * (1.0 + 1e-9), "never costlier");
    assert!(!o.report.proof.contains_key(""), "every step has a reason");
    assert!(o.explored.prove(&o.extracted).is_some(), "the result is proven from the log");
    let plan = o.planned().expect("the result is trusted");
    let raw = export_plan(plan, library, &imported.model, opset).expect("exports");
    let after = raw.graph.nodes.len();
    let again = import(raw, library).expect("imports again");
    assert_eq!(again.program.outputs.len(), o.program.outputs.len());
    let error = mlc_rewrite::pipeline::selfcheck::compare(&o.source, &again.program, library, 1, 2);
    assert!(error.expect("agrees") < 1e-3);
    (o, imported.model.nodes, after)
}

#[test]
fn the_shipped_model_gets_smaller() {
    let library = stdlib::shipped();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    let (_, before, after) = round_trip(&library, read_onnx(&path).expect("reads"));
    assert!(after < before, "{before} -> {after}");
}

/// Larger models are left to `benches/models.py`.
const LARGEST: u64 = 120 << 20;

#[test]
fn shared_models_optimise_and_agree() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/models");
    let Ok(entries) = std::fs::read_dir(&shared) else {
        eprintln!("skipped: there is no {}", shared.display());
        return;
    };
    let library = stdlib::shipped();
    let mut folders: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    folders.retain(|f| f.join("weights.json").exists());
    folders.sort();
    folders.par_iter().for_each(|folder| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let meta = std::fs::metadata(folder.join("weights.json")).expect("weights");
        assert!(meta.len() > 0);
        let text = std::fs::read_to_string(folder.join("weights.json")).expect("weights");
        let meta: serde_json::Value = serde_json::from_str(&text).expect("json");
        if meta["bytes"].as_u64().unwrap_or(u64::MAX) > LARGEST {
            eprintln!("{name}: skipped, its weights are large");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        fill(folder, dir.path()).expect("weights are filled");
        let raw = read_onnx(dir.path().join("model.onnx")).expect("reads");
        let (_, before, after) = round_trip(&library, raw);
        eprintln!("{name}: {before} -> {after}");
        assert!(after <= before, "{name}: {before} -> {after}");
    });
}

#[test]
fn empty_bytes_are_no_model() {
    let library = stdlib::shipped();
    let outputs = |raw| import(raw, &library).map_or(0, |i| i.program.outputs.len());
    // An empty message is a model without a graph: reading or importing it must say so.
    let e = parse_onnx(bytes::Bytes::new(), None).map(outputs);
    assert!(!matches!(e, Ok(n) if n > 0));
}

const WRITTEN_MEAN: &str = "/// A mean written out, and numbers of open extents in other places.\n\
    def written_mean(x: f32[batch, n]) -> f32[batch]\n  \
    = sum(n) x / |n| * rsqrt(float(|n|)) + |n| / (|batch| + 1.5)\n";

#[test]
fn numbers_of_open_extents_are_computed_at_run_time() {
    let (library, diags) = stdlib::with(&[("mean.rules", WRITTEN_MEAN)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    let library = Arc::new(library);
    let program =
        mlc_rewrite::model::rules_model::program(&library, "written_mean").expect("a program");
    let cpu = library.target("cpu").expect("shipped").clone();
    let plan = mlc_extract::kernels::selection::select_kernels(program.clone(), &library, &cpu);
    for n in [4usize, 7] {
        let x: Vec<f64> = (0..3 * n).map(|i| (i as f64).sin()).collect();
        let input = Tensor::from_f64(DType::F32, vec![3, n], &x);
        let root = (n as f64).sqrt();
        for backend in [&Reference::default() as &dyn Backend, &Cpu::new(1)] {
            let run = backend.compile(&plan, library.clone()).expect("compiles");
            let y = &run.run(std::slice::from_ref(&input)).expect("runs")[0];
            assert_eq!(y.shape(), [3]);
            for (i, row) in x.chunks(n).enumerate() {
                let wanted = row.iter().sum::<f64>() / n as f64 / root + n as f64 / 4.5;
                assert!((y.get_f64(i) - wanted).abs() < 1e-6, "{} {n}", backend.name());
            }
        }
    }
    let info = ModelInfo { opset_imports: [(String::new(), 17)].into(), ..ModelInfo::default() };
    let raw = export(&program, &library, &info, 17).expect("exports");
    let again = import(raw, &library).expect("imports").program;
    let error = mlc_rewrite::pipeline::selfcheck::compare(&program, &again, &library, 1, 1);
    assert!(error.expect("agrees") < 1e-6);
}

/// The shipped texts and one more, of which there is nothing to say.
fn with_text(text: &str) -> Library {
    let (library, diags) = stdlib::with(&[("own.rules", text)]);
    assert!(diags.is_empty(), "{}", stdlib::rendered(&library, &diags, false));
    library
}

const AFFINE: &str = "/// A line by its slope and offset.\n\
    def line(x: F[..s], k: floats) -> F[..s]\n  = k[0] * x + k[-1]\n  if length(k) == 2\n\n\
    /// The same, of the domain `example`.\n\
    onnx Line(x; k: floats = [1.0, 0.0]) since 1 in \"example\"\n  = line(x, k=k)\n\n\
    /// A use.\n\
    def use(x: f32[3]) -> f32[3]\n  = line(x, k=[0.5, 2])\n";

#[test]
fn lists_of_real_numbers_are_attributes() {
    let library = with_text(AFFINE);
    let library = Arc::new(library);
    let program = mlc_rewrite::model::rules_model::program(&library, "use").expect("a program");
    let x = Tensor::from_f64(DType::F32, vec![3], &[1.0, 2.0, -4.0]);
    let y = mlc_rewrite::pipeline::selfcheck::run(&program, &library, &[x], 1).expect("runs");
    assert_eq!((0..3).map(|i| y[0].get_f64(i)).collect::<Vec<_>>(), [2.5, 3.0, 0.0]);
    let opsets = [(String::new(), 17), ("example".to_string(), 1)];
    let info = ModelInfo { opset_imports: opsets.into(), ..ModelInfo::default() };
    let raw = export(&program, &library, &info, 17).expect("exports");
    let attrs: Vec<&RawAttr> = raw.graph.nodes.iter().flat_map(|n| n.attrs.values()).collect();
    assert_eq!(attrs, [&RawAttr::Floats(vec![0.5, 2.0])]);
    let again = import(raw, &library).expect("imports").program;
    let error = mlc_rewrite::pipeline::selfcheck::compare(&program, &again, &library, 1, 1);
    assert_eq!(error.expect("agrees"), 0.0);
    let options = mlc_verify::CheckOptions { samples: 20, ..Default::default() };
    let names = ["line".to_string()];
    let report = mlc_verify::check_library(&library, Some(&names), &options, &|_, _| {});
    assert!(report.sound(), "{}", report.human(false));
}

const DIFFERING: &str = "/// One where two differ.\n\
    def differing(x: f32[n], y: f32[n]) -> f32[n]\n  = cast(x != y, to=f32)\n\n\
    /// A truth as a number.\n\
    onnx Number(c) since 1 in \"example\"\n  = cast(c, to=f32)\n  \
    prints differing(x, y) as Number(x != y)\n\n\
    /// A use.\n\
    def use(x: f32[3], y: f32[3]) -> f32[3]\n  = differing(x, y)\n";

#[test]
fn operands_that_are_computed_are_nodes_of_their_own() {
    let library = with_text(DIFFERING);
    let program = mlc_rewrite::model::rules_model::program(&library, "use").expect("a program");
    let opsets = [(String::new(), 17), ("example".to_string(), 1)];
    let info = ModelInfo { opset_imports: opsets.into(), ..ModelInfo::default() };
    let raw = export(&program, &library, &info, 17).expect("exports");
    let names: Vec<&str> = raw.graph.nodes.iter().map(|n| &*n.op_type).collect();
    assert_eq!(names, ["Equal", "Not", "Number"]);
}

const ZERO_STATE: &str = "/// A sequence of any length and batch.\n\
    def use(x: f32[t, b, 3], w: f32[1, 12, 3], r: f32[1, 12, 4], z: f32[1, 24]) -> f32[t, 1, b, 4]\n  \
    let (y, last) = gru(x, w, r, z, 0, direction=\"forward\", linear_before_reset=1)\n  = y\n";

#[test]
fn a_state_that_begins_at_zero_is_left_out() {
    let library = with_text(ZERO_STATE);
    let program = mlc_rewrite::model::rules_model::program(&library, "use").expect("a program");
    let info = ModelInfo { opset_imports: [(String::new(), 17)].into(), ..ModelInfo::default() };
    let raw = export(&program, &library, &info, 17).expect("exports");
    let [node] = raw.graph.nodes.as_slice() else { panic!("{:?}", raw.graph.nodes) };
    assert_eq!((&*node.op_type, node.inputs.len()), ("GRU", 4));
}

#[test]
fn weights_of_products_keep_two_axes() {
    let library = stdlib::shipped();
    let call = |name: &str| library.find(name).expect("shipped");
    let values: Vec<f64> = (0..24).map(|i| f64::from(i) / 8.0).collect();
    let weight = Tensor::from_f64(DType::F32, vec![1, 6, 4], &values);
    let bias = Tensor::from_f64(DType::F32, vec![1, 1, 4], &values[..4]);
    for rows in [vec![1, 5, 6], vec![5, 6]] {
        let mut b = mlc_dsl::ir::build::Builder::new(&library);
        let x = b.input("x", mlc_dsl::ir::Type::known(DType::F32, &rows));
        let known = |s: &[i64]| mlc_dsl::ir::Attr::Ints(s.iter().map(|&e| e.into()).collect());
        let shape = |s: &[i64]| Some(known(s));
        let x = b.apply(call("reshape"), &[shape(&[1, 5, 6])], &[x]).expect("types")[0];
        let w = b.constant(weight.clone());
        let z = b.constant(bias.clone());
        let y = b.apply(call("matmul"), &[], &[x, w]).expect("types")[0];
        let wide = b.apply(call("broadcast"), &[shape(&[0, 1, 2]), shape(&[1, 5, 4])], &[z]);
        let wide = wide.or_else(|_| {
            let z = b.constant(bias.reshaped(vec![4]));
            b.apply(call("broadcast"), &[shape(&[2]), shape(&[1, 5, 4])], &[z])
        });
        let out = b.apply(call("add"), &[], &[y, wide.expect("types")[0]]).expect("types")[0];
        let program = b.finish(vec![("y".into(), out)]);
        let info =
            ModelInfo { opset_imports: [(String::new(), 17)].into(), ..ModelInfo::default() };
        let raw = export(&program, &library, &info, 17).expect("exports");
        let ranks: Vec<usize> = raw.graph.initializers.values().map(|t| t.shape().len()).collect();
        let packed = raw.graph.initializers.values().any(|t| t.shape() == [6, 4]);
        assert!(packed, "{ranks:?}");
        let again = import(raw, &library).expect("imports").program;
        let error = mlc_rewrite::pipeline::selfcheck::compare(&program, &again, &library, 1, 1);
        assert_eq!(error.expect("agrees"), 0.0);
    }
}
