//! Output: results to standard output, everything else to standard error; colours, quiet and verbose modes.
//!
//! Nothing here panics if a stream is closed or full.

pub(crate) mod progress;
mod wrap;

use crate::error::Error;
use clap::ValueEnum;
use indexmap::IndexMap;
use mlc_dsl::diagnostics::message_text::is_wild;
use mlc_files::Named;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set; anywhere if CLICOLOR_FORCE is set.
    #[default]
    Auto,
    /// Anywhere.
    Always,
    /// Nowhere.
    Never,
}

/// What standard output is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Taken {
    /// For people.
    #[default]
    Free,
    /// For an output file; people read standard error.
    Output,
    /// For the report that has it all.
    Json,
}

/// Arguments.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "What is printed")]
pub struct Screen {
    /// When to use colours.
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    color: Color,
    /// Print results and errors alone.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more of what is done.
    #[arg(short, long)]
    verbose: bool,
    /// What else standard output is for.
    #[arg(skip)]
    taken: Taken,
}

impl Screen {
    /// Refuses what cannot be read, files that would overwrite each other, and outputs that cannot be written, before any
    /// work.
    pub fn begin(&mut self, reads: &[Named<'_>], writes: &[Named<'_>]) -> anyhow::Result<()> {
        // A model may be a folder of weights.
        let is_folder = |(name, path): &&Named<'_>| {
            *name == "MODEL" && path.is_dir() && mlc_weights::weights_folder(path).is_some()
        };
        for (_, path) in reads.iter().filter(|read| !is_folder(read)) {
            mlc_files::readable(path).map_err(|e| mlc_files::error("read", path, e))?;
        }
        mlc_files::distinct(reads, writes)?;
        for (name, path) in writes {
            mlc_files::AtomicFile::create(path).map_err(|e| mlc_files::error("write", path, e))?;
            if mlc_files::is_output_stream(path) {
                self.taken = if *name == "--json" { Taken::Json } else { Taken::Output };
            }
        }
        Ok(())
    }

    /// Prints a result. What a terminal would obey in it comes from a file, and is escaped.
    pub fn print(&self, text: &str) -> anyhow::Result<()> {
        self.print_as_it_is(&escaped(text, self.colored()))
    }

    /// Prints a result, its lines wrapped at the terminal's width.
    pub fn print_wrapped(&self, text: &str) -> anyhow::Result<()> {
        self.print(&wrap::wrapped(text, wrap::width()))
    }

    /// Prints a text that is read back.
    pub fn print_as_it_is(&self, text: &str) -> anyhow::Result<()> {
        match self.taken {
            Taken::Free => out(text)?,
            Taken::Output => complain(text),
            Taken::Json => {}
        }
        Ok(())
    }

    /// Prints what was done, unless in quiet mode.
    pub fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.quiet { Ok(()) } else { self.print(text) }
    }

    /// Tells something on the side.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            complain(&escaped(text, false));
        }
    }

    /// Tells notes on the side; of those that differ by what is in backquotes alone the first one, and how many there are, unless
    /// the user wants to know more.
    pub fn notes<'n>(&self, notes: impl IntoIterator<Item = &'n String>) {
        let each = |note: &String| format!("note: {note}\n");
        match self.verbose {
            true => notes.into_iter().for_each(|note| self.note(&each(note))),
            false => grouped(notes).iter().for_each(|note| self.note(&each(note))),
        }
    }

    /// True if the user wants to know more.
    pub fn verbose(&self) -> bool {
        self.verbose
    }

    /// True if standard output is coloured.
    pub fn colored(&self) -> bool {
        self.color(io::stdout().is_terminal())
    }

    /// True if standard error is coloured.
    pub fn colored_errors(&self) -> bool {
        self.color(io::stderr().is_terminal())
    }

    fn color(&self, terminal: bool) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto if is_set("NO_COLOR") => false,
            Color::Auto => {
                let forced =
                    std::env::var_os("CLICOLOR_FORCE").is_some_and(|v| !v.is_empty() && v != "0");
                terminal || forced
            }
        }
    }

    /// A bar on standard error that appears after a second; silent where that is no terminal.
    pub fn progress(&self, unit: &str, length: usize) -> indicatif::ProgressBar {
        progress::bar(unit, length as u64, !self.quiet)
    }

    /// Shows the stages of a long call.
    pub fn watch(&self) {
        progress::watch(!self.quiet);
    }
}

/// The text without what a terminal would obey, other than ends of lines, tabs and, if there are some, colours.
pub fn escaped(text: &str, colored: bool) -> Cow<'_, str> {
    let wild = |c: char| is_wild(c) && c != '\n' && c != '\t';
    if !text.contains(wild) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if colored { color(rest) } else { 0 };
        let end = if length > 0 { length } else { c.len_utf8() };
        match wild(c) && length == 0 {
            true => out.extend(c.escape_default()),
            false => out.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    Cow::Owned(out)
}

/// The length of the colour that the text begins with; none if it does not.
fn color(text: &str) -> usize {
    let Some(codes) = text.strip_prefix("\x1b[") else { return 0 };
    let end = codes.find(|c: char| !c.is_ascii_digit() && c != ';');
    end.filter(|&end| codes[end..].starts_with('m')).map_or(0, |end| "\x1b[".len() + end + 1)
}

/// Writes to standard output.
///
/// # Errors
/// It is closed, or full.
pub fn out(text: &str) -> Result<(), Error> {
    let stream = Path::new("standard output");
    Ok(mlc_files::send(text.as_bytes(), None).map_err(|e| mlc_files::error("write", stream, e))?)
}

/// Writes to standard error, in vain if that is closed or full.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The first of notes that differ by what is in backquotes alone, with how many others there are.
fn grouped<'n>(notes: impl IntoIterator<Item = &'n String>) -> Vec<String> {
    let kind = |note: &str| note.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut kinds: IndexMap<String, (&String, usize)> = IndexMap::new();
    for note in notes {
        kinds.entry(kind(note)).or_insert((note, 0)).1 += 1;
    }
    let told = |(note, count): &(&String, usize)| match count - 1 {
        0 => note.to_string(),
        1 => format!("{note} (so is one more; `--verbose` names it)"),
        more => format!("{note} (so are {more} more; `--verbose` names them)"),
    };
    kinds.values().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::{escaped, grouped};

    #[test]
    fn what_a_terminal_obeys_is_escaped_but_for_colours() {
        let text = "a\tü\n\x1b[1;31mb\x1b[0m\x1b[2J\r\u{202e}\x1b[";
        assert_eq!(escaped(text, true), "a\tü\n\x1b[1;31mb\x1b[0m\\u{1b}[2J\\r\\u{202e}\\u{1b}[");
        assert_eq!(escaped("\x1b[31mb", false), "\\u{1b}[31mb");
        assert_eq!(escaped("plain\n", false), "plain\n");
    }

    #[test]
    fn notes_that_differ_by_names_are_told_once() {
        let notes = ["node `a` is odd", "it is late", "node `b` is odd", "node `c` is `d`"];
        let notes = notes.map(String::from);
        let one = "node `a` is odd (so is one more; `--verbose` names it)";
        assert_eq!(grouped(&notes), [one, "it is late", "node `c` is `d`"]);
        let many = ["`a`", "`b`", "`c`"].map(String::from);
        assert_eq!(grouped(&many), ["`a` (so are 2 more; `--verbose` names them)"]);
    }
}
