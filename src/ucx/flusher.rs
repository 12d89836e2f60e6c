//! [`Flusher`]: the progress thread of a connection, for what must go on after a call has returned.
//!
//! UCX may call a send complete while its last bytes still lie in the endpoint's buffer: over TCP, when the socket is
//! full. If the caller then goes away, nobody would progress the worker and the peer would wait for ever. So each such
//! call leaves a mark, and once no caller has been there for a moment the thread flushes the endpoint and drives the
//! worker until that is done. Shared memory needs none of it: there the peer can read what a send has handed over.
//!
//! Over TCP a flush ends when the peer has answered it, and until then progress would take in whatever the peer sends.
//! So while something is unread the thread pauses, each time twice as long. What it takes in grows with the logarithm of
//! the time for which no caller has driven the worker, and what lies in the buffer waits at most twice as long as it
//! would without pauses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, Receiver, RecvTimeoutError, Sender};
use parking_lot::{Mutex, MutexGuard};

use super::endpoint::Endpoint;
use super::progress::{Engine, Guard, Locked};
use super::worker::ANY_TAG;

/// How long nothing must have been sent.
const QUIET: Duration = Duration::from_millis(1);
/// A call that has waited for longer is left alone no more: a receive may wait for hours.
const LONG_CALL: Duration = Duration::from_secs(1);
/// How often a pause looks whether a caller has driven the worker, which none does before it has read everything.
const GLANCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Flusher {
    engine: Arc<Engine<Endpoint>>,
    name: String,
    shared: Arc<Shared>,
    /// Started at the first mark: most connections need no thread.
    thread: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Something was sent since the thread last looked.
    marked: AtomicBool,
    /// The thread is between a wake-up and its next sleep, and will look at the mark.
    awake: AtomicBool,
    stop: AtomicBool,
}

impl Flusher {
    pub(super) fn new(engine: Arc<Engine<Endpoint>>, name: String) -> Self {
        Self { engine, name, shared: Arc::default(), thread: Mutex::default() }
    }

    /// Tells the thread that something was sent.
    pub(super) fn mark(&self) {
        self.shared.marked.store(true, Ordering::SeqCst);
        if !self.shared.awake.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    fn wake(&self) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let (wake, woken) = bounded(1);
            let (engine, shared) = (Arc::clone(&self.engine), Arc::clone(&self.shared));
            let spawned =
                std::thread::Builder::new().name(self.name.clone()).spawn(move || run(&engine, &shared, &woken));
            match spawned {
                Ok(handle) => *thread = Some((wake, handle)),
                Err(error) => log::error!("no progress thread: {error}; a send may wait for this end's next call"),
            }
        }
        if let Some((wake, _)) = &*thread {
            // A full channel holds a wake-up already.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let Some((wake, handle)) = self.thread.get_mut().take() else { return };
        if super::fork::in_child() {
            // The thread does not exist here.
            std::mem::forget(handle);
            return;
        }
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(wake);
        self.engine.wake();
        if handle.join().is_err() {
            log::error!("the progress thread {} panicked", self.name);
        }
    }
}

fn run(engine: &Engine<Endpoint>, shared: &Shared, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        loop {
            while shared.marked.swap(false, Ordering::SeqCst) {
                if woken.recv_timeout(QUIET) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
            let Ok(mut guard) = engine.lock() else { return };
            // Who waits in a call drives the worker: two would only be in each other's way. But a flush is once.
            let mut pause = QUIET;
            while guard.waiting > 0 && pause < LONG_CALL {
                let woken = MutexGuard::unlocked(&mut guard, || woken.recv_timeout(pause));
                if woken == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                pause *= 2;
            }
            flush(engine, &mut guard, shared, woken);
            drop(guard);
            shared.awake.store(false, Ordering::SeqCst);
            // Who marked before that did not wake us; who marks after it does.
            if !shared.marked.load(Ordering::SeqCst) || shared.awake.swap(true, Ordering::SeqCst) {
                break;
            }
        }
    }
}

/// Flushes and drives until that is done, the connection has failed, or the pipe is dropped.
fn flush(engine: &Engine<Endpoint>, guard: &mut Guard<'_, Endpoint>, shared: &Shared, woken: &Receiver<()>) {
    if guard.child.is_closed() {
        return;
    }
    let Locked { child, requests, .. } = &mut **guard;
    // SAFETY: the slot lives until it is done or the worker is destroyed.
    let Ok(Some(ticket)) = requests.post(|slot| unsafe { child.flush(slot) }) else { return };
    let ended = |locked: &Locked<Endpoint>| shared.stop.load(Ordering::SeqCst) || locked.requests.is_done(&ticket);
    let (mut since, mut due) = (Instant::now(), QUIET);
    loop {
        let waited = engine.wait(guard, None, |locked| ended(locked) || locked.worker.has_unread(ANY_TAG));
        if waited.is_err() || ended(guard) {
            break;
        }
        let pause = due.saturating_sub(since.elapsed()).min(GLANCE);
        let drives = guard.drives;
        // Nobody sends a wake-up to who is awake: this ends before its time only if the pipe is dropped.
        let _ = MutexGuard::unlocked(guard, || woken.recv_timeout(pause));
        if guard.drives != drives {
            (since, due) = (Instant::now(), QUIET);
        } else if since.elapsed() >= due {
            engine.look(guard);
            due = due.saturating_mul(2);
        }
    }
    if guard.requests.is_done(&ticket) {
        guard.requests.finish(ticket);
    } else {
        guard.requests.abandon(ticket);
    }
}
