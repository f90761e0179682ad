//! NVIDIA devices: the driver and the compiler of kernels, both opened at run time.

mod cubins;
mod device;
mod library;
mod newer;
pub mod nvrtc;
mod queue;
mod staging;

pub use device::Nvidia;
