//! [`TensorDict`]: a batch of named tensors.

use indexmap::IndexMap;
use std::sync::Arc;

use super::node::{Body, Dict, Node};
use super::shape::Shape;
use crate::storage::Storage;

/// An ordered map from names to tensors, nested TensorDicts and other values, with a common batch size.
#[derive(Clone)]
pub struct TensorDict {
    pub(super) root: Arc<Node>,
    pub(super) bytes: Bytes,
}

/// Where the tensors of a TensorDict are.
#[derive(Clone)]
pub(super) enum Bytes {
    /// Each has its own.
    Loose,
    /// All in this storage, which begins with them.
    Packed(Storage),
    /// All somewhere in this storage: a nested dict of a packed one.
    Part(Storage),
}

impl TensorDict {
    /// An empty TensorDict.
    #[must_use]
    pub fn new(batch_size: impl Into<Shape>) -> Self {
        let batch_size = batch_size.into();
        let names = vec![None; batch_size.len()];
        let dict = Dict { batch_size, names, device: None, entries: IndexMap::new() };
        Self::from_root(Node::new(false, Body::Dict(dict)))
    }

    pub(super) fn from_root(root: Node) -> Self {
        Self { root: Arc::new(root), bytes: Bytes::Loose }
    }

    /// A TensorDict of a packed tree (see [`Node::check_packed`]) and at least the bytes it takes. Allocates nothing.
    pub(crate) fn from_packed(root: Arc<Node>, storage: Storage) -> Self {
        Self { root, bytes: Bytes::Packed(storage) }
    }

    /// A TensorDict of a tree whose tensors own their storages.
    pub(crate) fn from_loose(root: Arc<Node>) -> Self {
        Self { root, bytes: Bytes::Loose }
    }

    /// The structure.
    pub(crate) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The storage, if it begins with exactly this TensorDict in packed layout. It may have more bytes.
    pub(crate) fn packed_storage(&self) -> Option<&Storage> {
        match &self.bytes {
            Bytes::Packed(storage) => Some(storage),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    /// The storage, taken out if the TensorDict is packed; for the next message to be received into.
    pub(crate) fn into_packed_storage(self) -> Option<Storage> {
        match self.bytes {
            Bytes::Packed(storage) => Some(storage),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    /// What leaves without a storage of their own refer to.
    pub(crate) fn shared_storage(&self) -> Option<&Storage> {
        match &self.bytes {
            Bytes::Packed(storage) | Bytes::Part(storage) => Some(storage),
            Bytes::Loose => None,
        }
    }

    /// Calls `visit` with the bytes of every tensor, in the order of the packed layout.
    pub(crate) fn for_each_leaf<'a>(&'a self, mut visit: impl FnMut(&'a [u8])) {
        let storage = self.shared_storage();
        self.root.for_each_leaf(&mut |leaf| visit(leaf.bytes(storage)));
    }

    /// Copies the tensors into `out`, which has `root().packed_len()` bytes, in Python's packed layout.
    pub(crate) fn pack_into(&self, out: &mut [u8]) {
        self.root.pack_into(self.shared_storage(), out);
    }
}
