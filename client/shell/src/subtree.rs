//! Subtrees as a whole: pictures, sums, searches, copies and files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};

use ringkeeper_client::{Acl, Call, CreateMode, Error, path};
use serde_json::{Value, json};

use crate::command::{Copy, Export, Find, Import, Tree};
use crate::error::ShellError;
use crate::out::Out;
use crate::render;
use crate::session::Session;
use crate::walk::{Found, Walk};

/// Draws a subtree.
pub(crate) fn tree(session: &Session, command: &Tree, out: &mut Out<'_>) -> Result<(), ShellError> {
    let mut walk = Walk::new(session.client()?, &command.path, command.levels.unwrap_or(usize::MAX));
    // Of each level above: whether it goes on.
    let mut goes_on = Vec::new();
    while let Some(found) = walk.next()? {
        let Found { path, depth, stat, last } = &found;
        let mut line = String::new();
        if let Some(level) = depth.checked_sub(1) {
            goes_on.truncate(level);
            for goes_on in &goes_on {
                line.push_str(if *goes_on { "│   " } else { "    " });
            }
            goes_on.push(!last);
            line.push_str(if *last { "└── " } else { "├── " });
            line.push_str(path::name(path));
        } else {
            line.push_str(path);
        }
        if stat.ephemeral_owner.is_some() {
            line.push_str(" (ephemeral)");
        }
        out.put(&line, || json!({ "path": path, "depth": depth, "stat": render::stat_json(stat) }))?;
    }
    Ok(())
}

/// Sums up znodes and bytes below each child.
pub(crate) fn du(session: &Session, top: &str, out: &mut Out<'_>) -> Result<(), ShellError> {
    let mut walk = Walk::new(session.client()?, top, usize::MAX);
    // In the order of the walk, the top first.
    let mut sums: Vec<(String, u64, u64)> = Vec::new();
    while let Some(Found { path, depth, stat, .. }) = walk.next()? {
        let bytes = u64::from(stat.data_length);
        if depth <= 1 {
            sums.push((path, 0, 0));
        }
        let places = if sums.len() > 1 { vec![0, sums.len() - 1] } else { vec![0] };
        for place in places {
            sums[place].1 += 1;
            sums[place].2 += bytes;
        }
    }
    sums.rotate_left(1);
    for (path, znodes, bytes) in sums {
        let line = format!("{bytes:>14} B {znodes:>10} znodes  {path}");
        out.put(&line, || json!({ "path": path, "bytes": bytes, "znodes": znodes }))?;
    }
    Ok(())
}

/// Finds znodes.
pub(crate) fn find(session: &Session, command: &Find, out: &mut Out<'_>) -> Result<(), ShellError> {
    let pattern = command.name.as_deref().map(glob::Pattern::new).transpose().map_err(|error| {
        ShellError::Usage(format!(
            "--name {:?} is no pattern: {error}",
            command.name.as_deref().unwrap_or_default()
        ))
    })?;
    let wanted = |found: &Found| {
        let stat = &found.stat;
        pattern.as_ref().is_none_or(|pattern| pattern.matches(path::name(&found.path)))
            && (!command.ephemeral || stat.ephemeral_owner.is_some())
            && command
                .owner
                .is_none_or(|owner| stat.ephemeral_owner.is_some_and(|session| session.0 == owner))
            && command.min_bytes.is_none_or(|least| stat.data_length >= least)
            && command.min_children.is_none_or(|least| stat.num_children >= least)
    };
    let mut walk = Walk::new(session.client()?, &command.path, usize::MAX);
    while let Some(found) = walk.next()? {
        if wanted(&found) {
            out.put(&found.path, || json!({ "path": found.path, "stat": render::stat_json(&found.stat) }))?;
        }
    }
    Ok(())
}

/// A znode as it is copied. Not copied are versions, times and owners: those are the service's.
struct Node {
    /// Below the top; empty for the top itself.
    relative: String,
    data: Vec<u8>,
    acl: Acl,
}

impl Node {
    fn json(&self) -> Value {
        let mut json = render::data_json(&self.data);
        json["path"] = self.relative.as_str().into();
        json["acl"] = render::acl_json(&self.acl);
        json
    }

    fn from_json(line: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(line).ok()?;
        let data = match (json.get("data"), json.get("data_base64")) {
            (Some(text), None) => text.as_str()?.as_bytes().to_vec(),
            (None, Some(base64)) => render::from_base64(base64.as_str()?)?,
            _ => return None,
        };
        let relative = json.get("path")?.as_str()?.to_owned();
        (relative.is_empty() || relative.starts_with('/')).then_some(())?;
        Some(Self { relative, data, acl: render::acl_from_json(json.get("acl")?)? })
    }
}

/// Calls `take` for each znode that lasts, parents first. Returns how many ephemeral ones were left out.
fn read_all(
    session: &Session,
    top: &str,
    mut take: impl FnMut(Node) -> Result<(), ShellError>,
) -> Result<u64, ShellError> {
    let client = session.client()?;
    let mut walk = Walk::new(client, top, usize::MAX);
    let mut left_out = 0;
    while let Some(found) = walk.next()? {
        if found.stat.ephemeral_owner.is_some() {
            left_out += 1;
            continue;
        }
        let (data, acl) = (client.get_data(&found.path), client.get_acl(&found.path));
        let data = session.find(format!("get {}", found.path), |_| data)?;
        let acl = session.find(format!("getAcl {}", found.path), |_| acl)?;
        // Gone meanwhile, like those that were gone before the walk came there.
        let (Some((data, _)), Some((acl, _))) = (data, acl) else { continue };
        let relative = found.path.strip_prefix(top.trim_end_matches('/')).unwrap_or_default();
        let relative = if relative == "/" { "" } else { relative };
        take(Node { relative: relative.to_owned(), data, acl })?;
    }
    Ok(left_out)
}

fn write(session: &Session, top: &str, node: &Node, force: bool) -> Result<(), ShellError> {
    let target = match (top, node.relative.as_str()) {
        ("/", "") => "/".to_owned(),
        ("/", relative) => relative.to_owned(),
        (top, relative) => format!("{top}{relative}"),
    };
    let created = session.call(format!("create {target}"), |client| {
        client.create(&target, &node.data, CreateMode::Persistent.with_acl(&node.acl))
    });
    match created {
        Err(ShellError::Client { source: Error::NodeExists(_), .. }) if force => session
            .call(format!("set {target}"), |client| client.set_data(&target, &node.data, None))
            .map(drop),
        other => other.map(drop),
    }
}

fn tell_left_out(count: u64) {
    if count > 0 {
        eprintln!("left out: {count} ephemeral znodes, which belong to sessions");
    }
}

/// Copies a subtree.
pub(crate) fn copy(session: &Session, command: &Copy, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Copy { force, from, to } = command;
    if to == from || to.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('/')) || from == "/" {
        return Err(ShellError::Usage(format!("{to} is within {from}: the copy would never end")));
    }
    let mut copied = 0_u64;
    let left_out = read_all(session, from, |node| {
        copied += 1;
        write(session, to, &node, *force)
    })?;
    tell_left_out(left_out);
    Ok(out.put(&format!("copied {copied} znodes"), || json!({ "copied": copied, "left_out": left_out }))?)
}

/// Writes a subtree as JSON lines.
pub(crate) fn export(session: &Session, command: &Export, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Some(path) = &command.file else {
        let left_out = read_all(session, &command.path, |node| {
            let json = node.json();
            Ok(out.put(&json.to_string(), || json.clone())?)
        })?;
        tell_left_out(left_out);
        return Ok(());
    };
    let failed = || ShellError::io(format!("writing {}", path.display()));
    let mut file = BufWriter::new(File::create(path).map_err(failed())?);
    let mut written = 0_u64;
    let left_out = read_all(session, &command.path, |node| {
        written += 1;
        writeln!(file, "{}", node.json()).map_err(failed())
    })?;
    file.into_inner().map_err(|error| failed()(error.into_error()))?.sync_all().map_err(failed())?;
    tell_left_out(left_out);
    Ok(out.put(&format!("wrote {written} znodes"), || json!({ "written": written, "left_out": left_out }))?)
}

/// Creates what was exported.
pub(crate) fn import(session: &Session, command: &Import, out: &mut Out<'_>) -> Result<(), ShellError> {
    let name = command.file.display();
    let failed = || ShellError::io(format!("reading {name}"));
    let file = BufReader::new(File::open(&command.file).map_err(failed())?);
    let mut created = 0_u64;
    for (number, line) in (1..).zip(file.lines()) {
        let line = line.map_err(failed())?;
        let node = Node::from_json(&line).ok_or_else(|| {
            ShellError::Usage(format!(
                "{name}:{number} is not a znode as `export` writes it; {created} before it were created"
            ))
        })?;
        write(session, &command.path, &node, command.force)?;
        created += 1;
    }
    Ok(out.put(&format!("created {created} znodes"), || json!({ "created": created }))?)
}

/// Deletes a znode and all below it, the deepest first, `batch` requests at a time. What others create
/// meanwhile is deleted, too; returns how many went.
pub(crate) fn delete_all(session: &Session, top: &str, batch: usize) -> Result<u64, ShellError> {
    let mut deleted = 0;
    // Somebody may create below what is being deleted; a few rounds, not for ever.
    for _ in 0..3 {
        let paths = paths_of(session, top)?;
        let mut again = HashMap::new();
        for batch in paths.rchunks(batch) {
            let client = session.client()?;
            let replies: Vec<_> = batch
                .iter()
                .rev()
                .filter(|path| *path != "/")
                .map(|path| (path, client.delete(path, None)))
                .collect();
            for (path, reply) in replies {
                match session.find(format!("delete {path}"), |_| reply) {
                    Ok(gone) => deleted += u64::from(gone.is_some()),
                    Err(ShellError::Client { source: Error::NotEmpty(_), what }) => {
                        drop(again.insert(path.clone(), what))
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        if again.is_empty() {
            return Ok(deleted);
        }
    }
    Err(ShellError::Client {
        what: format!("delete {top}"),
        source: Error::NotEmpty(Call::new("delete", top)),
    })
}

/// The paths of a subtree, parents first. The service's own znodes are not among them.
pub(crate) fn paths_of(session: &Session, top: &str) -> Result<Vec<String>, ShellError> {
    let mut walk = Walk::new(session.client()?, top, usize::MAX);
    let mut paths = Vec::new();
    while let Some(found) = walk.next()? {
        if top != "/" || !(found.path == "/zookeeper" || found.path.starts_with("/zookeeper/")) {
            paths.push(found.path);
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_znode_comes_back_from_its_line(data: Vec<u8>, name in "[^/\0]{0,20}") {
            let relative = if name.is_empty() { String::new() } else { format!("/{name}") };
            let node = Node { relative, data, acl: Acl::open() };
            let back = Node::from_json(&node.json().to_string()).expect("a znode");
            prop_assert_eq!((back.relative, back.data, back.acl), (node.relative, node.data, node.acl));
        }
    }

    #[test]
    fn lines_that_are_no_znodes_are_refused() {
        for line in
            ["", "{}", "[]", r#"{"path":"a","data":"","acl":[]}"#, r#"{"path":"/a","data":1,"acl":[]}"#]
        {
            assert!(Node::from_json(line).is_none(), "{line}");
        }
    }
}
