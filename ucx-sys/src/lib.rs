//! Raw bindings to libucp.
// C's names, and C's structs, which have nothing to show.
#![allow(non_camel_case_types, non_snake_case, missing_debug_implementations)]

#[allow(
    missing_docs,
    unused_qualifications,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::use_self
)]
#[rustfmt::skip]
mod bindings;
mod inline;
mod later;

pub use bindings::*;
pub use inline::*;
pub use later::*;

/// `ucp_request_param_t::cb`, which has no name in C.
pub use bindings::ucp_request_param_t__bindgen_ty_1 as ucp_request_param_cb;
/// `ucp_request_param_t::recv_info`, which has no name in C.
pub use bindings::ucp_request_param_t__bindgen_ty_2 as ucp_request_param_recv_info;
