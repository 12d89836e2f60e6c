//! Metadata to a tree that cannot be wrong.

use indexmap::{map::Entry, IndexMap};
use std::borrow::Cow;
use std::sync::Arc;

use super::leaf::{follow, JaggedParts, RawLeaf, Span};
use super::{CLASS, DEVICE, DICT, LABELS, LEAVES, SIZE, TOTAL_BYTES, VALUES};
use crate::data::{Body, Child, Dict, Node, NonTensor, Shape, Stack, StackKind};
use crate::wire::error::{BrokenRule, DecodeError, KeyPath};
use crate::wire::json::{read_value, Kind, Reader};
use crate::wire::schema::{device, names, shape, text, Schema};
use crate::wire::Limits;

/// Reads metadata, from a pipe (`counted`, that is with `_total_bytes`) or from a stateless sender.
///
/// Every rule is checked: the tree is packed from byte 0 to `total_bytes` without gap or overlap, and its storage is
/// within the limits.
pub(in crate::wire) fn decode(json: &[u8], counted: bool, limits: Limits) -> Result<Schema, DecodeError> {
    let mut reader = Reader::new(json, limits)?;
    let mut root = Part::default();
    let (mut total, mut sender_device) = (None, None);
    reader.map(|reader, key| match (&*key, reader.peek()?) {
        (TOTAL_BYTES, Kind::Number) => once(&mut total, TOTAL_BYTES, reader.size()?),
        (DEVICE, Kind::Str) => once(&mut sender_device, DEVICE, device(reader)?),
        _ => root.field(reader, key),
    })?;
    reader.end()?;
    root.note_surrogate(&mut reader, None);
    let lone_surrogate = root.lone_surrogate.take();
    let (node, span) = root.build()?;

    let Span { start, stop: end } = span.unwrap_or_default();
    if start != 0 {
        return Err(BrokenRule::Place { expected: 0, found: start }.into());
    }
    if counted && total.is_none() {
        return Err(BrokenRule::Missing { field: TOTAL_BYTES }.into());
    }
    let declared = total.unwrap_or(end);
    if declared != end {
        return Err(DecodeError::TotalBytes { declared, end });
    }
    debug_assert_eq!(node.check_packed(), Some(end));
    let schema = Schema::new(node, end, lone_surrogate, limits)?;
    Ok(Schema { device: sender_device.flatten(), ..schema })
}

/// A TensorDict or stack while its fields are read.
#[derive(Debug, Default)]
struct Part<'a> {
    class: Option<Cow<'a, str>>,
    labels: Option<Labels>,
    values: Option<Vec<(String, Child)>>,
    placed: Vec<Placed>,
    /// Where the nested dict read last ends.
    nested_end: usize,
    has_leaves: bool,
    lone_surrogate: Option<DecodeError>,
}

/// An entry with tensors, or a nested dict.
#[derive(Debug)]
struct Placed {
    name: String,
    child: Child,
    /// A nested dict may have no tensors.
    span: Option<Span>,
    /// Where it stood in the original order: at its place, or after the nested dict before it.
    order: Span,
}

impl<'a> Part<'a> {
    fn field(&mut self, reader: &mut Reader<'a>, key: Cow<'a, str>) -> Result<(), DecodeError> {
        match (&*key, reader.peek()?) {
            (CLASS, _) => once(&mut self.class, CLASS, reader.string()?),
            (LABELS, _) => once(&mut self.labels, LABELS, Labels::read(reader)?),
            (VALUES, _) => {
                let values = self.values(reader)?;
                once(&mut self.values, VALUES, values)
            }
            (LEAVES, _) if self.has_leaves => Err(BrokenRule::Repeated { name: LEAVES.to_owned() }.into()),
            (LEAVES, _) => self.leaves(reader),
            (SIZE, Kind::Number) => reader.number().map(drop),
            (_, Kind::Map) => self.nested(reader, key),
            _ => Err(BrokenRule::Unknown { field: key.into_owned() }.into()),
        }
    }

    fn nested(&mut self, reader: &mut Reader<'a>, key: Cow<'a, str>) -> Result<(), DecodeError> {
        reader.count_entry()?;
        self.note_surrogate(reader, Some(&key));
        let mut part = Part::default();
        let read = reader.map(|reader, key| part.field(reader, key));
        part.note_surrogate(reader, None);
        let surrogate = part.lone_surrogate.take();
        let (node, span) = read.and_then(|()| part.build()).map_err(|error| error.inside(&key))?;
        if self.lone_surrogate.is_none() {
            self.lone_surrogate = surrogate.map(|error| error.inside(&key));
        }
        let order = span.unwrap_or(Span { start: self.nested_end, stop: self.nested_end });
        self.nested_end = order.stop;
        self.placed.push(Placed { name: key.into_owned(), child: Child::Node(node), span, order });
        Ok(())
    }

    fn values(&mut self, reader: &mut Reader<'a>) -> Result<Vec<(String, Child)>, DecodeError> {
        let mut values = Vec::new();
        reader.map(|reader, key| {
            let value = read_non_tensor(reader).map_err(|error| error.inside(&key))?;
            self.note_surrogate(reader, Some(&key));
            values.push((key.into_owned(), Child::NonTensor(Arc::new(value))));
            Ok::<_, DecodeError>(())
        })?;
        Ok(values)
    }

    fn leaves(&mut self, reader: &mut Reader<'a>) -> Result<(), DecodeError> {
        self.has_leaves = true;
        let mut jagged = JaggedParts::default();
        reader.map(|reader, key| {
            reader.count_entry()?;
            let leaf = RawLeaf::read(reader).map_err(|error| error.inside(&key))?;
            self.note_surrogate(reader, Some(&key));
            let placed = match jagged.take(&key, leaf).map_err(|error| error.inside(&key))? {
                None => return Ok(()),
                Some((name, child, span)) => Placed { name: name.to_owned(), child, span: Some(span), order: span },
            };
            self.placed.push(placed);
            Ok::<_, DecodeError>(())
        })?;
        if jagged.is_incomplete() {
            return Err(BrokenRule::JaggedParts.into());
        }
        Ok(())
    }

    /// Remembers the first lone surrogate, as one in the entry `key` or in the labels of this dict.
    fn note_surrogate(&mut self, reader: &mut Reader<'_>, key: Option<&str>) {
        if reader.take_lone_surrogate() && self.lone_surrogate.is_none() {
            let error = DecodeError::LoneSurrogate { path: KeyPath::default(), total_bytes: 0 };
            self.lone_surrogate = Some(key.into_iter().fold(error, DecodeError::inside));
        }
    }

    /// The node, and the place of its tensors if it has any.
    fn build(self) -> Result<(Arc<Node>, Option<Span>), DecodeError> {
        let class = self.class.ok_or(BrokenRule::Missing { field: CLASS })?;
        let labels = self.labels.ok_or(BrokenRule::Missing { field: LABELS })?;
        let values = self.values.ok_or(BrokenRule::Missing { field: VALUES })?;
        if !self.has_leaves {
            return Err(BrokenRule::Missing { field: LEAVES }.into());
        }
        let locked = labels.is_locked.unwrap_or(false);
        let (body, span) = match &*class {
            DICT => labels.dict(values, self.placed)?,
            class => {
                let kind = [StackKind::Lazy, StackKind::NonTensor].into_iter().find(|kind| kind.name() == class);
                let kind = kind.ok_or_else(|| BrokenRule::Class { class: class.to_owned() })?;
                labels.stack(kind, values, self.placed)?
            }
        };
        Ok((Arc::new(Node::new(locked, body)), span))
    }
}

/// `cls_metadata`: the first three belong to a dict, the last two to a stack.
#[derive(Debug, Default)]
struct Labels {
    is_locked: Option<bool>,
    batch_size: Option<Shape>,
    names: Option<Vec<Option<String>>>,
    device: Option<Option<crate::data::Device>>,
    stack_dim: Option<usize>,
    stack_dim_name: Option<Option<String>>,
}

impl Labels {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut labels = Self::default();
        reader.map(|reader, key| match &*key {
            "is_locked" => once(&mut labels.is_locked, "is_locked", reader.bool()?),
            "batch_size" => once(&mut labels.batch_size, "batch_size", shape(reader)?),
            "names" => once(&mut labels.names, "names", names(reader)?),
            "device" => once(&mut labels.device, "device", device(reader)?),
            "stack_dim" => once(&mut labels.stack_dim, "stack_dim", reader.size()?),
            "stack_dim_name" => once(&mut labels.stack_dim_name, "stack_dim_name", text(reader)?),
            _ => Err(BrokenRule::Unknown { field: key.into_owned() }.into()),
        })?;
        Ok(labels)
    }

    fn dict(self, values: Vec<(String, Child)>, mut placed: Vec<Placed>) -> Result<(Body, Option<Span>), DecodeError> {
        if self.stack_dim.is_some() || self.stack_dim_name.is_some() {
            return Err(BrokenRule::Unknown { field: "stack_dim".to_owned() }.into());
        }
        let batch_size = self.batch_size.ok_or(BrokenRule::Missing { field: "batch_size" })?;
        let names = self.names.ok_or(BrokenRule::Missing { field: "names" })?;
        placed.sort_by_key(|entry| entry.order);
        let span = joined(&placed)?;

        let mut entries = IndexMap::with_capacity(values.len() + placed.len());
        let children = placed.into_iter().map(|entry| (entry.name, entry.child));
        for (name, child) in values.into_iter().chain(children) {
            match entries.entry(name) {
                Entry::Vacant(place) => drop(place.insert(child)),
                Entry::Occupied(place) => return Err(BrokenRule::Repeated { name: place.key().clone() }.into()),
            }
        }
        let dict = Dict::new(batch_size, names, self.device.flatten(), entries)?;
        Ok((Body::Dict(dict), span))
    }

    fn stack(
        self,
        kind: StackKind,
        values: Vec<(String, Child)>,
        placed: Vec<Placed>,
    ) -> Result<(Body, Option<Span>), DecodeError> {
        if self.batch_size.is_some() || self.names.is_some() || self.device.is_some() {
            return Err(BrokenRule::Unknown { field: "batch_size".to_owned() }.into());
        }
        let dim = self.stack_dim.ok_or(BrokenRule::Missing { field: "stack_dim" })?;
        let count = values.len() + placed.len();
        let mut elements: Vec<Option<Placed>> = Vec::new();
        elements.resize_with(count, || None);
        let values = values.into_iter().map(|(name, child)| Placed { name, child, span: None, order: Span::default() });
        for element in values.chain(placed) {
            let index = element.name.parse().ok().filter(|index: &usize| index.to_string() == element.name);
            match index.and_then(|index| elements.get_mut(index)) {
                Some(slot @ None) => *slot = Some(element),
                Some(Some(_)) => return Err(BrokenRule::Repeated { name: element.name }.into()),
                None => return Err(BrokenRule::Element { name: element.name }.into()),
            }
        }
        // As many names as slots, none twice and none beyond: every slot is taken.
        let elements: Vec<Placed> = elements.into_iter().flatten().collect();
        let span = joined(&elements)?;
        let children = elements.into_iter().map(|element| element.child).collect();
        let stack = Stack::new(kind, dim, self.stack_dim_name.flatten(), children)?;
        Ok((Body::Stack(stack), span))
    }
}

fn joined(entries: &[Placed]) -> Result<Option<Span>, DecodeError> {
    let mut whole: Option<Span> = None;
    for entry in entries {
        whole = follow([whole, entry.span]).map_err(|error| error.inside(&entry.name))?;
    }
    Ok(whole)
}

/// `["value", [batch size], device]`
fn read_non_tensor(reader: &mut Reader<'_>) -> Result<NonTensor, DecodeError> {
    let (mut value, mut batch_size, mut label, mut count) = (None, None, None, 0);
    reader.list(|reader| {
        match count {
            0 => value = Some(read_value(reader)?),
            1 => batch_size = Some(shape(reader)?),
            2 => label = Some(device(reader)?),
            _ => return Err(reader.error("expected [value, batch size, device]")),
        }
        count += 1;
        Ok::<_, DecodeError>(())
    })?;
    let (Some(value), Some(batch_size), Some(device)) = (value, batch_size, label) else {
        return Err(reader.error("expected [value, batch size, device]"));
    };
    Ok(NonTensor { value, batch_size, device })
}

fn once<T>(slot: &mut Option<T>, field: &'static str, value: T) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(BrokenRule::Repeated { name: field.to_owned() }.into()),
    }
}
