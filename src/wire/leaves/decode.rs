//! A header to a tree and the lengths of the messages that follow.

use indexmap::{map::Entry, IndexMap};
use std::collections::HashSet;
use std::sync::Arc;

use super::value_stack;
use crate::data::{Body, Child, DType, Dict, Leaf, Node, NonTensor, Shape, Value};
use crate::wire::error::{BrokenRule, DecodeError, KeyPath};
use crate::wire::json::{read_value, Kind, Reader};
use crate::wire::schema::{shape, Schema};
use crate::wire::Limits;

/// What follows a header.
#[derive(Debug, Clone)]
pub(in crate::wire) struct Header {
    /// The tree; the tensor with the n-th message has `start == n` and no storage yet.
    pub(in crate::wire) schema: Schema,
    /// The length of each tensor.
    pub(in crate::wire) lens: Vec<usize>,
}

type Path = Vec<String>;

/// Reads a header and checks every rule.
pub(in crate::wire) fn decode(json: &[u8], limits: Limits) -> Result<Header, DecodeError> {
    let mut reader = Reader::new(json, limits)?;
    let mut fields = Fields { depth: limits.depth, ..Fields::default() };
    reader.map(|reader, key| fields.field(reader, &key))?;
    reader.end()?;
    fields.build(limits)
}

/// The fields; the last three were added later, and older senders leave them out.
#[derive(Debug, Default)]
struct Fields {
    depth: usize,
    keys: Option<Vec<Path>>,
    dtypes: Option<Vec<DType>>,
    shapes: Option<Vec<Shape>>,
    batch_size: Option<Shape>,
    unbatched: Option<Vec<Path>>,
    values: Option<Vec<ValueEntry>>,
    lone_surrogate: Option<Path>,
}

#[derive(Debug)]
struct ValueEntry {
    path: Path,
    value: Value,
    /// Batch size and dimension, if it is a stack.
    stack: Option<(Shape, usize)>,
}

impl Fields {
    fn field(&mut self, reader: &mut Reader<'_>, key: &str) -> Result<(), DecodeError> {
        let repeated = match key {
            "keys" => {
                let paths = self.paths(reader)?;
                self.keys.replace(paths).is_some()
            }
            "dtypes" => self.dtypes.replace(collect(reader, |reader| Ok(reader.string()?.parse()?))?).is_some(),
            "shapes" => self.shapes.replace(collect(reader, shape)?).is_some(),
            "batch_size" => self.batch_size.replace(shape(reader)?).is_some(),
            "unbatched" => {
                let paths = self.paths(reader)?;
                self.unbatched.replace(paths).is_some()
            }
            "non_tensors" => {
                let depth = self.depth;
                let values = self.entries(reader, |reader| value_entry(reader, depth), |entry| &entry.path)?;
                self.values.replace(values).is_some()
            }
            _ => return Err(BrokenRule::Unknown { field: key.to_owned() }.into()),
        };
        if reader.take_lone_surrogate() {
            self.lone_surrogate.get_or_insert_with(|| vec![key.to_owned()]);
        }
        match repeated {
            false => Ok(()),
            true => Err(BrokenRule::Repeated { name: key.to_owned() }.into()),
        }
    }

    fn paths(&mut self, reader: &mut Reader<'_>) -> Result<Vec<Path>, DecodeError> {
        let depth = self.depth;
        self.entries(reader, |reader| path(reader, depth), |path| path)
    }

    /// A list of entries, of which the first with a lone surrogate is remembered by its path.
    fn entries<T>(
        &mut self,
        reader: &mut Reader<'_>,
        read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
        path: impl Fn(&T) -> &Path,
    ) -> Result<Vec<T>, DecodeError> {
        collect(reader, |reader| {
            let entry = read(reader)?;
            if reader.take_lone_surrogate() {
                self.lone_surrogate.get_or_insert_with(|| path(&entry).clone());
            }
            Ok(entry)
        })
    }

    fn build(self, limits: Limits) -> Result<Header, DecodeError> {
        let keys = self.keys.ok_or(BrokenRule::Missing { field: "keys" })?;
        let dtypes = self.dtypes.ok_or(BrokenRule::Missing { field: "dtypes" })?;
        let shapes = self.shapes.ok_or(BrokenRule::Missing { field: "shapes" })?;
        if keys.len() != dtypes.len() || keys.len() != shapes.len() {
            let (keys, dtypes, shapes) = (keys.len(), dtypes.len(), shapes.len());
            return Err(BrokenRule::Lists { keys, dtypes, shapes }.into());
        }
        let batch_size = self.batch_size.unwrap_or_default();
        let mut unbatched: HashSet<Path> = self.unbatched.unwrap_or_default().into_iter().collect();

        let mut root = Tree::default();
        let mut lens = Vec::with_capacity(keys.len());
        let mut total = 0_usize;
        for (index, ((path, dtype), shape)) in keys.into_iter().zip(dtypes).zip(shapes).enumerate() {
            let mut leaf = Leaf::packed(dtype, shape, index).map_err(|error| inside(error.into(), &path))?;
            leaf.unbatched = unbatched.remove(&path);
            lens.push(leaf.len);
            total = total.saturating_add(leaf.len);
            root.insert(path, Child::Tensor(leaf))?;
        }
        if let Some(path) = unbatched.into_iter().next() {
            return Err(inside(BrokenRule::Unknown { field: "unbatched".to_owned() }.into(), &path));
        }
        for entry in self.values.unwrap_or_default() {
            let child = entry.child(&batch_size).map_err(|(error, path)| inside(error, &path))?;
            root.insert(child.0, child.1)?;
        }
        let root = root.build(&batch_size)?;
        let lone_surrogate =
            self.lone_surrogate.map(|path| DecodeError::LoneSurrogate { path: KeyPath(path), total_bytes: 0 });
        Ok(Header { schema: Schema::new(root, total, lone_surrogate, limits)?, lens })
    }
}

impl ValueEntry {
    fn child(self, batch_size: &Shape) -> Result<(Path, Child), (DecodeError, Path)> {
        let Some((sizes, dim)) = self.stack else {
            let data = NonTensor::new(self.value).with_batch_size(batch_size);
            return Ok((self.path, Child::NonTensor(Arc::new(data))));
        };
        if !sizes.starts_with(batch_size) {
            return Err((BrokenRule::StackValues.into(), self.path));
        }
        match value_stack::from_list(self.value, &sizes, dim) {
            Ok(child) => Ok((self.path, child)),
            Err(error) => Err((error, self.path)),
        }
    }
}

/// A dict while it is put together from paths.
#[derive(Debug, Default)]
struct Tree(IndexMap<String, Branch>);

#[derive(Debug)]
enum Branch {
    Leaf(Child),
    Tree(Tree),
}

impl Tree {
    fn insert(&mut self, path: Path, child: Child) -> Result<(), DecodeError> {
        let repeated = |path: &[String]| {
            let name = path.last().cloned().unwrap_or_default();
            Err(inside(BrokenRule::Repeated { name }.into(), path))
        };
        let mut tree = self;
        for (level, name) in path.iter().enumerate() {
            let last = level + 1 == path.len();
            tree = match tree.0.entry(name.clone()) {
                Entry::Vacant(place) if last => {
                    place.insert(Branch::Leaf(child));
                    return Ok(());
                }
                Entry::Vacant(place) => match place.insert(Branch::Tree(Self::default())) {
                    Branch::Tree(tree) => tree,
                    Branch::Leaf(_) => return repeated(&path),
                },
                Entry::Occupied(place) => match place.into_mut() {
                    Branch::Tree(tree) if !last => tree,
                    _ => return repeated(&path),
                },
            };
        }
        Ok(())
    }

    fn build(self, batch_size: &Shape) -> Result<Arc<Node>, DecodeError> {
        let mut entries = IndexMap::with_capacity(self.0.len());
        for (name, branch) in self.0 {
            let child = match branch {
                Branch::Leaf(child) => child,
                Branch::Tree(tree) => Child::Node(tree.build(batch_size).map_err(|error| error.inside(&name))?),
            };
            entries.insert(name, child);
        }
        let dict = Dict::new(batch_size.clone(), vec![None; batch_size.len()], None, entries)?;
        Ok(Arc::new(Node::new(false, Body::Dict(dict))))
    }
}

fn value_entry(reader: &mut Reader<'_>, depth: usize) -> Result<ValueEntry, DecodeError> {
    let (mut key, mut value, mut sizes, mut dim, mut count) = (None, None, None, None, 0);
    reader.list(|reader| {
        match count {
            0 => key = Some(path(reader, depth)?),
            1 => value = Some(read_value(reader)?),
            2 => sizes = Some(shape(reader)?),
            3 => dim = Some(reader.size()?),
            _ => return Err(reader.error("expected [key, value] or [key, values, batch size, dim]")),
        }
        count += 1;
        Ok::<_, DecodeError>(())
    })?;
    match (key, value, sizes, dim) {
        (Some(path), Some(value), None, None) => Ok(ValueEntry { path, value, stack: None }),
        (Some(path), Some(value), Some(sizes), Some(dim)) => Ok(ValueEntry { path, value, stack: Some((sizes, dim)) }),
        _ => Err(reader.error("expected [key, value] or [key, values, batch size, dim]")),
    }
}

/// A name, or a list of names.
fn path(reader: &mut Reader<'_>, depth: usize) -> Result<Path, DecodeError> {
    reader.count_entry()?;
    if reader.peek()? == Kind::Str {
        return Ok(vec![reader.string()?.into_owned()]);
    }
    let path = collect(reader, |reader| Ok(reader.string()?.into_owned()))?;
    if path.is_empty() {
        return Err(reader.error("an empty key"));
    }
    if path.len() > depth {
        return Err(DecodeError::TooDeep { limit: depth });
    }
    Ok(path)
}

fn collect<'a, T>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    reader.list(|reader| item(reader).map(|item| items.push(item)))?;
    Ok(items)
}

fn inside(error: DecodeError, path: &[String]) -> DecodeError {
    path.iter().rev().fold(error, |error, name| error.inside(name))
}
