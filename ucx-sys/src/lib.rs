//! Raw bindings to libucp, the protocol layer of [UCX](https://openucx.org): C's names, C's types, no opinions.
//! Written for `tensordict-pipe`, whose module `ucx` is the place to look for something safe to call.
//!
//! * **Bindings** are made from the headers of UCX 1.13, the oldest version supported, by `regen.sh`, and are checked
//!   in: a build needs neither headers nor libclang. `inline` adds what is a macro or an inline function in C
//!   ([`ucp_init`], `UCS_PTR_*`), `later` the few things that only later versions have.
//! * **Enums** are integers with constants, since C may hand over a number that has no name yet. [`ucs_status_t`] is one
//!   signed byte.
//! * **Parameters** are structs with a `field_mask` that says which fields are filled in; `Default` is all zeros, so
//!   `ucp_params_t { field_mask, features, ..Default::default() }` is complete.
//! * **Versions.** Every later libucp has the same soname and takes 1.13's structs, so one program runs on all of them:
//!   [`UCP_API_VERSION`] is what it was compiled for, [`ucp_get_version`] tells what was loaded.
//!   `tests/abi.rs` compares each size, offset and constant with the headers that are installed.
//!
//! # Finding the library
//!
//! The build script asks the environment's `UCX_DIR`, a folder with `lib/libucp.so` (an installation's prefix, or
//! the folder `libucx` of the pip wheel of that name), and otherwise pkg-config. It does not build UCX. With `DOCS_RS`
//! set it does nothing at all, so that the documentation needs no UCX.
//!
//! `UCX_DIR` is for building. Unset it to run, or UCX will warn of a variable it does not know.

// C's names, and C's structs, which have nothing to show.
#![allow(non_camel_case_types, non_snake_case, missing_debug_implementations)]

#[allow(
    missing_docs,
    unused_qualifications,
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    clippy::use_self
)]
#[rustfmt::skip]
mod bindings;
mod inline;
mod later;

pub use bindings::*;
pub use inline::*;
pub use later::*;

/// The type of `ucp_request_param_t::cb`, which has no name in C.
pub use bindings::ucp_request_param_t__bindgen_ty_1 as ucp_request_param_cb;
/// The type of `ucp_request_param_t::recv_info`, which has no name in C.
pub use bindings::ucp_request_param_t__bindgen_ty_2 as ucp_request_param_recv_info;
