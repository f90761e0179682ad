//! Seeded weights for the models that are kept without theirs.

use mlc_dsl::ir::{DType, Tensor};
use mlc_dsl::random::Random;
use std::path::Path;

/// Weights as the folder's own script describes them, but from this crate's generator.
pub fn fill(folder: &Path, into: &Path) -> Option<u64> {
    let meta: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("weights.json")).ok()?).ok()?;
    let bytes = meta["bytes"].as_u64()?;
    let mut data = vec![0u8; usize::try_from(bytes).ok()?];
    for (i, t) in meta["tensors"].as_array()?.iter().enumerate() {
        let mut random = Random::from_state(i as u64);
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
