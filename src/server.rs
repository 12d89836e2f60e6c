//! [`Server`]: accepts many clients, each with a pipe of its own.

use std::net::SocketAddr;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{at, bounded, never, select_biased, Receiver, Sender};
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Peer, Phase, Result};
use crate::link::{deadline_after, Deadline, LinkError};
use crate::options::PipeOptions;
use crate::pipe::Pipe;
use crate::ucx::{EstablishError, UcxListener};

/// How many clients may be in the handshake at once; others wait in UCX's queue.
const MOST_HANDSHAKES: usize = 256;
/// How many pipes may wait to be accepted.
const BACKLOG: usize = 1024;

/// Accepts many clients, each with a [`Pipe`] of its own. The pipes outlive the server.
///
/// A thread listens, and each client's handshake has a thread for its short time, so that a slow or silent client
/// holds up nobody.
///
/// ```
/// use tensordict_pipe::{Pipe, Server, TensorDict};
///
/// let server = Server::bind("127.0.0.1", 0)?;
/// let port = server.local_addr().port();
/// let client = std::thread::spawn(move || -> tensordict_pipe::Result<()> {
///     let mut pipe = Pipe::connect("127.0.0.1", port)?;
///     pipe.send(&TensorDict::new([3]))?;
///     pipe.close()
/// });
/// let mut pipe = server.accept()?;
/// assert_eq!(pipe.recv()?.batch_size()[..], [3]);
/// assert!(pipe.recv().unwrap_err().is_closed());
/// client.join().unwrap()?;
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    pipes: Receiver<Pipe>,
    /// Disconnected once the listening thread has ended; handshakes may still be under way then.
    closed: Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    /// Gone once the server is closed.
    listener: Mutex<Option<Arc<UcxListener>>>,
    local_addr: SocketAddr,
    options: PipeOptions,
    handshakes: Mutex<usize>,
    fewer: Condvar,
}

impl PipeOptions {
    /// A server that listens on `port` of [`bind`](Self::bind) and gives its pipes these options; port 0 takes any
    /// free one.
    ///
    /// # Errors
    /// See [`Server::bind`].
    pub fn server(&self, port: u16) -> Result<Server> {
        let listener = Arc::new(self.bind_listener(port)?);
        let (ready, pipes) = bounded(BACKLOG);
        let (open, closed) = bounded(0);
        let shared = Arc::new(Shared {
            local_addr: listener.local_addr(),
            listener: Mutex::new(Some(Arc::clone(&listener))),
            options: self.clone(),
            handshakes: Mutex::new(0),
            fewer: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("tdpipe-listen-{}", shared.local_addr.port()))
            .spawn(move || {
                listen(&own, &listener, &ready);
                drop(open);
            })
            .map_err(|error| Error::Setup(format!("no thread to listen: {error}").into()))?;
        Ok(Server { shared, pipes, closed, thread: Mutex::new(Some(thread)) })
    }
}

impl Server {
    /// Listens on `host`, an address or a name of this machine, and `port`; port 0 takes any free one. `0.0.0.0`
    /// listens on all IPv4 interfaces, `::` on IPv6.
    ///
    /// For other options: `Pipe::options()...server(port)`.
    ///
    /// # Errors
    /// * [`Error::AddrInUse`]: somebody listens there already.
    /// * [`Error::Resolve`], [`Error::Timeout`] with [`Phase::Resolve`], [`Error::Setup`], [`Error::Options`]:
    ///   as for [`PipeOptions::listen`].
    pub fn bind(host: &str, port: u16) -> Result<Self> {
        PipeOptions::default().bind(host).server(port)
    }

    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// The next client's pipe. Waits for ever, unless [`PipeOptions::accept_timeout`] says otherwise. May be called
    /// by several threads.
    ///
    /// Clients that fail in the handshake are not seen here; the log has them.
    ///
    /// # Errors
    /// * [`Error::ServerClosed`]: it was closed.
    /// * [`Error::Timeout`] with [`Phase::Accept`].
    pub fn accept(&self) -> Result<Pipe> {
        let timeout = self.shared.options.accept_timeout;
        self.accept_by(timeout.and_then(deadline_after), timeout.unwrap_or_default())
    }

    /// As [`accept`](Self::accept), but gives up after `timeout`.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tensordict_pipe::Server;
    ///
    /// let server = Server::bind("127.0.0.1", 0)?;
    /// assert!(server.try_accept()?.is_none());
    /// assert!(server.accept_timeout(Duration::from_millis(1)).unwrap_err().is_timeout());
    /// assert!(server.accept_deadline(Instant::now()).unwrap_err().is_timeout());
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`accept`](Self::accept).
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Pipe> {
        self.accept_by(deadline_after(timeout), timeout)
    }

    /// As [`accept`](Self::accept), but gives up at `deadline`.
    ///
    /// # Errors
    /// See [`accept`](Self::accept).
    pub fn accept_deadline(&self, deadline: Instant) -> Result<Pipe> {
        self.accept_by(Some(deadline), deadline.saturating_duration_since(Instant::now()))
    }

    /// The pipe of a client that has connected already, or `None`.
    ///
    /// # Errors
    /// [`Error::ServerClosed`].
    pub fn try_accept(&self) -> Result<Option<Pipe>> {
        match self.accept_by(Some(Instant::now()), Duration::ZERO) {
            Err(Error::Timeout { .. }) => Ok(None),
            accepted => accepted.map(Some),
        }
    }

    fn accept_by(&self, deadline: Deadline, after: Duration) -> Result<Pipe> {
        let expired = deadline.map_or_else(never, at);
        select_biased! {
            recv(self.pipes) -> pipe => pipe.map_err(|_| self.closed_error()),
            recv(self.closed) -> _ => Err(self.closed_error()),
            recv(expired) -> _ => {
                let peer = Peer::new(self.local_addr());
                Err(Error::Timeout { phase: Phase::Accept, peer, after, cause: None })
            }
        }
    }

    fn closed_error(&self) -> Error {
        Error::ServerClosed { address: self.local_addr() }
    }

    /// An iterator over the clients' pipes, which ends when the server is closed.
    ///
    /// ```no_run
    /// use tensordict_pipe::Server;
    ///
    /// let server = Server::bind("0.0.0.0", 13337)?;
    /// for mut pipe in server.incoming() {
    ///     std::thread::spawn(move || pipe.iter().for_each(|td| println!("{td}")));
    /// }
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    pub fn incoming(&self) -> impl Iterator<Item = Pipe> + '_ {
        std::iter::from_fn(|| loop {
            match self.accept() {
                Ok(pipe) => return Some(pipe),
                Err(error) if error.is_timeout() => {}
                Err(_) => return None,
            }
        })
    }

    /// Calls `handler` with each client's pipe, each call in a thread of its own, until the server is
    /// [`close`](Self::close)d by another thread; then waits for the handlers to return.
    ///
    /// A handler that panics ends its own client's pipe, and nothing else.
    ///
    /// ```
    /// use tensordict_pipe::{Pipe, Server, TensorDict};
    ///
    /// let server = Server::bind("127.0.0.1", 0)?;
    /// let port = server.local_addr().port();
    /// std::thread::scope(|scope| -> tensordict_pipe::Result<()> {
    ///     scope.spawn(|| {
    ///         server.serve(|mut pipe| {
    ///             while let Ok(td) = pipe.recv() {
    ///                 pipe.send(&td).ok();
    ///             }
    ///         })
    ///     });
    ///     let mut pipe = Pipe::connect("127.0.0.1", port)?;
    ///     pipe.send(&TensorDict::new([3]))?;
    ///     pipe.recv()?;
    ///     pipe.close()?;
    ///     server.close();
    ///     Ok(())
    /// })?;
    /// # Ok::<(), tensordict_pipe::Error>(())
    /// ```
    pub fn serve(&self, handler: impl Fn(Pipe) + Sync) {
        std::thread::scope(|scope| {
            for pipe in self.incoming() {
                let peer = pipe.peer().clone();
                let run = || {
                    let name = pipe.peer().clone();
                    if catch_unwind(AssertUnwindSafe(|| handler(pipe))).is_err() {
                        log::error!("the handler of {name} panicked");
                    }
                };
                let thread = std::thread::Builder::new().name(format!("tdpipe-serve-{peer}"));
                if let Err(error) = thread.spawn_scoped(scope, run) {
                    log::error!("no thread for {peer}: {error}");
                }
            }
        });
    }

    /// Stops listening: clients that wait or are in the handshake are refused or hung up on, and every `accept` returns
    /// [`Error::ServerClosed`], after the pipes that were established already. Pipes that were accepted live on.
    /// Closing twice is nothing.
    pub fn close(&self) {
        if let Some(listener) = self.shared.listener.lock().take() {
            listener.interrupt();
        }
        // Under the lock, so that the thread is not between looking and waiting.
        let handshakes = self.shared.handshakes.lock();
        self.shared.fewer.notify_all();
        drop(handshakes);
        if let Some(thread) = self.thread.lock().take() {
            if thread.join().is_err() {
                log::error!("the listening thread of {} panicked", self.local_addr());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

/// The listening thread.
fn listen(shared: &Arc<Shared>, listener: &UcxListener, ready: &Sender<Pipe>) {
    loop {
        let mut handshakes = shared.handshakes.lock();
        while *handshakes >= MOST_HANDSHAKES && !listener.is_interrupted() {
            shared.fewer.wait(&mut handshakes);
        }
        drop(handshakes);
        match listener.accept(None) {
            Ok(connecting) => {
                *shared.handshakes.lock() += 1;
                let (own, ready) = (Arc::clone(shared), ready.clone());
                let name = format!("tdpipe-handshake-{}", shared.local_addr.port());
                let spawned = std::thread::Builder::new().name(name).spawn(move || {
                    let established = own.options.accepted(connecting);
                    *own.handshakes.lock() -= 1;
                    own.fewer.notify_all();
                    match established {
                        // The server may have been dropped meanwhile.
                        Ok(pipe) => drop(ready.send(pipe)),
                        Err(error) => log::warn!("a client of {} was dropped: {error}", own.local_addr),
                    }
                });
                if let Err(error) = spawned {
                    log::error!("no thread for a handshake: {error}");
                    *shared.handshakes.lock() -= 1;
                }
            }
            Err(EstablishError::Link(LinkError::Closed | LinkError::Forked)) => return,
            Err(error) => log::warn!("a client of {} could not be accepted: {error}", shared.local_addr),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::data::TensorDict;
    use crate::ucx::{Connecting, Settings};

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(100);
    /// Far more than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A client that is in the handshake and says nothing.
    fn stalled(address: SocketAddr) -> Connecting {
        let client = Connecting::to(address, &Settings::new(Vec::new()), Duration::ZERO).expect("begins to connect");
        client.only_hear(deadline_after(PATIENCE)).expect("greeted");
        client
    }

    fn options() -> PipeOptions {
        Pipe::options().bind("127.0.0.1")
    }

    #[test]
    fn clients_that_stall_in_the_handshake_hold_up_nobody() {
        let server = options().handshake_timeout(LONG).server(0).expect("a free port");
        let address = server.local_addr();
        let stalled = [stalled(address), stalled(address), stalled(address)];
        assert_eq!(*server.shared.handshakes.lock(), stalled.len());
        let mut client = Pipe::connect("127.0.0.1", address.port()).expect("a listener");
        let mut served = server.accept_timeout(PATIENCE).expect("a client");
        client.send(&TensorDict::new([3])).expect("sent");
        assert_eq!(served.recv().expect("received").batch_size()[..], [3]);
        assert!(server.try_accept().expect("open").is_none());

        server.close();
        assert!(matches!(server.accept(), Err(Error::ServerClosed { .. })), "although three are in the handshake");
        drop(stalled);
        let mut handshakes = server.shared.handshakes.lock();
        while *handshakes > 0 {
            let waited = server.shared.fewer.wait_for(&mut handshakes, PATIENCE);
            assert!(!waited.timed_out(), "{handshakes} handshakes go on although their clients have gone");
        }
    }

    #[test]
    fn the_handshake_has_a_deadline() {
        let start = Instant::now();
        let listening = options().accept_timeout(SHORT).handshake_timeout(LONG).listener(0).expect("a free port");
        let address = listening.local_addr();
        let client = std::thread::spawn(move || stalled(address));
        let error = listening.accept().expect_err("it says nothing");
        assert!(matches!(error, Error::Timeout { phase: Phase::Handshake, .. }), "{error}");
        assert!(start.elapsed() >= SHORT);
        client.join().expect("greeted");
    }

    #[test]
    fn listen_goes_on_after_clients_that_fail_in_the_handshake() {
        let listening = options().accept_timeout(PATIENCE).handshake_timeout(SHORT).listener(0).expect("a free port");
        let address = listening.local_addr();
        let clients = std::thread::spawn(move || {
            let silent = stalled(address);
            drop(stalled(address));
            let client = Pipe::options().connect_timeout(LONG).connect("127.0.0.1", address.port());
            drop(silent);
            client.expect("a listener")
        });
        let mut pipe = listening.accept().expect("the third");
        let mut client = clients.join().expect("no panic");
        client.send(&TensorDict::new([3])).expect("sent");
        assert_eq!(pipe.recv().expect("received").batch_size()[..], [3]);
        let closing = std::thread::spawn(move || client.close());
        pipe.close().expect("closed");
        closing.join().expect("no panic").expect("closed");
    }
}
