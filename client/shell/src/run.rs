//! Carries commands out.

use std::time::Duration;

use ringkeeper_client::{
    AddWatchMode, Call, CreateMode, Error, Reconfiguration, Stat, Wait, Watch, WatcherType, path,
};
use serde_json::{Value, json};

use crate::command::{
    Command, Config, Create, Delete, DeleteAll, Get, Ls, PathAndWatch, Reconfig, RemoveWatches, Set, SetAcl,
    Switch, WatchMode,
};
use crate::error::ShellError;
use crate::out::Out;
use crate::session::Session;
use crate::walk::Walk;
use crate::{edit, interrupt, quota, render, rules, subtree, tenants};

/// What the shell does after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Asks for another.
    Continue,
    /// Ends.
    Quit,
    /// Shows its history.
    History,
    /// Runs the command of this number again.
    Redo(usize),
}

/// Carries one command out. `asks`: what deletes subtrees asks first.
pub(crate) fn run(
    session: &mut Session,
    command: Command,
    out: &mut Out<'_>,
    asks: bool,
) -> Result<Next, ShellError> {
    match command {
        Command::Ls(command) => list(session, &command, out)?,
        Command::Get(command) => get(session, &command, out)?,
        Command::Stat(command) => stat(session, &command, out)?,
        Command::Create(command) => create(session, &command, out)?,
        Command::Set(command) => set(session, &command, out)?,
        Command::Delete(Delete { version, path }) => {
            session.call(format!("delete {path}"), |client| client.delete(&path, version))?;
            out.put("", || json!({ "path": path, "deleted": 1 }))?;
        }
        Command::Deleteall(command) => delete_all(session, &command, out, asks)?,
        Command::GetAcl(command) => {
            let what = format!("getAcl {}", command.path);
            let (acl, stat) = session.call(what, |client| client.get_acl(&command.path))?;
            put_with_stat(
                out,
                &render::acl_text(&acl),
                json!({ "acl": render::acl_json(&acl) }),
                Some(stat).filter(|_| command.stat),
            )?;
        }
        Command::SetAcl(command) => set_acl(session, &command, out)?,
        Command::GetAllChildrenNumber(command) => {
            let what = format!("getAllChildrenNumber {}", command.path);
            let count = session.call(what, |client| client.count_descendants(&command.path))?;
            out.put(&count.to_string(), || json!({ "path": command.path, "descendants": count }))?;
        }
        Command::GetEphemerals(command) => {
            let what = format!("getEphemerals {}", command.path);
            let paths = session.call(what, |client| client.get_ephemerals(&command.path))?;
            out.put(&bracketed(&paths), || json!({ "ephemerals": paths }))?;
        }
        Command::Sync(command) => {
            session.call(format!("sync {}", command.path), |client| client.sync(&command.path))?;
            out.put("Sync is OK", || json!({ "synced": true }))?;
        }
        Command::Setquota(command) => quota::set(session, &command, out)?,
        Command::Listquota(command) => quota::list(session, &command.path, out)?,
        Command::Delquota(command) => quota::delete(session, &command, out)?,
        Command::Setrule(command) => rules::set(session, &command, out)?,
        Command::Listrules => rules::list(session, out)?,
        Command::Delrule(command) => rules::delete(session, &command.identity, out)?,
        Command::Settenant(command) => tenants::set(session, &command, out)?,
        Command::Listtenants => tenants::list(session, out)?,
        Command::Deltenant(command) => tenants::delete(session, &command.path, out)?,
        Command::Explain(command) => rules::explain(session, &command, out)?,
        Command::AddWatch(command) => {
            let mode = match command.mode {
                WatchMode::Persistent => AddWatchMode::Persistent,
                WatchMode::PersistentRecursive => AddWatchMode::PersistentRecursive,
            };
            let what = format!("addWatch {}", command.path);
            let watch = session.call(what, |client| client.watch(&command.path, mode))?;
            session.watches.follow_all(watch);
            out.put("", || json!({ "path": command.path, "watched": true }))?;
        }
        Command::Removewatches(command) => {
            remove_watches(session, &command)?;
            out.put("", || json!({ "path": command.path, "watched": false }))?;
        }
        Command::Printwatches(command) => {
            if let Some(switch) = command.switch {
                session.watches.show(switch == Switch::On);
            }
            let shown = session.watches.shown();
            out.put(
                if shown { "printwatches is on" } else { "printwatches is off" },
                || json!({ "printwatches": shown }),
            )?;
        }
        Command::Tree(command) => subtree::tree(session, &command, out)?,
        Command::Du(command) => subtree::du(session, &command.path, out)?,
        Command::Find(command) => subtree::find(session, &command, out)?,
        Command::Cp(command) => subtree::copy(session, &command, out)?,
        Command::Export(command) => subtree::export(session, &command, out)?,
        Command::Import(command) => subtree::import(session, &command, out)?,
        Command::Edit(command) => edit::edit(session, &command.path, out)?,
        Command::Addauth(command) => {
            session.authenticate(&command.scheme, &command.auth)?;
            out.put("", || json!({ "scheme": command.scheme, "accepted": true }))?;
        }
        Command::Whoami => {
            let identities = session.call("whoami", |client| client.who_am_i())?;
            for identity in identities {
                let text = format!("{}: {}", identity.scheme, identity.id);
                out.put(&text, || json!({ "scheme": identity.scheme, "id": identity.id }))?;
            }
        }
        Command::Config(command) => config(session, &command, out)?,
        Command::Reconfig(command) => reconfigure(session, &command, out)?,
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            out.put(&format!("ringkeeper shell {version}"), || json!({ "version": version }))?;
        }
        Command::Connect(command) => {
            session.reconnect(command.servers)?;
            let id = session.client()?.session_id();
            out.put("", || json!({ "session": id.to_string() }))?;
        }
        Command::Close => {
            session.close();
            out.put("", || json!({ "session": null }))?;
        }
        Command::History => return Ok(Next::History),
        Command::Redo(command) => return Ok(Next::Redo(command.number)),
        Command::Quit => return Ok(Next::Quit),
    }
    Ok(Next::Continue)
}

fn bracketed(names: &[String]) -> String {
    format!("[{}]", names.join(", "))
}

/// An answer, with metadata if that is wanted.
fn put_with_stat(
    out: &mut Out<'_>,
    text: &str,
    mut json: Value,
    stat: Option<Stat>,
) -> Result<(), ShellError> {
    let mut text = text.to_owned();
    if let Some(stat) = stat {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&render::stat_text(&stat));
        json["stat"] = render::stat_json(&stat);
    }
    Ok(out.put(&text, || json)?)
}

fn list(session: &Session, command: &Ls, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Ls { stat: with_stat, watch, recursive, path } = command;
    if *recursive {
        let mut walk = Walk::new(session.client()?, path, usize::MAX);
        while let Some(found) = walk.next()? {
            out.put(&found.path, || json!({ "path": found.path }))?;
        }
        return Ok(());
    }
    let what = format!("ls {path}");
    let (mut names, stat) = if *watch {
        let (answer, watch) = session.call(what, |client| watched(client.get_children_and_watch(path)))?;
        session.watches.follow(watch);
        answer
    } else {
        session.call(what, |client| client.get_children(path))?
    };
    names.sort_unstable();
    put_with_stat(out, &bracketed(&names), json!({ "children": names }), Some(stat).filter(|_| *with_stat))
}

/// The answer and the watch.
async fn watched<T>(reply: ringkeeper_client::WatchedReply<T>) -> Result<(T, Watch), Error> {
    reply.await
}

fn get(session: &Session, command: &Get, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Get { stat: with_stat, watch, base64, path } = command;
    let what = format!("get {path}");
    let (data, stat) = if *watch {
        let (answer, watch) = session.call(what, |client| watched(client.get_data_and_watch(path)))?;
        session.watches.follow(watch);
        answer
    } else {
        session.call(what, |client| client.get_data(path))?
    };
    let stat = Some(stat).filter(|_| *with_stat);
    if out.is_json() {
        return put_with_stat(out, "", render::data_json(&data), stat);
    }
    if *base64 {
        out.put_bytes(render::base64(&data).as_bytes())?;
    } else {
        out.put_bytes(&data)?;
    }
    stat.map_or(Ok(()), |stat| put_with_stat(out, "", Value::Null, Some(stat)))
}

fn stat(session: &Session, command: &PathAndWatch, out: &mut Out<'_>) -> Result<(), ShellError> {
    let PathAndWatch { watch, path } = command;
    let what = format!("stat {path}");
    let stat = if *watch {
        let (stat, watch) = session.call(what.clone(), |client| watched(client.exists_and_watch(path)))?;
        session.watches.follow(watch);
        stat
    } else {
        session.call(what.clone(), |client| client.exists(path))?
    };
    let stat =
        stat.ok_or_else(|| ShellError::Client { what, source: Error::NoNode(Call::new("exists", path)) })?;
    Ok(out.put(&render::stat_text(&stat), || render::stat_json(&stat))?)
}

fn create(session: &Session, command: &Create, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Create { sequential, ephemeral, container, ttl, path, data, acl } = command;
    let ttl = ttl.map(Duration::from_millis);
    let mode = match (sequential, ephemeral, container, ttl) {
        (_, _, true, _) => CreateMode::Container,
        (false, _, _, Some(ttl)) => CreateMode::PersistentWithTtl(ttl),
        (true, _, _, Some(ttl)) => CreateMode::PersistentSequentialWithTtl(ttl),
        (false, true, ..) => CreateMode::Ephemeral,
        (true, true, ..) => CreateMode::EphemeralSequential,
        (true, false, ..) => CreateMode::PersistentSequential,
        (false, false, ..) => CreateMode::Persistent,
    };
    let acl = acl.as_deref().map(render::parse_acl).transpose()?;
    let created = session.call(format!("create {path}"), |client| match &acl {
        Some(acl) => client.create(path, data, mode.with_acl(acl)),
        None => client.create(path, data, mode),
    })?;
    let json = || json!({ "path": created.path, "stat": render::stat_json(&created.stat) });
    Ok(out.put(&format!("Created {}", created.path), json)?)
}

fn set(session: &Session, command: &Set, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Set { stat: with_stat, version, path, data } = command;
    let what = format!("set {path}");
    let stat = session.call(what, |client| client.set_data(path, data, *version))?;
    put_with_stat(out, "", json!({ "path": path }), Some(stat).filter(|_| *with_stat || out.is_json()))
}

fn delete_all(
    session: &Session,
    command: &DeleteAll,
    out: &mut Out<'_>,
    asks: bool,
) -> Result<(), ShellError> {
    let DeleteAll { batch, path } = command;
    if asks {
        let count = subtree::paths_of(session, path)?.len();
        let question = format!("delete {path} with {} znodes below it? [y/N] ", count.saturating_sub(1));
        if count > 1 && interrupt::ask(&question)?.is_none_or(|answer| answer != "y" && answer != "yes") {
            return Err(ShellError::Usage("nothing was deleted".to_owned()));
        }
    }
    let deleted = subtree::delete_all(session, path, usize::from(*batch))?;
    Ok(out.put("", || json!({ "path": path, "deleted": deleted }))?)
}

fn set_acl(session: &Session, command: &SetAcl, out: &mut Out<'_>) -> Result<(), ShellError> {
    let SetAcl { stat: with_stat, version, recursive, path, acl } = command;
    let acl = render::parse_acl(acl)?;
    let mut walk = Walk::new(session.client()?, path, if *recursive { usize::MAX } else { 0 });
    while let Some(found) = walk.next()? {
        let what = format!("setAcl {}", found.path);
        let Some(stat) = session.find(what, |client| client.set_acl(&found.path, &acl, *version))? else {
            continue;
        };
        put_with_stat(
            out,
            "",
            json!({ "path": found.path }),
            Some(stat).filter(|_| *with_stat || out.is_json()),
        )?;
    }
    Ok(())
}

fn remove_watches(session: &Session, command: &RemoveWatches) -> Result<(), ShellError> {
    let RemoveWatches { children, data, all: _, path } = command;
    let kind = match (children, data) {
        (true, _) => WatcherType::Children,
        (_, true) => WatcherType::Data,
        _ => WatcherType::Any,
    };
    session.call(format!("removewatches {path}"), |client| client.remove_watches(path, kind))
}

fn config(session: &Session, command: &Config, out: &mut Out<'_>) -> Result<(), ShellError> {
    let (data, stat) = session.call("config", |client| client.get_config())?;
    let text = String::from_utf8_lossy(&data).into_owned();
    let text = if command.client { client_config(&text) } else { text };
    if command.watch {
        let (_, watch) =
            session.call("config", |client| watched(client.get_data_and_watch("/zookeeper/config")))?;
        session.watches.follow(watch);
    }
    put_with_stat(out, &text, json!({ "config": text }), Some(stat).filter(|_| command.stat))
}

/// The version, and the addresses of clients: `version host:port,host:port`.
fn client_config(config: &str) -> String {
    let version = config.lines().find_map(|line| line.strip_prefix("version=")).unwrap_or_default();
    let address = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let (servers, client) = value.split_once(';')?;
        key.starts_with("server.").then_some(())?;
        match client.split_once(':') {
            Some(("0.0.0.0", port)) => Some(format!("{}:{port}", servers.split(':').next()?)),
            Some(_) => Some(client.to_owned()),
            None => Some(format!("{}:{client}", servers.split(':').next()?)),
        }
    };
    format!("{version} {}", config.lines().filter_map(address).collect::<Vec<_>>().join(","))
}

fn reconfigure(session: &Session, command: &Reconfig, out: &mut Out<'_>) -> Result<(), ShellError> {
    let Reconfig { stat: with_stat, version, add, remove, members, file } = command;
    let from_file = file.as_ref().map(|file| {
        let text =
            std::fs::read_to_string(file).map_err(ShellError::io(format!("reading {}", file.display())))?;
        Ok::<_, ShellError>(members_in(&text))
    });
    let members = from_file.transpose()?.or_else(|| members.clone());
    if add.is_none() && remove.is_none() && members.is_none() {
        return Err(ShellError::Usage("reconfig needs -add, -remove, -members or -file".to_owned()));
    }
    let change = Reconfiguration {
        joining: add.as_deref(),
        leaving: remove.as_deref(),
        members: members.as_deref(),
        expected_version: *version,
    };
    let (data, stat) = session.call("reconfig", |client| client.reconfigure(&change))?;
    let text = format!("Committed new configuration:\n{}", String::from_utf8_lossy(&data));
    let json = json!({ "config": String::from_utf8_lossy(&data) });
    put_with_stat(out, &text, json, Some(stat).filter(|_| *with_stat))
}

/// The lines of a configuration file that say who the members are, and in which groups they vote.
fn members_in(file: &str) -> String {
    let of_members = |line: &&str| ["server.", "group.", "weight."].iter().any(|key| line.starts_with(key));
    file.lines().map(str::trim).filter(of_members).collect::<Vec<_>>().join(",")
}

/// The children of `parent` that begin with `prefix`, for completion: what comes soon, or nothing.
pub(crate) fn complete(session: &Session, parent: &str, prefix: &str, patience: Duration) -> Vec<String> {
    let Ok(client) = session.client() else { return Vec::new() };
    let Some(Ok((mut names, _))) = client.get_children(parent).wait_timeout(patience) else {
        return Vec::new();
    };
    names.retain(|name| name.starts_with(prefix));
    names.sort_unstable();
    names.iter().map(|name| path::join(parent, name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_what_they_need_to_connect() {
        let config = "server.1=a:2888:3888:participant;0.0.0.0:2181\nserver.2=b:2888:3888:observer;2182\n\
                      group.1=1\nweight.1=1\nversion=100000000";
        assert_eq!(client_config(config), "100000000 a:2181,b:2182");
    }
    #[test]
    fn a_file_of_members_brings_their_groups_and_weights_along() {
        let file = "# ours\ntickTime=2000\nserver.1=a:1:2;3\n group.1=1\nweight.1=2\nversion=7\n";
        assert_eq!(members_in(file), "server.1=a:1:2;3,group.1=1,weight.1=2");
    }
}
