//! Import in stages: values that decide what a node is, and that only a run computes.
//!
//! Where a node asks for elements that are not known, the program that computes them can be run, and the model imported
//! again with the answer. Equal answers give the same import up to that question, so questions are counted, not named.

use super::import::{Imported, Importing, Reading, import_as};
use super::import_error::ImportError;
use super::raw::RawModel;
use mlc_dsl::ir::{Program, Tensor};
use mlc_dsl::library::Library;
use std::collections::BTreeMap;

/// The answers so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<usize, Vec<Option<Tensor>>>);

/// A value that must be known before the rest of a model can be imported.
#[derive(Debug)]
pub struct Asked {
    /// Computes the value: its only output.
    pub program: Program,
    /// The error if there is no answer.
    pub error: ImportError,
    pub(super) step: usize,
}

/// How far an import came.
#[derive(Debug)]
pub enum Stage {
    /// To the end.
    Done(Box<Imported>),
    /// To a question.
    Asks(Box<Asked>),
}

/// A model in two parts, before a node that asks for what only a run computes.
#[derive(Debug)]
pub struct Cut {
    /// Computes what the rest reads.
    pub program: Program,
    /// The rest; its inputs are results of the program, and inputs of the model.
    pub rest: RawModel,
    pub(super) error: ImportError,
}

/// How far the import of a part came.
#[derive(Debug)]
pub enum Part {
    /// To the end, or to a question of the first node.
    Whole(Stage),
    /// To a question of a later node.
    Cut(Box<Cut>),
}

impl Answers {
    /// Answers a question; `None` if its value must stay unknown, as it is too large.
    pub fn add(&mut self, asked: &Asked, answer: Option<Tensor>) {
        self.0.entry(asked.step).or_default().push(answer);
    }

    pub(super) fn get(&self, step: usize, question: usize) -> Option<&Option<Tensor>> {
        self.0.get(&step)?.get(question)
    }

    pub(super) fn count(&self, step: usize) -> usize {
        self.0.get(&step).map_or(0, Vec::len)
    }
}

/// Reads a model as a program, as [`import`](super::import()) does, with the values that were computed so far.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_stage(
    raw: &RawModel,
    library: &Library,
    answers: &Answers,
) -> Result<Stage, ImportError> {
    match import_as(raw.clone(), library, &of(answers, false))? {
        Importing::Done(imported) => Ok(Stage::Done(imported)),
        Importing::Asks(asked) => Ok(Stage::Asks(asked)),
        Importing::Cut(cut) => Err(cut.error),
    }
}

/// The same, but the model is cut where a question comes up, so that what is before it is computed once. The extents of
/// the inputs must be numbers for that.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_part(
    raw: &RawModel,
    library: &Library,
    answers: &Answers,
) -> Result<Part, ImportError> {
    Ok(match import_as(raw.clone(), library, &of(answers, true))? {
        Importing::Done(imported) => Part::Whole(Stage::Done(imported)),
        Importing::Asks(asked) => Part::Whole(Stage::Asks(asked)),
        Importing::Cut(cut) => Part::Cut(cut),
    })
}

fn of(answers: &Answers, cuts: bool) -> Reading<'static> {
    Reading { answers: answers.clone(), cuts, ..Reading::default() }
}
