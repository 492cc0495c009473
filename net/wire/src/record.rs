//! What all records have in common: fields in order, each with one encoding.

use std::borrow::Cow;

use crate::jute::{self, DecodeError, Fault, Reader};
use crate::{AddWatchMode, Perms, SessionId, WatcherType, Xid};

/// Something with an encoding of its own: a field, or a record made of fields.
pub trait Record<'a>: Sized {
    /// Reads it; strings, buffers and lists stay borrowed.
    ///
    /// # Errors
    /// The bytes are cut short or break a rule of the record.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Appends its encoding.
    ///
    /// # Panics
    /// A string, buffer or list is longer than jute can express, `i32::MAX`.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads it from the front of `bytes`. Trailing bytes are ignored, as ZooKeeper does.
    ///
    /// # Errors
    /// As [`Record::decode`].
    fn from_bytes(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode(&mut Reader::new(bytes))
    }
}

/// Declares a record: the struct, and [`Record`] as its fields in order. A field may name a function to read
/// it with.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $crate::Record<'_> for $name {
            fn decode(reader: &mut $crate::jute::Reader<'_>) -> Result<Self, $crate::jute::DecodeError> {
                Ok(Self { $($field: $crate::Record::decode(reader)?,)* })
            }

            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::Record::encode(&self.$field, out);)*
            }
        }
    };
    ($(#[$meta:meta])* $name:ident<$lt:lifetime> {
        $($(#[$fmeta:meta])* $field:ident: $type:ty $(= $decode:path)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name<$lt> { $($(#[$fmeta])* pub $field: $type,)* }

        impl<$lt> $crate::Record<$lt> for $name<$lt> {
            fn decode(reader: &mut $crate::jute::Reader<$lt>) -> Result<Self, $crate::jute::DecodeError> {
                Ok(Self { $($field: record!(@decode reader $($decode)?),)* })
            }

            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::Record::encode(&self.$field, out);)*
            }
        }
    };
    (@decode $reader:ident) => { $crate::Record::decode($reader)? };
    (@decode $reader:ident $decode:path) => { $decode($reader)? };
}
pub(crate) use record;

/// Reads a path that ZooKeeper validates before it uses it: null is as invalid as an empty one, and is read
/// as such.
pub(crate) fn validated_path<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, DecodeError> {
    Ok(reader.read_ustring()?.unwrap_or_default())
}

impl Record<'_> for bool {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_bool()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_bool(out, *self);
    }
}

impl Record<'_> for i32 {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_i32()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, *self);
    }
}

impl Record<'_> for i64 {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_i64()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i64(out, *self);
    }
}

impl<'a> Record<'a> for Option<&'a [u8]> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.read_buffer()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_buffer(out, *self);
    }
}

impl<'a> Record<'a> for Option<Cow<'a, str>> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.read_ustring()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_buffer(out, self.as_deref().map(str::as_bytes));
    }
}

/// A string that must not be null: almost every path. ZooKeeper answers a null path with MARSHALLINGERROR.
impl<'a> Record<'a> for Cow<'a, str> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        reader.read_ustring()?.ok_or(DecodeError { what: Fault::Null, offset })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_ustring(out, self);
    }
}

impl Record<'_> for Perms {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_i32().map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.0);
    }
}

impl Record<'_> for Xid {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_i32().map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.0);
    }
}

impl Record<'_> for SessionId {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.read_i64().map(Self)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i64(out, self.0);
    }
}

impl Record<'_> for WatcherType {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        let value = reader.read_i32()?;
        let what = Fault::UnknownValue { field: "watcher type", value };
        Self::from_wire(value).ok_or(DecodeError { what, offset })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.to_wire());
    }
}

impl Record<'_> for AddWatchMode {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        let value = reader.read_i32()?;
        let what = Fault::UnknownValue { field: "addWatch mode", value };
        Self::from_wire(value).ok_or(DecodeError { what, offset })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_i32(out, self.to_wire());
    }
}
