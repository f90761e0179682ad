//! NVIDIA devices: the driver and the compiler of kernels, both opened at run time.

mod blas;
mod compiled;
mod cubins;
mod device;
mod dnn;
mod library;
mod newer;
pub mod nvrtc;
mod products;
mod queue;
mod search;
mod staging;

pub use device::Nvidia;
