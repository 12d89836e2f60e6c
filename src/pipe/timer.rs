//! [`Timer`]: a deadline that can say how long it was.

use std::time::{Duration, Instant};

use crate::link::{deadline_after, Deadline};

/// Without a deadline it does not even look at the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    started: Option<Instant>,
    pub(super) deadline: Deadline,
}

impl Timer {
    /// A timeout from now; `None`, or one that overflows the clock, is never.
    #[inline]
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        timeout.map_or(Self { started: None, deadline: None }, |timeout| Self {
            started: Some(Instant::now()),
            deadline: deadline_after(timeout),
        })
    }

    pub(super) fn until(deadline: Instant) -> Self {
        Self { started: Some(Instant::now()), deadline: Some(deadline) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}
