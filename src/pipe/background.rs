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
///
/// ```
/// use std::time::{Duration, Instant};
/// use tensordict_pipe::{Pipe, TensorDict};
///
/// # let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
/// # let port = listening.local_addr().port();
/// # let client = std::thread::spawn(move || Pipe::connect("127.0.0.1", port));
/// # let mut receiver = listening.accept()?;
/// # let mut sender = client.join().unwrap()?;
/// let td = TensorDict::new([3]);
/// let sent = sender.start_send(td.clone())?;
/// let received = receiver.start_recv()?;
/// sent.wait_deadline(Instant::now() + Duration::from_secs(60)).expect("in time")?;
/// while !received.is_done() {
///     // Something else.
/// }
/// assert_eq!(received.poll().expect("done")?, td);
///
/// let next = receiver.start_recv()?;
/// assert!(next.wait_timeout(Duration::ZERO).is_none());
/// drop(next); // which leaves the message to the next receive
/// sender.start_send(td.clone())?.wait()?;
/// assert_eq!(receiver.recv()?, td);
/// # let closing = std::thread::spawn(move || sender.close());
/// # receiver.close()?;
/// # closing.join().unwrap()?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
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
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<T>> {
        self.wait_until(deadline_after(timeout))
    }

    /// Waits for the result; `None` if it did not come by `deadline`: then it can be waited for again.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn wait_deadline(&self, deadline: Instant) -> Option<Result<T>> {
        self.wait_until(Some(deadline))
    }

    /// The result, if it is there. It can be taken once.
    ///
    /// # Errors
    /// Those of the operation.
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
    outcome: Outcome<T>,
}

/// What becomes of an operation that was started. Dropped without a result it is the error of a thread that panicked:
/// whoever waits shall not wait for ever.
struct Outcome<T> {
    cell: Arc<Cell<T>>,
    shared: Arc<Shared<T>>,
}

impl<T> Outcome<T> {
    fn set(self, number: u64, result: Result<T>) {
        let mut state = self.cell.state.lock();
        match (&*state, result) {
            (State::Abandoned, Ok(value)) => drop(self.shared.stash.lock().insert(number, value)),
            (State::Abandoned, Err(error)) => log::debug!("a started operation whose handle was dropped: {error}"),
            (_, result) => *state = State::Done(number, result),
        }
    }
}

impl<T> Drop for Outcome<T> {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock();
        if matches!(*state, State::Underway) {
            *state = State::Done(0, Err(self.shared.lost.clone()));
        }
        drop(state);
        self.cell.changed.notify_all();
        *self.shared.outstanding.lock() -= 1;
        self.shared.idle.notify_all();
    }
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
    /// What is said of operations whose thread panicked.
    lost: Error,
}

impl<J: Send + 'static, T: Send + 'static, H: Send + 'static> Background<J, T, H> {
    /// Starts the thread. `work` performs one operation and numbers its result; when its flag is set it gives up as
    /// soon as it can.
    pub(super) fn start(
        name: String,
        half: H,
        stash: Stash<T>,
        lost: Error,
        mut work: impl FnMut(&mut H, J, &AtomicBool) -> (u64, Result<T>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, queue): (Sender<Job<J, T>>, Receiver<_>) = unbounded();
        let (outstanding, idle, stop) = (Mutex::new(0), Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { outstanding, idle, stop, stash, lost });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let mut half = half;
            for Job { input, outcome } in queue {
                let (number, result) = work(&mut half, input, &own.stop);
                outcome.set(number, result);
            }
            half
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), shared })
    }

    /// Starts an operation.
    pub(super) fn push(&self, input: J) -> Handle<T> {
        let cell = Arc::new(Cell { state: Mutex::new(State::Underway), changed: Condvar::new() });
        let shared = Arc::clone(&self.shared);
        *shared.outstanding.lock() += 1;
        let job = Job { input, outcome: Outcome { cell: Arc::clone(&cell), shared } };
        if let Some(jobs) = &self.jobs {
            // A thread that panicked does not take it; then it is dropped here.
            let _ = jobs.send(job);
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

/// A thread could not be started.
pub(super) fn no_thread(error: &std::io::Error) -> Error {
    Error::Setup(format!("no thread for started operations: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Peer;

    fn lost() -> Error {
        Error::Transport { operation: "test", peer: Peer::new("x"), cause: "its thread panicked".into() }
    }

    /// Gives each input back; panics at 0, once the gate is open.
    fn background(stash: &Stash<u64>) -> (Sender<()>, Background<u64, u64, ()>) {
        let (open, gate) = unbounded();
        let work = move |(): &mut (), input, _: &AtomicBool| {
            if input == 0 {
                let _ = gate.recv();
                panic!("a test's panic");
            }
            (input, Ok(input))
        };
        let thread = Background::start("test".to_owned(), (), Arc::clone(stash), lost(), work).expect("a thread");
        (open, thread)
    }

    #[test]
    fn a_thread_that_panics_leaves_nobody_waiting() {
        let stash = Stash::default();
        let (open, thread) = background(&stash);
        let done = thread.push(7);
        let dropped = thread.push(8);
        let (panics, queued, abandoned) = (thread.push(0), thread.push(9), thread.push(9));
        drop(abandoned);
        open.send(()).expect("it waits there");
        assert!(thread.wait_idle(deadline_after(Duration::from_secs(60))), "nothing is under way any more");
        for handle in [panics, queued, thread.push(9)] {
            assert!(handle.is_done());
            let error = handle.wait().expect_err("its thread panicked");
            assert_eq!(error.to_string(), lost().to_string());
        }
        drop(dropped);
        assert_eq!(*stash.lock(), BTreeMap::from([(8, 8)]), "what was received for a dropped handle is kept");
        assert_eq!(done.wait().expect("done before"), 7);
        assert!(thread.is_idle());
        assert!(thread.finish().is_none());
    }
}
