//! The tag exchange that opens a connection, as Python's `ucxx` does it.
//!
//! Each side sends 16 bytes: the tag on which it will receive, and a checksum of it. Ours carries a magic number in
//! the upper half of the tag: random to Python, and to one of ours the sign that it may use [kinds](super::Kind).

use sha1::{Digest, Sha1};

/// `TDP` and the version of our extension, in the upper half of a tag.
const MAGIC: u64 = 0x5444_5001_0000_0000;
const MAGIC_MASK: u64 = 0xffff_ffff_0000_0000;
/// Where a message's kind goes in a tag of ours.
pub(crate) const KIND_MASK: u64 = 0xff;

pub(crate) const HELLO_BYTES: usize = 16;

/// What one side says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The tag on which the sender of this hello receives.
    pub(crate) tag: u64,
}

impl Hello {
    /// A hello of ours; 24 random bits tell connections apart.
    pub(crate) fn ours(random: u32) -> Self {
        Self { tag: MAGIC | (u64::from(random) & 0xff_ffff) << 8 }
    }

    /// Whether the sender knows kinds.
    pub(crate) fn is_ours(self) -> bool {
        self.tag & MAGIC_MASK == MAGIC
    }

    pub(crate) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[8..].copy_from_slice(&checksum(self.tag).to_ne_bytes());
        bytes
    }

    /// The hello in `bytes`, or `None` if its checksum is wrong.
    pub(crate) fn decode(bytes: [u8; HELLO_BYTES]) -> Option<Self> {
        let (tag, sum) = bytes.split_at(8);
        let tag = u64::from_ne_bytes(tag.try_into().ok()?);
        let sum = u64::from_ne_bytes(sum.try_into().ok()?);
        (sum == checksum(tag)).then_some(Self { tag })
    }
}

/// `ucxx`'s `hash64bits(tag)`: the first 8 bytes of SHA-1 over the text of a Python tuple of one number.
fn checksum(tag: u64) -> u64 {
    let digest = Sha1::digest(format!("({tag},)"));
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_pythons() {
        // python3 -c 'import hashlib; print(hashlib.sha1(str((7,)).encode()).hexdigest()[:16])'
        assert_eq!(checksum(7), PYTHON_7);
        assert_eq!(checksum(u64::MAX), PYTHON_MAX);
    }

    const PYTHON_7: u64 = 0x5b0724ae23acd58b;
    const PYTHON_MAX: u64 = 0x81ca8f731742cb98;

    #[test]
    fn hellos_survive_and_damage_is_seen() {
        let hello = Hello::ours(0xdead_beef);
        assert!(hello.is_ours());
        assert_eq!(hello.tag & KIND_MASK, 0, "the kind's place is free");
        let mut bytes = hello.encode();
        assert_eq!(Hello::decode(bytes), Some(hello));
        bytes[3] ^= 1;
        assert_eq!(Hello::decode(bytes), None);
        assert!(!Hello { tag: 12345 }.is_ours());
    }
}
