//! [`Format`] and the bytes around the metadata.

/// The form in which TensorDicts travel. Both ends must use the same one; it is not negotiated.
///
/// ```
/// use tensordict_pipe::wire::{Format, SendSession, NEW_SCHEMA};
/// use tensordict_pipe::{tensordict, EncodeError};
///
/// let td = tensordict!([]; "x" => vec![1_u8], "y" => vec![2_u8])?;
/// for (format, flag, bodies) in
///     [(Format::Consolidated, Some(NEW_SCHEMA), 1), (Format::Stateless, None, 1), (Format::LeafByLeaf, None, 2)]
/// {
///     let mut session = SendSession::new(format);
///     let message = session.encode(&td)?;
///     assert_eq!((message.flag(), message.bodies().len()), (flag, bodies));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// The flag before a message whose metadata follow; see [`Format`].
pub const NEW_SCHEMA: u8 = 0x00;

/// The flag before a message with the metadata sent before.
///
/// ```
/// use tensordict_pipe::wire::{Format, SendSession, NEW_SCHEMA, SAME_SCHEMA};
/// use tensordict_pipe::TensorDict;
///
/// let mut sender = SendSession::new(Format::Consolidated);
/// assert_eq!(sender.encode(&TensorDict::new([3]))?.flag(), Some(NEW_SCHEMA));
/// sender.commit();
/// assert_eq!(sender.encode(&TensorDict::new([3]))?.flag(), Some(SAME_SCHEMA));
/// # Ok::<(), tensordict_pipe::EncodeError>(())
/// ```
pub const SAME_SCHEMA: u8 = 0x01;
