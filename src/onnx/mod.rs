//! ONNX in and out.

mod proto;
mod raw;
mod raw_budget;
mod raw_error;
pub(crate) mod raw_files;
mod raw_inline;
mod raw_order;
mod raw_tensor;
mod read;
mod write;

pub use raw::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
pub use raw_error::OnnxError;
pub use read::{parse_onnx, read_onnx};
pub use write::{ExternalData, write_onnx, write_onnx_with};

#[cfg(test)]
mod raw_tests;
