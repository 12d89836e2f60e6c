//! [`PipeReceiver`]: the half of a pipe that receives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::{no_thread, Background, Handle, Stash, SLICE};
use super::connection::Connection;
use super::read_ahead::ReadAhead;
use super::receiver::{Packed, Placed, Receiver};
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Peer, Phase, Result};
use crate::link::deadline_after;
use crate::ucx::UcxLink;
use crate::wire::Limits;

/// The half of a [`Pipe`](crate::Pipe) that receives, for a thread of its own; made by
/// [`Pipe::split`](crate::Pipe::split). The pipe closes when both halves have been dropped.
///
/// See [`PipeSender`](crate::PipeSender) for an example.
#[derive(Debug)]
pub struct PipeReceiver {
    pub(super) connection: Arc<Connection<UcxLink>>,
    timeout: Option<Duration>,
    limits: Limits,
    half: Half,
    /// What was received for nobody.
    stash: Stash<TensorDict>,
    /// Receives were started, so that the stash may hold something.
    started: bool,
    /// What ended the last receive, if it failed.
    last_error: Option<Error>,
    /// The length of what was received the shortest way.
    known_len: usize,
}

/// Who has the protocol's half.
#[derive(Debug)]
enum Half {
    Here(Box<Receiver<UcxLink>>),
    /// A thread that works off started receives.
    There(Background<(), TensorDict, Box<Receiver<UcxLink>>>),
    /// The thread panicked.
    Lost,
}

impl Half {
    /// The protocol's half, once receives that were started have their messages, or the flag is set.
    fn take(self, stop: &AtomicBool) -> Option<Box<Receiver<UcxLink>>> {
        match self {
            Self::Here(receiver) => Some(receiver),
            Self::There(thread) => {
                while !thread.wait_idle(deadline_after(SLICE)) {
                    if stop.load(Ordering::Relaxed) {
                        thread.stop();
                    }
                }
                thread.finish()
            }
            Self::Lost => None,
        }
    }
}

impl PipeReceiver {
    pub(super) fn new(
        connection: Arc<Connection<UcxLink>>,
        receiver: Receiver<UcxLink>,
        timeout: Option<Duration>,
        limits: Limits,
    ) -> Self {
        let half = Half::Here(Box::new(receiver));
        Self {
            connection,
            timeout,
            limits,
            half,
            stash: Stash::default(),
            started: false,
            last_error: None,
            known_len: 0,
        }
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// Receives the next TensorDict; see [`Pipe::recv`](crate::Pipe::recv).
    ///
    /// # Errors
    /// See [`Pipe::recv`](crate::Pipe::recv).
    #[inline]
    pub fn recv(&mut self) -> Result<TensorDict> {
        let td = match self.recv_known() {
            Some(packed) => packed.into_tensordict(self.known_len),
            None => self.recv_by(Timer::new(self.timeout))?,
        };
        Ok(td)
    }

    fn recv_known(&mut self) -> Option<Packed> {
        match &mut self.half {
            Half::Here(receiver) if !self.started && self.last_error.is_none() => {
                self.known_len = receiver.known_len();
                receiver.recv_known()
            }
            _ => None,
        }
    }

    /// As [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// See [`Pipe::recv`](crate::Pipe::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<TensorDict> {
        self.recv_by(Timer::new(Some(timeout)))
    }

    /// As [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`Pipe::recv`](crate::Pipe::recv).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<TensorDict> {
        self.recv_by(Timer::until(deadline))
    }

    /// Receives a TensorDict that has arrived already, or `None`.
    ///
    /// # Errors
    /// See [`Pipe::recv`](crate::Pipe::recv), but for the timeout.
    pub fn try_recv(&mut self) -> Result<Option<TensorDict>> {
        match self.recv_timeout(Duration::ZERO) {
            Err(Error::Timeout { .. }) => Ok(None),
            received => received.map(Some),
        }
    }

    /// Receives into `td`; see [`Pipe::recv_into`](crate::Pipe::recv_into).
    ///
    /// # Errors
    /// See [`Pipe::recv_into`](crate::Pipe::recv_into).
    pub fn recv_into(&mut self, td: &mut TensorDict) -> Result<Placed> {
        let timer = Timer::new(self.timeout);
        if self.recall() && (!self.started || self.stash.lock().is_empty()) {
            let Half::Here(receiver) = &mut self.half else { return Err(self.lost()) };
            let received = receiver.recv_into(td, timer);
            return self.note(received);
        }
        *td = self.recv_by(timer)?;
        Ok(Placed::Replaced)
    }

    fn recv_by(&mut self, timer: Timer) -> Result<TensorDict> {
        if self.started {
            self.recall();
        }
        let received = match &mut self.half {
            Half::Here(receiver) if !self.started => receiver.recv(timer),
            Half::Here(receiver) => {
                let stashed = self.stash.lock().pop_first();
                stashed.map_or_else(|| receiver.recv(timer), |(_, td)| Ok(td))
            }
            Half::There(_) | Half::Lost => self.start_recv().and_then(|handle| match timer.deadline {
                None => handle.wait(),
                // A receive that is given up here goes on for the next call.
                Some(deadline) => handle.wait_deadline(deadline).unwrap_or_else(|| {
                    let (peer, after) = (self.connection.peer.clone(), timer.elapsed());
                    Err(Error::Timeout { phase: Phase::Recv, peer, after, cause: None })
                }),
            }),
        };
        self.note(received)
    }

    fn note<T>(&mut self, received: Result<T>) -> Result<T> {
        if received.is_err() || self.last_error.is_some() {
            self.last_error = received.as_ref().err().cloned();
        }
        received
    }

    /// Begins to receive and returns at once: a thread of the pipe receives, after those started before.
    ///
    /// # Errors
    /// [`Error::Setup`] if the thread cannot be started. What [`Pipe::recv`](crate::Pipe::recv) would say is in the
    /// handle.
    pub fn start_recv(&mut self) -> Result<Handle<TensorDict>> {
        self.started = true;
        if let Half::Here(_) = self.half {
            let Half::Here(receiver) = std::mem::replace(&mut self.half, Half::Lost) else { unreachable!("just seen") };
            let name = format!("tdpipe-recv-{}", self.connection.peer);
            let stash = Arc::clone(&self.stash);
            let closed = self.connection.closed();
            let lost = self.lost();
            let started =
                Background::start(name, receiver, Arc::clone(&self.stash), lost, move |receiver, (), stop| {
                    let stashed = stash.lock().pop_first();
                    stashed.map(|(number, td)| (number, Ok(td))).unwrap_or_else(|| {
                        let received = recv_unless(receiver, stop).unwrap_or_else(|| Err(closed.clone()));
                        (receiver.received(), received)
                    })
                });
            self.half = Half::There(started.map_err(|error| no_thread(&error))?);
        }
        match &self.half {
            Half::There(thread) => Ok(thread.push(())),
            Half::Here(_) | Half::Lost => Err(self.lost()),
        }
    }

    /// Reads ahead: a thread of the pipe receives into a channel for at most `n` TensorDicts, and stops reading while
    /// it is full, so that a slow reader holds the sender up. Receives that were started before get their messages
    /// first. See [`ReadAhead`].
    ///
    /// # Errors
    /// [`Error::Setup`] if the thread cannot be started.
    pub fn into_receiver(mut self, n: usize) -> Result<ReadAhead> {
        let half = std::mem::replace(&mut self.half, Half::Lost);
        if matches!(half, Half::Lost) {
            return Err(self.lost());
        }
        let take = move |stop: &AtomicBool| half.take(stop);
        let started = ReadAhead::start(take, Arc::clone(&self.stash), self.lost(), &self.connection.peer, n);
        started.map_err(|error| no_thread(&error))
    }

    /// An iterator that ends at the first error without returning it; see [`Pipe::iter`](crate::Pipe::iter).
    pub fn iter(&mut self) -> Iter<'_> {
        Iter { receiver: self }
    }

    /// An iterator of the results of [`recv`](Self::recv); see [`Pipe::results`](crate::Pipe::results).
    pub fn results(&mut self) -> Results<'_> {
        Results { receiver: self, done: false }
    }

    /// What ended the last receive, if it failed.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    /// Gets the half back from its thread, if the thread is idle.
    fn recall(&mut self) -> bool {
        match std::mem::replace(&mut self.half, Half::Lost) {
            Half::There(thread) if thread.is_idle() => {
                self.half = thread.finish().map_or(Half::Lost, Half::Here);
            }
            half => self.half = half,
        }
        matches!(self.half, Half::Here(_))
    }

    fn lost(&self) -> Error {
        Error::Transport { operation: "recv", peer: self.connection.peer.clone(), cause: "its thread panicked".into() }
    }
}

impl Drop for PipeReceiver {
    fn drop(&mut self) {
        if let Half::There(thread) = std::mem::replace(&mut self.half, Half::Lost) {
            thread.stop();
            drop(thread.finish());
        }
    }
}

/// Receives until there is something, or the flag is set.
pub(super) fn recv_unless(receiver: &mut Receiver<UcxLink>, stop: &AtomicBool) -> Option<Result<TensorDict>> {
    while !stop.load(Ordering::Relaxed) {
        // An expired receive loses nothing.
        match receiver.recv(Timer::new(Some(SLICE))) {
            Err(Error::Timeout { .. }) => {}
            received => return Some(received),
        }
    }
    None
}

/// See [`Pipe::iter`](crate::Pipe::iter).
///
/// ```
/// use tensordict_pipe::Iter;
///
/// fn entries(received: Iter<'_>) -> usize {
///     received.map(|td| td.len()).sum()
/// }
/// ```
#[derive(Debug)]
pub struct Iter<'a> {
    receiver: &'a mut PipeReceiver,
}

impl Iterator for Iter<'_> {
    type Item = TensorDict;

    fn next(&mut self) -> Option<TensorDict> {
        self.receiver.recv().ok()
    }
}

impl<'a> IntoIterator for &'a mut PipeReceiver {
    type Item = TensorDict;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// See [`Pipe::results`](crate::Pipe::results).
///
/// ```
/// use tensordict_pipe::{Result, Results};
///
/// fn entries(mut received: Results<'_>) -> Result<usize> {
///     received.try_fold(0, |sum, td| Ok(sum + td?.len()))
/// }
/// ```
#[derive(Debug)]
pub struct Results<'a> {
    receiver: &'a mut PipeReceiver,
    done: bool,
}

impl Iterator for Results<'_> {
    type Item = Result<TensorDict>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.receiver.recv() {
            Err(error) if error.is_closed() => {
                self.done = true;
                None
            }
            Err(error) => {
                self.done = error.is_final();
                Some(Err(error))
            }
            received => Some(received),
        }
    }
}
