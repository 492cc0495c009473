use std::fmt;

use ringkeeper_wire::OpCode;

/// The call that an error answers: shown as `create /app/leader`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method of [`crate::Client`] or [`crate::Transaction`], such as `get_data`.
    pub operation: &'static str,
    /// The path that it was given, below the chroot; empty if it takes none.
    pub path: String,
}

impl Call {
    /// The call of this method with this path.
    pub fn new(operation: &'static str, path: impl Into<String>) -> Self {
        Self { operation, path: path.into() }
    }

    /// The call that sends this request.
    pub(crate) fn of(op: OpCode, path: impl Into<String>) -> Self {
        Self::new(method(op), path)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, " {}", self.path) }
    }
}

const fn method(op: OpCode) -> &'static str {
    match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => "create",
        OpCode::Delete | OpCode::DeleteContainer => "delete",
        OpCode::Exists => "exists",
        OpCode::GetData => "get_data",
        OpCode::SetData => "set_data",
        OpCode::GetAcl => "get_acl",
        OpCode::SetAcl => "set_acl",
        OpCode::GetChildren | OpCode::GetChildren2 => "get_children",
        OpCode::Sync => "sync",
        OpCode::Check => "check",
        OpCode::Multi => "transaction",
        OpCode::MultiRead => "reads",
        OpCode::Reconfig => "reconfigure",
        OpCode::CheckWatches => "check_watches",
        OpCode::RemoveWatches => "remove_watches",
        OpCode::AddWatch => "watch",
        OpCode::GetEphemerals => "get_ephemerals",
        OpCode::GetAllChildrenNumber => "count_descendants",
        OpCode::WhoAmI => "who_am_i",
        OpCode::CloseSession => "close",
        // The client sends the others by itself.
        _ => "request",
    }
}
