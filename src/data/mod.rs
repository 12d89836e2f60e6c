//! What is streamed: tensors, TensorDicts and the values beside them. It knows neither JSON nor threads nor sockets.

mod device;
mod dict;
mod dtype;
mod equality;
mod error;
mod layout;
mod node;
mod shape;
mod value;

pub use device::Device;
pub use dict::TensorDict;
pub use dtype::{DType, Element};
pub use error::DataError;
pub use shape::{Shape, DIFFERING};
pub use value::{NonTensor, Value};

pub(crate) use equality::same_structure;
pub(crate) use node::{Body, Child, Dict, JaggedLeaf, Leaf, Node, Stack, StackKind, LEAF_ALIGNMENT};
