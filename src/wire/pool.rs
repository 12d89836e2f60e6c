//! [`Pool`]: a few storages that are used again and again.

use crate::storage::{Pooled, Storage};

/// Storages of one length for one message after the other.
///
/// It starts with one and adds a spare whenever all are held by somebody, up to [`MAX_SLOTS`]; what is needed beyond
/// that is allocated and not kept.
#[derive(Debug, Default)]
pub(super) struct Pool {
    slots: Vec<Pooled>,
    allocations: u64,
}

impl Pool {
    /// The only handle to a storage of `len` bytes with any contents.
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Storage {
        let fits = self.slots.first().is_some_and(|slot| slot.len() == len);
        let free = if fits { self.slots.iter().find_map(Pooled::lend) } else { None };
        free.unwrap_or_else(|| self.grow(len, fits))
    }

    #[cold]
    fn grow(&mut self, len: usize, fits: bool) -> Storage {
        if !fits {
            self.slots.clear();
        }
        self.allocations += 1;
        if self.slots.len() < MAX_SLOTS {
            self.slots.push(Pooled::zeroed(len));
            if let Some(storage) = self.slots.last().and_then(Pooled::lend) {
                return storage;
            }
        }
        Storage::zeroed(len)
    }

    /// How many storages were allocated so far.
    pub(super) fn allocations(&self) -> u64 {
        self.allocations
    }
}

/// One for the message in flight, one for the message in use, one for a message kept from before.
const MAX_SLOTS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_given_back_is_lent_again() {
        let mut pool = Pool::default();
        let first = pool.take(8);
        let address = first.as_ptr();
        let kept = pool.take(8);
        assert!(!first.ptr_eq(&kept));
        drop(first);
        assert_eq!(pool.take(8).as_ptr(), address);
    }

    #[test]
    fn it_keeps_no_more_than_its_slots() {
        let mut pool = Pool::default();
        let held: Vec<Storage> = (0..MAX_SLOTS + 2).map(|_| pool.take(8)).collect();
        assert!(held.iter().all(Storage::is_unique));
        assert_eq!(pool.slots.len(), MAX_SLOTS);
    }

    #[test]
    fn another_length_starts_anew() {
        let mut pool = Pool::default();
        drop(pool.take(8));
        assert_eq!(pool.take(16).len(), 16);
        assert_eq!(pool.slots.len(), 1);
    }
}
