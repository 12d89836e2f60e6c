//! How TensorDicts become bytes: the wire format of Python's `tensordict`, without any transport.
//!
//! A [`SendSession`] says which messages carry a TensorDict, a [`RecvSession`] says which lengths to expect and turns
//! what arrives into TensorDicts. Neither does any I/O, so they work over whatever carries messages of known length.
//!
//! # The formats
//!
//! Lengths are `u64`, little-endian.
//!
//! | [`Format`] | messages, in order |
//! | --- | --- |
//! | `Consolidated` | a flag byte: `0x00` new schema, `0x01` the schema sent before; if new, the length of the metadata, and the metadata; then the storage, one message even if empty |
//! | `Stateless` | the length of the metadata, the metadata, the storage |
//! | `LeafByLeaf` | the length of the header, the header, then each tensor's bytes |

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
