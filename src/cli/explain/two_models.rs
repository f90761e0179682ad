//! `explain A B`: whether two models are equal.

use super::Args;
use crate::cli::common::Findings;
use crate::cli::options::model::load_for;
use crate::cli::terminal::progress;
use crate::explain::Answer;
use crate::optimizer::Optimizer;
use anyhow::bail;
use std::path::PathBuf;

/// Compares the two models; anything but a proof is a finding.
pub(super) fn run(mut args: Args) -> anyhow::Result<Findings> {
    let (a, b) = (PathBuf::from(&args.what), args.other.clone().unwrap_or_default());
    if args.html.is_some() {
        bail!(
            "`--html` draws one model and what becomes of it, not two\nhelp: leave it out, or write what is found with `--json FILE`"
        );
    }
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
    args.common.begin(&reads, &[])?;
    let [a, b] =
        [load_for(&a, &args.common, &args.shapes)?, load_for(&b, &args.common, &args.shapes)?];
    let options = args.tuning.options(args.target.as_deref().unwrap_or("cpu"), &args.common)?;
    let found = Optimizer::from(options).compare(&a, &b)?;
    args.common.report(&found)?;
    progress::done();
    args.common.screen.print(&found.human(args.all))?;
    Ok(match found.answer {
        Answer::Equal => Findings::Nothing,
        Answer::NotProved | Answer::Differ => Findings::Something,
    })
}
