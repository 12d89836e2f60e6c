//! JSON as Python's `json` module speaks it.
//!
//! That is a superset of JSON: `NaN` and the infinities, integers of any size, and lone surrogates such as `\ud800` in
//! strings. No reader that we know of takes all three (`serde_json` takes none, `jiter` not the last), and a message
//! that any Python program may send must not stop a pipe; hence this one.

mod reader;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub(super) use reader::{Kind, Number, Reader};
pub(super) use value::{read_value, write_value};
pub(super) use writer::Writer;
