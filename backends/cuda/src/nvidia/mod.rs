//! NVIDIA devices: the driver and the compiler of kernels, both opened at run time.

mod blas;
mod compiled;
mod cubins;
mod device;
mod dnn;
mod driver_extensions;
mod libraries;
mod library;
pub mod nvrtc;
mod queue;
mod search;
mod staging;

pub use device::Nvidia;
