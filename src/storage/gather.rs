//! [`Gather`]: bytes in many places that are one message.

use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::copy::{copy, stream};
use super::Storage;

/// Pieces of bytes, one after the other, and what keeps them where they are: the transport copies them from there into
/// its own buffers, instead of us into one more.
#[derive(Default)]
pub(crate) struct Gather {
    /// In what the owner holds.
    spans: Vec<Span>,
    len: usize,
    owner: Option<Owner>,
}

/// What the pieces lie in: a tree and the storage that its parts may refer to.
type Owner = (Arc<dyn Any + Send + Sync>, Option<Storage>);

#[derive(Clone, Copy)]
struct Span {
    start: *const u8,
    len: usize,
}

// SAFETY: the spans are only read, from bytes that the owner shares with any thread.
unsafe impl Send for Gather {}
// SAFETY: as above.
unsafe impl Sync for Gather {}

/// Takes pieces that live as long as `'o`.
pub(crate) struct Pieces<'g, 'o> {
    gather: &'g mut Gather,
    lifetime: std::marker::PhantomData<fn(&'o [u8])>,
}

/// How far a [`Gather`] has been copied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Bytes copied.
    at: usize,
    span: usize,
    /// Bytes copied of that span.
    within: usize,
}

impl Gather {
    /// The pieces that `list` finds in `tree` and `packed`, which are held until [`Gather::release`].
    pub(crate) fn fill<T: Any + Send + Sync>(
        self: &mut Arc<Self>,
        tree: &Arc<T>,
        packed: Option<&Storage>,
        list: impl for<'o> FnOnce(&'o T, Option<&'o Storage>, &mut Pieces<'_, 'o>),
    ) {
        Self::release(self);
        let gather = Arc::get_mut(self).expect("nobody else has it");
        gather.owner = Some((Arc::clone(tree) as _, packed.cloned()));
        // What `list` pushes lives as long as any `'o`: it is in the tree or the storage, or lives for ever. Both are held
        // from here on, and nobody changes what is shared.
        list(tree, packed, &mut Pieces { gather, lifetime: std::marker::PhantomData });
    }

    /// Lets go of the bytes, unless the transport still reads them.
    pub(crate) fn release(self: &mut Arc<Self>) {
        match Arc::get_mut(self) {
            Some(gather) => {
                gather.owner = None;
                gather.spans.clear();
                gather.len = 0;
            }
            None => *self = Arc::default(),
        }
    }

    /// The bytes of all pieces.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All bytes, if they lie in one piece.
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        match *self.spans {
            [] => Some(&[]),
            [span] => Some(self.bytes(span)),
            _ => None,
        }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: a span is only made of a slice in what the owner holds.
        unsafe { std::slice::from_raw_parts(span.start, span.len) }
    }

    /// A copy of all bytes.
    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.spans.iter().flat_map(|&span| self.bytes(span)).copied().collect()
    }

    /// Copies from byte `at` on as much as there is and fits; gives how much. `cursor` remembers where that was.
    pub(crate) fn copy(&self, at: usize, cursor: &mut Cursor, mut out: &mut [MaybeUninit<u8>]) -> usize {
        if cursor.at != at {
            *cursor = self.seek(at);
        }
        let room = out.len();
        while let Some(&span) = self.spans.get(cursor.span).filter(|_| !out.is_empty()) {
            let from = &self.bytes(span)[cursor.within..];
            let len = from.len().min(out.len());
            let (to, rest) = std::mem::take(&mut out).split_at_mut(len);
            copy(&from[..len], to);
            out = rest;
            cursor.within += len;
            if cursor.within == span.len {
                (cursor.span, cursor.within) = (cursor.span + 1, 0);
            }
        }
        cursor.at += room - out.len();
        room - out.len()
    }

    /// The same past the caches.
    pub(crate) fn stream(&self, at: usize, cursor: &mut Cursor, out: &mut [MaybeUninit<u8>]) -> usize {
        // Whole lines, however short the pieces are.
        let mut lines = [MaybeUninit::uninit(); 4096];
        let mut done = 0;
        for out in out.chunks_mut(lines.len()) {
            let lines = &mut lines[..out.len()];
            let copied = self.copy(at + done, cursor, lines);
            // SAFETY: so many were copied.
            stream(unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), copied) }, out);
            done += copied;
        }
        done
    }

    #[cold]
    fn seek(&self, at: usize) -> Cursor {
        let (mut span, mut within) = (0, at);
        while self.spans.get(span).is_some_and(|span| span.len <= within) {
            within -= self.spans[span].len;
            span += 1;
        }
        Cursor { at, span, within }
    }
}

impl<'o> Pieces<'_, 'o> {
    #[inline]
    pub(crate) fn push(&mut self, bytes: &'o [u8]) {
        if bytes.is_empty() {
            return;
        }
        let Gather { spans, len, .. } = &mut *self.gather;
        *len += bytes.len();
        spans.push(Span { start: bytes.as_ptr(), len: bytes.len() });
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").field("pieces", &self.spans.len()).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tree: &Arc<Vec<Storage>>, packed: &Storage) -> Arc<Gather> {
        let mut gather = Arc::<Gather>::default();
        gather.fill(tree, Some(packed), |tree, packed, pieces| {
            tree.iter().for_each(|storage| pieces.push(storage.as_bytes()));
            pieces.push(&packed.expect("given").as_bytes()[1..]);
        });
        gather
    }

    #[test]
    fn every_part_can_be_copied_in_any_order() {
        let tree = Arc::new([&[1, 2, 3][..], &[], &[4], &[5, 6, 7, 8]].map(Storage::from_bytes).to_vec());
        let gather = sample(&tree, &Storage::from_bytes(&[0, 9, 10]));
        let all = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!((gather.len(), gather.to_vec()), (10, all.to_vec()));
        for way in [Gather::copy, Gather::stream] {
            for room in 1..=11 {
                let mut cursor = Cursor::default();
                // Onwards, and then backwards.
                for at in (0..=10).step_by(room).chain((0..=10).rev()) {
                    let mut out = [MaybeUninit::new(0); 11];
                    let copied = way(&gather, at, &mut cursor, &mut out[..room]);
                    assert_eq!(copied, room.min(10 - at));
                    assert_eq!(initialised(&out)[..copied], all[at..at + copied], "{room} from {at}");
                }
            }
        }
    }

    #[test]
    fn what_is_streamed_may_be_long() {
        let tree = Arc::new([1, 2, 3].map(|byte| Storage::from_bytes(&[byte; 3_000])).to_vec());
        let gather = sample(&tree, &Storage::zeroed(1));
        let (all, mut cursor) = (gather.to_vec(), Cursor::default());
        for (at, room) in [(0, 8_192), (8_192, 8_192), (100, 8_900), (100, 8_000)] {
            let mut out = [MaybeUninit::new(0); 9_000];
            let copied = gather.stream(at, &mut cursor, &mut out[..room]);
            assert_eq!(copied, room.min(9_000 - at));
            assert!(initialised(&out)[..copied] == all[at..at + copied], "{room} from {at}");
            assert!(initialised(&out)[copied..].iter().all(|&byte| byte == 0), "{room} from {at}");
        }
    }

    fn initialised(bytes: &[MaybeUninit<u8>]) -> Vec<u8> {
        // SAFETY: the tests set all of them.
        bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect()
    }

    #[test]
    fn what_is_gathered_is_held_until_it_is_released() {
        let tree = Arc::new(vec![Storage::from_bytes(&[1])]);
        let mut gather = sample(&tree, &Storage::zeroed(3));
        assert_eq!(Arc::strong_count(&tree), 2);
        let read_by_the_transport = Arc::clone(&gather);
        gather.release();
        assert_eq!((Arc::strong_count(&tree), gather.len(), read_by_the_transport.to_vec()), (2, 0, vec![1, 0, 0]));
        drop(read_by_the_transport);
        assert_eq!(Arc::strong_count(&tree), 1);
    }

    #[test]
    fn one_piece_is_contiguous() {
        let tree = Arc::new(vec![Storage::from_bytes(&[1, 2])]);
        let gather = sample(&tree, &Storage::zeroed(1));
        assert_eq!(gather.contiguous(), Some(&[1, 2][..]));
        assert_eq!(sample(&tree, &Storage::zeroed(2)).contiguous(), None);
        assert_eq!(Gather::default().contiguous(), Some(&[][..]));
    }
}
