//! `check [FILE.rules]…`: diagnostics and numerical verification of laws.

use super::{Common, Found};
use crate::lawtest::{self, Broken};
use crate::npz::write_npz;
use crate::{stdlib, verify};
use anyhow::Context;
use mlc_dsl::diag::{SHOWN, Severity, more};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Texts to check; the shipped ones if none is given.
    files: Vec<PathBuf>,
    /// Samples per law.
    #[arg(long, default_value_t = verify::CheckOptions::default().samples)]
    samples: usize,
    /// Target whose costs `picks` tests speak of.
    #[arg(long, default_value = "standard")]
    target: String,
    /// Say something of every law, not only of those that are false or suspicious.
    #[arg(long)]
    verbose: bool,
    /// Write the smallest counterexample of every false law there, as a model that can be run.
    #[arg(long, value_name = "FOLDER")]
    cases: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// What `--json` holds.
#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    report: verify::Report,
    /// Inline tests of laws that do not hold.
    broken: Vec<Broken>,
    /// Warnings about the laws' texts.
    lints: Vec<verify::Lint>,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Found> {
    let mut texts = args.common.rules.clone();
    texts.extend(args.files.iter().cloned());
    let (library, diags) = stdlib::load(&texts)?;
    let color = std::io::stderr().is_terminal();
    if !diags.is_empty() {
        eprintln!("{}", stdlib::rendered(&library, &diags, color));
    }
    let faulty = diags.iter().any(|d| d.diag.severity == Severity::Error);
    // With files given, only their laws are verified; the shipped ones are what they build on.
    let first = stdlib::TEXTS.len() as u32 + args.common.rules.len() as u32;
    let names: Option<Vec<String>> = (!args.files.is_empty()).then(|| {
        let own = library.laws.iter().filter(|l| l.source.0 >= first);
        own.map(|l| l.name.to_string()).collect()
    });
    let options = verify::CheckOptions {
        seed: args.common.seed,
        samples: args.samples,
        threads: args.common.threads(),
        ..verify::CheckOptions::default()
    };
    let bar = super::model::progress("laws");
    bar.set_length(names.as_ref().map_or(library.laws.len(), Vec::len) as u64);
    let report = verify::check_library(&library, names.as_deref(), &options, &|_, _| bar.inc(1));
    bar.finish_and_clear();
    let mut lints = verify::lint(&library, names.as_deref());
    let from = if args.files.is_empty() { 0 } else { first };
    lints.extend(verify::declarations(&library, from, args.common.seed));
    let broken = lawtest::check(&Arc::new(library), names.as_deref(), &args.target)?;
    let color = std::io::stdout().is_terminal();
    for b in &broken {
        println!("{}", b.human(color));
    }
    for l in lints.iter().take(SHOWN) {
        println!("{}", l.human(color));
    }
    print!("{}", more(lints.len()));
    print!("{}", report.human(color));
    if args.verbose {
        print!("{}", report.table());
    }
    if let Some(folder) = &args.cases {
        write_cases(&report, folder, &texts)?;
    }
    let sound = report.sound() && broken.is_empty() && !lints.iter().any(verify::Lint::is_error);
    args.common.report(&Checked { report, broken, lints })?;
    Ok(if faulty || !sound { Found::Something } else { Found::Nothing })
}

/// Writes a text and its inputs per false law, and prints how to run them.
fn write_cases(report: &verify::Report, folder: &Path, rules: &[PathBuf]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for r in &report.laws {
        let verify::Outcome::Fails(c) = &r.verdict.outcome else { continue };
        let text = folder.join(format!("{}.rules", r.law));
        super::model::write_file(&text, c.case.text.as_bytes())?;
        print!("mlc-rewrite run {}", text.display());
        if !c.case.inputs.is_empty() {
            let inputs = folder.join(format!("{}.npz", r.law));
            write_npz(&inputs, &c.case.inputs).map_err(|e| anyhow::anyhow!("{e}"))?;
            print!(" --inputs {}", inputs.display());
        }
        rules.iter().for_each(|r| print!(" --rules {}", r.display()));
        let place = if c.in_f64 { "reference" } else { "cpu" };
        println!(" --backend {place} --no-optimize");
    }
    Ok(())
}
