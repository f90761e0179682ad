//! How the time of `optimize` grows with the layers of a model.
//!
//! `depth [LAYERS]...` takes stacks of so many small layers (12 24 48 96) from file to file and prints
//! Markdown: seconds by stage and how well a line through them fits. `depth --large [FOLDER]` takes a
//! model of the dimensions of Llama 3 70B, whose weights are a file of zeros that is never read.

use mlc_onnx::write_onnx;
use mlc_proptests::stacks::Decoder;
use mlc_proptests::tool;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Rounds over all stacks; of each the fastest run counts.
const RUNS: usize = 5;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--large") => large(words.get(1).map(String::as_str)),
        _ => small(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}\nusage: depth [LAYERS]... | depth --large [FOLDER]");
            ExitCode::from(2)
        }
    }
}

fn small(words: &[String]) -> Result<(), String> {
    let layers: Result<Vec<usize>, _> = words.iter().map(|w| w.parse::<usize>()).collect();
    let mut layers = layers.map_err(|_| "LAYERS is a number".to_string())?;
    if layers.is_empty() {
        layers = vec![12, 24, 48, 96];
    }
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut best: Vec<Option<Run>> = layers.iter().map(|_| None).collect();
    for round in 0..RUNS {
        for (n, best) in layers.iter().zip(&mut best) {
            let file = folder.path().join(format!("{n}.onnx"));
            if round == 0 {
                write_onnx(&Decoder::small(*n).seeded(), &file).map_err(|e| e.to_string())?;
            }
            let run = optimize(&file, true)?;
            if best.as_ref().is_none_or(|b| run.seconds < b.seconds) {
                *best = Some(run);
            }
        }
    }
    println!("| layers | operators | e-graph | explore, s | extract, s | all, s | MiB |");
    println!("|---|---|---|---|---|---|---|");
    let mut points = Vec::new();
    for (n, run) in layers.iter().zip(best.into_iter().flatten()) {
        println!("| {n} | {} |", run.row());
        points.push((*n as f64, run.seconds));
    }
    println!("\nA line through the times has R² = {:.4}.", determination(&points));
    Ok(())
}

fn large(folder: Option<&str>) -> Result<(), String> {
    let own = tempfile::tempdir().map_err(|e| e.to_string())?;
    let folder = folder.map_or(own.path(), Path::new);
    let file = folder.join("llama_70b.onnx");
    let weights = folder.join("llama_70b.weights");
    let model = Decoder::llama_70b().hollow(&weights).map_err(|e| e.to_string())?;
    write_onnx(&model, &file).map_err(|e| e.to_string())?;
    drop(model);
    println!("| model | operators | e-graph | explore, s | extract, s | all, s | MiB |");
    println!("|---|---|---|---|---|---|---|");
    println!("| Llama 3 70B | {} |", optimize(&file, false)?.row());
    Ok(())
}

/// One run of the tool.
struct Run {
    report: serde_json::Value,
    seconds: f64,
}

impl Run {
    fn row(&self) -> String {
        let number = |path: &str| self.report.pointer(path).and_then(|v| v.as_f64()).unwrap_or(0.0);
        format!(
            "{} → {} | {} | {:.2} | {:.2} | {:.2} | {:.0}",
            number("/nodes_before"),
            number("/nodes_after"),
            number("/egraph/nodes"),
            number("/seconds/explore"),
            number("/seconds/extract"),
            self.seconds,
            number("/peak_process_bytes") / (1 << 20) as f64
        )
    }
}

fn optimize(file: &Path, check: bool) -> Result<Run, String> {
    let (out, json) = (file.with_extension("opt.onnx"), file.with_extension("json"));
    let (model, out) = (file.display().to_string(), out.display().to_string());
    let mut args = vec!["optimize", &model, "-o", &out];
    if !check {
        args.push("--no-check");
    }
    let began = Instant::now();
    let report = tool::report(&args, &json)?;
    Ok(Run { report, seconds: began.elapsed().as_secs_f64() })
}

/// The share of the variance that a line explains.
fn determination(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let sxy = mean(&|p| (p.0 - x) * (p.1 - y));
    let sxx = mean(&|p| (p.0 - x).powi(2));
    let syy = mean(&|p| (p.1 - y).powi(2));
    sxy * sxy / (sxx * syy)
}
