//! Where a question about a node of the model leads: the node of the program that a node or value is read as, or what else reading
//! made of it.

use super::left_out::Makers;
use super::node::NodeStory;
use super::not_fused::NotFused;
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::names;
use mlc_dsl::ir::Program;
use mlc_dsl::shown;
use mlc_onnx::{RawModel, origin};
use serde::Serialize;
use std::collections::BTreeSet;

/// The answer to a question about nodes of a model.
#[derive(Clone, Debug, Serialize)]
pub struct OfNodes<T> {
    /// What reading made of what was asked for, where that is no node of the program.
    pub notes: Vec<String>,
    /// What is known of the nodes that stand for it; nothing where no node does.
    #[serde(flatten)]
    pub answer: Option<T>,
}

impl<T> OfNodes<T> {
    fn told(&self, answer: impl FnOnce(&T) -> String) -> String {
        let notes: String = self.notes.iter().map(|n| format!("{n}\n")).collect();
        notes + &self.answer.as_ref().map(answer).unwrap_or_default()
    }
}

impl OfNodes<NodeStory> {
    /// For people; `all` leaves nothing out.
    pub fn human(&self, all: bool) -> String {
        self.told(|story| story.human(all))
    }
}

impl OfNodes<NotFused> {
    /// For people.
    pub fn human(&self) -> String {
        self.told(NotFused::human)
    }
}

/// Where to look.
pub(crate) struct Place {
    /// The node of the program as read; `None` if it has none.
    pub node: Option<String>,
    /// What became of the node of the model, if it is not that one.
    pub told: Vec<String>,
}

/// Finds a node of a model in the program that it is read as, whose nodes all have names.
///
/// # Errors
/// The model has no such node or value.
pub(crate) fn place(program: &Program, model: &Model, at: &str) -> Result<Place, Error> {
    let known: BTreeSet<&str> = program.nodes.iter().map(|n| n.origin.as_str()).collect();
    if known.contains(at) && !at.is_empty() {
        return Ok(Place { node: Some(at.to_string()), told: vec![] });
    }
    let raw = model.raw()?;
    let is_known = |n: &str| known.contains(n);
    if let Some(place) = raw.as_ref().and_then(|raw| of_value(raw, at, &is_known)) {
        return Ok(place);
    }
    let read = raw.as_ref().and_then(|raw| mlc_onnx::read_as(raw, &model.library, at));
    let (Some(read), Some(raw)) = (read, &raw) else {
        let mut all: Vec<&str> = known.iter().copied().filter(|n| !n.is_empty()).collect();
        let nodes = raw.iter().flat_map(|raw| &raw.graph.nodes);
        let names = nodes.flat_map(|n| std::iter::once(&n.name).chain(&n.outputs));
        all.extend(names.map(String::as_str).filter(|n| !n.is_empty()));
        let message = format!("the model has no node `{}`", shown(at));
        let help = names::did_you_mean(at, &all, "`mlc-rewrite show MODEL` names its nodes");
        return Err(Error::new(ErrorKind::Setting, message).or_help(help));
    };
    let (label, results) = read.map_err(|e| model.refused(e))?;
    let makers = Makers::new(raw);
    let mut place = Place { node: None, told: vec![] };
    for (result, read) in results {
        let Some(node) = makers.of(&result) else { continue };
        let became = makers.became(node, &read, &is_known);
        place.told.push(format!(
            "{label} is not in the program that is read: `{}` is {} ({})",
            shown(&result),
            became.is,
            became.step
        ));
        place.node = place.node.or(became.node);
    }
    Ok(place)
}

/// A value of the file that has another name than its node, or that no node yields.
fn of_value(raw: &RawModel, at: &str, is_known: &dyn Fn(&str) -> bool) -> Option<Place> {
    let graph = &raw.graph;
    if graph.nodes.iter().any(|n| n.name == at) {
        return None;
    }
    if let Some(node) = Makers::new(raw).of(at).map(origin).filter(|n| is_known(n)) {
        let told = vec![format!("`{}` is a result of `{}`", shown(at), shown(node))];
        return Some(Place { node: Some(node.to_string()), told });
    }
    let readers = graph.nodes.iter().filter(|n| n.inputs.iter().any(|i| i == at));
    let readers: Vec<String> = readers.map(|n| format!("`{}`", shown(origin(n)))).collect();
    let read = if readers.is_empty() { "no node".into() } else { readers.join(", ") };
    let is_input = graph.inputs.iter().any(|v| v.name == at);
    let told = match (is_input, graph.initializers.get(at)) {
        (true, _) => format!("`{}` is an input of the model, read by {read}", shown(at)),
        (false, Some(t)) => format!(
            "`{}` is a constant of the file, {}{:?}, read by {read}",
            shown(at),
            t.dtype(),
            t.shape()
        ),
        (false, None) => return None,
    };
    Some(Place { node: None, told: vec![told] })
}
