//! The rule texts: those shipped in the binary, parsed and checked when it was built, and the user's own.

use crate::error::Error;
use mlc_dsl::check::{SourceDiag, Text, library_of, parsed};
use mlc_dsl::diagnostics::{SHOWN, Severity, more, render};
use mlc_dsl::library::{Library, Source};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// Longest text that is read.
const MAX_TEXT: u64 = 64 << 20;

/// How many texts are shipped: in every library those of the user come after them.
pub const SHIPPED_TEXTS: usize = include!(concat!(env!("OUT_DIR"), "/count"));

/// The texts of `rules/`, in reading order.
static TEXTS: LazyLock<Vec<Text>> = LazyLock::new(|| {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/texts"));
    Text::from_bytes(bytes).expect("the build wrote them")
});

/// Their library.
static SHIPPED: LazyLock<Arc<Library>> = LazyLock::new(|| {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/library"));
    Arc::new(Library::from_bytes(bytes).expect("the build wrote it"))
});

/// The shipped texts alone.
pub fn shipped() -> Arc<Library> {
    SHIPPED.clone()
}

/// The shipped texts.
pub fn sources() -> &'static [Source] {
    &SHIPPED.sources
}

/// The shipped texts as they are parsed.
#[cfg(feature = "cli")]
pub fn texts() -> &'static [Text] {
    &TEXTS
}

/// Reads a text; `-` is standard input. Not UTF-8, too long or unreadable is an error that names it.
pub fn read_text(path: &Path) -> Result<String, Error> {
    Ok(mlc_files::text(path, MAX_TEXT).map_err(|e| mlc_files::error("read", path, e))?)
}

/// The shipped texts and then the user's, as one library, with all diagnostics.
pub fn load(user: &[PathBuf]) -> Result<(Library, Vec<SourceDiag>), Error> {
    let read = |path: &PathBuf| Ok((path.display().to_string(), read_text(path)?));
    Ok(with(&user.iter().map(read).collect::<Result<Vec<_>, Error>>()?))
}

/// The shipped texts and then these, given by name and content, with all diagnostics.
pub fn with<S: AsRef<str> + Sync>(texts: &[(S, S)]) -> (Library, Vec<SourceDiag>) {
    library_of(TEXTS.iter().chain(&parsed(texts)))
}

/// The shipped texts that declare operators and layers, and then these, with all diagnostics.
pub fn operators_with<S: AsRef<str> + Sync>(texts: &[(S, S)]) -> (Library, Vec<SourceDiag>) {
    library_of(TEXTS.iter().filter(|t| t.is_of_operators()).chain(&parsed(texts)))
}

/// The shipped texts and then these; errors in them are an error, which may be coloured.
pub fn sound<S: AsRef<str> + Sync>(texts: &[(S, S)], color: bool) -> Result<Arc<Library>, Error> {
    if texts.is_empty() {
        return Ok(shipped());
    }
    let (library, diags) = with(texts);
    match diags.iter().any(|d| d.diag.severity == Severity::Error) {
        true => Err(Error::in_texts(&library, &diags, rendered(&library, &diags, color))),
        false => Ok(Arc::new(library)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_embedded_is_what_the_texts_say() {
        let texts: Vec<(&str, &str)> = sources().iter().map(|s| (&*s.name, &*s.text)).collect();
        assert_eq!(texts.len(), SHIPPED_TEXTS);
        let embedded = shipped().to_bytes().expect("encodes");
        for (read, diags) in [mlc_dsl::check::library(&texts), with::<&str>(&[])] {
            assert!(diags.is_empty(), "{diags:?}");
            assert!(read.to_bytes().expect("encodes") == embedded);
        }
    }
}
