//! After the first messages a pipe allocates nothing: 10,000 messages over UCX, counted at both ends. UCX itself does
//! not use Rust's allocator, so what is counted is ours.

#![cfg(feature = "ucx")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::{run, transports, Watchdog};
use parking_lot::{Condvar, Mutex};
use tensordict_pipe::{tensordict, Pipe, Placed, TensorDict};

/// Messages that may allocate.
const FIRST: u32 = 100;
/// Elements, and messages that may not allocate: small ones, and some that UCX announces first.
const STREAMS: [(usize, u32); 2] = [(3, 10_000), (150_000, 1_000)];

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that ends has no counter any more.
    let _ = COUNTING.try_with(|counting| {
        if counting.get() {
            ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
        }
    });
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The first time that a thread waits for a lock, `parking_lot` makes room for it in its table: once a thread, whenever
/// that happens to be.
fn wait_for_a_lock() {
    let mutex = Mutex::new(());
    Condvar::new().wait_for(&mut mutex.lock(), Duration::from_nanos(1));
}

/// Calls `step` for each message, and counts the allocations in it once the first messages are over.
fn steady(count: u32, mut step: impl FnMut(u32)) -> usize {
    wait_for_a_lock();
    (0..FIRST).for_each(&mut step);
    ALLOCATIONS.set(0);
    COUNTING.set(true);
    (FIRST..FIRST + count).for_each(&mut step);
    COUNTING.set(false);
    ALLOCATIONS.get()
}

fn sample(len: usize) -> TensorDict {
    tensordict!([]; "x" => vec![0.0_f32; len], "n" => { "y" => vec![0_u32], "task" => "walk" }).expect("fits")
}

/// Streams messages of this form; `receive` is called for each and gives its number back.
fn stream(form: impl Fn(TensorDict) -> TensorDict + Sync, receive: impl Fn(&mut Pipe, u32, &mut TensorDict)) {
    for options in transports() {
        for (len, count) in STREAMS {
            let sent = |pipe: &mut Pipe| {
                let mut td = form(sample(len));
                let allocations = steady(count, |i| {
                    td.get_mut(("n", "y")).expect("there").as_slice_mut::<u32>().expect("u32")[0] = i;
                    pipe.send(&td).expect("sent");
                });
                assert_eq!(allocations, 0, "while sending over {:?}", pipe.transports());
            };
            let received = |pipe: &mut Pipe| {
                let mut td = sample(len).consolidate();
                let allocations = steady(count, |i| receive(pipe, i, &mut td));
                assert_eq!(allocations, 0, "while receiving over {:?}", pipe.transports());
            };
            run(&options, sent, received);
        }
    }
}

#[track_caller]
fn check(td: &TensorDict, value: u32) {
    assert_eq!(td.get(("n", "y")).expect("there").as_slice::<u32>().expect("u32"), [value]);
}

fn consolidated(td: TensorDict) -> TensorDict {
    td.consolidate()
}

#[test]
fn allocations_are_counted() {
    assert_eq!(steady(1000, drop), 0);
    assert_eq!(steady(1000, |i| drop(Box::new(i))), 1000);
    let mut list = Vec::new();
    assert!(steady(1000, |i| list.push(i)) > 0);
}

#[test]
fn a_loop_that_drops_each() {
    let _watchdog = Watchdog::new();
    stream(consolidated, |pipe, i, _| check(&pipe.recv().expect("received"), i));
}

#[test]
fn a_loop_that_keeps_the_last() {
    let _watchdog = Watchdog::new();
    stream(consolidated, |pipe, i, last| {
        let next = pipe.recv().expect("received");
        if i > 0 {
            check(last, i - 1);
        }
        check(&next, i);
        *last = next;
    });
}

#[test]
fn a_loop_that_receives_in_place() {
    let _watchdog = Watchdog::new();
    stream(consolidated, |pipe, i, td| {
        assert_eq!(pipe.recv_into(td).expect("received"), Placed::InPlace);
        check(td, i);
    });
}

#[test]
fn a_sender_whose_tensordict_is_not_consolidated() {
    let _watchdog = Watchdog::new();
    stream(|td| td, |pipe, i, _| check(&pipe.recv().expect("received"), i));
}
