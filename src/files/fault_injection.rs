//! Fault injection for tests: at the write step that `MLC_REWRITE_FAULT` names, as `kill:12` or `full:12`, the
//! process is killed or the step fails as on a full disk.
//!
//! Only in builds with debug assertions.

use std::io;

/// One step of writing is about to be done.
#[cfg(not(debug_assertions))]
pub(super) fn step() -> io::Result<()> {
    Ok(())
}

/// One step of writing is about to be done.
#[cfg(debug_assertions)]
pub(super) fn step() -> io::Result<()> {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static STEPS: AtomicU64 = AtomicU64::new(0);
    static PLAN: OnceLock<Option<(bool, u64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("MLC_REWRITE_FAULT").ok()?;
        let (kind, at) = text.split_once(':')?;
        Some((kind == "kill", at.parse().ok()?))
    });
    let Some((kill, at)) = *plan else { return Ok(()) };
    match (STEPS.fetch_add(1, Ordering::Relaxed) == at, kill) {
        (false, _) => Ok(()),
        (true, true) => die(),
        (true, false) => Err(io::ErrorKind::StorageFull.into()),
    }
}

#[cfg(all(debug_assertions, unix))]
fn die() -> ! {
    // SAFETY: a signal to the process itself, which does not come back.
    unsafe { libc::raise(libc::SIGKILL) };
    std::process::abort()
}

#[cfg(all(debug_assertions, not(unix)))]
fn die() -> ! {
    std::process::abort()
}
