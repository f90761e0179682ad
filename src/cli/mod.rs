//! The command line: one module per verb; nothing on standard output but the result.

mod bench;
mod calibrate;
mod check;
mod checking;
mod explain;
mod extract;
mod fmt;
mod fuzz;
pub mod model;
mod optimize;
mod run;
mod show;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Optimises machine-learning graphs by equality saturation.
#[derive(Parser)]
#[command(name = "mlc-rewrite", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Optimise an ONNX model and write the result.
    Optimize(optimize::Args),
    /// Run a model.
    Run(run::Args),
    /// Time a model.
    Bench(bench::Args),
    /// Say what was rewritten, by which law and why it pays; or show a law.
    Explain(explain::Args),
    /// Extract the cheapest program from an e-graph in a file.
    Extract(extract::Args),
    /// Parse, type-check and numerically verify laws.
    Check(check::Args),
    /// Time this machine's kernels, and fit their costs.
    Calibrate(calibrate::Args),
    /// Hold random programs, optimised and run every way, against the judge.
    Fuzz(fuzz::Args),
    /// Print `.rules` texts in the canonical form.
    Fmt(fmt::Args),
    /// Print a model as text.
    Show(show::Args),
}

/// Arguments that every verb has.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// Rules besides the shipped ones; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Write a report for programs.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads; all cores by default.
    #[arg(long)]
    pub threads: Option<usize>,
}

impl Common {
    /// Threads to use.
    pub fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, |n| n.get());
        self.threads.unwrap_or_else(all).clamp(1, 1024)
    }

    /// Writes the report, if one is wanted.
    pub fn report(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        model::write_file(path, text.as_bytes())
    }
}

/// What a verb found.
pub enum Found {
    /// Nothing amiss.
    Nothing,
    /// What it looks for: exit code 1.
    Something,
}

/// Parses the arguments, runs the verb, reports errors. Exit codes: 0 done, 1 the check found
/// something, 2 bad input or usage.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Deep graphs are walked iteratively, but matching recurses over patterns and nests.
    let work = std::thread::Builder::new().stack_size(256 << 20).spawn(move || match cli.verb {
        Verb::Optimize(a) => optimize::run(a),
        Verb::Run(a) => run::run(a),
        Verb::Bench(a) => bench::run(a),
        Verb::Explain(a) => explain::run(a),
        Verb::Extract(a) => extract::run(a),
        Verb::Check(a) => check::run(a),
        Verb::Calibrate(a) => calibrate::run(a),
        Verb::Fuzz(a) => fuzz::run(a),
        Verb::Fmt(a) => fmt::run(a),
        Verb::Show(a) => show::run(a),
    });
    let result = match work.map(|w| w.join()) {
        Ok(Ok(r)) => r,
        Ok(Err(_)) => return ExitCode::from(101),
        Err(e) => Err(e.into()),
    };
    match result {
        Ok(Found::Nothing) => ExitCode::SUCCESS,
        Ok(Found::Something) => ExitCode::from(1),
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}
