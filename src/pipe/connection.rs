//! [`Connection`]: what the two halves of a pipe share: the link, how it ended, and how to end it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use super::kind;
use super::timer::Timer;
use crate::error::{Error, Peer, Phase, Result};
use crate::link::{deadline_after, Kind, Lane, Link, LinkError, Message, Payload, Received, RecvFailure, Target};

/// How long a pipe that is dropped while its thread panics may take to say goodbye.
const CLOSE_IN_PANIC: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Connection<L: Link> {
    pub(super) link: L,
    pub(super) peer: Peer,
    /// The first final error; every later call returns it.
    failure: OnceLock<Error>,
    /// TensorDicts handed over, and received.
    sent: AtomicU64,
    received: AtomicU64,
    /// How many of ours a peer that said goodbye has not read.
    unread: AtomicU64,
    close_timeout: Duration,
}

/// One `u64` as a short message.
pub(super) fn number(lane: Lane, kind: Kind, bytes: &[u8; 8]) -> Message<'_> {
    Message { lane, kind, payload: Payload::Small(bytes) }
}

impl<L: Link> Connection<L> {
    pub(super) fn new(link: L, peer: Peer, close_timeout: Duration) -> Self {
        let counter = AtomicU64::default;
        Self {
            link,
            peer,
            failure: OnceLock::new(),
            sent: counter(),
            received: counter(),
            unread: counter(),
            close_timeout,
        }
    }

    /// Why the pipe is finished, if it is.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Remembers a final error; the first stays.
    pub(super) fn fail(&self, error: Error) -> Error {
        if error.is_final() {
            log::debug!("pipe with {} ends: {error}", self.peer);
            let _ = self.failure.set(error.clone());
        }
        error
    }

    pub(super) fn closed(&self) -> Error {
        Error::Closed { peer: self.peer.clone() }
    }

    // Each counter has one writer, so a load and a store will do.
    pub(super) fn count_sent(&self) {
        self.sent.store(self.sent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(super) fn count_received(&self) {
        self.received.store(self.received.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The public error for what the link said.
    pub(super) fn explain(&self, phase: Phase, timer: Timer, during: &'static str, error: LinkError) -> Error {
        let peer = self.peer.clone();
        match error {
            LinkError::Expired => Error::Timeout { phase, peer, after: timer.elapsed(), cause: None },
            LinkError::Gone { cause } => Error::Disconnected { peer, during, cause: cause.into() },
            LinkError::TooLong { capacity } => Error::Protocol {
                peer,
                reason: format!("{during} at most {capacity} bytes were due, and a longer message came").into(),
            },
            LinkError::Failed { operation, cause } => Error::Transport { operation, peer, cause: cause.into() },
            LinkError::Forked => Error::Forked,
            LinkError::Closed => Error::Closed { peer },
        }
    }

    /// Answers a goodbye after `sent` messages; the peer waits for it. What the pipe ends with then.
    pub(super) fn answer_goodbye(&self, sent: u64) -> Error {
        let deadline = deadline_after(self.close_timeout);
        let received = self.received.load(Ordering::Relaxed);
        let count = received.to_le_bytes();
        let answer = [number(Lane::Control, kind::RECEIVED, &count)];
        // It says goodbye on both lanes.
        let leaving = self.link.recv(Lane::Control, Target::Small, deadline);
        let read = leaving.as_ref().ok().filter(|leaving| leaving.kind == kind::LEAVING).and_then(small_number);
        if let Some(read) = read {
            self.unread.store(self.sent.load(Ordering::Relaxed).saturating_sub(read), Ordering::Relaxed);
        }
        if let Err(error) = self.link.send(&answer, deadline) {
            log::debug!("goodbye of {} not answered: {error} ({leaving:?})", self.peer);
        }
        if sent != received {
            let reason = format!("it says goodbye after {sent} messages, and {received} came").into();
            return Error::Protocol { peer: self.peer.clone(), reason };
        }
        self.closed()
    }

    /// Says goodbye, waits until the peer has received everything, and closes. Afterwards every call says `Closed`.
    pub(super) fn close(&self, timeout: Duration) -> Result<()> {
        if let Some(error) = self.failure() {
            // After a goodbye the answer to it must still go out; after a failure there is nothing to wait for.
            let timeout = if error.is_closed() { timeout } else { Duration::ZERO };
            let _ = self.link.close(deadline_after(timeout));
            return if error.is_closed() {
                self.all_read(self.unread.load(Ordering::Relaxed))
            } else {
                Err(error.clone())
            };
        }
        let timer = Timer::new(Some(timeout));
        let parted = if self.link.has_kinds() { self.part(timer) } else { Ok(()) };
        let _ = self.failure.set(self.closed());
        let closed = self.link.close(timer.deadline).map_err(|e| self.explain(Phase::Close, timer, "while closing", e));
        log::debug!("pipe with {} closed: {parted:?}, {closed:?}", self.peer);
        // A peer that knows goodbyes has said what it received; to another, a flush is all there is.
        if self.link.has_kinds() {
            parted
        } else {
            closed
        }
    }

    /// The goodbye of two of ours. Each end tells how much it has received, so that both know what was lost.
    fn part(&self, timer: Timer) -> Result<()> {
        let explain = |error| self.explain(Phase::Close, timer, "before it had received everything", error);
        let sent = self.sent.load(Ordering::Relaxed);
        let received = self.received.load(Ordering::Relaxed).to_le_bytes();
        let sent_bytes = sent.to_le_bytes();
        let messages =
            [number(Lane::Data, kind::GOODBYE, &sent_bytes), number(Lane::Control, kind::LEAVING, &received)];
        self.link.send(&messages, timer.deadline).map_err(explain)?;
        let answer = match self.link.recv(Lane::Control, Target::Small, timer.deadline) {
            Ok(answer) => answer,
            Err(RecvFailure::Error(error)) => return Err(explain(error)),
            Err(RecvFailure::Expired(_) | RecvFailure::Underway(_)) => return Err(explain(LinkError::Expired)),
        };
        let Some(received) = small_number(&answer).filter(|_| matches!(answer.kind, kind::RECEIVED | kind::LEAVING))
        else {
            let reason = format!("an answer of kind {} and {} bytes to a goodbye", answer.kind.0, answer.len).into();
            return Err(Error::Protocol { peer: self.peer.clone(), reason });
        };
        self.all_read(sent.saturating_sub(received))
    }

    fn all_read(&self, unread: u64) -> Result<()> {
        match unread {
            0 => Ok(()),
            unread => Err(Error::Unread { peer: self.peer.clone(), unread }),
        }
    }
}

/// The `u64` of a short message.
pub(super) fn small_number(received: &Received) -> Option<u64> {
    let bytes = received.block.as_ref().map_or(&received.small[..], |block| block.as_bytes());
    (received.len == 8).then(|| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))).flatten()
}

impl<L: Link> Drop for Connection<L> {
    fn drop(&mut self) {
        let timeout = if std::thread::panicking() { CLOSE_IN_PANIC } else { self.close_timeout };
        if let Err(error) = self.close(timeout) {
            if !matches!(error, Error::Forked) {
                log::debug!("pipe with {} dropped: {error}", self.peer);
            }
        }
    }
}
