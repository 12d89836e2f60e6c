//! [`Sender`]: the sending half: from a TensorDict to messages.

use std::sync::Arc;

use super::connection::{number, Connection};
use super::kind;
use super::timer::Timer;
use crate::data::TensorDict;
use crate::error::{Error, Phase, Result};
use crate::link::{Kind, Lane, Link, LinkError, Message, Payload};
use crate::storage::Storage;
use crate::wire::{Body, Format, SendSession};

/// Python's flag bytes.
const NEW_SCHEMA_FLAG: &[u8] = &[0x00];
const SAME_SCHEMA_FLAG: &[u8] = &[0x01];

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
        let sent = transmit(&self.connection.link, self.format, outgoing.header, outgoing.bodies, timer);
        match sent {
            Ok(()) => {
                self.session.commit();
                self.connection.count_sent();
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

    pub(super) fn failure(&self) -> Option<&Error> {
        self.connection.failure().or(self.gone.as_ref())
    }
}

/// Hands the messages of one TensorDict to the link.
fn transmit<L: Link>(
    link: &L,
    format: Format,
    header: Option<&Storage>,
    bodies: &[Body],
    timer: Timer,
) -> Result<(), LinkError> {
    let kinds = link.has_kinds();
    let flag = |flag| Message { lane: Lane::Data, kind: Kind::PLAIN, payload: Payload::Small(flag) };
    match (header, format, bodies) {
        (None, Format::Consolidated, [storage]) if kinds => link.send(&[body(kind::SAME_SCHEMA, storage)], timer.deadline),
        (None, Format::Consolidated, [storage]) => {
            link.send(&[flag(SAME_SCHEMA_FLAG), body(kind::BODY, storage)], timer.deadline)
        }
        (header, format, bodies) => {
            // A leaf-by-leaf message always has a header; `None` cannot come with it.
            let empty = Storage::zeroed(0);
            let header = header.unwrap_or(&empty);
            let len = (header.len() as u64).to_le_bytes();
            let head = if format == Format::Consolidated { kind::NEW_SCHEMA } else { kind::LEAF_BY_LEAF };
            let whole = Body { storage: header.clone(), offset: 0, len: header.len() };
            let opening = [flag(NEW_SCHEMA_FLAG), number(Lane::Data, head, &len), body(kind::HEADER, &whole)];
            let flagless = kinds || format == Format::LeafByLeaf;
            link.send(&opening[usize::from(flagless)..], timer.deadline)?;
            bodies.iter().try_for_each(|leaf| link.send(&[body(kind::BODY, leaf)], timer.deadline))
        }
    }
}

fn body(kind: Kind, body: &Body) -> Message<'_> {
    let payload = Payload::Block { storage: &body.storage, offset: body.offset, len: body.len };
    Message { lane: Lane::Data, kind, payload }
}
