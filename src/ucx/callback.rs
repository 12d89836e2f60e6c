//! Every function that UCX calls. They only set state: no locks, no progress, nothing that could panic.
//!
//! They run inside `ucp_worker_progress` or a posting call, so under the engine's lock.

use std::cell::Cell;

use libc::c_void;

use super::endpoint::EndpointState;
use super::listener::ListenerState;
use super::request::Slot;
use super::status::Status;

/// # Safety
/// `user_data` is the address of a live [`Slot`].
unsafe fn complete(user_data: *mut c_void, status: ucx_sys::ucs_status_t, set: impl FnOnce(&Slot)) {
    // SAFETY: the caller's promise; slots are only shared.
    let slot = unsafe { &*user_data.cast::<Slot>() };
    set(slot);
    slot.status.set(Status(status));
    slot.done.set(true);
    // SAFETY: the counter is boxed beside the slots and lives as long as they do.
    let completions: &Cell<u64> = unsafe { &*slot.completions };
    completions.set(completions.get().wrapping_add(1));
}

/// A send, flush or close is done.
pub(super) unsafe extern "C" fn sent(_: *mut c_void, status: ucx_sys::ucs_status_t, user_data: *mut c_void) {
    // SAFETY: posted with a slot, which lives until the callback has run.
    unsafe { complete(user_data, status, |_| ()) }
}

/// The datatype of bytes that a slot gathers: UCX asks for them as it has room.
pub(super) const GATHER: ucx_sys::ucp_generic_dt_ops_t = ucx_sys::ucp_generic_dt_ops_t {
    start_pack: Some(start_pack),
    start_unpack: None,
    packed_size: Some(packed_size),
    pack: Some(pack),
    unpack: None,
    finish: Some(finish),
};

unsafe extern "C" fn start_pack(_: *mut c_void, slot: *const c_void, _: usize) -> *mut c_void {
    slot.cast_mut()
}

unsafe extern "C" fn packed_size(slot: *mut c_void) -> usize {
    // SAFETY: posted with a slot, which lives until its operation is done.
    let slot = unsafe { &*slot.cast::<Slot>() };
    slot.with_gather(|gather, _| gather.len())
}

unsafe extern "C" fn pack(slot: *mut c_void, offset: usize, out: *mut c_void, room: usize) -> usize {
    // SAFETY: posted with a slot, which lives until its operation is done.
    let slot = unsafe { &*slot.cast::<Slot>() };
    slot.with_gather(|gather, cursor| {
        // UCX may say that there is room without end, when it knows that there is for all.
        let len = room.min(gather.len().saturating_sub(offset));
        // SAFETY: UCX's own buffer, which has this room.
        let out = unsafe { std::slice::from_raw_parts_mut(out.cast(), len) };
        gather.copy(offset, cursor, out)
    })
}

unsafe extern "C" fn finish(_: *mut c_void) {}

/// A tag receive is done.
pub(super) unsafe extern "C" fn tag_received(
    _: *mut c_void,
    status: ucx_sys::ucs_status_t,
    info: *const ucx_sys::ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    // SAFETY: `info` is null or valid during the call.
    let info = unsafe { info.as_ref() };
    // SAFETY: posted with a slot, which lives until the callback has run.
    unsafe {
        complete(user_data, status, |slot| {
            if let Some(info) = info {
                slot.len.set(info.length);
                slot.tag.set(info.sender_tag);
            }
        });
    }
}

/// A stream receive is done.
pub(super) unsafe extern "C" fn stream_received(
    _: *mut c_void,
    status: ucx_sys::ucs_status_t,
    length: usize,
    user_data: *mut c_void,
) {
    // SAFETY: posted with a slot, which lives until the callback has run.
    unsafe { complete(user_data, status, |slot| slot.len.set(length)) }
}

/// The endpoint broke or its peer went away.
pub(super) unsafe extern "C" fn endpoint_failed(
    state: *mut c_void,
    _: ucx_sys::ucp_ep_h,
    status: ucx_sys::ucs_status_t,
) {
    // SAFETY: the endpoint's own boxed state, which lives until its worker is destroyed.
    let state = unsafe { &*state.cast::<EndpointState>() };
    state.failure.set(Some(Status(status)));
}

/// A client asks to connect.
pub(super) unsafe extern "C" fn connection_requested(request: ucx_sys::ucp_conn_request_h, state: *mut c_void) {
    // SAFETY: the listener's own boxed state, which lives until its worker is destroyed.
    let state = unsafe { &*state.cast::<ListenerState>() };
    state.push(request);
}
