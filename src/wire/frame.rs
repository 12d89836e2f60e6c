//! [`Format`] and the bytes around the metadata.

/// The form in which TensorDicts travel. Both ends must use the same one; it is not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// All tensors in one storage, their metadata only when they change. What a pipe uses by default.
    Consolidated,
    /// All tensors in one storage with their metadata, each message by itself. What Python's `send_tensordict` uses.
    Stateless,
    /// Every tensor by itself, after a header. Carries every dtype, but neither stacks of TensorDicts nor jagged tensors.
    LeafByLeaf,
}

/// The flag before a message whose metadata follow.
pub const NEW_SCHEMA: u8 = 0x00;

/// The flag before a message with the metadata sent before.
pub const SAME_SCHEMA: u8 = 0x01;
