//! mlc-rewrite: optimises machine-learning graphs by equality saturation.

pub mod calibrate;
pub mod cli;
pub mod confirm;
pub mod constants;
pub mod costing;
pub mod egraphs;
pub mod entry;
pub mod explain;
pub mod explore;
mod guard;
pub mod lawtest;
pub mod measure;
pub mod npz;
pub mod objective;
pub mod onnx;
pub mod options;
pub mod pipeline;
pub mod profile;
pub mod relevant;
pub mod repeat;
pub mod report;
pub mod samples;
pub mod selfcheck;
pub mod show;
pub mod stdlib;
pub mod verify;
pub mod watch;
