//! The CPU backend against the reference interpreter.

mod argsort;
mod attention;
mod blocks;
mod channels_last;
mod element_types;
mod epilogues;
mod extents;
mod graphs;
mod int8;
mod meanings;
mod non_max_suppression;
mod normalisation;
mod operators;
mod order;
mod plans;
mod pools;
mod random;
mod roi_align;
mod row_copies;
mod scatter;
mod support;
