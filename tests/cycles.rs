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
/// What the allocators of libc and UCX may keep; far less than a thousand pipes have.
const SLACK_KIB: usize = 16 << 10;

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
    let (fds, threads, rss) = (count("/proc/self/fd"), count("/proc/self/task"), rss_kib());
    (0..CYCLES).for_each(|_| cycle());
    // The threads of the last handshakes may be about to end.
    while count("/proc/self/task") > threads {
        thread::yield_now();
    }
    let (fds_now, rss_now) = (count("/proc/self/fd"), rss_kib());
    println!("{fds} -> {fds_now} fds, {threads} threads, {rss} -> {rss_now} KiB");
    assert_eq!(fds_now, fds);
    assert!(rss_now <= rss + SLACK_KIB, "{rss} -> {rss_now} KiB");
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

fn rss_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
