//! Paths of znodes: which ones are valid, and how they are taken apart.

use std::fmt::Write;

/// The root's path.
pub const ROOT: &str = "/";

/// Znodes that exist from the beginning and cannot be deleted.
pub const RESERVED: [&str; 4] = [ROOT, ZOOKEEPER, "/zookeeper/quota", CONFIG];

/// Where znodes of the service are.
pub const ZOOKEEPER: &str = "/zookeeper";

/// Where the ensemble's configuration can be read.
pub const CONFIG: &str = "/zookeeper/config";

/// Where the ensemble's feature level can be read. Clients neither create nor change nor delete it.
pub const FEATURE_LEVEL: &str = "/zookeeper/feature_level";

/// A path that no znode can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid path")]
pub struct InvalidPath;

/// Checks a znode's full path by the rules of ZooKeeper's `PathUtils.validatePath`.
///
/// # Errors
/// The path is empty, does not begin with a slash or ends with one (except the root), has an empty, `.` or
/// `..` segment, or a forbidden character.
pub fn validate(path: &str) -> Result<(), InvalidPath> {
    if path == ROOT {
        return Ok(());
    }
    let segments = path.strip_prefix('/').ok_or(InvalidPath)?;
    if segments.split('/').all(is_valid_segment) { Ok(()) } else { Err(InvalidPath) }
}

fn is_valid_segment(segment: &str) -> bool {
    if matches!(segment, "" | "." | "..") {
        return false;
    }
    if segment.bytes().all(|byte| (b' '..0x7f).contains(&byte)) {
        return true;
    }
    !segment.chars().any(is_forbidden)
}

/// Whether a znode's name can have the character, beside the slash.
pub(crate) const fn is_allowed(char: char) -> bool {
    !is_forbidden(char)
}

/// Java checks UTF-16 code units and forbids surrogates, and with them all characters that need a surrogate
/// pair.
const fn is_forbidden(char: char) -> bool {
    matches!(char,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}'
        | '\u{10000}'..)
}

/// The parent's path for requests whose path is not fully validated: everything before the last slash, or the
/// root if that is empty. `None` without a slash or with a NUL character.
#[must_use]
pub fn parent_of_unchecked(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    parent(path)
}

/// Everything before the last slash, the root if that is nothing; `None` without a slash.
#[must_use]
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 => Some(ROOT),
        slash => Some(&path[..slash]),
    }
}

/// Whether `ancestor` is `path` or above it; both valid.
#[must_use]
pub fn is_self_or_ancestor(ancestor: &str, path: &str) -> bool {
    ancestor == ROOT
        || path.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A sequential znode's path: `prefix` completed by the number of children its parent ever had, in at least
/// ten digits, with a minus sign once the counter has wrapped.
#[must_use]
pub fn with_sequence(prefix: &str, creations: i32) -> String {
    let mut path = String::with_capacity(prefix.len() + 11);
    path.push_str(prefix);
    write!(path, "{creations:010}").expect("writing to a String does not fail");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_zookeeper_accepts_are_valid() {
        for path in [
            "/",
            "/a",
            "/a/b",
            "/a b",
            "/.a",
            "/a.",
            "/...",
            "/ä/日本",
            "/a/\u{a0}",
            "/\u{d7ff}",
            "/\u{f900}",
            "/\u{ffef}",
        ] {
            assert_eq!(validate(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in
            ["", "a", "a/b", "/a/", "//", "//a", "/a//b", "/.", "/..", "/a/.", "/a/..", "/./a", "/../a"]
        {
            assert_eq!(validate(path), Err(InvalidPath), "{path:?}");
        }
    }

    #[test]
    fn forbidden_characters_are_refused_as_utf16_units() {
        for char in [
            '\0',
            '\u{1}',
            '\u{1f}',
            '\u{7f}',
            '\u{9f}',
            '\u{e000}',
            '\u{f8ff}',
            '\u{fff0}',
            '\u{ffff}',
            '😀',
            '\u{10ffff}',
        ] {
            assert_eq!(validate(&format!("/a{char}b")), Err(InvalidPath), "{char:?}");
        }
    }

    #[test]
    fn a_parent_is_what_precedes_the_last_slash() {
        assert_eq!(parent("/a"), Some("/"));
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a/"), Some("/a"));
        assert_eq!(parent("//a"), Some("/"));
        assert_eq!(parent("a/b"), Some("a"));
        assert_eq!(parent("a"), None);
        assert_eq!(parent_of_unchecked("/a\0/b"), None);
    }

    #[test]
    fn an_ancestor_ends_at_a_slash() {
        assert!(is_self_or_ancestor("/", "/a"));
        assert!(is_self_or_ancestor("/a", "/a"));
        assert!(is_self_or_ancestor("/a", "/a/b"));
        assert!(!is_self_or_ancestor("/a", "/ab"));
        assert!(!is_self_or_ancestor("/a/b", "/a"));
    }

    #[test]
    fn the_sequence_suffix_has_ten_digits_and_wraps_with_a_sign() {
        assert_eq!(with_sequence("/q/n-", 0), "/q/n-0000000000");
        assert_eq!(with_sequence("/q/", i32::MAX), "/q/2147483647");
        assert_eq!(with_sequence("/q/", i32::MIN), "/q/-2147483648");
        assert_eq!(with_sequence("/q/", -1), "/q/-000000001");
    }
}
