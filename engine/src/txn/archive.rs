//! Archived forms of types from other modules.

use bytes::Bytes;
use bytestring::ByteString;
use ringkeeper_wire::{AclEntry, ErrorCode, Perms, SessionId, Xid};
use rkyv::boxed::{ArchivedBox, BoxResolver};
use rkyv::rancor::{Fallible, ResultExt, Source, Strategy, fail};
use rkyv::rend::{i32_le, i64_le};
use rkyv::ser::{Allocator, Writer};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::with::{ArchiveWith, DeserializeWith, SerializeWith, With};
use rkyv::{Archive, Place, Serialize};

use crate::acl::Acl;

/// Archives an [`Acl`] as its entries; an open one as none.
pub struct AclEntries;

/// An [`AclEntry`].
#[derive(Archive, Serialize)]
#[rkyv(remote = AclEntry, archived = ArchivedAclEntry)]
#[expect(dead_code, unreachable_pub, reason = "only its archived form is used, by public archives")]
pub struct RemoteAclEntry {
    /// What the entry permits.
    #[rkyv(with = Number)]
    pub perms: Perms,
    /// The authentication scheme.
    pub scheme: String,
    /// The identity, in the form of the scheme.
    pub id: String,
}

fn archived_entries(acl: &Acl) -> &[AclEntry] {
    if acl.is_open() { &[] } else { acl.entries() }
}

impl ArchiveWith<Acl> for AclEntries {
    type Archived = ArchivedVec<ArchivedAclEntry>;
    type Resolver = VecResolver;

    fn resolve_with(acl: &Acl, resolver: VecResolver, out: Place<Self::Archived>) {
        ArchivedVec::resolve_from_len(archived_entries(acl).len(), resolver, out);
    }
}

impl<S: Fallible<Error: Source> + Allocator + Writer + ?Sized> SerializeWith<Acl, S> for AclEntries {
    fn serialize_with(acl: &Acl, serializer: &mut S) -> Result<VecResolver, S::Error> {
        type Entry = With<AclEntry, RemoteAclEntry>;
        let entries = archived_entries(acl).iter().map(Entry::cast);
        ArchivedVec::serialize_from_iter::<Entry, _, S>(entries, serializer)
    }
}

impl<D: Fallible + ?Sized> DeserializeWith<ArchivedVec<ArchivedAclEntry>, Acl, D> for AclEntries {
    fn deserialize_with(entries: &ArchivedVec<ArchivedAclEntry>, _: &mut D) -> Result<Acl, D::Error> {
        let entries = entries.iter().map(|entry| AclEntry {
            perms: Perms(entry.perms.to_native()),
            scheme: entry.scheme.to_string(),
            id: entry.id.to_string(),
        });
        Ok(Acl::new(entries.collect()))
    }
}

/// Archives bytes and strings as their boxed slices. Deserialized, they share the bytes of the archive.
pub struct Shared;

/// Deserializes from an archive that is all of these bytes.
pub(super) struct Whole<'a>(pub(super) &'a Bytes);

/// Gives parts of an archive out without copying them.
pub trait Share {
    /// `part` of the archive, sharing its bytes.
    fn share(&self, part: &[u8]) -> Bytes;
}

impl<E> Share for Strategy<Whole<'_>, E> {
    fn share(&self, part: &[u8]) -> Bytes {
        self.0.slice_ref(part)
    }
}

macro_rules! shared {
    ($($type:ty as $archived:ty: $from:expr;)*) => {$(
        impl ArchiveWith<$type> for Shared {
            type Archived = ArchivedBox<$archived>;
            type Resolver = BoxResolver;

            fn resolve_with(value: &$type, resolver: BoxResolver, out: Place<Self::Archived>) {
                ArchivedBox::resolve_from_ref::<$archived>(value, resolver, out);
            }
        }

        impl<S: Fallible<Error: Source> + Allocator + Writer + ?Sized> SerializeWith<$type, S> for Shared {
            fn serialize_with(value: &$type, serializer: &mut S) -> Result<BoxResolver, S::Error> {
                ArchivedBox::<$archived>::serialize_from_ref::<$archived, S>(value, serializer)
            }
        }

        impl<D: Fallible<Error: Source> + Share + ?Sized> DeserializeWith<ArchivedBox<$archived>, $type, D>
            for Shared
        {
            fn deserialize_with(archived: &ArchivedBox<$archived>, from: &mut D) -> Result<$type, D::Error> {
                $from(from.share(archived.as_ref().as_ref()))
            }
        }
    )*};
}

shared! {
    Bytes as [u8]: Ok;
    ByteString as str: |bytes| ByteString::try_from(bytes).into_error();
}

/// Archives a numeric code as its number on the wire.
pub struct Number;

#[derive(Debug, thiserror::Error)]
#[error("{0} is no error code")]
struct UnknownErrorCode(i32);

macro_rules! numbers {
    ($($type:ty as $archived:ty: $to:expr, $from:expr;)*) => {$(
        impl ArchiveWith<$type> for Number {
            type Archived = $archived;
            type Resolver = ();

            fn resolve_with(value: &$type, (): (), out: Place<$archived>) {
                $to(*value).resolve((), out);
            }
        }

        impl<S: Fallible + ?Sized> SerializeWith<$type, S> for Number {
            fn serialize_with(_: &$type, _: &mut S) -> Result<(), S::Error> {
                Ok(())
            }
        }

        impl<D: Fallible<Error: Source> + ?Sized> DeserializeWith<$archived, $type, D> for Number {
            fn deserialize_with(number: &$archived, _: &mut D) -> Result<$type, D::Error> {
                $from(number.to_native())
            }
        }
    )*};
}

numbers! {
    Perms as i32_le: |perms: Perms| perms.0, |number| Ok(Perms(number));
    Xid as i32_le: |xid: Xid| xid.0, |number| Ok(Xid(number));
    SessionId as i64_le: |session: SessionId| session.0, |number| Ok(SessionId(number));
    ErrorCode as i32_le: ErrorCode::to_wire, error_code;
}

fn error_code<E: Source>(number: i32) -> Result<ErrorCode, E> {
    match ErrorCode::from_wire(number) {
        Some(code) => Ok(code),
        None => fail!(UnknownErrorCode(number)),
    }
}
