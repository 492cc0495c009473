//! What the dashboard shows of the tree, with the checks of a client's reads.

use std::collections::BinaryHeap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringkeeper_engine::acl::Caller;
use ringkeeper_engine::path::{self, ROOT};
use ringkeeper_engine::quota;
use ringkeeper_engine::state::State;
use ringkeeper_wire::{AclEntry, ErrorCode, SessionId, Stat, Zxid};
use serde_json::{Value, json};

/// Children that are shown at once, at most.
const PAGE_MAX: usize = 1000;

/// Which children are wanted.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    /// Those behind this name; "" for the first ones.
    pub(super) after: &'a str,
    /// What their names contain.
    pub(super) search: &'a str,
    pub(super) count: usize,
}

/// A page of the children, by their names.
pub(super) fn children(state: &State, caller: Caller<'_>, wanted: &Wanted<'_>) -> Result<Value, ErrorCode> {
    let listing = state.get_children(wanted.path, caller)?;
    let page = page(listing.names(), wanted);
    let parent = if wanted.path == ROOT { "" } else { wanted.path };
    let child = |name: &&str| {
        // Without the permission to see more, the name is all there is.
        let stat = state.exists(&format!("{parent}/{name}"), caller).ok();
        json!({ "name": name, "stat": stat.map(|stat| shown_stat(&stat)) })
    };
    Ok(json!({
        "total": listing.len(),
        "found": page.found,
        "more": page.more,
        "children": page.names.iter().map(child).collect::<Vec<_>>(),
    }))
}

struct Page<'a> {
    names: Vec<&'a str>,
    /// How many names contain what is searched.
    found: usize,
    more: bool,
}

/// Visits all names, and keeps no more of them than the page has.
fn page<'a>(names: impl Iterator<Item = &'a str>, wanted: &Wanted<'_>) -> Page<'a> {
    let count = wanted.count.clamp(1, PAGE_MAX);
    let (mut smallest, mut found, mut more) = (BinaryHeap::with_capacity(count), 0, false);
    for name in names.filter(|name| name.contains(wanted.search)) {
        found += 1;
        if name <= wanted.after {
            continue;
        }
        if smallest.len() < count {
            smallest.push(name);
            continue;
        }
        more = true;
        // Nearly all of many names are beyond the page.
        if let Some(mut largest) = smallest.peek_mut().filter(|largest| name < **largest) {
            *largest = name;
        }
    }
    Page { names: smallest.into_sorted_vec(), found, more }
}

/// A znode with its data, its ACL and its quota, as far as each may be read.
pub(super) fn znode(state: &State, caller: Caller<'_>, path: &str) -> Result<Value, ErrorCode> {
    path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
    let stat = state.exists(path, caller)?;
    let data = state.get_data(path, caller).map(|(data, _)| data.map(|data| STANDARD.encode(data)));
    let acl = state.get_acl(path, caller).map(|(acl, _)| acl.iter().map(shown_entry).collect::<Vec<_>>());
    let text = |path: String| {
        let (data, _) = state.get_data(&path, caller).ok()?;
        Some(String::from_utf8_lossy(data?).into_owned())
    };
    Ok(json!({
        "path": path,
        "stat": shown_stat(&stat),
        "readable": data.is_ok(),
        "data_base64": data.ok().flatten(),
        "acl": acl.ok(),
        "quota": { "limits": text(quota::limits_path(path)), "use": text(quota::stats_path(path)) },
    }))
}

fn shown_entry(entry: &AclEntry) -> Value {
    json!({ "perms": entry.perms.0, "scheme": entry.scheme, "id": entry.id })
}

fn shown_stat(stat: &Stat) -> Value {
    let owner = Some(stat.ephemeral_owner).filter(|owner| *owner != 0);
    json!({
        "czxid_hex": Zxid::from_wire(stat.czxid).to_string(),
        "mzxid_hex": Zxid::from_wire(stat.mzxid).to_string(),
        "pzxid_hex": Zxid::from_wire(stat.pzxid).to_string(),
        "ctime": stat.ctime,
        "mtime": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeral_owner_hex": owner.map(|owner| SessionId(owner).to_string()),
        "data_length": stat.data_length,
        "num_children": stat.num_children,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_by_name_and_have_every_child_once() {
        let names: Vec<String> = (0..2500).map(|number| format!("n{}", number * 7 % 2500)).collect();
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let wanted = Wanted { path: "/", after: &after, search: "", count: usize::MAX };
            let page = page(names.iter().map(String::as_str), &wanted);
            assert_eq!(page.found, 2500);
            seen.extend(page.names.iter().map(|name| (*name).to_owned()));
            if !page.more {
                break;
            }
            assert_eq!(page.names.len(), PAGE_MAX);
            after = seen.last().expect("a page has names").clone();
        }
        let mut all = names;
        all.sort();
        assert_eq!(seen, all);
    }

    #[test]
    fn a_search_finds_what_names_contain() {
        let wanted = Wanted { path: "/", after: "", search: "lock", count: 1 };
        let found = page(["b-lock", "a", "a-lock"].into_iter(), &wanted);
        assert_eq!((found.names, found.found, found.more), (vec!["a-lock"], 2, true));
    }
}
