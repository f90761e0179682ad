//! Reading and importing bytes as an ONNX model never panics.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mlc_dsl::library::Library;
use std::sync::OnceLock;

static LIBRARY: OnceLock<Library> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let library = LIBRARY
        .get_or_init(|| mlc_rewrite::stdlib::load_sound(&[]).expect("the shipped texts are sound"));
    if let Ok(raw) = mlc_onnx::parse_onnx(Bytes::copy_from_slice(bytes), None) {
        let _ = mlc_onnx::import(raw, library);
    }
});
