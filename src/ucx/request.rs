//! [`Requests`]: the operations under way on one worker, and the memory that C may touch for them.
//!
//! A slot lives in a box, so that C can keep its address. It owns every byte of its operation until the completion
//! callback has run; who gives up on an operation leaves the slot behind ([`Requests::abandon`]) and the slot is
//! freed after the callback. Slots are reused: posting allocates nothing in the steady state.

use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use crate::link::handshake::KIND_MASK;
use crate::link::{Kind, Received, SMALL_BYTES};
use crate::storage::{copy, stream, Cursor, Gather, Storage};

use super::callback;
use super::pace::Pace;
use super::status::Status;

/// Kinds with this bit travel on the control lane.
pub(super) const CONTROL_BIT: u64 = 0x80;

/// The operations of one connection at a time: a window of sends, two receives, a flush, and some to spare.
const SLOTS: usize = 16;

/// The shortest message that we copy into and out of shared memory: UCX has shorter ways for what one `memcpy` does.
const COPIED_FROM: usize = 4096;

/// Names a slot until [`Requests::finish`] or [`Requests::abandon`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket(usize);

/// What the callbacks of all slots of a worker share.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// So that a driver notices that it completed somebody else's operation.
    pub(super) completions: Cell<u64>,
    /// Whether messages reach the peer by buffers in shared memory, into and out of which we copy them.
    by_shared_memory: Cell<bool>,
    pace: Pace,
}

/// One operation. All fields are cells: the callback writes them while the engine holds shared references.
pub(super) struct Slot {
    pub(super) done: Cell<bool>,
    pub(super) status: Cell<Status>,
    pub(super) len: Cell<usize>,
    pub(super) tag: Cell<u64>,
    /// UCX's request, to be freed once done; null while the slot is unused.
    pub(super) request: Cell<*mut libc::c_void>,
    /// The bytes of a short message.
    pub(super) small: Cell<[u8; SMALL_BYTES]>,
    /// The block that C reads or writes.
    block: Cell<Option<Storage>>,
    /// The bytes that C asks us to copy: one span, unless there are several, and how far they are copied.
    span: Cell<(*mut u8, usize)>,
    pub(super) gather: Cell<Option<Arc<Gather>>>,
    cursor: Cell<Cursor>,
    /// How many bytes a receive has room for.
    pub(super) capacity: Cell<usize>,
    /// Boxed beside the slots, and lives as long as they do.
    common: *const Common,
}

impl Slot {
    #[inline]
    pub(super) fn common(&self) -> &Common {
        // SAFETY: boxed beside the slots, and only shared.
        unsafe { &*self.common }
    }

    /// What C is to read or write for this slot's operation.
    #[inline]
    pub(super) fn buffer(&self, data: *mut u8, len: usize) -> Buffer {
        if len < COPIED_FROM || !self.common().by_shared_memory.get() {
            return Buffer::At(data.cast(), len);
        }
        self.span.set((data, len));
        // The gather that holds these bytes may come later.
        self.cursor.set(Cursor::default());
        Buffer::Copied
    }

    /// The same for bytes in many places.
    pub(super) fn gather_buffer(&self, gather: &Arc<Gather>) -> Buffer {
        self.gather.set(Some(Arc::clone(gather)));
        self.cursor.set(Cursor::default());
        Buffer::Copied
    }

    /// How many bytes there are to copy, or how many there is room for.
    pub(super) fn packed_size(&self) -> usize {
        let gather = self.gather.take();
        let total = self.total(gather.as_deref());
        self.gather.set(gather);
        total
    }

    fn total(&self, gather: Option<&Gather>) -> usize {
        gather.map_or_else(|| self.span.get().1, Gather::len)
    }

    /// Copies from byte `at` on as much as there is and fits into `out`; gives how much.
    ///
    /// # Safety
    /// The slot's operation is under way, and `out` has `room` bytes that nobody else uses: C's own.
    pub(super) unsafe fn pack(&self, at: usize, out: *mut u8, room: usize) -> usize {
        let gather = self.gather.take();
        // C may say that there is room without end, when it knows that there is for all.
        let len = room.min(self.total(gather.as_deref()).saturating_sub(at));
        // SAFETY: the caller's promise.
        let out: &mut [MaybeUninit<u8>] = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
        let Common { by_shared_memory, pace, .. } = self.common();
        let streams = by_shared_memory.get() && pace.streams(len, at > 0, Instant::now);
        let Some(gather) = gather else {
            let (start, total) = self.span.get();
            // SAFETY: the bytes that the operation keeps, of which none is written meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(start, total) };
            let bytes = bytes.get(at..at + len).unwrap_or_default();
            if streams {
                stream(bytes, out);
            } else {
                copy(bytes, out);
            }
            return len;
        };
        let mut cursor = self.cursor.get();
        let copied = if streams { gather.stream(at, &mut cursor, out) } else { gather.copy(at, &mut cursor, out) };
        self.cursor.set(cursor);
        self.gather.set(Some(gather));
        copied
    }

    /// Copies the bytes at `from` to byte `at` on, if there is room.
    ///
    /// # Safety
    /// The slot's operation is under way, and `from` has `len` bytes.
    pub(super) unsafe fn unpack(&self, at: usize, from: *const u8, len: usize) -> bool {
        let (start, room) = self.span.get();
        let fits = at.checked_add(len).is_some_and(|end| end <= room);
        if fits && len > 0 {
            // SAFETY: the bytes that this operation alone has.
            let to: &mut [MaybeUninit<u8>] = unsafe { std::slice::from_raw_parts_mut(start.cast(), room) };
            // SAFETY: the caller's promise.
            copy(unsafe { std::slice::from_raw_parts(from, len) }, &mut to[at..at + len]);
        }
        fits
    }
}

#[derive(Debug)]
pub(super) struct Requests {
    // Boxed because C keeps the slots' addresses while the vector grows.
    #[allow(clippy::vec_box)]
    slots: Vec<Box<Slot>>,
    /// The slot of the next operation.
    next: usize,
    free: Vec<usize>,
    abandoned: Vec<usize>,
    common: Box<Common>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("done", &self.done).field("status", &self.status).finish_non_exhaustive()
    }
}

impl Requests {
    pub(super) fn new() -> Self {
        let (slots, free, abandoned) = (Vec::new(), Vec::new(), Vec::new());
        let mut requests = Self { slots, next: 0, free, abandoned, common: Box::default() };
        requests.next = requests.grow();
        // Beforehand, so that no call allocates because the progress thread happens to use one more.
        for _ in 1..SLOTS {
            let index = requests.grow();
            requests.free.push(index);
        }
        requests
    }

    fn grow(&mut self) -> usize {
        self.slots.push(Box::new(Slot {
            done: Cell::new(true),
            status: Cell::new(Status::OK),
            len: Cell::new(0),
            tag: Cell::new(0),
            request: Cell::new(ptr::null_mut()),
            small: Cell::new([0; SMALL_BYTES]),
            block: Cell::new(None),
            span: Cell::new((ptr::dangling_mut(), 0)),
            gather: Cell::new(None),
            cursor: Cell::default(),
            capacity: Cell::new(0),
            common: &*self.common,
        }));
        self.slots.len() - 1
    }

    /// A slot for a new operation, which is nobody's until [`Requests::claim`]: what is done at once needs no ticket.
    #[inline]
    pub(super) fn prepare(&mut self) {
        if !self.abandoned.is_empty() {
            self.reap();
        }
        self.prepared().done.set(false);
    }

    #[inline]
    pub(super) fn prepared(&self) -> &Slot {
        &self.slots[self.next]
    }

    /// The slot that was prepared, whose operation is under way.
    pub(super) fn claim(&mut self) -> Ticket {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        Ticket(std::mem::replace(&mut self.next, index))
    }

    /// Both in one.
    pub(super) fn take(&mut self) -> Ticket {
        self.prepare();
        self.claim()
    }

    /// Posts an operation in a slot of its own: its ticket, unless it ended at once.
    pub(super) fn post(
        &mut self,
        post: impl FnOnce(&Slot) -> ucx_sys::ucs_status_ptr_t,
    ) -> Result<Option<Ticket>, Status> {
        let ticket = self.take();
        let slot = self.slot(&ticket);
        let request = post(slot);
        match Status::of_ptr(request) {
            Status::IN_PROGRESS => {
                slot.request.set(request);
                Ok(Some(ticket))
            }
            status => {
                self.finish(ticket);
                if status.is_ok() {
                    Ok(None)
                } else {
                    Err(status)
                }
            }
        }
    }

    #[inline]
    pub(super) fn slot(&self, ticket: &Ticket) -> &Slot {
        &self.slots[ticket.0]
    }

    pub(super) fn is_done(&self, ticket: &Ticket) -> bool {
        self.slot(ticket).done.get()
    }

    pub(super) fn capacity(&self, ticket: &Ticket) -> usize {
        self.slot(ticket).capacity.get()
    }

    /// Keeps `block` alive until the operation is done.
    pub(super) fn hold(&self, ticket: &Ticket, block: Option<Storage>) {
        self.slot(ticket).block.set(block);
    }

    /// Ends a slot whose operation is done (or never began): its status and its block.
    pub(super) fn finish(&mut self, ticket: Ticket) -> (Status, Option<Storage>) {
        let slot = &self.slots[ticket.0];
        free_request(slot);
        slot.gather.set(None);
        let result = (slot.status.get(), slot.block.take());
        self.free.push(ticket.0);
        result
    }

    /// Ends the slot of a receive.
    pub(super) fn finish_recv(&mut self, ticket: Ticket) -> (Status, Received) {
        let slot = self.slot(&ticket);
        let received =
            Received { kind: kind_of(slot.tag.get()), len: slot.len.get(), small: slot.small.get(), block: None };
        let (status, block) = self.finish(ticket);
        (status, Received { block, ..received })
    }

    /// Gives up on an operation; its slot stays until the callback has run.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        self.abandoned.push(ticket.0);
    }

    fn reap(&mut self) {
        let Self { slots, free, abandoned, .. } = self;
        abandoned.retain(|&index| {
            let slot = &slots[index];
            if slot.done.get() {
                free_request(slot);
                slot.block.set(None);
                slot.gather.set(None);
                free.push(index);
            }
            !slot.done.get()
        });
    }

    pub(super) fn completions(&self) -> u64 {
        self.common.completions.get()
    }

    /// Messages reach the peer by buffers in shared memory, into and out of which we copy them.
    pub(super) fn go_by_shared_memory(&self) {
        self.common.by_shared_memory.set(true);
    }

    /// Every request that has not completed; for cancelling all before the worker goes.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = *mut libc::c_void> + '_ {
        self.slots.iter().filter(|s| !s.done.get()).map(|s| s.request.get()).filter(|r| !r.is_null())
    }

    /// Gives every request back that has completed, before the worker goes.
    pub(super) fn free_done(&self) {
        self.slots.iter().filter(|slot| slot.done.get()).for_each(|slot| free_request(slot));
    }
}

fn free_request(slot: &Slot) {
    let request = slot.request.replace(ptr::null_mut());
    if !request.is_null() {
        // SAFETY: UCX's own request, whose callback has run; freed once, since the slot forgets it here.
        unsafe { ucx_sys::ucp_request_free(request) }
    }
}

/// The kind of a message, from its tag.
#[inline]
pub(super) fn kind_of(tag: u64) -> Kind {
    Kind((tag & KIND_MASK & !CONTROL_BIT) as u8)
}

/// Where C finds a message or puts one.
#[derive(Clone, Copy)]
pub(super) enum Buffer {
    /// So many bytes there.
    At(*mut libc::c_void, usize),
    /// In what the slot says, which we copy.
    Copied,
}

impl Buffer {
    /// The two arguments of an operation that say so, and the datatype if C does not assume it.
    #[inline]
    pub(super) fn describe(self, slot: &Slot, param: &mut ucx_sys::ucp_request_param_t) -> (*mut libc::c_void, usize) {
        match self {
            Self::At(data, len) => (data, len),
            Self::Copied => {
                param.op_attr_mask |= ucx_sys::UCP_OP_ATTR_FIELD_DATATYPE;
                param.datatype = callback::copied();
                (ptr::from_ref(slot).cast_mut().cast(), 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather_of(pieces: &Arc<Vec<Storage>>) -> Arc<Gather> {
        let mut gather = Arc::<Gather>::default();
        gather.fill(pieces, None, |pieces, _, out| pieces.iter().for_each(|piece| out.push(piece.as_bytes())));
        gather
    }

    fn packed(slot: &Slot, at: usize, room: usize) -> Vec<u8> {
        let mut out = vec![0; room];
        // SAFETY: the test keeps the bytes of the slot's operation, and `out` has this room.
        let copied = unsafe { slot.pack(at, out.as_mut_ptr(), room) };
        out.truncate(copied);
        out
    }

    /// A send of one piece begins with its address; what holds it comes when UCX goes on reading.
    #[test]
    fn a_slot_forgets_how_far_it_copied_before() {
        let requests = Requests::new();
        requests.go_by_shared_memory();
        let slot = requests.prepared();
        let two = gather_of(&Arc::new(vec![Storage::from_bytes(&[1; 3000]), Storage::from_bytes(&[2; 3000])]));
        slot.gather_buffer(&two);
        assert_eq!(packed(slot, 0, 7000).len(), 6000);
        slot.gather.set(None);

        let bytes: Vec<u8> = (0..9000_u32).map(|i| i as u8).collect();
        let one = gather_of(&Arc::new(vec![Storage::from_bytes(&bytes)]));
        let contiguous = one.contiguous().expect("one piece");
        assert!(matches!(slot.buffer(contiguous.as_ptr().cast_mut(), contiguous.len()), Buffer::Copied));
        assert_eq!(packed(slot, 0, 6000), bytes[..6000]);
        slot.gather.set(Some(Arc::clone(&one)));
        assert_eq!(packed(slot, 6000, 7000), bytes[6000..]);
    }
}
