//! `fmt FILE.rules…`: writes texts in canonical form.

use super::common::Findings;
use super::terminal::Screen;
use crate::stdlib::read_text;
use mlc_dsl::diagnostics::{Severity, render_first};
use mlc_dsl::syntax::{parse, print_file};
use std::path::PathBuf;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Texts that are written in canonical form, in place; `-` is standard input, and written to standard output.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write nothing; exit with 1 if a text is not in canonical form.
    #[arg(long)]
    check: bool,
    /// Print to standard output instead of writing.
    #[arg(long, conflicts_with = "check")]
    stdout: bool,
    #[command(flatten)]
    pub(super) screen: Screen,
}

/// Runs the verb.
pub fn run(args: Args) -> anyhow::Result<Findings> {
    let mut found = Findings::Nothing;
    for path in &args.files {
        let text = read_text(path)?;
        let (file, diags) = parse(&text);
        if diags.iter().any(|d| d.severity == Severity::Error) {
            let name = path.display().to_string();
            let color = args.screen.colored_errors();
            anyhow::bail!("{}", render_first(&diags, &name, &text, color));
        }
        let canonical = print_file(&file);
        if args.stdout || mlc_files::is_input_stream(path) && !args.check {
            args.screen.print_as_it_is(&canonical)?;
        } else if canonical != text {
            if args.check {
                args.screen.say(&format!("{}\n", path.display()))?;
                found = Findings::Something;
            } else {
                mlc_files::write(path, canonical.as_bytes())?;
            }
        }
    }
    Ok(found)
}
