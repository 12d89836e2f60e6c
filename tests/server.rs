//! Servers: many clients at once, clients that are no pipes, accepting, serving and closing.
#![cfg(feature = "ucx")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::Watchdog;
use tensordict_pipe::{tensordict, Error, Phase, Pipe, Result, Server, TensorDict};

const CLIENTS: u64 = 64;
const MESSAGES: u64 = 100;
/// Long enough to see that something does not happen.
const MOMENT: Duration = Duration::from_millis(50);

/// Messages of two structures, small and large.
fn message(client: u64, number: u64) -> TensorDict {
    let len = if number % 10 == 9 { 20_000 } else { 4 };
    tensordict!([]; "client" => vec![client], "number" => vec![number], "x" => vec![client ^ number; len])
        .expect("fits")
}

/// Who sent it, and which of its messages it is.
fn read(td: &TensorDict) -> (u64, u64) {
    let item = |name| td.get(name).expect("there").as_slice::<u64>().expect("u64")[0];
    let (client, number) = (item("client"), item("number"));
    assert!(td.get("x").expect("there").as_slice::<u64>().expect("u64").iter().all(|&x| x == client ^ number));
    (client, number)
}

fn connect(server: &Server) -> Pipe {
    Pipe::connect("127.0.0.1", server.local_addr().port()).expect("a listener")
}

fn local_server() -> Server {
    Server::bind("127.0.0.1", 0).expect("a free port")
}

fn patient() -> Duration {
    Duration::from_secs(3600)
}

// Clients

#[test]
fn every_message_of_64_clients_is_accounted_for() {
    let _watchdog = Watchdog::new();
    let options = Pipe::options().bind("127.0.0.1").connect_timeout(patient()).handshake_timeout(patient());
    let options = options.close_timeout(patient());
    let server = options.server(0).expect("a free port");
    let port = server.local_addr().port();
    let received = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(|mut pipe| {
                let numbers: Vec<_> = pipe.iter().map(|td| read(&td)).collect();
                assert!(pipe.error().expect("an end").is_closed());
                let client = numbers[0].0;
                assert!(received.lock().expect("no panic").insert(client, numbers).is_none(), "{client} twice");
            });
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let options = &options;
                scope.spawn(move || {
                    let mut pipe = options.connect("127.0.0.1", port)?;
                    (0..MESSAGES).try_for_each(|number| pipe.send(&message(client, number)))?;
                    pipe.close()
                })
            })
            .collect();
        for client in clients {
            client.join().expect("no panic").expect("everything is received");
        }
        server.close();
        serving.join().expect("no panic");
    });
    let received = received.into_inner().expect("no panic");
    assert_eq!(received.len() as u64, CLIENTS);
    for (client, numbers) in received {
        assert!(numbers.into_iter().eq((0..MESSAGES).map(|number| (client, number))));
    }
}

#[test]
fn clients_that_are_no_pipes_hold_up_nobody() {
    let _watchdog = Watchdog::new();
    let server = Pipe::options().bind("127.0.0.1").handshake_timeout(patient()).server(0).expect("a free port");
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(server.local_addr()).expect("connects")).collect();
    for len in [1, 7, 64, 4096] {
        let mut noisy = TcpStream::connect(server.local_addr()).expect("connects");
        // The listener may hang up at any time.
        let _ = noisy.write_all(&vec![0xa5; len]);
    }
    for client in 0..4 {
        let mut sender = connect(&server);
        let mut receiver = server.accept().expect("a client");
        sender.send(&message(client, 0)).expect("sent");
        assert_eq!(read(&receiver.recv().expect("received")), (client, 0));
    }
    drop(silent);
    assert!(server.try_accept().expect("open").is_none(), "the others are no pipes");
}

#[test]
fn a_server_on_every_interface_has_clients_on_each() {
    let _watchdog = Watchdog::new();
    let server = Server::bind("0.0.0.0", 0).expect("a free port");
    let SocketAddr::V4(address) = server.local_addr() else { panic!("not IPv4: {}", server.local_addr()) };
    assert_eq!(*address.ip(), Ipv4Addr::UNSPECIFIED);
    for host in ["127.0.0.1", "localhost"] {
        let mut sender = Pipe::connect(host, address.port()).expect("a listener");
        let mut receiver = server.accept().expect("a client");
        sender.send(&message(1, 2)).expect("sent");
        assert_eq!(read(&receiver.recv().expect("received")), (1, 2));
    }
}

/// Before UCX 1.14 there is no IPv6, and the error says so.
#[test]
fn a_server_on_ipv6() {
    let _watchdog = Watchdog::new();
    match Server::bind("::1", 0) {
        Ok(server) => {
            assert!(server.local_addr().is_ipv6());
            let mut sender = Pipe::connect("::1", server.local_addr().port()).expect("a listener");
            let mut receiver = server.accept().expect("a client");
            sender.send(&message(1, 2)).expect("sent");
            assert_eq!(read(&receiver.recv().expect("received")), (1, 2));
        }
        Err(Error::Setup(reason)) => assert!(reason.contains("IPv"), "{reason}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_taken_port_is_named() {
    let _watchdog = Watchdog::new();
    let server = local_server();
    let error = Server::bind("127.0.0.1", server.local_addr().port()).expect_err("taken");
    assert!(matches!(error, Error::AddrInUse(address) if address == server.local_addr()), "{error}");
}

// Accepting

#[test]
fn accepting_gives_up_in_time_and_not_before() {
    let _watchdog = Watchdog::new();
    let server = Pipe::options().bind("127.0.0.1").accept_timeout(MOMENT).server(0).expect("a free port");
    let start = Instant::now();
    let expired = [
        server.accept(),
        server.accept_timeout(MOMENT),
        server.accept_deadline(start + 3 * MOMENT),
        server.accept_deadline(start),
    ];
    assert!(start.elapsed() >= 3 * MOMENT);
    for accepted in expired {
        assert!(matches!(accepted, Err(Error::Timeout { phase: Phase::Accept, .. })), "{accepted:?}");
    }
    assert!(server.try_accept().expect("open").is_none());

    let clients = [connect(&server), connect(&server), connect(&server)];
    let mut tried = server.try_accept();
    while let Ok(None) = tried {
        thread::yield_now();
        tried = server.try_accept();
    }
    let served = [
        tried.expect("open").expect("a client"),
        server.accept_timeout(patient()).expect("a client"),
        server.accept_deadline(Instant::now() + patient()).expect("a client"),
    ];
    assert!(server.try_accept().expect("open").is_none());
    drop((clients, served));
}

#[test]
fn closing_ends_every_accept() {
    let _watchdog = Watchdog::new();
    let server = local_server();
    let waiting = AtomicUsize::new(0);
    thread::scope(|scope| {
        let accepting: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    server.accept()
                })
            })
            .collect();
        let incoming = scope.spawn(|| server.incoming().count());
        while waiting.load(Ordering::SeqCst) < 4 {
            thread::yield_now();
        }
        server.close();
        for accepted in accepting {
            assert!(matches!(accepted.join().expect("no panic"), Err(Error::ServerClosed { .. })));
        }
        assert_eq!(incoming.join().expect("no panic"), 0);
    });
    server.close();
    assert!(matches!(server.try_accept(), Err(Error::ServerClosed { address }) if address == server.local_addr()));
    let port = server.local_addr().port();
    let late = Pipe::options().connect_timeout(4 * MOMENT).connect("127.0.0.1", port).expect_err("nobody listens");
    assert!(matches!(late, Error::Timeout { phase: Phase::Connect, .. } | Error::Refused { .. }), "{late}");
    Server::bind("127.0.0.1", port).expect("the port is free again");
}

#[test]
fn pipes_outlive_their_server() {
    let _watchdog = Watchdog::new();
    let server = local_server();
    let mut client = connect(&server);
    let mut served = server.accept().expect("a client");
    drop(server);
    for number in 0..10 {
        client.send(&message(0, number)).expect("sent");
        assert_eq!(read(&served.recv().expect("received")), (0, number));
        served.send(&message(1, number)).expect("sent");
        assert_eq!(read(&client.recv().expect("received")), (1, number));
    }
    thread::scope(|scope| {
        scope.spawn(|| assert!(served.recv().expect_err("closed").is_closed()));
        client.close().expect("everything is received");
    });
}

#[test]
fn a_client_that_was_not_accepted_sees_the_server_go() {
    let _watchdog = Watchdog::new();
    let server = local_server();
    let mut client = connect(&server);
    drop(server);
    let error = client.recv().expect_err("nobody is there");
    assert!(matches!(error, Error::Closed { .. } | Error::Disconnected { .. }), "{error}");
}

// Serving

#[test]
fn a_handler_that_panics_ends_its_own_pipe_only() {
    let _watchdog = Watchdog::new();
    let server = local_server();
    let handled = AtomicUsize::new(0);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(|mut pipe| {
                while let Ok(td) = pipe.recv() {
                    assert!(read(&td).0 != 1, "a test's panic: this client is one too many");
                    pipe.send(&td).expect("sent");
                }
                handled.fetch_add(1, Ordering::SeqCst);
            });
        });
        let (mut good, mut bad) = (connect(&server), connect(&server));
        let echo = |pipe: &mut Pipe, client| -> Result<_> {
            pipe.send(&message(client, 7))?;
            pipe.recv().map(|td| read(&td))
        };
        assert_eq!(echo(&mut good, 0).expect("served"), (0, 7));
        echo(&mut bad, 1).expect_err("its handler panicked");
        assert_eq!(echo(&mut good, 0).expect("served"), (0, 7));
        assert_eq!(echo(&mut connect(&server), 2).expect("served"), (2, 7));
        server.close();
        // The handlers are waited for.
        assert_eq!(echo(&mut good, 0).expect("served"), (0, 7));
        assert!(!serving.is_finished());
        good.close().expect("everything is received");
        serving.join().expect("the panic stays with its client");
    });
    assert_eq!(handled.into_inner(), 2);
}
