/// A znode's metadata as clients see it (`zookeeper.jute`, Stat: 68 bytes on the wire).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Zxid of the transaction that created the znode.
    pub czxid: i64,
    /// Zxid of the transaction that last set its data.
    pub mzxid: i64,
    /// Creation time, milliseconds since the Unix epoch, the leader's clock.
    pub ctime: i64,
    /// Time of the last setData, milliseconds since the Unix epoch, the leader's clock.
    pub mtime: i64,
    /// Number of setData calls so far (wraps).
    pub version: i32,
    /// Creations plus deletions of children, as the client sees it.
    pub cversion: i32,
    /// Number of setACL calls so far (wraps).
    pub aversion: i32,
    /// The owning session of an ephemeral znode; 0 for every other kind, container and TTL included.
    pub ephemeral_owner: i64,
    /// Length of the data in bytes; null data counts 0.
    pub data_length: i32,
    /// Number of direct children.
    pub num_children: i32,
    /// Zxid of the last creation or deletion of a child, or the znode's own creation.
    pub pzxid: i64,
}

impl Stat {
    /// Encoded size in bytes.
    pub const LEN: usize = 68;
}
