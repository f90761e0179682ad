//! The extension module of the Python package `mlc_rewrite`: functions on handles. The classes that people use are Python
//! (`python/src/mlc_rewrite`); here arguments become those of the library, results become Python's, and the interpreter is left free while
//! the library works.

mod arrays;
mod command;
mod compared;
mod dtypes;
mod errors;
mod handles;
mod models;
mod module;
mod numpy;
mod optimized;
mod outputs;
mod rules;
mod sessions;
mod settings;
mod streams;
mod waiting;
