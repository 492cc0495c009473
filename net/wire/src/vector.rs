//! Counted lists that are checked once and read lazily, so that neither side allocates per element.

use std::borrow::Cow;
use std::fmt;

use crate::Record;
use crate::jute::{self, DecodeError, Fault, Reader};

/// A record that appears in vectors, and the form in which a program keeps it.
pub trait Element<'a>: Record<'a> {
    /// The form to encode from.
    type Owned: 'a;

    /// The record of `owned`, borrowed.
    fn borrowed(owned: &'a Self::Owned) -> Self;
}

impl<'a> Element<'a> for Cow<'a, str> {
    type Owned = String;

    fn borrowed(owned: &'a String) -> Self {
        Cow::Borrowed(owned)
    }
}

/// A list of strings: paths of watches, names of children.
pub type StringList<'a> = Vector<'a, Cow<'a, str>>;

/// A jute vector: either received, then a checked range of the caller's buffer, or about to be sent,
/// then a slice of the program's own values.
pub struct Vector<'a, T: Element<'a>>(Elements<'a, T::Owned>);

enum Elements<'a, O> {
    /// Invariant: `bytes` is exactly `count` elements that decoded without error.
    Received {
        count: usize,
        bytes: &'a [u8],
    },
    Given(&'a [O]),
}

impl<'a, T: Element<'a>> Vector<'a, T> {
    /// A vector without elements.
    pub const EMPTY: Self = Self(Elements::Given(&[]));

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Elements::Received { count, .. } => count,
            Elements::Given(items) => items.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements in order.
    #[must_use]
    pub const fn iter(&self) -> VectorIter<'a, T> {
        VectorIter(match self.0 {
            Elements::Received { count, bytes } => {
                IterState::Received { left: count, reader: Reader::new(bytes) }
            }
            Elements::Given(items) => IterState::Given(items),
        })
    }
}

impl<'a, T: Element<'a>> From<&'a [T::Owned]> for Vector<'a, T> {
    fn from(items: &'a [T::Owned]) -> Self {
        Self(Elements::Given(items))
    }
}

impl<'a, T: Element<'a>> Record<'a> for Vector<'a, T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        Option::decode(reader)?.ok_or(DecodeError { what: Fault::Null, offset })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_len(out, self.len());
        match self.0 {
            Elements::Received { bytes, .. } => out.extend_from_slice(bytes),
            Elements::Given(items) => items.iter().for_each(|item| T::borrowed(item).encode(out)),
        }
    }
}

impl<'a, T: Element<'a>> Record<'a> for Option<Vector<'a, T>> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let Some(count) = reader.read_count()? else { return Ok(None) };
        let bytes = reader.rest();
        let start = reader.offset();
        for _ in 0..count {
            T::decode(reader)?;
        }
        let bytes = &bytes[..reader.offset() - start];
        Ok(Some(Vector(Elements::Received { count, bytes })))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Some(vector) => vector.encode(out),
            None => jute::put_i32(out, -1),
        }
    }
}

impl<'a, T: Element<'a>> Clone for Vector<'a, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, T: Element<'a>> Copy for Vector<'a, T> {}

impl<O> Clone for Elements<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Elements<'_, O> {}

impl<'a, T: Element<'a>> Default for Vector<'a, T> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<'a, T: Element<'a> + PartialEq> PartialEq for Vector<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Element<'a> + Eq> Eq for Vector<'a, T> {}

impl<'a, T: Element<'a> + fmt::Debug> fmt::Debug for Vector<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Element<'a>> IntoIterator for Vector<'a, T> {
    type Item = T;
    type IntoIter = VectorIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over a [`Vector`].
pub struct VectorIter<'a, T: Element<'a>>(IterState<'a, T::Owned>);

enum IterState<'a, O> {
    Received { left: usize, reader: Reader<'a> },
    Given(&'a [O]),
}

impl<'a, T: Element<'a>> Iterator for VectorIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            IterState::Received { left, reader } => {
                *left = left.checked_sub(1)?;
                Some(T::decode(reader).expect("the vector was checked when it was decoded"))
            }
            IterState::Given(items) => {
                let (first, rest) = items.split_first()?;
                *items = rest;
                Some(T::borrowed(first))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match self.0 {
            IterState::Received { left, .. } => left,
            IterState::Given(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: Element<'a>> ExactSizeIterator for VectorIter<'a, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_the_bytes_is_refused_without_reserving_memory() {
        let bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'a'];
        let error = StringList::from_bytes(&bytes).expect_err("one string of 2^31 - 1");
        assert_eq!(error, DecodeError { what: Fault::EndOfRecord, offset: 9 });
    }

    #[test]
    fn given_and_received_vectors_are_equal() {
        let names = ["a".to_owned(), String::new(), "\u{e9}".to_owned()];
        let given = StringList::from(names.as_slice());
        let mut bytes = Vec::new();
        given.encode(&mut bytes);
        let received = StringList::from_bytes(&bytes).expect("a vector");
        assert_eq!(received, given);
        assert_eq!(received.iter().len(), 3);
        let mut counted = Vec::new();
        jute::put_ustrings(&mut counted, names.iter().map(String::as_str));
        assert_eq!(counted, bytes);
    }

    #[test]
    fn null_strings_inside_a_vector_are_refused() {
        let error = StringList::from_bytes(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]).expect_err("null");
        assert_eq!(error, DecodeError { what: Fault::Null, offset: 4 });
    }
}
