//! ONNX in and out: what operators read as, computed by the reference; that what is written reads back
//! to the same; and how faults are reported.
//!
//! Models are built here, operator by operator; expectations follow ONNX's own documentation.

mod contrib;
mod control;
mod extremes;
mod graphs;
mod images;
mod ml;
mod open_extents;
mod operators;
mod recurrent;
mod scatter;
mod sizes;
mod support;
mod types;
