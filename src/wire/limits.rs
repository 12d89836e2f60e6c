//! [`Limits`]: what a peer may make us allocate.

/// Caps on what a received message may ask for, checked before anything is allocated.
///
/// A peer that stays below them can make us hold at most the bytes that it really sends, times a small factor; a
/// peer that does not gets its message refused.
///
/// ```
/// use tensordict_pipe::Limits;
///
/// let limits = Limits::default().max_storage_bytes(1 << 30); // no message beyond 1 GiB
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    pub(crate) metadata_bytes: usize,
    pub(crate) storage_bytes: usize,
    pub(crate) depth: usize,
    pub(crate) leaves: usize,
}

impl Limits {
    /// The longest metadata (or leaf-by-leaf header), in bytes of JSON.
    ///
    /// Metadata names every tensor, so it grows with their number: a model of 1.29 million tensors needs 126 MB.
    /// Default: 256 MiB, twice that.
    ///
    /// ```
    /// use tensordict_pipe::Limits;
    ///
    /// let limits = Limits::default().max_metadata_bytes(1 << 20).max_depth(16).max_leaves(10_000);
    /// assert_ne!(limits, Limits::default());
    /// ```
    #[must_use]
    pub fn max_metadata_bytes(mut self, bytes: usize) -> Self {
        self.metadata_bytes = bytes;
        self
    }

    /// The longest storage (or sum of the tensors of a leaf-by-leaf message), in bytes.
    ///
    /// The buffer is allocated when the metadata arrives, before its bytes do. Set it to what your machine can spare.
    /// Default: 64 GiB, or the address space where that is smaller.
    #[must_use]
    pub fn max_storage_bytes(mut self, bytes: usize) -> Self {
        self.storage_bytes = bytes;
        self
    }

    /// How many JSON objects and lists may stand inside one another; a nested TensorDict takes one, the deepest tensor
    /// three more.
    ///
    /// Reading recurses, so this bounds the stack. Default: 128, which is also the most: a thread of 2 MiB holds it, and
    /// our senders refuse more.
    #[must_use]
    pub fn max_depth(mut self, levels: usize) -> Self {
        self.depth = levels.min(MAX_DEPTH);
        self
    }

    /// How many entries a message may have: tensors, nested TensorDicts, and non-tensor values with every element
    /// inside them.
    ///
    /// An entry takes more memory than its text, so this bounds the factor between the two. Default: 4,194,304, three
    /// times the largest message we have heard of.
    #[must_use]
    pub fn max_leaves(mut self, entries: usize) -> Self {
        self.leaves = entries;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            metadata_bytes: 256 << 20,
            storage_bytes: usize::try_from(64_u64 << 30).unwrap_or(isize::MAX as usize / 2),
            depth: MAX_DEPTH,
            leaves: 4 << 20,
        }
    }
}

/// The deepest nesting that any setting allows.
pub(super) const MAX_DEPTH: usize = 128;
