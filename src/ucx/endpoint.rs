//! [`Endpoint`]: a UCP endpoint, one end of a connection, always in the mode that reports a lost peer.

use std::cell::Cell;
use std::ffi::CStr;
use std::net::SocketAddr;
use std::ptr;

use libc::c_void;

use super::address::CAddress;
use super::callback;
use super::error::UcxError;
use super::request::{Buffer, Slot};
use super::status::{check, Status};
use super::worker::Worker;

/// What the error handler writes; boxed, because C keeps its address until the worker is destroyed.
#[derive(Debug, Default)]
pub(super) struct EndpointState {
    pub(super) failure: Cell<Option<Status>>,
}

/// Used under the lock of the engine that owns it together with its worker.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Null once closing has begun: UCX forbids every further use.
    raw: ucx_sys::ucp_ep_h,
    state: Box<EndpointState>,
}

impl Endpoint {
    /// Begins to connect to a listener. Whether that works is known when bytes arrive, or the endpoint fails.
    pub(crate) fn connect(worker: &Worker, address: SocketAddr) -> Result<Self, UcxError> {
        let address = CAddress::from(address);
        Self::create(
            worker,
            ucx_sys::ucp_ep_params_t {
                field_mask: u64::from(ucx_sys::UCP_EP_PARAM_FIELD_FLAGS | ucx_sys::UCP_EP_PARAM_FIELD_SOCK_ADDR),
                flags: ucx_sys::UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                sockaddr: address.as_ucs(),
                ..Default::default()
            },
        )
    }

    /// Accepts what a client asked of a listener; the request is used up. The worker may be another than the
    /// listener's, of the same context.
    pub(super) fn accept(worker: &Worker, request: ucx_sys::ucp_conn_request_h) -> Result<Self, UcxError> {
        Self::create(
            worker,
            ucx_sys::ucp_ep_params_t {
                field_mask: u64::from(ucx_sys::UCP_EP_PARAM_FIELD_CONN_REQUEST),
                conn_request: request,
                ..Default::default()
            },
        )
    }

    fn create(worker: &Worker, mut params: ucx_sys::ucp_ep_params_t) -> Result<Self, UcxError> {
        let state = Box::<EndpointState>::default();
        params.field_mask |=
            u64::from(ucx_sys::UCP_EP_PARAM_FIELD_ERR_HANDLER | ucx_sys::UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
        params.err_mode = ucx_sys::UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = Some(callback::endpoint_failed);
        params.err_handler.arg = ptr::from_ref(&*state).cast_mut().cast();
        let mut raw = ptr::null_mut();
        // SAFETY: a live worker under its lock; the parameters point to what lives during the call, but for the
        // boxed state, which lives as long as the endpoint is known to UCX.
        check("ucp_ep_create", unsafe { ucx_sys::ucp_ep_create(worker.as_ptr(), &params, &mut raw) })?;
        Ok(Self { raw, state })
    }

    /// What the error handler said, if it did.
    pub(super) fn failure(&self) -> Option<Status> {
        self.state.failure.get()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.raw.is_null()
    }

    /// Posts a tag send of what is in `buffer`. Gives null, a request, or an error, as UCX does.
    ///
    /// # Safety
    /// What `buffer` names stays readable, and `slot` alive, until the slot is done.
    #[inline]
    pub(super) unsafe fn tag_send(&self, buffer: Buffer, tag: u64, slot: &Slot) -> ucx_sys::ucs_status_ptr_t {
        let mut param = sending(slot);
        let (data, len) = buffer.describe(slot, &mut param);
        // SAFETY: an open endpoint under its lock; the caller's promise covers the rest.
        unsafe { ucx_sys::ucp_tag_send_nbx(self.raw, data, len, tag, &param) }
    }

    /// Posts a stream send; as [`Endpoint::tag_send`].
    ///
    /// # Safety
    /// As [`Endpoint::tag_send`].
    pub(super) unsafe fn stream_send(&self, data: *const c_void, len: usize, slot: &Slot) -> ucx_sys::ucs_status_ptr_t {
        // SAFETY: an open endpoint under its lock; the caller's promise covers the rest.
        unsafe { ucx_sys::ucp_stream_send_nbx(self.raw, data, len, &sending(slot)) }
    }

    /// Posts a receive of exactly `len` stream bytes.
    ///
    /// # Safety
    /// `data` stays writable and untouched, and `slot` alive, until the slot is done.
    pub(super) unsafe fn stream_recv(&self, data: *mut c_void, len: usize, slot: &Slot) -> ucx_sys::ucs_status_ptr_t {
        let mut param = with_slot(slot);
        param.op_attr_mask |= ucx_sys::UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = ucx_sys::UCP_STREAM_RECV_FLAG_WAITALL;
        param.cb.recv_stream = Some(callback::stream_received);
        let mut got = 0;
        // SAFETY: an open endpoint under its lock; the caller's promise covers the rest.
        unsafe { ucx_sys::ucp_stream_recv_nbx(self.raw, data, len, &mut got, &param) }
    }

    /// Begins to flush: done when everything sent has left our memory and needs no more progress from us.
    ///
    /// # Safety
    /// `slot` stays alive until it is done.
    pub(super) unsafe fn flush(&self, slot: &Slot) -> ucx_sys::ucs_status_ptr_t {
        // SAFETY: an open endpoint under its lock; the slot by the caller's promise.
        unsafe { ucx_sys::ucp_ep_flush_nbx(self.raw, &sending(slot)) }
    }

    /// Begins to close, by force or after a flush that the peer confirms; the endpoint must not be used afterwards, and [`Endpoint::is_closed`].
    ///
    /// # Safety
    /// `slot` stays alive until it is done.
    pub(super) unsafe fn close(&mut self, force: bool, slot: &Slot) -> ucx_sys::ucs_status_ptr_t {
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        let mut param = sending(slot);
        if force {
            param.op_attr_mask |= ucx_sys::UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = ucx_sys::UCP_EP_CLOSE_FLAG_FORCE;
        }
        // SAFETY: an open endpoint under its lock, forgotten above; the slot by the caller's promise.
        unsafe { ucx_sys::ucp_ep_close_nbx(raw, &param) }
    }

    /// The transports that carry messages, such as `posix/memory` or `tcp/lo`, from UCX's own description of the
    /// endpoint: the query for them came only with 1.14.
    pub(super) fn transports(&self) -> Vec<String> {
        let (mut text, mut size) = (ptr::null_mut(), 0);
        // SAFETY: opens a stream that writes into a buffer of its own.
        let stream = unsafe { libc::open_memstream(&mut text, &mut size) };
        if stream.is_null() || self.is_closed() {
            return Vec::new();
        }
        // SAFETY: an open endpoint under its lock and an open stream.
        unsafe { ucx_sys::ucp_ep_print_info(self.raw, stream.cast()) };
        // SAFETY: closed once; afterwards `text` is a NUL-terminated string that is ours.
        unsafe { libc::fclose(stream) };
        // SAFETY: as said above.
        let lines = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: malloc's, by the contract of open_memstream.
        unsafe { libc::free(text.cast()) };
        parse_transports(&lines)
    }
}

/// Reads lines such as `#   lane[1]:  3:posix/memory.0 md[2]   -> md[2]/posix/sysdev[255] am am_bw#0`: the lanes that
/// are used for active messages, of which tag messages consist.
fn parse_transports(info: &str) -> Vec<String> {
    let mut transports: Vec<String> = Vec::new();
    for line in info.lines().filter(|line| line.contains("lane[")) {
        let mut words = line.split_whitespace();
        let resource = words.find_map(|word| {
            let (index, name) = word.split_once(':')?;
            (!index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) && name.contains('/')).then_some(name)
        });
        let Some(name) = resource.filter(|_| words.any(|word| word == "am" || word.starts_with("am_bw"))) else {
            continue;
        };
        let name =
            name.rsplit_once('.').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit())).map_or(name, |(n, _)| n);
        if !transports.iter().any(|t| t == name) {
            transports.push(name.to_owned());
        }
    }
    transports
}

/// Parameters of an operation that tells `slot` when it is done.
pub(super) fn with_slot(slot: &Slot) -> ucx_sys::ucp_request_param_t {
    ucx_sys::ucp_request_param_t {
        op_attr_mask: ucx_sys::UCP_OP_ATTR_FIELD_CALLBACK | ucx_sys::UCP_OP_ATTR_FIELD_USER_DATA,
        user_data: ptr::from_ref(slot).cast_mut().cast(),
        ..Default::default()
    }
}

fn sending(slot: &Slot) -> ucx_sys::ucp_request_param_t {
    let mut param = with_slot(slot);
    param.cb.send = Some(callback::sent);
    param
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_read_from_the_description() {
        let info = "#\n# UCP endpoint 127.0.0.1:4\n#\n#               peer: x\n\
            #                 lane[0]: cm rdmacm\n\
            #                 lane[1]:  3:posix/memory.0 md[2]    -> md[2]/posix/sysdev[255] am am_bw#0 keepalive\n\
            #                 lane[2]:  1:tcp/lo.1 md[1]          -> md[1]/tcp/sysdev[255] rma_bw#0 wireup\n\
            #                 lane[3]:  1:tcp/eth0.1 md[1]        -> md[1]/tcp/sysdev[255] am_bw#1\n";
        assert_eq!(parse_transports(info), ["posix/memory", "tcp/eth0"]);
    }
}
