//! Code that is generated for CUDA devices, run by the emulator and compiled by NVRTC.

mod attention;
mod layers;
mod layouts;
mod library_convolutions;
mod library_products;
mod merged;
mod models;
mod nvrtc;
mod open_attention;
mod open_extents;
mod random;
mod shapes;
mod small_types;
mod suite;
mod tilings;
mod warpgroups;
