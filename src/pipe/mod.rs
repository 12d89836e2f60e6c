//! [`Pipe`]: a channel between two processes that streams TensorDicts.

mod connection;
mod establish;
mod kind;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod timer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::connection::Connection;
pub use self::establish::Listening;
pub use self::receiver::Placed;
use self::receiver::Receiver;
use self::sender::Sender;
use self::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Peer, Result};
use crate::options::PipeOptions;
use crate::ucx::UcxLink;
use crate::wire::RecvSession;

/// A channel between two processes that streams TensorDicts, in both directions.
///
/// The first message, and each with a new structure, carries the metadata and then the bytes; the others carry the
/// bytes only, and are received in place: into the buffer of an earlier message that nobody holds any more. The other
/// end may be a Python `TensorDictPipe`.
///
/// A received TensorDict is a value: it never changes under its owner, so the `clone()` that Python asks for is not
/// needed.
///
/// Dropping a pipe closes it as [`close`](Self::close) does, but tells nobody of errors.
///
/// ```
/// use tensordict_pipe::{Pipe, Tensor, TensorDict};
///
/// let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
/// let port = listening.local_addr().port();
/// let sender = std::thread::spawn(move || -> tensordict_pipe::Result<()> {
///     let mut pipe = Pipe::connect("127.0.0.1", port)?;
///     let mut td = TensorDict::new([2]);
///     td.insert("obs", Tensor::from_slice(&[1.0_f32, 2.0], [2]).unwrap()).unwrap();
///     for _ in 0..3 {
///         pipe.send(&td)?;
///     }
///     pipe.close()
/// });
/// let mut pipe = listening.accept()?;
/// let mut sum = 0.0;
/// for td in pipe.iter() {
///     sum += td.get("obs").unwrap().as_slice::<f32>().unwrap()[1];
/// }
/// assert_eq!(sum, 6.0);
/// assert!(pipe.error().unwrap().is_closed());
/// sender.join().unwrap()?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Debug)]
pub struct Pipe {
    sender: Sender<UcxLink>,
    receiver: Receiver<UcxLink>,
    connection: Arc<Connection<UcxLink>>,
    send_timeout: Option<Duration>,
    recv_timeout: Option<Duration>,
    close_timeout: Duration,
}

impl Pipe {
    /// All options at their defaults.
    #[must_use]
    pub fn options() -> PipeOptions {
        PipeOptions::default()
    }

    /// Connects to the pipe that listens on `host` and `port`; tries for 5 s.
    ///
    /// # Errors
    /// See [`PipeOptions::connect`].
    pub fn connect(host: &str, port: u16) -> Result<Self> {
        Self::options().connect(host, port)
    }

    /// Listens on `port` of every IPv4 interface and makes a pipe with the first client; waits for ever.
    ///
    /// # Errors
    /// See [`PipeOptions::listen`].
    pub fn listen(port: u16) -> Result<Self> {
        Self::options().listen(port)
    }

    pub(crate) fn over(link: UcxLink, peer: Peer, options: &PipeOptions) -> Self {
        let connection = Arc::new(Connection::new(link, peer, options.close_timeout));
        let format = options.format();
        let session = RecvSession::new(format, options.limits);
        Self {
            sender: Sender::new(Arc::clone(&connection), format),
            receiver: Receiver::new(Arc::clone(&connection), session, format),
            connection,
            send_timeout: options.send_timeout,
            recv_timeout: options.recv_timeout,
            close_timeout: options.close_timeout,
        }
    }

    /// Sends `td`; returns when its storage may be reused. That is not yet when the peer has received it:
    /// [`close`](Self::close) waits for that.
    ///
    /// A consolidated TensorDict is sent from where it is; another is packed into a buffer that is reused.
    /// Waits while the receiver is slow, without a limit unless [`PipeOptions::send_timeout`] sets one.
    ///
    /// # Errors
    /// * [`Error::Encode`]: `td` holds something that cannot be sent. Nothing was sent, and the pipe goes on.
    /// * [`Error::Disconnected`], [`Error::Closed`]: the peer is gone. Final for sending; what it had sent can still
    ///   be received.
    /// * [`Error::Timeout`]: final, since UCX cannot take a send back.
    /// * [`Error::Transport`], [`Error::Forked`]: final.
    pub fn send(&mut self, td: &TensorDict) -> Result<()> {
        self.sender.send(td, Timer::new(self.send_timeout))
    }

    /// As [`send`](Self::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn send_timeout(&mut self, td: &TensorDict, timeout: Duration) -> Result<()> {
        self.sender.send(td, Timer::new(Some(timeout)))
    }

    /// As [`send`](Self::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn send_deadline(&mut self, td: &TensorDict, deadline: Instant) -> Result<()> {
        self.sender.send(td, Timer::until(deadline))
    }

    /// Receives the next TensorDict; waits for it without a limit, unless [`PipeOptions::recv_timeout`] sets one.
    ///
    /// It is consolidated. While its structure stays the same, nothing is allocated: the pipe writes into a buffer
    /// whose TensorDict has been dropped, and keeps a few for loops that hold on to some.
    ///
    /// # Errors
    /// * [`Error::Closed`]: the peer closed, and everything it had sent was received. Final.
    /// * [`Error::Timeout`]: nothing is lost, the pipe goes on.
    /// * [`Error::Disconnected`]: the peer died or the connection broke. Final.
    /// * [`Error::Decode`]: the peer sent metadata that is wrong or beyond the limits. Final, unless the message can
    ///   be skipped: [`DecodeError::is_recoverable`](crate::DecodeError::is_recoverable).
    /// * [`Error::Protocol`], [`Error::Transport`], [`Error::Forked`]: final.
    pub fn recv(&mut self) -> Result<TensorDict> {
        self.receiver.recv(Timer::new(self.recv_timeout))
    }

    /// As [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// See [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<TensorDict> {
        self.receiver.recv(Timer::new(Some(timeout)))
    }

    /// As [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`recv`](Self::recv).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<TensorDict> {
        self.receiver.recv(Timer::until(deadline))
    }

    /// Receives a TensorDict that has arrived already, or `None`.
    ///
    /// # Errors
    /// See [`recv`](Self::recv), but for the timeout.
    pub fn try_recv(&mut self) -> Result<Option<TensorDict>> {
        match self.receiver.recv(Timer::new(Some(Duration::ZERO))) {
            Err(Error::Timeout { .. }) => Ok(None),
            received => received.map(Some),
        }
    }

    /// Receives the next TensorDict into `td`: into its own storage if it is consolidated, has the same structure and
    /// shares its storage with nobody; otherwise `td` is replaced. Says which.
    ///
    /// # Errors
    /// See [`recv`](Self::recv). After an error `td` has its structure still, but its values are unspecified. It is
    /// unchanged if the peer closed, or the deadline passed, before the message began to arrive.
    pub fn recv_into(&mut self, td: &mut TensorDict) -> Result<Placed> {
        self.receiver.recv_into(td, Timer::new(self.recv_timeout))
    }

    /// An iterator that receives until the first error and ends there without returning it, as `async for` does in
    /// Python. [`error`](Self::error) tells afterwards what it was; after a proper close, [`Error::Closed`].
    pub fn iter(&mut self) -> Iter<'_> {
        Iter { pipe: self }
    }

    /// An iterator of the results of [`recv`](Self::recv), which ends after the first final error has been returned;
    /// a proper close ends it without an error.
    pub fn results(&mut self) -> Results<'_> {
        Results { pipe: self, done: false }
    }

    /// What ended the last receive or the pipe, if anything did.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.receiver.error().or_else(|| self.sender.failure())
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.connection.peer
    }

    /// What carries the bytes, in UCX's names: `posix/memory` or `sysv/memory` is shared memory, `tcp/lo` is TCP.
    #[must_use]
    pub fn transports(&self) -> &[String] {
        self.connection.link.transports()
    }

    /// Closes the pipe. Waits until the peer has received everything that was sent to it, at most
    /// [`PipeOptions::close_timeout`]. A Python peer does not say what it has received: there it waits until the
    /// bytes have left this process.
    ///
    /// # Errors
    /// * [`Error::Timeout`]: the peer did not receive everything in time.
    /// * [`Error::Unread`]: it closed, too, without having received everything.
    /// * [`Error::Disconnected`]: it died before.
    /// * The error that had finished the pipe, if it was not a proper close.
    pub fn close(self) -> Result<()> {
        self.connection.close(self.close_timeout)
    }
}

/// See [`Pipe::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    pipe: &'a mut Pipe,
}

impl Iterator for Iter<'_> {
    type Item = TensorDict;

    fn next(&mut self) -> Option<TensorDict> {
        self.pipe.recv().ok()
    }
}

impl<'a> IntoIterator for &'a mut Pipe {
    type Item = TensorDict;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// See [`Pipe::results`].
#[derive(Debug)]
pub struct Results<'a> {
    pipe: &'a mut Pipe,
    done: bool,
}

impl Iterator for Results<'_> {
    type Item = Result<TensorDict>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.pipe.recv() {
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
