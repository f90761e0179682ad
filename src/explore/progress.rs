//! Progress reports of long calls.
//!
//! Never influences the result: a watcher receives stages and the part of them that is done, and returns nothing.

use std::sync::{Mutex, PoisonError};

/// Who watches: gets the stage, and the part of it that is done at least, if that is known.
type Watcher = Box<dyn Fn(&str, Option<f64>) + Send + Sync>;

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Lets `watcher` watch what this process does from now on; `None` ends that.
pub fn watch(watcher: Option<Watcher>) {
    *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
}

/// Reports how much of a stage is done: between 0 and 1, `None` if unknown.
pub fn at(stage: &str, done: Option<f64>) {
    if let Some(watcher) = WATCHER.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        watcher(stage, done);
    }
}
