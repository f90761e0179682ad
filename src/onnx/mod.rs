//! ONNX in and out.
