//! Stream TensorDicts between processes and machines over UCX.
#![deny(unsafe_code)]

mod data;
#[allow(unsafe_code)]
mod storage;
pub mod wire;

pub use data::{
    DType, DataError, Device, Element, Entry, Item, Jagged, JaggedView, Kind, NonTensor, Path, Shape, Tensor,
    TensorDict, TensorView, TensorViewMut, Value, DIFFERING,
};
pub use storage::{Storage, STORAGE_ALIGNMENT};
pub use wire::Limits;
