//! Autotuning: what a launch sequence could be computed with instead, checked against it on the device and timed there.
//!
//! Never uses what was not run on the same inputs with agreeing results, and never falls back silently: every choice is a note.

pub(crate) mod comparison;
pub(crate) mod launch_mode;
pub(crate) mod libraries;
pub(crate) mod library_candidate;
mod tile_variants;
