//! Kernel bodies in terms of a level's vector operations, with the functions that dispatch to the machine's level.

pub mod f16;
pub mod functions;
pub mod fused_rows;
pub mod lane_gather;
pub mod norms;
pub mod operands;
pub mod peak;
pub mod planes;
pub mod pools;
pub mod rows;
pub mod strided_rows;
pub mod tiles;
pub mod transpose;
pub mod window_rows;
pub mod winograd;
