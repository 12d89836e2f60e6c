//! [`Schema`]: what a receiver knows about a message before its bytes arrive.

use std::sync::Arc;

use super::error::DecodeError;
use super::json::{Kind, Number, Reader};
use super::Limits;
use crate::data::{Body, Child, DType, Device, Leaf, Node, Shape};

/// A checked tree, and the bytes of its storage.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    /// Or why it cannot be held, although its messages can be received and dropped.
    pub(super) root: Result<Arc<Node>, DecodeError>,
    pub(super) total_bytes: usize,
    /// Where the sender's storage is.
    pub(super) device: Option<Device>,
}

impl Schema {
    pub(super) fn new(
        root: Arc<Node>,
        total_bytes: usize,
        lone_surrogate: Option<DecodeError>,
        limits: Limits,
    ) -> Result<Self, DecodeError> {
        if total_bytes > limits.storage_bytes {
            return Err(DecodeError::StorageTooLong { len: total_bytes, limit: limits.storage_bytes });
        }
        let root = match lone_surrogate {
            Some(DecodeError::LoneSurrogate { path, .. }) => Err(DecodeError::LoneSurrogate { path, total_bytes }),
            _ => Ok(root),
        };
        Ok(Self { root, total_bytes, device: None })
    }
}

/// Whether two packed trees mean the same bytes: as [`same_structure`](crate::data::same_structure), but the order of
/// the entries does not matter as long as the tensors lie at the same places.
pub(super) fn same_layout(a: &Node, b: &Node) -> bool {
    if a.id() == b.id() {
        return true;
    }
    a.is_locked() == b.is_locked()
        && match (a.body(), b.body()) {
            (Body::Dict(a), Body::Dict(b)) => {
                (&a.batch_size, &a.names, &a.device) == (&b.batch_size, &b.names, &b.device)
                    && a.entries.len() == b.entries.len()
                    && a.entries.iter().all(|(name, a)| b.entries.get(name).is_some_and(|b| same_child(a, b)))
            }
            (Body::Stack(a), Body::Stack(b)) => {
                (a.kind, a.dim, &a.dim_name) == (b.kind, b.dim, &b.dim_name)
                    && a.elements.len() == b.elements.len()
                    && a.elements.iter().zip(&b.elements).all(|(a, b)| same_child(a, b))
            }
            _ => false,
        }
}

fn same_child(a: &Child, b: &Child) -> bool {
    let place = |leaf: &Leaf| (leaf.dtype, leaf.shape.clone(), leaf.start);
    match (a, b) {
        (Child::Tensor(a), Child::Tensor(b)) => place(a) == place(b),
        (Child::Jagged(x), Child::Jagged(y)) => {
            x.ragged_index == y.ragged_index && a.own_leaves().map(place).eq(b.own_leaves().map(place))
        }
        (Child::NonTensor(a), Child::NonTensor(b)) => a == b,
        (Child::Node(a), Child::Node(b)) => same_layout(a, b),
        _ => false,
    }
}

/// Python carries these in name only: they arrive without their scale, and printing one ends the process.
pub(super) fn is_quantised(dtype: DType) -> bool {
    matches!(dtype, DType::QInt8 | DType::QUInt8 | DType::QInt32 | DType::QUInt4x2 | DType::QUInt2x4)
}

impl Reader<'_> {
    /// A size: an integer that is not negative and fits.
    pub(super) fn size(&mut self) -> Result<usize, DecodeError> {
        match self.number()? {
            Number::Int(number) => usize::try_from(number).ok(),
            _ => None,
        }
        .ok_or_else(|| self.error("expected a size before this"))
    }
}

pub(super) fn shape(reader: &mut Reader<'_>) -> Result<Shape, DecodeError> {
    let mut dims = Vec::new();
    reader.list(|reader| reader.size().map(|dim| dims.push(dim)))?;
    Ok(dims.into())
}

/// A string or null.
pub(super) fn text(reader: &mut Reader<'_>) -> Result<Option<String>, DecodeError> {
    match reader.peek()? {
        Kind::Null => reader.null().map(|()| None),
        _ => reader.string().map(|text| Some(text.into_owned())),
    }
}

pub(super) fn device(reader: &mut Reader<'_>) -> Result<Option<Device>, DecodeError> {
    Ok(text(reader)?.map(|label| Device::from(&*label)))
}

pub(super) fn names(reader: &mut Reader<'_>) -> Result<Vec<Option<String>>, DecodeError> {
    let mut names = Vec::new();
    reader.list(|reader| text(reader).map(|name| names.push(name)))?;
    Ok(names)
}
