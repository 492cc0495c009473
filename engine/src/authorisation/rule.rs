//! A rule: the subtrees that its subject may use, and how.

use std::fmt;

use ringkeeper_wire::Perms;

use super::Subject;
use crate::path;
use crate::subtrees::Subtrees;

/// What a rule lets its subject do in a subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing, whatever the ACLs say.
    None,
    /// Read, whatever the ACLs say, and nothing else.
    Read,
    /// What the ACLs say.
    Acl,
    /// Everything, whatever the ACLs say.
    All,
}

impl Access {
    /// All of them, with their words.
    pub const WORDS: [(&'static str, Self); 4] =
        [("none", Self::None), ("read", Self::Read), ("acl", Self::Acl), ("all", Self::All)];

    /// The permissions that it leaves, at most.
    #[must_use]
    pub const fn permitted(self) -> Perms {
        match self {
            Self::None => Perms(0),
            Self::Read => Perms::READ,
            Self::Acl | Self::All => Perms::ALL,
        }
    }

    /// The permissions for which ACLs are not asked.
    #[must_use]
    pub const fn granted(self) -> Perms {
        match self {
            Self::None | Self::Acl => Perms(0),
            Self::Read => Perms::READ,
            Self::All => Perms::ALL,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, access)| access == self).map(|(word, _)| *word);
        f.write_str(word.unwrap_or_default())
    }
}

/// The subtrees that a subject may use. What no subtree covers, it may not use; where several do, the longest
/// path counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    subject: Subject,
    subtrees: Subtrees<Access>,
    /// Those that are not closed.
    open: Subtrees<()>,
}

impl Rule {
    /// Reads a rule: in each line an access and the path of a subtree, such as `acl /tenants/a`.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn parse(subject: Subject, text: &[u8]) -> Result<Self, InvalidRule> {
        let (mut subtrees, mut open) = (Subtrees::default(), Subtrees::default());
        let invalid = |line, fault| InvalidRule { line, fault };
        let text = str::from_utf8(text).map_err(|error| {
            invalid(
                1 + text[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count(),
                Fault::Utf8,
            )
        })?;
        for (number, line) in (1..).zip(text.strip_suffix('\n').unwrap_or(text).split('\n')) {
            let (word, path) = line.split_once(' ').ok_or_else(|| invalid(number, Fault::Form))?;
            let access = Access::WORDS.into_iter().find(|(name, _)| *name == word);
            let (_, access) = access.ok_or_else(|| invalid(number, Fault::Access))?;
            path::validate(path).map_err(|_| invalid(number, Fault::Path))?;
            if super::is_place(path) {
                return Err(invalid(number, Fault::Reserved));
            }
            if subtrees.insert(path, access).is_some() {
                return Err(invalid(number, Fault::Twice));
            }
            if access != Access::None {
                open.insert(path, ());
            }
        }
        Ok(Self { subject, subtrees, open })
    }

    /// Whom it binds.
    #[must_use]
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// What it lets its subject do at `path`, and the subtree that says so; `None` if none covers the path.
    #[must_use]
    pub fn access(&self, path: &str) -> (Access, Option<&str>) {
        match self.subtrees.covering(path) {
            Some((subtree, access)) => (*access, Some(subtree)),
            None => (Access::None, None),
        }
    }

    /// Whether `path` is above a subtree that can be used.
    pub(super) fn leads_on(&self, path: &str) -> bool {
        self.open.below(path).next().is_some()
    }
}

/// Its text.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subtrees.iter().try_for_each(|(path, access)| writeln!(f, "{access} {path}"))
    }
}

/// A text that is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the rule: {fault}")]
pub struct InvalidRule {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a line of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not text.
    #[error("not UTF-8")]
    Utf8,
    /// It has no blank.
    #[error("write an access, a blank and a path, such as `acl /tenants/a`; at least one line is needed")]
    Form,
    /// The first word is no access.
    #[error("the access is one of none, read, acl, all")]
    Access,
    /// What follows is no path of a znode.
    #[error("not a valid path: the whole rest of the line is taken for the path")]
    Path,
    /// A line before it has the same path.
    #[error("the path has a line already")]
    Twice,
    /// The path is that of the rules themselves.
    #[error("the rules themselves belong to super users alone")]
    Reserved,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, (usize, Fault)> {
        Rule::parse(Subject::Others, text.as_bytes()).map_err(|error| (error.line, error.fault))
    }

    #[test]
    fn the_longest_subtree_counts_and_nothing_else_is_open() {
        let rule = rule("acl /t/a\nnone /t/a/secret\nread /t/a/secret/but this\nall /t/ab\n").expect("valid");
        for (path, access, subtree) in [
            ("/t/a", Access::Acl, Some("/t/a")),
            ("/t/a/x/y", Access::Acl, Some("/t/a")),
            ("/t/a/secret/x", Access::None, Some("/t/a/secret")),
            ("/t/a/secret/but this/x", Access::Read, Some("/t/a/secret/but this")),
            ("/t/ab", Access::All, Some("/t/ab")),
            ("/t/abc", Access::None, None),
            ("/t", Access::None, None),
            ("/", Access::None, None),
        ] {
            assert_eq!(rule.access(path), (access, subtree), "{path}");
        }
        for (path, leads_on) in
            [("/", true), ("/t", true), ("/t/a/secret", true), ("/t/ab", false), ("/u", false)]
        {
            assert_eq!(rule.leads_on(path), leads_on, "{path}");
        }
    }

    #[test]
    fn a_subtree_that_is_closed_leads_nowhere() {
        assert!(!rule("none /t/a").expect("valid").leads_on("/t"));
    }

    #[test]
    fn the_text_is_read_back() {
        let text = "read /\nacl /a b\nnone /a b/c\n";
        assert_eq!(rule(text).expect("valid").to_string(), text);
    }

    #[test]
    fn other_texts_are_refused_with_the_line() {
        for (text, line, fault) in [
            ("", 1, Fault::Form),
            ("\n", 1, Fault::Form),
            ("read", 1, Fault::Form),
            ("acl /a\n\n", 2, Fault::Form),
            ("acl /a\nREAD /b", 2, Fault::Access),
            ("write /a", 1, Fault::Access),
            ("acl a", 1, Fault::Path),
            ("acl /a/", 1, Fault::Path),
            ("acl  /a", 1, Fault::Path),
            ("acl /a\r\nacl /b", 1, Fault::Path),
            ("acl /a\nread /b\nread /a", 3, Fault::Twice),
            ("read /zookeeper/authorisation", 1, Fault::Reserved),
            ("acl /\nnone /zookeeper/authorisation/x", 2, Fault::Reserved),
        ] {
            assert_eq!(rule(text), Err((line, fault)), "{text:?}");
        }
        let error = Rule::parse(Subject::Others, b"acl /a\nacl /\xff").expect_err("not UTF-8");
        assert_eq!((error.line, error.fault), (2, Fault::Utf8));
    }
}
