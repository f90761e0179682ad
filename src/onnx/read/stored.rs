//! Values in files of their own, as test cases hold them: tensors, sequences and optionals.

use super::data_files::DataFiles;
use crate::proto::TensorProto;
use crate::raw::Container;
use crate::raw::error::OnnxError;
use crate::raw::tensor;
use mlc_dsl::ir::Tensor;
use mlc_dsl::shown;
use prost::Message;
use std::path::Path;

/// `SequenceProto` of tensors.
#[derive(Clone, PartialEq, Message)]
struct StoredSequence {
    #[prost(message, repeated, tag = "3")]
    tensors: Vec<TensorProto>,
}

/// `OptionalProto` of a tensor or a sequence.
#[derive(Clone, PartialEq, Message)]
struct StoredOptional {
    #[prost(message, optional, tag = "3")]
    tensor: Option<TensorProto>,
    #[prost(message, optional, tag = "5")]
    sequence: Option<StoredSequence>,
}

/// Reads a file that holds one value, such as the `input_0.pb` of a test case: a tensor called `name`, or the elements of
/// a sequence, called `name[0]`, `name[1]`, …
///
/// # Errors
/// The file cannot be read, or holds no such value, or one of a type that is not supported.
pub fn read_value(
    path: &Path,
    name: &str,
    containers: &[Container],
) -> Result<Vec<(String, Tensor)>, OnnxError> {
    let bytes = mlc_files::map(path).map_err(OnnxError::io("open", path))?;
    let malformed =
        |e: prost::DecodeError| OnnxError::Malformed { reason: e.to_string() }.in_file(path);
    let stored = match containers {
        [] => StoredOptional {
            tensor: Some(TensorProto::decode(bytes).map_err(malformed)?),
            sequence: None,
        },
        [Container::Sequence, ..] => StoredOptional {
            tensor: None,
            sequence: Some(StoredSequence::decode(bytes).map_err(malformed)?),
        },
        [Container::Optional, ..] => StoredOptional::decode(bytes).map_err(malformed)?,
        [Container::Map(_), ..] => {
            return Err(OnnxError::unsupported(shown(name), "a map").in_file(path));
        }
    };
    let all = stored.sequence.map_or(vec![], |s| s.tensors).into_iter().enumerate();
    let named = all.map(|(i, t)| (format!("{name}[{i}]"), t));
    let named = stored.tensor.map(|t| (name.to_string(), t)).into_iter().chain(named);
    let read = |(name, t): (String, TensorProto)| {
        let tensor = tensor::tensor(t, &mut DataFiles::new(None), "the tensor");
        Ok((name, tensor.map_err(|e| e.in_file(path))?))
    };
    named.map(read).collect()
}
