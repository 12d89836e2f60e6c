//! UCX: the only module that names `ucx_sys`. It knows bytes, not tensors.
//!
//! # Ownership
//! `Context` <- `Worker` <- (`Endpoint` | `Listener`) <- `Requests`. A worker and what belongs to it live together in
//! an [`Engine`](progress::Engine), behind one lock; its destructor goes upwards: cancel the requests, close the
//! endpoint, destroy the worker, free the memory that C had addresses of, let the context go.
//!
//! # Why this is safe
//! * *Threads*: a worker is used by one thread at a time. Only code that holds the engine's lock has a `&Worker`.
//! * *Memory*: what C reads or writes belongs to a [`Slot`](request::Slot), which lives until its callback has run or
//!   its worker is destroyed. Callers' bytes lie in `Storage` blocks, of which the slot keeps a handle of its own.
//! * *Callbacks* set cells and run only inside calls that we make under the lock; they never call UCX.
//! * *Forks*: the child of a fork never calls UCX (`fork.rs`).

mod address;
mod callback;
mod config;
mod context;
mod endpoint;
mod error;
mod flusher;
mod fork;
mod link;
mod listener;
mod pace;
mod progress;
mod refuser;
mod request;
mod status;
mod worker;

pub(crate) use address::{check_usable, resolve};
pub(crate) use config::Settings;
pub(crate) use context::loaded_version_text;
pub(crate) use error::UcxError;
pub(crate) use link::{Connecting, EstablishError, UcxLink, UcxListener};
