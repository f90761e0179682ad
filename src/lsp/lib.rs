//! A language server for `.rules` texts: diagnostics as one types, hover, navigation, completion, renaming, formatting, and
//! checks of laws on demand.
//!
//! Reads and checks texts by the language's own parser and checker. Knows neither the verifier nor models: what takes them is
//! asked of the [`Host`]. Never panics on input, and never writes a file.

mod commands;
mod completion;
mod diagnostics;
mod documents;
mod hover;
mod manual;
mod outline;
mod server;
mod symbols;
mod transport;
mod workspace;

pub use manual::words as described_words;
pub use server::serve;

use mlc_dsl::check::Text;
use mlc_dsl::library::Library;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the server asks of the program that it is part of.
pub trait Host: Send + Sync + 'static {
    /// The shipped texts.
    fn shipped(&self) -> &'static [Text];
    /// Verifies the laws of this name.
    ///
    /// # Errors
    /// It cannot be done; the text says why.
    fn check(&self, library: &Arc<Library>, law: &str) -> Result<Verdict, String>;
    /// How often the laws of this name match in a model, which is read with these texts, given by name and content, besides the
    /// shipped ones.
    ///
    /// # Errors
    /// The model cannot be read; the text says why.
    fn find(&self, texts: &[(String, String)], law: &str, model: &Path) -> Result<String, String>;
    /// A file that an editor can open with the text of the shipped one of this name.
    fn file_of(&self, shipped: &str) -> Option<PathBuf>;
}

/// What is found about the laws of a name.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Every one of them holds.
    pub holds: bool,
    /// Which kind of mistake it is, if there is one.
    pub code: Option<String>,
    /// One line.
    pub summary: String,
    /// All that is known.
    pub text: String,
}

/// What a server is started with; a client may add to it when it initialises.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Rule texts that every document builds on, besides the shipped ones.
    pub rules: Vec<PathBuf>,
    /// Models in which laws can be looked for.
    pub models: Vec<PathBuf>,
}

#[cfg(test)]
mod editor_tests;
#[cfg(test)]
mod tests;
