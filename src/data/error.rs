//! [`DataError`]: what can be wrong with a tensor or a TensorDict.

use super::dtype::DType;
use super::shape::Shape;

/// What an operation on tensors or TensorDicts refused, with what was expected and what was found.
///
/// ```
/// use tensordict_pipe::{tensordict, DType, DataError};
///
/// let td = tensordict!([]; "obs" => vec![1.0_f32])?;
/// match td.get("obs")?.as_slice::<i64>() {
///     Err(DataError::DType { expected, found }) => assert_eq!((expected, found), (DType::Int64, DType::Float32)),
///     other => panic!("{other:?}"),
/// }
/// println!("{}", td.get("observation").unwrap_err()); // names the entry
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No dtype of torch has this name.
    #[error("unknown dtype {name:?}")]
    UnknownDType {
        /// The name that was given.
        name: String,
    },
    /// The size in bytes does not fit the address space.
    #[error("a {dtype} tensor of shape {shape} is larger than the address space")]
    TooLarge {
        /// The dtype of the tensor.
        dtype: DType,
        /// The shape of the tensor.
        shape: Box<Shape>,
    },
    /// The number of elements or bytes does not fit the shape.
    #[error("expected {expected} {unit}, found {found}")]
    Length {
        /// `"elements"` or `"bytes"`.
        unit: &'static str,
        /// What the shape asks for.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// A tensor was read or combined as another dtype than it has.
    #[error("expected {expected}, found {found}")]
    DType {
        /// The dtype that was asked for.
        expected: DType,
        /// The dtype of the tensor.
        found: DType,
    },
    /// The bytes do not start on a boundary of the element type; read them by copy.
    #[error("the bytes of this {dtype} tensor are misaligned; read them by copy (`to_vec`)")]
    Misaligned {
        /// The dtype of the tensor.
        dtype: DType,
    },
    /// A bool tensor holds a byte that is neither 0 nor 1.
    #[error("a bool tensor holds a byte other than 0 and 1")]
    InvalidBool,
    /// A shape, size or stride does not fit what is done with it.
    #[error("{operation}: expected {expected}, found {found}")]
    Shape {
        /// What was attempted.
        operation: &'static str,
        /// The shape that fits.
        expected: Box<Shape>,
        /// The shape that was given.
        found: Box<Shape>,
    },
    /// A tensor's shape does not start with the batch size.
    #[error("{name}: the shape {shape} does not start with the batch size {batch_size}")]
    BatchSize {
        /// The name of the entry.
        name: String,
        /// The shape of the entry.
        shape: Box<Shape>,
        /// The batch size of the TensorDict.
        batch_size: Box<Shape>,
    },
    /// A dimension that does not exist.
    #[error("dimension {dim} is out of range for {rank} dimensions")]
    Dim {
        /// The dimension that was given.
        dim: usize,
        /// How many there are.
        rank: usize,
    },
    /// An index or range that a dimension does not have.
    #[error("{start}..{end} is out of range for a dimension of size {size}")]
    Range {
        /// The first index.
        start: usize,
        /// The index after the last.
        end: usize,
        /// The size of the dimension.
        size: usize,
    },
    /// Nothing stands under the path.
    #[error("no entry {path}")]
    NotFound {
        /// The path, written as in Python.
        path: String,
    },
    /// Something else stands under the path than was asked for.
    #[error("{path} is {found}, not {expected}")]
    Kind {
        /// The path, written as in Python.
        path: String,
        /// What was asked for.
        expected: &'static str,
        /// What stands there.
        found: &'static str,
    },
    /// A path without names.
    #[error("the path is empty")]
    EmptyPath,
    /// A name that is taken already.
    #[error("two entries would have the name {name}")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The TensorDict is locked: its values can be written, its structure cannot be changed.
    #[error("the TensorDict is locked; call unlock() before changing its structure")]
    Locked,
    /// The parts of a jagged tensor do not fit each other.
    #[error("jagged tensor: {reason}")]
    Jagged {
        /// What does not fit.
        reason: &'static str,
    },
    /// The elements of a stack do not fit each other, or there are none.
    #[error("{operation}: {reason}")]
    Stack {
        /// What was attempted.
        operation: &'static str,
        /// What does not fit.
        reason: String,
    },
}

impl DataError {
    pub(super) fn shape(operation: &'static str, expected: &Shape, found: &Shape) -> Self {
        Self::Shape { operation, expected: Box::new(expected.clone()), found: Box::new(found.clone()) }
    }

    pub(super) fn batch_size(name: &str, shape: &Shape, batch_size: &Shape) -> Self {
        let [shape, batch_size] = [shape, batch_size].map(|shape| Box::new(shape.clone()));
        Self::BatchSize { name: name.to_owned(), shape, batch_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small() {
        assert!(size_of::<DataError>() <= 64, "{}", size_of::<DataError>());
    }
}
