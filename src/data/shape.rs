//! [`Shape`]: the sizes of a tensor's dimensions.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::dtype::DType;
use super::error::DataError;

/// The size that [`TensorDict::batch_size`](super::TensorDict::batch_size) of a lazy stack gives for a dimension in
/// which its elements differ, and the shape of a [`JaggedView`](super::JaggedView). Printed as `-1`, as in Python.
pub const DIFFERING: usize = usize::MAX;

/// Ranks up to this one need no heap.
const INLINE: usize = 6;

/// The sizes of the dimensions, outermost first; `[]` is a scalar. Reads as a slice.
///
/// Up to six dimensions are kept inline, so a clone makes no heap allocation.
///
/// ```
/// use tensordict_pipe::Shape;
///
/// let shape = Shape::from([3, 4]);
/// assert_eq!(shape.len(), 2);
/// assert_eq!(shape[1], 4);
/// assert_eq!(shape.element_count(), Some(12));
/// ```
#[derive(Clone)]
pub struct Shape(Dims);

#[derive(Clone)]
enum Dims {
    Inline { rank: u8, dims: [usize; INLINE] },
    Shared(Arc<[usize]>),
}

impl Shape {
    /// The shape of a scalar, `[]`.
    pub const SCALAR: Self = Self(Dims::Inline { rank: 0, dims: [0; INLINE] });

    /// The number of elements, or `None` if it does not fit a `usize`.
    #[must_use]
    pub fn element_count(&self) -> Option<usize> {
        if self.contains(&0) {
            return Some(0);
        }
        self.iter().try_fold(1_usize, |count, &dim| count.checked_mul(dim))
    }

    /// The bytes of a tensor of this shape.
    pub(crate) fn byte_len(&self, dtype: DType) -> Result<usize, DataError> {
        self.element_count()
            .and_then(|count| count.checked_mul(dtype.item_size()))
            .filter(|&len| len <= isize::MAX as usize - 64)
            .ok_or_else(|| DataError::TooLarge { dtype, shape: Box::new(self.clone()) })
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match &self.0 {
            Dims::Inline { rank, dims } => &dims[..usize::from(*rank)],
            Dims::Shared(dims) => dims,
        }
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        if sizes.len() > INLINE {
            return Self(Dims::Shared(sizes.into()));
        }
        let mut dims = [0; INLINE];
        dims[..sizes.len()].copy_from_slice(sizes);
        Self(Dims::Inline { rank: sizes.len() as u8, dims })
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        sizes.as_slice().into()
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(sizes: &[usize; N]) -> Self {
        sizes.as_slice().into()
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Self {
        sizes.as_slice().into()
    }
}

impl From<&Self> for Shape {
    fn from(shape: &Self) -> Self {
        shape.clone()
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Self {
        sizes.into_iter().collect::<Vec<_>>().into()
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::SCALAR
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Shape {}

impl std::hash::Hash for Shape {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `[3,4]`, as in the repr of a Python TensorDict.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, &dim) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match dim {
                DIFFERING => write!(f, "{comma}-1")?,
                _ => write!(f, "{comma}{dim}")?,
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_ranks_behave_as_low_ones() {
        for rank in 0..10 {
            let dims: Vec<usize> = (1..=rank).collect();
            let shape = Shape::from(dims.clone());
            assert_eq!(&*shape, dims.as_slice());
            assert_eq!(shape, shape.clone());
            assert_eq!(shape.element_count(), Some(dims.iter().product()));
        }
    }

    #[test]
    fn the_element_count_never_wraps() {
        assert_eq!(Shape::from([1 << 32, 1 << 32]).element_count(), None);
        assert_eq!(Shape::from([(1 << 63) + 2, 2]).element_count(), None);
        assert_eq!(Shape::from([1 << 32, 1 << 32, 0]).element_count(), Some(0));
        assert!(Shape::from([1 << 62]).byte_len(DType::Float64).is_err());
    }

    #[test]
    fn prints_as_python() {
        assert_eq!(Shape::from([2, DIFFERING]).to_string(), "[2,-1]");
        assert_eq!(Shape::SCALAR.to_string(), "[]");
    }
}
