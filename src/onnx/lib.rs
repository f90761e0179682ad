//! Import and export of ONNX.

mod data_names;
mod defaults;
mod export;
mod export_core;
mod export_forms;
mod export_graph;
mod export_kernels;
mod export_match;
mod export_rules;
mod export_shape;
mod export_sink;
mod export_types;
mod export_write;
pub mod graphdiff;
mod import;
mod import_apply;
mod import_bind;
mod import_call;
mod import_error;
mod import_read;
mod opaque;
mod packed;
mod printable;
mod proto;
mod raw;
mod raw_budget;
mod raw_error;
mod raw_files;
mod raw_inline;
mod raw_order;
mod raw_tensor;
mod read;
mod write;
mod write_data;

pub use defaults::without_defaults;
pub use export::{ExportError, export, export_plan, faults, unwritten};
pub use export_types::NEWEST_OPSET;
pub use import::{Imported, ModelInfo, import, import_keeping, undeclared};
pub use import_error::ImportError;
pub use opaque::Opaque;
pub use printable::{domains, named, printable};
pub use raw::{RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
pub use raw_error::OnnxError;
pub use raw_tensor::read_tensor;
pub use read::{parse_onnx, read_onnx};
pub use write::{ExternalData, to_bytes, write_onnx, write_onnx_with};

#[cfg(test)]
mod raw_tests;
