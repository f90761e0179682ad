//! What was held against a file's own operators, for people and programs.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// How the program as read, and what was written of it, was held against the file's operators, one by one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ByNodes {
    /// The sets of extents, in the order they were tried.
    pub sets: Vec<ByNodesSet>,
    /// Sets of extents that the model's size does not allow.
    pub left_out: usize,
    /// Whether what is written was held against them, too, and why not.
    pub written: Option<Result<usize, String>>,
    /// Why nothing was compared; `None` if something was.
    pub not_checked: Option<String>,
}

/// One set of extents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ByNodesSet {
    /// What the symbols were.
    pub extents: BTreeMap<String, i64>,
    /// Elements of all outputs that were compared.
    pub compared: usize,
    /// Why nothing was compared: the file itself is not valid there, or a node cannot be evaluated alone.
    pub unused: Option<String>,
}

impl ByNodes {
    /// One line for people.
    pub fn human(&self) -> String {
        if let Some(why) = &self.not_checked {
            let why = why.lines().next().unwrap_or_default();
            return format!("not held against the file's own operators: {why}");
        }
        let used = self.sets.iter().filter(|s| s.unused.is_none()).count();
        let mut out = match self.sets.iter().all(|s| s.extents.is_empty()) {
            true => "the file's own operators, one by one, agree".to_string(),
            false => {
                format!("the file's own operators, one by one, agree at {used} sets of extents")
            }
        };
        let unused = self.sets.len() - used;
        if unused > 0 {
            let _ = write!(out, ", {unused} at which the file refuses");
        }
        if self.left_out > 0 {
            let _ = write!(out, ", {} left out", self.left_out);
        }
        match &self.written {
            Some(Ok(n)) => drop(write!(out, "; the written file was held against them at {n}")),
            Some(Err(why)) => drop(write!(out, "; the written file was not: {why}")),
            None => {}
        }
        out
    }
}
