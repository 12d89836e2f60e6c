//! `ndarray`: views of tensors with their dimensions, and arrays of any layout as tensors.

use ndarray::{ArrayBase, ArrayViewD, ArrayViewMutD, Data, Dimension};

use crate::data::{DataError, Element, Shape, Tensor, TensorView, TensorViewMut};

/// ```
/// use ndarray::array;
/// use tensordict_pipe::Tensor;
///
/// let tensor = Tensor::from(&array![[1_i64, 2], [3, 4]].reversed_axes());
/// assert_eq!(tensor.as_array::<i64>()?, array![[1, 3], [2, 4]].into_dyn());
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
impl Tensor {
    /// The elements as an array, as [`TensorView::as_array`].
    ///
    /// # Errors
    /// As [`TensorView::as_array`].
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'_, T>, DataError> {
        self.view().as_array()
    }

    /// The elements as an array for writing; copies them first if they are shared.
    ///
    /// # Errors
    /// As [`TensorView::as_array`].
    pub fn as_array_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>, DataError> {
        self.view_mut().as_array_mut()
    }
}

impl<'a> TensorView<'a> {
    /// The elements as an array, without a copy. Feature `ndarray`.
    ///
    /// ```
    /// use ndarray::{array, Axis};
    /// use tensordict_pipe::{tensordict, Tensor};
    ///
    /// let mut td = tensordict!([2]; "obs" => &array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// let mean = td.get("obs")?.as_array::<f32>()?.mean_axis(Axis(0)); // a view: nothing is copied
    /// assert_eq!(mean, Some(array![2.5, 3.5, 4.5].into_dyn()));
    /// td.get_mut("obs")?.as_array_mut::<f32>()?.fill(0.0);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice); [`DataError::TooLarge`] for a tensor without elements whose other dimensions are
    /// larger than `ndarray` takes.
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'a, T>, DataError> {
        let shape = self.shape();
        ArrayViewD::from_shape(&shape[..], self.as_slice()?).map_err(|_| too_large::<T>(shape))
    }
}

impl<'a> TensorViewMut<'a> {
    /// The elements as an array for writing in place. Feature `ndarray`.
    ///
    /// # Errors
    /// As [`TensorView::as_array`].
    #[allow(clippy::wrong_self_convention)] // by value, as `as_slice_mut`
    pub fn as_array_mut<T: Element>(self) -> Result<ArrayViewMutD<'a, T>, DataError> {
        let shape = self.shape();
        ArrayViewMutD::from_shape(&shape[..], self.as_slice_mut()?).map_err(|_| too_large::<T>(shape))
    }
}

fn too_large<T: Element>(shape: &Shape) -> DataError {
    DataError::TooLarge { dtype: T::DTYPE, shape: Box::new(shape.clone()) }
}

/// A copy, in row-major order whatever the layout of the array. Feature `ndarray`.
///
/// # Panics
/// If the array repeats its elements (a broadcast) more often than memory could hold, as `to_owned` of an array does.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Tensor {
    fn from(array: &ArrayBase<S, D>) -> Self {
        let mut tensor = Self::zeros(T::DTYPE, array.shape()).expect("an array fits the address space");
        let mut elements = tensor.as_array_mut::<T>().expect("the shape of an array");
        elements.assign(&array.view().into_dyn());
        tensor
    }
}

/// A copy, as of `&array`.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<ArrayBase<S, D>> for Tensor {
    fn from(array: ArrayBase<S, D>) -> Self {
        (&array).into()
    }
}
