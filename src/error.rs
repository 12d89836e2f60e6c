//! [`Error`]: everything that a pipe's calls return, by who is at fault.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::wire::{DecodeError, EncodeError};

/// The result of a call of a [`Pipe`](crate::Pipe).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a call was doing when its deadline passed.
///
/// ```no_run
/// use tensordict_pipe::{Error, Phase, Pipe};
///
/// match Pipe::connect("node-b", 13337) {
///     Err(Error::Timeout { phase: Phase::Resolve, .. }) => println!("is the name server there?"),
///     Err(Error::Timeout { phase: Phase::Connect, .. }) => println!("is the listener there?"),
///     connected => drop(connected?),
/// }
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Asking the resolver for the addresses of a name (`connect`, `bind`).
    Resolve,
    /// Waiting for a listener to answer (`connect`).
    Connect,
    /// Waiting for a client (`listen`, `accept`).
    Accept,
    /// Exchanging tags with a peer that had connected.
    Handshake,
    /// Waiting for the peer to take a message.
    Send,
    /// Waiting for a message.
    Recv,
    /// Waiting for the peer to have received everything.
    Close,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Accept => "accept",
            Self::Handshake => "handshake",
            Self::Send => "send",
            Self::Recv => "recv",
            Self::Close => "close",
        })
    }
}

/// What can go wrong with a pipe.
///
/// [`Error::is_final`] tells whether the pipe is finished: after such an error every later call returns the same one.
///
/// ```no_run
/// use tensordict_pipe::Pipe;
///
/// let mut pipe = Pipe::listen(13337)?;
/// loop {
///     match pipe.recv() {
///         Ok(td) => println!("{td}"),
///         Err(error) if error.is_closed() => break,
///         Err(error) if error.is_timeout() => println!("nothing yet"),
///         Err(error) if error.is_final() => return Err(error),
///         Err(error) => println!("{error}; the pipe goes on"),
///     }
/// }
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer closed the pipe after a whole message, or this end was closed. Final.
    #[error("the pipe with {peer} is closed")]
    Closed {
        /// The other end.
        peer: Peer,
    },
    /// The server was closed.
    #[error("the server on {address} is closed")]
    ServerClosed {
        /// Where it listened.
        address: SocketAddr,
    },
    /// A deadline passed. Final for `send` (what was handed to UCX cannot be taken back) and `close`; after an
    /// expired `recv` nothing is lost and the pipe goes on.
    #[error("{phase}{} {peer}: no success within {after:?}{}", preposition(*.phase), detail(.cause))]
    Timeout {
        /// What was being done.
        phase: Phase,
        /// The other end, or the address that was tried.
        peer: Peer,
        /// The time that was allowed.
        after: Duration,
        /// What the last try said, if anything.
        cause: Option<Box<str>>,
    },
    /// The peer went away without closing the pipe: it died, or the connection broke. Final.
    #[error("{peer} is gone {during}: {cause}")]
    Disconnected {
        /// The other end.
        peer: Peer,
        /// Where in the exchange, such as `in the middle of a message`.
        during: &'static str,
        /// UCX's words.
        cause: Box<str>,
    },
    /// The pipe was closed before the peer had received everything. Final.
    #[error("{peer} closed without reading {unread} of the messages sent to it")]
    Unread {
        /// The other end.
        peer: Peer,
        /// How many messages it did not receive.
        unread: u64,
    },
    /// A host name that the resolver does not know.
    #[error("cannot resolve {host:?}: {cause}; check the spelling, or use an IP address")]
    Resolve {
        /// The name.
        host: Box<str>,
        /// The resolver's words.
        cause: Box<str>,
    },
    /// The listener is there but refuses this client.
    #[error(
        "{peer} refused the connection: {cause}. Either its pipe is taken already (`Server` accepts many clients), \
         or the two ends have UCX versions that do not fit (this one is {ucx}): use one version, or set \
         UCX_CM_USE_ALL_DEVICES=n on both ends"
    )]
    Refused {
        /// The address that was tried.
        peer: Peer,
        /// UCX's words.
        cause: Box<str>,
        /// The version of UCX in this process.
        ucx: Box<str>,
    },
    /// The port to listen on is taken.
    #[error("the address {0} is in use; choose another port, or 0 for any free one")]
    AddrInUse(SocketAddr),
    /// The TensorDict cannot be sent; nothing was, and the pipe goes on.
    #[error("cannot send: {0}")]
    Encode(#[from] EncodeError),
    /// What the peer sent is not what it should be. Final, unless [`DecodeError::is_recoverable`].
    #[error("{peer} sent something wrong: {source}")]
    Decode {
        /// The other end.
        peer: Peer,
        /// What is wrong.
        source: Box<DecodeError>,
    },
    /// A message of another kind or length than the protocol has at this place. Final.
    #[error("{peer} broke the protocol: {reason}")]
    Protocol {
        /// The other end.
        peer: Peer,
        /// What was expected and what came.
        reason: Box<str>,
    },
    /// UCX could not do what was asked. Final where a pipe exists already.
    #[error("{operation} with {peer} failed: {cause}")]
    Transport {
        /// The operation, such as `recv`.
        operation: &'static str,
        /// The other end.
        peer: Peer,
        /// UCX's words.
        cause: Box<str>,
    },
    /// UCX could not be set up.
    #[error("cannot set up UCX: {0}")]
    Setup(Box<str>),
    /// An option with a value that makes no sense.
    #[error("{0}")]
    Options(Box<str>),
    /// Something that the peer cannot do. Nothing happened, the pipe goes on.
    #[error("{peer} does not know {what}")]
    Unsupported {
        /// The other end.
        peer: Peer,
        /// What was asked for.
        what: &'static str,
    },
    /// This process was forked from the one that owns the pipe. Final.
    #[error("this process is a fork of the one that opened the pipe; open a pipe of its own")]
    Forked,
}

impl Error {
    /// Whether the peer closed the pipe properly, or this end did.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether a deadline passed.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Whether the pipe that returned it is finished.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Encode(_) | Self::Unsupported { .. } => false,
            Self::Timeout { phase, .. } => *phase != Phase::Recv,
            Self::Decode { source, .. } => !source.is_recoverable(),
            _ => true,
        }
    }
}

fn detail(cause: &Option<Box<str>>) -> String {
    cause.as_ref().map_or_else(String::new, |cause| format!(": {cause}"))
}

fn preposition(phase: Phase) -> &'static str {
    match phase {
        Phase::Resolve => "",
        Phase::Connect | Phase::Send => " to",
        Phase::Accept => " on",
        Phase::Recv => " from",
        Phase::Handshake | Phase::Close => " with",
    }
}

/// The other end of a pipe, for messages: its address, or what is known of it.
///
/// ```no_run
/// use tensordict_pipe::Pipe;
///
/// let pipe = Pipe::listen(13337)?;
/// println!("a pipe with {}", pipe.peer());
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer(Box<str>);

impl Peer {
    pub(crate) fn new(name: impl fmt::Display) -> Self {
        Self(name.to_string().into())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stay_small() {
        assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    }

    #[test]
    fn an_expired_receive_is_not_final_and_an_expired_send_is() {
        let timeout = |phase| Error::Timeout { phase, peer: Peer::new("x"), after: Duration::ZERO, cause: None };
        assert!(!timeout(Phase::Recv).is_final() && timeout(Phase::Send).is_final());
        assert!(Error::Forked.is_final() && !Error::Forked.is_timeout());
    }
}
