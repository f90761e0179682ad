//! What a model's file holds: an ONNX model, a `.rules` text or weights. Nothing is made of it here.

use crate::error::Error;
use crate::stdlib;
use mlc_onnx::{RawModel, parse_onnx, read_onnx};
use mlc_weights::{WeightFile, is_gguf, read_folder, read_gguf, weights_folder};
use std::path::Path;

/// What a file holds.
pub(crate) enum Content {
    /// An ONNX model.
    Onnx(Box<RawModel>),
    /// A `.rules` text.
    Text(String),
    /// Weights, and a description that an architecture reads.
    Weights(Box<WeightFile>),
}

/// Reads a file; what standard input holds shows in its bytes.
pub(crate) fn content(path: &Path) -> Result<Content, Error> {
    let raw = match mlc_files::is_input_stream(path) {
        true => {
            let bytes = mlc_files::map(path).map_err(|e| mlc_files::error("read", path, e))?;
            if is_gguf(&bytes) {
                return Ok(Content::Weights(Box::new(read_gguf(&bytes, path)?)));
            }
            if is_text(&bytes) {
                return Ok(Content::Text(String::from_utf8_lossy(&bytes).into_owned()));
            }
            parse_onnx(bytes, None)
        }
        false if path.extension().is_some_and(|e| e == "rules") => {
            return Ok(Content::Text(stdlib::read_text(path)?));
        }
        false => {
            if let Some(folder) = weights_folder(path) {
                return Ok(Content::Weights(Box::new(read_folder(&folder)?)));
            }
            let is_named = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
            if is_named || begins_as_gguf(path) {
                let bytes = mlc_files::map(path).map_err(|e| mlc_files::error("read", path, e))?;
                return Ok(Content::Weights(Box::new(read_gguf(&bytes, path)?)));
            }
            read_onnx(path)
        }
    };
    Ok(Content::Onnx(Box::new(raw?)))
}

/// True of a file of weights under another name.
fn begins_as_gguf(path: &Path) -> bool {
    mlc_files::readable(path).is_ok() && mlc_files::map(path).is_ok_and(|bytes| is_gguf(&bytes))
}

/// True if these are the bytes of a text, and of no ONNX file: that begins with a control character.
fn is_text(bytes: &[u8]) -> bool {
    let control = |b: &u8| b.is_ascii_control() && !b.is_ascii_whitespace();
    !bytes.is_empty() && std::str::from_utf8(bytes).is_ok() && !bytes.iter().any(control)
}
