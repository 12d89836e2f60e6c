//! [`TensorDict`]: a batch of named tensors, and how it is read.

use indexmap::IndexMap;
use std::sync::Arc;

use super::device::Device;
use super::entry::Entry;
use super::error::DataError;
use super::leaf::Leaf;
use super::node::{Body, Child, Dict, Node};
use super::path::{self, Path};
use super::shape::Shape;
use super::value::Value;
use super::view::{TensorView, TensorViewMut};
use crate::storage::{Gather, Storage, RECEIVABLE};

/// An ordered map from names to tensors, nested TensorDicts and other values, with a common batch size.
///
/// It is a value: a clone is cheap and shares the bytes, and writing to one never changes another. Every tensor's shape
/// starts with the batch size. Nested names are paths, see [`Path`].
///
/// ```
/// use tensordict_pipe::{tensordict, Tensor};
///
/// let mut td = tensordict!([2];
///     "obs" => Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?,
///     "info" => { "reward" => vec![0.5_f64, 1.0] },
///     "task" => "walk",
/// )?;
/// assert_eq!(td.get("obs")?.as_slice::<f32>()?[4], 5.0);
/// td.get_mut(("info", "reward"))?.as_slice_mut::<f64>()?[0] = 0.75;
/// assert_eq!(td.value("task")?.as_str(), Some("walk"));
/// assert_eq!(td.keys().collect::<Vec<_>>(), ["obs", "info", "task"]);
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
///
/// # Packed and loose
/// [`consolidate`](Self::consolidate) copies all tensors into one storage in Python's layout, and a received TensorDict
/// comes so: it is sent again without a copy. Writing values ([`get_mut`](Self::get_mut)) keeps it packed. A change of
/// structure (inserting, removing, locking, ...) makes it loose, which copies no bytes; it is then packed again when sent.
///
/// # Stacks
/// Python's lazy stacks and stacks of non-tensors are TensorDicts here too, told apart by [`kind`](Self::kind):
/// their [`elements`](Self::elements) are called `"0"`, `"1"`, ... in paths, and `keys()` is empty.
#[derive(Clone)]
pub struct TensorDict {
    pub(super) root: Arc<Node>,
    pub(super) bytes: Bytes,
}

/// Where the tensors of a TensorDict are.
#[derive(Clone)]
pub(super) enum Bytes {
    /// Each has its own storage.
    Loose,
    /// All in this storage, which begins with them.
    Packed(Storage, usize),
    /// All somewhere in this storage: a nested dict of a packed one.
    Part(Storage),
}

impl TensorDict {
    /// A TensorDict without entries; `[]` is the batch size of one that has no batch dimensions.
    #[must_use]
    pub fn new(batch_size: impl Into<Shape>) -> Self {
        let batch_size = batch_size.into();
        let names = vec![None; batch_size.len()];
        let dict = Dict { batch_size, names, device: None, entries: IndexMap::new() };
        Self::from_loose(Arc::new(Node::new(false, Body::Dict(dict))))
    }

    /// The sizes of the batch dimensions, with which the shape of every tensor starts.
    #[must_use]
    pub fn batch_size(&self) -> &Shape {
        self.root.batch_size()
    }

    /// The names of the batch dimensions, one for each; empty for a stack, see
    /// [`stack_dim_name`](Self::stack_dim_name).
    #[must_use]
    pub fn dim_names(&self) -> &[Option<String>] {
        self.root.dict().map_or(&[], |dict| &dict.names)
    }

    /// The device that the sender's tensors are on, if it said; a label only, `None` for a stack.
    #[must_use]
    pub fn device(&self) -> Option<&Device> {
        self.root.dict()?.device.as_ref()
    }

    /// Whether the structure is locked against changes.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.root.is_locked()
    }

    /// The number of entries, or of the elements of a stack.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.root.body() {
            Body::Dict(dict) => dict.entries.len(),
            Body::Stack(stack) => stack.elements.len(),
        }
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether something stands under the path.
    #[must_use]
    pub fn contains(&self, path: impl Path) -> bool {
        path.with_names(|names| self.find(names).is_ok())
    }

    /// The tensor under the path.
    ///
    /// # Errors
    /// * [`DataError::NotFound`]: nothing stands there.
    /// * [`DataError::Kind`]: something else stands there; [`entry`](Self::entry) gives it.
    pub fn get(&self, path: impl Path) -> Result<TensorView<'_>, DataError> {
        path.with_names(|names| match self.find(names)? {
            Child::Tensor(leaf) => Ok(TensorView { leaf, storage: leaf.storage(self.shared_storage()) }),
            other => Err(wrong_kind(names, "a tensor", other)),
        })
    }

    /// The tensor under the path, for writing in place. Copies bytes first if a clone shares them. A lock does not
    /// forbid it, as in Python.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_mut(&mut self, path: impl Path) -> Result<TensorViewMut<'_>, DataError> {
        path.with_names(|names| {
            // A part of a packed TensorDict becomes loose, so as not to copy what it is a part of.
            if let Bytes::Part(_) = self.bytes {
                self.loosen();
            }
            match &mut self.bytes {
                Bytes::Packed(storage, _) => {
                    let leaf = tensor_leaf(find(&self.root, names)?, names)?;
                    let bytes = &mut storage.make_mut()[leaf.start..leaf.start + leaf.len];
                    Ok(TensorViewMut { dtype: leaf.dtype, shape: &leaf.shape, bytes })
                }
                Bytes::Loose | Bytes::Part(_) => {
                    tensor_leaf(find(&self.root, names)?, names)?;
                    let leaf = leaf_mut(&mut self.root, names).expect("just found");
                    Ok(leaf.own_view_mut())
                }
            }
        })
    }

    /// Whatever stands under the path.
    ///
    /// # Errors
    /// [`DataError::NotFound`] if nothing stands there.
    pub fn entry(&self, path: impl Path) -> Result<Entry<'_>, DataError> {
        path.with_names(|names| Ok(Entry::new(self.find(names)?, self.shared_storage())))
    }

    /// The nested TensorDict (or stack) under the path. It shares the bytes.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn dict(&self, path: impl Path) -> Result<Self, DataError> {
        path.with_names(|names| {
            let child = self.find(names)?;
            match Entry::new(child, self.shared_storage()) {
                Entry::Dict(td) | Entry::LazyStack(td) | Entry::NonTensorStack(td) => Ok(td),
                _ => Err(wrong_kind(names, "a TensorDict", child)),
            }
        })
    }

    /// The non-tensor value under the path.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn value(&self, path: impl Path) -> Result<&Value, DataError> {
        path.with_names(|names| match self.find(names)? {
            Child::NonTensor(data) => Ok(&data.value),
            other => Err(wrong_kind(names, "a non-tensor", other)),
        })
    }

    /// The names of the entries, in order; none for a stack.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.root.dict().into_iter().flat_map(|dict| dict.entries.keys().map(String::as_str))
    }

    /// The entries with their names, in order; none for a stack, see [`elements`](Self::elements).
    pub fn iter(&self) -> impl Iterator<Item = (&str, Entry<'_>)> {
        let storage = self.shared_storage();
        let entries = self.root.dict().into_iter().flat_map(|dict| &dict.entries);
        entries.map(move |(name, child)| (name.as_str(), Entry::new(child, storage)))
    }

    /// Everything that is not a TensorDict or a lazy stack, nested entries included, with its path, in the order of
    /// the packed layout. Python's `items(include_nested=True, leaves_only=True)`.
    ///
    /// ```
    /// use tensordict_pipe::{tensordict, Entry};
    ///
    /// let td = tensordict!([]; "a" => vec![1_u8, 2], "more" => { "b" => vec![3_u8] })?;
    /// let names: Vec<_> = td.iter().map(|(name, _)| name).collect();
    /// let paths: Vec<_> = td.leaves().into_iter().map(|(path, _)| path.join("/")).collect();
    /// assert_eq!((names, paths), (vec!["a", "more"], vec!["a".to_owned(), "more/b".to_owned()]));
    /// assert!(matches!(td.entry("a")?, Entry::Tensor(_)));
    /// assert_eq!(td.dict("more")?.get("b")?.as_slice::<u8>()?, [3]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    #[must_use]
    pub fn leaves(&self) -> Vec<(Vec<String>, Entry<'_>)> {
        let mut leaves = Vec::new();
        collect_leaves(&self.root, self.shared_storage(), &mut Vec::new(), &mut leaves);
        leaves
    }

    /// A TensorDict whose tensors lie in one storage, in the layout of Python's `consolidate`: in the order of
    /// [`leaves`](Self::leaves), each padded to a multiple of 8 bytes. Without a copy if it is so already.
    ///
    /// Unlike Python's it is not locked.
    ///
    /// ```
    /// use tensordict_pipe::tensordict;
    ///
    /// let td = tensordict!([]; "a" => vec![1_u8, 2], "b" => vec![3_u8])?;
    /// let mut packed = td.consolidate();
    /// assert!(packed.is_consolidated() && packed == td);
    /// packed.consolidated_bytes_mut().expect("packed")[0] = 9;
    /// assert_eq!(packed.consolidated_bytes().expect("packed")[..9], [9, 2, 0, 0, 0, 0, 0, 0, 3]);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    #[must_use]
    pub fn consolidate(&self) -> Self {
        if self.is_consolidated() {
            return self.clone();
        }
        let mut len = 0;
        let root = self.root.to_packed(&mut len);
        // With the room that a receive into it needs.
        let mut storage = Storage::zeroed(len.max(RECEIVABLE));
        self.pack_into(&mut storage.make_mut()[..len]);
        Self::from_packed(root, storage, len)
    }

    /// Whether the tensors lie in one storage, in Python's layout.
    #[must_use]
    pub fn is_consolidated(&self) -> bool {
        self.packed_storage().is_some()
    }

    /// The bytes of all tensors of a consolidated TensorDict, in Python's packed layout; `None` of another.
    #[must_use]
    #[inline]
    pub fn consolidated_bytes(&self) -> Option<&[u8]> {
        match &self.bytes {
            Bytes::Packed(storage, len) => Some(&storage.as_bytes()[..*len]),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    /// The same for writing; copied first if another TensorDict or tensor shares them.
    #[must_use]
    #[inline]
    pub fn consolidated_bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.bytes {
            Bytes::Packed(storage, len) => Some(&mut storage.make_mut()[..*len]),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    pub(super) fn find(&self, names: &[&str]) -> Result<&Child, DataError> {
        find(&self.root, names)
    }

    /// The tensors get storages of their own, which share the bytes.
    pub(super) fn loosen(&mut self) {
        if let Some(storage) = self.shared_storage() {
            self.root = self.root.to_loose(storage);
            self.bytes = Bytes::Loose;
        }
    }
}

/// For the codec and the packer.
impl TensorDict {
    /// A TensorDict whose leaves all have storages of their own.
    pub(crate) fn from_loose(root: Arc<Node>) -> Self {
        Self { root, bytes: Bytes::Loose }
    }

    /// A TensorDict of a packed tree (see [`Node::check_packed`]) and at least the bytes it takes. Allocates nothing.
    pub(crate) fn from_packed(root: Arc<Node>, storage: Storage, len: usize) -> Self {
        Self { root, bytes: Bytes::Packed(storage, len) }
    }

    /// The structure.
    pub(crate) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The storage, if it begins with exactly this TensorDict in packed layout. It may have more bytes.
    pub(crate) fn packed_storage(&self) -> Option<&Storage> {
        match &self.bytes {
            Bytes::Packed(storage, _) => Some(storage),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    /// The storage, taken out if the TensorDict is packed; for the next message to be received into.
    pub(crate) fn into_packed_storage(self) -> Option<Storage> {
        match self.bytes {
            Bytes::Packed(storage, _) => Some(storage),
            Bytes::Loose | Bytes::Part(_) => None,
        }
    }

    /// What leaves without a storage of their own refer to.
    pub(crate) fn shared_storage(&self) -> Option<&Storage> {
        match &self.bytes {
            Bytes::Packed(storage, _) | Bytes::Part(storage) => Some(storage),
            Bytes::Loose => None,
        }
    }

    /// Makes `gather` the pieces of the packed layout.
    pub(crate) fn gather_into(&self, gather: &mut Arc<Gather>) {
        gather.fill(&self.root, self.shared_storage(), Node::list_pieces);
    }

    /// Copies the tensors into `out`, which has `root().packed_len()` bytes, in Python's packed layout.
    pub(crate) fn pack_into(&self, out: &mut [u8]) {
        self.root.pack_into(self.shared_storage(), out);
    }
}

pub(super) fn wrong_kind(names: &[&str], expected: &'static str, found: &Child) -> DataError {
    DataError::Kind { path: path::text(names), expected, found: found.kind_name() }
}

fn find<'a>(root: &'a Node, names: &[&str]) -> Result<&'a Child, DataError> {
    let not_found = || DataError::NotFound { path: path::text(names) };
    let (last, parents) = names.split_last().ok_or(DataError::EmptyPath)?;
    let mut node = root;
    for name in parents {
        let Some(Child::Node(child)) = node.child(name) else { return Err(not_found()) };
        node = child;
    }
    node.child(last).ok_or_else(not_found)
}

fn tensor_leaf<'a>(child: &'a Child, names: &[&str]) -> Result<&'a Leaf, DataError> {
    match child {
        Child::Tensor(leaf) => Ok(leaf),
        other => Err(wrong_kind(names, "a tensor", other)),
    }
}

/// The leaf for a change of values: nodes that a clone shares are copied, the structure stays.
fn leaf_mut<'a>(root: &'a mut Arc<Node>, names: &[&str]) -> Option<&'a mut Leaf> {
    let (last, parents) = names.split_last()?;
    let mut node = Arc::make_mut(root);
    for name in parents {
        let Child::Node(child) = node.child_mut(name)? else { return None };
        node = Arc::make_mut(child);
    }
    match node.child_mut(last)? {
        Child::Tensor(leaf) => Some(leaf),
        _ => None,
    }
}

fn collect_leaves<'a>(
    node: &'a Node,
    storage: Option<&'a Storage>,
    path: &mut Vec<String>,
    leaves: &mut Vec<(Vec<String>, Entry<'a>)>,
) {
    for (name, child) in node.named_children() {
        path.push(name.into_owned());
        match child {
            Child::Node(node) if !node.is_non_tensor_stack() => collect_leaves(node, storage, path, leaves),
            _ => leaves.push((path.clone(), Entry::new(child, storage))),
        }
        path.pop();
    }
}
