//! The CUDA backend: every kernel of a plan becomes CUDA C++, compiled for the device that runs it.
//!
//! The generator needs no device and no toolkit. Never decides what is equal; what it cannot compute is an error that names it.

mod driver;
pub mod generate;
mod launch;

pub use driver::{Address, Driver, DriverError, Module};
pub use launch::{Argument, FAULT_WORDS, Launch, Launches, Place, Port};

/// What every translation unit begins with.
pub const PRELUDE: &str = concat!(include_str!("prelude.cuh"), include_str!("functions.cuh"));
