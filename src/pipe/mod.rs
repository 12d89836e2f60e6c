//! [`Pipe`]: a channel between two processes that streams TensorDicts.

mod background;
mod connection;
mod establish;
mod info;
mod kind;
mod read_ahead;
mod receiver;
mod receiver_half;
mod sender;
mod sender_half;
mod stateless;
#[cfg(test)]
mod tests;
mod timer;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::background::Handle;
use self::connection::Connection;
pub use self::establish::Listening;
pub use self::info::{Info, Traffic};
pub use self::read_ahead::ReadAhead;
pub use self::receiver::Placed;
use self::receiver::Receiver;
pub use self::receiver_half::{Iter, PipeReceiver, Results};
use self::sender::Sender;
pub use self::sender_half::PipeSender;
pub use self::stateless::{recv_tensordict, recv_tensordict_into, send_tensordict};
use self::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Peer, Result};
use crate::options::PipeOptions;
use crate::ucx::{loaded_version_text, UcxLink};
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
    sender: PipeSender,
    receiver: PipeReceiver,
}

impl Pipe {
    /// All options at their defaults.
    #[must_use]
    pub fn options() -> PipeOptions {
        PipeOptions::default()
    }

    /// Connects to the pipe that listens on `host` and `port`; tries for 5 s.
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let pipe = Pipe::connect("node-b", 13337)?;
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`PipeOptions::connect`].
    pub fn connect(host: &str, port: u16) -> Result<Self> {
        Self::options().connect(host, port)
    }

    /// Listens on `port` of every IPv4 interface and makes a pipe with the first client; waits for ever. Others
    /// are refused.
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let pipe = Pipe::listen(13337)?;
    /// println!("{} has connected", pipe.peer());
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
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
        let sender = Sender::new(Arc::clone(&connection), format);
        let receiver = Receiver::new(Arc::clone(&connection), session, format);
        Self {
            sender: PipeSender::new(Arc::clone(&connection), sender, options.send_timeout),
            receiver: PipeReceiver::new(connection, receiver, options.recv_timeout, options.limits),
        }
    }

    /// Sends `td`; returns when its storage may be reused. That is not yet when the peer has received it:
    /// [`close`](Self::close) waits for that.
    ///
    /// A consolidated TensorDict is sent from where it is; the tensors of another are copied one by one into the
    /// transport's buffers. Waits while the receiver is slow, without a limit unless [`PipeOptions::send_timeout`] sets one.
    ///
    /// ```no_run
    /// use tensordict_pipe::{tensordict, Pipe};
    ///
    /// let mut pipe = Pipe::connect("node-b", 13337)?;
    /// let mut td = tensordict!([]; "obs" => vec![0.0_f32; 84])?.consolidate();
    /// for step in 0..10_u8 {
    ///     td.get_mut("obs")?.as_slice_mut()?.fill(f32::from(step));
    ///     pipe.send(&td)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`Error::Encode`]: `td` holds something that cannot be sent. Nothing was sent, and the pipe goes on.
    /// * [`Error::Disconnected`], [`Error::Closed`]: the peer is gone. Final for sending; what it had sent can still
    ///   be received.
    /// * [`Error::Timeout`]: final, since UCX cannot take a send back.
    /// * [`Error::Transport`], [`Error::Forked`]: final.
    #[inline]
    pub fn send(&mut self, td: &TensorDict) -> Result<()> {
        self.sender.send(td)
    }

    /// As [`send`](Self::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn send_timeout(&mut self, td: &TensorDict, timeout: Duration) -> Result<()> {
        self.sender.send_timeout(td, timeout)
    }

    /// As [`send`](Self::send), but gives up at `deadline`.
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
    /// sender.send_timeout(&td, Duration::from_secs(60))?;
    /// sender.send_deadline(&td, Instant::now() + Duration::from_secs(60))?;
    /// assert_eq!(receiver.recv_deadline(Instant::now() + Duration::from_secs(60))?, td);
    /// while receiver.try_recv()?.is_none() {
    ///     // Something else.
    /// }
    /// # let closing = std::thread::spawn(move || sender.close());
    /// # receiver.close()?;
    /// # closing.join().unwrap()?;
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn send_deadline(&mut self, td: &TensorDict, deadline: Instant) -> Result<()> {
        self.sender.send_deadline(td, deadline)
    }

    /// Receives the next TensorDict; waits for it without a limit, unless [`PipeOptions::recv_timeout`] sets one.
    ///
    /// It is consolidated. While its structure stays the same, nothing is allocated: the pipe writes into a buffer
    /// whose TensorDict has been dropped, and keeps a few for loops that hold on to some.
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let mut pipe = Pipe::listen(13337)?;
    /// let td = pipe.recv()?;
    /// println!("{:?}", td.get("obs")?.as_slice::<f32>()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`Error::Closed`]: the peer closed, and everything it had sent was received. Final.
    /// * [`Error::Timeout`]: nothing is lost, the pipe goes on.
    /// * [`Error::Disconnected`]: the peer died or the connection broke. Final.
    /// * [`Error::Decode`]: the peer sent metadata that is wrong or beyond the limits. Final, unless the message can
    ///   be skipped: [`DecodeError::is_recoverable`](crate::DecodeError::is_recoverable).
    /// * [`Error::Protocol`], [`Error::Transport`], [`Error::Forked`]: final.
    #[inline]
    pub fn recv(&mut self) -> Result<TensorDict> {
        self.receiver.recv()
    }

    /// As [`recv`](Self::recv), but gives up after `timeout`.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tensordict_pipe::Pipe;
    ///
    /// let mut pipe = Pipe::listen(13337)?;
    /// match pipe.recv_timeout(Duration::from_secs(1)) {
    ///     Err(error) if error.is_timeout() => println!("nothing yet"), // and nothing lost
    ///     received => println!("{}", received?),
    /// }
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`recv`](Self::recv).
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<TensorDict> {
        self.receiver.recv_timeout(timeout)
    }

    /// As [`recv`](Self::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`recv`](Self::recv).
    pub fn recv_deadline(&mut self, deadline: Instant) -> Result<TensorDict> {
        self.receiver.recv_deadline(deadline)
    }

    /// Receives a TensorDict that has arrived already, or `None`.
    ///
    /// # Errors
    /// See [`recv`](Self::recv), but for the timeout.
    pub fn try_recv(&mut self) -> Result<Option<TensorDict>> {
        self.receiver.try_recv()
    }

    /// Receives the next TensorDict into `td`: into its own storage if it is consolidated, has the same structure and
    /// shares its storage with nobody; otherwise `td` is replaced. Says which.
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let mut pipe = Pipe::listen(13337)?;
    /// let mut td = pipe.recv()?;
    /// loop {
    ///     pipe.recv_into(&mut td)?; // the same memory each time
    ///     println!("{td}");
    /// }
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`recv`](Self::recv). After an error `td` has its structure still, but its values are unspecified. It is
    /// unchanged if the peer closed, or the deadline passed, before the message began to arrive.
    pub fn recv_into(&mut self, td: &mut TensorDict) -> Result<Placed> {
        self.receiver.recv_into(td)
    }

    /// An iterator that receives until the first error and ends there without returning it, as `async for` does in
    /// Python. [`error`](Self::error) tells afterwards what it was; after a proper close, [`Error::Closed`].
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let mut pipe = Pipe::listen(13337)?;
    /// for td in pipe.iter() {
    ///     println!("{td}");
    /// }
    /// println!("{}", pipe.error().expect("why it ended"));
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    pub fn iter(&mut self) -> Iter<'_> {
        self.receiver.iter()
    }

    /// An iterator of the results of [`recv`](Self::recv), which ends after the first final error has been returned;
    /// a proper close ends it without an error.
    ///
    /// ```no_run
    /// use tensordict_pipe::Pipe;
    ///
    /// let mut pipe = Pipe::listen(13337)?;
    /// for td in pipe.results() {
    ///     println!("{}", td?);
    /// }
    /// // Here the peer has closed the pipe.
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    pub fn results(&mut self) -> Results<'_> {
        self.receiver.results()
    }

    /// What ended the last receive or the pipe, if anything did.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.receiver.error().or_else(|| self.sender.failure())
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.sender.peer()
    }

    /// What carries the bytes, in UCX's names: `posix/memory` or `sysv/memory` is shared memory, `tcp/lo` is TCP.
    #[must_use]
    pub fn transports(&self) -> &[String] {
        self.sender.connection.link.transports()
    }

    /// Everything that can be known of the pipe, and its counters.
    #[must_use]
    pub fn info(&self) -> Info {
        let connection = &self.sender.connection;
        Info {
            peer_addr: connection.link.peer_addr(),
            transports: connection.link.transports().to_vec(),
            peer_is_ours: crate::link::Link::has_kinds(&connection.link),
            ucx_version: loaded_version_text(),
            sent: connection.sent.snapshot(),
            received: connection.received.snapshot(),
            time_blocked: connection.link.time_blocked(),
        }
    }

    /// Begins to send `td` and returns at once; see [`PipeSender::start_send`].
    ///
    /// ```
    /// use tensordict_pipe::{Pipe, TensorDict};
    ///
    /// # let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
    /// # let port = listening.local_addr().port();
    /// # let client = std::thread::spawn(move || Pipe::connect("127.0.0.1", port));
    /// # let mut receiver = listening.accept()?;
    /// # let mut sender = client.join().unwrap()?;
    /// let (first, second) = (receiver.start_recv()?, receiver.start_recv()?);
    /// sender.start_send(TensorDict::new([1]))?;
    /// while !sender.try_send(&TensorDict::new([2]))? {
    ///     // Something else, while the first is under way.
    /// }
    /// assert_eq!((first.wait()?, second.wait()?), (TensorDict::new([1]), TensorDict::new([2])));
    /// # let closing = std::thread::spawn(move || sender.close());
    /// # receiver.close()?;
    /// # closing.join().unwrap()?;
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`PipeSender::start_send`].
    pub fn start_send(&mut self, td: TensorDict) -> Result<Handle<()>> {
        self.sender.start_send(td)
    }

    /// Begins to send `td` if nothing that was started is still under way; see [`PipeSender::try_send`].
    ///
    /// # Errors
    /// See [`PipeSender::try_send`].
    pub fn try_send(&mut self, td: &TensorDict) -> Result<bool> {
        self.sender.try_send(td)
    }

    /// Begins to receive and returns at once; see [`PipeReceiver::start_recv`].
    ///
    /// # Errors
    /// See [`PipeReceiver::start_recv`].
    pub fn start_recv(&mut self) -> Result<Handle<TensorDict>> {
        self.receiver.start_recv()
    }

    /// Gives the pipe up for a channel into which a thread receives up to `n` TensorDicts ahead; see [`ReadAhead`].
    /// To go on sending, [`split`](Self::split) first.
    ///
    /// # Errors
    /// See [`PipeReceiver::into_receiver`].
    pub fn into_receiver(self, n: usize) -> Result<ReadAhead> {
        self.receiver.into_receiver(n)
    }

    /// The two halves, for two threads. Both directions work at the same time; the pipe closes when both halves have
    /// been dropped, or [`join`](Self::join)ed and closed.
    ///
    /// ```
    /// use tensordict_pipe::{Pipe, TensorDict};
    ///
    /// # let listening = Pipe::options().bind("127.0.0.1").listener(0)?;
    /// # let port = listening.local_addr().port();
    /// # let echo = std::thread::spawn(move || -> tensordict_pipe::Result<()> {
    /// #     let mut pipe = Pipe::connect("127.0.0.1", port)?;
    /// #     while let Ok(td) = pipe.recv() {
    /// #         pipe.send(&td)?;
    /// #     }
    /// #     pipe.close()
    /// # });
    /// # let pipe = listening.accept()?;
    /// let (mut sender, mut receiver) = pipe.split(); // at the other end is an echo
    /// let sending = std::thread::spawn(move || {
    ///     (0..100).try_for_each(|n| sender.send(&TensorDict::new([n]))).map(|()| sender)
    /// });
    /// for n in 0..100 {
    ///     assert_eq!(receiver.recv()?, TensorDict::new([n]));
    /// }
    /// let pipe = Pipe::join(sending.join().unwrap()?, receiver).expect("two halves of one pipe");
    /// println!("{} received over {}", pipe.info().received.messages, pipe.transports().join(", "));
    /// pipe.close()?;
    /// # echo.join().unwrap()?;
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    #[must_use]
    pub fn split(self) -> (PipeSender, PipeReceiver) {
        (self.sender, self.receiver)
    }

    /// The pipe of two halves.
    ///
    /// # Errors
    /// Gives the halves back if they are of different pipes.
    #[allow(clippy::result_large_err)] // the halves are what the caller gave
    pub fn join(sender: PipeSender, receiver: PipeReceiver) -> Result<Self, (PipeSender, PipeReceiver)> {
        if Arc::ptr_eq(&sender.connection, &receiver.connection) {
            Ok(Self { sender, receiver })
        } else {
            Err((sender, receiver))
        }
    }

    /// Closes the pipe. Waits until the peer has received everything that was sent to it, at most
    /// [`PipeOptions::close_timeout`]. A Python peer does not say what it has received: there it waits until the
    /// bytes have arrived in the peer's process.
    ///
    /// The peer answers while it receives or closes. So one thread that closes both ends of a pipe, one after another,
    /// waits for itself and gets the timeout: use a thread for each.
    ///
    /// ```no_run
    /// use tensordict_pipe::{Pipe, TensorDict};
    ///
    /// let mut pipe = Pipe::connect("node-b", 13337)?;
    /// pipe.send(&TensorDict::new([3]))?;
    /// pipe.close()?; // it has been received
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// * [`Error::Timeout`]: the peer did not receive everything in time.
    /// * [`Error::Unread`]: it closed, too, without having received everything.
    /// * [`Error::Disconnected`]: it died before.
    /// * The error that had finished the pipe, if it was not a proper close.
    pub fn close(mut self) -> Result<()> {
        let timer = Timer::new(Some(self.sender.connection.close_timeout()));
        self.sender.settle(timer);
        self.sender.connection.close(timer)
    }
}

impl<'a> IntoIterator for &'a mut Pipe {
    type Item = TensorDict;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}
