//! Optimises machine-learning graphs by equality saturation, runs them, and writes them as ONNX.
//!
//! ```text
//!  model.onnx ──┐                                          ┌── report(), explain()   what became cheaper, and why
//!               ├── Model ── Optimizer ── OptimizedModel ──┼── write("out.onnx")     for an ONNX runtime
//! model.rules ──┘   │                                      └── session() ── Session ── run(arrays by name) ── Outputs
//!                   └── session(): as it was read
//! ```
//!
//! A [`Model`] is read, an [`Optimizer`] makes an [`OptimizedModel`] of it, and a [`Session`] runs either:
//!
//! ```
//! use mlc_rewrite::{Model, Optimizer, ndarray::Array4};
//!
//! # fn main() -> Result<(), mlc_rewrite::Error> {
//! let model = Model::read("examples/squeezenet1_1.onnx")?;
//! let session = Optimizer::new().target("cpu").optimize(&model)?.session()?;
//! let image = Array4::<f32>::zeros((1, 3, 224, 224));
//! let outputs = session.run([("input", image)])?;
//! println!("{:?}", outputs.array::<f32>("logits")?);
//! # Ok(())
//! # }
//! ```
//!
//! Optimising explores all programs that verified laws make equal to the model, in an e-graph; extracts the cheapest one for
//! a target; and compares the result with the model on several sets of inputs before it returns it. The command line
//! does the same by the same code.
//!
//! Runnable examples, each `cargo run --release --example NAME`:
//!
//! | | |
//! |---|---|
//! | `optimize` | optimise a file, and see what that gained |
//! | `run` | run a model on arrays of `ndarray` |
//! | `layer` | a layer of one's own from a text: run, recognised where it is written out, written as ONNX |
//! | `why` | what became of the nodes of a model, and by which laws |
//! | `compare` | a model against what was made of it: values, times, nodes |
//!
//! Everything that fails gives an [`Error`], which says what is wrong, where, and what to do about it. The modules behind this
//! page (the stages of the pipeline, ONNX, the verifier, the command line) are public for the tools of the project; see
//! `ARCHITECTURE.md`.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod aim;
pub mod as_read;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod book;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod calibrate;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod conformance;
#[doc(hidden)]
pub mod derivation;
mod device;
mod error;
#[doc(hidden)]
pub mod explain;
#[doc(hidden)]
pub mod infer;
#[doc(hidden)]
pub mod kernel_times;
#[doc(hidden)]
pub mod lawtest;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod names;
mod onnx_target;
mod optimizer;
#[doc(hidden)]
pub mod pipeline;
#[doc(hidden)]
pub mod profile;
mod recurrences;
mod session;
#[doc(hidden)]
pub mod show;
mod stack;
#[doc(hidden)]
pub mod stdlib;
#[doc(hidden)]
pub mod svg;
mod threads;

pub use device::Device;
pub use error::{Error, ErrorKind};
pub use explain::{Answer, Comparison, Explanation, WhyNot};
pub use mlc_backends::arrays::{AnyArray, ArrayError, ArrayMut, Element, Plain};
pub use mlc_backends::ndarray;
pub use mlc_dsl::ir::DType;
pub use mlc_onnx::ExternalData;
pub use mlc_weights::Metadata;
pub use model::{Model, Reader, TensorInfo};
pub use optimizer::{OptimizedModel, Optimizer};
pub use pipeline::Report;
pub use pipeline::options::Objective;
pub use pipeline::options::{Fp, Options, Solver};
pub use session::{Binding, Outputs, Session};

/// The code in the documents is compiled, and run where it is a program.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/library.md")]
    struct Library;
}
