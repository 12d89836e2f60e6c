//! How the tensors of a tree lie in one packed storage: Python's `consolidate`.
//!
//! The tensors follow one another in **traversal order**: the entries of a dict in insertion order, a nested dict
//! where it stands among the tensors, depth first; a jagged tensor is values, lengths, offsets. Each begins at a
//! multiple of 8 and is padded with zeros to one. So the structure alone fixes the layout, and a packed tree differs
//! from a loose one only in where the bytes are.

use std::sync::Arc;

use super::leaf::{JaggedLeaf, Leaf, LEAF_ALIGNMENT};
use super::node::{Body, Child, Node};
use crate::storage::{Pieces, Storage};

impl Node {
    /// Calls `visit` for every tensor in traversal order.
    pub(crate) fn for_each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a Leaf)) {
        match self.body() {
            Body::Dict(dict) => dict.entries.values().for_each(|child| child.for_each_leaf(visit)),
            Body::Stack(stack) => stack.elements.iter().for_each(|child| child.for_each_leaf(visit)),
        }
    }

    /// The bytes of the packed storage. Walks the tree.
    pub(crate) fn packed_len(&self) -> usize {
        let mut len = 0;
        self.for_each_leaf(&mut |leaf| len += leaf.padded_len());
        len
    }

    /// Whether the tensors lie where the module's rule puts them, from byte 0 on; then the bytes they take.
    pub(crate) fn check_packed(&self) -> Option<usize> {
        let mut end = Some(0_usize);
        self.for_each_leaf(&mut |leaf| {
            end = end
                .filter(|&end| leaf.storage.is_none() && leaf.start == end)
                .and_then(|end| end.checked_add(leaf.padded_len()));
        });
        end
    }

    /// Copies the tensors into `out`, which has [`packed_len`](Self::packed_len) bytes.
    pub(crate) fn pack_into(&self, packed: Option<&Storage>, out: &mut [u8]) {
        let mut start = 0;
        self.for_each_leaf(&mut |leaf| {
            let end = start + leaf.len;
            out[start..end].copy_from_slice(leaf.bytes(packed));
            start += leaf.padded_len();
            if start != end {
                out[end..start].fill(0);
            }
        });
    }

    /// The pieces that [`pack_into`](Self::pack_into) copies.
    pub(crate) fn list_pieces<'a>(&'a self, packed: Option<&'a Storage>, pieces: &mut Pieces<'_, 'a>) {
        self.for_each_leaf(&mut |leaf| {
            pieces.push(leaf.bytes(packed));
            let padding = leaf.padded_len() - leaf.len;
            if padding > 0 {
                pieces.push(&[0; LEAF_ALIGNMENT][..padding]);
            }
        });
    }

    /// The same tree for a packed storage: the tensors lie there from byte `start` on, which is moved to their end.
    pub(super) fn to_packed(&self, start: &mut usize) -> Arc<Self> {
        self.with_places(&mut |leaf| {
            leaf.storage = None;
            leaf.start = *start;
            *start += leaf.padded_len();
        })
    }

    /// The same tree with tensors that own their share of `packed`.
    pub(super) fn to_loose(&self, packed: &Storage) -> Arc<Self> {
        self.with_places(&mut |leaf| {
            leaf.storage.get_or_insert_with(|| packed.clone());
        })
    }

    /// The same tree with each tensor elsewhere; it keeps its id.
    pub(crate) fn with_places(&self, place: &mut impl FnMut(&mut Leaf)) -> Arc<Self> {
        let mut node = self.clone();
        for child in node.children_mut() {
            match child {
                Child::Tensor(leaf) => place(leaf),
                Child::Jagged(jagged) => jagged.leaves_mut().for_each(&mut *place),
                Child::NonTensor(_) => {}
                Child::Node(node) => *node = node.with_places(place),
            }
        }
        Arc::new(node)
    }
}

impl Child {
    // Packing many small tensors is mostly this loop; inlined, it has no call for each.
    #[inline(always)]
    fn for_each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a Leaf)) {
        match self {
            Self::Tensor(leaf) => visit(leaf),
            Self::Jagged(jagged) => jagged.for_each_leaf(visit),
            Self::NonTensor(_) => {}
            Self::Node(node) => node.for_each_leaf(visit),
        }
    }
}

impl JaggedLeaf {
    // The rare case, kept out of the loop over the tensors of a dict.
    #[inline(never)]
    fn for_each_leaf<'a>(&'a self, visit: &mut impl FnMut(&'a Leaf)) {
        self.leaves().for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use crate::{tensordict, Jagged, Tensor, TensorDict};

    fn sample() -> TensorDict {
        let offsets = Tensor::from([0_i64, 1]);
        tensordict!([];
            "a" => [1_u8, 2, 3],
            "n" => { "b" => [4_u8; 8], "s" => "text" },
            "j" => Jagged::new(Tensor::from([5_u8]), offsets).expect("fits"),
            "c" => [] as [u8; 0],
            "d" => [6_u8],
        )
        .expect("no batch size")
    }

    #[test]
    fn tensors_follow_one_another_padded_with_zeros() {
        let td = sample();
        let expected = [
            [1, 2, 3, 0, 0, 0, 0, 0],
            [4; 8],
            [5, 0, 0, 0, 0, 0, 0, 0],
            [0; 8],
            [1, 0, 0, 0, 0, 0, 0, 0],
            [6, 0, 0, 0, 0, 0, 0, 0],
        ];
        let mut packed = [0xff; 48];
        assert_eq!(td.root().packed_len(), packed.len());
        td.pack_into(&mut packed);
        assert_eq!(packed, *expected.as_flattened());
        let consolidated = td.consolidate();
        assert_eq!(consolidated.packed_storage().expect("packed").as_bytes(), packed);
        assert_eq!(consolidated.root().check_packed(), Some(48));
        assert_eq!(td.root().check_packed(), None);
        let mut part = [0xff; 8];
        consolidated.dict("n").expect("a dict").pack_into(&mut part);
        assert_eq!(part, [4; 8]);
    }

    #[test]
    fn where_the_bytes_are_is_no_structure() {
        let td = sample();
        let packed = td.consolidate();
        assert_eq!(td.root().id(), packed.root().id());
        let mut loose = packed.clone();
        loose.loosen();
        assert_eq!(loose.root().id(), packed.root().id());
        assert_eq!(loose, packed);
    }
}
