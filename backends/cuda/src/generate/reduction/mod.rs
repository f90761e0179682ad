//! Loop shapes of reductions: by blocks, in vectors, over windows, and running.

pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod vectorized;
pub(crate) mod windows;
