//! The names that emitted code has for what it computed, by the blocks that are open: a name ends with its block.

use std::collections::HashMap;
use std::hash::Hash;

/// What open blocks know by name; one block is open from the beginning.
#[derive(Clone)]
pub struct Scopes<K>(Vec<HashMap<K, String>>);

impl<K: Eq + Hash> Scopes<K> {
    /// The outermost block.
    pub fn new() -> Scopes<K> {
        Scopes(vec![HashMap::new()])
    }

    /// Opens a block.
    pub fn open(&mut self) {
        self.0.push(HashMap::new());
    }

    /// Ends the innermost one.
    pub fn close(&mut self) {
        self.0.pop();
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Notes a name in the innermost one.
    pub fn remember(&mut self, known: K, name: &str) {
        let last = self.0.last_mut().expect("a scope is open");
        last.insert(known, name.to_string());
    }

    /// The name of what an open one knows, the innermost first.
    pub fn name_of(&self, known: &K) -> Option<String> {
        self.0.iter().rev().find_map(|s| s.get(known)).cloned()
    }
}
