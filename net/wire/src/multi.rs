//! multi and multiRead: sequences of operations and of results, each behind a header, closed by a header
//! that says "done" (docs/protocol.md, 3.4).

use std::borrow::Cow;

use crate::jute::{DecodeError, Fault, Reader};
use crate::list::{Element, List};
use crate::record::record;
use crate::request::{
    CheckRequest, CreateRequest, CreateTtlRequest, DeleteRequest, PathWatchRequest, SetDataRequest,
};
use crate::{CreateMode, OpCode, Record, Stat, StringList};

record! {
    /// In front of each operation and result, and at the end (`MultiHeader`).
    MultiHeader {
        /// Opcode of the operation or result; -1 for an error result and at the end.
        op: i32,
        /// Whether this is the end.
        done: bool,
        /// -1 in requests and at the end, 0 or an error code in results.
        err: i32,
    }
}

impl MultiHeader {
    const END: Self = Self { op: -1, done: true, err: -1 };

    const fn request(op: OpCode) -> Self {
        Self { op: op.to_wire(), done: false, err: -1 }
    }

    const fn result(op: OpCode) -> Self {
        Self { op: op.to_wire(), done: false, err: 0 }
    }
}

/// An operation or a result inside a multi.
pub trait MultiEntry<'a>: Clone {
    /// Reads what follows `header`.
    ///
    /// # Errors
    /// The kind is not allowed here, or the bytes are cut short or break a rule of the record.
    fn decode_entry(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends its header and itself.
    fn encode_entry(&self, out: &mut Vec<u8>);
}

/// The operations of a multi.
pub type MultiRequest<'a> = List<'a, MultiOp<'a>, Closed>;
/// The operations of a multiRead.
pub type MultiReadRequest<'a> = List<'a, MultiReadOp<'a>, Closed>;
/// The results of either.
pub type MultiResponse<'a> = List<'a, MultiResult<'a>, Closed>;

/// How the end of a sequence is known: by a header that says "done".
pub enum Closed {}

impl<'a, T: MultiEntry<'a>> Record<'a> for T {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let header = MultiHeader::decode(reader)?;
        T::decode_entry(header, reader)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_entry(out);
    }
}

impl<'a, T: MultiEntry<'a> + 'a> Element<'a> for T {
    type Owned = Self;

    fn borrowed(owned: &'a Self) -> Self {
        owned.clone()
    }

    fn encode_owned(owned: &'a Self, out: &mut Vec<u8>) {
        owned.encode_entry(out);
    }
}

/// Appends the end of a sequence whose entries were appended one by one.
pub fn end_multi(out: &mut Vec<u8>) {
    MultiHeader::END.encode(out);
}

impl<'a, T: MultiEntry<'a> + 'a> Record<'a> for List<'a, T, Closed> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (all, start) = (reader.rest(), reader.offset());
        let mut count = 0;
        loop {
            let entries_len = reader.offset() - start;
            let header = MultiHeader::decode(reader)?;
            if header.done {
                return Ok(Self::received(count, &all[..entries_len]));
            }
            T::decode_entry(header, reader)?;
            count += 1;
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_elements(out);
        end_multi(out);
    }
}

/// An operation of a multi.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiOp<'a> {
    /// create; the flag of a container makes it createContainer, its result included
    Create(CreateRequest<'a>),
    /// create2; likewise
    Create2(CreateRequest<'a>),
    /// createContainer
    CreateContainer(CreateRequest<'a>),
    /// createTTL; flags without a time to live make it a create, its result included
    CreateTtl(CreateTtlRequest<'a>),
    /// delete
    Delete(DeleteRequest<'a>),
    /// setData
    SetData(SetDataRequest<'a>),
    /// check
    Check(CheckRequest<'a>),
}

impl MultiOp<'_> {
    /// Its opcode.
    #[must_use]
    pub const fn op(&self) -> OpCode {
        match self {
            Self::Create(_) => OpCode::Create,
            Self::Create2(_) => OpCode::Create2,
            Self::CreateContainer(_) => OpCode::CreateContainer,
            Self::CreateTtl(_) => OpCode::CreateTtl,
            Self::Delete(_) => OpCode::Delete,
            Self::SetData(_) => OpCode::SetData,
            Self::Check(_) => OpCode::Check,
        }
    }

    /// The znode.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create(record) | Self::Create2(record) | Self::CreateContainer(record) => &record.path,
            Self::CreateTtl(record) => &record.path,
            Self::Delete(record) => &record.path,
            Self::SetData(record) => &record.path,
            Self::Check(record) => &record.path,
        }
    }
}

/// Reads a create of a multi. Inside a multi ZooKeeper answers a null ACL, unknown flags, and flags for a
/// time to live in a record without one, as if the bytes could not be parsed; in a createTTL it does not.
fn decode_create<'a>(reader: &mut Reader<'a>) -> Result<CreateRequest<'a>, DecodeError> {
    let offset = reader.offset();
    let record = CreateRequest::decode(reader)?;
    let flags_fit = CreateMode::from_wire(record.flags).is_some_and(|mode| !mode.is_ttl());
    let what = match record.acl {
        None => Fault::Null,
        Some(_) if flags_fit => return Ok(record),
        Some(_) => Fault::UnknownValue { field: "flags", value: record.flags },
    };
    Err(DecodeError { what, offset })
}

impl<'a> MultiEntry<'a> for MultiOp<'a> {
    fn decode_entry(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match OpCode::from_wire(header.op) {
            Some(OpCode::Create) => decode_create(reader).map(Self::Create),
            Some(OpCode::Create2) => decode_create(reader).map(Self::Create2),
            Some(OpCode::CreateContainer) => decode_create(reader).map(Self::CreateContainer),
            Some(OpCode::CreateTtl) => Record::decode(reader).map(Self::CreateTtl),
            Some(OpCode::Delete) => Record::decode(reader).map(Self::Delete),
            Some(OpCode::SetData) => Record::decode(reader).map(Self::SetData),
            Some(OpCode::Check) => Record::decode(reader).map(Self::Check),
            _ => Err(reader.error(Fault::UnexpectedOp(header.op))),
        }
    }

    fn encode_entry(&self, out: &mut Vec<u8>) {
        MultiHeader::request(self.op()).encode(out);
        match self {
            Self::Create(record) | Self::Create2(record) | Self::CreateContainer(record) => {
                record.encode(out)
            }
            Self::CreateTtl(record) => record.encode(out),
            Self::Delete(record) => record.encode(out),
            Self::SetData(record) => record.encode(out),
            Self::Check(record) => record.encode(out),
        }
    }
}

/// An operation of a multiRead. The watch flag inside is not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiReadOp<'a> {
    /// getData
    GetData(PathWatchRequest<'a>),
    /// getChildren
    GetChildren(PathWatchRequest<'a>),
}

impl<'a> MultiEntry<'a> for MultiReadOp<'a> {
    fn decode_entry(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match OpCode::from_wire(header.op) {
            Some(OpCode::GetData) => Record::decode(reader).map(Self::GetData),
            Some(OpCode::GetChildren) => Record::decode(reader).map(Self::GetChildren),
            _ => Err(reader.error(Fault::UnexpectedOp(header.op))),
        }
    }

    fn encode_entry(&self, out: &mut Vec<u8>) {
        let (op, record) = match self {
            Self::GetData(record) => (OpCode::GetData, record),
            Self::GetChildren(record) => (OpCode::GetChildren, record),
        };
        MultiHeader::request(op).encode(out);
        record.encode(out);
    }
}

/// What became of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultiResult<'a> {
    /// create: the path, completed by the counter if sequential.
    Created(Cow<'a, str>),
    /// create2, createContainer and createTTL: path and Stat.
    Created2(Cow<'a, str>, Stat),
    /// delete
    Deleted,
    /// setData
    DataSet(Stat),
    /// check
    Checked,
    /// getChildren
    Children(StringList<'a>),
    /// getData
    Data(Option<&'a [u8]>, Stat),
    /// The operation, or another of the same multi, failed. 0 before the one that failed, -2 after it.
    Error(i32),
}

impl<'a> MultiEntry<'a> for MultiResult<'a> {
    fn decode_entry(header: MultiHeader, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match OpCode::from_wire(header.op) {
            Some(OpCode::Create) => Self::Created(Record::decode(reader)?),
            Some(OpCode::Create2) => Self::Created2(Record::decode(reader)?, Record::decode(reader)?),
            Some(OpCode::Delete) => Self::Deleted,
            Some(OpCode::SetData) => Self::DataSet(Record::decode(reader)?),
            Some(OpCode::Check) => Self::Checked,
            Some(OpCode::GetChildren) => Self::Children(Record::decode(reader)?),
            Some(OpCode::GetData) => Self::Data(Record::decode(reader)?, Record::decode(reader)?),
            Some(OpCode::Error) => Self::Error(reader.read_i32()?),
            _ => return Err(reader.error(Fault::UnexpectedOp(header.op))),
        })
    }

    fn encode_entry(&self, out: &mut Vec<u8>) {
        match self {
            Self::Created(path) => {
                MultiHeader::result(OpCode::Create).encode(out);
                path.encode(out);
            }
            Self::Created2(path, stat) => {
                MultiHeader::result(OpCode::Create2).encode(out);
                path.encode(out);
                stat.encode(out);
            }
            Self::Deleted => MultiHeader::result(OpCode::Delete).encode(out),
            Self::DataSet(stat) => {
                MultiHeader::result(OpCode::SetData).encode(out);
                stat.encode(out);
            }
            Self::Checked => MultiHeader::result(OpCode::Check).encode(out),
            Self::Children(children) => {
                MultiHeader::result(OpCode::GetChildren).encode(out);
                children.encode(out);
            }
            Self::Data(data, stat) => {
                MultiHeader::result(OpCode::GetData).encode(out);
                data.encode(out);
                stat.encode(out);
            }
            Self::Error(code) => {
                MultiHeader { op: OpCode::Error.to_wire(), done: false, err: *code }.encode(out);
                code.encode(out);
            }
        }
    }
}
