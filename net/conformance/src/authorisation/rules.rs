//! The requests of the table under rules, which Apache ZooKeeper does not have: what each access leaves of
//! them, beside the answers to clients that nothing binds.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use ringkeeper_testkit::{Client, TlsFiles, create_body, set_data_body};
use ringkeeper_wire::{CreateMode, ErrorCode, OpCode};

use super::case::{Answer, BOUND, Case, Prober, Restricted, SASL_ROOT, SESSION_MS, SUPER};
use super::probe::PROBES;

const PLACE: &str = "/zookeeper/authorisation";
const RULE: &str = "/zookeeper/authorisation/sasl:user";

/// Requests that say nothing about a znode unless it may be read.
const FREE: [&str; 4] = ["sync", "getEphemerals", "addWatch", "setWatches"];

type Asked = (&'static str, Restricted, i32);

/// Asks everything without a rule, then under each, by clients that stay connected. Returns how many requests
/// that were, and what was wrong.
pub(super) fn check(server: SocketAddr, files: &TlsFiles) -> Result<(usize, Vec<String>)> {
    let mut prober = Prober::new(server, files, "rules");
    let mut root = Client::connect(server, SESSION_MS)?;
    root.login(SASL_ROOT, "secret")?;
    let unbound = answers(&mut prober, BOUND)?;
    let of_super = answers(&mut prober, SUPER)?;
    root.request(OpCode::Create, &create_body(PLACE, b"", CreateMode::Persistent.to_wire()))?.ok(PLACE)?;
    let (mut asked, mut wrong) = (0, Vec::new());
    for rule in ["none /", "acl /elsewhere", "read /", "acl /", "all /"] {
        let set = root.request(OpCode::SetData, &set_data_body(RULE, rule.as_bytes()))?;
        if set.err == ErrorCode::NoNode.to_wire() {
            let mode = CreateMode::Persistent.to_wire();
            root.request(OpCode::Create, &create_body(RULE, rule.as_bytes(), mode))?.ok(RULE)?;
        }
        for ((name, restricted, permissions), answer) in answers(&mut prober, BOUND)? {
            let key = (name, restricted, permissions);
            let is_right = match rule {
                "none /" | "acl /elsewhere" => shows_nothing(name, &answer),
                "read /" if changes(name) => !answer.is_allowed(),
                // Whoever has not ADMIN does not see the hashes of digests.
                "read /" | "all /" if name == "getACL" => {
                    let hides = rule == "read /" && restricted == Restricted::Node;
                    answer.is_allowed() && answer.hides_hashes() == hides
                }
                "acl /" => answer == unbound[&key],
                _ => answer == of_super[&key],
            };
            if !is_right {
                wrong.push(format!(
                    "under {rule:?}: {name} with {permissions:05b} on the {restricted:?}: {answer}"
                ));
            }
            asked += 1;
        }
    }
    ensure!(asked > 0, "nothing was asked");
    Ok((asked, wrong))
}

fn answers(prober: &mut Prober<'_>, requester: &str) -> Result<BTreeMap<Asked, Answer>> {
    let mut answers = BTreeMap::new();
    for case in Case::all(false).filter(|case| case.requester.name == requester) {
        for probe in PROBES {
            answers.insert((probe.name, case.restricted, case.permissions), prober.ask(&case, probe)?);
        }
    }
    Ok(answers)
}

fn shows_nothing(probe: &str, answer: &Answer) -> bool {
    let is_free = FREE.iter().any(|free| probe.starts_with(free));
    answer.is_allowed() == is_free && answer.shows_nothing()
}

fn changes(probe: &str) -> bool {
    let request = probe.strip_prefix("multi: ").unwrap_or(probe);
    ["create", "delete", "setData", "setACL"].iter().any(|change| request.starts_with(change))
}
