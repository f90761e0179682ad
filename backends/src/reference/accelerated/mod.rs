//! Accelerated evaluation of code: the same values as its plain evaluation, bit by bit where nothing is regrouped.

pub mod affine;
pub mod contract;
pub mod rows;
pub mod tables;
