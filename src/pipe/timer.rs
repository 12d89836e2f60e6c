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

    /// From now, for `timeout` or until this one is over.
    pub(super) fn at_most(self, timeout: Duration) -> Self {
        let own = Self::new(Some(timeout));
        Self { deadline: own.deadline.into_iter().chain(self.deadline).min(), ..own }
    }

    pub(super) fn is_over(self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }
}
