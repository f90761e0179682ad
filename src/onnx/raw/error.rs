//! Errors in ONNX files: what is wrong, where, and what to do about it.

use mlc_dsl::{shown, told};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a model was not read or written.
#[derive(Debug, Error)]
pub enum OnnxError {
    /// The system refused.
    #[error("cannot {action} `{}`: {source}", told(&path.display().to_string()))]
    Io {
        /// What was tried, as `open`.
        action: &'static str,
        /// The file that was to be read or written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An error inside the file `path`.
    #[error("{}: {source}", told(&path.display().to_string()))]
    InFile {
        /// The file that was read.
        path: PathBuf,
        /// The error.
        source: Box<OnnxError>,
    },
    /// The bytes are no ONNX model.
    #[error("not a readable ONNX model: {}", told(reason))]
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// Something required is absent or out of its range.
    #[error("{}: {}", told(place), told(reason))]
    Invalid {
        /// The node, tensor or graph.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A limit that protects the memory is exceeded.
    #[error("{} exceeds the limit of {limit} MiB", told(what))]
    TooLarge {
        /// What would be too large.
        what: String,
        /// In MiB.
        limit: u64,
        /// What to do.
        help: &'static str,
    },
    /// Graphs or functions are nested too deeply.
    #[error("{}: nested more than {limit} levels deep", told(place))]
    TooDeep {
        /// The node or graph.
        place: String,
        /// The deepest nesting that is read.
        limit: usize,
    },
    /// An element type that this program cannot hold.
    #[error("{}: element type {} is not supported", told(place), told(type_name))]
    UnsupportedType {
        /// The tensor or value.
        place: String,
        /// The type's name in ONNX.
        type_name: String,
    },
    /// A part of ONNX that this program does not know.
    #[error("{}: {} is not supported", told(place), told(feature))]
    Unsupported {
        /// The node or graph.
        place: String,
        /// What it uses.
        feature: String,
    },
    /// The elements of a tensor do not fit its declaration.
    #[error("{}: {}", told(tensor), told(reason))]
    BadTensor {
        /// The tensor in question.
        tensor: String,
        /// What is wrong.
        reason: String,
    },
    /// Elements that lie in another file cannot be had from there.
    #[error("{}: external data in `{}`: {}", told(tensor), shown(location), told(reason))]
    ExternalData {
        /// The tensor in question.
        tensor: String,
        /// The file, as the model calls it.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// One name has two definitions.
    #[error("`{}` is defined twice: {} defines it again", shown(name), told(place))]
    Duplicate {
        /// The value that is defined twice.
        name: String,
        /// The second definition.
        place: String,
    },
    /// A name has no definition.
    #[error("{} reads `{}`, which nothing defines before it", told(place), shown(name))]
    Undefined {
        /// The value that is missing.
        name: String,
        /// The node or graph that reads it.
        place: String,
    },
    /// Nodes wait for each other.
    #[error("nodes depend on each other in a cycle: {}", told(&nodes.join(" -> ")))]
    Cycle {
        /// The nodes in order of dependence.
        nodes: Vec<String>,
    },
    /// A function calls itself.
    #[error("functions call each other without end: {}", shown(&functions.join(" -> ")))]
    RecursiveFunction {
        /// The functions in calling order.
        functions: Vec<String>,
    },
}

impl OnnxError {
    /// What the user can do about it.
    pub fn help(&self) -> Option<String> {
        let text = match self {
            OnnxError::InFile { source, .. } => return source.help(),
            OnnxError::Io { source, .. } => mlc_files::help(source).unwrap_or(
                "check that the file and its disk can be read and written by other programs",
            ),
            OnnxError::Malformed { .. } => {
                "the file may be truncated or of another format; `onnx.checker` can tell, and \
                 exporting or downloading it again usually helps"
            }
            OnnxError::Invalid { .. } => {
                "`onnx.checker.check_model` gives details; export the model again"
            }
            OnnxError::TooLarge { help, .. } => help,
            OnnxError::TooDeep { .. } => "flatten the nested control flow before exporting",
            OnnxError::UnsupportedType { .. } => {
                "convert the tensor to a float, integer or bool type of 8 to 64 bits"
            }
            OnnxError::Unsupported { .. } => "export the model without it",
            OnnxError::BadTensor { .. } => "export the model again: the stored tensor is damaged",
            OnnxError::ExternalData { .. } => {
                "keep the model and its data files together in one folder, with no links that \
                 leave it, and name them relative to it"
            }
            OnnxError::Duplicate { .. } => "rename one of the two: each name has one definition",
            OnnxError::Undefined { .. } => "define the value as input, initializer or node output",
            OnnxError::Cycle { .. } => {
                "break the cycle: a graph computes each value once, in order"
            }
            OnnxError::RecursiveFunction { .. } => "unroll the recursion before exporting",
        };
        Some(text.to_string())
    }

    /// The error without the file around it.
    pub fn root(&self) -> &OnnxError {
        match self {
            OnnxError::InFile { source, .. } => source.root(),
            other => other,
        }
    }

    /// The error with the file it is in, unless it names one already.
    pub(crate) fn in_file(self, path: &Path) -> OnnxError {
        match self {
            OnnxError::Io { .. } | OnnxError::InFile { .. } => self,
            source => OnnxError::InFile { path: path.to_path_buf(), source: Box::new(source) },
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OnnxError {
        move |source| OnnxError::Io { action, path: path.to_path_buf(), source }
    }

    pub(crate) fn invalid(place: impl Into<String>, reason: impl Into<String>) -> OnnxError {
        OnnxError::Invalid { place: place.into(), reason: reason.into() }
    }

    pub(crate) fn unsupported(place: impl Into<String>, feature: impl Into<String>) -> OnnxError {
        OnnxError::Unsupported { place: place.into(), feature: feature.into() }
    }

    pub(crate) fn tensor(tensor: impl Into<String>, reason: impl Into<String>) -> OnnxError {
        OnnxError::BadTensor { tensor: tensor.into(), reason: reason.into() }
    }
}
