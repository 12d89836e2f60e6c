//! [`Sender`]: the sending half: from a TensorDict to messages.

use std::sync::Arc;

use super::connection::{number, Connection};
use super::kind;
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Phase, Result};
use crate::link::{Kind, Lane, Link, LinkError, Message, Payload};
use crate::wire::{self, Body, Format, Outgoing, SendSession};

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

    pub(super) fn send(&mut self, td: &TensorDict, timer: &Timer) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        let link = &self.connection.link;
        let (bytes, new_schema) = if let Some((storage, len)) = self.session.known(td) {
            let payload = Payload::Block { storage, offset: 0, len };
            let sent = transmit_known(link, payload, timer);
            sent.map_err(|error| self.failed(timer, error))?;
            (len as u64, false)
        } else {
            let outgoing = self.session.encode_in_place(td)?;
            let bytes = payloads(&outgoing).map(|payload| payload.len() as u64).sum();
            let new_schema = outgoing.header().is_some();
            let sent = transmit(link, self.format, &outgoing, timer);
            sent.map_err(|error| self.failed(timer, error))?;
            self.session.commit();
            (bytes, new_schema)
        };
        self.connection.sent.count(bytes, new_schema, self.session.allocations());
        Ok(())
    }

    #[cold]
    fn failed(&mut self, timer: &Timer, error: LinkError) -> Error {
        let gone = matches!(error, LinkError::Gone { .. });
        let error = self.connection.explain(Phase::Send, *timer, "while sending to it", error);
        if gone {
            self.gone = Some(error.clone());
            return error;
        }
        self.connection.fail(error)
    }

    /// Whether `td` can be sent.
    pub(super) fn check(&mut self, td: &TensorDict) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        self.session.encode_in_place(td)?;
        Ok(())
    }

    pub(super) fn failure(&self) -> Option<&Error> {
        self.connection.failure().or(self.gone.as_ref())
    }
}

/// Hands the one message of a TensorDict to the link whose schema the peer knows.
fn transmit_known<L: Link>(link: &L, payload: Payload<'_>, timer: &Timer) -> Result<(), LinkError> {
    let message = Message { lane: Lane::Data, kind: kind::SAME_SCHEMA, payload };
    if link.has_kinds() {
        return link.send(&[message], timer.deadline);
    }
    let flag = Message { lane: Lane::Data, kind: Kind::PLAIN, payload: Payload::Small(&[wire::SAME_SCHEMA]) };
    link.send(&[flag, message], timer.deadline)
}

/// Hands the messages of one TensorDict to the link.
fn transmit<L: Link>(link: &L, format: Format, outgoing: &Outgoing<'_>, timer: &Timer) -> Result<(), LinkError> {
    let kinds = link.has_kinds();
    let Some(header) = outgoing.header() else {
        return payloads(outgoing).try_for_each(|payload| transmit_known(link, payload, timer));
    };
    let flag = outgoing.flag().filter(|_| !kinds).map(|flag| [flag]);
    let flag = flag.as_ref().map(|flag| Message { lane: Lane::Data, kind: Kind::PLAIN, payload: Payload::Small(flag) });
    if let Some(flag) = flag {
        link.send(&[flag], timer.deadline)?;
    }
    let len = (header.len() as u64).to_le_bytes();
    let payload = Payload::Block { storage: header, offset: 0, len: header.len() };
    let header = Message { lane: Lane::Data, kind: kind::HEADER, payload };
    link.send(&[number(Lane::Data, kind::opening(format), &len), header], timer.deadline)?;
    payloads(outgoing)
        .try_for_each(|payload| link.send(&[Message { lane: Lane::Data, kind: kind::BODY, payload }], timer.deadline))
}

/// The bodies as the link takes them.
fn payloads<'a>(outgoing: &Outgoing<'a>) -> impl Iterator<Item = Payload<'a>> {
    let block = |body: &'a Body| Payload::Block { storage: &body.storage, offset: body.offset, len: body.len };
    outgoing.gather().map(Payload::Gather).into_iter().chain(outgoing.bodies().iter().map(block))
}
