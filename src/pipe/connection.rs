//! [`Connection`]: what the two halves of a pipe share: the link, how it ended, and how to end it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use super::info::Counters;
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
    pub(super) sent: Counters,
    pub(super) received: Counters,
    /// The peer has confirmed that it received everything, and nothing more will be sent.
    finished: AtomicBool,
    /// How many of ours a peer that said goodbye has received.
    read: OnceLock<u64>,
    close_timeout: Duration,
}

/// One `u64` as a short message.
pub(super) fn number(lane: Lane, kind: Kind, bytes: &[u8; 8]) -> Message<'_> {
    Message { lane, kind, payload: Payload::Small(bytes) }
}

impl<L: Link> Connection<L> {
    pub(super) fn new(link: L, peer: Peer, close_timeout: Duration) -> Self {
        Self {
            link,
            peer,
            failure: OnceLock::new(),
            sent: Counters::default(),
            received: Counters::default(),
            finished: AtomicBool::new(false),
            read: OnceLock::new(),
            close_timeout,
        }
    }

    pub(super) fn close_timeout(&self) -> Duration {
        self.close_timeout
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

    /// Answers a goodbye; the peer waits for it. It says that it has sent and received so many. What the pipe ends with.
    pub(super) fn answer_goodbye(&self, sent: u64, received: u64) -> Error {
        let _ = self.read.set(received);
        self.answer_finished(sent)
    }

    /// Tells a peer that has sent so many how many were received. What the direction ends with.
    pub(super) fn answer_finished(&self, sent: u64) -> Error {
        let received = self.received.messages();
        let count = received.to_le_bytes();
        let answer = [number(Lane::Control, kind::RECEIVED, &count)];
        if let Err(error) = self.link.send(&answer, deadline_after(self.close_timeout)) {
            log::debug!("goodbye of {} not answered: {error}", self.peer);
        }
        if sent == received {
            return self.closed();
        }
        let reason = format!("it ends after {sent} messages, and {received} came").into();
        Error::Protocol { peer: self.peer.clone(), reason }
    }

    /// Ends the sending direction only; waits until the peer has received everything.
    pub(super) fn finish_sending(&self, timer: Timer) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        if !self.link.has_kinds() {
            return Err(Error::Unsupported { peer: self.peer.clone(), what: "an end of one direction only" });
        }
        let count = self.sent.messages().to_le_bytes();
        self.ask(&[number(Lane::Data, kind::FINISHED, &count)], timer)?;
        self.finished.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Breaks the connection.
    pub(super) fn abort(&self) {
        let _ = self.failure.set(self.closed());
        self.link.abort();
    }

    /// Says goodbye, waits until the peer has received everything, and closes. Afterwards every call says `Closed`.
    pub(super) fn close(&self, timer: Timer) -> Result<()> {
        if let Some(error) = self.failure() {
            // After a goodbye the answer to it must still go out; after a failure there is nothing to wait for.
            let deadline = if error.is_closed() { timer.deadline } else { deadline_after(Duration::ZERO) };
            let _ = self.link.close(deadline);
            return match (error.is_closed(), self.read.get()) {
                (true, Some(read)) => self.all_read(*read),
                (true, None) => Ok(()),
                (false, _) => Err(error.clone()),
            };
        }
        let finished = self.finished.load(Ordering::Relaxed);
        if finished {
            self.leave(timer);
        }
        let parted = if self.link.has_kinds() && !finished { self.part(timer) } else { Ok(()) };
        let _ = self.failure.set(self.closed());
        log::debug!("pipe with {} closes: {parted:?}", self.peer);
        if self.link.has_kinds() {
            // The peer has said what it received: there is nothing left to wait for, but that our last word goes out.
            let _ = self.link.close(if finished { timer.deadline } else { deadline_after(Duration::ZERO) });
            return parted;
        }
        match self.link.close(timer.deadline) {
            // It closed, too, and was owed nothing.
            Err(LinkError::Gone { .. }) if self.sent.messages() == 0 => Ok(()),
            closed => closed.map_err(|error| self.explain(Phase::Close, timer, "while closing", error)),
        }
    }

    /// The goodbye of two of ours. Each end tells how much it has received, so that both know what was lost.
    fn part(&self, timer: Timer) -> Result<()> {
        let received = self.received.messages().to_le_bytes();
        let mut counts = [0; 16];
        counts[..8].copy_from_slice(&self.sent.messages().to_le_bytes());
        counts[8..].copy_from_slice(&received);
        let goodbye = Message { lane: Lane::Data, kind: kind::GOODBYE, payload: Payload::Small(&counts) };
        self.ask(&[goodbye, number(Lane::Control, kind::LEAVING, &received)], timer)
    }

    /// The last word of an end that has finished before: what it has received of what the peer sent since.
    fn leave(&self, timer: Timer) {
        let received = self.received.messages().to_le_bytes();
        if let Err(error) = self.link.send(&[number(Lane::Control, kind::LEAVING, &received)], timer.deadline) {
            log::debug!("{} is not told of the end: {error}", self.peer);
        }
    }

    /// Sends an end and waits for the answer, which says whether everything was received.
    fn ask(&self, messages: &[Message<'_>], timer: Timer) -> Result<()> {
        let explain = |error| self.explain(Phase::Close, timer, "before it had received everything", error);
        let sent = messages.iter().try_for_each(|message| {
            // The peer may have left, and its last words have come.
            self.link.take_in();
            self.link.send(std::slice::from_ref(message), timer.deadline)
        });
        // A peer that is gone may have left its answer.
        let deadline = if sent.is_ok() { timer.deadline } else { deadline_after(Duration::ZERO) };
        let answer = match (self.link.recv(Lane::Control, Target::Small, deadline), sent) {
            (Ok(answer), _) => answer,
            (Err(_), Err(error)) => return Err(explain(error)),
            (Err(RecvFailure::Error(error)), _) => return Err(explain(error)),
            (Err(RecvFailure::Expired(_) | RecvFailure::Underway(_)), _) => return Err(explain(LinkError::Expired)),
        };
        let Some(received) = small_number(&answer).filter(|_| matches!(answer.kind, kind::RECEIVED | kind::LEAVING))
        else {
            let reason = format!("an answer of kind {} and {} bytes to a goodbye", answer.kind.0, answer.len).into();
            return Err(Error::Protocol { peer: self.peer.clone(), reason });
        };
        self.all_read(received)
    }

    fn all_read(&self, received: u64) -> Result<()> {
        match self.sent.messages().saturating_sub(received) {
            0 => Ok(()),
            unread => Err(Error::Unread { peer: self.peer.clone(), unread }),
        }
    }
}

/// The two `u64` of a short message.
pub(super) fn small_numbers(received: &Received) -> Option<(u64, u64)> {
    let bytes = received.block.as_ref().map_or(&received.small[..], |block| block.as_bytes());
    let (first, rest) = bytes.split_first_chunk().filter(|_| received.len == 16)?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(*rest.first_chunk()?)))
}

/// The `u64` of a short message.
pub(super) fn small_number(received: &Received) -> Option<u64> {
    let bytes = received.block.as_ref().map_or(&received.small[..], |block| block.as_bytes());
    (received.len == 8).then(|| bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))).flatten()
}

impl<L: Link> Drop for Connection<L> {
    fn drop(&mut self) {
        let timeout = if std::thread::panicking() { CLOSE_IN_PANIC } else { self.close_timeout };
        if let Err(error) = self.close(Timer::new(Some(timeout))) {
            if !matches!(error, Error::Forked) {
                log::debug!("pipe with {} dropped: {error}", self.peer);
            }
        }
    }
}
