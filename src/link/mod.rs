//! The seam between the protocol and the transport: ordered messages of bytes, with deadlines.
//!
//! A link connects two ends. Each message has a [`Kind`] and a length that the receiver learns; what they mean is the
//! protocol's business. Two implementations: UCX (`ucx::UcxLink`) and, for tests, an in-memory one with faults.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::storage::{Gather, Storage, RECEIVABLE};

pub(crate) mod handshake;
#[cfg(test)]
pub(crate) mod loopback;

/// When to give up; `None` is never.
pub(crate) type Deadline = Option<Instant>;

/// The instant `timeout` from now; one that overflows the clock is never.
pub(crate) fn deadline_after(timeout: Duration) -> Deadline {
    Instant::now().checked_add(timeout)
}

/// A message for a [`Target::Small`] has at most this many bytes.
pub(crate) const SMALL_BYTES: usize = RECEIVABLE;

/// What a message is, by the sender's word. A peer that does not know kinds sends [`Kind::PLAIN`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    pub(crate) const PLAIN: Self = Self(0);
}

/// The two independent streams of a link; each is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Everything that is received one after the other.
    Data,
    /// Answers that must not queue behind unread data. Only between two ends that know kinds.
    Control,
}

/// The bytes of an outgoing message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// At most [`SMALL_BYTES`], copied.
    Small(&'a [u8]),
    /// A range of a block. The link shares the block for as long as the transport may read it.
    Block { storage: &'a Storage, offset: usize, len: usize },
    /// Bytes in many places. Shared as a block is.
    Gather(&'a Arc<Gather>),
}

impl Payload<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Small(bytes) => bytes.len(),
            Self::Block { len, .. } => *len,
            Self::Gather(gather) => gather.len(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) lane: Lane,
    pub(crate) kind: Kind,
    pub(crate) payload: Payload<'a>,
}

/// Where the next message shall go.
#[derive(Debug)]
pub(crate) enum Target {
    /// Into [`Received::small`].
    Small,
    /// Into this block, of which it must be the only handle; it comes back in [`Received::block`].
    Block(Storage),
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) kind: Kind,
    /// How many bytes came; the rest of the target is as it was.
    pub(crate) len: usize,
    pub(crate) small: [u8; SMALL_BYTES],
    pub(crate) block: Option<Storage>,
}

/// Why a receive gave no message.
#[derive(Debug)]
pub(crate) enum RecvFailure<P> {
    /// The deadline passed before the message had begun to arrive. Nothing is lost, and the block comes back.
    Expired(Option<Storage>),
    /// The message has not arrived, or its bytes were arriving when the deadline passed: the receive goes on and is
    /// taken up by [`Link::resume`].
    Underway(P),
    /// The link is finished.
    Error(LinkError),
}

/// One end of a connection.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    /// A receive that could not be taken back when its deadline passed.
    type Pending: Send + fmt::Debug;

    /// Sends the messages in order; returns when all their bytes may be reused.
    ///
    /// After an error some may have been sent and some not: the link is finished.
    fn send(&self, messages: &[Message<'_>], deadline: Deadline) -> Result<(), LinkError>;

    /// Begins to receive the next message of `lane`. One that has not arrived yet is [`RecvFailure::Underway`].
    fn begin_recv(&self, lane: Lane, target: Target) -> Result<Received, RecvFailure<Self::Pending>>;

    /// Receives the next message of `lane`.
    fn recv(&self, lane: Lane, target: Target, deadline: Deadline) -> Result<Received, RecvFailure<Self::Pending>> {
        match self.begin_recv(lane, target) {
            Err(RecvFailure::Underway(pending)) => self.resume(pending, deadline),
            received => received,
        }
    }

    /// Goes on with a receive that has begun, or whose deadline had passed.
    fn resume(&self, pending: Self::Pending, deadline: Deadline) -> Result<Received, RecvFailure<Self::Pending>>;

    /// Takes in what has arrived, unless it is very much. A send that finds the connection broken may lose it.
    fn take_in(&self) {}

    /// Whether the peer understands kinds, so that messages have them and there is a control lane.
    fn has_kinds(&self) -> bool;

    /// Breaks the connection at once, so that whoever waits on this end stops waiting.
    fn abort(&self);

    /// Closes this end, after everything sent has been handed over. Closing twice is nothing.
    fn close(&self, deadline: Deadline) -> Result<(), LinkError>;
}

/// What can go wrong below the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the deadline passed")]
    Expired,
    /// The other end closed or died; everything that had arrived before was received.
    #[error("the connection is gone ({cause})")]
    Gone { cause: String },
    #[error("a message of more than the {capacity} bytes expected arrived")]
    TooLong { capacity: usize },
    #[error("{operation} failed: {cause}")]
    Failed { operation: &'static str, cause: String },
    #[error("this process is a fork of the one that opened the connection; open a connection of its own")]
    Forked,
    #[error("this end is closed")]
    Closed,
}
