//! [`Worker`]: a UCP worker, the object that moves bytes when it is progressed.

use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use super::callback;
use super::context::{loaded_version, Context};
use super::endpoint::with_slot;
use super::error::UcxError;
use super::request::{Buffer, Slot};
use super::status::{check, Status};

/// A tag and a mask that every message matches.
pub(super) const ANY_TAG: (u64, u64) = (0, 0);

/// Used by one thread at a time: it is neither `Send` nor `Sync`, and only the engine's lock says otherwise.
#[derive(Debug)]
pub(crate) struct Worker {
    raw: ucx_sys::ucp_worker_h,
    event_fd: RawFd,
    /// Whether a receive that completes at once describes its message (UCX 1.16); otherwise only the callback does.
    describes_at_once: bool,
    /// Set once the C object is gone.
    destroyed: bool,
    /// Outlives the worker.
    _context: Arc<Context>,
    not_send: PhantomData<*mut ()>,
}

impl Worker {
    pub(crate) fn new(context: Arc<Context>) -> Result<Self, UcxError> {
        let params = ucx_sys::ucp_worker_params_t {
            field_mask: u64::from(ucx_sys::UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: ucx_sys::UCS_THREAD_MODE_SERIALIZED,
            ..Default::default()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a live context, filled parameters, a place for the result.
        let status = Status(unsafe { ucx_sys::ucp_worker_create(context.as_ptr(), &params, &mut raw) });
        match status {
            Status::OK => {}
            Status::NO_DEVICE => return Err(super::context::no_transport(status, context.settings())),
            status => return Err(UcxError::Status { operation: "ucp_worker_create", status }),
        }
        let mut worker = Self {
            raw,
            event_fd: -1,
            describes_at_once: loaded_version() >= (1, 16),
            destroyed: false,
            _context: context,
            not_send: PhantomData,
        };
        worker.check_thread_mode()?;
        // SAFETY: a live worker of a context with the wakeup feature.
        let status = unsafe { ucx_sys::ucp_worker_get_efd(worker.raw, &mut worker.event_fd) };
        check("ucp_worker_get_efd", status)?;
        Ok(worker)
    }

    /// A UCX without thread support grants less than it was asked for, silently.
    fn check_thread_mode(&self) -> Result<(), UcxError> {
        let mut attr = ucx_sys::ucp_worker_attr_t {
            field_mask: u64::from(ucx_sys::UCP_WORKER_ATTR_FIELD_THREAD_MODE),
            ..Default::default()
        };
        // SAFETY: a live worker; the mask says which field is filled in.
        check("ucp_worker_query", unsafe { ucx_sys::ucp_worker_query(self.raw, &mut attr) })?;
        if attr.thread_mode == ucx_sys::UCS_THREAD_MODE_SINGLE {
            return Err(UcxError::ThreadMode);
        }
        Ok(())
    }

    /// Moves what can be moved and runs the callbacks of what that completed. Says whether anything happened.
    pub(super) fn progress(&self) -> bool {
        // SAFETY: a live worker, and the engine's lock keeps other threads out. Callbacks never call progress.
        unsafe { ucx_sys::ucp_worker_progress(self.raw) != 0 }
    }

    /// Makes the event fd readable at the next event. `false`: there are events now, or work that no event announces.
    pub(super) fn arm(&self) -> Result<bool, UcxError> {
        // SAFETY: a live worker.
        match Status(unsafe { ucx_sys::ucp_worker_arm(self.raw) }) {
            Status::OK => Ok(true),
            Status::BUSY => Ok(false),
            status => Err(UcxError::Status { operation: "ucp_worker_arm", status }),
        }
    }

    /// Makes the event fd readable.
    pub(super) fn signal(&self) {
        // SAFETY: a live worker.
        let status = Status(unsafe { ucx_sys::ucp_worker_signal(self.raw) });
        if !status.is_ok() {
            log::warn!("ucp_worker_signal: {status}");
        }
    }

    /// Becomes readable after [`Worker::arm`]; lives as long as the worker.
    pub(super) fn event_fd(&self) -> RawFd {
        self.event_fd
    }

    /// Posts a receive of the next message whose tag equals `tag` under `mask`, into `buffer`. If null comes back
    /// it has completed at once and `info` describes the message; otherwise the callback will.
    ///
    /// # Safety
    /// What `buffer` names stays writable and untouched, and `slot` alive, until the slot is done.
    pub(super) unsafe fn tag_recv(
        &self,
        buffer: Buffer,
        (tag, mask): (u64, u64),
        slot: &Slot,
        info: &mut ucx_sys::ucp_tag_recv_info_t,
    ) -> ucx_sys::ucs_status_ptr_t {
        let mut param = with_slot(slot);
        param.cb.recv = Some(callback::tag_received);
        let (data, len) = buffer.describe(slot, &mut param);
        if self.describes_at_once {
            param.op_attr_mask |= ucx_sys::UCP_OP_ATTR_FIELD_RECV_INFO;
            param.recv_info.tag_info = info;
        } else {
            // SAFETY: a live worker under its lock; `info` is filled in during the call.
            let message = unsafe { ucx_sys::ucp_tag_probe_nb(self.raw, tag, mask, 1, info) };
            if !message.is_null() {
                // SAFETY: the message was removed by the probe just now; the rest by the caller's promise.
                return unsafe { ucx_sys::ucp_tag_msg_recv_nbx(self.raw, data, len, message, &param) };
            }
            param.op_attr_mask |= ucx_sys::UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        }
        // SAFETY: a live worker under its lock; `info` is only used during the call, the rest by the caller's promise.
        unsafe { ucx_sys::ucp_tag_recv_nbx(self.raw, data, len, tag, mask, &param) }
    }

    /// Whether a message has arrived that no receive was posted for.
    pub(super) fn has_unread(&self, (tag, mask): (u64, u64)) -> bool {
        let mut info = ucx_sys::ucp_tag_recv_info_t::default();
        // SAFETY: a live worker under its lock; `info` is filled in during the call. The message stays where it is.
        !unsafe { ucx_sys::ucp_tag_probe_nb(self.raw, tag, mask, 0, &mut info) }.is_null()
    }

    /// Throws away what has arrived and nobody will receive; UCX would warn of each message.
    pub(super) fn discard_unread(&self, (tag, mask): (u64, u64)) {
        let mut info = ucx_sys::ucp_tag_recv_info_t::default();
        loop {
            // SAFETY: a live worker under its lock; `info` is filled in during the call.
            let message = unsafe { ucx_sys::ucp_tag_probe_nb(self.raw, tag, mask, 1, &mut info) };
            if message.is_null() {
                return;
            }
            let param = ucx_sys::ucp_request_param_t::default();
            let nowhere = ptr::NonNull::<u8>::dangling().as_ptr().cast();
            // SAFETY: the message was removed by the probe just now; no byte is written, as there is room for none.
            let request = unsafe { ucx_sys::ucp_tag_msg_recv_nbx(self.raw, nowhere, 0, message, &param) };
            if Status::of_ptr(request) == Status::IN_PROGRESS {
                // SAFETY: UCX frees the request when it completes.
                unsafe { ucx_sys::ucp_request_free(request) };
            }
        }
    }

    /// Cancels a receive. If it had not begun, its callback runs now.
    ///
    /// # Safety
    /// `request` is a receive posted on this worker that has not been freed.
    pub(super) unsafe fn cancel(&self, request: *mut libc::c_void) {
        // SAFETY: a live worker under its lock; the request by the caller's promise.
        unsafe { ucx_sys::ucp_request_cancel(self.raw, request) }
    }

    pub(super) fn as_ptr(&self) -> ucx_sys::ucp_worker_h {
        self.raw
    }

    /// Ends the worker; afterwards UCX touches no buffer and runs no callback of it.
    pub(super) fn destroy(&mut self) {
        if !std::mem::replace(&mut self.destroyed, true) && !super::fork::in_child() {
            // SAFETY: live until here, and never used again.
            unsafe { ucx_sys::ucp_worker_destroy(self.raw) }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.destroy();
    }
}
