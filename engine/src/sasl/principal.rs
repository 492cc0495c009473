//! From the name of a Kerberos principal to that of a user, by the rules of ZooKeeper's operators
//! (`zookeeper.security.auth_to_local`, as `KerberosName` reads them), separated by blanks or not at all:
//!
//! ```text
//! RULE:[2:$1-$2](zk-.*)s/^zk-//g    for two components such as zk/host: joins them, if the whole matches,
//!                                   replaces each match of the second pattern
//! DEFAULT                           for the default realm: the first component
//! ```
//!
//! `$0` is the realm. The first rule that applies decides. Its result may have neither `/` nor `@`; the host
//! and the realm of the principal are appended to it, unless they are to be removed.

use regex_lite::Regex;

/// How principals become users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principals {
    /// The rules.
    pub rules: Rules,
    /// The realm to which `DEFAULT` applies; empty if there is none.
    pub default_realm: String,
    /// Whether users have no host (`kerberos.removeHostFromPrincipal`).
    pub removes_host: bool,
    /// Whether users have no realm (`kerberos.removeRealmFromPrincipal`).
    pub removes_realm: bool,
}

impl Principals {
    /// The user that a principal is; `None` if no rule applies, or if the name has no realm.
    pub(crate) fn user(&self, principal: &str) -> Option<String> {
        let (name, realm) = principal.split_once('@')?;
        let (service, host) = match name.split_once('/') {
            Some((service, host)) => (service, Some(host)),
            None => (name, None),
        };
        if realm.contains(['/', '@']) || host.is_some_and(|host| host.contains('/')) {
            return None;
        }
        let parts: Vec<&str> = [realm, service].into_iter().chain(host).collect();
        let mut user = self.rules.0.iter().find_map(|rule| rule.apply(&parts, &self.default_realm))?;
        if user.contains(['/', '@']) {
            return None;
        }
        if let Some(host) = host.filter(|_| !self.removes_host) {
            user.extend(["/", host]);
        }
        if !self.removes_realm {
            user.extend(["@", realm]);
        }
        Some(user)
    }
}

/// Rules that are tried in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

impl Default for Rules {
    fn default() -> Self {
        Self(vec![Rule::Default])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Default,
    Joined {
        components: usize,
        format: Vec<Part>,
        whole: Option<Pattern>,
        substitution: Option<Substitution>,
    },
}

/// A part of what a rule joins.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// 0 is the realm.
    Component(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Substitution {
    from: Pattern,
    /// In the notation of [`Regex::replace`].
    to: String,
    repeats: bool,
}

/// A regular expression.
#[derive(Clone, Debug)]
struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Rule {
    /// `parts` are the realm and the components of a principal.
    fn apply(&self, parts: &[&str], default_realm: &str) -> Option<String> {
        match self {
            Self::Default => {
                (parts.first() == Some(&default_realm)).then(|| parts.get(1).map(ToString::to_string))?
            }
            Self::Joined { components, format, whole, substitution } => {
                if parts.len() - 1 != *components {
                    return None;
                }
                let joined: String = format
                    .iter()
                    .map(|part| match part {
                        Part::Text(text) => text,
                        Part::Component(number) => parts[*number],
                    })
                    .collect();
                if whole.as_ref().is_some_and(|whole| !whole.0.is_match(&joined)) {
                    return None;
                }
                let Some(Substitution { from, to, repeats }) = substitution else { return Some(joined) };
                // No limit: as often as it matches.
                Some(from.0.replacen(&joined, usize::from(!repeats), to).into_owned())
            }
        }
    }
}

impl std::str::FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = rule(rest).map_err(|reason| format!("{reason} in {rest:?}"))?;
            rules.push(rule);
            rest = after.trim_start();
        }
        Ok(Self(rules))
    }
}

/// The rule at the front of `text`, and what follows it.
fn rule(text: &str) -> Result<(Rule, &str), String> {
    if let Some(after) = text.strip_prefix("DEFAULT") {
        return Ok((Rule::Default, after));
    }
    let parts = text.strip_prefix("RULE:[").and_then(|rest| rest.split_once(']'));
    let head = parts.and_then(|(head, after)| Some((head.split_once(':')?, after)));
    let ((components, format), after) =
        head.ok_or_else(|| "neither DEFAULT nor RULE:[NUMBER:FORMAT]".to_owned())?;
    let components = components.parse().map_err(|_| format!("{components:?} is no number of components"))?;
    let format = format_parts(format, components)?;
    let (whole, after) = match after.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((whole, after)) => {
            (Some(pattern(whole).and_then(|_| pattern(&format!(r"\A(?:{whole})\z")))?), after)
        }
        None => (None, after),
    };
    let pieces = after.strip_prefix("s/").and_then(|rest| rest.split_once('/'));
    let pieces = pieces.and_then(|(from, rest)| Some((from, rest.split_once('/')?)));
    let Some((from, (to, after))) = pieces else {
        return Ok((Rule::Joined { components, format, whole, substitution: None }, after));
    };
    let from = pattern(from)?;
    let to = replacement(to, &from)?;
    let (repeats, after) = after.strip_prefix('g').map_or((false, after), |after| (true, after));
    let substitution = Some(Substitution { from, to, repeats });
    Ok((Rule::Joined { components, format, whole, substitution }, after))
}

fn pattern(text: &str) -> Result<Pattern, String> {
    Regex::new(text).map(Pattern).map_err(|error| format!("the pattern {text:?} is not supported: {error}"))
}

/// Takes `$1-$0` apart. There are so many components beside the realm.
fn format_parts(format: &str, components: usize) -> Result<Vec<Part>, String> {
    let mut pieces = format.split('$');
    let mut parts = vec![Part::Text(pieces.next().unwrap_or_default().to_owned())];
    for piece in pieces {
        let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, text) = piece.split_at(digits);
        let number = number.parse().ok().filter(|number| *number <= components);
        parts.push(Part::Component(number.ok_or_else(|| format!("$ without one of 0 to {components}"))?));
        parts.push(Part::Text(text.to_owned()));
    }
    Ok(parts)
}

/// Turns Java's notation of a replacement into that of [`Regex::replace`]: `$12` is the second group and a
/// digit if there are fewer than 12, and a backslash makes the next character an ordinary one.
fn replacement(text: &str, from: &Pattern) -> Result<String, String> {
    let groups = from.0.captures_len() - 1;
    let mut template = String::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '$' => {
                let mut group = None;
                while let Some(digit) = chars.peek().and_then(|char| char.to_digit(10)) {
                    let longer = group.unwrap_or(0) * 10 + digit as usize;
                    if longer > groups {
                        break;
                    }
                    group = Some(longer);
                    chars.next();
                }
                let group =
                    group.ok_or_else(|| format!("the replacement {text:?} names no group of the pattern"))?;
                template.push_str(&format!("${{{group}}}"));
            }
            '\\' => {
                let plain =
                    chars.next().ok_or_else(|| format!("the replacement {text:?} ends with a backslash"))?;
                template.extend((plain == '$').then_some('$'));
                template.push(plain);
            }
            _ => template.push(char),
        }
    }
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Apache ZooKeeper 3.9.5 (`SaslServerCallbackHandler`) makes of a principal, with `h` for hosts and
    /// `r` for realms that are removed.
    #[rustfmt::skip]
    const CASES: &[(&str, &str, &str, Option<&str>)] = &[
        ("DEFAULT", "alice@R", "", Some("alice@R")),
        ("DEFAULT", "zk/host@R", "", Some("zk/host@R")),
        ("DEFAULT", "alice@R", "h", Some("alice@R")),
        ("DEFAULT", "zk/host@R", "h", Some("zk@R")),
        ("DEFAULT", "alice@R", "r", Some("alice")),
        ("DEFAULT", "zk/host@R", "r", Some("zk/host")),
        ("DEFAULT", "alice@R", "hr", Some("alice")),
        ("DEFAULT", "zk/host@R", "hr", Some("zk")),
        ("DEFAULT", "alice@OTHER", "", None),
        ("DEFAULT", "alice", "", None),
        ("DEFAULT", "a/b/c", "", None),
        ("DEFAULT", "a/b/c@R", "", None),
        ("DEFAULT", "a@b@c", "", None),
        ("DEFAULT", "a@b/c", "", None),
        ("DEFAULT", "@R", "", Some("@R")),
        ("DEFAULT", "/h@R", "", Some("/h@R")),
        ("DEFAULT", "a/@R", "", Some("a/@R")),
        ("RULE:[1:$1]", "alice@OTHER", "r", Some("alice")),
        ("RULE:[1:$1]", "a/h@OTHER", "r", None),
        ("RULE:[2:$1]", "a/h@OTHER", "hr", Some("a")),
        ("RULE:[2:$1-$2]", "a/h@R", "hr", Some("a-h")),
        ("RULE:[2:$1/$2]", "a/h@R", "hr", None),
        ("RULE:[1:$1@$0]", "a@R", "hr", None),
        ("RULE:[1:$1@$0](.*@R)s/@.*//", "a@R", "hr", Some("a")),
        ("RULE:[1:$1@$0](.*@R)s/@.*//", "a@S", "hr", None),
        ("RULE:[1:$1@$0](@R)s/@.*//", "a@R", "hr", None),
        ("RULE:[1:$1]s/a/b/", "banana@R", "hr", Some("bbnana")),
        ("RULE:[1:$1]s/a/b/g", "banana@R", "hr", Some("bbnbnb")),
        ("RULE:[1:$1]s/(b)(a)/$2$1/g", "banana@R", "hr", Some("abnana")),
        (r"RULE:[1:$1]s/a/\$/g", "banana@R", "hr", Some("b$n$n$")),
        ("RULE:[1:$1]s/(a)n/$12/", "banana@R", "hr", Some("ba2ana")),
        (r"RULE:[1:$1]s/(a)/\\/", "banana@R", "hr", Some(r"b\nana")),
        ("RULE:[1:$1](b.*)s/x*/-/g", "bab@R", "hr", Some("-b-a-b-")),
        ("RULE:[1:]", "a@R", "hr", Some("")),
        ("RULE:[1:x]", "a@R", "", Some("x@R")),
        ("RULE:[1:x$0y$1z]", "a@R", "hr", Some("xRyaz")),
        ("RULE:[1:$1](x.*)RULE:[1:$1](a.*)s/a/o/DEFAULT", "a@R", "hr", Some("o")),
        ("RULE:[1:$1](x.*)RULE:[1:$1](b.*)s/a/o/DEFAULT", "a@R", "hr", Some("a")),
        ("  DEFAULT   RULE:[1:$1]  ", "a@S", "hr", Some("a")),
        ("DEFAULTRULE:[1:$1]", "a@S", "hr", Some("a")),
        (r"RULE:[1:$1](\w+)s/\d+$//", "user42@R", "hr", Some("user")),
        (r"RULE:[1:$1](\w+)", "üser@R", "hr", None),
        ("RULE:[1:$1](a|ab)", "ab@R", "hr", Some("ab")),
        ("RULE:[0:$0]", "a@R", "hr", None),
        ("RULE:[2:$1]DEFAULT", "bob/host@R", "r", Some("bob/host")),
    ];

    #[test]
    fn principals_become_the_users_that_they_are_in_zookeeper() {
        for (rules, principal, removed, user) in CASES {
            let principals = Principals {
                rules: rules.parse().expect(rules),
                default_realm: "R".to_owned(),
                removes_host: removed.contains('h'),
                removes_realm: removed.contains('r'),
            };
            assert_eq!(principals.user(principal).as_deref(), *user, "{rules} {principal} {removed}");
        }
    }

    #[test]
    fn rules_that_cannot_be_applied_are_refused() {
        for rules in [
            "RULE:[1:$1](?i)",
            "RULE:[1:$1]((?i:A).*)",
            "RULE:[1:$2]",
            "RULE:[1:$]",
            "RULE:[:$1]",
            "RULE:[1:$1]s/a/b",
            "RULE:[1:$1]s/a/b/L",
            "RULE:[1:$1]s/(/b/",
            "RULE:[1:$1]s/a/$1/",
            r"RULE:[1:$1]s/a/\/",
            "nonsense",
            "RULE",
            "RULE:[1:$1](a",
            "RULE:[1:$1]([)",
            "RULE:[1:$1]s/a/$x/",
        ] {
            assert!(rules.parse::<Rules>().is_err(), "{rules}");
        }
    }
}
