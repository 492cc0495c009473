//! Numbers with a meaning: opcodes, error codes, event types, permissions, special xids.

macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum $name { $($(#[$vmeta])* $variant = $value,)* }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The value with this number on the wire.
            #[must_use]
            pub const fn from_wire(value: i32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }

            /// Its number on the wire.
            #[must_use]
            pub const fn to_wire(self) -> i32 {
                self as i32
            }
        }
    };
}

wire_enum! {
    /// Request types that a client may send (`ZooDefs.OpCode`; docs/protocol.md, 3.1).
    #[non_exhaustive]
    OpCode {
        /// create
        Create = 1,
        /// delete
        Delete = 2,
        /// exists
        Exists = 3,
        /// getData
        GetData = 4,
        /// setData
        SetData = 5,
        /// getACL
        GetAcl = 6,
        /// setACL
        SetAcl = 7,
        /// getChildren
        GetChildren = 8,
        /// sync
        Sync = 9,
        /// ping
        Ping = 11,
        /// getChildren2: children and Stat
        GetChildren2 = 12,
        /// check a version; only inside a multi
        Check = 13,
        /// multi: several writes, all or none
        Multi = 14,
        /// create2: create, answering with the Stat
        Create2 = 15,
        /// reconfig
        Reconfig = 16,
        /// checkWatches
        CheckWatches = 17,
        /// removeWatches
        RemoveWatches = 18,
        /// createContainer
        CreateContainer = 19,
        /// deleteContainer; internal, refused from clients
        DeleteContainer = 20,
        /// createTTL
        CreateTtl = 21,
        /// multiRead
        MultiRead = 22,
        /// auth
        Auth = 100,
        /// setWatches
        SetWatches = 101,
        /// sasl
        Sasl = 102,
        /// getEphemerals
        GetEphemerals = 103,
        /// getAllChildrenNumber
        GetAllChildrenNumber = 104,
        /// setWatches2
        SetWatches2 = 105,
        /// addWatch
        AddWatch = 106,
        /// whoAmI
        WhoAmI = 107,
        /// createSession; internal, refused from clients
        CreateSession = -10,
        /// closeSession
        CloseSession = -11,
        /// error; a transaction type only
        Error = -1,
    }
}

wire_enum! {
    /// Error codes that the server sends (`KeeperException.Code`; docs/protocol.md, 4.1).
    #[non_exhaustive]
    ErrorCode {
        /// No error.
        Ok = 0,
        /// In a failed multi: an operation after the one that failed.
        RuntimeInconsistency = -2,
        /// The body could not be parsed.
        MarshallingError = -5,
        /// Unknown opcode, or a feature that is switched off.
        Unimplemented = -6,
        /// A path, flag or TTL out of its range.
        BadArguments = -8,
        /// Internal: the session is not known.
        UnknownSession = -12,
        /// reconfig: no synced quorum of the new configuration.
        NewConfigNoQuorum = -13,
        /// reconfig: an earlier one is not yet committed.
        ReconfigInProgress = -14,
        /// The znode, or the parent, does not exist.
        NoNode = -101,
        /// The ACL does not permit it.
        NoAuth = -102,
        /// The expected version is not the current one.
        BadVersion = -103,
        /// Ephemeral znodes have no children.
        NoChildrenForEphemerals = -108,
        /// The znode exists already.
        NodeExists = -110,
        /// The znode has children.
        NotEmpty = -111,
        /// The session has expired or is closing.
        SessionExpired = -112,
        /// The ACL is empty or malformed.
        InvalidAcl = -114,
        /// The credentials were refused.
        AuthFailed = -115,
        /// The session is served elsewhere; never written to a client.
        SessionMoved = -118,
        /// A write on a read-only server.
        NotReadOnly = -119,
        /// An ephemeral on a local session.
        EphemeralOnLocalSession = -120,
        /// No such watch.
        NoWatcher = -121,
        /// reconfig is switched off.
        ReconfigDisabled = -123,
        /// Authentication is enforced and missing.
        SessionClosedRequireSaslAuth = -124,
        /// A hard quota would be exceeded.
        QuotaExceeded = -125,
        /// The request waited too long and was not executed.
        ThrottledOp = -127,
    }
}

wire_enum! {
    /// What a watch saw (`Watcher.Event.EventType`).
    EventType {
        /// The znode was created.
        NodeCreated = 1,
        /// The znode was deleted.
        NodeDeleted = 2,
        /// Its data was set.
        NodeDataChanged = 3,
        /// A child was created or deleted.
        NodeChildrenChanged = 4,
    }
}

wire_enum! {
    /// Flags of a create request (`CreateMode`; docs/protocol.md, 3.2).
    CreateMode {
        /// Stays until deleted.
        Persistent = 0,
        /// Deleted when its session ends.
        Ephemeral = 1,
        /// Persistent, the name completed by a counter.
        PersistentSequential = 2,
        /// Ephemeral, the name completed by a counter.
        EphemeralSequential = 3,
        /// Deleted by the server some time after its last child.
        Container = 4,
        /// Deleted by the server when unmodified and childless for its time to live.
        PersistentWithTtl = 5,
        /// The same, the name completed by a counter.
        PersistentSequentialWithTtl = 6,
    }
}

impl CreateMode {
    /// Whether the server completes the name with the parent's counter.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::PersistentSequential | Self::EphemeralSequential | Self::PersistentSequentialWithTtl
        )
    }

    /// Whether the znode lives as long as its session.
    #[must_use]
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Ephemeral | Self::EphemeralSequential)
    }

    /// Whether the znode has a time to live.
    #[must_use]
    pub const fn is_ttl(self) -> bool {
        matches!(self, Self::PersistentWithTtl | Self::PersistentSequentialWithTtl)
    }
}

wire_enum! {
    /// Which watches on a path a client asks about (`Watcher.WatcherType`).
    WatcherType {
        /// Those left by getChildren.
        Children = 1,
        /// Those left by exists and getData.
        Data = 2,
        /// All.
        Any = 3,
        /// Persistent ones.
        Persistent = 4,
        /// Persistent recursive ones.
        PersistentRecursive = 5,
    }
}

wire_enum! {
    /// What kind of watch addWatch leaves (`AddWatchMode`).
    AddWatchMode {
        /// Stays until removed.
        Persistent = 0,
        /// Stays until removed, and sees the whole subtree.
        PersistentRecursive = 1,
    }
}

impl OpCode {
    /// Whether a client may send it by itself. check is for multis alone, the others are internal to
    /// servers; ZooKeeper answers them with UNIMPLEMENTED and closes the connection.
    #[must_use]
    pub const fn is_client_request(self) -> bool {
        !matches!(self, Self::Check | Self::DeleteContainer | Self::CreateSession | Self::Error)
    }
}

/// Permission bits of an ACL entry (`ZooDefs.Perms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Perms(pub i32);

impl Perms {
    /// Read data, children and Stat.
    pub const READ: Self = Self(1);
    /// Set data.
    pub const WRITE: Self = Self(2);
    /// Create children.
    pub const CREATE: Self = Self(4);
    /// Delete children.
    pub const DELETE: Self = Self(8);
    /// Set the ACL.
    pub const ADMIN: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(31);

    /// Whether any bit of `wanted` is granted.
    #[must_use]
    pub const fn intersects(self, wanted: Self) -> bool {
        self.0 & wanted.0 != 0
    }
}

/// Special request and reply xids (docs/protocol.md, 1.3).
pub mod xid {
    use crate::Xid;

    /// A watch notification.
    pub const NOTIFICATION: Xid = Xid(-1);
    /// A ping and its answer.
    pub const PING: Xid = Xid(-2);
    /// An auth packet and its answer.
    pub const AUTH: Xid = Xid(-4);
    /// setWatches and setWatches2.
    pub const SET_WATCHES: Xid = Xid(-8);
}
