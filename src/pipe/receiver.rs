//! [`Receiver`]: the receiving half: from messages to a TensorDict.
//!
//! A receive goes through [`Stage`]s and may stop after any of them when its deadline passes; the next call goes on
//! where it stopped. So a message is never lost and never taken for another.

use std::sync::Arc;

use super::connection::{small_number, small_numbers, Connection};
use super::kind;
use super::timer::Timer;
use crate::data::{Node, TensorDict};
use crate::error::{Error, Phase, Result};
use crate::link::{Kind, Lane, Link, LinkError, Received, RecvFailure, Target, SMALL_BYTES};
use crate::storage::Storage;
use crate::wire::{DecodeError, Format, RecvSession};

/// Where a receive into an existing TensorDict put the values.
///
/// ```no_run
/// use tensordict_pipe::{Pipe, Placed};
///
/// let mut pipe = Pipe::listen(13337)?;
/// let mut td = pipe.recv()?;
/// if pipe.recv_into(&mut td)? == Placed::Replaced {
///     println!("another structure, or somebody else holds the old one");
/// }
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
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

/// What it takes to give back the TensorDict whose storage was claimed.
#[derive(Debug)]
struct Claimed {
    structure: Arc<Node>,
    /// The first bytes of the storage, where a short message may land that is no TensorDict.
    beginning: [u8; SMALL_BYTES],
}

/// A received TensorDict in two pointers.
pub(super) struct Packed {
    root: Arc<Node>,
    storage: Storage,
}

impl Packed {
    #[inline]
    pub(super) fn into_tensordict(self, len: usize) -> TensorDict {
        TensorDict::from_packed(self.root, self.storage, len)
    }
}

#[derive(Debug)]
pub(super) struct Receiver<L: Link> {
    connection: Arc<Connection<L>>,
    session: RecvSession,
    format: Format,
    stage: Stage,
    /// A receive that outlived its deadline.
    pending: Option<L::Pending>,
    /// What the shortest way began and could not finish.
    begun: Option<Result<Received, RecvFailure<L::Pending>>>,
    /// The leaves received so far of a leaf-by-leaf message.
    leaves: Vec<Storage>,
    /// The TensorDict to receive into, until its storage is claimed.
    into: Option<TensorDict>,
    claimed: Option<Claimed>,
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
            begun: None,
            leaves: Vec::new(),
            into: None,
            claimed: None,
            empty: TensorDict::new([]),
            ended: false,
            schema: false,
        }
    }

    /// How many messages were received.
    pub(super) fn received(&self) -> u64 {
        self.connection.received.messages()
    }

    /// The shortest way: the next TensorDict, if it is the storage of the schema in force and has arrived. Otherwise what
    /// it has begun is taken up by [`Receiver::recv`].
    ///
    /// It gives what fits into registers; a TensorDict would be moved from one stack frame to the next.
    #[inline]
    pub(super) fn recv_known(&mut self) -> Option<Packed> {
        let expects = matches!(self.stage, Stage::Head)
            && self.format == Format::Consolidated
            && self.connection.link.has_kinds()
            && self.pending.is_none()
            && self.begun.is_none()
            && !self.ended
            && self.connection.failure().is_none();
        let len = self.session.body_len().filter(|_| expects)?;
        let block = self.session.buffer();
        match self.connection.link.begin_recv(Lane::Data, Target::Block(block)) {
            Ok(Received { kind: kind::SAME_SCHEMA, len: got, block: Some(block), .. })
                if got == len && self.session.root().is_some() =>
            {
                self.count();
                self.session.root().map(|root| Packed { root: root.clone(), storage: block })
            }
            other => {
                self.begun = Some(other);
                None
            }
        }
    }

    /// The length of what [`Receiver::recv_known`] gives.
    pub(super) fn known_len(&self) -> usize {
        self.session.body_len().unwrap_or(0)
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
                self.count();
                Ok(td)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        if self.ended {
            return error;
        }
        if matches!(error, Error::Decode { .. }) && !error.is_final() {
            // It came, though it cannot be held.
            self.count();
        }
        self.connection.fail(error)
    }

    /// A receive after which this half is dropped, so that it cannot go on later.
    pub(super) fn recv_once(mut self, timer: Timer) -> Result<TensorDict> {
        let received = self.recv(timer);
        self.end_once(received)
    }

    /// As [`Receiver::recv_once`].
    pub(super) fn recv_into_once(mut self, td: &mut TensorDict, timer: Timer) -> Result<Placed> {
        let received = self.recv_into(td, timer);
        self.end_once(received)
    }

    fn end_once<T>(&mut self, received: Result<T>) -> Result<T> {
        if received.is_err() && (self.pending.is_some() || !matches!(self.stage, Stage::Head)) {
            self.connection.abort();
        }
        received
    }

    fn count(&mut self) {
        let bytes = self.session.body_len().unwrap_or(0) as u64;
        let schema = std::mem::take(&mut self.schema);
        self.connection.received.count(bytes, schema, self.session.allocations());
    }

    pub(super) fn recv_into(&mut self, td: &mut TensorDict, timer: Timer) -> Result<Placed> {
        self.into = Some(std::mem::replace(td, self.empty.clone()));
        self.claimed = None;
        let received = self.recv(timer);
        let left = self.into.take();
        let claimed = self.claimed.take();
        match received {
            Ok(new) => {
                *td = new;
                Ok(if claimed.is_some() { Placed::InPlace } else { Placed::Replaced })
            }
            Err(error) => {
                // If its storage went with a broken receive, the values are zeroes.
                *td = left.or_else(|| claimed.map(Claimed::zeroes)).unwrap_or_else(|| self.empty.clone());
                Err(error)
            }
        }
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
        let consolidated = self.format == Format::Consolidated;
        let speculate = consolidated && self.connection.link.has_kinds() && self.session.body_len().is_some();
        let got = self.next(speculate, timer)?;
        match got.kind {
            Kind::PLAIN if !self.connection.link.has_kinds() => self.plain_head(&got),
            kind::SAME_SCHEMA if consolidated && self.session.body_len().is_none() => {
                Err(self.decode(DecodeError::NoSchema))
            }
            kind::SAME_SCHEMA if consolidated => self.finish(got),
            kind if kind == kind::opening(self.format) => {
                let len = small_number(&got).ok_or_else(|| self.wrong("the length of a header", &got))?;
                self.unclaim(got.block);
                self.expect_header(len)
            }
            kind::SAME_SCHEMA | kind::NEW_SCHEMA | kind::LEAF_BY_LEAF | kind::STATELESS => {
                Err(self.mode_mismatch(got.kind))
            }
            kind::FINISHED => {
                let sent = small_number(&got).ok_or_else(|| self.wrong("the end of one direction", &got))?;
                self.unclaim(got.block);
                let end = self.connection.answer_finished(sent);
                self.ended = end.is_closed();
                Err(end)
            }
            kind::GOODBYE => {
                let (sent, received) = small_numbers(&got).ok_or_else(|| self.wrong("a goodbye", &got))?;
                self.unclaim(got.block);
                Err(self.connection.answer_goodbye(sent, received))
            }
            _ => Err(self.wrong("the beginning of a message", &got)),
        }
    }

    fn plain_head(&mut self, got: &Received) -> Result<Option<TensorDict>> {
        match (self.format, got.len) {
            (Format::Consolidated, 1) => {
                let is_new = self.session.accept_flag(got.small[0]).map_err(|e| self.decode(e))?;
                self.stage = if is_new { Stage::Length } else { Stage::Body };
            }
            (Format::Consolidated, 8) => return Err(self.mode_mismatch(kind::LEAF_BY_LEAF)),
            (Format::LeafByLeaf | Format::Stateless, 1) => return Err(self.mode_mismatch(kind::NEW_SCHEMA)),
            (Format::LeafByLeaf | Format::Stateless, 8) => {
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
        let resumed = self.pending.is_some();
        let begun = match (self.pending.take(), self.begun.take()) {
            (Some(pending), _) => Err(RecvFailure::Underway(pending)),
            (None, Some(begun)) => begun,
            (None, None) => {
                let target = target(self);
                self.connection.link.begin_recv(Lane::Data, target)
            }
        };
        let received = match begun {
            Err(RecvFailure::Underway(pending)) => self.connection.link.resume(pending, timer.deadline),
            received => received,
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
        let boundary = matches!(self.stage, Stage::Head) && !resumed;
        if boundary && matches!(error, LinkError::Gone { .. }) && !self.connection.link.has_kinds() {
            // Python has no goodbye: a connection that ends between two messages was closed.
            return Err(self.connection.closed());
        }
        let during = if boundary { "between two messages" } else { "in the middle of a message" };
        Err(self.connection.explain(Phase::Recv, timer, during, error))
    }

    /// A buffer that nobody else holds: that of the TensorDict to receive into if it fits, or one of the session's.
    fn buffer(&mut self) -> Storage {
        let Some(td) = &mut self.into else { return self.session.buffer() };
        let structure = Arc::clone(td.root());
        let Some(storage) = self.session.matching_buffer(td) else { return self.session.buffer() };
        let mut beginning = [0; SMALL_BYTES];
        beginning.copy_from_slice(&storage.as_bytes()[..SMALL_BYTES]);
        self.into = None;
        self.claimed = Some(Claimed { structure, beginning });
        storage
    }

    /// Gives a claimed buffer back, as it was, into which at most a short message came.
    fn unclaim(&mut self, block: Option<Storage>) {
        if let (Some(claimed), Some(block)) = (self.claimed.take(), block) {
            self.into = Some(claimed.give_back(block));
        }
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

    /// `theirs` begins a message of another format than ours. (A first message of 8 bytes from Python may also be one
    /// of `send_tensordict`.)
    fn mode_mismatch(&self, theirs: Kind) -> Error {
        let ours = match self.format {
            Format::Consolidated => "consolidated=true",
            Format::LeafByLeaf => "consolidated=false",
            Format::Stateless => "recv_tensordict",
        };
        let theirs = match theirs {
            kind::LEAF_BY_LEAF => "consolidated=false",
            kind::STATELESS => "send_tensordict",
            _ => "consolidated=true",
        };
        self.protocol(&format!("it sends with {theirs} and this end receives with {ours}; both ends need the same"))
    }

    fn protocol(&self, reason: &str) -> Error {
        Error::Protocol { peer: self.connection.peer.clone(), reason: reason.into() }
    }
}

impl Claimed {
    fn give_back(self, mut storage: Storage) -> TensorDict {
        storage.make_mut()[..SMALL_BYTES].copy_from_slice(&self.beginning);
        let len = self.structure.packed_len();
        TensorDict::from_packed(self.structure, storage, len)
    }

    fn zeroes(self) -> TensorDict {
        let len = self.structure.packed_len();
        TensorDict::from_packed(self.structure, Storage::zeroed(len.max(SMALL_BYTES)), len)
    }
}
