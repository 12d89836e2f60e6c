//! Many TensorDicts into one: stack and cat.

use indexmap::IndexMap;
use std::sync::Arc;

use super::dict::TensorDict;
use super::error::DataError;
use super::index::{part_of_child, Part};
use super::node::{Body, Child, Dict, Node, Stack, StackKind};
use super::shape::Shape;
use super::strided::{with_dim, with_size};
use super::tensor::Tensor;
use super::value::NonTensor;

impl TensorDict {
    /// TensorDicts of one structure as one with a new batch dimension `dim`; the tensors are copied. Python's
    /// `torch.stack`.
    ///
    /// Non-tensors become a stack of non-tensors, lazy stacks a lazy stack of them. Names, order and device are the
    /// first one's.
    ///
    /// # Errors
    /// * [`DataError::Stack`]: there are none, or their names or kinds of entries differ; use
    ///   [`lazy_stack`](Self::lazy_stack).
    /// * [`DataError::Shape`], [`DataError::DType`]: their batch sizes or tensors differ.
    /// * [`DataError::Dim`]; [`DataError::Jagged`]: jagged tensors cannot be stacked.
    pub fn stack(tds: &[Self], dim: usize) -> Result<Self, DataError> {
        Join::Stack.dicts(tds, dim)
    }

    /// TensorDicts of one structure one after the other along the batch dimension `dim`; the tensors are copied.
    /// Python's `torch.cat`.
    ///
    /// Non-tensors become one if they are equal, else a stack of non-tensors.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, TensorDict};
    ///
    /// let a = tensordict!([1]; "x" => vec![1.0_f32])?;
    /// let b = tensordict!([2]; "x" => vec![2.0_f32, 3.0])?;
    /// let ab = TensorDict::cat(&[a, b], 0)?;
    /// assert_eq!(ab.get("x")?.as_slice::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`stack`](Self::stack), but the batch sizes may differ in `dim`.
    pub fn cat(tds: &[Self], dim: usize) -> Result<Self, DataError> {
        Join::Cat.dicts(tds, dim)
    }
}

#[derive(Clone, Copy)]
enum Join {
    Stack,
    Cat,
}

impl Join {
    fn dicts(self, tds: &[TensorDict], dim: usize) -> Result<TensorDict, DataError> {
        let roots: Vec<_> = tds.iter().map(|td| td.clone().into_loose_root()).collect();
        let roots: Vec<_> = roots.iter().map(|root| &**root).collect();
        self.nodes(&roots, dim).map(|root| TensorDict::from_loose(Arc::new(root)))
    }

    fn nodes(self, nodes: &[&Node], dim: usize) -> Result<Node, DataError> {
        let first = nodes.first().ok_or_else(|| self.wrong("there are none"))?;
        let body = match first.body() {
            Body::Dict(first) => {
                let dicts: Option<Vec<_>> = nodes.iter().map(|node| node.dict()).collect();
                Body::Dict(self.tensordicts(first, &dicts.ok_or_else(|| self.wrong("the kinds differ"))?, dim)?)
            }
            Body::Stack(first) => {
                let stacks: Option<Vec<_>> = nodes.iter().map(|node| node.stack()).collect();
                let stacks = stacks.ok_or_else(|| self.wrong("the kinds differ"))?;
                match self {
                    Self::Stack => {
                        let elements = nodes.iter().map(|&node| Child::Node(Arc::new(node.clone()))).collect();
                        Body::Stack(Stack::new(first.kind, dim, None, elements)?)
                    }
                    Self::Cat => Body::Stack(self.cat_stacks(first, &stacks, dim)?),
                }
            }
        };
        Ok(Node::new(false, body))
    }

    fn tensordicts(self, first: &Dict, dicts: &[&Dict], dim: usize) -> Result<Dict, DataError> {
        let batch_sizes: Vec<_> = dicts.iter().map(|dict| &dict.batch_size).collect();
        let batch_size = self.batch_size(&batch_sizes, dim)?;
        let mut names = first.names.clone();
        if let Self::Stack = self {
            names.insert(dim, None);
        }
        let mut entries = IndexMap::new();
        for name in first.entries.keys() {
            let children: Option<Vec<_>> = dicts.iter().map(|dict| dict.entries.get(name)).collect();
            let children = children.ok_or_else(|| self.wrong(&format!("not all have an entry {name:?}")))?;
            entries.insert(name.clone(), self.children(&children, dim)?);
        }
        if let Some(name) = dicts.iter().flat_map(|dict| dict.entries.keys()).find(|&name| !entries.contains_key(name))
        {
            return Err(self.wrong(&format!("not all have an entry {name:?}")));
        }
        Dict::new(batch_size, names, first.device.clone(), entries)
    }

    fn children(self, children: &[&Child], dim: usize) -> Result<Child, DataError> {
        match children[0] {
            Child::Tensor(first) if first.unbatched => match children.iter().all(|child| equal(children[0], child)) {
                true => Ok(children[0].clone()),
                false => Err(self.wrong("unbatched tensors differ")),
            },
            Child::Tensor(_) => {
                let tensor = |child: &&Child| match child {
                    Child::Tensor(leaf) => Ok(Tensor(leaf.clone())),
                    other => Err(self.wrong(&format!("a tensor meets {}", other.kind_name()))),
                };
                let tensors = children.iter().map(tensor).collect::<Result<Vec<_>, _>>()?;
                let joined = match self {
                    Self::Stack => Tensor::stack(&tensors, dim),
                    Self::Cat => Tensor::cat(&tensors, dim),
                };
                Ok(Child::Tensor(joined?.0))
            }
            Child::Jagged(_) => Err(DataError::Jagged { reason: "jagged tensors cannot be joined; use a lazy stack" }),
            Child::NonTensor(first) => self.non_tensors(first, children, dim),
            Child::Node(node) if node.is_non_tensor_stack() => self.stack_of_non_tensors(children, dim),
            Child::Node(_) => {
                let node = |child: &&Child| match child {
                    Child::Node(node) => Ok(node.clone()),
                    other => Err(self.wrong(&format!("a TensorDict meets {}", other.kind_name()))),
                };
                let nodes = children.iter().map(node).collect::<Result<Vec<_>, _>>()?;
                let nodes: Vec<_> = nodes.iter().map(|node| &**node).collect();
                Ok(Child::Node(Arc::new(self.nodes(&nodes, dim)?)))
            }
        }
    }

    fn non_tensors(self, first: &NonTensor, children: &[&Child], dim: usize) -> Result<Child, DataError> {
        let mut batch_sizes = Vec::new();
        for child in children {
            match child {
                Child::NonTensor(data) if data.value == first.value => batch_sizes.push(&data.batch_size),
                _ => break,
            }
        }
        if matches!(self, Self::Cat) && batch_sizes.len() == children.len() {
            let batch_size = self.batch_size(&batch_sizes, dim)?;
            return Ok(Child::NonTensor(Arc::new(NonTensor { batch_size, ..first.clone() })));
        }
        self.stack_of_non_tensors(children, dim)
    }

    /// Non-tensors and stacks of them, as one stack along `dim`.
    fn stack_of_non_tensors(self, children: &[&Child], dim: usize) -> Result<Child, DataError> {
        let mut elements = Vec::new();
        for child in children {
            let size = match child {
                Child::NonTensor(data) => data.batch_size.get(dim),
                Child::Node(node) => node.batch_size().get(dim),
                Child::Tensor(_) | Child::Jagged(_) => return Err(self.wrong("a non-tensor meets a tensor")),
            };
            match (self, size) {
                (Self::Stack, _) => elements.push((*child).clone()),
                (Self::Cat, None) => return Err(DataError::Dim { dim, rank: 0 }),
                (Self::Cat, Some(&size)) => {
                    for index in 0..size {
                        elements.push(part_of_child(child, None, dim, &Part::Index(index))?);
                    }
                }
            }
        }
        let stack = Stack::new(StackKind::NonTensor, dim, None, elements)?;
        Ok(Child::Node(Arc::new(Node::new(false, Body::Stack(stack)))))
    }

    fn cat_stacks(self, first: &Stack, stacks: &[&Stack], dim: usize) -> Result<Stack, DataError> {
        if stacks.iter().any(|stack| (stack.kind, stack.dim) != (first.kind, first.dim)) {
            return Err(self.wrong("the stacks differ in kind or stack dimension"));
        }
        let elements = if dim == first.dim {
            stacks.iter().flat_map(|stack| stack.elements.iter().cloned()).collect()
        } else {
            if stacks.iter().any(|stack| stack.elements.len() != first.elements.len()) {
                return Err(self.wrong("the stacks differ in their number of elements"));
            }
            let inner = if dim < first.dim { dim } else { dim - 1 };
            let along = |i: usize| stacks.iter().map(|stack| &stack.elements[i]).collect::<Vec<_>>();
            (0..first.elements.len()).map(|i| self.children(&along(i), inner)).collect::<Result<_, _>>()?
        };
        Stack::new(first.kind, first.dim, first.dim_name.clone(), elements)
    }

    /// The common batch size with the new or the grown dimension.
    fn batch_size(self, batch_sizes: &[&Shape], dim: usize) -> Result<Shape, DataError> {
        let first = batch_sizes[0];
        let rank = first.len();
        let differs = |found: &Shape, expected: &Shape| Err(DataError::shape(self.name(), expected, found));
        match self {
            Self::Stack if dim > rank => Err(DataError::Dim { dim, rank: rank + 1 }),
            Self::Stack => match batch_sizes.iter().find(|&&batch_size| batch_size != first) {
                Some(other) => differs(other, first),
                None => Ok(with_dim(first, dim, batch_sizes.len())),
            },
            Self::Cat if dim >= rank => Err(DataError::Dim { dim, rank }),
            Self::Cat => {
                let mut total = 0_usize;
                for batch_size in batch_sizes {
                    let size = batch_size.get(dim).copied().unwrap_or_default();
                    let expected = with_size(first, dim, size);
                    if **batch_size != expected {
                        return differs(batch_size, &expected);
                    }
                    total = total.saturating_add(size);
                }
                Ok(with_size(first, dim, total))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Cat => "cat",
        }
    }

    fn wrong(self, reason: &str) -> DataError {
        DataError::Stack { operation: self.name(), reason: reason.to_owned() }
    }
}

fn equal(a: &Child, b: &Child) -> bool {
    match (a, b) {
        (Child::Tensor(a), Child::Tensor(b)) => a.same_structure(b) && a.bytes(None) == b.bytes(None),
        _ => false,
    }
}
