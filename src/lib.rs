//! mlc-rewrite: optimises machine-learning graphs by equality saturation.

pub mod cli;
pub mod constants;
pub mod egraphs;
pub mod entry;
pub mod explain;
pub mod explore;
pub mod lawtest;
pub mod npz;
pub mod onnx;
pub mod pipeline;
pub mod prices;
pub mod repeat;
pub mod samples;
pub mod selfcheck;
pub mod show;
pub mod stdlib;
pub mod verify;
