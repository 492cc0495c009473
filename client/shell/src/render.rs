//! Metadata and access control lists, for people as zkCli prints them, and for programs.

use std::fmt::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use ringkeeper_client::{Acl, Perms, Stat};
use serde_json::{Value, json};

use crate::error::ShellError;

/// The letters of permissions, in zkCli's order.
pub(crate) const LETTERS: [(char, Perms); 5] = [
    ('c', Perms::CREATE),
    ('d', Perms::DELETE),
    ('r', Perms::READ),
    ('w', Perms::WRITE),
    ('a', Perms::ADMIN),
];

/// Metadata, a figure a line, with zkCli's names.
pub(crate) fn stat_text(stat: &Stat) -> String {
    format!(
        "cZxid = {}\nctime = {}\nmZxid = {}\nmtime = {}\npZxid = {}\ncversion = {}\ndataVersion = {}\naclVersion = {}\n\
         ephemeralOwner = 0x{:x}\ndataLength = {}\nnumChildren = {}",
        stat.czxid,
        time(stat.ctime_ms),
        stat.mzxid,
        time(stat.mtime_ms),
        stat.pzxid,
        stat.cversion,
        stat.version,
        stat.aversion,
        stat.ephemeral_owner.map_or(0, |owner| owner.0),
        stat.data_length,
        stat.num_children,
    )
}

/// Metadata as an object; zxids and session ids as hexadecimal text, since 64 bits are more than JSON's
/// readers keep.
pub(crate) fn stat_json(stat: &Stat) -> Value {
    json!({
        "czxid": stat.czxid.to_string(),
        "ctime_ms": stat.ctime_ms,
        "mzxid": stat.mzxid.to_string(),
        "mtime_ms": stat.mtime_ms,
        "pzxid": stat.pzxid.to_string(),
        "cversion": stat.cversion,
        "version": stat.version,
        "aversion": stat.aversion,
        "ephemeral_owner": stat.ephemeral_owner.map(|owner| owner.to_string()),
        "data_length": stat.data_length,
        "num_children": stat.num_children,
    })
}

/// A time in UTC, to the millisecond.
fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), |time| format!("{time:.3}"))
}

/// Data as a value: as text where it is text, else in base64.
pub(crate) fn data_json(data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok(text) => json!({ "data": text }),
        Err(_) => json!({ "data_base64": BASE64_STANDARD.encode(data) }),
    }
}

/// Data in base64.
pub(crate) fn base64(data: &[u8]) -> String {
    BASE64_STANDARD.encode(data)
}

/// An access control list, an entry a pair of lines, as zkCli prints it.
pub(crate) fn acl_text(acl: &Acl) -> String {
    let mut text = String::new();
    for (perms, scheme, id) in acl.entries() {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "'{scheme},'{id}\n: {}", letters(perms));
    }
    text
}

/// An access control list as an array.
pub(crate) fn acl_json(acl: &Acl) -> Value {
    let entry = |(perms, scheme, id): (Perms, &str, &str)| json!({ "scheme": scheme, "id": id, "perms": letters(perms) });
    acl.entries().map(entry).collect()
}

pub(crate) fn letters(perms: Perms) -> String {
    LETTERS.iter().filter(|(_, bit)| perms.intersects(*bit)).map(|(letter, _)| *letter).collect()
}

fn parse_letters(text: &str) -> Option<Perms> {
    let bit = |letter| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, bit)| *bit);
    text.chars().try_fold(Perms(0), |perms, letter| Some(Perms(perms.0 | bit(letter)?.0)))
}

/// Reads `scheme:id:permissions,...`. An id may hold colons, as that of `digest` does.
pub(crate) fn parse_acl(text: &str) -> Result<Acl, ShellError> {
    let mut acl = Acl::new();
    for entry in text.split(',') {
        let wrong = |why: &str| {
            ShellError::Usage(format!(
                "{entry:?} in the access control list {why}: use scheme:id:permissions, such as world:anyone:cdrwa"
            ))
        };
        let (scheme, rest) = entry.split_once(':').ok_or_else(|| wrong("has no colon"))?;
        let (id, perms) = rest.rsplit_once(':').ok_or_else(|| wrong("has one colon only"))?;
        let perms = parse_letters(perms).ok_or_else(|| wrong("has permissions other than c, d, r, w, a"))?;
        acl = acl.grant(perms, scheme, id);
    }
    Ok(acl)
}

/// Reads what [`acl_json`] has written.
pub(crate) fn acl_from_json(value: &Value) -> Option<Acl> {
    value.as_array()?.iter().try_fold(Acl::new(), |acl, entry| {
        let text = |key| entry.get(key)?.as_str();
        Some(acl.grant(parse_letters(text("perms")?)?, text("scheme")?, text("id")?))
    })
}

/// Reads base64.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_as_it_was_written() {
        let acl = parse_acl("world:anyone:r,digest:user:hash=:cdrwa").unwrap();
        let entries: Vec<_> = acl.entries().collect();
        assert_eq!(entries, [(Perms::READ, "world", "anyone"), (Perms::ALL, "digest", "user:hash=")]);
        assert_eq!(acl_from_json(&acl_json(&acl)), Some(acl.clone()));
        assert_eq!(acl_text(&acl), "'world,'anyone\n: r\n'digest,'user:hash=\n: cdrwa");
    }

    #[test]
    fn what_is_no_list_is_named() {
        for text in ["", "world", "world:anyone", "world:anyone:x"] {
            let error = parse_acl(text).unwrap_err().to_string();
            assert!(error.contains("scheme:id:permissions"), "{error}");
        }
    }

    #[test]
    fn data_that_is_no_text_is_written_in_base64() {
        assert_eq!(data_json(b"a\xff"), json!({ "data_base64": "Yf8=" }));
        assert_eq!(from_base64("Yf8=").as_deref(), Some(&b"a\xff"[..]));
    }
}
