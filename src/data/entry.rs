//! [`Entry`] and [`Item`]: whatever a path leads to, borrowed and owned.

use std::sync::Arc;

use super::dict::{Bytes, TensorDict};
use super::jagged::{Jagged, JaggedView};
use super::node::{Body, Child, Node, Stack, StackKind};
use super::tensor::Tensor;
use super::value::{NonTensor, Value};
use super::view::TensorView;
use crate::storage::Storage;

/// What stands under a name of a TensorDict.
///
/// ```
/// use tensordict_pipe::{tensordict, Entry, Tensor};
///
/// let td = tensordict!([]; "x" => Tensor::scalar(1_u8), "note" => "hello", "more" => {})?;
/// for (name, entry) in td.iter() {
///     match entry {
///         Entry::Tensor(tensor) => println!("{name}: {}", tensor.dtype()),
///         Entry::NonTensor(data) => println!("{name}: {:?}", data.value()),
///         Entry::Dict(dict) => println!("{name}: {} entries", dict.len()),
///         _ => println!("{name}: something else"),
///     }
/// }
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry<'a> {
    /// A tensor.
    Tensor(TensorView<'a>),
    /// A jagged nested tensor.
    Jagged(JaggedView<'a>),
    /// A value that is not a tensor, `NonTensorData`.
    NonTensor(&'a NonTensor),
    /// A nested TensorDict. It shares the bytes.
    Dict(TensorDict),
    /// A lazy stack, `LazyStackedTensorDict`; see [`TensorDict::elements`].
    LazyStack(TensorDict),
    /// A stack of values that are not tensors, `NonTensorStack`; see [`TensorDict::elements`].
    NonTensorStack(TensorDict),
}

impl<'a> Entry<'a> {
    pub(super) fn new(child: &'a Child, storage: Option<&'a Storage>) -> Self {
        match child {
            Child::Tensor(leaf) => Self::Tensor(TensorView { leaf, storage: leaf.storage(storage) }),
            Child::Jagged(leaf) => Self::Jagged(JaggedView { leaf, storage }),
            Child::NonTensor(data) => Self::NonTensor(data),
            Child::Node(node) => {
                let bytes = storage.map_or(Bytes::Loose, |storage| Bytes::Part(storage.clone()));
                let td = TensorDict { root: node.clone(), bytes };
                match node.body() {
                    Body::Dict(_) => Self::Dict(td),
                    Body::Stack(Stack { kind: StackKind::Lazy, .. }) => Self::LazyStack(td),
                    Body::Stack(Stack { kind: StackKind::NonTensor, .. }) => Self::NonTensorStack(td),
                }
            }
        }
    }

    /// The entry on its own. Shares the bytes.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict};
    ///
    /// let td = tensordict!([]; "x" => vec![1_u8], "note" => "hello")?;
    /// let mut copy = TensorDict::new([]);
    /// td.iter().try_for_each(|(name, entry)| copy.insert(name, entry.to_item()))?;
    /// assert_eq!(copy, td);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    #[must_use]
    pub fn to_item(&self) -> Item {
        match self {
            Self::Tensor(view) => Item::Tensor(view.to_tensor()),
            Self::Jagged(view) => Item::Jagged(view.to_jagged()),
            Self::NonTensor(data) => Item::NonTensor((*data).clone()),
            Self::Dict(td) | Self::LazyStack(td) | Self::NonTensorStack(td) => Item::Dict(td.clone()),
        }
    }
}

/// What can be put into a TensorDict.
///
/// [`TensorDict::insert`] takes whatever converts into it: a [`Tensor`] or what makes one (a `Vec` of numbers), a
/// [`Jagged`], a [`TensorDict`], a [`NonTensor`], a [`Value`] or a string.
///
/// ```
/// use tensordict_pipe::{Item, TensorDict};
///
/// let mut td = TensorDict::new([]);
/// for (name, item) in [("numbers", Item::from(vec![1_i64, 2])), ("task", Item::from("walk"))] {
///     td.insert(name, item)?;
/// }
/// assert!(matches!(td.remove("task")?, Item::NonTensor(_)));
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// A tensor.
    Tensor(Tensor),
    /// A jagged nested tensor.
    Jagged(Jagged),
    /// A value that is not a tensor.
    NonTensor(NonTensor),
    /// A TensorDict, a lazy stack or a stack of non-tensors.
    Dict(TensorDict),
}

impl Item {
    /// As a child whose leaves have storages of their own.
    pub(super) fn into_child(self) -> Child {
        match self {
            Self::Tensor(tensor) => Child::Tensor(tensor.0),
            Self::Jagged(jagged) => Child::Jagged(Box::new(jagged.0)),
            Self::NonTensor(data) => Child::NonTensor(Arc::new(data)),
            Self::Dict(td) => Child::Node(td.into_loose_root()),
        }
    }

    /// The item of a child whose leaves have storages of their own.
    pub(super) fn from_child(child: Child) -> Self {
        match child {
            Child::Tensor(leaf) => Self::Tensor(Tensor(leaf)),
            Child::Jagged(leaf) => Self::Jagged(Jagged(*leaf)),
            Child::NonTensor(data) => Self::NonTensor(Arc::unwrap_or_clone(data)),
            Child::Node(root) => Self::Dict(TensorDict::from_loose(root)),
        }
    }
}

impl<T: Into<Tensor>> From<T> for Item {
    fn from(tensor: T) -> Self {
        Self::Tensor(tensor.into())
    }
}

impl From<Jagged> for Item {
    fn from(jagged: Jagged) -> Self {
        Self::Jagged(jagged)
    }
}

impl From<NonTensor> for Item {
    fn from(data: NonTensor) -> Self {
        Self::NonTensor(data)
    }
}

impl From<Value> for Item {
    fn from(value: Value) -> Self {
        Self::NonTensor(NonTensor::new(value))
    }
}

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Value::from(text).into()
    }
}

impl From<String> for Item {
    fn from(text: String) -> Self {
        Value::from(text).into()
    }
}

impl From<TensorDict> for Item {
    fn from(td: TensorDict) -> Self {
        Self::Dict(td)
    }
}

impl Child {
    /// The child of a TensorDict with this storage, with leaves that have storages of their own.
    pub(super) fn to_loose(&self, storage: Option<&Storage>) -> Self {
        Entry::new(self, storage).to_item().into_child()
    }
}

impl TensorDict {
    pub(super) fn into_loose_root(self) -> Arc<Node> {
        match self.bytes {
            Bytes::Loose => self.root,
            Bytes::Packed(storage, _) | Bytes::Part(storage) => self.root.to_loose(&storage),
        }
    }
}
