//! [`Info`]: what can be known of a pipe, and the counters behind it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What can be known of a pipe; [`Pipe::info`](crate::Pipe::info) makes it.
///
/// ```no_run
/// use tensordict_pipe::Pipe;
///
/// let pipe = Pipe::connect("node-b", 13337)?;
/// let info = pipe.info();
/// println!("UCX {} over {}", info.ucx_version, info.transports.join(", "));
/// println!("{} messages of {} bytes sent", info.sent.messages, info.sent.bytes);
/// # Ok::<(), tensordict_pipe::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Where the peer is, as far as UCX knows.
    pub peer_addr: Option<SocketAddr>,
    /// What carries the bytes, in UCX's names: `posix/memory` or `sysv/memory` is shared memory, `tcp/lo` is TCP.
    pub transports: Vec<String>,
    /// Whether the peer is a pipe of this crate, not Python's.
    pub peer_is_ours: bool,
    /// The version of UCX in this process, such as `1.21.0`.
    pub ucx_version: String,
    /// What was sent.
    pub sent: Traffic,
    /// What was received.
    pub received: Traffic,
    /// How long calls slept because there was nothing to do (not counting the time they spun).
    pub time_blocked: Duration,
}

/// What went in one direction.
///
/// ```
/// use tensordict_pipe::Traffic;
///
/// fn mean_bytes(traffic: Traffic) -> Option<u64> {
///     traffic.bytes.checked_div(traffic.messages)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// TensorDicts.
    pub messages: u64,
    /// The bytes of their tensors, padding included, metadata not.
    pub bytes: u64,
    /// How many of the messages announced a new structure.
    pub schema_changes: u64,
    /// Buffers that the pipe allocated for receiving; constant in the steady state.
    pub allocations: u64,
}

/// The counters of one direction. Each has one writer, so a load and a store will do.
#[derive(Debug, Default)]
pub(super) struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
    schema_changes: AtomicU64,
    allocations: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn count(&self, bytes: u64, new_schema: bool, allocations: u64) {
        add(&self.messages, 1);
        add(&self.bytes, bytes);
        add(&self.schema_changes, u64::from(new_schema));
        self.allocations.store(allocations, Ordering::Relaxed);
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub(super) fn snapshot(&self) -> Traffic {
        Traffic {
            messages: self.messages(),
            bytes: self.bytes.load(Ordering::Relaxed),
            schema_changes: self.schema_changes.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }
}
