//! How TensorDicts print: Python's compact repr, to the letter.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use super::dict::TensorDict;
use super::display::short_name;
use super::entry::Entry;
use super::leaf::Leaf;
use super::node::{Body, Child, Node, Stack, StackKind};
use super::shape::{Shape, DIFFERING};

/// Python's compact repr: shapes without the batch dimensions, in alphabetical order, and no values.
///
/// ```
/// use tensordict_pipe::{tensordict, DType, Tensor};
///
/// let td = tensordict!([3]; "obs" => Tensor::zeros(DType::Float32, [3, 4])?, "info" => { "done" => [true; 3] })?;
/// assert_eq!(td.to_string(), "TensorDict(batch_size=[3], fields={info: {done: bool[]}, obs: f32[4]})");
/// # Ok::<(), tensordict_pipe::DataError>(())
/// ```
impl Display for TensorDict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&repr(&self.root))
    }
}

impl fmt::Debug for TensorDict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// A part of the repr: text, or braces with named parts.
enum Repr {
    Text(String),
    Braces(String, Vec<(String, Self)>),
}

fn repr(root: &Arc<Node>) -> String {
    if root.is_non_tensor_stack() {
        let list = Entry::NonTensorStack(TensorDict::from_loose(root.clone())).to_value();
        let list = list.map_or_else(|| "...".to_owned(), |list| list.to_string());
        let batch_size = root.batch_size().to_string().replace(',', ", ");
        return format!("NonTensorStack(\n    {list},\n    batch_size=torch.Size({batch_size}),\n    device=None)");
    }
    let mut head = match root.body() {
        Body::Dict(dict) => {
            let device = dict.device.as_ref().map(|device| format!("device={device}, ")).unwrap_or_default();
            format!("TensorDict(batch_size={}, {device}", dict.batch_size)
        }
        Body::Stack(stack) => {
            format!("LazyStackedTensorDict(batch_size={}, stack_dim={}, ", stack.batch_size, stack.dim)
        }
    };
    head.push_str("fields=");
    let exclusive = root.stack().map(exclusive_fields).unwrap_or_default();
    let tail = if exclusive.is_empty() { 1 } else { 1 + ", exclusive_fields={".len() };
    let fields = Repr::Braces(String::new(), fields(root, &common_keys(root)));
    let mut text = head.clone() + &fields.render(0, head.len(), tail);
    if !exclusive.is_empty() {
        text.push_str(", exclusive_fields=");
        let used = text.rsplit('\n').next().map_or(0, str::len);
        text += &Repr::Braces(String::new(), exclusive).render(0, used, 1);
    }
    text + ")"
}

/// The names that every element of a lazy stack has; those of a dict.
fn common_keys(node: &Node) -> Vec<String> {
    match node.body() {
        Body::Dict(dict) => dict.entries.keys().cloned().collect(),
        Body::Stack(stack) => {
            let mut keys = element_nodes(stack).map(|element| common_keys(element));
            let first = keys.next().unwrap_or_default();
            keys.fold(first, |common, keys| {
                let keys: BTreeSet<_> = keys.into_iter().collect();
                common.into_iter().filter(|key| keys.contains(key)).collect()
            })
        }
    }
}

fn element_nodes(stack: &Stack) -> impl Iterator<Item = &Arc<Node>> {
    stack.elements.iter().filter_map(|element| match element {
        Child::Node(node) => Some(node),
        _ => None,
    })
}

fn exclusive_fields(stack: &Stack) -> Vec<(String, Repr)> {
    let common: BTreeSet<_> =
        element_nodes(stack).next().map(|first| common_keys(first)).into_iter().flatten().collect();
    let mut all = Vec::new();
    for (index, element) in element_nodes(stack).enumerate() {
        let in_all = |key: &String| common.contains(key) && element_nodes(stack).all(|e| common_keys(e).contains(key));
        let own: Vec<_> = common_keys(element).into_iter().filter(|key| !in_all(key)).collect();
        if !own.is_empty() {
            all.push((index.to_string(), Repr::Braces(String::new(), fields(element, &own))));
        }
    }
    all
}

fn fields(node: &Node, keys: &[String]) -> Vec<(String, Repr)> {
    let mut fields: Vec<_> = keys.iter().map(|key| (key.clone(), field(node, key))).collect();
    fields.sort_by_cached_key(|(key, repr)| format!("{key}: {}", repr.flat()));
    fields
}

/// An entry of a dict, or the entries of this name in a lazy stack as one.
fn field(node: &Node, key: &str) -> Repr {
    let text = |text: &str| Repr::Text(text.to_owned());
    let Some(child) = entry(node, key) else { return text("?") };
    match &child {
        Child::Tensor(leaf) => Repr::Text(leaf_text(leaf, node.batch_size().len())),
        Child::Jagged(jagged) => {
            let shape = jagged.shape().to_string().replace("-1", "j");
            let inner = shape.split_once(',').map_or("]", |(_, inner)| inner);
            Repr::Text(format!("{}[{inner}", short_name(jagged.values.dtype)))
        }
        Child::NonTensor(data) => text(data.value.type_name()),
        Child::Node(nested) => {
            if nested.is_non_tensor_stack() {
                return text("NonTensorStack");
            }
            let class = match first_member(node).child(key) {
                Some(Child::Node(first)) if first.stack().is_some() => StackKind::Lazy.name(),
                _ => "",
            };
            let extra = nested.batch_size().get(node.batch_size().len()..).unwrap_or_default();
            let extra = if extra.is_empty() { String::new() } else { Shape::from(extra).to_string() };
            Repr::Braces(format!("{class}{extra}"), fields(nested, &common_keys(nested)))
        }
    }
}

/// The dict whose entries say of what class those of a lazy stack are.
fn first_member(node: &Node) -> &Node {
    let first = node.stack().and_then(|stack| element_nodes(stack).next());
    first.map_or(node, |first| first_member(first))
}

/// What stands under `key`; in a lazy stack, what its elements have there as one: a tensor whose differing sizes are
/// [`DIFFERING`], or a lazy stack.
fn entry(node: &Node, key: &str) -> Option<Child> {
    let stack = match node.body() {
        Body::Dict(dict) => return dict.entries.get(key).cloned(),
        Body::Stack(stack) => stack,
    };
    let entries: Vec<_> = element_nodes(stack).map(|element| entry(element, key)).collect::<Option<_>>()?;
    match entries.first()? {
        Child::Tensor(first) => {
            let mut shape = first.shape.to_vec();
            for entry in &entries {
                let Child::Tensor(leaf) = entry else { return None };
                if leaf.shape.len() != shape.len() {
                    shape = vec![DIFFERING];
                    break;
                }
                for (size, &other) in shape.iter_mut().zip(leaf.shape.iter()) {
                    if *size != other {
                        *size = DIFFERING;
                    }
                }
            }
            shape.insert(stack.dim.min(shape.len()), entries.len());
            Some(Child::Tensor(Leaf { shape: shape.into(), ..first.clone() }))
        }
        Child::Node(_) => {
            let nested = Stack::new(StackKind::Lazy, stack.dim, None, entries).ok()?;
            Some(Child::Node(Arc::new(Node::new(false, Body::Stack(nested)))))
        }
        first => Some(first.clone()),
    }
}

fn leaf_text(leaf: &Leaf, batch_dims: usize) -> String {
    let skipped = if leaf.unbatched { 0 } else { batch_dims };
    let shape = Shape::from(leaf.shape.get(skipped..).unwrap_or_default());
    format!("{}{shape}", short_name(leaf.dtype))
}

impl Repr {
    fn flat(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Braces(prefix, entries) => {
                let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}: {}", value.flat())).collect();
                format!("{prefix}{{{}}}", entries.join(", "))
            }
        }
    }

    /// On one line if it fits between the `used` columns before it and the `tail` after it, else an entry a line.
    fn render(&self, indent: usize, used: usize, tail: usize) -> String {
        let flat = self.flat();
        let (prefix, entries) = match self {
            Self::Braces(prefix, entries) if !entries.is_empty() && used + flat.chars().count() + tail > WIDTH => {
                (prefix, entries)
            }
            _ => return flat,
        };
        let indent = indent + 4;
        let mut lines = Vec::new();
        for (i, (key, value)) in entries.iter().enumerate() {
            let tail = if i + 1 == entries.len() { tail + 1 } else { 1 };
            let value = value.render(indent, indent + key.chars().count() + 2, tail);
            lines.push(format!("{:indent$}{key}: {value}", ""));
        }
        format!("{prefix}{{\n{}}}", lines.join(",\n"))
    }
}

/// Python's line width.
const WIDTH: usize = 80;
