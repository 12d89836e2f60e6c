//! [`Listener`]: a UCP listener, and the [`ConnectionRequest`]s that clients have made of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::ptr;

use super::address::{from_c, CAddress};
use super::callback;
use super::error::UcxError;
use super::status::{check, Status};
use super::worker::Worker;

/// What the connection handler fills; boxed, because C keeps its address until the worker is destroyed.
#[derive(Debug, Default)]
pub(super) struct ListenerState {
    requests: RefCell<VecDeque<ucx_sys::ucp_conn_request_h>>,
}

impl ListenerState {
    pub(super) fn push(&self, request: ucx_sys::ucp_conn_request_h) {
        // Nothing may unwind into C. The queue is borrowed by nobody else while a callback runs.
        let pushed = catch_unwind(AssertUnwindSafe(|| self.requests.borrow_mut().push_back(request)));
        if pushed.is_err() {
            log::error!("a connection request was dropped");
        }
    }
}

/// Used under the lock of the engine that owns it together with its worker.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Null once destroyed.
    raw: ucx_sys::ucp_listener_h,
    state: Box<ListenerState>,
}

impl Listener {
    /// Listens on `address`; port 0 takes any free one.
    pub(crate) fn bind(worker: &Worker, address: SocketAddr) -> Result<Self, UcxError> {
        let state = Box::<ListenerState>::default();
        let c_address = CAddress::from(address);
        let mut params = ucx_sys::ucp_listener_params_t {
            field_mask: u64::from(
                ucx_sys::UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | ucx_sys::UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
            ),
            sockaddr: c_address.as_ucs(),
            ..Default::default()
        };
        params.conn_handler.cb = Some(callback::connection_requested);
        params.conn_handler.arg = ptr::from_ref(&*state).cast_mut().cast();
        let mut raw = ptr::null_mut();
        // SAFETY: a live worker under its lock; the parameters point to what lives during the call, but for the
        // boxed state, which lives as long as the listener is known to UCX.
        let status = Status(unsafe { ucx_sys::ucp_listener_create(worker.as_ptr(), &params, &mut raw) });
        match status {
            Status::OK => Ok(Self { raw, state }),
            // UCX says BUSY for EADDRINUSE.
            Status::BUSY => Err(UcxError::AddrInUse(address)),
            status => Err(UcxError::Status { operation: "ucp_listener_create", status }),
        }
    }

    /// The address it listens on, with the real port.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr, UcxError> {
        let mut attr = ucx_sys::ucp_listener_attr_t {
            field_mask: u64::from(ucx_sys::UCP_LISTENER_ATTR_FIELD_SOCKADDR),
            ..Default::default()
        };
        // SAFETY: a live listener under its lock; the mask says which field is filled in.
        check("ucp_listener_query", unsafe { ucx_sys::ucp_listener_query(self.raw, &mut attr) })?;
        from_c(&attr.sockaddr)
            .ok_or(UcxError::Status { operation: "ucp_listener_query", status: Status(ucx_sys::UCS_ERR_INVALID_ADDR) })
    }

    pub(super) fn has_request(&self) -> bool {
        !self.state.requests.borrow().is_empty()
    }

    /// The oldest request that nobody has taken.
    pub(super) fn next_request(&self) -> Option<ConnectionRequest> {
        self.state.requests.borrow_mut().pop_front().map(|raw| ConnectionRequest { raw })
    }

    /// Refuses a client, who is told at once.
    pub(super) fn reject(&self, request: ConnectionRequest) {
        // SAFETY: a live listener under its lock, and a request of its own that nobody has used.
        let status = Status(unsafe { ucx_sys::ucp_listener_reject(self.raw, request.raw) });
        if !status.is_ok() {
            log::debug!("ucp_listener_reject: {status}");
        }
    }

    /// Refuses whoever waits and stops listening.
    pub(super) fn destroy(&mut self) {
        while let Some(request) = self.next_request() {
            self.reject(request);
        }
        let raw = std::mem::replace(&mut self.raw, ptr::null_mut());
        if !raw.is_null() {
            // SAFETY: a live listener under its lock, forgotten above.
            unsafe { ucx_sys::ucp_listener_destroy(raw) }
        }
    }
}

/// A client that waits to be accepted or rejected. It must be given back to UCX by one of the two.
#[derive(Debug)]
pub(super) struct ConnectionRequest {
    raw: ucx_sys::ucp_conn_request_h,
}

impl ConnectionRequest {
    /// Where the client is, as far as UCX knows.
    pub(super) fn client_addr(&self) -> Option<SocketAddr> {
        let mut attr = ucx_sys::ucp_conn_request_attr_t {
            field_mask: u64::from(ucx_sys::UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR),
            ..Default::default()
        };
        // SAFETY: a live request; the mask says which field is filled in.
        let status = Status(unsafe { ucx_sys::ucp_conn_request_query(self.raw, &mut attr) });
        status.is_ok().then(|| from_c(&attr.client_address)).flatten()
    }

    pub(super) fn into_raw(self) -> ucx_sys::ucp_conn_request_h {
        self.raw
    }
}
