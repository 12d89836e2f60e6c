//! Stacks of non-tensors as nested lists, one level for each dimension of the batch size.

use std::sync::Arc;

use crate::data::{Body, Child, DataError, Node, NonTensor, Shape, Stack, StackKind, Value, DIFFERING};
use crate::wire::error::{BrokenRule, DecodeError};

/// Whether nested lists can express the stack, and Python makes the same stack of them again.
pub(super) fn fits(child: &Child, batch_size: &Shape) -> bool {
    let Child::Node(node) = child else { return false };
    let Body::Stack(stack) = node.body() else { return false };
    let sizes = &stack.batch_size;
    stack.kind == StackKind::NonTensor
        && sizes.starts_with(batch_size)
        && !sizes.contains(&DIFFERING)
        && sizes.iter().rev().skip(1).all(|&size| size != 0)
        && sizes.element_count().is_some_and(|count| count <= MAX_VALUES)
}

/// Python's `tolist()`.
pub(super) fn to_list(child: &Child) -> Value {
    let sizes = match child {
        Child::Node(node) => node.batch_size().clone(),
        _ => Shape::SCALAR,
    };
    list_at(child, &sizes, &mut Vec::new())
}

fn list_at(child: &Child, sizes: &[usize], index: &mut Vec<usize>) -> Value {
    let Some((&size, rest)) = sizes.split_first() else { return value_at(child, index.clone()) };
    let item = |i| {
        index.push(i);
        let item = list_at(child, rest, index);
        index.pop();
        item
    };
    Value::List((0..size).map(item).collect())
}

fn value_at(child: &Child, mut index: Vec<usize>) -> Value {
    match child {
        Child::NonTensor(data) => data.value().clone(),
        Child::Node(node) => match node.body() {
            Body::Stack(stack) => {
                let i = index.remove(stack.dim);
                value_at(&stack.elements[i], index)
            }
            Body::Dict(_) => Value::Null,
        },
        _ => Value::Null,
    }
}

/// The stack along `dim` of values nested as `batch_size` says.
pub(super) fn from_list(values: Value, batch_size: &Shape, dim: usize) -> Result<Child, DecodeError> {
    if dim >= batch_size.len() {
        return Err(DataError::Dim { dim, rank: batch_size.len() }.into());
    }
    let mut flat = Vec::new();
    flatten(values, batch_size, &mut flat)?;
    let mut dims = Vec::with_capacity(batch_size.len());
    let mut stride = 1_usize;
    for &size in batch_size.iter().rev() {
        dims.push((size, stride));
        stride = stride.saturating_mul(size); // exact where there are values: it is at most their number
    }
    dims.reverse();
    let child = stack_along(dim, &dims, 0, &mut flat)?;
    match &child {
        Child::Node(node) if node.batch_size() == batch_size => Ok(child),
        _ => Err(BrokenRule::StackValues.into()),
    }
}

fn flatten(value: Value, sizes: &[usize], flat: &mut Vec<Value>) -> Result<(), DecodeError> {
    let Some((&size, rest)) = sizes.split_first() else {
        flat.push(value);
        return Ok(());
    };
    match value {
        Value::List(items) if items.len() == size => items.into_iter().try_for_each(|item| flatten(item, rest, flat)),
        _ => Err(BrokenRule::StackValues.into()),
    }
}

/// `dims` are the sizes and strides of the dimensions left, `at` is the first value.
fn stack_along(dim: usize, dims: &[(usize, usize)], at: usize, flat: &mut [Value]) -> Result<Child, DecodeError> {
    if dims.is_empty() {
        let value = std::mem::replace(&mut flat[at], Value::Null);
        return Ok(Child::NonTensor(Arc::new(NonTensor::new(value))));
    }
    let mut rest = dims.to_vec();
    let (size, stride) = rest.remove(dim);
    let elements = (0..size).map(|i| stack_along(0, &rest, at + i * stride, flat)).collect::<Result<_, _>>()?;
    let stack = Stack::new(StackKind::NonTensor, dim, None, elements)?;
    Ok(Child::Node(Arc::new(Node::new(false, Body::Stack(stack)))))
}

/// A single value stands for every index of its batch size, and nested lists repeat it as often.
const MAX_VALUES: usize = 1_000_000;
