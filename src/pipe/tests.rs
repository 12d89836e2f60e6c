//! The protocol over the in-memory link: without UCX, against any peer, and with faults.
//!
//! Nothing waits for longer than [`PATIENCE`], so what would hang fails instead.

mod ending;
mod hostile;
mod messages;
mod python;
mod receiving;

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::receiver::{Placed, Receiver};
use super::sender::Sender;
use super::timer::Timer;
use crate::data::{Tensor, TensorDict};
use crate::error::{Error, Peer, Result};
use crate::link::loopback::{pair, Loopback, Packet};
use crate::link::Kind;
use crate::tensordict;
use crate::wire::{Format, Limits, RecvSession};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the ends know kinds, and the format.
type Setting = (bool, Format);

const SETTINGS: [Setting; 4] = [
    (false, Format::Consolidated),
    (true, Format::Consolidated),
    (false, Format::LeafByLeaf),
    (true, Format::LeafByLeaf),
];

/// One end of a pipe.
#[derive(Debug)]
struct End {
    sender: Sender<Loopback>,
    receiver: Receiver<Loopback>,
    connection: Arc<Connection<Loopback>>,
}

impl End {
    /// `goodbye` is how long it waits for the peer's part of a goodbye, when it is dropped or the peer leaves.
    fn new(link: Loopback, format: Format, limits: Limits, goodbye: Duration) -> Self {
        let connection = Arc::new(Connection::new(link, Peer::new("the peer"), goodbye));
        Self {
            sender: Sender::new(Arc::clone(&connection), format),
            receiver: Receiver::new(Arc::clone(&connection), RecvSession::new(format, limits), format),
            connection,
        }
    }

    fn link(&self) -> &Loopback {
        &self.connection.link
    }

    fn send(&mut self, td: &TensorDict) -> Result<()> {
        self.sender.send(td, &Timer::new(Some(PATIENCE)))
    }

    fn recv(&mut self) -> Result<TensorDict> {
        self.receiver.recv(Timer::new(Some(PATIENCE)))
    }

    fn recv_into(&mut self, td: &mut TensorDict) -> Result<Placed> {
        self.receiver.recv_into(td, Timer::new(Some(PATIENCE)))
    }

    /// Receives with a deadline that has passed.
    fn poll(&mut self) -> Result<TensorDict> {
        self.receiver.recv(Timer::new(Some(Duration::ZERO)))
    }

    fn poll_into(&mut self, td: &mut TensorDict) -> Result<Placed> {
        self.receiver.recv_into(td, Timer::new(Some(Duration::ZERO)))
    }

    fn close(&self) -> Result<()> {
        self.connection.close(Timer::new(Some(PATIENCE)))
    }

    /// Every call returns the error with this text, now and later.
    #[track_caller]
    fn assert_finished(&mut self, text: &str) {
        let mut td = a(0.0).consolidate();
        for _ in 0..2 {
            assert_error(&self.recv(), text);
            assert_error(&self.poll(), text);
            assert_error(&self.recv_into(&mut td), text);
            assert!(td == a(0.0), "left as it was");
            assert_error(&self.send(&a(1.0)), text);
            assert_eq!(self.sender.failure().map(Error::to_string).as_deref(), Some(text));
        }
        assert_error(&self.close(), text);
        assert_error(&self.close(), text);
    }
}

#[track_caller]
fn assert_error<T: std::fmt::Debug>(result: &Result<T>, text: &str) {
    assert_eq!(result.as_ref().expect_err(text).to_string(), text);
}

/// Two ends of a pipe that wait for each other when they part.
fn ends((kinds, format): Setting) -> (End, End) {
    let (one, other) = pair(kinds);
    let end = |link| End::new(link, format, Limits::default(), PATIENCE);
    (end(one), end(other))
}

/// An end, and the bare link to it. The end does not wait when it is dropped.
fn end_and_link(setting: Setting) -> (End, Loopback) {
    end_and_link_within(setting, Limits::default())
}

fn end_and_link_within((kinds, format): Setting, limits: Limits) -> (End, Loopback) {
    let (one, other) = pair(kinds);
    (End::new(one, format, limits, Duration::ZERO), other)
}

/// 24 bytes.
fn a(x: f32) -> TensorDict {
    tensordict!([2];
        "x" => Tensor::from_slice(&[x, 2.0, 3.0, 4.0], [2, 2]).expect("sized"),
        "n" => { "y" => vec![7_u8, 9] },
    )
    .expect("batched")
}

/// 32 bytes, and a value.
fn b(y: i64) -> TensorDict {
    tensordict!([]; "y" => vec![y, 2, 3, 4], "name" => "b").expect("batched")
}

fn empty() -> TensorDict {
    TensorDict::new([])
}

/// No format carries it.
fn unsendable() -> TensorDict {
    tensordict!([]; "q" => Tensor::zeros(crate::DType::QInt8, [2]).expect("small")).expect("batched")
}

/// What an end of this setting sends for the TensorDicts, message by message.
fn recorded(setting: Setting, tds: &[TensorDict]) -> Vec<Vec<Packet>> {
    let (mut end, link) = end_and_link(setting);
    let record = |td| {
        end.send(td).expect("sendable");
        std::iter::from_fn(|| link.recv_raw()).collect()
    };
    tds.iter().map(record).collect()
}

fn feed(link: &Loopback, packet: &Packet) {
    link.send_raw(packet.kind, &packet.bytes);
}

fn address(td: &TensorDict) -> *const u8 {
    td.consolidated_bytes().expect("consolidated").as_ptr()
}

fn packet(kind: Kind, bytes: impl Into<Vec<u8>>) -> Packet {
    Packet { kind, bytes: bytes.into() }
}

/// The numbers of a goodbye.
fn counts(sent: u64, received: u64) -> Vec<u8> {
    [sent.to_le_bytes(), received.to_le_bytes()].concat()
}

fn length(len: usize) -> [u8; 8] {
    (len as u64).to_le_bytes()
}
