//! How TensorDicts become bytes: the wire format of Python's `tensordict` (0.15), without any transport.
//!
//! A [`SendSession`] says which messages carry a TensorDict, a [`RecvSession`] says which lengths to expect and turns
//! what arrives into TensorDicts. Neither does any I/O, so they work over whatever carries messages of known length; a
//! pipe is these two on a UCX connection.
//!
//! # The formats
//!
//! | [`Format`] | messages, in order |
//! | --- | --- |
//! | `Consolidated` | a flag byte; after [`NEW_SCHEMA`] the length of the metadata and the metadata, after [`SAME_SCHEMA`] neither; the storage |
//! | `Stateless` | the length of the metadata; the metadata; the storage |
//! | `LeafByLeaf` | the length of the header; the header; each tensor's bytes |
//!
//! Lengths are `u64`, little-endian. Metadata and headers are JSON as Python's `json.dumps` writes it, to the byte.
//! Storages and tensors are sent even when they are empty.
//!
//! # What is promised
//!
//! * What is sent arrives, also in Python: whatever its receiver could not read, or would lose, is an [`EncodeError`]
//!   before the first byte. Not carried is what the leaf-by-leaf format has no place for: dimension names, lock flags,
//!   device labels, and batch sizes of nested TensorDicts and values.
//! * What is received is checked against every rule before anything is allocated, so that no bytes can cause a panic,
//!   an allocation beyond the [`Limits`], or a TensorDict that contradicts itself.
//! * Two entries of one name are an error. A dict inside a non-tensor value may repeat a key, as in Python: all are kept,
//!   and the last counts.

mod error;
mod frame;
mod json;
mod leaves;
mod limits;
mod metadata;
mod pool;
mod recv;
mod schema;
mod send;

pub use error::{BrokenRule, DecodeError, EncodeError, KeyPath};
pub use frame::{Format, NEW_SCHEMA, SAME_SCHEMA};
pub use limits::Limits;
pub use recv::RecvSession;
pub use send::{Body, Outgoing, SendSession};
