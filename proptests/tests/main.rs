//! The properties as one program: linked once, the shipped texts read once. `cuda` is a program of its own, since `scripts/gpu-check` takes it
//! to machines with a device.

mod cuda_attention;
mod cuda_layers;
mod cuda_layouts;
mod cuda_library_convolutions;
mod cuda_library_products;
mod cuda_merged;
mod cuda_models;
mod cuda_nvrtc;
mod cuda_random;
mod cuda_shapes;
mod cuda_small_types;
mod cuda_suite;
mod cuda_tilings;
mod cuda_warpgroups;
mod explain;
mod mutants;
mod nodes;
mod operators;
mod programs;
mod spellings;
mod stacks;
mod traps;
mod values;
