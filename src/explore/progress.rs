//! Progress reports and cooperative cancellation of long calls: a call ends at its next report once it is cancelled.
//!
//! Never influences a result: a watcher only receives stages and the fraction done; a cancelled call has no result.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A watcher: receives the stage and a lower bound of the fraction done, if that is known.
type Watcher = Box<dyn Fn(&str, Option<f64>) + Send + Sync>;

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// A cancellation token; any clone can cancel the calls that run under it.
#[derive(Clone, Debug, Default)]
pub struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    /// Cancels the calls that run under it.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The payload with which a cancelled call unwinds.
#[derive(Debug)]
pub struct Cancelled;

thread_local! {
    static TOKEN: RefCell<Option<CancellationToken>> = const { RefCell::new(None) };
}

/// Runs `work` under a token: once cancelled, it unwinds with [`Cancelled`] at its next report, and no panic is printed.
pub fn with_token<R>(token: Option<CancellationToken>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<CancellationToken>);
    impl Drop for Restore {
        fn drop(&mut self) {
            TOKEN.set(self.0.take());
        }
    }
    let _restore = Restore(TOKEN.replace(token));
    work()
}

/// The token of this thread's work, to be passed on to threads that do a part of it.
pub fn token() -> Option<CancellationToken> {
    TOKEN.with_borrow(Clone::clone)
}

/// True if this thread's work is cancelled.
pub fn is_cancelled() -> bool {
    TOKEN.with_borrow(|token| token.as_ref().is_some_and(|token| token.0.load(Ordering::Relaxed)))
}

/// Sets the watcher of this process; `None` removes it.
pub fn set_watcher(watcher: Option<Watcher>) {
    *WATCHER.lock().unwrap_or_else(PoisonError::into_inner) = watcher;
}

/// Reports the fraction of a stage that is done, `None` if unknown. Does not return if the work is cancelled.
pub fn report(stage: &str, done: Option<f64>) {
    if is_cancelled() {
        resume_unwind(Box::new(Cancelled));
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
    fn cancelled_work_ends_at_its_next_report() {
        let token = CancellationToken::default();
        let work = || {
            report("first", None);
            token.cancel();
            assert!(is_cancelled());
            report("second", None);
            unreachable!("the second report ends it");
        };
        let done = catch_unwind(AssertUnwindSafe(|| with_token(Some(token.clone()), work)));
        assert!(done.expect_err("it unwinds").is::<Cancelled>());
        assert!(!is_cancelled(), "what comes after is not under it");
        report("third", None);
    }
}
