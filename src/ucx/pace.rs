//! [`Pace`]: which way of copying into shared memory reaches this peer the faster.
//!
//! Through the caches is best for a peer on a core that shares one with ours. For one farther away (another chiplet,
//! another socket) streaming past them is, because it need not fetch each line from here. Our own copies take as long
//! either way; what differs is how soon the peer makes room again. So both ways are tried, each for long enough that the
//! buffers are full of what was copied so, and the other way is taken once it has been faster a few times in a row.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How much is copied between two trials: so much that fewer than one round trip in a hundred meets one.
const BETWEEN: usize = 2 << 30;

/// The same before the first one, and to confirm one that the other way has won.
const SOON: usize = 16 << 20;

/// How much is timed of each way.
const TIMED: usize = 2 << 20;

/// More than the peer's buffers hold.
const SETTLING: usize = 4 << 20;

/// A piece that took longer had to wait for something else: a peer that does not read, or a core.
const PAUSE: Duration = Duration::from_micros(50);

/// So many trials in a row must agree.
const CONFIRMED: u32 = 3;

/// Counts the bytes that are copied, and tries the other way now and then.
#[derive(Debug)]
pub(super) struct Pace {
    streams: Cell<bool>,
    /// Bytes until the next trial.
    left: Cell<usize>,
    trial: Cell<Trial>,
}

/// Of the way in use, and of the other.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    /// Bytes copied in it.
    copied: usize,
    /// When the last piece that counts began, its length, and whether it went the other way.
    last: Option<(Instant, usize, bool)>,
    spent: [(usize, Duration); 2],
    won: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { streams: Cell::new(false), left: Cell::new(SOON), trial: Cell::default() }
    }
}

impl Pace {
    /// Whether to stream the next `len` bytes; `follows` says that they belong to the same message as those before.
    #[inline]
    pub(super) fn streams(&self, len: usize, follows: bool, now: impl FnOnce() -> Instant) -> bool {
        match self.left.get().checked_sub(len) {
            Some(left) => {
                self.left.set(left);
                self.streams.get()
            }
            None => self.try_out(len, follows, now()),
        }
    }

    #[cold]
    fn try_out(&self, len: usize, follows: bool, now: Instant) -> bool {
        let mut trial = self.trial.get();
        if let Some((began, len, other)) = trial.last.take() {
            let took = now - began;
            if follows && took < PAUSE {
                let (bytes, time) = &mut trial.spent[usize::from(other)];
                *bytes += len;
                *time += took;
            }
        }
        let other = trial.copied >= TIMED;
        if !other || trial.copied >= TIMED + SETTLING {
            trial.last = Some((now, len, other));
        }
        trial.copied += len;
        let streams = self.streams.get() != other;
        if trial.copied >= TIMED + SETTLING + TIMED {
            trial = self.conclude(trial);
        }
        self.trial.set(trial);
        streams
    }

    /// The next trial.
    fn conclude(&self, trial: Trial) -> Trial {
        let [own, other] = trial.spent.map(|(bytes, time)| time.as_secs_f64() / bytes as f64);
        let counts = trial.spent.iter().all(|&(bytes, _)| bytes >= TIMED / 4);
        // By a margin, or noise would decide between equals.
        let mut won = if counts && other < 0.85 * own { trial.won + 1 } else { 0 };
        if won == CONFIRMED {
            self.streams.set(!self.streams.get());
            won = 0;
        }
        self.left.set(if won > 0 { SOON } else { BETWEEN });
        Trial { won, ..Trial::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 8_192;

    /// Nanoseconds that a piece takes, copied and streamed.
    type Peer = [u64; 2];
    const NEAR: Peer = [290, 680];
    const FAR: Peer = [1_410, 740];

    /// A stream of messages through buffers that hold 256 pieces: the pace is that of the piece which leaves them.
    struct Stream {
        pace: Pace,
        buffered: std::collections::VecDeque<bool>,
        now: Instant,
        sent: u64,
        streamed: u64,
    }

    impl Stream {
        fn new() -> Self {
            let (pace, now) = (Pace::default(), Instant::now());
            Self { pace, buffered: vec![false; 256].into(), now, sent: 0, streamed: 0 }
        }

        /// So many bytes, in messages of so many pieces, with a pause after each `resting` pieces.
        fn run(&mut self, bytes: usize, peer: Peer, pieces: usize, resting: usize) {
            for i in 0..bytes / PIECE {
                let follows = i % pieces != 0;
                let streams = self.pace.streams(PIECE, follows, || self.now);
                self.sent += 1;
                self.streamed += u64::from(streams);
                self.buffered.push_back(streams);
                let read = self.buffered.pop_front().expect("full");
                let rest = if i % resting == resting - 1 { 1_000_000 } else { 0 };
                self.now += Duration::from_nanos(peer[usize::from(read)] + rest);
            }
        }

        fn streamed(&mut self) -> f64 {
            let share = self.streamed as f64 / self.sent as f64;
            (self.sent, self.streamed) = (0, 0);
            share
        }
    }

    #[test]
    fn it_finds_the_faster_way_and_follows_the_peer() {
        for pieces in [3, 32, 8_192] {
            for resting in [usize::MAX, 100, 7] {
                let mut stream = Stream::new();
                for (peer, streams) in [(NEAR, false), (FAR, true), (NEAR, false)] {
                    stream.run(2 * BETWEEN, peer, pieces, resting); // it finds out
                    stream.streamed();
                    stream.run(4 * BETWEEN, peer, pieces, resting);
                    let share = stream.streamed();
                    let right = if streams { share } else { 1.0 - share };
                    assert!(right > 0.99, "{peer:?}, {pieces} pieces, resting after {resting}: {right}");
                }
            }
        }
    }

    #[test]
    fn what_makes_no_difference_changes_nothing() {
        let mut stream = Stream::new();
        for peer in [[700, 700], [700, 650]] {
            stream.run(8 * BETWEEN, peer, 32, 100);
            assert!(stream.streamed() < 0.01, "{peer:?}");
        }
        // Messages of one piece tell nothing.
        stream.run(8 * BETWEEN, FAR, 1, 100);
        assert!(stream.streamed() < 0.01);
    }
}
