//! Long work: on a thread of its own, so that the interpreter is free and Ctrl-C ends the wait.

use crate::errors::{raised, refused};
use mlc_explore::progress::{self, CancellationToken};
use mlc_rewrite::{Error, ErrorKind};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// How long a signal may wait for its handler.
const PATIENCE: Duration = Duration::from_millis(20);

/// The stage that was reported last, and the part of it that is done.
static LATEST: Mutex<Option<(String, Option<f64>)>> = Mutex::new(None);

/// What of the package shows, while it is waited for, what work is at.
struct Shown<'py>(Bound<'py, PyAny>);

impl<'py> Shown<'py> {
    /// None where nobody looks.
    fn new(py: Python<'py>) -> PyResult<Option<Shown<'py>>> {
        static WATCHED: Once = Once::new();
        let line = py.import("mlc_rewrite._progress")?.call_method0("line")?;
        if line.is_none() {
            return Ok(None);
        }
        WATCHED.call_once(|| {
            let note = |stage: &str, done| {
                let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
                match latest.as_mut() {
                    Some((known, part)) if known == stage => *part = done,
                    _ => *latest = Some((stage.to_string(), done)),
                }
            };
            progress::set_watcher(Some(Box::new(note)));
        });
        // What the work before was at in the end.
        *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(Some(Shown(line)))
    }

    /// Shows what the work is at. What cannot be shown, as on a terminal that was closed, is no failure of the work; what ends the interpreter is.
    fn look(&self) -> PyResult<()> {
        let latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((stage, part)) = latest else { return Ok(()) };
        match self.0.call_method1("at", (stage, part)) {
            Err(e) if !e.is_instance_of::<PyException>(self.0.py()) => Err(e),
            _ => Ok(()),
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        // What cannot be shown is no failure of the work.
        drop(self.0.call_method0("end"));
    }
}

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
    let token = CancellationToken::default();
    let of_work = token.clone();
    let work = move || {
        let work = || progress::with_token(Some(of_work), work);
        drop(to.send(catch_unwind(AssertUnwindSafe(work))));
    };
    std::thread::Builder::new().name("mlc-rewrite".into()).spawn(work)?;
    let from = Mutex::new(from);
    let shown = Shown::new(py)?;
    let receive = || from.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PATIENCE);
    loop {
        match py.detach(receive) {
            Ok(Ok(done)) => return done.map_err(|e| raised(py, &e)),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| token.cancel())?;
                shown.as_ref().map_or(Ok(()), Shown::look).inspect_err(|_| token.cancel())?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let help = "please report what was called";
                return Err(refused(py, ErrorKind::Pipeline, None, "the work was lost", help));
            }
        }
    }
}
