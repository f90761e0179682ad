//! The rule texts: those embedded in the binary, and the user's own.

use crate::error::Error;
use mlc_dsl::check::{SourceDiag, library};
use mlc_dsl::diag::{SHOWN, Severity, more, render};
use mlc_dsl::library::Library;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The texts of `rules/`: (path, text), in reading order.
pub const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/stdlib.rs"));

/// Longest text that is read.
const MAX_TEXT: u64 = 64 << 20;

/// Reads a text; `-` is standard input. Not UTF-8, too long or unreadable is an error that names it.
pub fn read_text(path: &Path) -> Result<String, Error> {
    Ok(mlc_files::text(path, MAX_TEXT).map_err(|e| mlc_files::error("read", path, e))?)
}

/// How many shipped texts there are: those of the user come after them.
pub(crate) fn shipped_texts() -> usize {
    TEXTS.len()
}

/// The shipped texts and then the user's, as one library, with all diagnostics.
pub fn load(user: &[PathBuf]) -> Result<(Library, Vec<SourceDiag>), Error> {
    Ok(library(&shipped_and(texts(user)?)))
}

/// The same, but diagnostics of errors are an error that shows them all.
pub fn load_sound(user: &[PathBuf]) -> Result<Library, Error> {
    sound(texts(user)?, false)
}

/// Texts of files, by their names.
fn texts(files: &[PathBuf]) -> Result<Vec<(String, String)>, Error> {
    files.iter().map(|path| Ok((path.display().to_string(), read_text(path)?))).collect()
}

/// The shipped texts and these, by name.
fn shipped_and(texts: Vec<(String, String)>) -> Vec<(String, String)> {
    let shipped = TEXTS.iter().map(|(n, t)| (n.to_string(), t.to_string()));
    shipped.chain(texts).collect()
}

/// The shipped texts and then these, given by name and content; errors in them are an error, which may be coloured.
pub fn sound(texts: Vec<(String, String)>, color: bool) -> Result<Library, Error> {
    let (library, diags) = library(&shipped_and(texts));
    match diags.iter().any(|d| d.diag.severity == Severity::Error) {
        true => Err(Error::in_texts(&library, &diags, rendered(&library, &diags, color))),
        false => Ok(library),
    }
}

/// The shipped texts alone, read once.
pub fn shipped() -> Result<Arc<Library>, Error> {
    static SHIPPED: OnceLock<Arc<Library>> = OnceLock::new();
    if let Some(known) = SHIPPED.get() {
        return Ok(known.clone());
    }
    let fresh = Arc::new(sound(vec![], false)?);
    Ok(SHIPPED.get_or_init(|| fresh).clone())
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
