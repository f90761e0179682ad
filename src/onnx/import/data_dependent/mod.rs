//! Data-dependent import: nodes whose meaning depends on values that only a run computes.
//!
//! A node that needs unknown elements is deferred, with all nodes that read its results; independent requests are made together.
//! A program that computes the values is returned; it is run elsewhere, and the model is imported again with them.

pub(crate) mod deferral;
pub(crate) mod passthrough;
pub(crate) mod symbolic_values;

use super::error::ImportError;
use super::items::NodeItems;
use super::{ImportOptions, ImportOutcome, Imported, import_with_options};
use crate::raw::{RawModel, RawNode};
use mlc_dsl::ir::{DType, Extent, Program, Tensor};
use mlc_dsl::library::Library;
use mlc_dsl::shape_values::{Known, KnownElement, MAX_ELEMENTS};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where a value is requested: the first result of a node of the main graph, and how many nodes of its subgraphs were read before.
pub(crate) type RequestSite = (String, usize);

/// Values computed so far: equal ones give the same import up to a node's next request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownValues(BTreeMap<RequestSite, Vec<Option<KnownValue>>>);

/// Whole numbers that a symbol may stand for. None and one often mean something of their own, and an end beyond all others is no extent.
const EXTENTS: std::ops::Range<usize> = 2..1 << 31;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
enum KnownValue {
    Elements(Tensor),
    /// A whole number in a tensor of one element, which a symbol stands for.
    Extent {
        dtype: DType,
        shape: Vec<usize>,
        symbol: String,
    },
}

/// Values that are requested together.
#[derive(Debug, Default)]
pub struct ValueRequests {
    pub(crate) all: Vec<(RequestSite, ValueSource)>,
    /// True if some value depends on elements of inputs, not only on their extents.
    pub data_dependent: bool,
}

/// Where a requested value comes from.
#[derive(Debug)]
pub(crate) enum ValueSource {
    /// It is known; `None` if a value must stay unknown, as it is too large to decide anything.
    Known(Option<Tensor>),
    /// It is the next result of the program.
    Computed,
}

/// An import that stopped at values which must be computed first.
#[derive(Debug)]
pub struct MissingValues {
    /// Computes them: its outputs.
    pub program: Program,
    /// What they answer.
    pub requests: ValueRequests,
    /// The error if there is no answer.
    pub error: ImportError,
}

/// How far an import came.
#[derive(Debug)]
pub enum ImportStage {
    /// To the end.
    Done(Box<Imported>),
    /// To nodes that need values.
    NeedsValues(Box<MissingValues>),
}

/// A model cut in two: the nodes that need values of a run, and those before them.
#[derive(Debug)]
pub struct ModelCut {
    /// Computes what the rest reads, and then the answers.
    pub program: Program,
    /// What of its outputs the rest reads; those behind are the answers.
    pub passed: usize,
    /// What they answer.
    pub requests: ValueRequests,
    /// Control flow that comes between the program and the rest.
    pub controls: Vec<DeferredControl>,
    /// The rest; its inputs are results of the program and of the control flow, and inputs of the model.
    pub rest: RawModel,
    pub(crate) error: ImportError,
}

/// A `Loop` or an `If` whose subgraphs must be run by themselves: they are data-dependent, or too long to be unrolled.
#[derive(Debug)]
pub struct DeferredControl {
    /// The node.
    pub node: RawNode,
    /// Values that it reads by name and that are known.
    pub constants: HashMap<String, Tensor>,
    /// Its bodies: of an `If` that of its condition and the other one. Their own inputs come first, then what they read of the graphs
    /// around them; element types and extents of these are those of a run.
    pub subgraphs: Vec<RawModel>,
    /// True if data decide what its body computes.
    pub data_dependent: bool,
}

/// How far the import of a part came.
#[derive(Debug)]
pub enum PartialImport {
    /// To the end, or to requests that extents decide.
    Whole(ImportStage),
    /// To requests that a run decides.
    Cut(Box<ModelCut>),
}

impl KnownValues {
    /// Adds the values that the program of some requests computed.
    pub fn add(&mut self, requests: &ValueRequests, computed: Vec<Tensor>) {
        let mut computed = computed.into_iter();
        for (place, source) in &requests.all {
            let answer = match source {
                ValueSource::Known(answer) => answer.clone(),
                ValueSource::Computed => computed.next().filter(|t| t.len() <= MAX_ELEMENTS),
            };
            let answer = answer.map(KnownValue::Elements);
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
    pub fn opened(&self) -> (KnownValues, Vec<(String, usize)>) {
        let mut symbols = vec![];
        let mut all = self.clone();
        for ((node, step), known_values) in &mut all.0 {
            for (i, answer) in known_values.iter_mut().enumerate() {
                let Some(KnownValue::Elements(t)) = answer else { continue };
                let is_one = t.len() == 1 && t.dtype().is_int();
                let n = is_one.then(|| usize::try_from(t.get_i128(0)).ok()).flatten();
                let Some(n) = n.filter(|n| EXTENTS.contains(n)) else { continue };
                let symbol = format!("asked {i} by {node} {step}");
                symbols.push((symbol.clone(), n));
                let (dtype, shape) = (t.dtype(), t.shape().to_vec());
                *answer = Some(KnownValue::Extent { dtype, shape, symbol });
            }
        }
        (all, symbols)
    }

    /// The symbols that stand for answers.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().filter_map(|answer| match answer {
            Some(KnownValue::Extent { symbol, .. }) => Some(symbol.as_str()),
            Some(KnownValue::Elements(_)) | None => None,
        })
    }

    pub(crate) fn get(&self, place: &RequestSite, question: usize) -> Option<Known> {
        match self.0.get(place)?.get(question)?.as_ref()? {
            KnownValue::Elements(t) => Known::of(t),
            KnownValue::Extent { dtype, shape, symbol } => {
                let elements = vec![KnownElement::Int(Extent::sym(symbol))];
                Some(Known { dtype: *dtype, shape: shape.clone(), elements })
            }
        }
    }

    pub(crate) fn count(&self, place: &RequestSite) -> usize {
        self.0.get(place).map_or(0, Vec::len)
    }
}

/// Reads a model as a program, as [`import`](crate::import()) does, with the values that were computed so far.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_with_values(
    raw: &RawModel,
    library: &Library,
    known_values: &KnownValues,
) -> Result<ImportStage, ImportError> {
    staged(raw, library, &of(known_values, false))
}

/// The same of nodes of a model whose declarations are known.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_nodes(
    raw: &RawModel,
    library: &Library,
    known_values: &KnownValues,
    items: &NodeItems<'_>,
) -> Result<ImportStage, ImportError> {
    let known_values = known_values.clone();
    let waits = true;
    staged(
        raw,
        library,
        &ImportOptions { known_values, items: Some(items), waits, ..ImportOptions::default() },
    )
}

fn staged(
    raw: &RawModel,
    library: &Library,
    options: &ImportOptions<'_>,
) -> Result<ImportStage, ImportError> {
    match import_with_options(raw.clone(), library, options)? {
        ImportOutcome::Done(imported) => Ok(ImportStage::Done(imported)),
        ImportOutcome::NeedsValues(asked) => Ok(ImportStage::NeedsValues(asked)),
        ImportOutcome::Cut(cut) => Err(cut.error),
    }
}

/// The same, but the model is cut where questions come up, so that what is before them is computed once, and the bodies of
/// control flow that asks are models of their own. Of open extents those of the model's inputs pass a cut.
///
/// # Errors
/// A node that no value would make readable.
pub fn import_and_cut(
    raw: &RawModel,
    library: &Library,
    known_values: &KnownValues,
) -> Result<PartialImport, ImportError> {
    Ok(match import_with_options(raw.clone(), library, &of(known_values, true))? {
        ImportOutcome::Done(imported) => PartialImport::Whole(ImportStage::Done(imported)),
        ImportOutcome::NeedsValues(asked) => PartialImport::Whole(ImportStage::NeedsValues(asked)),
        ImportOutcome::Cut(cut) => PartialImport::Cut(cut),
    })
}

fn of(known_values: &KnownValues, cuts: bool) -> ImportOptions<'static> {
    ImportOptions {
        known_values: known_values.clone(),
        waits: true,
        cuts,
        ..ImportOptions::default()
    }
}
