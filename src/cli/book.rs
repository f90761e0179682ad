//! `book FOLDER`: writes what there is to know of operators, layers, laws and targets as sources of mdBook.

use super::common::{Common, Findings, named};
use crate::book::{Evidence, Sources, Uses, pages};
use crate::stdlib;
use anyhow::Context;
use mlc_dsl::check::{Text, parsed};
use mlc_dsl::diagnostics::Severity;
use mlc_dsl::library::Library;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The folder that the book is written into; `mdbook build FOLDER` makes pages of it.
    folder: PathBuf,
    /// What `check --json` reported: proofs and rounding errors of laws.
    #[arg(long, value_name = "FILE")]
    checked: Option<PathBuf>,
    /// What `optimize --json` reported of a model, which is called by the file's name: which laws it used; may be given several
    /// times.
    #[arg(long, value_name = "FILE")]
    used: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// What `--json` holds.
#[derive(Serialize)]
struct Written<'a> {
    /// From the folder.
    files: Vec<&'a str>,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    let used: Vec<_> = args.used.iter().map(|p| ("--used", p.as_path())).collect();
    let reads: Vec<_> = used.into_iter().chain(named("--checked", &args.checked)).collect();
    args.common.begin(&reads, &[])?;
    let evidence = match &args.checked {
        None => Evidence::default(),
        Some(path) => Evidence::read(&stdlib::read_text(path)?)
            .with_context(|| format!("{} is no report of `check`", path.display()))?,
    };
    let mut uses = Uses::default();
    for path in &args.used {
        let model = path.file_stem().unwrap_or_default().to_string_lossy();
        uses.add(&model, &stdlib::read_text(path)?)
            .with_context(|| format!("{} is no report of `optimize`", path.display()))?;
    }
    let (texts, library) = read(&args.common)?;
    let sources = Sources { texts: &texts, library: &library, evidence: &evidence, uses: &uses };
    let pages = pages(&sources);
    for page in &pages {
        let path = args.folder.join(&page.path);
        let folder = path.parent().unwrap_or(Path::new(""));
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        mlc_files::write(&path, page.text.as_bytes())?;
    }
    let files = pages.iter().map(|p| p.path.as_str()).collect();
    args.common.report(&Written { files })?;
    args.common.screen.say(&format!("{} files in {}\n", pages.len(), args.folder.display()))?;
    Ok(Findings::Nothing)
}

/// The shipped texts and those of the user, and their library.
fn read(common: &Common) -> anyhow::Result<(Vec<Text>, Arc<Library>)> {
    let mut texts = stdlib::texts().to_vec();
    if common.rules.is_empty() {
        return Ok((texts, stdlib::shipped()));
    }
    let read = |path: &PathBuf| Ok((path.display().to_string(), stdlib::read_text(path)?));
    let own = common.rules.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    let (library, diags) = stdlib::with(&own);
    if diags.iter().any(|d| d.diag.severity == Severity::Error) {
        let color = common.screen.colored_errors();
        anyhow::bail!("{}", stdlib::rendered(&library, &diags, color));
    }
    texts.extend(parsed(&own));
    Ok((texts, Arc::new(library)))
}
