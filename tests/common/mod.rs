//! What the tests over UCX share: a watchdog, and pairs of pipes in one process.

// Every test file uses a part of it.
#![allow(dead_code)]

use std::io::{stderr, Write};
use std::panic::Location;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use tensordict_pipe::{Pipe, PipeOptions};

/// Far more than any test takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Ends the whole process, with the name of the test, if it is not dropped in time. Every test over UCX begins with
/// one: what hangs shall fail.
#[must_use]
pub(crate) struct Watchdog(Sender<()>);

impl Watchdog {
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self::within(PATIENCE)
    }

    #[track_caller]
    pub(crate) fn within(patience: Duration) -> Self {
        let (alive, watched) = channel();
        let place = Location::caller();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if watched.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                // Not by `eprintln!`, which the test harness would keep to itself.
                let _ = writeln!(stderr(), "{test} ({place}) hangs: not done within {patience:?}");
                std::process::abort();
            }
        });
        Self(alive)
    }
}

/// The defaults, which on one host are shared memory, and TCP.
pub(crate) fn transports() -> [PipeOptions; 2] {
    [Pipe::options(), Pipe::options().ucx("TLS", "tcp")]
}

/// The two ends of a pipe: who connected, and who listened.
pub(crate) fn pair(options: &PipeOptions) -> (Pipe, Pipe) {
    let options = options.clone().bind("127.0.0.1");
    let listening = options.listener(0).expect("a free port");
    let port = listening.local_addr().port();
    let connecting = thread::spawn(move || options.connect("127.0.0.1", port).expect("a listener"));
    let accepted = listening.accept().expect("a client");
    (connecting.join().expect("no panic"), accepted)
}

/// Runs the two ends of a pipe, each in a thread, and closes it properly.
pub(crate) fn run<T: Send>(
    options: &PipeOptions,
    send: impl FnOnce(&mut Pipe) + Send,
    receive: impl FnOnce(&mut Pipe) -> T,
) -> T {
    let (mut sender, mut receiver) = pair(options);
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            send(&mut sender);
            sender.close().expect("everything is received");
        });
        let received = receive(&mut receiver);
        assert!(receiver.recv().expect_err("nothing more comes").is_closed());
        sending.join().expect("the sending end");
        received
    })
}
