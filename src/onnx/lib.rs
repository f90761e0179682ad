//! Import and export of ONNX.

mod export;
pub mod graphdiff;
mod import;
mod opaque;
mod proto;
mod raw;
mod read;
mod scans;
mod subgraphs;
mod write;

pub use export::defaults::without_defaults;
pub use export::nodes::Counts;
pub use export::printable::{domains, named, printable};
pub use export::types::NEWEST_OPSET;
pub use export::{
    ExportError, export, export_counted, export_plan, export_plan_counted, faults, unwritten,
    unwritten_operators,
};
pub use import::control::flow::{Flow, flow};
pub use import::control::has_loops;
pub use import::data_dependent::{
    DeferredControl, ImportStage, KnownValues, MissingValues, ModelCut, PartialImport,
    ValueRequests, import_and_cut, import_nodes, import_with_values,
};
pub use import::error::ImportError;
pub use import::items::{NodeItems, declared_opaque, undeclared};
pub use import::read_as::{ReadAs, ReadNode, read_as, read_each};
pub use import::read_facts::ReadFacts;
pub use import::value::origin;
pub use import::{Imported, Loops, ModelInfo, import, import_with_opaque_nodes};
pub use opaque::{Opaque, may_stay, reads};
pub use raw::error::OnnxError;
pub use raw::{Container, RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
pub use read::stored::read_value;
pub use read::{parse_onnx, read_onnx};
pub use scans::step::{RecurrenceStep, recurrence_step};
pub use scans::{rename, spelled_out};
pub use subgraphs::{OuterValue, SubgraphModel, subgraphs};
pub use write::{ExternalData, to_bytes, write_onnx, write_onnx_with};
