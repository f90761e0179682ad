//! The table of spellings: how many of each layer's spellings become the layer's own plan.
//!
//! `spellings [FAMILY] [--show N] [--per-family N] [--rules FOLDER] [--keep FOLDER]
//! [--nodes] [--export FOLDER] [--target NAME] [--opset N]`; FAMILY is a name or the beginning of
//! several, FOLDER holds texts that are read instead of those embedded, and failing
//! models are kept in the other FOLDER. `--nodes` writes every result as ONNX instead and counts nodes; with `--export`
//! models, results and inputs are kept for a comparison by another implementation. The exit code is 1 if any spelling fails.

use mlc_proptests::spellings::nodes::{self, Destination};
use mlc_proptests::spellings::{Family, families, run};
use mlc_rewrite::pipeline::Options;
use std::process::ExitCode;

#[derive(Default)]
struct Arguments {
    family: String,
    show: usize,
    most: usize,
    keep: Option<std::path::PathBuf>,
    nodes: bool,
    export: Option<std::path::PathBuf>,
    target: String,
    opset: i64,
}

fn arguments() -> Result<Arguments, String> {
    let mut out =
        Arguments { most: 60, target: "standard".into(), opset: 22, ..Arguments::default() };
    let mut words = std::env::args().skip(1);
    while let Some(w) = words.next() {
        match w.as_str() {
            "--show" => out.show = number(&w, words.next())?,
            "--per-family" => out.most = number(&w, words.next())?,
            "--keep" => out.keep = Some(words.next().ok_or("`--keep` needs a folder")?.into()),
            "--nodes" => out.nodes = true,
            "--export" => {
                out.export = Some(words.next().ok_or("`--export` needs a folder")?.into());
                out.nodes = true;
            }
            "--target" => out.target = words.next().ok_or("`--target` needs a name")?,
            "--opset" => out.opset = number(&w, words.next())? as i64,
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
                "{e}\nusage: spellings [FAMILY] [--show N] [--per-family N] [--rules FOLDER] [--keep FOLDER]\n  \
                 [--nodes] [--export FOLDER] [--target NAME] [--opset N]"
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
    if args.nodes {
        return count(&chosen, &args, &scratch, &options);
    }
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

/// The table of node counts.
fn count(
    chosen: &[&Family],
    args: &Arguments,
    scratch: &std::path::Path,
    options: &Options,
) -> ExitCode {
    let place =
        Destination { target: &args.target, opset: args.opset, folder: args.export.as_deref() };
    let (mut all, mut smallest) = (0, 0);
    println!("{:<26} {:>9} {:>5} {:>5} {:>8}", "family", "spellings", "min", "max", "expected");
    for f in chosen {
        let w = nodes::written(f, args.most, scratch, options, &place);
        let (min, max) = (w.nodes.iter().min(), w.nodes.iter().max());
        let text = |n: Option<&usize>| n.map_or("-".into(), |n| n.to_string());
        let expected = nodes::smallest(f.name, &args.target, args.opset);
        let n = w.nodes.len() + w.failed.len();
        println!(
            "{:<26} {n:>9} {:>5} {:>5} {:>8}",
            f.name,
            text(min),
            text(max),
            text(expected.as_ref())
        );
        all += n;
        smallest += w.nodes.iter().filter(|&&n| Some(n) <= expected).count();
        w.failed.iter().take(args.show).for_each(|e| println!("  {e}"));
        if args.show > 0 && max.copied() > expected {
            println!("  {}", w.largest);
        }
    }
    println!("{:<26} {all:>9} {smallest:>11} as small as can be", "all");
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(scratch);
    ExitCode::from(u8::from(smallest < all))
}

/// Prints up to `most` failures, those of different plans first.
fn show(expect: &[&str], o: &run::FamilyOutcome, most: usize) {
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
fn keep(family: &str, o: &run::FamilyOutcome, folder: &std::path::Path) {
    for (i, f) in o.failures.iter().enumerate() {
        let path = folder.join(format!("{family}-{i}.onnx"));
        if let Err(e) = mlc_onnx::write_onnx(&f.model, &path) {
            eprintln!("{}: {e}", path.display());
        }
    }
}
