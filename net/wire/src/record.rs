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
#[macro_export]
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
                // One growth check for all fields.
                out.reserve(const {
                    let mut len = 0;
                    $(len += size_of::<$type>();)*
                    len
                });
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
                Ok(Self { $($field: $crate::record!(@decode reader $($decode)?),)* })
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

macro_rules! numbers {
    ($($type:ty: $read:ident, $put:ident;)*) => {$(
        impl Record<'_> for $type {
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$read()
            }

            fn encode(&self, out: &mut Vec<u8>) {
                jute::$put(out, *self);
            }
        }
    )*};
}

numbers! {
    bool: read_bool, put_bool;
    i32: read_i32, put_i32;
    i64: read_i64, put_i64;
}

/// A flag at the end of a record that old versions leave out.
impl Record<'_> for Option<bool> {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.rest().is_empty() { Ok(None) } else { reader.read_bool().map(Some) }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(flag) = self {
            flag.encode(out);
        }
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

macro_rules! wrapped_numbers {
    ($($type:ident)*) => {$(
        impl Record<'_> for $type {
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Record::decode(reader).map(Self)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
        }
    )*};
}

wrapped_numbers! { Perms Xid SessionId }

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
