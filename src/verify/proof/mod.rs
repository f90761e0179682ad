//! What holds for all values, without samples.

pub(crate) mod every_size;
pub(crate) mod identity_testing;
pub(crate) mod open_extents;
mod prime_field;
pub(crate) mod symbolic;
