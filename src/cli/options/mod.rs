//! Arguments that several verbs have, and what is made of them.

pub(crate) mod model;
pub(crate) mod place;
pub(crate) mod run_inputs;
pub(crate) mod selfcheck;
pub(crate) mod shapes;
mod values;
