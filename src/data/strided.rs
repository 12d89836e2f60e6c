//! Copies between layouts: strided input, slices, stacks and concatenations.

use std::ops::{Bound, Range, RangeBounds};

use super::dtype::Element;
use super::error::DataError;
use super::leaf::Leaf;
use super::shape::Shape;
use super::tensor::Tensor;
use super::view::check_len;
use crate::storage::Storage;

/// The strided elements in row-major order.
pub(super) fn pack<T: Element>(elements: &[T], shape: &Shape, strides: &[usize]) -> Result<Storage, DataError> {
    check_len("strides", shape.len(), strides.len())?;
    let mut packed = Storage::zeroed(shape.byte_len(T::DTYPE)?);
    if packed.is_empty() {
        return Ok(packed);
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(0_usize, |last, (&dim, &stride)| last.checked_add(stride.checked_mul(dim - 1)?));
    if last.is_none_or(|last| last >= elements.len()) {
        let expected = last.map_or(usize::MAX, |last| last.saturating_add(1));
        return Err(DataError::Length { unit: "elements", expected, found: elements.len() });
    }
    // The bytes of the innermost run, and the dimensions around it.
    let (run, outer) = match (shape.last(), strides.last()) {
        (Some(&dim), Some(1)) => (dim, shape.len() - 1),
        _ => (1, shape.len()),
    };
    let mut index = vec![0; outer];
    let mut first = 0;
    for to in packed.make_mut().chunks_exact_mut(run * size_of::<T>()) {
        to.copy_from_slice(bytemuck::cast_slice(&elements[first..first + run]));
        // The next index, the last dimension fastest.
        for dim in (0..outer).rev() {
            index[dim] += 1;
            // One step past the end may leave the address space; the step back returns.
            first = first.wrapping_add(strides[dim]);
            if index[dim] < shape[dim] {
                break;
            }
            first = first.wrapping_sub(index[dim].wrapping_mul(strides[dim]));
            index[dim] = 0;
        }
    }
    Ok(packed)
}

impl Tensor {
    /// The part at `index` of dimension `dim`, without that dimension. Shares the bytes where they are contiguous
    /// (dimension 0, or only sizes of 1 before `dim`), else copies them.
    ///
    /// # Errors
    /// [`DataError::Dim`] or [`DataError::Range`] if there is no such part.
    pub fn index(&self, dim: usize, index: usize) -> Result<Self, DataError> {
        let part = self.slice(dim, index..=index)?;
        Ok(Self(Leaf { shape: without_dim(&part.0.shape, dim), ..part.0 }))
    }

    /// The part in `range` of dimension `dim`. Shares the bytes where they are contiguous (dimension 0, or only sizes
    /// of 1 before `dim`), else copies them.
    ///
    /// ```
    /// use tensordict_pipe::Tensor;
    ///
    /// let halves = [Tensor::from([1_u8, 2]), Tensor::from([3_u8, 4])];
    /// assert_eq!(Tensor::stack(&halves, 0)?.shape()[..], [2, 2]);
    /// assert_eq!(Tensor::cat(&halves, 0)?.slice(0, 1..3)?.as_slice::<u8>()?, [2, 3]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Dim`] or [`DataError::Range`] if there is no such part.
    pub fn slice(&self, dim: usize, range: impl RangeBounds<usize>) -> Result<Self, DataError> {
        let size = *self.0.shape.get(dim).ok_or(DataError::Dim { dim, rank: self.0.shape.len() })?;
        let range = resolve(range, size)?;
        let shape = with_size(&self.0.shape, dim, range.len());
        let len = shape.byte_len(self.0.dtype)?;
        if range.len() == size || len == 0 {
            return Ok(Self(Leaf { shape, len, ..self.0.clone() }));
        }
        let [outer, row] = self.blocks(dim);
        let item = row / size;
        if outer == 1 {
            return Ok(Self(Leaf { shape, len, start: self.0.start + range.start * item, ..self.0.clone() }));
        }
        let mut packed = Storage::zeroed(len);
        let rows = self.bytes().chunks_exact(row);
        for (to, from) in packed.make_mut().chunks_exact_mut(range.len() * item).zip(rows) {
            to.copy_from_slice(&from[range.start * item..range.end * item]);
        }
        Ok(Self(Leaf { shape, len, storage: Some(packed), start: 0, ..self.0.clone() }))
    }

    /// The tensors along a new dimension `dim`, as `torch.stack`.
    ///
    /// # Errors
    /// [`DataError::Stack`] if there are none; [`DataError::DType`] or [`DataError::Shape`] if they differ;
    /// [`DataError::Dim`].
    pub fn stack(tensors: &[Self], dim: usize) -> Result<Self, DataError> {
        let unsqueezed = |tensor: &Self| {
            let shape = &tensor.0.shape;
            if dim > shape.len() {
                return Err(DataError::Dim { dim, rank: shape.len() + 1 });
            }
            Ok(Self(Leaf { shape: with_dim(shape, dim, 1), ..tensor.0.clone() }))
        };
        if let [first, others @ ..] = tensors {
            if let Some(other) = others.iter().find(|other| other.0.shape != first.0.shape) {
                return Err(DataError::shape("stack", &first.0.shape, &other.0.shape));
            }
        }
        Self::cat(&tensors.iter().map(unsqueezed).collect::<Result<Vec<_>, _>>()?, dim)
    }

    /// The tensors one after the other along dimension `dim`, as `torch.cat`.
    ///
    /// # Errors
    /// [`DataError::Stack`] if there are none; [`DataError::DType`] or [`DataError::Shape`] if they differ in more
    /// than that dimension; [`DataError::Dim`].
    pub fn cat(tensors: &[Self], dim: usize) -> Result<Self, DataError> {
        let none = || DataError::Stack { operation: "cat", reason: "there are no tensors".to_owned() };
        let first = tensors.first().ok_or_else(none)?;
        let mut shape = first.0.shape.to_vec();
        if dim >= shape.len() {
            return Err(DataError::Dim { dim, rank: shape.len() });
        }
        shape[dim] = 0;
        for tensor in tensors {
            if tensor.dtype() != first.dtype() {
                return Err(DataError::DType { expected: first.dtype(), found: tensor.dtype() });
            }
            let size = tensor.0.shape.get(dim).copied().unwrap_or_default();
            let expected: Shape = with_size(&first.0.shape, dim, size);
            if tensor.0.shape != expected {
                return Err(DataError::shape("cat", &expected, &tensor.0.shape));
            }
            shape[dim] = shape[dim].saturating_add(size);
        }
        let shape = Shape::from(shape);
        let mut packed = Storage::zeroed(shape.byte_len(first.dtype())?);
        if !packed.is_empty() {
            let mut rows: Vec<_> =
                tensors.iter().filter(|t| t.0.len > 0).map(|t| t.bytes().chunks_exact(t.blocks(dim)[1])).collect();
            let mut to = packed.make_mut();
            while !to.is_empty() {
                for row in rows.iter_mut().filter_map(Iterator::next) {
                    let (head, tail) = to.split_at_mut(row.len());
                    head.copy_from_slice(row);
                    to = tail;
                }
            }
        }
        let unbatched = first.0.unbatched;
        Ok(Self(Leaf { unbatched, ..Self::from_storage(first.dtype(), shape, packed, 0)?.0 }))
    }

    /// For a tensor with elements: the number of blocks that the dimensions before `dim` count, and the bytes of one.
    fn blocks(&self, dim: usize) -> [usize; 2] {
        let outer = self.0.shape[..dim].iter().product();
        [outer, self.0.len / outer]
    }
}

/// The shape without one dimension.
pub(super) fn without_dim(shape: &[usize], dim: usize) -> Shape {
    shape[..dim].iter().chain(&shape[dim + 1..]).copied().collect()
}

/// The shape with another dimension before `dim`.
pub(super) fn with_dim(shape: &[usize], dim: usize, size: usize) -> Shape {
    shape[..dim].iter().chain([&size]).chain(&shape[dim..]).copied().collect()
}

/// The shape with another size in one dimension.
pub(super) fn with_size(shape: &[usize], dim: usize, size: usize) -> Shape {
    let mut shape = shape.to_vec();
    shape[dim] = size;
    shape.into()
}

/// The range with its bounds filled in, if a dimension of this size has it.
pub(super) fn resolve(range: impl RangeBounds<usize>, size: usize) -> Result<Range<usize>, DataError> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => size,
    };
    match start <= end && end <= size {
        true => Ok(start..end),
        false => Err(DataError::Range { start, end, size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let elements: Vec<i32> = (0..).take(shape.element_count().expect("small")).collect();
        Tensor::from_slice(&elements, shape).expect("sized")
    }

    fn elements(tensor: &Tensor) -> &[i32] {
        tensor.as_slice().expect("int32")
    }

    #[test]
    fn strided_input_is_packed() {
        let elements: Vec<i32> = (0..24).collect();
        let cases: [(&[usize], &[usize], &[i32]); 7] = [
            (&[2, 3], &[12, 4], &[0, 4, 8, 12, 16, 20]),
            (&[3, 2], &[1, 3], &[0, 3, 1, 4, 2, 5]),
            (&[2, 2], &[0, 1], &[0, 1, 0, 1]),
            (&[2, 2, 2], &[12, 6, 1], &[0, 1, 6, 7, 12, 13, 18, 19]),
            (&[], &[], &[0]),
            (&[3, 0], &[100, 100], &[]),
            (&[2, 1], &[1, usize::MAX], &[0, 1]),
        ];
        for (shape, strides, expected) in cases {
            let tensor = Tensor::from_strided(&elements, shape, strides).expect("in bounds");
            assert_eq!(self::elements(&tensor), expected, "{shape:?} {strides:?}");
        }
        for (shape, strides) in [([2, 3], vec![12, 7]), ([2, 2], vec![usize::MAX, 1]), ([2, 2], vec![1])] {
            assert!(Tensor::from_strided(&elements, shape, &strides).is_err(), "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn slices_along_any_dimension() {
        let tensor = counting([2, 3, 2]);
        assert_eq!(elements(&tensor.slice(0, 1..2).expect("in range")), [6, 7, 8, 9, 10, 11]);
        assert_eq!(elements(&tensor.slice(1, 1..3).expect("in range")), [2, 3, 4, 5, 8, 9, 10, 11]);
        assert_eq!(elements(&tensor.index(2, 1).expect("in range")), [1, 3, 5, 7, 9, 11]);
        assert_eq!(*tensor.index(1, 0).expect("in range").shape(), Shape::from([2, 2]));
        assert!(elements(&tensor.slice(1, 1..1).expect("empty")).is_empty());
        assert!(tensor.index(0, 2).is_err());
        assert!(tensor.index(0, usize::MAX).is_err());
        assert!(tensor.index(3, 0).is_err());
        let empty = Tensor::zeros(crate::DType::Int32, [0, 1 << 40, 1 << 40]).expect("no elements");
        assert_eq!(*empty.slice(1, 3..5).expect("no elements").shape(), Shape::from([0, 2, 1 << 40]));
    }

    #[test]
    fn stack_and_cat_undo_index_and_slice() {
        let tensor = counting([2, 3, 2]);
        for dim in 0..3 {
            let size = tensor.shape()[dim];
            let parts: Vec<_> = (0..size).map(|i| tensor.index(dim, i).expect("in range")).collect();
            assert_eq!(Tensor::stack(&parts, dim).expect("equal shapes"), tensor);
            let parts = [tensor.slice(dim, 0..1).expect("in range"), tensor.slice(dim, 1..size).expect("in range")];
            assert_eq!(Tensor::cat(&parts, dim).expect("fitting shapes"), tensor);
        }
        assert!(Tensor::cat(&[counting([2, 3]), counting([3, 2])], 0).is_err());
        assert!(Tensor::stack(&[counting([2]), counting([3])], 0).is_err());
        assert!(Tensor::stack(&[], 0).is_err());
        let empty = [counting([0, 2]), counting([2, 2])];
        assert_eq!(Tensor::cat(&empty, 0).expect("one is empty"), counting([2, 2]));
    }
}
