//! How two pipes part over UCX: at once, one after the other, one direction before the other; and what each learns of
//! what the other did not read.

#![cfg(feature = "ucx")]

mod common;

use std::thread;

use common::{pair, transports, Watchdog};
use tensordict_pipe::{tensordict, Error, Pipe, Result, TensorDict};

fn sample(value: u32) -> TensorDict {
    tensordict!([]; "x" => vec![value; 10]).expect("fits")
}

fn send(pipe: &mut Pipe, count: u32) {
    (0..count).for_each(|value| pipe.send(&sample(value)).expect("sent"));
}

fn receive(pipe: &mut Pipe, count: u32) {
    (0..count).for_each(|value| assert!(pipe.recv().expect("received") == sample(value)));
}

#[track_caller]
fn unread(result: Result<()>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(Error::Unread { unread, .. }) => unread,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn both_close_at_once_and_learn_what_was_not_read() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for (read_by_one, read_by_other) in [(0, 0), (3, 4), (1, 4), (3, 2), (2, 1)] {
            let (mut one, mut other) = pair(&options);
            send(&mut one, 4);
            send(&mut other, 3);
            receive(&mut one, read_by_one);
            receive(&mut other, read_by_other);
            let closing = thread::spawn(move || other.close());
            assert_eq!(unread(one.close()), u64::from(4 - read_by_other));
            assert_eq!(unread(closing.join().expect("no panic")), u64::from(3 - read_by_one));
        }
    }
}

#[test]
fn who_receives_a_goodbye_learns_what_was_not_read() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for read in 0..=4 {
            let (mut one, mut other) = pair(&options);
            send(&mut one, 4);
            send(&mut other, 2);
            receive(&mut other, read);
            let closing = thread::spawn(move || other.close());
            receive(&mut one, 2);
            assert!(one.recv().expect_err("nothing more comes").is_closed());
            assert!(one.send(&sample(0)).expect_err("nobody is there").is_closed());
            closing.join().expect("no panic").expect("everything was read");
            assert_eq!(unread(one.close()), u64::from(4 - read));
        }
    }
}

#[test]
fn one_direction_ends_before_the_other() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        let (one, mut other) = pair(&options);
        let (mut sender, mut receiver) = one.split();
        sender.send(&sample(0)).expect("sent");
        let ending = thread::spawn(move || sender.shutdown());
        receive(&mut other, 1);
        assert!(other.recv().expect_err("nothing more comes").is_closed());
        ending.join().expect("no panic").expect("everything was read");
        send(&mut other, 5);
        let closing = thread::spawn(move || other.close());
        (0..5).for_each(|value| assert!(receiver.recv().expect("received") == sample(value)));
        assert!(receiver.recv().expect_err("nothing more comes").is_closed());
        closing.join().expect("no panic").expect("everything was read");
    }
}

#[test]
fn who_stays_longer_learns_what_was_not_read() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for read in 0..=3 {
            let (one, mut other) = pair(&options);
            let (sender, mut receiver) = one.split();
            let ending = thread::spawn(move || sender.shutdown());
            assert!(other.recv().expect_err("nothing comes").is_closed());
            ending.join().expect("no panic").expect("nothing was sent");
            send(&mut other, 3);
            (0..read).for_each(|value| assert!(receiver.recv().expect("received") == sample(value)));
            drop(receiver);
            assert_eq!(unread(other.close()), u64::from(3 - read));
        }
    }
}

#[test]
fn an_end_of_one_direction_meets_a_goodbye() {
    let _watchdog = Watchdog::new();
    for options in transports() {
        for _ in 0..10 {
            let (one, other) = pair(&options);
            let (sender, mut receiver) = other.split();
            let closing = thread::spawn(move || one.close());
            let ending = thread::spawn(move || sender.shutdown());
            assert!(receiver.recv().expect_err("nothing comes").is_closed());
            closing.join().expect("no panic").expect("nothing was sent");
            if let Err(error) = ending.join().expect("no panic") {
                assert!(!error.is_timeout(), "{error}");
            }
        }
    }
}
