//! NumPy archives.
