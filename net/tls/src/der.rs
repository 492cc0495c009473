//! The elements of ASN.1's DER, one inside the other and one after the other. Read without recursion, so that
//! no input is too deep.

/// One element of DER: tag, value, and both with the length between them.
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) value: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// Elements one after the other; ends before one that is malformed.
pub(crate) struct Elements<'a>(pub(crate) &'a [u8]);

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTETS: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const SEQUENCE: u8 = 0x30;

impl<'a> Element<'a> {
    pub(crate) fn first(bytes: &'a [u8]) -> Option<Self> {
        Elements(bytes).next()
    }

    /// The elements inside.
    pub(crate) fn inside(self) -> Elements<'a> {
        Elements(self.value)
    }

    /// An object identifier as numbers with dots between them.
    pub(crate) fn identifier(self) -> Option<String> {
        if self.tag != OBJECT_IDENTIFIER {
            return None;
        }
        let mut numbers = Vec::new();
        let mut number = 0_u64;
        for byte in self.value {
            number = number.checked_mul(128)? | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                numbers.push(std::mem::take(&mut number));
            }
        }
        // The first two share a number.
        let (first, rest) = numbers.split_first()?;
        let root = (*first / 40).min(2);
        let all = [root, *first - 40 * root].into_iter().chain(rest.iter().copied());
        Some(all.map(|number| number.to_string()).collect::<Vec<_>>().join("."))
    }

    /// An integer from 0 to the largest of its kind.
    pub(crate) fn number(self) -> Option<u32> {
        let digits = self.value.strip_prefix(&[0]).unwrap_or(self.value);
        let is_negative = self.value.first()? & 0x80 != 0;
        (self.tag == INTEGER && !is_negative && digits.len() <= 4).then(|| of_digits(digits))
    }
}

impl<'a> Elements<'a> {
    /// The value of the next element, if it has this tag.
    pub(crate) fn value_of(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|element| element.tag == tag).map(|element| element.value)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&[tag, length], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match length {
            ..=0x7f => (usize::from(length), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
                (of_digits(digits) as usize, rest)
            }
            // Without a length, which DER does not have, or longer than anything here may be.
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some(Element { tag, value, whole })
    }
}

/// An element that consists of these parts.
pub(crate) fn encoded(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let mut element = vec![tag];
    match u8::try_from(value.len()) {
        Ok(short @ ..=0x7f) => element.push(short),
        _ => {
            let digits = value.len().to_be_bytes();
            let zeros = digits.iter().take_while(|digit| **digit == 0).count();
            element.push(0x80 | u8::try_from(digits.len() - zeros).expect("at most 8"));
            element.extend_from_slice(&digits[zeros..]);
        }
    }
    element.extend(value);
    element
}

fn of_digits(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |number, digit| number << 8 | u32::from(*digit))
}
