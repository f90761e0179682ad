//! Sessions on a driver that records every call, as one program. `cuda_nvidia` is a program of its own, since `scripts/gpu-check` takes it to
//! machines with a device.

mod cuda_autotune;
mod cuda_products;
mod cuda_session;
mod recorder;
