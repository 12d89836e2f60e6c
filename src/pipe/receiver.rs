//! [`Receiver`]: the receiving half: from messages to a TensorDict.
//!
//! A receive goes through [`Stage`]s and may stop after any of them when its deadline passes; the next call goes on
//! where it stopped. So a message is never lost and never taken for another.

use std::sync::Arc;

use super::connection::{small_number, Connection};
use super::kind;
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Phase, Result};
use crate::link::{Kind, Lane, Link, LinkError, Received, RecvFailure, Target, SMALL_BYTES};
use crate::storage::Storage;
use crate::wire::{self, DecodeError, Format, RecvSession};

/// Where a receive into an existing TensorDict put the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Into the storage that it had: the layout was the same, and nobody else held the storage.
    InPlace,
    /// The TensorDict was replaced by a new one.
    Replaced,
}

/// What is awaited next.
#[derive(Debug)]
enum Stage {
    /// The first part of a message.
    Head,
    /// The length of the metadata, after Python's flag.
    Length,
    /// Metadata or leaf-by-leaf header of this many bytes.
    Header(usize),
    /// The storage, or the next leaf.
    Body,
}

#[derive(Debug)]
pub(super) struct Receiver<L: Link> {
    connection: Arc<Connection<L>>,
    session: RecvSession,
    format: Format,
    stage: Stage,
    /// A receive that outlived its deadline.
    pending: Option<L::Pending>,
    /// The leaves received so far of a leaf-by-leaf message.
    leaves: Vec<Storage>,
    /// The TensorDict to receive into, until its storage is claimed.
    into: Option<TensorDict>,
    claimed: bool,
    /// Stands in for a TensorDict that is being received into.
    empty: TensorDict,
    /// The peer will send nothing more, though it may still receive.
    ended: bool,
    /// The message under way began with a new schema.
    schema: bool,
}

impl<L: Link> Receiver<L> {
    pub(super) fn new(connection: Arc<Connection<L>>, session: RecvSession, format: Format) -> Self {
        Self {
            connection,
            session,
            format,
            stage: Stage::Head,
            pending: None,
            leaves: Vec::new(),
            into: None,
            claimed: false,
            empty: TensorDict::new([]),
            ended: false,
            schema: false,
        }
    }

    pub(super) fn recv(&mut self, timer: Timer) -> Result<TensorDict> {
        if let Some(error) = self.connection.failure() {
            return Err(error.clone());
        }
        if self.ended {
            return Err(self.connection.closed());
        }
        match self.run(timer) {
            Ok(td) => {
                let bytes = self.session.body_len().unwrap_or(0) as u64;
                let schema = std::mem::take(&mut self.schema);
                self.connection.received.count(bytes, schema, self.session.allocations());
                Ok(td)
            }
            Err(error) if self.ended => Err(error),
            Err(error) => Err(self.connection.fail(error)),
        }
    }

    pub(super) fn recv_into(&mut self, td: &mut TensorDict, timer: Timer) -> Result<Placed> {
        self.into = Some(std::mem::replace(td, self.empty.clone()));
        self.claimed = false;
        let received = self.recv(timer);
        let left = self.into.take();
        match received {
            Ok(new) => {
                *td = new;
                Ok(if std::mem::take(&mut self.claimed) { Placed::InPlace } else { Placed::Replaced })
            }
            Err(error) => {
                // If its storage went with a broken receive, the values are zeroes.
                *td = left.or_else(|| self.zeroes()).unwrap_or_else(|| self.empty.clone());
                Err(error)
            }
        }
    }

    /// A TensorDict of the schema in force.
    fn zeroes(&mut self) -> Option<TensorDict> {
        let len = self.session.body_len()?;
        self.session.finish(Storage::zeroed(len.max(SMALL_BYTES))).ok()
    }

    fn run(&mut self, timer: Timer) -> Result<TensorDict> {
        loop {
            let done = match self.stage {
                Stage::Head => self.head(timer)?,
                Stage::Length => self.length(timer)?,
                Stage::Header(len) => self.header(len, timer)?,
                Stage::Body => self.body(timer)?,
            };
            if let Some(td) = done {
                return Ok(td);
            }
        }
    }

    /// The first part: a flag or a length from Python; from one of ours anything that a message may begin with, and
    /// if it is the storage of the schema in force, the whole message.
    fn head(&mut self, timer: Timer) -> Result<Option<TensorDict>> {
        let speculate = self.connection.link.has_kinds() && self.session.body_len().is_some();
        let got = self.next(speculate, timer)?;
        match got.kind {
            Kind::PLAIN if !self.connection.link.has_kinds() => self.plain_head(&got),
            kind::SAME_SCHEMA if self.format == Format::Consolidated => self.finish(got),
            kind::NEW_SCHEMA | kind::LEAF_BY_LEAF => {
                let expected = if self.format == Format::Consolidated { kind::NEW_SCHEMA } else { kind::LEAF_BY_LEAF };
                if got.kind != expected {
                    return Err(self.mode_mismatch());
                }
                let len = small_number(&got).ok_or_else(|| self.wrong("the length of a header", &got))?;
                self.give_back(got);
                self.expect_header(len)
            }
            kind::SAME_SCHEMA => Err(self.mode_mismatch()),
            kind::FINISHED => {
                self.ended = true;
                self.connection.answer_finished();
                Err(self.connection.closed())
            }
            kind::GOODBYE => {
                self.connection.answer_goodbye();
                Err(self.connection.closed())
            }
            _ => Err(self.wrong("the beginning of a message", &got)),
        }
    }

    fn plain_head(&mut self, got: &Received) -> Result<Option<TensorDict>> {
        match (self.format, got.len, got.small[0]) {
            (Format::Consolidated, 1, wire::NEW_SCHEMA) => self.stage = Stage::Length,
            (Format::Consolidated, 1, wire::SAME_SCHEMA) if self.session.body_len().is_some() => {
                self.stage = Stage::Body
            }
            (Format::Consolidated, 1, wire::SAME_SCHEMA) => {
                return Err(self.protocol("data of a schema that it never sent"))
            }
            (Format::Consolidated, 8, _) | (Format::LeafByLeaf, 1, _) => return Err(self.mode_mismatch()),
            (Format::LeafByLeaf, 8, _) => {
                let len = small_number(got).ok_or_else(|| self.wrong("the length of a header", got))?;
                return self.expect_header(len);
            }
            _ => return Err(self.wrong("the beginning of a message", got)),
        }
        Ok(None)
    }

    fn length(&mut self, timer: Timer) -> Result<Option<TensorDict>> {
        let got = self.next(false, timer)?;
        match small_number(&got) {
            Some(len) if got.kind == Kind::PLAIN => self.expect_header(len),
            _ => Err(self.wrong("the length of the metadata", &got)),
        }
    }

    fn expect_header(&mut self, len: u64) -> Result<Option<TensorDict>> {
        self.stage = Stage::Header(self.session.check_header_len(len).map_err(|e| self.decode(e))?);
        Ok(None)
    }

    fn header(&mut self, len: usize, timer: Timer) -> Result<Option<TensorDict>> {
        let got = self.next_in(|_| Target::Block(Storage::zeroed(len.max(SMALL_BYTES))), timer)?;
        let Some(block) = got.block.as_ref().filter(|_| got.len == len && self.fits(&got, kind::HEADER)) else {
            return Err(self.wrong("the metadata", &got));
        };
        self.session.accept_header(&block.as_bytes()[..len]).map_err(|e| self.decode(e))?;
        log::debug!("{} sends a new schema of {len} bytes", self.connection.peer);
        self.stage = Stage::Body;
        self.schema = true;
        if self.format == Format::LeafByLeaf && self.session.leaf_lens().is_empty() {
            return self.finish_leaves().map(Some);
        }
        Ok(None)
    }

    fn body(&mut self, timer: Timer) -> Result<Option<TensorDict>> {
        if self.format == Format::LeafByLeaf {
            return self.leaf(timer);
        }
        let got = self.next(true, timer)?;
        if !self.fits(&got, kind::BODY) {
            return Err(self.wrong("the storage", &got));
        }
        self.finish(got)
    }

    fn leaf(&mut self, timer: Timer) -> Result<Option<TensorDict>> {
        let len = self.session.leaf_lens()[self.leaves.len()];
        let got = self.next_in(|_| Target::Block(Storage::zeroed(len.max(SMALL_BYTES))), timer)?;
        if got.len != len || !self.fits(&got, kind::BODY) {
            return Err(self.wrong("a leaf", &got));
        }
        self.leaves.extend(got.block);
        if self.leaves.len() < self.session.leaf_lens().len() {
            return Ok(None);
        }
        self.finish_leaves().map(Some)
    }

    fn finish_leaves(&mut self) -> Result<TensorDict> {
        self.stage = Stage::Head;
        let leaves = std::mem::take(&mut self.leaves);
        self.session.finish_leaves(&leaves).map_err(|e| self.decode(e))
    }

    /// A whole message under the schema in force.
    fn finish(&mut self, got: Received) -> Result<Option<TensorDict>> {
        match (Some(got.len) == self.session.body_len(), got.block) {
            (true, Some(block)) => {
                self.stage = Stage::Head;
                self.session.finish(block).map(Some).map_err(|e| self.decode(e))
            }
            (_, block) => Err(self.wrong("the storage", &Received { block, ..got })),
        }
    }

    /// The next part, into a buffer for a storage or into a few bytes.
    fn next(&mut self, storage: bool, timer: Timer) -> Result<Received> {
        self.next_in(|this| if storage { Target::Block(this.buffer()) } else { Target::Small }, timer)
    }

    fn next_in(&mut self, target: impl FnOnce(&mut Self) -> Target, timer: Timer) -> Result<Received> {
        let received = match self.pending.take() {
            Some(pending) => self.connection.link.resume(pending, timer.deadline),
            None => {
                let target = target(self);
                self.connection.link.recv(Lane::Data, target, timer.deadline)
            }
        };
        let error = match received {
            Ok(received) => return Ok(received),
            Err(RecvFailure::Underway(pending)) => {
                self.pending = Some(pending);
                LinkError::Expired
            }
            Err(RecvFailure::Expired(block)) => {
                self.unclaim(block);
                LinkError::Expired
            }
            Err(RecvFailure::Error(error)) => error,
        };
        let boundary = matches!(self.stage, Stage::Head);
        if boundary && matches!(error, LinkError::Gone { .. }) && !self.connection.link.has_kinds() {
            // Python has no goodbye: a connection that ends between two messages was closed.
            return Err(self.connection.closed());
        }
        let during = if boundary { "between two messages" } else { "in the middle of a message" };
        Err(self.connection.explain(Phase::Recv, timer, during, error))
    }

    /// A buffer that nobody else holds: that of the TensorDict to receive into if it fits, or one of the session's.
    fn buffer(&mut self) -> Storage {
        if let Some(storage) = self.into.as_mut().and_then(|td| self.session.matching_buffer(td)) {
            self.into = None;
            self.claimed = true;
            return storage;
        }
        self.session.buffer()
    }

    /// Gives a claimed buffer back that was not needed.
    fn unclaim(&mut self, block: Option<Storage>) {
        if std::mem::take(&mut self.claimed) {
            self.into = block.and_then(|block| self.session.finish(block).ok());
        }
    }

    fn give_back(&mut self, got: Received) {
        self.unclaim(got.block);
    }

    /// Whether a message that follows a header is marked as it should be.
    fn fits(&self, got: &Received, kind: Kind) -> bool {
        got.kind == if self.connection.link.has_kinds() { kind } else { Kind::PLAIN }
    }

    fn decode(&self, source: DecodeError) -> Error {
        Error::Decode { peer: self.connection.peer.clone(), source: Box::new(source) }
    }

    fn wrong(&self, due: &str, got: &Received) -> Error {
        self.protocol(&format!("{due} was due, and {} of {} bytes came", kind::name(got.kind), got.len))
    }

    fn mode_mismatch(&self) -> Error {
        let ours = self.format == Format::Consolidated;
        let theirs = !ours;
        self.protocol(&format!(
            "it sends with consolidated={theirs} and this end receives with consolidated={ours}; both ends need the same"
        ))
    }

    fn protocol(&self, reason: &str) -> Error {
        Error::Protocol { peer: self.connection.peer.clone(), reason: reason.into() }
    }
}
