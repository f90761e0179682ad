//! The backends.
