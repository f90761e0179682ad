//! `list operators | layers | laws | targets | onnx`: lists declarations by name.

use super::common::{Common, Findings};
use super::options::model;
use crate::cli::completing;
use crate::names;
use clap::ValueEnum;
use clap_complete::ArgValueCompleter;
use mlc_dsl::library::{CallKind, LawOrigin, Library};
use serde::Serialize;
use std::fmt::Write;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// What to list.
    #[arg(value_enum)]
    what: ListKind,
    /// Only those whose name, or whose documentation, this is a part of.
    #[arg(add = ArgValueCompleter::new(completing::declarations))]
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

/// What `--json` holds.
#[derive(Serialize)]
struct Listed<'a> {
    items: &'a [&'a ListedItem],
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct ListedItem {
    name: String,
    /// Error class of a law, operator sets of an ONNX operator; empty for the rest.
    detail: String,
    /// The first sentence of its documentation.
    doc: String,
    /// All of it.
    #[serde(skip)]
    documentation: String,
    /// The text that declares it.
    file: String,
}

/// Runs the verb.
pub fn run(mut args: Args) -> anyhow::Result<Findings> {
    args.common.begin(&[], &[])?;
    let library = model::library(&args.common)?;
    let all = entries(&library, args.what);
    let found: Vec<&ListedItem> = match &args.part {
        None => all.iter().collect(),
        Some(part) => {
            let (named, others): (Vec<_>, Vec<_>) =
                all.iter().partition(|e| e.name.contains(part.as_str()));
            let lower = part.to_lowercase();
            let told = others.into_iter().filter(|e| e.documentation.contains(&lower));
            named.into_iter().chain(told).collect()
        }
    };
    if let (Some(part), true) = (&args.part, found.is_empty()) {
        let known: Vec<&str> = all.iter().map(|e| e.name.as_str()).collect();
        let hint = names::hint(part, &known, "leave the name out to see all");
        anyhow::bail!("no name of these has `{part}` in it, and no documentation{hint}");
    }
    args.common.report(&Listed { items: &found })?;
    args.common.screen.print(&table(&found))?;
    Ok(Findings::Nothing)
}

fn entries(library: &Library, what: ListKind) -> Vec<ListedItem> {
    let entry = |name: &str, detail: String, doc: &[String], source: u32| ListedItem {
        name: name.to_string(),
        detail,
        doc: names::sentence(doc),
        documentation: doc.join(" ").to_lowercase(),
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
