//! Resolved `architecture` items: how a file of weights is read as a model.
//!
//! The expressions are positional, as those of `onnx` items; the reader of such files interprets them.

use crate::diagnostics::span::SourceSpan;
use crate::expr::{Expr, Name};
use crate::library::CallId;
use serde::{Deserialize, Serialize};

/// `architecture name(options) of format "name", … steps`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Architecture {
    /// Unique among architectures of a format.
    pub name: Name,
    /// The lines of its documentation.
    pub doc: Vec<String>,
    /// Options with their defaults.
    pub options: Vec<(Name, Expr)>,
    /// The format of the files.
    pub format: Name,
    /// What such files call it.
    pub names: Vec<String>,
    /// What is computed, in this order.
    pub steps: Vec<Steps>,
    /// Which source text, and where in it.
    pub source: SourceSpan,
}

/// `let a = …`, or `each i in n let a = …, b = …`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// The name of the count, and how often the steps are repeated.
    pub each: Option<(Name, Expr)>,
    /// What is named, and what it stands for.
    pub steps: Vec<(Target, Expr)>,
}

/// What a step names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Target {
    /// Names for the steps that follow; several take apart a tuple.
    Names(Vec<Name>),
    /// An output, whose name may mention counts in braces.
    Output(String),
}

/// A type of tensors in files, and the operator that decodes their bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredType {
    /// The format of the files.
    pub format: Name,
    /// The type's number there.
    pub number: i64,
    /// What decodes `u8[..r, b, bytes]` to `f32[..r, n]`.
    pub call: CallId,
}

/// What is asked of the file, rather than computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileFunction {
    /// `metadata(key, default)`: a number, a word or a list of the file's description.
    Metadata,
    /// `tensor(name, shape, default)`: a stored tensor, decoded.
    Tensor,
    /// `rows(name, shape, places)`: rows of a stored tensor, decoded after they are chosen.
    Rows,
    /// `input(name, dtype, shape)`: an input of the model.
    Input,
    /// `symbol(name)`: an extent that inputs decide.
    Symbol,
}

impl FileFunction {
    /// All of them with their words, and how many arguments they take.
    pub const ALL: [(FileFunction, &'static str, std::ops::RangeInclusive<usize>); 5] = [
        (FileFunction::Metadata, "metadata", 1..=2),
        (FileFunction::Tensor, "tensor", 2..=3),
        (FileFunction::Rows, "rows", 3..=3),
        (FileFunction::Input, "input", 3..=3),
        (FileFunction::Symbol, "symbol", 1..=1),
    ];

    /// The one of a word.
    pub fn named(word: &str) -> Option<FileFunction> {
        FileFunction::ALL.iter().find(|f| f.1 == word).map(|f| f.0)
    }
}
