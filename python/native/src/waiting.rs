//! Long work: on a thread of its own, so that the interpreter is free and Ctrl-C ends the wait.

use crate::errors::{raised, refused};
use mlc_explore::progress::{self, End};
use mlc_rewrite::{Error, ErrorKind};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a signal may wait for its handler.
const PATIENCE: Duration = Duration::from_millis(20);

/// Does work while the interpreter is left to other threads, and signals to their handlers. If a handler raises, the work is told to end, which it
/// does at its next step, and its result is dropped.
///
/// # Errors
/// Those of the work, or what a signal's handler raises.
pub fn wait<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> PyResult<R> {
    let (to, from) = channel();
    let end = End::default();
    let told = end.clone();
    let work = move || {
        let work = || progress::under(Some(told), work);
        drop(to.send(catch_unwind(AssertUnwindSafe(work))));
    };
    std::thread::Builder::new().name("mlc-rewrite".into()).spawn(work)?;
    let from = Mutex::new(from);
    let receive = || from.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
    loop {
        match py.detach(receive) {
            Ok(Ok(done)) => return done.map_err(|e| raised(py, &e)),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| end.tell())?,
            Err(RecvTimeoutError::Disconnected) => {
                let help = "please report what was called";
                return Err(refused(py, ErrorKind::Pipeline, None, "the work was lost", help));
            }
        }
    }
}
