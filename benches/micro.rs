//! What the steps of a message cost: `cargo bench --bench micro`, or with `-- pack` only those with that name.
//!
//! Times depend on the machine. Ratios, which do not, are in `codec`; whole pipes beside others are in `side_by_side`.

use divan::counter::BytesCount;
use divan::{black_box, Bencher};
use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
use tensordict_pipe::{Storage, Tensor, TensorDict};

fn main() {
    divan::main();
}

/// Leaves, and the bytes of all together.
const SHAPES: [(usize, usize); 4] = [(1, 8), (1, 21_504), (16, 1 << 20), (1_000, 256_000)];

fn loose((leaves, bytes): (usize, usize)) -> TensorDict {
    let mut td = TensorDict::new([]);
    for leaf in 0..leaves {
        td.insert(format!("leaf_{leaf}"), Tensor::from(vec![leaf as u8; bytes / leaves])).expect("a new key");
    }
    td
}

/// Copies loose leaves into the reused buffer that is sent.
#[divan::bench(args = SHAPES)]
fn pack(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
    let td = loose(shape);
    let mut session = SendSession::new(Format::Consolidated);
    session.encode(&td).expect("sendable");
    session.commit();
    bencher.counter(BytesCount::new(shape.1)).bench_local(|| {
        black_box(session.encode(black_box(&td)).expect("sendable").bodies());
        session.commit();
    });
}

/// Reads a schema that has changed.
#[divan::bench(args = [1, 16, 1_000])]
fn decode_schema(bencher: Bencher<'_, '_>, leaves: usize) {
    let td = loose((leaves, leaves)).consolidate();
    let mut session = SendSession::new(Format::Consolidated);
    let header = session.encode(&td).expect("sendable").header().expect("the first").clone();
    let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
    bencher
        .counter(BytesCount::new(header.len()))
        .bench_local(|| receiver.accept_header(black_box(header.as_bytes())).expect("our own"));
}

/// A link whose two ends are in this thread: a message of the steady state is one copy.
struct InMemory {
    sender: SendSession,
    receiver: RecvSession,
}

impl InMemory {
    fn new(td: &TensorDict) -> Self {
        let mut sender = SendSession::new(Format::Consolidated);
        let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
        let header = sender.encode(td).expect("sendable").header().expect("the first").clone();
        receiver.accept_header(header.as_bytes()).expect("our own");
        sender.commit();
        Self { sender, receiver }
    }

    fn send(&mut self, td: &TensorDict, into: &mut Storage) {
        let outgoing = self.sender.encode(td).expect("sendable");
        let body = outgoing.bodies()[0].bytes();
        into.make_mut()[..body.len()].copy_from_slice(body);
        self.sender.commit();
    }

    fn recv(&mut self, body: Storage) -> TensorDict {
        self.receiver.finish(body).expect("whole")
    }
}

/// Sends and receives consolidated TensorDicts of a known schema.
#[divan::bench(args = SHAPES)]
fn in_memory(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
    let td = loose(shape).consolidate();
    let mut link = InMemory::new(&td);
    bencher.counter(BytesCount::new(shape.1)).bench_local(|| {
        let mut body = link.receiver.buffer();
        link.send(black_box(&td), &mut body);
        drop(black_box(link.recv(body))); // here, or the pool has to grow
    });
}

/// The same through a pipe over UCX, of which this thread has both ends: no message waits for another process.
#[cfg(feature = "ucx")]
mod pipe {
    use std::thread;

    use tensordict_pipe::Pipe;

    use super::*;

    /// So many messages at a time; many more would wait for the receiver.
    const BATCH: usize = 8;

    fn pair() -> (Pipe, Pipe) {
        let listening = Pipe::options().bind("127.0.0.1").listener(0).expect("a free port");
        let port = listening.local_addr().port();
        let connecting = thread::spawn(move || Pipe::connect("127.0.0.1", port).expect("a listener"));
        let receiver = listening.accept().expect("a client");
        (connecting.join().expect("no panic"), receiver)
    }

    fn close(sender: Pipe, receiver: Pipe) {
        // A close waits for the other end.
        let closing = thread::spawn(|| sender.close());
        drop(receiver);
        let _ = closing.join();
    }

    #[divan::bench(args = SHAPES[..2].iter().copied())]
    fn send_and_recv(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
        let td = loose(shape).consolidate();
        let (mut sender, mut receiver) = pair();
        bencher.counter(BytesCount::new(shape.1 * BATCH)).bench_local(|| {
            for _ in 0..BATCH {
                sender.send(black_box(&td)).expect("sent");
            }
            for _ in 0..BATCH {
                black_box(receiver.recv().expect("received"));
            }
        });
        close(sender, receiver);
    }
}
