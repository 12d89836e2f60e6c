//! [`ForeignTensor`]: what a tensor of another library has to tell about itself.

use std::borrow::Cow;

use crate::data::{DType, DataError, Shape, Tensor};
use crate::storage::Storage;

/// A tensor of another library in host memory, which [`Tensor::from_foreign`] copies. The
/// [module](crate::interop) has a larger example.
///
/// ```
/// use std::borrow::Cow;
/// use tensordict_pipe::interop::ForeignTensor;
/// use tensordict_pipe::{DType, Shape, Tensor};
///
/// /// Backwards.
/// struct Reversed(Vec<u8>);
///
/// impl ForeignTensor for Reversed {
///     fn dtype(&self) -> DType {
///         DType::UInt8
///     }
///     fn shape(&self) -> Shape {
///         [self.0.len()].into()
///     }
///     fn strides(&self) -> Option<Vec<isize>> {
///         Some(vec![-1])
///     }
///     fn offset(&self) -> usize {
///         self.0.len() - 1
///     }
///     fn bytes(&self) -> Cow<'_, [u8]> {
///         self.0.as_slice().into()
///     }
/// }
///
/// assert_eq!(Tensor::from_foreign(&Reversed(vec![1, 2]))?.as_slice::<u8>()?, [2, 1]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
pub trait ForeignTensor {
    /// The type of the elements.
    fn dtype(&self) -> DType;

    /// The sizes of the dimensions.
    fn shape(&self) -> Shape;

    /// The distance between neighbours in each dimension, in elements: 0 repeats, negative ones go backwards.
    /// `None` (the default) for row-major order without gaps.
    fn strides(&self) -> Option<Vec<isize>> {
        None
    }

    /// The index in [`bytes`](Self::bytes), in elements, of the element at index zero of every dimension. 0 unless the
    /// tensor is a view of a larger one, or a stride is negative.
    fn offset(&self) -> usize {
        0
    }

    /// The bytes of the elements in the machine's byte order; they may go beyond the tensor.
    fn bytes(&self) -> Cow<'_, [u8]>;
}

impl Tensor {
    /// A tensor with a copy of another library's, a [`ForeignTensor`], packed in row-major order.
    ///
    /// # Errors
    /// [`DataError::Length`] if there is not one stride a dimension or an element lies outside the bytes;
    /// [`DataError::TooLarge`].
    pub fn from_foreign(foreign: &(impl ForeignTensor + ?Sized)) -> Result<Self, DataError> {
        let (dtype, shape, bytes) = (foreign.dtype(), foreign.shape(), foreign.bytes());
        let item = dtype.item_size();
        let mut packed = Storage::zeroed(shape.byte_len(dtype)?);
        if packed.is_empty() {
            return Self::from_storage(dtype, shape, packed, 0);
        }
        let strides = foreign.strides().unwrap_or_else(|| row_major(&shape));
        let elements = bytes.len() / item;
        let [first, last] = extent(&shape, &strides, foreign.offset())?;
        if first < 0 || last >= elements as i128 {
            let expected = usize::try_from(last + 1).unwrap_or(usize::MAX);
            return Err(DataError::Length { unit: "elements", expected, found: elements });
        }
        let mut at =
            Cursor { shape: &shape, strides: &strides, index: vec![0; shape.len()], element: foreign.offset() };
        let run = at.run();
        for to in packed.make_mut().chunks_exact_mut(run * item) {
            to.copy_from_slice(&bytes[at.element * item..][..run * item]);
            at.advance(run);
        }
        Self::from_storage(dtype, shape, packed, 0)
    }
}

/// The strides of row-major order; the shape has elements.
fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim] as isize;
    }
    strides
}

/// The lowest and the highest index of an element; the shape has elements.
fn extent(shape: &[usize], strides: &[isize], offset: usize) -> Result<[i128; 2], DataError> {
    if strides.len() != shape.len() {
        return Err(DataError::Length { unit: "strides", expected: shape.len(), found: strides.len() });
    }
    let mut extent = [offset as i128; 2];
    for (&dim, &stride) in shape.iter().zip(strides) {
        // 63 by 63 bits, and fewer than 2^64 dimensions of more than one element.
        let way = (dim as i128 - 1) * stride as i128;
        extent[usize::from(way > 0)] = extent[usize::from(way > 0)].saturating_add(way);
    }
    Ok(extent)
}

/// Goes through the elements in row-major order.
struct Cursor<'a> {
    shape: &'a [usize],
    strides: &'a [isize],
    index: Vec<usize>,
    element: usize,
}

impl Cursor<'_> {
    /// How many elements lie one after the other at a time.
    fn run(&self) -> usize {
        match (self.shape, self.strides) {
            ([.., dim], [.., 1]) => *dim,
            _ => 1,
        }
    }

    /// Goes on by a run. Every element on the way was found to be in bounds; the step past the last one wraps.
    fn advance(&mut self, run: usize) {
        let outer = self.shape.len() - usize::from(run > 1);
        for dim in (0..outer).rev() {
            self.index[dim] += 1;
            self.element = self.element.wrapping_add_signed(self.strides[dim]);
            if self.index[dim] < self.shape[dim] {
                return;
            }
            let back = self.strides[dim].wrapping_mul(self.index[dim] as isize);
            self.element = self.element.wrapping_add_signed(back.wrapping_neg());
            self.index[dim] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes {
        shape: Vec<usize>,
        strides: Option<Vec<isize>>,
        offset: usize,
        bytes: Vec<u8>,
    }

    impl ForeignTensor for Bytes {
        fn dtype(&self) -> DType {
            DType::UInt16
        }
        fn shape(&self) -> Shape {
            self.shape.as_slice().into()
        }
        fn strides(&self) -> Option<Vec<isize>> {
            self.strides.clone()
        }
        fn offset(&self) -> usize {
            self.offset
        }
        fn bytes(&self) -> Cow<'_, [u8]> {
            self.bytes.as_slice().into()
        }
    }

    fn foreign(shape: &[usize], strides: Option<&[isize]>, offset: usize) -> Result<Tensor, DataError> {
        let bytes = (0..12_u16).flat_map(u16::to_ne_bytes).collect();
        let strides = strides.map(<[isize]>::to_vec);
        Tensor::from_foreign(&Bytes { shape: shape.to_vec(), strides, offset, bytes })
    }

    #[test]
    fn strides_of_all_kinds_are_packed() {
        type Case<'a> = (&'a [usize], Option<&'a [isize]>, usize, &'a [u16]);
        let cases: [Case<'_>; 9] = [
            (&[2, 3], None, 0, &[0, 1, 2, 3, 4, 5]),
            (&[2, 2], None, 8, &[8, 9, 10, 11]),
            (&[3, 2], Some(&[1, 3]), 0, &[0, 3, 1, 4, 2, 5]),
            (&[2, 2], Some(&[6, 1]), 4, &[4, 5, 10, 11]),
            (&[3], Some(&[-2]), 4, &[4, 2, 0]),
            (&[2, 3], Some(&[-3, -1]), 5, &[5, 4, 3, 2, 1, 0]),
            (&[2, 2], Some(&[0, 1]), 3, &[3, 4, 3, 4]),
            (&[], None, 7, &[7]),
            (&[1, 2], Some(&[isize::MIN, 1]), 0, &[0, 1]),
        ];
        for (shape, strides, offset, expected) in cases {
            let tensor = foreign(shape, strides, offset).expect("in bounds");
            assert_eq!(tensor.as_slice::<u16>(), Ok(expected), "{shape:?} {strides:?}");
        }
        assert!(foreign(&[0, 3], Some(&[9, 9]), 99).expect("no elements").bytes().is_empty());
    }

    #[test]
    fn elements_outside_are_refused() {
        for (shape, strides, offset) in [
            (&[13][..], None, 0),
            (&[2, 3], None, 7),
            (&[2], Some(&[12][..]), 0),
            (&[2], Some(&[-1]), 0),
            (&[3], Some(&[isize::MAX]), 0),
            (&[2, 2], Some(&[isize::MAX, isize::MIN]), 0),
            (&[2, 2], Some(&[1]), 0),
            (&[1], None, usize::MAX),
            (&[1 << 62, 1 << 62], None, 0),
        ] {
            assert!(foreign(shape, strides, offset).is_err(), "{shape:?} {strides:?} {offset}");
        }
    }
}
