//! [`Background`]: a thread that works off started operations in order, and the [`Handle`]s to their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{unbounded, Receiver, Sender};
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::link::{deadline_after, Deadline};

/// A thread that must be stoppable looks at its stop sign this often.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// The result of an operation that a thread of the pipe performs: [`PipeSender::start_send`](crate::PipeSender::start_send),
/// [`PipeReceiver::start_recv`](crate::PipeReceiver::start_recv).
///
/// Dropping it is safe: a started send is sent nevertheless, and what a started receive has received, or will, goes to
/// the next receive.
#[derive(Debug)]
pub struct Handle<T> {
    cell: Arc<Cell<T>>,
    stash: Stash<T>,
}

/// Received messages whose handle was dropped, by their numbers: handles may be dropped in any order, and the next
/// receive takes the oldest.
pub(super) type Stash<T> = Arc<Mutex<BTreeMap<u64, T>>>;

#[derive(Debug)]
struct Cell<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Underway,
    /// With the number of the message.
    Done(u64, Result<T>),
    Taken,
    /// The handle was dropped.
    Abandoned,
}

impl<T> Handle<T> {
    /// Waits for the result, for ever if need be.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait(self) -> Result<T> {
        loop {
            if let Some(result) = self.wait_until(None) {
                return result;
            }
        }
    }

    /// Waits for the result; `None` if it did not come within `timeout`: then it can be waited for again.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<T>> {
        self.wait_until(deadline_after(timeout))
    }

    /// Waits for the result; `None` if it did not come by `deadline`: then it can be waited for again.
    pub fn wait_deadline(&self, deadline: Instant) -> Option<Result<T>> {
        self.wait_until(Some(deadline))
    }

    /// The result, if it is there. It can be taken once.
    pub fn poll(&self) -> Option<Result<T>> {
        take(&mut self.cell.state.lock())
    }

    /// Whether the result is there, or was taken.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !matches!(*self.cell.state.lock(), State::Underway)
    }

    fn wait_until(&self, deadline: Deadline) -> Option<Result<T>> {
        let mut state = self.cell.state.lock();
        while matches!(*state, State::Underway) {
            match deadline {
                Some(deadline) if self.cell.changed.wait_until(&mut state, deadline).timed_out() => break,
                Some(_) => {}
                None => self.cell.changed.wait(&mut state),
            }
        }
        take(&mut state)
    }
}

fn take<T>(state: &mut State<T>) -> Option<Result<T>> {
    match std::mem::replace(state, State::Taken) {
        State::Done(_, result) => Some(result),
        other => {
            *state = other;
            None
        }
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock();
        if let State::Done(number, Ok(value)) = std::mem::replace(&mut *state, State::Abandoned) {
            self.stash.lock().insert(number, value);
        }
    }
}

/// An operation for the thread.
struct Job<J, T> {
    input: J,
    cell: Arc<Cell<T>>,
}

/// A thread that owns half of a pipe, `H`, while operations that were started on it are under way.
#[derive(Debug)]
pub(super) struct Background<J, T, H> {
    jobs: Option<Sender<Job<J, T>>>,
    thread: Option<JoinHandle<H>>,
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    outstanding: Mutex<usize>,
    idle: Condvar,
    stop: AtomicBool,
    stash: Stash<T>,
}

impl<J: Send + 'static, T: Send + 'static, H: Send + 'static> Background<J, T, H> {
    /// Starts the thread. `work` performs one operation and numbers its result; when its flag is set it gives up as
    /// soon as it can.
    pub(super) fn start(
        name: String,
        half: H,
        stash: Stash<T>,
        mut work: impl FnMut(&mut H, J, &AtomicBool) -> (u64, Result<T>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, queue): (Sender<Job<J, T>>, Receiver<_>) = unbounded();
        let shared =
            Arc::new(Shared { outstanding: Mutex::new(0), idle: Condvar::new(), stop: AtomicBool::new(false), stash });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let mut half = half;
            for job in queue {
                let (number, result) = work(&mut half, job.input, &own.stop);
                complete(&job.cell, number, result, &own.stash);
                *own.outstanding.lock() -= 1;
                own.idle.notify_all();
            }
            half
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), shared })
    }

    /// Starts an operation.
    pub(super) fn push(&self, input: J) -> Handle<T> {
        let cell = Arc::new(Cell { state: Mutex::new(State::Underway), changed: Condvar::new() });
        *self.shared.outstanding.lock() += 1;
        if let Some(jobs) = &self.jobs {
            // The thread lives as long as the channel.
            let _ = jobs.send(Job { input, cell: Arc::clone(&cell) });
        }
        Handle { cell, stash: Arc::clone(&self.shared.stash) }
    }

    /// Whether every started operation is done.
    pub(super) fn is_idle(&self) -> bool {
        *self.shared.outstanding.lock() == 0
    }

    /// Waits until every started operation is done. `false` if that is not so by the deadline.
    pub(super) fn wait_idle(&self, deadline: Deadline) -> bool {
        let mut outstanding = self.shared.outstanding.lock();
        while *outstanding > 0 {
            match deadline {
                Some(deadline) if self.shared.idle.wait_until(&mut outstanding, deadline).timed_out() => break,
                Some(_) => {}
                None => self.shared.idle.wait(&mut outstanding),
            }
        }
        *outstanding == 0
    }

    /// Tells the operation under way to give up, where it can.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for what was started, ends the thread and gives the half back; `None` if the thread panicked.
    pub(super) fn finish(mut self) -> Option<H> {
        self.jobs = None;
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

fn complete<T>(cell: &Cell<T>, number: u64, result: Result<T>, stash: &Stash<T>) {
    let mut state = cell.state.lock();
    match (&*state, result) {
        (State::Abandoned, Ok(value)) => drop(stash.lock().insert(number, value)),
        (State::Abandoned, Err(error)) => log::debug!("a started operation whose handle was dropped: {error}"),
        (_, result) => *state = State::Done(number, result),
    }
    cell.changed.notify_all();
}

/// A thread could not be started.
pub(super) fn no_thread(error: &std::io::Error) -> Error {
    Error::Setup(format!("no thread for started operations: {error}").into())
}
