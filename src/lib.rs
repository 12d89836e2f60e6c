//! Stream TensorDicts between processes and machines over UCX.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod storage;

pub use storage::{Storage, STORAGE_ALIGNMENT};
