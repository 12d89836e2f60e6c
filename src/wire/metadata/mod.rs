//! The metadata of a consolidated TensorDict: the JSON text that tells what the bytes of its storage mean.
//!
//! ```json
//! {"cls": "TensorDict",
//!  "non_tensors": {"s": ["hello", [3], null]},            name -> [value, batch_size, device]
//!  "leaves": {"a": ["torch.float32", [3, 4], 0, 48, 0]},  name -> [dtype, shape, start, stop, pad]
//!  "cls_metadata": {"device": null, "names": [null], "batch_size": [3], "is_locked": false},
//!  "n": {...},                                            a nested TensorDict, in the same form
//!  "_total_bytes": 48, "_device": "cpu"}                  at the root, from a pipe
//! ```
//!
//! The text loses how a dict's tensors, values and nested dicts were mixed, but the tensors' places keep most of it:
//! the storage follows the original order. Reading restores it from them, so that the tree is in packed order and
//! writing it again gives the same text.

mod decode;
mod encode;
mod leaf;

pub(super) use decode::decode;
pub(super) use encode::encode;

/// Names of fields, in the order in which they are written.
const CLASS: &str = "cls";
const VALUES: &str = "non_tensors";
const LEAVES: &str = "leaves";
const LABELS: &str = "cls_metadata";
const TOTAL_BYTES: &str = "_total_bytes";
const DEVICE: &str = "_device";
/// Python's files have it, and its receiver ignores it.
const SIZE: &str = "size";

/// The class of a dict; those of stacks are [`StackKind`](crate::data::StackKind)'s.
const DICT: &str = "TensorDict";

/// A jagged tensor `k` is two or three leaves, `<NJT_VALUES>k` and so on.
const JAGGED_VALUES: &str = "<NJT_VALUES>";
const JAGGED_LENGTHS: &str = "<NJT_LENGTHS>";
const JAGGED_OFFSETS: &str = "<NJT_OFFSETS>";
/// Python's receiver refuses it as a leaf.
const JAGGED: &str = "<NJT>";
