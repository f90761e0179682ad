//! What every verb has: arguments, the report for programs, and what a verb found.

use super::terminal::{self, Screen};
use crate::device::{MOST_THREADS, all_threads};
use crate::pipeline::Report;
use mlc_files::Named;
use std::path::{Path, PathBuf};

/// Arguments that every verb has.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "General")]
pub struct Common {
    /// Rules besides the shipped ones, `-` for standard input; may be given several times.
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Write a report for programs; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Threads; all cores by default.
    #[arg(long)]
    pub threads: Option<usize>,
    /// What is printed, and how.
    #[command(flatten)]
    pub screen: Screen,
}

impl Common {
    /// Threads to use.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(all_threads).clamp(1, MOST_THREADS)
    }

    /// Refuses what cannot be read, files that would overwrite each other, and outputs that cannot be written, before any
    /// work.
    pub fn begin(&mut self, reads: &[Named<'_>], writes: &[Named<'_>]) -> anyhow::Result<()> {
        let rules = self.rules.iter().map(|p| ("--rules", p.as_path()));
        let json = self.json.iter().map(|p| ("--json", p.as_path()));
        let reads: Vec<Named<'_>> = reads.iter().copied().chain(rules).collect();
        let writes: Vec<Named<'_>> = writes.iter().copied().chain(json).collect();
        self.screen.begin(&reads, &writes)
    }

    /// Writes the report, if one is wanted.
    pub fn report(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let mut text =
            serde_json::to_string_pretty(&Versioned { version: VERSION, report: value })?;
        text.push('\n');
        match mlc_files::is_output_stream(path) {
            true => terminal::out(&text)?,
            false => mlc_files::write(path, text.as_bytes())?,
        }
        Ok(())
    }
}

/// Of the reports' form: it grows where a field is renamed or taken away.
const VERSION: u32 = 1;

/// A report as it is written: an object that says which form it has.
#[derive(serde::Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    report: &'a T,
}

/// What a verb found.
pub enum Findings {
    /// Nothing amiss.
    Nothing,
    /// What it looks for: exit code 1.
    Something,
}

/// The optional file of an argument, as [`Common::begin`] takes it.
pub fn named<'a>(argument: &'a str, path: &'a Option<PathBuf>) -> Option<Named<'a>> {
    path.as_deref().map(|p: &Path| (argument, p))
}

/// What runs met and optimised, in words.
pub fn met(reports: &[Report]) -> String {
    let sum = |of: fn(&Report) -> usize| reports.iter().map(of).sum::<usize>();
    let (before, after) = (sum(|r| r.operators_before), sum(|r| r.operators_after));
    let seconds: f64 = reports.iter().flat_map(|r| r.seconds.values()).sum();
    match reports.len() {
        0 => "nothing of it was optimised".to_string(),
        1 => format!("what they met was optimised: {before} -> {after} operators, {seconds:.2} s"),
        n => format!(
            "the {n} parts that they met were optimised: {before} -> {after} operators, {seconds:.2} s"
        ),
    }
}
