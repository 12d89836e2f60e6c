//! How a [`TensorDict`] is changed: entries, batch size, dimension names, device and lock.
//!
//! A change of structure makes the TensorDict loose first and gives every changed node a new id.

use indexmap::IndexMap;
use std::sync::Arc;

use super::device::Device;
use super::dict::{wrong_kind, TensorDict};
use super::entry::Item;
use super::equality::same_child;
use super::error::DataError;
use super::node::{Body, Child, Dict, Node};
use super::path::{self, Path};
use super::shape::Shape;
use super::view::check_len;

impl TensorDict {
    /// Puts an entry under the path: in the place of what stands there, else at the end. Nested TensorDicts on the way
    /// are made as needed, with the same batch size.
    ///
    /// What is inserted fits itself to the TensorDict, as in Python: a nested TensorDict or non-tensor whose batch size
    /// does not start with this one's takes this one's, and nested ones take its dimension names and device.
    ///
    /// Replacing a tensor of a loose TensorDict by one of the same dtype and shape is not a change of structure: a
    /// pipe sends no new metadata.
    ///
    /// # Errors
    /// * [`DataError::BatchSize`]: the shape does not start with the batch size.
    /// * [`DataError::Locked`].
    /// * [`DataError::Kind`]: something else than a TensorDict stands on the way.
    /// * [`DataError::Stack`]: the parent is a stack.
    /// * [`DataError::EmptyPath`].
    pub fn insert(&mut self, path: impl Path, item: impl Into<Item>) -> Result<(), DataError> {
        let mut child = item.into().into_child();
        path.with_names(|names| {
            let (depth, parent) = self.insertion_point(names)?;
            child.adapt(names[names.len() - 1], parent)?;
            for name in names[depth + 1..].iter().rev() {
                child = parent.nest(name, child);
            }
            let same = parent.entries.get(names[depth]).is_some_and(|old| same_child(old, &child));
            self.entries_mut(&names[..depth], !same).insert(names[depth].to_owned(), child);
            Ok(())
        })
    }

    /// Takes the entry under the path out; the order of the others stays.
    ///
    /// ```
    /// use tensordict_pipe::tensordict;
    ///
    /// let mut td = tensordict!([]; "a" => vec![1_u8], "b" => "text")?;
    /// td.rename("a", ("nested", "c"))?;
    /// td.remove("b")?;
    /// assert!(td.len() == 1 && !td.is_empty() && td.contains(("nested", "c")));
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// * [`DataError::NotFound`].
    /// * [`DataError::Locked`].
    /// * [`DataError::Stack`]: the parent is a stack.
    pub fn remove(&mut self, path: impl Path) -> Result<Item, DataError> {
        path.with_names(|names| {
            self.find(names)?;
            let (depth, _) = self.insertion_point(names)?;
            let child = self.entries_mut(&names[..depth], true).shift_remove(names[depth]);
            child.map(Item::from_child).ok_or_else(|| DataError::NotFound { path: path::text(names) })
        })
    }

    /// Moves the entry to another path, at the end of its new TensorDict, as Python's `rename_key_(safe=True)`.
    ///
    /// # Errors
    /// As [`remove`](Self::remove) and [`insert`](Self::insert); [`DataError::Duplicate`] if the new path is taken.
    /// Then nothing has changed.
    pub fn rename(&mut self, from: impl Path, to: impl Path) -> Result<(), DataError> {
        if to.with_names(|to| from.with_names(|from| to == from)) {
            return self.entry(from).map(drop);
        }
        if self.contains(&to) {
            return Err(DataError::Duplicate { name: to.with_names(path::text) });
        }
        let mut renamed = self.clone();
        let item = renamed.remove(from)?;
        renamed.insert(to, item)?;
        *self = renamed;
        Ok(())
    }

    /// Changes the batch size, as Python's `td.batch_size = ...`: nested TensorDicts and non-tensors with fewer
    /// dimensions take it too, names are dropped or filled up with `None`.
    ///
    /// # Errors
    /// * [`DataError::BatchSize`]: an entry does not start with it; nor does a stack, whose batch size is that of its
    ///   elements.
    /// * [`DataError::Locked`].
    pub fn set_batch_size(&mut self, batch_size: impl Into<Shape>) -> Result<(), DataError> {
        let batch_size = batch_size.into();
        self.edit_root(|root| root.set_batch_size(&batch_size, ""))
    }

    /// Names the batch dimensions, here and in nested TensorDicts.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, Device};
    ///
    /// let mut td = tensordict!([2]; "x" => vec![1.0_f32, 2.0])?;
    /// td.set_dim_names([Some("time")])?;
    /// td.set_device(Device::Cpu);
    /// assert_eq!((td.dim_names(), td.device()), (&[Some("time".to_owned())][..], Some(&Device::Cpu)));
    /// td.set_batch_size([])?;
    /// td.lock();
    /// assert!(td.is_locked() && td.remove("x").is_err());
    /// td.unlock();
    /// td.remove("x")?;
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::Length`] unless there is one for each dimension.
    pub fn set_dim_names<'a>(&mut self, names: impl IntoIterator<Item = Option<&'a str>>) -> Result<(), DataError> {
        let names: Vec<_> = names.into_iter().map(|name| name.map(str::to_owned)).collect();
        check_len("dimension names", self.batch_size().len(), names.len())?;
        self.edit_root(|root| {
            root.set_leading_names(&names);
            Ok(())
        })
    }

    /// Labels it and everything nested with a device, or with none; the tensors stay in host memory.
    pub fn set_device(&mut self, device: impl Into<Option<Device>>) {
        self.loosen();
        Arc::make_mut(&mut self.root).set_device(device.into().as_ref());
    }

    /// Locks the structure, nested TensorDicts included. The lock travels with it; values can still be written.
    pub fn lock(&mut self) {
        self.set_locked(true);
    }

    /// Unlocks the structure, nested TensorDicts included.
    pub fn unlock(&mut self) {
        self.set_locked(false);
    }

    fn set_locked(&mut self, locked: bool) {
        self.loosen();
        Arc::make_mut(&mut self.root).set_locked(locked);
    }

    /// Applies a change to the root; if it fails, nothing has changed.
    pub(super) fn edit_root(
        &mut self,
        change: impl FnOnce(&mut Node) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        if self.is_locked() {
            return Err(DataError::Locked);
        }
        self.loosen();
        let mut root = (*self.root).clone();
        change(&mut root)?;
        self.root = Arc::new(root);
        Ok(())
    }

    /// The innermost existing dict on the way to an entry, and the number of names that lead to it.
    fn insertion_point(&self, names: &[&str]) -> Result<(usize, &Dict), DataError> {
        let (_, parents) = names.split_last().ok_or(DataError::EmptyPath)?;
        let mut node = &**self.root();
        let mut depth = 0;
        for name in parents {
            match node.child(name) {
                Some(Child::Node(child)) if !node.is_locked() => node = child,
                Some(Child::Node(_)) => return Err(DataError::Locked),
                Some(other) => return Err(wrong_kind(&names[..=depth], "a TensorDict", other)),
                None => break,
            }
            depth += 1;
        }
        match node.body() {
            _ if node.is_locked() => Err(DataError::Locked),
            Body::Dict(dict) => Ok((depth, dict)),
            Body::Stack(stack) => Err(DataError::Stack {
                operation: stack.kind.name(),
                reason: "its elements are fixed; build another stack".to_owned(),
            }),
        }
    }

    /// The entries of an existing dict, for a change. Makes the TensorDict loose.
    fn entries_mut(&mut self, names: &[&str], new_structure: bool) -> &mut IndexMap<String, Child> {
        self.loosen();
        let mut node = Arc::make_mut(&mut self.root);
        for name in names {
            if new_structure {
                node.renew_id();
            }
            let Some(Child::Node(child)) = node.child_mut(name) else { unreachable!("found before") };
            node = Arc::make_mut(child);
        }
        if new_structure {
            node.renew_id();
        }
        match node.body_mut() {
            Body::Dict(dict) => &mut dict.entries,
            Body::Stack(_) => unreachable!("found before"),
        }
    }
}

/// How entries fit themselves to the dict that they are put into.
impl Child {
    fn adapt(&mut self, name: &str, parent: &Dict) -> Result<(), DataError> {
        match self {
            Self::Tensor(_) | Self::Jagged(_) => self.check_batch_size(name, &parent.batch_size)?,
            Self::NonTensor(data) => {
                if !data.batch_size.starts_with(&parent.batch_size) {
                    Arc::make_mut(data).batch_size = parent.batch_size.clone();
                }
                if parent.device.is_some() && data.device != parent.device {
                    Arc::make_mut(data).device = parent.device.clone();
                }
            }
            Self::Node(node) => {
                if !node.batch_size().starts_with(&parent.batch_size) {
                    Arc::make_mut(node).set_batch_size(&parent.batch_size, name)?;
                }
                if parent.names.iter().any(Option::is_some) {
                    Arc::make_mut(node).set_leading_names(&parent.names);
                }
                if parent.device.is_some() {
                    Arc::make_mut(node).set_device(parent.device.as_ref());
                }
            }
        }
        Ok(())
    }
}

impl Dict {
    /// A dict with the same batch size, names and device, and one entry.
    fn nest(&self, name: &str, child: Child) -> Child {
        let entries = IndexMap::from([(name.to_owned(), child)]);
        let dict = Self { entries, ..self.without_entries() };
        Child::Node(Arc::new(Node::new(false, Body::Dict(dict))))
    }

    pub(super) fn without_entries(&self) -> Self {
        let Self { batch_size, names, device, .. } = self;
        Self { batch_size: batch_size.clone(), names: names.clone(), device: device.clone(), entries: IndexMap::new() }
    }
}

impl Node {
    /// `name` is for the error.
    fn set_batch_size(&mut self, batch_size: &Shape, name: &str) -> Result<(), DataError> {
        self.renew_id();
        let dict = match self.body_mut() {
            Body::Dict(dict) => dict,
            Body::Stack(stack) if stack.batch_size.starts_with(batch_size) => return Ok(()),
            Body::Stack(stack) => return Err(DataError::batch_size(name, &stack.batch_size, batch_size)),
        };
        dict.batch_size = batch_size.clone();
        dict.names.resize(batch_size.len(), None);
        let parent = dict.without_entries();
        dict.entries.iter_mut().try_for_each(|(name, child)| child.adapt(name, &parent))
    }

    fn set_leading_names(&mut self, names: &[Option<String>]) {
        self.renew_id();
        let mut names = names.to_vec();
        match self.body_mut() {
            Body::Dict(dict) => dict.names.iter_mut().zip(&names).for_each(|(old, new)| old.clone_from(new)),
            Body::Stack(stack) if stack.dim < names.len() => stack.dim_name = names.remove(stack.dim),
            Body::Stack(_) => {}
        }
        self.for_each_nested(|node| node.set_leading_names(&names));
    }

    fn set_device(&mut self, device: Option<&Device>) {
        self.renew_id();
        if let Body::Dict(dict) = self.body_mut() {
            dict.device = device.cloned();
        }
        for child in self.children_mut() {
            if let Child::NonTensor(data) = child {
                Arc::make_mut(data).device = device.cloned();
            }
        }
        self.for_each_nested(|node| node.set_device(device));
    }

    fn set_locked(&mut self, locked: bool) {
        self.set_lock_flag(locked);
        self.for_each_nested(|node| node.set_locked(locked));
    }

    fn for_each_nested(&mut self, mut change: impl FnMut(&mut Self)) {
        for child in self.children_mut() {
            if let Child::Node(node) = child {
                change(Arc::make_mut(node));
            }
        }
    }
}
