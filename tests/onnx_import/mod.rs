//! ONNX in and out: what operators read as, computed by the reference; that what is written reads back
//! to the same; and how faults are reported.
//!
//! Models are built here, operator by operator; expectations follow ONNX's own documentation.

mod branches;
mod contrib;
mod contrib_composed;
mod contrib_experts;
mod contrib_fused;
mod contrib_quantized;
mod contrib_recurrent;
mod control;
mod decided;
mod extremes;
mod graphs;
mod grouped_states;
mod images;
mod integers;
mod invalid;
mod ml;
mod opaque;
mod open_extents;
mod operators;
mod recurrent;
mod reuse;
mod runs_in_parts;
mod scans;
mod scatter;
mod sizes;
mod small_types;
mod strings;
mod support;
mod versions;
mod written;
