//! `check [FILE.rules]…`: diagnostics and numerical verification of laws.

use super::common::{Common, Findings};
use super::terminal;
use crate::cli::completing;
use crate::derivation::{self, Derivation};
use crate::error::Error;
use crate::lawtest::{self, Broken};
use crate::model::recognition;
use crate::{pipeline, stdlib};
use anyhow::Context;
use clap_complete::ArgValueCompleter;
use mlc_dsl::diagnostics::span::{SourceSpan, Span};
use mlc_dsl::diagnostics::{SHOWN, Severity, more};
use mlc_dsl::library::Law;
use mlc_files::npz::write_npz;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Texts to check; the shipped ones if none is given.
    files: Vec<PathBuf>,
    /// Samples per law.
    #[arg(long, default_value_t = mlc_verify::CheckOptions::default().samples)]
    samples: usize,
    /// Target whose costs `picks` tests speak of.
    #[arg(long, default_value = "standard", add = ArgValueCompleter::new(completing::targets))]
    target: String,
    /// Say of each law of the files whether the shipped laws, and those of `--rules`, find its sides equal
    #[arg(long, requires = "files")]
    derive: bool,
    /// Write the smallest counterexample of every false law there, as a model that can be run.
    #[arg(long, value_name = "FOLDER")]
    cases: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What `--json` holds.
#[derive(Serialize)]
struct Checked {
    #[serde(flatten)]
    report: mlc_verify::CheckReport,
    /// Inline tests of laws that do not hold.
    broken: Vec<Broken>,
    /// Warnings about the laws' texts.
    lints: Vec<mlc_verify::Lint>,
    /// Whether other laws derive them, if that was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    derivations: Vec<Derivation>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let files: Vec<_> = args.files.iter().map(|p| ("FILE", p.as_path())).collect();
    args.common.begin(&files, &[])?;
    let mut texts = args.common.rules.clone();
    texts.extend(args.files.iter().cloned());
    let (library, diags) = stdlib::load(&texts)?;
    let library = Arc::new(library);
    for source in library.sources.iter().skip(stdlib::SHIPPED_TEXTS) {
        let (file, mistakes) = mlc_dsl::syntax::parse(&source.text);
        if file.items.is_empty() && mistakes.is_empty() {
            terminal::complain(&format!("warning: {} declares nothing\n", source.name));
        }
    }
    // A name that is wrong is told before laws are verified.
    pipeline::target(&library, &args.target)?;
    if !diags.is_empty() {
        let color = args.common.screen.colored_errors();
        terminal::complain(&format!("{}\n", stdlib::rendered(&library, &diags, color)));
    }
    let faults: Vec<_> = diags.iter().filter(|d| d.diag.severity == Severity::Error).collect();
    let faulty = !faults.is_empty();
    // Of what has a mistake nothing else is said: it stands for what is not written.
    let whole = |SourceSpan { file, span }: SourceSpan| {
        let within = |at: &Span| span.start <= at.start && at.start <= span.end;
        let at = |d: &mlc_dsl::check::SourceDiag| d.diag.labels.iter().any(|(at, _)| within(at));
        !faults.iter().any(|d| d.source == file && at(d))
    };
    // With files given, only their laws are verified; the shipped ones are what they build on.
    let first = stdlib::SHIPPED_TEXTS as u32 + args.common.rules.len() as u32;
    let names: Option<Vec<String>> = (!args.files.is_empty()).then(|| {
        // A schema's laws are also those of the operators that a file adds.
        let added = |l: &Law| {
            let of = l.schema.iter().flat_map(|s| &s.operators);
            of.into_iter().any(|c| library.call(*c).source.file >= first)
        };
        let own = library.laws.iter().filter(|l| l.source.file >= first || added(l));
        let own = own.filter(|l| whole(l.source));
        own.map(|l| l.name.to_string()).collect()
    });
    let options = mlc_verify::CheckOptions {
        seed: args.common.seed,
        samples: args.samples,
        threads: args.common.threads(),
        ..mlc_verify::CheckOptions::default()
    };
    let length = names.as_ref().map_or(library.laws.len(), Vec::len);
    let bar = args.common.screen.progress("laws", length);
    let report =
        mlc_verify::check_library(&library, names.as_deref(), &options, &|_, _| bar.inc(1));
    bar.finish_and_clear();
    let mut lints = mlc_verify::lint(&library, names.as_deref());
    let from = if args.files.is_empty() { 0 } else { first };
    let declared = mlc_verify::declarations(&library, from, args.common.seed);
    let unsound = |name: &str| library.find(name).is_some_and(|c| !whole(library.call(c).source));
    lints.extend(declared.into_iter().filter(|l| !unsound(&l.law)));
    let commutations = mlc_verify::commutation_table::table(&library, from);
    // What cannot run is told as such.
    let unfound = recognition::check(&library, from, args.common.seed);
    let told: HashSet<String> =
        lints.iter().filter(|l| l.code != "V006").map(|l| l.law.clone()).collect();
    lints.extend(unfound.into_iter().filter(|l| !told.contains(&l.law) && !unsound(&l.law)));
    let broken = lawtest::check(&library, names.as_deref(), &args.target)?;
    let color = args.common.screen.colored();
    let mut text = String::new();
    broken.iter().for_each(|b| text.extend([b.human(color), "\n".into()]));
    lints.iter().take(SHOWN).for_each(|l| text.extend([l.human(color), "\n".into()]));
    text.push_str(&more(lints.len()));
    text.push_str(&report.human(color));
    if args.common.screen.verbose() {
        text.push_str(&report.table());
        text.push_str(&commutations);
    }
    let derivations = match args.derive {
        true => {
            let own = library.laws.iter().filter(|l| l.source.file >= first);
            let bar = args.common.screen.progress("derivations", own.count());
            let (seed, threads) = (args.common.seed, args.common.threads());
            let found = derivation::derivations(&library, first, seed, threads, &|| bar.inc(1));
            bar.finish_and_clear();
            found
        }
        false => vec![],
    };
    derivations.iter().for_each(|d| text.push_str(&d.human()));
    if !derivations.is_empty() {
        let derived = derivations.iter().filter(|d| d.is_derived()).count();
        let _ = writeln!(text, "{derived} of {} laws are derived", derivations.len());
    }
    if let Some(folder) = &args.cases {
        text.push_str(&write_cases(&report, folder, &texts)?);
    }
    let sound =
        report.sound() && broken.is_empty() && !lints.iter().any(mlc_verify::Lint::is_error);
    args.common.report(&Checked { report, broken, lints, derivations })?;
    args.common.screen.say(&text)?;
    Ok(if faulty || !sound { Findings::Something } else { Findings::Nothing })
}

/// Writes a text and its inputs per false law; how to run them.
fn write_cases(
    report: &mlc_verify::CheckReport,
    folder: &Path,
    rules: &[PathBuf],
) -> anyhow::Result<String> {
    let mut out = String::new();
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for r in &report.laws {
        let mlc_verify::Outcome::Fails(c) = &r.verdict.outcome else { continue };
        let text = folder.join(format!("{}.rules", r.law));
        mlc_files::write(&text, c.case.text.as_bytes())?;
        let _ = write!(out, "mlc-rewrite run {}", text.display());
        if !c.case.inputs.is_empty() {
            let inputs = folder.join(format!("{}.npz", r.law));
            write_npz(&inputs, &c.case.inputs).map_err(Error::from)?;
            let _ = write!(out, " --inputs {}", inputs.display());
        }
        for r in rules {
            let _ = write!(out, " --rules {}", r.display());
        }
        let place = if c.in_f64 { "reference" } else { "cpu" };
        let _ = writeln!(out, " --backend {place} --no-optimize");
    }
    Ok(out)
}
