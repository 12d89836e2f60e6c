//! A peer that behaves as Python's: it knows no kinds, and closes by force. Over UCX.

use std::net::SocketAddr;
use std::thread;

use super::*;
use crate::link::{deadline_after, Lane, Link, Message, Payload};
use crate::pipe::{Listening, Pipe};
use crate::storage::Storage;
use crate::ucx::{Connecting, Settings, UcxLink};

fn listening() -> Listening {
    Pipe::options().bind("127.0.0.1").accept_timeout(PATIENCE).recv_timeout(PATIENCE).listener(0).expect("a free port")
}

fn connect(address: SocketAddr, transports: &str) -> UcxLink {
    let settings = Settings::new(vec![("TLS".into(), transports.into())]);
    let connecting = Connecting::to(address, &settings, Duration::ZERO).expect("begins to connect");
    connecting.establish_as_python(deadline_after(PATIENCE)).expect("a listener")
}

fn send(link: &UcxLink, td: &TensorDict) {
    for packet in recorded((false, Format::Consolidated), std::slice::from_ref(td)).concat() {
        let storage = Storage::from_bytes(&packet.bytes);
        let payload = Payload::Block { storage: &storage, offset: 0, len: packet.bytes.len() };
        link.send(&[Message { lane: Lane::Data, kind: packet.kind, payload }], deadline_after(PATIENCE)).expect("sent");
    }
}

#[test]
fn both_ends_may_close_at_once() {
    for transports in ["all", "tcp"] {
        for _ in 0..20 {
            let listening = listening();
            let address = listening.local_addr();
            let client = thread::spawn(move || {
                let link = connect(address, transports);
                send(&link, &a(1.0));
                link
            });
            let mut pipe = listening.accept().expect("a client");
            assert!(pipe.recv().expect("sent before") == a(1.0));
            let link = client.join().expect("no panic");
            let aborting = thread::spawn(move || link.abort());
            pipe.close().expect("a proper end: nothing was sent to the peer that could be lost");
            aborting.join().expect("no panic");
        }
    }
}
