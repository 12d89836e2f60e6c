//! [`TensorView`] and [`TensorViewMut`]: a tensor where it lies.

use std::ops::Range;

use super::dtype::{DType, Element};
use super::error::DataError;
use super::leaf::Leaf;
use super::shape::Shape;
use super::tensor::Tensor;
use crate::storage::Storage;

/// A tensor in a TensorDict (or a [`Tensor`]), for reading. A small `Copy` handle; elements are in row-major order.
///
/// ```
/// use tensordict_pipe::{Tensor, TensorDict};
///
/// let mut td = TensorDict::new([2]);
/// td.insert("obs", Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2])?)?;
/// let obs = td.get("obs")?;
/// assert_eq!(obs.shape()[1], 2);
/// assert_eq!(obs.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// assert!(obs.as_slice::<f64>().is_err());
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) storage: &'a Storage,
}

impl<'a> TensorView<'a> {
    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.leaf.dtype
    }

    /// The sizes of the dimensions, batch dimensions included.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        &self.leaf.shape
    }

    /// Whether it is Python's `UnbatchedTensor`, whose shape need not start with the batch size.
    #[must_use]
    pub fn is_unbatched(&self) -> bool {
        self.leaf.unbatched
    }

    /// The number of elements.
    #[must_use]
    pub fn element_count(&self) -> usize {
        self.leaf.len / self.leaf.dtype.item_size()
    }

    /// The bytes of the elements, in the machine's byte order.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        &self.storage.as_bytes()[self.byte_range()]
    }

    /// The elements, without a copy.
    ///
    /// # Errors
    /// * [`DataError::DType`]: the tensor has another dtype than `T`.
    /// * [`DataError::Misaligned`]: the bytes do not start on a boundary of `T`; [`to_vec`](Self::to_vec) reads them.
    /// * [`DataError::InvalidBool`]: a byte of a bool tensor is neither 0 nor 1.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], DataError> {
        check_dtype::<T>(self.dtype())?;
        bytemuck::checked::try_cast_slice(self.bytes()).map_err(|error| cast_error::<T>(error))
    }

    /// The elements, copied; works whatever the alignment.
    ///
    /// ```
    /// use tensordict_pipe::{DType, Tensor};
    ///
    /// let tensor = Tensor::from([7_u8]);
    /// let view = tensor.view();
    /// assert_eq!((view.dtype(), view.element_count(), view.bytes()), (DType::UInt8, 1, &[7][..]));
    /// assert_eq!((view.item::<u8>()?, view.to_vec::<u8>()?), (7, vec![7]));
    /// assert!(!view.is_unbatched() && view.to_tensor() == tensor);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice), without `Misaligned`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DataError> {
        check_dtype::<T>(self.dtype())?;
        let items = self.bytes().chunks_exact(size_of::<T>());
        items.map(|item| bytemuck::checked::try_pod_read_unaligned(item).map_err(|_| DataError::InvalidBool)).collect()
    }

    /// The only element, as Python's `item()`.
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec), and [`DataError::Length`] unless there is exactly one element.
    pub fn item<T: Element>(&self) -> Result<T, DataError> {
        check_len("elements", 1, self.element_count())?;
        Ok(self.to_vec()?[0])
    }

    /// A tensor that shares the bytes: no copy until one of the two is written.
    #[must_use]
    pub fn to_tensor(&self) -> Tensor {
        let Leaf { dtype, ref shape, unbatched, start, len, .. } = *self.leaf;
        Tensor(Leaf { dtype, shape: shape.clone(), unbatched, storage: Some(self.storage.clone()), start, len })
    }

    pub(super) fn byte_range(&self) -> Range<usize> {
        self.leaf.start..self.leaf.start + self.leaf.len
    }
}

/// The same dtype, shape and bytes (so a NaN equals itself).
impl PartialEq for TensorView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.leaf.same_structure(other.leaf) && self.bytes() == other.bytes()
    }
}

impl Eq for TensorView<'_> {}

/// A tensor in a TensorDict (or a [`Tensor`]), for writing. Its dtype and shape are fixed.
///
/// ```
/// use tensordict_pipe::tensordict;
///
/// let mut td = tensordict!([]; "obs" => vec![0.0_f32; 3])?;
/// td.get_mut("obs")?.copy_from_slice(&[1.0_f32, 2.0, 3.0])?;
/// let obs = td.get_mut("obs")?.as_slice_mut::<f32>()?;
/// obs[0] = 7.0;
/// assert_eq!(td.get("obs")?.as_slice::<f32>()?, [7.0, 2.0, 3.0]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    pub(super) dtype: DType,
    pub(super) shape: &'a Shape,
    pub(super) bytes: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the dimensions, batch dimensions included.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The bytes of the elements, in the machine's byte order.
    #[must_use]
    pub fn into_bytes(self) -> &'a mut [u8] {
        self.bytes
    }

    /// The elements, for writing in place; the slice lives as long as the borrow of the TensorDict.
    ///
    /// # Errors
    /// As [`TensorView::as_slice`].
    #[allow(clippy::wrong_self_convention)] // by value, so that `td.get_mut(..)?.as_slice_mut()?` can be kept
    pub fn as_slice_mut<T: Element>(self) -> Result<&'a mut [T], DataError> {
        check_dtype::<T>(self.dtype)?;
        bytemuck::checked::try_cast_slice_mut(self.bytes).map_err(|error| cast_error::<T>(error))
    }

    /// Overwrites all elements.
    ///
    /// # Errors
    /// [`DataError::DType`] or [`DataError::Length`] if `elements` does not fit.
    pub fn copy_from_slice<T: Element>(self, elements: &[T]) -> Result<(), DataError> {
        check_dtype::<T>(self.dtype)?;
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        check_len("elements", self.bytes.len() / size_of::<T>(), elements.len())?;
        self.bytes.copy_from_slice(bytes);
        Ok(())
    }

    /// Overwrites all elements with those of another tensor of the same dtype and shape, as Python's `copy_`.
    ///
    /// ```
    /// use tensordict_pipe::{DType, Tensor};
    ///
    /// let mut tensor = Tensor::from([1_u8, 2]);
    /// let target = tensor.view_mut();
    /// assert_eq!((target.dtype(), &target.shape()[..]), (DType::UInt8, &[2][..]));
    /// target.copy_from(Tensor::from([3_u8, 4]).view())?;
    /// tensor.view_mut().into_bytes()[1] = 5;
    /// assert_eq!(tensor.as_slice::<u8>()?, [3, 5]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::DType`] or [`DataError::Shape`] if they differ.
    pub fn copy_from(self, source: TensorView<'_>) -> Result<(), DataError> {
        if source.dtype() != self.dtype {
            return Err(DataError::DType { expected: self.dtype, found: source.dtype() });
        }
        if source.shape() != self.shape {
            return Err(DataError::shape("copy_from", self.shape, source.shape()));
        }
        self.bytes.copy_from_slice(source.bytes());
        Ok(())
    }
}

pub(super) fn check_len(unit: &'static str, expected: usize, found: usize) -> Result<(), DataError> {
    match expected == found {
        true => Ok(()),
        false => Err(DataError::Length { unit, expected, found }),
    }
}

fn check_dtype<T: Element>(found: DType) -> Result<(), DataError> {
    match found == T::DTYPE {
        true => Ok(()),
        false => Err(DataError::DType { expected: T::DTYPE, found }),
    }
}

fn cast_error<T: Element>(error: bytemuck::checked::CheckedCastError) -> DataError {
    match error {
        // The length is a multiple of the item size, so what is left is the alignment.
        bytemuck::checked::CheckedCastError::PodCastError(_) => DataError::Misaligned { dtype: T::DTYPE },
        bytemuck::checked::CheckedCastError::InvalidBitPattern => DataError::InvalidBool,
    }
}
