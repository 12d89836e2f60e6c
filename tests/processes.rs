//! Two real processes: what a close delivers, what a killed peer does to the other end, and what an idle pipe costs.
#![cfg(feature = "ucx")]

mod common {
    #[allow(dead_code)] // each test file uses a part
    pub(crate) mod child;
}

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::child::{role, say, Child};
use tensordict_pipe::{tensordict, DType, Error, Pipe, PipeOptions, Result, Tensor, TensorDict};

const TRANSPORTS: [&str; 2] = ["shm", "tcp"];
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Longer than any call here may take.
const STUCK: Duration = Duration::from_secs(10);
/// How long both ends of a pipe do nothing, and how much of one CPU each may use.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_PERCENT: f64 = 1.0;

// Closing

#[test]
fn what_was_sent_before_a_close_arrives() {
    let sizes =
        [(1, &[1, 100, 10_000][..]), (8 * KIB, &[1, 100, 10_000]), (64 * KIB, &[1, 100, 10_000]), (64 * MIB, &[1, 20])];
    thread::scope(|scope| {
        for transport in TRANSPORTS {
            for (size, counts) in sizes {
                scope.spawn(move || counts.iter().for_each(|&count| close_delivers(transport, count, size, "close")));
            }
        }
    });
}

#[test]
fn what_was_sent_before_a_drop_arrives() {
    for transport in TRANSPORTS {
        close_delivers(transport, 10_000, 8 * KIB, "drop");
    }
}

/// In both directions at once, for which a second child takes the other part.
fn close_delivers(transport: &str, count: usize, size: usize, how: &str) {
    let (to_us, from_us) = (listener(transport), listener(transport));
    let sender = Child::start("send", &format!("{transport} {} {count} {size} {how}", port(&to_us)), &[]);
    let receiver = Child::start("receive-late", &format!("{transport} {} {count} {size}", port(&from_us)), &[]);
    thread::scope(|scope| {
        scope.spawn(|| send(from_us.accept().expect("accept"), count, size, how));
        receive_late(&mut to_us.accept().expect("accept"), count, size);
    });
    sender.succeed();
    receiver.succeed();
    println!("{transport}: {count} messages of {size} bytes, then {how}: all arrive, in both directions");
}

fn send(mut pipe: Pipe, count: usize, size: usize, how: &str) {
    let mut td = message(size);
    for number in 0..count {
        td.consolidated_bytes_mut().expect("consolidated")[..size].fill(number as u8);
        pipe.send(&td).expect("send");
    }
    if how == "close" {
        pipe.close().expect("close");
    }
}

/// That it starts a second late is the scenario.
fn receive_late(pipe: &mut Pipe, count: usize, size: usize) {
    thread::sleep(Duration::from_secs(1));
    for number in 0..count {
        let td = pipe.recv().unwrap_or_else(|error| panic!("message {number} of {count}: {error}"));
        let bytes = td.get("data").expect("a leaf").bytes();
        assert_eq!((bytes.len(), bytes[0]), (size, number as u8), "message {number} of {count}");
        assert!(bytes[1..] == bytes[..size - 1], "message {number} of {count} is damaged");
    }
    let end = pipe.recv().expect_err("nothing follows");
    assert!(end.is_closed(), "{end}");
}

// Killed peers

#[test]
fn a_receiver_sees_that_its_idle_peer_was_killed() {
    for transport in TRANSPORTS {
        killed(transport, "idle", Duration::from_millis(50), |pipe| pipe.recv().map(drop));
    }
}

#[test]
fn a_receiver_sees_that_its_sender_was_killed() {
    for transport in TRANSPORTS {
        for size in [1, 64 * KIB, 16 * MIB] {
            for delay in [0, 3, 30, 150] {
                let victim = format!("stream-out {size}");
                killed(transport, &victim, Duration::from_millis(delay), |pipe| loop {
                    pipe.recv()?;
                });
            }
        }
    }
}

#[test]
fn a_sender_sees_that_its_receiver_was_killed() {
    for transport in TRANSPORTS {
        for size in [1, 64 * KIB, 16 * MIB] {
            for delay in [0, 3, 30, 150] {
                killed(transport, &format!("stream-in {size}"), Duration::from_millis(delay), send_for_ever(size));
            }
        }
    }
}

#[test]
fn a_sender_that_waits_for_a_deaf_receiver_sees_that_it_was_killed() {
    for transport in TRANSPORTS {
        for size in [1, 64 * KIB, 16 * MIB] {
            killed(transport, &format!("deaf {size}"), Duration::from_millis(300), send_for_ever(size));
        }
    }
}

#[test]
fn a_receiver_gets_what_a_killed_sender_had_sent() {
    for transport in TRANSPORTS {
        killed(transport, "pause 3", Duration::from_millis(50), |pipe| {
            for number in 0..3 {
                let td = pipe.recv().expect("sent before");
                assert_eq!(td.get("data").expect("a leaf").bytes(), [number; 100]);
            }
            pipe.recv().map(drop)
        });
    }
}

#[test]
fn closing_tells_that_the_peer_was_killed() {
    for transport in TRANSPORTS {
        let listening = listener(transport);
        let mut victim = Child::start("deaf", &format!("{transport} {}", port(&listening)), &[]);
        let mut pipe = listening.accept().expect("accept");
        pipe.send(&message(100)).expect("send");
        let (error, delay) = outlive(&mut victim, Duration::from_millis(50), move || pipe.close());
        report(transport, "close, deaf peer", &error, delay);
    }
}

#[test]
fn a_peer_killed_between_two_calls_is_seen_by_the_next() {
    for transport in TRANSPORTS {
        for call in ["send", "recv"] {
            let listening = listener(transport);
            let mut victim = Child::start("deaf", &format!("{transport} {}", port(&listening)), &[]);
            let mut pipe = listening.accept().expect("accept");
            victim.hear();
            let died = victim.kill();
            let error = match call {
                "recv" => pipe.recv().map(drop),
                _ => send_for_ever(100)(&mut pipe),
            };
            report(transport, &format!("{call} afterwards"), &error.expect_err("no peer"), died.elapsed());
        }
    }
}

/// Whenever a client dies while it connects, the listener goes on waiting or gets an error, now or at the first call.
#[test]
fn a_client_killed_while_it_connects_does_not_hold_the_listener() {
    const CLIENTS: u32 = 20;
    for transport in TRANSPORTS {
        let (usual, _) = dies_while_connecting(transport, STUCK);
        let mut established = 0;
        for i in 0..CLIENTS {
            established += u32::from(dies_while_connecting(transport, usual * i * 5 / 4 / CLIENTS).1);
        }
        println!("{transport}: {CLIENTS} clients killed within {usual:?} and a bit, {established} after the handshake");
    }
}

/// Kills a client when it has connected, but after `delay` at the latest. How long it took to connect, and whether it did.
fn dies_while_connecting(transport: &str, delay: Duration) -> (Duration, bool) {
    let options = options(transport).accept_timeout(Duration::from_millis(500).max(delay));
    let listening = options.handshake_timeout(Duration::from_secs(2)).listener(0).expect("listener");
    let started = Instant::now();
    let mut victim = Child::start("deaf", &format!("{transport} {}", port(&listening)), &[]);
    let (sender, connected) = mpsc::channel();
    thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let accepted = listening.accept();
            let _ = sender.send(started.elapsed());
            accepted.and_then(|mut pipe| pipe.recv())
        });
        let time = connected.recv_timeout(delay);
        victim.kill();
        let error = accepting.join().expect("no panic").expect_err("no peer");
        assert!(!error.is_closed(), "{error}");
        (time.unwrap_or(delay), time.is_ok())
    })
}

fn send_for_ever(size: usize) -> impl FnOnce(&mut Pipe) -> Result<()> + Send {
    move |pipe| {
        let td = message(size);
        loop {
            pipe.send(&td)?;
        }
    }
}

/// Kills the child `victim` after `delay`, while this process is in `call`.
fn killed(transport: &str, victim: &str, delay: Duration, call: impl FnOnce(&mut Pipe) -> Result<()> + Send) {
    let (role, arguments) = victim.split_once(' ').unwrap_or((victim, ""));
    let listening = listener(transport);
    let mut child = Child::start(role, &format!("{transport} {} {arguments}", port(&listening)), &[]);
    let mut pipe = listening.accept().expect("accept");
    child.hear();
    let (error, elapsed) = outlive(&mut child, delay, || call(&mut pipe));
    report(transport, &format!("{victim}, after {delay:?}"), &error, elapsed);
    let again = pipe.recv().expect_err("the pipe is finished");
    assert!(!again.is_closed() && again.is_final(), "{again}");
    assert!(pipe.send(&message(1)).is_err());
}

/// The error that `call` ends with, and how long after the kill.
fn outlive(victim: &mut Child, delay: Duration, call: impl FnOnce() -> Result<()> + Send) -> (Error, Duration) {
    thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        scope.spawn(move || {
            let result = call();
            let _ = sender.send((result, Instant::now()));
        });
        thread::sleep(delay);
        let died = victim.kill();
        let Ok((result, then)) = ended.recv_timeout(STUCK) else {
            eprintln!("no error within {STUCK:?} of the peer's death");
            std::process::abort(); // the stuck call cannot be joined
        };
        (result.expect_err("no peer"), then.saturating_duration_since(died))
    })
}

fn report(transport: &str, what: &str, error: &Error, delay: Duration) {
    println!("{transport}: killed: {what}: seen in {:.1} ms: {error}", delay.as_secs_f64() * 1e3);
    assert!(error.is_final() && !error.is_closed() && !error.is_timeout(), "{error}");
    assert!(delay < STUCK, "{delay:?}");
}

// Idle pipes

#[test]
fn an_idle_pipe_costs_nothing() {
    // The second of each pair is idle in another way; its own cost counts where it has no work of its own.
    let pairs = [("shm", "idle", true), ("tcp", "idle", true), ("shm", "busy", false), ("tcp", "deaf", true)];
    let children: Vec<(Child, Child)> = pairs
        .iter()
        .map(|(transport, other, _)| {
            let first = Child::start("idle-server", transport, &[]);
            let second = Child::start(other, &format!("{transport} {}", first.hear()), &[]);
            first.hear();
            second.hear();
            (first, second)
        })
        .collect();
    thread::sleep(Duration::from_millis(500)); // until both have gone to sleep in their calls
    let before: Vec<_> = children.iter().map(|(first, second)| (cpu(first), cpu(second))).collect();
    thread::sleep(IDLE);
    for (((transport, other, counts), (first, second)), before) in pairs.iter().zip(&children).zip(before) {
        let percent = |child, before| (cpu(child) - before) / IDLE.as_secs_f64() * 100.0;
        let (ours, theirs) = (percent(first, before.0), percent(second, before.1));
        println!(
            "{transport}: idle for {IDLE:?} with a peer that is {other}: {ours:.2} % of a CPU, the peer {theirs:.2} %"
        );
        assert!(ours < IDLE_PERCENT && (!counts || theirs < IDLE_PERCENT));
    }
}

/// The seconds of CPU time that a child has used.
fn cpu(child: &Child) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks = |n: usize| fields[n].parse::<f64>().expect("ticks");
    // SAFETY: a plain query.
    (ticks(11) + ticks(12)) / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

// Both sides

fn options(transport: &str) -> PipeOptions {
    let options = Pipe::options().bind("127.0.0.1").close_timeout(Duration::from_secs(60));
    if transport == "tcp" {
        options.ucx("TLS", "tcp")
    } else {
        options
    }
}

fn listener(transport: &str) -> tensordict_pipe::Listening {
    options(transport).listener(0).expect("listener")
}

fn port(listening: &tensordict_pipe::Listening) -> u16 {
    listening.local_addr().port()
}

fn message(size: usize) -> TensorDict {
    let data = Tensor::zeros(DType::UInt8, [size]).expect("it fits");
    tensordict!([]; "data" => data).expect("it fits").consolidate()
}

/// The roles of children: `ROLE TRANSPORT PORT ...`.
#[test]
#[ignore = "what the children of other tests run"]
fn child() {
    let Some((role, arguments)) = role() else { return };
    let transport = arguments[0].as_str();
    if role == "idle-server" {
        let listening = listener(transport);
        say(port(&listening));
        let mut pipe = listening.accept().expect("accept");
        say("ready");
        pipe.recv().expect("killed before");
    }
    let number = |i: usize| arguments[i].parse::<usize>().expect("a number");
    let mut pipe = options(transport).connect("127.0.0.1", number(1) as u16).expect("connect");
    let expected = if transport == "tcp" { "tcp/" } else { "/memory" };
    assert!(pipe.transports().iter().all(|name| name.contains(expected)), "{:?}", pipe.transports());
    say("ready");
    match role.as_str() {
        "send" => send(pipe, number(2), number(3), &arguments[4]),
        "receive-late" => receive_late(&mut pipe, number(2), number(3)),
        "idle" => drop(pipe.recv()),
        "stream-in" => while pipe.recv().is_ok() {},
        "stream-out" => drop(send_for_ever(number(2))(&mut pipe)),
        "pause" => {
            let mut td = message(100);
            for number in 0..number(2) {
                td.get_mut("data").expect("a leaf").into_bytes().fill(number as u8);
                pipe.send(&td).expect("send");
            }
            loop {
                thread::park();
            }
        }
        "deaf" => loop {
            thread::park();
        },
        "busy" => loop {
            std::hint::spin_loop();
        },
        _ => panic!("no role {role}"),
    }
}
