//! The kinds of messages between two pipes of ours.
//!
//! Towards Python every message is [`Kind::PLAIN`] and a flag byte says what follows. Between two of ours the kind,
//! which travels in the tag, says it: a message under the schema in force is one UCX message, not two, and ends can
//! say goodbye.

use crate::link::Kind;
use crate::wire::Format;

/// The storage of a TensorDict whose schema is in force.
pub(super) const SAME_SCHEMA: Kind = Kind(1);
/// The length of the metadata (u64, little-endian); metadata and storage follow.
pub(super) const NEW_SCHEMA: Kind = Kind(2);
/// The length of a leaf-by-leaf header (u64, little-endian); header and leaves follow.
pub(super) const LEAF_BY_LEAF: Kind = Kind(3);
/// The length of the metadata (u64, little-endian) of a message by itself; metadata and storage follow.
pub(super) const STATELESS: Kind = Kind(8);
/// Metadata or a leaf-by-leaf header.
pub(super) const HEADER: Kind = Kind(4);
/// A storage or a leaf after its header.
pub(super) const BODY: Kind = Kind(5);
/// The sender closes: the numbers of TensorDicts it has sent and received (u64, little-endian). Nothing follows.
pub(super) const GOODBYE: Kind = Kind(6);

/// The sender will send nothing more but still receives: the number of TensorDicts it has sent (u64, little-endian).
pub(super) const FINISHED: Kind = Kind(7);

/// On the control lane, the answer to [`GOODBYE`] and [`FINISHED`]: the number of TensorDicts received (u64, little-endian).
pub(super) const RECEIVED: Kind = Kind(1);
/// On the control lane: the sender closes and will receive nothing more; the number of TensorDicts it has received.
pub(super) const LEAVING: Kind = Kind(2);

/// What a message with a header begins with in this format.
pub(super) fn opening(format: Format) -> Kind {
    match format {
        Format::Consolidated => NEW_SCHEMA,
        Format::Stateless => STATELESS,
        Format::LeafByLeaf => LEAF_BY_LEAF,
    }
}

/// The names of kinds, for errors.
pub(super) fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::PLAIN => "a message without a kind",
        SAME_SCHEMA => "a message of the schema in force",
        NEW_SCHEMA => "a new schema",
        LEAF_BY_LEAF => "a leaf-by-leaf message",
        STATELESS => "a message of `send_tensordict`",
        HEADER => "a header",
        BODY => "a body",
        GOODBYE => "a goodbye",
        FINISHED => "the end of one direction",
        _ => "a message of an unknown kind",
    }
}
