//! Names that a shell completes: of laws, operators, layers and targets as they are shipped, and of the nodes of the model on the
//! command line.
//!
//! What cannot be read has no names: a shell has nowhere to show an error.

use crate::{names, stdlib};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use mlc_dsl::library::LawOrigin;
use mlc_onnx::read_onnx;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The variable by which a shell asks, with its own name.
pub const VARIABLE: &str = "MLC_COMPLETE";

/// Those names that begin with what is typed, each with what is said of it.
fn matching<'n>(
    current: &OsStr,
    names: impl IntoIterator<Item = (&'n str, String)>,
) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let found: BTreeMap<&str, String> =
        names.into_iter().filter(|(name, _)| name.starts_with(&*typed)).collect();
    let candidate = |(name, about): (&str, String)| {
        CompletionCandidate::new(name).help((!about.is_empty()).then(|| about.into()))
    };
    found.into_iter().map(candidate).collect()
}

/// Names of laws.
pub fn laws(current: &OsStr) -> Vec<CompletionCandidate> {
    let library = stdlib::shipped();
    let all = library.laws.iter().filter(|l| l.origin != LawOrigin::Reverse);
    matching(current, all.map(|l| (l.declared_name(), names::sentence(&l.doc))))
}

/// Names of laws, and what else a model may be planned with.
pub fn gains(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = crate::explain::GAINS.iter().map(|w| (*w, String::new()));
    let mut out = matching(current, words);
    out.extend(laws(current));
    out
}

/// Names of targets.
pub fn targets(current: &OsStr) -> Vec<CompletionCandidate> {
    let library = stdlib::shipped();
    matching(current, library.targets.iter().map(|t| (&*t.name, names::sentence(&t.doc))))
}

/// Names of laws, operators and layers.
pub fn declarations(current: &OsStr) -> Vec<CompletionCandidate> {
    let library = stdlib::shipped();
    let calls = library.calls.iter().map(|c| (&*c.name, names::sentence(&c.doc)));
    let mut out = laws(current);
    let known: Vec<_> = out.iter().map(|c| c.get_value().to_os_string()).collect();
    let more = matching(current, calls);
    out.extend(more.into_iter().filter(|c| !known.contains(&c.get_value().to_os_string())));
    out
}

/// The same, and files.
pub fn models_and_declarations(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut out = PathCompleter::file().complete(current);
    // Without a letter there would be thousands.
    if !current.is_empty() {
        out.extend(declarations(current));
    }
    out
}

/// Names of the nodes of the model that the command line names.
pub fn nodes(current: &OsStr) -> Vec<CompletionCandidate> {
    let given = std::env::args_os().skip(1).map(PathBuf::from);
    let mut models = given.filter(|p| p.extension().is_some_and(|e| e == "onnx") && p.is_file());
    let Some(Ok(model)) = models.next().map(|p| read_onnx(&p)) else { return vec![] };
    let nodes = model.graph.nodes.iter().filter(|n| !n.name.is_empty());
    matching(current, nodes.map(|n| (n.name.as_str(), n.op_type.clone())))
}
