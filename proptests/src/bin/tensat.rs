//! The architectures of TENSAT's evaluation through `optimize`: seconds beside the published ones, the
//! estimate before and after, and the time of a run before and after.
//!
//! `tensat [NAME]... [--model NAME=FILE]...` takes the architectures whose names begin so, and models
//! from files; prints Markdown. Exit code 1 if one took longer than what was published. `tensat --write FOLDER` writes
//! the architectures to FOLDER/NAME/model.onnx instead.

use mlc_onnx::write_onnx;
use mlc_proptests::architectures::ARCHITECTURES;
use mlc_proptests::tool::report as tool;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!(
                "error: {e}\nusage: tensat [NAME]... [--model NAME=FILE]... | tensat --write FOLDER"
            );
            ExitCode::from(2)
        }
    }
}

fn run(words: Vec<String>) -> Result<bool, String> {
    if let [flag, folder] = words.as_slice()
        && flag == "--write"
    {
        return write(Path::new(folder)).map(|()| true);
    }
    let (mut names, mut models) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(w) = words.next() {
        if w == "--model" {
            let pair = words.next().unwrap_or_default();
            let (name, file) = pair.split_once('=').ok_or("--model wants NAME=FILE")?;
            models.push((name.to_string(), PathBuf::from(file)));
        } else {
            names.push(w.to_lowercase());
        }
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    println!(
        "| model | operators | e-graph | cost, ms | gap | optimise, s | TENSAT, s | run after/before |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut in_time = true;
    let wanted =
        |n: &str| names.is_empty() || names.iter().any(|p| n.to_lowercase().starts_with(p));
    for a in ARCHITECTURES.iter().filter(|a| wanted(a.name)) {
        let file = folder.path().join("model.onnx");
        write_onnx(&a.model(), &file).map_err(|e| e.to_string())?;
        in_time &= row(a.name, &file, a.tensat, folder.path())?;
    }
    for (name, file) in models {
        let published = match name.as_str() {
            "BERT" => Some(1.4),
            "NasRNN" => Some(0.5),
            _ => None,
        };
        in_time &= row(&name, &file, published, folder.path())?;
    }
    Ok(in_time)
}

fn write(folder: &Path) -> Result<(), String> {
    for a in ARCHITECTURES {
        let own = folder.join(a.name);
        std::fs::create_dir_all(&own).map_err(|e| e.to_string())?;
        write_onnx(&a.model(), own.join("model.onnx")).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn row(name: &str, file: &Path, published: Option<f64>, folder: &Path) -> Result<bool, String> {
    let (out, json) = (folder.join("out.onnx"), folder.join("report.json"));
    let f = |p: &Path| p.display().to_string();
    let args = ["optimize", &f(file), "-o", &f(&out), "--target", "cpu", "--no-check"];
    let report = tool(&args, &json)?;
    let number = |r: &serde_json::Value, path: &str| r.pointer(path).and_then(|v| v.as_f64());
    let at = |path: &str| number(&report, path).unwrap_or(0.0);
    let seconds: f64 =
        ["explore", "extract", "find blocks"].iter().map(|s| at(&format!("/seconds/{s}"))).sum();
    let bench = tool(&["bench", &f(file), "--backend", "cpu"], &json)?;
    println!(
        "| {name} | {} → {} | {} | {:.2} → {:.2} | {:.1} % | {seconds:.2} | {} | {:.3} |",
        at("/nodes_before"),
        at("/nodes_after"),
        at("/egraph/nodes"),
        at("/cost_before") * 1e3,
        at("/cost_after") * 1e3,
        at("/gap") * 100.0,
        published.map_or("–".to_string(), |s| format!("{s}")),
        number(&bench, "/ratio").unwrap_or(f64::NAN),
    );
    Ok(published.is_none_or(|s| seconds <= s))
}
