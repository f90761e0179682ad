//! Accelerated evaluation of code: bitwise the values of plain evaluation, except where sums are regrouped.

pub mod affine;
pub mod contract;
pub mod rows;
pub mod tables;
