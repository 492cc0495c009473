//! Paths of znodes: the rules, and the chroot in front of them.

use std::borrow::Cow;

use crate::{Error, Result};

/// Checks a path against ZooKeeper's rules (docs/protocol.md, 8), so that a mistake costs no round trip.
///
/// # Errors
/// [`Error::InvalidPath`] with the rule that it breaks.
pub fn validate(path: &str) -> Result<()> {
    match fault(path) {
        None => Ok(()),
        Some(reason) => Err(Error::InvalidPath { path: path.to_owned(), reason }),
    }
}

/// As [`validate`], for a name that the server completes with a counter: it may end with '/'.
pub(crate) fn validate_sequential(path: &str) -> Result<()> {
    if path.ends_with('/') { validate(&format!("{path}1")) } else { validate(path) }
}

fn fault(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("it does not begin with '/'") };
    if rest.is_empty() {
        return None;
    }
    // Nearly every path is plain: one pass over the bytes, and names are looked at only if there is a dot.
    if !rest.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && rest.chars().any(is_refused) {
        return Some("it has a character that ZooKeeper refuses");
    }
    rest.split('/').find_map(|name| match name {
        "" => Some("it has an empty name, or ends with '/'"),
        "." | ".." => Some("it has a relative name"),
        _ => None,
    })
}

/// ZooKeeper judges UTF-16 units: whatever needs a surrogate pair is refused with them.
fn is_refused(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The parent of a path; the root is its own parent.
#[must_use]
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// The name of a znode without its parent's path; empty for the root.
#[must_use]
pub fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The child `name` of `parent`.
#[must_use]
pub fn join(parent: &str, name: &str) -> String {
    let parent = if parent == "/" { "" } else { parent };
    format!("{parent}/{name}")
}

/// Every ancestor of a path from its parent up to the root; nothing for the root.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors((path != "/").then(|| parent(path)), |path| (*path != "/").then(|| parent(path)))
}

/// The path at the server of `path` below `chroot`.
pub(crate) fn to_server<'a>(chroot: &str, path: &'a str) -> Cow<'a, str> {
    match (chroot, path) {
        ("", _) => Cow::Borrowed(path),
        (_, "/") => Cow::Owned(chroot.to_owned()),
        _ => Cow::Owned(format!("{chroot}{path}")),
    }
}

/// The program's path of a path at the server, given the length of the chroot.
pub(crate) fn from_server(chroot_len: usize, path: &str) -> &str {
    match path.get(chroot_len..) {
        Some("") => "/",
        Some(path) => path,
        // Not below the chroot: only a server that breaks the protocol sends such a path.
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths_pass() {
        for path in ["/", "/a", "/a/b.c", "/...", "/\u{e9}/\u{4e2d}", "/a b"] {
            assert_eq!(validate(path), Ok(()), "{path}");
        }
        assert_eq!(validate_sequential("/a/"), Ok(()));
    }

    #[test]
    fn bad_paths_are_refused() {
        for path in
            ["", "a", "/a/", "//", "/a//b", "/./a", "/a/..", "/\u{0}", "/\u{7f}", "/\u{e000}", "/\u{1f600}"]
        {
            assert!(validate(path).is_err(), "{path:?}");
        }
        assert!(validate_sequential("/a//").is_err());
    }

    #[test]
    fn ancestors_go_up_to_the_root() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(ancestors("/a").collect::<Vec<_>>(), ["/"]);
        assert_eq!(ancestors("/").count(), 0);
    }

    #[test]
    fn a_chroot_is_put_in_front_and_taken_away() {
        for path in ["/", "/a", "/a/b"] {
            assert_eq!(from_server(3, &to_server("/xy", path)), path);
            assert_eq!(from_server(0, &to_server("", path)), path);
        }
        assert_eq!(to_server("/xy", "/"), "/xy");
    }
}
