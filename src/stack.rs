//! Runs a closure with enough stack for recursion, because matching recurses over the depth of a model, and the caller's thread may have a small stack.

use crate::error::{Error, ErrorKind};
use mlc_explore::progress;

/// Bytes of stack that work on a model gets; what is not used takes no memory.
pub(crate) const BYTES: usize = 256 << 20;

/// Does work on a thread that has the room; a panic goes on in the caller.
///
/// # Errors
/// Those of the work, or the system starts no thread.
pub(crate) fn with_room<R: Send>(
    work: impl FnOnce() -> Result<R, Error> + Send,
) -> Result<R, Error> {
    let token = progress::token();
    let work = move || progress::with_token(token, work);
    std::thread::scope(|scope| {
        match std::thread::Builder::new().stack_size(BYTES).spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(Error::new(ErrorKind::Resources, format!("no thread is started: {e}"))
                .with_help("raise the limit on threads or on memory of this process")),
        }
    })
}
