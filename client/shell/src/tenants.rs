//! Tenants: subtrees with limits, which are znodes that ringkeeper's servers read, see
//! `ringkeeper_engine::tenants`.

use ringkeeper_client::{CreateMode, Error, path};
use ringkeeper_engine::tenants::{Tenants, limited_by, limits_path};
use serde_json::{Value, json};

use crate::command::SetTenant;
use crate::error::ShellError;
use crate::out::Out;
use crate::quota::{self, ROOT};
use crate::session::Session;
use crate::walk::Walk;

/// Sets the limits of a subtree in place of those that it has.
pub(crate) fn set(session: &Session, command: &SetTenant, out: &mut Out<'_>) -> Result<(), ShellError> {
    let SetTenant { path: subject, limits } = command;
    let what = || format!("settenant {subject}");
    path::validate(subject).map_err(ShellError::client(what()))?;
    let text = limits.join(" ");
    // Of the root nothing is left.
    let checked = Tenants::default().check(subject.trim_end_matches('/'), text.as_bytes());
    checked.map_err(|error| ShellError::Usage(error.to_string()))?;
    let znode = limits_path(subject);
    if session.find(what(), |client| client.set_data(&znode, &text, None))?.is_none() {
        // Whoever may not change quotas must not change these limits either, nor delete what is above them.
        let (acl, _) = session.call(what(), |client| client.get_acl(ROOT))?;
        let ends = znode[ROOT.len()..].match_indices('/').skip(1).map(|(slash, _)| ROOT.len() + slash);
        for end in ends.chain([znode.len()]) {
            let data = if end == znode.len() { text.as_str() } else { "" };
            let mode = CreateMode::Persistent.with_acl(&acl);
            match session.call(what(), |client| client.create(&znode[..end], data, mode)) {
                Err(ShellError::Client { source: Error::NodeExists(_), .. }) if end < znode.len() => {}
                Err(error) => {
                    quota::trim(session, path::parent(&znode[..end]))?;
                    return Err(error);
                }
                Ok(_) => {}
            }
        }
    }
    Ok(out.put("", || limits_json(subject, &text))?)
}

/// Takes the limits of a subtree away.
pub(crate) fn delete(session: &Session, subject: &str, out: &mut Out<'_>) -> Result<(), ShellError> {
    let what = || format!("deltenant {subject}");
    path::validate(subject).map_err(ShellError::client(what()))?;
    let znode = limits_path(subject);
    session.call(what(), |client| client.delete(&znode, None))?;
    quota::trim(session, path::parent(&znode))?;
    Ok(out.put("", || json!({ "path": subject, "limits": null }))?)
}

/// Shows the limits of all subtrees.
pub(crate) fn list(session: &Session, out: &mut Out<'_>) -> Result<(), ShellError> {
    let mut walk = Walk::new(session.client()?, ROOT, usize::MAX);
    let mut found = Vec::new();
    while let Some(znode) = walk.next()? {
        if let Some(subject) = limited_by(&znode.path) {
            found.push((subject.to_owned(), znode.path.clone()));
        }
    }
    found.sort_unstable();
    for (subject, znode) in found {
        let read = session.find(format!("get {znode}"), |client| client.get_data(&znode))?;
        let Some((data, _)) = read else { continue };
        let text = String::from_utf8_lossy(&data);
        out.put(&format!("{subject} {text}"), || limits_json(&subject, &text))?;
    }
    Ok(())
}

fn limits_json(subject: &str, text: &str) -> Value {
    let figures = text.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    let limits: serde_json::Map<_, _> =
        figures.map(|(key, figure)| (key.to_owned(), json!(figure.parse::<u64>().ok()))).collect();
    json!({ "path": subject, "limits": limits })
}
