//! mlc-rewrite: optimises machine-learning graphs by equality saturation.

pub mod npz;
pub mod onnx;
