//! The header of the leaf-by-leaf format: the JSON text before the tensors of one message.
//!
//! ```json
//! {"keys": ["a", ["n", "r"]], "dtypes": ["torch.float32", "torch.float64"], "shapes": [[3, 4], [3, 1]],
//!  "batch_size": [3], "unbatched": [], "non_tensors": [["s", "hello"], ["t", ["a", "b", "c"], [3], 0]]}
//! ```
//!
//! A name inside a nested TensorDict is a list. A value is `[key, value]`, a stack of values is
//! `[key, values, batch size, stack dim]`. The keys are sorted by their names joined with dots.
//!
//! Not carried, as in Python: the batch sizes of nested TensorDicts and values (they become the root's), dimension
//! names, lock flags and device labels. What would vanish as a whole, such as an empty nested TensorDict, is refused.

mod decode;
mod encode;
mod value_stack;

pub(super) use decode::{decode, Header};
pub(super) use encode::encode;
