//! Equality of structures and of TensorDicts.

use std::sync::Arc;

use super::dict::TensorDict;
use super::leaf::Leaf;
use super::node::{Body, Child, Node};
use crate::storage::Storage;

/// Whether a receiver could not tell the metadata of both apart: the same names in the same order, dtypes, shapes,
/// batch sizes, dimension names, lock flags, device labels and non-tensor values. Equal ids answer at once.
pub(crate) fn same_structure(a: &Arc<Node>, b: &Arc<Node>) -> bool {
    if a.id() == b.id() {
        return true;
    }
    if a.is_locked() != b.is_locked() {
        return false;
    }
    match (a.body(), b.body()) {
        (Body::Dict(a), Body::Dict(b)) => {
            a.batch_size == b.batch_size
                && a.names == b.names
                && a.device == b.device
                && a.entries.len() == b.entries.len()
                && a.entries.iter().zip(&b.entries).all(|((x, a), (y, b))| x == y && same_child(a, b))
        }
        (Body::Stack(a), Body::Stack(b)) => {
            (a.kind, a.dim, &a.dim_name) == (b.kind, b.dim, &b.dim_name)
                && a.elements.len() == b.elements.len()
                && a.elements.iter().zip(&b.elements).all(|(a, b)| same_child(a, b))
        }
        _ => false,
    }
}

pub(super) fn same_child(a: &Child, b: &Child) -> bool {
    match (a, b) {
        (Child::Tensor(a), Child::Tensor(b)) => a.same_structure(b),
        (Child::Jagged(a), Child::Jagged(b)) => {
            a.ragged_index == b.ragged_index
                && a.lengths.is_some() == b.lengths.is_some()
                && a.leaves().zip(b.leaves()).all(|(a, b)| a.same_structure(b))
        }
        (Child::NonTensor(a), Child::NonTensor(b)) => Arc::ptr_eq(a, b) || a == b,
        (Child::Node(a), Child::Node(b)) => same_structure(a, b),
        _ => false,
    }
}

impl Leaf {
    pub(super) fn same_structure(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.unbatched == other.unbatched && self.shape == other.shape
    }
}

/// The same batch sizes, dimension names, names in any order, dtypes, shapes, non-tensor values and tensor **bytes**
/// (so a NaN equals itself). Lock flags, device labels and where the bytes lie do not count.
impl PartialEq for TensorDict {
    fn eq(&self, other: &Self) -> bool {
        equal_nodes((&self.root, self.shared_storage()), (&other.root, other.shared_storage()))
    }
}

impl Eq for TensorDict {}

/// Something in a tree, and the storage of its TensorDict if that is packed.
type In<'a, T> = (&'a T, Option<&'a Storage>);

fn equal_nodes((a, a_storage): In<'_, Arc<Node>>, (b, b_storage): In<'_, Arc<Node>>) -> bool {
    let equal = |a, b| equal_children((a, a_storage), (b, b_storage));
    match (a.body(), b.body()) {
        (Body::Dict(a), Body::Dict(b)) => {
            a.batch_size == b.batch_size
                && a.names == b.names
                && a.entries.len() == b.entries.len()
                && a.entries.iter().all(|(name, child)| b.entries.get(name).is_some_and(|other| equal(child, other)))
        }
        (Body::Stack(a), Body::Stack(b)) => {
            (a.kind, a.dim, &a.dim_name) == (b.kind, b.dim, &b.dim_name)
                && a.elements.len() == b.elements.len()
                && a.elements.iter().zip(&b.elements).all(|(a, b)| equal(a, b))
        }
        _ => false,
    }
}

fn equal_children((a, a_storage): In<'_, Child>, (b, b_storage): In<'_, Child>) -> bool {
    match (a, b) {
        (Child::NonTensor(a), Child::NonTensor(b)) => a.value == b.value && a.batch_size == b.batch_size,
        (Child::Node(a), Child::Node(b)) => equal_nodes((a, a_storage), (b, b_storage)),
        _ => {
            same_child(a, b)
                && a.own_leaves().zip(b.own_leaves()).all(|(a, b)| a.bytes(a_storage) == b.bytes(b_storage))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{tensordict, DataError, Tensor};

    fn sample() -> TensorDict {
        tensordict!([1]; "a" => [1.0_f32], "n" => { "b" => [2_u8], "s" => "text" }).expect("batched")
    }

    #[test]
    fn a_change_of_structure_gives_a_new_id_and_one_of_values_does_not() {
        let td = sample();
        type Change = fn(&mut TensorDict) -> Result<(), DataError>;
        let of_values: [Change; 4] = [
            |td| td.get_mut("a")?.copy_from_slice(&[5.0_f32]),
            |td| td.get_mut(("n", "b"))?.copy_from_slice(&[5_u8]),
            |td| td.insert("a", [6.0_f32]),
            |td| td.insert(("n", "b"), [7_u8]),
        ];
        let of_structure: [Change; 11] = [
            |td| td.insert("a", [6.0_f64]),
            |td| td.insert(("n", "c"), [7_u8]),
            |td| td.insert(("n", "s"), "other"),
            |td| td.insert("a", Tensor::from([6.0_f32]).unbatched()),
            |td| td.remove("a").map(drop),
            |td| td.rename(("n", "b"), "b"),
            |td| td.set_batch_size([]),
            |td| td.set_dim_names([Some("t")]),
            |td| {
                td.set_device(crate::Device::Cpu);
                Ok(())
            },
            |td| {
                td.lock();
                Ok(())
            },
            |td| td.insert("n", tensordict!([1]; "s" => "text", "b" => [2_u8])?),
        ];
        for td in [td.clone(), td.consolidate()] {
            for (i, change) in of_values.into_iter().enumerate() {
                let mut changed = td.clone();
                change(&mut changed).expect("fits");
                assert_eq!(changed.root().id(), td.root().id(), "{i}");
                assert!(changed != td, "{i}");
            }
            for (i, change) in of_structure.into_iter().enumerate() {
                let mut changed = td.clone();
                change(&mut changed).expect("fits");
                assert_ne!(changed.root().id(), td.root().id(), "{i}");
                assert!(!same_structure(changed.root(), td.root()), "{i}");
                assert!(same_structure(td.root(), sample().root()), "{i}");
            }
        }
    }
}
