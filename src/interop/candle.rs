//! `candle`: tensors to and from candle's. Both ways copy, since candle owns the memory of its tensors.

use candle_core::{CpuStorage, Device, Storage};

use crate::data::{DType, DataError, Shape, Tensor, TensorView};

/// Why a tensor does not go to candle, or from it.
///
/// ```
/// use candle_core::Device;
/// use tensordict_pipe::interop::CandleError;
/// use tensordict_pipe::{DType, Tensor};
///
/// let tensor = Tensor::zeros(DType::Complex64, [2])?;
/// assert!(matches!(tensor.to_candle(&Device::Cpu), Err(CandleError::DType { .. })), "candle has no complex numbers");
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CandleError {
    /// The other side has no such dtype.
    #[error("candle and torch do not share the dtype {dtype}")]
    DType {
        /// Its name where it exists.
        dtype: String,
    },
    /// The tensor is not one that we can hold.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Candle failed, for example because the device is out of memory.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// The dtypes that both have.
const DTYPES: [(DType, candle_core::DType); 10] = [
    (DType::UInt8, candle_core::DType::U8),
    (DType::UInt32, candle_core::DType::U32),
    (DType::Int16, candle_core::DType::I16),
    (DType::Int32, candle_core::DType::I32),
    (DType::Int64, candle_core::DType::I64),
    (DType::BFloat16, candle_core::DType::BF16),
    (DType::Float16, candle_core::DType::F16),
    (DType::Float32, candle_core::DType::F32),
    (DType::Float64, candle_core::DType::F64),
    (DType::Float8E4M3Fn, candle_core::DType::F8E4M3),
];

impl TensorView<'_> {
    /// A candle tensor with a copy of the elements. Feature `candle`.
    ///
    /// Bool tensors become `U8`, as candle's own comparisons give them.
    ///
    /// ```
    /// use candle_core::Device;
    /// use tensordict_pipe::{tensordict, Tensor};
    ///
    /// let td = tensordict!([2]; "obs" => Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2])?)?;
    /// let obs = td.get("obs")?.to_candle(&Device::Cpu)?;
    /// let action = obs.matmul(&obs)?.t()?;
    /// let tensor = Tensor::try_from(&action)?;
    /// assert_eq!(tensor.as_slice::<f32>()?, [7.0, 15.0, 10.0, 22.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`CandleError::DType`]: candle has no such dtype.
    /// * [`CandleError::Candle`]: the device refused.
    pub fn to_candle(&self, device: &Device) -> Result<candle_core::Tensor, CandleError> {
        let ours = if self.dtype() == DType::Bool { DType::UInt8 } else { self.dtype() };
        let dtype = DTYPES.iter().find(|(dtype, _)| *dtype == ours).map(|(_, dtype)| *dtype);
        let dtype = dtype.ok_or_else(|| CandleError::DType { dtype: self.dtype().to_string() })?;
        Ok(candle_core::Tensor::from_raw_buffer(self.bytes(), dtype, self.shape(), device)?)
    }
}

impl Tensor {
    /// A candle tensor with a copy of the elements, as [`TensorView::to_candle`].
    ///
    /// # Errors
    /// As [`TensorView::to_candle`].
    pub fn to_candle(&self, device: &Device) -> Result<candle_core::Tensor, CandleError> {
        self.view().to_candle(device)
    }
}

/// A copy, in row-major order whatever the layout; from another device by way of host memory. Feature `candle`.
///
/// Fails with [`CandleError::DType`] for candle's 4- and 6-bit floats, which torch does not have in this form.
impl TryFrom<&candle_core::Tensor> for Tensor {
    type Error = CandleError;

    fn try_from(tensor: &candle_core::Tensor) -> Result<Self, CandleError> {
        let tensor = tensor.to_device(&Device::Cpu)?;
        let (storage, layout) = tensor.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else {
            return Err(CandleError::Candle(candle_core::Error::Msg("the tensor stayed on its device".to_owned())));
        };
        let (shape, strides) = (Shape::from(layout.dims()), layout.stride());
        macro_rules! packed {
            ($($variant:ident),*) => {
                match storage {
                    $(CpuStorage::$variant(elements) => {
                        let elements = elements.get(layout.start_offset()..).unwrap_or_default();
                        Self::from_strided(elements, shape, strides)?
                    })*
                    CpuStorage::F8E4M3(elements) => {
                        let elements = elements.get(layout.start_offset()..).unwrap_or_default();
                        let bits: Vec<u8> = elements.iter().map(|element| element.to_bits()).collect();
                        let packed = Self::from_strided(&bits, &shape, strides)?;
                        Self::from_bytes(DType::Float8E4M3Fn, shape, packed.bytes())?
                    }
                    _ => return Err(CandleError::DType { dtype: tensor.dtype().as_str().to_owned() }),
                }
            };
        }
        Ok(packed!(U8, U32, I16, I32, I64, BF16, F16, F32, F64))
    }
}
