//! `infer --ops NAME,…`: finds laws of operators, and prints them as a text.

use super::common::{Common, Findings, named};
use super::options::model;
use super::terminal;
use crate::derivation::Derivation;
use crate::infer::{self, Compared, Comparison, Counts, FoundLaw, Options};
use crate::names;
use crate::stdlib::read_text;
use mlc_dsl::ir::DType;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Operators and layers that laws are looked for of, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    ops: Vec<String>,
    /// Types of variables, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "f32,i32,bool")]
    types: Vec<String>,
    /// Largest size of a side: operators, variables and numbers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=12))]
    size: u8,
    /// Variables of each type.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    variables: u8,
    /// Seconds after which no further terms and candidates are looked at.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    time: u64,
    /// Samples per law.
    #[arg(long, default_value_t = mlc_verify::CheckOptions::default().samples)]
    samples: usize,
    /// Leave out what the shipped laws, and those of `--rules`, derive.
    #[arg(long)]
    beyond: bool,
    /// Say which shipped laws of these operators the found ones derive, and which found ones are new.
    #[arg(long)]
    compare: bool,
    /// Write the text there; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What `--json` holds.
#[derive(Serialize)]
struct Report {
    laws: Vec<FoundLaw>,
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let writes: Vec<_> = named("--output", &args.output).into_iter().collect();
    args.common.begin(&[], &writes)?;
    // What is wrong in the user's texts is told before anything else.
    model::library(&args.common)?;
    let texts: Vec<(String, String)> = args
        .common
        .rules
        .iter()
        .map(|p| Ok((p.display().to_string(), read_text(p)?)))
        .collect::<Result<_, crate::Error>>()?;
    let options = Options {
        ops: args.ops.clone(),
        types: args.types.iter().map(|t| dtype(t)).collect::<anyhow::Result<_>>()?,
        size: args.size.into(),
        variables: args.variables.into(),
        time: Duration::from_secs(args.time),
        seed: args.common.seed,
        samples: args.samples,
        threads: args.common.threads(),
        beyond: args.beyond,
    };
    let verbose = args.common.screen.verbose();
    let hears = |what: &str| {
        if verbose {
            terminal::complain(&format!("{what}\n"));
        }
    };
    let found = infer::infer(&texts, &options, &hears)?;
    let compared = args
        .compare
        .then(|| infer::compare(&texts, &found.text, &options.ops, options.seed, options.threads));
    match &args.output {
        Some(path) if !mlc_files::is_output_stream(path) => {
            mlc_files::write(path, found.text.as_bytes())?;
        }
        Some(_) => terminal::out(&found.text)?,
        None => args.common.screen.print_as_it_is(&found.text)?,
    }
    if let Some(compared) = &compared {
        args.common.screen.note(&told(compared));
    }
    args.common.report(&Report { laws: found.laws, counts: found.counts, compared })?;
    Ok(Findings::Nothing)
}

/// The type of a name.
fn dtype(name: &str) -> anyhow::Result<DType> {
    let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
    let Some(found) = DType::ALL.iter().find(|d| d.name() == name) else {
        let hint = names::hint(name, &known, &format!("types are {}", known.join(", ")));
        anyhow::bail!("`{name}` is no element type{hint}");
    };
    if found.is_small() || *found == DType::Str {
        anyhow::bail!(
            "laws of `{name}` are not looked for\nhelp: name a type that is computed with"
        );
    }
    Ok(*found)
}

/// The comparison for people.
fn told(compared: &Compared) -> String {
    let mut out = String::new();
    let derived = |all: &[Comparison]| all.iter().filter(|c| c.derivation.is_derived()).count();
    let (shipped, found) = (&compared.shipped, &compared.found);
    let _ = writeln!(
        out,
        "of {} shipped laws of these operators alone {} are derived by the found ones",
        shipped.len(),
        derived(shipped)
    );
    let open = |all: &[Comparison]| -> Vec<Derivation> {
        let open = all.iter().filter(|c| !c.derivation.is_derived());
        open.map(|c| c.derivation.clone()).collect()
    };
    open(shipped).iter().for_each(|d| out.push_str(&d.human()));
    let new = open(found);
    let _ = writeln!(
        out,
        "of {} found laws {} are new: the shipped ones do not derive",
        found.len(),
        new.len()
    );
    new.iter().for_each(|d| {
        let _ = writeln!(out, "new: `{}`", d.law);
    });
    out
}
