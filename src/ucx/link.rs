//! [`UcxLink`] and [`UcxListener`]: the [`Link`] over UCX, and how a connection comes about.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::check_usable;
use super::config::Settings;
use super::context::Context;
use super::endpoint::Endpoint;
use super::error::UcxError;
use super::flusher::Flusher;
use super::listener::{ConnectionRequest, Listener};
use super::progress::{drain, Engine, Guard, Locked, Stop};
use super::refuser::Refuser;
use super::request::{kind_of, Ticket, CONTROL_BIT};
use super::status::Status;
use super::worker::Worker;
use crate::link::handshake::{Hello, HELLO_BYTES, KIND_MASK};
use crate::link::{
    Deadline, Kind, Lane, Link, LinkError, Message, Payload, Received, RecvFailure, Target, SMALL_BYTES,
};
use crate::storage::Gather;

/// How long a forced close may take; it takes milliseconds.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);
/// How many sends of one message sequence are under way at once.
const WINDOW: usize = 8;
/// Says on the control lane that this end is set up.
const READY: Kind = Kind(3);
/// A greeting such as Python's, whose tags say nothing.
#[cfg(test)]
const PYTHON: Hello = Hello { tag: 0x1234_5678_9abc_def0 };

/// Transports between processes of one host that keep nothing back: what a send has handed over, the peer can read
/// without us.
const LOCAL_TRANSPORTS: &[&str] = &["posix/", "sysv/", "xpmem/", "cma/", "knem/", "self/"];

/// Those of them that only know a way through buffers in shared memory: what goes in and out is copied.
const COPYING_TRANSPORTS: &[&str] = &["posix/", "sysv/"];

/// What can go wrong before there is a link.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum EstablishError {
    #[error(transparent)]
    Ucx(#[from] UcxError),
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The listener refuses this client, or its UCX this one's.
    #[error("{0}")]
    Rejected(String),
    #[error("nobody listens there, or no longer, or the host cannot be reached ({0})")]
    NoListener(String),
    #[error("the peer's greeting has a wrong checksum: it is no tensordict pipe, or speaks another version")]
    Greeting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// A connection under way, before the tag exchange.
#[derive(Debug)]
pub(crate) struct Connecting {
    engine: Engine<Endpoint>,
    side: Side,
    peer: Option<SocketAddr>,
}

impl Connecting {
    /// Begins to connect to a listener.
    pub(crate) fn to(address: SocketAddr, settings: &Settings, spin: Duration) -> Result<Self, UcxError> {
        check_usable(address, settings)?;
        let worker = Worker::new(Context::shared(&settings.for_address(address))?)?;
        let endpoint = Endpoint::connect(&worker, address)?;
        Ok(Self { engine: Engine::new(worker, endpoint, spin), side: Side::Client, peer: Some(address) })
    }

    /// Who connects, as far as UCX knows.
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Exchanges the tags: the listener's side speaks first.
    pub(crate) fn establish(self, deadline: Deadline) -> Result<UcxLink, EstablishError> {
        let mut random = [0; 4];
        getrandom::fill(&mut random)
            .map_err(|error| UcxError::Os { operation: "reading random bytes", message: error.to_string() })?;
        self.establish_as(Hello::ours(u32::from_ne_bytes(random)), deadline)
    }

    fn establish_as(self, ours: Hello, deadline: Deadline) -> Result<UcxLink, EstablishError> {
        let link = self.link_as(ours, deadline)?;
        link.wire_up(deadline)?;
        Ok(link)
    }

    fn link_as(self, ours: Hello, deadline: Deadline) -> Result<UcxLink, EstablishError> {
        let (theirs, transports) = self.greet(ours, deadline)?;
        Ok(self.link(ours, theirs, transports))
    }

    fn link(self, ours: Hello, theirs: Hello, transports: Vec<String>) -> UcxLink {
        let local = only(&transports, LOCAL_TRANSPORTS);
        let engine = Arc::new(self.engine);
        let name = self.peer.map_or_else(|| "tdpipe".to_owned(), |peer| format!("tdpipe-{peer}"));
        UcxLink {
            peer: self.peer,
            send_tag: theirs.tag,
            recv_tag: ours.tag,
            kinds: ours.is_ours() && theirs.is_ours(),
            transports,
            flusher: (!local).then(|| Flusher::new(Arc::clone(&engine), name)),
            refuser: None,
            engine,
        }
    }

    #[cfg(test)]
    pub(crate) fn establish_as_python(self, deadline: Deadline) -> Result<UcxLink, EstablishError> {
        self.establish_as(PYTHON, deadline)
    }

    /// A client that hears the listener's greeting and says nothing.
    #[cfg(test)]
    pub(crate) fn only_hear(&self, deadline: Deadline) -> Result<(), EstablishError> {
        let mut guard = self.engine.lock()?;
        self.hear(&mut guard, deadline).map(drop)
    }

    fn greet(&self, ours: Hello, deadline: Deadline) -> Result<(Hello, Vec<String>), EstablishError> {
        let mut guard = self.engine.lock()?;
        let exchanged = match self.side {
            Side::Server => self.say(&mut guard, ours, deadline).and_then(|()| self.hear(&mut guard, deadline)),
            Side::Client => self.hear(&mut guard, deadline).and_then(|theirs| {
                self.say(&mut guard, ours, deadline)?;
                Ok(theirs)
            }),
        };
        self.conclude(&mut guard, ours, exchanged)
    }

    fn conclude(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        ours: Hello,
        exchanged: Result<Hello, EstablishError>,
    ) -> Result<(Hello, Vec<String>), EstablishError> {
        match (exchanged, guard.child.failure()) {
            (Ok(theirs), _) => {
                let transports = guard.child.transports();
                if only(&transports, COPYING_TRANSPORTS) {
                    guard.requests.go_by_shared_memory();
                }
                Ok((theirs, transports))
            }
            // Python has heard us, sent what it had and left. With the endpoint goes only its greeting; on its tag
            // nobody receives any more.
            (Err(_), Some(_)) if self.side == Side::Server && has_message(guard, ours.tag) => {
                Ok((Hello { tag: 0 }, Vec::new()))
            }
            (Err(_), Some(Status::REJECTED)) => Err(EstablishError::Rejected(Status::REJECTED.to_string())),
            (Err(_), Some(status @ Status::NOT_CONNECTED)) if self.side == Side::Client => {
                Err(EstablishError::NoListener(status.to_string()))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn say(&self, guard: &mut Guard<'_, Endpoint>, hello: Hello, deadline: Deadline) -> Result<(), EstablishError> {
        let ticket = guard.requests.take();
        let slot = guard.requests.slot(&ticket);
        slot.small.set(hello.encode());
        // SAFETY: the bytes are the slot's own, and the slot lives until it is done or the worker is destroyed.
        let request = unsafe { guard.child.stream_send(slot.small.as_ptr().cast(), HELLO_BYTES, slot) };
        self.settle(guard, "ucp_stream_send_nbx", request, ticket, deadline)?;
        Ok(())
    }

    fn hear(&self, guard: &mut Guard<'_, Endpoint>, deadline: Deadline) -> Result<Hello, EstablishError> {
        let ticket = guard.requests.take();
        let slot = guard.requests.slot(&ticket);
        // SAFETY: as in `say`; a slot has room for SMALL_BYTES, which a hello does not exceed.
        let request = unsafe { guard.child.stream_recv(slot.small.as_ptr().cast(), HELLO_BYTES, slot) };
        let bytes = self.settle(guard, "ucp_stream_recv_nbx", request, ticket, deadline)?;
        Hello::decode(bytes).ok_or(EstablishError::Greeting)
    }

    fn settle(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        operation: &'static str,
        request: ucx_sys::ucs_status_ptr_t,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<[u8; SMALL_BYTES], LinkError> {
        let mut status = Status::of_ptr(request);
        if status == Status::IN_PROGRESS {
            guard.requests.slot(&ticket).request.set(request);
            if let Err(stop) = self.engine.wait_for(guard, deadline, &ticket) {
                guard.requests.abandon(ticket);
                return Err(stopped(stop));
            }
            status = guard.requests.slot(&ticket).status.get();
        }
        let bytes = guard.requests.slot(&ticket).small.get();
        guard.requests.finish(ticket);
        if status.is_ok() {
            Ok(bytes)
        } else {
            Err(failed(guard, operation, status))
        }
    }
}

const _: () = assert!(HELLO_BYTES <= SMALL_BYTES);

/// Listens for clients; its worker only does that, each accepted connection has a worker of its own.
#[derive(Debug)]
pub(crate) struct UcxListener {
    engine: Engine<Listener>,
    context: Arc<Context>,
    local_addr: SocketAddr,
    spin: Duration,
    interrupted: AtomicBool,
}

impl UcxListener {
    pub(crate) fn bind(address: SocketAddr, settings: &Settings, spin: Duration) -> Result<Self, UcxError> {
        check_usable(address, settings)?;
        let context = Context::shared(&settings.for_address(address))?;
        let worker = Worker::new(Arc::clone(&context))?;
        let listener = Listener::bind(&worker, address)?;
        let local_addr = listener.local_addr()?;
        // A client does not mind some microseconds.
        let engine = Engine::new(worker, listener, Duration::ZERO);
        Ok(Self { engine, context, local_addr, spin, interrupted: AtomicBool::new(false) })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The next client, not yet established. [`LinkError::Closed`] once it is interrupted.
    pub(crate) fn accept(&self, deadline: Deadline) -> Result<Connecting, EstablishError> {
        let mut guard = self.engine.lock()?;
        let request = self.next_request(&mut guard, deadline)?;
        let peer = request.client_addr();
        if let Some(Err(error)) = peer.map(|peer| check_usable(peer, self.context.settings())) {
            guard.child.reject(request);
            return Err(error.into());
        }
        let worker = match Worker::new(Arc::clone(&self.context)) {
            Ok(worker) => worker,
            Err(error) => {
                guard.child.reject(request);
                return Err(error.into());
            }
        };
        let endpoint = Endpoint::accept(&worker, request.into_raw())?;
        Ok(Connecting { engine: Engine::new(worker, endpoint, self.spin), side: Side::Server, peer })
    }

    fn next_request(
        &self,
        guard: &mut Guard<'_, Listener>,
        deadline: Deadline,
    ) -> Result<ConnectionRequest, LinkError> {
        loop {
            let ready = |locked: &Locked<Listener>| locked.child.has_request() || self.is_interrupted();
            self.engine.wait(guard, deadline, ready).map_err(stopped)?;
            if self.is_interrupted() {
                return Err(LinkError::Closed);
            }
            if let Some(request) = guard.child.next_request() {
                return Ok(request);
            }
        }
    }

    /// Refuses every client, until it is interrupted.
    pub(super) fn refuse_all(&self) -> Result<(), LinkError> {
        let mut guard = self.engine.lock()?;
        loop {
            let request = self.next_request(&mut guard, None)?;
            log::debug!("{:?} is refused: the pipe on {} is taken", request.client_addr(), self.local_addr);
            guard.child.reject(request);
        }
    }

    /// Makes every `accept`, now and later, return.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        if !super::fork::in_child() {
            self.engine.wake();
        }
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct UcxLink {
    peer: Option<SocketAddr>,
    send_tag: u64,
    recv_tag: u64,
    kinds: bool,
    transports: Vec<String>,
    /// For transports that may keep bytes back.
    flusher: Option<Flusher>,
    /// Where the port is this link's alone.
    refuser: Option<Refuser>,
    engine: Arc<Engine<Endpoint>>,
}

impl UcxLink {
    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// What carries the bytes, such as `posix/memory` or `tcp/eth0`.
    pub(crate) fn transports(&self) -> &[String] {
        &self.transports
    }

    /// Refuses all other clients of `listener` for as long as the link lives.
    pub(crate) fn keep_others_out(&mut self, listener: UcxListener) -> std::io::Result<()> {
        self.refuser = Some(Refuser::start(listener)?);
        Ok(())
    }

    /// How long callers slept.
    pub(crate) fn time_blocked(&self) -> Duration {
        self.engine.time_blocked()
    }

    /// Waits until UCX has set up all its lanes. Until then it queues what is sent, and needs progress at both ends;
    /// two of ours see to that by waiting for each other here, and Python progresses always.
    fn wire_up(&self, deadline: Deadline) -> Result<(), LinkError> {
        match self.flush(&mut self.engine.lock()?, deadline) {
            // Python may have sent what it had and be gone. That has arrived, and `recv` gives it before it says so.
            Err(LinkError::Gone { .. }) if !self.kinds => return Ok(()),
            flushed => flushed?,
        }
        if self.kinds {
            self.send(&[Message { lane: Lane::Control, kind: READY, payload: Payload::Small(&[]) }], deadline)?;
            match self.recv(Lane::Control, Target::Small, deadline) {
                Ok(received) if received.kind == READY => {}
                Ok(received) => {
                    let cause = format!("a message of kind {} instead of READY", received.kind.0);
                    return Err(LinkError::Failed { operation: "handshake", cause });
                }
                Err(RecvFailure::Error(error)) => return Err(error),
                Err(RecvFailure::Expired(_) | RecvFailure::Underway(_)) => return Err(LinkError::Expired),
            }
        }
        Ok(())
    }

    // The result would go through memory.
    #[inline(always)]
    fn post_send(&self, guard: &mut Guard<'_, Endpoint>, message: &Message<'_>) -> Result<Option<Ticket>, LinkError> {
        guard.requests.prepare();
        let slot = guard.requests.prepared();
        let (data, len) = match message.payload {
            Payload::Small(bytes) => {
                let mut small = [0; SMALL_BYTES];
                small[..bytes.len()].copy_from_slice(bytes);
                slot.small.set(small);
                (slot.small.as_ptr().cast(), bytes.len())
            }
            Payload::Block { storage, offset, len } => {
                (storage.as_bytes()[offset..offset + len].as_ptr().cast_mut(), len)
            }
            Payload::Gather(gather) => match gather.contiguous() {
                Some(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                None => return self.post_gather(guard, message, gather),
            },
        };
        let buffer = slot.buffer(data, len);
        // SAFETY: the bytes are the slot's own or the caller's block, of which the slot gets a handle below if UCX
        // goes on reading after this call. The slot lives until it is done.
        let request = unsafe { guard.child.tag_send(buffer, self.tag(message), slot) };
        match Status::of_ptr(request) {
            Status::OK => Ok(None),
            Status::IN_PROGRESS => {
                slot.request.set(request);
                let ticket = guard.requests.claim();
                match message.payload {
                    Payload::Small(_) => {}
                    Payload::Block { storage, .. } => guard.requests.hold(&ticket, Some(storage.clone())),
                    Payload::Gather(gather) => guard.requests.slot(&ticket).gather.set(Some(Arc::clone(gather))),
                }
                Ok(Some(ticket))
            }
            status => Err(failed(guard, "ucp_tag_send_nbx", status)),
        }
    }

    /// [`post_send`](Self::post_send) of what UCX gets from our callbacks.
    fn post_gather(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        message: &Message<'_>,
        gather: &Arc<Gather>,
    ) -> Result<Option<Ticket>, LinkError> {
        let Locked { child, requests, .. } = &mut **guard;
        let posted = requests.post(|slot| {
            let buffer = slot.gather_buffer(gather);
            // SAFETY: the slot, and with it what it gathers, lives until it is done.
            unsafe { child.tag_send(buffer, self.tag(message), slot) }
        });
        posted.map_err(|status| failed(guard, "ucp_tag_send_nbx", status))
    }

    fn tag(&self, message: &Message<'_>) -> u64 {
        self.send_tag | if self.kinds { u64::from(message.kind.0) | lane_bit(message.lane) } else { 0 }
    }

    /// Several sends under way at once.
    fn send_many(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        messages: &[Message<'_>],
        deadline: Deadline,
    ) -> Result<(), LinkError> {
        let mut window: [Option<Ticket>; WINDOW] = Default::default();
        let mut result = Ok(());
        for (i, message) in messages.iter().enumerate() {
            let place = &mut window[i % WINDOW];
            result = place.take().map_or(Ok(()), |ticket| self.finish_send(guard, ticket, deadline));
            if result.is_ok() {
                result = self.post_send(guard, message).map(|ticket| *place = ticket);
            }
            if result.is_err() {
                break;
            }
        }
        for i in 0..WINDOW {
            // In order: the oldest is where the next would go.
            if let Some(ticket) = window[(messages.len() + i) % WINDOW].take() {
                let finished = self.finish_send(guard, ticket, deadline);
                result = result.and(finished);
            }
        }
        result
    }

    fn finish_send(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), LinkError> {
        match self.engine.wait_for(guard, deadline, &ticket) {
            Ok(()) => {
                let (status, _) = guard.requests.finish(ticket);
                if status.is_ok() {
                    Ok(())
                } else {
                    Err(failed(guard, "ucp_tag_send_nbx", status))
                }
            }
            // A send cannot be taken back: its slot keeps the bytes until UCX lets go of them.
            Err(stop) => {
                guard.requests.abandon(ticket);
                Err(stopped(stop))
            }
        }
    }

    /// Whether a receive has completed, after one progress.
    fn look(&self, guard: &mut Guard<'_, Endpoint>, ticket: Ticket) -> Result<Received, RecvFailure<Ticket>> {
        if !guard.requests.is_done(&ticket) {
            self.engine.look(guard);
        }
        if guard.requests.is_done(&ticket) && guard.requests.slot(&ticket).status.get().is_ok() {
            return Ok(guard.requests.finish_recv(ticket).1);
        }
        Err(RecvFailure::Underway(ticket))
    }

    fn finish_recv(
        &self,
        guard: &mut Guard<'_, Endpoint>,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<Received, RecvFailure<Ticket>> {
        let stop = self.engine.wait_for(guard, deadline, &ticket).err();
        if stop.is_some() {
            let request = guard.requests.slot(&ticket).request.get();
            // SAFETY: a receive on this worker whose request is freed only by `finish`.
            unsafe { guard.worker.cancel(request) };
            if !guard.requests.is_done(&ticket) {
                // Its bytes are moving.
                return Err(match stop {
                    Some(Stop::Gone(status)) => {
                        guard.requests.abandon(ticket);
                        RecvFailure::Error(gone(status))
                    }
                    _ => RecvFailure::Underway(ticket),
                });
            }
        }
        match (guard.requests.slot(&ticket).status.get(), stop) {
            (Status::OK, _) => Ok(guard.requests.finish_recv(ticket).1),
            (Status::CANCELED, Some(Stop::Expired)) => {
                Err(RecvFailure::Expired(guard.requests.finish_recv(ticket).1.block))
            }
            (Status::CANCELED, Some(Stop::Gone(status))) => {
                guard.requests.finish(ticket);
                Err(RecvFailure::Error(gone(status)))
            }
            (status, _) => Err(self.recv_failed(guard, ticket, status)),
        }
    }

    fn recv_failed(&self, guard: &mut Guard<'_, Endpoint>, ticket: Ticket, status: Status) -> RecvFailure<Ticket> {
        let capacity = guard.requests.capacity(&ticket);
        guard.requests.finish(ticket);
        RecvFailure::Error(match status {
            Status::TRUNCATED => LinkError::TooLong { capacity },
            status => failed(guard, "ucp_tag_recv_nbx", status),
        })
    }
}

impl Link for UcxLink {
    type Pending = Ticket;

    fn send(&self, messages: &[Message<'_>], deadline: Deadline) -> Result<(), LinkError> {
        let mut guard = self.engine.lock()?;
        if guard.child.is_closed() {
            return Err(LinkError::Closed);
        }
        match messages {
            [message] => {
                if let Some(ticket) = self.post_send(&mut guard, message)? {
                    self.finish_send(&mut guard, ticket, deadline)?;
                }
            }
            messages => self.send_many(&mut guard, messages, deadline)?,
        }
        drop(guard);
        if let Some(flusher) = &self.flusher {
            flusher.mark();
        }
        Ok(())
    }

    // A `Received` would be moved from one stack frame to the next.
    #[inline(always)]
    fn begin_recv(&self, lane: Lane, target: Target) -> Result<Received, RecvFailure<Ticket>> {
        let mut guard = self.engine.lock().map_err(RecvFailure::Error)?;
        if guard.child.is_closed() {
            return Err(RecvFailure::Error(LinkError::Closed));
        }
        guard.requests.prepare();
        let slot = guard.requests.prepared();
        let block = match target {
            Target::Small => None,
            Target::Block(block) => Some(block),
        };
        let (data, capacity) = match &block {
            Some(block) => (block.as_ptr(), block.len()),
            None => (slot.small.as_ptr().cast(), SMALL_BYTES),
        };
        let tag = if self.kinds {
            (self.recv_tag | lane_bit(lane), !(KIND_MASK & !CONTROL_BIT))
        } else {
            (self.recv_tag, u64::MAX)
        };
        let mut info = ucx_sys::ucp_tag_recv_info_t::default();
        // SAFETY: the bytes are the slot's own or a block of which this is the only handle, and which the slot gets below
        // if UCX goes on writing after this call. The slot lives until it is done.
        let request = unsafe { guard.worker.tag_recv(slot.buffer(data, capacity), tag, slot, &mut info) };
        match Status::of_ptr(request) {
            Status::OK => {
                Ok(Received { kind: kind_of(info.sender_tag), len: info.length, small: slot.small.get(), block })
            }
            status => {
                slot.capacity.set(capacity);
                if status == Status::IN_PROGRESS {
                    slot.request.set(request);
                }
                let ticket = guard.requests.claim();
                guard.requests.hold(&ticket, block);
                if status == Status::IN_PROGRESS {
                    return self.look(&mut guard, ticket);
                }
                Err(self.recv_failed(&mut guard, ticket, status))
            }
        }
    }

    fn resume(&self, pending: Ticket, deadline: Deadline) -> Result<Received, RecvFailure<Ticket>> {
        let mut guard = self.engine.lock().map_err(RecvFailure::Error)?;
        self.finish_recv(&mut guard, pending, deadline)
    }

    fn has_kinds(&self) -> bool {
        self.kinds
    }

    fn take_in(&self) {
        if let Ok(mut guard) = self.engine.lock() {
            self.engine.take_in(&mut guard);
        }
    }

    fn abort(&self) {
        let Ok(mut guard) = self.engine.lock() else { return };
        if guard.child.is_closed() {
            return;
        }
        if let Some(ticket) = begin_close(&mut guard, true) {
            guard.requests.abandon(ticket);
        }
        drop(guard);
        self.engine.wake();
    }

    fn close(&self, deadline: Deadline) -> Result<(), LinkError> {
        let mut guard = self.engine.lock()?;
        if guard.child.is_closed() {
            return Ok(());
        }
        let flushed = self.flush(&mut guard, deadline);
        // A socket that is closed with bytes in it is reset, and the peer may lose our last words to that.
        self.engine.take_in(&mut guard);
        guard.worker.discard_unread((self.recv_tag, !KIND_MASK));
        // A close that is not forced waits for the peer, without an end; so flush first, which can be given up. Then close
        // by force, which needs nobody: one of ours has said that it received everything. Python says nothing and
        // progresses always, and could lose a rendezvous that it has not finished.
        let force = self.kinds || flushed.is_err();
        if let Some(ticket) = begin_close(&mut guard, force) {
            let within = Some(Instant::now() + CLOSE_WITHIN);
            let end = if force { within } else { deadline.max(within) };
            match self.engine.wait_for(&mut guard, end, &ticket) {
                Ok(()) => drop(guard.requests.finish(ticket)),
                Err(_) => guard.requests.abandon(ticket),
            }
        }
        flushed
    }
}

/// Whether there are transports, and none that is not named.
fn only(transports: &[String], names: &[&str]) -> bool {
    !transports.is_empty() && transports.iter().all(|it| names.iter().any(|name| it.starts_with(name)))
}

/// Whether a plain message has arrived on `tag`, by way of a broken connection.
fn has_message(guard: &mut Guard<'_, Endpoint>, tag: u64) -> bool {
    drain(guard, usize::MAX);
    guard.worker.has_unread((tag, u64::MAX))
}

/// Begins to close; gives the operation's ticket if it did not end at once.
fn begin_close(guard: &mut Guard<'_, Endpoint>, force: bool) -> Option<Ticket> {
    let Locked { child, requests, .. } = &mut **guard;
    // SAFETY: the slot lives until it is done or the worker is destroyed.
    requests.post(|slot| unsafe { child.close(force, slot) }).ok().flatten()
}

impl UcxLink {
    fn flush(&self, guard: &mut Guard<'_, Endpoint>, deadline: Deadline) -> Result<(), LinkError> {
        let Locked { child, requests, .. } = &mut **guard;
        // SAFETY: the slot lives until it is done or the worker is destroyed.
        match requests.post(|slot| unsafe { child.flush(slot) }) {
            Ok(None) => Ok(()),
            Ok(Some(ticket)) => self.finish_send(guard, ticket, deadline),
            Err(status) => Err(failed(guard, "ucp_ep_flush_nbx", status)),
        }
    }
}

fn lane_bit(lane: Lane) -> u64 {
    match lane {
        Lane::Data => 0,
        Lane::Control => CONTROL_BIT,
    }
}

fn stopped(stop: Stop) -> LinkError {
    match stop {
        Stop::Expired => LinkError::Expired,
        Stop::Gone(status) => gone(status),
    }
}

fn gone(status: Status) -> LinkError {
    LinkError::Gone { cause: status.to_string() }
}

/// The error of an operation: when the endpoint has failed, that is the cause.
fn failed(guard: &Guard<'_, Endpoint>, operation: &'static str, status: Status) -> LinkError {
    match guard.child.failure() {
        Some(failure) => gone(failure),
        None if status.is_disconnect() => gone(status),
        None => LinkError::Failed { operation, cause: status.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Storage;

    const SPIN: Duration = Duration::from_micros(50);

    fn soon() -> Deadline {
        Some(Instant::now() + Duration::from_secs(20))
    }

    fn pair(settings: &Settings) -> (UcxLink, UcxLink) {
        let listener = UcxListener::bind("127.0.0.1:0".parse().expect("literal"), settings, SPIN).expect("bind");
        let address = listener.local_addr();
        let settings = settings.clone();
        let client = std::thread::spawn(move || {
            Connecting::to(address, &settings, SPIN).expect("connect").establish(soon()).expect("establish")
        });
        let server = listener.accept(soon()).expect("accept").establish(soon()).expect("establish");
        (client.join().expect("client"), server)
    }

    fn transports() -> [Settings; 2] {
        [Settings::default(), Settings::new(vec![("TLS".into(), "tcp".into())])]
    }

    #[test]
    fn messages_arrive_in_order_with_kind_and_length() {
        for settings in transports() {
            let (a, b) = pair(&settings);
            assert!(a.has_kinds() && b.has_kinds());
            let block = Storage::from_bytes(&[7; 100_000]);
            let sender = std::thread::spawn(move || {
                for i in 0..100_u8 {
                    let small = Message { lane: Lane::Data, kind: Kind(1), payload: Payload::Small(&[i; 3]) };
                    let payload = Payload::Block { storage: &block, offset: 10, len: 90_000 };
                    a.send(&[small, Message { lane: Lane::Data, kind: Kind(2), payload }], soon()).expect("send");
                }
                a
            });
            let mut into = Storage::zeroed(100_000);
            for i in 0..100_u8 {
                let got = b.recv(Lane::Data, Target::Small, soon()).expect("small");
                assert_eq!((got.kind, got.len, &got.small[..3]), (Kind(1), 3, &[i; 3][..]));
                let got = b.recv(Lane::Data, Target::Block(into), soon()).expect("block");
                assert_eq!((got.kind, got.len), (Kind(2), 90_000));
                into = got.block.expect("block");
                assert!(into.as_bytes()[..90_000].iter().all(|&x| x == 7));
            }
            let a = sender.join().expect("sender");
            println!("{:?}", a.transports());
            drop(a);
        }
    }

    fn gather_of(tree: &Arc<Vec<Storage>>) -> Arc<Gather> {
        let mut gather = Arc::<Gather>::default();
        gather.fill(tree, None, |tree, _, pieces| tree.iter().for_each(|piece| pieces.push(piece.as_bytes())));
        gather
    }

    #[test]
    fn bytes_in_many_places_arrive_as_one_message() {
        // Whole, in fragments, and announced first; more and larger pieces than a fragment has room for.
        for (count, len) in [(2, 3), (1000, 257), (40, 100_000)] {
            let pieces: Vec<_> = (0..count).map(|i| Storage::from_bytes(&vec![i as u8; len])).collect();
            let (tree, expected) = (Arc::new(pieces.clone()), pieces.iter().flat_map(Storage::as_bytes).copied());
            let expected: Vec<u8> = expected.collect();
            for settings in transports() {
                let (a, b) = pair(&settings);
                let mut gather = gather_of(&tree);
                let sender = std::thread::spawn(move || {
                    let message = Message { lane: Lane::Data, kind: Kind(2), payload: Payload::Gather(&gather) };
                    a.send(&[message], soon()).expect("send");
                    gather.release();
                    a
                });
                let got = b.recv(Lane::Data, Target::Block(Storage::zeroed(expected.len())), soon()).expect("recv");
                assert_eq!((got.kind, got.len), (Kind(2), expected.len()));
                assert!(got.block.expect("block").as_bytes() == expected, "{count} of {len} bytes");
                drop(sender.join().expect("sender"));
                assert_eq!(Arc::strong_count(&tree), 1, "nobody holds what was sent");
            }
        }
    }

    /// Until the socket is full and the last message lies in UCX's buffers; then this end makes no call any more.
    #[test]
    fn what_was_sent_leaves_while_the_caller_is_away() {
        for unread in [false, true] {
            let [_, tcp] = transports();
            let (a, b) = pair(&tcp);
            if unread {
                send_all(&b);
            }
            let storage = Storage::zeroed(10_000);
            let payload = Payload::Block { storage: &storage, offset: 0, len: 10_000 };
            let message = Message { lane: Lane::Data, kind: Kind(2), payload };
            let mut guard = a.engine.lock().expect("no fork");
            let mut sent = 1;
            let last = loop {
                if let Some(ticket) = a.post_send(&mut guard, &message).expect("post") {
                    break ticket;
                }
                sent += 1;
            };
            guard.requests.abandon(last);
            drop(guard);
            a.flusher.as_ref().expect("tcp").mark();
            let mut into = Storage::zeroed(10_000);
            for _ in 0..sent {
                let got = b.recv(Lane::Data, Target::Block(into), soon()).expect("recv");
                into = got.block.expect("block");
            }
            drop(a);
        }
    }

    #[test]
    fn a_send_that_expired_keeps_its_bytes() {
        for settings in transports() {
            let (a, b) = pair(&settings);
            let tree = Arc::new(vec![Storage::from_bytes(&[1; 8 << 20]), Storage::from_bytes(&[2; 8 << 20])]);
            let mut gather = gather_of(&tree);
            let message = Message { lane: Lane::Data, kind: Kind(2), payload: Payload::Gather(&gather) };
            let expired = a.send(&[message], Some(Instant::now() + Duration::from_millis(20)));
            assert_eq!(expired, Err(LinkError::Expired));
            gather.release();
            assert!(Arc::strong_count(&tree) > 1, "UCX may still ask for them");
            drop(a);
            assert_eq!(Arc::strong_count(&tree), 1);
            drop(b);
        }
    }

    #[test]
    fn an_expired_receive_loses_nothing() {
        let (a, b) = pair(&Settings::default());
        let expired = b.recv(Lane::Data, Target::Small, Some(Instant::now()));
        assert!(matches!(expired, Err(RecvFailure::Expired(None))), "{expired:?}");
        let message = Message { lane: Lane::Data, kind: Kind(3), payload: Payload::Small(b"late") };
        a.send(&[message], soon()).expect("send");
        let got = b.recv(Lane::Data, Target::Small, soon()).expect("recv");
        assert_eq!((got.kind, &got.small[..got.len]), (Kind(3), &b"late"[..]));
    }

    #[test]
    fn a_close_is_seen_after_what_was_sent_before() {
        for settings in transports() {
            let (a, b) = pair(&settings);
            let message = Message { lane: Lane::Data, kind: Kind(3), payload: Payload::Small(b"last") };
            a.send(&[message], soon()).expect("send");
            let closer = std::thread::spawn(move || a.close(soon()));
            assert_eq!(b.recv(Lane::Data, Target::Small, soon()).expect("recv").len, 4);
            let gone = b.recv(Lane::Data, Target::Small, soon());
            assert!(matches!(gone, Err(RecvFailure::Error(LinkError::Gone { .. }))), "{gone:?}");
            closer.join().expect("closer").expect("close");
        }
    }

    fn send_all(link: &UcxLink) {
        let message = Message { lane: Lane::Data, kind: Kind::PLAIN, payload: Payload::Small(b"all") };
        link.send(&[message], soon()).expect("send");
    }

    /// The one message of [`send_all`], and then that the peer is gone.
    fn gives_what_was_sent(link: &UcxLink) {
        link.wire_up(soon()).expect("nothing more to be set up");
        let got = link.recv(Lane::Data, Target::Small, soon()).expect("recv");
        assert_eq!(&got.small[..got.len], b"all");
        let gone = link.recv(Lane::Data, Target::Small, soon());
        assert!(matches!(gone, Err(RecvFailure::Error(LinkError::Gone { .. }))), "{gone:?}");
    }

    /// Python closes by force, maybe while UCX still sets up this end of the connection.
    #[test]
    fn what_python_sent_before_it_left_at_once_is_received() {
        for settings in transports() {
            let listener = UcxListener::bind("127.0.0.1:0".parse().expect("literal"), &settings, SPIN).expect("bind");
            let address = listener.local_addr();
            let (greeted, go) = crossbeam_channel::bounded(1);
            let client = std::thread::spawn(move || {
                let connecting = Connecting::to(address, &settings, SPIN).expect("connect");
                let link = connecting.establish_as_python(soon()).expect("establish");
                go.recv().expect("greeted");
                send_all(&link);
                link.flush(&mut link.engine.lock().expect("no fork"), soon()).expect("flush");
                link.abort();
            });
            let connecting = listener.accept(soon()).expect("accept");
            let link = connecting.link_as(Hello::ours(7), soon()).expect("greeted");
            greeted.send(()).expect("the client waits");
            while !client.is_finished() {
                link.engine.look(&mut link.engine.lock().expect("no fork"));
            }
            client.join().expect("client");
            gives_what_was_sent(&link);
        }
    }

    #[test]
    fn what_python_sent_before_its_greeting_was_heard_is_received() {
        let settings = Settings::default();
        let listener = UcxListener::bind("127.0.0.1:0".parse().expect("literal"), &settings, SPIN).expect("bind");
        let address = listener.local_addr();
        let client = std::thread::spawn(move || {
            let connecting = Connecting::to(address, &settings, SPIN).expect("connect");
            let link = connecting.link_as(PYTHON, soon()).expect("greeted");
            send_all(&link);
            link.abort();
        });
        let connecting = listener.accept(soon()).expect("accept");
        let ours = Hello::ours(7);
        let mut guard = connecting.engine.lock().expect("no fork");
        connecting.say(&mut guard, ours, soon()).expect("said");
        client.join().expect("client");
        let heard = connecting.hear(&mut guard, soon());
        let (theirs, transports) = connecting.conclude(&mut guard, ours, heard).expect("a message is there");
        drop(guard);
        let link = connecting.link(ours, theirs, transports);
        gives_what_was_sent(&link);
    }

    #[test]
    fn a_message_too_long_is_an_error() {
        // Whole, in fragments, and announced first; into a slot and into a block.
        for len in [100, 5_000, 100_000, 600_000] {
            for settings in transports() {
                let (a, b) = pair(&settings);
                let sender = std::thread::spawn(move || {
                    let block = Storage::zeroed(len);
                    let payload = Payload::Block { storage: &block, offset: 0, len };
                    let message = || Message { lane: Lane::Data, kind: Kind::PLAIN, payload };
                    a.send(&[message(), message()], soon()).map(|()| a)
                });
                let got = b.recv(Lane::Data, Target::Small, soon());
                assert!(matches!(got, Err(RecvFailure::Error(LinkError::TooLong { capacity: 16 }))), "{got:?}");
                let got = b.recv(Lane::Data, Target::Block(Storage::zeroed(len - 1)), soon());
                let Err(RecvFailure::Error(LinkError::TooLong { capacity })) = got else { panic!("{got:?}") };
                assert_eq!(capacity, len - 1);
                drop(sender.join().expect("sender"));
            }
        }
    }
}
