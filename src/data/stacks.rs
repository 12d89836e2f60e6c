//! Lazy stacks and stacks of non-tensors.

use std::sync::Arc;

use super::dict::{Bytes, TensorDict};
use super::entry::{Entry, Item};
use super::error::DataError;
use super::index::{part_of_child, Part};
use super::node::{Body, Child, Node, Stack, StackKind};
use super::shape::DIFFERING;
use super::value::Value;

/// What a [`TensorDict`] is in Python.
///
/// ```
/// use tensordict_pipe::{Kind, TensorDict};
///
/// let tasks = TensorDict::non_tensor_stack(["walk", "run"], 0)?;
/// assert_eq!((tasks.kind(), TensorDict::new([]).kind()), (Kind::NonTensorStack, Kind::Dict));
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// `TensorDict`.
    Dict,
    /// `LazyStackedTensorDict`: TensorDicts kept side by side, which may differ in names and shapes.
    LazyStack,
    /// `NonTensorStack`: values that are not tensors, one for each index.
    NonTensorStack,
}

impl TensorDict {
    /// TensorDicts side by side along a new batch dimension `dim`, as Python's `lazy_stack`. They may differ in names and
    /// in shapes; their batch sizes have the same number of dimensions.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict};
    ///
    /// let short = tensordict!([]; "tokens" => vec![1_i64, 2])?;
    /// let long = tensordict!([]; "tokens" => vec![3_i64, 4, 5])?;
    /// let stack = TensorDict::lazy_stack([short, long], 0)?;
    /// assert_eq!(stack.batch_size()[..], [2]);
    /// assert_eq!(stack.get(("1", "tokens"))?.as_slice::<i64>()?, [3, 4, 5]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Stack`] if the elements do not fit each other or are stacks of non-tensors; [`DataError::Dim`].
    pub fn lazy_stack(elements: impl IntoIterator<Item = Self>, dim: usize) -> Result<Self, DataError> {
        Self::new_stack(StackKind::Lazy, elements, dim)
    }

    /// Values that are not tensors along a new batch dimension `dim`, as Python's `NonTensorStack`: strings, [`Value`]s,
    /// [`NonTensor`](super::NonTensor)s of one batch size, or stacks of them.
    ///
    /// ```
    /// use tensordict_pipe::TensorDict;
    ///
    /// let mut td = TensorDict::new([2]);
    /// td.insert("task", TensorDict::non_tensor_stack(["walk", "run"], 0)?)?;
    /// assert_eq!(td.value(("task", "1"))?.as_str(), Some("run"));
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Stack`] if the elements do not fit each other or are something else; [`DataError::Dim`].
    pub fn non_tensor_stack<T: Into<Item>>(
        elements: impl IntoIterator<Item = T>,
        dim: usize,
    ) -> Result<Self, DataError> {
        Self::new_stack(StackKind::NonTensor, elements, dim)
    }

    /// What it is in Python.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.root.body() {
            Body::Dict(_) => Kind::Dict,
            Body::Stack(Stack { kind: StackKind::Lazy, .. }) => Kind::LazyStack,
            Body::Stack(Stack { kind: StackKind::NonTensor, .. }) => Kind::NonTensorStack,
        }
    }

    /// The batch dimension along which a stack's elements lie; `None` for a plain TensorDict.
    #[must_use]
    pub fn stack_dim(&self) -> Option<usize> {
        self.root.stack().map(|stack| stack.dim)
    }

    /// The name of that dimension, if it has one.
    #[must_use]
    pub fn stack_dim_name(&self) -> Option<&str> {
        self.root.stack()?.dim_name.as_deref()
    }

    /// Names the dimension along which the elements lie; does nothing to a plain TensorDict.
    ///
    /// # Errors
    /// [`DataError::Locked`].
    pub fn set_stack_dim_name(&mut self, name: Option<&str>) -> Result<(), DataError> {
        self.edit_root(|root| {
            root.renew_id();
            if let Body::Stack(stack) = root.body_mut() {
                stack.dim_name = name.map(str::to_owned);
            }
            Ok(())
        })
    }

    /// The elements of a stack, in order; none for a plain TensorDict.
    ///
    /// ```
    /// use tensordict_pipe::{Kind, TensorDict};
    ///
    /// let mut stack = TensorDict::lazy_stack([TensorDict::new([]), TensorDict::new([])], 0)?;
    /// stack.set_stack_dim_name(Some("time"))?;
    /// assert_eq!((stack.kind(), stack.stack_dim(), stack.stack_dim_name()), (Kind::LazyStack, Some(0), Some("time")));
    /// assert_eq!(stack.elements().count(), 2);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    pub fn elements(&self) -> impl Iterator<Item = Entry<'_>> {
        let storage = self.shared_storage();
        self.root.stack().into_iter().flat_map(|stack| &stack.elements).map(move |child| Entry::new(child, storage))
    }

    fn new_stack<T: Into<Item>>(
        kind: StackKind,
        elements: impl IntoIterator<Item = T>,
        dim: usize,
    ) -> Result<Self, DataError> {
        let elements = elements.into_iter().map(|element| element.into().into_child()).collect();
        let stack = Stack::new(kind, dim, None, elements)?;
        Ok(Self { root: Arc::new(Node::new(false, Body::Stack(stack))), bytes: Bytes::Loose })
    }
}

impl Entry<'_> {
    /// The value of a non-tensor, or the values of a stack of non-tensors as lists nested as its batch size, as Python's
    /// `tolist()`. `None` for other entries, for a stack whose elements differ in batch size, and for more than a
    /// million values.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict, Value};
    ///
    /// let td = tensordict!([2]; "task" => TensorDict::non_tensor_stack(["walk", "run"], 0)?)?;
    /// assert_eq!(td.entry("task")?.to_value(), Some(Value::from(vec!["walk", "run"])));
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    #[must_use]
    pub fn to_value(&self) -> Option<Value> {
        match self {
            Self::NonTensor(data) => Some(data.value.clone()),
            Self::NonTensorStack(td) => to_list(&Child::Node(td.root.clone()), &mut 1_000_000),
            _ => None,
        }
    }
}

/// `budget` is the number of lists and values that may still be made.
fn to_list(child: &Child, budget: &mut usize) -> Option<Value> {
    *budget = budget.checked_sub(1)?;
    let batch_size = match child {
        Child::NonTensor(data) => &data.batch_size,
        Child::Node(node) => node.batch_size(),
        Child::Tensor(_) | Child::Jagged(_) => return None,
    };
    match (child, batch_size.first()) {
        (Child::NonTensor(data), None) => Some(data.value.clone()),
        (_, Some(&DIFFERING) | None) => None,
        (_, Some(&size)) => {
            let part = |index| part_of_child(child, None, 0, &Part::Index(index)).ok();
            (0..size).map(|index| to_list(&part(index)?, budget)).collect::<Option<_>>().map(Value::List)
        }
    }
}
