//! Lists that are checked once and read lazily, so that neither side allocates per element.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use crate::Record;
use crate::jute::{self, DecodeError, Fault, Reader};

/// A record that appears in lists, and the form in which a program keeps it.
pub trait Element<'a>: Record<'a> {
    /// The form to encode from.
    type Owned: 'a;

    /// The record of `owned`, borrowed.
    fn borrowed(owned: &'a Self::Owned) -> Self;

    /// Appends the encoding of `owned`.
    fn encode_owned(owned: &'a Self::Owned, out: &mut Vec<u8>) {
        Self::borrowed(owned).encode(out);
    }
}

impl<'a> Element<'a> for Cow<'a, str> {
    type Owned = String;

    fn borrowed(owned: &'a String) -> Self {
        Cow::Borrowed(owned)
    }
}

/// A list of strings: paths of watches, names of children.
pub type StringList<'a> = Vector<'a, Cow<'a, str>>;

/// A jute vector: the number of elements comes first.
pub type Vector<'a, T> = List<'a, T, Counted>;

/// How the end of a [`Vector`] is known.
pub enum Counted {}

/// A list: either received, then a checked range of the caller's buffer, or about to be sent, then a slice of
/// the program's own values. `F` is how its end is known.
pub struct List<'a, T: Element<'a>, F>(Elements<'a, T::Owned>, PhantomData<F>);

enum Elements<'a, O> {
    /// Invariant: `bytes` is exactly `count` elements that decoded without error.
    Received {
        count: usize,
        bytes: &'a [u8],
    },
    Given(&'a [O]),
}

impl<'a, T: Element<'a>, F> List<'a, T, F> {
    /// A list without elements.
    pub const EMPTY: Self = Self(Elements::Given(&[]), PhantomData);

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
    pub const fn iter(&self) -> ListIter<'a, T> {
        ListIter(match self.0 {
            Elements::Received { count, bytes } => {
                IterState::Received { left: count, reader: Reader::new(bytes) }
            }
            Elements::Given(items) => IterState::Given(items),
        })
    }

    /// The list of the `count` elements in `bytes`, all of which were decoded.
    pub(crate) const fn received(count: usize, bytes: &'a [u8]) -> Self {
        Self(Elements::Received { count, bytes }, PhantomData)
    }

    /// Appends the elements, without their number or end.
    pub(crate) fn encode_elements(&self, out: &mut Vec<u8>) {
        match self.0 {
            Elements::Received { bytes, .. } => out.extend_from_slice(bytes),
            Elements::Given(items) => items.iter().for_each(|item| T::encode_owned(item, out)),
        }
    }
}

impl<'a, T: Element<'a>, F> From<&'a [T::Owned]> for List<'a, T, F> {
    fn from(items: &'a [T::Owned]) -> Self {
        Self(Elements::Given(items), PhantomData)
    }
}

impl<'a, T: Element<'a>> Record<'a> for Vector<'a, T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        Option::decode(reader)?.ok_or(DecodeError { what: Fault::Null, offset })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        jute::put_len(out, self.len());
        self.encode_elements(out);
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
        Ok(Some(Vector::received(count, &bytes[..reader.offset() - start])))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Some(vector) => vector.encode(out),
            None => jute::put_i32(out, -1),
        }
    }
}

impl<'a, T: Element<'a>, F> Clone for List<'a, T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'a, T: Element<'a>, F> Copy for List<'a, T, F> {}

impl<O> Clone for Elements<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Elements<'_, O> {}

impl<'a, T: Element<'a>, F> Default for List<'a, T, F> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<'a, T: Element<'a> + PartialEq, F> PartialEq for List<'a, T, F> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Element<'a> + Eq, F> Eq for List<'a, T, F> {}

impl<'a, T: Element<'a> + fmt::Debug, F> fmt::Debug for List<'a, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Element<'a>, F> IntoIterator for List<'a, T, F> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Iterator over a [`List`].
pub struct ListIter<'a, T: Element<'a>>(IterState<'a, T::Owned>);

enum IterState<'a, O> {
    Received { left: usize, reader: Reader<'a> },
    Given(&'a [O]),
}

impl<'a, T: Element<'a>> Iterator for ListIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            IterState::Received { left, reader } => {
                *left = left.checked_sub(1)?;
                Some(T::decode(reader).expect("the list was checked when it was decoded"))
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

impl<'a, T: Element<'a>> ExactSizeIterator for ListIter<'a, T> {}

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
