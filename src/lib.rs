//! Stream TensorDicts between processes and machines over UCX.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod storage;

#[cfg(feature = "ucx")]
mod link;
#[cfg(feature = "ucx")]
#[allow(unsafe_code)]
mod ucx;

pub use storage::{Storage, STORAGE_ALIGNMENT};
