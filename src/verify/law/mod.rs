//! A law as the verifier reads it.

pub(crate) mod facts;
pub(crate) mod instance;
pub(crate) mod schema_instances;
mod sides;
