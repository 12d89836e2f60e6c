//! [`EncodeError`] and [`DecodeError`]: what cannot be sent, and what a peer sent wrong.

use std::fmt;

use crate::data::{path_text, DType, DataError};

/// Why a TensorDict cannot be sent in this format. Nothing has been sent then.
///
/// The receiver may be Python, so everything that Python could not read, or would lose, is refused.
///
/// ```
/// use tensordict_pipe::wire::{EncodeError, Format, SendSession};
/// use tensordict_pipe::{tensordict, DType, Tensor};
///
/// let td = tensordict!([]; "n" => { "x" => Tensor::zeros(DType::Float8E4M3Fn, [2])? })?;
/// match SendSession::new(Format::Consolidated).encode(&td) {
///     Err(EncodeError::DType { path, dtype }) => {
///         assert_eq!((path.names(), dtype), (&["n".to_owned(), "x".to_owned()][..], DType::Float8E4M3Fn));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Python's receiver takes a nested TensorDict of this name for a part of the metadata. (A tensor may be so called;
    /// but its `recv_tensordict` takes two, `cls` and `leaves`, for a TensorDict.)
    #[error("{path}: the format uses this name itself, and Python would misread the entry; rename it")]
    ReservedName {
        /// The path of the entry.
        path: KeyPath,
    },
    /// Python's receiver takes a tensor of this name for a part of a jagged tensor.
    #[error("{path}: a tensor's name cannot begin like the parts of a jagged tensor (`<NJT_VALUES>`, ...); rename it")]
    JaggedName {
        /// The path of the tensor.
        path: KeyPath,
    },
    /// Python cannot pack this dtype, or cannot use it where it arrives.
    #[error("{path}: Python cannot receive {dtype} in this format; view it as another dtype, or try leaf by leaf")]
    DType {
        /// The path of the tensor.
        path: KeyPath,
        /// The dtype.
        dtype: DType,
    },
    /// Python can view the tensor only at multiples of its item size, and the packed layout gives multiples of 8.
    #[error("{path}: its place in the storage, byte {start}, is no multiple of 16; insert complex128 tensors first")]
    Misaligned {
        /// The path of the tensor.
        path: KeyPath,
        /// Where it would lie.
        start: usize,
    },
    /// The consolidated formats have no form for Python's `UnbatchedTensor`.
    #[error("{path}: an unbatched tensor can only be sent leaf by leaf")]
    Unbatched {
        /// The path of the tensor.
        path: KeyPath,
    },
    /// The leaf-by-leaf format has no form for this.
    #[error("{path}: {what} cannot be sent leaf by leaf; use the consolidated format")]
    NotALeaf {
        /// The path of the entry.
        path: KeyPath,
        /// What it is.
        what: &'static str,
    },
    /// The nesting, that of the values included, is deeper than receivers take.
    #[error("nested more than {limit} deep")]
    TooDeep {
        /// The deepest nesting of the JSON text.
        limit: usize,
    },
    /// A [`Value::BigInt`](crate::Value::BigInt) that Python does not read: not a number, or beyond 4300 digits.
    #[error("{path}: Python does not read the integer {digits}")]
    Integer {
        /// The path of the value.
        path: KeyPath,
        /// Its first digits.
        digits: String,
    },
}

/// What is wrong with a message.
///
/// The peer is faulty, or speaks something else, unless the variant says otherwise. The stream cannot be trusted after
/// it, except where [`is_recoverable`](Self::is_recoverable) says so.
///
/// ```
/// use tensordict_pipe::wire::{BrokenRule, DecodeError, Format, RecvSession};
/// use tensordict_pipe::Limits;
///
/// let mut session = RecvSession::new(Format::Consolidated, Limits::default());
/// assert_eq!(session.accept_flag(7), Err(DecodeError::Flag { flag: 7 }));
/// let error = session.accept_header(b"{}").unwrap_err();
/// assert!(matches!(&error, DecodeError::Entry { rule, .. } if matches!(**rule, BrokenRule::Missing { .. })), "{error}");
/// assert!(!error.is_recoverable());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first byte of a message is neither "new schema" (0) nor "same schema" (1).
    #[error("unknown message flag {flag:#04x}; is the peer sending leaf by leaf?")]
    Flag {
        /// The byte.
        flag: u8,
    },
    /// "Same schema" before there was one.
    #[error("the peer refers to a schema that it has not sent")]
    NoSchema,
    /// A message has another length than the metadata say.
    #[error("a message of {found} bytes, where {expected} are due")]
    Length {
        /// What is due.
        expected: usize,
        /// What came.
        found: usize,
    },
    /// The metadata exceed [`Limits::max_metadata_bytes`](crate::Limits::max_metadata_bytes).
    #[error("metadata of {len} bytes exceed the limit of {limit} (Limits::max_metadata_bytes)")]
    MetadataTooLong {
        /// The length announced.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// The storage exceeds [`Limits::max_storage_bytes`](crate::Limits::max_storage_bytes).
    #[error("a storage of {len} bytes exceeds the limit of {limit} (Limits::max_storage_bytes)")]
    StorageTooLong {
        /// The length announced.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// The nesting exceeds [`Limits::max_depth`](crate::Limits::max_depth).
    #[error("nested more than {limit} deep (Limits::max_depth)")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// The number of entries exceeds [`Limits::max_leaves`](crate::Limits::max_leaves).
    #[error("more than {limit} entries (Limits::max_leaves)")]
    TooManyLeaves {
        /// The limit.
        limit: usize,
    },
    /// The metadata are no JSON, or have another type where one is due.
    #[error("metadata, byte {offset}: {problem}")]
    Json {
        /// Where.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// The metadata of one entry break a rule.
    #[error("{path}: {rule}")]
    Entry {
        /// The path of the entry.
        path: KeyPath,
        /// The rule.
        rule: Box<BrokenRule>,
    },
    /// `_total_bytes` is not where the last tensor ends.
    #[error("the tensors end at byte {end} of a storage of {declared}")]
    TotalBytes {
        /// `_total_bytes`.
        declared: usize,
        /// The end of the last tensor.
        end: usize,
    },
    /// A string holds half of a surrogate pair, which Python can send and Rust cannot hold. The peer is not to blame,
    /// and only the messages of this schema are lost.
    #[error("{path}: a string with a lone surrogate, which a Rust string cannot hold")]
    LoneSurrogate {
        /// The path of the entry with the string; a surrogate in it stands as U+FFFD and its number.
        path: KeyPath,
        /// The bytes of the storage that belong to the message.
        total_bytes: usize,
    },
}

/// The rule that the metadata of an entry break.
///
/// ```
/// use tensordict_pipe::wire::{BrokenRule, DecodeError, Format, Limits, RecvSession};
///
/// let mut session = RecvSession::new(Format::Consolidated, Limits::default());
/// match session.accept_header(b"{}") {
///     Err(DecodeError::Entry { path, rule }) => {
///         assert!(path.names().is_empty(), "the root");
///         assert!(matches!(*rule, BrokenRule::Missing { .. }), "{rule}");
///     }
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenRule {
    /// A required field is missing.
    #[error("no field {field:?}")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field that the format does not have, or that does not belong here.
    #[error("unknown field {field:?}")]
    Unknown {
        /// The field.
        field: String,
    },
    /// Two fields or entries of one name.
    #[error("twice the name {name:?}")]
    Repeated {
        /// The name.
        name: String,
    },
    /// A class that we do not know, such as a tensorclass.
    #[error("unknown class {class:?}")]
    Class {
        /// The class.
        class: String,
    },
    /// The tensor's range does not hold its elements and its padding.
    #[error("bytes {start} to {stop} do not hold {len} bytes and {pad} of padding")]
    Range {
        /// First byte.
        start: usize,
        /// End.
        stop: usize,
        /// Number of elements times item size.
        len: usize,
        /// The padding as it was sent; it must fill up to a multiple of 8.
        pad: usize,
    },
    /// The tensors do not follow one another without gap or overlap.
    #[error("begins at byte {found} and not at {expected}, where the tensor before it ends")]
    Place {
        /// The end of the tensor before.
        expected: usize,
        /// Its start.
        found: usize,
    },
    /// The parts of a jagged tensor are not its values, lengths (optional) and offsets, in this order.
    #[error("incomplete or misplaced parts of a jagged tensor")]
    JaggedParts,
    /// The elements of a stack are not called "0", "1", and so on.
    #[error("the elements of a stack cannot be called {name:?}")]
    Element {
        /// A name that is no index below their number.
        name: String,
    },
    /// A stack of non-tensors whose values do not match its batch size.
    #[error("the values of the stack do not match its batch size")]
    StackValues,
    /// The lists of a leaf-by-leaf header have different lengths.
    #[error("{keys} keys, {dtypes} dtypes and {shapes} shapes")]
    Lists {
        /// Number of keys.
        keys: usize,
        /// Number of dtypes.
        dtypes: usize,
        /// Number of shapes.
        shapes: usize,
    },
    /// The data model refuses it: dtype, size, batch size, names, stack or jagged tensor.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl DecodeError {
    /// Whether only this message (and those that follow with the same schema) is lost: the peer did nothing wrong, the
    /// stream is in step, and the next schema is read as if nothing had happened.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(self, Self::LoneSurrogate { .. })
    }

    /// The same error, seen from one level up, where the entry is called `key`.
    pub(super) fn inside(mut self, key: &str) -> Self {
        if let Self::Entry { path, .. } | Self::LoneSurrogate { path, .. } = &mut self {
            path.0.insert(0, key.to_owned());
        }
        self
    }
}

impl From<BrokenRule> for DecodeError {
    fn from(rule: BrokenRule) -> Self {
        Self::Entry { path: KeyPath::default(), rule: Box::new(rule) }
    }
}

impl From<DataError> for DecodeError {
    fn from(error: DataError) -> Self {
        BrokenRule::Data(error).into()
    }
}

impl EncodeError {
    /// The same error, seen from one level up, where the entry is called `key`.
    pub(super) fn inside(mut self, key: &str) -> Self {
        if let Self::ReservedName { path }
        | Self::JaggedName { path }
        | Self::DType { path, .. }
        | Self::Misaligned { path, .. }
        | Self::Unbatched { path }
        | Self::NotALeaf { path, .. }
        | Self::Integer { path, .. } = &mut self
        {
            path.0.insert(0, key.to_owned());
        }
        self
    }
}

/// Where an entry stands: the names from the root to it, printed as in Python. [`EncodeError`] shows one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPath(pub(super) Vec<String>);

impl KeyPath {
    /// The names from the root to the entry; none for the root itself.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("the root"),
            names => f.write_str(&path_text(&names.iter().map(String::as_str).collect::<Vec<_>>())),
        }
    }
}
