//! Import in stages: values that decide what a node is, and that only a run computes.
//!
//! A node that asks for elements which are not known waits, and so do those that read its results: what does not depend on each
//! other is asked at once. The program that computes the answers can be run, and the model imported again with them.

pub(crate) mod kept;
pub(crate) mod supposed;
pub(crate) mod wait;

use super::error::ImportError;
use super::items::NodeItems;
use super::{Imported, Importing, Reading, import_as};
use crate::raw::{RawModel, RawNode};
use mlc_dsl::ir::{DType, Extent, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::shape_values::{Known, KnownElement, MAX_ELEMENTS};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where a question came up: the first result of a node of the main graph, and how many nodes of its bodies were read before.
pub(crate) type Place = (String, usize);

/// The answers so far: equal ones give the same import up to the next question of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers(BTreeMap<Place, Vec<Option<Answer>>>);

/// Whole numbers that a symbol may stand for. None and one often mean something of their own, and an end beyond all others is no extent.
const EXTENTS: std::ops::Range<usize> = 2..1 << 31;

/// What a question is answered by.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Elements(Tensor),
    /// A whole number in a tensor of one element, which a symbol stands for.
    Extent {
        dtype: DType,
        shape: Vec<usize>,
        symbol: String,
    },
}

/// Questions that came up together.
#[derive(Debug, Default)]
pub struct Questions {
    pub(crate) all: Vec<(Place, Source)>,
    /// True if elements of inputs decide an answer, not only their extents.
    pub of_data: bool,
}

/// Where an answer comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is known; `None` if a value must stay unknown, as it is too large to decide anything.
    Known(Option<Tensor>),
    /// It is the next result of the program.
    Computed,
}

/// Values that must be known before the rest of a model can be imported.
#[derive(Debug)]
pub struct Asked {
    /// Computes them: its outputs.
    pub program: Program,
    /// What they answer.
    pub questions: Questions,
    /// The error if there is no answer.
    pub error: ImportError,
}

/// How far an import came.
#[derive(Debug)]
pub enum Stage {
    /// To the end.
    Done(Box<Imported>),
    /// To questions.
    Asks(Box<Asked>),
}

/// A model in two parts, the nodes that wait for what only a run computes and those that do not.
#[derive(Debug)]
pub struct Cut {
    /// Computes what the rest reads, and then the answers.
    pub program: Program,
    /// What of its outputs the rest reads; those behind are the answers.
    pub passed: usize,
    /// What they answer.
    pub questions: Questions,
    /// Control flow that comes between the program and the rest.
    pub controls: Vec<Control>,
    /// The rest; its inputs are results of the program and of the control flow, and inputs of the model.
    pub rest: RawModel,
    pub(crate) error: ImportError,
}

/// A `Loop` or an `If` whose body must be run by itself: its own data decide what it is, or it is too long to be written out.
#[derive(Debug)]
pub struct Control {
    /// The node.
    pub node: RawNode,
    /// Values that it reads by name and that are known.
    pub constants: HashMap<String, Tensor>,
    /// Its bodies: of an `If` that of its condition and the other one. Their own inputs come first, then what they read of the graphs
    /// around them; element types and extents of these are those of a run.
    pub bodies: Vec<RawModel>,
    /// True if data decide what its body computes.
    pub of_data: bool,
}

/// How far the import of a part came.
#[derive(Debug)]
pub enum Part {
    /// To the end, or to questions that extents decide.
    Whole(Stage),
    /// To questions that a run decides.
    Cut(Box<Cut>),
}

impl Answers {
    /// Answers questions by what their program computes.
    pub fn add(&mut self, questions: &Questions, computed: Vec<Tensor>) {
        let mut computed = computed.into_iter();
        for (place, source) in &questions.all {
            let answer = match source {
                Source::Known(answer) => answer.clone(),
                Source::Computed => computed.next().filter(|t| t.len() <= MAX_ELEMENTS),
            };
            let answer = answer.map(Answer::Elements);
            self.0.entry(place.clone()).or_default().push(answer);
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the answers to nodes that a graph does not have.
    pub fn keep_those_of(&mut self, raw: &RawModel) {
        let nodes = raw.graph.nodes.iter();
        let names: HashSet<&str> = nodes.flat_map(|n| &n.outputs).map(String::as_str).collect();
        self.0.retain(|(name, _), _| names.contains(name.as_str()));
    }

    /// The same but for whole numbers that may be extents of some elements, for which symbols stand; and the symbols with their values.
    pub fn opened(&self) -> (Answers, Vec<(String, usize)>) {
        let mut symbols = vec![];
        let mut all = self.clone();
        for ((node, step), answers) in &mut all.0 {
            for (i, answer) in answers.iter_mut().enumerate() {
                let Some(Answer::Elements(t)) = answer else { continue };
                let is_one = t.len() == 1 && t.dtype().is_int();
                let n = is_one.then(|| usize::try_from(t.get_i128(0)).ok()).flatten();
                let Some(n) = n.filter(|n| EXTENTS.contains(n)) else { continue };
                let symbol = format!("asked {i} by {node} {step}");
                symbols.push((symbol.clone(), n));
                let (dtype, shape) = (t.dtype(), t.shape().to_vec());
                *answer = Some(Answer::Extent { dtype, shape, symbol });
            }
        }
        (all, symbols)
    }

    /// The symbols that stand for answers.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().filter_map(|answer| match answer {
            Some(Answer::Extent { symbol, .. }) => Some(symbol.as_str()),
            Some(Answer::Elements(_)) | None => None,
        })
    }

    pub(crate) fn get(&self, place: &Place, question: usize) -> Option<Known> {
        match self.0.get(place)?.get(question)?.as_ref()? {
            Answer::Elements(t) => Known::of(t),
            Answer::Extent { dtype, shape, symbol } => {
                let elements = vec![KnownElement::Int(Extent::sym(symbol))];
                Some(Known { dtype: *dtype, shape: shape.clone(), elements })
            }
        }
    }

    pub(crate) fn count(&self, place: &Place) -> usize {
        self.0.get(place).map_or(0, Vec::len)
    }
}

/// Reads a model as a program, as [`import`](crate::import()) does, with the values that were computed so far.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_stage(
    raw: &RawModel,
    library: &Library,
    answers: &Answers,
) -> Result<Stage, ImportError> {
    staged(raw, library, &of(answers, false))
}

/// The same of nodes of a model whose declarations are known.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_nodes(
    raw: &RawModel,
    library: &Library,
    answers: &Answers,
    items: &NodeItems<'_>,
) -> Result<Stage, ImportError> {
    let answers = answers.clone();
    let waits = true;
    staged(raw, library, &Reading { answers, items: Some(items), waits, ..Reading::default() })
}

fn staged(raw: &RawModel, library: &Library, reading: &Reading<'_>) -> Result<Stage, ImportError> {
    match import_as(raw.clone(), library, reading)? {
        Importing::Done(imported) => Ok(Stage::Done(imported)),
        Importing::Asks(asked) => Ok(Stage::Asks(asked)),
        Importing::Cut(cut) => Err(cut.error),
    }
}

/// The same, but the model is cut where questions come up, so that what is before them is computed once, and the bodies of
/// control flow that asks are models of their own. Of open extents those of the model's inputs pass a cut.
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
    Reading { answers: answers.clone(), waits: true, cuts, ..Reading::default() }
}
