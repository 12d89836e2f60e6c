//! [`RecvSession`]: from messages to TensorDicts.

use std::fmt;
use std::sync::Arc;

use super::error::DecodeError;
use super::frame::{Format, NEW_SCHEMA, SAME_SCHEMA};
use super::leaves::{self, Header};
use super::metadata;
use super::pool::Pool;
use super::schema::{same_layout, Schema};
use super::Limits;
use crate::data::{Device, Node, TensorDict};
use crate::storage::{Storage, RECEIVABLE};

/// The receiver's side of a stream: knows the lengths of what comes next, and keeps the buffers.
///
/// In the steady state, when one message follows another of the same schema, it neither reads JSON nor allocates.
///
/// After an error that is not [recoverable](DecodeError::is_recoverable) the stream cannot be understood any more.
///
/// ```
/// use tensordict_pipe::wire::{Format, RecvSession, SendSession};
/// use tensordict_pipe::{tensordict, Limits};
///
/// let td = tensordict!([]; "x" => vec![1_u8, 2, 3])?;
/// let mut sender = SendSession::new(Format::Consolidated);
/// let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
/// for _ in 0..2 {
///     let message = sender.encode(&td)?;
///     // Over any transport that says how long a message is:
///     if receiver.accept_flag(message.flag().expect("in this format"))? {
///         receiver.accept_header(message.header().expect("after that flag").as_bytes())?;
///     }
///     let mut storage = receiver.buffer();
///     let body = message.bodies()[0].bytes();
///     storage.make_mut()[..body.len()].copy_from_slice(body);
///     assert_eq!(receiver.finish(storage)?, td);
///     sender.commit();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RecvSession {
    format: Format,
    limits: Limits,
    /// The schema in force; leaf by leaf, that of the header read last.
    header: Option<Header>,
    /// Leaf by leaf: the text of the header read last, since the next one is usually the same.
    header_text: Vec<u8>,
    pool: Pool,
    /// What stands for a TensorDict while its storage is received into.
    vacant: TensorDict,
}

impl RecvSession {
    /// A session in which nothing has been received.
    #[must_use]
    pub fn new(format: Format, limits: Limits) -> Self {
        let vacant = TensorDict::new([]);
        Self { format, limits, header: None, header_text: Vec::new(), pool: Pool::default(), vacant }
    }

    /// Whether metadata follow the flag.
    ///
    /// # Errors
    /// - [`DecodeError::Flag`]: no such flag.
    /// - [`DecodeError::NoSchema`]: it refers to metadata that were never sent.
    pub fn accept_flag(&self, flag: u8) -> Result<bool, DecodeError> {
        match flag {
            NEW_SCHEMA => Ok(true),
            SAME_SCHEMA if self.header.is_none() => Err(DecodeError::NoSchema),
            SAME_SCHEMA => Ok(false),
            _ => Err(DecodeError::Flag { flag }),
        }
    }

    /// The length of the metadata or header that follows.
    ///
    /// ```
    /// use tensordict_pipe::wire::{Format, Limits, RecvSession};
    ///
    /// let session = RecvSession::new(Format::Consolidated, Limits::default().max_metadata_bytes(500));
    /// assert_eq!(session.check_header_len(500)?, 500);
    /// assert!(session.check_header_len(u64::MAX).is_err());
    /// # Ok::<(), tensordict_pipe::DecodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`DecodeError::MetadataTooLong`] if it is beyond the limit.
    pub fn check_header_len(&self, len: u64) -> Result<usize, DecodeError> {
        let limit = self.limits.metadata_bytes;
        let fits = usize::try_from(len).ok().filter(|&len| len <= limit);
        fits.ok_or(DecodeError::MetadataTooLong { len, limit })
    }

    /// Takes metadata, which are in force from then on, or the header of a leaf-by-leaf message.
    ///
    /// # Errors
    /// Any [`DecodeError`] that is not recoverable. (Those come from [`finish`](Self::finish), once for each message,
    /// so that the bytes of the message are received in any case.)
    pub fn accept_header(&mut self, json: &[u8]) -> Result<(), DecodeError> {
        if self.format == Format::LeafByLeaf && self.header.is_some() && self.header_text == json {
            return Ok(());
        }
        self.check_header_len(json.len() as u64)?;
        self.header = Some(match self.format {
            Format::LeafByLeaf => {
                let header = leaves::decode(json, self.limits)?;
                json.clone_into(&mut self.header_text);
                header
            }
            format => Header {
                schema: metadata::decode(json, format == Format::Consolidated, self.limits)?,
                lens: Vec::new(),
            },
        });
        Ok(())
    }

    /// The length of the storage that follows; `None` before the first metadata.
    #[must_use]
    pub fn body_len(&self) -> Option<usize> {
        self.schema().map(|schema| schema.total_bytes)
    }

    /// The structure that the bodies have, if it can be held.
    #[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the pipe
    #[inline]
    pub(crate) fn root(&self) -> Option<&Arc<Node>> {
        self.schema()?.root.as_ref().ok()
    }

    /// How many storages were allocated so far.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.pool.allocations()
    }

    /// Leaf by leaf: the length of each tensor that follows.
    #[must_use]
    pub fn leaf_lens(&self) -> &[usize] {
        self.header.as_ref().map_or(&[], |header| &header.lens)
    }

    /// Where the sender's storage is, if it says so.
    #[must_use]
    pub fn sender_device(&self) -> Option<&Device> {
        self.schema()?.device.as_ref()
    }

    /// A storage to receive the next body into, with any contents. It is the only handle to it.
    ///
    /// It has [`body_len`](Self::body_len) bytes and at least 16, so that a short message of another kind that comes
    /// instead finds room. It is one of few that are used again when nobody holds them any more.
    #[inline]
    pub fn buffer(&mut self) -> Storage {
        let len = self.body_len().unwrap_or(0).max(RECEIVABLE);
        self.pool.take(len)
    }

    /// The storage of `td`, if the next body can be received into it: `td` is consolidated and of the schema in force,
    /// and nobody shares its storage. `td` is empty then, until the result of [`finish`](Self::finish) replaces it.
    ///
    /// ```
    /// use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
    /// use tensordict_pipe::{tensordict, Device};
    ///
    /// let like = |x: u8| tensordict!([]; "x" => vec![x]).map(|td| td.consolidate());
    /// let mut sender = SendSession::new(Format::Consolidated);
    /// let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
    /// receiver.accept_header(sender.encode(&like(1)?)?.header().expect("the first").as_bytes())?;
    /// assert_eq!((receiver.body_len(), receiver.sender_device()), (Some(8), Some(&Device::Cpu)));
    /// let mut td = like(2)?;
    /// let mut storage = receiver.matching_buffer(&mut td).expect("it fits");
    /// storage.make_mut()[0] = 1; // which the transport does
    /// td = receiver.finish(storage)?;
    /// assert_eq!(td, like(1)?);
    /// assert_eq!((sender.allocations(), receiver.allocations()), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn matching_buffer(&self, td: &mut TensorDict) -> Option<Storage> {
        let schema = self.schema()?;
        let root = schema.root.as_ref().ok()?;
        let storage = td.packed_storage()?;
        let fits = storage.len() >= schema.total_bytes.max(RECEIVABLE) && storage.is_unique();
        if !fits || !same_layout(root, td.root()) {
            return None;
        }
        std::mem::replace(td, self.vacant.clone()).into_packed_storage()
    }

    /// The TensorDict whose bytes have been received into `storage`, from its first byte on.
    ///
    /// # Errors
    /// - [`DecodeError::LoneSurrogate`]: the schema in force cannot be held. Recoverable.
    /// - [`DecodeError::NoSchema`], [`DecodeError::Length`]: there is no schema yet, or the storage is too short.
    #[inline]
    pub fn finish(&mut self, storage: Storage) -> Result<TensorDict, DecodeError> {
        let schema = self.schema().ok_or(DecodeError::NoSchema)?;
        if storage.len() < schema.total_bytes {
            return Err(DecodeError::Length { expected: schema.total_bytes, found: storage.len() });
        }
        match &schema.root {
            Ok(root) => Ok(TensorDict::from_packed(root.clone(), storage, schema.total_bytes)),
            Err(error) => Err(error.clone()),
        }
    }

    /// Leaf by leaf: the TensorDict whose tensors have been received into `storages`, in the order of
    /// [`leaf_lens`](Self::leaf_lens).
    ///
    /// ```
    /// use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
    /// use tensordict_pipe::{tensordict, Storage};
    ///
    /// let td = tensordict!([]; "x" => vec![1_u8], "y" => vec![2_i64])?;
    /// let mut sender = SendSession::new(Format::LeafByLeaf);
    /// let message = sender.encode(&td)?;
    /// let mut receiver = RecvSession::new(Format::LeafByLeaf, Limits::default());
    /// receiver.accept_header(message.header().expect("always").as_bytes())?;
    /// assert_eq!(receiver.leaf_lens(), [1, 8]);
    /// let bodies: Vec<_> = message.bodies().iter().map(|body| Storage::from_bytes(body.bytes())).collect();
    /// assert_eq!(receiver.finish_leaves(&bodies)?, td);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_leaves(&mut self, storages: &[Storage]) -> Result<TensorDict, DecodeError> {
        let header = self.header.as_ref().ok_or(DecodeError::NoSchema)?;
        let found = storages.iter().map(Storage::len).sum();
        if storages.len() != header.lens.len() || storages.iter().zip(&header.lens).any(|(s, &len)| s.len() < len) {
            return Err(DecodeError::Length { expected: header.schema.total_bytes, found });
        }
        let root = header.schema.root.clone()?;
        Ok(TensorDict::from_loose(root.with_places(&mut |leaf| {
            leaf.storage = Some(storages[leaf.start].clone());
            leaf.start = 0;
        })))
    }

    fn schema(&self) -> Option<&Schema> {
        self.header.as_ref().map(|header| &header.schema)
    }
}

impl fmt::Debug for RecvSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, limits, .. } = self;
        f.debug_struct("RecvSession").field("format", format).field("limits", limits).finish_non_exhaustive()
    }
}
