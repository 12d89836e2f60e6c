//! How much memory a pipe takes: idle, and when the reader is slow. In processes of their own, where nothing else counts.
#![cfg(feature = "ucx")]

mod common {
    #[allow(dead_code)] // each test file uses a part
    pub(crate) mod child;
}

use std::time::Duration;
use std::{fs, thread};

use common::child::{role, say, Child};
use tensordict_pipe::{tensordict, DType, Pipe, PipeOptions, Server, Tensor};

const KIB: usize = 1 << 10;
/// What 200 idle pipes may take.
const IDLE_KIB: usize = 512 * KIB;
const PIPES: usize = 200;
/// What each side may grow by while the reader sleeps for a millisecond over every message.
const SLOW_KIB: usize = 16 * KIB;
/// Without a limit, they would be five times [`SLOW_KIB`].
const MESSAGES: usize = if cfg!(debug_assertions) { 4_000 } else { 20_000 };
const WARM_UP: usize = 200;
const MESSAGE_BYTES: usize = 64 * 84 * 4;

#[test]
fn two_hundred_idle_pipes_are_small() {
    let child = Child::start("idle", "", &[]);
    let grown: usize = child.hear().parse().expect("KiB");
    println!("{PIPES} idle pipes: {} MiB, {} KiB each", grown / KIB, grown / PIPES);
    assert!(grown <= IDLE_KIB, "{grown} KiB");
    child.succeed();
}

/// Eager messages that nobody has asked for pile up where a library takes them in: hence the thresholds.
#[test]
fn a_slow_reader_holds_back_the_sender() {
    let ways = ["", "RNDV_THRESH=inf", "RNDV_THRESH=8k", "TLS=tcp", "TLS=tcp RNDV_THRESH=inf", "TLS=tcp ANSWER=y"];
    let children = ways.map(|way| {
        let reader = Child::start("reader", way, &[]);
        let port = reader.hear();
        (way, Child::start("sender", &format!("{way} PORT={port}"), &[]), reader)
    });
    for (way, sender, reader) in children {
        for (side, child) in [("sender", sender), ("reader", reader)] {
            let grown: usize = child.hear().parse().expect("KiB");
            println!("settings '{way}': the {side} has grown by {grown} KiB over {MESSAGES} messages");
            assert!(grown <= SLOW_KIB, "{way}: the {side} has grown by {grown} KiB");
            child.succeed();
        }
    }
}

fn idle() {
    let server = Server::bind("127.0.0.1", 0).expect("a free port");
    let port = server.local_addr().port();
    let before = memory_kib("VmRSS");
    let pairs: Vec<_> = (0..PIPES / 2)
        .map(|_| (Pipe::connect("127.0.0.1", port).expect("a listener"), server.accept().expect("a client")))
        .collect();
    say(memory_kib("VmRSS") - before);
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    thread::scope(|scope| {
        // A close waits for the other end.
        scope.spawn(|| drop(ours));
        drop(theirs);
    });
}

fn reader(options: &PipeOptions, answer: bool) {
    let listening = options.listener(0).expect("a free port");
    say(listening.local_addr().port());
    let mut pipe = listening.accept().expect("a client");
    let mut before = 0;
    for number in 0..MESSAGES {
        let td = pipe.recv().expect("sent");
        assert_eq!(td.get("data").expect("a leaf").as_slice::<f32>().expect("numbers")[0], number as f32);
        if number == WARM_UP {
            before = memory_kib("VmRSS");
        }
        if answer {
            // Nobody receives it, and the sender has no reason to wait for anything: what UCX does to get it there must
            // take in nothing.
            pipe.send(&tensordict!([]).expect("empty")).expect("sent");
        }
        // That the reader is slow is what this is about.
        thread::sleep(Duration::from_millis(1));
    }
    say(memory_kib("VmHWM") - before);
    assert!(pipe.recv().expect_err("nothing follows").is_closed());
}

fn sender(options: &PipeOptions, port: u16) {
    let mut pipe = options.connect("127.0.0.1", port).expect("a listener");
    let data = Tensor::zeros(DType::Float32, [64, 84]).expect("fits");
    assert_eq!(data.bytes().len(), MESSAGE_BYTES);
    let mut td = tensordict!([]; "data" => data).expect("fits").consolidate();
    let mut before = 0;
    for number in 0..MESSAGES {
        td.get_mut("data").expect("a leaf").as_slice_mut::<f32>().expect("numbers")[0] = number as f32;
        pipe.send(&td).expect("sent");
        if number == WARM_UP {
            before = memory_kib("VmRSS");
        }
    }
    say(memory_kib("VmHWM") - before);
    pipe.close().expect("everything is received");
}

/// A line of the process's status: `VmRSS`, what is resident now, or `VmHWM`, the most that ever was.
fn memory_kib(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The roles of children, with UCX settings and a port as `NAME=VALUE`.
#[test]
#[ignore = "what the children of other tests run"]
fn child() {
    let Some((role, arguments)) = role() else { return };
    let mut options = Pipe::options().bind("127.0.0.1").close_timeout(Duration::from_secs(60));
    let (mut port, mut answer) = (0, false);
    for (name, value) in arguments.iter().filter_map(|argument| argument.split_once('=')) {
        match name {
            "PORT" => port = value.parse().expect("a port"),
            "ANSWER" => answer = value == "y",
            name => options = options.ucx(name, value),
        }
    }
    match role.as_str() {
        "idle" => idle(),
        "reader" => reader(&options, answer),
        "sender" => sender(&options, port),
        _ => panic!("no role {role}"),
    }
}
