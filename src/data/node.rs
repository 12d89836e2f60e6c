//! The tree under a TensorDict: names, dtypes, shapes and everything else that is not a tensor's bytes.
//!
//! A tree is shared by every clone and, in a pipe, by every message of one schema. It changes by copy on write, and
//! each change of structure gives the changed nodes a new id. So **equal ids mean equal structure**, which is what a
//! sender asks before each message; values are not structure.

use indexmap::IndexMap;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::device::Device;
use super::error::DataError;
use super::leaf::{JaggedLeaf, Leaf};
use super::shape::{Shape, DIFFERING};
use super::value::NonTensor;

/// A collection: a dict, a lazy stack or a stack of non-tensors.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    id: u64,
    locked: bool,
    body: Body,
}

/// What a [`Node`] holds.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Dict(Dict),
    Stack(Stack),
}

/// Named entries in order.
#[derive(Clone, Debug)]
pub(crate) struct Dict {
    pub(crate) batch_size: Shape,
    /// One for each dimension of the batch size.
    pub(crate) names: Vec<Option<String>>,
    pub(crate) device: Option<Device>,
    pub(crate) entries: IndexMap<String, Child>,
}

/// Elements along a new dimension of the batch size; on the wire they are named "0", "1", ...
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    pub(crate) kind: StackKind,
    pub(crate) dim: usize,
    pub(crate) dim_name: Option<String>,
    /// The elements' batch size with `elements.len()` at `dim`; [`DIFFERING`] where the elements differ.
    pub(crate) batch_size: Shape,
    pub(crate) elements: Vec<Child>,
}

/// Python's class of a [`Stack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackKind {
    /// `LazyStackedTensorDict`, of dicts and lazy stacks.
    Lazy,
    /// `NonTensorStack`, of non-tensors and stacks of them.
    NonTensor,
}

/// What a name leads to.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    Tensor(Leaf),
    Jagged(Box<JaggedLeaf>),
    NonTensor(Arc<NonTensor>),
    Node(Arc<Node>),
}

impl Node {
    pub(crate) fn new(locked: bool, body: Body) -> Self {
        Self { id: fresh_id(), locked, body }
    }

    /// Equal for two nodes only if their structure is equal.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.locked
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    pub(crate) fn batch_size(&self) -> &Shape {
        match &self.body {
            Body::Dict(dict) => &dict.batch_size,
            Body::Stack(stack) => &stack.batch_size,
        }
    }

    /// For changes; one of the structure also needs [`renew_id`](Self::renew_id).
    pub(super) fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The structure is about to change.
    pub(super) fn renew_id(&mut self) {
        self.id = fresh_id();
    }

    pub(super) fn set_lock_flag(&mut self, locked: bool) {
        self.renew_id();
        self.locked = locked;
    }

    /// The child called `name`; the elements of a stack are called "0", "1", ...
    pub(crate) fn child(&self, name: &str) -> Option<&Child> {
        match &self.body {
            Body::Dict(dict) => dict.entries.get(name),
            Body::Stack(stack) => stack.elements.get(element_index(name)?),
        }
    }

    pub(super) fn child_mut(&mut self, name: &str) -> Option<&mut Child> {
        match &mut self.body {
            Body::Dict(dict) => dict.entries.get_mut(name),
            Body::Stack(stack) => stack.elements.get_mut(element_index(name)?),
        }
    }

    pub(super) fn children_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        let (entries, elements) = match &mut self.body {
            Body::Dict(dict) => (Some(dict.entries.values_mut()), None),
            Body::Stack(stack) => (None, Some(stack.elements.iter_mut())),
        };
        entries.into_iter().flatten().chain(elements.into_iter().flatten())
    }

    pub(crate) fn dict(&self) -> Option<&Dict> {
        match &self.body {
            Body::Dict(dict) => Some(dict),
            Body::Stack(_) => None,
        }
    }

    pub(crate) fn stack(&self) -> Option<&Stack> {
        match &self.body {
            Body::Dict(_) => None,
            Body::Stack(stack) => Some(stack),
        }
    }

    pub(crate) fn is_non_tensor_stack(&self) -> bool {
        self.stack().is_some_and(|stack| stack.kind == StackKind::NonTensor)
    }

    /// The children with their names, in order; the elements of a stack are called "0", "1", ...
    pub(crate) fn named_children(&self) -> impl Iterator<Item = (Cow<'_, str>, &Child)> {
        let entries = self.dict().into_iter().flat_map(|dict| &dict.entries);
        let elements = self.stack().into_iter().flat_map(|stack| stack.elements.iter().enumerate());
        let entries = entries.map(|(name, child)| (Cow::Borrowed(name.as_str()), child));
        entries.chain(elements.map(|(index, child)| (Cow::Owned(index.to_string()), child)))
    }
}

impl Dict {
    /// Checks that every batched tensor starts with the batch size, and the number of names.
    pub(crate) fn new(
        batch_size: Shape,
        names: Vec<Option<String>>,
        device: Option<Device>,
        entries: IndexMap<String, Child>,
    ) -> Result<Self, DataError> {
        let dict = Self { batch_size, names, device, entries };
        if dict.names.len() != dict.batch_size.len() {
            return Err(DataError::Length {
                unit: "dimension names",
                expected: dict.batch_size.len(),
                found: dict.names.len(),
            });
        }
        dict.entries.iter().try_for_each(|(name, child)| child.check_batch_size(name, &dict.batch_size))?;
        Ok(dict)
    }
}

impl Stack {
    /// Checks that the elements are of the stack's kind, with batch sizes of one rank that has room for `dim`.
    ///
    /// A stack without elements has a batch size of zero at `dim` only.
    pub(crate) fn new(
        kind: StackKind,
        dim: usize,
        dim_name: Option<String>,
        elements: Vec<Child>,
    ) -> Result<Self, DataError> {
        let wrong = |reason: String| DataError::Stack { operation: kind.name(), reason };
        let mut common: Option<Vec<usize>> = None;
        for element in &elements {
            let batch_size = match element {
                Child::NonTensor(data) if kind == StackKind::NonTensor => &data.batch_size,
                Child::Node(node) => match &node.body {
                    Body::Stack(stack) if stack.kind == kind => &stack.batch_size,
                    Body::Dict(dict) if kind == StackKind::Lazy => &dict.batch_size,
                    _ => return Err(wrong(format!("cannot hold {}", element.kind_name()))),
                },
                _ => return Err(wrong(format!("cannot hold {}", element.kind_name()))),
            };
            let common = common.get_or_insert_with(|| batch_size.to_vec());
            if common.len() != batch_size.len() {
                return Err(wrong("the batch sizes of the elements have different ranks".to_owned()));
            }
            for (dim, &size) in common.iter_mut().zip(batch_size.iter()) {
                if *dim != size {
                    *dim = DIFFERING;
                }
            }
        }
        let mut batch_size = common.unwrap_or_else(|| vec![0; dim.min(MAX_EMPTY_STACK_DIM)]);
        if dim > batch_size.len() {
            return Err(DataError::Dim { dim, rank: batch_size.len() + 1 });
        }
        batch_size.insert(dim, elements.len());
        Ok(Self { kind, dim, dim_name, batch_size: batch_size.into(), elements })
    }
}

impl StackKind {
    /// Python's class name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lazy => "LazyStackedTensorDict",
            Self::NonTensor => "NonTensorStack",
        }
    }
}

impl Child {
    /// The tensors of this child itself, not those of its children, in the order of the wire.
    pub(crate) fn own_leaves(&self) -> impl Iterator<Item = &Leaf> {
        let (tensor, jagged) = match self {
            Self::Tensor(leaf) => (Some(leaf), None),
            Self::Jagged(jagged) => (None, Some(jagged.leaves())),
            Self::NonTensor(_) | Self::Node(_) => (None, None),
        };
        tensor.into_iter().chain(jagged.into_iter().flatten())
    }

    /// For messages: "a tensor", "a lazy stack", ...
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Self::Tensor(_) => "a tensor",
            Self::Jagged(_) => "a jagged tensor",
            Self::NonTensor(_) => "a non-tensor",
            Self::Node(node) => match &node.body {
                Body::Dict(_) => "a TensorDict",
                Body::Stack(Stack { kind: StackKind::Lazy, .. }) => "a lazy stack",
                Body::Stack(Stack { kind: StackKind::NonTensor, .. }) => "a stack of non-tensors",
            },
        }
    }

    pub(super) fn check_batch_size(&self, name: &str, batch_size: &Shape) -> Result<(), DataError> {
        let fits = match self {
            Self::Tensor(leaf) => leaf.unbatched || leaf.shape.starts_with(batch_size),
            Self::Jagged(jagged) => jagged.fits(batch_size),
            Self::NonTensor(_) | Self::Node(_) => true,
        };
        if fits {
            return Ok(());
        }
        let shape = match self {
            Self::Jagged(jagged) => jagged.shape(),
            _ => self.own_leaves().map(|leaf| leaf.shape.clone()).next().unwrap_or_default(),
        };
        Err(DataError::batch_size(name, &shape, batch_size))
    }
}

/// A stack without elements has no element to tell its rank; this bounds what a peer can make us allocate.
const MAX_EMPTY_STACK_DIM: usize = 64;

fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The index that an element's name stands for: decimal digits as Python writes them.
fn element_index(name: &str) -> Option<usize> {
    let index: usize = name.parse().ok()?;
    (index.to_string() == name).then_some(index)
}
