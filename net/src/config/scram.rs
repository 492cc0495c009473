//! The users of SCRAM-SHA-256, from a file that `ringkeeper scram add` writes, a line for each:
//!
//! ```text
//! decoy-key=BASE64
//! alice:SCRAM-SHA-256$15000:SALT$STORED-KEY:SERVER-KEY
//! ```
//!
//! The hash of a password is written as PostgreSQL writes it. Unknown users get a salt that is made with the
//! decoy key; the servers of an ensemble need the same one, else a client could tell by the difference who is
//! unknown.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringkeeper_engine::acl::is_sasl_id;
use ringkeeper_engine::sasl::ScramUsers;
use ringkeeper_wire::scram::{Verifier, prepared};

use super::{ConfigError, keys, text_of};

/// What the line with the decoy key begins with.
const DECOY_KEY: &str = "decoy-key=";

/// What separates a user from the hash of the password, together with the beginning of the hash.
const SEPARATOR: &str = ":SCRAM-SHA-256$";

/// The length of a decoy key, at least, in bytes.
const DECOY_KEY_LEN_MIN: usize = 16;

/// Reads the users of a file.
///
/// # Errors
/// It cannot be read, other users of the machine can read it, a line is malformed, a user has two lines, or
/// there is no user or no decoy key.
pub(crate) fn read_scram_users(path: &Path) -> Result<ScramUsers, ConfigError> {
    let fail = |reason| ConfigError::new(path, None, reason);
    let text = read_scram_file(path)?;
    let (mut verifiers, mut decoy_key) = (Vec::new(), None);
    let mut lines_of_users = HashMap::new();
    for (line, text) in lines(&text) {
        let malformed = |reason: String| ConfigError::new(path, Some(line), reason);
        if let Some((user, verifier)) = split(text) {
            if !is_suitable(user) {
                return Err(malformed(format!("{user:?} cannot be the name of a user")));
            }
            if let Some(before) = lines_of_users.insert(user, line) {
                return Err(malformed(format!(
                    "line {before} has the user {user:?}, too: remove the one with the old password"
                )));
            }
            verifiers.push((user.to_owned(), verifier.parse::<Verifier>().map_err(malformed)?));
        } else if let Some(key) = text.strip_prefix(DECOY_KEY) {
            let key = STANDARD.decode(key).ok().filter(|key| key.len() >= DECOY_KEY_LEN_MIN);
            let wrong = || malformed(format!("a decoy key is base64 of {DECOY_KEY_LEN_MIN} bytes or more"));
            decoy_key = Some(key.ok_or_else(wrong)?);
        } else {
            // What stands there may be a password.
            return Err(malformed(
                "neither a user, as `ringkeeper scram add` writes it, nor a decoy key".into(),
            ));
        }
    }
    let decoy_key = decoy_key
        .ok_or_else(|| fail(format!("add a line {DECOY_KEY}BASE64, such as of `openssl rand -base64 32`")))?;
    ScramUsers::new(verifiers, decoy_key)
        .map_err(|_| fail("has no user: `ringkeeper scram add` adds one".to_owned()))
}

/// The text of a file that may be changed.
///
/// # Errors
/// It cannot be read, other users of the machine can read it, or it is not UTF-8.
pub(crate) fn read_scram_file(path: &Path) -> Result<String, ConfigError> {
    let fail = |reason| ConfigError::new(path, None, reason);
    text_of(path, keys::private_file(path).map_err(fail)?)
}

/// Whether a user can have this name, which is to be the one of ACLs, too.
pub(crate) fn is_suitable(user: &str) -> bool {
    let is_prepared = prepared(user).is_ok_and(|prepared| prepared == user);
    is_prepared && !user.is_empty() && user.trim() == user && !user.starts_with('#') && is_sasl_id(user)
}

/// The text of a file with this user, who is added or gets another password; with a decoy key, if it had
/// none.
pub(crate) fn with_scram_user(text: &str, user: &str, verifier: &Verifier, decoy_key: &[u8]) -> String {
    let is_other = |line: &&str| split(line).is_none_or(|(name, _)| name != user);
    let mut changed: Vec<String> = text.lines().filter(is_other).map(str::to_owned).collect();
    if !changed.iter().any(|line| line.starts_with(DECOY_KEY)) {
        changed.insert(0, format!("{DECOY_KEY}{}", STANDARD.encode(decoy_key)));
    }
    changed.push(format!("{user}:{verifier}\n"));
    changed.join("\n")
}

/// The lines that are neither empty nor comments, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
}

/// A user and the hash of the password.
fn split(line: &str) -> Option<(&str, &str)> {
    let at = line.rfind(SEPARATOR).filter(|_| !line.starts_with('#'))?;
    Some((&line[..at], &line[at + 1..]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ringkeeper_wire::scram::Keys;

    use super::*;

    fn verifier(password: &str) -> Verifier {
        Keys::derive(password, b"12345678", 4096).expect("suitable").verifier().clone()
    }

    /// What a file with this text gives.
    fn read(text: &str, mode: u32) -> Result<ScramUsers, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("written");
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode)).expect("changed");
        let path = file.path().to_str().expect("UTF-8");
        read_scram_users(file.path()).map_err(|error| error.to_string().replace(path, "F"))
    }

    #[test]
    fn users_are_added_and_get_other_passwords() {
        let (one, other, key) = (verifier("one"), verifier("other"), &[7; 32]);
        let text = with_scram_user("", "bob", &one, key);
        let text = with_scram_user(&format!("# users\n\n{text}"), "a:b=c", &one, b"not taken");
        let text = with_scram_user(&text, "bob", &other, b"not taken");
        let users = vec![("bob".to_owned(), other), ("a:b=c".to_owned(), one)];
        assert_eq!(read(&text, 0o600), Ok(ScramUsers::new(users, key.to_vec()).expect("users")));
        assert!(text.starts_with("# users\n\ndecoy-key=BwcH"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_line_and_without_its_secrets() {
        let key = format!("decoy-key={}\n", STANDARD.encode([7; 16]));
        let bob = format!("bob:{}\n", verifier("pw"));
        for (text, mode, reason) in [
            (format!("{key}{bob}"), 0o640, "F: F is open to other users"),
            (bob.clone(), 0o600, "F: add a line decoy-key="),
            (key.clone(), 0o600, "F: has no user"),
            ("decoy-key=AAAA\n".to_owned(), 0o600, "F:1: a decoy key is base64 of 16 bytes"),
            (format!("{key}bob:pw"), 0o600, "F:2: neither a user"),
            (format!("{key}a@b@c:{}", verifier("pw")), 0o600, "F:2: \"a@b@c\" cannot be the name"),
            (
                format!("{bob}{key}alice:{}\n{bob}", verifier("pw")),
                0o600,
                "F:4: line 1 has the user \"bob\", too: remove the one",
            ),
            (format!("{key}bob:SCRAM-SHA-256$1:x$y:z"), 0o600, "F:2: the number of iterations"),
        ] {
            let error = read(&text, mode).expect_err(&text);
            assert!(error.starts_with(reason) && !error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn names_are_those_that_clients_send() {
        for user in ["bob", "m\u{fc}ller", "a b", "zk/host@REALM"] {
            assert!(is_suitable(user), "{user}");
        }
        for user in ["", "#bob", " bob", "bob\n", "b\u{ad}ob", "\u{aa}", "a@b@c"] {
            assert!(!is_suitable(user), "{user}");
        }
    }
}
