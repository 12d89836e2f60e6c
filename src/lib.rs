//! Stream TensorDicts between processes and machines over UCX.
#![deny(unsafe_code)]

mod data;
#[allow(unsafe_code)]
mod storage;
pub mod wire;

#[cfg(feature = "ucx")]
mod error;
#[cfg(feature = "ucx")]
mod link;
#[cfg(feature = "ucx")]
mod options;
#[cfg(feature = "ucx")]
mod pipe;
#[cfg(feature = "ucx")]
mod server;
#[cfg(feature = "ucx")]
#[allow(unsafe_code)]
mod ucx;

pub use data::{
    DType, DataError, Device, Element, Entry, Item, Jagged, JaggedView, Kind, NonTensor, Path, Shape, Tensor,
    TensorDict, TensorView, TensorViewMut, Value, DIFFERING,
};
pub use storage::{Storage, STORAGE_ALIGNMENT};
pub use wire::{DecodeError, EncodeError, Limits};

#[cfg(feature = "ucx")]
pub use {
    error::{Error, Peer, Phase, Result},
    options::PipeOptions,
    pipe::{
        recv_tensordict, recv_tensordict_into, send_tensordict, Handle, Info, Iter, Listening, Pipe, PipeReceiver,
        PipeSender, Placed, ReadAhead, Results, Traffic,
    },
    server::Server,
};

#[cfg(all(doctest, feature = "ucx"))]
#[doc = include_str!("../README.md")]
struct Readme;
