//! [`Jagged`]: a nested tensor whose rows differ in one dimension.

use std::ops::RangeBounds;

use super::dtype::DType;
use super::error::DataError;
use super::leaf::{JaggedLeaf, Leaf};
use super::shape::Shape;
use super::strided::resolve;
use super::tensor::Tensor;
use super::view::TensorView;
use crate::storage::Storage;

/// A jagged nested tensor: rows of different sizes, stored one after the other. Python's
/// `torch.nested.nested_tensor(..., layout=torch.jagged)`.
///
/// Row `i` is the part `offsets[i]..offsets[i + 1]` of `values` along the ragged dimension, or, if there are lengths,
/// `offsets[i]..offsets[i] + lengths[i]`: then `values` may have holes. The numbers in offsets and lengths are the
/// sender's and not checked until [`row`](Self::row) uses them.
///
/// ```
/// use tensordict_pipe::{Jagged, Tensor};
///
/// let values = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
/// let jagged = Jagged::new(values, Tensor::from(vec![0_i64, 2, 3]))?;
/// assert_eq!(jagged.rows(), 2);
/// assert_eq!(jagged.row(0)?.as_slice::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone)]
pub struct Jagged(
    /// Its leaves have storages of their own.
    pub(super) JaggedLeaf,
);

impl Jagged {
    /// Rows that lie in `values` one after the other along its first dimension; `offsets` (int64 or int32, of shape
    /// `[rows + 1]`) says where they begin.
    ///
    /// # Errors
    /// [`DataError::Jagged`] if the parts do not fit.
    pub fn new(values: Tensor, offsets: Tensor) -> Result<Self, DataError> {
        Self::from_parts(values, None, offsets, 1)
    }

    /// As [`new`](Self::new), with lengths (of shape `[rows]`) and the index of the ragged dimension, which counts the
    /// row dimension: 1 is the first dimension of `values`.
    ///
    /// ```
    /// use tensordict_pipe::Jagged;
    ///
    /// // Rows of one and two elements, with a hole between them.
    /// let (lengths, offsets) = (vec![1_i64, 2], vec![0_i64, 2, 4]);
    /// let jagged = Jagged::from_parts(vec![1_u8, 0, 2, 3].into(), Some(lengths.into()), offsets.into(), 1)?;
    /// assert_eq!(jagged.row(1)?.as_slice::<u8>()?, [2, 3]);
    /// assert_eq!(jagged.view().rows(), 2);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Jagged`] if the parts do not fit.
    pub fn from_parts(
        values: Tensor,
        lengths: Option<Tensor>,
        offsets: Tensor,
        ragged_index: usize,
    ) -> Result<Self, DataError> {
        JaggedLeaf::new(values.0, lengths.map(|lengths| lengths.0), offsets.0, ragged_index).map(Self)
    }

    /// The jagged tensor for reading.
    #[must_use]
    pub fn view(&self) -> JaggedView<'_> {
        JaggedView { leaf: &self.0, storage: None }
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.view().rows()
    }

    /// One row, as [`JaggedView::row`].
    ///
    /// # Errors
    /// As [`JaggedView::row`].
    pub fn row(&self, index: usize) -> Result<Tensor, DataError> {
        self.view().row(index)
    }
}

/// The same parts, bit for bit.
impl PartialEq for Jagged {
    fn eq(&self, other: &Self) -> bool {
        self.view() == other.view()
    }
}

impl Eq for Jagged {}

/// A jagged tensor in a TensorDict (or a [`Jagged`]), for reading.
///
/// ```
/// use tensordict_pipe::{Jagged, DIFFERING};
///
/// let two_rows = Jagged::new(vec![1_i64, 2, 3].into(), vec![0_i64, 1, 3].into())?;
/// let view = two_rows.view();
/// assert_eq!((view.rows(), &view.shape()[..]), (2, &[2, DIFFERING][..]));
/// assert_eq!(view.row(1)?.as_slice::<i64>()?, [2, 3]);
/// assert_eq!(view.values().as_slice::<i64>()?, [1, 2, 3]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Copy)]
pub struct JaggedView<'a> {
    pub(super) leaf: &'a JaggedLeaf,
    pub(super) storage: Option<&'a Storage>,
}

impl<'a> JaggedView<'a> {
    /// The rows, one after the other along the ragged dimension.
    #[must_use]
    pub fn values(&self) -> TensorView<'a> {
        self.part(&self.leaf.values)
    }

    /// The sizes of the rows, if they differ from the distances of the offsets.
    #[must_use]
    pub fn lengths(&self) -> Option<TensorView<'a>> {
        self.leaf.lengths.as_ref().map(|lengths| self.part(lengths))
    }

    /// Where the rows begin in the values, and the end of the last.
    #[must_use]
    pub fn offsets(&self) -> TensorView<'a> {
        self.part(&self.leaf.offsets)
    }

    /// The index of the ragged dimension, 1 or more: it counts the row dimension.
    #[must_use]
    pub fn ragged_index(&self) -> usize {
        self.leaf.ragged_index
    }

    /// The shape, with [`DIFFERING`](super::DIFFERING) for the ragged dimension.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.leaf.shape()
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.leaf.offsets.shape[0] - 1
    }

    /// One row as a tensor. Shares the bytes if the ragged index is 1, else copies them.
    ///
    /// # Errors
    /// [`DataError::Range`] if there is no such row or its offsets lie outside the values; [`DataError::Jagged`] if
    /// they are negative.
    pub fn row(&self, index: usize) -> Result<Tensor, DataError> {
        let rows = self.rows();
        if index >= rows {
            return Err(DataError::Range { start: index, end: index.saturating_add(1), size: rows });
        }
        let start = index_at(self.offsets(), index)?;
        let end = match self.lengths() {
            Some(lengths) => start.saturating_add(index_at(lengths, index)?),
            None => index_at(self.offsets(), index + 1)?,
        };
        self.values().to_tensor().slice(self.leaf.ragged_index - 1, start..end)
    }

    /// Some of the rows. Shares the bytes of the values if the ragged index is 1, else copies them; the offsets begin
    /// at zero again.
    ///
    /// ```
    /// use tensordict_pipe::Jagged;
    ///
    /// let jagged = Jagged::new(vec![1_u8, 2, 3].into(), vec![0_i64, 1, 3].into())?;
    /// let view = jagged.view();
    /// assert_eq!((view.ragged_index(), view.lengths()), (1, None));
    /// assert_eq!(view.offsets().as_slice::<i64>()?, [0, 1, 3]);
    /// assert_eq!(view.slice(1..)?.row(0)?.as_slice::<u8>()?, [2, 3]);
    /// assert_eq!(view.to_jagged(), jagged);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// As [`row`](Self::row).
    pub fn slice(&self, rows: impl RangeBounds<usize>) -> Result<Jagged, DataError> {
        let rows = resolve(rows, self.rows())?;
        let [start, end] = [index_at(self.offsets(), rows.start)?, index_at(self.offsets(), rows.end)?];
        let values = self.values().to_tensor().slice(self.leaf.ragged_index - 1, start..end)?;
        let mut offsets = self.offsets().to_tensor().slice(0, rows.start..=rows.end)?;
        match offsets.dtype() {
            DType::Int32 => {
                offsets.as_slice_mut::<i32>()?.iter_mut().for_each(|offset| *offset = offset.wrapping_sub(start as i32))
            }
            _ => {
                offsets.as_slice_mut::<i64>()?.iter_mut().for_each(|offset| *offset = offset.wrapping_sub(start as i64))
            }
        }
        let lengths = self.lengths().map(|lengths| lengths.to_tensor().slice(0, rows)).transpose()?;
        Jagged::from_parts(values, lengths, offsets, self.leaf.ragged_index)
    }

    /// A jagged tensor that shares the bytes.
    #[must_use]
    pub fn to_jagged(&self) -> Jagged {
        let mut leaf = self.leaf.clone();
        for part in leaf.leaves_mut() {
            part.storage = Some(part.storage(self.storage).clone());
        }
        Jagged(leaf)
    }

    fn part(&self, leaf: &'a Leaf) -> TensorView<'a> {
        TensorView { leaf, storage: leaf.storage(self.storage) }
    }
}

/// The same parts, bit for bit.
impl PartialEq for JaggedView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.ragged_index() == other.ragged_index()
            && self.values() == other.values()
            && self.lengths() == other.lengths()
            && self.offsets() == other.offsets()
    }
}

impl Eq for JaggedView<'_> {}

/// One of the numbers of offsets or lengths.
fn index_at(indices: TensorView<'_>, at: usize) -> Result<usize, DataError> {
    let one = indices.to_tensor().index(0, at)?;
    let index = one.item::<i64>().or_else(|_| one.item::<i32>().map(i64::from))?;
    usize::try_from(index).map_err(|_| DataError::Jagged { reason: "an offset or length is negative" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(end: i64) -> Vec<i64> {
        (0..end).collect()
    }

    #[test]
    fn rows_follow_offsets_lengths_and_the_ragged_index() {
        let values = Tensor::from_slice(&range(20), [10, 2]).expect("sized");
        let offsets = Tensor::from(vec![0_i64, 3, 10]);
        let lengths = Tensor::from(vec![2_i64, 5]);
        let jagged = Jagged::from_parts(values.clone(), Some(lengths), offsets.clone(), 1).expect("fits");
        assert_eq!(jagged.row(1).expect("row").to_vec(), Ok((6..16).collect::<Vec<i64>>()));
        let jagged = Jagged::from_parts(values, None, Tensor::from(vec![0_i32, 1, 2]), 2).expect("fits");
        assert_eq!(jagged.row(0).expect("row").shape()[..], [10, 1]);
        assert_eq!(jagged.view().shape().to_string(), "[2,10,-1]");
        assert!(jagged.row(2).is_err());
    }

    #[test]
    fn parts_are_checked() {
        let values = || Tensor::from(range(4));
        let offsets = || Tensor::from(vec![0_i64, 4]);
        assert!(Jagged::new(values(), Tensor::from(vec![0.0_f32])).is_err());
        assert!(Jagged::new(values(), Tensor::from(range(0))).is_err());
        assert!(Jagged::new(Tensor::scalar(1), offsets()).is_err());
        assert!(Jagged::from_parts(values(), None, offsets(), 0).is_err());
        assert!(Jagged::from_parts(values(), Some(offsets()), offsets(), 1).is_err());
        let wild = Jagged::new(values(), Tensor::from(vec![3_i64, -1, 9, 2])).expect("contents are not looked at");
        assert!((0..3).all(|row| wild.row(row).is_err()));
    }
}
