//! Stream TensorDicts between processes and machines over UCX, from plain threads.
//!
//! A TensorDict is an ordered, nested map of named tensors with a common batch size, as PyTorch's `tensordict` has it.
//! A [`Pipe`] hands TensorDicts to another process at the speed of the hardware: over shared memory on one host, over
//! RDMA or TCP between hosts. The other process may be Python: a pipe speaks the wire format of `tensordict._ucxx` to
//! the letter. There is no async runtime anywhere; calls block, with deadlines.
//!
#![cfg_attr(feature = "ucx", doc = "```no_run")]
#![cfg_attr(not(feature = "ucx"), doc = "```ignore")]
//! use tensordict_pipe::{Pipe, Tensor, TensorDict};
//!
//! // one process
//! let mut pipe = Pipe::connect("node-b", 13337)?;
//! let mut td = TensorDict::new([64]);
//! td.insert("obs", Tensor::from_slice(&vec![0.5_f32; 64 * 84], [64, 84])?)?;
//! for _ in 0..10 {
//!     pipe.send(&td)?;
//! }
//! pipe.close()?;
//!
//! // the other, on host "node-b"
//! let mut pipe = Pipe::listen(13337)?;
//! for td in pipe.iter() {
//!     println!("{}", td.get("obs")?.as_slice::<f32>()?[0]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Concepts
//!
//! **Connection.** [`Pipe::connect`] and [`Pipe::listen`] make one pipe of two processes, [`Server`] makes pipes with
//! many clients. `connect` tries until its deadline, so either side may start first. [`PipeOptions`] has every choice
//! with its default. Both directions of a pipe work at once; [`Pipe::split`] gives them to two threads.
//!
//! **Schema.** The first message carries the structure (names, shapes, dtypes, ...), and so does each message whose
//! structure differs from the one before. All others carry the bytes alone. A [consolidated](TensorDict::consolidate)
//! TensorDict is sent from where it lies; the tensors of another are copied one by one into the transport's buffers.
//!
//! **Receiving in place.** The pipe receives into the buffer of an earlier message once nobody holds it any more, and
//! into a spare one otherwise. So a loop allocates nothing after its first messages, and a TensorDict that is kept
//! never changes: the `clone()` that the Python documentation asks for is not needed. [`Pipe::recv_into`] receives
//! into a TensorDict of the caller's.
//!
//! **Closing.** [`Pipe::close`] waits until the peer has received everything, and says so if it has not. Dropping a
//! pipe does the same and keeps quiet. A peer that closes is [`Error::Closed`], one that vanishes is not.
//!
//! **Errors.** After an error that [is final](Error::is_final) every later call returns the same one. Refused values
//! ([`EncodeError`]) and expired receives leave the pipe usable. What comes from the peer is checked before anything is
//! allocated; [`Limits`] says how much it may ask for. There is no authentication: use trusted networks.
//!
//! **Threads.** Who waits makes the progress: a call that blocks spins for a moment
//! ([`PipeOptions::spin`]), then sleeps. An idle pipe uses no CPU time, and does not take in messages that nobody asked
//! for: a slow receiver holds its sender up. After a `fork`, the child's calls return [`Error::Forked`].
//!
//! **Memory.** Beside the buffers of its data an idle pipe over shared memory takes about 0.9 MiB (`tests/memory.rs`
//! measures it).
//!
//! # Features
//!
//! * `ucx` (default): the pipe. Without it the crate is the data model and the [wire format](wire), needs no C library,
//!   and works over any transport of yours.
//! * `num-complex`: typed views of complex tensors.
//! * `ndarray`, `candle`, `safetensors`: conversions from and to the types of these crates, see [`interop`]. A trait
//!   there takes in the tensors of any other library.
//!
//! [`constructs`] lists what of Python's tensordict travels, construct by construct.
#![deny(unsafe_code)]

#[doc = include_str!("constructs.md")]
pub mod constructs {}
mod data;
pub mod interop;
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
pub mod python;
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
