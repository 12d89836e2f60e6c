//! Choosing and renaming many entries: select, exclude, flatten, unflatten.

use indexmap::IndexMap;
use std::sync::Arc;

use super::dict::{wrong_kind, TensorDict};
use super::error::DataError;
use super::node::{Body, Child, Dict, Node};
use super::path::Path;

impl TensorDict {
    /// Only the entries under these paths, in the order of the paths, as Python's `select`. Shares the bytes; the result
    /// is not locked.
    ///
    /// ```
    /// use tensordict_pipe::tensordict;
    ///
    /// let td = tensordict!([]; "obs" => vec![1_u8], "info" => { "reward" => vec![2_u8], "done" => [true] })?;
    /// assert_eq!(td.select([("info", "done")])?.leaves().len(), 1);
    /// assert_eq!(td.exclude([("info", "done")])?.leaves().len(), 2);
    /// let flat = td.flatten_keys(".")?;
    /// assert_eq!(flat.keys().collect::<Vec<_>>(), ["obs", "info.reward", "info.done"]);
    /// assert_eq!(flat.unflatten_keys(".")?, td);
    /// # Ok::<(), tensordict_pipe::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::NotFound`] or [`DataError::Kind`] if a path leads nowhere.
    pub fn select<P: Path>(&self, paths: impl IntoIterator<Item = P>) -> Result<Self, DataError> {
        let paths: Vec<_> = paths.into_iter().map(owned).collect();
        let paths: Vec<_> = paths.iter().map(Vec::as_slice).collect();
        if paths.iter().any(|path| path.is_empty()) {
            return Err(DataError::EmptyPath);
        }
        Ok(Self::from_loose(select(&self.clone().into_loose_root(), &paths)?))
    }

    /// All entries but those under these paths, as Python's `exclude`; a path that leads nowhere is no error. Shares
    /// the bytes; the result is not locked.
    ///
    /// # Errors
    /// [`DataError::Stack`] if a path names an element of a stack.
    pub fn exclude<P: Path>(&self, paths: impl IntoIterator<Item = P>) -> Result<Self, DataError> {
        let mut rest = self.clone();
        rest.unlock();
        for path in paths {
            if rest.contains(&path) {
                rest.remove(path)?;
            }
        }
        Ok(rest)
    }

    /// One level: nested names are joined with `separator`, as Python's `flatten_keys`. Stacks stay as they are, empty
    /// nested TensorDicts vanish. Shares the bytes; the result is not locked.
    ///
    /// # Errors
    /// [`DataError::Duplicate`] if two names become equal.
    pub fn flatten_keys(&self, separator: &str) -> Result<Self, DataError> {
        let root = self.clone().into_loose_root();
        let Some(dict) = root.dict() else { return Ok(self.clone()) };
        let mut flat = dict.without_entries();
        flatten(dict, "", separator, &mut flat.entries)?;
        Ok(Self::from_loose(Arc::new(Node::new(false, Body::Dict(flat)))))
    }

    /// Nested levels from names that contain `separator`, as Python's `unflatten_keys`. Shares the bytes; the result
    /// is not locked.
    ///
    /// # Errors
    /// [`DataError::Kind`] if a name is needed for an entry and a nested TensorDict; [`DataError::EmptyPath`] if the
    /// separator is empty.
    pub fn unflatten_keys(&self, separator: &str) -> Result<Self, DataError> {
        if separator.is_empty() {
            return Err(DataError::EmptyPath);
        }
        let root = self.clone().into_loose_root();
        let Some(dict) = root.dict() else { return Ok(self.clone()) };
        let mut nested = Self::from_loose(Arc::new(Node::new(false, Body::Dict(dict.without_entries()))));
        for (name, entry) in self.iter() {
            let names: Vec<_> = name.split(separator).collect();
            if let Ok(taken) = nested.find(&names) {
                return Err(wrong_kind(&names, "free", taken));
            }
            nested.insert(names, entry.to_item())?;
        }
        Ok(nested)
    }
}

fn owned(path: impl Path) -> Vec<String> {
    path.with_names(|names| names.iter().map(|&name| name.to_owned()).collect())
}

fn select(node: &Arc<Node>, paths: &[&[String]]) -> Result<Arc<Node>, DataError> {
    let not_found = |path: &[String]| DataError::NotFound { path: path.with_names(super::path::text) };
    let Some(dict) = node.dict() else { return Err(not_found(paths[0])) };
    let mut chosen: IndexMap<&str, Vec<&[String]>> = IndexMap::new();
    for path in paths {
        chosen.entry(&path[0]).or_default().push(&path[1..]);
    }
    let mut selected = dict.without_entries();
    for (name, rests) in chosen {
        let child = dict.entries.get(name).ok_or_else(|| not_found(&[name.to_owned()]))?;
        let child = match child {
            _ if rests.iter().any(|rest| rest.is_empty()) => child.clone(),
            Child::Node(node) => Child::Node(select(node, &rests)?),
            other => return Err(wrong_kind(&[name], "a TensorDict", other)),
        };
        selected.entries.insert(name.to_owned(), child);
    }
    Ok(Arc::new(Node::new(false, Body::Dict(selected))))
}

fn flatten(dict: &Dict, prefix: &str, separator: &str, flat: &mut IndexMap<String, Child>) -> Result<(), DataError> {
    for (name, child) in &dict.entries {
        let name = format!("{prefix}{name}");
        match child {
            Child::Node(node) => match node.dict() {
                Some(nested) => flatten(nested, &format!("{name}{separator}"), separator, flat)?,
                None => insert_new(flat, name, child)?,
            },
            _ => insert_new(flat, name, child)?,
        }
    }
    Ok(())
}

fn insert_new(flat: &mut IndexMap<String, Child>, name: String, child: &Child) -> Result<(), DataError> {
    match flat.insert(name.clone(), child.clone()) {
        Some(_) => Err(DataError::Duplicate { name }),
        None => Ok(()),
    }
}
