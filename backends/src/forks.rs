//! Fork handlers: a library inside another process, such as a Python interpreter, must expect to be forked.

/// Has a function called in every child of this process, by the thread that forks, before the fork returns there. It must not wait for a lock that
/// another thread may hold: that thread is not there to let go of it.
#[cfg(unix)]
pub fn in_child(f: extern "C" fn()) {
    use std::ffi::c_int;
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    // SAFETY: a function of POSIX, with its parameters. Where it has no room for another handler the child computes alone.
    let _ = unsafe { pthread_atfork(None, None, Some(f)) };
}

/// Nothing is forked here.
#[cfg(not(unix))]
pub fn in_child(_: extern "C" fn()) {}
