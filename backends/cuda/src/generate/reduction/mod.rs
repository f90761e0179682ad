//! Schedules of reductions: split over blocks, vectorised, windowed with a halo, and scans.

pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod vectorized;
pub(crate) mod windows;
