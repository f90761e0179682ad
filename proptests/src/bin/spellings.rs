//! The table of spellings: how many of each layer's spellings become the layer's own plan.
//!
//! `spellings [FAMILY] [--show N] [--per-family N]`; FAMILY is a name or the beginning of several. The exit
//! code is 1 if any spelling fails.

use mlc_proptests::spellings::{families, run};
use std::process::ExitCode;

struct Arguments {
    family: String,
    show: usize,
    most: usize,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { family: String::new(), show: 0, most: 60 };
    let mut words = std::env::args().skip(1);
    while let Some(w) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("`{w}` needs a number"))?;
            value.parse().map_err(|_| format!("`{value}` is not a number"))
        };
        match w.as_str() {
            "--show" => out.show = number()?,
            "--per-family" => out.most = number()?,
            _ if w.starts_with('-') => return Err(format!("there is no option `{w}`")),
            _ => out.family = w,
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let args = match arguments() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("{e}\nusage: spellings [FAMILY] [--show N] [--per-family N]");
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
    }
    println!("{:<26} {total:>9} {:>6} {:>7.1}%", "all", "", 100.0 * equal as f64 / total.max(1) as f64);
    // A leftover of a run in the temporary folder harms nobody.
    let _ = std::fs::remove_file(&scratch);
    ExitCode::from(u8::from(equal < total))
}

/// Prints up to `most` failures, those of different plans first.
fn show(expect: &[&str], o: &run::Outcome, most: usize) {
    if most == 0 || o.failures.is_empty() {
        return;
    }
    println!("  expected: {}", expect.join(", "));
    for (i, (sig, count)) in o.plans.iter().enumerate() {
        println!("  plan {}: {count} x {}", i + 1, sig.kernels.join(", "));
    }
    let mut seen = std::collections::BTreeSet::new();
    let (first, rest): (Vec<_>, Vec<_>) = o.failures.iter().partition(|f| seen.insert(f.plan));
    for f in first.into_iter().chain(rest).take(most) {
        println!("--- {} (plan {})\n{}became\n{}\n", f.which, f.plan, f.source, f.became);
    }
}
