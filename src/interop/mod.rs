//! Neighbours: tensors of other libraries to and from ours. Each module is behind the feature of its name; a feature
//! adds conversions and changes nothing else.
//!
//! | feature | out | in |
//! | --- | --- | --- |
//! | `ndarray` | [`TensorView::as_array`](crate::TensorView) and `as_array_mut`: views, without a copy | `Tensor::from(&array)`, any layout |
//! | `candle` | `to_candle`, by copy: candle owns its memory | `Tensor::try_from(&tensor)`, any layout |
//! | `safetensors` | `TensorDict::to_safetensors`, `save_safetensors` | `from_safetensors`, `load_safetensors` (no copy of tensors) |
//! | `num-complex` | `as_slice::<Complex<f32>>()`: a view | `Tensor::from_slice` |
//!
//! # Other libraries
//! Outwards no trait is needed: every library makes its tensor from [`TensorView::bytes`](crate::TensorView::bytes) (or
//! `as_slice`), [`dtype`](crate::TensorView::dtype) and [`shape`](crate::TensorView::shape). Inwards, a type that
//! implements [`ForeignTensor`] becomes a [`Tensor`] by [`Tensor::from_foreign`], whatever its strides.
//!
//! ```
//! use std::borrow::Cow;
//! use tensordict_pipe::interop::ForeignTensor;
//! use tensordict_pipe::{DType, Shape, Tensor};
//!
//! /// A matrix in column-major order, as a linear algebra library has it.
//! struct Columns {
//!     rows: usize,
//!     numbers: Vec<f32>,
//! }
//!
//! impl ForeignTensor for Columns {
//!     fn dtype(&self) -> DType {
//!         DType::Float32
//!     }
//!     fn shape(&self) -> Shape {
//!         [self.rows, self.numbers.len() / self.rows].into()
//!     }
//!     fn strides(&self) -> Option<Vec<isize>> {
//!         Some(vec![1, self.rows as isize])
//!     }
//!     fn bytes(&self) -> Cow<'_, [u8]> {
//!         bytemuck::cast_slice(&self.numbers).into()
//!     }
//! }
//!
//! let matrix = Columns { rows: 2, numbers: vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0] };
//! let tensor = Tensor::from_foreign(&matrix)?;
//! assert_eq!(tensor.shape()[..], [2, 3]);
//! assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok::<(), tensordict_pipe::DataError>(())
//! ```

mod foreign;

#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "safetensors")]
mod safetensors;

pub use self::foreign::ForeignTensor;

#[cfg(feature = "candle")]
pub use self::candle::CandleError;
#[cfg(feature = "safetensors")]
pub use self::safetensors::SafetensorsError;

#[cfg(doc)]
use crate::Tensor;
