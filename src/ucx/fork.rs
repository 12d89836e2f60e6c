//! What a `fork` does to us: the child has copies of our memory but none of UCX's connections or threads, so there
//! every call is an error and `Drop` leaves everything alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

static IN_CHILD: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

extern "C" fn mark_child() {
    IN_CHILD.store(true, Ordering::Relaxed);
}

/// Called before the first UCX object is made.
pub(super) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only stores an atomic, which is allowed after a fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        if failed != 0 {
            log::warn!("forks cannot be noticed: pthread_atfork failed with {failed}");
        }
    });
}

/// Whether this process is the child of a fork that happened while pipes existed.
pub(super) fn in_child() -> bool {
    IN_CHILD.load(Ordering::Relaxed)
}
