//! Differences that are meant: each with its reason, and narrow enough to let no other one through.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::compare::Difference;

/// The list, as `differences.toml` has it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Accepted {
    #[serde(default)]
    difference: Vec<Matcher>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Matcher {
    /// Why the subject answers otherwise.
    reason: String,
    request: String,
    field: String,
    /// The request, as the reports show it, has this in it.
    asked: Option<String>,
    /// The reference's answer begins with this.
    reference: Option<String>,
    /// The subject's answer begins with this.
    subject: Option<String>,
}

impl Accepted {
    /// Reads the list.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Why `difference` is meant in the answer to `asked`, if the list has a place for it.
    pub(super) fn reason(&self, asked: &str, difference: &Difference) -> Option<&str> {
        let begins =
            |answer: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|w| answer.starts_with(w));
        let covers = |matcher: &&Matcher| {
            matcher.request == difference.request
                && matcher.field == difference.field
                && matcher.asked.as_ref().is_none_or(|part| asked.contains(part))
                && begins(&difference.reference, &matcher.reference)
                && begins(&difference.subject, &matcher.subject)
        };
        self.difference.iter().find(covers).map(|matcher| matcher.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matcher_covers_only_what_it_names() {
        let list: Accepted = toml::from_str(
            "[[difference]]\nreason = 'why'\nrequest = 'Sasl'\nfield = 'err'\nasked = 'token'\nreference = '-5'\n\
             subject = '-115'\n",
        )
        .unwrap();
        let difference = |request: &str, subject: &str| Difference {
            request: request.into(),
            field: "err".into(),
            reference: "-5".into(),
            subject: subject.into(),
        };
        assert_eq!(list.reason("a token", &difference("Sasl", "-115")), Some("why"));
        assert_eq!(list.reason("nothing", &difference("Sasl", "-115")), None);
        assert_eq!(list.reason("a token", &difference("Sasl", "0")), None);
        assert_eq!(list.reason("a token", &difference("Auth", "-115")), None);
    }

    #[test]
    fn a_difference_without_a_reason_is_refused() {
        assert!(toml::from_str::<Accepted>("[[difference]]\nrequest = 'Sasl'\nfield = 'err'\n").is_err());
    }
}
