//! A tree to a header.

use super::value_stack;
use crate::data::{Body, Child, Dict, Leaf, Node, Shape};
use crate::wire::error::{EncodeError, KeyPath};
use crate::wire::json::{write_value, Writer};
use crate::wire::limits::MAX_DEPTH;
use crate::wire::schema::is_quantised;

/// A header, and the order in which the tensors follow it.
#[derive(Debug)]
pub(in crate::wire) struct Encoded {
    pub(in crate::wire) json: String,
    /// For each tensor in traversal order, its place among the tensors of the message.
    pub(in crate::wire) ranks: Vec<usize>,
}

/// Writes the header, the same text that Python writes.
pub(in crate::wire) fn encode(root: &Node) -> Result<Encoded, EncodeError> {
    let Body::Dict(dict) = root.body() else {
        return Err(EncodeError::NotALeaf { path: KeyPath::default(), what: "a lazy stack" });
    };
    let mut entries = Entries { batch_size: &dict.batch_size, tensors: Vec::new(), values: Vec::new() };
    entries.collect(dict, &[])?;
    let Entries { mut tensors, mut values, .. } = entries;
    tensors.sort_by_cached_key(|(_, path, _)| path.join("."));
    values.sort_by_cached_key(|(path, _)| path.join("."));

    let mut out = Writer::new();
    out.map(|out| {
        out.key("keys");
        out.list(|out| tensors.iter().for_each(|(_, path, _)| write_path(out, path)));
        out.key("dtypes");
        out.list(|out| tensors.iter().for_each(|(_, _, leaf)| out.string(&leaf.dtype.to_string())));
        out.key("shapes");
        out.list(|out| tensors.iter().for_each(|(_, _, leaf)| out.ints(leaf.shape.iter())));
        out.key("batch_size");
        out.ints(dict.batch_size.iter());
        out.key("unbatched");
        let unbatched = tensors.iter().filter(|(_, _, leaf)| leaf.unbatched);
        out.list(|out| unbatched.for_each(|(_, path, _)| write_path(out, path)));
        out.key("non_tensors");
        out.list(|out| {
            values.iter().try_for_each(|(path, child)| {
                out.list(|out| write_entry(out, path, child)).map_err(|error| inside(error, path))
            })
        })
    })?;
    let mut ranks = vec![0; tensors.len()];
    for (rank, (index, ..)) in tensors.iter().enumerate() {
        ranks[*index] = rank;
    }
    Ok(Encoded { json: out.finish()?, ranks })
}

struct Entries<'a> {
    batch_size: &'a Shape,
    /// With their index in traversal order.
    tensors: Vec<(usize, Vec<&'a str>, &'a Leaf)>,
    values: Vec<(Vec<&'a str>, &'a Child)>,
}

impl<'a> Entries<'a> {
    fn collect(&mut self, dict: &'a Dict, parents: &[&'a str]) -> Result<(), EncodeError> {
        for (name, child) in &dict.entries {
            let mut path = parents.to_vec();
            path.push(name);
            if path.len() > MAX_DEPTH {
                return Err(EncodeError::TooDeep { limit: MAX_DEPTH });
            }
            let refuse = |what| Err(inside(EncodeError::NotALeaf { path: KeyPath::default(), what }, &path));
            match child {
                Child::Tensor(leaf) if is_quantised(leaf.dtype) => {
                    return Err(inside(EncodeError::DType { path: KeyPath::default(), dtype: leaf.dtype }, &path));
                }
                Child::Tensor(leaf) if !leaf.unbatched && !leaf.shape.starts_with(self.batch_size) => {
                    return refuse("a tensor that does not start with the batch size of the root");
                }
                Child::Tensor(leaf) => self.tensors.push((self.tensors.len(), path, leaf)),
                Child::Jagged(_) => return refuse("a jagged tensor"),
                Child::NonTensor(_) => self.values.push((path, child)),
                Child::Node(node) => match node.body() {
                    Body::Dict(dict) if dict.entries.is_empty() => return refuse("an empty TensorDict"),
                    Body::Dict(dict) => self.collect(dict, &path)?,
                    Body::Stack(_) if value_stack::fits(child, self.batch_size) => self.values.push((path, child)),
                    Body::Stack(_) => return refuse("this stack"),
                },
            }
        }
        Ok(())
    }
}

fn write_path(out: &mut Writer, path: &[&str]) {
    match path {
        [name] => out.string(name),
        _ => out.list(|out| path.iter().for_each(|name| out.string(name))),
    }
}

fn write_entry(out: &mut Writer, path: &[&str], child: &Child) -> Result<(), EncodeError> {
    write_path(out, path);
    if let Child::NonTensor(data) = child {
        return write_value(out, data.value());
    }
    write_value(out, &value_stack::to_list(child))?;
    if let Child::Node(node) = child {
        out.ints(node.batch_size().iter());
        if let Body::Stack(stack) = node.body() {
            out.int(stack.dim);
        }
    }
    Ok(())
}

fn inside(error: EncodeError, path: &[&str]) -> EncodeError {
    path.iter().rev().fold(error, |error, name| error.inside(name))
}
