//! What a thousand connections leave behind. In a file, and so in a process, of its own: it counts what the process has.
#![cfg(feature = "ucx")]

mod common;

use std::fs;
use std::thread;
use std::time::Duration;

use common::{transports, Watchdog};
use tensordict_pipe::{tensordict, PipeOptions};

const WARM_UP: usize = 100;
const CYCLES: usize = 1000;
/// What is allocated may differ by this much: the tables of UCX grow in steps. A pipe has 300 KiB at least.
const SLACK_KIB: usize = 1 << 10;
/// The allocator keeps freed memory in pieces, so the process is larger than what it has allocated.
const FRAGMENTS_KIB: usize = 64 << 10;

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let _watchdog = Watchdog::within(Duration::from_secs(1800));
    for options in transports() {
        cycles(&options.bind("127.0.0.1"));
    }
}

fn cycles(options: &PipeOptions) {
    let server = options.server(0).expect("a free port");
    let port = server.local_addr().port();
    let td = tensordict!([]; "x" => vec![1_u8; 20_000]).expect("fits").consolidate();
    let cycle = || {
        let mut sender = options.connect("127.0.0.1", port).expect("a listener");
        let mut receiver = server.accept().expect("a client");
        thread::scope(|scope| {
            // At the same time: UCX may want the receiver's help with what fits into a socket's buffers, too.
            scope.spawn(|| {
                assert_eq!(receiver.recv().expect("received"), td);
                assert!(receiver.recv().expect_err("closed").is_closed());
            });
            sender.send(&td).expect("sent");
            sender.close().expect("everything is received");
        });
    };
    (0..WARM_UP).for_each(|_| cycle());
    let (fds, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    let (allocated, rss) = (allocated_kib(), rss_kib());
    (0..CYCLES).for_each(|_| cycle());
    // The threads of the last handshakes may be about to end.
    while count("/proc/self/task") > threads {
        thread::yield_now();
    }
    let fds_now = count("/proc/self/fd");
    let (allocated_now, rss_now) = (allocated_kib(), rss_kib());
    println!(
        "{fds} -> {fds_now} fds, {threads} threads, {allocated} -> {allocated_now} KiB allocated, \
         {rss} -> {rss_now} KiB resident"
    );
    assert_eq!(fds_now, fds);
    assert!(allocated_now <= allocated + SLACK_KIB, "{allocated} -> {allocated_now} KiB allocated");
    assert!(rss_now <= rss + FRAGMENTS_KIB, "{rss} -> {rss_now} KiB resident");
}

/// What Rust and UCX have allocated: both use the allocator of libc.
fn allocated_kib() -> usize {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it only reads the allocator's counters.
        let heap = unsafe { libc::mallinfo2() };
        (heap.uordblks + heap.hblkhd) >> 10
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

fn rss_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
