//! Compiles translation units in parallel, those that the cache lacks.

use super::{cubins, nvrtc};
use mlc_backends::device::DriverError;

/// What these units are compiled to, in their order.
///
/// # Errors
/// As [`nvrtc::compile`], of the first unit that has one.
pub fn compile_cached(units: &[String], arch: &str) -> Result<Vec<Vec<u8>>, DriverError> {
    let keys: Vec<Vec<u8>> = units.iter().map(|u| nvrtc::key(u, arch)).collect::<Result<_, _>>()?;
    let known: Vec<Option<Vec<u8>>> = keys.iter().map(|key| cubins::find(key)).collect();
    let fresh: Vec<usize> = (0..units.len()).filter(|&i| known[i].is_none()).collect();
    let sources: Vec<&str> = fresh.iter().map(|&i| units[i].as_str()).collect();
    let compiled = nvrtc::compile_all(&sources, arch)?;
    let pairs = fresh.iter().zip(&compiled);
    cubins::keep_all(pairs.map(|(&i, code)| (keys[i].as_slice(), code.as_slice())));
    let mut compiled = compiled.into_iter();
    Ok(known.into_iter().filter_map(|code| code.or_else(|| compiled.next())).collect())
}
