//! Functions that are on a device, by name and text: what several sets of extents launch is compiled and loaded once.
//!
//! Never decides that two functions are alike by their names alone.

use crate::buffers::LoadedModule;
use crate::code::Code;
use crate::driver::{Driver, Module};
use mlc_backends::device::DriverError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Bytes of source whose functions stay loaded although no plan that is ready launches them.
pub const CODE_BYTES: usize = 32 << 20;

/// The functions of a plan that is ready, each with the module that it is in.
#[derive(Default)]
pub struct LoadedFunctions(HashMap<String, Arc<LoadedModule>>);

impl LoadedFunctions {
    /// The module of a function.
    pub fn module(&self, function: &str) -> Option<Module> {
        self.0.get(function).map(|loaded| loaded.module)
    }
}

/// A function that is loaded.
struct Entry {
    text: String,
    module: Arc<LoadedModule>,
    /// The number of the last plan that asked for it.
    used: u64,
}

#[derive(Default)]
struct Entries {
    known: HashMap<String, Entry>,
    bytes: usize,
    asked: u64,
}

impl Entries {
    fn insert(&mut self, name: &str, text: &str, module: Arc<LoadedModule>) {
        self.bytes += text.len();
        let entry = Entry { text: text.into(), module, used: self.asked };
        if let Some(other) = self.known.insert(name.into(), entry) {
            self.bytes -= other.text.len();
        }
    }

    /// Forgets what was not asked for the longest, until what is left takes so many bytes; what was asked for last stays.
    fn thin(&mut self, most: usize) {
        if self.bytes <= most {
            return;
        }
        let unused = self.known.iter().filter(|(_, e)| e.used < self.asked);
        let mut unused: Vec<(u64, String)> = unused.map(|(n, e)| (e.used, n.clone())).collect();
        unused.sort_unstable();
        for (_, name) in unused {
            if self.bytes <= most {
                break;
            }
            self.bytes -= self.known.remove(&name).map_or(0, |e| e.text.len());
        }
    }
}

/// The functions of one plan at any extents. A module is unloaded once no function in it is known here or launched anywhere.
pub struct FunctionCache {
    driver: Arc<dyn Driver>,
    most: usize,
    entries: Mutex<Entries>,
}

impl FunctionCache {
    /// Nothing is loaded yet.
    pub fn new(driver: Arc<dyn Driver>, most: usize) -> FunctionCache {
        FunctionCache { driver, most, entries: Mutex::default() }
    }

    /// These functions; those that are not there are compiled and loaded together.
    ///
    /// # Errors
    /// The device refuses.
    pub fn load(&self, code: &Code<'_>) -> Result<LoadedFunctions, DriverError> {
        let mut entries = self.entries.lock().unwrap_or_else(|e| e.into_inner());
        entries.asked += 1;
        let (mut out, mut fresh) = (LoadedFunctions::default(), Code::default());
        let asked = entries.asked;
        for (name, text) in code.functions() {
            match entries.known.get_mut(name).filter(|e| computes_alike(&e.text, text)) {
                Some(entry) => {
                    entry.used = asked;
                    out.0.insert(name.into(), entry.module.clone());
                }
                None => fresh.add(name, text),
            }
        }
        if fresh.functions().next().is_some() {
            let module = Arc::new(LoadedModule::new(&self.driver, &fresh)?);
            for (name, text) in fresh.functions() {
                entries.insert(name, text, module.clone());
                out.0.insert(name.into(), module.clone());
            }
        }
        entries.thin(self.most);
        Ok(out)
    }
}

/// Whether two texts are equal but for their first line, a comment that may name other extents.
fn computes_alike(a: &str, b: &str) -> bool {
    fn rest(text: &str) -> &str {
        match text.split_once('\n') {
            Some((first, rest)) if first.starts_with("//") => rest,
            _ => text,
        }
    }
    rest(a) == rest(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_by_more_than_a_comment() {
        assert!(computes_alike("// f32[3]\nKERNEL(1) f", "// f32[4]\nKERNEL(1) f"));
        assert!(!computes_alike("// f32[3]\nKERNEL(1) f", "// f32[3]\nKERNEL(2) f"));
        assert!(!computes_alike("a\nKERNEL(1) f", "b\nKERNEL(1) f"));
    }
}
