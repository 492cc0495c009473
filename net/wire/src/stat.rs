use crate::record::record;

record! {
    /// A znode's metadata as clients see it (`zookeeper.jute`, Stat: 68 bytes on the wire).
    #[derive(Default)]
    Stat {
        /// Zxid of the transaction that created the znode.
        czxid: i64,
        /// Zxid of the transaction that last set its data.
        mzxid: i64,
        /// Creation time, milliseconds since the Unix epoch, the leader's clock.
        ctime: i64,
        /// Time of the last setData, milliseconds since the Unix epoch, the leader's clock.
        mtime: i64,
        /// Number of setData calls so far (wraps).
        version: i32,
        /// Creations plus deletions of children, as the client sees it.
        cversion: i32,
        /// Number of setACL calls so far (wraps).
        aversion: i32,
        /// The owning session of an ephemeral znode; 0 for every other kind, container and TTL included.
        ephemeral_owner: i64,
        /// Length of the data in bytes; null data counts 0.
        data_length: i32,
        /// Number of direct children.
        num_children: i32,
        /// Zxid of the last creation or deletion of a child, or the znode's own creation.
        pzxid: i64,
    }
}

impl Stat {
    /// Encoded size in bytes.
    pub const LEN: usize = 68;
}
