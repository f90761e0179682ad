//! Import and export of ONNX.

mod bodies;
mod bodies_of_run;
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
mod flow;
pub mod graphdiff;
mod import;
mod import_apply;
mod import_bind;
mod import_broadcast;
mod import_call;
mod import_control;
mod import_einsum;
mod import_error;
mod import_facts;
mod import_hoist;
mod import_interface;
mod import_items;
mod import_kept;
mod import_lists;
mod import_needs;
mod import_read;
mod import_reuse;
mod import_scan;
mod import_stage;
mod import_supposed;
mod import_value;
mod import_wait;
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
mod raw_sparse;
mod raw_stored;
mod raw_tensor;
mod read;
mod read_as;
mod read_facts;
mod scan_step;
mod scans;
mod write;
mod write_data;

pub use bodies::{Body, Outer, bodies};
pub use defaults::without_defaults;
pub use export::{
    ExportError, export, export_counted, export_plan, export_plan_counted, faults, unwritten,
    unwritten_operators,
};
pub use export_types::NEWEST_OPSET;
pub use export_write::Counts;
pub use flow::{Flow, flow};
pub use import::{Imported, Loops, ModelInfo, import, import_keeping};
pub use import_control::has_loops;
pub use import_error::ImportError;
pub use import_items::{NodeItems, declared_opaque, undeclared};
pub use import_stage::{
    Answers, Asked, Control, Cut, Part, Questions, Stage, import_nodes, import_part, import_stage,
};
pub use opaque::{Opaque, may_stay, reads};
pub use printable::{domains, named, printable};
pub use raw::{Container, RawAttr, RawDim, RawGraph, RawModel, RawNode, RawType, RawValueInfo};
pub use raw_error::OnnxError;
pub use raw_stored::read_value;
pub use read::{parse_onnx, read_onnx};
pub use read_as::{ReadAs, ReadNode, read_as};
pub use read_facts::ReadFacts;
pub use scan_step::{RecurrenceStep, recurrence_step};
pub use scans::{rename, spelled_out};
pub use write::{ExternalData, to_bytes, write_onnx, write_onnx_with};

#[cfg(test)]
mod raw_tests;
