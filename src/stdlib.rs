//! The rule texts: those embedded in the binary, and the user's own.

use crate::files;
use mlc_dsl::check::{SourceDiag, library};
use mlc_dsl::diag::{SHOWN, Severity, more, render};
use mlc_dsl::library::Library;
use std::path::{Path, PathBuf};

/// The texts of `rules/`: (path, text), in reading order.
pub const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/stdlib.rs"));

/// Longest text that is read.
const MAX_TEXT: u64 = 64 << 20;

/// Reads a text; `-` is standard input. Not UTF-8, too long or unreadable is an error that names it.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    files::text(path, MAX_TEXT).map_err(|e| files::error("read", path, &e))
}

/// The shipped texts and then the user's, as one library, with all diagnostics.
pub fn load(user: &[PathBuf]) -> anyhow::Result<(Library, Vec<SourceDiag>)> {
    load_with(user, None)
}

/// The same and another text, given by name and content.
fn load_with(
    user: &[PathBuf],
    last: Option<(String, String)>,
) -> anyhow::Result<(Library, Vec<SourceDiag>)> {
    let mut texts: Vec<(String, String)> =
        TEXTS.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
    for path in user {
        texts.push((path.display().to_string(), read_text(path)?));
    }
    texts.extend(last);
    Ok(library(&texts))
}

/// The same, but diagnostics of errors are an error that shows them all.
pub fn load_sound(user: &[PathBuf]) -> anyhow::Result<Library> {
    load_sound_with(user, None, false)
}

/// The same with another text, given by name and content; the error may be coloured.
pub fn load_sound_with(
    user: &[PathBuf],
    last: Option<(String, String)>,
    color: bool,
) -> anyhow::Result<Library> {
    let (library, diags) = load_with(user, last)?;
    let errors = diags.iter().filter(|d| d.diag.severity == Severity::Error).count();
    if errors > 0 {
        anyhow::bail!("{}", rendered(&library, &diags, color));
    }
    Ok(library)
}

/// Diagnostics as text, each with its source, errors first; of very many the first ones.
pub fn rendered(library: &Library, diags: &[SourceDiag], color: bool) -> String {
    let error = |d: &&SourceDiag| d.diag.severity == Severity::Error;
    let (errors, warnings): (Vec<_>, Vec<_>) = diags.iter().partition(error);
    let drawn = |d: &SourceDiag| {
        let s = &library.sources[d.source as usize];
        render(std::slice::from_ref(&d.diag), &s.name, &s.text, color)
    };
    let shown = errors.into_iter().chain(warnings).take(SHOWN).map(drawn);
    shown.collect::<Vec<_>>().join("\n") + &more(diags.len())
}
