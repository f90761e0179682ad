//! NVIDIA devices: the driver and the compiler of kernels, both opened at run time.

mod cubins;
mod device;
mod library;
pub mod nvrtc;
mod staging;

pub use device::Nvidia;
