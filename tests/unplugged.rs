//! Wrong addresses, closed ports, taken ports: each is an error that says what to do about it.
#![cfg(feature = "ucx")]

mod common;

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use common::{transports, Watchdog};
use tensordict_pipe::{Device, Error, Listening, Phase, Pipe, PipeOptions, Server, TensorDict};

const SHORT: Duration = Duration::from_millis(700);
const FOR_EVER: Duration = Duration::from_secs(3600);

fn local() -> PipeOptions {
    Pipe::options().bind("127.0.0.1")
}

/// A port on which nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port()
}

/// Closes both ends, which wait for each other.
fn part(a: Pipe, b: Pipe) {
    let other = thread::spawn(move || a.close());
    b.close().expect("closed");
    other.join().expect("no panic").expect("closed");
}

#[track_caller]
fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    println!("{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn a_name_that_does_not_resolve_is_told_at_once() {
    let started = Instant::now();
    let error = Pipe::connect("no-such-host.invalid", 13337).expect_err("no such host");
    assert!(matches!(error, Error::Resolve { .. }), "{error:?}");
    says(&error, &["cannot resolve \"no-such-host.invalid\"", "check the spelling"]);
    let error = local().bind("no-such-host.invalid").listen(0).expect_err("no such host");
    says(&error, &["cannot resolve \"no-such-host.invalid\""]);
    println!("{:?}", started.elapsed());
}

#[test]
fn a_port_where_nobody_listens_is_tried_until_the_deadline() {
    let (port, started) = (closed_port(), Instant::now());
    let error = Pipe::options().connect_timeout(SHORT).connect("127.0.0.1", port).expect_err("nobody there");
    assert!(started.elapsed() >= SHORT);
    assert!(matches!(error, Error::Timeout { phase: Phase::Connect, after: SHORT, .. }), "{error:?}");
    says(&error, &[&format!("connect to 127.0.0.1:{port}: no success within 700ms"), "nobody listens there"]);
}

#[test]
fn a_wrong_host_is_tried_until_the_deadline() {
    // For documentation (RFC 5737): nobody has it, and most networks answer nothing.
    let (host, started) = ("192.0.2.1", Instant::now());
    let error = Pipe::options().connect_timeout(SHORT).connect(host, 13337).expect_err("nobody there");
    assert!(started.elapsed() >= SHORT);
    assert!(matches!(error, Error::Timeout { phase: Phase::Connect, .. }), "{error:?}");
    says(&error, &["connect to 192.0.2.1:13337: no success within 700ms", "host"]);
}

#[test]
fn a_listener_may_start_two_seconds_later() {
    let port = closed_port();
    let client = thread::spawn(move || Pipe::connect("127.0.0.1", port));
    thread::sleep(Duration::from_secs(2)); // the scenario
    let mut pipe = local().listen(port).expect("listen");
    let mut client = client.join().expect("no panic").expect("connected in the end");
    client.send(&TensorDict::new([7])).expect("send");
    assert_eq!(pipe.recv().expect("recv").batch_size()[..], [7]);
    part(pipe, client);
}

#[test]
fn every_address_of_a_name_is_tried() {
    // `localhost` is ::1 first in many places.
    for bind in ["127.0.0.1", "localhost"] {
        let listening = local().bind(bind).listener(0).expect("listener");
        let port = listening.local_addr().port();
        let client = thread::spawn(move || Pipe::connect("localhost", port));
        part(listening.accept().expect("accept"), client.join().expect("no panic").expect("connected"));
    }
}

#[test]
fn ipv6_works_where_it_can() {
    for host in ["::1", "::"] {
        let listening = match local().bind(host).listener(0) {
            Ok(listening) => listening,
            // Older versions of UCX would write beyond their memory.
            Err(error) => {
                says(&error, &["[::", "use an IPv4 address"]);
                continue;
            }
        };
        let port = listening.local_addr().port();
        let client = thread::spawn(move || Pipe::connect("[::1]", port));
        part(listening.accept().expect("accept"), client.join().expect("no panic").expect("connected"));
    }
}

#[test]
fn link_local_addresses_are_refused() {
    let error = Pipe::connect("fe80::1", 13337).expect_err("not usable");
    says(&error, &["[fe80::1]:13337 cannot be used", "an IPv4 address"]);
}

#[test]
fn a_port_in_use_is_told_and_a_way_out() {
    let listening = local().listener(0).expect("listener");
    let ours = listening.local_addr().port();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let others = other.local_addr().expect("bound").port();
    for port in [ours, others] {
        let expected = format!("the address 127.0.0.1:{port} is in use; choose another port, or 0 for any free one");
        for error in [local().listen(port).expect_err("taken"), Server::bind("127.0.0.1", port).expect_err("taken")] {
            assert!(matches!(error, Error::AddrInUse(_)), "{error:?}");
            says(&error, &[&expected]);
        }
    }
}

#[test]
fn an_address_of_another_host_cannot_be_listened_on() {
    let error = local().bind("192.0.2.1").listen(0).expect_err("not ours");
    assert!(matches!(error, Error::Setup(_)), "{error:?}");
    says(&error, &["is 192.0.2.1 an address of this host"]);
}

#[test]
fn further_clients_are_refused_at_once_for_as_long_as_the_pipe_lives() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        let options = options.bind("127.0.0.1").connect_timeout(FOR_EVER);
        let listening = options.listener(0).expect("listener");
        let port = listening.local_addr().port();
        let client = options.clone();
        let first = thread::spawn(move || client.connect("127.0.0.1", port));
        let mut pipe = listening.accept().expect("accept");
        let mut first = first.join().expect("no panic").expect("connected");
        for number in 0..3 {
            let error = options.connect("127.0.0.1", port).expect_err("taken");
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
            says(&error, &[&format!("127.0.0.1:{port} refused"), "Either its pipe is taken already"]);
            first.send(&TensorDict::new([number])).expect("send");
            assert_eq!(pipe.recv().expect("recv").batch_size()[..], [number]);
        }
        part(pipe, first);
        let error = options.connect_timeout(SHORT).connect("127.0.0.1", port).expect_err("closed");
        says(&error, &["nobody listens there, or no longer"]);
        let again = local().listener(port).expect("the port is free");
        assert_eq!(again.local_addr().port(), port);
    }
}

/// Somebody who connects but is no pipe: a port scan, a browser. (UCX 1.13 aborts the process when the first eight bytes
/// look like a small length and more follow, before we see any of it: such a port is for trusted networks only.)
#[test]
fn a_stranger_does_not_become_a_pipe_and_keeps_nobody_from_it() {
    use std::io::Write;
    let _watchdog = Watchdog::new();
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n"] {
        let stranger = |listening: &Listening| {
            let mut stranger = std::net::TcpStream::connect(listening.local_addr()).expect("connects");
            stranger.write_all(bytes).expect("written");
            stranger
        };
        let listening = local().accept_timeout(SHORT).listener(0).expect("listener");
        let alone = stranger(&listening);
        let error = listening.accept().expect_err("no pipe");
        println!("{} bytes: {error}", bytes.len());
        assert!(matches!(error, Error::Timeout { phase: Phase::Accept, .. }), "{error:?}");

        let listening = local().listener(0).expect("listener");
        let first = stranger(&listening);
        let port = listening.local_addr().port();
        let client = thread::spawn(move || Pipe::connect("127.0.0.1", port));
        part(listening.accept().expect("accept"), client.join().expect("no panic").expect("connected"));
        drop((alone, first));
    }
}

/// As Python is by default: only TCP reaches it, and it breaks off with a client that offers it shared memory alone.
#[test]
fn a_listener_without_shared_memory_is_reached() {
    let listening = local().listener(0).expect("listener");
    let port = listening.local_addr().port();
    let client = thread::spawn(move || Pipe::connect("127.0.0.1", port));
    let pipe = listening.accept().expect("accept");
    let version = pipe.info().ucx_version;
    part(pipe, client.join().expect("no panic").expect("connected"));
    if version.starts_with("1.13.") {
        println!("this UCX aborts the process instead");
        return;
    }

    let server = local().ucx("MM_ERROR_HANDLING", "n").server(0).expect("server");
    let port = server.local_addr().port();
    let client = thread::spawn(move || Pipe::connect("127.0.0.1", port));
    let mut pipe = server.accept().expect("accept");
    let mut client = client.join().expect("no panic").expect("connected");
    client.send(&TensorDict::new([7])).expect("send");
    assert_eq!(pipe.recv().expect("recv").batch_size()[..], [7]);
    part(pipe, client);
}

#[test]
fn a_device_that_this_build_does_not_have() {
    let options = local().device(Device::Cuda(1));
    let errors = [
        options.connect("127.0.0.1", closed_port()).expect_err("no such device"),
        options.listen(0).expect_err("no such device"),
        options.server(0).expect_err("no such device"),
    ];
    for error in errors {
        assert!(matches!(error, Error::Options(_)), "{error:?}");
        says(&error, &["device cuda:1", "the `cuda` feature does not exist yet"]);
    }
}

#[test]
fn nobody_comes() {
    let error = local().accept_timeout(SHORT).listen(0).expect_err("nobody");
    assert!(matches!(error, Error::Timeout { phase: Phase::Accept, .. }), "{error:?}");
    says(&error, &["accept on 127.0.0.1:", "no success within 7"]);
}

#[test]
fn a_deadline_that_has_passed_already_is_no_hang() {
    let started = Instant::now();
    let error =
        Pipe::options().connect_timeout(Duration::ZERO).connect("127.0.0.1", closed_port()).expect_err("no time");
    assert!(error.is_timeout(), "{error:?}");
    println!("{:?}", started.elapsed());
}
