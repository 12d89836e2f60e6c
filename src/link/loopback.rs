//! An in-memory [`Link`] with faults, so that the protocol can be tested without UCX and against any peer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crossbeam_channel::{unbounded, Receiver, RecvTimeoutError, Sender};
use parking_lot::Mutex;

use super::{Deadline, Kind, Lane, Link, LinkError, Message, Payload, Received, RecvFailure, Target, SMALL_BYTES};

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

/// What shall go wrong at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The nth message sent from now on is lost, and the connection breaks at both ends.
    CutSend(usize),
    /// The nth message sent from now on is not taken before the deadline.
    StallSend(usize),
    /// The next message cannot be sent, and the connection stays.
    FailSend,
    /// The next receive whose deadline passes is found to be under way.
    Underway,
}

#[derive(Debug)]
pub(crate) struct Loopback {
    kinds: bool,
    outgoing: Arc<Lanes>,
    incoming: [Receiver<Packet>; 2],
    /// What the peer sends on: when one end goes, both directions do.
    back: Arc<Lanes>,
    closed: AtomicBool,
    faults: Mutex<Vec<Fault>>,
}

/// One direction, data and control; empty once the connection has ended.
#[derive(Debug)]
struct Lanes([Mutex<Option<Sender<Packet>>>; 2]);

impl Lanes {
    fn new() -> (Arc<Self>, [Receiver<Packet>; 2]) {
        let ((data, data_end), (control, control_end)) = (unbounded(), unbounded());
        (Arc::new(Self([Mutex::new(Some(data)), Mutex::new(Some(control))])), [data_end, control_end])
    }

    fn hang_up(&self) {
        self.0.iter().for_each(|lane| drop(lane.lock().take()));
    }
}

/// Two ends of one link.
pub(crate) fn pair(kinds: bool) -> (Loopback, Loopback) {
    let ((there, arriving_there), (here, arriving_here)) = (Lanes::new(), Lanes::new());
    let end = |outgoing: &Arc<Lanes>, back: &Arc<Lanes>, incoming| Loopback {
        kinds,
        outgoing: Arc::clone(outgoing),
        incoming,
        back: Arc::clone(back),
        closed: AtomicBool::new(false),
        faults: Mutex::default(),
    };
    (end(&there, &here, arriving_here), end(&here, &there, arriving_there))
}

impl Loopback {
    pub(crate) fn inject(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// Ends the connection as the death of a process does: what was sent before still arrives.
    pub(crate) fn cut(&self) {
        self.outgoing.hang_up();
        self.back.hang_up();
    }

    /// Sends what no pipe would send.
    pub(crate) fn send_raw(&self, kind: Kind, bytes: &[u8]) {
        self.push(Lane::Data, Packet { kind, bytes: bytes.to_vec() }).expect("the link is open");
    }

    /// Takes the next message as it is, if one is there.
    pub(crate) fn recv_raw(&self) -> Option<Packet> {
        self.incoming[0].try_recv().ok()
    }

    fn push(&self, lane: Lane, packet: Packet) -> Result<(), LinkError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(LinkError::Closed);
        }
        let lane = self.outgoing.0[lane as usize].lock();
        lane.as_ref().and_then(|lane| lane.send(packet).ok()).ok_or_else(gone)
    }

    /// The error of the message to be sent now, if one was injected.
    fn strike(&self) -> Option<LinkError> {
        let mut faults = self.faults.lock();
        let index = faults.iter().position(|fault| *fault != Fault::Underway)?;
        match &mut faults[index] {
            Fault::CutSend(0) => self.cut(),
            Fault::StallSend(0) => {
                faults.remove(index);
                return Some(LinkError::Expired);
            }
            Fault::FailSend => {
                faults.remove(index);
                return Some(LinkError::Failed { operation: "send", cause: "loopback".into() });
            }
            Fault::CutSend(n) | Fault::StallSend(n) => {
                *n -= 1;
                return None;
            }
            Fault::Underway => {}
        }
        Some(gone())
    }

    fn is_underway(&self) -> bool {
        let mut faults = self.faults.lock();
        faults.iter().position(|fault| *fault == Fault::Underway).map(|index| faults.remove(index)).is_some()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.cut();
    }
}

fn gone() -> LinkError {
    LinkError::Gone { cause: "loopback".into() }
}

/// Puts a packet where it shall go.
fn deliver(packet: &Packet, target: Target) -> Result<Received, LinkError> {
    let mut received = Received { kind: packet.kind, len: packet.bytes.len(), small: [0; SMALL_BYTES], block: None };
    let fill = |place: &mut [u8]| {
        let capacity = place.len();
        let place = place.get_mut(..packet.bytes.len()).ok_or(LinkError::TooLong { capacity })?;
        place.copy_from_slice(&packet.bytes);
        Ok(())
    };
    match target {
        Target::Small => fill(&mut received.small)?,
        Target::Block(mut block) => {
            fill(block.bytes_mut().expect("the only handle"))?;
            received.block = Some(block);
        }
    }
    Ok(received)
}

impl Link for Loopback {
    type Pending = (Lane, Target);

    fn send(&self, messages: &[Message<'_>], _: Deadline) -> Result<(), LinkError> {
        for message in messages {
            if let Some(error) = self.strike() {
                return Err(error);
            }
            let bytes = match message.payload {
                Payload::Small(bytes) => bytes.to_vec(),
                Payload::Block { storage, offset, len } => storage.as_bytes()[offset..offset + len].to_vec(),
                Payload::Gather(gather) => gather.to_vec(),
            };
            let kind = if self.kinds { message.kind } else { Kind::PLAIN };
            self.push(message.lane, Packet { kind, bytes })?;
        }
        Ok(())
    }

    fn begin_recv(&self, lane: Lane, target: Target) -> Result<Received, RecvFailure<Self::Pending>> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RecvFailure::Error(LinkError::Closed));
        }
        match self.incoming[lane as usize].try_recv() {
            Ok(packet) => deliver(&packet, target).map_err(RecvFailure::Error),
            Err(_) => Err(RecvFailure::Underway((lane, target))),
        }
    }

    fn resume(
        &self,
        (lane, target): Self::Pending,
        deadline: Deadline,
    ) -> Result<Received, RecvFailure<Self::Pending>> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(RecvFailure::Error(LinkError::Closed));
        }
        let channel = &self.incoming[lane as usize];
        let packet = match deadline {
            Some(deadline) => channel.recv_deadline(deadline),
            None => channel.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match packet {
            Ok(packet) => deliver(&packet, target).map_err(RecvFailure::Error),
            Err(RecvTimeoutError::Disconnected) => Err(RecvFailure::Error(gone())),
            Err(RecvTimeoutError::Timeout) if self.is_underway() => Err(RecvFailure::Underway((lane, target))),
            Err(RecvTimeoutError::Timeout) => Err(RecvFailure::Expired(match target {
                Target::Block(block) => Some(block),
                Target::Small => None,
            })),
        }
    }

    fn has_kinds(&self) -> bool {
        self.kinds
    }

    fn abort(&self) {
        let _ = self.close(None);
    }

    fn close(&self, _: Deadline) -> Result<(), LinkError> {
        self.closed.store(true, Ordering::SeqCst);
        self.cut();
        Ok(())
    }
}
