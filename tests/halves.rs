//! The two halves of a pipe: both directions at once, started operations, read-ahead, and the deadline of every phase.
#![cfg(feature = "ucx")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::{pair, transports, Watchdog};
use crossbeam_channel::{select, tick};
use tensordict_pipe::{
    tensordict, Error, Handle, Peer, Phase, Pipe, PipeOptions, PipeReceiver, PipeSender, Placed, ReadAhead, Result,
    Tensor, TensorDict,
};

const MIB: usize = 1 << 20;
/// Long enough to see that something does not happen.
const MOMENT: Duration = Duration::from_millis(50);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Every page begins with a number.
const PAGE: usize = 4096;

fn numbered(number: u64) -> TensorDict {
    tensordict!([]; "number" => vec![number]).expect("fits")
}

/// Too large to be on its way before the peer receives.
fn large(number: u64) -> TensorDict {
    tensordict!([]; "number" => vec![number], "x" => vec![number as u8; 8 * MIB]).expect("fits")
}

/// Too large even for the buffers of two sockets.
fn huge() -> TensorDict {
    tensordict!([]; "number" => vec![0_u64], "x" => vec![0_u8; 64 * MIB]).expect("fits")
}

fn number(td: &TensorDict) -> u64 {
    td.get("number").expect("there").as_slice::<u64>().expect("u64")[0]
}

fn recv_number(pipe: &mut Pipe) -> u64 {
    number(&pipe.recv().expect("received"))
}

/// A pair that does not wait long for a peer that will not receive.
fn impatient_pair() -> (Pipe, Pipe) {
    pair(&Pipe::options().close_timeout(MOMENT))
}

/// Closes both ends at once.
fn close(a: Pipe, b: Pipe) {
    thread::scope(|scope| {
        scope.spawn(|| a.close().expect("everything is received"));
        b.close().expect("everything is received");
    });
}

// Both directions at once

/// Runs each half of both ends in a thread of its own.
fn full_duplex(
    options: &PipeOptions,
    send: impl Fn(&mut PipeSender) + Sync,
    receive: impl Fn(&mut PipeReceiver) + Sync,
) {
    let (a, b) = pair(&options.clone().close_timeout(FOR_EVER));
    let halves = [a.split(), b.split()];
    let pipes = thread::scope(|scope| {
        let (send, receive) = (&send, &receive);
        let running: Vec<_> = halves
            .into_iter()
            .map(|(mut sender, mut receiver)| {
                let sending = scope.spawn(move || {
                    send(&mut sender);
                    sender
                });
                let receiving = scope.spawn(move || {
                    receive(&mut receiver);
                    receiver
                });
                (sending, receiving)
            })
            .collect();
        let join = |(sending, receiving): (thread::ScopedJoinHandle<'_, _>, thread::ScopedJoinHandle<'_, _>)| {
            Pipe::join(sending.join().expect("sent"), receiving.join().expect("received")).expect("of one pipe")
        };
        running.into_iter().map(join).collect::<Vec<_>>()
    });
    let [a, b] = <[Pipe; 2]>::try_from(pipes).expect("two");
    close(a, b);
}

#[test]
fn a_gibibyte_in_both_directions_at_once() {
    let _watchdog = Watchdog::new();
    const MESSAGES: u64 = 16;
    let mebibyte: Vec<u8> =
        (0..MIB as u64 / 8).flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    let pattern = mebibyte.repeat(64);
    let stamp = |number: u64, page: usize| (number << 32 | page as u64).to_le_bytes();
    for options in transports() {
        let send = |sender: &mut PipeSender| {
            let mut td = tensordict!([]; "x" => pattern.clone()).expect("fits").consolidate();
            for number in 0..MESSAGES {
                let x = td.get_mut("x").expect("there");
                for (i, page) in x.as_slice_mut::<u8>().expect("u8").chunks_exact_mut(PAGE).enumerate() {
                    page[..8].copy_from_slice(&stamp(number, i));
                }
                sender.send(&td).expect("sent");
            }
        };
        full_duplex(&options, send, |receiver| {
            for number in 0..MESSAGES {
                let td = receiver.recv().expect("received");
                let x = td.get("x").expect("there").as_slice::<u8>().expect("u8");
                assert_eq!(x.len(), pattern.len());
                for (i, (page, expected)) in x.chunks_exact(PAGE).zip(pattern.chunks_exact(PAGE)).enumerate() {
                    assert_eq!(page[..8], stamp(number, i));
                    assert!(page[8..] == expected[8..], "message {number}");
                }
            }
        });
    }
}

#[test]
fn small_messages_in_both_directions_at_once() {
    let _watchdog = Watchdog::new();
    const MESSAGES: u64 = 200_000;
    for options in transports() {
        let send = |sender: &mut PipeSender| {
            let mut td = numbered(0).consolidate();
            for number in 0..MESSAGES {
                td.get_mut("number").expect("there").as_slice_mut::<u64>().expect("u64")[0] = number;
                sender.send(&td).expect("sent");
            }
        };
        full_duplex(&options, send, |receiver| {
            for expected in 0..MESSAGES {
                assert_eq!(number(&receiver.recv().expect("received")), expected);
            }
        });
    }
}

#[test]
fn only_halves_of_one_pipe_join() {
    let _watchdog = Watchdog::new();
    let (a, b) = pair(&Pipe::options());
    let (a_sender, a_receiver) = a.split();
    let (b_sender, b_receiver) = b.split();
    let (a_sender, b_receiver) = Pipe::join(a_sender, b_receiver).expect_err("two ends are not one pipe");
    let mut a = Pipe::join(a_sender, a_receiver).expect("one pipe");
    let mut b = Pipe::join(b_sender, b_receiver).expect("one pipe");
    a.send(&numbered(1)).expect("sent");
    assert_eq!(recv_number(&mut b), 1);
    close(a, b);
}

#[test]
fn a_half_keeps_the_pipe_open() {
    let _watchdog = Watchdog::new();
    let (a, mut b) = pair(&Pipe::options());
    let (mut sender, receiver) = a.split();
    drop(receiver);
    sender.send(&numbered(1)).expect("sent");
    assert_eq!(recv_number(&mut b), 1);
    thread::scope(|scope| {
        scope.spawn(|| drop(sender));
        assert!(b.recv().expect_err("both halves are gone").is_closed());
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        let (a, mut b) = pair(&options);
        let (mut sender, mut receiver) = a.split();
        thread::scope(|scope| {
            scope.spawn(move || {
                (0..3).for_each(|n| sender.send(&numbered(n)).expect("sent"));
                sender.shutdown().expect("everything is received");
            });
            assert!(b.iter().map(|td| number(&td)).eq(0..3));
            assert!(b.recv().expect_err("the direction is over").is_closed());
        });
        thread::scope(|scope| {
            scope.spawn(move || {
                (0..100).for_each(|n| b.send(&numbered(n)).expect("the other direction is not over"));
                b.close().expect("everything is received");
            });
            assert!(receiver.iter().map(|td| number(&td)).eq(0..100));
            assert!(receiver.error().expect("the end").is_closed());
        });
    }
}

// Started operations

#[test]
fn started_sends_keep_their_order() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let handles: Vec<_> = (0..20).map(|n| a.start_send(large(n)).expect("a thread")).collect();
    let first = &handles[0];
    assert!(first.poll().is_none() && !first.is_done(), "nobody receives");
    assert!(first.wait_timeout(MOMENT).is_none());
    assert!(first.wait_deadline(Instant::now()).is_none());
    drop(a.start_send(numbered(20)).expect("a thread"));
    thread::scope(|scope| {
        scope.spawn(|| a.send(&numbered(21)).expect("sent, behind all that was started"));
        (0..22).for_each(|n| assert_eq!(recv_number(&mut b), n));
    });
    for handle in handles {
        handle.wait().expect("sent");
    }
    close(a, b);
}

#[test]
fn a_started_send_has_its_own_value() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let mut td = large(1).consolidate();
    let handle = a.start_send(td.clone()).expect("a thread");
    td.get_mut("x").expect("there").as_slice_mut::<u8>().expect("u8").fill(2);
    let received = b.recv().expect("received");
    assert!(received.get("x").expect("there").as_slice::<u8>().expect("u8").iter().all(|&x| x == 1));
    handle.wait().expect("sent");
    close(a, b);
}

#[test]
fn trying_to_send_while_another_is_under_way() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let handle = a.start_send(large(0)).expect("a thread");
    assert!(!a.try_send(&numbered(9)).expect("the pipe is well"), "nobody receives");
    assert_eq!(recv_number(&mut b), 0);
    handle.wait().expect("sent");
    // The thread may not have put its tools down.
    while !a.try_send(&numbered(1)).expect("the pipe is well") {
        thread::yield_now();
    }
    assert_eq!(recv_number(&mut b), 1);
    let refused = tensordict!([]; "x" => { "size" => { "y" => vec![0_u8] } }).expect("fits");
    while let Ok(false) =
        a.try_send(&refused).inspect_err(|error| assert!(matches!(error, Error::Encode(_)), "{error}"))
    {
        thread::yield_now();
    }
    a.send(&numbered(2)).expect("the pipe goes on");
    assert_eq!(recv_number(&mut b), 2);
    close(a, b);
}

#[test]
fn started_receives_in_order() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let handles: Vec<Handle<TensorDict>> = (0..4).map(|_| b.start_recv().expect("a thread")).collect();
    assert!(handles[0].poll().is_none() && !handles[0].is_done(), "nothing was sent");
    assert!(handles[0].wait_timeout(MOMENT).is_none());
    assert!(handles[0].wait_deadline(Instant::now()).is_none());
    (0..5).for_each(|n| a.send(&numbered(n)).expect("sent"));
    // In any order.
    let mut handles: Vec<_> = handles.into_iter().enumerate().collect();
    handles.swap(0, 3);
    for (expected, handle) in handles {
        assert_eq!(number(&handle.wait_timeout(FOR_EVER).expect("in time").expect("received")), expected as u64);
        assert!(handle.poll().is_none() && handle.is_done(), "taken");
    }
    assert_eq!(recv_number(&mut b), 4);
    close(a, b);
}

#[test]
fn messages_of_dropped_handles_go_to_the_next_receives() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    // Dropped before there is anything.
    drop(b.start_recv().expect("a thread"));
    drop(b.start_recv().expect("a thread"));
    // Dropped with a message each, in the wrong order.
    let handles: Vec<_> = (2..5).map(|_| b.start_recv().expect("a thread")).collect();
    (0..6).for_each(|n| a.send(&numbered(n)).expect("sent"));
    while !handles.iter().all(Handle::is_done) {
        thread::yield_now();
    }
    handles.into_iter().rev().for_each(drop);
    assert_eq!(recv_number(&mut b), 0);
    // A started receive takes the oldest; dropped, it gives it back to its place.
    let handle = b.start_recv().expect("a thread");
    while !handle.is_done() {
        thread::yield_now();
    }
    drop(handle);
    let mut td = numbered(99);
    assert_eq!(b.recv_into(&mut td).expect("received"), Placed::Replaced);
    assert_eq!(number(&td), 1);
    (2..6).for_each(|n| assert_eq!(recv_number(&mut b), n));
    close(a, b);
}

#[test]
fn started_receives_end_with_their_half() {
    let _watchdog = Watchdog::new();
    let (a, mut b) = pair(&Pipe::options());
    let handles: Vec<_> = (0..3).map(|_| b.start_recv().expect("a thread")).collect();
    thread::scope(|scope| {
        scope.spawn(|| drop(b));
        for handle in handles {
            assert!(handle.wait().expect_err("nobody receives any more").is_closed());
        }
        drop(a);
    });
}

#[test]
fn started_receives_end_with_the_peer() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let handles: Vec<_> = (0..3).map(|_| b.start_recv().expect("a thread")).collect();
    a.send(&numbered(0)).expect("sent");
    a.close().expect("everything is received");
    let results: Vec<_> = handles.into_iter().map(Handle::wait).collect();
    assert_eq!(number(results[0].as_ref().expect("received")), 0);
    assert!(results[1..].iter().all(|result| result.as_ref().is_err_and(Error::is_closed)), "{results:?}");
}

// Reading ahead

#[test]
fn a_full_channel_holds_the_sender_up() {
    let _watchdog = Watchdog::new();
    const AHEAD: usize = 2;
    const MESSAGES: usize = 12;
    for options in transports() {
        let (mut a, b) = pair(&options);
        let handles: Vec<_> = (0..MESSAGES as u64).map(|n| a.start_send(large(n)).expect("a thread")).collect();
        let messages = b.into_receiver(AHEAD).expect("a thread");
        handles[AHEAD].wait_timeout(FOR_EVER).expect("in time").expect("sent");
        while !messages.is_full() {
            thread::yield_now();
        }
        assert!(handles[MESSAGES - 1].wait_timeout(4 * MOMENT).is_none(), "nobody takes anything out");
        // The channel's, one in the hand of the thread, and what the sockets' buffers hold.
        let sent = handles.iter().filter(|handle| handle.is_done()).count();
        assert!(sent <= AHEAD + 1 + 4, "{sent} sent");
        for expected in 0..MESSAGES as u64 {
            assert_eq!(number(&messages.recv().expect("open").expect("received")), expected);
        }
        thread::scope(|scope| {
            scope.spawn(|| a.close().expect("everything is received"));
            messages.recv().expect_err("closed");
        });
    }
}

#[test]
fn reading_ahead_ends_with_a_close() {
    let _watchdog = Watchdog::new();
    for ahead in [0, 1, 100] {
        let (mut a, b) = pair(&Pipe::options());
        let messages = b.into_receiver(ahead).expect("a thread");
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..50).for_each(|n| a.send(&numbered(n)).expect("sent"));
                a.close().expect("everything is received");
            });
            assert!(messages.iter().map(|td| number(&td.expect("received"))).eq(0..50));
        });
        messages.recv().expect_err("disconnected for good");
    }
}

#[test]
fn reading_ahead_ends_with_an_error_as_the_last_item() {
    let _watchdog = Watchdog::new();
    let options = Pipe::options().bind("127.0.0.1").close_timeout(MOMENT);
    let listening = options.listener(0).expect("a free port");
    let port = listening.local_addr().port();
    let connecting = thread::spawn(move || options.consolidated(false).connect("127.0.0.1", port).expect("a listener"));
    let messages = listening.accept().expect("a client").into_receiver(3).expect("a thread");
    let mut other_mode = connecting.join().expect("no panic");
    let _ = other_mode.start_send(numbered(0)).expect("a thread");
    let items: Vec<Result<TensorDict>> = messages.iter().collect();
    assert!(matches!(items[..], [Err(Error::Protocol { .. })]), "{items:?}");
    messages.recv().expect_err("disconnected");
}

#[test]
fn messages_of_dropped_handles_are_read_ahead_first() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = pair(&Pipe::options());
    let handles = [b.start_recv().expect("a thread"), b.start_recv().expect("a thread")];
    (0..3).for_each(|n| a.send(&numbered(n)).expect("sent"));
    while !handles.iter().all(Handle::is_done) {
        thread::yield_now();
    }
    let [first, second] = handles;
    drop(second);
    drop(first);
    let messages = b.into_receiver(1).expect("a thread");
    thread::scope(|scope| {
        scope.spawn(|| a.close().expect("everything is received"));
        assert!(messages.iter().map(|td| number(&td.expect("received"))).eq(0..3));
    });
}

#[test]
fn read_ahead_can_be_dropped_while_its_thread_waits() {
    let _watchdog = Watchdog::new();
    // For a message, and for room.
    for sends in [0, 4] {
        let (mut a, b) = impatient_pair();
        let messages = b.into_receiver(1).expect("a thread");
        (0..sends).for_each(|n| a.send(&numbered(n)).expect("sent"));
        while sends > 0 && !messages.is_full() {
            thread::yield_now();
        }
        thread::scope(|scope| {
            scope.spawn(|| drop(messages));
            a.recv().expect_err("the other end is gone");
        });
    }
}

#[test]
fn two_pipes_in_one_select() {
    let _watchdog = Watchdog::new();
    const MESSAGES: u64 = 200;
    let feeds = [1, 2].map(|feed| {
        let (mut a, b) = pair(&Pipe::options());
        let sending = thread::spawn(move || {
            (0..MESSAGES).for_each(|n| a.send(&numbered(feed * 1000 + n)).expect("sent"));
            a.close().expect("everything is received");
        });
        (b.into_receiver(4).expect("a thread"), sending)
    });
    let [(first, one), (second, two)] = feeds;
    let ticks = tick(Duration::from_millis(1));
    let (mut got, mut ticked, mut open) = ([Vec::new(), Vec::new()], 0, [true, true]);
    let never = crossbeam_channel::never();
    while open != [false, false] || ticked == 0 {
        let channels: [&crossbeam_channel::Receiver<_>; 2] =
            [if open[0] { &first } else { &never }, if open[1] { &second } else { &never }];
        let (from, item) = select! {
            recv(channels[0]) -> item => (0, item),
            recv(channels[1]) -> item => (1, item),
            recv(ticks) -> _ => {
                ticked += 1;
                continue;
            }
        };
        match item {
            Ok(td) => got[from].push(number(&td.expect("received"))),
            Err(_) => open[from] = false,
        }
    }
    assert!(got[0].iter().copied().eq(1000..1000 + MESSAGES));
    assert!(got[1].iter().copied().eq(2000..2000 + MESSAGES));
    one.join().expect("sent");
    two.join().expect("sent");
}

// Deadlines

#[test]
fn expired_receives_lose_nothing() {
    let _watchdog = Watchdog::new();
    const MESSAGES: u64 = 400;
    for options in transports() {
        for consolidated in [true, false] {
            let (mut a, mut b) = pair(&options.clone().consolidated(consolidated));
            thread::scope(|scope| {
                scope.spawn(move || {
                    for n in 0..MESSAGES {
                        // Another structure now and then, and one that goes by rendezvous.
                        let len = [1, 1, 3, 300_000][n as usize % 4];
                        let td = tensordict!([]; "number" => vec![n], "x" => vec![n; len]).expect("fits");
                        a.send(&td).expect("sent");
                    }
                    a.close().expect("everything is received");
                });
                let (mut expected, mut calls) = (0, 0_u64);
                loop {
                    calls += 1;
                    let received = match calls % 4 {
                        0 => b.recv_timeout(Duration::from_micros(calls % 50)),
                        1 => b.recv_deadline(Instant::now()),
                        2 => b.recv_timeout(Duration::ZERO),
                        _ => match b.try_recv() {
                            Ok(Some(td)) => Ok(td),
                            Ok(None) => continue,
                            Err(error) => Err(error),
                        },
                    };
                    match received {
                        Ok(td) => {
                            assert_eq!(number(&td), expected);
                            let x = td.get("x").expect("there").as_slice::<u64>().expect("u64");
                            assert!(x.iter().all(|&x| x == expected));
                            expected += 1;
                        }
                        Err(Error::Timeout { phase: Phase::Recv, .. }) => {}
                        Err(error) => break assert!(error.is_closed(), "{error}"),
                    }
                }
                assert_eq!(expected, MESSAGES);
            });
        }
    }
}

/// The error is of that phase, and did not come before its time.
#[track_caller]
fn expired<T: std::fmt::Debug>(phase: Phase, at_least: Duration, call: impl FnOnce() -> Result<T>) {
    let start = Instant::now();
    match call() {
        Err(Error::Timeout { phase: expired, .. }) if expired == phase => assert!(start.elapsed() >= at_least),
        other => panic!("{phase}: {other:?}"),
    }
}

#[test]
fn the_deadline_of_connect() {
    let _watchdog = Watchdog::new();
    // A port that nobody has, and one whose owner is no pipe.
    let unused = Pipe::options().bind("127.0.0.1").listener(0).expect("a free port").local_addr().port();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    for port in [unused, silent.local_addr().expect("bound").port()] {
        let options = Pipe::options().connect_timeout(4 * MOMENT);
        expired(Phase::Connect, 4 * MOMENT, || options.connect("127.0.0.1", port));
    }
}

#[test]
fn connect_waits_for_a_listener_that_does_not_accept() {
    let _watchdog = Watchdog::new();
    let listening = Pipe::options().bind("127.0.0.1").listener(0).expect("a free port");
    let options = Pipe::options().connect_timeout(4 * MOMENT);
    expired(Phase::Connect, 4 * MOMENT, || options.connect("127.0.0.1", listening.local_addr().port()));
}

#[test]
fn the_deadline_of_accept() {
    let _watchdog = Watchdog::new();
    let options = Pipe::options().bind("127.0.0.1").accept_timeout(MOMENT);
    expired(Phase::Accept, MOMENT, || options.listen(0));
    expired(Phase::Accept, MOMENT, || options.listener(0).expect("a free port").accept());
}

#[test]
fn the_deadline_of_send() {
    let _watchdog = Watchdog::new();
    let calls: [fn(&mut Pipe) -> Result<()>; 3] = [
        |pipe| pipe.send(&huge()),
        |pipe| pipe.send_timeout(&huge(), MOMENT),
        |pipe| pipe.send_deadline(&huge(), Instant::now() + MOMENT),
    ];
    for options in transports() {
        for call in calls {
            let (mut a, mut b) = pair(&options.clone().send_timeout(MOMENT).close_timeout(MOMENT));
            expired(Phase::Send, MOMENT, || call(&mut a));
            expired(Phase::Send, Duration::ZERO, || a.send(&numbered(1)));
            expired(Phase::Send, Duration::ZERO, || a.recv());
            thread::scope(|scope| {
                scope.spawn(|| drop(a));
                // What was given up cannot be taken back: it may still arrive, but whole or not at all.
                let error = b.recv().and_then(|td| {
                    assert_eq!((number(&td), td.get("x").expect("there").bytes().len()), (0, 64 * MIB));
                    b.recv()
                });
                let error = error.expect_err("nothing was sent afterwards");
                assert!(error.is_final() && !error.is_timeout(), "{error}");
            });
        }
    }
}

#[test]
fn the_deadline_of_recv() {
    let _watchdog = Watchdog::new();
    let calls: [fn(&mut Pipe) -> Result<TensorDict>; 4] = [
        |pipe| pipe.recv(),
        |pipe| pipe.recv_timeout(MOMENT),
        |pipe| pipe.recv_deadline(Instant::now() + MOMENT),
        |pipe| {
            let mut td = numbered(7).consolidate();
            let received = pipe.recv_into(&mut td).map(|_| td.clone());
            assert_eq!(number(&td), 7, "unchanged");
            received
        },
    ];
    for options in transports() {
        for call in calls {
            let (mut a, mut b) = pair(&options.clone().recv_timeout(MOMENT));
            expired(Phase::Recv, MOMENT, || call(&mut b));
            assert!(b.error().expect("the last receive failed").is_timeout());
            assert!(b.try_recv().expect("well").is_none());
            a.send(&numbered(1)).expect("sent");
            assert_eq!(number(&b.recv_timeout(FOR_EVER).expect("received")), 1);
            assert!(b.error().is_none());
            close(a, b);
        }
    }
}

#[test]
fn the_deadline_of_close() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        let (mut a, b) = pair(&options.close_timeout(MOMENT));
        a.send(&numbered(1)).expect("sent");
        expired(Phase::Close, MOMENT, || a.close());
        drop(b);
        let (mut a, b) = impatient_pair();
        a.send(&numbered(1)).expect("sent");
        expired(Phase::Close, MOMENT, || a.split().0.shutdown());
        drop(b);
    }
}

#[test]
fn one_thread_that_closes_both_ends_waits_no_longer_than_the_deadline() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        let (mut a, mut b) = pair(&options.close_timeout(MOMENT));
        let [_, second] = [(); 2].map(|()| a.start_send(huge()).expect("a thread"));
        let receiving = [a.start_recv().expect("a thread"), b.start_recv().expect("a thread")];
        expired(Phase::Close, MOMENT, || a.close());
        // It finds a broken connection, or still an end.
        let _ = b.close();
        second.wait().expect_err("nobody received it");
        receiving.into_iter().for_each(|handle| drop(handle.wait()));
    }
}

#[test]
fn a_name_that_nobody_has() {
    let _watchdog = Watchdog::new();
    let error = Pipe::connect("no-such-host.invalid", 1).expect_err("unknown");
    assert!(matches!(error, Error::Resolve { ref host, .. } if &**host == "no-such-host.invalid"), "{error}");
}

// Awkward places

#[test]
fn a_pipe_that_is_dropped_by_a_panic_ends() {
    let _watchdog = Watchdog::new();
    for split in [false, true] {
        let (mut a, mut b) = pair(&Pipe::options());
        let panicking = thread::spawn(move || {
            a.send(&numbered(1)).expect("sent");
            if split {
                let _halves = a.split();
                panic!("a test's panic");
            }
            panic!("a test's panic");
        });
        panicking.join().expect_err("it panicked");
        assert_eq!(recv_number(&mut b), 1);
        let error = b.recv().expect_err("nobody is there");
        assert!(matches!(error, Error::Closed { .. } | Error::Disconnected { .. }), "{error}");
    }
}

static SHARED: OnceLock<Mutex<Pipe>> = OnceLock::new();

#[test]
fn a_pipe_in_a_static() {
    let _watchdog = Watchdog::new();
    let (a, mut b) = pair(&Pipe::options());
    SHARED.set(Mutex::new(a)).expect("set once");
    let threads: Vec<_> = (0..8)
        .map(|n| {
            thread::spawn(move || {
                SHARED.get().expect("set").lock().expect("no panic").send(&numbered(n)).expect("sent")
            })
        })
        .collect();
    let mut numbers: Vec<_> = (0..8).map(|_| recv_number(&mut b)).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..8));
    threads.into_iter().for_each(|thread| thread.join().expect("sent"));
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

/// Handles a signal without `SA_RESTART`, so that it interrupts whatever waits.
fn handle(signal: libc::c_int) {
    // SAFETY: all zeroes is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler is async-signal-safe: it counts.
    let installed = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert_eq!(installed, 0);
}

#[test]
fn signals_do_not_matter() {
    let _watchdog = Watchdog::new();
    const ROUNDS: usize = 300;
    handle(libc::SIGUSR1);
    for options in transports() {
        let (mut a, mut b) = pair(&options.spin(Duration::ZERO));
        let before = SIGNALS.load(Ordering::SeqCst);
        let (ready, waiting) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let receiving = scope.spawn(move || {
                // SAFETY: no preconditions.
                ready.send(unsafe { libc::pthread_self() }).expect("listens");
                let numbers = [recv_number(&mut b), recv_number(&mut b)];
                b.recv_timeout(4 * MOMENT).expect_err("nothing more comes");
                (numbers, b)
            });
            let thread = waiting.recv().expect("started");
            let interrupt = |rounds| {
                for _ in 0..rounds {
                    let before = SIGNALS.load(Ordering::SeqCst);
                    // SAFETY: the thread has not been joined.
                    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
                    while SIGNALS.load(Ordering::SeqCst) == before {
                        thread::yield_now();
                    }
                }
            };
            interrupt(ROUNDS);
            a.send(&numbered(1)).expect("sent");
            interrupt(ROUNDS);
            a.send(&large(2)).expect("sent");
            let (numbers, b) = receiving.join().expect("no panic");
            assert_eq!(numbers, [1, 2]);
            close(a, b);
        });
        assert_eq!(SIGNALS.load(Ordering::SeqCst) - before, 2 * ROUNDS);
    }
}

/// What can cross threads.
#[test]
fn threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Pipe>();
    send::<PipeSender>();
    send::<PipeReceiver>();
    send::<ReadAhead>();
    send::<Handle<TensorDict>>();
    sync::<Handle<TensorDict>>();
    sync::<Mutex<Pipe>>();
    send::<Error>();
    sync::<Error>();
    send::<Peer>();
    sync::<PipeOptions>();
    sync::<tensordict_pipe::Server>();
    send::<Tensor>();
}
