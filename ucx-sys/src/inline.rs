//! Twins of what the headers define as macros and inline functions, for which there is no symbol to link.

use core::ffi::c_void;

use crate::bindings::{
    ucp_config_t, ucp_context_h, ucp_datatype_t, ucp_init_version, ucp_params_t, ucs_status_ptr_t, ucs_status_t,
    UCP_API_MAJOR, UCP_API_MINOR, UCP_DATATYPE_CONTIG, UCP_DATATYPE_IOV, UCP_DATATYPE_SHIFT, UCP_VERSION_MAJOR_SHIFT,
    UCP_VERSION_MINOR_SHIFT, UCS_ERR_FIRST_ENDPOINT_FAILURE, UCS_ERR_FIRST_LINK_FAILURE, UCS_ERR_LAST,
    UCS_ERR_LAST_ENDPOINT_FAILURE, UCS_ERR_LAST_LINK_FAILURE, UCS_INPROGRESS,
};

/// The version of the API these bindings were made from; [`ucp_get_version`](crate::ucp_get_version) tells that of
/// the library that was loaded.
pub const UCP_API_VERSION: u32 = UCP_VERSION(UCP_API_MAJOR, UCP_API_MINOR);

/// `UCP_VERSION`: one number that orders as versions do.
#[inline]
pub const fn UCP_VERSION(major: u32, minor: u32) -> u32 {
    (major << UCP_VERSION_MAJOR_SHIFT) | (minor << UCP_VERSION_MINOR_SHIFT)
}

/// `ucp_init`: makes a context for users of the API version of these bindings.
///
/// # Safety
///
/// * `params` points to parameters whose fields named by `field_mask` are filled in.
/// * `config` is null or comes from [`ucp_config_read`](crate::ucp_config_read) and has not been released.
/// * `context` may be written to.
#[inline]
pub unsafe fn ucp_init(
    params: *const ucp_params_t,
    config: *const ucp_config_t,
    context: *mut ucp_context_h,
) -> ucs_status_t {
    // SAFETY: the caller's promises are those that ucp_init_version asks for; the version is that of `ucp_params_t`.
    unsafe { ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context) }
}

/// `ucp_dt_make_contig`: the data type of an array of elements of `size` bytes.
#[inline]
pub const fn ucp_dt_make_contig(size: usize) -> ucp_datatype_t {
    ((size as ucp_datatype_t) << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG as ucp_datatype_t
}

/// `ucp_dt_make_iov`: the data type of an array of [`ucp_dt_iov_t`](crate::ucp_dt_iov_t).
#[inline]
pub const fn ucp_dt_make_iov() -> ucp_datatype_t {
    UCP_DATATYPE_IOV as ucp_datatype_t
}

/// `UCS_BIT`: a number with only bit `i` set.
#[inline]
pub const fn UCS_BIT(i: u32) -> u64 {
    1 << i
}

/// `UCS_MASK`: a number with the `i` lowest bits set, `i` below 64.
#[inline]
pub const fn UCS_MASK(i: u32) -> u64 {
    UCS_BIT(i) - 1
}

/// `UCS_STATUS_IS_ERR`: whether a status tells of a failure, so neither of success nor of an operation under way.
#[inline]
pub const fn UCS_STATUS_IS_ERR(status: ucs_status_t) -> bool {
    status < 0
}

/// `UCS_IS_LINK_ERROR`: whether the failure lies in a link, which may be replaced.
#[inline]
pub const fn UCS_IS_LINK_ERROR(status: ucs_status_t) -> bool {
    status <= UCS_ERR_FIRST_LINK_FAILURE && status >= UCS_ERR_LAST_LINK_FAILURE
}

/// `UCS_IS_ENDPOINT_ERROR`: whether the failure lies in an endpoint, which is lost.
#[inline]
pub const fn UCS_IS_ENDPOINT_ERROR(status: ucs_status_t) -> bool {
    status <= UCS_ERR_FIRST_ENDPOINT_FAILURE && status >= UCS_ERR_LAST_ENDPOINT_FAILURE
}

/// `UCS_STATUS_PTR`: a status in the place of a request.
#[inline]
pub const fn UCS_STATUS_PTR(status: ucs_status_t) -> ucs_status_ptr_t {
    core::ptr::without_provenance_mut::<c_void>(status as isize as usize)
}

/// `UCS_PTR_IS_ERR`: whether an operation failed at once and `ptr` is the failure's status.
#[inline]
pub fn UCS_PTR_IS_ERR(ptr: ucs_status_ptr_t) -> bool {
    ptr.addr() >= LAST_ERR_ADDR
}

/// `UCS_PTR_IS_PTR`: whether an operation is under way and `ptr` is its request.
#[inline]
pub fn UCS_PTR_IS_PTR(ptr: ucs_status_ptr_t) -> bool {
    // Wraps for null, which is UCS_OK, as it does in C.
    ptr.addr().wrapping_sub(1) < LAST_ERR_ADDR - 1
}

/// `UCS_PTR_RAW_STATUS`: the status that stands in the place of a request. Of a true request only noise.
#[inline]
pub fn UCS_PTR_RAW_STATUS(ptr: ucs_status_ptr_t) -> ucs_status_t {
    ptr.addr() as ucs_status_t
}

/// `UCS_PTR_STATUS`: the status of an operation as its start returned it, `UCS_INPROGRESS` of a request.
#[inline]
pub fn UCS_PTR_STATUS(ptr: ucs_status_ptr_t) -> ucs_status_t {
    if UCS_PTR_IS_PTR(ptr) {
        UCS_INPROGRESS
    } else {
        UCS_PTR_RAW_STATUS(ptr)
    }
}

/// The lowest address that is a status and no request: the statuses are the last hundred addresses.
const LAST_ERR_ADDR: usize = UCS_ERR_LAST as isize as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::{UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_NO_MESSAGE, UCS_OK};

    /// Every status C can hand us in a pointer, named or not.
    fn errors() -> impl Iterator<Item = ucs_status_t> {
        UCS_ERR_LAST..0
    }

    #[test]
    fn success_is_null_and_neither_error_nor_request() {
        let ptr = UCS_STATUS_PTR(UCS_OK);
        assert!(ptr.is_null());
        assert!(!UCS_PTR_IS_ERR(ptr));
        assert!(!UCS_PTR_IS_PTR(ptr));
        assert_eq!(UCS_PTR_STATUS(ptr), UCS_OK);
    }

    #[test]
    fn every_error_survives_the_pointer() {
        for status in errors() {
            let ptr = UCS_STATUS_PTR(status);
            assert!(UCS_PTR_IS_ERR(ptr), "{status}");
            assert!(!UCS_PTR_IS_PTR(ptr), "{status}");
            assert_eq!(UCS_PTR_STATUS(ptr), status);
            assert_eq!(UCS_PTR_RAW_STATUS(ptr), status);
        }
    }

    #[test]
    fn a_request_is_in_progress() {
        let mut request = 0u64;
        for ptr in [
            (&raw mut request).cast::<c_void>(),
            core::ptr::without_provenance_mut(1),
            core::ptr::without_provenance_mut(LAST_ERR_ADDR - 1),
        ] {
            assert!(UCS_PTR_IS_PTR(ptr), "{ptr:?}");
            assert!(!UCS_PTR_IS_ERR(ptr), "{ptr:?}");
            assert_eq!(UCS_PTR_STATUS(ptr), UCS_INPROGRESS);
        }
    }

    #[test]
    fn errors_by_where_they_lie() {
        assert!(!UCS_STATUS_IS_ERR(UCS_OK));
        assert!(!UCS_STATUS_IS_ERR(UCS_INPROGRESS));
        assert!(errors().all(UCS_STATUS_IS_ERR));
        assert!(!UCS_IS_LINK_ERROR(UCS_ERR_CONNECTION_RESET));
        assert!(UCS_IS_LINK_ERROR(UCS_ERR_FIRST_LINK_FAILURE));
        assert!(UCS_IS_LINK_ERROR(UCS_ERR_LAST_LINK_FAILURE));
        assert!(!UCS_IS_LINK_ERROR(UCS_ERR_FIRST_ENDPOINT_FAILURE));
        assert!(UCS_IS_ENDPOINT_ERROR(UCS_ERR_ENDPOINT_TIMEOUT));
        assert!(!UCS_IS_ENDPOINT_ERROR(UCS_ERR_NO_MESSAGE));
        assert!(errors().all(|status| !(UCS_IS_LINK_ERROR(status) && UCS_IS_ENDPOINT_ERROR(status))));
    }

    #[test]
    fn data_types() {
        assert_eq!(ucp_dt_make_contig(1), 0b1000);
        assert_eq!(ucp_dt_make_contig(8), 0b100_0000);
        assert_eq!(ucp_dt_make_iov(), 2);
    }

    #[test]
    fn bits_and_versions() {
        assert_eq!(UCS_BIT(0), 1);
        assert_eq!(UCS_BIT(63), 1 << 63);
        assert_eq!(UCS_MASK(0), 0);
        assert_eq!(UCS_MASK(63), u64::MAX >> 1);
        assert_eq!(UCP_API_VERSION, 0x010d_0000);
        assert!(UCP_VERSION(1, 9) < UCP_VERSION(1, 13));
    }
}
