//! Real models: the shipped one always; those of a neighbouring `shared/models` folder if it stands
//! beside the checkout, else they are counted as skipped.

use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::library::Library;
use mlc_rewrite::explore::Limits;
use mlc_rewrite::onnx::{RawModel, export, import, parse_onnx, printable, read_onnx};
use mlc_rewrite::pipeline::{Fp, Optimized, Options, optimize};
use mlc_rewrite::samples::Random;
use mlc_rewrite::stdlib;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn options(library: &Library, opset: i64) -> Options {
    Options {
        target: "standard".into(),
        fp: Fp::Reorder,
        limits: Limits { nodes: 8_000, rounds: 6, time: Duration::from_secs(60) },
        without: vec![],
        operators: Some(printable(library, opset, "standard")),
        self_check: true,
        seed: 0,
        threads: 2,
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
    let raw = export(&o.program, library, &imported.model, opset).expect("exports");
    let after = raw.graph.nodes.len();
    let again = import(raw, library).expect("imports again");
    assert_eq!(again.program.outputs.len(), o.program.outputs.len());
    let error = mlc_rewrite::selfcheck::compare(&o.source, &again.program, library, 1, 2);
    assert!(error.expect("agrees") < 1e-3);
    (o, imported.model.nodes, after)
}

#[test]
fn the_shipped_model_gets_smaller() {
    let library = Arc::new(stdlib::load_sound(&[]).expect("sound"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/squeezenet1_1.onnx");
    let (_, before, after) = round_trip(&library, read_onnx(&path).expect("reads"));
    assert!(after < before, "{before} -> {after}");
}

/// Weights as the folder's own script describes them, but from this crate's generator.
fn fill(folder: &Path, into: &Path) -> Option<u64> {
    let meta: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("weights.json")).ok()?).ok()?;
    let bytes = meta["bytes"].as_u64()?;
    let mut data = vec![0u8; usize::try_from(bytes).ok()?];
    for (i, t) in meta["tensors"].as_array()?.iter().enumerate() {
        let mut random = Random::new(i as u64);
        let shape: Vec<usize> =
            t["shape"].as_array()?.iter().filter_map(|d| d.as_u64()).map(|d| d as usize).collect();
        let number = |k: &str| t[k].as_f64().unwrap_or(0.0);
        let n = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..n)
            .map(|_| {
                (random.normal() * number("std") + number("mean"))
                    .clamp(number("min"), number("max"))
            })
            .collect();
        let dtype = match t["dtype"].as_str()? {
            "float32" => DType::F32,
            "float16" => DType::F16,
            "float64" => DType::F64,
            "int64" => DType::I64,
            "int32" => DType::I32,
            "bool" => DType::Bool,
            other => panic!("weights of type {other}"),
        };
        let tensor = Tensor::from_f64(dtype, shape, &values);
        let at = t["offset"].as_u64()? as usize;
        data[at..at + tensor.bytes().len()].copy_from_slice(tensor.bytes());
    }
    std::fs::copy(folder.join("model.onnx"), into.join("model.onnx")).ok()?;
    std::fs::write(into.join("weights.bin"), data).ok()?;
    Some(bytes)
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
    let library = Arc::new(stdlib::load_sound(&[]).expect("sound"));
    let mut folders: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    folders.retain(|f| f.join("weights.json").exists());
    folders.sort();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let meta = std::fs::metadata(folder.join("weights.json")).expect("weights");
        assert!(meta.len() > 0);
        let text = std::fs::read_to_string(folder.join("weights.json")).expect("weights");
        let meta: serde_json::Value = serde_json::from_str(&text).expect("json");
        if meta["bytes"].as_u64().unwrap_or(u64::MAX) > LARGEST {
            eprintln!("{name}: skipped, its weights are large");
            continue;
        }
        let dir = tempfile::tempdir().expect("a folder");
        fill(&folder, dir.path()).expect("weights are filled");
        let raw = read_onnx(dir.path().join("model.onnx")).expect("reads");
        let (_, before, after) = round_trip(&library, raw);
        eprintln!("{name}: {before} -> {after}");
        assert!(after <= before, "{name}: {before} -> {after}");
    }
}

#[test]
fn empty_bytes_are_no_model() {
    let library = stdlib::load_sound(&[]).expect("sound");
    let outputs = |raw| import(raw, &library).map_or(0, |i| i.program.outputs.len());
    // An empty message is a model without a graph: reading or importing it must say so.
    let e = parse_onnx(bytes::Bytes::new(), None).map(outputs);
    assert!(!matches!(e, Ok(n) if n > 0));
}
