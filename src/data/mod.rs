//! What is streamed: tensors, TensorDicts and the values beside them. It knows neither JSON nor threads nor sockets.
//!
//! A [`TensorDict`] is a **structure** and **bytes**. The structure is a tree ([`node`]) that clones share and that a
//! pipe shares between all messages of one schema; the bytes are one storage for all tensors (packed), or one for each
//! (loose). [`layout`] is the order in which they are packed. Everything else is a view of the two: [`TensorView`]
//! and [`Entry`] borrow, [`Tensor`] and [`Item`] own.

mod device;
mod dict;
mod display;
mod dtype;
mod edit;
mod entry;
mod equality;
mod error;
mod index;
mod jagged;
mod join;
mod keys;
mod layout;
mod leaf;
mod macros;
mod node;
mod path;
mod repr;
mod shape;
mod stacks;
mod strided;
mod tensor;
mod value;
mod view;

pub use device::Device;
pub use dict::TensorDict;
pub use dtype::{DType, Element};
pub use entry::{Entry, Item};
pub use error::DataError;
pub use jagged::{Jagged, JaggedView};
pub use path::Path;
pub use shape::{Shape, DIFFERING};
pub use stacks::Kind;
pub use tensor::Tensor;
pub use value::{NonTensor, Value};
pub use view::{TensorView, TensorViewMut};

pub(crate) use equality::same_structure;
pub(crate) use leaf::{JaggedLeaf, Leaf, LEAF_ALIGNMENT};
pub(crate) use node::{Body, Child, Dict, Node, Stack, StackKind};
pub(crate) use path::text as path_text;
