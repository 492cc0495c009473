//! One znode in one allocation.
//!
//! Most znodes are leaves that are never set after their creation, so fields with the value of a fresh znode
//! are not stored, and no field is wider than it has to be. Two pointers are followed by
//!
//! ```text
//! flags: u8
//! name_len: u8                                          [LONG_NAME] u32, for a name of more than 255 bytes
//! czxid: u48, ctime: u48                                [WIDE] u64 and i64, if one of them needs that
//! [SET]       mzxid: u64, mtime: i64, version: i32      if it was ever set
//! [DIRECTORY] pzxid: u64, cversion: i32, children: u32  if it ever had children
//! [OWNED]     owner: i64                                if ephemeral, container or TTL
//! [ACL_SET]   aversion: i32                             if its ACL was ever set
//! [GUARDED]   acl: u32                                  if not everybody may do everything
//! name, payload
//! ```
//!
//! A znode of 100 bytes with a name of up to 14 takes 160 bytes, a size class of the allocator.
//!
//! A payload of more than [`INLINE_MAX`] bytes has an allocation of its own, shared by all later versions of
//! the znode, so that a change of its Stat does not copy the payload.

use super::owner::Owner;
use ringkeeper_wire::{Stat, Zxid};
use smallvec::SmallVec;
use triomphe::{Arc, ThinArc};

/// Payloads up to this many bytes lie beside the header.
const INLINE_MAX: usize = 1024;

const SET: u8 = 1;
const DIRECTORY: u8 = 1 << 1;
const OWNED: u8 = 1 << 2;
const ACL_SET: u8 = 1 << 3;
/// The data is null, not empty (the wire tells them apart).
const NULL_DATA: u8 = 1 << 4;
const GUARDED: u8 = 1 << 5;
const WIDE: u8 = 1 << 6;
const LONG_NAME: u8 = 1 << 7;

/// Of the name and the data, not of the metadata.
const OF_CONTENTS: u8 = NULL_DATA | LONG_NAME;

/// Bytes of a narrow zxid or time.
const NARROW: usize = 6;

/// What each flag adds to the fields in front of the name.
const GROUPS: [(u8, usize); 7] =
    [(LONG_NAME, 3), (WIDE, 4), (SET, 20), (DIRECTORY, 16), (OWNED, 8), (ACL_SET, 4), (GUARDED, 4)];

/// Length of the fields in front of the name, by the flags.
const FIELDS_LEN: [u8; 256] = fields_lens();
/// With all groups.
const FIELDS_MAX: usize = FIELDS_LEN[255] as usize;

#[expect(clippy::cast_possible_truncation, reason = "flags have 8 bits, and all fields together 73 bytes")]
const fn fields_lens() -> [u8; 256] {
    let mut lens = [0; 256];
    let mut flags = 0;
    while flags < lens.len() {
        let (mut len, mut group) = (1 + 1 + 2 * NARROW, 0);
        while group < GROUPS.len() {
            if flags as u8 & GROUPS[group].0 != 0 {
                len += GROUPS[group].1;
            }
            group += 1;
        }
        lens[flags] = len as u8;
        flags += 1;
    }
    lens
}

/// Whether a number fits into [`NARROW`] bytes.
const fn is_narrow(number: u64) -> bool {
    number >> (8 * NARROW) == 0
}

/// Names an ACL interned elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclId(pub u32);

impl AclId {
    /// Everybody may do everything: ZooKeeper's id -1, which no ACL table holds.
    pub const OPEN: Self = Self(u32::MAX);
}

/// A directory's path, shared by all its children.
#[derive(Clone)]
pub(super) struct Directory(ThinArc<(), u8>);

impl Directory {
    pub(super) fn new(path: &str) -> Self {
        Self(ThinArc::from_header_and_slice((), path.as_bytes()))
    }

    /// Compares bytes, since a check for UTF-8 would cost more than the look-up.
    fn is(&self, path: &str) -> bool {
        self.0.slice == *path.as_bytes()
    }
}

/// Everything the tree keeps of a znode except its path and data (ZooKeeper's StatPersisted, the ACL id and
/// the number of children).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZnodeMeta {
    /// Zxid of the transaction that created it.
    pub czxid: Zxid,
    /// Zxid of the last setData.
    pub mzxid: Zxid,
    /// Zxid of the last change of its children, its own creation at first.
    pub pzxid: Zxid,
    /// Creation time, milliseconds since the Unix epoch.
    pub ctime: i64,
    /// Time of the last setData, milliseconds since the Unix epoch.
    pub mtime: i64,
    /// Number of setData calls.
    pub version: i32,
    /// Number of children ever created. Clients see another number, see [`Znode::stat`].
    pub cversion: i32,
    /// Number of setACL calls.
    pub aversion: i32,
    /// Direct children.
    pub num_children: u32,
    /// See [`Owner::from_raw`].
    pub raw_owner: i64,
    /// Its ACL.
    pub acl: AclId,
}

impl ZnodeMeta {
    /// A znode as its creating transaction leaves it; `time` in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn fresh(zxid: Zxid, time: i64, acl: AclId, owner: Owner) -> Self {
        Self {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time,
            mtime: time,
            version: 0,
            cversion: 0,
            aversion: 0,
            num_children: 0,
            raw_owner: owner.to_raw(),
            acl,
        }
    }

    /// The Stat as clients see it, with this many bytes of data: cversion counts creations and deletions of
    /// children (2 x creations - living children), and only ephemerals show an owner.
    #[must_use]
    pub fn stat(&self, data_len: usize) -> Stat {
        let num_children = self.num_children.cast_signed();
        Stat {
            czxid: self.czxid.to_wire(),
            mzxid: self.mzxid.to_wire(),
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.cversion.wrapping_mul(2).wrapping_sub(num_children),
            aversion: self.aversion,
            ephemeral_owner: Owner::from_raw(self.raw_owner).visible(),
            data_length: i32::try_from(data_len).expect("a frame's length is an i32"),
            num_children,
            pzxid: self.pzxid.to_wire(),
        }
    }

    fn flags(&self) -> u8 {
        let mut flags = 0;
        if (self.mzxid, self.mtime, self.version) != (self.czxid, self.ctime, 0) {
            flags |= SET;
        }
        if (self.pzxid, self.cversion, self.num_children) != (self.czxid, 0, 0) {
            flags |= DIRECTORY;
        }
        if self.raw_owner != 0 {
            flags |= OWNED;
        }
        if self.aversion != 0 {
            flags |= ACL_SET;
        }
        if self.acl != AclId::OPEN {
            flags |= GUARDED;
        }
        if !is_narrow(self.czxid.0) || !is_narrow(self.ctime.cast_unsigned()) {
            flags |= WIDE;
        }
        flags
    }

    /// Writes all fields in front of the name, and returns how many bytes they take.
    fn encode(&self, flags: u8, name_len: u32, to: &mut [u8; FIELDS_MAX]) -> usize {
        let mut writer = Writer { to, at: 0 };
        writer.put([flags]);
        let name_len = name_len.to_le_bytes();
        if flags & LONG_NAME == 0 {
            writer.put([name_len[0]])
        } else {
            writer.put(name_len)
        }
        for number in [self.czxid.0, self.ctime.cast_unsigned()].map(u64::to_le_bytes) {
            match number.first_chunk::<NARROW>() {
                Some(narrow) if flags & WIDE == 0 => writer.put(*narrow),
                _ => writer.put(number),
            }
        }
        if flags & SET != 0 {
            writer.put(self.mzxid.0.to_le_bytes());
            writer.put(self.mtime.to_le_bytes());
            writer.put(self.version.to_le_bytes());
        }
        if flags & DIRECTORY != 0 {
            writer.put(self.pzxid.0.to_le_bytes());
            writer.put(self.cversion.to_le_bytes());
            writer.put(self.num_children.to_le_bytes());
        }
        if flags & OWNED != 0 {
            writer.put(self.raw_owner.to_le_bytes());
        }
        if flags & ACL_SET != 0 {
            writer.put(self.aversion.to_le_bytes());
        }
        if flags & GUARDED != 0 {
            writer.put(self.acl.0.to_le_bytes());
        }
        writer.at
    }
}

struct Writer<'a> {
    to: &'a mut [u8; FIELDS_MAX],
    at: usize,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.to[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (bytes, rest) = self.0.split_first_chunk().expect("the flags promise this group");
        self.0 = rest;
        *bytes
    }

    fn narrow(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..NARROW].copy_from_slice(&self.take::<NARROW>());
        u64::from_le_bytes(bytes)
    }
}

struct Header {
    directory: Directory,
    /// The payload, if it is not inline.
    external: Option<ThinArc<(), u8>>,
}

/// A znode as it was at one moment. Cloning shares it.
#[derive(Clone)]
pub struct Znode(ThinArc<Header, u8>);

impl Znode {
    pub(super) fn new(directory: Directory, name: &str, meta: &ZnodeMeta, data: Option<&[u8]>) -> Self {
        let payload = data.unwrap_or_default();
        let external = (payload.len() > INLINE_MAX).then(|| ThinArc::from_header_and_slice((), payload));
        let inline = if external.is_some() { &[] } else { payload };
        let null = if data.is_none() { NULL_DATA } else { 0 };
        let long = if name.len() > usize::from(u8::MAX) { LONG_NAME } else { 0 };
        Self::build(directory, name.as_bytes(), meta, null | long, external, inline)
    }

    fn build(
        directory: Directory,
        name: &[u8],
        meta: &ZnodeMeta,
        of_contents: u8,
        external: Option<ThinArc<(), u8>>,
        inline: &[u8],
    ) -> Self {
        let name_len = u32::try_from(name.len()).expect("a name is shorter than a request");
        let mut fields = [0; FIELDS_MAX];
        let fields_len = meta.encode(meta.flags() | of_contents, name_len, &mut fields);
        let mut tail = SmallVec::<[u8; 512]>::with_capacity(fields_len + name.len() + inline.len());
        tail.extend_from_slice(&fields[..fields_len]);
        tail.extend_from_slice(name);
        tail.extend_from_slice(inline);
        Self(ThinArc::from_header_and_slice(Header { directory, external }, &tail))
    }

    /// Number of references to the znode, this one included.
    pub(super) fn references(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }

    fn header(&self) -> &Header {
        &self.0.header.header
    }

    fn flags(&self) -> u8 {
        self.0.slice[0]
    }

    fn fields_len(&self) -> usize {
        usize::from(FIELDS_LEN[usize::from(self.flags())])
    }

    /// The length of the name, and the fields behind it.
    fn name_len_and_rest(&self) -> (usize, Reader<'_>) {
        let mut reader = Reader(&self.0.slice[1..]);
        let len = match self.flags() & LONG_NAME {
            0 => usize::from(reader.take::<1>()[0]),
            _ => u32::from_le_bytes(reader.take()) as usize,
        };
        (len, reader)
    }

    fn name_len(&self) -> usize {
        self.name_len_and_rest().0
    }

    /// Name and inline payload.
    fn tail(&self) -> (&[u8], &[u8]) {
        self.0.slice[self.fields_len()..].split_at(self.name_len())
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.header().directory
    }

    pub(super) fn is_at(&self, parent: &str, name: &str) -> bool {
        self.tail().0 == name.as_bytes() && self.is_child_of(parent)
    }

    pub(super) fn is_child_of(&self, parent: &str) -> bool {
        self.directory().is(parent)
    }

    /// Whether both have the same parent.
    pub(super) fn is_sibling_of(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.directory().0, &other.directory().0);
        ours.as_ptr() == theirs.as_ptr() || ours.slice == theirs.slice
    }

    /// Metadata as the tree keeps it.
    #[must_use]
    pub fn meta(&self) -> ZnodeMeta {
        let flags = self.flags();
        let (_, mut reader) = self.name_len_and_rest();
        let [czxid, ctime] = match flags & WIDE {
            0 => [(); 2].map(|()| reader.narrow()),
            _ => [(); 2].map(|()| u64::from_le_bytes(reader.take())),
        };
        let mut meta = ZnodeMeta::fresh(Zxid(czxid), ctime.cast_signed(), self.acl(), Owner::None);
        if flags & SET != 0 {
            meta.mzxid = Zxid(u64::from_le_bytes(reader.take()));
            meta.mtime = i64::from_le_bytes(reader.take());
            meta.version = i32::from_le_bytes(reader.take());
        }
        if flags & DIRECTORY != 0 {
            meta.pzxid = Zxid(u64::from_le_bytes(reader.take()));
            meta.cversion = i32::from_le_bytes(reader.take());
            meta.num_children = u32::from_le_bytes(reader.take());
        }
        if flags & OWNED != 0 {
            meta.raw_owner = i64::from_le_bytes(reader.take());
        }
        if flags & ACL_SET != 0 {
            meta.aversion = i32::from_le_bytes(reader.take());
        }
        meta
    }

    /// Metadata as clients see it.
    #[must_use]
    pub fn stat(&self) -> Stat {
        self.meta().stat(self.data_len())
    }

    /// The data; `None` if it is null, which is not the same as empty.
    #[must_use]
    pub fn data(&self) -> Option<&[u8]> {
        if self.flags() & NULL_DATA != 0 { None } else { Some(self.payload()) }
    }

    fn payload(&self) -> &[u8] {
        match &self.header().external {
            Some(external) => &external.slice,
            None => self.tail().1,
        }
    }

    /// Length of the data in bytes; null data has 0.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.payload().len()
    }

    /// Its ACL.
    #[must_use]
    pub fn acl(&self) -> AclId {
        if self.flags() & GUARDED == 0 {
            return AclId::OPEN;
        }
        let last = self.0.slice[..self.fields_len()].last_chunk().expect("the flags promise this group");
        AclId(u32::from_le_bytes(*last))
    }

    /// What keeps it alive.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::from_raw(self.raw_owner())
    }

    /// The owner as ZooKeeper persists it, see [`Owner::from_raw`].
    #[must_use]
    pub fn raw_owner(&self) -> i64 {
        if self.flags() & OWNED == 0 { 0 } else { self.meta().raw_owner }
    }

    /// Number of children ever created: the next sequential child's number.
    #[must_use]
    pub fn persisted_cversion(&self) -> i32 {
        self.meta().cversion
    }

    /// Number of direct children.
    #[must_use]
    pub fn num_children(&self) -> u32 {
        if self.flags() & DIRECTORY == 0 { 0 } else { self.meta().num_children }
    }

    /// The last component of its path; empty for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        std::str::from_utf8(self.tail().0).expect("was a &str")
    }

    /// Its parent's path; empty for the root.
    #[must_use]
    pub fn parent_path(&self) -> &str {
        std::str::from_utf8(&self.directory().0.slice).expect("was a &str")
    }

    /// Writes its path over what `path` holds.
    pub fn write_path(&self, path: &mut String) {
        path.clear();
        self.append_path(path);
    }

    /// Writes its path behind what `out` holds.
    pub(crate) fn append_path(&self, out: &mut String) {
        super::key::append(self.parent_path(), self.name(), out);
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::new();
        self.write_path(&mut path);
        path
    }

    /// Length of its path in bytes.
    pub(crate) fn path_len(&self) -> usize {
        let parent = self.directory().0.slice.len();
        let slash = usize::from(parent != 1);
        parent + slash + self.name_len()
    }

    /// Replaces the metadata: in place if this is the only reference and the same optional groups are stored.
    pub(super) fn set_meta(&mut self, meta: &ZnodeMeta) {
        let of_contents = self.flags() & OF_CONTENTS;
        if self.try_set_in_place(meta, of_contents) {
            return;
        }
        let (name, inline) = self.tail();
        let Header { directory, external } = self.header();
        *self = Self::build(directory.clone(), name, meta, of_contents, external.clone(), inline);
    }

    /// Replaces metadata and data.
    pub(super) fn set_data(&mut self, meta: &ZnodeMeta, data: Option<&[u8]>) {
        let header = self.header();
        let same_shape = header.external.is_none()
            && data.is_some_and(|data| data.len() <= INLINE_MAX && data.len() == self.data_len());
        if same_shape && self.try_set_in_place(meta, self.flags() & LONG_NAME) {
            let data = data.unwrap_or_default();
            self.0.with_arc_mut(|arc| {
                let node = Arc::get_mut(arc).expect("was unique a moment ago");
                let slice = node.slice_mut();
                let start = slice.len() - data.len();
                slice[start..].copy_from_slice(data);
            });
            return;
        }
        *self = Self::new(self.directory().clone(), self.name(), meta, data);
    }

    /// Overwrites the metadata in place if this is the only reference and the same optional groups are
    /// stored.
    fn try_set_in_place(&mut self, meta: &ZnodeMeta, of_contents: u8) -> bool {
        let flags = meta.flags() | of_contents;
        if flags != self.flags() {
            return false;
        }
        let name_len = u32::try_from(self.name_len()).expect("it was one before");
        self.0.with_arc_mut(|arc| {
            let Some(node) = Arc::get_mut(arc) else { return false };
            let mut fields = [0; FIELDS_MAX];
            let fields_len = meta.encode(flags, name_len, &mut fields);
            node.slice_mut()[..fields_len].copy_from_slice(&fields[..fields_len]);
            true
        })
    }
}

impl std::fmt::Debug for Znode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Znode")
            .field("path", &self.path())
            .field("meta", &self.meta())
            .field("data_len", &self.data().map(<[u8]>::len))
            .finish()
    }
}
