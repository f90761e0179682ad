//! `list operators | layers | laws | targets | onnx`: lists declarations by name.

use super::common::{Common, Findings};
use super::options::model;
use crate::names;
use clap::ValueEnum;
use mlc_dsl::library::{CallKind, LawOrigin, Library};
use serde::Serialize;
use std::fmt::Write;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What to list.
    #[arg(value_enum)]
    what: ListKind,
    /// Only names that this is a part of.
    part: Option<String>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Kinds of declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListKind {
    /// Primitives and procedures, which have a meaning of their own.
    Operators,
    /// Definitions, which are compositions.
    Layers,
    /// Equations that may be applied.
    Laws,
    /// Places that a result can be made for.
    Targets,
    /// Operators of ONNX that are read.
    Onnx,
}

/// One line; what `--json` holds a list of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct ListedItem {
    name: String,
    /// Error class of a law, operator sets of an ONNX operator; empty for the rest.
    detail: String,
    /// The first line of its documentation.
    doc: String,
    /// The text that declares it.
    file: String,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[], &[])?;
    let library = model::library(&args.common)?;
    let all = entries(&library, args.what);
    let wanted = |e: &&ListedItem| args.part.as_ref().is_none_or(|p| e.name.contains(p.as_str()));
    let found: Vec<&ListedItem> = all.iter().filter(wanted).collect();
    if let (Some(part), true) = (&args.part, found.is_empty()) {
        let known: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        let hint = names::hint(part, &known, "leave the name out to see all");
        anyhow::bail!("no name of these has `{part}` in it{hint}");
    }
    args.common.report(&found)?;
    args.common.screen.print(&table(&found))?;
    Ok(Findings::Nothing)
}

fn entries(library: &Library, what: ListKind) -> Vec<ListedItem> {
    let entry = |name: &str, detail: String, doc: &[String], source: u32| ListedItem {
        name: name.to_string(),
        detail,
        doc: doc.first().cloned().unwrap_or_default(),
        file: library.sources.get(source as usize).map_or(String::new(), |s| s.name.clone()),
    };
    let calls = |layers: bool| {
        let of_kind =
            library.calls.iter().filter(move |c| matches!(c.kind, CallKind::Def(_)) == layers);
        of_kind.map(|c| entry(&c.name, String::new(), &c.doc, c.source.file)).collect::<Vec<_>>()
    };
    let mut out = match what {
        ListKind::Operators => calls(false),
        ListKind::Layers => calls(true),
        ListKind::Laws => {
            let rules = library.laws.iter().filter(|l| l.origin == LawOrigin::Rule);
            rules
                .map(|l| entry(l.declared_name(), l.error.to_string(), &l.doc, l.source.file))
                .collect()
        }
        ListKind::Targets => library
            .targets
            .iter()
            .map(|t| entry(&t.name, format!("{} kernels", t.kernels.len()), &t.doc, t.source))
            .collect(),
        ListKind::Onnx => library
            .onnx
            .iter()
            .map(|o| {
                let domain = if o.decl.domain.is_empty() { "" } else { &o.decl.domain };
                let dot = if domain.is_empty() { "" } else { "." };
                let until = o.decl.until.map(|u| format!(" to {u}")).unwrap_or_default();
                let name = format!("{domain}{dot}{}", o.name);
                entry(&name, format!("since {}{until}", o.decl.since), &[], o.source.file)
            })
            .collect(),
    };
    out.sort();
    out.dedup();
    out
}

fn table(entries: &[&ListedItem]) -> String {
    let width = |f: fn(&ListedItem) -> usize| entries.iter().map(|e| f(e)).max().unwrap_or(0);
    let (names, details) = (width(|e| e.name.chars().count()), width(|e| e.detail.chars().count()));
    let mut out = String::new();
    for e in entries {
        let line = format!("{:<names$}  {:<details$}  {}", e.name, e.detail, e.doc);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}
