//! An in-memory [`Link`] with faults, so that the protocol can be tested without UCX and against any peer.

use std::collections::VecDeque;

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
    /// The nth message sent from now on, and everything after it, is lost: the link breaks.
    CutSend(usize),
    /// The next receive whose deadline passes is found to be under way.
    Underway,
}

#[derive(Debug)]
pub(crate) struct Loopback {
    kinds: bool,
    outgoing: [Mutex<Option<Sender<Packet>>>; 2],
    incoming: [Receiver<Packet>; 2],
    faults: Mutex<VecDeque<Fault>>,
}

/// Two ends of one link.
pub(crate) fn pair(kinds: bool) -> (Loopback, Loopback) {
    let ((a_data, b_data_in), (a_control, b_control_in)) = (unbounded(), unbounded());
    let ((b_data, a_data_in), (b_control, a_control_in)) = (unbounded(), unbounded());
    let end = |data, control, incoming| Loopback {
        kinds,
        outgoing: [Mutex::new(Some(data)), Mutex::new(Some(control))],
        incoming,
        faults: Mutex::default(),
    };
    (end(a_data, a_control, [a_data_in, a_control_in]), end(b_data, b_control, [b_data_in, b_control_in]))
}

impl Loopback {
    pub(crate) fn inject(&self, fault: Fault) {
        self.faults.lock().push_back(fault);
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
        let gone = || LinkError::Gone { cause: "loopback".into() };
        self.outgoing[lane as usize].lock().as_ref().ok_or(LinkError::Closed)?.send(packet).map_err(|_| gone())
    }

    /// Whether the message to be sent now is the one to be lost.
    fn cut(&self) -> bool {
        let mut faults = self.faults.lock();
        match faults.front_mut() {
            Some(Fault::CutSend(0)) => true,
            Some(Fault::CutSend(n)) => {
                *n -= 1;
                false
            }
            _ => false,
        }
    }

    fn hang_up(&self) {
        self.outgoing.iter().for_each(|lane| drop(lane.lock().take()));
    }
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
    type Pending = Target;

    fn send(&self, messages: &[Message<'_>], _: Deadline) -> Result<(), LinkError> {
        for message in messages {
            if self.cut() {
                self.hang_up();
                return Err(LinkError::Gone { cause: "cut".into() });
            }
            let bytes = match message.payload {
                Payload::Small(bytes) => bytes.to_vec(),
                Payload::Block { storage, offset, len } => storage.as_bytes()[offset..offset + len].to_vec(),
            };
            let kind = if self.kinds { message.kind } else { Kind::PLAIN };
            self.push(message.lane, Packet { kind, bytes })?;
        }
        Ok(())
    }

    fn recv(&self, lane: Lane, target: Target, deadline: Deadline) -> Result<Received, RecvFailure<Target>> {
        let channel = &self.incoming[lane as usize];
        let packet = match deadline {
            Some(deadline) => channel.recv_deadline(deadline),
            None => channel.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match packet {
            Ok(packet) => deliver(&packet, target).map_err(RecvFailure::Error),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RecvFailure::Error(LinkError::Gone { cause: "loopback".into() }))
            }
            Err(RecvTimeoutError::Timeout) if self.faults.lock().pop_front() == Some(Fault::Underway) => {
                Err(RecvFailure::Underway(target))
            }
            Err(RecvTimeoutError::Timeout) => Err(RecvFailure::Expired(match target {
                Target::Block(block) => Some(block),
                Target::Small => None,
            })),
        }
    }

    fn resume(&self, pending: Target, deadline: Deadline) -> Result<Received, RecvFailure<Target>> {
        self.recv(Lane::Data, pending, deadline)
    }

    fn has_kinds(&self) -> bool {
        self.kinds
    }

    fn abort(&self) {
        self.hang_up();
    }

    fn close(&self, _: Deadline) -> Result<(), LinkError> {
        self.hang_up();
        Ok(())
    }
}
