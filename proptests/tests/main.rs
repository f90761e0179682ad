//! The properties as one program: linked once, the shipped texts read once. `cuda` is a program of its own, since `scripts/gpu-check` takes it
//! to machines with a device.

mod cuda_code;
mod explain;
mod filetests;
mod identities;
mod mutants;
mod nodes;
mod operators;
mod programs;
mod spellings;
mod stacks;
mod traps;
mod values;
