//! Small models with right outputs at several extents, of a neighbouring folder `shared/cases` if it stands beside the checkout: as
//! `run` computes them, and as what is written for each target computes them. Without the folder they are counted as skipped.

use mlc_backends::arrays::AnyArray;
use mlc_dsl::ir::{DType, Tensor};
use mlc_files::npz::read_npz;
use mlc_rewrite::{Device, Model, Optimizer, Session};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Arrays by name.
type Arrays = Vec<(String, Tensor)>;

/// What each folder holds is said in its `README.md`: `model.onnx`, and for each set `K.in.npz` and `K.out.npz`.
fn sets(folder: &Path) -> Vec<(Arrays, Arrays)> {
    let read = |n: usize, kind: &str| {
        let path = folder.join(format!("{n}.{kind}.npz"));
        path.exists().then(|| read_npz(path).expect("reads").into_iter().collect::<Arrays>())
    };
    (0..).map_while(|n| Some((read(n, "in")?, read(n, "out")?))).collect()
}

/// How an output differs: by more than its part of the largest element, or in shape, type, infinities and NaN.
fn differs(wanted: &Tensor, got: &Tensor) -> Option<String> {
    if (wanted.dtype(), wanted.shape()) != (got.dtype(), got.shape()) {
        let (wd, ws, gd, gs) = (wanted.dtype(), wanted.shape(), got.dtype(), got.shape());
        return Some(format!("{gd}{gs:?} where {wd}{ws:?} is expected"));
    }
    let (w, g) = (wanted.to_f64(), got.to_f64());
    let largest = w.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let part = match wanted.dtype() {
        d if !d.is_float() => 0.0,
        DType::F16 => 1e-3,
        _ => 1e-5,
    };
    let near = |w: f64, g: f64| {
        let same = w == g || w.is_nan() && g.is_nan();
        same || w.is_finite() && (w - g).abs() <= part * largest
    };
    let at = (0..w.len()).find(|&i| !near(w[i], g[i]))?;
    Some(format!("element {at} is {} where {} is expected", g[at], w[at]))
}

/// What is wrong with a session's outputs, in the first set where anything is.
fn fault(session: &Session, sets: &[(Arrays, Arrays)]) -> Option<String> {
    sets.iter().enumerate().find_map(|(n, (inputs, wanted))| {
        let given = inputs.iter().map(|(name, t)| (name.as_str(), AnyArray::from(t.clone())));
        let got = match session.run(given) {
            Ok(got) => got,
            Err(e) => return Some(format!("set {n}: {e}")),
        };
        wanted.iter().find_map(|(name, wanted)| match got.get(name) {
            None => Some(format!("set {n}: there is no `{name}`")),
            Some(y) => Some(format!("set {n}, `{name}`: {}", differs(wanted, y.tensor())?)),
        })
    })
}

/// What is wrong with a case, a line each.
fn faults(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sets = sets(folder);
    assert!(!sets.is_empty(), "{name} has no set of inputs");
    let model = match Model::read(folder.join("model.onnx")) {
        Ok(model) => model,
        Err(e) => return vec![format!("{name}: {e}")],
    };
    let optimizer = |target: &str| Optimizer::new().threads(1).target(target);
    let runs = || -> Result<Option<String>, mlc_rewrite::Error> {
        Ok(fault(&optimizer("cpu").optimize(&model)?.session()?, &sets))
    };
    let written = |target: &str, device: &Device| -> Result<Option<String>, mlc_rewrite::Error> {
        let bytes = optimizer(target).optimize(&model)?.to_bytes()?;
        Ok(fault(&Model::from_bytes(bytes)?.session_on(device)?, &sets))
    };
    let mut found = vec![("run", runs())];
    for target in ["standard", "onnxruntime"] {
        found.push((target, written(target, &Device::reference())));
        found.push((target, written(target, &Device::cpu())));
    }
    let told = found.into_iter().filter_map(|(way, result)| match result {
        Ok(fault) => Some(format!("{name}, {way}: {}", fault?)),
        Err(e) => Some(format!("{name}, {way}: {e}")),
    });
    told.collect()
}

#[test]
fn shared_cases_are_right_at_every_extent() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/cases");
    let Ok(entries) = std::fs::read_dir(&shared) else {
        eprintln!("skipped: there is no {}", shared.display());
        return;
    };
    let mut folders: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    folders.retain(|f| f.join("model.onnx").exists());
    folders.sort();
    let wrong: Vec<String> = folders.par_iter().flat_map(|f| faults(f)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
