//! mlc-rewrite: optimises machine-learning graphs by equality saturation.

pub mod entry;
pub mod explore;
pub mod npz;
pub mod onnx;
pub mod verify;
pub mod prices;
pub mod stdlib;
