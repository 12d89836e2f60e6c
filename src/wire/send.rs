//! [`SendSession`]: from TensorDicts to messages.

use std::sync::Arc;

use super::error::EncodeError;
use super::frame::{Format, NEW_SCHEMA, SAME_SCHEMA};
use super::pool::Pool;
use super::{leaves, metadata};
use crate::data::{same_structure, Node, TensorDict};
use crate::storage::{Gather, Storage};

/// The sender's side of a stream: knows what the receiver knows.
///
/// In the steady state, when one TensorDict follows another of the same structure, it neither writes JSON nor
/// allocates; a consolidated TensorDict is sent from its own storage, others are packed into a buffer used again.
///
/// ```
/// use tensordict_pipe::wire::{Format, Limits, RecvSession, SendSession};
/// use tensordict_pipe::{Storage, TensorDict};
///
/// let mut sender = SendSession::new(Format::Consolidated);
/// let td = TensorDict::new([3]);
/// let message = sender.encode(&td)?;
/// let header = message.header().expect("the first message announces its schema").as_bytes().to_vec();
/// let body = message.bodies()[0].bytes().to_vec();
/// sender.commit(); // now that it has been handed to the transport
///
/// let mut receiver = RecvSession::new(Format::Consolidated, Limits::default());
/// receiver.accept_header(&header)?;
/// assert_eq!(receiver.body_len(), Some(body.len()));
/// assert!(receiver.finish(Storage::from_bytes(&body))? == td);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SendSession {
    format: Format,
    /// What the receiver has.
    sent: Option<Announced>,
    /// What it gets with the message encoded last, if it does not have it yet.
    offered: Option<Announced>,
    pool: Pool,
    bodies: Vec<Body>,
    gather: Arc<Gather>,
}

/// A structure and its header.
#[derive(Debug)]
struct Announced {
    /// Without storages, so that holding it does not make the sender copy when it writes its next values.
    structure: Arc<Node>,
    /// The tree last found to have that structure, so that only its first message is compared name by name.
    last: u64,
    header: Storage,
    total_bytes: usize,
    /// Leaf by leaf: the place of each tensor in the message.
    ranks: Vec<usize>,
}

/// What has to be sent for one TensorDict: the flag, the header if there is one (its length before it), the bodies.
///
/// ```
/// use std::io::Write;
/// use tensordict_pipe::wire::{Body, Outgoing};
///
/// /// Over a transport of bytes, which does not say where a message ends: then a body needs its length, too.
/// fn write(message: &Outgoing<'_>, to: &mut impl Write) -> std::io::Result<()> {
///     if let Some(flag) = message.flag() {
///         to.write_all(&[flag])?;
///     }
///     if let Some(header) = message.header() {
///         to.write_all(&(header.len() as u64).to_le_bytes())?;
///         to.write_all(header.as_bytes())?;
///     }
///     message.bodies().iter().map(Body::bytes).try_for_each(|bytes| {
///         to.write_all(&(bytes.len() as u64).to_le_bytes())?;
///         to.write_all(bytes)
///     })
/// }
/// ```
#[derive(Debug)]
pub struct Outgoing<'a> {
    flag: Option<u8>,
    header: Option<&'a Storage>,
    bodies: &'a [Body],
    /// The one body, if it was not packed.
    gather: Option<&'a Arc<Gather>>,
}

/// Bytes that are one message: a part of a storage. One of the [`bodies`](Outgoing::bodies) of an [`Outgoing`].
#[derive(Debug, Clone)]
pub struct Body {
    pub(crate) storage: Storage,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl SendSession {
    /// A session in which nothing has been sent.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, sent: None, offered: None, pool: Pool::default(), bodies: Vec::new(), gather: Arc::default() }
    }

    /// What has to be sent for `td`.
    ///
    /// # Errors
    /// An [`EncodeError`] if the format cannot carry `td` to a Python receiver; the session is as before.
    pub fn encode(&mut self, td: &TensorDict) -> Result<Outgoing<'_>, EncodeError> {
        self.encode_by(td, false)
    }

    /// The same for a link that copies the tensors itself: what is not consolidated is not packed.
    #[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the pipe
    pub(crate) fn encode_in_place(&mut self, td: &TensorDict) -> Result<Outgoing<'_>, EncodeError> {
        self.encode_by(td, true)
    }

    fn encode_by(&mut self, td: &TensorDict, in_place: bool) -> Result<Outgoing<'_>, EncodeError> {
        self.bodies.clear();
        let is_it = |announced: &mut Announced| announced.describes(td.root());
        let known = self.sent.as_mut().is_some_and(is_it);
        if known {
            self.offered = None;
        } else if !self.offered.as_mut().is_some_and(is_it) {
            self.offered = Some(Announced::new(self.format, td)?);
        }
        let Some(announced) = self.offered.as_ref().or(self.sent.as_ref()) else { unreachable!("one of them was set") };

        let mut gathered = false;
        match (self.format, td.packed_storage()) {
            (Format::LeafByLeaf, _) => push_leaves(&mut self.bodies, td, announced),
            (_, None) if in_place => {
                td.gather_into(&mut self.gather);
                gathered = true;
            }
            (_, storage) => {
                let len = announced.total_bytes;
                let storage = storage.cloned().unwrap_or_else(|| packed(&mut self.pool, td, len));
                self.bodies.push(Body { storage, offset: 0, len });
            }
        }
        let omitted = known && self.format == Format::Consolidated;
        Ok(Outgoing {
            flag: (self.format == Format::Consolidated).then_some(if omitted { SAME_SCHEMA } else { NEW_SCHEMA }),
            header: (!omitted).then_some(&announced.header),
            bodies: &self.bodies,
            gather: gathered.then_some(&self.gather),
        })
    }

    /// The shortest way: the storage of `td` and how many bytes of it are the whole message after the flag, if `td` is
    /// consolidated and the receiver knows its schema. Nothing has to be committed.
    #[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the pipe
    pub(crate) fn known<'a>(&mut self, td: &'a TensorDict) -> Option<(&'a Storage, usize)> {
        let sent = self.sent.as_mut().filter(|_| self.format == Format::Consolidated)?;
        let storage = td.packed_storage()?;
        sent.describes(td.root()).then_some((storage, sent.total_bytes))
    }

    /// How many storages were allocated so far.
    ///
    /// ```
    /// use tensordict_pipe::wire::{Format, SendSession};
    /// use tensordict_pipe::tensordict;
    ///
    /// let mut sender = SendSession::new(Format::Consolidated);
    /// for x in 0..10_u8 {
    ///     sender.encode(&tensordict!([]; "x" => vec![x])?)?; // packed into the same buffer each time
    ///     sender.commit();
    /// }
    /// assert_eq!(sender.allocations(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.pool.allocations()
    }

    /// The message encoded last has been sent: its schema need not be sent again.
    ///
    /// Without this, after a failure say, the next message announces its schema anew. Also lets go of the TensorDict's
    /// storage.
    pub fn commit(&mut self) {
        self.bodies.clear();
        self.gather.release();
        if let Some(offered) = self.offered.take() {
            self.sent = Some(offered);
        }
    }
}

impl Announced {
    fn new(format: Format, td: &TensorDict) -> Result<Self, EncodeError> {
        let root = td.root();
        let (json, ranks) = match format {
            Format::Consolidated => (metadata::encode(root, true)?, Vec::new()),
            Format::Stateless => (metadata::encode(root, false)?, Vec::new()),
            Format::LeafByLeaf => {
                let encoded = leaves::encode(root)?;
                (encoded.json, encoded.ranks)
            }
        };
        let structure = match td.shared_storage() {
            Some(_) => root.clone(),
            None => root.with_places(&mut |leaf| leaf.storage = None),
        };
        let header = Storage::from_bytes(json.as_bytes());
        Ok(Self { structure, last: root.id(), header, total_bytes: root.packed_len(), ranks })
    }

    #[inline]
    fn describes(&mut self, root: &Arc<Node>) -> bool {
        let id = root.id();
        if self.last != id && same_structure(&self.structure, root) {
            self.last = id;
        }
        self.last == id
    }
}

fn packed(pool: &mut Pool, td: &TensorDict, len: usize) -> Storage {
    let mut storage = pool.take(len);
    td.pack_into(storage.make_mut());
    storage
}

/// The tensors in the order of the header.
fn push_leaves(bodies: &mut Vec<Body>, td: &TensorDict, announced: &Announced) {
    let vacant = Body { storage: announced.header.clone(), offset: 0, len: 0 };
    bodies.resize(announced.ranks.len(), vacant);
    let mut ranks = announced.ranks.iter();
    let packed = td.shared_storage();
    td.root().for_each_leaf(&mut |leaf| {
        if let Some(&rank) = ranks.next() {
            bodies[rank] = Body { storage: leaf.storage(packed).clone(), offset: leaf.start, len: leaf.len };
        }
    });
}

impl<'a> Outgoing<'a> {
    /// The first byte to send; none in the formats without it.
    #[must_use]
    pub fn flag(&self) -> Option<u8> {
        self.flag
    }

    /// The metadata or header, to be sent after its length, a little-endian `u64`; `None` if the receiver has it.
    #[must_use]
    pub fn header(&self) -> Option<&'a Storage> {
        self.header
    }

    /// The one body, if [`SendSession::encode_in_place`] left it where it is; then there are no others.
    #[cfg_attr(not(feature = "ucx"), allow(dead_code))] // for the pipe
    pub(crate) fn gather(&self) -> Option<&'a Arc<Gather>> {
        self.gather
    }

    /// One message each: exactly one in the consolidated formats, one for each tensor leaf by leaf. They may be empty,
    /// and are sent nevertheless.
    #[must_use]
    pub fn bodies(&self) -> &'a [Body] {
        self.bodies
    }
}

impl Body {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.storage.as_bytes()[self.offset..self.offset + self.len]
    }
}
