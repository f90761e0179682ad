//! `diff A.onnx B.onnx`: compares two graphs.

use super::common::{Common, Findings};
use super::options::model::library;
use super::terminal::Screen;
use crate::model::file_kind::{Content, content};
use mlc_dsl::diagnostics::message_text::bytes;
use mlc_onnx::RawModel;
use mlc_onnx::graphdiff::{Constants, Difference, Operators, compare};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The first model, an ONNX file; `-` is standard input.
    a: PathBuf,
    /// The second model.
    b: PathBuf,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Names that are printed of one kind, unless all are asked for.
const SHOWN: usize = 5;

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[("A", &args.a), ("B", &args.b)], &[])?;
    let [a, b] = [graph(&args.a)?, graph(&args.b)?];
    let library = library(&args.common)?;
    let found = compare(&a, &b, &library);
    args.common.report(&found)?;
    args.common.screen.say(&human(&found, &args.common.screen))?;
    Ok(if found.is_none() { Findings::Nothing } else { Findings::Something })
}

fn graph(path: &Path) -> anyhow::Result<RawModel> {
    match content(path)? {
        Content::Onnx(raw) => Ok(*raw),
        Content::Text(_) | Content::Weights(_) => anyhow::bail!(
            "{} is no ONNX model\nhelp: `show` prints models as texts, which any tool compares",
            path.display()
        ),
    }
}

fn human(d: &Difference, screen: &Screen) -> String {
    let paint = |code: &str, text: String| match screen.colored() {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text,
    };
    let removed = |text: String| paint("31", text);
    let added = |text: String| paint("32", text);
    let mut out = String::new();
    if d.is_none() {
        let _ = writeln!(out, "the graphs are the same: {} nodes", d.same);
        return out;
    }
    for (what, a, b) in &d.interface {
        let _ =
            writeln!(out, "{what}\n  {}\n  {}", removed(format!("- {a}")), added(format!("+ {b}")));
    }
    let _ = writeln!(
        out,
        "{} nodes compute the same in both, {} do the same to other values",
        d.same, d.kept
    );
    for (name, o) in &d.operators {
        let Operators { before, after, .. } = o;
        let _ = writeln!(out, "{name}  {before} -> {after}");
        let most = if screen.verbose() { usize::MAX } else { SHOWN };
        let mut list = |sign: &str, names: &[String], paint: &dyn Fn(String) -> String| {
            for n in names.iter().take(most) {
                let _ = writeln!(out, "  {}", paint(format!("{sign} {n}")));
            }
            if names.len() > most {
                let more = format!("{sign} and {} more; -v prints all", names.len() - most);
                let _ = writeln!(out, "  {}", paint(more));
            }
        };
        list("-", &o.removed, &removed);
        list("+", &o.added, &added);
        let changed: Vec<String> =
            o.changed.iter().map(|(n, what)| format!("{n}: {what}")).collect();
        list("~", &changed, &|text| paint("33", text));
    }
    let alone = |c: Constants| format!("{} of {}", c.count, bytes(c.bytes));
    let [a, b] = d.constants;
    if [a, b] != [Constants::default(); 2] {
        let _ = writeln!(
            out,
            "constants of one alone\n  {}\n  {}",
            removed(format!("- {}", alone(a))),
            added(format!("+ {}", alone(b)))
        );
    }
    out
}
