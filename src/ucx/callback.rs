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
