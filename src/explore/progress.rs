//! Progress reports of long calls, which is also where they end if they are told to.
//!
//! Never influences the result: a watcher receives stages and the part of them that is done, and returns nothing; who is told to end has no result.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Who watches: gets the stage, and the part of it that is done at least, if that is known.
type Watcher = Box<dyn Fn(&str, Option<f64>) + Send + Sync>;

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Says whether a call is to end; whoever has a clone may tell it.
#[derive(Clone, Debug, Default)]
pub struct End(Arc<AtomicBool>);

impl End {
    /// Tells the calls that run under it to end.
    pub fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a call unwinds with that was told to end.
#[derive(Debug)]
pub struct Ended;

thread_local! {
    static END: RefCell<Option<End>> = const { RefCell::new(None) };
}

/// Does work that ends when it is told to: at its next report it unwinds with [`Ended`], which is no panic that is printed.
pub fn under<R>(end: Option<End>, work: impl FnOnce() -> R) -> R {
    struct Before(Option<End>);
    impl Drop for Before {
        fn drop(&mut self) {
            END.set(self.0.take());
        }
    }
    let _before = Before(END.replace(end));
    work()
}

/// What this thread's work runs under, for a thread that does a part of it.
pub fn end() -> Option<End> {
    END.with_borrow(Clone::clone)
}

/// True if this thread's work is told to end.
pub fn is_told_to_end() -> bool {
    END.with_borrow(|end| end.as_ref().is_some_and(|end| end.0.load(Ordering::Relaxed)))
}

/// Lets `watcher` watch what this process does from now on; `None` ends that.
pub fn watch(watcher: Option<Watcher>) {
    *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
}

/// Reports how much of a stage is done: between 0 and 1, `None` if unknown. Does not return if the work is told to end.
pub fn at(stage: &str, done: Option<f64>) {
    if is_told_to_end() {
        resume_unwind(Box::new(Ended));
    }
    if let Some(watcher) = WATCHER.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        watcher(stage, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn what_is_told_to_end_ends_at_its_next_report() {
        let end = End::default();
        let work = || {
            at("first", None);
            end.tell();
            assert!(is_told_to_end());
            at("second", None);
            unreachable!("the second report ends it");
        };
        let done = catch_unwind(AssertUnwindSafe(|| under(Some(end.clone()), work)));
        assert!(done.expect_err("it unwinds").is::<Ended>());
        assert!(!is_told_to_end(), "what comes after is not under it");
        at("third", None);
    }
}
