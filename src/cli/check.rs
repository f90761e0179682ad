//! `check [FILE.rules]…`: diagnostics and numerical verification of laws.

use super::{Common, Found};
use crate::lawtest::{self, Broken};
use crate::{stdlib, verify};
use mlc_dsl::diag::Severity;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Texts to check; the shipped ones if none is given.
    files: Vec<PathBuf>,
    /// Samples per law.
    #[arg(long, default_value_t = 60)]
    samples: usize,
    /// Target whose costs `picks` tests speak of.
    #[arg(long, default_value = "standard")]
    target: String,
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
    let broken = lawtest::check(&Arc::new(library), names.as_deref(), &args.target)?;
    let color = std::io::stdout().is_terminal();
    for b in &broken {
        println!("{}", b.human(color));
    }
    print!("{}", report.human(color));
    let sound = report.sound() && broken.is_empty();
    args.common.report(&Checked { report, broken })?;
    Ok(if faulty || !sound { Found::Something } else { Found::Nothing })
}
