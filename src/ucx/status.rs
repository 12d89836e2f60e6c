//! [`Status`]: `ucs_status_t` as a number with a name, and the one funnel from C results to `Result`.

use std::ffi::CStr;
use std::fmt;

use super::error::UcxError;

/// A `ucs_status_t`. Unknown values survive and print as numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) ucx_sys::ucs_status_t);

impl Status {
    pub(crate) const OK: Self = Self(ucx_sys::UCS_OK);
    pub(crate) const IN_PROGRESS: Self = Self(ucx_sys::UCS_INPROGRESS);
    pub(crate) const BUSY: Self = Self(ucx_sys::UCS_ERR_BUSY);
    pub(crate) const CANCELED: Self = Self(ucx_sys::UCS_ERR_CANCELED);
    pub(crate) const TRUNCATED: Self = Self(ucx_sys::UCS_ERR_MESSAGE_TRUNCATED);
    pub(crate) const REJECTED: Self = Self(ucx_sys::UCS_ERR_REJECTED);
    pub(crate) const NOT_CONNECTED: Self = Self(ucx_sys::UCS_ERR_NOT_CONNECTED);
    pub(crate) const NO_DEVICE: Self = Self(ucx_sys::UCS_ERR_NO_DEVICE);

    /// Whether it says that the other end is not there (any more).
    pub(crate) fn is_disconnect(self) -> bool {
        matches!(
            self.0,
            ucx_sys::UCS_ERR_CONNECTION_RESET
                | ucx_sys::UCS_ERR_NOT_CONNECTED
                | ucx_sys::UCS_ERR_UNREACHABLE
                | ucx_sys::UCS_ERR_ENDPOINT_TIMEOUT
        ) || ucx_sys::UCS_IS_ENDPOINT_ERROR(self.0)
    }

    pub(crate) fn is_ok(self) -> bool {
        self == Self::OK
    }

    /// The status that UCX hides in a `ucs_status_ptr_t`; a real pointer is [`Status::IN_PROGRESS`].
    pub(crate) fn of_ptr(ptr: ucx_sys::ucs_status_ptr_t) -> Self {
        Self(ucx_sys::UCS_PTR_STATUS(ptr))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: takes any number and returns a static string.
        let text = unsafe { ucx_sys::ucs_status_string(self.0) };
        // SAFETY: a NUL-terminated static string.
        let text = unsafe { CStr::from_ptr(text) };
        write!(f, "{}, UCX status {}", text.to_string_lossy(), self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

/// Turns the status of `operation` into a `Result`.
pub(crate) fn check(operation: &'static str, status: ucx_sys::ucs_status_t) -> Result<(), UcxError> {
    match Status(status) {
        Status::OK => Ok(()),
        status => Err(UcxError::Status { operation, status }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_statuses_survive_as_numbers() {
        assert!(Status(-99).to_string().ends_with("UCX status -99"));
        assert!(Status::CANCELED.to_string().contains("cancel"));
        assert!(check("test", Status::REJECTED.0).is_err());
    }
}
