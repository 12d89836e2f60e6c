//! [`Engine`]: one worker behind one lock, and who progresses it.
//!
//! **Whoever waits drives.** A caller that waits takes the lock and progresses the worker itself: first it spins, then
//! it arms the worker, gives the lock up and polls the event fd. If another caller is polling already it sleeps on the
//! engine's condition instead, and the driver wakes it when something has completed or when the driver leaves. Nobody
//! progresses a worker for which nobody waits: UCX takes in every message that arrives, and what nobody asked for
//! would pile up in memory.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::endpoint::Endpoint;
use super::listener::Listener;
use super::request::{Requests, Ticket};
use super::status::Status;
use super::worker::Worker;
use crate::link::{Deadline, LinkError};

/// How long to sleep when the worker has work that no event announces, such as a send into a full ring.
const SHORTEST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(500);
/// How often in a row progress must find nothing before a broken connection counts as drained.
const DRAINED_AFTER: u32 = 32;
/// How many turns [`Engine::take_in`] makes at most: what a socket's buffer holds, in pieces of 64 KiB, twice.
const TAKEN_IN: usize = 200;

/// What an engine drives beside the worker.
pub(super) trait Driven: fmt::Debug {
    /// A sleeping driver looks around this often, whatever the event fd says.
    const LONGEST_SLEEP: Duration;
    /// Why waiting has become pointless, if it has.
    fn failure(&self) -> Option<Status>;
    /// Gives the C object back before the worker is destroyed.
    fn release(&mut self, worker: &Worker, requests: &mut Requests);
}

/// All that the lock protects.
#[derive(Debug)]
pub(super) struct Locked<T: Driven> {
    pub(super) child: T,
    pub(super) requests: Requests,
    pub(super) worker: Worker,
    /// Somebody polls the event fd.
    driver: bool,
    /// The driver has been signalled since it went to sleep.
    called: bool,
    /// How often a wait had to drive.
    pub(super) drives: u64,
    /// How many do so now.
    pub(super) waiting: usize,
    /// How many sleep on the condition.
    followers: usize,
    /// The completions that those who sleep know of.
    announced: u64,
}

// SAFETY: the raw pointers inside (worker, endpoint or listener, requests) may be used by any one thread at a time,
// which is what UCX's thread mode SERIALIZED allows and what the engine's lock ensures.
unsafe impl<T: Driven> Send for Locked<T> {}

impl<T: Driven> Drop for Locked<T> {
    fn drop(&mut self) {
        if !super::fork::in_child() {
            self.child.release(&self.worker, &mut self.requests);
            self.requests.free_done();
        }
        // Callbacks may run until here; the boxed state of the child and of the slots is freed after this.
        self.worker.destroy();
    }
}

/// Why a wait ended without what was waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Expired,
    /// The connection failed, and what had arrived before was taken in.
    Gone(Status),
}

#[derive(Debug)]
pub(super) struct Engine<T: Driven> {
    locked: Mutex<Locked<T>>,
    condition: Condvar,
    event_fd: RawFd,
    spin: Duration,
    /// Nanoseconds that callers have slept.
    blocked: AtomicU64,
}

pub(super) type Guard<'a, T> = MutexGuard<'a, Locked<T>>;

impl<T: Driven> Engine<T> {
    pub(super) fn new(worker: Worker, child: T, spin: Duration) -> Self {
        let event_fd = worker.event_fd();
        let requests = Requests::new();
        let (driver, called, drives, waiting, followers, announced) = (false, false, 0, 0, 0, 0);
        let locked = Locked { child, requests, worker, driver, called, drives, waiting, followers, announced };
        Self { locked: Mutex::new(locked), condition: Condvar::new(), event_fd, spin, blocked: AtomicU64::new(0) }
    }

    pub(super) fn lock(&self) -> Result<Guard<'_, T>, LinkError> {
        if super::fork::in_child() {
            return Err(LinkError::Forked);
        }
        Ok(self.locked.lock())
    }

    /// Waits until `ready`, driving the worker or following who does.
    pub(super) fn wait(
        &self,
        guard: &mut Guard<'_, T>,
        deadline: Deadline,
        ready: impl Fn(&Locked<T>) -> bool,
    ) -> Result<(), Stop> {
        if ready(guard) {
            // No progress: it would take in messages that nobody has asked for, some for each one that is received.
            return Ok(());
        }
        guard.drives += 1;
        guard.waiting += 1;
        let result = self.wait_inner(guard, deadline, ready);
        guard.waiting -= 1;
        self.announce(guard);
        if guard.followers > 0 && !guard.driver {
            // One of them has to drive now.
            self.condition.notify_all();
        }
        result
    }

    /// Progresses once, for a caller that does not wait.
    pub(super) fn look(&self, guard: &mut Guard<'_, T>) {
        guard.worker.progress();
        self.announce(guard);
    }

    /// Takes in what has arrived, unless it is very much.
    pub(super) fn take_in(&self, guard: &mut Guard<'_, T>) {
        drain(guard, TAKEN_IN);
        self.announce(guard);
    }

    /// Wakes whoever waits, so that it looks again at what it waits for.
    pub(super) fn wake(&self) {
        let guard = self.locked.lock();
        guard.worker.signal();
        self.condition.notify_all();
    }

    /// How long callers have slept, all together.
    pub(super) fn time_blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked.load(Ordering::Relaxed))
    }

    /// Waits for one operation.
    pub(super) fn wait_for(&self, guard: &mut Guard<'_, T>, deadline: Deadline, ticket: &Ticket) -> Result<(), Stop> {
        self.wait(guard, deadline, |locked| locked.requests.is_done(ticket))
    }

    fn wait_inner(
        &self,
        guard: &mut Guard<'_, T>,
        deadline: Deadline,
        ready: impl Fn(&Locked<T>) -> bool,
    ) -> Result<(), Stop> {
        let mut spin = Spin::new(self.spin);
        let mut nap = SHORTEST_NAP;
        loop {
            let moved = guard.worker.progress();
            if moved {
                nap = SHORTEST_NAP;
            }
            if ready(guard) {
                return Ok(());
            }
            if let Some(status) = guard.child.failure() {
                drain(guard, usize::MAX);
                return if ready(guard) { Ok(()) } else { Err(Stop::Gone(status)) };
            }
            self.announce(guard);
            match spin.turn(moved) {
                Turn::Again => continue,
                Turn::LookAround => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(Stop::Expired);
                    }
                    if spin.is_long() {
                        // Whoever could do something useful with this core may have it.
                        MutexGuard::unlocked(guard, std::thread::yield_now);
                    } else {
                        // Another thread that wants to post may have the lock for a moment.
                        MutexGuard::bump(guard);
                    }
                }
                Turn::Sleep => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(Stop::Expired);
                    }
                    if self.sleep(guard, deadline, nap) {
                        spin = Spin::new(self.spin);
                        nap = SHORTEST_NAP;
                    } else {
                        nap = (nap * 2).min(LONGEST_NAP);
                    }
                }
            }
        }
    }

    /// Sleeps until an event, a wake-up, or the deadline; if events cannot be awaited now, for a nap. Says which.
    fn sleep(&self, guard: &mut Guard<'_, T>, deadline: Deadline, nap: Duration) -> bool {
        let armed = guard.worker.arm().unwrap_or_else(|error| {
            log::warn!("{error}");
            false
        });
        let longest = if armed { T::LONGEST_SLEEP } else { nap };
        let time = deadline.map_or(longest, |d| d.saturating_duration_since(Instant::now()).min(longest));
        let asleep = Instant::now();
        guard.announced = guard.requests.completions();
        if guard.driver {
            if guard.called {
                // Arming takes signals off the event fd, and the driver may not have seen this one.
                guard.worker.signal();
            }
            guard.followers += 1;
            self.condition.wait_for(guard, time);
            guard.followers -= 1;
        } else {
            (guard.driver, guard.called) = (true, false);
            MutexGuard::unlocked(guard, || poll(self.event_fd, time));
            guard.driver = false;
        }
        self.blocked.fetch_add(asleep.elapsed().as_nanos() as u64, Ordering::Relaxed);
        armed
    }

    /// Wakes those who sleep if anything has completed since, or the connection has failed: our progress took the event
    /// that would have woken the driver.
    fn announce(&self, guard: &mut Guard<'_, T>) {
        let completions = guard.requests.completions();
        let failed = guard.child.failure().is_some() && !guard.called;
        if guard.announced == completions && !failed || !guard.driver && guard.followers == 0 {
            return;
        }
        guard.announced = completions;
        self.condition.notify_all();
        if guard.driver {
            guard.called = true;
            guard.worker.signal();
        }
    }
}

/// Takes in what has arrived, in at most so many `turns`. What a broken connection has delivered is finite.
pub(super) fn drain<T: Driven>(guard: &mut Guard<'_, T>, turns: usize) {
    let mut quiet = 0;
    for _ in 0..turns {
        quiet = if guard.worker.progress() { 0 } else { quiet + 1 };
        if quiet == DRAINED_AFTER {
            return;
        }
    }
}

/// Polls `fd` for reading.
fn poll(fd: RawFd, time: Duration) {
    let mut pollfd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let time = libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: one pollfd and a timespec that live during the call. An interrupted call is a short sleep.
    unsafe { libc::ppoll(&mut pollfd, 1, &time, std::ptr::null()) };
}

enum Turn {
    Again,
    LookAround,
    Sleep,
}

/// Decides between another turn and sleep.
struct Spin {
    limit: Duration,
    /// Since when nothing has happened.
    since: Option<Instant>,
    idle: Duration,
    turns: u32,
}

impl Spin {
    /// Turns between two looks at the clock.
    const LOOK_EVERY: u32 = 32;
    /// So long it does nothing else; what two processes answer each other at once comes within this time.
    const EXCLUSIVE: Duration = Duration::from_micros(5);

    fn new(limit: Duration) -> Self {
        Self { limit, since: None, idle: Duration::ZERO, turns: 0 }
    }

    fn turn(&mut self, moved: bool) -> Turn {
        self.turns += 1;
        if moved {
            self.since = None;
        }
        // No `spin_loop` in between: it would hold back what has just come, and a look at the worker is as long.
        if self.turns % Self::LOOK_EVERY != 0 {
            return Turn::Again;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.idle = now - since;
        if self.idle >= self.limit && !moved {
            return Turn::Sleep;
        }
        Turn::LookAround
    }

    fn is_long(&self) -> bool {
        self.idle >= Self::EXCLUSIVE
    }
}

/// Cancels or closes everything and progresses until nothing is under way, or for at most this long.
const RELEASE_WITHIN: Duration = Duration::from_millis(500);

impl Driven for Endpoint {
    const LONGEST_SLEEP: Duration = Duration::from_millis(100);

    fn failure(&self) -> Option<Status> {
        self.failure()
    }

    fn release(&mut self, worker: &Worker, requests: &mut Requests) {
        for request in requests.unfinished().collect::<Vec<_>>() {
            // SAFETY: a live worker under its lock, and a request whose callback has not run.
            unsafe { worker.cancel(request) }
        }
        if !self.is_closed() {
            // SAFETY: the slots live until the worker is destroyed.
            if let Ok(Some(ticket)) = requests.post(|slot| unsafe { self.close(true, slot) }) {
                requests.abandon(ticket);
            }
        }
        // UCX completes what is left once the endpoint is closed.
        let end = Instant::now() + RELEASE_WITHIN;
        while requests.unfinished().next().is_some() && Instant::now() < end {
            worker.progress();
        }
    }
}

impl Driven for Listener {
    const LONGEST_SLEEP: Duration = Duration::from_secs(1);

    fn failure(&self) -> Option<Status> {
        None
    }

    fn release(&mut self, _: &Worker, _: &mut Requests) {
        self.destroy();
    }
}
