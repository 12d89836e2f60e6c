//! Every function that UCX calls. They only set state: no locks, no progress, nothing that could panic.
//!
//! They run inside `ucp_worker_progress` or a posting call, so under the engine's lock.

use std::sync::OnceLock;

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
    let completions = &slot.common().completions;
    completions.set(completions.get().wrapping_add(1));
}

/// A send, flush or close is done.
pub(super) unsafe extern "C" fn sent(_: *mut c_void, status: ucx_sys::ucs_status_t, user_data: *mut c_void) {
    // SAFETY: posted with a slot, which lives until the callback has run.
    unsafe { complete(user_data, status, |_| ()) }
}

/// The datatype of bytes that we copy, made once; its buffer is a slot.
pub(super) fn copied() -> ucx_sys::ucp_datatype_t {
    static DATATYPE: OnceLock<ucx_sys::ucp_datatype_t> = OnceLock::new();
    *DATATYPE.get_or_init(|| {
        let mut datatype = 0;
        // SAFETY: UCX copies the callbacks.
        let status = unsafe { ucx_sys::ucp_dt_create_generic(&COPY, std::ptr::null_mut(), &mut datatype) };
        assert!(Status(status).is_ok(), "no memory for a datatype");
        datatype
    })
}

/// UCX asks for bytes as it has room, and gives what it has.
const COPY: ucx_sys::ucp_generic_dt_ops_t = ucx_sys::ucp_generic_dt_ops_t {
    start_pack: Some(start_pack),
    start_unpack: Some(start_unpack),
    packed_size: Some(packed_size),
    pack: Some(pack),
    unpack: Some(unpack),
    finish: Some(finish),
};

unsafe extern "C" fn start_pack(_: *mut c_void, slot: *const c_void, _: usize) -> *mut c_void {
    slot.cast_mut()
}

unsafe extern "C" fn start_unpack(_: *mut c_void, slot: *mut c_void, _: usize) -> *mut c_void {
    slot
}

unsafe extern "C" fn packed_size(slot: *mut c_void) -> usize {
    // SAFETY: posted with a slot, which lives until its operation is done.
    let slot = unsafe { &*slot.cast::<Slot>() };
    slot.packed_size()
}

unsafe extern "C" fn pack(slot: *mut c_void, offset: usize, out: *mut c_void, room: usize) -> usize {
    // SAFETY: posted with a slot, which lives until its operation is done.
    let slot = unsafe { &*slot.cast::<Slot>() };
    // SAFETY: UCX's own buffer, which has this room.
    unsafe { slot.pack(offset, out.cast(), room) }
}

unsafe extern "C" fn unpack(
    slot: *mut c_void,
    offset: usize,
    bytes: *const c_void,
    len: usize,
) -> ucx_sys::ucs_status_t {
    // SAFETY: posted with a slot, which lives until its operation is done.
    let slot = unsafe { &*slot.cast::<Slot>() };
    // SAFETY: UCX has received these bytes.
    let fits = unsafe { slot.unpack(offset, bytes.cast(), len) };
    if fits { Status::OK } else { Status::TRUNCATED }.0
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
