//! Leaves as they stand in the metadata: their places, and the jagged tensors that some of them are parts of.

use super::{JAGGED, JAGGED_LENGTHS, JAGGED_OFFSETS, JAGGED_VALUES};
use crate::data::{Child, JaggedLeaf, Leaf};
use crate::wire::error::{BrokenRule, DecodeError};
use crate::wire::json::Reader;
use crate::wire::schema::shape;

/// The bytes that the tensors of an entry take in the storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) stop: usize,
}

/// A leaf as it stands in the text, checked by itself.
#[derive(Debug)]
pub(super) struct RawLeaf {
    leaf: Leaf,
    span: Span,
    /// Only the offsets of a jagged tensor have it.
    ragged_index: Option<usize>,
}

impl RawLeaf {
    /// `[dtype, shape, start, stop, pad]`, and the ragged index perhaps.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut dtype, mut dims, mut numbers, mut count) = (None, None, [0; 4], 0);
        reader.list(|reader| {
            match count {
                0 => dtype = Some(reader.string()?.parse()?),
                1 => dims = Some(shape(reader)?),
                2..=5 => numbers[count - 2] = reader.size()?,
                _ => return Err(reader.error("expected a leaf of five or six elements")),
            }
            count += 1;
            Ok::<_, DecodeError>(())
        })?;
        let (Some(dtype), Some(dims), 5..) = (dtype, dims, count) else {
            return Err(reader.error("expected a leaf of five or six elements"));
        };
        let [start, stop, pad, ragged_index] = numbers;
        let leaf = Leaf::packed(dtype, dims, start)?;
        let fits = leaf.padded_len() - leaf.len == pad && start.checked_add(leaf.padded_len()) == Some(stop);
        if !fits {
            return Err(BrokenRule::Range { start, stop, len: leaf.len, pad }.into());
        }
        Ok(Self { leaf, span: Span { start, stop }, ragged_index: (count == 6).then_some(ragged_index) })
    }
}

/// The parts of a jagged tensor read so far.
#[derive(Debug, Default)]
pub(super) struct JaggedParts {
    name: String,
    values: Option<RawLeaf>,
    lengths: Option<RawLeaf>,
}

impl JaggedParts {
    /// Whether parts are still missing.
    pub(super) fn is_incomplete(&self) -> bool {
        self.values.is_some()
    }

    /// Adds a leaf; gives what is complete with it, under its name.
    pub(super) fn take<'k>(
        &mut self,
        key: &'k str,
        leaf: RawLeaf,
    ) -> Result<Option<(&'k str, Child, Span)>, DecodeError> {
        let misplaced = Err(BrokenRule::JaggedParts.into());
        if let Some(name) = key.strip_prefix(JAGGED_VALUES) {
            if self.values.is_some() || leaf.ragged_index.is_some() {
                return misplaced;
            }
            name.clone_into(&mut self.name);
            self.values = Some(leaf);
            return Ok(None);
        }
        if let Some(name) = key.strip_prefix(JAGGED_LENGTHS) {
            if self.values.is_none() || self.lengths.is_some() || name != self.name || leaf.ragged_index.is_some() {
                return misplaced;
            }
            self.lengths = Some(leaf);
            return Ok(None);
        }
        if let Some(name) = key.strip_prefix(JAGGED_OFFSETS) {
            let lengths = self.lengths.take();
            let (Some(values), true) = (self.values.take(), name == self.name) else { return misplaced };
            let span = follow([Some(values.span), lengths.as_ref().map(|part| part.span), Some(leaf.span)])?;
            // Older senders leave the index out: then it is the first dimension that can be ragged.
            let ragged_index = leaf.ragged_index.unwrap_or(1);
            let jagged = JaggedLeaf::new(values.leaf, lengths.map(|part| part.leaf), leaf.leaf, ragged_index)?;
            return Ok(Some((name, Child::Jagged(Box::new(jagged)), span.unwrap_or_default())));
        }
        if self.values.is_some() || leaf.ragged_index.is_some() || key.starts_with(JAGGED) {
            return misplaced;
        }
        Ok(Some((key, Child::Tensor(leaf.leaf), leaf.span)))
    }
}

/// The spans as one; each must begin where the one before ends.
pub(super) fn follow<const N: usize>(spans: [Option<Span>; N]) -> Result<Option<Span>, DecodeError> {
    let mut whole: Option<Span> = None;
    for span in spans.into_iter().flatten() {
        let before = *whole.get_or_insert(Span { start: span.start, stop: span.start });
        if before.stop != span.start {
            return Err(BrokenRule::Place { expected: before.stop, found: span.start }.into());
        }
        whole = Some(Span { start: before.start, stop: span.stop });
    }
    Ok(whole)
}
