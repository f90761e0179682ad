//! The reader and the printer of `.rules` texts.

mod diagnostics;
mod examples;
mod hostile;
mod random;

use mlc_dsl::diagnostics::render;
use mlc_dsl::syntax::ast::File;
use mlc_dsl::syntax::{parse, print_file};

/// Reads a text that has no mistakes.
#[track_caller]
fn read(text: &str) -> File {
    let (file, diags) = parse(text);
    assert!(diags.is_empty(), "{}", render(&diags, "test.rules", text, false));
    file
}

/// Prints and reads back: the same tree, the same text.
#[track_caller]
fn round_trip(file: &File) -> String {
    let printed = print_file(file);
    let again = read(&printed);
    assert_eq!(*file, again, "\n{printed}");
    assert_eq!(printed, print_file(&again));
    printed
}

fn snapshots() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}
