//! Files of weights: GGUF, and folders of `config.json` and safetensors.
//!
//! Such a file describes a model in keys and values, and holds its tensors by name; what is computed with them it does
//! not say. Tensors stay in the mapped file. Every malformed byte is an error with its place.

mod folder;
mod gguf;

use bytes::Bytes;
use mlc_dsl::ir::{DType, FileRange};
use mlc_dsl::{shown, told};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use folder::{read_folder, weights_folder};
pub use gguf::{is_gguf, read_gguf};

/// A file of weights that was read.
#[derive(Clone, Debug)]
pub struct WeightFile {
    /// What `architecture` items call the format: `gguf` or `safetensors`.
    pub format: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the file calls its architecture; the first that is known counts.
    pub architectures: Vec<String>,
    /// What the file says of the model; parts of nested objects by names with dots.
    pub metadata: BTreeMap<String, Metadata>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, StoredTensor>,
}

/// A value of the description.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of real numbers.
    Floats(Vec<f64>),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of truth values.
    Bools(Vec<bool>),
}

/// A tensor as it lies in its file.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// What its bytes are.
    pub kind: StoredKind,
    /// Extents, row-major, of elements.
    pub shape: Vec<usize>,
    /// The bytes from its first one on; in GGUF up to the end of the file, since only its type says how many it has.
    data: Bytes,
    range: Arc<FileRange>,
}

/// What the bytes of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredKind {
    /// Elements.
    Elements(DType),
    /// What the format has that number for.
    Number(u32),
}

impl StoredTensor {
    /// Its first `length` bytes.
    ///
    /// # Errors
    /// The file has fewer.
    pub fn bytes(&self, name: &str, length: Option<usize>) -> Result<Bytes, WeightsError> {
        let have = self.data.len();
        match length.filter(|n| *n <= have) {
            Some(length) => Ok(self.data.slice(..length)),
            None => {
                let needs = length
                    .map_or("more bytes than can be addressed".into(), |n| format!("{n} bytes"));
                let reason = format!(
                    "it needs {needs} from byte {} on, and the file has {have}",
                    self.range.offset
                );
                Err(WeightsError::of_tensor(&self.range.path, name, reason)
                    .help("the file is cut off or damaged: fetch it again"))
            }
        }
    }

    /// Where it lies.
    pub fn range(&self) -> &FileRange {
        &self.range
    }
}

/// A file of weights that cannot be read. As text: the file, the place, the reason.
#[derive(Debug, thiserror::Error)]
#[error("{}: {place}: {reason}", told(&path.display().to_string()))]
pub struct WeightsError {
    path: PathBuf,
    place: String,
    reason: String,
    help: String,
}

impl WeightsError {
    /// An error at a place of a file.
    pub fn new(path: &Path, place: impl Into<String>, reason: impl Into<String>) -> WeightsError {
        let help = "the file is damaged, or of another format: fetch or convert it again".into();
        WeightsError { path: path.into(), place: place.into(), reason: reason.into(), help }
    }

    /// The same of a tensor.
    pub fn of_tensor(path: &Path, name: &str, reason: impl Into<String>) -> WeightsError {
        WeightsError::new(path, format!("tensor `{}`", shown(name)), reason)
    }

    /// The same with what can be done about it.
    pub fn help(mut self, help: impl Into<String>) -> WeightsError {
        self.help = help.into();
        self
    }

    /// The file and the part of it.
    pub fn place(&self) -> String {
        format!("{}: {}", told(&self.path.display().to_string()), self.place)
    }

    /// What can be done about it.
    pub fn advice(&self) -> &str {
        &self.help
    }
}
