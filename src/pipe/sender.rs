//! [`Sender`]: the sending half: from a TensorDict to messages.

use std::sync::Arc;

use super::connection::{number, Connection};
use super::kind;
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Phase, Result};
use crate::link::{Kind, Lane, Link, LinkError, Message, Payload};
use crate::wire::{Body, Format, Outgoing, SendSession};

#[derive(Debug)]
pub(super) struct Sender<L: Link> {
    connection: Arc<Connection<L>>,
    session: SendSession,
    format: Format,
    /// The peer was gone when something was sent; what it sent before can still be received.
    gone: Option<Error>,
}

impl<L: Link> Sender<L> {
    pub(super) fn new(connection: Arc<Connection<L>>, format: Format) -> Self {
        Self { connection, session: SendSession::new(format), format, gone: None }
    }

    pub(super) fn send(&mut self, td: &TensorDict, timer: Timer) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        let outgoing = self.session.encode(td)?;
        let sent = transmit(&self.connection.link, self.format, &outgoing, timer);
        match sent {
            Ok(()) => {
                let bytes = outgoing.bodies().iter().map(|body| body.len as u64).sum();
                let schema = outgoing.header().is_some();
                self.session.commit();
                self.connection.sent.count(bytes, schema, self.session.allocations());
                Ok(())
            }
            Err(error) => {
                let gone = matches!(error, LinkError::Gone { .. });
                let error = self.connection.explain(Phase::Send, timer, "while sending to it", error);
                if gone {
                    self.gone = Some(error.clone());
                } else {
                    self.connection.fail(error.clone());
                }
                Err(error)
            }
        }
    }

    /// Whether `td` can be sent.
    pub(super) fn check(&mut self, td: &TensorDict) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        self.session.encode(td)?;
        Ok(())
    }

    pub(super) fn failure(&self) -> Option<&Error> {
        self.connection.failure().or(self.gone.as_ref())
    }
}

/// Hands the messages of one TensorDict to the link.
fn transmit<L: Link>(link: &L, format: Format, outgoing: &Outgoing<'_>, timer: Timer) -> Result<(), LinkError> {
    let kinds = link.has_kinds();
    let flag = outgoing.flag().filter(|_| !kinds).map(|flag| [flag]);
    let flag = flag.as_ref().map(|flag| Message { lane: Lane::Data, kind: Kind::PLAIN, payload: Payload::Small(flag) });
    let Some(header) = outgoing.header() else {
        let bodies = outgoing.bodies();
        return match (flag, bodies) {
            (Some(flag), [storage]) => link.send(&[flag, body(kind::BODY, storage)], timer.deadline),
            _ => send_all(link, kind::SAME_SCHEMA, bodies, timer),
        };
    };
    if let Some(flag) = flag {
        link.send(&[flag], timer.deadline)?;
    }
    let len = (header.len() as u64).to_le_bytes();
    let opening = if format == Format::LeafByLeaf { kind::LEAF_BY_LEAF } else { kind::NEW_SCHEMA };
    let payload = Payload::Block { storage: header, offset: 0, len: header.len() };
    let header = Message { lane: Lane::Data, kind: kind::HEADER, payload };
    link.send(&[number(Lane::Data, opening, &len), header], timer.deadline)?;
    send_all(link, kind::BODY, outgoing.bodies(), timer)
}

fn send_all<L: Link>(link: &L, kind: Kind, bodies: &[Body], timer: Timer) -> Result<(), LinkError> {
    bodies.iter().try_for_each(|one| link.send(&[body(kind, one)], timer.deadline))
}

fn body(kind: Kind, body: &Body) -> Message<'_> {
    let payload = Payload::Block { storage: &body.storage, offset: body.offset, len: body.len };
    Message { lane: Lane::Data, kind, payload }
}
