//! Reading and importing bytes as an ONNX model never panics.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mlc_rewrite::stdlib;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(raw) = mlc_onnx::parse_onnx(Bytes::copy_from_slice(bytes), None) {
        let _ = mlc_onnx::import(raw, &stdlib::shipped());
    }
});
