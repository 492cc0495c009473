//! Rules of authorisation: which subtrees an identity may use, whatever the ACLs say. They are znodes that
//! ringkeeper's servers read, see `ringkeeper_engine::authorisation`.

use ringkeeper_client::{Acl, CreateMode, Error, Perms};
use ringkeeper_engine::acl::{self, Caller};
use ringkeeper_engine::authorisation::{Authorisation, Bounds, PLACE, Rule, Subject, Verdict, rule_path};
use ringkeeper_engine::txn::Identity;
use ringkeeper_wire::AclEntry;
use serde_json::{Value, json};

use crate::command::{Explain, SetRule};
use crate::error::ShellError;
use crate::out::Out;
use crate::render;
use crate::session::Session;

/// Makes a rule, or replaces it.
pub(crate) fn set(session: &Session, command: &SetRule, out: &mut Out<'_>) -> Result<(), ShellError> {
    let subject = subject(&command.identity)?;
    let lines = command.subtrees.chunks(2).map(|pair| pair.join(" ") + "\n");
    let text: String = lines.collect();
    Rule::parse(subject.clone(), text.as_bytes()).map_err(|error| ShellError::Usage(error.to_string()))?;
    let path = rule_path(&subject);
    let what = || format!("setrule {subject}");
    if session.find(what(), |client| client.set_data(&path, &text, None))?.is_none() {
        // Servers ask no ACL here. A system that knows no rules does, should the znodes come to one.
        let acl = Acl::new().grant(Perms(0), "world", "anyone");
        for (path, data) in [(PLACE, ""), (&*path, &*text)] {
            let mode = CreateMode::Persistent.with_acl(&acl);
            match session.call(what(), |client| client.create(path, data, mode)) {
                Err(ShellError::Client { source: Error::NodeExists(_), .. }) if path == PLACE => {}
                created => created.map(drop)?,
            }
        }
    }
    Ok(out.put("", || rule_json(&subject, &text))?)
}

/// Removes a rule.
pub(crate) fn delete(session: &Session, identity: &str, out: &mut Out<'_>) -> Result<(), ShellError> {
    let subject = subject(identity)?;
    let path = rule_path(&subject);
    session.call(format!("delrule {subject}"), |client| client.delete(&path, None))?;
    Ok(out.put("", || json!({ "identity": subject.to_string(), "subtrees": null }))?)
}

/// Shows all rules.
pub(crate) fn list(session: &Session, out: &mut Out<'_>) -> Result<(), ShellError> {
    for (name, data) in rules(session, |_| true)? {
        let subject = Subject::of_name(&name).map_or_else(|_| name.clone(), |subject| subject.to_string());
        let text = String::from_utf8_lossy(&data);
        let indented: String = text.lines().map(|line| format!("\n  {line}")).collect();
        out.put(&format!("{subject}{indented}"), || rule_json(&subject, &text))?;
    }
    Ok(())
}

fn rule_json(subject: &impl ToString, text: &str) -> Value {
    let subtrees: Value = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(access, path)| json!({ "access": access, "path": path }))
        .collect();
    json!({ "identity": subject.to_string(), "subtrees": subtrees })
}

/// Names and data of the rules whose subject is wanted.
fn rules(session: &Session, wanted: impl Fn(&Subject) -> bool) -> Result<Vec<(String, Vec<u8>)>, ShellError> {
    let names = session.find(format!("ls {PLACE}"), |client| client.get_children(PLACE))?;
    let mut names = names.map_or_else(Vec::new, |(names, _)| names);
    names.retain(|name| Subject::of_name(name).map_or(true, |subject| wanted(&subject)));
    names.sort_unstable();
    let mut rules = Vec::new();
    for name in names {
        let path = format!("{PLACE}/{name}");
        if let Some((data, _)) = session.find(format!("get {path}"), |client| client.get_data(&path))? {
            rules.push((name, data.to_vec()));
        }
    }
    Ok(rules)
}

/// Shows what a client with these identities may do with a znode, and what decides it.
pub(crate) fn explain(session: &Session, command: &Explain, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Explain { path, identities } = command;
    let identities: Vec<_> = identities.iter().map(|text| identity(text)).collect::<Result<_, _>>()?;
    let is_concerned =
        |subject: &Subject| *subject == Subject::Others || identities.iter().any(|who| subject.has(who));
    let found = rules(session, is_concerned)?;
    let parsed = found.iter().filter_map(|(name, data)| Rule::parse(Subject::of_name(name).ok()?, data).ok());
    let authorisation = Authorisation::of_rules(parsed);
    let bounds = Bounds::of(&authorisation, &identities);
    let acl = session.find(format!("getAcl {path}"), |client| client.get_acl(path))?;
    let entries: Option<Vec<AclEntry>> = acl.map(|(acl, _)| {
        let entry = |(perms, scheme, id): (Perms, &str, &str)| AclEntry {
            perms,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        };
        acl.entries().map(entry).collect()
    });
    for (letter, wanted) in render::LETTERS {
        let word = permission(letter);
        let (allowed, because) = decide(path, wanted, &identities, bounds.as_ref(), entries.as_deref());
        let text = format!("{word:<6} {:<3} {because}", if allowed { "yes" } else { "no" });
        out.put(&text, || json!({ "permission": word, "allowed": allowed, "because": because }))?;
    }
    Ok(())
}

const fn permission(letter: char) -> &'static str {
    match letter {
        'c' => "create",
        'd' => "delete",
        'r' => "read",
        'w' => "write",
        _ => "admin",
    }
}

/// Whether the rules and the ACL, if there is such a znode, allow it, and which of them decides.
fn decide(
    path: &str,
    wanted: Perms,
    identities: &[Identity],
    bounds: Option<&Bounds>,
    acl: Option<&[AclEntry]>,
) -> (bool, String) {
    let mut granting = None;
    for rule in bounds.into_iter().flat_map(Bounds::rules) {
        let (access, subtree) = rule.access(path);
        let subject = rule.subject();
        let words = match subtree {
            Some(subtree) => format!("the rule of {subject}: {access} {subtree}"),
            None => format!("the rule of {subject} names no subtree with it"),
        };
        if !access.permitted().intersects(wanted) {
            return (false, words);
        }
        granting = granting.or_else(|| access.granted().intersects(wanted).then_some(words));
    }
    if bounds.is_some_and(|bounds| bounds.verdict(wanted, path) == Verdict::Forbidden) {
        return (false, "rules are for super users alone".to_owned());
    }
    if let Some(words) = granting {
        return (true, words);
    }
    let Some(entries) = acl else { return (false, "there is no such znode, and so no ACL".to_owned()) };
    if acl::is_super(identities) {
        return (true, "super users may do everything".to_owned());
    }
    let caller = Caller { identities, skip_acl: false, bounds: None };
    let grants = |entry: &&AclEntry| caller.may(wanted, path, &acl::Acl::new(vec![(*entry).clone()]));
    match entries.iter().find(grants) {
        Some(AclEntry { perms, scheme, id }) => {
            (true, format!("the ACL's entry {scheme}:{id}:{}", render::letters(*perms)))
        }
        None => (false, "no entry of the ACL".to_owned()),
    }
}

fn subject(text: &str) -> Result<Subject, ShellError> {
    Subject::parse(text).map_err(|error| ShellError::Usage(format!("{text:?} is {error}")))
}

fn identity(text: &str) -> Result<Identity, ShellError> {
    match text.split_once(':') {
        Some((scheme, id)) if !scheme.is_empty() => {
            Ok(Identity { scheme: scheme.to_owned(), id: id.to_owned() })
        }
        _ => Err(ShellError::Usage(format!(
            "{text:?} is not an identity as `whoami` shows it, such as sasl:alice"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(rules: &[(&str, &str)], identities: &[&str], wanted: Perms, path: &str) -> (bool, String) {
        let rule = |(who, text): &(&str, &str)| {
            Rule::parse(Subject::parse(who).expect(who), text.as_bytes()).expect(text)
        };
        let authorisation = Authorisation::of_rules(rules.iter().map(rule));
        let identities: Vec<_> = identities.iter().map(|text| identity(text).expect(text)).collect();
        let bounds = Bounds::of(&authorisation, &identities);
        let acl = [AclEntry { perms: Perms::READ, scheme: "world".to_owned(), id: "anyone".to_owned() }];
        decide(path, wanted, &identities, bounds.as_ref(), Some(&acl))
    }

    #[test]
    fn the_rule_or_the_entry_that_decides_is_named() {
        let rules = [("sasl:alice", "acl /t/a"), ("ip:10.0.0.0/8", "all /t"), ("sasl:auditor", "read /")];
        for (identities, wanted, path, allowed, because) in [
            (&["sasl:alice"][..], Perms::READ, "/t/a/x", true, "the ACL's entry world:anyone:r"),
            (&["sasl:alice"], Perms::WRITE, "/t/a/x", false, "no entry of the ACL"),
            (&["sasl:alice"], Perms::READ, "/t/b", false, "the rule of sasl:alice names no subtree with it"),
            (&["ip:10.1.2.3", "sasl:alice"], Perms::WRITE, "/t/a", true, "the rule of ip:10.0.0.0/8: all /t"),
            (&["sasl:auditor"], Perms::WRITE, "/t", false, "the rule of sasl:auditor: read /"),
            (&["sasl:auditor"], Perms::READ, PLACE, false, "rules are for super users alone"),
            (&["super:", "sasl:alice"], Perms::WRITE, PLACE, true, "super users may do everything"),
        ] {
            let decided = decided(&rules, identities, wanted, path);
            assert_eq!(decided, (allowed, because.to_owned()), "{identities:?} {wanted:?} {path}");
        }
    }
}
