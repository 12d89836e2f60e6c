//! [`Refuser`]: a thread that refuses whoever connects to a listener that has the one client it wanted.
//!
//! With the port closed, a client would take the pipe for one that is about to listen, and wait.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::link::UcxListener;

/// The port is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Refuser {
    listener: Arc<UcxListener>,
    thread: Option<JoinHandle<()>>,
}

impl Refuser {
    pub(super) fn start(listener: UcxListener) -> std::io::Result<Self> {
        let listener = Arc::new(listener);
        let own = Arc::clone(&listener);
        let name = format!("tdpipe-refuse-{}", listener.local_addr().port());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if let Err(error) = own.refuse_all() {
                log::debug!("clients of {} are refused no longer: {error}", own.local_addr());
            }
        })?;
        Ok(Self { listener, thread: Some(thread) })
    }
}

impl Drop for Refuser {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if super::fork::in_child() {
            // The thread does not exist here.
            std::mem::forget(thread);
            return;
        }
        self.listener.interrupt();
        if thread.join().is_err() {
            log::error!("the thread that refuses clients of {} panicked", self.listener.local_addr());
        }
    }
}
