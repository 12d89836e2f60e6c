//! What UCX added after the version these bindings were made from, and we want where the library has it.
//!
//! UCX appends to its structs and touches only the fields that a mask names, so the longer struct may be handed to any
//! version. But 1.13 passes over mask bits it does not know and still answers `UCS_OK`: ask
//! [`ucp_get_version`](crate::ucp_get_version) before believing such a field.

use core::ffi::{c_char, c_void};

use crate::bindings::{ucp_ep_attr_field, ucp_ep_attr_t};

/// Fills in [`ucp_ep_attr_1_14::transports`]. Since 1.14.
pub const UCP_EP_ATTR_FIELD_TRANSPORTS: ucp_ep_attr_field = 1 << 3;

/// Fills in [`ucp_ep_attr_1_14::user_data`]. Since 1.14.
pub const UCP_EP_ATTR_FIELD_USER_DATA: ucp_ep_attr_field = 1 << 4;

/// A transport that an endpoint uses, and on which device. The names are valid until the endpoint is closed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_transport_entry_t {
    /// Name of the transport, a C string.
    pub transport_name: *const c_char,
    /// Name of the device, a C string.
    pub device_name: *const c_char,
}

/// The caller's array of entries to be filled in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ucp_transports_t {
    /// The array, the caller's.
    pub entries: *mut ucp_transport_entry_t,
    /// In: how many entries there is room for. Out: how many were filled in.
    pub num_entries: u32,
    /// In: `size_of::<ucp_transport_entry_t>()`, by which the library knows our version of it.
    pub entry_size: usize,
}

/// [`ucp_ep_attr_t`] as it is since 1.14; [`ucp_ep_query`](crate::ucp_ep_query) takes a pointer to `base`, cast from
/// one to the whole.
#[repr(C)]
pub struct ucp_ep_attr_1_14 {
    /// The attributes that 1.13 knows, and the mask.
    pub base: ucp_ep_attr_t,
    /// The transports of the endpoint.
    pub transports: ucp_transports_t,
    /// What `ucp_ep_params_t::user_data` was.
    pub user_data: *mut c_void,
}
