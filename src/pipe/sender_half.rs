//! [`PipeSender`]: the half of a pipe that sends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::background::{no_thread, Background, Handle, Stash};
use super::connection::Connection;
use super::sender::Sender;
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Peer, Phase, Result};
use crate::ucx::UcxLink;

/// The half of a [`Pipe`](crate::Pipe) that sends, for a thread of its own; made by
/// [`Pipe::split`](crate::Pipe::split). The pipe closes when both halves have been dropped.
///
/// ```no_run
/// use tensordict_pipe::{Pipe, TensorDict};
///
/// let (mut sender, mut receiver) = Pipe::connect("node-b", 13337)?.split();
/// std::thread::scope(|scope| {
///     scope.spawn(|| receiver.iter().for_each(|td| println!("{td}")));
///     (0..10).try_for_each(|n| sender.send(&TensorDict::new([n])))?;
///     sender.shutdown() // the other direction goes on
/// })?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Debug)]
pub struct PipeSender {
    pub(super) connection: Arc<Connection<UcxLink>>,
    timeout: Option<Duration>,
    half: Half,
}

/// Who has the protocol's half.
#[derive(Debug)]
enum Half {
    Here(Box<Sender<UcxLink>>),
    /// A thread that works off started sends.
    There(Background<TensorDict, (), Box<Sender<UcxLink>>>),
    /// The thread panicked.
    Lost,
}

impl PipeSender {
    pub(super) fn new(
        connection: Arc<Connection<UcxLink>>,
        sender: Sender<UcxLink>,
        timeout: Option<Duration>,
    ) -> Self {
        Self { connection, timeout, half: Half::Here(Box::new(sender)) }
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Sends `td`; see [`Pipe::send`](crate::Pipe::send).
    ///
    /// # Errors
    /// See [`Pipe::send`](crate::Pipe::send).
    pub fn send(&mut self, td: &TensorDict) -> Result<()> {
        self.send_by(td, Timer::new(self.timeout))
    }

    /// As [`send`](Self::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// See [`Pipe::send`](crate::Pipe::send).
    pub fn send_timeout(&mut self, td: &TensorDict, timeout: Duration) -> Result<()> {
        self.send_by(td, Timer::new(Some(timeout)))
    }

    /// As [`send`](Self::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`Pipe::send`](crate::Pipe::send).
    pub fn send_deadline(&mut self, td: &TensorDict, deadline: Instant) -> Result<()> {
        self.send_by(td, Timer::until(deadline))
    }

    #[inline]
    fn send_by(&mut self, td: &TensorDict, timer: Timer) -> Result<()> {
        match &mut self.half {
            Half::Here(sender) => sender.send(td, &timer),
            Half::There(_) | Half::Lost => self.send_behind(td, timer),
        }
    }

    #[cold]
    fn send_behind(&mut self, td: &TensorDict, timer: Timer) -> Result<()> {
        if self.recall() {
            return self.send_by(td, timer);
        }
        // Behind what was started before.
        let handle = self.start_send(td.clone())?;
        match timer.deadline {
            None => handle.wait(),
            Some(deadline) => handle.wait_deadline(deadline).unwrap_or_else(|| Err(self.expired(timer))),
        }
    }

    /// Begins to send `td` and returns at once: a thread of the pipe sends it, after those started before.
    ///
    /// `td` is a value: what the caller does with other clones of it meanwhile changes nothing.
    ///
    /// # Errors
    /// [`Error::Setup`] if the thread cannot be started. What [`Pipe::send`](crate::Pipe::send) would say is in the
    /// handle.
    pub fn start_send(&mut self, td: TensorDict) -> Result<Handle<()>> {
        if let Half::Here(_) = self.half {
            let Half::Here(sender) = std::mem::replace(&mut self.half, Half::Lost) else { unreachable!("just seen") };
            let name = format!("tdpipe-send-{}", self.connection.peer);
            let started = Background::start(name, sender, Stash::default(), self.lost(), |sender, td, _| {
                (0, sender.send(&td, &Timer::new(None)))
            });
            self.half = Half::There(started.map_err(|error| no_thread(&error))?);
        }
        match &self.half {
            Half::There(thread) => Ok(thread.push(td)),
            Half::Here(_) | Half::Lost => Err(self.lost()),
        }
    }

    /// Begins to send `td` if nothing that was started before is still under way, and says whether it did. Errors of
    /// the sending come with the next call.
    ///
    /// # Errors
    /// * [`Error::Encode`]: `td` holds something that cannot be sent.
    /// * The error that finished the pipe.
    /// * [`Error::Setup`]: a thread cannot be started.
    pub fn try_send(&mut self, td: &TensorDict) -> Result<bool> {
        self.recall();
        match &mut self.half {
            Half::Here(sender) => sender.check(td)?,
            Half::There(_) => return Ok(false),
            Half::Lost => return Err(self.lost()),
        }
        self.start_send(td.clone()).map(|_| true)
    }

    /// Waits until everything that was started has been sent. `false` if it was not by the deadline.
    pub(super) fn settle(&mut self, timer: Timer) -> bool {
        let Half::There(thread) = &self.half else { return true };
        thread.wait_idle(timer.deadline)
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

    /// Says that nothing more will be sent: the peer's `recv` returns [`Error::Closed`] after what was sent before,
    /// and its sends still arrive here. Waits until the peer has received everything, at most
    /// [`PipeOptions::close_timeout`](crate::PipeOptions::close_timeout).
    ///
    /// # Errors
    /// * [`Error::Unsupported`]: the peer is Python, which knows no such thing; drop both halves instead.
    /// * Those of [`Pipe::close`](crate::Pipe::close).
    pub fn shutdown(mut self) -> Result<()> {
        let timer = Timer::new(Some(self.connection.close_timeout()));
        if !self.settle(timer) {
            return Err(self.expired(timer));
        }
        self.connection.finish_sending(timer)
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    /// What finished the sending, if anything did.
    pub(super) fn failure(&self) -> Option<&Error> {
        match &self.half {
            Half::Here(sender) => sender.failure(),
            Half::There(_) | Half::Lost => self.connection.failure(),
        }
    }

    fn expired(&self, timer: Timer) -> Error {
        let (peer, after) = (self.connection.peer.clone(), timer.elapsed());
        self.connection.fail(Error::Timeout { phase: Phase::Send, peer, after, cause: None })
    }

    fn lost(&self) -> Error {
        Error::Transport { operation: "send", peer: self.connection.peer.clone(), cause: "its thread panicked".into() }
    }
}

impl Drop for PipeSender {
    fn drop(&mut self) {
        // What was started is sent, unless the peer does not take it in time.
        if !self.settle(Timer::new(Some(self.connection.close_timeout()))) {
            log::warn!("{}: sends that were started did not finish before the pipe was dropped", self.connection.peer);
            self.connection.abort();
        }
        if let Half::There(thread) = std::mem::replace(&mut self.half, Half::Lost) {
            drop(thread.finish());
        }
    }
}
