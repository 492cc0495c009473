//! Limits of subtrees: znodes with text below `/zookeeper/quota`, which the servers read.

use std::fmt;

use ringkeeper_client::{CreateMode, Error, path};
use serde_json::{Value, json};

use crate::command::{DelQuota, Limits, SetQuota};
use crate::error::ShellError;
use crate::out::Out;
use crate::session::Session;

pub(crate) const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
const UNSET: i64 = -1;

/// Limits, or use; -1 for what is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    count: i64,
    bytes: i64,
    count_hard: i64,
    bytes_hard: i64,
}

impl Figures {
    const NONE: Self = Self { count: UNSET, bytes: UNSET, count_hard: UNSET, bytes_hard: UNSET };

    fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut figures = Self::NONE;
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (Some(key), Some(Ok(value))) = (parts.next(), parts.next().map(str::parse)) else { continue };
            match key {
                "count" => figures.count = value,
                "bytes" => figures.bytes = value,
                "countHardLimit" => figures.count_hard = value,
                "byteHardLimit" => figures.bytes_hard = value,
                _ => {}
            }
        }
        figures
    }

    const fn with(self, limits: &Limits) -> Self {
        const fn or(new: Option<i64>, old: i64) -> i64 {
            match new {
                Some(new) => new,
                None => old,
            }
        }
        Self {
            count: or(limits.count, self.count),
            bytes: or(limits.bytes, self.bytes),
            count_hard: or(limits.count_hard, self.count_hard),
            bytes_hard: or(limits.bytes_hard, self.bytes_hard),
        }
    }

    fn json(self) -> Value {
        let set = |figure| Some(figure).filter(|figure| *figure != UNSET);
        json!({
            "count": set(self.count),
            "bytes": set(self.bytes),
            "count_hard": set(self.count_hard),
            "bytes_hard": set(self.bytes_hard),
        })
    }
}

impl fmt::Display for Figures {
    /// As servers read it. The second `=` keeps old servers from reading hard limits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)?;
        if self.bytes_hard != UNSET || self.count_hard != UNSET {
            f.write_str("=")?;
        }
        if self.bytes_hard != UNSET {
            write!(f, ";byteHardLimit={}", self.bytes_hard)?;
        }
        if self.count_hard != UNSET {
            write!(f, ";countHardLimit={}", self.count_hard)?;
        }
        Ok(())
    }
}

/// Sets limits.
pub(crate) fn set(session: &Session, command: &SetQuota, out: &mut Out<'_>) -> Result<(), ShellError> {
    let subject = &command.path;
    subject_of(session, subject)?;
    refuse_nesting(session, subject)?;
    let node = quota_of(subject);
    session.call(format!("create {node}"), |client| {
        let (client, node) = (client.clone(), node.clone());
        Box::pin(async move { client.ensure_path(&node).await })
    })?;
    let limits = path::join(&node, LIMITS);
    let old = session.find(format!("get {limits}"), |client| client.get_data(&limits))?;
    let figures = old.as_ref().map_or(Figures::NONE, |(data, _)| Figures::parse(data)).with(&command.limits);
    let text = figures.to_string();
    let json = || json!({ "path": subject, "limits": figures.json() });
    if let Some((_, stat)) = old {
        session.call(format!("set {limits}"), |client| client.set_data(&limits, &text, stat.version))?;
        return Ok(out.put("", json)?);
    }
    let create = |leaf: &str, text: &str| {
        let leaf = path::join(&node, leaf);
        session.call(format!("create {leaf}"), |client| client.create(&leaf, text, CreateMode::Persistent))
    };
    create(LIMITS, &text)?;
    create(STATS, &Figures { count: 0, bytes: 0, ..Figures::NONE }.to_string())?;
    Ok(out.put("", json)?)
}

/// Shows limits and use.
pub(crate) fn list(session: &Session, subject: &str, out: &mut Out<'_>) -> Result<(), ShellError> {
    let read = |leaf| {
        let leaf = path::join(&quota_of(subject), leaf);
        let read = session.find(format!("get {leaf}"), |client| client.get_data(&leaf))?;
        Ok::<_, ShellError>(read.map(|(data, _)| Figures::parse(&data)))
    };
    subject_of(session, subject)?;
    let Some(limits) = read(LIMITS)? else {
        return Ok(
            out.put(&format!("no quota for {subject}"), || json!({ "path": subject, "limits": null }))?
        );
    };
    let used = read(STATS)?.unwrap_or(Figures::NONE);
    let text = format!("limits of {subject}: {limits}\nuse of {subject}: {used}");
    let json = || json!({ "path": subject, "limits": limits.json(), "used": { "count": used.count, "bytes": used.bytes } });
    Ok(out.put(&text, json)?)
}

/// Takes limits away; with the last one, the quota goes.
pub(crate) fn delete(session: &Session, command: &DelQuota, out: &mut Out<'_>) -> Result<(), ShellError> {
    path::validate(&command.path).map_err(ShellError::client(format!("delquota {}", command.path)))?;
    let node = quota_of(&command.path);
    let limits = path::join(&node, LIMITS);
    let (data, stat) =
        session.call(format!("no quota for {}", command.path), |client| client.get_data(&limits))?;
    let all = !(command.count || command.bytes || command.count_hard || command.bytes_hard);
    let mut left = Figures::parse(&data);
    for (goes, figure) in [
        (command.count, &mut left.count),
        (command.bytes, &mut left.bytes),
        (command.count_hard, &mut left.count_hard),
        (command.bytes_hard, &mut left.bytes_hard),
    ] {
        if goes || all {
            *figure = UNSET;
        }
    }
    if left != Figures::NONE {
        let text = left.to_string();
        session.call(format!("set {limits}"), |client| client.set_data(&limits, &text, stat.version))?;
        return Ok(out.put("", || json!({ "path": command.path, "limits": left.json() }))?);
    }
    for leaf in [path::join(&node, STATS), limits] {
        session.find(format!("delete {leaf}"), |client| client.delete(&leaf, None))?;
    }
    trim(session, &node)?;
    Ok(out.put("", || json!({ "path": command.path, "limits": null }))?)
}

/// Removes the empty znodes above a quota that went.
pub(crate) fn trim(session: &Session, node: &str) -> Result<(), ShellError> {
    let mut at = node;
    while at.len() > ROOT.len() {
        match session.find(format!("delete {at}"), |client| client.delete(at, None)) {
            Err(ShellError::Client { source: Error::NotEmpty(_), .. }) => return Ok(()),
            other => other.map(drop)?,
        }
        at = path::parent(at);
    }
    Ok(())
}

fn subject_of(session: &Session, subject: &str) -> Result<(), ShellError> {
    session.call(format!("stat {subject}"), |client| client.get_children(subject)).map(drop)
}

/// Servers count a znode for the nearest quota above it only, so ZooKeeper's shell lets none be within
/// another.
fn refuse_nesting(session: &Session, subject: &str) -> Result<(), ShellError> {
    let nested = |other: &str| {
        ShellError::Usage(format!(
            "{other} has a quota already: no quota can be within another, delquota {other} first"
        ))
    };
    if subject == "/" {
        return Err(ShellError::Usage("the root can have no quota: give it to what is below".to_owned()));
    }
    let mut above = path::parent(subject);
    while above != "/" {
        let limits = path::join(&quota_of(above), LIMITS);
        if session.call(format!("stat {limits}"), |client| client.exists(&limits))?.is_some() {
            return Err(nested(above));
        }
        above = path::parent(above);
    }
    let node = quota_of(subject);
    let client = session.client()?;
    if session.call(format!("stat {node}"), |client| client.exists(&node))?.is_some() {
        let mut walk = crate::walk::Walk::new(client, &node, usize::MAX);
        while let Some(found) = walk.next()? {
            if found.depth > 1 && path::name(&found.path) == LIMITS {
                return Err(nested(&path::parent(&found.path)[ROOT.len()..]));
            }
        }
    }
    Ok(())
}

fn quota_of(subject: &str) -> String {
    format!("{ROOT}{subject}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_servers_read_them() {
        let soft = Figures { count: 5, bytes: 100, ..Figures::NONE };
        assert_eq!(soft.to_string(), "count=5,bytes=100");
        let hard = Figures { bytes_hard: 7, count_hard: 8, ..Figures::NONE };
        assert_eq!(hard.to_string(), "count=-1,bytes=-1=;byteHardLimit=7;countHardLimit=8");
        for figures in [soft, hard] {
            assert_eq!(Figures::parse(figures.to_string().as_bytes()), figures);
        }
    }
}
