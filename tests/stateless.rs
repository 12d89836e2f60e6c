//! `send_tensordict` and `recv_tensordict`, in both modes, between two of ours.
#![cfg(feature = "ucx")]

mod common;

use std::thread;
use std::time::Duration;

use common::{pair, run, transports, Watchdog};
use tensordict_pipe::{
    recv_tensordict, recv_tensordict_into, send_tensordict, tensordict, Error, Phase, Pipe, Placed, TensorDict,
};

/// Small and large in turn, with a structure that changes.
fn message(number: u32) -> TensorDict {
    let len = [0, 3, 100_000][number as usize % 3];
    tensordict!([];
        "x" => vec![number as f32; len],
        "nested" => { "number" => vec![number], "label" => format!("message {number}") },
    )
    .expect("fits")
}

#[test]
fn every_message_carries_its_metadata() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for consolidated in [true, false] {
            let send = |pipe: &mut Pipe| {
                (0..30).for_each(|n| send_tensordict(pipe, &message(n), consolidated).expect("sent"));
            };
            run(&options, send, |pipe| {
                for number in 0..30 {
                    let td = recv_tensordict(pipe, consolidated).expect("received");
                    assert_eq!(td, message(number));
                    assert_eq!(td.is_consolidated(), consolidated);
                }
            });
        }
    }
}

#[test]
fn they_mix_with_the_messages_of_the_pipe() {
    let _watchdog = Watchdog::new();
    let send = |pipe: &mut Pipe| {
        for n in 0..10 {
            pipe.send(&message(1)).expect("sent");
            send_tensordict(pipe, &message(n), true).expect("sent");
        }
    };
    run(&Pipe::options(), send, |pipe| {
        for n in 0..10 {
            assert_eq!(pipe.recv().expect("received"), message(1));
            assert_eq!(recv_tensordict(pipe, true).expect("received"), message(n));
        }
        assert_eq!(pipe.info().received.messages, 20);
    });
}

#[test]
fn into_a_tensordict_that_fits() {
    let _watchdog = Watchdog::new();
    for consolidated in [true, false] {
        let send = |pipe: &mut Pipe| {
            (0..6).for_each(|n| send_tensordict(pipe, &message(n), consolidated).expect("sent"));
        };
        run(&Pipe::options(), send, |pipe| {
            let mut td = message(0).consolidate();
            let mut placed = Vec::new();
            for number in 0..6 {
                if number == 4 {
                    // The label is part of the structure.
                    td = message(4).consolidate();
                }
                placed.push(recv_tensordict_into(pipe, &mut td, consolidated).expect("received"));
                assert_eq!(td, message(number));
            }
            let fits = |number: &usize| consolidated && [0, 4].contains(number);
            let expected = (0..6).map(|n| if fits(&n) { Placed::InPlace } else { Placed::Replaced });
            assert!(placed.iter().copied().eq(expected), "{placed:?}");
        });
    }
}

#[test]
fn the_modes_must_agree() {
    let _watchdog = Watchdog::new();
    for consolidated in [true, false] {
        let (mut sender, mut receiver) = pair(&Pipe::options());
        send_tensordict(&mut sender, &message(1), consolidated).expect("sent");
        let error = recv_tensordict(&mut receiver, !consolidated).expect_err("another mode");
        assert!(matches!(error, Error::Protocol { .. }) && error.is_final(), "{error}");
        thread::scope(|scope| {
            scope.spawn(|| drop(receiver));
            sender.close().expect_err("it was not received");
        });
    }
}

#[test]
fn a_deadline_before_the_message_loses_nothing() {
    let _watchdog = Watchdog::new();
    let (mut sender, mut receiver) = pair(&Pipe::options().recv_timeout(Duration::from_millis(500)));
    let error = recv_tensordict(&mut receiver, true).expect_err("nothing was sent");
    assert!(matches!(error, Error::Timeout { phase: Phase::Recv, .. }), "{error}");
    send_tensordict(&mut sender, &message(1), true).expect("sent");
    let received = std::iter::repeat_with(|| recv_tensordict(&mut receiver, true)).find(|received| match received {
        Err(error) => !error.is_timeout(),
        Ok(_) => true,
    });
    assert_eq!(received.expect("endless").expect("received"), message(1));
}
