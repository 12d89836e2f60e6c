//! [`Storage`]: the block of bytes that tensors lie in and that the transport fills.
//!
//! It is the lowest layer: the data model sees tensors in it, the transport sees bytes. All unsafe code outside
//! `ucx/` is in this folder, and one rule carries it: **bytes are written only by who holds the block alone.**
//! A block has handles ([`Storage`], counted by an `Arc`) and at most one [`Pooled`] slot. The slot keeps the
//! memory for the next message but promises never to look at it while a handle is out, so a holder of the only
//! handle may write even though the slot exists, and the slot may lend the block again once no handle is left.

#[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the transport
mod copy;
#[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the transport
mod gather;

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::Arc;

pub(crate) use gather::{Gather, Pieces};
#[cfg(feature = "ucx")]
pub(crate) use {
    copy::{copy, stream},
    gather::Cursor,
};

/// Every block of a [`Storage`] starts on a boundary of this many bytes: a cache line, and enough for any vector load.
pub const STORAGE_ALIGNMENT: usize = 64;

/// A block to receive into has at least this many bytes, so that a short control message fits wherever data is awaited.
pub(crate) const RECEIVABLE: usize = 16;

/// A shared, 64-byte aligned block of bytes.
///
/// Cloning is cheap and shares the bytes; writing needs the only handle ([`Storage::bytes_mut`]) or copies first
/// ([`Storage::make_mut`]).
///
/// ```
/// use tensordict_pipe::{DType, Storage, Tensor, STORAGE_ALIGNMENT};
///
/// let mut storage = Storage::from_bytes(&[1, 2, 3, 4]);
/// assert_eq!(storage.as_bytes().as_ptr() as usize % STORAGE_ALIGNMENT, 0);
/// let tensor = Tensor::from_storage(DType::UInt8, [2, 2], storage.clone(), 0)?; // shares the bytes
/// assert!(storage.bytes_mut().is_none());
/// storage.make_mut()[0] = 9; // copies them first
/// assert_eq!(tensor.as_slice::<u8>()?, [1, 2, 3, 4]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone)]
pub struct Storage {
    block: Arc<Block>,
}

struct Block {
    ptr: NonNull<u8>,
    len: usize,
    /// A [`Pooled`] slot holds one of the `Arc`'s counts.
    pooled: AtomicBool,
}

// SAFETY: the block owns its memory; shared access only reads, and writing needs the only handle (module rule).
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn layout(len: usize) -> Layout {
        // A zero-size allocation is not allowed; one line costs nothing. `len` was checked when the block was made.
        Layout::from_size_align(len.max(1), STORAGE_ALIGNMENT).expect("checked by Block::zeroed")
    }

    fn zeroed(len: usize) -> Self {
        assert!(
            len <= isize::MAX as usize - STORAGE_ALIGNMENT,
            "a storage of {len} bytes is larger than the address space"
        );
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        Self { ptr, len, pooled: AtomicBool::new(false) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout; nobody holds the block any more.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.len)) }
    }
}

impl Storage {
    /// A block of `len` zero bytes.
    ///
    /// ```
    /// use tensordict_pipe::Storage;
    ///
    /// let (none, some) = (Storage::zeroed(0), Storage::zeroed(8));
    /// assert!(none.is_empty() && some.len() == 8 && some.is_unique());
    /// let shared = some.clone();
    /// assert!(shared.ptr_eq(&some) && !some.is_unique());
    /// ```
    ///
    /// # Panics
    /// If `len` exceeds the address space. Memory that cannot be had ends the process, as for `Vec`.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { block: Arc::new(Block::zeroed(len)) }
    }

    /// A block with a copy of `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut storage = Self::zeroed(bytes.len());
        storage.make_mut().copy_from_slice(bytes);
        storage
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.len
    }

    /// Whether the block holds no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.block.len == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the memory is initialised (zeroed), lives as long as the handle, and is written only through the
        // only handle, which this borrow keeps from being used.
        unsafe { std::slice::from_raw_parts(self.block.ptr.as_ptr(), self.block.len) }
    }

    /// The bytes for writing, or `None` while another handle shares them.
    #[must_use]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: no other handle exists, and none can appear while this one is mutably borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.block.ptr.as_ptr(), self.block.len) })
    }

    /// The bytes for writing; copies them first if another handle shares them.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            let copy = Self::zeroed(self.len());
            // SAFETY: `copy` was just made, so its bytes are ours alone; the blocks do not overlap and are equally long.
            unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), copy.as_ptr(), self.len()) };
            *self = copy;
        }
        // SAFETY: as in `bytes_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.block.ptr.as_ptr(), self.block.len) }
    }

    /// Whether this is the only handle.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        // The count first, the slot second: a slot that goes clears its mark before it gives its count back.
        let count = Arc::strong_count(&self.block);
        fence(Ordering::Acquire);
        count - usize::from(self.block.pooled.load(Ordering::Relaxed)) == 1
    }

    /// Whether both handles share one block.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }

    /// The address of the first byte, for the transport. Writing through it needs the only handle.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.ptr.as_ptr()
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A slot that keeps a block for reuse: lends it out, and can lend it again once every handle has gone.
#[derive(Debug)]
pub(crate) struct Pooled(Storage);

impl Pooled {
    pub(crate) fn zeroed(len: usize) -> Self {
        let storage = Storage::zeroed(len);
        storage.block.pooled.store(true, Ordering::Relaxed);
        Self(storage)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The only handle to the block, or `None` while an earlier one is still held by somebody.
    pub(crate) fn lend(&self) -> Option<Storage> {
        let free = Arc::strong_count(&self.0.block) == 1;
        // Whoever dropped the last handle has finished with the bytes before we write them.
        fence(Ordering::Acquire);
        free.then(|| self.0.clone())
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.0.block.pooled.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_alone_although_a_slot_keeps_the_block() {
        let slot = Pooled::zeroed(8);
        let mut a = slot.lend().expect("free");
        assert!(slot.lend().is_none(), "lent out");
        a.bytes_mut().expect("alone").fill(7);
        let mut b = a.clone();
        assert!(b.bytes_mut().is_none(), "shared with a");
        b.make_mut().fill(9);
        assert_eq!((a.as_bytes()[0], b.as_bytes()[0]), (7, 9));
        assert!(!a.ptr_eq(&b));
        drop(a);
        assert!(slot.lend().is_some(), "given back");
    }

    #[test]
    fn a_block_outlives_its_slot_and_stays_writable() {
        let slot = Pooled::zeroed(4);
        let mut a = slot.lend().expect("free");
        drop(slot);
        assert!(a.is_unique());
        let b = a.clone();
        assert!(a.bytes_mut().is_none());
        drop(b);
        assert!(a.bytes_mut().is_some());
    }

    #[test]
    fn blocks_are_aligned_even_when_empty() {
        for len in [0, 1, 63, 65] {
            let storage = Storage::zeroed(len);
            assert_eq!(storage.as_bytes().len(), len);
            assert_eq!(storage.as_ptr() as usize % STORAGE_ALIGNMENT, 0);
        }
    }
}
