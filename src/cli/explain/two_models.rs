//! `explain A B`: whether two models are equal.

use super::{Args, title};
use crate::cli::common::{Findings, named};
use crate::cli::options::model::load_for;
use crate::cli::terminal::progress;
use crate::explain::Answer;
use crate::optimizer::Optimizer;
use anyhow::bail;
use mlc_files::Named;
use std::path::PathBuf;

/// Compares the two models; anything but a proof is a finding.
pub(super) fn run(mut args: Args) -> anyhow::Result<Findings> {
    let (a, b) = (PathBuf::from(&args.what), args.other.clone().unwrap_or_default());
    for path in [&a, &b] {
        if !path.exists() && !mlc_files::is_input_stream(path) {
            bail!(
                "cannot read {}: there is no such file\nhelp: with two arguments `explain` compares two models",
                path.display()
            );
        }
    }
    let reads: Vec<_> = [("MODEL", a.as_path()), ("OTHER", b.as_path())]
        .into_iter()
        .chain(args.tuning.files())
        .collect();
    let writes: Vec<Named<'_>> = named("--html", &args.html).into_iter().collect();
    args.common.begin(&reads, &writes)?;
    let titles = [title(&a), title(&b)];
    let [a, b] =
        [load_for(&a, &args.common, &args.shapes)?, load_for(&b, &args.common, &args.shapes)?];
    let options = args.tuning.options(args.target.as_deref().unwrap_or("cpu"), &args.common)?;
    let found = Optimizer::from(options).compare(&a, &b)?;
    let findings = match found.answer {
        Answer::Equal => Findings::Nothing,
        Answer::NotProved | Answer::Differ => Findings::Something,
    };
    if let Some(to) = &args.html {
        mlc_files::write(to, found.html_called([&titles[0], &titles[1]])?.as_bytes())?;
        if mlc_files::is_output_stream(to) {
            progress::done();
            return Ok(findings);
        }
    }
    args.common.report(&found)?;
    progress::done();
    args.common.screen.print(&found.human(args.all))?;
    Ok(findings)
}
