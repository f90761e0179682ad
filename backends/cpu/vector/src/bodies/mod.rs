//! The bodies, each in terms of the operations that a level defines, with the functions that choose the level of the machine.

pub mod functions;
pub mod halves;
pub mod lines;
pub mod norms;
pub mod operands;
pub mod peak;
pub mod picks;
pub mod planes;
pub mod pools;
pub mod rows;
pub mod strided_rows;
pub mod tiles;
pub mod transpose;
pub mod window_rows;
pub mod winograd;
