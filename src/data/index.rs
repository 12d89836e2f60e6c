//! Parts of a TensorDict along a batch dimension.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use super::dict::TensorDict;
use super::error::DataError;
use super::jagged::JaggedView;
use super::leaf::Leaf;
use super::node::{Body, Child, Dict, Node, Stack};
use super::shape::Shape;
use super::strided::{resolve, with_size, without_dim};
use super::tensor::Tensor;
use super::view::TensorView;
use crate::storage::Storage;

impl TensorDict {
    /// The part at `index` of the batch dimension `dim`, without that dimension.
    ///
    /// Along dimension 0 the tensors share the bytes, along others they are copied. Unbatched tensors stay whole.
    ///
    /// ```
    /// use tensordict_pipe::tensordict;
    ///
    /// let td = tensordict!([2]; "x" => vec![1.0_f32, 2.0])?;
    /// assert_eq!(td.index(0, 1)?.get("x")?.item::<f32>()?, 2.0);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// * [`DataError::Dim`] or [`DataError::Range`]: there is no such part.
    /// * [`DataError::Jagged`]: a jagged tensor along another dimension than its rows, or with wrong offsets.
    /// * [`DataError::Stack`]: the part of a stack of non-tensors is no TensorDict; see [`elements`](Self::elements).
    pub fn index(&self, dim: usize, index: usize) -> Result<Self, DataError> {
        self.check_part(dim, index..=index)?;
        self.part(dim, &Part::Index(index))
    }

    /// The part in `range` of the batch dimension `dim`. Shares and copies as [`index`](Self::index) does.
    ///
    /// ```
    /// use tensordict_pipe::tensordict;
    ///
    /// let td = tensordict!([4]; "x" => vec![1_u8, 2, 3, 4])?;
    /// assert_eq!(td.slice(0, 1..3)?.get("x")?.as_slice::<u8>()?, [2, 3]);
    /// assert_eq!(td.split(0, &[1, 3])?[1].batch_size()[..], [3]);
    /// assert_eq!(td.chunk(0, 2)?.len(), 2);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`index`](Self::index).
    pub fn slice(&self, dim: usize, range: impl RangeBounds<usize>) -> Result<Self, DataError> {
        let range = self.check_part(dim, range)?;
        self.part(dim, &Part::Range(range))
    }

    /// Parts of these sizes along the batch dimension `dim`, as Python's `split`.
    ///
    /// # Errors
    /// As [`index`](Self::index); [`DataError::Length`] if the sizes do not add up to the dimension's.
    pub fn split(&self, dim: usize, sizes: &[usize]) -> Result<Vec<Self>, DataError> {
        let size = self.check_part(dim, ..)?.end;
        let total = sizes.iter().fold(0, |total: usize, &size| total.saturating_add(size));
        super::view::check_len("indices", size, total)?;
        let mut start = 0;
        let mut next = |size| {
            start += size;
            self.part(dim, &Part::Range(start - size..start))
        };
        sizes.iter().map(|&size| next(size)).collect()
    }

    /// At most `count` parts of equal size along the batch dimension `dim`, the last one smaller, as Python's `chunk`.
    ///
    /// # Errors
    /// As [`index`](Self::index).
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn chunk(&self, dim: usize, count: usize) -> Result<Vec<Self>, DataError> {
        let size = self.check_part(dim, ..)?.end;
        let step = size.div_ceil(count).max(1);
        (0..size.max(1)).step_by(step).map(|start| self.slice(dim, start..size.min(start + step))).collect()
    }

    fn check_part(&self, dim: usize, range: impl RangeBounds<usize>) -> Result<Range<usize>, DataError> {
        let batch_size = self.batch_size();
        let size = *batch_size.get(dim).ok_or(DataError::Dim { dim, rank: batch_size.len() })?;
        resolve(range, size)
    }

    fn part(&self, dim: usize, part: &Part) -> Result<Self, DataError> {
        match part_of_node(&self.root, self.shared_storage(), dim, part)? {
            Child::Node(root) => Ok(Self::from_loose(root)),
            other => Err(DataError::Stack { operation: "index", reason: format!("the part is {}", other.kind_name()) }),
        }
    }
}

/// What is taken of a dimension.
pub(super) enum Part {
    Index(usize),
    Range(Range<usize>),
}

impl Part {
    fn of_tensor(&self, tensor: &Tensor, dim: usize) -> Result<Tensor, DataError> {
        match self {
            Self::Index(index) => tensor.index(dim, *index),
            Self::Range(range) => tensor.slice(dim, range.clone()),
        }
    }

    fn of_shape(&self, shape: &Shape, dim: usize) -> Shape {
        match self {
            _ if dim >= shape.len() => shape.clone(),
            Self::Index(_) => without_dim(shape, dim),
            Self::Range(range) => with_size(shape, dim, range.len()),
        }
    }
}

/// The part of a child of a TensorDict with this storage; its leaves have storages of their own.
pub(super) fn part_of_child(
    child: &Child,
    storage: Option<&Storage>,
    dim: usize,
    part: &Part,
) -> Result<Child, DataError> {
    match child {
        Child::Tensor(leaf) => part_of_leaf(leaf, storage, dim, part).map(Child::Tensor),
        Child::Jagged(leaf) if dim == 0 => match (JaggedView { leaf, storage }, part) {
            (jagged, Part::Index(index)) => Ok(Child::Tensor(jagged.row(*index)?.0)),
            (jagged, Part::Range(range)) => Ok(Child::Jagged(Box::new(jagged.slice(range.clone())?.0))),
        },
        Child::Jagged(_) => Err(DataError::Jagged { reason: "only its rows can be indexed" }),
        Child::NonTensor(data) => {
            let mut data = (**data).clone();
            data.batch_size = part.of_shape(&data.batch_size, dim);
            Ok(Child::NonTensor(Arc::new(data)))
        }
        Child::Node(node) => part_of_node(node, storage, dim, part),
    }
}

fn part_of_node(node: &Node, storage: Option<&Storage>, dim: usize, part: &Part) -> Result<Child, DataError> {
    let body = match node.body() {
        Body::Dict(dict) => Body::Dict(part_of_dict(dict, storage, dim, part)?),
        Body::Stack(stack) if stack.dim != dim => Body::Stack(part_across_stack(stack, storage, dim, part)?),
        Body::Stack(stack) => match part {
            Part::Index(index) => {
                let size = stack.elements.len();
                let range = DataError::Range { start: *index, end: index.saturating_add(1), size };
                return stack.elements.get(*index).map(|child| child.to_loose(storage)).ok_or(range);
            }
            Part::Range(range) => {
                let range = resolve(range.clone(), stack.elements.len())?;
                let elements = stack.elements[range].iter().map(|child| child.to_loose(storage)).collect();
                Body::Stack(Stack::new(stack.kind, dim, stack.dim_name.clone(), elements)?)
            }
        },
    };
    Ok(Child::Node(Arc::new(Node::new(node.is_locked(), body))))
}

fn part_of_dict(dict: &Dict, storage: Option<&Storage>, dim: usize, part: &Part) -> Result<Dict, DataError> {
    let mut names = dict.names.clone();
    if let Part::Index(_) = part {
        if dim >= names.len() {
            return Err(DataError::Dim { dim, rank: names.len() });
        }
        names.remove(dim);
    }
    let part_of = |(name, child): (&String, &Child)| Ok((name.clone(), part_of_child(child, storage, dim, part)?));
    let entries = dict.entries.iter().map(part_of).collect::<Result<_, DataError>>()?;
    Dict::new(part.of_shape(&dict.batch_size, dim), names, dict.device.clone(), entries)
}

/// The same part of every element of a stack.
fn part_across_stack(stack: &Stack, storage: Option<&Storage>, dim: usize, part: &Part) -> Result<Stack, DataError> {
    let inner = if dim < stack.dim { dim } else { dim - 1 };
    let parts = stack.elements.iter().map(|child| part_of_child(child, storage, inner, part));
    let stack_dim = match part {
        Part::Index(_) if dim < stack.dim => stack.dim - 1,
        _ => stack.dim,
    };
    Stack::new(stack.kind, stack_dim, stack.dim_name.clone(), parts.collect::<Result<_, _>>()?)
}

fn part_of_leaf(leaf: &Leaf, storage: Option<&Storage>, dim: usize, part: &Part) -> Result<Leaf, DataError> {
    let tensor = TensorView { leaf, storage: leaf.storage(storage) }.to_tensor();
    match leaf.unbatched {
        true => Ok(tensor.0),
        false => part.of_tensor(&tensor, dim).map(|tensor| tensor.0),
    }
}
