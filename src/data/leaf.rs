//! [`Leaf`] and [`JaggedLeaf`]: the tensors of a tree.

use super::dtype::DType;
use super::error::DataError;
use super::shape::{Shape, DIFFERING};
use super::view::TensorViewMut;
use crate::storage::Storage;

/// A tensor in a tree.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Need not start with the batch size.
    pub(crate) unbatched: bool,
    /// Where the bytes are; `None`: in the storage of the TensorDict, which is packed.
    pub(crate) storage: Option<Storage>,
    /// The first byte in the storage.
    pub(crate) start: usize,
    /// The bytes without padding.
    pub(crate) len: usize,
}

/// A jagged nested tensor in a tree. On the wire its leaves follow one another in this order.
#[derive(Clone, Debug)]
pub(crate) struct JaggedLeaf {
    pub(crate) values: Leaf,
    pub(crate) lengths: Option<Leaf>,
    pub(crate) offsets: Leaf,
    pub(crate) ragged_index: usize,
}

impl Leaf {
    /// A tensor whose bytes begin at `start` in the packed storage of its TensorDict.
    pub(crate) fn packed(dtype: DType, shape: Shape, start: usize) -> Result<Self, DataError> {
        let len = shape.byte_len(dtype)?;
        Ok(Self { dtype, shape, unbatched: false, storage: None, start, len })
    }

    /// The bytes that the tensor takes in a packed storage: padded to a multiple of 8.
    pub(crate) fn padded_len(&self) -> usize {
        self.len.next_multiple_of(LEAF_ALIGNMENT)
    }

    /// The bytes; `packed` is the storage of the TensorDict, if it is packed.
    pub(crate) fn bytes<'a>(&'a self, packed: Option<&'a Storage>) -> &'a [u8] {
        &self.storage(packed).as_bytes()[self.start..self.start + self.len]
    }

    /// For writing a leaf with a storage of its own. Copies its bytes first if they are shared.
    pub(super) fn own_view_mut(&mut self) -> TensorViewMut<'_> {
        let Self { dtype, shape, storage, start, len, .. } = self;
        let storage = storage.as_mut().expect("the leaf has a storage of its own");
        if !storage.is_unique() {
            // Its own bytes only: the storage may be that of a whole packed TensorDict.
            *storage = Storage::from_bytes(&storage.as_bytes()[*start..*start + *len]);
            *start = 0;
        }
        TensorViewMut { dtype: *dtype, shape, bytes: &mut storage.make_mut()[*start..*start + *len] }
    }

    pub(crate) fn storage<'a>(&'a self, packed: Option<&'a Storage>) -> &'a Storage {
        self.storage.as_ref().or(packed).expect("a leaf without storage is in a packed TensorDict")
    }
}

impl JaggedLeaf {
    /// Checks the parts against each other; the contents of offsets and lengths are values and not looked at.
    pub(crate) fn new(
        values: Leaf,
        lengths: Option<Leaf>,
        offsets: Leaf,
        ragged_index: usize,
    ) -> Result<Self, DataError> {
        let wrong = |reason| Err(DataError::Jagged { reason });
        let is_index = |leaf: &Leaf| matches!(leaf.dtype, DType::Int32 | DType::Int64) && leaf.shape.len() == 1;
        if !is_index(&offsets) || offsets.shape[0] == 0 {
            return wrong("offsets must be int32 or int64 of shape [batch + 1]");
        }
        if lengths.as_ref().is_some_and(|lengths| !is_index(lengths) || lengths.shape[0] + 1 != offsets.shape[0]) {
            return wrong("lengths must be int32 or int64 of shape [batch]");
        }
        if ragged_index == 0 || ragged_index > values.shape.len() {
            return wrong("the ragged index must be a dimension after the first");
        }
        Ok(Self { values, lengths, offsets, ragged_index })
    }

    /// Values, lengths if there are any, offsets.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        [Some(&self.values), self.lengths.as_ref(), Some(&self.offsets)].into_iter().flatten()
    }

    pub(super) fn leaves_mut(&mut self) -> impl Iterator<Item = &mut Leaf> {
        [Some(&mut self.values), self.lengths.as_mut(), Some(&mut self.offsets)].into_iter().flatten()
    }

    /// The shape as Python's nested tensor has it, with [`DIFFERING`] for the ragged dimension.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = vec![self.offsets.shape[0] - 1];
        shape.extend_from_slice(&self.values.shape);
        shape[self.ragged_index] = DIFFERING;
        shape.into()
    }

    pub(super) fn fits(&self, batch_size: &Shape) -> bool {
        self.shape().starts_with(batch_size)
    }
}

/// Tensors in a packed storage begin at multiples of this many bytes.
pub(crate) const LEAF_ALIGNMENT: usize = 8;
