//! The CPU backend against the reference interpreter.

mod attention;
mod blocks;
mod boxes;
mod channels_last;
mod element_types;
mod epilogues;
mod extents;
mod graphs;
mod int8;
mod lines;
mod meanings;
mod normalisation;
mod operators;
mod order;
mod places;
mod plans;
mod pools;
mod random;
mod regions;
mod scatter;
mod support;
