//! The tests of the crate as one program: linked once, the shipped texts read once for most of it. Those that measure the memory of
//! their process are programs of their own (`Cargo.toml`).

mod aimed;
mod answers;
mod book;
mod calibrate;
mod cli;
mod commutation_table;
mod docs;
mod dynamic_axes;
mod exact;
mod examples;
mod explore;
mod fuzz_scripts;
mod generated;
mod guard;
mod lawtest;
mod layers;
mod library;
mod lsp;
mod models;
mod npz;
mod objectives;
mod onnx_import;
mod onnx_raw;
mod plans;
mod shared_cases;
mod tidy;
mod two_models;
mod verifier;
mod weights;
