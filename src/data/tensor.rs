//! [`Tensor`]: a tensor on its own.

use super::dtype::{DType, Element};
use super::error::DataError;
use super::leaf::Leaf;
use super::shape::Shape;
use super::strided;
use super::view::{check_len, TensorView, TensorViewMut};
use crate::storage::Storage;

/// A dense, row-major tensor in host memory: a dtype, a shape and a range of a [`Storage`].
///
/// A clone is cheap and shares the bytes; writing copies them first if they are shared. Slices along the first
/// dimension share them too, so a small slice keeps the whole storage in memory; sending it sends its own bytes only.
///
/// ```
/// use tensordict_pipe::{DType, Tensor};
///
/// let tensor = Tensor::from_slice(&[1_i64, 2, 3, 4, 5, 6], [2, 3])?;
/// assert_eq!(tensor.dtype(), DType::Int64);
/// assert_eq!(tensor.index(0, 1)?.as_slice::<i64>()?, [4, 5, 6]);
/// assert_eq!(Tensor::scalar(1.5_f32).item::<f32>()?, 1.5);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone)]
pub struct Tensor(
    /// Has a storage of its own.
    pub(super) Leaf,
);

impl Tensor {
    /// A tensor with a copy of `elements`, in row-major order.
    ///
    /// # Errors
    /// [`DataError::Length`] if the shape has another number of elements; [`DataError::TooLarge`].
    pub fn from_slice<T: Element>(elements: &[T], shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        shape.byte_len(T::DTYPE)?;
        check_len("elements", shape.element_count().unwrap_or_default(), elements.len())?;
        Self::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(elements))
    }

    /// A tensor with a copy of `bytes`: the elements in row-major order and the machine's byte order.
    ///
    /// # Errors
    /// [`DataError::Length`] if the shape takes another number of bytes; [`DataError::TooLarge`].
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self, DataError> {
        let shape = shape.into();
        check_len("bytes", shape.byte_len(dtype)?, bytes.len())?;
        Self::from_storage(dtype, shape, Storage::from_bytes(bytes), 0)
    }

    /// A tensor over the bytes of `storage` from byte `start` on, without a copy.
    ///
    /// If `start` is not a multiple of the item size, the tensor can be read by copy only.
    ///
    /// # Errors
    /// [`DataError::Length`] if the storage has too few bytes; [`DataError::TooLarge`].
    pub fn from_storage(
        dtype: DType,
        shape: impl Into<Shape>,
        storage: Storage,
        start: usize,
    ) -> Result<Self, DataError> {
        let shape = shape.into();
        let len = shape.byte_len(dtype)?;
        match start.checked_add(len) {
            Some(end) if end <= storage.len() => {
                Ok(Self(Leaf { dtype, shape, unbatched: false, storage: Some(storage), start, len }))
            }
            _ => Err(DataError::Length { unit: "bytes", expected: len, found: storage.len().saturating_sub(start) }),
        }
    }

    /// A tensor with a copy of strided elements: `strides` are in elements, as torch's, and 0 repeats.
    ///
    /// ```
    /// # use tensordict_pipe::Tensor;
    /// let transposed = Tensor::from_strided(&[1_u8, 2, 3, 4, 5, 6], [3, 2], &[1, 3])?;
    /// assert_eq!(transposed.as_slice::<u8>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Length`] if there is not one stride a dimension or `elements` ends too early;
    /// [`DataError::TooLarge`].
    pub fn from_strided<T: Element>(
        elements: &[T],
        shape: impl Into<Shape>,
        strides: &[usize],
    ) -> Result<Self, DataError> {
        let shape = shape.into();
        let packed = strided::pack(elements, &shape, strides)?;
        Self::from_storage(T::DTYPE, shape, packed, 0)
    }

    /// A tensor of zeros.
    ///
    /// ```
    /// use tensordict_pipe::{DType, Storage, Tensor};
    ///
    /// let zeros = Tensor::zeros(DType::UInt8, [4])?;
    /// assert_eq!(zeros, Tensor::from_bytes(DType::UInt8, [4], &[0; 4])?);
    /// assert_eq!(zeros, Tensor::from_storage(DType::UInt8, [4], Storage::zeroed(16), 2)?);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::TooLarge`].
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        let storage = Storage::zeroed(shape.byte_len(dtype)?);
        Self::from_storage(dtype, shape, storage, 0)
    }

    /// A tensor of shape `[]`.
    #[must_use]
    pub fn scalar<T: Element>(element: T) -> Self {
        let storage = Storage::from_bytes(bytemuck::bytes_of(&element));
        let len = storage.len();
        Self(Leaf { dtype: T::DTYPE, shape: Shape::SCALAR, unbatched: false, storage: Some(storage), start: 0, len })
    }

    /// Marks the tensor as unbatched: in a TensorDict its shape need not start with the batch size, and indexing along
    /// batch dimensions leaves it alone. Python's `UnbatchedTensor`, which only leaf-by-leaf pipes carry.
    #[must_use]
    pub fn unbatched(self) -> Self {
        Self(Leaf { unbatched: true, ..self.0 })
    }

    /// The tensor for reading.
    ///
    /// ```
    /// use tensordict_pipe::Tensor;
    ///
    /// let mut tensor = Tensor::from([1_u8, 2, 3, 4]).reshape([2, 2])?;
    /// tensor.as_slice_mut::<u8>()?[0] = 9;
    /// tensor.view_mut().into_bytes()[1] = 8;
    /// assert_eq!(tensor.to_vec::<u8>()?, [9, 8, 3, 4]);
    /// assert_eq!((tensor.view().bytes(), &tensor.shape()[..]), (tensor.bytes(), &[2, 2][..]));
    /// assert!(!tensor.is_unbatched() && tensor.unbatched().is_unbatched());
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    #[must_use]
    pub fn view(&self) -> TensorView<'_> {
        TensorView { leaf: &self.0, storage: self.0.storage(None) }
    }

    /// The tensor for writing. Copies its bytes first if they are shared.
    pub fn view_mut(&mut self) -> TensorViewMut<'_> {
        self.0.own_view_mut()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The sizes of the dimensions.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Whether it is marked as [`unbatched`](Self::unbatched).
    #[must_use]
    pub fn is_unbatched(&self) -> bool {
        self.0.unbatched
    }

    /// The bytes, as [`TensorView::bytes`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.view().bytes()
    }

    /// The elements, as [`TensorView::as_slice`].
    ///
    /// # Errors
    /// As [`TensorView::as_slice`].
    pub fn as_slice<T: Element>(&self) -> Result<&[T], DataError> {
        self.view().as_slice()
    }

    /// The elements for writing; copies them first if they are shared.
    ///
    /// # Errors
    /// As [`TensorView::as_slice`].
    pub fn as_slice_mut<T: Element>(&mut self) -> Result<&mut [T], DataError> {
        self.view_mut().as_slice_mut()
    }

    /// The elements, copied, as [`TensorView::to_vec`].
    ///
    /// # Errors
    /// As [`TensorView::to_vec`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, DataError> {
        self.view().to_vec()
    }

    /// The only element, as [`TensorView::item`].
    ///
    /// # Errors
    /// As [`TensorView::item`].
    pub fn item<T: Element>(&self) -> Result<T, DataError> {
        self.view().item()
    }

    /// The same elements in another shape; shares the bytes.
    ///
    /// # Errors
    /// [`DataError::Shape`] if the numbers of elements differ.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self, DataError> {
        let shape = shape.into();
        if shape.element_count() != self.0.shape.element_count() {
            return Err(DataError::shape("reshape", &self.0.shape, &shape));
        }
        Ok(Self(Leaf { shape, ..self.0.clone() }))
    }
}

/// A tensor of one dimension.
impl<T: Element> From<&[T]> for Tensor {
    fn from(elements: &[T]) -> Self {
        let storage = Storage::from_bytes(bytemuck::cast_slice(elements));
        let len = storage.len();
        let shape = Shape::from([elements.len()]);
        Self(Leaf { dtype: T::DTYPE, shape, unbatched: false, storage: Some(storage), start: 0, len })
    }
}

/// A tensor of one dimension.
impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    fn from(elements: [T; N]) -> Self {
        elements.as_slice().into()
    }
}

/// A tensor of one dimension. The elements are copied into aligned memory.
impl<T: Element> From<Vec<T>> for Tensor {
    fn from(elements: Vec<T>) -> Self {
        elements.as_slice().into()
    }
}

/// Shares the bytes.
impl From<&Self> for Tensor {
    fn from(tensor: &Self) -> Self {
        tensor.clone()
    }
}

/// Shares the bytes.
impl From<TensorView<'_>> for Tensor {
    fn from(view: TensorView<'_>) -> Self {
        view.to_tensor()
    }
}

/// The same dtype, shape and bytes (so a NaN equals itself).
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for Tensor {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked() {
        assert!(Tensor::from_slice(&[1_u8, 2], [3]).is_err());
        assert!(Tensor::from_bytes(DType::Float32, [2], &[0; 7]).is_err());
        assert!(Tensor::zeros(DType::Float64, [1 << 40, 1 << 40]).is_err());
        let storage = Storage::zeroed(8);
        assert!(Tensor::from_storage(DType::Float32, [2], storage.clone(), 1).is_err());
        assert!(Tensor::from_storage(DType::Float32, [2], storage, usize::MAX).is_err());
        assert!(Tensor::zeros(DType::Float32, [0, 3]).expect("empty").bytes().is_empty());
    }

    #[test]
    fn misaligned_elements_are_read_by_copy() {
        let mut bytes = vec![9];
        bytes.extend_from_slice(bytemuck::bytes_of(&[1.0_f64, 2.0]));
        let tensor = Tensor::from_storage(DType::Float64, [2], Storage::from_bytes(&bytes), 1).expect("fits");
        assert_eq!(tensor.as_slice::<f64>(), Err(DataError::Misaligned { dtype: DType::Float64 }));
        assert_eq!(tensor.to_vec::<f64>().expect("by copy"), [1.0, 2.0]);
    }

    #[test]
    fn bools_are_checked() {
        let tensor = Tensor::from_bytes(DType::Bool, [2], &[1, 2]).expect("sized");
        assert_eq!(tensor.as_slice::<bool>(), Err(DataError::InvalidBool));
        assert_eq!(tensor.to_vec::<bool>(), Err(DataError::InvalidBool));
    }

    #[test]
    fn writing_a_shared_tensor_leaves_the_other_alone() {
        let mut a = Tensor::from(vec![1, 2, 3]);
        let b = a.clone();
        a.as_slice_mut::<i32>().expect("i32")[0] = 7;
        assert_eq!((a.as_slice::<i32>(), b.as_slice::<i32>()), (Ok(&[7, 2, 3][..]), Ok(&[1, 2, 3][..])));
    }
}
