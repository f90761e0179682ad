//! The table of spellings: how many of each layer's spellings become the layer's own plan.
//!
//! `spellings [FAMILY] [--show N] [--per-family N] [--rules FOLDER] [--keep FOLDER]`; FAMILY is a name or the beginning of
//! several, FOLDER holds texts that are read instead of those embedded, and failing
//! models are kept in the other FOLDER. The exit code is 1 if any spelling fails.

use mlc_proptests::spellings::{families, run};
use std::process::ExitCode;

struct Arguments {
    family: String,
    show: usize,
    most: usize,
    keep: Option<std::path::PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { family: String::new(), show: 0, most: 60, keep: None };
    let mut words = std::env::args().skip(1);
    while let Some(w) = words.next() {
        match w.as_str() {
            "--show" => out.show = number(&w, words.next())?,
            "--per-family" => out.most = number(&w, words.next())?,
            "--keep" => out.keep = Some(words.next().ok_or("`--keep` needs a folder")?.into()),
            "--rules" => {
                let folder = words.next().ok_or(format!("`{w}` needs a folder"))?;
                mlc_proptests::read_texts_of(std::path::Path::new(&folder));
            }
            _ if w.starts_with('-') => return Err(format!("there is no option `{w}`")),
            _ => out.family = w,
        }
    }
    Ok(out)
}

fn number(option: &str, value: Option<String>) -> Result<usize, String> {
    let value = value.ok_or(format!("`{option}` needs a number"))?;
    value.parse().map_err(|_| format!("`{value}` is not a number"))
}

fn main() -> ExitCode {
    let args = match arguments() {
        Ok(args) => args,
        Err(e) => {
            eprintln!(
                "{e}\nusage: spellings [FAMILY] [--show N] [--per-family N] [--rules FOLDER] [--keep FOLDER]"
            );
            return ExitCode::from(2);
        }
    };
    let known = families();
    let chosen: Vec<_> = match known.iter().find(|f| f.name == args.family) {
        Some(f) => vec![f],
        None => known.iter().filter(|f| f.name.starts_with(&args.family)).collect(),
    };
    if chosen.is_empty() {
        let names: Vec<&str> = known.iter().map(|f| f.name).collect();
        eprintln!("there is no family `{}`; known are {}", args.family, names.join(", "));
        return ExitCode::from(2);
    }
    let options = mlc_proptests::checked_options();
    let scratch = std::env::temp_dir().join(format!("spelling-{}.onnx", std::process::id()));
    let (mut total, mut equal) = (0, 0);
    println!("{:<26} {:>9} {:>6} {:>8}", "family", "spellings", "plans", "equal");
    for f in chosen {
        let began = std::time::Instant::now();
        let o = run::run(f, args.most, &scratch, &options);
        total += o.spellings;
        equal += o.equal;
        let percent = 100.0 * o.equal as f64 / o.spellings.max(1) as f64;
        let plans = o.plans.len();
        let seconds = began.elapsed().as_secs_f64();
        println!("{:<26} {:>9} {plans:>6} {percent:>7.1}% {seconds:>6.1} s", f.name, o.spellings);
        show(f.expect, &o, args.show);
        if let Some(folder) = &args.keep {
            keep(f.name, &o, folder);
        }
    }
    println!(
        "{:<26} {total:>9} {:>6} {:>7.1}%",
        "all",
        "",
        100.0 * equal as f64 / total.max(1) as f64
    );
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&scratch);
    ExitCode::from(u8::from(equal < total))
}

/// Prints up to `most` failures, those of different plans first.
fn show(expect: &[&str], o: &run::Outcome, most: usize) {
    if most == 0 || o.failures.is_empty() {
        return;
    }
    println!("  expected: {}", expect.join(" or "));
    for (i, (sig, count)) in o.plans.iter().enumerate() {
        println!("  plan {}: {count} x {}", i + 1, sig.kernels.join(", "));
    }
    let mut seen = std::collections::BTreeSet::new();
    let (first, rest): (Vec<_>, Vec<_>) = o.failures.iter().partition(|f| seen.insert(f.plan));
    for f in first.into_iter().chain(rest).take(most) {
        println!("--- {} (plan {})\n{}became\n{}\n", f.which, f.plan, f.source, f.became);
    }
}

/// Writes failing models to a folder.
fn keep(family: &str, o: &run::Outcome, folder: &std::path::Path) {
    for (i, f) in o.failures.iter().enumerate() {
        let path = folder.join(format!("{family}-{i}.onnx"));
        if let Err(e) = mlc_rewrite::onnx::write_onnx(&f.model, &path) {
            eprintln!("{}: {e}", path.display());
        }
    }
}
