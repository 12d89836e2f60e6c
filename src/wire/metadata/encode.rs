//! A tree to metadata, the same text that Python writes.

use super::{CLASS, DEVICE, DICT, JAGGED, JAGGED_LENGTHS, JAGGED_OFFSETS, JAGGED_VALUES};
use super::{LABELS, LEAVES, SIZE, TOTAL_BYTES, VALUES};
use crate::data::{Body, Child, Dict, Leaf, Node, Stack, LEAF_ALIGNMENT};
use crate::wire::error::{EncodeError, KeyPath};
use crate::wire::json::{write_value, Writer};
use crate::wire::schema::is_quantised;

/// Writes metadata for a pipe (`counted`, that is with `_total_bytes` and `_device`) or for a stateless receiver.
///
/// Refuses what Python's receiver could not read or would lose; each rule was tried against it.
pub(in crate::wire) fn encode(root: &Node, counted: bool) -> Result<String, EncodeError> {
    check_root_names(root, counted)?;
    let mut out = Writer::new();
    out.map(|out| {
        fields(out, root, 0, counted)?;
        if counted {
            out.key(TOTAL_BYTES);
            out.int(root.packed_len());
            out.key(DEVICE);
            out.string("cpu"); // where our storages are, whatever the label of the TensorDict
        }
        Ok(())
    })?;
    out.finish()
}

/// The fields of one dict or stack whose tensors lie from byte `start` on.
fn fields(out: &mut Writer, node: &Node, start: usize, counted: bool) -> Result<(), EncodeError> {
    let entries = Entries::of(node, start);
    out.key(CLASS);
    out.string(match node.body() {
        Body::Dict(_) => DICT,
        Body::Stack(stack) => stack.kind.name(),
    });

    out.key(VALUES);
    out.map(|out| {
        entries.each(|name, child, _| {
            let Child::NonTensor(data) = child else { return Ok(()) };
            out.key(name);
            out.list(|out| {
                write_value(out, data.value())?;
                out.ints(data.batch_size().iter());
                optional(out, data.device().map(ToString::to_string).as_deref());
                Ok(())
            })
        })
    })?;

    out.key(LEAVES);
    out.map(|out| entries.each(|name, child, start| leaves(out, name, child, start)))?;
    if !counted {
        entries.check_stateless()?;
    }

    out.key(LABELS);
    out.map(|out| {
        match node.body() {
            Body::Dict(dict) => dict_labels(out, dict),
            Body::Stack(stack) => stack_labels(out, stack),
        }
        out.key("is_locked");
        out.bool(node.is_locked());
    });

    entries.each(|name, child, start| {
        let Child::Node(node) = child else { return Ok(()) };
        if [CLASS, VALUES, LEAVES, LABELS, SIZE].contains(&name) {
            return Err(EncodeError::ReservedName { path: KeyPath::default() });
        }
        out.key(name);
        out.map(|out| fields(out, node, start, counted))
    })
}

/// What the root has beside the fields of every dict, or what the receiver takes away there.
fn check_root_names(root: &Node, counted: bool) -> Result<(), EncodeError> {
    let lost: &[&str] = if counted { &[TOTAL_BYTES, DEVICE] } else { &[TOTAL_BYTES] };
    match lost.iter().find(|name| matches!(root.child(name), Some(Child::Node(_)))) {
        None => Ok(()),
        Some(name) => Err(EncodeError::ReservedName { path: KeyPath::default() }.inside(name)),
    }
}

fn dict_labels(out: &mut Writer, dict: &Dict) {
    out.key("device");
    optional(out, dict.device.as_ref().map(ToString::to_string).as_deref());
    out.key("names");
    out.list(|out| dict.names.iter().for_each(|name| optional(out, name.as_deref())));
    out.key("batch_size");
    out.ints(dict.batch_size.iter());
}

fn stack_labels(out: &mut Writer, stack: &Stack) {
    out.key("stack_dim");
    out.int(stack.dim);
    out.key("stack_dim_name");
    optional(out, stack.dim_name.as_deref());
}

fn optional(out: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => out.string(text),
        None => out.null(),
    }
}

/// The leaf or leaves of one entry, if it is a tensor.
fn leaves(out: &mut Writer, name: &str, child: &Child, mut start: usize) -> Result<(), EncodeError> {
    match child {
        Child::NonTensor(_) | Child::Node(_) => Ok(()),
        Child::Tensor(tensor) => {
            if [JAGGED, JAGGED_VALUES, JAGGED_LENGTHS, JAGGED_OFFSETS].iter().any(|prefix| name.starts_with(prefix)) {
                return Err(EncodeError::JaggedName { path: KeyPath::default() });
            }
            leaf(out, name, tensor, &mut start, None)
        }
        Child::Jagged(jagged) => {
            // Python's receiver takes the prefix away wherever it stands.
            if name.contains(JAGGED_OFFSETS) {
                return Err(EncodeError::JaggedName { path: KeyPath::default() });
            }
            leaf(out, &format!("{JAGGED_VALUES}{name}"), &jagged.values, &mut start, None)?;
            if let Some(lengths) = &jagged.lengths {
                leaf(out, &format!("{JAGGED_LENGTHS}{name}"), lengths, &mut start, None)?;
            }
            let offsets = format!("{JAGGED_OFFSETS}{name}");
            leaf(out, &offsets, &jagged.offsets, &mut start, Some(jagged.ragged_index))
        }
    }
}

fn leaf(
    out: &mut Writer,
    name: &str,
    leaf: &Leaf,
    start: &mut usize,
    ragged_index: Option<usize>,
) -> Result<(), EncodeError> {
    if !leaf.dtype.is_packable() || is_quantised(leaf.dtype) {
        return Err(EncodeError::DType { path: KeyPath::default(), dtype: leaf.dtype });
    }
    if leaf.unbatched {
        return Err(EncodeError::Unbatched { path: KeyPath::default() });
    }
    let item_size = leaf.dtype.item_size();
    if item_size > LEAF_ALIGNMENT && *start % item_size != 0 {
        return Err(EncodeError::Misaligned { path: KeyPath::default(), start: *start });
    }
    let stop = *start + leaf.padded_len();
    out.key(name);
    out.list(|out| {
        out.string(&leaf.dtype.to_string());
        out.ints(leaf.shape.iter());
        [*start, stop, leaf.padded_len() - leaf.len].into_iter().chain(ragged_index).for_each(|number| out.int(number));
    });
    *start = stop;
    Ok(())
}

/// The children of a node with their names, and where their tensors begin.
struct Entries<'a> {
    node: &'a Node,
    start: usize,
}

impl<'a> Entries<'a> {
    fn of(node: &'a Node, start: usize) -> Self {
        Self { node, start }
    }

    /// Calls `visit` for each child in order; an error in it is given the child's name.
    fn each(
        &self,
        mut visit: impl FnMut(&str, &'a Child, usize) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let mut start = self.start;
        let mut visit = |name: &str, child: &'a Child| {
            let result = visit(name, child, start).map_err(|error| error.inside(name));
            start += packed_len(child);
            result
        };
        match self.node.body() {
            Body::Dict(dict) => dict.entries.iter().try_for_each(|(name, child)| visit(name, child)),
            Body::Stack(stack) => {
                let mut elements = stack.elements.iter().enumerate();
                elements.try_for_each(|(index, child)| visit(&index.to_string(), child))
            }
        }
    }

    /// Python's `recv_tensordict` takes a map with both "cls" and "leaves" in it for a TensorDict, and fails.
    fn check_stateless(&self) -> Result<(), EncodeError> {
        let both = |is: fn(&Child) -> bool| [CLASS, LEAVES].iter().all(|name| self.node.child(name).is_some_and(is));
        if both(|child| matches!(child, Child::Tensor(_))) || both(|child| matches!(child, Child::NonTensor(_))) {
            return Err(EncodeError::ReservedName { path: KeyPath::default() }.inside(LEAVES));
        }
        Ok(())
    }
}

fn packed_len(child: &Child) -> usize {
    match child {
        Child::Node(node) => node.packed_len(),
        _ => child.own_leaves().map(Leaf::padded_len).sum(),
    }
}
